//! A list in one vector: pushing, removing by key and taking the oldest are
//! all O(1), the order is that of pushing, and an empty list holds no memory
//! beyond a small rest. Used for hooks, foreign leaves and joiners, all under
//! the job's lock.

const NONE: u32 = u32::MAX;

/// Where an entry stands. Goes stale when the entry is removed; a stale key
/// finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    at: u32,
    turn: u32,
}

struct ListEntry<T> {
    value: Option<T>,
    turn: u32,
    prev: u32,
    next: u32,
}

pub(crate) struct List<T> {
    entries: Vec<ListEntry<T>>,
    first: u32,
    last: u32,
    free: u32,
    len: u32,
    turn: u32,
    /// Its memory stays when it is empty: it fills again at once.
    stays: bool,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        List {
            entries: Vec::new(),
            first: NONE,
            last: NONE,
            free: NONE,
            len: 0,
            turn: 0,
            stays: false,
        }
    }
}

impl<T> List<T> {
    /// A list that keeps its memory.
    pub(crate) fn that_stays() -> List<T> {
        List {
            stays: true,
            ..List::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn push(&mut self, value: T) -> Key {
        let key = self.place(value, self.last, NONE);
        match self.last {
            NONE => self.first = key.at,
            last => self.entries[last as usize].next = key.at,
        }
        self.last = key.at;
        key
    }

    /// As the oldest.
    pub(crate) fn push_front(&mut self, value: T) -> Key {
        let key = self.place(value, NONE, self.first);
        match self.first {
            NONE => self.last = key.at,
            first => self.entries[first as usize].prev = key.at,
        }
        self.first = key.at;
        key
    }

    /// An entry between two others, which do not know of it yet.
    fn place(&mut self, value: T, prev: u32, next: u32) -> Key {
        let turn = self.turn;
        self.turn = self.turn.wrapping_add(1);
        let entry = ListEntry {
            value: Some(value),
            turn,
            prev,
            next,
        };
        let at = if self.free != NONE {
            let at = self.free;
            self.free = self.entries[at as usize].next;
            self.entries[at as usize] = entry;
            at
        } else {
            let at = u32::try_from(self.entries.len()).expect("a list of four billion");
            self.entries.push(entry);
            at
        };
        self.len += 1;
        Key { at, turn }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.at as usize)?;
        entry.value.as_ref().filter(|_| entry.turn == key.turn)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.at as usize)?;
        if entry.turn == key.turn {
            entry.value.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.at as usize)?;
        if entry.turn != key.turn {
            return None;
        }
        let value = entry.value.take()?;
        let (prev, next) = (entry.prev, entry.next);
        entry.next = self.free;
        self.free = key.at;
        match prev {
            NONE => self.first = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NONE => self.last = prev,
            next => self.entries[next as usize].prev = prev,
        }
        self.len -= 1;
        if self.len == 0 && self.entries.capacity() > 64 && !self.stays {
            // Keep `turn`, so that keys of before stay stale.
            self.entries = Vec::new();
            self.free = NONE;
        }
        Some(value)
    }

    /// The entries, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.next;
            entry.value.as_ref()
        })
    }

    /// The entries, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries
            .iter_mut()
            .filter_map(|entry| entry.value.as_mut())
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.remove_at(self.first)
    }

    /// The youngest.
    pub(crate) fn pop_back(&mut self) -> Option<T> {
        self.remove_at(self.last)
    }

    fn remove_at(&mut self, at: u32) -> Option<T> {
        let turn = self.entries.get(at as usize)?.turn;
        self.remove(Key { at, turn })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn agrees_with_a_queue_under_random_operations() {
        let mut list = List::default();
        let mut model: VecDeque<(Key, u32)> = VecDeque::new();
        let mut stale = Vec::new();
        let mut seed = 7u64;
        for n in 0..20_000u32 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            match seed >> 61 {
                0..=2 => {
                    let key = list.push(n);
                    model.push_back((key, n));
                }
                3 => {
                    let key = list.push_front(n);
                    model.push_front((key, n));
                }
                4 => {
                    assert_eq!(list.pop(), model.pop_front().map(|(_, n)| n));
                }
                5 => {
                    assert_eq!(list.pop_back(), model.pop_back().map(|(_, n)| n));
                }
                6 if !model.is_empty() => {
                    let at = (seed >> 20) as usize % model.len();
                    let (key, n) = model.remove(at).unwrap();
                    assert_eq!(list.remove(key), Some(n));
                    stale.push(key);
                }
                _ => {
                    if let Some(key) = stale.last() {
                        assert_eq!(list.remove(*key), None);
                    }
                    if let Some((key, n)) = model.front() {
                        assert_eq!(list.get(*key), Some(n));
                        assert_eq!(list.get_mut(*key), Some(&mut n.clone()));
                    }
                }
            }
            assert_eq!(list.len as usize, model.len());
            if n % 64 == 0 {
                assert!(list.iter().eq(model.iter().map(|(_, n)| n)));
            }
        }
    }

    #[test]
    fn case_m08_register_and_dispose_does_not_grow() {
        let mut list = List::default();
        for n in 0..1_000_000u32 {
            let key = list.push(n);
            assert_eq!(list.remove(key), Some(n));
        }
        assert!(list.entries.capacity() <= 64);
    }
}
