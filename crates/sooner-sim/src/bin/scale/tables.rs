//! Tables of `docs/scale.md`.

use sooner_sim::scale::counts::{Count, Way};
use sooner_sim::scale::report::{LOADS, Row, broadcast, count as count_load};

/// The sizes that are run, and the size for which costs are derived from them.
const NODES: [usize; 4] = [1, 10, 100, 1_000];
const FOLLOWS: usize = 10_000;
/// Bandwidth of a link (bits per second).
const LINK: f64 = 10e9;
/// Bytes that an encrypted record adds to a message.
const RECORD_BYTES: f64 = 22.0;

/// Prints the counts of messages of all kinds, for one size.
pub fn count(nodes: usize, seconds: u64) {
    for (name, load) in LOADS {
        let row = count_load(nodes, seconds, *load);
        println!("{name}, {nodes} nodes, {seconds} s: {} leases or actors", row.served);
        for ((way, kind), count) in &row.kinds {
            let way = match way {
                Way::ToHead => "to the head",
                Way::FromHead => "from the head",
                Way::Between => "between nodes",
            };
            let per = |all: u64| all as f64 / (nodes as u64 * seconds) as f64;
            let each = per_served(&row, count.messages);
            println!(
                "  {way:<14} {kind:<18} {:>9.2} a second and node {:>10.0} bytes {each:>8.2} each",
                per(count.messages),
                per(count.bytes)
            );
        }
        let busiest = row.busiest.messages as f64 / seconds as f64;
        println!("  the busiest node: {busiest:.0} messages a second with other nodes");
        println!(
            "  took: {:.2} us of the head and {:.2} us of nodes each; {:.3} s of the head, {:.3} s of a node",
            per_served(&row, nanos(row.meter.head)) / 1000.0,
            per_served(&row, nanos(row.meter.nodes)) / 1000.0,
            row.meter.head.as_secs_f64(),
            row.meter.nodes.as_secs_f64() / nodes as f64,
        );
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn per_served(row: &Row, all: u64) -> f64 {
    all as f64 / row.served.max(1) as f64
}

/// Prints how long values take to get to many nodes.
pub fn broadcasts() {
    println!("| bytes | link | receivers | S/B | took | of S/B | beyond S/B, for each receiver |");
    println!("|---|---|--:|--:|--:|--:|--:|");
    for (bandwidth, link) in [(1_000_000_000, "1 Gbit/s"), (10_000_000_000, "10 Gbit/s")] {
        for mebibytes in [16, 64, 1024] {
            for receivers in [8, 64, 250, 1_000] {
                if mebibytes == 1024 && receivers > 64 {
                    continue;
                }
                let (took, best) = broadcast(receivers, mebibytes << 20, bandwidth);
                let beyond = took.saturating_sub(best) as f64 / receivers as f64 / 1000.0;
                println!(
                    "| {mebibytes} MiB | {link} | {receivers} | {:.1} ms | {:.1} ms | {:.2} | {beyond:.0} us |",
                    best as f64 / 1e6,
                    took as f64 / 1e6,
                    took as f64 / best as f64,
                );
            }
        }
    }
}

/// The cost of each lease or actor under a load.
struct Cost {
    nodes: usize,
    /// At the head: messages, bytes, and nanoseconds of one processor.
    head: (f64, f64, f64),
    /// The same at the nodes that take part in it, together, and on their links with each other and the head.
    node: (f64, f64, f64),
    /// The head's work at rest (nanoseconds a second).
    rest: f64,
}

fn each(count: Count, served: f64) -> (f64, f64) {
    let bytes = count.bytes as f64 + count.messages as f64 * RECORD_BYTES;
    (count.messages as f64 / served, bytes / served)
}

fn cost(row: &Row, idle: &Row, wire: f64) -> Cost {
    let served = row.served.max(1) as f64;
    let seconds = row.seconds as f64;
    let at_head = row.at_head();
    let idle_messages = idle.at_head().messages as f64 / idle.seconds as f64;
    let idle_head = nanos(idle.meter.head) as f64 / idle.seconds as f64;
    let rest = idle_head + idle_messages * wire;
    let (messages, bytes) = each(at_head, served);
    let messages = (messages - idle_messages * seconds / served).max(0.0);
    let core = ((nanos(row.meter.head) as f64 - idle_head * seconds) / served).max(0.0);
    let head = (messages, bytes, core + messages * wire);
    // A node handles its messages with the head and with other nodes.
    let (between, bytes_between) = each(row.between, served);
    let at_node = messages + between;
    let core = nanos(row.meter.nodes) as f64 / served;
    let node = (at_node, bytes + bytes_between, core + at_node * wire);
    Cost { nodes: row.nodes, head, node, rest }
}

/// Derives the cost for ten times the nodes from the difference of the last two sizes: work of a node or the
/// head for all others grows in proportion.
fn follow(small: &Cost, large: &Cost) -> Cost {
    let by = (FOLLOWS - large.nodes) as f64 / (large.nodes - small.nodes) as f64;
    let on = |small: f64, large: f64| (large + (large - small) * by).max(large);
    let three = |small: (f64, f64, f64), large: (f64, f64, f64)| (large.0, large.1, on(small.2, large.2));
    Cost {
        nodes: FOLLOWS,
        head: three(small.head, large.head),
        node: three(small.node, large.node),
        rest: on(small.rest, large.rest),
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        rate if !rate.is_finite() || rate > 1e12 => "no limit".to_owned(),
        rate if rate >= 1e6 => format!("{:.1} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

fn print_row(name: &str, cost: &Cost) {
    let Cost { nodes, head, node, rest } = cost;
    let left = (1e9 - rest).max(0.0);
    let of_head = if head.2 > 0.0 { left / head.2 } else { f64::INFINITY };
    // At most two nodes take part in each.
    let of_node = 1e9 / node.2;
    let of_link = LINK / 8.0 / node.1;
    let of_head_link = LINK / 8.0 / head.1;
    let all = *nodes as f64 * of_node;
    let first =
        if of_head < all && of_head < of_head_link { "the head's processor" } else { "the nodes' loops" };
    println!(
        "| {name} | {nodes} | {:.2} | {:.1} us | {:.2} | {:.1} us | {} | {} | {} | {} | {:.1} % | {first} |",
        head.0,
        head.2 / 1000.0,
        node.0,
        node.2 / 1000.0,
        rate(of_node),
        rate(of_head),
        rate(of_link),
        rate(all.min(of_head).min(of_head_link)),
        rest / 1e7,
    );
}

/// Prints which part saturates first.
pub fn report(seconds: u64, wire: u64) {
    println!("a message takes {wire} ns to send or to read, beside cores and codec");
    println!(
        "| what | nodes | messages at the head | head | messages at nodes | nodes | per node | per head | per link | in all | head at rest | what is full first |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    let idle: Vec<Row> = NODES.iter().map(|nodes| count_load(*nodes, seconds, LOADS[0].1)).collect();
    for (name, load) in &LOADS[1..] {
        let costs: Vec<Cost> = NODES
            .iter()
            .zip(&idle)
            .map(|(nodes, idle)| cost(&count_load(*nodes, seconds, *load), idle, wire as f64))
            .collect();
        for cost in &costs {
            print_row(name, cost);
        }
        print_row(name, &follow(&costs[2], &costs[3]));
    }
}
