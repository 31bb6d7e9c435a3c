//! Object stores such as S3 as the place of spilled values: the bytes of spill files lie there as objects.
//!
//! [`SpillObjects`] does for an object store what [`sooner_store::spill::SpillFiles`] does for directories:
//! it writes, reads, copies and deletes at the places that [`sooner_store::spill::SpillSpace`] gives out, and
//! decides nothing about which values these are. A file has the form that it has on a disk (records with
//! headers and checksums, see [`sooner_store::spill`]); it is cut into objects of [`layout::OBJECT_BYTES`],
//! because objects cannot be added to, and several are written and read at a time.
//!
//! An object store has no open files that go with their process, so each session says in its marker who it is
//! ([`session`]), deletes what it has at its end, and the next one deletes what sessions left that are dead.
//!
//! Everything here runs on the thread that calls it: the executor inside does nothing in between. Each
//! request has a time limit, and no more are made once the session ends. Credentials come from the
//! environment and go into no message. See ADR 0043.

mod checked;
mod error;
mod layout;
mod objects;
mod requests;
mod session;
mod url;

pub use error::StoreError;
pub use objects::{BATCH_BYTES, FILES_MAX, PIECE_BYTES, SpillObjects, SpillValue};
pub use session::Identity;
pub use url::StoreUrl;
