//! Races and lost updates: something comes in between two steps that belong together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kinfolk::{Error, OrCancel, Result, checkpoint, sleep, spawn, yield_now};
use tokio::sync::{Notify, OnceCell};

use crate::{MS, side_by_side};

zoo! {
    lost_update test "two tasks read a counter, pass a point, and write it back"
        says "an update is lost";
    check_then_act test "a seat is seen to be free, and taken after a point"
        says "one seat is taken once";
    made_twice test "two tasks find an empty cache, and both fill it"
        says "it is made once";
    lost_wakeup test "a flag is looked at, and only later is its news listened for"
        says "deadlock: main has not ended";
    last_one_out test "tasks count down, and ask later whether they were the last"
        says "the last one out closes the door";
    if_for_while test "what a waiter was woken for is taken by another before its turn"
        says "woken for an item";
    torn_read test "an auditor reads two accounts while money is between them"
        says "money is on its way";
    reused_node test "a pop compares the top of a stack, which left and came back meanwhile"
        says "held and free";
    overtaken_reader test "a reader goes back to a slot that the writer has come round to"
        says "a slot that was overwritten";
    double_removal test "a timeout and an answer both remove the request, and both count it"
        says "a request ends once";
}

async fn lost_update(bug: bool) -> Result<()> {
    let count = Arc::new(AtomicU32::new(0));
    side_by_side(2, |_| {
        let count = count.clone();
        async move {
            let read = count.load(SeqCst);
            checkpoint().await?;
            match bug {
                true => count.store(read + 1, SeqCst),
                false => _ = count.fetch_add(1, SeqCst),
            }
            Ok(())
        }
    })
    .await?;
    assert_eq!(count.load(SeqCst), 2, "an update is lost");
    Ok(())
}

async fn check_then_act(bug: bool) -> Result<()> {
    let free = Arc::new(AtomicBool::new(true));
    let seated = side_by_side(2, |_| {
        let free = free.clone();
        async move {
            if bug {
                if !free.load(SeqCst) {
                    return Ok(false);
                }
                checkpoint().await?; // asks for the name
                free.store(false, SeqCst);
                return Ok(true);
            }
            let mine = free.swap(false, SeqCst);
            checkpoint().await?;
            Ok(mine)
        }
    })
    .await?;
    let seated = seated.iter().filter(|mine| **mine).count();
    assert_eq!(seated, 1, "one seat is taken once");
    Ok(())
}

async fn made_twice(bug: bool) -> Result<()> {
    let cache = Arc::new(Mutex::new(None));
    let cell = Arc::new(OnceCell::new());
    let made = Arc::new(AtomicU32::new(0));
    side_by_side(3, |_| {
        let (cache, cell, made) = (cache.clone(), cell.clone(), made.clone());
        async move {
            let make = async || {
                checkpoint().await?; // connects
                Ok::<_, Error>(made.fetch_add(1, SeqCst))
            };
            if !bug {
                cell.get_or_try_init(make).await?;
                return Ok(());
            }
            let known: Option<u32> = *cache.lock().unwrap();
            if known.is_none() {
                let new = make().await?;
                *cache.lock().unwrap() = Some(new);
            }
            Ok(())
        }
    })
    .await?;
    assert_eq!(made.load(SeqCst), 1, "it is made once");
    Ok(())
}

async fn lost_wakeup(bug: bool) -> Result<()> {
    let shared = Arc::new((AtomicBool::new(false), Notify::new()));
    let waiter = shared.clone();
    let waits = spawn(async move {
        let (ready, news) = &*waiter;
        let early = news.notified();
        if !ready.load(SeqCst) {
            checkpoint().await?; // writes to the log
            match bug {
                true => news.notified().or_cancel().await?,
                false => early.or_cancel().await?,
            }
        }
        Ok::<_, Error>(())
    });
    yield_now().await?;
    shared.0.store(true, SeqCst);
    shared.1.notify_waiters();
    waits.await
}

async fn last_one_out(bug: bool) -> Result<()> {
    let inside = Arc::new(AtomicUsize::new(3));
    let closed = Arc::new(AtomicUsize::new(0));
    side_by_side(3, |_| {
        let (inside, closed) = (inside.clone(), closed.clone());
        async move {
            let before = inside.fetch_sub(1, SeqCst);
            checkpoint().await?;
            let last = match bug {
                true => inside.load(SeqCst) == 0,
                false => before == 1,
            };
            closed.fetch_add(usize::from(last), SeqCst);
            Ok(())
        }
    })
    .await?;
    assert_eq!(closed.load(SeqCst), 1, "the last one out closes the door");
    Ok(())
}

async fn if_for_while(bug: bool) -> Result<()> {
    let shared = Arc::new((Mutex::new(VecDeque::new()), Notify::new()));
    let take = move |shared: Arc<(Mutex<VecDeque<u32>>, Notify)>| async move {
        let (queue, news) = &*shared;
        let empty = || queue.lock().unwrap().is_empty();
        if bug {
            if empty() {
                news.notified().or_cancel().await?;
            }
        } else {
            while empty() {
                news.notified().or_cancel().await?;
            }
        }
        let item = queue.lock().unwrap().pop_front();
        Ok::<_, Error>(item.expect("woken for an item"))
    };
    let put = |item| {
        shared.0.lock().unwrap().push_back(item);
        shared.1.notify_one();
    };
    let first = spawn(take(shared.clone()));
    sleep(MS).await?;
    put(1);
    let second = spawn(take(shared.clone()));
    sleep(MS).await?;
    put(2);
    assert_eq!(first.await? + second.await?, 3);
    Ok(())
}

async fn torn_read(bug: bool) -> Result<()> {
    let accounts = Arc::new(Mutex::new((100, 0)));
    let both = accounts.clone();
    let transfer = spawn(async move {
        both.lock().unwrap().0 -= 10;
        if bug {
            checkpoint().await?;
        }
        both.lock().unwrap().1 += 10;
        checkpoint().await
    });
    for _ in 0..3 {
        yield_now().await?;
        let (one, other) = *accounts.lock().unwrap();
        assert_eq!(one + other, 100, "money is on its way");
    }
    transfer.await
}

/// A stack of three nodes that are used again.
struct Stack {
    top: Option<usize>,
    below: [Option<usize>; 3],
    changes: u32,
}

impl Stack {
    fn pop(&mut self) -> Option<usize> {
        let top = self.top?;
        self.top = self.below[top];
        self.changes += 1;
        Some(top)
    }

    fn push(&mut self, node: usize) {
        self.below[node] = self.top;
        self.top = Some(node);
        self.changes += 1;
    }
}

async fn reused_node(bug: bool) -> Result<()> {
    let stack = Arc::new(Mutex::new(Stack {
        top: Some(0),
        below: [Some(1), Some(2), None],
        changes: 0,
    }));
    let popped = stack.clone();
    let pops = spawn(async move {
        loop {
            let (top, below, changes) = {
                let stack = popped.lock().unwrap();
                (
                    stack.top,
                    stack.top.and_then(|top| stack.below[top]),
                    stack.changes,
                )
            };
            checkpoint().await?;
            let mut stack = popped.lock().unwrap();
            if stack.top == top && (bug || stack.changes == changes) {
                stack.top = below;
                stack.changes += 1;
                return Ok::<_, Error>(top);
            }
        }
    });
    yield_now().await?;
    let first = stack.lock().unwrap().pop();
    let held = stack.lock().unwrap().pop();
    if let Some(first) = first {
        stack.lock().unwrap().push(first);
    }
    let other = pops.await?;
    let mut stack = stack.lock().unwrap();
    let mut free = Vec::new();
    while let Some(node) = stack.pop() {
        free.push(node);
    }
    assert!(
        held.is_none_or(|held| !free.contains(&held)),
        "held and free"
    );
    assert!(held != other, "held twice");
    Ok(())
}

async fn overtaken_reader(bug: bool) -> Result<()> {
    let ring = Arc::new(Mutex::new((0, [0_usize; 4])));
    let written = ring.clone();
    let writes = spawn(async move {
        for number in 1..40 {
            {
                let mut ring = written.lock().unwrap();
                ring.0 = number;
                ring.1[number % 4] = number;
            }
            yield_now().await?;
        }
        Ok::<_, Error>(())
    });
    for _ in 0..5 {
        let newest = ring.lock().unwrap().0;
        yield_now().await?;
        let read = ring.lock().unwrap().1[newest % 4];
        if !bug && read != newest {
            continue; // overwritten meanwhile: looks for a newer one
        }
        assert_eq!(read, newest, "a slot that was overwritten");
    }
    writes.await
}

async fn double_removal(bug: bool) -> Result<()> {
    let pending = Arc::new(Mutex::new(Some("a request")));
    let open = Arc::new(AtomicUsize::new(1));
    side_by_side(2, |_| {
        let (pending, open) = (pending.clone(), open.clone());
        async move {
            // An answer, and the timeout of the same instant.
            sleep(MS).await?;
            let was_there = match bug {
                true => pending.lock().unwrap().is_some(),
                false => pending.lock().unwrap().take().is_some(),
            };
            if was_there {
                checkpoint().await?; // writes to the log
                *pending.lock().unwrap() = None;
                let before = open.fetch_sub(1, SeqCst);
                assert_eq!(before, 1, "a request ends once");
            }
            Ok(())
        }
    })
    .await?;
    Ok(())
}
