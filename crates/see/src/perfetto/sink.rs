//! A trace that is written while the program runs: workers write to rings, one thread reads
//! them and writes the files.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use kinfolk_core::{Event, Interests, Sink};

use crate::perfetto::trace::Tracer;
use crate::recorder::{Drain, RecordedEvent, Recorder};

/// How often the rings are read.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a file gets, unless another limit is set.
const FILE_BYTES: u64 = 64 << 20;

/// How many files are kept.
const FILES: usize = 4;

/// The memory of the rings: a worker may be a few ten thousand events ahead of the files.
const RING_BYTES: usize = 64 << 20;

/// Writes a trace of Perfetto while the program runs. <https://ui.perfetto.dev> opens it: a
/// track for each thread with the turns it takes, rows of jobs in the shape of the tree, arrows
/// for wakes and cancels, counters.
///
/// No worker waits for it: what comes faster than a file can be written is dropped and
/// [counted](PerfettoSink::lost). When a file is full the next one begins; each can be opened
/// alone, and the oldest are removed.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk_runtime::Runtime;
/// use kinfolk_see::PerfettoSink;
///
/// let path = std::env::temp_dir().join(format!("doc-{}.pftrace", std::process::id()));
/// let trace = PerfettoSink::create(&path).unwrap();
/// let rt = Runtime::builder().sink(trace.clone()).build().unwrap();
/// rt.block_on(async { kinfolk::checkpoint().await }).unwrap();
/// drop(rt);
/// let files = trace.finish().unwrap();
/// assert_eq!(files, [path.clone()]);
/// # std::fs::remove_file(path).unwrap();
/// ```
#[derive(Debug)]
pub struct PerfettoSink {
    rings: Arc<Recorder>,
    talk: Arc<Talk>,
    writer: Mutex<Option<JoinHandle<io::Result<Vec<PathBuf>>>>>,
}

/// What the sink and its writer tell each other.
#[derive(Debug, Default)]
struct Talk {
    over: Mutex<bool>,
    changed: Condvar,
    lost: std::sync::atomic::AtomicU64,
}

/// Options of a [`PerfettoSink`].
#[derive(Debug)]
#[must_use = "call `create`"]
pub struct PerfettoBuilder {
    file_bytes: u64,
    files: usize,
    ring_bytes: usize,
    interests: Interests,
}

impl PerfettoBuilder {
    /// Sets how long a file gets before the next one begins; 64 MiB by default.
    pub fn file_bytes(mut self, most: u64) -> Self {
        self.file_bytes = most;
        self
    }

    /// Sets how many files stay; four by default.
    pub fn files(mut self, most: usize) -> Self {
        self.files = most.max(1);
        self
    }

    /// Sets the memory for events that are not in a file yet; 64 MiB by default.
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Sets which events are in the trace; by default all of them.
    pub fn interests(mut self, interests: Interests) -> Self {
        self.interests = interests;
        self
    }

    /// Creates the first file and starts the thread that writes. Further files have a number
    /// before the last dot of their name.
    ///
    /// # Errors
    /// If the file cannot be created, or no thread can be started.
    pub fn create(self, path: impl AsRef<Path>) -> io::Result<Arc<PerfettoSink>> {
        let rings = Recorder::builder()
            .bytes(self.ring_bytes)
            .interests(self.interests)
            .build();
        let talk = Arc::new(Talk::default());
        let files = TraceFiles::create(path.as_ref(), self.file_bytes, self.files)?;
        let (drain, told) = (rings.drain(), talk.clone());
        let writer = std::thread::Builder::new()
            .name("kinfolk-perfetto".into())
            .spawn(move || write_all(drain, &told, files))?;
        Ok(Arc::new(PerfettoSink {
            rings,
            talk,
            writer: Mutex::new(Some(writer)),
        }))
    }
}

impl PerfettoSink {
    /// Creates the file, with the default options.
    ///
    /// # Errors
    /// If the file cannot be created, or no thread can be started.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Arc<PerfettoSink>> {
        PerfettoSink::builder().create(path)
    }

    /// Returns the options, to be changed.
    pub fn builder() -> PerfettoBuilder {
        PerfettoBuilder {
            file_bytes: FILE_BYTES,
            files: FILES,
            ring_bytes: RING_BYTES,
            interests: Interests::ALL,
        }
    }

    /// How many events were dropped, since they came faster than they could be written, or
    /// since a file could not be written.
    pub fn lost(&self) -> u64 {
        self.talk.lost.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Writes what is left, and returns the files that are there, the oldest first. Events that
    /// come later are in no file. A second call returns none.
    ///
    /// # Errors
    /// If a file could not be written.
    pub fn finish(&self) -> io::Result<Vec<PathBuf>> {
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(writer) = writer else {
            return Ok(Vec::new());
        };
        *self
            .talk
            .over
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.talk.changed.notify_all();
        match writer.join() {
            Ok(files) => files,
            Err(_) => Err(io::Error::other(
                "the thread that writes the trace panicked",
            )),
        }
    }
}

impl Drop for PerfettoSink {
    fn drop(&mut self) {
        // Who wants to know whether it was written calls `finish`.
        let _ = self.finish();
    }
}

impl Sink for PerfettoSink {
    fn event(&self, event: &Event) {
        self.rings.event(event);
    }

    fn event_with(&self, event: &Event, text: &str) {
        self.rings.event_with(event, text);
    }

    fn interests(&self) -> Interests {
        self.rings.interests()
    }
}

/// Reads the rings until it is over, and writes what is ripe.
fn write_all(mut drain: Drain, talk: &Talk, mut files: TraceFiles) -> io::Result<Vec<PathBuf>> {
    let mut unwritten = Unwritten::default();
    // Once a file could not be written, later events are dropped and counted.
    let (mut failed, mut dropped) = (None, 0);
    loop {
        let over = {
            let over = talk.over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = talk.changed.wait_timeout_while(over, PAUSE, |over| !*over);
            *waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let lost = drain.read(&mut unwritten.events, over);
        let mut in_round = 0;
        for recorded in unwritten.ripe(over) {
            in_round += 1;
            if failed.is_none() {
                failed = files.take_in(&recorded, lost).err();
            }
        }
        if over && failed.is_none() {
            files.end();
        }
        if failed.is_none() {
            failed = files.flush().err();
        }
        if failed.is_some() {
            // Which of them are in the file is not known.
            dropped += in_round;
        }
        let ordering = std::sync::atomic::Ordering::Relaxed;
        talk.lost.store(lost + dropped, ordering);
        if over {
            return failed.map_or_else(|| Ok(files.files.into()), Err);
        }
    }
}

/// Events that were read from the rings and are not in a file. The rings are read one after the
/// other: the events of one round are not in order, a ring that was read first may get an event
/// meanwhile that is older than one of a ring that was read last, and the last event of a ring may
/// be left for the next round.
#[derive(Default)]
struct Unwritten {
    events: Vec<RecordedEvent>,
    /// The times of the newest events of the last two rounds, the earlier one first.
    newest: [u64; 2],
}

impl Unwritten {
    /// The events to be written after this round, in the order of their times: those that are
    /// no newer than the newest of the round before the last one, since what is older has been
    /// read by now; all of them if it is over.
    fn ripe(&mut self, over: bool) -> std::vec::Drain<'_, RecordedEvent> {
        self.events.sort_by_key(|recorded| recorded.event.at);
        let ripe = match over {
            true => self.events.len(),
            false => self
                .events
                .partition_point(|recorded| recorded.event.at <= self.newest[0]),
        };
        let newest = self.events.last().map(|recorded| recorded.event.at);
        self.newest = [self.newest[1], newest.unwrap_or(self.newest[1])];
        self.events.drain(..ripe)
    }
}

/// The files of one trace, the last of which is being written.
struct TraceFiles {
    path: PathBuf,
    out: BufWriter<File>,
    tracer: Tracer,
    written: u64,
    most_bytes: u64,
    most_files: usize,
    files: VecDeque<PathBuf>,
    count: u64,
    has_begun: bool,
}

impl TraceFiles {
    fn create(path: &Path, most_bytes: u64, most_files: usize) -> io::Result<TraceFiles> {
        Ok(TraceFiles {
            path: path.to_path_buf(),
            out: BufWriter::new(File::create(path)?),
            tracer: Tracer::new(),
            written: 0,
            most_bytes,
            most_files,
            files: VecDeque::from([path.to_path_buf()]),
            count: 1,
            has_begun: false,
        })
    }

    fn take_in(&mut self, recorded: &RecordedEvent, lost: u64) -> io::Result<()> {
        if !self.has_begun {
            self.has_begun = true;
            self.tracer.begin_file(recorded.event.at, lost);
        }
        self.tracer
            .take_in(&recorded.event, recorded.text.as_deref());
        self.write()?;
        if self.written >= self.most_bytes {
            self.next_file(recorded.event.at, lost)?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.tracer.out)?;
        self.written += self.tracer.out.len() as u64;
        self.tracer.out.clear();
        Ok(())
    }

    fn next_file(&mut self, at: u64, lost: u64) -> io::Result<()> {
        self.tracer.end_file();
        self.flush()?;
        self.count += 1;
        let ext = self
            .path
            .extension()
            .and_then(|ext| ext.to_str())
            .unwrap_or("pftrace");
        let next = self.path.with_extension(format!("{}.{ext}", self.count));
        self.out = BufWriter::new(File::create(&next)?);
        self.written = 0;
        self.files.push_back(next);
        while self.files.len() > self.most_files {
            if let Some(gone) = self.files.pop_front() {
                // Another has removed it: then it is gone too.
                let _ = fs::remove_file(gone);
            }
        }
        self.tracer.begin_file(at, lost);
        Ok(())
    }

    fn end(&mut self) {
        if !self.has_begun {
            self.tracer.begin_file(0, 0);
        }
        self.tracer.end_file();
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use kinfolk_core::{EventKind, JobId};

    use super::*;

    fn event(thread: u64, at: u64, kind: EventKind) -> Event {
        let mut event = Event::new(JobId::from_bits(thread).expect("a number"), at, kind);
        event.thread = thread;
        event
    }

    /// Tells these from a thread of their own, so that they are in a ring of their own.
    fn tell(rings: &Arc<Recorder>, events: &[Event]) {
        std::thread::scope(|s| {
            s.spawn(|| events.iter().for_each(|event| rings.event(event)));
        });
    }

    /// The times of the events that are ripe after this round.
    fn round(unwritten: &mut Unwritten, drain: &mut Drain, over: bool) -> Vec<u64> {
        assert_eq!(drain.read(&mut unwritten.events, over), 0);
        let ripe = unwritten.ripe(over);
        ripe.map(|recorded| recorded.event.at).collect()
    }

    /// Two threads, the first of which has events before and after those of the second.
    #[test]
    fn see_4_events_of_one_round_are_written_in_the_order_of_their_times() {
        let rings = Recorder::builder().interests(Interests::ALL).build();
        let (mut drain, mut unwritten) = (rings.drain(), Unwritten::default());
        let (begin, end) = (EventKind::PollBegin, EventKind::PollEnd);
        tell(&rings, &[event(1, 10, begin), event(1, 40, end)]);
        tell(&rings, &[event(2, 20, begin), event(2, 30, end)]);
        assert_eq!(round(&mut unwritten, &mut drain, true), [10, 20, 30, 40]);
    }

    /// What a ring gets after it was read, while a later one is read, is older than what that
    /// one gave: it is written first all the same.
    #[test]
    fn see_4_what_a_round_has_missed_is_written_before_what_is_newer() {
        let rings = Recorder::builder().interests(Interests::ALL).build();
        let (mut drain, mut unwritten) = (rings.drain(), Unwritten::default());
        let begin = EventKind::PollBegin;
        tell(&rings, &[event(1, 10, begin)]);
        tell(&rings, &[event(2, 40, begin)]);
        assert!(round(&mut unwritten, &mut drain, false).is_empty());
        tell(&rings, &[event(3, 30, begin), event(3, 50, begin)]);
        assert!(round(&mut unwritten, &mut drain, false).is_empty());
        assert_eq!(round(&mut unwritten, &mut drain, false), [10, 30, 40]);
        // A round without a new event makes the last one ripe.
        assert_eq!(round(&mut unwritten, &mut drain, false), [50]);
        assert!(round(&mut unwritten, &mut drain, true).is_empty());
    }
}
