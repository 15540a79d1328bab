//! A million jobs: how long it takes to look at them and to write them, and in how much
//! memory. `KINFOLK_SCALE` is the size (40,000 unless set; `scripts/scale` runs it in full
//! and in release, where it is also a limit).

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use kinfolk_core::{ReasonKind, launch, park};
use kinfolk_see::WriteJson;
use kinfolk_testkit::{Sim, guarded};

/// The size at which the times are promised.
const MILLION: usize = 1_000_000;

fn size() -> usize {
    let size = std::env::var("KINFOLK_SCALE").ok();
    size.and_then(|text| text.parse().ok()).unwrap_or(40_000)
}

/// What counts the bytes that it takes.
struct Sink(usize);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// By how many kilobytes the memory has risen at the most during `f`; none where the system
/// does not say.
fn risen(f: impl FnOnce()) -> Option<usize> {
    let field = |name: &str| -> Option<usize> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let resets = fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = field("VmRSS:");
    f();
    Some(field("VmHWM:")?.saturating_sub(before?)).filter(|_| resets)
}

/// Prints what it took, and in full size and in release holds it to the promise.
fn promised(what: &str, jobs: usize, f: impl FnOnce()) {
    let began = Instant::now();
    f();
    let took = began.elapsed();
    println!("{jobs} jobs, {what}: {took:.2?}");
    if jobs >= MILLION && !cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(2), "{what}: {took:?}");
    }
}

/// see-2: a million jobs, a thousand below each of a thousand and all below one: each way to
/// look takes less than two seconds, and what is written from the tree stays in little
/// memory.
#[test]
fn see_2_a_million_jobs() {
    guarded("a million", |_| {
        let jobs = size();
        let side = jobs.isqrt();
        for (shape, groups, each) in [("square", side, side), ("wide", 1, jobs)] {
            let mut sim = Sim::seeded(1);
            for _ in 0..groups {
                sim.root().task("group").launch(async move {
                    for _ in 0..each {
                        launch(park());
                    }
                    park().await
                });
            }
            sim.settle();
            let count = groups * each + groups + 1;
            let mut bytes = Sink(0);
            let risen = risen(|| {
                promised(&format!("{shape}, JSON from the tree"), count, || {
                    sim.tree().write_json(&mut bytes).expect("it takes all");
                });
            });
            if let Some(risen) = risen {
                println!(
                    "{shape}: the memory rises by {risen} KB, the JSON has {} KB",
                    bytes.0 / 1024
                );
                // 32 bytes for each sibling on the way down, in a vector that doubles.
                let most = 4_096 + 3 * 32 * each / 1024;
                assert!(risen < most, "{risen} KB, may be {most}");
            }
            let mut tree = None;
            promised(&format!("{shape}, a snapshot"), count, || {
                tree = Some(sim.snapshot())
            });
            let tree = tree.expect("a snapshot");
            assert_eq!(tree.len(), count);
            promised(&format!("{shape}, its text"), count, || {
                assert!(tree.to_string().lines().count() <= 3);
            });
            promised(&format!("{shape}, its JSON"), count, || {
                tree.write_json(&mut Sink(0)).expect("it takes all");
            });
            drop(tree);
            sim.tree().request_shutdown(ReasonKind::Shutdown);
            sim.settle();
            sim.finish();
        }
    });
}
