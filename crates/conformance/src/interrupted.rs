//! What the cases of interrupts share.

use std::task::Poll;

use kinfolk_core::{Cancelled, Error, ErrorKind, Job, ReasonKind, current_job, park};

/// A body that waits in a point.
pub(crate) async fn parked() -> Result<(), Error> {
    park().await?;
    Ok(())
}

pub(crate) fn me() -> Job {
    current_job().expect("inside a job")
}

/// The words of an interrupt; panics if it is none.
#[track_caller]
pub(crate) fn words(told: &Cancelled) -> &str {
    assert_eq!(told.reason().kind(), ReasonKind::Interrupted, "{told:?}");
    told.reason().text().unwrap_or_default()
}

/// The same of what a body got.
#[track_caller]
pub(crate) fn words_of(error: &Error) -> &str {
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error:?}");
    let reason = error.reason().expect("a reason");
    assert_eq!(reason.kind(), ReasonKind::Interrupted, "{error:?}");
    reason.text().unwrap_or_default()
}

/// Pending once, and woken: a foreign await that ends at once.
pub(crate) async fn one_turn() {
    let mut first = true;
    std::future::poll_fn(|cx| {
        if std::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}
