//! Answers processes that wait for room to create a value. Which is due, and how long each waits, is not
//! decided here ([`sooner_protocol::node::objects::Creations`]).

use sooner_protocol::node::NodeActions;

use super::Service;
use crate::clock::now;

impl Service {
    /// Answers the requests that are due. True if there was one.
    pub(super) fn attend_creations(&mut self, out: &mut NodeActions) -> bool {
        let mut has_answered = false;
        let has_room = self.creations.take_room();
        while let Some(due) = self.creations.due(has_room, now()) {
            let lives = self.tokens.contains_key(&due.from);
            if lives && !self.try_to_allocate(due.from, &due.ask, due.is_over, out) {
                break;
            }
            self.creations.pop();
            has_answered = true;
        }
        has_answered
    }
}
