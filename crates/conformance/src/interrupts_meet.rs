//! Interrupts together with combinators, timeouts that fire meanwhile, blocking
//! calls and a shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Outcome, ReasonKind, Result, TaskSet, all, any, blocking, checkpoint,
    cleanup, current_job, for_each_concurrent, park, race, select, shield, sleep, spawn, timeout,
};

use crate::interrupted::words_of;
use kinfolk_testkit::{Lab, Log};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn parked() -> Result<u32> {
    park().await?;
    Ok(0)
}

/// Interrupts a task that runs `body`, and gives what came out of it.
async fn interrupted<B>(lab: &Lab, body: B) -> String
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    let heard = Log::new();
    let say = heard.clone();
    let task = spawn(async move {
        let error = body.await.expect_err("interrupted");
        say.say(words_of(&error));
        // Heard once: the next point goes on.
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(task.interrupt("stop"));
    task.await.expect("it caught it");
    assert_eq!(lab.elapsed(), Duration::ZERO, "nobody else was waited for");
    heard.text()
}

/// request-2: an interrupt that leaves one branch is the whole's: the others are
/// told too, and the call returns it.
/// Also: handle-7, request-1.
pub async fn request_2_an_interrupt_in_a_branch_stops_the_whole(lab: Lab) {
    let slow = || async {
        sleep(HOUR).await?;
        Ok::<_, Error>(1)
    };
    let raced = async move { race((parked(), slow())).await.map(drop) };
    assert_eq!(interrupted(&lab, raced).await, "stop");
    let chosen = async { select!(parked(), sleep(HOUR)).await.map(drop) };
    assert_eq!(interrupted(&lab, chosen).await, "stop");
    let tried = async move { any([parked(), parked()]).await.map(drop) };
    assert_eq!(interrupted(&lab, tried).await, "stop");
    let gathered = async move { all((parked(), slow())).await.map(drop) };
    assert_eq!(interrupted(&lab, gathered).await, "stop");
    let each = async { for_each_concurrent(0.., 3, async |_| parked().await.map(drop)).await };
    assert_eq!(interrupted(&lab, each).await, "stop");
}

/// request-2: when the call's own point hears it, what runs in its branches is
/// told, and waited for.
/// Also: handle-7.
pub async fn request_2_an_interrupt_heard_between_two_items(lab: Lab) {
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = ended.clone();
    let task = spawn(async move {
        let me = current_job().expect("inside");
        let items = (0..).inspect(|n| {
            if *n == 2 {
                // Heard by the point before the next item.
                me.interrupt("enough");
            }
        });
        let each = for_each_concurrent(items, 10, async |_| {
            let told = parked().await;
            counted.fetch_add(1, SeqCst);
            told.map(drop)
        });
        words_of(&each.await.expect_err("interrupted")).to_string()
    });
    assert_eq!(task.await.unwrap(), "enough");
    // Those that had begun; a branch that has not begun never does.
    assert!(ended.load(SeqCst) <= 3, "{ended:?}");
    assert_eq!(lab.elapsed(), Duration::ZERO);
}

/// request-2: one that comes when it is decided, and the losers clean up, is for
/// the next point: what a loser returns is not heard.
/// Also: handle-7.
pub async fn request_2_losers_that_clean_up_do_not_take_it(lab: Lab) {
    let task = spawn(async {
        let winner = async {
            sleep(MS).await?;
            Ok::<_, Error>(7)
        };
        let loser = async {
            let told = park().await.expect_err("it has lost");
            cleanup(sleep(10 * MS)).await?;
            Err::<u32, Error>(told.into())
        };
        assert_eq!(race((winner, loser)).await?, 7);
        let told = checkpoint().await.expect_err("nobody has heard it");
        assert_eq!(told.reason().text(), Some("meanwhile"));
        Ok::<_, Error>(())
    });
    lab.settle().await;
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("meanwhile"));
    task.await.unwrap();
}

/// request-3: passed on to a child that does not hear it before a deadline fires
/// around the await: the deadline ends the child, the interrupt is still there.
/// Also: request-2.
pub async fn request_3_a_deadline_does_not_swallow_what_was_passed_on(lab: Lab) {
    let task = spawn(async {
        let hurried = timeout(10 * MS, async {
            let deaf = spawn(async {
                shield(sleep(20 * MS)).await?;
                parked().await
            });
            deaf.await
        });
        let error = hurried.await.expect_err("stopped");
        // It came out of the timeout, or is heard at the next point.
        let interrupted = error
            .reason()
            .is_some_and(|reason| reason.kind() == ReasonKind::Interrupted);
        if !interrupted {
            let told = checkpoint().await.expect_err("it is not lost");
            assert_eq!(told.reason().text(), Some("stop"));
        }
        checkpoint().await.expect("heard once");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("stop"));
    task.await.unwrap();
}

/// request-2: a job that drops the await has the interrupt again, if the target has
/// not heard it.
pub async fn request_2_a_dropped_await_gives_it_back(lab: Lab) {
    let task = spawn(async {
        let mut deaf = spawn(shield(async {
            sleep(20 * MS).await?;
            Ok::<_, Error>(())
        }));
        {
            let wait = std::pin::pin!(sleep(10 * MS));
            // A foreign select: the await is dropped when the time is up.
            let both = futures_like_select(&mut deaf, wait).await;
            assert!(both.is_none());
        }
        drop(deaf);
        let told = checkpoint().await.expect_err("it is back");
        assert_eq!(told.reason().text(), Some("stop"));
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(task.interrupt("stop"));
    task.await.unwrap();
}

/// Polls both; the first that is done drops the other's poll, not its future.
async fn futures_like_select<A, B>(a: A, b: B) -> Option<A::Output>
where
    A: Future + Unpin,
    B: Future + Unpin,
{
    let (mut a, mut b) = (a, b);
    std::future::poll_fn(move |cx| {
        use std::pin::Pin;
        use std::task::Poll;
        if let Poll::Ready(value) = Pin::new(&mut a).poll(cx) {
            return Poll::Ready(Some(value));
        }
        Pin::new(&mut b).poll(cx).map(|_| None)
    })
    .await
}

/// request-2: a target that caught what was passed on, and is later asked by
/// somebody else, was stopped: that request is not the waiter's.
/// Also: request-1.
pub async fn request_2_somebody_elses_request_is_not_ours(lab: Lab) {
    let (to_child, child) = std::sync::mpsc::channel();
    let task = spawn(async move {
        let stubborn = spawn(async {
            let first = park().await.expect_err("passed on");
            assert_eq!(first.reason().text(), Some("ours"));
            parked().await
        });
        to_child.send(stubborn.job()).expect("somebody listens");
        let error = stubborn.await.expect_err("stopped");
        assert_eq!(error.kind(), ErrorKind::Stopped, "{error:?}");
        checkpoint().await.expect("ours was heard");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let child = child.recv().expect("it was sent");
    assert!(task.interrupt("ours"));
    lab.settle().await;
    assert!(child.interrupt("theirs"));
    task.await.unwrap();
}

/// io-5: a blocking call that has not begun is left at an interrupt, and a cancel
/// that comes meanwhile ends it too.
/// Also: request-1.
pub async fn io_5_an_interrupt_before_a_blocking_call_begins(_: Lab) {
    let (entered, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let told = Log::new();
    for way in 0..2 {
        let (came, ran, say) = (entered.clone(), begun.clone(), told.clone());
        let task = spawn(async move {
            came.fetch_add(1, SeqCst);
            let called = blocking(move |_| ran.fetch_add(1, SeqCst)).await;
            if let Err(error) = &called {
                say.say(if way == 0 {
                    words_of(error)
                } else {
                    "cancelled"
                });
            }
            called.map(drop)
        });
        let job = task.job();
        spawn(async move {
            if way == 0 {
                job.interrupt("no need")
            } else {
                job.cancel("no need")
            }
        })
        .await
        .unwrap();
        assert!(task.outcome().await.unwrap().is_cancelled() || begun.load(SeqCst) > 0);
    }
    // A body that was entered made the call or was told: never both, never
    // neither, never a hang.
    assert_eq!(begun.load(SeqCst) + told.len(), entered.load(SeqCst));
}

/// request-1: a cancel of a task that was interrupted and has not heard it is a
/// cancel like any other.
pub async fn request_1_a_cancel_after_an_interrupt_ends_it(lab: Lab) {
    let task = spawn(shield(async {
        sleep(10 * MS).await?;
        Ok::<_, Error>(7)
    }));
    lab.settle().await;
    assert!(task.interrupt("please"));
    assert!(task.cancel("now"));
    let outcome = task.outcome().await.unwrap();
    let Outcome::Cancelled { reason, late } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(reason.kind(), ReasonKind::Asked);
    assert_eq!(late, Some(7));
}

/// handle-7: results come in the order of the ends, also if no job looked while
/// the tasks ended.
pub async fn handle_7_results_that_waited_keep_their_order(_: Lab) {
    let mut set = TaskSet::new();
    for n in [30, 10, 20] {
        set.spawn(async move {
            sleep(n * MS).await?;
            Ok::<_, Error>(n)
        })
        .await
        .unwrap();
    }
    sleep(HOUR).await.unwrap();
    let mut got = Vec::new();
    while let Some(result) = set.next().await.unwrap() {
        got.push(result.unwrap());
    }
    assert_eq!(got, [10, 20, 30]);
}

/// tree-5: a cancel lets the body of every item that was taken begin, to be told
/// at its first point. Also: handle-7.
pub async fn tree_5_items_that_were_taken_are_entered(lab: Lab) {
    let (taken, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, begun) = (taken.clone(), entered.clone());
    let task = spawn(async move {
        let items = (0..300).inspect(|_| {
            count.fetch_add(1, SeqCst);
        });
        for_each_concurrent(items, 1000, async |_| {
            begun.fetch_add(1, SeqCst);
            parked().await.map(drop)
        })
        .await
    });
    let job = task.job();
    // In the middle of the taking: a turn's budget is less than three hundred.
    while taken.load(SeqCst) == 0 && !job.is_ended() {
        kinfolk_core::yield_now().await.unwrap();
    }
    job.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    lab.settle().await;
    assert_eq!(taken.load(SeqCst), entered.load(SeqCst));
}
