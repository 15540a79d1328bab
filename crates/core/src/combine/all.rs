//! `all`: every value or the first failure. `all_settled`: every end.

use std::panic::Location;

use super::branch::{Lost, has_lost, was_interrupted};
use super::branches::{Branches, Places};
use super::together::{Policy, Together};
use crate::error::{Error, Result};
use crate::job::failures::{Failure, Failures};

/// Runs all branches side by side, inside the calling task, and gives all values,
/// in the order of the branches: a `Vec` for an iterator or an array, a tuple for
/// a tuple.
///
/// The first branch that fails decides: the others are cancelled with
/// `RaceLost`, told, and waited for. The error is that branch's; what else failed
/// is [suppressed](Error::suppressed). Values that had come are dropped; to keep
/// them use [`all_settled`].
///
/// Each branch is a scope, and may borrow. A tuple's branches are all polled at
/// every turn of the task; those of an iterator only when they are woken, so that
/// there may be very many. Without a branch it is done at once. To run in
/// parallel, spawn: a [`Task`](crate::Task) is a future like any other.
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
/// *Not a point.* If the enclosing job is cancelled, so is every branch; it
/// returns when all have ended: a failure if there was one, `Cancelled` if a
/// branch was cut short, else the values. An interrupt that leaves a branch stops
/// the others too.
#[track_caller]
pub fn all<Shape, B: Branches<Shape>>(branches: B) -> Together<B::Crew, Whole<B::Places>> {
    let site = Location::caller();
    let (crew, places) = branches.open(site);
    let whole = Whole {
        places,
        verdict: Verdict::default(),
    };
    Together::new(crew, whole, site)
}

/// As [`all`], but a branch that fails touches nobody: gives how each ended, in
/// the order of the branches. A panic is an error of kind `Panicked`.
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
/// *Not a point.* If the enclosing job is cancelled, so is every branch; what
/// they returned all the same is there, the others are `Cancelled`.
#[track_caller]
pub fn all_settled<Shape, B: Branches<Shape>>(
    branches: B,
) -> Together<B::Crew, Settled<B::Places>> {
    let site = Location::caller();
    let (crew, places) = branches.open(site);
    Together::new(crew, Settled(places), site)
}

/// What has gone wrong so far where the first failure decides.
#[derive(Default)]
pub(crate) struct Verdict {
    failures: Failures,
    /// A branch was cut short by an enclosing cancellation, or an interrupt
    /// left it.
    cancelled: Option<Error>,
}

impl Verdict {
    /// A branch ended with `error`; something if it is the first failure.
    pub(crate) fn take_in(&mut self, error: Error) -> Option<Lost> {
        if error.is_cancelled() {
            let decided = was_interrupted(&error) && self.cancelled.is_none();
            self.cancelled.get_or_insert(error);
            return decided.then(Lost::to_success);
        }
        if has_lost(&error) {
            return None;
        }
        let first = self.failures.is_empty();
        let lost = first.then(|| Lost::to_failure(&error));
        drop(self.failures.record(Failure::new(error), false));
        lost
    }

    /// Failures dominate cancellation; nothing if there was neither.
    pub(crate) fn error(self) -> Option<Error> {
        self.failures.decide().or(self.cancelled)
    }
}

/// The policy of [`all`].
pub struct Whole<S> {
    places: S,
    verdict: Verdict,
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
pub struct Settled<S>(S);

impl<S: Places> Policy<S::Item> for Settled<S> {
    type Output = S::Ends;

    fn ended(&mut self, index: usize, how: Result<S::Item>) -> Option<Lost> {
        self.0.put(index, how);
        None
    }

    fn finish(self) -> S::Ends {
        self.0.ends()
    }
}
