//! One branch: a scope that can lose. And one turn of a group of branches.

use std::any::TypeId;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::outcome::IntoOutcome;
use crate::base::reason::ReasonKind;
use crate::base::unwind::contained;
use crate::more::combine::local_scope::LocalTask;
use crate::surface::inline::{Inline, Just, Setup};
use crate::surface::task::{OutcomeOf, Task};

/// The value of a branch's future.
pub(crate) type ValueOf<F> = <<F as Future>::Output as IntoOutcome>::Value;

/// A branch that is not opened yet.
pub(crate) fn branch<F>(future: F, site: &'static Location<'static>) -> Inline<Just<F>>
where
    F: Future<Output: IntoOutcome>,
{
    Inline::new(Just(future), Setup::new(JobKind::Branch, site))
}

/// One branch has decided, and the others have lost.
pub struct Lost {
    /// The job that failed, if a failure decided.
    culprit: Option<(JobId, String)>,
    /// What the caller has given the winner to say.
    words: Option<&'static str>,
    /// An interrupt decided: then a task from outside is not waited for.
    at_once: bool,
}

impl Lost {
    pub(crate) fn to_success() -> Lost {
        Lost {
            culprit: None,
            words: None,
            at_once: false,
        }
    }

    pub(crate) fn to_interrupt() -> Lost {
        Lost {
            culprit: None,
            words: None,
            at_once: true,
        }
    }

    pub(crate) fn to_failure(error: &Error) -> Lost {
        let name = error.job_name().map(ToString::to_string);
        Lost {
            culprit: error.job().zip(name),
            words: None,
            at_once: false,
        }
    }

    /// With these words for the losers.
    pub(crate) fn saying(self, words: Option<&'static str>) -> Lost {
        Lost { words, ..self }
    }
}

/// Tells a branch that it has lost. False if it has not begun: then no body exists
/// that could be told, and the branch is dropped. A branch that is a task runs
/// without it: that branch is opened, so that the task is told and waited for.
pub(crate) fn lose<F>(
    branch: Pin<&mut Inline<Just<F>>>,
    lost: &Lost,
    site: &'static Location<'static>,
) -> bool
where
    F: Future<Output: IntoOutcome>,
{
    let waits = !lost.at_once && is_task::<F>();
    branch.lose(lost.culprit.as_ref(), lost.words, waits, site)
}

/// True if the future of a branch is the handle of a task, which loses with the
/// branch. Its output says which handle it could be: so there is one type to compare
/// with for each sort of handle.
fn is_task<F: Future<Output: IntoOutcome>>() -> bool {
    let this = id_of::<F>();
    this == id_of::<Task<ValueOf<F>>>()
        || this == id_of::<OutcomeOf<ValueOf<F>>>()
        || this == id_of::<LocalTask<ValueOf<F>>>()
}

/// The identity of a type that may borrow. Types that differ only in lifetimes have the
/// same identity.
fn id_of<T: ?Sized>() -> TypeId {
    /// `Of<T>` is called through a trait object: a bound sees only its lifetime.
    trait Identity {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    struct Of<T: ?Sized>(PhantomData<T>);
    impl<T: ?Sized> Identity for Of<T> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let of = Of::<T>(PhantomData);
    let of: &(dyn Identity + '_) = &of;
    // SAFETY: the two types differ in a lifetime. `id` reads nothing through the
    // reference and keeps nothing of the type, so nothing borrowed is ever used.
    let of: &(dyn Identity + 'static) = unsafe { std::mem::transmute(of) };
    of.id()
}

/// True if an interrupt of the task has left a branch: the request was
/// delivered, and is the answer of the whole call.
pub(crate) fn was_interrupted(error: &Error) -> bool {
    error.is_cancelled()
        && error
            .reason()
            .is_some_and(|reason| reason.kind() == ReasonKind::Interrupted)
}

/// True if a branch that has lost ended with that cancellation alone.
pub(crate) fn has_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Stopped
        && error
            .reason()
            .is_some_and(|reason| reason.kind() == ReasonKind::RaceLost)
}

/// How the branches stand after a turn.
#[must_use]
pub enum PassStatus {
    /// One branch decided: the others must be told.
    Decided(Lost),
    /// Some still run.
    Running,
    /// All have ended.
    Over,
}

/// One turn of a group: collects the branches that have ended.
pub struct Pass<'a, T> {
    /// Decides what the end of a branch means.
    ended: &'a mut dyn FnMut(usize, Result<T>) -> Option<Lost>,
    decided: Option<Lost>,
    running: bool,
}

impl<'a, T> Pass<'a, T> {
    pub(crate) fn new(ended: &'a mut dyn FnMut(usize, Result<T>) -> Option<Lost>) -> Self {
        Pass {
            ended,
            decided: None,
            running: false,
        }
    }

    /// True if no further branch is polled before the others have been told.
    pub(crate) fn is_decided(&self) -> bool {
        self.decided.is_some()
    }

    pub(crate) fn one_runs(&mut self) {
        self.running = true;
    }

    pub(crate) fn one_ended(&mut self, index: usize, how: Result<T>) {
        self.decided = (self.ended)(index, how);
    }

    pub(crate) fn status(self) -> PassStatus {
        match self.decided {
            Some(lost) => PassStatus::Decided(lost),
            None if self.running => PassStatus::Running,
            None => PassStatus::Over,
        }
    }
}

/// Some branches, run by [`Together`](crate::more::combine::together::Together).
pub trait BranchGroup {
    /// The value of one branch.
    type Item;

    /// Polls the branches that may go on.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, pass: &mut Pass<'_, Self::Item>);

    /// Tells running branches that they have lost, and drops those that have
    /// not begun.
    fn lose(self: Pin<&mut Self>, lost: &Lost, site: &'static Location<'static>);
}

/// A branch that is kept in place; none when it is over.
pub(crate) type InPlace<F> = Option<Inline<Just<F>>>;

/// Polls a branch that is kept in place.
pub(crate) fn poll_in_place<F, T>(
    mut place: Pin<&mut InPlace<F>>,
    index: usize,
    arm: fn(ValueOf<F>) -> T,
    cx: &mut Context<'_>,
    pass: &mut Pass<'_, T>,
) where
    F: Future<Output: IntoOutcome>,
{
    if pass.is_decided() {
        return;
    }
    let Some(branch) = place.as_mut().as_pin_mut() else {
        return;
    };
    match branch.poll(cx) {
        Poll::Pending => pass.one_runs(),
        Poll::Ready(how) => {
            contained(|| place.set(None));
            pass.one_ended(index, how.map(arm));
        }
    }
}

/// Tells a branch that is kept in place.
pub(crate) fn lose_in_place<F>(
    mut place: Pin<&mut InPlace<F>>,
    lost: &Lost,
    site: &'static Location<'static>,
) where
    F: Future<Output: IntoOutcome>,
{
    if let Some(branch) = place.as_mut().as_pin_mut()
        && !lose(branch, lost, site)
    {
        contained(|| place.set(None));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::surface::task::TaskOutcome;

    /// A future of another type with the name of one of this crate.
    struct Other<F>(F);

    impl<F: Future + Unpin> Future for Other<F> {
        type Output = F::Output;

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
            Pin::new(&mut self.get_mut().0).poll(cx)
        }
    }

    fn is_task_like<F: Future<Output: IntoOutcome>>(_: &dyn Fn() -> F) -> bool {
        is_task::<F>()
    }

    #[test]
    fn handle_7_a_branch_that_is_the_handle_is_told_apart() {
        fn borrows<'a>(_: &'a str) -> [bool; 3] {
            [
                is_task::<Task<&'a str>>(),
                is_task::<TaskOutcome<Vec<&'a str>>>(),
                is_task::<LocalTask<Option<&'a str>>>(),
            ]
        }
        assert_eq!(borrows(&String::from("a local")), [true; 3]);
        assert!(is_task::<Task<()>>() && is_task::<Task<Result<u8>>>());
        // The value of a task may be an outcome, and a handle.
        assert!(is_task::<Task<crate::Outcome<u8>>>());
        assert!(is_task::<TaskOutcome<crate::Outcome<u8>>>());
        assert!(is_task::<Task<Task<()>>>());
        assert!(!is_task::<&mut Task<u8>>());
        assert!(!is_task::<Pin<Box<Task<u8>>>>());
        assert!(!is_task::<Other<Task<u8>>>());
        assert!(!is_task::<crate::Join>());
        let around = |task: Option<Task<u8>>| async move { task.expect("never called").await };
        assert!(!is_task_like(&|| around(None)));
    }
}
