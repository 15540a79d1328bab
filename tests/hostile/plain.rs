//! Steps without bodies of their own: waits, hooks, leases, work, blocking calls,
//! completions.

use std::time::Duration;

use kinfolk_core::kit::{self, Abort, Work};
use kinfolk_core::{
    OrCancel, blocking, cancel_current, checkpoint, current_job, detach, on_cancel,
    on_cancel_or_end, sleep, timeout, yield_now,
};

use crate::program::{Step, boxed, once};
use crate::types::{Thing, Value, drop_alone};

pub async fn step(step: &mut Step) -> kinfolk_core::Result<()> {
    match step.pick("plain", 13) {
        0 => sleep(step.millis(40)).await?,
        1 => checkpoint().await?,
        2 => yield_now().await?,
        3 => hook(step),
        4 => {
            if let Some(lease) = step.here.lease() {
                step.world.put(Thing::Lease(lease));
            }
        }
        5 => drop(step.world.take_one(&mut step.rng)),
        6 => step.world.hand_over(&mut step.rng),
        7 => {
            let value = step.value();
            let stop = move || value.call();
            if let Some(mut work) = Work::here(stop).map(Work::lets_time_pass) {
                sleep(step.millis(5)).await?;
                if step.rng.chance(0.5) {
                    work.finish();
                }
            }
        }
        8 => call(step).await?,
        9 => complete(step).await?,
        10 => drop(cancel_current("by itself")),
        11 => {
            if let Some(job) = current_job() {
                job.interrupt("by itself");
            }
        }
        _ => {
            // Dropped where it is told.
            let (value, wait) = (step.value(), step.millis(20));
            let waits = async move {
                let value = kinfolk_core::host::Contained::new(value);
                std::future::poll_fn(|_| {
                    value.call();
                    std::task::Poll::Ready(())
                })
                .await;
                sleep(wait).await
            };
            boxed(waits).or_cancel().await??;
        }
    }
    Ok(())
}

fn hook(step: &mut Step) {
    let value = step.value();
    let guard = match step.rng.below(3) {
        0 => on_cancel(move |_| value.call()),
        1 => on_cancel_or_end(move |_| value.call()),
        _ => step.here.job().on_end(move |how| {
            // Shown the failure, and asks it what a log would.
            let _ = how.error().map(ToString::to_string);
            value.call();
        }),
    };
    match step.rng.below(3) {
        0 => guard.keep(),
        1 => drop(guard.disarm()),
        _ => step.world.put(Thing::Hook(guard)),
    }
}

/// A blocking call: waited for, abandoned or dropped half-way.
async fn call(step: &mut Step) -> kinfolk_core::Result<()> {
    let (asked, value) = (step.value(), step.value());
    let call = blocking(move |_| {
        // One by one, as any careful program.
        drop_alone(asked);
        value
    });
    let call = if step.rng.chance(0.5) {
        call.abandon()
    } else {
        call
    };
    match step.rng.below(3) {
        0 => {
            let mut call = Box::pin(call);
            once(&mut call).await;
            drop(call);
        }
        1 => drop(timeout(Duration::from_millis(1), call).await?),
        _ => {
            let value = call.await?;
            step.dispose(value);
        }
    }
    Ok(())
}

/// A completion: brought, brought twice, never, or given up.
async fn complete(step: &mut Step) -> kinfolk_core::Result<()> {
    let (mut wait, completer) = kit::completion();
    let (back, abort) = (step.value(), step.value());
    if step.rng.chance(0.5) {
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
    let value = step.value();
    match step.rng.below(3) {
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
