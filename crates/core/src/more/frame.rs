//! Frames: a program that owns its main loop pumps once in each frame, and tasks may wait
//! for the next frame.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::base::error::Cancelled;
use crate::base::frames::Frames;
use crate::base::list::Key;
use crate::base::unwind::KeptWaker;
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::engine::tree::Tree;
use crate::points::point::{self, Yielded};
use crate::points::wait::Wait;
use crate::record::header::Site;

/// How much work a pump may do. A pump never waits, whatever its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// So many turns.
    Turns(usize),
    /// As many turns as begin in that time, one at least.
    Time(Duration),
}

/// What a pump did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Pumped {
    /// How many turns were taken.
    pub ran: usize,
    /// How many timers fired.
    pub fired: usize,
    /// When the next timer is due.
    pub next_deadline: Option<Instant>,
    /// True if the budget was spent and there is more to do.
    pub more: bool,
    /// How many operations of the system are in progress whose end only the next
    /// pump sees: on a runtime without workers. While there are any, pump again
    /// soon: their end calls no hook and wakes no task. With workers the number is
    /// zero, and the workers see each end.
    pub under_way: usize,
}

impl Pumped {
    /// Makes the report of a pump: turns run, timers fired, when the next timer is due, and
    /// whether there is more to do.
    pub fn new(ran: usize, fired: usize, next_deadline: Option<Instant>, more: bool) -> Pumped {
        Pumped {
            ran,
            fired,
            next_deadline,
            more,
            under_way: 0,
        }
    }

    /// Sets [`under_way`](Pumped::under_way).
    pub fn with_under_way(mut self, operations: usize) -> Pumped {
        self.under_way = operations;
        self
    }
}

/// Waits for the next frame: the next [pump](Budget) of the main thread, never the one in
/// which it was called. If the future is later polled by a job of another runtime, it waits
/// for that runtime's next frame.
///
/// # Panics
/// If polled outside any job: there is no runtime to be pumped.
///
/// # Cancellation
/// A *point*.
#[track_caller]
#[must_use = "futures do nothing unless awaited"]
pub fn next_pump() -> NextPump {
    NextPump {
        site: Site::of(Location::caller()),
        yielded: Yielded::here(),
        wait: Wait::new(),
        listed: None,
    }
}

/// The future of [`next_pump`].
#[must_use = "futures do nothing unless awaited"]
pub struct NextPump {
    site: Site,
    yielded: Yielded,
    wait: Wait,
    listed: Option<ListedPump>,
}

/// Where it waits, and the frame that it waits to see passed.
struct ListedPump {
    tree: Tree,
    since: u64,
    key: Option<Key>,
}

impl ListedPump {
    /// Waits for the frame after the present one of the current job's runtime.
    fn here() -> ListedPump {
        let tree = context::with(|cx| {
            // SAFETY: the current job has not ended.
            cx.current().map(|job| unsafe { job.tree() }.handle())
        });
        let tree = tree.unwrap_or_else(|| {
            panic!("next_pump was awaited outside any Kinfolk job: no runtime is pumped here")
        });
        ListedPump {
            since: tree.shared().frames.number(),
            tree,
            key: None,
        }
    }

    fn frames(&self) -> &Frames {
        &self.tree.shared().frames
    }

    fn unlist(&mut self) {
        if let Some(key) = self.key.take() {
            let waker = self.frames().waiting().remove(key);
            drop(waker);
        }
    }

    /// True if its frame has come; else it is listed.
    fn look(&mut self, waker: &Waker) -> bool {
        self.unlist();
        let new = KeptWaker::new(waker.clone());
        let mut waiting = self.frames().waiting();
        if self.frames().number() > self.since {
            return true;
        }
        let key = waiting.push(new);
        drop(waiting);
        self.key = Some(key);
        false
    }
}

impl Future for NextPump {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Poll::Ready(Err(told)) = point::poll_point_at(cx, &mut this.yielded, this.site) {
            this.wait.over();
            this.listed = None;
            return Poll::Ready(Err(told));
        }
        if this
            .listed
            .as_ref()
            .is_some_and(|listed| listed.tree.shared().is_elsewhere())
        {
            this.listed = None;
        }
        let listed = this.listed.get_or_insert_with(ListedPump::here);
        if listed.look(cx.waker()) {
            this.wait.over();
            this.listed = None;
            return Poll::Ready(Ok(()));
        }
        this.wait.pending(cx.waker(), WaitKind::Pump, this.site);
        Poll::Pending
    }
}

impl Drop for ListedPump {
    fn drop(&mut self) {
        self.unlist();
    }
}

impl fmt::Debug for NextPump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NextPump")
    }
}

impl Tree {
    /// A frame begins: every await of [`next_pump`](crate::next_pump) goes on.
    pub fn begin_frame(&self) {
        self.shared().frames.begin();
    }
}
