//! Who asks this node for leases, and how many it has: processes that are connected here.
//!
//! They are apart from the clients: who is told of deaths, losses and rounds is decided by who is connected, who is served by who
//! asks.
//!
//! It never decides who is served: [`super::leasing`] does.

use weft_wire::{ResourceSet, ShapeId, Strategy, WorkerId};

use crate::table::{Map, Set};

/// What somebody waits for.
#[derive(Debug)]
pub(super) struct Demand {
    pub(super) resources: ResourceSet,
    /// Where its workers must be, if not just anywhere.
    pub(super) strategy: Option<Box<Strategy>>,
    /// Of the most urgent of its tasks.
    pub(super) priority: i32,
    pub(super) count: u32,
    pub(super) reported: bool,
}

/// Somebody who may ask for leases.
#[derive(Debug)]
pub(super) struct Asker {
    /// The driver whose workers serve it.
    pub(super) job: WorkerId,
    pub(super) demands: Map<ShapeId, Demand>,
    pub(super) leases: u32,
    /// It was asked to give a lease back and has not done so.
    pub(super) reclaiming: bool,
}

impl Asker {
    pub(super) fn new(job: WorkerId) -> Self {
        Self { job, demands: Map::default(), leases: 0, reclaiming: false }
    }
}

/// See the module. In the order in which they came, which is the order in which they are served.
pub(super) type Askers = Map<WorkerId, Asker>;

/// Jobs whose driver is there.
pub(super) type OpenJobs = Set<WorkerId>;
