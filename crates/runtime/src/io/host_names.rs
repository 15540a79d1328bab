//! The cache of host names: answers, and look-ups that are under way. `net/names.rs` makes
//! the look-ups; this file only keeps what they bring.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kinfolk_core::kit::Completer;

/// The answer to a look-up, for every job that waits for it.
pub(crate) type LookedUp = Result<Vec<IpAddr>, (io::ErrorKind, String)>;

/// The cached state of one name.
pub(crate) enum HostEntry {
    /// A look-up is under way; those that wait for it get nothing if it was never made.
    Asked(Vec<Completer<Option<LookedUp>>>),
    /// The addresses, and when the answer expires.
    Known(Vec<IpAddr>, Instant),
}

/// The cache of one i/o handle. `net::lookup_host` fills it.
#[derive(Default)]
pub(crate) struct HostNames(Mutex<HashMap<String, HostEntry>>);

impl HostNames {
    pub(crate) fn entries(&self) -> MutexGuard<'_, HashMap<String, HostEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(HostEntry::Asked(waiting)) = before {
            for completer in waiting {
                completer.complete(found.clone());
            }
        }
    }
}
