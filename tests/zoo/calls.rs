//! Blocking calls: threads that work for a task, and wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};

use kinfolk::testkit::CancelEverywhere;
use kinfolk::{OrFail, Result, blocking, scope, sleep, spawn};

use crate::MS;

zoo! {
    never_hangs_up test "a blocking call takes work from a queue whose sender its own job keeps: the queue never ends";
    update_across_a_question test "a blocking call reads a counter, asks whether it is cancelled, and writes it back";
    stops_before_the_rest test "a blocking call that is cancelled returns at once and leaves what is in its queue";
    deaf_call everywhere "a blocking call waits for a flag and does not ask whether it is cancelled";
}

/// Adds what it receives.
fn adds(work: Receiver<u32>) -> u32 {
    work.into_iter().sum()
}

async fn never_hangs_up(bug: bool) -> Result<()> {
    let (send, work) = channel();
    let sum = spawn(blocking(move |_| adds(work)));
    for part in 0..4 {
        let send = send.clone();
        spawn(async move { send.send(part).or_fail() }).await?;
    }
    let kept = bug.then(|| send.clone());
    drop(send);
    assert_eq!(sum.await?, 6);
    drop(kept);
    Ok(())
}

async fn update_across_a_question(bug: bool) -> Result<()> {
    let count = Arc::new(AtomicU32::new(0));
    let counts = count.clone();
    let call = spawn(blocking(move |caller| {
        for _ in 0..3 {
            let before = counts.load(SeqCst);
            if caller.is_cancelled() {
                return;
            }
            match bug {
                true => counts.store(before + 1, SeqCst),
                false => _ = counts.fetch_add(1, SeqCst),
            }
        }
    }));
    for _ in 0..3 {
        count.fetch_add(1, SeqCst);
        kinfolk::yield_now().await?;
    }
    call.await?;
    assert_eq!(count.load(SeqCst), 6);
    Ok(())
}

async fn stops_before_the_rest(bug: bool) -> Result<()> {
    let (send, work) = channel();
    let done = Arc::new(AtomicU32::new(0));
    let does = done.clone();
    let call = spawn(blocking(move |caller| {
        while !caller.is_cancelled() {
            if let Ok(part) = work.try_recv() {
                does.fetch_add(part, SeqCst);
            }
        }
        if !bug {
            does.fetch_add(adds(work), SeqCst);
        }
    }));
    // It has begun: it takes the first part.
    send.send(1).or_fail()?;
    while done.load(SeqCst) == 0 {
        sleep(MS).await?;
    }
    for _ in 0..3 {
        send.send(1).or_fail()?;
        kinfolk::yield_now().await?;
    }
    drop(send);
    call.cancel("no more will come");
    let _ = call.outcome().await?;
    assert_eq!(done.load(SeqCst), 4);
    Ok(())
}

fn deaf_call(bug: bool, everywhere: CancelEverywhere) {
    everywhere.run(move || async move {
        scope(async move |s| {
            let flag = Arc::new(AtomicBool::new(false));
            let seen = flag.clone();
            let (done, wait) = channel();
            let waits = s.spawn(blocking(move |caller| match bug {
                true => drop(wait.recv()),
                false => while !seen.load(SeqCst) && !caller.is_cancelled() {},
            }));
            // Whoever has the other end is not of this family: nothing drops it.
            let done = std::mem::ManuallyDrop::new(done);
            sleep(MS).await?;
            flag.store(true, SeqCst);
            done.send(()).or_fail()?;
            waits.await
        })
        .await
    });
}
