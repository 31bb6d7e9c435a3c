//! Which state machine's batch each ticket stands for. Each machine numbers its batches by itself; the
//! writing thread serves them all.

use std::collections::HashMap;

use sooner_protocol::control::Batch;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    drawn: u64,
    open: HashMap<u64, Batch>,
}

impl Tickets {
    /// A number that no other batch has.
    pub(super) fn draw(&mut self, batch: Batch) -> u64 {
        self.drawn += 1;
        self.open.insert(self.drawn, batch);
        self.drawn
    }

    /// The batch of a ticket, once.
    pub(super) fn take(&mut self, ticket: u64) -> Option<Batch> {
        self.open.remove(&ticket)
    }
}

#[cfg(test)]
mod tests {
    use sooner_protocol::control::persist::BatchId;

    use super::*;

    #[test]
    fn batches_with_the_same_number_are_told_apart() {
        let mut tickets = Tickets::default();
        let (nodes, directory) = (Batch::OfNodes(BatchId(1)), Batch::OfDirectory(BatchId(1)));
        let (first, second) = (tickets.draw(nodes), tickets.draw(directory));
        assert_ne!(first, second);
        assert_eq!(tickets.take(second), Some(directory));
        assert_eq!((tickets.take(second), tickets.take(first)), (None, Some(nodes)));
    }
}
