//! Ends of lines that are no ends of processes (`docs/adr/0029-settling-over-nodes.md`).
//!
//! Two processes of different nodes that have not reached each other for long hold each other for gone, and
//! both may live. What one had of the other would be counted for ever. So one of the two is ended, and what
//! follows is an ordinary death. Both say so, and both nodes name the same one: a worker rather than the
//! process of an actor, and never a driver; of two alike the one with the greater id. Each node ends
//! processes of its own only. What is said goes by way of the control service: where two processes do not
//! reach each other, their nodes mostly do not either.

use sooner_wire::WorkerId;
use sooner_wire::message::Sever;

use crate::node::core::WorkerState;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;

/// What a process is, as far as it matters here; who is more easily done without is greater.
const DRIVER: u8 = 0;
const ACTOR: u8 = 1;
const WORKER: u8 = 2;

impl NodeCore {
    fn class_of(&self, process: WorkerId) -> u8 {
        match self.workers.get(&process).map(|worker| worker.state) {
            None => DRIVER,
            Some(WorkerState::Actor(_)) => ACTOR,
            Some(_) => WORKER,
        }
    }

    /// A client cannot reach a process of another node any more.
    pub(in crate::node) fn on_sever(&mut self, from: WorkerId, sever: Sever, out: &mut NodeActions) {
        if self.is_elsewhere(sever.worker) {
            let sever = Sever { class: Some(self.class_of(from)), ..sever };
            self.route(from, sever, out);
        }
    }

    /// A process of another node cannot reach this one of here: what came from the control service names that
    /// one.
    pub(in crate::node) fn on_severed(&mut self, worker: WorkerId, sever: &Sever, out: &mut NodeActions) {
        let from = sever.worker;
        let (ours, theirs) = (self.class_of(worker), sever.class.unwrap_or(DRIVER));
        if ours != DRIVER && (ours, worker) > (theirs, from) {
            mark!("a process was ended because one of another node could not be reached");
            let text = format!(
                "process {:016x} is ended: it and process {:016x} of another node have not reached each other for too long",
                worker.0, from.0
            );
            out.push(NodeAction::Warn(text));
            out.push(NodeAction::KillWorker(worker));
        }
    }
}
