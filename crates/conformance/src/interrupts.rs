//! Interrupts: who hears one, where, and what holds it back. request-1.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use kinfolk_core::{
    Error, ErrorKind, JobState, OrCancel, Outcome, ReasonKind, Scope, checkpoint, cleanup,
    ignore_cancellation, is_cancelled, launch, on_cancel, park, scope, shield, sleep, spawn,
    timeout, try_shield, yield_now,
};

use crate::interrupted::{me, one_turn, parked, words, words_of};
use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

type Boxed<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// request-1: the first point takes it and returns one Cancelled; the job is
/// what it was.
pub async fn request_1_one_point_takes_it(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        assert!(me.interrupt("stop"));
        assert_eq!(me.interrupts(), 1);
        let told = checkpoint().await.unwrap_err();
        assert_eq!(words(&told), "stop");
        assert_eq!(told.origin(), me.id());
        assert_eq!(told.site().file(), file!());
        assert!(!me.cancel_requested() && me.reason().is_none());
        assert_eq!(me.state(), JobState::Active);
        checkpoint().await.unwrap();
        sleep(MS).await.unwrap();
        assert_eq!(me.interrupts(), 1);
        7
    });
    assert_eq!(task.await.unwrap(), 7);
}

/// request-1: requests that arrive before delivery merge, and the latest words
/// win.
pub async fn request_1_requests_merge(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        for text in ["one", "two", "three"] {
            assert!(me.interrupt(text));
        }
        assert_eq!(words(&yield_now().await.unwrap_err()), "three");
        checkpoint().await.unwrap();
        assert_eq!(me.interrupts(), 3);
    });
    task.await.unwrap();
}

/// request-1: whatever point a task waits in, it is woken and told.
pub async fn request_1_a_task_that_waits_in_a_point_is_told(lab: Lab) {
    let other = lab.root().launch(parked());
    let target = other.clone();
    let points: Vec<Boxed<Result<(), Error>>> = vec![
        Box::pin(parked()),
        Box::pin(async { Ok(sleep(HOUR).await?) }),
        Box::pin(async { Ok(Gate::new().wait().or_cancel().await?) }),
        Box::pin(async move { target.join().await.map(drop).map_err(Error::from) }),
    ];
    for point in points {
        let task = spawn(async move { words_of(&point.await.unwrap_err()).to_owned() });
        lab.settle().await;
        assert!(task.interrupt("now"));
        assert_eq!(task.await.unwrap(), "now");
    }
    assert_eq!(lab.elapsed(), Duration::ZERO);
    assert_eq!(lab.counters().timers_pending(), 0);
    assert!(!other.is_ended());
    other.cancel("the end");
    assert!(other.join().await.unwrap().is_cancelled());
}

/// request-1: from another thread, while it runs: undisturbed up to its next
/// point, also inside a scope.
pub async fn request_1_a_task_that_runs_is_told_at_its_next_point(_lab: Lab) {
    let task = spawn(async {
        timeout(HOUR, async {
            let job = me();
            let thread = std::thread::spawn(move || job.interrupt("from a thread"));
            assert!(thread.join().unwrap());
            assert!(is_cancelled());
            let told = checkpoint().await.unwrap_err();
            assert!(!is_cancelled());
            checkpoint().await?;
            Ok::<_, Error>(words(&told).to_owned())
        })
        .await
    });
    assert_eq!(task.await.unwrap(), "from a thread");
}

/// request-1: one that finds the task runnable but not yet polled is kept for
/// its next point.
pub async fn request_1_a_runnable_task_keeps_it(lab: Lab) {
    let (gate, log) = (Gate::new(), Log::new());
    let (wait, words_to) = (gate.clone(), log.clone());
    let task = spawn(async move {
        wait.wait().await;
        words_to.say("resumed");
        let told = checkpoint().await.unwrap_err();
        words_to.say(words(&told));
    });
    lab.settle().await;
    gate.open();
    assert!(task.interrupt("kept"));
    task.await.unwrap();
    assert_eq!(log.text(), "resumed kept");
}

/// request-1: waiting in a non-point: told at the next point.
pub async fn request_1_a_foreign_await_is_left_alone(lab: Lab) {
    let (gate, log) = (Gate::new(), Log::new());
    let (wait, words_to) = (gate.clone(), log.clone());
    let task = spawn(async move {
        wait.wait().await;
        words_to.say("open");
        Ok::<_, Error>(checkpoint().await?)
    });
    lab.settle().await;
    assert!(task.interrupt("later"));
    // Longer than any patience with the cancelled: nobody was.
    sleep(HOUR).await.unwrap();
    assert!(!task.is_ended() && log.is_empty());
    gate.open();
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("later"));
    assert_eq!(log.text(), "open");
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// request-1: a scope that waits for its children is no point: its value is
/// kept, and the next point tells.
pub async fn request_1_a_scope_that_waits_for_its_children_keeps_it(lab: Lab) {
    let gate = Gate::new();
    let wait = gate.clone();
    let task = spawn(async move {
        let value = scope(async |s| {
            s.launch(async move { wait.wait().await });
            Ok(7)
        })
        .await?;
        assert_eq!(words(&checkpoint().await.unwrap_err()), "meanwhile");
        Ok::<_, Error>(value)
    });
    lab.settle().await;
    assert!(task.interrupt("meanwhile"));
    lab.settle().await;
    assert!(!task.is_ended());
    gate.open();
    assert_eq!(task.await.unwrap(), 7);
}

/// request-1: a shield and a cleanup hold it until they are left.
/// Also: shield-2, shield-3.
pub async fn request_1_a_shield_holds_it(lab: Lab) {
    let task = spawn(async {
        let inside = shield(async {
            sleep(MS).await?;
            assert!(!is_cancelled());
            // What is opened inside is protected as well.
            scope(async |_| Ok(sleep(MS).await?)).await?;
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        inside.await.unwrap();
        assert!(is_cancelled());
        assert_eq!(words(&checkpoint().await.unwrap_err()), "held");
        me().interrupt("again");
        cleanup(sleep(MS)).await.unwrap();
        assert_eq!(words(&checkpoint().await.unwrap_err()), "again");
    });
    lab.settle().await;
    assert!(task.interrupt("held"));
    task.await.unwrap();
    assert_eq!(lab.elapsed(), 3 * MS);
}

/// request-1: so does a guard; and the code that lets it go wakes the task.
/// Also: shield-1.
pub async fn request_1_a_guard_holds_it(lab: Lab) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (guards, log) = (kept.clone(), Log::new());
    let words_to = log.clone();
    let task = spawn(async move {
        let first = ignore_cancellation().await?;
        let second = ignore_cancellation().await?;
        guards.lock().unwrap().extend([first, second]);
        // The guard is the task's; the point is a scope's.
        let told = scope(async |_| parked().await).await.unwrap_err();
        words_to.say(words_of(&told));
        let held = try_shield(async {
            me().interrupt("inside");
            checkpoint().await
        });
        held.await.unwrap().unwrap();
        Ok::<_, Error>(checkpoint().await?)
    });
    lab.settle().await;
    assert!(task.interrupt("guarded"));
    lab.settle().await;
    for guard in std::mem::take(&mut *kept.lock().unwrap()) {
        assert!(log.is_empty());
        drop(guard);
    }
    let outcome = task.outcome().await.unwrap();
    assert_eq!(log.text(), "guarded");
    assert_eq!(outcome.reason().unwrap().text(), Some("inside"));
}

/// request-1: entering a guard is a point.
pub async fn request_1_an_interrupted_task_enters_no_guard(_lab: Lab) {
    let task = spawn(async {
        me().interrupt("first");
        assert_eq!(words(&ignore_cancellation().await.unwrap_err()), "first");
        drop(ignore_cancellation().await.unwrap());
    });
    task.await.unwrap();
}

/// request-1: points in scopes of the task take it, however deep, opened
/// before or after.
pub async fn request_1_points_in_scopes_take_it(lab: Lab) {
    let task = spawn(async {
        let deep = timeout(HOUR, scope(async |_| scope(async |_| parked().await).await));
        assert_eq!(words_of(&deep.await.unwrap_err()), "before");
        me().interrupt("after");
        let later = scope(async |_| {
            scope(async |_| {
                assert!(is_cancelled());
                Ok(checkpoint().await?)
            })
            .await
        });
        assert_eq!(words_of(&later.await.unwrap_err()), "after");
        // Taken in there, so there is nothing out here.
        checkpoint().await.unwrap();
        scope(async |_| Ok(checkpoint().await?)).await
    });
    lab.settle().await;
    assert!(task.interrupt("before"));
    task.await.unwrap();
}

/// request-1: a scope hears for the task it belongs to, whichever job polls it.
/// Also: cancel-9.
pub async fn request_1_a_moved_scope_hears_for_its_own_task(lab: Lab) {
    let handed = Arc::new(Mutex::new(None));
    let (hand, gate) = (handed.clone(), Gate::new());
    let wait = gate.clone();
    let opens = spawn(async move {
        let mut inner: Boxed<Result<(), Error>> = Box::pin(scope(async |_| parked().await));
        assert!(futures_util::poll!(&mut inner).is_pending());
        *hand.lock().unwrap() = Some(inner);
        wait.wait().await;
        Ok::<_, Error>(checkpoint().await?)
    });
    lab.settle().await;
    let moved = handed.lock().unwrap().take().expect("it was opened");
    let polls = spawn(async move {
        let stopped = moved.await.unwrap_err();
        checkpoint().await?;
        Ok::<_, Error>(stopped)
    });
    lab.settle().await;
    assert!(opens.interrupt("of its own task"));
    // Not its poller's own: what it polled was stopped.
    let stopped = polls.await.unwrap();
    assert_eq!(stopped.kind(), ErrorKind::Stopped);
    assert_eq!(stopped.reason().unwrap().text(), Some("of its own task"));
    gate.open();
    opens.await.unwrap();
}

/// request-3: polled by a job that is cancelled, it ends with that job's cancel,
/// whatever its own task was asked.
/// Also: request-1, cancel-9.
pub async fn request_3_a_moved_scope_in_a_cancelled_poller(lab: Lab) {
    let handed = Arc::new(Mutex::new(None));
    let (hand, gate) = (handed.clone(), Gate::new());
    let wait = gate.clone();
    let opens = spawn(async move {
        let mut inner: Boxed<Result<(), Error>> = Box::pin(scope(async |_| parked().await));
        assert!(futures_util::poll!(&mut inner).is_pending());
        *hand.lock().unwrap() = Some(inner);
        wait.wait().await;
    });
    lab.settle().await;
    let moved = handed.lock().unwrap().take().expect("it was opened");
    let stopped = Arc::new(Mutex::new(None));
    let keep = stopped.clone();
    let polls = spawn(async move {
        *keep.lock().unwrap() = moved.await.err();
        gate.open();
        checkpoint().await
    });
    lab.settle().await;
    assert!(polls.cancel("of the poller"));
    assert!(opens.interrupt("of its own task"));
    assert!(polls.outcome().await.unwrap().is_cancelled());
    opens.await.unwrap();
    let stopped = stopped.lock().unwrap().take().expect("it was told");
    assert_eq!(stopped.kind(), ErrorKind::Cancelled);
    assert_eq!(stopped.reason().unwrap().text(), Some("of the poller"));
}

/// request-1: asked of a scope it is asked of its task.
pub async fn request_1_a_scope_stands_for_its_task(_lab: Lab) {
    let task = spawn(async {
        let ended = scope(async |s| {
            let job = s.job();
            assert!(job.interrupt("by its scope"));
            Ok(job)
        });
        let ended = ended.await.unwrap();
        assert_eq!(me().interrupts(), 1);
        assert_eq!(words(&checkpoint().await.unwrap_err()), "by its scope");
        // One that has ended is part of no task.
        assert!(!ended.interrupt("late"));
        assert_eq!((ended.interrupts(), ended.uninterrupt()), (0, 0));
        assert_eq!(me().uninterrupt(), 0);
    });
    task.await.unwrap();
}

/// request-1: the root has no body to tell.
pub async fn request_1_the_root_cannot_be_asked(lab: Lab) {
    let root = lab.tree().root_job();
    assert!(!root.interrupt("nobody"));
    assert_eq!((root.interrupts(), root.uninterrupt()), (0, 0));
    checkpoint().await.unwrap();
}

/// request-1: leaves under foreign wakers are told too: one of them, once.
/// Also: cancel-4.
pub async fn request_1_a_leaf_under_a_foreign_waker_is_told(lab: Lab) {
    for wrapped in [false, true] {
        let task = spawn(async move {
            let mut all: FuturesUnordered<Boxed<Result<(), Error>>> = FuturesUnordered::new();
            // Waits that are no points do not stand in the way.
            all.push(Box::pin(shield(async { Ok::<_, Error>(sleep(MS).await?) })));
            for _ in 0..3 {
                all.push(match wrapped {
                    true => Box::pin(timeout(2 * MS, async { parked().await })),
                    false => Box::pin(async { Ok(sleep(2 * MS).await?) }),
                });
            }
            let mut heard = 0;
            while let Some(result) = all.next().await {
                match result {
                    Err(told) if told.kind() == ErrorKind::Cancelled => {
                        assert_eq!(words_of(&told), "one of you");
                        heard += 1;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                    Ok(()) => {}
                }
            }
            heard
        });
        lab.settle().await;
        assert!(task.interrupt("one of you"));
        assert_eq!(task.await.unwrap(), 1);
    }
}

/// request-1: a leaf that comes to wait while it is asked is told: again and
/// again, no wake is lost.
pub async fn request_1_leaves_are_told_again_and_again(lab: Lab) {
    let task = spawn(async {
        let mut heard = 0;
        let mut all: FuturesUnordered<Boxed<Result<(), Error>>> = FuturesUnordered::new();
        for _ in 0..2 {
            all.push(Box::pin(parked()));
        }
        while heard < 20 {
            all.next().await.unwrap().unwrap_err();
            heard += 1;
            all.push(Box::pin(parked()));
        }
        drop(all);
        // What came between two of its turns was merged.
        me().interrupts() >= heard
    });
    lab.settle().await;
    while !task.is_ended() {
        task.interrupt("on");
        lab.settle().await;
    }
    assert!(task.await.unwrap());
}

/// request-1: a lazy task is not started by it, and never begins after it.
/// Also: handle-3.
pub async fn request_1_a_lazy_task_never_begins(_lab: Lab) {
    let here = Scope::current().unwrap();
    let tally = Tally::new();
    let asked = here.spawn_lazy(tally.count(async { 7 }));
    assert!(asked.interrupt("no need"));
    assert_eq!(asked.job().state(), JobState::New);
    let outcome = asked.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().kind(), ReasonKind::Interrupted);
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
    // Taken back before it is started: nothing has happened.
    let revoked = here.spawn_lazy(async { Ok::<_, Error>(checkpoint().await.map(|()| 8)?) });
    assert!(revoked.interrupt("no need"));
    assert_eq!(revoked.uninterrupt(), 0);
    assert_eq!(revoked.await.unwrap(), 8);
}

/// request-1: an atomic start reaches its first point.
/// Also: handle-3.
pub async fn request_1_an_atomic_start_reaches_its_first_point(_lab: Lab) {
    let log = Log::new();
    let words_to = log.clone();
    let gate = Gate::new();
    let wait = gate.clone();
    let task = Scope::current().unwrap().spawn_atomic(async move {
        words_to.say("begun");
        wait.wait().await;
        Ok::<_, Error>(checkpoint().await?)
    });
    assert!(task.interrupt("before its start"));
    gate.open();
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("before its start"));
    assert_eq!(log.text(), "begun");
}

/// request-1: a task that has had its first poll inside `spawn_now` is told
/// where it waits.
/// Also: handle-3.
pub async fn request_1_a_task_spawned_now_is_told(lab: Lab) {
    let here = Scope::current().unwrap();
    let task = here.spawn_now(async {
        let before = scope(async |_| parked().await).await;
        words_of(&before.unwrap_err()).to_owned()
    });
    // Where that is the same as `spawn` it has not begun yet.
    lab.settle().await;
    assert!(task.interrupt("at once"));
    assert_eq!(task.await.unwrap(), "at once");
    // And inside its first poll: it is its own task, not its spawner's.
    let task = here.spawn_now(async { me().interrupt("mine") });
    assert!(task.outcome().await.unwrap().is_cancelled());
    checkpoint().await.unwrap();
}

/// request-1: a service is told like any task, and its job knows nothing of it.
/// Also: handle-6.
pub async fn request_1_a_service_is_told(lab: Lab) {
    let value = scope(async |s| {
        let service = s.spawn_service(async {
            let told = park().await.unwrap_err();
            park().await.unwrap_err();
            words(&told).to_owned()
        });
        lab.settle().await;
        assert!(service.interrupt("reload"));
        lab.settle().await;
        assert!(!service.is_ended());
        checkpoint().await?;
        Ok(service.outcome())
    })
    .await
    .unwrap();
    let Outcome::Cancelled { late, .. } = value.await.unwrap() else {
        panic!("a service ends with its scope");
    };
    assert_eq!(late.as_deref(), Some("reload"));
}

/// request-1: false, and nothing counted, if the body is over: ended, or
/// waiting for its children.
pub async fn request_1_a_body_that_is_over_cannot_be_asked(lab: Lab) {
    let gate = Gate::new();
    let wait = gate.clone();
    let task = spawn(async move {
        launch(async move { wait.wait().await });
        7
    });
    lab.settle().await;
    let job = task.job();
    assert_eq!(job.state(), JobState::Completing);
    assert!(!job.interrupt("too late"));
    gate.open();
    assert_eq!(task.await.unwrap(), 7);
    assert!(!job.interrupt("much too late"));
    assert_eq!((job.interrupts(), job.uninterrupt()), (0, 0));
}

/// request-1: it marks no job: children hear nothing, hooks are not called,
/// and what is spawned is not refused.
/// Also: cancel-8.
pub async fn request_1_it_marks_nobody(lab: Lab) {
    let log = Log::new();
    let words_to = log.clone();
    let gate = Gate::new();
    let wait = gate.clone();
    let asked = lab.counters().cancellations_requested;
    let task = spawn(async move {
        let hook = on_cancel(move |_| words_to.say("hook"));
        let child = launch(parked());
        wait.wait().await;
        me().interrupt("only me");
        let second = spawn(async { Ok::<_, Error>(checkpoint().await?) });
        checkpoint().await.unwrap_err();
        second.await.unwrap();
        assert!(!child.cancel_requested() && !child.is_ended());
        assert!(hook.disarm());
        child.cancel("the end");
    });
    gate.open();
    task.await.unwrap();
    assert!(log.is_empty());
    assert_eq!(lab.counters().cancellations_requested, asked + 1);
}

/// request-1: swallowing interrupts is what they are for: it is not counted,
/// and costs no turn; but it spends the budget, so that it starves no other task.
/// Also: cancel-3, cancel-5.
pub async fn request_1_swallowing_interrupts_is_no_offence(lab: Lab) {
    let task = Scope::current().unwrap().task("deaf").spawn(async {
        let me = me();
        for n in 1..=2000 {
            me.interrupt("once more");
            checkpoint().await.unwrap_err();
            assert_eq!(me.interrupts(), n);
        }
        park().await.unwrap_err();
        // A cancel is told at once: nothing has been told before.
        me.cancel("for good");
        checkpoint().await.unwrap_err();
    });
    lab.settle().await;
    let tree = lab.snapshot();
    let node = tree.find("deaf").expect("it waits");
    assert!(!node.swallows_cancellation);
    assert!((15..20).contains(&node.polls), "{} polls", node.polls);
    assert!(task.interrupt("the last"));
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// request-1: `is_cancelled` says what the next point would.
/// Also: cancel-4.
pub async fn request_1_is_cancelled_says_what_the_next_point_would(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        assert!(!is_cancelled());
        me.interrupt("yes");
        assert!(is_cancelled());
        shield(async { assert!(!is_cancelled()) }).await.unwrap();
        me.uninterrupt();
        assert!(!is_cancelled());
        me.interrupt("yes");
        let inside = scope(async |_| {
            assert!(is_cancelled());
            me.uninterrupt();
            assert!(!is_cancelled());
            Ok(checkpoint().await?)
        });
        inside.await.unwrap();
        checkpoint().await.unwrap();
    });
    task.await.unwrap();
}

/// request-1: a cancel wins over a request that has not been heard, and over
/// one that comes later.
/// Also: cancel-3.
pub async fn request_1_a_cancel_wins(_lab: Lab) {
    let task = spawn(async {
        let me = me();
        me.interrupt("asked");
        me.cancel("told");
        me.interrupt("asked again");
        for _ in 0..3 {
            let told = checkpoint().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Asked);
        }
        assert_eq!(me.interrupts(), 2);
        Ok::<_, Error>(checkpoint().await?)
    });
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("told"));
}

/// request-1: a task dropped in the middle of all this ends as it would.
/// Also: cancel-6, handle-1.
pub async fn request_1_a_body_that_is_dropped_or_panics(lab: Lab) {
    // Its handle goes while it has not heard.
    let task = spawn(async { Gate::new().wait().await });
    lab.settle().await;
    let job = task.job();
    assert!(task.interrupt("unheard"));
    drop(task);
    let outcome = job.join().await.unwrap();
    let kind = outcome.reason().unwrap().kind();
    assert_eq!(kind, ReasonKind::HandleDropped);
    // A scope with a leaf that is listed goes while it has not heard.
    let task = spawn(async {
        me().interrupt("unheard");
        let mut inner = Box::pin(scope(async |_| {
            one_turn().await;
            parked().await
        }));
        assert!(futures_util::poll!(&mut inner).is_pending());
        drop(inner);
        words(&checkpoint().await.unwrap_err()).to_owned()
    });
    assert_eq!(task.await.unwrap(), "unheard");
    // A panic while it has not heard, and after.
    for heard in [false, true] {
        let task = Scope::build().supervisor().run(async |s| {
            let task = s.spawn(async move {
                me().interrupt("on the way");
                if heard {
                    checkpoint().await.unwrap_err();
                }
                if true {
                    panic!("out of the body");
                }
            });
            let outcome: Outcome<()> = task.outcome().await?;
            Ok(outcome.error().unwrap().kind())
        });
        assert_eq!(task.await.unwrap(), ErrorKind::Panicked);
    }
}
