//! [`retry`]: tries something again after a failure, never after a cancellation.

use std::panic::Location;

use crate::base::drop_at_end::DropAtEnd;
use crate::base::error::Result;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::more::again::backoff::Backoff;
use crate::more::combine::branch::ValueOf;
use crate::points::point;
use crate::points::sleep::{Moment, Sleep};
use crate::record::header::Site;

/// Calls `f` until it returns a value, as often as `policy` says, with a pause after each
/// failure; returns the value or the failure of the last try.
///
/// A cancellation is never retried: if `f` returns the `Cancelled` of its job, so does this
/// call, and a failure that comes when the job has been cancelled is returned at once. A try
/// that timed out, or awaited a job that was stopped, counts as failed and is repeated. A
/// panic is not caught.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk::{Backoff, retry, timeout};
/// use std::time::Duration;
/// # async fn fetch(url: &str) -> kinfolk::Result<String> { Ok(url.into()) }
///
/// async fn fetch_in_three_tries(url: &str) -> kinfolk::Result<String> {
///     retry(Backoff::new().tries(3), async || {
///         timeout(Duration::from_secs(5), fetch(url)).await
///     })
///     .await
/// }
/// ```
///
/// A body that must not be tried again after some failures returns those as a value:
/// `Ok(Err(error))`.
///
/// # Cancellation
/// The pauses are *points*, and so are the points in `f`. If the call returns `Cancelled` in
/// a pause, no further try is made, and the failure before that pause is dropped.
#[track_caller]
pub fn retry<F, B>(policy: Backoff, f: F) -> impl Future<Output = Result<ValueOf<B>>>
where
    F: FnMut() -> B,
    B: Future<Output: IntoOutcome>,
{
    retry_at(policy, f, Site::of(Location::caller()))
}

async fn retry_at<F, B>(policy: Backoff, f: F, site: Site) -> Result<ValueOf<B>>
where
    F: FnMut() -> B,
    B: Future<Output: IntoOutcome>,
{
    let mut failures: u32 = 0;
    // Dropped after the value has been returned: a panic there would lose it.
    let mut f = Contained::new(f);
    loop {
        let error = match DropAtEnd::new(f()).await.into_result() {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        failures = failures.saturating_add(1);
        if error.is_cancelled() {
            return Err(error);
        }
        if point::is_cancelled() {
            point::pass_if_marked(site).await;
            return Err(error);
        }
        let Some(pause) = policy.pause_after(failures) else {
            return Err(error);
        };
        Sleep::new(Moment::After(pause), site.location()).await?;
    }
}
