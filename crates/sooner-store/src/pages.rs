//! Which pages of a node's shared memory are resident: reserved from the machine, and not given back since.
//!
//! Pages stay when a block is freed, so that the next value is written to warm ones. This is only the table:
//! [`crate::Room`] reserves and gives back. It never touches memory.
//!
//! Invariant PG1: ranges do not overlap and do not touch, and their lengths sum up to the bytes that are
//! counted.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Pages {
    /// The end of each resident range, by its beginning.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Pages {
    /// Bytes that are resident.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The resident parts of a range, in order.
    #[must_use]
    pub fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.ranges.range(..start).next_back().filter(|(_, until)| **until > start);
        let inside = self.ranges.range(start..end);
        before
            .into_iter()
            .chain(inside)
            .map(|(from, until)| ((*from).max(start), (*until).min(end)))
            .collect()
    }

    /// The parts of a range that are not resident, in order.
    #[must_use]
    pub fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut at = start;
        for (from, until) in self.present(start, end) {
            if from > at {
                missing.push((at, from));
            }
            at = until;
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }

    /// Records that all of a range is resident.
    pub fn add(&mut self, start: u64, end: u64) {
        self.bytes += self.missing(start, end).iter().map(|(from, until)| until - from).sum::<u64>();
        let (mut start, mut end) = (start, end);
        if let Some((from, until)) = self.ranges.range(..=start).next_back()
            && *until >= start
        {
            (start, end) = (*from, end.max(*until));
        }
        while let Some((from, until)) =
            self.ranges.range(start..=end).next().map(|(from, until)| (*from, *until))
        {
            self.ranges.remove(&from);
            end = end.max(until);
        }
        self.ranges.insert(start, end);
    }

    /// Records that nothing of a range is resident.
    pub fn remove(&mut self, start: u64, end: u64) {
        for (from, until) in self.present(start, end) {
            let (first, last) = self
                .ranges
                .range(..=from)
                .next_back()
                .map(|(first, last)| (*first, *last))
                .expect("it is there");
            self.ranges.remove(&first);
            if first < from {
                self.ranges.insert(first, from);
            }
            if until < last {
                self.ranges.insert(until, last);
            }
            self.bytes -= until - from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_one() {
        let mut pages = Pages::default();
        pages.add(10, 20);
        pages.add(30, 40);
        assert_eq!(pages.missing(0, 50), [(0, 10), (20, 30), (40, 50)]);
        pages.add(20, 30);
        assert_eq!((pages.ranges.len(), pages.bytes()), (1, 30));
        pages.remove(15, 35);
        assert_eq!(pages.present(0, 50), [(10, 15), (35, 40)]);
        assert_eq!(pages.missing(12, 15), []);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_list_of_pages(steps in proptest::collection::vec((any::<bool>(), 0u64..64, 0u64..64), 0..80)) {
            let mut pages = Pages::default();
            let mut model = [false; 128];
            for (adds, start, length) in steps {
                let end = start + length.max(1);
                if adds { pages.add(start, end) } else { pages.remove(start, end) }
                model[start as usize..end as usize].fill(adds);
                prop_assert_eq!(pages.bytes(), model.iter().filter(|page| **page).count() as u64);
                let mut expected = [true; 128];
                for (from, until) in pages.missing(0, 128) {
                    expected[from as usize..until as usize].fill(false);
                }
                prop_assert_eq!(&expected[..], &model[..]);
                let ranges: Vec<_> = pages.ranges.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "PG1");
            }
        }
    }
}
