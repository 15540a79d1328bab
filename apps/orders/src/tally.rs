//! What a server counts of its requests: which work goes on after its client has gone.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Of one server; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

/// What it has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Work that goes on now, and whose client has gone.
    pub now_without_client: u64,
    /// The same when SIGTERM came.
    pub at_stop: u64,
    /// Work that has gone on without its client, for a moment or for long.
    pub ran_on: u64,
    /// For how long, at the most.
    pub longest: Duration,
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request: one half for its handler, one for the work that it asks for. Each is
    /// dropped with what has it.
    pub fn visit(&self) -> (Visit, Work) {
        let visit = Arc::new(Mutex::new(Fate::default()));
        let work = Work {
            visit: visit.clone(),
            tally: self.clone(),
        };
        let tally = self.clone();
        (Visit { visit, tally }, work)
    }

    /// SIGTERM has come.
    pub fn stopping(&self) {
        let mut counts = self.lock();
        counts.at_stop = counts.now_without_client;
    }
}

/// One line, which [`Counts::read`] reads.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.lock();
        write!(
            f,
            "{} {} {} {}",
            counts.now_without_client,
            counts.at_stop,
            counts.ran_on,
            counts.longest.as_micros()
        )
    }
}

impl Counts {
    /// What a [`Tally`] has written.
    pub fn read(line: &str) -> Option<Counts> {
        let mut numbers = line.split(' ').map_while(|word| word.parse().ok());
        Some(Counts {
            now_without_client: numbers.next()?,
            at_stop: numbers.next()?,
            ran_on: numbers.next()?,
            longest: Duration::from_micros(numbers.next()?),
        })
    }
}

/// What is known of one request.
#[derive(Debug, Default)]
struct Fate {
    answered: bool,
    work_is_over: bool,
    client_gone: Option<Instant>,
}

/// The handler's half.
#[derive(Debug)]
pub struct Visit {
    visit: Arc<Mutex<Fate>>,
    tally: Tally,
}

impl Visit {
    /// The handler has come to its end.
    pub fn answered(self) {
        let mut fate = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        fate.answered = true;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut fate = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        if !fate.answered && !fate.work_is_over {
            fate.client_gone = Some(Instant::now());
            self.tally.lock().now_without_client += 1;
        }
    }
}

/// The half of the work.
#[derive(Debug)]
pub struct Work {
    visit: Arc<Mutex<Fate>>,
    tally: Tally,
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut fate = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        fate.work_is_over = true;
        if let Some(since) = fate.client_gone {
            let mut counts = self.tally.lock();
            counts.now_without_client -= 1;
            counts.ran_on += 1;
            counts.longest = counts.longest.max(since.elapsed());
        }
    }
}
