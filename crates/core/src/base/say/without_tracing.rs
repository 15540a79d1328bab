//! A line goes to standard error.

pub(super) use super::to_stderr as write;
