//! Writes that must survive the control service. A machine that depends on one waits for its number to come
//! back.

/// A batch of writes, numbered by the machine that asks for it. All of it is written or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BatchId(pub u64);

/// One write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Write {
    /// See [`sooner_wire::record`].
    pub key: String,
    /// `None` deletes.
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// A record takes the place of what is there.
    #[must_use]
    pub fn put(key: String, value: Vec<u8>) -> Self {
        Self { key, value: Some(value) }
    }

    /// The record goes, if there is one.
    #[must_use]
    pub fn delete(key: String) -> Self {
        Self { key, value: None }
    }
}
