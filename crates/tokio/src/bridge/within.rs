//! [`within`]: a future that needs a tokio context, polled by a job of any host.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use kinfolk_core::host::DropAtEnd;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;

/// Polls `future` in the context of a tokio runtime, so that a job of the native runtime
/// can use code that needs tokio: its sockets and timers, `tokio::spawn`, libraries that
/// are built on them.
///
/// The tokio runtime serves the sockets and timers, so it must be running meanwhile: one
/// with worker threads is, a current-thread runtime only while a thread is in its
/// `block_on`. The future is polled, and dropped, by the thread of its job; no tokio task
/// stands in between. Tokio's cooperative budget does not apply to it.
///
/// ```
/// use kinfolk_core::{OrCancel, Result};
/// use tokio::runtime::Handle;
///
/// async fn fetch(tokio: Handle) -> Result<()> {
///     let nap = kinfolk_tokio::within(&tokio, async {
///         tokio::time::sleep(std::time::Duration::from_millis(1)).await;
///     });
///     nap.or_cancel().await?;
///     Ok(())
/// }
/// ```
///
/// When the tokio runtime goes half-way, its sockets return errors, and its timers panic at
/// the next poll: the job fails and says so.
///
/// # Cancellation
/// As the future itself: points in it tell, and a wait of tokio's is *not a point*. Add
/// [`or_cancel`](kinfolk_core::OrCancel::or_cancel) to make it one.
pub fn within<F: Future>(tokio: &Handle, future: F) -> Within<F> {
    Within {
        tokio: tokio.clone(),
        future: DropAtEnd::new(future),
    }
}

pin_project! {
    /// The future of [`within`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Within<F> {
        tokio: Handle,
        #[pin]
        future: DropAtEnd<F>,
    }

    impl<F> PinnedDrop for Within<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Destructors may need the context too.
            let _context = this.tokio.enter();
            this.future.give_up();
        }
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _context = this.tokio.enter();
        this.future.poll(cx)
    }
}

impl<F> fmt::Debug for Within<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Within")
    }
}
