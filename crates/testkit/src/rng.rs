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
        self.hits(Chance::new(probability))
    }

    /// As [`chance`](Rng::chance).
    pub(crate) fn hits(&mut self, chance: Chance) -> bool {
        self.next_u64() >> SPARE < chance.0
    }
}

/// Numbers are drawn with as many bits as a float holds exactly: these are left over.
const SPARE: u32 = u64::BITS - f64::MANTISSA_DIGITS;

/// A probability as it is drawn: below this a number is a hit. A simulated kernel draws five
/// for each of its operations, and so it has worked them out before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(probability: f64) -> Chance {
        // The product is exact, and what is below a number that is no whole one is below the
        // next whole one.
        Chance((probability * (1_u64 << f64::MANTISSA_DIGITS) as f64).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number is a hit if the fraction that it stands for is below the probability, also
    /// beside the limit.
    #[test]
    fn a_chance_is_a_comparison_of_fractions() {
        let all = 1_u64 << f64::MANTISSA_DIGITS;
        let of = |number: u64| number as f64 / all as f64;
        let mut rng = Rng::new(1);
        let drawn = (0..1000).map(|_| of(rng.next_u64() >> SPARE));
        let some = [
            0.0,
            0.1,
            0.3,
            0.5,
            1.0,
            f64::MIN_POSITIVE,
            of(1),
            of(2),
            of(all - 1),
        ];
        for probability in drawn.chain(some) {
            let Chance(limit) = Chance::new(probability);
            for number in [limit.wrapping_sub(1), limit, limit + 1, 0, all / 3, all - 1] {
                if number < all {
                    assert_eq!(number < limit, of(number) < probability, "{probability}");
                }
            }
        }
    }
}
