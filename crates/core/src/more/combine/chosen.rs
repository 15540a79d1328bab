//! The policy of a `select!` with patterns: a race in which a value that its arm's pattern does
//! not match decides nothing.

use std::panic::Location;

use crate::base::error::{Error, Result};
use crate::base::unwind::discard;
use crate::engine::names;
use crate::more::combine::branch::Lost;
use crate::more::combine::race::Race;
use crate::more::combine::together::{Policy, Together};
use crate::more::combine::tuple::Guarded;

/// A race among the values that match.
pub struct Chosen<I> {
    race: Race<I, I>,
    /// Takes a reference: a value that does not match is dropped whole.
    matches: fn(&I) -> bool,
}

impl<I> Policy<I> for Chosen<I> {
    /// None if no arm is left.
    type Output = Result<Option<I>>;

    fn ended(&mut self, index: usize, how: Result<I>) -> Option<Lost> {
        match how {
            Ok(item) if self.race.is_open() && !(self.matches)(&item) => {
                discard(item);
                None
            }
            how => self.race.ended(index, how),
        }
    }

    fn finish(self) -> Result<Option<I>> {
        if self.race.has_nothing() {
            return Ok(None);
        }
        self.race.finish().map(Some)
    }
}

/// The type that [`select!`](crate::select) with handlers builds: arms that are none are
/// disabled.
#[doc(hidden)]
#[track_caller]
pub fn __select_where<G: Guarded>(
    arms: G,
    matches: fn(&G::Item) -> bool,
) -> Together<G::BranchGroup, Chosen<G::Item>> {
    let site = Location::caller();
    let chosen = Chosen {
        race: Race::new(std::convert::identity),
        matches,
    };
    Together::new(arms.open_enabled(site), chosen, site)
}

/// Every arm was disabled or did not match, and there is no `else`.
#[doc(hidden)]
#[cold]
#[track_caller]
pub fn __select_none() -> Error {
    let site = Location::caller();
    let error = Error::msg(format!(
        "no arm of the select! at {}:{} was left: each was disabled or did not match. \
         Add an `else` arm",
        site.file(),
        site.line(),
    ));
    match names::victim_here() {
        Some(here) => error.at(here, None),
        None => error,
    }
}
