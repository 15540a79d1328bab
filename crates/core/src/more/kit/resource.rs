//! Resources: locks, channels and permits, which jobs hold and wait for. A library lists its
//! resources here, and snapshots show which job waits for which, and which job holds it.

use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::escape::quoted;
use crate::base::id::JobId;
use crate::engine::context;
use crate::record::header::Site;

/// A lock or a channel that jobs wait for, as snapshots see it.
///
/// See [`Listed`].
///
/// # Safety
/// `look` may be called on any thread, even if the type is neither `Send` nor `Sync`.
pub unsafe trait Resource {
    /// Returns what the resource is, the job that holds it and the jobs that wait for it.
    /// Called by snapshots, under a lock of the list: it must neither wait nor take another
    /// snapshot.
    fn look(&self) -> ResourceLook;
}

/// A snapshot of a [`Resource`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceLook {
    /// The sort of the resource, such as "mutex".
    pub kind: &'static str,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Where the resource was made.
    pub site: &'static Location<'static>,
    /// The jobs that hold it, and where each of them took it.
    pub holders: Vec<(JobId, &'static Location<'static>)>,
    /// The jobs that wait for it, and where each of them waits, the first in line first.
    pub waiters: Vec<(JobId, &'static Location<'static>)>,
}

impl ResourceLook {
    /// A resource that no job holds and no job waits for.
    pub fn new(kind: &'static str, site: &'static Location<'static>) -> ResourceLook {
        ResourceLook {
            kind,
            name: None,
            site,
            holders: Vec::new(),
            waiters: Vec::new(),
        }
    }
}

/// `mutex "table"`, or where it was made if it has no name.
impl fmt::Display for ResourceLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {}", self.kind, quoted(name)),
            None => write!(
                f,
                "{} made at {}:{}",
                self.kind,
                self.site.file(),
                self.site.line()
            ),
        }
    }
}

/// How many lists there are, so that threads seldom use the same one.
const SHARDS: usize = 16;

/// The listed resources, by the number of their entry.
struct ResourceShard {
    entries: Vec<Option<ResourcePtr>>,
    free: Vec<usize>,
}

struct ResourcePtr(NonNull<dyn Resource>);

// SAFETY: it is used only for `Resource::look`, which any thread may call, and is alive
// while it is listed.
unsafe impl Send for ResourcePtr {}

static LISTED: [Mutex<ResourceShard>; SHARDS] = [const {
    Mutex::new(ResourceShard {
        entries: Vec::new(),
        free: Vec::new(),
    })
}; SHARDS];

fn shard(number: usize) -> MutexGuard<'static, ResourceShard> {
    LISTED[number]
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Evidence that a [`Resource`] is listed, so that snapshots read it. Dropping it takes
/// the resource off the list, after waiting for a snapshot that is just reading it.
pub struct Listed {
    shard: usize,
    number: usize,
}

impl Listed {
    /// Lists a resource: at the earliest when the first job waits for it, since the
    /// list is shared by the whole process.
    ///
    /// # Safety
    /// `resource` stays alive and does not move until the returned value is dropped.
    pub unsafe fn new<R: Resource>(resource: &R) -> Listed {
        let here: *const (dyn Resource + '_) = resource;
        let shard_number = (here.cast::<()>().addr() >> 6) % SHARDS;
        // SAFETY: only the lifetime changes; the caller promises that the resource is
        // alive while it is listed, and nothing else uses the pointer.
        let here: *mut (dyn Resource + 'static) = unsafe { std::mem::transmute(here) };
        let entry = NonNull::new(here).map(ResourcePtr);
        let mut shard = shard(shard_number);
        let number = shard.free.pop().unwrap_or(shard.entries.len());
        if number == shard.entries.len() {
            shard.entries.push(entry);
        } else {
            shard.entries[number] = entry;
        }
        Listed {
            shard: shard_number,
            number,
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut shard = shard(self.shard);
        shard.entries[self.number] = None;
        shard.free.push(self.number);
        if shard.free.len() == shard.entries.len() {
            // The list is empty: the memory that a burst needed is freed.
            *shard = ResourceShard {
                entries: Vec::new(),
                free: Vec::new(),
            };
        }
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listed")
    }
}

/// All listed resources that a job waits for.
pub(crate) fn waited_for() -> Vec<ResourceLook> {
    let mut found = Vec::new();
    for number in 0..SHARDS {
        let shard = shard(number);
        for entry in shard.entries.iter().flatten() {
            // SAFETY: listed, so alive; it would be taken off the list under this
            // lock.
            let look = unsafe { entry.0.as_ref() }.look();
            if !look.waiters.is_empty() {
                found.push(look);
            }
        }
    }
    found
}

/// The job that holds a resource, and where it took the resource; a field beside
/// the value. Reading and writing are plain loads and stores: an observer that
/// reads while the holder changes may see the place of one holder and the name of
/// the other.
pub struct Holder {
    job: AtomicU64,
    site: AtomicU32,
    /// How deep in half-way drops the resource was taken, and whether in a
    /// panic.
    drops: AtomicU8,
    /// How the previous holder released it.
    left: AtomicU8,
}

/// How a guard was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum LastGuard {
    /// In the course of its holder's code; or there was no holder before.
    #[default]
    Released,
    /// While a panic unwound its holder.
    Panicked,
    /// With its holder's future, which was dropped before it completed: by force, as
    /// the loser of an `or_cancel`, or with the scope it was part of.
    Dropped,
}

/// In `drops`: taken during a panic.
const IN_PANIC: u8 = 1 << 7;

impl Holder {
    /// Held by no job.
    pub const fn new() -> Holder {
        Holder {
            job: AtomicU64::new(0),
            site: AtomicU32::new(0),
            drops: AtomicU8::new(0),
            left: AtomicU8::new(0),
        }
    }

    /// The code that is polled here has taken the resource at `site`.
    #[inline]
    pub fn take(&self, site: &'static Location<'static>) {
        let (job, drops) = context::with(|cx| {
            let job = cx.current().map_or(0, |h| h.id.bits());
            (job, cx.half_way_drops.get())
        });
        let panics = if std::thread::panicking() {
            IN_PANIC
        } else {
            0
        };
        self.job.store(job, Relaxed);
        self.site.store(Site::of(site).0, Relaxed);
        self.drops.store(drops | panics, Relaxed);
    }

    /// The resource is released: called by the destructor of its guard, to note
    /// how.
    #[inline]
    pub fn let_go(&self) {
        let taken = self.drops.load(Relaxed);
        let drops = context::with(|cx| cx.half_way_drops.get());
        let left = if std::thread::panicking() && taken & IN_PANIC == 0 {
            LastGuard::Panicked
        } else if drops > taken & !IN_PANIC {
            LastGuard::Dropped
        } else {
            LastGuard::Released
        };
        self.left.store(left as u8, Relaxed);
        self.job.store(0, Relaxed);
    }

    /// How the previous holder released the resource. For the present holder.
    pub fn last(&self) -> LastGuard {
        match self.left.load(Relaxed) {
            1 => LastGuard::Panicked,
            2 => LastGuard::Dropped,
            _ => LastGuard::Released,
        }
    }

    /// Shows the same job and place as `other`: for what snapshots see of a holder
    /// that is stored elsewhere.
    #[inline]
    pub fn show(&self, other: &Holder) {
        self.job.store(other.job.load(Relaxed), Relaxed);
        self.site.store(other.site.load(Relaxed), Relaxed);
    }

    /// The job that holds the resource, and where it took it; none if the resource
    /// is free, or was taken outside any job.
    pub fn job(&self) -> Option<(JobId, &'static Location<'static>)> {
        let job = JobId::from_bits(self.job.load(Relaxed))?;
        Some((job, Site(self.site.load(Relaxed)).location()))
    }
}

impl Default for Holder {
    fn default() -> Holder {
        Holder::new()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holder")
            .field(&self.job().map(|(job, _)| job))
            .finish()
    }
}

/// The job that is polled on this thread; none outside any job.
pub fn current_id() -> Option<JobId> {
    context::current_id()
}
