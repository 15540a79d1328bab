//! The keys in memory, the log on the disk, and the committer between them.
//!
//! ```text
//!            withdraw (told, or dropped)
//!          ┌────────────────────────────▶ nothing is left
//! write ─▶ waiting ──taken──▶ written and synced ─▶ in the keys, answered
//! ```
//!
//! A record belongs to its writer until the committer takes it. From then on it
//! becomes durable, whether or not anybody still waits for the answer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::mem::take;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinfolk::fs::{self, File, OpenOptions};
use kinfolk::kit::{self, Abort, Completer};
use kinfolk::{Error, Result, checkpoint, shield};

use crate::log::{LOG, load, sync_names, write_again};
use crate::record::{BEGINNING, LONGEST, Record};

/// The most memory that is kept from one batch to the next.
const KEPT: usize = 256 << 10;

/// Reads and writes keys. When the last one is gone, what waits is committed and
/// the [`Committer`] ends.
pub struct Store(Arc<Shared>);

/// Writes what waits, as one batch, syncs once, and answers each.
pub struct Committer {
    shared: Arc<Shared>,
    file: File,
    /// Where the next batch goes: all before it is on the disk.
    end: u64,
    /// What a batch is gathered in; with the system while it is written.
    buf: Vec<u8>,
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    keys: HashMap<String, Vec<u8>>,
    /// Of all requests in the log.
    ids: HashSet<String>,
    /// What was not taken yet, in the order in which it came.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Wakes the committer.
    asleep: Option<Completer<()>>,
    closed: bool,
}

struct Waiting {
    record: Record,
    answer: Completer<Result<(), io::ErrorKind>>,
}

/// Opens the log in a directory, both made if they are not there, and cuts off
/// what a crash has torn at its end.
///
/// # Cancellation
/// A *point*. Told, whole records are all there.
///
/// # Errors
/// [`Damaged`](crate::log::Damaged) if the log has bad bytes that no crash leaves;
/// those of the disk.
pub async fn open(dir: &Path) -> Result<(Arc<Store>, Committer)> {
    let mut made = Vec::new();
    for above in dir
        .ancestors()
        .filter(|above| !above.as_os_str().is_empty())
    {
        match fs::metadata(above).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => made.extend(above.parent()),
            _ => break,
        }
    }
    fs::create_dir_all(dir).await?;
    let path = dir.join(LOG);
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = options.open(&path).await?;
    let mut state = State::default();
    let last = load(&file, &path, |record| state.apply(record)).await?;
    let end = last.end;
    // What was found may never have been synced, and from now on is shown. A sync alone
    // does not do: one that failed before may have left the last batch in the memory of
    // the system. The directories as well: each has the name of what lies below.
    write_again(&file, last).await?;
    file.sync_all().await?;
    sync_names(dir).await?;
    for above in dir.ancestors().skip(1) {
        use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
        match sync_names(above).await {
            // What was there before is for whoever made it.
            Err(error)
                if !made.contains(&above)
                    && matches!(
                        error.kind(),
                        InvalidInput | PermissionDenied | ReadOnlyFilesystem
                    ) => {}
            synced => synced?,
        }
    }

    let shared = Arc::new(Shared(Mutex::new(state)));
    let store = Arc::new(Store(shared.clone()));
    let buf = Vec::new();
    Ok((
        store,
        Committer {
            shared,
            file,
            end,
            buf,
        },
    ))
}

impl Store {
    /// The value of a key, as it is on the disk.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.0.state().keys.get(key).cloned()
    }

    /// Makes a change; returns when it is on the disk. If the log has a request
    /// of that id it was made before, and is not made again.
    ///
    /// # Cancellation
    /// A *point*. Told or dropped while the record waits, nothing is left of it.
    /// Told when it was taken, it returns what became of it, and the next point
    /// tells. So `Cancelled` means: it is not there, and will not be.
    ///
    /// # Errors
    /// One of a [full](is_full) disk, or `InvalidInput` if it is too long: it is not
    /// there. Any other: unknown.
    pub async fn write(&self, record: Record) -> Result<()> {
        checkpoint().await?;
        if record.size() > LONGEST {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let (wait, answer) = kit::completion();
        let ticket = self.0.enqueue(Waiting { record, answer })?;
        let shared = self.0.clone();
        let withdraw = move || match shared.withdraw(ticket) {
            true => Abort::Done,
            false => Abort::NotNow,
        };
        let answer = wait.begun().abort_with(withdraw).await?;
        Ok(answer.map_err(io::Error::from)?)
    }
}

/// True if there is no room: on the disk, in the quota or in the longest file.
pub fn is_full(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
}

impl Drop for Store {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(&self, waiting: Waiting) -> Result<u64> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::msg("the log is closed"));
        }
        let ticket = state.next;
        state.next += 1;
        state.waiting.insert(ticket, waiting);
        let asleep = state.asleep.take();
        drop(state);
        asleep.map(|committer| committer.complete(()));
        Ok(ticket)
    }

    /// True if it had not been taken.
    fn withdraw(&self, ticket: u64) -> bool {
        let withdrawn = self.state().waiting.remove(&ticket);
        withdrawn.is_some()
    }

    /// Takes no more.
    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let asleep = state.asleep.take();
        drop(state);
        asleep.map(|committer| committer.complete(()));
    }
}

impl State {
    fn apply(&mut self, record: Record) {
        if self.ids.insert(record.id) {
            match record.value {
                Some(value) => self.keys.insert(record.key, value),
                None => self.keys.remove(&record.key),
            };
        }
    }
}

impl Committer {
    /// Commits until the last [`Store`] is gone.
    ///
    /// # Cancellation
    /// *Not a point.* It is shielded: it outlives its writers, even if they are cancelled.
    ///
    /// # Errors
    /// Errors of the disk. Then it is not known what is on it, and no more is accepted.
    pub async fn run(mut self) -> Result<()> {
        let ran = shield(self.commit_all()).await;
        self.shared.close();
        // After a failure: dropped, they are never answered.
        let unanswered = take(&mut self.shared.state().waiting);
        drop(unanswered);
        let closed = shield(self.file.close()).await;
        ran.and(closed)
    }

    async fn commit_all(&mut self) -> Result<()> {
        loop {
            let batch = self.next_batch().await?;
            if batch.is_empty() {
                return Ok(());
            }
            self.commit(batch).await?;
        }
    }

    /// All that wait, as soon as there is one; `None` when no more will come.
    async fn next_batch(&self) -> Result<Vec<Waiting>> {
        loop {
            let wake = {
                let mut state = self.shared.state();
                if state.closed || !state.waiting.is_empty() {
                    return Ok(take(&mut state.waiting).into_values().collect());
                }
                let (wake, completer) = kit::completion();
                state.asleep = Some(completer);
                wake
            };
            wake.await?;
        }
    }

    async fn commit(&mut self, batch: Vec<Waiting>) -> Result<()> {
        let mut buf = take(&mut self.buf);
        self.gather(&batch, &mut buf);
        let (written, buf) = match buf.is_empty() {
            true => (Ok(()), buf),
            false => self.file.write_then_sync(buf, self.end).await,
        };
        let answer = match written {
            Ok(()) => Ok(()),
            Err(error) if is_full(error.kind()) => {
                // A part may be there, even whole records: they must not be found.
                self.file.set_len(self.end).await?;
                self.file.sync_data().await?;
                Err(error.kind())
            }
            Err(error) => return Err(error.into()),
        };
        let mut answers = Vec::with_capacity(batch.len());
        let mut state = self.shared.state();
        for Waiting { record, answer: to } in batch {
            if answer.is_ok() {
                state.apply(record);
            }
            answers.push(to);
        }
        drop(state);
        for to in answers {
            to.complete(answer);
        }
        if answer.is_ok() {
            self.end += buf.len() as u64;
        }
        self.buf = buf;
        self.buf.clear();
        self.buf.shrink_to(KEPT);
        Ok(())
    }

    /// The bytes of those that are new; in a new log, its beginning before them. There
    /// is one batch at a time, so none can be on its way that is not in here.
    fn gather(&self, batch: &[Waiting], buf: &mut Vec<u8>) {
        let state = self.shared.state();
        let mut new = HashSet::new();
        if self.end == 0 {
            buf.extend(BEGINNING);
        }
        for Waiting { record, .. } in batch {
            if !state.ids.contains(&record.id) && new.insert(&record.id) {
                record.append_to(buf, self.end);
            }
        }
    }
}
