//! What is counted, as async functions over the model's verbs: none of them
//! knows the host it runs on.
//!
//! An operation is done `times` times, and its base is what stands around it:
//! the loop, the yields, the children that are there to be cancelled. The count
//! is the difference.

use std::future::{pending, poll_fn, ready};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, OrCancel, Pool, Result, Scope, checkpoint, current_job, is_cancelled, on, park, scope,
    sleep, timeout, yield_now,
};

/// A body that can be run on any host.
pub type Body = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One operation.
pub struct Operation {
    pub name: &'static str,
    /// How often it is done in the shorter of the two runs that are compared.
    pub times: usize,
    pub body: fn(usize) -> Body,
    pub base: fn(usize) -> Body,
}

macro_rules! operations {
    ($($name:ident $times:literal over $base:ident),* $(,)?) => {
        /// Every operation.
        pub const ALL: &[Operation] = &[$(Operation {
            name: stringify!($name),
            times: $times,
            body: |times| Box::pin($name(times)),
            base: |times| Box::pin($base(times)),
        }),*];
    };
}

operations! {
    cancel_requested 10_000 over nothing,
    is_cancelled_alone 10_000 over nothing,
    is_cancelled_with_children 10_000 over nothing_with_children,
    ready_point 10_000 over ready_await,
    ready_or_cancel 10_000 over ready_await,
    is_cancelled_with_deadline 10_000 over nothing,
    ready_point_with_deadline 10_000 over ready_await,
    timeout_of_ready 2_000 over ready_await,
    yielding 2_000 over nothing,
    waking 2_000 over yielding,
    handing_over 2_000 over nothing,
    timer_set_and_cleared 2_000 over yielding,
    spawning 2_000 over nothing_and_exit,
    spawn_run_join 2_000 over nothing,
    spawn_run_join_in_scope 2_000 over nothing,
    spawn_now_join 2_000 over nothing,
    scope_of_100_per_child 2_000 over nothing,
    cancel_per_node 2_000 over tree_of_nodes,
    cancel_to_the_end_per_node 2_000 over cancel_per_node,
}

fn here() -> Scope {
    Scope::of_job(&current_job().expect("inside a job"))
}

async fn nothing(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(n);
    }
    Ok(())
}

async fn cancel_requested(times: usize) -> Result<()> {
    let scope = here();
    for n in 0..times {
        black_box(n);
        black_box(scope.cancel_requested());
    }
    Ok(())
}

async fn is_cancelled_alone(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(n);
        black_box(is_cancelled());
    }
    Ok(())
}

/// Children that are parked when it returns.
async fn parked_children(s: &Scope, children: usize) -> Result<()> {
    let parked = Arc::new(AtomicUsize::new(0));
    for _ in 0..children {
        let parked = parked.clone();
        s.launch(async move {
            parked.fetch_add(1, Relaxed);
            park().await.map(|_| ())
        });
    }
    while parked.load(Relaxed) < children {
        yield_now().await?;
    }
    Ok(())
}

async fn nothing_with_children(times: usize) -> Result<()> {
    scope(async |s| {
        parked_children(&s, 1000).await?;
        nothing(times).await?;
        s.cancel("done");
        Ok(())
    })
    .await
}

async fn is_cancelled_with_children(times: usize) -> Result<()> {
    scope(async |s| {
        parked_children(&s, 1000).await?;
        is_cancelled_alone(times).await?;
        s.cancel("done");
        Ok(())
    })
    .await
}

async fn ready_await(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(ready(black_box(n)).await);
    }
    Ok(())
}

async fn ready_point(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(ready(black_box(n)).await);
        checkpoint().await?;
    }
    Ok(())
}

/// Long enough never to pass.
const LONG: Duration = Duration::from_secs(3600);

async fn is_cancelled_with_deadline(times: usize) -> Result<()> {
    timeout(LONG, is_cancelled_alone(times)).await
}

async fn ready_point_with_deadline(times: usize) -> Result<()> {
    timeout(LONG, ready_point(times)).await
}

async fn timeout_of_ready(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(timeout(LONG, ready(black_box(n))).await?);
    }
    Ok(())
}

async fn ready_or_cancel(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(ready(black_box(n)).or_cancel().await?);
    }
    Ok(())
}

async fn yielding(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(n);
        yield_now().await?;
    }
    Ok(())
}

/// Wakes a parked child `times` times; each time it takes a turn.
async fn waking(times: usize) -> Result<()> {
    let (slot, over) = (
        Arc::new(Mutex::new(None::<Waker>)),
        Arc::new(AtomicBool::new(false)),
    );
    let (its_slot, its_over) = (slot.clone(), over.clone());
    let child = here().launch(poll_fn(move |cx| {
        let mut slot = its_slot.lock().expect("not poisoned");
        slot.get_or_insert_with(|| cx.waker().clone());
        if its_over.load(Relaxed) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    yield_now().await?;
    let waker = slot.lock().expect("not poisoned").take();
    let waker = waker.expect("the child has run");
    for n in 0..times {
        black_box(n);
        waker.wake_by_ref();
        yield_now().await?;
    }
    over.store(true, Relaxed);
    waker.wake();
    assert!(child.join().await?.is_completed());
    Ok(())
}

/// A waker that waits to be taken.
#[derive(Default)]
struct Slot(Mutex<Option<Waker>>);

impl Slot {
    fn put(&self, waker: &Waker) {
        *self.0.lock().expect("not poisoned") = Some(waker.clone());
    }

    fn take(&self) -> Option<Waker> {
        self.0.lock().expect("not poisoned").take()
    }
}

/// Two tasks pass a turn to and fro, `times` passes in all: each wakes the
/// other and lies down, so that the thread goes straight from one to the other.
async fn handing_over(times: usize) -> Result<()> {
    let sides = Arc::new([Slot::default(), Slot::default()]);
    let child = here().launch(passing(sides.clone(), 1, times / 2));
    passing(sides, 0, times / 2).await;
    assert!(child.join().await?.is_completed());
    Ok(())
}

/// One side of it. The other's waker is made once, and kept.
async fn passing(sides: Arc<[Slot; 2]>, mine: usize, mut left: usize) {
    let (mut other, mut begun) = (None, false);
    poll_fn(move |cx| {
        if !std::mem::replace(&mut begun, true) {
            sides[mine].put(cx.waker());
        }
        other = other.take().or_else(|| sides[1 - mine].take());
        if let Some(other) = &other {
            other.wake_by_ref();
            left -= 1;
        }
        if left == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

async fn timer_set_and_cleared(times: usize) -> Result<()> {
    for n in 0..times {
        black_box(n);
        poll_fn(|cx| {
            let sleeping = pin!(sleep(Duration::from_secs(1)));
            assert!(sleeping.poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        // A turn has only so many points in it, and a sleep is one.
        yield_now().await?;
    }
    Ok(())
}

async fn nothing_and_exit(times: usize) -> Result<()> {
    nothing(times).await?;
    exit(0)
}

/// Made, and never run: the program ends before.
async fn spawning(times: usize) -> Result<()> {
    let scope = here();
    for n in 0..times {
        black_box(n);
        scope.launch(pending::<()>());
    }
    exit(0)
}

async fn spawn_run_join(times: usize) -> Result<()> {
    let scope = here();
    for n in 0..times {
        assert_eq!(scope.spawn(async move { black_box(n) }).await?, n);
    }
    Ok(())
}

/// As above, polled through a scope: the way a program does it.
async fn spawn_run_join_in_scope(times: usize) -> Result<()> {
    scope(async |s| {
        for n in 0..times {
            assert_eq!(s.spawn(async move { black_box(n) }).await?, n);
        }
        Ok(())
    })
    .await
}

/// The child is ready in the call. In a task of the pool, since it is polled
/// there by a job of its own lane only.
async fn spawn_now_join(times: usize) -> Result<()> {
    on(Pool, async move {
        let scope = here();
        for n in 0..times {
            assert_eq!(scope.spawn_now(async move { black_box(n) }).await?, n);
        }
        Ok::<_, Error>(())
    })
    .await
}

async fn scope_of_100_per_child(times: usize) -> Result<()> {
    for _ in 0..times / 100 {
        scope(async |s| {
            for n in 0..100_usize {
                s.launch(async move { black_box(n) });
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A tree of `nodes` parked tasks, a tenth of them parents of nine each.
async fn grow(s: &Scope, nodes: usize) -> Result<()> {
    let parked = Arc::new(AtomicUsize::new(0));
    for _ in 0..nodes / 10 {
        let parked = parked.clone();
        s.launch(async move {
            parked_children(&here(), 9).await?;
            parked.fetch_add(10, Relaxed);
            park().await?;
            Ok::<_, Error>(())
        });
    }
    while parked.load(Relaxed) < nodes {
        yield_now().await?;
    }
    Ok(())
}

async fn tree_of_nodes(times: usize) -> Result<()> {
    scope(async |s| {
        grow(&s, times).await?;
        exit(0)
    })
    .await
}

/// The call of `cancel` alone: every node is marked and woken, none has run.
async fn cancel_per_node(times: usize) -> Result<()> {
    scope(async |s| {
        grow(&s, times).await?;
        s.cancel("counted");
        exit(0)
    })
    .await
}

/// What follows the call: every node hears of it and ends, and the scope after
/// them.
async fn cancel_to_the_end_per_node(times: usize) -> Result<()> {
    let cancelled = scope(async |s| {
        grow(&s, times).await?;
        s.cancel("counted");
        Ok(())
    });
    cancelled.await?;
    exit(0)
}
