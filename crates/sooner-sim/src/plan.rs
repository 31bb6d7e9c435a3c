//! What a seed decides before a run begins: the shape of its program and its mix of faults.
//!
//! Each seed leaves out some features and faults (swarm testing). A defect that only shows when nothing
//! interrupts a long chain of calls is then as likely to be met as one that needs five kinds of faults. To
//! make a failing run smaller, its plan is narrowed.

use crate::random::Random;

macro_rules! kinds {
    ($(#[$doc:meta])* $kind:ident { $($(#[$item_doc:meta])* $name:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $kind { $($(#[$item_doc])* $name,)* }

        impl $kind {
            /// Each of them.
            pub const ALL: &[$kind] = &[$($kind::$name,)*];

            /// Its word on the command line.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $($kind::$name => $word,)* }
            }
        }
    };
}

kinds! {
    /// What a program may do beside submitting tasks and getting their values.
    Feature {
        /// Tasks submit tasks.
        Nested = "nested",
        /// Actors are made and called.
        Actors = "actors",
        /// Actors start again after a failure.
        Restarts = "restarts",
        /// Actors live on without handles.
        Detached = "detached",
        /// Actors have names, and others look them up.
        Named = "named",
        /// Actors have concurrency groups or threads.
        Groups = "groups",
        /// Calls that need no order.
        Unordered = "unordered",
        /// References are kept in actors and processes beyond the task that brought them.
        State = "state",
        /// Values contain references.
        Contained = "contained",
        /// Values lie in shared memory.
        Large = "large",
        /// Tasks raise, and some are retried.
        Raising = "raising",
        /// Tasks yield their values one by one.
        Streams = "streams",
        /// Tasks are cancelled.
        Cancel = "cancel",
        /// Tasks are also cancelled by killing the worker.
        Force = "force",
        /// Objects are freed while references to them are left.
        Free = "free",
        /// Waits with a time limit.
        Wait = "wait",
        /// Actors are ended by the program, or end themselves.
        Ending = "ending",
        /// Workers end after a task.
        Retiring = "retiring",
        /// Tasks without retries.
        NoRetries = "no-retries",
        /// Actors with checkpoints.
        Checkpoints = "checkpoints",
        /// Actors hold a CPU for as long as they live: up to all CPUs but one.
        Holding = "holding",
    }
}

kinds! {
    /// What may go wrong around a program.
    Fault {
        /// Workers are killed.
        Kill = "kill",
        /// Workers are killed while the actions of one step leave.
        KillMidStep = "kill-mid-step",
        /// Processes are stopped for a while, as by SIGSTOP.
        Pause = "pause",
        /// A channel delivers nothing for a while.
        Stall = "stall",
        /// Worker processes start late.
        SlowStart = "slow-start",
        /// Worker processes do not start.
        FailedStart = "failed-start",
        /// Messages stay in the sender's buffer for a while, and are lost if the sender dies.
        Gather = "gather",
        /// The contents of shared memory are lost.
        LostBlocks = "lost-blocks",
        /// The timers of processes are late.
        LateTimers = "late-timers",
        /// Lines between processes are sessions, as between machines, and their connections are cut.
        Cuts = "cuts",
        /// The control service starts again, where there are several nodes.
        Head = "head",
        /// A node has no room: values go to disk or, where there are several nodes, to other nodes.
        Full = "full",
        /// Workers are killed two at a time.
        Together = "together",
    }
}

/// Features and faults with open findings (docs/findings.md): the tests, `make sim` and the bug bank leave
/// them out, and so does `--without open`. Change this list to switch them on.
pub const OPEN: &[&str] = &[NODES];

/// The word for several nodes.
pub const NODES: &str = "nodes";

/// See the module.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides everything that the plan leaves open.
    pub seed: u64,
    /// Steps of the driver's program.
    pub operations: u32,
    /// Nodes.
    pub nodes: usize,
    /// The first nodes, this many of them, have a driver.
    pub drivers: usize,
    /// CPUs of each node.
    pub cpus: u32,
    /// Idle workers that a node keeps.
    pub pool: usize,
    /// How deep tasks may nest.
    pub depth: u8,
    /// Nanoseconds that a step of the world takes on average.
    pub step_nanos: u64,
    /// Steps between two faults on average.
    pub fault_every: usize,
    pub(crate) features: u32,
    pub(crate) faults: u32,
}

impl Plan {
    /// The plan that a seed decides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed_0000_0000_0000);
        let mut plan = Self {
            seed,
            nodes: 1,
            drivers: 1,
            operations: 40 + u32::try_from(random.below(90) * random.below(160)).expect("small"),
            cpus: [1, 2, 2, 3, 4, 8][random.below(6)],
            pool: random.below(5),
            depth: [1, 2, 2, 3][random.below(4)],
            step_nanos: [2_000, 10_000, 50_000, 250_000][random.below(4)],
            fault_every: [60, 200, 600, 2000][random.below(4)],
            features: 0,
            faults: 0,
        };
        let often = [2, 4, 8][random.below(3)];
        let is_late = |feature: &Feature| matches!(feature, Feature::Checkpoints | Feature::Holding);
        for feature in Feature::ALL.iter().filter(|feature| !is_late(feature)) {
            if !random.chance(1, often) {
                plan.features |= 1 << *feature as u32;
            }
        }
        // One seed in five runs without any fault: then nothing but values may come.
        if !random.chance(1, 5) {
            let is_late =
                |fault: &Fault| matches!(fault, Fault::Cuts | Fault::Head | Fault::Full | Fault::Together);
            for fault in Fault::ALL.iter().filter(|fault| !is_late(fault)) {
                if random.chance(1, 2) {
                    plan.faults |= 1 << *fault as u32;
                }
            }
        }
        // Drawn last, so that seeds from before there were checkpoints and cuts keep their meaning.
        if plan.has(Feature::Actors) && random.chance(1, 2) {
            plan.features |= 1 << Feature::Checkpoints as u32;
        }
        if plan.faults != 0 && random.chance(1, 4) {
            plan.faults |= 1 << Fault::Cuts as u32;
        }
        // From a generator of its own: seeds on one node keep their meaning.
        let mut random = Random::new(seed ^ 0x5eed_0000_0000_0002);
        plan.spread(if random.chance(1, 6) { 2 + random.below(2) } else { 1 });
        // On several nodes, actors that hold CPUs decide where tasks go.
        let mut random = Random::new(seed ^ 0x5eed_0000_0000_0006);
        if plan.has(Feature::Actors) && random.chance(1, if plan.nodes > 1 { 2 } else { 8 }) {
            plan.features |= 1 << Feature::Holding as u32;
        }
        if plan.breaks(Fault::Kill) && random.chance(1, if plan.nodes > 1 { 2 } else { 8 }) {
            plan.faults |= 1 << Fault::Together as u32;
        }
        plan
    }

    /// Sets the number of nodes, and draws again what depends on it.
    pub fn spread(&mut self, nodes: usize) {
        let mut random = Random::new(self.seed ^ 0x5eed_0000_0000_0001);
        self.nodes = nodes;
        self.drivers = 1 + random.below(nodes);
        self.faults &= !(1 << Fault::Head as u32 | 1 << Fault::Full as u32);
        if nodes > 1 && self.faults != 0 && random.chance(1, 4) {
            self.faults |= 1 << Fault::Head as u32;
        }
        // The fault on one node was added later, from a generator of its own: most seeds keep their meaning.
        let mut alone = Random::new(self.seed ^ 0x5eed_0000_0000_0003);
        let is_full = if nodes > 1 { random.chance(1, 2) } else { alone.chance(1, 4) };
        if self.faults != 0 && is_full {
            self.faults |= 1 << Fault::Full as u32;
        }
    }

    /// Whether the program may use this feature.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.features & (1 << feature as u32) != 0
    }

    /// Whether this fault may happen.
    #[must_use]
    pub fn breaks(&self, fault: Fault) -> bool {
        self.faults & (1 << fault as u32) != 0
    }

    /// Removes the feature or fault with this word; false if there is none.
    pub fn leave_out(&mut self, word: &str) -> bool {
        if word == NODES {
            self.spread(1);
        } else if let Some(feature) = Feature::ALL.iter().find(|feature| feature.word() == word) {
            self.features &= !(1 << *feature as u32);
        } else if let Some(fault) = Fault::ALL.iter().find(|fault| fault.word() == word) {
            self.faults &= !(1 << *fault as u32);
        } else {
            return false;
        }
        true
    }

    /// The words of everything that can still be left out.
    #[must_use]
    pub fn words(&self) -> Vec<&'static str> {
        let faults = Fault::ALL.iter().filter(|fault| self.breaks(**fault)).map(|fault| fault.word());
        let features =
            Feature::ALL.iter().filter(|feature| self.has(**feature)).map(|feature| feature.word());
        let nodes = (self.nodes > 1).then_some(NODES);
        nodes.into_iter().chain(faults).chain(features).collect()
    }
}
