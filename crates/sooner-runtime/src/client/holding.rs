//! The end of a process of another node, whose last words come by another way than the news of it.
//!
//! What a process said before its end counts: its replies, and whom it registered. So its line is read to its
//! end first; and all that the node says from there on waits for that, because much of it follows from the
//! death. Not for long: when the other machine is gone, nothing comes any more, not even an end.

use std::collections::VecDeque;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::Peer;
use sooner_wire::WorkerId;
use sooner_wire::limits::HOLD_NANOS;

use super::Client;
use super::receiving::Lead;
use super::shared::Shared;
use crate::transport::{ReadResult, Received};

/// See the module.
pub(super) struct Held {
    /// Whose line is read to its end, and under which token.
    worker: WorkerId,
    token: u64,
    until: Instant,
    /// What the node has said, the news of the end first.
    queue: VecDeque<Received>,
}

impl Client {
    /// The node says that a process of another node is gone: reads what has come from it. True if its end has
    /// not; then this word, and all behind it, waits.
    pub(super) fn must_hold(
        &self,
        lead: &mut Lead,
        shared: &mut Shared,
        worker: WorkerId,
        time: Instant,
    ) -> bool {
        let Some(token) = shared.outbox.remotes.open_token(worker) else { return false };
        if self.read_to_end(lead, shared, worker, token, time) {
            return false;
        }
        let until = time.plus(HOLD_NANOS);
        shared.outbox.remotes.note_due(until);
        lead.held = Some(Held { worker, token, until, queue: VecDeque::new() });
        true
    }

    /// Reads what has come. True at the end of the connection.
    fn read_to_end(
        &self,
        lead: &mut Lead,
        shared: &mut Shared,
        worker: WorkerId,
        token: u64,
        time: Instant,
    ) -> bool {
        loop {
            let Some(inbound) = lead.inbound.get_mut(&token) else { return true };
            let result = inbound.read();
            while let Some(Ok(Some(received))) =
                lead.inbound.get_mut(&token).map(|inbound| inbound.next_message())
            {
                self.receive_remote(shared, worker, token, received, time);
            }
            match result {
                ReadResult::Some => {}
                ReadResult::Nothing => return false,
                ReadResult::End => {
                    self.end_inbound(lead, shared, token, None, time);
                    return true;
                }
            }
        }
    }

    /// What lines to other nodes want beside what is read and written: timers, and what was held back.
    pub(super) fn attend_remotes(&self, lead: &mut Lead, shared: &mut Shared, time: Instant) {
        for gone in shared.outbox.remotes.on_timer(time) {
            self.step_locked(shared, |core, out| core.on_message(Peer::Node, gone.into(), time, out));
        }
        self.drop_closed(lead, shared);
        while let Some(held) = lead.held.take() {
            let is_open = lead.inbound.contains_key(&held.token);
            if is_open && time < held.until {
                shared.outbox.remotes.note_due(held.until);
                lead.held = Some(held);
                break;
            }
            // Nothing that comes from it now is heard: the word of its end is final.
            shared.outbox.remotes.forget(held.worker, time);
            self.drop_closed(lead, shared);
            for received in held.queue {
                if lead.held.is_some() {
                    lead.hold_back(received);
                } else {
                    self.on_received(lead, shared, Peer::Node, received, time);
                }
            }
        }
        shared.outbox.remotes.release();
        self.notify_fullness(shared, time);
    }

    /// Tells the core which lines are full, and which have room again: what it pushes there then may fill
    /// them anew.
    pub(super) fn notify_fullness(&self, shared: &mut Shared, time: Instant) {
        if !shared.outbox.remotes.has_fullness() {
            return;
        }
        for (worker, is_full) in shared.outbox.remotes.take_fullness() {
            self.step_locked(shared, |core, out| match is_full {
                true => core.on_line_full(worker),
                false => core.on_line_free(worker, time, out),
            });
        }
    }

    fn drop_closed(&self, lead: &mut Lead, shared: &mut Shared) {
        for token in shared.outbox.remotes.take_closed() {
            lead.inbound.remove(&token);
        }
    }
}

impl Lead {
    /// Another word of the node that waits.
    pub(super) fn hold_back(&mut self, received: Received) {
        if let Some(held) = &mut self.held {
            held.queue.push_back(received);
        }
    }
}
