//! Types of a user's whose destructor, `Display`, `source`, wake or call panics,
//! or turns against the very job that they belong to.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use kinfolk_core::host::Contained;
use kinfolk_core::kit::{HeldClock, hold_clock};
use kinfolk_core::{
    Error, Event, HookGuard, Interests, IntoOutcome, Job, Lease, Scope, Sink, Success, Task,
    TimerToken, current_job, sleep,
};
use kinfolk_runtime::io::{IoBuf, IoBufMut};
use kinfolk_testkit::Rng;

use crate::locks::Meeting;

/// What hostile code finds lying about, and drops.
#[expect(dead_code, reason = "they are only dropped")]
pub enum Thing {
    Task(Task<Value>),
    Job(Job),
    Lease(Lease),
    Hook(HookGuard),
    Timer(TimerToken),
    Value(Value),
    /// A half of a channel, a guard of a lock, a clone of a shared handle, a hosted
    /// future or an operation that has begun.
    Other(Box<dyn Any + Send>),
}

/// What a foreign thread is to drop. Time stands still until it has.
pub type ForForeign = (HeldClock, Thing);

/// Drops what it is sent, on a thread of no runtime.
pub fn foreign_thread() -> Sender<ForForeign> {
    let (send, given) = std::sync::mpsc::channel::<ForForeign>();
    std::thread::spawn(move || {
        for (clock, thing) in given {
            drop_alone(thing);
            drop(clock);
        }
    });
    send
}

/// What the parts of one program share.
pub struct World {
    seed: u64,
    /// The hostile values that were made and not dropped, and where they were made.
    living: Mutex<BTreeMap<usize, &'static Location<'static>>>,
    made: AtomicUsize,
    /// A value was dropped twice, or used after that.
    broken: AtomicBool,
    /// How much they may still do: programs come to an end.
    strength: AtomicUsize,
    /// Where the values belong. Here and not in them: an error that holds its own
    /// job would keep itself.
    homes: Mutex<Vec<Scope>>,
    shelf: Mutex<Vec<Thing>>,
    /// The channels and locks that all of its jobs use.
    meeting: Mutex<Option<Arc<Meeting>>>,
    /// A thread of no runtime, where the host has threads.
    foreign: Option<Sender<ForForeign>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// A world whose things `foreign` may drop, and that `sink` acts against.
    pub fn new(
        seed: u64,
        foreign: Option<Sender<ForForeign>>,
        sink: Option<&HostileSink>,
    ) -> Arc<World> {
        let world = World::at_peace(seed, foreign);
        if let Some(sink) = sink {
            *lock(&sink.world) = Arc::downgrade(&world);
        }
        world
    }

    fn at_peace(seed: u64, foreign: Option<Sender<ForForeign>>) -> Arc<World> {
        Arc::new(World {
            seed,
            living: Mutex::default(),
            made: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            strength: AtomicUsize::new(200),
            homes: Mutex::default(),
            shelf: Mutex::default(),
            meeting: Mutex::new(Some(Arc::default())),
            foreign,
        })
    }

    /// None once the program is over.
    pub fn meeting(&self) -> Option<Arc<Meeting>> {
        lock(&self.meeting).clone()
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// False once the program has done enough.
    pub fn spend(&self) -> bool {
        let left = |left: usize| left.checked_sub(1);
        self.strength.fetch_update(SeqCst, SeqCst, left).is_ok()
    }

    pub fn put(&self, thing: Thing) {
        lock(&self.shelf).push(thing);
    }

    pub fn take_one(&self, rng: &mut Rng) -> Option<Thing> {
        let mut shelf = lock(&self.shelf);
        let len = shelf.len();
        (len > 0).then(|| shelf.swap_remove(rng.below(len)))
    }

    pub fn put_other(&self, other: impl Any + Send) {
        self.put(Thing::Other(Box::new(other)));
    }

    /// Something that lies about is dropped by a foreign thread, if there is one.
    pub fn hand_over(&self, rng: &mut Rng) {
        if let (Some(foreign), Some(thing)) = (&self.foreign, self.take_one(rng)) {
            foreign.send((hold_clock(), thing)).expect("it lives");
        }
    }

    /// Drops what lies about, each by itself.
    pub fn clear_shelf(&self) {
        let all = std::mem::take(&mut *lock(&self.shelf));
        all.into_iter().for_each(drop_alone);
    }

    /// The program is over.
    pub fn clear(&self) {
        self.clear_shelf();
        let homes = std::mem::take(&mut *lock(&self.homes));
        homes.into_iter().for_each(drop_alone);
        let meeting = lock(&self.meeting).take();
        drop_alone(meeting);
    }

    /// Each value was dropped once: what is wrong, if something is.
    pub fn complaint(&self) -> Option<String> {
        if self.broken.load(SeqCst) {
            return Some("a value was dropped twice".into());
        }
        let living = lock(&self.living);
        let made_at: Vec<_> = living.values().map(ToString::to_string).collect();
        (!living.is_empty()).then(|| format!("never dropped: {}", made_at.join(", ")))
    }
}

/// A destructor of the program's own that panics is the program's matter.
pub fn drop_alone<T>(value: T) {
    drop(catch_unwind(AssertUnwindSafe(|| drop(value))));
}

/// What it does when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    Panic,
    Ask,
    Cancel,
    Interrupt,
    Spawn,
    Drop,
    Hook,
    Close,
}

impl Act {
    fn random(rng: &mut Rng) -> Act {
        use Act::{Ask, Cancel, Close, Drop, Hook, Interrupt, Nothing, Panic, Spawn};
        let all = [
            Nothing, Panic, Panic, Panic, Ask, Ask, Cancel, Interrupt, Spawn, Drop, Drop, Hook,
            Close,
        ];
        all[rng.below(all.len())]
    }
}

/// Something that acts when it is called, and when it is dropped.
pub struct Value {
    world: Arc<World>,
    home: Option<usize>,
    when_called: Act,
    when_dropped: Act,
    /// After acting it panics as well.
    panics: bool,
    calls: AtomicUsize,
    /// What it acts with.
    seed: u64,
    number: usize,
}

impl Success for Value {}

impl Value {
    /// One of the current job.
    #[track_caller]
    pub fn new(world: &Arc<World>, rng: &mut Rng) -> Value {
        let home = Scope::current().map(|scope| {
            let mut homes = lock(&world.homes);
            homes.push(scope);
            homes.len() - 1
        });
        Value::at(world, rng, home)
    }

    #[track_caller]
    fn at(world: &Arc<World>, rng: &mut Rng, home: Option<usize>) -> Value {
        let number = world.made.fetch_add(1, SeqCst);
        lock(&world.living).insert(number, Location::caller());
        Value {
            world: world.clone(),
            home,
            when_called: Act::random(rng),
            when_dropped: Act::random(rng),
            panics: rng.chance(0.3),
            calls: AtomicUsize::new(0),
            seed: rng.next_u64(),
            number,
        }
    }

    /// Acts: a call of the user's code. Not the first one, sometimes.
    pub fn call(&self) {
        if !lock(&self.world.living).contains_key(&self.number) {
            self.world.broken.store(true, SeqCst);
        }
        if self.calls.fetch_add(1, SeqCst) as u64 >= self.seed % 3 {
            self.act(self.when_called);
        }
    }

    fn home(&self) -> Option<Scope> {
        let homes = lock(&self.world.homes);
        homes.get(self.home?).cloned()
    }

    fn act(&self, act: Act) {
        if act != Act::Nothing && act != Act::Panic && self.world.spend() {
            self.turn_against(act);
        }
        // A destructor that panics while another panic unwinds aborts any
        // program, whatever we do.
        if (act == Act::Panic || self.panics) && !std::thread::panicking() {
            resume_unwind(Box::new("hostile"));
        }
    }

    fn turn_against(&self, act: Act) {
        let mut rng = Rng::new(self.seed);
        let home = self.home();
        match (act, home) {
            (Act::Drop, _) => drop(self.world.take_one(&mut rng)),
            (Act::Hook, Some(home)) => {
                let value = Value::at(&self.world, &mut rng, self.home);
                let guard = home.on_cancel(move |_| value.call());
                match rng.chance(0.5) {
                    true => guard.keep(),
                    false => self.world.put(Thing::Hook(guard)),
                }
            }
            (_, None) | (Act::Nothing | Act::Panic, _) => {}
            (Act::Ask, Some(home)) => {
                let job = home.job();
                let _ = (job.name(), job.state(), job.reason(), job.interrupts());
                let _ = (job.parent(), current_job(), format!("{job:?}"));
                let _ = (home.own_deadline(), home.cancel_requested());
            }
            (Act::Cancel, Some(home)) => drop(home.cancel("by hostile code")),
            (Act::Interrupt, Some(home)) => {
                home.job().interrupt("by hostile code");
                if rng.chance(0.5) {
                    home.job().uninterrupt();
                }
            }
            (Act::Close, Some(home)) => home.close(),
            (Act::Spawn, Some(home)) => {
                // Over a `?`: see `program.rs`.
                let value = Contained::new(Value::at(&self.world, &mut rng, self.home));
                let body = async move {
                    sleep(Duration::from_millis(1)).await?;
                    Ok::<_, Error>(value.into_inner())
                };
                match rng.below(3) {
                    0 => drop(home.launch(body)),
                    1 => self.world.put(Thing::Task(home.spawn_now(body))),
                    _ => self.world.put(Thing::Task(home.spawn(body))),
                }
            }
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if lock(&self.world.living).remove(&self.number).is_none() {
            self.world.broken.store(true, SeqCst);
        }
        self.act(self.when_dropped);
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        self.call();
        let calls = self.calls.load(SeqCst) as u64;
        Value::at(&self.world, &mut Rng::new(self.seed ^ calls), self.home)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call();
        f.write_str("Value")
    }
}

/// An error that acts when it is shown, asked for its source, or dropped.
pub struct Fault {
    value: Value,
    source: Option<Error>,
}

impl Fault {
    pub fn new(value: Value, source: Option<Error>) -> Fault {
        Fault { value, source }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.call();
        f.write_str("Fault")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.call();
        f.write_str("a fault")
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.value.call();
        self.source.as_ref().map(|e| e as _)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        let world = World::at_peace(0, None);
        // Harmless, and of a world of its own.
        let mut value = Value::new(&world, &mut Rng::new(0));
        (value.when_called, value.when_dropped) = (Act::Nothing, Act::Nothing);
        value.panics = false;
        lock(&world.homes).clear();
        Fault::new(value, Some(error))
    }
}

/// A future that acts when it is dropped, which comes after its end.
pub struct HostileFuture<F> {
    inner: F,
    #[expect(dead_code, reason = "it is only dropped")]
    value: Value,
}

impl<F: Future + Unpin> HostileFuture<F> {
    pub fn of(inner: F, value: Value) -> HostileFuture<F> {
        HostileFuture { inner, value }
    }
}

impl<F: Future + Unpin> Future for HostileFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

/// An outcome that acts when it is asked for its result.
pub struct HostileOutcome(pub Result<Value, Fault>);

impl IntoOutcome for HostileOutcome {
    type Value = Value;

    fn into_result(self) -> kinfolk_core::Result<Value> {
        match &self.0 {
            Ok(value) => value.call(),
            Err(fault) => fault.value.call(),
        }
        self.0.into_result()
    }
}

/// A waker that wakes another one, and acts when it is woken or cloned. The other one
/// always: a waker that forgets to makes every program hang.
pub struct HostileWaker {
    inner: Waker,
    value: Value,
}

impl HostileWaker {
    pub fn of(inner: &Waker, value: Value) -> Waker {
        let waker = HostileWaker {
            inner: inner.clone(),
            value,
        };
        // SAFETY: see `VTABLE`.
        unsafe { Waker::from_raw(HostileWaker::raw(Arc::new(waker))) }
    }

    fn raw(this: Arc<HostileWaker>) -> RawWaker {
        RawWaker::new(Arc::into_raw(this).cast(), &HostileWaker::VTABLE)
    }

    /// The pointer is that of an `Arc`, and each waker has one reference to it.
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: the waker that is cloned has a reference, and keeps it.
            let this = ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<HostileWaker>()) });
            this.value.call();
            HostileWaker::raw(Arc::clone(&this))
        },
        |data| {
            // SAFETY: the waker's reference, which it gives up.
            let this = unsafe { Arc::from_raw(data.cast::<HostileWaker>()) };
            this.inner.wake_by_ref();
            this.value.call();
        },
        |data| {
            // SAFETY: the waker has a reference, and keeps it.
            let this = ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<HostileWaker>()) });
            this.inner.wake_by_ref();
            this.value.call();
        },
        // SAFETY: the waker's reference, which it gives up.
        |data| drop(unsafe { Arc::from_raw(data.cast::<HostileWaker>()) }),
    );
}

/// A buffer that acts when it is asked how much is in it, and when it is dropped.
pub struct HostileBuf {
    bytes: Vec<u8>,
    value: Value,
}

impl HostileBuf {
    pub fn new(bytes: usize, value: Value) -> HostileBuf {
        let mut of = Vec::with_capacity(8);
        of.resize(bytes, 7);
        HostileBuf { bytes: of, value }
    }
}

// SAFETY: as that of `Vec`, whose bytes these are.
unsafe impl IoBuf for HostileBuf {
    fn ptr(&self) -> *const u8 {
        self.bytes.ptr()
    }

    fn filled(&self) -> usize {
        self.value.call();
        self.bytes.filled()
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for HostileBuf {
    fn ptr_mut(&mut self) -> *mut u8 {
        self.bytes.ptr_mut()
    }

    fn room(&self) -> usize {
        self.value.call();
        self.bytes.room()
    }

    unsafe fn set_filled(&mut self, bytes: usize) {
        // SAFETY: the caller has filled them.
        unsafe { self.bytes.set_filled(bytes) };
        self.value.call();
    }
}

/// A sink that acts against the jobs of a program it is told of. Its panic is its last
/// act: then it is called no more.
pub struct HostileSink {
    seed: u64,
    told: AtomicUsize,
    world: Mutex<Weak<World>>,
}

impl HostileSink {
    /// None for half of the seeds.
    pub fn of(seed: u64) -> Option<Arc<HostileSink>> {
        let seed = Rng::new(seed ^ 0x51).next_u64();
        seed.is_multiple_of(2).then(|| {
            Arc::new(HostileSink {
                seed,
                told: AtomicUsize::new(0),
                world: Mutex::default(),
            })
        })
    }
}

impl Sink for HostileSink {
    fn event(&self, _: &Event) {
        let told = self.told.fetch_add(1, SeqCst) as u64;
        let mut rng = Rng::new(self.seed ^ told);
        let world = lock(&self.world).upgrade();
        let Some(world) = world.filter(|_| rng.chance(0.05)) else {
            return;
        };
        let homes = lock(&world.homes).len();
        let home = (homes > 0).then(|| rng.below(homes));
        let value = Value::at(&world, &mut rng, home);
        match rng.chance(0.01) {
            true => value.call(),
            false => drop_alone(value),
        }
    }

    fn interests(&self) -> Interests {
        let all = [
            Interests::NONE,
            Interests::TURNS,
            Interests::WAITS | Interests::CAUSES,
            Interests::ALL,
        ];
        all[(self.seed >> 8) as usize % all.len()]
    }
}
