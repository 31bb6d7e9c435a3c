//! A small seeded generator (SplitMix64): the same on every machine, without floats.

/// See the module.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        // The upper half of a product: as even as a remainder, and without a division.
        let wide = u128::from(self.next_number()) * bound as u128;
        usize::try_from(wide >> 64).expect("below a usize")
    }

    /// True in `numerator` of `denominator` cases.
    #[inline]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        let wide = u128::from(self.next_number()) * u128::from(denominator);
        (wide >> 64) < u128::from(numerator)
    }
}

/// A number that depends on every bit of `number`.
#[inline]
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number that depends on both arguments.
#[inline]
#[must_use]
pub fn mix_two(one: u64, other: u64) -> u64 {
    mix(one.rotate_left(21).wrapping_add(mix(other.wrapping_add(0x9e37_79b9_7f4a_7c15))))
}
