//! Verbs of `TaskSet` for many at once, and `TaskSet::map`.

use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Result, Success, TaskSet, cancel_current, checkpoint, cleanup, park, scope,
    sleep, spawn, timeout,
};
use kinfolk_testkit::{Lab, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn after(wait: Duration, value: u32) -> Result<u32> {
    sleep(wait).await?;
    Ok(value)
}

/// Is told and returns a value nevertheless.
async fn late(value: u32) -> Result<u32> {
    let _ = park().await;
    Ok(value)
}

/// Panics when it is dropped.
struct Bomb(Tally);

impl Success for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        drop(self.0.guard());
        std::panic::resume_unwind(Box::new("hostile"))
    }
}

/// handle-7: `try_next` gives what is there and never waits, in a cancelled job too.
pub async fn handle_7_try_next_never_waits(lab: Lab) {
    let task = spawn(async {
        let mut set = TaskSet::new();
        assert!(set.try_next().is_none());
        for n in [20, 10, 3_600_000] {
            set.spawn(after(n * MS, n)).await?;
        }
        assert!(set.try_next().is_none());
        sleep(30 * MS).await?;
        assert_eq!(set.try_next().unwrap()?, 10);
        park().await.unwrap_err();
        assert_eq!(set.try_next().unwrap()?, 20);
        Ok::<_, Error>(7)
    });
    sleep(40 * MS).await.unwrap();
    lab.settle().await;
    task.cancel("enough");
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(7));
    assert_eq!(lab.elapsed(), 40 * MS);
}

/// handle-7: `join_all` gives all results in the order of the ends; told, it takes none.
/// Also: cancel-3.
pub async fn handle_7_join_all_gives_all_or_takes_nothing(lab: Lab) {
    scope(async |_| {
        let mut set = TaskSet::new();
        assert!(set.join_all().await?.is_empty());
        for n in [30, 10, 20] {
            set.spawn(after(n * MS, n)).await?;
        }
        let all: Result<Vec<u32>> = set.join_all().await?.into_iter().collect();
        assert_eq!((all?, set.len()), (vec![10, 20, 30], 0));
        Ok(())
    })
    .await
    .unwrap();
    let task = spawn(async {
        let mut set = TaskSet::new();
        set.spawn(after(Duration::ZERO, 1)).await?;
        set.spawn(late(2)).await?;
        set.spawn(after(HOUR, 3)).await?;
        for _ in 0..2 {
            assert!(set.join_all().await.is_err());
            assert_eq!(set.len(), 3);
        }
        cleanup(async {
            let (values, stopped): (Vec<_>, Vec<_>) =
                set.join_all().await?.into_iter().partition(Result::is_ok);
            let mut values: Vec<u32> = values.into_iter().flatten().collect();
            values.sort_unstable();
            assert_eq!((values, stopped.len()), (vec![1, 2], 1));
            Ok::<_, Error>(())
        })
        .await
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// handle-7: `extend` keeps the limit; told, it has taken no future that it has not
/// spawned.
pub async fn handle_7_extend_keeps_the_limit(lab: Lab) {
    scope(async |_| {
        let mut set = TaskSet::new().limit(2)?;
        let mut futures = (0..5).map(|n| after(10 * MS, n));
        let error = timeout(5 * MS, set.extend(&mut futures)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!((set.len(), futures.len()), (2, 3));
        set.extend(futures).await?;
        assert_eq!((set.len(), lab.elapsed()), (5, 20 * MS));
        let all: Result<Vec<u32>> = set.join_all().await?.into_iter().collect();
        let mut all = all?;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// handle-7: `abort_all` cancels what runs; the results still come, and the scope goes on.
pub async fn handle_7_abort_all_and_the_results_still_come(lab: Lab) {
    scope(async |_| {
        let mut set = TaskSet::new();
        set.spawn(after(Duration::ZERO, 1)).await?;
        set.spawn(late(2)).await?;
        set.spawn(after(HOUR, 3)).await?;
        lab.settle().await;
        set.abort_all("enough");
        assert_eq!(set.len(), 3);
        let (mut values, mut reasons) = (Vec::new(), Vec::new());
        for result in set.join_all().await? {
            match result {
                Ok(value) => values.push(value),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Stopped);
                    reasons.extend(error.reason().and_then(|why| why.text()).map(String::from));
                }
            }
        }
        values.sort_unstable();
        assert_eq!((values, reasons), (vec![1, 2], vec!["enough".to_string()]));
        checkpoint().await?;
        set.spawn(after(MS, 4)).await?;
        assert_eq!(set.next().await?.unwrap()?, 4);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), MS);
}

/// handle-7: `map` gives the values in the order of the items, and keeps its limit.
pub async fn handle_7_map_keeps_the_order_of_its_items(lab: Lab) {
    let values = TaskSet::map([30, 10, 30], 2, |n| after(n * MS, n)).await;
    assert_eq!(values.unwrap(), [30, 10, 30]);
    assert_eq!(lab.elapsed(), 40 * MS);
    assert!(TaskSet::map([], 1, late).await.unwrap().is_empty());
    let error = TaskSet::map([1], 0, late).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("TaskSet::map with a limit of zero"),
        "{error}"
    );
}

/// handle-7: the first failure of a `map` takes no further item, cancels the rest, and is
/// the call's.
/// Also: outcome-2.
pub async fn handle_7_map_stops_at_a_failure(lab: Lab) {
    let mut items = 0..10;
    let failed = TaskSet::map(&mut items, 2, |n| async move {
        if n == 1 {
            sleep(5 * MS).await?;
            return Err(Error::msg("no"));
        }
        let Err(told) = park().await;
        Err::<u32, Error>(told.into())
    });
    let error = failed.await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Failed, "no".into())
    );
    assert_eq!((items.next(), lab.elapsed()), (Some(2), 5 * MS));
    checkpoint().await.unwrap();
    assert!(lab.take_failures().is_empty());
}

/// handle-7: a task of a `map` that is cancelled by itself leaves the call without its
/// value: no further item is taken, the rest is cancelled, and the call is `Stopped`.
/// Also: outcome-4.
pub async fn handle_7_map_stops_at_a_task_cancelled_alone(lab: Lab) {
    let mut items = 0..10;
    let stopped = TaskSet::map(&mut items, 2, |n| async move {
        if n == 1 {
            sleep(5 * MS).await?;
            cancel_current("alone");
        }
        let Err(told) = park().await;
        Err::<u32, Error>(told.into())
    });
    let error = stopped.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped, "{error:?}");
    assert_eq!((items.next(), lab.elapsed()), (Some(2), 5 * MS));
    // One of those that are all running already.
    let stopped = TaskSet::map(0..3, 3, |n| async move {
        if n == 1 {
            cancel_current("alone");
        }
        let Err(told) = park().await;
        Err::<u32, Error>(told.into())
    });
    let error = stopped.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped, "{error:?}");
    checkpoint().await.unwrap();
    assert!(lab.take_failures().is_empty());
}

/// handle-7: a `map` that is told takes no more items and waits for its tasks; values that
/// all come nevertheless are returned.
/// Also: cancel-3.
pub async fn handle_7_map_that_is_told(lab: Lab) {
    let mut items = 0..10;
    let map = TaskSet::map(&mut items, 2, |n| after(10 * MS, n));
    let error = timeout(5 * MS, map).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!((items.next(), lab.elapsed()), (Some(2), 5 * MS));
    let task = spawn(async { TaskSet::map([1, 2], 2, late).await });
    let cut = spawn(async { TaskSet::map([1, 2], 2, |n| after(HOUR, n)).await });
    lab.settle().await;
    task.cancel("enough");
    cut.cancel("enough");
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(vec![1, 2]));
    let cut = cut.outcome().await.unwrap();
    assert!(cut.is_cancelled() && cut.into_value().is_none());
}

/// handle-7: values that panic when they are dropped go one by one if a `map` fails; a
/// closure that panics is the call's panic.
/// Also: outcome-1.
pub async fn handle_7_map_of_hostile_values(lab: Lab) {
    let tally = Tally::new();
    let failed = TaskSet::map(0..3, 3, |n| {
        let tally = tally.clone();
        async move {
            if n == 2 {
                sleep(MS).await?;
                return Err(Error::msg("no"));
            }
            Ok::<_, Error>(Bomb(tally))
        }
    });
    assert_eq!(failed.await.map(drop).unwrap_err().to_string(), "no");
    assert_eq!(tally.drops(), 2);
    let kept = tally.guard();
    let panicked = TaskSet::map(0..3, 3, move |n| {
        let _ = &kept;
        if n == 1 {
            std::panic::resume_unwind(Box::new("hostile"));
        }
        after(HOUR, n)
    });
    assert_eq!(panicked.await.unwrap_err().kind(), ErrorKind::Panicked);
    assert_eq!((tally.drops(), lab.elapsed()), (3, MS));
}
