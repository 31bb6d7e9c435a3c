//! Which blocks a node asks for when it has no room.

use sooner_protocol::node::{NodeAction, NodeActions, NodeCore, Room};
use sooner_wire::BlockId;
use sooner_wire::message::Message;

use super::{NOW, cpus};

#[test]
fn what_is_not_in_memory_is_not_asked_for() {
    let mut node = NodeCore::new(cpus(1.0), 1, 2);
    node.set_spills();
    let driver = node.new_worker_id();
    node.on_connected(driver, 1, NOW);
    for block in [64, 128, 192] {
        node.on_allocated(BlockId(block), driver);
    }
    // The oldest lies in the file behind the memory.
    let length_of = |block| if block == BlockId(64) { 0 } else { 100 };
    let mut out = NodeActions::new();
    assert!(node.relieve(Room::of(100), length_of, &mut out));
    let asked: Vec<BlockId> = out
        .iter()
        .filter_map(|action| match action {
            NodeAction::Send(to, message) if *to == driver => match &**message {
                Message::Relinquish(relinquish) => Some(relinquish.blocks.iter().map(|one| one.block)),
                _ => None,
            },
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(asked, [BlockId(128)]);
}
