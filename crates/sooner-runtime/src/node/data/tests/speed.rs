//! How fast values go from node to node, beside how fast memory is copied: printed, never judged.
//!
//!     cargo test --release -p sooner-runtime -- --ignored --nocapture speed_of_values

use std::time::Instant;

use super::*;

const LENGTH: u64 = 256 * MIB;
const ROUNDS: u64 = 4;

#[test]
#[ignore = "a measurement"]
fn speed_of_values() {
    let from = vec![1u8; usize::try_from(LENGTH).expect("fits")];
    let mut to = vec![0u8; from.len()];
    // The first copy meets pages that are not there yet.
    let warm = (0..3).map(|_| seconds(|| to.copy_from_slice(&from))).fold(f64::MAX, f64::min);
    println!("memcpy, one thread: {:.2} GB/s", rate(warm));
    for (connections, shares_memory) in [(1, false), (4, false), (1, true), (4, true)] {
        let tuning = Tuning { connections, shares_memory, ..SENT };
        let (mut a, mut b) = (Node::tuned(A, LENGTH, tuning), Node::tuned(B, LENGTH, tuning));
        let value = a.put(1, LENGTH);
        let best = (1..=ROUNDS).map(|round| {
            b.fetch(value, round, 0, a.address());
            seconds(|| run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&round)))
        });
        let best = best.fold(f64::MAX, f64::min);
        let how = if shares_memory { "copied" } else { "sent" };
        println!("{how}, {connections} connection(s): {:.2} GB/s, {:.2} of memcpy", rate(best), warm / best);
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

#[allow(clippy::cast_precision_loss)]
fn rate(seconds: f64) -> f64 {
    LENGTH as f64 / seconds / 1e9
}
