//! What an idle task keeps resident. A process of its own for each contestant:
//! the heap of one must not serve the next.

use std::error::Error;
use std::fs;
use std::future::{Future, pending};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use crate::contestant::{Bar, Bench, Contestant, Group, Kind, Unit, native};
use crate::floor::{Floor, Yields};
use crate::ways::{self, Way};

const TASKS: u64 = 1_000_000;

/// The first word of the command line of such a process; the contestant is the
/// second.
pub const CHILD: &str = "--memory-of";

const LAUNCHED: Bench = Bench {
    name: "memory, launched",
    what: "A million tasks that wait for ever, without handles: resident memory of each.",
    per: "task",
    unit: Unit::Bytes,
    targets: &[native(Bar::AtMost(160.0))],
};

const HELD: Bench = Bench {
    name: "memory, held",
    what: "A million tasks that wait for ever, and a handle for each: resident memory of both.",
    per: "task",
    unit: Unit::Bytes,
    targets: &[native(Bar::AtMost(176.0))],
};

/// Who takes part, in which of the two, and how a process measures it.
struct Entry {
    bench: &'static str,
    name: &'static str,
    kind: Kind,
    measure: Box<dyn Fn() -> f64>,
}

fn entries() -> Vec<Entry> {
    use Kind::{Floor, Ours, Peer, Variant};
    let mut entries = Vec::new();
    let mut add = |bench: Bench, name, kind, measure: Box<dyn Fn() -> f64>| {
        entries.push(Entry {
            bench: bench.name,
            name,
            kind,
            measure,
        });
    };
    for &way in Way::ONE {
        let [own, parked] = way.names_of(["", ", in park"]);
        let launched = move || way.run(kinfolk_launched());
        add(LAUNCHED, own, Ours, Box::new(launched));
        let in_park = move || way.run(kinfolk_parked());
        add(LAUNCHED, parked, Variant, Box::new(in_park));
        add(HELD, own, Ours, Box::new(move || way.run(kinfolk_held())));
    }

    let launched = || ways::tokio_one(many(|| drop(tokio::spawn(idle())), tokio::task::yield_now));
    add(LAUNCHED, "tokio", Peer, Box::new(launched));
    let token = || ways::tokio_one(tokio_token());
    add(
        LAUNCHED,
        "tokio, waits for a token",
        Variant,
        Box::new(token),
    );
    let held = || ways::tokio_one(many(|| tokio::spawn(idle()), tokio::task::yield_now));
    add(HELD, "tokio", Peer, Box::new(held));

    let launched = || {
        ways::smol_one(async |executor| {
            let task = || executor.spawn(idle()).detach();
            many(task, smol::future::yield_now).await
        })
    };
    add(LAUNCHED, "smol", Peer, Box::new(launched));
    let held = || {
        ways::smol_one(async |executor| {
            many(|| executor.spawn(idle()), smol::future::yield_now).await
        })
    };
    add(HELD, "smol", Peer, Box::new(held));

    let launched = || {
        // A task without handle and waker is taken down: keep the handle.
        let task = || std::mem::forget(glommio::spawn_local(idle()));
        ways::glommio(many(task, smol::future::yield_now))
    };
    add(LAUNCHED, "glommio", Peer, Box::new(launched));
    let held = || {
        let task = || glommio::spawn_local(idle());
        ways::glommio(many(task, smol::future::yield_now))
    };
    add(HELD, "glommio", Peer, Box::new(held));

    add(LAUNCHED, "floor", Floor, Box::new(floor));
    entries
}

/// How many of the tasks have begun to wait.
static WAITING: AtomicU64 = AtomicU64::new(0);

fn begin_to_wait() {
    WAITING.fetch_add(1, Ordering::Relaxed);
}

async fn idle() {
    begin_to_wait();
    pending::<()>().await;
}

/// Creates the tasks, lets all begin to wait, and looks what that took. Then
/// it ends the process: taking it all down is of no interest.
async fn many<H, P: Future>(create: impl Fn() -> H, pause: impl Fn() -> P) -> f64 {
    let before = resident();
    let handles: Vec<H> = (0..TASKS).map(|_| create()).collect();
    while WAITING.load(Ordering::Relaxed) < TASKS {
        pause().await;
    }
    finish(before, &handles)
}

fn finish<H>(before: u64, handles: &[H]) -> ! {
    // Else the compiler sees that nobody reads them and leaves them away.
    black_box(handles);
    println!("{}", (resident() - before) as f64 / TASKS as f64);
    std::process::exit(0)
}

async fn kinfolk_launched() -> kinfolk_core::Result<f64> {
    let task = || drop(kinfolk_core::launch(idle()));
    Ok(many(task, kinfolk_core::yield_now).await)
}

async fn kinfolk_held() -> kinfolk_core::Result<f64> {
    let task = || kinfolk_core::spawn(idle());
    Ok(many(task, kinfolk_core::yield_now).await)
}

async fn kinfolk_parked() -> kinfolk_core::Result<f64> {
    let task = || {
        let body = async {
            begin_to_wait();
            kinfolk_core::park().await.map(|never| match never {})
        };
        drop(kinfolk_core::launch(body));
    };
    Ok(many::<(), _>(task, kinfolk_core::yield_now).await)
}

async fn tokio_token() -> f64 {
    let root = CancellationToken::new();
    let task = || {
        let token = root.child_token();
        drop(tokio::spawn(async move {
            begin_to_wait();
            token.cancelled().await;
        }));
    };
    many(task, tokio::task::yield_now).await
}

fn floor() -> f64 {
    let before = resident();
    let mut floor = Floor::default();
    for _ in 0..TASKS {
        floor.spawn(Yields(1));
    }
    floor.turn();
    assert_eq!(floor.len() as u64, TASKS);
    finish(before, &[floor])
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux has /proc");
    let pages = statm.split_ascii_whitespace().nth(1);
    let pages: u64 = pages
        .and_then(|pages| pages.parse().ok())
        .expect("a number");
    pages * 4096
}

/// Measures one contestant; `name` is the bench's and its own, as [`ask`] made
/// it.
pub fn child(name: &str) -> Result<(), Box<dyn Error>> {
    let entries = entries();
    let entry = entries.iter().find(|entry| full_name(entry) == name);
    (entry.ok_or("no such contestant")?.measure)();
    Ok(())
}

fn full_name(entry: &Entry) -> String {
    format!("{}: {}", entry.bench, entry.name)
}

/// Starts a process that measures `entry`.
fn ask(entry: &Entry) -> f64 {
    let this = std::env::current_exe().expect("a program has a path");
    let output = Command::new(this).arg(CHILD).arg(full_name(entry)).output();
    let output = output.expect("the process starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let number = said.lines().last().and_then(|line| line.parse().ok());
    number.unwrap_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        panic!("{} said {said:?} and {errors}", full_name(entry))
    })
}

pub fn groups() -> Vec<Group> {
    let group = |bench: Bench| {
        let mut entries = entries();
        entries.retain(|entry| entry.bench == bench.name);
        let contestants = entries.into_iter().map(|entry| Contestant {
            name: entry.name,
            kind: entry.kind,
            round: Box::new(move || vec![ask(&entry)]),
        });
        Group {
            benches: vec![bench],
            contestants: contestants.collect(),
            // Memory hardly varies.
            most_rounds: 2,
        }
    };
    vec![group(LAUNCHED), group(HELD)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_resident() {
        let before = resident();
        let touched = black_box(vec![1_u8; 64 << 20]);
        assert!(resident() >= before + (60 << 20));
        drop(touched);
    }

    #[test]
    fn a_process_for_nobody_is_an_error() {
        assert!(child("memory, launched: nobody").is_err());
    }
}
