//! `any`: the first success.

use std::panic::Location;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::unwind::{Contained, contained};
use crate::engine::names;
use crate::engine::owed::{PassedOver, report};
use crate::more::combine::branch::{Lost, was_interrupted};
use crate::more::combine::branches::Alike;
use crate::more::combine::taken_in::{Cut, give_up};
use crate::more::combine::together::{Policy, Together};

/// Runs all branches concurrently inside the calling task and returns the first value, a
/// `Result<T>` where `T` is the type of each branch's value. The other branches are cancelled
/// with `RaceLost` and awaited.
///
/// A branch that fails is ignored unless all fail: then the error is the first in time, and
/// the others are [suppressed](Error::suppressed). A call without branches is an error.
///
/// Branches begin in the order given; a branch that has not begun when another has won is
/// dropped without having been polled. A losing branch that awaits no cancellation point is
/// dropped. A value that a losing branch still returns is dropped, unless
/// [`late`](Together::late) receives it. Failures of losing branches are ignored; a branch
/// that panicked is reported to the failure hook. A [`Task`](crate::Task) that has lost is
/// awaited too; see [`race`](crate::race()).
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn fetch(mirror: &str) -> kinfolk::Result<String> { Ok(mirror.into()) }
/// # async fn demo() -> kinfolk::Result<()> {
/// let page = kinfolk::any(["eu", "us", "asia"].map(fetch)).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Cancellation
/// *Not a point.* If the enclosing job is cancelled, so is every branch; the call returns
/// when all branches have ended: a value if there is one, else `Cancelled`. A branch that
/// returns an interrupt stops the others too.
#[track_caller]
pub fn any<B, Shape>(branches: B) -> B::Any
where
    B: Alike<Shape>,
{
    branches.into_any(Location::caller())
}

/// The policy of [`any`].
pub struct Any<I, V, L = fn(V)> {
    value: fn(I) -> V,
    won: Option<Contained<V>>,
    failures: PassedOver,
    cut: Cut,
    late: Contained<L>,
}

impl<I, V> Any<I, V> {
    pub(crate) fn new(value: fn(I) -> V) -> Any<I, V> {
        Any {
            value,
            won: None,
            failures: PassedOver::default(),
            cut: Cut::default(),
            late: Contained::new(drop),
        }
    }
}

impl<I, V, L: FnMut(V)> Policy<I> for Any<I, V, L> {
    type Output = Result<V>;

    fn ended(&mut self, _: usize, how: Result<I>) -> Option<Lost> {
        let stopped = self.cut.is_interrupt();
        match how {
            Ok(item) if self.won.is_some() || stopped => {
                contained(|| (*self.late)((self.value)(item)));
            }
            Err(error) if self.won.is_some() || stopped => {
                give_up(&error);
                report_panic(error);
            }
            Ok(item) => {
                self.won = Some(Contained::new((self.value)(item)));
                return Some(Lost::to_success());
            }
            Err(error) if error.is_cancelled() => {
                let decided = was_interrupted(&error);
                self.cut.take_in(error);
                return decided.then(Lost::to_interrupt);
            }
            Err(error) => self.failures.take_in(error),
        }
        None
    }

    fn finish(self) -> Result<V> {
        match self.won {
            Some(value) => {
                if let Some(error) = self.failures.decide() {
                    let all = std::iter::once(&error).chain(error.suppressed());
                    all.cloned().for_each(report_panic);
                }
                Ok(value.into_inner())
            }
            None => Err((self.cut.into_error())
                .or_else(|| self.failures.decide())
                .unwrap_or_else(|| no_branches("any"))),
        }
    }
}

impl<C, I, V, L> Together<C, Any<I, V, L>> {
    /// Calls `late` with each value that a losing branch still returns, before the call
    /// returns. A panic in `late`, or in the destructor of what it captures, is contained.
    pub fn late<M: FnMut(V)>(self, late: M) -> Together<C, Any<I, V, M>> {
        self.decided_by(|any| Any {
            value: any.value,
            won: any.won,
            failures: any.failures,
            cut: any.cut,
            late: Contained::new(late),
        })
    }
}

/// A failure of a branch is ignored; a panic is a bug of the branch, and the failure hook
/// gets it.
fn report_panic(error: Error) {
    if error.kind() == ErrorKind::Panicked {
        report(error);
    }
}

/// The error of a call without branches.
pub(crate) fn no_branches(verb: &str) -> Error {
    let error = Error::msg(format!(
        "{verb} of no branches: there is nothing to wait for. Give it at least one, or check \
         first that there is one"
    ));
    match names::victim_here() {
        Some(here) => error.at(here, None),
        None => error,
    }
}
