//! A list of words that a test writes and then compares: the run, in order.

use std::sync::{Arc, Mutex, PoisonError};

/// A shared list of words.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// An empty list.
    pub fn new() -> Log {
        Log::default()
    }

    /// Adds a word.
    pub fn say(&self, word: impl Into<String>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(word.into());
    }

    /// The words so far, with a space between them.
    pub fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join(" ")
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
