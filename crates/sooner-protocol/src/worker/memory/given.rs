//! Blocks that a process no longer has once it has sent a message to its node.
//!
//! Until then a block whose value is being written, or was shown to no other process, is the process's own.
//! The process keeps a list of those; this module says what leaves the list, and never what enters it.

use sooner_wire::BlockId;
use sooner_wire::message::{Checkpoint, Message, Outcome, Return};

/// Calls `give` for each block that goes with a message to the node.
pub fn given_with(message: &Message, mut give: impl FnMut(BlockId)) {
    match message {
        Message::FreeBlocks(free) => free.places.iter().filter_map(|place| place.block()).for_each(give),
        Message::GiveBlock(given) => give(given.block),
        // Blocks of another node were never this process's.
        Message::Relinquished(answer) if answer.node.is_some() => {}
        Message::Relinquished(answer) => answer.moved.iter().for_each(|one| give(one.block)),
        Message::Checkpoint(Checkpoint { state: Return { outcome: Outcome::Stored(at), .. }, .. }) => {
            at.place().block().into_iter().for_each(give);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::WorkerId;
    use sooner_wire::message::{Connect, FreeBlocks, GiveBlock};

    use super::*;

    fn given(message: impl Into<Message>) -> Vec<u64> {
        let mut blocks = Vec::new();
        given_with(&message.into(), |block| blocks.push(block.offset()));
        blocks
    }

    #[test]
    fn blocks_go_with_the_messages_that_give_them() {
        assert_eq!(given(FreeBlocks { places: vec![BlockId(64).into(), BlockId(128).into()] }), [64, 128]);
        assert_eq!(given(GiveBlock { block: BlockId(64), owner: WorkerId(2), object: None }), [64]);
        assert_eq!(given(Connect { worker: WorkerId(2) }), []);
    }
}
