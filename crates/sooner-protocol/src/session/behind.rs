//! Messages that wait for earlier messages to other receivers.
//!
//! A process that learns of a death answers with what it holds of the dead process ([`goes_behind`]). The
//! answer leaves behind everything that the process has sent before, even to others: a receiver of a
//! reference must have it when the death is settled. On the same node it is enough that the bytes have left:
//! they are in its socket before anything that the node sends later. At another node they must have arrived.
//!
//! Waiting messages leave in the order in which they came, even if a later one has nothing to wait for any
//! more. It never looks at bytes: the caller decides for each debt whether it is paid.

use std::collections::VecDeque;

use sooner_wire::message::Message;

/// Whether a message to the node must wait for everything that was sent before it.
#[must_use]
pub fn goes_behind(message: &Message) -> bool {
    matches!(message, Message::HeldFrom(_))
}

/// See the module. `T` is the waiting message, `D` a debt: a receiver, and up to which position.
#[derive(Debug)]
pub struct Behind<T, D> {
    waiting: VecDeque<(T, Vec<D>)>,
}

impl<T, D> Default for Behind<T, D> {
    fn default() -> Self {
        Self { waiting: VecDeque::new() }
    }
}

impl<T, D> Behind<T, D> {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// `item` waits until all `debts` are paid. [`Self::release`] returns it, even if there are none.
    pub fn push(&mut self, item: T, debts: Vec<D>) {
        self.waiting.push_back((item, debts));
    }

    /// Takes out the items at the front whose debts are paid. A debt that was paid once stays paid: its
    /// receiver may come back and count from zero.
    pub fn release(&mut self, mut is_paid: impl FnMut(&mut D) -> bool) -> Vec<T> {
        for (_, debts) in &mut self.waiting {
            debts.retain_mut(|debt| !is_paid(debt));
        }
        let released = self.waiting.iter().take_while(|(_, debts)| debts.is_empty()).count();
        self.waiting.drain(..released).map(|(item, _)| item).collect()
    }

    /// The waiting items with their unpaid debts.
    pub fn iter(&self) -> impl Iterator<Item = (&T, &[D])> {
        self.waiting.iter().map(|(item, debts)| (item, debts.as_slice()))
    }

    /// Drops all items: none of them will be sent.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::WorkerId;
    use sooner_wire::message::{Connect, HeldFrom};

    type Positions = Behind<&'static str, (u32, u64)>;

    /// Receivers, and how far they are.
    fn at(positions: &[(u32, u64)]) -> impl FnMut(&mut (u32, u64)) -> bool {
        move |(to, position)| positions.iter().any(|(receiver, at)| receiver == to && at >= position)
    }

    #[test]
    fn a_message_waits_until_all_that_it_goes_behind_is_there() {
        let mut behind = Positions::default();
        behind.push("answer", vec![(1, 10), (2, 5)]);
        assert!(behind.release(at(&[(1, 9), (2, 5)])).is_empty());
        assert_eq!(behind.iter().collect::<Vec<_>>(), [(&"answer", &[(1, 10)][..])]);
        assert_eq!(behind.release(at(&[(1, 10)])), ["answer"], "what was paid once is paid");
        assert!(behind.is_empty());
    }

    #[test]
    fn what_owes_nothing_goes_at_once_but_not_past_an_earlier_one() {
        let mut behind = Positions::default();
        behind.push("first", Vec::new());
        behind.push("second", vec![(1, 1)]);
        behind.push("third", Vec::new());
        assert_eq!(behind.release(at(&[])), ["first"]);
        assert_eq!(behind.release(at(&[(1, 1)])), ["second", "third"]);
    }

    #[test]
    fn a_receiver_that_comes_back_is_owed_nothing_from_before() {
        let mut behind = Positions::default();
        behind.push("first", vec![(1, 1)]);
        behind.push("second", vec![(2, 100)]);
        // The second receiver is gone: whatever was said to it is paid.
        assert!(behind.release(|(to, _)| *to == 2).is_empty());
        assert_eq!(behind.release(at(&[(1, 1), (2, 0)])), ["first", "second"]);
    }

    #[test]
    fn a_debt_may_be_dated_when_its_line_is_there() {
        let mut behind: Behind<&str, (u32, Option<u64>)> = Behind::default();
        behind.push("answer", vec![(1, None)]);
        let mut position = None;
        let mut ask = |has_come: bool, line: Option<u64>| {
            behind.release(|(_, at)| {
                *at = at.or(line);
                position = *at;
                at.is_some() && has_come
            })
        };
        assert!(ask(true, None).is_empty());
        assert!(ask(false, Some(7)).is_empty());
        assert_eq!(ask(true, Some(9)), ["answer"]);
        assert_eq!(position, Some(7), "it was dated when the line was there first");
    }

    #[test]
    fn what_is_held_of_a_dead_process_goes_behind_and_nothing_else() {
        assert!(goes_behind(&HeldFrom { gone: WorkerId(1), held: Vec::new() }.into()));
        assert!(!goes_behind(&Connect { worker: WorkerId(1) }.into()));
    }
}
