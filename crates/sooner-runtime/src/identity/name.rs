//! The names in certificates and in the first message of a connection: a node, and a destination on it.
//!
//! `n-<node>.sooner` is a node, `<whom>.n-<node>.sooner` a destination on it, `control.sooner` the head, for
//! peers that know only its address. Numbers are 16 hexadecimal digits, small letters. Each name has one
//! spelling; every other is refused.

use rustls::pki_types::ServerName;
use sooner_wire::{NodeId, WorkerId};

/// The head, on whichever node it is.
pub(super) const HEAD_NAME: &str = "control.sooner";
const DIGITS: usize = 16;

/// The destination of a connection on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A worker or driver, dialled by another.
    Worker {
        /// The process that is dialled.
        to: WorkerId,
        /// The process that dials, as it claims: accepted only when its certificate agrees.
        from: WorkerId,
    },
    /// The node's own loop.
    Node,
    /// The control service.
    Control,
    /// The health service.
    Health,
    /// The thread that transfers values.
    Data,
    /// The same thread, where the dialler holds the values: it cannot be dialled itself.
    Values,
}

/// A name that has no destination on this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// The name is no name of sooner.
    #[error("the name {0:?} is not one of sooner's")]
    Foreign(String),
    /// Another node was expected at this address, usually one that was here before.
    #[error("the connection is for node {wanted:016x}, this is node {here:016x}")]
    OtherNode {
        /// The node that the peer expects.
        wanted: u64,
        /// This node.
        here: u64,
    },
    /// The head was expected at this address.
    #[error("the connection is for the head of the cluster, this is node {0:016x}, which is not the head")]
    NotTheHead(u64),
}

/// The name of a node.
pub(super) fn node_name(node: NodeId) -> String {
    format!("n-{:0DIGITS$x}.sooner", node.0)
}

/// The node of this name.
pub(super) fn node_of_name(name: &str) -> Option<NodeId> {
    let id = number(name.strip_prefix("n-")?.strip_suffix(".sooner")?)?;
    (WorkerId(id).node().0 == id).then_some(NodeId(id))
}

impl Destination {
    /// The name with which to dial this destination on `node`.
    #[must_use]
    pub fn server_name(self, node: NodeId) -> ServerName<'static> {
        let node = node_name(node);
        let name = match self {
            Destination::Worker { to, from } => format!("w-{:0DIGITS$x}-f-{:0DIGITS$x}.{node}", to.0, from.0),
            Destination::Node => format!("node.{node}"),
            Destination::Control => format!("control.{node}"),
            Destination::Health => format!("health.{node}"),
            Destination::Data => format!("data.{node}"),
            Destination::Values => format!("values.{node}"),
        };
        ServerName::try_from(name).expect("letters, digits and dashes")
    }

    /// The name with which to dial the control service of a cluster of which only an address is known.
    #[must_use]
    pub fn head_name() -> ServerName<'static> {
        ServerName::try_from(HEAD_NAME).expect("letters")
    }

    /// Parses the name that a peer sent to node `here`; `is_head`: it is the head.
    ///
    /// # Errors
    /// [`NameFault`] when it has no destination on this node.
    pub fn parse(name: &str, here: NodeId, is_head: bool) -> Result<Self, NameFault> {
        if name == HEAD_NAME {
            return if is_head { Ok(Destination::Control) } else { Err(NameFault::NotTheHead(here.0)) };
        }
        // A name is at most 253 bytes, so it may be repeated in full.
        let foreign = || NameFault::Foreign(name.to_owned());
        let (whom, node) = name.split_once('.').ok_or_else(foreign)?;
        let node = node_of_name(node).ok_or_else(foreign)?;
        let destination = match whom {
            "node" => Destination::Node,
            "control" => Destination::Control,
            "health" => Destination::Health,
            "data" => Destination::Data,
            "values" => Destination::Values,
            _ => worker(whom)
                .filter(|(to, _)| to.node() == node)
                .map_or_else(|| Err(foreign()), |(to, from)| Ok(Destination::Worker { to, from }))?,
        };
        if node != here {
            return Err(NameFault::OtherNode { wanted: node.0, here: here.0 });
        }
        if matches!(destination, Destination::Control | Destination::Health) && !is_head {
            return Err(NameFault::NotTheHead(here.0));
        }
        Ok(destination)
    }
}

/// `w-<to>-f-<from>`: two different processes, neither of which is a node.
fn worker(whom: &str) -> Option<(WorkerId, WorkerId)> {
    let (to, from) = whom.strip_prefix("w-")?.split_once("-f-")?;
    let (to, from) = (WorkerId(number(to)?), WorkerId(number(from)?));
    let is_process = |id: WorkerId| id.0 != id.node().0;
    (to != from && is_process(to) && is_process(from)).then_some((to, from))
}

fn number(digits: &str) -> Option<u64> {
    let is_ours = digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    is_ours.then(|| u64::from_str_radix(digits, 16).expect("digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: NodeId = NodeId(0x0123_4567_8900_0000);

    #[test]
    fn names_lead_back_to_where_they_were_made_for() {
        let to = WorkerId(HERE.0 + 7);
        let from = WorkerId(0x7fff_0000_0100_0002);
        for destination in [
            Destination::Worker { to, from },
            Destination::Node,
            Destination::Control,
            Destination::Health,
            Destination::Data,
            Destination::Values,
        ] {
            let name = destination.server_name(HERE);
            assert_eq!(Destination::parse(&name.to_str(), HERE, true), Ok(destination));
        }
        let head = Destination::head_name();
        assert_eq!(Destination::parse(&head.to_str(), HERE, true), Ok(Destination::Control));
    }

    #[test]
    fn names_of_other_nodes_and_of_the_head_say_so() {
        let other = NodeId(0x0200_0000);
        let name = Destination::Data.server_name(other);
        let fault = Destination::parse(&name.to_str(), HERE, false);
        assert_eq!(fault, Err(NameFault::OtherNode { wanted: other.0, here: HERE.0 }));
        for name in [Destination::head_name(), Destination::Health.server_name(HERE)] {
            let fault = Destination::parse(&name.to_str(), HERE, false);
            assert_eq!(fault, Err(NameFault::NotTheHead(HERE.0)));
        }
    }

    #[test]
    fn there_is_one_way_to_write_a_name() {
        let node = "n-0123456789000000.sooner";
        for name in [
            "",
            "example.com",
            "n-0123456789000000.sooner",
            "node.n-0123456789000000.sooner.",
            "node.n-123456789000000.sooner",
            "node.n-0123456789000001.sooner",
            "node.n-+123456789000000.sooner",
            "Node.n-0123456789000000.sooner",
            "node.node.n-0123456789000000.sooner",
        ] {
            let fault = Destination::parse(name, HERE, true);
            assert_eq!(fault, Err(NameFault::Foreign(name.to_owned())), "{name}");
        }
        for whom in [
            "w-0123456789000007",
            "w-0123456789000007-f-",
            "w-0123456789000007-f-0123456789000007",
            "w-0123456789000000-f-0000000001000002",
            "w-0123456789000007-f-0000000001000000",
            "w-0000000002000007-f-0000000001000002",
            "w-0123456789ABCDEF-f-0000000001000002",
            "w-0123456789000007-f-0000000001000002-f-0000000001000003",
        ] {
            let name = format!("{whom}.{node}");
            assert_eq!(Destination::parse(&name, HERE, true), Err(NameFault::Foreign(name.clone())));
        }
    }
}
