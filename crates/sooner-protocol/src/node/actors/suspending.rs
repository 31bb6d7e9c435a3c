//! Actors whose processes hold no resources: their constructors wait for arguments that are computed again,
//! perhaps with the very resources that these actors need (`worker/execution/suspending.rs`). An actor gets
//! back what it gave up before its constructor begins.

use sooner_wire::message::Resumed;
use sooner_wire::strategy::InGroup;
use sooner_wire::{ActorId, ResourceSet, Strategy, WorkerId};

use super::local_actors::LocalActors;
use crate::node::NodeActions;
use crate::node::core::send;
use crate::scheduling::{Grant, Pools};

/// What an actor needs that gave up its resources.
#[derive(Debug)]
pub(in crate::node) struct Suspended {
    needs: ResourceSet,
    raises_memory: bool,
    /// Its arguments are there.
    is_ready: bool,
}

impl LocalActors {
    /// The process of an actor waits for an argument of its constructor, or has it.
    pub(in crate::node) fn on_suspended(
        &mut self,
        from: WorkerId,
        actor: ActorId,
        is_ready: bool,
        resources: &mut Pools,
    ) {
        let Some(local) = self.actors.get_mut(&actor) else { return };
        let Some((_, grant)) = local.process.as_mut().filter(|(worker, _)| *worker == from) else { return };
        match &mut local.suspended {
            Some(suspended) => suspended.is_ready = is_ready,
            None if is_ready => {}
            None => {
                let (needs, raises_memory) = (grant.resources.clone(), grant.raises_memory);
                resources.release(grant);
                // The actor stays in its bundle, if any: it ends with that.
                *grant = match bundle_of(grant) {
                    None => Grant::default(),
                    bundle => {
                        let none = resources.acquire(&ResourceSet::default(), bundle.as_ref());
                        none.unwrap_or_default()
                    }
                };
                local.suspended = Some(Suspended { needs, raises_memory, is_ready });
                self.suspended.push(actor);
            }
        }
    }

    /// Gives actors that are ready their resources again, before actors that have not begun.
    pub(in crate::node) fn resume(&mut self, resources: &mut Pools, out: &mut NodeActions) {
        if self.suspended.is_empty() {
            return;
        }
        for actor in std::mem::take(&mut self.suspended) {
            let Some(local) = self.actors.get_mut(&actor) else { continue };
            let (Some(suspended), Some((worker, grant))) = (&local.suspended, &mut local.process) else {
                continue;
            };
            let full = suspended.is_ready.then(|| {
                let bundle = bundle_of(grant);
                resources.acquire(&suspended.needs, bundle.as_ref())
            });
            let Some(mut full) = full.flatten() else {
                self.suspended.push(actor);
                continue;
            };
            full.raises_memory = suspended.raises_memory;
            resources.release(grant);
            let gpus = full.gpu_indices();
            *grant = full;
            local.suspended = None;
            out.push(send(*worker, Resumed { actor, gpus }));
        }
    }
}

/// The bundle of a grant, if it is from a placement group.
fn bundle_of(grant: &Grant) -> Option<Strategy> {
    let (group, bundle) = grant.bundle?;
    Some(Strategy::Group(InGroup { group, bundle: Some(bundle), captures: false }))
}
