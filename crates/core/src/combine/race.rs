//! `race`: the first to end, of any sort. `select!` is a race too.

use std::panic::Location;

use super::any::no_branches;
use super::branch::{Lost, has_lost, was_interrupted};
use super::branches::Alike;
use super::together::{Policy, Together};
use crate::cancel::walk;
use crate::context;
use crate::error::{Error, Result};
use crate::job::failures::{Failure, Failures};
use crate::unwind::{Contained, contained};

/// Runs all branches side by side, inside the calling task, and gives how the
/// first of them ended, a value or a failure. The others are cancelled with
/// `RaceLost`, told, and waited for. No branch at all is an error.
///
/// Branches begin in the order given; one that has not begun when it is decided
/// is dropped unpolled. A loser that cannot hear is dropped there. One that
/// returns a value all the same is waited for, and its value is dropped, unless
/// [`late`](Together::late) takes it. A loser that fails: beside a failed winner
/// its error is [suppressed](Error::suppressed), else the failure hook gets it.
///
/// A loser that awaits a [`Task`](crate::Task) from outside the race cancels it,
/// as any waiter does that is cancelled; race its `join()` to leave it alone.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # use std::time::Duration;
/// # async fn demo() -> kinfolk::Result<()> {
/// let quick = async { Ok::<_, kinfolk::Error>("quick") };
/// let slow = async {
///     kinfolk::sleep(Duration::from_secs(1)).await?;
///     Ok::<_, kinfolk::Error>("slow")
/// };
/// assert_eq!(kinfolk::race((slow, quick)).await?, "quick");
/// # Ok(())
/// # }
/// ```
///
/// # Cancellation
/// *Not a point.* If the enclosing job is cancelled, so is every branch, and that
/// is nobody's win: it returns when all have ended, how the first ended that had
/// something else to say, or `Cancelled`. An interrupt that leaves a branch stops
/// the others too.
#[track_caller]
pub fn race<Shape, B: Alike<Shape>>(branches: B) -> Together<B::Crew, Race<B::Item, B::Value>> {
    let site = Location::caller();
    let (crew, _) = branches.open(site);
    Together::new(crew, Race::new(B::value), site)
}

/// The policy of [`race`].
pub struct Race<I, V, L = fn(V)> {
    value: fn(I) -> V,
    won: Option<Contained<V>>,
    /// The winner's, and those of the losers after it.
    failures: Failures,
    cancelled: Option<Error>,
    late: Contained<L>,
}

impl<I, V> Race<I, V> {
    pub(crate) fn new(value: fn(I) -> V) -> Race<I, V> {
        Race {
            value,
            won: None,
            failures: Failures::default(),
            cancelled: None,
            late: Contained::new(drop),
        }
    }
}

impl<I, V, L: FnMut(V)> Policy<I> for Race<I, V, L> {
    type Output = Result<V>;

    fn ended(&mut self, _: usize, how: Result<I>) -> Option<Lost> {
        let stopped = self.cancelled.as_ref().is_some_and(was_interrupted);
        let open = self.won.is_none() && self.failures.is_empty() && !stopped;
        match how {
            Err(error) if error.is_cancelled() => {
                let decided = open && was_interrupted(&error);
                self.cancelled.get_or_insert(error);
                return decided.then(Lost::to_success);
            }
            Err(error) if !open && has_lost(&error) => {}
            Ok(item) if open => {
                self.won = Some(Contained::new((self.value)(item)));
                return Some(Lost::to_success());
            }
            Ok(item) => {
                contained(|| (*self.late)((self.value)(item)));
            }
            Err(error) if self.won.is_some() => report(&error),
            Err(error) => {
                let lost = open.then(|| Lost::to_failure(&error));
                drop(self.failures.record(Failure::new(error), false));
                return lost;
            }
        }
        None
    }

    fn finish(self) -> Result<V> {
        match self.won {
            Some(value) => Ok(value.into_inner()),
            None => Err((self.failures.decide())
                .or(self.cancelled)
                .unwrap_or_else(|| no_branches("race"))),
        }
    }
}

impl<C, I, V, L> Together<C, Race<I, V, L>> {
    /// Takes the values of losers that return one all the same, before the call
    /// returns. A panic in `late`, or in the drop of what it has captured, ends there.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # use std::time::Duration;
    /// # async fn receive() -> kinfolk::Result<u32> { Ok(1) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// let mut kept = Vec::new();
    /// let first = kinfolk::race((receive(), receive()))
    ///     .late(|item| kept.push(item))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn late<M: FnMut(V)>(self, late: M) -> Together<C, Race<I, V, M>> {
        self.decided_by(|race| Race {
            value: race.value,
            won: race.won,
            failures: race.failures,
            cancelled: race.cancelled,
            late: Contained::new(late),
        })
    }
}

/// A loser failed, and there is nobody to tell but the failure hook.
fn report(error: &Error) {
    if let Some(here) = context::current()
        && let Some(tree) = walk::pin(&here)
    {
        tree.report_failure(error);
    }
}
