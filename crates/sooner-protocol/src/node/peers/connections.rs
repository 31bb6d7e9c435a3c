//! Which processes are connected with each other: two of this node by a pair of sockets, one of this node
//! with one of another by a connection that is dialled.
//!
//! A socket pair is made once, for as long as both processes live. A dialled connection may be cut, and is
//! dialled anew whenever a process asks for it.
//!
//! Two processes of different nodes that have not reached each other for long take each other for dead, and
//! both may live (`docs/adr/0029-settling-over-nodes.md`). What one had of the other would be counted for
//! ever. So one of the two is ended, which is an ordinary death. Both report, and both nodes name the same
//! one: a worker rather than the process of an actor, and never a driver; of two alike the one with the
//! greater id. Each node ends processes of its own only. The reports go by way of the control service: where
//! two processes do not reach each other, their nodes mostly do not either.
//!
//! Invariant: no process gets lines with more than [`REMOTE_LINES_MAX`] living processes of other nodes,
//! whoever dials.

use sooner_wire::WorkerId;
use sooner_wire::limits::REMOTE_LINES_MAX;
use sooner_wire::message::{LinkRole, PeerConnected, Sever};

use crate::node::core::send;
use crate::node::workers::pool::WorkerState;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;

/// The kind of a process, as far as it matters here; a greater one is more easily done without.
const DRIVER: u8 = 0;
const ACTOR: u8 = 1;
const WORKER: u8 = 2;

/// What a node is among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::node) enum Role {
    /// There are no other nodes, and will be none.
    #[default]
    Alone,
    /// There are other nodes, or may be.
    Member,
    /// Like `Member`, for a program: no work runs on the node.
    OfProgram,
}

impl Role {
    pub(in crate::node) fn is_member(self) -> bool {
        match self {
            Self::Alone => false,
            Self::Member | Self::OfProgram => true,
        }
    }

    pub(in crate::node) fn runs_work(self) -> bool {
        self != Self::OfProgram
    }
}

impl NodeCore {
    /// Whether a process is connected.
    pub(crate) fn has_client(&self, process: WorkerId) -> bool {
        self.clients.contains_key(&process)
    }

    /// There are other nodes, or may be: this one takes part in a cluster.
    pub fn join_cluster(&mut self) {
        self.role = Role::Member;
    }

    /// No work runs here, not even work that needs no resources: this node takes part in a cluster for a
    /// program.
    pub fn run_nothing(&mut self) {
        self.role = Role::OfProgram;
    }

    /// Whether a process belongs to another node.
    pub(in crate::node) fn is_elsewhere(&self, process: WorkerId) -> bool {
        self.role.is_member() && process.node() != self.id()
    }

    pub(in crate::node) fn on_connect(&mut self, from: WorkerId, to: WorkerId, out: &mut NodeActions) {
        if self.clients.contains_key(&to) {
            self.introduce(from, to, out);
        } else if self.is_elsewhere(to) && self.watches.is_with_node(to) {
            self.notify_death_with_node(from, to, out);
        } else if self.is_elsewhere(to) && !self.departed.has(to) {
            if self.may_have_line(from, to) {
                out.push(NodeAction::Dial { client: from, to });
            } else {
                // Without a descriptor: the connection could not be made.
                out.push(send(
                    from,
                    PeerConnected { worker: to, link: Some(LinkRole::Dial), name: None, never: None },
                ));
            }
        } else {
            out.push(send(from, self.departed.of(to)));
            self.notify_if_settled(from, to, out);
        }
    }

    /// Whether a local process may have a line with a remote one: it has that line already, or not too many.
    pub(in crate::node) fn may_have_line(&self, local: WorkerId, remote: WorkerId) -> bool {
        let Some(client) = self.clients.get(&local) else { return false };
        client.lines.len() < REMOTE_LINES_MAX || client.lines.contains(&remote)
    }

    /// A line is about to be handed to a local process.
    pub(in crate::node) fn add_line(&mut self, local: WorkerId, remote: WorkerId) {
        if let Some(client) = self.clients.get_mut(&local) {
            client.lines.insert(remote);
        }
        self.record_line(local, remote);
    }

    /// Processes of other nodes are dead: forgets the lines with them.
    pub(in crate::node) fn forget_lines(&mut self, is_dead: impl Fn(WorkerId) -> bool) {
        for client in self.clients.values_mut() {
            client.lines.retain(|remote| !is_dead(*remote));
        }
    }

    fn class_of(&self, process: WorkerId) -> u8 {
        match self.pool.state(process) {
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

    /// A process of another node cannot reach this local one: the control service's message names the remote
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

    /// Connects two clients, once.
    pub(in crate::node) fn introduce(&mut self, a: WorkerId, b: WorkerId, out: &mut NodeActions) {
        if a == b {
            return;
        }
        if let Some(client) = self.clients.get_mut(&a)
            && client.introduced.insert(b)
        {
            if let Some(other) = self.clients.get_mut(&b) {
                other.introduced.insert(a);
            }
            out.push(NodeAction::Introduce(a, b));
        }
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::ResourceSet;
    use sooner_wire::message::{Connect, Message, Settled, WorkerDead};

    use super::*;
    use crate::time::Instant;

    const HERE: u64 = 1 << 24;
    const FAR: WorkerId = WorkerId((2 << 24) + 1);
    const CLIENT: WorkerId = WorkerId(HERE + 1);

    fn connect(node: &mut NodeCore) -> NodeActions {
        let mut out = NodeActions::new();
        let connect = Connect { worker: FAR };
        assert_eq!(node.on_message(CLIENT, connect.into(), Instant(0), &mut out), None);
        out
    }

    fn node() -> NodeCore {
        let mut node = NodeCore::new(ResourceSet::default(), HERE, 0);
        node.on_connected(CLIENT, 1, Instant(0));
        node
    }

    #[test]
    fn a_process_of_another_node_is_dialled_as_often_as_it_is_asked_for() {
        let mut node = node();
        node.join_cluster();
        let dialled = [NodeAction::Dial { client: CLIENT, to: FAR }];
        assert_eq!(connect(&mut node), dialled);
        assert_eq!(connect(&mut node), dialled);
        let reason = "was killed".to_owned();
        let gone = WorkerDead {
            worker: FAR,
            reason,
            last_started: None,
            what: None,
            all_begun: None,
            unreachable: None,
            memory: None,
        };
        node.departed.note(&gone);
        assert_eq!(connect(&mut node)[0], send(CLIENT, gone), "there is nobody to be dialled");
    }

    #[test]
    fn who_asks_for_a_process_of_a_node_that_is_gone_hears_that_at_once() {
        // Nobody here had to do with it before.
        let mut node = node();
        node.join_cluster();
        let (mut out, address) = (NodeActions::new(), WorkerId(FAR.node().0));
        let gone = WorkerDead { worker: address, all_begun: Some(true), ..WorkerDead::default() };
        node.on_dead_elsewhere(gone, &mut out);
        let told = connect(&mut node);
        assert!(
            matches!(&told[..], [NodeAction::Send(CLIENT, message)]
                if matches!(&**message, Message::WorkerDead(gone) if gone.worker == FAR)),
            "its death is settled with that of its node: {told:?}"
        );
        node.on_settled(Settled { gone: vec![address], held: Vec::new() }, &mut out);
        let told = connect(&mut node);
        let is_settled = |action: &NodeAction| matches!(action, NodeAction::Send(CLIENT, message) if matches!(&**message, Message::Settled(_)));
        assert!(told.len() == 2 && is_settled(&told[1]), "{told:?}");
    }

    #[test]
    fn where_there_is_one_node_other_nodes_processes_are_gone() {
        let out = connect(&mut node());
        assert!(matches!(&out[..], [NodeAction::Send(CLIENT, _), ..]), "{out:?}");
    }

    #[test]
    fn a_process_has_no_more_lines_than_it_may_whoever_dials() {
        let mut node = node();
        node.join_cluster();
        let far = |number: usize| WorkerId(FAR.0 + number as u64);
        for number in 0..REMOTE_LINES_MAX {
            assert!(node.on_arrived_for(CLIENT, far(number)));
        }
        let dialled = [NodeAction::Dial { client: CLIENT, to: FAR }];
        assert_eq!(connect(&mut node), dialled, "one that it has is made again");
        let last = far(REMOTE_LINES_MAX);
        assert!(!node.on_arrived_for(CLIENT, last) && node.on_arrived_for(CLIENT, FAR));
        let mut out = NodeActions::new();
        node.on_connect(CLIENT, last, &mut out);
        let refused = PeerConnected { worker: last, link: Some(LinkRole::Dial), name: None, never: None };
        assert_eq!(out, [send(CLIENT, refused)]);
        node.end_remote(FAR, &mut out);
        assert!(node.on_arrived_for(CLIENT, last), "another one is gone");
        node.on_node_dead(FAR.node(), &mut out);
        assert!(node.clients[&CLIENT].lines.is_empty());
    }
}
