//! The states met so far: 64-bit fingerprints, each with that of the state from which it was first met.
//!
//! Open addressing in shards that grow one at a time, so that growing needs little memory beside the table
//! itself.

const SHARDS: usize = 256;
const FIRST_SLOTS: usize = 1 << 6;

#[derive(Default)]
struct Shard {
    slots: Vec<(u64, u64)>,
    used: usize,
}

/// See the module.
pub struct Visited {
    shards: Vec<Shard>,
    len: u64,
}

impl Default for Visited {
    fn default() -> Self {
        let shard = || Shard { slots: vec![(0, 0); FIRST_SLOTS], used: 0 };
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), len: 0 }
    }
}

impl Visited {
    /// Adds a state; false if it was met before. A fingerprint is never zero.
    pub fn insert(&mut self, fingerprint: u64, from: u64) -> bool {
        let shard = &mut self.shards[(fingerprint >> 56) as usize];
        if shard.insert(fingerprint, from) {
            self.len += 1;
            return true;
        }
        false
    }

    /// States met.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The fingerprint of the state from which this one was first reached; zero for the first one.
    #[must_use]
    pub fn came_from(&self, fingerprint: u64) -> u64 {
        let shard = &self.shards[(fingerprint >> 56) as usize];
        shard.slots[shard.find(fingerprint)].1
    }
}

impl Shard {
    fn find(&self, fingerprint: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = fingerprint as usize & mask;
        while self.slots[at].0 != fingerprint && self.slots[at].0 != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    fn insert(&mut self, fingerprint: u64, from: u64) -> bool {
        let at = self.find(fingerprint);
        if self.slots[at].0 == fingerprint {
            return false;
        }
        self.slots[at] = (fingerprint, from);
        self.used += 1;
        if self.used * 4 > self.slots.len() * 3 {
            self.grow();
        }
        true
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![(0, 0); old.len() * 2];
        for entry in old.into_iter().filter(|entry| entry.0 != 0) {
            let at = self.find(entry.0);
            self.slots[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fingerprint_is_new_once_and_its_origin_is_known() {
        let mut visited = Visited::default();
        let fingerprint = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1);
        for n in 1..100_000 {
            assert!(visited.insert(fingerprint(n), fingerprint(n - 1)));
        }
        assert!((1..100_000).all(|n| !visited.insert(fingerprint(n), 7)));
        assert!((1..100_000).all(|n| visited.came_from(fingerprint(n)) == fingerprint(n - 1)));
        assert_eq!(visited.len(), 99_999);
    }
}
