//! Open questions about state: who asked, and which processes and nodes have not answered.

use std::collections::{BTreeMap, BTreeSet};

use sooner_protocol::time::Instant;
use sooner_wire::limits::{INSPECTION_NANOS, INSPECTION_NODES_NANOS, INSPECTIONS_MAX};
use sooner_wire::message::state::{FilePart, Inspect, NodeReport};
use sooner_wire::{NodeId, WorkerId};

/// Stands for the cluster's directory among the processes that have not answered. No process has this id.
const DIRECTORY: WorkerId = WorkerId(0);

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// The tool at this connection.
    Tool(u64),
    /// Another node, for a tool there.
    Node(NodeId),
}

/// A question to all processes, and to other nodes.
#[derive(Debug)]
pub struct Round {
    /// Who asked.
    pub asker: Requester,
    /// The asker's number for the question.
    pub request: u64,
    /// What the question is about.
    pub about: u32,
    /// Files that the asker wants.
    pub parts: Vec<FilePart>,
    /// When the question arrived.
    pub begun: Instant,
    /// Processes that have not answered, and the directory.
    open: BTreeSet<WorkerId>,
    /// Processes whose answers found no room.
    left_out: Vec<WorkerId>,
    /// Other nodes that have not answered.
    nodes: BTreeSet<NodeId>,
    /// Other nodes that will not answer.
    pub lost_nodes: Vec<NodeId>,
    /// The answer of the cluster's directory.
    pub directory: Option<Box<NodeReport>>,
    deadline: Instant,
}

impl Round {
    /// Processes that have not answered.
    pub fn silent(&self) -> Vec<WorkerId> {
        let open = self.open.iter().copied().filter(|process| *process != DIRECTORY);
        open.chain(self.left_out.iter().copied()).collect()
    }

    /// Nodes that have not answered.
    pub fn silent_nodes(&self) -> Vec<NodeId> {
        self.nodes.iter().chain(&self.lost_nodes).copied().collect()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Rounds {
    next: u64,
    rounds: BTreeMap<u64, Round>,
}

impl Rounds {
    /// Begins a round that these processes and nodes answer. Returns its number, or `None` when there are too
    /// many rounds.
    pub fn begin(
        &mut self,
        asker: Requester,
        question: &Inspect,
        open: BTreeSet<WorkerId>,
        nodes: BTreeSet<NodeId>,
        now: Instant,
    ) -> Option<u64> {
        if self.rounds.len() >= INSPECTIONS_MAX {
            return None;
        }
        self.next += 1;
        let patience = if nodes.is_empty() { INSPECTION_NANOS } else { INSPECTION_NODES_NANOS };
        let round = Round {
            asker,
            request: question.request,
            about: question.about,
            parts: question.parts.clone().unwrap_or_default(),
            begun: now,
            open,
            left_out: Vec::new(),
            nodes,
            lost_nodes: Vec::new(),
            directory: None,
            deadline: now.plus(patience),
        };
        self.rounds.insert(self.next, round);
        Some(self.next)
    }

    /// Whether a question of this tool is open.
    pub fn is_asking(&self, tool: u64) -> bool {
        self.rounds.values().any(|round| round.asker == Requester::Tool(tool))
    }

    /// A process has answered. Returns the asker, and its number for the question.
    pub fn answered(&mut self, number: u64, worker: WorkerId) -> Option<(Requester, u64)> {
        let round = self.rounds.get_mut(&number)?;
        round.open.remove(&worker).then_some((round.asker, round.request))
    }

    /// The answer of a process found no room.
    pub fn leave_out(&mut self, number: u64, worker: WorkerId) {
        if let Some(round) = self.rounds.get_mut(&number) {
            round.left_out.push(worker);
        }
    }

    /// A process of another node has answered. Returns the tool, and its number for the question.
    pub fn answered_away(&self, number: u64, node: NodeId) -> Option<(u64, u64)> {
        let round = self.rounds.get(&number).filter(|round| round.nodes.contains(&node))?;
        match round.asker {
            Requester::Tool(tool) => Some((tool, round.request)),
            Requester::Node(_) => None,
        }
    }

    /// A node and all its processes have answered. Returns the tool, its number for the question, and when
    /// that arrived.
    pub fn node_answered(&mut self, number: u64, node: NodeId) -> Option<(u64, u64, Instant)> {
        let (tool, request) = self.answered_away(number, node)?;
        let round = self.rounds.get_mut(&number)?;
        round.nodes.remove(&node);
        Some((tool, request, round.begun))
    }

    /// That node has no time for the question.
    pub fn refused(&mut self, number: u64, node: NodeId) {
        if let Some(round) = self.rounds.get_mut(&number)
            && round.nodes.remove(&node)
        {
            round.lost_nodes.push(node);
        }
    }

    /// Questions to this node, or its answers, may be lost.
    pub fn lose_node(&mut self, node: NodeId) {
        for round in self.rounds.values_mut() {
            if round.nodes.remove(&node) {
                round.lost_nodes.push(node);
            }
        }
    }

    /// These nodes are not asked, because there are too many.
    pub fn pass_over(&mut self, number: u64, nodes: Vec<NodeId>) {
        if let Some(round) = self.rounds.get_mut(&number) {
            round.lost_nodes.extend(nodes);
        }
    }

    /// The directory of the cluster is asked, too.
    pub fn await_directory(&mut self, number: u64) {
        if let Some(round) = self.rounds.get_mut(&number) {
            round.open.insert(DIRECTORY);
        }
    }

    /// The directory has answered.
    pub fn on_directory(&mut self, number: u64, report: Box<NodeReport>) {
        if let Some(round) = self.rounds.get_mut(&number) {
            round.open.remove(&DIRECTORY);
            round.directory = Some(report);
        }
    }

    /// A process has ended.
    pub fn forget_process(&mut self, worker: WorkerId) {
        for round in self.rounds.values_mut() {
            round.open.remove(&worker);
        }
    }

    /// A tool has disconnected.
    pub fn forget_tool(&mut self, tool: u64) {
        self.rounds.retain(|_, round| round.asker != Requester::Tool(tool));
    }

    /// Another node is dead: it awaits nothing, and is not awaited.
    pub fn forget_node(&mut self, node: NodeId) {
        self.rounds.retain(|_, round| round.asker != Requester::Node(node));
        for round in self.rounds.values_mut() {
            round.nodes.remove(&node);
        }
    }

    /// Removes the rounds that are over: all have answered, or the time is up.
    pub fn take_ended(&mut self, now: Instant) -> Vec<Round> {
        if self.rounds.is_empty() {
            return Vec::new();
        }
        let has_all = |round: &Round| round.open.is_empty() && round.nodes.is_empty();
        let is_over = |round: &Round| has_all(round) || round.deadline <= now;
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

    const FAR: NodeId = NodeId(1 << 24);
    const AWAY: NodeId = NodeId(2 << 24);

    fn question(request: u64) -> Inspect {
        Inspect { request, ..Inspect::default() }
    }

    fn workers() -> BTreeSet<WorkerId> {
        BTreeSet::from([WorkerId(1), WorkerId(2), WorkerId(3)])
    }

    fn begin(rounds: &mut Rounds, tool: u64, request: u64, nodes: &[NodeId]) -> u64 {
        let nodes = nodes.iter().copied().collect();
        rounds.begin(Requester::Tool(tool), &question(request), workers(), nodes, Instant(0)).expect("few")
    }

    #[test]
    fn a_round_ends_with_the_last_answer_or_with_its_time() {
        let mut rounds = Rounds::default();
        let first = begin(&mut rounds, 7, 70, &[]);
        assert_eq!(rounds.answered(first, WorkerId(1)), Some((Requester::Tool(7), 70)));
        assert_eq!(rounds.answered(first, WorkerId(1)), None, "only once");
        assert!(rounds.is_asking(7) && !rounds.is_asking(8));
        rounds.forget_process(WorkerId(2));
        assert!(rounds.take_ended(Instant(1)).is_empty());
        rounds.answered(first, WorkerId(3));
        assert_eq!(rounds.take_ended(Instant(1)).len(), 1);
        begin(&mut rounds, 7, 71, &[]);
        begin(&mut rounds, 8, 80, &[]);
        rounds.forget_tool(8);
        let late = rounds.take_ended(rounds.deadline().expect("one is left"));
        assert_eq!((late.len(), late[0].open.len()), (1, 3));
    }

    #[test]
    fn a_round_waits_for_other_nodes_and_names_those_that_are_silent() {
        let mut rounds = Rounds::default();
        let number = begin(&mut rounds, 7, 70, &[FAR, AWAY]);
        for worker in workers() {
            rounds.answered(number, worker);
        }
        assert!(rounds.take_ended(Instant(1)).is_empty());
        assert_eq!(rounds.answered_away(number, FAR), Some((7, 70)));
        assert_eq!(rounds.node_answered(number, FAR), Some((7, 70, Instant(0))));
        assert_eq!(rounds.answered_away(number, FAR), None, "it has said all");
        rounds.lose_node(AWAY);
        let over = rounds.take_ended(Instant(1));
        assert_eq!((over.len(), over[0].silent_nodes()), (1, vec![AWAY]));
        begin(&mut rounds, 7, 71, &[AWAY]);
        rounds.forget_node(AWAY);
        let over = rounds.take_ended(rounds.deadline().expect("one is left"));
        assert_eq!(over[0].silent_nodes(), [], "one that is gone is not silent");
    }

    #[test]
    fn there_are_only_so_many_rounds() {
        let mut rounds = Rounds::default();
        let mut begin = |n| {
            let asker = Requester::Node(FAR);
            rounds.begin(asker, &question(n), BTreeSet::new(), BTreeSet::new(), Instant(0))
        };
        assert_eq!((0..100).filter_map(&mut begin).count(), INSPECTIONS_MAX);
        rounds.forget_node(FAR);
        assert_eq!(rounds.deadline(), None);
    }
}
