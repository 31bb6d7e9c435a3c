//! Who borrows an object of this process, and who said so.
//!
//! A registration is counted under the process that made it until that is known to count: its word to us may be lost with
//! it, or that to the borrower, which returns what it had from whom. Both are right again when the death of the process that
//! made the registration is settled.
//!
//! Registrations and returns may arrive in any order: a count may be negative for a moment, while the process that handed
//! the reference on is still a borrower itself.

use weft_wire::WorkerId;

/// One borrower, as far as one process registered it.
#[derive(Debug, Clone, Copy, Hash)]
struct Borrow {
    who: WorkerId,
    /// `None`: ourselves, the borrower, or somebody whose death is settled.
    giver: Option<WorkerId>,
    count: i32,
}

/// See the module. Few: a list is smaller than a map and as fast.
#[derive(Debug, Default, Clone, Hash)]
pub struct Borrowers {
    borrows: Vec<Borrow>,
}

impl Borrowers {
    /// Counts registrations, or returns (negative). Gives the count after.
    pub fn change(&mut self, who: WorkerId, giver: Option<WorkerId>, change: i32) -> i32 {
        let Some(at) = self.borrows.iter().position(|borrow| borrow.who == who && borrow.giver == giver)
        else {
            self.borrows.push(Borrow { who, giver, count: change });
            return change;
        };
        self.borrows[at].count += change;
        let count = self.borrows[at].count;
        if count == 0 {
            self.borrows.swap_remove(at);
        }
        count
    }

    /// What a process borrowed, and what it registered, counts no more.
    pub fn end(&mut self, gone: WorkerId) {
        self.borrows.retain(|borrow| borrow.who != gone && borrow.giver != Some(gone));
    }

    /// Whether a process borrows, or registered a borrower.
    #[must_use]
    pub fn names(&self, process: WorkerId) -> bool {
        self.borrows.iter().any(|borrow| borrow.who == process || borrow.giver == Some(process))
    }

    /// Whether nobody borrows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.borrows.is_empty()
    }

    /// Whether another process registered a borrower.
    #[must_use]
    pub fn is_handed_on(&self) -> bool {
        self.borrows.iter().any(|borrow| borrow.giver.is_some())
    }

    /// The borrowers, each once.
    #[must_use]
    pub fn list(&self) -> Vec<WorkerId> {
        let mut list: Vec<WorkerId> = self.borrows.iter().map(|borrow| borrow.who).collect();
        list.sort_unstable();
        list.dedup();
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorkerId = WorkerId(1);
    const B: WorkerId = WorkerId(2);

    #[test]
    fn returns_may_come_first() {
        let mut borrowers = Borrowers::default();
        assert_eq!(borrowers.change(A, Some(B), -1), -1);
        assert_eq!(borrowers.change(A, Some(B), 1), 0);
        assert!(borrowers.is_empty());
    }

    #[test]
    fn registrations_are_counted_by_who_made_them() {
        let mut borrowers = Borrowers::default();
        borrowers.change(A, None, 1);
        borrowers.change(A, Some(B), 2);
        borrowers.change(B, None, 1);
        assert_eq!(borrowers.list(), [A, B]);
        borrowers.end(B);
        assert!(!borrowers.names(B) && borrowers.names(A));
        assert_eq!(borrowers.change(A, None, -1), 0);
        assert!(borrowers.is_empty());
    }
}
