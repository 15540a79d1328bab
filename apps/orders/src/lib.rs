//! One service, written three times, under clients that hang up and a SIGTERM in the middle;
//! and what is half done, or still runs, after each.

pub mod axum_alone;
pub mod bank;
pub mod by_the_guides;
pub mod drill;
pub mod load;
mod process;
pub mod script;
pub mod shop;
pub mod tally;
pub mod with_kinfolk;

use std::time::Duration;

/// The limits of a server, the same in all three.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the bank may take.
    pub bank: Duration,
    /// How long requests may go on after SIGTERM.
    pub grace: Duration,
    /// How long what is being undone may take after that. Only the server on Kinfolk has it.
    pub undo: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bank: Duration::from_secs(1),
            grace: Duration::from_millis(500),
            undo: Duration::from_secs(4),
        }
    }
}

/// An error of any kind.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Which of the three servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A handler as in axum's examples.
    AxumAlone,
    /// With a `TaskTracker` and a `CancellationToken`, as tokio's guides advise.
    ByTheGuides,
    /// Requests are jobs.
    WithKinfolk,
}

impl Kind {
    /// All three.
    pub const ALL: [Kind; 3] = [Kind::AxumAlone, Kind::ByTheGuides, Kind::WithKinfolk];

    /// At the head of a column.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AxumAlone => "axum alone",
            Kind::ByTheGuides => "tokio's guides",
            Kind::WithKinfolk => "Kinfolk",
        }
    }

    /// The one of that name.
    pub fn of(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
