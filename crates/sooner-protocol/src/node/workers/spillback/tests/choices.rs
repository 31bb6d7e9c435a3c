//! What a node chooses by: where arguments are, and, in a large cluster, whom the control service names.

use sooner_wire::limits::{CANDIDATES_NANOS, FIND_NODES_NANOS};

use super::*;

impl World {
    /// There are too many nodes for everybody to be told what they have free.
    fn grow_large(&mut self) {
        for node in &mut self.nodes {
            node.on_view(&ResourceView { rows: Vec::new(), must_ask: true });
        }
    }

    /// What node 0 has asked the control service for since this was looked at last.
    fn questions(&mut self) -> Vec<FindNodes> {
        self.with(0, |_, _| {});
        std::mem::take(&mut self.questions)
    }

    /// The control service names nodes, with what they have free and how many wait there.
    fn name(&mut self, rows: &[(usize, f64, u32)]) {
        self.versions += 1;
        let version = self.versions;
        let row = |(at, free, waiting): &(usize, f64, u32)| ViewRow {
            node: id(*at),
            version,
            free: cpus(*free),
            waiting: *waiting,
        };
        let rows = Some(rows.iter().map(row).collect());
        let candidates = Candidates { request: 1, nodes: Vec::new(), rows };
        self.with(0, |node, _| node.on_candidates(&candidates));
    }
}

#[test]
fn in_a_large_cluster_a_node_asks_who_has_room_and_asks_those() {
    let mut world = World::new(&[1.0, 2.0, 2.0]);
    world.grow_large();
    let client = world.client(0);
    world.send(client, RequestLease { prefer: Some(id(2)), ..request(0, 4) });
    let questions = world.questions();
    let [find] = &questions[..] else { panic!("{questions:?}") };
    assert_eq!((find.count, find.prefer, &find.resources), (3, Some(id(2)), &cpus(1.0)));
    world.run();
    assert_eq!((world.nodes_of(client), world.lent()), (vec![0], 0), "nobody is known to have room");
    assert_eq!(world.questions(), [], "it has been asked");
    world.name(&[(2, 2.0, 0)]);
    world.run();
    assert_eq!(world.nodes_of(client), [0, 2, 2]);
    // What a grant leaves is asked for again, with patience.
    assert_eq!(world.questions().len(), 1);
    let mut asked = 0;
    for _ in 0..100 {
        world.now = world.now.plus(FIND_NODES_NANOS);
        asked += world.questions().len();
    }
    assert!((5..20).contains(&asked), "in ten seconds: {asked}");
    world.finish();
    assert_eq!(world.questions(), []);
    assert_eq!(world.nodes[0].next_deadline().filter(|at| *at <= world.now), None);
}

#[test]
fn what_was_named_counts_for_a_while() {
    let mut world = World::new(&[0.0, 1.0, 1.0]);
    world.grow_large();
    let client = world.client(0);
    world.name(&[(1, 1.0, 0), (2, 1.0, 0)]);
    world.now = world.now.plus(CANDIDATES_NANOS);
    world.send(client, request(0, 1));
    assert_eq!(world.questions().len(), 1, "that was long ago");
    assert_eq!(world.lent(), 0, "it can never run here, and nobody knows where");
    world.name(&[(1, 0.0, 5), (2, 0.0, 3)]);
    assert_eq!(world.wires[&(0, 2)].len(), 1, "where fewest wait");
    world.run();
    assert_eq!(world.nodes_of(client), [2]);
    world.finish();
}

#[test]
fn a_cluster_that_has_become_small_is_told_everything_again() {
    let mut world = World::new(&[0.0, 1.0]);
    world.grow_large();
    world.notify_views();
    let client = world.client(0);
    world.send(client, request(0, 1));
    assert_eq!(world.questions(), []);
    world.run();
    assert_eq!(world.nodes_of(client), [1]);
    world.finish();
}

#[test]
fn a_demand_goes_to_the_node_that_holds_its_arguments_if_there_is_room() {
    let mut world = World::new(&[4.0, 4.0, 1.0]);
    let client = world.client(0);
    let near = |shape, demand, node| RequestLease { prefer: Some(node), ..request(shape, demand) };
    world.send(client, near(0, 2, id(1)));
    world.run();
    assert_eq!(world.nodes_of(client), [1, 1]);
    world.finish();
    world.send(client, near(1, 3, id(2)));
    world.run();
    assert_eq!(world.nodes_of(client), [0, 0, 2], "what it has no room for is packed as ever");
    world.finish();
    world.send(client, near(2, 1, NodeId(9 << 24)));
    world.run();
    assert_eq!(world.nodes_of(client), [0], "that node is gone");
    world.finish();
}

#[test]
fn what_is_spread_takes_turns_whatever_else_is_placed_between() {
    let mut world = World::new(&[16.0, 16.0]);
    let (spread, other) = (world.client(0), world.client(0));
    for shape in 0..4 {
        world.send(other, request(shape, 1));
        world.send(spread, at(shape, 1, Strategy::Spread));
        world.run();
        world.notify_views();
    }
    assert_eq!(world.nodes_of(other), [0; 4], "packed");
    assert_eq!(world.nodes_of(spread), [0, 0, 1, 1]);
    world.finish();
}
