//! Fingerprints: fast, the same on every run, and wide enough that two states share one by accident hardly ever.

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
