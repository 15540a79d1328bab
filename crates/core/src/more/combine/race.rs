//! `race`: the first to end, of any sort. `select!` is a race too.

use std::panic::Location;

use crate::base::error::Result;
use crate::base::unwind::{Contained, contained};
use crate::engine::owed::{Owed, report};
use crate::more::combine::any::no_branches;
use crate::more::combine::branch::{Lost, has_lost, was_interrupted};
use crate::more::combine::branches::Alike;
use crate::more::combine::taken_in::{Cut, give_up};
use crate::more::combine::together::{Policy, Together};

/// Runs all branches concurrently inside the calling task and returns the result of the
/// first that ends, a value or a failure: a `Result<T>` where `T` is the type of each branch's
/// value. The other branches are cancelled with `RaceLost` and awaited. A call without branches
/// is an error.
///
/// Branches begin in the order given; a branch that has not begun when another has won is
/// dropped without having been polled. A losing branch that awaits no cancellation point is
/// dropped. A value that a losing branch still returns is dropped, unless
/// [`late`](Together::late) receives it. The error of a losing branch is
/// [suppressed](crate::Error::suppressed) if the winner failed too; otherwise it goes to the
/// failure hook.
///
/// A branch may be a [`Task`](crate::Task) itself. If it loses, the task is cancelled and
/// awaited, like any losing branch; a cancel, deadline or interrupt from outside ends that
/// wait at once. A losing branch that awaits a task from outside the race in another way
/// (`&mut task`, an async block) cancels the task too, but does not wait for it. To leave
/// the task alone, race its `join()`.
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
/// *Not a point.* If the enclosing job is cancelled, so is every branch, and a branch that
/// returns `Cancelled` does not win: the call returns when all branches have ended, with the
/// first other result, or `Cancelled` if there is none. A branch that returns an interrupt
/// stops the others too; an interrupt that a losing branch returns is reported by the next
/// point. If the call is dropped before it is over, failures of its branches go to the
/// failure hook.
#[track_caller]
pub fn race<B, Shape>(branches: B) -> B::Race
where
    B: Alike<Shape>,
{
    branches.into_race(Location::caller())
}

/// The policy of [`race`].
pub struct Race<I, V, L = fn(V)> {
    value: fn(I) -> V,
    won: Option<Contained<V>>,
    /// The failure of the winner, and those of the losers after it.
    failures: Owed,
    cut: Cut,
    late: Contained<L>,
    /// What a branch says to the others if it wins.
    words: Option<(usize, &'static str)>,
}

impl<I, V> Race<I, V> {
    pub(crate) fn new(value: fn(I) -> V) -> Race<I, V> {
        Race {
            value,
            won: None,
            failures: Owed::default(),
            cut: Cut::default(),
            late: Contained::new(drop),
            words: None,
        }
    }
}

impl<I, V, L> Race<I, V, L> {
    /// True if no branch has decided yet.
    pub(crate) fn is_open(&self) -> bool {
        self.won.is_none() && self.failures.is_empty() && !self.cut.is_interrupt()
    }

    /// True if no branch has ended yet, not even with a cancellation.
    pub(crate) fn has_nothing(&self) -> bool {
        self.is_open() && self.cut.is_none()
    }
}

impl<I, V, L: FnMut(V)> Policy<I> for Race<I, V, L> {
    type Output = Result<V>;

    fn ended(&mut self, index: usize, how: Result<I>) -> Option<Lost> {
        let open = self.is_open();
        let words = self.words.filter(|of| of.0 == index).map(|of| of.1);
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
                return Some(Lost::to_success().saying(words));
            }
            Ok(item) => {
                contained(|| (*self.late)((self.value)(item)));
            }
            Err(error) if self.won.is_some() => report(error),
            Err(error) => {
                let lost = open.then(|| Lost::to_failure(&error).saying(words));
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
    /// Calls `late` with each value that a losing branch still returns, before the call
    /// returns. A panic in `late`, or in the destructor of what it captures, is contained.
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
            words: race.words,
        })
    }

    /// Gives the losers a reason that says what has happened: if the branch at `index`, counted
    /// from 0, is the first that ends, `words` are the [text](crate::Reason::text) of the cancel
    /// of the others. A later call for another branch takes the place of an earlier one.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # async fn disconnected() -> kinfolk::Result<()> { Ok(()) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// let work = async {
    ///     let told = kinfolk::park().await.expect_err("it loses");
    ///     assert_eq!(told.reason().text(), Some("the client has hung up"));
    ///     Ok::<(), kinfolk::Error>(())
    /// };
    /// kinfolk::race((disconnected(), work))
    ///     .telling(0, "the client has hung up")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn telling(self, index: usize, words: &'static str) -> Self {
        self.decided_by(|race| Race {
            words: Some((index, words)),
            ..race
        })
    }
}
