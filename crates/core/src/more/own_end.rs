//! Whether a scope or timeout ended itself, by its own deadline or its own cancel.
//! Inside, [`Scope::deadline_passed`] answers this; outside, [`Inline::or_none`] and
//! [`Inline::with_deadline_passed`] do.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::base::error::{Error, Result};
use crate::base::own;
use crate::engine::ended_itself::{self, OverJob};
use crate::engine::owed;
use crate::surface::inline::{Finish, Inline, Open, Own};
use crate::surface::scope::Scope;

impl Scope {
    /// Returns true if the deadline of this scope itself has passed and cancelled it, for a
    /// body that has a value to return nevertheless. Looks at the clock, so that a busy body
    /// sees it before its next point. False if something else cancelled the scope first, or if
    /// an explicit [`cancel`](Scope::cancel) has taken the deadline's place since.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # use std::time::Duration;
    /// # async fn improve(plan: &mut u32) -> kinfolk::Result<()> { Ok(()) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// let in_time = kinfolk::Scope::named("plan").timeout(Duration::from_millis(50));
    /// let plan = in_time
    ///     .run(async |s| {
    ///         let mut plan = 0;
    ///         while !s.deadline_passed() {
    ///             if improve(&mut plan).await.is_err() {
    ///                 break;
    ///             }
    ///         }
    ///         Ok(plan) // the best so far
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline_passed(&self) -> bool {
        ended_itself::deadline_passed(self.header())
    }
}

impl<O: Open> Inline<O> {
    /// Makes the end that a scope or timeout has brought upon itself a value: `Ok(None)` if
    /// its *own* deadline or its *own* cancel ended it. Everything else is unchanged: a
    /// value is `Some`, a failure stays a failure, `Cancelled` goes on, and an inner timeout
    /// that escapes is still an error.
    ///
    /// A cancel is the scope's own if it was asked of that scope ([`Scope::cancel`], or
    /// [`Job::cancel`](crate::Job::cancel) of its job), by whichever job. A failure that stood
    /// in [`suppressed`](Error::suppressed) of the error goes to the failure hook.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # use std::time::Duration;
    /// # async fn ask_cache() -> kinfolk::Result<String> { Ok(String::new()) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// let cached = kinfolk::timeout(Duration::from_millis(5), ask_cache())
    ///     .or_none()
    ///     .await?;
    /// if let Some(page) = cached {
    ///     println!("{page}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// As the scope or timeout: *not a point*.
    pub fn or_none(self) -> OrNone<O> {
        OrNone { inner: self }
    }

    /// Returns the value together with whether the scope's own deadline passed before it
    /// came: `(value, true)` is a value that came although the time was up. An error is
    /// returned unchanged.
    ///
    /// For bodies that turn every error into a value, as the handlers of web servers do: the
    /// `TimedOut` is then inside the response, and the call looks as if it had been in time.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # use std::time::Duration;
    /// # struct Response;
    /// # impl kinfolk::Success for Response {}
    /// # impl Response { fn mark_slow(&mut self) {} }
    /// # async fn handle() -> Response { Response }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// let (mut response, too_late) = kinfolk::timeout(Duration::from_secs(1), handle())
    ///     .with_deadline_passed()
    ///     .await?;
    /// if too_late {
    ///     response.mark_slow();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// As the scope or timeout: *not a point*.
    pub fn with_deadline_passed(self) -> WithDeadlinePassed<O> {
        WithDeadlinePassed { inner: self }
    }
}

/// The failures beside an error that no caller gets go to the failure hook, in one report.
#[cold]
fn report_beside(error: &Error) {
    if let Some((first, rest)) = error.suppressed().split_first() {
        let more = error.suppressed_count() - error.suppressed().len();
        owed::report(first.joined_by(rest, more));
    }
}

/// How [`OrNone`] answers.
struct OwnEndIsNone;

impl<O: Open> Finish<O> for OwnEndIsNone {
    type Out = Result<Option<O::Value>, O::Error>;

    fn over(job: OverJob<'_>, answer: Result<O::Value>, own: Own<O>) -> Self::Out {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(error) if job.is_ended_by_itself(&error) => {
                report_beside(&error);
                Ok(None)
            }
            Err(error) => Err(own::give_back(error, own)),
        }
    }

    fn never(error: O::Error) -> Self::Out {
        Err(error)
    }
}

/// How [`WithDeadlinePassed`] answers.
struct BesideTheDeadline;

impl<O: Open> Finish<O> for BesideTheDeadline {
    type Out = Result<(O::Value, bool), O::Error>;

    fn over(job: OverJob<'_>, answer: Result<O::Value>, own: Own<O>) -> Self::Out {
        match answer {
            Ok(value) => Ok((value, job.by_its_deadline())),
            Err(error) => Err(own::give_back(error, own)),
        }
    }

    fn never(error: O::Error) -> Self::Out {
        Err(error)
    }
}

macro_rules! answers {
    ($(#[$doc:meta])* $name:ident by $finish:ty as $value:ty) => {
        pin_project! {
            $(#[$doc])*
            ///
            /// # Cancellation
            /// As the scope or timeout it was made of: *not a point*.
            #[must_use = "futures do nothing unless awaited"]
            pub struct $name<O: Open> {
                #[pin]
                inner: Inline<O>,
            }
        }

        impl<O: Open> Future for $name<O> {
            type Output = Result<$value, O::Error>;

            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                self.project().inner.poll_as::<$finish>(cx, |_, _| {})
            }
        }

        impl<O: Open> fmt::Debug for $name<O> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.inner).finish()
            }
        }
    };
}

answers! {
    /// The future of [`Inline::or_none`].
    OrNone by OwnEndIsNone as Option<O::Value>
}

answers! {
    /// The future of [`Inline::with_deadline_passed`].
    WithDeadlinePassed by BesideTheDeadline as (O::Value, bool)
}
