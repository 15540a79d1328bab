//! A sink that keeps the latest events in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::base::observe::event::Event;
use crate::base::observe::sink::{Interests, Sink};

/// Keeps the latest events, up to a number; older ones are forgotten and
/// counted.
#[derive(Debug)]
pub struct RingSink {
    kept: Mutex<(VecDeque<Event>, u64)>,
    capacity: usize,
    interests: Interests,
}

impl RingSink {
    /// Keeps the latest `capacity` events.
    pub fn new(capacity: usize) -> Self {
        RingSink {
            kept: Mutex::new((VecDeque::with_capacity(capacity), 0)),
            capacity,
            interests: Interests::NONE,
        }
    }

    /// Also keeps the events of every turn.
    pub fn with_turns(self) -> Self {
        self.with(Interests::TURNS)
    }

    /// Also keeps these.
    pub fn with(mut self, interests: Interests) -> Self {
        self.interests = self.interests | interests;
        self
    }

    /// The events kept, oldest first.
    pub fn events(&self) -> Vec<Event> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0.iter().copied().collect()
    }

    /// How many were forgotten.
    pub fn forgotten(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

impl Sink for RingSink {
    fn event(&self, event: &Event) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0.len() == self.capacity {
            kept.1 += 1;
            if kept.0.pop_front().is_none() {
                return;
            }
        }
        kept.0.push_back(*event);
    }

    fn interests(&self) -> Interests {
        self.interests
    }
}
