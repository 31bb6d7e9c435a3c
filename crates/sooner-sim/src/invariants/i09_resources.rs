//! I9: resources are conserved: the total is what leases, actors and placements hold plus what is free. I13:
//! no queue grows beyond its bound.

use sooner_wire::limits::{LEASE_BACKLOG_TASKS, WORKERS_STARTING_MAX};

use crate::violation::fail;
use crate::world::World;

impl World {
    /// The checks that the cores make of their own state.
    pub fn check_resources(&self) {
        self.nodes.iter().for_each(|node| node.core.check());
        for process in self.processes.running() {
            process.core.check();
        }
    }

    /// I13.
    pub fn check_bounds(&self) {
        for node in &self.nodes {
            let starting = node.core.report().workers.iter().filter(|worker| worker.state == 0).count();
            if starting > WORKERS_STARTING_MAX {
                fail("I13", format!("{starting} processes are being started"));
            }
        }
        for process in self.processes.running() {
            if process.instance.is_none() && process.core.execution().queued() > 2 * LEASE_BACKLOG_TASKS {
                fail(
                    "I13",
                    format!("{:?} has {} tasks queued", process.id, process.core.execution().queued()),
                );
            }
        }
    }
}
