//! The arguments of `all`, `any` and `race`: an array, a `Vec`, any iterator of
//! futures, or a tuple of futures.

use std::convert::identity;
use std::panic::Location;

use crate::base::error::Result;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::more::combine::all::{Settled, Whole};
use crate::more::combine::any::Any;
use crate::more::combine::branch::{BranchGroup, ValueOf};
use crate::more::combine::many::Many;
use crate::more::combine::race::Race;
use crate::more::combine::together::Together;

/// What [`all`](crate::all()), [`all_settled`](crate::all_settled()), [`any`](crate::any()) and
/// [`race`](crate::race()) accept: an array, a `Vec` or any other iterator of futures, or a
/// tuple of two to eight futures. It is implemented for these and for nothing else.
///
/// The calls return these values, where `A` and `B` are the values of the futures `a` and `b`,
/// and `T` is the one type of all values:
///
/// | branches | `all` | `all_settled` | `any`, `race` |
/// |---|---|---|---|
/// | a tuple `(a, b)` | `Result<(A, B)>` | `(Result<A>, Result<B>)` | `Result<T>`, if `A` and `B` are `T` |
/// | an array `[a, b]` | `Result<Vec<T>>` | `Vec<Result<T>>` | `Result<T>` |
/// | a `Vec` or an iterator | `Result<Vec<T>>` | `Vec<Result<T>>` | `Result<T>` |
///
/// The value of a future of `Result<A, E>` is an `A`; a future whose output is no `Result`
/// has it as its value, if it is a [`Success`](crate::Success).
///
/// `Shape` tells tuples from iterators. It is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a set of futures",
    note = "give an array, a `Vec`, an iterator of futures, or a tuple of two to eight futures",
    note = "each future must return an outcome: a `Result` or what is `kinfolk::Success`"
)]
pub trait Branches<Shape> {
    /// The values of all branches, in their order: a tuple or a `Vec`.
    type Values;

    /// The results of all branches, in their order: a tuple or a `Vec`.
    type Ends;

    /// The future of [`all`](crate::all()): a [`Together`].
    type All: Future<Output = Result<Self::Values>>;

    /// The future of [`all_settled`](crate::all_settled()): a [`Together`].
    type AllSettled: Future<Output = Self::Ends>;

    #[doc(hidden)]
    type Item;

    #[doc(hidden)]
    type BranchGroup: BranchGroup<Item = Self::Item>;

    #[doc(hidden)]
    fn open(self, site: &'static Location<'static>) -> Self::BranchGroup;

    #[doc(hidden)]
    fn into_all(self, site: &'static Location<'static>) -> Self::All;

    #[doc(hidden)]
    fn into_all_settled(self, site: &'static Location<'static>) -> Self::AllSettled;
}

/// [`Branches`] whose values have one type: what [`any`](crate::any()) and
/// [`race`](crate::race()) accept. Implemented for every iterator of futures, and for tuples of
/// futures that agree.
#[diagnostic::on_unimplemented(
    message = "the branches of `{Self}` do not all yield the same type",
    note = "for branches of different types use `select!`"
)]
pub trait Alike<Shape>: Branches<Shape> {
    /// The common type.
    type Value;

    /// The future of [`any`](crate::any()): a [`Together`], with its method
    /// [`late`](Together::late).
    type Any: Future<Output = Result<Self::Value>>;

    /// The future of [`race`](crate::race()): a [`Together`], with its method
    /// [`late`](Together::late).
    type Race: Future<Output = Result<Self::Value>>;

    #[doc(hidden)]
    fn into_any(self, site: &'static Location<'static>) -> Self::Any;

    #[doc(hidden)]
    fn into_race(self, site: &'static Location<'static>) -> Self::Race;
}

/// A place for how each branch ended.
pub trait Places {
    /// The value of one branch.
    type Item;
    /// All the values.
    type Values;
    /// All the ends.
    type Ends;

    fn put(&mut self, index: usize, how: Result<Self::Item>);

    /// Every branch has put its end.
    fn ends(self) -> Self::Ends;

    /// Every branch has put a value.
    fn values(self) -> Self::Values;
}

/// The shape of iterators.
pub enum Iterators {}

impl<I> Branches<Iterators> for I
where
    I: IntoIterator<Item: Future<Output: IntoOutcome>>,
{
    type Values = Vec<ValueOf<I::Item>>;
    type Ends = Vec<Result<ValueOf<I::Item>>>;
    type Item = ValueOf<I::Item>;
    type BranchGroup = Many<I::Item>;
    type All = Together<Many<I::Item>, Whole<Vec<BranchPlace<ValueOf<I::Item>>>>>;
    type AllSettled = Together<Many<I::Item>, Settled<Vec<BranchPlace<ValueOf<I::Item>>>>>;

    fn open(self, site: &'static Location<'static>) -> Self::BranchGroup {
        let mut group = Many::new(site);
        for future in self {
            group.push(future);
        }
        group
    }

    fn into_all(self, site: &'static Location<'static>) -> Self::All {
        let group = self.open(site);
        let places = places_for(&group);
        Together::new(group, Whole::new(places), site)
    }

    fn into_all_settled(self, site: &'static Location<'static>) -> Self::AllSettled {
        let group = self.open(site);
        let places = places_for(&group);
        Together::new(group, Settled::new(places), site)
    }
}

/// A place for each branch.
fn places_for<F: Future<Output: IntoOutcome>>(group: &Many<F>) -> Vec<BranchPlace<ValueOf<F>>> {
    let places = std::iter::repeat_with(|| None).take(group.running());
    places.collect()
}

impl<I> Alike<Iterators> for I
where
    I: IntoIterator<Item: Future<Output: IntoOutcome>>,
{
    type Value = ValueOf<I::Item>;
    type Any = Together<Many<I::Item>, Any<ValueOf<I::Item>, ValueOf<I::Item>>>;
    type Race = Together<Many<I::Item>, Race<ValueOf<I::Item>, ValueOf<I::Item>>>;

    fn into_any(self, site: &'static Location<'static>) -> Self::Any {
        Together::new(self.open(site), Any::new(identity), site)
    }

    fn into_race(self, site: &'static Location<'static>) -> Self::Race {
        Together::new(self.open(site), Race::new(identity), site)
    }
}

/// How one branch ended; `None` before that. An end that is never taken is dropped,
/// contained by itself.
pub type BranchPlace<T> = Option<Contained<Result<T>>>;

impl<T> Places for Vec<BranchPlace<T>> {
    type Item = T;
    type Values = Vec<T>;
    type Ends = Vec<Result<T>>;

    fn put(&mut self, index: usize, how: Result<T>) {
        self[index] = Some(Contained::new(how));
    }

    fn ends(self) -> Vec<Result<T>> {
        self.into_iter().map(end_of).collect()
    }

    fn values(self) -> Vec<T> {
        self.into_iter().map(value_of).collect()
    }
}

/// How a branch ended, once all have.
pub(crate) fn end_of<T>(place: BranchPlace<T>) -> Result<T> {
    match place {
        Some(end) => end.into_inner(),
        None => unreachable!("every branch has ended"),
    }
}

/// The value of a branch, once none has failed.
pub(crate) fn value_of<T>(place: BranchPlace<T>) -> T {
    match place.map(Contained::into_inner) {
        Some(Ok(value)) => value,
        _ => unreachable!("every branch has ended with a value"),
    }
}
