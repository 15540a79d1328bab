//! What each request does.

use std::os::fd::RawFd;

use kinfolk_runtime::io::{Place, Request, Shelf};

use super::addr::Addr;
use super::disk::Errno;
use super::faults::On;
use super::kernel::{Key, State};
use super::memory::{self, About, Pieces};
use super::owners::Open;
use super::sockets::{Pair, Socket, SocketId, Sockets, Stage};
use super::wires::Wire;

/// What came of a request.
pub(crate) enum Carried {
    /// As kernels answer.
    Done(i32),
    /// It has to wait for one of these to change.
    Wait(Vec<Key>),
}

/// What a request does: the number it answers, or the keys it waits for.
type Step = Result<Result<usize, Vec<Key>>, Errno>;

fn done(answer: usize) -> Step {
    Ok(Ok(answer))
}

fn wait(key: Key) -> Step {
    Ok(Err(vec![key]))
}

/// The file that a request works on.
pub(crate) fn file_of(request: &Request) -> Option<RawFd> {
    match *request {
        Request::Read { fd, .. }
        | Request::Write { fd, .. }
        | Request::Sync { fd, .. }
        | Request::ReadVectored { fd, .. }
        | Request::WriteVectored { fd, .. }
        | Request::WriteThenSync { fd, .. }
        | Request::SyncRange { fd, .. }
        | Request::Allocate { fd, .. }
        | Request::Accept { fd, .. }
        | Request::AcceptMany { fd }
        | Request::Connect { fd, .. }
        | Request::Recv { fd, .. }
        | Request::RecvMany { fd, .. }
        | Request::Send { fd, .. }
        | Request::RecvMsg { fd, .. }
        | Request::SendMsg { fd, .. }
        | Request::Shutdown { fd, .. }
        | Request::Poll { fd, .. }
        | Request::Close { fd } => Some(fd),
        Request::Stat { fd, .. } if fd >= 0 => Some(fd),
        _ => None,
    }
}

/// What kind of thing is open.
pub(crate) fn kind_of(open: &Open, sockets: &mut Sockets) -> On {
    match open {
        Open::File { .. } => On::Disk,
        Open::PipeReader(_) | Open::PipeWriter(_) => On::Pipe,
        Open::Socket(id) => match sockets.get(*id).stage {
            Stage::Messages { .. } => On::Datagrams,
            _ => On::Connection,
        },
    }
}

impl State {
    /// Carries a request out, now.
    pub(crate) fn carry(&mut self, request: &Request, short: bool) -> Carried {
        match self.try_carry(request, short) {
            Ok(Ok(answer)) => Carried::Done(i32::try_from(answer).unwrap_or(i32::MAX)),
            Ok(Err(keys)) => Carried::Wait(keys),
            Err(errno) => Carried::Done(-errno),
        }
    }

    fn open_file(&mut self, fd: RawFd) -> Result<Open, Errno> {
        self.owners
            .get(fd, "an operation")
            .cloned()
            .ok_or(libc::EBADF)
    }

    fn socket(&mut self, fd: RawFd) -> Result<SocketId, Errno> {
        match self.open_file(fd)? {
            Open::Socket(id) => Ok(id),
            _ => Err(libc::ENOTSOCK),
        }
    }

    fn try_carry(&mut self, request: &Request, short: bool) -> Step {
        match *request {
            Request::Nop => done(0),
            Request::Read { fd, place, .. } | Request::ReadVectored { fd, place, .. } => {
                self.read(fd, place, request, short, 0)
            }
            Request::Recv { fd, flags, .. } | Request::RecvMsg { fd, flags, .. } => {
                self.socket(fd)?;
                self.read(fd, Place::Here, request, short, flags)
            }
            Request::RecvMany { fd, shelf } => self.recv_many(fd, &memory::shelf(shelf), short),
            Request::Write { fd, place, .. }
            | Request::WriteVectored { fd, place, .. }
            | Request::WriteThenSync { fd, place, .. } => self.write(fd, place, request, short),
            Request::Send { fd, .. } | Request::SendMsg { fd, .. } => {
                self.socket(fd)?;
                self.write(fd, Place::Here, request, short)
            }
            Request::Sync { fd, .. } => match self.open_file(fd)? {
                Open::File { number, .. } => {
                    self.disk.sync(number);
                    done(0)
                }
                _ => Err(libc::EINVAL),
            },
            // It says nothing about what a power cut leaves.
            Request::SyncRange { fd, .. } => match self.open_file(fd)? {
                Open::File { .. } => done(0),
                _ => Err(libc::EINVAL),
            },
            Request::Allocate { fd, mode, at, len } => match self.open_file(fd)? {
                Open::File { number, .. } => {
                    self.disk.allocate(number, mode, at, len)?;
                    done(0)
                }
                _ => Err(libc::ESPIPE),
            },
            Request::Open { path, flags, mode } => {
                let path = memory::path(path);
                let number = self.disk.open(&path, flags, mode)?;
                let path = String::from_utf8_lossy(&path).into_owned();
                let fd = self.add_file(Open::File {
                    number,
                    at: 0,
                    flags,
                    path,
                });
                done(fd as usize)
            }
            Request::Stat { fd, path, out, .. } => self.stat(fd, &memory::path(path), out),
            Request::Rename { from, to } => {
                self.disk.rename(&memory::path(from), &memory::path(to))?;
                done(0)
            }
            Request::Unlink { path, dir } => {
                self.disk.unlink(&memory::path(path), dir)?;
                done(0)
            }
            Request::MakeDir { path, mode } => {
                self.disk.make_dir(&memory::path(path), mode)?;
                done(0)
            }
            Request::Accept { fd, .. } | Request::AcceptMany { fd } => self.accept(fd, request),
            Request::Connect { fd, .. } => self.connect(fd, request),
            Request::Shutdown { fd, how } => self.shut_down(fd, how),
            Request::Poll { fd, events } => self.poll(fd, events),
            Request::Close { fd } => {
                self.close(fd);
                done(0)
            }
            _ => Err(libc::ENOSYS),
        }
    }

    /// How many bytes of so many are moved.
    fn portion(&mut self, all: usize, short: bool) -> usize {
        match short && all > 1 {
            true => 1 + self.rng.below(all - 1),
            false => all,
        }
    }

    fn read(
        &mut self,
        fd: RawFd,
        place: Place,
        request: &Request,
        short: bool,
        flags: i32,
    ) -> Step {
        let pieces = Pieces::of(request);
        let most = self.portion(pieces.len(), short);
        let wire = match self.open_file(fd)? {
            Open::File {
                number, at, flags, ..
            } => {
                if flags & libc::O_ACCMODE == libc::O_WRONLY {
                    return Err(libc::EBADF);
                }
                let from = match place {
                    Place::At(at) => at,
                    Place::Here => at,
                };
                let bytes = self.disk.read(number, from, most)?;
                pieces.fill(&bytes);
                self.move_on(fd, place, bytes.len());
                return done(bytes.len());
            }
            Open::PipeWriter(_) => return Err(libc::EBADF),
            Open::PipeReader(wire) => wire,
            Open::Socket(id) => match &mut self.sockets.get(id).stage {
                Stage::Connected { input, .. } => *input,
                Stage::Messages { inbox, .. } => {
                    let keep = flags & libc::MSG_PEEK != 0;
                    let first = match keep {
                        true => inbox.front().cloned(),
                        false => inbox.pop_front(),
                    };
                    let Some((from, bytes)) = first else {
                        return wait(Key::Socket(id));
                    };
                    let fits = bytes.len().min(pieces.len());
                    pieces.fill(&bytes[..fits]);
                    memory::answer_source(request, &from);
                    memory::answer_message(request, fits < bytes.len());
                    return done(fits);
                }
                Stage::Fresh | Stage::Listening { .. } => return Err(libc::ENOTCONN),
            },
        };
        let keep = flags & libc::MSG_PEEK != 0;
        match self.wires.read(wire, most, keep)? {
            None => wait(Key::Wire(wire)),
            Some(bytes) => {
                pieces.fill(&bytes);
                memory::answer_message(request, false);
                self.changed.insert(Key::Wire(wire));
                done(bytes.len())
            }
        }
    }

    /// Receives into a buffer of a shelf. One is taken when there is something
    /// to receive; what is filled is left in `filled`.
    fn recv_many(&mut self, fd: RawFd, shelf: &Shelf, short: bool) -> Step {
        let id = self.socket(fd)?;
        let Stage::Connected { input, .. } = self.sockets.get(id).stage else {
            return Err(libc::ENOTCONN);
        };
        let most = self.portion(shelf.size() as usize, short);
        let bytes = match self.wires.read(input, most, true)? {
            None => return wait(Key::Wire(input)),
            Some(bytes) if bytes.is_empty() => return done(0),
            Some(bytes) => bytes,
        };
        let Some(number) = shelf.take() else {
            return Err(libc::ENOBUFS);
        };
        Pieces::of_buffer(shelf, number).fill(&bytes);
        self.wires.read(input, bytes.len(), false)?;
        self.changed.insert(Key::Wire(input));
        self.filled = Some(number);
        done(bytes.len())
    }

    /// The place in a file that is read or written where it stands moves on.
    fn move_on(&mut self, fd: RawFd, place: Place, bytes: usize) {
        if place == Place::Here
            && let Some(Open::File { at, .. }) = self.owners.get(fd, "an operation")
        {
            *at += bytes as u64;
        }
    }

    fn write(&mut self, fd: RawFd, place: Place, request: &Request, short: bool) -> Step {
        let pieces = Pieces::of(request);
        let most = self.portion(pieces.len(), short);
        let wire = match self.open_file(fd)? {
            Open::File {
                number, at, flags, ..
            } => {
                if flags & libc::O_ACCMODE == libc::O_RDONLY {
                    return Err(libc::EBADF);
                }
                let to = match place {
                    _ if flags & libc::O_APPEND != 0 => self.disk.size(number),
                    Place::At(at) => at,
                    Place::Here => at,
                };
                let bytes = pieces.bytes(most);
                let now = self.clock.elapsed();
                self.disk.write(number, to, &bytes, now)?;
                let all = bytes.len() == pieces.len();
                if all && matches!(request, Request::WriteThenSync { .. }) {
                    self.disk.sync(number);
                }
                self.move_on(fd, place, bytes.len());
                return done(bytes.len());
            }
            Open::PipeReader(_) => return Err(libc::EBADF),
            Open::PipeWriter(wire) => wire,
            Open::Socket(id) => match self.sockets.get(id).stage {
                Stage::Connected { output, .. } => output,
                Stage::Messages { .. } => {
                    let (all, to) = (pieces.len(), memory::target(request));
                    if let Some(receiver) = self.sockets.send(id, to, pieces.bytes(all))? {
                        self.changed.insert(Key::Socket(receiver));
                    }
                    return done(all);
                }
                Stage::Fresh | Stage::Listening { .. } => return Err(libc::ENOTCONN),
            },
        };
        match self.wires.room(wire)? {
            None => wait(Key::Wire(wire)),
            Some(room) => {
                let bytes = pieces.bytes(most.min(room));
                self.wires.write(wire, &bytes);
                self.changed.insert(Key::Wire(wire));
                done(bytes.len())
            }
        }
    }

    fn stat(&mut self, fd: RawFd, path: &[u8], out: *mut kinfolk_runtime::io::StatBuf) -> Step {
        let number = match path.is_empty() {
            false => self.disk.find(path)?,
            true => match self.open_file(fd)? {
                Open::File { number, .. } => number,
                other => {
                    let mode = match other {
                        Open::Socket(_) => libc::S_IFSOCK,
                        _ => libc::S_IFIFO,
                    };
                    let about = About {
                        mode: mode | 0o600,
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
        let about = About {
            mode: node.full_mode(),
            links: node.links,
            number,
            size,
            changed: node.changed,
        };
        memory::answer_stat(out, &about);
        done(0)
    }

    fn accept(&mut self, fd: RawFd, request: &Request) -> Step {
        let id = self.socket(fd)?;
        let domain = self.sockets.get(id).domain;
        let Stage::Listening { waiting, .. } = &mut self.sockets.get(id).stage else {
            return Err(libc::EINVAL);
        };
        let Some(pair) = waiting.pop_front() else {
            return wait(Key::Socket(id));
        };
        memory::answer_source(request, &pair.peer);
        // There is room for those who wait to connect.
        self.changed.insert(Key::Socket(id));
        let accepted = self.sockets.add(Socket {
            domain,
            stage: Stage::Connected {
                input: pair.input,
                output: pair.output,
            },
            local: Some(pair.local),
            peer: Some(pair.peer),
        });
        done(self.add_file(Open::Socket(accepted)) as usize)
    }

    fn connect(&mut self, fd: RawFd, request: &Request) -> Step {
        let id = self.socket(fd)?;
        let to = memory::target(request).ok_or(libc::EAFNOSUPPORT)?;
        match &mut self.sockets.get(id).stage {
            Stage::Fresh => {}
            Stage::Messages { to: connected, .. } => {
                *connected = Some(to.clone());
                self.sockets.get(id).peer = Some(to);
                self.sockets.bind_any(id);
                return done(0);
            }
            Stage::Connected { .. } => return Err(libc::EISCONN),
            Stage::Listening { .. } => return Err(libc::EOPNOTSUPP),
        }
        if let Addr::Unix(path) = &to
            && path.first().is_some_and(|first| *first != 0)
        {
            // Its name may be gone although it still listens.
            self.disk.find(path)?;
        }
        let listener = self.sockets.listener(&to).ok_or(libc::ECONNREFUSED)?;
        let local = self.sockets.bind_any(id);
        let peer = match (self.sockets.local(listener), &to) {
            // It listens everywhere, and was reached at one address.
            (Addr::Inet(own), Addr::Inet(_)) if own.ip().is_unspecified() => to.clone(),
            (own, _) => own,
        };
        let Stage::Listening { waiting, most } = &mut self.sockets.get(listener).stage else {
            return Err(libc::ECONNREFUSED);
        };
        if waiting.len() >= *most {
            return wait(Key::Socket(listener));
        }
        let (to_it, from_it) = (self.wires.make(), self.wires.make());
        waiting.push_back(Pair {
            input: to_it,
            output: from_it,
            local: peer.clone(),
            peer: local,
        });
        self.changed.insert(Key::Socket(listener));
        let socket = self.sockets.get(id);
        socket.peer = Some(peer);
        socket.stage = Stage::Connected {
            input: from_it,
            output: to_it,
        };
        done(0)
    }

    fn shut_down(&mut self, fd: RawFd, how: i32) -> Step {
        let id = self.socket(fd)?;
        let Stage::Connected { input, output } = self.sockets.get(id).stage else {
            return Err(libc::ENOTCONN);
        };
        if how == libc::SHUT_WR || how == libc::SHUT_RDWR {
            self.wires.end(output);
            self.changed.insert(Key::Wire(output));
        }
        if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
            self.wires.end(input);
            self.changed.insert(Key::Wire(input));
        }
        done(0)
    }

    fn poll(&mut self, fd: RawFd, events: u32) -> Step {
        let wants = |flag: i16| events & flag as u32 != 0;
        let mut ready = 0_i16;
        let mut keys = Vec::new();
        let (input, output): (Option<Wire>, Option<Wire>) = match self.open_file(fd)? {
            Open::File { .. } => {
                return done((events as i16 & (libc::POLLIN | libc::POLLOUT)) as usize);
            }
            Open::PipeReader(wire) => (Some(wire), None),
            Open::PipeWriter(wire) => (None, Some(wire)),
            Open::Socket(id) => match &self.sockets.get(id).stage {
                Stage::Fresh => return done((libc::POLLOUT | libc::POLLHUP) as usize),
                Stage::Connected { input, output } => (Some(*input), Some(*output)),
                Stage::Listening { waiting, .. } => {
                    if !waiting.is_empty() {
                        ready |= libc::POLLIN;
                    }
                    keys.push(Key::Socket(id));
                    (None, None)
                }
                Stage::Messages { inbox, .. } => {
                    if !inbox.is_empty() {
                        ready |= libc::POLLIN;
                    }
                    ready |= libc::POLLOUT;
                    keys.push(Key::Socket(id));
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
            keys.push(Key::Wire(input));
        }
        if let Some(output) = output {
            if self.wires.is_writable(output) {
                ready |= libc::POLLOUT;
            }
            keys.push(Key::Wire(output));
        }
        let always = ready & libc::POLLHUP;
        let asked = (if wants(libc::POLLIN) { libc::POLLIN } else { 0 })
            | (if wants(libc::POLLOUT) {
                libc::POLLOUT
            } else {
                0
            });
        match ready & asked | always {
            0 => Ok(Err(keys)),
            ready => done(ready as usize),
        }
    }

    /// Closes a file, and tells whoever waits for what its end changes.
    pub(crate) fn close(&mut self, fd: RawFd) {
        match self.owners.remove(fd) {
            None => {}
            Some(Open::File { number, .. }) => self.disk.let_go(number),
            Some(Open::PipeReader(wire)) => {
                self.wires.turn_deaf(wire);
                self.changed.insert(Key::Wire(wire));
            }
            Some(Open::PipeWriter(wire)) => {
                self.wires.end(wire);
                self.changed.insert(Key::Wire(wire));
            }
            Some(Open::Socket(id)) => {
                self.changed.insert(Key::Socket(id));
                match self.sockets.remove(id).map(|socket| socket.stage) {
                    Some(Stage::Connected { input, output }) => self.hang_up(input, output),
                    Some(Stage::Listening { waiting, .. }) => {
                        for pair in waiting {
                            self.wires.reset(pair.output);
                            self.hang_up(pair.input, pair.output);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// One side of a connection is gone. If it left something unread the other
    /// side hears of it.
    fn hang_up(&mut self, input: Wire, output: Wire) {
        if self.wires.turn_deaf(input) {
            self.wires.reset(output);
        }
        self.wires.end(output);
        self.changed.extend([Key::Wire(input), Key::Wire(output)]);
    }
}
