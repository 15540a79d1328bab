//! Files, on the simulated file system of turmoil (its feature `unstable-fs`).

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::sleep;
use turmoil::fs::shim::tokio::fs::{self, File, OpenOptions};

use crate::peer;
use crate::shared::{MS, Result, Run, side_by_side, zoo};

zoo! {
    alone write_for_write_all;
    alone read_for_read_exact;
    alone end_of_file_for_two;
    alone file_read_changed_written;
    own told_before_it_was_synced;
    own synced_and_the_name_was_not;
    own renamed_before_it_was_synced;
    own rename_not_synced;
    own data_before_its_log;
    own torn_record;
    own written_in_place;
    own failed_sync_tried_again;
    own part_of_a_record_stays;
    own scratch_file_stays;
    own one_broken_file_ends_all;
}

async fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = file.write_at(bytes, at).await?;
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

/// A file that is on the disk already, and so is its name.
async fn put(path: &str, bytes: &[u8]) -> io::Result<()> {
    let above = Path::new(path).parent().expect("a directory");
    fs::create_dir_all(above).await?;
    fs::sync_dir("/").await?;
    let file = File::create(path).await?;
    write_all_at(&file, bytes, 0).await?;
    file.sync_all().await?;
    fs::sync_dir(above).await
}

async fn open_for_writing(path: &str) -> io::Result<File> {
    OpenOptions::new().write(true).open(path).await
}

pub(crate) async fn asleep_until_it_is_done(run: Run) -> Result {
    fs::create_dir_all("/tmp").await?;
    let writer = tokio::spawn(async {
        let file = File::create("/tmp/report").await?;
        write_all_at(&file, b"all of it", 0).await
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
    fs::create_dir_all("/tmp").await?;
    let file = File::create("/tmp/report").await?;
    write_all_at(&file, b"words", 0).await?;
    match run.bug {
        true => std::mem::forget(file),
        false => drop(file),
    }
    Ok(())
}

async fn write_for_write_all(run: Run) -> Result {
    fs::create_dir_all("/tmp").await?;
    let file = File::create("/tmp/report").await?;
    match run.bug {
        true => _ = file.write_at(b"all of the words", 0).await?,
        false => write_all_at(&file, b"all of the words", 0).await?,
    }
    assert_eq!(fs::read("/tmp/report").await?, b"all of the words");
    Ok(())
}

async fn read_for_read_exact(run: Run) -> Result {
    put("/tmp/report", b"all of the words").await?;
    let file = File::open("/tmp/report").await?;
    let mut buf = [0; 16];
    let mut end = file.read_at(&mut buf, 0).await?;
    while !run.bug && end < 16 {
        end += file.read_at(&mut buf[end..], end as u64).await?;
    }
    assert_eq!(buf[..end], *b"all of the words");
    Ok(())
}

async fn end_of_file_for_two(run: Run) -> Result {
    put("/tmp/log", b"").await?;
    let log = Arc::new(open_for_writing("/tmp/log").await?);
    let lock = Arc::new(Mutex::new(()));
    side_by_side(2, |_| {
        let (log, lock) = (log.clone(), lock.clone());
        async move {
            let held = match run.bug {
                true => None,
                false => Some(lock.lock().await),
            };
            let end = log.metadata().await?.len();
            write_all_at(&log, b"record\n", end).await?;
            drop(held);
            Ok(())
        }
    })
    .await?;
    assert_eq!(fs::read("/tmp/log").await?, b"record\nrecord\n");
    Ok(())
}

async fn file_read_changed_written(run: Run) -> Result {
    put("/tmp/number", &[0]).await?;
    let lock = Arc::new(Mutex::new(()));
    side_by_side(2, |_| {
        let lock = lock.clone();
        async move {
            let held = match run.bug {
                true => None,
                false => Some(lock.lock().await),
            };
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).open("/tmp/number").await?;
            let mut number = [0];
            file.read_at(&mut number, 0).await?;
            write_all_at(&file, &[number[0] + 1], 0).await?;
            drop(held);
            Ok(())
        }
    })
    .await?;
    assert_eq!(fs::read("/tmp/number").await?, [2]);
    Ok(())
}

fn told_before_it_was_synced(run: Run) -> Result {
    let before = async move {
        put("/var/log", b"").await?;
        let log = open_for_writing("/var/log").await?;
        write_all_at(&log, b"record", 0).await?;
        if !run.bug {
            log.sync_data().await?;
        }
        Ok(()) // here the client is told
    };
    let after = async {
        assert_eq!(fs::read("/var/log").await?, b"record");
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

fn synced_and_the_name_was_not(run: Run) -> Result {
    let before = async move {
        put("/var/other", b"").await?;
        let log = File::create("/var/log").await?;
        write_all_at(&log, b"record", 0).await?;
        log.sync_all().await?;
        if !run.bug {
            fs::sync_dir("/var").await?;
        }
        Ok(())
    };
    let after = async {
        assert_eq!(fs::read("/var/log").await?, b"record");
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

/// Longer than a sector.
fn version(number: u8) -> Vec<u8> {
    vec![number; 2000]
}

/// Writes a new version beside the old one and renames it.
async fn replace(sync_file: bool, sync_name: bool) -> Result {
    let new = File::create("/etc/conf.new").await?;
    write_all_at(&new, &version(2), 0).await?;
    if sync_file {
        new.sync_all().await?;
    }
    drop(new);
    fs::rename("/etc/conf.new", "/etc/conf").await?;
    if sync_name {
        fs::sync_dir("/etc").await?;
    }
    Ok(())
}

/// The old version is there, `change` goes on until the power cut, and one of the two is
/// there afterwards.
fn one_of_two(run: Run, change: impl Future<Output = Result> + Send + 'static) -> Result {
    let before = async move {
        put("/etc/conf", &version(1)).await?;
        change.await
    };
    let after = async {
        let left = fs::read("/etc/conf").await?;
        let whole = left == version(1) || left == version(2);
        assert!(whole, "neither the old version nor the new one");
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

fn renamed_before_it_was_synced(run: Run) -> Result {
    one_of_two(run, async move {
        replace(!run.bug, false).await?;
        // The directory may come to the disk by itself, or because of another file.
        if run.draw(0, 2) == 0 {
            fs::sync_dir("/etc").await?;
        }
        Ok(())
    })
}

fn rename_not_synced(run: Run) -> Result {
    let before = async move {
        put("/etc/conf", &version(1)).await?;
        replace(true, !run.bug).await // here it is said that the new version is in force
    };
    let after = async {
        let left = fs::read("/etc/conf").await?;
        assert!(left == version(2), "the old version is back");
        Ok(())
    };
    peer::power_cut(run, Box::pin(before), Box::pin(after))
}

fn data_before_its_log(run: Run) -> Result {
    let before = async move {
        put("/var/data", b"old").await?;
        put("/var/undo", b"").await?;
        let log = open_for_writing("/var/undo").await?;
        let data = open_for_writing("/var/data").await?;
        write_all_at(&log, b"it was old", 0).await?;
        if !run.bug {
            log.sync_data().await?;
        }
        write_all_at(&data, b"new", 0).await?;
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
        put("/var/log", b"").await?;
        let log = open_for_writing("/var/log").await?;
        write_all_at(&log, &record(&version(3)), 0).await?;
        Ok(())
    };
    let after = async move {
        let left = fs::read("/var/log").await?;
        if let Some(found) = recovered(&left, !run.bug) {
            assert!(found == version(3), "a record that was never written");
        }
        Ok(())
    };
    // A torn write of theirs ends at its tear; a bit that has turned is found all the same.
    let rot = |files: &mut turmoil::FsConfig| _ = files.corruption_probability(0.2);
    peer::power_cut_with(run, rot, Box::pin(before), Box::pin(after))
}

fn written_in_place(run: Run) -> Result {
    one_of_two(run, async move {
        if run.bug {
            let file = open_for_writing("/etc/conf").await?;
            write_all_at(&file, &version(2), 0).await?;
            return Ok(());
        }
        replace(true, false).await
    })
}

fn failed_sync_tried_again(run: Run) -> Result {
    let before = async move {
        put("/var/log", b"").await?;
        let log = open_for_writing("/var/log").await?;
        write_all_at(&log, &version(1), 0).await?;
        while log.sync_data().await.is_err() {
            if !run.bug {
                write_all_at(&log, &version(1), 0).await?;
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

fn part_of_a_record_stays(run: Run) -> Result {
    let body = async move {
        put("/var/log", b"").await?;
        let log = open_for_writing("/var/log").await?;
        let mut end = 0;
        for _ in 0..5 {
            if write_all_at(&log, b"a record\n", end).await.is_ok() {
                end += 9;
            } else if run.bug {
                end = log.metadata().await?.len();
            } else {
                log.set_len(end).await?;
            }
        }
        let left = fs::read_to_string("/var/log").await?;
        assert!(left.lines().all(|line| line == "a record"), "{left:?}");
        assert!(left.is_empty() || left.ends_with('\n'), "{left:?}");
        Ok(())
    };
    let room = run.draw(0, 45);
    peer::with_files(run, |files| _ = files.capacity(room), Box::pin(body))
}

async fn save(path: &str) -> io::Result<()> {
    let scratch = File::create("/tmp/scratch").await?;
    write_all_at(&scratch, b"words", 0).await?;
    scratch.sync_all().await?;
    drop(scratch);
    fs::rename("/tmp/scratch", path).await
}

fn scratch_file_stays(run: Run) -> Result {
    let body = async move {
        fs::create_dir_all("/tmp").await?;
        let saved = save("/tmp/report").await;
        if saved.is_err() && !run.bug {
            fs::remove_file("/tmp/scratch").await?;
        }
        assert!(!fs::try_exists("/tmp/scratch").await?, "{saved:?}");
        Ok(())
    };
    peer::with_files(
        run,
        |files| _ = files.io_error_probability(0.1),
        Box::pin(body),
    )
}

fn one_broken_file_ends_all(run: Run) -> Result {
    let body = async move {
        let names = ["/var/a", "/var/b", "/var/c", "/var/d"];
        for name in names {
            while put(name, b"words").await.is_err() {}
        }
        let mut tried = 0;
        let swept = async {
            for name in names {
                tried += 1;
                match fs::read(name).await {
                    Err(error) if run.bug => return Err(error),
                    Err(error) => assert_ne!(error.kind(), ErrorKind::NotFound),
                    Ok(_) => {}
                }
            }
            Ok(())
        };
        let _ = swept.await;
        assert_eq!(tried, 4, "one file is broken, and others were not read");
        Ok(())
    };
    peer::with_files(
        run,
        |files| _ = files.io_error_probability(0.1),
        Box::pin(body),
    )
}
