//! Interrupts that have far to go.

use std::pin::Pin;

use kinfolk_core::{Outcome, ReasonKind, Result, park, spawn};
use kinfolk_testkit::{Lab, Log};

use crate::interrupted::words;

/// More awaits than a request goes through unasked.
const FAR: u32 = 1_100;

/// Awaits one that awaits one and so on; the last waits in a point.
fn chain(left: u32, heard: Log) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
    Box::pin(async move {
        if left > 0 {
            return spawn(chain(left - 1, heard)).await;
        }
        let Err(told) = park().await;
        heard.say(words(&told));
        Err(told.into())
    })
}

/// request-2: however many awaits pass it on, an interrupt reaches the leaf, and
/// comes back through all of them.
pub async fn request_2_an_interrupt_goes_through_any_number_of_awaits(lab: Lab) {
    let heard = Log::new();
    let top = spawn(chain(FAR, heard.clone()));
    lab.settle().await;
    assert!(top.interrupt("stop"));
    let Outcome::Cancelled { reason, .. } = top.outcome().await.unwrap() else {
        panic!("it did not come back");
    };
    assert_eq!(reason.kind(), ReasonKind::Interrupted);
    assert_eq!(heard.text(), "stop");
}
