//! Channels: ordered messages from one machine to another. Each content of a channel has a number; equal
//! contents have equal numbers.

use rustc_hash::FxHashMap;

/// The number of the empty content.
pub const EMPTY: u32 = 0;

/// All contents met so far.
#[derive(Debug)]
pub struct Contents {
    /// The first message of each content, and the content behind it.
    entries: Vec<(u32, u32)>,
    longer: FxHashMap<(u32, u32), u32>,
    numbers: FxHashMap<(u32, u32), u32>,
}

impl Default for Contents {
    fn default() -> Self {
        Self { entries: vec![(u32::MAX, EMPTY)], longer: FxHashMap::default(), numbers: FxHashMap::default() }
    }
}

impl Contents {
    /// The first message, and the content without it.
    #[must_use]
    pub fn front(&self, content: u32) -> (u32, u32) {
        self.entries[content as usize]
    }

    /// The content with one more message at its end.
    pub fn append(&mut self, content: u32, message: u32) -> u32 {
        if let Some(number) = self.longer.get(&(content, message)) {
            return *number;
        }
        let entry = if content == EMPTY {
            (message, EMPTY)
        } else {
            let (first, rest) = self.front(content);
            (first, self.append(rest, message))
        };
        let next = u32::try_from(self.entries.len()).expect("fewer contents than states");
        let number = *self.numbers.entry(entry).or_insert(next);
        if number == next {
            self.entries.push(entry);
        }
        self.longer.insert((content, message), number);
        number
    }

    /// The messages, in order.
    pub fn iter(&self, content: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = content;
        std::iter::from_fn(move || {
            if at == EMPTY {
                return None;
            }
            let (message, rest) = self.front(at);
            at = rest;
            Some(message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_have_one_number_whatever_was_sent_before() {
        let mut contents = Contents::default();
        let pair = contents.append(EMPTY, 1);
        let pair = contents.append(pair, 2);
        let mut triple = contents.append(EMPTY, 7);
        triple = contents.append(triple, 1);
        triple = contents.append(triple, 2);
        assert_eq!(contents.front(triple), (7, pair));
        assert_eq!(contents.iter(triple).collect::<Vec<_>>(), [7, 1, 2]);
    }
}
