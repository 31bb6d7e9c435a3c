//! W3: a task begins at most once more than it has retries. I2, for arguments: a task gets its own.

use rustc_hash::FxHashSet;
use sooner_protocol::probes::hit;
use sooner_protocol::worker::execution::Incoming;
use sooner_wire::TaskId;
use sooner_wire::message::{Message, Outcome};

use crate::oracle::Kind;
use crate::violation::fail;
use crate::world::{World, node_of};

impl World {
    /// A task begins in a process.
    pub fn check_begin(&mut self, number: u32, incoming: &Incoming, code: u64) {
        let task = incoming.push.spec.task;
        let Some(fact) = self.oracle.facts.get(&task) else {
            fail("I2", format!("{number} begins {task:?}, which nobody submitted"));
        };
        if fact.code != code {
            fail("I2", format!("{number} begins {task:?} with the arguments of another task"));
        }
        let is_creation = fact.kind == Kind::Creation;
        let executions = match u32::try_from(fact.retries) {
            // Values that were dropped for want of room are computed as often as they are wanted.
            Ok(retries) if !(self.oracle.recomputes && retries > 0) => retries + 1,
            Ok(_) | Err(_) => u32::MAX,
        };
        // Calls of an actor with checkpoints are repeated: those that change its state for their effect,
        // others for their replies.
        if fact.begun >= executions && !is_creation && fact.kept.is_none() {
            fail(
                "W3",
                format!("{task:?} begins for the {}th time with {} retries", fact.begun + 1, fact.retries),
            );
        }
        if fact.begun > 0 && !is_creation {
            hit("a task was executed again");
        }
        if fact.begun >= 3 && !is_creation {
            hit("a task was executed four times");
        }
    }

    /// A process reads a message: updates the facts of the oracle and of the two processes.
    pub fn observe(&mut self, from: u32, to: u32, message: &Message) {
        match message {
            Message::Reply(reply) => {
                self.record_answer(reply);
                self.process_mut(from).assigned.remove(&reply.task);
                if !self.process(from).is_running() {
                    hit("a reply came from a worker that was gone");
                }
            }
            Message::TasksReturned(returned) => {
                for task in &returned.tasks {
                    self.process_mut(from).assigned.remove(task);
                    self.process_mut(from).given_back.remove(task);
                }
                hit("tasks came back unexecuted");
            }
            Message::Push(push) if push.spec.kind() == sooner_wire::message::TaskKind::Creation => {
                self.process_mut(to).assigned.insert(push.spec.task);
            }
            Message::Push(push) => {
                let is_far = node_of(from) != node_of(to);
                let may_wait = |outcome: &Outcome| match outcome {
                    Outcome::Remote(_) => true,
                    Outcome::Stored(_) => is_far,
                    Outcome::Inline(_) | Outcome::Failed(_) => false,
                };
                if push.dependencies.iter().any(|dependency| may_wait(&dependency.outcome)) {
                    self.process_mut(to).passed.insert(push.spec.task);
                }
            }
            _ => {}
        }
    }

    /// The node places an actor on this process, or tells the process so: between the two, the process may
    /// wait for the actor's state.
    pub fn record_placed(&mut self, number: u32, actor: TaskId) {
        let process = self.process_mut(number);
        let is_news = process.hosts.replace(actor) != Some(actor);
        if is_news && !process.is_running() {
            hit("an actor was placed on a worker that had just ended");
        }
    }

    /// A task was sent to a process that has ended. If the progress cell names this task from an earlier
    /// push, then for its owner all tasks sent since may have begun.
    pub fn record_late_push(&mut self, number: u32, task: TaskId) {
        let process = self.process_mut(number);
        let unclear = if process.last_started.is_some_and(|last| last.task == task) {
            std::mem::take(&mut process.unbegun)
        } else {
            FxHashSet::default()
        };
        for task in unclear.into_iter().chain([task]) {
            if let Some(fact) = self.oracle.facts.get_mut(&task) {
                fact.crashed += 1;
            }
        }
    }

    /// A process ends.
    pub fn record_death(&mut self, number: u32) {
        self.record_end(number);
        let process = self.process_mut(number);
        let assigned = std::mem::take(&mut process.assigned);
        let begun = std::mem::take(&mut process.begun);
        // Until their owner reads it, given-back tasks count as begun if they came before the last one begun.
        let given_back = std::mem::take(&mut process.given_back);
        // So does a task that waited for an argument; if it began last, any other task may have begun.
        let passed = std::mem::take(&mut process.passed);
        process.mark_end();
        // If a task ended here and was sent here again, the progress cell does not tell which of its
        // executions it means.
        let process = self.process(number);
        let is_running = |task: &TaskId| process.frames.iter().any(|frame| frame.task == Some(*task));
        let is_unclear = process
            .last_started
            .map(|last| last.task)
            .is_some_and(|last| assigned.contains(&last) && (!is_running(&last) || passed.contains(&last)));
        let mut unbegun = FxHashSet::default();
        for task in assigned {
            let Some(fact) = self.oracle.facts.get_mut(&task) else { continue };
            let counts = begun.contains(&task) || given_back.contains(&task) || passed.contains(&task);
            if is_unclear || counts {
                fact.crashed += 1;
            } else {
                unbegun.insert(task);
            }
        }
        self.process_mut(number).unbegun = unbegun;
        let process = self.process(number);
        if let Some(actor) = process.hosts
            && process.last_started.is_some_and(|last| last.in_actor)
            && let Some(facts) = self.oracle.actors.get_mut(&actor)
        {
            facts.deaths += 1;
        }
    }
}
