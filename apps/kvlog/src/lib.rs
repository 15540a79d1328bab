//! A durable key-value log over HTTP with group commit: what a program on
//! Kinfolk looks like. The README says what it promises.

pub mod http;
pub mod log;
pub mod record;
pub mod store;
