//! Counted, revocable requests: group G of the conformance cases, and what
//! asyncio promises of `cancel`, `uncancel` and `cancelling` (P).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Job, JobState, Outcome, ReasonKind, Scope, WaitKind, checkpoint, launch,
    park, scope, sleep, spawn, timeout,
};

use crate::interrupted::{me, parked, words};
use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// True if this is an interrupt on its way out.
fn is_interrupt(error: &Error) -> bool {
    error.kind() == ErrorKind::Cancelled
        && error
            .reason()
            .is_some_and(|reason| reason.kind() == ReasonKind::Interrupted)
}

/// A timeout made by hand: none if it fired and the request was its own.
async fn own_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, Error> {
    let me = me();
    let before = me.interrupts();
    let fired = Arc::new(AtomicBool::new(false));
    let (task, set) = (me.clone(), fired.clone());
    let alarm = spawn(async move {
        sleep(limit).await?;
        set.store(true, SeqCst);
        task.interrupt("too late");
        Ok::<_, Error>(())
    });
    let result = work.await;
    drop(alarm);
    if fired.load(SeqCst) && me.uninterrupt() <= before {
        return match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_interrupt(&error) => Ok(None),
            Err(error) => Err(error),
        };
    }
    result.map(Some)
}

// ------------------------------------------------------------------ group G

/// G01: asked, caught, taken back, asked again.
/// Also: request-1, P13.
pub async fn case_g01_asked_caught_taken_back_asked_again(lab: Lab) {
    let log = Log::new();
    let words_to = log.clone();
    let task = spawn(async move {
        let me = me();
        words_to.say(words(&sleep(HOUR).await.unwrap_err()));
        assert_eq!(me.interrupts(), 1);
        assert_eq!(me.uninterrupt(), 0);
        let told = sleep(HOUR).await.unwrap_err();
        words_to.say(words(&told));
        Err::<(), Error>(told.into())
    });
    let job = task.job();
    for text in ["first", "second"] {
        lab.settle().await;
        assert!(job.interrupt(text));
    }
    let outcome = task.outcome().await.unwrap();
    assert_eq!(log.text(), "first second");
    assert_eq!(outcome.reason().unwrap().text(), Some("second"));
    assert_eq!(lab.elapsed(), Duration::ZERO);
    // After the end nothing changes.
    assert_eq!((job.uninterrupt(), job.uninterrupt()), (1, 1));
    assert_eq!(job.interrupts(), 1);
}

/// G02: a timeout made by hand leaves no count behind, and the code after it
/// runs.
/// Also: request-3, P15, P17.
pub async fn case_g02_a_timeout_made_by_hand(lab: Lab) {
    let task = spawn(async {
        assert_eq!(
            own_timeout(MS, async { Ok(sleep(HOUR).await?) }).await?,
            None
        );
        assert_eq!(me().interrupts(), 0);
        let in_time = own_timeout(HOUR, async { Ok(sleep(MS).await.map(|()| 7)?) });
        assert_eq!(in_time.await?, Some(7));
        assert_eq!(me().interrupts(), 0);
        // It nests, in itself and with the timeout of the house.
        let inner = own_timeout(HOUR, own_timeout(MS, parked()));
        assert_eq!(inner.await?, Some(None));
        let outer = own_timeout(MS, timeout(HOUR, own_timeout(HOUR, parked())));
        assert_eq!(outer.await?, None);
        let house = timeout(MS, own_timeout(HOUR, parked())).await;
        assert_eq!(house.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(me().interrupts(), 0);
        checkpoint().await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(lab.elapsed(), 5 * MS);
}

/// G03: runnable but not yet polled, asked, and taken back: never heard.
/// Also: request-1, P14.
pub async fn case_g03_taken_back_before_it_was_polled(lab: Lab) {
    let gate = Gate::new();
    let wait = gate.clone();
    let task = spawn(async move {
        wait.wait().await;
        checkpoint().await?;
        Ok::<_, Error>(42)
    });
    lab.settle().await;
    gate.open();
    assert!(task.interrupt("never mind"));
    assert_eq!(task.uninterrupt(), 0);
    assert_eq!(task.await.unwrap(), 42);
}

/// G05: at 0 it stays at 0.
/// Also: P13.
pub async fn case_g05_taking_back_what_nobody_asked(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        assert_eq!((me.uninterrupt(), me.uninterrupt()), (0, 0));
        checkpoint().await.unwrap();
        // And is no credit.
        me.interrupt("one");
        assert_eq!(me.interrupts(), 1);
        checkpoint().await.unwrap_err();
    });
    task.await.unwrap();
    let task = spawn(parked());
    assert_eq!((task.uninterrupt(), task.interrupts()), (0, 0));
}

/// G06: asked twice and taken back once: a point still tells. Taken back
/// twice: it does not.
/// Also: request-1, P14.
pub async fn case_g06_asked_twice_taken_back_once(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        for back in [1, 2] {
            me.interrupt("one");
            me.interrupt("two");
            for n in 1..=back {
                assert_eq!(me.uninterrupt(), 2 - n);
            }
            match back {
                1 => assert_eq!(words(&checkpoint().await.unwrap_err()), "two"),
                _ => checkpoint().await.unwrap(),
            }
            while me.uninterrupt() > 0 {}
        }
    });
    task.await.unwrap();
}

/// G07: an own scope asks, an inner timeout comes and goes, somebody else asks:
/// the own scope does not absorb.
/// Also: request-3, P15, P16.
pub async fn case_g07_an_own_scope_does_not_absorb_what_is_not_its_own(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        let before = me.interrupts();
        me.interrupt("own");
        // The inner one finds one, asks, hears, takes its own back: claimed.
        let inner = me.interrupts();
        me.interrupt("inner");
        assert_eq!(words(&checkpoint().await.unwrap_err()), "inner");
        assert!(me.uninterrupt() <= inner);
        // Timeouts of the house change no count.
        let house = timeout(MS, parked()).await.unwrap_err();
        assert_eq!(house.kind(), ErrorKind::TimedOut);
        assert_eq!(me.interrupts(), 1);
        // Somebody else.
        let other = me.clone();
        spawn(async move { other.interrupt("external") }).await?;
        let told = checkpoint().await.unwrap_err();
        assert!(me.uninterrupt() > before, "not only its own");
        Err::<(), Error>(told.into())
    });
    let job = task.job();
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("external"));
    assert_eq!(job.interrupts(), 1);
}

/// G08: what a scope does to its children is not counted at its host.
pub async fn case_g08_cancelled_children_do_not_count(lab: Lab) {
    let task = spawn(async {
        let inner = scope(async |s| {
            let jobs: Vec<Job> = (0..3).map(|_| s.launch(parked())).collect();
            let told = park().await.unwrap_err();
            s.cancel("all of you");
            assert_eq!(me().interrupts(), 1);
            for job in jobs {
                assert!(job.cancel_requested());
            }
            Err::<(), Error>(told.into())
        });
        assert!(is_interrupt(&inner.await.unwrap_err()));
        me().interrupts()
    });
    lab.settle().await;
    assert!(task.interrupt("host"));
    assert_eq!(task.await.unwrap(), 1);
}

/// G10: a scope and its task, cancelled and asked together: after the exit it
/// goes on.
/// Also: request-3.
pub async fn case_g10_a_scope_and_its_task_together(lab: Lab) {
    let scopes = Arc::new(std::sync::Mutex::new(None::<Scope>));
    let seen = scopes.clone();
    let task = spawn(async move {
        let inner = scope(async |s| {
            *seen.lock().unwrap() = Some(s);
            parked().await
        });
        let told = inner.await.unwrap_err();
        assert!(is_interrupt(&told), "{told:?}");
        checkpoint().await.unwrap();
        Err::<(), _>(told)
    });
    lab.settle().await;
    let job = task.job();
    let inner = scopes.lock().unwrap().take().unwrap();
    assert!(inner.cancel("scope"));
    assert!(job.interrupt("task"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("task"));
    assert_eq!(job.interrupts(), 1);
}

/// G11: a body that replaces what it was told, because a child has failed,
/// with an error of its own: both are reported, nothing is counted.
/// Also: P11.
pub async fn case_g11_a_body_replaces_what_it_was_told(_lab: Lab) {
    let task = spawn(async {
        let failed = scope(async |s| {
            s.launch(async { Err::<(), _>(Error::msg("child")) });
            park().await.unwrap_err();
            Err::<(), _>(Error::msg("body"))
        });
        let error = failed.await.unwrap_err();
        assert_eq!(error.to_string(), "child (and 1 more)");
        assert_eq!(error.suppressed()[0].to_string(), "body");
        assert_eq!(me().interrupts(), 0);
        checkpoint().await.unwrap();
    });
    task.await.unwrap();
}

/// G15: a scope that failed and was handled leaves the count as it was.
pub async fn case_g15_a_handled_failure_leaves_the_count(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        for before in 0..2 {
            assert_eq!(me.interrupts(), before);
            let failed = scope(async |s| {
                s.launch(async { Err::<(), _>(Error::msg("child")) });
                parked().await
            });
            assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::Failed);
            assert_eq!(me.interrupts(), before);
            checkpoint().await.unwrap();
            me.interrupt("one more");
            checkpoint().await.unwrap_err();
        }
    });
    task.await.unwrap();
}

// ----------------------------------------------------------- the checklist, P

/// P1: what stands between two awaits runs in one turn, whatever is asked
/// meanwhile.
/// Also: request-1.
pub async fn src_p01_code_between_two_awaits_runs_in_one_turn(_lab: Lab) {
    let tally = Tally::new();
    let seen = tally.clone();
    let task = spawn(tally.count(async move {
        let polls = seen.polls();
        me().interrupt("in the middle");
        let first = seen.polls();
        me().interrupt("once more");
        assert_eq!((polls, first, seen.polls()), (1, 1, 1));
        // Told in the same turn, where it awaits.
        checkpoint().await.unwrap_err();
        assert_eq!(seen.polls(), 1);
        sleep(MS).await.unwrap();
        assert!(seen.polls() > 1);
    }));
    task.await.unwrap();
}

/// P2: from inside a task waits on nothing; outside code sees what it waits
/// on while it is suspended.
/// Also: see-1.
pub async fn src_p02_what_it_waits_on_is_seen_from_outside_only(lab: Lab) {
    let inside = lab.clone();
    let task = Scope::current().unwrap().task("seen").spawn(async move {
        let looks = || inside.snapshot().find("seen").unwrap().waits_on.is_none();
        assert!(looks());
        sleep(MS).await?;
        assert!(looks());
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let tree = lab.snapshot();
    let (kind, ..) = tree.find("seen").unwrap().waits_on.unwrap();
    assert_eq!(kind, WaitKind::Sleep);
    task.await.unwrap();
}

/// P3: asked while it waits: the wait is given up, the task is not yet
/// cancelled when the call returns.
/// Also: request-1.
pub async fn src_p03_asked_while_it_waits(lab: Lab) {
    let task = spawn(async { Ok::<_, Error>(sleep(HOUR).await?) });
    lab.settle().await;
    let job = task.job();
    assert!(job.interrupt("up"));
    assert_eq!(job.state(), JobState::Active);
    assert!(!job.cancel_requested());
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), Duration::ZERO);
    assert_eq!(lab.counters().timers_pending(), 0);
}

/// P4: asked while it runs, or before it has begun: kept for its next turn or
/// point.
/// Also: request-1.
pub async fn src_p04_asked_while_it_runs_or_before(_lab: Lab) {
    let running = spawn(async {
        me().interrupt("running");
        words(&checkpoint().await.unwrap_err()).to_owned()
    });
    assert_eq!(running.await.unwrap(), "running");
    let new = spawn(async { 7 });
    assert_eq!(new.job().state(), JobState::New);
    assert!(new.interrupt("new"));
    assert_eq!(new.job().state(), JobState::New);
    assert!(new.outcome().await.unwrap().is_cancelled());
}

/// P5: every call counts and says true; false once it is done.
/// Also: request-1.
pub async fn src_p05_every_call_counts(_lab: Lab) {
    let task = spawn(async {
        for n in 1..=5 {
            assert!(me().interrupt("again"));
            assert_eq!(me().interrupts(), n);
        }
        checkpoint().await.unwrap_err();
        assert!(me().interrupt("after it was heard"));
        checkpoint().await.unwrap_err();
    });
    let job = task.job();
    task.await.unwrap();
    assert!(!job.interrupt("done"));
    assert_eq!(job.interrupts(), 6);
}

/// P6: a task that asks itself and then awaits: what it awaits is given up
/// right away.
/// Also: request-1.
pub async fn src_p06_asking_oneself_then_awaiting(lab: Lab) {
    let set = lab.counters().timers_set;
    let task = spawn(async {
        me().interrupt("myself");
        Ok::<_, Error>(sleep(HOUR).await?)
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.counters().timers_set, set);
}

/// P7: a task that asks itself and returns: cancelled; the value is kept as
/// late, not thrown away.
pub async fn src_p07_asking_oneself_then_returning(_lab: Lab) {
    let task = spawn(async {
        me().interrupt("myself");
        7
    });
    let outcome = task.outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Cancelled { late: Some(7), .. }));
}

/// P8: asked before it began: the body never runs.
/// Also: request-2.
pub async fn src_p08_asked_before_it_began(_lab: Lab) {
    let tally = Tally::new();
    let task = spawn(tally.count(parked()));
    assert!(task.interrupt("never mind"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

/// P9: down a chain of awaits to the leaf, and back up level by level, however
/// long.
/// Also: request-2.
pub async fn src_p09_down_a_chain_and_back_up(lab: Lab) {
    type Body = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
    fn level(n: usize, log: Log) -> Body {
        Box::pin(async move {
            let result = match n {
                0 => parked().await,
                _ => spawn(level(n - 1, log.clone())).await,
            };
            assert!(is_interrupt(result.as_ref().unwrap_err()));
            assert_eq!(me().interrupts(), 1);
            log.say(n.to_string());
            result
        })
    }
    let log = Log::new();
    let task = spawn(level(9, log.clone()));
    lab.settle().await;
    assert!(task.interrupt("down"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "0 1 2 3 4 5 6 7 8 9");
}

/// P10: cancelled only if it leaves the body; one that catches it and returns
/// has completed.
/// Also: request-2.
pub async fn src_p10_cancelled_only_if_it_leaves_the_body(_lab: Lab) {
    for caught in [true, false] {
        let task = spawn(async move {
            me().interrupt("up");
            let told = checkpoint().await;
            assert!(!me().cancel_requested());
            if !caught {
                told?;
            }
            Ok::<_, Error>(7)
        });
        match task.outcome().await.unwrap() {
            Outcome::Completed(7) => assert!(caught),
            Outcome::Cancelled { late: None, .. } => assert!(!caught),
            other => panic!("{other:?}"),
        }
    }
}

/// P11: any other error after it means failed.
pub async fn src_p11_any_other_error_means_failed(_lab: Lab) {
    let outcome = Scope::build().supervisor().run(async |s| {
        let task = s.spawn(async {
            me().interrupt("up");
            checkpoint().await.unwrap_err();
            Err::<(), _>(Error::msg("something else"))
        });
        Ok(task.outcome().await?)
    });
    let outcome = outcome.await.unwrap();
    assert_eq!(outcome.error().unwrap().to_string(), "something else");
}

/// P12: the words travel with it, the most recent ones, down and back up.
pub async fn src_p12_the_words_travel_with_it(lab: Lab) {
    let task = spawn(async {
        let inner = scope(async |_| spawn(parked()).await);
        inner.await
    });
    lab.settle().await;
    assert!(task.interrupt("old"));
    let line = line!() + 1;
    assert!(task.interrupt("new"));
    let outcome = task.outcome().await.unwrap();
    let reason = outcome.reason().unwrap();
    let by = format!("{} {}", me().name(), me().id());
    assert_eq!(reason.text(), Some("new"));
    assert_eq!(
        (reason.site().file(), reason.site().line()),
        (file!(), line)
    );
    assert_eq!(
        reason.to_string(),
        format!("interrupted \"new\" by {by} at {}:{line}", file!())
    );
    // None at all is fine.
    let task = spawn(async {
        me().interrupt("");
        checkpoint().await.unwrap_err().reason().text().is_none()
    });
    assert!(task.await.unwrap());
}

/// P13: taking back lowers the count, never below 0, and says what is left.
pub async fn src_p13_taking_back_says_what_is_left(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        for _ in 0..3 {
            me.interrupt("up");
        }
        checkpoint().await.unwrap_err();
        for left in [2, 1, 0, 0] {
            assert_eq!(me.uninterrupt(), left);
            assert_eq!(me.interrupts(), left);
        }
    });
    task.await.unwrap();
}

/// P14: reaching 0 forgets what was not delivered; the next point goes on, and
/// the one after it, in every scope.
pub async fn src_p14_reaching_zero_forgets(lab: Lab) {
    let task = spawn(async {
        let me = me();
        me.interrupt("forget");
        assert_eq!(me.uninterrupt(), 0);
        sleep(MS).await?;
        timeout(HOUR, async {
            me.interrupt("forget");
            assert_eq!(me.uninterrupt(), 0);
            Ok::<_, Error>(sleep(MS).await?)
        })
        .await?;
        // In the waiting phase, from outside.
        Ok::<_, Error>(sleep(10 * MS).await?)
    });
    sleep(5 * MS).await.unwrap();
    task.interrupt("forget");
    if task.uninterrupt() == 0 {
        task.await.unwrap();
        assert_eq!(lab.elapsed(), 12 * MS);
    }
}

/// P15: on exit a timeout made by hand knows whose it was: its own is a
/// timeout, anybody else's goes on.
pub async fn src_p15_whose_it_was_is_known_on_exit(lab: Lab) {
    let task = spawn(async {
        let mine = own_timeout(MS, parked()).await;
        assert_eq!(mine.unwrap(), None);
        own_timeout(HOUR, parked()).await
    });
    sleep(2 * MS).await.unwrap();
    let job = task.job();
    assert!(job.interrupt("somebody else"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("somebody else"));
    assert_eq!(job.interrupts(), 1);
    assert_eq!(lab.elapsed(), 2 * MS);
}

/// P16: one that comes while an inner timeout is being handled is neither lost
/// nor taken for it.
pub async fn src_p16_one_that_comes_while_a_timeout_is_handled(_lab: Lab) {
    let task = spawn(async {
        let inner = timeout(MS, async {
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Deadline);
            me().interrupt("meanwhile");
            Err::<(), Error>(told.into())
        });
        let told = inner.await.unwrap_err();
        assert!(is_interrupt(&told), "{told:?}");
        let by_hand = own_timeout(MS, async {
            let told = park().await.unwrap_err();
            assert_eq!(words(&told), "too late");
            me().interrupt("meanwhile");
            Err::<(), Error>(told.into())
        });
        let told = by_hand.await.unwrap_err();
        assert!(is_interrupt(&told), "{told:?}");
        assert_eq!(words(&checkpoint().await.unwrap_err()), "meanwhile");
        assert_eq!(me().interrupts(), 2);
    });
    task.await.unwrap();
}

/// P17: a scope that took its own request back may swallow it altogether.
pub async fn src_p17_what_was_taken_back_may_be_swallowed(_lab: Lab) {
    let task = spawn(async {
        // As `move_on_after` does.
        let moved_on = own_timeout(MS, parked()).await?.is_none();
        assert!(moved_on && me().interrupts() == 0);
        Ok::<_, Error>(checkpoint().await?)
    });
    assert!(task.outcome().await.unwrap().is_completed());
}

/// P18: a timeout whose deadline has passed asks nothing of the task at its
/// entry: the body runs to its first point.
pub async fn src_p18_a_past_deadline_is_told_at_a_point(_lab: Lab) {
    let task = spawn(async {
        let log = Log::new();
        let late = timeout(Duration::ZERO, async {
            log.say("begun");
            parked().await
        });
        assert_eq!(late.await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!((log.text().as_str(), me().interrupts()), ("begun", 0));
        checkpoint().await.unwrap();
    });
    task.await.unwrap();
}

/// P19: value, error, cancellation: each is what the waiter resumes with.
pub async fn src_p19_an_outcome_is_what_the_waiter_resumes_with(lab: Lab) {
    let results = Scope::build().supervisor().run(async |s| {
        let value = s.spawn(async { 7 }).await;
        assert_eq!(value.unwrap(), 7);
        let failed = s.spawn(async { Err::<(), _>(Error::msg("no")) }).await;
        assert_eq!(failed.unwrap_err().to_string(), "no");
        let stopped = s.spawn(parked());
        stopped.cancel("stop");
        assert_eq!(stopped.await.unwrap_err().kind(), ErrorKind::Stopped);
        // One that was asked, not through its waiter: that was not asked.
        let asked = s.spawn(parked());
        lab.settle().await;
        asked.interrupt("stop");
        let error = asked.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert_eq!(error.reason().unwrap().kind(), ReasonKind::Interrupted);
        // And through its waiter.
        let waiter = s.spawn(async {
            let child = spawn(parked());
            is_interrupt(&child.await.unwrap_err())
        });
        lab.settle().await;
        waiter.interrupt("stop");
        assert!(waiter.await?);
        let quiet = s.spawn(async { launch(async {}).join().await.is_ok() });
        assert!(quiet.await?);
        Ok(checkpoint().await?)
    });
    results.await.unwrap();
}
