//! A service with six faults, one at a time, and what shows each of them: the tree, the
//! findings, the difference of two snapshots. The guide docs/seeing.md goes through them.
//!
//! `cargo run --example 25_seeing -- leak` runs it with one of `leak`, `shield`, `slow`,
//! `swallow`, `poll` and `cycle`; `kill -USR1` shows what goes on.

use std::sync::Arc;
use std::time::Duration;

use kinfolk::sync::{Mutex, Notify};
use kinfolk::{Result, Scope, park, scope, shield, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Work that keeps a processor busy.
type Work = Arc<dyn Fn() + Send + Sync>;

#[kinfolk::main(dump_on_usr1)]
async fn main() -> Result<()> {
    let fault = std::env::args().nth(1).unwrap_or_default();
    println!("kill -USR1 {}", std::process::id());
    serve(fault, Arc::new(work)).await
}

/// Some seconds of it.
fn work() {
    for n in 0..10_000_000_000u64 {
        std::hint::black_box(n);
    }
}

/// The service: ten connections come in a second, each with a request; a store writes what
/// it has every second; a heartbeat beats.
async fn serve(fault: String, work: Work) -> Result<()> {
    Scope::named("server")
        .run(async |s| {
            s.task("listener").launch(listen(fault.clone()));
            s.task("store").launch(store(fault.clone()));
            s.task("heartbeat").launch(heartbeat(fault.clone()));
            if fault == "poll" {
                s.task("compress").launch(compress(work));
            }
            if fault == "cycle" {
                transfers(&s);
            }
            park().await?;
            Ok(())
        })
        .await
}

async fn listen(fault: String) -> Result<()> {
    scope(async |s| {
        loop {
            s.task("conn").launch(connection(fault.clone()));
            sleep(100 * MS).await?;
        }
    })
    .await
}

// [leak]
async fn connection(fault: String) -> Result<()> {
    timeout(2 * SECOND, request(fault.clone())).await?;
    if fault == "leak" {
        park().await?; // it waits for a goodbye that never comes
    }
    Ok(())
}
// [end]

// [slow]
async fn request(fault: String) -> Result<()> {
    let rows = scope(async |s| s.task("query").spawn(query(fault)).await).await?;
    sleep(rows * MS).await?;
    Ok(())
}

async fn query(fault: String) -> Result<u32> {
    let takes = if fault == "slow" { 1_950 } else { 50 };
    sleep(takes * MS).await?;
    Ok(5)
}
// [end]

// [shield]
async fn store(fault: String) -> Result<()> {
    let flushed = Notify::new();
    loop {
        sleep(SECOND).await?;
        shield(async {
            sleep(10 * MS).await?;
            if fault == "shield" {
                flushed.notified().await?; // the disk does not answer
            }
            Ok::<_, kinfolk::Error>(())
        })
        .await?;
    }
}
// [end]

// [swallow]
async fn heartbeat(fault: String) -> Result<()> {
    loop {
        let slept = sleep(SECOND).await;
        if fault != "swallow" {
            slept?; // with the fault, a cancel is taken for a hiccup
        }
    }
}
// [end]

// [poll]
async fn compress(work: Work) -> Result<()> {
    sleep(SECOND).await?;
    work(); // ten seconds, and no point in them
    Ok(())
}
// [end]

// [cycle]
fn transfers(s: &Scope) {
    let accounts = ["alice", "bob"].map(|name| Arc::new(Mutex::new(100).named(name)));
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (accounts[from].clone(), accounts[to].clone());
        s.task("transfer").launch(async move {
            let mut from = from.lock().await?;
            sleep(MS).await?;
            let mut to = to.lock().await?;
            (*from, *to) = (*from - 1, *to + 1);
            Ok::<_, kinfolk::Error>(())
        });
    }
}
// [end]

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use kinfolk::see::{Examine, FindingRule, Rules, TreeSnapshot};
    use kinfolk::testkit::{Sim, VirtualClock};

    use super::*;

    const GUIDE: &str = include_str!("../docs/seeing.md");

    /// The service with that fault for a minute, on the simulation: what is seen after 30
    /// seconds, and at the end; after `stop` it has been told to stop 15 seconds before.
    fn watch(fault: &str, stop: bool) -> (TreeSnapshot, TreeSnapshot) {
        let clock = VirtualClock::new();
        let mut sim = Sim::builder(1).clock(clock.clone()).build();
        let during: Arc<StdMutex<Option<TreeSnapshot>>> = Arc::default();
        let (seen, tree) = (during.clone(), sim.tree().downgrade());
        let work = move || {
            clock.move_to(clock.elapsed() + 10 * SECOND);
            *seen.lock().unwrap() = tree.upgrade().map(|tree| tree.snapshot());
        };
        let tree = sim.tree().clone();
        let server = sim
            .root()
            .task("main")
            .launch(serve(fault.into(), Arc::new(work)));
        drop(tree.snapshot());
        sim.advance(30 * SECOND);
        let first = sim.snapshot();
        match stop {
            true => {
                server.cancel("a new version");
                sim.advance(15 * SECOND);
            }
            false => sim.advance(30 * SECOND + 60 * MS),
        }
        let seen = during.lock().unwrap().take();
        let last = seen.unwrap_or_else(|| sim.snapshot());
        // What does not stop by itself is dropped.
        sim.shutdown(SECOND);
        (first, last)
    }

    /// What the guide shows of a fault.
    fn shown(block: &str) -> String {
        match block {
            "well" => watch("", false).1.findings().to_string(),
            "tree" => watch("", false).1.to_string(),
            "leak" => {
                let (first, last) = watch("leak", false);
                last.diff(&first).to_string()
            }
            "leak, tree" => watch("leak", false).1.to_string(),
            "shield" | "swallow" => watch(block, true).1.findings().to_string(),
            "poll" | "cycle" => watch(block, false).1.findings().to_string(),
            "slow" => {
                // Which of the requests is nearest to its end.
                let (_, last) = watch("slow", false);
                let findings = last.findings();
                let mut near = findings.of(FindingRule::DeadlineNear);
                near.next().expect("one that is near").to_string()
            }
            other => panic!("the guide asks for {other:?}"),
        }
    }

    /// The blocks of one language in the guide, with the words behind the language.
    fn blocks<'a>(guide: &'a str, language: &str) -> Vec<(&'a str, &'a str)> {
        let fence = format!("```{language}");
        let mut found = Vec::new();
        let mut rest = guide;
        while let Some((_, after)) = rest.split_once(&format!("\n{fence}")) {
            let (words, after) = after.split_once('\n').expect("a block");
            let (block, after) = after.split_once("\n```").expect("the end of a block");
            found.push((words.trim(), block));
            rest = after;
        }
        found
    }

    /// Each output in the guide is what the program prints, each piece of code is its code,
    /// and each fault is in the guide. `KINFOLK_WRITE=1` writes the outputs anew.
    #[test]
    fn see_6_the_guide_finds_each_fault_from_the_text_alone() {
        let mut guide = GUIDE.to_string();
        let mut shows = Vec::new();
        for (block, text) in blocks(GUIDE, "text") {
            let now = shown(block);
            let now = now.trim_end();
            shows.push(block);
            if std::env::var_os("KINFOLK_WRITE").is_some() {
                let fence = |text: &str| format!("```text {block}\n{text}\n```");
                guide = guide.replacen(&fence(text), &fence(now), 1);
            } else {
                assert_eq!(text, now, "{block}: KINFOLK_WRITE=1 writes it anew");
            }
        }
        if guide != GUIDE {
            let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/seeing.md");
            std::fs::write(place, guide).expect("the guide");
        }
        for fault in ["leak", "shield", "slow", "swallow", "poll", "cycle"] {
            assert!(shows.contains(&fault), "{fault}");
        }
        let code = include_str!("25_seeing.rs");
        let pieces = blocks(GUIDE, "rust");
        assert!(pieces.len() >= 6);
        for (piece, text) in pieces {
            let from = code.split_once(&format!("// [{piece}]\n"));
            let own = from.and_then(|(_, after)| after.split_once("\n// [end]"));
            assert_eq!(own.map(|(own, _)| own), Some(text), "{piece}");
        }
    }

    /// A service without a fault has no findings, and neither has one that stops.
    #[test]
    fn see_6_nothing_is_found_in_a_service_that_is_well() {
        let (first, last) = watch("", false);
        let findings = Rules::default().check(&last, Some(&first));
        assert!(findings.is_empty(), "{findings}");
        assert!(last.diff(&first).grown.is_empty(), "{}", last.diff(&first));
        let stopped = watch("", true).1;
        assert_eq!(stopped.len(), 1, "{stopped}");
    }
}
