//! Files, on the file system of madsim. It has `open`, `create`, `read`, `read_at`,
//! `write_all_at`, `set_len`, `sync_all` and `metadata`; `tokio::fs` is not simulated.

use std::io;
use std::sync::Arc;

use madsim::fs::{self, File};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::peer;
use crate::shared::{MS, Result, Run, side_by_side, zoo};

zoo! {
    cannot write_for_write_all = "a file has no write of a part";
    alone read_for_read_exact;
    alone end_of_file_for_two;
    alone file_read_changed_written;
    own told_before_it_was_synced;
    cannot synced_and_the_name_was_not = "there are no directories to sync";
    cannot renamed_before_it_was_synced = "a file cannot be renamed";
    cannot rename_not_synced = "a file cannot be renamed";
    own data_before_its_log;
    own torn_record;
    cannot written_in_place = "the corrected program renames a file, and that cannot be done";
    own failed_sync_tried_again;
    alone part_of_a_record_stays;
    cannot scratch_file_stays = "a file cannot be removed or renamed";
    alone one_broken_file_ends_all;
}

/// Fails now and then, before it does anything.
fn the_disk() -> io::Result<()> {
    match peer::buggify() {
        true => Err(io::Error::other("I/O error")),
        false => Ok(()),
    }
}

async fn put(path: &str, bytes: &[u8]) -> io::Result<File> {
    let file = File::create(path).await?;
    file.write_all_at(bytes, 0).await?;
    file.sync_all().await?;
    Ok(file)
}

pub(crate) async fn asleep_until_it_is_done(run: Run) -> Result {
    let writer = tokio::spawn(async {
        let file = File::create("/tmp/report").await?;
        file.write_all_at(b"all of it", 0).await
    });
    let mut writer = Some(writer);
    if run.bug {
        sleep(MS).await;
    } else if let Some(writer) = writer.take() {
        writer.await??;
    }
    let read = fs::read("/tmp/report").await;
    if let Some(writer) = writer {
        writer.await??;
    }
    assert_eq!(read?, b"all of it");
    Ok(())
}

pub(crate) async fn forgotten_file(run: Run) -> Result {
    let file = put("/tmp/report", b"words").await?;
    match run.bug {
        true => std::mem::forget(file),
        false => drop(file),
    }
    Ok(())
}

async fn read_for_read_exact(run: Run) -> Result {
    let file = put("/tmp/report", b"all of the words").await?;
    let mut buf = [0; 16];
    let mut end = file.read_at(&mut buf, 0).await?;
    while !run.bug && end < 16 {
        end += file.read_at(&mut buf[end..], end as u64).await?;
    }
    assert_eq!(buf[..end], *b"all of the words");
    Ok(())
}

/// Two tasks change a file, one after the other unless there is the bug.
async fn two_change<B>(run: Run, change: impl Fn() -> B) -> Result
where
    B: Future<Output = io::Result<()>> + Send + 'static,
{
    let lock = Arc::new(Mutex::new(()));
    side_by_side(2, |_| {
        let (lock, change) = (lock.clone(), change());
        async move {
            let held = match run.bug {
                true => None,
                false => Some(lock.lock().await),
            };
            change.await?;
            drop(held);
            Ok(())
        }
    })
    .await?;
    Ok(())
}

async fn end_of_file_for_two(run: Run) -> Result {
    let log = Arc::new(put("/tmp/log", b"").await?);
    two_change(run, || {
        let log = log.clone();
        async move {
            let end = log.metadata().await?.len();
            log.write_all_at(b"record\n", end).await
        }
    })
    .await?;
    assert_eq!(fs::read("/tmp/log").await?, b"record\nrecord\n");
    Ok(())
}

async fn file_read_changed_written(run: Run) -> Result {
    // A file that was opened again cannot be written: both tasks have this one.
    let file = Arc::new(put("/tmp/number", &[0]).await?);
    two_change(run, || {
        let file = file.clone();
        async move {
            let mut number = [0];
            file.read_at(&mut number, 0).await?;
            file.write_all_at(&[number[0] + 1], 0).await
        }
    })
    .await?;
    assert_eq!(fs::read("/tmp/number").await?, [2]);
    Ok(())
}

fn told_before_it_was_synced(run: Run) -> Result {
    let before = async move {
        let log = put("/var/log", b"").await?;
        log.write_all_at(b"record", 0).await?;
        if !run.bug {
            log.sync_all().await?;
        }
        Ok(()) // here the client is told
    };
    let after = async {
        assert_eq!(fs::read("/var/log").await?, b"record");
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

fn data_before_its_log(run: Run) -> Result {
    let before = async move {
        let data = put("/var/data", b"old").await?;
        let log = put("/var/undo", b"").await?;
        log.write_all_at(b"it was old", 0).await?;
        if !run.bug {
            log.sync_all().await?;
        }
        data.write_all_at(b"new", 0).await?;
        Ok(())
    };
    let after = async {
        let changed = fs::read("/var/data").await? != b"old";
        let can_undo = fs::read("/var/undo").await? == b"it was old";
        assert!(can_undo || !changed, "changed, and cannot be undone");
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

/// Longer than a sector.
fn version(number: u8) -> Vec<u8> {
    vec![number; 2000]
}

/// The length, a checksum, and the words.
fn record(words: &[u8]) -> Vec<u8> {
    let sum: u32 = words.iter().map(|byte| u32::from(*byte)).sum();
    let len = u32::try_from(words.len()).unwrap();
    [&len.to_le_bytes(), &sum.to_le_bytes(), words].concat()
}

/// The words of the record, if there is one.
fn recovered(log: &[u8], checks: bool) -> Option<&[u8]> {
    let (len, rest) = log.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let words = rest.get(..usize::try_from(u32::from_le_bytes(*len)).unwrap())?;
    let same = record(words)[4..8] == *sum;
    (!words.is_empty() && (same || !checks)).then_some(words)
}

fn torn_record(run: Run) -> Result {
    let before = async {
        let log = put("/var/log", b"").await?;
        log.write_all_at(&record(&version(3)), 0).await?;
        Ok(())
    };
    let after = async move {
        let left = fs::read("/var/log").await?;
        if let Some(found) = recovered(&left, !run.bug) {
            assert!(found == version(3), "a record that was never written");
        }
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

fn failed_sync_tried_again(run: Run) -> Result {
    let before = async move {
        let log = put("/var/log", b"").await?;
        log.write_all_at(&version(1), 0).await?;
        while log.sync_all().await.is_err() {
            if !run.bug {
                log.write_all_at(&version(1), 0).await?;
            }
        }
        Ok(())
    };
    let after = async {
        let left = fs::read("/var/log").await?;
        assert!(left == version(1), "synced, and not there");
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

async fn part_of_a_record_stays(run: Run) -> Result {
    peer::enable_buggify();
    let log = put("/var/log", b"").await?;
    let mut end = 0;
    for _ in 0..5 {
        let written = match the_disk() {
            Ok(()) => log.write_all_at(b"a record\n", end).await,
            full => full,
        };
        if written.is_ok() {
            end += 9;
        } else if run.bug {
            end = log.metadata().await?.len();
        } else {
            log.set_len(end).await?;
        }
    }
    let left = String::from_utf8(fs::read("/var/log").await?)?;
    assert!(left.lines().all(|line| line == "a record"), "{left:?}");
    assert!(left.is_empty() || left.ends_with('\n'), "{left:?}");
    Ok(())
}

async fn one_broken_file_ends_all(run: Run) -> Result {
    peer::enable_buggify();
    let names = ["/var/a", "/var/b", "/var/c", "/var/d"];
    for name in names {
        put(name, b"words").await?;
    }
    let mut tried = 0;
    let swept = async {
        for name in names {
            tried += 1;
            let read = match the_disk() {
                Ok(()) => fs::read(name).await,
                Err(broken) => Err(broken),
            };
            match read {
                Err(error) if run.bug => return Err(error),
                _ => {}
            }
        }
        Ok(())
    };
    let _ = swept.await;
    assert_eq!(tried, 4, "one file is broken, and others were not read");
    Ok(())
}
