//! A file copy with progress, that can be cancelled and taken up again.
//!
//! It writes beside the target, to `….part`. Told to stop, it sees to it that what
//! was copied is on the disk, and closes the file; the next run goes on from there.
//! Only a whole copy gets the target's name.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kinfolk::fs::{self, File, OpenOptions};
use kinfolk::{Error, Result, cleanup, race, sleep, timeout};

const CHUNK: usize = 64 * 1024;

/// How far a copy has come, for other tasks to read.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

/// Copies `from` to `to`. A *point*: told, what was copied is kept, and the next
/// call goes on from there.
async fn copy(from: &Path, to: &Path, progress: &Progress) -> Result<u64> {
    let part = part_of(to);
    let source = File::open(from).await?;
    let target = OpenOptions::new()
        .write(true)
        .create(true)
        .open(&part)
        .await?;
    let total = source.metadata().await?.len();
    let kept = target.metadata().await?.len();
    progress.total.store(total, Ordering::Relaxed);
    progress.done.store(kept, Ordering::Relaxed);

    let copied = copy_chunks(&source, &target, kept, progress).await;
    // Whether it is complete or was told half-way: flushed and closed. A clean-up,
    // because in a job that was told no i/o would begin.
    cleanup(async {
        target.sync_data().await?;
        target.close().await
    })
    .await?;
    copied?;
    fs::rename(&part, to).await?;
    Ok(total - kept)
}

async fn copy_chunks(from: &File, to: &File, mut at: u64, progress: &Progress) -> Result<()> {
    let mut buf = Vec::with_capacity(CHUNK);
    loop {
        let (read, chunk) = from.read_at(buf, at).await;
        if read? == 0 {
            return Ok(());
        }
        let (written, chunk) = to.write_all_at(chunk, at).await;
        written?;
        at += chunk.len() as u64;
        progress.done.store(at, Ordering::Relaxed);
        buf = chunk;
        sleep(Duration::from_millis(1)).await?; // a slow disk
    }
}

fn part_of(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Says now and then how far it has come.
async fn report(progress: &Progress) -> Result<()> {
    loop {
        sleep(Duration::from_millis(50)).await?;
        let done = progress.done.load(Ordering::Relaxed);
        let total = progress.total.load(Ordering::Relaxed).max(1);
        println!("  {:3} %", done * 100 / total);
    }
}

/// Copies, and says how far it has come, as long as it takes.
async fn copy_with_words(from: &Path, to: &Path) -> Result<u64> {
    let progress = Progress::default();
    race((copy(from, to, &progress), async {
        report(&progress).await?;
        Ok::<u64, Error>(0)
    }))
    .await
}

#[kinfolk::main]
async fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("kinfolk-copy-{}", std::process::id()));
    fs::create_dir_all(&dir).await?;
    let (from, to) = (dir.join("from"), dir.join("to"));
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (written, bytes) = fs::write(&from, bytes).await;
    written?;

    for limit in [80, 120, 5_000].map(Duration::from_millis) {
        println!("at most {limit:?}:");
        match timeout(limit, copy_with_words(&from, &to)).await {
            Ok(copied) => println!("  done, with the last {copied} bytes"),
            Err(stopped) => println!("  {stopped}"),
        }
    }
    assert!(fs::read(&to).await? == bytes, "all of it, each byte once");
    println!("the copy is the file");

    for entry in fs::read_dir(&dir).await? {
        fs::remove_file(entry.path()).await?;
    }
    fs::remove_dir(&dir).await?;
    Ok(())
}

/// Stopped after any number of milliseconds and taken up again, it is complete
/// in the end, and nothing is left beside it.
#[test]
fn it_can_be_stopped_at_any_time() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("kinfolk-copies-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let (from, to) = (dir.join("from"), dir.join("to"));
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 241) as u8).collect();
    std::fs::write(&from, &bytes)?;
    kinfolk::Runtime::new()?.block_on(async {
        let mut stopped = 0;
        let mut limit = Duration::ZERO;
        while timeout(limit, copy(&from, &to, &Progress::default()))
            .await
            .is_err()
        {
            assert!(!to.exists(), "only a whole copy has the name");
            stopped += 1;
            limit += Duration::from_millis(1);
        }
        assert!(stopped > 1);
        Ok::<_, Error>(())
    })?;
    assert!(std::fs::read(&to)? == bytes);
    assert!(!part_of(&to).exists());
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// The same at every point, on a disk in memory, with a second run to its end.
#[test]
fn it_can_be_stopped_anywhere() {
    async fn twice() -> Result<()> {
        let (from, to) = (Path::new("/from"), Path::new("/to"));
        let bytes: Vec<u8> = (0..150_000_u32).map(|n| (n % 241) as u8).collect();
        cleanup(async { fs::write(from, bytes.clone()).await.0 }).await?;
        let stopped = copy(from, to, &Progress::default()).await;
        cleanup(async {
            if stopped.is_err() {
                copy(from, to, &Progress::default()).await?;
            }
            assert!(fs::read(to).await? == bytes, "each byte once");
            Ok::<_, Error>(())
        })
        .await?;
        stopped.map(drop)
    }
    let went = kinfolk::testkit::CancelEverywhere::new()
        .seeds(1)
        .run(twice);
    assert_eq!(went.forced, 0, "every wait hears it");
    assert!(went.points > 20, "{went:?}");
}
