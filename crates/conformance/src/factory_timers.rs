//! Factory timers: `delay`, `at`, `interval`, and their token.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, ErrorKind, JobState, MissedTicks, Scope, TimerToken, cleanup, now, park, scope, sleep,
    sleep_until,
};

use kinfolk_testkit::{Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// A shared count.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn up(&self) -> usize {
        self.0.fetch_add(1, SeqCst) + 1
    }

    fn down(&self) {
        self.0.fetch_sub(1, SeqCst);
    }

    fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// A factory of runs that say when they begin, in milliseconds, and take
/// `body`.
fn runs(
    lab: &Lab,
    log: &Log,
    body: Duration,
) -> impl FnMut() -> std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> + Send + 'static
{
    let (lab, log) = (lab.clone(), log.clone());
    move || {
        log.say(lab.elapsed().as_millis().to_string());
        Box::pin(async move {
            if !body.is_zero() {
                sleep(body).await?;
            }
            Ok(())
        })
    }
}

/// Waits until the timer is over.
async fn finished(token: &TimerToken) {
    let _ = token.job().join().await.unwrap();
    assert!(token.is_finished());
}

/// The first run is at once, the others on the grid; one call of the factory
/// and one fresh job per run.
/// Also: host-2, C11, C12, C20.
pub async fn case_n02_an_interval_runs_at_once_and_then_on_its_grid(lab: Lab) {
    let (log, calls, jobs) = (Log::new(), Count::default(), Log::new());
    scope(async |s| {
        let (here, log, calls, jobs) = (lab.clone(), log.clone(), calls.clone(), jobs.clone());
        let token = s.interval(SEC, move || {
            calls.up();
            let (here, log) = (here.clone(), log.clone());
            jobs.say(format!("{:?}", kinfolk_core::current_job().unwrap().id()));
            async move {
                log.say(here.elapsed().as_millis().to_string());
                // Less than a period: it does not move the grid.
                sleep(300 * MS).await
            }
        })?;
        sleep(4_500 * MS).await?;
        assert!(!token.is_cancelled() && !token.is_finished());
        assert_eq!(token.skipped(), 0);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0 1000 2000 3000 4000");
    assert_eq!(calls.get(), 5);
    let text = jobs.text();
    let mut jobs: Vec<_> = text.split(' ').collect();
    jobs.dedup();
    assert_eq!(jobs.len(), 5);
}

/// The factory of a delay is called once, at its time and not before.
/// Also: host-2, C10.
pub async fn case_n03_a_delay_runs_once_at_its_time(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let token = s.delay(5 * SEC, runs(&lab, &log, MS));
        sleep(4_999 * MS).await?;
        assert!(log.is_empty() && !token.is_finished());
        sleep(MS / 2 * 3).await?;
        assert_eq!(log.text(), "5000");
        assert!(!token.is_finished());
        sleep(20 * SEC).await?;
        assert_eq!(log.text(), "5000");
        assert!(token.is_finished() && !token.is_cancelled());
        Ok(())
    })
    .await
    .unwrap();
}

/// `at` takes an instant; one that has passed is now, and so is no wait at all.
pub async fn host_2_at_runs_at_its_instant(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        sleep(SEC).await?;
        let tokens = [
            s.at(now() + SEC, runs(&lab, &log, MS)),
            s.at(now() - SEC / 2, runs(&lab, &log, MS)),
            s.delay(Duration::ZERO, runs(&lab, &log, MS)),
        ];
        for token in &tokens {
            finished(token).await;
        }
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "1000 1000 2000");
}

/// `Duration::MAX` is never, and can still be cancelled.
/// Also: time-1.
pub async fn host_2_a_delay_without_end_never_runs(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let token = s.delay(Duration::MAX, runs(&lab, &log, MS));
        let once = s.interval(Duration::MAX, runs(&lab, &log, MS))?;
        sleep(1_000_000 * SEC).await?;
        assert!(!token.is_finished() && !once.is_finished());
        assert!(token.cancel() && once.cancel());
        finished(&token).await;
        finished(&once).await;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0");
}

/// A run that takes longer than the period: no second one beside it, the ticks
/// it covers are skipped and counted.
/// Also: host-2, C13.
pub async fn case_n04_runs_never_overlap(lab: Lab) {
    let (log, inside) = (Log::new(), Count::default());
    scope(async |s| {
        let (here, log) = (lab.clone(), log.clone());
        let token = s.interval(100 * MS, move || {
            let (here, log, inside) = (here.clone(), log.clone(), inside.clone());
            async move {
                assert_eq!(inside.up(), 1);
                log.say(here.elapsed().as_millis().to_string());
                // Suspended, and with a child that lives longer than its body.
                kinfolk_core::launch(sleep(250 * MS));
                sleep(150 * MS).await?;
                inside.down();
                Ok::<_, Error>(())
            }
        })?;
        sleep(700 * MS).await?;
        assert_eq!(token.skipped(), 4);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0 300 600");
    assert!(lab.take_failures().is_empty());
}

/// A tick that is due at the very instant at which the run ends is taken.
pub async fn host_2_a_tick_at_the_end_of_a_run_is_taken(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let token = s.interval(100 * MS, runs(&lab, &log, 100 * MS))?;
        sleep(350 * MS).await?;
        assert_eq!(token.skipped(), 0);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0 100 200 300");
}

/// A host that is late makes up for one tick, then the grid goes on.
pub async fn host_2_a_late_host_catches_up_once(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let token = s.interval(100 * MS, runs(&lab, &log, Duration::ZERO))?;
        sleep(50 * MS).await?;
        lab.dawdle(300 * MS);
        sleep(200 * MS).await?;
        assert_eq!(log.text(), "0 350 400 500");
        assert_eq!(token.skipped(), 2);
        Ok(())
    })
    .await
    .unwrap();
}

/// `Burst` makes up for every tick, one after the other; `Delay` moves the
/// grid.
pub async fn host_2_an_interval_bursts_or_delays_when_told_to(lab: Lab) {
    for (missed, expected) in [
        (MissedTicks::Skip, "0 300 400 500"),
        (MissedTicks::Burst, "0 250 250 300 400 500"),
        (MissedTicks::Delay, "0 250 350 450"),
    ] {
        let log = Log::new();
        let start = lab.elapsed();
        scope(async |s| {
            let (here, log) = (lab.clone(), log.clone());
            let mut first = true;
            let token = s.timer("beat").missed(missed).interval(100 * MS, move || {
                log.say((here.elapsed() - start).as_millis().to_string());
                let body = if first { 250 * MS } else { Duration::ZERO };
                first = false;
                sleep(body)
            })?;
            sleep(549 * MS).await?;
            assert_eq!(
                token.skipped(),
                if missed == MissedTicks::Skip { 2 } else { 0 }
            );
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(log.text(), expected, "{missed:?}");
    }
}

/// A virtual hour of seconds is 3,601 runs, in less than a second.
pub async fn host_2_an_hour_of_seconds_is_3601_runs(lab: Lab) {
    let (real, count) = (Instant::now(), Count::default());
    scope(async |s| {
        let ran = count.clone();
        s.interval(SEC, move || {
            ran.up();
            async {}
        })?
        .keep();
        sleep(3_600 * SEC + MS).await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(count.get(), 3_601);
    assert_eq!(lab.elapsed(), 3_600 * SEC + MS);
    assert!(real.elapsed() < SEC, "{:?}", real.elapsed());
}

/// Cancelling or dropping the token during a run: it ends by itself, no other
/// follows.
/// Also: host-2, C15, C16.
pub async fn case_n05_the_run_in_progress_is_spared(lab: Lab) {
    for drop_it in [false, true] {
        let (begun, done) = (Count::default(), Count::default());
        scope(async |s| {
            let (begun, done) = (begun.clone(), done.clone());
            let token = s.interval(100 * MS, move || {
                begun.up();
                let done = done.clone();
                async move {
                    sleep(250 * MS).await?;
                    done.up();
                    Ok::<_, Error>(())
                }
            })?;
            sleep(50 * MS).await?;
            let job = token.job();
            if drop_it {
                drop(token);
            } else {
                assert!(token.cancel() && token.is_cancelled());
                assert!(!token.cancel() && !token.is_finished());
            }
            let _ = job.join().await?;
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!((begun.get(), done.get()), (1, 1));
    }
    assert_eq!(lab.elapsed(), 500 * MS);
}

/// A run in progress when its scope ends is told, and the scope waits for its
/// clean-up.
/// Also: host-2, case N05.
pub async fn host_3_the_scope_waits_for_the_run_in_progress(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let log = log.clone();
        let token = s.interval(SEC, move || {
            let log = log.clone();
            async move {
                let told = park().await;
                cleanup(sleep(300 * MS)).await?;
                log.say("clean");
                told?;
                Ok::<_, Error>(())
            }
        })?;
        sleep(100 * MS).await?;
        // The token spares the run; the end of the scope does not.
        token.cancel();
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((log.text().as_str(), lab.elapsed()), ("clean", 400 * MS));
    assert!(lab.take_failures().is_empty());
}

/// Dropping the token while nothing runs: the factory is dropped there and
/// then, and never called. So it is with `cancel`.
/// Also: host-2, C15, C17.
pub async fn case_n06_dropping_the_token_drops_the_factory(lab: Lab) {
    for drop_it in [false, true] {
        let (tally, calls) = (Tally::new(), Count::default());
        let before = lab.counters().timers_pending();
        scope(async |s| {
            let (guard, ran) = (tally.guard(), calls.clone());
            let token = s.delay(SEC, move || {
                let _guard = &guard;
                ran.up();
                async {}
            });
            lab.settle().await;
            assert_eq!(lab.counters().timers_pending(), before + 1);
            if drop_it {
                drop(token);
                lab.settle().await;
            } else {
                assert!(token.cancel());
                lab.settle().await;
                assert!(token.is_cancelled() && token.is_finished());
            }
            assert_eq!(tally.drops(), 1);
            assert_eq!(lab.counters().timers_pending(), before);
            sleep(2 * SEC).await?;
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(calls.get(), 0);
    }
}

/// Between two runs an interval that loses its token ends the same way.
/// Also: C17.
pub async fn case_n06_an_interval_between_two_runs_drops_its_factory(lab: Lab) {
    let (tally, log) = (Tally::new(), Log::new());
    scope(async |s| {
        let (guard, mut run) = (tally.guard(), runs(&lab, &log, Duration::ZERO));
        let token = s.interval(SEC, move || {
            let _guard = &guard;
            run()
        })?;
        sleep(1_500 * MS).await?;
        drop(token);
        lab.settle().await;
        assert_eq!(tally.drops(), 1);
        sleep(5 * SEC).await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0 1000");
}

/// A token may outlive its timer: `cancel` and drop then do nothing.
/// Also: host-2, C18.
pub async fn case_n07_a_token_outlives_its_timer(lab: Lab) {
    let log = Log::new();
    let token = scope(async |s| {
        let token = s.delay(SEC, runs(&lab, &log, 10 * MS));
        finished(&token).await;
        Ok(token)
    })
    .await
    .unwrap();
    assert!(token.is_finished() && !token.is_cancelled());
    assert!(!token.cancel() && !token.is_cancelled());
    assert_eq!(log.text(), "1000");
    let words = format!("{token:?}");
    assert!(words.contains("finished: true"), "{words}");
    drop(token);
}

/// A timer may outlive its token, when that was kept; and a token its scope.
/// Also: host-2, C18.
pub async fn case_n07_a_timer_outlives_its_token(lab: Lab) {
    let log = Log::new();
    let other = scope(async |s| {
        s.interval(SEC, runs(&lab, &log, MS))?.keep();
        let other = s.interval(10 * SEC, || async {})?;
        sleep(2_500 * MS).await?;
        Ok(other)
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0 1000 2000");
    assert!(other.is_finished() && other.is_cancelled() && !other.cancel());
}

/// Once its one run has begun there is nothing to cancel in a delay.
/// Also: C16.
pub async fn host_2_a_delay_that_runs_is_not_cancelled(lab: Lab) {
    let done = Count::default();
    scope(async |s| {
        let ran = done.clone();
        let token = s.delay(SEC, move || async move {
            sleep(SEC).await?;
            ran.up();
            Ok::<_, Error>(())
        });
        sleep(1_500 * MS).await?;
        assert!(!token.cancel() && !token.is_cancelled() && !token.is_finished());
        finished(&token).await;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((done.get(), lab.elapsed()), (1, 2 * SEC));
}

/// A cancel at the very instant of the run: one of the two wins.
/// Also: time-4, C19.
pub async fn host_2_cancel_or_run_but_never_both(lab: Lab) {
    let calls = Count::default();
    scope(async |s| {
        let ran = calls.clone();
        let at = now() + SEC;
        let token = s.at(at, move || {
            ran.up();
            async {}
        });
        sleep_until(at).await?;
        let won = token.cancel();
        finished(&token).await;
        assert_eq!(token.is_cancelled(), won);
        assert_eq!(calls.get(), usize::from(!won));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), SEC);
}

/// Any thread may cancel; one call does it.
/// Also: host-2, C15.
pub async fn src_c19_any_thread_may_cancel(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let token = Arc::new(s.interval(SEC, runs(&lab, &log, MS))?);
        sleep(1_500 * MS).await?;
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let token = token.clone();
                std::thread::spawn(move || token.cancel())
            })
            .collect();
        let won = threads.into_iter().map(|t| t.join().unwrap());
        assert_eq!(won.filter(|won| *won).count(), 1);
        finished(&token).await;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((log.text().as_str(), lab.elapsed()), ("0 1000", 1_500 * MS));
}

/// A period of zero is an error: nothing is made, the factory is dropped.
pub async fn case_n09_an_interval_needs_a_period(lab: Lab) {
    let tally = Tally::new();
    let before = lab.counters();
    scope(async |s| {
        let guard = tally.guard();
        let refused = s.interval(Duration::ZERO, move || {
            let _guard = &guard;
            async {}
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Failed);
        assert!(refused.to_string().contains("zero"), "{refused}");
        assert_eq!(tally.drops(), 1);
        Ok(())
    })
    .await
    .unwrap();
    // The scope itself.
    assert_eq!(lab.counters().living(), before.living());
}

/// A scope with nothing but an interval left ends: timers are services.
/// Also: host-3, handle-6.
pub async fn case_n12_an_interval_holds_nothing_open(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        s.interval(SEC, runs(&lab, &log, MS))?.keep();
        s.delay(100 * SEC, runs(&lab, &log, MS)).keep();
        s.launch(sleep(2_500 * MS));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "0 1000 2000");
    assert_eq!(lab.elapsed(), 2_500 * MS);
}

/// While its siblings clean up a cancelled scope, an interval works for them.
/// Also: handle-6.
pub async fn host_3_an_interval_is_a_service(lab: Lab) {
    let log = Log::new();
    let result = scope(async |s| {
        s.interval(SEC, runs(&lab, &log, MS))?.keep();
        s.launch(async {
            let told = park().await;
            cleanup(sleep(2_500 * MS)).await?;
            told?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        s.cancel("enough");
        Ok(())
    });
    result.await.unwrap();
    assert_eq!(log.text(), "0 1000 2000");
}

/// A run that fails, a run that panics and a factory that panics are reported,
/// once each; the interval and its siblings go on.
/// Also: host-2, outcome-3.
pub async fn src_c14_a_failing_run_does_not_stop_the_interval(lab: Lab) {
    let calls = Count::default();
    scope(async |s| {
        let sibling = s.spawn(sleep(4_500 * MS));
        let calls = calls.clone();
        s.timer("beat")
            .interval(SEC, move || {
                let call = calls.up();
                assert_ne!(call, 3, "the factory");
                async move {
                    match call {
                        1 => Err(Error::msg("the first")),
                        2 => panic!("the second"),
                        _ => Ok(()),
                    }
                }
            })?
            .keep();
        sibling.await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(calls.get(), 5);
    let failures = lab.take_failures();
    let kinds: Vec<_> = failures.iter().map(Error::kind).collect();
    let expected = [ErrorKind::Failed, ErrorKind::Panicked, ErrorKind::Panicked];
    assert_eq!(kinds, expected, "{failures:?}");
    assert!(failures[2].to_string().contains("the factory"));
    let path = failures[0].path();
    assert_eq!(path[path.len() - 2], "beat", "{path:?}");
}

/// A delay that fails cancels no other job either.
pub async fn host_2_a_failing_delay_touches_nobody(lab: Lab) {
    scope(async |s| {
        let token = s.delay(SEC, || async { Err::<(), _>(Error::msg("no")) });
        finished(&token).await;
        sleep(SEC).await?;
        assert!(!token.is_cancelled());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.take_failures().len(), 1);
}

/// A timer and its run are jobs in the tree, below the scope, with the place
/// in the code where the timer was set.
pub async fn host_3_runs_are_jobs_in_the_tree(lab: Lab) {
    Scope::named("home")
        .run(async |s| {
            let token = s.timer("beat").interval(SEC, park)?;
            let other = s.delay(SEC, || async {});
            lab.settle().await;
            let tree = lab.snapshot();
            let (home, beat) = (tree.find("home").unwrap(), tree.find("beat").unwrap());
            assert_eq!(beat.parent, Some(home.id));
            assert_eq!(tree.find("delay").unwrap().parent, Some(home.id));
            let runs: Vec<_> = tree.children(beat.id).collect();
            assert_eq!(runs.len(), 1);
            assert_eq!(runs[0].site.file(), file!());
            assert_eq!(runs[0].site, beat.site);
            // Cancelling the job takes the run with it.
            assert!(token.job().cancel("enough"));
            finished(&token).await;
            assert!(token.is_cancelled());
            assert_eq!(token.job().state(), JobState::Cancelled);
            drop(other);
            Ok(())
        })
        .await
        .unwrap();
}

/// A timer of the root belongs to nobody below it: it outlives the scope that
/// set it.
/// Also: tree-6.
pub async fn host_3_a_timer_of_the_root_hangs_from_the_root(lab: Lab) {
    let log = Log::new();
    let token = scope(async |_| lab.root().interval(SEC, runs(&lab, &log, MS)))
        .await
        .unwrap();
    sleep(2_500 * MS).await.unwrap();
    let tree = lab.snapshot();
    let job = token.job();
    let node = tree.find(&job.name()).unwrap();
    assert_eq!(node.parent, Some(lab.tree().root_job().id()));
    assert!(token.cancel());
    finished(&token).await;
    assert_eq!(log.text(), "0 1000 2000");
}

/// A timer set in a scope that takes no more children is over at once.
/// Also: tree-5.
pub async fn host_2_a_timer_of_an_ended_scope_is_over(_lab: Lab) {
    let tally = Tally::new();
    let kept = scope(async |s| Ok(s.clone())).await.unwrap();
    let guard = tally.guard();
    let token = kept.delay(Duration::ZERO, move || {
        drop(guard);
        async {}
    });
    assert!(token.is_finished() && token.is_cancelled() && !token.cancel());
    assert_eq!(tally.drops(), 1);
    let token = kept.interval(SEC, || async {}).unwrap();
    assert!(token.is_finished() && token.is_cancelled());
}

/// A factory may hold its own token: cancel it, or drop it, in the middle of a
/// run. One that keeps it is ended by its scope.
/// Also: C18.
pub async fn host_2_a_factory_may_hold_its_own_token(lab: Lab) {
    for how in ["cancel", "drop", "hold"] {
        let (calls, tally) = (Count::default(), Tally::new());
        let start = lab.elapsed();
        scope(async |s| {
            let own = Arc::new(Mutex::new(None::<TimerToken>));
            let (inside, ran, guard) = (own.clone(), calls.clone(), tally.guard());
            let token = s.interval(SEC, move || {
                let _guard = &guard;
                if ran.up() == 3 {
                    let mut own = inside.lock().unwrap();
                    match how {
                        "cancel" => assert!(own.as_ref().unwrap().cancel()),
                        "drop" => *own = None,
                        _ => {}
                    }
                }
                async {}
            })?;
            *own.lock().unwrap() = Some(token);
            drop(own);
            sleep(4_500 * MS).await?;
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(calls.get(), if how == "hold" { 5 } else { 3 }, "{how}");
        assert_eq!(tally.drops(), 1, "{how}");
        assert_eq!(lab.elapsed() - start, 4_500 * MS);
    }
    assert!(lab.take_failures().is_empty());
}
