//! The poller of other systems than Linux: that of the crate of this name.

pub(super) use ::polling::{Event as PollEvent, Events, Poller};
