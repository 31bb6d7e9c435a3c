//! An owner that says who pulls its value from whom, and nodes that do as it says: messages in any order
//! between two ends, streams that come piece by piece and break, processes that lose interest, nodes that
//! die. When the value is lost where it was made, a copy becomes the value.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sooner_protocol::node::objects::{CopyAt, Fetching, PullAction, Pulls, StreamEnd};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    CopyLeaving, CopyMade, DropCopy, FreeAt, Locate, Located, Location, Message, NodeDead, Outcome, Priority,
    Promote, Promoted, Pull, Remote, SenderFailed,
};
use sooner_wire::{BlockId, NodeId, ObjectId, TaskId, WorkerId};

const OWNER: WorkerId = WorkerId((1 << 24) + 1);
const LENGTH: u64 = 1 << 20;
const NOW: Instant = Instant(1);
/// Where the value was made.
const FIRST: Remote = Remote { node: NodeId(2 << 24), location: Location { offset: 4096, length: LENGTH } };
/// Nodes whose processes want it.
const PULLERS: std::ops::RangeInclusive<u64> = 3..=7;
const STEPS_MAX: u32 = 20_000;

fn object() -> ObjectId {
    TaskId { owner: OWNER, number: 1 }.object(0)
}

fn node(number: u64) -> NodeId {
    NodeId(number << 24)
}

fn process(node: NodeId, number: u64) -> WorkerId {
    WorkerId(node.0 + number)
}

#[derive(Debug)]
struct Stream {
    fetching: Fetching,
    mark: u64,
}

#[derive(Default)]
struct Node {
    pulls: Pulls,
    allocating: bool,
    streams: Vec<Stream>,
    /// How much of the value each block has, which is not free.
    blocks: BTreeMap<u64, u64>,
    /// Who holds each block: processes, and the node itself under its own id.
    holders: BTreeMap<u64, BTreeSet<WorkerId>>,
    asking: BTreeSet<WorkerId>,
    made: u64,
    to_owner: VecDeque<Message>,
    from_owner: VecDeque<Message>,
}

/// What happened, to be sure that the runs reach what they are for.
#[derive(Debug, Default)]
struct Seen {
    from_copies: u32,
    still_arriving: u32,
    switched: u32,
    kept_for_others: u32,
    cached: u32,
    evicted: u32,
    /// Streams from where the owner's last word said, which found nothing there.
    refused: u32,
    answered: u32,
    not_there: u32,
    /// Copies that became the value, that were not there, and that were asked for again.
    promoted: u32,
    not_promoted: u32,
    asked_again: u32,
    /// Nobody wanted the value any more when its copy was to become it.
    given_back: u32,
    /// Streams from a copy that had become the value.
    from_promoted: u32,
    /// Copies that were left when the value was out of reference, and went for want of room.
    outlived: u32,
}

struct World {
    random: u64,
    kills: bool,
    cuts: bool,
    /// The value is lost where it was made, and copies now and then.
    loses: bool,
    /// Copies may outlive the value.
    unpins: bool,
    core: WorkerCore,
    slot: Arc<Slot>,
    nodes: BTreeMap<NodeId, Node>,
    first_lives: bool,
    /// What the owner's node has asked of another one for it, until that answers.
    promoting: Option<Promote>,
    seen: Seen,
}

impl World {
    fn new(seed: u64, kills: bool, cuts: bool) -> Self {
        let mut core = WorkerCore::new(OWNER);
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let mut out = Actions::new();
        core.ownership_mut().own(object(), slot.clone());
        core.ownership_mut().resolve(object(), Outcome::Remote(Box::new(FIRST)), &[], &mut out);
        let nodes = PULLERS.map(|number| {
            let mut pulls = Pulls::default();
            pulls.ask_owners();
            (node(number), Node { pulls, ..Node::default() })
        });
        let (nodes, seen) = (nodes.collect(), Seen::default());
        let random = seed.wrapping_mul(0xd134_2543_de82_ef95) | 1;
        Self {
            random,
            kills,
            cuts,
            loses: false,
            unpins: false,
            core,
            slot,
            nodes,
            first_lives: true,
            promoting: None,
            seen,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % bound as u64).expect("small")
    }

    fn run(mut self) -> Seen {
        for step in 0..STEPS_MAX {
            let is_ending = step > 400;
            let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
            let at = ids[self.below(ids.len())];
            self.step(at, is_ending);
            if self.loses && !is_ending {
                self.lose(at);
            }
            self.core.ownership().check_directory();
            if is_ending && self.is_quiet() {
                if self.loses && self.below(2) == 0 {
                    // The last reference goes while its copy is asked for.
                    self.kill_first();
                }
                self.end();
                return self.seen;
            }
        }
        panic!("it does not come to an end: {:?}", self.seen);
    }

    fn step(&mut self, at: NodeId, is_ending: bool) {
        match self.below(12) {
            0 if !is_ending => self.ask(at),
            1 if !is_ending || self.nodes[&at].asking.is_empty() => self.let_go(at),
            2 if self.nodes[&at].allocating => self.allocate(at),
            3..=5 => self.stream(at, is_ending),
            6 | 7 => self.receive_node(at),
            8 | 9 => self.receive_owner(at),
            10 if self.kills && !is_ending && self.below(60) == 0 => self.kill(at),
            10 if self.cuts && !is_ending && self.below(60) == 0 => self.end_session(at),
            11 if self.kills && !is_ending && self.below(400) == 0 => self.kill_first(),
            11 if self.below(4) == 0 => self.evict(at),
            _ => {}
        }
    }

    /// The value is lost where it was made, or a copy that nobody reads; and the node that is asked for one
    /// may die, or the session with it end.
    fn lose(&mut self, at: NodeId) {
        if self.seen.answered > 2 && self.below(40) == 0 {
            self.kill_first();
        }
        if self.below(40) == 0 {
            self.lose_copy(at);
        }
        match (self.promoting.map(|promote| promote.node), self.below(40)) {
            (Some(asked), 0) => self.kill(asked),
            (Some(asked), 1) => self.end_session(asked),
            _ => {}
        }
    }

    fn lose_copy(&mut self, at: NodeId) {
        let Some(this) = self.nodes.get_mut(&at) else { return };
        let itself = BTreeSet::from([WorkerId(at.0)]);
        let is_copy = |block: &u64| this.pulls.object_in(BlockId(*block)).is_some();
        let held = this.holders.iter().filter(|(_, holders)| **holders == itself).map(|(block, _)| *block);
        if let Some(block) = held.into_iter().find(is_copy) {
            this.pulls.on_freed(BlockId(block));
            this.holders.remove(&block);
            this.blocks.remove(&block);
        }
    }

    /// A process wants the value.
    fn ask(&mut self, at: NodeId) {
        let who = process(at, 1 + self.below(2) as u64);
        let this = self.nodes.get_mut(&at).expect("it lives");
        let has = this.holders.values().any(|holders| holders.contains(&who));
        if has || !this.asking.insert(who) {
            return;
        }
        let (mut out, pull) = (Vec::new(), Pull { object: object(), remote: FIRST, priority: Priority::Get });
        this.pulls.on_pull(who, &pull, false, &mut out);
        self.perform(at, out);
    }

    /// A process ends, or does not need the value any more.
    fn let_go(&mut self, at: NodeId) {
        let who = process(at, 1 + self.below(2) as u64);
        let this = self.nodes.get_mut(&at).expect("it lives");
        if this.asking.remove(&who) {
            let mut out = Vec::new();
            this.pulls.on_client_dead(who, &mut out);
            return self.perform(at, out);
        }
        let held = this.holders.iter().find(|(_, holders)| holders.contains(&who)).map(|(block, _)| *block);
        if let Some(block) = held {
            self.release(at, block, who);
        }
    }

    /// There is no room for anything that nobody needs.
    fn evict(&mut self, at: NodeId) {
        let (this, mut out) = (self.nodes.get_mut(&at).expect("it lives"), Vec::new());
        assert_eq!(this.pulls.evict(1, &mut out), 0, "its owner is asked first");
        self.seen.evicted += u32::from(!out.is_empty());
        self.perform(at, out);
    }

    fn release(&mut self, at: NodeId, block: u64, who: WorkerId) {
        let may_cache = self.below(2) == 0;
        let this = self.nodes.get_mut(&at).expect("it lives");
        let holders = this.holders.get_mut(&block).expect("held before");
        assert!(holders.remove(&who), "{who:?} holds {block}");
        if !holders.is_empty() {
            return;
        }
        this.holders.remove(&block);
        let (before, mut out) = (this.pulls.cached_bytes(), Vec::new());
        if this.pulls.keeps(BlockId(block), may_cache, &mut out) {
            let is_cached = this.pulls.cached_bytes() > before;
            self.seen.cached += u32::from(is_cached);
            self.seen.kept_for_others += u32::from(!is_cached);
            return self.perform(at, out);
        }
        this.blocks.remove(&block).expect("freed once");
        this.pulls.on_freed(BlockId(block));
        assert!(
            this.streams.iter().all(|stream| stream.fetching.block != BlockId(block)),
            "nothing is written to it"
        );
    }

    fn allocate(&mut self, at: NodeId) {
        let this = self.nodes.get_mut(&at).expect("it lives");
        this.allocating = false;
        this.made += 1;
        let (block, mut out) = (this.made, Vec::new());
        this.blocks.insert(block, 0);
        this.pulls.on_block(object(), BlockId(block), &mut out);
        self.perform(at, out);
    }

    fn perform(&mut self, at: NodeId, actions: Vec<PullAction>) {
        for action in actions {
            self.act(at, action);
        }
        self.nodes[&at].pulls.check();
    }

    fn act(&mut self, at: NodeId, action: PullAction) {
        let this = self.nodes.get_mut(&at).expect("it lives");
        let itself = WorkerId(at.0);
        match action {
            PullAction::Allocate { .. } => this.allocating = true,
            PullAction::Fetch(mut fetching) => {
                if let Some(after) = fetching.after {
                    let before = this.streams.iter().position(|stream| stream.fetching.attempt == after);
                    let before = this.streams.swap_remove(before.expect("it is open"));
                    fetching.at = before.mark;
                    self.seen.switched += 1;
                }
                assert!(this.streams.is_empty(), "one stream at a time");
                let mark = fetching.at;
                assert!(mark <= this.blocks[&fetching.block.offset()], "no byte is left out");
                this.streams.push(Stream { fetching, mark });
            }
            PullAction::Stop { attempt, .. } => {
                this.streams.retain(|stream| stream.fetching.attempt != attempt);
            }
            PullAction::Here { to, location, .. } => {
                assert!(this.asking.remove(&to), "PU3: who asked is answered once");
                assert_eq!(this.blocks[&location.offset], LENGTH, "all of it is here");
                this.holders.entry(location.offset).or_default().insert(to);
                self.seen.answered += 1;
            }
            PullAction::NotThere { to, .. } => {
                assert!(this.asking.remove(&to), "PU3: who asked is answered once");
                self.seen.not_there += 1;
            }
            PullAction::Failed { failure, .. } => panic!("there is room: {failure:?}"),
            PullAction::Free(block) if !this.holders.contains_key(&block.offset()) => {
                this.blocks.remove(&block.offset()).expect("freed once");
            }
            PullAction::Free(block) | PullAction::Release(block) => self.release(at, block.offset(), itself),
            PullAction::Hold(block) => {
                this.holders.entry(block.offset()).or_default().insert(itself);
            }
            PullAction::Locate(object) => this.to_owner.push_back(Locate { object, node: at }.into()),
            PullAction::Made { object, attempt } => {
                this.to_owner.push_back(CopyMade { object, node: at, attempt }.into());
            }
            PullAction::SenderFailed { object, attempt } => {
                this.to_owner.push_back(SenderFailed { object, node: at, attempt }.into());
            }
            PullAction::Leave(object) => this.to_owner.push_back(CopyLeaving { object, node: at }.into()),
        }
    }

    /// Some bytes come, or none ever will.
    fn stream(&mut self, at: NodeId, is_ending: bool) {
        let Some(Stream { fetching, mark }) = self.nodes[&at].streams.first() else { return };
        let (fetching, mark) = (*fetching, *mark);
        let reached = self.reached(&fetching);
        if self.cuts && !is_ending && self.below(10) == 0 {
            return self.end_stream(at, StreamEnd::Cut);
        }
        let Some(reached) = reached else {
            return self.end_stream(at, StreamEnd::NotThere);
        };
        let step = 1 + self.below(1 << 18) as u64;
        let mark = reached.min(mark + step).max(mark);
        let this = self.nodes.get_mut(&at).expect("it lives");
        this.streams[0].mark = mark;
        this.blocks.insert(fetching.block.offset(), mark);
        if mark == LENGTH {
            self.end_stream(at, StreamEnd::Cut);
        }
    }

    /// The thread that moves bytes says how many came, and that no more do.
    fn end_stream(&mut self, at: NodeId, end: StreamEnd) {
        let this = self.nodes.get_mut(&at).expect("it lives");
        let Stream { fetching: Fetching { object, attempt, .. }, mark } = this.streams.remove(0);
        let mut out = Vec::new();
        this.pulls.on_bytes(object, attempt, mark, &mut out);
        if mark < LENGTH {
            this.pulls.on_stream_end(object, attempt, end, &mut out);
        }
        let is_reported = out.iter().any(|action| matches!(action, PullAction::SenderFailed { .. }));
        // Before it has heard all, others may know that it is not to pull from there any more.
        if is_reported && end == StreamEnd::NotThere && this.from_owner.is_empty() {
            self.seen.refused += 1;
        }
        self.perform(at, out);
    }

    /// How much the sender has; `None`: it does not have it.
    fn reached(&mut self, fetching: &Fetching) -> Option<u64> {
        let Some(generation) = fetching.generation else {
            if fetching.remote == FIRST {
                return self.first_lives.then_some(LENGTH);
            }
            let block = fetching.remote.location.offset;
            let sender = self.nodes.get(&fetching.remote.node)?;
            self.seen.from_promoted += 1;
            assert!(sender.holders[&block].contains(&OWNER), "it is the value there");
            return Some(sender.blocks[&block]);
        };
        let sender = self.nodes.get(&fetching.remote.node)?;
        self.seen.from_copies += 1;
        match sender.pulls.copy_at(object(), generation, LENGTH) {
            CopyAt::Here(block) => Some(sender.blocks[&block.offset()]),
            CopyAt::Moving { block, attempt } => {
                let stream = sender.streams.iter().find(|stream| stream.fetching.attempt == attempt);
                assert_eq!(stream.map(|stream| stream.fetching.block), Some(block));
                self.seen.still_arriving += 1;
                stream.map(|stream| stream.mark)
            }
            CopyAt::NotYet => Some(0),
            CopyAt::No => None,
        }
    }

    /// What a node said comes to the owner.
    fn receive_node(&mut self, at: NodeId) {
        let Some(message) = self.nodes.get_mut(&at).and_then(|node| node.to_owner.pop_front()) else {
            return;
        };
        self.notify_owner(message);
    }

    fn notify_owner(&mut self, message: Message) {
        if let Message::Promoted(answer) = &message {
            assert_eq!(self.promoting.take().map(|promote| promote.node), Some(answer.node), "it was asked");
            self.seen.promoted += u32::from(answer.location.is_some());
            self.seen.not_promoted += u32::from(answer.location.is_none());
        }
        let mut out = Actions::new();
        assert_eq!(self.core.on_message(Peer::Node, message, NOW, &mut out), None);
        self.pass_on(out);
    }

    fn pass_on(&mut self, out: Actions) {
        for action in out {
            let Action::Send { to: Peer::Node, message } = action else { continue };
            let (Message::Located(Located { node, .. })
            | Message::DropCopy(DropCopy { node, .. })
            | Message::FreeAt(FreeAt { node, .. })
            | Message::Promote(Promote { node, .. })) = &*message
            else {
                continue;
            };
            if let Message::Promote(promote) = &*message {
                assert_eq!(self.promoting.replace(*promote), None, "one question at a time");
            }
            if let Some(node) = self.nodes.get_mut(node) {
                node.from_owner.push_back(*message);
            }
        }
    }

    /// What the owner said comes to a node.
    fn receive_owner(&mut self, at: NodeId) {
        let this = self.nodes.get_mut(&at).expect("it lives");
        let mut out = Vec::new();
        match this.from_owner.pop_front() {
            Some(Message::Located(located)) => this.pulls.on_located(&located, &mut out),
            Some(Message::DropCopy(DropCopy { object, .. })) => this.pulls.on_drop(object, &mut out),
            Some(Message::Promote(promote)) => return self.promote(at, promote),
            Some(Message::FreeAt(FreeAt { places, .. })) => {
                return places.into_iter().for_each(|place| self.release(at, place.offset(), OWNER));
            }
            _ => {}
        }
        self.perform(at, out);
    }

    /// As a node does it: what is asked again is answered again.
    fn promote(&mut self, at: NodeId, promote: Promote) {
        let Promote { object, generation, length, .. } = promote;
        let (this, mut out) = (self.nodes.get_mut(&at).expect("it lives"), Vec::new());
        let location = this.pulls.promote(object, generation, length, &mut out);
        if let Some(location) = location {
            assert_eq!(this.blocks[&location.offset], LENGTH, "all of it is here");
            this.holders.entry(location.offset).or_default().insert(OWNER);
        }
        self.perform(at, out);
        let this = self.nodes.get_mut(&at).expect("it lives");
        this.to_owner.push_back(Promoted { object, node: at, location }.into());
    }

    fn kill(&mut self, at: NodeId) {
        if self.nodes.len() > 2 {
            self.nodes.remove(&at);
            self.all_receive(at);
        }
    }

    /// The node where the value was made dies.
    fn kill_first(&mut self) {
        if std::mem::take(&mut self.first_lives) {
            self.all_receive(FIRST.node);
        }
    }

    /// What is on its way between a node and the owner's is lost.
    fn end_session(&mut self, at: NodeId) {
        let (this, mut out) = (self.nodes.get_mut(&at).expect("it lives"), Vec::new());
        this.to_owner.clear();
        this.from_owner.clear();
        this.pulls.on_messages_lost(OWNER.node(), &mut out);
        if let Some(promote) = self.promoting.filter(|promote| promote.node == at) {
            this.from_owner.push_back(promote.into());
            self.seen.asked_again += 1;
        }
        self.perform(at, out);
    }

    fn all_receive(&mut self, gone: NodeId) {
        self.promoting.take_if(|promote| promote.node == gone);
        self.notify_owner(NodeDead { node: gone, reason: String::new() }.into());
        for at in self.nodes.keys().copied().collect::<Vec<_>>() {
            let (this, mut out) = (self.nodes.get_mut(&at).expect("it lives"), Vec::new());
            this.pulls.on_node_dead(gone, &mut out);
            self.perform(at, out);
        }
    }

    fn is_quiet(&self) -> bool {
        self.nodes.values().all(|node| {
            // Only what is said of a copy that is to become the value may be on its way.
            let is_promotion = |word: &Message| matches!(word, Message::Promote(_) | Message::Promoted(_));
            let is_silent =
                node.to_owner.iter().chain(&node.from_owner).all(is_promotion) && !node.allocating;
            let is_value = |holders: &&BTreeSet<WorkerId>| holders.iter().eq(&[OWNER]);
            let held = node.holders.len() - node.holders.values().filter(is_value).count();
            let is_held = held as u64 * LENGTH > node.pulls.cached_bytes();
            is_silent && node.asking.is_empty() && node.streams.is_empty() && !is_held
        })
    }

    /// All that is on its way arrives.
    fn receive_all(&mut self) {
        let is_silent = |node: &Node| node.from_owner.is_empty() && node.to_owner.is_empty();
        while !self.nodes.values().all(is_silent) {
            for at in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.receive_owner(at);
                self.receive_node(at);
            }
        }
    }

    /// Nobody wants it: when the value goes, nothing is left anywhere.
    fn end(&mut self) {
        let mut out = Actions::new();
        if self.unpins {
            self.core.ownership_mut().unpin_lazily();
        }
        if self.slot.release() {
            self.core.ownership_mut().on_handle_dropped(object(), &mut out);
        }
        self.pass_on(out);
        let promoted = self.seen.promoted;
        self.receive_all();
        if self.unpins {
            let evicted = self.seen.evicted;
            for at in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.evict(at);
            }
            self.seen.outlived += self.seen.evicted - evicted;
            self.receive_all();
        }
        self.seen.given_back += self.seen.promoted - promoted;
        for at in self.nodes.keys().copied().collect::<Vec<_>>() {
            let node = &self.nodes[&at];
            assert!(node.pulls.is_empty() && node.blocks.is_empty(), "a copy is left: {:?}", node.blocks);
        }
        assert!(self.core.ownership().is_empty());
        assert_eq!(self.core.ownership().promotions(), 0);
        self.core.ownership().check_directory();
    }
}

fn run(seeds: std::ops::Range<u64>, kills: bool, cuts: bool) -> Seen {
    run_all(seeds.map(|seed| World::new(seed, kills, cuts)))
}

fn run_all(worlds: impl Iterator<Item = World>) -> Seen {
    let mut all = Seen::default();
    for world in worlds {
        let seen = world.run();
        all.from_copies += seen.from_copies;
        all.still_arriving += seen.still_arriving;
        all.switched += seen.switched;
        all.kept_for_others += seen.kept_for_others;
        all.cached += seen.cached;
        all.evicted += seen.evicted;
        all.refused += seen.refused;
        all.answered += seen.answered;
        all.not_there += seen.not_there;
        all.promoted += seen.promoted;
        all.not_promoted += seen.not_promoted;
        all.asked_again += seen.asked_again;
        all.given_back += seen.given_back;
        all.from_promoted += seen.from_promoted;
        all.outlived += seen.outlived;
    }
    all
}

#[test]
fn a_copy_stays_for_those_who_pull_from_it() {
    let seen = run(0..1200, false, false);
    assert!(seen.still_arriving > 100 && seen.kept_for_others > 100 && seen.answered > 300, "{seen:?}");
    assert!(seen.cached > 100 && seen.evicted > 50, "{seen:?}");
    assert_eq!((seen.refused, seen.not_there), (0, 0), "whoever is sent somewhere finds what it is sent for");
}

#[test]
fn who_loses_its_sender_goes_on_with_another_where_it_was() {
    run(0..600, true, false);
    run(0..600, false, true);
    let seen = run(0..1200, true, true);
    assert!(seen.switched > 50 && seen.from_copies > 500 && seen.not_there > 10, "{seen:?}");
}

#[test]
fn a_copy_becomes_the_value_when_that_is_lost() {
    let seen = run_all((0..3000).map(|seed| World { loses: true, ..World::new(seed, true, seed % 2 == 0) }));
    assert!(seen.promoted > 500 && seen.from_promoted > 500, "{seen:?}");
    assert!(seen.not_promoted > 3 && seen.asked_again > 100 && seen.given_back > 100, "{seen:?}");
}

#[test]
fn a_copy_of_what_is_out_of_reference_may_stay_until_its_node_needs_the_room() {
    let unpinning = |kills| {
        let world =
            move |seed| World { unpins: true, loses: kills, ..World::new(seed, kills, seed % 2 == 0) };
        run_all((0..1200).map(world))
    };
    let (quiet, faulty) = (unpinning(false), unpinning(true));
    assert!(quiet.outlived > 100 && faulty.outlived > 100, "{quiet:?} {faulty:?}");
}
