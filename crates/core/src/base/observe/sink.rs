//! Where events go.

use std::fmt;
use std::ops::BitOr;

use crate::base::observe::event::Event;

/// Which events a sink gets beside those that every sink gets. Combined with `|`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interests(u8);

impl Interests {
    /// None of them.
    pub const NONE: Interests = Interests(0);
    /// The turns of tasks: `Scheduled`, `PollBegin`, `PollEnd`.
    pub const TURNS: Interests = Interests(1 << 0);
    /// What the turns of tasks leave waiting: `WaitBegin`, `WaitEnd`.
    pub const WAITS: Interests = Interests(1 << 1);
    /// What becomes of cancels: `CancelHop`, `CancelHeld`, `Told`, `GuardEntered`,
    /// `GuardLeft`, `Dropped`.
    pub const CAUSES: Interests = Interests(1 << 2);
    /// Texts: [`Sink::event_with`] is called where there is one.
    pub const TEXTS: Interests = Interests(1 << 3);
    /// All of them.
    pub const ALL: Interests = Interests((1 << 4) - 1);

    const NAMES: [(&'static str, Interests); 4] = [
        ("TURNS", Interests::TURNS),
        ("WAITS", Interests::WAITS),
        ("CAUSES", Interests::CAUSES),
        ("TEXTS", Interests::TEXTS),
    ];

    /// True if one of `these` is among them.
    #[inline]
    pub const fn has(self, these: Interests) -> bool {
        self.0 & these.0 != 0
    }

    /// These and those, as `|` says it, in a constant.
    pub const fn and(self, others: Interests) -> Interests {
        Interests(self.0 | others.0)
    }
}

impl BitOr for Interests {
    type Output = Interests;

    fn bitor(self, others: Interests) -> Interests {
        self.and(others)
    }
}

impl fmt::Debug for Interests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (name, one) in Interests::NAMES {
            if self.has(one) {
                write!(f, "{before}{name}")?;
                before = " | ";
            }
        }
        if before.is_empty() {
            f.write_str("NONE")
        } else {
            Ok(())
        }
    }
}

/// Takes events. Called on whatever thread the event happened on, never under
/// a lock of ours. One that panics is called no more, and the failure hook gets the
/// panic; nothing else is harmed.
///
/// Several threads may call it at once, but no thread calls it inside a call of a sink:
/// what happens there, because the sink cancels or spawns, is told when that call has
/// returned.
///
/// With no sink installed, emitting costs one look at a field.
pub trait Sink: Send + Sync + 'static {
    /// One event.
    fn event(&self, event: &Event);

    /// One event that has a text, for a sink with [`Interests::TEXTS`]: the name that was given
    /// to the job of a `Create`, the words that were given with a `CancelRequest`, the lock or
    /// the channel of a `WaitBegin`. The text is
    /// the program's and may hold anything, control characters too.
    fn event_with(&self, event: &Event, text: &str) {
        let _ = text;
        self.event(event);
    }

    /// Something went wrong that no event says, and `what` names it in a few words: the program
    /// received SIGUSR1, was shut down by a signal, is stuck in its shutdown, or did not come
    /// to a clean end. A sink that keeps the latest events writes them to a file now. Called
    /// on a thread that may wait a moment for that; the end of the program waits two seconds at
    /// most. Returns what the sink has done about it, in words for standard error, or none.
    fn trouble(&self, what: &str) -> Option<String> {
        let _ = what;
        None
    }

    /// Which events it gets beside those that every sink gets. Asked once, when the sink is
    /// installed.
    fn interests(&self) -> Interests {
        Interests::NONE
    }
}
