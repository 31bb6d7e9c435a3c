//! What a message over an encrypted connection takes of a processor, beside what is decided about it: not a
//! test, but what `docs/scale.md` quotes.
//! `cargo test --profile fast -p sooner-runtime --lib what_a_message_takes -- --ignored --nocapture`.

use rustix::time::{ClockId, clock_gettime};

use super::*;

const MESSAGES: u32 = 20_000;

fn nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Each message is written alone, and read alone, as those of different nodes are.
#[test]
#[ignore = "measures"]
fn what_a_message_takes() {
    let (at_a, mut at_b) = shake(&member(A, CLUSTER), B, &member(B, CLUSTER));
    for bytes in [34, 100, 300, 1000] {
        let frame = vec![7; bytes];
        let (mut sending, mut receiving) = (0, 0);
        for _ in 0..MESSAGES {
            let begun = nanos();
            assert_eq!(at_a.stream.write(&[std::io::IoSlice::new(&frame)]), Ok(bytes));
            let _ = at_a.stream.flush();
            let sent = nanos();
            at_b.got.clear();
            while at_b.got.len() < bytes {
                at_b.turn();
            }
            sending += sent - begun;
            receiving += nanos() - sent;
        }
        let each = |all: i64| all / i64::from(MESSAGES);
        println!("{bytes} bytes: {} ns to send, {} ns to read", each(sending), each(receiving));
    }
}
