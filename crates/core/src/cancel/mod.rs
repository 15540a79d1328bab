//! Cancellation: why, how the mark travels, where a body hears of it, and
//! what holds it back.

pub(crate) mod forward;
pub(crate) mod guard;
pub(crate) mod hook;
mod numbers;
pub(crate) mod on_its_way;
pub(crate) mod patience;
pub(crate) mod point;
pub(crate) mod reason;
pub(crate) mod request;
pub(crate) mod sweep;
pub(crate) mod wait;
pub(crate) mod walk;
