//! Questions about state that are being worked on: who asked, and who has not answered yet.

use std::collections::{BTreeMap, BTreeSet};

use weft_protocol::time::Instant;
use weft_wire::WorkerId;
use weft_wire::limits::{INSPECTION_NANOS, INSPECTIONS_MAX};
use weft_wire::message::state::NodeReport;

/// Stands for the directory of the cluster among those who have not answered: no process has this id.
const DIRECTORY: WorkerId = WorkerId(0);

/// A question to all processes.
#[derive(Debug)]
pub struct Round {
    /// The connection of the tool that asked.
    pub tool: u64,
    /// Its number there.
    pub request: u64,
    /// What it asked.
    pub about: u32,
    /// Processes that have not answered, and the directory.
    open: BTreeSet<WorkerId>,
    /// What the directory of the cluster has answered.
    pub directory: Option<Box<NodeReport>>,
    deadline: Instant,
}

impl Round {
    /// Processes that have not answered.
    pub fn silent(&self) -> Vec<WorkerId> {
        self.open.iter().copied().filter(|process| *process != DIRECTORY).collect()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Rounds {
    next: u64,
    rounds: BTreeMap<u64, Round>,
}

impl Rounds {
    /// Begins a round; gives its number, or `None` when there are too many.
    pub fn begin(
        &mut self,
        tool: u64,
        request: u64,
        about: u32,
        open: BTreeSet<WorkerId>,
        now: Instant,
    ) -> Option<u64> {
        if self.rounds.len() >= INSPECTIONS_MAX {
            return None;
        }
        self.next += 1;
        let round =
            Round { tool, request, about, open, directory: None, deadline: now.plus(INSPECTION_NANOS) };
        self.rounds.insert(self.next, round);
        Some(self.next)
    }

    /// Whether a question of this tool is being worked on.
    pub fn is_asking(&self, tool: u64) -> bool {
        self.rounds.values().any(|round| round.tool == tool)
    }

    /// A process answers: the tool's connection and its number for the question.
    pub fn answered(&mut self, number: u64, worker: WorkerId) -> Option<(u64, u64)> {
        let round = self.rounds.get_mut(&number)?;
        round.open.remove(&worker).then_some((round.tool, round.request))
    }

    /// The directory of the cluster is asked, too.
    pub fn await_directory(&mut self, number: u64) {
        if let Some(round) = self.rounds.get_mut(&number) {
            round.open.insert(DIRECTORY);
        }
    }

    /// It answers.
    pub fn on_directory(&mut self, number: u64, report: Box<NodeReport>) {
        if let Some(round) = self.rounds.get_mut(&number) {
            round.open.remove(&DIRECTORY);
            round.directory = Some(report);
        }
    }

    /// A process is gone.
    pub fn forget_process(&mut self, worker: WorkerId) {
        for round in self.rounds.values_mut() {
            round.open.remove(&worker);
        }
    }

    /// A tool is gone.
    pub fn forget_tool(&mut self, tool: u64) {
        self.rounds.retain(|_, round| round.tool != tool);
    }

    /// Rounds that are over: everybody has answered, or the time is up.
    pub fn take_ended(&mut self, now: Instant) -> Vec<Round> {
        if self.rounds.is_empty() {
            return Vec::new();
        }
        let is_over = |round: &Round| round.open.is_empty() || round.deadline <= now;
        let over: Vec<u64> =
            self.rounds.iter().filter(|(_, r)| is_over(r)).map(|(number, _)| *number).collect();
        over.iter().filter_map(|number| self.rounds.remove(number)).collect()
    }

    /// When the next round's time is up.
    pub fn deadline(&self) -> Option<Instant> {
        self.rounds.values().map(|round| round.deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_with_the_last_answer_or_with_its_time() {
        let mut rounds = Rounds::default();
        let workers = || BTreeSet::from([WorkerId(1), WorkerId(2), WorkerId(3)]);
        let first = rounds.begin(7, 70, 0, workers(), Instant(0)).expect("few");
        assert_eq!(rounds.answered(first, WorkerId(1)), Some((7, 70)));
        assert_eq!(rounds.answered(first, WorkerId(1)), None, "only once");
        assert!(rounds.is_asking(7) && !rounds.is_asking(8));
        rounds.forget_process(WorkerId(2));
        assert!(rounds.take_ended(Instant(1)).is_empty());
        rounds.answered(first, WorkerId(3));
        assert_eq!(rounds.take_ended(Instant(1)).len(), 1);
        rounds.begin(7, 71, 0, workers(), Instant(0)).expect("few");
        rounds.begin(8, 80, 0, workers(), Instant(0)).expect("few");
        rounds.forget_tool(8);
        let late = rounds.take_ended(rounds.deadline().expect("one is left"));
        assert_eq!((late.len(), late[0].open.len()), (1, 3));
    }

    #[test]
    fn there_are_only_so_many_rounds() {
        let mut rounds = Rounds::default();
        let begun = (0..100).filter_map(|n| rounds.begin(1, n, 0, BTreeSet::new(), Instant(0))).count();
        assert_eq!(begun, INSPECTIONS_MAX);
    }
}
