//! What records say of one job, and how they print it: used by every sink of this crate.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use kinfolk_core::host::say::quoted;
use kinfolk_core::{JobId, JobKind};

/// A job in a record: its identity, its name and where it was made. It may have ended long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobLabel {
    /// Its identity.
    pub id: JobId,
    /// Its name, as the program gave it: it may hold any characters. `Display` escapes those
    /// that a terminal would act on.
    pub name: String,
    /// What sort of job it is; none if the record does not reach back to its beginning.
    pub kind: Option<JobKind>,
    /// Where it was spawned or opened; none if the record does not reach back that far.
    pub site: Option<&'static Location<'static>>,
}

impl JobLabel {
    /// A job of which no more is known.
    pub(crate) fn unknown(id: JobId) -> JobLabel {
        JobLabel {
            id,
            name: String::from("?"),
            kind: None,
            site: None,
        }
    }
}

impl fmt::Display for JobLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{kind} ")?,
            None => f.write_str("job ")?,
        }
        write!(f, "{} {}", quoted(&self.name), self.id)
    }
}

/// `src/main.rs:12`.
pub(crate) struct AtPlace(pub(crate) &'static Location<'static>);

impl fmt::Display for AtPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.file(), self.0.line())
    }
}

/// A span of time in three digits or so: `2.58 s`, `310 ms`, `12.4 us`.
pub(crate) struct Lasted(pub(crate) Duration);

impl Lasted {
    /// That of so many nanoseconds.
    pub(crate) fn nanos(nanos: u64) -> Lasted {
        Lasted(Duration::from_nanos(nanos))
    }
}

impl fmt::Display for Lasted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, name) = match nanos {
            0..1_000 => return write!(f, "{nanos} ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let whole = nanos / unit;
        let hundredths = (nanos % unit) * 100 / unit;
        match (whole, hundredths) {
            (_, 0) => write!(f, "{whole} {name}"),
            (100.., _) => write!(f, "{whole} {name}"),
            (10.., _) => write!(f, "{whole}.{} {name}", hundredths / 10),
            _ => write!(f, "{whole}.{hundredths:02} {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn see_5_names_are_escaped_where_they_print() {
        let label = JobLabel {
            name: "\x1b[2J\n\"\\\u{202e}".into(),
            ..JobLabel::unknown(JobId::from_bits(1).expect("not 0"))
        };
        let said = label.to_string();
        assert!(said.contains("\"\\u{1b}[2J"), "{said}");
        assert!(!said.chars().any(char::is_control), "{said:?}");
        assert!(!said.contains('\u{202e}'), "{said:?}");
    }

    #[test]
    fn spans_print_in_three_digits() {
        let said = |nanos| Lasted::nanos(nanos).to_string();
        assert_eq!(said(0), "0 ns");
        assert_eq!(said(1_500), "1.50 us");
        assert_eq!(said(12_340_000), "12.3 ms");
        assert_eq!(said(310_900_000), "310 ms");
        assert_eq!(said(2_580_000_000), "2.58 s");
        assert_eq!(said(2_000_000_000), "2 s");
    }
}
