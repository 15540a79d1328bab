//! What a job is in memory: the state word, the header, the cold part, the cell.
//! Data and the steps on it; what those mean is decided in [`engine`](crate::engine).

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
