//! A record of what a program does: why a job was cancelled, what a shutdown waited for, the
//! last seconds as a file, and a trace that <https://ui.perfetto.dev> opens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kinfolk::see::{Causes, PerfettoSink, Recorder, Sinks};
use kinfolk::{Error, Result, Runtime, Scope, park, scope, shield, sleep};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).map(PathBuf::from);
    record(&path.unwrap_or_else(|| std::env::temp_dir().join("24_record.pftrace")))
}

/// Runs the shop, writes its trace to `path` and says what is in it.
fn record(path: &Path) -> Result<()> {
    let recorder = Recorder::builder().dir(std::env::temp_dir()).build();
    let (causes, trace) = (Causes::new(), PerfettoSink::create(path)?);
    let all = Sinks::of([causes.clone(), recorder.clone(), trace.clone()]);

    let rt = Runtime::builder().workers(2).sink(all).build()?;
    let store = rt.block_on(shop())?;
    drop(rt);

    // Also of jobs that have ended.
    println!("{}", causes.why_cancelled(store).expect("it was cancelled"));
    println!("{}", causes.waterfall(store).expect("it was cancelled"));
    println!(
        "the last seconds: {}",
        recorder.save("at the end")?.display()
    );
    println!("the whole: {}", trace.finish()?[0].display());
    Ok(())
}

/// A store that takes its time to stop.
async fn shop() -> Result<kinfolk::job::JobId> {
    scope(async |s| {
        let store = s.task("store").spawn(Scope::named("orders").run(async |s| {
            s.task("till").launch(park());
            shield(sleep(Duration::from_millis(30))).await?;
            park().await?;
            Ok(())
        }));
        sleep(Duration::from_millis(10)).await?;
        store.cancel("closing time");
        let id = store.id();
        let _ = store.outcome().await?;
        Ok::<_, Error>(id)
    })
    .await
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_says_why_and_for_how_long() {
        super::record(&std::env::temp_dir().join("24_record_test.pftrace")).unwrap();
    }
}
