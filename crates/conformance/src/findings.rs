//! Findings: each rule has a program on which it finds something, and one of the same look
//! on which it finds nothing.

use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{
    Error, OrCancel, Patience, Scope, checkpoint, cleanup, current_job, park, shield, shield_for,
    sleep, timeout, yield_now,
};
use kinfolk_see::{Examine, FindingLevel, FindingRule, Findings, Rules};
use kinfolk_sync::{Mutex, mpmc};
use kinfolk_testkit::{Gate, Lab};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Never dropped for being slow.
const NONE_LOST: Patience = Patience {
    unaware: Duration::MAX,
    cleanup: Duration::MAX,
};

fn home() -> Scope {
    Scope::current().expect("a scope")
}

/// The names of the jobs that a rule has found, each once.
fn names(findings: &Findings, rule: FindingRule) -> Vec<&str> {
    let mut names: Vec<_> = findings.of(rule).map(|found| found.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// see-6: a task that was told and stays is found after its limit; one that is in its
/// clean-up is not.
pub async fn see_6_found_told_and_still_there(lab: Lab) {
    let rule = FindingRule::ToldAndStillThere;
    let gate = Gate::new();
    let door = gate.clone();
    let stays = home().task("stays").patience(NONE_LOST).spawn(async move {
        let told = park().await;
        door.wait().await;
        told.map(|_| ())
    });
    let cleans = home().task("cleans").patience(NONE_LOST).spawn(async {
        let told = park().await;
        let _ = cleanup(sleep(25 * SECOND)).await;
        told.map(|_| ())
    });
    lab.settle().await;
    let (stays, cleans) = (stays.into_job(), cleans.into_job());
    stays.cancel("enough");
    cleans.cancel("enough");
    sleep(9 * SECOND).await.unwrap();
    assert!(names(&lab.snapshot().findings(), rule).is_empty());
    sleep(2 * SECOND).await.unwrap();
    let findings = lab.snapshot().findings();
    assert_eq!(names(&findings, rule), ["stays"], "{findings}");
    let words = findings.to_string();
    let known = "warning: task \"stays\" was told to stop 11 s ago and is still there";
    assert!(words.contains(known), "{words}");
    assert!(words.contains("= waits on a foreign await"), "{words}");
    assert!(words.contains("= rule: told-and-still-there"), "{words}");
    let spared = Rules::default()
        .allow(rule, "st*")
        .check(&lab.snapshot(), None);
    assert!(names(&spared, rule).is_empty(), "{spared}");
    gate.open();
    for job in [stays, cleans] {
        let _ = job.join().await.unwrap();
    }
}

/// see-6: a body that swallows a hundred is found; one that swallows three is not.
pub async fn see_6_found_swallowed_cancels(lab: Lab) {
    let deaf = |name: &'static str, times: usize, gate: &Gate| {
        let gate = gate.clone();
        home().task(name).spawn(async move {
            let _ = park().await;
            for _ in 0..times {
                let _ = checkpoint().await;
            }
            shield(gate.wait()).await?;
            Ok::<_, Error>(())
        })
    };
    let gate = Gate::new();
    let jobs = [deaf("swallows", 150, &gate), deaf("tries thrice", 3, &gate)];
    lab.settle().await;
    for job in &jobs {
        job.cancel("enough");
    }
    sleep(SECOND).await.unwrap();
    let findings = lab.snapshot().findings();
    assert_eq!(
        names(&findings, FindingRule::SwallowedCancel),
        ["swallows"],
        "{findings}"
    );
    gate.open();
    for job in jobs {
        let _ = job.outcome().await.unwrap();
    }
}

/// see-6: a task that wakes itself is found; one that is polled as often, since it receives
/// as many values, is not.
pub async fn see_6_found_spinning(lab: Lab) {
    let rules = Rules::default().count(FindingRule::Spinning, 100);
    let spins = home()
        .task("spins")
        .launch(async { while yield_now().await.is_ok() {} });
    let (tx, rx) = mpmc::channel::<u32>(1);
    let receives = home()
        .task("receives")
        .launch(async move { while rx.recv().await.is_ok() {} });
    let sends = home()
        .task("sends")
        .launch(async move { while tx.send(1).await.is_ok() {} });
    let mut found = Vec::new();
    // A task that is polled at this moment is not known to spin.
    while found.is_empty() {
        for _ in 0..300 {
            yield_now().await.unwrap();
        }
        let earlier = lab.snapshot();
        for _ in 0..300 {
            yield_now().await.unwrap();
        }
        let findings = rules.check(&lab.snapshot(), Some(&earlier));
        found = names(&findings, FindingRule::Spinning)
            .into_iter()
            .map(String::from)
            .collect();
    }
    assert_eq!(found, ["spins"]);
    for job in [spins, sends, receives] {
        job.cancel("enough");
        let _ = job.join().await.unwrap();
    }
}

/// see-6: jobs that come and never go are found; as many that come and go are not, and
/// neither are the first ones of a sort.
pub async fn see_6_found_what_only_grows(lab: Lab) {
    let rule = FindingRule::OnlyGrows;
    let (leaks, pool) = (Scope::named("leaks"), Scope::named("pool"));
    // All at one line, so that those of one name are of one sort.
    let more = |s: &Scope, name: &str, count: usize| {
        let launched = (0..count).map(|_| s.task(name.to_string()).launch(park()));
        launched.collect::<Vec<_>>()
    };
    leaks
        .run(async |leaks| {
            pool.run(async |pool| {
                let one = more(&leaks, "session", 1);
                let first = more(&pool, "worker", 1);
                lab.settle().await;
                let earlier = lab.snapshot();
                let sessions = more(&leaks, "session", 120);
                let workers = more(&pool, "worker", 120);
                let fresh = more(&pool, "fresh", 120);
                first[0].cancel("it goes");
                sleep(60 * SECOND).await?;
                let now = lab.snapshot();
                let findings = Rules::default().check(&now, Some(&earlier));
                assert_eq!(names(&findings, rule), ["session"], "{findings}");
                let words = findings.to_string();
                let known = "only becomes more: 1 before, 121 now, and none has ended";
                assert!(words.contains(known), "{words}");
                assert!(words.contains("120.0 more a minute"), "{words}");
                assert!(words.contains("below scope \"leaks\""), "{words}");
                assert!(now.findings().of(rule).next().is_none(), "it takes two");
                let diff = now.diff(&earlier);
                let by = |name: &str| {
                    let growth = diff.grown.iter().find(|growth| growth.name == name);
                    growth.map(|growth| (growth.by(), growth.stayed))
                };
                assert_eq!(by("session"), Some((120, 1)), "{diff}");
                assert_eq!(by("worker"), Some((119, 0)), "{diff}");
                assert_eq!(by("fresh"), Some((120, 0)), "{diff}");
                for job in one.iter().chain(&sessions).chain(&workers).chain(&fresh) {
                    job.cancel("enough");
                }
                Ok(())
            })
            .await
        })
        .await
        .unwrap();
}

/// see-6: a shield that holds a cancel back for longer than its limit is found; one within
/// its own budget is not.
pub async fn see_6_found_shields_over_their_budget(lab: Lab) {
    let rule = FindingRule::ShieldOverBudget;
    let gate = Gate::new();
    let (one, other) = (gate.clone(), gate.clone());
    let bare = home()
        .task("bare")
        .spawn(shield(async move { one.wait().await }));
    let bounded = home()
        .task("bounded")
        .spawn(shield_for(60 * SECOND, async move { other.wait().await }));
    lab.settle().await;
    let (bare, bounded) = (bare.into_job(), bounded.into_job());
    bare.cancel("enough");
    bounded.cancel("enough");
    sleep(9 * SECOND).await.unwrap();
    assert!(names(&lab.snapshot().findings(), rule).is_empty());
    sleep(2 * SECOND).await.unwrap();
    let findings = lab.snapshot().findings();
    assert_eq!(names(&findings, rule), ["bare"], "{findings}");
    assert!(
        findings.to_string().contains("the shield was entered at"),
        "{findings}"
    );
    gate.open();
    for job in [bare, bounded] {
        let _ = job.join().await.unwrap();
    }
}

/// see-6: a cancelled task in an await that is not a point is found; one in an await of the
/// same future that is one has heard, and is not.
pub async fn see_6_found_awaits_that_do_not_hear(lab: Lab) {
    let rule = FindingRule::DeafAwait;
    let gate = Gate::new();
    let (one, other) = (gate.clone(), gate.clone());
    let deaf = home().task("deaf").patience(NONE_LOST);
    let deaf = deaf.spawn(async move { one.wait().await }).into_job();
    let hears = home().task("hears").patience(NONE_LOST);
    let hears = hears.spawn(async move {
        let told = other.wait().or_cancel().await;
        other.wait().await;
        told.map(|_| ())
    });
    let hears = hears.into_job();
    lab.settle().await;
    deaf.cancel("enough");
    hears.cancel("enough");
    sleep(2 * SECOND).await.unwrap();
    let findings = lab.snapshot().findings();
    assert_eq!(names(&findings, rule), ["deaf"], "{findings}");
    gate.open();
    for job in [deaf, hears] {
        let _ = job.join().await.unwrap();
    }
}

/// see-6: two jobs that take two locks in two orders are found, with both places; two that
/// take them in one order and wait as long are not.
pub async fn see_6_found_wait_cycles(lab: Lab) {
    let rule = FindingRule::WaitCycle;
    for in_one_order in [true, false] {
        let locks = ["left", "right"].map(|name| Arc::new(Mutex::new(()).named(name)));
        let both = |name: &'static str, first: usize, patient: Duration| {
            let (first, second) = (locks[first].clone(), locks[1 - first].clone());
            home().task(name).spawn(async move {
                let _first = first.lock().await?;
                sleep(patient).await?;
                let _second = second.lock().await?;
                sleep(10 * SECOND).await?;
                Ok::<_, Error>(())
            })
        };
        let a = both("a", 0, MS).into_job();
        let b = both("b", usize::from(!in_one_order), MS).into_job();
        sleep(SECOND).await.unwrap();
        let findings = lab.snapshot().findings();
        match in_one_order {
            true => assert!(names(&findings, rule).is_empty(), "{findings}"),
            false => {
                assert_eq!(findings.of(rule).count(), 1, "{findings}");
                let found = &findings.all()[0];
                assert_eq!(found.level, FindingLevel::Error);
                assert_eq!(found.facts.len(), 2, "{found}");
                let places = |fact: &String| fact.contains("waits at") && fact.contains("held by");
                assert!(found.facts.iter().all(places), "{found}");
            }
        }
        a.cancel("give way");
        for job in [a, b] {
            let _ = job.join().await.unwrap();
        }
    }
}

/// see-6: a deadline of which less than a tenth is left is found, with what has used the
/// time; half-way through it is not.
pub async fn see_6_found_deadlines_that_are_near(lab: Lab) {
    let rule = FindingRule::DeadlineNear;
    let s = home();
    let work = s.task("request").launch(async {
        let done = timeout(10 * SECOND, async {
            sleep(SECOND).await?;
            let slow = Scope::current().expect("a scope").task("slow query");
            slow.spawn(async { sleep(60 * SECOND).await }).await
        });
        let _ = done.await;
    });
    sleep(5 * SECOND).await.unwrap();
    let findings = lab.snapshot().findings();
    assert!(names(&findings, rule).is_empty(), "{findings}");
    sleep(4500 * MS).await.unwrap();
    let findings = lab.snapshot().findings();
    assert_eq!(names(&findings, rule), ["request"], "{findings}");
    let words = findings.to_string();
    assert!(
        words.contains("has 500 ms of 10 s left until its deadline"),
        "{words}"
    );
    assert!(
        words.contains("8.5 s of 9.5 s: task \"slow query\", waits on sleep at"),
        "{words}"
    );
    let _ = work.join().await.unwrap();
    assert!(current_job().is_some());
}

/// see-6: nothing is found in a tree in which all is well.
pub async fn see_6_nothing_is_found_where_all_is_well(lab: Lab) {
    let s = home();
    let jobs: Vec<_> = (0..50).map(|n| s.launch(sleep(n * SECOND))).collect();
    let earlier = lab.snapshot();
    for _ in 0..10 {
        sleep(3 * SECOND).await.unwrap();
        let findings = Rules::default().check(&lab.snapshot(), Some(&earlier));
        assert!(findings.is_empty(), "{findings}");
        assert_eq!(findings.to_string(), "findings: none");
    }
    for job in jobs {
        job.cancel("enough");
        let _ = job.join().await.unwrap();
    }
}
