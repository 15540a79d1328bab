//! [`BareSpawns`]: tokio tasks that a job has started by `tokio::spawn`, so that no scope waits
//! for them. Found by a sink, which counts the living tokio tasks before and after each turn.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use kinfolk_core::{Event, EventKind, Interests, Job, Sink, current_job};
use tokio::runtime::Handle;

/// Receives [`BareSpawns`]; see [`RootBuilder::on_bare_spawn`](crate::RootBuilder::on_bare_spawn).
pub type BareSpawnHook = Box<dyn Fn(&BareSpawns) + Send + Sync>;

/// What a job has started by `tokio::spawn` in one turn.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BareSpawns {
    /// The job, which has just had that turn.
    pub job: Job,
    /// How many tokio tasks.
    pub tasks: usize,
}

impl fmt::Display for BareSpawns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BareSpawns { job, tasks } = self;
        write!(
            f,
            "{job:?} has started {tasks} tokio tasks by tokio::spawn: no scope waits for them, \
             and no cancel reaches them"
        )
    }
}

thread_local! {
    /// How many tokio tasks there were when the turns that go on on this thread began, and how
    /// many of those that came since are accounted for.
    static KNOWN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A tokio task became the child of a scope.
pub(crate) fn adopted() {
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known.last_mut() {
            *known += 1;
        }
    });
}

/// Looks at each turn, and passes events on to the sink of the program.
pub(crate) struct BareSpawnSink {
    tokio: Handle,
    hook: BareSpawnHook,
    next: Option<(Arc<dyn Sink>, Interests)>,
}

impl BareSpawnSink {
    pub(crate) fn new(tokio: Handle, hook: BareSpawnHook, next: Option<Arc<dyn Sink>>) -> Self {
        let next = next.map(|sink| {
            let interests = sink.interests();
            (sink, interests)
        });
        BareSpawnSink { tokio, hook, next }
    }

    fn living(&self) -> usize {
        self.tokio.metrics().num_alive_tasks()
    }

    /// The turn of the current job is over.
    fn look(&self) {
        let living = self.living();
        let tasks = KNOWN.with_borrow_mut(|known| {
            let tasks = living.saturating_sub(known.pop().unwrap_or(living));
            if let Some(around) = known.last_mut() {
                *around += tasks;
            }
            tasks
        });
        if tasks > 0
            && let Some(job) = current_job()
        {
            (self.hook)(&BareSpawns { job, tasks });
        }
    }

    /// The sink of the program, if it wants that event.
    fn next_for(&self, event: &Event) -> Option<&dyn Sink> {
        let (sink, interests) = self.next.as_ref()?;
        let is_of_turns = matches!(
            event.kind,
            EventKind::Scheduled { .. } | EventKind::PollBegin | EventKind::PollEnd
        );
        (!is_of_turns || interests.has(Interests::TURNS)).then_some(&**sink)
    }
}

impl Sink for BareSpawnSink {
    fn event(&self, event: &Event) {
        match event.kind {
            EventKind::PollBegin => KNOWN.with_borrow_mut(|known| known.push(self.living())),
            EventKind::PollEnd => self.look(),
            _ => {}
        }
        if let Some(sink) = self.next_for(event) {
            sink.event(event);
        }
    }

    fn event_with(&self, event: &Event, text: &str) {
        if let Some(sink) = self.next_for(event) {
            sink.event_with(event, text);
        }
    }

    fn trouble(&self, what: &str) -> Option<String> {
        self.next.as_ref()?.0.trouble(what)
    }

    fn interests(&self) -> Interests {
        let next = self.next.as_ref().map(|next| next.1);
        Interests::TURNS | next.unwrap_or_default()
    }
}
