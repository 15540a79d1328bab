//! The future of `all`, `any`, `race` and `select!`: runs the branches, tells the
//! losers when one branch has decided, and waits for every branch.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::base::error::Result;
use crate::base::wait_kind::WaitKind;
use crate::more::combine::branch::{BranchGroup, Lost, Pass, PassStatus};
use crate::points::wait::Wait;
use crate::record::header::Site;

/// Decides what a call with several branches returns.
pub trait Policy<T> {
    /// What the call returns.
    type Output;

    /// A branch has ended. `Some` if that decides, and the others have lost.
    fn ended(&mut self, index: usize, how: Result<T>) -> Option<Lost>;

    /// Every branch has ended.
    fn finish(self) -> Self::Output;
}

pin_project! {
    /// The future of [`all`](crate::all), [`all_settled`](crate::all_settled),
    /// [`any`](crate::any), [`race`](crate::race) and [`select!`](crate::select).
    ///
    /// # Cancellation
    /// *Not a point*: each branch is told by itself. Dropping it half-way drops
    /// the branches and cancels their children, for which the enclosing job
    /// waits.
    #[must_use = "futures do nothing unless awaited"]
    pub struct Together<C, P> {
        #[pin]
        pub(crate) group: C,
        pub(crate) policy: Option<P>,
        pub(crate) wait: Wait,
        pub(crate) site: &'static Location<'static>,
    }
}

impl<C, P> Together<C, P> {
    pub(crate) fn new(group: C, policy: P, site: &'static Location<'static>) -> Self {
        Together {
            group,
            policy: Some(policy),
            wait: Wait::new(),
            site,
        }
    }

    /// The same branches, with another policy.
    pub(crate) fn decided_by<Q>(self, change: impl FnOnce(P) -> Q) -> Together<C, Q> {
        Together {
            group: self.group,
            policy: self.policy.map(change),
            wait: self.wait,
            site: self.site,
        }
    }
}

impl<C: BranchGroup, P: Policy<C::Item>> Future for Together<C, P> {
    type Output = P::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<P::Output> {
        let mut this = self.project();
        loop {
            let policy = this
                .policy
                .as_mut()
                .expect("branches were polled after completion");
            let mut ended = |index, how| policy.ended(index, how);
            let mut pass = Pass::new(&mut ended);
            this.group.as_mut().poll(cx, &mut pass);
            match pass.status() {
                // The others are polled once more, so that each is told or
                // dropped.
                PassStatus::Decided(lost) => this.group.as_mut().lose(&lost, this.site),
                PassStatus::Running => {
                    this.wait
                        .pending(cx.waker(), WaitKind::Scope, Site::of(this.site));
                    return Poll::Pending;
                }
                PassStatus::Over => break,
            }
        }
        this.wait.over();
        match this.policy.take() {
            Some(policy) => Poll::Ready(policy.finish()),
            None => unreachable!("looked at above"),
        }
    }
}

impl<C, P> fmt::Debug for Together<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Together({}:{})", self.site.file(), self.site.line())
    }
}
