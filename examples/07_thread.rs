//! A thread that can be asked to stop, made awaitable.
//!
//! Told, the wait asks the thread to stop and waits until it has: it is never
//! left behind. What the thread has found by then is not lost, it is returned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kinfolk::kit::{Abort, Completer, completion};
use kinfolk::{Result, checkpoint, timeout};

/// Work in small pieces: it looks for primes.
#[derive(Default)]
struct Search {
    at: u64,
    found: Vec<u64>,
}

impl Search {
    /// Looks at one number.
    fn step(&mut self) {
        self.at += 1;
        let at = self.at;
        if at > 1
            && (2..)
                .take_while(|n| n * n <= at)
                .all(|n| !at.is_multiple_of(n))
        {
            self.found.push(at);
        }
    }
}

/// What the thread gets: what to do, when to stop, and where to put it.
struct Order {
    limit: u64,
    stop: Arc<AtomicBool>,
    done: Completer<Vec<u64>>,
}

/// The primes up to `limit`, found by the worker that `start` gives the order to. A
/// *point*: told, it returns the primes that were found until then.
async fn primes(limit: u64, start: impl FnOnce(Order)) -> Result<Vec<u64>> {
    checkpoint().await?; // told already: it never begins
    let (wait, done) = completion();
    let stop = Arc::new(AtomicBool::new(false));
    let ask = stop.clone();
    start(Order { limit, stop, done });
    wait.abort_with(move || {
        ask.store(true, Ordering::Release);
        Abort::NotNow // it looks between two pieces: wait for it
    })
    .await
}

/// Runs on a thread of its own. Should it panic, the completer is dropped, and
/// the waiter gets an error.
fn on_thread(order: Order) {
    std::thread::spawn(move || {
        let mut search = Search::default();
        while search.at < order.limit && !order.stop.load(Ordering::Acquire) {
            search.step();
        }
        order.done.complete(search.found);
    });
}

#[kinfolk::main]
async fn main() -> Result<()> {
    println!("up to 30: {:?}", primes(30, on_thread).await?);
    // There is no end to it: the deadline ends it, with what there is.
    let some = timeout(Duration::from_millis(20), primes(u64::MAX, on_thread)).await?;
    println!("in 20 ms: more than 100 of them: {}", some.len() > 100);
    Ok(())
}

/// Stopped at each of its points in turn, it never leaves its worker running. A task plays
/// the thread.
#[test]
fn a_search_can_be_stopped_anywhere() {
    use kinfolk::{Error, Scope, sleep};
    use std::sync::atomic::AtomicUsize;

    async fn small(working: Arc<AtomicUsize>) -> Result<()> {
        let run = Scope::build().run(async move |s| {
            let family = s.clone();
            let found = primes(10, move |order| {
                working.fetch_add(1, Ordering::SeqCst);
                // A service: no cancel reaches it, as none reaches a thread.
                let thread = family.spawn_service(async move {
                    let mut search = Search::default();
                    while search.at < order.limit && !order.stop.load(Ordering::Acquire) {
                        search.step();
                        sleep(Duration::from_millis(1)).await?;
                    }
                    working.fetch_sub(1, Ordering::SeqCst);
                    order.done.complete(search.found);
                    Ok::<_, Error>(())
                });
                drop(thread.into_job());
            });
            let found = found.await?;
            assert!([2, 3, 5, 7].starts_with(&found));
            checkpoint().await?;
            assert_eq!(found.len(), 4, "left alone it finds them all");
            Ok(())
        });
        run.await
    }

    let working = Arc::new(AtomicUsize::new(0));
    let seen = working.clone();
    let went = kinfolk::testkit::cancel_everywhere_then(
        move || small(working.clone()),
        move || assert_eq!(seen.load(Ordering::SeqCst), 0, "one is still working"),
    );
    assert_eq!(went.forced, 0, "every wait hears it");
}
