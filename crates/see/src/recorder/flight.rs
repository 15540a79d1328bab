//! The recorder: a sink that gives each thread a ring of its own, and the files it writes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use kinfolk_core::{Event, EventKind, Interests, Sink, kit};
use kinfolk_queue::sync::fence;

use crate::recorder::code::{
    RecordedEvent, RingOwner, decode_all, encode, owner_record, text_records, unfinished,
};
use crate::recorder::recording::Recording;
use crate::recorder::ring::{RecordRing, WORDS};

/// How many threads at a time have a ring.
const MOST_THREADS: usize = 64;

/// The memory of all rings, unless another is asked for.
const BYTES: usize = 16 << 20;

/// How old an event in a file is at the most.
const AGE: Duration = Duration::from_secs(30);

/// After a file that something triggered, what triggers next within this time makes none.
const DEBOUNCE: Duration = Duration::from_secs(10);

/// How many files are kept.
const FILES: usize = 10;

/// Keeps the latest events of each thread, always on, and writes them to a file when it is
/// asked to or when something goes wrong.
///
/// Each thread writes to a ring of its own: no thread waits for another, and none for a file.
/// An event takes 32 bytes and no allocation. What is overwritten is counted.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk_runtime::Runtime;
/// use kinfolk_see::Recorder;
///
/// let recorder = Recorder::new();
/// let rt = Runtime::builder().sink(recorder.clone()).build().unwrap();
/// rt.block_on(async { kinfolk::checkpoint().await }).unwrap();
/// let recording = recorder.recording();
/// assert!(recording.events.len() > 3 && recording.lost == 0);
/// ```
#[derive(Debug)]
pub struct Recorder {
    number: u64,
    slots: usize,
    age: Duration,
    interests: Interests,
    debounce: Duration,
    dir: Option<PathBuf>,
    most_files: usize,
    on_forced_drop: bool,
    rings: Mutex<Vec<Arc<ThreadRing>>>,
    /// Events of threads that got no ring.
    without_ring: AtomicU64,
    saves: Mutex<Saves>,
    saved: Condvar,
    me: Weak<Recorder>,
}

#[derive(Debug)]
struct ThreadRing {
    ring: RecordRing,
    owner: Mutex<RingOwner>,
}

impl std::fmt::Debug for RecordRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordRing({})", self.written())
    }
}

/// The files that were written, and the one that is.
#[derive(Debug, Default)]
struct Saves {
    writing: bool,
    last: Option<Instant>,
    /// Triggers that made no file.
    merged: u64,
    count: u64,
    files: VecDeque<PathBuf>,
    error: Option<io::Error>,
}

/// What one thread knows of its rings.
struct OwnRing {
    recorder: u64,
    ring: Arc<ThreadRing>,
    worker: Option<u32>,
}

std::thread_local! {
    /// The rings of this thread, that of the recorder that was used last in front.
    static OWN: RefCell<Vec<OwnRing>> = const { RefCell::new(Vec::new()) };
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Options of a [`Recorder`].
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct RecorderBuilder {
    bytes: usize,
    age: Duration,
    interests: Interests,
    debounce: Duration,
    dir: Option<PathBuf>,
    most_files: usize,
    on_forced_drop: bool,
}

impl RecorderBuilder {
    /// Sets how much memory the rings take in all; 16 MiB by default. Each of up to 64 threads
    /// at a time has a 64th of it, in a power of two, and takes that with its first event.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets how old an event may be to be in a recording; 30 seconds by default.
    pub fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets which events it keeps; by default all but those of
    /// [waits](kinfolk_core::Interests::WAITS).
    pub fn interests(mut self, interests: Interests) -> Self {
        self.interests = interests;
        self
    }

    /// Sets the folder for the files that triggers write; without it a trigger does nothing.
    /// The folder is made with the first file.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets how many files stay in the folder; 10 by default. The oldest of those that this
    /// recorder has written are removed.
    pub fn files(mut self, most: usize) -> Self {
        self.most_files = most.max(1);
        self
    }

    /// Sets how long after a file that was triggered no other is; 10 seconds by default.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.debounce = debounce;
        self
    }

    /// A future that is dropped by force, since it does not hear its cancel, triggers a file.
    pub fn on_forced_drop(mut self) -> Self {
        self.on_forced_drop = true;
        self
    }

    /// Makes the recorder: give it to a runtime as its sink.
    pub fn build(self) -> Arc<Recorder> {
        let of_one = self.bytes / MOST_THREADS / (8 * WORDS);
        let slots = match of_one.max(64) {
            exact if exact.is_power_of_two() => exact,
            between => between.next_power_of_two() / 2,
        };
        Arc::new_cyclic(|me| Recorder {
            number: NUMBERS.fetch_add(1, Relaxed),
            slots,
            age: self.age,
            interests: self.interests,
            debounce: self.debounce,
            dir: self.dir,
            most_files: self.most_files,
            on_forced_drop: self.on_forced_drop,
            rings: Mutex::default(),
            without_ring: AtomicU64::new(0),
            saves: Mutex::default(),
            saved: Condvar::new(),
            me: me.clone(),
        })
    }
}

impl Recorder {
    /// Makes a recorder with the default options.
    pub fn new() -> Arc<Recorder> {
        Recorder::builder().build()
    }

    /// Returns the options, to be changed.
    pub fn builder() -> RecorderBuilder {
        RecorderBuilder {
            bytes: BYTES,
            age: AGE,
            interests: Interests::TURNS | Interests::CAUSES | Interests::TEXTS,
            debounce: DEBOUNCE,
            dir: None,
            most_files: FILES,
            on_forced_drop: false,
        }
    }

    /// Copies what the rings hold. The threads go on meanwhile.
    pub fn recording(&self) -> Recording {
        let rings = lock(&self.rings).clone();
        let mut events = Vec::new();
        let mut lost = self.without_ring.load(Relaxed);
        for thread in rings {
            // First the owner: it is the one of the last records, or that changes once more and
            // a record says so.
            let owner = *lock(&thread.owner);
            let part = thread.ring.read(0);
            lost += part.lost;
            events.extend(decode_all(&part.records, owner));
        }
        events.sort_by_key(|recorded| recorded.event.at);
        let newest = events.last().map_or(0, |recorded| recorded.event.at);
        let age = u64::try_from(self.age.as_nanos()).unwrap_or(u64::MAX);
        let oldest = newest.saturating_sub(age);
        let old = events.partition_point(|recorded| recorded.event.at < oldest);
        events.drain(..old);
        Recording {
            events,
            lost: lost + old as u64,
        }
    }

    /// Writes the recording to a file in the folder, or in the current one if none was set, as
    /// a trace that Perfetto opens. `why` becomes part of its name.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, why: &str) -> io::Result<PathBuf> {
        let dir = self.dir.as_deref().unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        let count = {
            let mut saves = lock(&self.saves);
            saves.count += 1;
            saves.count
        };
        let name = format!(
            "kinfolk-{}-{}-{count}-{}.pftrace",
            std::process::id(),
            self.number,
            words_of_file(why)
        );
        let path = dir.join(name);
        self.write(&path)?;
        let mut gone = Vec::new();
        {
            let mut saves = lock(&self.saves);
            saves.files.push_back(path.clone());
            while saves.files.len() > self.most_files {
                gone.extend(saves.files.pop_front());
            }
        }
        for file in gone {
            // Another has removed it: then it is gone too.
            let _ = fs::remove_file(file);
        }
        Ok(path)
    }

    /// Writes the recording under another name first: a file that has its name is whole, also
    /// if the process ends meanwhile.
    fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("part");
        let write = || {
            let mut out = BufWriter::new(File::create(&unfinished)?);
            self.recording().write_perfetto(&mut out)?;
            out.flush()?;
            fs::rename(&unfinished, path)
        };
        let written = write();
        if written.is_err() {
            // There may be none.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Something went wrong: the recording is written by a thread of its own, if a folder was
    /// set. Does not wait. However often it is called, one file is written at a time, and no
    /// other for [a while](RecorderBuilder::debounce) after it.
    pub fn trigger(&self, why: &str) {
        if self.dir.is_none() || !self.may_begin() {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        let words = why.to_string();
        let thread = std::thread::Builder::new().name("kinfolk-recorder".into());
        let begun = thread.spawn(move || {
            let written = me.save(&words);
            me.is_over(written.err());
        });
        if let Err(error) = begun {
            self.is_over(Some(error));
        }
    }

    fn may_begin(&self) -> bool {
        let mut saves = lock(&self.saves);
        let soon = saves
            .last
            .is_some_and(|last| last.elapsed() < self.debounce);
        if saves.writing || soon {
            saves.merged += 1;
            return false;
        }
        saves.writing = true;
        true
    }

    fn is_over(&self, error: Option<io::Error>) {
        let mut saves = lock(&self.saves);
        saves.writing = false;
        saves.last = Some(Instant::now());
        saves.error = error;
        drop(saves);
        self.saved.notify_all();
    }

    /// From now on a panic anywhere in the program triggers a file: the panic hook that is set
    /// now is called too. Outside of jobs, where a panic may end the program, the file is
    /// written before the hook returns.
    pub fn on_panic(&self) {
        let me = self.me.clone();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Some(me) = me.upgrade() {
                me.note_panic(info.location().map(ToString::to_string));
            }
            before(info);
        }));
    }

    fn note_panic(&self, place: Option<String>) {
        let words = format!("panic {}", place.unwrap_or_default());
        if kit::current_id().is_some() {
            return self.trigger(&words);
        }
        if self.dir.is_some() && self.may_begin() {
            let written = self.save(&words);
            self.is_over(written.err());
        }
    }

    /// Waits for the file that is being written, if there is one, and returns the paths of the
    /// files that are there.
    ///
    /// # Errors
    /// If the last file that was triggered could not be written.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut saves = lock(&self.saves);
        while saves.writing {
            saves = self
                .saved
                .wait(saves)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match saves.error.take() {
            Some(error) => Err(error),
            None => Ok(saves.files.iter().cloned().collect()),
        }
    }

    /// How many triggers made no file of their own, since one was being written or had just
    /// been.
    pub fn merged(&self) -> u64 {
        lock(&self.saves).merged
    }

    #[inline]
    fn put(&self, event: &Event, text: Option<&str>) {
        let Some(words) = encode(event) else { return };
        let kept = OWN.try_with(|own| {
            let Ok(mut own) = own.try_borrow_mut() else {
                return false;
            };
            let here = match own.first_mut() {
                Some(here) if here.recorder == self.number => Some(here),
                _ => self.find(&mut own, event),
            };
            let Some(here) = here else { return false };
            if here.worker != event.worker {
                self.hand_over(here, event);
            }
            here.ring.ring.push(words);
            if let Some(text) = text {
                text_records(text).for_each(|words| here.ring.ring.push(words));
            }
            true
        });
        if kept != Ok(true) {
            self.without_ring.fetch_add(1, Relaxed);
        }
        if self.on_forced_drop && event.kind == EventKind::Dropped {
            self.trigger("forced drop");
        }
    }

    /// The thread is another worker now.
    #[cold]
    fn hand_over(&self, here: &mut OwnRing, event: &Event) {
        here.worker = event.worker;
        here.ring.belongs_to(RingOwner::of(event));
    }

    /// The ring of this thread, in front from now on; none if too many threads have one.
    #[cold]
    fn find<'a>(&self, own: &'a mut Vec<OwnRing>, event: &Event) -> Option<&'a mut OwnRing> {
        match own.iter().position(|one| one.recorder == self.number) {
            Some(at) => own.swap(0, at),
            None => {
                // Those of recorders that are gone.
                own.retain(|one| Arc::strong_count(&one.ring) > 1);
                let ring = self.ring_for(RingOwner::of(event))?;
                let new = OwnRing {
                    recorder: self.number,
                    ring,
                    worker: event.worker,
                };
                own.insert(0, new);
            }
        }
        own.first_mut()
    }

    /// A new ring; or that of a thread that has ended, if there is no room for more.
    fn ring_for(&self, owner: RingOwner) -> Option<Arc<ThreadRing>> {
        let mut rings = lock(&self.rings);
        if rings.len() < MOST_THREADS {
            let ring = Arc::new(ThreadRing {
                ring: RecordRing::new(self.slots),
                owner: Mutex::new(owner),
            });
            rings.push(ring.clone());
            return Some(ring);
        }
        // Held by this list alone: none comes by it in another way than through this lock.
        let free = rings.iter().find(|ring| Arc::strong_count(ring) == 1)?;
        // Pairs with the release with which the ended thread gave its share back: what it wrote
        // comes before what the new one writes (R1).
        fence(Acquire);
        free.belongs_to(owner);
        Some(free.clone())
    }
}

/// Reads what comes into the rings, each record once.
pub(crate) struct Drain {
    recorder: Arc<Recorder>,
    /// The number of the next record of each ring.
    next: Vec<u64>,
    /// Where each ring ended when its last event was left for the next time.
    left: Vec<u64>,
    lost: u64,
}

impl Recorder {
    /// From now on all events are read that come into the rings.
    pub(crate) fn drain(self: &Arc<Self>) -> Drain {
        Drain {
            recorder: self.clone(),
            next: Vec::new(),
            left: Vec::new(),
            lost: 0,
        }
    }
}

impl Drain {
    /// Adds the new events of all rings, ring by ring. An event that is the last of its ring is
    /// left for the next time, once, if a text of its may follow; unless this is the last time.
    /// The answer is how many were lost so far.
    pub(crate) fn read(&mut self, events: &mut Vec<RecordedEvent>, is_last: bool) -> u64 {
        let rings = lock(&self.recorder.rings).clone();
        self.next.resize(rings.len(), 0);
        self.left.resize(rings.len(), 0);
        let places = self.next.iter_mut().zip(&mut self.left);
        for (thread, (next, left)) in rings.iter().zip(places) {
            let owner = *lock(&thread.owner);
            let mut part = thread.ring.read(*next);
            let unfinished = unfinished(&part.records);
            *next = part.next;
            if unfinished > 0 && *left != part.next && !is_last {
                *left = part.next;
                *next -= unfinished as u64;
                part.records.truncate(part.records.len() - unfinished);
            }
            self.lost += part.lost;
            events.extend(decode_all(&part.records, owner));
        }
        self.lost + self.recorder.without_ring.load(Relaxed)
    }
}

impl ThreadRing {
    /// The thread that calls this owns the ring from now on.
    fn belongs_to(&self, owner: RingOwner) {
        let mut kept = lock(&self.owner);
        // Under the lock, so that a reader that has seen the new owner finds the record.
        self.ring.push(owner_record(owner, *kept));
        *kept = owner;
    }
}

/// The words of a file's name: letters, digits and dashes, not many.
fn words_of_file(why: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let words: String = why.chars().map(plain).take(60).collect();
    words.trim_matches('-').to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Recorder {
    #[inline]
    fn event(&self, event: &Event) {
        self.put(event, None);
    }

    fn event_with(&self, event: &Event, text: &str) {
        self.put(event, Some(text));
    }

    /// As [`trigger`](Recorder::trigger), and waits for the file: the program may be about to
    /// end.
    fn trouble(&self, what: &str) -> Option<String> {
        if self.dir.is_none() || !self.may_begin() {
            return None;
        }
        let written = self.save(what);
        let words = match &written {
            Ok(path) => format!("the flight recorder has written {}", path.display()),
            Err(error) => format!("the flight recorder could not write its file: {error}"),
        };
        self.is_over(written.err());
        Some(words)
    }

    fn interests(&self) -> Interests {
        self.interests
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::Location;

    use kinfolk_core::{JobId, JobKind, Lane};

    use super::*;

    /// A reader that comes between an event and its text does not take the event without it. An
    /// event without a text is read the next time.
    #[test]
    fn see_4_an_event_is_read_with_its_text() {
        let recorder = Recorder::builder().interests(Interests::ALL).build();
        let mut drain = recorder.drain();
        let event = |at: u64, kind: EventKind| Event::new(JobId::from_bits(1).unwrap(), at, kind);
        let create = |at: u64| {
            let (kind, site, lane) = (JobKind::Task, Location::caller(), Lane::Pool);
            event(at, EventKind::Create { kind, site, lane })
        };
        let mut read = |is_last: bool| -> Vec<(u64, Option<String>)> {
            let mut events = Vec::new();
            assert_eq!(drain.read(&mut events, is_last), 0);
            let all = events.into_iter();
            all.map(|one| (one.event.at, one.text)).collect()
        };
        let long = "a name that takes two records and a part of a third";
        recorder.event(&event(1, EventKind::PollBegin));
        recorder.event(&create(2));
        assert_eq!(read(false), [(1, None)]);
        // Its text comes, in three parts.
        let ring = lock(&recorder.rings)[0].clone();
        for (n, part) in text_records(long).enumerate() {
            ring.ring.push(part);
            if n == 0 {
                assert!(read(false).is_empty());
            }
        }
        assert_eq!(read(false), [(2, Some(long.to_string()))]);
        recorder.event(&create(3));
        assert!(read(false).is_empty());
        assert_eq!(read(false), [(3, None)], "none follows");
        recorder.event(&create(4));
        assert_eq!(read(true), [(4, None)]);
        // As long as a text can be: it is whole.
        recorder.event_with(&create(5), &"x".repeat(200));
        assert_eq!(read(false), [(5, Some("x".repeat(96)))]);
        // A short one ends in a part that is not full.
        recorder.event_with(&create(6), "short");
        assert_eq!(read(false), [(6, Some("short".to_string()))]);
    }
}
