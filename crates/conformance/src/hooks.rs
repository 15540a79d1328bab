//! Cleaning up, hooks and external resources.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, HookGuard, Job, JobState, Outcome, Reason, ReasonKind, Scope, Task,
    checkpoint, cleanup, current_job, launch, on_cancel, on_cancel_or_end, park, scope, shield,
    sleep, spawn,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// Panics without a word on standard error.
fn raise<T>(words: &'static str) -> T {
    std::panic::resume_unwind(Box::new(words))
}

/// A place for something that a hook or another task is to find.
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

/// A task that parks with `hook` registered, kept.
fn hooked(hook: impl FnOnce(&Reason) + Send + 'static) -> Task<()> {
    spawn(async {
        on_cancel(hook).keep();
        park().await?;
        Ok::<_, Error>(())
    })
}

/// J01: cancel and join on a parent returns only after the child's cleanup ran.
pub async fn case_j01_join_after_cancel_waits_for_the_childs_cleanup(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let job = launch(async move {
        launch(async move {
            let told = park().await;
            cleanup(sleep(30 * MS)).await?;
            words.say("cleaned");
            told?;
            Ok::<_, Error>(())
        });
        park().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(job.cancel("enough"));
    assert_eq!(log.text(), "");
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "cleaned");
    assert_eq!(lab.elapsed() - before, 30 * MS);
}

/// J02: drop-guards of a cancelled task have run before the scope returns.
pub async fn case_j02_locals_of_a_cancelled_task_are_gone_when_the_scope_returns(lab: Lab) {
    let tally = Tally::new();
    let stopped = scope(async |s| {
        let (local, argument) = (tally.guard(), tally.guard());
        s.launch(async move {
            let _local = local;
            park().await?;
            drop(argument);
            Ok::<_, Error>(())
        });
        lab.settle().await;
        assert_eq!(tally.drops(), 0);
        s.cancel("enough");
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(tally.drops(), 2);
}

/// J03: a hook fires at most once; of cancel and disarm one wins, and the
/// loser does nothing.
/// Also: T17.
pub async fn case_j03_of_cancel_and_disarm_one_wins(lab: Lab) {
    for disarm_first in [true, false] {
        let fired = Arc::new(AtomicUsize::new(0));
        let counted = fired.clone();
        let kept = Place::new();
        let place = kept.clone();
        let task = spawn(async move {
            place.put(on_cancel(move |_| {
                counted.fetch_add(1, SeqCst);
            }));
            park().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        let guard = kept.take().unwrap();
        if disarm_first {
            assert!(guard.disarm());
            assert_eq!(Arc::strong_count(&fired), 1, "what it held is gone");
            assert!(task.cancel("first"));
        } else {
            assert!(task.cancel("first"));
            assert_eq!(fired.load(SeqCst), 1);
            assert!(!guard.disarm());
        }
        assert!(!task.cancel("second"));
        assert!(task.outcome().await.unwrap().is_cancelled());
        assert_eq!(fired.load(SeqCst), usize::from(!disarm_first));
    }
}

/// J03: a disarm on another thread races the cancel: one of them wins.
pub async fn case_j03_a_disarm_on_another_thread_races_the_cancel(lab: Lab) {
    let fired = Arc::new(AtomicUsize::new(0));
    let counted = fired.clone();
    let kept: Place<HookGuard> = Place::new();
    let place = kept.clone();
    let task = spawn(async move {
        place.put(on_cancel(move |_| {
            counted.fetch_add(1, SeqCst);
        }));
        park().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let guard = kept.take().unwrap();
    let other = std::thread::spawn(move || usize::from(guard.disarm()));
    task.cancel("enough");
    let disarmed = other.join().unwrap();
    assert_eq!(fired.load(SeqCst) + disarmed, 1);
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(fired.load(SeqCst) + disarmed, 1);
}

/// J04: registering in a job that is cancelled already fires at once, with
/// the reason.
pub async fn case_j04_registering_after_the_cancel_fires_at_once(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let told = park().await;
        let said = words.clone();
        let guard = on_cancel(move |reason| said.say(reason.text().unwrap_or_default()));
        words.say("registered");
        assert!(!guard.disarm(), "it has fired");
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "enough registered");
}

/// J06: a hook may drop its own guard and register another hook.
pub async fn case_j06_a_hook_may_drop_its_own_guard_and_register_another(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let stopped = scope(async |s| {
        let own: Place<HookGuard> = Place::new();
        let (place, more) = (own.clone(), s.clone());
        own.put(s.on_cancel(move |_| {
            words.say("first");
            drop(place.take());
            let said = words.clone();
            more.on_cancel(move |_| said.say("second")).keep();
            words.say("over");
        }));
        lab.settle().await;
        assert!(s.cancel("enough"));
        assert!(own.take().is_none());
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(log.text(), "first second over");
}

/// J07: of a hundred hooks with half of them disarmed exactly the other half
/// fire.
pub async fn case_j07_of_a_hundred_hooks_the_armed_half_fires(_lab: Lab) {
    let fired = Arc::new(Mutex::new(Vec::new()));
    let stopped = scope(async |s| {
        let guards: Vec<_> = (0..100)
            .map(|n| {
                let fired = fired.clone();
                s.on_cancel(move |_| fired.lock().unwrap().push(n))
            })
            .collect();
        let mut armed = Vec::new();
        for (n, guard) in guards.into_iter().enumerate() {
            match n % 4 {
                0 => drop(guard),
                2 => assert!(guard.disarm()),
                1 => guard.keep(),
                _ => armed.push(guard),
            }
        }
        s.cancel("enough");
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    let mut fired = fired.lock().unwrap().clone();
    fired.sort_unstable();
    assert_eq!(fired, (0..100).filter(|n| n % 2 == 1).collect::<Vec<_>>());
}

/// J15: after Cancelled every plain point fails, and the code between them
/// runs to the end.
pub async fn case_j15_code_between_points_runs_to_the_end(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let told = sleep(3_600_000 * MS).await;
        words.say("a");
        assert!(checkpoint().await.is_err());
        words.say("b");
        assert!(sleep(MS).await.is_err());
        words.say("c");
        assert!(park().await.is_err());
        words.say("d");
        told?;
        words.say("never");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "a b c d");
    assert_eq!(lab.elapsed(), before);
}

/// J16: a hook gets the same reason that the task sees.
pub async fn case_j16_hook_and_task_see_the_same_reason(lab: Lab) {
    let seen: Place<Reason> = Place::new();
    let place = seen.clone();
    let task = spawn(async move {
        on_cancel(move |reason| place.put(reason.clone())).keep();
        let told = park().await.unwrap_err();
        let here: Reason = told.reason().clone();
        Ok::<_, Error>(here)
    });
    lab.settle().await;
    task.cancel("enough");
    let outcome = task.outcome().await.unwrap();
    let Outcome::Cancelled {
        reason,
        late: Some(told),
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    let hook = seen.take().unwrap();
    assert!(hook.same(&reason) && hook.same(&told));
    assert_eq!(hook.kind(), ReasonKind::Asked);
    assert_eq!(hook.text(), Some("enough"));
    assert_eq!(hook.site(), reason.site());
}

/// J19: a hook registered for both runs at a normal end too, without a
/// reason; one call either way. A plain one is dropped unfired.
/// Also: T17.
pub async fn case_j19_a_hook_for_both_runs_once_either_way(lab: Lab) {
    for cancelled in [false, true] {
        let log = Log::new();
        let (words, plain) = (log.clone(), log.clone());
        let tally = Tally::new();
        let held = tally.guard();
        let job = launch(async move {
            on_cancel_or_end(move |reason| match reason {
                Some(reason) => words.say(reason.text().unwrap_or_default()),
                None => words.say("end"),
            })
            .keep();
            on_cancel(move |_| {
                let _held = held;
                plain.say("cancel");
            })
            .keep();
            sleep(10 * MS).await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        assert_eq!(log.len(), 0);
        if cancelled {
            job.cancel("enough");
            assert_eq!(log.len(), 2);
        }
        let outcome = job.join().await.unwrap();
        assert_eq!(outcome.is_cancelled(), cancelled);
        assert_eq!(tally.drops(), 1);
        if cancelled {
            assert_eq!(log.len(), 2);
            assert!(log.text().contains("enough") && log.text().contains("cancel"));
        } else {
            assert_eq!(log.text(), "end");
        }
    }
}

/// J21: two who cancel and join at once both return only after the clean-up.
pub async fn case_j21_two_cancel_and_join_both_wait(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let job = launch(async move {
        let told = park().await;
        cleanup(sleep(20 * MS)).await?;
        words.say("cleaned");
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let moved = Arc::new(AtomicUsize::new(0));
    let before = lab.elapsed();
    let stop = |job: Job, words: Log, moved: Arc<AtomicUsize>| async move {
        if job.cancel("enough") {
            moved.fetch_add(1, SeqCst);
        }
        assert!(job.join().await?.is_cancelled());
        words.say("joined");
        Ok::<_, Error>(())
    };
    let first = spawn(stop(job.clone(), log.clone(), moved.clone()));
    let second = spawn(stop(job, log.clone(), moved.clone()));
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(log.text(), "cleaned joined joined");
    assert_eq!(moved.load(SeqCst), 1);
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// T17: a cancel that comes after the awaiter has resumed and disarmed does
/// not fire.
pub async fn src_t17_a_late_cancel_does_not_fire(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let gate = Gate::new();
    let done = gate.clone();
    let task = spawn(async move {
        let guard = on_cancel(move |_| words.say("fired"));
        done.wait().await;
        assert!(guard.disarm());
        park().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    gate.open();
    lab.settle().await;
    task.cancel("late");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "");
}

/// T24: a user's own resource: a wait whose operation a hook aborts.
pub async fn src_t24_a_resource_of_the_users_own(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        // The operation: done when the gate opens, aborted by the hook.
        let (operation, aborted) = (Gate::new(), words.clone());
        let abort = operation.clone();
        let guard = on_cancel(move |reason| {
            aborted.say(format!("abort:{}", reason.text().unwrap_or_default()));
            abort.open();
        });
        operation.wait().await;
        let completed = guard.disarm();
        words.say(format!("completed:{completed}"));
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    task.cancel("stop");
    assert_eq!(log.text(), "abort:stop", "on the canceller's thread");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "abort:stop completed:false");
    assert_eq!(lab.elapsed(), before);
}

/// cancel-8: a hook registered in a shield moves to the enclosing job at its
/// exit: it fires then if a cancel was held back, else it stays armed there.
/// Also: T15.
pub async fn cancel_8_a_hook_moves_out_of_its_shield(lab: Lab) {
    for during in [true, false] {
        let log = Log::new();
        let words = log.clone();
        let gate = Gate::new();
        let door = gate.clone();
        let task = spawn(async move {
            let said = words.clone();
            shield(async move {
                on_cancel(move |_| said.say("hook")).keep();
                door.wait().await;
            })
            .await?;
            words.say("left");
            park().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        if during {
            task.cancel("enough");
            lab.settle().await;
            assert_eq!(log.text(), "");
            gate.open();
        } else {
            gate.open();
            lab.settle().await;
            assert_eq!(log.text(), "left");
            task.cancel("enough");
        }
        assert!(task.outcome().await.unwrap().is_cancelled());
        assert_eq!(log.text(), if during { "hook left" } else { "left hook" });
    }
}

/// cancel-8: a hook runs outside any job: it may not be taken for part of
/// the body that cancels.
pub async fn cancel_8_a_hook_runs_on_the_cancellers_thread_outside_every_job(lab: Lab) {
    let seen: Place<(std::thread::ThreadId, bool)> = Place::new();
    let place = seen.clone();
    let task = hooked(move |_| {
        place.put((std::thread::current().id(), current_job().is_none()));
    });
    lab.settle().await;
    let job = task.job();
    let canceller = std::thread::spawn(move || {
        assert!(job.cancel("from afar"));
        std::thread::current().id()
    });
    let thread = canceller.join().unwrap();
    assert_eq!(seen.take(), Some((thread, true)));
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// cancel-1: a hook that panics harms no other job: the walk goes on, the other
/// hooks fire, the tree ends.
pub async fn cancel_1_a_hook_that_panics_harms_nobody(lab: Lab) {
    let fired = Arc::new(AtomicUsize::new(0));
    let counters = lab.counters();
    let stopped = scope(async |s| {
        let deep = fired.clone();
        s.launch(async move {
            on_cancel(|_| raise("in the child")).keep();
            on_cancel(move |_| {
                deep.fetch_add(1, SeqCst);
            })
            .keep();
            park().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        for n in 0..4 {
            let fired = fired.clone();
            s.on_cancel(move |_| {
                fired.fetch_add(1, SeqCst);
                if n % 2 == 0 {
                    raise("in the scope")
                }
            })
            .keep();
        }
        assert!(s.cancel("enough"), "the call returns as ever");
        assert_eq!(fired.load(SeqCst), 5);
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    let after = lab.counters();
    assert_eq!(after.jobs_failed, counters.jobs_failed);
    assert_eq!(after.jobs_cancelled - counters.jobs_cancelled, 2);
    assert_eq!(after.living(), counters.living());
}

/// cancel-8: a hook that panics at the job's end harms no other job either. It is reported.
pub async fn cancel_8_an_end_hook_that_panics_harms_nobody(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        on_cancel_or_end(|_| raise("at the end")).keep();
        on_cancel_or_end(move |_| words.say("other")).keep();
        7
    });
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(log.text(), "other");
    let reported = lab.take_failures();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].to_string().ends_with("in a hook: at the end"));
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        raise("in a destructor")
    }
}

/// cancel-8: what a disarmed hook held may panic in its destructor: nobody
/// is harmed.
pub async fn cancel_8_what_a_hook_held_may_panic_when_dropped(_lab: Lab) {
    let bomb = PanicsWhenDropped;
    let task = spawn(async move {
        let guard = on_cancel(move |_| drop(bomb));
        assert!(guard.disarm());
        on_cancel(|_| drop(PanicsWhenDropped)).keep();
        1
    });
    assert_eq!(task.await.unwrap(), 1);
}

struct LoudWaker(AtomicUsize);

impl Wake for LoudWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        raise("in a waker")
    }
}

/// cancel-1: a waker that panics harms no other job: the other waiters are woken,
/// the job ends, the counters balance.
pub async fn cancel_1_a_waker_that_panics_harms_nobody(lab: Lab) {
    let before = lab.counters();
    let job = launch(sleep(10 * MS));
    let loud = Arc::new(LoudWaker(AtomicUsize::new(0)));
    let waker = Waker::from(loud.clone());
    let mut joins: Vec<_> = (0..2).map(|_| Box::pin(job.join())).collect();
    for join in &mut joins {
        let polled = join.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending));
    }
    let other = spawn({
        let job = job.clone();
        async move { job.join().await.map(|outcome| outcome.is_completed()) }
    });
    assert!(job.join().await.unwrap().is_completed());
    assert!(other.await.unwrap());
    assert_eq!(loud.0.load(SeqCst), 2, "each waiter is woken once");
    drop(joins);
    let after = lab.counters();
    assert_eq!(after.waiters_pending(), before.waiters_pending());
    assert_eq!(after.living(), before.living());
}

/// cancel-1: a leaf under a foreign waker that panics does not stop the walk.
pub async fn cancel_1_a_leafs_waker_that_panics_does_not_stop_the_walk(lab: Lab) {
    let loud = Arc::new(LoudWaker(AtomicUsize::new(0)));
    let waker = Waker::from(loud.clone());
    let job = launch(async move {
        launch(park());
        let mut leaf = Box::pin(park());
        let polled = leaf.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        park().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(job.cancel("enough"));
    assert_eq!(loud.0.load(SeqCst), 1);
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(job.state(), JobState::Cancelled);
}

/// cancel-8: outside any job and in an ended scope a hook has nothing to
/// wait for.
pub async fn cancel_8_a_hook_at_an_ended_scope_never_fires(_lab: Lab) {
    let log = Log::new();
    let ended: Scope = scope(async |s| Ok(s)).await.unwrap();
    let words = log.clone();
    let guard = ended.on_cancel(move |_| words.say("fired"));
    assert!(!ended.cancel("late"));
    drop(guard);
    assert_eq!(log.text(), "");
}

/// Hooks that cancel one job after the other, in a long row:
/// each job is marked when the cancel in the hook returns, and all hooks have run
/// when the first cancel does.
pub async fn cancel_8_a_row_of_hooks_is_a_loop(lab: Lab) {
    const ROW: usize = 500;
    let ran = Arc::new(AtomicUsize::new(0));
    let mut tasks: Vec<Task<()>> = Vec::new();
    for _ in 0..ROW {
        let (next, ran) = (tasks.last().map(Task::job), ran.clone());
        tasks.push(hooked(move |_| {
            if let Some(next) = next {
                assert!(next.cancel("the one before is"));
                assert!(next.cancel_requested());
            }
            ran.fetch_add(1, SeqCst);
        }));
    }
    lab.settle().await;
    let first = tasks.last().expect("a row");
    assert!(first.cancel("the first"));
    assert_eq!(ran.load(SeqCst), ROW);
    for task in tasks {
        assert!(task.outcome().await.unwrap().is_cancelled());
    }
}

/// cancel-8: a hook that fires at once, because its job is cancelled, is outside every
/// job, as every hook is.
pub async fn cancel_8_a_hook_that_fires_at_once_is_outside_every_job(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let over = Scope::build()
        .cancelled("from the start")
        .run(async move |s| {
            let (one, two) = (words.clone(), words);
            on_cancel(move |_| one.say(format!("{:?}", current_job().is_some()))).keep();
            s.on_cancel(move |_| two.say(format!("{:?}", current_job().is_some())))
                .keep();
            assert_eq!(current_job(), Some(s.job()));
            Ok(())
        })
        .await;
    over.unwrap();
    assert_eq!(log.text(), "false false");
}

/// cancel-8: hooks that are kept in shields inside each other are called in the order of
/// their registration, behind those that the job had before, and can be disarmed wherever
/// they have come to.
pub async fn cancel_8_hooks_of_nested_shields_keep_their_order(_: Lab) {
    // Which list is the longer decides which of the two is put into the other.
    for (before, outer, inner) in [(1, 1, 5), (5, 1, 1), (0, 3, 3), (2, 6, 1), (1, 0, 2)] {
        let called = Arc::new(Mutex::new(Vec::new()));
        let hook = |place: &'static str, n: usize| {
            let called = called.clone();
            on_cancel(move |_| called.lock().unwrap().push((place, n)))
        };
        let made = Mutex::new(Vec::new());
        let all = |place: &'static str, count: usize| {
            let new = (0..count).map(|n| ((place, n), hook(place, n)));
            made.lock().unwrap().extend(new);
        };
        let told = scope(async |s| {
            all("before", before);
            shield(async {
                all("outer", outer);
                shield(async {
                    all("inner", inner);
                    Ok::<_, Error>(())
                })
                .await?;
                all("outer, later", 1);
                Ok::<_, Error>(())
            })
            .await?;
            all("behind", 1);
            // Every second one is disarmed, wherever it has come to.
            let mut stays = true;
            made.lock().unwrap().retain(|_| {
                stays = !stays;
                stays
            });
            s.cancel("now");
            checkpoint().await?;
            Ok(())
        })
        .await;
        assert!(told.is_err());
        let (expected, guards): (Vec<_>, Vec<_>) = made.into_inner().unwrap().into_iter().unzip();
        assert_eq!(*called.lock().unwrap(), expected);
        assert!(guards.into_iter().all(|guard| !guard.disarm()));
    }
}
