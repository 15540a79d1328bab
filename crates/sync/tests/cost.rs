//! What channels and locks allocate, keep and take. Each test counts the allocations of its own
//! thread: the test harness allocates beside it, on others. One test at a time, for those that
//! measure time.
#![cfg(not(loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::Pin;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use kinfolk_sync::{Mutex, Notify, OwnedMutexGuard, RwLock, Semaphore, mpmc, watch};

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as isize);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as isize);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The others wait meanwhile, and allocate nothing.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: StdMutex<()> = StdMutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn calls(f: impl FnOnce()) -> usize {
    let before = CALLS.get();
    f();
    CALLS.get() - before
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn ready<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut noop()) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("it should have been ready"),
    }
}

#[test]
fn io_6_sends_and_locks_do_not_allocate() {
    let _alone = alone();
    for room in [1, 100] {
        let (tx, rx) = mpmc::channel(room);
        let sends = calls(|| {
            for _ in 0..100 {
                for n in 0..room {
                    ready(tx.send(n)).unwrap();
                }
                for n in 0..room {
                    assert_eq!(ready(rx.recv()).unwrap(), Some(n));
                }
            }
        });
        assert_eq!(sends, 0, "room for {room}");
        // Waiting allocates nothing either, after the first wait of a channel.
        let waits = || {
            for n in 0..room {
                ready(tx.send(n)).unwrap();
            }
            let mut waits = std::pin::pin!(tx.send(7));
            assert!(waits.as_mut().poll(&mut noop()).is_pending());
            while rx.try_recv().is_ok() {}
            assert!(waits.as_mut().poll(&mut noop()).is_ready());
        };
        waits();
        assert_eq!(calls(|| (0..100).for_each(|_| waits())), 0);
    }
    let mutex = Mutex::new(0);
    assert_eq!(
        calls(|| drop(ready(mutex.lock()).unwrap())),
        0,
        "not even the first"
    );
    let contended = || {
        let guard = ready(mutex.lock()).unwrap();
        let mut waits = std::pin::pin!(mutex.lock());
        assert!(waits.as_mut().poll(&mut noop()).is_pending());
        drop(guard);
        drop(waits.as_mut().poll(&mut noop()));
    };
    contended();
    assert_eq!(calls(|| (0..100).for_each(|_| contended())), 0);
}

/// Neither do the other locks, nor waits once a lock or a channel has had its first, nor a
/// value that goes from hand to hand.
#[test]
fn io_6_the_other_waits_do_not_allocate() {
    let _alone = alone();
    let (lock, semaphore, notify) = (RwLock::new(0), Semaphore::new(1), Notify::new());
    let free = calls(|| {
        drop(ready(lock.read()).unwrap());
        drop(ready(lock.write()).unwrap());
        drop(ready(semaphore.acquire()).unwrap());
    });
    assert_eq!(free, 0, "not even the first");
    let (tx, rx) = mpmc::rendezvous();
    let waits = || {
        let (written, permit) = (ready(lock.write()).unwrap(), ready(semaphore.acquire()));
        let mut reads = std::pin::pin!(lock.read());
        let mut takes = std::pin::pin!(semaphore.acquire());
        let mut hears = std::pin::pin!(notify.notified());
        let mut gets = std::pin::pin!(rx.recv());
        let mut sends = std::pin::pin!(tx.send(7));
        assert!(reads.as_mut().poll(&mut noop()).is_pending());
        assert!(takes.as_mut().poll(&mut noop()).is_pending());
        assert!(hears.as_mut().poll(&mut noop()).is_pending());
        assert!(gets.as_mut().poll(&mut noop()).is_pending());
        assert!(sends.as_mut().poll(&mut noop()).is_pending());
        drop((written, permit));
        notify.notify_one();
        assert!(reads.as_mut().poll(&mut noop()).is_ready());
        assert!(takes.as_mut().poll(&mut noop()).is_ready());
        assert!(hears.as_mut().poll(&mut noop()).is_ready());
        assert!(gets.as_mut().poll(&mut noop()).is_ready());
        assert!(sends.as_mut().poll(&mut noop()).is_ready());
    };
    waits();
    assert_eq!(calls(|| (0..100).for_each(|_| waits())), 0);
}

/// A channel without a limit takes memory for many values at once, and uses it again.
#[test]
fn io_6_an_unbounded_channel_allocates_for_many_values_at_once() {
    let _alone = alone();
    let (tx, rx) = mpmc::unbounded_channel();
    let few = calls(|| (0..3200_u64).for_each(|n| tx.send(n).unwrap()));
    assert!((1..=200).contains(&few), "{few} for 3200 values");
    while rx.try_recv().is_ok() {}
    let streamed = calls(|| {
        for n in 0..3200 {
            tx.send(n).unwrap();
            assert_eq!(rx.try_recv(), Ok(n));
        }
    });
    assert_eq!(streamed, 0, "what was left is used again");
}

#[test]
fn io_6_memory_returns_after_a_burst() {
    let _alone = alone();
    let (tx, rx) = mpmc::unbounded_channel();
    let before = BYTES.get();
    for n in 0..100_000_u64 {
        tx.send(n).unwrap();
    }
    assert!(BYTES.get() - before > 800_000, "it is counted");
    for n in 0..100_000 {
        assert_eq!(rx.try_recv(), Ok(n));
    }
    let kept = BYTES.get() - before;
    assert!(kept < 4096, "{kept} bytes are kept");
}

/// What a burst of waiters took goes with them: a line holds nothing of its own.
#[test]
fn io_6_memory_returns_after_a_burst_of_waiters() {
    let _alone = alone();
    let (mutex, semaphore, notify) = (Mutex::new(()), Semaphore::new(0), Notify::new());
    let lock = RwLock::new(());
    let (tx, rx) = mpmc::channel::<u64>(1);
    let (news, _kept) = watch::channel(0);
    let burst = |n: usize| {
        let (_held, _written) = (mutex.try_lock().unwrap(), lock.try_write().unwrap());
        tx.try_send(0).unwrap();
        let mut hears: Vec<_> = (0..n).map(|_| news.subscribe()).collect();
        let mut waits: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
        for hears in &mut hears {
            waits.push(Box::pin(async { drop(mutex.lock().await) }));
            waits.push(Box::pin(async { drop(lock.read().await) }));
            waits.push(Box::pin(async { drop(semaphore.acquire().await) }));
            waits.push(Box::pin(async { drop(notify.notified().await) }));
            waits.push(Box::pin(async { drop(tx.send(1).await) }));
            waits.push(Box::pin(async move { drop(hears.changed().await) }));
        }
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut noop()).is_pending());
        }
        drop(waits);
        assert_eq!(rx.try_recv(), Ok(0));
    };
    // Once for what each of them makes with its first waiter.
    burst(1);
    let before = BYTES.get();
    burst(5_000);
    let kept = BYTES.get() - before;
    assert_eq!(kept, 0, "bytes are kept");
}

/// How long this thread has run, whatever else the machine does.
fn ran() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to `time`.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(answer, 0, "the system keeps the time of threads");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waiters come, and go from the middle, the front and the end; and, in a channel, from a line
/// that is closed.
fn come_and_go(n: usize) -> Duration {
    let semaphore = Arc::new(Semaphore::new(0));
    let notify = Notify::new();
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let began = ran();
        let mut waits: Vec<_> = (0..n)
            .map(|_| {
                let mut wait = Box::pin(semaphore.clone().acquire_owned());
                assert!(wait.as_mut().poll(&mut noop()).is_pending());
                Some(wait)
            })
            .collect();
        for at in 0..n {
            // A step that has no divisor with a power of ten: each once, all over.
            drop(waits[at * 7919 % n].take());
        }
        let mut notified: Vec<_> = (0..n).map(|_| Box::pin(notify.notified())).collect();
        for wait in &mut notified {
            assert!(wait.as_mut().poll(&mut noop()).is_pending());
        }
        notify.notify_waiters();
        drop(notified);
        let (tx, rx) = mpmc::channel::<u8>(1);
        let mut receives: Vec<_> = (0..n).map(|_| Box::pin(rx.recv())).collect();
        for wait in &mut receives {
            assert!(wait.as_mut().poll(&mut noop()).is_pending());
        }
        tx.close();
        drop(receives);
        least = least.min(ran() - began);
    }
    least
}

#[test]
fn io_6_waiters_come_and_go_in_linear_time() {
    let _alone = alone();
    let many: usize =
        std::env::var("KINFOLK_WAITERS").map_or(160_000, |n| n.parse().expect("a number"));
    let (few, many) = (come_and_go(many / 8), come_and_go(many));
    println!("an eighth of the waiters: {few:?}, all: {many:?}");
    assert!(
        many < few * 24,
        "eight times as many took {many:?}, not {few:?}"
    );
}

/// Polls its future when it is woken, which takes the lock and lets it go: that wakes the
/// next.
struct Next(StdMutex<Option<Pin<Box<Wait>>>>);
type Wait = kinfolk_sync::Acquire<Arc<Mutex<u32>>>;

impl Wake for Next {
    fn wake(self: Arc<Self>) {
        let Some(mut wait) = self.0.lock().unwrap().take() else {
            return;
        };
        if let std::task::Poll::Ready(guard) = wait.as_mut().poll(&mut noop()) {
            let mut guard: OwnedMutexGuard<u32> = guard.unwrap();
            *guard += 1;
        }
    }
}

#[test]
fn io_6_a_chain_of_wakes_does_not_recur() {
    let _alone = alone();
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.clone().try_lock_owned().unwrap();
    let n = 200_000;
    for _ in 0..n {
        let mut wait = Box::pin(mutex.clone().lock_owned());
        let next = Arc::new(Next(StdMutex::new(None)));
        let waker = Waker::from(next.clone());
        assert!(
            wait.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        *next.0.lock().unwrap() = Some(wait);
    }
    // A small stack: one frame for each would not fit.
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    small.spawn(move || drop(guard)).unwrap().join().unwrap();
    assert_eq!(*mutex.try_lock().unwrap(), n);
}
