//! What calls each other in a circle, and so cannot be put into an order: to end a body
//! cancels and wakes, a wake gives a turn, a turn ends bodies, a cancel wakes. As few
//! files as that can be; `tests/architecture.rs` sees to it that there are no others.

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
