//! Random small programs, built from hostile types: what a seed says.
//!
//! A destructor that panics while a function returns loses what is returned: the
//! compiler drops the locals and forgets the value. So the programs keep nothing
//! hostile in a local over a `?`, but in a `Contained`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use kinfolk_core::host::Contained;
use kinfolk_core::kit::{self, Abort, Work};
use kinfolk_core::{
    Error, Local, Main, OrFail, Scope, TaskSet, all, all_settled, any, blocking, cancel_current,
    checkpoint, cleanup, current_job, detach, for_each_concurrent, local_scope, on_cancel,
    on_cancel_or_end, race, scope, scope_as, select, shield, shield_for, sleep, timeout,
    try_shield, yield_now,
};
use kinfolk_testkit::Rng;

use crate::types::{Fault, HostileWaker, Thing, Value, World, drop_alone};

pub type Body = Pin<Box<dyn Future<Output = Result<Value, Fault>> + Send>>;

static LOCAL: Local<Value> = Local::new();

fn millis(rng: &mut Rng, most: usize) -> Duration {
    Duration::from_millis(rng.below(most) as u64)
}

/// A body of at most so many levels.
pub fn body(world: &Arc<World>, seed: u64, depth: usize) -> Body {
    let world = world.clone();
    Box::pin(async move {
        let mut rng = Rng::new(seed);
        for _ in 0..rng.below(4) {
            if !world.spend() {
                break;
            }
            if let Err(error) = step(&world, &mut rng, depth).await {
                return Err(match rng.below(3) {
                    // Passed on inside an error of one's own.
                    0 => Fault::new(Value::new(&world, &mut rng), Some(error)),
                    1 => Fault::new(Value::new(&world, &mut rng), None),
                    _ => Fault::from(error),
                });
            }
        }
        let value = Value::new(&world, &mut rng);
        match rng.below(5) {
            0 => Err(Fault::new(value, None)),
            1 => std::panic::resume_unwind(Box::new(value)),
            _ => Ok(value),
        }
    })
}

/// Something is taken, kept for others, or dropped here.
fn dispose(world: &World, rng: &mut Rng, value: Value) {
    match rng.below(3) {
        0 => world.put(Thing::Value(value)),
        _ => drop(value),
    }
}

async fn step(world: &Arc<World>, rng: &mut Rng, depth: usize) -> kinfolk_core::Result<()> {
    let most = if depth == 0 { 9 } else { 34 };
    let mut seeds = Rng::new(rng.next_u64());
    let mut inner = || body(world, seeds.next_u64(), depth.saturating_sub(1));
    let wait = millis(rng, 20);
    let here = Scope::current().expect("inside a job");
    let which = rng.below(most);
    if std::env::var_os("KINFOLK_TRACE").is_some() {
        eprintln!("{:?}: step {which} at depth {depth}", current_job());
    }
    match which {
        0 => sleep(millis(rng, 40)).await?,
        1 => checkpoint().await?,
        2 => yield_now().await?,
        3 => {
            let value = Value::new(world, rng);
            let guard = match rng.chance(0.5) {
                true => on_cancel(move |_| value.call()),
                false => on_cancel_or_end(move |_| value.call()),
            };
            match rng.below(3) {
                0 => guard.keep(),
                1 => drop(guard.disarm()),
                _ => world.put(Thing::Hook(guard)),
            }
        }
        4 => {
            if let Some(lease) = here.lease() {
                world.put(Thing::Lease(lease));
            }
        }
        5 => drop(world.take_one(rng)),
        6 => {
            let value = Value::new(world, rng);
            let stop = move || value.call();
            if let Some(mut work) = Work::here(stop).map(Work::lets_time_pass) {
                sleep(millis(rng, 5)).await?;
                if rng.chance(0.5) {
                    work.finish();
                }
            }
        }
        7 => call(world, rng).await?,
        8 => complete(world, rng).await?,
        // What follows has bodies of its own.
        9 | 10 => spawned(world, rng, inner(), &here).await?,
        11 => {
            let spawner = here.task("main lane").on(Main);
            world.put(Thing::Task(spawner.spawn(inner())));
        }
        12 => world.put(Thing::Job(here.launch(inner()))),
        13 => world.put(Thing::Job(detach(inner()))),
        14 => {
            let bodies = [inner(), inner()];
            let made = scope(async |s| {
                for body in bodies {
                    s.launch(body);
                }
                Ok(())
            });
            made.await?;
        }
        15 => {
            let (first, second) = (inner(), inner());
            let made = Scope::build().supervisor().run(async |s| {
                let task = s.spawn(first);
                s.launch(second);
                task.await
            });
            dispose(world, rng, made.await?);
        }
        16 => {
            let body = inner();
            let made = scope_as(async |_| body.await).await;
            dispose(world, rng, made.or_fail()?);
        }
        17 => dispose(world, rng, shield(inner()).await?),
        18 => {
            let body = inner();
            dispose(world, rng, shield_for(wait, body).await?);
        }
        19 => dispose(world, rng, cleanup(inner()).await?),
        20 => {
            let body = inner();
            dispose(world, rng, timeout(wait, body).await?);
        }
        21 => dispose(world, rng, try_shield(inner()).await?.or_fail()?),
        22 => {
            let value = Value::new(world, rng);
            dispose(world, rng, LOCAL.scope(value, inner()).await?);
            LOCAL.with(|value| value.map(Value::call));
        }
        23 => {
            let bodies = vec![inner(), inner(), inner()];
            for value in all(bodies).await? {
                drop_alone(value);
            }
        }
        24 => {
            let (a, b) = all((inner(), inner())).await?;
            drop_alone(a);
            drop_alone(b);
        }
        25 => {
            for end in all_settled([inner(), inner()]).await {
                drop_alone(end);
            }
        }
        26 => {
            let late = Contained::new(Value::new(world, rng));
            let first = any([inner(), inner()]).late(|value| {
                late.call();
                drop(value);
            });
            dispose(world, rng, first.await?);
        }
        27 => {
            let late = Contained::new(Value::new(world, rng));
            let first = race([inner(), inner(), inner()]).late(|value| {
                late.call();
                drop(value);
            });
            dispose(world, rng, first.await?);
        }
        28 => drop(select!(inner(), sleep(millis(rng, 10)), inner()).await?),
        29 => {
            let bodies = [inner(), inner(), inner()];
            // Both are dropped with the call.
            let (item, held) = (Value::new(world, rng), Value::new(world, rng));
            let bodies = bodies.into_iter().inspect(move |_| item.call());
            for_each_concurrent(bodies, 2, move |body| {
                held.call();
                async move {
                    drop(body.await.or_fail()?);
                    Ok::<_, Error>(())
                }
            })
            .await?;
        }
        30 => {
            let (first, second) = (inner(), inner());
            let made = local_scope(async |s| {
                let task = s.spawn(first);
                s.launch(second);
                task.await
            });
            dispose(world, rng, made.await?);
        }
        31 => {
            let bodies = [inner(), inner(), inner()];
            task_set(bodies, rng.below(4)).await?;
        }
        32 => loudly(world, rng, inner()).await?,
        _ => outside(world, rng, inner(), &here).await?,
    }
    Ok(())
}

/// A child, and what becomes of its handle.
async fn spawned(
    world: &Arc<World>,
    rng: &mut Rng,
    body: Body,
    here: &Scope,
) -> kinfolk_core::Result<()> {
    let spawner = here.task("child");
    let mut task = match rng.below(6) {
        0 => spawner.spawn_now(body),
        1 => spawner.spawn_atomic(body),
        2 => spawner.spawn_lazy(body),
        3 => spawner.spawn_service(body),
        _ => spawner.spawn(body),
    };
    match rng.below(6) {
        0 => drop(task),
        1 => world.put(Thing::Job(task.into_job())),
        2 => dispose(world, rng, task.await?),
        3 => drop(task.outcome().await?),
        4 => {
            // Awaited for a while only: then it is cancelled.
            let made = timeout(millis(rng, 5), &mut task).await;
            drop_alone(made);
            world.put(Thing::Task(task));
        }
        _ => world.put(Thing::Task(task)),
    }
    Ok(())
}

/// A blocking call: waited for, abandoned or dropped half-way.
async fn call(world: &Arc<World>, rng: &mut Rng) -> kinfolk_core::Result<()> {
    let (asked, value) = (Value::new(world, rng), Value::new(world, rng));
    let call = blocking(move |_| {
        // One by one, as any careful program.
        drop_alone(asked);
        value
    });
    let call = if rng.chance(0.5) {
        call.abandon()
    } else {
        call
    };
    match rng.below(3) {
        0 => {
            let mut call = Box::pin(call);
            once(&mut call).await;
            drop(call);
        }
        1 => drop(timeout(millis(rng, 2), call).await?),
        _ => dispose(world, rng, call.await?),
    }
    Ok(())
}

/// A completion: brought, brought twice, never, or given up.
async fn complete(world: &Arc<World>, rng: &mut Rng) -> kinfolk_core::Result<()> {
    let (mut wait, completer) = kit::completion();
    let (back, abort) = (Value::new(world, rng), Value::new(world, rng));
    if rng.chance(0.5) {
        wait = wait.on_undelivered(move |value: Value| {
            drop_alone(value);
            back.call();
        });
    } else {
        drop_alone(back);
    }
    wait = wait.abort_with(move || {
        abort.call();
        Abort::Done
    });
    let value = Value::new(world, rng);
    match rng.below(3) {
        0 => drop(detach(async move { completer.complete(value) })),
        1 => drop_alone((completer, value)),
        _ => {
            completer.complete(value);
            drop(completer);
        }
    }
    let made = timeout(Duration::from_millis(10), wait).await?;
    drop(made);
    Ok(())
}

async fn task_set(bodies: [Body; 3], take: usize) -> kinfolk_core::Result<()> {
    let mut set = TaskSet::new().limit(2)?;
    for body in bodies {
        set.spawn(body).await?;
    }
    for _ in 0..take {
        drop_alone(set.next().await?);
    }
    Ok(())
}

/// Polls `future` once.
async fn once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    std::future::poll_fn(|cx| {
        drop_alone(future.as_mut().poll(cx));
        Poll::Ready(())
    })
    .await;
}

/// Polled under a foreign waker that acts; or polled once and dropped half-way.
async fn loudly(world: &Arc<World>, rng: &mut Rng, body: Body) -> kinfolk_core::Result<()> {
    let mut inner = Box::pin(scope(async |s| {
        sleep(Duration::from_millis(2)).await?;
        s.spawn(body).await
    }));
    if rng.chance(0.3) {
        once(&mut inner).await;
        drop(inner);
        return Ok(());
    }
    let seed = rng.next_u64();
    let mut rng = Rng::new(seed);
    let made = std::future::poll_fn(|cx: &mut Context<'_>| {
        let waker = HostileWaker::of(cx.waker(), Value::new(world, &mut rng));
        let polled = inner.as_mut().poll(&mut Context::from_waker(&waker));
        drop_alone(waker);
        polled
    });
    drop(made.await?);
    Ok(())
}

/// What is done to a job from elsewhere.
async fn outside(
    world: &Arc<World>,
    rng: &mut Rng,
    body: Body,
    here: &Scope,
) -> kinfolk_core::Result<()> {
    match rng.below(6) {
        0 => drop(cancel_current("by itself")),
        1 => {
            if let Some(job) = current_job() {
                job.interrupt("by itself");
            }
        }
        2 => {
            let mut body = Some(body);
            let timer = here.delay(millis(rng, 5), move || body.take().expect("once"));
            world.put(Thing::Timer(timer));
        }
        3 => {
            let value = Value::new(world, rng);
            let start = here.task("service").start_service(move |ready| {
                ready.ready(value);
                body
            });
            let (value, task) = start.await?;
            world.put(Thing::Task(task));
            drop(value);
        }
        4 => {
            let value = Value::new(world, rng);
            let timer = here.interval(millis(rng, 5) + Duration::from_millis(1), move || {
                value.call();
                async {}
            });
            world.put(Thing::Timer(timer?));
        }
        _ => {
            if let Some(lease) = here.lease() {
                world.put(Thing::Task(lease.spawn(body)));
            }
        }
    }
    Ok(())
}
