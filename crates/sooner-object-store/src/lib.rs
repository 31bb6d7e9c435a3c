//! Object stores such as S3 for spilled values: the bytes of spill files are stored as objects.
//!
//! [`SpillObjects`] is to an object store what [`sooner_store::spill::SpillFiles`] is to directories: it
//! writes, reads, copies and deletes at the places that [`sooner_store::spill::SpillSpace`] gives out, and
//! does not decide which values these are. A file has the same format as on a disk (records with headers and
//! checksums, see [`sooner_store::spill`]). It is cut into objects of [`layout::OBJECT_BYTES`], because
//! objects cannot be appended to, and so that several can be written and read at a time.
//!
//! An object store has no open files that disappear with their process. So each session names its process in
//! its marker ([`session`]) and deletes its objects at its end; the next session deletes those of dead ones.
//!
//! Everything here runs on the calling thread: the executor inside does nothing between calls. Each request
//! has a time limit, and no more are made once the session ends. Credentials come from the environment and
//! never appear in a message. See ADR 0043.

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
