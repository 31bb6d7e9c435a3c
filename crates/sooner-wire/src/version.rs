//! Protocol version and feature bits, exchanged in the handshake.
//!
//! One minor version of skew is accepted; a different major version is refused with both numbers named.

/// Major version: peers must agree.
pub const PROTOCOL_MAJOR: u16 = 1;
/// Minor version: two peers speak the older one's.
pub const PROTOCOL_MINOR: u16 = 0;
/// Largest accepted difference of minor versions.
pub const MINOR_SKEW_MAX: u16 = 1;
/// Feature of data connections: nodes on one machine read each other's memory (`MemoryHere`).
pub const READS_MEMORY: u64 = 1 << 0;
/// Feature bits of this build. Peers use a feature only if both have its bit. Whatever a minor version must
/// not break gets a bit.
pub const FEATURES: u64 = READS_MEMORY;

/// Checks a peer's version.
///
/// # Errors
/// A sentence for the peer and the log when the versions cannot work together.
pub fn check(major: u16, minor: u16) -> Result<(), String> {
    if major != PROTOCOL_MAJOR || minor.abs_diff(PROTOCOL_MINOR) > MINOR_SKEW_MAX {
        return Err(format!(
            "protocol version {major}.{minor} does not work with {PROTOCOL_MAJOR}.{PROTOCOL_MINOR}: install the same sooner on both sides"
        ));
    }
    Ok(())
}

/// The minor version that this build and a peer speak: the older of the two.
#[must_use]
pub fn spoken(theirs: u16) -> u16 {
    std::cmp::min(theirs, PROTOCOL_MINOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_minor_of_skew_works_and_more_does_not() {
        assert!(check(PROTOCOL_MAJOR, PROTOCOL_MINOR + 1).is_ok());
        assert!(check(PROTOCOL_MAJOR, PROTOCOL_MINOR + 2).is_err());
        assert!(check(PROTOCOL_MAJOR + 1, PROTOCOL_MINOR).is_err());
    }
}
