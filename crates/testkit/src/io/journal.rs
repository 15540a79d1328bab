//! Changes of names that may not be on the disk yet.
//!
//! Each directory has its changes in order, and of the unsynced ones a power cut
//! leaves the first few. Directories are independent, except for a rename from one
//! to another, which happens in both or in none.

use std::collections::BTreeMap;

use super::disk::Number;
use crate::rng::Rng;

/// A change of a name: the directory, the name, and the node that it named
/// before.
pub(crate) type DirChange = (Number, Vec<u8>, Option<Number>);

/// The names that were changed since their directories were synced.
#[derive(Clone, Default)]
pub(crate) struct Journal {
    /// In order. Changes that belong together have one number.
    changes: Vec<(u64, DirChange)>,
    next: u64,
}

impl Journal {
    /// Notes that these names are changed together.
    pub(crate) fn note(&mut self, together: impl IntoIterator<Item = DirChange>) {
        self.next += 1;
        let numbered = together.into_iter().map(|changed| (self.next, changed));
        self.changes.extend(numbered);
    }

    /// True if a power cut may bring back a name of this node.
    pub(crate) fn may_bring_back(&self, number: Number) -> bool {
        let before = |changed: &DirChange| changed.2 == Some(number);
        self.changes.iter().any(|(_, changed)| before(changed))
    }

    /// A directory was synced: its changes are on the disk, and so are changes
    /// in other directories that belong to them, with all changes before these.
    /// Returns the nodes that the names named before.
    pub(crate) fn sync(&mut self, dir: Number) -> Vec<Number> {
        let (mut named, mut dirs) = (Vec::new(), vec![(dir, u64::MAX)]);
        while let Some((dir, last)) = dirs.pop() {
            let of = |(number, changed): &mut (u64, DirChange)| changed.0 == dir && *number <= last;
            let synced: Vec<(u64, DirChange)> = self.changes.extract_if(.., of).collect();
            for (number, (_, _, before)) in synced {
                named.extend(before);
                let others = self.changes.iter().filter(|other| other.0 == number);
                dirs.extend(others.map(|(_, other)| (other.0, number)));
            }
        }
        named
    }

    /// The power goes: returns the lost changes, the latest first.
    pub(crate) fn cut(self, rng: &mut Rng) -> Vec<DirChange> {
        // By directory, the number of the last change that is left.
        let mut last: BTreeMap<Number, u64> = BTreeMap::new();
        let mut numbers: BTreeMap<Number, Vec<u64>> = BTreeMap::new();
        for (number, (dir, ..)) in &self.changes {
            numbers.entry(*dir).or_default().push(*number);
        }
        for (dir, mut numbers) in numbers {
            numbers.dedup();
            let left = rng.below(numbers.len() + 1);
            last.insert(dir, if left == 0 { 0 } else { numbers[left - 1] });
        }
        // A change that belongs to a lost one is lost too, with all changes after
        // it.
        while let Some((number, dir)) = self.torn(&last) {
            last.insert(dir, number - 1);
        }
        let is_lost = |(number, changed): &(u64, DirChange)| *number > last[&changed.0];
        let lost = self.changes.into_iter().rev().filter(is_lost);
        lost.map(|(_, changed)| changed).collect()
    }

    /// A change that is left although one that belongs to it is lost.
    fn torn(&self, last: &BTreeMap<Number, u64>) -> Option<(u64, Number)> {
        let left = |(number, changed): &(u64, DirChange)| *number <= last[&changed.0];
        let parts = self.changes.iter().filter(|part| left(part));
        let mut torn = parts.filter(|part| {
            let mut same = self.changes.iter().filter(|other| other.0 == part.0);
            same.any(|other| !left(other))
        });
        torn.next().map(|(number, (dir, ..))| (*number, *dir))
    }
}
