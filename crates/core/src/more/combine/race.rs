//! `race`: the first to end, of any sort. `select!` is a race too.

use std::panic::Location;

use crate::base::error::Result;
use crate::base::unwind::{Contained, contained};
use crate::more::combine::any::no_branches;
use crate::more::combine::branch::{Lost, has_lost, was_interrupted};
use crate::more::combine::branches::Alike;
use crate::more::combine::taken_in::{Cut, Owed, give_up, report};
use crate::more::combine::together::{Policy, Together};

/// Runs all branches side by side, inside the calling task, and gives how the
/// first of them ended, a value or a failure. The others are cancelled with
/// `RaceLost`, told, and waited for. No branch at all is an error.
///
/// Branches begin in the order given; one that has not begun when it is decided
/// is dropped unpolled. A loser that cannot hear is dropped there. One that
/// returns a value all the same is waited for, and its value is dropped, unless
/// [`late`](Together::late) takes it. A loser that fails: beside a failed winner
/// its error is [suppressed](crate::Error::suppressed), else the failure hook gets it.
///
/// A branch may be a [`Task`](crate::Task) itself. If it loses, the task is
/// cancelled and waited for, like any loser; an enclosing cancel, deadline or
/// interrupt leaves it at once. A loser that awaits a task from outside the race in
/// another way (`&mut task`, an async block) cancels it too, and is left at once.
/// Race its `join()` to leave the task alone.
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
/// the others too; one that leaves a loser is told by the next point. Dropped
/// half-way, it gives what has failed to the failure hook.
#[track_caller]
pub fn race<Shape, B: Alike<Shape>>(
    branches: B,
) -> Together<B::BranchGroup, Race<B::Item, B::Value>> {
    let site = Location::caller();
    let (group, _) = branches.open(site);
    Together::new(group, Race::new(B::value), site)
}

/// The policy of [`race`].
pub struct Race<I, V, L = fn(V)> {
    value: fn(I) -> V,
    won: Option<Contained<V>>,
    /// The winner's, and those of the losers after it.
    failures: Owed,
    cut: Cut,
    late: Contained<L>,
}

impl<I, V> Race<I, V> {
    pub(crate) fn new(value: fn(I) -> V) -> Race<I, V> {
        Race {
            value,
            won: None,
            failures: Owed::default(),
            cut: Cut::default(),
            late: Contained::new(drop),
        }
    }
}

impl<I, V, L: FnMut(V)> Policy<I> for Race<I, V, L> {
    type Output = Result<V>;

    fn ended(&mut self, _: usize, how: Result<I>) -> Option<Lost> {
        let stopped = self.cut.is_interrupt();
        let open = self.won.is_none() && self.failures.is_empty() && !stopped;
        match how {
            Err(error) if error.is_cancelled() && !open => give_up(&error),
            Err(error) if error.is_cancelled() => {
                let decided = was_interrupted(&error);
                self.cut.take_in(error);
                return decided.then(Lost::to_interrupt);
            }
            Err(error) if !open && has_lost(&error) => {}
            Ok(item) if open => {
                self.won = Some(Contained::new((self.value)(item)));
                return Some(Lost::to_success());
            }
            Ok(item) => {
                contained(|| (*self.late)((self.value)(item)));
            }
            Err(error) if self.won.is_some() => report(error),
            Err(error) => {
                let lost = open.then(|| Lost::to_failure(&error));
                self.failures.take_in(error);
                return lost;
            }
        }
        None
    }

    fn finish(self) -> Result<V> {
        match self.won {
            Some(value) => Ok(value.into_inner()),
            None => Err((self.failures.decide())
                .or_else(|| self.cut.into_error())
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
            cut: race.cut,
            late: Contained::new(late),
        })
    }
}
