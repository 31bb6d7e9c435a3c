//! Every message over every route between nodes, and between nodes and the directory: what its row does not
//! have is refused by name, and what it has is read. The messages are the samples in the list of sooner-wire.

use sooner_protocol::node::{NodeActions, NodeCore};
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::wire::{CONTROL, is_for_directory};
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::message::{Message, Route, RouteError, Routed, RowOf};
use sooner_wire::{NodeId, ResourceSet, WorkerId};

const LIST: &str = include_str!("../../sooner-wire/golden/messages.txt");
const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn samples() -> Vec<Message> {
    let (mut kind, mut all) = (0, Vec::new());
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("    ") {
            Some(body) => all.push(Message::decode(kind, &bytes(body)).expect("a sample")),
            None => kind = line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number"),
        }
    }
    assert!(Message::ROWS.iter().all(|row| all.iter().any(|sample: &Message| sample.row() == *row)));
    all
}

/// That it is refused by its row if that lacks the route, and not otherwise.
fn assert_refused<T>(sample: &Message, route: Route, told: Result<T, RouteError>) {
    let RowOf { kind, name, routes, .. } = sample.row();
    let is_refused = matches!(told, Err(error) if error == RouteError::NoRoute { kind, name, route });
    assert_eq!(is_refused, !routes.contains(route), "{name}: {route}");
}

#[test]
fn between_nodes() {
    let node = NodeCore::new(ResourceSet::default(), HERE.0, 0);
    let (here, there) = (WorkerId(HERE.0), WorkerId(THERE.0));
    let (local, far) = (WorkerId(HERE.0 + 1), WorkerId(THERE.0 + 1));
    for sample in samples() {
        for (from, to, route) in [
            (far, here, Route::ProcessToOtherNode),
            (there, local, Route::NodeToOtherProcess),
            (there, here, Route::NodeToOtherNode),
        ] {
            assert_refused(&sample, route, node.check_routed(THERE, from, to, &sample));
        }
        for (from, to) in [(far, local), (far, far), (local, here), (here, there)] {
            let told = node.check_routed(THERE, from, to, &sample);
            assert!(matches!(told, Err(RouteError::Ends(_))), "{from:?} to {to:?}: {sample:?}");
        }
    }
}

#[test]
fn between_a_node_and_the_directory() {
    for sample in samples() {
        let routes = sample.row().routes;
        let own = [Route::NodeToDirectory, Route::DirectoryToNode];
        assert_eq!(is_for_directory(sample.kind()), own.iter().any(|route| routes.contains(*route)));
        assert_refused(&sample, Route::NodeToDirectory, ToControl::parse(sample.clone(), HERE));
        assert_refused(&sample, Route::DirectoryToNode, ToNode::parse(sample.clone(), HERE));
    }
}

#[test]
fn what_a_node_passes_on_between_a_process_and_the_directory() {
    let (node, process) = (WorkerId(HERE.0), WorkerId(HERE.0 + 1));
    let routed = |from, to, message| Message::from(Routed { from, to, message: Box::new(message) });
    for sample in samples() {
        for (own, up, down) in [
            (process, Route::ProcessToDirectory, Route::DirectoryToProcess),
            (node, Route::AskingNodeToDirectory, Route::DirectoryToAskingNode),
        ] {
            let asked = ToControl::parse(routed(own, CONTROL, sample.clone()), HERE);
            assert_refused(&sample, up, asked);
            let answered = ToNode::parse(routed(CONTROL, own, sample.clone()), HERE);
            assert_refused(&sample, down, answered);
        }
    }
}

/// The core gives back what is for the shell. A message that it has no arm for would go there, too, and be
/// dropped.
#[test]
fn what_the_core_of_a_node_does_not_handle_is_for_the_shell() {
    let for_shell = ["LogLines", "LinesTaken", "Inspect", "Inspected", "InspectEnd"];
    let (here, there) = (WorkerId(HERE.0), WorkerId(THERE.0));
    let (local, far) = (WorkerId(HERE.0 + 1), WorkerId(THERE.0 + 1));
    let mut handled = std::collections::BTreeSet::new();
    for sample in samples() {
        let name = sample.row().name;
        for (from, to) in [(far, here), (there, local), (there, here)] {
            let mut node = NodeCore::new(ResourceSet::default(), HERE.0, 0);
            let (message, out) = (sample.clone(), &mut NodeActions::new());
            match node.on_routed(from, to, message, Instant(1), out) {
                Ok(Some(_)) => assert!(for_shell.contains(&name), "{name}: no arm of on_routed"),
                Ok(None) => _ = handled.insert(name),
                // The sample is about other processes, or takes another route.
                Err(_) => {}
            }
        }
    }
    assert!(handled.len() >= 10, "{handled:?}");
}
