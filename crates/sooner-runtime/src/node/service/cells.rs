//! Which progress cells of the node's mapping are taken. Each process that has greeted has one, in which it
//! records what it began last.
//!
//! It never reads or writes a cell.

use sooner_wire::limits::PROGRESS_CELLS;

/// The cells that are free: those that were given back, and all from `never_taken` on.
#[derive(Debug, Default)]
pub(super) struct Cells {
    given_back: Vec<u32>,
    never_taken: u32,
}

impl Cells {
    /// A cell for one process; `None` if all are taken.
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(cell) = self.given_back.pop() {
            return Some(cell);
        }
        let cell = self.never_taken;
        let is_there = (cell as usize) < PROGRESS_CELLS;
        self.never_taken += u32::from(is_there);
        is_there.then_some(cell)
    }

    /// The process of a cell has ended.
    pub(super) fn give_back(&mut self, cell: u32) {
        self.given_back.push(cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_taken_once_until_it_is_given_back() {
        let mut cells = Cells::default();
        let taken: Vec<_> = std::iter::from_fn(|| cells.take()).collect();
        assert_eq!(taken, (0..PROGRESS_CELLS as u32).collect::<Vec<_>>());
        assert_eq!(cells.take(), None);
        cells.give_back(7);
        assert_eq!((cells.take(), cells.take()), (Some(7), None));
    }
}
