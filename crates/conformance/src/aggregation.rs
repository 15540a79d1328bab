//! Several failures as one error: which is in front, and what goes along.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{Cancelled, Error, ErrorKind, OrFail, ReasonKind, cleanup, park, scope, sleep};

use kinfolk_testkit::{Gate, Lab, Log};

const MS: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Oops(&'static str);

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Oops {}

fn fail(word: &'static str) -> Result<(), Error> {
    Err(Oops(word)).or_fail()
}

fn oops(error: &Error) -> &'static str {
    error.downcast_ref::<Oops>().expect("an Oops").0
}

/// The error in front and those that go along, in order.
fn all(error: &Error) -> Vec<&'static str> {
    std::iter::once(error)
        .chain(error.suppressed())
        .map(oops)
        .collect()
}

/// Fails after it was told, when it has cleaned up.
async fn fails_late(word: &'static str) -> Result<(), Error> {
    let told = park().await;
    assert!(told.is_err());
    cleanup(sleep(10 * MS)).await?;
    fail(word)
}

/// Of two children that fail both errors can be reached.
pub async fn case_i01_two_failing_children_are_both_there(_lab: Lab) {
    let error = scope(async |s| {
        s.launch(fails_late("second"));
        s.launch(async {
            sleep(MS).await?;
            fail("first")
        });
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(all(&error), ["first", "second"]);
    assert_eq!(error.suppressed_count(), 1);
    assert_eq!(error.to_string(), "first (and 1 more)");
}

/// Of a body and a child that fail both errors are there, the first in time in
/// front.
pub async fn case_i02_body_and_child_are_both_there(_lab: Lab) {
    let error = scope(async |s| {
        s.launch(async {
            sleep(10 * MS).await?;
            fail("child")
        });
        let told = park().await;
        assert!(told.is_err());
        fail("body")
    })
    .await
    .unwrap_err();
    assert_eq!(all(&error), ["child", "body"]);
}

/// Three children that fail in an order are listed in that order.
/// Also: outcome-2.
pub async fn case_i03_failures_are_listed_in_the_order_of_time(lab: Lab) {
    let error = scope(async |s| {
        let gates = [Gate::new(), Gate::new(), Gate::new()];
        // Spawned in another order than that in which they fail.
        for (n, word) in [(2, "C"), (0, "A"), (1, "B")] {
            let gate = gates[n].clone();
            s.launch(async move {
                gate.wait().await;
                fail(word)
            });
        }
        for gate in &gates {
            lab.settle().await;
            gate.open();
        }
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(all(&error), ["A", "B", "C"]);
}

/// No Cancelled is ever listed, however deep the tree is.
pub async fn case_i05_no_cancellation_is_listed(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let error = scope(async |s| {
        s.launch(async { park().await.map(|_| ()) });
        s.launch(async { cleanup(async { Ok::<_, Error>(()) }).await });
        s.launch(async {
            scope(async |s| {
                s.launch(async { park().await.map(|_| ()) });
                s.launch(async { sleep(1000 * MS).await.map_err(std::io::Error::other) });
                park().await?;
                Ok(())
            })
            .await
        });
        s.launch(async move {
            scope(async move |s| {
                s.launch(async { park().await.map(|_| ()) });
                s.launch(fails_late("inner"));
                s.launch(async move {
                    held.wait().await;
                    fail("first")
                });
                park().await?;
                Ok(())
            })
            .await
        });
        lab.settle().await;
        gate.open();
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    fn check(error: &Error) {
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.downcast_ref::<Cancelled>().is_none());
        error.suppressed().iter().for_each(check);
    }
    check(&error);
    assert_eq!(all(&error), ["first", "inner"]);
}

/// One failure is exposed directly, and goes through `?` as it is.
/// Also: outcome-7.
pub async fn case_i06_one_failure_is_no_group(_lab: Lab) {
    async fn outer() -> Result<(), Error> {
        scope(async |s| {
            s.launch(async { park().await.map(|_| ()) });
            s.spawn(async {
                sleep(MS).await?;
                fail("alone")
            })
            .await?;
            Ok(())
        })
        .await?;
        Ok(())
    }
    let error = outer().await.unwrap_err();
    assert_eq!(oops(&error), "alone");
    assert!(error.suppressed().is_empty());
    assert_eq!(error.suppressed_count(), 0);
    assert_eq!(error.to_string(), "alone");
}

/// A cancel hook sees which child failed first; the end sees the later ones
/// too.
pub async fn case_i08_the_hook_sees_the_first_the_end_sees_all(lab: Lab) {
    let log = Log::new();
    let seen = Arc::new(Mutex::new(None));
    let (words, kept) = (log.clone(), seen.clone());
    let error = scope(async |s| {
        s.on_cancel(move |reason| {
            words.say("hook");
            *kept.lock().unwrap() = Some(reason.clone());
        })
        .keep();
        let first = s.task("a").launch(async {
            sleep(10 * MS).await?;
            fail("A")
        });
        s.task("b").launch(fails_late("B"));
        lab.settle().await;
        assert!(log.is_empty());
        let _told = park().await;
        let seen = seen.lock().unwrap();
        let reason = seen.as_ref().unwrap();
        assert_eq!(reason.kind(), ReasonKind::ChildFailed);
        assert_eq!(reason.culprit(), Some((first.id(), "a")));
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(all(&error), ["A", "B"]);
    assert_eq!(log.text(), "hook");
}

/// A failing body, then a child that fails while it cleans up: both are there.
pub async fn case_i10_a_failing_clean_up_goes_along(lab: Lab) {
    let error = scope(async |s| {
        s.launch(fails_late("child"));
        lab.settle().await;
        fail("host")
    })
    .await
    .unwrap_err();
    assert_eq!(all(&error), ["host", "child"]);
    assert!(error.during().is_none());
    let during = error.suppressed()[0].during().unwrap();
    assert_eq!(during.root_cause().kind(), ReasonKind::BodyFailed);
}

/// A failure that reaches the root is given to the failure hook once, though
/// two joiners see it too.
/// Also: outcome-3.
pub async fn case_i13_a_failure_at_the_root_is_reported_once(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let job = lab.root().launch(async move {
        held.wait().await;
        fail("alone")
    });
    let joiners = [job.clone(), job.clone()].map(|job| {
        kinfolk_core::spawn(async move {
            let outcome = job.join().await?;
            Ok::<_, Error>(outcome.error().map(oops))
        })
    });
    lab.settle().await;
    gate.open();
    for joiner in joiners {
        assert_eq!(joiner.await.unwrap(), Some("alone"));
    }
    let reported = lab.take_failures();
    assert_eq!(reported.iter().map(oops).collect::<Vec<_>>(), ["alone"]);
}
