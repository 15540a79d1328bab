//! Where and when a cancel is delivered: group D of the conformance cases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Job, JobState, Outcome, Scope, cancel_current, checkpoint, cleanup,
    current_job, is_cancelled, launch, on_cancel, park, scope, shield, sleep, spawn, timeout,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A body that waits in a point.
async fn parked() -> Result<(), Error> {
    park().await?;
    Ok(())
}

/// D01: cancelled before its first poll: never polled, captures dropped.
/// Also: cancel-2, M3.
pub async fn case_d01_cancelled_before_its_first_poll(_lab: Lab) {
    let tally = Tally::new();
    let guard = tally.guard();
    let task = spawn(tally.count(async move {
        let _guard = guard;
        7
    }));
    assert_eq!(task.job().state(), JobState::New);
    assert!(task.cancel("at once"));
    let outcome = task.outcome().await.unwrap();
    let Outcome::Cancelled { reason, late } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((reason.text(), late), (Some("at once"), None));
    assert_eq!((tally.polls(), tally.drops()), (0, 2));
}

/// D02: an atomic start reaches its first point even if cancelled before.
pub async fn case_d02_an_atomic_start_reaches_its_first_point(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = Scope::current().unwrap().spawn_atomic(async move {
        words.say("begun");
        assert!(is_cancelled());
        checkpoint().await?;
        words.say("missed");
        Ok::<_, Error>(())
    });
    assert!(task.cancel("before its start"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "begun");
}

/// D03: the reason given before the start is the reason in the outcome.
pub async fn case_d03_a_reason_given_before_the_start(_lab: Lab) {
    let task = spawn(parked());
    let (id, line) = (task.id(), line!() + 1);
    assert!(task.cancel("not needed"));
    let outcome = task.outcome().await.unwrap();
    let reason = outcome.reason().unwrap();
    assert_eq!(reason.text(), Some("not needed"));
    assert_eq!((reason.origin(), reason.site().line()), (id, line));
}

/// D04: cancelled from another thread while it runs: undisturbed up to its
/// next point.
/// Also: cancel-2, M4.
pub async fn case_d04_cancelled_from_another_thread_while_running(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let job = current_job().unwrap();
        let thread = std::thread::spawn(move || job.cancel("from a thread"));
        assert!(thread.join().unwrap());
        words.say("undisturbed");
        let told = checkpoint().await.unwrap_err();
        words.say(told.reason().text().unwrap());
        Err::<(), _>(told)
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "undisturbed from a thread");
}

/// D05: cancelled in a sleep: told without the clock moving, and its timer is
/// gone.
/// Also: cancel-2, M5, T18.
pub async fn case_d05_cancelled_in_a_sleep(lab: Lab) {
    let task = spawn(sleep(HOUR));
    lab.settle().await;
    let before = lab.elapsed();
    assert_eq!(lab.counters().timers_pending(), 1);
    assert!(task.cancel("wake up"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
    let counters = lab.counters();
    assert_eq!(counters.timers_pending(), 0);
    assert_eq!((counters.timers_fired, counters.timers_cancelled), (0, 1));
}

/// D06: cancelled in a wait that is no point: not told; it gets its value, and
/// the next point tells it.
/// Also: cancel-2, M6.
pub async fn case_d06_cancelled_in_a_wait_that_is_no_point(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let value = async {
            held.wait().await;
            1
        }
        .await;
        words.say(format!("got {value}"));
        checkpoint().await?;
        words.say("missed");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(task.cancel("later"));
    lab.settle().await;
    assert_eq!(log.text(), "");
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "got 1");
}

/// D06: the same in a wait of ours that is no point: a child task's own
/// value, late included, is what its cancelled waiter gets.
pub async fn case_d06_cancelled_while_awaiting_a_child(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let child = spawn(async {
            let _told = park().await;
            1
        });
        words.say(format!("got {}", child.await?));
        checkpoint().await?;
        words.say("missed");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(task.cancel("both"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "got 1");
}

/// D07: a task that cancels itself runs on to its next point.
/// Also: K29.
pub async fn case_d07_a_task_cancels_itself(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let before = lab.elapsed();
    let task = spawn(async move {
        assert!(cancel_current("enough"));
        assert!(!cancel_current("again"));
        words.say("still here");
        sleep(100_000 * MS).await?;
        words.say("missed");
        Ok::<_, Error>(())
    });
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("enough"));
    assert_eq!(log.text(), "still here");
    assert_eq!(lab.elapsed(), before);
    assert_eq!(lab.counters().timers_set, 0);
}

/// D08: a task that cancels itself and returns a value ends Cancelled, with
/// the value as a late one.
/// Also: K16.
pub async fn case_d08_a_task_cancels_itself_and_returns(_lab: Lab) {
    let task = spawn(async {
        assert!(cancel_current("at the end"));
        12
    });
    let job = task.job();
    let outcome = task.outcome().await.unwrap();
    let Outcome::Cancelled { reason, late } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((reason.text(), late), (Some("at the end"), Some(12)));
    assert_eq!(job.state(), JobState::Cancelled);
    assert!(!job.cancel("too late"));
}

/// D09: `cancel` on a finished job returns false, changes nothing and runs no
/// hook.
pub async fn case_d09_cancelling_a_finished_job(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        on_cancel(move |_| words.say("hook")).keep();
        7
    });
    let job = task.job();
    let joined = job.join().await.unwrap();
    assert!(joined.is_completed());
    let before = lab.counters();
    assert!(!job.cancel("too late"));
    assert!(!task.cancel("too late"));
    assert_eq!(lab.counters(), before);
    assert_eq!(
        (job.state(), job.cancel_requested()),
        (JobState::Completed, false)
    );
    assert!(job.reason().is_none());
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(log.text(), "");
}

/// D11: the host is cancelled while it leaves its scope: the child is
/// cancelled, the host waits for it, and the scope returns Cancelled.
pub async fn case_d11_cancelled_while_leaving_a_scope(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let host = spawn(async move {
        let said = words.clone();
        let left = scope(async |s| {
            s.launch(async move {
                let told = park().await;
                cleanup(sleep(30 * MS)).await?;
                said.say("child");
                told?;
                Ok::<_, Error>(())
            });
            Ok(7)
        })
        .await;
        words.say(format!("{:?}", left.as_ref().unwrap_err().kind()));
        left
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(host.cancel("leave"));
    lab.settle().await;
    assert_eq!(log.text(), "");
    let outcome = host.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert!(outcome.into_value().is_none());
    assert_eq!(log.text(), "child Cancelled");
    assert_eq!(lab.elapsed() - before, 30 * MS);
}

/// D12: when `cancel` returns, all six descendants in a two-by-two tree are
/// marked, and all four leaves are told.
/// Also: K10.
pub async fn case_d12_a_tree_of_two_by_two(lab: Lab) {
    let jobs = Arc::new(Mutex::new(Vec::<Job>::new()));
    let log = Log::new();
    let (list, words) = (jobs.clone(), log.clone());
    let top = spawn(async move {
        for _ in 0..2 {
            let (list, words) = (list.clone(), words.clone());
            launch(async move {
                list.lock().unwrap().push(current_job().unwrap());
                for _ in 0..2 {
                    let (list, words) = (list.clone(), words.clone());
                    launch(async move {
                        list.lock().unwrap().push(current_job().unwrap());
                        let told = park().await;
                        words.say("told");
                        told.map(|_| ())
                    });
                }
                parked().await
            });
        }
        parked().await
    });
    lab.settle().await;
    assert!(top.cancel("all of them"));
    let jobs = std::mem::take(&mut *jobs.lock().unwrap());
    assert_eq!(jobs.len(), 6);
    assert!(jobs.iter().all(Job::cancel_requested));
    assert!(top.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "told told told told");
    assert!(jobs.iter().all(|job| job.state() == JobState::Cancelled));
}

/// D13: cancelling one node wakes it and its five descendants, once each, and
/// neither its parent nor its sibling.
pub async fn case_d13_only_the_descendants_are_woken(lab: Lab) {
    let below = Tally::new();
    let around = Tally::new();
    let (inside, beside) = (below.clone(), around.clone());
    let slot = Arc::new(Mutex::new(None));
    let found = slot.clone();
    let parent = spawn(around.count(async move {
        launch(beside.count(parked()));
        let counted = inside.clone();
        let node = launch(inside.count(async move {
            let deep = counted.clone();
            // A child with two children, one of which has one more.
            launch(counted.count(async move {
                let deepest = deep.clone();
                launch(deep.count(async move {
                    launch(deepest.count(parked()));
                    parked().await
                }));
                launch(deep.count(parked()));
                parked().await
            }));
            launch(counted.count(parked()));
            parked().await
        }));
        *found.lock().unwrap() = Some(node);
        parked().await
    }));
    lab.settle().await;
    assert_eq!((below.polls(), around.polls()), (6, 2));
    let node = slot.lock().unwrap().take().unwrap();
    assert!(node.cancel("this branch"));
    lab.settle().await;
    assert_eq!(node.state(), JobState::Cancelled);
    assert_eq!((below.polls(), below.drops()), (12, 6));
    assert_eq!((around.polls(), around.drops()), (2, 0));
    assert_eq!(parent.job().state(), JobState::Active);
    assert!(parent.cancel("the rest"));
    assert!(parent.outcome().await.unwrap().is_cancelled());
}

/// D15: a job made under a cancelled parent is cancelled from birth; either
/// may be dropped first.
/// Also: tree-5.
pub async fn case_d15_a_child_of_a_cancelled_parent(lab: Lab) {
    let refused = lab.counters().jobs_refused;
    for child_first in [true, false] {
        let tally = Tally::new();
        let counted = tally.count(parked());
        let slot = Arc::new(Mutex::new(None));
        let kept = slot.clone();
        let parent = spawn(async move {
            assert!(cancel_current("too late"));
            let child = spawn(counted);
            assert_eq!(child.job().state(), JobState::Cancelled);
            assert_eq!(child.job().reason().unwrap().text(), Some("too late"));
            // A scope is born marked, and entered.
            scope(async |s| {
                assert!(s.cancel_requested() && is_cancelled());
                Ok(())
            })
            .await?;
            if child_first {
                drop(child);
            } else {
                *kept.lock().unwrap() = Some(child);
            }
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        assert!(parent.outcome().await.unwrap().is_cancelled());
        assert_eq!((tally.polls(), tally.drops()), (0, 1));
        let child = slot.lock().unwrap().take();
        assert_eq!(child.is_none(), child_first);
        if let Some(child) = child {
            assert!(child.outcome().await.unwrap().is_cancelled());
        }
    }
    assert_eq!(lab.counters().jobs_refused, refused + 2);
}

/// D18: a task that has joined a sibling and is cancelled leaves the sibling
/// alone.
pub async fn case_d18_join_leaves_its_target_alone(lab: Lab) {
    let target = spawn(async {
        sleep(20 * MS).await?;
        Ok::<_, Error>(7)
    });
    let watched = target.job();
    let joiner = spawn(async move {
        let ended = watched.join().await?;
        Ok::<_, Error>(ended.is_completed())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(joiner.cancel("only the joiner"));
    assert!(joiner.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
    assert!(!target.job().cancel_requested());
    assert_eq!(target.await.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// D20: a cancelled task enters a scope, a supervisor, a timeout and a shield:
/// each body is entered, its first point fails (in a shield it does not), and
/// nothing yields.
/// Also: tree-7.
pub async fn case_d20_a_cancelled_task_enters_scopes(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let tally = Tally::new();
    let task = spawn(tally.count(async move {
        let body = |name: &'static str| {
            let words = &words;
            async move {
                words.say(name);
                checkpoint().await?;
                words.say("past");
                Ok::<_, Error>(())
            }
        };
        assert!(cancel_current("already"));
        let told = scope(async |_| body("scope").await).await;
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Cancelled);
        let told = Scope::build()
            .supervisor()
            .run(async |_| body("supervisor").await)
            .await;
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Cancelled);
        let told = timeout(HOUR, body("timeout")).await;
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Cancelled);
        shield(body("shield")).await.unwrap();
        checkpoint().await?;
        words.say("missed");
        Ok::<_, Error>(())
    }));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "scope supervisor timeout shield past");
    assert_eq!(tally.polls(), 1);
}

/// D21: cancelling twice runs hooks once, and the second call wakes no task.
/// Also: T2.
pub async fn case_d21_cancelling_twice(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let log = Log::new();
    let words = log.clone();
    let tally = Tally::new();
    let task = spawn(tally.count(async move {
        on_cancel(move |reason| words.say(reason.text().unwrap())).keep();
        held.wait().await;
        checkpoint().await
    }));
    lab.settle().await;
    assert_eq!(tally.polls(), 1);
    assert!(task.cancel("once"));
    lab.settle().await;
    let polls = tally.polls();
    assert!(polls <= 2, "{polls}");
    assert!(!task.cancel("twice"));
    lab.settle().await;
    assert_eq!(tally.polls(), polls);
    assert_eq!(log.text(), "once");
    gate.open();
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("once"));
    assert_eq!(log.text(), "once");
}

/// D22: a scope that is cancelled and returns a value without a point keeps
/// it, and its caller is not cancelled.
/// Also: outcome-6.
pub async fn case_d22_cancelled_and_not_caught(_lab: Lab) {
    let kept = Arc::new(Mutex::new(None));
    let answer = scope(async |s| {
        *kept.lock().unwrap() = Some(s.clone());
        assert!(s.cancel("no matter"));
        Ok(7)
    })
    .await;
    assert_eq!(answer.unwrap(), 7);
    let scope = kept.lock().unwrap().take().unwrap();
    assert!(scope.cancel_requested());
    assert_eq!(scope.cancel_reason().unwrap().text(), Some("no matter"));
    // The node ends as its states say, whatever the call returned.
    assert_eq!(scope.job().state(), JobState::Cancelled);
    checkpoint().await.unwrap();
}

/// D24: of four threads that cancel at once exactly one call returns true; the
/// task is told, and not polled on any of them.
/// Also: cancel-1, M2.
pub async fn case_d24_four_threads_cancel_at_once(lab: Lab) {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = threads.clone();
    let mut body = Box::pin(parked());
    let task = spawn(std::future::poll_fn(move |cx| {
        seen.lock().unwrap().push(std::thread::current().id());
        body.as_mut().poll(cx)
    }));
    lab.settle().await;
    let start = Arc::new(std::sync::Barrier::new(4));
    let cancellers: Vec<_> = (0..4)
        .map(|_| {
            let (job, start) = (task.job(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                (std::thread::current().id(), job.cancel("at once"))
            })
        })
        .collect();
    let answers: Vec<_> = cancellers.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(answers.iter().filter(|(_, moved)| *moved).count(), 1);
    assert!(task.outcome().await.unwrap().is_cancelled());
    let polled_on = threads.lock().unwrap().clone();
    assert_eq!(polled_on.len(), 2);
    assert!(
        answers
            .iter()
            .all(|(thread, _)| !polled_on.contains(thread))
    );
}

/// D26: what a task waits for is cancelled by its owner and so is the task:
/// one Cancelled, no double wake.
pub async fn case_d26_both_the_waiter_and_its_target(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let target = spawn(parked());
    let watched = target.job();
    let tally = Tally::new();
    let waiter = spawn(tally.count(async move {
        let told = watched.join().await;
        held.wait().await;
        told.map(|outcome| assert!(outcome.is_completed()))
    }));
    lab.settle().await;
    assert_eq!(tally.polls(), 1);
    assert!(target.cancel("its owner"));
    assert!(waiter.cancel("itself"));
    lab.settle().await;
    assert_eq!(target.job().state(), JobState::Cancelled);
    assert_eq!(tally.polls(), 2);
    gate.open();
    let outcome = waiter.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("itself"));
    assert!(target.outcome().await.unwrap().is_cancelled());
}
