//! A future of the user's that `async` code of ours awaits. What `.await` does with it is
//! not enough: the compiler takes the value out of the future, drops the future, and
//! forgets the value if that drop panics.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::base::unwind::Contained;

pin_project! {
    /// Drops a future in the poll that ends it. A panic of its destructor belongs to the
    /// body that awaits, and the value is dropped while that panic unwinds.
    #[must_use = "futures do nothing unless awaited"]
    pub struct DropAtEnd<F> {
        #[pin]
        future: Option<F>,
    }
}

impl<F> DropAtEnd<F> {
    /// To be awaited in the place of `future`.
    pub fn new(future: F) -> DropAtEnd<F> {
        DropAtEnd {
            future: Some(future),
        }
    }

    /// Drops the future where it stands.
    pub fn give_up(self: Pin<&mut Self>) {
        self.project().future.set(None);
    }
}

impl<F: Future> Future for DropAtEnd<F> {
    type Output = F::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let future = this.future.as_mut().as_pin_mut();
        match future.expect("polled after completion").poll(cx) {
            Poll::Ready(output) => {
                let output = Contained::new(output);
                this.future.set(None);
                Poll::Ready(output.into_inner())
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
