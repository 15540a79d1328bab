//! Names of jobs and paths from the root.

use crate::base::error::Victim;
use crate::base::reason::AskedBy;
use crate::engine::context;
use crate::record::header::Header;

/// The longest path an error carries.
const LONGEST_PATH: usize = 64;

/// The given name, or one made of the kind and the spawn site.
pub(crate) fn name_of(h: &Header) -> String {
    let given = h
        .if_cold(|cold, _| cold.name.as_ref().map(ToString::to_string))
        .flatten();
    given.unwrap_or_else(|| h.kind().name_at(h.site()))
}

/// The job being polled here, for the reason of a cancel that it requests.
pub(crate) fn asking_here() -> Option<AskedBy> {
    context::with(|cx| {
        let h = cx.current()?;
        Some(AskedBy {
            id: h.id,
            name: h.if_cold(|cold, _| cold.name.clone()).flatten(),
            kind: h.kind(),
            site: h.site(),
        })
    })
}

/// The identity of `h`, for an error, when `h` has left the tree.
pub(crate) fn victim_alone(h: &Header) -> Victim {
    let name = name_of(h);
    Victim {
        id: h.id,
        path: vec![name.clone()],
        name,
        site: h.site(),
    }
}

/// The identity of the job being polled here, for an error; none outside every
/// job.
pub(crate) fn victim_here() -> Option<Victim> {
    // SAFETY: being polled, so it is linked.
    context::with(|cx| cx.current().map(|h| unsafe { victim(h) }))
}

/// The identity of `h`, for an error.
///
/// # Safety
/// The job is linked (H3).
pub(crate) unsafe fn victim(h: &Header) -> Victim {
    let mut path = Vec::new();
    let mut at = Some(h);
    while let Some(job) = at {
        if path.len() == LONGEST_PATH {
            break;
        }
        path.push(name_of(job));
        // SAFETY: every ancestor of a linked job is linked (H3).
        at = unsafe { job.parent() };
    }
    path.reverse();
    Victim {
        id: h.id,
        name: path.last().cloned().unwrap_or_default(),
        path,
        site: h.site(),
    }
}
