//! The zoo on tokio and turmoil.

mod files;
mod peer;
#[path = "../../shared/mod.rs"]
mod shared;

fn main() {
    shared::report();
}
