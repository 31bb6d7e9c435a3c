//! Which processes are connected with each other: two of this node by a pair of sockets, one of this node with one of another
//! by a connection that is dialled.
//!
//! A pair is made once: it lasts as long as both processes. What is dialled may be cut, and is dialled anew whenever a process
//! asks for it.

use weft_wire::WorkerId;

use super::{NodeAction, NodeActions, NodeCore, send};

impl NodeCore {
    /// There are other nodes, or may be: this one takes part in a cluster.
    pub fn join_cluster(&mut self) {
        self.is_member = true;
    }

    /// No work runs here, also not what needs no resources: this node is a part of a program.
    pub fn run_nothing(&mut self) {
        self.runs_nothing = true;
    }

    /// Whether a process is another node's.
    pub(super) fn is_elsewhere(&self, process: WorkerId) -> bool {
        self.is_member && process.node() != self.id()
    }

    pub(super) fn on_connect(&mut self, from: WorkerId, to: WorkerId, out: &mut NodeActions) {
        if self.clients.contains_key(&to) {
            self.introduce(from, to, out);
        } else if self.is_elsewhere(to) && !self.departed.has(to) {
            out.push(NodeAction::Dial { client: from, to });
        } else {
            out.push(send(from, self.departed.of(to)));
            self.tell_if_settled(from, to, out);
        }
    }

    /// Connects two clients, once.
    pub(super) fn introduce(&mut self, a: WorkerId, b: WorkerId, out: &mut NodeActions) {
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
    use weft_wire::ResourceSet;
    use weft_wire::message::{Connect, WorkerGone};

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
        let gone = WorkerGone {
            worker: FAR,
            reason,
            last_started: None,
            what: None,
            all_begun: None,
            unreachable: None,
        };
        node.departed.note(&gone);
        assert_eq!(connect(&mut node)[0], send(CLIENT, gone), "there is nobody to be dialled");
    }

    #[test]
    fn where_there_is_one_node_other_nodes_processes_are_gone() {
        let out = connect(&mut node());
        assert!(matches!(&out[..], [NodeAction::Send(CLIENT, _), ..]), "{out:?}");
    }
}
