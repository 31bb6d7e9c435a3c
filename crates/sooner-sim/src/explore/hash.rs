//! Fingerprints: fast, the same on every run, and so wide that different states hardly ever share one.

use std::hash::{Hash, Hasher};

const KEYS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0xff51_afd7_ed55_8ccd];

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// A fingerprint of 64 bits; never zero.
#[must_use]
pub fn of_words(words: &[u32]) -> u64 {
    let mut state = KEYS[0] ^ words.len() as u64;
    for pair in words.chunks(2) {
        let word = u64::from(pair[0]) << 32 | u64::from(pair.get(1).copied().unwrap_or(0));
        state = fold(state ^ word, KEYS[1]).wrapping_add(KEYS[2]);
    }
    fold(state, KEYS[3]).max(1)
}

/// A fingerprint of 128 bits.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> u128 {
    let (mut left, mut right) = (KEYS[0] ^ bytes.len() as u64, KEYS[3]);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u64::from_le_bytes(word);
        left = fold(left ^ word, KEYS[1]).wrapping_add(KEYS[2]);
        right = fold(right.wrapping_add(word), KEYS[2]) ^ KEYS[0];
    }
    u128::from(fold(left, KEYS[3])) << 64 | u128::from(fold(right, KEYS[1]))
}

/// A fingerprint of 64 bits; never zero.
#[must_use]
pub fn of<T: Hash>(state: &T) -> u64 {
    let mut folding = Folding(KEYS[0]);
    state.hash(&mut folding);
    folding.finish()
}

struct Folding(u64);

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = fold(self.0 ^ number, KEYS[1]).wrapping_add(KEYS[2]);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.0, KEYS[3]).max(1)
    }
}
