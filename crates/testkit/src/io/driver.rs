//! The kernel as a driver and as a system.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use kinfolk_runtime::io::driver::{Answer, Driver, Notifier, OpId, WaitMode};
use kinfolk_runtime::io::{Input, Request, SocketOption, System};
use socket2::{Domain, Protocol, SockAddr, Type};

use super::addr::Addr;
use super::disk::Errno;
use super::kernel::{SimKernel, State, WaitKey};
use super::network::machine;
use super::owners::OpenFile;
use super::sockets::{SimSocket, SocketId, SocketStage};
use super::wires::Sort;

pub(crate) struct SimDriver(pub(crate) SimKernel);

/// No thread sleeps in a simulated driver.
struct Silent;

impl Notifier for Silent {
    fn notify(&self) {}
}

// SAFETY: each submission is collected once, after the last touch of its memory,
// with no more bytes than requested.
unsafe impl Driver for SimDriver {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        self.0.state().submit(id, *request);
    }

    fn cancel(&mut self, id: OpId) {
        self.0.state().cancel(id);
    }

    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
        let mut state = self.0.state();
        state.collect(answers);
        // A driver that waits lets virtual time pass.
        while !matches!(wait, WaitMode::Peek | WaitMode::No)
            && answers.is_empty()
            && let Some(at) = state.next_at()
        {
            state.clock.move_to(at);
            state.collect(answers);
        }
        Ok(())
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(Silent)
    }

    fn wants_nonblocking(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "simulation"
    }
}

fn failed(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl SimKernel {
    /// A file is about to be made.
    fn making(&self) -> io::Result<std::sync::MutexGuard<'_, State>> {
        let mut state = self.state();
        match state.refuses_file() {
            Some(errno) => Err(failed(errno)),
            None => Ok(state),
        }
    }

    fn with_socket<R>(
        &self,
        fd: RawFd,
        what: &str,
        f: impl FnOnce(&mut State, SocketId) -> Result<R, Errno>,
    ) -> io::Result<R> {
        let mut state = self.state();
        let id = match state.owners.get(fd, what) {
            Some(OpenFile::Socket(id)) => *id,
            Some(_) => return Err(failed(libc::ENOTSOCK)),
            None => return Err(failed(libc::EBADF)),
        };
        let answer = f(&mut state, id).map_err(failed);
        state.tell_changed();
        answer
    }
}

impl System for SimKernel {
    fn stdin(&self) -> Option<Arc<Input>> {
        Some(self.input())
    }

    fn close(&self, fd: RawFd) {
        let mut state = self.state();
        state.close(fd);
        state.tell_changed();
    }

    fn pipe(&self, _nonblocking: bool) -> io::Result<(RawFd, RawFd)> {
        let mut state = self.making()?;
        let wire = state.wires.pipe();
        Ok((
            state.add_file(OpenFile::PipeReader(wire)),
            state.add_file(OpenFile::PipeWriter(wire)),
        ))
    }

    fn socket(
        &self,
        domain: Domain,
        kind: Type,
        _protocol: Option<Protocol>,
        _nonblocking: bool,
    ) -> io::Result<RawFd> {
        let mut state = self.making()?;
        let id = state.sockets.make(domain, kind, machine());
        Ok(state.add_file(OpenFile::Socket(id)))
    }

    fn socket_pair(&self, kind: Type, _nonblocking: bool) -> io::Result<(RawFd, RawFd)> {
        let mut state = self.making()?;
        let (there, back) = state.wires.connection(Sort::Local, None);
        let names = [there, back].map(|n| Addr::Unix(format!("\0pair {n}").into_bytes()));
        let [one, two] = [0, 1].map(|side| {
            let messages = kind == Type::DGRAM;
            let (own, other) = (names[side].clone(), names[1 - side].clone());
            let stage = match messages {
                true => SocketStage::Messages {
                    inbox: VecDeque::new(),
                    to: Some(other),
                    error: None,
                },
                false => SocketStage::Connected {
                    input: [there, back][side],
                    output: [there, back][1 - side],
                },
            };
            let id = state.sockets.add(SimSocket {
                domain: Domain::UNIX,
                stage,
                local: messages.then_some(own),
                peer: None,
                named: None,
                machine: None,
            });
            state.add_file(OpenFile::Socket(id))
        });
        Ok((one, two))
    }

    fn bind(&self, fd: RawFd, addr: &SockAddr) -> io::Result<()> {
        self.with_socket(fd, "bind", |state, id| {
            let addr = Addr::from_system(addr).ok_or(libc::EAFNOSUPPORT)?;
            match &addr {
                Addr::Unix(path) if path.first().is_some_and(|first| *first != 0) => {
                    // The disk knows whether the name is taken: a socket may
                    // still listen under a name that it has lost.
                    let named = state.disk.name_socket(path)?;
                    let socket = state.sockets.get(id);
                    (socket.local, socket.named) = (Some(addr), Some(named));
                    Ok(())
                }
                _ => state.sockets.bind(id, addr),
            }
        })
    }

    fn listen(&self, fd: RawFd, backlog: i32) -> io::Result<()> {
        self.with_socket(fd, "listen", |state, id| {
            state.sockets.bind_any(id);
            let socket = state.sockets.get(id);
            match socket.stage {
                SocketStage::Fresh => {
                    socket.stage = SocketStage::Listening {
                        waiting: VecDeque::new(),
                        most: usize::try_from(backlog).unwrap_or(0).max(1),
                    };
                    Ok(())
                }
                SocketStage::Listening { .. } => Ok(()),
                _ => Err(libc::EOPNOTSUPP),
            }
        })
    }

    fn local_addr(&self, fd: RawFd) -> io::Result<SockAddr> {
        self.with_socket(fd, "local_addr", |state, id| {
            Ok(state.sockets.local(id).to_system())
        })
    }

    fn peer_addr(&self, fd: RawFd) -> io::Result<SockAddr> {
        self.with_socket(fd, "peer_addr", |state, id| {
            if let SocketStage::Connected { input, .. } = state.sockets.get(id).stage
                && state.wires.is_dead(input)
            {
                return Err(libc::ENOTCONN);
            }
            let socket = state.sockets.get(id);
            match (&socket.peer, &socket.stage) {
                (Some(peer), _) => Ok(peer.to_system()),
                (None, SocketStage::Connected { .. }) => Ok(Addr::none(socket.domain).to_system()),
                (None, _) => Err(libc::ENOTCONN),
            }
        })
    }

    fn set_option(&self, fd: RawFd, _option: SocketOption) -> io::Result<()> {
        self.with_socket(fd, "set_option", |_, _| Ok(()))
    }

    fn adopt(&self, _fd: RawFd, _nonblocking: bool) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a simulated kernel has no files of the real one",
        ))
    }

    fn recv_now(&self, fd: RawFd, to: &mut [u8]) -> io::Result<usize> {
        self.with_socket(fd, "recv_now", |state, id| {
            let SocketStage::Connected { input, .. } = state.sockets.get(id).stage else {
                return Err(libc::ENOTCONN);
            };
            let Some(bytes) = state.wires.read(input, to.len(), false)? else {
                return Err(libc::EAGAIN);
            };
            to[..bytes.len()].copy_from_slice(&bytes);
            state.changed.insert(WaitKey::Wire(input));
            Ok(bytes.len())
        })
    }

    fn set_len(&self, fd: RawFd, len: u64) -> io::Result<()> {
        if i64::try_from(len).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut state = self.state();
        if let Some(errno) = state.refuses_length() {
            return Err(failed(errno));
        }
        match state.owners.get(fd, "set_len").cloned() {
            Some(OpenFile::File { number, flags, .. })
                if flags & libc::O_ACCMODE != libc::O_RDONLY =>
            {
                state.disk.set_len(number, len).map_err(failed)
            }
            Some(_) => Err(failed(libc::EINVAL)),
            None => Err(failed(libc::EBADF)),
        }
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, u32)>> {
        let path = path.as_os_str().as_bytes();
        let names = self.state().disk.list(path).map_err(failed)?;
        let owned = names.into_iter();
        Ok(owned
            .map(|(name, mode)| (OsString::from_vec(name), mode))
            .collect())
    }
}
