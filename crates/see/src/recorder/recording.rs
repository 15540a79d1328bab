//! A copy of what a recorder holds: events in the order of their times.

use std::io::{self, Write};
use std::sync::Arc;

use kinfolk_core::Sink;

use crate::causes::Causes;
use crate::perfetto::write_trace;
use crate::recorder::code::RecordedEvent;

/// The latest events of all threads, in the order of their times.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recording {
    /// The events.
    pub events: Vec<RecordedEvent>,
    /// How many events came and are not among them: they were overwritten by later ones, came
    /// from more threads than there is room for, or were older than what was asked for.
    pub lost: u64,
}

impl Recording {
    /// Writes it as a trace file of Perfetto, which <https://ui.perfetto.dev> opens.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_perfetto(&self, out: &mut dyn Write) -> io::Result<()> {
        write_trace(&self.events, self.lost, out)
    }

    /// Why jobs were cancelled, as far as the recording reaches back.
    pub fn causes(&self) -> Arc<Causes> {
        let causes = Causes::keeping(self.events.len());
        for RecordedEvent { event, text } in &self.events {
            match text {
                Some(text) => causes.event_with(event, text),
                None => causes.event(event),
            }
        }
        causes
    }
}
