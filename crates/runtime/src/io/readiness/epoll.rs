//! The poller of Linux: epoll, by the calls of the system themselves. Elsewhere the crate
//! `polling` is in its place, and this has the same shape.
//!
//! A file is reported once for each time it is armed. A wait with a limit is a `ppoll` on the
//! poller, which counts in nanoseconds, and then a look: two calls, where a timer of its own
//! inside epoll takes three more.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::time::Duration;

/// The key of the file that a notification writes to: no number of a file.
const NOTIFIED: u64 = u64::MAX;

/// How many reports one look brings.
const MOST: usize = 1024;

const READABLE: i32 = libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI;
const WRITABLE: i32 = libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR;

/// What is wanted of a file, or reported of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollEvent {
    /// The number of the file.
    pub(super) key: usize,
    pub(super) readable: bool,
    pub(super) writable: bool,
    priority: bool,
}

impl PollEvent {
    pub(super) fn new(key: usize, readable: bool, writable: bool) -> PollEvent {
        PollEvent {
            key,
            readable,
            writable,
            priority: false,
        }
    }

    /// Urgent data are wanted.
    pub(super) fn set_priority(&mut self, wanted: bool) {
        self.priority = wanted;
    }

    fn raw(self) -> libc::epoll_event {
        let mut events = libc::EPOLLONESHOT;
        if self.readable {
            events |= READABLE;
        }
        if self.writable {
            events |= WRITABLE;
        }
        if self.priority {
            events |= libc::EPOLLPRI;
        }
        libc::epoll_event {
            events: events as u32,
            u64: self.key as u64,
        }
    }
}

/// The reports of one look.
pub(super) struct Events(Vec<libc::epoll_event>);

impl Events {
    pub(super) fn new() -> Events {
        Events(Vec::with_capacity(MOST))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = PollEvent> {
        // Copied field by field: the struct is packed.
        let files = self.0.iter().map(|event| (event.u64, event.events as i32));
        files
            .filter(|(key, _)| *key != NOTIFIED)
            .map(|(key, events)| {
                PollEvent::new(key as usize, events & READABLE != 0, events & WRITABLE != 0)
            })
    }
}

/// One epoll, and a file through which other threads wake the thread that waits in it.
pub(super) struct Poller {
    epoll: OwnedFd,
    notified: OwnedFd,
    /// The file was written to, and not read since.
    is_notified: AtomicBool,
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

impl Poller {
    pub(super) fn new() -> io::Result<Poller> {
        // SAFETY: no memory is passed.
        let epoll = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: open, and no other code has it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        // SAFETY: no memory is passed.
        let notified =
            checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: as above.
        let notified = unsafe { OwnedFd::from_raw_fd(notified) };
        let poller = Poller {
            epoll,
            notified,
            is_notified: AtomicBool::new(false),
        };
        let event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: NOTIFIED,
        };
        poller.control(
            libc::EPOLL_CTL_ADD,
            poller.notified.as_raw_fd(),
            Some(event),
        )?;
        Ok(poller)
    }

    fn control(
        &self,
        what: libc::c_int,
        fd: RawFd,
        event: Option<libc::epoll_event>,
    ) -> io::Result<()> {
        let mut event = event;
        let event = event.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: the event is there for the call, which keeps nothing of it.
        checked(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, event) }).map(drop)
    }

    /// Arms a file that the poller does not know.
    ///
    /// # Safety
    /// The file is open.
    pub(super) unsafe fn add(&self, fd: RawFd, event: PollEvent) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, Some(event.raw()))
    }

    /// Arms a file that the poller knows.
    pub(super) fn modify(&self, fd: BorrowedFd<'_>, event: PollEvent) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), Some(event.raw()))
    }

    /// Forgets a file.
    pub(super) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd.as_raw_fd(), None)
    }

    /// Waits until a file is reported, or another thread notifies, for `most` at most.
    pub(super) fn wait(&self, events: &mut Events, most: Option<Duration>) -> io::Result<()> {
        let timeout = match most {
            None => -1,
            Some(Duration::ZERO) => 0,
            Some(most) => {
                self.wait_precisely(most)?;
                0
            }
        };
        events.clear();
        let list = &mut events.0;
        // SAFETY: there is room for so many, and the system has written as many as it says.
        unsafe {
            let epoll = self.epoll.as_raw_fd();
            let room = list.capacity() as libc::c_int;
            let count = libc::epoll_wait(epoll, list.as_mut_ptr(), room, timeout);
            list.set_len(checked(count)? as usize);
        }
        if list.iter().any(|event| event.u64 == NOTIFIED) {
            self.take_notice();
        }
        Ok(())
    }

    /// Waits as `wait` does, by a clock of nanoseconds.
    fn wait_precisely(&self, most: Duration) -> io::Result<()> {
        let mut epoll = libc::pollfd {
            fd: self.epoll.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // A wait too long for the clock ends early, and is begun again by the driver.
        let most = libc::timespec {
            tv_sec: most.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: most.subsec_nanos() as _,
        };
        // SAFETY: both are there for the call; a null mask leaves that of the thread.
        checked(unsafe { libc::ppoll(&mut epoll, 1, &most, ptr::null()) }).map(drop)
    }

    /// The notification has arrived: the next one is written again.
    fn take_notice(&self) {
        let mut count = 0_u64;
        let to = ptr::from_mut(&mut count).cast();
        // SAFETY: eight bytes are there. It does not block; if it fails there was nothing.
        let _ = unsafe { libc::read(self.notified.as_raw_fd(), to, 8) };
        // Pairs with the swap of a thread that does not write: what it brought is seen by the
        // thread that waits, which looks once it is back.
        self.is_notified.swap(false, AcqRel);
    }

    /// Ends the wait of another thread, this one or the next.
    pub(super) fn notify(&self) -> io::Result<()> {
        if self.is_notified.swap(true, AcqRel) {
            return Ok(());
        }
        let one = 1_u64;
        let from = ptr::from_ref(&one).cast();
        // SAFETY: eight bytes are there.
        match unsafe { libc::write(self.notified.as_raw_fd(), from, 8) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    /// A notification ends one wait, the next or the one that goes on, and no other; many are one.
    #[test]
    fn a_notification_ends_one_wait() {
        let poller = Poller::new().expect("a poller");
        let mut events = Events::new();
        for _ in 0..3 {
            let begun = Instant::now();
            poller.notify().expect("a notification");
            poller.notify().expect("a notification");
            poller.wait(&mut events, LONG).expect("it is ended");
            assert!(begun.elapsed() < LONG.unwrap(), "it was not notified");
            assert_eq!(events.iter().count(), 0, "it is no report of a file");
            let begun = Instant::now();
            let most = Duration::from_micros(1500);
            poller.wait(&mut events, Some(most)).expect("a wait");
            assert!(begun.elapsed() >= most, "it was ended twice");
        }
        std::thread::scope(|s| {
            s.spawn(|| poller.notify().expect("a notification"));
            let begun = Instant::now();
            poller.wait(&mut events, LONG).expect("it is ended");
            assert!(begun.elapsed() < LONG.unwrap(), "it was not notified");
        });
    }

    /// A file is reported once for each time it is armed, with what is true of it.
    #[test]
    fn a_file_is_reported_once() {
        let poller = Poller::new().expect("a poller");
        let mut events = Events::new();
        let (reader, writer) = io::pipe().expect("a pipe");
        let (read, write) = (reader.as_raw_fd() as usize, writer.as_raw_fd() as usize);
        // SAFETY: both are open.
        unsafe {
            let want = PollEvent::new(read, true, false);
            poller.add(read as RawFd, want).expect("armed");
            let want = PollEvent::new(write, false, true);
            poller.add(write as RawFd, want).expect("armed");
            let again = poller.add(read as RawFd, want).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        }
        let mut look = || {
            poller
                .wait(&mut events, Some(Duration::ZERO))
                .expect("a look");
            let all = events.iter().map(|e| (e.key, e.readable, e.writable));
            all.collect::<Vec<_>>()
        };
        assert_eq!(look(), [(write, false, true)]);
        assert_eq!(look(), []);
        drop(writer);
        assert_eq!(look(), [(read, true, true)], "a hang-up is both");
        assert_eq!(look(), []);
        let want = PollEvent::new(read, true, false);
        poller.modify(reader.as_fd(), want).expect("armed");
        assert_eq!(look(), [(read, true, true)]);
        poller.delete(reader.as_fd()).expect("forgotten");
        let gone = poller.modify(reader.as_fd(), want).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
