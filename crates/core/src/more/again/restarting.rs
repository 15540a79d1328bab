//! [`restarting`]: a body that is started anew when it has failed, one for one.

use std::borrow::Cow;
use std::panic::Location;

use crate::base::drop_at_end::DropAtEnd;
use crate::base::error::Result;
use crate::base::kind::JobKind;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::engine::owed;
use crate::more::again::backoff::Backoff;
use crate::more::combine::branch::ValueOf;
use crate::points::point;
use crate::points::sleep::{Moment, Sleep, now};
use crate::record::header::Site;
use crate::surface::inline::{Inline, Just, Setup};

/// Makes the body of a child that restarts itself: runs `f`, and when that fails or panics,
/// reports the failure to the failure hook, pauses as `policy` says and runs `f` again.
/// Siblings are not affected (one for one).
///
/// Each run has a scope of its own, named `run`: jobs that it has spawned have ended before
/// the next run begins. A value ends the restarts, and so does a cancellation of the
/// child. A run whose own scope is cancelled alone has failed, as any scope that returns
/// `Stopped`, and is followed by another. When `policy` allows no further try, the last failure is returned, and
/// counts like any failure of the child: a supervisor leaves it to the child's handle or the
/// failure hook, another scope is cancelled by it. A run that has lasted ten seconds,
/// and as long as the longest pause, counts as a success: the count of tries and the pauses
/// begin again after it.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk::{Backoff, Scope, restarting};
/// # async fn send_mail() -> kinfolk::Result<()> { Ok(()) }
/// # async fn clean_cache() -> kinfolk::Result<()> { Ok(()) }
/// # async fn demo() -> kinfolk::Result<()> {
/// Scope::named("background")
///     .supervisor()
///     .run(async |s| {
///         let policy = Backoff::new().tries(5);
///         s.task("mail").launch(restarting(policy, async || send_mail().await));
///         s.task("cache").launch(restarting(policy, async || clean_cache().await));
///         Ok(())
///     })
///     .await
/// # }
/// ```
///
/// `f` is called for each run, and a run may not borrow from `f`: clone the values that a run
/// owns, `move || { let queue = queue.clone(); async move { … } }`.
///
/// # Cancellation
/// The pauses are *points*, and so are the points in `f`. A failure that comes when the job
/// has been cancelled is returned, not reported.
#[track_caller]
pub fn restarting<F, B>(policy: Backoff, f: F) -> impl Future<Output = Result<ValueOf<B>>>
where
    F: FnMut() -> B,
    B: Future<Output: IntoOutcome>,
{
    restarting_at(policy, f, Site::of(Location::caller()))
}

async fn restarting_at<F, B>(policy: Backoff, f: F, site: Site) -> Result<ValueOf<B>>
where
    F: FnMut() -> B,
    B: Future<Output: IntoOutcome>,
{
    let mut failures: u32 = 0;
    // Dropped after the value has been returned: a panic there would lose it.
    let mut f = Contained::new(f);
    loop {
        let began = now();
        let mut setup = Setup::new(JobKind::Scope, site.location());
        setup.more().options.name = Some(Cow::Borrowed("run"));
        let run = Inline::new(Just(async { DropAtEnd::new(f()).await }), setup);
        let error = match run.await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if error.is_cancelled() {
            return Err(error);
        }
        if point::is_cancelled() {
            point::pass_if_marked(site).await;
            return Err(error);
        }
        if policy.is_good_run(now().saturating_duration_since(began)) {
            failures = 0;
        }
        failures = failures.saturating_add(1);
        let Some(pause) = policy.pause_after(failures) else {
            return Err(error);
        };
        owed::report(error);
        Sleep::new(Moment::After(pause), site.location()).await?;
    }
}
