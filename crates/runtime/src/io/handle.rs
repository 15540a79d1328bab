//! The hub: the stations of one host, and the way to them.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kinfolk_core::{IoGauges, host};
use socket2::{Domain, Protocol, SockAddr, Type};

use super::driver::{Driver, Landed};
use super::in_flight::{GONE, Landing};
use super::mailbox::{Desk, Message};
use super::request::Request;
use super::thread_io::{self, Station};

/// How many operations a station has with the system at once, unless the host
/// says otherwise. What waits for another side does not count.
pub const IN_FLIGHT: usize = 16 * 1024;

/// What the virtual clock hears of operations.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// One begins that ends by itself: the clock waits for it.
    Begun,
    /// One of those is over.
    Over,
    /// One that waits for another side was begun, or has answered.
    Stirred,
}

/// What can be set on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SocketOption {
    /// Small messages go out at once.
    NoDelay(bool),
    /// An address that was used a moment ago may be used again.
    ReuseAddress(bool),
    /// Several sockets may listen at one address.
    ReusePort(bool),
    /// Messages may go to everybody.
    Broadcast(bool),
    /// Of IPv6 addresses only those.
    OnlyV6(bool),
}

/// What is asked of the system without waiting.
pub trait System: Send + Sync {
    /// Closes a file that nobody uses any more.
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

    /// True if its files are those of this machine: then others' files can be
    /// waited for, processes started, signals heard.
    fn is_real(&self) -> bool {
        false
    }
}

/// What makes the drivers, one for each station, when there is the first
/// operation.
pub type MakeDrivers = Box<dyn Fn(usize) -> io::Result<Vec<Box<dyn Driver>>> + Send + Sync>;

/// The drivers that stations have not taken yet, by station.
type Untaken = Vec<Option<Box<dyn Driver>>>;

/// What the drivers of a hub have in common.
#[derive(Clone, Copy)]
struct About {
    name: &'static str,
    nonblocking: bool,
}

/// The stations of one host.
pub struct Hub {
    desks: Box<[Desk]>,
    make: MakeDrivers,
    /// None before the first operation; of each station until it takes its own.
    drivers: Mutex<Option<Untaken>>,
    about: OnceLock<About>,
    /// Wakes the thread of a station, wherever it sleeps.
    wake: Box<dyn Fn(usize) + Send + Sync>,
    system: Box<dyn System>,
    count: OnceLock<Box<dyn Fn(Step) + Send + Sync>>,
    most_in_flight: usize,
    /// Where the next operation from outside goes.
    next: AtomicUsize,
}

impl Hub {
    /// A hub with this many stations. `wake` wakes the thread of one, wherever
    /// it sleeps: in its driver it is woken by [`ring`](Hub::ring).
    pub fn new(
        stations: usize,
        make: MakeDrivers,
        system: Box<dyn System>,
        most_in_flight: usize,
        wake: Box<dyn Fn(usize) + Send + Sync>,
    ) -> Arc<Hub> {
        Arc::new(Hub {
            desks: (0..stations).map(|_| Desk::default()).collect(),
            make,
            drivers: Mutex::new(None),
            about: OnceLock::new(),
            wake,
            system,
            count: OnceLock::new(),
            most_in_flight: most_in_flight.max(1),
            next: AtomicUsize::new(0),
        })
    }

    /// The hub of the job that is polled on this thread.
    ///
    /// # Errors
    /// Outside every job, and where the host has none.
    pub(crate) fn current() -> io::Result<Arc<Hub>> {
        let found = host::current(|host| {
            let hub = host.io()?.downcast_ref::<Arc<Hub>>()?;
            Some(hub.clone())
        });
        match found {
            Some(Some(hub)) => Ok(hub),
            Some(None) => Err(io::Error::other(
                "this host carries out no i/o: use its own (on tokio, tokio's, with `or_cancel`)",
            )),
            None => Err(io::Error::other(
                "i/o was begun outside every job: begin it in a task of a runtime",
            )),
        }
    }

    pub(crate) fn desk(&self, n: usize) -> &Desk {
        &self.desks[n]
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

    /// Ends the wait of the thread of station `n` in its driver.
    pub fn ring(&self, n: usize) {
        self.desks[n].ring();
    }

    /// The name of the driver; none before the first operation.
    pub fn driver_name(&self) -> Option<&'static str> {
        self.about.get().map(|about| about.name)
    }

    /// What the operations of all stations have come to.
    pub fn gauges(&self) -> IoGauges {
        let mut sum = IoGauges {
            driver: self.driver_name(),
            ..IoGauges::default()
        };
        for desk in &self.desks {
            desk.counts().add_to(&mut sum);
        }
        sum
    }

    /// There are drivers, or why not.
    ///
    /// # Errors
    /// As [`take_driver`](Hub::take_driver).
    pub(crate) fn ready(&self) -> io::Result<()> {
        match self.about.get() {
            Some(_) => Ok(()),
            None => self.with_drivers(|_| {}),
        }
    }

    /// True if sockets and pipes must not block.
    ///
    /// # Errors
    /// As [`take_driver`](Hub::take_driver).
    pub(crate) fn nonblocking(&self) -> io::Result<bool> {
        self.with_drivers(|_| {})?;
        Ok(self.about.get().is_some_and(|about| about.nonblocking))
    }

    /// The driver of station `n`, which is its own from now on.
    ///
    /// # Errors
    /// If the system has none for us now; the next operation asks again.
    pub(crate) fn take_driver(&self, n: usize) -> io::Result<Box<dyn Driver>> {
        self.with_drivers(|drivers| drivers[n].take())
            .map(|driver| driver.expect("a station takes its driver once"))
    }

    fn with_drivers<R>(&self, f: impl FnOnce(&mut Untaken) -> R) -> io::Result<R> {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        let drivers = match &mut *drivers {
            Some(drivers) => drivers,
            none => {
                let made = (self.make)(self.desks.len())?;
                assert_eq!(made.len(), self.desks.len(), "a driver for each station");
                for (desk, driver) in self.desks.iter().zip(&made) {
                    desk.set_alarm(driver.alarm());
                    let _ = self.about.set(About {
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

    /// With virtual time: `count` is called at each [step](Step) of an operation.
    pub(crate) fn count_with(&self, count: Box<dyn Fn(Step) + Send + Sync>) {
        let _ = self.count.set(count);
    }

    /// An operation has answered.
    pub(crate) fn answered(&self, landing: Arc<dyn Landing>, landed: Landed) {
        let Some(count) = self.count.get() else {
            landing.answered(landed);
            return;
        };
        let counted = !landed.more && landing.ticket().uncount();
        if !counted {
            // Before whom it wakes can rest again.
            count(Step::Stirred);
        }
        landing.answered(landed);
        if counted {
            count(Step::Over);
        }
    }

    /// An operation is over that never came to the driver.
    pub(crate) fn land(&self, landing: Arc<dyn Landing>, result: i32) {
        let counted = landing.ticket().uncount();
        landing.land(result);
        if counted && let Some(count) = self.count.get() {
            count(Step::Over);
        }
    }

    /// The station of this thread, or any.
    pub(crate) fn choose(self: &Arc<Hub>) -> usize {
        thread_io::here(self, Station::n).unwrap_or_else(|| self.any())
    }

    /// The station for an operation from outside.
    fn any(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.desks.len()
    }

    /// The answer to `request`, if this thread's station can give it here and now.
    ///
    /// # Safety
    /// What the request leads to stays where it is, and nobody else uses it,
    /// until this returns.
    pub(crate) unsafe fn at_once(self: &Arc<Hub>, request: &Request) -> Option<i32> {
        if !request.may_go_at_once() {
            return None;
        }
        // SAFETY: as the caller says.
        let answer = thread_io::here(self, |station| unsafe { station.at_once(request) })??;
        if let Some(count) = self.count.get() {
            count(Step::Stirred);
        }
        Some(answer)
    }

    /// Begins an operation, on this thread's station or on any.
    #[inline]
    pub(crate) fn submit(self: &Arc<Hub>, landing: Arc<dyn Landing>, request: &Request) {
        self.count_begun(&*landing, request);
        // Looked up once: this is the way of nearly all.
        let here = |station: &Station, landing| station.submit(landing, request);
        if let Err(landing) = thread_io::here_with(self, landing, here) {
            self.leave_begun(self.any(), landing, request);
        }
    }

    /// Begins an operation on station `n`.
    pub(crate) fn submit_to(
        self: &Arc<Hub>,
        n: usize,
        landing: Arc<dyn Landing>,
        request: &Request,
    ) {
        self.count_begun(&*landing, request);
        let here = |station: &Station, landing| match station.n() == n {
            true => {
                station.submit(landing, request);
                None
            }
            false => Some(landing),
        };
        let elsewhere = match thread_io::here_with(self, landing, here) {
            Ok(elsewhere) => elsewhere,
            Err(landing) => Some(landing),
        };
        if let Some(landing) = elsewhere {
            self.leave_begun(n, landing, request);
        }
    }

    /// The clock waits for what ends by itself.
    #[inline]
    fn count_begun(&self, landing: &dyn Landing, request: &Request) {
        let Some(count) = self.count.get() else {
            return;
        };
        if request.ends_by_itself() {
            landing.ticket().count();
            count(Step::Begun);
        } else {
            count(Step::Stirred);
        }
    }

    fn leave_begun(&self, n: usize, landing: Arc<dyn Landing>, request: &Request) {
        landing.ticket().set_station(n);
        self.leave(n, Message::Submit(landing, *request));
    }

    /// Asks for an operation to be ended early.
    pub(crate) fn cancel(self: &Arc<Hub>, landing: Arc<dyn Landing>) {
        let n = landing.ticket().station();
        let here = thread_io::here(self, |station| {
            let own = station.n() == n;
            if own {
                station.cancel(&*landing);
            }
            own
        });
        if here != Some(true) {
            self.leave(n, Message::Cancel(landing));
        }
    }

    fn leave(&self, n: usize, message: Message) {
        match self.desks[n].leave(message) {
            Ok(()) => (self.wake)(n),
            Err(refused) => self.refuse(refused),
        }
    }

    /// The station is closed. What was submitted before ends by itself.
    pub(crate) fn refuse(&self, message: Message) {
        if let Message::Submit(landing, _) = message {
            self.land(landing, GONE);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("stations", &self.desks.len())
            .field("driver", &self.driver_name())
            .finish_non_exhaustive()
    }
}
