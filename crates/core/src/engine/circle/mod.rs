//! Modules that call each other in a circle, and so cannot be ordered: the end of a
//! body cancels and wakes, a wake gives a turn, a turn ends bodies, a cancel wakes. The
//! circle is as small as it can be; `tests/architecture.rs` checks that no other file
//! joins it.

pub(crate) mod deadline;
pub(crate) mod end;
pub(crate) mod guard;
pub(crate) mod hook;
pub(crate) mod interrupts;
pub(crate) mod lease;
pub(crate) mod left_open;
pub(crate) mod patience;
pub(crate) mod turn;
pub(crate) mod untaken;
pub(crate) mod waker;
pub(crate) mod walk;
