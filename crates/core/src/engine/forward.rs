//! Interrupts that are passed on: an await passes a request to the task that it
//! waits for, and takes it back if no point there hears it (request-2).
//!
//! A task that passes a request on keeps a note, [`Away`], in its cold part,
//! which says where the request went: so a request that was passed on several
//! times can be found from each of these tasks. The await keeps a
//! [`Forwarded`], which stands for the note.

use crate::base::error::Cancelled;
use crate::base::numbers::Numbers;
use crate::base::reason::ReasonKind;
use crate::engine::context;
use crate::engine::interrupts::{self, Taken};
use crate::engine::pin;
use crate::record::header::{Header, JobRef};
use crate::record::requests::{Away, Requests};
use crate::record::state;

/// A request that was passed on by a task. Dropping this says that the request
/// was heard, and removes the note.
pub(crate) struct Forwarded {
    by: JobRef,
    to: JobRef,
    /// The number of the request there.
    there: u64,
}

/// From so many hops on it is checked whether a request travels in a circle.
const MANY_HOPS: u32 = 1024;

/// Where a request of a task is, as far as the task knows.
enum RequestPlace {
    /// A point there took it, or it was taken back.
    Heard,
    /// Pending, between two tasks, or on its way out of a call.
    Unheard,
    PassedOn(JobRef, u64),
}

impl Requests {
    /// Notes that the requests just taken go to `target`, with those already
    /// sent there and not heard.
    fn leave_for(&mut self, target: &Header, numbers: Numbers) {
        let there = None;
        match self.note_of(target) {
            Some(at) => {
                let note = &mut self.away[at];
                note.numbers.append(numbers);
                note.there = there;
            }
            None => self.away.push(Away {
                to: JobRef::from_header(target),
                numbers,
                there,
            }),
        }
    }

    fn note_of(&self, target: &Header) -> Option<usize> {
        (self.away.iter()).position(|note| std::ptr::eq(note.to.as_ptr(), target))
    }

    fn place_of(&self, number: u64) -> RequestPlace {
        if self.pending.contains(number) || self.on_their_way.contains(number) {
            return RequestPlace::Unheard;
        }
        let note = (self.away.iter()).find(|note| note.numbers.contains(number));
        match note.map(|note| (&note.to, note.there)) {
            None => RequestPlace::Heard,
            Some((_, None)) => RequestPlace::Unheard,
            Some((to, Some(there))) => RequestPlace::PassedOn(to.clone(), there),
        }
    }
}

/// An await in `h` takes the request and passes it on to its target; `kept` is
/// what it passed on before.
pub(crate) fn forward(h: &Header, target: &Header, kept: &mut Option<Box<Forwarded>>) {
    if target.state.load().has(state::BODY_DONE | state::ENDED) {
        // No point there will run: the request stays for the next point here.
        return;
    }
    let Some(task) = interrupts::heard_by(h) else {
        return;
    };
    let hops = task.if_cold(|cold, _| cold.requests.hops).unwrap_or(0);
    if hops >= MANY_HOPS && u64::from(hops) > living(h) {
        // The request has come through more awaits than there are jobs: they
        // wait for each other in a circle, in which it would travel for ever.
        return;
    }
    if kept.as_ref().is_some_and(|kept| !kept.is_unheard()) {
        // This request was heard, so it does not belong to the one that
        // follows.
        *kept = None;
    }
    // Taken and noted in one step, so that every search finds the request.
    let Some(taken) = interrupts::take_and(h, |requests, taken| requests.leave_for(target, taken))
    else {
        return;
    };
    let text = taken.latest.text.clone();
    match interrupts::ask(target, text, taken.latest.site, hops.saturating_add(1)) {
        Some(there) => {
            task.if_cold(|cold, _| {
                let requests = &mut cold.requests;
                if let Some(at) = requests.note_of(target) {
                    requests.away[at].there = Some(there);
                }
            });
            match kept {
                Some(kept) => kept.there = there,
                None => {
                    let (by, to) = (task, JobRef::from_header(target));
                    *kept = Some(Box::new(Forwarded { by, to, there }));
                }
            }
        }
        None => {
            come_home(&task, target);
            *kept = None;
        }
    }
}

fn living(h: &Header) -> u64 {
    pin::tree_of(h).map_or(0, |tree| tree.counters.read().living())
}

/// True if no point has heard the request of `target` with this number: it is
/// pending there, or wherever it was passed on to.
fn is_unheard(target: &Header, number: u64) -> bool {
    let mut at = (JobRef::from_header(target), number);
    // Each step leads to a request that was made later, so the loop ends, even
    // in a circle of awaits.
    loop {
        match (at.0).if_cold(|cold, _| cold.requests.place_of(at.1)) {
            None | Some(RequestPlace::Heard) => return false,
            Some(RequestPlace::Unheard) => return true,
            Some(RequestPlace::PassedOn(job, number)) => at = (job, number),
        }
    }
}

/// Requests that `task` passed on to `target` are pending again, for the next
/// point of `task`, unless they were withdrawn meanwhile.
fn come_home(task: &Header, target: &Header) {
    let home = task.if_cold(|cold, st| {
        let requests = &mut cold.requests;
        let Away { to, numbers, .. } = requests.away.swap_remove(requests.note_of(target)?);
        let back = requests.count > 0 && task.state.interrupt();
        if back {
            requests.pending.append(numbers);
        }
        // Dropped outside the lock.
        Some((back && !st.has(state::INTERRUPTED), to))
    });
    if let Some((true, _)) = home.flatten() {
        interrupts::spread(task);
    }
}

impl Forwarded {
    /// True if the job that is polled now is part of the task that passed the
    /// request on: a handle may have been moved to another task.
    pub(crate) fn is_by_current(&self) -> bool {
        context::current()
            .and_then(|here| interrupts::task_of(&here))
            .is_some_and(|task| std::ptr::eq(task.as_ptr(), self.by.as_ptr()))
    }

    fn is_unheard(&self) -> bool {
        is_unheard(&self.to, self.there)
    }

    /// True if the request was not heard at the target, or if the body of the
    /// target returned it: that ended the target, or will when its children have
    /// ended. The task that passed the request on then has it again.
    pub(crate) fn has_come_back(&self) -> bool {
        let interrupted =
            (self.to.reason()).is_some_and(|reason| reason.kind() == ReasonKind::Interrupted);
        let taken_last = || (self.to).if_cold(|cold, _| cold.requests.taken.contains(self.there));
        self.is_unheard() || (interrupted && taken_last() == Some(true))
    }

    /// Another task waits for the target now: a request that has not been heard
    /// is for the next point of the task that passed it on.
    pub(crate) fn give_back(self) {
        if self.is_unheard() {
            self.put_back();
        }
    }

    /// No task waits for the target any more: a request that was not heard, or that
    /// the body of the target returned, is for the next point of the task that
    /// passed it on.
    pub(crate) fn give_up(self) {
        if self.has_come_back() {
            self.put_back();
        }
    }

    /// Makes the request pending for the next point of the task that passed it
    /// on.
    pub(crate) fn put_back(self) {
        come_home(&self.by, &self.to);
    }

    /// The request has come back to an await in `h`, which returns it. None if
    /// it was withdrawn meanwhile.
    pub(crate) fn deliver(self, h: &Header) -> Option<Cancelled> {
        // A pending request is newer, and is heard along with this one.
        let newer = interrupts::take(h);
        let told = self.by.if_cold(|cold, _| {
            let requests = &mut cold.requests;
            // The note is gone if all its requests were withdrawn.
            let at = requests.note_of(&self.to)?;
            let numbers = std::mem::take(&mut requests.away[at].numbers);
            if newer.is_none() {
                requests.taken = Numbers::default();
            }
            requests.taken.append(numbers.clone());
            let latest = requests.latest.clone()?;
            Some(Taken { latest, numbers })
        });
        newer.or_else(|| told.flatten().map(interrupts::told))
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        // Dropped outside the lock.
        let _note = self.by.if_cold(|cold, _| {
            let requests = &mut cold.requests;
            let at = requests.note_of(&self.to)?;
            Some(requests.away.swap_remove(at))
        });
    }
}
