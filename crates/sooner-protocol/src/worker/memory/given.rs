//! Blocks that a process no longer has once it has sent a message to its node.
//!
//! Until then a block whose value is being written, or was shown to no other process, is the process's own.
//! The process keeps a list of those; this module says what leaves the list, and never what enters it.

use sooner_wire::message::{Checkpoint, Message, Outcome, Return};

/// Calls `give` for each block that goes with a message to the node.
pub fn given_with(message: &Message, mut give: impl FnMut(u64)) {
    match message {
        Message::FreeBlocks(free) => free.offsets.iter().copied().for_each(give),
        Message::GiveBlock(block) => give(block.offset),
        // Blocks of another node were never this process's.
        Message::Relinquished(answer) if answer.node.is_some() => {}
        Message::Relinquished(answer) => answer.moved.iter().for_each(|block| give(block.offset)),
        Message::Checkpoint(Checkpoint { state: Return { outcome: Outcome::Stored(at), .. }, .. }) => {
            give(at.offset);
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
        given_with(&message.into(), |block| blocks.push(block));
        blocks
    }

    #[test]
    fn blocks_go_with_the_messages_that_give_them() {
        assert_eq!(given(FreeBlocks { offsets: vec![64, 128] }), [64, 128]);
        assert_eq!(given(GiveBlock { offset: 64, owner: WorkerId(2), object: None }), [64]);
        assert_eq!(given(Connect { worker: WorkerId(2) }), []);
    }
}
