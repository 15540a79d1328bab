//! Cancellation, in the two idioms of tokio: a task is aborted, which drops its future at
//! the await where it stands, or a `CancellationToken` tells it to stop. Neither tool tries
//! all moments, so each of these tests stops its task at a moment that the seed decides.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::shared::{MS, Result, Run, SECOND};

zoo! {
    alone value_lost;
    alone half_a_transfer;
    alone clean_up_skipped;
    alone shield_forgotten;
    alone clean_up_without_an_end;
    alone stop_turned_into_a_failure;
    alone stop_taken_for_a_failure;
    alone interrupt_swallowed;
    alone farewell_to_a_closed_channel;
    alone taken_out_and_dropped;
    alone goes_on_in_the_background;
    alone stopped_while_it_closes;
    alone half_read_message;
    alone loser_had_an_item;
    alone permit_lost_in_a_timeout;
    alone answer_to_a_leaver;
    alone lock_flag_stays;
}

/// The error of a wait that a token has ended.
#[derive(Debug, Clone, Copy)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

async fn sleep_or_stop(token: &CancellationToken, time: Duration) -> Result<(), Stopped> {
    tokio::select! {
        () = token.cancelled() => Err(Stopped),
        _ = sleep(time) => Ok(()),
    }
}

/// Waits for the moment that the seed decides: after a few turns, or at an instant.
async fn the_moment(run: Run) {
    if run.draw(0, 2) == 0 {
        for _ in 0..run.draw(1, 8) {
            yield_now().await;
        }
    } else {
        sleep(MS * run.draw(1, 1500) as u32).await;
    }
}

/// Aborts `body` at some moment, and waits until what it has begun is over. True if it was
/// aborted before its end.
async fn aborted_somewhere(
    run: Run,
    body: impl Future<Output = ()> + Send + 'static,
) -> Result<bool> {
    let task = tokio::spawn(body);
    the_moment(run).await;
    task.abort();
    let stopped = task.await.is_err();
    sleep(2 * SECOND).await;
    Ok(stopped)
}

/// Tells `body` to stop at some moment, and waits for its end.
async fn told_somewhere<T, B>(run: Run, body: impl FnOnce(CancellationToken) -> B) -> Result<T>
where
    T: Send + 'static,
    B: Future<Output = T> + Send + 'static,
{
    let token = CancellationToken::new();
    let task = tokio::spawn(body(token.clone()));
    the_moment(run).await;
    token.cancel();
    Ok(task.await?)
}

async fn value_lost(run: Run) -> Result {
    let queues = Arc::new(Mutex::new((VecDeque::from([1, 2, 3]), Vec::new())));
    let own = queues.clone();
    aborted_somewhere(run, async move {
        for _ in 0..3 {
            if run.bug {
                let item = own.lock().unwrap().0.pop_front();
                yield_now().await;
                own.lock().unwrap().1.extend(item);
            } else {
                yield_now().await;
                let mut queues = own.lock().unwrap();
                let item = queues.0.pop_front();
                queues.1.extend(item);
            }
        }
    })
    .await?;
    let queues = queues.lock().unwrap();
    assert_eq!(queues.0.len() + queues.1.len(), 3, "an item is lost");
    Ok(())
}

async fn half_a_transfer(run: Run) -> Result {
    let accounts = Arc::new(Mutex::new((100, 0)));
    let own = accounts.clone();
    aborted_somewhere(run, async move {
        let transfer = async move {
            own.lock().unwrap().0 -= 10;
            sleep(SECOND).await;
            own.lock().unwrap().1 += 10;
        };
        match run.bug {
            true => transfer.await,
            false => _ = tokio::spawn(transfer).await, // an abort does not reach it
        }
    })
    .await?;
    let accounts = accounts.lock().unwrap();
    assert_eq!(accounts.0 + accounts.1, 100, "money is lost");
    Ok(())
}

/// Counts what is open; none may be after a run.
async fn counted<B>(run: Run, body: impl FnOnce(CancellationToken, Arc<AtomicI32>) -> B) -> Result
where
    B: Future<Output = Result<(), Stopped>> + Send + 'static,
{
    let open = Arc::new(AtomicI32::new(0));
    let _ = told_somewhere(run, |token| body(token, open.clone())).await?;
    assert_eq!(open.load(SeqCst), 0, "what was opened is closed");
    Ok(())
}

async fn clean_up_skipped(run: Run) -> Result {
    counted(run, |token, open| async move {
        open.fetch_add(1, SeqCst);
        let slept = sleep_or_stop(&token, SECOND).await;
        if run.bug {
            slept?;
        }
        open.fetch_sub(1, SeqCst);
        slept
    })
    .await
}

async fn shield_forgotten(run: Run) -> Result {
    counted(run, |token, open| async move {
        open.fetch_add(1, SeqCst);
        let slept = sleep_or_stop(&token, SECOND).await;
        // Says good-bye.
        match run.bug {
            true => sleep_or_stop(&token, MS).await?,
            false => _ = sleep(MS).await,
        }
        open.fetch_sub(1, SeqCst);
        slept
    })
    .await
}

async fn clean_up_without_an_end(run: Run) -> Result {
    told_somewhere(run, |token| async move {
        let (answer, answered) = oneshot::channel::<()>();
        if sleep_or_stop(&token, SECOND).await.is_err() {
            match run.bug {
                true => _ = answered.await,
                // Without an answer it goes on all the same.
                false => _ = timeout(2 * MS, answered).await,
            }
        }
        drop(answer);
    })
    .await
}

async fn stop_turned_into_a_failure(run: Run) -> Result {
    let ended: Result = told_somewhere(run, |token| async move {
        match sleep_or_stop(&token, SECOND).await {
            Err(_) if run.bug => Err("the disk is slow".into()),
            slept => Ok(slept?),
        }
    })
    .await?;
    let failed = ended.is_err_and(|error| !error.is::<Stopped>());
    assert!(!failed, "told to stop, and it says that it failed");
    Ok(())
}

async fn stop_taken_for_a_failure(run: Run) -> Result {
    told_somewhere(run, |token| async move {
        loop {
            match sleep_or_stop(&token, SECOND).await {
                Err(_) if run.bug => _ = sleep(10 * MS).await, // and tries again
                _ => return,
            }
        }
    })
    .await
}

async fn interrupt_swallowed(run: Run) -> Result {
    let (told, sent) = told_somewhere(run, |token| async move {
        let mut told = false;
        for _ in 0..2 {
            let slept = sleep_or_stop(&token, SECOND).await;
            told |= slept.is_err();
            if !run.bug && told {
                return (told, false);
            }
        }
        (told, true)
    })
    .await?;
    assert!(!(told && sent), "told to stop, and sent it all the same");
    Ok(())
}

async fn farewell_to_a_closed_channel(run: Run) -> Result {
    told_somewhere(run, |token| async move {
        let (words, mut heard) = mpsc::unbounded_channel();
        let own = token.clone();
        let child = tokio::spawn(async move {
            let _ = sleep_or_stop(&own, SECOND).await;
            let sent = words.send("bye");
            if run.bug {
                sent.expect("a listener");
            }
        });
        tokio::select! {
            () = token.cancelled() => {}
            _ = heard.recv() => {}
        }
        drop(heard);
        child.await
    })
    .await??;
    Ok(())
}

/// Puts the items back when it goes.
struct Taken(Arc<Mutex<Vec<u32>>>, Vec<u32>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.lock().unwrap().append(&mut self.1);
    }
}

async fn taken_out_and_dropped(run: Run) -> Result {
    let items = Arc::new(Mutex::new(vec![1, 2]));
    let own = items.clone();
    aborted_somewhere(run, async move {
        let taken = std::mem::take(&mut *own.lock().unwrap());
        if run.bug {
            sleep(SECOND).await;
            *own.lock().unwrap() = taken;
            return;
        }
        let _back = Taken(own, taken);
        sleep(SECOND).await;
    })
    .await?;
    assert_eq!(items.lock().unwrap().len(), 2, "items are lost");
    Ok(())
}

async fn goes_on_in_the_background(run: Run) -> Result {
    let written = Arc::new(Mutex::new(false));
    let own = written.clone();
    let stopped = aborted_somewhere(run, async move {
        let write = async move {
            sleep(MS).await;
            *own.lock().unwrap() = true;
        };
        if run.bug {
            tokio::spawn(write);
            sleep(2 * MS).await;
        } else {
            write.await;
        }
    })
    .await?;
    let written = *written.lock().unwrap();
    assert!(
        !(stopped && written),
        "written after its caller was stopped"
    );
    Ok(())
}

async fn stopped_while_it_closes(run: Run) -> Result {
    counted(run, |token, open| async move {
        open.fetch_add(1, SeqCst);
        let slept = sleep_or_stop(&token, SECOND).await;
        // Without a stop so far, it seems that none needs to be held back.
        match run.bug && slept.is_ok() {
            true => sleep_or_stop(&token, 100 * MS).await?,
            false => _ = sleep(100 * MS).await,
        }
        open.fetch_sub(1, SeqCst);
        slept
    })
    .await
}

/// A message is its length in one byte, and so many bytes.
async fn whole_message(stream: &mut DuplexStream) -> std::io::Result<Vec<u8>> {
    let mut body = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

async fn half_read_message(run: Run) -> Result {
    let (mut reader, mut writer) = tokio::io::duplex(64);
    let sender = tokio::spawn(async move {
        for _ in 0..2 {
            writer.write_all(&[4]).await?;
            sleep(10 * MS).await;
            writer.write_all(b"four").await?;
        }
        sleep(SECOND).await; // and hangs up
        std::io::Result::Ok(())
    });
    let (mut messages, mut buf) = (Vec::new(), Vec::new());
    let until = Instant::now() + 100 * MS;
    while messages.len() < 2 && Instant::now() < until {
        if run.bug {
            if let Ok(Ok(message)) = timeout(3 * MS, whole_message(&mut reader)).await {
                messages.push(message);
            }
            continue;
        }
        // What was read stays, whatever happens to the wait for more.
        let _ = timeout(3 * MS, reader.read_buf(&mut buf)).await;
        while buf.first().is_some_and(|len| buf.len() > usize::from(*len)) {
            let end = usize::from(buf[0]) + 1;
            messages.push(buf.drain(..end).skip(1).collect());
        }
    }
    sender.await??;
    assert_eq!(messages, [b"four", b"four"]);
    Ok(())
}

async fn loser_had_an_item(run: Run) -> Result {
    let (items, mut queue) = mpsc::channel(4);
    let producer = tokio::spawn(async move {
        for item in 0..4_u32 {
            sleep(MS).await;
            let _ = items.send(item).await;
        }
    });
    let mut got = Vec::new();
    let mut open = true;
    while open {
        let take = async {
            let item = queue.recv().await;
            if run.bug {
                yield_now().await; // writes to the log
            }
            got.extend(item);
            item.is_some()
        };
        open = tokio::select! {
            more = take => more,
            _ = sleep(MS) => true,
        };
    }
    producer.await?;
    assert_eq!(got, [0, 1, 2, 3]);
    Ok(())
}

/// Gives a permit back when it goes.
struct Permit(Arc<AtomicI32>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

async fn permit_lost_in_a_timeout(run: Run) -> Result {
    let permits = Arc::new(AtomicI32::new(2));
    for length in [MS, 30 * MS] {
        let permits = permits.clone();
        let work = async move {
            permits.fetch_sub(1, SeqCst);
            if run.bug {
                sleep(length).await;
                permits.fetch_add(1, SeqCst);
            } else {
                let _permit = Permit(permits);
                sleep(length).await;
            }
        };
        let _ = timeout(10 * MS, work).await;
    }
    assert_eq!(permits.load(SeqCst), 2);
    Ok(())
}

async fn answer_to_a_leaver(run: Run) -> Result {
    let (answer, answered) = oneshot::channel();
    let server = tokio::spawn(async move {
        sleep(2 * MS).await;
        let sent = answer.send(7);
        if run.bug {
            sent.expect("the asker waits");
        }
    });
    let _ = timeout(2 * MS, answered).await;
    server.await?;
    Ok(())
}

async fn lock_flag_stays(run: Run) -> Result {
    let busy = Arc::new(AtomicI32::new(1));
    let own = busy.clone();
    let worker = tokio::spawn(async move {
        own.fetch_sub(1, SeqCst);
        let permit = (!run.bug).then(|| Permit(own.clone()));
        sleep(2 * MS).await;
        if permit.is_none() {
            own.fetch_add(1, SeqCst);
        }
    });
    sleep(2 * MS).await;
    worker.abort();
    let _ = worker.await;
    assert_eq!(busy.load(SeqCst), 1, "still marked as busy");
    Ok(())
}
