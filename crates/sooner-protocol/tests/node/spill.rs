//! Two nodes of a cluster, each as [`Member`] carries it, and one control service: work of a driver at one of
//! them that runs at the other.

use std::collections::VecDeque;

use sooner_protocol::control::{Directory, DirectoryAction};
use sooner_protocol::node::uplink::Member;
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::message::{
    self, AboutNode, Connect, JobConfig, LeaseGranted, ResourceView, ReturnLease, Routed, ViewRow,
    WorkerDead, kind, node_state,
};
use sooner_wire::{LeaseId, NodeId};

use super::*;

const NODES: [NodeId; 2] = [NodeId(1 << 24), NodeId(2 << 24)];

struct Cluster {
    control: Directory,
    nodes: Vec<Member>,
    up: VecDeque<(usize, ToControl)>,
    down: VecDeque<(usize, ToNode)>,
    links: VecDeque<(usize, Routed)>,
    /// What each node wanted done, besides what is passed on.
    did: Vec<(usize, NodeAction)>,
}

impl Cluster {
    /// One CPU here, two there.
    fn new() -> Self {
        Self::with_first(kind::DAEMON)
    }

    /// The first node is one of a program.
    fn with_program() -> Self {
        Self::with_first(kind::DRIVER)
    }

    fn with_first(first: u8) -> Self {
        let counts = if first == kind::DRIVER { [0.0, 2.0] } else { [1.0, 2.0] };
        let mut control = Directory::default();
        let mut nodes = Vec::new();
        let mut rows = Vec::new();
        for (node, count) in NODES.into_iter().zip(counts) {
            let (total, free, labels) = (cpus(count), cpus(count), Vec::new());
            let kind = if node == NODES[0] { first } else { kind::DAEMON };
            let member = Member::new(cpus(count), node.0, 4);
            if kind == kind::DRIVER {
                control.on_program_joined(node);
                // It says what it has free, as every node does.
                control.on_report(NodeRow { node, total, free, labels });
                nodes.push(member.of_program());
            } else {
                control.on_node_joined(NodeRow { node, total, free, labels });
                nodes.push(member);
            }
            let about = AboutNode {
                kind,
                name: String::new(),
                address: None,
                host: String::new(),
                boot_id: String::new(),
                resources: cpus(count),
                labels: Vec::new(),
            };
            let row = message::NodeRow { node, about, state: node_state::ALIVE, is_slow: false };
            rows.push((row, ViewRow { node, version: 1, free: cpus(count), waiting: 0 }));
        }
        let view =
            ResourceView { rows: rows.iter().map(|(_, said)| said.clone()).collect(), must_ask: false };
        for node in &mut nodes {
            rows.iter().for_each(|(row, _)| node.on_node_known(row));
            node.on_view(&view);
        }
        let (up, down, links) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { control, nodes, up, down, links, did: Vec::new() }
    }

    fn driver(&mut self, at: usize) -> WorkerId {
        let driver = self.nodes[at].new_worker_id();
        self.with(at, |node, out| {
            node.on_connected(driver, 1, NOW);
            node.on_job(driver, Box::default(), out);
        });
        driver
    }

    fn with(&mut self, at: usize, work: impl FnOnce(&mut Member, &mut NodeActions)) {
        let mut out = NodeActions::new();
        work(&mut self.nodes[at], &mut out);
        self.nodes[at].after_events(NOW, &mut out);
        self.nodes[at].check();
        for action in out {
            match action {
                NodeAction::Control(word) => self.up.push_back((at, word)),
                NodeAction::Route { from, to, message } => {
                    self.links.push_back((at, Routed { from, to, message }));
                }
                other => self.did.push((at, other)),
            }
        }
    }

    fn send(&mut self, from: WorkerId, message: impl Into<Message>) {
        let message = message.into();
        let at = Self::at(from.node());
        self.with(at, |node, out| assert_eq!(node.on_message(from, message, NOW, out), None));
    }

    fn at(node: NodeId) -> usize {
        NODES.iter().position(|known| *known == node).expect("one of the two")
    }

    /// Until nothing is on its way. What was done since the last time.
    fn run(&mut self) -> Vec<(usize, NodeAction)> {
        loop {
            if let Some((from, word)) = self.up.pop_front() {
                let mut out = Vec::new();
                self.control.on_node(NODES[from], word, NOW, &mut out);
                self.control.after_events(NOW, &mut out);
                for action in out {
                    let DirectoryAction::Send(to, word) = action else { continue };
                    self.down.push_back((Self::at(to), *word));
                }
            } else if let Some((to, word)) = self.down.pop_front() {
                self.with(to, |node, out| node.on_control(word, NOW, out));
            } else if let Some((from, Routed { from: speaker, to, message })) = self.links.pop_front() {
                self.with(Self::at(to.node()), |node, out| {
                    let left = node.on_routed(NODES[from], speaker, to, *message, NOW, out);
                    assert_eq!(left, Ok(None));
                });
            } else {
                return std::mem::take(&mut self.did);
            }
        }
    }

    /// Starts the workers that a node wants.
    fn start(&mut self, did: &[(usize, NodeAction)]) -> Vec<WorkerId> {
        let mut started = Vec::new();
        for (at, action) in did {
            if let NodeAction::StartWorker(worker) = action {
                self.with(*at, |node, _| node.on_connected(*worker, 9, NOW));
                started.push(*worker);
            }
        }
        started
    }
}

fn grants(did: &[(usize, NodeAction)], to: WorkerId) -> Vec<LeaseGranted> {
    let granted = did.iter().filter_map(|(_, action)| match action {
        NodeAction::Send(client, message) if *client == to => match &**message {
            Message::LeaseGranted(granted) => Some(granted.clone()),
            _ => None,
        },
        _ => None,
    });
    granted.collect()
}

#[test]
fn the_first_task_of_a_job_on_another_node_waits_for_what_the_job_needs() {
    let mut cluster = Cluster::new();
    let driver = cluster.driver(0);
    cluster.run();
    cluster.send(driver, request(0, 3));
    let did = cluster.run();
    let begun = did.iter().position(|action| {
        matches!(action, (1, NodeAction::BeginJob(job, config)) if *job == driver && **config == JobConfig::default())
    });
    let first = did.iter().position(|action| matches!(action, (1, NodeAction::StartWorker(_))));
    assert!(begun.expect("the job is known there") < first.expect("it has work there"), "{did:?}");
    let started = cluster.start(&did);
    assert_eq!(started.len(), 3);
    assert!(started.iter().all(|worker| cluster.nodes[Cluster::at(worker.node())].job_of(*worker) == driver));
    let granted = grants(&cluster.run(), driver);
    assert_eq!(granted.len(), 3);
    let mut leases: Vec<LeaseId> = granted.iter().map(|granted| granted.lease).collect();
    leases.dedup();
    assert_eq!(leases.len(), 3, "numbers of its own node");
    // The client asks for a line as to anybody it has none to.
    let far = granted.iter().find(|granted| granted.worker.node() == NODES[1]).expect("two are there").worker;
    cluster.send(driver, Connect { worker: far });
    assert_eq!(cluster.run(), [(0, NodeAction::Dial { client: driver, to: far })]);
    for lease in leases {
        cluster.send(driver, ReturnLease { lease });
    }
    cluster.run();
    assert!(cluster.nodes.iter().all(|node| node.is_quiet()));
}

#[test]
fn a_task_of_another_job_is_asked_about_once_and_what_runs_there_may_lend_in_turn() {
    let mut cluster = Cluster::new();
    let driver = cluster.driver(0);
    cluster.send(driver, request(0, 3));
    let did = cluster.run();
    cluster.start(&did);
    let granted = grants(&cluster.run(), driver);
    let nested = granted.iter().find(|granted| granted.worker.node() == NODES[1]).expect("one is there");
    // A task there asks for a worker: there is room for it where its job came from, once the driver has given
    // way.
    let here = granted.iter().find(|granted| granted.worker.node() == NODES[0]).expect("one is here");
    cluster.send(driver, ReturnLease { lease: here.lease });
    cluster.send(nested.worker, request(0, 1));
    let view = ResourceView {
        rows: vec![ViewRow { node: NODES[0], version: 2, free: cpus(1.0), waiting: 0 }],
        must_ask: false,
    };
    cluster.with(1, |node, _| node.on_view(&view));
    let did = cluster.run();
    assert!(!did.iter().any(|(_, action)| matches!(action, NodeAction::BeginJob(..))), "{did:?}");
    let granted = grants(&did, nested.worker);
    assert_eq!(granted.len(), 1, "{did:?}");
    assert_eq!(granted[0].worker, here.worker, "it was idle");
    let gone = did.iter().any(|(_, action)| {
        matches!(action, NodeAction::Send(_, message) if matches!(**message, Message::WorkerDead(WorkerDead { .. })))
    });
    assert!(!gone, "{did:?}");
}

#[test]
fn nothing_runs_on_the_node_of_a_program_also_not_what_needs_nothing() {
    let mut cluster = Cluster::with_program();
    let driver = cluster.driver(0);
    cluster.send(driver, RequestLease { resources: ResourceSet::default(), ..request(0, 2) });
    let did = cluster.run();
    assert!(
        !did.iter().any(|(at, action)| *at == 0 && matches!(action, NodeAction::StartWorker(_))),
        "{did:?}"
    );
    cluster.start(&did);
    let granted = grants(&cluster.run(), driver);
    assert!(
        !granted.is_empty() && granted.iter().all(|granted| granted.worker.node() == NODES[1]),
        "{granted:?}"
    );
}
