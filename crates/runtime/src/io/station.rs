//! A station: the operations of one thread, and the driver that carries them
//! out. Its own thread reaches it directly; others leave word at its desk.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinfolk_core::host::contained;
use kinfolk_core::host::say::{Topic, abort, say};

use super::counts::Counts;
use super::desk::{Desk, Message};
use super::driver::{Driver, Landed, OpId, Wait};
use super::flight::{GONE, Landing};
use super::hub::Hub;
use super::request::Request;

/// How many may be answered at once before something is handed over.
const IN_A_ROW: u32 = 32;

/// How many visits while there is other work until what was submitted is handed
/// over.
const VISITS: u32 = 4;

/// And how long at most, if turns are long.
const SOON: Duration = Duration::from_micros(100);

/// How long a station that closes waits for the system to let go.
const CLOSING: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In the queue of those for whom there is no room.
    Waiting,
    /// With the driver, which was asked to end it or not.
    Flying { asked: bool },
}

/// A place for one operation. Copied around as little as possible: it is filled
/// and emptied for each.
struct Slot {
    /// None if the place is free.
    landing: Option<Arc<dyn Landing>>,
    /// It takes one of the places that there are. What waits for another side
    /// does not: many that wait would keep all others from the system, and with
    /// them perhaps what they wait for.
    counted: bool,
    generation: u32,
    at: Where,
}

/// What is under way, by number.
#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
}

impl Table {
    fn insert(&mut self, n: usize, at: Where, counted: bool, landing: Arc<dyn Landing>) -> OpId {
        self.len += 1;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot {
                    landing: None,
                    counted,
                    generation: 0,
                    at,
                });
                u32::try_from(self.slots.len() - 1).expect("fewer than four billion operations")
            }
        };
        let slot = &mut self.slots[index as usize];
        let id = OpId {
            index,
            generation: slot.generation,
        };
        let ticket = landing.ticket();
        ticket.set_station(n);
        ticket.set_id(id);
        slot.at = at;
        slot.counted = counted;
        slot.landing = Some(landing);
        id
    }

    /// Where the operation is, if it is under way.
    fn get_mut(&mut self, id: OpId) -> Option<&mut Where> {
        self.slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation && slot.landing.is_some())
            .map(|slot| &mut slot.at)
    }

    fn landing(&self, id: OpId) -> Option<&Arc<dyn Landing>> {
        (self.slots.get(id.index as usize))
            .filter(|slot| slot.generation == id.generation)
            .and_then(|slot| slot.landing.as_ref())
    }

    /// And whether it has taken a place.
    fn remove(&mut self, id: OpId) -> Option<(Arc<dyn Landing>, bool)> {
        let slot = self
            .slots
            .get_mut(id.index as usize)
            .filter(|slot| slot.generation == id.generation)?;
        let landing = slot.landing.take()?;
        // A bit less than it could hold: drivers need one.
        slot.generation = slot.generation.wrapping_add(1) & (u32::MAX >> 1);
        self.free.push(id.index);
        self.len -= 1;
        Some((landing, slot.counted))
    }

    fn ids(&self) -> Vec<OpId> {
        let living = self.slots.iter().enumerate();
        living
            .filter(|(_, slot)| slot.landing.is_some())
            .map(|(index, slot)| OpId {
                index: index as u32,
                generation: slot.generation,
            })
            .collect()
    }
}

/// What the driver has, and the system perhaps not yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unsent {
    Nothing,
    /// Only what waits for others as a rule.
    Patient,
    /// Some of it may be over as soon as the system has it.
    Urgent,
    /// Something is to be ended: somebody waits for that.
    Cancel,
}

impl Unsent {
    fn of(request: &Request) -> Unsent {
        match request.may_be_over_at_once() {
            true => Unsent::Urgent,
            false => Unsent::Patient,
        }
    }
}

struct Inner {
    /// None until the first operation.
    driver: Option<Box<dyn Driver>>,
    table: Table,
    /// In the order they came; some may be gone again.
    waiting: VecDeque<(OpId, Request)>,
    /// How many of these are not gone.
    queued: usize,
    /// How many places are taken.
    taken: usize,
    unsent: Unsent,
    visits: u32,
    handed_over: Option<Instant>,
    /// What the driver brought last was one answer alone.
    alone: bool,
    /// How many were answered at once since something was handed over.
    in_a_row: u32,
    landed: Vec<Landed>,
    /// Over or answered, and not yet told.
    over: Vec<(Arc<dyn Landing>, Landed)>,
    messages: Vec<Message>,
    /// To be dropped outside: what they carry is the user's.
    done_with: Vec<Arc<dyn Landing>>,
}

/// The operations of one thread.
pub struct Station {
    hub: Arc<Hub>,
    n: usize,
    inner: RefCell<Inner>,
    closed: Cell<bool>,
}

thread_local! {
    static STATION: Cell<*const Station> = const { Cell::new(ptr::null()) };
}

/// Puts back what was there before.
pub struct Entered(*const Station);

impl Drop for Entered {
    fn drop(&mut self) {
        STATION.set(self.0);
    }
}

/// Calls `f` with the station of this thread, if it belongs to `hub`.
pub(crate) fn here<R>(hub: &Arc<Hub>, f: impl FnOnce(&Station) -> R) -> Option<R> {
    // SAFETY: set by `enter` on this thread, whose guard lives further down our
    // stack, as does the station.
    let station = unsafe { STATION.get().as_ref() }?;
    Arc::ptr_eq(&station.hub, hub).then(|| f(station))
}

/// As [`here`], with a value for `f`, which comes back if there is no such station.
#[inline]
pub(crate) fn here_with<V, R>(
    hub: &Arc<Hub>,
    value: V,
    f: impl FnOnce(&Station, V) -> R,
) -> Result<R, V> {
    // SAFETY: as above.
    match unsafe { STATION.get().as_ref() } {
        Some(station) if Arc::ptr_eq(&station.hub, hub) => Ok(f(station, value)),
        _ => Err(value),
    }
}

impl Station {
    /// The station number `n` of `hub`. It belongs to the thread that enters it.
    pub fn new(hub: Arc<Hub>, n: usize) -> Station {
        Station {
            hub,
            n,
            inner: RefCell::new(Inner {
                driver: None,
                table: Table::default(),
                waiting: VecDeque::new(),
                queued: 0,
                taken: 0,
                unsent: Unsent::Nothing,
                visits: 0,
                handed_over: None,
                alone: true,
                in_a_row: 0,
                landed: Vec::new(),
                over: Vec::new(),
                messages: Vec::new(),
                done_with: Vec::new(),
            }),
            closed: Cell::new(false),
        }
    }

    /// From here to the drop of the answer, operations that are begun on this
    /// thread are this station's.
    ///
    /// # Safety
    /// The station outlives the answer, and is entered on one thread at a time.
    pub unsafe fn enter(&self) -> Entered {
        Entered(STATION.replace(ptr::from_ref(self)))
    }

    pub(crate) fn desk(&self) -> &Desk {
        self.hub.desk(self.n)
    }

    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// How many operations are under way here.
    pub fn len(&self) -> usize {
        self.inner.borrow().table.len
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn submit(&self, landing: Arc<dyn Landing>, request: &Request) {
        if self.closed.get() {
            self.hub.land(landing, GONE);
            return;
        }
        let mut inner = self.inner.borrow_mut();
        inner.accept(&self.hub, self.n, landing, request);
    }

    /// The answer to `request`, if the driver can give it here and now. It counts
    /// as begun and over.
    ///
    /// Only for one that would go to the system alone: together with others it
    /// costs less there than a call of its own.
    ///
    /// # Safety
    /// What the request leads to stays where it is, and nobody else uses it,
    /// until this returns.
    pub(crate) unsafe fn at_once(&self, request: &Request) -> Option<i32> {
        if self.closed.get() {
            return None;
        }
        let mut inner = self.inner.borrow_mut();
        if !inner.alone || inner.unsent >= Unsent::Urgent {
            return None;
        }
        // Whoever is always answered never waits: the others, timers and a clock
        // that jumps when all wait are to have their turn.
        if inner.in_a_row >= IN_A_ROW {
            return None;
        }
        inner.in_a_row += 1;
        // SAFETY: as the caller says.
        let result = unsafe { inner.driver.as_mut()?.at_once(request) }?;
        let counts = self.desk().counts();
        counts.submitted();
        counts.completed(result);
        Some(result)
    }

    pub(crate) fn cancel(&self, landing: &dyn Landing) {
        let mut inner = self.inner.borrow_mut();
        if landing.ticket().id().is_none() {
            // It lies at our own desk.
            inner.read_messages(&self.hub, self.n);
        }
        if let Some(id) = landing.ticket().id() {
            inner.cancel(id, self.desk().counts());
        }
        let done_with = std::mem::take(&mut inner.done_with);
        drop(inner);
        drop(done_with);
    }

    /// Hands over what was submitted, waits if told to, and wakes those whose
    /// operations are over; how many.
    ///
    /// While it waits others can only leave word at the desk.
    pub fn turn(&self, wait: Wait) -> usize {
        let mut turned = None;
        let panicked = contained(|| turned = Some(self.try_turn(wait)));
        match turned {
            Some(Ok(count)) if !panicked => count,
            // What it has begun would never be over, and its jobs would wait for
            // ever. A process that is gone can be started again.
            Some(Err(error)) => self.driver_is_lost(format_args!("{error}")),
            _ => self.driver_is_lost(format_args!("it panicked")),
        }
    }

    fn driver_is_lost(&self, why: fmt::Arguments<'_>) -> ! {
        abort(format_args!(
            "kinfolk: the {} driver of station {} cannot go on: {why}; the process is aborted",
            self.hub.driver_name().unwrap_or("i/o"),
            self.n
        ))
    }

    fn try_turn(&self, wait: Wait) -> io::Result<usize> {
        let mut inner = self.inner.borrow_mut();
        inner.read_messages(&self.hub, self.n);
        let wait = match inner.over.is_empty() || wait == Wait::Peek {
            true => wait,
            false => Wait::No,
        };
        let counts = self.desk().counts();
        inner.drive(counts, wait)?;
        if inner.has_nothing_to_tell() {
            return Ok(0);
        }
        let mut landed = std::mem::take(&mut inner.landed);
        let over = std::mem::take(&mut inner.over);
        let done_with = std::mem::take(&mut inner.done_with);
        drop(inner);
        // Whoever is dropped may wake somebody too.
        let count = over.len() + landed.len() + done_with.len();
        drop(done_with);
        for (landing, landed) in over {
            self.hub.answered(landing, landed);
        }
        // Each is told as soon as it is out of the table, and outside the borrow:
        // whoever is woken may be the user's.
        for landed in landed.drain(..) {
            let landing = self.inner.borrow_mut().arrived(&landed, counts);
            if let Some(landing) = landing {
                self.hub.answered(landing, landed);
            }
        }
        let mut inner = self.inner.borrow_mut();
        inner.let_in(&self.hub);
        counts.flying(inner.flying());
        if inner.landed.is_empty() {
            // The empty row is used again.
            inner.landed = landed;
        }
        Ok(count)
    }

    /// A visit while there is other work: wakes those whose operations are over,
    /// and hands over what was submitted only now and then, so that many go
    /// together; how many.
    pub fn glance(&self) -> usize {
        let hand_over = {
            let mut inner = self.inner.borrow_mut();
            inner.visits = inner.visits.wrapping_add(1);
            inner.visits.is_multiple_of(VISITS)
                || inner.unsent == Unsent::Cancel
                || inner.handed_over.is_some_and(|at| at.elapsed() > SOON)
        };
        match hand_over {
            true => self.turn(Wait::No),
            false => self.turn(Wait::Peek),
        }
    }

    /// A visit when there is nothing else to do: hands over what may be over at
    /// once, and wakes those whose operations are; how many. If none is, the
    /// thread may [wait](Station::park), and that hands over the rest.
    pub fn settle(&self) -> usize {
        let unsent = self.inner.borrow().unsent;
        // With virtual time nothing may stay behind: the clock would jump over
        // what has arrived already.
        let urgent = unsent >= Unsent::Urgent || self.hub.counts_for_clock();
        match urgent && unsent != Unsent::Nothing {
            true => self.turn(Wait::No),
            false => self.turn(Wait::Peek),
        }
    }

    /// True if something may not have reached the system yet.
    pub fn has_unsent(&self) -> bool {
        self.inner.borrow().unsent != Unsent::Nothing
    }

    /// True if the driver has something to do, or something is left to tell.
    pub fn is_busy(&self) -> bool {
        let inner = self.inner.borrow();
        inner.table.len > 0 || !inner.over.is_empty() || self.desk().has_word()
    }

    /// Waits in the driver until something is over or the desk rings; at most
    /// so long; how many were over. Only if [busy](Station::is_busy).
    pub fn park(&self, most: Option<Duration>) -> usize {
        let wait = match most {
            Some(most) => Wait::AtMost(most),
            None => Wait::ForGood,
        };
        // Without a driver there is no alarm yet either.
        if self.inner.borrow().driver.is_none() || !self.desk().sit_down() {
            return self.turn(Wait::No);
        }
        let landed = self.turn(wait);
        self.desk().get_up();
        landed
    }

    /// Ends what is under way, and takes nothing more. Waits until the system
    /// has let go of it; where it does not, what it works on is leaked rather
    /// than freed under its hands.
    pub fn close(&self) {
        self.closed.set(true);
        for message in self.desk().close() {
            self.hub.refuse(message);
        }
        {
            let mut inner = self.inner.borrow_mut();
            for id in inner.table.ids() {
                inner.cancel(id, self.desk().counts());
            }
        }
        let until = Instant::now() + CLOSING;
        while !self.is_empty() || !self.inner.borrow().over.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.try_turn(Wait::AtMost(left)).is_err() {
                let inner = &mut *self.inner.borrow_mut();
                say(
                    Topic::Seldom,
                    format_args!(
                        "kinfolk: {} operations did not end within {CLOSING:?}: \
                         their buffers are leaked",
                        inner.table.len
                    ),
                );
                std::mem::forget(std::mem::take(&mut inner.table));
                std::mem::forget(inner.driver.take());
                return;
            }
        }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if !self.closed.get() {
            self.close();
        }
    }
}

impl Inner {
    fn accept(&mut self, hub: &Hub, n: usize, landing: Arc<dyn Landing>, request: &Request) {
        if self.driver.is_none() {
            match hub.take_driver(n) {
                Ok(driver) => self.driver = Some(driver),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::ENOSYS);
                    let nowhere = OpId {
                        index: u32::MAX,
                        generation: 0,
                    };
                    self.over.push((landing, Landed::over(nowhere, -errno)));
                    return;
                }
            }
        }
        let counted = request.takes_place();
        let room = !counted || (self.taken < hub.most_in_flight() && self.waiting.is_empty());
        let at = match room {
            true => Where::Flying { asked: false },
            false => Where::Waiting,
        };
        let id = self.table.insert(n, at, counted, landing);
        hub.desk(n).counts().submitted();
        if !room {
            self.queued += 1;
            self.waiting.push_back((id, *request));
        } else if let Some(driver) = &mut self.driver {
            self.taken += usize::from(counted);
            self.unsent = self.unsent.max(Unsent::of(request));
            // SAFETY: the flight that the request leads to is in the table, and
            // stays there until the driver has said that it is over. Noticed by
            // `io_3_a_station_that_closes_ends_what_is_under_way`.
            unsafe { driver.submit(id, request) };
        }
    }

    fn cancel(&mut self, id: OpId, counts: &Counts) {
        let Some(at) = self.table.get_mut(id) else {
            return;
        };
        match at {
            Where::Waiting => {
                // Its number stays in the queue, and means nobody.
                if let Some((landing, _)) = self.table.remove(id) {
                    let landed = Landed::over(id, -libc::ECANCELED);
                    counts.completed(landed.result);
                    self.over.push((landing, landed));
                    self.queued -= 1;
                }
                // Unless such numbers pile up: each one looked at now was one
                // cancel.
                if self.waiting.len() > 2 * self.queued + 16 {
                    self.waiting
                        .retain(|(id, _)| self.table.get_mut(*id).is_some());
                }
            }
            Where::Flying { asked } => {
                if !std::mem::replace(asked, true)
                    && let Some(driver) = &mut self.driver
                {
                    self.unsent = Unsent::Cancel;
                    driver.cancel(id);
                }
            }
        }
    }

    fn read_messages(&mut self, hub: &Hub, n: usize) {
        let mut messages = std::mem::take(&mut self.messages);
        hub.desk(n).read(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Submit(landing, request) => self.accept(hub, n, landing, &request),
                Message::Cancel(landing) => {
                    if let Some(id) = landing.ticket().id() {
                        self.cancel(id, hub.desk(n).counts());
                    }
                    self.done_with.push(landing);
                }
            }
        }
        self.messages = messages;
    }

    /// How many the driver has.
    fn flying(&self) -> usize {
        self.table.len - self.queued
    }

    /// Turns the driver; what is over then lies in `landed`.
    fn drive(&mut self, counts: &Counts, wait: Wait) -> io::Result<()> {
        let flying = self.flying();
        let Some(driver) = &mut self.driver else {
            return Ok(());
        };
        if wait != Wait::Peek {
            self.unsent = Unsent::Nothing;
            self.in_a_row = 0;
            self.handed_over = Some(Instant::now());
        }
        // Before: it may sleep in there.
        counts.flying(flying);
        let turned = driver.turn(wait, &mut self.landed);
        if !self.landed.is_empty() {
            self.alone = self.landed.len() == 1;
        }
        turned
    }

    /// True if a turn has brought nothing, and nobody waits for room.
    fn has_nothing_to_tell(&self) -> bool {
        self.landed.is_empty()
            && self.over.is_empty()
            && self.done_with.is_empty()
            && self.waiting.is_empty()
    }

    /// The driver has brought this: whose it is.
    fn arrived(&mut self, landed: &Landed, counts: &Counts) -> Option<Arc<dyn Landing>> {
        let id = landed.id;
        if landed.more {
            let landing = self.table.landing(id).cloned();
            debug_assert!(landing.is_some(), "operation {id:?} was over before");
            return landing;
        }
        let removed = self.table.remove(id);
        debug_assert!(removed.is_some(), "operation {id:?} was over before");
        let (landing, counted) = removed?;
        self.taken -= usize::from(counted);
        counts.completed(landed.result);
        Some(landing)
    }

    /// There may be room for those who wait.
    fn let_in(&mut self, hub: &Hub) {
        while self.taken < hub.most_in_flight()
            && let Some((id, request)) = self.waiting.pop_front()
        {
            // Cancelled meanwhile: its number means nobody.
            let Some(at) = self.table.get_mut(id) else {
                continue;
            };
            *at = Where::Flying { asked: false };
            self.queued -= 1;
            self.taken += 1;
            self.unsent = self.unsent.max(Unsent::of(&request));
            if let Some(driver) = &mut self.driver {
                // SAFETY: as in `accept`.
                unsafe { driver.submit(id, &request) };
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io::driver::Alarm;
    use crate::io::flight::Ticket;
    use crate::io::series::{Brings, Series};
    use crate::io::{Fd, MakeDrivers, Real};

    /// Ends nothing but what is cancelled.
    #[derive(Default)]
    struct Endless(Vec<Landed>);

    impl Alarm for Endless {
        fn ring(&self) {}
    }

    // SAFETY: nothing that it is given ever ends.
    unsafe impl Driver for Endless {
        unsafe fn submit(&mut self, _id: OpId, _request: &Request) {}

        fn cancel(&mut self, id: OpId) {
            let result = -libc::ECANCELED;
            self.0.push(Landed::over(id, result));
        }

        fn turn(&mut self, _wait: Wait, landed: &mut Vec<Landed>) -> std::io::Result<()> {
            landed.append(&mut self.0);
            Ok(())
        }

        fn alarm(&self) -> Arc<dyn Alarm> {
            Arc::new(Endless::default())
        }

        fn wants_nonblocking(&self) -> bool {
            false
        }

        fn name(&self) -> &'static str {
            "endless"
        }
    }

    #[derive(Default)]
    struct Nobody(Ticket);

    impl Landing for Nobody {
        fn land(self: Arc<Self>, _result: i32) {}

        fn ticket(&self) -> &Ticket {
            &self.0
        }
    }

    /// All room is taken for ever, and others come and go.
    #[test]
    fn those_who_left_the_queue_do_not_pile_up() {
        let make: MakeDrivers = Box::new(|_| Ok(vec![Box::<Endless>::default()]));
        let hub = Hub::new(1, make, Box::new(Real), 1, Box::new(|_| {}));
        let station = Station::new(hub, 0);
        let submit = || {
            let landing = Arc::new(Nobody::default());
            station.submit(landing.clone(), &Request::Nop);
            landing
        };
        let _takes_the_room = submit();
        let waits = submit();
        for _ in 0..10_000 {
            let goes = submit();
            station.cancel(&*goes);
            station.turn(Wait::No);
            let queued = station.inner.borrow().waiting.len();
            assert!(queued < 32, "{queued}");
        }
        assert_eq!(station.len(), 2);
        let first = station.inner.borrow().waiting.front().map(|(id, _)| *id);
        assert_eq!(first, waits.ticket().id());
    }

    /// Writes down how it is turned; nothing ever ends.
    struct Recorder(Arc<std::sync::Mutex<Vec<Wait>>>);

    // SAFETY: as for `Endless`.
    unsafe impl Driver for Recorder {
        unsafe fn submit(&mut self, _id: OpId, _request: &Request) {}

        fn cancel(&mut self, _id: OpId) {}

        fn turn(&mut self, wait: Wait, _landed: &mut Vec<Landed>) -> std::io::Result<()> {
            self.0.lock().expect("one thread").push(wait);
            Ok(())
        }

        fn alarm(&self) -> Arc<dyn Alarm> {
            Arc::new(Endless::default())
        }

        fn wants_nonblocking(&self) -> bool {
            false
        }

        fn name(&self) -> &'static str {
            "recorder"
        }
    }

    /// A station, and how its driver was turned since one last asked.
    fn recorded() -> (Station, impl Fn() -> Vec<Wait>) {
        let turns = Arc::new(std::sync::Mutex::new(Vec::new()));
        let drivers = turns.clone();
        let make: MakeDrivers =
            Box::new(move |_| Ok(vec![Box::new(Recorder(drivers.clone())) as Box<dyn Driver>]));
        let hub = Hub::new(1, make, Box::new(Real), 8, Box::new(|_| {}));
        let seen = move || std::mem::take(&mut *turns.lock().expect("one thread"));
        (Station::new(hub, 0), seen)
    }

    const RECV: Request = Request::Recv {
        fd: -1,
        buf: ptr::null_mut(),
        len: 0,
        flags: 0,
    };

    /// What waits for others goes to the system with the wait itself: one visit.
    #[test]
    fn what_waits_for_others_is_handed_over_by_the_wait() {
        let (station, turns) = recorded();
        station.submit(Arc::new(Nobody::default()), &RECV);
        assert!(station.has_unsent());
        station.settle();
        station.park(None);
        assert_eq!(turns(), [Wait::Peek, Wait::ForGood]);
        assert!(!station.has_unsent());
        station.submit(Arc::new(Nobody::default()), &RECV);
        station.submit(Arc::new(Nobody::default()), &Request::Nop);
        // This one may be over at once.
        station.settle();
        station.settle();
        station.park(None);
        assert_eq!(turns(), [Wait::No, Wait::Peek, Wait::ForGood]);
        std::mem::forget(station);
    }

    /// A cancel does not wait until there is nothing else to do.
    #[test]
    fn a_cancel_is_handed_over_before_the_wait() {
        let (station, turns) = recorded();
        let landing = Arc::new(Nobody::default());
        station.submit(landing.clone(), &RECV);
        station.park(None);
        station.cancel(&*landing);
        station.settle();
        assert_eq!(turns(), [Wait::ForGood, Wait::No]);
        std::mem::forget(station);
    }

    /// Nor until there were many turns, and nothing waits long behind long ones.
    #[test]
    fn a_busy_thread_hands_a_cancel_over_at_once_and_the_rest_soon() {
        let (station, turns) = recorded();
        let landing = Arc::new(Nobody::default());
        station.submit(landing.clone(), &RECV);
        station.inner.borrow_mut().handed_over = Some(Instant::now() - 2 * SOON);
        station.glance();
        station.inner.borrow_mut().handed_over = None;
        station.glance();
        station.cancel(&*landing);
        station.glance();
        assert_eq!(turns(), [Wait::No, Wait::Peek, Wait::No]);
        std::mem::forget(station);
    }

    /// With virtual time the clock would jump over what has arrived already.
    #[test]
    fn with_virtual_time_nothing_stays_behind() {
        let (station, turns) = recorded();
        station.hub.count_with(Box::new(|_| {}));
        station.submit(Arc::new(Nobody::default()), &RECV);
        station.settle();
        station.settle();
        assert_eq!(turns(), [Wait::No, Wait::Peek]);
        std::mem::forget(station);
    }

    /// While there is other work, what was submitted is handed over now and then.
    #[test]
    fn a_busy_thread_hands_over_at_every_fourth_visit() {
        let (station, turns) = recorded();
        station.submit(Arc::new(Nobody::default()), &Request::Nop);
        for _ in 0..2 {
            // As if no time had passed.
            station.inner.borrow_mut().handed_over = None;
            for _ in 0..VISITS {
                station.glance();
            }
        }
        let turns = turns();
        let handed_over: Vec<_> = (0..).zip(&turns).filter(|t| *t.1 == Wait::No).collect();
        assert_eq!(handed_over, [(3, &Wait::No), (7, &Wait::No)]);
        assert!(
            turns
                .iter()
                .all(|wait| matches!(wait, Wait::No | Wait::Peek))
        );
        std::mem::forget(station);
    }

    /// Answers at once what it is asked, and all that was submitted with its turn.
    #[derive(Default)]
    struct Prompt(Vec<Landed>);

    // SAFETY: it touches nothing.
    unsafe impl Driver for Prompt {
        unsafe fn submit(&mut self, id: OpId, _request: &Request) {
            self.0.push(Landed::over(id, 0));
        }

        unsafe fn at_once(&mut self, _request: &Request) -> Option<i32> {
            Some(-libc::EPIPE)
        }

        fn cancel(&mut self, _id: OpId) {}

        fn turn(&mut self, _wait: Wait, landed: &mut Vec<Landed>) -> std::io::Result<()> {
            landed.append(&mut self.0);
            Ok(())
        }

        fn alarm(&self) -> Arc<dyn Alarm> {
            Arc::new(Endless::default())
        }

        fn wants_nonblocking(&self) -> bool {
            false
        }

        fn name(&self) -> &'static str {
            "prompt"
        }
    }

    /// What would go to the system by itself is answered at once, and counted;
    /// what others go with is not.
    #[test]
    fn only_what_is_alone_is_answered_at_once() {
        let make: MakeDrivers = Box::new(|_| Ok(vec![Box::<Prompt>::default()]));
        let hub = Hub::new(1, make, Box::new(Real), 8, Box::new(|_| {}));
        let station = Station::new(hub.clone(), 0);
        let submit = |request| station.submit(Arc::new(Nobody::default()), &request);
        let send = Request::Send {
            fd: -1,
            buf: ptr::null(),
            len: 0,
            flags: 0,
        };
        // SAFETY: here and below, it leads nowhere.
        let at_once = || unsafe { station.at_once(&send) };
        assert_eq!(at_once(), None, "there is no driver yet");
        submit(RECV);
        assert_eq!(at_once(), Some(-libc::EPIPE), "the other one is patient");
        assert_eq!(hub.gauges().submitted, 2);
        assert_eq!(hub.gauges().completed, 1);
        submit(Request::Nop);
        assert_eq!(at_once(), None, "it goes with the other");
        assert_eq!(station.turn(Wait::No), 2);
        assert_eq!(at_once(), None, "there may be another to go with");
        submit(RECV);
        assert_eq!(station.turn(Wait::Peek), 1);
        assert_eq!(station.turn(Wait::Peek), 0);
        assert!(at_once().is_some());
        assert_eq!(hub.gauges().submitted, 5);
        assert_eq!(hub.gauges().completed, 5);
        // One that goes on and on lets the others have their turn.
        let row = (0..100).take_while(|_| at_once().is_some()).count();
        assert_eq!(row, IN_A_ROW as usize - 1);
        assert_eq!(station.turn(Wait::Peek), 0);
        assert_eq!(at_once(), None, "a look hands nothing over");
        assert_eq!(station.turn(Wait::No), 0);
        assert!(at_once().is_some());
        station.close();
        assert_eq!(at_once(), None, "it is closed");
    }

    /// Remembers how it ended.
    #[derive(Default)]
    struct Ended(Ticket, std::sync::OnceLock<i32>);

    impl Landing for Ended {
        fn land(self: Arc<Self>, result: i32) {
            self.1.set(result).expect("it ends once");
        }

        fn ticket(&self) -> &Ticket {
            &self.0
        }
    }

    /// A station that closes asks the driver to end what is under way, and what
    /// waits for room ends too; it takes nothing more.
    /// Also: shutdown-1.
    #[test]
    fn io_3_a_station_that_closes_ends_what_is_under_way() {
        let make: MakeDrivers = Box::new(|_| Ok(vec![Box::<Endless>::default()]));
        let hub = Hub::new(1, make, Box::new(Real), 1, Box::new(|_| {}));
        let station = Station::new(hub.clone(), 0);
        let submit = |request| {
            let landing = Arc::new(Ended::default());
            station.submit(landing.clone(), request);
            landing
        };
        let ops = [
            submit(&Request::Nop),
            submit(&RECV),
            submit(&Request::Nop),
            submit(&RECV),
        ];
        station.turn(Wait::No);
        assert!(ops.iter().all(|op| op.1.get().is_none()));
        station.close();
        let ends = ops.map(|op| op.1.get().copied());
        assert_eq!(ends, [Some(-libc::ECANCELED); 4]);
        assert!(station.is_empty());
        assert_eq!(submit(&RECV).1.get(), Some(&GONE));
        let gauges = hub.gauges();
        assert_eq!((gauges.submitted, gauges.completed), (4, 4));
    }

    /// Another is told after a series was made and before it was submitted (A4).
    #[test]
    fn io_5_a_series_that_is_unwanted_before_it_is_submitted_ends() {
        let make: MakeDrivers = Box::new(|_| Ok(vec![Box::<Endless>::default()]));
        let hub = Hub::new(1, make, Box::new(Real), 1, Box::new(|_| {}));
        let station = Station::new(hub.clone(), 0);
        // SAFETY: the station outlives it, and there is one thread.
        let _entered = unsafe { station.enter() };
        // No file: none is closed.
        let fd = Fd::new(-1, hub.clone());
        let mut begun = 0;
        let mut begin = |unwanted: bool| {
            let make = || Series::new(fd.clone(), Brings::Connections);
            fd.arrivals().begin(make, |series| {
                begun += 1;
                if unwanted {
                    assert_eq!(fd.arrivals().end(), Some(begun));
                }
                hub.submit_to(0, series.clone(), &series.request());
            });
        };
        begin(true);
        assert_eq!(station.len(), 1);
        station.turn(Wait::No);
        assert_eq!(station.len(), 0, "it was cancelled");
        // The next is none of its business.
        begin(false);
        station.turn(Wait::No);
        assert_eq!(station.len(), 1);
        assert_eq!(fd.arrivals().end(), Some(2));
        station.turn(Wait::No);
        assert_eq!(station.len(), 0);
    }
}
