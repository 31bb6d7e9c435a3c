//! Ownership: what this process owns or borrows, and when it can go (Ownership, sections 4.1 and 4.2).

mod borrowers;
mod directory;
mod holds;
mod lent;
mod lineage;
pub(super) mod recovery;
mod remote;
mod slot;
mod table;

pub use borrowers::{Borrowers, Return};
pub use directory::{Assigned, ChainAction, ChainLimits, Chains};
pub use lent::Lent;
pub use lineage::{Finished, Lineage};
pub use slot::{Place, Reading, Slot};
pub use table::{Brought, Made, Origin, Ownership, Promotion, Record};
