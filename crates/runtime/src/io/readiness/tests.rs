//! The driver by itself, with files of the system.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Write as _, pipe};
use std::mem::zeroed;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::Instant;

use socket2::{Domain, SockAddr, Socket, Type};

use super::*;
use crate::io::request::{
    AcceptArgs, CloseArgs, ConnectArgs, Offset, PollArgs, ReadArgs, RecvArgs, SendArgs,
    SendMsgArgs, ShutdownArgs, SyncArgs, WriteArgs,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// A driver, and the numbers for it.
struct Rig {
    driver: ReadinessDriver,
    next: u32,
    over: Vec<(u32, i32)>,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(Arc::new(BlockingPool::new(4, "blocking".into())))
    }

    fn with(blocking: Arc<BlockingPool>) -> Rig {
        Rig {
            driver: ReadinessDriver::new(blocking).expect("a poller"),
            next: 0,
            over: Vec::new(),
        }
    }

    fn id(index: u32) -> OpId {
        // As a thread has it: the same offset, another generation.
        OpId {
            index: index % 64,
            generation: index / 64,
        }
    }

    fn submit(&mut self, request: Request) -> u32 {
        let n = self.next;
        self.next += 1;
        // SAFETY: the buffers of a test live until its end.
        unsafe { self.driver.submit(Rig::id(n), &request) };
        n
    }

    fn read(&mut self, fd: &impl AsFd, buf: &mut [u8]) -> u32 {
        self.submit(Request::Read(ReadArgs {
            fd: fd.as_fd().as_raw_fd(),
            buf: buf.as_mut_ptr(),
            len: buf.len() as u32,
            offset: Offset::Current,
        }))
    }

    fn write(&mut self, fd: &impl AsFd, buf: &[u8]) -> u32 {
        self.submit(Request::Write(WriteArgs {
            fd: fd.as_fd().as_raw_fd(),
            buf: buf.as_ptr(),
            len: buf.len() as u32,
            offset: Offset::Current,
        }))
    }

    fn poll(&mut self, fd: &impl AsFd, events: libc::c_short) -> u32 {
        self.submit(Request::Poll(PollArgs {
            fd: fd.as_fd().as_raw_fd(),
            events: events as u32,
        }))
    }

    fn cancel(&mut self, n: u32) {
        self.driver.cancel(Rig::id(n));
    }

    fn turn(&mut self, wait: WaitMode) {
        let mut answers = Vec::new();
        self.driver.poll(wait, &mut answers).expect("a turn");
        for one in answers {
            self.over
                .push((one.id.generation * 64 + one.id.index, one.result));
        }
    }

    /// Waits until so many are over; what they said.
    fn over(&mut self, count: usize) -> Vec<(u32, i32)> {
        let until = Instant::now() + LONG;
        while self.over.len() < count {
            self.turn(WaitMode::AtMost(LONG));
            assert!(
                Instant::now() < until,
                "{:?} of {count} are over",
                self.over
            );
        }
        assert_eq!(self.over.len(), count);
        std::mem::take(&mut self.over)
    }

    /// Nothing is over, however often one looks.
    fn nothing(&mut self) {
        for _ in 0..5 {
            self.turn(WaitMode::No);
        }
        self.turn(WaitMode::AtMost(Duration::from_millis(1)));
        assert_eq!(self.over, []);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.driver.armed, 0, "W1");
            assert!(self.driver.watches.values().all(FileWatch::is_empty));
            assert!(self.driver.ops.0.iter().all(Option::is_none), "W3");
        }
    }
}

/// A pipe whose ends do not block.
fn quick_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe().expect("a pipe");
    (quick(reader), quick(writer))
}

fn quick(fd: impl Into<OwnedFd>) -> OwnedFd {
    let socket = Socket::from(fd.into());
    socket.set_nonblocking(true).expect("not to block");
    socket.into()
}

fn stream_pair() -> (OwnedFd, OwnedFd) {
    let (one, two) = UnixStream::pair().expect("a pair");
    (quick(one), quick(two))
}

fn put(fd: &OwnedFd, bytes: &[u8]) {
    let mut file = File::from(fd.try_clone().expect("another"));
    file.write_all(bytes).expect("room");
}

fn get(fd: &OwnedFd, buf: &mut [u8]) {
    let mut file = File::from(fd.try_clone().expect("another"));
    file.read_exact(buf).expect("bytes");
}

#[test]
fn those_of_one_direction_are_served_in_order() {
    let (reader, writer) = quick_pipe();
    let mut rig = Rig::new();
    let mut bufs = [[0_u8; 1]; 4];
    for buf in &mut bufs {
        rig.read(&reader, buf);
    }
    rig.nothing();
    put(&writer, b"ab");
    assert_eq!(rig.over(2), [(0, 1), (1, 1)]);
    rig.nothing();
    // Whoever comes now goes behind those who wait.
    put(&writer, b"c");
    let mut last = [0; 1];
    rig.read(&reader, &mut last);
    put(&writer, b"de");
    assert_eq!(rig.over(3), [(2, 1), (3, 1), (4, 1)]);
    assert_eq!((bufs, last), ([*b"a", *b"b", *b"c", *b"d"], *b"e"));
}

#[test]
fn both_directions_of_one_file_wait_at_once() {
    let (one, two) = stream_pair();
    let mut rig = Rig::new();
    let big = vec![7_u8; 1 << 20];
    let mut buf = [0; 8];
    let read = rig.read(&one, &mut buf);
    // Until it is full, and some wait.
    let mut writes = Vec::new();
    for _ in 0..4 {
        writes.push(rig.write(&one, &big));
    }
    rig.turn(WaitMode::No);
    let begun = rig.over.iter().map(|over| over.1 as usize).sum::<usize>();
    let count = rig.over.len();
    rig.over.clear();
    assert!(count < writes.len(), "it never fills");
    rig.nothing();
    put(&two, b"hello");
    assert_eq!(rig.over(1), [(read, 5)]);
    // The others still wait, and go on in order once there is room.
    let mut all = begun;
    let mut seen = Vec::new();
    let mut sink = vec![0; begun];
    get(&two, &mut sink);
    while seen.len() + count < writes.len() {
        for (n, wrote) in rig.over(1) {
            seen.push(n);
            all += wrote as usize;
            sink.resize(wrote as usize, 0);
            get(&two, &mut sink);
        }
    }
    assert_eq!(seen, writes[count..]);
    assert!(all > begun);
    assert!(sink.iter().all(|byte| *byte == 7));
}

#[test]
fn one_that_was_cancelled_gets_nothing() {
    let (reader, writer) = quick_pipe();
    let mut rig = Rig::new();
    let mut bufs = [[0_u8; 1]; 3];
    for buf in &mut bufs {
        rig.read(&reader, buf);
    }
    rig.cancel(1);
    // Twice is once, and one that is over already is left alone.
    rig.cancel(1);
    assert_eq!(rig.over(1), [(1, -libc::ECANCELED)]);
    rig.cancel(1);
    put(&writer, b"xy");
    assert_eq!(rig.over(2), [(0, 1), (2, 1)]);
    assert_eq!(bufs, [*b"x", [0], *b"y"]);
    // Done at once, and cancelled before it was collected: the result stands.
    put(&writer, b"z");
    let done = rig.read(&reader, &mut bufs[1]);
    rig.cancel(done);
    assert_eq!(rig.over(1), [(done, 1)]);
    // A number of before means no operation.
    let waits = rig.read(&reader, &mut bufs[1]);
    rig.cancel(0);
    rig.nothing();
    rig.cancel(waits);
    assert_eq!(rig.over(1), [(waits, -libc::ECANCELED)]);
}

/// Puts `new` where `old` was; `old` stays open under another number.
fn put_in_place(old: &OwnedFd, new: OwnedFd) -> OwnedFd {
    let kept = old.try_clone().expect("another");
    // SAFETY: both are open; `old` is another file from now on.
    assert!(unsafe { libc::dup2(new.as_raw_fd(), old.as_raw_fd()) } >= 0);
    kept
}

/// The system keeps a file armed as long as it is open under any number. Each
/// way to leave it is tried, and then the number is another file's.
#[test]
fn a_number_that_is_used_again_is_not_confused() {
    for leave in ["cancelled", "served", "never armed"] {
        let (reader, writer) = quick_pipe();
        let mut rig = Rig::new();
        let mut buf = [0; 8];
        match leave {
            "cancelled" => {
                let n = rig.read(&reader, &mut buf);
                rig.cancel(n);
                rig.over(1);
            }
            "served" => {
                rig.read(&reader, &mut buf);
                put(&writer, b"a");
                rig.over(1);
            }
            _ => rig.nothing(),
        }
        let (next, next_writer) = quick_pipe();
        let kept = put_in_place(&reader, next);
        let n = rig.read(&reader, &mut buf);
        rig.nothing();
        put(&next_writer, b"def");
        assert_eq!(rig.over(1), [(n, 3)], "{leave}");
        assert_eq!(&buf[..3], b"def");
        // Something happens to the file that had the number.
        let n = rig.read(&reader, &mut buf);
        put(&writer, b"bc");
        rig.nothing();
        put(&next_writer, b"h");
        assert_eq!(rig.over(1), [(n, 1)], "{leave}");
        // And back again.
        put_in_place(&reader, kept);
        let n = rig.read(&reader, &mut buf);
        assert_eq!(rig.over(1), [(n, 2)], "{leave}");
        let n = rig.read(&reader, &mut buf);
        rig.nothing();
        put(&writer, b"g");
        assert_eq!(rig.over(1), [(n, 1)], "{leave}");
    }
}

/// A report of a file that had the number before: whoever waits tries again,
/// and waits on.
#[test]
fn a_report_is_a_hint() {
    let (reader, writer) = quick_pipe();
    let mut rig = Rig::new();
    let mut buf = [0; 8];
    let n = rig.read(&reader, &mut buf);
    rig.driver.reported(reader.as_raw_fd(), true, true);
    rig.driver.reported(9_999, true, true);
    rig.nothing();
    put(&writer, b"a");
    assert_eq!(rig.over(1), [(n, 1)]);
}

#[test]
fn a_file_that_cannot_be_armed_is_called_aside() {
    let path = std::env::temp_dir().join(format!("kinfolk-offload-{}", std::process::id()));
    std::fs::write(&path, b"hello").expect("a file");
    let quick = libc::O_NONBLOCK;
    let mut options = File::options();
    let file = options.read(true).custom_flags(quick).open(&path);
    let file = file.expect("the file");
    let _ = std::fs::remove_file(&path);
    let mut rig = Rig::new();
    let mut buf = [0; 8];
    // It never says that it would have to wait; so as if it did.
    let waits = WaitingOp {
        fd: file.as_raw_fd(),
        side: Side::Read,
        interest: EventMask::READ,
        request: Request::Read(ReadArgs {
            fd: file.as_raw_fd(),
            buf: buf.as_mut_ptr(),
            len: 8,
            offset: Offset::Current,
        }),
        begun: false,
    };
    rig.driver.wait_for(Rig::id(0), waits);
    assert_eq!(rig.over(1), [(0, 5)]);
    assert_eq!(&buf[..5], b"hello");
    // What is wrong with a file is said.
    let gone = WaitingOp { fd: 9_999, ..waits };
    rig.driver.wait_for(Rig::id(1), gone);
    assert_eq!(rig.over(1), [(1, -libc::EBADF)]);
}

/// The system has no room for another file that is to be reported: that is the error
/// of those that wait for that file, and of no other.
#[test]
fn io_4_what_cannot_be_armed_is_the_error_of_its_operations() {
    for errno in [libc::ENOSPC, libc::ENOMEM] {
        let (reader, writer) = quick_pipe();
        let (other, other_writer) = quick_pipe();
        let mut rig = Rig::new();
        let mut bufs = [[0; 8]; 4];
        let [one, two, three, four] = &mut bufs;
        let (first, second) = (rig.read(&reader, one), rig.read(&reader, two));
        let third = rig.read(&other, three);
        let refused = std::io::Error::from_raw_os_error(errno);
        rig.driver.refused(reader.as_raw_fd(), &refused);
        assert_eq!(rig.over(2), [(first, -errno), (second, -errno)]);
        put(&other_writer, b"a");
        assert_eq!(rig.over(1), [(third, 1)]);
        // Later there is room.
        let fourth = rig.read(&reader, four);
        put(&writer, b"ab");
        assert_eq!(rig.over(1), [(fourth, 2)]);
    }
}

#[test]
fn a_call_aside_is_cancelled_before_it_begins_and_not_after() {
    let blocking = Arc::new(BlockingPool::new(1, "blocking".into()));
    let mut rig = Rig::with(blocking.clone());
    // One that blocks, on the only thread: more than a pipe holds. It has begun
    // once there is something to read.
    let (reader, writer) = pipe().expect("a pipe");
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    let mut big = vec![7; 1 << 20];
    let first = rig.write(&writer, &big);
    while calls::poll(reader.as_raw_fd(), libc::POLLIN as u32) == 0 {
        std::thread::yield_now();
    }
    // It would say that there is no such file.
    let nothing = Request::Sync(SyncArgs {
        fd: 9_999,
        data_only: false,
    });
    let (second, third) = (rig.submit(nothing), rig.submit(nothing));
    rig.cancel(first);
    rig.cancel(second);
    assert_eq!(rig.over(1), [(second, -libc::ECANCELED)]);
    rig.nothing();
    get(&reader, &mut big);
    assert_eq!(rig.over(2), [(first, 1 << 20), (third, -libc::EBADF)]);
}

#[test]
fn without_threads_a_call_fails_and_a_file_is_closed() {
    let blocking = Arc::new(BlockingPool::new(1, "blocking".into()));
    blocking.stop(Duration::ZERO);
    let mut rig = Rig::with(blocking);
    let (reader, writer) = pipe().expect("a pipe");
    let mut buf = [0; 8];
    let read = rig.read(&reader, &mut buf);
    let fd = writer.into_raw_fd();
    let close = rig.submit(Request::Close(CloseArgs { fd }));
    assert_eq!(rig.over(2), [(read, -libc::EAGAIN), (close, 0)]);
    let mut reader = reader;
    assert_eq!(reader.read(&mut buf).expect("the end"), 0);
}

#[test]
fn a_poll_says_what_is_ready() {
    let (one, two) = stream_pair();
    let mut rig = Rig::new();
    let write = rig.poll(&one, libc::POLLOUT);
    assert_eq!(rig.over(1), [(write, libc::POLLOUT.into())]);
    let read = rig.poll(&one, libc::POLLIN);
    let urgent = rig.poll(&one, libc::POLLPRI);
    let hung_up = rig.poll(&one, 0);
    rig.nothing();
    put(&two, b"x");
    assert_eq!(rig.over(1), [(read, libc::POLLIN.into())]);
    // There is something to read, which is not what the others wait for.
    rig.nothing();
    drop(two);
    let over = rig.over(2);
    assert_eq!((over[0].0, over[1].0), (urgent, hung_up));
    assert!(over[1].1 & i32::from(libc::POLLHUP) != 0, "{over:?}");
}

fn address(addr: &SockAddr) -> (Box<libc::sockaddr_storage>, libc::socklen_t) {
    // SAFETY: all zeros is one, and the address fits.
    unsafe {
        let mut storage: Box<libc::sockaddr_storage> = Box::new(zeroed());
        let bytes = addr.as_ptr().cast::<u8>();
        let offset = (&raw mut *storage).cast::<u8>();
        std::ptr::copy_nonoverlapping(bytes, offset, addr.len() as usize);
        (storage, addr.len())
    }
}

#[test]
fn connections_are_made_and_taken() {
    let mut rig = Rig::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("its address");
    let listener = quick(listener);
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: all zeros is one.
    let mut from: libc::sockaddr_storage = unsafe { zeroed() };
    let accept = rig.submit(Request::Accept(AcceptArgs {
        fd: listener.as_raw_fd(),
        addr: &raw mut from,
        len: &raw mut len,
    }));
    rig.nothing();
    let (addr, size) = address(&SockAddr::from(at));
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).expect("a socket");
    let connect = rig.submit(Request::Connect(ConnectArgs {
        fd: socket.as_raw_fd(),
        addr: &raw const *addr,
        len: size,
    }));
    let over = rig.over(2);
    let taken = over.iter().find(|over| over.0 == accept).expect("taken").1;
    assert!(over.contains(&(connect, 0)), "{over:?}");
    // SAFETY: it is ours now.
    let taken = unsafe { OwnedFd::from_raw_fd(taken) };
    assert!(calls::never_blocks(taken.as_raw_fd()));
    assert!(len > 0);
    // Bytes, by the calls of sockets.
    let mut buf = [0; 8];
    let recv = rig.submit(Request::Recv(RecvArgs {
        fd: taken.as_raw_fd(),
        buf: buf.as_mut_ptr(),
        len: 8,
        flags: 0,
    }));
    rig.nothing();
    let send = rig.submit(Request::Send(SendArgs {
        fd: socket.as_raw_fd(),
        buf: b"hello".as_ptr(),
        len: 5,
        flags: 0,
    }));
    let over: HashSet<_> = rig.over(2).into_iter().collect();
    assert_eq!(over, HashSet::from([(recv, 5), (send, 5)]));
    let shutdown = rig.submit(Request::Shutdown(ShutdownArgs {
        fd: socket.as_raw_fd(),
        how: libc::SHUT_WR,
    }));
    let end = rig.submit(Request::Recv(RecvArgs {
        fd: taken.as_raw_fd(),
        buf: buf.as_mut_ptr(),
        len: 8,
        flags: 0,
    }));
    let over: HashSet<_> = rig.over(2).into_iter().collect();
    assert_eq!(over, HashSet::from([(shutdown, 0), (end, 0)]));
    // Where nobody listens.
    drop(listener);
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).expect("a socket");
    let connect = rig.submit(Request::Connect(ConnectArgs {
        fd: socket.as_raw_fd(),
        addr: &raw const *addr,
        len: size,
    }));
    assert_eq!(rig.over(1), [(connect, -libc::ECONNREFUSED)]);
    drop(TcpStream::from(taken));
}

/// Where the system says neither yes nor no, and reports nothing either.
#[test]
fn a_unix_connection_waits_for_room() {
    let path = std::env::temp_dir().join(format!("kinfolk-room-{}", std::process::id()));
    let addr = SockAddr::unix(&path).expect("an address");
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    listener.bind(&addr).expect("a offset");
    listener.listen(0).expect("to listen");
    let (at, len) = address(&addr);
    let mut rig = Rig::new();
    let sockets: Vec<_> = (0..3)
        .map(|_| Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).expect("a socket"))
        .collect();
    for socket in &sockets {
        rig.submit(Request::Connect(ConnectArgs {
            fd: socket.as_raw_fd(),
            addr: &raw const *at,
            len,
        }));
    }
    assert_eq!(rig.over(1), [(0, 0)]);
    rig.nothing();
    rig.cancel(1);
    assert_eq!(rig.over(1), [(1, -libc::ECANCELED)]);
    // It does not sleep over it, although nothing will be reported.
    let begun = Instant::now();
    rig.turn(WaitMode::Forever);
    rig.turn(WaitMode::AtMost(LONG));
    assert!(begun.elapsed() < LONG, "it slept");
    assert_eq!(rig.over, []);
    let listener = UnixListener::from(OwnedFd::from(listener));
    let _taken = listener.accept().expect("the first");
    assert_eq!(rig.over(1), [(2, 0)]);
    let _ = std::fs::remove_file(&path);
}

/// So many turns in which nothing goes on take at least a millisecond each, but
/// for the first few.
fn rests(rig: &mut Rig) {
    let begun = Instant::now();
    for _ in 0..50 {
        rig.turn(WaitMode::AtMost(LONG));
        assert_eq!(rig.over, []);
    }
    // A rest is two turns: it is over, and the next report is in vain.
    assert!(begun.elapsed() > Duration::from_millis(20), "it spins");
}

#[test]
fn a_send_to_a_full_receiver_of_this_machine_does_not_spin() {
    let offset = |name| {
        let name = format!("kinfolk-full-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let (full, own) = (offset("receiver"), offset("sender"));
    let receiver = UnixDatagram::bind(&full).expect("a receiver");
    let sender = UnixDatagram::bind(&own).expect("a sender");
    receiver.set_nonblocking(true).expect("a receiver");
    sender.set_nonblocking(true).expect("a sender");
    while sender.send_to(b"x", &full).is_ok() {}

    let addr = SockAddr::unix(&full).expect("an address");
    let (mut at, len) = address(&addr);
    let mut part = libc::iovec {
        iov_base: b"y".as_ptr().cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: all zeros is a message without anything.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    msg.msg_name = (&raw mut *at).cast();
    msg.msg_namelen = len;
    msg.msg_iov = &raw mut part;
    msg.msg_iovlen = 1;
    let mut rig = Rig::new();
    let fd = sender.as_raw_fd();
    let msg = &raw mut msg;
    let sent = rig.submit(Request::SendMsg(SendMsgArgs { fd, msg, flags: 0 }));
    rests(&mut rig);
    // The other direction is served as ever.
    let (mut one, flags) = ([0; 1], 0);
    let buf = one.as_mut_ptr();
    let got = rig.submit(Request::Recv(RecvArgs {
        fd,
        buf,
        len: 1,
        flags,
    }));
    assert!(rig.driver.watches[&fd].armed.covers(EventMask::READ));
    receiver.send_to(b"z", &own).expect("room");
    assert_eq!(rig.over(1), [(got, 1)]);
    // Cancelled while it rests, nothing is left of it.
    let second = rig.submit(Request::SendMsg(SendMsgArgs { fd, msg, flags: 0 }));
    rig.cancel(second);
    assert_eq!(rig.over(1), [(second, -libc::ECANCELED)]);
    rests(&mut rig);
    let mut one = [0; 1];
    assert_eq!(receiver.recv(&mut one).expect("the first"), 1);
    assert_eq!(rig.over(1), [(sent, 1)]);
    let _ = (std::fs::remove_file(full), std::fs::remove_file(own));
}

#[test]
fn an_urgent_byte_that_nobody_wants_does_not_spin() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a stream");
    let (far, _) = listener.accept().expect("the other end");
    let mut rig = Rig::new();
    // SAFETY: a byte of ours.
    let sent = unsafe { libc::send(near.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
    while calls::poll(far.as_raw_fd(), libc::POLLPRI as u32) == 0 {
        std::thread::yield_now();
    }
    let ready = rig.poll(&far, libc::POLLIN);
    rests(&mut rig);
    near.write_all(b"x").expect("room");
    let over = rig.over(1);
    assert_eq!(over[0].0, ready);
    assert!(over[0].1 & i32::from(libc::POLLIN) != 0, "{over:?}");
}

/// Two threads wait for the same files, in both directions: every byte arrives
/// once, and nobody is forgotten.
#[test]
fn two_stations_share_their_files() {
    const BYTES: usize = 200_000;
    for (one, two) in [quick_pipe(), stream_pair()] {
        let (one, two) = (&one, &two);
        let side = |reads: bool, seed: usize| {
            move || {
                let mut rig = Rig::new();
                let mut moved = 0_usize;
                let mut sum = 0_u64;
                let mut buf = [1_u8; 4096];
                while moved < BYTES / 2 {
                    let most = (BYTES / 2 - moved).min(1 + (moved * 31 + seed) % 4096);
                    match reads {
                        true => rig.read(one, &mut buf[..most]),
                        false => {
                            let byte = moved as u8;
                            buf[..most].fill(byte);
                            rig.write(two, &buf[..most])
                        }
                    };
                    let done = rig.over(1)[0].1;
                    assert!(done > 0, "{done}");
                    let part = &buf[..done as usize];
                    sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                    moved += done as usize;
                }
                sum
            }
        };
        std::thread::scope(|s| {
            let read = [s.spawn(side(true, 1)), s.spawn(side(true, 7))];
            let wrote = [s.spawn(side(false, 3)), s.spawn(side(false, 11))];
            let sum = |threads: [std::thread::ScopedJoinHandle<'_, u64>; 2]| -> u64 {
                threads
                    .map(|thread| thread.join().expect("a side"))
                    .iter()
                    .sum()
            };
            assert_eq!(sum(wrote), sum(read));
        });
    }
}
