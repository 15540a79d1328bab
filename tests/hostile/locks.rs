//! Steps at the channels and locks that all jobs of a program share, and at some of their
//! own. Each wait has a limit: what is waited for may never come.

use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::host::Contained;
use kinfolk_core::{OrFail, all_settled};
use kinfolk_sync::{
    Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, broadcast, mpmc, oneshot, watch,
};

use crate::program::{Step, awaited, boxed, limited, once};
use crate::scopes::under_foreign_wakers;
use crate::types::{Thing, Value, drop_alone};

/// Where the jobs of a program meet.
pub struct Meeting {
    bounded: (mpmc::Sender<Value>, mpmc::Receiver<Value>),
    rendezvous: (mpmc::Sender<Value>, mpmc::Receiver<Value>),
    unbounded: (mpmc::UnboundedSender<Value>, mpmc::Receiver<Value>),
    latest: (watch::Sender<Option<Value>>, watch::Receiver<Option<Value>>),
    to_all: broadcast::Sender<Value>,
    mutex: Arc<Mutex<Option<Value>>>,
    rwlock: Arc<RwLock<Option<Value>>>,
    semaphore: Arc<Semaphore>,
    notify: Notify,
    barrier: Barrier,
}

impl Default for Meeting {
    fn default() -> Meeting {
        Meeting {
            bounded: mpmc::channel(1),
            rendezvous: mpmc::rendezvous(),
            unbounded: mpmc::unbounded_channel(),
            latest: watch::channel(None),
            to_all: broadcast::channel(2).0,
            mutex: Arc::default(),
            rwlock: Arc::default(),
            semaphore: Arc::new(Semaphore::new(2)),
            notify: Notify::new(),
            barrier: Barrier::new(2),
        }
    }
}

pub async fn step(step: &mut Step) -> kinfolk_core::Result<()> {
    let Some(meeting) = step.world.meeting() else {
        return Ok(());
    };
    let limit = step.millis(10);
    match step.pick("locks", 17) {
        0 => {
            let value = step.value();
            let at = meeting.clone();
            limited(limit, async move { at.bounded.0.send(value).await }).await?;
        }
        1 => {
            let value = step.value();
            let at = meeting.clone();
            limited(limit, async move { at.rendezvous.0.send(value).await }).await?;
        }
        2 => {
            let value = step.value();
            drop(meeting.unbounded.0.send(value));
        }
        3 => {
            let (at, which) = (meeting.clone(), step.rng.below(3));
            let waits = async move {
                let from = [&at.bounded.1, &at.rendezvous.1, &at.unbounded.1];
                from[which].recv().await
            };
            if let Some(value) = limited(limit, waits).await? {
                step.dispose(value);
            }
        }
        4 => {
            let value = step.value();
            drop(meeting.bounded.0.try_send(value));
            drop(meeting.rendezvous.1.try_recv());
        }
        5 => half_way(step, meeting).await,
        6 => loudly(step, meeting, limit).await?,
        7 => {
            let mut guard = limited(limit, meeting.mutex.clone().lock_owned()).await?;
            let value = step.value();
            let former = guard.replace(value);
            match step.rng.below(3) {
                0 => step.world.put_other(guard),
                1 => {
                    let inner = step.inner();
                    drop_alone(awaited(inner).await);
                    drop(guard);
                }
                _ => drop(guard),
            }
            drop(former);
        }
        8 => {
            if step.rng.chance(0.5) {
                let guard = limited(limit, meeting.rwlock.clone().read_owned()).await?;
                step.world.put_other(guard);
            } else {
                let mut guard = limited(limit, meeting.rwlock.clone().write_owned()).await?;
                let value = step.value();
                let former = guard.replace(value);
                step.world.put_other(guard.downgrade());
                drop(former);
            }
        }
        9 => {
            let many = 1 + step.rng.below(2);
            let permit = meeting.semaphore.clone().acquire_many_owned(many);
            let permit = limited(limit, permit).await?;
            step.world.put_other(permit);
        }
        10 => match step.rng.below(3) {
            0 => meeting.notify.notify_one(),
            1 => meeting.notify.notify_waiters(),
            _ => {
                let at = meeting.clone();
                limited(limit, async move { at.notify.notified().await }).await?;
            }
        },
        11 => {
            let at = meeting.clone();
            let _ = limited(limit, async move { at.barrier.wait().await }).await?;
        }
        12 => latest(step, meeting, limit).await?,
        13 => broadcasts(step, meeting, limit).await?,
        14 => one(step, limit).await?,
        15 => made_once(step, limit).await?,
        _ => own_channel(step, limit).await?,
    }
    Ok(())
}

/// Waits that others find in line, under wakers that act.
async fn loudly(
    step: &mut Step,
    meeting: Arc<Meeting>,
    limit: Duration,
) -> kinfolk_core::Result<()> {
    match step.rng.below(5) {
        0 => {
            let at = meeting.clone();
            let receive = async move { at.rendezvous.1.recv().await };
            let receive = Box::pin(limited(limit, receive));
            drop(under_foreign_wakers(step, receive).await?);
        }
        1 => {
            let lock = meeting.mutex.clone().lock_owned();
            let lock = Box::pin(limited(limit, lock));
            let guard = under_foreign_wakers(step, lock).await?;
            step.world.put_other(guard);
        }
        2 => {
            let lock = meeting.rwlock.clone().write_owned();
            let lock = Box::pin(limited(limit, lock));
            let guard = under_foreign_wakers(step, lock).await?;
            step.world.put_other(guard);
        }
        3 => {
            let value = step.value();
            let at = meeting.clone();
            let send = async move { at.rendezvous.0.send(value).await };
            let send = Box::pin(limited(limit, send));
            under_foreign_wakers(step, send).await?;
        }
        _ => {
            let mut receiver = meeting.latest.1.clone();
            let changed = Box::pin(limited(limit, async move { receiver.changed().await }));
            let _ = under_foreign_wakers(step, changed).await?;
        }
    }
    Ok(())
}

/// Waits that have begun, and are dropped here or by others.
async fn half_way(step: &mut Step, meeting: Arc<Meeting>) {
    let value = step.value();
    match step.rng.below(5) {
        0 => {
            let at = meeting.clone();
            let mut send = boxed(async move { drop_alone(at.bounded.0.send(value).await) });
            once(&mut send).await;
            drop(send);
        }
        1 => {
            drop_alone(value);
            let receiver = meeting.rendezvous.1.clone();
            let mut receive = boxed(async move { drop_alone(receiver.recv().await) });
            once(&mut receive).await;
            step.world.put_other(receive);
        }
        2 => {
            let sender = meeting.rendezvous.0.clone();
            let mut send = boxed(async move { drop_alone(sender.send(value).await) });
            once(&mut send).await;
            step.world.put_other(send);
        }
        3 => {
            drop_alone(value);
            let mut lock = Box::pin(meeting.mutex.clone().lock_owned());
            once(&mut lock).await;
            step.world.put_other(lock);
        }
        _ => {
            drop_alone(value);
            let mut lock = Box::pin(meeting.rwlock.clone().write_owned());
            once(&mut lock).await;
            step.world.put_other(lock);
        }
    }
}

/// The latest value: replaced, changed in place by code that acts, and waited for.
async fn latest(
    step: &mut Step,
    meeting: Arc<Meeting>,
    limit: Duration,
) -> kinfolk_core::Result<()> {
    let (sender, receiver) = &meeting.latest;
    let value = step.value();
    match step.rng.below(5) {
        0 => drop(sender.send(Some(value))),
        1 => drop(sender.send_replace(Some(value))),
        2 => sender.send_modify(move |latest| {
            value.call();
            drop(latest.replace(value.clone()));
        }),
        3 => {
            let mut receiver = receiver.clone();
            let waits = async move {
                // Over a `?`.
                let value = Contained::new(value);
                let seen = receiver.wait_for(|latest| {
                    value.call();
                    latest.is_some()
                });
                drop(seen.await?);
                Ok::<_, kinfolk_core::Error>(())
            };
            limited(limit, waits).await?;
        }
        _ => {
            drop_alone(value);
            let mut receiver = receiver.clone();
            step.world.put_other(receiver.clone());
            let waits = async move { receiver.changed().await };
            limited(limit, waits).await?;
        }
    }
    Ok(())
}

async fn broadcasts(
    step: &mut Step,
    meeting: Arc<Meeting>,
    limit: Duration,
) -> kinfolk_core::Result<()> {
    let mut receiver = meeting.to_all.subscribe();
    for _ in 0..step.rng.below(4) {
        let value = step.value();
        drop_alone(meeting.to_all.send(value));
    }
    if step.rng.chance(0.5) {
        drop_alone(receiver.try_recv());
    }
    let waits = async move {
        let taken = receiver.recv().await;
        // What it has not taken goes with it.
        drop_alone(receiver);
        taken
    };
    step.world.put_other(meeting.to_all.subscribe());
    let taken = limited(limit, waits).await?;
    drop(taken);
    Ok(())
}

/// One value: sent by another job, never, or into a channel whose receiver waits here.
async fn one(step: &mut Step, limit: Duration) -> kinfolk_core::Result<()> {
    let (sender, receiver) = oneshot::channel();
    let value = step.value();
    match step.rng.below(4) {
        0 => {
            drop_alone(value);
            step.world.put_other(sender);
        }
        1 => {
            drop(sender.send(value));
            step.world.put_other(receiver);
            return Ok(());
        }
        2 => drop_alone((sender, value)),
        _ => {
            let job = step
                .here
                .launch(async move { drop_alone(sender.send(value)) });
            step.world.put(Thing::Job(job));
        }
    }
    let value = limited(limit, receiver).await?;
    step.dispose(value);
    Ok(())
}

/// A value that is made once, by one of two that come at once.
async fn made_once(step: &mut Step, limit: Duration) -> kinfolk_core::Result<()> {
    let cell = Arc::new(Contained::new(OnceCell::new()));
    let makes = [step.inner(), step.inner()].map(|body| {
        // What goes while the closure returns its future would lose that.
        let (cell, value) = (cell.clone(), Contained::new(step.value()));
        limited(limit, async move {
            let make = move || {
                value.call();
                async move { awaited(body).await.or_fail() }
            };
            cell.get_or_try_init(make).await.map(drop)
        })
    });
    for end in all_settled(makes).await {
        drop_alone(end);
    }
    Ok(())
}

/// Filled, with a hook that acts, and closed or left with what is in it.
async fn own_channel(step: &mut Step, limit: Duration) -> kinfolk_core::Result<()> {
    let (sender, receiver) = mpmc::channel(3);
    let hook = step.value();
    receiver.on_ready(move || hook.call());
    for _ in 0..1 + step.rng.below(4) {
        let value = step.value();
        drop_alone(sender.try_send(value));
    }
    if step.rng.chance(0.3) {
        // In place of the first.
        let hook = step.value();
        receiver.on_ready(move || hook.call());
    }
    match step.rng.below(4) {
        0 => {
            sender.close();
            step.world.put_other(receiver);
        }
        1 => {
            step.world.put_other(sender);
            drop(receiver);
        }
        2 => {
            drop_alone((sender, receiver));
        }
        _ => {
            drop_alone(sender);
            let waits = async move {
                while let Some(value) = receiver.recv().await? {
                    drop_alone(value);
                }
                Ok::<_, kinfolk_core::Error>(())
            };
            limited(limit, waits).await?;
        }
    }
    Ok(())
}
