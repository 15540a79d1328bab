//! The truth tables of `docs/semantics.md`, one case per cell. First what a
//! wait does where; then which outcome wins, for scopes and for tasks. The
//! column "host gone" is in `tests/host_gone.rs`.

use std::fmt;
use std::time::Duration;

use kinfolk_core::{
    Cancelled, Error, ErrorKind, Job, JobState, Outcome, ReasonKind, Scope, cancel_current,
    checkpoint, cleanup, is_cancelled, launch, park, scope, shield, sleep, spawn, timeout,
    try_shield,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `body` in a task that has been cancelled and not been told yet.
async fn cancelled<B>(body: B) -> B::Output
where
    B: Future<Output: Send> + Send + 'static,
{
    let task = spawn(async move {
        assert!(cancel_current("enough"));
        Some(body.await)
    });
    match task.outcome().await.unwrap() {
        Outcome::Cancelled {
            reason,
            late: Some(Some(value)),
        } => {
            assert_eq!(reason.kind(), ReasonKind::Asked);
            value
        }
        other => panic!("{:?}", other.error()),
    }
}

/// Waits to be told, cleans up for `time`, and returns the cancellation.
async fn stop_within(time: Duration) -> Result<(), Error> {
    let told = park().await;
    cleanup(sleep(time)).await?;
    told?;
    Ok(())
}

/// As [`stop_within`], and returns a value all the same.
async fn seven_within(time: Duration) -> Result<u32, Error> {
    let told = park().await;
    assert!(told.is_err());
    cleanup(sleep(time)).await?;
    Ok(7)
}

async fn seven_after(time: Duration) -> Result<u32, Error> {
    sleep(time).await?;
    Ok(7)
}

// What a wait does where: a point.

/// A point in a job that is not cancelled goes on.
pub async fn semantics_point_not_cancelled(lab: Lab) {
    let before = lab.elapsed();
    checkpoint().await.unwrap();
    assert!(!is_cancelled());
    assert_eq!(lab.elapsed(), before);
    sleep(5 * MS).await.unwrap();
    assert_eq!(lab.elapsed() - before, 5 * MS);
}

/// A point in a cancelled job fails at entry, each time; one that is waited in
/// is woken and fails.
/// Also: cancel-3.
pub async fn semantics_point_cancelled(lab: Lab) {
    let before = lab.elapsed();
    let (first, second) = cancelled(async {
        assert!(is_cancelled());
        let first = checkpoint().await.unwrap_err();
        let second = sleep(Duration::ZERO).await.unwrap_err();
        (first, second)
    })
    .await;
    assert_eq!(first.reason().text(), Some("enough"));
    assert!(first.reason().same(second.reason()));

    let waiting = spawn(async { Some(sleep(HOUR).await) });
    lab.settle().await;
    assert!(waiting.cancel("enough"));
    let told = waiting.outcome().await.unwrap().into_value().flatten();
    assert_eq!(told.unwrap().unwrap_err().reason().text(), Some("enough"));
    assert_eq!(lab.elapsed(), before);
}

/// A point in a shield does not see the cancel; the first one after it does.
/// Also: shield-2.
pub async fn semantics_point_shielded(lab: Lab) {
    let before = lab.elapsed();
    let after = cancelled(async {
        let seen = shield(async {
            checkpoint().await?;
            sleep(5 * MS).await?;
            Ok::<_, Error>(is_cancelled())
        })
        .await;
        assert!(!seen.unwrap());
        checkpoint().await
    })
    .await;
    assert_eq!(after.unwrap_err().reason().text(), Some("enough"));
    assert_eq!(lab.elapsed() - before, 5 * MS);
}

/// A point in a scope whose deadline has passed fails with that reason, and
/// the next one outside does not.
pub async fn semantics_point_deadline_passed(lab: Lab) {
    let before = lab.elapsed();
    let answer = timeout(10 * MS, async {
        let first = sleep(HOUR).await.unwrap_err();
        assert_eq!(first.reason().kind(), ReasonKind::Deadline);
        let second = checkpoint().await.unwrap_err();
        assert!(first.reason().same(second.reason()));
        Err::<(), _>(first)
    })
    .await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed() - before, 10 * MS);
    checkpoint().await.unwrap();
}

// `task.await`.

/// Awaiting a task gives its value, its failure, or Stopped if it was
/// cancelled.
pub async fn semantics_await_not_cancelled(lab: Lab) {
    let before = lab.elapsed();
    Scope::build()
        .supervisor()
        .run(async |s| {
            let good = s.spawn(seven_after(5 * MS));
            let bad = s.spawn(async { Err::<(), _>(Oops("child")) });
            let gone = s.spawn(seven_within(Duration::ZERO));
            lab.settle().await;
            assert!(gone.cancel("enough"));
            assert_eq!(good.await?, 7);
            assert_eq!(words(&bad.await.unwrap_err()), "Failed(child)");
            assert_eq!(words(&gone.await.unwrap_err()), "Stopped");
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(lab.elapsed() - before, 5 * MS);
    assert_eq!(lab.take_failures().len(), 0);
}

/// A cancelled job that awaits a task: an ended one gives its value, one below
/// is cancelled and waited for, another is cancelled and left at once.
/// Also: handle-2.
pub async fn semantics_await_cancelled(lab: Lab) {
    let other = spawn(stop_within(50 * MS));
    let observer = other.job();
    let inner = lab.clone();
    let waiter = spawn(async move {
        let ended = spawn(async { 1 });
        let late = spawn(seven_within(20 * MS));
        let short = spawn(stop_within(20 * MS));
        inner.settle().await;
        assert!(ended.is_ended());
        let before = inner.elapsed();
        assert!(cancel_current("enough"));
        assert_eq!(ended.await.unwrap(), 1);
        assert_eq!(late.await.unwrap(), 7);
        assert_eq!(words(&short.await.unwrap_err()), "Cancelled");
        assert_eq!(inner.elapsed() - before, 20 * MS);
        assert_eq!(words(&other.await.unwrap_err()), "Cancelled");
        assert_eq!(inner.elapsed() - before, 20 * MS);
        Some(inner.elapsed())
    });
    let left = waiter.outcome().await.unwrap().into_value().flatten();
    assert!(observer.cancel_requested());
    assert!(observer.join().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - left.unwrap(), 50 * MS);
}

/// In a shield a task is awaited as if nothing had happened: one that was
/// spawned outside it has been told, and is Stopped.
pub async fn semantics_await_shielded(lab: Lab) {
    let before = lab.elapsed();
    let inner = lab.clone();
    let waiter = spawn(async move {
        let outside = spawn(seven_within(20 * MS));
        inner.settle().await;
        assert!(cancel_current("enough"));
        let values = shield(async {
            let inside = spawn(seven_after(5 * MS));
            assert_eq!(inside.await?, 7);
            Ok::<_, Error>(outside.await.unwrap_err().kind())
        })
        .await;
        assert_eq!(values.unwrap(), ErrorKind::Stopped);
    });
    let outcome = waiter.outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Cancelled { late: Some(()), .. }));
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// When the deadline passes, a task from outside the timeout is cancelled and
/// left at once; one spawned inside is waited for, and its late value counts.
pub async fn semantics_await_deadline_passed(lab: Lab) {
    let before = lab.elapsed();
    let outside = spawn(stop_within(50 * MS));
    let observer = outside.job();
    let answer = timeout(10 * MS, outside).await;
    assert_eq!(words(&answer.unwrap_err()), "TimedOut");
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert_eq!(observer.state(), JobState::Cancelling);
    assert!(observer.join().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 60 * MS);

    let before = lab.elapsed();
    let answer = timeout(10 * MS, async { spawn(seven_within(50 * MS)).await }).await;
    assert_eq!(answer.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 60 * MS);
}

// `join`.

/// Joining gives the outcome, whatever it is, and does not fail for it.
pub async fn semantics_join_not_cancelled(lab: Lab) {
    let before = lab.elapsed();
    Scope::build()
        .supervisor()
        .run(async |s| {
            let good = s.spawn(seven_after(5 * MS));
            let bad = s.spawn(async { Err::<(), _>(Oops("child")) });
            let gone = s.spawn(stop_within(Duration::ZERO));
            assert!(gone.cancel("enough"));
            assert!(good.join().await?.is_completed());
            assert!(bad.join().await?.is_failed());
            assert!(gone.join().await?.is_cancelled());
            checkpoint().await?;
            assert_eq!(words(&bad.await.unwrap_err()), "Failed(child)");
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(lab.elapsed() - before, 5 * MS);
}

/// Joining in a cancelled job fails at entry, even if the target has ended;
/// the target is left alone.
/// Also: handle-2, cancel-3.
pub async fn semantics_join_cancelled(lab: Lab) {
    let before = lab.elapsed();
    let ended = launch(async {});
    assert!(ended.join().await.unwrap().is_completed());
    let target = spawn(seven_after(20 * MS));
    let job = target.job();
    let told = cancelled(async move {
        let ended = ended.join().await.is_err();
        (ended, job.join().await.is_err())
    })
    .await;
    assert_eq!(told, (true, true));

    let job = target.job();
    let waiter = spawn(async move { Some(job.join().await.is_err()) });
    lab.settle().await;
    assert!(waiter.cancel("enough"));
    let told = waiter.outcome().await.unwrap().into_value().flatten();
    assert_eq!(told, Some(true));
    assert_eq!(lab.elapsed(), before);
    assert!(!target.job().cancel_requested());
    assert_eq!(target.await.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// Joining in a shield waits as if nothing had happened.
pub async fn semantics_join_shielded(lab: Lab) {
    let before = lab.elapsed();
    let target = spawn(seven_after(20 * MS));
    let job = target.job();
    let outcome = cancelled(shield(async move { job.join().await })).await;
    assert!(outcome.unwrap().is_completed());
    assert_eq!(lab.elapsed() - before, 20 * MS);
    assert_eq!(target.await.unwrap(), 7);
}

/// A join whose deadline passes gives up; the target goes on.
/// Also: handle-2.
pub async fn semantics_join_deadline_passed(lab: Lab) {
    let before = lab.elapsed();
    let target = spawn(seven_after(20 * MS));
    let answer = timeout(10 * MS, target.join()).await;
    assert_eq!(words(&answer.unwrap_err()), "TimedOut");
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert!(!target.job().cancel_requested());
    assert_eq!(target.await.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

// Scope exit.

/// A scope's exit waits for the children; without any it does not yield.
/// Also: tree-3, tree-7.
pub async fn semantics_exit_not_cancelled(lab: Lab) {
    let before = lab.elapsed();
    let answer = scope(async |s| {
        s.launch(sleep(20 * MS));
        Ok(7)
    })
    .await;
    assert_eq!(answer.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 20 * MS);

    let tally = Tally::new();
    let empty = tally.count(scope(async |_| Ok(7)));
    assert_eq!(empty.await.unwrap(), 7);
    assert_eq!(tally.polls(), 1);
}

/// A cancel during the exit goes to the children, and the wait goes on; the
/// value is kept unless a child was cut short. An empty scope neither waits
/// nor fails.
/// Also: tree-4, tree-7.
pub async fn semantics_exit_cancelled(lab: Lab) {
    let polls = cancelled(async {
        let tally = Tally::new();
        let empty = tally.count(scope(async |_| Ok(7)));
        assert_eq!(empty.await.unwrap(), 7);
        tally.polls()
    })
    .await;
    assert_eq!(polls, 1);

    let before = lab.elapsed();
    let short = spawn(async {
        let answer = scope(async |s| {
            s.launch(stop_within(20 * MS));
            Ok(7)
        });
        Some(answer.await)
    });
    let kept = spawn(async {
        let answer = scope(async |s| {
            s.launch(seven_within(20 * MS));
            Ok(7)
        });
        Some(answer.await)
    });
    lab.settle().await;
    assert!(short.cancel("enough"));
    assert!(kept.cancel("enough"));
    let short = short.outcome().await.unwrap().into_value().flatten();
    let kept = kept.outcome().await.unwrap().into_value().flatten();
    assert_eq!(words(&short.unwrap().unwrap_err()), "Cancelled");
    assert_eq!(kept.unwrap().unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// In a shield the children of a scope are not told, and its exit waits until
/// they are done.
pub async fn semantics_exit_shielded(lab: Lab) {
    let before = lab.elapsed();
    let log = Log::new();
    let words = log.clone();
    let answer = cancelled(shield(scope(async move |s| {
        s.launch(async move {
            sleep(20 * MS).await?;
            words.say("done");
            Ok::<_, Error>(())
        });
        Ok(7)
    })))
    .await;
    assert_eq!(answer.unwrap(), 7);
    assert_eq!(log.text(), "done");
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// A deadline that passes during the exit goes to the children, and the wait
/// goes on; the value is kept unless a child was cut short.
pub async fn semantics_exit_deadline_passed(lab: Lab) {
    let before = lab.elapsed();
    let answer = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            s.launch(stop_within(20 * MS));
            Ok(7)
        })
        .await;
    assert_eq!(words(&answer.unwrap_err()), "TimedOut");
    assert_eq!(lab.elapsed() - before, 30 * MS);

    let answer = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            s.launch(seven_within(20 * MS));
            Ok(7)
        })
        .await;
    assert_eq!(answer.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 60 * MS);
    checkpoint().await.unwrap();
}

// Shield.

/// A shield in a job that is not cancelled runs its future and no more: its
/// value, its error, no turn of its own.
pub async fn semantics_shield_not_cancelled(lab: Lab) {
    let before = lab.elapsed();
    let tally = Tally::new();
    let ready = tally.count(shield(async { 7 }));
    assert_eq!(ready.await.unwrap(), 7);
    assert_eq!(tally.polls(), 1);
    assert_eq!(shield(seven_after(5 * MS)).await.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 5 * MS);
    let error = shield(async { Err::<(), _>(Oops("body")) }).await;
    assert_eq!(words(&error.unwrap_err()), "Failed(body)");
    assert_eq!(try_shield(async { 7 }).await.unwrap(), 7);
    checkpoint().await.unwrap();
}

/// A shield in a cancelled job enters and keeps its value; `try_shield` fails
/// and never polls. Leaving is no point: the next point is.
/// Also: shield-1, shield-2.
pub async fn semantics_shield_cancelled(lab: Lab) {
    let before = lab.elapsed();
    let tally = Tally::new();
    let future = tally.count(async { 7 });
    let told = cancelled(async move {
        let mut values = Vec::new();
        for _ in 0..2 {
            values.push(shield(seven_after(5 * MS)).await.unwrap());
        }
        assert_eq!(values, [7, 7]);
        let refused = try_shield(future).await.unwrap_err();
        let next = checkpoint().await.unwrap_err();
        refused.reason().same(next.reason())
    })
    .await;
    assert!(told);
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// A shield in a shield: leaving the inner one keeps the protection of the
/// outer one, and `try_shield` enters.
/// Also: shield-1.
pub async fn semantics_shield_shielded(_lab: Lab) {
    let after = cancelled(async {
        let inside = shield(async {
            assert_eq!(shield(seven_after(5 * MS)).await?, 7);
            checkpoint().await?;
            assert_eq!(try_shield(seven_after(5 * MS)).await??, 7);
            checkpoint().await?;
            Ok::<_, Error>(7)
        })
        .await;
        assert_eq!(inside.unwrap(), 7);
        checkpoint().await
    })
    .await;
    assert_eq!(after.unwrap_err().reason().text(), Some("enough"));
}

/// A deadline from outside does not enter a shield, opened before it or after
/// it; the timeout waits for it, and is told at the first point after it.
/// Also: shield-2.
pub async fn semantics_shield_deadline_passed(lab: Lab) {
    let before = lab.elapsed();
    let kept = timeout(10 * MS, shield(seven_after(30 * MS))).await;
    assert_eq!(kept.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 30 * MS);

    let told = timeout(10 * MS, async {
        shield(seven_after(30 * MS)).await?;
        checkpoint().await?;
        Ok::<_, Error>(7)
    })
    .await;
    assert_eq!(words(&told.unwrap_err()), "TimedOut");
    assert_eq!(lab.elapsed() - before, 60 * MS);

    let opened_after = timeout(10 * MS, async {
        park().await.unwrap_err();
        shield(seven_after(30 * MS)).await
    })
    .await;
    assert_eq!(opened_after.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 100 * MS);
}

// Timeout.

/// A timeout gives its future's value and leaves no timer, or TimedOut at its
/// deadline; a future that cannot hear is dropped there.
/// Also: cancel-7, time-4.
pub async fn semantics_timeout_not_cancelled(lab: Lab) {
    let before = lab.elapsed();
    let timers = lab.counters().timers_pending();
    assert_eq!(timeout(10 * MS, seven_after(5 * MS)).await.unwrap(), 7);
    assert_eq!(lab.counters().timers_pending(), timers);
    assert_eq!(lab.elapsed() - before, 5 * MS);

    let answer = timeout(10 * MS, sleep(HOUR)).await;
    assert_eq!(words(&answer.unwrap_err()), "TimedOut");
    assert_eq!(lab.elapsed() - before, 15 * MS);

    let tally = Tally::new();
    let answer = timeout(10 * MS, tally.count(Gate::new().wait())).await;
    assert_eq!(words(&answer.unwrap_err()), "TimedOut");
    assert_eq!(tally.drops(), 1);
    assert_eq!(lab.elapsed() - before, 25 * MS);
    checkpoint().await.unwrap();
}

/// A timeout in a cancelled job is entered, told at its first point, and says
/// Cancelled, not TimedOut; so does one that is cancelled while it waits.
pub async fn semantics_timeout_cancelled(lab: Lab) {
    let before = lab.elapsed();
    let log = Log::new();
    let inside = log.clone();
    let answer = cancelled(timeout(10 * MS, async move {
        inside.say("entered");
        checkpoint().await?;
        inside.say("past");
        Ok::<_, Error>(())
    }))
    .await;
    assert_eq!(words(&answer.unwrap_err()), "Cancelled");
    assert_eq!(log.text(), "entered");

    let waiting = spawn(async { Some(timeout(10 * MS, sleep(HOUR)).await) });
    lab.settle().await;
    assert!(waiting.cancel("enough"));
    let answer = waiting.outcome().await.unwrap().into_value().flatten();
    assert_eq!(words(&answer.unwrap().unwrap_err()), "Cancelled");
    assert_eq!(lab.elapsed(), before);
}

/// A timeout in a shield still fires: its deadline is its own.
pub async fn semantics_timeout_shielded(lab: Lab) {
    let before = lab.elapsed();
    let kind = cancelled(shield(async {
        let answer = timeout(10 * MS, sleep(HOUR)).await;
        checkpoint().await?;
        Ok::<_, Error>(answer.unwrap_err().kind())
    }))
    .await;
    assert_eq!(kind.unwrap(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// A timeout whose time is up runs to its first point; one inside another
/// whose deadline has passed says Cancelled, and the outer one TimedOut.
/// Also: time-2, time-3.
pub async fn semantics_timeout_deadline_passed(lab: Lab) {
    let before = lab.elapsed();
    let log = Log::new();
    let answer = timeout(Duration::ZERO, async {
        log.say("entered");
        checkpoint().await?;
        log.say("past");
        Ok::<_, Error>(())
    })
    .await;
    assert_eq!(words(&answer.unwrap_err()), "TimedOut");
    assert_eq!(log.text(), "entered");
    assert_eq!(lab.elapsed(), before);

    let outer = timeout(10 * MS, async {
        let equal = timeout(10 * MS, sleep(HOUR)).await.unwrap_err();
        let later = timeout(10 * MS, sleep(HOUR)).await.unwrap_err();
        log.say(words(&equal));
        log.say(words(&later));
        Err::<(), _>(later)
    })
    .await;
    assert_eq!(words(&outer.unwrap_err()), "TimedOut");
    assert_eq!(log.text(), "entered Cancelled Cancelled");
    assert_eq!(lab.elapsed() - before, 10 * MS);
    checkpoint().await.unwrap();
}

// Which outcome wins.

/// The error of these cases.
#[derive(Debug)]
struct Oops(&'static str);

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Oops {}

/// An error as the tables write it: `Failed(child) + [Panicked during Asked]`.
fn words(error: &Error) -> String {
    let mut text = match error.kind() {
        ErrorKind::Failed if error.downcast_ref::<Cancelled>().is_some() => "Failed(stale)".into(),
        ErrorKind::Failed => format!(
            "Failed({})",
            error.downcast_ref::<Oops>().map_or("?", |oops| oops.0)
        ),
        ErrorKind::Panicked => {
            assert!(error.to_string().contains("panicked: body"), "{error}");
            "Panicked".into()
        }
        kind => format!("{kind:?}"),
    };
    if let Some(during) = error.during() {
        text += &format!(" during {:?}", during.kind());
    }
    assert_eq!(error.suppressed_count(), error.suppressed().len());
    if !error.suppressed().is_empty() {
        let others: Vec<String> = error.suppressed().iter().map(words).collect();
        text += &format!(" + [{}]", others.join(", "));
    }
    text
}

/// The rows: what the body returns, once it has been told if it will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Value,
    /// A value, without waiting to be told.
    ValueAtOnce,
    Error,
    Cancelled,
    Panic,
}

impl Body {
    /// Waits for what is to come, and returns.
    async fn run(self, beside: Beside) -> Result<u32, Error> {
        let told = match (self, beside) {
            (Body::ValueAtOnce, _) | (_, Beside::Nothing) => stale().await,
            _ => park().await.unwrap_err(),
        };
        match self {
            Body::Value | Body::ValueAtOnce => Ok(7),
            Body::Error => Err(Error::from_boxed(Box::new(Oops("body")))),
            Body::Cancelled => Err(told.into()),
            // A panic without the words of the panic hook.
            Body::Panic => std::panic::resume_unwind(Box::new("body")),
        }
    }
}

/// A Cancelled of a scope that is over.
async fn stale() -> Cancelled {
    Scope::build()
        .cancelled("earlier")
        .run(async |_| Ok(checkpoint().await.unwrap_err()))
        .await
        .unwrap()
}

/// The columns: what happens beside the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    ChildFailed,
    ChildFailedAfterDeadline,
    OwnDeadline,
    EnclosingCancel,
    OwnCancel,
    CutByEnclosingCancel,
    CutByOwnDeadline,
}

impl Beside {
    fn own_deadline(self) -> bool {
        matches!(
            self,
            Beside::ChildFailedAfterDeadline | Beside::OwnDeadline | Beside::CutByOwnDeadline
        )
    }

    fn enclosing_cancel(self) -> bool {
        matches!(self, Beside::EnclosingCancel | Beside::CutByEnclosingCancel)
    }

    /// Starts the child that the column speaks of.
    fn start_child(self, s: &Scope) {
        match self {
            Beside::ChildFailed => {
                s.launch(async { Err::<(), _>(Oops("child")) });
            }
            Beside::ChildFailedAfterDeadline => {
                s.launch(async {
                    park().await.unwrap_err();
                    Err::<(), _>(Oops("child"))
                });
            }
            // One that is ended by the scope's own cancel counts for nothing.
            Beside::CutByEnclosingCancel | Beside::CutByOwnDeadline | Beside::OwnCancel => {
                s.launch(stop_within(Duration::ZERO));
            }
            Beside::Nothing | Beside::OwnDeadline | Beside::EnclosingCancel => {}
        }
    }
}

/// One cell: what a scope's call returns, as the table writes it. Also checked:
/// when; how its node ends (tree-2, whatever the call returned); and that the
/// caller's next point fails only if the caller was cancelled.
async fn check(lab: &Lab, body: Body, beside: Beside, answer: &str) {
    let before = lab.elapsed();
    let caller = spawn(async move {
        let mut opening = Scope::named("subject");
        if beside.own_deadline() {
            opening = opening.timeout(10 * MS);
        }
        let mut job = None;
        let answer = opening
            .run(async |s| {
                job = Some(s.job());
                beside.start_child(&s);
                if beside == Beside::OwnCancel {
                    // The child is to be cut short, not refused.
                    sleep(MS).await?;
                    assert!(s.cancel("enough"));
                }
                body.run(beside).await
            })
            .await;
        let next = checkpoint().await;
        Some((answer, job.map(|job: Job| job.state()), next.is_err()))
    });
    lab.settle().await;
    if beside.enclosing_cancel() {
        assert!(caller.cancel("enough"));
    }
    let late = beside.enclosing_cancel();
    let ended = caller.outcome().await.unwrap();
    assert_eq!(ended.is_cancelled(), late, "{:?}", ended.error());
    let (result, state, next_fails) = ended.into_value().flatten().unwrap();
    let said = match &result {
        Ok(value) => format!("Ok({value})"),
        Err(error) => words(error),
    };
    assert_eq!(said, answer, "{body:?}, {beside:?}: {result:?}");
    let node = match &result {
        Err(e) if matches!(e.kind(), ErrorKind::Failed | ErrorKind::Panicked) => JobState::Failed,
        _ if beside == Beside::Nothing => JobState::Completed,
        _ => JobState::Cancelled,
    };
    assert_eq!(state, Some(node), "{body:?}, {beside:?}");
    assert_eq!(next_fails, late, "{body:?}, {beside:?}");
    let took = match beside {
        Beside::OwnCancel => MS,
        _ if beside.own_deadline() => 10 * MS,
        _ => Duration::ZERO,
    };
    assert_eq!(lab.elapsed() - before, took, "{body:?}, {beside:?}");
    assert_eq!(lab.take_failures().len(), 0);
}

/// The body returns a value: the call returns it.
pub async fn semantics_value_nothing_else(lab: Lab) {
    check(&lab, Body::Value, Beside::Nothing, "Ok(7)").await;
}

/// The body returns a value after a child has failed: the child's failure.
/// Also: outcome-2.
pub async fn semantics_value_child_failed_before(lab: Lab) {
    check(&lab, Body::Value, Beside::ChildFailed, "Failed(child)").await;
    // Also if the body had returned before.
    let answer = "Failed(child)";
    check(&lab, Body::ValueAtOnce, Beside::ChildFailed, answer).await;
}

/// The body returns a value and a child fails after the scope's deadline has
/// fired: TimedOut, with the failure beside it.
/// Also: outcome-5.
pub async fn semantics_value_child_failed_after_own_deadline(lab: Lab) {
    let answer = "TimedOut + [Failed(child) during Parent]";
    check(&lab, Body::Value, Beside::ChildFailedAfterDeadline, answer).await;
    // Also if the body had returned before.
    check(
        &lab,
        Body::ValueAtOnce,
        Beside::ChildFailedAfterDeadline,
        answer,
    )
    .await;
}

/// The body returns a value after the scope's deadline has fired: the value is
/// kept.
pub async fn semantics_value_own_deadline_fired(lab: Lab) {
    check(&lab, Body::Value, Beside::OwnDeadline, "Ok(7)").await;
}

/// The body returns a value after the caller was cancelled: the value is kept.
pub async fn semantics_value_enclosing_cancel(lab: Lab) {
    check(&lab, Body::Value, Beside::EnclosingCancel, "Ok(7)").await;
}

/// The body returns a value after `s.cancel()`: the value is kept.
/// Also: outcome-6.
pub async fn semantics_value_own_cancel(lab: Lab) {
    check(&lab, Body::Value, Beside::OwnCancel, "Ok(7)").await;
}

/// The body returns a value and a child is cut short by the caller's cancel:
/// Cancelled.
/// Also: outcome-6.
pub async fn semantics_value_child_cut_short_by_enclosing_cancel(lab: Lab) {
    check(&lab, Body::Value, Beside::CutByEnclosingCancel, "Cancelled").await;
    // Also if the body had returned before.
    let answer = "Cancelled";
    check(
        &lab,
        Body::ValueAtOnce,
        Beside::CutByEnclosingCancel,
        answer,
    )
    .await;
}

/// The body returns a value and a child is cut short by the scope's deadline:
/// TimedOut.
/// Also: outcome-6.
pub async fn semantics_value_child_cut_short_by_own_deadline(lab: Lab) {
    check(&lab, Body::Value, Beside::CutByOwnDeadline, "TimedOut").await;
    // Also if the body had returned before.
    let answer = "TimedOut";
    check(&lab, Body::ValueAtOnce, Beside::CutByOwnDeadline, answer).await;
}

/// The body returns an error: the call fails with it.
pub async fn semantics_error_nothing_else(lab: Lab) {
    check(&lab, Body::Error, Beside::Nothing, "Failed(body)").await;
}

/// The body returns an error after a child has failed: the child's failure,
/// with the body's beside it.
/// Also: outcome-2.
pub async fn semantics_error_child_failed_before(lab: Lab) {
    let answer = "Failed(child) + [Failed(body) during ChildFailed]";
    check(&lab, Body::Error, Beside::ChildFailed, answer).await;
}

/// The body returns an error and a child fails after the scope's deadline has
/// fired: the body's own, with the child's beside it.
pub async fn semantics_error_child_failed_after_own_deadline(lab: Lab) {
    let answer = "Failed(body) during Deadline + [Failed(child) during Parent]";
    check(&lab, Body::Error, Beside::ChildFailedAfterDeadline, answer).await;
}

/// The body returns an error after the scope's deadline has fired: the error
/// wins.
/// Also: outcome-5.
pub async fn semantics_error_own_deadline_fired(lab: Lab) {
    let answer = "Failed(body) during Deadline";
    check(&lab, Body::Error, Beside::OwnDeadline, answer).await;
}

/// The body returns an error after the caller was cancelled: the error wins.
/// Also: outcome-5.
pub async fn semantics_error_enclosing_cancel(lab: Lab) {
    let answer = "Failed(body) during Parent";
    check(&lab, Body::Error, Beside::EnclosingCancel, answer).await;
}

/// The body returns an error after `s.cancel()`: the error wins.
pub async fn semantics_error_own_cancel(lab: Lab) {
    let answer = "Failed(body) during Asked";
    check(&lab, Body::Error, Beside::OwnCancel, answer).await;
}

/// The body returns an error and a child is cut short by the caller's cancel:
/// the error wins.
pub async fn semantics_error_child_cut_short_by_enclosing_cancel(lab: Lab) {
    let answer = "Failed(body) during Parent";
    check(&lab, Body::Error, Beside::CutByEnclosingCancel, answer).await;
}

/// The body returns an error and a child is cut short by the scope's deadline:
/// the error wins.
pub async fn semantics_error_child_cut_short_by_own_deadline(lab: Lab) {
    let answer = "Failed(body) during Deadline";
    check(&lab, Body::Error, Beside::CutByOwnDeadline, answer).await;
}

/// The body returns a Cancelled that has not reached it: a failure.
/// Also: outcome-8.
pub async fn semantics_cancelled_nothing_else(lab: Lab) {
    check(&lab, Body::Cancelled, Beside::Nothing, "Failed(stale)").await;
}

/// The body returns the Cancelled it was told after a child has failed: the
/// child's failure.
pub async fn semantics_cancelled_child_failed_before(lab: Lab) {
    check(&lab, Body::Cancelled, Beside::ChildFailed, "Failed(child)").await;
}

/// The body returns the Cancelled it was told and a child fails after the
/// scope's deadline has fired: TimedOut, with the failure beside it.
pub async fn semantics_cancelled_child_failed_after_own_deadline(lab: Lab) {
    let answer = "TimedOut + [Failed(child) during Parent]";
    check(
        &lab,
        Body::Cancelled,
        Beside::ChildFailedAfterDeadline,
        answer,
    )
    .await;
}

/// The body returns the Cancelled it was told after the scope's deadline has
/// fired: TimedOut.
pub async fn semantics_cancelled_own_deadline_fired(lab: Lab) {
    check(&lab, Body::Cancelled, Beside::OwnDeadline, "TimedOut").await;
}

/// The body returns the Cancelled it was told after the caller was cancelled:
/// Cancelled.
pub async fn semantics_cancelled_enclosing_cancel(lab: Lab) {
    check(&lab, Body::Cancelled, Beside::EnclosingCancel, "Cancelled").await;
}

/// The body returns the Cancelled it was told after `s.cancel()`: Stopped.
/// Also: outcome-7.
pub async fn semantics_cancelled_own_cancel(lab: Lab) {
    check(&lab, Body::Cancelled, Beside::OwnCancel, "Stopped").await;
}

/// The body returns the Cancelled it was told and a child is cut short by the
/// caller's cancel: Cancelled.
pub async fn semantics_cancelled_child_cut_short_by_enclosing_cancel(lab: Lab) {
    let answer = "Cancelled";
    check(&lab, Body::Cancelled, Beside::CutByEnclosingCancel, answer).await;
}

/// The body returns the Cancelled it was told and a child is cut short by the
/// scope's deadline: TimedOut.
pub async fn semantics_cancelled_child_cut_short_by_own_deadline(lab: Lab) {
    check(&lab, Body::Cancelled, Beside::CutByOwnDeadline, "TimedOut").await;
}

/// The body panics: the call says Panicked.
pub async fn semantics_panic_nothing_else(lab: Lab) {
    check(&lab, Body::Panic, Beside::Nothing, "Panicked").await;
}

/// The body panics after a child has failed: the child's failure, with the
/// body's beside it.
pub async fn semantics_panic_child_failed_before(lab: Lab) {
    let answer = "Failed(child) + [Panicked during ChildFailed]";
    check(&lab, Body::Panic, Beside::ChildFailed, answer).await;
}

/// The body panics and a child fails after the scope's deadline has fired: the
/// body's own, with the child's beside it.
pub async fn semantics_panic_child_failed_after_own_deadline(lab: Lab) {
    let answer = "Panicked during Deadline + [Failed(child) during Parent]";
    check(&lab, Body::Panic, Beside::ChildFailedAfterDeadline, answer).await;
}

/// The body panics after the scope's deadline has fired: the panic wins.
pub async fn semantics_panic_own_deadline_fired(lab: Lab) {
    let answer = "Panicked during Deadline";
    check(&lab, Body::Panic, Beside::OwnDeadline, answer).await;
}

/// The body panics after the caller was cancelled: the panic wins.
pub async fn semantics_panic_enclosing_cancel(lab: Lab) {
    let answer = "Panicked during Parent";
    check(&lab, Body::Panic, Beside::EnclosingCancel, answer).await;
}

/// The body panics after `s.cancel()`: the panic wins.
pub async fn semantics_panic_own_cancel(lab: Lab) {
    let answer = "Panicked during Asked";
    check(&lab, Body::Panic, Beside::OwnCancel, answer).await;
}

/// The body panics and a child is cut short by the caller's cancel: the panic
/// wins.
pub async fn semantics_panic_child_cut_short_by_enclosing_cancel(lab: Lab) {
    let answer = "Panicked during Parent";
    check(&lab, Body::Panic, Beside::CutByEnclosingCancel, answer).await;
}

/// The body panics and a child is cut short by the scope's deadline: the panic
/// wins.
pub async fn semantics_panic_child_cut_short_by_own_deadline(lab: Lab) {
    let answer = "Panicked during Deadline";
    check(&lab, Body::Panic, Beside::CutByOwnDeadline, answer).await;
}

// How a task ends.

/// One cell: how a task ends, as the table writes it.
async fn check_task(lab: &Lab, body: Body, beside: Beside, end: &str) {
    let inner = lab.clone();
    let outcome = Scope::build()
        .supervisor()
        .run(async move |s| {
            let parent = s.spawn(stop_within(Duration::ZERO));
            let task = Scope::of_job(&parent.job()).spawn(async move {
                let own = Scope::current().unwrap();
                beside.start_child(&own);
                body.run(beside).await
            });
            inner.settle().await;
            match beside {
                Beside::OwnCancel => assert!(task.cancel("enough")),
                _ if beside.enclosing_cancel() => assert!(parent.cancel("enough")),
                _ => {}
            }
            let outcome = task.outcome().await?;
            // A task's failure is its parent's; that of a cancelled one is not.
            parent.cancel("over");
            let parent = parent.outcome().await?;
            assert_eq!(parent.is_failed(), outcome.is_failed());
            Ok(outcome)
        })
        .await
        .unwrap();
    assert_eq!(ending(&outcome), end, "{body:?}, {beside:?}: {outcome:?}");
    assert_eq!(lab.take_failures().len(), 0);
}

fn ending(outcome: &Outcome<u32>) -> String {
    match outcome {
        Outcome::Completed(value) => format!("Completed({value})"),
        Outcome::Failed(error) => words(error),
        Outcome::Cancelled { reason, late } => match late {
            Some(value) => format!("Cancelled({:?}) late {value}", reason.kind()),
            None => format!("Cancelled({:?})", reason.kind()),
        },
    }
}

/// A task returns a value: Completed.
pub async fn semantics_task_value_nothing_else(lab: Lab) {
    check_task(&lab, Body::Value, Beside::Nothing, "Completed(7)").await;
}

/// A task returns a value after a child has failed: Failed with the child's.
pub async fn semantics_task_value_child_failed(lab: Lab) {
    check_task(&lab, Body::Value, Beside::ChildFailed, "Failed(child)").await;
    // Also if the body had returned before.
    let end = "Failed(child)";
    check_task(&lab, Body::ValueAtOnce, Beside::ChildFailed, end).await;
}

/// A task returns a value after `task.cancel()`: Cancelled, with the value
/// late.
/// Also: outcome-6.
pub async fn semantics_task_value_cancelled(lab: Lab) {
    let end = "Cancelled(Asked) late 7";
    check_task(&lab, Body::Value, Beside::OwnCancel, end).await;
    // Also if the body had returned before, and a child was cut short.
    let end = "Cancelled(Asked) late 7";
    check_task(&lab, Body::ValueAtOnce, Beside::OwnCancel, end).await;
}

/// A task returns a value after its parent was cancelled: Cancelled, with the
/// value late.
pub async fn semantics_task_value_enclosing_cancel(lab: Lab) {
    let end = "Cancelled(Parent) late 7";
    check_task(&lab, Body::Value, Beside::EnclosingCancel, end).await;
}

/// A task returns a value and a child is cut short with it: Cancelled, with the
/// value late.
pub async fn semantics_task_value_child_cut_short(lab: Lab) {
    let end = "Cancelled(Parent) late 7";
    check_task(&lab, Body::Value, Beside::CutByEnclosingCancel, end).await;
    // Also if the body had returned before.
    let end = "Cancelled(Parent) late 7";
    check_task(&lab, Body::ValueAtOnce, Beside::CutByEnclosingCancel, end).await;
}

/// A task returns an error: Failed with its own.
pub async fn semantics_task_error_nothing_else(lab: Lab) {
    check_task(&lab, Body::Error, Beside::Nothing, "Failed(body)").await;
}

/// A task returns an error after a child has failed: Failed with the child's,
/// its own beside it.
pub async fn semantics_task_error_child_failed(lab: Lab) {
    let end = "Failed(child) + [Failed(body) during ChildFailed]";
    check_task(&lab, Body::Error, Beside::ChildFailed, end).await;
}

/// A task returns an error after `task.cancel()`: Failed with its own.
pub async fn semantics_task_error_cancelled(lab: Lab) {
    let end = "Failed(body) during Asked";
    check_task(&lab, Body::Error, Beside::OwnCancel, end).await;
}

/// A task returns an error after its parent was cancelled: Failed with its own.
pub async fn semantics_task_error_enclosing_cancel(lab: Lab) {
    let end = "Failed(body) during Parent";
    check_task(&lab, Body::Error, Beside::EnclosingCancel, end).await;
}

/// A task returns an error and a child is cut short with it: Failed with its
/// own.
pub async fn semantics_task_error_child_cut_short(lab: Lab) {
    let end = "Failed(body) during Parent";
    check_task(&lab, Body::Error, Beside::CutByEnclosingCancel, end).await;
}

/// A task returns a Cancelled that has not reached it: Failed.
pub async fn semantics_task_cancelled_nothing_else(lab: Lab) {
    check_task(&lab, Body::Cancelled, Beside::Nothing, "Failed(stale)").await;
}

/// A task returns the Cancelled it was told after a child has failed: Failed
/// with the child's.
pub async fn semantics_task_cancelled_child_failed(lab: Lab) {
    check_task(&lab, Body::Cancelled, Beside::ChildFailed, "Failed(child)").await;
}

/// A task returns the Cancelled it was told after `task.cancel()`: Cancelled.
pub async fn semantics_task_cancelled_cancelled(lab: Lab) {
    check_task(&lab, Body::Cancelled, Beside::OwnCancel, "Cancelled(Asked)").await;
}

/// A task returns the Cancelled it was told after its parent was cancelled:
/// Cancelled.
pub async fn semantics_task_cancelled_enclosing_cancel(lab: Lab) {
    let end = "Cancelled(Parent)";
    check_task(&lab, Body::Cancelled, Beside::EnclosingCancel, end).await;
}

/// A task returns the Cancelled it was told and a child is cut short with it:
/// Cancelled.
pub async fn semantics_task_cancelled_child_cut_short(lab: Lab) {
    let end = "Cancelled(Parent)";
    check_task(&lab, Body::Cancelled, Beside::CutByEnclosingCancel, end).await;
}

/// A task panics: Failed with its own.
pub async fn semantics_task_panic_nothing_else(lab: Lab) {
    check_task(&lab, Body::Panic, Beside::Nothing, "Panicked").await;
}

/// A task panics after a child has failed: Failed with the child's, its own
/// beside it.
pub async fn semantics_task_panic_child_failed(lab: Lab) {
    let end = "Failed(child) + [Panicked during ChildFailed]";
    check_task(&lab, Body::Panic, Beside::ChildFailed, end).await;
}

/// A task panics after `task.cancel()`: Failed with its own.
pub async fn semantics_task_panic_cancelled(lab: Lab) {
    let end = "Panicked during Asked";
    check_task(&lab, Body::Panic, Beside::OwnCancel, end).await;
}

/// A task panics after its parent was cancelled: Failed with its own.
pub async fn semantics_task_panic_enclosing_cancel(lab: Lab) {
    let end = "Panicked during Parent";
    check_task(&lab, Body::Panic, Beside::EnclosingCancel, end).await;
}

/// A task panics and a child is cut short with it: Failed with its own.
pub async fn semantics_task_panic_child_cut_short(lab: Lab) {
    let end = "Panicked during Parent";
    check_task(&lab, Body::Panic, Beside::CutByEnclosingCancel, end).await;
}

/// A task that is cancelled, itself or with its parent, before its first turn
/// or in a foreign await: no job is told, and its future is dropped.
async fn check_untold(lab: &Lab, enclosing: bool, started: bool, end: &str) {
    let before = lab.elapsed();
    let parent = spawn(stop_within(Duration::ZERO));
    let tally = Tally::new();
    let gate = Gate::new();
    let below = Scope::of_job(&parent.job());
    // Lazy: no other thread starts it before we cancel it.
    let task = below.spawn_lazy(tally.count(async move {
        gate.wait().await;
        7
    }));
    if started {
        assert!(task.start());
    }
    lab.settle().await;
    let job = if enclosing { parent.job() } else { task.job() };
    assert!(job.cancel("enough"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(ending(&outcome), end);
    assert_eq!(tally.drops(), 1);
    parent.cancel("over");
    assert!(parent.outcome().await.unwrap().is_cancelled());
    assert_eq!(tally.polls() > 0, started);
    // The default of `Patience::unaware`.
    let took = if started { 1000 * MS } else { Duration::ZERO };
    assert_eq!(lab.elapsed() - before, took);
}

/// A task that was cancelled before its first turn: Cancelled, never polled.
/// Also: cancel-2.
pub async fn semantics_task_unpolled_cancelled(lab: Lab) {
    check_untold(&lab, false, false, "Cancelled(Asked)").await;
}

/// A task whose parent was cancelled before its first turn: Cancelled, never
/// polled.
pub async fn semantics_task_unpolled_enclosing_cancel(lab: Lab) {
    check_untold(&lab, true, false, "Cancelled(Parent)").await;
}

/// A task that was cancelled in a foreign await: dropped there after
/// `unaware`, Cancelled.
/// Also: cancel-6.
pub async fn semantics_task_deaf_cancelled(lab: Lab) {
    check_untold(&lab, false, true, "Cancelled(Asked)").await;
}

/// A task whose parent was cancelled while it was in a foreign await: dropped
/// there after `unaware`, Cancelled.
pub async fn semantics_task_deaf_enclosing_cancel(lab: Lab) {
    check_untold(&lab, true, true, "Cancelled(Parent)").await;
}

// Two cancellations of one scope: its deadline fires, a child takes 20 ms to
// stop, and meanwhile the caller is cancelled.

/// The answer of a scope with `child` whose deadline fires at 10 ms and whose
/// caller is cancelled at 15 ms.
async fn deadline_then_enclosing<C, T>(lab: &Lab, body: Body, child: C) -> String
where
    C: Future<Output = Result<T, Error>> + Send + 'static,
    T: Send + 'static,
{
    let before = lab.elapsed();
    let caller = spawn(async move {
        let answer = Scope::named("subject")
            .timeout(10 * MS)
            .run(async |s| {
                s.launch(child);
                body.run(Beside::OwnDeadline).await
            })
            .await;
        assert!(checkpoint().await.is_err());
        Some(answer)
    });
    sleep(15 * MS).await.unwrap();
    assert!(caller.cancel("enough"));
    let ended = caller.outcome().await.unwrap().into_value().flatten();
    assert_eq!(lab.elapsed() - before, 30 * MS);
    match ended.unwrap() {
        Ok(value) => format!("Ok({value})"),
        Err(error) => words(&error),
    }
}

async fn fail_within(time: Duration) -> Result<(), Error> {
    let told = park().await;
    assert!(told.is_err());
    cleanup(sleep(time)).await?;
    Err(Error::from_boxed(Box::new(Oops("child"))))
}

/// The body returns the Cancelled it was told after the scope's deadline has
/// fired, then the caller is cancelled: Cancelled, the enclosing one wins.
pub async fn semantics_cancelled_own_deadline_then_enclosing_cancel(lab: Lab) {
    let child = seven_within(20 * MS);
    let answer = deadline_then_enclosing(&lab, Body::Cancelled, child).await;
    assert_eq!(answer, "Cancelled");
}

/// The body returns an error after the scope's deadline has fired, then the
/// caller is cancelled: the error wins.
pub async fn semantics_error_own_deadline_then_enclosing_cancel(lab: Lab) {
    let child = seven_within(20 * MS);
    let answer = deadline_then_enclosing(&lab, Body::Error, child).await;
    assert_eq!(answer, "Failed(body) during Deadline");
}

/// The body returns a value after the scope's deadline has fired, then the
/// caller is cancelled, and no child is cut short: the value is kept.
pub async fn semantics_value_own_deadline_then_enclosing_cancel(lab: Lab) {
    let child = seven_within(20 * MS);
    let answer = deadline_then_enclosing(&lab, Body::Value, child).await;
    assert_eq!(answer, "Ok(7)");
}

/// The body returns a value, a child is cut short by the scope's deadline, and
/// the caller is cancelled before the exit: Cancelled, the enclosing one wins.
pub async fn semantics_value_child_cut_short_then_enclosing_cancel(lab: Lab) {
    let child = stop_within(20 * MS);
    let answer = deadline_then_enclosing(&lab, Body::Value, child).await;
    assert_eq!(answer, "Cancelled");
}

/// A child fails after the scope's deadline has fired, and the caller is
/// cancelled before that: there is no TimedOut to keep it beside, and failure
/// dominates cancellation.
pub async fn semantics_cancelled_child_failed_then_enclosing_cancel(lab: Lab) {
    let child = fail_within(20 * MS);
    let answer = deadline_then_enclosing(&lab, Body::Cancelled, child).await;
    assert_eq!(answer, "Failed(child) during Parent");
}
