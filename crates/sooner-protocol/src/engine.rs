//! The core of a node with its way to the control service, which is in the same process or is sent messages.
//!
//! The shell of a node never asks which of the two it is. Calls that concern this machine alone go to
//! [`NodeCore`] itself, to which an engine dereferences. Calls that may send to the control service, or
//! depend on what the control service knows, are here. The library, the simulator and the models drive this
//! very type.

use std::ops::{Deref, DerefMut};

use sooner_wire::message::Message;
use sooner_wire::message::state::NodeReport;
use sooner_wire::strategy::Labels;
use sooner_wire::{ResourceSet, Started, WorkerId};

use crate::node::uplink::Member;
use crate::node::{NodeActions, NodeCore};
use crate::time::Instant;

mod solo;

pub use solo::Solo;

/// See the module.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one to a node, and each message of a session goes through it"
)]
pub enum Engine {
    /// The only node, with the control service in it.
    Alone(Solo),
    /// A node of a cluster, with the cluster's control service.
    Member(Box<Member>),
}

/// Calls the core, whichever of the two there is.
macro_rules! ask {
    ($engine:expr, $core:ident => $question:expr) => {
        match $engine {
            Engine::Alone($core) => $question,
            Engine::Member($core) => $question,
        }
    };
}

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The only node.
    Alone,
    /// A node of a cluster.
    Member,
    /// A program's node in a cluster; nothing runs on it.
    Program,
}

impl Engine {
    /// A node with these resources. Ids of its processes count up from `first_worker`, which must differ from
    /// that of every other session; `pool_size` idle workers are kept.
    #[must_use]
    pub fn new(total: ResourceSet, first_worker: u64, pool_size: usize, part: Part) -> Self {
        let member = |total| {
            let mut member = Member::new(total, first_worker, pool_size);
            member.ask_owners();
            member
        };
        match part {
            Part::Alone => Self::Alone(Solo::new(total, first_worker, pool_size)),
            Part::Member => Self::Member(Box::new(member(total))),
            Part::Program => Self::Member(Box::new(member(total).of_program())),
        }
    }

    /// The node has these labels, sorted by key.
    pub fn set_labels(&mut self, labels: Labels) {
        ask!(self, core => core.set_labels(labels));
    }

    /// The core of a node in a cluster.
    pub fn member(&mut self) -> Option<&mut Member> {
        match self {
            Self::Alone(_) => None,
            Self::Member(member) => Some(member),
        }
    }

    /// A client's connection ended. `reason` is for people; `last_started` says what it began last.
    pub fn on_dead(
        &mut self,
        client: WorkerId,
        reason: &str,
        last_started: Option<Started>,
        out: &mut NodeActions,
    ) {
        ask!(self, core => core.on_dead(client, reason, last_started, out));
    }

    /// Whether nothing is left of a job: no driver, no worker here, and no actor anywhere.
    #[must_use]
    pub fn is_over(&self, job: WorkerId) -> bool {
        ask!(self, core => core.is_over(job))
    }

    /// A driver leaves in order: nothing more begins for it.
    pub fn on_leaving(&mut self, driver: WorkerId, out: &mut NodeActions) {
        ask!(self, core => core.on_leaving(driver, out));
    }

    /// A message came from a client. Returned if the core does not handle it: a block is to be allocated.
    pub fn on_message(
        &mut self,
        from: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Message> {
        ask!(self, core => core.on_message(from, message, now, out))
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn after_events(&mut self, now: Instant, out: &mut NodeActions) {
        ask!(self, core => core.after_events(now, out));
    }

    /// When [`Self::after_events`] must be called again, even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        ask!(self, core => core.next_deadline())
    }

    /// What the core knows, and the control service in this process; the shell adds the store, processes and
    /// metrics.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        ask!(self, core => core.report())
    }
}

impl Deref for Engine {
    type Target = NodeCore;

    fn deref(&self) -> &NodeCore {
        ask!(self, core => core)
    }
}

impl DerefMut for Engine {
    fn deref_mut(&mut self) -> &mut NodeCore {
        ask!(self, core => core)
    }
}
