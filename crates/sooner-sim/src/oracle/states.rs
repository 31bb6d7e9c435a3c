//! States of actors with checkpoints: the calls that each state contains, and the calls whose replies callers
//! have read.

use std::collections::BTreeMap;

use sooner_wire::{ActorId, TaskId, WorkerId};

/// The calls that a state contains, by caller, in the caller's order.
#[derive(Debug, Clone, Default)]
pub struct State(BTreeMap<WorkerId, Vec<u64>>);

impl State {
    /// How many calls of a caller the state contains.
    #[must_use]
    pub fn count_of(&self, caller: WorkerId) -> usize {
        self.0.get(&caller).map_or(0, Vec::len)
    }

    /// The latest call of a caller that the state contains.
    #[must_use]
    pub fn latest_of(&self, caller: WorkerId) -> Option<u64> {
        self.0.get(&caller)?.last().copied()
    }

    /// The latest calls of all callers.
    pub fn latest(&self) -> impl Iterator<Item = TaskId> {
        self.0.iter().filter_map(|(owner, calls)| Some(TaskId { owner: *owner, number: *calls.last()? }))
    }

    /// Every call that the state contains.
    pub fn calls(&self) -> impl Iterator<Item = TaskId> {
        self.0
            .iter()
            .flat_map(|(owner, calls)| calls.iter().map(|number| TaskId { owner: *owner, number: *number }))
    }

    /// Whether the state contains a call.
    #[must_use]
    pub fn contains(&self, call: TaskId) -> bool {
        self.0.get(&call.owner).is_some_and(|calls| calls.binary_search(&call.number).is_ok())
    }

    /// Adds the next call of a caller.
    pub fn add(&mut self, call: TaskId) {
        self.0.entry(call.owner).or_default().push(call.number);
    }
}

/// A call whose reply the caller has read: from then on the actor's state must contain the call.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// The call.
    pub call: TaskId,
    /// The number of the answer, see [`Answers::now`].
    pub at: u64,
}

/// The answered calls that changed the state of an actor with checkpoints.
#[derive(Debug, Default)]
pub struct Answers {
    answers: BTreeMap<ActorId, BTreeMap<WorkerId, Vec<Answered>>>,
    now: u64,
}

impl Answers {
    /// Answers so far, over all actors.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// A caller has read the reply to a call.
    pub fn add(&mut self, actor: ActorId, call: TaskId) {
        self.now += 1;
        let answered = Answered { call, at: self.now };
        self.answers.entry(actor).or_default().entry(call.owner).or_default().push(answered);
    }

    /// The answered calls of an actor, by caller, in the order of the answers.
    pub fn of(&self, actor: ActorId) -> impl Iterator<Item = (WorkerId, &[Answered])> {
        self.answers
            .get(&actor)
            .into_iter()
            .flat_map(|callers| callers.iter().map(|(caller, answered)| (*caller, &answered[..])))
    }
}
