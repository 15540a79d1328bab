//! Scopes that are left open and whose future another job polls; and values of
//! scopes whose destructor opens one. handle-5, tree-5.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kinfolk_core::{Error, ErrorKind, Scope, Success, cleanup, park, scope, sleep, spawn, timeout};
use kinfolk_testkit::Lab;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

type Kept = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
type Shelf = Arc<Mutex<Vec<Kept>>>;

/// handle-5, lane-6: a scope that was told before it is left behind wakes the job
/// that waits for it elsewhere.
pub async fn handle_5_a_scope_left_open_after_it_was_told_wakes_its_poller(lab: Lab) {
    let shelf = Shelf::default();
    let place = shelf.clone();
    let opener = spawn(async move {
        let mut kept: Kept = Box::pin(scope(async |_| {
            // Told, it waits for something that does not come.
            let _told = park().await;
            std::future::pending::<()>().await;
            Ok(())
        }));
        std::future::poll_fn(|cx| {
            assert!(kept.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        place.lock().unwrap().push(kept);
        let _told = park().await;
        // So that the scope is told before this body is over.
        let _ = cleanup(sleep(300 * MS)).await;
    });
    lab.settle().await;
    let waits = spawn(async move {
        let kept = shelf.lock().unwrap().pop().unwrap();
        Ok::<_, Error>(kept.await.map_err(|error| error.kind()))
    });
    sleep(20 * MS).await.unwrap();
    let before = lab.elapsed();
    opener.cancel("it is to stop");
    assert!(opener.outcome().await.unwrap().is_cancelled());
    let how = timeout(SECOND, waits).await.unwrap();
    assert_eq!(how, Err(ErrorKind::Cancelled));
    assert_eq!(lab.elapsed() - before, 300 * MS);
    assert_eq!(lab.take_failures().len(), 1);
}

/// Its destructor opens a scope, polls it once and keeps it.
struct Opens {
    shelf: Shelf,
    went: Arc<Mutex<Vec<bool>>>,
}

impl Success for Opens {}

impl Drop for Opens {
    fn drop(&mut self) {
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut kept: Kept = Box::pin(scope(async |_| {
                park().await?;
                Ok(())
            }));
            let mut cx = Context::from_waker(Waker::noop());
            let pending = kept.as_mut().poll(&mut cx).is_pending();
            self.shelf.lock().unwrap().push(kept);
            pending
        }));
        self.went.lock().unwrap().push(opened.unwrap_or(false));
    }
}

/// Drops a scope whose body is over, after `rest`; its child takes 50 ms.
async fn dropped_after(rest: Option<Duration>) {
    let shelf = Shelf::default();
    let went = Arc::new(Mutex::new(Vec::new()));
    let value = Opens {
        shelf: shelf.clone(),
        went: went.clone(),
    };
    let around = timeout(
        SECOND,
        spawn(async move {
            let mut waiting = Box::pin(Scope::named("waiting").run(async |s| {
                s.launch(sleep(50 * MS));
                Ok(value)
            }));
            std::future::poll_fn(|cx| {
                assert!(waiting.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            if let Some(rest) = rest {
                // Nothing polls it meanwhile.
                sleep(rest).await?;
            }
            drop(waiting);
            Ok::<_, Error>(())
        }),
    );
    around.await.unwrap();
    assert_eq!(
        *went.lock().unwrap(),
        [true],
        "the destructor opens a scope"
    );
    drop(std::mem::take(&mut *shelf.lock().unwrap()));
}

/// handle-5: a scope that is dropped while it waits for its children, and whose
/// value opens a scope as it goes: that one is left open by the job in which the
/// drop happens, and keeps nothing.
pub async fn handle_5_a_value_dropped_in_the_waiting_phase_opens_a_scope(lab: Lab) {
    dropped_after(None).await;
    assert_eq!(lab.take_failures().len(), 1);
}

/// tree-5: the same when the children are over too: the scope takes no more
/// children, and the one that its value opens is a child of the job around it.
pub async fn tree_5_a_value_of_a_scope_that_is_over_opens_a_scope(lab: Lab) {
    dropped_after(Some(100 * MS)).await;
    assert_eq!(lab.take_failures().len(), 1);
}
