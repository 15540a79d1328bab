//! Assumptions about order and time that hold on most days.

use std::sync::{Arc, Mutex};

use kinfolk::time::sleep_until;
use kinfolk::{Error, OrCancel, OrFail, Result, now, sleep, spawn};
use kinfolk_runtime::fs::{self, File};
use tokio::sync::{broadcast, mpsc};

use crate::{MS, side_by_side};

zoo! {
    order_of_spawning test "tasks are taken to run in the order in which they were spawned";
    timers_of_one_instant test "two timers of one instant are taken to fire in the order in which they were set";
    asleep_until_it_is_done test "a sleep stands in for waiting until a file is written";
    subscribed_too_late test "a task subscribes when it runs, and the event may be over by then";
    first_answer_first_question test "answers are matched with questions by the order in which they come";
    exact_instant time_slips "after a sleep it is taken to be exactly the instant slept for";
    stopped_before_it_was_drained test "a consumer is cancelled when the producer is done, with items in the queue";
}

async fn order_of_spawning(bug: bool) -> Result<()> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = side_by_side(3, |n| {
        let seen = seen.clone();
        async move {
            seen.lock().unwrap().push(n);
            Ok(n)
        }
    })
    .await?;
    let order = match bug {
        true => seen.lock().unwrap().clone(),
        false => told,
    };
    assert_eq!(order, [0, 1, 2]);
    Ok(())
}

async fn timers_of_one_instant(bug: bool) -> Result<()> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let at = now() + MS;
    side_by_side(2, |n| {
        let log = log.clone();
        async move {
            let later = if bug || n == 0 { at } else { at + MS };
            sleep_until(later).await?;
            log.lock().unwrap().push(n);
            Ok(())
        }
    })
    .await?;
    assert_eq!(*log.lock().unwrap(), [0, 1], "opened before it is used");
    Ok(())
}

async fn asleep_until_it_is_done(bug: bool) -> Result<()> {
    let writer = spawn(async {
        let file = File::create("/tmp/report").await?;
        file.write_all_at("all of it", 0).await.0?;
        Ok::<_, Error>(())
    });
    let mut writer = Some(writer);
    if bug {
        sleep(MS).await?;
    } else if let Some(writer) = writer.take() {
        writer.await?;
    }
    let read = fs::read("/tmp/report").await;
    if let Some(writer) = writer {
        writer.await?;
    }
    assert_eq!(read?, b"all of it");
    Ok(())
}

async fn subscribed_too_late(bug: bool) -> Result<()> {
    let (events, early) = broadcast::channel(4);
    let mut early = (!bug).then_some(early);
    let source = events.clone();
    let listens = spawn(async move {
        let mut events = early.take().unwrap_or_else(|| source.subscribe());
        drop(source);
        events.recv().or_cancel().await?.or_fail()
    });
    kinfolk::checkpoint().await?;
    let _ = events.send(7);
    drop(events);
    assert_eq!(listens.await?, 7);
    Ok(())
}

async fn first_answer_first_question(bug: bool) -> Result<()> {
    let (answers, mut came) = mpsc::channel(4);
    for question in 0..3_u32 {
        let answers = answers.clone();
        kinfolk::launch(async move {
            kinfolk::checkpoint().await?;
            let answer = (question, question * 10);
            let _ = answers.send(answer).or_cancel().await?;
            Ok::<_, Error>(())
        });
    }
    drop(answers);
    let mut next = 0;
    while let Some((question, answer)) = came.recv().or_cancel().await? {
        let asked = if bug { next } else { question };
        assert_eq!(answer, asked * 10);
        next += 1;
    }
    Ok(())
}

async fn exact_instant(bug: bool) -> Result<()> {
    let at = now() + MS;
    // Others have timers too, a little later each.
    let others = spawn(side_by_side(4, move |n| async move {
        sleep_until(at + MS * n as u32).await?;
        Ok(())
    }));
    sleep_until(at).await?;
    let late = now() - at;
    others.await?;
    assert!(
        !bug || late.is_zero(),
        "it is later than the instant it slept for"
    );
    Ok(())
}

async fn stopped_before_it_was_drained(bug: bool) -> Result<()> {
    let (items, mut queue) = mpsc::channel(8);
    let done = Arc::new(Mutex::new(Vec::new()));
    let kept = done.clone();
    let consumer = spawn(async move {
        while let Some(item) = queue.recv().or_cancel().await? {
            kept.lock().unwrap().push(item);
        }
        Ok::<_, Error>(())
    });
    for item in 0..3 {
        let _ = items.send(item).or_cancel().await?;
    }
    drop(items);
    if bug {
        consumer.cancel("the producer is done");
    }
    let _ = consumer.outcome().await?;
    assert_eq!(*done.lock().unwrap(), [0, 1, 2]);
    Ok(())
}
