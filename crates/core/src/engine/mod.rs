//! The machine: turns, wakes, the walk of a cancel, ends. These files call each
//! other in a circle, which is why they stand in one folder.

pub(crate) mod alarm;
pub(crate) mod attach;
pub(crate) mod blocking_call;
pub(crate) mod children;
pub(crate) mod context;
pub(crate) mod deadline;
pub(crate) mod end;
pub(crate) mod forward;
pub(crate) mod guard;
pub(crate) mod hook;
pub(crate) mod host;
pub(crate) mod interrupts;
pub(crate) mod lease;
pub(crate) mod left_open;
pub(crate) mod look;
pub(crate) mod names;
pub(crate) mod on_its_way;
pub(crate) mod patience;
pub(crate) mod poll_record;
pub(crate) mod rows;
pub(crate) mod stop;
pub(crate) mod sweeper;
pub(crate) mod tree;
pub(crate) mod turn;
pub(crate) mod untaken;
pub(crate) mod waker;
pub(crate) mod walk;
pub(crate) mod waymark;
