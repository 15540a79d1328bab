//! The generator behind every scheduling choice: splitmix64, written out so
//! that a seed replays the same run in every version of this crate.

/// A small generator of numbers from a seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The state of the generator: a generator with this seed gives the same numbers
    /// from here on.
    pub(crate) fn state(&self) -> u64 {
        self.0
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end as u64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        // As many bits as a float holds exactly.
        let drawn = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < probability
    }
}
