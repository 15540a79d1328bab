//! Steps with a child task: spawned in every way, awaited, shared, left or handed on; sets
//! of tasks; timers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinfolk_core::host::Contained;
use kinfolk_core::{
    Backoff, Error, Main, OrFail, TaskSet, detach, for_each_concurrent, restarting, timeout,
};

use crate::program::{Body, Step, awaited, boxed, limited};
use crate::types::{Fault, HostileOutcome, Thing, Value, drop_alone};

pub async fn step(step: &mut Step) -> kinfolk_core::Result<()> {
    match step.pick("children", 13) {
        0 | 1 => spawned(step).await?,
        2 => on_main(step),
        3 => {
            let body = step.inner();
            let job = step.here.launch(body);
            step.world.put(Thing::Job(job));
        }
        4 => {
            let job = detach(step.inner());
            step.world.put(Thing::Job(job));
        }
        5 => ready(step).await?,
        6 => shared(step).await?,
        7 => again(step),
        8 => timers(step)?,
        9 => {
            if let Some(lease) = step.here.lease() {
                let task = lease.spawn(step.inner());
                step.world.put(Thing::Task(task));
            }
        }
        10 => task_set(step).await?,
        11 => mapped(step).await?,
        _ => each(step).await?,
    }
    Ok(())
}

/// A child, and what becomes of its handle.
async fn spawned(step: &mut Step) -> kinfolk_core::Result<()> {
    let spawner = step.here.task("child");
    let spawner = match step.rng.chance(0.3) {
        true => spawner.attempted(),
        false => spawner,
    };
    let body = step.inner();
    let task = match step.rng.below(7) {
        0 => spawner.spawn_now(body),
        1 => spawner.spawn_atomic(body),
        2 => spawner.spawn_lazy(body),
        3 => spawner.spawn_service(body),
        4 => spawner.spawn(async move { HostileOutcome(awaited(body).await) }),
        _ => spawner.spawn(body),
    };
    if step.rng.chance(0.3) {
        let value = step.value();
        let at_end = task.job().on_end(move |_| value.call());
        match step.rng.chance(0.5) {
            true => at_end.keep(),
            false => step.world.put(Thing::Hook(at_end)),
        }
    }
    match step.rng.below(7) {
        0 => drop(task),
        1 => step.world.put(Thing::Job(task.into_job())),
        2 => {
            let value = task.await?;
            step.dispose(value);
        }
        3 => drop(task.outcome().await?),
        4 => {
            // Awaited for a while only: then it is cancelled.
            let shared = Arc::new(Mutex::new(task));
            let lent = shared.clone();
            let waits = poll_fn(move |cx| {
                let mut task = lent.lock().unwrap_or_else(PoisonError::into_inner);
                Pin::new(&mut *task).poll(cx)
            });
            drop_alone(limited(step.millis(5), waits).await);
            step.world.put_other(shared);
        }
        5 => drop(task.stop("enough").await?),
        _ => step.world.put(Thing::Task(task)),
    }
    Ok(())
}

/// A future that is not `Send`.
async fn stays(value: Value, body: Body) -> Result<Value, Fault> {
    let value = Contained::new(Rc::new(value));
    let made = awaited(body).await;
    value.call();
    made
}

/// On the main lane: by a future that is `Send`, one that is made there, and one that
/// never leaves this thread.
fn on_main(step: &mut Step) {
    let (value, body) = (step.value(), step.inner());
    let spawner = step.here.task("main lane");
    let task = match (step.rng.below(3), Main::here()) {
        (0, Some(main)) => spawner.on(main).spawn(stays(value, body)),
        (1, _) => spawner.on(Main).spawn_with(move || {
            value.call();
            stays(value, body)
        }),
        _ => {
            drop_alone(value);
            spawner.on(Main).spawn(body)
        }
    };
    step.world.put(Thing::Task(task));
}

/// A child that says when it is ready, or does not.
async fn ready(step: &mut Step) -> kinfolk_core::Result<()> {
    // What goes while the closure returns its body would lose that.
    let value = Contained::new(step.value());
    let (says, body) = (step.rng.chance(0.7), step.inner());
    let spawner = step.here.task("says when it is ready");
    let body = move |ready: kinfolk_core::Ready<Value>| {
        if says {
            ready.ready(value.into_inner());
        }
        body
    };
    let start = match step.rng.chance(0.5) {
        true => spawner.start(body),
        false => spawner.start_service(body),
    };
    let (value, task) = start.await?;
    step.world.put(Thing::Task(task));
    drop(value);
    Ok(())
}

/// Clones of one handle wait in this task, in another and on the shelf.
async fn shared(step: &mut Step) -> kinfolk_core::Result<()> {
    let body = step.inner();
    let shared = step.here.spawn(body).shared();
    let (here, there) = (shared.clone(), shared.clone());
    step.world.put_other(shared);
    let waits = step.here.spawn(there);
    step.world.put(Thing::Task(waits));
    let made = timeout(step.millis(20), here).await?;
    step.dispose(made);
    Ok(())
}

/// Restarted when it fails, a few times.
fn again(step: &mut Step) {
    let (value, mut bodies) = (step.value(), step.bodies());
    let policy = Backoff::new().tries(3).first(Duration::from_millis(1));
    let task = step.here.spawn(restarting(policy, move || {
        value.call();
        bodies()
    }));
    step.world.put(Thing::Task(task));
}

fn timers(step: &mut Step) -> kinfolk_core::Result<()> {
    let wait = step.millis(5);
    let timer = match step.rng.chance(0.5) {
        true => {
            let mut body = Some(step.inner());
            let make = move || body.take().expect("once");
            step.here.delay(wait, make)
        }
        false => {
            let value = step.value();
            let make = move || {
                value.call();
                async {}
            };
            step.here.interval(wait + Duration::from_millis(1), make)?
        }
    };
    step.world.put(Thing::Timer(timer));
    Ok(())
}

/// Bodies that are given out by code that acts.
struct ActingItems(VecDeque<Body>, Value);

impl Iterator for ActingItems {
    type Item = Body;

    fn next(&mut self) -> Option<Body> {
        self.1.call();
        self.0.pop_front()
    }
}

async fn task_set(step: &mut Step) -> kinfolk_core::Result<()> {
    let mut set = TaskSet::new().limit(2)?;
    if step.rng.chance(0.5) {
        let bodies: [Body; 3] = [step.inner(), step.inner(), step.inner()];
        // Dropped with the call.
        let item = step.value();
        set.extend(ActingItems(bodies.into(), item)).await?;
    } else {
        set.spawn(step.inner()).await?;
        set.attempt(step.inner()).await?;
    }
    if step.rng.chance(0.3) {
        set.abort_all("enough");
    }
    match step.rng.below(3) {
        0 => {
            for end in set.join_all().await? {
                drop_alone(end);
            }
        }
        1 => {
            while let Some(end) = set.try_next() {
                drop_alone(end);
            }
        }
        _ => {
            for _ in 0..step.rng.below(4) {
                drop_alone(set.next().await?);
            }
        }
    }
    Ok(())
}

async fn mapped(step: &mut Step) -> kinfolk_core::Result<()> {
    let bodies = [step.inner(), step.inner(), step.inner()];
    // Both are dropped with the call.
    let (item, held) = (step.value(), step.value());
    let items = ActingItems(bodies.into(), item);
    let values = TaskSet::map(items, 2, move |body| {
        held.call();
        body
    });
    for value in boxed(values).await? {
        drop_alone(value);
    }
    Ok(())
}

async fn each(step: &mut Step) -> kinfolk_core::Result<()> {
    let bodies = [step.inner(), step.inner(), step.inner()];
    // Both are dropped with the call.
    let (item, held) = (step.value(), step.value());
    let items = ActingItems(bodies.into(), item);
    let all = for_each_concurrent(items, 2, move |body: Body| {
        held.call();
        async move {
            drop(awaited(body).await.or_fail()?);
            Ok::<_, Error>(())
        }
    });
    boxed(all).await
}
