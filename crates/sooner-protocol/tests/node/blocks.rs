//! Blocks whose contents are lost.

use sooner_protocol::node::NodeAction;
use sooner_wire::message::{BlocksLost, ForgetLost, FreeBlocks, LoseBlocks, Message, StillRead};
use sooner_wire::{BlockId, WorkerId};

use super::{DRIVER, NOW, after_events, connect, node, request, send};

#[test]
fn a_lost_block_is_used_again_when_every_process_has_forgotten_it() {
    let mut node = node(1.0);
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, WorkerId(101));
    node.on_allocated(BlockId(64), DRIVER);
    let told = |who, block| super::told(who, BlocksLost { blocks: vec![block] });
    let out = send(&mut node, DRIVER, LoseBlocks { blocks: vec![BlockId(64), BlockId(128)] });
    assert_eq!(out, [told(DRIVER, BlockId(64)), told(WorkerId(101), BlockId(64))], "nobody holds block 128");
    assert_eq!(send(&mut node, DRIVER, LoseBlocks { blocks: vec![BlockId(64)] }), [], "that is known");
    send(&mut node, DRIVER, request(0, 2));
    let late = node.new_worker_id();
    node.on_connected(late, 3, NOW);
    assert!(after_events(&mut node, NOW).contains(&told(late, BlockId(64))));
    let out = send(&mut node, DRIVER, FreeBlocks { places: vec![BlockId(64).into()] });
    let Some(NodeAction::Send(_, message)) = out.first() else { panic!("{out:?}") };
    let Message::ForgetLost(ForgetLost { round, .. }) = **message else { panic!("{message:?}") };
    let answer = StillRead { round, places: Vec::new(), lent: None };
    assert_eq!(send(&mut node, DRIVER, answer.clone()), []);
    assert_eq!(send(&mut node, late, answer.clone()), []);
    assert_eq!(send(&mut node, WorkerId(101), answer), [NodeAction::FreeBlock(BlockId(64))]);
}
