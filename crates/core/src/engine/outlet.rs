//! The way of a tree's events to its sink: the sink, the events that it asked for, and the
//! clock that its events show. Without a sink an event costs one load of a field; the code in
//! this file runs only with a sink.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::base::error::Error;
use crate::base::id::JobId;
use crate::base::observe::{Event, EventKind, Interests, JobState, Sink};
use crate::base::sync::local;
use crate::base::thread;
use crate::base::unwind;
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::engine::tree::{Shared, Tree};
use crate::record::header::{Header, JobRef, Site};
use crate::record::state;

/// An event that the sink receives later, and its text.
type Untold = (Tree, Event, Option<Box<str>>);

/// Events that happen inside a call of the sink, on its thread, and that the sink
/// receives when that call has returned.
type UntoldRow = RefCell<VecDeque<Untold>>;

local!(static UNTOLD: Cell<*const UntoldRow> = Cell::new(ptr::null()); fn untold);

thread_local! {
    /// The lock or channel that the last wait of the polled job named, until the turn is
    /// over.
    static RESOURCE: RefCell<Option<(JobId, String)>> = const { RefCell::new(None) };
}

/// True if the sink of the job that is polled here asks for waits and texts.
#[inline]
pub(crate) fn wants_waits_here() -> bool {
    context::with(|cx| {
        cx.current().is_some_and(|job| {
            // SAFETY: being polled, so not ended.
            let tree = unsafe { job.tree() };
            tree.wants(Interests::WAITS) && tree.wants(Interests::TEXTS)
        })
    })
}

/// The job that is polled here waits for `what`.
#[cold]
pub(crate) fn note_resource(what: String) {
    if let Some(job) = context::current_id() {
        let _ = RESOURCE.try_with(|resource| resource.replace(Some((job, what))));
    }
}

/// What `job` waits for, if it was noted on this thread last.
fn take_resource(job: JobId) -> Option<String> {
    let noted = RESOURCE.try_with(RefCell::take).ok().flatten();
    noted.filter(|(of, _)| *of == job).map(|(_, what)| what)
}

impl Tree {
    /// Tells the sink of this tree about trouble that is no event, such as a signal: see
    /// [`Sink::trouble`]. For hosts. Returns what the sink has done about the trouble, in
    /// words for the log; none if it has done nothing, or if this is called inside a sink. May
    /// wait for a file.
    pub fn tell_of_trouble(&self, what: &str) -> Option<String> {
        self.shared().tell_of_trouble(what)
    }
}

impl Shared {
    /// True if there is a sink that asked for one of these.
    #[inline]
    pub(crate) fn wants(&self, these: Interests) -> bool {
        self.outlet.wants(these)
    }

    /// True if there is a sink.
    #[inline]
    pub(crate) fn has_sink(&self) -> bool {
        self.outlet.is_there()
    }

    /// Tells the sink, if there is one.
    #[inline]
    pub(crate) fn emit(&self, job: JobId, kind: EventKind) {
        if self.has_sink() {
            self.emit_to_sink(job, kind, None);
        }
    }

    /// Tells the sink of an event that few sinks ask for.
    #[inline]
    pub(crate) fn emit_for(&self, these: Interests, job: JobId, kind: EventKind) {
        if self.wants(these) {
            self.emit_to_sink(job, kind, None);
        }
    }

    #[cold]
    fn emit_to_sink(&self, job: JobId, kind: EventKind, text: Option<&str>) {
        self.emit_with_time(job, kind, text, self.nanos());
    }

    /// The same of an event that has the time `at`, which may be a moment ago.
    #[cold]
    fn emit_with_time(&self, job: JobId, kind: EventKind, text: Option<&str>, at: u64) {
        let event = Event {
            thread: thread::thread(),
            worker: self.host.worker(),
            ..Event::new(job, at, kind)
        };
        let around = untold(Cell::get);
        // SAFETY: the call of a sink further down this stack has set it, and resets
        // it before the list is dropped.
        if let Some(around) = unsafe { around.as_ref() } {
            let later = (self.handle(), event, text.map(Box::from));
            around.borrow_mut().push_back(later);
            return;
        }
        self.in_sink(|| self.tell(&event, text));
    }

    /// Tells the sink about trouble that is no event. Returns what the sink has done about
    /// it, in words.
    pub(crate) fn tell_of_trouble(&self, what: &str) -> Option<String> {
        let is_inside = !untold(Cell::get).is_null();
        if is_inside {
            return None;
        }
        self.in_sink(|| self.call(|sink| sink.trouble(what)))?
    }

    /// Makes a call of the sink; events that happen inside the call, on this thread, reach
    /// the sink when the call has returned.
    fn in_sink<R>(&self, call: impl FnOnce() -> R) -> R {
        let waiting = UntoldRow::default();
        untold(|here| here.set(&raw const waiting));
        let answer = call();
        loop {
            // Events may be added while the sink receives this one.
            let next = waiting.borrow_mut().pop_front();
            let Some((tree, event, text)) = next else {
                break;
            };
            tree.shared().tell(&event, text.as_deref());
        }
        untold(|here| here.set(ptr::null()));
        answer
    }

    fn tell(&self, event: &Event, text: Option<&str>) {
        self.call(|sink| match text {
            Some(text) => sink.event_with(event, text),
            None => sink.event(event),
        });
    }

    /// Calls the sink. A sink that panics is reported and is not called again.
    fn call<R>(&self, call: impl FnOnce(&dyn Sink) -> R) -> Option<R> {
        let sink = self.outlet.sink.as_ref()?;
        if self.outlet.is_broken.load(Ordering::Relaxed) {
            return None;
        }
        match unwind::caught(|| call(&***sink)) {
            Ok(answer) => Some(answer),
            Err(payload) => {
                if !self.outlet.is_broken.swap(true, Ordering::Relaxed) {
                    let place = "the sink for events, which gets no more of them";
                    self.report_failure(&Error::panicked_in(place, payload));
                }
                None
            }
        }
    }

    /// Nanoseconds since the tree began: enough for 584 years.
    pub(crate) fn nanos(&self) -> u64 {
        let now = match self.outlet.by_host {
            true => self.host.now(),
            false => Instant::now(),
        };
        let since = now.saturating_duration_since(self.outlet.began);
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }

    /// A job was made: tells the sink its parent and the facts of its birth.
    #[cold]
    pub(crate) fn tell_of_birth(&self, job: &Header, parent: Option<&Header>) {
        let (kind, site, lane) = (job.kind(), job.site(), job.lane());
        let name = match self.wants(Interests::TEXTS) {
            true => job.if_cold(|cold, _| cold.name.clone()).flatten(),
            false => None,
        };
        let create = EventKind::Create { kind, site, lane };
        self.emit_to_sink(job.id, create, name.as_deref());
        let Some(parent) = parent.map(|parent| parent.id) else {
            return;
        };
        self.emit(job.id, EventKind::Attach { parent });
        if job.state.load().has(state::CANCELLED) {
            self.emit_hop(job.id, parent);
            let to = JobState::Cancelling;
            self.emit(job.id, EventKind::State { to });
        }
    }

    /// A cancel has entered the tree at `job`; it was asked for at the time `at`. Its mark may
    /// have ended the job by now, on another thread.
    #[cold]
    pub(crate) fn tell_of_cancel(&self, job: &Header, request: EventKind, at: u64) {
        let text = match self.wants(Interests::TEXTS) {
            true => job
                .if_cold(|cold, _| cold.reason.as_ref().and_then(|data| data.text.clone()))
                .flatten(),
            false => None,
        };
        self.emit_with_time(job.id, request, text.as_deref(), at);
    }

    /// The job `from`, which is above `job`, has passed a cancel on to it.
    pub(crate) fn emit_hop(&self, job: JobId, from: JobId) {
        self.emit_for(Interests::CAUSES, job, EventKind::CancelHop { from });
    }

    /// A cancel has come to `job` from above at the time `at`, or was let in: the time before
    /// the mark. For a caller that knows that a sink asks for it.
    #[cold]
    pub(crate) fn tell_of_hop(&self, job: JobId, hop: EventKind, at: u64) {
        self.emit_with_time(job, hop, None, at);
    }

    /// The hop to a job whose guard or shield has held the cancel back until now. A job that
    /// may be about to end needs no hop.
    #[cold]
    pub(crate) fn emit_late_hop(&self, job: &Header, at: u64) {
        if !job.state.load().has(state::ORIGIN)
            && let Some(parent) = job.parent_from_outside()
        {
            let from = parent.id;
            self.tell_of_hop(job.id, EventKind::CancelHop { from }, at);
        }
    }

    /// A task is given to its host.
    #[cold]
    pub(crate) fn tell_of_wake(&self, task: JobId) {
        let by = context::waking_job();
        self.emit(task, EventKind::Scheduled { by });
    }

    /// A turn of `task` begins.
    #[cold]
    pub(crate) fn tell_of_turn(&self, task: &Header, is_first: bool) {
        if !is_first {
            self.emit_for(Interests::WAITS, task.id, EventKind::WaitEnd);
        }
        self.emit_for(Interests::TURNS, task.id, EventKind::PollBegin);
    }

    /// The turn of `task` is over; `waits` says whether the task waits after
    /// it.
    #[cold]
    pub(crate) fn tell_of_turns_end(&self, task: &Header, waits: bool) {
        self.emit_for(Interests::TURNS, task.id, EventKind::PollEnd);
        if waits && self.wants(Interests::WAITS) {
            let (job, kind, site) = wait_of(task);
            let resource = take_resource(job);
            let begin = EventKind::WaitBegin { kind, site };
            self.emit_to_sink(job, begin, resource.as_deref());
        }
    }
}

/// How many of the newest children are searched for the scope in which a task waits: that
/// scope was most often opened last.
const LOOKS: usize = 32;

/// What `task`, whose turn is still the caller's, waits for: in the task itself, or in the
/// innermost of its scopes.
fn wait_of(task: &Header) -> (JobId, WaitKind, Option<&'static Location<'static>>) {
    let mut at = JobRef::from_header(task);
    loop {
        if at.no_wait_of_ours() {
            return (at.id, WaitKind::Foreign, None);
        }
        let kind = WaitKind::from_bits(at.wait_kind.load(Ordering::Relaxed));
        let site = Site(at.wait_site.load(Ordering::Relaxed)).location();
        let scope = match kind {
            WaitKind::Scope => newest_scope(&at, site),
            _ => None,
        };
        match scope {
            Some(scope) => at = scope,
            None => return (at.id, kind, Some(site)),
        }
    }
}

/// The scope of `job` that was opened at `site` last.
fn newest_scope(job: &Header, site: &'static Location<'static>) -> Option<JobRef> {
    let _locked = job.lock();
    // SAFETY: H1 and H2, we hold the lock of the list.
    let mut next = unsafe { job.first.get().as_ref() };
    for _ in 0..LOOKS {
        let child = next?;
        if !child.was_spawned() && ptr::eq(child.site(), site) {
            return Some(JobRef::from_header(child));
        }
        // SAFETY: as above.
        next = unsafe { child.next.get().as_ref() };
    }
    None
}
