//! Trace files, read by a small walker that knows protobuf's wire format and nothing of the
//! encoder: slices nest, tracks hang together, every arrow has two ends.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kinfolk_core::{
    Error, Event, EventKind, Interests, JobId, Scope, Sink, park, scope, shield, sleep, spawn,
    timeout, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_see::{PerfettoSink, Recorder};
use kinfolk_testkit::Sim;

const MS: Duration = Duration::from_millis(1);

/// One field: its number, and what is in it.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (eight, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(eight.try_into().unwrap()))
            }
            2 => {
                let long = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(long);
                bytes = rest;
                Field::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

fn number(all: &[(u64, Field<'_>)], wanted: u64) -> Option<u64> {
    all.iter().find_map(|(at, field)| match field {
        Field::Number(value) if *at == wanted => Some(*value),
        _ => None,
    })
}

fn bytes<'a>(all: &[(u64, Field<'a>)], wanted: u64) -> Option<&'a [u8]> {
    all.iter().find_map(|(at, field)| match field {
        Field::Bytes(value) if *at == wanted => Some(*value),
        _ => None,
    })
}

fn text(all: &[(u64, Field<'_>)], wanted: u64) -> Option<String> {
    bytes(all, wanted).map(|text| String::from_utf8(text.to_vec()).unwrap())
}

/// What stands in a file.
#[derive(Default)]
struct Walked {
    /// The name and the parent of each track.
    tracks: BTreeMap<u64, (String, Option<u64>)>,
    /// Slices: track, name, from, to.
    slices: Vec<(u64, String, u64, u64)>,
    instants: Vec<(u64, String, u64)>,
    /// Where and when each arrow begins and ends.
    begins: HashMap<u64, (u64, u64)>,
    ends: HashMap<u64, (u64, u64)>,
    /// When each counter had which value.
    counters: HashMap<u64, Vec<(u64, u64)>>,
    /// The numbers of cancels, of the ends of their arrows.
    cancels: Vec<u64>,
    dropped: bool,
}

impl Walked {
    fn path(&self, track: u64) -> Vec<String> {
        let mut path = Vec::new();
        let mut at = Some(track);
        while let Some(track) = at {
            let (name, parent) = &self.tracks[&track];
            path.push(name.clone());
            at = *parent;
        }
        path.reverse();
        path
    }
}

fn walk(path: &Path) -> Walked {
    let file = fs::read(path).unwrap();
    let mut walked = Walked::default();
    let mut names: HashMap<u64, String> = HashMap::new();
    let mut events = Vec::new();
    let mut is_first = true;
    for (at, field) in fields(&file) {
        let Field::Bytes(packet) = field else {
            panic!("a number at the top")
        };
        assert_eq!(at, 1, "only packets stand at the top");
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1), "one sequence");
        let flags = number(&packet, 13).unwrap_or(0);
        if is_first {
            assert_eq!(flags & 1, 1, "the first packet clears the state");
            is_first = false;
        }
        if flags & 1 != 0 {
            names.clear();
        }
        walked.dropped |= number(&packet, 42) == Some(1);
        if let Some(interned) = bytes(&packet, 12) {
            let entry = fields(bytes(&fields(interned), 2).unwrap());
            let number = number(&entry, 1).unwrap();
            assert!(names.insert(number, text(&entry, 2).unwrap()).is_none());
        }
        if let Some(track) = bytes(&packet, 60) {
            let track = fields(track);
            let uuid = number(&track, 1).unwrap();
            let parent = number(&track, 5);
            let thread = bytes(&track, 4).map(|thread| text(&fields(thread), 5).unwrap());
            let process = bytes(&track, 3).map(|process| text(&fields(process), 6).unwrap());
            let name = text(&track, 2).or(thread).or(process).unwrap();
            if let Some(parent) = parent {
                assert!(walked.tracks.contains_key(&parent), "{name} has no parent");
            }
            assert!(
                walked.tracks.insert(uuid, (name, parent)).is_none(),
                "described twice"
            );
        }
        if let Some(event) = bytes(&packet, 11) {
            let event = fields(event);
            let time = number(&packet, 8).expect("a time");
            let track = number(&event, 11).unwrap();
            assert!(walked.tracks.contains_key(&track), "no such track");
            let name = number(&event, 10).map(|iid| names[&iid].clone());
            for (list, wanted) in [(&mut walked.begins, 47), (&mut walked.ends, 48)] {
                if let Some(flow) = number(&event, wanted) {
                    assert!(list.insert(flow, (track, time)).is_none(), "an arrow forks");
                }
            }
            walked.cancels.extend(number(&event, 52));
            if number(&event, 9) == Some(4) {
                let values = walked.counters.entry(track).or_default();
                values.push((time, number(&event, 30).unwrap()));
            }
            events.push((time, track, number(&event, 9).unwrap(), name));
        }
    }
    // In the order of their times; those of one time as they stand.
    events.sort_by_key(|(time, ..)| *time);
    let mut open: HashMap<u64, Vec<(String, u64)>> = HashMap::new();
    for (time, track, sort, name) in events {
        match sort {
            1 => open.entry(track).or_default().push((name.unwrap(), time)),
            2 => {
                let (name, from) = open.get_mut(&track).and_then(Vec::pop).expect("it began");
                walked.slices.push((track, name, from, time));
            }
            3 => walked.instants.push((track, name.unwrap(), time)),
            4 => {}
            other => panic!("an event of type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "slices are left open");
    let ids = |ends: &HashMap<u64, (u64, u64)>| ends.keys().copied().collect::<HashSet<_>>();
    assert_eq!(
        ids(&walked.begins),
        ids(&walked.ends),
        "arrows with one end"
    );
    for (flow, (_, begin)) in &walked.begins {
        assert!(*begin <= walked.ends[flow].1, "an arrow goes back in time");
    }
    walked
}

fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kinfolk-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

/// A bit of everything.
async fn script() -> Result<(), Error> {
    let run = scope(async |s| {
        s.task("\x1b[2J<script>")
            .launch(async { yield_now().await });
        s.task("store").launch(Scope::named("flush").run(async |s| {
            s.task("writer").launch(park());
            shield(sleep(5 * MS)).await?;
            park().await?;
            Ok(())
        }));
        let short = s.task("short").spawn(timeout(MS, park()));
        let _ = short.outcome().await?;
        sleep(2 * MS).await?;
        s.cancel("enough");
        Ok(())
    });
    let _ = run.await;
    Ok(())
}

fn check_script(walked: &Walked) {
    let slices = |name: &str| -> Vec<&(u64, String, u64, u64)> {
        walked
            .slices
            .iter()
            .filter(|slice| slice.1 == name)
            .collect()
    };
    let below_jobs = |slice: &&&(u64, String, u64, u64)| walked.path(slice.0)[1] == "jobs";
    let writers = slices("writer");
    let job: Vec<_> = writers.iter().filter(below_jobs).collect();
    assert_eq!(job.len(), 1, "one slice for the job");
    let path = walked.path(job[0].0);
    let tail = &path[path.len() - 3..];
    assert_eq!(tail, ["store", "flush", "writer"], "{path:?}");
    assert!(writers.len() > 1, "and one for each of its turns");
    // The names are the program's: a terminal must not act on them.
    assert_eq!(
        slices("\\u{1b}[2J<script>")
            .iter()
            .filter(below_jobs)
            .count(),
        1
    );
    // Its cancel is an arrow from the row of its parent.
    let (row, _, begin, _) = walked
        .slices
        .iter()
        .find(|slice| slice.1 == "cancelling" && slice.0 == job[0].0)
        .expect("it was cancelled");
    let arrow = walked.ends.iter().find(|(_, end)| **end == (*row, *begin));
    let from = walked.begins[arrow.expect("an arrow comes").0].0;
    assert_eq!(walked.path(from), path[..path.len() - 1]);
    assert!(
        walked
            .instants
            .iter()
            .any(|(_, name, _)| name == "holds a cancel back")
    );
    assert!(walked.instants.iter().any(|(_, name, _)| name == "told"));
    assert_eq!(walked.counters.len(), 2);
}

#[test]
fn see_4_a_trace_has_the_tree_its_slices_nest_and_arrows_have_two_ends() {
    let dir = place("script");
    for seed in 0..20 {
        let path = dir.join(format!("{seed}.pftrace"));
        let trace = PerfettoSink::create(&path).unwrap();
        let mut sim = Sim::builder(seed)
            .sink(trace.clone())
            .on_failure(|_| {})
            .build();
        sim.run(script()).unwrap();
        sim.finish();
        assert_eq!(trace.finish().unwrap(), [path.as_path()]);
        assert_eq!(trace.lost(), 0);
        check_script(&walk(&path));

        // And from a recorder that kept the same.
        let recorder = Recorder::builder()
            .interests(Interests::ALL)
            .dir(&dir)
            .build();
        let mut sim = Sim::builder(seed)
            .sink(recorder.clone())
            .on_failure(|_| {})
            .build();
        sim.run(script()).unwrap();
        sim.finish();
        let path = recorder.save("script").unwrap();
        let walked = walk(&path);
        check_script(&walked);
        assert!(!walked.dropped);
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn see_4_many_jobs_are_few_tracks_and_full_files_give_way_to_the_next() {
    let dir = place("many");
    let path = dir.join("many.pftrace");
    let trace = PerfettoSink::builder()
        .file_bytes(1 << 20)
        .files(3)
        .interests(Interests::TURNS | Interests::CAUSES)
        .create(&path)
        .unwrap();
    let rt = Runtime::builder()
        .workers(2)
        .sink(trace.clone())
        .build()
        .unwrap();
    rt.block_on(async {
        for _ in 0..1_000 {
            scope(async |s| {
                for _ in 0..20 {
                    s.task("unit").launch(async { yield_now().await });
                }
                Ok(())
            })
            .await?;
        }
        // And more at once than there are rows.
        scope(async |s| {
            for _ in 0..5_000 {
                s.task("crowd").launch(async { yield_now().await });
            }
            Ok(())
        })
        .await?;
        Ok::<_, Error>(())
    })
    .unwrap();
    drop(rt);
    let files = trace.finish().unwrap();
    assert_eq!(files.len(), 3, "{files:?}");
    assert_eq!(
        fs::read_dir(&dir).unwrap().count(),
        3,
        "the oldest are gone"
    );
    for file in files {
        let walked = walk(&file);
        assert!(
            walked.tracks.len() < 2_100,
            "{} tracks",
            walked.tracks.len()
        );
        assert!(walked.slices.len() > 100);
        assert!(fs::metadata(&file).unwrap().len() < 2 << 20);
    }
    fs::remove_dir_all(dir).unwrap();
}

/// A trace of threads that spawn, wake and cancel across each other.
#[test]
fn see_4_a_trace_of_eight_threads_nests() {
    let dir = place("eight");
    let path = dir.join("eight.pftrace");
    let trace = PerfettoSink::create(&path).unwrap();
    let rt = Runtime::builder()
        .workers(8)
        .sink(trace.clone())
        .build()
        .unwrap();
    rt.block_on(async {
        let all: Vec<_> = (0..64)
            .map(|_| {
                spawn(async {
                    for _ in 0..20 {
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
    trace.finish().unwrap();
    let walked = walk(&path);
    assert!(walked.begins.len() > 1_000);
    fs::remove_dir_all(dir).unwrap();
}

fn walk_recording(recorder: &Recorder, name: &str) -> Walked {
    let path = place(name).join("recording.pftrace");
    let mut file = fs::File::create(&path).unwrap();
    recorder.recording().write_perfetto(&mut file).unwrap();
    let walked = walk(&path);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    walked
}

/// Jobs of one name that follow each other share a row; the counter of living jobs counts
/// them; all arrows of one cancel have its number.
#[test]
fn see_4_rows_are_shared_jobs_are_counted_and_cancels_have_numbers() {
    let recorder = Recorder::new();
    let mut sim = Sim::builder(1).sink(recorder.clone()).build();
    sim.run(async {
        let home = Scope::current().unwrap();
        for _ in 0..20 {
            home.task("again")
                .spawn(async { yield_now().await })
                .await?;
        }
        for _ in 0..2 {
            let family = home.task("family").spawn(async {
                let home = Scope::current().unwrap();
                (0..2).for_each(|_| drop(home.task("child").launch(park())));
                park().await
            });
            sleep(2 * MS).await?;
            family.cancel("enough");
            let _ = family.outcome().await?;
        }
        sleep(2 * MS).await?;
        Ok::<_, Error>(())
    })
    .unwrap();
    let walked = walk_recording(&recorder, "rows");
    sim.finish();
    let rows = |name: &str| {
        walked
            .tracks
            .values()
            .filter(|track| track.0 == name)
            .count()
    };
    let rows = [rows("again"), rows("family"), rows("child")];
    assert_eq!(rows, [1, 1, 2], "{:?}", walked.tracks);
    // The root, main, a family of three.
    let living = walked.counters[&3].iter().map(|(_, value)| *value);
    assert_eq!(living.max(), Some(5));
    // A request and two hops each, both ends of each.
    let mut cancels = walked.cancels.clone();
    cancels.sort_unstable();
    assert_eq!(cancels.len(), 12, "{cancels:?}");
    assert!(
        cancels[..6]
            .iter()
            .all(|cancel| *cancel == cancels[0] && *cancel > 0)
    );
    assert!(cancels[6..].iter().all(|cancel| *cancel == cancels[11]));
    assert_ne!(cancels[0], cancels[11]);
}

/// The counters are written at most once in a millisecond, or once more when it is over: what
/// they are when nothing happens for long is not what they were a moment before.
#[test]
fn see_4_counters_are_right_while_nothing_happens() {
    let recorder = Recorder::builder().interests(Interests::ALL).build();
    let micros = 1_000;
    let put = |at: u64, kind: EventKind| {
        let id = JobId::from_bits(1).unwrap();
        recorder.event(&Event::new(id, at * micros, kind));
    };
    put(0, EventKind::PollBegin);
    put(1, EventKind::PollEnd);
    put(5_000, EventKind::Scheduled { by: None });
    put(5_010, EventKind::PollBegin);
    put(5_020, EventKind::PollEnd);
    put(90_000, EventKind::Scheduled { by: None });
    put(90_010, EventKind::PollBegin);
    put(90_020, EventKind::PollEnd);
    let walked = walk_recording(&recorder, "counters");
    let ready: Vec<(u64, u64)> = walked.counters[&4]
        .iter()
        .map(|(at, value)| (at / micros, *value))
        .collect();
    let changes = [
        (0, 0),
        (0, 0),
        (5_000, 1),
        (5_010, 0),
        (90_000, 1),
        (90_010, 0),
    ];
    assert!(ready.starts_with(&changes), "{ready:?}");
}

/// A recording may begin in the middle: parents of which the beginning is lost have a row, and
/// it says that packets are missing.
#[test]
fn see_4_a_recording_that_begins_in_the_middle_says_so() {
    let recorder = Recorder::builder().bytes(0).build();
    let id = |number: u64| JobId::from_bits(number).unwrap();
    let put = |at: u64, job: u64, kind: EventKind| {
        recorder.event(&Event::new(id(job), at, kind));
    };
    for at in 0..100 {
        put(at, 1, EventKind::PollBegin);
        put(at, 1, EventKind::PollEnd);
    }
    put(200, 1, EventKind::PollEnd);
    put(201, 3, EventKind::Attach { parent: id(2) });
    put(202, 3, EventKind::CancelHop { from: id(2) });
    put(203, 3, EventKind::Finalize { cancelled: false });
    put(204, 3, EventKind::Finalize { cancelled: false });
    let walked = walk_recording(&recorder, "middle");
    assert!(walked.dropped);
    let row = walked.tracks.iter().find(|(_, track)| track.0 == "job #3");
    let path = walked.path(*row.expect("a row").0);
    assert_eq!(path[1..], ["jobs", "job #2", "job #3"]);
}

/// What comes faster than it can be written is counted.
#[test]
fn see_4_a_trace_counts_what_it_has_lost() {
    let path = place("lost").join("trace.pftrace");
    let trace = PerfettoSink::builder().ring_bytes(0).create(&path).unwrap();
    let mut sim = Sim::builder(1).sink(trace.clone()).build();
    sim.run(async {
        for _ in 0..200_000 {
            yield_now().await?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    sim.finish();
    trace.finish().unwrap();
    assert!(trace.lost() > 0);
    walk(&path);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

/// A disk that is full is the error of `finish`, and the runtime goes on.
#[cfg(target_os = "linux")]
#[test]
fn see_4_a_trace_that_cannot_be_written_is_an_error_of_its_end() {
    let trace = PerfettoSink::create("/dev/full").unwrap();
    let mut sim = Sim::builder(1).sink(trace.clone()).build();
    sim.run(script()).unwrap();
    sim.finish();
    assert_eq!(trace.finish().unwrap_err().raw_os_error(), Some(28));
    assert!(trace.lost() > 10, "{}", trace.lost());
    assert!(PerfettoSink::create("/no/such/folder/trace").is_err());
    assert_eq!(trace.finish().unwrap(), Vec::<PathBuf>::new());
}
