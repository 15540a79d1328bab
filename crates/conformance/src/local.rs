//! `local_scope`: children that borrow, polled inside the task that opened it.

use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobKind, JobState, LocalScope, Patience, ReasonKind, Result, checkpoint,
    cleanup, current_job, local_scope, park, race, sleep, spawn, timeout, yield_now,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Sleeps and gives the length.
async fn length(wait: Duration, text: &str) -> Result<usize> {
    sleep(wait).await?;
    Ok(text.len())
}

/// Waits to be told, cleans up, says so.
async fn hears(log: &Log, word: &str) -> Result<()> {
    let Err(told) = park().await;
    log.say(format!("{word}:{:?}", told.reason().root_cause().kind()));
    cleanup(sleep(MS)).await?;
    log.say(format!("{word}:clean"));
    Err(told.into())
}

fn sorted(log: &Log) -> Vec<String> {
    let text = log.text();
    let mut words: Vec<String> = text.split(' ').map(String::from).collect();
    words.sort();
    words
}

/// handle-8: children borrow from outside the scope, mutably too; the body awaits
/// them, and what they borrowed is free afterwards.
pub async fn handle_8_children_of_a_local_scope_borrow(lab: Lab) {
    let text = String::from("borrowed");
    let mut count = 0;
    let mut list = vec![1, 2];
    let sum = local_scope(async |s| {
        let a = s.spawn(length(2 * MS, &text));
        let b = s.spawn(async { length(MS, &text).await });
        let c = s.spawn(async {
            sleep(MS).await?;
            count += 1;
            Ok::<_, Error>(&text[..2])
        });
        s.launch(async { list.push(3) });
        Ok(a.await? + b.await? + c.await?.len())
    })
    .await
    .unwrap();
    assert_eq!((sum, count, list), (18, 1, vec![1, 2, 3]));
    assert_eq!(lab.elapsed(), 2 * MS);
}

/// handle-8: a child is a job of the tree: named, of its own kind, below the
/// scope, and there from its spawn on.
pub async fn handle_8_a_local_child_is_a_job_of_the_tree(lab: Lab) {
    let gate = Gate::new();
    local_scope(async |s| {
        let child = s.task("reader").spawn(async {
            gate.wait().await;
            current_job().map(|job| job.id())
        });
        let job = child.job();
        assert_eq!(
            (job.kind(), job.state()),
            (JobKind::LocalTask, JobState::New)
        );
        assert_eq!(
            (job.name(), job.parent()),
            ("reader".into(), Some(s.scope().job()))
        );
        assert!(lab.snapshot().to_string().contains("reader"));
        yield_now().await?;
        assert_eq!(job.state(), JobState::Active);
        gate.open();
        assert_eq!(child.await?, Some(job.id()));
        assert_eq!(job.state(), JobState::Completed);
        let unnamed = s.spawn(async {});
        let name = unnamed.job().name();
        assert!(name.starts_with("local task@local.rs:"), "{name}");
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-8: the scope waits for children that are not awaited, also for those that
/// children spawn while others run, after the body is over.
pub async fn handle_8_a_local_scope_waits_for_all(lab: Lab) {
    fn nested<'env>(s: LocalScope<'env>, left: usize, done: &'env AtomicUsize) {
        if left > 0 {
            let inner = s.clone();
            s.launch(async move {
                sleep(MS).await?;
                nested(inner, left - 1, done);
                done.fetch_add(1, SeqCst);
                Ok::<_, Error>(())
            });
        }
    }
    let done = AtomicUsize::new(0);
    let got = local_scope(async |s| {
        nested(s.clone(), 5, &done);
        nested(s, 3, &done);
        Ok(7)
    })
    .await;
    assert_eq!((got.unwrap(), done.load(SeqCst)), (7, 8));
    assert_eq!(lab.elapsed(), 5 * MS);
}

/// handle-8: polled inside the same task, one at a time, never in parallel.
pub async fn handle_8_local_children_take_turns_in_one_task(_lab: Lab) {
    let inside = AtomicUsize::new(0);
    let order = Mutex::new(Vec::new());
    let worker = async |n: usize| {
        for _ in 0..5 {
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at once");
            order.lock().unwrap().push(n);
            inside.fetch_sub(1, SeqCst);
            yield_now().await?;
        }
        Ok::<_, Error>(())
    };
    local_scope(async |s| {
        for n in 0..3 {
            s.launch(worker(n));
        }
        Ok(())
    })
    .await
    .unwrap();
    let order = order.into_inner().unwrap();
    assert_eq!(order, [0, 1, 2].repeat(5));
}

/// handle-8: a child that fails cancels its siblings and the body; the call
/// returns its error when all have ended. A panic is a failure.
/// Also: outcome-2.
pub async fn handle_8_a_local_child_that_fails_fails_the_scope(lab: Lab) {
    let log = Log::new();
    let got: Result<()> = local_scope(async |s| {
        s.launch(hears(&log, "sibling"));
        s.task("bad").launch(async {
            sleep(MS).await?;
            Err::<(), _>(Error::msg("no"))
        });
        hears(&log, "body").await
    })
    .await;
    let error = got.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Failed, "no".into())
    );
    assert_eq!(error.job_name().unwrap(), "bad");
    let said = sorted(&log);
    let child_failed = ReasonKind::ChildFailed;
    assert_eq!(
        said,
        [
            format!("body:{child_failed:?}"),
            "body:clean".into(),
            format!("sibling:{child_failed:?}"),
            "sibling:clean".into(),
        ]
    );
    assert_eq!(lab.elapsed(), 2 * MS);

    let got: Result<()> = local_scope(async |s| {
        let bad = s.spawn(async {
            assert!(checkpoint().await.is_err(), "boom");
        });
        assert_eq!(bad.await.unwrap_err().kind(), ErrorKind::Panicked);
        Ok(())
    })
    .await;
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Panicked);
    assert!(lab.take_failures().is_empty());
}

/// handle-8: the body's failure cancels the children, which are told and waited
/// for; no child is taken any more.
pub async fn handle_8_the_body_of_a_local_scope_fails(_lab: Lab) {
    let log = Log::new();
    let tally = Tally::new();
    let kept = Mutex::new(None);
    let got: Result<()> = local_scope(async |s| {
        s.launch(hears(&log, "child"));
        yield_now().await?;
        // Spawned and never polled: it hears nothing.
        let unpolled = tally.count(pending::<()>());
        s.launch(unpolled);
        *kept.lock().unwrap() = Some(s.clone());
        Err(Error::msg("body"))
    })
    .await;
    assert_eq!(got.unwrap_err().to_string(), "body");
    assert_eq!(
        log.text(),
        format!("child:{:?} child:clean", ReasonKind::BodyFailed)
    );
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
    // The scope is over, whatever holds it.
    let late = kept.lock().unwrap().take().unwrap();
    let refused = late.spawn(tally.count(pending::<()>()));
    assert_eq!((tally.polls(), tally.drops()), (0, 2));
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Stopped);
}

/// handle-8: a child cancelled alone is no failure: its awaiter gets Stopped, the
/// others go on. A handle that is dropped cancels; one that is given up does not.
pub async fn handle_8_a_local_child_cancelled_alone(_lab: Lab) {
    let log = Log::new();
    let got = local_scope(async |s| {
        let asked = s.spawn(hears(&log, "asked"));
        let dropped = s.spawn(hears(&log, "dropped"));
        let kept = s.spawn(async {
            sleep(10 * MS).await?;
            log.say("kept");
            Ok::<_, Error>(())
        });
        let early = s.spawn(async { log.say("never") });
        early.cancel("before its first poll");
        yield_now().await?;
        assert!(early.is_ended());
        asked.cancel("enough");
        drop(dropped);
        drop(kept.into_job());
        let error = asked.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert_eq!(early.await.unwrap_err().kind(), ErrorKind::Stopped);
        checkpoint().await?;
        Ok(1)
    })
    .await;
    assert_eq!(got.unwrap(), 1);
    let said = sorted(&log);
    assert_eq!(
        said,
        [
            format!("asked:{:?}", ReasonKind::Asked),
            "asked:clean".into(),
            format!("dropped:{:?}", ReasonKind::HandleDropped),
            "dropped:clean".into(),
            "kept".into(),
        ]
    );
}

/// handle-8: a cancel of the task tells the body and every child, and is waited
/// for. A body that has a value while a child was cut short gives Cancelled.
pub async fn handle_8_a_cancel_tells_local_children(lab: Lab) {
    let log = Log::new();
    let heard = log.clone();
    let task = spawn(async move {
        let got = local_scope(async |s| {
            s.launch(hears(&heard, "a"));
            s.launch(hears(&heard, "b"));
            Ok(3)
        })
        .await;
        heard.say(format!("{:?}", got.as_ref().map_err(Error::kind)));
        got
    });
    lab.settle().await;
    task.cancel("");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(log.text().ends_with("Err(Cancelled)"), "{}", log.text());
    let asked = ReasonKind::Asked;
    let told = |word| [format!("{word}:{asked:?}"), format!("{word}:clean")];
    let mut expected = [
        told("a"),
        told("b"),
        ["Err(Cancelled)".into(), String::new()],
    ]
    .concat();
    expected.pop();
    expected.sort();
    assert_eq!(sorted(&log), expected);
}

/// handle-8: a waiter that is cancelled gets the late value of the child it waits
/// for, as with a task.
pub async fn handle_8_a_late_value_of_a_local_child(lab: Lab) {
    let task = spawn(async {
        local_scope(async |s| {
            let late = s.spawn(async {
                let _ = park().await;
                5
            });
            late.await
        })
        .await
    });
    lab.settle().await;
    task.cancel("");
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(5));
}

/// handle-8: dropping the scope half-way drops the children there: those that have
/// begun are forced and counted, the others were never polled. What they had
/// spawned in parallel is cancelled and waited for.
pub async fn handle_8_dropping_a_local_scope_forces_its_children(lab: Lab) {
    let tally = Tally::new();
    let unpolled = Tally::new();
    let log = Log::new();
    let before = lab.counters().jobs_force_dropped;
    {
        let told = log.clone();
        let mut scope = Box::pin(local_scope(async |s| {
            s.launch(tally.count(pending::<()>()));
            s.launch(tally.count(async {
                sleep(HOUR).await?;
                Ok::<_, Error>(())
            }));
            s.scope()
                .launch(async move { hears(&told, "parallel").await });
            pending::<()>().await;
            s.launch(async {});
            Ok(())
        }));
        let mut turn = 0;
        std::future::poll_fn(|cx| {
            turn += 1;
            assert!(scope.as_mut().poll(cx).is_pending());
            if turn == 2 {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
        assert_eq!((tally.polls() >= 2, tally.drops()), (true, 0));
    }
    assert_eq!(tally.drops(), 2);
    assert_eq!(lab.counters().jobs_force_dropped, before + 2);
    {
        let mut scope = Box::pin(local_scope(async |s| {
            yield_now().await?;
            s.launch(unpolled.count(pending::<()>()));
            s.scope().cancel("all of it");
            Ok(())
        }));
        std::future::poll_fn(|cx| {
            let _ = scope.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
    }
    assert_eq!(unpolled.polls(), 0);
    assert_eq!(lab.counters().jobs_force_dropped, before + 2);
    lab.settle().await;
}

/// handle-8: a child in a foreign await that hears nothing is dropped alone when
/// patience with it is spent; the body, which waits for it, goes on.
pub async fn handle_8_a_deaf_local_child_is_forced_alone(lab: Lab) {
    let tally = Tally::new();
    let before = lab.counters().jobs_force_dropped;
    let got = local_scope(async |s| {
        let deaf = s.spawn(tally.count(pending::<()>()));
        let other = s.spawn(length(HOUR, "other"));
        yield_now().await?;
        deaf.cancel("deaf");
        assert_eq!(deaf.await.unwrap_err().kind(), ErrorKind::Stopped);
        other.await
    })
    .await;
    assert_eq!(got.unwrap(), 5);
    assert_eq!(tally.drops(), 1);
    assert_eq!(lab.counters().jobs_force_dropped, before + 1);
    assert_eq!(lab.elapsed(), HOUR);
}

/// handle-8: a local child may have a patience of its own, which what it spawns inherits.
/// Also: cancel-6.
pub async fn handle_8_a_local_child_has_a_patience_of_its_own(lab: Lab) {
    let before = lab.counters().jobs_force_dropped;
    let got = local_scope(async |s| {
        let patience = |unaware| Patience {
            unaware,
            ..Patience::default()
        };
        let quick = s.task("quick").patience(patience(10 * MS));
        let quick = quick.spawn(async {
            kinfolk_core::launch(pending::<()>());
            pending::<()>().await;
        });
        let slow = s.task("slow").patience(patience(500 * MS));
        let slow = slow.spawn(pending::<()>());
        // Until all of them have begun: what was never polled is no forced drop.
        sleep(MS).await?;
        let begin = lab.elapsed();
        quick.cancel("deaf");
        slow.cancel("deaf");
        assert_eq!(quick.await.unwrap_err().kind(), ErrorKind::Stopped);
        let quick = lab.elapsed() - begin;
        assert_eq!(slow.await.unwrap_err().kind(), ErrorKind::Stopped);
        Ok((quick, lab.elapsed() - begin))
    })
    .await;
    let (quick, slow) = got.unwrap();
    assert!((10 * MS..100 * MS).contains(&quick), "{quick:?}");
    assert!((500 * MS..600 * MS).contains(&slow), "{slow:?}");
    assert_eq!(lab.counters().jobs_force_dropped, before + 3);
}

/// handle-8: inside a timeout and as a branch that loses, the children hear it.
pub async fn handle_8_a_local_scope_in_a_timeout_and_a_race(lab: Lab) {
    let log = Log::new();
    let slow = local_scope(async |s| {
        s.launch(hears(&log, "child"));
        Ok(())
    });
    assert_eq!(
        timeout(SEC, slow).await.unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    assert_eq!(
        log.text(),
        format!("child:{:?} child:clean", ReasonKind::Deadline)
    );
    let log = Log::new();
    let loser = async {
        local_scope(async |s| {
            s.launch(hears(&log, "loser"));
            Ok(())
        })
        .await
    };
    let winner = async {
        sleep(MS).await?;
        Ok::<_, Error>(())
    };
    race((loser, winner)).await.unwrap();
    assert_eq!(
        log.text(),
        format!("loser:{:?} loser:clean", ReasonKind::RaceLost)
    );
    // Deaf ones are dropped there: a deadline has no patience.
    let deaf = local_scope(async |s| s.spawn(pending::<()>()).await);
    let before = lab.elapsed();
    assert_eq!(
        timeout(SEC, deaf).await.unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    assert_eq!(lab.elapsed() - before, SEC);
}

/// handle-8: an interrupt is the task's: the job that awaits a child is told, the
/// children are not.
pub async fn handle_8_an_interrupt_is_not_for_local_children(lab: Lab) {
    let log = Log::new();
    let heard = log.clone();
    let task = spawn(async move {
        local_scope(async |s| {
            let mut child = s.spawn(async {
                sleep(10 * MS).await?;
                heard.say("done");
                Ok::<_, Error>(4)
            });
            let told = (&mut child).await.unwrap_err();
            assert_eq!(told.reason().unwrap().kind(), ReasonKind::Interrupted);
            child.await
        })
        .await
    });
    lab.settle().await;
    task.interrupt("hurry");
    assert_eq!(task.await.unwrap(), 4);
    assert_eq!(log.text(), "done");
}

/// handle-8: a child that waits for its own scope, or for itself, is told that it
/// would wait for ever.
pub async fn handle_8_a_local_child_cannot_wait_for_its_scope(_lab: Lab) {
    local_scope(async |s| {
        let scope = s.scope().job();
        let child = s.spawn(async move {
            let outcome = scope.join().await?;
            Ok::<_, Error>(outcome.is_failed())
        });
        assert!(child.await?);
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-8: a turn costs what was woken: of many children one is polled.
pub async fn handle_8_only_woken_local_children_are_polled(lab: Lab) {
    let gates: Vec<Gate> = (0..100).map(|_| Gate::new()).collect();
    let tally = Tally::new();
    local_scope(async |s| {
        for gate in &gates {
            s.launch(tally.count(gate.wait()));
        }
        yield_now().await?;
        let polls = tally.polls();
        assert_eq!(polls, 100);
        for (n, gate) in gates.iter().enumerate() {
            gate.open();
            yield_now().await?;
            yield_now().await?;
            assert_eq!(tally.polls(), polls + n + 1);
        }
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), Duration::ZERO);
}

/// outcome-6: a local child that returned its value before it was cancelled was not
/// cut short: its scope keeps its own value, as with a task. Also: handle-8.
pub async fn outcome_6_a_late_value_of_a_local_child_cuts_nothing_short(lab: Lab) {
    let task = spawn(async {
        local_scope(async |s| {
            s.launch(async {
                spawn(async { park().await }).into_job();
                5
            });
            Ok(7)
        })
        .await
    });
    lab.settle().await;
    task.cancel("");
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(7));
}
