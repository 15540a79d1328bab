//! What sort of job a node of the tree is.

use std::fmt;
use std::panic::Location;

/// What sort of job this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum JobKind {
    /// The root of a tree.
    Root = 0,
    /// A job with its own future to schedule.
    Task = 1,
    /// A job whose body is polled inside the task that opened it.
    Scope = 2,
    /// A scope made by `timeout`.
    Timeout = 3,
    /// A scope that holds cancellation back.
    Shield = 4,
    /// A scope that is one branch of `all`, `any`, `race`, `select!` or
    /// `for_each_concurrent`.
    Branch = 5,
    /// A child of a `local_scope`, polled inside the task that opened it.
    LocalTask = 6,
    /// A future that another executor polls; see [`Scope::host`](crate::Scope::host).
    Hosted = 7,
}

impl JobKind {
    pub(crate) fn from_bits(bits: u8) -> JobKind {
        match bits {
            0 => JobKind::Root,
            1 => JobKind::Task,
            2 => JobKind::Scope,
            3 => JobKind::Timeout,
            4 => JobKind::Shield,
            5 => JobKind::Branch,
            6 => JobKind::LocalTask,
            7 => JobKind::Hosted,
            other => unreachable!("no job kind {other}"),
        }
    }

    /// Returns the name of a job of this kind that was given none: kind, file and line.
    pub fn name_at(self, site: &Location<'_>) -> String {
        if self == JobKind::Root {
            return "root".into();
        }
        let file = site.file().rsplit(['/', '\\']).next().unwrap_or_default();
        format!("{self}@{file}:{}", site.line())
    }

    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [JobKind; 8] = [
        JobKind::Root,
        JobKind::Task,
        JobKind::Scope,
        JobKind::Timeout,
        JobKind::Shield,
        JobKind::Branch,
        JobKind::LocalTask,
        JobKind::Hosted,
    ];
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobKind::Root => "root",
            JobKind::Task => "task",
            JobKind::Scope => "scope",
            JobKind::Timeout => "timeout",
            JobKind::Shield => "shield",
            JobKind::Branch => "branch",
            JobKind::LocalTask => "local task",
            JobKind::Hosted => "hosted future",
        })
    }
}
