//! The kit for authors: completions, and points made by hand.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk_core::kit::{Abort, Completer, Completion, NeverCompleted, Point, completion};
use kinfolk_core::{
    Cancelled, Error, ErrorKind, Result, Task, WaitKind, cancel_current, checkpoint, cleanup,
    current_job, on_cancel, shield, sleep, spawn, timeout,
};

use kinfolk_testkit::{Lab, Log, Tally};

const HOUR: Duration = Duration::from_secs(3600);

/// A task that waits, and whoever ends it.
fn waiter(
    with: impl FnOnce(Completion<u32>) -> Completion<u32>,
) -> (Task<u32>, Arc<Completer<u32>>) {
    let (wait, completer) = completion();
    let wait = with(wait);
    (spawn(wait), Arc::new(completer))
}

/// A16: the first value counts, the second is refused and changes nothing.
/// Once its waiter was cancelled nobody waits: refused. Also: cancel-5.
pub async fn case_a16_the_first_value_counts(lab: Lab) {
    for waits in [true, false] {
        let (task, completer) = waiter(|wait| wait);
        if waits {
            lab.settle().await;
        }
        assert!(completer.complete(1));
        assert!(!completer.complete(2));
        assert_eq!(task.await.unwrap(), 1);
        assert!(!completer.complete(3));
    }
    // What may fail is a value like any other.
    let (wait, completer) = completion::<Result<u32>>();
    let task = spawn(async move { wait.await.map(|value| value.unwrap_err().to_string()) });
    assert!(completer.complete(Err(Error::msg("no"))));
    assert!(!completer.complete(Ok(2)));
    assert_eq!(task.await.unwrap(), "no");

    let (task, completer) = waiter(|wait| wait);
    lab.settle().await;
    assert!(task.cancel("enough"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(!completer.complete(1), "its waiter was cancelled");
}

/// cancel-5: a waiter that is left without a completer is told so, and is no victim
/// of a cancel.
pub async fn cancel_5_a_completer_that_goes_ends_the_wait(lab: Lab) {
    for waits in [true, false] {
        let (wait, completer) = completion::<u32>();
        let task = spawn(async move {
            let error = wait.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Failed);
            assert!(error.downcast_ref::<NeverCompleted>().is_some());
        });
        if waits {
            lab.settle().await;
        }
        drop(completer);
        task.await.unwrap();
    }
}

/// cancel-5: a completion is a point: told at entry, though the value is there;
/// told while it waits; not told in a shield; outside any job never.
pub async fn cancel_5_a_completion_is_a_point(lab: Lab) {
    let task = spawn(async {
        cancel_current("now");
        let (wait, completer) = completion();
        assert!(completer.complete(1));
        assert!(wait.await.unwrap_err().is_cancelled());
        let (wait, completer) = completion();
        assert!(completer.complete(2));
        assert_eq!(cleanup(wait).await.unwrap(), 2);
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await.unwrap().is_cancelled());

    let (wait, completer) = completion::<u32>();
    let task = spawn(async move {
        assert!(wait.await.unwrap_err().is_cancelled());
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("while it waits"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before, "it heard at once");
    assert!(!completer.complete(7));

    let (wait, completer) = completion();
    let task = spawn(async move {
        let value = shield(wait).await?;
        checkpoint().await.unwrap_err();
        Ok::<u32, Error>(value)
    });
    lab.settle().await;
    assert!(task.cancel("behind a shield"));
    lab.settle().await;
    assert!(completer.complete(7));
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(7));
}

/// cancel-5: a job that waits for a completion is no victim of impatience, and
/// the snapshot says what it waits for, and where.
pub async fn cancel_5_the_snapshot_names_a_completion(lab: Lab) {
    let scope = kinfolk_core::Scope::current().unwrap();
    let (wait, completer) = completion();
    let line = line!() - 1;
    let task = scope.task("waits").spawn(wait);
    lab.settle().await;
    let (kind, site, _) = lab.snapshot().find("waits").unwrap().waits_on.unwrap();
    assert_eq!(kind, WaitKind::Completion);
    assert_eq!(kind.to_string(), "a completion");
    let site = site.unwrap();
    assert!(site.file().ends_with("kit.rs"));
    assert_eq!(site.line(), line);
    completer.complete(());
    task.await.unwrap();
}

/// cancel-3: the value came, then the cancel: the value is returned, and the
/// next point tells.
pub async fn cancel_3_a_completion_that_has_taken_effect_returns_it(lab: Lab) {
    let (wait, completer) = completion();
    let task = spawn(async move {
        let value = wait.await?;
        checkpoint().await.unwrap_err();
        Ok::<u32, Error>(value)
    });
    lab.settle().await;
    assert!(completer.complete(7));
    assert!(task.cancel("too late for the value"));
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled());
    assert_eq!(outcome.into_value(), Some(7));
}

/// J09: with `on_undelivered`, completed and then cancelled before the waiter
/// is polled: the hook, then the value that no waiter gets, then the waiter is
/// told. Also: cancel-5, T17.
pub async fn case_j09_a_value_for_somebody_who_is_told(lab: Lab) {
    let log = Log::new();
    let (hook, undelivered, told) = (log.clone(), log.clone(), log.clone());
    let (wait, completer) = completion::<u32>();
    let wait = wait.on_undelivered(move |value| {
        assert!(current_job().is_none(), "outside any job");
        undelivered.say(format!("undelivered:{value}"));
    });
    let task = spawn(async move {
        let _hook = on_cancel(move |_| hook.say("hook"));
        let result = wait.await;
        told.say(format!("told:{}", result.unwrap_err().is_cancelled()));
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(completer.complete(7));
    assert!(task.cancel("before it is polled"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "hook undelivered:7 told:true");
}

/// cancel-5: each value is returned or undelivered, once: too late, too many,
/// dropped with its wait. A panic in the callback ends there.
pub async fn cancel_5_each_value_is_returned_or_undelivered(lab: Lab) {
    let log = Log::new();
    let with = |wait: Completion<u32>| {
        let log = log.clone();
        wait.on_undelivered(move |value| {
            log.say(value.to_string());
            std::panic::resume_unwind(Box::new("a callback's own"));
        })
    };
    // Returned; the second one is too many.
    let (task, completer) = waiter(with);
    lab.settle().await;
    assert!(completer.complete(1));
    assert!(!completer.complete(2));
    assert_eq!(task.await.unwrap(), 1);
    assert_eq!(log.text(), "2");
    // Too late: the waiter was told before.
    let (task, completer) = waiter(with);
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(!completer.complete(3));
    assert_eq!(log.text(), "2 3");
    // Dropped with the value in it, before and after its first poll.
    let (wait, completer) = completion();
    let wait = with(wait);
    assert!(completer.complete(4));
    drop(wait);
    assert_eq!(log.text(), "2 3 4");
    let (wait, completer) = completion();
    let mut wait = with(wait);
    let waker = Waker::noop();
    assert!(
        Pin::new(&mut wait)
            .poll(&mut Context::from_waker(waker))
            .is_pending()
    );
    assert!(completer.complete(5));
    drop(wait);
    assert!(!completer.complete(6));
    assert_eq!(log.text(), "2 3 4 5 6");
    // Without a callback it is dropped.
    let (wait, completer) = completion();
    let tally = Tally::new();
    assert!(completer.complete(tally.count(async {})));
    drop(wait);
    assert_eq!(tally.drops(), 1);
}

/// cancel-5: the operation is asked to stop, once: when the waiter is told or
/// dropped before the value came, and not after. Also: T24.
pub async fn cancel_5_an_operation_is_asked_to_stop(lab: Lab) {
    let asked = Arc::new(AtomicUsize::new(0));
    let with = |wait: Completion<u32>| {
        let asked = asked.clone();
        wait.abort_with(move || {
            asked.fetch_add(1, SeqCst);
            Abort::Done
        })
    };
    let (task, completer) = waiter(with);
    lab.settle().await;
    assert!(task.cancel("stop"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(asked.load(SeqCst), 1);
    assert!(!completer.complete(7));

    // Told at entry: it has begun all the same.
    let (wait, _completer) = completion();
    let wait = with(wait);
    let task = spawn(async {
        cancel_current("now");
        wait.await
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(asked.load(SeqCst), 2);

    let (wait, _completer) = completion();
    drop(with(wait));
    assert_eq!(asked.load(SeqCst), 3);

    // By a deadline: it is told as by any cancel.
    let (wait, _completer) = completion();
    let late = timeout(Duration::from_millis(5), with(wait)).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(asked.load(SeqCst), 4);

    // The value is there, or its completer gone: there is nothing to stop.
    let (task, completer) = waiter(with);
    assert!(completer.complete(7));
    assert_eq!(task.await.unwrap(), 7);
    let (wait, completer) = completion();
    let wait = with(wait);
    drop(completer);
    drop(wait);
    assert_eq!(asked.load(SeqCst), 4);
}

/// cancel-5: an operation that cannot be stopped now is waited for, without end
/// to patience; its value is returned, and the next point tells.
pub async fn cancel_5_an_operation_that_cannot_stop_is_waited_for(lab: Lab) {
    let asked = Arc::new(AtomicUsize::new(0));
    for given_back in [true, false] {
        let (wait, completer) = completion::<u32>();
        let count = asked.clone();
        let wait = wait.abort_with(move || {
            count.fetch_add(1, SeqCst);
            Abort::NotNow
        });
        let wait = match given_back {
            true => wait.on_undelivered(|_| panic!("it is waited for")),
            false => wait,
        };
        asked.store(0, SeqCst);
        let task = spawn(async move {
            let value = wait.await?;
            checkpoint().await.unwrap_err();
            Ok::<u32, Error>(value)
        });
        lab.settle().await;
        assert!(task.cancel("stop"));
        sleep(HOUR).await.unwrap();
        assert!(!task.is_ended());
        assert_eq!(asked.load(SeqCst), 1);
        assert!(completer.complete(7));
        let outcome = task.outcome().await.unwrap();
        assert!(outcome.is_cancelled());
        assert_eq!(outcome.into_value(), Some(7));
        assert_eq!(asked.load(SeqCst), 1);
    }
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-5: the operation may end inside the call that asks it to stop, as in
/// many a library of callbacks.
pub async fn cancel_5_an_operation_may_end_while_it_is_asked(lab: Lab) {
    for answer in [Abort::Done, Abort::NotNow] {
        let (wait, completer) = completion::<u32>();
        let wait = wait.abort_with(move || {
            assert!(completer.complete(7));
            answer
        });
        let task = spawn(wait);
        lab.settle().await;
        assert!(task.cancel("stop"));
        let outcome = task.outcome().await.unwrap();
        assert!(outcome.is_cancelled());
        let value = (answer == Abort::NotNow).then_some(7);
        assert_eq!(outcome.into_value(), value, "{answer:?}");
    }
}

/// cancel-5: a panic in the call that asks is the waiter's; while the wait is
/// dropped it ends there.
pub async fn cancel_5_a_panic_while_it_is_asked(lab: Lab) {
    fn raises() -> Abort {
        std::panic::resume_unwind(Box::new("an abort's own"))
    }
    let report = kinfolk_core::Scope::build().supervisor().run(async |_| {
        let (wait, completer) = completion::<u32>();
        let task = spawn(wait.abort_with(raises));
        lab.settle().await;
        assert!(task.cancel("stop"));
        let outcome = task.outcome().await?;
        assert_eq!(outcome.error().unwrap().kind(), ErrorKind::Panicked);
        assert!(!completer.complete(7));
        Ok(())
    });
    report.await.unwrap();
    let (wait, _completer) = completion::<u32>();
    drop(wait.abort_with(raises));
}

/// request-1: an interrupt is told like a cancel; one that finds an operation
/// that cannot be stopped is kept for the next point. Also: cancel-5.
pub async fn request_1_an_interrupt_finds_a_completion(lab: Lab) {
    for answer in [Abort::Done, Abort::NotNow] {
        let (wait, completer) = completion::<u32>();
        let task = spawn(async move {
            let first = wait.abort_with(move || answer).await;
            let second = checkpoint().await;
            Ok::<_, Error>((first.ok(), second.is_ok()))
        });
        lab.settle().await;
        assert!(task.interrupt("now"));
        lab.settle().await;
        assert_eq!(completer.complete(7), answer == Abort::NotNow);
        let seen = match task.outcome().await.unwrap().into_value() {
            Some(seen) => seen,
            None => panic!("it caught it"),
        };
        match answer {
            Abort::Done => assert_eq!(seen, (None, true)),
            Abort::NotNow => assert_eq!(seen, (Some(7), false)),
        }
    }
}

// ------------------------------------------------------------ points by hand

#[derive(Clone, Default)]
struct Queue(Arc<Mutex<(VecDeque<u32>, Vec<Waker>)>>);

impl Queue {
    fn push(&self, item: u32) {
        let wakers = {
            let mut inside = self.0.lock().unwrap();
            inside.0.push_back(item);
            std::mem::take(&mut inside.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    #[track_caller]
    fn next(&self) -> Next {
        Next(self.clone(), Point::new())
    }
}

/// The next item: what an author would write.
struct Next(Queue, Point);

impl Future for Next {
    type Output = Result<u32, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        std::task::ready!(self.1.poll_enter(cx))?;
        let item = {
            let mut inside = self.0.0.lock().unwrap();
            let item = inside.0.pop_front();
            if item.is_none() {
                inside.1.push(cx.waker().clone());
            }
            item
        };
        match item {
            Some(item) => {
                self.1.done();
                Poll::Ready(Ok(item))
            }
            None => {
                self.1.pending(cx);
                Poll::Pending
            }
        }
    }
}

/// cancel-5: a point made by hand tells at entry and while it waits, takes
/// nothing when it does, and the snapshot names it. Also: T24.
pub async fn cancel_5_a_point_by_hand(lab: Lab) {
    let queue = Queue::default();
    let scope = kinfolk_core::Scope::current().unwrap();
    let task = scope.task("by hand").spawn(queue.next());
    lab.settle().await;
    let (kind, site, _) = lab.snapshot().find("by hand").unwrap().waits_on.unwrap();
    assert_eq!(kind, WaitKind::Custom);
    assert_eq!(kind.to_string(), "a custom point");
    assert!(site.unwrap().file().ends_with("kit.rs"));
    queue.push(1);
    assert_eq!(task.await.unwrap(), 1);

    let task = spawn(queue.next());
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("while it waits"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before, "it heard at once");

    queue.push(2);
    let waits = queue.clone();
    let task = spawn(async move {
        cancel_current("now");
        waits.next().await
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(queue.next().await.unwrap(), 2, "nothing was taken");
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-5: a point made by hand spends the budget of the turn: a loop of them
/// starves no other task. One that never goes through is told all the same.
pub async fn cancel_5_a_loop_of_points_by_hand_starves_nobody(_lab: Lab) {
    let queue = Queue::default();
    (0..10_000).for_each(|n| queue.push(n));
    let tally = Tally::new();
    let takes = queue.clone();
    let task = spawn(tally.count(async move {
        while takes.next().await? != 9_999 {}
        Ok::<_, Error>(())
    }));
    task.await.unwrap();
    assert!(tally.polls() > 10, "{} polls", tally.polls());
    // The same of completions that are there.
    let tally = Tally::new();
    let task = spawn(tally.count(async move {
        for n in 0..10_000 {
            let (wait, completer) = completion();
            completer.complete(n);
            assert_eq!(wait.await?, n);
        }
        Ok::<_, Error>(())
    }));
    task.await.unwrap();
    assert!(tally.polls() > 10, "{} polls", tally.polls());
}

/// Wakes the job it was last polled for.
#[derive(Default)]
struct Relayed {
    rung: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Relayed {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, SeqCst);
        if let Some(outer) = self.outer.lock().unwrap().take() {
            outer.wake();
        }
    }
}

/// Polls its future under a waker of its own, and only when that was used.
struct Relay<F>(Pin<Box<F>>, Arc<Relayed>);

fn relay<F: Future>(future: F) -> Relay<F> {
    let bell = Relayed {
        rung: AtomicBool::new(true),
        ..Relayed::default()
    };
    Relay(Box::pin(future), Arc::new(bell))
}

impl<F: Future> Future for Relay<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.1.outer.lock().unwrap() = Some(cx.waker().clone());
        if !self.1.rung.swap(false, SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.1.clone());
        self.0.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// cancel-4: completions and points made by hand are told under a foreign
/// waker too. Also: cancel-5.
pub async fn cancel_4_the_kits_points_are_told_under_a_foreign_waker(lab: Lab) {
    let (wait, completer) = completion::<u32>();
    let queue = Queue::default();
    let next = queue.next();
    let task = spawn(async move {
        let told = futures_util::join!(relay(wait), relay(next));
        assert!(told.0.unwrap_err().is_cancelled());
        told.1?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("now"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
    assert!(!completer.complete(1));
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}
