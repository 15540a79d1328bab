//! `select!`: the first to end of several futures of different types.

use std::panic::Location;

use crate::more::combine::branches::Branches;
use crate::more::combine::race::Race;
use crate::more::combine::together::Together;
use crate::more::combine::tuple::Tuples;

/// Runs two to eight futures of different types concurrently inside the calling task, and
/// returns the [`Arm`](crate::Arm) that ended first. The other arms are cancelled and awaited,
/// not dropped.
///
/// Apart from the types it is a [`race`](crate::race()): an arm that fails first fails the call,
/// arms begin in the order written, and a value that a losing arm still returns is dropped unless
/// [`late`](crate::Together::late) receives it. The macro only builds the future: the program
/// awaits it and matches on the arm.
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
/// In a loop the arms are made anew in each round. Nothing is lost by that: a cancelled wait of
/// this library has taken nothing. A future that several rounds borrow, `&mut future`, is
/// cancelled in the first round that it loses.
///
/// # With patterns, guards and handlers
/// `pattern = future => handler` runs a handler with the value of the arm that ended first. The
/// whole is an expression: `Ok` of the handler's value, or the error of a
/// [`race`](crate::race()), which `?` passes on. It awaits by itself; handlers run in the body
/// around it, so that they may await, `break` and `return`.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk::{select, sleep};
/// # use std::time::Duration;
/// # async fn next_line() -> kinfolk::Result<Option<String>> { Ok(None) }
/// # async fn next_job() -> kinfolk::Result<String> { Ok(String::new()) }
/// # async fn work(job: &str) -> kinfolk::Result<()> { Ok(()) }
/// # async fn demo() -> kinfolk::Result<()> {
/// let mut free = 3;
/// loop {
///     select! {
///         Some(line) = next_line() => println!("{line}"),
///         job = next_job(), if free > 0 => {
///             free -= 1;
///             work(&job).await?;
///         }
///         () = sleep(Duration::from_secs(60)) => break, // a minute without anything
///         else => break, // the input has ended, and no place is free
///     }?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// - A guard, `, if condition`, is evaluated first: if it is false, the future is not created.
/// - A value that its pattern does not match is dropped, and the other arms go on.
/// - A pattern is matched by reference first, and then by value. So `mut x = …` and
///   `Some(mut x) = …` work, but a `mut` or `ref` deeper inside, as in `Some((mut x, y)) = …`,
///   does not compile: the compiler says that a binding modifier may not be written there.
///   Bind without it, and write `let mut x = x;` in the handler.
/// - If no arm is left, `else` is the value; without it that is an error.
/// - An arm that fails first fails the whole, whatever its pattern.
///
/// # Cancellation
/// *Not a point*; see [`race`](crate::race()).
#[macro_export]
macro_rules! select {
    ($($tokens:tt)*) => {
        $crate::__select_sort!([$($tokens)*] $($tokens)*)
    };
}

/// Looks for the first `=>`: with it there are handlers, without it only futures.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_sort {
    ([$($all:tt)*] => $($rest:tt)*) => {
        $crate::__select_handlers!({A B C D E F G H} [] $($all)*)
    };
    ([$($all:tt)*] $a:tt => $($rest:tt)*) => {
        $crate::__select_handlers!({A B C D E F G H} [] $($all)*)
    };
    ([$($all:tt)*] $a:tt $b:tt => $($rest:tt)*) => {
        $crate::__select_handlers!({A B C D E F G H} [] $($all)*)
    };
    ([$($all:tt)*] $a:tt $b:tt $c:tt => $($rest:tt)*) => {
        $crate::__select_handlers!({A B C D E F G H} [] $($all)*)
    };
    ([$($all:tt)*] $a:tt $b:tt $c:tt $d:tt $($rest:tt)*) => {
        $crate::__select_sort!([$($all)*] $($rest)*)
    };
    ([$($all:tt)*] $($rest:tt)*) => {
        $crate::__select_arms!($($all)*)
    };
}

/// Futures alone: builds the future of a race.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_arms {
    ($a:expr, $($rest:expr),+ $(,)?) => {
        $crate::__select(($a, $($rest),+))
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "select! takes two to eight futures: `select!(next_job(), sleep(limit)).await?`, \
             or arms with handlers: `select! { job = next_job() => work(job), () = sleep(limit) => {} }?`"
        )
    };
}

/// Takes one arm after the other off the front and gives each the next name. The patterns
/// are used twice: by reference, to see if a value decides, and to take it apart.
///
/// Handlers have to stand in the caller's own body, where they may `break`; so this macro
/// awaits, which no other macro does.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_handlers {
    ({$($free:ident)*} $done:tt else => $else:expr $(,)?) => {
        $crate::__select_match!($done {::core::result::Result::Ok($else)})
    };
    ({$($free:ident)*} $done:tt) => {
        $crate::__select_match!($done {::core::result::Result::Err($crate::__select_none())})
    };
    // A pattern is needed twice. A pattern that binds with `mut` is matched without it first.
    ({$v:ident $($free:ident)*} $done:tt mut $x:ident = $($rest:tt)*) => {
        $crate::__select_handlers!({$v $($free)*} $done @as (_) (mut $x) $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt $n:ident (mut $x:ident) = $($rest:tt)*) => {
        $crate::__select_handlers!({$v $($free)*} $done @as ($n(_)) ($n(mut $x)) $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr, if $g:expr => $h:block, $($rest:tt)*) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) ($g) ({ $h })} $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr, if $g:expr => $h:block $($rest:tt)*) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) ($g) ({ $h })} $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr, if $g:expr => $h:expr, $($rest:tt)*) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) ($g) ($h)} $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr, if $g:expr => $h:expr) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) ($g) ($h)})
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr => $h:block, $($rest:tt)*) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) (true) ({ $h })} $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr => $h:block $($rest:tt)*) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) (true) ({ $h })} $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr => $h:expr, $($rest:tt)*) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) (true) ($h)} $($rest)*)
    };
    ({$v:ident $($free:ident)*} $done:tt @as $q:tt $p:tt $f:expr => $h:expr) => {
        $crate::__select_done!({$($free)*} $done {$v $q $p ($f) (true) ($h)})
    };
    ({$v:ident $($free:ident)*} $done:tt $p:pat = $($rest:tt)*) => {
        $crate::__select_handlers!({$v $($free)*} $done @as ($p) ($p) $($rest)*)
    };
    ($free:tt $done:tt $($other:tt)*) => {
        ::core::compile_error!(
            "select! with handlers takes two to eight arms, each `pattern = future => handler` or \
             `pattern = future, if condition => handler`, and `else => value` as the last"
        )
    };
}

/// Adds one finished arm.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_done {
    ($free:tt [$($done:tt)*] $arm:tt $($rest:tt)*) => {
        $crate::__select_handlers!($free [$($done)* $arm] $($rest)*)
    };
}

/// The race, and the match over its result.
#[doc(hidden)]
#[macro_export]
macro_rules! __select_match {
    ([$({$v:ident ($q:pat) ($p:pat) ($f:expr) ($g:expr) ($h:expr)})+] {$none:expr}) => {
        match $crate::__select_where(
            ($(if $g {
                ::core::option::Option::Some($f)
            } else {
                ::core::option::Option::None
            },)+),
            |arm| match arm {
                $(
                    #[allow(unused_variables)]
                    $crate::Arm::$v($q) => true,
                )+
                #[allow(unreachable_patterns)]
                _ => false,
            },
        )
        .await
        {
            ::core::result::Result::Ok(::core::option::Option::Some(arm)) => {
                #[allow(unreachable_code)]
                ::core::result::Result::Ok(match arm {
                    $($crate::Arm::$v($p) => $h,)+
                    #[allow(unreachable_patterns)]
                    _ => ::core::unreachable!("it was asked if it matches"),
                })
            }
            ::core::result::Result::Ok(::core::option::Option::None) => $none,
            ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
        }
    };
}

/// What [`select!`](crate::select) builds.
#[doc(hidden)]
#[track_caller]
pub fn __select<B: Branches<Tuples>>(arms: B) -> Together<B::BranchGroup, Race<B::Item, B::Item>> {
    let site = Location::caller();
    let group = arms.open(site);
    Together::new(group, Race::new(std::convert::identity), site)
}
