//! Timeouts and deadlines: the cases of group F.

use std::convert::Infallible;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, ReasonKind, Result, Scope, checkpoint, cleanup, deadline, now,
    park, scope, shield, sleep, spawn, timeout, timeout_at, yield_now,
};

use kinfolk_testkit::{Gate, Lab, Log};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

#[track_caller]
fn timed_out<T>(result: Result<T>) -> Error {
    expect(result, ErrorKind::TimedOut)
}

#[track_caller]
fn expect<T>(result: Result<T>, kind: ErrorKind) -> Error {
    let Err(error) = result else {
        panic!("it came to a value; expected {kind:?}");
    };
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

/// A timeout turned into an option: none if its own deadline ended it.
fn move_on<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}

/// A timeout that fires ends its body at exactly that instant, as TimedOut.
/// Also: time-1.
pub async fn case_f01_a_timeout_fires_at_its_instant(lab: Lab) {
    let before = lab.elapsed();
    let error = timed_out(timeout(10 * MS, sleep(10 * SEC)).await);
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert_eq!(error.reason().unwrap().kind(), ReasonKind::Deadline);
    checkpoint().await.unwrap();
}

/// A body that is done first gives its value, and the timer is gone.
/// Also: time-4.
pub async fn case_f02_a_body_that_is_first_leaves_no_timer(lab: Lab) {
    let pending = lab.counters().timers_pending();
    let kept = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            sleep(5 * MS).await?;
            Ok(s)
        })
        .await
        .unwrap();
    assert_eq!(lab.counters().timers_pending(), pending);
    assert!(!kept.cancel_requested());
    assert_eq!(kept.job().state(), JobState::Completed);
    assert_eq!(lab.elapsed(), 5 * MS);
}

/// Without a deadline nothing fires and nothing is armed.
/// Also: time-1.
pub async fn case_f03_without_a_deadline_nothing_fires(lab: Lab) {
    let set = lab.counters().timers_set;
    scope(async |s| {
        assert_eq!(s.own_deadline(), None);
        assert_eq!(deadline(), None);
        checkpoint().await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.counters().timers_set, set);
    let long = 1_000_000 * SEC;
    timeout(Duration::MAX, sleep(long)).await.unwrap();
    assert_eq!(lab.elapsed(), long);
    assert_eq!(lab.counters().timers_set, set + 1);
}

/// A zero timeout lets the body run to its first point and tells it there.
/// Also: time-2, P18.
pub async fn case_f04_zero_runs_to_the_first_point(lab: Lab) {
    let log = Log::new();
    let result = timeout(Duration::ZERO, async {
        log.say("entered");
        sleep(SEC).await?;
        log.say("slept");
        Ok::<_, Error>(())
    })
    .await;
    timed_out(result);
    assert_eq!(log.text(), "entered");
    assert_eq!(lab.elapsed(), Duration::ZERO);
}

/// With a deadline in the past the very first point fails, whatever it is.
/// Also: time-2, P18.
pub async fn case_f05_past_deadline_fails_the_first_point(lab: Lab) {
    sleep(20 * MS).await.unwrap();
    let past = now() - 10 * MS;
    timed_out(timeout_at(past, yield_now()).await);
    timed_out(timeout_at(past, checkpoint()).await);
    timed_out(timeout_at(now(), sleep(Duration::ZERO)).await);
    let scoped = Scope::build().deadline(past).run(async |_| {
        checkpoint().await?;
        Ok(())
    });
    timed_out(scoped.await);
    assert_eq!(lab.elapsed(), 20 * MS);
}

/// Of two nested equal deadlines the outer one reports; the inner block is
/// told Cancelled.
/// Also: time-3.
pub async fn case_f08_equal_deadlines_report_at_the_outermost(lab: Lab) {
    let log = Log::new();
    let result = Scope::named("outer")
        .timeout(10 * MS)
        .run(async |outer| {
            let inner = Scope::named("inner").timeout(10 * MS).run(async |inner| {
                let told = park().await.unwrap_err();
                for expired in [&outer, &inner] {
                    assert!(expired.cancel_requested());
                    let reason = expired.cancel_reason().unwrap();
                    assert_eq!(reason.root_cause().kind(), ReasonKind::Deadline);
                }
                assert_eq!(told.origin(), outer.job().id());
                Err::<(), _>(told.into())
            });
            let told = expect(inner.await, ErrorKind::Cancelled);
            log.say("between");
            checkpoint().await?;
            log.say("after");
            Err::<(), _>(told)
        })
        .await;
    let error = timed_out(result);
    assert_eq!(error.job_name(), Some("outer"));
    assert_eq!(log.text(), "between");
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// An outer deadline that is sooner ends both; the inner one never fires.
pub async fn case_f09_the_sooner_outer_deadline_ends_both(lab: Lab) {
    let log = Log::new();
    let result = timeout(100 * MS, async {
        let inner = Scope::build().timeout(SEC).run(async |s| {
            let told = park().await;
            assert_eq!(s.cancel_reason().unwrap().kind(), ReasonKind::Parent);
            told?;
            Ok(())
        });
        expect(inner.await, ErrorKind::Cancelled);
        checkpoint().await?;
        log.say("after");
        Ok::<_, Error>(())
    });
    timed_out(result.await);
    assert!(log.is_empty());
    assert_eq!(lab.elapsed(), 100 * MS);
}

/// A loop of short timeouts ends with the long one around it.
/// Also: P17.
pub async fn case_f10_an_outer_timeout_ends_a_loop_of_inner_ones(lab: Lab) {
    let log = Log::new();
    let result = timeout(320 * MS, async {
        loop {
            match move_on(timeout(150 * MS, park()).await)? {
                None => log.say(lab.elapsed().as_millis().to_string()),
                Some(never) => return Ok::<Infallible, Error>(never),
            }
        }
    });
    assert!(move_on(result.await).unwrap().is_none());
    assert_eq!(log.text(), "150 300");
    assert_eq!(lab.elapsed(), 320 * MS);
}

/// A timeout inside another one that does not fire is a failure of its body.
/// Also: outcome-7.
pub async fn case_f12_an_inner_timeout_is_a_failure_of_the_body(lab: Lab) {
    let mut kept = None;
    let error = Scope::named("outer")
        .timeout(Duration::MAX)
        .run(async |s| {
            kept = Some(s.job());
            Scope::named("inner")
                .timeout(10 * MS)
                .run_future(park())
                .await
        })
        .await
        .unwrap_err();
    assert_eq!(error.job_name(), Some("inner"), "{error:?}");
    let outer = kept.unwrap();
    assert_eq!(outer.state(), JobState::Failed);
    let expired = outer.reason().map(|reason| reason.kind());
    assert_ne!(expired, Some(ReasonKind::Deadline));
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// A deadline that was taken away does not fire; a cancel from outside is
/// Cancelled, not TimedOut.
/// Also: time-1, P15.
pub async fn case_f13_a_deadline_can_be_moved_and_taken_away(lab: Lab) {
    let task = spawn({
        let lab = lab.clone();
        async move {
            let result = Scope::build()
                .timeout(10 * MS)
                .run(async |s| {
                    s.reschedule(Some(now() + 50 * MS)).unwrap();
                    sleep(40 * MS).await?;
                    s.reschedule(None).unwrap();
                    assert_eq!(s.own_deadline(), None);
                    assert_eq!(deadline(), None);
                    let told = park().await;
                    assert_eq!(lab.elapsed(), 200 * MS);
                    assert_eq!(s.cancel_reason().unwrap().kind(), ReasonKind::Parent);
                    told?;
                    Ok(())
                })
                .await;
            Err::<(), _>(expect(result, ErrorKind::Cancelled))
        }
    });
    sleep(200 * MS).await.unwrap();
    assert!(task.cancel("enough"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("enough"));
    assert_eq!(lab.elapsed(), 200 * MS);
}

/// A body that is longer than the first deadline finishes if it was moved.
/// Also: time-1.
pub async fn case_f14_a_moved_deadline_lets_a_longer_body_finish(lab: Lab) {
    let value = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            sleep(9 * MS).await?;
            s.reschedule(Some(now() + 50 * MS)).unwrap();
            sleep(40 * MS).await?;
            Ok(7)
        })
        .await;
    assert_eq!(value.unwrap(), 7);
    assert_eq!(lab.elapsed(), 49 * MS);
}

/// A deadline can be moved by another task too, and be made sooner.
/// Also: time-1.
pub async fn case_f14_another_task_can_make_a_deadline_sooner(lab: Lab) {
    let result = Scope::build().timeout(100 * MS).run(async |s| {
        let friend = s.clone();
        s.launch(async move {
            sleep(5 * MS).await?;
            friend.reschedule(Some(now() + 10 * MS)).unwrap();
            Ok::<_, Error>(())
        });
        park().await?;
        Ok(())
    });
    timed_out(result.await);
    assert_eq!(lab.elapsed(), 15 * MS);
}

/// Moving the deadline of a scope that is over is an error and arms nothing.
/// Also: time-1.
pub async fn case_f17_reschedule_after_the_exit_is_an_error(lab: Lab) {
    let over = Scope::build()
        .timeout(10 * MS)
        .run(async |s| Ok(s))
        .await
        .unwrap();
    let set = lab.counters().timers_set;
    let refused = over.reschedule(Some(now() + 20 * MS)).unwrap_err();
    assert_eq!(refused, kinfolk_core::RescheduleError::Finished);
    assert!(over.reschedule(None).is_err());
    assert_eq!(lab.counters().timers_set, set);
    checkpoint().await.unwrap();
}

/// A scope that was left before its deadline cancels nothing later.
/// Also: time-4.
pub async fn case_f18_nothing_is_cancelled_after_an_early_exit(lab: Lab) {
    let pending = lab.counters().timers_pending();
    let cancels = lab.counters().cancellations_requested;
    timeout(10 * MS, async { checkpoint().await })
        .await
        .unwrap();
    assert_eq!(lab.counters().timers_pending(), pending);
    sleep(50 * MS).await.unwrap();
    assert_eq!(lab.counters().cancellations_requested, cancels);
    checkpoint().await.unwrap();
}

/// `deadline()` is the least of all enclosing ones that no shield hides; it
/// follows `reschedule`, and is the instant of the cancel once cancelled.
/// Also: time-1.
pub async fn case_f19_deadline_is_the_tightest_enclosing_one(_lab: Lab) {
    let start = now();
    let at = |ms: u32| Some(start + ms * MS);
    assert_eq!(deadline(), None);
    let result = Scope::build().timeout(100 * MS).run(async |outer| {
        assert_eq!(deadline(), at(100));
        let inner = Scope::build().timeout(50 * MS).run(async |inner| {
            assert_eq!(deadline(), at(50));
            inner.reschedule(at(70)).unwrap();
            assert_eq!(deadline(), at(70));
            inner.reschedule(at(200)).unwrap();
            assert_eq!(deadline(), at(100));
            inner.reschedule(None).unwrap();
            assert_eq!(deadline(), at(100));
            shield(async {
                assert_eq!(deadline(), None);
                let hidden = timeout(500 * MS, async { deadline() });
                assert_eq!(hidden.await.unwrap(), at(500));
            })
            .await?;
            assert_eq!(deadline(), at(100));
            Ok(())
        });
        inner.await?;
        assert_eq!(deadline(), at(100));
        sleep(30 * MS).await?;
        outer.cancel("now");
        assert_eq!(deadline(), at(30));
        sleep(SEC).await?;
        Ok(())
    });
    expect(result.await, ErrorKind::Stopped);
    assert_eq!(deadline(), None);
}

/// A timeout waits for the clean-up of its body, and is TimedOut all the same.
/// Also: cancel-7, shield-3.
pub async fn case_f20_a_timeout_waits_for_clean_up(lab: Lab) {
    let log = Log::new();
    let result = timeout(10 * MS, async {
        let told = park().await;
        cleanup(sleep(50 * MS)).await?;
        log.say("cleaned");
        told?;
        Ok::<_, Error>(())
    });
    timed_out(result.await);
    assert_eq!(log.text(), "cleaned");
    assert_eq!(lab.elapsed(), 60 * MS);
}

/// An error that the body returns after its deadline wins over TimedOut, and
/// remembers the deadline.
/// Also: outcome-5.
pub async fn case_f21_the_bodys_own_error_wins_over_the_timeout(lab: Lab) {
    let result = timeout(10 * MS, async {
        park().await.unwrap_err();
        Err::<(), _>(Error::msg("disk full"))
    });
    let error = expect(result.await, ErrorKind::Failed);
    assert_eq!(error.to_string(), "disk full");
    assert_eq!(error.during().unwrap().kind(), ReasonKind::Deadline);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// A timeout that ends a body and a child gives one TimedOut and no group.
pub async fn case_f23_one_timeout_is_one_error(lab: Lab) {
    let result = Scope::named("limit").timeout(10 * MS).run(async |_| {
        scope(async |s| {
            s.launch(sleep(SEC));
            sleep(SEC).await?;
            Ok(())
        })
        .await
    });
    let error = timed_out(result.await);
    assert_eq!(error.job_name(), Some("limit"));
    assert_eq!(error.suppressed_count(), 0);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// A timeout used in the clean-up after a timeout is local to it.
/// Also: time-3, P16.
pub async fn case_f24_a_timeout_in_clean_up_is_local(lab: Lab) {
    let log = Log::new();
    let result = Scope::named("outer").timeout(10 * MS).run(async |_| {
        let told = park().await;
        let inner = shield(Scope::named("inner").timeout(10 * MS).run_future(park())).await;
        let error = timed_out(inner);
        log.say(error.job_name().unwrap());
        told?;
        Ok(())
    });
    let error = timed_out(result.await);
    assert_eq!(error.job_name(), Some("outer"));
    assert_eq!(error.suppressed_count(), 0);
    assert_eq!(log.text(), "inner");
    assert_eq!(lab.elapsed(), 20 * MS);
}

/// A relative timeout counts from its first poll, not from when it was made.
/// Also: time-1.
pub async fn case_f27_a_timeout_counts_from_its_first_poll(lab: Lab) {
    let limit = timeout(10 * MS, park());
    let scoped = Scope::build().timeout(10 * MS).run_future(park());
    sleep(100 * MS).await.unwrap();
    timed_out(limit.await);
    assert_eq!(lab.elapsed(), 110 * MS);
    timed_out(scoped.await);
    assert_eq!(lab.elapsed(), 120 * MS);
}

/// What a TimedOut says has the time and the name of the job.
pub async fn case_f28_a_timeout_says_how_long_and_who(_lab: Lab) {
    let named = Scope::named("fetch").timeout(10 * MS).run_future(park());
    let error = timed_out(named.await);
    let words = error.to_string();
    assert!(words.contains("10ms"), "{words}");
    assert!(words.contains("fetch"), "{words}");
    assert_eq!(error.path().last().unwrap(), "fetch");
    let plain = timed_out(timeout(1500 * MS, park()).await).to_string();
    assert!(plain.contains("1.5s"), "{plain}");
    assert!(plain.contains("timeouts.rs"), "{plain}");
}

/// A shielded timeout in a cancelled job runs to its own deadline, which ends
/// with it.
/// Also: shield-2.
pub async fn case_f29_a_shielded_timeout_moves_on_by_itself(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let told = park().await;
        let inner = shield(timeout(30 * MS, sleep(SEC))).await;
        timed_out(inner);
        words.say("moved on");
        told?;
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "moved on");
    assert_eq!(lab.elapsed(), 35 * MS);
}

/// When a timeout fires, its job ends Cancelled, with the deadline as reason.
/// Also: tree-2.
pub async fn src_k24_a_timeout_that_fired_ends_cancelled(lab: Lab) {
    let mut kept = None;
    let result = Scope::build().timeout(10 * MS).run(async |s| {
        kept = Some(s.job());
        park().await?;
        Ok(())
    });
    timed_out(result.await);
    let job = kept.unwrap();
    assert_eq!(job.state(), JobState::Cancelled);
    assert_eq!(job.reason().unwrap().kind(), ReasonKind::Deadline);
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// A cancel from outside that comes while the timeout's body cleans up after
/// its deadline is neither lost nor called a timeout.
/// Also: request-3, P15.
pub async fn src_p16_a_cancel_during_the_timeouts_clean_up_is_not_lost(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let result = timeout(10 * MS, async {
            let told = park().await;
            cleanup(sleep(20 * MS)).await?;
            told?;
            Ok::<_, Error>(())
        });
        let error = expect(result.await, ErrorKind::Cancelled);
        words.say(error.reason().unwrap().text().unwrap());
        checkpoint().await?;
        words.say("went on");
        Ok::<_, Error>(())
    });
    sleep(15 * MS).await.unwrap();
    assert!(task.cancel("outside"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("outside"));
    assert_eq!(log.text(), "outside");
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// A timeout's own cancellation ends with it: the caller goes on unmarked, as
/// often as it likes.
pub async fn src_p17_a_timeout_ends_its_own_cancellation(lab: Lab) {
    let task = spawn(async {
        for _ in 0..3 {
            timed_out(timeout(10 * MS, park()).await);
            checkpoint().await?;
            sleep(MS).await?;
        }
        Ok::<_, Error>(7)
    });
    let job = task.job();
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(job.state(), JobState::Completed);
    assert!(!job.cancel_requested());
    assert_eq!(lab.elapsed(), 33 * MS);
}

/// A future that cannot hear is dropped when its timeout fires, in time.
pub async fn cancel_7_a_timeout_drops_what_cannot_hear(lab: Lab) {
    let gate = Gate::new();
    timed_out(timeout(10 * MS, gate.wait()).await);
    assert_eq!(lab.elapsed(), 10 * MS);
    checkpoint().await.unwrap();
}

/// The same holds with another timeout in between.
pub async fn cancel_7_nested_timeouts_drop_what_cannot_hear(lab: Lab) {
    let gate = Gate::new();
    timed_out(timeout(10 * MS, timeout(100 * MS, gate.wait())).await);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// The same holds with a scope in between.
pub async fn cancel_7_a_timeout_drops_a_scope_that_cannot_hear(lab: Lab) {
    let gate = Gate::new();
    let result = timeout(
        10 * MS,
        scope(async |_| {
            gate.wait().await;
            Ok(())
        }),
    );
    timed_out(result.await);
    assert_eq!(lab.elapsed(), 10 * MS);
}
