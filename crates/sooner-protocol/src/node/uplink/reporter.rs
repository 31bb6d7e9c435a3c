//! A node's reports of what it has free and which demands wait: when something changed, and not more often
//! than is of use.
//!
//! It never reports what it has reported already: an idle node sends nothing. But a node that was given a
//! lease takes it off the last report until the next one: so after a grant the same report is sent again.

use sooner_wire::ResourceSet;
use sooner_wire::limits::{DEMAND_SHAPES_MAX, VIEW_NANOS};
use sooner_wire::message::{BundleFree, ResourceReport, ShapeDemand};

use crate::time::Instant;

/// What a node has free, the demands that wait there, what bundles of placement groups have free, and how
/// many leases it has granted to processes of other nodes.
pub type Spare = (ResourceSet, Vec<ShapeDemand>, Vec<BundleFree>, u64);

/// See the module.
#[derive(Debug, Default)]
pub struct Reporter {
    version: u64,
    last: Option<(Instant, ResourceReport)>,
    /// Leases that were granted by the last report.
    granted: u64,
    has_changed: bool,
}

impl Reporter {
    /// Something may differ from the last report.
    pub fn note(&mut self) {
        self.has_changed = true;
    }

    /// The control service knows nothing of this node: it is a new one, or has started again.
    pub fn begin_anew(&mut self) {
        self.last = None;
        self.has_changed = true;
    }

    /// The report that is due now, if one is. `read` gives free resources, waiting demands, and what bundles
    /// have free.
    pub fn take(&mut self, now: Instant, read: impl FnOnce() -> Spare) -> Option<ResourceReport> {
        if self.next_deadline().is_none_or(|due| now < due) {
            return None;
        }
        self.has_changed = false;
        let (free, demand, bundles, granted) = read();
        let was_granted = std::mem::replace(&mut self.granted, granted) != granted;
        let demand = most_wanted(demand);
        let bundles = Some(bundles).filter(|bundles| !bundles.is_empty());
        let is_same =
            |last: &ResourceReport| last.free == free && last.demand == demand && last.bundles == bundles;
        if !was_granted && self.last.as_ref().is_some_and(|(_, last)| is_same(last)) {
            return None;
        }
        self.version += 1;
        let report = ResourceReport { version: self.version, free, demand, bundles };
        self.last = Some((now, report.clone()));
        Some(report)
    }

    /// When [`Reporter::take`] is to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.has_changed.then(|| self.last.as_ref().map_or(Instant(0), |(said, _)| said.plus(VIEW_NANOS)))
    }
}

/// Shapes of waiting demands; if a report cannot hold all, those with most demands.
fn most_wanted(mut demand: Vec<ShapeDemand>) -> Vec<ShapeDemand> {
    demand.retain(|shape| shape.count > 0);
    if demand.len() > DEMAND_SHAPES_MAX {
        demand.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.resources.cmp(&b.resources)));
        demand.truncate(DEMAND_SHAPES_MAX);
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(count: f64) -> ResourceSet {
        ResourceSet::from_amounts([("CPU".to_owned(), count)])
    }

    fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    #[test]
    fn changes_are_told_at_once_and_then_every_50_ms() {
        let mut reporter = Reporter::default();
        assert_eq!(reporter.take(at(1), || unreachable!("nothing was noted")), None);
        reporter.note();
        assert_eq!(reporter.take(at(1), || (cpus(2.0), vec![], vec![], 0)).expect("first").version, 1);
        reporter.note();
        assert_eq!(reporter.next_deadline(), Some(at(51)));
        assert_eq!(reporter.take(at(50), || unreachable!("too early")), None);
        let demand = vec![ShapeDemand { resources: cpus(1.0), count: 3 }];
        let second = reporter.take(at(51), || (cpus(0.0), demand.clone(), vec![], 0)).expect("due");
        assert_eq!(second, ResourceReport { version: 2, free: cpus(0.0), demand, bundles: None });
        assert_eq!(reporter.next_deadline(), None);
    }

    #[test]
    fn what_is_as_it_was_is_not_told_again() {
        let mut reporter = Reporter::default();
        reporter.note();
        assert!(reporter.take(at(0), || (cpus(2.0), vec![], vec![], 0)).is_some());
        reporter.note();
        assert_eq!(reporter.take(at(60), || (cpus(2.0), vec![], vec![], 0)), None);
        assert_eq!(reporter.next_deadline(), None);
        reporter.begin_anew();
        assert_eq!(
            reporter.take(at(61), || (cpus(2.0), vec![], vec![], 0)).expect("another head").version,
            2
        );
    }

    #[test]
    fn what_is_free_again_after_a_grant_is_told_although_it_is_as_it_was() {
        let mut reporter = Reporter::default();
        reporter.note();
        assert!(reporter.take(at(0), || (cpus(2.0), vec![], vec![], 0)).is_some());
        // One was granted, and its task waits for another one: its CPU is free.
        reporter.note();
        assert_eq!(reporter.take(at(60), || (cpus(2.0), vec![], vec![], 1)).expect("news").version, 2);
        reporter.note();
        assert_eq!(reporter.take(at(120), || (cpus(2.0), vec![], vec![], 1)), None);
    }

    #[test]
    fn a_report_holds_what_most_wait_for() {
        let shape = |number: u32| ShapeDemand { resources: cpus(f64::from(number + 1)), count: number };
        let demand: Vec<ShapeDemand> = (0..100).map(shape).collect();
        let kept = most_wanted(demand);
        assert_eq!(kept.len(), DEMAND_SHAPES_MAX);
        assert_eq!((kept[0].count, kept[DEMAND_SHAPES_MAX - 1].count), (99, 36));
    }
}
