//! How many turns a thread takes until it looks round: at the clock, at its
//! driver, at what others have pushed.
//!
//! To read a clock at each turn would cost more than a short turn may. So the
//! thread reads it at each look, and has the next look after as many turns as
//! would take [`SOON_NANOS`] if they are like those since the last: after 16 where turns
//! are short, after each where they are long. Turns that become long are noticed
//! at the next look, 16 of them later at most; shortly after a sleep sooner.

use std::cell::Cell;
use std::time::Instant;

/// How many turns until the next look, at most.
const MOST: u32 = 16;

/// How many after a sleep. A thread that is woken for one turn, and sleeps again,
/// does not pay for a look.
const FIRST: u32 = 3;

/// How much time should go by between two looks: half a millisecond.
const SOON_NANOS: u64 = 500_000;

pub(crate) struct Pace {
    /// The next tick at which there is something else to do than to take a turn.
    at: Cell<u32>,
    /// The tick of the next look.
    look_at: Cell<u32>,
    /// How many turns there are between the last look and the next.
    turns: Cell<u32>,
    looked: Cell<Instant>,
    /// Looks in a row after each of which the very next turn is followed by one.
    long: Cell<u32>,
}

impl Pace {
    /// For a thread whose first tick is 1.
    pub(crate) fn new(now: Instant) -> Pace {
        Pace {
            at: Cell::new(FIRST),
            look_at: Cell::new(FIRST),
            turns: Cell::new(FIRST),
            looked: Cell::new(now),
            long: Cell::new(0),
        }
    }

    /// This is the tick of a look, or one that was [asked for](Pace::ask_for_next).
    #[inline]
    pub(crate) fn is_due(&self, tick: u32) -> bool {
        tick == self.at.get()
    }

    /// This is the tick of a look. If not, the next tick that is due is that of a look, unless
    /// another is asked for.
    pub(crate) fn is_look(&self, tick: u32) -> bool {
        self.at.set(self.look_at.get());
        tick == self.look_at.get()
    }

    /// The tick after this one is due too.
    pub(crate) fn ask_for_next(&self, tick: u32) {
        self.at.set(tick.wrapping_add(1));
    }

    /// The thread looks round, at the tick that was due.
    pub(crate) fn looked(&self, tick: u32, now: Instant) {
        let took = now.saturating_duration_since(self.looked.replace(now));
        let turns = self.turns.get();
        // Slowly up: one long turn among many short ones is to be met soon too.
        let most = (2 * turns).min(MOST);
        // What takes a second is long, however many turns it was.
        let nanos = match took.as_secs() {
            0 => u64::from(took.subsec_nanos()),
            _ => u64::MAX / u64::from(MOST),
        };
        let room = SOON_NANOS * u64::from(turns);
        // Short turns are the many: they do without a division.
        let next = match nanos * u64::from(most) <= room {
            true => most,
            false => (room / nanos).max(1) as u32,
        };
        self.long.set(match next {
            1 => self.long.get().wrapping_add(1),
            _ => 0,
        });
        self.next_after(tick, next);
    }

    /// The thread has slept: that was no turn.
    pub(crate) fn slept(&self, tick: u32, now: Instant) {
        self.looked.set(now);
        self.next_after(tick, self.turns.get().min(FIRST));
    }

    /// The thread comes from elsewhere: that was no turn. A look that was due sooner than
    /// after a sleep stays so: otherwise a thread that comes for a turn or two at a time
    /// would never look.
    pub(crate) fn came_in(&self, tick: u32, now: Instant) {
        self.looked.set(now);
        let due = self.look_at.get().wrapping_sub(tick);
        self.next_after(tick, self.turns.get().min(FIRST).min(due).max(1));
    }

    /// Turns are long, and this is the `n`th look of it: where short turns are
    /// counted until something is looked at, long ones count for more.
    pub(crate) fn is_long(&self, n: u32) -> bool {
        let long = self.long.get();
        long > 0 && long.is_multiple_of(n)
    }

    fn next_after(&self, tick: u32, turns: u32) {
        self.turns.set(turns);
        self.look_at.set(tick.wrapping_add(turns));
        self.at.set(self.look_at.get());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Takes turns that last as long as said, from the tick before; the numbers of
    /// turns between the looks.
    fn looks(pace: &Pace, tick: &mut u32, now: &mut Instant, turns: &[Duration]) -> Vec<u32> {
        let (mut looks, mut since) = (Vec::new(), 0);
        for turn in turns {
            *now += *turn;
            *tick = tick.wrapping_add(1);
            since += 1;
            if pace.is_due(*tick) {
                pace.looked(*tick, *now);
                looks.push(std::mem::take(&mut since));
            }
        }
        looks
    }

    #[test]
    fn short_turns_have_a_look_every_16_and_long_ones_each() {
        let (short, long) = (Duration::from_nanos(100), Duration::from_millis(1));
        let (mut tick, mut now) = (0, Instant::now());
        let pace = Pace::new(now);
        let mut take = |pace: &Pace, turns: &[Duration]| looks(pace, &mut tick, &mut now, turns);
        assert_eq!(take(&pace, &[short; 73]), [3, 6, 12, 16, 16, 16]);
        // They become long: noticed once, then each.
        assert_eq!(take(&pace, &[long; 12])[0], 12, "4 short ones came before");
        assert_eq!(take(&pace, &[long; 5]), [1; 5]);
        assert!(pace.is_long(2) && !pace.is_long(4), "the sixth");
        // And short again.
        assert_eq!(take(&pace, &[short; 31]), [1, 2, 4, 8, 16]);
        assert!(!pace.is_long(1));
    }

    #[test]
    fn after_a_sleep_it_looks_soon_and_the_sleep_is_no_turn() {
        let (short, long) = (Duration::from_nanos(100), Duration::from_millis(1));
        let (mut tick, mut now) = (u32::MAX - 20, Instant::now());
        let pace = Pace::new(now);
        pace.slept(tick, now);
        assert_eq!(
            looks(&pace, &mut tick, &mut now, &[short; 53]),
            [3, 6, 12, 16, 16]
        );
        now += Duration::from_secs(1);
        pace.slept(tick, now);
        assert_eq!(looks(&pace, &mut tick, &mut now, &[short; 9]), [3, 6]);
        pace.slept(tick, now);
        assert_eq!(looks(&pace, &mut tick, &mut now, &[long; 6]), [3, 1, 1, 1]);
    }

    #[test]
    fn coming_in_for_a_turn_at_a_time_does_not_put_the_look_off() {
        let (mut tick, mut now) = (u32::MAX - 20, Instant::now());
        let pace = Pace::new(now);
        pace.slept(tick, now);
        let mut seen = 0;
        for _ in 0..90 {
            pace.came_in(tick, now);
            seen += looks(&pace, &mut tick, &mut now, &[Duration::from_nanos(100)]).len();
        }
        assert!(seen >= 30, "{seen} looks");
    }

    #[test]
    fn one_long_turn_among_short_ones_brings_looks_nearer() {
        let (mut tick, mut now) = (0, Instant::now());
        let pace = Pace::new(now);
        let turns: Vec<_> = (0..400)
            .map(|n| match n % 8 {
                0 => Duration::from_millis(2),
                _ => Duration::from_micros(1),
            })
            .collect();
        let looks = looks(&pace, &mut tick, &mut now, &turns);
        assert!(looks.iter().skip(2).all(|turns| *turns <= 8), "{looks:?}");
    }
}
