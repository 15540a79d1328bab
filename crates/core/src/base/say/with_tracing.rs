//! A line goes to the subscriber of `tracing` that the program has set for all threads, as
//! an event of the target `kinfolk`; to standard error if there is none.

use std::io;

use tracing::subscriber::NoSubscriber;

use crate::base::unwind::contained;

/// Called by the one thread that speaks: a subscriber that does not return holds up that
/// thread alone.
pub(super) fn write(line: &[u8]) -> io::Result<()> {
    if tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>()) {
        return super::to_stderr(line);
    }
    let line = String::from_utf8_lossy(line);
    let words = line.trim_end_matches('\n');
    let words = words.strip_prefix("kinfolk: ").unwrap_or(words);
    contained(|| tracing::warn!(target: "kinfolk", "{words}"));
    Ok(())
}
