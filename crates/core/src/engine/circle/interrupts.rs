//! Interrupts: requests that can be withdrawn. `interrupt` asks a task once to
//! stop, and `uninterrupt` withdraws that.
//!
//! This is a layer on top of cancellation, which does not depend on it. Requests are stored in the
//! cold part of the *task* (how many, the latest words); INTERRUPTED in the task's word says that
//! one has not been delivered. Points read the word of the innermost job, so the same bit is set on
//! the task's inline scopes too. There the bit is only a hint to look at the task: [`spread`] and
//! the attacher of a scope set it, and a point that looks at the task clears it. See
//! `engine/CANCELLING.md`. What an await does with a request is in
//! [`forward`](crate::engine::forward).

use std::borrow::Cow;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::Cancelled;
use crate::base::numbers::Numbers;
use crate::base::reason::{Delivery, Reason, ReasonData, ReasonKind};
use crate::engine::hook;
use crate::engine::names;
use crate::engine::pin;
use crate::engine::waker;
use crate::engine::walk::{self, Why};
use crate::record::cold::Cold;
use crate::record::header::{Header, JobRef};
use crate::record::requests::Requests;
use crate::record::state::{self, Snapshot};

// ------------------------------------------------------------ from outside

/// Asks the task of `h` to stop, once. False if its body is over.
pub(crate) fn interrupt(
    h: &Header,
    text: Cow<'static, str>,
    site: &'static Location<'static>,
) -> bool {
    let text = (!text.is_empty()).then_some(text);
    task_of(h).is_some_and(|task| ask(&task, text, site, 0).is_some())
}

/// Withdraws one request. Returns how many are left; an ended task keeps its
/// requests.
pub(crate) fn uninterrupt(h: &Header) -> usize {
    // Dropped outside the lock.
    let mut forgotten = Vec::new();
    with_requests(h, |task, cold, st| {
        let requests = &mut cold.requests;
        if !st.ended() && requests.count > 0 {
            requests.count -= 1;
            if requests.count == 0 {
                task.state.interrupt_taken();
                requests.pending = Numbers::default();
                requests.on_their_way = Numbers::default();
                requests.forgotten = requests.number;
                forgotten = std::mem::take(&mut requests.away);
            }
        }
        requests.count as usize
    })
}

/// How many requests there are.
pub(crate) fn interrupts(h: &Header) -> usize {
    with_requests(h, |_, cold, _| cold.requests.count as usize)
}

fn with_requests(h: &Header, f: impl FnOnce(&Header, &mut Cold, Snapshot) -> usize) -> usize {
    task_of(h)
        .and_then(|task| task.if_cold(|cold, st| f(&task, cold, st)))
        .unwrap_or(0)
}

/// The task whose body `h` is, or is part of. None for the root, for a hosted future, and
/// for a scope that has ended.
pub(crate) fn task_of(h: &Header) -> Option<JobRef> {
    let mut at = JobRef::from_header(h);
    while !at.is_task() {
        if at.is_hosted() {
            return None;
        }
        at = at.parent_from_outside()?;
    }
    Some(at)
}

/// Makes a request of `task`. Returns its number there; none if the body is
/// over.
pub(crate) fn ask(
    task: &Header,
    text: Option<Cow<'static, str>>,
    site: &'static Location<'static>,
    hops: u32,
) -> Option<u64> {
    let tree = pin::tree_of(task)?;
    let new = Arc::new(ReasonData {
        kind: ReasonKind::Interrupted,
        text,
        origin: task.id,
        culprit: None,
        site,
        at: tree.host.now(),
        // A request that is passed on was made further out.
        by: (hops == 0).then(names::asking_here).flatten(),
        delivery: None,
    });
    // Under the lock, so that bit, count and words change together. The bit is
    // set in a step on the word, because the body may end meanwhile.
    let unused = task.with_cold(|cold, st| {
        if !task.state.interrupt() {
            return Err(new);
        }
        let stood = st.has(state::INTERRUPTED);
        let requests = &mut cold.requests;
        requests.count = requests.count.saturating_add(1);
        requests.hops = hops;
        requests.number += 1;
        requests.pending.insert(requests.number);
        Ok((requests.latest.replace(new), requests.number, stood))
    });
    let asked = unused
        .as_ref()
        .ok()
        .map(|(_, number, stood)| (*number, *stood));
    drop(unused);
    let (number, stood) = asked?;
    if !stood {
        spread(task);
    }
    Some(number)
}

/// INTERRUPTED has been set at `start`, or can be taken there again: sets the hint
/// on the scopes inside the same task, and wakes everything in which a point may
/// wait. After this every point that can take the request has seen the bit or will
/// be polled. A further request needs no second call while the bit is set: the
/// point that clears the hints takes all requests that are pending after that.
pub(crate) fn spread(start: &Header) {
    if start.state.load().effective() {
        // The body has been told, and each further point tells it again.
        return;
    }
    let mut todo = vec![JobRef::from_header(start)];
    while let Some(job) = todo.pop() {
        let st = job.state.load();
        if st.has(state::HAS_NODES) {
            wake_leaves(&job);
        }
        if st.has(state::HAS_SHARES) {
            tell_scopes(&job, &mut todo);
        }
        if job.is_task() {
            waker::borrowed(&job).wake_by_ref();
        } else {
            walk::wake_poller(&job);
        }
    }
}

/// Sets the hint on the scopes that the body of `job` has open, and lists them.
///
/// A job whose body has opened no scope may have very many child tasks: these
/// are not visited. The check is made under the lock, after INTERRUPTED was set:
/// a scope that is attached later sees the bit, and a scope that was attached
/// before shows in `has_opened_scopes`. Modelled in `interrupt_vs_park`.
fn tell_scopes(job: &Header, todo: &mut Vec<JobRef>) {
    let _locked = job.lock();
    if !job.has_opened_scopes() {
        return;
    }
    let spared = state::ENDED | state::BODY_DONE;
    // SAFETY: H1 and H2, under the lock.
    let mut next = unsafe { job.first.get().as_ref() };
    while let Some(child) = next {
        if !child.was_spawned() && !child.is_shield() && !child.state.load().has(spared) {
            child.state.hint_interrupt();
            todo.push(JobRef::from_header(child));
        }
        // SAFETY: as above.
        next = unsafe { child.next.get().as_ref() };
    }
}

/// Wakes the leaves of `h` that are polled under foreign wakers. Their next
/// poll lists them again.
fn wake_leaves(h: &Header) {
    // The leaves that are listed now; one that is listed later sees the bit.
    let listed = h.if_cold(|cold, _| cold.leaves.len()).unwrap_or(0);
    for _ in 0..listed {
        match h.if_cold(|cold, _| cold.leaves.pop()).flatten() {
            Some(waker) => hook::wake_for(h, waker.into_inner()),
            None => return,
        }
    }
}

/// The last guard of `h` is dropped: a request that it held back can be taken
/// now.
#[cold]
pub(crate) fn guard_left(h: &Header) {
    let st = h.state.load();
    if st.has(state::INTERRUPTED) && !st.has(state::GUARD) {
        spread(h);
    }
}

// -------------------------------------------------------------- from inside

/// The task in whose poll `h` is polled, if no shield and no guard stands
/// between: a point in `h` may take the requests of this task.
pub(crate) fn heard_by(h: &Header) -> Option<JobRef> {
    let mut at = JobRef::from_header(h);
    loop {
        if at.is_shield() || at.state.load().has(state::GUARD) {
            return None;
        }
        if at.is_task() {
            return Some(at);
        }
        at = at.parent_from_outside()?;
    }
}

/// True if a point in `h` would take a request now. `h` is not effectively
/// cancelled.
pub(crate) fn pending(h: &Header) -> bool {
    heard_by(h).is_some_and(|task| task.state.load().has(state::INTERRUPTED))
}

/// Takes the request, for a point in `h`.
#[cold]
pub(crate) fn take(h: &Header) -> Option<Cancelled> {
    take_and(h, |requests, taken| requests.taken = taken).map(told)
}

/// Like [`take`]; `keep` decides in the same step where the requests go.
pub(crate) fn take_and(h: &Header, keep: impl FnOnce(&mut Requests, Numbers)) -> Option<Taken> {
    let task = heard_by(h)?;
    // The hints first: a request made after this sets them again, and one made
    // before is in the task already.
    let mut at = JobRef::from_header(h);
    while !at.is_task() {
        at.state.interrupt_taken();
        at = at.parent_from_outside()?;
    }
    task.if_cold(|cold, st| {
        if !st.has(state::INTERRUPTED) {
            return None;
        }
        task.state.interrupt_taken();
        let requests = &mut cold.requests;
        let numbers = std::mem::take(&mut requests.pending);
        keep(requests, numbers.clone());
        let latest = requests.latest.clone()?;
        Some(Taken { latest, numbers })
    })
    .flatten()
}

/// Requests that were taken, and the latest that the task has.
pub(crate) struct Taken {
    pub(crate) latest: Arc<ReasonData>,
    pub(crate) numbers: Numbers,
}

pub(crate) fn told(Taken { latest, numbers }: Taken) -> Cancelled {
    let data = ReasonData {
        kind: latest.kind,
        text: latest.text.clone(),
        origin: latest.origin,
        culprit: None,
        site: latest.site,
        at: latest.at,
        by: latest.by.clone(),
        delivery: Some(Delivery {
            request: latest,
            numbers,
            is_back: AtomicBool::new(false),
        }),
    };
    Cancelled::new(Reason::new(Arc::new(data), false))
}

/// The request with which a point returned `Cancelled` is pending again, for the
/// next point of its task; `h` is that task, or part of it. Nothing happens if
/// the request was withdrawn meanwhile.
pub(crate) fn put_back(h: &Header, told: &Cancelled) {
    let Some((task, delivery)) = delivered(h, told) else {
        return;
    };
    let again = delivery.is_back.swap(true, Ordering::Relaxed);
    // In one step, so that every search finds the request in one place.
    let back = task.if_cold(|cold, st| {
        let requests = &mut cold.requests;
        requests.on_their_way.remove(&delivery.numbers);
        let numbers = delivery.numbers.beyond(requests.forgotten);
        let back = !again && !numbers.is_empty() && task.state.interrupt();
        if back {
            if requests.taken == delivery.numbers {
                requests.taken = Numbers::default();
            }
            requests.pending.append(numbers);
        }
        back && !st.has(state::INTERRUPTED)
    });
    if back == Some(true) {
        spread(&task);
    }
}

/// A body inside `around` has returned the request that a point delivered, and the
/// call that awaits the body has not returned: the request is on its way. Returns
/// the task of which it was made; none if that is not the task of `around`.
pub(crate) fn set_out(around: &Header, told: &Cancelled) -> Option<JobRef> {
    let (task, delivery) = delivered(around, told)?;
    task.if_cold(|cold, _| {
        let requests = &mut cold.requests;
        let numbers = delivery.numbers.beyond(requests.forgotten);
        requests.on_their_way.append(numbers);
    });
    Some(task)
}

/// The call has returned the request, or a cancel has replaced it.
pub(crate) fn arrived(task: &Header, told: &Cancelled) {
    if let Some((task, delivery)) = delivered(task, told) {
        task.if_cold(|cold, _| cold.requests.on_their_way.remove(&delivery.numbers));
    }
}

/// The call inside `around` has returned something else, or was dropped: the request is put
/// back, unless an explicit cancel has taken its place.
pub(crate) fn not_returned(task: &Header, around: &Header, told: &Cancelled) {
    if is_replaced(around) {
        arrived(task, told);
    } else {
        put_back(task, told);
    }
}

/// True if the nearest job that is cancelled, from `around` up to its task, was
/// cancelled explicitly: that takes the place of an interrupt. A deadline, a race
/// that was lost, a failure and a handle or a scope that was dropped do not: the
/// code around them may go on.
fn is_replaced(around: &Header) -> bool {
    let mut at = JobRef::from_header(around);
    loop {
        if at.state.load().has(state::CANCELLED) {
            let kind = at.reason().map(|reason| reason.data().kind);
            return matches!(
                kind,
                Some(ReasonKind::Asked | ReasonKind::Shutdown | ReasonKind::HostGone)
            );
        }
        if at.is_task() {
            return false;
        }
        match at.parent_from_outside() {
            Some(parent) => at = parent,
            None => return false,
        }
    }
}

/// The body of the task `h` has returned the request that a point told: the task is cancelled
/// by it, unless another cancel has come first. That one may not have been explicit: then the
/// request is put back.
pub(crate) fn leaves_body(h: &Header, told: &Cancelled) {
    let task = set_out(h, told);
    let is_cancelled = cancel_itself(h, told.reason());
    let Some(task) = task else { return };
    if is_cancelled {
        arrived(&task, told);
    } else {
        not_returned(&task, h, told);
    }
}

/// True if `told` is a request of the task that `h` is part of, and has not been
/// withdrawn since.
pub(crate) fn still_stands(h: &Header, told: &Cancelled) -> bool {
    delivered(h, told).is_some_and(|(task, delivery)| {
        task.if_cold(|cold, _| !delivery.numbers.beyond(cold.requests.forgotten).is_empty())
            .unwrap_or(false)
    })
}

fn delivered<'a>(h: &Header, told: &'a Cancelled) -> Option<(JobRef, &'a Delivery)> {
    let delivery = told.reason().data().delivery.as_ref()?;
    let task = task_of(h).filter(|task| task.id == told.origin())?;
    Some((task, delivery))
}

// ----------------------------------------------------- at both ends of a body

/// The first turn of a task: true if it was interrupted before, and so is never
/// polled.
pub(crate) fn never_starts(task: &Header) -> bool {
    stop_if_pending(task)
}

/// The body of a task is over, and no point in it has taken the request.
#[cold]
pub(crate) fn undelivered(task: &Header) {
    stop_if_pending(task);
}

fn stop_if_pending(task: &Header) -> bool {
    let latest = task
        .if_cold(|cold, st| {
            if !st.has(state::INTERRUPTED) {
                return None;
            }
            let requests = &mut cold.requests;
            if !st.has(state::CANCELLED) {
                // The pending requests end the task, not those that were heard
                // before; whether or not they are withdrawn meanwhile.
                requests.taken = requests.pending.clone();
            }
            requests.latest.clone()
        })
        .flatten();
    // The bit stays: the task that passed the request on sees that it was not
    // heard.
    latest.is_some_and(|latest| {
        cancel_itself(task, &Reason::new(latest, false));
        true
    })
}

/// True if `told` is a request of the task whose body `h` is, or is part of.
pub(crate) fn is_of_task(h: &Header, told: &Cancelled) -> bool {
    told.reason().kind() == ReasonKind::Interrupted
        && task_of(h).is_some_and(|task| task.id == told.origin())
}

/// The body of `h` has returned a request: the job is cancelled with its
/// children. False if it was cancelled before.
#[cold]
pub(crate) fn cancel_itself(h: &Header, reason: &Reason) -> bool {
    let mut why = Why::new(ReasonKind::Interrupted, reason.site());
    why.text = reason.data().text.clone();
    why.by = reason.data().by.clone();
    walk::cancel(h, why)
}
