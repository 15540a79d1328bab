//! Interrupts on their way: passed on to who is awaited, back up, and out of
//! scopes. request-2 and request-3.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use kinfolk_core::{
    Error, ErrorKind, Job, JobState, Outcome, ReasonKind, Scope, Task, cancel_current, checkpoint,
    launch, park, scope, shield, spawn, timeout,
};

use crate::interrupted::{me, one_turn, parked, words, words_of};
use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

// ---------------------------------------------------------------- request-2

/// request-2: an await passes it on and stays; it reaches the leaf, and comes
/// back up level by level.
pub async fn request_2_it_reaches_the_leaf_and_comes_back(lab: Lab) {
    let log = Log::new();
    let (a, b, c) = (log.clone(), log.clone(), log.clone());
    let top = spawn(async move {
        let middle = spawn(async move {
            let leaf = spawn(async move {
                let told = park().await.unwrap_err();
                assert_eq!(told.origin(), me().id());
                c.say(format!("leaf:{}", words(&told)));
                Err::<(), Error>(told.into())
            });
            let result = leaf.await;
            b.say(format!("middle:{}", words_of(result.as_ref().unwrap_err())));
            result
        });
        let result = middle.await;
        a.say(format!("top:{}", words_of(result.as_ref().unwrap_err())));
        result
    });
    lab.settle().await;
    let tree = lab.snapshot();
    assert!(top.interrupt("down"));
    let outcome = top.outcome().await.unwrap();
    let reason = outcome.reason().unwrap();
    assert_eq!(reason.kind(), ReasonKind::Interrupted);
    assert_eq!(reason.text(), Some("down"));
    assert_eq!(log.text(), "leaf:down middle:down top:down");
    // The root, this case, and the three of them.
    assert_eq!(tree.len(), 5);
    checkpoint().await.unwrap();
}

/// request-2: each level is free to catch it: above nothing is heard.
pub async fn request_2_each_level_may_catch_it(lab: Lab) {
    let task = spawn(async {
        let child = spawn(async {
            park().await.unwrap_err();
            checkpoint().await?;
            Ok::<_, Error>((7, me().interrupts()))
        });
        let value = child.await?;
        checkpoint().await?;
        Ok::<_, Error>((value, me().interrupts()))
    });
    lab.settle().await;
    assert!(task.interrupt("caught below"));
    assert_eq!(task.await.unwrap(), ((7, 1), 1));
    // And where it came back to.
    let task = spawn(async {
        let child = spawn(parked());
        words_of(&child.await.unwrap_err()).to_owned()
    });
    lab.settle().await;
    assert!(task.interrupt("caught here"));
    assert_eq!(task.await.unwrap(), "caught here");
}

/// request-2: it goes to the awaited job, family or not, and through scopes
/// and foreign wakers.
pub async fn request_2_it_goes_to_whoever_is_awaited(lab: Lab) {
    let stranger = spawn(parked());
    let observer = stranger.job();
    let task = spawn(async {
        let mut all: FuturesUnordered<_> = FuturesUnordered::new();
        all.push(timeout(HOUR, stranger));
        words_of(&all.next().await.unwrap().unwrap_err()).to_owned()
    });
    lab.settle().await;
    assert!(task.interrupt("through"));
    assert_eq!(task.await.unwrap(), "through");
    let outcome = observer.join().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("through"));
    assert_eq!(observer.interrupts(), 1);
}

/// request-2: `join` is a point: it takes it, and the target hears nothing.
/// Also: handle-2.
pub async fn request_2_join_does_not_pass_it_on(lab: Lab) {
    let other = spawn(parked());
    let target = other.job();
    let task = spawn(async move { words(&target.join().await.unwrap_err()).to_owned() });
    lab.settle().await;
    assert!(task.interrupt("mine"));
    assert_eq!(task.await.unwrap(), "mine");
    assert_eq!(other.interrupts(), 0);
    assert!(!other.is_ended());
}

/// request-2: escaping the body it cancels the job at that instant, and with
/// it what the job has started.
pub async fn request_2_escaping_the_body_it_cancels_the_job(lab: Lab) {
    let log = Log::new();
    let (words_to, gate) = (log.clone(), Gate::new());
    let open = gate.clone();
    let task = spawn(async move {
        launch(async move {
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Parent);
            let cause = told.reason().root_cause();
            assert_eq!(cause.kind(), ReasonKind::Interrupted);
            words_to.say(cause.text().unwrap());
            shield(open.wait()).await.ok();
        });
        parked().await
    });
    lab.settle().await;
    assert!(task.interrupt("out"));
    lab.settle().await;
    assert_eq!(task.job().state(), JobState::Cancelling);
    assert_eq!(log.text(), "out");
    gate.open();
    let id = task.id();
    let outcome = task.outcome().await.unwrap();
    let reason = outcome.reason().unwrap();
    assert_eq!(reason.kind(), ReasonKind::Interrupted);
    assert_eq!((reason.text(), reason.origin()), (Some("out"), id));
}

/// request-2: undelivered when the body returns: Cancelled, and the value is
/// late.
/// Also: outcome-6.
pub async fn request_2_undelivered_when_the_body_returns(lab: Lab) {
    for with_child in [false, true] {
        let task = spawn(async move {
            if with_child {
                launch(parked());
            }
            me().interrupt("unheard");
            7
        });
        let Outcome::Cancelled { reason, late } = task.outcome().await.unwrap() else {
            panic!("it was asked");
        };
        assert_eq!((reason.text(), late), (Some("unheard"), Some(7)));
        assert_eq!(reason.kind(), ReasonKind::Interrupted);
    }
    assert_eq!(lab.counters().living(), 2);
}

/// request-2: before the first poll: never polled.
pub async fn request_2_before_the_first_poll(_lab: Lab) {
    let tally = Tally::new();
    let task = spawn(tally.count(async { 7 }));
    assert!(task.interrupt("not needed"));
    let Outcome::Cancelled { reason, late } = task.outcome().await.unwrap() else {
        panic!("it was asked");
    };
    assert_eq!(reason.kind(), ReasonKind::Interrupted);
    assert_eq!((reason.text(), late), (Some("not needed"), None));
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

/// request-2: a late value that comes back is the result of the await, and the
/// request waits for the next point: neither is lost.
pub async fn request_2_a_late_value_and_the_request_both_come_back(lab: Lab) {
    for by_outcome in [false, true] {
        let gate = Gate::new();
        let wait = gate.clone();
        let task = spawn(async move {
            let child = spawn(async move {
                wait.wait().await;
                7
            });
            let value = if by_outcome {
                child.outcome().await?.into_value().unwrap()
            } else {
                child.await?
            };
            assert_eq!(words(&checkpoint().await.unwrap_err()), "both");
            checkpoint().await?;
            Ok::<_, Error>(value)
        });
        lab.settle().await;
        assert!(task.interrupt("both"));
        lab.settle().await;
        gate.open();
        assert_eq!(task.await.unwrap(), 7);
    }
}

/// request-2: so does one that its target failed without having heard, or that
/// found the target with its body over.
pub async fn request_2_what_the_target_did_not_hear_stays(lab: Lab) {
    let gate = Gate::new();
    let wait = gate.clone();
    let failing = spawn(async move {
        let child = Scope::build().supervisor().run(async |s| {
            let child = s.spawn(async move {
                wait.wait().await;
                Err::<(), _>(Error::msg("deaf"))
            });
            assert_eq!(child.await.unwrap_err().to_string(), "deaf");
            Ok(checkpoint().await?)
        });
        words_of(&child.await.unwrap_err()).to_owned()
    });
    let wait = gate.clone();
    let over = spawn(async move {
        let child = spawn(async move {
            launch(async move { wait.wait().await });
            7
        });
        assert_eq!(child.await.unwrap(), 7);
        words(&checkpoint().await.unwrap_err()).to_owned()
    });
    lab.settle().await;
    assert!(failing.interrupt("stays"));
    assert!(over.interrupt("stays"));
    lab.settle().await;
    gate.open();
    assert_eq!(failing.await.unwrap(), "stays");
    assert_eq!(over.await.unwrap(), "stays");
}

/// request-2: a target that was cancelled before has not heard it; one that
/// caught it and is cancelled for another reason has.
pub async fn request_2_a_target_that_is_cancelled_as_well(lab: Lab) {
    let gate = Gate::new();
    let (wait, begun) = (gate.clone(), lab.clone());
    let before = spawn(async move {
        let child = spawn(async move {
            let told = park().await.unwrap_err();
            shield(wait.wait()).await?;
            Err::<(), Error>(told.into())
        });
        begun.settle().await;
        child.cancel("before");
        words_of(&child.await.unwrap_err()).to_owned()
    });
    lab.settle().await;
    assert!(before.interrupt("unheard"));
    lab.settle().await;
    gate.open();
    assert_eq!(before.await.unwrap(), "unheard");

    let job = Arc::new(Mutex::new(None));
    let target = job.clone();
    let after = spawn(async move {
        let child = spawn(async {
            park().await.unwrap_err();
            parked().await
        });
        *target.lock().unwrap() = Some(child.job());
        let stopped = child.await.unwrap_err();
        checkpoint().await?;
        Ok::<_, Error>(stopped)
    });
    lab.settle().await;
    assert!(after.interrupt("heard"));
    lab.settle().await;
    job.lock().unwrap().take().unwrap().cancel("later");
    let stopped = after.await.unwrap();
    assert_eq!(stopped.kind(), ErrorKind::Stopped);
    assert_eq!(stopped.reason().unwrap().text(), Some("later"));
}

/// request-2: taken back before it has come back: a late value comes alone.
pub async fn request_2_what_was_taken_back_does_not_come_back(lab: Lab) {
    let gate = Gate::new();
    let wait = gate.clone();
    let task = spawn(async move {
        let child = spawn(async move {
            wait.wait().await;
            7
        });
        let value = child.await?;
        checkpoint().await?;
        Ok::<_, Error>(value)
    });
    lab.settle().await;
    assert!(task.interrupt("never mind"));
    lab.settle().await;
    assert_eq!(task.uninterrupt(), 0);
    gate.open();
    assert_eq!(task.await.unwrap(), 7);
}

/// request-2: a waiter that is cancelled while it is on its way is told that.
pub async fn request_2_a_waiter_that_is_cancelled_meanwhile(lab: Lab) {
    let gate = Gate::new();
    let wait = gate.clone();
    let task = spawn(async move {
        let child = spawn(async move {
            let told = park().await.unwrap_err();
            shield(wait.wait()).await?;
            Err::<(), Error>(told.into())
        });
        let told = child.await.unwrap_err();
        assert_eq!(told.reason().unwrap().kind(), ReasonKind::Asked);
        Err::<(), _>(told)
    });
    lab.settle().await;
    assert!(task.interrupt("on its way"));
    lab.settle().await;
    assert!(task.cancel("for good"));
    gate.open();
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("for good"));
}

/// request-2: two that wait for each other do not pass it on for ever.
pub async fn request_2_it_does_not_go_round_in_a_circle(lab: Lab) {
    let slots: Arc<[Mutex<Option<Task<()>>>; 2]> = Arc::default();
    let gate = Gate::new();
    let jobs: Vec<Job> = [0, 1]
        .into_iter()
        .map(|mine| {
            let (wait, handles) = (gate.clone(), slots.clone());
            let task = spawn(async move {
                wait.wait().await;
                let other = handles[1 - mine].lock().unwrap().take();
                other.expect("one for each").await
            });
            let job = task.job();
            *slots[mine].lock().unwrap() = Some(task);
            job
        })
        .collect();
    gate.open();
    lab.settle().await;
    assert!(jobs[0].interrupt("round"));
    lab.settle().await;
    assert!(jobs.iter().all(|job| !job.is_ended()));
    for job in &jobs {
        job.cancel("the end");
        assert!(job.join().await.unwrap().is_cancelled());
    }
}

/// request-2: an interrupt of another task is a failure of this one.
/// Also: outcome-8.
pub async fn request_2_an_interrupt_of_another_task_is_a_failure(_lab: Lab) {
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let task = spawn(async move {
        me().interrupt("mine");
        *keep.lock().unwrap() = Some(checkpoint().await.unwrap_err());
    });
    task.await.unwrap();
    let told = kept.lock().unwrap().take().expect("it was told");
    let outcome = Scope::build().supervisor().run(async |s| {
        let task = s.spawn(async move { Err::<(), _>(told) });
        Ok(task.outcome().await?)
    });
    assert!(outcome.await.unwrap().is_failed());
}

// ---------------------------------------------------------------- request-3

/// request-3: a timeout or a scope cancels itself, never its task: nothing is
/// counted, and nothing is left.
pub async fn request_3_a_timeout_asks_nothing_of_its_task(_lab: Lab) {
    let task = spawn(async {
        let late = timeout(MS, parked()).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let stopped = scope(async |s| {
            s.cancel("itself");
            parked().await
        });
        assert_eq!(stopped.await.unwrap_err().kind(), ErrorKind::Stopped);
        assert_eq!(me().interrupts(), 0);
        checkpoint().await.unwrap();
    });
    task.await.unwrap();
}

/// request-3: an interrupt that leaves a scope cancels the scope and what is
/// in it, and goes on to the caller, who may catch it.
pub async fn request_3_it_leaves_a_scope_and_cancels_it(_lab: Lab) {
    let task = spawn(async {
        let jobs = Arc::new(Mutex::new(Vec::new()));
        let seen = jobs.clone();
        let inner = scope(async |s| {
            let child = s.launch(parked());
            seen.lock().unwrap().extend([s.job(), child]);
            me().interrupt("out");
            Ok(checkpoint().await?)
        });
        assert_eq!(words_of(&inner.await.unwrap_err()), "out");
        for job in jobs.lock().unwrap().iter() {
            assert_eq!(job.state(), JobState::Cancelled);
            let cause = job.reason().unwrap().root_cause();
            assert_eq!(cause.kind(), ReasonKind::Interrupted);
        }
        assert!(!me().cancel_requested());
        checkpoint().await.unwrap();
        7
    });
    assert_eq!(task.await.unwrap(), 7);
}

/// request-3: on exit an interrupt wins over the scope's own deadline, heard
/// or not.
/// Also: time-3, P16.
pub async fn request_3_on_exit_an_interrupt_wins_over_a_deadline(lab: Lab) {
    let task = spawn(async move {
        // Both are there when it wakes: a point says the deadline, the exit
        // says the interrupt.
        let unheard = timeout(MS, async {
            me().interrupt("unheard");
            lab.dawdle(2 * MS);
            one_turn().await;
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Deadline);
            Err::<(), Error>(told.into())
        });
        assert_eq!(words_of(&unheard.await.unwrap_err()), "unheard");
        checkpoint().await.unwrap();
        // Heard before the deadline fires.
        let heard = timeout(MS, async {
            me().interrupt("heard");
            let told = checkpoint().await.unwrap_err();
            assert_eq!(
                park().await.unwrap_err().reason().kind(),
                ReasonKind::Deadline
            );
            Err::<(), Error>(told.into())
        });
        assert_eq!(words_of(&heard.await.unwrap_err()), "heard");
        // Nested: it goes through all of them.
        let nested = timeout(
            HOUR,
            timeout(MS, async {
                me().interrupt("nested");
                lab.dawdle(2 * MS);
                one_turn().await;
                parked().await
            }),
        );
        assert_eq!(words_of(&nested.await.unwrap_err()), "nested");
        checkpoint().await.unwrap();
    });
    task.await.unwrap();
}

/// request-3: a value is kept, and the next point tells; unless the deadline
/// has cut a child short.
pub async fn request_3_a_value_is_kept_and_the_next_point_tells(lab: Lab) {
    let task = spawn(async move {
        let value = timeout(MS, async {
            me().interrupt("kept");
            lab.dawdle(2 * MS);
            one_turn().await;
            Ok::<_, Error>(7)
        });
        assert_eq!(value.await.unwrap(), 7);
        assert_eq!(words(&checkpoint().await.unwrap_err()), "kept");
        let cut = timeout(MS, async {
            launch(parked());
            me().interrupt("cut");
            lab.dawdle(2 * MS);
            one_turn().await;
            Ok::<_, Error>(7)
        });
        assert_eq!(words_of(&cut.await.unwrap_err()), "cut");
        checkpoint().await.unwrap();
    });
    task.await.unwrap();
}

/// request-3: a failure dominates it, as it does a cancel; heard or not, it is
/// told at the next point.
/// Also: outcome-5.
pub async fn request_3_a_failure_dominates_an_interrupt(lab: Lab) {
    let task = spawn(async move {
        let failed = scope(async |s| {
            s.launch(async {
                park().await.unwrap_err();
                Err::<(), _>(Error::msg("in its clean-up"))
            });
            lab.settle().await;
            me().interrupt("heard");
            Ok(checkpoint().await?)
        });
        let error = failed.await.unwrap_err();
        assert_eq!(error.to_string(), "in its clean-up");
        assert_eq!(words(&checkpoint().await.unwrap_err()), "heard");
        checkpoint().await.unwrap();
        // After its own deadline: TimedOut would keep it beside, but it is not
        // what is returned.
        let failed = timeout(MS, async {
            launch(async {
                park().await.unwrap_err();
                Err::<(), _>(Error::msg("after the deadline"))
            });
            lab.settle().await;
            me().interrupt("unheard");
            lab.dawdle(2 * MS);
            one_turn().await;
            parked().await
        });
        let error = failed.await.unwrap_err();
        assert_eq!(error.to_string(), "after the deadline");
        assert_eq!(words(&checkpoint().await.unwrap_err()), "unheard");
    });
    task.await.unwrap();
}

/// request-3: an enclosing cancellation wins over a returned interrupt.
pub async fn request_3_an_enclosing_cancel_wins_over_an_interrupt(_lab: Lab) {
    let outer = scope(async |outer| {
        let inner = scope(async |_| {
            me().interrupt("asked");
            let told = checkpoint().await.unwrap_err();
            assert_eq!(words(&told), "asked");
            outer.cancel("told");
            Err::<(), Error>(told.into())
        });
        let told = inner.await.unwrap_err();
        assert_eq!(told.reason().unwrap().text(), Some("told"));
        Err::<(), _>(told)
    });
    let task = async { outer.await.unwrap_err() };
    assert_eq!(task.await.kind(), ErrorKind::Stopped);
    assert_eq!(me().uninterrupt(), 0);
    checkpoint().await.unwrap();
}

/// request-3: a shield that cancels itself is left with what it held back.
pub async fn request_3_a_shield_is_left_with_what_it_held_back(_lab: Lab) {
    let task = spawn(async {
        let shielded = shield(async {
            me().interrupt("held");
            checkpoint().await?;
            cancel_current("itself");
            parked().await
        });
        assert_eq!(words_of(&shielded.await.unwrap_err()), "held");
        checkpoint().await.unwrap();
    });
    task.await.unwrap();
}
