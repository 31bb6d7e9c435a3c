//! Frames: an eight-byte little-endian head (`length: u32`, `kind: u16`, `flags: u16`) and a CBOR body.
//!
//! `length` counts the body. A reader never allocates by what a length claims: it waits until the bytes are
//! there. Lengths over [`FRAME_BODY_BYTES_MAX`] end the connection.

use crate::limits::FRAME_BODY_BYTES_MAX;

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 8;
/// The frame owns the next descriptor that was passed over the socket.
pub const FLAG_DESCRIPTOR: u16 = 1;

/// What is wrong with received bytes. The connection that sent them ends.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The head announces more than any message needs.
    #[error("a frame announces {0} bytes; at most {FRAME_BODY_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// The body is not the message its kind names.
    #[error("a frame of kind {kind} cannot be read: {reason}")]
    Body {
        /// The kind the head names.
        kind: u16,
        /// What the decoder met.
        reason: String,
    },
    /// No message has this kind.
    #[error("frames of kind {0} are not known: the peer is newer or not sooner")]
    UnknownKind(u16),
}

/// A frame's head and where its body lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the body.
    pub length: usize,
    /// Which message.
    pub kind: u16,
    /// See the `FLAG_` constants.
    pub flags: u16,
}

/// Reads a head if `bytes` starts with a whole frame.
///
/// # Errors
/// [`FrameError::TooLong`] when the announced length is out of bounds.
pub fn whole_frame(bytes: &[u8]) -> Result<Option<Head>, FrameError> {
    if bytes.len() < HEAD_BYTES {
        return Ok(None);
    }
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    if length > FRAME_BODY_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    if bytes.len() - HEAD_BYTES < length {
        return Ok(None);
    }
    Ok(Some(Head {
        length,
        kind: u16::from_le_bytes([bytes[4], bytes[5]]),
        flags: u16::from_le_bytes([bytes[6], bytes[7]]),
    }))
}

/// Appends a frame whose body `write` produces.
pub fn append(out: &mut Vec<u8>, kind: u16, flags: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    write(out);
    let length = out.len() - start - HEAD_BYTES;
    assert!(length <= FRAME_BODY_BYTES_MAX, "values beyond the inline limit travel through shared memory");
    out[start..start + 4].copy_from_slice(&u32::try_from(length).expect("bounded above").to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_frame_waits() {
        let mut bytes = Vec::new();
        append(&mut bytes, 7, 0, |out| out.extend_from_slice(b"abc"));
        for cut in 0..bytes.len() {
            assert_eq!(whole_frame(&bytes[..cut]), Ok(None));
        }
        assert_eq!(whole_frame(&bytes), Ok(Some(Head { length: 3, kind: 7, flags: 0 })));
    }

    #[test]
    fn a_garbled_length_is_refused() {
        assert_eq!(whole_frame(&[255; 8]), Err(FrameError::TooLong(0xffff_ffff)));
    }
}
