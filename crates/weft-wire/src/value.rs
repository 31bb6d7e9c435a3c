//! How a value's bytes begin: one format byte that says how to read the rest.
//!
//! The byte is language-neutral, so that a later front end can read what Python wrote where the format allows.
//! Formats are read and written in the bindings; here are only their numbers.

/// A scalar or small container in weft's own compact form (None, bool, int, float, str, bytes, tuple, list).
pub const FORMAT_PLAIN: u8 = 1;
/// Pickle protocol 5 with out-of-band buffers.
pub const FORMAT_PICKLE5: u8 = 2;
/// Raw bytes of a Python `bytes` object, without a copy when shared.
pub const FORMAT_BYTES: u8 = 3;

/// Alignment of out-of-band buffers inside a value (bytes).
pub const BUFFER_ALIGNMENT: usize = 64;
