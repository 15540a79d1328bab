//! What a thread does with its operations, on drivers that are played.

use super::*;
use crate::io::driver::Notifier;
use crate::io::in_flight::OpIdCell;
use crate::io::request::{NopArgs, RecvArgs, SendArgs};
use crate::io::series::{Brings, Series};
use crate::io::{Fd, MakeDrivers, Real};

/// Ends nothing but what is cancelled.
#[derive(Default)]
struct Endless(Vec<Answer>);

impl Notifier for Endless {
    fn notify(&self) {}
}

// SAFETY: nothing that it is given ever ends.
unsafe impl Driver for Endless {
    unsafe fn submit(&mut self, _id: OpId, _request: &Request) {}

    fn cancel(&mut self, id: OpId) {
        let result = -libc::ECANCELED;
        self.0.push(Answer::last(id, result));
    }

    fn poll(&mut self, _wait: WaitMode, answers: &mut Vec<Answer>) -> std::io::Result<()> {
        answers.append(&mut self.0);
        Ok(())
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
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
struct Nobody(OpIdCell);

impl InFlight for Nobody {
    fn complete(self: Arc<Self>, _result: i32) {}

    fn id_cell(&self) -> &OpIdCell {
        &self.0
    }
}

/// All room is taken for ever, and others come and go.
#[test]
fn those_who_left_the_queue_do_not_pile_up() {
    let make: MakeDrivers = Box::new(|_| Ok(vec![Box::<Endless>::default()]));
    let handle = IoHandle::new(1, make, Box::new(Real), 1, Box::new(|_| {}));
    let thread = ThreadIo::new(handle, 0);
    let submit = || {
        let in_flight = Arc::new(Nobody::default());
        thread.submit(in_flight.clone(), &Request::Nop(NopArgs));
        in_flight
    };
    let _takes_the_room = submit();
    let waits = submit();
    for _ in 0..10_000 {
        let goes = submit();
        thread.cancel(&*goes);
        thread.poll(WaitMode::No);
        let queued = thread.inner.borrow().waiting.len();
        assert!(queued < 32, "{queued}");
    }
    assert_eq!(thread.len(), 2);
    let first = thread.inner.borrow().waiting.front().map(|(id, _)| *id);
    assert_eq!(first, waits.id_cell().id());
}

/// Writes down how it is turned; nothing ever ends.
struct Recorder(Arc<std::sync::Mutex<Vec<WaitMode>>>);

// SAFETY: as for `Endless`.
unsafe impl Driver for Recorder {
    unsafe fn submit(&mut self, _id: OpId, _request: &Request) {}

    fn cancel(&mut self, _id: OpId) {}

    fn poll(&mut self, wait: WaitMode, _landed: &mut Vec<Answer>) -> std::io::Result<()> {
        self.0.lock().expect("one thread").push(wait);
        Ok(())
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(Endless::default())
    }

    fn wants_nonblocking(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "recorder"
    }
}

/// A thread, and how its driver was turned since one last asked.
fn recorded() -> (ThreadIo, impl Fn() -> Vec<WaitMode>) {
    let turns = Arc::new(std::sync::Mutex::new(Vec::new()));
    let drivers = turns.clone();
    let make: MakeDrivers =
        Box::new(move |_| Ok(vec![Box::new(Recorder(drivers.clone())) as Box<dyn Driver>]));
    let handle = IoHandle::new(1, make, Box::new(Real), 8, Box::new(|_| {}));
    let seen = move || std::mem::take(&mut *turns.lock().expect("one thread"));
    (ThreadIo::new(handle, 0), seen)
}

const RECV: Request = Request::Recv(RecvArgs {
    fd: -1,
    buf: ptr::null_mut(),
    len: 0,
    flags: 0,
});

/// What waits for others goes to the system with the wait itself: one visit.
#[test]
fn what_waits_for_others_is_handed_over_by_the_wait() {
    let (thread, turns) = recorded();
    thread.submit(Arc::new(Nobody::default()), &RECV);
    assert!(thread.has_unsent());
    thread.poll_idle();
    thread.park(None);
    assert_eq!(turns(), [WaitMode::Peek, WaitMode::Forever]);
    assert!(!thread.has_unsent());
    thread.submit(Arc::new(Nobody::default()), &RECV);
    thread.submit(Arc::new(Nobody::default()), &Request::Nop(NopArgs));
    // This one may be over at once.
    thread.poll_idle();
    thread.poll_idle();
    thread.park(None);
    assert_eq!(turns(), [WaitMode::No, WaitMode::Peek, WaitMode::Forever]);
    std::mem::forget(thread);
}

/// A cancel does not wait until there is nothing else to do.
#[test]
fn a_cancel_is_handed_over_before_the_wait() {
    let (thread, turns) = recorded();
    let in_flight = Arc::new(Nobody::default());
    thread.submit(in_flight.clone(), &RECV);
    thread.park(None);
    thread.cancel(&*in_flight);
    thread.poll_idle();
    assert_eq!(turns(), [WaitMode::Forever, WaitMode::No]);
    std::mem::forget(thread);
}

/// Nor until there were many turns, and nothing waits long behind long ones.
#[test]
fn a_busy_thread_hands_a_cancel_over_at_once_and_the_rest_soon() {
    let (thread, turns) = recorded();
    let in_flight = Arc::new(Nobody::default());
    thread.submit(in_flight.clone(), &RECV);
    thread.inner.borrow_mut().handed_over = Some(Instant::now() - 2 * SOON);
    thread.poll_busy();
    thread.inner.borrow_mut().handed_over = None;
    thread.poll_busy();
    thread.cancel(&*in_flight);
    thread.poll_busy();
    assert_eq!(turns(), [WaitMode::No, WaitMode::Peek, WaitMode::No]);
    std::mem::forget(thread);
}

/// With virtual time the clock would jump over what has arrived already.
#[test]
fn with_virtual_time_nothing_stays_behind() {
    let (thread, turns) = recorded();
    thread.handle.count_with(Box::new(|_| {}));
    thread.submit(Arc::new(Nobody::default()), &RECV);
    thread.poll_idle();
    thread.poll_idle();
    assert_eq!(turns(), [WaitMode::No, WaitMode::Peek]);
    std::mem::forget(thread);
}

/// While there is other work, what was submitted is handed over now and then.
#[test]
fn a_busy_thread_hands_over_at_every_fourth_visit() {
    let (thread, turns) = recorded();
    thread.submit(Arc::new(Nobody::default()), &Request::Nop(NopArgs));
    for _ in 0..2 {
        // As if no time had passed: an instant that has not come is no time ago.
        thread.inner.borrow_mut().handed_over = Some(Instant::now() + CLOSING);
        for _ in 0..VISITS {
            thread.poll_busy();
        }
    }
    let turns = turns();
    let handed_over: Vec<_> = (0..).zip(&turns).filter(|t| *t.1 == WaitMode::No).collect();
    assert_eq!(handed_over, [(3, &WaitMode::No), (7, &WaitMode::No)]);
    assert!(
        turns
            .iter()
            .all(|wait| matches!(wait, WaitMode::No | WaitMode::Peek))
    );
    std::mem::forget(thread);
}

/// Time counts from the first busy visit on. A thread that makes none, such as that of a
/// simulation, does not ask the system for it.
#[test]
fn the_time_of_busy_visits_begins_with_the_first() {
    let (thread, _) = recorded();
    thread.submit(Arc::new(Nobody::default()), &RECV);
    thread.poll(WaitMode::No);
    assert!(thread.inner.borrow().handed_over.is_none());
    thread.poll_busy();
    assert!(thread.inner.borrow().handed_over.is_some());
    let before = Some(Instant::now() - SOON);
    thread.inner.borrow_mut().handed_over = before;
    thread.poll(WaitMode::No);
    assert!(thread.inner.borrow().handed_over > before);
    std::mem::forget(thread);
}

/// Answers at once what it is asked, and all that was submitted with its turn.
#[derive(Default)]
struct Prompt(Vec<Answer>);

// SAFETY: it touches nothing.
unsafe impl Driver for Prompt {
    unsafe fn submit(&mut self, id: OpId, _request: &Request) {
        self.0.push(Answer::last(id, 0));
    }

    unsafe fn at_once(&mut self, _request: &Request) -> Option<i32> {
        Some(-libc::EPIPE)
    }

    fn cancel(&mut self, _id: OpId) {}

    fn poll(&mut self, _wait: WaitMode, answers: &mut Vec<Answer>) -> std::io::Result<()> {
        answers.append(&mut self.0);
        Ok(())
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
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
    let handle = IoHandle::new(1, make, Box::new(Real), 8, Box::new(|_| {}));
    let thread = ThreadIo::new(handle.clone(), 0);
    let submit = |request| thread.submit(Arc::new(Nobody::default()), &request);
    let send = Request::Send(SendArgs {
        fd: -1,
        buf: ptr::null(),
        len: 0,
        flags: 0,
    });
    // SAFETY: here and below, it leads nowhere.
    let at_once = || unsafe { thread.at_once(&send) };
    assert_eq!(at_once(), None, "there is no driver yet");
    submit(RECV);
    assert_eq!(at_once(), Some(-libc::EPIPE), "the other one is patient");
    assert_eq!(handle.gauges().submitted, 2);
    assert_eq!(handle.gauges().completed, 1);
    submit(Request::Nop(NopArgs));
    assert_eq!(at_once(), None, "it goes with the other");
    assert_eq!(thread.poll(WaitMode::No), 2);
    assert_eq!(at_once(), None, "there may be another to go with");
    submit(RECV);
    assert_eq!(thread.poll(WaitMode::Peek), 1);
    assert_eq!(thread.poll(WaitMode::Peek), 0);
    assert!(at_once().is_some());
    assert_eq!(handle.gauges().submitted, 5);
    assert_eq!(handle.gauges().completed, 5);
    // One that goes on and on lets the others have their turn.
    let row = (0..100).take_while(|_| at_once().is_some()).count();
    assert_eq!(row, IN_A_ROW as usize - 1);
    assert_eq!(thread.poll(WaitMode::Peek), 0);
    assert_eq!(at_once(), None, "a look hands nothing over");
    assert_eq!(thread.poll(WaitMode::No), 0);
    assert!(at_once().is_some());
    thread.close();
    assert_eq!(at_once(), None, "it is closed");
}

/// Remembers how it ended.
#[derive(Default)]
struct Ended(OpIdCell, std::sync::OnceLock<i32>);

impl InFlight for Ended {
    fn complete(self: Arc<Self>, result: i32) {
        self.1.set(result).expect("it ends once");
    }

    fn id_cell(&self) -> &OpIdCell {
        &self.0
    }
}

/// A thread that closes asks the driver to end what is under way, and what
/// waits for room ends too; it takes nothing more.
/// Also: shutdown-1.
#[test]
fn io_3_a_station_that_closes_ends_what_is_under_way() {
    let make: MakeDrivers = Box::new(|_| Ok(vec![Box::<Endless>::default()]));
    let handle = IoHandle::new(1, make, Box::new(Real), 1, Box::new(|_| {}));
    let thread = ThreadIo::new(handle.clone(), 0);
    let submit = |request| {
        let in_flight = Arc::new(Ended::default());
        thread.submit(in_flight.clone(), request);
        in_flight
    };
    let ops = [
        submit(&Request::Nop(NopArgs)),
        submit(&RECV),
        submit(&Request::Nop(NopArgs)),
        submit(&RECV),
    ];
    thread.poll(WaitMode::No);
    assert!(ops.iter().all(|op| op.1.get().is_none()));
    thread.close();
    let ends = ops.map(|op| op.1.get().copied());
    assert_eq!(ends, [Some(-libc::ECANCELED); 4]);
    assert!(thread.is_empty());
    assert_eq!(submit(&RECV).1.get(), Some(&GONE));
    let gauges = handle.gauges();
    assert_eq!((gauges.submitted, gauges.completed), (4, 4));
}

/// Another is told after a series was made and before it was submitted (A4).
#[test]
fn io_5_a_series_that_is_unwanted_before_it_is_submitted_ends() {
    let make: MakeDrivers = Box::new(|_| Ok(vec![Box::<Endless>::default()]));
    let handle = IoHandle::new(1, make, Box::new(Real), 1, Box::new(|_| {}));
    let thread = ThreadIo::new(handle.clone(), 0);
    // SAFETY: the thread outlives it, and there is one thread.
    let _entered = unsafe { thread.enter() };
    // No file: none is closed.
    let fd = Fd::new(-1, handle.clone());
    let mut begun = 0;
    let mut begin = |unwanted: bool| {
        let make = || Series::new(fd.clone(), Brings::Connections);
        fd.series_queue().begin(make, |series| {
            begun += 1;
            if unwanted {
                assert_eq!(fd.series_queue().end(), Some(begun));
            }
            handle.submit_to(0, series.clone(), &series.request());
        });
    };
    begin(true);
    assert_eq!(thread.len(), 1);
    thread.poll(WaitMode::No);
    assert_eq!(thread.len(), 0, "it was cancelled");
    // The next is none of its business.
    begin(false);
    thread.poll(WaitMode::No);
    assert_eq!(thread.len(), 1);
    assert_eq!(fd.series_queue().end(), Some(2));
    thread.poll(WaitMode::No);
    assert_eq!(thread.len(), 0);
}
