//! The flight recorder: what it keeps, what it costs, and when it writes a file.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, Event, EventKind, Interests, JobId, JobKind, JobState, Lane, Sink, WaitKind, checkpoint,
    park, sleep, spawn, yield_now,
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

/// Events of several threads are in the order of their times, each with its worker; those that
/// are too old are counted, one by one.
#[test]
fn see_4_a_recording_is_in_order_and_has_each_worker() {
    let recorder = Recorder::builder().age(Duration::from_nanos(25)).build();
    let put = |at: u64, worker: Option<u32>| {
        let job = JobId::from_bits(1).unwrap();
        let mut event = Event::new(job, at, EventKind::PollBegin);
        event.worker = worker;
        recorder.event(&event);
    };
    // One thread that becomes another worker, and none.
    put(10, Some(1));
    put(30, Some(2));
    put(50, None);
    std::thread::scope(|s| {
        s.spawn(|| {
            put(20, Some(3));
            put(40, Some(3));
        });
    });
    let recording = recorder.recording();
    let seen: Vec<_> = recording
        .events
        .iter()
        .map(|one| (one.event.at, one.event.worker))
        .collect();
    assert_eq!(seen, [(30, Some(2)), (40, Some(3)), (50, None)]);
    assert_eq!(recording.lost, 2);
}

/// A thread that outlives many recorders does not keep their rings.
#[cfg(target_os = "linux")]
#[test]
fn see_4_rings_of_recorders_that_are_gone_are_given_back() {
    let resident = || -> usize {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        line.unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    };
    let before = resident();
    for n in 1..=500 {
        // A ring takes 256 KiB.
        let recorder = Recorder::new();
        let job = JobId::from_bits(n).unwrap();
        recorder.event(&Event::new(job, n, EventKind::PollBegin));
    }
    let risen = resident().saturating_sub(before);
    assert!(risen < 64 * 1024, "{risen} KiB");
}

/// Threads come and go by the thousand, and each has a ring while it is there.
#[test]
fn see_4_thousands_of_threads_come_and_go() {
    let recorder = Recorder::builder().bytes(64 << 20).build();
    for round in 0..100 {
        std::thread::scope(|s| {
            for n in 0..40 {
                let recorder = &recorder;
                s.spawn(move || {
                    let thread = 1 + round * 40 + n;
                    for at in 0..5 {
                        let job = JobId::from_bits(thread).unwrap();
                        let mut event = Event::new(job, at, EventKind::PollBegin);
                        event.thread = thread;
                        recorder.event(&event);
                    }
                });
            }
        });
    }
    let recording = recorder.recording();
    assert_eq!((recording.events.len(), recording.lost), (4_000 * 5, 0));
    let own = |one: &kinfolk_see::RecordedEvent| one.event.thread == one.event.job.bits();
    assert!(recording.events.iter().all(own));
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
        .filter(|one| matches!(one.event.kind, EventKind::Finalize { .. }));
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

/// see-4: trouble is written at once, and a burst of it once; what could not be written is said.
#[test]
fn see_4_trouble_is_written_before_it_returns() {
    assert_eq!(Recorder::new().trouble("no folder"), None);
    let dir = place("trouble");
    let recorder = Recorder::builder().dir(&dir).build();
    let said = recorder.trouble("SIGUSR1").unwrap();
    let entries = fs::read_dir(&dir).unwrap();
    let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    let words = format!("the flight recorder has written {}", files[0].display());
    assert_eq!(said, words);
    assert!(said.ends_with("-SIGUSR1.pftrace"), "{said}");
    assert_eq!(recorder.trouble("again"), None);
    recorder.trigger("and again");
    assert_eq!((recorder.files().unwrap(), recorder.merged()), (files, 2));
    fs::remove_dir_all(dir).unwrap();

    let file = place("trouble-in-the-way");
    fs::write(&file, "a file").unwrap();
    let recorder = Recorder::builder().dir(file.join("below")).build();
    let said = recorder.trouble("stuck").unwrap();
    assert!(
        said.starts_with("the flight recorder could not write its file: "),
        "{said}"
    );
    assert!(recorder.files().is_err());
    fs::remove_file(file).unwrap();
}

/// see-4: a file that is not finished has another ending, and does not stay.
#[cfg(target_os = "linux")]
#[test]
fn see_4_a_disk_that_is_full_leaves_no_half_file() {
    let dir = place("full");
    fs::create_dir_all(&dir).unwrap();
    let recorder = Recorder::builder().dir(&dir).build();
    recorder.event(&Event::new(
        JobId::from_bits(1).unwrap(),
        1,
        EventKind::PollBegin,
    ));
    // The first file of a recorder, as it is called until it is finished.
    let name = recorder.save("first").unwrap();
    let name = name.file_name().unwrap().to_str().unwrap().to_string();
    let second = name.replace("-1-first.pftrace", "-2-second");
    std::os::unix::fs::symlink("/dev/full", dir.join(format!("{second}.part"))).unwrap();
    let error = recorder.save("second").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    let entries = fs::read_dir(&dir).unwrap();
    let left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [std::ffi::OsString::from(name)]);
    fs::remove_dir_all(dir).unwrap();
}

fn in_text(recorder: &Recorder) -> String {
    let mut text = Vec::new();
    recorder.recording().write_text(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// see-5: every sort of event has its line, with names that are escaped.
#[test]
fn see_5_a_recording_as_text_has_a_line_for_each_event() {
    let recorder = Recorder::builder().interests(Interests::ALL).build();
    let empty = in_text(&recorder);
    assert_eq!(empty, "0 events in 0 ns, 0 more are lost\n\nevents\n\n");
    let id = |n: u64| JobId::from_bits(n).unwrap();
    let site = std::panic::Location::caller();
    let put = |at: u64, job: u64, kind: EventKind, text: Option<&str>| {
        let mut event = Event::new(id(job), at, kind);
        event.worker = Some(3);
        match text {
            Some(text) => recorder.event_with(&event, text),
            None => recorder.event(&event),
        }
    };
    let by = Some(id(2));
    let to = |to| EventKind::State { to };
    let from = id(1);
    let at = Some(site);
    let made = |kind, lane| EventKind::Create { kind, site, lane };
    let reason = kinfolk_core::ReasonKind::Asked;
    let parent = id(1);
    let events = [
        (
            1,
            made(JobKind::Task, Lane::Pool),
            Some("a\u{1b}b"),
            "is made at HERE",
        ),
        (
            2,
            made(JobKind::Scope, Lane::Main),
            None,
            "is made at HERE, lane main",
        ),
        (2, EventKind::Attach { parent }, None, "is a child of ONE"),
        (1, to(JobState::Cancelling), None, "is cancelling"),
        (1, to(JobState::Failed), None, "has ended: failed"),
        (
            1,
            EventKind::CancelRequest { reason, site, by },
            Some("\u{7}"),
            "is cancelled: cancel requested \"\\u{7}\", asked for at HERE by TWO",
        ),
        (
            1,
            EventKind::WaitRegister,
            None,
            "has one more that waits for its end",
        ),
        (
            1,
            EventKind::WaitWake,
            None,
            "wakes one that waits for its end",
        ),
        (
            1,
            EventKind::ShieldLifted { site },
            None,
            "lets the cancel in, entered at HERE",
        ),
        (
            2,
            EventKind::CancelHop { from },
            None,
            "is cancelled, below ONE",
        ),
        (
            2,
            EventKind::CancelHeld { from },
            None,
            "holds back the cancel of ONE",
        ),
        (
            1,
            EventKind::Told { site: at },
            None,
            "is told to stop at HERE",
        ),
        (1, EventKind::Told { site: None }, None, "is told to stop"),
        (
            1,
            EventKind::GuardEntered { site },
            None,
            "ignores cancellation from HERE on",
        ),
        (1, EventKind::GuardLeft, None, "has one guard less"),
        (1, EventKind::Dropped, None, "is dropped before it is done"),
        (
            1,
            EventKind::WaitBegin {
                kind: WaitKind::Lock,
                site: at,
            },
            Some("mutex \u{202e}"),
            "waits on \"mutex \\u{202e}\" at HERE",
        ),
        (
            1,
            EventKind::WaitBegin {
                kind: WaitKind::Foreign,
                site: None,
            },
            None,
            "waits on a foreign await",
        ),
        (1, EventKind::WaitEnd, None, "waits no longer"),
        (1, EventKind::Scheduled { by: None }, None, "is queued"),
        (1, EventKind::Scheduled { by }, None, "is queued by TWO"),
        (2, EventKind::Scheduled { by }, None, "is queued by itself"),
        (1, EventKind::PollBegin, None, "has a turn"),
        (1, EventKind::PollEnd, None, "has had its turn"),
        (
            9,
            EventKind::Finalize { cancelled: false },
            None,
            "leaves the tree",
        ),
    ];
    for (n, (job, kind, text, _)) in events.iter().enumerate() {
        put(1_000_000_000 + n as u64, *job, *kind, *text);
    }
    let text = in_text(&recorder);
    let (_, lines) = text.split_once("\nevents\n\n").unwrap();
    let here = format!("{}:{}", site.file(), site.line());
    let scope = JobKind::Scope.name_at(site);
    let (one, two) = (
        format!("task \"a\\u{{1b}}b\" {}", id(1)),
        format!("scope \"{scope}\" {}", id(2)),
    );
    for (n, ((job, _, _, words), line)) in events.iter().zip(lines.lines()).enumerate() {
        let subject = match job {
            1 => &one,
            2 => &two,
            _ => "job \"?\" #9",
        };
        let words = words.replace("HERE", &here).replace("ONE", &one);
        let words = words.replace("TWO", &two);
        let expected = format!("   1.{n:09}  worker 3   {subject} {words}");
        assert_eq!(line, expected);
    }
    assert_eq!(lines.lines().count(), events.len());
}

/// see-5: a long recording is cut, and the text says so.
#[test]
fn see_5_a_recording_as_text_is_bounded() {
    let recorder = Recorder::builder().bytes(64 << 20).build();
    let mut sim = Sim::builder(1).sink(recorder.clone()).build();
    sim.run(async {
        let tasks: Vec<_> = (0..60).map(|_| spawn(park())).collect();
        for _ in 0..2_000 {
            yield_now().await?;
        }
        for task in tasks {
            task.cancel("enough");
            let _ = task.outcome().await?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    let events = recorder.recording().events.len();
    let text = in_text(&recorder);
    sim.finish();
    assert_eq!(text.matches(" was cancelled: ").count(), 50);
    assert!(text.contains("\nand 10 more\n\nevents\n"), "{text:.3000}");
    let (_, lines) = text.split_once("\nevents\n\n").unwrap();
    let (first, lines) = lines.split_once('\n').unwrap();
    let left_out = events - 5_000;
    assert_eq!(first.replace(',', ""), format!("{left_out} before these"));
    assert_eq!(lines.lines().count(), 5_000);
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
