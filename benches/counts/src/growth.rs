//! What must grow in a line: each is done once with so many of something, and
//! `scripts/instructions` compares twice as many with half of them.

use std::error::Error as StdError;
use std::fmt;
use std::hint::black_box;

use kinfolk_core::{
    Error, Job, Result, Scope, Tree, all, checkpoint, cleanup, for_each_concurrent, launch,
    local_scope, park, scope, spawn, yield_now,
};

use crate::operations::Body;

/// One thing that may be much.
pub struct Growth {
    pub name: &'static str,
    /// The smaller of the two sizes: large enough that a square would show.
    pub size: usize,
    pub body: fn(usize, Tree) -> Body,
}

macro_rules! growths {
    ($($name:ident $size:literal),* $(,)?) => {
        /// Every one of them.
        pub const ALL: &[Growth] = &[$(Growth {
            name: stringify!($name),
            size: $size,
            body: |size, tree| Box::pin($name(size, tree)),
        }),*];
    };
}

growths! {
    a_square 1_000,
    all_of_ready 2_000,
    each_of_ready 2_000,
    local_children 2_000,
    cleanup_in_depth 2_000,
    chain_of_failures 2_000,
    retries 500,
    print_of_a_deep_tree 1_000,
}

/// Not a line, and found out: silence means something only if this is heard.
async fn a_square(size: usize, _: Tree) -> Result<()> {
    for n in 0..size * size {
        black_box(n);
    }
    Ok(())
}

/// Branches that are ready together.
async fn all_of_ready(size: usize, _: Tree) -> Result<()> {
    all((0..size).map(|_| async { checkpoint().await })).await?;
    Ok(())
}

/// Bodies that are ready together.
async fn each_of_ready(size: usize, _: Tree) -> Result<()> {
    let body = |_| async {
        checkpoint().await?;
        checkpoint().await
    };
    for_each_concurrent(0..size, size.max(1), body).await
}

/// Children of a local scope that are ready together.
async fn local_children(size: usize, _: Tree) -> Result<()> {
    let made = local_scope(async move |s| {
        for _ in 0..size {
            s.launch(async { checkpoint().await });
        }
        Ok(())
    });
    made.await
}

/// A chain of tasks, each below the one before, that wait until they are told and then
/// run `at_end`.
fn chain(left: usize, at_end: fn() -> Body) -> Body {
    Box::pin(async move {
        if left > 0 {
            launch(chain(left - 1, at_end));
        }
        let told = park().await;
        at_end().await?;
        told?;
        Ok(())
    })
}

/// A chain of so many, all of which wait.
async fn waiting(size: usize, at_end: fn() -> Body) -> Result<Job> {
    let job = launch(chain(size, at_end));
    // One more begins in each round.
    for _ in 0..=size {
        yield_now().await?;
    }
    Ok(job)
}

/// All jobs of a deep chain clean up.
async fn cleanup_in_depth(size: usize, _: Tree) -> Result<()> {
    let job = waiting(size, || Box::pin(cleanup(async {}))).await?;
    job.cancel("enough");
    let _ = job.join().await?;
    Ok(())
}

/// An error with another one as its source.
#[derive(Debug)]
struct Wrapped(Option<Error>);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl StdError for Wrapped {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.as_ref().map(|inner| inner as _)
    }
}

/// A failure that climbs, and gains a context at each step.
async fn chain_of_failures(size: usize, _: Tree) -> Result<()> {
    fn link(left: usize) -> Body {
        Box::pin(async move {
            let inner = match left {
                0 => None,
                _ => spawn(link(left - 1)).await.err(),
            };
            Err(Error::from_boxed(Box::new(Wrapped(inner))))
        })
    }
    let failed = Scope::build()
        .supervisor()
        .run(async |s| s.spawn(link(size)).outcome().await.map_err(Error::from));
    assert!(failed.await?.is_failed());
    Ok(())
}

/// A loop that tries so many times, two tasks each time: one fails, and the other as
/// it is told. The errors of both have the last attempt's as their source.
async fn retries(size: usize, _: Tree) -> Result<()> {
    let mut inner = None::<Error>;
    for _ in 0..size {
        let (one, other) = (Wrapped(inner.clone()), Wrapped(inner.take()));
        let tried = scope(async |s: Scope| {
            // Polled at once: one that has not begun would never begin.
            let waits = s.spawn_now(async move {
                let _told = park().await;
                Err::<(), _>(one)
            });
            drop(waits.into_job());
            s.launch(async move { Err::<(), _>(other) });
            Ok(())
        });
        inner = tried.await.err();
    }
    Ok(())
}

/// A deep tree, printed.
async fn print_of_a_deep_tree(size: usize, tree: Tree) -> Result<()> {
    let job = waiting(size, || Box::pin(async { Ok(()) })).await?;
    let text = tree.snapshot().to_string();
    assert!(text.lines().count() > size);
    job.cancel("enough");
    let _ = job.join().await?;
    Ok(())
}
