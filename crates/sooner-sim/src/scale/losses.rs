//! Values that are made at a node other than their owner's, and lost with it: then a copy becomes the value.
//!
//! Values are never made again here, so a value lasts as long as its owner knows of a complete copy.

use sooner_wire::WorkerId;
use sooner_wire::message::{Outcome, Remote};

use super::plan::SECOND;
use super::world::World;
use crate::random::Random;
use crate::violation::fail;

/// An owner has learned of a copy that has been complete for this long (nanoseconds).
const KNOWN_NANOS: u64 = SECOND;

/// Where a value is, according to its owner.
#[derive(Debug)]
pub(super) enum Found {
    /// At this place.
    At(Remote),
    /// Nowhere yet: the owner has asked for a copy.
    NotYet,
    /// Nowhere: no copy is left.
    Lost,
}

impl World {
    /// The driver at whose node a value is made: for half of the values, another one than the owner.
    pub(super) fn maker_of(&self, number: usize, owner: WorkerId, drivers: &[WorkerId]) -> WorkerId {
        // Only the seed and the value's number decide this, so that the rest of the run stays the same.
        let mut random = Random::new(self.plan.seed ^ 0x0052_0000_0000 ^ number as u64);
        let home = &self.nodes[self.processes[&owner].node];
        let others =
            drivers.iter().filter(|driver| driver.node() != home.id && !home.has_buried(driver.node()));
        let others: Vec<WorkerId> = others.copied().collect();
        if self.plan.at_once || others.is_empty() || random.chance(1, 2) {
            return owner;
        }
        others[random.below(others.len())]
    }

    /// Where a value is, according to its owner.
    pub(super) fn find_value(&self, value: usize) -> Found {
        let object = self.values[value].object;
        let Some(process) = self.processes.get(&object.owner()) else { return Found::Lost };
        match process.core.ownership().outcome(object) {
            Some(Outcome::Remote(place)) => Found::At(*place),
            Some(Outcome::Stored(location)) => Found::At(Remote { node: object.owner().node(), location }),
            Some(Outcome::Failed(_) | Outcome::Inline(_)) => Found::Lost,
            None => Found::NotYet,
        }
    }

    /// Checks an owner's view of its values, after a message that may have changed it.
    pub(super) fn judge_values(&mut self, owner: WorkerId) {
        for value in 0..self.values.len() {
            if self.values[value].object.owner() != owner || self.values[value].is_lost {
                continue;
            }
            match self.find_value(value) {
                Found::At(place) if place.node != self.values[value].place.node => {
                    self.saw("a copy became the value");
                    self.values[value].place = place;
                    self.judge_place(value, &place);
                }
                Found::At(_) => {}
                Found::NotYet => self.saw("a copy was asked for that was to become the value"),
                Found::Lost => {
                    self.saw("a value was lost with all its copies");
                    self.values[value].is_lost = true;
                    self.judge_loss(value);
                }
            }
        }
    }

    /// Checks the place of a copy that became the value, unless its node has just ended.
    fn judge_place(&self, value: usize, place: &Remote) {
        let object = self.values[value].object;
        let Some(node) = self.index_of(place.node).map(|at| &self.nodes[at]).filter(|node| node.runs())
        else {
            return;
        };
        let block = node.blocks.get(&place.location.offset);
        let is_whole =
            block.is_some_and(|block| block.object == object && block.bytes == place.location.length);
        if !is_whole {
            fail("FL7", format!("{object:?} is to be at {place:?}, where {block:?} is"));
        }
    }

    fn judge_loss(&self, value: usize) {
        // Owners give up copies at nodes that were out of reach for a while.
        if self.plan.faults.iter().any(|word| ["split", "lose"].contains(word)) {
            return;
        }
        let object = self.values[value].object;
        let home = &self.nodes[self.processes[&object.owner()].node];
        let nodes = self.nodes.iter().filter(|node| node.runs() && !home.has_buried(node.id));
        for node in nodes {
            let is_known = |block: &super::uplinks::Block| {
                let since = block.whole.filter(|_| block.object == object);
                since.is_some_and(|since| self.now.since(since) > KNOWN_NANOS)
            };
            if let Some((block, _)) = node.blocks.iter().find(|(_, block)| is_known(block)) {
                fail("FL7", format!("{object:?} is lost, and all of it is in {block} of {:?}", node.id));
            }
        }
    }
}
