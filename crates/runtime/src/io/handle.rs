//! The handle: the threads of one host, and the way to them.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kinfolk_core::{IoGauges, host};
use socket2::{Domain, Protocol, SockAddr, Type};

use super::driver::{Answer, Driver};
use super::in_flight::{GONE, InFlight};
use super::mailbox::{Mailbox, Message};
use super::request::Request;
use super::stdin::Input;
use super::thread_io::{self, ThreadIo};

/// How many operations a thread has with the system at once, unless the host
/// says otherwise. What waits for another side does not count.
pub const IN_FLIGHT: usize = 16 * 1024;

/// What the virtual clock hears of operations.
#[derive(Clone, Copy)]
pub(crate) enum ClockEvent {
    /// One begins that ends by itself: the clock waits for it.
    Begun,
    /// One of those is over.
    Over,
    /// One that waits for another side was begun, or has answered.
    Stirred,
}

/// An option of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SocketOption {
    /// Small messages are sent at once (`TCP_NODELAY`).
    NoDelay(bool),
    /// An address that was used a moment ago may be used again (`SO_REUSEADDR`).
    ReuseAddress(bool),
    /// Several sockets may listen at one address (`SO_REUSEPORT`).
    ReusePort(bool),
    /// Datagrams may be sent to a broadcast address (`SO_BROADCAST`).
    Broadcast(bool),
    /// An IPv6 socket takes no IPv4 connections (`IPV6_V6ONLY`).
    OnlyV6(bool),
}

/// What is asked of the system without waiting.
pub trait System: Send + Sync {
    /// Closes a file that no operation uses any more.
    fn close(&self, fd: RawFd);

    /// A pipe: the end to read from, and the one to write to.
    ///
    /// # Errors
    /// Those of the system.
    fn pipe(&self, nonblocking: bool) -> io::Result<(RawFd, RawFd)>;

    /// A socket.
    ///
    /// # Errors
    /// Those of the system.
    fn socket(
        &self,
        domain: Domain,
        kind: Type,
        protocol: Option<Protocol>,
        nonblocking: bool,
    ) -> io::Result<RawFd>;

    /// Two sockets that are connected with each other.
    ///
    /// # Errors
    /// Those of the system.
    fn socket_pair(&self, kind: Type, nonblocking: bool) -> io::Result<(RawFd, RawFd)>;

    /// Gives a socket an address.
    ///
    /// # Errors
    /// Those of the system.
    fn bind(&self, fd: RawFd, addr: &SockAddr) -> io::Result<()>;

    /// A socket takes connections from now on.
    ///
    /// # Errors
    /// Those of the system.
    fn listen(&self, fd: RawFd, backlog: i32) -> io::Result<()>;

    /// A socket takes no more connections, though an operation still uses it;
    /// its address is free for others. Nothing where that happens by itself.
    fn stop_listening(&self, fd: RawFd) {
        let _ = fd;
    }

    /// The address of a socket.
    ///
    /// # Errors
    /// Those of the system.
    fn local_addr(&self, fd: RawFd) -> io::Result<SockAddr>;

    /// The address of the other side.
    ///
    /// # Errors
    /// Those of the system.
    fn peer_addr(&self, fd: RawFd) -> io::Result<SockAddr>;

    /// Sets something on a socket.
    ///
    /// # Errors
    /// Those of the system.
    fn set_option(&self, fd: RawFd, option: SocketOption) -> io::Result<()>;

    /// A file that comes from elsewhere blocks or does not, as the driver wants.
    ///
    /// # Errors
    /// Those of the system, and if it has no such files.
    fn adopt(&self, fd: RawFd, nonblocking: bool) -> io::Result<()>;

    /// Receives what is there just now, and does not wait for it.
    ///
    /// # Errors
    /// Those of the system; `WouldBlock` if there is nothing.
    fn recv_now(&self, fd: RawFd, to: &mut [u8]) -> io::Result<usize>;

    /// Makes a file longer or shorter. It may block: it is called on a thread
    /// that may.
    ///
    /// # Errors
    /// Those of the system; unless it says otherwise, it cannot.
    fn set_len(&self, fd: RawFd, len: u64) -> io::Result<()> {
        let _ = (fd, len);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The names in a directory, with what each is as in `st_mode`, 0 if that is
    /// not known. It may block: it is called on a thread that may.
    ///
    /// # Errors
    /// Those of the system; unless it says otherwise, it cannot.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, u32)>> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Its own standard input; none if that of the process is read.
    fn stdin(&self) -> Option<Arc<Input>> {
        None
    }

    /// True if its files are those of this machine: then others' files can be
    /// waited for, processes started, signals heard.
    fn is_real(&self) -> bool {
        false
    }
}

/// What makes the drivers, one for each thread, when there is the first
/// operation.
pub type MakeDrivers = Box<dyn Fn(usize) -> io::Result<Vec<Box<dyn Driver>>> + Send + Sync>;

/// The drivers that threads have not taken yet, by thread.
type Untaken = Vec<Option<Box<dyn Driver>>>;

/// What the drivers of a handle have in common.
#[derive(Clone, Copy)]
struct DriverInfo {
    name: &'static str,
    nonblocking: bool,
}

/// The way to the i/o drivers of one host's threads.
pub struct IoHandle {
    mailboxes: Box<[Mailbox]>,
    make: MakeDrivers,
    /// None before the first operation; of each thread until it takes its own.
    drivers: Mutex<Option<Untaken>>,
    about: OnceLock<DriverInfo>,
    /// Wakes the thread of a thread, wherever it sleeps.
    wake: Box<dyn Fn(usize) + Send + Sync>,
    system: Box<dyn System>,
    count: OnceLock<Box<dyn Fn(ClockEvent) + Send + Sync>>,
    most_in_flight: usize,
    /// Where the next operation from outside goes.
    next: AtomicUsize,
    names: super::host_names::HostNames,
}

impl IoHandle {
    /// A handle with this many threads. `wake` wakes the thread of one, wherever
    /// it sleeps: in its driver it is woken by [`ring`](IoHandle::notify).
    pub fn new(
        threads: usize,
        make: MakeDrivers,
        system: Box<dyn System>,
        most_in_flight: usize,
        wake: Box<dyn Fn(usize) + Send + Sync>,
    ) -> Arc<IoHandle> {
        Arc::new(IoHandle {
            mailboxes: (0..threads).map(|_| Mailbox::default()).collect(),
            make,
            drivers: Mutex::new(None),
            about: OnceLock::new(),
            wake,
            system,
            count: OnceLock::new(),
            most_in_flight: most_in_flight.max(1),
            next: AtomicUsize::new(0),
            names: super::host_names::HostNames::default(),
        })
    }

    /// The handle of the job that is polled on this thread.
    ///
    /// # Errors
    /// Outside every job, and where the host has none.
    pub(crate) fn current() -> io::Result<Arc<IoHandle>> {
        let found = host::current(|host| {
            let handle = host.io()?.downcast_ref::<Arc<IoHandle>>()?;
            Some(handle.clone())
        });
        match found {
            Some(Some(handle)) => Ok(handle),
            Some(None) => Err(io::Error::other(
                "this host carries out no i/o: use its own (on tokio, tokio's, with `or_cancel`)",
            )),
            None => Err(io::Error::other(
                "i/o was begun outside any job: begin it in a task of a runtime",
            )),
        }
    }

    pub(crate) fn mailbox(&self, n: usize) -> &Mailbox {
        &self.mailboxes[n]
    }

    /// The names of hosts that were looked up.
    pub(crate) fn names(&self) -> &super::host_names::HostNames {
        &self.names
    }

    pub(crate) fn most_in_flight(&self) -> usize {
        self.most_in_flight
    }

    pub(crate) fn system(&self) -> &dyn System {
        &*self.system
    }

    /// # Errors
    /// If this is a simulation, which has no `what`.
    pub(crate) fn must_be_real(&self, what: &str) -> io::Result<()> {
        match self.system.is_real() {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("the simulation has no {what}"),
            )),
        }
    }

    /// Ends the wait of the thread of thread `n` in its driver.
    pub fn notify(&self, n: usize) {
        self.mailboxes[n].notify();
    }

    /// The name of the driver; none before the first operation.
    pub fn driver_name(&self) -> Option<&'static str> {
        self.about.get().map(|about| about.name)
    }

    /// How the operations of all threads have ended.
    pub fn gauges(&self) -> IoGauges {
        let mut sum = IoGauges {
            driver: self.driver_name(),
            ..IoGauges::default()
        };
        for mailbox in &self.mailboxes {
            mailbox.counts().add_to(&mut sum);
        }
        sum
    }

    /// There are drivers, or why not.
    ///
    /// # Errors
    /// As [`take_driver`](IoHandle::take_driver).
    pub(crate) fn ready(&self) -> io::Result<()> {
        match self.about.get() {
            Some(_) => Ok(()),
            None => self.with_drivers(|_| {}),
        }
    }

    /// True if sockets and pipes must not block.
    ///
    /// # Errors
    /// As [`take_driver`](IoHandle::take_driver).
    pub(crate) fn nonblocking(&self) -> io::Result<bool> {
        self.with_drivers(|_| {})?;
        Ok(self.about.get().is_some_and(|about| about.nonblocking))
    }

    /// The driver of thread `n`, which is its own from now on.
    ///
    /// # Errors
    /// If the system has none for us now; the next operation asks again.
    pub(crate) fn take_driver(&self, n: usize) -> io::Result<Box<dyn Driver>> {
        self.with_drivers(|drivers| drivers[n].take())
            .map(|driver| driver.expect("a thread takes its driver once"))
    }

    fn with_drivers<R>(&self, f: impl FnOnce(&mut Untaken) -> R) -> io::Result<R> {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let drivers = match &mut *drivers {
            Some(drivers) => drivers,
            none => {
                let made = (self.make)(self.mailboxes.len())?;
                assert_eq!(made.len(), self.mailboxes.len(), "a driver for each thread");
                for (mailbox, driver) in self.mailboxes.iter().zip(&made) {
                    mailbox.set_notifier(driver.notifier());
                    let _ = self.about.set(DriverInfo {
                        name: driver.name(),
                        nonblocking: driver.wants_nonblocking(),
                    });
                }
                none.insert(made.into_iter().map(Some).collect())
            }
        };
        Ok(f(drivers))
    }

    /// True with virtual time.
    pub(crate) fn counts_for_clock(&self) -> bool {
        self.count.get().is_some()
    }

    /// With virtual time: `count` is called at each [step](ClockEvent) of an operation.
    pub(crate) fn count_with(&self, count: Box<dyn Fn(ClockEvent) + Send + Sync>) {
        let _ = self.count.set(count);
    }

    /// An operation has answered.
    pub(crate) fn answered(&self, in_flight: Arc<dyn InFlight>, answer: Answer) {
        let Some(count) = self.count.get() else {
            in_flight.answered(answer);
            return;
        };
        let counted = !answer.more && in_flight.id_cell().uncount();
        if !counted {
            // Before the task that it wakes can rest again.
            count(ClockEvent::Stirred);
        }
        in_flight.answered(answer);
        if counted {
            count(ClockEvent::Over);
        }
    }

    /// An operation is over that never reached the driver.
    pub(crate) fn complete(&self, in_flight: Arc<dyn InFlight>, result: i32) {
        let counted = in_flight.id_cell().uncount();
        in_flight.complete(result);
        if counted && let Some(count) = self.count.get() {
            count(ClockEvent::Over);
        }
    }

    /// The thread of this thread, or any.
    pub(crate) fn choose(self: &Arc<IoHandle>) -> usize {
        thread_io::here(self, ThreadIo::n).unwrap_or_else(|| self.any())
    }

    /// The thread for an operation from outside.
    fn any(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.mailboxes.len()
    }

    /// The answer to `request`, if this thread's thread can give it here and now.
    ///
    /// # Safety
    /// The memory that the request points to does not move, and no other code uses it,
    /// until this returns.
    pub(crate) unsafe fn at_once(self: &Arc<IoHandle>, request: &Request) -> Option<i32> {
        if !request.may_go_at_once() {
            return None;
        }
        // SAFETY: as the caller says.
        let answer = thread_io::here(self, |thread| unsafe { thread.at_once(request) })??;
        if let Some(count) = self.count.get() {
            count(ClockEvent::Stirred);
        }
        Some(answer)
    }

    /// Begins an operation, on this thread's thread or on any.
    #[inline]
    pub(crate) fn submit(self: &Arc<IoHandle>, in_flight: Arc<dyn InFlight>, request: &Request) {
        self.count_begun(&*in_flight, request);
        // Looked up once: this is the way of nearly all.
        let here = |thread: &ThreadIo, in_flight| thread.submit(in_flight, request);
        if let Err(in_flight) = thread_io::here_with(self, in_flight, here) {
            self.leave_begun(self.any(), in_flight, request);
        }
    }

    /// Begins an operation on thread `n`.
    pub(crate) fn submit_to(
        self: &Arc<IoHandle>,
        n: usize,
        in_flight: Arc<dyn InFlight>,
        request: &Request,
    ) {
        self.count_begun(&*in_flight, request);
        let here = |thread: &ThreadIo, in_flight| match thread.n() == n {
            true => {
                thread.submit(in_flight, request);
                None
            }
            false => Some(in_flight),
        };
        let elsewhere = match thread_io::here_with(self, in_flight, here) {
            Ok(elsewhere) => elsewhere,
            Err(in_flight) => Some(in_flight),
        };
        if let Some(in_flight) = elsewhere {
            self.leave_begun(n, in_flight, request);
        }
    }

    /// The clock waits for what ends by itself.
    #[inline]
    fn count_begun(&self, in_flight: &dyn InFlight, request: &Request) {
        let Some(count) = self.count.get() else {
            return;
        };
        if request.ends_by_itself() {
            in_flight.id_cell().count();
            count(ClockEvent::Begun);
        } else {
            count(ClockEvent::Stirred);
        }
    }

    fn leave_begun(&self, n: usize, in_flight: Arc<dyn InFlight>, request: &Request) {
        in_flight.id_cell().set_thread(n);
        self.leave(n, Message::Submit(in_flight, *request));
    }

    /// Asks for an operation to be ended early.
    pub(crate) fn cancel(self: &Arc<IoHandle>, in_flight: Arc<dyn InFlight>) {
        let n = in_flight.id_cell().thread();
        let here = thread_io::here(self, |thread| {
            let own = thread.n() == n;
            if own {
                thread.cancel(&*in_flight);
            }
            own
        });
        if here != Some(true) {
            self.leave(n, Message::Cancel(in_flight));
        }
    }

    fn leave(&self, n: usize, message: Message) {
        match self.mailboxes[n].leave(message) {
            Ok(()) => (self.wake)(n),
            Err(refused) => self.refuse(refused),
        }
    }

    /// The thread is closed. What was submitted before ends by itself.
    pub(crate) fn refuse(&self, message: Message) {
        if let Message::Submit(in_flight, _) = message {
            self.complete(in_flight, GONE);
        }
    }
}

impl fmt::Debug for IoHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoHandle")
            .field("threads", &self.mailboxes.len())
            .field("driver", &self.driver_name())
            .finish_non_exhaustive()
    }
}
