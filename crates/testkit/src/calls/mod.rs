//! Blocking calls of a simulation. Each runs on a thread of its own, and the simulation
//! waits for it: only one of the two runs at a time. See
//! `docs/decisions/2026-11-18-calls-take-turns.md`.

mod baton;
mod crew;
mod under_way;

pub(crate) use under_way::{UnderWay, Unseen};
