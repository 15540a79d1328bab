//! How a tree is shut down: its root is cancelled; what protects is lifted; what is left is
//! forced. When each is done is decided by [`Shutdown`](crate::Shutdown), or by the host.

use std::borrow::Cow;
use std::panic::Location;

use crate::base::reason::ReasonKind;
use crate::engine::children::{children, older_children};
use crate::engine::end;
use crate::engine::guard;
use crate::engine::lease;
use crate::engine::left_open;
use crate::engine::patience::rouse;
use crate::engine::tree::{Shared, Tree};
use crate::engine::turn::{self, mark_forced};
use crate::engine::walk::{self, Why};
use crate::record::state::{self, Remains};
use crate::record::works;

impl Tree {
    /// Cancels every job and lets the root end when the last is gone. The
    /// root takes no more children from when it has ended. True the first
    /// time.
    #[track_caller]
    pub fn request_shutdown(&self, kind: ReasonKind) -> bool {
        self.shut_down_because(Why::new(kind, Location::caller()))
    }

    /// As [`request_shutdown`](Tree::request_shutdown), with the words of the reason
    /// and a place in the code that stands for it: for hosts that are told from
    /// outside the program, by a signal.
    pub fn request_shutdown_for(
        &self,
        kind: ReasonKind,
        text: impl Into<Cow<'static, str>>,
        site: &'static Location<'static>,
    ) -> bool {
        let mut why = Why::new(kind, site);
        why.text = Some(text.into());
        self.shut_down_because(why)
    }

    fn shut_down_because(&self, why: Why) -> bool {
        let root = self.shared().root();
        let moved = walk::cancel(root, why);
        if !root.state.body_over(Remains::Nothing).has(state::BODY_DONE) {
            end::body_gone(root);
        }
        moved
    }

    /// Lifts every shield and guard, revokes every lease and asks what goes on beside the
    /// bodies to end, so that the cancel of the root reaches every job. For hosts that
    /// time a shutdown themselves; see [`host::ShutdownSteps`](crate::host::ShutdownSteps).
    pub fn lift(&self) {
        lift_all(self.shared());
    }

    /// Cancels every task, shielded or not, and wakes it: each drops its future
    /// in its next turn, told or not, waiting or not. Revokes every lease. For
    /// hosts that end by force.
    pub fn force(&self) {
        force_all(self.shared());
    }

    /// The host gives no more turns: every job below the root ends, forced, with
    /// [`ReasonKind::HostGone`], and none begins any more. For hosts that are ended by
    /// others, such as one on an executor that is dropped. The host drops the turns that
    /// it has and those that it gets from now on, this call's included.
    pub fn host_gone(&self) {
        self.shared().note_host_gone();
        force_all(self.shared());
    }
}

/// Lifts every shield and guard and revokes every lease, so that the cancel
/// of the root reaches everybody. What is made meanwhile is left to [`force_all`].
pub(crate) fn lift_all(tree: &Shared) {
    let before = tree.counters.numbered();
    let mut todo = vec![tree.root_job()];
    while let Some(job) = todo.pop() {
        guard::lapse(&job);
        if job.is_shield() {
            walk::lift(tree, &job);
        }
        // What goes on beside its body is asked to end, as when that is over.
        works::stop_all(&job);
        lease::revoke(&job);
        older_children(tree, &job, before, &mut |child| todo.push(child));
    }
}

/// Asks every task of `tree` to drop its future, whatever it waits on, and
/// revokes the leases that were taken since [`lift_all`]. It lifts no shield:
/// what is inside would run on while it is being forced.
///
/// Every job gets DROP_NOW before its children are listed, and an attacher looks for
/// it under the same lock: a child is listed, or refused, or born with it
/// (`force_vs_attach`). All have it before the first is told: no task that a
/// shield had spared hears of the cancel in a turn of its own. From the beginning the
/// whole tree refuses tasks, so that it does not grow away from the list.
pub(crate) fn force_all(tree: &Shared) {
    tree.refuse_tasks();
    let mut all = vec![tree.root_job()];
    let mut next = 0;
    while let Some(job) = all.get(next).cloned() {
        job.state.drop_now();
        children(&job, &mut |child| all.push(child));
        next += 1;
    }
    for job in all {
        if job.is_task() && !job.state.load().has(state::BODY_DONE) {
            mark_forced(tree, &job);
            if job.state.start_lazy() {
                // SAFETY: its start is ours.
                unsafe { turn::push_claimed(&job) };
            }
            rouse(&job);
        } else if job.is_hosted() {
            left_open::force_hosted(tree, &job);
        }
        lease::revoke(&job);
    }
}
