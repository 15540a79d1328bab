//! The machine: turns, wakes, the walk of a cancel, ends, and the tree that they share.
//! The modules that call each other in a circle are in [`circle`]; other code names them
//! without it.

pub(crate) mod alarm;
pub(crate) mod attach;
pub(crate) mod blocking_call;
pub(crate) mod brake;
pub(crate) mod children;
mod circle;
pub(crate) mod context;
pub(crate) mod ended_itself;
pub(crate) mod forward;
pub(crate) mod host;
pub(crate) mod look;
pub(crate) mod names;
pub(crate) mod on_its_way;
pub(crate) mod outlet;
pub(crate) mod owed;
pub(crate) mod pin;
pub(crate) mod poll_record;
pub(crate) mod rows;
pub(crate) mod stop;
pub(crate) mod sweeper;
pub(crate) mod tree;
pub(crate) mod waymark;

pub(crate) use circle::{
    deadline, end, guard, hook, interrupts, lease, left_open, patience, turn, untaken, waker, walk,
};
