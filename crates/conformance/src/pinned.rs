//! Lanes of one worker each. A host without them refuses every number.

use std::future::pending;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use kinfolk_core::host::Lane;
use kinfolk_core::{
    Error, ErrorKind, Main, Patience, Pinned, Pool, checkpoint, current_job, on, park, scope,
    shield, sleep, spawn, yield_now,
};
use kinfolk_testkit::{Gate, Lab, Log};

const MS: Duration = Duration::from_millis(1);

/// What is not told at once is dropped.
const IMPATIENT: Patience = Patience {
    unaware: Duration::ZERO,
    cleanup: Duration::ZERO,
};

/// Where something was polled and dropped, each time.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<Vec<ThreadId>>>);

impl Places {
    fn note(&self) {
        self.0.lock().unwrap().push(thread::current().id());
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// All of them are the same.
    fn only(&self) -> ThreadId {
        let seen = self.0.lock().unwrap();
        assert!(seen.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
        *seen.last().expect("some")
    }
}

/// Notes where it is dropped.
struct DropsAt(Places);

impl kinfolk_core::Success for DropsAt {}

impl Drop for DropsAt {
    fn drop(&mut self) {
        self.0.note();
    }
}

/// lane-5: every poll and the drop of a pinned task happen on one thread, which says that it
/// is that lane. The value belongs to the handle.
pub async fn lane_5_a_pinned_task_has_one_thread(_lab: Lab) {
    for lane in Pinned::all() {
        let places = Places::default();
        let seen = places.clone();
        let answer = on(lane, async move {
            let _local = DropsAt(seen.clone());
            for _ in 0..20 {
                seen.note();
                assert_eq!(Pinned::here().unwrap().lane(), lane);
                yield_now().await?;
                spawn(async { yield_now().await }).await?;
            }
            Ok::<_, Error>(thread::current().id())
        })
        .await;
        assert_eq!(answer.unwrap(), places.only());
    }
}

/// lane-5: a number that the host has no worker for is an error of the spawn, with words that
/// say which there are.
pub async fn lane_5_a_number_without_a_worker_is_an_error(lab: Lab) {
    let lanes = Pinned::all().len();
    for n in [lanes, lanes + 1, 300, 70_000, usize::MAX] {
        let polled = Arc::new(AtomicUsize::new(0));
        let body = || {
            let polled = polled.clone();
            async move {
                polled.fetch_add(1, SeqCst);
            }
        };
        let words = |text: String| {
            assert!(text.contains(&format!("no worker {n} ")), "{text}");
            match lanes {
                0 => assert!(text.contains("has no pinned lanes"), "{text}"),
                lanes => assert!(text.contains(&format!("Pinned({})", lanes - 1)), "{text}"),
            }
        };
        let answer = scope(async |s| {
            // A failure of its own, which only the handle has: nobody is cancelled.
            let error = s.on(Pinned(n)).spawn(body()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Failed);
            words(error.to_string());
            let refused = s.on(Pinned(n)).try_spawn(body()).unwrap_err();
            words(refused.to_string());
            refused.future.await;
            drop(s.on(Pinned(n)).launch(body()));
            checkpoint().await?;
            Ok(())
        })
        .await;
        answer.unwrap();
        assert_eq!(polled.load(SeqCst), 1, "what was given back");
        let failures = lab.take_failures();
        assert_eq!(failures.len(), 1, "that of the launch");
        words(failures[0].to_string());
    }
}

/// lane-5: what is not `Send` is made by the worker, or by code that runs there.
pub async fn lane_5_what_is_not_send_is_made_there(_lab: Lab) {
    for lane in Pinned::all() {
        let answer = spawn(async move {
            let s = kinfolk_core::Scope::current().expect("a job");
            let made = s.on(lane).spawn_with(move || {
                let shard = Rc::new(std::cell::Cell::new(1));
                async move {
                    let here = Pinned::here().expect("a worker");
                    assert_eq!(here.lane(), lane);
                    let other = shard.clone();
                    on(here, async move {
                        yield_now().await?;
                        other.set(other.get() + 1);
                        Ok::<_, Error>(())
                    })
                    .await?;
                    Ok::<_, Error>(shard.get())
                }
            });
            made.await
        })
        .await;
        assert_eq!(answer.unwrap(), 2);
    }
}

/// lane-5: a task that is cancelled before its first poll, one that is told and one that has
/// to be dropped are all dropped by their worker.
pub async fn lane_5_a_cancelled_pinned_task_is_dropped_there(lab: Lab) {
    for lane in Pinned::all() {
        let home = Places::default();
        let seen = home.clone();
        on(lane, async move { seen.note() }).await.unwrap();
        for how in 0..4 {
            let local = DropsAt(home.clone());
            let s = kinfolk_core::Scope::current().expect("a job");
            let gate = Gate::new();
            let begun = gate.clone();
            let before = home.len();
            let task = s.task("goes").patience(IMPATIENT).on(lane);
            let task = match how {
                0 => task.spawn_lazy(async move {
                    drop(local);
                    Ok::<_, Error>(())
                }),
                1 => task.spawn(async move {
                    let _local = local;
                    begun.open();
                    park().await?;
                    Ok::<_, Error>(())
                }),
                _ => task.spawn(async move {
                    let _local = local;
                    begun.open();
                    pending::<()>().await;
                    Ok::<_, Error>(())
                }),
            };
            if how > 0 {
                gate.wait().await;
            }
            match how {
                // The handle is dropped by the pool.
                3 => {
                    let job = task.job();
                    on(Pool, async move { drop(task) }).await.unwrap();
                    let _ = job.join().await.unwrap();
                }
                _ => {
                    let _ = task.stop("no more").await;
                }
            }
            // One that never began is dropped by whoever ends it, on its lane.
            assert_eq!(home.len(), before + 1, "{how}");
            home.only();
        }
    }
    assert!(lab.take_failures().is_empty());
}

/// lane-5: an output that no handle takes is dropped by its worker, wherever its handle goes;
/// one that is taken belongs to the handle.
pub async fn lane_5_an_untaken_output_is_dropped_there(lab: Lab) {
    for lane in Pinned::all() {
        let home = Places::default();
        let seen = home.clone();
        on(lane, async move { seen.note() }).await.unwrap();
        for keeps_handle in [true, false] {
            let value = DropsAt(home.clone());
            let before = home.len();
            let task = on(lane, async move { value });
            let job = task.job();
            if keeps_handle {
                let _ = task.join().await.unwrap();
                on(Pool, async move { drop(task) }).await.unwrap();
            } else {
                let child = Gate::new();
                drop(task.into_job());
                let _ = job.join().await.unwrap();
                child.open();
            }
            while home.len() == before {
                lab.settle().await;
                yield_now().await.unwrap();
            }
            home.only();
        }
        let taken = on(lane, async move { DropsAt(Places::default()) }).await;
        drop(taken.unwrap());
    }
}

/// lane-5: a job of the lane whose last child ends elsewhere is ended by its worker: cleanup
/// hooks and the output that no handle takes are there.
pub async fn lane_5_a_pinned_job_is_ended_on_its_lane(_lab: Lab) {
    for lane in Pinned::all() {
        let home = Places::default();
        let (value, hook, seen) = (DropsAt(home.clone()), home.clone(), home.clone());
        let gate = Gate::new();
        let held = gate.clone();
        let begun = Gate::new();
        let begins = begun.clone();
        let s = kinfolk_core::Scope::current().expect("a job");
        let job = s.on(lane).launch(async move {
            seen.note();
            let end = kinfolk_core::on_cancel_or_end(move |_| hook.note());
            std::mem::forget(end);
            kinfolk_core::launch(async move { held.wait().await });
            begins.open();
            value
        });
        begun.wait().await;
        spawn(async move { gate.open() }).await.unwrap();
        let _ = job.join().await.unwrap();
        home.only();
        assert!(home.len() >= 2, "{}", home.len());
    }
}

/// lane-5, handle-3: `spawn_now` is inline on the same lane only.
pub async fn lane_5_spawn_now_across_lanes_is_a_spawn(_lab: Lab) {
    let lanes: Vec<_> = Pinned::all().collect();
    for lane in &lanes {
        let (lane, lanes) = (*lane, lanes.clone());
        on(lane, async move {
            let s = kinfolk_core::Scope::current().expect("a job");
            let log = Log::new();
            let words = log.clone();
            let now = s.on(lane).spawn_now(async move {
                words.say("inline");
                yield_now().await?;
                words.say("later");
                Ok::<_, Error>(thread::current().id())
            });
            assert_eq!(log.text(), "inline");
            assert_eq!(now.await?, thread::current().id());
            for other in lanes.iter().copied().filter(|other| *other != lane) {
                let there = s.on(other).spawn_now(async move {
                    assert_eq!(Pinned::here().map(|here| here.lane()), Some(other));
                });
                there.await?;
            }
            s.task("pool").spawn_now(async {}).await?;
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
    }
}

/// lane-5: a scope and a shield are on the lane of the task that polls them; a child is where
/// it is spawned. A snapshot shows it.
pub async fn lane_5_a_scope_is_on_the_lane_of_its_task(lab: Lab) {
    for lane in Pinned::all() {
        let tree = lab.tree().clone();
        on(lane, async move {
            let number = Lane::Pinned(u16::try_from(lane.0).unwrap());
            scope(async |s| {
                s.task("elsewhere").launch(async { park().await });
                shield(async {
                    let id = current_job().unwrap().id();
                    let seen = tree.snapshot();
                    let of = |wanted| {
                        seen.nodes()
                            .iter()
                            .find(|node| node.id == wanted)
                            .unwrap()
                            .lane
                    };
                    assert_eq!(of(id), number);
                    assert_eq!(of(s.job().id()), number);
                    let child = seen
                        .nodes()
                        .iter()
                        .find(|node| node.name == "elsewhere")
                        .unwrap();
                    assert_eq!(child.lane, Lane::Pool);
                    let words = format!("on pinned {}", lane.0);
                    assert!(seen.to_string().contains(&words), "{seen}");
                })
                .await?;
                s.cancel_children("seen");
                Ok(())
            })
            .await
        })
        .await
        .unwrap();
    }
}

/// lane-5, lane-2: to await a child on the same lane is a hand-over, and the awaiter resumes on
/// its own lane whichever it awaits.
pub async fn lane_5_an_awaiter_resumes_on_its_own_lane(_lab: Lab) {
    let lanes: Vec<_> = Pinned::all().collect();
    for own in lanes.clone() {
        let lanes = lanes.clone();
        on(own, async move {
            let here = thread::current().id();
            for other in lanes {
                on(other, async move {
                    assert_eq!(Pinned::here().map(|here| here.lane()), Some(other));
                })
                .await?;
                assert_eq!(thread::current().id(), here);
                on(Pool, async { yield_now().await }).await?;
                assert_eq!(thread::current().id(), here);
                on(Main, async { yield_now().await }).await?;
                assert_eq!(thread::current().id(), here);
            }
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
    }
}

/// lane-5, time-6: timers that wake tasks of one pinned lane do so in the order of their
/// deadlines.
pub async fn lane_5_timers_of_a_lane_go_in_their_order(_lab: Lab) {
    for lane in Pinned::all() {
        let log = Log::new();
        let answer = scope(async |s| {
            for late in [3_u32, 1, 2, 1] {
                let log = log.clone();
                s.on(lane).launch(async move {
                    sleep(late * MS).await?;
                    log.say(late.to_string());
                    Ok::<_, Error>(())
                });
            }
            Ok(())
        })
        .await;
        answer.unwrap();
        assert_eq!(log.text(), "1 1 2 3");
    }
}

/// lane-5, host-2: a factory timer makes its runs on its lane, also what stays there.
pub async fn lane_5_a_factory_timer_runs_on_its_lane(_lab: Lab) {
    for lane in Pinned::all() {
        let s = kinfolk_core::Scope::current().expect("a job");
        let runs = s.on(lane).spawn_with(move || async move {
            let ran = Arc::new(AtomicUsize::new(0));
            let (counts, stays) = (ran.clone(), Rc::new(()));
            let s = kinfolk_core::Scope::current().expect("a job");
            let far = s.timer("from afar").on(lane).delay(MS, move || {
                counts.fetch_add(1, SeqCst);
                async move { assert_eq!(Pinned::here().map(|here| here.lane()), Some(lane)) }
            });
            let here = Pinned::here().expect("a worker");
            let (counts, shared) = (ran.clone(), stays.clone());
            let near = s.timer("from here").on(here).delay(MS, move || {
                counts.fetch_add(1, SeqCst);
                let shared = shared.clone();
                async move {
                    yield_now().await?;
                    drop(shared);
                    Ok::<_, Error>(())
                }
            });
            while ran.load(SeqCst) < 2 {
                sleep(MS).await?;
            }
            drop((far, near));
            Ok::<_, Error>(ran.load(SeqCst))
        });
        assert_eq!(runs.await.unwrap(), 2);
    }
}
