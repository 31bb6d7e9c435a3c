//! Writes that must survive the control service. A core that depends on a batch waits for its number to come
//! back. It never touches the disk.

/// A batch of writes, numbered by the core that asks for it. It is written as a whole or not at all.
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
    /// Puts a record in place of the one under this key.
    #[must_use]
    pub fn put(key: String, value: Vec<u8>) -> Self {
        Self { key, value: Some(value) }
    }

    /// Deletes the record, if there is one.
    #[must_use]
    pub fn delete(key: String) -> Self {
        Self { key, value: None }
    }
}
