//! Points: where a body hears of a cancel.

pub(crate) mod ignore;
pub(crate) mod point;
pub(crate) mod sleep;
pub(crate) mod wait;
