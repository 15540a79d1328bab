//! The conformance suite: each rule and case of the contract is one function,
//! run on every host. A case is an async function that gets a
//! [`Lab`](kinfolk_testkit::Lab); it asserts, and leaves nothing behind. The
//! hosts are the files in `tests/`.

mod interrupted;
mod list;

pub mod aggregation;
pub mod blocking;
pub mod branches;
pub mod called;
pub mod cancel;
pub mod completion;
pub mod delivery;
pub mod draining;
pub mod dropped_calls;
pub mod exit;
pub mod factory_timers;
pub mod failure;
pub mod far;
pub mod given_up;
pub mod handles;
pub mod held_clock;
pub mod hooks;
pub mod hostile;
pub mod interrupts;
pub mod interrupts_meet;
pub mod kit;
pub mod left_elsewhere;
pub mod left_open;
pub mod local;
pub mod locals;
pub mod nesting;
pub mod outcomes;
pub mod own_errors;
pub mod passed;
pub mod passed_on;
pub mod put_back;
pub mod reasons;
pub mod requests;
pub mod revoking;
pub mod seeing;
pub mod semantics;
pub mod services;
pub mod set_verbs;
pub mod shield_rules;
pub mod shields;
pub mod spawning;
pub mod stuck;
pub mod supervisor;
pub mod swallowing;
pub mod sync_channels;
pub mod sync_locks;
pub mod sync_seeing;
pub mod task_branches;
pub mod task_sets;
pub mod tickers;
pub mod time;
pub mod timeouts;
pub mod timers;
pub mod told_scopes;
pub mod tree;
pub mod virtual_time;
pub mod work;
