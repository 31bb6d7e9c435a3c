//! What is decided before a run: the size of the cluster, the script of its drivers, and the faults.

use sooner_wire::limits::HEALTH_TIMEOUT_NANOS;

use crate::random::Random;

/// A second (nanoseconds).
pub const SECOND: u64 = 1_000_000_000;

/// The kinds of faults: the word on the command line, and a description.
pub const FAULTS: &[(&str, &str)] = &[
    ("kill", "a daemon is killed; its machine refuses connections"),
    ("lose", "a machine is gone without a word, and comes back"),
    ("leave", "a node leaves in order"),
    ("split", "some machines and the others do not reach each other for a while"),
    ("worker", "a worker or a driver is killed"),
    ("head", "the head is killed, and started again on its disk"),
];

/// The work of drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Pause between two rounds of a driver, on average (nanoseconds).
    pub think: u64,
    /// How long a lease is held, at most (nanoseconds).
    pub hold: u64,
    /// Leases that a round requests, at most.
    pub leases: u32,
    /// Nodes have four processors, leases are for one, and each round requests as many as it may. Only
    /// drivers of every second node request leases, so half of their workers are on other nodes.
    pub is_even: bool,
    /// How many of a hundred rounds create an actor and end it, instead of requesting leases.
    pub actors: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ScalePlan {
    /// Decides everything that the plan leaves open.
    pub seed: u64,
    /// Machines, the head's included.
    pub nodes: usize,
    /// How long drivers work and faults happen (seconds of virtual time).
    pub seconds: u64,
    /// How many faults happen.
    pub blows: u64,
    /// The kinds of faults that may happen, of [`FAULTS`].
    pub faults: Vec<&'static str>,
    /// The work of drivers. Each node has one driver.
    pub load: Load,
    /// How many values are made and pulled.
    pub values: usize,
    /// How many nodes pull each value, at most.
    pub receivers: usize,
    /// Bytes of a value, at most.
    pub bytes: u64,
    /// Bandwidth of each node's uplink (bits per second).
    pub bandwidth: u64,
    /// Latency of a small message, one way (nanoseconds).
    pub latency: u64,
    /// Silence after which a node counts as dead (nanoseconds).
    pub health_timeout: u64,
    /// Receivers pull a value at once, instead of at random times.
    pub at_once: bool,
}

impl ScalePlan {
    /// The plan of a seed, with this number of nodes, or the number that the seed decides.
    #[must_use]
    pub fn new(seed: u64, nodes: Option<usize>) -> Self {
        let mut random = Random::new(seed ^ 0x5ca1_e000_0000);
        let drawn = match random.below(10) {
            0 => 66 + random.below(60),
            1..=3 => 12 + random.below(30),
            _ => 2 + random.below(9),
        };
        let nodes = nodes.unwrap_or(drawn);
        let faults = FAULTS.iter().map(|(word, _)| *word).filter(|_| random.chance(2, 3)).collect();
        let think = [SECOND / 20, SECOND / 2, 2 * SECOND][random.below(3)];
        let hold = [SECOND / 100, SECOND / 5, 2 * SECOND][random.below(3)];
        let is_large = nodes > 200;
        Self {
            seed,
            nodes,
            seconds: 10 + random.below(20) as u64,
            blows: 2 + random.below(20) as u64 + nodes as u64 / 20,
            faults,
            load: Load {
                think: if is_large { think.max(2 * SECOND) } else { think },
                hold,
                leases: 1 + random.below(8) as u32,
                is_even: false,
                actors: [0, 20, 100][random.below(3)],
            },
            values: 1 + random.below(6),
            receivers: 1 + random.below(nodes.min(64)),
            bytes: 1 << (16 + random.below(9)),
            bandwidth: [1_000_000_000, 10_000_000_000][random.below(2)],
            latency: SECOND / 10_000,
            health_timeout: [HEALTH_TIMEOUT_NANOS, SECOND][random.below(2)],
            at_once: false,
        }
    }

    /// A plan without faults, in which drivers work like this.
    #[must_use]
    pub fn calm(nodes: usize, seconds: u64, load: Load) -> Self {
        let health_timeout = HEALTH_TIMEOUT_NANOS;
        let (blows, values, receivers, bytes) = (0, 0, 0, 1);
        let (bandwidth, latency, faults) = (10_000_000_000, SECOND / 20_000, Vec::new());
        Self {
            seed: 1,
            nodes,
            seconds,
            blows,
            faults,
            load,
            values,
            receivers,
            bytes,
            bandwidth,
            latency,
            health_timeout,
            at_once: false,
        }
    }

    /// A plan in which one value of this size goes to many nodes at once, and nothing else happens.
    #[must_use]
    pub fn broadcast(receivers: usize, bytes: u64, bandwidth: u64) -> Self {
        let load = Load { think: 0, hold: 1, leases: 0, is_even: false, actors: 0 };
        let quiet = Self::calm(receivers + 1, 20, load);
        Self { values: 1, receivers, bytes, bandwidth, at_once: true, ..quiet }
    }

    /// Removes a kind of fault. False if there is none with this word.
    pub fn leave_out(&mut self, word: &str) -> bool {
        self.faults.retain(|fault| *fault != word);
        FAULTS.iter().any(|(name, _)| *name == word)
    }

    /// The time until all nodes have joined (nanoseconds).
    #[must_use]
    pub fn joining(&self) -> u64 {
        SECOND + self.nodes as u64 * SECOND / 200
    }
}
