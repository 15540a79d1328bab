//! What a caller can see go wrong: [`Cancelled`], which only a point makes,
//! and [`Error`], opaque, with questions to ask it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::error::Error as StdError;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::escape::{LONG, escaped};
use crate::base::id::JobId;
use crate::base::own;
use crate::base::reason::Reason;
use crate::base::sync::local;
use crate::base::unwind::{Contained, Payload, caught};

/// `std::result::Result` with [`Error`] as its error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error, boxed, as in `Box<dyn Error + Send + Sync>`.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The error of a cancellation point whose job has been cancelled: clean up and return it.
///
/// Only cancellation points make this value. It carries the reason, the job
/// at which the cancel entered the tree and the call site of that cancel.
/// Return it, or any error that has it among its sources, and the job ends
/// *cancelled*.
#[derive(Clone)]
pub struct Cancelled {
    reason: Reason,
}

impl Cancelled {
    pub(crate) fn new(reason: Reason) -> Self {
        Cancelled { reason }
    }

    /// Returns why the job was cancelled.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// Returns the job at which the cancel entered the tree.
    pub fn origin(&self) -> JobId {
        self.reason.origin()
    }

    /// Returns the place in the code that called for the cancel.
    pub fn site(&self) -> &'static Location<'static> {
        self.reason.site()
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cancelled: {}", self.reason)
    }
}

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cancelled({})", self.reason)
    }
}

impl StdError for Cancelled {}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The current job is being cancelled: return soon.
    Cancelled,
    /// The awaited job was cancelled; the current job was not.
    Stopped,
    /// A deadline of the awaited job passed.
    TimedOut,
    /// The awaited job returned an error.
    Failed,
    /// The awaited job panicked. In a program that is built with `panic = "abort"` a panic
    /// aborts the process instead.
    Panicked,
}

/// The job that an error happened to.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    pub(crate) id: JobId,
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    pub(crate) site: &'static Location<'static>,
}

/// An error of the user's. Its destructor runs where the last of our hands on it
/// goes, and that may be anywhere: so a panic of it ends there.
type Carried = Contained<Arc<dyn StdError + Send + Sync>>;

#[derive(Clone)]
enum What {
    Cancelled(Cancelled),
    Stopped(Reason),
    TimedOut {
        after: Option<Duration>,
        reason: Reason,
        virtual_time: bool,
    },
    Failed(Carried),
    Panicked {
        words: Arc<str>,
        payload: Arc<Mutex<Option<Payload>>>,
    },
}

struct Inner {
    /// One number per failure, kept when it is passed on or gains company.
    serial: u64,
    kind: ErrorKind,
    what: What,
    /// A Cancelled found among the sources.
    cancelled: Option<Cancelled>,
    /// The first of ours among the sources. Kept, so that `source` of an error of
    /// the user's is called once: it is code of theirs.
    ours: Option<Error>,
    during: Option<Reason>,
    victim: Option<Victim>,
    suppressed: Vec<Error>,
    more: usize,
}

/// The error of a scope, a task or a cancellation point. Its [`kind`](Error::kind) says what
/// happened, and to which job.
///
/// | [`kind`](Error::kind) | meaning |
/// |---|---|
/// | `Cancelled` | the current job is being cancelled: return soon |
/// | `Stopped` | the awaited job was cancelled; the current job was not |
/// | `TimedOut` | a deadline of the awaited job passed |
/// | `Failed` | the awaited job returned an error; see [`downcast_ref`](Error::downcast_ref) |
/// | `Panicked` | the awaited job panicked; see [`resume`](Error::resume) |
///
/// Cheap to clone: clones share one failure.
#[derive(Clone)]
pub struct Error(Repr);

#[derive(Clone)]
enum Repr {
    /// What `?` makes of a point's Cancelled, and nothing more: the most
    /// frequent error there is, and it allocates nothing.
    Told(Cancelled),
    Full(SharedError),
}

/// A hand on a failure. A failure may be made of another one, with a context, and so
/// on: more than [`DEEPEST`] drops inside each other, a further one waits until that
/// one is over. So a chain of any length is dropped by a loop.
#[derive(Clone)]
struct SharedError(ManuallyDrop<Arc<Inner>>);

/// How deep drops of failures nest on one thread.
const DEEPEST: u32 = 16;

/// Failures that have to wait to be dropped.
type UndroppedErrors = RefCell<Vec<Arc<Inner>>>;

/// The drops of failures, and the printing of them, that go on on this thread.
struct ErrorNesting {
    drops: Cell<u32>,
    /// Of the deepest: null while there is none.
    waiting: Cell<*const UndroppedErrors>,
    prints: Cell<u32>,
}

local!(static NESTED: ErrorNesting = ErrorNesting {
    drops: Cell::new(0),
    waiting: Cell::new(ptr::null()),
    prints: Cell::new(0),
}; fn nested);

impl SharedError {
    fn new(inner: Inner) -> SharedError {
        SharedError(ManuallyDrop::new(Arc::new(inner)))
    }

    fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Deref for SharedError {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Drop for SharedError {
    fn drop(&mut self) {
        // SAFETY: taken once: this is the only destructor.
        let inner = unsafe { ManuallyDrop::take(&mut self.0) };
        let depth = nested(|here| here.drops.get());
        if depth == DEEPEST {
            return nested(|here| {
                // SAFETY: at this depth another drop goes on, further down our stack,
                // and takes the list back before it goes.
                let waiting = unsafe { here.waiting.get().as_ref() };
                let waiting = waiting.unwrap_or_else(|| unreachable!("set with the depth"));
                waiting.borrow_mut().push(inner);
            });
        }
        nested(|here| here.drops.set(depth + 1));
        // Nothing in here unwinds: what is of the user's is contained.
        if depth + 1 < DEEPEST {
            drop(inner);
        } else {
            drop_deepest(inner);
        }
        nested(|here| here.drops.set(depth));
    }
}

/// Drops a failure, and then those that had to wait for that.
#[inline(never)]
fn drop_deepest(inner: Arc<Inner>) {
    let waiting = UndroppedErrors::default();
    nested(|here| here.waiting.set(&raw const waiting));
    drop(inner);
    loop {
        // Others may be added while this one goes.
        let next = waiting.borrow_mut().pop();
        let Some(inner) = next else { break };
        drop(inner);
    }
    nested(|here| here.waiting.set(ptr::null()));
}

/// How deep errors are printed that print those they are made of.
const DEEPEST_PRINT: u32 = 128;

/// Prints an error, unless too many are being printed around it.
fn print(
    f: &mut fmt::Formatter<'_>,
    how: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    /// Puts the depth back, also if what is printed panics.
    struct DepthBack(u32);
    impl Drop for DepthBack {
        fn drop(&mut self) {
            nested(|here| here.prints.set(self.0));
        }
    }
    let depth = nested(|here| here.prints.get());
    if depth == DEEPEST_PRINT {
        return f.write_str("…");
    }
    nested(|here| here.prints.set(depth + 1));
    let _back = DepthBack(depth);
    how(f)
}

/// What an error says, whichever way it is kept.
enum Says<'a> {
    Told(&'a Cancelled),
    Other(&'a What),
}

fn serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Inner {
    fn new(kind: ErrorKind, what: What) -> Inner {
        Inner {
            serial: serial(),
            kind,
            what,
            cancelled: None,
            ours: None,
            during: None,
            victim: None,
            suppressed: Vec::new(),
            more: 0,
        }
    }
}

impl Error {
    fn make(kind: ErrorKind, what: What) -> Error {
        Error(Repr::Full(SharedError::new(Inner::new(kind, what))))
    }

    fn full(&self) -> Option<&Inner> {
        match &self.0 {
            Repr::Told(_) => None,
            Repr::Full(inner) => Some(inner),
        }
    }

    fn says(&self) -> Says<'_> {
        match &self.0 {
            Repr::Told(told) => Says::Told(told),
            Repr::Full(inner) => match &inner.what {
                What::Cancelled(told) => Says::Told(told),
                what => Says::Other(what),
            },
        }
    }

    fn with(&self, change: impl FnOnce(&mut Inner)) -> Error {
        let mut inner = match &self.0 {
            Repr::Told(told) => Inner::new(ErrorKind::Cancelled, What::Cancelled(told.clone())),
            Repr::Full(old) => Inner {
                serial: old.serial,
                kind: old.kind,
                what: old.what.clone(),
                cancelled: old.cancelled.clone(),
                ours: old.ours.clone(),
                during: old.during.clone(),
                victim: old.victim.clone(),
                suppressed: old.suppressed.clone(),
                more: old.more,
            },
        };
        change(&mut inner);
        Error(Repr::Full(SharedError::new(inner)))
    }

    /// Makes an error from a message.
    pub fn msg(words: impl Into<String>) -> Error {
        Error::from_boxed(words.into().into())
    }

    /// Converts any error. An `Error` inside is returned unchanged; an error that has a
    /// [`Cancelled`] among its sources is of kind `Cancelled`.
    pub fn from_boxed(boxed: BoxError) -> Error {
        let boxed = match boxed.downcast::<Error>() {
            Ok(ours) => return *ours,
            Err(other) => other,
        };
        let boxed = match boxed.downcast::<Cancelled>() {
            Ok(told) => return Error::from(*told),
            Err(other) => other,
        };
        Error::carrying(Arc::from(boxed))
    }

    /// An error that is not one of ours, to be seen through us.
    pub(crate) fn carrying(error: Arc<dyn StdError + Send + Sync>) -> Error {
        let error = Contained::new(error);
        let found = AmongSources::of(&**error);
        let (cancelled, ours) = (found.cancelled.cloned(), found.ours.cloned());
        let kind = if cancelled.is_some() {
            ErrorKind::Cancelled
        } else {
            ErrorKind::Failed
        };
        let mut inner = Inner::new(kind, What::Failed(error));
        inner.cancelled = cancelled;
        inner.ours = ours;
        Error(Repr::Full(SharedError::new(inner)))
    }

    pub(crate) fn stopped(reason: Reason) -> Error {
        Error::make(ErrorKind::Stopped, What::Stopped(reason))
    }

    pub(crate) fn timed_out(after: Option<Duration>, reason: Reason, virtual_time: bool) -> Error {
        Error::make(
            ErrorKind::TimedOut,
            What::TimedOut {
                after,
                reason,
                virtual_time,
            },
        )
    }

    pub(crate) fn panicked(payload: Payload) -> Error {
        let words = Arc::from(payload.message());
        Error::panicked_with(words, payload)
    }

    /// The same for what is not the body itself: it says where it was.
    pub(crate) fn panicked_in(place: &str, payload: Payload) -> Error {
        let words = format!("{place}: {}", payload.message());
        Error::panicked_with(words.into(), payload)
    }

    fn panicked_with(words: Arc<str>, payload: Payload) -> Error {
        Error::make(
            ErrorKind::Panicked,
            What::Panicked {
                words,
                payload: Arc::new(Mutex::new(Some(payload))),
            },
        )
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.full().map_or(ErrorKind::Cancelled, |inner| inner.kind)
    }

    /// Returns true if the current job is being cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Returns the reason of the cancellation, for the kinds `Cancelled`, `Stopped` and
    /// `TimedOut`.
    pub fn reason(&self) -> Option<&Reason> {
        match self.says() {
            Says::Other(What::Stopped(reason) | What::TimedOut { reason, .. }) => Some(reason),
            _ => self.cancelled().map(Cancelled::reason),
        }
    }

    /// Returns the later failures of the same scope, in order, without this one. At most 32
    /// are kept; see [`suppressed_count`](Error::suppressed_count).
    ///
    /// A failure is never listed twice. If two jobs fail with clones of one `Arc` of yours,
    /// those are two failures, and both are listed.
    pub fn suppressed(&self) -> &[Error] {
        self.full().map_or(&[], |inner| &inner.suppressed)
    }

    /// Returns how many later failures there were, kept or not.
    pub fn suppressed_count(&self) -> usize {
        self.full()
            .map_or(0, |inner| inner.suppressed.len() + inner.more)
    }

    /// Returns the reason of the cancellation during which this failure happened.
    pub fn during(&self) -> Option<&Reason> {
        self.full()?.during.as_ref()
    }

    fn victim(&self) -> Option<&Victim> {
        self.full()?.victim.as_ref()
    }

    /// Returns the job that the error happened to.
    pub fn job(&self) -> Option<JobId> {
        self.victim().map(|v| v.id)
    }

    /// Returns the name of the job that the error happened to.
    pub fn job_name(&self) -> Option<&str> {
        self.victim().map(|v| v.name.as_str())
    }

    /// Returns where the job that the error happened to was spawned or opened.
    pub fn site(&self) -> Option<&'static Location<'static>> {
        self.victim().map(|v| v.site)
    }

    /// Returns the names of the jobs from the root to the one that the error happened to; in
    /// a very deep tree, the last 64.
    pub fn path(&self) -> &[String] {
        self.victim().map_or(&[], |v| &v.path)
    }

    /// Returns the error that a body returned, if it is an `E` or has one among its sources.
    /// The contexts of an `anyhow::Error` count as well.
    pub fn downcast_ref<E: StdError + Send + Sync + 'static>(&self) -> Option<&E> {
        let mut next = self.carried();
        let mut steps = Steps::new();
        while let Some(error) = next
            && steps.go_on(error)
        {
            if let Some(found) = as_a::<E>(error) {
                return Some(found);
            }
            // One of ours shows the error it carries in its own place. In a
            // loop: a chain of failures may be long.
            next = match as_a::<Error>(error) {
                Some(ours) => ours.carried(),
                None => next_in(error),
            };
        }
        None
    }

    /// The foreign error that it is made of.
    fn carried(&self) -> Option<&(dyn StdError + 'static)> {
        match self.says() {
            Says::Other(What::Failed(source)) => Some(&***source),
            _ => None,
        }
    }

    /// Takes the payload of the panic, if the error is one and its payload was not taken.
    pub fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        match self.says() {
            Says::Other(What::Panicked { payload, .. }) => payload
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take()
                .map(Payload::into_box),
            _ => None,
        }
    }

    /// Resumes the panic that this error stands for; an error of another kind is returned.
    pub fn resume(self) -> Error {
        match self.says() {
            Says::Other(What::Panicked { words, .. }) => {
                let payload = self
                    .take_panic()
                    .unwrap_or_else(|| Box::new(words.to_string()));
                std::panic::resume_unwind(payload)
            }
            _ => self,
        }
    }

    /// Returns true if both errors are the same failure, whatever failures are suppressed
    /// beside them. Two errors that points returned are the same if they belong to the same
    /// cancel.
    pub fn same(&self, other: &Error) -> bool {
        match (&self.0, &other.0) {
            (Repr::Full(one), Repr::Full(other)) => one.serial == other.serial,
            (Repr::Told(one), Repr::Told(other)) => one.reason().same(other.reason()),
            _ => false,
        }
    }

    /// The Cancelled this error is, or has among its sources.
    pub(crate) fn cancelled(&self) -> Option<&Cancelled> {
        match self.says() {
            Says::Told(told) => Some(told),
            Says::Other(_) => self.full()?.cancelled.as_ref(),
        }
    }

    /// A stale or foreign Cancelled is a failure like any other.
    pub(crate) fn as_failure(&self) -> Error {
        match self.says() {
            Says::Told(told) => {
                let told = Contained::new(Arc::new(told.clone()) as _);
                Error::make(ErrorKind::Failed, What::Failed(told))
            }
            _ => self.with(|inner| {
                inner.kind = ErrorKind::Failed;
                inner.cancelled = None;
            }),
        }
    }

    pub(crate) fn has_victim(&self) -> bool {
        self.victim().is_some()
    }

    pub(crate) fn at(&self, victim: Victim, during: Option<Reason>) -> Error {
        self.with(|inner| {
            inner.victim = Some(victim);
            inner.during = inner.during.take().or(during);
        })
    }

    /// The number of this failure; 0 for a Cancelled and nothing more, which
    /// is none.
    pub(crate) fn serial(&self) -> u64 {
        self.full().map_or(0, |inner| inner.serial)
    }

    /// True if there is no clone of it.
    pub(crate) fn is_unshared(&self) -> bool {
        match &self.0 {
            Repr::Told(_) => false,
            Repr::Full(inner) => inner.is_unshared(),
        }
    }

    /// The numbers of this failure, of those among its sources and of those
    /// beside it, the nearest first: of very many, the nearest
    /// [`MOST_HELD`]. Each is visited once, however many ways lead to it: the
    /// errors of several attempts often have the one before in common. Runs no
    /// code of the user's.
    pub(crate) fn serials(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let mut known = HashSet::new();
        let mut todo = VecDeque::from([self]);
        while let Some(error) = todo.pop_front() {
            // One failure may be there with and without company, so it is the
            // error that is known, and not its number.
            let fresh = error
                .full()
                .is_some_and(|inner| known.insert(std::ptr::from_ref(inner)));
            if !fresh {
                continue;
            }
            found.push(error.serial());
            if found.len() == MOST_HELD {
                break;
            }
            todo.extend(error.next_of_ours());
            todo.extend(error.suppressed());
        }
        found
    }

    /// The first error of ours among the sources.
    fn next_of_ours(&self) -> Option<&Error> {
        self.full()?.ours.as_ref()
    }

    /// This failure with others beside it, none of them twice.
    pub(crate) fn joined_by(&self, others: &[Error], more: usize) -> Error {
        if others.is_empty() && more == 0 {
            return self.clone();
        }
        // What those beside it are, have among their sources, or beside them.
        let mut known: HashSet<u64> = self.suppressed().iter().flat_map(Error::serials).collect();
        self.with(|inner| {
            for other in others {
                if known.contains(&other.serial()) {
                    continue;
                }
                let listed = |e: &Error| e.serial() == inner.serial || known.contains(&e.serial());
                let other = if other.suppressed().iter().any(listed) {
                    let kept =
                        (other.suppressed().iter().filter(|e| !listed(e)).cloned()).collect();
                    other.with(|o| o.suppressed = kept)
                } else {
                    other.clone()
                };
                if inner.suppressed.len() < MOST_SUPPRESSED {
                    known.extend(other.serials());
                    inner.suppressed.push(other);
                } else {
                    inner.more += 1;
                }
            }
            inner.more += more;
        })
    }

    /// This failure with those beside it that stood beside `other`, whose place
    /// it has taken.
    pub(crate) fn joined_by_company_of(&self, other: &Error) -> Error {
        let more = match self.same(other) {
            true => 0,
            false => other.full().map_or(0, |inner| inner.more),
        };
        let mine = self.suppressed();
        let new: Vec<Error> = (other.suppressed().iter())
            .filter(|e| e.serial() != self.serial() && !mine.iter().any(|known| known.lists(e)))
            .cloned()
            .collect();
        self.joined_by(&new, more)
    }

    /// True if `other` is this failure, stands among its sources, or beside it.
    fn lists(&self, other: &Error) -> bool {
        self.serials().contains(&other.serial())
    }
}

impl Error {
    fn fmt_company(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.suppressed_count() {
            0 => Ok(()),
            n => write!(f, " (and {n} more)"),
        }
    }
}

/// How many later failures an error carries along.
pub(crate) const MOST_SUPPRESSED: usize = 32;

/// Among how many failures, the nearest, one is looked for: enough for a failure
/// with all its company and what each of those was made of, several times over,
/// and an end to a loop that wraps its last error without end.
const MOST_HELD: usize = 256;

/// `error` as a `T`, if it is one.
fn as_a<'a, T>(error: &'a (dyn StdError + 'static)) -> Option<&'a T>
where
    T: StdError + Send + Sync + 'static,
{
    error.downcast_ref().or_else(|| own::beside(error))
}

/// What comes after `error` on a walk over sources. One whose `source` panics has
/// none.
fn next_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    inner_of_io(error)
        .or_else(|| own::beneath(error))
        .or_else(|| caught(|| error.source()).ok().flatten())
}

/// The steps of a walk over sources, which are code of the user's: one that leads back
/// to where the walk has been has no end.
struct Steps<'a> {
    taken: usize,
    /// Where the walk was when it had taken half as many steps, or more.
    before: Option<&'a (dyn StdError + 'static)>,
}

/// How long a walk may be.
const MOST_STEPS: usize = 1 << 20;

impl<'a> Steps<'a> {
    fn new() -> Steps<'a> {
        Steps {
            taken: 0,
            before: None,
        }
    }

    /// False if the walk has come to `error` before, or has been too long.
    fn go_on(&mut self, error: &'a (dyn StdError + 'static)) -> bool {
        // Type and place: the first field of an error is where the error is.
        let been = self.before.is_some_and(|before| ptr::eq(before, error));
        if been || self.taken == MOST_STEPS {
            return false;
        }
        self.taken += 1;
        if self.taken.is_power_of_two() {
            self.before = Some(error);
        }
        true
    }
}

/// What a walk over sources has met.
struct AmongSources<'a> {
    /// The first Cancelled, unless one of ours came before it, which decides by
    /// its own kind.
    cancelled: Option<&'a Cancelled>,
    /// The first of ours.
    ours: Option<&'a Error>,
}

impl<'a> AmongSources<'a> {
    fn of(error: &'a (dyn StdError + 'static)) -> AmongSources<'a> {
        let mut cancelled = None;
        let mut next = Some(error);
        let mut steps = Steps::new();
        while let Some(error) = next
            && steps.go_on(error)
        {
            if cancelled.is_none() {
                cancelled = as_a::<Cancelled>(error);
            }
            if let Some(ours) = as_a::<Error>(error) {
                return AmongSources {
                    cancelled: cancelled.or_else(|| ours.cancelled()),
                    ours: Some(ours),
                };
            }
            next = next_in(error);
        }
        AmongSources {
            cancelled,
            ours: None,
        }
    }
}

/// `io::Error::source` skips the error it wraps; this does not.
fn inner_of_io<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    let io = error.downcast_ref::<std::io::Error>()?;
    io.get_ref().map(|e| e as &(dyn StdError + 'static))
}

/// Returns the cancel that an error comes from: the first [`Cancelled`] in it or among its
/// sources, however it is wrapped. If an [`Error`] comes first among them, its kind decides:
/// a failure stays a failure. So an error of any type is judged as
/// [`or_fail`](OrFail::or_fail) judges it.
pub fn cancelled_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Cancelled> {
    AmongSources::of(error).cancelled
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, |f| self.fmt_words(f))
    }
}

impl Error {
    fn fmt_words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.says() {
            Says::Told(told) => {
                return fmt::Display::fmt(told, f).and_then(|()| self.fmt_company(f));
            }
            Says::Other(what) => what,
        };
        match what {
            What::Cancelled(told) => fmt::Display::fmt(told, f),
            What::Stopped(reason) => {
                match self.job_name() {
                    Some(name) => write!(f, "{} was cancelled", escaped(name))?,
                    None => f.write_str("the awaited job was cancelled")?,
                }
                write!(f, ": {reason}")
            }
            What::TimedOut {
                after,
                reason,
                virtual_time,
            } => {
                write!(f, "{}", escaped(self.job_name().unwrap_or("the scope")))?;
                f.write_str(" timed out")?;
                if let Some(after) = after {
                    write!(f, " after {after:?}")?;
                }
                if *virtual_time {
                    f.write_str(" of virtual time")?;
                }
                if let Some(text) = reason.text() {
                    write!(f, ": {}", escaped(text).cut_after(LONG))?;
                }
                Ok(())
            }
            What::Failed(source) => fmt::Display::fmt(&***source, f),
            What::Panicked { words, .. } => {
                match self.job_name() {
                    Some(name) => write!(f, "{} panicked: {words}", escaped(name))?,
                    None => write!(f, "panicked: {words}")?,
                }
                Ok(())
            }
        }?;
        self.fmt_company(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, |f| self.fmt_parts(f))
    }
}

impl Error {
    fn fmt_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.kind());
        match self.says() {
            Says::Other(What::Failed(source)) => out.field("error", source),
            Says::Other(What::Panicked { words, .. }) => out.field("words", words),
            _ => out.field("reason", &self.reason()),
        };
        if let Some(victim) = self.victim() {
            out.field(
                "job",
                &format_args!("{} {}", escaped(&victim.name), victim.id),
            );
        }
        if let Some(during) = self.during() {
            out.field("during", during);
        }
        if self.suppressed_count() > 0 {
            out.field("suppressed", &self.suppressed());
        }
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.says() {
            Says::Told(told) => Some(told),
            // Shown in our place by Display, so what comes next is its source.
            Says::Other(What::Failed(source)) => match self.cancelled() {
                Some(told) => Some(told),
                None => source.source(),
            },
            _ => None,
        }
    }
}

/// An error that `?` converts into an [`Error`]. One trait under all of them, so that
/// the compiler can name the cure for those that are none.
#[diagnostic::on_unimplemented(
    message = "`?` cannot convert `{Self}` into `kinfolk::Error`",
    label = "write `.or_fail()?` here",
    note = "`.or_fail()?`, of `kinfolk::OrFail`, converts any error; `?` without it converts \
            `Cancelled` and the errors of std, such as `io::Error`"
)]
pub trait Familiar {
    #[doc(hidden)]
    fn into_error(self) -> Error;
}

impl<E: Familiar> From<E> for Error {
    fn from(error: E) -> Self {
        error.into_error()
    }
}

impl Familiar for Cancelled {
    fn into_error(self) -> Error {
        Error(Repr::Told(self))
    }
}

impl Familiar for BoxError {
    fn into_error(self) -> Error {
        Error::from_boxed(self)
    }
}

macro_rules! from_std {
    ($($name:ty),* $(,)?) => {$(
        impl Familiar for $name {
            fn into_error(self) -> Error {
                Error::from_boxed(Box::new(self))
            }
        }
    )*};
}

from_std!(
    std::io::Error,
    fmt::Error,
    std::num::ParseIntError,
    std::num::ParseFloatError,
    std::num::TryFromIntError,
    std::str::Utf8Error,
    std::str::ParseBoolError,
    std::string::FromUtf8Error,
    std::char::ParseCharError,
    std::net::AddrParseError,
    std::env::VarError,
    std::time::SystemTimeError,
    std::sync::mpsc::RecvError,
    std::sync::mpsc::TryRecvError,
    std::array::TryFromSliceError,
);

/// Converts any error into [`Error`], so that `?` works on it in a body.
pub trait OrFail<T> {
    /// `Err(e)` becomes an [`Error`] of kind `Failed`, or `Cancelled` if a
    /// [`Cancelled`] stands among its sources.
    fn or_fail(self) -> Result<T>;
}

impl<T, E: Into<BoxError> + 'static> OrFail<T> for std::result::Result<T, E> {
    fn or_fail(self) -> Result<T> {
        self.map_err(own::from_any)
    }
}
