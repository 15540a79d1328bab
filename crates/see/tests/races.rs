//! Snapshots while threads spawn and cancel.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread;

use kinfolk_core::{Job, JobId, JobState, Scope, TreeSnapshot, park};
use kinfolk_runtime::Runtime;
use kinfolk_see::WriteJson;
use kinfolk_testkit::guarded;

const THREADS: usize = 8;

/// How many jobs each thread spawns at least.
const ROUNDS: usize = 1_000;

/// How many snapshots are taken at least while they do.
const LOOKS: usize = 100;

/// What a job was when it was spawned: its name, and its parent.
type Known = HashMap<JobId, (String, JobId)>;

/// What in a snapshot cannot have been.
fn complaints(tree: &TreeSnapshot, known: &Known, pillars: &[JobId]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen: HashMap<JobId, usize> = HashMap::new();
    let mut names: HashMap<JobId, &str> = HashMap::new();
    for node in tree.nodes() {
        let mut check = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{what}: {node:?}"));
            }
        };
        check(seen.insert(node.id, node.depth).is_none(), "listed twice");
        let above = node.parent.map(|parent| seen.get(&parent));
        check(above != Some(None), "its parent comes later or is missing");
        let depth = above.flatten().map_or(0, |depth| depth + 1);
        check(node.depth == depth, "its depth is not one below its parent");
        if let Some((name, parent)) = known.get(&node.id) {
            check(node.name == *name, "another name");
            check(node.parent == Some(*parent), "another parent");
        }
        if let Some(of) = node.name.strip_prefix("child of ") {
            let parent = node.parent.and_then(|parent| names.get(&parent));
            check(parent == Some(&of), "below another job");
        }
        names.insert(node.id, &node.name);
        // In itself.
        let cancelled = node.cancelled_since.is_some();
        check(
            cancelled == node.reason.is_some(),
            "a cancel without a reason",
        );
        check(
            node.told_since.is_none() || cancelled,
            "told before it was cancelled",
        );
        check(
            (node.state == JobState::Cancelling) == cancelled,
            "its state",
        );
        check(!node.state.is_terminal(), "it has ended");
        check(
            node.state != JobState::New || node.polls == 0,
            "new, and polled",
        );
        check(
            node.waits_on.is_none() || node.polls > 0,
            "it waits, and was never polled",
        );
        check(
            node.waits_on.is_none() || !node.running,
            "it waits, and runs",
        );
        check(
            node.polled_for.is_none() || node.running,
            "polled, and does not run",
        );
        check(
            node.queued_after.is_none() || node.running,
            "queued, and does not run",
        );
    }
    let missing = pillars.iter().filter(|id| !seen.contains_key(id));
    wrong.extend(missing.map(|id| format!("{id} lived through it and is missing")));
    wrong
}

/// see-2: each job is consistent in itself and below its parent, and none that lived through
/// the call is missing, while eight threads spawn and cancel.
#[test]
fn see_2_snapshots_while_eight_threads_spawn_and_cancel() {
    guarded("races", |_| {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let known: Mutex<Known> = Mutex::default();
        let mut pillars: Vec<JobId> = Vec::new();
        let (send, made) = mpsc::channel();
        let mut groups = Vec::new();
        for n in 0..THREADS {
            let send = send.clone();
            let group = rt.scope().task(format!("group {n}")).launch(async move {
                let s = Scope::current().expect("a scope");
                let made: Vec<JobId> = (0..10)
                    .map(|p| s.task(format!("pillar {n} {p}")).launch(park()).id())
                    .collect();
                send.send((n, s, made)).expect("a receiver");
                park().await
            });
            groups.push(group);
        }
        let scopes: Vec<_> = (0..THREADS)
            .map(|_| made.recv().expect("a group"))
            .collect();
        for (n, _, made) in &scopes {
            let group = groups[*n].id();
            pillars.push(group);
            pillars.extend(made);
            let mut known = known.lock().unwrap();
            for (p, id) in made.iter().enumerate() {
                known.insert(*id, (format!("pillar {n} {p}"), group));
            }
        }
        let enough = AtomicBool::new(false);
        let looks = thread::scope(|threads| {
            for (n, s, _) in &scopes {
                let (known, group, enough) = (&known, groups[*n].id(), &enough);
                threads.spawn(move || {
                    let mut living = VecDeque::new();
                    let mut i = 0;
                    while i < ROUNDS || !enough.load(SeqCst) {
                        let name = format!("{n}/{i}");
                        let child = format!("child of {name}");
                        let job = s.task(name.clone()).launch(async move {
                            let s = Scope::current().expect("a scope");
                            s.task(child).launch(park());
                            park().await
                        });
                        if i < 20 * ROUNDS {
                            known.lock().unwrap().insert(job.id(), (name, group));
                        }
                        living.push_back(job);
                        // Some go before they were polled, some later. The oldest are
                        // waited for, so that the threads do not outrun the workers.
                        if living.len() > i % 13 {
                            let job: Job = living.pop_front().expect("a job");
                            job.cancel("enough");
                            while !job.is_ended() {
                                thread::yield_now();
                            }
                        }
                        i += 1;
                    }
                });
            }
            let looks: Vec<TreeSnapshot> = (0..LOOKS)
                .map(|_| {
                    let tree = rt.snapshot();
                    assert!(
                        !tree.to_string().is_empty()
                            && tree.len() <= tree.to_json().lines().count()
                    );
                    tree
                })
                .collect();
            enough.store(true, SeqCst);
            looks
        });
        let known = known.lock().unwrap();
        let mut jobs = HashSet::new();
        for tree in &looks {
            let wrong = complaints(tree, &known, &pillars);
            assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
            jobs.extend(tree.nodes().iter().map(|node| node.id));
        }
        assert!(
            jobs.len() > pillars.len() + 200,
            "{} jobs were seen",
            jobs.len()
        );
    });
}
