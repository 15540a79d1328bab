//! The arguments of `all`, `any` and `race`: an array, a `Vec`, any iterator of
//! futures, or a tuple of futures.

use std::panic::Location;

use crate::base::error::Result;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::more::combine::branch::{BranchGroup, ValueOf};
use crate::more::combine::many::Many;

/// Futures to run side by side: an array, a `Vec` or any other iterator of them,
/// or a tuple of two to eight. There is nothing to implement.
///
/// `Shape` tells iterators from tuples; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a set of futures",
    note = "give an array, a `Vec`, an iterator of futures, or a tuple of two to eight futures",
    note = "each future must return an outcome: a `Result` or what is `kinfolk::Success`"
)]
pub trait Branches<Shape> {
    /// The value of one branch, or an [`Arm`](crate::Arm) of the tuple.
    type Item;

    #[doc(hidden)]
    type BranchGroup: BranchGroup<Item = Self::Item>;

    #[doc(hidden)]
    type Places: Places<Item = Self::Item>;

    #[doc(hidden)]
    fn open(self, site: &'static Location<'static>) -> (Self::BranchGroup, Self::Places);
}

/// [`Branches`] that all yield the same type.
#[diagnostic::on_unimplemented(
    message = "the branches of `{Self}` do not all yield the same type",
    note = "for branches of different types use `select!`"
)]
pub trait Alike<Shape>: Branches<Shape> {
    /// The common type.
    type Value;

    #[doc(hidden)]
    fn value(item: Self::Item) -> Self::Value;
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
    type Item = ValueOf<I::Item>;
    type BranchGroup = Many<I::Item>;
    type Places = Vec<BranchPlace<ValueOf<I::Item>>>;

    fn open(self, site: &'static Location<'static>) -> (Self::BranchGroup, Self::Places) {
        let mut group = Many::new(site);
        for future in self {
            group.push(future);
        }
        let places = std::iter::repeat_with(|| None).take(group.running());
        (group, places.collect())
    }
}

impl<I> Alike<Iterators> for I
where
    I: IntoIterator<Item: Future<Output: IntoOutcome>>,
{
    type Value = ValueOf<I::Item>;

    fn value(item: Self::Item) -> Self::Value {
        item
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
