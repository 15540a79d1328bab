//! The kit where a case of the suite cannot go: shutdown, and a cancel at every
//! point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::kit::{Abort, completion};
use kinfolk_core::{Error, Ready, Scope, WaitKind, checkpoint, park, scope, sleep};
use kinfolk_testkit::{Log, Sim, cancel_everywhere, cancel_everywhere_then};

const MS: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_secs(5);

#[test]
fn cancel_5_shutdown_drops_what_cannot_be_stopped() {
    for seed in 0..20 {
        let log = Log::new();
        let (asked, undelivered) = (log.clone(), log.clone());
        let mut sim = Sim::builder(seed).on_forced(|_| {}).build();
        let (wait, completer) = completion::<u32>();
        let wait = wait
            .on_undelivered(move |value| undelivered.say(value.to_string()))
            .abort_with(move || {
                asked.say("asked");
                Abort::NotNow
            });
        sim.root().task("stays").launch(wait);
        sim.settle();
        let report = sim.shutdown(GRACE);
        let stays = report.dropped.iter().find(|node| node.name == "stays");
        let waits_on = stays.unwrap().waits_on.unwrap();
        assert_eq!(waits_on.0, WaitKind::Completion, "seed {seed}");
        // The runtime is gone; the other side does not know, and need not.
        assert!(!completer.complete(7));
        assert_eq!(log.text(), "asked 7", "seed {seed}");
    }
}

#[test]
fn cancel_5_shutdown_tells_a_completion() {
    for seed in 0..20 {
        let mut sim = Sim::seeded(seed);
        let (wait, completer) = completion::<u32>();
        sim.root().launch(wait);
        sim.settle();
        let report = sim.shutdown(GRACE);
        assert!(report.took < GRACE && report.dropped.is_empty());
        assert!(!completer.complete(7));
    }
}

#[test]
fn cancel_5_a_completion_is_stopped_at_every_point() {
    let (brought, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (all, over) = (brought.clone(), gone.clone());
    let went = cancel_everywhere_then(
        move || {
            let (brought, gone) = (brought.clone(), gone.clone());
            scope(async move |s| {
                for n in 0..3 {
                    checkpoint().await?;
                    let (wait, completer) = completion();
                    let (undelivered, brings) = (gone.clone(), brought.clone());
                    let wait = wait.on_undelivered(move |_| {
                        undelivered.fetch_add(1, SeqCst);
                    });
                    let service = s.spawn_service(async move {
                        sleep(MS).await?;
                        brings.fetch_add(1, SeqCst);
                        completer.complete(n);
                        Ok::<_, Error>(())
                    });
                    drop(service.into_job());
                    assert_eq!(wait.await?, n);
                    gone.fetch_add(1, SeqCst);
                }
                Ok(())
            })
        },
        move || {
            // Each value that was brought was returned or undelivered.
            assert_eq!(over.load(SeqCst), all.load(SeqCst));
        },
    );
    assert!(went.points >= 6);
    assert_eq!(went.forced, 0);
}

#[test]
fn cancel_5_what_has_begun_is_returned_at_entry_too() {
    Sim::seeded(1)
        .run(async {
            let there = |begun: bool| {
                let (wait, completer) = completion();
                assert!(completer.complete(7));
                if begun { wait.begun() } else { wait }
            };
            let asked = Log::new();
            let stopped = asked.clone();
            let told = Scope::build().cancelled("at once").run(async |_| {
                assert_eq!(there(true).await?, 7);
                assert!(there(false).await.is_err(), "told comes first");
                let (wait, _completer) = completion::<u32>();
                let wait = wait.begun().abort_with(move || {
                    stopped.say("asked");
                    Abort::Done
                });
                wait.await
            });
            assert!(told.await.is_err());
            assert_eq!(asked.text(), "asked");
            Ok::<_, Error>(())
        })
        .unwrap();
}

#[test]
fn handle_6_the_start_of_a_service_is_stopped_at_every_point() {
    let went = cancel_everywhere(|| {
        Scope::build().run(async |s| {
            let start = s.start_service(async |ready: Ready<u32>| {
                sleep(MS).await?;
                ready.ready(7);
                park().await?;
                Ok::<_, Error>(())
            });
            let (value, service) = start.await?;
            assert_eq!(value, 7);
            checkpoint().await?;
            drop(service);
            Ok(())
        })
    });
    assert!(went.points >= 4);
    assert_eq!(went.forced, 0);
}
