//! A log with bytes in it that are no record: what a crash leaves is cut off, and
//! anything else is for a human to decide.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kinfolk::testkit::{Sim, cancel_everywhere};
use kinfolk::{Error, Result, cleanup, fs, scope, timeout};
use kvlog::log::salvage;
use kvlog::record::{BEGINNING, Record};
use kvlog::store::{self, Store};

const DIR: &str = "/data";
const LOG: &str = "/data/log";

fn record(id: &str) -> Record {
    Record {
        id: id.into(),
        key: id.into(),
        value: Some(id.repeat(20).into()),
    }
}

/// Runs a body beside a committer.
async fn with_store<T>(body: impl AsyncFnOnce(Arc<Store>) -> Result<T>) -> Result<T> {
    let (store, committer) = store::open(Path::new(DIR)).await?;
    scope(async |s| {
        s.spawn_atomic(committer.run()).into_job();
        body(store).await
    })
    .await
}

/// A log with these records, each acknowledged before the next was sent; and where
/// each of them begins.
fn written(ids: &[&'static str]) -> (Vec<u8>, Vec<usize>) {
    let mut sim = Sim::seeded(7);
    let kernel = sim.io();
    let (ids, disk) = (ids.to_vec(), kernel.clone());
    let starts = sim.run(with_store(async move |store| {
        let mut starts = Vec::new();
        for id in ids {
            let end = disk.get(LOG).expect("a log").len();
            starts.push(end.max(BEGINNING.len()));
            store.write(record(id)).await?;
        }
        Ok(starts)
    }));
    let log = kernel.get(LOG).expect("a log");
    sim.finish();
    (log, starts.expect("a store"))
}

/// Opens a store on this log: what the keys are, and what the log is afterwards.
fn opened(log: &[u8], keys: &[&'static str]) -> (Result<Vec<&'static str>>, Vec<u8>) {
    let mut sim = Sim::seeded(7);
    sim.io().put(LOG, log);
    let keys = keys.to_vec();
    let there = sim.run(with_store(async move |store| {
        Ok(keys
            .into_iter()
            .filter(|key| store.get(key).is_some())
            .collect())
    }));
    let log = sim.io().get(LOG).expect("a log");
    sim.finish();
    (there, log)
}

#[test]
fn a_flipped_bit_before_acknowledged_records_stops_the_start() {
    let (log, starts) = written(&["a", "b", "c"]);
    for at in 0..starts[2] {
        let mut damaged = log.clone();
        damaged[at] ^= 4;
        let (there, after) = opened(&damaged, &["a", "b", "c"]);
        assert!(there.is_err(), "byte {at}: {there:?} are left");
        assert_eq!(after, damaged, "nothing was changed");
    }
}

/// Records that are written as one batch: none was acknowledged before all were there.
fn batch(ids: &[&str]) -> Vec<u8> {
    let mut log = BEGINNING.to_vec();
    for id in ids {
        record(id).append_to(&mut log, 0);
    }
    log
}

/// Every way to miss sectors of the last batch is a torn end: what was acknowledged
/// before is kept, what lies behind a hole does not come back, and the store opens.
#[test]
fn a_batch_with_any_sectors_missing_is_cut() {
    let mut first = batch(&["a"]);
    let (start, mut last) = (first.len(), Vec::new());
    for id in ["b", "c", "d", "e"] {
        let long = Record {
            value: Some(vec![b'x'; 400]),
            ..record(id)
        };
        long.append_to(&mut last, start as u64);
    }
    first.extend(last);
    let sectors = first.len().div_ceil(512);
    for missing in 1..1 << sectors {
        for short in [false, true] {
            let mut log = first.clone();
            for sector in (0..sectors).filter(|sector| missing & (1 << sector) != 0) {
                let end = log.len().min((sector + 1) * 512);
                log[start.max(sector * 512)..end].fill(0);
            }
            if short {
                log.truncate(first.len() - 100);
            }
            let (there, after) = opened(&log, &["a", "b", "c", "d", "e"]);
            let there = there.unwrap_or_else(|error| panic!("{missing:b}: {error}"));
            let all = ["a", "b", "c", "d", "e"];
            assert!(!there.is_empty() && all.starts_with(&there), "{there:?}");
            assert!(after.len() < log.len() && log.starts_with(&after));
            assert_eq!(opened(&after, &all).0.expect("all is well"), there);
        }
    }
}

/// The last batch too, though nothing lies behind it: no crash flips a bit.
#[test]
fn a_flipped_bit_in_the_last_batch_stops_the_start() {
    let log = batch(&["a", "b", "c"]);
    // Not in the length of the last record: with that, the end may be missing.
    let mut tail = Vec::new();
    record("c").append_to(&mut tail, 0);
    let last = log.len() - tail.len();
    for at in (0..last).chain(last + 4..log.len()) {
        let mut damaged = log.clone();
        damaged[at] ^= 4;
        let (there, after) = opened(&damaged, &["a", "b", "c"]);
        assert!(there.is_err(), "byte {at}: {there:?} are left");
        assert_eq!(after, damaged, "nothing was changed");
    }
}

#[test]
fn a_file_that_is_no_log_is_left_alone() {
    for other in [&b"hello"[..], b"an old log, or something else altogether"] {
        let (there, after) = opened(other, &[]);
        assert!(there.is_err());
        assert_eq!(after, other);
    }
    // A crash before anything was written leaves these.
    for new in [&b""[..], b"kvlo", b"kvlog\0\0\0", b"\0\0\0\0\0\0\0\0"] {
        let (there, after) = opened(new, &[]);
        there.expect("a store");
        assert_eq!(after, b"");
    }
}

#[test]
fn the_error_says_what_is_wrong_where_and_what_to_do() {
    let (mut log, starts) = written(&["a", "b", "c"]);
    log[starts[1] + 20] ^= 1;
    let words = opened(&log, &[]).0.expect_err("damaged").to_string();
    let place = format!(
        "the bytes from {} to {} are no record",
        starts[1], starts[2]
    );
    for part in ["/data/log is damaged", &place, "1 records", "--salvage"] {
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn salvage_keeps_what_can_be_read_and_loses_no_byte() {
    let all = ["a", "b", "c", "d"];
    let (log, starts) = written(&all);
    let mut damaged = log.clone();
    damaged[starts[0] + 30] ^= 1;
    damaged[starts[2] + 30] ^= 1;
    let torn = &log[starts[1]..starts[1] + 20];
    damaged.extend(torn);

    let mut sim = Sim::seeded(7);
    let kernel = sim.io();
    kernel.put(LOG, &damaged);
    kernel.put("/data/log.bad-8", "of an earlier time");
    let dropped = sim.run(salvage(Path::new(DIR))).expect("a log");
    let places: Vec<_> = dropped.iter().map(|part| part.bytes.clone()).collect();
    let [a, b, c, d] = starts[..] else {
        panic!("four")
    };
    let end = log.len();
    let expected = [a..b, c..d, end..damaged.len()];
    assert_eq!(
        places,
        expected.clone().map(|r| r.start as u64..r.end as u64)
    );
    assert_eq!(
        kernel.get("/data/log.bad-8").expect("it"),
        b"of an earlier time"
    );
    for (part, bytes) in dropped.iter().zip(expected) {
        assert_eq!(kernel.get(&part.file).expect("a file"), damaged[bytes]);
    }
    let left = sim.run(with_store(async move |store| {
        store.write(record("e")).await?;
        Ok(all.map(|key| store.get(key).is_some()))
    }));
    assert_eq!(left.expect("a store"), [false, true, false, true]);
    assert_eq!(sim.run(salvage(Path::new(DIR))).expect("a log").len(), 0);
    assert!(!kernel.files().iter().any(|file| file.ends_with(".new")));
    sim.finish();
}

/// Stopped anywhere, by a cancel or by a power cut: the log is the old one or the new.
#[test]
fn salvage_can_be_stopped_anywhere() {
    let (mut damaged, starts) = written(&["a", "b", "c"]);
    damaged[starts[1] + 30] ^= 1;
    let (log, bad) = (damaged.clone(), starts[2] - starts[1]);
    let went = cancel_everywhere(move || {
        let log = log.clone();
        async move {
            fs::create_dir_all(DIR).await?;
            let (written, log) = fs::write(LOG, log).await;
            written?;
            let ran = salvage(Path::new(DIR)).await;
            let left = cleanup(fs::read(LOG)).await?;
            assert!(left == log || left.len() == log.len() - bad);
            ran.map(drop)
        }
    });
    assert_eq!(went.forced, 0, "everything hears");
    assert!(went.points > 10, "{went:?}");

    for seed in 0..50 {
        let mut sim = Sim::seeded(seed);
        let kernel = sim.io();
        kernel.put(LOG, &damaged);
        let saved = sim.run(async move {
            let cut = Duration::from_micros(seed * 5);
            let stopped = timeout(cut, salvage(Path::new(DIR))).await;
            Ok::<_, Error>((kernel.power_cut(seed), stopped.is_ok()))
        });
        let (disk, _) = saved.expect("a disk");
        sim.finish();
        let left = disk.get(LOG).expect("a log");
        if left != damaged {
            let aside = disk.get(format!("{LOG}.bad-{}", starts[1])).expect("it");
            assert_eq!(aside, damaged[starts[1]..starts[2]], "seed {seed}");
        }
    }
}
