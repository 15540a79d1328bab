//! Seeing: what one can ask about jobs, the tree, the counters, the events.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::poll;
use futures_util::stream::{FuturesUnordered, StreamExt};
use kinfolk_core::{
    CountersSnapshot, Error, ErrorKind, Event, EventKind, Interests, JobId, JobKind, JobState,
    Lane, OrCancel, ReasonKind, RingSink, Scope, Sink, WaitKind, checkpoint, cleanup, current_job,
    ignore_cancellation, launch, park, scope, shield, sleep, spawn, timeout, yield_now,
};
use kinfolk_see::WriteJson;
use kinfolk_testkit::{Gate, Lab, Tally};

const MS: Duration = Duration::from_millis(1);

type Boxed = Pin<Box<dyn Future<Output = Result<u32, Error>> + Send>>;

// --- see-1 ---

/// see-1: what each job waits on: kind, site and since when.
pub async fn see_1_what_a_job_waits_on(lab: Lab) {
    let gate = Gate::new();
    let stopped = Scope::named("home")
        .run(async |s| {
            let (foreign, pointed) = (gate.clone(), gate.clone());
            s.task("sleeper").launch(sleep(1000 * MS));
            s.task("foreign")
                .launch(async move { foreign.wait().await });
            s.task("or")
                .launch(async move { pointed.wait().or_cancel().await });
            let parked = s.task("parked").launch(park());
            s.task("joiner")
                .launch(async move { parked.join().await.map(|_| ()) });
            s.task("owner").launch(async {
                let s = Scope::current().unwrap();
                s.task("owned").spawn(park()).await.map(|_| ())
            });
            s.task("opener")
                .launch(Scope::named("open").run_future(park()));
            s.task("leaver").launch(Scope::named("left").run(async |s| {
                s.task("last").launch(park());
                Ok(())
            }));
            lab.settle().await;
            sleep(50 * MS).await?;
            let tree = lab.snapshot();
            let waits = |name: &str| tree.find(name).unwrap().waits_on.unwrap();
            for (name, kind) in [
                ("sleeper", WaitKind::Sleep),
                ("or", WaitKind::OrCancel),
                ("parked", WaitKind::Park),
                ("joiner", WaitKind::Join),
                ("owner", WaitKind::Task),
                ("opener", WaitKind::Scope),
                ("open", WaitKind::Park),
            ] {
                let (found, site, since) = waits(name);
                assert_eq!(found, kind, "{name}");
                assert!(site.unwrap().file().ends_with("seeing.rs"), "{name}");
                assert_eq!(since, 50 * MS, "{name}");
            }
            let (kind, site, since) = waits("foreign");
            assert_eq!((kind, site, since), (WaitKind::Foreign, None, 50 * MS));
            // Its body is over: the task waits for the scope's children.
            assert_eq!(waits("leaver").0, WaitKind::Children);
            s.cancel("enough");
            gate.open();
            checkpoint().await?;
            Ok(())
        })
        .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
}

/// see-1: id, name, spawn site, parent, state, age, polls, deadline.
pub async fn see_1_what_one_can_ask_about_a_job(lab: Lab) {
    let error = Scope::named("home")
        .timeout(100 * MS)
        .run(async |s| {
            let line = line!() + 1;
            let task = s.task("worker").spawn(async {
                yield_now().await?;
                park().await?;
                Ok::<_, Error>(())
            });
            let fresh = lab.snapshot();
            let node = fresh.find("worker").unwrap();
            assert_eq!((node.state, node.polls), (JobState::New, 0));
            assert_eq!(node.waits_on, None);
            sleep(30 * MS).await?;

            let tree = lab.snapshot();
            let home = tree.find("home").unwrap();
            assert_eq!(home.id, s.job().id());
            assert_eq!(home.kind, JobKind::Scope);
            assert_eq!(home.parent, s.job().parent().map(|job| job.id()));
            assert_eq!(home.deadline_in, Some(70 * MS));
            assert_eq!(home.age, 30 * MS);

            let node = tree.find("worker").unwrap();
            assert_eq!(node.id, task.id());
            assert_eq!(node.parent, Some(home.id));
            assert_eq!(node.depth, home.depth + 1);
            assert_eq!((node.kind, node.state), (JobKind::Task, JobState::Active));
            assert_eq!(node.age, 30 * MS);
            assert_eq!(node.polls, 2);
            assert_eq!(node.deadline_in, None);
            assert_eq!((node.told_since, &node.reason), (None, &None));
            assert_eq!(node.site.line(), line);
            assert!(node.site.file().ends_with("seeing.rs"));
            assert!(!node.shielded && !node.swallows_cancellation);
            park().await?;
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// see-1: how many wait for a job, since when it was told, and why.
pub async fn see_1_who_waits_and_since_when_it_was_told(lab: Lab) {
    let task = Scope::current().unwrap().task("slow").spawn(async {
        let told = park().await;
        cleanup(sleep(100 * MS)).await?;
        told?;
        Ok::<_, Error>(())
    });
    let job = task.job();
    assert_eq!(lab.snapshot().find("slow").unwrap().waiters, 0);
    let mut joiners = Vec::new();
    for _ in 0..2 {
        let job = job.clone();
        joiners.push(spawn(async move { job.join().await.map(|_| ()) }));
    }
    let owner = spawn(async move { Ok::<_, Error>(task.await.unwrap_err().kind()) });
    lab.settle().await;
    assert_eq!(lab.snapshot().find("slow").unwrap().waiters, 3);
    drop(joiners.pop());
    lab.settle().await;
    assert_eq!(lab.snapshot().find("slow").unwrap().waiters, 2);

    sleep(10 * MS).await.unwrap();
    job.cancel("enough");
    sleep(40 * MS).await.unwrap();
    let tree = lab.snapshot();
    let node = tree.find("slow").unwrap();
    assert_eq!(node.state, JobState::Cancelling);
    assert_eq!(node.told_since, Some(40 * MS));
    assert!(node.reason.as_ref().unwrap().contains("enough"));
    let shield = tree.children(job.id()).next().unwrap();
    assert_eq!(shield.kind, JobKind::Shield);
    assert!(shield.shielded);
    assert_eq!(owner.await.unwrap(), ErrorKind::Stopped);
    joiners.pop().unwrap().await.unwrap();
}

/// P04: who waits for a job, by name: the scope that awaits its task, two
/// joiners; and how many wait outside any job. It prints and serialises.
pub async fn case_p04_who_waits_for_a_job_by_name(lab: Lab) {
    let s = Scope::current().unwrap();
    let gate = Gate::new();
    let door = gate.clone();
    let task = s.task("slow").spawn(async move { door.wait().await });
    let other = s.task("other").spawn(async { 7 });
    lab.settle().await;
    let job = task.job();
    let node = |name: &str| lab.snapshot().find(name).unwrap().clone();
    assert!(!node("slow").to_string().contains("waited for"));
    assert!(lab.snapshot().to_json().contains(r#""waited_for_by":[]"#));

    let mut joiners = Vec::new();
    for name in ["a", "b"] {
        let job = job.clone();
        joiners.push(
            s.task(name)
                .spawn(async move { job.join().await.map(|_| ()) }),
        );
        lab.settle().await;
    }
    let owner = s
        .task("owner")
        .spawn(Scope::named("home").run(async move |_| {
            // Each under a waker of its own.
            let all: FuturesUnordered<Boxed> = FuturesUnordered::new();
            all.push(Box::pin(async move { task.await.map(|()| 0) }));
            all.push(Box::pin(other));
            let all: Vec<_> = all.collect().await;
            Ok(all.into_iter().map(Result::unwrap).sum::<u32>())
        }));
    lab.settle().await;
    let slow = node("slow");
    let home = node("home");
    assert_eq!((slow.waiters, slow.waiters_outside()), (3, 0));
    let who: Vec<_> = slow.waited_for_by.iter().map(|who| who.id).collect();
    let ids = [home.id, node("a").id, node("b").id];
    assert_eq!(who, ids, "the scope that awaits it, not the task around it");
    // Who waits for its children or its scopes is in the tree.
    assert_eq!((home.waiters, node("owner").waiters), (0, 0));

    // One more, outside any job.
    let outside = job.clone();
    let join = std::thread::spawn(move || {
        let mut join = outside.join();
        let polled = Pin::new(&mut join).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        join
    });
    let join = join.join().unwrap();
    let slow = node("slow");
    assert_eq!((slow.waiters, slow.waiters_outside()), (4, 1));
    let words = ", waited for by \"home\", \"a\", \"b\", 1 outside";
    assert!(slow.to_string().ends_with(words), "{slow}");
    let json = lab.snapshot().to_json();
    let words = format!(
        r#""waiters":4,"waited_for_by":[{{"id":{},"name":"home"}},{{"id":{},"name":"a"}},{{"id":{},"name":"b"}}],"#,
        ids[0].number(),
        ids[1].number(),
        ids[2].number()
    );
    assert!(json.contains(&words), "{json}");

    // A wait that is given up is named no more.
    drop((join, joiners.remove(0)));
    lab.settle().await;
    let slow = node("slow");
    let words = ", waited for by \"home\", \"b\"";
    assert!(slow.to_string().ends_with(words), "{slow}");
    gate.open();
    assert_eq!(owner.await.unwrap(), 7);
    joiners.remove(0).await.unwrap();
}

/// see-1: a wait that moves from one job to another is named after the one
/// that polled it last.
pub async fn see_1_a_wait_that_moves_is_named_after_its_new_job(lab: Lab) {
    let s = Scope::current().unwrap();
    let gate = Gate::new();
    let door = gate.clone();
    let mut task = s.task("slow").spawn(async move { door.wait().await });
    let mut join = task.join();
    let named = || {
        let tree = lab.snapshot();
        let waiters = &tree.find("slow").unwrap().waited_for_by;
        let named: Vec<_> = waiters.iter().map(ToString::to_string).collect();
        named.join(" ")
    };
    Scope::named("first")
        .run(async |_| {
            assert!(poll!(&mut task).is_pending());
            assert!(poll!(&mut join).is_pending());
            assert_eq!(named(), "\"first\" \"first\"");
            Ok(())
        })
        .await
        .unwrap();
    Scope::named("second")
        .run(async |_| {
            assert!(poll!(&mut task).is_pending());
            let first = named();
            let (moved, gone) = first.split_once(' ').unwrap();
            assert_eq!(moved, "\"second\"");
            assert!(
                gone.starts_with('#'),
                "it has ended and has no name: {gone}"
            );
            assert!(poll!(&mut join).is_pending());
            assert_eq!(named(), "\"second\" \"second\"");
            Ok(())
        })
        .await
        .unwrap();
    gate.open();
    task.await.unwrap();
    assert!(join.await.unwrap().is_completed());
}

/// see-1: a body that has swallowed a hundred Cancelleds is named for it.
pub async fn see_1_a_body_that_swallows_cancellation_is_named(lab: Lab) {
    let gates = [Gate::new(), Gate::new()];
    let doors = gates.clone();
    let task = Scope::current().unwrap().task("deaf").spawn(async move {
        assert!(park().await.is_err());
        for _ in 0..98 {
            assert!(checkpoint().await.is_err());
        }
        shield(doors[0].wait()).await?;
        assert!(checkpoint().await.is_err());
        shield(doors[1].wait()).await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    for (gate, named) in gates.iter().zip([false, true]) {
        lab.settle().await;
        let tree = lab.snapshot();
        let node = tree.find("deaf").unwrap();
        assert_eq!(node.swallows_cancellation, named);
        assert_eq!(node.to_string().contains("swallows cancellation"), named);
        gate.open();
    }
    assert!(task.outcome().await.unwrap().is_cancelled());
}

// --- see-2 ---

/// see-2: the snapshot is made by reading: nothing is polled, nothing
/// happens.
pub async fn see_2_a_snapshot_disturbs_nobody(lab: Lab) {
    let tally = Tally::new();
    scope(async |s| {
        let task = s.spawn(tally.count(park()));
        lab.settle().await;
        let before = (tally.polls(), lab.events().len(), lab.counters());
        for _ in 0..3 {
            let tree = lab.snapshot();
            assert!(!tree.to_string().is_empty());
            assert!(!tree.to_json().is_empty());
        }
        assert_eq!((tally.polls(), lab.events().len(), lab.counters()), before);
        drop(task);
        Ok(())
    })
    .await
    .unwrap();
}

/// see-2: exact at rest: every living job, each once, below its parent.
pub async fn see_2_the_snapshot_is_exact_at_rest(lab: Lab) {
    let check = |extra: usize| {
        let tree = lab.snapshot();
        assert_eq!(tree.len() as u64, lab.counters().living());
        assert_eq!(tree.len(), 2 + extra);
        let mut ids: Vec<_> = tree.nodes().iter().map(|node| node.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), tree.len());
        for (n, node) in tree.nodes().iter().enumerate() {
            match node.parent {
                None => assert_eq!((n, node.depth), (0, 0)),
                Some(parent) => {
                    let above = tree.nodes()[..n].iter().find(|node| node.id == parent);
                    assert_eq!(above.expect("before its children").depth + 1, node.depth);
                }
            }
        }
    };
    check(0);
    let stopped = scope(async |s| {
        check(1);
        for _ in 0..3 {
            s.launch(async {
                launch(park());
                timeout(1000 * MS, park()).await.map(|_| ())
            });
        }
        lab.settle().await;
        check(10);
        s.cancel("enough");
        check(10);
        lab.settle().await;
        check(1);
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    check(0);
}

/// see-2: it prints as a tree.
pub async fn see_2_it_prints_as_a_tree(lab: Lab) {
    let stopped = Scope::named("home")
        .run(async |s| {
            s.task("a").launch(async {
                let s = Scope::current().unwrap();
                s.task("a1").launch(park());
                park().await.map(|_| ())
            });
            s.task("b").launch(park());
            lab.settle().await;
            let text = lab.snapshot().to_string();
            let line = |name: &str| {
                let name = format!("\"{name}\"");
                let line = text.lines().find(|line| line.contains(&name));
                let (front, rest) = line.unwrap().split_once(&name).unwrap();
                (front.to_string(), rest.to_string())
            };
            assert!(text.starts_with("root \"root\" "), "{text}");
            assert!(line("home").0.ends_with("└── scope "), "{text}");
            assert!(line("a").0.ends_with("├── task "), "{text}");
            assert!(line("a1").0.ends_with("│   └── task "), "{text}");
            assert!(line("b").0.ends_with("└── task "), "{text}");
            let rest = line("b").1;
            assert!(rest.contains("  Active  "), "{text}");
            assert!(rest.contains("  waits on park at "), "{text}");
            // The columns stand one below the other.
            let states = text.lines().map(|line| {
                let (front, _) = line.split_once("Active").expect("a state");
                front.chars().count()
            });
            let states: Vec<_> = states.collect();
            assert!(states.iter().all(|at| *at == states[0]), "{text}");
            assert!(rest.contains("seeing.rs:"), "{text}");
            assert_eq!(text.lines().count(), lab.snapshot().len());
            s.cancel("enough");
            checkpoint().await?;
            Ok(())
        })
        .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
}

/// see-2: it serialises to JSON, with every name escaped.
pub async fn see_2_it_serialises_to_json(lab: Lab) {
    let stopped = Scope::named("a \"quoted\"\nname\\")
        .run(async |s| {
            let child = s.task("child\u{1}").launch(sleep(100 * MS));
            lab.settle().await;
            let json = lab.snapshot().to_json();
            assert!(json.starts_with("{\"format\":1,\"taken_ms\":"), "{json}");
            assert!(json.ends_with("}\n]}\n"), "{json}");
            assert_eq!(json.matches("\"depth\":").count(), lab.snapshot().len());
            assert!(json.contains(r#""name":"a \"quoted\"\nname\\""#), "{json}");
            assert!(json.contains(r#""name":"child\u0001""#), "{json}");
            let link = format!(
                "{{\"id\":{},\"parent\":{},",
                child.id().number(),
                s.job().id().number()
            );
            assert!(json.contains(&link), "{json}");
            assert!(json.contains(r#""waits_on":"sleep""#), "{json}");
            assert_eq!(json.lines().count(), lab.snapshot().len() + 2, "{json}");
            s.cancel("enough");
            checkpoint().await?;
            Ok(())
        })
        .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
}

// --- see-3 ---

/// P08: living, runnable, the next deadline and the queue of timers are right
/// at four points of a script.
/// Also: see-3.
pub async fn case_p08_gauges_at_four_points_of_a_script(lab: Lab) {
    let gauges = || {
        let gauges = lab.tree().gauges();
        (
            gauges.living,
            gauges.runnable.unwrap(),
            gauges.next_deadline_in,
            gauges.queue("timers").unwrap(),
        )
    };
    let stopped = scope(async |s| {
        // 1: only this task, in its scope.
        assert_eq!(gauges(), (3, 1, None, 0));
        let mut tasks = Vec::new();
        for n in 1..=3 {
            tasks.push(s.spawn(sleep(50 * n * MS)));
        }
        s.launch(park());
        // 2: four more are queued, and none has set its timer.
        assert_eq!(gauges(), (7, 5, None, 0));
        lab.settle().await;
        // 3: all are blocked but this one.
        assert_eq!(gauges(), (7, 1, Some(50 * MS), 3));
        sleep(70 * MS).await?;
        // 4: one has ended; the second is due in thirty.
        assert_eq!(gauges(), (6, 1, Some(30 * MS), 2));
        let words = lab.tree().gauges().to_string();
        let start = "6 living, 1 runnable, next deadline in 30ms, ";
        assert!(words.starts_with(start), "{words}");
        assert!(words.contains("2 in timers"), "{words}");
        drop(tasks);
        s.cancel("enough");
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(gauges(), (2, 1, None, 0));
}

/// see-3: each counter is raised exactly once per event.
/// Also: K26.
pub async fn see_3_each_counter_counts_each_event_once(lab: Lab) {
    let before = lab.counters();
    Scope::build()
        .supervisor()
        .run(async |s| {
            // One completes, one fails, two are cancelled, one is waited for,
            // one is refused.
            let completed = s.spawn(async { 1 });
            let failed = s.spawn(async { Err::<(), _>("no") });
            let cancelled = s.spawn(park());
            let parent = s.spawn(async {
                timeout(3_600_000 * MS, park()).await?;
                Ok::<_, Error>(())
            });
            lab.settle().await;
            assert!(cancelled.cancel("one"));
            assert!(!cancelled.cancel("two"));
            assert!(parent.cancel("one"));
            lab.settle().await;
            let _ = completed.outcome().await?;
            let _ = failed.outcome().await?;
            let _ = cancelled.outcome().await?;
            let _ = parent.outcome().await?;
            assert!(s.launch(sleep(MS)).join().await?.is_completed());
            s.close();
            s.launch(async {});
            Ok(())
        })
        .await
        .unwrap();
    let after = lab.counters();
    let rose = |f: fn(&CountersSnapshot) -> u64| f(&after) - f(&before);
    assert_eq!(rose(|c| c.jobs_created), 7);
    assert_eq!(rose(|c| c.jobs_completed), 3);
    assert_eq!(rose(|c| c.jobs_failed), 1);
    assert_eq!(rose(|c| c.jobs_cancelled), 3);
    assert_eq!(rose(|c| c.jobs_refused), 1);
    assert_eq!(rose(|c| c.jobs_force_dropped), 0);
    assert_eq!(rose(|c| c.cancellations_requested), 2);
    assert_eq!(rose(|c| c.timers_set), 2);
    assert_eq!(rose(|c| c.timers_fired), 1);
    assert_eq!(rose(|c| c.timers_cancelled), 1);
    assert_eq!(rose(|c| c.waiters_registered), 1);
    assert_eq!(rose(|c| c.waiters_woken), 1);
    assert_eq!(rose(|c| c.waiters_removed), 0);
    let of = |counters: &CountersSnapshot, kind: JobKind| {
        let found = counters.created_by_kind.iter().find(|(k, _)| *k == kind);
        found.unwrap().1
    };
    let made = |kind| of(&after, kind) - of(&before, kind);
    assert_eq!(made(JobKind::Task), 5);
    assert_eq!(made(JobKind::Scope), 1);
    assert_eq!(made(JobKind::Timeout), 1);
    assert_eq!(made(JobKind::Shield), 0);
}

/// see-3: waiters balance: each is woken or removed, once.
pub async fn see_3_waiters_balance(lab: Lab) {
    let before = lab.counters();
    let job = launch(sleep(100 * MS));
    let mut waiters = Vec::new();
    for _ in 0..32 {
        let job = job.clone();
        waiters.push(spawn(async move { job.join().await.map(|_| ()) }));
    }
    lab.settle().await;
    let waiting = lab.counters();
    assert_eq!(waiting.waiters_registered - before.waiters_registered, 32);
    assert_eq!(waiting.waiters_pending() - before.waiters_pending(), 32);
    for waiter in waiters.drain(..8) {
        waiter.cancel("enough");
        assert!(waiter.outcome().await.unwrap().is_cancelled());
    }
    let removed = lab.counters();
    assert_eq!(removed.waiters_removed - before.waiters_removed, 8);
    assert!(job.join().await.unwrap().is_completed());
    lab.settle().await;
    let after = lab.counters();
    assert!(after.waiters_woken - before.waiters_woken >= 25);
    assert_eq!(after.waiters_removed - before.waiters_removed, 8);
    assert_eq!(after.waiters_pending(), before.waiters_pending());
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

/// see-3: the gauges are right at each stage of a script.
pub async fn see_3_living_and_pending_at_each_stage(lab: Lab) {
    let base = lab.counters();
    let gauges = || {
        let now = lab.counters();
        (
            now.living() - base.living(),
            now.timers_pending() - base.timers_pending(),
            now.waiters_pending() - base.waiters_pending(),
        )
    };
    assert_eq!(gauges(), (0, 0, 0));
    let sleeper = launch(sleep(10 * MS));
    assert_eq!(gauges(), (1, 0, 0), "not polled yet");
    lab.settle().await;
    assert_eq!(gauges(), (1, 1, 0));
    let watched = sleeper.clone();
    let joiner = spawn(async move { watched.join().await.map(|_| ()) });
    lab.settle().await;
    assert_eq!(gauges(), (2, 1, 1));
    joiner.await.unwrap();
    assert_eq!(gauges(), (0, 0, 0));
}

// --- see-4 ---

/// The events of one job, in order.
fn events_of(lab: &Lab, id: JobId) -> Vec<Event> {
    let all = lab.events();
    all.into_iter().filter(|event| event.job == id).collect()
}

/// Where the cancel was asked for that entered at the job of these events, and by which job.
fn cancel_request(events: &[Event]) -> Option<(&'static Location<'static>, Option<JobId>)> {
    events.iter().find_map(|event| match event.kind {
        EventKind::CancelRequest { site, by, .. } => Some((site, by)),
        _ => None,
    })
}

/// Those that are not of turns.
fn without_turns(events: &[Event]) -> Vec<EventKind> {
    let turn = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Scheduled { .. }
                | EventKind::PollBegin
                | EventKind::PollEnd
                | EventKind::WaitBegin { .. }
                | EventKind::WaitEnd
                | EventKind::Told { .. }
                | EventKind::CancelHop { .. }
        )
    };
    let kinds = events.iter().map(|event| event.kind);
    kinds.filter(|kind| !turn(kind)).collect()
}

/// see-4: the seven events of a job, in order, as plain data.
/// Also: K27.
pub async fn see_4_the_events_of_a_job(lab: Lab) {
    let home = current_job().unwrap().id();
    let start = u64::try_from(lab.elapsed().as_nanos()).unwrap();
    let task = spawn(async {
        let told = park().await;
        cleanup(sleep(10 * MS)).await?;
        told?;
        Ok::<_, Error>(())
    });
    let (job, id, site) = (task.job(), task.id(), task.job().site());
    let waiter = spawn(async move { Ok::<_, Error>(task.await.unwrap_err().kind()) });
    lab.settle().await;
    sleep(5 * MS).await.unwrap();
    let line = line!() + 1;
    assert!(job.cancel("enough"));
    assert_eq!(waiter.await.unwrap(), ErrorKind::Stopped);

    let events = events_of(&lab, id);
    let (asked_at, by) = cancel_request(&events).unwrap();
    assert_eq!((asked_at.line(), by), (line, Some(home)));
    assert_eq!(asked_at.file(), file!());
    assert_eq!(
        without_turns(&events),
        [
            EventKind::Create {
                kind: JobKind::Task,
                site,
                lane: Lane::Pool,
            },
            EventKind::Attach { parent: home },
            EventKind::WaitRegister,
            EventKind::CancelRequest {
                reason: ReasonKind::Asked,
                site: asked_at,
                by: Some(home),
            },
            EventKind::State {
                to: JobState::Cancelling
            },
            EventKind::WaitWake,
            EventKind::State {
                to: JobState::Cancelled
            },
            EventKind::Finalize { cancelled: true },
        ]
    );
    assert_eq!(events.first().unwrap().at, start);
    assert_eq!(events.last().unwrap().at, start + 15_000_000);
}

/// see-4: a cancel is requested where it enters; everybody below moves.
pub async fn see_4_a_cancel_request_is_one_event(lab: Lab) {
    let stopped = scope(async |s| {
        for _ in 0..3 {
            s.launch(async {
                launch(park());
                park().await.map(|_| ())
            });
        }
        lab.settle().await;
        let before = lab.events().len();
        s.cancel("enough");
        let new = lab.events().split_off(before);
        let requests: Vec<_> = new
            .iter()
            .filter(|event| matches!(event.kind, EventKind::CancelRequest { .. }))
            .map(|event| event.job)
            .collect();
        assert_eq!(requests, [s.job().id()]);
        let mut moved: Vec<_> = new
            .iter()
            .filter(|event| {
                event.kind
                    == EventKind::State {
                        to: JobState::Cancelling,
                    }
            })
            .map(|event| event.job)
            .collect();
        moved.sort();
        moved.dedup();
        assert_eq!(moved.len(), 7, "all marked when the call has returned");
        checkpoint().await?;
        Ok(())
    })
    .await;
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
}

/// see-4: every job that is created is attached once and finalised once, and
/// nothing comes after that.
pub async fn see_4_finalize_is_the_last_event_of_every_job(lab: Lab) {
    let before = lab.events().len();
    let created = lab.counters().jobs_created;
    Scope::build()
        .supervisor()
        .run(async |s| {
            s.launch(async { Err::<(), _>("no") });
            s.launch(timeout(5 * MS, async {
                launch(park());
                park().await.map(|_| ())
            }));
            drop(s.spawn(park()));
            let lazy = s.spawn_lazy(async { 1 });
            s.spawn_service(park()).into_job();
            drop(s.spawn_now(yield_now()));
            shield(sleep(MS)).await?;
            drop(lazy);
            Ok(())
        })
        .await
        .unwrap();
    lab.settle().await;
    assert!(!lab.take_failures().is_empty());
    let new = lab.events().split_off(before);
    let made: Vec<_> = new
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Create { .. }))
        .map(|event| event.job)
        .collect();
    assert_eq!(made.len() as u64, lab.counters().jobs_created - created);
    for id in made {
        let kinds = without_turns(&events_of(&lab, id));
        assert!(matches!(kinds[0], EventKind::Create { .. }), "{kinds:?}");
        assert!(matches!(kinds[1], EventKind::Attach { .. }), "{kinds:?}");
        let count = |wanted: fn(&EventKind) -> bool| kinds.iter().filter(|k| wanted(k)).count();
        assert_eq!(count(|k| matches!(k, EventKind::Create { .. })), 1);
        assert_eq!(count(|k| matches!(k, EventKind::Attach { .. })), 1);
        assert_eq!(count(|k| matches!(k, EventKind::Finalize { .. })), 1);
        let ends = count(|k| matches!(k, EventKind::State { to } if to.is_terminal()));
        assert_eq!(ends, 1, "{kinds:?}");
        let last = events_of(&lab, id).last().unwrap().kind;
        assert!(matches!(last, EventKind::Finalize { .. }), "{last:?}");
    }
}

/// see-4: a task that is woken says by which job: the one that is polled, the one that has
/// ended, itself, or none.
pub async fn see_4_who_woke_whom(lab: Lab) {
    let me = current_job().unwrap().id();
    let gate = Gate::new();
    let door = gate.clone();
    let waits = spawn(async move { door.wait().await });
    let sleeper = spawn(sleep(MS));
    let goes_round = spawn(yield_now());
    let owned = spawn(async { 1 });
    let ended = owned.id();
    let owner = spawn(owned);
    lab.settle().await;
    gate.open();
    sleep(2 * MS).await.unwrap();
    let wakes = |id: JobId| -> Vec<Option<JobId>> {
        let events = events_of(&lab, id);
        let by = events.iter().filter_map(|event| match event.kind {
            // A point that was asked to yield by the simulation wakes its own task.
            EventKind::Scheduled { by } if by != Some(id) => Some(by),
            _ => None,
        });
        by.collect()
    };
    assert_eq!(wakes(waits.id()), [Some(me), Some(me)]);
    assert_eq!(wakes(sleeper.id()), [Some(me), None]);
    let round = events_of(&lab, goes_round.id());
    let by = Some(goes_round.id());
    let itself = |event: &Event| event.kind == EventKind::Scheduled { by };
    assert!(round.iter().any(itself), "{round:?}");
    assert_eq!(wakes(goes_round.id()), [Some(me)]);
    let owner_id = owner.id();
    assert_eq!(owner.await.unwrap(), 1);
    let woken = wakes(owner_id);
    // It may have found the end there already.
    assert!(
        woken == [Some(me)] || woken == [Some(me), Some(ended)],
        "{woken:?}"
    );
    for task in [waits.job(), sleeper.job(), goes_round.job()] {
        let _ = task.join().await;
    }
    waits.await.unwrap();
    sleeper.await.unwrap();
    goes_round.await.unwrap();
}

/// see-4: the events of cancels: each hop with the parent it came from, what holds it back,
/// and the point at which each body was told.
pub async fn see_4_hops_holds_and_points(lab: Lab) {
    let held = Gate::new();
    let open = held.clone();
    let before = lab.events().len();
    let first = line!();
    let stopped = scope(async |s| {
        s.task("plain").launch(async { park().await.map(|_| ()) });
        let shielded = held.clone();
        s.task("shielded").launch(async move {
            shield(shielded.wait()).await?;
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        s.task("guarded").launch(async {
            let guard = ignore_cancellation().await?;
            sleep(5 * MS).await?;
            drop(guard);
            checkpoint().await
        });
        lab.settle().await;
        s.cancel("enough");
        sleep(2 * MS).await?;
        Ok(())
    });
    let (stopped, ()) = futures_util::join!(stopped, async {
        lab.settle().await;
        shield(sleep(MS)).await.unwrap();
        open.open();
    });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    let events = lab.events().split_off(before);
    let named = |kind: JobKind, nth: usize| {
        let mut made = events.iter().filter(
            |event| matches!(event.kind, EventKind::Create { kind: made, .. } if made == kind),
        );
        made.nth(nth).unwrap().job
    };
    let home = named(JobKind::Scope, 0);
    let tasks: Vec<JobId> = (0..3).map(|nth| named(JobKind::Task, nth)).collect();
    let of = |id: JobId| -> Vec<EventKind> {
        let kinds = events.iter().filter(|event| event.job == id);
        kinds.map(|event| event.kind).collect()
    };
    let hop = EventKind::CancelHop { from: home };
    for task in &tasks {
        assert_eq!(of(*task).iter().filter(|kind| **kind == hop).count(), 1);
    }
    let shield = events.iter().find_map(|event| match event.kind {
        EventKind::CancelHeld { from } => Some((event.job, from)),
        _ => None,
    });
    let (shield, from) = shield.expect("the shield holds it back");
    assert_eq!(from, tasks[1]);
    let is_shield = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Create {
                kind: JobKind::Shield,
                ..
            }
        )
    };
    assert!(of(shield).iter().any(is_shield));
    let guarded = of(tasks[2]);
    let at = |wanted: fn(&EventKind) -> bool| guarded.iter().position(wanted).unwrap();
    let entered = at(|kind| matches!(kind, EventKind::GuardEntered { .. }));
    let left = at(|kind| matches!(kind, EventKind::GuardLeft));
    let came = at(|kind| matches!(kind, EventKind::CancelHop { .. }));
    let told = at(|kind| matches!(kind, EventKind::Told { .. }));
    assert!(entered < left && left < came && came < told, "{guarded:?}");
    let plain = of(tasks[0]).into_iter().find_map(|kind| match kind {
        EventKind::Told { site } => site,
        _ => None,
    });
    let line = plain.expect("a point that waits").line();
    assert!((first + 2..first + 5).contains(&line), "{line}");
}

/// see-4: what a turn leaves waiting, in the innermost scope.
pub async fn see_4_waits_begin_and_end(lab: Lab) {
    let before = lab.events().len();
    let line = line!() + 2;
    let task =
        spawn(async { scope(async |_| scope(async |_| Ok(sleep(3 * MS).await?)).await).await });
    let id = task.id();
    task.await.unwrap();
    let events = lab.events().split_off(before);
    let begin = events.iter().find_map(|event| match event.kind {
        EventKind::WaitBegin {
            kind: WaitKind::Sleep,
            site,
        } => Some((event.job, site?)),
        _ => None,
    });
    let (job, site) = begin.expect("it sleeps");
    assert_eq!((site.line(), site.file()), (line, file!()));
    assert_ne!(job, id, "the scope it sleeps in");
    assert!(
        events_of(&lab, id)
            .iter()
            .any(|event| event.kind == EventKind::WaitEnd)
    );
}

/// see-4: the ring buffer keeps the latest events and counts those it forgot.
pub async fn see_4_the_ring_buffer_keeps_the_latest(_lab: Lab) {
    let job = current_job().unwrap().id();
    let event = |at: u64| Event::new(job, at, EventKind::WaitRegister);
    let ring = RingSink::new(3);
    assert_eq!(ring.interests(), Interests::NONE);
    assert_eq!(RingSink::new(3).with_turns().interests(), Interests::TURNS);
    for at in 0..3 {
        ring.event(&event(at));
    }
    assert_eq!(ring.forgotten(), 0);
    for at in 3..5 {
        ring.event(&event(at));
    }
    assert_eq!(ring.events(), [event(2), event(3), event(4)]);
    assert_eq!(ring.forgotten(), 2);

    let none = RingSink::new(0);
    none.event(&event(1));
    assert_eq!((none.events().len(), none.forgotten()), (0, 1));
}

// --- group P ---

/// P01: the snapshot shows parent and child at each stage; the link upwards
/// survives in the events; the root has no parent.
pub async fn case_p01_links_at_each_stage(lab: Lab) {
    let root = lab.root().job();
    let me = current_job().unwrap();
    assert_eq!(root.parent(), None);
    assert_eq!(lab.snapshot().nodes()[0].parent, None);
    assert_eq!(me.parent(), Some(root));
    let id = scope(async |s| {
        let listed =
            |id: JobId| -> Vec<JobId> { lab.snapshot().children(id).map(|node| node.id).collect() };
        assert_eq!(listed(me.id()), [s.job().id()]);
        let first = s.launch(park());
        let second = s.launch(park());
        assert_eq!(listed(s.job().id()), [first.id(), second.id()]);
        lab.settle().await;
        first.cancel("enough");
        assert_eq!(listed(s.job().id()), [first.id(), second.id()]);
        let _ = first.join().await?;
        assert_eq!(listed(s.job().id()), [second.id()]);
        second.cancel("enough");
        let _ = second.join().await?;
        let kinds = without_turns(&events_of(&lab, first.id()));
        let up = EventKind::Attach {
            parent: s.job().id(),
        };
        assert_eq!(kinds[1], up);
        Ok(s.job().id())
    })
    .await
    .unwrap();
    assert!(lab.snapshot().nodes().iter().all(|node| node.id != id));
}

/// P02: finished children disappear from the tree while the scope runs.
pub async fn case_p02_finished_children_disappear(lab: Lab) {
    scope(async |s| {
        let count = || lab.snapshot().children(s.job().id()).count();
        for n in 1..=5 {
            s.launch(sleep(n * 10 * MS));
        }
        assert_eq!(count(), 5);
        sleep(5 * MS).await?;
        for left in (0..5).rev() {
            sleep(10 * MS).await?;
            assert_eq!(count(), left);
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// P03: Debug of handles and scopes shows name, state and the deadline,
/// relative to now.
pub async fn case_p03_debug_shows_name_state_and_deadline(lab: Lab) {
    let has = |text: String, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{part} in {text}");
        }
    };
    let task = Scope::current().unwrap().task("worker").spawn(park());
    let job = task.job();
    let id = format!("id: {}", job.id());
    has(format!("{task:?}"), &["Task", "\"worker\"", "New", &id]);
    lab.settle().await;
    has(format!("{job:?}"), &["Job", "\"worker\"", "Active", &id]);
    has(format!("{:?}", task.join()), &["\"worker\"", "Active"]);
    job.cancel("enough");
    has(format!("{job:?}"), &["Cancelling"]);
    assert!(task.outcome().await.unwrap().is_cancelled());
    has(format!("{job:?}"), &["\"worker\"", "Cancelled"]);

    let ended = Scope::named("home")
        .timeout(100 * MS)
        .run(async |s| {
            sleep(30 * MS).await?;
            has(
                format!("{s:?}"),
                &["Scope", "\"home\"", "Active", "deadline_in: 70ms"],
            );
            Ok(s)
        })
        .await
        .unwrap();
    has(format!("{ended:?}"), &["\"home\"", "Completed"]);
    let failed = Scope::build().supervisor().run(async |s| {
        let job = s.launch(async { Err::<(), _>("no") });
        let _ = job.join().await?;
        Ok(format!("{job:?}"))
    });
    has(failed.await.unwrap(), &["Failed"]);
    assert_eq!(lab.take_failures().len(), 1);
}

/// P06: spawned, scheduled, turns that never overlap, exited, and nothing
/// after.
pub async fn case_p06_the_order_of_a_tasks_events(lab: Lab) {
    let gate = Gate::new();
    let door = gate.clone();
    let task = spawn(async move {
        door.wait().await;
        sleep(10 * MS).await?;
        Ok::<_, Error>(())
    });
    let id = task.id();
    lab.settle().await;
    gate.open();
    task.await.unwrap();
    lab.settle().await;
    let events = events_of(&lab, id);
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert!(matches!(kinds[0], EventKind::Create { .. }));
    assert!(matches!(kinds[1], EventKind::Attach { .. }));
    assert!(matches!(kinds[2], EventKind::Scheduled { .. }));
    let last = *kinds.last().unwrap();
    assert_eq!(last, EventKind::Finalize { cancelled: false });
    let (mut inside, mut turns, mut scheduled) = (false, 0, 0);
    for kind in &kinds {
        match kind {
            EventKind::PollBegin => {
                assert!(!inside, "{kinds:?}");
                inside = true;
                turns += 1;
                assert!(scheduled >= turns, "a turn without a push: {kinds:?}");
            }
            EventKind::PollEnd => {
                assert!(inside, "{kinds:?}");
                inside = false;
            }
            EventKind::Scheduled { .. } => scheduled += 1,
            _ => {}
        }
    }
    assert!(!inside);
    assert_eq!((turns, scheduled), (3, 3), "{kinds:?}");
    assert!(events.is_sorted_by_key(|event| event.at));
}

/// P11: the default name is made of the spawn site, an explicit one wins, and
/// the place stands in the JSON.
pub async fn case_p11_names_and_sites(lab: Lab) {
    let line = line!() + 1;
    let plain = launch(park());
    let named = Scope::current().unwrap().task("explicit").launch(park());
    assert_eq!(plain.name(), format!("task@seeing.rs:{line}"));
    assert_eq!(named.name(), "explicit");
    assert_eq!(plain.site().line(), line);
    let json = lab.snapshot().to_json();
    let place = format!(
        "\"name\":\"task@seeing.rs:{line}\",\"kind\":\"task\",\"state\":\"New\",\"file\":\"{}\",\"line\":{line}",
        plain.site().file().replace('\\', "\\\\")
    );
    assert!(json.contains(&place), "{place}\n{json}");
    let line = line!() + 1;
    let mut opened = Box::pin(timeout(MS, async { current_job().unwrap().name() }));
    let std::task::Poll::Ready(name) = futures_util::poll!(&mut opened) else {
        panic!("it did not return at once");
    };
    assert_eq!(name.unwrap(), format!("timeout@seeing.rs:{line}"));
    plain.cancel("enough");
    named.cancel("enough");
}

/// P12: created = completed + failed + cancelled + living whenever nothing
/// moves.
/// Also: K26.
pub async fn case_p12_the_counters_balance_at_every_stage(lab: Lab) {
    let check = || {
        let now = lab.counters();
        let ended = now.jobs_completed + now.jobs_failed + now.jobs_cancelled;
        assert_eq!(now.jobs_created, ended + lab.snapshot().len() as u64);
        (now.jobs_completed, now.jobs_failed, now.jobs_cancelled)
    };
    let start = check();
    Scope::build()
        .supervisor()
        .run(async |s| {
            let mut jobs = Vec::new();
            for n in 0..9u32 {
                jobs.push(s.launch(async move {
                    sleep((n + 1) * MS).await?;
                    match n % 3 {
                        0 => Ok(()),
                        1 => Err(Error::msg("no")),
                        _ => park().await.map(|_| ()).map_err(Error::from),
                    }
                }));
                lab.settle().await;
                check();
            }
            for _ in 0..20 {
                sleep(MS).await?;
                lab.settle().await;
                check();
            }
            for job in &jobs {
                job.cancel("enough");
                check();
            }
            lab.settle().await;
            check();
            Ok(())
        })
        .await
        .unwrap();
    let end = check();
    assert_eq!(end, (start.0 + 4, start.1 + 3, start.2 + 3));
    assert_eq!(lab.take_failures().len(), 3);
}

/// tree-2: a scope whose body is over and whose children live is Completing, as a
/// task is.
/// Also: see-1.
pub async fn tree_2_a_scope_whose_body_is_over_is_completing(lab: Lab) {
    let inner = scope(async |s| {
        let job = s.job();
        assert_eq!(job.state(), JobState::Active);
        let seen = job.clone();
        s.launch(async move {
            lab.settle().await;
            assert_eq!(seen.state(), JobState::Completing);
            let listed = lab.snapshot();
            let node = listed.nodes().iter().find(|node| node.id == seen.id());
            let node = node.unwrap();
            assert_eq!(node.state, JobState::Completing);
            seen.cancel("while it completes");
            assert_eq!(seen.state(), JobState::Cancelling);
        });
        Ok(job)
    })
    .await
    .unwrap();
    assert!(inner.is_ended());
}
