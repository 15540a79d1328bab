//! Findings on polls, which each host has to bring about in its own way; and the settings of
//! the rules. The other findings are cases of the conformance suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kinfolk_core::{Clock, Error, ReasonKind, Scope, Tree, checkpoint, park};
use kinfolk_runtime::{HostClock, Runtime};
use kinfolk_see::{Examine, FindingLevel, FindingRule, Rules};
use kinfolk_testkit::{Sim, VirtualClock, guarded};

const SECOND: Duration = Duration::from_secs(1);

fn end(mut sim: Sim) {
    sim.tree().request_shutdown(ReasonKind::Shutdown);
    sim.advance(3600 * SECOND);
    sim.finish();
}

fn found(tree: &Tree, rule: FindingRule) -> Vec<String> {
    let findings = tree.snapshot().findings();
    findings
        .of(rule)
        .map(|finding| finding.name.clone())
        .collect()
}

/// see-6: on the simulation, a poll in which time passes is found while it goes on; a task
/// that passes a point as often as the time does is not.
#[test]
fn see_6_found_long_polls_on_the_simulation() {
    guarded("long poll", |_| {
        let clock = VirtualClock::new();
        let mut sim = Sim::builder(1).clock(clock.clone()).build();
        let tree = sim.tree().clone();
        let busy = sim.root().task("busy").spawn(async move {
            let mut seen = Vec::new();
            let start = clock.elapsed();
            for n in 1..=20u32 {
                clock.move_to(start + n * Duration::from_millis(50));
                seen.push(found(&tree, FindingRule::LongPoll).len());
            }
            for n in 21..=40u32 {
                checkpoint().await?;
                kinfolk_core::yield_now().await?;
                clock.move_to(start + n * Duration::from_millis(50));
                seen.push(found(&tree, FindingRule::LongPoll).len());
            }
            Ok::<_, Error>(seen)
        });
        let seen = sim.wait_for(busy).expect("it ends");
        let (long, short) = seen.split_at(20);
        assert_eq!(long[0], 0, "50 ms are no long poll");
        assert!(long[2..].iter().all(|found| *found == 1), "{long:?}");
        assert!(short.iter().all(|found| *found == 0), "{short:?}");
        end(sim);
    });
}

/// see-6: on the native runtime, a poll that does not return is found from another thread; a
/// task that is as busy and yields is not.
#[test]
fn see_6_found_long_polls_on_the_native_runtime() {
    guarded("long poll, native", |_| {
        for yields in [false, true] {
            let clock = HostClock::new();
            clock.pause();
            let rt = Runtime::builder()
                .workers(1)
                .clock(clock.shared())
                .build()
                .unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let (seen, (began, begins)) = (stop.clone(), mpsc::channel());
            let busy = rt.scope().task("busy").spawn(async move {
                began.send(()).unwrap();
                while !seen.load(Relaxed) {
                    std::hint::spin_loop();
                    if yields {
                        kinfolk_core::yield_now().await?;
                    }
                }
                Ok::<_, Error>(())
            });
            begins.recv().unwrap();
            let tree = rt.tree().clone();
            // From the first look on its turns take the time anew.
            drop(tree.snapshot());
            let polls = || tree.snapshot().find("busy").map_or(0, |node| node.polls);
            let before = polls();
            while yields && polls() < before + 40 {
                thread::yield_now();
            }
            clock.advance_to(clock.now() + 2 * SECOND);
            let before = polls();
            while yields && polls() < before + 40 {
                thread::yield_now();
            }
            let names = found(&tree, FindingRule::LongPoll);
            match yields {
                true => assert!(names.is_empty(), "{names:?}"),
                false => assert_eq!(names, ["busy"]),
            }
            stop.store(true, Relaxed);
            rt.wait_for(busy).unwrap().unwrap();
        }
    });
}

/// see-6: a task for which no thread comes is found; one that is as old and was never
/// started is not.
#[test]
fn see_6_found_tasks_that_are_never_polled() {
    guarded("never polled", |_| {
        let clock = HostClock::new();
        clock.pause();
        let rt = Runtime::builder()
            .workers(0)
            .clock(clock.shared())
            .build()
            .unwrap();
        rt.scope().task("waits").launch(park());
        let lazy = rt.scope().task("lazy").spawn_lazy(park());
        assert!(found(rt.tree(), FindingRule::NeverPolled).is_empty());
        clock.advance_to(clock.now() + 2 * SECOND);
        assert_eq!(found(rt.tree(), FindingRule::NeverPolled), ["waits"]);
        drop(lazy);
        drop(rt);

        let clock = VirtualClock::new();
        let mut sim = Sim::builder(1).clock(clock.clone()).build();
        sim.root().task("waits").launch(park());
        clock.move_to(2 * SECOND);
        assert_eq!(found(sim.tree(), FindingRule::NeverPolled), ["waits"]);
        sim.settle();
        assert!(found(sim.tree(), FindingRule::NeverPolled).is_empty());
        end(sim);
    });
}

/// see-6: levels, limits, counts and the list of what is allowed.
#[test]
fn see_6_rules_can_be_set() {
    guarded("rules", |_| {
        let clock = VirtualClock::new();
        let sim = Sim::builder(1).clock(clock.clone()).build();
        let line = line!() + 1;
        sim.root().task("session 7").launch(park());
        clock.move_to(2 * SECOND);
        let tree = sim.snapshot();
        let count = |rules: Rules| rules.check(&tree, None).all().len();
        let rule = FindingRule::NeverPolled;
        let place = format!("findings.rs:{line}");
        for (rules, finds) in [
            (Rules::default(), 1),
            (Rules::default().off(rule), 0),
            (Rules::default().limit(rule, 3 * SECOND), 0),
            (Rules::default().allow(rule, "session 7"), 0),
            (Rules::default().allow(rule, "session *"), 0),
            (Rules::default().allow(rule, "session"), 1),
            (Rules::default().allow(rule, "*"), 0),
            (Rules::default().allow(rule, place.as_str()), 0),
            (Rules::default().allow(rule, format!("tests/{place}")), 0),
            (Rules::default().allow(rule, format!("s.rs:{line}")), 1),
            (
                Rules::default().allow(rule, format!("findings.rs:{}", line + 1)),
                1,
            ),
            (Rules::default().allow(FindingRule::LongPoll, "*"), 1),
        ] {
            assert_eq!(count(rules.clone()), finds, "{rules:?}");
        }
        let louder = Rules::default()
            .level(rule, FindingLevel::Error)
            .check(&tree, None);
        assert_eq!(louder.all()[0].level, FindingLevel::Error);
        assert!(
            louder
                .to_string()
                .starts_with("1 finding\nerror: task \"session 7\" "),
            "{louder}"
        );
        for rule in FindingRule::ALL {
            assert!(!rule.word().is_empty());
        }
        end(sim);
    });
}

/// see-6: of many findings of one rule twenty are printed, and the others are counted.
#[test]
fn see_6_many_findings_are_counted() {
    guarded("many", |_| {
        let clock = VirtualClock::new();
        let sim = Sim::builder(1).clock(clock.clone()).build();
        for _ in 0..1_500 {
            sim.root().task("waits").launch(park());
        }
        clock.move_to(2 * SECOND);
        let findings = sim.snapshot().findings();
        assert_eq!(findings.all().len(), 1_500);
        let words = findings.to_string();
        assert!(words.starts_with("1,500 findings\n"), "{words}");
        assert!(
            words.ends_with("… and 1,480 more of never-polled"),
            "{words}"
        );
        assert_eq!(words.matches("help:").count(), 20);
        end(sim);
    });
}

/// see-2: what has grown because there are more parents is counted with the parents; what
/// has grown faster than they is told by itself, with the job that holds most of it.
#[test]
fn see_2_a_diff_names_what_grew_and_what_keeps_it() {
    guarded("diff", |_| {
        let mut sim = Sim::seeded(1);
        let conn = |lines: usize| async move {
            let s = Scope::current().expect("a scope");
            for _ in 0..lines {
                s.task("line").launch(park());
            }
            park().await
        };
        // All at one line, so that they are of one sort.
        let more = |sim: &mut Sim, count: usize, lines: usize| {
            for _ in 0..count {
                sim.root().task("conn").launch(conn(lines));
            }
            sim.settle();
        };
        more(&mut sim, 2, 1);
        let earlier = sim.snapshot();
        let nothing = sim.snapshot().diff(&earlier);
        assert!(nothing.grown.is_empty());
        assert_eq!(
            nothing.to_string(),
            "in 0 ms: 5 jobs before, 5 now; nothing has grown"
        );
        more(&mut sim, 4, 1);
        sim.advance(120 * SECOND);
        let diff = sim.snapshot().diff(&earlier);
        assert_eq!(diff.grown.len(), 1, "{diff}");
        let conns = &diff.grown[0];
        assert_eq!(
            (conns.before, conns.now, conns.stayed, conns.below),
            (2, 6, 2, 6)
        );
        assert_eq!(diff.per_minute(conns), Some(2.0));
        assert_eq!(conns.path, ["root", "conn"]);
        assert_eq!(
            conns.keeper.as_ref().map(|keeper| &*keeper.name),
            Some("root")
        );

        let earlier = sim.snapshot();
        more(&mut sim, 1, 50);
        let diff = sim.snapshot().diff(&earlier);
        let by: Vec<_> = diff
            .grown
            .iter()
            .map(|growth| (&*growth.name, growth.by()))
            .collect();
        assert_eq!(by, [("line", 50), ("conn", 1)], "{diff}");
        let keeper = diff.grown[0].keeper.as_ref().expect("a keeper");
        assert_eq!((&*keeper.name, keeper.holds), ("conn", 50));
        let words = diff.to_string();
        assert!(words.contains("+50: task \"line\", spawned at "), "{words}");
        assert!(words.contains("which holds 50 of them"), "{words}");
        assert!(
            words.contains("= path: \"root\" > \"conn\" > \"line\""),
            "{words}"
        );
        assert_eq!(diff.per_minute(&diff.grown[0]), None, "no time has passed");
        // What has gone has not grown.
        let now = sim.snapshot();
        assert!(earlier.diff(&now).grown.is_empty());
        end(sim);
    });
}

/// A deadline and a limit beyond the range of the arithmetic are compared, and panic nowhere.
#[test]
fn see_6_a_deadline_beyond_the_range_of_the_clock() {
    let far = Duration::from_secs(2_000_000_000_000_000_000);
    for limit in [Duration::from_secs(1), far, Duration::MAX] {
        let mut sim = Sim::seeded(1);
        let task = sim.root().spawn(kinfolk_core::timeout(far, park()));
        sim.settle();
        let rules = Rules::default().limit(FindingRule::DeadlineNear, limit);
        assert!(rules.check(&sim.snapshot(), None).is_empty());
        task.cancel("enough");
        drop(task);
        sim.settle();
        sim.finish();
    }
}
