//! The timer queue against the simplest one there is: an ordered map.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::host::{TimerKey, TimerQueue};
use proptest::prelude::*;

/// The reference: by instant, then by age.
#[derive(Default)]
struct Ordered {
    timers: BTreeMap<(Instant, usize), usize>,
}

impl Ordered {
    fn pop_due(&mut self, now: Instant) -> Option<usize> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

/// Writes its number down when it is woken.
struct Numbered(usize, Arc<AtomicUsize>);

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0, Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Sets a timer this long after the present time, or before it.
    Set(Duration, bool),
    /// Gives up one of those that were ever set.
    GiveUp(prop::sample::Index),
    /// Time passes, and what is due fires.
    Pass(Duration),
    /// The host looks, fires one timer and no more.
    FireOne,
}

fn distance() -> impl Strategy<Value = Duration> {
    prop_oneof![
        // Few different ones, so that instants are equal.
        4 => (0..5_u64).prop_map(Duration::from_millis),
        4 => (0..10_000_000_000_u64).prop_map(Duration::from_nanos),
        2 => (0..100_u64).prop_map(|days| Duration::from_secs(days * 86_400)),
        1 => Just(Duration::MAX),
        1 => Just(Duration::from_secs(i64::MAX as u64 / 2)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (distance(), prop::bool::weighted(0.1)).prop_map(|(d, past)| Step::Set(d, past)),
        5 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
        2 => distance().prop_map(Step::Pass),
        2 => Just(Step::FireOne),
    ]
}

/// The last instant there is, at or before `now + distance`.
fn after(now: Instant, distance: Duration) -> Instant {
    let mut distance = distance;
    loop {
        if let Some(at) = now.checked_add(distance) {
            return at;
        }
        distance /= 2;
    }
}

struct Both {
    queue: TimerQueue,
    ordered: Ordered,
    keys: Vec<TimerKey>,
    woken: Arc<AtomicUsize>,
    now: Instant,
}

impl Both {
    fn new() -> Both {
        Both {
            queue: TimerQueue::new(),
            ordered: Ordered::default(),
            keys: Vec::new(),
            woken: Arc::default(),
            now: Instant::now(),
        }
    }

    fn set(&mut self, at: Instant) {
        let number = self.keys.len();
        let waker = Waker::from(Arc::new(Numbered(number, self.woken.clone())));
        let key = self.queue.insert(at, waker);
        assert_eq!(key.at, at);
        assert!(!self.keys.contains(&key), "a key was given out twice");
        self.keys.push(key);
        self.ordered.timers.insert((at, number), number);
    }

    fn number_of(&self, waker: Waker) -> usize {
        waker.wake();
        self.woken.load(Relaxed)
    }

    fn give_up(&mut self, number: usize) {
        let key = self.keys[number];
        let got = self.queue.remove(key).map(|waker| self.number_of(waker));
        assert_eq!(got, self.ordered.timers.remove(&(key.at, number)));
    }

    /// Fires one; false if none is due.
    fn fire_one(&mut self) -> bool {
        let got = self.queue.pop_due(self.now);
        let got = got.map(|waker| self.number_of(waker));
        assert_eq!(got, self.ordered.pop_due(self.now));
        got.is_some()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Set(distance, false) => self.set(after(self.now, distance)),
            Step::Set(distance, true) => {
                self.set(self.now.checked_sub(distance).unwrap_or(self.now));
            }
            Step::GiveUp(_) if self.keys.is_empty() => {}
            Step::GiveUp(which) => self.give_up(which.index(self.keys.len())),
            Step::FireOne => drop(self.fire_one()),
            Step::Pass(distance) => {
                // A year at most: time stays where instants still fit.
                self.now += distance.min(Duration::from_secs(365 * 86_400));
                while self.fire_one() {}
            }
        }
        assert_eq!(self.queue.len(), self.ordered.timers.len());
        assert_eq!(self.queue.is_empty(), self.ordered.timers.is_empty());
        let first = self.ordered.timers.keys().next().map(|key| key.0);
        assert_eq!(self.queue.next_at(), first);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever is set, given up and waited for, the two agree.
    /// Also: C21.
    #[test]
    fn case_n14_it_agrees_with_an_ordered_map(steps in prop::collection::vec(step(), 0..400)) {
        let mut both = Both::new();
        for step in steps {
            both.take(step);
        }
        both.now = after(both.now, Duration::MAX);
        while both.fire_one() {}
        prop_assert!(both.queue.is_empty());
    }
}

/// Nothing is lost and nothing is out of order among a hundred thousand, most
/// of which are given up.
#[test]
fn src_c21_a_hundred_thousand_come_out_in_order() {
    let mut both = Both::new();
    let start = both.now;
    let keys: Vec<_> = (0..100_000_u64)
        .map(|n| {
            let at = start + Duration::from_nanos(n.wrapping_mul(2_654_435_761) % 50_000);
            (at, both.queue.insert(at, Waker::noop().clone()))
        })
        .collect();
    let mut kept = Vec::new();
    for (n, (at, key)) in keys.into_iter().enumerate() {
        if n % 10 == 0 {
            kept.push(at);
        } else {
            assert!(both.queue.remove(key).is_some());
        }
    }
    kept.sort();
    for at in kept {
        assert_eq!(both.queue.next_at(), Some(at));
        assert!(both.queue.pop_due(at - Duration::from_nanos(1)).is_none());
        assert!(both.queue.pop_due(at).is_some());
    }
    assert!(both.queue.is_empty());
}
