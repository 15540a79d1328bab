//! Assumptions about order and time that hold on most days.

use std::sync::{Arc, Mutex};

use tokio::sync::{broadcast, mpsc};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use crate::files::asleep_until_it_is_done;
use crate::shared::{MS, Result, Run, side_by_side};

zoo! {
    alone order_of_spawning;
    alone timers_of_one_instant;
    alone asleep_until_it_is_done;
    alone subscribed_too_late;
    alone first_answer_first_question;
    alone exact_instant;
    alone stopped_before_it_was_drained;
}

async fn order_of_spawning(run: Run) -> Result {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = side_by_side(3, |n| {
        let seen = seen.clone();
        async move {
            seen.lock().unwrap().push(n);
            Ok(n)
        }
    })
    .await?;
    let order = match run.bug {
        true => seen.lock().unwrap().clone(),
        false => told,
    };
    assert_eq!(order, [0, 1, 2]);
    Ok(())
}

async fn timers_of_one_instant(run: Run) -> Result {
    let log = Arc::new(Mutex::new(Vec::new()));
    let at = Instant::now() + 2 * MS;
    side_by_side(2, |n| {
        let log = log.clone();
        async move {
            let later = if run.bug || n == 0 { at } else { at + 2 * MS };
            sleep_until(later).await;
            log.lock().unwrap().push(n);
            Ok(())
        }
    })
    .await?;
    assert_eq!(*log.lock().unwrap(), [0, 1], "opened before it is used");
    Ok(())
}

async fn subscribed_too_late(run: Run) -> Result {
    let (events, early) = broadcast::channel(4);
    let mut early = (!run.bug).then_some(early);
    let source = events.clone();
    let listens = tokio::spawn(async move {
        let mut events = early.take().unwrap_or_else(|| source.subscribe());
        drop(source);
        events.recv().await
    });
    yield_now().await;
    let _ = events.send(7);
    drop(events);
    assert_eq!(listens.await??, 7);
    Ok(())
}

async fn first_answer_first_question(run: Run) -> Result {
    let (answers, mut came) = mpsc::channel(4);
    for question in 0..3_u32 {
        let answers = answers.clone();
        tokio::spawn(async move {
            yield_now().await;
            let _ = answers.send((question, question * 10)).await;
        });
    }
    drop(answers);
    let mut next = 0;
    while let Some((question, answer)) = came.recv().await {
        let asked = if run.bug { next } else { question };
        assert_eq!(answer, asked * 10);
        next += 1;
    }
    Ok(())
}

async fn exact_instant(run: Run) -> Result {
    let at = Instant::now() + 2 * MS;
    // Others have timers too, a little later each.
    let others = tokio::spawn(side_by_side(4, move |n| async move {
        sleep_until(at + MS * n as u32).await;
        Ok(())
    }));
    sleep_until(at).await;
    let late = Instant::now() - at;
    others.await??;
    assert!(
        !run.bug || late.is_zero(),
        "it is later than the instant it slept for"
    );
    Ok(())
}

async fn stopped_before_it_was_drained(run: Run) -> Result {
    let (items, mut queue) = mpsc::channel(8);
    let done = Arc::new(Mutex::new(Vec::new()));
    let kept = done.clone();
    let consumer = tokio::spawn(async move {
        while let Some(item) = queue.recv().await {
            kept.lock().unwrap().push(item);
        }
    });
    for item in 0..3 {
        let _ = items.send(item).await;
    }
    drop(items);
    if run.bug {
        consumer.abort(); // the producer is done
    }
    let _ = consumer.await;
    assert_eq!(*done.lock().unwrap(), [0, 1, 2]);
    Ok(())
}
