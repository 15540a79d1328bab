//! Tables by number, for the simulated kernel. Their keys are numbers that a
//! simulation gives out itself, so the hash need not stand up to an attacker; it is a tenth of
//! the work of std's. What iterates over such a table sorts, since its order is no part of a seed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by number.
pub(crate) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Multiplies; for keys of one or two numbers.
#[derive(Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_i32(&mut self, number: i32) {
        self.write_u64(u64::from(number.cast_unsigned()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        // A hash table uses the bits at both ends, and the low bits of a product
        // depend on few bits of the key.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    /// Consecutive numbers fall into different places of a table of their size.
    #[test]
    fn numbers_in_a_row_are_spread() {
        let hash = BuildHasherDefault::<NumberHasher>::default();
        let places: HashSet<u64> = (0..1024_u64).map(|n| hash.hash_one(n) % 1024).collect();
        assert!(places.len() > 512, "{}", places.len());
        let pairs: HashSet<u64> = (0..1024_u32)
            .map(|n| hash.hash_one((n, 1_u32)) % 1024)
            .collect();
        assert!(pairs.len() > 512, "{}", pairs.len());
    }
}
