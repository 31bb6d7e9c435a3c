//! What a task calls, and how: its owner's description of it.
//!
//! What tasks of all kinds have stands in [`TaskSpec`], the rest in the [`Target`], so that no function has a
//! checkpoint and no method a placing strategy. On the wire all of it is one flat list of fields: see
//! [`flat`].

use std::num::NonZeroU32;

use minicbor::{Decode, Encode};

use crate::{ActorId, Blob, FunctionId, Name, ObjectId, ShapeId, Strategy, TaskId};

mod flat;

/// What a push asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum TaskKind {
    /// Call a function on a leased worker of this shape.
    #[n(0)]
    Task(#[n(0)] ShapeId),
    /// Construct an actor.
    #[n(1)]
    Creation,
    /// Call a method of an actor.
    #[n(2)]
    Method(#[n(0)] ActorId),
}

impl TaskKind {
    /// Whether it runs in the process of an actor.
    #[must_use]
    pub fn in_actor(self) -> bool {
        !matches!(self, Self::Task(_))
    }
}

/// A task as its owner describes it. Kept until the reply, so that it can be pushed again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskSpec {
    pub task: TaskId,
    pub target: Target,
    /// The display name of a task, or the method of an actor.
    pub name: Name,
    pub returns: u32,
    /// Encoded arguments; where a dependency stands they hold its index.
    pub arguments: Blob,
    /// Objects to be replaced by their values before the call.
    pub dependencies: Box<[ObjectId]>,
    /// Objects that stay references inside the arguments.
    pub references: Box<[ObjectId]>,
    /// How often the task may be executed again after a system failure; -1 for ever.
    pub retries: i32,
    /// Whether exceptions of the task may be retried too (the worker decides by its list of classes).
    pub retry_exceptions: bool,
    /// The task yields its values one by one; what it returns in the end is object 0.
    pub stream: Option<Streaming>,
    /// Where the call was made, if that is recorded: for errors.
    pub site: Option<Name>,
    /// The task recovers a lost value, or was submitted by such a task. An actor that is taken over does not
    /// let such a call wait for the calls that are made again, because those may wait for the value.
    pub recovers: Option<bool>,
    /// The task has no retry left for when memory runs out: its node stops others first.
    pub spared: Option<bool>,
}

/// What a task calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A remote function, on a leased worker.
    Function(FunctionCall),
    /// The constructor of an actor's class, in a process of its own.
    Class(ActorCreation),
    /// A method of an actor, in the actor's process.
    Method(MethodCall),
}

/// The call of a remote function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FunctionCall {
    /// What a worker must have been leased for.
    pub shape: ShapeId,
    pub function: FunctionId,
    /// Executions of the function after which the worker ends; `None` for no limit.
    pub max_calls: Option<NonZeroU32>,
    pub scheduling: Scheduling,
}

impl FunctionCall {
    /// A call on a worker of this shape, with nothing else of note.
    #[inline]
    #[must_use]
    pub fn new(shape: ShapeId, function: FunctionId) -> Self {
        Self { shape, function, max_calls: None, scheduling: Scheduling::default() }
    }
}

/// The creation of an actor. The actor has the id of this task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ActorCreation {
    pub class: FunctionId,
    /// Calls the actor may execute at a time.
    pub concurrency: u32,
    /// Calls at a time per concurrency group. They are part of `concurrency`.
    pub groups: Option<Box<[u32]>>,
    /// Calls between two checkpoints; `None` for an actor without checkpoints.
    pub checkpoint_every: Option<u32>,
    pub scheduling: Scheduling,
}

impl ActorCreation {
    /// An actor of this class, with nothing else of note.
    #[inline]
    #[must_use]
    pub fn new(class: FunctionId) -> Self {
        let (concurrency, scheduling) = (0, Scheduling::default());
        Self { class, concurrency, groups: None, checkpoint_every: None, scheduling }
    }
}

/// The call of an actor's method.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MethodCall {
    pub actor: ActorId,
    /// The exceptions to retry, if the call has a list of them.
    pub retry_on: Option<FunctionId>,
    /// The display name, if it is not the method's.
    pub title: Option<Name>,
    /// An index into the creation's `groups`; `None` for the default concurrency group.
    pub group: Option<u32>,
    /// The call does not wait for earlier calls whose arguments are missing.
    pub unordered: bool,
    /// Of a call to an actor with checkpoints: whether its effects are part of the actor's state. Then its
    /// caller keeps it until a checkpoint covers it.
    pub kept: Option<bool>,
}

impl MethodCall {
    /// A call in the default group and in order, with nothing else of note.
    #[inline]
    #[must_use]
    pub fn new(actor: ActorId) -> Self {
        Self { actor, retry_on: None, title: None, group: None, unordered: false, kept: None }
    }
}

/// Where and when a function or constructor runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scheduling {
    /// Where it is to run, if not just anywhere.
    pub strategy: Option<Box<Strategy>>,
    /// The higher, the earlier it runs among those that wait; zero if absent.
    pub priority: Option<i32>,
    /// Its whole CPUs, if more than one: the number of threads for numeric libraries.
    pub threads: Option<u32>,
}

impl TaskSpec {
    /// A task with one return, and without dependencies, retries or anything else of note. The exceptions of
    /// a method are `FunctionId(0)` if it has no list of them.
    #[inline]
    #[must_use]
    pub fn new(task: TaskId, kind: TaskKind, function: FunctionId, name: Name, arguments: Blob) -> Self {
        Self::of(task, Target::new(kind, function), name, arguments)
    }

    /// A task that calls `target`, with nothing else of note.
    #[inline]
    #[must_use]
    pub fn of(task: TaskId, target: Target, name: Name, arguments: Blob) -> Self {
        Self {
            task,
            target,
            name,
            returns: 1,
            arguments,
            dependencies: Box::default(),
            references: Box::default(),
            retries: 0,
            retry_exceptions: false,
            stream: None,
            site: None,
            recovers: None,
            spared: None,
        }
    }

    /// What the task asks for, without its details.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> TaskKind {
        match &self.target {
            Target::Function(call) => TaskKind::Task(call.shape),
            Target::Class(_) => TaskKind::Creation,
            Target::Method(call) => TaskKind::Method(call.actor),
        }
    }

    /// What the executing process must have been given: a function, a class or a list of exceptions.
    #[inline]
    #[must_use]
    pub fn function(&self) -> Option<FunctionId> {
        match &self.target {
            Target::Function(call) => Some(call.function),
            Target::Class(creation) => Some(creation.class),
            Target::Method(call) => call.retry_on,
        }
    }

    /// The name that people read.
    #[inline]
    #[must_use]
    pub fn shown_name(&self) -> &Name {
        self.method().and_then(|call| call.title.as_ref()).unwrap_or(&self.name)
    }

    /// The creation of an actor, if it is one.
    #[inline]
    #[must_use]
    pub fn creation(&self) -> Option<&ActorCreation> {
        if let Target::Class(creation) = &self.target { Some(creation) } else { None }
    }

    /// The call of a method, if it is one.
    #[inline]
    #[must_use]
    pub fn method(&self) -> Option<&MethodCall> {
        if let Target::Method(call) = &self.target { Some(call) } else { None }
    }

    /// Where and when it runs. `None` for a method: that runs where its actor is.
    #[inline]
    #[must_use]
    pub fn scheduling(&self) -> Option<&Scheduling> {
        match &self.target {
            Target::Function(call) => Some(&call.scheduling),
            Target::Class(creation) => Some(&creation.scheduling),
            Target::Method(_) => None,
        }
    }

    /// Where it is to run, if not just anywhere.
    #[must_use]
    pub fn strategy(&self) -> Option<&Strategy> {
        self.scheduling()?.strategy.as_deref()
    }

    /// The higher, the earlier it runs among those that wait; zero if absent.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> Option<i32> {
        self.scheduling()?.priority
    }

    /// Calls that the actor which it creates may execute at a time; zero if it creates none.
    #[must_use]
    pub fn concurrency(&self) -> u32 {
        self.creation().map_or(0, |creation| creation.concurrency)
    }

    /// Calls between two checkpoints, if it creates an actor that has them.
    #[must_use]
    pub fn checkpoint_every(&self) -> Option<u32> {
        self.creation()?.checkpoint_every
    }

    /// Whether the effects of the call are part of its actor's state, if the actor has checkpoints.
    #[inline]
    #[must_use]
    pub fn kept(&self) -> Option<bool> {
        self.method()?.kept
    }

    /// The concurrency group of a call, if it is not the default one.
    #[inline]
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.method()?.group
    }

    /// Whether it is a call that does not wait for earlier ones.
    #[inline]
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        self.method().is_some_and(|call| call.unordered)
    }

    /// Calls the function on a worker of another shape. No effect on what runs in an actor.
    pub fn set_shape(&mut self, shape: ShapeId) {
        if let Target::Function(call) = &mut self.target {
            call.shape = shape;
        }
    }

    /// Lets a call overtake earlier ones of its caller. No effect on what is no call of a method.
    pub fn set_unordered(&mut self) {
        if let Target::Method(call) = &mut self.target {
            call.unordered = true;
        }
    }
}

impl Target {
    #[inline]
    fn new(kind: TaskKind, function: FunctionId) -> Self {
        match kind {
            TaskKind::Task(shape) => Self::Function(FunctionCall::new(shape, function)),
            TaskKind::Creation => Self::Class(ActorCreation::new(function)),
            TaskKind::Method(actor) => {
                let retry_on = Some(function).filter(|list| *list != FunctionId(0));
                Self::Method(MethodCall { retry_on, ..MethodCall::new(actor) })
            }
        }
    }
}

/// How a streaming task hands out its items (objects 1, 2, ...).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct Streaming {
    /// Items that may be unread before the task waits; zero for no limit.
    #[n(0)]
    pub backpressure: u32,
    /// The caller reads all items at the end, as one value.
    #[n(1)]
    pub dynamic: bool,
}
