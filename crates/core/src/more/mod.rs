//! Features on top of the model. The model does not know them.

pub(crate) mod again;
pub(crate) mod blocking;
pub(crate) mod combine;
pub(crate) mod frame;
pub mod kit;
pub(crate) mod own_end;
pub(crate) mod see;
pub(crate) mod service;
pub(crate) mod shutdown;
pub(crate) mod timers;
pub(crate) mod world;
