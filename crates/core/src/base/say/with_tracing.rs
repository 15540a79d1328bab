//! A line goes to the subscriber of `tracing` that the program has set for all threads, as
//! an event of the target `kinfolk`; to standard error if there is none. The words with which a
//! program ends go to standard error too, where the filter of the subscriber leaves them out.

use std::io;

use tracing::Level;
use tracing::subscriber::NoSubscriber;

use super::LineWeight;
use crate::base::unwind::contained;

/// Called by the one thread that speaks: a subscriber that does not return holds up that
/// thread alone.
pub(super) fn write(line: &[u8], weight: LineWeight) -> io::Result<()> {
    if tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>()) {
        return super::to_stderr(line);
    }
    let text = String::from_utf8_lossy(line);
    let words = text.trim_end_matches('\n');
    let words = words.strip_prefix("kinfolk: ").unwrap_or(words);
    if weight == LineWeight::Report {
        contained(|| tracing::warn!(target: "kinfolk", "{words}"));
        return Ok(());
    }
    let mut is_told = false;
    contained(|| {
        is_told = tracing::enabled!(target: "kinfolk", Level::ERROR);
        tracing::error!(target: "kinfolk", "{words}");
    });
    match is_told {
        true => Ok(()),
        false => super::to_stderr(line),
    }
}
