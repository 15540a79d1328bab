//! Futures that count their polls and drops.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

/// The counts of a [`Counted`] future.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<(AtomicUsize, AtomicUsize)>);

impl Tally {
    /// A tally without counts.
    pub fn new() -> Tally {
        Tally::default()
    }

    /// How often the future was polled.
    pub fn polls(&self) -> usize {
        self.0.0.load(SeqCst)
    }

    /// How many values were dropped.
    pub fn drops(&self) -> usize {
        self.0.1.load(SeqCst)
    }

    /// Wraps a future so that its polls and its drop count here.
    pub fn count<F>(&self, inner: F) -> Counted<F> {
        Counted {
            inner: Box::pin(inner),
            tally: DropTally(self.clone()),
        }
    }

    /// A value whose drop counts here.
    pub fn guard(&self) -> DropTally {
        DropTally(self.clone())
    }
}

/// Counts its drop.
#[derive(Debug)]
pub struct DropTally(Tally);

impl Drop for DropTally {
    fn drop(&mut self) {
        self.0.0.1.fetch_add(1, SeqCst);
    }
}

/// A future that counts its polls and its drop.
#[derive(Debug)]
pub struct Counted<F> {
    // Dropped before the tally counts the drop.
    inner: Pin<Box<F>>,
    tally: DropTally,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.tally.0.0.0.fetch_add(1, SeqCst);
        self.inner.as_mut().poll(cx)
    }
}
