//! Handles: owning a task, watching one, leases, services, soft stops.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, Outcome, ReasonKind, Scope, Task, cancel_current, checkpoint,
    cleanup, current_job, deadline, detach, is_cancelled, is_shielded, launch, park, scope, shield,
    sleep, spawn, timeout, yield_now,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// A place for something that another task is to find.
struct Place<T>(Arc<Mutex<Option<T>>>);

impl<T> Place<T> {
    fn new() -> Place<T> {
        Place(Arc::default())
    }

    fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Place<T> {
        Place(self.0.clone())
    }
}

/// A body that parks, cleans up for 20 ms once told, and says so.
async fn stubborn(log: Log, word: &'static str) -> Result<(), Error> {
    let told = park().await;
    cleanup(sleep(20 * MS)).await?;
    log.say(word);
    told?;
    Ok(())
}

// --- handle-1 ---

/// handle-1: dropping a `Task` cancels the task; the parent still waits.
/// Also: T4, T5.
pub async fn handle_1_dropping_a_task_cancels_it_and_the_parent_waits(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let before = lab.elapsed();
    scope(async |s| {
        let deep = words.clone();
        let task = s.spawn(async move {
            launch(stubborn(deep.clone(), "grandchild"));
            stubborn(deep, "child").await
        });
        let job = task.job();
        lab.settle().await;
        drop(task);
        assert_eq!(job.state(), JobState::Cancelling);
        assert_eq!(job.reason().unwrap().kind(), ReasonKind::HandleDropped);
        assert_eq!(job.parent(), Some(s.job()));
        words.say("body");
        Ok(())
    })
    .await
    .unwrap();
    assert!(matches!(
        &*log.text(),
        "body child grandchild" | "body grandchild child"
    ));
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// handle-1: an observer may be cloned and dropped as one likes.
pub async fn handle_1_dropping_an_observer_does_nothing(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    scope(async move |s| {
        let job = s.launch(async move {
            sleep(10 * MS).await?;
            words.say("done");
            Ok::<_, Error>(())
        });
        drop(job.clone());
        lab.settle().await;
        drop(job);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "done");
}

/// handle-1: `join()` gives an untyped outcome, `outcome()` the typed one.
pub async fn handle_1_observers_and_owners_learn_how_it_ended(lab: Lab) {
    let task = spawn(async { 7 });
    let job = task.job();
    assert!(matches!(job.join().await, Ok(Outcome::Completed(()))));
    assert!(matches!(task.outcome().await, Ok(Outcome::Completed(7))));
    assert!(matches!(job.join().await, Ok(Outcome::Completed(()))));

    let task = spawn(async {
        let _ = park().await;
        8
    });
    let job = task.job();
    lab.settle().await;
    job.cancel("why");
    match job.join().await.unwrap() {
        Outcome::Cancelled { reason, late: None } => assert_eq!(reason.text(), Some("why")),
        other => panic!("{other:?}"),
    }
    match task.outcome().await.unwrap() {
        Outcome::Cancelled { reason, late } => {
            assert_eq!(reason.text(), Some("why"));
            assert_eq!(late, Some(8));
        }
        other => panic!("{other:?}"),
    }
}

/// handle-1: `into_job()` gives up the handle and keeps the child: the parent
/// waits for it and fails with it.
pub async fn handle_1_into_job_keeps_the_child(lab: Lab) {
    let before = lab.elapsed();
    let error = scope(async |s| {
        let job = s
            .spawn(async {
                sleep(10 * MS).await?;
                Err::<(), _>(Error::msg("kept"))
            })
            .into_job();
        assert!(!job.cancel_requested());
        assert_eq!(job.parent(), Some(s.job()));
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "kept");
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

// --- handle-2 ---

/// handle-2: awaiting a task is not a point: a cancelled waiter still gets
/// the value of an ended one.
pub async fn handle_2_awaiting_never_fails_at_entry(lab: Lab) {
    let waiter = spawn(async {
        let done = spawn(async { 5 });
        let _ = done.join().await?;
        cancel_current("me");
        assert!(is_cancelled());
        let value = done.await?;
        Ok::<_, Error>(value)
    });
    match waiter.outcome().await.unwrap() {
        Outcome::Cancelled { late, .. } => assert_eq!(late, Some(5)),
        other => panic!("{other:?}"),
    }
    assert_eq!(lab.counters().jobs_failed, 0);
}

/// handle-2: once the waiter is cancelled a target below it is cancelled and
/// waited for, and its late value is the result.
pub async fn handle_2_a_target_below_is_waited_for_and_its_late_value_kept(lab: Lab) {
    let waiter = spawn(async {
        let below = spawn(async {
            let _ = park().await;
            cleanup(sleep(20 * MS)).await?;
            Ok::<_, Error>(9)
        });
        let value = below.await?;
        Ok::<_, Error>(value)
    });
    lab.settle().await;
    let before = lab.elapsed();
    waiter.cancel("enough");
    match waiter.outcome().await.unwrap() {
        Outcome::Cancelled { late, .. } => assert_eq!(late, Some(9)),
        other => panic!("{other:?}"),
    }
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// handle-2: a target below that has no value: the waiter is told.
pub async fn handle_2_a_target_below_without_a_value(lab: Lab) {
    let waiter = spawn(async {
        let below = spawn(async {
            park().await?;
            Ok::<_, Error>(())
        });
        let told = below.await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Cancelled);
        assert_eq!(told.reason().unwrap().text(), Some("enough"));
        Err::<(), _>(told)
    });
    lab.settle().await;
    waiter.cancel("enough");
    assert!(waiter.outcome().await.unwrap().is_cancelled());
}

/// handle-2: any other target is cancelled, and the waiter gets Cancelled at
/// once.
pub async fn handle_2_another_target_is_cancelled_and_not_waited_for(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let target = s.spawn(stubborn(log.clone(), "target"));
        let job = target.job();
        lab.settle().await;
        let before = lab.elapsed();
        // The timeout is the waiter; the target hangs from the scope.
        let error = timeout(10 * MS, target).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(lab.elapsed() - before, 10 * MS);
        assert_eq!(job.state(), JobState::Cancelling);
        assert_eq!(log.text(), "");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "target");
}

/// handle-2: the same between two tasks: the waiter ends at once.
pub async fn handle_2_a_cancelled_waiter_of_a_sibling_ends_at_once(lab: Lab) {
    let log = Log::new();
    let target = spawn(stubborn(log.clone(), "target"));
    let job = target.job();
    let waiter = spawn(async move {
        let told = target.await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Cancelled);
        Err::<(), _>(told)
    });
    lab.settle().await;
    let before = lab.elapsed();
    waiter.cancel("enough");
    assert!(waiter.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
    assert_eq!(job.reason().unwrap().kind(), ReasonKind::HandleDropped);
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// handle-2: awaiting reports how the job ended, not what its body said.
pub async fn handle_2_awaiting_reports_how_the_job_ended(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let failed = s.spawn(async {
                launch(async {
                    sleep(10 * MS).await?;
                    Err::<(), _>(Error::msg("child"))
                });
                5
            });
            assert_eq!(failed.await.unwrap_err().to_string(), "child");

            let stopped = s.spawn(async {
                let _ = park().await;
                5
            });
            lab.settle().await;
            stopped.cancel("alone");
            let error = stopped.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert_eq!(error.reason().unwrap().text(), Some("alone"));
            checkpoint().await?;
            Ok(())
        })
        .await
        .unwrap();
}

/// handle-2: `join()` leaves the target alone and unlinks itself, so that one
/// may wait a while and go on.
/// Also: K25.
pub async fn handle_2_join_leaves_the_target_alone(lab: Lab) {
    let task = spawn(async {
        sleep(100 * MS).await?;
        Ok::<_, Error>(3)
    });
    let (start, before) = (lab.elapsed(), lab.counters());
    for _ in 0..3 {
        let error = timeout(10 * MS, task.join()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    let after = lab.counters();
    assert_eq!(after.waiters_registered - before.waiters_registered, 3);
    assert_eq!(after.waiters_removed - before.waiters_removed, 3);
    assert_eq!(after.waiters_woken, before.waiters_woken);
    assert!(!task.job().cancel_requested());
    assert_eq!(task.await.unwrap(), 3);
    assert_eq!(lab.elapsed() - start, 100 * MS);
}

/// handle-2: `join()` is a point: it fails at entry, though the target has
/// ended.
pub async fn handle_2_join_is_a_point(_lab: Lab) {
    let ended = launch(async {});
    assert!(ended.join().await.unwrap().is_completed());
    let living = launch(sleep(10 * MS));
    let waiter = spawn(async move {
        cancel_current("me");
        assert!(living.join().await.is_err());
        let told = ended.join().await.unwrap_err();
        Err::<(), Error>(told.into())
    });
    assert!(waiter.outcome().await.unwrap().is_cancelled());
}

/// handle-2: awaiting or joining oneself is an error, not a hang.
pub async fn handle_2_awaiting_oneself_is_an_error(_lab: Lab) {
    let own: Place<Task<()>> = Place::new();
    let place = own.clone();
    let seen = Log::new();
    let words = seen.clone();
    let task = spawn(async move {
        let joined = current_job().unwrap().join().await.unwrap();
        words.say(joined.error().unwrap().to_string());
        let me = place.take().unwrap();
        let error = me.await.unwrap_err();
        words.say(error.to_string());
        assert_eq!(error.kind(), ErrorKind::Failed);
    });
    let job = task.job();
    own.put(task);
    // Its own handle went with it, so it is cancelled.
    assert!(job.join().await.unwrap().is_cancelled());
    let text = seen.text();
    assert_eq!(
        text.matches("which cannot end before it").count(),
        2,
        "{text}"
    );
}

/// handle-2: awaiting or joining an ancestor is an error, from a child task
/// and from a scope's own body.
pub async fn handle_2_awaiting_an_ancestor_is_an_error(lab: Lab) {
    let parent = Place::new();
    let place = parent.clone();
    let task = spawn(async move {
        let child = spawn(async move {
            yield_now().await?;
            let parent: Task<()> = place.take().unwrap();
            let error = parent.await.unwrap_err();
            assert!(error.to_string().contains("cannot end before it"));
            Ok::<_, Error>(())
        });
        let inner = scope(async |s| {
            let joined = s.job().join().await?;
            assert!(joined.is_failed());
            let above = s.job().parent().unwrap().join().await?;
            assert!(above.is_failed());
            Ok(())
        });
        inner.await.unwrap();
        let _ = child.outcome().await;
    });
    let job = task.job();
    parent.put(task);
    // The child held the handle and let it go.
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(lab.counters().jobs_failed, 0);
}

/// handle-2: also if the handle was polled elsewhere before.
pub async fn handle_2_awaiting_oneself_is_an_error_though_polled_elsewhere_before(lab: Lab) {
    let own: Place<Task<()>> = Place::new();
    let place = own.clone();
    let gate = Gate::new();
    let door = gate.clone();
    let mut task = spawn(async move {
        door.wait().await;
        let me = place.take().unwrap();
        let result = timeout(10 * MS, me).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Failed);
    });
    let job = task.job();
    assert!(futures_util::poll!(&mut task).is_pending());
    own.put(task);
    gate.open();
    let before = lab.elapsed();
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
}

/// handle-2: also if the observer's join was polled elsewhere before.
pub async fn handle_2_joining_oneself_is_an_error_though_polled_elsewhere_before(lab: Lab) {
    let own = Place::new();
    let place = own.clone();
    let gate = Gate::new();
    let door = gate.clone();
    let task = spawn(async move {
        door.wait().await;
        let me: kinfolk_core::Join = place.take().unwrap();
        let joined = timeout(10 * MS, async { Ok::<_, Error>(me.await?) }).await?;
        assert!(joined.is_failed());
        Ok::<_, Error>(())
    });
    let mut join = task.join();
    assert!(futures_util::poll!(&mut join).is_pending());
    own.put(join);
    gate.open();
    let before = lab.elapsed();
    task.await.unwrap();
    assert_eq!(lab.elapsed(), before);
}

// --- handle-3 ---

/// handle-3: `spawn_now` polls once inline, attached first, and the caller's
/// current job is restored after.
/// Also: T19.
pub async fn handle_3_spawn_now_polls_once_inline(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    scope(async |s| {
        let home = s.job();
        let here = current_job();
        assert_eq!(here.as_ref(), Some(&home));
        let task = s.spawn_now(async move {
            let me = current_job().unwrap();
            assert_eq!(me.parent(), Some(home));
            words.say("first");
            yield_now().await?;
            words.say("second");
            Ok::<_, Error>(me.id())
        });
        assert_eq!(current_job(), here, "restored");
        assert_eq!(log.text(), "first");
        let id = task.id();
        assert_eq!(task.await?, id);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "first second");
}

fn nested_now(
    left: usize,
    ran: Arc<AtomicUsize>,
) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        ran.fetch_add(1, SeqCst);
        if left > 0 {
            let s = Scope::current().unwrap();
            s.spawn_now(nested_now(left - 1, ran)).into_job();
        }
    })
}

/// handle-3: past depth 16 `spawn_now` is like `spawn`.
pub async fn handle_3_spawn_now_past_depth_16_is_like_spawn(_lab: Lab) {
    let ran = Arc::new(AtomicUsize::new(0));
    scope(async |s| {
        s.spawn_now(nested_now(39, ran.clone())).into_job();
        assert_eq!(ran.load(SeqCst), 16);
        s.spawn_now(async {}).into_job();
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(ran.load(SeqCst), 40);
}

/// handle-3: a panic in a body that `spawn_now` polls is that task's failure,
/// and the caller goes on under its own job.
pub async fn handle_3_a_panic_inside_spawn_now_stays_there(_lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let task = s.spawn_now(async {
                std::panic::resume_unwind(Box::new("loud"));
                #[expect(unreachable_code)]
                ()
            });
            assert_eq!(current_job(), Some(s.job()));
            assert_eq!(task.await.unwrap_err().kind(), ErrorKind::Panicked);
            Ok(())
        })
        .await
        .unwrap();
}

/// handle-3: `spawn_atomic` reaches its first point even if cancelled before.
pub async fn handle_3_spawn_atomic_reaches_its_first_point(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let tally = Tally::new();
    let s = Scope::current().unwrap();
    let atomic = s.spawn_atomic(async move {
        words.say("entered");
        checkpoint().await?;
        words.say("never");
        Ok::<_, Error>(())
    });
    let plain = s.spawn(tally.count(async {}));
    assert!(atomic.cancel("early") && plain.cancel("early"));
    assert!(atomic.outcome().await.unwrap().is_cancelled());
    assert!(plain.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "entered");
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

/// handle-3: `spawn_lazy` starts on the first await or join, or when started.
pub async fn handle_3_spawn_lazy_starts_when_somebody_wants_it(lab: Lab) {
    let tally = Tally::new();
    scope(async |s| {
        let awaited = s.spawn_lazy(tally.count(async { 1 }));
        let joined = s.spawn_lazy(tally.count(async { 2 }));
        let started = s.spawn_lazy(tally.count(async { 3 }));
        lab.settle().await;
        assert_eq!(tally.polls(), 0);
        assert_eq!(awaited.job().state(), JobState::New);

        assert_eq!(awaited.await?, 1);
        assert_eq!(tally.polls(), 1);
        assert!(joined.job().join().await?.is_completed());
        assert_eq!(tally.polls(), 2);
        assert!(started.start());
        assert!(!started.start());
        lab.settle().await;
        assert_eq!(tally.polls(), 3);
        assert!(started.is_ended());
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-3: an unstarted lazy task holds nothing open; a started one does.
pub async fn handle_3_an_unstarted_lazy_task_holds_nothing_open(lab: Lab) {
    let tally = Tally::new();
    let before = lab.elapsed();
    let (never, started) = scope(async |s| {
        let never = s.spawn_lazy(tally.count(sleep(3_600_000 * MS)));
        let started = s.spawn_lazy(sleep(10 * MS));
        assert!(started.start());
        Ok((never, started))
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
    assert!(started.outcome().await.unwrap().is_completed());
    assert!(!never.start());
    match never.outcome().await.unwrap() {
        Outcome::Cancelled { reason, late: None } => {
            assert_eq!(reason.kind(), ReasonKind::ScopeEnded);
        }
        other => panic!("{other:?}"),
    }
}

/// handle-3: a lazy task that is cancelled before it starts is never polled.
pub async fn handle_3_a_lazy_task_cancelled_unstarted_is_never_polled(lab: Lab) {
    let tally = Tally::new();
    let s = Scope::current().unwrap();
    let task = s.spawn_lazy(tally.count(async {}));
    assert!(task.cancel("early"));
    lab.settle().await;
    assert!(task.is_ended());
    assert!(!task.start());
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

// --- handle-4 ---

/// handle-4: a lease keeps a scope open, whatever holds it; dropping the last
/// one completes the waiting parent.
/// Also: T7.
pub async fn handle_4_a_lease_keeps_its_scope_open(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let value = scope(async |s| {
            let lease = s.lease().unwrap();
            place.put((lease, s.lease().unwrap()));
            Ok(1)
        })
        .await?;
        words.say("left");
        Ok::<_, Error>(value)
    });
    lab.settle().await;
    sleep(50 * MS).await.unwrap();
    let (first, second) = kept.take().unwrap();
    let home = first.scope().job();
    drop(first);
    lab.settle().await;
    assert_eq!(log.text(), "");
    assert!(!home.is_ended());
    std::thread::spawn(move || drop(second)).join().unwrap();
    assert_eq!(log.text(), "", "never inline");
    lab.settle().await;
    assert_eq!(log.text(), "left");
    assert!(home.is_ended());
    assert_eq!(task.await.unwrap(), 1);
}

/// handle-4: the same for a task whose body is over: its end is scheduled,
/// never inside the drop.
/// Also: T7, T9.
pub async fn handle_4_dropping_the_last_lease_of_a_task_schedules_its_end(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let task = spawn(async move {
        place.put(Scope::current().unwrap().lease().unwrap());
        4
    });
    let job = task.job();
    lab.settle().await;
    assert_eq!(job.state(), JobState::Completing);
    drop(kept.take());
    assert_eq!(job.state(), JobState::Completing, "not inside the drop");
    lab.settle().await;
    assert_eq!(job.state(), JobState::Completed);
    assert_eq!(task.await.unwrap(), 4);
}

/// handle-4: a spawn by a lease moves the lease into the child: it is not
/// counted twice.
/// Also: T8.
pub async fn handle_4_a_lease_moves_into_the_child(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let outer = spawn(async move {
        scope(async |s| {
            place.put(s.lease().unwrap());
            Ok(())
        })
        .await
    });
    lab.settle().await;
    let lease: kinfolk_core::Lease = kept.take().unwrap();
    let home = lease.scope().job();
    let child = lease.spawn(async {
        sleep(10 * MS).await?;
        Ok::<_, Error>(6)
    });
    assert_eq!(child.job().parent(), Some(home.clone()));
    assert!(!outer.is_ended());
    let before = lab.elapsed();
    assert_eq!(child.await.unwrap(), 6);
    outer.await.unwrap();
    assert!(home.is_ended(), "the child's end was the lease's end");
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// handle-4: a lease neither delays a cancel nor is told by one.
pub async fn handle_4_a_lease_neither_delays_a_cancel_nor_is_told(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        scope(async |s| {
            place.put(s.lease().unwrap());
            s.launch(stubborn(words.clone(), "child"));
            let told = park().await;
            words.say("body");
            told?;
            Ok(())
        })
        .await
    });
    lab.settle().await;
    task.cancel("enough");
    sleep(50 * MS).await.unwrap();
    assert_eq!(log.text(), "body child");
    assert!(!task.is_ended(), "the lease still holds it");
    let lease: kinfolk_core::Lease = kept.take().unwrap();
    assert!(lease.scope().cancel_requested());
    let tally = Tally::new();
    let late = lease.spawn(tally.count(async {}));
    assert!(late.is_ended(), "a cancelled scope takes nobody");
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// handle-4: children may be spawned while a lease is the last to live.
pub async fn handle_4_a_scope_with_a_lease_takes_children(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let task = spawn(async move {
        scope(async |s| {
            place.put(s.lease().unwrap());
            Ok(())
        })
        .await
    });
    lab.settle().await;
    let lease: kinfolk_core::Lease = kept.take().unwrap();
    let s = lease.scope();
    assert_eq!(s.spawn(async { 1 }).await.unwrap(), 1);
    let second = s.lease().unwrap();
    drop(lease);
    assert_eq!(s.spawn(async { 2 }).await.unwrap(), 2);
    drop(second);
    task.await.unwrap();
    assert!(s.try_spawn(async {}).is_err());
}

/// handle-4: an ended or closed scope gives no lease.
pub async fn handle_4_an_ended_scope_gives_no_lease(_lab: Lab) {
    let ended = scope(async |s| {
        assert!(s.lease().is_some());
        s.close();
        assert!(s.lease().is_none());
        Ok(s)
    })
    .await
    .unwrap();
    assert!(ended.lease().is_none());
}

// --- handle-5 ---

/// handle-5: dropping a scope's future half-way cancels it; its node lives on
/// until its children are gone, and the enclosing job waits for that.
pub async fn handle_5_a_scope_dropped_half_way_is_waited_for(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let inner = lab.clone();
    let before = lab.elapsed();
    let outer = scope(async move |outer| {
        let node = Place::new();
        let (place, said) = (node.clone(), words.clone());
        let mut lost = Box::pin(scope(async move |s| {
            place.put(s.clone());
            s.launch(stubborn(said, "child"));
            park().await?;
            Ok(())
        }));
        assert!(futures_util::poll!(&mut lost).is_pending());
        inner.settle().await;
        let s: Scope = node.take().unwrap();
        drop(lost);
        assert_eq!(s.job().state(), JobState::Cancelling);
        assert_eq!(s.cancel_reason().unwrap().kind(), ReasonKind::ScopeDropped);
        assert_eq!(s.job().parent(), Some(outer.job()));
        assert!(s.try_spawn(async {}).is_err());
        checkpoint().await?;
        words.say("body");
        Ok(s.job())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "body child");
    assert_eq!(lab.elapsed() - before, 20 * MS);
    assert_eq!(outer.state(), JobState::Cancelled);
}

/// handle-5: dropped while it waits for its children, and dropped unpolled.
pub async fn handle_5_a_scope_dropped_in_its_waiting_phase(lab: Lab) {
    let created = lab.counters().jobs_created;
    drop(scope(async |_| Ok(())));
    assert_eq!(lab.counters().jobs_created, created);

    let log = Log::new();
    let words = log.clone();
    let inner = lab.clone();
    let before = lab.elapsed();
    scope(async move |_| {
        let mut lost = Box::pin(scope(async move |s| {
            s.launch(stubborn(words, "child"));
            Ok(())
        }));
        assert!(futures_util::poll!(&mut lost).is_pending());
        inner.settle().await;
        drop(lost);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "child");
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// handle-5: a child that fails in a scope that is no longer awaited harms
/// nobody, and its failure is not lost.
pub async fn handle_5_a_failure_in_a_dropped_scope_goes_to_the_failure_hook(lab: Lab) {
    let inner = lab.clone();
    scope(async move |_| {
        let mut lost = Box::pin(scope(async move |s| {
            s.launch(async {
                let _ = park().await;
                Err::<(), _>("unheard")
            });
            park().await?;
            Ok(())
        }));
        assert!(futures_util::poll!(&mut lost).is_pending());
        inner.settle().await;
        drop(lost);
        Ok(())
    })
    .await
    .unwrap();
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].to_string(), "unheard");
}

/// handle-5: a dropped scope whose lease, service and unstarted task are left.
pub async fn handle_5_a_dropped_scope_with_a_lease_a_service_and_a_lazy_task(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let (service, lazy) = (Tally::new(), Tally::new());
    let (serves, waits) = (service.clone(), lazy.clone());
    let inner = lab.clone();
    let task = spawn(async move {
        let mut lost = Box::pin(scope(async move |s| {
            place.put(s.lease().unwrap());
            s.spawn_service(serves.count(park())).into_job();
            s.spawn_lazy(waits.count(park())).into_job();
            park().await?;
            Ok(())
        }));
        assert!(futures_util::poll!(&mut lost).is_pending());
        inner.settle().await;
        drop(lost);
        8
    });
    let job = task.job();
    // The task settles too, and its turn comes between these two.
    lab.settle().await;
    lab.settle().await;
    assert_eq!(job.state(), JobState::Completing, "the lease holds it open");
    assert_eq!(service.drops(), 0, "a service goes last");
    let lease: kinfolk_core::Lease = kept.take().unwrap();
    let home = lease.scope().job();
    assert_eq!(home.state(), JobState::Cancelling);
    drop(lease);
    assert!(!home.is_ended(), "not inside the drop");
    assert_eq!(task.await.unwrap(), 8);
    assert_eq!(home.state(), JobState::Cancelled);
    assert_eq!((service.polls(), service.drops()), (2, 1));
    assert_eq!((lazy.polls(), lazy.drops()), (0, 1));
}

/// handle-5: a dropped scope that only a lease holds open.
pub async fn handle_5_a_dropped_scope_that_only_a_lease_holds_open(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let task = spawn(async move {
        let mut lost = Box::pin(scope(async move |s| {
            place.put(s.lease().unwrap());
            park().await?;
            Ok(())
        }));
        assert!(futures_util::poll!(&mut lost).is_pending());
        drop(lost);
        8
    });
    let job = task.job();
    lab.settle().await;
    assert_eq!(job.state(), JobState::Completing);
    let lease: kinfolk_core::Lease = kept.take().unwrap();
    let home = lease.scope().job();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    assert_eq!(job.state(), JobState::Completing, "not inside the drop");
    assert_eq!(task.await.unwrap(), 8);
    assert_eq!(home.state(), JobState::Cancelled);
}

// --- handle-6 ---

/// handle-6: no walk reaches a service while ordinary children live; it is
/// marked when the body and all of them have ended.
pub async fn handle_6_services_are_passed_over_and_stopped_last(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let services = Place::new();
    let place = services.clone();
    let before = lab.elapsed();
    let task = spawn(async move {
        scope(async |s| {
            let mut jobs = Vec::new();
            for _ in 0..2 {
                let said = words.clone();
                let service = s.spawn_service(async move {
                    let told = park().await.unwrap_err();
                    assert_eq!(told.reason().kind(), ReasonKind::ScopeEnded);
                    said.say("service");
                    Err::<(), Error>(told.into())
                });
                jobs.push(service.into_job());
            }
            place.put(jobs);
            s.launch(stubborn(words.clone(), "child"));
            let told = park().await;
            words.say("body");
            told?;
            Ok(())
        })
        .await
    });
    lab.settle().await;
    task.cancel("enough");
    let jobs = services.take().unwrap();
    assert!(jobs.iter().all(|job| !job.cancel_requested()));
    lab.settle().await;
    assert!(jobs.iter().all(|job| job.state() == JobState::Active));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "body child service service");
    assert_eq!(lab.elapsed() - before, 20 * MS);
    assert!(jobs.iter().all(|job| job.state() == JobState::Cancelled));
}

/// handle-6: a scope that ends well keeps its value though its services were
/// stopped.
pub async fn handle_6_stopped_services_do_not_count_as_cut_short(lab: Lab) {
    let before = lab.elapsed();
    let value = scope(async |s| {
        s.spawn_service(park()).into_job();
        s.launch(sleep(10 * MS));
        Ok(5)
    })
    .await;
    assert_eq!(value.unwrap(), 5);
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// handle-6: the body of a task is the last to go, and its services go with it.
pub async fn handle_6_the_services_of_a_task_end_with_its_body(lab: Lab) {
    let before = lab.elapsed();
    let task = spawn(async {
        let service = Scope::current().unwrap().spawn_service(park()).into_job();
        sleep(10 * MS).await?;
        Ok::<_, Error>(service)
    });
    let service = task.await.unwrap();
    assert!(service.is_ended());
    assert_eq!(service.reason().unwrap().kind(), ReasonKind::ScopeEnded);
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// handle-6: once its services are being stopped a job refuses new children.
pub async fn handle_6_a_job_with_only_services_left_refuses_children(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    scope(async move |s| {
        let into = s.clone();
        s.spawn_service(async move {
            assert!(into.try_spawn(async {}).is_ok(), "the body runs");
            let told = park().await;
            let refused = into.try_spawn(async {}).unwrap_err();
            assert!(refused.is_ended());
            assert!(into.lease().is_none());
            words.say("refused");
            told?;
            Ok::<_, Error>(())
        })
        .into_job();
        yield_now().await?;
        sleep(MS).await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "refused");
}

/// handle-6: a service's failure counts as any child's; a service that ends
/// by itself holds nothing open.
pub async fn handle_6_a_services_failure_counts(_lab: Lab) {
    let error = scope(async |s| {
        s.spawn_service(async {
            sleep(MS).await?;
            Err::<(), _>(Error::msg("service"))
        })
        .into_job();
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.to_string(), "service");

    let late = scope(async |s| {
        s.spawn_service(async {
            let _ = park().await;
            Err::<(), _>("while stopping")
        })
        .into_job();
        sleep(MS).await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(late.to_string(), "while stopping");
}

/// handle-6: a service can be cancelled by itself.
pub async fn handle_6_a_service_can_be_cancelled_by_its_handle(lab: Lab) {
    let value = scope(async |s| {
        let service = s.spawn_service(park());
        lab.settle().await;
        service.cancel("you");
        assert!(service.outcome().await?.is_cancelled());
        checkpoint().await?;
        Ok(1)
    })
    .await;
    assert_eq!(value.unwrap(), 1);
}

// --- handle-9 ---

/// handle-9: `close()` refuses new children and lets the living finish.
pub async fn handle_9_close_refuses_and_lets_the_living_finish(lab: Lab) {
    let before = lab.elapsed();
    let log = Log::new();
    let words = log.clone();
    scope(async move |s| {
        let said = words.clone();
        s.launch(async move {
            sleep(10 * MS).await?;
            said.say("done");
            Ok::<_, Error>(())
        });
        assert!(!s.is_closed());
        s.close();
        assert!(s.is_closed() && !s.cancel_requested());
        assert!(s.try_spawn(async {}).unwrap_err().is_ended());
        checkpoint().await?;
        scope(async |_| Ok(())).await?;
        words.say("body");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "body done");
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// handle-9: `drain` within its grace: nothing is cancelled.
pub async fn handle_9_drain_within_the_grace(lab: Lab) {
    let shared = Place::new();
    let place = shared.clone();
    let task = spawn(async move {
        scope(async |s| {
            place.put(s.clone());
            s.launch(sleep(10 * MS));
            Ok(1)
        })
        .await
    });
    lab.settle().await;
    let s: Scope = shared.take().unwrap();
    let before = (lab.elapsed(), lab.counters().timers_pending());
    let outcome = s.drain(100 * MS).await.unwrap();
    assert!(outcome.is_completed(), "{outcome:?}");
    assert_eq!(lab.elapsed() - before.0, 10 * MS);
    assert_eq!(task.await.unwrap(), 1);
    assert_eq!(lab.counters().timers_pending(), 0);
}

/// handle-9: `drain` past its grace cancels, and waits for that.
pub async fn handle_9_drain_past_the_grace_cancels(lab: Lab) {
    let shared = Place::new();
    let place = shared.clone();
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        scope(async |s| {
            place.put(s.clone());
            s.launch(stubborn(words, "child"));
            Ok(1)
        })
        .await
    });
    lab.settle().await;
    let s: Scope = shared.take().unwrap();
    let before = lab.elapsed();
    let outcome = s.drain(10 * MS).await.unwrap();
    assert_eq!(lab.elapsed() - before, 30 * MS);
    assert_eq!(log.text(), "child");
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert!(s.is_closed() && s.cancel_requested());
    assert_eq!(task.await.unwrap(), 1, "its own cancel ends with the scope");
}

// --- group L ---

/// L01: dropping a handle cancels the job and its subtree with HandleDropped;
/// the enclosing scope still waits for the clean-up.
pub async fn case_l01_dropping_a_handle_cancels_the_subtree(lab: Lab) {
    let log = Log::new();
    let before = lab.elapsed();
    scope(async |s| {
        let place = Place::new();
        let (deep, words) = (place.clone(), log.clone());
        let task = s.spawn(async move {
            deep.put(launch(stubborn(words, "grandchild")));
            park().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        let grandchild = place.take().unwrap();
        drop(task);
        let reason = grandchild.reason().unwrap();
        assert_eq!(reason.kind(), ReasonKind::Parent);
        assert_eq!(reason.root_cause().kind(), ReasonKind::HandleDropped);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "grandchild");
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// L02: a handle that is given up, and a launched job: each keeps running as
/// a child, and its failure still fails the scope.
pub async fn case_l02_a_forgotten_handle_detaches_nothing(lab: Lab) {
    for forget in [true, false] {
        let before = lab.elapsed();
        let body = async {
            sleep(10 * MS).await?;
            Err::<(), _>(Error::msg("still a child"))
        };
        let error = scope(async |s| {
            if forget {
                drop(s.spawn(body).into_job());
            } else {
                s.launch(body);
            }
            Ok(())
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "still a child");
        assert_eq!(lab.elapsed() - before, 10 * MS);
    }
    assert!(lab.take_failures().is_empty());
}

/// L03: dropping the handle of a finished job does nothing.
pub async fn case_l03_dropping_the_handle_of_a_finished_job_does_nothing(lab: Lab) {
    let task = spawn(async { 3 });
    let job = task.job();
    lab.settle().await;
    let before = lab.counters();
    assert_eq!(job.state(), JobState::Completed);
    drop(task);
    assert_eq!(job.state(), JobState::Completed);
    assert!(job.reason().is_none());
    assert_eq!(lab.counters(), before);
}

/// L06: a detached job: the spawner neither waits for it nor fails with it;
/// its failure goes to the failure hook once.
pub async fn case_l06_a_detached_failure_goes_to_the_hook_once(lab: Lab) {
    let spawner = spawn(async {
        let job = detach(async { Err::<(), _>("alone") });
        let _ = job.join().await;
        let _ = job.join().await;
        checkpoint().await
    });
    spawner.await.unwrap();
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].to_string(), "alone");
}

/// L12: a detached job inherits neither deadline, shield nor cancel state.
pub async fn case_l12_a_detached_job_inherits_nothing(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let start = lab.elapsed();
    let error = timeout(10 * MS, async move {
        let said = words.clone();
        detach(async move {
            assert_eq!(deadline(), None);
            sleep(50 * MS).await?;
            said.say("outlived");
            Ok::<_, Error>(())
        });
        shield(async move {
            detach(async move {
                assert!(!is_shielded());
                words.say("bare");
            });
        })
        .await?;
        park().await?;
        Ok::<_, Error>(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    sleep(100 * MS).await.unwrap();
    assert_eq!(log.text(), "bare outlived");
    assert_eq!(lab.elapsed() - start, 110 * MS);
}

// --- what the sources promise ---

/// T6: dropping a handle never resumes anybody on the dropping thread: it all
/// goes through the host.
pub async fn src_t06_dropping_a_handle_resumes_nobody_inline(lab: Lab) {
    let tally = Tally::new();
    let kept = Place::new();
    let place = kept.clone();
    let resumed = Log::new();
    let words = resumed.clone();
    let counts = tally.clone();
    let waiting = spawn(async move {
        scope(async |s| {
            place.put(s.spawn(counts.count(park())));
            Ok(())
        })
        .await?;
        words.say("resumed");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let polls = tally.polls();
    let handle: Task<_> = kept.take().unwrap();
    std::thread::spawn(move || drop(handle)).join().unwrap();
    assert_eq!((tally.polls(), tally.drops()), (polls, 0));
    assert_eq!(resumed.text(), "");
    waiting.await.unwrap();
    assert_eq!(tally.drops(), 1);
    assert_eq!(resumed.text(), "resumed");
}

/// T9: a task that goes without ever having run lets its parent go on, by a
/// turn and not inside the drop of its handle.
pub async fn src_t09_an_unpolled_task_goes_without_resuming_its_parent_inline(lab: Lab) {
    let tally = Tally::new();
    let kept = Place::new();
    let place = kept.clone();
    let gate = Gate::new();
    let door = gate.clone();
    let parent = spawn(async move {
        place.put(Scope::current().unwrap());
        door.wait().await;
        3
    });
    lab.settle().await;
    let s: Scope = kept.take().unwrap();
    let unpolled = s.spawn(tally.count(park()));
    gate.open();
    drop(unpolled);
    assert_eq!(tally.drops(), 0, "not inside the drop");
    assert!(!parent.is_ended());
    assert_eq!(parent.await.unwrap(), 3);
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

/// T19: the current job is right on every way of being resumed.
pub async fn src_t19_the_current_job_is_right_wherever_it_resumes(lab: Lab) {
    struct Dropped(Place<Option<kinfolk_core::JobId>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.put(current_job().map(|job| job.id()));
        }
    }
    let here = || current_job().map(|job| job.id());
    let me = here();
    assert!(me.is_some());
    sleep(MS).await.unwrap();
    assert_eq!(here(), me, "after a timer");
    assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
    assert_eq!(here(), me, "after a task");
    assert!(launch(sleep(MS)).join().await.unwrap().is_completed());
    assert_eq!(here(), me, "after a join");
    scope(async |s| {
        assert_eq!(here(), Some(s.job().id()), "in a scope");
        s.launch(sleep(MS));
        sleep(2 * MS).await?;
        assert_eq!(here(), Some(s.job().id()), "in a scope, after a timer");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(here(), me, "after a scope");
    let timed_out = timeout(MS, park()).await;
    assert_eq!(timed_out.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(here(), me, "after a timeout");
    let panicked = scope(async |_| {
        std::panic::resume_unwind(Box::new("loud"));
        #[expect(unreachable_code)]
        Ok(())
    });
    assert_eq!(panicked.await.unwrap_err().kind(), ErrorKind::Panicked);
    assert_eq!(here(), me, "after a panic");
    Scope::current().unwrap().spawn_now(async {}).await.unwrap();
    assert_eq!(here(), me, "after an immediate start");

    let seen = Place::new();
    let guard = Dropped(seen.clone());
    let task = spawn(async move {
        let _guard = guard;
        park().await?;
        Ok::<_, Error>(())
    });
    let id = task.id();
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(
        seen.take(),
        Some(Some(id)),
        "a future is dropped under its own job"
    );
    let outside = std::thread::spawn(|| current_job().is_none());
    assert!(outside.join().unwrap(), "none on another thread");
}

/// T20: scheduled and immediate starts, each into a given scope, into the
/// current one, by a lease, and below the root.
pub async fn src_t20_every_way_to_start(lab: Lab) {
    let parent = || async { current_job().unwrap().parent().map(|job| job.id()) };
    scope(async |s| {
        let given = s.job().id();
        scope(async |inner| {
            let current = inner.job().id();
            assert_eq!(s.spawn(parent()).await?, Some(given));
            assert_eq!(s.spawn_now(parent()).await?, Some(given));
            assert_eq!(spawn(parent()).await?, Some(current));
            let here = Scope::current().unwrap();
            assert_eq!(here.spawn_now(parent()).await?, Some(current));
            let lease = s.lease().unwrap();
            assert_eq!(lease.spawn(parent()).await?, Some(given));
            let lease = s.lease().unwrap();
            assert_eq!(lease.scope().spawn_now(parent()).await?, Some(given));
            drop(lease);
            let root = lab.root().job().id();
            let seen = Place::new();
            let place = seen.clone();
            let detached = detach(async move { place.put(parent().await) });
            let _ = detached.join().await?;
            assert_eq!(seen.take(), Some(Some(root)));
            assert_eq!(lab.root().spawn_now(parent()).await?, Some(root));
            Ok(())
        })
        .await
    })
    .await
    .unwrap();
}

/// T22: the count of children survives cancels, guards, leases and waits.
pub async fn src_t22_the_count_of_children_survives(lab: Lab) {
    let task = spawn(async {
        let guard = kinfolk_core::ignore_cancellation().await?;
        let s = Scope::current().unwrap();
        let lease = s.lease().unwrap();
        for n in 0..50 {
            s.launch(sleep(n * MS));
        }
        checkpoint().await?;
        sleep(10 * MS).await?;
        drop(lease);
        drop(guard);
        park().await?;
        Ok::<_, Error>(())
    });
    let job = task.job();
    lab.settle().await;
    assert_eq!(lab.snapshot().children(job.id()).count(), 49);
    task.cancel("enough");
    lab.settle().await;
    assert_eq!(lab.snapshot().children(job.id()).count(), 49);
    sleep(5 * MS).await.unwrap();
    lab.settle().await;
    assert_eq!(lab.snapshot().children(job.id()).count(), 44);
    let before = lab.elapsed();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 5 * MS);
    assert_eq!(lab.counters().living(), 2, "main and the root");
}

/// T22: also while the body is over and waits for them: whatever happens to the
/// job then, it ends with the last of its children, and not before.
pub async fn src_t22_the_count_survives_the_waiting_phase(lab: Lab) {
    for cancelled in [false, true] {
        let before = lab.elapsed();
        let task = spawn(async {
            let s = Scope::current().unwrap();
            for n in 1..=20 {
                s.launch(shield(sleep(n * MS)));
            }
            let lease = s.lease().unwrap();
            s.launch(shield(async move {
                // It comes when the body is over.
                sleep(5 * MS).await?;
                drop(lease.spawn(shield(sleep(30 * MS))).into_job());
                Ok::<_, Error>(())
            }));
        });
        let job = task.job();
        sleep(2 * MS).await.unwrap();
        lab.settle().await;
        assert_eq!(job.state(), JobState::Completing);
        assert_eq!(lab.snapshot().children(job.id()).count(), 19);
        job.interrupt("it is too late");
        if cancelled {
            assert!(job.cancel("enough"));
        }
        lab.settle().await;
        assert_eq!(lab.snapshot().children(job.id()).count(), 19);
        sleep(16 * MS).await.unwrap();
        lab.settle().await;
        // Those of 19 and 20 ms, and the one that came later, unless refused.
        let (left, last) = if cancelled { (2, 20) } else { (3, 35) };
        assert_eq!(lab.snapshot().children(job.id()).count(), left);
        let outcome = task.outcome().await.unwrap();
        assert_eq!(lab.elapsed() - before, last * MS);
        assert_eq!(outcome.is_cancelled(), cancelled);
    }
}

/// K4: a job outlives every child and observer that needs it: each can be
/// asked after the end, in any order of dropping.
pub async fn src_k04_observers_outlive_the_job(lab: Lab) {
    let kept = Place::new();
    let place = kept.clone();
    let (parent, child) = scope(async |s| {
        let task = s.task("parent").spawn(async move {
            place.put(Scope::current().unwrap().task("child").launch(sleep(MS)));
        });
        let parent = task.job();
        task.await?;
        Ok((parent, kept.take().unwrap()))
    })
    .await
    .unwrap();
    let (again, id) = (parent.clone(), parent.id());
    drop(parent);
    assert_eq!(child.name(), "child");
    assert_eq!(child.state(), JobState::Completed);
    assert_eq!(child.parent(), None);
    drop(child);
    assert_eq!((again.name().as_str(), again.id()), ("parent", id));
    assert!(again.join().await.unwrap().is_completed());
    assert_eq!(lab.counters().living(), 2);
}

/// K25: a cancel during an await: the await returns Cancelled.
pub async fn src_k25_a_cancelled_joiner_is_told_and_the_target_is_not(lab: Lab) {
    let target = launch(sleep(100 * MS));
    let watched = target.clone();
    let joiner = spawn(async move {
        let told = watched.join().await.unwrap_err();
        assert_eq!(told.reason().text(), Some("enough"));
        Err::<(), Error>(told.into())
    });
    lab.settle().await;
    let before = lab.elapsed();
    joiner.cancel("enough");
    assert!(joiner.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
    assert!(!target.cancel_requested());
    assert!(target.join().await.unwrap().is_completed());
    assert_eq!(lab.elapsed() - before, 100 * MS);
}

/// K29: cancel the current job, cancel a job with a reason, launch and
/// forget.
pub async fn src_k29_cancel_current_cancel_job_and_launch(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let start = lab.elapsed();
    let task = spawn(async move {
        assert!(cancel_current("by myself"));
        assert!(!cancel_current("again"));
        words.say("goes on");
        sleep(100_000 * MS).await?;
        words.say("never");
        Ok::<_, Error>(())
    });
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("by myself"));
    assert_eq!(lab.elapsed(), start);

    let job = launch(park());
    lab.settle().await;
    assert!(job.cancel("a reason"));
    let outcome = job.join().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("a reason"));

    let words = log.clone();
    scope(async move |s| {
        s.launch(async move { words.say("launched") });
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "goes on launched");
    let outside = std::thread::spawn(|| cancel_current("nobody"));
    assert!(!outside.join().unwrap());
}

/// cancel-9: outside any job ambient `spawn`, `launch` and `detach` panic
/// and say what to do.
pub async fn cancel_9_ambient_spawn_outside_every_job_is_an_error(_lab: Lab) {
    let words = outside(|| {
        [
            words_of(|| drop(spawn(async {}))),
            words_of(|| drop(launch(async {}))),
            words_of(|| drop(detach(async {}))),
        ]
    });
    for (text, verb) in words.iter().zip(["spawn", "launch", "detach"]) {
        assert!(text.starts_with(verb), "{text}");
        assert!(text.contains("outside any Kinfolk job"), "{text}");
        assert!(text.contains("inside a runtime"), "{text}");
    }
}

/// cancel-9: outside any job points never fail, a sleep has no clock and
/// says so, and a scope is an error that says so.
pub async fn cancel_9_points_sleeps_and_scopes_outside_every_job(_lab: Lab) {
    let (point, sleeping, opened) = outside(|| {
        let point = matches!(poll_outside(checkpoint()), Poll::Ready(Ok(())));
        let sleeping = words_of(|| drop(poll_outside(sleep(MS))));
        let opened = match poll_outside(scope(async |_| Ok(()))) {
            Poll::Ready(Err(error)) => error.to_string(),
            other => format!("{other:?}"),
        };
        (point, sleeping, opened)
    });
    assert!(point);
    assert!(sleeping.starts_with("sleep at "), "{sleeping}");
    assert!(sleeping.contains("handles.rs:"), "{sleeping}");
    assert!(sleeping.contains("outside any Kinfolk job"), "{sleeping}");
    assert!(opened.starts_with("a scope at "), "{opened}");
    assert!(opened.contains("handles.rs:"), "{opened}");
    assert!(opened.contains("outside any Kinfolk job"), "{opened}");
}

/// Runs `f` on a thread on which no job is polled.
fn outside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|threads| {
        let thread = std::thread::Builder::new().name("outside".into());
        thread.spawn_scoped(threads, f).unwrap().join().unwrap()
    })
}

fn poll_outside<F: Future>(future: F) -> Poll<F::Output> {
    let mut cx = Context::from_waker(Waker::noop());
    std::pin::pin!(future).poll(&mut cx)
}

/// The words with which `f` panics.
fn words_of(f: impl FnOnce()) -> String {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    let payload = caught.expect_err("it did not panic");
    match payload.downcast::<String>() {
        Ok(words) => *words,
        Err(other) => format!("{:?}", other.downcast_ref::<&str>()),
    }
}
