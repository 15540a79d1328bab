//! What every layer uses and what itself uses no other layer: the switch between
//! std and loom, the panic policy, identities, reasons, errors, counters.

pub(crate) mod brief;
pub(crate) mod clock;
pub(crate) mod drop_at_end;
pub(crate) mod error;
pub(crate) mod escape;
pub(crate) mod frames;
pub(crate) mod id;
pub(crate) mod kind;
pub(crate) mod lane;
pub(crate) mod list;
pub(crate) mod numbers;
pub(crate) mod observe;
pub(crate) mod outcome;
pub(crate) mod own;
pub(crate) mod own_time;
pub(crate) mod patience;
pub(crate) mod priority;
pub(crate) mod questions;
pub(crate) mod real_grace;
pub(crate) mod reason;
pub(crate) mod say;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod thread_activity;
pub(crate) mod timer_queue;
pub(crate) mod unwind;
pub(crate) mod virtual_calls;
pub(crate) mod wait_kind;
