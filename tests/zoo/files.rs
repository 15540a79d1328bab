//! Files: part of a write, a disk that fails, and a power cut.

use std::sync::Arc;

use kinfolk::testkit::io::{Fault, OpKind, SimIo};
use kinfolk::{Error, OrCancel, Result};
use kinfolk_runtime::fs::{self, File, OpenOptions};
use tokio::sync::Mutex;

use crate::{Run, side_by_side};

zoo! {
    write_for_write_all test "one `write_at` is taken to write everything"
        says "a part was written";
    read_for_read_exact test "one `read_at` is taken to read everything"
        says "a part was read";
    end_of_file_for_two test "two tasks ask for the length of a log, and write there"
        says "one record lies over the other";
    file_read_changed_written test "two tasks read a number from a file and write it back"
        says "an update is lost";
    told_before_it_was_synced power_cut "a client is told that its record is safe, and it was not synced"
        says "told that it is safe, and it is not there";
    synced_and_the_name_was_not power_cut "a new file is synced, and its directory is not"
        says "synced, and without a name";
    renamed_before_it_was_synced power_cut "a new version is renamed over the old one before it was synced"
        says "neither the old version nor the new one";
    rename_not_synced power_cut "a new version is renamed over the old one, and the directory is not synced"
        says "the old version is back";
    data_before_its_log power_cut "data is changed before the log that can undo it was synced"
        says "changed, and cannot be undone";
    torn_record power_cut "recovery believes a record's length, and has no checksum"
        says "a record that was never written";
    written_in_place power_cut "the only copy is overwritten in place"
        says "neither the old version nor the new one";
    failed_sync_tried_again fault "after a sync that failed, a second one is believed"
        says "synced, and not there";
    part_of_a_record_stays fault "the disk is full in the middle of a record, and the next one goes behind the part"
        says "a part of a record stays";
    scratch_file_stays fault "an error on the way leaves the scratch file behind"
        says "the scratch file stays";
    one_broken_file_ends_all fault "one file that cannot be read ends the whole sweep"
        says "one file is broken, and";
}

async fn write_for_write_all(bug: bool) -> Result<()> {
    let file = File::create("/tmp/report").await?;
    if bug {
        file.write_at("all of the words", 0).await.0?;
    } else {
        file.write_all_at("all of the words", 0).await.0?;
    }
    let written = fs::read("/tmp/report").await?;
    assert_eq!(written, b"all of the words", "a part was written");
    Ok(())
}

async fn read_for_read_exact(bug: bool) -> Result<()> {
    fs::write("/tmp/report", "all of the words").await.0?;
    let file = File::open("/tmp/report").await?;
    let buf = vec![0; 16];
    let read = if bug {
        let (read, mut buf) = file.read_at(buf, 0).await;
        buf.truncate(read?);
        buf
    } else {
        let (read, buf) = file.read_exact_at(buf, 0).await;
        read?;
        buf
    };
    assert_eq!(read, b"all of the words", "a part was read");
    Ok(())
}

async fn end_of_file_for_two(bug: bool) -> Result<()> {
    let log = Arc::new(File::create("/tmp/log").await?);
    let lock = Arc::new(Mutex::new(()));
    side_by_side(2, |_| {
        let (log, lock) = (log.clone(), lock.clone());
        async move {
            let held = match bug {
                true => None,
                false => Some(lock.lock().or_cancel().await?),
            };
            let end = log.metadata().await?.len();
            log.write_all_at("record\n", end).await.0?;
            drop(held);
            Ok(())
        }
    })
    .await?;
    let records = fs::read("/tmp/log").await?;
    assert_eq!(
        records, b"record\nrecord\n",
        "one record lies over the other"
    );
    Ok(())
}

async fn file_read_changed_written(bug: bool) -> Result<()> {
    fs::write("/tmp/number", [0]).await.0?;
    let lock = Arc::new(Mutex::new(()));
    side_by_side(2, |_| {
        let lock = lock.clone();
        async move {
            let held = match bug {
                true => None,
                false => Some(lock.lock().or_cancel().await?),
            };
            let file = OpenOptions::new().read(true).write(true);
            let file = file.open("/tmp/number").await?;
            let (read, number) = file.read_exact_at([0], 0).await;
            read?;
            file.write_all_at([number[0] + 1], 0).await.0?;
            file.close().await?;
            drop(held);
            Ok(())
        }
    })
    .await?;
    let number = fs::read("/tmp/number").await?;
    assert_eq!(number, [2], "an update is lost");
    Ok(())
}

async fn sync_directory(path: &str) -> Result<()> {
    let dir = File::open(path).await?;
    dir.sync_all().await?;
    dir.close().await?;
    Ok(())
}

async fn open_for_writing(path: &str) -> Result<File> {
    Ok(OpenOptions::new().write(true).open(path).await?)
}

fn told_before_it_was_synced(run: Run) {
    let Run { bug, seed, .. } = run;
    run.simulate(SimIo::rough(), |disk| async move {
        disk.put("/var/log", "");
        let log = open_for_writing("/var/log").await?;
        log.write_all_at("record", 0).await.0?;
        if !bug {
            log.sync_data().await?;
        }
        // Here the client is told.
        let left = disk.power_cut(seed).get("/var/log").unwrap();
        assert_eq!(left, b"record", "told that it is safe, and it is not there");
        Ok(())
    });
}

fn synced_and_the_name_was_not(run: Run) {
    let Run { bug, seed, .. } = run;
    run.simulate(SimIo::rough(), |disk| async move {
        let log = File::create("/var/log").await?;
        log.write_all_at("record", 0).await.0?;
        log.sync_all().await?;
        if !bug {
            sync_directory("/var").await?;
        }
        let left = disk.power_cut(seed).get("/var/log");
        let whole = left.as_deref() == Some(b"record");
        assert!(whole, "synced, and without a name");
        Ok(())
    });
}

/// Longer than a sector.
fn version(number: u8) -> Vec<u8> {
    vec![number; 2000]
}

/// Writes a new version beside the old one and renames it.
async fn replace(sync_file: bool, sync_name: bool) -> Result<()> {
    let new = File::create("/etc/conf.new").await?;
    new.write_all_at(version(2), 0).await.0?;
    if sync_file {
        new.sync_all().await?;
    }
    new.close().await?;
    fs::rename("/etc/conf.new", "/etc/conf").await?;
    if sync_name {
        sync_directory("/etc").await?;
    }
    Ok(())
}

fn renamed_before_it_was_synced(run: Run) {
    let Run { bug, seed, .. } = run;
    run.simulate(SimIo::rough(), |disk| async move {
        disk.put("/etc/conf", version(1));
        replace(!bug, false).await?;
        let left = disk.power_cut(seed).get("/etc/conf");
        let whole = left == Some(version(1)) || left == Some(version(2));
        assert!(whole, "neither the old version nor the new one");
        Ok(())
    });
}

fn rename_not_synced(run: Run) {
    let Run { bug, seed, .. } = run;
    run.simulate(SimIo::rough(), |disk| async move {
        disk.put("/etc/conf", version(1));
        replace(true, !bug).await?;
        // Here it is said that the new version is in force.
        let left = disk.power_cut(seed).get("/etc/conf");
        assert!(left == Some(version(2)), "the old version is back");
        Ok(())
    });
}

fn data_before_its_log(run: Run) {
    let Run { bug, seed, .. } = run;
    run.simulate(SimIo::rough(), |disk| async move {
        disk.put("/var/data", "old");
        disk.put("/var/undo", "");
        let (log, data) = (
            open_for_writing("/var/undo").await?,
            open_for_writing("/var/data").await?,
        );
        log.write_all_at("it was old", 0).await.0?;
        if !bug {
            log.sync_data().await?;
        }
        data.write_all_at("new", 0).await.0?;
        let left = disk.power_cut(seed);
        let changed = left.get("/var/data").unwrap() != b"old";
        let can_undo = left.get("/var/undo").unwrap() == b"it was old";
        assert!(can_undo || !changed, "changed, and cannot be undone");
        Ok(())
    });
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

fn torn_record(run: Run) {
    let Run { bug, seed, .. } = run;
    run.simulate(SimIo::rough(), |disk| async move {
        disk.put("/var/log", "");
        let log = open_for_writing("/var/log").await?;
        let words = version(3);
        log.write_all_at(record(&words), 0).await.0?;
        let left = disk.power_cut(seed).get("/var/log").unwrap();
        if let Some(found) = recovered(&left, !bug) {
            assert!(found == words, "a record that was never written");
        }
        Ok(())
    });
}

fn written_in_place(run: Run) {
    let Run { bug, seed, .. } = run;
    run.simulate(SimIo::rough(), |disk| async move {
        disk.put("/etc/conf", version(1));
        if bug {
            let file = open_for_writing("/etc/conf").await?;
            file.write_all_at(version(2), 0).await.0?;
        } else {
            replace(true, false).await?;
        }
        let left = disk.power_cut(seed).get("/etc/conf");
        let whole = left == Some(version(1)) || left == Some(version(2));
        assert!(whole, "neither the old version nor the new one");
        Ok(())
    });
}

fn failed_sync_tried_again(run: Run) {
    let Run { bug, seed, .. } = run;
    let faults = SimIo::new().fault(OpKind::Sync, 1, Fault::Broken);
    run.simulate(faults, |disk| async move {
        disk.put("/var/log", "");
        let log = open_for_writing("/var/log").await?;
        log.write_all_at(version(1), 0).await.0?;
        while log.sync_data().await.is_err() {
            if !bug {
                log.write_all_at(version(1), 0).await.0?;
            }
        }
        let left = disk.power_cut(seed).get("/var/log").unwrap();
        assert!(left == version(1), "synced, and not there");
        Ok(())
    });
}

fn part_of_a_record_stays(run: Run) {
    let bug = run.bug;
    let faults = SimIo::rough().for_files(|files| files.no_space(0.2));
    run.simulate(faults, |disk| async move {
        disk.put("/var/log", "");
        let log = open_for_writing("/var/log").await?;
        let mut end = 0;
        for _ in 0..5 {
            let written = log.write_all_at("a record\n", end).await.0;
            if written.is_ok() {
                end += 9;
            } else if bug {
                end = log.metadata().await?.len();
            } else {
                // A disk that is full may refuse that too.
                while log.set_len(end).await.is_err() {}
            }
        }
        let left = String::from_utf8(disk.get("/var/log").unwrap()).unwrap();
        let whole = left.lines().all(|line| line == "a record");
        let ended = left.is_empty() || left.ends_with('\n');
        assert!(whole && ended, "a part of a record stays: {left:?}");
        Ok(())
    });
}

async fn save(path: &str) -> Result<()> {
    let scratch = File::create("/tmp/scratch").await?;
    scratch.write_all_at("words", 0).await.0?;
    scratch.sync_all().await?;
    scratch.close().await?;
    fs::rename("/tmp/scratch", path).await?;
    Ok(())
}

fn scratch_file_stays(run: Run) {
    let bug = run.bug;
    let faults = SimIo::rough().for_files(|files| files.broken(0.1));
    run.simulate(faults, |disk| async move {
        let saved = save("/tmp/report").await;
        if saved.is_err() && !bug {
            // The disk fails now and then: that includes this.
            while disk.get("/tmp/scratch").is_some() {
                let _ = fs::remove_file("/tmp/scratch").await;
            }
        }
        let left = disk.get("/tmp/scratch");
        assert_eq!(left, None, "the scratch file stays: {saved:?}");
        Ok(())
    });
}

fn one_broken_file_ends_all(run: Run) {
    let bug = run.bug;
    let faults = SimIo::new().fault(OpKind::Read, 2, Fault::Broken);
    run.simulate(faults, |disk| async move {
        let names = ["/var/a", "/var/b", "/var/c", "/var/d"];
        for name in names {
            disk.put(name, "words");
        }
        let mut seen = 0;
        let swept = async {
            for name in names {
                match fs::read(name).await {
                    Ok(_) => seen += 1,
                    Err(error) if bug => return Err(Error::from(error)),
                    Err(_) => {} // named in the report; the others are read all the same
                }
            }
            Ok(())
        };
        let _ = swept.await;
        assert!(seen >= 3, "one file is broken, and {seen} were read");
        Ok(())
    });
}
