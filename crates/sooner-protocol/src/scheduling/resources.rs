//! A node's logical resources: the total, the free ones, and which grants have which GPUs.
//!
//! Invariants:
//! - RS1: free plus granted minus owed is the total, for every resource.
//! - RS2: no GPU carries more than one whole share.
//!
//! A worker that continues after it was blocked takes its CPU back, even if it is not free; the missing part
//! is owed, and paid from the next return. It never decides which request is granted.

use sooner_wire::resources::UNIT;
use sooner_wire::{GroupId, ResourceSet};

/// What one holder has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// Amounts.
    pub resources: ResourceSet,
    /// GPUs and the share of each.
    gpus: Vec<(u32, u64)>,
    /// The bundle that the resources belong to; `None`: the node.
    pub(crate) bundle: Option<(GroupId, u32)>,
    /// The holder is executed again with a larger reservation if it ends because memory ran out.
    pub raises_memory: bool,
}

impl Grant {
    /// Whether there are GPUs in it.
    #[must_use]
    pub fn has_gpus(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// Indices of the GPUs.
    #[must_use]
    pub fn gpu_indices(&self) -> Vec<u32> {
        self.gpus.iter().map(|(index, _)| *index).collect()
    }

    /// The placement group that the resources belong to.
    #[must_use]
    pub fn group(&self) -> Option<GroupId> {
        self.bundle.map(|(group, _)| group)
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct NodeResources {
    total: ResourceSet,
    free: ResourceSet,
    owed: ResourceSet,
    /// Free share per GPU.
    gpus: Vec<u64>,
}

impl NodeResources {
    /// A node with these resources.
    #[must_use]
    pub fn new(total: ResourceSet) -> Self {
        let count = usize::try_from(total.amount("GPU") / UNIT).unwrap_or(0);
        Self { free: total.clone(), total, owed: ResourceSet::default(), gpus: vec![UNIT; count] }
    }

    /// A grant's resources as a pool, to be granted again in parts. GPUs keep their indices.
    #[must_use]
    pub(super) fn part(&self, grant: &Grant) -> Self {
        let mut gpus = vec![0; self.gpus.len()];
        for (index, share) in &grant.gpus {
            gpus[*index as usize] = *share;
        }
        let total = grant.resources.clone();
        Self { free: total.clone(), total, owed: ResourceSet::default(), gpus }
    }

    /// Takes out all that is free, for ever.
    pub(super) fn drain(&mut self) -> Grant {
        let shares = (0..).zip(&mut self.gpus).filter(|(_, share)| **share > 0);
        let gpus = shares.map(|(index, share)| (index, std::mem::take(share))).collect();
        Grant { resources: std::mem::take(&mut self.free), gpus, bundle: None, raises_memory: false }
    }

    /// The total resources.
    #[must_use]
    pub fn total(&self) -> &ResourceSet {
        &self.total
    }

    /// The free resources.
    #[must_use]
    pub fn free(&self) -> &ResourceSet {
        &self.free
    }

    /// Whether the request could ever be met.
    #[must_use]
    pub fn is_feasible(&self, request: &ResourceSet) -> bool {
        self.total.covers(request)
    }

    /// Whether the request can be met now.
    #[must_use]
    pub fn fits(&self, request: &ResourceSet) -> bool {
        self.free.covers(request) && self.pick_gpus(request.amount("GPU")).is_some()
    }

    /// Takes resources, if they are free.
    pub fn acquire(&mut self, request: &ResourceSet) -> Option<Grant> {
        if !self.free.covers(request) {
            return None;
        }
        let gpus = self.pick_gpus(request.amount("GPU"))?;
        for (index, share) in &gpus {
            self.gpus[*index as usize] -= share;
        }
        let shortfall = self.free.subtract(request);
        debug_assert!(shortfall.is_empty(), "covered above");
        Some(Grant { resources: request.clone(), gpus, bundle: None, raises_memory: false })
    }

    /// Whole GPUs for a whole amount, a share of the fullest GPU with room for a fraction.
    fn pick_gpus(&self, amount: u64) -> Option<Vec<(u32, u64)>> {
        let index_of = |at: usize| u32::try_from(at).expect("few GPUs");
        if amount == 0 {
            return Some(Vec::new());
        }
        if amount < UNIT {
            let (at, _) = self
                .gpus
                .iter()
                .enumerate()
                .filter(|(_, free)| **free >= amount)
                .min_by_key(|(_, free)| **free)?;
            return Some(vec![(index_of(at), amount)]);
        }
        let wanted = usize::try_from(amount / UNIT).ok()?;
        let whole = self.gpus.iter().enumerate().filter(|(_, free)| **free == UNIT);
        let picked: Vec<_> = whole.take(wanted).map(|(at, _)| (index_of(at), UNIT)).collect();
        (picked.len() == wanted).then_some(picked)
    }

    /// Gives back what a grant holds.
    pub fn release(&mut self, grant: &Grant) {
        for (index, share) in &grant.gpus {
            self.gpus[*index as usize] += share;
            assert!(self.gpus[*index as usize] <= UNIT, "RS2: returned more than was taken");
        }
        self.give_back(&grant.resources);
    }

    /// Lends the CPUs of a blocked worker to others.
    pub fn lend_cpu(&mut self, grant: &Grant) {
        self.give_back(&grant.resources.only("CPU"));
    }

    /// Takes the CPUs back; CPUs that are not free are owed.
    pub fn reclaim_cpu(&mut self, grant: &Grant) {
        let missing = self.free.subtract(&grant.resources.only("CPU"));
        self.owed.add(&missing);
    }

    fn give_back(&mut self, resources: &ResourceSet) {
        let rest = {
            let mut owed = self.owed.clone();
            let rest = owed.subtract(resources);
            self.owed = owed;
            rest
        };
        self.free.add(&rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, f64)]) -> ResourceSet {
        ResourceSet::from_amounts(pairs.iter().map(|(n, a)| ((*n).to_owned(), *a)))
    }

    #[test]
    fn whole_gpus_are_distinct_and_fractions_share() {
        let mut node = NodeResources::new(set(&[("GPU", 2.0)]));
        let half = node.acquire(&set(&[("GPU", 0.5)])).expect("free");
        let other_half = node.acquire(&set(&[("GPU", 0.5)])).expect("free");
        assert_eq!(half.gpu_indices(), other_half.gpu_indices());
        let whole = node.acquire(&set(&[("GPU", 1.0)])).expect("free");
        assert_ne!(half.gpu_indices(), whole.gpu_indices());
        node.release(&half);
        assert!(!node.fits(&set(&[("GPU", 1.0)])), "half of a GPU is in use");
        node.release(&other_half);
        assert!(node.fits(&set(&[("GPU", 1.0)])));
    }

    #[test]
    fn a_lent_cpu_is_taken_back_and_the_debt_is_paid_first() {
        let mut node = NodeResources::new(set(&[("CPU", 1.0)]));
        let parent = node.acquire(&set(&[("CPU", 1.0)])).expect("free");
        node.lend_cpu(&parent);
        let child = node.acquire(&set(&[("CPU", 1.0)])).expect("lent");
        node.reclaim_cpu(&parent);
        assert!(node.free().is_empty());
        node.release(&child);
        assert!(node.free().is_empty(), "the debt is paid first");
        node.release(&parent);
        assert_eq!(node.free(), node.total());
    }
}
