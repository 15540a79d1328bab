//! Types of a user's whose destructor, `Display`, `source`, wake or call panics,
//! or turns against the very job that they belong to.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use kinfolk_core::host::Contained;
use kinfolk_core::{
    Error, HookGuard, Job, Lease, Scope, Success, Task, TimerToken, current_job, sleep,
};
use kinfolk_testkit::Rng;

/// What hostile code finds lying about, and drops.
#[expect(dead_code, reason = "they are only dropped")]
pub enum Thing {
    Task(Task<Value>),
    Job(Job),
    Lease(Lease),
    Hook(HookGuard),
    Timer(TimerToken),
    Value(Value),
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
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn new(seed: u64) -> Arc<World> {
        Arc::new(World {
            seed,
            living: Mutex::default(),
            made: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            strength: AtomicUsize::new(200),
            homes: Mutex::default(),
            shelf: Mutex::default(),
        })
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
        let world = World::new(0);
        // Harmless, and of a world of its own.
        let mut value = Value::new(&world, &mut Rng::new(0));
        (value.when_called, value.when_dropped) = (Act::Nothing, Act::Nothing);
        value.panics = false;
        lock(&world.homes).clear();
        Fault::new(value, Some(error))
    }
}

/// A waker that wakes another one, and acts. The other one always: a waker that
/// forgets to makes every program hang.
pub struct HostileWaker {
    inner: Waker,
    value: Value,
}

impl HostileWaker {
    pub fn of(inner: &Waker, value: Value) -> Waker {
        Waker::from(Arc::new(HostileWaker {
            inner: inner.clone(),
            value,
        }))
    }
}

impl Wake for HostileWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inner.wake_by_ref();
        self.value.call();
    }
}
