//! The drivers of the system give the same answers, mistakes included: every
//! request is asked of both.

use std::ffi::CString;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use super::choice::IoDriver;
use super::driver::{Answer, Driver, OpId, WaitMode};
use super::handle::System;
use super::request::{Offset, Request, StatBuf};
use super::system::Real;
use crate::blocking::BlockingPool;
use crate::io::request::{
    AcceptArgs, AllocateArgs, CloseArgs, ConnectArgs, MakeDirArgs, NopArgs, OpenArgs, PollArgs,
    ReadArgs, ReadVectoredArgs, RecvArgs, RecvMsgArgs, RenameArgs, SendArgs, SendMsgArgs,
    ShutdownArgs, StatArgs, SyncArgs, SyncRangeArgs, UnlinkArgs, WriteArgs, WriteThenSyncArgs,
    WriteVectoredArgs,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(5);

/// Asks one thing after the other, and writes down the answers.
struct DriverUnderTest {
    driver: Box<dyn Driver>,
    dir: PathBuf,
    /// What can be answered at once is.
    hasty: bool,
    next: u32,
    answers: Vec<(&'static str, i32)>,
}

fn bytes(buf: &[u8]) -> (*const u8, u32) {
    (buf.as_ptr(), buf.len() as u32)
}

fn parts(of: &[&[u8]]) -> Vec<libc::iovec> {
    let part = |part: &&[u8]| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    };
    of.iter().map(part).collect()
}

impl DriverUnderTest {
    fn path(&self, name: &str) -> CString {
        CString::new(self.dir.join(name).as_os_str().as_bytes()).expect("no zeros")
    }

    fn submit(&mut self, request: Request) -> OpId {
        let id = OpId {
            index: self.next,
            generation: 0,
        };
        self.next += 1;
        // SAFETY: what it leads to lives until `complete`.
        unsafe { self.driver.submit(id, &request) };
        id
    }

    fn complete(&mut self, id: OpId) -> i32 {
        let mut answers = Vec::new();
        let until = Instant::now() + LONG;
        while answers.is_empty() {
            self.turn(&mut answers);
            let last = self.answers.last();
            assert!(Instant::now() < until, "it hangs after {last:?}");
        }
        match answers[..] {
            [
                Answer {
                    id: over, result, ..
                },
            ] if over == id => result,
            _ => panic!("{answers:?}, and not {id:?}"),
        }
    }

    fn turn(&mut self, answers: &mut Vec<Answer>) {
        let most = WaitMode::AtMost(LONG);
        self.driver.poll(most, answers).expect("a turn");
    }

    fn ask(&mut self, what: &'static str, request: Request) -> i32 {
        let result = match self.at_once(&request) {
            Some(result) => result,
            None => {
                let id = self.submit(request);
                self.complete(id)
            }
        };
        self.answers.push((what, result));
        result
    }

    fn at_once(&mut self, request: &Request) -> Option<i32> {
        if !self.hasty {
            return None;
        }
        // SAFETY: what it leads to lives longer.
        unsafe { self.driver.at_once(request) }
    }

    /// Of a file that was opened only that it was.
    fn ask_file(&mut self, what: &'static str, request: Request) -> OwnedFd {
        let id = self.submit(request);
        let result = self.complete(id);
        assert!(result >= 0, "{what}: {result}");
        // SAFETY: it was opened for us.
        unsafe { OwnedFd::from_raw_fd(result) }
    }

    fn read(&mut self, what: &'static str, fd: RawFd, offset: Offset, want: &[u8]) -> i32 {
        let mut buf = [0_u8; 64];
        let (room, len) = (buf.as_mut_ptr(), buf.len() as u32);
        let request = Request::Read(ReadArgs {
            fd,
            buf: room,
            len,
            offset,
        });
        let done = self.ask(what, request);
        assert_eq!(&buf[..want.len()], want, "{what}");
        done
    }

    fn write(&mut self, what: &'static str, fd: RawFd, offset: Offset, buf: &[u8]) -> i32 {
        let (buf, len) = bytes(buf);
        let request = Request::Write(WriteArgs {
            fd,
            buf,
            len,
            offset,
        });
        self.ask(what, request)
    }

    fn write_then_sync(&mut self, what: &'static str, fd: RawFd, offset: Offset) -> i32 {
        let (buf, len) = bytes(b"kept");
        let request = Request::WriteThenSync(WriteThenSyncArgs {
            fd,
            buf,
            len,
            offset,
        });
        self.ask(what, request)
    }

    fn stat(&mut self, what: &'static str, fd: RawFd, path: &CString, flags: i32) -> StatBuf {
        // SAFETY: all zeros is one.
        let mut out: Box<StatBuf> = Box::new(unsafe { zeroed() });
        let request = Request::Stat(StatArgs {
            fd,
            path: path.as_ptr(),
            flags,
            out: &raw mut *out,
        });
        self.ask(what, request);
        *out
    }

    fn poll(&mut self, what: &'static str, fd: RawFd, events: libc::c_short) -> i32 {
        let events = events as u32;
        self.ask(what, Request::Poll(PollArgs { fd, events }))
    }
}

/// A number that is no file's.
const NONE: RawFd = 9_999;

/// Long because it is one conversation: each request works on what those before it left.
fn files(asker: &mut DriverUnderTest) {
    let (path, other) = (asker.path("a"), asker.path("b"));
    let (dir, missing) = (asker.path("dir"), asker.path("missing/a"));
    let open = |path: &CString, flags| {
        Request::Open(OpenArgs {
            path: path.as_ptr(),
            flags: flags | libc::O_CLOEXEC,
            mode: 0o600,
        })
    };
    asker.ask("open what is not there", open(&path, libc::O_RDWR));
    asker.ask("open below nothing", open(&missing, libc::O_CREAT));
    let file = asker.ask_file("make", open(&path, libc::O_RDWR | libc::O_CREAT));
    let fd = file.as_raw_fd();
    asker.write("write at", fd, Offset::At(2), b"hello");
    asker.read("read at", fd, Offset::At(3), b"ello");
    asker.read("read at the end", fd, Offset::At(100), b"");
    asker.write("write here", fd, Offset::Current, b"ab");
    asker.read("read here", fd, Offset::Current, b"hello");
    let two = parts(&[b"12", b"345"]);
    let vectored = |fd, offset| {
        Request::WriteVectored(WriteVectoredArgs {
            fd,
            parts: two.as_ptr(),
            count: 2,
            offset,
        })
    };
    asker.ask("write parts at", vectored(fd, Offset::At(1)));
    asker.ask("write parts here", vectored(fd, Offset::Current));
    let (mut one, mut rest) = ([0_u8; 3], [0_u8; 16]);
    let into = [
        libc::iovec {
            iov_base: one.as_mut_ptr().cast(),
            iov_len: 3,
        },
        libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: 16,
        },
    ];
    let read_parts = |offset| {
        Request::ReadVectored(ReadVectoredArgs {
            fd,
            parts: into.as_ptr(),
            count: 2,
            offset,
        })
    };
    asker.ask("read parts at", read_parts(Offset::At(0)));
    assert_eq!((&one, &rest[..9]), (b"a12", &b"345o12345"[..]));
    asker.ask("read parts here", read_parts(Offset::Current));
    for data_only in [true, false] {
        asker.ask("sync", Request::Sync(SyncArgs { fd, data_only }));
    }
    asker.write_then_sync("write then sync", fd, Offset::At(0));
    asker.read("what was kept", fd, Offset::At(0), b"kept");
    asker.write_then_sync("write then sync nothing", NONE, Offset::At(0));
    let range = |fd| {
        Request::SyncRange(SyncRangeArgs {
            fd,
            at: 0,
            len: 4,
            flags: libc::SYNC_FILE_RANGE_WRITE,
        })
    };
    asker.ask("sync a part", range(fd));
    asker.ask("sync a part of nothing", range(NONE));
    let allocate = |fd| {
        Request::Allocate(AllocateArgs {
            fd,
            mode: 0,
            at: 0,
            len: 5_000,
        })
    };
    asker.ask("allocate", allocate(fd));
    asker.ask("allocate nothing", allocate(NONE));
    let empty = CString::default();
    let by_fd = asker.stat("stat the file", fd, &empty, libc::AT_EMPTY_PATH);
    let by_path = asker.stat("stat a path", libc::AT_FDCWD, &path, 0);
    assert_eq!((by_fd.stx_size, by_path.stx_size), (5_000, 5_000));
    asker.stat("stat what is not there", libc::AT_FDCWD, &other, 0);
    let rename = |from: &CString, to: &CString| {
        Request::Rename(RenameArgs {
            from: from.as_ptr(),
            to: to.as_ptr(),
        })
    };
    asker.ask("rename", rename(&path, &other));
    asker.ask("rename what is not there", rename(&path, &other));
    let make_dir = |path: &CString| {
        Request::MakeDir(MakeDirArgs {
            path: path.as_ptr(),
            mode: 0o700,
        })
    };
    let unlink = |path: &CString, dir| {
        Request::Unlink(UnlinkArgs {
            path: path.as_ptr(),
            dir,
        })
    };
    asker.ask("make a directory", make_dir(&dir));
    asker.ask("make it again", make_dir(&dir));
    asker.ask("unlink a directory", unlink(&dir, false));
    asker.ask("remove a file as a directory", unlink(&other, true));
    asker.ask("remove a directory", unlink(&dir, true));
    asker.ask("unlink", unlink(&other, false));
    asker.ask("unlink again", unlink(&other, false));
    asker.poll("poll a file", fd, libc::POLLIN | libc::POLLOUT);
    asker.ask("receive from a file", recv(fd, &mut rest, 0));
    let fd = file.into_raw_fd();
    asker.ask("close", Request::Close(CloseArgs { fd }));
    asker.ask("close nothing", Request::Close(CloseArgs { fd: NONE }));
    asker.read("read nothing", NONE, Offset::At(0), b"");
    asker.read("read nothing here", NONE, Offset::Current, b"");
    asker.write("write nothing", NONE, Offset::Current, b"a");
    asker.poll("poll nothing", NONE, libc::POLLIN);
    asker.ask("nothing", Request::Nop(NopArgs));
}

fn recv(fd: RawFd, buf: &mut [u8], flags: i32) -> Request {
    Request::Recv(RecvArgs {
        fd,
        buf: buf.as_mut_ptr(),
        len: buf.len() as u32,
        flags,
    })
}

fn send(fd: RawFd, buf: &[u8]) -> Request {
    let (buf, len) = bytes(buf);
    Request::Send(SendArgs {
        fd,
        buf,
        len,
        flags: 0,
    })
}

fn pipes(asker: &mut DriverUnderTest) {
    let quick = asker.driver.wants_nonblocking();
    let (reader, writer) = Real.pipe(quick).expect("a pipe");
    // SAFETY: both are ours.
    let (reader_fd, writer_fd) =
        unsafe { (OwnedFd::from_raw_fd(reader), OwnedFd::from_raw_fd(writer)) };
    asker.write("write to a pipe", writer, Offset::Current, b"hello");
    asker.poll("poll a full pipe", reader, libc::POLLIN);
    asker.read("read from a pipe", reader, Offset::Current, b"hello");
    asker.write_then_sync("write to a pipe then sync", writer, Offset::Current);
    asker.read("what was kept of it", reader, Offset::Current, b"kept");
    asker.ask(
        "sync a pipe",
        Request::Sync(SyncArgs {
            fd: writer,
            data_only: false,
        }),
    );
    asker.write("write to the wrong end", reader, Offset::Current, b"a");
    asker.read("read from the wrong end", writer, Offset::Current, b"");
    // One that waits, and is cancelled.
    let mut buf = [0; 8];
    let waits = asker.submit(Request::Read(ReadArgs {
        fd: reader,
        buf: buf.as_mut_ptr(),
        len: 8,
        offset: Offset::Current,
    }));
    let mut answers = Vec::new();
    asker
        .driver
        .poll(WaitMode::No, &mut answers)
        .expect("a turn");
    assert!(answers.is_empty());
    asker.driver.cancel(waits);
    let result = asker.complete(waits);
    asker.answers.push(("a cancel", result));
    let polls = asker.submit(Request::Poll(PollArgs {
        fd: reader,
        events: libc::POLLIN as u32,
    }));
    drop(writer_fd);
    let result = asker.complete(polls);
    asker
        .answers
        .push(("poll a pipe whose end is gone", result));
    asker.read("read the end", reader, Offset::Current, b"");
    drop(reader_fd);
    let (reader, writer) = Real.pipe(quick).expect("a pipe");
    Real.close(reader);
    asker.write("write to nobody", writer, Offset::Current, b"a");
    Real.close(writer);
}

/// Long for the same reason as [`files`].
fn sockets(asker: &mut DriverUnderTest) {
    let quick = asker.driver.wants_nonblocking();
    let socket = |of: Type| {
        let raw = Real.socket(Domain::IPV4, of, None, quick).expect("one");
        // SAFETY: it is ours.
        unsafe { Socket::from_raw_fd(raw) }
    };
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    let listener = socket(Type::STREAM);
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: all zeros is one.
    let mut from: Box<libc::sockaddr_storage> = Box::new(unsafe { zeroed() });
    let accept = Request::Accept(AcceptArgs {
        fd: listener.as_raw_fd(),
        addr: &raw mut *from,
        len: &raw mut len,
    });
    asker.ask("accept before it listens", accept);
    listener.bind(&SockAddr::from(any)).expect("a port");
    listener.listen(8).expect("to listen");
    let at = listener.local_addr().expect("an address");
    let connect = |fd: &Socket, addr: &SockAddr| {
        Request::Connect(ConnectArgs {
            fd: fd.as_raw_fd(),
            addr: addr.as_ptr().cast(),
            len: addr.len(),
        })
    };
    let lone = socket(Type::STREAM);
    let fd = lone.as_raw_fd();
    asker.ask(
        "shut down nothing",
        Request::Shutdown(ShutdownArgs { fd, how: 1 }),
    );
    let one = socket(Type::STREAM);
    let fd = one.as_raw_fd();
    asker.ask("send to nobody", send(fd, b"a"));
    let waits = asker.submit(accept);
    let mut answers = Vec::new();
    asker
        .driver
        .poll(WaitMode::No, &mut answers)
        .expect("a turn");
    assert!(answers.is_empty());
    let connects = asker.submit(connect(&one, &at));
    while answers.len() < 2 {
        asker.turn(&mut answers);
    }
    let result = |id| answers.iter().find(|over| over.id == id).map(|o| o.result);
    assert_eq!(result(connects), Some(0));
    let taken = result(waits).expect("it was taken");
    // SAFETY: it is ours.
    let two = unsafe { Socket::from_raw_fd(taken) };
    asker.answers.push(("the other's address", len as i32));
    asker.ask("connect again", connect(&one, &at));
    let mut buf = [0; 8];
    asker.ask("send", send(fd, b"hello"));
    asker.ask("peek", recv(taken, &mut buf, libc::MSG_PEEK));
    asker.ask("receive", recv(taken, &mut buf, 0));
    assert_eq!(&buf[..5], b"hello");
    asker.ask("shut down", Request::Shutdown(ShutdownArgs { fd, how: 1 }));
    asker.ask("receive the end", recv(taken, &mut buf, 0));
    asker.ask("send after that", send(fd, b"a"));
    drop((one, two));
    let deaf = socket(Type::STREAM);
    drop(listener);
    asker.ask("connect to nobody", connect(&deaf, &at));

    let (one, two) = (socket(Type::DGRAM), socket(Type::DGRAM));
    two.bind(&SockAddr::from(any)).expect("a port");
    let to = two.local_addr().expect("an address");
    let mut letter = parts(&[b"a ", b"letter"]);
    // SAFETY: all zeros is one.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    msg.msg_name = to.as_ptr().cast_mut().cast();
    msg.msg_namelen = to.len();
    msg.msg_iov = letter.as_mut_ptr();
    msg.msg_iovlen = 2;
    let send_msg = Request::SendMsg(SendMsgArgs {
        fd: one.as_raw_fd(),
        msg: &raw const msg,
        flags: 0,
    });
    let mut room = [0_u8; 32];
    let mut part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: 32,
    };
    // SAFETY: as above.
    let mut into: libc::msghdr = unsafe { zeroed() };
    into.msg_name = (&raw mut *from).cast();
    into.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    into.msg_iov = &raw mut part;
    into.msg_iovlen = 1;
    let recv_msg = Request::RecvMsg(RecvMsgArgs {
        fd: two.as_raw_fd(),
        msg: &raw mut into,
        flags: 0,
    });
    asker.ask("send a message", send_msg);
    asker.ask("receive a message", recv_msg);
    assert_eq!(&room[..8], b"a letter");
    asker.answers.push(("its sender", into.msg_namelen as i32));
    let nowhere = Request::Accept(AcceptArgs {
        fd: NONE,
        addr: null_mut(),
        len: null_mut(),
    });
    asker.ask("accept nothing", nowhere);
    let nobody = Request::Connect(ConnectArgs {
        fd: NONE,
        addr: null(),
        len: 0,
    });
    asker.ask("connect nothing", nobody);
}

fn answers(choice: IoDriver, hasty: bool, dir: &Path) -> Vec<(&'static str, i32)> {
    let blocking = Arc::new(BlockingPool::new(4, "blocking".into()));
    let dir = dir.join(format!("{choice:?}-{hasty}"));
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut drivers = choice.make(1, &blocking).expect("a driver");
    let mut asker = DriverUnderTest {
        driver: drivers.remove(0),
        dir,
        hasty,
        next: 0,
        answers: Vec::new(),
    };
    files(&mut asker);
    pipes(&mut asker);
    sockets(&mut asker);
    asker.answers
}

#[test]
fn the_drivers_give_the_same_answers() {
    let dir = std::env::temp_dir().join(format!("kinfolk-alike-{}", std::process::id()));
    let ring = answers(IoDriver::Ring, false, &dir);
    let readiness = answers(IoDriver::Readiness, false, &dir);
    let hasty = answers(IoDriver::Ring, true, &dir);
    let _ = std::fs::remove_dir_all(&dir);
    for others in [readiness, hasty] {
        assert_eq!(ring.len(), others.len());
        let different: Vec<_> = ring
            .iter()
            .zip(&others)
            .filter(|(one, other)| one != other)
            .collect();
        assert!(different.is_empty(), "{different:#?}");
    }
    let failed = ring.iter().filter(|(_, result)| *result < 0).count();
    assert!(failed > 20, "mistakes are among them: {failed}");
}
