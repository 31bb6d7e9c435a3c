//! What the ownership table reports about its objects.

use sooner_wire::message::Outcome;
use sooner_wire::message::state::{ObjectDetail, ObjectRow};
use sooner_wire::{Name, ObjectId, WorkerId};

use super::{Origin, Ownership, Record};

/// References inside a value that are named per object.
const INNER_MAX: usize = 8;

impl Ownership {
    /// Rows of the first `most` objects.
    #[must_use]
    pub fn report(&self, most: usize) -> Vec<ObjectRow> {
        self.objects().take(most).map(|(object, record)| self.row(object, record)).collect()
    }

    /// Keeps an object for the rest of the session: a pickled reference to it may be anywhere.
    pub fn pin(&mut self, object: ObjectId) {
        self.add_use(object);
        *self.pins.entry(object).or_default() += 1;
    }

    /// How often an object was pinned.
    #[must_use]
    pub fn pins(&self, object: ObjectId) -> u32 {
        self.pins.get(&object).copied().unwrap_or_default()
    }

    /// Records where an object in the table was made.
    pub fn set_site(&mut self, object: ObjectId, site: Name) {
        if self.records.contains_key(&object) {
            self.sites.insert(object, site);
        }
    }

    /// Where an object was made, if that is recorded.
    #[must_use]
    pub fn site(&self, object: ObjectId) -> Option<&Name> {
        self.sites.get(&object)
    }

    fn row(&self, object: ObjectId, record: &Record) -> ObjectRow {
        let (state, size) = match record.slot.outcome().as_deref() {
            None => (0, 0),
            Some(Outcome::Inline(bytes)) => (1, bytes.len() as u64),
            Some(Outcome::Stored(location)) => (2, location.length),
            Some(Outcome::Remote(remote)) if record.is_dropped => (5, remote.location.length),
            Some(Outcome::Remote(remote)) if record.slot.is_on_disk() => (4, remote.location.length),
            Some(Outcome::Remote(remote)) => (2, remote.location.length),
            Some(Outcome::Failed(_)) => (3, 0),
        };
        let (owned, borrowers): (bool, Vec<WorkerId>) = match &record.origin {
            Origin::Owned(_) => (true, record.borrowers()),
            Origin::Borrowed { .. } => (false, Vec::new()),
        };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let waiting = record.waiting.as_ref();
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
            dependents: waiting.map_or(0, |waiting| count(waiting.dependents.len())),
            detail: Some(ObjectDetail {
                views: record.slot.views(),
                inner: record.contained.iter().take(INNER_MAX).copied().collect(),
                site: self.site(object).map(|site| site.as_str().to_owned()),
                fetching: state == 0 && matches!(record.origin, Origin::Borrowed { fetching: true, .. }),
                waiting: waiting.map(|waiting| waiting.fetchers.clone()).unwrap_or_default(),
                lineage: Some(record.lineage.into()),
                ..ObjectDetail::default()
            }),
        }
    }

    /// Objects whose values contain references, and those references.
    pub(crate) fn containing(&self) -> impl Iterator<Item = (ObjectId, &[ObjectId])> {
        let containing = self.objects().filter(|(_, record)| !record.contained.is_empty());
        containing.map(|(object, record)| (object, &*record.contained))
    }
}
