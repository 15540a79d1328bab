//! One job as plain data, as a snapshot and a report of a forced drop have it.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::escape::quoted;
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::lane::Lane;
use crate::base::observe::JobState;
use crate::base::priority::Priority;
use crate::base::wait_kind::WaitKind;

/// One job, as it was when it was looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeSnapshot {
    /// Its identity.
    pub id: JobId,
    /// Its parent's identity; none for the root.
    pub parent: Option<JobId>,
    /// How far below the root it stands.
    pub depth: usize,
    /// Its name.
    pub name: String,
    /// What sort of job it is.
    pub kind: JobKind,
    /// Its state.
    pub state: JobState,
    /// Where it was spawned or opened.
    pub site: &'static Location<'static>,
    /// How long ago.
    pub age: Duration,
    /// How often it was polled.
    pub polls: u32,
    /// The task it is part of: itself, if it is one; none for the root.
    pub task: Option<PartOf>,
    /// True if it is queued or being polled.
    pub running: bool,
    /// For how long its task has been polled without a pause, if it is being
    /// polled. A worker of the native runtime looks at the clock every sixteen
    /// turns, so that some of those before this one may be counted too; but none
    /// that began before the last snapshot.
    pub polled_for: Option<Duration>,
    /// True if it is a service: cancelled when its parent's body and ordinary
    /// children are over.
    pub service: bool,
    /// What it waits on, where that wait was made, and for how long; none if
    /// it runs, has not been polled, or its body is over.
    pub waits_on: Option<(WaitKind, Option<&'static Location<'static>>, Duration)>,
    /// If it is queued for a turn: what it waited on when it was polled last;
    /// [`WaitKind::Foreign`] if nothing of ours, as after it has woken itself.
    pub queued_after: Option<WaitKind>,
    /// The lock or the channel that it waits for, if it is one of those that can be
    /// seen: those of `kinfolk::sync` can.
    pub waits_for: Option<WaitsFor>,
    /// How many waits for its end are registered: the owner's that awaits its
    /// `Task`, and every `join`.
    pub waiters: usize,
    /// The jobs those waits are in, the owner first. The rest is
    /// [outside](NodeSnapshot::waiters_outside). That a parent waits for its
    /// children, and a task for its scopes, is in the tree and not in here.
    pub waited_for_by: Vec<WaitingJob>,
    /// How long until its own deadline; zero if it has passed.
    pub deadline_in: Option<Duration>,
    /// How long ago the cancel that marked it was asked for.
    pub cancelled_since: Option<Duration>,
    /// How long ago a point told it.
    pub told_since: Option<Duration>,
    /// Why it was cancelled, in words.
    pub reason: Option<String>,
    /// How many leases hold it open.
    pub leases: u32,
    /// True if a shield or a guard holds a cancel back here.
    pub shielded: bool,
    /// For how much longer a shield with a budget, such as a clean-up, may hold a
    /// cancel back; none for a job that is no such shield.
    pub budget_left: Option<Duration>,
    /// Where that was entered.
    pub shielded_at: Option<&'static Location<'static>>,
    /// Where it is polled.
    pub lane: Lane,
    /// How soon it is polled beside others, if its lane is the pool; and what it hands on to
    /// its children.
    pub priority: Priority,
    /// True if its body has ignored a hundred `Cancelled`s.
    pub swallows_cancellation: bool,
}

/// The task that a job is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartOf {
    /// Its identity.
    pub id: JobId,
    /// Its name.
    pub name: Arc<str>,
    /// Where it was spawned.
    pub site: &'static Location<'static>,
    /// How long ago a point told it, in whatever scope of it.
    pub told_since: Option<Duration>,
}

/// A job that waits for the end of another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingJob {
    /// Its identity.
    pub id: JobId,
    /// Its name; none if it is not in the same snapshot: it is another root's,
    /// it came or went while the snapshot was taken, or one job was looked at
    /// by itself.
    pub name: Option<String>,
}

impl fmt::Display for WaitingJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => quoted(name).fmt(f),
            None => self.id.fmt(f),
        }
    }
}

/// A lock or a channel that a job waits for, and the jobs that hold it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitsFor {
    /// What sort of thing it is: "mutex", "channel".
    pub kind: &'static str,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Where it was made.
    pub site: &'static Location<'static>,
    /// The jobs that hold it, as far as they are known.
    pub held_by: Vec<HeldBy>,
}

/// A job that holds what another waits for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldBy {
    /// Its identity.
    pub id: JobId,
    /// Its name; none if it is not in the same snapshot.
    pub name: Option<String>,
    /// Where it took what it holds.
    pub site: &'static Location<'static>,
}
