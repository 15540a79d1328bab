//! Points: where a body can observe a cancel.

pub(crate) mod ignore;
pub(crate) mod point;
pub(crate) mod sleep;
pub(crate) mod wait;
