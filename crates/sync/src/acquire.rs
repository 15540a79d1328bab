//! [`Acquire`]: the future of every lock and of the semaphore.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use kinfolk_core::WaitKind;

use crate::permits::{Acquiring, NotAcquired, Permits, PermitsTaken};

/// What can be acquired: a lock or a semaphore, by reference or by `Arc`. Not to be
/// implemented elsewhere.
pub trait Acquirable: Sized {
    /// What the wait returns: a guard or a permit, or why there is none.
    type Output;
    #[doc(hidden)]
    const KIND: WaitKind;
    #[doc(hidden)]
    fn permits(&self) -> &Permits;
    /// Anything may call it: so what was taken is shown, by a token that only the wait
    /// for it makes.
    #[doc(hidden)]
    fn finish(self, got: Result<PermitsTaken, NotAcquired>) -> Self::Output;
}

/// Waits for a lock or for permits. Made by `lock`, `read`, `write`, `acquire` and
/// their owned forms.
///
/// # Cancellation
/// A *point*. Told at entry, it has taken nothing and stands in no line. Told while it
/// waits, it leaves the line. If the lock was handed over to it before, it returns the
/// guard, and the next point tells. Dropped, it passes on what was handed over to it.
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<L: Acquirable> {
    /// None once it is over.
    of: Option<L>,
    acquiring: Acquiring,
}

impl<L: Acquirable> Acquire<L> {
    #[track_caller]
    #[inline]
    pub(crate) fn new(of: L, need: usize) -> Acquire<L> {
        Acquire {
            of: Some(of),
            acquiring: Acquiring::new(need),
        }
    }
}

impl<L: Acquirable> Future for Acquire<L> {
    type Output = L::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<L::Output> {
        // SAFETY: nothing is moved out of it but `of`, which is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let of = this
            .of
            .as_ref()
            .expect("a lock's future was polled after completion");
        // SAFETY: pinned, the permits are those of `of`, and the drop abandons it.
        let polled = unsafe { this.acquiring.poll(of.permits(), L::KIND, cx) };
        let Poll::Ready(got) = polled else {
            return Poll::Pending;
        };
        let of = this.of.take();
        let of = of.unwrap_or_else(|| unreachable!("it was there"));
        Poll::Ready(of.finish(got))
    }
}

impl<L: Acquirable> Drop for Acquire<L> {
    #[inline]
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            self.acquiring.abandon(of.permits());
        }
    }
}

impl<L: Acquirable> fmt::Debug for Acquire<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acquire")
    }
}
