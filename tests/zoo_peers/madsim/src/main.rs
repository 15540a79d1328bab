//! The zoo on madsim.

mod files;
mod peer;
#[path = "../../shared/mod.rs"]
mod shared;

fn main() {
    shared::report();
}
