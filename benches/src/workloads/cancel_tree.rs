//! A tree of waiting tasks is cancelled at its root. Building it is not timed.
//! Two numbers: how long the `cancel` call takes, and how long until the last
//! task has ended. The peer is tokio with a `CancellationToken` and a
//! `JoinSet` for each node, the only way there in which a parent ends after its
//! children.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use smol::Executor;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::contestant::{Bar, Bench, Contestant, Group, Target, Unit, native};
use crate::measure::per;
use crate::ways::{self, Way};

const FANOUT: u32 = 10;

/// How many nodes a tree of this depth has.
fn nodes(depth: u32) -> u64 {
    (0..=depth).map(|level| u64::from(FANOUT.pow(level))).sum()
}

/// A tree's depth, and how often it is built and cancelled in a round.
#[derive(Clone, Copy)]
struct Size {
    depth: u32,
    times: u64,
}

const SMALL: Size = Size {
    depth: 3,
    times: 20,
};
const LARGE: Size = Size { depth: 5, times: 1 };
const HUGE: Size = Size { depth: 6, times: 1 };

/// A round of the largest tree takes seconds.
const HUGE_ROUNDS: usize = 5;

const TOKEN: &str = "tokio token + JoinSet";

const fn bench(name: &'static str, what: &'static str, targets: &'static [Target]) -> Bench {
    Bench {
        name,
        what,
        per: "node",
        unit: Unit::Nanoseconds,
        targets,
    }
}

const SMALL_ONE: [Bench; 2] = [
    bench(
        "cancel 1k call st",
        "The `cancel` call on a tree of 1,111. One thread.",
        &[],
    ),
    bench(
        "cancel 1k all st",
        "From the `cancel` call on a tree of 1,111 to the last end. One thread.",
        &[native(Bar::Of(TOKEN, 0.2))],
    ),
];

const LARGE_ONE: [Bench; 2] = [
    bench(
        "cancel 111k call st",
        "The `cancel` call on a tree of 111,111. One thread.",
        &[native(Bar::AtMost(40.0))],
    ),
    bench(
        "cancel 111k all st",
        "From the `cancel` call on a tree of 111,111 to the last end. One thread.",
        &[native(Bar::Of(TOKEN, 0.2))],
    ),
];

const SMALL_TWO: [Bench; 2] = [
    bench(
        "cancel 1k call mt",
        "The `cancel` call on a tree of 1,111. Two workers.",
        &[],
    ),
    bench(
        "cancel 1k all mt",
        "From the `cancel` call on a tree of 1,111 to the last end. Two workers.",
        &[native(Bar::Of(TOKEN, 0.2))],
    ),
];

const LARGE_TWO: [Bench; 2] = [
    bench(
        "cancel 111k call mt",
        "The `cancel` call on a tree of 111,111. Two workers.",
        &[native(Bar::AtMost(110.0))],
    ),
    bench(
        "cancel 111k all mt",
        "From the `cancel` call on a tree of 111,111 to the last end. Two workers.",
        &[native(Bar::Of(TOKEN, 0.2))],
    ),
];

const HUGE_ONE: [Bench; 2] = [
    bench(
        "cancel 1M call st",
        "The `cancel` call on a tree of 1,111,111. One thread.",
        &[],
    ),
    bench(
        "cancel 1M all st",
        "From the `cancel` call on a tree of 1,111,111 to the last end. One thread.",
        &[native(Bar::Of(TOKEN, 0.2))],
    ),
];

const HUGE_TWO: [Bench; 2] = [
    bench(
        "cancel 1M call mt",
        "The `cancel` call on a tree of 1,111,111. Two workers.",
        &[],
    ),
    bench(
        "cancel 1M all mt",
        "From the `cancel` call on a tree of 1,111,111 to the last end. Two workers.",
        &[native(Bar::Of(TOKEN, 0.2))],
    ),
];

pub fn groups() -> Vec<Group> {
    vec![
        one_thread(SMALL, SMALL_ONE, usize::MAX),
        one_thread(LARGE, LARGE_ONE, usize::MAX),
        one_thread(HUGE, HUGE_ONE, HUGE_ROUNDS),
        two_workers(SMALL, SMALL_TWO, usize::MAX),
        two_workers(LARGE, LARGE_TWO, usize::MAX),
        two_workers(HUGE, HUGE_TWO, HUGE_ROUNDS),
    ]
}

/// How many nodes of the tree being built wait. One tree is built at a time.
static WAITING: AtomicU64 = AtomicU64::new(0);

fn is_built(size: Size) -> bool {
    WAITING.load(Ordering::Acquire) == nodes(size.depth)
}

fn one_more_waits() {
    WAITING.fetch_add(1, Ordering::AcqRel);
}

/// Builds trees and cancels them. `pause` lets the tasks run until all wait;
/// `end` waits for the root's end.
async fn trees<R, P: Future, E: Future>(
    size: Size,
    build: impl Fn() -> R,
    pause: impl Fn() -> P,
    cancel: impl Fn(&R),
    end: impl Fn(R) -> E,
) -> Vec<f64> {
    let (mut call, mut all) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..size.times {
        WAITING.store(0, Ordering::Release);
        let root = build();
        while !is_built(size) {
            pause().await;
        }
        // The last one to count itself now waits, too.
        pause().await;
        let start = Instant::now();
        cancel(&root);
        call += start.elapsed();
        end(root).await;
        all += start.elapsed();
    }
    let count = nodes(size.depth) * size.times;
    vec![per(call, count), per(all, count)]
}

#[expect(
    clippy::manual_async_fn,
    reason = "a future that spawns its like must say that it is Send"
)]
fn kinfolk_node(depth: u32) -> impl Future<Output = kinfolk_core::Result<()>> + Send + 'static {
    async move {
        if depth > 0 {
            for _ in 0..FANOUT {
                kinfolk_core::launch(kinfolk_node(depth - 1));
            }
        }
        one_more_waits();
        kinfolk_core::park().await?;
        Ok(())
    }
}

async fn kinfolk(size: Size) -> kinfolk_core::Result<Vec<f64>> {
    kinfolk_core::scope(async |scope| {
        let numbers = trees(
            size,
            || scope.spawn(kinfolk_node(size.depth)),
            kinfolk_core::yield_now,
            |root| assert!(root.cancel("benched")),
            async |root| drop(root.outcome().await),
        );
        Ok(numbers.await)
    })
    .await
}

#[expect(
    clippy::manual_async_fn,
    reason = "a future that spawns its like must say that it is Send"
)]
fn tokio_node(depth: u32, token: CancellationToken) -> impl Future<Output = ()> + Send + 'static {
    async move {
        let mut children = JoinSet::new();
        if depth > 0 {
            for _ in 0..FANOUT {
                children.spawn(tokio_node(depth - 1, token.child_token()));
            }
        }
        one_more_waits();
        token.cancelled().await;
        while let Some(end) = children.join_next().await {
            end.expect("the child succeeds");
        }
    }
}

async fn tokio(size: Size) -> Vec<f64> {
    trees(
        size,
        || {
            let token = CancellationToken::new();
            let root = tokio::spawn(tokio_node(size.depth, token.clone()));
            (token, root)
        },
        tokio::task::yield_now,
        |(token, _)| token.cancel(),
        async |(_, root)| root.await.expect("the root succeeds"),
    )
    .await
}

/// Dropping a parent drops its children: nobody waits for anybody, and nothing
/// can be cleaned up. Shown for comparison.
#[expect(
    clippy::manual_async_fn,
    reason = "a future that spawns its like must say that it is Send"
)]
fn smol_node(
    executor: Arc<Executor<'static>>,
    depth: u32,
) -> impl Future<Output = ()> + Send + 'static {
    async move {
        let mut children = Vec::new();
        if depth > 0 {
            for _ in 0..FANOUT {
                children.push(executor.spawn(smol_node(executor.clone(), depth - 1)));
            }
        }
        one_more_waits();
        let _one_less = OneLessWaits;
        std::future::pending::<()>().await;
        drop(children);
    }
}

struct OneLessWaits;

impl Drop for OneLessWaits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn smol(executor: Arc<Executor<'static>>, size: Size) -> Vec<f64> {
    trees(
        size,
        || executor.spawn(smol_node(executor.clone(), size.depth)),
        smol::future::yield_now,
        |_| {},
        async |root| {
            drop(root);
            while WAITING.load(Ordering::Acquire) > 0 {
                smol::future::yield_now().await;
            }
        },
    )
    .await
}

/// A tree of nodes, one allocation each as a task would be: marked from the root down, then freed from the leaves up.
struct Node {
    cancelled: bool,
    #[expect(clippy::vec_box, reason = "one allocation for each node is the point")]
    children: Vec<Box<Node>>,
}

impl Node {
    fn build(depth: u32) -> Box<Node> {
        let fanout = if depth > 0 { FANOUT } else { 0 };
        Box::new(Node {
            cancelled: false,
            children: (0..fanout).map(|_| Node::build(depth - 1)).collect(),
        })
    }

    fn cancel(&mut self) {
        self.cancelled = true;
        for child in &mut self.children {
            child.cancel();
        }
    }
}

fn floor(size: Size) -> Vec<f64> {
    let (mut call, mut all) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..size.times {
        let mut root = Node::build(size.depth);
        let start = Instant::now();
        root.cancel();
        call += start.elapsed();
        std::hint::black_box(root.cancelled);
        drop(root);
        all += start.elapsed();
    }
    let count = nodes(size.depth) * size.times;
    vec![per(call, count), per(all, count)]
}

fn one_thread(size: Size, benches: [Bench; 2], most_rounds: usize) -> Group {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        contestants.push(Contestant::ours(way.name(), move || way.run(kinfolk(size))));
    }
    contestants.extend([
        Contestant::peer(TOKEN, move || ways::tokio_one(tokio(size))),
        Contestant::floor(move || floor(size)),
    ]);
    Group {
        benches: benches.to_vec(),
        contestants,
        most_rounds,
    }
}

fn two_workers(size: Size, benches: [Bench; 2], most_rounds: usize) -> Group {
    let mut contestants = Vec::new();
    for &way in Way::TWO {
        contestants.push(Contestant::ours(way.name(), move || way.run(kinfolk(size))));
    }
    contestants.extend([
        Contestant::peer(TOKEN, move || ways::tokio_two(tokio(size))),
        Contestant::variant("smol, dropped", move || {
            ways::smol_two(move |executor| smol(executor, size))
        }),
    ]);
    Group {
        benches: benches.to_vec(),
        contestants,
        most_rounds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_sizes_that_their_names_say() {
        assert_eq!(nodes(SMALL.depth), 1_111);
        assert_eq!(nodes(LARGE.depth), 111_111);
        assert_eq!(nodes(HUGE.depth), 1_111_111);
    }
}
