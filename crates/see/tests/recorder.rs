//! The flight recorder: what it keeps, what it costs, and when it writes a file.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, Event, EventKind, Interests, JobId, JobState, Sink, WaitKind, checkpoint, park, sleep,
    spawn, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_see::Recorder;
use kinfolk_sync::{Mutex, mpmc};
use kinfolk_testkit::Sim;

const MS: Duration = Duration::from_millis(1);

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kinfolk-{}-{name}", std::process::id()))
}

#[test]
fn see_4_a_recording_has_names_times_and_causes_and_replays() {
    let record = |seed| {
        let recorder = Recorder::builder().interests(Interests::ALL).build();
        let mut sim = Sim::builder(seed)
            .sink(recorder.clone())
            .on_failure(|_| {})
            .build();
        let id = sim
            .run(async {
                let home = kinfolk_core::Scope::current().unwrap();
                let task = home.task("worker").spawn(park());
                sleep(3 * MS).await?;
                task.cancel("no longer needed");
                let id = task.id();
                let _ = task.outcome().await?;
                Ok::<_, Error>(id)
            })
            .unwrap();
        sim.finish();
        (recorder.recording(), id)
    };
    let (recording, id) = record(1);
    assert_eq!(recording.lost, 0);
    let named = recording
        .events
        .iter()
        .find(|recorded| recorded.event.job == id)
        .unwrap();
    assert_eq!(named.text.as_deref(), Some("worker"));
    assert!(matches!(named.event.kind, EventKind::Create { .. }));
    let trace = recording.causes().why_cancelled(id).unwrap();
    assert_eq!(trace.entry.text.as_deref(), Some("no longer needed"));
    assert_eq!(trace.entry.at, 3_000_000);
    let ended = trace.job.ended.unwrap();
    assert_eq!(ended, (3_000_000, JobState::Cancelled));
    let told = trace.to_string();
    assert!(told.starts_with("task \"worker\" #"), "{told}");
    assert!(
        told.contains("was cancelled: cancel requested \"no longer needed\"\n  --> "),
        "{told}"
    );
    assert!(told.contains("its body is told at "), "{told}");
    // The same seed, the same record; job numbers too, but not the tree's.
    let again = record(1).0;
    let plain = |event: &Event| (event.job.number(), event.at);
    let first: Vec<_> = recording
        .events
        .iter()
        .map(|one| plain(&one.event))
        .collect();
    let second: Vec<_> = again.events.iter().map(|one| plain(&one.event)).collect();
    assert_eq!(first, second);
}

/// A wait says which lock or channel it is for.
#[test]
fn see_4_waits_name_their_lock_or_channel() {
    let recorder = Recorder::builder().interests(Interests::ALL).build();
    let mut sim = Sim::builder(2).sink(recorder.clone()).build();
    sim.run(async {
        let table = Arc::new(Mutex::new(0).named("table"));
        let (sender, receiver) = mpmc::channel::<u32>(1);
        let held = table.lock().await?;
        let waiting = table.clone();
        let locks = spawn(async move { waiting.lock().await.map(|_| ()) });
        let receives = spawn(async move { receiver.recv().await.map(|_| ()) });
        sleep(MS).await?;
        drop(held);
        drop(sender);
        locks.await?;
        receives.await?;
        Ok::<_, Error>(())
    })
    .unwrap();
    sim.finish();
    let recording = recorder.recording();
    let text = |wanted: WaitKind| {
        recording
            .events
            .iter()
            .find_map(|one| match one.event.kind {
                EventKind::WaitBegin { kind, .. } if kind == wanted => one.text.clone(),
                _ => None,
            })
    };
    assert_eq!(text(WaitKind::Lock).as_deref(), Some("mutex \"table\""));
    let channel = text(WaitKind::Channel).unwrap();
    assert!(channel.starts_with("channel made at ") && channel.contains("recorder.rs:"));
}

#[test]
fn see_4_old_and_overwritten_events_are_counted() {
    let recorder = Recorder::builder().bytes(0).age(5 * MS).build();
    let mut sim = Sim::builder(1).sink(recorder.clone()).build();
    sim.run(async {
        for _ in 0..200 {
            yield_now().await?;
        }
        sleep(10 * MS).await?;
        checkpoint().await
    })
    .unwrap();
    let recording = recorder.recording();
    sim.finish();
    // The least that a thread gets are 64 records.
    assert!(
        recording.events.len() < 64 && recording.lost > 500,
        "{}",
        recording.lost
    );
    let newest = recording.events.last().unwrap().event.at;
    assert!(
        recording
            .events
            .iter()
            .all(|one| one.event.at + 5_000_000 >= newest)
    );
    assert!(newest >= 10_000_000);
}

/// Eight threads spawn and cancel, and recordings are taken meanwhile: each thread's events are
/// in order, whole, and its turns nest.
#[test]
fn see_4_eight_threads_write_and_one_reads() {
    let recorder = Recorder::builder().bytes(64 << 20).build();
    let rt = Runtime::builder()
        .workers(8)
        .sink(recorder.clone())
        .build()
        .unwrap();
    let check = |recorder: &Arc<Recorder>| {
        let recording = recorder.recording();
        let mut turns: HashMap<u64, Vec<JobId>> = HashMap::new();
        let mut times: HashMap<u64, u64> = HashMap::new();
        for one in &recording.events {
            let event = &one.event;
            let time = times.entry(event.thread).or_default();
            assert!(*time <= event.at, "a thread's events are out of order");
            *time = event.at;
            let open = turns.entry(event.thread).or_default();
            match event.kind {
                EventKind::PollBegin => open.push(event.job),
                EventKind::PollEnd if recording.lost == 0 => {
                    assert_eq!(open.pop(), Some(event.job));
                }
                _ => {}
            }
        }
        recording
    };
    let reader = {
        let recorder = recorder.clone();
        std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_millis(300);
            let mut rounds = 0;
            while Instant::now() < until {
                check(&recorder);
                rounds += 1;
            }
            rounds
        })
    };
    rt.block_on(async {
        let all: Vec<_> = (0..32)
            .map(|_| {
                spawn(async {
                    for _ in 0..50 {
                        let child = spawn(async { spawn(park()).await.map(|_| ()) });
                        yield_now().await?;
                        child.cancel("enough");
                        let _ = child.outcome().await?;
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        for task in all {
            task.await?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    drop(rt);
    assert!(reader.join().unwrap() > 0);
    let recording = check(&recorder);
    let ended = recording
        .events
        .iter()
        .filter(|one| one.event.kind == EventKind::Finalize);
    assert!(ended.count() > 1_600);
}

#[test]
fn see_4_a_burst_of_triggers_makes_one_file_and_old_files_go() {
    let dir = place("burst");
    let recorder = Recorder::builder().dir(&dir).files(2).build();
    let mut sim = Sim::builder(1).sink(recorder.clone()).build();
    sim.run(async { checkpoint().await }).unwrap();
    sim.finish();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..25).for_each(|_| recorder.trigger("../../etc/\x1b passwd")));
        }
    });
    let files = recorder.files().unwrap();
    assert_eq!((files.len(), recorder.merged()), (1, 99));
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("kinfolk-") && name.ends_with("etc---passwd.pftrace"),
        "{name}"
    );
    assert_eq!(files[0].parent(), Some(dir.as_path()));
    // What is asked for is written at once, and the oldest gives way.
    let second = recorder.save("second").unwrap();
    let third = recorder.save("third").unwrap();
    assert_eq!(recorder.files().unwrap(), [second, third]);
    assert!(!files[0].exists());
    fs::remove_dir_all(dir).unwrap();
}

/// There are rings for 64 threads at a time; that of a thread that has ended goes to the next,
/// and what the first has written stays its own.
#[test]
fn see_4_rings_of_ended_threads_are_used_again() {
    let recorder = Recorder::new();
    let put = |thread: u64| {
        let mut event = Event::new(
            JobId::from_bits(thread).unwrap(),
            thread,
            EventKind::PollBegin,
        );
        event.thread = thread;
        event.worker = Some(thread as u32);
        recorder.event(&event);
    };
    for thread in 1..=100 {
        std::thread::scope(|s| {
            s.spawn(|| put(thread)).join().unwrap();
        });
    }
    let recording = recorder.recording();
    assert_eq!((recording.events.len(), recording.lost), (100, 0));
    for one in &recording.events {
        assert_eq!(one.event.thread, one.event.job.bits());
        assert_eq!(one.event.worker.map(u64::from), Some(one.event.thread));
    }
    // More at a time than there are rings: counted.
    let all = std::sync::Barrier::new(70);
    std::thread::scope(|s| {
        for thread in 200..270 {
            let (all, put) = (&all, &put);
            s.spawn(move || {
                put(thread);
                all.wait();
            });
        }
    });
    assert_eq!(recorder.recording().lost, 6);
}

/// Without a folder a trigger does nothing; a folder that cannot be made is an error that is
/// told, and no worker hears of it.
#[test]
fn see_4_a_file_that_cannot_be_written_harms_nothing() {
    let recorder = Recorder::new();
    recorder.trigger("nothing");
    assert_eq!(recorder.files().unwrap(), Vec::<PathBuf>::new());
    let file = place("in-the-way");
    fs::write(&file, "a file").unwrap();
    let recorder = Recorder::builder().dir(file.join("below")).build();
    recorder.trigger("something");
    assert!(recorder.files().is_err());
    assert!(recorder.save("more").is_err());
    fs::remove_file(file).unwrap();
}

/// What an event costs, by itself and in turns of a runtime that do nothing else:
/// `cargo test --release -p kinfolk-see --test recorder -- --ignored --nocapture cost`.
#[test]
#[ignore = "prints times: CONTRIBUTING.md names the command"]
fn cost_of_an_event() {
    let recorder = Recorder::new();
    let event = Event::new(JobId::from_bits(77).unwrap(), 1, EventKind::PollBegin);
    let times = 10_000_000;
    let start = Instant::now();
    for _ in 0..times {
        recorder.event(std::hint::black_box(&event));
    }
    println!("the recorder alone: {:?} an event", start.elapsed() / times);
    let start = Instant::now();
    for _ in 0..times {
        std::hint::black_box(Instant::now());
    }
    println!("the clock alone: {:?}", start.elapsed() / times);
    let turns = 1_000_000;
    let run = |sink: Option<Arc<dyn Sink>>| {
        let builder = Runtime::builder().workers(0);
        let builder = match sink {
            Some(sink) => builder.sink(sink),
            None => builder,
        };
        let rt = builder.build().unwrap();
        let start = Instant::now();
        rt.block_on(async {
            for _ in 0..turns {
                yield_now().await?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        start.elapsed()
    };
    run(None);
    let without = run(None);
    let with = run(Some(Recorder::new()));
    // Scheduled, PollBegin and PollEnd in each turn.
    let an_event = with.saturating_sub(without) / (3 * turns);
    println!(
        "a turn: {:?}; recorded: {:?}, {an_event:?} an event",
        without / turns,
        with / turns
    );
}
