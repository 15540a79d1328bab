//! Deadlocks, back-pressure, and what is left over.

use std::sync::Arc;

use kinfolk::{Error, OrCancel, OrFail, Result, checkpoint, detach, scope, sleep, spawn};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::pipe;
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::{SECOND, side_by_side};

zoo! {
    opposite_order test "two tasks take two locks in opposite order"
        says "deadlock: main has not ended";
    one_by_one test "two tasks need two permits each, and take them one by one"
        says "deadlock: main has not ended";
    held_while_it_waits test "a task waits for its child while it holds the lock that the child wants"
        says "deadlock: main has not ended";
    all_jobs_before_any_result test "all jobs go into a bounded queue before any result is taken out of the other"
        says "deadlock: main has not ended";
    both_write_first test "two sides write more than a pipe holds before either of them reads"
        says "deadlock: main has not ended";
    its_own_sender test "a receiver waits for the end of a channel whose sender it still holds"
        says "deadlock: main has not ended";
    nested_limit test "a job that holds one of the permits waits for a job that needs one"
        says "deadlock: main has not ended";
    forgotten_task test "a detached task outlives the work it was begun for"
        says "1 jobs and 1 timers left";
    forgotten_file test "a file is forgotten and stays open"
        says "1 files are left open";
    answer_put_aside test "a request is put aside for ever, and its answer is waited for"
        says "deadlock: main has not ended";
}

async fn opposite_order(bug: bool) -> Result<()> {
    let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
    side_by_side(2, |n| {
        let (first, second) = if bug { (n, 1 - n) } else { (0, 1) };
        let (first, second) = (locks[first].clone(), locks[second].clone());
        async move {
            let _first = first.lock().or_cancel().await?;
            checkpoint().await?;
            let _second = second.lock().or_cancel().await?;
            Ok(())
        }
    })
    .await?;
    Ok(())
}

async fn one_by_one(bug: bool) -> Result<()> {
    let permits = Arc::new(Semaphore::new(2));
    side_by_side(2, |_| {
        let permits = permits.clone();
        async move {
            if bug {
                let _one = permits.acquire().or_cancel().await?.or_fail()?;
                checkpoint().await?;
                let _other = permits.acquire().or_cancel().await?.or_fail()?;
            } else {
                let _both = permits.acquire_many(2).or_cancel().await?.or_fail()?;
                checkpoint().await?;
            }
            Ok(())
        }
    })
    .await?;
    Ok(())
}

async fn held_while_it_waits(bug: bool) -> Result<()> {
    let sum = Arc::new(Mutex::new(0));
    let mut held = Some(sum.lock().or_cancel().await?);
    let wanted = sum.clone();
    let child = spawn(async move {
        *wanted.lock().or_cancel().await? += 1;
        Ok::<_, Error>(())
    });
    if !bug {
        held = None;
    }
    child.await?;
    drop(held);
    Ok(())
}

async fn all_jobs_before_any_result(bug: bool) -> Result<()> {
    scope(async move |s| {
        let (jobs, mut queue) = mpsc::channel::<u32>(1);
        let (results, mut ready) = mpsc::channel(1);
        s.launch(async move {
            while let Some(job) = queue.recv().or_cancel().await? {
                results.send(job * 2).or_cancel().await?.or_fail()?;
            }
            Ok::<_, Error>(())
        });
        let send_all = async move {
            for job in 0..8 {
                jobs.send(job).or_cancel().await?.or_fail()?;
            }
            Ok::<_, Error>(())
        };
        if bug {
            send_all.await?;
        } else {
            s.launch(send_all);
        }
        let mut sum = 0;
        while let Some(result) = ready.recv().or_cancel().await? {
            sum += result;
        }
        assert_eq!(sum, 56);
        Ok::<_, Error>(())
    })
    .await
}

async fn both_write_first(bug: bool) -> Result<()> {
    const MUCH: usize = 70_000;
    let (from_one, to_two) = pipe()?;
    let (from_two, to_one) = pipe()?;
    let mut sides = Vec::new();
    for (input, output) in [(from_two, to_two), (from_one, to_one)] {
        sides.push(spawn(async move {
            let write = async move {
                output.write_all(vec![7; MUCH]).await.0?;
                Ok::<_, Error>(())
            };
            let writer = if bug {
                write.await?;
                None
            } else {
                Some(spawn(write))
            };
            let mut left = MUCH;
            while left > 0 {
                left -= input.read(Vec::with_capacity(left)).await.0?;
            }
            if let Some(writer) = writer {
                writer.await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for side in sides {
        side.await?;
    }
    Ok(())
}

async fn its_own_sender(bug: bool) -> Result<()> {
    let (items, mut queue) = mpsc::channel(4);
    let source = items.clone();
    let producer = spawn(async move {
        let _ = source.send(1).or_cancel().await?;
        Ok::<_, Error>(())
    });
    let own = bug.then_some(items);
    let mut count = 0;
    while queue.recv().or_cancel().await?.is_some() {
        count += 1;
    }
    assert_eq!(count, 1);
    drop(own);
    producer.await
}

async fn nested_limit(bug: bool) -> Result<()> {
    let permits = Arc::new(Semaphore::new(2));
    side_by_side(2, |_| {
        let permits = permits.clone();
        async move {
            let own = permits.acquire().or_cancel().await?.or_fail()?;
            let inner = permits.clone();
            let part = spawn(async move {
                let _own = inner.acquire().or_cancel().await?.or_fail()?;
                Ok::<_, Error>(())
            });
            if bug {
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

async fn forgotten_task(bug: bool) -> Result<()> {
    let beats = async {
        loop {
            sleep(SECOND).await?;
        }
        #[allow(unreachable_code)]
        Ok::<_, Error>(())
    };
    if bug {
        detach(beats);
    } else {
        let beats = spawn(beats);
        checkpoint().await?;
        beats.cancel("the work is done");
        let _ = beats.outcome().await?;
    }
    sleep(SECOND).await?;
    Ok(())
}

async fn forgotten_file(bug: bool) -> Result<()> {
    let file = File::create("/tmp/report").await?;
    file.write_all_at("words", 0).await.0?;
    if bug {
        std::mem::forget(file);
    } else {
        file.close().await?;
    }
    Ok(())
}

async fn answer_put_aside(bug: bool) -> Result<()> {
    let (requests, mut queue) = mpsc::channel(4);
    let server = spawn(async move {
        let mut unknown = Vec::new();
        while let Some((number, answer)) = queue.recv().or_cancel().await? {
            let answer: tokio::sync::oneshot::Sender<Option<u32>> = answer;
            match number {
                0..5 => _ = answer.send(Some(number * 2)),
                _ if bug => unknown.push(answer), // for later, which never comes
                _ => _ = answer.send(None),
            }
        }
        Ok::<_, Error>(())
    });
    for number in [1, 7] {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let _ = requests.send((number, answer)).or_cancel().await?;
        let _ = answered.or_cancel().await?;
    }
    drop(requests);
    server.await
}
