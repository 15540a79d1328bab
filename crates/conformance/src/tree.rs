//! Rules of the tree.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Event, EventKind, JobId, JobState, Outcome, ReasonKind, Scope, checkpoint,
    cleanup, current_job, deadline, detach, is_cancelled, is_shielded, launch, park, scope, shield,
    sleep, spawn, timeout, yield_now,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// Panics without a word on standard error.
fn raise<T>(words: &'static str) -> T {
    std::panic::resume_unwind(Box::new(words))
}

/// tree-1: unlinked when it ends; a long-lived scope lists the living only.
pub async fn tree_1_a_scope_lists_only_living_children(lab: Lab) {
    scope(async |s| {
        let before = lab.counters().living();
        for _ in 0..50 {
            s.spawn(async {}).await?;
        }
        assert_eq!(lab.counters().living(), before);
        assert_eq!(lab.snapshot().children(s.job().id()).count(), 0);
        Ok(())
    })
    .await
    .unwrap();
}

/// tree-3: on success the end waits for every child, grandchildren included.
pub async fn tree_3_parent_waits_for_all_children(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let answer = scope(async move |s| {
        let inner = words.clone();
        s.launch(async move {
            let deep = inner.clone();
            launch(async move {
                sleep(20 * MS).await?;
                deep.say("grandchild");
                Ok::<_, Error>(())
            });
            sleep(10 * MS).await?;
            inner.say("child");
            Ok::<_, Error>(())
        });
        words.say("body");
        Ok(42)
    })
    .await;
    assert_eq!(answer.unwrap(), 42);
    assert_eq!(log.text(), "body child grandchild");
    checkpoint().await.unwrap();
}

/// tree-3: a child's locals are dropped before its outcome is visible.
pub async fn tree_3_locals_are_dropped_before_the_outcome_is_visible(_lab: Lab) {
    let tally = Tally::new();
    let guard = tally.guard();
    let task = spawn(async move {
        let _guard = guard;
        checkpoint().await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(tally.drops(), 1);
}

/// tree-4: a cancel in the waiting phase goes to the children.
pub async fn tree_4_the_waiting_phase_is_not_a_point(lab: Lab) {
    let task = spawn(async {
        scope(async |s| {
            s.launch(async {
                let told = park().await;
                cleanup(sleep(100 * MS)).await?;
                told?;
                Ok::<_, Error>(())
            });
            Ok(1)
        })
        .await
    });
    lab.settle().await;
    let job = task.job();
    assert!(job.cancel("enough"));
    assert_eq!(job.state(), JobState::Cancelling);
    let before = lab.elapsed();
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(lab.elapsed() - before, 100 * MS);
}

/// tree-1: a child is attached before its first poll.
pub async fn tree_1_a_child_is_attached_before_its_first_poll(lab: Lab) {
    scope(async |s| {
        let home = s.job().id();
        let task = s.spawn(async { current_job().unwrap().parent().map(|parent| parent.id()) });
        let listed: Vec<_> = lab
            .snapshot()
            .children(home)
            .map(|child| (child.id, child.polls))
            .collect();
        assert_eq!(listed, [(task.id(), 0)]);
        assert_eq!(task.await?, Some(home));
        Ok(())
    })
    .await
    .unwrap();
}

/// tree-2: New and Completing are views of Active, then comes one of three
/// ends.
pub async fn tree_2_states_as_an_observer_sees_them(lab: Lab) {
    let gate = Gate::new();
    let (held, door) = (gate.clone(), gate.clone());
    let task = spawn(async move {
        launch(async move {
            door.wait().await;
        });
        Ok::<_, Error>(1)
    });
    let job = task.job();
    assert_eq!(job.state(), JobState::New);
    lab.settle().await;
    assert_eq!(job.state(), JobState::Completing);
    assert_eq!(job.parent(), current_job());
    held.open();
    assert_eq!(task.await.unwrap(), 1);
    assert_eq!(job.state(), JobState::Completed);
    assert_eq!(job.parent(), None);

    let job = launch(park());
    lab.settle().await;
    assert_eq!(job.state(), JobState::Active);
    assert!(job.cancel("enough"));
    assert_eq!(job.state(), JobState::Cancelling);
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(job.state(), JobState::Cancelled);

    Scope::build()
        .supervisor()
        .run(async |s| {
            let job = s.launch(async { Err::<(), _>("no") });
            assert!(job.join().await?.is_failed());
            assert_eq!(job.state(), JobState::Failed);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(lab.take_failures().len(), 1);
}

/// tree-2: whatever happens, the events show the listed edges only.
pub async fn tree_2_no_other_edge(lab: Lab) {
    let _ = Scope::build()
        .supervisor()
        .run(async |s| {
            s.launch(async { 1 });
            s.launch(async { Err::<(), _>("plain") });
            s.launch(async { raise::<()>("loud") });
            s.launch(async {
                launch(park());
                let _ = yield_now().await;
                Err::<(), _>("with a child")
            });
            let late = s.launch(async {
                let _ = park().await;
                2
            });
            let fails = s.launch(async {
                let _ = park().await;
                Err::<(), _>("while cancelled")
            });
            let early = s.launch(park());
            early.cancel("before its first poll");
            s.launch(async { timeout(5 * MS, park()).await.map(|_| ()) });
            drop(s.spawn(park()));
            lab.settle().await;
            late.cancel("late");
            fails.cancel("fails");
            sleep(10 * MS).await?;
            s.cancel("all");
            Ok(())
        })
        .await;
    assert!(lab.take_failures().len() >= 4);
    check_edges(&lab.events());
}

/// tree-2: a scope that is born marked goes through Cancelling too.
pub async fn tree_2_a_scope_that_is_born_marked_says_so(lab: Lab) {
    let task = spawn(async {
        let told = park().await;
        let inner = scope(async |_| {
            checkpoint().await?;
            Ok(())
        });
        assert!(inner.await.is_err());
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    check_edges(&lab.events());
}

/// Every job moves along `Active → Completed | Failed` or
/// `Active → Cancelling → Cancelled | Failed`, and no further.
fn check_edges(events: &[Event]) {
    let mut at: HashMap<JobId, JobState> = HashMap::new();
    for event in events {
        let EventKind::State { to } = event.kind else {
            continue;
        };
        let from = at.insert(event.job, to).unwrap_or(JobState::Active);
        let listed = matches!(
            (from, to),
            (
                JobState::Active,
                JobState::Completed | JobState::Failed | JobState::Cancelling
            ) | (JobState::Cancelling, JobState::Cancelled | JobState::Failed)
        );
        assert!(listed, "{} went from {from:?} to {to:?}", event.job);
    }
    assert!(at.values().any(|state| state.is_terminal()));
}

/// tree-2: terminal is final: a cancel after the end is false and changes
/// nothing.
/// Also: K4.
pub async fn tree_2_terminal_is_final(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let jobs = [
                s.launch(async { 1 }),
                s.launch(async { Err::<(), _>("no") }),
                s.launch(park()),
            ];
            lab.settle().await;
            assert!(jobs[2].cancel("first"));
            let mut before = Vec::new();
            for job in &jobs {
                let _ = job.join().await?;
                before.push(job.state());
            }
            assert_eq!(
                before,
                [JobState::Completed, JobState::Failed, JobState::Cancelled]
            );
            let asked = lab.counters().cancellations_requested;
            for (job, state) in jobs.iter().zip(before) {
                assert!(!job.cancel("second"));
                assert_eq!(job.state(), state);
            }
            assert_eq!(lab.counters().cancellations_requested, asked);
            assert!(jobs[0].reason().is_none());
            assert_eq!(jobs[2].reason().unwrap().text(), Some("first"));
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(lab.take_failures().len(), 1);
}

/// A child that takes 50 ms, and 50 ms more to clean up once told.
async fn slow(log: Log) -> Result<(), Error> {
    let told = sleep(50 * MS).await;
    if told.is_err() {
        cleanup(sleep(50 * MS)).await?;
    }
    log.say("child");
    told?;
    Ok(())
}

/// tree-3: on success, failure, cancel, panic and drop alike the end waits
/// for every child.
/// Also: T3.
pub async fn tree_3_every_way_to_end_waits(lab: Lab) {
    for way in ["success", "failure", "cancel", "panic", "drop"] {
        let log = Log::new();
        let (words, inner) = (log.clone(), lab.clone());
        let body = async move {
            if way == "drop" {
                let mut dropped = Box::pin(scope(async |s| {
                    s.launch(slow(words));
                    park().await?;
                    Ok(())
                }));
                assert!(futures_util::poll!(dropped.as_mut()).is_pending());
                inner.settle().await;
                return Ok(());
            }
            launch(slow(words));
            inner.settle().await;
            match way {
                "failure" => return Err(Error::msg("no")),
                "cancel" => {
                    current_job().unwrap().cancel("me");
                }
                "panic" => raise("loud"),
                _ => {}
            }
            Ok(())
        };
        let before = lab.elapsed();
        let outcome = Scope::build()
            .supervisor()
            .run(async |s| {
                let outcome = s.spawn(body).outcome().await?;
                log.say("end");
                Ok(outcome)
            })
            .await
            .unwrap();
        assert_eq!(log.text(), "child end", "{way}");
        assert_eq!(lab.elapsed() - before, 50 * MS, "{way}");
        match way {
            "success" | "drop" => assert!(outcome.is_completed(), "{way}: {outcome:?}"),
            "cancel" => assert!(outcome.is_cancelled(), "{way}: {outcome:?}"),
            _ => assert!(outcome.is_failed(), "{way}: {outcome:?}"),
        }
    }
}

/// tree-3: a child's future is dropped before its parent resumes, also if it
/// was never polled.
pub async fn tree_3_futures_are_gone_before_the_parent_resumes(lab: Lab) {
    let tally = Tally::new();
    let counts = tally.clone();
    let stopped = scope(async |s| {
        for _ in 0..3 {
            s.launch(counts.count(park()));
        }
        lab.settle().await;
        s.launch(counts.count(park()));
        assert_eq!(counts.drops(), 0);
        s.cancel("enough");
        assert_eq!(counts.drops(), 0, "nothing is dropped inside a cancel");
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(tally.drops(), 4);
}

/// tree-4: children may spawn siblings while the scope drains.
pub async fn tree_4_children_spawn_siblings_while_one_lives(lab: Lab) {
    let before = lab.elapsed();
    let log = Log::new();
    let words = log.clone();
    scope(async move |s| {
        let siblings = s.clone();
        s.launch(async move {
            sleep(10 * MS).await?;
            let more = siblings.clone();
            let said = words.clone();
            siblings.launch(async move {
                sleep(10 * MS).await?;
                more.launch(async move { said.say("third") });
                Ok::<_, Error>(())
            });
            words.say("first");
            Ok::<_, Error>(())
        });
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "first third");
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// tree-5: into a cancelled scope: born Cancelled, dropped by the call, never
/// polled, no job.
pub async fn tree_5_spawn_into_a_cancelled_scope(lab: Lab) {
    let tally = Tally::new();
    scope(async |s| {
        s.cancel("enough");
        let before = lab.counters();
        let task = s.spawn(tally.count(async { 1 }));
        assert_eq!(tally.drops(), 1);
        let job = s.launch(tally.count(async { 1 }));
        assert_eq!(tally.drops(), 2);
        assert!(task.is_ended() && job.is_ended());
        assert_eq!(task.job().state(), JobState::Cancelled);
        assert_ne!(task.id(), job.id());
        assert!(job.site().file().ends_with("tree.rs"));
        let reason = job.reason().unwrap();
        assert_eq!(reason.root_cause().kind(), ReasonKind::Asked);
        assert_eq!(reason.text(), Some("enough"));
        assert_eq!(reason.origin(), s.job().id());

        let after = lab.counters();
        assert_eq!(after.jobs_refused - before.jobs_refused, 2);
        assert_eq!(after.jobs_created, before.jobs_created);
        assert_eq!(after.jobs_cancelled, before.jobs_cancelled);
        assert_eq!(lab.snapshot().children(s.job().id()).count(), 0);

        match task.outcome().await.unwrap() {
            Outcome::Cancelled { reason, late: None } => {
                assert_eq!(reason.text(), Some("enough"));
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(tally.polls(), 0);
}

/// tree-5: into a closed or ended scope: `ScopeEnded`; every spawning verb.
pub async fn tree_5_spawn_into_a_closed_or_ended_scope(lab: Lab) {
    let tally = Tally::new();
    let refused = |s: &Scope, drops: usize| {
        let created = lab.counters().jobs_created;
        let tasks = [
            s.spawn(tally.count(async {})),
            s.spawn_now(tally.count(async {})),
            s.spawn_lazy(tally.count(async {})),
            s.spawn_service(tally.count(async {})),
        ];
        let launched = s.launch(tally.count(async {}));
        assert_eq!(tally.drops(), drops);
        assert_eq!(lab.counters().jobs_created, created);
        for job in tasks.iter().map(|task| task.job()).chain([launched]) {
            assert_eq!(job.state(), JobState::Cancelled);
            assert_eq!(job.reason().unwrap().kind(), ReasonKind::ScopeEnded);
        }
    };
    let ended = scope(async |s| {
        s.close();
        refused(&s, 5);
        Ok(s)
    })
    .await
    .unwrap();
    assert!(ended.job().is_ended());
    refused(&ended, 10);
    assert_eq!(tally.polls(), 0);
}

/// tree-5: each refused spawn is counted in `jobs_refused`, also by a scope
/// that has ended.
pub async fn tree_5_every_refusal_is_counted(lab: Lab) {
    let before = lab.counters().jobs_refused;
    let ended = scope(async |s| {
        s.close();
        s.launch(async {});
        assert_eq!(lab.counters().jobs_refused - before, 1);
        Ok(s)
    })
    .await
    .unwrap();
    assert!(ended.job().is_ended());
    ended.launch(async {});
    assert!(ended.try_spawn(async {}).is_err());
    assert_eq!(lab.counters().jobs_refused - before, 3);
}

/// tree-5: `try_spawn` hands the future back, unharmed.
pub async fn tree_5_try_spawn_hands_the_future_back(lab: Lab) {
    let tally = Tally::new();
    let back = scope(async |s| {
        s.cancel("enough");
        let before = lab.counters().jobs_refused;
        let refused = s.try_spawn(tally.count(async { 42 })).unwrap_err();
        assert!(refused.is_cancelled() && !refused.is_ended() && !refused.is_full());
        assert_eq!(lab.counters().jobs_refused - before, 1);
        Ok(refused.future)
    })
    .await
    .unwrap();
    let back = scope(async |s| {
        s.close();
        let refused = s.try_spawn(back).unwrap_err();
        assert!(refused.is_ended() && !refused.is_cancelled());
        assert!(refused.to_string().contains("closed"));
        Ok(refused.future)
    })
    .await
    .unwrap();
    assert_eq!((tally.polls(), tally.drops()), (0, 0));
    assert_eq!(spawn(back).await.unwrap(), 42);
    assert_eq!((tally.polls(), tally.drops()), (1, 1));
}

/// tree-5: a scope opened in a cancelled job is born marked, and its body is
/// entered.
pub async fn tree_5_a_scope_in_a_cancelled_job_is_entered(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let told = park().await;
        let inner = scope(async |s| {
            assert!(s.cancel_requested());
            assert_eq!(s.job().state(), JobState::Cancelling);
            words.say("entered");
            checkpoint().await?;
            words.say("never");
            Ok(())
        })
        .await;
        assert_eq!(inner.unwrap_err().kind(), ErrorKind::Cancelled);
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "entered");
}

/// tree-6: a detached job hangs from the root: not waited for, its failure
/// cancels no other job and goes to the failure hook once.
/// Also: K17, T21.
pub async fn tree_6_detached_jobs_are_nobodys_children(lab: Lab) {
    let before = lab.elapsed();
    let job = scope(async |s| {
        s.spawn(async {
            let job = detach(async {
                sleep(10 * MS).await?;
                Err::<(), _>(Error::msg("alone"))
            });
            Ok::<_, Error>(job)
        })
        .await
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), before, "nobody waited for it");
    assert_eq!(job.parent().unwrap().id(), lab.root().job().id());
    let outcome = job.join().await.unwrap();
    assert_eq!(outcome.error().unwrap().to_string(), "alone");
    assert_eq!(lab.elapsed() - before, 10 * MS);
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].to_string(), "alone");
    checkpoint().await.unwrap();
}

/// tree-6: whoever started a detached job is cancelled, before its first poll and
/// after: the job hears nothing of it, and is not waited for.
/// Also: T21.
pub async fn tree_6_a_cancel_of_the_spawner_is_not_for_detached_jobs(lab: Lab) {
    let jobs = Log::new();
    let said = jobs.clone();
    let before = lab.elapsed();
    let task = spawn(async move {
        let goes_on = |name: &'static str| {
            let said = said.clone();
            async move {
                sleep(10 * MS).await?;
                checkpoint().await?;
                said.say(name);
                Ok::<_, Error>(())
            }
        };
        detach(goes_on("before"));
        yield_now().await?;
        current_job().unwrap().cancel("enough");
        detach(goes_on("after"));
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before, "nobody waited for them");
    sleep(11 * MS).await.unwrap();
    lab.settle().await;
    let mut ended: Vec<_> = jobs.text().split(' ').map(String::from).collect();
    ended.sort();
    assert_eq!(ended, ["after", "before"]);
}

/// tree-6: a detached job inherits no deadline, no shield and no mark.
pub async fn tree_6_detached_jobs_inherit_nothing(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let seen = |words: Log| async move {
            assert_eq!(deadline(), None);
            assert!(!is_shielded() && !is_cancelled());
            checkpoint().await?;
            words.say("ran");
            Ok::<_, Error>(())
        };
        let in_time = words.clone();
        let hurried = timeout(MS, async move {
            assert!(deadline().is_some());
            detach(seen(in_time));
            Ok::<_, Error>(())
        });
        hurried.await?;
        let in_shield = words.clone();
        shield(async move {
            assert!(is_shielded());
            detach(seen(in_shield));
        })
        .await?;
        let told = park().await;
        assert!(is_cancelled());
        detach(seen(words));
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    lab.settle().await;
    assert_eq!(log.text(), "ran ran ran");
}

/// tree-7: opening and leaving is never a point and never yields, also when
/// the job is cancelled and when the turn's budget is out.
pub async fn tree_7_opening_and_leaving_never_yields(lab: Lab) {
    async fn at_once() {
        let mut opened = Box::pin(scope(async |_| Ok(1)));
        assert!(matches!(
            futures_util::poll!(&mut opened),
            Poll::Ready(Ok(1))
        ));
        let mut timed = Box::pin(timeout(MS, async { 2 }));
        assert!(matches!(
            futures_util::poll!(&mut timed),
            Poll::Ready(Ok(2))
        ));
        let mut shielded = Box::pin(shield(async { 3 }));
        assert!(matches!(
            futures_util::poll!(&mut shielded),
            Poll::Ready(Ok(3))
        ));
        let mut cleaning = Box::pin(cleanup(async { 4 }));
        assert!(matches!(
            futures_util::poll!(&mut cleaning),
            Poll::Ready(Ok(4))
        ));
    }
    at_once().await;
    let task = spawn(async {
        let told = park().await;
        at_once().await;
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());

    // Spend the whole budget of this turn: the next point yields.
    let mut points = 0;
    loop {
        let mut point = Box::pin(checkpoint());
        if futures_util::poll!(&mut point).is_pending() {
            break;
        }
        points += 1;
        assert!(points < 1_000_000, "points never yield");
    }
    at_once().await;
}

/// A chain of tasks, each the child of the one before; the last one parks.
fn chain(depth: usize, tally: Tally) -> Pin<Box<dyn Future<Output = Result<u32, Error>> + Send>> {
    Box::pin(async move {
        let _guard = tally.guard();
        if depth == 0 {
            sleep(10 * MS).await?;
            return Ok(1);
        }
        Ok(spawn(chain(depth - 1, tally)).await? + 1)
    })
}

/// tree-8: deep and wide trees are built, completed, cancelled and dropped.
pub async fn tree_8_deep_and_wide_trees_come_and_go(lab: Lab) {
    const MANY: usize = 300;
    let living = lab.counters().living();

    let deep = Tally::new();
    let value = spawn(chain(MANY, deep.clone())).await.unwrap();
    assert_eq!(value as usize, MANY + 1);
    assert_eq!(deep.drops(), MANY + 1);

    let cancelled = spawn(chain(MANY, deep.clone()));
    lab.settle().await;
    assert_eq!(lab.counters().living(), living + MANY as u64 + 1);
    cancelled.cancel("enough");
    assert!(cancelled.outcome().await.unwrap().is_cancelled());
    assert_eq!(deep.drops(), 2 * (MANY + 1));

    scope(async |s| {
        let dropped = s.spawn(chain(MANY, deep.clone()));
        lab.settle().await;
        drop(dropped);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(deep.drops(), 3 * (MANY + 1));

    let wide = Tally::new();
    let before = lab.counters();
    let stopped = scope(async |s| {
        for _ in 0..MANY {
            s.launch(wide.count(park()));
        }
        lab.settle().await;
        assert_eq!(lab.snapshot().children(s.job().id()).count(), MANY);
        s.cancel("enough");
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(wide.drops(), MANY);
    let after = lab.counters();
    assert_eq!(
        after.jobs_cancelled - before.jobs_cancelled,
        MANY as u64 + 1
    );
    assert_eq!(after.living(), living);
}
