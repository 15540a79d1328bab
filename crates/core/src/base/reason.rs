//! Why a job was cancelled. A [`Reason`] is stored once, at the job where the
//! cancel entered the tree, and shared from there.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::base::escape::{LONG, escaped, quoted};
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::numbers::Numbers;

/// What led to a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReasonKind {
    /// `cancel` was called.
    Asked,
    /// A deadline passed.
    Deadline,
    /// A child failed, and its parent's other children were cancelled.
    ChildFailed,
    /// The body failed, and its children were cancelled.
    BodyFailed,
    /// The owning handle was dropped.
    HandleDropped,
    /// A scope's future was dropped half-way.
    ScopeDropped,
    /// The scope had ended, was closed, or had no children left but services.
    ScopeEnded,
    /// Another branch decided the result of `race`, `any`, `select!` or `all`.
    RaceLost,
    /// `interrupt` was called, and a point returned it or the body ended with it.
    Interrupted,
    /// The runtime is being shut down.
    Shutdown,
    /// The host went away before the job had ended.
    HostGone,
    /// An ancestor was cancelled; see [`Reason::root_cause`].
    Parent,
}

#[derive(Debug)]
pub(crate) struct ReasonData {
    pub(crate) kind: ReasonKind,
    pub(crate) text: Option<Cow<'static, str>>,
    /// The job at which the cancel entered.
    pub(crate) origin: JobId,
    /// The job that failed, where a failure is the cause.
    pub(crate) culprit: Option<(JobId, String)>,
    pub(crate) site: &'static Location<'static>,
    pub(crate) at: Instant,
    /// The job that asked for it, where one did.
    pub(crate) by: Option<AskedBy>,
    /// Of a request that a point took: what it took.
    pub(crate) delivery: Option<Delivery>,
}

/// The job in which a cancel was called. Its name is put together when it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct AskedBy {
    pub(crate) id: JobId,
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) kind: JobKind,
    pub(crate) site: &'static Location<'static>,
}

impl AskedBy {
    fn name(&self) -> String {
        match &self.name {
            Some(name) => name.to_string(),
            None => self.kind.name_at(self.site),
        }
    }
}

/// What a point took, in the reason that it told: so that it can be put back.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The latest of them.
    pub(crate) request: Arc<ReasonData>,
    pub(crate) numbers: Numbers,
    /// They are put back once, however many copies of the reason there are.
    pub(crate) is_back: AtomicBool,
}

impl Delivery {
    pub(crate) fn request(&self) -> &Arc<ReasonData> {
        &self.request
    }
}

/// Why a job was cancelled: a kind, an optional text, the job at which the cancel entered
/// the tree, and the place in the code that asked for it.
#[derive(Clone)]
pub struct Reason {
    data: Arc<ReasonData>,
    inherited: bool,
}

impl Reason {
    pub(crate) fn new(data: Arc<ReasonData>, inherited: bool) -> Self {
        Reason { data, inherited }
    }

    /// Returns the kind as seen by the cancelled job: [`ReasonKind::Parent`] for every job
    /// below the one at which the cancel entered.
    pub fn kind(&self) -> ReasonKind {
        if self.inherited {
            ReasonKind::Parent
        } else {
            self.data.kind
        }
    }

    /// Returns the reason as it was stored at the job where the cancel entered.
    pub fn root_cause(&self) -> Reason {
        Reason {
            data: self.data.clone(),
            inherited: false,
        }
    }

    /// Returns the text given with the cancel.
    pub fn text(&self) -> Option<&str> {
        self.data.text.as_deref()
    }

    /// Returns the job at which the cancel entered the tree.
    pub fn origin(&self) -> JobId {
        self.data.origin
    }

    /// Returns the job whose failure led to the cancel, and its name: of a
    /// [`ReasonKind::ChildFailed`] or [`ReasonKind::BodyFailed`], and of a
    /// [`ReasonKind::RaceLost`] if a branch failed.
    pub fn culprit(&self) -> Option<(JobId, &str)> {
        self.data
            .culprit
            .as_ref()
            .map(|(id, name)| (*id, name.as_str()))
    }

    /// Returns the job that called `cancel` or `interrupt`, and its name: of a
    /// [`ReasonKind::Asked`] or [`ReasonKind::Interrupted`]. None if the call was made outside
    /// every job, in a hook for example.
    pub fn asked_by(&self) -> Option<(JobId, String)> {
        self.data.by.as_ref().map(|by| (by.id, by.name()))
    }

    /// Returns the place in the code that asked for the cancel.
    pub fn site(&self) -> &'static Location<'static> {
        self.data.site
    }

    /// Returns true if both reasons belong to the same cancel.
    pub fn same(&self, other: &Reason) -> bool {
        Arc::ptr_eq(self.stored(), other.stored())
    }

    /// What was stored when it was asked for.
    fn stored(&self) -> &Arc<ReasonData> {
        (self.data.delivery.as_ref()).map_or(&self.data, Delivery::request)
    }

    pub(crate) fn data(&self) -> &Arc<ReasonData> {
        &self.data
    }
}

impl fmt::Display for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReasonKind::Asked => "cancel requested",
            ReasonKind::Deadline => "its deadline passed",
            ReasonKind::ChildFailed => "a child failed",
            ReasonKind::BodyFailed => "its body failed",
            ReasonKind::HandleDropped => "its handle was dropped",
            ReasonKind::ScopeDropped => "its scope was dropped",
            ReasonKind::ScopeEnded => "its scope has ended",
            ReasonKind::RaceLost => "it lost to another branch",
            ReasonKind::Interrupted => "interrupted",
            ReasonKind::Shutdown => "the runtime is shutting down",
            ReasonKind::HostGone => "its host is gone",
            ReasonKind::Parent => "an ancestor was cancelled",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.inherited {
            write!(f, "{}: ", ReasonKind::Parent)?;
        }
        write!(f, "{}", self.data.kind)?;
        if let Some((id, name)) = &self.data.culprit {
            write!(f, " ({} {id})", escaped(name))?;
        }
        if let Some(text) = &self.data.text {
            write!(f, " {}", quoted(text).cut_after(LONG))?;
        }
        if let Some(by) = &self.data.by {
            write!(f, " by {} {}", escaped(&by.name()), by.id)?;
        }
        write!(f, " at {}:{}", self.data.site.file(), self.data.site.line())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({self})")
    }
}
