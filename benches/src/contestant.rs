//! What is measured: benches, the contestants that run them, and the bars that
//! ours must clear. Says nothing about how a body is run (`ways`) or timed
//! (`measure`).

/// What a contestant is to the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another runtime that does the same work.
    Peer,
    /// Written by hand for the one workload: what the machine can do.
    Floor,
    /// Kinfolk.
    Ours,
    /// Another way to use a contestant, or one that promises less. Shown, and
    /// no part of any ratio.
    Variant,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Peer => "peer",
            Kind::Floor => "floor",
            Kind::Ours => "ours",
            Kind::Variant => "variant",
        }
    }
}

/// One who runs a workload. A round gives one number for each bench of the
/// group, in their order.
pub struct Contestant {
    pub name: &'static str,
    pub kind: Kind,
    pub round: Box<dyn FnMut() -> Vec<f64>>,
}

impl Contestant {
    fn new(name: &'static str, kind: Kind, round: impl FnMut() -> Vec<f64> + 'static) -> Self {
        Contestant {
            name,
            kind,
            round: Box::new(round),
        }
    }

    pub fn peer(name: &'static str, round: impl FnMut() -> Vec<f64> + 'static) -> Self {
        Self::new(name, Kind::Peer, round)
    }

    pub fn floor(round: impl FnMut() -> Vec<f64> + 'static) -> Self {
        Self::new("floor", Kind::Floor, round)
    }

    pub fn ours(name: &'static str, round: impl FnMut() -> Vec<f64> + 'static) -> Self {
        Self::new(name, Kind::Ours, round)
    }

    pub fn variant(name: &'static str, round: impl FnMut() -> Vec<f64> + 'static) -> Self {
        Self::new(name, Kind::Variant, round)
    }
}

/// What the numbers of a bench are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Bytes,
}

impl Unit {
    pub fn short(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Bytes => "bytes",
        }
    }
}

/// What one of ours must reach, by minima.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// At most this.
    AtMost(f64),
    /// At most this share of the best peer.
    OfBest(f64),
    /// At most this share of the named contestant.
    Of(&'static str, f64),
    /// At most this much more than the named contestant.
    Over(&'static str, f64),
}

/// A bar, and who must clear it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub contestant: &'static str,
    pub bar: Bar,
}

/// One row of numbers: a workload with its size and its number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    pub name: &'static str,
    /// What happens, in a sentence, for the tables.
    pub what: &'static str,
    /// What one number is the cost of.
    pub per: &'static str,
    pub unit: Unit,
    pub targets: &'static [Target],
}

/// Benches whose numbers come from the same rounds.
pub struct Group {
    pub benches: Vec<Bench>,
    pub contestants: Vec<Contestant>,
    /// At most this many rounds: for what hardly varies, or takes long.
    pub most_rounds: usize,
}

/// Our own hosts, by name, as the targets refer to them.
pub const NATIVE: &str = "kinfolk";
pub const ON_TOKIO: &str = "kinfolk on tokio";

/// A bar for the native host.
pub const fn native(bar: Bar) -> Target {
    Target {
        contestant: NATIVE,
        bar,
    }
}

/// A bar for the tokio host.
pub const fn on_tokio(bar: Bar) -> Target {
    Target {
        contestant: ON_TOKIO,
        bar,
    }
}
