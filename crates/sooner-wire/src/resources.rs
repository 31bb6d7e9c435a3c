//! Logical resources: amounts in ten-thousandths, so that fractions add up exactly.
//!
//! A set is a small sorted list; arithmetic is checked and never rounds. What a resource means is not known
//! here.

use minicbor::{Decode, Encode};

/// One whole unit (one CPU, one GPU, one byte of memory is [`UNIT`] too).
pub const UNIT: u64 = 10_000;

/// Amounts by resource name, sorted by name, without zeros.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct ResourceSet(#[n(0)] Vec<(String, u64)>);

impl ResourceSet {
    /// A set from amounts in units; zero amounts are left out, repeated names add up.
    #[must_use]
    pub fn from_amounts(amounts: impl IntoIterator<Item = (String, f64)>) -> Self {
        let mut set = Self::default();
        for (name, amount) in amounts {
            // Amounts were checked to be finite and not negative where they were given.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let scaled = (amount * UNIT as f64).round() as u64;
            set.add_one(&name, scaled);
        }
        set
    }

    /// Amount of a resource in ten-thousandths.
    #[must_use]
    pub fn amount(&self, name: &str) -> u64 {
        match self.0.binary_search_by(|(n, _)| n.as_str().cmp(name)) {
            Ok(at) => self.0[at].1,
            Err(_) => 0,
        }
    }

    /// Adds to one resource.
    pub fn add_one(&mut self, name: &str, scaled: u64) {
        if scaled == 0 {
            return;
        }
        match self.0.binary_search_by(|(n, _)| n.as_str().cmp(name)) {
            // Sums of what a stranger asks for may exceed all there is.
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(scaled),
            Err(at) => self.0.insert(at, (name.to_owned(), scaled)),
        }
    }

    /// Whether every amount of `other` is available here.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(name, amount)| self.amount(name) >= *amount)
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.add_one(name, *amount);
        }
    }

    /// Takes away `other`. What is not there is taken from nothing: the shortfall is returned and must be
    /// paid back by the caller (a worker that goes on after it was blocked may exceed what is free for a
    /// while).
    #[must_use]
    pub fn subtract(&mut self, other: &Self) -> Self {
        let mut shortfall = Self::default();
        for (name, amount) in &other.0 {
            match self.0.binary_search_by(|(n, _)| n.as_str().cmp(name)) {
                Ok(at) => {
                    let have = self.0[at].1;
                    shortfall.add_one(name, amount.saturating_sub(have));
                    self.0[at].1 = have.saturating_sub(*amount);
                    if self.0[at].1 == 0 {
                        self.0.remove(at);
                    }
                }
                Err(_) => shortfall.add_one(name, *amount),
            }
        }
        shortfall
    }

    /// The part of this set that is the named resource.
    #[must_use]
    pub fn only(&self, name: &str) -> Self {
        let mut set = Self::default();
        set.add_one(name, self.amount(name));
        set
    }

    /// Whole CPUs, if there is more than one.
    #[must_use]
    pub fn several_cpus(&self) -> Option<u32> {
        u32::try_from(self.amount("CPU") / UNIT).ok().filter(|cpus| *cpus > 1)
    }

    /// Names and amounts, sorted by name, in ten-thousandths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(n, a)| (n.as_str(), *a))
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// "2 CPU, 0.5 GPU, 1.50 GiB memory" for people.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.0.is_empty() {
            return "nothing".to_owned();
        }
        let amount = |name: &str, scaled: u64| match name {
            "memory" | "object_store_memory" => size(scaled / UNIT),
            _ => (scaled as f64 / UNIT as f64).to_string(),
        };
        let parts: Vec<String> = self.0.iter().map(|(n, a)| format!("{} {n}", amount(n, *a))).collect();
        parts.join(", ")
    }
}

/// Bytes in the largest unit of which there is one, as people read them.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.2} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(pairs: &[(&str, f64)]) -> ResourceSet {
        ResourceSet::from_amounts(pairs.iter().map(|(n, a)| ((*n).to_owned(), *a)))
    }

    #[test]
    fn ten_tenths_are_one() {
        let mut total = set(&[("CPU", 1.0)]);
        for _ in 0..10 {
            assert!(total.subtract(&set(&[("CPU", 0.1)])).is_empty());
        }
        assert!(total.is_empty());
    }

    #[test]
    fn people_read_sizes_and_not_bytes() {
        let set = set(&[("CPU", 0.5), ("memory", 1.5 * (1 << 30) as f64), ("object_store_memory", 100.0)]);
        assert_eq!(set.describe(), "0.5 CPU, 1.50 GiB memory, 100 B object_store_memory");
        assert_eq!(ResourceSet::default().describe(), "nothing");
        assert_eq!((size(1 << 20), size(3 << 41)), ("1.00 MiB".to_owned(), "6.00 TiB".to_owned()));
    }

    #[test]
    fn several_cpus_are_whole_ones() {
        let several = |cpus: f64| set(&[("CPU", cpus)]).several_cpus();
        assert_eq!((several(0.5), several(1.9), several(2.0), several(3.7)), (None, None, Some(2), Some(3)));
        assert_eq!(set(&[("memory", 8.0)]).several_cpus(), None);
    }

    #[test]
    fn shortfall_is_reported() {
        let mut have = set(&[("CPU", 1.0)]);
        let short = have.subtract(&set(&[("CPU", 2.0), ("disk", 1.0)]));
        assert_eq!(short, set(&[("CPU", 1.0), ("disk", 1.0)]));
        assert!(have.is_empty());
    }

    proptest! {
        #[test]
        fn subtract_then_add_restores(a in 0u32..100, b in 0u32..100) {
            let mut have = set(&[("CPU", f64::from(a)), ("x", 3.0)]);
            let before = have.clone();
            let take = set(&[("CPU", f64::from(b))]);
            let short = have.subtract(&take);
            have.add(&take);
            let mut expected = before;
            expected.add(&short);
            prop_assert_eq!(have, expected);
        }
    }
}
