//! What snapshots and reports say of channels and locks.

use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{Error, WaitKind, cleanup, scope, sleep, spawn};
use kinfolk_sync::{Barrier, Mutex, Notify, Semaphore, broadcast, mpmc, oneshot, watch};

use kinfolk_testkit::Lab;

const HOUR: Duration = Duration::from_secs(3600);

/// see-1, io-6: a wait names its lock or channel, where that was made, and which job holds
/// it.
pub async fn see_1_a_wait_names_its_lock_and_who_holds_it(lab: Lab) {
    let accounts = Arc::new(Mutex::new(0).named("accounts"));
    let (tx, rx) = mpmc::channel::<u32>(1);
    let tx = tx.named("orders");
    scope(async |s| {
        let lock = accounts.clone();
        let holder = s.task("holder").spawn(async move {
            let _guard = lock.lock().await?;
            sleep(HOUR).await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        let lock = accounts.clone();
        let waiter = s.task("waiter").spawn(async move {
            let _guard = lock.lock().await?;
            Ok::<_, Error>(())
        });
        let reader = s.task("reader").spawn(async move {
            rx.recv().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        let tree = lab.snapshot();
        let node = tree.find("waiter").unwrap();
        assert_eq!(node.waits_on.unwrap().0, WaitKind::Lock);
        let what = node.waits_for.as_ref().unwrap();
        assert_eq!(
            (what.kind, what.name.as_deref()),
            ("mutex", Some("accounts"))
        );
        assert_eq!(what.held_by.len(), 1);
        assert_eq!(what.held_by[0].name.as_deref(), Some("holder"));
        assert_eq!(what.site.file(), file!());
        let words = node.to_string();
        assert!(
            words.contains("waits for the mutex \"accounts\" made at"),
            "{words}"
        );
        assert!(words.contains("held by \"holder\" since"), "{words}");
        let channel = tree.find("reader").unwrap().waits_for.clone().unwrap();
        assert_eq!(
            (channel.kind, channel.name.as_deref()),
            ("channel", Some("orders"))
        );
        assert!(tree.cycles().is_empty());
        drop((holder, waiter, reader, tx));
        Ok(())
    })
    .await
    .unwrap();
    assert!(
        lab.snapshot()
            .nodes()
            .iter()
            .all(|node| node.waits_for.is_none())
    );
}

/// see-1, io-6: whatever a job of ours waits for is named, with the place where it was made.
pub async fn see_1_every_wait_names_what_it_waits_for(lab: Lab) {
    // A job waits; what snapshots say that it waits for: kind, name, and the line of the place.
    async fn named<F>(lab: &Lab, wait: F) -> (&'static str, Option<String>, u32)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = spawn(async move {
            wait.await;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        let tree = lab.snapshot();
        let node = tree.nodes().iter().find(|node| node.id == task.id());
        let what = node
            .unwrap()
            .waits_for
            .clone()
            .expect("it waits for something");
        assert_eq!(what.site.file(), file!());
        task.cancel("enough");
        drop(task.outcome().await);
        let tree = lab.snapshot();
        assert!(tree.nodes().iter().all(|node| node.waits_for.is_none()));
        (what.kind, what.name, what.site.line())
    }
    scope(async |_s| {
        let some = |name: &str| Some(name.to_string());
        let (line, notify) = (line!(), Arc::new(Notify::new().named("changed")));
        let wait = async move { drop(notify.notified().await) };
        assert_eq!(named(&lab, wait).await, ("notify", some("changed"), line));
        let (line, barrier) = (line!(), Arc::new(Barrier::new(2)));
        let wait = async move { drop(barrier.wait().await) };
        assert_eq!(named(&lab, wait).await, ("barrier", None, line));
        let (line, (tx, mut rx)) = (line!(), watch::channel(0));
        let tx = tx.named("level");
        let wait = async move { drop(rx.changed().await) };
        let kind = "watch channel";
        assert_eq!(named(&lab, wait).await, (kind, some("level"), line));
        let _rx = tx.subscribe();
        let wait = async move { drop(tx.closed().await) };
        assert_eq!(named(&lab, wait).await, (kind, some("level"), line));
        let (line, (tx, mut rx)) = (line!(), broadcast::channel::<u32>(2));
        let tx = tx.named("news");
        let wait = async move { drop(rx.recv().await) };
        let kind = "broadcast channel";
        assert_eq!(named(&lab, wait).await, (kind, some("news"), line));
        drop(tx);
        let kind = "oneshot channel";
        let (line, (tx, rx)) = (line!(), oneshot::channel::<u32>());
        let mut tx = tx.named("answer");
        let mut rx = rx;
        let other = async move { drop((&mut rx).await) };
        assert_eq!(named(&lab, other).await, (kind, some("answer"), line));
        assert!(tx.is_closed());
        let (line, (again, _rx)) = (line!(), oneshot::channel::<u32>());
        tx = again;
        let wait = async move { drop(tx.closed().await) };
        assert_eq!(named(&lab, wait).await, (kind, None, line));
        let (line, permits) = (line!(), Arc::new(Semaphore::new(0).named("pool")));
        let wait = async move { drop(permits.acquire().await) };
        assert_eq!(named(&lab, wait).await, ("semaphore", some("pool"), line));
        Ok(())
    })
    .await
    .unwrap();
}

/// see-2, io-6: jobs that wait for each other's locks are found, with their places.
pub async fn see_2_jobs_that_wait_for_each_other_are_found(lab: Lab) {
    let left = Arc::new(Mutex::new(()).named("left"));
    let right = Arc::new(Mutex::new(()).named("right"));
    scope(async |s| {
        let both = |name: &'static str, first: &Arc<Mutex<()>>, second: &Arc<Mutex<()>>| {
            let (first, second) = (first.clone(), second.clone());
            s.task(name).spawn(async move {
                let _first = first.lock().await?;
                sleep(Duration::from_millis(1)).await?;
                let _second = second.lock().await?;
                Ok::<_, Error>(())
            })
        };
        let (a, b) = (both("a", &left, &right), both("b", &right, &left));
        sleep(Duration::from_secs(1)).await?;
        let tree = lab.snapshot();
        let cycles = tree.cycles();
        assert_eq!(cycles.len(), 1, "{tree}");
        let mut names: Vec<_> = cycles[0].jobs.iter().map(|job| job.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "b"]);
        let words = tree.to_string();
        assert!(
            words.contains("deadlock: 2 jobs wait for each other"),
            "{words}"
        );
        assert!(words.contains("for the mutex \"left\" made at"), "{words}");
        // One of them gives way: the other goes on.
        assert!(a.cancel("give way"));
        b.await?;
        assert!(a.outcome().await?.is_cancelled());
        Ok(())
    })
    .await
    .unwrap();
}

/// see-2: a parent that holds what its child waits for, and waits for the child.
pub async fn see_2_a_parent_that_waits_for_its_child_is_found(lab: Lab) {
    let lock = Arc::new(Mutex::new(()).named("family"));
    scope(async |s| {
        let inner = lock.clone();
        let parent = s.task("parent").spawn(async move {
            let _guard = inner.lock().await?;
            let lock = inner.clone();
            let child = kinfolk_core::spawn(async move {
                let _guard = lock.lock().await?;
                Ok::<_, Error>(())
            });
            child.await
        });
        lab.settle().await;
        let cycles = lab.snapshot().cycles();
        assert_eq!(cycles.len(), 1);
        assert_eq!(cycles[0].jobs.len(), 2);
        parent.cancel("enough");
        assert!(parent.outcome().await?.is_cancelled());
        Ok(())
    })
    .await
    .unwrap();
}

/// see-6: the stuck report says which lock a job waits for, and who holds it.
pub async fn see_6_the_stuck_report_names_the_lock(lab: Lab) {
    let lock = Arc::new(Mutex::new(()).named("log"));
    scope(async |s| {
        let (held, waited) = (lock.clone(), lock.clone());
        let holder = s.task("writer").spawn(async move {
            let _guard = held.lock().await?;
            sleep(HOUR).await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        let stuck = s.task("stuck").spawn(async move {
            let told = kinfolk_core::park().await.unwrap_err();
            cleanup(async { waited.lock().await.map(drop).map_err(Error::from) }).await?;
            Err::<(), _>(Error::from(told))
        });
        lab.settle().await;
        stuck.cancel("stop");
        sleep(Duration::from_secs(2)).await?;
        let report = lab.snapshot().stuck(Duration::from_secs(1)).to_string();
        assert!(report.contains("waits for the mutex \"log\""), "{report}");
        assert!(report.contains("held by \"writer\""), "{report}");
        holder.cancel("enough");
        drop((holder.outcome().await, stuck.outcome().await));
        Ok(())
    })
    .await
    .unwrap();
}
