//! What many records have in common: name, function, actor and parent, each combination once.
//!
//! A label lives as long as a record refers to it. Names are bounded in bytes: a program that names each task
//! differently does not fill the memory; its further names are reported as [`OTHER`].

use sooner_wire::message::{Target, TaskSpec};
use sooner_wire::{ActorId, FunctionId, Name, TaskId};

use crate::table::Map;

/// Stands for names for which there was no room.
pub const OTHER: &str = "(other)";

/// Places where the latest labels are found without hashing.
const RECENT: usize = 16;

/// Bytes of a label besides its name: about what the tables take.
const LABEL_BYTES: usize = 192;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Label {
    /// The display name.
    pub name: Name,
    /// The function or class; none for calls of actors.
    pub function: Option<FunctionId>,
    /// Method of an actor: its name if the display name is another.
    pub method: Option<Name>,
    /// The actor that is called.
    pub actor: Option<ActorId>,
    /// The task that submitted it.
    pub parent: Option<TaskId>,
}

#[derive(Debug)]
struct Entry {
    label: Label,
    uses: u32,
}

/// All labels, by number. Number 0 is [`OTHER`].
#[derive(Debug)]
pub struct Labels {
    entries: Vec<Entry>,
    free: Vec<u32>,
    numbers: Map<Label, u32>,
    recent: [u32; RECENT],
    bytes: usize,
    bytes_max: usize,
}

impl Default for Labels {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Labels {
    pub(super) fn new(bytes_max: usize) -> Self {
        let other =
            Label { name: Name::from(OTHER), function: None, method: None, actor: None, parent: None };
        Self {
            entries: vec![Entry { label: other, uses: 1 }],
            free: Vec::new(),
            numbers: Map::default(),
            recent: [0; RECENT],
            bytes: 0,
            bytes_max,
        }
    }

    /// The number of a task's label. Counts one use more.
    #[inline]
    pub(super) fn take(&mut self, spec: &TaskSpec, parent: Option<TaskId>) -> u32 {
        let name = spec.shown_name();
        let (function, actor) = match &spec.target {
            Target::Function(call) => (Some(call.function), None),
            Target::Class(creation) => (Some(creation.class), None),
            Target::Method(call) => (None, Some(call.actor)),
        };
        let mix = name.as_str().as_ptr() as usize >> 4;
        let mix = mix ^ actor.map_or(0, |a| a.number as usize) ^ parent.map_or(0, |p| p.number as usize);
        let at = mix % RECENT;
        let number = self.recent[at];
        let entry = &mut self.entries[number as usize];
        let label = &entry.label;
        // A label holds its name, so equal addresses are equal names.
        let is_same = std::ptr::eq(label.name.as_str(), name.as_str())
            && label.function == function
            && label.actor == actor
            && label.parent == parent;
        if is_same && entry.uses > 0 {
            entry.uses += 1;
            return number;
        }
        let method = spec.method().filter(|call| call.title.is_some()).map(|_| spec.name.clone());
        let label = Label { name: name.clone(), function, method, actor, parent };
        let number = self.find(label);
        self.recent[at] = number;
        number
    }

    fn find(&mut self, label: Label) -> u32 {
        if let Some(number) = self.numbers.get(&label) {
            self.entries[*number as usize].uses += 1;
            return *number;
        }
        let bytes = label.bytes();
        if self.bytes + bytes > self.bytes_max {
            self.entries[0].uses += 1;
            return 0;
        }
        self.bytes += bytes;
        let entry = Entry { label: label.clone(), uses: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("fewer labels than records")
            }
        };
        self.numbers.insert(label, number);
        number
    }

    /// Ends one use of a label.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        self.bytes -= entry.label.bytes();
        self.numbers.swap_remove(&entry.label);
        self.free.push(number);
    }

    /// The label with this number.
    pub(super) fn get(&self, number: u32) -> &Label {
        &self.entries[number as usize].label
    }

    /// All labels, by number; free ones keep their last name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Label> {
        self.entries.iter().map(|entry| &entry.label)
    }
}

impl Label {
    fn bytes(&self) -> usize {
        LABEL_BYTES + self.name.as_str().len() + self.method.as_ref().map_or(0, |name| name.as_str().len())
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::TaskKind;
    use sooner_wire::{Blob, ShapeId, WorkerId};

    use super::*;

    fn spec(name: &str) -> TaskSpec {
        TaskSpec::new(
            TaskId { owner: WorkerId(1), number: 1 },
            TaskKind::Task(ShapeId(0)),
            FunctionId(3),
            Name::from(name),
            Blob::default(),
        )
    }

    #[test]
    fn equal_labels_share_a_number_until_nobody_uses_it() {
        let mut labels = Labels::new(10 * LABEL_BYTES);
        let (f, again) = (spec("f"), spec("f"));
        let number = labels.take(&f, None);
        assert_eq!(labels.take(&f, None), number);
        assert_eq!(labels.take(&again, None), number, "found by its text");
        let child = labels.take(&f, Some(f.task));
        assert_ne!(child, number, "another parent");
        (0..3).for_each(|_| labels.release(number));
        assert_eq!(labels.take(&spec("g"), None), number, "its place is free");
        labels.release(child);
        labels.release(number);
        assert_eq!((labels.bytes, labels.numbers.len()), (0, 0));
    }

    #[test]
    fn names_beyond_the_bound_are_others() {
        let mut labels = Labels::new(LABEL_BYTES + 10);
        assert_ne!(labels.take(&spec("first"), None), 0);
        assert_eq!(labels.take(&spec("second"), None), 0);
        labels.release(0);
        assert_eq!(labels.iter().next().map(|label| label.name.as_str()), Some(OTHER));
    }
}
