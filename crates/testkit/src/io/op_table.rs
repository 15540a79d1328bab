//! [`OpTable`]: the operations of a simulated kernel that are under way, at the index that
//! their host has given them. So an operation is found without a search, which a seed does
//! some dozens of times.

use kinfolk_runtime::io::driver::OpId;

/// The number of an operation: how many were submitted before, above its place in
/// the table.
pub(crate) type OpNumber = u64;

/// Operations under way, by the index of their [`OpId`].
pub(crate) struct OpTable<T> {
    places: Vec<Option<(OpNumber, OpId, T)>>,
    len: usize,
}

impl<T> Default for OpTable<T> {
    fn default() -> Self {
        OpTable {
            places: Vec::new(),
            len: 0,
        }
    }
}

impl<T> OpTable<T> {
    /// The number of the `nth` operation.
    pub(crate) fn number(id: OpId, nth: u64) -> OpNumber {
        nth << 32 | u64::from(id.index)
    }

    /// An operation is submitted. False if another one had its place, and was
    /// removed.
    #[must_use]
    pub(crate) fn insert(&mut self, id: OpId, number: OpNumber, op: T) -> bool {
        let at = id.index as usize;
        if at >= self.places.len() {
            self.places.resize_with(at + 1, || None);
        }
        let before = self.places[at].replace((number, id, op));
        self.len += usize::from(before.is_none());
        before.is_none()
    }

    /// The number of the operation that is under way by this id.
    pub(crate) fn of(&self, id: OpId) -> Option<OpNumber> {
        match self.places.get(id.index as usize)? {
            Some((number, own, _)) if *own == id => Some(*number),
            _ => None,
        }
    }

    fn place(number: OpNumber) -> usize {
        (number & u64::from(u32::MAX)) as usize
    }

    /// The operation with this number, and its id; none if it is over.
    pub(crate) fn get(&self, number: OpNumber) -> Option<(OpId, &T)> {
        match self.places.get(Self::place(number))? {
            Some((own, id, op)) if *own == number => Some((*id, op)),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, number: OpNumber) -> Option<&mut T> {
        match self.places.get_mut(Self::place(number))? {
            Some((own, _, op)) if *own == number => Some(op),
            _ => None,
        }
    }

    /// The operation is over.
    pub(crate) fn remove(&mut self, number: OpNumber) {
        if self.get(number).is_some() {
            self.places[Self::place(number)] = None;
            self.len -= 1;
        }
    }

    /// How many operations are under way.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place is used again, and an old number does not lead to its new operation.
    #[test]
    fn a_number_leads_to_one_operation_alone() {
        let id = |generation| OpId {
            index: 2,
            generation,
        };
        let mut ops = OpTable::default();
        let number = |nth| OpTable::<&str>::number(id(0), nth);
        assert!(ops.insert(id(0), number(1), "first"));
        assert_eq!(ops.of(id(0)), Some(number(1)));
        ops.remove(number(1));
        assert!(ops.insert(id(1), number(2), "second"));
        ops.remove(number(1));
        assert_eq!((ops.of(id(0)), ops.get(number(1))), (None, None));
        assert_eq!(ops.get(number(2)), Some((id(1), &"second")));
        assert!(!ops.insert(id(2), number(3), "in its place"));
        assert_eq!(ops.get_mut(number(2)), None);
        assert_eq!(ops.len(), 1);
    }
}
