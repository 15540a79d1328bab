//! The ring driver by itself.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::*;
use crate::io::region;
use crate::io::request::{Offset, PollArgs, ReadArgs};

fn number(index: u32) -> OpId {
    OpId {
        index,
        generation: 0,
    }
}

/// A peek does not go into the kernel for what was submitted, but for what
/// the kernel says is over.
#[test]
fn a_peek_collects_and_hands_nothing_over() {
    for kernel in [Kernel::New, Kernel::Fair, Kernel::Old] {
        // This kernel may be older than that.
        if let Ok(ring) = UringDriver::of(kernel) {
            peek(ring);
        }
    }
}

fn peek(mut ring: UringDriver) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut buf = [0; 8];
    let read = Request::Read(ReadArgs {
        fd: reader.as_raw_fd(),
        buf: buf.as_mut_ptr(),
        len: 8,
        offset: Offset::Current,
    });
    let mut answers = Vec::new();
    // SAFETY: the buffer outlives it: it is over at the end.
    unsafe { ring.submit(number(1), &read) };
    ring.poll(WaitMode::No, &mut answers).expect("a turn");
    writer.write_all(b"over").expect("room");
    ring.poll(WaitMode::Peek, &mut answers).expect("a turn");
    assert_eq!(answers.len(), 1, "the kernel has said so");
    assert_eq!((answers[0].id, answers[0].result), (number(1), 4));
    answers.clear();
    // SAFETY: it leads nowhere.
    unsafe { ring.submit(number(2), &Request::Nop(NopArgs)) };
    ring.poll(WaitMode::Peek, &mut answers).expect("a turn");
    assert!(answers.is_empty(), "it was handed over");
    ring.poll(WaitMode::No, &mut answers).expect("a turn");
    assert_eq!(answers.last().map(|over| over.id), Some(number(2)));
}

/// More is over than there is room for in the completion queue: the kernel
/// keeps the rest, and all of it comes.
#[test]
fn io_3_what_the_completion_queue_has_no_room_for_comes_later() {
    // One whose kernel does not wait for us before it completes.
    let Ok(mut ring) = UringDriver::of(Kernel::Old) else {
        return;
    };
    let room = ring.ring.params().cq_entries();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let poll = Request::Poll(PollArgs {
        fd: reader.as_raw_fd(),
        events: libc::POLLIN as u32,
    });
    let mut answers = Vec::new();
    for index in 0..4 * room {
        // SAFETY: it leads to no memory.
        unsafe { ring.submit(number(index), &poll) };
    }
    ring.poll(WaitMode::No, &mut answers).expect("a turn");
    assert!(answers.is_empty(), "nobody has written");
    // All of them at once.
    drop(writer);
    assert!(ring.ring.submission().cq_overflow(), "there was room");
    let mut turns = 0;
    while answers.len() < 4 * room as usize {
        let most = std::time::Duration::from_secs(5);
        ring.poll(WaitMode::AtMost(most), &mut answers)
            .expect("a turn");
        turns += 1;
        assert!(turns < 1000, "{} of {} came", answers.len(), 4 * room);
    }
    let mut ids: Vec<u32> = answers.iter().map(|over| over.id.index).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..4 * room), "each of them once");
}

/// One that waits for others, and nops until the submission queue is full: none
/// of these has reached the kernel. How many nops they are.
fn fill_queue(ring: &mut UringDriver, fd: RawFd) -> usize {
    let poll = Request::Poll(PollArgs {
        fd,
        events: libc::POLLIN as u32,
    });
    // SAFETY: here and below, it leads to no memory.
    unsafe { ring.submit(number(0), &poll) };
    let mut answers = Vec::new();
    ring.poll(WaitMode::No, &mut answers).expect("a turn");
    assert!(answers.is_empty(), "nobody has written");
    let room = ring.room();
    for index in 1..=room {
        // SAFETY: as above.
        unsafe { ring.submit(number(index as u32), &Request::Nop(NopArgs)) };
    }
    assert_eq!((ring.room(), ring.spill.len()), (0, 0));
    room
}

/// All of them are over, each once, and the one that waited was cancelled.
fn cancelled(mut ring: UringDriver, nops: usize) {
    let mut answers = Vec::new();
    let mut turns = 0;
    while answers.len() < nops + 1 {
        let most = std::time::Duration::from_secs(1);
        ring.poll(WaitMode::AtMost(most), &mut answers)
            .expect("a turn");
        turns += 1;
        assert!(turns < 20, "{} of {} came", answers.len(), nops + 1);
    }
    answers.sort_unstable_by_key(|over| over.id.index);
    let ids = answers.iter().map(|over| over.id.index as usize);
    assert!(ids.eq(0..=nops), "each of them once");
    assert_eq!(answers[0].result, -libc::ECANCELED);
}

/// The submission queue has no room for a cancel: it reaches the kernel all
/// the same.
#[test]
fn io_3_a_cancel_finds_the_submission_queue_full() {
    for kernel in [Kernel::New, Kernel::Fair, Kernel::Old] {
        let Ok(mut ring) = UringDriver::of(kernel) else {
            continue;
        };
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let nops = fill_queue(&mut ring, reader.as_raw_fd());
        ring.cancel(number(0));
        cancelled(ring, nops);
    }
}

/// And the kernel takes nothing at that moment: the cancel is kept, and goes
/// with the next turn.
#[test]
fn io_3_a_cancel_waits_until_the_kernel_takes_it() {
    // The kernel takes nothing from a thread that the ring does not belong to.
    let Ok(mut ring) = UringDriver::of(Kernel::New) else {
        return;
    };
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let nops = fill_queue(&mut ring, reader.as_raw_fd());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            ring.cancel(number(0));
            assert_eq!(ring.spill.len(), 1, "the kernel has taken it");
        });
    });
    cancelled(ring, nops);
}

/// A region is registered part by part, as they are used; and one that was
/// refused, because there was no room, when there is some.
#[test]
fn parts_are_registered_and_tried_again() {
    let page = region::PAGE;
    let Ok(mut ring) = UringDriver::new() else {
        return;
    };
    let listed = region::ListedRegion::in_parts(70 * page, page, page);
    let start = listed.region().start().as_ptr().cast_const();
    let at = |ring: &mut UringDriver, n: usize| {
        ring.slot(start.wrapping_add(n * page), page as u32, Offset::At(0))
    };
    assert_ne!(at(&mut ring, 0), None);
    assert_ne!(at(&mut ring, 1), at(&mut ring, 0), "one of its own");
    assert_eq!(listed.region().rings(), 1);
    let across = ring.slot(start.wrapping_add(10), page as u32, Offset::At(0));
    assert_eq!(across, None, "it lies in two");
    // Another one takes a slot of the 64.
    let other = region::ListedRegion::zeroed(page, page);
    let offset = other.region().start().as_ptr();
    assert_ne!(ring.slot(offset, 1, Offset::At(0)), None);
    let registered = (0..70).filter(|n| at(&mut ring, *n).is_some());
    assert_eq!(registered.count(), 63);
    assert_eq!(at(&mut ring, 69), None, "there is no slot");
    drop(other);
    assert_ne!(at(&mut ring, 69), None, "there is one now");
    let region = listed.region();
    assert_eq!(region.rings(), 1);
    drop(ring);
    assert_eq!(region.rings(), 0);
}

/// The kernel works on the pages that it was shown. So what a ring has
/// registered stays where it is until the ring has taken it back.
#[test]
fn a_ring_keeps_what_it_has_registered() {
    for kernel in [Kernel::New, Kernel::Fair, Kernel::Old] {
        if let Ok(ring) = UringDriver::of(kernel) {
            register(ring);
        }
    }
}

fn register(mut ring: UringDriver) {
    let pool = crate::io::registered(2, region::PAGE);
    let buf = pool.try_take().expect("one of two");
    let (_, listed) = region::listed();
    let mine = listed.iter().find(|other| other.holds(buf.as_ptr(), 1));
    let memory = Arc::downgrade(mine.expect("it is on the list"));
    drop(listed);
    let page = region::PAGE as u32;
    let at = |ring: &mut UringDriver, ptr, len| ring.slot(ptr, len, Offset::At(0));
    let Some(slot) = at(&mut ring, buf.as_ptr(), page) else {
        panic!("this kernel registers nothing");
    };
    assert_eq!(pool.rings(), 1);
    let within = buf.as_ptr().wrapping_add(100);
    assert_eq!(at(&mut ring, within, 10), Some(slot));
    assert_eq!(ring.slot(within, 10, Offset::Current), None);
    let other = [0_u8; 10];
    assert_eq!(at(&mut ring, other.as_ptr(), 10), None);
    drop(pool);
    ring.poll(WaitMode::No, &mut Vec::new()).expect("a turn");
    assert!(at(&mut ring, within, 10).is_some(), "a buffer is out");
    drop(buf);
    assert!(memory.upgrade().is_some(), "the ring still knows it");
    ring.poll(WaitMode::No, &mut Vec::new()).expect("a turn");
    assert!(memory.upgrade().is_none(), "nobody knows it");
    // The slot is free again.
    let pool = crate::io::registered(2, region::PAGE);
    let buf = pool.try_take().expect("one of two");
    assert_eq!(at(&mut ring, buf.as_ptr(), page), Some(slot));
    drop(ring);
    assert_eq!(pool.rings(), 0);
}

/// io-4: a kernel that has no memory to wait in is not asked again without a pause, and a
/// notification is heard all the same. The system call is made to answer so on this
/// thread.
#[test]
fn io_4_a_kernel_that_is_short_of_memory_is_asked_once_in_a_while() {
    for errno in [libc::EAGAIN, libc::ENOMEM] {
        let tried = std::thread::spawn(move || {
            let Ok(mut ring) = UringDriver::new() else {
                return;
            };
            let mut answers = Vec::new();
            ring.poll(WaitMode::No, &mut answers).expect("it works");
            if !refuse_to_enter(errno) {
                return;
            }
            let began = Instant::now();
            for _ in 0..20 {
                ring.poll(WaitMode::Forever, &mut answers)
                    .expect("it is tried again");
            }
            assert!(began.elapsed() >= Duration::from_millis(10), "it spins");
        });
        tried.join().expect("no panic");
    }
}

/// From now on `io_uring_enter` fails with `errno` on this thread. False if the system does
/// not let us.
fn refuse_to_enter(errno: libc::c_int) -> bool {
    let op = |code: u32, jt: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut filter = [
        // The number of the call, which stands first.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_io_uring_enter as u32,
        ),
        op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        op(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | errno as u32,
        ),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter is read during the call, and concerns this thread only.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    }
}
