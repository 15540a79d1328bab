//! Gauges: what only one host can say. What all hosts say alike is a case of
//! the conformance suite.

use std::time::Duration;

use kinfolk_core::{park, sleep};
use kinfolk_testkit::Sim;
use kinfolk_tokio::Root;

const HOUR: Duration = Duration::from_secs(3600);

/// see-3: the simulation knows its ready queue, and counts whom it polls.
#[test]
fn see_3_gauges_of_the_simulation() {
    let mut sim = Sim::seeded(1);
    assert_eq!(
        sim.tree().gauges().to_string(),
        "1 living, 0 runnable, 0 in ready, 0 in timers"
    );
    for _ in 0..3 {
        sim.root().launch(sleep(HOUR));
    }
    let tree = sim.tree().clone();
    let (tell, told) = std::sync::mpsc::channel();
    sim.root()
        .launch(async move { tell.send(tree.gauges()).unwrap() });
    assert_eq!(sim.tree().gauges().queue("ready"), Some(4));
    assert_eq!(sim.tree().gauges().runnable, Some(4));
    sim.settle();
    let inside = told.recv().unwrap();
    let queued = inside.queue("ready").unwrap();
    assert_eq!(inside.runnable, Some(queued + 1), "and the one that asks");
    let gauges = sim.tree().gauges();
    assert_eq!((gauges.living, gauges.runnable), (4, Some(0)));
    assert_eq!(gauges.next_deadline_in, Some(HOUR));
    assert_eq!(gauges.queue("timers"), Some(3));
    assert_eq!(gauges.queue("no such queue"), None);
    sim.finish();
}

/// see-3: on tokio with the system's clock nobody counts who is runnable, and
/// the gauge does not guess.
#[test]
fn see_3_gauges_of_tokio_do_not_guess() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let root = Root::builder().build();
        let sleeper = root.scope().spawn(sleep(HOUR));
        let parked = root.scope().spawn(park());
        while root.tree().gauges().queue("timers") != Some(1) {
            tokio::task::yield_now().await;
        }
        let gauges = root.tree().gauges();
        assert_eq!((gauges.living, gauges.runnable), (3, None));
        let left = gauges.next_deadline_in.unwrap();
        assert!(left <= HOUR && left > HOUR / 2, "{left:?}");
        assert!(gauges.queue("tokio's global queue").is_some());
        assert!(!gauges.to_string().contains("runnable"), "{gauges}");
        drop((sleeper, parked));
        assert!(root.shutdown().await.unwrap().is_clean());
        let gauges = root.tree().gauges();
        assert_eq!((gauges.living, gauges.next_deadline_in), (0, None));
    });
}
