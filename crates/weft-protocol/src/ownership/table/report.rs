//! What the ownership table tells about its objects.

use weft_wire::message::Outcome;
use weft_wire::message::state::ObjectRow;
use weft_wire::{ObjectId, WorkerId};

use super::{Origin, Ownership, Record};

impl Ownership {
    /// The first so many objects.
    #[must_use]
    pub fn report(&self, most: usize) -> Vec<ObjectRow> {
        self.objects().take(most).map(|(object, record)| row(object, record)).collect()
    }
}

fn row(object: ObjectId, record: &Record) -> ObjectRow {
    let (state, size) = match record.slot.outcome() {
        None => (0, 0),
        Some(Outcome::Inline(bytes)) => (1, bytes.len() as u64),
        Some(Outcome::Stored(location)) => (2, location.length),
        Some(Outcome::Failed(_)) => (3, 0),
    };
    let (owned, borrowers): (bool, Vec<WorkerId>) = match &record.origin {
        Origin::Owned(_) => (true, record.borrowers()),
        Origin::Borrowed { .. } => (false, Vec::new()),
    };
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    ObjectRow {
        object,
        state,
        size,
        owned,
        handles: record.slot.handles(),
        uses: record.uses,
        borrowers,
        contained: count(record.contained.len()),
        is_actor: record.is_actor,
        dependents: record.waiting.as_ref().map_or(0, |waiting| count(waiting.dependents.len())),
    }
}
