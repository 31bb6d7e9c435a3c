//! A node's resources, and the parts of them that are reserved for bundles of placement groups.
//!
//! A bundle takes its resources from the node like any request, and grants them again to the work in its
//! group. Reserving has two phases (Ray's documentation, "Placement Groups"): a prepared bundle holds its
//! resources but grants nothing, and is given back if the control service says so; a committed bundle may be
//! used.
//!
//! Invariants:
//! - BU1: a bundle is reserved at most once, however often its preparation is asked for.
//! - BU2: what is free of the node, of its bundles, and granted adds up to the node's total, for every
//!   resource.
//! - BU3: what a process holds in a bundle that is given back returns to the node when the process is gone,
//!   not before.
//!
//! It never gives a bundle back by itself: only the control service knows whether the group's other bundles
//! are committed, and whether the group still exists.

use sooner_wire::limits::PREPARED_NANOS;
use sooner_wire::message::BundleFree;
use sooner_wire::resources::UNIT;
use sooner_wire::strategy::{InGroup, Strategy};
use sooner_wire::{GroupId, PlacementAttempt, ResourceSet};

use super::{Grant, NodeResources};
use crate::table::{Map, Set};
use crate::time::Instant;

/// The amount of the resource that stands for a bundle itself (as in Ray, for tools that show it).
const BUNDLE_SHARES: u64 = 1000 * UNIT;

/// Adds what a bundle has under names like Ray's: `CPU_group_<id>` for the group and
/// `CPU_group_<bundle>_<id>` for the bundle.
pub fn add_formatted(set: &mut ResourceSet, group: GroupId, index: u32, amounts: &ResourceSet) {
    let hex = format!("{:016x}{:016x}", group.owner.0, group.number);
    for (name, amount) in amounts.iter().chain([("bundle", BUNDLE_SHARES)]) {
        set.add_one(&format!("{name}_group_{hex}"), amount);
        set.add_one(&format!("{name}_group_{index}_{hex}"), amount);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Reserved. `since`: from when [`Pools::unheard`] counts silence; `None` before its first call.
    Prepared { since: Option<Instant> },
    /// In use.
    Committed,
    /// Given back, but processes still hold parts of its resources.
    Leaving,
}

#[derive(Debug, Clone)]
struct Bundle {
    attempt: PlacementAttempt,
    state: State,
    resources: NodeResources,
    /// Grants out of this bundle.
    grants: u32,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Pools {
    node: NodeResources,
    groups: Map<GroupId, Map<u32, Bundle>>,
    /// Some bundle may be prepared and not committed; recomputed when all are looked at.
    has_prepared: bool,
}

impl Pools {
    /// A node with these resources and no groups.
    #[must_use]
    pub fn new(total: ResourceSet) -> Self {
        Self { node: NodeResources::new(total), groups: Map::default(), has_prepared: false }
    }

    /// The node's total resources.
    #[must_use]
    pub fn total(&self) -> &ResourceSet {
        self.node.total()
    }

    /// The node's resources that are free and in no bundle.
    #[must_use]
    pub fn free(&self) -> &ResourceSet {
        self.node.free()
    }

    /// Adds the free resources of the bundles here; see [`add_formatted`].
    pub fn add_free_of_groups(&self, set: &mut ResourceSet) {
        for (group, bundles) in &self.groups {
            let committed = bundles.iter().filter(|(_, bundle)| bundle.state == State::Committed);
            committed.for_each(|(index, bundle)| add_formatted(set, *group, *index, bundle.resources.free()));
        }
    }

    /// The free resources of at most `most` bundles here.
    #[must_use]
    pub fn free_of_bundles(&self, most: usize) -> Vec<BundleFree> {
        let committed = |(group, bundles): (&GroupId, &Map<u32, Bundle>)| {
            let used = bundles.iter().filter(|(_, bundle)| bundle.state == State::Committed);
            let free = |(index, bundle): (&u32, &Bundle)| BundleFree {
                group: *group,
                bundle: *index,
                free: bundle.resources.free().clone(),
            };
            used.map(free).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(committed).take(most).collect()
    }

    /// Whether a request could ever be met here. If no bundle of its group is usable here yet, it could.
    #[must_use]
    pub fn is_feasible(&self, request: &ResourceSet, strategy: Option<&Strategy>) -> bool {
        match strategy.and_then(Strategy::group) {
            None => self.node.is_feasible(request),
            Some(place) => {
                let mut bundles = self.usable(place).peekable();
                bundles.peek().is_none() || bundles.any(|(_, bundle)| bundle.resources.is_feasible(request))
            }
        }
    }

    /// Whether a request can be met now.
    #[must_use]
    pub fn fits(&self, request: &ResourceSet, strategy: Option<&Strategy>) -> bool {
        match strategy.and_then(Strategy::group) {
            None => self.node.fits(request),
            Some(place) => self.usable(place).any(|(_, bundle)| bundle.resources.fits(request)),
        }
    }

    fn usable(&self, place: InGroup) -> impl Iterator<Item = (u32, &Bundle)> {
        let bundles = self.groups.get(&place.group).into_iter().flatten();
        let is_meant = move |index: u32| place.bundle.is_none_or(|bundle| bundle == index);
        bundles
            .filter(move |(index, bundle)| bundle.state == State::Committed && is_meant(**index))
            .map(|(index, bundle)| (*index, bundle))
    }

    /// Takes resources, if they are free.
    pub fn acquire(&mut self, request: &ResourceSet, strategy: Option<&Strategy>) -> Option<Grant> {
        let Some(place) = strategy.and_then(Strategy::group) else { return self.node.acquire(request) };
        let (index, _) = self.usable(place).find(|(_, bundle)| bundle.resources.fits(request))?;
        let bundle = self.groups.get_mut(&place.group)?.get_mut(&index)?;
        let mut grant = bundle.resources.acquire(request)?;
        grant.bundle = Some((place.group, index));
        bundle.grants += 1;
        Some(grant)
    }

    fn bundle_of(&mut self, grant: &Grant) -> Option<&mut Bundle> {
        let (group, index) = grant.bundle?;
        let bundle = self.groups.get_mut(&group).and_then(|bundles| bundles.get_mut(&index));
        Some(bundle.expect("BU3: a bundle stays while a grant out of it does"))
    }

    /// Gives back what a grant holds.
    pub fn release(&mut self, grant: &Grant) {
        let Some(bundle) = self.bundle_of(grant) else { return self.node.release(grant) };
        bundle.grants -= 1;
        bundle.resources.release(grant);
        if bundle.state == State::Leaving {
            let (group, index) = grant.bundle.expect("a bundle was found");
            self.empty(group, index);
        }
    }

    /// Lends the CPUs of a blocked worker to others, of its group if it is in one.
    pub fn lend_cpu(&mut self, grant: &Grant) {
        match self.bundle_of(grant) {
            None => self.node.lend_cpu(grant),
            Some(bundle) => bundle.resources.lend_cpu(grant),
        }
    }

    /// Takes the CPUs back; CPUs that are not free are owed.
    pub fn reclaim_cpu(&mut self, grant: &Grant) {
        match self.bundle_of(grant) {
            None => self.node.reclaim_cpu(grant),
            Some(bundle) => bundle.resources.reclaim_cpu(grant),
        }
    }

    /// Reserves bundles, all or none. True if they are reserved, now or already.
    pub fn prepare(
        &mut self,
        group: GroupId,
        attempt: PlacementAttempt,
        bundles: &[(u32, ResourceSet)],
    ) -> bool {
        let here = self.groups.entry(group).or_default();
        let mut taken = Vec::new();
        let mut is_room = true;
        for (index, resources) in bundles {
            match here.get(index) {
                // The same request again: the answer to the first one was lost.
                Some(bundle) if bundle.attempt == attempt && bundle.state != State::Leaving => {}
                Some(_) => is_room = false,
                None => match self.node.acquire(resources) {
                    Some(grant) => taken.push((*index, grant)),
                    None => is_room = false,
                },
            }
            if !is_room {
                break;
            }
        }
        for (index, grant) in taken {
            if is_room {
                let resources = self.node.part(&grant);
                let state = State::Prepared { since: None };
                here.insert(index, Bundle { attempt, state, resources, grants: 0 });
            } else {
                self.node.release(&grant);
            }
        }
        if here.is_empty() {
            self.groups.swap_remove(&group);
        }
        self.has_prepared |= is_room;
        is_room
    }

    /// Bundles that were prepared in this attempt may be used from now on. False if there are none.
    pub fn commit(&mut self, group: GroupId, attempt: PlacementAttempt) -> bool {
        let mut is_any = false;
        for bundle in self.groups.get_mut(&group).into_iter().flat_map(Map::values_mut) {
            if bundle.attempt == attempt && bundle.state != State::Leaving {
                bundle.state = State::Committed;
                is_any = true;
            }
        }
        is_any
    }

    /// Gives back the bundles of an attempt, or all of the group. Processes keep what they hold of them: the
    /// caller ends the processes whose grant says [`Grant::group`].
    pub fn give_back(&mut self, group: GroupId, attempt: Option<PlacementAttempt>) {
        let Some(bundles) = self.groups.get_mut(&group) else { return };
        let meant = |bundle: &&mut Bundle| attempt.is_none_or(|attempt| bundle.attempt == attempt);
        for bundle in bundles.values_mut().filter(meant) {
            bundle.state = State::Leaving;
        }
        let leaving = bundles.iter().filter(|(_, bundle)| bundle.state == State::Leaving);
        for index in leaving.map(|(index, _)| *index).collect::<Vec<_>>() {
            self.empty(group, index);
        }
    }

    /// Returns the free resources of a given-back bundle to the node.
    fn empty(&mut self, group: GroupId, index: u32) {
        let Some(bundles) = self.groups.get_mut(&group) else { return };
        let Some(bundle) = bundles.get_mut(&index) else { return };
        self.node.release(&bundle.resources.drain());
        if bundle.grants == 0 {
            bundles.swap_remove(&index);
        }
        if bundles.is_empty() {
            self.groups.swap_remove(&group);
        }
    }

    /// Groups and attempts with prepared bundles of which nothing was heard for long. The silence of these
    /// counts from now on again.
    pub fn unheard(&mut self, now: Instant) -> Vec<(GroupId, PlacementAttempt)> {
        let mut found = Vec::new();
        if !std::mem::take(&mut self.has_prepared) {
            return found;
        }
        for (group, bundles) in &mut self.groups {
            for bundle in bundles.values_mut() {
                let State::Prepared { since } = &mut bundle.state else { continue };
                self.has_prepared = true;
                if now.since(*since.get_or_insert(now)) >= PREPARED_NANOS {
                    *since = Some(now);
                    found.push((*group, bundle.attempt));
                }
            }
        }
        found.dedup();
        found
    }

    /// When [`Self::unheard`] next returns something.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.has_prepared {
            return None;
        }
        let ends = |bundle: &Bundle| match bundle.state {
            State::Prepared { since } => Some(since?.plus(PREPARED_NANOS)),
            State::Committed | State::Leaving => None,
        };
        self.groups.values().flat_map(Map::values).filter_map(ends).min()
    }

    /// All groups and attempts whose bundles are reserved here.
    #[must_use]
    pub fn attempts(&self) -> Set<(GroupId, PlacementAttempt)> {
        let all = self.groups.keys();
        all.flat_map(|group| self.reserved(*group).map(|(_, attempt)| (*group, attempt))).collect()
    }

    /// Bundles of a group that are reserved here, with their attempts.
    pub fn reserved(&self, group: GroupId) -> impl Iterator<Item = (u32, PlacementAttempt)> {
        let bundles = self.groups.get(&group).into_iter().flatten();
        let stays = bundles.filter(|(_, bundle)| bundle.state != State::Leaving);
        stays.map(|(index, bundle)| (*index, bundle.attempt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::{TaskId, WorkerId};

    fn set(pairs: &[(&str, f64)]) -> ResourceSet {
        ResourceSet::from_amounts(pairs.iter().map(|(n, a)| ((*n).to_owned(), *a)))
    }

    fn group(number: u64) -> GroupId {
        TaskId { owner: WorkerId(1), number }
    }

    fn place(number: u64, bundle: Option<u32>) -> Strategy {
        Strategy::Group(InGroup { group: group(number), bundle, captures: false })
    }

    fn cpus(count: f64) -> ResourceSet {
        set(&[("CPU", count)])
    }

    #[test]
    fn a_bundle_is_reserved_once_however_often_it_is_asked_for() {
        let mut pools = Pools::new(cpus(3.0));
        let bundles = [(0, cpus(1.0)), (1, cpus(1.0))];
        assert!(pools.prepare(group(1), PlacementAttempt(7), &bundles));
        assert!(pools.prepare(group(1), PlacementAttempt(7), &bundles), "the answer was lost");
        assert_eq!(*pools.free(), cpus(1.0));
        assert!(!pools.prepare(group(1), PlacementAttempt(8), &bundles), "of another attempt");
        assert!(!pools.prepare(group(2), PlacementAttempt(1), &bundles), "no room for both");
        assert_eq!(*pools.free(), cpus(1.0), "all or none");
        pools.give_back(group(1), Some(PlacementAttempt(6)));
        assert_eq!(*pools.free(), cpus(1.0), "another attempt");
        pools.give_back(group(1), Some(PlacementAttempt(7)));
        assert_eq!((pools.free(), pools.groups.is_empty()), (pools.total(), true));
    }

    #[test]
    fn only_what_is_committed_is_handed_out_and_only_within_its_bundle() {
        let mut pools = Pools::new(cpus(4.0));
        assert!(pools.prepare(group(1), PlacementAttempt(1), &[(0, cpus(1.0)), (1, cpus(2.0))]));
        assert!(pools.acquire(&cpus(1.0), Some(&place(1, None))).is_none(), "not committed");
        assert!(pools.is_feasible(&cpus(2.0), Some(&place(1, None))), "it may be");
        assert!(pools.commit(group(1), PlacementAttempt(1)) && !pools.commit(group(2), PlacementAttempt(1)));
        assert!(!pools.is_feasible(&cpus(3.0), Some(&place(1, None))), "in one bundle, not over several");
        assert!(!pools.is_feasible(&cpus(2.0), Some(&place(1, Some(0)))));
        let grant = pools.acquire(&cpus(2.0), Some(&place(1, None))).expect("bundle 1");
        assert_eq!(grant.group(), Some(group(1)));
        assert!(!pools.fits(&cpus(1.0), Some(&place(1, Some(1)))));
        assert!(pools.fits(&cpus(1.0), Some(&place(1, None))));
        pools.lend_cpu(&grant);
        assert!(pools.fits(&cpus(2.0), Some(&place(1, Some(1)))) && !pools.fits(&cpus(2.0), None));
        pools.reclaim_cpu(&grant);
        pools.release(&grant);
        assert!(pools.fits(&cpus(2.0), Some(&place(1, Some(1)))));
    }

    #[test]
    fn what_a_process_holds_returns_to_the_node_when_the_process_is_gone() {
        let mut pools = Pools::new(set(&[("CPU", 2.0), ("GPU", 2.0)]));
        let both = set(&[("CPU", 2.0), ("GPU", 1.0)]);
        assert!(
            pools.prepare(group(1), PlacementAttempt(1), &[(0, both)])
                && pools.commit(group(1), PlacementAttempt(1))
        );
        let held = set(&[("CPU", 1.0), ("GPU", 1.0)]);
        let grant = pools.acquire(&held, Some(&place(1, Some(0)))).expect("free");
        assert_eq!(grant.gpu_indices(), vec![0]);
        pools.give_back(group(1), None);
        assert_eq!(*pools.free(), set(&[("CPU", 1.0), ("GPU", 1.0)]));
        assert!(pools.acquire(&cpus(1.0), Some(&place(1, None))).is_none(), "it is leaving");
        assert!(!pools.prepare(group(1), PlacementAttempt(2), &[(0, cpus(1.0))]), "it is leaving");
        let other = pools.acquire(&set(&[("GPU", 1.0)]), None).expect("the other GPU");
        assert_eq!(other.gpu_indices(), vec![1], "GPU 0 is in use");
        pools.release(&grant);
        pools.release(&other);
        assert_eq!((pools.free(), pools.groups.is_empty()), (pools.total(), true));
    }

    #[test]
    fn a_debt_in_a_bundle_is_paid_before_its_resources_return() {
        let mut pools = Pools::new(cpus(1.0));
        assert!(
            pools.prepare(group(1), PlacementAttempt(1), &[(0, cpus(1.0))])
                && pools.commit(group(1), PlacementAttempt(1))
        );
        let parent = pools.acquire(&cpus(1.0), Some(&place(1, None))).expect("free");
        pools.lend_cpu(&parent);
        let child = pools.acquire(&cpus(1.0), Some(&place(1, None))).expect("lent");
        pools.reclaim_cpu(&parent);
        pools.give_back(group(1), None);
        pools.release(&child);
        assert!(pools.free().is_empty(), "the debt is paid first");
        pools.release(&parent);
        assert_eq!(pools.free(), pools.total());
    }

    #[test]
    fn what_is_prepared_is_asked_about_after_a_while() {
        let mut pools = Pools::new(cpus(3.0));
        assert_eq!(pools.next_deadline(), None);
        assert!(pools.prepare(group(1), PlacementAttempt(4), &[(0, cpus(1.0)), (1, cpus(1.0))]));
        let later = Instant(5 + PREPARED_NANOS);
        assert_eq!((pools.unheard(Instant(5)), pools.next_deadline()), (vec![], Some(later)));
        assert_eq!(pools.unheard(later), vec![(group(1), PlacementAttempt(4))]);
        assert_eq!(pools.unheard(later), vec![], "it was asked about");
        assert!(pools.commit(group(1), PlacementAttempt(4)));
        assert_eq!(pools.next_deadline(), None);
    }

    #[test]
    fn bundles_have_names_like_those_of_ray() {
        let mut pools = Pools::new(cpus(2.0));
        assert!(pools.prepare(group(2), PlacementAttempt(1), &[(0, cpus(1.0)), (1, cpus(1.0))]));
        let free = |pools: &Pools| {
            let mut set = ResourceSet::default();
            pools.add_free_of_groups(&mut set);
            set
        };
        assert!(free(&pools).is_empty(), "not committed");
        assert!(pools.commit(group(2), PlacementAttempt(1)));
        let amount = |name: &str| free(&pools).amount(&format!("{name}_00000000000000010000000000000002"));
        assert_eq!((amount("CPU_group"), amount("CPU_group_1")), (2 * UNIT, UNIT));
        assert_eq!(amount("bundle_group_0"), BUNDLE_SHARES);
    }
}
