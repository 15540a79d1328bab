//! Patience with jobs that cannot hear: what the builder of a host was told, and
//! what it costs the host.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{Error, Patience, Result, Scope, cleanup, now, park, sleep};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::{Sim, VirtualClock, guarded};
use kinfolk_tokio::Root;

const MS: Duration = Duration::from_millis(1);

/// How long after their cancel three jobs are over: one that cannot hear; one that
/// hears, and then cannot; one that cleans up in points for ever.
async fn dropped_after() -> Result<[Duration; 3]> {
    let scope = Scope::current().expect("inside a job");
    let deaf = scope.spawn(pending::<()>());
    let told = scope.spawn(async {
        let _told = park().await;
        pending::<()>().await;
    });
    let tidies = scope.spawn(async {
        let _told = park().await;
        cleanup(park()).await.map(|_| ())
    });
    sleep(MS).await?;
    let began = now();
    for task in [&deaf, &told, &tidies] {
        assert!(task.cancel("enough"));
    }
    assert!(deaf.outcome().await?.is_cancelled());
    let first = now() - began;
    assert!(told.outcome().await?.is_cancelled());
    let second = now() - began;
    assert!(tidies.outcome().await?.is_cancelled());
    Ok([first, second, now() - began])
}

/// What a builder is told, if anything, and what is to come of it.
const CASES: [(Option<Patience>, [Duration; 3]); 2] = [
    (
        None,
        [
            Duration::from_secs(1),
            Duration::from_secs(30),
            Duration::from_secs(30),
        ],
    ),
    (
        Some(Patience {
            unaware: Duration::from_millis(70),
            cleanup: Duration::from_millis(200),
        }),
        [
            Duration::from_millis(70),
            Duration::from_millis(200),
            Duration::from_millis(200),
        ],
    ),
];

#[test]
fn cancel_6_patience_of_a_simulation() {
    guarded("simulation", |_| {
        for (patience, after) in CASES {
            let mut builder = Sim::builder(1).on_forced(|_| {});
            if let Some(patience) = patience {
                builder = builder.patience(patience);
            }
            let mut sim = builder.build();
            assert_eq!(sim.run(dropped_after()).unwrap(), after);
            sim.finish();
        }
    });
}

#[test]
fn cancel_6_patience_of_a_native_runtime() {
    guarded("native", |watched| {
        for (patience, after) in CASES {
            for workers in [0, 2] {
                let mut builder = Runtime::builder()
                    .workers(workers)
                    .clock(Arc::new(VirtualClock::new()))
                    .on_forced(Box::new(|_| {}));
                if let Some(patience) = patience {
                    builder = builder.patience(patience);
                }
                let rt = builder.build().unwrap();
                watched.watch(rt.tree());
                assert_eq!(rt.block_on(dropped_after()).unwrap(), after);
            }
        }
    });
}

#[test]
fn cancel_6_patience_of_a_root_on_tokio() {
    guarded("tokio", |watched| {
        for (patience, after) in CASES {
            let tokio = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            tokio.unwrap().block_on(async {
                let mut builder = Root::builder()
                    .clock(Arc::new(VirtualClock::new()))
                    .on_forced(Box::new(|_| {}));
                if let Some(patience) = patience {
                    builder = builder.patience(patience);
                }
                let root = builder.build();
                watched.watch(root.tree());
                assert_eq!(root.run(dropped_after()).await.unwrap(), after);
            });
        }
    });
}

/// A cancel that everybody hears sets no timer. Where jobs cannot hear, the host
/// keeps one timer for the whole tree, however many cancels and jobs there are.
#[test]
fn cancel_6_one_timer_for_all_who_cannot_hear() {
    let mut sim = Sim::builder(1).on_forced(|_| {}).build();
    let timers = |sim: &Sim| sim.tree().gauges().queue("timers");
    let hears = sim.root().spawn(park());
    let families: Vec<_> = (0..10)
        .map(|_| {
            sim.root().spawn(async {
                let scope = Scope::current().expect("inside a job");
                for _ in 0..10 {
                    scope.launch(pending::<()>());
                }
                pending::<()>().await;
            })
        })
        .collect();
    sim.settle();
    hears.cancel("enough");
    sim.settle();
    assert_eq!((hears.is_ended(), timers(&sim)), (true, Some(0)));
    for (n, family) in families.iter().enumerate() {
        sim.advance(n as u32 * MS);
        family.cancel("enough");
        sim.settle();
        assert_eq!(timers(&sim), Some(1), "{n} were cancelled before");
    }
    sim.advance(Duration::from_secs(2));
    assert!(families.iter().all(|family| family.is_ended()));
    assert_eq!(timers(&sim), Some(0));
    assert_eq!(sim.tree().counters().jobs_force_dropped, 110);
    drop((hears, families));
    sim.finish();
}

#[test]
fn cancel_6_patience_is_that_of_the_builder_in_a_shutdown_too() {
    let patience = Patience {
        unaware: 70 * MS,
        ..Patience::default()
    };
    let mut sim = Sim::builder(1).patience(patience).on_forced(|_| {}).build();
    sim.root().launch(async {
        pending::<()>().await;
        Ok::<_, Error>(())
    });
    sim.settle();
    let report = sim.shutdown(Duration::from_secs(10));
    assert_eq!(report.took, 70 * MS, "{report}");
}
