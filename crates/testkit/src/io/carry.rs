//! Carries out each request.

use std::os::fd::RawFd;
use std::time::Duration;

use kinfolk_runtime::io::request::{
    AcceptArgs, AcceptManyArgs, AllocateArgs, CloseArgs, ConnectArgs, MakeDirArgs, NopArgs,
    OpenArgs, PollArgs, ReadArgs, ReadVectoredArgs, RecvArgs, RecvManyArgs, RecvMsgArgs,
    RenameArgs, SendArgs, SendMsgArgs, ShutdownArgs, StatArgs, SyncArgs, SyncRangeArgs, UnlinkArgs,
    WriteArgs, WriteThenSyncArgs, WriteVectoredArgs,
};
use kinfolk_runtime::io::{BufferGroup, Offset, Request};
use socket2::Domain;

use super::addr::Addr;
use super::disk::Errno;
use super::faults::{Fate, On};
use super::kernel::{State, WaitKey, WaitKeys};
use super::linux::mode;
use super::memory::{self, FileFacts, Pieces};
use super::network::{self, AGAIN};
use super::owners::OpenFile;
use super::sockets::{Datagram, Pair, Sent, SimSocket, SocketId, SocketStage, Sockets, Target};
use super::wires::{Flown, Sort, WireId};

/// The result of a request.
pub(crate) enum Progress {
    /// Complete, with the number that a kernel would answer.
    Done(i32),
    /// It has to wait for one of these to change.
    Wait(WaitKeys),
    /// It is tried again after so long.
    Later(Duration),
}

/// The result of a request: the number that it answers, or what it waits for.
type StepResult = Result<Result<usize, Blocked>, Errno>;

/// What a request waits for.
enum Blocked {
    For(WaitKeys),
    Until(Duration),
}

fn done(answer: usize) -> StepResult {
    Ok(Ok(answer))
}

fn wait(key: WaitKey) -> StepResult {
    Ok(Err(Blocked::For([Some(key), None])))
}

/// What kind of thing is open.
pub(crate) fn kind_of(open: &OpenFile, sockets: &mut Sockets) -> On {
    match open {
        OpenFile::File { .. } => On::Disk,
        OpenFile::PipeReader(_) | OpenFile::PipeWriter(_) => On::Pipe,
        OpenFile::Socket(id) => {
            let socket = sockets.get(*id);
            match socket.stage {
                SocketStage::Messages { .. } if socket.domain == Domain::UNIX => On::LocalMessages,
                SocketStage::Messages { .. } => On::Datagrams,
                _ => On::Connection,
            }
        }
    }
}

impl State {
    /// Carries out a request that was begun at `began`, now.
    pub(crate) fn carry(&mut self, request: &Request, fate: Fate, began: Duration) -> Progress {
        match self.try_carry(request, fate, began) {
            Ok(Ok(answer)) => Progress::Done(i32::try_from(answer).unwrap_or(i32::MAX)),
            Ok(Err(Blocked::For(keys))) => Progress::Wait(keys),
            Ok(Err(Blocked::Until(at))) => Progress::Later(at.saturating_sub(self.clock.elapsed())),
            Err(errno) => Progress::Done(-errno),
        }
    }

    fn open_file(&mut self, fd: RawFd) -> Result<OpenFile, Errno> {
        self.owners
            .get(fd, "an operation")
            .cloned()
            .ok_or(libc::EBADF)
    }

    fn socket(&mut self, fd: RawFd) -> Result<SocketId, Errno> {
        match self.open_file(fd)? {
            OpenFile::Socket(id) => Ok(id),
            _ => Err(libc::ENOTSOCK),
        }
    }

    /// Long because it has an arm for each request; a request that needs more than a few
    /// lines has a function of its own.
    fn try_carry(&mut self, request: &Request, fate: Fate, began: Duration) -> StepResult {
        let short = fate.short;
        match *request {
            Request::Nop(NopArgs) => done(0),
            Request::Read(ReadArgs { fd, offset, .. })
            | Request::ReadVectored(ReadVectoredArgs { fd, offset, .. }) => {
                self.read(fd, offset, request, short, 0)
            }
            Request::Recv(RecvArgs { fd, flags, .. })
            | Request::RecvMsg(RecvMsgArgs { fd, flags, .. }) => {
                self.socket(fd)?;
                self.read(fd, Offset::Current, request, short, flags)
            }
            Request::RecvMany(RecvManyArgs { fd, group }) => {
                self.recv_many(fd, &memory::group(group), short)
            }
            Request::Write(WriteArgs { fd, offset, .. })
            | Request::WriteVectored(WriteVectoredArgs { fd, offset, .. })
            | Request::WriteThenSync(WriteThenSyncArgs { fd, offset, .. }) => {
                self.write(fd, offset, request, fate)
            }
            Request::Send(SendArgs { fd, .. }) | Request::SendMsg(SendMsgArgs { fd, .. }) => {
                self.socket(fd)?;
                self.write(fd, Offset::Current, request, fate)
            }
            Request::Sync(SyncArgs { fd, .. }) => match self.open_file(fd)? {
                OpenFile::File { number, .. } => {
                    self.disk.sync(number);
                    done(0)
                }
                _ => Err(libc::EINVAL),
            },
            // It does not change what a power cut leaves.
            Request::SyncRange(SyncRangeArgs { fd, .. }) => match self.open_file(fd)? {
                OpenFile::File { .. } => done(0),
                _ => Err(libc::EINVAL),
            },
            Request::Allocate(AllocateArgs { fd, mode, at, len }) => match self.open_file(fd)? {
                OpenFile::File { flags, .. } if flags & libc::O_ACCMODE == libc::O_RDONLY => {
                    Err(libc::EBADF)
                }
                OpenFile::File { .. } if fate.full => Err(libc::ENOSPC),
                OpenFile::File { .. } if len == 0 => Err(libc::EINVAL),
                OpenFile::File { number, .. } => {
                    self.disk.allocate(number, mode, at, len)?;
                    done(0)
                }
                _ => Err(libc::ESPIPE),
            },
            Request::Open(OpenArgs { path, flags, mode }) => {
                let path = memory::path(path);
                let number = self.disk.open(&path, flags, mode)?;
                let path = String::from_utf8_lossy(&path).into();
                let fd = self.add_file(OpenFile::File {
                    number,
                    at: 0,
                    flags,
                    path,
                    full: false,
                });
                done(fd as usize)
            }
            Request::Stat(StatArgs { fd, path, out, .. }) => {
                self.stat(fd, &memory::path(path), out)
            }
            Request::Rename(RenameArgs { from, to }) => {
                self.disk.rename(&memory::path(from), &memory::path(to))?;
                done(0)
            }
            Request::Unlink(UnlinkArgs { path, dir }) => {
                self.disk.unlink(&memory::path(path), dir)?;
                done(0)
            }
            Request::MakeDir(MakeDirArgs { path, mode }) => {
                self.disk.make_dir(&memory::path(path), mode)?;
                done(0)
            }
            Request::Accept(AcceptArgs { fd, .. }) | Request::AcceptMany(AcceptManyArgs { fd }) => {
                self.accept(fd, request, fate)
            }
            Request::Connect(ConnectArgs { fd, .. }) => self.connect(fd, request, began),
            Request::Shutdown(ShutdownArgs { fd, how }) => self.shut_down(fd, how),
            Request::Poll(PollArgs { fd, events }) => self.poll(fd, events),
            Request::Close(CloseArgs { fd }) => {
                self.close(fd);
                done(0)
            }
            _ => Err(libc::ENOSYS),
        }
    }

    /// How many bytes are read of those that are there: at least one, and fewer than
    /// all if the read must be short.
    fn portion_of(&mut self, there: usize, room: usize, short: bool) -> usize {
        match there {
            0 => room,
            there => self.portion(there.min(room), short),
        }
    }

    /// How many of `all` bytes are moved.
    fn portion(&mut self, all: usize, short: bool) -> usize {
        match short && all > 1 {
            true => 1 + self.rng.below(all - 1),
            false => all,
        }
    }

    fn read(
        &mut self,
        fd: RawFd,
        offset: Offset,
        request: &Request,
        short: bool,
        flags: i32,
    ) -> StepResult {
        let pieces = Pieces::of(request);
        let wire = match self.open_file(fd)? {
            OpenFile::File {
                number, at, flags, ..
            } => {
                if flags & libc::O_ACCMODE == libc::O_WRONLY {
                    return Err(libc::EBADF);
                }
                let from = match offset {
                    Offset::At(at) => at,
                    Offset::Current => at,
                };
                let there = self.disk.size(number).saturating_sub(from);
                let there = usize::try_from(there).unwrap_or(usize::MAX);
                let most = self.portion_of(there, pieces.len(), short);
                let bytes = self.disk.read(number, from, most)?;
                pieces.fill(&bytes);
                self.move_on(fd, offset, bytes.len());
                return done(bytes.len());
            }
            OpenFile::PipeWriter(_) => return Err(libc::EBADF),
            OpenFile::PipeReader(wire) => wire,
            OpenFile::Socket(id) => match &mut self.sockets.get(id).stage {
                SocketStage::Connected { input, .. } => *input,
                SocketStage::Messages { inbox, error, .. } => {
                    if let Some(errno) = error.take() {
                        return Err(errno);
                    }
                    let keep = flags & libc::MSG_PEEK != 0;
                    let first = match keep {
                        true => inbox.front().cloned(),
                        false => inbox.pop_front(),
                    };
                    let Some((from, bytes)) = first else {
                        return wait(WaitKey::Socket(id));
                    };
                    // There is room for an operation that waits to send.
                    self.changed.insert(WaitKey::Socket(id));
                    let fits = bytes.len().min(pieces.len());
                    pieces.fill(&bytes[..fits]);
                    memory::answer_source(request, &from);
                    memory::answer_message(request, fits < bytes.len());
                    return done(fits);
                }
                SocketStage::Fresh | SocketStage::Listening { .. } => return Err(libc::ENOTCONN),
            },
        };
        let keep = flags & libc::MSG_PEEK != 0;
        let most = self.portion_of(self.wires.waiting(wire), pieces.len(), short);
        let read = self
            .wires
            .read_to(wire, most, keep, |first, second| match second {
                [] => pieces.fill(first),
                _ => pieces.fill(&[first, second].concat()),
            });
        match read? {
            None => wait(WaitKey::Wire(wire)),
            Some(bytes) => {
                memory::answer_message(request, false);
                self.changed.insert(WaitKey::Wire(wire));
                done(bytes)
            }
        }
    }

    /// Receives into a buffer of a group. A buffer is taken when there is
    /// something to receive; the filled buffer is left in `filled`.
    fn recv_many(&mut self, fd: RawFd, group: &BufferGroup, short: bool) -> StepResult {
        let id = self.socket(fd)?;
        let SocketStage::Connected { input, .. } = self.sockets.get(id).stage else {
            return Err(libc::ENOTCONN);
        };
        let most = self.portion_of(self.wires.waiting(input), group.size() as usize, short);
        let bytes = match self.wires.read(input, most, true)? {
            None => return wait(WaitKey::Wire(input)),
            Some(bytes) if bytes.is_empty() => return done(0),
            Some(bytes) => bytes,
        };
        let Some(number) = group.take() else {
            return Err(libc::ENOBUFS);
        };
        Pieces::of_buffer(group, number).fill(&bytes);
        self.wires.read(input, bytes.len(), false)?;
        self.changed.insert(WaitKey::Wire(input));
        self.filled = Some(number);
        done(bytes.len())
    }

    /// Moves the offset of a file that is read or written at its current
    /// position.
    fn move_on(&mut self, fd: RawFd, offset: Offset, bytes: usize) {
        if offset == Offset::Current
            && let Some(OpenFile::File { at, .. }) = self.owners.get(fd, "an operation")
        {
            *at += bytes as u64;
        }
    }

    fn write(&mut self, fd: RawFd, offset: Offset, request: &Request, fate: Fate) -> StepResult {
        let pieces = Pieces::of(request);
        let mut most = self.portion(pieces.len(), fate.short);
        let (input, output) = match self.open_file(fd)? {
            OpenFile::File {
                number,
                at,
                flags,
                full,
                ..
            } => {
                if flags & libc::O_ACCMODE == libc::O_RDONLY {
                    return Err(libc::EBADF);
                }
                let to = match offset {
                    _ if flags & libc::O_APPEND != 0 => self.disk.size(number),
                    Offset::At(at) => at,
                    Offset::Current => at,
                };
                if fate.full {
                    // A part of it fits, and the next write fails; or nothing fits.
                    if most <= 1 || self.rng.below(2) == 0 {
                        return Err(libc::ENOSPC);
                    }
                    most = self.portion(most, true);
                }
                if full && !pieces.is_empty() {
                    self.set_full(fd, false);
                    return Err(libc::ENOSPC);
                }
                self.set_full(fd, fate.full);
                let bytes = pieces.bytes(most);
                let now = self.clock.elapsed();
                self.disk.write(number, to, &bytes, now)?;
                let all = bytes.len() == pieces.len();
                if all && matches!(request, Request::WriteThenSync(..)) {
                    self.disk.sync(number);
                }
                self.move_on(fd, offset, bytes.len());
                return done(bytes.len());
            }
            OpenFile::PipeReader(_) => return Err(libc::EBADF),
            OpenFile::PipeWriter(wire) => {
                // A signal may cut a large write short, never a small one.
                if pieces.len() <= libc::PIPE_BUF {
                    most = pieces.len();
                }
                return match self.wires.room_in_pipe(wire, most)? {
                    None => wait(WaitKey::Wire(wire)),
                    Some(room) => {
                        self.wires.write_to_pipe(wire, &pieces.bytes(room));
                        self.changed.insert(WaitKey::Wire(wire));
                        done(room)
                    }
                };
            }
            OpenFile::Socket(id) => match self.sockets.get(id).stage {
                SocketStage::Connected { input, output } => (input, output),
                SocketStage::Messages { .. } => {
                    let to = memory::target(request);
                    return self.send_message(id, to, pieces.bytes(pieces.len()), fate);
                }
                SocketStage::Fresh | SocketStage::Listening { .. } => return Err(libc::ENOTCONN),
            },
        };
        match self.wires.room(input, output, most)? {
            // The end of the connection is told there too.
            None => Ok(Err(Blocked::For([
                Some(WaitKey::Wire(output)),
                Some(WaitKey::Wire(input)),
            ]))),
            Some(0) => done(0),
            Some(room) => {
                self.fly(output, Flown::Bytes(pieces.bytes(room)));
                done(room)
            }
        }
    }

    fn set_full(&mut self, fd: RawFd, is: bool) {
        if let Some(OpenFile::File { full, .. }) = self.owners.get(fd, "an operation") {
            *full = is;
        }
    }

    /// Sends data along a stream, with the delay of its way.
    fn fly(&mut self, wire: WireId, flown: Flown) {
        let now = self.clock.elapsed();
        let at = self
            .network
            .delay(self.wires.path(wire))
            .map(|delay| now.saturating_add(delay));
        self.wires.send(wire, flown, (at, now), &mut self.changed);
        self.await_arrival(wire);
    }

    /// Data on its way has arrived, unless the way was cut meanwhile.
    pub(crate) fn land(&mut self, wire: WireId) {
        let now = self.clock.elapsed();
        if let Some(path) = self.wires.path(wire)
            && self.network.delay(Some(path)).is_none()
        {
            self.wires.delay(|other| other == path, None);
            return;
        }
        for back in self.wires.land(wire, now) {
            self.fly(back, Flown::Reset);
        }
        self.changed.insert(WaitKey::Wire(wire));
        self.await_arrival(wire);
    }

    /// The socket that an address leads to.
    fn named(&self, to: Addr) -> Result<Target, Errno> {
        match &to {
            Addr::Unix(path) if path.first().is_some_and(|first| *first != 0) => {
                Ok(Target::Named(self.disk.find(path)?))
            }
            _ => Ok(Target::At(to)),
        }
    }

    fn send_message(
        &mut self,
        id: SocketId,
        to: Option<Addr>,
        bytes: Vec<u8>,
        fate: Fate,
    ) -> StepResult {
        let (all, connected) = (bytes.len(), to.is_none());
        let target = to.map(|to| self.named(to)).transpose()?;
        let message = self.sockets.address(id, target, bytes)?;
        if let (Addr::Inet(_), Target::At(to)) = (&message.source, &message.target) {
            let path = network::path(&message.source, to);
            let (Some(way), false) = (self.network.delay(path), fate.lost) else {
                return done(all);
            };
            let delay = way + fate.overtaken.unwrap_or_default();
            for _ in 0..1 + usize::from(fate.doubled) {
                self.post(&message, delay);
            }
            return done(all);
        }
        match self.sockets.deliver(&message) {
            Sent::To(receiver) => {
                self.changed.insert(WaitKey::Socket(receiver));
                done(all)
            }
            Sent::Full(receiver) => wait(WaitKey::Socket(receiver)),
            Sent::ToNobody => {
                if connected {
                    self.sockets.disconnect(id);
                }
                Err(libc::ECONNREFUSED)
            }
        }
    }

    /// A message over the network has arrived.
    pub(crate) fn receive(&mut self, message: &Datagram) {
        match self.sockets.deliver(message) {
            Sent::To(receiver) | Sent::Full(receiver) => {
                self.changed.insert(WaitKey::Socket(receiver));
            }
            Sent::ToNobody => {
                self.sockets.refused(message);
                self.changed.insert(WaitKey::Socket(message.sender));
            }
        }
    }

    fn stat(
        &mut self,
        fd: RawFd,
        path: &[u8],
        out: *mut kinfolk_runtime::io::StatBuf,
    ) -> StepResult {
        let number = match path.is_empty() {
            false => self.disk.find(path)?,
            true => match self.open_file(fd)? {
                OpenFile::File { number, .. } => number,
                other => {
                    let kind = match other {
                        OpenFile::Socket(_) => mode::SOCKET,
                        _ => mode::FIFO,
                    };
                    let about = FileFacts {
                        mode: kind | 0o600,
                        links: 1,
                        number: 0,
                        size: 0,
                        changed: self.clock.elapsed(),
                    };
                    memory::answer_stat(out, &about);
                    return done(0);
                }
            },
        };
        let size = self.disk.size(number);
        let node = self.disk.node(number);
        let about = FileFacts {
            mode: node.full_mode(),
            links: node.links,
            number,
            size,
            changed: node.changed,
        };
        memory::answer_stat(out, &about);
        done(0)
    }

    fn accept(&mut self, fd: RawFd, request: &Request, fate: Fate) -> StepResult {
        let id = self.socket(fd)?;
        let domain = self.sockets.get(id).domain;
        let SocketStage::Listening { waiting, .. } = &mut self.sockets.get(id).stage else {
            return Err(libc::EINVAL);
        };
        let Some(pair) = waiting.pop_front() else {
            return wait(WaitKey::Socket(id));
        };
        // There is room for operations that wait to connect.
        self.changed.insert(WaitKey::Socket(id));
        if fate.aborted {
            self.abort(&pair);
            return Err(libc::ECONNABORTED);
        }
        memory::answer_source(request, &pair.peer);
        let machine = self.sockets.get(id).machine;
        let accepted = self.sockets.add(SimSocket {
            domain,
            stage: SocketStage::Connected {
                input: pair.input,
                output: pair.output,
            },
            local: Some(pair.local),
            peer: Some(pair.peer),
            named: None,
            machine,
        });
        done(self.add_file(OpenFile::Socket(accepted)) as usize)
    }

    fn connect(&mut self, fd: RawFd, request: &Request, began: Duration) -> StepResult {
        let id = self.socket(fd)?;
        let to = memory::target(request).ok_or(libc::EAFNOSUPPORT)?;
        match &mut self.sockets.get(id).stage {
            SocketStage::Fresh => {}
            SocketStage::Messages { .. } => {
                let to = match self.named(to.clone())? {
                    Target::At(_) => to,
                    target => {
                        let receiver = self.sockets.receiver(&target);
                        self.sockets.local(receiver.ok_or(libc::ECONNREFUSED)?)
                    }
                };
                if let SocketStage::Messages { to: connected, .. } = &mut self.sockets.get(id).stage
                {
                    *connected = Some(to.clone());
                }
                self.sockets.get(id).peer = Some(to);
                self.sockets.bind_any(id);
                return done(0);
            }
            SocketStage::Connected { .. } => return Err(libc::EISCONN),
            SocketStage::Listening { .. } => return Err(libc::EOPNOTSUPP),
        }
        let target = self.named(to.clone())?;
        let local = self.sockets.bind_any(id);
        let path = network::path(&local, &to);
        let now = self.clock.elapsed();
        match self.network.round(path) {
            None if now >= began + network::CONNECTING => return Err(libc::ETIMEDOUT),
            None => return Ok(Err(Blocked::Until(now + AGAIN))),
            // The time there and back.
            Some(round) if now < began.saturating_add(round) => {
                return Ok(Err(Blocked::Until(began.saturating_add(round))));
            }
            Some(_) => {}
        }
        let listener = match target {
            Target::At(to) => self.sockets.listener(&to),
            Target::Named(name) => self.sockets.listener_named(name),
        };
        let listener = listener.ok_or(libc::ECONNREFUSED)?;
        let peer = match (self.sockets.local(listener), &to) {
            // The socket listens at every address, and was reached at one.
            (Addr::Inet(own), Addr::Inet(_)) if own.ip().is_unspecified() => to.clone(),
            (own, _) => own,
        };
        let SocketStage::Listening { waiting, most } = &mut self.sockets.get(listener).stage else {
            return Err(libc::ECONNREFUSED);
        };
        if waiting.len() >= *most {
            return wait(WaitKey::Socket(listener));
        }
        let sort = if path.is_some() {
            Sort::Tcp
        } else {
            Sort::Local
        };
        let (to_it, from_it) = self.wires.connection(sort, path);
        waiting.push_back(Pair {
            input: to_it,
            output: from_it,
            local: peer.clone(),
            peer: local,
        });
        self.changed.insert(WaitKey::Socket(listener));
        let socket = self.sockets.get(id);
        socket.peer = Some(peer);
        socket.stage = SocketStage::Connected {
            input: from_it,
            output: to_it,
        };
        done(0)
    }

    fn shut_down(&mut self, fd: RawFd, how: i32) -> StepResult {
        let id = self.socket(fd)?;
        let SocketStage::Connected { input, output } = self.sockets.get(id).stage else {
            return Err(libc::ENOTCONN);
        };
        if self.wires.is_dead(input) {
            return Err(libc::ENOTCONN);
        }
        if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
            self.wires.stop_listening(input);
            self.changed.insert(WaitKey::Wire(input));
        }
        if (how == libc::SHUT_WR || how == libc::SHUT_RDWR) && self.wires.shut(output) {
            self.fly(output, Flown::End);
        }
        done(0)
    }

    fn poll(&mut self, fd: RawFd, events: u32) -> StepResult {
        let wants = |flag: i16| events & flag as u32 != 0;
        let mut ready = 0_i16;
        let mut keys = [None; 2];
        let (input, output): (Option<WireId>, Option<WireId>) = match self.open_file(fd)? {
            OpenFile::File { .. } => {
                return done((events as i16 & (libc::POLLIN | libc::POLLOUT)) as usize);
            }
            OpenFile::PipeReader(wire) => (Some(wire), None),
            OpenFile::PipeWriter(wire) => (None, Some(wire)),
            OpenFile::Socket(id) => match &self.sockets.get(id).stage {
                SocketStage::Fresh => return done((libc::POLLOUT | libc::POLLHUP) as usize),
                SocketStage::Connected { input, output } => (Some(*input), Some(*output)),
                SocketStage::Listening { waiting, .. } => {
                    if !waiting.is_empty() {
                        ready |= libc::POLLIN;
                    }
                    keys[0] = Some(WaitKey::Socket(id));
                    (None, None)
                }
                SocketStage::Messages { inbox, error, .. } => {
                    if !inbox.is_empty() || error.is_some() {
                        ready |= libc::POLLIN;
                    }
                    ready |= libc::POLLOUT;
                    keys[0] = Some(WaitKey::Socket(id));
                    (None, None)
                }
            },
        };
        if let Some(input) = input {
            if self.wires.is_readable(input) {
                ready |= libc::POLLIN;
            }
            if self.wires.is_over(input) {
                ready |= libc::POLLHUP;
            }
            keys[0] = Some(WaitKey::Wire(input));
        }
        if let Some(output) = output {
            if self.wires.is_writable(output) {
                ready |= libc::POLLOUT;
            }
            keys[1] = Some(WaitKey::Wire(output));
        }
        let always = ready & libc::POLLHUP;
        let asked = (if wants(libc::POLLIN) { libc::POLLIN } else { 0 })
            | (if wants(libc::POLLOUT) {
                libc::POLLOUT
            } else {
                0
            });
        match ready & asked | always {
            0 => Ok(Err(Blocked::For(keys))),
            ready => done(ready as usize),
        }
    }

    /// Closes a file, and wakes the operations that wait for what its end changes.
    pub(crate) fn close(&mut self, fd: RawFd) {
        match self.owners.remove(fd) {
            None => {}
            Some(OpenFile::File { number, .. }) => self.disk.let_go(number),
            Some(OpenFile::PipeReader(wire)) => {
                self.wires.close_reader(wire);
                self.changed.insert(WaitKey::Wire(wire));
            }
            Some(OpenFile::PipeWriter(wire)) => {
                self.wires.close_writer(wire);
                self.changed.insert(WaitKey::Wire(wire));
            }
            Some(OpenFile::Socket(id)) => {
                self.changed.insert(WaitKey::Socket(id));
                match self.sockets.remove(id).map(|socket| socket.stage) {
                    Some(SocketStage::Connected { input, output }) => self.hang_up(input, output),
                    Some(SocketStage::Listening { waiting, .. }) => {
                        waiting.iter().for_each(|pair| self.abort(pair));
                    }
                    _ => {}
                }
            }
        }
    }

    /// One side of a connection is gone. If it left data unread the other side
    /// gets a reset, once it has read what was sent before.
    fn hang_up(&mut self, input: WireId, output: WireId) {
        let dead = self.wires.is_dead(input);
        let unread = self.wires.waiting(input) > 0;
        match (self.wires.sort(output), unread) {
            (Sort::Tcp, _) if dead => {}
            (Sort::Tcp, true) => self.fly(output, Flown::Reset),
            (Sort::Tcp, false) => {
                if self.wires.shut(output) {
                    self.fly(output, Flown::End);
                }
            }
            (_, true) => self.wires.tell(output, libc::ECONNRESET),
            (_, false) => {}
        }
        self.wires.close_reader(input);
        self.wires.close_writer(output);
        self.changed
            .extend([WaitKey::Wire(input), WaitKey::Wire(output)]);
    }

    /// A connection that was not accepted ends.
    fn abort(&mut self, pair: &Pair) {
        match self.wires.sort(pair.output) {
            Sort::Tcp => self.fly(pair.output, Flown::Reset),
            _ => self.wires.tell(pair.output, libc::ECONNRESET),
        }
        self.wires.close_reader(pair.input);
        self.wires.close_writer(pair.output);
        let wires = [pair.input, pair.output];
        self.changed.extend(wires.map(WaitKey::Wire));
    }

    /// A connection breaks, and one side has just got the error.
    pub(crate) fn break_off(&mut self, id: SocketId) {
        let SocketStage::Connected { input, output } = self.sockets.get(id).stage else {
            return;
        };
        let kept = self.wires.waiting(output);
        let kept = self.rng.below(kept + 1);
        self.wires.break_off(input, output, kept);
        self.fly(output, Flown::Reset);
        self.changed.insert(WaitKey::Wire(input));
    }
}
