//! Runs the rounds and makes numbers of them: interleaved, so that whatever
//! disturbs the machine disturbs everybody; and with an eye on who else used it.

use std::fs;
use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::contestant::{Bar, Bench, Group, Kind};

/// A run is rough if others used more than this share of the machine.
pub const QUIET: f64 = 0.03;

/// All rounds of one contestant in one bench.
#[derive(Clone, Debug)]
pub struct Row {
    pub contestant: &'static str,
    pub kind: Kind,
    pub samples: Vec<f64>,
}

impl Row {
    pub fn median(&self) -> f64 {
        quantile(&self.samples, 0.5)
    }

    pub fn min(&self) -> f64 {
        self.samples.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The middle half of the rounds, as a share of the median.
    pub fn spread(&self) -> f64 {
        let width = quantile(&self.samples, 0.75) - quantile(&self.samples, 0.25);
        width / self.median().abs().max(f64::MIN_POSITIVE)
    }
}

/// The value below which the share `q` of the samples lies; between two of
/// them it is interpolated.
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// One bench, measured.
#[derive(Clone, Debug)]
pub struct Table {
    pub bench: Bench,
    pub rows: Vec<Row>,
    /// The share of the machine that others used meanwhile.
    pub others: f64,
}

impl Table {
    /// Whether others used too much of the machine for the numbers to be
    /// trusted.
    pub fn is_rough(&self) -> bool {
        self.others > QUIET
    }

    fn min_of(&self, contestant: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.contestant == contestant)?;
        Some(row.min())
    }

    pub fn best_peer(&self) -> Option<f64> {
        let peers = self.rows.iter().filter(|row| row.kind == Kind::Peer);
        peers.map(Row::min).min_by(f64::total_cmp)
    }

    /// How many times the best peer's minimum; none for floors and variants,
    /// and where no peer does like work.
    pub fn ratio(&self, row: &Row) -> Option<f64> {
        match row.kind {
            Kind::Floor | Kind::Variant => None,
            Kind::Peer | Kind::Ours => self.best_peer().map(|best| row.min() / best),
        }
    }

    /// The bars this contestant must clear.
    pub fn bars(&self, row: &Row) -> Vec<Bar> {
        let targets = self.bench.targets.iter();
        let mine = targets.filter(|target| target.contestant == row.contestant);
        mine.map(|target| target.bar).collect()
    }

    /// Whether it clears them all; none without a bar, or if a bar's yardstick
    /// did not run.
    pub fn met(&self, row: &Row) -> Option<bool> {
        let bars = self.bars(row);
        if bars.is_empty() {
            return None;
        }
        let mut all = true;
        for bar in bars {
            let most = match bar {
                Bar::AtMost(most) => most,
                Bar::OfBest(share) => share * self.best_peer()?,
                Bar::Of(peer, share) => share * self.min_of(peer)?,
                Bar::Over(peer, more) => more + self.min_of(peer)?,
            };
            all &= row.min() <= most;
        }
        Some(all)
    }
}

/// Runs a group: in each round every contestant once, beginning with another
/// one each time.
pub fn run(group: Group, rounds: usize) -> Vec<Table> {
    let Group {
        benches,
        mut contestants,
        most_rounds,
    } = group;
    let mut samples = vec![vec![Vec::new(); contestants.len()]; benches.len()];
    let before = Load::now();
    for round in 0..rounds.min(most_rounds) {
        for turn in 0..contestants.len() {
            let who = (round + turn) % contestants.len();
            let numbers = (contestants[who].round)();
            assert_eq!(numbers.len(), benches.len(), "{}", contestants[who].name);
            for (bench, number) in numbers.into_iter().enumerate() {
                samples[bench][who].push(number);
            }
        }
    }
    let others = before.others_since();
    let table = |(bench, samples): (Bench, Vec<Vec<f64>>)| Table {
        bench,
        rows: (contestants.iter().zip(samples))
            .map(|(contestant, samples)| Row {
                contestant: contestant.name,
                kind: contestant.kind,
                samples,
            })
            .collect(),
        others,
    };
    benches.into_iter().zip(samples).map(table).collect()
}

/// Processor time used so far, in ticks: by everybody, and by this process and
/// the children it has waited for.
#[derive(Clone, Copy, Debug)]
struct Load {
    busy: u64,
    all: u64,
    own: u64,
}

impl Load {
    fn now() -> Load {
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Load::parse(&machine, &own)
    }

    fn parse(machine: &str, own: &str) -> Load {
        let numbers = |text: &str| -> Vec<u64> {
            let words = text.split_ascii_whitespace();
            words.map(|word| word.parse().unwrap_or(0)).collect()
        };
        // user nice system idle iowait irq softirq steal; guests are in user.
        let first = machine.lines().next().unwrap_or_default();
        let cpu = numbers(first.strip_prefix("cpu").unwrap_or_default());
        let all = cpu.iter().take(8).sum();
        let idle: u64 = cpu.iter().skip(3).take(2).sum();
        // The name, in parentheses, may hold spaces: count from its end.
        let after = own.rsplit_once(')').map_or("", |(_, after)| after);
        let own = numbers(after).iter().skip(11).take(4).sum();
        Load {
            busy: all - idle,
            all,
            own,
        }
    }

    fn others_between(self, later: Load) -> f64 {
        let others = (later.busy - self.busy).saturating_sub(later.own - self.own);
        others as f64 / (later.all - self.all).max(1) as f64
    }

    fn others_since(self) -> f64 {
        self.others_between(Load::now())
    }
}

/// Nanoseconds for each of `count`.
pub fn per(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// Does `operation` again and again: a tenth of `count` times to warm up, then
/// `count` times against the clock. The result is per operation.
pub async fn timed<F: Future>(count: u64, operation: impl Fn(u64) -> F) -> f64 {
    for i in 0..count / 10 {
        black_box(operation(i).await);
    }
    let start = Instant::now();
    for i in 0..count {
        black_box(operation(i).await);
    }
    per(start.elapsed(), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::{Contestant, Target, Unit};

    fn row(contestant: &'static str, kind: Kind, samples: &[f64]) -> Row {
        Row {
            contestant,
            kind,
            samples: samples.to_vec(),
        }
    }

    fn table(targets: &'static [Target]) -> Table {
        Table {
            bench: Bench {
                name: "b",
                what: "",
                per: "op",
                unit: Unit::Nanoseconds,
                targets,
            },
            rows: vec![
                row("slow", Kind::Peer, &[50.0, 40.0]),
                row("fast", Kind::Peer, &[25.0, 20.0]),
                row("floor", Kind::Floor, &[1.0]),
                row("mine", Kind::Ours, &[30.0, 10.0, 20.0]),
            ],
            others: 0.0,
        }
    }

    #[test]
    fn median_lies_between_the_two_middle_ones() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&[4.0, 1.0, 2.0, 3.0], 0.5), 2.5);
        assert_eq!(quantile(&[7.0], 0.5), 7.0);
    }

    #[test]
    fn min_and_spread_of_a_row() {
        let row = row("r", Kind::Ours, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(row.min(), 1.0);
        assert_eq!(row.spread(), 2.0 / 3.0);
    }

    #[test]
    fn ratio_is_by_minima_to_the_best_peer_and_only_for_peers_and_ours() {
        let table = table(&[]);
        let ratios: Vec<_> = table.rows.iter().map(|row| table.ratio(row)).collect();
        assert_eq!(ratios, [Some(2.0), Some(1.0), None, Some(0.5)]);
    }

    #[test]
    fn ratio_needs_a_peer() {
        let mut table = table(&[]);
        table.rows.retain(|row| row.kind != Kind::Peer);
        assert_eq!(table.ratio(&table.rows[1]), None);
    }

    #[test]
    fn every_kind_of_bar_is_held_against_the_minimum() {
        const fn mine(bar: Bar) -> Target {
            Target {
                contestant: "mine",
                bar,
            }
        }
        let met = |targets| table(targets).met(&table(targets).rows[3]);
        assert_eq!(met(&[]), None);
        assert_eq!(met(const { &[mine(Bar::AtMost(10.0))] }), Some(true));
        assert_eq!(met(const { &[mine(Bar::AtMost(9.9))] }), Some(false));
        assert_eq!(met(const { &[mine(Bar::OfBest(0.5))] }), Some(true));
        assert_eq!(met(const { &[mine(Bar::OfBest(0.4))] }), Some(false));
        assert_eq!(met(const { &[mine(Bar::Of("slow", 0.25))] }), Some(true));
        assert_eq!(met(const { &[mine(Bar::Of("slow", 0.2))] }), Some(false));
        assert_eq!(met(const { &[mine(Bar::Over("fast", -10.0))] }), Some(true));
        assert_eq!(
            met(const { &[mine(Bar::Over("fast", -11.0))] }),
            Some(false)
        );
        assert_eq!(met(const { &[mine(Bar::Of("absent", 1.0))] }), None);
        assert_eq!(
            met(const { &[mine(Bar::AtMost(99.0)), mine(Bar::AtMost(1.0))] }),
            Some(false)
        );
    }

    #[test]
    fn rounds_interleave_and_each_begins_with_another_contestant() {
        let order = std::rc::Rc::new(std::cell::RefCell::new(String::new()));
        let contestant = |name: &'static str| {
            let order = order.clone();
            Contestant::peer(name, move || {
                order.borrow_mut().push_str(name);
                vec![order.borrow().len() as f64]
            })
        };
        let group = Group {
            benches: vec![table(&[]).bench],
            contestants: vec![contestant("a"), contestant("b"), contestant("c")],
            most_rounds: 2,
        };
        let tables = run(group, 9);
        assert_eq!(*order.borrow(), "abcbca");
        assert_eq!(tables[0].rows[0].samples, [1.0, 6.0]);
    }

    #[test]
    fn others_are_whoever_was_busy_and_not_us() {
        let stat = |user, idle, own| {
            Load::parse(
                &format!("cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 9 9"),
                &format!("7 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 {own} 0 0 0 20"),
            )
        };
        let (before, after) = (stat(100, 1000, 50), stat(160, 1140, 100));
        assert_eq!(before.others_between(after), 10.0 / 200.0);
        assert!(Load::now().all > 0);
    }
}
