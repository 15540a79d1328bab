//! Steps with a scope, shield, timeout or hosted future around an inner body; and calls of
//! a body again and again.

use std::task::Context;
use std::time::Duration;

use kinfolk_core::host::Contained;
use kinfolk_core::{
    Backoff, Error, Local, OrCancel, OrFail, Scope, cleanup, forever, local_scope, retry, scope,
    scope_as, shield, shield_for, sleep, timeout, try_shield,
};
use kinfolk_testkit::Rng;

use crate::program::{Body, Step, awaited, boxed, once};
use crate::types::{HostileOutcome, HostileWaker, Thing, Value, drop_alone};

static LOCAL: Local<Value> = Local::new();

pub async fn step(step: &mut Step) -> kinfolk_core::Result<()> {
    let body = step.inner();
    let wait = step.millis(20);
    let value = match step.pick("scopes", 17) {
        0 => {
            let second = step.inner();
            let made = scope(async |s| {
                s.launch(body);
                s.launch(second);
                Ok(())
            });
            return made.await;
        }
        1 => {
            let second = step.inner();
            let made = Scope::build().supervisor().run(async |s| {
                let task = s.spawn(body);
                s.launch(second);
                task.await
            });
            made.await?
        }
        2 => scope_as(async |_| awaited(body).await).await.or_fail()?,
        3 => shield(body).await?,
        4 => shield_for(wait, body).await?,
        5 => cleanup(body).await?,
        6 => timeout(wait, async move { HostileOutcome(awaited(body).await) }).await?,
        7 => try_shield(body).await?.or_fail()?,
        8 => {
            let value = step.value();
            let made = LOCAL.scope(value, body).await?;
            LOCAL.with(|value| value.map(Value::call));
            made
        }
        9 => {
            let second = step.inner();
            let made = local_scope(async |s| {
                let task = s.spawn(body);
                s.launch(async move { HostileOutcome(awaited(second).await) });
                task.await
            });
            made.await?
        }
        10 => return loudly(step, body).await,
        11 | 12 => return hosted(step, body).await,
        13 => return own_ends(step, body).await,
        14 => awaited(body).or_cancel().await?.or_fail()?,
        15 => {
            drop_alone(body);
            let (value, mut bodies) = (step.value(), step.bodies());
            let policy = Backoff::new().tries(3).first(Duration::from_millis(1));
            let tried = retry(policy, move || {
                value.call();
                bodies()
            });
            boxed(tried).await?
        }
        _ => {
            drop_alone(body);
            let (value, mut bodies) = (step.value(), step.bodies());
            let rounds = forever(move || {
                value.call();
                let body = Contained::new(bodies());
                async move {
                    sleep(Duration::from_millis(1)).await?;
                    drop(awaited(body.into_inner()).await.or_fail()?);
                    Ok::<_, Error>(())
                }
            });
            return timeout(wait, boxed(rounds))
                .await
                .map(|never| match never {});
        }
    };
    step.dispose(value);
    Ok(())
}

/// A scope or timeout whose own end is a value.
async fn own_ends(step: &mut Step, body: Body) -> kinfolk_core::Result<()> {
    let made = match step.rng.below(3) {
        0 => timeout(step.millis(10), body).or_none().await?,
        1 => {
            let cancels = step.rng.chance(0.5);
            let made = scope(move |s| async move {
                let task = s.spawn(body);
                if cancels {
                    s.cancel("its own");
                }
                task.await
            });
            made.or_none().await?
        }
        _ => {
            let made = timeout(step.millis(10), body).with_deadline_passed();
            Some(made.await?.0)
        }
    };
    if let Some(value) = made {
        step.dispose(value);
    }
    Ok(())
}

/// A hosted future: awaited here or in another task, dropped half-way, or left about.
async fn hosted(step: &mut Step, body: Body) -> kinfolk_core::Result<()> {
    let body = Contained::new(body);
    let hosted = step.here.task("hosted").host(async move {
        sleep(Duration::from_millis(1)).await?;
        awaited(body.into_inner()).await.or_fail()
    });
    match step.rng.below(5) {
        0 => {
            let value = hosted.await?;
            step.dispose(value);
        }
        1 => {
            let limit = step.millis(20);
            let task = step.here.spawn(timeout(limit, hosted));
            step.world.put(Thing::Task(task));
        }
        2 => {
            let mut hosted = Box::pin(hosted);
            once(&mut hosted).await;
            drop(hosted);
        }
        3 => {
            let mut hosted = Box::pin(hosted);
            once(&mut hosted).await;
            step.world.put_other(hosted);
        }
        _ => {
            // Where that is cancelled, it takes no more children.
            let made = scope(async |s| {
                s.cancel("its own");
                hosted.await
            });
            drop(made.await?);
        }
    }
    Ok(())
}

/// Polled under a foreign waker that acts; or polled once and dropped half-way.
async fn loudly(step: &mut Step, body: Body) -> kinfolk_core::Result<()> {
    let body = Contained::new(body);
    let mut inner = boxed(scope(move |s| async move {
        sleep(Duration::from_millis(2)).await?;
        s.spawn(body.into_inner()).await
    }));
    if step.rng.chance(0.3) {
        once(&mut inner).await;
        drop(inner);
        return Ok(());
    }
    drop(under_foreign_wakers(step, inner).await?);
    Ok(())
}

/// Each poll has a waker of its own, that acts.
pub async fn under_foreign_wakers<F: Future + Unpin>(step: &mut Step, mut future: F) -> F::Output {
    let mut rng = Rng::new(step.rng.next_u64());
    let world = step.world.clone();
    std::future::poll_fn(move |cx: &mut Context<'_>| {
        let waker = HostileWaker::of(cx.waker(), Value::new(&world, &mut rng));
        let polled = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        drop_alone(waker);
        polled
    })
    .await
}
