//! Checks a node's registration: every refusal has a reason that its user can act on.

use std::net::SocketAddr;

use sooner_wire::limits::NODE_TEXT_BYTES_MAX;
use sooner_wire::message::{AboutNode, Fenced, Message, NodeRow, Refused, Register, kind, node_state};
use sooner_wire::names::{NameError, check_labels, check_node_name, check_resources};
use sooner_wire::record::NodeRecord;
use sooner_wire::strategy::NODE_LABEL;
use sooner_wire::{NodeId, ResourceSet, WorkerId};

/// Why a node may not join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The node was declared dead, or belongs to another cluster: it must end.
    Fenced(String),
    /// Something in it is invalid or taken: the node may come again with something else.
    Refused(String),
}

impl Refusal {
    /// The message for the node.
    #[must_use]
    pub fn into_message(self) -> Message {
        match self {
            Self::Fenced(reason) => Fenced { reason }.into(),
            Self::Refused(reason) => Refused { reason }.into(),
        }
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Checks a node's registration; `python` is the version that this cluster runs.
pub(in crate::control) fn read(node: NodeId, register: Register, python: &str) -> Result<NodeRow, Refusal> {
    let mut about = *register.about;
    if WorkerId(node.0).node() != node || node == NodeId(0) {
        return refuse(format!("{:x} is not the id of a node: the last six digits of one are zero", node.0));
    }
    let address = about.address.as_deref().unwrap_or_default();
    let texts = [&about.host, &about.boot_id, &register.version, &register.python];
    let longest = texts.iter().map(|text| text.len()).chain([address.len()]).max().unwrap_or_default();
    if longest > NODE_TEXT_BYTES_MAX {
        return refuse(format!(
            "a text of {longest} bytes is too long: at most {NODE_TEXT_BYTES_MAX} are allowed"
        ));
    }
    if register.python != python {
        return refuse(format!(
            "this node has Python {}, the cluster has {python}: code can only be exchanged between equal minor versions; install Python {python} with sooner here, or start a cluster with Python {}",
            register.python, register.python
        ));
    }
    check_node_name(&about.name)?;
    check_labels(&about.labels)?;
    check_resources(&about.resources)?;
    check_address(about.kind, about.address.as_deref())?;
    about.labels.push((NODE_LABEL.to_owned(), format!("{:016x}", node.0)));
    about.labels.sort();
    Ok(NodeRow { node, about, state: node_state::ALIVE, is_slow: false })
}

fn check_address(is: u8, address: Option<&str>) -> Result<(), Refusal> {
    match (is, address) {
        (kind::DRIVER, None) => Ok(()),
        (kind::DRIVER, Some(address)) => {
            refuse(format!("a driver has no address, and this one says {address:?}: is it another sooner?"))
        }
        (kind::DAEMON, None) => {
            refuse("a daemon has an address that others can dial, and none was given".to_owned())
        }
        (kind::DAEMON, Some(address)) => match address.parse::<SocketAddr>() {
            Ok(parsed) if parsed.port() != 0 && !parsed.ip().is_unspecified() => Ok(()),
            Ok(_) | Err(_) => refuse(format!(
                "{address:?} is no address that others can dial: expected one like \"10.0.0.1:6380\"; say with --host which of its addresses this machine shall listen on"
            )),
        },
        (other, _) => {
            refuse(format!("nodes of kind {other} are not known: this sooner is older than that of the node"))
        }
    }
}

fn refuse<T>(reason: String) -> Result<T, Refusal> {
    Err(Refusal::Refused(reason))
}

/// The record of a node.
pub(in crate::control) fn record(row: &NodeRow) -> NodeRecord {
    let about = &row.about;
    NodeRecord { node: row.node, kind: about.kind, name: about.name.clone(), address: about.address.clone() }
}

/// A node of which only the record is known, until it comes back.
pub(in crate::control) fn from_record(record: NodeRecord) -> NodeRow {
    let about = AboutNode {
        kind: record.kind,
        name: record.name,
        address: record.address,
        host: String::new(),
        boot_id: String::new(),
        resources: ResourceSet::default(),
        labels: Vec::new(),
    };
    NodeRow { node: record.node, about, state: node_state::ALIVE, is_slow: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register() -> Register {
        let about = AboutNode {
            kind: kind::DAEMON,
            name: "a".into(),
            address: Some("10.0.0.1:6380".into()),
            host: "host".into(),
            boot_id: "boot".into(),
            resources: ResourceSet::from_amounts([("CPU".to_owned(), 2.0)]),
            labels: vec![("zone".into(), "a".into())],
        };
        Register { about: Box::new(about), version: "0.1.0".into(), python: "3.11".into(), rejoins: None }
    }

    fn reason(change: impl FnOnce(&mut Register)) -> String {
        let mut register = register();
        change(&mut register);
        match read(NodeId(1 << 24), register, "3.11") {
            Err(Refusal::Refused(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_right_becomes_a_row() {
        let row = read(NodeId(1 << 24), register(), "3.11").expect("right");
        assert_eq!(from_record(record(&row)).about.address, row.about.address);
        let id = (NODE_LABEL.to_owned(), "0000000001000000".to_owned());
        assert_eq!(row.about.labels, [id, ("zone".into(), "a".into())]);
        let mut driver = register();
        (driver.about.kind, driver.about.address) = (kind::DRIVER, None);
        assert!(read(NodeId(1 << 24), driver, "3.11").is_ok());
    }

    #[test]
    fn what_is_wrong_has_a_reason_that_says_what_to_do() {
        assert!(reason(|r| r.python = "3.12".into()).contains("install Python 3.11 with sooner here"));
        assert!(reason(|r| r.about.name = "a b".into()).contains("the node name \"a b\" is not valid: use"));
        assert!(reason(|r| r.about.labels[0].0 = "sooner.io/x".into()).contains("reserved"));
        assert!(reason(|r| r.about.labels[0].0 = NODE_LABEL.into()).contains("reserved"));
        assert!(reason(|r| r.about.host = "h".repeat(257)).contains("at most 256"));
        assert!(reason(|r| r.about.resources.add_one("a\n", 1)).contains("the resource name \"a\\n\""));
        assert!(reason(|r| r.about.address = None).contains("an address that others can dial"));
        assert!(reason(|r| r.about.kind = kind::DRIVER).contains("a driver has no address"));
        assert!(reason(|r| r.about.kind = 9).contains("older than that of the node"));
        let of_a_worker = read(NodeId((1 << 24) + 1), register(), "3.11").expect_err("no node");
        assert!(
            matches!(of_a_worker, Refusal::Refused(reason) if reason.contains("is not the id of a node"))
        );
        for address in ["", "a:1", "10.0.0.1", "10.0.0.1:0", "0.0.0.0:6380", "[::]:6380", "10.0.0.1:65536"] {
            assert!(reason(|r| r.about.address = Some(address.into())).contains("--host"), "{address}");
        }
    }
}
