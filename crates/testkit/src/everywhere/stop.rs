//! How and when a scenario is stopped, and how that is written in
//! `KINFOLK_POINT`.

use std::fmt;

/// How a scenario is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its task is cancelled.
    Cancel,
    /// A timeout around it fires.
    Deadline,
    /// A child task beside it fails.
    Failure,
    /// Its task is interrupted: one point returns `Cancelled`, and the job goes
    /// on if the scenario does.
    Interrupt,
    /// The future of the scenario is dropped in the middle, as by a `select!` that
    /// drops its losers.
    DropFuture,
    /// The `Task` that the scenario runs as is dropped.
    DropTask,
    /// Its tree is shut down, with unlimited time.
    Shutdown,
    /// Its task is cancelled, and `later` turns after that, in the middle of
    /// its clean-up, its tree is shut down.
    Twice { later: u64 },
}

impl Stop {
    /// All but [`Stop::Twice`], which follows a [`Stop::Cancel`] that takes more
    /// than a turn.
    pub(super) const ALONE: [Stop; 7] = [
        Stop::Cancel,
        Stop::Deadline,
        Stop::Failure,
        Stop::Interrupt,
        Stop::DropFuture,
        Stop::DropTask,
        Stop::Shutdown,
    ];

    /// Its number among those in [`ALONE`](Stop::ALONE).
    pub(super) fn number(self) -> u64 {
        let at = Stop::ALONE.into_iter().position(|stop| stop == self);
        at.map_or(0, |at| at as u64)
    }

    /// The word for this stop in `KINFOLK_POINT`.
    fn word(self) -> &'static str {
        match self {
            Stop::Cancel => "cancel",
            Stop::Deadline => "deadline",
            Stop::Failure => "failure",
            Stop::Interrupt => "interrupt",
            Stop::DropFuture => "drop-future",
            Stop::DropTask => "drop-task",
            Stop::Shutdown => "shutdown",
            Stop::Twice { .. } => "twice",
        }
    }

    /// True if the body is not told and cannot clean up.
    pub(super) fn drops(self) -> bool {
        self == Stop::DropFuture
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Cancel => "a cancel",
            Stop::Deadline => "a deadline",
            Stop::Failure => "a failure beside it",
            Stop::Interrupt => "an interrupt",
            Stop::DropFuture => "its future dropped",
            Stop::DropTask => "its task dropped",
            Stop::Shutdown => "a shutdown",
            Stop::Twice { .. } => "a cancel",
        })?;
        match self {
            Stop::Twice { later: 1 } => f.write_str(", and a second stop one turn later,"),
            Stop::Twice { later } => write!(f, ", and a second stop {later} turns later,"),
            _ => Ok(()),
        }
    }
}

/// When a scenario is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopMoment {
    /// Never.
    Never,
    /// At this point, which is held until the scenario has been stopped.
    Point(u64),
    /// Before this turn: between two turns the scenario waits for a timer or an
    /// operation, or is ready.
    Turn(u64),
}

impl fmt::Display for StopMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopMoment::Never => f.write_str("nowhere"),
            StopMoment::Point(at) => write!(f, "at point {at}"),
            StopMoment::Turn(at) => write!(f, "before turn {at}"),
        }
    }
}

/// One way through a scenario, on the schedule of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StopCase {
    pub(super) stop: Stop,
    pub(super) at: StopMoment,
    /// Its i/o has the faults that every program must cope with.
    pub(super) rough: bool,
}

impl StopCase {
    /// In words, for a message.
    pub(super) fn in_words(self) -> String {
        let when = match self.at {
            StopMoment::Never => "with nothing to stop it".to_string(),
            at => format!("with {} {at}", self.stop),
        };
        let faults = if self.rough { ", with rough i/o" } else { "" };
        format!("{when}{faults}")
    }

    /// In the form that [`parse`](StopCase::parse) reads.
    pub(super) fn to_text(self) -> String {
        let at = match self.at {
            StopMoment::Never => "alone".to_string(),
            StopMoment::Point(at) => format!("{}@point:{at}", self.stop.word()),
            StopMoment::Turn(at) => format!("{}@turn:{at}", self.stop.word()),
        };
        let later = match self.stop {
            Stop::Twice { later } => format!("+{later}"),
            _ => String::new(),
        };
        let faults = if self.rough { ":rough" } else { "" };
        format!("{at}{later}{faults}")
    }

    /// Reads `cancel@point:17`, `drop-future@turn:3:rough`, `twice@turn:4+2`,
    /// `alone`; none if it is none of these.
    pub(super) fn parse(text: &str) -> Option<StopCase> {
        let (text, rough) = match text.trim().strip_suffix(":rough") {
            Some(text) => (text, true),
            None => (text.trim(), false),
        };
        if text == "alone" {
            let (stop, at) = (Stop::Cancel, StopMoment::Never);
            return Some(StopCase { stop, at, rough });
        }
        let (word, when) = text.split_once('@')?;
        let (sort, number) = when.split_once(':')?;
        let (number, later) = match number.split_once('+') {
            Some((number, later)) => (number, Some(later.parse().ok().filter(|later| *later > 0)?)),
            None => (number, None),
        };
        // Points, turns and stops are numbered from one.
        let number = number.parse().ok().filter(|number| *number > 0)?;
        let at = match sort {
            "point" => StopMoment::Point(number),
            "turn" => StopMoment::Turn(number),
            _ => return None,
        };
        let stop = match (word, later) {
            ("twice", Some(later)) => Stop::Twice { later },
            (_, Some(_)) => return None,
            _ => Stop::ALONE.into_iter().find(|stop| stop.word() == word)?,
        };
        Some(StopCase { stop, at, rough })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let stops = Stop::ALONE.into_iter().chain([Stop::Twice { later: 3 }]);
        for stop in stops {
            for at in [StopMoment::Point(17), StopMoment::Turn(1)] {
                for rough in [false, true] {
                    let case = StopCase { stop, at, rough };
                    assert_eq!(StopCase::parse(&case.to_text()), Some(case), "{case:?}");
                }
            }
        }
        let (stop, at, rough) = (Stop::Cancel, StopMoment::Never, true);
        let alone = StopCase { stop, at, rough };
        assert_eq!(StopCase::parse(&alone.to_text()), Some(alone));
    }

    #[test]
    fn what_is_no_case_is_none() {
        for text in [
            "",
            "17",
            "cancel",
            "cancel@17",
            "cancel@point",
            "cancel@point:x",
            "cancel@point:0",
            "cancel@turn:0",
            "twice@turn:1+0",
            "cancel@point:1+2",
            "twice@turn:4",
            "stop@turn:1",
            "cancel@poll:1",
        ] {
            assert_eq!(StopCase::parse(text), None, "{text}");
        }
    }
}
