// error: E0451
pub fn make(reason: kinfolk_core::Reason) -> kinfolk_core::Cancelled {
    kinfolk_core::Cancelled { reason }
}
