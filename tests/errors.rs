//! Errors at their limits: long chains, sources without an end, and what is returned
//! when several things go wrong.

use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, ReasonKind, Result, Scope, any, blocking, checkpoint, cleanup, launch, park,
    race, scope, sleep, spawn, timeout,
};
use kinfolk_testkit::{Sim, guarded};

const MS: Duration = Duration::from_millis(1);

/// An error with words before it.
#[derive(Debug)]
struct Trying(usize, Error);

impl fmt::Display for Trying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}: {}", self.0, self.1)
    }
}

impl StdError for Trying {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.1)
    }
}

#[derive(Debug)]
struct First;

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the first")
    }
}

impl StdError for First {}

/// A loop that tries again and again and wraps the last error.
fn tried(times: usize) -> Error {
    let first = Error::from_boxed(Box::new(First));
    (0..times).fold(first, |error, n| {
        Error::from_boxed(Box::new(Trying(n, error)))
    })
}

#[test]
fn outcome_7_a_long_chain_of_contexts_is_dropped_by_a_loop() {
    guarded("a long chain", |_| {
        let error = tried(300_000);
        assert!(error.downcast_ref::<First>().is_some());
        let clone = error.clone();
        drop(error);
        drop(clone);
        // Several chains at once, one beside the other.
        let all: Vec<_> = (0..20).map(|_| tried(30_000)).collect();
        drop(all);
        // What is dropped in a task is dropped on its thread.
        let mut sim = Sim::seeded(1);
        let got = sim.run(async { Err::<(), _>(tried(100_000)) });
        assert_eq!(got.unwrap_err().kind(), ErrorKind::Failed);
        sim.finish();
    });
}

#[test]
fn outcome_7_a_long_chain_is_printed_as_far_as_it_goes() {
    guarded("a long chain, printed", |_| {
        let error = tried(20);
        let words = error.to_string();
        assert!(words.starts_with("attempt 19: attempt 18:"), "{words}");
        assert!(words.ends_with("attempt 0: the first"), "{words}");
        let error = tried(100_000);
        let words = error.to_string();
        assert!(words.starts_with("attempt 99999: attempt 99998:"));
        assert!(words.ends_with(": …"), "{}", words.len());
        assert!(format!("{error:?}").contains('…'));
        // Its depth is as it was.
        assert_eq!(tried(1).to_string(), "attempt 0: the first");
    });
}

/// An error that is its own source.
#[derive(Debug)]
struct Ouroboros;

impl fmt::Display for Ouroboros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("round and round")
    }
}

impl StdError for Ouroboros {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self)
    }
}

/// One that leads into a circle of three, after a while.
#[derive(Debug)]
struct Link(&'static str, std::sync::OnceLock<&'static Link>);

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Link {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(*self.1.get()?)
    }
}

#[test]
fn outcome_8_a_source_without_an_end_is_given_up() {
    guarded("a source that returns itself", |_| {
        let link = |name| &*Box::leak(Box::new(Link(name, Default::default())));
        let row = ["a", "b", "c", "d", "e"].map(link);
        for n in 0..4 {
            row[n].1.set(row[n + 1]).unwrap();
        }
        // From the last back to the third.
        row[4].1.set(row[2]).unwrap();
        let round = Error::from_boxed(Box::new(Ouroboros));
        let circle = Error::from_boxed(Box::new(Link("before", row[0].into())));
        for error in [&round, &circle] {
            assert_eq!(error.kind(), ErrorKind::Failed);
            assert!(error.downcast_ref::<First>().is_none());
        }
        assert!(round.downcast_ref::<Ouroboros>().is_some());
        assert_eq!(circle.to_string(), "before");
        // The body of a task and of a scope returns it.
        let mut sim = Sim::seeded(1);
        let got = sim.run(async {
            let inner = scope(async |_| {
                launch(async { Err::<(), _>(Ouroboros) });
                park().await?;
                Ok(())
            });
            inner.await
        });
        let error = got.unwrap_err();
        assert_eq!(error.to_string(), "round and round");
        sim.finish();
    });
}

/// An error of the program's that two jobs fail with is two failures.
#[test]
fn outcome_2_an_error_that_two_jobs_share_is_listed_for_each() {
    let mut sim = Sim::seeded(1);
    let got: Result<()> = sim.run(scope(async |s| {
        let shared = Arc::new(First);
        for _ in 0..2 {
            let shared = shared.clone();
            s.launch(async move {
                let _ = park().await;
                Err::<(), _>(shared)
            });
        }
        sleep(MS).await?;
        s.cancel("enough");
        Ok(())
    }));
    let error = got.unwrap_err();
    assert_eq!(error.to_string(), "the first (and 1 more)");
    assert_eq!(error.suppressed().len(), 1);
    assert!(!error.same(&error.suppressed()[0]));
    sim.finish();
}

/// outcome-5: what the future of a timeout returns wins over the deadline; a scope
/// with a deadline of its own keeps TimedOut.
#[test]
fn outcome_5_a_child_that_fails_in_its_clean_up_after_a_deadline() {
    async fn fails_late() -> Result<()> {
        let _ = park().await;
        cleanup(sleep(5 * MS)).await?;
        Err(Error::msg("late"))
    }
    let mut sim = Sim::seeded(1);
    let around = sim.run(timeout(
        10 * MS,
        scope(async |s| {
            s.launch(fails_late());
            park().await?;
            Ok(())
        }),
    ));
    let error = around.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed, "{error:?}");
    assert_eq!(error.to_string(), "late");
    let during = error.during().expect("the deadline had passed");
    assert_eq!(during.root_cause().kind(), ReasonKind::Deadline);

    let own = sim.run(Scope::named("own").timeout(10 * MS).run(async |s| {
        s.launch(fails_late());
        park().await?;
        Ok(())
    }));
    let error = own.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
    assert_eq!(error.suppressed().len(), 1);
    assert_eq!(error.suppressed()[0].to_string(), "late");
    sim.finish();
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("a bomb"))
    }
}

/// handle-7: what `late` has captured goes with the call, and harms no other job.
#[test]
fn handle_7_what_late_has_captured_may_panic_when_it_is_dropped() {
    let mut sim = Sim::seeded(1);
    for anyhow in [false, true] {
        let bomb = Bomb;
        let late = move |_| {
            let _keeps = &bomb;
        };
        let got = sim.run(async move {
            match anyhow {
                false => race([async { 1 }]).late(late).await,
                true => any([async { 1 }]).late(late).await,
            }
        });
        assert_eq!(got.unwrap(), 1);
        // Never polled, and dropped.
        let bomb = Bomb;
        drop(race([async { 1 }]).late(move |_| {
            let _keeps = &bomb;
        }));
    }
    sim.finish();
}

/// cancel-9: points go on. What needs a runtime is an error that names the call, its
/// place and what to do: returned where the result has room for it, else a panic.
#[test]
fn cancel_9_what_needs_a_runtime_says_so_outside_every_job() {
    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }
    fn returned<T: fmt::Debug>(future: impl Future<Output = Result<T>>) -> String {
        match poll(future) {
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Failed => error.to_string(),
            other => panic!("{other:?}"),
        }
    }
    fn panicked(f: impl FnOnce()) -> String {
        let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it did not panic");
        *payload.downcast::<String>().expect("words")
    }
    let words = thread::spawn(|| {
        assert!(matches!(poll(checkpoint()), Poll::Ready(Ok(()))));
        [
            ("sleep", panicked(|| drop(poll(sleep(MS))))),
            ("spawn", panicked(|| drop(spawn(async {})))),
            ("a timeout", returned(timeout(MS, async {}))),
            ("a scope", returned(scope(async |_| Ok(())))),
            ("a blocking call", returned(blocking(|_| ()))),
        ]
    });
    for (call, words) in words.join().unwrap() {
        assert!(words.starts_with(&format!("{call} at ")), "{words}");
        assert!(words.contains("errors.rs:"), "{words}");
        assert!(words.contains("outside any Kinfolk job"), "{words}");
        assert!(words.contains("inside a runtime"), "{words}");
    }
}
