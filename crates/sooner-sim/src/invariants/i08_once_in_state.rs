//! I8: the state of an actor with checkpoints contains each call once, in the order of its caller, whatever
//! dies when. And no new call finds a state without a call that was answered before the new one was made.

use sooner_protocol::probes::hit;
use sooner_wire::message::Reply;
use sooner_wire::{ActorId, TaskId};

use crate::oracle::{Kind, State};
use crate::violation::fail;
use crate::world::{World, number_of};

impl World {
    /// A caller reads the reply to a call.
    pub fn record_answer(&mut self, reply: &Reply) {
        let Some(fact) = self.oracle.facts.get_mut(&reply.task) else { return };
        let Kind::Call(actor, _) = fact.kind else { return };
        if fact.kept != Some(true) || reply.not_run == Some(true) || fact.is_answered {
            return;
        }
        fact.is_answered = true;
        fact.answered_base = fact.seen.last().copied();
        self.oracle.answers.add(actor, reply.task);
    }

    /// A process restores an actor from a checkpoint.
    pub fn check_restored(&self, actor: ActorId, state: &State) {
        for call in state.calls() {
            if self.oracle.facts.get(&call).is_some_and(|fact| fact.is_given_up) {
                fail("I8", format!("{call:?} was given up, and is in the state of {actor:?}"));
            }
        }
    }

    /// A call of an actor with checkpoints begins: checks which calls the actor's state must contain, and
    /// must not. A call that `is_early` does not wait for the calls that are repeated.
    pub fn check_state(&mut self, number: u32, actor: ActorId, call: TaskId, is_early: bool) {
        let fact = &self.oracle.facts[&call];
        let (is_answered, asked_at, is_kept) = (fact.is_answered, fact.asked_at, fact.kept == Some(true));
        let process = self.processes.get_mut(number);
        let Some(instance) = &mut process.instance else { return };
        if is_kept && instance.state.contains(call) {
            fail("I8", format!("{call:?} takes effect twice in the state of {actor:?}"));
        }
        if is_kept && instance.state.latest_of(call.owner).is_some_and(|latest| latest > call.number) {
            fail("I8", format!("{call:?} takes effect after a later call of its caller"));
        }
        if is_answered {
            hit("an answered call was made again for its effect");
        }
        let mut found = Vec::new();
        for (caller, answered) in self.oracle.answers.of(actor) {
            // Of other callers' calls, the state need only contain those that were answered when this call
            // was made, and not while calls are repeated.
            let is_own = caller == call.owner;
            if !is_own && (is_answered || is_early) {
                continue;
            }
            let from = instance.checked.entry(caller).or_default();
            let is_before = |other: &crate::oracle::Answered| {
                if is_own { other.call.number < call.number } else { other.at <= asked_at }
            };
            for other in answered[*from..].iter().take_while(|other| is_before(other)) {
                *from += 1;
                found.push((other.call, instance.state.contains(other.call)));
            }
        }
        for (other, is_there) in found {
            let owner = self.process(number_of(other.owner));
            // One that has ended in order was asked whether it keeps calls.
            if !is_there && (owner.is_running() || owner.has_retired) {
                fail("I8", format!("{call:?} finds a state without {other:?}, which was answered before"));
            }
        }
        if let Some(instance) = self.process_mut(number).instance.as_mut().filter(|_| is_kept) {
            instance.state.add(call);
        }
    }
}
