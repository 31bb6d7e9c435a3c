//! Which processes borrow an object of this process, and which process registered each.
//!
//! Each registration remembers who made it (the *giver*). If the giver dies, its message to the owner or to
//! the borrower may be lost, and the borrower returns per giver what it received: the count is provisional
//! until that death is settled.
//!
//! Registrations and returns may arrive in any order: a count may be negative for a moment, while the giver
//! is still a borrower itself.
//!
//! References that a borrower reported to hold from a dead process may be returned before that death is
//! settled here. Such returns are set aside until then: counted at once, they would cancel what the borrower
//! received since.

use sooner_wire::WorkerId;

/// One borrower, as far as one process registered it.
#[derive(Debug, Clone, Copy, Hash)]
struct Borrow {
    who: WorkerId,
    /// `None`: this process, the borrower itself, or a process whose death is settled.
    giver: Option<WorkerId>,
    count: i32,
    /// Returns that wait for the giver's death to be settled: not borrowed.
    is_set_aside: bool,
}

/// Which registrations a return of references counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// None: the return was under way while the death of the giver was settled.
    Nothing,
    /// Those that the borrower reported to hold from this process, whose death is not settled yet.
    Later(WorkerId),
    /// Those that this giver made; `None`: those without a giver.
    Now(Option<WorkerId>),
}

impl Return {
    /// For a return of references from `giver`. `was_sent`: the borrower had already reported that it holds
    /// them from `giver`, which is dead.
    #[must_use]
    pub fn of(giver: Option<WorkerId>, was_sent: bool, is_settled: impl Fn(WorkerId) -> bool) -> Self {
        match giver {
            Some(giver) if was_sent && !is_settled(giver) => Self::Later(giver),
            Some(_) if was_sent => Self::Now(None),
            Some(giver) if is_settled(giver) => Self::Nothing,
            giver => Self::Now(giver),
        }
    }
}

/// See the module. Few: a list is smaller than a map and as fast.
#[derive(Debug, Default, Clone, Hash)]
pub struct Borrowers {
    borrows: Vec<Borrow>,
}

impl Borrowers {
    /// Counts registrations of `who` by `giver`, or returns (negative). Gives the new count.
    pub fn change(&mut self, who: WorkerId, giver: Option<WorkerId>, change: i32) -> i32 {
        let is_same = |borrow: &Borrow| borrow.who == who && borrow.giver == giver && !borrow.is_set_aside;
        let Some(at) = self.borrows.iter().position(is_same) else {
            self.borrows.push(Borrow { who, giver, count: change, is_set_aside: false });
            return change;
        };
        self.borrows[at].count += change;
        let count = self.borrows[at].count;
        if count == 0 {
            self.borrows.swap_remove(at);
        }
        count
    }

    /// `who` returns `count` references that it had reported to hold from the dead `giver`: this counts when
    /// that death is settled.
    pub fn set_aside(&mut self, who: WorkerId, giver: WorkerId, count: i32) {
        self.borrows.push(Borrow { who, giver: Some(giver), count, is_set_aside: true });
    }

    /// Takes the returns that are set aside: borrower, giver, and count.
    pub fn take_set_aside(&mut self) -> Vec<(WorkerId, WorkerId, i32)> {
        let taken = self.borrows.extract_if(.., |borrow| borrow.is_set_aside);
        taken.filter_map(|borrow| Some((borrow.who, borrow.giver?, borrow.count))).collect()
    }

    /// The death of a process is settled: what others reported to hold from it counts, and what it borrowed
    /// or registered counts no more. Counts the returns that were set aside. Gives their borrowers.
    pub fn end(&mut self, gone: WorkerId) -> Vec<WorkerId> {
        let mut returned = Vec::new();
        let ended = |borrow: &mut Borrow| borrow.who == gone || borrow.giver == Some(gone);
        for borrow in self.borrows.extract_if(.., ended).collect::<Vec<_>>() {
            if borrow.is_set_aside && borrow.who != gone {
                self.change(borrow.who, None, -borrow.count);
                returned.push(borrow.who);
            }
        }
        returned
    }

    /// Whether a process borrows, or registered a borrower.
    #[must_use]
    pub fn names(&self, process: WorkerId) -> bool {
        self.borrows.iter().any(|borrow| borrow.who == process || borrow.giver == Some(process))
    }

    /// Whether no process borrows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.borrows.iter().all(|borrow| borrow.is_set_aside)
    }

    /// Whether another process registered a borrower.
    #[must_use]
    pub fn is_handed_on(&self) -> bool {
        self.borrows.iter().any(|borrow| borrow.giver.is_some() && !borrow.is_set_aside)
    }

    /// The borrowers, each once.
    #[must_use]
    pub fn list(&self) -> Vec<WorkerId> {
        let counted = self.borrows.iter().filter(|borrow| !borrow.is_set_aside);
        let mut list: Vec<WorkerId> = counted.map(|borrow| borrow.who).collect();
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
    fn what_was_set_aside_counts_when_the_death_of_its_giver_is_settled() {
        let mut borrowers = Borrowers::default();
        // B handed it to A and died; A said that it holds it, returned it, and was handed it again.
        borrowers.change(A, Some(B), 1);
        borrowers.set_aside(A, B, 1);
        assert_eq!(borrowers.change(A, None, 1), 1);
        // What A said.
        borrowers.change(A, None, 1);
        borrowers.end(B);
        assert_eq!(borrowers.list(), [A]);
        assert_eq!(borrowers.change(A, None, -1), 0);
        assert!(borrowers.is_empty());
    }

    #[test]
    fn nobody_borrows_what_is_only_set_aside() {
        let mut borrowers = Borrowers::default();
        borrowers.set_aside(A, B, 1);
        assert!(borrowers.is_empty() && borrowers.list().is_empty() && !borrowers.is_handed_on());
        assert!(borrowers.names(A) && borrowers.names(B));
        borrowers.end(A);
        assert!(!borrowers.names(B));
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
