//! `select!`: whichever of different things comes first.

use std::panic::Location;

use crate::more::combine::branches::Branches;
use crate::more::combine::race::Race;
use crate::more::combine::together::Together;
use crate::more::combine::tuple::Tuples;

/// Whichever comes first of two to eight futures of different types: a future
/// that gives the [`Arm`](crate::Arm) that ended first. The losers are told and
/// waited for, not dropped.
///
/// It is a [`race`](crate::race()) in all else: an arm that fails first fails the
/// call, arms begin in the order written, and a value that a loser returns all the
/// same is dropped unless [`late`](crate::Together::late) takes it. The macro
/// only builds the future; awaiting it, and what is done with the arm, is plain
/// Rust.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk::{Arm, select, sleep};
/// # use std::time::Duration;
/// # async fn next_job() -> kinfolk::Result<String> { Ok(String::new()) }
/// # async fn reload() -> kinfolk::Result<u8> { Ok(0) }
/// # async fn work(job: &str) -> kinfolk::Result<()> { Ok(()) }
/// # async fn demo() -> kinfolk::Result<()> {
/// loop {
///     match select!(next_job(), reload(), sleep(Duration::from_secs(60))).await? {
///         Arm::A(job) => work(&job).await?,
///         Arm::B(settings) => println!("settings: {settings}"),
///         Arm::C(()) => break, // a minute without work
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// In a loop the arms are made anew each time. What they were to take is not
/// lost: a wait of ours that is told has taken nothing. A future that is kept and
/// lent to several rounds, `&mut future`, is told in the first it loses.
///
/// # Cancellation
/// *Not a point*; see [`race`](crate::race()).
#[macro_export]
macro_rules! select {
    ($a:expr, $($rest:expr),+ $(,)?) => {
        $crate::__select(($a, $($rest),+))
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "select! takes two to eight futures: `select!(next_job(), sleep(limit)).await?`"
        )
    };
}

/// What [`select!`](crate::select) builds.
#[doc(hidden)]
#[track_caller]
pub fn __select<B: Branches<Tuples>>(arms: B) -> Together<B::BranchGroup, Race<B::Item, B::Item>> {
    let site = Location::caller();
    let (group, _) = arms.open(site);
    Together::new(group, Race::new(std::convert::identity), site)
}
