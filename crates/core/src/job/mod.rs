//! Jobs: the tree, how they end, and the handles to them.

pub(crate) mod attach;
pub(crate) mod clock;
pub(crate) mod cold;
pub(crate) mod cycles;
pub(crate) mod end;
pub(crate) mod failures;
pub(crate) mod handle;
pub(crate) mod header;
pub(crate) mod id;
pub(crate) mod inline;
pub(crate) mod kind;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod left_open;
pub(crate) mod list;
pub(crate) mod local;
pub(crate) mod names;
pub(crate) mod outcome;
pub(crate) mod scope;
pub(crate) mod service;
pub(crate) mod snapshot;
pub(crate) mod spawn;
pub(crate) mod state;
pub(crate) mod task;
pub(crate) mod untaken;
pub(crate) mod verdict;
pub(crate) mod waymark;

pub use cycles::{HeldBy, WaitCycle, WaitsFor};
pub use handle::{Job, Join};
pub use lease::Lease;
pub use scope::Scope;
pub use snapshot::{NodeSnapshot, PartOf, TreeSnapshot, Waiter};
pub use spawn::{SpawnError, Spawner};
pub use task::{OutcomeOf, Task, TaskOutcome};
