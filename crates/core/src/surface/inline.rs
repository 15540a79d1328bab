//! Inline scopes: jobs whose body is polled inside the task that opened them.
//! One future serves scopes, timeouts, shields and branches, as an enum of its
//! stages: the options of a scope to open, the body, the wait for the children.
//!
//! What the call returns is decided by [`verdict`].

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::base::error::{Cancelled, Error, Result};
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::lane::Lane;
use crate::base::observe::{Count, EventKind, Interests};
use crate::base::outcome::IntoOutcome;
use crate::base::own::{self, Kept, OwnError};
use crate::base::reason::ReasonKind;
use crate::base::unwind::{caught, contained, discard};
use crate::base::wait_kind::WaitKind;
use crate::engine::attach::{self, Refusal};
use crate::engine::context;
use crate::engine::deadline;
use crate::engine::end::{self, Reached};
use crate::engine::ended_itself::OverJob;
use crate::engine::guard;
use crate::engine::hook;
use crate::engine::interrupts;
use crate::engine::left_open;
use crate::engine::on_its_way::OnItsWay;
use crate::engine::patience;
use crate::engine::pin;
use crate::engine::tree::{ForcedDrop, Shared};
use crate::engine::turn;
use crate::engine::waker;
use crate::engine::walk::{self, Why};
use crate::points::sleep::Moment;
use crate::points::wait::Wait;
use crate::record::cell;
use crate::record::cold::{self, LocalValue};
use crate::record::header::{Birth, BirthFacts, Header, JobRef, MOST_SHARES, Site};
use crate::record::state::{self, Snapshot};
use crate::record::works;
use crate::surface::options::Options;
use crate::surface::scope::Scope;
use crate::surface::spawn::{refused_error, refused_job};
use crate::surface::verdict::{Got, verdict};

/// Something that a scope can run: a closure that takes the [`Scope`] and returns the body, or
/// a future.
pub trait Open {
    /// The future that the scope polls.
    type Body: Future;

    /// The value that the call returns.
    type Value;

    /// The error that the call returns.
    type Error: OwnError;

    #[doc(hidden)]
    fn open(self, scope: Scope) -> Self::Body;

    #[doc(hidden)]
    fn result(output: Output<Self>) -> Result<Self::Value, Self::Error>;
}

type Output<O> = <<O as Open>::Body as Future>::Output;

/// A closure that takes the scope.
pub struct WithScope<F>(pub(crate) F);

impl<F, B> Open for WithScope<F>
where
    F: FnOnce(Scope) -> B,
    B: Future<Output: IntoOutcome>,
{
    type Body = B;
    type Value = <B::Output as IntoOutcome>::Value;
    type Error = Error;

    fn open(self, scope: Scope) -> B {
        (self.0)(scope)
    }

    fn result(output: B::Output) -> Result<Self::Value> {
        output.into_result()
    }
}

/// A closure that takes the scope and fails with an error of its author's own
/// type.
pub struct WithScopeAs<F>(pub(crate) F);

impl<F, B, T, E> Open for WithScopeAs<F>
where
    F: FnOnce(Scope) -> B,
    B: Future<Output = Result<T, E>>,
    E: OwnError,
{
    type Body = B;
    type Value = T;
    type Error = E;

    fn open(self, scope: Scope) -> B {
        (self.0)(scope)
    }

    fn result(output: Result<T, E>) -> Result<T, E> {
        output
    }
}

/// A future that needs no scope handed to it.
pub struct Just<B>(pub(crate) B);

impl<B: Future<Output: IntoOutcome>> Open for Just<B> {
    type Body = B;
    type Value = <B::Output as IntoOutcome>::Value;
    type Error = Error;

    fn open(self, _: Scope) -> B {
        self.0
    }

    fn result(output: B::Output) -> Result<Self::Value> {
        output.into_result()
    }
}

/// What kind of scope to open.
pub(crate) struct Setup {
    pub(crate) kind: JobKind,
    pub(crate) supervisor: bool,
    pub(crate) site: &'static Location<'static>,
    pub(crate) limit: Moment,
    pub(crate) more: Option<Box<More>>,
}

/// Settings that most scopes do not have.
#[derive(Default)]
pub(crate) struct More {
    pub(crate) options: Options,
    pub(crate) text: Option<Cow<'static, str>>,
    pub(crate) budget: Option<SectionBudget>,
    pub(crate) cancelled: Option<Cow<'static, str>>,
    /// A branch whose future is a task: the branch has lost, and is opened to wait
    /// for that task.
    pub(crate) lost: Option<Why>,
    pub(crate) local: Option<LocalValue>,
    /// A future that is hosted below this job, and not below the job that polls it.
    pub(crate) below: Option<JobRef>,
}

/// How long a shield may hold a cancel back.
#[derive(Clone, Copy)]
pub(crate) enum SectionBudget {
    For(Duration),
    /// The time for clean-up in the patience that applies here.
    Cleanup,
}

impl Setup {
    pub(crate) fn new(kind: JobKind, site: &'static Location<'static>) -> Setup {
        Setup {
            kind,
            supervisor: false,
            site,
            limit: Moment::Never,
            more: None,
        }
    }

    pub(crate) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

/// The body's own error, to be returned if it is the only failure.
pub(crate) type Own<O> = Option<Kept<<O as Open>::Error>>;

/// What the caller gets when a scope is over.
pub(crate) trait Finish<O: Open> {
    type Out;

    /// Body and children are over, and the node has ended.
    fn over(job: OverJob<'_>, answer: Result<O::Value>, own: Own<O>) -> Self::Out;

    /// The scope had no job, or was left behind.
    fn never(error: O::Error) -> Self::Out;
}

/// The answer as it is.
pub(crate) struct AsItIs;

impl<O: Open> Finish<O> for AsItIs {
    type Out = Result<O::Value, O::Error>;

    #[inline(always)]
    fn over(_: OverJob<'_>, answer: Result<O::Value>, own: Own<O>) -> Self::Out {
        answer.map_err(|error| own::give_back(error, own))
    }

    #[inline(always)]
    fn never(error: O::Error) -> Self::Out {
        Err(error)
    }
}

pin_project! {
    #[project = StageProj]
    #[project_replace = StageOwn]
    enum InlineStage<O: Open> {
        Start { open: O, setup: Setup },
        Body { #[pin] body: O::Body },
        Waiting { got: Got<O::Value>, own: Own<O> },
        Done,
    }
}

pin_project! {
    /// The future of a scope, a timeout or a shield.
    ///
    /// # Cancellation
    /// Opening and leaving it is *not a point* and never yields. Dropping it
    /// half-way cancels what it started; the enclosing job waits for that.
    #[must_use = "futures do nothing unless awaited"]
    pub struct Inline<O: Open> {
        #[pin]
        stage: InlineStage<O>,
        node: Option<JobRef>,
        wait: Wait,
    }

    impl<O: Open> PinnedDrop for Inline<O> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(node) = this.node.take() {
                if left_open::hold(&node).is_none() {
                    drop_left_behind(this.stage);
                    return;
                }
                let in_body = matches!(*this.stage, InlineStage::Body { .. });
                let forced = if in_body { forced_here(&node) } else { None };
                drop_stage(&node, this.stage, in_body);
                if let Some(seen) = forced {
                    // SAFETY: not ended: its future, which ends it, exists.
                    unsafe { node.tree() }.note_forced(seen);
                    node.state.was_dropped();
                }
                if in_body {
                    left_open::close_all(&node);
                }
                left_open::abandon(&node, in_body, ReasonKind::ScopeDropped);
            } else if matches!(*this.stage, InlineStage::Start { .. }) {
                // The scope was never opened: the drop of its body is
                // contained.
                contained(|| this.stage.set(InlineStage::Done));
            }
        }
    }
}

impl<O: Open> Inline<O> {
    pub(crate) fn new(open: O, setup: Setup) -> Inline<O> {
        Inline {
            stage: InlineStage::Start { open, setup },
            node: None,
            wait: Wait::new(),
        }
    }

    /// Makes a scope as a child of `parent`, which need not be the current job,
    /// and links it at once. Returns the refusal if `parent` refuses it.
    pub(crate) fn spawned(
        open: O,
        setup: Setup,
        parent: &Header,
    ) -> Result<Inline<O>, (O, Refusal)> {
        let Some(tree) = pin::tree_of(parent) else {
            pin::count_refused(parent);
            return Err((open, Refusal::Ended));
        };
        let most = tree.most_children;
        match make_node(setup, &tree, parent, most) {
            Ok(node) => {
                let body = open.open(Scope::new(node.clone()));
                Ok(Inline {
                    stage: InlineStage::Body { body },
                    node: Some(node),
                    wait: Wait::new(),
                })
            }
            Err(refusal) => {
                tree.counters.add(Count::Refused);
                Err((open, refusal))
            }
        }
    }

    /// Polls the scope. If it stays open, `then` is called, as a part of the
    /// poll.
    pub(crate) fn poll_and(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        then: impl FnOnce(&Header, &mut Context<'_>),
    ) -> Poll<Result<O::Value, O::Error>> {
        self.poll_as::<AsItIs>(cx, then)
    }

    /// The same, with the answer that `R` makes.
    #[inline]
    pub(crate) fn poll_as<R: Finish<O>>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        then: impl FnOnce(&Header, &mut Context<'_>),
    ) -> Poll<R::Out> {
        let mut this = self.project();
        if matches!(*this.stage, InlineStage::Start { .. })
            && let Err(outside) = open_here(this.stage.as_mut(), this.node, cx.waker())
        {
            return Poll::Ready(R::never(outside.into()));
        }
        let node = this
            .node
            .as_ref()
            .expect("a scope was polled after completion");
        let h: &Header = node;
        let Some(held) = left_open::hold(h) else {
            return Poll::Ready(R::never(left_behind(this.stage, this.node, this.wait)));
        };
        // The clone of a foreign waker may panic.
        let unwinds = left_open::Unwinds::new(h, held);
        // SAFETY: being polled, and not left behind: so it has not ended.
        let tree = unsafe { h.tree() };
        // For the thread that cancels the scope or ends its last child. Stored before
        // this poll reads anything that a wake-up could announce.
        // SAFETY: being polled, so linked.
        waker::keep_poller(h, cx.waker(), unsafe { h.parent() });
        if h.state.peek().has(state::DEADLINE) {
            deadline::check(tree, h);
        }
        if matches!(*this.stage, InlineStage::Body { .. })
            && let Some((got, own)) = poll_body::<O>(this.stage.as_mut(), tree, h, cx)
        {
            leave_body(h);
            this.stage.set(InlineStage::Waiting { got, own });
        }
        let waiting = matches!(*this.stage, InlineStage::Waiting { .. });
        if waiting && end::leave_if_nothing_left(h) {
            unwinds.not();
            let StageOwn::Waiting { got, own } =
                this.stage.as_mut().project_replace(InlineStage::Done)
            else {
                unreachable!("looked at just above");
            };
            this.wait.over();
            let answer = close(node, got);
            // Taken only now: if it panicked before, the drop would end the
            // job.
            let node = this.node.take();
            let node = node.unwrap_or_else(|| unreachable!("looked at above"));
            return Poll::Ready(R::over(OverJob(&node), answer, own));
        }
        if h.state.peek().has(state::DEADLINE) {
            deadline::arm(tree, h);
        }
        let kind = if waiting {
            WaitKind::Children
        } else {
            WaitKind::Scope
        };
        this.wait.pending(cx.waker(), kind, Site::of(h.site()));
        then(h, cx);
        unwinds.not();
        if !left_open::let_go(h, held) {
            let in_body = !waiting;
            drop_stage(h, this.stage.as_mut(), in_body);
            left_open::give_up(h, in_body);
            return Poll::Ready(R::never(left_behind(this.stage, this.node, this.wait)));
        }
        Poll::Pending
    }

    /// Tells a branch that another has decided; `culprit` failed, if a failure decided, and
    /// `words` are the text of the cancel, if the winner has given some. False if
    /// it has not begun: then nothing is there to be told, and it is dropped. But one that
    /// `waits` is the handle of a task, which runs by itself: it is opened by the next poll, to
    /// be told and waited for.
    pub(crate) fn lose(
        self: Pin<&mut Self>,
        culprit: Option<&(JobId, String)>,
        words: Option<&'static str>,
        waits: bool,
        site: &'static Location<'static>,
    ) -> bool {
        let why = || {
            let mut why = Why::new(ReasonKind::RaceLost, site);
            why.culprit = culprit.cloned();
            why.text = words.map(Cow::Borrowed);
            why
        };
        let Some(job) = self.job() else {
            return waits && self.open_lost(why());
        };
        if walk::cancel(job, why()) && waits {
            job.with_cold(|cold, _| cold.waits_for_task = true);
        }
        true
    }

    /// It is opened by the next poll and told. False if it is over.
    fn open_lost(self: Pin<&mut Self>, why: Why) -> bool {
        let StageProj::Start { setup, .. } = self.project().stage.project() else {
            return false;
        };
        setup.more().lost = Some(why);
        true
    }

    /// The scope's job, from the first poll on; none before, and when the scope
    /// is over.
    pub(crate) fn job(&self) -> Option<&Header> {
        self.node.as_deref()
    }
}

impl<O: Open> fmt::Debug for Inline<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => crate::surface::handle::debug_job(f, "Inline", node),
            None => f.write_str("Inline(not opened, or over)"),
        }
    }
}

impl<O: Open> Future for Inline<O> {
    type Output = Result<O::Value, O::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_and(cx, |_, _| {})
    }
}

/// The first poll: makes the job and the body. The error says that there is no current
/// job.
#[inline]
fn open_here<O: Open>(
    mut stage: Pin<&mut InlineStage<O>>,
    kept: &mut Option<JobRef>,
    waker: &Waker,
) -> Result<()> {
    let StageOwn::Start { open, setup } = stage.as_mut().project_replace(InlineStage::Done) else {
        unreachable!("looked at by the caller");
    };
    let node = match open_node(setup) {
        Ok(node) => node,
        Err(outside) => {
            discard(open);
            return Err(outside);
        }
    };
    let opened = {
        let _entered = context::enter(&node, waker);
        let scope = Scope::new(node.clone());
        caught(|| open.open(scope))
    };
    *kept = Some(node.clone());
    match opened {
        Ok(body) => stage.set(InlineStage::Body { body }),
        Err(payload) => {
            let got = body_failed(&node, &Error::panicked(payload));
            leave_body(&node);
            stage.set(InlineStage::Waiting { got, own: None });
        }
    }
    Ok(())
}

/// The scope that is polled was left open by the body it belonged to, and given up:
/// returns the cancellation of that.
#[cold]
fn left_behind<O: Open>(
    stage: Pin<&mut InlineStage<O>>,
    node: &mut Option<JobRef>,
    wait: &mut Wait,
) -> O::Error {
    wait.over();
    drop_left_behind(stage);
    let node = node.take();
    let reason = node.as_ref().and_then(|node| {
        // The mark may not be set yet: this thread or the other sets it.
        walk::cancel(node, Why::new(ReasonKind::ScopeEnded, node.site()));
        node.reason()
    });
    let reason = reason.unwrap_or_else(|| unreachable!("left behind without a reason"));
    let error = match node.is_some_and(|node| node.is_hosted()) {
        // The executor that polls it is not cancelled.
        true => Error::stopped(reason),
        false => Error::from(Cancelled::new(reason)),
    };
    own::give_back(error, None)
}

/// Drops what is left of the scope `h`. An unfinished body is dropped under the
/// scope's own job; the value of a finished one under the current job, because the
/// scope may take no more children, and no job waits for its scopes.
fn drop_stage<O: Open>(h: &Header, mut stage: Pin<&mut InlineStage<O>>, in_body: bool) {
    let _entered = in_body.then(|| context::enter(h, Waker::noop()));
    contained(|| context::half_way(|| stage.set(InlineStage::Done)));
}

/// Drops what is left of a scope that was left behind. Its job may have ended,
/// so no job is current during the drop.
#[cold]
fn drop_left_behind<O: Open>(mut stage: Pin<&mut InlineStage<O>>) {
    let _none = context::leave();
    contained(|| context::half_way(|| stage.set(InlineStage::Done)));
}

/// Makes the scope's job and links it below the current job, or below the one that `setup`
/// names.
fn open_node(mut setup: Setup) -> Result<JobRef> {
    if let Some(below) = setup.more.as_mut().and_then(|more| more.below.take()) {
        return open_hosted(setup, &below);
    }
    let Some(parent) = context::current() else {
        return Err(Error::msg(format!(
            "a {} at {}:{} was polled outside any Kinfolk job: run it inside a runtime",
            setup.kind,
            setup.site.file(),
            setup.site.line(),
        )));
    };
    // SAFETY: the current job has not ended.
    let tree = unsafe { parent.tree() };
    parent.opens_scope();
    match make_node(setup, tree, &parent, MOST_SHARES) {
        Ok(node) => Ok(node),
        Err(refusal) => unreachable!("the job being polled refused a scope: {refusal:?}"),
    }
}

/// The same below `parent`, which may refuse it.
#[cold]
fn open_hosted(setup: Setup, parent: &Header) -> Result<JobRef> {
    let site = setup.site;
    let opened = match pin::tree_of(parent) {
        None => {
            pin::count_refused(parent);
            Err(Refusal::Ended)
        }
        Some(tree) => {
            let opened = match tree.refuses_tasks() {
                true => Err(Refusal::Cancelled),
                false => make_node(setup, &tree, parent, tree.most_children),
            };
            if opened.is_err() {
                tree.counters.add(Count::Refused);
            }
            opened
        }
    };
    opened.map_err(|refusal| refused_error(&refused_job(parent, refusal, site)))
}

/// Makes the scope's job and links it below `parent`.
fn make_node(setup: Setup, tree: &Shared, parent: &Header, most: u32) -> Result<JobRef, Refusal> {
    let mut facts = BirthFacts::NONE;
    if setup.kind == JobKind::Shield {
        facts = facts.and(BirthFacts::SHIELD);
    }
    if setup.supervisor {
        facts = facts.and(BirthFacts::SUPERVISOR);
    }
    let counts = tree.counters.here();
    let h = cell::create_node(&Birth {
        tree: tree.index(),
        born: tree.millis(),
        id: tree.next_id(&counts),
        kind: setup.kind,
        lane: match setup.kind {
            // Its executor has no lane of this host.
            JobKind::Hosted => Lane::Pool,
            _ => parent.lane(),
        },
        facts,
        parent: Some(parent),
        vtable: &cell::NODE,
        state: state::COUNTED,
        // One for the tree and one for the future.
        refs: 2,
        site: setup.site,
    });
    // SAFETY: fresh; one reference is the caller's.
    let node = unsafe { JobRef::adopt(h) };
    set_limit(&node, tree, setup.limit);
    let begins = match setup.more {
        Some(more) => {
            if let Some(priority) = more.options.priority {
                // SAFETY: fresh.
                unsafe { Header::give_priority(node.as_ptr().cast_mut(), priority) };
            }
            // SAFETY: a scope with a budget is opened in the job being polled:
            // linked.
            unsafe { give_more(&node, tree, parent, *more) }
        }
        None => Begins::Plainly,
    };
    // SAFETY: fresh, made with this parent.
    if let Err(refusal) = unsafe { attach::attach(parent, &node, node.was_spawned(), most) } {
        // SAFETY: no other thread has seen it; the tree's reference.
        unsafe { Header::release(h) };
        return Err(refusal);
    }
    counts.created(node.kind());
    tell_of_birth(&node, tree, parent);
    // SAFETY: linked.
    if node.kind() == JobKind::Shield && unsafe { walk::is_held_back(&node) } {
        node.state.defer_cancel();
        if parent.state.load().effective() {
            let from = parent.id;
            tree.emit_for(Interests::CAUSES, node.id, EventKind::CancelHeld { from });
        }
    }
    begins.follow(&node);
    Ok(node)
}

fn set_limit(node: &Header, tree: &Shared, limit: Moment) {
    if matches!(limit, Moment::Never) {
        return;
    }
    if let Some(at) = limit.fix(tree.host.now()) {
        node.state.watch_clock();
        node.with_cold(|cold, _| {
            cold.deadline = Some(at);
            if let Moment::After(wait) = limit {
                cold.limit = Some(wait);
            }
        });
    }
}

/// How a scope begins.
enum Begins {
    Plainly,
    /// Cancelled, with this text.
    Cancelled(Cow<'static, str>),
    /// As a branch that has lost.
    Lost(Why),
}

impl Begins {
    /// The scope is linked: carries out how it begins.
    fn follow(self, node: &Header) {
        match self {
            Begins::Plainly => {}
            Begins::Cancelled(text) => {
                crate::surface::handle::cancel_asked(node, text, node.site());
            }
            Begins::Lost(why) => {
                if walk::cancel(node, why) {
                    node.with_cold(|cold, _| cold.waits_for_task = true);
                }
            }
        }
    }
}

/// Gives the rare settings to `node`, which no other thread has seen yet.
///
/// # Safety
/// `parent` is linked, if it opens a clean-up.
unsafe fn give_more(node: &Header, tree: &Shared, parent: &Header, more: More) -> Begins {
    let budget = match more.budget {
        Some(SectionBudget::For(budget)) => Some(budget),
        Some(SectionBudget::Cleanup) => {
            // SAFETY: passed on.
            Some(unsafe { patience::patience_inside(tree, parent) }.cleanup)
        }
        None => None,
    };
    if budget.is_some() {
        node.state.watch_clock();
    }
    more.options.give(tree, node);
    if more.text.is_some() || budget.is_some() || more.local.is_some() {
        node.with_cold(|cold, _| {
            cold.deadline_text = more.text;
            cold.budget = budget;
            cold.local = more.local;
        });
    }
    match (more.cancelled, more.lost) {
        (Some(text), _) => Begins::Cancelled(text),
        (None, Some(why)) => Begins::Lost(why),
        (None, None) => Begins::Plainly,
    }
}

fn tell_of_birth(node: &Header, tree: &Shared, parent: &Header) {
    if tree.has_sink() {
        tree.tell_of_birth(node, Some(parent));
    }
    if node.state.load().has(state::CANCELLED) {
        // A scope that a told body opens is part of its clean-up. Timeouts and branches
        // are told by a cancel of their own.
        let told = parent.state.load().has(state::TOLD);
        if node.kind() == JobKind::Scope && told {
            node.state.tell(tree.millis_now());
        }
        if node.kind() != JobKind::Shield && (told || parent.was_born_told()) {
            node.is_opened_by_told_body();
        }
    }
}

/// Polls the body once. Returns its result, if it is over, and its own error,
/// if that is a failure. The body is dropped under its own job.
fn poll_body<O: Open>(
    mut stage: Pin<&mut InlineStage<O>>,
    tree: &Shared,
    h: &Header,
    cx: &mut Context<'_>,
) -> Option<(Got<O::Value>, Own<O>)> {
    let st = h.state.load();
    h.begin_poll(st, tree.millis_of_poll(st, true));
    let _entered = context::enter(h, cx.waker());
    let polled = caught(|| {
        let StageProj::Body { body } = stage.as_mut().project() else {
            unreachable!("only called with a body");
        };
        body.poll(cx)
            .map(|output| O::result(output).map_err(own::take_in))
    });
    if let Ok(Poll::Pending) = polled
        && !drop_idle(tree, h)
    {
        return None;
    }
    let dropped = caught(|| stage.set(InlineStage::Done));
    let result = match (polled, dropped) {
        (Err(payload), _) => Err((Error::panicked(payload), None)),
        (Ok(polled), Err(payload)) => {
            if let Poll::Ready(Err((error, _))) = &polled
                // SAFETY: linked.
                && let Reached::Interrupt(told) = unsafe { end::reached(h, error) }
            {
                // The panic is returned, so the interrupt is put back.
                drop(on_its_way(h, &told));
            }
            discard(polled);
            Err((Error::panicked(payload), None))
        }
        (Ok(Poll::Ready(result)), Ok(())) => result,
        (Ok(Poll::Pending), Ok(())) => return Some((Got::Cancelled, None)),
    };
    Some(match result {
        Ok(value) => (Got::Value(value), None),
        // SAFETY: linked.
        Err((error, own)) => match unsafe { end::reached(h, &error) } {
            Reached::No => (body_failed(h, &error), own),
            Reached::Mark => (Got::Cancelled, None),
            Reached::Interrupt(told) => {
                interrupts::cancel_itself(h, told.reason());
                (Got::Interrupted(Box::new(on_its_way(h, &told))), None)
            }
        },
    })
}

/// The body of `h`, which is being polled, has returned an interrupt.
#[cold]
fn on_its_way(h: &Header, told: &Cancelled) -> OnItsWay {
    // SAFETY: being polled, so linked.
    OnItsWay::new(unsafe { h.parent() }.unwrap_or(h), told)
}

fn body_failed<T>(h: &Header, error: &Error) -> Got<T> {
    end::record_own(h, error);
    end::fail_children(h);
    Got::Failed
}

/// The body is pending. True if it must be dropped here: its patience has run
/// out; or a deadline of this task fired, or a branch of it lost, while the
/// body waits for no point: then the patience is zero.
#[inline]
fn drop_idle(tree: &Shared, h: &Header) -> bool {
    let st = h.state.load();
    st.has(state::CANCELLED | state::DROP_IF_IDLE) && drop_cancelled_idle(tree, h, st)
}

#[inline(never)]
fn drop_cancelled_idle(tree: &Shared, h: &Header, st: Snapshot) -> bool {
    if !st.effective() || !h.no_wait_of_ours() {
        // SAFETY: being polled.
        return unsafe { turn::drop_cancelled_if_idle(tree, h, h.state.load()) };
    }
    // SAFETY: being polled, so linked.
    if !st.has(state::TOLD) && unsafe { marked_without_patience(h) } {
        // A mark in the middle of this poll has woken the scope, which is
        // polled once more.
        return h.has_seen_mark();
    }
    // SAFETY: being polled.
    let forced = unsafe { turn::drop_cancelled_if_idle(tree, h, h.state.load()) };
    if forced {
        tree.note_forced(ForcedDrop::look_at(tree, h));
        h.state.was_dropped();
    }
    forced
}

/// True if the mark of `h` entered at a deadline or at a branch that lost, here
/// or further out in the same task.
///
/// # Safety
/// `h` is linked.
unsafe fn marked_without_patience(h: &Header) -> bool {
    // SAFETY: linked (H3).
    let Some(origin) = (unsafe { h.origin() }) else {
        return false;
    };
    let mut at = h;
    while !std::ptr::eq(at, origin) {
        if at.is_hosted() {
            // The scopes around this job are not polled with it.
            return false;
        }
        // SAFETY: as above; the origin is an ancestor.
        match unsafe { at.parent() } {
            Some(parent) if !parent.is_task() => at = parent,
            _ => return false,
        }
    }
    origin
        .if_cold(|cold, _| cold.entered_without_patience())
        .unwrap_or(false)
}

/// The body is over: its guards lapse, and its share is given up.
fn leave_body(h: &Header) {
    guard::lapse(h);
    left_open::close_all(h);
    // From here on the scope waits for its children, if there are any. No poll
    // of the body will change that any more.
    h.wait_for_children();
    let (last, stops) = {
        let mut locked = h.lock();
        let stops = works::take_stops(&mut locked);
        h.state.leave_body(locked.evidence());
        (end::give_up_in_poll(&mut locked), stops)
    };
    if let Some(last) = last {
        last.settle();
    }
    stops.call();
}

/// Body and children are over: decides, ends the job, answers the caller.
fn close<T>(h: &Header, got: Got<T>) -> Result<T> {
    // SAFETY: its poller ends it, below.
    let tree = unsafe { h.tree() };
    deadline::disarm(tree, h);
    cold::clear_local(h);
    if h.kind() == JobKind::Shield {
        // SAFETY: the caller polls the shield.
        unsafe { hook::move_to_parent(h) };
    }
    let failed = h
        .if_cold(|cold, _| cold.failures.dominates())
        .unwrap_or(false);
    let late = matches!(got, Got::Value(_));
    // SAFETY: linked until the end below.
    let answer = unsafe { verdict(tree, h, got) };
    if h.was_spawned()
        && let Err(error) = &answer
        && (!late || failed)
        && !(h.is_hosted() && failed)
    {
        // SAFETY: as above.
        unsafe { end::local_task_over(h, failed, error) };
    }
    let answer = answer.map_err(|error| left_open::answer(h, error));
    end::end_scope(h, failed);
    answer
}

/// A spawned body that has begun is about to be dropped before it completes. None for a
/// hosted future: its executor drops it when it is no longer needed, which is no forced
/// drop.
fn forced_here(h: &Header) -> Option<ForcedDrop> {
    if !h.was_spawned() || h.is_hosted() || h.polls.load(Relaxed) == 0 {
        return None;
    }
    // SAFETY: its poller has not ended it, so it is linked.
    let tree = unsafe { h.tree() };
    Some(ForcedDrop::look_at(tree, h))
}
