//! [`Work`]: an activity beside the body of a job, which holds the job open.

use std::fmt;
use std::panic::Location;
use std::task::{Context, Poll};

use crate::base::error::Cancelled;
use crate::base::list::Key;
use crate::base::unwind::{KeptWaker, Nested, contained, wake};
use crate::engine::context;
use crate::more::kit::held_clock::{HeldClock, virtual_time};
use crate::points::point;
use crate::record::header::{Header, JobRef};
use crate::record::state;
use crate::record::works::{Piece, StopWork};
use crate::surface::lease::Lease;
use crate::surface::scope::Scope;

/// An activity beside the body of a job, such as an operation that the system carries out.
/// The job does not end before its work is [finished](Work::finish) or dropped.
///
/// A cancel of the job does not stop its work. When the body is over, `stop` is called: it
/// asks for an early end and does not wait for it. Shutdown waits for work only for a limited
/// time, as for a [`Lease`].
///
/// While work is in progress virtual time stands still, as it does for a blocking call: another
/// thread carries it out, and is about to answer. Work that may wait for long should call
/// [`lets_time_pass`](Work::lets_time_pass).
#[must_use = "dropping it says that the work is done"]
pub struct Work {
    key: Key,
    job: JobRef,
    lease: Option<Lease>,
    clock: Option<HeldClock>,
}

impl Work {
    /// Begins work of the current job. `None` outside any job, and in a job that is ending.
    #[track_caller]
    pub fn here(stop: impl FnOnce() + Send + 'static) -> Option<Work> {
        let site = Location::caller();
        let job = context::current()?;
        Work::of(&job, Nested::new(Box::new(stop)), site)
    }

    /// Begins work of the task that `scope` is in. `None` if the task's body is over.
    #[track_caller]
    pub fn of_task(scope: &Scope, stop: impl FnOnce() + Send + 'static) -> Option<Work> {
        let site = Location::caller();
        let mut task = JobRef::from_header(scope.header());
        while !task.is_task()
            && let Some(parent) = task.parent_from_outside()
        {
            task = parent;
        }
        Work::of(&task, Nested::new(Box::new(stop)), site)
    }

    fn of(h: &Header, stop: StopWork, site: &'static Location<'static>) -> Option<Work> {
        let lease = Lease::of(h)?;
        // What is refused is dropped outside the lock.
        let mut stop = Some(stop);
        let (key, tree) = h.with_cold(|cold, st| {
            // Checked under the lock under which the end of a task's body takes
            // the list: the work is listed before that, or refused here. The
            // body of a scope is the caller, so it has not ended.
            if st.has(state::BODY_DONE) {
                return None;
            }
            let key = cold.works.pieces.push(Piece::UnderWay(stop.take()));
            // SAFETY: under the lock, and its body is not over: it has not ended.
            Some((key, virtual_time(unsafe { h.tree() })))
        })?;
        let clock = HeldClock::of(tree, site);
        Some(Work {
            key,
            job: JobRef::from_header(h),
            lease: Some(lease),
            clock: Some(clock),
        })
    }

    /// Lets virtual time pass during this work: the host of the virtual clock knows when the
    /// work is over, or the work waits for another side, or for time to pass.
    pub fn lets_time_pass(mut self) -> Work {
        self.clock = None;
        self
    }
}

impl Work {
    /// Finishes the work: the job may end, and a [`Reap`] finds it.
    pub fn finish(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let gone = self.job.if_cold(|cold, _| {
            let works = &mut cold.works;
            let piece = works.pieces.get_mut(self.key)?;
            let place = works.finished.push(self.key);
            let stop = std::mem::replace(piece, Piece::Finished(place));
            Some((stop, works.take_waiters()))
        });
        release(gone.flatten(), Some(lease));
        // Last: the waiters are woken before time may go on.
        self.clock = None;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let gone = self.job.if_cold(|cold, _| {
            let works = &mut cold.works;
            let piece = works.pieces.remove(self.key)?;
            if let Piece::Finished(place) = piece {
                works.finished.remove(place);
            }
            // There is one piece less for the waiters.
            Some((piece, works.take_waiters()))
        });
        release(gone.flatten(), self.lease.take());
        // The clock is released last, with the fields.
    }
}

/// Outside the lock: drops the piece, wakes the waiters and releases the lease,
/// with which the job may end.
fn release(gone: Option<(Piece, Vec<KeptWaker>)>, lease: Option<Lease>) {
    if let Some((piece, waiters)) = gone {
        drop(piece);
        for waiter in waiters {
            wake(waiter.into_inner());
        }
    }
    drop(lease);
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// Waits until one [work](Work) of the current job is finished. A dropped `Reap` leaves no
/// waker behind.
#[derive(Default)]
pub struct Reap {
    listed: Option<(JobRef, Key)>,
}

impl Reap {
    /// Makes a wait that has not begun.
    pub fn new() -> Reap {
        Reap::default()
    }

    /// Collects one finished [work](Work) of the current job, each once. Returns how many are
    /// left, in progress or not collected; 0 if there is none at all. `Pending` means that none
    /// is finished; the caller is woken when one is.
    pub fn poll_reap(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        // The entry with the waker of an earlier poll is removed first: another
        // job may poll now.
        self.unlist();
        let Some(job) = context::current() else {
            return Poll::Ready(0);
        };
        let waker = KeptWaker::new(cx.waker().clone());
        let answer = job.if_cold(|cold, _| match cold.works.reap() {
            Some(left) => Err((left, waker)),
            None => Ok(cold.works.waiters.push(waker)),
        });
        match answer {
            None => Poll::Ready(0),
            Some(Err((left, unused))) => {
                contained(|| drop(unused));
                Poll::Ready(left)
            }
            Some(Ok(key)) => {
                self.listed = Some((job, key));
                Poll::Pending
            }
        }
    }

    fn unlist(&mut self) {
        if let Some((job, key)) = self.listed.take() {
            let waker = job.if_cold(|cold, _| cold.works.waiters.remove(key));
            contained(|| drop(waker));
        }
    }
}

impl Drop for Reap {
    fn drop(&mut self) {
        self.unlist();
    }
}

impl fmt::Debug for Reap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reap")
    }
}

/// Returns the cancellation that the next point would return, without telling the job: for
/// code that begins something without waiting, which a cancelled job should not begin. `None`
/// inside a shield.
pub fn cancelled_here() -> Option<Cancelled> {
    point::marked_here()
}
