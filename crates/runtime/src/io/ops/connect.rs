use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use socket2::{Domain, SockAddr, Type};

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::answer;
use crate::io::request::NopArgs;
use crate::io::{Fd, IoHandle, Operation, Request};
use crate::linux::on_ring;

/// Which socket is connected.
enum Which {
    /// One that was there before.
    This(Fd),
    /// One that is made for it. If the future was dropped, it is closed again.
    New {
        kind: Type,
        made: Option<io::Result<Fd>>,
    },
}

/// Connects a socket.
pub(crate) struct Connect {
    which: Which,
    addr: SockAddr,
}

impl Connect {
    /// A new socket.
    pub(crate) fn new(addr: SockAddr, kind: Type) -> Connect {
        let which = Which::New { kind, made: None };
        Connect { which, addr }
    }

    /// A socket that is there.
    pub(crate) fn this(fd: Fd, addr: SockAddr) -> Connect {
        let which = Which::This(fd);
        Connect { which, addr }
    }
}

fn make(handle: &Arc<IoHandle>, domain: Domain, kind: Type) -> io::Result<Fd> {
    let raw = handle
        .system()
        .socket(domain, kind, None, handle.nonblocking()?)?;
    Ok(Fd::new(raw, handle.clone()))
}

impl Operation for Connect {
    type Output = io::Result<Fd>;

    fn request(&mut self, handle: &Arc<IoHandle>) -> Request {
        let fd = match &mut self.which {
            Which::This(fd) => fd.raw(),
            Which::New { kind, made } => {
                // A fresh one also if it is asked for a second time: where a
                // connection was begun, another cannot be.
                match made.insert(make(handle, self.addr.domain(), *kind)) {
                    Ok(fd) => fd.raw(),
                    // `finish` says so.
                    Err(_) => return Request::Nop(NopArgs),
                }
            }
        };
        Request::Connect(ConnectArgs {
            fd,
            addr: self.addr.as_ptr().cast(),
            len: self.addr.len(),
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<Fd> {
        match self.which {
            Which::This(fd) => result.map(|_| fd),
            // Without one it was told, or the host has no i/o.
            Which::New { made, .. } => {
                result?;
                made.expect("what was connected was made")
            }
        }
    }
}

/// Connects a socket.
#[derive(Clone, Copy, Debug)]
pub struct ConnectArgs {
    /// The socket.
    pub fd: RawFd,
    /// To whom.
    pub addr: *const libc::sockaddr_storage,
    /// How long that is.
    pub len: libc::socklen_t,
}

impl RequestArgs for ConnectArgs {
    fn class(&self) -> Class {
        Class::Input
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Writable(self.fd)
    }

    unsafe fn call(&self) -> i32 {
        // Not again after a signal: the connection goes on without us.
        // SAFETY: as the caller says.
        answer(unsafe { libc::connect(self.fd, self.addr.cast(), self.len) } as isize)
    }
}

on_ring! {
    impl Sqe for ConnectArgs {
        const CODE: u8 = opcode::Connect::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Connect::new(RingFd(self.fd), self.addr.cast(), self.len)
                .build()
        }
    }
}
