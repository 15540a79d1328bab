//! Branches of different types, two to eight of them: tuples, and [`Arm`], which
//! says which branch it was.
//!
//! All are polled at every turn, under the task's own waker: for so few
//! branches this is cheaper than a waker for each, and allocates nothing.

use std::convert::Infallible;
use std::panic::Location;
use std::pin::Pin;
use std::task::Context;

use pin_project_lite::pin_project;

use crate::base::error::Result;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::more::combine::all::{Settled, Whole};
use crate::more::combine::any::Any;
use crate::more::combine::branch::{
    self, BranchGroup, InPlace, Lost, Pass, ValueOf, lose_in_place, poll_in_place,
};
use crate::more::combine::branches::{Alike, BranchPlace, Branches, Places, end_of, value_of};
use crate::more::combine::race::Race;
use crate::more::combine::together::Together;

/// Which arm of a [`select!`](crate::select) was first, and its value: `A` is the
/// first arm written. A `match` names as many as there are arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arm<
    A,
    B,
    C = Infallible,
    D = Infallible,
    E = Infallible,
    F = Infallible,
    G = Infallible,
    H = Infallible,
> {
    /// The first.
    A(A),
    /// The second.
    B(B),
    /// The third.
    C(C),
    /// The fourth.
    D(D),
    /// The fifth.
    E(E),
    /// The sixth.
    F(F),
    /// The seventh.
    G(G),
    /// The eighth.
    H(H),
}

/// The shape of tuples.
pub enum Tuples {}

/// Branches of different types, some of which may be disabled: those that are
/// none.
pub trait Guarded {
    /// The value of one branch.
    type Item;

    #[doc(hidden)]
    type BranchGroup: BranchGroup<Item = Self::Item>;

    #[doc(hidden)]
    fn open_enabled(self, site: &'static Location<'static>) -> Self::BranchGroup;
}

macro_rules! tuple {
    ($group:ident, $places:ident: $($t:ident $field:ident $index:tt),+) => {
        pin_project! {
            /// Branches of different types.
            pub struct $group<$($t: Future),+>
            where
                $($t::Output: IntoOutcome),+
            {
                $(#[pin] $field: InPlace<$t>,)+
            }
        }

        impl<$($t: Future<Output: IntoOutcome>),+> BranchGroup for $group<$($t),+> {
            type Item = Arm<$(ValueOf<$t>),+>;

            fn poll(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                pass: &mut Pass<'_, Self::Item>,
            ) {
                let this = self.project();
                $(poll_in_place(this.$field, $index, Arm::$t, cx, pass);)+
            }

            fn lose(self: Pin<&mut Self>, lost: &Lost, site: &'static Location<'static>) {
                let this = self.project();
                $(lose_in_place(this.$field, lost, site);)+
            }
        }

        impl<$($t: Future<Output: IntoOutcome>),+> Branches<Tuples> for ($($t,)+) {
            type Values = ($(ValueOf<$t>,)+);
            type Ends = ($(Result<ValueOf<$t>>,)+);
            type Item = Arm<$(ValueOf<$t>),+>;
            type BranchGroup = $group<$($t),+>;
            type All = Together<$group<$($t),+>, Whole<$places<$(ValueOf<$t>),+>>>;
            type AllSettled = Together<$group<$($t),+>, Settled<$places<$(ValueOf<$t>),+>>>;

            fn open(self, site: &'static Location<'static>) -> Self::BranchGroup {
                $group {
                    $($field: Some(branch::branch(self.$index, site)),)+
                }
            }

            fn into_all(self, site: &'static Location<'static>) -> Self::All {
                let places = $places { $($field: None,)+ };
                Together::new(self.open(site), Whole::new(places), site)
            }

            fn into_all_settled(self, site: &'static Location<'static>) -> Self::AllSettled {
                let places = $places { $($field: None,)+ };
                Together::new(self.open(site), Settled::new(places), site)
            }
        }

        impl<$($t: Future<Output: IntoOutcome>),+> Guarded for ($(Option<$t>,)+) {
            type Item = Arm<$(ValueOf<$t>),+>;
            type BranchGroup = $group<$($t),+>;

            fn open_enabled(self, site: &'static Location<'static>) -> Self::BranchGroup {
                $group {
                    $($field: self.$index.map(|future| branch::branch(future, site)),)+
                }
            }
        }

        impl<T, $($t: Future<Output: IntoOutcome<Value = T>>),+> Alike<Tuples> for ($($t,)+) {
            type Value = T;
            type Any = Together<$group<$($t),+>, Any<Arm<$(ValueOf<$t>),+>, T>>;
            type Race = Together<$group<$($t),+>, Race<Arm<$(ValueOf<$t>),+>, T>>;

            fn into_any(self, site: &'static Location<'static>) -> Self::Any {
                let value = |arm: Self::Item| match arm {
                    $(Arm::$t(value) => value,)+
                };
                Together::new(self.open(site), Any::new(value), site)
            }

            fn into_race(self, site: &'static Location<'static>) -> Self::Race {
                let value = |arm: Self::Item| match arm {
                    $(Arm::$t(value) => value,)+
                };
                Together::new(self.open(site), Race::new(value), site)
            }
        }

        /// A place for how each of them ended.
        pub struct $places<$($t),+> {
            $($field: BranchPlace<$t>,)+
        }

        impl<$($t),+> Places for $places<$($t),+> {
            type Item = Arm<$($t),+>;
            type Values = ($($t,)+);
            type Ends = ($(Result<$t>,)+);

            fn put(&mut self, index: usize, how: Result<Self::Item>) {
                match (index, how) {
                    $(
                        (_, Ok(Arm::$t(value))) => self.$field = Some(Contained::new(Ok(value))),
                        ($index, Err(error)) => self.$field = Some(Contained::new(Err(error))),
                    )+
                    (index, Err(_)) => unreachable!("there is no branch {index}"),
                }
            }

            fn ends(self) -> Self::Ends {
                ($(end_of(self.$field),)+)
            }

            fn values(self) -> Self::Values {
                ($(value_of(self.$field),)+)
            }
        }
    };
}

tuple!(Two, TwoPlaces: A a 0, B b 1);
tuple!(Three, ThreePlaces: A a 0, B b 1, C c 2);
tuple!(Four, FourPlaces: A a 0, B b 1, C c 2, D d 3);
tuple!(Five, FivePlaces: A a 0, B b 1, C c 2, D d 3, E e 4);
tuple!(Six, SixPlaces: A a 0, B b 1, C c 2, D d 3, E e 4, F f 5);
tuple!(Seven, SevenPlaces: A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6);
tuple!(Eight, EightPlaces: A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7);
