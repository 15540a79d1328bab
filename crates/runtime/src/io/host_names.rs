//! The cache of host names: answers, and look-ups that are under way. `net/names.rs` makes
//! the look-ups; this file only keeps what they bring.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use kinfolk_core::kit::Completer;

/// The answer to a look-up, for every job that waits for it.
pub(crate) type LookedUp = Result<Vec<IpAddr>, (io::ErrorKind, String)>;

/// The cached state of one name.
pub(crate) enum HostEntry {
    /// A look-up is under way.
    Asked(AskedHost),
    /// The addresses, and when the answer expires.
    Known(Vec<IpAddr>, Instant),
}

/// A look-up that is under way, and the jobs that want it. Each of them has an `Arc` as long
/// as it does.
#[derive(Default)]
pub(crate) struct AskedHost {
    /// The job that has asked first.
    asker: Weak<()>,
    /// The others; they get nothing if the look-up was never made.
    waiting: Vec<(Weak<()>, Completer<Option<LookedUp>>)>,
}

impl AskedHost {
    pub(crate) fn by(asker: Weak<()>) -> AskedHost {
        AskedHost {
            asker,
            waiting: Vec::new(),
        }
    }

    /// One more job waits for the answer.
    pub(crate) fn also(&mut self, job: Weak<()>, completer: Completer<Option<LookedUp>>) {
        if self.waiting.len() >= 16 && self.waiting.len().is_power_of_two() {
            // Those that have left make room.
            self.waiting.retain(|(job, _)| job.strong_count() > 0);
        }
        self.waiting.push((job, completer));
    }

    /// True if a job still wants the answer.
    fn is_wanted(&self) -> bool {
        let mut waiting = self.waiting.iter();
        self.asker.strong_count() > 0 || waiting.any(|(job, _)| job.strong_count() > 0)
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// The cache of one i/o handle. `net::lookup_host` fills it.
#[derive(Default)]
pub(crate) struct HostNames(Mutex<HashMap<String, HostEntry>>);

impl HostNames {
    pub(crate) fn entries(&self) -> MutexGuard<'_, HashMap<String, HostEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The look-up of `host` is about to begin. False if no job wants it any more: then it is
    /// forgotten.
    pub(crate) fn begin(&self, host: &str) -> bool {
        let mut entries = self.entries();
        let wanted = match entries.get(host) {
            Some(HostEntry::Asked(asked)) => asked.is_wanted(),
            _ => false,
        };
        let forgotten = if wanted { None } else { entries.remove(host) };
        drop(entries);
        drop(forgotten);
        wanted
    }

    /// The look-up of `host` is over: those that wait for it hear of it.
    pub(crate) fn settle(&self, host: &str, found: Option<LookedUp>, until: Instant) {
        let mut entries = self.entries();
        let before = match &found {
            Some(Ok(addrs)) => {
                entries.insert(host.to_owned(), HostEntry::Known(addrs.clone(), until))
            }
            _ => entries.remove(host),
        };
        drop(entries);
        if let Some(HostEntry::Asked(asked)) = before {
            for (_, completer) in asked.waiting {
                completer.complete(found.clone());
            }
        }
    }
}
