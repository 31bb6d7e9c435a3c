//! How a node handles the events of its cluster, and connects its processes with those of other nodes.
//!
//! The core gets the events in the order in which they came. A connection between processes of two nodes is
//! made here and handed on before a byte has been sent over it: the two processes prove to each other where
//! they are; this node only knows which ones it has connected.

use std::os::fd::OwnedFd;

use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_wire::message::{Credentials, LinkRole, Message, PeerConnected};
use sooner_wire::{Blob, NodeId, WorkerId};

use super::{Connection, Role, Service};
use crate::clock::now;
use crate::identity::Destination;
use crate::node::accept::turn_away;
use crate::node::cluster::ClusterEvent;

impl Service {
    /// Passes the events to the core.
    pub(super) fn receive(&mut self, out: &mut NodeActions) {
        let Some(cluster) = &mut self.cluster else { return };
        for one in cluster.take_heard() {
            self.receive_one(one, out);
        }
    }

    fn receive_one(&mut self, one: ClusterEvent, out: &mut NodeActions) {
        let Some(core) = self.core.member() else { return };
        match one {
            ClusterEvent::Up { is_new } => {
                if is_new {
                    // Meant for a head that did not know this node: what matters of it is sent again now.
                    out.retain(|action| !matches!(action, NodeAction::Control(_)));
                }
                core.on_control_up(is_new, now(), out);
            }
            ClusterEvent::Down => core.on_control_down(now()),
            ClusterEvent::Word(word) => core.on_control(word, now(), out),
            ClusterEvent::Known(rows) => rows.iter().for_each(|row| core.on_node_known(row)),
            ClusterEvent::View(view) => core.on_view(&view),
            ClusterEvent::Candidates(candidates) => core.on_candidates(&candidates),
            ClusterEvent::NodeDead(node) => {
                core.on_node_dead(node, out);
                self.rounds.forget_node(node);
            }
            ClusterEvent::LinkEnded(node) => {
                core.on_link_ended(node, out);
                self.on_lines_lost(node);
                self.rounds.lose_node(node);
            }
            ClusterEvent::Directory(round, report) => self.rounds.on_directory(round, report),
            ClusterEvent::Routed(node, routed) => {
                let (from, to) = (routed.from, routed.to);
                match core.on_routed(node, from, to, *routed.message, now(), out) {
                    Ok(Some(Message::LogLines(lines))) => self.on_remote_lines(node, &lines),
                    Ok(Some(Message::LinesTaken(taken))) => self.on_lines_taken(node, &taken),
                    Ok(Some(Message::Inspect(question))) => self.begin_round_for(node, &question),
                    Ok(Some(Message::Inspected(answer))) => self.forward_from(node, answer),
                    Ok(Some(Message::InspectEnd(end))) => self.on_node_inspected(node, end),
                    Ok(_) => {}
                    Err(error) => self.distrust(node, &error.to_string()),
                }
            }
            ClusterEvent::Drain { nanos } => self.on_drain(nanos),
            ClusterEvent::Dialled { client, to, socket, never } => self.on_dialled(client, to, socket, never),
            ClusterEvent::DialMe { client, to } => self.on_dial_me(client, to),
            ClusterEvent::Arrived { socket, to, from } => self.on_arrived(socket, to, from),
            ClusterEvent::ForData(socket, address, what) => {
                if let Some(data) = &self.data {
                    data.admit(socket, address, what);
                }
            }
            ClusterEvent::WantsValues(node, address) => {
                if let Some(data) = &self.data {
                    data.offer(node, address);
                }
            }
        }
    }

    /// Another node broke the protocol.
    fn distrust(&mut self, node: NodeId, why: &str) {
        self.note(&format!("node {:016x} says nonsense: {why}", node.0));
        if let Some(cluster) = &mut self.cluster {
            cluster.end_link(node, why);
        }
    }

    /// A connection that a local process wanted to one of another node, or that there is none.
    fn on_dialled(&mut self, client: WorkerId, to: WorkerId, socket: Option<OwnedFd>, never: Option<String>) {
        if socket.is_some()
            && let Some(core) = self.core.member()
        {
            // From now on that node learns of the end of this process.
            core.on_dialled_for(client, to);
        }
        let name = Destination::Worker { to, from: client }.server_name(to.node());
        let name = Some(name.to_str().into_owned());
        let connected = PeerConnected { worker: to, link: Some(LinkRole::Dial), name, never };
        self.send(client, &connected.into(), socket.into_iter().collect());
    }

    /// A process of another node, which cannot dial this one, wants a connection to a local one.
    fn on_dial_me(&mut self, client: WorkerId, to: WorkerId) {
        let token = self.tokens.get(&client);
        let is_here = token.and_then(|token| self.connections.get(token)).is_some_and(|c| c.is_greeted);
        // Wanting a connection counts as interest. If the local process is dead, that node learns it.
        let is_recorded = self.core.member().is_some_and(|core| core.on_arrived_for(client, to));
        if is_here
            && is_recorded
            && let Some(cluster) = &mut self.cluster
        {
            cluster.dial(client, to);
        }
    }

    /// A connection for a local process, from what claims to be a process of another node.
    fn on_arrived(&mut self, socket: OwnedFd, to: WorkerId, from: WorkerId) {
        let is_known = self.cluster.as_ref().is_some_and(|cluster| cluster.knows(from.node()));
        let token = self.tokens.get(&to);
        let is_here = token.and_then(|token| self.connections.get(token)).is_some_and(|c| c.is_greeted);
        let is_recorded = |core: &mut Member| core.on_arrived_for(to, from);
        if !(is_known && self.core.member().is_some_and(is_recorded) && is_here) {
            return turn_away(socket);
        }
        let connected = PeerConnected { worker: from, link: Some(LinkRole::Accept), name: None, never: None };
        self.send(to, &connected.into(), vec![socket]);
    }

    /// A driver has connected: the cluster learns what its job is.
    pub(super) fn announce_job(&mut self, process: WorkerId, out: &mut NodeActions) {
        let Some(job) = self.jobs.get(&process) else { return };
        if let Some(core) = self.core.member() {
            core.on_job(process, Box::new(job.config.clone()), out);
        }
    }

    /// The token has changed: processes of this node get other credentials.
    pub(super) fn renew(&mut self, credentials: crate::identity::Credentials) {
        let Some(cluster) = &mut self.cluster else { return };
        cluster.renew(credentials);
        let Some(message) = self.credentials() else { return };
        let speaks = |connection: &Connection| {
            connection.is_greeted && matches!(connection.role, Role::Worker | Role::Driver)
        };
        let told = self.connections.values().filter(|connection| speaks(connection));
        for worker in told.filter_map(|connection| connection.worker).collect::<Vec<_>>() {
            self.send(worker, &message, Vec::new());
        }
        self.note("its processes have other credentials: the token changes");
    }

    /// The credentials of this node's processes, if it is in a cluster.
    pub(super) fn credentials(&self) -> Option<Message> {
        let credentials = self.cluster.as_ref()?.credentials();
        let blob = |bytes: &Vec<u8>| Blob::from(bytes.clone());
        let message = Credentials {
            node: credentials.node,
            certificate: blob(&credentials.certificate),
            key: blob(&credentials.key),
            roots: credentials.roots.iter().map(blob).collect(),
        };
        Some(message.into())
    }
}
