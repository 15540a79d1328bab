//! From events to the packets of a trace: a track per thread with the turns it takes, rows of
//! jobs in the shape of the tree, arrows for wakes and cancels, counters.
//!
//! - Slices of one track nest: a job's row holds one job at a time, and what is open in it is a
//!   stack.
//! - A row is used again when its job has ended, by the next job of that name below the same
//!   row. There are [so many](MOST_ROWS) rows; a job that finds none is a mark on its parent's.
//! - An arrow has two ends, and an id of its own: it is written when its second end comes.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use kinfolk_core::host::say::escaped;
use kinfolk_core::{Event, EventKind, JobId, JobKind, JobState};

use crate::perfetto::wire::{WireMessage, descriptor, event as field, interned, packet, trace};
use crate::record::AtPlace;
use crate::recorder::RecordedEvent;

/// How many rows of jobs a trace has: Perfetto is slow with many thousands.
const MOST_ROWS: usize = 2_000;

/// How many names of slices a file keeps under a number.
const MOST_NAMES: usize = 10_000;

/// The one writer of a file.
const SEQUENCE: u64 = 1;

/// Counters are written at most twice in this time, in nanoseconds.
const PACE: u64 = 1_000_000;

const PROCESS: u64 = 1;
const JOBS: u64 = 2;
const LIVING: u64 = 3;
const READY: u64 = 4;
/// Where the tracks of threads and jobs begin.
const FIRST_TRACK: u64 = 16;

/// Writes one file of these events, which are in the order of their times.
pub(crate) fn write_trace(
    events: &[RecordedEvent],
    lost: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut tracer = Tracer::new();
    let start = events.first().map_or(0, |first| first.event.at);
    tracer.begin_file(start, lost);
    for recorded in events {
        tracer.take_in(&recorded.event, recorded.text.as_deref());
        if tracer.out.len() > 1 << 16 {
            out.write_all(&std::mem::take(&mut tracer.out))?;
        }
    }
    tracer.end_file();
    out.write_all(&tracer.out)
}

/// A job that lives, as far as the trace knows.
struct Life {
    name: String,
    kind: Option<JobKind>,
    place: String,
    parent: Option<JobId>,
    /// Its row; none if it has not been placed, or there was no room.
    row: Option<u64>,
    is_placed: bool,
    /// What is open in its row, the job itself first.
    open: Vec<String>,
    /// The wake that its next turn follows.
    woken: Option<Woken>,
    /// The cancel that has come to it.
    cancel: Option<u64>,
    /// It is queued for a turn.
    is_ready: bool,
}

struct Woken {
    at: u64,
    track: u64,
}

struct JobRow {
    parent: u64,
    name: String,
}

#[derive(Default)]
struct ThreadTrack {
    track: u64,
    name: String,
    number: u64,
    /// The turns that are being taken, each inside the one before.
    turns: Vec<String>,
}

#[derive(Default)]
pub(super) struct Tracer {
    /// What is to be written.
    pub(super) out: Vec<u8>,
    now: u64,
    names: HashMap<String, u64>,
    described: HashSet<u64>,
    jobs: HashMap<JobId, Life>,
    rows: HashMap<u64, JobRow>,
    free: HashMap<(u64, String), Vec<u64>>,
    threads: HashMap<u64, ThreadTrack>,
    next_track: u64,
    next_arrow: u64,
    next_cancel: u64,
    living: u64,
    ready: u64,
    /// When the counters were written last.
    counted: Option<u64>,
    /// What the counters have been since then, and since when: not written yet.
    uncounted: Option<CounterValues>,
}

/// The counters from a moment on.
#[derive(Clone, Copy)]
struct CounterValues {
    at: u64,
    living: u64,
    ready: u64,
}

impl Tracer {
    pub(super) fn new() -> Tracer {
        Tracer {
            next_track: FIRST_TRACK,
            next_arrow: 1,
            next_cancel: 1,
            ..Tracer::default()
        }
    }

    // ------------------------------------------------------------- files

    /// What follows can be opened alone: it begins with what is open.
    pub(super) fn begin_file(&mut self, at: u64, lost: u64) {
        self.now = self.now.max(at);
        self.names.clear();
        self.described.clear();
        (self.counted, self.uncounted) = (None, None);
        let mut first = WireMessage::new();
        first.uint(packet::TIMESTAMP, self.now);
        first.uint(packet::SEQUENCE, SEQUENCE);
        first.uint(packet::FLAGS, packet::CLEARED);
        first.uint(packet::FIRST, 1);
        if lost > 0 {
            first.uint(packet::PREVIOUS_DROPPED, 1);
        }
        self.write(&first);
        self.describe_process();
        let mut threads: Vec<u64> = self.threads.keys().copied().collect();
        threads.sort_unstable();
        for number in threads {
            let thread = &self.threads[&number];
            let (track, turns) = (thread.track, thread.turns.clone());
            self.describe_thread(number);
            for turn in turns {
                self.begin(track, &turn, WireMessage::new());
            }
        }
        let mut open: Vec<(u64, JobId)> = self
            .jobs
            .iter()
            .filter_map(|(id, life)| Some((life.row?, *id)))
            .collect();
        open.sort_unstable();
        for (row, id) in open {
            self.describe_row(row);
            let life = &self.jobs[&id];
            let facts = annotations(id, life);
            for (n, slice) in life.open.clone().into_iter().enumerate() {
                let more = if n == 0 {
                    facts.clone()
                } else {
                    WireMessage::new()
                };
                self.begin(row, &slice, more);
            }
        }
        self.count(true);
    }

    /// Ends what is open.
    pub(super) fn end_file(&mut self) {
        self.count(true);
        let rows = self
            .jobs
            .values()
            .filter_map(|life| Some((life.row?, life.open.len())));
        let turns = self
            .threads
            .values()
            .map(|thread| (thread.track, thread.turns.len()));
        let mut open: Vec<(u64, usize)> = rows.chain(turns).collect();
        open.sort_unstable();
        for (track, many) in open {
            for _ in 0..many {
                self.end(track);
            }
        }
    }

    // ------------------------------------------------------------- events

    // Long because it has an arm for each sort of event.
    pub(super) fn take_in(&mut self, event: &Event, text: Option<&str>) {
        self.now = self.now.max(event.at);
        let id = event.job;
        let thread = self.thread(event);
        match event.kind {
            EventKind::Create { kind, site, .. } => {
                let name = match text {
                    Some(text) => escaped(text).to_string(),
                    None => kind.name_at(site),
                };
                let life = self.life(id);
                life.name = name;
                life.kind = Some(kind);
                life.place = AtPlace(site).to_string();
                self.living += 1;
                if kind == JobKind::Root {
                    self.place(id);
                }
            }
            EventKind::Attach { parent } => {
                self.life(id).parent = Some(parent);
                self.place(id);
            }
            EventKind::Scheduled { .. } => {
                let woken = Some(Woken {
                    at: self.now,
                    track: thread,
                });
                let life = self.life(id);
                life.woken = woken;
                if !std::mem::replace(&mut life.is_ready, true) {
                    self.ready += 1;
                }
            }
            EventKind::PollBegin => self.turn_begins(id, event.thread),
            EventKind::PollEnd => {
                let open = self.threads.get_mut(&event.thread);
                if open.is_some_and(|open| open.turns.pop().is_some()) {
                    self.end(thread);
                }
            }
            EventKind::CancelRequest { reason, site, .. } => {
                let mut more = WireMessage::new();
                annotate(&mut more, "reason", &reason.to_string());
                annotate(&mut more, "asked at", &AtPlace(site).to_string());
                if let Some(text) = text {
                    annotate(&mut more, "words", &escaped(text).to_string());
                }
                let cancel = self.next_cancel;
                self.next_cancel += 1;
                self.cancelled(id, thread, cancel, more);
            }
            EventKind::CancelHop { from } => {
                self.place(from);
                self.place(id);
                let cancel = self.jobs.get(&from).and_then(|above| above.cancel);
                let row = self.row_of(from);
                self.cancelled(id, row, cancel.unwrap_or(0), WireMessage::new());
            }
            EventKind::CancelHeld { .. } => self.mark(id, "holds a cancel back", None),
            EventKind::ShieldLifted { .. } => self.mark(id, "lets the cancel in", None),
            EventKind::Told { site } => {
                self.mark(id, "told", site.map(|site| AtPlace(site).to_string()));
            }
            EventKind::GuardEntered { site } => {
                self.mark(id, "guard entered", Some(AtPlace(site).to_string()));
            }
            EventKind::GuardLeft => self.mark(id, "guard left", None),
            EventKind::Dropped => self.mark(id, "dropped", None),
            EventKind::WaitBegin { kind, site } => {
                let place = site.map(|site| AtPlace(site).to_string());
                let name = match text {
                    Some(text) => format!("waits on {}", escaped(text)),
                    None => format!("waits on {kind}"),
                };
                self.mark(id, &name, place);
            }
            EventKind::State { to } if to.is_terminal() && to != JobState::Completed => {
                self.mark(id, &format!("{to:?}").to_lowercase(), None);
            }
            EventKind::Finalize { .. } => self.is_over(id),
            _ => {}
        }
        self.count(false);
    }

    fn turn_begins(&mut self, id: JobId, thread_number: u64) {
        let life = self.life(id);
        let (name, woken) = (life.name.clone(), life.woken.take());
        if std::mem::take(&mut life.is_ready) {
            self.ready = self.ready.saturating_sub(1);
        }
        let thread = &self.threads[&thread_number];
        let track = thread.track;
        let mut more = WireMessage::new();
        if let Some(woken) = woken {
            let arrow = self.arrow();
            let mut start = WireMessage::new();
            start.fixed(field::FLOW, arrow);
            self.instant_at(woken.at, woken.track, "wakes", start);
            more.fixed(field::FLOW_END, arrow);
        }
        annotate_number(&mut more, "job", id.number());
        self.begin(track, &name, more);
        if let Some(thread) = self.threads.get_mut(&thread_number) {
            thread.turns.push(name);
        }
    }

    /// A cancel has come to `id`: an arrow from the track `from`.
    fn cancelled(&mut self, id: JobId, from: u64, cancel: u64, mut more: WireMessage) {
        self.place(id);
        let life = self.life(id);
        life.cancel.get_or_insert(cancel);
        let Some(row) = life.row else { return };
        let is_new = !life.open.iter().any(|slice| slice == "cancelling");
        if is_new {
            life.open.push("cancelling".into());
        }
        let arrow = self.arrow();
        let mut start = WireMessage::new();
        start.fixed(field::FLOW, arrow);
        start.uint(field::CORRELATION, cancel);
        self.instant(from, "cancels", start);
        more.fixed(field::FLOW_END, arrow);
        more.uint(field::CORRELATION, cancel);
        match is_new {
            true => self.begin(row, "cancelling", more),
            false => self.instant(row, "cancelled again", more),
        }
    }

    fn is_over(&mut self, id: JobId) {
        let Some(life) = self.jobs.remove(&id) else {
            return;
        };
        self.living = self.living.saturating_sub(1);
        if life.is_ready {
            self.ready = self.ready.saturating_sub(1);
        }
        let Some(row) = life.row else { return };
        for _ in &life.open {
            self.end(row);
        }
        if let Some(JobRow { parent, name }) = self.rows.get(&row) {
            let key = (*parent, name.clone());
            self.free.entry(key).or_default().push(row);
        }
    }

    // ------------------------------------------------------------- rows

    fn life(&mut self, id: JobId) -> &mut Life {
        self.jobs.entry(id).or_insert_with(|| Life {
            name: format!("job {id}"),
            kind: None,
            place: String::new(),
            parent: None,
            row: None,
            is_placed: false,
            open: Vec::new(),
            woken: None,
            cancel: None,
            is_ready: false,
        })
    }

    /// Gives the job a row, if it has none and there is one, and begins its slice.
    fn place(&mut self, id: JobId) {
        let life = self.life(id);
        if std::mem::replace(&mut life.is_placed, true) {
            return;
        }
        let (name, parent) = (life.name.clone(), life.parent);
        let above = match parent {
            Some(parent) => {
                // Its beginning may be older than the recording.
                self.place(parent);
                self.row_of(parent)
            }
            None => JOBS,
        };
        let free = self.free.get_mut(&(above, name.clone())).and_then(Vec::pop);
        let row = match free {
            Some(row) => row,
            None if self.rows.len() < MOST_ROWS => {
                let row = self.next_track;
                self.next_track += 1;
                let name = name.clone();
                self.rows.insert(
                    row,
                    JobRow {
                        parent: above,
                        name,
                    },
                );
                row
            }
            None => {
                self.instant(above, &name, WireMessage::new());
                return;
            }
        };
        self.describe_row(row);
        let life = self.life(id);
        life.row = Some(row);
        life.open.push(name.clone());
        let facts = annotations(id, &self.jobs[&id]);
        self.begin(row, &name, facts);
    }

    /// The row of the job, or of the nearest above it that has one.
    fn row_of(&self, id: JobId) -> u64 {
        let mut at = Some(id);
        while let Some(life) = at.and_then(|id| self.jobs.get(&id)) {
            if let Some(row) = life.row {
                return row;
            }
            at = life.parent;
        }
        JOBS
    }

    fn mark(&mut self, id: JobId, name: &str, place: Option<String>) {
        self.place(id);
        let mut more = WireMessage::new();
        if let Some(place) = place {
            annotate(&mut more, "at", &place);
        }
        let row = self.row_of(id);
        self.instant(row, name, more);
    }

    // ------------------------------------------------------------- tracks

    fn thread(&mut self, event: &Event) -> u64 {
        if let Some(known) = self.threads.get(&event.thread) {
            return known.track;
        }
        let track = self.next_track;
        self.next_track += 1;
        let name = match event.worker {
            Some(worker) => format!("worker {worker}"),
            None => format!("thread {}", event.thread),
        };
        let number = self.threads.len() as u64 + 1;
        self.threads.insert(
            event.thread,
            ThreadTrack {
                track,
                name,
                number,
                turns: Vec::new(),
            },
        );
        self.describe_thread(event.thread);
        track
    }

    fn describe_process(&mut self) {
        let pid = u64::from(std::process::id());
        let mut process = WireMessage::new();
        process
            .uint(descriptor::PROCESS_PID, pid)
            .text(descriptor::PROCESS_NAME, "kinfolk");
        let mut track = WireMessage::new();
        track
            .uint(descriptor::UUID, PROCESS)
            .message(descriptor::PROCESS, &process);
        self.describe(&track);
        for (uuid, name) in [
            (JOBS, "jobs"),
            (LIVING, "living jobs"),
            (READY, "ready tasks"),
        ] {
            let mut track = WireMessage::new();
            track
                .uint(descriptor::UUID, uuid)
                .uint(descriptor::PARENT, PROCESS)
                .text(descriptor::NAME, name);
            if uuid != JOBS {
                track.message(descriptor::COUNTER, &WireMessage::new());
            }
            self.describe(&track);
        }
    }

    fn describe_thread(&mut self, number: u64) {
        let Some(known) = self.threads.get(&number) else {
            return;
        };
        let mut thread = WireMessage::new();
        thread
            .uint(descriptor::THREAD_PID, u64::from(std::process::id()))
            .uint(descriptor::THREAD_TID, known.number)
            .text(descriptor::THREAD_NAME, &known.name);
        let mut track = WireMessage::new();
        track
            .uint(descriptor::UUID, known.track)
            .uint(descriptor::PARENT, PROCESS)
            .message(descriptor::THREAD, &thread);
        self.describe(&track);
    }

    /// Describes the row in this file, and those above it.
    fn describe_row(&mut self, row: u64) {
        let mut todo = Vec::new();
        let mut at = row;
        while let Some(JobRow { parent, name }) = self.rows.get(&at) {
            if !self.described.insert(at) {
                break;
            }
            todo.push((at, *parent, name.clone()));
            at = *parent;
        }
        for (uuid, parent, name) in todo.into_iter().rev() {
            let mut track = WireMessage::new();
            track
                .uint(descriptor::UUID, uuid)
                .uint(descriptor::PARENT, parent)
                .text(descriptor::NAME, &name);
            self.describe(&track);
        }
    }

    fn describe(&mut self, track: &WireMessage) {
        let mut all = WireMessage::new();
        all.uint(packet::SEQUENCE, SEQUENCE);
        all.message(packet::DESCRIPTOR, track);
        self.write(&all);
    }

    // ------------------------------------------------------------- packets

    fn arrow(&mut self) -> u64 {
        self.next_arrow += 1;
        self.next_arrow - 1
    }

    fn begin(&mut self, track: u64, name: &str, more: WireMessage) {
        self.event(self.now, field::BEGIN, track, Some(name), more);
    }

    fn end(&mut self, track: u64) {
        self.event(self.now, field::END, track, None, WireMessage::new());
    }

    fn instant(&mut self, track: u64, name: &str, more: WireMessage) {
        self.instant_at(self.now, track, name, more);
    }

    fn instant_at(&mut self, at: u64, track: u64, name: &str, more: WireMessage) {
        self.event(at, field::INSTANT, track, Some(name), more);
    }

    fn event(&mut self, at: u64, sort: u64, track: u64, name: Option<&str>, mut more: WireMessage) {
        let mut all = WireMessage::new();
        all.uint(packet::TIMESTAMP, at);
        all.uint(packet::SEQUENCE, SEQUENCE);
        all.uint(packet::FLAGS, packet::NEEDS_STATE);
        if let Some(name) = name {
            let (number, is_new) = self.number_of(name);
            if is_new {
                let mut entry = WireMessage::new();
                entry.uint(interned::IID, number).text(interned::NAME, name);
                let mut names = WireMessage::new();
                names.message(interned::EVENT_NAMES, &entry);
                all.message(packet::INTERNED, &names);
            }
            more.uint(field::NAME_IID, number);
        }
        more.uint(field::TYPE, sort).uint(field::TRACK, track);
        all.message(packet::TRACK_EVENT, &more);
        self.write(&all);
    }

    /// The number of a name in this file. When there are too many they begin anew.
    fn number_of(&mut self, name: &str) -> (u64, bool) {
        if let Some(number) = self.names.get(name) {
            return (*number, false);
        }
        if self.names.len() == MOST_NAMES {
            self.names.clear();
            let mut clear = WireMessage::new();
            clear.uint(packet::TIMESTAMP, self.now);
            clear.uint(packet::SEQUENCE, SEQUENCE);
            clear.uint(packet::FLAGS, packet::CLEARED);
            self.write(&clear);
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(name.to_string(), number);
        (number, true)
    }

    /// Writes the counters, unless that was done a moment ago: then what they are now is
    /// written when more happens, or at the end of the file.
    fn count(&mut self, at_once: bool) {
        let now = CounterValues {
            at: self.now,
            living: self.living,
            ready: self.ready,
        };
        let soon = self.counted.is_some_and(|last| self.now < last + PACE);
        if soon && !at_once {
            let same =
                |known: &CounterValues| (known.living, known.ready) == (now.living, now.ready);
            // Since when they are so.
            self.uncounted = self.uncounted.filter(same).or(Some(now));
            return;
        }
        self.counted = Some(self.now);
        for counters in self.uncounted.take().into_iter().chain([now]) {
            for (track, value) in [(LIVING, counters.living), (READY, counters.ready)] {
                let mut more = WireMessage::new();
                more.uint(field::COUNTER_VALUE, value);
                self.event(counters.at, field::COUNTER, track, None, more);
            }
        }
    }

    fn write(&mut self, packet: &WireMessage) {
        let mut framed = WireMessage::new();
        framed.message(trace::PACKET, packet);
        self.out.extend(framed.as_bytes());
    }
}

fn annotations(id: JobId, life: &Life) -> WireMessage {
    let mut more = WireMessage::new();
    annotate_number(&mut more, "job", id.number());
    if let Some(kind) = life.kind {
        annotate(&mut more, "kind", &kind.to_string());
        annotate(&mut more, "made at", &life.place);
    }
    more
}

fn annotate(event: &mut WireMessage, name: &str, value: &str) {
    let mut annotation = WireMessage::new();
    annotation
        .text(field::ANNOTATION_NAME, name)
        .text(field::ANNOTATION_TEXT, value);
    event.message(field::ANNOTATION, &annotation);
}

fn annotate_number(event: &mut WireMessage, name: &str, value: u64) {
    let mut annotation = WireMessage::new();
    annotation
        .text(field::ANNOTATION_NAME, name)
        .uint(field::ANNOTATION_UINT, value);
    event.message(field::ANNOTATION, &annotation);
}
