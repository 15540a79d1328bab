//! Races and lost updates. Where ours have a `checkpoint`, which goes on or yields as the
//! seed says, these have a `yield_now`, which always yields.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, OnceCell};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::shared::{MS, Result, Run, side_by_side};

zoo! {
    alone lost_update;
    alone check_then_act;
    alone made_twice;
    alone lost_wakeup;
    alone last_one_out;
    alone if_for_while;
    alone torn_read;
    alone reused_node;
    alone overtaken_reader;
    alone double_removal;
}

async fn lost_update(run: Run) -> Result {
    let count = Arc::new(AtomicU32::new(0));
    side_by_side(2, |_| {
        let count = count.clone();
        async move {
            let read = count.load(SeqCst);
            yield_now().await;
            match run.bug {
                true => count.store(read + 1, SeqCst),
                false => _ = count.fetch_add(1, SeqCst),
            }
            Ok(())
        }
    })
    .await?;
    assert_eq!(count.load(SeqCst), 2);
    Ok(())
}

async fn check_then_act(run: Run) -> Result {
    let free = Arc::new(AtomicBool::new(true));
    let seated = side_by_side(2, |_| {
        let free = free.clone();
        async move {
            if run.bug {
                if !free.load(SeqCst) {
                    return Ok(false);
                }
                yield_now().await; // asks for the name
                free.store(false, SeqCst);
                return Ok(true);
            }
            let mine = free.swap(false, SeqCst);
            yield_now().await;
            Ok(mine)
        }
    })
    .await?;
    assert_eq!(seated.iter().filter(|mine| **mine).count(), 1);
    Ok(())
}

async fn made_twice(run: Run) -> Result {
    let cache = Arc::new(Mutex::new(None));
    let cell = Arc::new(OnceCell::new());
    let made = Arc::new(AtomicU32::new(0));
    side_by_side(3, |_| {
        let (cache, cell, made) = (cache.clone(), cell.clone(), made.clone());
        async move {
            let make = async {
                yield_now().await; // connects
                made.fetch_add(1, SeqCst)
            };
            if !run.bug {
                cell.get_or_init(|| make).await;
                return Ok(());
            }
            let known: Option<u32> = *cache.lock().unwrap();
            if known.is_none() {
                let new = make.await;
                *cache.lock().unwrap() = Some(new);
            }
            Ok(())
        }
    })
    .await?;
    assert_eq!(made.load(SeqCst), 1);
    Ok(())
}

async fn lost_wakeup(run: Run) -> Result {
    let shared = Arc::new((AtomicBool::new(false), Notify::new()));
    let waiter = shared.clone();
    let waits = tokio::spawn(async move {
        let (ready, news) = &*waiter;
        let early = news.notified();
        if !ready.load(SeqCst) {
            yield_now().await; // writes to the log
            match run.bug {
                true => news.notified().await,
                false => early.await,
            }
        }
    });
    yield_now().await;
    shared.0.store(true, SeqCst);
    shared.1.notify_waiters();
    waits.await?;
    Ok(())
}

async fn last_one_out(run: Run) -> Result {
    let inside = Arc::new(AtomicUsize::new(3));
    let closed = Arc::new(AtomicUsize::new(0));
    side_by_side(3, |_| {
        let (inside, closed) = (inside.clone(), closed.clone());
        async move {
            let before = inside.fetch_sub(1, SeqCst);
            yield_now().await;
            let last = match run.bug {
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

async fn if_for_while(run: Run) -> Result {
    let shared = Arc::new((Mutex::new(VecDeque::new()), Notify::new()));
    let take = move |shared: Arc<(Mutex<VecDeque<u32>>, Notify)>| async move {
        let (queue, news) = &*shared;
        let empty = || queue.lock().unwrap().is_empty();
        if run.bug {
            if empty() {
                news.notified().await;
            }
        } else {
            while empty() {
                news.notified().await;
            }
        }
        let item = queue.lock().unwrap().pop_front();
        item.expect("woken for an item")
    };
    let put = |item| {
        shared.0.lock().unwrap().push_back(item);
        shared.1.notify_one();
    };
    let first = tokio::spawn(take(shared.clone()));
    sleep(MS).await;
    put(1);
    let second = tokio::spawn(take(shared.clone()));
    sleep(MS).await;
    put(2);
    assert_eq!(first.await? + second.await?, 3);
    Ok(())
}

async fn torn_read(run: Run) -> Result {
    let accounts = Arc::new(Mutex::new((100, 0)));
    let both = accounts.clone();
    let transfer = tokio::spawn(async move {
        both.lock().unwrap().0 -= 10;
        if run.bug {
            yield_now().await;
        }
        both.lock().unwrap().1 += 10;
        yield_now().await;
    });
    for _ in 0..3 {
        yield_now().await;
        let (one, other) = *accounts.lock().unwrap();
        assert_eq!(one + other, 100);
    }
    transfer.await?;
    Ok(())
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

async fn reused_node(run: Run) -> Result {
    let stack = Arc::new(Mutex::new(Stack {
        top: Some(0),
        below: [Some(1), Some(2), None],
        changes: 0,
    }));
    let popped = stack.clone();
    let pops = tokio::spawn(async move {
        loop {
            let (top, below, changes) = {
                let stack = popped.lock().unwrap();
                let below = stack.top.and_then(|top| stack.below[top]);
                (stack.top, below, stack.changes)
            };
            yield_now().await;
            let mut stack = popped.lock().unwrap();
            if stack.top == top && (run.bug || stack.changes == changes) {
                stack.top = below;
                stack.changes += 1;
                return top;
            }
        }
    });
    yield_now().await;
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

async fn overtaken_reader(run: Run) -> Result {
    let ring = Arc::new(Mutex::new((0, [0_usize; 4])));
    let written = ring.clone();
    let writes = tokio::spawn(async move {
        for number in 1..40 {
            {
                let mut ring = written.lock().unwrap();
                ring.0 = number;
                ring.1[number % 4] = number;
            }
            yield_now().await;
        }
    });
    for _ in 0..5 {
        let newest = ring.lock().unwrap().0;
        yield_now().await;
        let read = ring.lock().unwrap().1[newest % 4];
        if !run.bug && read != newest {
            continue; // overwritten meanwhile: looks for a newer one
        }
        assert_eq!(read, newest);
    }
    writes.await?;
    Ok(())
}

async fn double_removal(run: Run) -> Result {
    let pending = Arc::new(Mutex::new(Some("a request")));
    let open = Arc::new(AtomicUsize::new(1));
    side_by_side(2, |_| {
        let (pending, open) = (pending.clone(), open.clone());
        async move {
            // An answer, and the timeout of the same instant.
            sleep(MS).await;
            let was_there = match run.bug {
                true => pending.lock().unwrap().is_some(),
                false => pending.lock().unwrap().take().is_some(),
            };
            if was_there {
                yield_now().await; // writes to the log
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
