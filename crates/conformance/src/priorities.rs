//! Priorities: who inherits one, what shows it, and that none starves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use kinfolk_core::{
    Cancelled, Error, JobState, Main, Pinned, Priority, Result, Scope, checkpoint, cleanup, detach,
    local_scope, park, scope, shield, spawn, yield_now,
};
use kinfolk_testkit::{Gate, Lab, Log};

use Priority::{High, Low, Normal};

const ALL: [Priority; 3] = [Low, Normal, High];

/// The scope of the current job.
fn here() -> Scope {
    Scope::current().expect("a job")
}

/// Goes round until `done`.
async fn rounds(done: Arc<AtomicBool>) -> Result<(), Cancelled> {
    while !done.load(SeqCst) {
        yield_now().await?;
    }
    Ok(())
}

/// The priority of each job that is named, as soon as all of them are there.
async fn shown<const N: usize>(lab: &Lab, names: [&str; N]) -> [Priority; N] {
    loop {
        let seen = lab.snapshot();
        if names.iter().all(|name| seen.find(name).is_some()) {
            return names.map(|name| seen.find(name).expect("seen").priority);
        }
        yield_now().await.expect("nothing is cancelled");
    }
}

/// lane-5: a task has the priority of the job that it is spawned in, unless it is given one
/// of its own, and so has what is below it. A scope gives one to what is spawned in it; a
/// detached job has the normal one.
pub async fn lane_5_a_priority_is_inherited_until_another_is_set(lab: Lab) {
    let gate = Gate::new();
    let wait = || {
        let gate = gate.clone();
        async move { gate.wait().await }
    };
    let (a, b, c, d, e, f) = (wait(), wait(), wait(), wait(), wait(), wait());
    let high = here().task("high").priority(High).spawn(async move {
        here().task("below").spawn(a).into_job();
        here().task("own").priority(Low).launch(async move {
            here().task("below own").launch(b);
        });
        let detached = detach(c);
        Scope::build()
            .named("low scope")
            .priority(Low)
            .run(async |s| {
                s.task("in scope").launch(d);
                s.task("again normal").priority(Normal).launch(e);
                local_scope(async |inner| {
                    inner
                        .spawn(async {
                            here().task("in local").launch(f);
                        })
                        .await
                })
                .await
            })
            .await?;
        Ok::<_, Error>(detached)
    });
    let names = [
        "high",
        "below",
        "own",
        "below own",
        "low scope",
        "in scope",
        "again normal",
    ];
    let expected = [High, High, Low, Low, Low, Low, Normal];
    assert_eq!(shown(&lab, names).await, expected);
    assert_eq!(shown(&lab, ["in local"]).await, [Low]);
    let seen = lab.snapshot();
    let detached = seen.children(seen.nodes()[0].id);
    assert!(
        detached
            .filter(|node| node.name != "high")
            .all(|node| node.priority == Normal)
    );
    let (text, dump) = (seen.text().unfolded().to_string(), format!("{high:?}"));
    let shows = |name: &str, words: &str| {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("\"{name}\"")));
        assert_eq!(
            line.expect(name).contains(words),
            !words.is_empty(),
            "{text}"
        );
    };
    shows("high", "high priority");
    shows("in scope", "low priority");
    assert!(
        !text.lines().any(|line| line.contains("normal priority")),
        "{text}"
    );
    assert!(dump.contains("priority: High"), "{dump}");
    gate.open();
    let _ = high.await.unwrap().join().await.unwrap();
}

/// lane-5: tasks of one priority that go round for ever leave turns to the others.
pub async fn lane_5_no_priority_starves_another(_lab: Lab) {
    for hogs in ALL {
        let answer = scope(async |s| {
            let done = Arc::new(AtomicBool::new(false));
            for _ in 0..8 {
                s.task("hog").priority(hogs).launch(rounds(done.clone()));
            }
            let others = ALL.map(|priority| {
                s.task("other").priority(priority).spawn(async {
                    for _ in 0..50 {
                        yield_now().await?;
                    }
                    Ok::<_, Cancelled>(())
                })
            });
            for other in others {
                other.await?;
            }
            done.store(true, SeqCst);
            Ok(())
        });
        answer.await.unwrap();
    }
}

/// lane-5: a task that awaits one of a lower priority lends it nothing, and goes on all the
/// same when that one has had its turns, in which others of its own priority go round.
pub async fn lane_5_a_high_task_awaits_a_low_one(_lab: Lab) {
    let done = Arc::new(AtomicBool::new(false));
    let answer = scope(async |s| {
        for priority in [High, Normal] {
            s.task("hog")
                .priority(priority)
                .launch(rounds(done.clone()));
        }
        let waits = s.task("waits").priority(High).spawn(async {
            let low = here().task("low").priority(Low).spawn(async {
                let high = here().task("deeper").priority(High).spawn(async {
                    yield_now().await?;
                    Ok::<_, Cancelled>(7)
                });
                high.await
            });
            low.await
        });
        let value = waits.await?;
        done.store(true, SeqCst);
        Ok(value)
    });
    assert_eq!(answer.await.unwrap(), 7);
}

/// lane-5: what is cancelled together is woken together, whatever its priority, and cleans up
/// beside high tasks that go round for ever.
pub async fn lane_5_what_is_cancelled_has_its_turns(_lab: Lab) {
    let done = Arc::new(AtomicBool::new(false));
    let cleaned = Arc::new(AtomicUsize::new(0));
    let answer = scope(async |s| {
        for _ in 0..4 {
            s.task("hog").priority(High).launch(rounds(done.clone()));
        }
        let begun = Arc::new(AtomicUsize::new(0));
        let family = s.task("family").priority(Low).spawn({
            let (cleaned, begun) = (cleaned.clone(), begun.clone());
            async move {
                for n in 0..90 {
                    let (cleaned, begun) = (cleaned.clone(), begun.clone());
                    here().task("one").priority(ALL[n % 3]).launch(async move {
                        begun.fetch_add(1, SeqCst);
                        let told = park().await;
                        cleanup(async {
                            yield_now().await?;
                            cleaned.fetch_add(1, SeqCst);
                            Ok::<_, Cancelled>(())
                        })
                        .await?;
                        Ok::<_, Error>(told?)
                    });
                }
                park().await
            }
        });
        while begun.load(SeqCst) < 90 {
            yield_now().await?;
        }
        let _ = family.stop("no more").await;
        done.store(true, SeqCst);
        Ok(())
    });
    answer.await.unwrap();
    assert_eq!(cleaned.load(SeqCst), 90);
}

/// lane-5: every way to start a task takes a priority, and what becomes of the task does not
/// depend on it: a value, a failure, a panic, a cancel before the first poll, a handle that is
/// dropped.
pub async fn lane_5_every_spawn_takes_a_priority(lab: Lab) {
    for priority in [Low, High] {
        let s = here();
        let place = || s.task("it").priority(priority);
        assert_eq!(place().spawn(async { 1 }).await.unwrap(), 1);
        let log = Log::new();
        let words = log.clone();
        let now = place().spawn_now(async move {
            words.say("inline");
            yield_now().await?;
            Ok::<_, Cancelled>(2)
        });
        assert_eq!(now.await.unwrap(), 2);
        assert_eq!(log.text(), "inline");
        assert_eq!(place().spawn_lazy(async { 3 }).await.unwrap(), 3);
        assert_eq!(place().spawn_atomic(async { 4 }).await.unwrap(), 4);
        assert_eq!(place().try_spawn(async { 5 }).unwrap().await.unwrap(), 5);
        let service = place().spawn_service(async { park().await });
        assert!(service.stop("served").await.unwrap().is_cancelled());
        let failed = place()
            .attempted()
            .spawn(async { Err::<(), _>(Error::msg("no")) });
        assert!(failed.await.unwrap_err().to_string().contains("no"));
        let panicked = place().attempted().spawn(async {
            yield_now().await?;
            std::panic::resume_unwind(Box::new("oh"));
            #[allow(unreachable_code)]
            Ok::<_, Cancelled>(())
        });
        assert!(panicked.await.unwrap_err().to_string().contains("oh"));
        let job = {
            let dropped = place().spawn(async { park().await });
            dropped.job()
        };
        assert!(job.join().await.unwrap().is_cancelled());
        assert_eq!(job.state(), JobState::Cancelled);
    }
    assert!(lab.take_failures().is_empty());
}

/// lane-5: on a lane that one thread turns a priority decides nothing, and is handed on to
/// what is spawned on the pool. Jobs of different priorities end each other in one go.
pub async fn lane_5_a_priority_passes_through_a_lane_of_one_thread(lab: Lab) {
    let gate = Gate::new();
    let below = |name: &'static str| {
        let gate = gate.clone();
        async move {
            here().task(name).launch(async move { gate.wait().await });
            yield_now().await
        }
    };
    let main = here()
        .task("on main")
        .priority(High)
        .on(Main)
        .spawn(below("below main"));
    let has_main = !main.is_ended();
    let pinned: Vec<_> = Pinned::all()
        .map(|lane| {
            here()
                .task("pinned")
                .priority(Low)
                .on(lane)
                .spawn(below("below pinned"))
        })
        .collect();
    if has_main {
        assert_eq!(shown(&lab, ["on main", "below main"]).await, [High, High]);
    }
    if !pinned.is_empty() {
        assert_eq!(shown(&lab, ["pinned", "below pinned"]).await, [Low, Low]);
    }
    gate.open();
    for task in pinned {
        task.await.unwrap();
    }
    assert_eq!(main.await.is_ok(), has_main);
    let _ = lab.take_failures();
}

/// lane-5: a normal parent whose last child is low, and a low one whose last child is high,
/// end with it.
pub async fn lane_5_parents_end_with_children_of_other_priorities(_lab: Lab) {
    for (parent, child) in [(Normal, Low), (Low, High), (High, Low), (High, Normal)] {
        let gate = Gate::new();
        let opens = gate.clone();
        let family = here().task("parent").priority(parent).spawn(async move {
            here()
                .task("child")
                .priority(child)
                .launch(async move { gate.wait().await });
            shield(async { checkpoint().await }).await
        });
        spawn(async move { opens.open() }).await.unwrap();
        family.await.unwrap();
    }
}
