//! [`Questions`]: tells a blocking call that does nothing but ask whether it is cancelled from
//! one that asks now and then while it works.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::base::thread_activity;

/// What a host does when a blocking call asks whether it is cancelled. It is called on the thread
/// that asks, before the call has its answer, with the flag that will be the answer.
pub type Asks = Arc<dyn Fn(&Arc<AtomicBool>) + Send + Sync>;

/// How often a call may ask at one instant, while nothing else can go on, before it counts
/// as one that does nothing but ask.
const QUESTIONS: u32 = 10_000;

/// How long it may sleep between such questions, all in all, in real time.
const SLEEP: Duration = Duration::from_millis(50);

/// Two questions that are nearer to each other have no sleep between them that counts.
const NEAR: Duration = Duration::from_micros(100);

/// How often a blocking call has asked whether it is cancelled, and how long it has slept in
/// between. For authors of hosts whose time is virtual.
#[derive(Debug)]
pub struct Questions {
    /// How often it may ask before it counts as one that does nothing else.
    left: u32,
    slept: Duration,
    /// When it last asked, and how often its thread had slept by then.
    last: Option<(Instant, Option<u64>)>,
    only_asks: bool,
}

impl Default for Questions {
    fn default() -> Self {
        Questions {
            left: QUESTIONS,
            slept: Duration::ZERO,
            last: None,
            only_asks: false,
        }
    }
}

impl Questions {
    /// The call asks, on this thread. True if it does nothing else: that stays so.
    pub fn asks(&mut self) -> bool {
        if !self.only_asks {
            let slept = self.slept_since();
            self.slept += slept;
            self.only_asks = self.left == 0 || self.slept >= SLEEP;
        }
        self.only_asks
    }

    /// One more of its questions counts: nothing else can go on.
    pub fn counts(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Something else has gone on: its questions are counted anew.
    pub fn begin_anew(&mut self) {
        self.left = QUESTIONS;
        self.slept = Duration::ZERO;
    }

    /// It has waited for its host: that was no sleep of its own.
    pub fn waited(&mut self) {
        self.last = None;
    }

    /// How long the call has slept since it last asked, in real time.
    fn slept_since(&mut self) -> Duration {
        let since = self.last.map(|(last, _)| last.elapsed());
        let before = self.last.and_then(|(_, times)| times);
        if since.is_some_and(|since| since < NEAR) {
            // To look would take longer than the time between.
            self.asked_now(before);
            return Duration::ZERO;
        }
        let times = thread_activity::times_asleep();
        self.asked_now(times);
        // Where the system does not tell, it may have slept.
        match since {
            Some(since) if times.is_none() || times != before => since,
            _ => Duration::ZERO,
        }
    }

    fn asked_now(&mut self, times_asleep: Option<u64>) {
        self.last = Some((Instant::now(), times_asleep));
    }
}
