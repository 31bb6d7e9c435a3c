//! Messages that wait for what was sent before them to others.
//!
//! A process answers the news of a death with what it holds of the dead one ([`goes_behind`]). That answer
//! goes to its node behind all that the process has sent before, also to others: whoever was told of a
//! reference must have heard it when the death is settled. To a process of the same node it is enough that
//! the bytes have left: they are in its socket before anything that the node says later. At another node they
//! must have arrived.
//!
//! What waits leaves in the order in which it came, also when a later message has nothing to wait for any
//! more. Where bytes are, it does not know: it is told of each debt whether it is paid.

use std::collections::VecDeque;

use sooner_wire::message::Message;

/// Whether a message to the node goes behind all that was sent before it.
#[must_use]
pub fn goes_behind(message: &Message) -> bool {
    matches!(message, Message::HeldFrom(_))
}

/// See the module. `T` is what waits, `D` what is owed: to whom, and how far.
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

    /// An item waits until all this is paid. [`Self::release`] gives it back, also if nothing is owed.
    pub fn push(&mut self, item: T, debts: Vec<D>) {
        self.waiting.push_back((item, debts));
    }

    /// Takes out what has nothing and nobody to wait for any more, in order. A debt that was paid once is
    /// paid: the same receiver may come back, and begin to count anew.
    pub fn release(&mut self, mut is_paid: impl FnMut(&mut D) -> bool) -> Vec<T> {
        for (_, debts) in &mut self.waiting {
            debts.retain_mut(|debt| !is_paid(debt));
        }
        let released = self.waiting.iter().take_while(|(_, debts)| debts.is_empty()).count();
        self.waiting.drain(..released).map(|(item, _)| item).collect()
    }

    /// What still waits, with what is owed.
    pub fn iter(&self) -> impl Iterator<Item = (&T, &[D])> {
        self.waiting.iter().map(|(item, debts)| (item, debts.as_slice()))
    }

    /// Nothing of it will be sent any more.
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
