//! `cargo run -p sooner-sim --release --bin broadcast`: how long broadcasts take in virtual time, as
//! multiples of the optimum (`docs/adr/0026-broadcast-chains-at-the-owner.md`).

use sooner_protocol::worker::ownership::ChainLimits;
use sooner_sim::transfer::{Setup, broadcast};

const NODES: [usize; 6] = [2, 4, 8, 16, 32, 64];
const LATENCY_NANOS: u64 = 50_000;

fn print_row(name: &str, setup_of: impl Fn(usize) -> Setup) {
    print!("{name:40}");
    for receivers in NODES {
        let setup = setup_of(receivers);
        print!(" {:>8.3}", broadcast(&setup) as f64 / setup.optimum() as f64);
    }
    println!();
}

fn main() {
    println!("simulated; time of a broadcast / optimum, by receivers; latency {LATENCY_NANOS} ns one way");
    println!("{:40} {}", "", NODES.map(|count| format!("{count:>8}")).join(" "));
    for (megabits, network) in [(250, "250 Mbit/s"), (1000, "1 Gbit/s"), (10_000, "10 Gbit/s")] {
        let setup = |receivers, bytes| Setup {
            receivers,
            bytes,
            bandwidth: megabits * 1_000_000,
            latency: LATENCY_NANOS,
            gap: 0,
            kill: None,
            limits: ChainLimits::default(),
        };
        for kibibytes in [64, 256, 1024] {
            for small_receivers in [1, 4] {
                let limits = ChainLimits { small_receivers, ..ChainLimits::default() };
                let name = format!("{network}, {kibibytes} KiB, {small_receivers} at once");
                print_row(&name, |receivers| Setup { limits, ..setup(receivers, kibibytes << 10) });
            }
        }
        for mebibytes in [2, 16, 64] {
            print_row(&format!("{network}, {mebibytes} MiB"), |receivers| setup(receivers, mebibytes << 20));
        }
        let large = |receivers| setup(receivers, 64 << 20);
        let transfer = large(1).optimum();
        let apart = |receivers| Setup { gap: transfer * 11 / 100, ..large(receivers) };
        print_row(&format!("{network}, 64 MiB, 0.11 S/B apart"), apart);
        let killed = |receivers| Setup { kill: Some((1, transfer / 2)), ..large(receivers) };
        print_row(&format!("{network}, 64 MiB, the first dies half-way"), killed);
    }
}
