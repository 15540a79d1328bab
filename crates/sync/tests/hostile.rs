//! Values and wakers that do their worst: destructors, clones and wakes that panic or call
//! back into what they are in.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Wake, Waker};

use kinfolk_sync::{Mutex, Notify, Semaphore, broadcast, mpmc, oneshot, watch};

/// Panics when it is dropped, or calls back before.
struct Bomb {
    drops: Arc<AtomicUsize>,
    panics: bool,
    calls: Option<Box<dyn FnMut() + Send>>,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
        if let Some(call) = &mut self.calls {
            call();
        }
        if self.panics {
            panic!("a destructor that panics");
        }
    }
}

fn bomb(drops: &Arc<AtomicUsize>) -> Bomb {
    Bomb {
        drops: drops.clone(),
        panics: true,
        calls: None,
    }
}

#[test]
fn io_6_destructors_that_panic_are_contained_in_queues() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = mpmc::channel(4);
    let (unbounded, rest) = mpmc::unbounded_channel();
    for _ in 0..3 {
        assert!(tx.try_send(bomb(&drops)).is_ok());
        assert!(unbounded.send(bomb(&drops)).is_ok());
    }
    drop((rx, rest));
    assert_eq!(drops.swap(0, SeqCst), 6, "each of them, one by one");
    assert!(tx.is_closed() && unbounded.is_closed());

    let (tx, rx) = oneshot::channel();
    assert!(tx.send(bomb(&drops)).is_ok());
    drop(rx);
    let (tx, _rx) = watch::channel(bomb(&drops));
    assert!(tx.send(bomb(&drops)).is_ok());
    drop(tx);
    assert_eq!(drops.swap(0, SeqCst), 2);
    let (tx, rx) = broadcast::channel(1);
    assert!(tx.send(bomb(&drops)).is_ok());
    assert!(tx.send(bomb(&drops)).is_ok(), "the first has gone");
    drop(rx);
    assert_eq!(drops.load(SeqCst), 3 - 1, "the second with the receiver");
}

#[test]
fn io_6_destructors_may_call_back() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = mpmc::channel::<Bomb>(4);
    for _ in 0..3 {
        let (sends, receives, more) = (tx.clone(), rx.clone(), drops.clone());
        let calls = move || {
            // The channel that it is in: nothing is locked.
            drop(receives.try_recv());
            let quiet = Bomb {
                drops: more.clone(),
                panics: false,
                calls: None,
            };
            drop(sends.try_send(quiet));
            sends.close();
            assert!(sends.is_closed());
        };
        let value = Bomb {
            drops: drops.clone(),
            panics: false,
            calls: Some(Box::new(calls)),
        };
        assert!(tx.try_send(value).is_ok());
    }
    // It drops the first, which drops the second, which drops the third.
    drop(rx.try_recv());
    assert!(drops.load(SeqCst) >= 3);

    // The last receiver drops what it has not received: each sees the channel without itself.
    let (tx, rx) = mpmc::channel::<Bomb>(4);
    let left = Arc::new(StdMutex::new(Vec::new()));
    for _ in 0..3 {
        let (sends, left) = (tx.clone(), left.clone());
        let calls = move || left.lock().unwrap().push((sends.len(), sends.is_closed()));
        let value = Bomb {
            drops: drops.clone(),
            panics: false,
            calls: Some(Box::new(calls)),
        };
        assert!(tx.try_send(value).is_ok());
    }
    drop(rx);
    assert_eq!(*left.lock().unwrap(), [(2, true), (1, true), (0, true)]);
}

/// A waker that panics when it is woken, and one that calls back.
struct Waken(StdMutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Waken {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        if let Some(call) = call {
            call();
        }
        panic!("a wake that panics");
    }
}

fn waken(call: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Waken(StdMutex::new(Some(Box::new(call))))))
}

#[test]
fn io_6_wakes_that_panic_or_call_back_hold_up_nobody() {
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.clone().try_lock_owned().unwrap();
    let mut waits: Vec<_> = (0..3)
        .map(|_| Box::pin(mutex.clone().lock_owned()))
        .collect();
    for wait in &mut waits {
        let again = mutex.clone();
        let waker = waken(move || assert!(again.try_lock().is_err()));
        assert!(
            wait.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    drop(guard);
    // The first has it; it goes without having been polled.
    for wait in waits {
        drop(wait);
    }
    assert!(mutex.try_lock().is_ok());

    let (tx, rx) = mpmc::channel(1);
    tx.try_send(1).unwrap();
    let mut waits: Vec<_> = (0..3).map(|n| Box::pin(tx.send(n))).collect();
    for wait in &mut waits {
        let (tx, rx) = (tx.clone(), rx.clone());
        let waker = waken(move || {
            rx.close();
            assert!(tx.is_closed());
        });
        assert!(
            wait.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    // The first is let in, and its wake closes the channel: the others are refused.
    assert_eq!(rx.try_recv(), Ok(1));
    let mut sent = Vec::new();
    for mut wait in waits {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => sent.push(result.is_ok()),
            Poll::Pending => panic!("it was settled"),
        }
    }
    assert_eq!(sent, [true, false, false]);
    assert_eq!(rx.try_recv(), Ok(0));
}

/// A clone that panics belongs to the one that receives; the others get theirs.
#[test]
fn io_6_a_clone_that_panics_is_its_receivers_own() {
    struct Once(Arc<AtomicUsize>);
    impl Clone for Once {
        fn clone(&self) -> Once {
            assert!(self.0.fetch_add(1, SeqCst) > 0, "the first clone panics");
            Once(self.0.clone())
        }
    }
    let (tx, mut a) = broadcast::channel(2);
    let (mut b, mut c) = (tx.subscribe(), tx.subscribe());
    assert!(tx.send(Once(Arc::default())).is_ok());
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| a.try_recv().is_ok()));
    assert!(panics.is_err());
    assert!(b.try_recv().is_ok() && c.try_recv().is_ok());
    assert!(matches!(a.try_recv(), Err(broadcast::TryRecvError::Empty)));
}

/// A change in place that panics, of a value whose copy goes off too: two panics in one
/// unwinding, of which one ends in the copy. The value is as it was.
#[test]
fn io_6_a_change_that_panics_loses_its_copy_alone() {
    #[derive(Debug)]
    struct Copied {
        is_copy: bool,
        drops: Arc<AtomicUsize>,
    }
    impl Clone for Copied {
        fn clone(&self) -> Copied {
            Copied {
                is_copy: true,
                drops: self.drops.clone(),
            }
        }
    }
    impl Drop for Copied {
        fn drop(&mut self) {
            self.drops.fetch_add(1, SeqCst);
            assert!(!self.is_copy, "a destructor that panics");
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = watch::channel(Copied {
        is_copy: false,
        drops: drops.clone(),
    });
    assert!(panics(|| tx.send_modify(|_| panic!("a change that panics"))));
    assert_eq!(drops.load(SeqCst), 1, "the copy");
    assert!(!rx.has_changed() && !rx.borrow().is_copy);
}

/// Whether `f` panics.
fn panics(f: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
}

/// Too many permits are refused before anything changes, whether others wait or not and
/// however far beyond the limit they are, and those who wait can leave.
#[test]
fn io_6_too_many_permits_change_nothing() {
    const MOST: usize = Semaphore::MAX_PERMITS;
    for more in [usize::MAX, usize::MAX - 1, usize::MAX / 2, MOST + 1, MOST] {
        for waits in [false, true] {
            let semaphore = Semaphore::new(1);
            let mut wait = Box::pin(semaphore.acquire_many(2));
            if waits {
                let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
            }
            assert!(panics(|| semaphore.add_permits(more)), "{more}, {waits}");
            assert_eq!(semaphore.available_permits(), 1, "{more}, {waits}");
            drop(wait);
            assert!(semaphore.try_acquire().is_ok(), "{more}, {waits}");
        }
    }
}

/// A permit that comes back when there are as many as there may be goes, without a panic:
/// a destructor gives it back.
#[test]
fn io_6_a_permit_that_comes_back_is_never_one_too_many() {
    const MOST: usize = Semaphore::MAX_PERMITS;
    for waits in [false, true] {
        let semaphore = Semaphore::new(MOST);
        let permit = semaphore.try_acquire().unwrap();
        semaphore.add_permits(1);
        let mut wait = Box::pin(semaphore.acquire_many(usize::MAX));
        if waits {
            let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        assert!(!panics(|| drop(permit)), "{waits}");
        assert_eq!(semaphore.available_permits(), MOST, "{waits}");
    }
}

/// A waker whose clones panic while `PANICS`.
mod unclonable {
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::task::{RawWaker, RawWakerVTable, Waker};

    pub(super) static PANICS: AtomicBool = AtomicBool::new(false);

    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            assert!(!PANICS.load(SeqCst), "a clone that panics");
            RawWaker::new(ptr::null(), &VTABLE)
        },
        |_| {},
        |_| {},
        |_| {},
    );

    pub(super) fn waker() -> Waker {
        // SAFETY: there is no data, so nothing that the functions could break.
        unsafe { Waker::from_raw(RawWaker::new(ptr::null(), &VTABLE)) }
    }
}

/// A receiver whose promise was broken is polled with a waker that panics: its promise
/// passes on when it goes, and the channel works.
#[test]
fn io_6_a_waker_that_cannot_be_cloned_breaks_no_channel() {
    let (tx, rx) = mpmc::rendezvous();
    let other = rx.clone();
    let waker = unclonable::waker();
    let mut cx = Context::from_waker(&waker);
    let mut receives = Box::pin(rx.recv());
    assert!(receives.as_mut().poll(&mut cx).is_pending());
    let mut sends = Box::pin(tx.send(1));
    assert!(sends.as_mut().poll(&mut cx).is_pending());
    // It was promised to the receiver.
    drop(sends);
    unclonable::PANICS.store(true, SeqCst);
    assert!(panics(|| drop(receives.as_mut().poll(&mut cx))));
    unclonable::PANICS.store(false, SeqCst);
    assert!(!panics(|| drop(receives)));
    let mut sends = Box::pin(tx.send(2));
    assert!(sends.as_mut().poll(&mut cx).is_pending());
    assert_eq!(other.try_recv(), Ok(2));
}

/// Room for more values than there is memory is refused with a panic: the process goes on.
#[test]
fn io_6_a_channel_without_the_memory_for_it_is_refused() {
    for capacity in [usize::MAX, usize::MAX >> 4, 1 << 55] {
        assert!(panics(|| drop(mpmc::channel::<u64>(capacity))));
        assert!(panics(|| drop(broadcast::channel::<u64>(capacity))));
    }
}

type Wait = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// A waker that owns a future: woken, it drops it.
struct Owner(StdMutex<Option<Wait>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        let wait = self.0.lock().unwrap().take();
        drop(wait);
    }
}

/// Polls `wait`, which waits, with a waker that owns `owned`.
fn polled_with(wait: &mut Wait, owned: Option<Wait>) -> Arc<Owner> {
    let owner = Arc::new(Owner(StdMutex::new(owned)));
    let waker = Waker::from(owner.clone());
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    owner
}

/// A stack on which one frame for each link of a chain would not fit.
fn on_a_small_stack(f: impl FnOnce() + Send + 'static) {
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    small.spawn(f).unwrap().join().unwrap();
}

const LINKS: usize = 50_000;

/// Each waiter is dropped when it is woken, and passes on what it had got: that wakes the
/// next.
#[test]
fn io_6_a_chain_of_waiters_that_give_up_does_not_recur() {
    fn chain(make: impl Fn() -> Wait, start: impl FnOnce() + Send + 'static) {
        for _ in 0..LINKS {
            let mut wait = make();
            let owner = polled_with(&mut wait, None);
            *owner.0.lock().unwrap() = Some(wait);
        }
        on_a_small_stack(start);
    }
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.clone().try_lock_owned().unwrap();
    let waits = mutex.clone();
    let make = move || -> Wait {
        let mutex = waits.clone();
        Box::pin(async move { drop(mutex.lock_owned().await) })
    };
    chain(make, move || drop(guard));
    assert!(mutex.try_lock().is_ok());

    let notify = Arc::new(Notify::new());
    let (waits, wakes) = (notify.clone(), notify.clone());
    let make = move || -> Wait {
        let notify = waits.clone();
        Box::pin(async move { drop(notify.notified().await) })
    };
    chain(make, move || wakes.notify_one());
    assert!(notify.try_notified(), "it comes out at the end of the line");

    let (tx, rx) = mpmc::channel(1);
    let waits = rx.clone();
    let make = move || -> Wait {
        let rx = waits.clone();
        Box::pin(async move { drop(rx.recv().await) })
    };
    chain(make, move || tx.try_send(1).unwrap());
    assert_eq!(rx.try_recv(), Ok(1));
}

/// A waker that owns a future that waits with a waker that owns a future …: dropping the
/// first drops all, one by one.
#[test]
fn io_6_a_chain_of_waiters_that_is_dropped_does_not_recur() {
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.clone().try_lock_owned().unwrap();
    let mut last: Option<Wait> = None;
    for _ in 0..LINKS {
        let mutex = mutex.clone();
        let mut wait: Wait = Box::pin(async move { drop(mutex.lock_owned().await) });
        drop(polled_with(&mut wait, last.take()));
        last = Some(wait);
    }
    on_a_small_stack(move || drop(last));
    drop(guard);
    assert!(mutex.try_lock().is_ok(), "none is left in line");
}

/// A hook that takes what is there and sends again sets itself off: that does not grow the
/// stack.
#[test]
fn io_6_a_hook_that_sets_itself_off_does_not_recur() {
    let (tx, rx) = mpmc::unbounded_channel();
    let (sends, receives) = (tx.clone(), rx.clone());
    let calls = Arc::new(AtomicUsize::new(0));
    let counts = calls.clone();
    rx.on_ready(move || {
        let _taken = receives.try_recv();
        if counts.fetch_add(1, SeqCst) < LINKS {
            sends.send(1).unwrap();
        }
    });
    on_a_small_stack(move || tx.send(0).unwrap());
    assert_eq!(calls.load(SeqCst), LINKS + 1);
}

/// A value with a channel in it, in which the next such value lies.
struct Nested(Option<mpmc::Receiver<Nested>>);

/// A chain of channels, each in a value of the one before.
fn nested(deep: usize) -> Nested {
    let mut chain = Nested(None);
    for _ in 0..deep {
        let (tx, rx) = mpmc::channel(1);
        assert!(tx.try_send(chain).is_ok());
        chain = Nested(Some(rx));
    }
    chain
}

/// Values that own channels with such values in them are dropped one inside the other, as
/// boxes in boxes are: hundreds of them fit on the smallest stack. A program that has more
/// takes them out one by one.
#[test]
fn io_6_a_chain_of_channels_is_dropped_as_values_in_values_are() {
    let few = nested(100);
    on_a_small_stack(move || drop(few));
    let mut chain = nested(2 * LINKS);
    on_a_small_stack(move || {
        while let Some(rx) = chain.0.take() {
            chain = rx.try_recv().expect("the next is in it");
        }
    });
}

/// Why the drop of a value cannot wait for a moment with more stack: it may look at what the
/// caller lends to it, and lends only until the drop of the channel has returned.
#[test]
fn io_6_what_a_channel_drops_is_dropped_before_its_own_drop_returns() {
    struct Looks<'a>(&'a std::cell::Cell<u32>, Option<mpmc::Receiver<Looks<'a>>>);
    impl Drop for Looks<'_> {
        fn drop(&mut self) {
            let own = std::cell::Cell::new(0);
            if self.1.take().is_some() {
                // Deeper than wakes nest, each level lends to the next.
                let (tx, rx) = mpmc::channel(1);
                assert!(tx.try_send(Looks(&own, None)).is_ok());
                drop(rx);
                assert_eq!(own.get(), 1, "dropped while it may look");
            }
            self.0.set(self.0.get() + 1);
        }
    }
    let count = std::cell::Cell::new(0);
    let mut chain = None;
    for _ in 0..50 {
        let (tx, rx) = mpmc::channel(1);
        assert!(tx.try_send(Looks(&count, chain.take())).is_ok());
        chain = Some(rx);
    }
    drop(chain);
    assert_eq!(count.get(), 50);
}

/// A wait that is over keeps no waker, and with it the task that it was in.
#[test]
fn io_6_a_wait_that_is_over_keeps_no_waker() {
    let (mut tx, rx) = oneshot::channel::<u32>();
    let owner = Arc::new(Owner(StdMutex::new(None)));
    let waker = Waker::from(owner.clone());
    let mut cx = Context::from_waker(&waker);
    let mut wait = Box::pin(tx.closed());
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    drop(wait);
    assert_eq!(Arc::strong_count(&owner), 2, "ours and the waker");
    drop(rx);
    assert!(tx.is_closed());
}

/// A oneshot that is awaited by value and told loses no value: it comes with the error,
/// whether it was sent before the wait, in the moment of it or after it, and is dropped once
/// if it is not taken.
#[test]
fn io_6_a_told_oneshot_hands_its_value_to_the_error() {
    use kinfolk_core::{Error, cancel_current, spawn, yield_now};
    let drops = Arc::new(AtomicUsize::new(0));
    let counts = drops.clone();
    let run = kinfolk_testkit::Sim::seeded(1).run(async move {
        // Told at entry, and the value is there.
        let told = spawn(async {
            let (tx, rx) = oneshot::channel();
            tx.send(7).unwrap();
            cancel_current("now");
            let error = rx.await.unwrap_err();
            let told = error.cancelled().cloned().unwrap();
            assert_eq!(error.into_value(), Some(7));
            Err::<(), _>(Error::from(told))
        });
        assert!(told.outcome().await?.is_cancelled());

        // The receiver is gone: what is sent now goes back to the sender.
        let (tx, rx) = oneshot::channel();
        let told = spawn(async move {
            let error = rx.await.unwrap_err();
            assert!(error.cancelled().is_some());
            assert_eq!(tx.send(8), Err(8));
            assert_eq!(error.into_value(), None);
            Ok::<_, Error>(())
        });
        for _ in 0..5 {
            yield_now().await?;
        }
        told.cancel("while it waits");
        assert!(!told.outcome().await?.is_failed());

        // By reference: in the channel and with the error, and taken once.
        let told = spawn(async {
            let (tx, mut rx) = oneshot::channel();
            tx.send(9).unwrap();
            cancel_current("now");
            let (first, second) = ((&mut rx).await, (&mut rx).await);
            assert_eq!(second.unwrap_err().into_value(), Some(9));
            assert_eq!(first.unwrap_err().into_value(), None);
            assert_eq!(rx.try_recv(), Err(kinfolk_sync::TryRecvError::Closed));
            Ok::<_, Error>(())
        });
        assert!(!told.outcome().await?.is_failed());

        // Not taken: dropped once, with the error or with the receiver, and a panic ends there.
        let told = spawn(async move {
            cancel_current("now");
            for by_value in [false, true] {
                let (tx, mut rx) = oneshot::channel();
                assert!(tx.send(bomb(&counts)).is_ok());
                if by_value {
                    let error = Error::from(rx.await.err().unwrap());
                    assert!(error.is_cancelled());
                } else {
                    let error = (&mut rx).await.err().unwrap();
                    drop(rx);
                    assert_eq!(counts.swap(0, SeqCst), 0, "the error has it");
                    drop(error);
                }
                assert_eq!(counts.swap(0, SeqCst), 1);
            }
            Ok::<_, Error>(())
        });
        assert!(!told.outcome().await?.is_failed());
        Ok::<_, Error>(())
    });
    run.unwrap();
    assert_eq!(drops.load(SeqCst), 0, "all were counted");
}
