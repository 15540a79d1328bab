//! `all`: every value or the first failure. `all_settled`: every end.

use std::panic::Location;

use crate::base::error::{Error, Result};
use crate::engine::on_its_way::OnItsWay;
use crate::engine::owed::Owed;
use crate::more::combine::branch::{Lost, has_lost, was_interrupted};
use crate::more::combine::branches::{Branches, Places};
use crate::more::combine::taken_in::{Cut, give_up, on_its_way};
use crate::more::combine::together::Policy;

/// Runs all branches concurrently inside the calling task and returns their values, in the
/// order of the branches: `Result<(A, B)>` for a tuple of futures with the values `A` and `B`,
/// `Result<Vec<T>>` for an array, a `Vec` or an iterator of futures with the value `T`. The page
/// of [`Branches`] has a table.
///
/// The first branch that fails decides: the others are cancelled with `RaceLost` and
/// awaited. The call returns the error of that branch; further failures are
/// [suppressed](Error::suppressed). Values that were returned before are dropped; to keep
/// them, use [`all_settled`].
///
/// Each branch is a scope, and may borrow. The branches of a tuple are all polled in every
/// turn of the task; those of an iterator only when they are woken, so that there may be
/// very many. Without a branch the call returns at once. To run in parallel, spawn: a
/// [`Task`](crate::Task) can be a branch, and is awaited if it has lost; see
/// [`race`](crate::race()).
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn load_user(name: &str) -> kinfolk::Result<String> { Ok(name.into()) }
/// # async fn count_posts(name: &str) -> kinfolk::Result<u32> { Ok(3) }
/// # async fn demo() -> kinfolk::Result<()> {
/// let name = String::from("ada");
/// let (user, posts) = kinfolk::all((load_user(&name), count_posts(&name))).await?;
///
/// let counts: Vec<u32> = kinfolk::all(["ada", "bob"].map(count_posts)).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Cancellation
/// *Not a point.* If the enclosing job is cancelled, so is every branch; the call returns
/// when all branches have ended: a failure if there was one, `Cancelled` if a branch was cut
/// short, else the values. A branch that returns an interrupt stops the others too. If the
/// call is dropped before it is over, failures of its branches go to the failure hook.
#[track_caller]
pub fn all<B, Shape>(branches: B) -> B::All
where
    B: Branches<Shape>,
{
    branches.into_all(Location::caller())
}

/// Runs all branches side by side like [`all`], but a branch that fails does not cancel the
/// others: returns how each branch ended, in the order of the branches: `(Result<A>, Result<B>)`
/// for a tuple, `Vec<Result<T>>` for an array, a `Vec` or an iterator. A panic is an error of
/// kind `Panicked`.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn demo() {
/// let ends = kinfolk::all_settled((async { 1 }, async { Err::<(), _>("no") })).await;
/// assert_eq!(ends.0.unwrap(), 1);
/// assert_eq!(ends.1.unwrap_err().to_string(), "no");
/// # }
/// ```
///
/// # Cancellation
/// *Not a point.* If the enclosing job is cancelled, so is every branch; values that
/// branches still return are in the result, the other branches are `Cancelled`.
#[track_caller]
pub fn all_settled<B, Shape>(branches: B) -> B::AllSettled
where
    B: Branches<Shape>,
{
    branches.into_all_settled(Location::caller())
}

/// What has gone wrong so far where the first failure decides.
#[derive(Default)]
pub(crate) struct Verdict {
    failures: Owed,
    /// A branch was cut short by an enclosing cancellation, or an interrupt
    /// left it.
    cut: Cut,
}

impl Verdict {
    /// A branch ended with `error`; something if it is the first failure.
    pub(crate) fn take_in(&mut self, error: Error) -> Option<Lost> {
        if error.is_cancelled() {
            let decided = was_interrupted(&error) && self.cut.is_none();
            if self.failures.is_empty() {
                self.cut.take_in(error);
            } else {
                give_up(&error);
            }
            return decided.then(Lost::to_interrupt);
        }
        if has_lost(&error) {
            return None;
        }
        let first = self.failures.is_empty();
        let lost = first.then(|| Lost::to_failure(&error));
        self.failures.take_in(error);
        lost
    }

    /// Failures dominate cancellation; nothing if there was neither.
    pub(crate) fn error(self) -> Option<Error> {
        self.failures.decide().or_else(|| self.cut.into_error())
    }
}

/// The policy of [`all`].
pub struct Whole<S> {
    places: S,
    verdict: Verdict,
}

impl<S> Whole<S> {
    pub(crate) fn new(places: S) -> Whole<S> {
        Whole {
            places,
            verdict: Verdict::default(),
        }
    }
}

impl<S: Places> Policy<S::Item> for Whole<S> {
    type Output = Result<S::Values>;

    fn ended(&mut self, index: usize, how: Result<S::Item>) -> Option<Lost> {
        match how {
            Ok(value) => {
                self.places.put(index, Ok(value));
                None
            }
            Err(error) => self.verdict.take_in(error),
        }
    }

    fn finish(self) -> Result<S::Values> {
        match self.verdict.error() {
            Some(error) => Err(error),
            None => Ok(self.places.values()),
        }
    }
}

/// The policy of [`all_settled`].
pub struct Settled<S> {
    places: S,
    /// What is in them is the caller's only when the call returns: the failures,
    /// and the interrupts that have left branches.
    failures: Owed,
    on_their_way: Vec<OnItsWay>,
}

impl<S> Settled<S> {
    pub(crate) fn new(places: S) -> Settled<S> {
        Settled {
            places,
            failures: Owed::default(),
            on_their_way: Vec::new(),
        }
    }
}

impl<S: Places> Policy<S::Item> for Settled<S> {
    type Output = S::Ends;

    fn ended(&mut self, index: usize, how: Result<S::Item>) -> Option<Lost> {
        match &how {
            Err(error) if error.is_cancelled() => self.on_their_way.extend(on_its_way(error)),
            Err(error) => self.failures.take_in(error.clone()),
            Ok(_) => {}
        }
        self.places.put(index, how);
        None
    }

    fn finish(self) -> S::Ends {
        self.failures.forget();
        for told in self.on_their_way {
            told.arrive();
        }
        self.places.ends()
    }
}
