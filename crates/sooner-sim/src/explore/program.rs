//! The programs of a configuration's processes: a small language of task bodies.
//!
//! Body 0 is the driver's. A variable of a body holds a reference. The first variables are the task's
//! references, in order, then those inside the values of its dependencies. Each object has a value of its own
//! length ([`payload_of`]), so that readers can check whether they got the right one.

use sooner_wire::{ObjectId, WorkerId};

/// The id before the first process of a world: process `n` is this plus `n`.
pub const FIRST: u64 = (1 << 24) + 1000;

/// The number of a process in its world: the driver is 1, the node 0.
#[must_use]
pub fn index_of(worker: WorkerId) -> u8 {
    u8::try_from(worker.0 - FIRST).expect("few processes")
}

/// The id of a process.
#[must_use]
pub fn worker(index: u8) -> WorkerId {
    WorkerId(FIRST + u64::from(index))
}

/// The length of an object's value: no other object of the world has it.
#[must_use]
pub fn payload_of(object: ObjectId) -> usize {
    let owner = usize::from(index_of(object.owner()));
    let number = usize::try_from(object.task.number).expect("few tasks");
    1 + owner * 64 + number
}

/// One step of a body. Numbers name variables of the body, or bodies of the program.
#[derive(Debug, Clone)]
pub enum Step {
    /// Submits a task.
    Submit {
        /// The body that it runs.
        body: usize,
        /// Objects that are passed by value.
        dependencies: Vec<usize>,
        /// References that are passed.
        references: Vec<usize>,
        /// Retries after a failure.
        retries: i32,
        /// The variable for its result.
        into: usize,
    },
    /// Submits a task that is queued when so many of its references have values.
    SubmitAfter {
        /// How many.
        values: usize,
        /// The body that it runs.
        body: usize,
        /// References that are passed.
        references: Vec<usize>,
        /// Retries after a failure.
        retries: i32,
        /// The variable for its result.
        into: usize,
    },
    /// Puts a value, with references inside.
    Put {
        /// Whether the value lies in shared memory.
        is_stored: bool,
        /// References inside.
        contains: Vec<usize>,
        /// The variable for the reference.
        into: usize,
    },
    /// Makes an object whose value this process writes in shared memory until it is sealed.
    Write {
        /// The variable for the reference.
        into: usize,
    },
    /// Seals the value of such an object.
    Seal(usize),
    /// Waits for a value and checks it. In a task, a failure is raised, and the task fails with it.
    Get(usize),
    /// Takes a reference out of a value that was got; none comes after a driver's failed `Get`.
    Open {
        /// The value.
        of: usize,
        /// The position of the reference in the value.
        at: usize,
        /// The variable for the reference.
        into: usize,
    },
    /// Drops a reference.
    Drop(usize),
    /// Keeps a reference in the process beyond the task: as state of an actor, or as a global variable.
    Keep(usize),
    /// Drops all kept references.
    Forget,
    /// Creates an actor.
    Create {
        /// The body of its constructor.
        body: usize,
        /// Objects that are passed to the constructor by value.
        dependencies: Vec<usize>,
        /// Restarts after a failure.
        restarts: i32,
        /// Calls between two checkpoints.
        checkpoint_every: Option<u32>,
        /// The variable for its handle.
        into: usize,
    },
    /// Calls an actor.
    Call {
        /// The handle of the actor.
        actor: usize,
        /// The body that the call runs.
        body: usize,
        /// References that are passed.
        references: Vec<usize>,
        /// Retries after a failure.
        retries: i32,
        /// Whether the caller keeps the call until a checkpoint covers it: in actors with checkpoints.
        is_kept: bool,
        /// The variable for its result.
        into: usize,
    },
    /// Checks that this many calls were executed in the state of this process's actor.
    Executed(usize),
    /// Cancels the task that makes an object.
    Cancel(usize),
}

/// A body: the code of a task or a call.
#[derive(Debug, Clone, Default)]
pub struct Body {
    /// For traces.
    pub name: &'static str,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Whether the returned value lies in shared memory.
    pub returns_stored: bool,
    /// References inside the returned value.
    pub returns: Vec<usize>,
}

/// Bodies by number; 0 is the driver's.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// See the module.
    pub bodies: Vec<Body>,
    /// How long every task seems to run (nanoseconds): short ones are pushed ahead.
    pub task_nanos: u64,
    /// A process that waits for a value asks for it again after a loss. The shell does not, see the findings.
    pub asks_again: bool,
}

/// Shorthand for a task without arguments of interest.
#[must_use]
pub fn submit(body: usize, retries: i32, into: usize) -> Step {
    Step::Submit { body, dependencies: Vec::new(), references: Vec::new(), retries, into }
}

/// Shorthand for a body that returns a small value.
#[must_use]
pub fn body(name: &'static str, steps: Vec<Step>) -> Body {
    Body { name, steps, returns_stored: false, returns: Vec::new() }
}

impl Body {
    /// The number of variables that the body names.
    #[must_use]
    pub fn variables(&self) -> usize {
        let named = self.steps.iter().flat_map(Step::variables).chain(self.returns.iter().copied());
        named.max().map_or(0, |last| last + 1)
    }
}

impl Step {
    fn variables(&self) -> Vec<usize> {
        match self {
            Self::Submit { dependencies, references, into, .. } => {
                dependencies.iter().chain(references).copied().chain([*into]).collect()
            }
            Self::SubmitAfter { references, into, .. } => references.iter().copied().chain([*into]).collect(),
            Self::Put { contains, into, .. } => contains.iter().copied().chain([*into]).collect(),
            Self::Open { of, into, .. } => vec![*of, *into],
            Self::Get(variable)
            | Self::Drop(variable)
            | Self::Keep(variable)
            | Self::Cancel(variable)
            | Self::Seal(variable)
            | Self::Write { into: variable } => vec![*variable],
            Self::Forget | Self::Executed(_) => Vec::new(),
            Self::Create { dependencies, into, .. } => dependencies.iter().copied().chain([*into]).collect(),
            Self::Call { actor, references, into, .. } => {
                references.iter().copied().chain([*actor, *into]).collect()
            }
        }
    }
}
