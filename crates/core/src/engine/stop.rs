//! How a tree is shut down: its root is cancelled, then protection is lifted, then the jobs
//! that are left are dropped by force. [`Shutdown`](crate::Shutdown) or the host decides
//! when each step happens.

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
    /// Cancels every job and lets the root end when the last job has ended.
    /// From then on the root takes no more children. Returns true the first
    /// time.
    #[track_caller]
    pub fn request_shutdown(&self, kind: ReasonKind) -> bool {
        self.shut_down_because(Why::new(kind, Location::caller()))
    }

    /// Like [`request_shutdown`](Tree::request_shutdown), with the text of the
    /// reason and a place in the code as its site: for hosts that are shut down from
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

    /// Lifts every shield and guard, revokes every lease and stops the work beside the
    /// bodies, so that the cancel of the root reaches every job. For hosts that time a
    /// shutdown themselves; see [`host::ShutdownSteps`](crate::host::ShutdownSteps).
    pub fn lift(&self) {
        lift_all(self.shared());
    }

    /// Cancels every task, shielded or not, and wakes it: each drops its future
    /// in its next turn, whether or not it was told or waits. Revokes every
    /// lease. For hosts that end by force.
    pub fn force(&self) {
        force_all(self.shared());
    }

    /// The host gives no more turns: every job below the root ends by force, with
    /// [`ReasonKind::HostGone`], and no new job begins. For hosts whose end others
    /// decide, such as a host on an executor that is dropped. The host must drop the
    /// turns in its queues and those that arrive from now on, also during this call.
    pub fn host_gone(&self) {
        self.shared().note_host_gone();
        force_all(self.shared());
    }
}

/// Lifts every shield and guard and revokes every lease, so that the cancel of the
/// root reaches every job. Protection that is set up meanwhile is left to
/// [`force_all`].
pub(crate) fn lift_all(tree: &Shared) {
    let before = tree.counters.numbered();
    let mut todo = vec![tree.root_job()];
    while let Some(job) = todo.pop() {
        guard::lapse(&job);
        if job.is_shield() {
            walk::lift(tree, &job);
        }
        // Work beside the body is asked to end, as when the body is over.
        works::stop_all(&job);
        lease::revoke(&job);
        older_children(tree, &job, before, &mut |child| todo.push(child));
    }
}

/// Makes every task of `tree` drop its future, whatever the task waits for, and
/// revokes the leases that were taken since [`lift_all`]. No shield is lifted here:
/// the code inside would run on while it is being dropped by force.
///
/// Every job gets DROP_NOW before its children are listed, and an attacher reads
/// DROP_NOW under the same lock: a child is listed, or refused, or born with DROP_NOW
/// (`force_vs_attach`). All jobs have DROP_NOW before the first is cancelled: no task
/// behind a shield observes the cancel in a turn of its own. From the beginning the
/// whole tree refuses tasks, so that it does not grow faster than the list.
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
