//! What programs call: scopes, tasks, handles, lanes, leases.

pub(crate) mod attempt;
pub(crate) mod handle;
pub(crate) mod inline;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod local;
pub(crate) mod options;
pub(crate) mod scope;
pub(crate) mod span;
pub(crate) mod spawn;
pub(crate) mod stopping;
pub(crate) mod task;
pub(crate) mod verdict;
