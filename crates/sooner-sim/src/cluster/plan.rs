//! What a seed decides before a cluster's run: its size, and how long it is disturbed by which faults.

use sooner_wire::limits::HEALTH_TIMEOUT_NANOS;

use crate::random::Random;

/// A second (nanoseconds).
pub const SECOND: u64 = 1_000_000_000;

/// The kinds of faults: the word on the command line, and a description.
pub const FAULTS: &[(&str, &str)] = &[
    ("kill", "a daemon is killed; its machine refuses connections"),
    ("lose", "a machine is gone without a word, and may come back"),
    ("pause", "a daemon stands still"),
    ("late", "messages are late, by up to some seconds"),
    ("cut", "connections are reset"),
    ("split", "some machines and the others do not reach each other"),
    ("one-way", "what some machines send does not arrive at others"),
    ("partial", "some pairs of machines do not reach each other"),
    ("twins", "a node draws the name or the id of another one"),
    ("drain", "a node is told to leave"),
    ("head-kill", "the head is killed, and started again on its disk"),
    ("head-lose", "the head's machine is gone without a word, and comes back"),
    ("head-pause", "the head stands still"),
    ("disk-full", "the disk refuses what is written"),
    ("disk-slow", "the disk takes seconds"),
];

/// Faults with open findings (docs/findings.md).
pub const OPEN: &[&str] = &[];

/// See the module.
#[derive(Debug, Clone)]
pub struct ClusterPlan {
    /// Decides everything that the plan leaves open.
    pub seed: u64,
    /// Machines beside the head's.
    pub nodes: usize,
    /// How long faults happen (seconds of virtual time).
    pub seconds: u64,
    /// How many faults happen.
    pub blows: u64,
    /// Silence after which a node counts as dead (nanoseconds).
    pub health_timeout: u64,
    /// How often the free resources of a node change, on average (nanoseconds).
    pub work_nanos: u64,
    /// The kinds of faults that may happen, of [`FAULTS`].
    pub faults: Vec<&'static str>,
}

impl ClusterPlan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xc1u64.rotate_left(32));
        let nodes = match random.below(20) {
            0 => 70 + random.below(130),
            1..=5 => 12 + random.below(40),
            _ => 1 + random.below(10),
        };
        let seconds = 20 + random.below(80) as u64;
        Self {
            seed,
            nodes,
            seconds,
            blows: 3 + random.below(40) as u64,
            health_timeout: [HEALTH_TIMEOUT_NANOS, HEALTH_TIMEOUT_NANOS, SECOND, 20 * SECOND]
                [random.below(4)],
            work_nanos: [SECOND / 20, SECOND, 10 * SECOND][random.below(3)],
            faults: FAULTS.iter().map(|(word, _)| *word).filter(|_| random.chance(1, 2)).collect(),
        }
    }

    /// A plan of this size without faults: for counting messages.
    #[must_use]
    pub fn calm(seed: u64, nodes: usize, seconds: u64) -> Self {
        let health_timeout = HEALTH_TIMEOUT_NANOS;
        Self { seed, nodes, seconds, blows: 0, health_timeout, work_nanos: SECOND, faults: Vec::new() }
    }

    /// Removes a kind of fault. False if there is none with this word.
    pub fn leave_out(&mut self, word: &str) -> bool {
        self.faults.retain(|fault| *fault != word);
        FAULTS.iter().any(|(name, _)| *name == word)
    }

    /// Whether this kind of fault may happen.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.faults.contains(&word)
    }
}
