//! Branches from an iterator, any number of them. Each is polled under a waker of
//! its own, so that a turn polls only the branches that were woken: among ten
//! thousand branches a turn costs as much as the branches it polls.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::outcome::IntoOutcome;
use crate::base::unwind::discard;
use crate::engine::context::{self, PolledHere};
use crate::more::combine::branch::{self, BranchGroup, Lost, Pass, ValueOf};
use crate::more::combine::wake_list::WakeList;
use crate::surface::inline::{Inline, Just};

type BoxedBranch<F> = Pin<Box<Inline<Just<F>>>>;

/// Branches of one type, any number of them.
pub struct Many<F: Future<Output: IntoOutcome>> {
    /// By index; none for a branch that is over.
    branches: Vec<Option<BoxedBranch<F>>>,
    free: Vec<usize>,
    running: usize,
    ready: WakeList,
    site: &'static Location<'static>,
}

impl<F: Future<Output: IntoOutcome>> Many<F> {
    pub(crate) fn new(site: &'static Location<'static>) -> Many<F> {
        Many {
            branches: Vec::new(),
            free: Vec::new(),
            running: 0,
            ready: WakeList::new(),
            site,
        }
    }

    /// How many branches are not over.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Adds a branch, which the next poll opens.
    pub(crate) fn push(&mut self, future: F) {
        let branch = Some(Box::pin(branch::branch(future, self.site)));
        let index = match self.free.pop() {
            Some(index) => {
                self.branches[index] = branch;
                index
            }
            None => {
                self.branches.push(branch);
                self.branches.len() - 1
            }
        };
        self.running += 1;
        self.ready.add(index);
    }

    fn gone(&mut self, index: usize) {
        self.free.push(index);
        self.running -= 1;
    }

    fn poll_one(&mut self, index: usize, here: &PolledHere, pass: &mut Pass<'_, ValueOf<F>>) {
        let Some(branch) = &mut self.branches[index] else {
            return;
        };
        let waker = self.ready.waker(index);
        let polled = {
            // To the job around it the branch's waker is not foreign: a cancel
            // goes through the branch's own node, and the wait of the job is
            // counted by whoever polls us.
            let _entered = here.enter(waker);
            branch.as_mut().poll(&mut Context::from_waker(waker))
        };
        if let Poll::Ready(how) = polled {
            discard(self.branches[index].take());
            self.gone(index);
            pass.one_ended(index, how);
        }
    }
}

impl<F: Future<Output: IntoOutcome>> BranchGroup for Many<F> {
    type Item = ValueOf<F>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, pass: &mut Pass<'_, ValueOf<F>>) {
        let this = self.get_mut();
        let here = PolledHere::now();
        for polled in 0..this.ready.begin() {
            if pass.is_decided() || (polled > 0 && context::turn_is_spent()) {
                break;
            }
            let Some(index) = this.ready.next() else {
                break;
            };
            this.poll_one(index, &here, pass);
        }
        if this.running > 0 {
            pass.one_runs();
            if !pass.is_decided() {
                this.ready.park(cx.waker());
            }
        }
    }

    fn lose(self: Pin<&mut Self>, lost: &Lost, site: &'static Location<'static>) {
        let this = self.get_mut();
        for index in 0..this.branches.len() {
            // Telling a branch wakes it, and so lists it: it is polled once
            // more.
            if let Some(begun) = &mut this.branches[index]
                && !branch::lose(begun.as_mut(), lost, site)
            {
                discard(this.branches[index].take());
                this.gone(index);
            }
        }
    }
}
