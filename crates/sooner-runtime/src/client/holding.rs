//! The death of a process on another node: its line is read to the end before the core learns of the death.
//!
//! Which messages wait for that, and how long, is not decided here ([`sooner_protocol::session::news`]).

use sooner_protocol::session::HeldNews;
use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::Peer;
use sooner_wire::WorkerId;

use super::Client;
use super::receiving::Lead;
use super::shared::Shared;
use crate::transport::{ReadResult, Received};

/// The node's messages that wait for the end of a line.
pub(super) struct Held {
    news: HeldNews<Received>,
    /// The token of that line.
    token: u64,
}

impl Client {
    /// The node reports that a process of another node is dead: reads what has come from that process. True
    /// if its line has not ended yet; then this report, and all the node's messages behind it, wait.
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
        let news = HeldNews::new(worker, time);
        shared.outbox.remotes.record_due(news.until());
        lead.held = Some(Held { news, token });
        true
    }

    /// Reads what has come over the line. True at the end of the connection.
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

    /// The work of lines to other nodes beside reading and writing: timers, and the messages held back.
    pub(super) fn attend_remotes(&self, lead: &mut Lead, shared: &mut Shared, time: Instant) {
        for gone in shared.outbox.remotes.on_timer(time) {
            self.step_locked(shared, |core, out| core.on_message(Peer::Node, gone.into(), time, out));
        }
        self.drop_closed(lead, shared);
        while let Some(held) = lead.held.take() {
            let is_open = lead.inbound.contains_key(&held.token);
            if !held.news.is_over(is_open, time) {
                shared.outbox.remotes.record_due(held.news.until());
                lead.held = Some(held);
                break;
            }
            // Messages that come from the process from now on are ignored: the report of its death is final.
            shared.outbox.remotes.forget(held.news.worker(), time);
            self.drop_closed(lead, shared);
            for received in held.news.into_sent() {
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

    /// Reports to the core which lines are full, and which have room again. What the core then pushes to the
    /// latter may fill them anew.
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
    /// Holds back another message of the node.
    pub(super) fn hold_back(&mut self, received: Received) {
        if let Some(held) = &mut self.held {
            held.news.hold_back(received);
        }
    }
}
