//! Spawns into a scope that has ended: refused, counted and said once for each scope.
//! And runtimes that are dropped inside a job: that is said too, not for each of many.
//! What the library says is written by a thread of its own, so that the test looks at
//! the standard error of another process: this program, once more.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kinfolk_core::host::say;
use kinfolk_core::{Error, ReasonKind, Scope, scope};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::guarded;

const CHILD: &str = "KINFOLK_ENDED_SCOPES";

fn rt() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

/// A scope that has ended, after `with` was called with it.
fn ended(rt: &Runtime, with: impl FnOnce(&Scope)) -> Scope {
    let kept = rt.block_on(scope(async |s| {
        with(&s);
        Ok(s.clone())
    }));
    kept.unwrap()
}

/// What the other process does.
fn spawn_too_late() {
    let rt = rt();
    // Three spawns, one line: from a thread of the program's, and from two jobs.
    let once = ended(&rt, |_| {});
    let refused = once.spawn(async {});
    assert!(refused.is_ended());
    for verb in ["spawn", "launch"] {
        let once = once.clone();
        let got = rt.block_on(async move {
            let job = match verb {
                "spawn" => once.spawn(async {}).into_job(),
                _ => once.launch(async {}),
            };
            assert_eq!(job.reason().unwrap().kind(), ReasonKind::ScopeEnded);
            Ok::<_, Error>(())
        });
        got.unwrap();
    }
    // Another scope, another line.
    drop(ended(&rt, |_| {}).launch(async {}));
    // A task is a scope for what it spawns.
    let place = Arc::new(Mutex::new(None));
    let put = place.clone();
    let job = rt.scope().task("a task").launch(async move {
        *put.lock().unwrap() = Some(Scope::current().unwrap());
    });
    let _ = rt.wait_for(job.join()).unwrap();
    drop(place.lock().unwrap().take().unwrap().launch(async {}));

    // Silent: it was closed, it was cancelled, the future comes back, the root was
    // shut down.
    drop(ended(&rt, Scope::close).launch(async {}));
    let cancelled = ended(&rt, |s| assert!(s.cancel("enough")));
    drop(cancelled.launch(async {}));
    assert!(ended(&rt, |_| {}).try_spawn(async {}).is_err());
    let root = rt.scope();
    rt.shutdown(Duration::from_secs(5)).unwrap();
    drop(root.launch(async {}));
    say::flush(Duration::from_secs(5));
}

/// Both sites are named.
#[test]
fn tree_5_a_spawn_into_an_ended_scope_is_said_once() {
    if std::env::var_os(CHILD).is_some() {
        return spawn_too_late();
    }
    guarded("spawns into ended scopes", |_| {
        let me = std::env::current_exe().unwrap();
        let child = Command::new(me)
            .args([
                "tree_5_a_spawn_into_an_ended_scope_is_said_once",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}");
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains("had ended"))
            .collect();
        assert_eq!(lines.len(), 3, "{said}");
        for line in &lines {
            assert_eq!(line.matches("tests/ended_scopes.rs:").count(), 2, "{line}");
        }
        assert!(lines[2].contains("\"a task\""), "{}", lines[2]);
    });
}

/// From inside a job of its tree, of another tree, and outside any job.
#[test]
fn tree_5_a_spawn_into_an_ended_scope_is_counted() {
    guarded("refusals are counted", |_| {
        let (rt, other) = (rt(), self::rt());
        let kept = ended(&rt, |_| {});
        let refused = || (rt.counters().jobs_refused, other.counters().jobs_refused);
        assert_eq!(refused(), (0, 0));
        drop(kept.launch(async {}));
        assert_eq!(refused(), (1, 0));
        let there = kept.clone();
        let elsewhere = move || assert!(there.try_spawn(async {}).is_err());
        thread::spawn(elsewhere).join().unwrap();
        assert_eq!(refused(), (2, 0));
        let late = kept.clone();
        rt.block_on(async move { drop(late.launch(async {})) })
            .unwrap();
        assert_eq!(refused(), (3, 0));
        let late = kept.clone();
        other
            .block_on(async move { drop(late.launch(async {})) })
            .unwrap();
        assert_eq!(refused(), (4, 0));
        let created = rt.counters().jobs_created;
        assert_eq!(created, rt.counters().jobs_completed + 1, "the root lives");
        // A tree that is gone counts nothing.
        drop(rt);
        assert!(kept.try_spawn(async {}).is_err());
        assert_eq!(other.counters().jobs_refused, 0);
    });
}

/// What the other process does: many runtimes are dropped inside one job.
fn drop_runtimes_inside() {
    let outer = rt();
    let main = outer.on_main();
    let many = outer.scope().on(main).spawn(async {
        for _ in 0..MANY {
            drop(Runtime::builder().workers(0).build().unwrap());
        }
    });
    outer.wait_for(many).unwrap().unwrap();
    say::flush(Duration::from_secs(5));
}

const MANY: usize = 100;

/// Ten lines in a second; the others are counted.
#[test]
fn see_7_the_ends_of_many_runtimes_are_counted() {
    if std::env::var_os(CHILD).is_some() {
        return drop_runtimes_inside();
    }
    guarded("ends of runtimes", |_| {
        let me = std::env::current_exe().unwrap();
        let child = Command::new(me)
            .args(["see_7_the_ends_of_many_runtimes_are_counted", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}");
        let lines = said.matches("dropped inside a job").count();
        // On a slow machine they take several seconds.
        let counts = said
            .matches("more reports of runtimes that have ended")
            .count();
        assert!(counts > 0 && lines <= 10 * (counts + 1), "{said}");
        assert!(lines < MANY, "{said}");
    });
}
