//! The allocator of the store: blocks in any order of use, beside a model that knows each of them.
//!
//! The input is steps of four bytes: what is done, and two bytes for a size or the block that is freed.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sooner_store::Arena;

const START: u64 = 4096;
const CAPACITY: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut arena = Arena::new(START, CAPACITY);
    // Offset and length of each block.
    let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
    for step in bytes.chunks_exact(4) {
        let number = u64::from(u16::from_le_bytes([step[1], step[2]]));
        let nth = |at: usize| blocks.keys().nth(at).copied();
        match step[0] % 4 {
            0 | 1 => {
                let wanted = number * if step[0] % 4 == 0 { 1 } else { 64 };
                let length = Arena::rounded(wanted);
                let largest = arena.gaps().map(|(_, length)| length).max().unwrap_or(0);
                match arena.allocate(wanted) {
                    Some(offset) => assert!(blocks.insert(offset, length).is_none(), "it is given out once"),
                    None => assert!(length > largest, "there was room"),
                }
            }
            2 => {
                if let Some(offset) = nth(number as usize % blocks.len().max(1)) {
                    assert!(arena.free(offset) && !arena.free(offset));
                    blocks.remove(&offset);
                }
            }
            _ => {
                // Anywhere, mostly where no block begins.
                let offset = START + number * 512;
                assert_eq!(arena.length(offset), blocks.get(&offset).copied().unwrap_or(0));
                assert_eq!(arena.holds(offset, 1), blocks.contains_key(&offset));
                assert_eq!(arena.free(offset), blocks.remove(&offset).is_some());
            }
        }
        check(&arena, &blocks);
    }
    for offset in blocks.keys() {
        assert!(arena.free(*offset));
    }
    assert_eq!(arena.gaps().collect::<Vec<_>>(), [(START, CAPACITY)], "all of it is one gap again");
});

/// Gaps and blocks cover the arena without overlap, and no two gaps touch.
fn check(arena: &Arena, blocks: &BTreeMap<u64, u64>) {
    let mut parts: BTreeMap<u64, (u64, bool)> = blocks.iter().map(|(o, l)| (*o, (*l, false))).collect();
    for (offset, length) in arena.gaps() {
        assert_eq!(arena.gap_at(offset), length);
        assert!(parts.insert(offset, (length, true)).is_none(), "a gap begins where a block does");
    }
    let (mut at, mut after_gap) = (START, false);
    for (offset, (length, is_gap)) in parts {
        assert_eq!(offset, at);
        assert!(!(is_gap && after_gap));
        (at, after_gap) = (at + length, is_gap);
    }
    assert_eq!(at, START + CAPACITY);
    assert_eq!(arena.used(), blocks.values().sum::<u64>());
}
