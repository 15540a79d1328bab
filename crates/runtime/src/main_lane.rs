//! The main lane: what the one thread that built the runtime has to turn. With
//! no workers it turns the pool too.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::time::{Duration, Instant};

use kinfolk_core::host::{Contained, Lane, Turn, TurnRow, contained, look_again};
use kinfolk_queue::{Injector, PriorityStreak};

use crate::io::ThreadIo;
use crate::io::driver::WaitMode;
use crate::machine::Machine;
use crate::scheduler::pace::Pace;
use crate::sync::{self, AtomicU32, Ordering, Thread, fence};

/// How many turns what was woken last may take before others have one.
const STREAK: u32 = 8;

/// The main thread's own queues. No other thread touches them.
pub(crate) struct MainLocal {
    /// What the last turn woke: it goes first, so that awaiting a child is a
    /// hand-over.
    next: Cell<Option<Turn>>,
    streak: Cell<u32>,
    priority_streak: PriorityStreak,
    ticks: Cell<u32>,
    pace: Pace,
    /// It has looked round, and whoever drives it is to look at clock and driver.
    looked: Cell<bool>,
    /// Whose turn it was of the two rows.
    main_first: Cell<bool>,
    main: RefCell<TurnRow>,
    /// Pool work, with no workers, and what is pinned to the one that is not there.
    pool: RefCell<TurnRow>,
    load: Arc<Load>,
    /// With no workers: then this thread carries out the i/o.
    thread_io: Option<ThreadIo>,
}

/// What the main thread has to do, for others to see. Written by it only.
#[derive(Default)]
pub(crate) struct Load {
    queued: AtomicUsize,
    in_turn: AtomicBool,
}

impl Load {
    fn add(&self, more: usize) {
        let queued = self.queued.load(Ordering::Relaxed);
        self.queued.store(queued + more, Ordering::Relaxed);
    }

    fn take_one(&self) {
        let queued = self.queued.load(Ordering::Relaxed);
        self.queued.store(queued - 1, Ordering::Relaxed);
    }

    /// A turn has unwound. True if it was one: what comes after a turn is to be
    /// done.
    pub(crate) fn turn_unwound(&self) -> bool {
        self.in_turn.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn set_in_turn(&self, in_turn: bool) {
        self.in_turn.store(in_turn, Ordering::Relaxed);
    }

    /// How many turns are queued, and whether one is taken.
    pub(crate) fn read(&self) -> (usize, bool) {
        (
            self.queued.load(Ordering::Relaxed),
            self.in_turn.load(Ordering::Relaxed),
        )
    }
}

impl MainLocal {
    pub(crate) fn new(load: Arc<Load>, thread_io: Option<ThreadIo>) -> MainLocal {
        MainLocal {
            next: Cell::new(None),
            streak: Cell::new(0),
            priority_streak: PriorityStreak::default(),
            ticks: Cell::new(0),
            pace: Pace::new(Instant::now()),
            looked: Cell::new(false),
            main_first: Cell::new(false),
            main: RefCell::new(TurnRow::new()),
            pool: RefCell::new(TurnRow::new()),
            load,
            thread_io,
        }
    }

    pub(crate) fn thread_io(&self) -> Option<&ThreadIo> {
        self.thread_io.as_ref()
    }

    /// How many operations are under way here.
    pub(crate) fn under_way(&self) -> usize {
        self.thread_io.as_ref().map_or(0, ThreadIo::len)
    }

    /// Others have left word for this thread's i/o.
    pub(crate) fn has_io_word(&self) -> bool {
        let thread_io = self.thread_io.as_ref();
        thread_io.is_some_and(|thread_io| thread_io.mailbox().has_messages())
    }

    /// Hands over what was submitted, and wakes whose operations are over; true
    /// if there were any.
    pub(crate) fn look_at_io(&self) -> bool {
        self.poll_io(|thread_io| thread_io.poll(WaitMode::No))
    }

    /// Hands over what was submitted, if there is something.
    pub(crate) fn hand_over_io(&self) {
        self.poll_io(|thread_io| match thread_io.has_unsent() {
            true => thread_io.poll(WaitMode::No),
            false => 0,
        });
    }

    /// As [`ThreadIo::poll_busy`]; true if any were over.
    pub(crate) fn glance_at_io(&self) -> bool {
        self.poll_io(ThreadIo::poll_busy)
    }

    /// As [`ThreadIo::poll_idle`]; true if any were over.
    pub(crate) fn settle_io(&self) -> bool {
        self.poll_io(ThreadIo::poll_idle)
    }

    fn poll_io(&self, poll: impl FnOnce(&ThreadIo) -> usize) -> bool {
        match &self.thread_io {
            Some(thread_io) if thread_io.is_busy() => poll(thread_io) > 0,
            _ => false,
        }
    }

    fn row_of(&self, turn: &Turn) -> &RefCell<TurnRow> {
        match turn.is_for(Lane::Main) {
            true => &self.main,
            // With no workers what is pinned is as what is not.
            false => &self.pool,
        }
    }

    /// Woken or new.
    pub(crate) fn put(&self, turn: Turn) {
        self.load.add(1);
        if let Some(before) = self.next.replace(Some(turn)) {
            self.row_of(&before).borrow_mut().push_back(before);
        }
    }

    /// Runs `f` while the slot is empty. What lay in it lies there again after.
    pub(crate) fn without_slot<R>(&self, f: impl FnOnce() -> R) -> R {
        let kept = self.next.take();
        let answer = f();
        self.slot_goes_behind();
        self.next.set(kept);
        answer
    }

    /// What lies in the slot goes behind the others.
    pub(crate) fn slot_goes_behind(&self) {
        if let Some(turn) = self.next.take() {
            self.row_of(&turn).borrow_mut().push_back(turn);
        }
    }

    /// Behind the others.
    pub(crate) fn put_back(&self, turn: Turn) {
        self.load.add(1);
        self.row_of(&turn).borrow_mut().push_back(turn);
    }

    /// Woken together.
    pub(crate) fn put_row(&self, row: TurnRow) {
        self.load.add(row.len());
        let own = match row.lane() {
            Lane::Main => &self.main,
            _ => &self.pool,
        };
        own.borrow_mut().append(row);
    }

    /// The next turn. The inbox is looked at when there is nothing else, and
    /// now and then; the two lanes take turns.
    #[inline]
    pub(crate) fn take(&self, machine: &Machine) -> Option<Turn> {
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        if self.pace.is_due(ticks) {
            self.look(machine, ticks);
        }
        if machine.priorities.may_have_some() && machine.workers.is_empty() {
            return self.take_by_priority(machine, ticks);
        }
        self.take_normal(machine)
    }

    /// With no workers, while high or low turns wait. These are not counted as queued here.
    #[cold]
    fn take_by_priority(&self, machine: &Machine, ticks: u32) -> Option<Turn> {
        let (priorities, streak) = (&machine.priorities, &self.priority_streak);
        (priorities.take_first(streak, ticks, false))
            .or_else(|| self.take_normal(machine))
            .or_else(|| priorities.take_high(streak, ticks))
            .or_else(|| priorities.take_low(streak))
    }

    #[inline]
    fn take_normal(&self, machine: &Machine) -> Option<Turn> {
        let turn = self.pick(machine)?;
        self.load.take_one();
        Some(turn)
    }

    #[inline]
    fn pick(&self, machine: &Machine) -> Option<Turn> {
        let streak = self.streak.get();
        if streak < STREAK
            && let Some(turn) = self.next.take()
        {
            self.streak.set(streak + 1);
            return Some(turn);
        }
        self.streak.set(0);
        self.take_row().or_else(|| self.next.take()).or_else(|| {
            self.collect(machine);
            self.take_row()
        })
    }

    /// Time has passed, and others may have pushed.
    #[inline(never)]
    fn look(&self, machine: &Machine, ticks: u32) {
        look_again();
        self.pace.looked(ticks, Instant::now());
        self.looked.set(true);
        self.collect(machine);
    }

    /// True if it has looked round since the last call.
    pub(crate) fn take_looked(&self) -> bool {
        self.looked.get() && self.looked.replace(false)
    }

    /// The thread has slept.
    pub(crate) fn slept(&self) {
        self.pace.slept(self.ticks.get(), Instant::now());
    }

    /// The thread comes from its host loop.
    pub(crate) fn came_in(&self) {
        self.pace.came_in(self.ticks.get(), Instant::now());
    }

    #[inline(always)]
    fn take_row(&self) -> Option<Turn> {
        // Not by ticks: every other turn may be one of the slot.
        let main_first = !self.main_first.get();
        self.main_first.set(main_first);
        let (first, second) = match main_first {
            true => (&self.main, &self.pool),
            false => (&self.pool, &self.main),
        };
        let turn = first.borrow_mut().next();
        turn.or_else(|| second.borrow_mut().next())
    }

    /// What others have pushed goes behind what is here.
    #[inline(never)]
    pub(crate) fn collect(&self, machine: &Machine) {
        machine.main.inbox.take_all(|row| self.put_row(row));
        if machine.workers.is_empty() {
            machine.injector.take_all(|row| self.put_row(row));
        }
    }

    /// True if no turn of the main lane is queued here.
    pub(crate) fn main_is_empty(&self) -> bool {
        let next = self.next.take();
        let main_next = next.as_ref().is_some_and(|turn| turn.is_for(Lane::Main));
        self.next.set(next);
        !main_next && self.main.borrow().is_empty()
    }

    /// True if nothing is queued here.
    pub(crate) fn is_empty(&self) -> bool {
        self.load.read().0 == 0
    }
}

/// Why the host is asked to pump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A task of the main lane can go on.
    Task,
    /// A timer was set that is due before any other.
    Timer,
}

/// Told that the main thread has something to do while it is not turning.
pub type WakeHook = Box<dyn Fn(Cause) + Send + Sync>;

/// The main thread is outside: its host loop calls when it likes.
const OUTSIDE: u32 = 0;
/// It turns, and looks at its queues before it sleeps.
const TURNING: u32 = 1;
/// It sleeps.
const PARKED: u32 = 2;
/// It turns or sleeps, and has been told to look again.
const TOLD: u32 = 3;

/// What others know of the main thread.
pub(crate) struct MainThread {
    pub(crate) inbox: Injector,
    pub(crate) load: Arc<Load>,
    thread: Thread,
    state: AtomicU32,
    hook: Option<Contained<WakeHook>>,
}

impl MainThread {
    pub(crate) fn new(hook: Option<WakeHook>) -> MainThread {
        MainThread {
            inbox: Injector::default(),
            load: Arc::default(),
            thread: sync::current(),
            state: AtomicU32::new(OUTSIDE),
            hook: hook.map(Contained::new),
        }
    }

    /// There is something for it to do.
    pub(crate) fn tell(&self, machine: &Machine, cause: Cause) {
        // Our push, then our look at the state. Pairs with `begin` and `leave`:
        // its state, then its look at the queues.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) == OUTSIDE {
            // It looks at its queues when it begins to turn.
            if let Some(hook) = &self.hook {
                contained(|| (**hook)(cause));
            }
            return;
        }
        // Counted before it is told: the clock must not jump in between.
        machine.busy.add(1);
        let before = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |state| {
                (state != OUTSIDE).then_some(TOLD)
            });
        match before {
            // The count is its own from now on.
            Ok(PARKED) => {
                self.thread.unpark();
                if machine.workers.is_empty()
                    && let Some(io) = machine.io()
                {
                    io.notify(0);
                }
            }
            Ok(_) => machine.rested(),
            Err(_) => {
                machine.rested();
                if let Some(hook) = &self.hook {
                    contained(|| (**hook)(cause));
                }
            }
        }
    }

    /// The caller is on it.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.thread.id() == sync::current().id()
    }

    /// It sleeps in a call of the runtime.
    pub(crate) fn is_parked(&self) -> bool {
        self.state.load(Ordering::SeqCst) == PARKED
    }

    /// The main thread begins to turn.
    pub(crate) fn begin(&self, machine: &Machine) {
        machine.busy.add(1);
        self.state.store(TURNING, Ordering::SeqCst);
        // Pairs with `tell`.
        fence(Ordering::SeqCst);
    }

    /// The main thread goes back to its host loop.
    pub(crate) fn leave(&self, machine: &Machine) {
        self.state.store(OUTSIDE, Ordering::SeqCst);
        // Pairs with `tell`.
        fence(Ordering::SeqCst);
        machine.rested();
    }

    /// Sleeps until told or until a timer is due, if nothing was told since the
    /// last look. `empty` looks at the queues once more. With workers it wakes a
    /// moment after the timer, and fires it if none of them has.
    pub(crate) fn park(
        &self,
        machine: &Machine,
        thread_io: Option<&ThreadIo>,
        empty: impl Fn() -> bool,
    ) {
        let slept = self
            .state
            .compare_exchange(TURNING, PARKED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if !slept || !empty() {
            if self.state.swap(TURNING, Ordering::SeqCst) == TOLD && slept {
                // Whoever told us counted us once more.
                machine.rested();
            }
            return;
        }
        // From here on whoever tells us counts us as busy.
        machine.rested();
        // As the deputy: a timer is due, and no worker has fired it.
        let mut late = false;
        // A jump of the clock may have given us work of our own.
        while self.state.load(Ordering::SeqCst) == PARKED && empty() {
            let most = machine.main_sleeps();
            match (thread_io, most) {
                (_, Some(Duration::ZERO)) => {
                    late = true;
                    break;
                }
                (Some(thread_io), _) if thread_io.is_busy() => {
                    if thread_io.park(most) > 0 {
                        break;
                    }
                }
                (_, None) => sync::park(),
                (_, Some(wait)) => {
                    sync::park_timeout(wait);
                    // Not told, so its time has come. With workers it is not
                    // asked again: the answer is a moment later each time.
                    late = self.state.load(Ordering::SeqCst) == PARKED;
                    if late && !machine.workers.is_empty() {
                        break;
                    }
                }
            }
        }
        look_again();
        machine.main_wakes();
        // Counted before it shows that we turn: from then on whoever tells us
        // does not count us any more.
        machine.busy.add(1);
        if self.state.swap(TURNING, Ordering::SeqCst) == TOLD {
            // Whoever told us counted us too.
            machine.rested();
        }
        // Without workers its caller does so.
        if late && !machine.workers.is_empty() {
            machine.fire_due();
        }
    }
}

/// The waker of what the main thread polls outside any job.
pub(crate) struct MainWaker {
    machine: Weak<Machine>,
    woken: AtomicU32,
}

impl MainWaker {
    /// Woken from the start: it is to be polled once.
    pub(crate) fn new(machine: &Arc<Machine>) -> Arc<MainWaker> {
        Arc::new(MainWaker {
            machine: Arc::downgrade(machine),
            woken: AtomicU32::new(1),
        })
    }

    pub(crate) fn take(&self) -> bool {
        self.woken.load(Ordering::Acquire) != 0 && self.woken.swap(0, Ordering::AcqRel) != 0
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst) != 0
    }
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(1, Ordering::SeqCst);
        if let Some(machine) = self.machine.upgrade() {
            machine.main.tell(&machine, Cause::Task);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::machine::still;
    use crate::sync::AtomicUsize;
    use kinfolk_core::Clock;
    use loom::thread;
    use std::time::Instant;

    /// The main thread turns until it is woken, as in `Runtime::drive`.
    fn drive(machine: &Machine, woken: &MainWaker) {
        while !woken.take() {
            machine.main.park(machine, None, || !woken.is_woken());
        }
    }

    /// Nothing to do yet, unlike what [`MainWaker::new`] gives.
    fn waker(machine: &Arc<Machine>) -> Arc<MainWaker> {
        let waker = MainWaker::new(machine);
        assert!(waker.take());
        waker
    }

    /// The main thread goes to sleep while another wakes it: it wakes, or
    /// loom finds that it sleeps for ever.
    #[test]
    fn park_vs_tell() {
        loom::model(|| {
            let machine = still(0, None);
            let woken = waker(&machine);
            machine.main.begin(&machine);
            let teller = {
                let woken = woken.clone();
                thread::spawn(move || woken.wake_by_ref())
            };
            drive(&machine, &woken);
            teller.join().expect("the teller");
            machine.main.leave(&machine);
        });
    }

    /// The main thread comes from its host loop and goes to sleep, while
    /// somebody wakes it.
    #[test]
    fn begin_vs_tell() {
        loom::model(|| {
            let machine = still(0, None);
            let woken = waker(&machine);
            let teller = {
                let woken = woken.clone();
                thread::spawn(move || woken.wake_by_ref())
            };
            machine.main.begin(&machine);
            drive(&machine, &woken);
            teller.join().expect("the teller");
        });
    }

    /// A pump ends while another thread pushes: the pump's last look finds it, or
    /// the host is asked to pump again.
    #[test]
    fn leave_vs_tell() {
        loom::model(|| {
            let asked = Arc::new(AtomicUsize::new(0));
            let hook: WakeHook = {
                let asked = asked.clone();
                Box::new(move |_| asked.store(1, Ordering::Relaxed))
            };
            let machine = still(0, Some(hook));
            let woken = waker(&machine);
            machine.main.begin(&machine);
            let teller = {
                let woken = woken.clone();
                thread::spawn(move || woken.wake_by_ref())
            };
            machine.main.leave(&machine);
            let more = woken.is_woken();
            teller.join().expect("the teller");
            assert!(
                more || asked.load(Ordering::Relaxed) != 0,
                "the host sleeps and nobody asks it to pump"
            );
        });
    }

    /// A virtual clock that knows who is at work.
    struct Watching {
        now: Instant,
        in_flight: AtomicUsize,
        woken: AtomicUsize,
        jumps: AtomicUsize,
    }

    struct Shared(Arc<Watching>);

    impl Clock for Shared {
        fn now(&self) -> Instant {
            self.0.now
        }

        fn is_virtual(&self) -> bool {
            true
        }

        fn idle(&self, _next: Option<Instant>) -> bool {
            let busy = self.0.in_flight.load(Ordering::SeqCst);
            assert_eq!(busy, 0, "the clock jumped while somebody told");
            let woken = self.0.woken.load(Ordering::SeqCst);
            assert_eq!(woken, 0, "the clock jumped over who was told");
            self.0.jumps.fetch_add(1, Ordering::SeqCst);
            false
        }
    }

    /// With virtual time: a blocking call tells the main thread, which goes to
    /// sleep, and returns. The clock does not jump before that is dealt with.
    #[test]
    fn tell_vs_jump() {
        loom::model(|| {
            let seen = Arc::new(Watching {
                now: Instant::now(),
                in_flight: AtomicUsize::new(1),
                woken: AtomicUsize::new(0),
                jumps: AtomicUsize::new(0),
            });
            let machine = crate::machine::with_clock(0, Arc::new(Shared(seen.clone())), None);
            machine.main.begin(&machine);
            machine.busy.add(1);
            let teller = {
                let (machine, seen) = (machine.clone(), seen.clone());
                thread::spawn(move || {
                    seen.woken.store(1, Ordering::SeqCst);
                    machine.main.tell(&machine, Cause::Task);
                    seen.in_flight.store(0, Ordering::SeqCst);
                    machine.rested();
                })
            };
            while seen.woken.load(Ordering::SeqCst) == 0 {
                machine
                    .main
                    .park(&machine, None, || seen.woken.load(Ordering::SeqCst) == 0);
            }
            seen.woken.store(0, Ordering::SeqCst);
            machine.main.leave(&machine);
            teller.join().expect("the teller");
            let jumps = seen.jumps.load(Ordering::SeqCst);
            assert_ne!(jumps, 0, "nothing is busy and the clock stands");
        });
    }
}
