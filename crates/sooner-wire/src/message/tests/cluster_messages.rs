//! Samples of the messages of nodes and the control service, whose bytes stay what they are.

use super::*;
use crate::{GroupId, NodeId};

const NODE: NodeId = NodeId(1 << 24);

fn about() -> AboutNode {
    AboutNode {
        kind: kind::DAEMON,
        name: "a".into(),
        address: Some("b:1".into()),
        host: "h".into(),
        boot_id: "i".into(),
        resources: ResourceSet::from_amounts([("CPU".to_owned(), 2.0)]),
        labels: vec![("k".into(), "v".into())],
    }
}

pub(super) fn messages() -> Vec<(Message, &'static str)> {
    let cpus = ResourceSet::from_amounts([("CPU".to_owned(), 0.5)]);
    let row = NodeRow { node: NODE, about: about(), state: node_state::DRAINING, is_slow: true };
    let register =
        Register { about: Box::new(about()), version: "0.1".into(), python: "3.11".into(), rejoins: Some(7) };
    let settings = Settings { heartbeat: 500, health_timeout: 5_000 };
    let demand = vec![ShapeDemand { resources: cpus.clone(), count: 3 }];
    let group = GroupId { owner: WorkerId(7), number: 9 };
    let view = ViewRow { node: NODE, version: 4, free: cpus.clone(), waiting: 2 };
    let candidate = Candidate { node: NODE, is_free: true };
    vec![
        (
            register.into(),
            "2600000064000000848700616163623a3161686169818263435055194e208182616b617663302e3164332e313107",
        ),
        (
            Registered { cluster: 7, nodes: vec![row.clone()], settings }.into(),
            "2d00000065000000830781841a010000008700616163623a3161686169818263435055194e208182616b617601f5821901f4191388",
        ),
        (
            NodesChanged { rows: vec![row] }.into(),
            "25000000660000008181841a010000008700616163623a3161686169818263435055194e208182616b617601f5",
        ),
        (NodeDead { node: NODE, reason: "r".into() }.into(), "0800000067000000821a010000006172"),
        (Heartbeat { number: 1, node_lag: 2, data_lag: 3 }.into(), "040000006800000083010203"),
        (Fenced { reason: "r".into() }.into(), "0300000069000000816172"),
        (
            ResourceReport { version: 4, free: cpus.clone(), demand: demand.clone(), bundles: None }.into(),
            "170000006a0000008304818263435055191388818281826343505519138803",
        ),
        (
            ResourceReport {
                version: 4,
                free: cpus.clone(),
                demand,
                bundles: Some(vec![BundleFree { group, bundle: 1, free: cpus.clone() }]),
            }
            .into(),
            "260000006a0000008404818263435055191388818281826343505519138803818382070901818263435055191388",
        ),
        (
            ResourceView { rows: vec![view], must_ask: false }.into(),
            "140000006b0000008281841a010000000481826343505519138802f4",
        ),
        (
            FindNodes { request: 9, resources: cpus, count: 2, strategy: None, prefer: None }.into(),
            "0c0000006c000000830981826343505519138802",
        ),
        (
            Candidates { request: 9, nodes: vec![candidate], rows: None }.into(),
            "0a0000006d000000820981821a01000000f5",
        ),
        (Suspect { node: NODE, is_given_up: None }.into(), "0600000071000000811a01000000"),
        (Drain { node: NODE, nanos: 5 }.into(), "0700000072000000821a0100000005"),
        (Drained { node: NODE }.into(), "0600000073000000811a01000000"),
    ]
}

/// If one of these changes, nodes of another version cannot join: add fields at the end.
#[test]
fn the_encoding_stays_what_it_is() {
    for (message, expected) in messages() {
        let mut bytes = Vec::new();
        message.append(&mut bytes, 0);
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, expected, "{message:?}");
    }
}
