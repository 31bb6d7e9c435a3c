//! The row of a message: its number, its routes, whether it carries values, and what its sender may say.
//!
//! The row stands once, beside the struct. From it follow: what can be inside of a [`super::Routed`], what
//! nodes and the control service accept of each other, and which messages name the nodes of values
//! ([`crate::place`]). The numbers are the schema: they are never reused.
//!
//! This module never decides what is done with a message.

use super::{Message, Outcome};
use crate::{NodeId, ObjectId, WorkerId};

/// Whether nodes or the control service pass on messages of this route.
macro_rules! is_passed_on {
    (->) => {
        false
    };
    (=>) => {
        true
    };
}

macro_rules! routes {
    ($($(#[$doc:meta])* $name:ident: $from:ident $arrow:tt $to:ident,)*) => {
        /// From whom to whom a message goes. `->`: over a connection between the two. `=>`: inside of a
        /// [`Routed`](super::Routed), between two nodes or between a node and the control service.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Route { $($(#[$doc])* $name,)* }

        impl Route {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As rows write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => concat!(stringify!($from), " ", stringify!($arrow), " ", stringify!($to)),)*
                }
            }

            /// Whether messages of this route are inside of a [`Routed`](super::Routed).
            #[must_use]
            pub const fn is_passed_on(self) -> bool {
                match self { $(Self::$name => is_passed_on!($arrow),)* }
            }
        }

        /// The route that a row names.
        macro_rules! route {
            $(($from $arrow $to) => { $crate::message::Route::$name };)*
        }
    };
}

routes! {
    /// A process, or a tool, to its node.
    ProcessToNode: process -> node,
    /// The reverse.
    NodeToProcess: node -> process,
    /// One process to another one, on the same node or not.
    ProcessToProcess: process -> process,
    /// The template of a node to it.
    TemplateToNode: template -> node,
    /// The reverse.
    NodeToTemplate: node -> template,
    /// Over a link between two nodes, or over a connection for values.
    NodeToNode: node -> node,
    /// A node to the control service, about the node itself and others: membership, health, resources.
    NodeToControl: node -> control,
    /// The reverse.
    ControlToNode: control -> node,
    /// Over the same connection, to the directory: actors, names, groups, jobs and ends of processes.
    NodeToDirectory: node -> directory,
    /// The reverse.
    DirectoryToNode: directory -> node,
    /// A process to another node than its own.
    ProcessToOtherNode: process => node,
    /// A node to a process of another one.
    NodeToOtherProcess: node => process,
    /// A node to another one.
    NodeToOtherNode: node => node,
    /// A process to the directory. Its node passes it on.
    ProcessToDirectory: process => directory,
    /// The reverse.
    DirectoryToProcess: directory => process,
    /// A node that asks the directory as a process does.
    AskingNodeToDirectory: node => directory,
    /// The answer.
    DirectoryToAskingNode: directory => node,
    /// A node that asks the control service as a tool asks a node.
    AskingNodeToControl: node => control,
    /// The answer.
    ControlToAskingNode: control => node,
}

impl Route {
    /// Whether the route is between a node and its processes, or between two processes. Rows do not check
    /// what those claim: they know each other by their connections.
    const fn is_within_node(self) -> bool {
        use Route::{NodeToProcess, NodeToTemplate, ProcessToNode, ProcessToProcess, TemplateToNode};
        matches!(self, ProcessToNode | NodeToProcess | ProcessToProcess | TemplateToNode | NodeToTemplate)
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Routes(u32);

impl Routes {
    /// Routes inside of a [`Routed`](super::Routed).
    const PASSED_ON: Self = {
        let (mut all, mut at) = (0, 0);
        while at < Route::ALL.len() {
            let route = Route::ALL[at];
            if route.is_passed_on() {
                all |= 1 << route as u32;
            }
            at += 1;
        }
        Self(all)
    };

    /// A set of these.
    ///
    /// # Panics
    /// When a route is listed twice; for a row that is when it is compiled.
    #[must_use]
    pub const fn of(list: &[Route]) -> Self {
        let (mut all, mut at) = (0, 0);
        while at < list.len() {
            let bit = 1 << list[at] as u32;
            assert!(all & bit == 0, "a route is there twice");
            all |= bit;
            at += 1;
        }
        Self(all)
    }

    /// Whether the route is one of them.
    #[inline]
    #[must_use]
    pub const fn contains(self, route: Route) -> bool {
        self.0 & (1 << route as u32) != 0
    }

    /// Whether one of them is inside of a [`Routed`](super::Routed).
    #[inline]
    #[must_use]
    pub const fn is_passed_on(self) -> bool {
        self.0 & Self::PASSED_ON.0 != 0
    }

    /// Each of them, in the order of [`Route::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Route> {
        Route::ALL.iter().copied().filter(move |route| self.contains(*route))
    }
}

/// The route, the sender and the receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The route.
    pub route: Route,
    /// The sender: a process, a node as the process number 0 of its ids, or zero for the control service.
    pub from: WorkerId,
    /// The receiver, likewise.
    pub to: WorkerId,
}

impl Ends {
    /// Whether the sender may speak for a process, which must be one of the sender's node.
    #[must_use]
    pub fn speaks_for(&self, process: WorkerId) -> bool {
        let node = self.from.node();
        process.node() == node && process.0 != node.0
    }

    /// Whether the owner of `object` sends this to `node`, about the copy there.
    #[must_use]
    pub fn are_owner_and_copy(&self, object: ObjectId, node: NodeId) -> bool {
        object.owner() == self.from && node == self.to.node()
    }

    /// Whether `node` sends this to the owner of `object`, about the copy there.
    #[must_use]
    pub fn are_copy_and_owner(&self, object: ObjectId, node: NodeId) -> bool {
        object.owner() == self.to && node == self.from.node()
    }
}

/// Why a message is not accepted from its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteError {
    /// Messages of this kind do not take this route.
    NoRoute {
        /// The number of the kind.
        kind: u16,
        /// Its name.
        name: &'static str,
        /// The route on which the message came.
        route: Route,
    },
    /// The route is right, but the sender may not claim what the message says.
    Claim {
        /// The name of its kind.
        name: &'static str,
        /// What is wrong, for people.
        why: &'static str,
    },
    /// Sender and receiver are not those that the connection is for: what is wrong, for people.
    Ends(&'static str),
}

impl std::fmt::Display for RouteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRoute { kind, name, route } => {
                write!(f, "{name} (kind {kind}) does not go this way: {route}")
            }
            Self::Claim { name, why } => write!(f, "{name}: {why}"),
            Self::Ends(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RouteError {}

/// What changes outcomes of objects in a message.
pub(crate) type Change<'a> = &'a mut dyn FnMut(ObjectId, &mut Outcome);

/// What `row!` records beside the struct of a message.
pub trait Row {
    /// The number of the kind.
    const KIND: u16;
    /// The name of the kind.
    const NAME: &'static str;
    /// Its routes.
    const ROUTES: Routes;
    /// Whether the message says where values are.
    const CARRIES_VALUES: bool;
}

/// What the row says of one message: [`Message`] asks its inner struct.
pub(super) trait Checked {
    fn check(&self, ends: &Ends) -> Result<(), &'static str>;
    fn for_each_outcome(&mut self, change: Change<'_>);
}

/// The row of any message, for tables over all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowOf {
    /// The number of the kind.
    pub kind: u16,
    /// The name of the kind.
    pub name: &'static str,
    /// Its routes.
    pub routes: Routes,
    /// Whether the message says where values are.
    pub carries_values: bool,
}

impl RowOf {
    pub(super) const fn new<T: Row>() -> Self {
        Self { kind: T::KIND, name: T::NAME, routes: T::ROUTES, carries_values: T::CARRIES_VALUES }
    }

    /// Whether each number stands for one kind, and none of them is `other`.
    pub(super) const fn are_unique(rows: &[Self], other: u16) -> bool {
        let mut at = 0;
        while at < rows.len() {
            let mut before = 0;
            while before < at {
                if rows[before].kind == rows[at].kind {
                    return false;
                }
                before += 1;
            }
            if rows[at].kind == other {
                return false;
            }
            at += 1;
        }
        true
    }
}

impl Message {
    /// Checks that the message may take this route, from this sender to this receiver.
    ///
    /// # Errors
    /// [`RouteError`]: it may not.
    pub fn check(&self, ends: Ends) -> Result<(), RouteError> {
        let RowOf { kind, name, routes, .. } = self.row();
        if !routes.contains(ends.route) {
            return Err(RouteError::NoRoute { kind, name, route: ends.route });
        }
        if ends.route.is_within_node() {
            return Ok(());
        }
        self.check_claims(&ends).map_err(|why| RouteError::Claim { name, why })
    }
}

/// The row of a message, directly below its struct:
///
/// ```text
/// row! {
///     141 LeaseGrantedAt: [node => node]; no values;
///     only if |granted, ends| ends.speaks_for(granted.worker), else "it grants a process that is not its own";
/// }
/// ```
///
/// Number and name, the routes (at least one), whether it says where values are (then it has
/// [`crate::place::Values`]), and what must hold where it comes from another node or from the control
/// service.
macro_rules! row {
    ($kind:literal $name:ident: [$($routes:tt)*]; no values $($checks:tt)*) => {
        row! { @row $kind $name [$($routes)*] [$($checks)*] false }
        row! { @checked $name [$($checks)*] (message, change) { let _ = (message, change); } }
    };
    ($kind:literal $name:ident: [$($routes:tt)*]; values $($checks:tt)*) => {
        row! { @row $kind $name [$($routes)*] [$($checks)*] true }
        row! { @checked $name [$($checks)*] (message, change) { $crate::place::Values::each(message, change) } }
    };
    (@row $kind:literal $name:ident [$($from:ident $arrow:tt $to:ident),+ $(,)?] [$($checks:tt)*] $carries:literal) => {
        impl $crate::message::Row for $name {
            const KIND: u16 = $kind;
            const NAME: &'static str = stringify!($name);
            const ROUTES: $crate::message::Routes =
                $crate::message::Routes::of(&[$($crate::message::row::route!($from $arrow $to)),+]);
            const CARRIES_VALUES: bool = $carries;
        }
    };
    (
        @checked $name:ident [$(; only if $check:expr, else $why:literal)* $(;)?]
        ($message:ident, $change:ident) $each:block
    ) => {
        impl $crate::message::row::Checked for $name {
            #[inline]
            fn check(&self, ends: &$crate::message::Ends) -> Result<(), &'static str> {
                let _ = ends;
                $(
                    let holds: fn(&Self, &$crate::message::Ends) -> bool = $check;
                    if !holds(self, ends) {
                        return Err($why);
                    }
                )*
                Ok(())
            }

            #[inline]
            fn for_each_outcome(&mut self, $change: $crate::message::row::Change<'_>) {
                let $message = self;
                $each
            }
        }
    };
}

pub(crate) use route;
