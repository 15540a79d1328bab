//! Deadlocks, back-pressure, and what is left over.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::files::forgotten_file;
use crate::shared::{Result, Run, SECOND, side_by_side};

zoo! {
    alone opposite_order;
    alone one_by_one;
    alone held_while_it_waits;
    alone all_jobs_before_any_result;
    alone both_write_first;
    alone its_own_sender;
    alone nested_limit;
    alone forgotten_task;
    alone forgotten_file;
    alone answer_put_aside;
}

async fn opposite_order(run: Run) -> Result {
    let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
    side_by_side(2, |n| {
        let (first, second) = if run.bug { (n, 1 - n) } else { (0, 1) };
        let (first, second) = (locks[first].clone(), locks[second].clone());
        async move {
            let _first = first.lock().await;
            yield_now().await;
            let _second = second.lock().await;
            Ok(())
        }
    })
    .await?;
    Ok(())
}

async fn one_by_one(run: Run) -> Result {
    let permits = Arc::new(Semaphore::new(2));
    side_by_side(2, |_| {
        let permits = permits.clone();
        async move {
            if run.bug {
                let _one = permits.acquire().await?;
                yield_now().await;
                let _other = permits.acquire().await?;
            } else {
                let _both = permits.acquire_many(2).await?;
                yield_now().await;
            }
            Ok(())
        }
    })
    .await?;
    Ok(())
}

async fn held_while_it_waits(run: Run) -> Result {
    let sum = Arc::new(Mutex::new(0));
    let mut held = Some(sum.lock().await);
    let wanted = sum.clone();
    let child = tokio::spawn(async move { *wanted.lock().await += 1 });
    if !run.bug {
        held = None;
    }
    child.await?;
    drop(held);
    Ok(())
}

async fn all_jobs_before_any_result(run: Run) -> Result {
    let (jobs, mut queue) = mpsc::channel::<u32>(1);
    let (results, mut ready) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(job) = queue.recv().await {
            results.send(job * 2).await.expect("a taker");
        }
    });
    let send_all = async move {
        for job in 0..8 {
            jobs.send(job).await.expect("a worker");
        }
    };
    if run.bug {
        send_all.await;
    } else {
        tokio::spawn(send_all);
    }
    let mut sum = 0;
    while let Some(result) = ready.recv().await {
        sum += result;
    }
    assert_eq!(sum, 56);
    Ok(())
}

async fn both_write_first(run: Run) -> Result {
    const MUCH: usize = 70_000;
    let (one, two) = tokio::io::duplex(65_536);
    let mut sides = Vec::new();
    for side in [one, two] {
        sides.push(tokio::spawn(async move {
            let (mut input, mut output) = tokio::io::split(side);
            let write = async move { output.write_all(&vec![7; MUCH]).await };
            let mut read = vec![0; MUCH];
            if run.bug {
                write.await?;
                input.read_exact(&mut read).await?;
            } else {
                let writer = tokio::spawn(write);
                input.read_exact(&mut read).await?;
                writer.await??;
            }
            std::io::Result::Ok(())
        }));
    }
    for side in sides {
        side.await??;
    }
    Ok(())
}

async fn its_own_sender(run: Run) -> Result {
    let (items, mut queue) = mpsc::channel(4);
    let source = items.clone();
    let producer = tokio::spawn(async move {
        let _ = source.send(1).await;
    });
    let own = run.bug.then_some(items);
    let mut count = 0;
    while queue.recv().await.is_some() {
        count += 1;
    }
    assert_eq!(count, 1);
    drop(own);
    producer.await?;
    Ok(())
}

async fn nested_limit(run: Run) -> Result {
    let permits = Arc::new(Semaphore::new(2));
    side_by_side(2, |_| {
        let permits = permits.clone();
        async move {
            let own = permits.acquire().await?;
            let inner = permits.clone();
            let part = tokio::spawn(async move {
                let _own = inner.acquire().await.expect("open");
            });
            if run.bug {
                part.await?;
                drop(own);
            } else {
                drop(own);
                part.await?;
            }
            Ok(())
        }
    })
    .await?;
    Ok(())
}

async fn forgotten_task(run: Run) -> Result {
    let beats = tokio::spawn(async {
        loop {
            sleep(SECOND).await;
        }
    });
    if run.bug {
        drop(beats); // which detaches the task
    } else {
        yield_now().await;
        beats.abort();
        let _ = beats.await;
    }
    sleep(SECOND).await;
    // Neither tool looks by itself; both can be asked.
    assert_eq!(crate::peer::other_tasks(), 0, "a task is left over");
    Ok(())
}

async fn answer_put_aside(run: Run) -> Result {
    let (requests, mut queue) = mpsc::channel(4);
    let server = tokio::spawn(async move {
        let mut unknown = Vec::new();
        while let Some((number, answer)) = queue.recv().await {
            let answer: oneshot::Sender<Option<u32>> = answer;
            match number {
                0..5 => _ = answer.send(Some(number * 2)),
                _ if run.bug => unknown.push(answer), // for later, which never comes
                _ => _ = answer.send(None),
            }
        }
    });
    for number in [1, 7] {
        let (answer, answered) = oneshot::channel();
        let _ = requests.send((number, answer)).await;
        let _ = answered.await;
    }
    drop(requests);
    server.await?;
    Ok(())
}
