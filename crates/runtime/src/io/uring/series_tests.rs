//! Series on a ring; and on one of an older kernel, which knows no series: each ends after its first
//! answer, and what is received is waited for first.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::io::buffer_pool::BufferGroup;
use crate::io::buffer_pool::{BufferPool, Chunk};
use crate::io::driver::WaitMode;
use crate::io::handle::IoHandle;
use crate::io::request::{AcceptManyArgs, RecvManyArgs};
use crate::io::system::Real;

fn plain() -> UringDriver {
    UringDriver::of(Kernel::Old).expect("a driver")
}

fn group(count: usize) -> Arc<BufferGroup> {
    let none = Box::new(|_| Ok(Vec::new()));
    let handle = IoHandle::new(1, none, Box::new(Real), 1, Box::new(|_| {}));
    BufferPool::new(count, 4).group(&handle, 0)
}

fn id(index: u32) -> OpId {
    OpId {
        index,
        generation: 0,
    }
}

fn next_answer(driver: &mut UringDriver) -> Answer {
    let mut answers = Vec::new();
    while answers.is_empty() {
        let most = WaitMode::AtMost(Duration::from_secs(5));
        driver.poll(most, &mut answers).expect("a turn");
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0]
}

/// Looks a few times: nothing is over.
fn nothing(driver: &mut UringDriver) {
    let mut answers = Vec::new();
    for _ in 0..3 {
        let most = WaitMode::AtMost(Duration::from_millis(1));
        driver.poll(most, &mut answers).expect("a turn");
    }
    assert!(answers.is_empty(), "{answers:?}");
}

/// What a pool leaves behind goes with the next turn, once no chunk and no
/// operation uses it.
#[test]
fn io_5_the_buffers_of_a_pool_that_is_gone_are_taken_back() {
    let mut driver = UringDriver::new().expect("a driver");
    let (mut one, two) = UnixStream::pair().expect("two sockets");
    // Its pool is gone already.
    let group = group(2);
    let request = Request::RecvMany(RecvManyArgs {
        fd: two.as_raw_fd(),
        group: &raw const group,
    });
    // SAFETY: the group and the socket live until it is over.
    unsafe { driver.submit(id(0), &request) };
    nothing(&mut driver);
    if driver.provided.is_empty() {
        return; // This kernel takes none.
    }
    one.write_all(b"abcd").expect("written");
    let first = next_answer(&mut driver);
    assert!(first.more);
    let number = first.buffer.expect("a buffer");
    // SAFETY: it is ours, and filled so far.
    let chunk = unsafe { Chunk::from_pool(group.clone(), number, 4) };
    driver.cancel(id(0));
    assert_eq!(next_answer(&mut driver).result, -libc::ECANCELED);
    let memory = Arc::downgrade(&group);
    drop(group);
    nothing(&mut driver);
    assert_eq!(driver.provided.len(), 1, "a chunk lies there");
    assert_eq!(*chunk, *b"abcd");
    drop(chunk);
    nothing(&mut driver);
    assert!(driver.provided.is_empty());
    assert!(memory.upgrade().is_none(), "the memory is free");
}

/// A cancel that does not find its series is asked again.
#[test]
fn io_5_a_cancel_that_missed_its_series_is_asked_again() {
    let mut driver = UringDriver::new().expect("a driver");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let fd = listener.as_raw_fd();
    // Before it, so that it is not there yet.
    driver.series.insert(id(1), None);
    driver.cancel(id(1));
    // SAFETY: it leads nowhere.
    unsafe { driver.submit(id(1), &Request::AcceptMany(AcceptManyArgs { fd })) };
    let mut answers = Vec::new();
    for _ in 0..100 {
        let most = WaitMode::AtMost(Duration::from_millis(10));
        driver.poll(most, &mut answers).expect("a turn");
    }
    let results: Vec<i32> = answers.iter().map(|answer| answer.result).collect();
    assert_eq!(results, [-libc::ECANCELED]);
    assert!(driver.series.is_empty());
}

/// Buffers that the kernel takes at the second attempt are there for those who
/// came with the first.
#[test]
fn io_5_a_shelf_that_was_refused_once_serves_all() {
    let mut driver = UringDriver::new().expect("a driver");
    let (mut one, two) = UnixStream::pair().expect("two sockets");
    let (_three, four) = UnixStream::pair().expect("two sockets");
    let group = group(2);
    // As if it had been refused.
    let receives = Receives {
        fd: two.as_raw_fd(),
        group: group.clone(),
        vain: 0,
        asked: false,
    };
    driver.poll_input(id(0), receives);
    let request = Request::RecvMany(RecvManyArgs {
        fd: four.as_raw_fd(),
        group: &raw const group,
    });
    // SAFETY: the group and the sockets live until it is over.
    unsafe { driver.submit(id(1), &request) };
    nothing(&mut driver);
    one.write_all(b"abcd").expect("written");
    let answer = next_answer(&mut driver);
    assert_eq!((answer.id, answer.result), (id(0), 4));
    assert!(answer.buffer.is_some());
    for n in 0..2 {
        driver.cancel(id(n));
        if n == 1 || answer.more {
            assert_eq!(next_answer(&mut driver).result, -libc::ECANCELED);
        }
    }
}

/// The kernel wants a buffer before it looks. Without one, a stream that has
/// nothing to receive waits, hears of its end, and can be ended.
#[test]
fn io_5_without_a_buffer_a_ring_waits_for_bytes() {
    let mut driver = UringDriver::new().expect("a driver");
    let group = group(1);
    let number = group.take().expect("one");
    let pairs: Vec<_> = (0..4)
        .map(|_| UnixStream::pair().expect("two sockets"))
        .collect();
    for (n, (_, two)) in pairs.iter().enumerate() {
        let request = Request::RecvMany(RecvManyArgs {
            fd: two.as_raw_fd(),
            group: &raw const group,
        });
        // SAFETY: the group and the sockets live until it is over.
        unsafe { driver.submit(id(n as u32), &request) };
    }
    nothing(&mut driver);
    let mut ones = pairs.iter().map(|(one, _)| one);
    let mut next = || ones.next().expect("four");
    next().write_all(b"abcd").expect("written");
    let answer = next_answer(&mut driver);
    assert_eq!((answer.id, answer.result), (id(0), -libc::ENOBUFS));
    next().shutdown(Shutdown::Write).expect("ended");
    let answer = next_answer(&mut driver);
    assert_eq!((answer.id, answer.result), (id(1), 0));
    driver.cancel(id(2));
    let answer = next_answer(&mut driver);
    assert_eq!((answer.id, answer.result), (id(2), -libc::ECANCELED));
    // It has come back.
    group.put(number);
    next();
    next().write_all(b"efgh").expect("written");
    let answer = next_answer(&mut driver);
    assert_eq!((answer.id, answer.result), (id(3), 4));
    assert_eq!(answer.buffer, Some(number));
    if answer.more {
        driver.cancel(id(3));
        assert_eq!(next_answer(&mut driver).result, -libc::ECANCELED);
    }
}

/// The kernel says again and again that there is something, and shows nothing: here
/// because looking at it moves the place where the next one looks.
#[test]
fn io_5_a_socket_that_is_reported_in_vain_waits_for_a_buffer() {
    let mut driver = UringDriver::new().expect("a driver");
    let group = group(1);
    let number = group.take().expect("one");
    let (mut one, two) = UnixStream::pair().expect("two sockets");
    let from: libc::c_int = 0;
    // SAFETY: there is one integer.
    let set = unsafe {
        let len = size_of_val(&from) as libc::socklen_t;
        let value = (&raw const from).cast();
        libc::setsockopt(
            two.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            value,
            len,
        )
    };
    assert_eq!(set, 0);
    one.write_all(b"a").expect("written");
    for n in 0..2 {
        let request = Request::RecvMany(RecvManyArgs {
            fd: two.as_raw_fd(),
            group: &raw const group,
        });
        // SAFETY: the group and the sockets live until it is over.
        unsafe { driver.submit(id(n), &request) };
        assert_eq!(next_answer(&mut driver).result, -libc::ENOBUFS, "{n}");
    }
    group.put(number);
}

#[test]
fn io_5_a_plain_ring_accepts_one_after_the_other() {
    let mut driver = plain();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let fd = listener.as_raw_fd();
    for n in 0..3 {
        // SAFETY: it leads nowhere.
        unsafe { driver.submit(id(n), &Request::AcceptMany(AcceptManyArgs { fd })) };
        let _client = TcpStream::connect(listener.local_addr().expect("an address"));
        let answer = next_answer(&mut driver);
        assert!(answer.result >= 0 && !answer.more, "{answer:?}");
        // SAFETY: it was opened for us.
        drop(unsafe { OwnedFd::from_raw_fd(answer.result) });
    }
    // SAFETY: it leads nowhere.
    unsafe { driver.submit(id(9), &Request::AcceptMany(AcceptManyArgs { fd })) };
    nothing(&mut driver);
    driver.cancel(id(9));
    assert_eq!(next_answer(&mut driver).result, -libc::ECANCELED);
}

#[test]
fn io_5_a_plain_ring_receives_when_there_is_something() {
    let mut driver = plain();
    let (mut one, mut two) = UnixStream::pair().expect("two sockets");
    let group = group(1);
    let request = Request::RecvMany(RecvManyArgs {
        fd: two.as_raw_fd(),
        group: &raw const group,
    });
    // SAFETY: the group and the socket live to the end, here and below.
    let submit = |driver: &mut UringDriver, n| unsafe { driver.submit(id(n), &request) };
    submit(&mut driver, 0);
    nothing(&mut driver);
    one.write_all(b"abcdef").expect("written");
    let answer = next_answer(&mut driver);
    assert_eq!((answer.result, answer.more), (4, false));
    let buffer = answer.buffer.expect("a buffer");
    // SAFETY: four bytes of it are filled, and it is ours.
    let bytes = unsafe { std::slice::from_raw_parts(group.buffer_ptr(buffer), 4) };
    assert_eq!(bytes, b"abcd");
    // There is no other.
    submit(&mut driver, 1);
    assert_eq!(next_answer(&mut driver).result, -libc::ENOBUFS);
    group.put(buffer);
    // Somebody else was faster: it waits on.
    submit(&mut driver, 2);
    driver.enable().expect("enabled");
    driver.pour();
    driver.ring.submit().expect("submitted");
    two.read_exact(&mut [0; 2]).expect("read");
    nothing(&mut driver);
    assert_eq!(group.take(), Some(buffer), "it was given back");
    group.put(buffer);
    driver.cancel(id(2));
    assert_eq!(next_answer(&mut driver).result, -libc::ECANCELED);
    // The end needs no buffer.
    drop(one);
    submit(&mut driver, 3);
    let answer = next_answer(&mut driver);
    assert_eq!((answer.result, answer.buffer), (0, None));
    assert!(driver.polled.is_empty());
}
