//! [`SimKernel`]: the operations under way, and when each completes.
//!
//! ```text
//! submit ──▶ Due(at) ──1──▶ over           1: `collect`: its time has come and
//!              ▲  │                           it is carried out just now
//!              3  2                        2: it must wait for a change
//!              │  ▼                        3: that change has come
//!            Waiting ──4──▶ Due(at)        4: a cancel, now or later
//!
//! A cancel that comes too late ends an operation at 2 instead.
//! ```
//!
//! An operation touches its buffer at 1, in the moment before its end is
//! collected and at no other time: that is the latest moment for a kernel, and
//! so the hardest for code that frees memory too early.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kinfolk_runtime::io::driver::{Answer, OpId};
use kinfolk_runtime::io::request::{CloseArgs, SyncArgs, WriteArgs, WriteThenSyncArgs};
use kinfolk_runtime::io::{Input, Request};

use super::by_number::ByNumber;
use super::carry::{self, Progress};
use super::disk::LazyDisk;
use super::events::{Happens, SimEvent, SimEvents};
use super::faults::{Fate, Fault, Faults, On, OpKind, on_path};
use super::memory::Pieces;
use super::network::{self, Network, Path as Way};
use super::op_table::{OpNumber, OpTable};
use super::options::SimIo;
use super::owners::{OpenFile, Owners};
use super::power_cut::SavedDisk;
use super::sockets::{Datagram, SocketId, Sockets, Target};
use super::wires::{WireId, Wires};
use crate::clock::VirtualClock;
use crate::rng::Rng;

/// What an operation can wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum WaitKey {
    Wire(WireId),
    Socket(SocketId),
}

/// All that an operation waits for; it goes on when one of them has changed.
pub(crate) type WaitKeys = [Option<WaitKey>; 2];

/// How many rows of waiting operations are kept for others, when they are empty.
const SPARE_ROWS: usize = 16;

/// What has changed since that was told, in any order, some of it more than once.
#[derive(Default)]
pub(crate) struct Changes(Vec<WaitKey>);

impl Changes {
    pub(crate) fn insert(&mut self, key: WaitKey) {
        self.0.push(key);
    }
}

impl Extend<WaitKey> for Changes {
    fn extend<I: IntoIterator<Item = WaitKey>>(&mut self, keys: I) {
        self.0.extend(keys);
    }
}

enum OpPhase {
    Due(SimEvent),
    /// The operation is tried again then.
    Resting(SimEvent),
    Waiting,
}

struct SimOp {
    request: Request,
    fate: Fate,
    began: Duration,
    at: OpPhase,
    /// The answer, if it is fixed already: an error, or that the operation was
    /// cancelled.
    answer: Option<i32>,
    /// A cancel came too late, unless the operation must wait.
    end_at_wait: bool,
    /// When a cancel takes effect.
    heard: Option<SimEvent>,
}

/// Whether a request may answer again after this answer.
fn may_go_on(request: &Request, result: i32) -> bool {
    match request {
        Request::AcceptMany(..) => result >= 0,
        // Zero bytes are the end.
        Request::RecvMany(..) => result > 0,
        _ => false,
    }
}

/// The whole kernel.
pub(crate) struct State {
    pub(crate) clock: VirtualClock,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) owners: Owners,
    pub(crate) disk: LazyDisk,
    pub(crate) wires: Wires,
    pub(crate) sockets: Sockets,
    pub(crate) network: Network,
    /// Messages on their way.
    messages: BTreeMap<OpNumber, Datagram>,
    posted: OpNumber,
    /// Changes that an operation may wait for.
    pub(crate) changed: Changes,
    ops: OpTable<SimOp>,
    submitted: u64,
    events: SimEvents,
    waiting: ByNumber<WaitKey, Vec<OpNumber>>,
    /// Empty rows of `waiting`, which are used again.
    spare_rows: Vec<Vec<OpNumber>>,
    /// The memory that reads will fill, by where it begins.
    lent: BTreeMap<usize, usize>,
    /// The buffer of a group that was just filled.
    pub(crate) filled: Option<u16>,
}

impl State {
    fn event(&mut self, count: OpNumber, what: Happens, after: Duration) -> SimEvent {
        let event = SimEvent {
            at: self.clock.elapsed().saturating_add(after),
            order: self.rng.next_u64(),
            count,
            what,
        };
        self.events.push(event);
        event
    }

    /// The operation will be carried out after this time.
    fn make_due(&mut self, count: OpNumber, after: Duration) {
        if let Some((_, op)) = self.ops.get(count)
            && let OpPhase::Due(event) | OpPhase::Resting(event) = op.at
        {
            self.events.call_off(event);
        }
        let event = self.event(count, Happens::Over, after);
        if let Some(op) = self.ops.get_mut(count) {
            op.at = OpPhase::Due(event);
        }
    }

    /// Tries the operations on a stream again when the data on its way arrives.
    pub(crate) fn await_arrival(&mut self, wire: WireId) {
        if let Some(at) = self.wires.next_arrival(wire) {
            let after = at.saturating_sub(self.clock.elapsed());
            self.event(0, Happens::Arrives(wire), after);
        }
    }

    /// Sends a message on its way.
    pub(crate) fn post(&mut self, message: &Datagram, after: Duration) {
        if after.is_zero() {
            return self.receive(message);
        }
        self.posted += 1;
        self.messages.insert(self.posted, message.clone());
        self.event(self.posted, Happens::MessageArrives, after);
    }

    fn message_arrives(&mut self, number: OpNumber) {
        let Some(message) = self.messages.remove(&number) else {
            return;
        };
        // Not along a way that was cut meanwhile.
        let path = match &message.target {
            Target::At(to) => network::path(&message.source, to),
            Target::Named(_) => None,
        };
        if self.network.delay(path).is_some() {
            self.receive(&message);
        }
    }

    /// Cuts or heals ways of one latency.
    pub(crate) fn cut(&mut self, ways: &[Way], cut: bool) {
        for way in ways {
            self.network.cut(*way, cut);
        }
        let now = self.clock.elapsed();
        let at = self
            .network
            .delay(ways.first().copied())
            .map(|delay| now.saturating_add(delay));
        for wire in self.wires.delay(|own| ways.contains(&own), at) {
            self.await_arrival(wire);
        }
    }

    pub(crate) fn submit(&mut self, id: OpId, request: Request) {
        self.submitted += 1;
        let count = OpTable::<SimOp>::number(id, self.submitted);
        let kind = OpKind::of(&request);
        let mut answer = None;
        let mut on = on_path(&request);
        if let Some(fd) = request.fd() {
            on = match self.owners.get(fd, kind.name()) {
                Some(open) => carry::kind_of(open, &mut self.sockets),
                None => {
                    answer = Some(-libc::EBADF);
                    On::Nothing
                }
            };
            if kind != OpKind::Close {
                self.owners.begin_use(fd);
            }
        }
        self.lend(&request);
        let mut fate = self.faults.next(kind, on, &mut self.rng);
        if fate.errno == Some(libc::ETIMEDOUT) {
            fate.late = fate.late.max(network::CONNECTING);
        }
        let event = self.event(count, Happens::Over, fate.late);
        let op = SimOp {
            request,
            fate,
            began: self.clock.elapsed(),
            at: OpPhase::Due(event),
            answer: answer.or(fate.errno.map(|errno| -errno)),
            end_at_wait: false,
            heard: None,
        };
        if !self.ops.insert(id, count, op) {
            let wrong = format!("operation {id:?} was submitted while it is under way");
            self.owners.found_wrong(wrong);
        }
    }

    /// Checks that no two operations fill the same memory.
    fn lend(&mut self, request: &Request) {
        if OpKind::of(request) != OpKind::Read {
            return;
        }
        for (begin, end) in Pieces::of(request).ranges() {
            let before = self.lent.range(..end).next_back();
            if before.is_some_and(|(_, before_end)| *before_end > begin) {
                let wrong = "two operations read into the same memory".to_string();
                self.owners.found_wrong(wrong);
            }
            self.lent.insert(begin, end);
        }
    }

    fn give_back(&mut self, request: &Request) {
        if OpKind::of(request) == OpKind::Read {
            for (begin, _) in Pieces::of(request).ranges() {
                self.lent.remove(&begin);
            }
        }
    }

    pub(crate) fn cancel(&mut self, id: OpId) {
        let Some(count) = self.ops.of(id) else {
            return;
        };
        let too_late = self.rng.below(2) == 0;
        let Some(op) = self.ops.get_mut(count) else {
            return;
        };
        let fate = op.fate;
        // An operation that runs may be too far on to be cancelled, and one
        // that waits never is.
        if matches!(op.at, OpPhase::Due(_)) && (fate.cancel_too_late || too_late) {
            op.end_at_wait = true;
            return;
        }
        match fate.slow_cancel {
            Some(after) => {
                let event = self.event(count, Happens::CancelIsHeard, after);
                if let Some(op) = self.ops.get_mut(count) {
                    op.heard = Some(event);
                }
            }
            None => self.end_early(count),
        }
    }

    /// A cancel takes effect.
    fn end_early(&mut self, count: OpNumber) {
        if let Some(op) = self.ops.get_mut(count)
            && op.answer.is_none()
        {
            op.answer = Some(-libc::ECANCELED);
            let late = op.fate.late;
            self.make_due(count, late);
        }
    }

    /// Operations that waited for a change are tried again.
    pub(crate) fn tell_changed(&mut self) {
        if self.changed.0.is_empty() {
            return;
        }
        let mut changed = std::mem::take(&mut self.changed.0);
        // Each once, and in an order that depends on the seed alone.
        changed.sort_unstable();
        changed.dedup();
        for key in changed.drain(..) {
            let Some(mut row) = self.waiting.remove(&key) else {
                continue;
            };
            for count in row.drain(..) {
                if let Some((_, op)) = self.ops.get(count)
                    && matches!(op.at, OpPhase::Waiting)
                {
                    let late = op.fate.late;
                    self.make_due(count, late);
                }
            }
            if self.spare_rows.len() < SPARE_ROWS {
                self.spare_rows.push(row);
            }
        }
        // The empty row is used again.
        self.changed.0 = changed;
    }

    /// When the next operation completes, unless something happens before.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.events.first().map(|event| event.at)
    }

    /// Carries out arrivals at the front whose time has come.
    fn carry_out_arrivals(&mut self) {
        let now = self.clock.elapsed();
        let arrives =
            |event: &SimEvent| matches!(event.what, Happens::Arrives(_) | Happens::MessageArrives);
        while self.events.first().is_some_and(arrives)
            && let Some(event) = self.events.pop_by(now)
        {
            self.happens(event);
            self.tell_changed();
        }
    }

    /// Collects some of the operations whose time has come: at least one, if
    /// there is any.
    pub(crate) fn collect(&mut self, answers: &mut Vec<Answer>) {
        let now = self.clock.elapsed();
        while let Some(event) = self.events.pop_by(now) {
            answers.extend(self.happens(event));
            self.tell_changed();
            if !answers.is_empty() && self.rng.below(2) == 0 {
                return;
            }
        }
    }

    /// Carries out an event; returns the answer, if it has one.
    fn happens(&mut self, event: SimEvent) -> Option<Answer> {
        match event.what {
            Happens::Over => return self.carry_out(event.count),
            Happens::CancelIsHeard => {
                if let Some(op) = self.ops.get_mut(event.count)
                    && op.heard == Some(event)
                {
                    op.heard = None;
                }
                self.end_early(event.count);
            }
            Happens::Arrives(wire) => self.land(wire),
            Happens::MessageArrives => self.message_arrives(event.count),
        }
        None
    }

    fn carry_out(&mut self, count: OpNumber) -> Option<Answer> {
        // The event for which it was due has come.
        self.ops.get_mut(count)?.at = OpPhase::Waiting;
        let (id, op) = self.ops.get(count)?;
        let (request, fate, answer) = (op.request, op.fate, op.answer);
        let began = op.began;
        let carried = match answer {
            Some(answer) => {
                self.fail(&request, answer);
                Progress::Done(answer)
            }
            None if fate.stuck => Progress::Wait([None; 2]),
            None => self.carry(&request, fate, began),
        };
        let buffer = self.filled.take();
        match carried {
            Progress::Done(result) if self.goes_on(count, result) => {
                self.make_due(count, fate.late);
                Some(Answer {
                    id,
                    result,
                    more: true,
                    buffer,
                })
            }
            Progress::Done(result) => {
                self.give_back(&request);
                if let Some(fd) = request.fd()
                    && OpKind::of(&request) != OpKind::Close
                {
                    self.owners.end_use(fd);
                }
                if let Some(event) = self.ops.get(count).and_then(|(_, op)| op.heard) {
                    self.events.call_off(event);
                }
                self.ops.remove(count);
                Some(Answer {
                    buffer,
                    ..Answer::last(id, result)
                })
            }
            Progress::Later(after) => {
                let event = self.event(count, Happens::Over, after);
                let op = self.ops.get_mut(count)?;
                op.at = OpPhase::Resting(event);
                if op.end_at_wait {
                    self.end_early(count);
                }
                None
            }
            Progress::Wait(keys) => {
                let op = self.ops.get_mut(count)?;
                op.at = OpPhase::Waiting;
                if op.end_at_wait {
                    self.end_early(count);
                    return None;
                }
                for key in keys.into_iter().flatten() {
                    let spare = || self.spare_rows.pop().unwrap_or_default();
                    self.waiting.entry(key).or_insert_with(spare).push(count);
                }
                None
            }
        }
    }

    /// True if a series goes on; now and then it ends after an answer.
    fn goes_on(&mut self, count: OpNumber, result: i32) -> bool {
        match self.ops.get(count) {
            Some((_, op)) if may_go_on(&op.request, result) && !op.end_at_wait => {
                self.rng.below(4) != 0
            }
            _ => false,
        }
    }

    /// The side effects of an error.
    fn fail(&mut self, request: &Request, answer: i32) {
        match (request, -answer) {
            // As on Linux: a close that fails has closed the file.
            (Request::Close(CloseArgs { fd }), errno) if errno != libc::ECANCELED => {
                if errno == libc::EIO {
                    self.lose_unsynced(*fd);
                }
                self.close(*fd);
            }
            (_, libc::ECONNRESET) => {
                if let Some(fd) = request.fd()
                    && let Some(OpenFile::Socket(id)) = self.owners.get(fd, "a reset").cloned()
                {
                    self.break_off(id);
                }
            }
            (Request::Sync(SyncArgs { fd, .. }), libc::EIO) => self.lose_unsynced(*fd),
            // The write may have been done before the sync failed.
            (
                &Request::WriteThenSync(WriteThenSyncArgs {
                    fd,
                    buf,
                    len,
                    offset,
                }),
                libc::EIO,
            ) if self.rng.below(2) == 0 => {
                let write = Request::Write(WriteArgs {
                    fd,
                    buf,
                    len,
                    offset,
                });
                self.carry(&write, Fate::default(), Duration::ZERO);
                self.lose_unsynced(fd);
            }
            _ => {}
        }
    }

    /// Unsynced data of a file may never reach the disk, though a later sync succeeds.
    fn lose_unsynced(&mut self, fd: RawFd) {
        if let Some(OpenFile::File { number, .. }) = self.owners.get(fd, "a sync").cloned() {
            self.disk.fail_sync(number, &mut self.rng);
        }
    }

    /// The error, if changing the length of a file fails now.
    pub(crate) fn refuses_length(&mut self) -> Option<i32> {
        // Changing a length needs no room: it succeeds on a full disk.
        let fate = self.faults.next(OpKind::Resize, On::Disk, &mut self.rng);
        fate.errno.filter(|errno| *errno != libc::EINTR)
    }

    /// The error, if making a file fails now.
    pub(crate) fn refuses_file(&mut self) -> Option<i32> {
        self.faults
            .next(OpKind::Open, On::Pipe, &mut self.rng)
            .errno
            .filter(|errno| *errno != libc::EINTR)
    }

    pub(crate) fn add_file(&mut self, open: OpenFile) -> RawFd {
        self.owners.add(open)
    }
}

/// The kernel of a simulation, from outside; see [`Sim::io`](crate::Sim::io).
/// Clones are the same kernel.
#[derive(Clone)]
pub struct SimKernel(Arc<Mutex<State>>, Arc<Input>);

impl SimKernel {
    pub(crate) fn new(options: SimIo, seed: u64, clock: VirtualClock) -> SimKernel {
        // A random number generator of its own, so that i/o and schedules
        // change each other as little as possible.
        let rng = Rng::new(seed ^ 0x6b65_726e_656c);
        let state = State {
            clock,
            rng,
            faults: options.faults,
            owners: Owners::default(),
            disk: options
                .disk
                .map_or_else(LazyDisk::default, |saved| saved.into_disk().into()),
            wires: Wires::default(),
            sockets: Sockets::default(),
            network: Network::default(),
            messages: BTreeMap::new(),
            posted: 0,
            changed: Changes::default(),
            ops: OpTable::default(),
            submitted: 0,
            events: SimEvents::default(),
            waiting: ByNumber::default(),
            spare_rows: Vec::new(),
            lent: BTreeMap::new(),
            filled: None,
        };
        SimKernel(Arc::new(Mutex::new(state)), Input::typed())
    }

    /// Types on the simulation's standard input: `io::stdin()` reads it.
    pub fn type_in(&self, bytes: impl AsRef<[u8]>) {
        self.1.type_in(bytes.as_ref());
    }

    /// Ends the simulation's standard input, as Ctrl-D does.
    pub fn end_of_input(&self) {
        self.1.end();
    }

    pub(crate) fn input(&self) -> Arc<Input> {
        self.1.clone()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a file on the disk, and the directories it lies in.
    ///
    /// # Panics
    /// If there is a directory at that path, or a file on the way.
    #[track_caller]
    pub fn put(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let (path, bytes) = (path.as_ref(), bytes.as_ref());
        let mut state = self.state();
        let dirs: Vec<&Path> = path.ancestors().skip(1).collect();
        for dir in dirs.iter().rev() {
            let _ = state
                .disk
                .make_dir(dir.as_os_str().as_encoded_bytes(), 0o755);
        }
        let flags = libc::O_CREAT | libc::O_TRUNC | libc::O_RDWR;
        let put = state
            .disk
            .open(path.as_os_str().as_encoded_bytes(), flags, 0o644)
            .and_then(|file| {
                let now = state.clock.elapsed();
                let written = state.disk.write(file, 0, bytes, now);
                // As if the file had been there for long.
                state.disk.sync(file);
                state.disk.let_go(file);
                for dir in &dirs {
                    let dir = state.disk.find(dir.as_os_str().as_encoded_bytes());
                    dir.into_iter().for_each(|dir| state.disk.sync(dir));
                }
                written
            });
        if let Err(errno) = put {
            let error = std::io::Error::from_raw_os_error(errno);
            panic!("{} cannot be put on the disk: {error}", path.display());
        }
    }

    /// The contents of a file; none if there is no such file.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let path = path.as_ref().as_os_str().as_encoded_bytes();
        self.state().disk.get(path)
    }

    /// What the disk would have if the power went now: all data that was synced, by `sync_all`,
    /// `sync_data` or `write_then_sync`, and of unsynced data what the seed decides: each
    /// sector of 512 bytes is old or new, and the length is any between the old and the new; a
    /// file that was truncated and written again may also be as short as it was in between. A
    /// name is there if its directory was synced since; of later changes in that directory the
    /// first few are there, a rename wholly or not at all. This kernel goes on; another begins
    /// with [`SimIo::on_disk`].
    ///
    /// ```
    /// use kinfolk_runtime::fs::File;
    /// use kinfolk_testkit::{Sim, io::SimIo};
    ///
    /// let mut sim = Sim::seeded(7);
    /// sim.run(async {
    ///     let file = File::create("/tmp/log").await?;
    ///     file.write_all_at("kept", 0).await.0?;
    ///     file.sync_data().await?;
    ///     File::open("/tmp").await?.sync_all().await?; // it has the name
    ///     file.write_all_at(", or not", 4).await.0
    /// }).unwrap();
    /// let disk = sim.io().power_cut(1);
    /// sim.finish();
    ///
    /// let mut sim = Sim::builder(7).io(SimIo::new().on_disk(disk)).build();
    /// sim.run(async {
    ///     let file = File::open("/tmp/log").await?;
    ///     let (read, buf) = file.read_at(vec![0; 12], 0).await;
    ///     assert!(read? >= 4 && buf.starts_with(b"kept"));
    ///     Ok::<_, kinfolk_core::Error>(())
    /// }).unwrap();
    /// sim.finish();
    /// ```
    pub fn power_cut(&self, seed: u64) -> SavedDisk {
        SavedDisk::of(&self.state().disk, seed)
    }

    /// Sets how long data takes between these two addresses, either way;
    /// connecting takes twice as long. The latency applies to data sent from
    /// now on.
    ///
    /// [`machine_at`](super::machine_at) gives a part of a test an address of its own.
    pub fn latency(&self, one: IpAddr, other: IpAddr, latency: Duration) {
        self.state().network.set_latency((one, other), latency);
    }

    /// Cuts the network between these two addresses, both ways, until it is
    /// [healed](SimKernel::heal). No side gets an error: bytes wait and arrive
    /// afterwards, UDP messages are lost, a connect fails after two minutes of the
    /// simulation's time (`TimedOut`) unless the network is healed before.
    ///
    /// ```
    /// use kinfolk_core::{Error, timeout};
    /// use kinfolk_runtime::net::{TcpListener, TcpStream};
    /// use kinfolk_testkit::{Sim, io::machine_at};
    /// use std::{net::IpAddr, time::Duration};
    ///
    /// let (server, client) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    /// let mut sim = Sim::seeded(7);
    /// let net = sim.io();
    /// sim.run(async move {
    ///     let _listener = machine_at(server, async {
    ///         Ok::<_, Error>(TcpListener::bind("10.0.0.1:80").await?)
    ///     }).await?;
    ///     net.partition(server, client);
    ///     let second = Duration::from_secs(1);
    ///     let connect = || machine_at(client, TcpStream::connect("10.0.0.1:80"));
    ///     assert!(timeout(second, connect()).await.is_err());
    ///     net.heal(server, client);
    ///     assert!(timeout(second, connect()).await.is_ok());
    ///     Ok::<_, Error>(())
    /// }).unwrap();
    /// sim.finish();
    /// ```
    pub fn partition(&self, one: IpAddr, other: IpAddr) {
        self.state().cut(&[(one, other), (other, one)], true);
    }

    /// Cuts the network from one address to another, and leaves the way back, until it is
    /// [healed](SimKernel::heal): what `from` sends waits or is lost, as with a
    /// [partition](SimKernel::partition), and what `to` sends arrives. A connect needs both
    /// ways.
    ///
    /// ```
    /// use kinfolk_core::{Error, timeout};
    /// use kinfolk_runtime::net::{TcpListener, TcpStream};
    /// use kinfolk_testkit::{Sim, io::machine_at};
    /// use std::{net::IpAddr, time::Duration};
    ///
    /// let (server, client) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    /// let mut sim = Sim::seeded(7);
    /// let net = sim.io();
    /// sim.run(async move {
    ///     let listener = machine_at(server, TcpListener::bind("10.0.0.1:80")).await?;
    ///     let asks = machine_at(client, TcpStream::connect("10.0.0.1:80")).await?;
    ///     let (answers, _) = listener.accept().await?;
    ///     // The question arrives, and the answer does not.
    ///     net.partition_one_way(server, client);
    ///     asks.write_all("?").await.0?;
    ///     let (read, _) = answers.read_exact(vec![0; 1]).await;
    ///     read?;
    ///     answers.write_all("!").await.0?;
    ///     let answer = asks.read_exact(vec![0; 1]);
    ///     let answer = timeout(Duration::from_secs(9), async { Ok::<_, Error>(answer.await.0?) });
    ///     assert!(answer.await.is_err());
    ///     Ok::<_, Error>(())
    /// }).unwrap();
    /// sim.finish();
    /// ```
    pub fn partition_one_way(&self, from: IpAddr, to: IpAddr) {
        self.state().cut(&[(from, to)], true);
    }

    /// Heals the network between two addresses that were
    /// [cut off](SimKernel::partition) from each other, or one
    /// [from the other](SimKernel::partition_one_way): what waits arrives.
    pub fn heal(&self, one: IpAddr, other: IpAddr) {
        self.state().cut(&[(one, other), (other, one)], false);
    }

    /// The paths of all files.
    pub fn files(&self) -> Vec<String> {
        let files = self.state().disk.files();
        let words = files.iter().map(|path| String::from_utf8_lossy(path));
        words.map(String::from).collect()
    }

    /// Makes `fault` happen to the next operation of that kind. If there is
    /// none, [`Sim::finish`](crate::Sim::finish) panics.
    pub fn fault(&self, kind: OpKind, fault: Fault) {
        self.faults(kind, 1, fault);
    }

    /// Makes `fault` happen to each of the next `count` operations of that kind. If there is
    /// not even one, [`Sim::finish`](crate::Sim::finish) panics.
    pub fn faults(&self, kind: OpKind, count: u64, fault: Fault) {
        self.state().faults.script_many(kind, count, fault);
    }

    /// The open files, in words.
    pub fn open_files(&self) -> Vec<String> {
        self.state().owners.list()
    }

    /// How many operations were begun.
    pub fn submitted(&self) -> u64 {
        self.state().submitted
    }

    /// How many of them have completed.
    pub fn completed(&self) -> u64 {
        let state = self.state();
        state.submitted - state.ops.len() as u64
    }

    /// Panics if a program closed a file twice, used a file after its end,
    /// closed one that an operation used, or lent the same memory twice.
    #[track_caller]
    pub fn check(&self) {
        let wrong = self.state().owners.wrong().join("\n  ");
        assert!(
            wrong.is_empty(),
            "the simulated kernel was misused:\n  {wrong}"
        );
    }

    /// The scripted faults that have not happened, in words.
    pub(crate) fn never_came(&self) -> Vec<String> {
        self.state().faults.never_came()
    }

    /// Whether something happens by now.
    pub(crate) fn is_due(&self) -> bool {
        let state = self.state();
        state
            .next_at()
            .is_some_and(|at| at <= state.clock.elapsed())
    }

    /// When something happens next, for the loop of the simulation. What arrives by now
    /// does so here: the loop asks a driver only while operations are under way.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        let mut state = self.state();
        state.carry_out_arrivals();
        state.next_at()
    }
}

impl fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimKernel")
            .field("open", &state.owners.list().len())
            .field("under_way", &state.ops.len())
            .finish_non_exhaustive()
    }
}
