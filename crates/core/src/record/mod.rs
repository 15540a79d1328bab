//! A job in memory: the state word, the header, the cold part, the cell. These
//! modules hold data and the steps on it; [`engine`](crate::engine) decides what they
//! mean.

pub(crate) mod alarm;
pub(crate) mod brake;
pub(crate) mod cell;
mod cell_pool;
pub(crate) mod cold;
pub(crate) mod failures;
pub(crate) mod header;
pub(crate) mod hook_cell;
pub(crate) mod requests;
mod slab_word;
pub(crate) mod state;
pub(crate) mod works;
