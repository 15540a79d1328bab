//! Combinators: `all`, `all_settled`, `any`, `race`, `select!` and
//! `for_each_concurrent`, whose branches are scopes.

use std::future::{Ready, pending, poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use kinfolk_core::{
    Arm, Error, ErrorKind, JobKind, JobState, ReasonKind, Result, Scope, all, all_settled, any,
    checkpoint, cleanup, current_job, for_each_concurrent, is_cancelled, launch, park, race, scope,
    select, shield, sleep, spawn, timeout,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

type Nothing = Ready<u8>;

/// Sleeps and gives a number.
async fn after(wait: Duration, value: u32) -> Result<u32> {
    sleep(wait).await?;
    Ok(value)
}

async fn fails_after(wait: Duration, words: &'static str) -> Result<u32> {
    sleep(wait).await?;
    Err(Error::msg(words))
}

/// Waits to be told, cleans up, says so.
async fn hears(log: &Log, word: &str, cleaning: Duration) -> Result<u32> {
    let Err(told) = park().await;
    log.say(format!("{word}:{}", told.reason().kind()));
    cleanup(sleep(cleaning)).await?;
    log.say(format!("{word}:clean"));
    Err(told.into())
}

/// Is told and returns a value all the same.
async fn late(value: u32) -> Result<u32> {
    let _ = park().await;
    Ok(value)
}

/// Polls once.
async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[track_caller]
fn failure<T>(result: Result<T>, kind: ErrorKind) -> Error {
    let Err(error) = result else {
        panic!("it came to a value; expected {kind:?}");
    };
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

// --- all ---

/// A08: nothing to wait for is done at once, without yielding.
/// Also: handle-7.
pub async fn case_a08_all_of_nothing_is_done_at_once(lab: Lab) {
    let made = lab.counters().jobs_created;
    let nothing: [Nothing; 0] = [];
    assert_eq!(at_once(all(nothing)).await.unwrap().unwrap(), []);
    let settled = at_once(all_settled(Vec::<Nothing>::new())).await.unwrap();
    assert!(settled.is_empty());
    // Also in a job that is cancelled: it is no point.
    let task = spawn(async {
        let _ = park().await;
        assert!(at_once(all(Vec::<Nothing>::new())).await.unwrap().is_ok());
    });
    lab.settle().await;
    task.cancel("");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.counters().jobs_created, made + 1);
}

/// handle-7: values come in the order of the branches, whichever is first; an
/// array and an iterator give a `Vec`, a tuple a tuple.
pub async fn handle_7_all_gives_the_values_in_order(lab: Lab) {
    let got = all([after(30 * MS, 1), after(10 * MS, 2), after(20 * MS, 3)]).await;
    assert_eq!(got.unwrap(), [1, 2, 3]);
    assert_eq!(lab.elapsed(), 30 * MS);
    let got = all((1..4).rev().map(|n| after(n * MS, n))).await;
    assert_eq!(got.unwrap(), [3, 2, 1]);
    let words = async { String::from("words") };
    let got: (u32, String, ()) = all((after(MS, 7), words, sleep(2 * MS))).await.unwrap();
    assert_eq!(got, (7, String::from("words"), ()));
    assert_eq!(lab.elapsed(), 35 * MS);
}

/// handle-7: branches are polled in the calling task, one at a time: they borrow
/// from it, and from each other by turns. Each is a scope of its own.
pub async fn handle_7_branches_borrow(lab: Lab) {
    let words = [String::from("one"), String::from("three")];
    let lengths = all(words.iter().map(|word| async move {
        sleep(MS).await?;
        Ok::<_, Error>(word.len())
    }));
    assert_eq!(lengths.await.unwrap(), [3, 5]);
    let sum = AtomicUsize::new(0);
    let add = |n| {
        let sum = &sum;
        async move {
            sum.fetch_add(n, SeqCst);
            current_job()
        }
    };
    let (one, two) = all((add(1), add(2))).await.unwrap();
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one != two && sum.load(SeqCst) == 3);
    assert_eq!(
        (one.kind(), one.state()),
        (JobKind::Branch, JobState::Completed)
    );
    assert!(
        one.name().starts_with("branch@branches.rs:"),
        "{}",
        one.name()
    );
    assert_eq!(lab.elapsed(), MS);
}

/// handle-7: the first branch that fails decides; the others are told why, are
/// waited for, and their failures stand beside the first.
pub async fn handle_7_all_the_first_failure_decides(lab: Lab) {
    let log = Log::new();
    let also_fails = async {
        let _ = park().await;
        Err::<u32, _>(Error::msg("second"))
    };
    let told_why = async {
        let Err(told) = park().await;
        let (_, culprit) = told.reason().culprit().unwrap();
        log.say(culprit.starts_with("branch@").to_string());
        Err::<u32, _>(Error::from(told))
    };
    let error = Scope::named("page")
        .run(async |_| {
            all((
                hears(&log, "a", 20 * MS),
                fails_after(10 * MS, "first"),
                also_fails,
                told_why,
            ))
            .await
        })
        .await;
    let error = failure(error, ErrorKind::Failed);
    assert_eq!(error.to_string(), "first (and 1 more)");
    assert_eq!(error.suppressed()[0].to_string(), "second");
    assert!(
        error.job_name().unwrap().starts_with("branch@"),
        "{error:?}"
    );
    assert!(error.path().contains(&"page".to_string()), "{error:?}");
    assert_eq!(log.text(), "a:it lost to another branch true a:clean");
    assert_eq!(lab.elapsed(), 30 * MS);
    // Whoever has caught it goes on.
    checkpoint().await.unwrap();
}

/// handle-7: the same for branches from an iterator, of which many fail at once:
/// the first in time is the primary, the list is bounded, and none is lost count
/// of.
pub async fn handle_7_all_of_many_failures(lab: Lab) {
    let error = all((0..100).map(|n| async move {
        if n == 50 {
            sleep(MS).await?;
        } else {
            let _ = park().await;
        }
        Err::<(), _>(Error::msg(format!("{n}")))
    }));
    let error = failure(error.await, ErrorKind::Failed);
    assert_eq!(error.to_string(), "50 (and 99 more)");
    assert_eq!(error.suppressed().len(), 32);
    assert_eq!(lab.elapsed(), MS);
}

/// handle-7: a panic in a branch is a failure of it; the others are told.
/// Also: outcome-1.
pub async fn handle_7_a_branch_that_panics(lab: Lab) {
    let log = Log::new();
    let boom = async {
        sleep(MS).await?;
        if !is_cancelled() {
            std::panic::resume_unwind(Box::new("boom"));
        }
        Ok::<u32, Error>(1)
    };
    let error = failure(all((hears(&log, "a", MS), boom)).await, ErrorKind::Panicked);
    assert!(error.to_string().ends_with("panicked: boom"), "{error}");
    assert_eq!(log.text(), "a:it lost to another branch a:clean");
    assert!(error.take_panic().is_some());
    let ends = all_settled([true, false].map(|bad| async move {
        if bad {
            std::panic::resume_unwind(Box::new("boom"));
        }
        7
    }));
    let ends = ends.await;
    assert_eq!(ends[0].as_ref().unwrap_err().kind(), ErrorKind::Panicked);
    assert_eq!(*ends[1].as_ref().unwrap(), 7);
    assert_eq!(lab.elapsed(), 2 * MS);
}

/// handle-7: an enclosing cancel tells every branch, once, and all are waited
/// for; a failure on the way dominates.
pub async fn handle_7_all_and_an_enclosing_cancel(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let both = [hears(&words, "a", MS), hears(&words, "b", 3 * MS)];
        let cut = all(both).await;
        words.say(format!("{:?}", cut.unwrap_err().kind()));
        assert!(checkpoint().await.is_err());
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), 3 * MS);
    let text = log.text();
    assert_eq!(
        text.matches("an ancestor was cancelled").count(),
        2,
        "{text}"
    );
    assert!(text.ends_with("a:clean b:clean Cancelled"), "{text}");

    let task = spawn(async {
        let fails = async {
            let _ = park().await;
            Err::<u32, _>(Error::msg("while cleaning up"))
        };
        let error = all((fails, late(1))).await.unwrap_err();
        assert_eq!(error.to_string(), "while cleaning up");
        assert!(error.during().is_some());
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// handle-7: what branches returned though they were cancelled is kept: all
/// values are there, or each end says what it came to.
/// Also: outcome-6.
pub async fn handle_7_values_returned_under_a_cancel_are_kept(lab: Lab) {
    let task = spawn(async {
        assert_eq!(all([late(1), late(2)]).await.unwrap(), [1, 2]);
        let (kept, cut) = all_settled((late(3), park())).await;
        assert_eq!(kept.unwrap(), 3);
        failure(cut, ErrorKind::Cancelled);
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// handle-7: `all_settled` lets everybody finish.
pub async fn handle_7_all_settled_touches_nobody(lab: Lab) {
    let ends = all_settled(vec![fails_after(MS, "no"), fails_after(9 * MS, "never")]).await;
    let words: Vec<_> = ends
        .into_iter()
        .map(|end| end.unwrap_err().to_string())
        .collect();
    assert_eq!(words, ["no", "never"]);
    assert_eq!(lab.elapsed(), 9 * MS);
    let (one, two) = all_settled((after(5 * MS, 1), fails_after(MS, "no"))).await;
    assert_eq!(one.unwrap(), 1);
    assert_eq!(two.unwrap_err().to_string(), "no");
}

/// handle-7: dropped half-way, the branches are dropped with it; what they
/// started is told, their nodes live on until that is gone, and the enclosing job
/// waits for it.
/// Also: handle-5.
pub async fn handle_7_branches_dropped_half_way(lab: Lab) {
    let log = Log::new();
    let tally = Tally::new();
    scope(async |s| {
        let branch = |wait| {
            let (words, tally) = (log.clone(), tally.clone());
            async move {
                let _dropped = tally.guard();
                launch(async move {
                    hears(&words, "child", wait).await?;
                    Ok::<_, Error>(())
                });
                pending::<()>().await;
            }
        };
        let both = (branch(5 * MS), branch(9 * MS));
        let mut one = Box::pin(async { race(both).await });
        assert!(at_once(one.as_mut()).await.is_none());
        let mut two = Box::pin(all([branch(3 * MS)]));
        assert!(at_once(two.as_mut()).await.is_none());
        lab.settle().await;
        drop((one, two));
        assert_eq!(tally.drops(), 3);
        let below = lab.snapshot();
        let below = below.children(s.job().id());
        let states: Vec<_> = below.map(|node| (node.kind, node.state)).collect();
        assert_eq!(states, [(JobKind::Branch, JobState::Cancelling); 3]);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text().matches("clean").count(), 3);
    assert_eq!(lab.elapsed(), 9 * MS);
}

/// handle-7: of many branches only those are polled that were woken.
pub async fn handle_7_many_branches_are_polled_when_woken(lab: Lab) {
    const MANY: u32 = 500;
    let tally = Tally::new();
    let sum = all((0..MANY).map(|n| tally.count(after(n * MS, n)))).await;
    assert_eq!(sum.unwrap().len(), MANY as usize);
    assert_eq!(lab.elapsed(), (MANY - 1) * MS);
    // Once to begin, once to end; those that ran out of budget once more.
    let most = 2 * MANY as usize + 20;
    assert!(tally.polls() <= most, "{} polls", tally.polls());
}

/// handle-7: branches that pass points without waiting do not ask for one turn
/// each when the turn's budget is spent.
/// Also: cancel-5.
pub async fn handle_7_many_branches_share_the_budget_of_a_turn(_: Lab) {
    const MANY: usize = 2000;
    let tally = Tally::new();
    let done = all((0..MANY).map(|_| tally.count(checkpoint()))).await;
    assert_eq!(done.unwrap().len(), MANY);
    let most = MANY + MANY / 50;
    assert!(tally.polls() <= most, "{} polls", tally.polls());
}

// --- any ---

/// handle-7: `any` passes failures over, gives the first value, tells the others
/// and waits for them.
pub async fn handle_7_any_gives_the_first_success(lab: Lab) {
    let log = Log::new();
    let got = any((
        fails_after(MS, "no"),
        hears(&log, "slow", 20 * MS),
        after(10 * MS, 7),
        after(HOUR, 8),
    ));
    assert_eq!(got.await.unwrap(), 7);
    assert_eq!(log.text(), "slow:it lost to another branch slow:clean");
    assert_eq!(lab.elapsed(), 30 * MS);
    let got = any([30, 10, 20].map(|n| after(n * MS, n))).await;
    assert_eq!(got.unwrap(), 10);
    assert_eq!(lab.elapsed(), 40 * MS);
    assert!(lab.take_failures().is_empty());
    checkpoint().await.unwrap();
}

/// handle-7: if all fail, the first in time stands in front.
pub async fn handle_7_any_all_fail(lab: Lab) {
    let none = any([
        fails_after(30 * MS, "third"),
        fails_after(10 * MS, "first"),
        fails_after(20 * MS, "second"),
    ]);
    let error = failure(none.await, ErrorKind::Failed);
    assert_eq!(error.to_string(), "first (and 2 more)");
    let beside: Vec<_> = error.suppressed().iter().map(ToString::to_string).collect();
    assert_eq!(beside, ["second", "third"]);
    assert_eq!(lab.elapsed(), 30 * MS);
    let one = failure(any([fails_after(MS, "alone")]).await, ErrorKind::Failed);
    assert_eq!(one.to_string(), "alone");
}

/// K15: the first of none is an error that says so, at once.
/// Also: handle-7.
pub async fn case_k15_any_of_nothing_is_an_error(_: Lab) {
    let error = Scope::named("mirrors")
        .run(async |_| {
            let nothing: [Nothing; 0] = [];
            at_once(any(nothing)).await.unwrap()
        })
        .await;
    let error = failure(error, ErrorKind::Failed);
    assert!(
        error.to_string().starts_with("any of no branches"),
        "{error}"
    );
    assert_eq!(error.job_name(), Some("mirrors"));
    assert_eq!(error.path()[0], "root");
    let error = at_once(race(Vec::<Nothing>::new())).await.unwrap();
    let error = failure(error, ErrorKind::Failed);
    assert!(
        error.to_string().starts_with("race of no branches"),
        "{error}"
    );
}

/// handle-7: a cancelled job gets a value if there is one, else Cancelled, also
/// if a branch had failed before.
pub async fn handle_7_any_and_an_enclosing_cancel(lab: Lab) {
    let task = spawn(async {
        let cut = any((fails_after(Duration::ZERO, "no"), after(HOUR, 1)));
        failure(cut.await, ErrorKind::Cancelled);
        assert_eq!(any((after(HOUR, 1), late(2))).await.unwrap(), 2);
    });
    lab.settle().await;
    sleep(MS).await.unwrap();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// handle-7: the value of a loser is dropped when it has ended, or is handed over.
pub async fn handle_7_what_losers_return_late_can_be_had(lab: Lab) {
    let mut kept = Vec::new();
    let won = any([1, 2, 3].map(|n| async move {
        if n == 1 {
            sleep(MS).await?;
            return Ok::<_, Error>(n);
        }
        late(n).await
    }))
    .late(|value| kept.push(value))
    .await;
    assert_eq!((won.unwrap(), kept), (1, vec![2, 3]));

    let mut kept = Vec::new();
    let won = race((after(MS, 1), late(2), park_as_u32())).late(|value| kept.push(value));
    assert_eq!((won.await.unwrap(), kept), (1, vec![2]));

    let mut kept = None;
    let slow = async {
        let _ = park().await;
        cleanup(sleep(10 * MS)).await?;
        Ok::<_, Error>("taken")
    };
    let before = lab.elapsed();
    let won = select!(slow, after(MS, 1))
        .late(|late| kept = Some(late))
        .await;
    assert_eq!(won.unwrap(), Arm::B(1));
    assert_eq!(kept, Some(Arm::A("taken")));
    assert_eq!(lab.elapsed() - before, 11 * MS);

    let tally = Tally::new();
    let value = async {
        let _ = park().await;
        Some(tally.guard())
    };
    let nothing = async {
        sleep(MS).await?;
        Ok::<_, Error>(None)
    };
    assert!(race((value, nothing)).await.unwrap().is_none());
    assert_eq!(tally.drops(), 1);
}

async fn park_as_u32() -> Result<u32> {
    park().await?;
    Ok(0)
}

// --- race ---

/// cancel-7: losers in foreign awaits are dropped there, with no patience: a race
/// takes as long as its first.
/// Also: handle-7.
pub async fn cancel_7_a_race_takes_as_long_as_its_first(lab: Lab) {
    let tally = Tally::new();
    let deaf = || async {
        let _dropped = tally.guard();
        Gate::new().wait().await;
        Ok::<u32, Error>(0)
    };
    let forced = lab.counters().jobs_force_dropped;
    assert_eq!(race((deaf(), after(10 * MS, 1), deaf())).await.unwrap(), 1);
    assert_eq!((lab.elapsed(), tally.drops()), (10 * MS, 2));
    // From an iterator, and with a scope that cannot hear inside.
    let many = (0..3).map(|n| {
        let deaf = deaf();
        async move {
            if n == 1 {
                return after(10 * MS, n).await;
            }
            scope(async |_| deaf.await).await
        }
    });
    assert_eq!(race(many).await.unwrap(), 1);
    assert_eq!(lab.elapsed(), 20 * MS);
    // The one that is not polled is dropped with its future, unpolled.
    assert_eq!(tally.drops(), 4);
    assert_eq!(lab.counters().jobs_force_dropped, forced);
    // So for the others of `all` when one fails.
    failure(
        all((deaf(), fails_after(10 * MS, "no"))).await,
        ErrorKind::Failed,
    );
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// cancel-7: a loser is polled once more after everything in it has been marked
/// and woken.
pub async fn cancel_7_a_loser_is_polled_once_more(lab: Lab) {
    for many in [false, true] {
        let tally = Tally::new();
        let mut marked = 0;
        let loser = poll_fn(|_| {
            if is_cancelled() {
                marked += 1;
                return Poll::Ready(Ok::<u32, Error>(7));
            }
            Poll::Pending
        });
        let mut kept = Vec::new();
        let loser: Boxed<'_> = Box::pin(tally.count(loser));
        let winner: Boxed<'_> = Box::pin(after(MS, 1));
        let won = if many {
            race([loser, winner]).late(|value| kept.push(value)).await
        } else {
            race((loser, winner)).late(|value| kept.push(value)).await
        };
        assert_eq!((won.unwrap(), kept), (1, vec![7]));
        assert_eq!(marked, 1);
        // To begin, with the winner's turn in a tuple, and once more.
        let before = if many { 1 } else { 2 };
        assert!(
            (2..=before + 1).contains(&tally.polls()),
            "{}",
            tally.polls()
        );
    }
    assert_eq!(lab.elapsed(), 2 * MS);
}

type Boxed<'a> = std::pin::Pin<Box<dyn Future<Output = Result<u32>> + Send + 'a>>;

/// cancel-7: a loser that a point told has the time it needs; leaves under
/// foreign wakers are told too.
pub async fn cancel_7_a_loser_that_is_told_gets_the_time_to_return(lab: Lab) {
    let log = Log::new();
    let leaves = async {
        let mut sleeps: FuturesUnordered<_> = (0..2).map(|_| sleep(HOUR)).collect();
        while let Some(slept) = sleeps.next().await {
            log.say(slept.map_or("told", |()| "slept"));
        }
        Ok::<u32, Error>(0)
    };
    let won = race((leaves, hears(&log, "a", 40 * MS), after(10 * MS, 1)));
    assert_eq!(won.await.unwrap(), 1);
    let text = log.text();
    assert_eq!(text.matches("told").count(), 2, "{text}");
    assert!(text.ends_with("a:clean"), "{text}");
    assert_eq!(lab.elapsed(), 50 * MS);
}

/// cancel-7: told, and then deaf: it has been told, so it has the time of
/// `cleanup`. And a child task that cannot hear has the patience of tasks.
pub async fn cancel_7_a_loser_that_is_told_and_then_deaf(lab: Lab) {
    let deaf = async {
        let _ = park().await;
        Gate::new().wait().await;
        Ok::<u32, Error>(0)
    };
    assert_eq!(
        race([Box::pin(deaf) as Boxed<'_>, Box::pin(after(MS, 1))])
            .await
            .unwrap(),
        1
    );
    assert_eq!(lab.elapsed(), 30 * SEC + MS);
    let parent = async {
        launch(async { Gate::new().wait().await });
        Gate::new().wait().await;
        Ok::<u32, Error>(0)
    };
    assert_eq!(race((parent, after(MS, 1))).await.unwrap(), 1);
    assert_eq!(lab.elapsed(), 31 * SEC + 2 * MS);
}

/// cancel-7: what a loser has spawned is told, with the loss as its root cause,
/// and waited for; what it protects is waited for untold.
pub async fn cancel_7_children_of_a_loser_are_told_and_waited_for(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let loser = async {
        let child = spawn(async move {
            let Err(told) = park().await;
            let cause = told.reason().root_cause();
            assert_eq!(cause.kind(), ReasonKind::RaceLost);
            assert!(cause.site().file().ends_with("branches.rs"));
            cleanup(sleep(5 * MS)).await?;
            words.say("child");
            Err::<u32, _>(Error::from(told))
        });
        child.await
    };
    let words = log.clone();
    let protects = shield(async move {
        sleep(9 * MS).await?;
        words.say("shield");
        Ok::<u32, Error>(0)
    });
    assert_eq!(race((loser, protects, after(MS, 1))).await.unwrap(), 1);
    assert_eq!(log.text(), "child shield");
    assert_eq!(lab.elapsed(), 9 * MS);
}

/// handle-7: the first to end wins, of whatever sort; what losers fail with
/// stands beside a failure, and goes to the failure hook beside a value.
pub async fn handle_7_a_race_ends_with_the_first_of_any_sort(lab: Lab) {
    let sore = || async {
        let _ = park().await;
        Err::<u32, _>(Error::msg("sore loser"))
    };
    let error = failure(
        race((sore(), fails_after(MS, "first"), after(HOUR, 1))).await,
        ErrorKind::Failed,
    );
    assert_eq!(error.to_string(), "first (and 1 more)");
    assert_eq!(error.suppressed()[0].to_string(), "sore loser");
    assert!(lab.take_failures().is_empty());

    assert_eq!(race((sore(), after(MS, 1))).await.unwrap(), 1);
    let reported = lab.take_failures();
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].to_string(), "sore loser");
    assert_eq!(reported[0].during().unwrap().kind(), ReasonKind::RaceLost);

    let boom = async {
        sleep(MS).await?;
        if !is_cancelled() {
            std::panic::resume_unwind(Box::new("boom"));
        }
        Ok::<u32, Error>(0)
    };
    failure(race((after(HOUR, 1), boom)).await, ErrorKind::Panicked);

    // One that cancels itself has ended.
    let stops = async {
        kinfolk_core::cancel_current("done for");
        park_as_u32().await
    };
    let error = failure(race((stops, after(HOUR, 1))).await, ErrorKind::Stopped);
    assert_eq!(error.reason().unwrap().text(), Some("done for"));
    assert_eq!(lab.elapsed(), 3 * MS);
}

/// handle-7: the winner may say why the others have lost; the words of another branch are not
/// said for it.
pub async fn handle_7_the_winner_of_a_race_says_why(lab: Lab) {
    let words = Log::new();
    let listens = || async {
        let told = park().await.expect_err("it loses");
        words.say(told.reason().text().unwrap_or("nothing"));
        Ok::<u32, Error>(0)
    };
    let won = race((after(MS, 1), listens())).telling(0, "closed").await;
    assert_eq!(won.unwrap(), 1);
    let won = race((after(MS, 1), listens())).telling(1, "closed").await;
    assert_eq!(won.unwrap(), 1);
    let failed = race((listens(), fails_after(MS, "no"))).telling(1, "torn");
    failure(failed.await, ErrorKind::Failed);
    let arm = select!(listens(), sleep(MS)).telling(1, "late").await;
    assert!(matches!(arm.unwrap(), Arm::B(())));
    assert_eq!(words.text(), "closed nothing torn late");
    assert_eq!(lab.elapsed(), 4 * MS);
}

/// handle-7: branches begin in the order given; when it is decided, those that
/// have not begun are dropped unpolled, and no job is made for them.
pub async fn handle_7_branches_that_have_not_begun_never_do(lab: Lab) {
    let tally = Tally::new();
    let made = lab.counters().jobs_created;
    let won = race((ready(Some(1)), tally.count(ready(Some(2)))));
    assert_eq!(at_once(won).await.unwrap().unwrap(), Some(1));
    let many = (0..10).map(|n| tally.count(ready(n)));
    assert_eq!(at_once(race(many)).await.unwrap().unwrap(), 0);
    assert_eq!((tally.polls(), tally.drops()), (1, 11));
    assert_eq!(lab.counters().jobs_created, made + 2);
}

/// handle-7: an enclosing cancel lets no branch win: a branch that had something to say
/// all the same is heard, else it is Cancelled.
pub async fn handle_7_an_enclosing_cancel_is_nobodys_win(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let slow = async {
            let _ = park().await;
            cleanup(sleep(MS)).await?;
            Ok::<u32, Error>(7)
        };
        let won = race((park_as_u32(), slow, hears(&words, "a", 2 * MS))).await;
        assert_eq!(won.unwrap(), 7);
        let cut = race([after(HOUR, 1), after(HOUR, 2)]).await;
        failure(cut, ErrorKind::Cancelled);
        failure(select!(park(), after(HOUR, 1)).await, ErrorKind::Cancelled);
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "a:an ancestor was cancelled a:clean");
    assert_eq!(lab.elapsed(), 2 * MS);
}

/// handle-7: a cancel that comes while the losers finish does not take the value
/// away; the next point fails.
pub async fn handle_7_a_cancel_while_losers_finish(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let won = race((after(MS, 1), hears(&words, "a", 10 * MS))).await;
        assert_eq!(won.unwrap(), 1);
        assert!(checkpoint().await.is_err());
    });
    sleep(5 * MS).await.unwrap();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "a:it lost to another branch a:clean");
    assert_eq!(lab.elapsed(), 11 * MS);
}

/// handle-7: races nest, in shields and timeouts as other scopes do.
pub async fn handle_7_races_nest(lab: Lab) {
    let log = Log::new();
    let inner = race((hears(&log, "in", MS), after(HOUR, 1)));
    let won = race((inner, after(10 * MS, 2)));
    assert_eq!(won.await.unwrap(), 2);
    assert_eq!(log.text(), "in:an ancestor was cancelled in:clean");
    assert_eq!(lab.elapsed(), 11 * MS);

    let error = timeout(10 * MS, race((after(HOUR, 1), Box::pin(park_as_u32())))).await;
    failure(error, ErrorKind::TimedOut);
    let deaf = || async {
        Gate::new().wait().await;
        1
    };
    failure(
        timeout(10 * MS, race((deaf(), deaf()))).await,
        ErrorKind::TimedOut,
    );
    assert_eq!(lab.elapsed(), 31 * MS);

    let task = spawn(async {
        let _ = park().await;
        shield(race((after(5 * MS, 1), after(HOUR, 2)))).await
    });
    lab.settle().await;
    task.cancel("enough");
    let late = task.outcome().await.unwrap().into_value();
    assert_eq!(late, Some(1));
}

/// handle-7: a loser that awaits a task from outside cancels it, as any waiter
/// does; one that joins it leaves it alone.
/// Also: handle-2.
pub async fn handle_7_a_task_in_a_branch(lab: Lab) {
    let awaited = spawn(late(1));
    let job = awaited.job();
    let joined = spawn(after(20 * MS, 3));
    let won = select!(awaited, joined.join(), sleep(10 * MS)).await;
    assert!(matches!(won.unwrap(), Arm::C(())));
    assert!(job.cancel_requested() && !joined.job().cancel_requested());
    assert_eq!(lab.elapsed(), 10 * MS);
    assert_eq!(joined.await.unwrap(), 3);
    // All of some tasks.
    let tasks: Vec<_> = (0..3).map(|n| spawn(after(n * MS, n))).collect();
    assert_eq!(all(tasks).await.unwrap(), [0, 1, 2]);
}

// --- select! ---

/// handle-7: arms of different types, two to eight; the first to end is known by
/// its place.
pub async fn handle_7_select_has_arms_of_different_types(lab: Lab) {
    let log = Log::new();
    let arm = select!(
        async { hears(&log, "a", 5 * MS).await },
        async {
            sleep(10 * MS).await?;
            Ok::<_, Error>("words")
        },
        sleep(HOUR),
    );
    match arm.await.unwrap() {
        Arm::A(number) => panic!("{number}"),
        Arm::B(words) => assert_eq!(words, "words"),
        Arm::C(()) => panic!("an hour"),
    }
    assert_eq!(log.text(), "a:it lost to another branch a:clean");
    assert_eq!(lab.elapsed(), 15 * MS);

    let eight = select!(
        park(),
        park(),
        park(),
        park(),
        park(),
        park(),
        park(),
        async { 'h' }
    );
    assert!(matches!(eight.await.unwrap(), Arm::H('h')));
    let error = select!(sleep(HOUR), fails_after(MS, "no")).await;
    assert_eq!(failure(error, ErrorKind::Failed).to_string(), "no");
}

/// handle-7: in a loop nothing is lost: what an arm was to take it takes in the
/// next round.
/// Also: cancel-3.
pub async fn handle_7_select_in_a_loop_loses_nothing(lab: Lab) {
    let mut ticker = kinfolk_core::ticker(3 * MS).unwrap();
    let (mut ticks, mut pauses) = (Vec::new(), 0);
    while ticks.len() < 4 {
        match select!(ticker.tick(), sleep(2 * MS)).await.unwrap() {
            Arm::A(_) => ticks.push(lab.elapsed()),
            Arm::B(()) => pauses += 1,
        }
    }
    assert_eq!(ticks, [Duration::ZERO, 3 * MS, 6 * MS, 9 * MS]);
    assert_eq!(pauses, 3);
    assert_eq!(ticker.skipped(), 0);
}

// --- for_each_concurrent ---

/// handle-7: a body for each item, so many at once, an item taken when there is
/// room; bodies borrow.
pub async fn handle_7_for_each_concurrent_keeps_its_limit(lab: Lab) {
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let taken = AtomicUsize::new(0);
    let items = (0..10_u32).inspect(|_| {
        taken.fetch_add(1, SeqCst);
    });
    let log = Log::new();
    for_each_concurrent(items, 3, |item| {
        let (now, most, log, taken) = (&now, &most, &log, &taken);
        async move {
            let running = now.fetch_add(1, SeqCst) + 1;
            most.fetch_max(running, SeqCst);
            assert!(taken.load(SeqCst) <= item as usize + 3);
            sleep(10 * MS).await?;
            now.fetch_sub(1, SeqCst);
            log.say(item.to_string());
            Ok::<_, Error>(())
        }
    })
    .await
    .unwrap();
    assert_eq!(log.len(), 10);
    assert_eq!(most.load(SeqCst), 3);
    assert_eq!(lab.elapsed(), 40 * MS);
    let nothing: [u8; 0] = [];
    let none = for_each_concurrent(nothing, 1, |_| async {});
    at_once(none).await.unwrap().unwrap();
    // Bodies that never wait do not hold the thread for ever.
    for_each_concurrent(0..1000, 1, |_| async {}).await.unwrap();
}

/// handle-7: the first body that fails decides: no more items, the others are
/// told and waited for.
pub async fn handle_7_for_each_concurrent_stops_at_a_failure(lab: Lab) {
    let log = Log::new();
    let error = for_each_concurrent(0..100, 2, |n| {
        let log = &log;
        async move {
            log.say(n.to_string());
            match n {
                3 => Err(Error::msg("three")),
                2 => hears(log, "two", 5 * MS).await.map(drop),
                _ => Ok(()),
            }
        }
    });
    let error = failure(error.await, ErrorKind::Failed);
    assert_eq!(error.to_string(), "three");
    assert_eq!(
        log.text(),
        "0 1 2 3 two:it lost to another branch two:clean"
    );
    assert_eq!(lab.elapsed(), 5 * MS);
}

/// handle-7: a point before each item: a cancelled job takes none, and what runs
/// is told and waited for.
pub async fn handle_7_for_each_concurrent_and_an_enclosing_cancel(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let cut = for_each_concurrent(0..100, 2, |n| {
            let words = words.clone();
            async move {
                words.say(n.to_string());
                hears(&words, "x", n * MS + MS).await?;
                Ok::<_, Error>(())
            }
        });
        failure(cut.await, ErrorKind::Cancelled);
        let entry = for_each_concurrent(0..3, 1, |_| async { words.say("never") });
        failure(entry.await, ErrorKind::Cancelled);
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    let text = log.text();
    assert!(
        text.starts_with("0 1 x:") && text.ends_with("x:clean x:clean"),
        "{text}"
    );
    assert_eq!(lab.elapsed(), 2 * MS);
}

/// handle-7: a limit of zero is an error; dropped half-way its bodies go with it.
pub async fn handle_7_for_each_concurrent_at_its_edges(lab: Lab) {
    let zero = for_each_concurrent([1], 0, |_| async {}).await;
    let error = failure(zero, ErrorKind::Failed);
    assert!(error.to_string().contains("limit of zero"), "{error}");
    assert!(error.job_name().is_some());
    let tally = Tally::new();
    scope(async |_| {
        let half = for_each_concurrent(0..3, 2, |_| {
            let dropped = tally.guard();
            async move {
                let _dropped = dropped;
                park().await?;
                Ok::<_, Error>(())
            }
        });
        assert!(at_once(half).await.is_none());
        assert_eq!(tally.drops(), 2);
        Ok(())
    })
    .await
    .unwrap();
    drop(lab);
}
