//! The system itself, for what needs no waiting.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::fd::Fd;
use super::handle::{SocketOption, System};
use crate::linux::{self, mode};

/// The system of this machine.
pub(crate) struct Real;

/// Borrows a socket for the time of a call.
fn socket(fd: RawFd) -> ManuallyDrop<Socket> {
    // SAFETY: the caller keeps it open meanwhile, and it is not dropped here.
    ManuallyDrop::new(unsafe { Socket::from_raw_fd(fd) })
}

/// Lends the file itself, to those who call the system on their own.
///
/// # Panics
/// If it is a simulated one, whose number means another file of this process or
/// none.
pub(crate) fn lend(fd: &Fd) -> BorrowedFd<'_> {
    if let Err(error) = fd.handle().must_be_real("descriptors to lend") {
        panic!("{error}");
    }
    // SAFETY: open as long as `fd` lives.
    unsafe { BorrowedFd::borrow_raw(fd.raw()) }
}

/// Gives the file away, if no operation uses it.
pub(crate) fn give_away(fd: Fd) -> Result<OwnedFd, Fd> {
    if !fd.handle().system().is_real() {
        return Err(fd);
    }
    let (raw, _) = fd.into_raw()?;
    // SAFETY: it was ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// What sort of file, as `st_mode` says it.
fn sort(kind: fs::FileType) -> u32 {
    match kind {
        _ if kind.is_file() => mode::FILE,
        _ if kind.is_dir() => mode::DIR,
        _ if kind.is_symlink() => mode::LINK,
        _ => mode::SOCKET,
    }
}

impl System for Real {
    fn close(&self, fd: RawFd) {
        // SAFETY: the caller owns it and gives it up.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }

    fn pipe(&self, nonblocking: bool) -> io::Result<(RawFd, RawFd)> {
        let (reader, writer) = io::pipe()?;
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        if nonblocking {
            Socket::from(reader.try_clone()?).set_nonblocking(true)?;
            Socket::from(writer.try_clone()?).set_nonblocking(true)?;
        }
        Ok((reader.into_raw_fd(), writer.into_raw_fd()))
    }

    fn socket(
        &self,
        domain: Domain,
        of: Type,
        protocol: Option<Protocol>,
        nonblocking: bool,
    ) -> io::Result<RawFd> {
        Ok(linux::socket(domain, of, protocol, nonblocking)?.into_raw_fd())
    }

    fn socket_pair(&self, of: Type, nonblocking: bool) -> io::Result<(RawFd, RawFd)> {
        let (one, two) = linux::socket_pair(of, nonblocking)?;
        Ok((one.into_raw_fd(), two.into_raw_fd()))
    }

    fn bind(&self, fd: RawFd, addr: &SockAddr) -> io::Result<()> {
        socket(fd).bind(addr)
    }

    fn listen(&self, fd: RawFd, backlog: i32) -> io::Result<()> {
        socket(fd).listen(backlog)
    }

    fn stop_listening(&self, fd: RawFd) {
        // If it fails nobody listens there.
        let _ = socket(fd).shutdown(Shutdown::Both);
    }

    fn local_addr(&self, fd: RawFd) -> io::Result<SockAddr> {
        socket(fd).local_addr()
    }

    fn peer_addr(&self, fd: RawFd) -> io::Result<SockAddr> {
        socket(fd).peer_addr()
    }

    fn set_option(&self, fd: RawFd, option: SocketOption) -> io::Result<()> {
        let socket = socket(fd);
        match option {
            SocketOption::NoDelay(on) => socket.set_tcp_nodelay(on),
            SocketOption::ReuseAddress(on) => socket.set_reuse_address(on),
            SocketOption::ReusePort(on) => socket.set_reuse_port(on),
            SocketOption::Broadcast(on) => socket.set_broadcast(on),
            SocketOption::OnlyV6(on) => socket.set_only_v6(on),
        }
    }

    fn adopt(&self, fd: RawFd, nonblocking: bool) -> io::Result<()> {
        socket(fd).set_nonblocking(nonblocking)
    }

    fn recv_now(&self, fd: RawFd, to: &mut [u8]) -> io::Result<usize> {
        loop {
            // SAFETY: there is room for so many.
            let received =
                unsafe { libc::recv(fd, to.as_mut_ptr().cast(), to.len(), libc::MSG_DONTWAIT) };
            match usize::try_from(received) {
                Ok(received) => return Ok(received),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }

    fn set_len(&self, fd: RawFd, len: u64) -> io::Result<()> {
        // SAFETY: as for `socket`.
        let file = ManuallyDrop::new(unsafe { fs::File::from_raw_fd(fd) });
        file.set_len(len)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, u32)>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok((entry.file_name(), entry.file_type().map_or(0, sort)))
            })
            .collect()
    }

    fn is_real(&self) -> bool {
        true
    }
}
