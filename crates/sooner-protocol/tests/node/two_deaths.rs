//! A node and the control service that end together: who waits for something there hears of it although
//! nobody can say what became of the node, and nothing is settled before somebody can
//! (`docs/adr/0095-two-deaths-at-once.md`).

use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, Found};
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::limits::CONTROL_AWAY_NANOS;
use sooner_wire::message::{
    ActorDead, ActorStarted, CreateActor, Failure, FailureCode, Job, JobConfig, JobState, KillActor, LeaseAt,
    Message, NodeDead, Settled, Watch,
};
use sooner_wire::{ActorId, NodeId, ShapeId, TaskId, WorkerId};

use super::{cpus, create, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const FAR: WorkerId = WorkerId(THERE.0 + 5);
const BEGIN: Instant = Instant(1_000_000_000);

/// A node with a driver whose actor is at another node.
struct World {
    member: Member,
    driver: WorkerId,
}

impl World {
    fn new() -> Self {
        let mut member = Member::new(cpus(1.0), HERE.0, 2);
        let driver = member.new_worker_id();
        member.on_connected(driver, 1, BEGIN);
        member.on_job(driver, Box::default(), &mut NodeActions::new());
        Self { member, driver }
    }

    fn actor(&self) -> ActorId {
        TaskId { owner: self.driver, number: 7 }
    }

    fn at(&mut self, at: Instant, work: impl FnOnce(&mut Member, &mut NodeActions)) -> NodeActions {
        let mut out = NodeActions::new();
        work(&mut self.member, &mut out);
        self.member.after_events(at, &mut out);
        self.member.check();
        out.retain(|action| !matches!(action, NodeAction::StartWorker(_)));
        out
    }

    fn send(&mut self, message: impl Into<Message>) -> NodeActions {
        let driver = self.driver;
        self.at(BEGIN, |member, out| assert_eq!(member.on_message(driver, message.into(), BEGIN, out), None))
    }

    fn control(&mut self, word: ToNode) -> NodeActions {
        self.at(BEGIN, |member, out| member.on_control(word, BEGIN, out))
    }

    /// The actor has this process, which the driver calls.
    fn start(&mut self, restarts: i32, process: WorkerId) {
        let actor = self.actor();
        self.send(CreateActor { restarts: Some(restarts), ..create(actor) });
        self.begin(process);
    }

    fn begin(&mut self, process: WorkerId) {
        let started = ActorStarted {
            actor: self.actor(),
            worker: process,
            concurrency: 1,
            replays: None,
            restarts: None,
        };
        self.control(ToNode::Started(Box::new(started)));
        let driver = self.driver;
        self.at(BEGIN, |member, _| member.on_dialled_for(driver, process));
    }

    /// The head and the other node are away, and nothing is heard of either for as long as one waits.
    fn lose_both(&mut self) -> NodeActions {
        self.at(BEGIN, |member, _| member.on_control_down(BEGIN));
        let early =
            self.at(BEGIN.plus(CONTROL_AWAY_NANOS - 1), |member, out| member.on_link_ended(THERE, out));
        assert!(!early.contains(&NodeAction::GiveUp(THERE)), "the head may still come back");
        assert_eq!(self.member.next_deadline(), Some(BEGIN.plus(CONTROL_AWAY_NANOS)));
        self.at(BEGIN.plus(CONTROL_AWAY_NANOS), |_, _| ())
    }

    /// What is said to a new control service.
    fn sent_again(&mut self) -> Vec<ToControl> {
        let out = self.at(BEGIN, |member, out| member.on_control_up(true, BEGIN, out));
        let word = |action| match action {
            NodeAction::Control(word) => Some(word),
            _ => None,
        };
        out.into_iter().filter_map(word).collect()
    }

    /// The creation that is among it: restarts that are left, and processes that there were.
    fn created_again(&mut self) -> Option<(i32, i32)> {
        self.sent_again().into_iter().find_map(|word| match word {
            ToControl::Routed { message, .. } => match *message {
                Message::CreateActor(create) => {
                    Some((create.restarts.unwrap_or(0), create.constructor.spec.retries))
                }
                _ => None,
            },
            _ => None,
        })
    }
}

/// What a process is told.
fn told(out: &NodeActions, to: WorkerId) -> Vec<Message> {
    let its = out.iter().filter_map(|action| match action {
        NodeAction::Send(who, message) if *who == to => Some((**message).clone()),
        _ => None,
    });
    its.collect()
}

#[test]
fn who_waits_for_a_node_hears_that_it_is_held_for_gone_when_nobody_can_say_that_it_is() {
    let mut world = World::new();
    world.start(-1, FAR);
    let out = world.lose_both();
    assert!(out.contains(&NodeAction::GiveUp(THERE)), "{out:?}");
    assert!(world.member.is_given_up(THERE));
    let said = told(&out, world.driver);
    assert!(
        said.iter().any(|said| matches!(said, Message::NodeDead(NodeDead { node, .. }) if *node == THERE))
    );
    let is_dead = |said: &Message| matches!(said, Message::WorkerDead(gone) if gone.worker == FAR && gone.all_begun == Some(true));
    assert!(said.iter().any(is_dead), "{said:?}");
    let is_out_of_reach = |said: &Message| matches!(said, Message::ActorRestarting(news) if news.nobody_starts_it == Some(true));
    assert!(said.iter().any(is_out_of_reach), "{said:?}");
    assert!(
        !out.iter().any(|action| matches!(action, NodeAction::Control(ToControl::Collected { .. }))),
        "its death is not settled: it may live"
    );
    let late = BEGIN.plus(2 * CONTROL_AWAY_NANOS);
    let again = world.at(late, |member, out| member.on_link_ended(THERE, out));
    assert!(!again.contains(&NodeAction::GiveUp(THERE)), "once");
    // Who asks for another one of its processes is told the same, and not that its death is settled.
    let other = WorkerId(THERE.0 + 6);
    let out = world.send(Watch { worker: other });
    let said = told(&out, world.driver);
    assert!(matches!(&said[..], [Message::WorkerDead(gone)] if gone.worker == other), "{said:?}");
}

/// A process asks for a worker of another node, for a job.
fn lease_at(client: WorkerId, job: WorkerId) -> LeaseAt {
    LeaseAt {
        client,
        job,
        shape: ShapeId(1),
        resources: cpus(1.0),
        demand: 1,
        strategy: None,
        priority: None,
        raises_memory: None,
    }
}

#[test]
fn nothing_of_a_node_that_is_held_for_gone_is_heard_until_it_is_gone_and_then_all_are_asked() {
    let mut world = World::new();
    world.start(-1, FAR);
    world.lose_both();
    let (there, here) = (WorkerId(THERE.0), WorkerId(HERE.0));
    let ask = lease_at(FAR, world.driver);
    let out = world.at(BEGIN, |member, out| {
        assert_eq!(member.on_routed(THERE, there, here, ask.into(), BEGIN, out), Ok(None));
    });
    assert_eq!(out, [], "it asks for nothing here");
    world.at(BEGIN, |member, out| member.on_control_up(false, BEGIN, out));
    world.at(BEGIN, |member, out| member.on_node_dead(THERE, out));
    let gone = worker_dead(there, "it was silent");
    let out = world.control(ToNode::WorkerDead(Box::new(gone)));
    let said = told(&out, world.driver);
    assert!(
        said.iter().any(|said| matches!(said, Message::WorkerDead(gone) if gone.worker == FAR)),
        "{said:?}"
    );
    assert!(!world.member.is_given_up(THERE));
    let out = world.control(ToNode::Settled(Box::new(Settled { gone: vec![there], held: Vec::new() })));
    assert!(told(&out, world.driver).iter().any(|said| matches!(said, Message::Settled(_))), "{out:?}");
}

#[test]
fn a_node_that_is_heard_is_not_given_up_and_one_with_a_head_never() {
    let mut world = World::new();
    world.start(-1, FAR);
    world.at(BEGIN, |member, out| member.on_link_ended(THERE, out));
    let late = BEGIN.plus(10 * CONTROL_AWAY_NANOS);
    assert!(
        !world.at(late, |_, _| ()).contains(&NodeAction::GiveUp(THERE)),
        "the head says what became of it"
    );
    world.at(late, |member, _| member.on_control_down(late));
    let (there, here) = (WorkerId(THERE.0), WorkerId(HERE.0));
    world.at(late, |member, out| {
        let watch = Watch { worker: WorkerId(HERE.0 + 1) }.into();
        assert_eq!(member.on_routed(THERE, there, here, watch, late, out), Ok(None));
    });
    let later = late.plus(10 * CONTROL_AWAY_NANOS);
    assert!(!world.at(later, |_, _| ()).contains(&NodeAction::GiveUp(THERE)));
    // One to which this node has no link, and which a process here does not reach.
    assert!(world.at(later, |member, _| member.on_unreached(THERE)).contains(&NodeAction::GiveUp(THERE)));
}

#[test]
fn the_creator_s_node_tells_a_new_head_of_an_actor_that_may_start_again() {
    let mut world = World::new();
    world.start(2, FAR);
    assert_eq!(world.created_again(), Some((1, 1)), "its process is gone with the node: that is one");
    world.begin(WorkerId(THERE.0 + 6));
    world.begin(WorkerId(THERE.0 + 6));
    assert_eq!(world.created_again(), Some((0, 2)));
    world.begin(WorkerId(THERE.0 + 7));
    assert_eq!(world.created_again(), None, "no restart is left");

    let mut world = World::new();
    world.start(-1, FAR);
    assert_eq!(world.created_again(), Some((-1, 1)));
    let actor = world.actor();
    let failure = Failure::new(FailureCode::ActorDied, "it ended");
    world.control(ToNode::Dead(Box::new(ActorDead { actor, failure })));
    assert_eq!(world.created_again(), None, "it is dead");

    let mut world = World::new();
    world.start(0, FAR);
    assert_eq!(world.created_again(), None, "it never starts again");
}

#[test]
fn what_was_killed_while_there_was_no_head_does_not_start_again() {
    let mut world = World::new();
    world.start(-1, FAR);
    world.at(BEGIN, |member, _| member.on_control_down(BEGIN));
    let actor = world.actor();
    world.send(KillActor { actor, may_restart: None });
    let words = world.sent_again();
    let mut control = control();
    let sent = give(&mut control, words);
    assert!(!sent.iter().any(|(_, word)| matches!(word, ToNode::PlaceActor(_))), "{sent:?}");
}

/// A new control service that knew both nodes, and has only this one left.
fn control() -> Directory {
    let mut control = Directory::default();
    control.keep_records(Found { incarnation: 1, nodes: vec![HERE, THERE], ..Found::default() });
    control.expect_nodes(Instant(60_000_000_000));
    control.on_node_joined(NodeCore::new(cpus(1.0), HERE.0, 0).row());
    control
}

fn give(control: &mut Directory, words: Vec<ToControl>) -> Vec<(NodeId, ToNode)> {
    let mut out = DirectoryActions::new();
    for word in words {
        control.on_node(HERE, word, BEGIN, &mut out);
    }
    control.on_node_dead(THERE, "its port is closed", &mut out);
    control.on_all_here(BEGIN, &mut out);
    control.after_events(BEGIN, &mut out);
    let sent = |action| match action {
        DirectoryAction::Send(to, word) => Some((to, *word)),
        DirectoryAction::Warn(_) | DirectoryAction::Persist(..) => None,
    };
    out.into_iter().filter_map(sent).collect()
}

#[test]
fn a_new_head_starts_an_actor_again_whose_node_ended_with_the_one_before() {
    let mut world = World::new();
    world.start(-1, FAR);
    let mut control = control();
    let sent = give(&mut control, world.sent_again());
    let placed = sent.iter().find_map(|(to, word)| match word {
        ToNode::PlaceActor(place) => Some((*to, place.takeover.0, place.create.constructor.spec.retries)),
        _ => None,
    });
    assert_eq!(placed, Some((HERE, 1, 1)), "the second process: {sent:?}");
    assert!(!sent.iter().any(|(_, word)| matches!(word, ToNode::Dead(_))), "{sent:?}");
}

#[test]
fn without_a_head_the_node_of_a_driver_says_what_its_job_needs() {
    the_node_of_a_driver_says_what_its_job_needs(true);
}

#[test]
fn under_a_head_that_stands_still_the_node_of_a_driver_says_what_its_job_needs() {
    the_node_of_a_driver_says_what_its_job_needs(false);
}

#[test]
fn what_waits_for_what_a_job_needs_is_void_when_the_node_that_asked_is_gone() {
    for is_dead in [true, false] {
        let world = World::new();
        let driver = world.driver;
        let mut other = Member::new(cpus(4.0), THERE.0, 2);
        let mut out = NodeActions::new();
        let ask = lease_at(driver, driver);
        let (there, here) = (WorkerId(THERE.0), WorkerId(HERE.0));
        assert_eq!(other.on_routed(HERE, here, there, ask.into(), BEGIN, &mut out), Ok(None));
        match is_dead {
            true => other.on_node_dead(HERE, &mut out),
            false => other.on_link_ended(HERE, &mut out),
        }
        // The control service had not heard of the end when it answered.
        let started = Job { job: driver, state: JobState::Started, config: Some(Box::default()) };
        other.on_control(ToNode::Job(Box::new(started)), BEGIN, &mut out);
        other.after_events(BEGIN, &mut out);
        assert!(!out.iter().any(|action| matches!(action, NodeAction::StartWorker(_))), "{out:?}");
        assert!(other.is_quiet(), "nobody would ever give that lease back");
    }
}

/// The head `is_away`, or does not answer over a connection that stands.
fn the_node_of_a_driver_says_what_its_job_needs(is_away: bool) {
    let mut world = World::new();
    let driver = world.driver;
    let mut other = Member::new(cpus(4.0), THERE.0, 2);
    let mut out = NodeActions::new();
    if is_away {
        other.on_control_down(BEGIN);
    }
    let ask = lease_at(driver, driver);
    let (there, here) = (WorkerId(THERE.0), WorkerId(HERE.0));
    assert_eq!(other.on_routed(HERE, here, there, ask.into(), BEGIN, &mut out), Ok(None));
    other.after_events(BEGIN, &mut out);
    let asked_of_head = |action: &NodeAction| matches!(action, NodeAction::Control(ToControl::Job(_)));
    assert!(out.iter().any(asked_of_head), "{out:?}");
    let is_routed = |action: &NodeAction| matches!(action, NodeAction::Route { .. });
    if !is_away {
        assert!(!out.iter().any(is_routed), "the head may answer: {out:?}");
        let due = other.next_deadline().expect("it is not waited for");
        assert!(due.since(BEGIN) < CONTROL_AWAY_NANOS);
        other.after_events(due, &mut out);
        other.after_events(due.plus(1), &mut out);
    }
    let mut questions = out.iter().filter_map(|action| match action {
        NodeAction::Route { to, message, .. } if *to == here => Some((**message).clone()),
        _ => None,
    });
    let Some(Message::Job(question)) = questions.next() else { panic!("{out:?}") };
    assert_eq!(questions.next(), None, "once");
    assert_eq!((question.job, question.state), (driver, JobState::Asked));
    let answered = world.at(BEGIN, |member, out| {
        assert_eq!(member.on_routed(THERE, there, here, question.into(), BEGIN, out), Ok(None));
    });
    let [NodeAction::Route { message, .. }] = &answered[..] else { panic!("{answered:?}") };
    let mut out = NodeActions::new();
    assert_eq!(other.on_routed(HERE, here, there, (**message).clone(), BEGIN, &mut out), Ok(None));
    other.after_events(BEGIN, &mut out);
    assert!(out.contains(&NodeAction::BeginJob(driver, Box::<JobConfig>::default())), "{out:?}");
    assert!(
        out.iter().any(|action| matches!(action, NodeAction::StartWorker(_))),
        "what waited goes on: {out:?}"
    );
    // A node speaks of jobs of its own drivers only.
    let of_another =
        Job { job: WorkerId((3 << 24) + 1), state: JobState::Started, config: Some(Box::default()) };
    assert!(other.on_routed(HERE, here, there, of_another.into(), BEGIN, &mut out).is_err());
}
