//! The life of a task's future: the cell it lives in, its turns, its waker.

pub(crate) mod cell;
mod pool;
pub(crate) mod run;
mod slab_word;
pub(crate) mod waker;
