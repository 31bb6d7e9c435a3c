//! A task on the wire: one list of fields, of which each kind of task has some.
//!
//! The list is as old as the protocol, and its bytes stay what they are. So a [`TaskSpec`] is written through
//! a [`Flat`] that borrows from it, and read through one that is taken apart. A list with fields that its
//! kind does not have is refused: a task without them would not be the task that was sent.

use std::num::NonZeroU32;

use minicbor::decode::Error as DecodeError;
use minicbor::encode::Error as EncodeError;
use minicbor::{Decode, Decoder, Encode, Encoder};

use super::{ActorCreation, FunctionCall, MethodCall, Scheduling, Streaming, Target, TaskKind, TaskSpec};
use crate::{Blob, FunctionId, Name, ObjectId, Strategy, TaskId};

/// All fields, in the order of their numbers. [`TaskSpec`] and [`Target`] say what they mean, and which kinds
/// of task have them. What is borrowed for writing has a type parameter.
#[derive(Encode, Decode)]
#[cbor(array)]
struct Flat<Text, Bytes, Objects, Numbers, Where> {
    #[n(0)]
    task: TaskId,
    #[n(1)]
    kind: TaskKind,
    /// A function, a class or a list of exceptions; zero for no such list.
    #[n(2)]
    function: FunctionId,
    #[n(3)]
    name: Text,
    #[n(4)]
    returns: u32,
    #[n(5)]
    arguments: Bytes,
    #[n(6)]
    dependencies: Objects,
    #[n(7)]
    references: Objects,
    #[n(8)]
    retries: i32,
    #[n(9)]
    retry_exceptions: bool,
    /// `concurrency` of a creation; `max_calls` of a function, zero for no limit.
    #[n(10)]
    concurrency: u32,
    #[n(11)]
    title: Option<Text>,
    #[n(12)]
    stream: Option<Streaming>,
    #[n(13)]
    group: Option<u32>,
    #[n(14)]
    groups: Option<Numbers>,
    #[n(15)]
    unordered: Option<bool>,
    #[n(16)]
    site: Option<Text>,
    #[n(20)]
    kept: Option<bool>,
    #[n(21)]
    checkpoint_every: Option<u32>,
    #[n(22)]
    strategy: Option<Where>,
    #[n(23)]
    priority: Option<i32>,
    #[n(24)]
    recovers: Option<bool>,
    #[n(25)]
    spared: Option<bool>,
    #[n(26)]
    threads: Option<u32>,
}

type Borrowed<'a> = Flat<&'a Name, &'a Blob, &'a [ObjectId], &'a [u32], &'a Strategy>;
type Owned = Flat<Name, Blob, Box<[ObjectId]>, Box<[u32]>, Box<Strategy>>;

impl<'a> Borrowed<'a> {
    #[inline]
    fn of(spec: &'a TaskSpec) -> Self {
        let common = Self::common(spec);
        match &spec.target {
            Target::Function(FunctionCall { shape: _, function, max_calls, scheduling }) => Self {
                function: *function,
                concurrency: max_calls.map_or(0, NonZeroU32::get),
                ..common.scheduled(scheduling)
            },
            Target::Class(ActorCreation { class, concurrency, groups, checkpoint_every, scheduling }) => {
                Self {
                    function: *class,
                    concurrency: *concurrency,
                    groups: groups.as_deref(),
                    checkpoint_every: *checkpoint_every,
                    ..common.scheduled(scheduling)
                }
            }
            Target::Method(MethodCall { actor: _, retry_on, title, group, unordered, kept }) => Self {
                function: retry_on.unwrap_or(FunctionId(0)),
                title: title.as_ref(),
                group: *group,
                unordered: unordered.then_some(true),
                kept: *kept,
                ..common
            },
        }
    }

    /// The fields of all kinds.
    #[inline]
    fn common(spec: &'a TaskSpec) -> Self {
        Self {
            task: spec.task,
            kind: spec.kind(),
            function: FunctionId(0),
            name: &spec.name,
            returns: spec.returns,
            arguments: &spec.arguments,
            dependencies: &spec.dependencies,
            references: &spec.references,
            retries: spec.retries,
            retry_exceptions: spec.retry_exceptions,
            concurrency: 0,
            title: None,
            stream: spec.stream,
            group: None,
            groups: None,
            unordered: None,
            site: spec.site.as_ref(),
            kept: None,
            checkpoint_every: None,
            strategy: None,
            priority: None,
            recovers: spec.recovers,
            spared: spec.spared,
            threads: None,
        }
    }

    #[inline]
    fn scheduled(self, scheduling: &'a Scheduling) -> Self {
        let Scheduling { strategy, priority, threads } = scheduling;
        Self { strategy: strategy.as_deref(), priority: *priority, threads: *threads, ..self }
    }
}

impl Owned {
    /// Fails with the name of a field that the kind does not have.
    fn into_spec(self) -> Result<TaskSpec, &'static str> {
        if let Some(field) = self.misplaced() {
            return Err(field);
        }
        let Self { function, concurrency, strategy, priority, threads, .. } = self;
        let scheduling = Scheduling { strategy, priority, threads };
        let target = match self.kind {
            TaskKind::Task(shape) => {
                let max_calls = NonZeroU32::new(concurrency);
                Target::Function(FunctionCall { shape, function, max_calls, scheduling })
            }
            TaskKind::Creation => {
                let Self { groups, checkpoint_every, .. } = self;
                let class = function;
                Target::Class(ActorCreation { class, concurrency, groups, checkpoint_every, scheduling })
            }
            TaskKind::Method(actor) => {
                let Self { title, group, kept, .. } = self;
                let retry_on = Some(function).filter(|list| *list != FunctionId(0));
                let unordered = self.unordered == Some(true);
                Target::Method(MethodCall { actor, retry_on, title, group, unordered, kept })
            }
        };
        Ok(TaskSpec {
            task: self.task,
            target,
            name: self.name,
            returns: self.returns,
            arguments: self.arguments,
            dependencies: self.dependencies,
            references: self.references,
            retries: self.retries,
            retry_exceptions: self.retry_exceptions,
            stream: self.stream,
            site: self.site,
            recovers: self.recovers,
            spared: self.spared,
        })
    }

    /// A field that is set, and that this kind of task does not have.
    fn misplaced(&self) -> Option<&'static str> {
        let of_methods = [
            ("title", self.title.is_some()),
            ("group", self.group.is_some()),
            ("unordered", self.unordered.is_some()),
            ("kept", self.kept.is_some()),
        ];
        let of_creations =
            [("groups", self.groups.is_some()), ("checkpoint_every", self.checkpoint_every.is_some())];
        let of_functions_and_creations = [
            ("concurrency", self.concurrency != 0),
            ("strategy", self.strategy.is_some()),
            ("priority", self.priority.is_some()),
            ("threads", self.threads.is_some()),
        ];
        let lists: [&[(&'static str, bool)]; 2] = match self.kind {
            TaskKind::Task(_) => [&of_methods, &of_creations],
            TaskKind::Creation => [&of_methods, &[]],
            TaskKind::Method(_) => [&of_creations, &of_functions_and_creations],
        };
        lists.into_iter().flatten().find(|(_, is_set)| *is_set).map(|(field, _)| *field)
    }
}

impl<C> Encode<C> for TaskSpec {
    #[inline]
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        Borrowed::of(self).encode(e, ctx)
    }
}

impl<'b, C> Decode<'b, C> for TaskSpec {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, DecodeError> {
        let position = d.position();
        let flat = Owned::decode(d, ctx)?;
        let kind = match flat.kind {
            TaskKind::Task(_) => "the call of a function",
            TaskKind::Creation => "the creation of an actor",
            TaskKind::Method(_) => "the call of a method",
        };
        flat.into_spec()
            .map_err(|field| DecodeError::message(format!("{kind} has no `{field}`")).at(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ShapeId, WorkerId};

    const TASK: TaskId = TaskId { owner: WorkerId(7), number: 9 };
    const KINDS: [TaskKind; 3] = [TaskKind::Task(ShapeId(1)), TaskKind::Creation, TaskKind::Method(TASK)];

    /// Sets one field.
    type Set = for<'a> fn(&mut Borrowed<'a>, &'a Values);

    /// What is borrowed.
    struct Values {
        name: Name,
        strategy: Strategy,
    }

    fn decoded(flat: &Borrowed<'_>) -> Result<TaskSpec, String> {
        let bytes = minicbor::to_vec(flat).expect("memory");
        minicbor::decode(&bytes).map_err(|error: DecodeError| error.to_string())
    }

    /// Each field that only some kinds have, and whether functions, creations and methods have it.
    const FIELDS: [(&str, Set, [bool; 3]); 10] = [
        ("concurrency", |flat, _| flat.concurrency = 1, [true, true, false]),
        ("title", |flat, values| flat.title = Some(&values.name), [false, false, true]),
        ("group", |flat, _| flat.group = Some(0), [false, false, true]),
        ("groups", |flat, _| flat.groups = Some(&[1]), [false, true, false]),
        ("unordered", |flat, _| flat.unordered = Some(true), [false, false, true]),
        ("kept", |flat, _| flat.kept = Some(false), [false, false, true]),
        ("checkpoint_every", |flat, _| flat.checkpoint_every = Some(1), [false, true, false]),
        ("strategy", |flat, values| flat.strategy = Some(&values.strategy), [true, true, false]),
        ("priority", |flat, _| flat.priority = Some(0), [true, true, false]),
        ("threads", |flat, _| flat.threads = Some(2), [true, true, false]),
    ];

    #[test]
    fn fields_of_other_kinds_are_refused() {
        let values = Values { name: Name::from("shown"), strategy: Strategy::Spread };
        for (at, kind) in KINDS.into_iter().enumerate() {
            let spec = TaskSpec::new(TASK, kind, FunctionId(3), Name::from("f"), Blob::default());
            assert_eq!(decoded(&Borrowed::of(&spec)), Ok(spec.clone()));
            for (field, set, has) in FIELDS {
                let mut flat = Borrowed::of(&spec);
                set(&mut flat, &values);
                match decoded(&flat) {
                    Ok(read) => {
                        assert!(has[at], "{kind:?} with {field}");
                        assert_ne!(read, spec, "{field} is not dropped");
                        let again = minicbor::to_vec(&read).expect("memory");
                        assert_eq!(again, minicbor::to_vec(&flat).expect("memory"), "{kind:?} with {field}");
                    }
                    Err(error) => {
                        assert!(!has[at], "{kind:?} with {field}: {error}");
                        assert!(error.contains(&format!("has no `{field}`")), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_ordered_call_may_send_so() {
        let kind = TaskKind::Method(TASK);
        let spec = TaskSpec::new(TASK, kind, FunctionId(0), Name::from("f"), Blob::default());
        assert_eq!(decoded(&Flat { unordered: Some(false), ..Borrowed::of(&spec) }), Ok(spec.clone()));
    }
}
