//! Settling deaths: who holds what of a process that is gone (`docs/adr/0015-settling-a-death.md`).
//!
//! Each process answers the news of a death with what it has of the dead one; when nobody owes an answer any more, all are
//! told, for all deaths at once: one who died meanwhile may have handed on what it had of an earlier one.
//!
//! It counts nothing itself: owners do.

use weft_wire::WorkerId;
use weft_wire::message::{Held, HeldFrom, Settled, WorkerGone};

use super::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The dead, and who has not answered.
    open: Map<WorkerId, Set<WorkerId>>,
    held: Vec<Held>,
}

impl Settling {
    fn on_gone(&mut self, gone: WorkerId, clients: impl Iterator<Item = WorkerId>) {
        if !self.open.is_empty() {
            mark!("a process died while the death of another one was being settled");
        }
        for open in self.open.values_mut() {
            open.swap_remove(&gone);
        }
        self.held.retain(|held| held.borrower != gone && held.object.owner() != gone);
        self.open.insert(gone, clients.collect());
    }

    fn on_answer(&mut self, from: WorkerId, answer: HeldFrom) {
        let Some(open) = self.open.get_mut(&answer.gone) else { return };
        if open.swap_remove(&from) {
            let clients_answer = answer.held.into_iter().map(|held| Held { borrower: from, ..held });
            self.held.extend(clients_answer);
        }
    }

    /// The dead and what is held of them, once nobody owes an answer.
    fn take(&mut self) -> Option<(Vec<WorkerId>, Vec<Held>)> {
        let is_done = !self.open.is_empty() && self.open.values().all(Set::is_empty);
        is_done.then(|| {
            let gone = std::mem::take(&mut self.open).into_keys().collect();
            (gone, std::mem::take(&mut self.held))
        })
    }
}

impl NodeCore {
    /// A process of another node is gone.
    pub(super) fn on_gone_elsewhere(&mut self, gone: WorkerGone, out: &mut NodeActions) {
        let process = gone.worker;
        self.departed.note(&gone);
        self.tell_all(&gone.into(), out);
        self.forget_client(process);
        self.settle_end(process, out);
    }

    /// The control service says what is settled.
    pub(super) fn on_settled(&mut self, settled: Settled, out: &mut NodeActions) {
        self.tell_all_settled(&settled.gone, settled.held, out);
    }

    /// A process is gone, and the others are told.
    pub(super) fn settle_death(&mut self, gone: WorkerId, out: &mut NodeActions) {
        self.settling.on_gone(gone, self.clients.keys().copied());
        self.tell_settled(out);
    }

    pub(super) fn on_held_from(&mut self, from: WorkerId, answer: HeldFrom, out: &mut NodeActions) {
        self.settling.on_answer(from, answer);
        self.tell_settled(out);
    }

    /// A client that came after a death hears of it by asking for the dead process.
    pub(super) fn tell_if_settled(&self, client: WorkerId, gone: WorkerId, out: &mut NodeActions) {
        if !self.settling.open.contains_key(&gone) {
            let settled = Settled { gone: vec![gone], held: Vec::new() };
            out.push(NodeAction::Send(client, Box::new(settled.into())));
        }
    }

    fn tell_settled(&mut self, out: &mut NodeActions) {
        let Some((gone, held)) = self.settling.take() else { return };
        self.tell_all_settled(&gone, held, out);
    }

    fn tell_all_settled(&self, gone: &[WorkerId], held: Vec<Held>, out: &mut NodeActions) {
        let mut by_owner: Map<WorkerId, Vec<Held>> = Map::default();
        for held in held {
            by_owner.entry(held.object.owner()).or_default().push(held);
        }
        for client in self.clients.keys() {
            let held = by_owner.swap_remove(client).unwrap_or_default();
            let settled = Settled { gone: gone.to_vec(), held };
            out.push(NodeAction::Send(*client, Box::new(settled.into())));
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::TaskId;

    use super::*;

    const OWNER: WorkerId = WorkerId(1);
    const GIVER: WorkerId = WorkerId(2);
    const READER: WorkerId = WorkerId(3);

    fn held(borrower: WorkerId) -> Held {
        Held { object: TaskId { owner: OWNER, number: 1 }.object(0), borrower, count: 1 }
    }

    #[test]
    fn a_death_is_settled_when_all_have_answered() {
        let mut settling = Settling::default();
        settling.on_gone(GIVER, [OWNER, READER].into_iter());
        settling.on_answer(READER, HeldFrom { gone: GIVER, held: vec![held(READER)] });
        assert_eq!(settling.take(), None);
        settling.on_answer(OWNER, HeldFrom { gone: GIVER, held: Vec::new() });
        assert_eq!(settling.take(), Some((vec![GIVER], vec![held(READER)])));
        assert_eq!(settling.take(), None);
    }

    #[test]
    fn deaths_are_settled_together() {
        // The reader has what the giver handed to it; what it handed on, a third process says.
        let mut settling = Settling::default();
        let third = WorkerId(4);
        settling.on_gone(GIVER, [OWNER, READER, third].into_iter());
        settling.on_answer(READER, HeldFrom { gone: GIVER, held: vec![held(READER)] });
        for from in [OWNER, third] {
            settling.on_answer(from, HeldFrom { gone: GIVER, held: Vec::new() });
        }
        settling.on_gone(READER, [OWNER, third].into_iter());
        assert_eq!(settling.take(), None);
        settling.on_answer(OWNER, HeldFrom { gone: READER, held: Vec::new() });
        settling.on_answer(third, HeldFrom { gone: READER, held: vec![held(third)] });
        assert_eq!(settling.take(), Some((vec![GIVER, READER], vec![held(third)])));
    }
}
