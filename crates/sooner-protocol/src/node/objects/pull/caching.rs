//! Copies that no local process needs, and that stay as long as there is room: secondary copies are a cache
//! (Oakes, table 5.1).
//!
//! The node holds their blocks itself, from the end of the last process that did to the beginning of the next
//! one's. A copy goes when its value goes, which the owner says (or the end of the value's place on this
//! node's disk, for a copy brought back from there), and when there is no room: the least recently needed one
//! goes first, before anything is written to disk.
//!
//! Invariant PU7: a copy is in the table of those that may go if and only if this node holds its block for
//! that alone.

use sooner_wire::ObjectId;
use sooner_wire::message::{Place, SpillId};

use super::{Copy, PullAction, Pulls};
use crate::probes::mark;

impl Copy {
    /// Whether the node would learn when the value goes.
    fn may_be_cached(&self) -> bool {
        self.restored.is_some() || self.directed.as_ref().is_some_and(super::directed::Directed::is_known)
    }
}

impl Pulls {
    /// No local process holds a block any more: true if it stays as a copy that may be needed again.
    pub(super) fn cache(&mut self, object: ObjectId, out: &mut Vec<PullAction>) -> bool {
        let Some(copy) = self.here.get_mut(&object).filter(|copy| copy.may_be_cached()) else { return false };
        mark!("a copy that nobody needed stayed");
        self.made += 1;
        let before = copy.cached.replace(self.made);
        assert_eq!(before, None, "PU7: nobody but this node held it");
        self.cached.insert(self.made, object);
        out.push(PullAction::Hold(copy.block));
        true
    }

    /// Takes a copy out of those that may go. True if it was one.
    pub(super) fn uncache(&mut self, object: ObjectId) -> bool {
        let age = self.here.get_mut(&object).and_then(|copy| copy.cached.take());
        age.is_some_and(|age| self.cached.remove(&age).is_some())
    }

    /// There is no room for `bytes` bytes: copies that no process needs go, the least recently needed first.
    /// Gives the bytes that are free at once; the others are [leaving](Self::leaving_bytes).
    pub fn evict(&mut self, bytes: u64, out: &mut Vec<PullAction>) -> u64 {
        let (mut left, mut free) = (bytes, 0);
        while left > 0
            && let Some((_, object)) = self.cached.pop_first()
        {
            mark!("a copy that nobody needed went for want of room");
            let copy = self.here.get_mut(&object).expect("PU7: it is here");
            copy.cached = None;
            let (block, length) = (copy.block, copy.length);
            left = left.saturating_sub(length);
            if let Some(directed) = &mut copy.directed {
                out.push(directed.leave(object));
                continue;
            }
            free += length;
            self.forget_source(object);
            out.push(PullAction::Release(block));
        }
        free
    }

    /// Bytes of the copies that no process needs.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.cached.values().filter_map(|object| self.here.get(object)).map(|copy| copy.length).sum()
    }

    /// A value is not on this node's disk any more.
    pub fn on_unspilled(&mut self, spilled: SpillId, out: &mut Vec<PullAction>) {
        for open in self.open.values_mut().filter(|open| open.remote.location.place() == Place::Disk(spilled))
        {
            open.is_restored = false;
        }
        let Some(object) = self.restored.get(&spilled).copied() else { return };
        self.forget_source(object);
        if self.uncache(object)
            && let Some(copy) = self.here.get(&object)
        {
            out.push(PullAction::Release(copy.block));
        }
    }

    /// Forgets that a copy came from this node's disk.
    pub(super) fn forget_source(&mut self, object: ObjectId) {
        let source = self.here.get_mut(&object).and_then(|copy| copy.restored.take());
        source.map(|spilled| self.restored.swap_remove(&spilled));
    }

    /// Asserts PU7; for tests and the simulator.
    pub(super) fn check_cached(&self) {
        let ages = self.here.values().filter_map(|copy| copy.cached);
        assert_eq!(ages.count(), self.cached.len(), "PU7: each of them is here");
        for (age, object) in &self.cached {
            assert_eq!(self.here.get(object).and_then(|copy| copy.cached), Some(*age), "PU7: {object:?}");
        }
        for (spilled, object) in &self.restored {
            assert_eq!(
                self.here.get(object).and_then(|copy| copy.restored),
                Some(*spilled),
                "PU7: {object:?}"
            );
        }
    }
}
