//! What a node settles by itself, and what it says of ends to the control service and hears from it.

use sooner_wire::TaskId;

use super::*;

const ME: NodeId = NodeId(0);
const FAR: WorkerId = WorkerId((1 << 24) + 1);

const OWNER: WorkerId = WorkerId(1);
const GIVER: WorkerId = WorkerId(2);
const READER: WorkerId = WorkerId(3);

fn held(borrower: WorkerId) -> Held {
    Held { object: TaskId { owner: OWNER, number: 1 }.object(0), borrower, count: 1, of: None }
}

fn of(gone: WorkerId, held: Held) -> Held {
    Held { of: Some(gone), ..held }
}

fn settled(gone: &[WorkerId], held: Held) -> Step {
    Step::Settled(Settled { gone: gone.to_vec(), held: vec![held] })
}

fn answers(settling: &mut Settling, from: WorkerId, gone: WorkerId, held: Vec<Held>) {
    settling.on_answer(from, HeldFrom { gone, held });
}

#[test]
fn a_death_is_settled_when_all_have_answered() {
    let mut settling = Settling::default();
    settling.on_dead(GIVER, [OWNER, READER].into_iter(), false);
    settling.on_answer(READER, HeldFrom { gone: GIVER, held: vec![held(READER)] });
    assert_eq!(settling.next(ME, true), []);
    settling.on_answer(OWNER, HeldFrom { gone: GIVER, held: Vec::new() });
    assert_eq!(settling.next(ME, true), [settled(&[GIVER], of(GIVER, held(READER)))]);
    assert_eq!(settling.next(ME, true), []);
}

#[test]
fn deaths_are_settled_together() {
    // The reader has what the giver handed to it; what it handed on, a third process says.
    let mut settling = Settling::default();
    let third = WorkerId(4);
    settling.on_dead(GIVER, [OWNER, READER, third].into_iter(), false);
    settling.on_answer(READER, HeldFrom { gone: GIVER, held: vec![held(READER)] });
    for from in [OWNER, third] {
        settling.on_answer(from, HeldFrom { gone: GIVER, held: Vec::new() });
    }
    settling.on_dead(READER, [OWNER, third].into_iter(), false);
    assert_eq!(settling.next(ME, true), []);
    settling.on_answer(OWNER, HeldFrom { gone: READER, held: Vec::new() });
    settling.on_answer(third, HeldFrom { gone: READER, held: vec![held(third)] });
    assert_eq!(settling.next(ME, true), [settled(&[GIVER, READER], of(READER, held(third)))]);
}

#[test]
fn what_another_node_may_know_of_is_settled_by_control_with_all_that_is_open() {
    let mut settling = Settling::default();
    let clients = [OWNER, READER];
    assert_eq!(settling.on_dead(WorkerId(5), clients.into_iter(), false), []);
    let shared = settling.on_dead(GIVER, clients.into_iter(), true);
    assert_eq!(shared, [WorkerId(5), GIVER], "they may depend on each other");
    for gone in [WorkerId(5), GIVER] {
        clients.into_iter().for_each(|client| answers(&mut settling, client, gone, vec![held(client)]));
    }
    let said = |gone| Step::Collected(gone, vec![of(gone, held(OWNER)), of(gone, held(READER))]);
    assert_eq!(settling.next(ME, true), [said(WorkerId(5)), said(GIVER)]);
    assert_eq!(settling.next(ME, true), []);
    assert_eq!(
        settling.on_dead(READER, [OWNER].into_iter(), false),
        [READER],
        "the control service counts what it was said to hold"
    );
    assert_eq!(settling.again(ME).len(), 5, "three ends and two answers");
    assert_eq!(settling.on_settled(vec![WorkerId(5), GIVER, READER]).len(), 3);
    assert!(settling.is_empty() && !settling.is_shared());
}

#[test]
fn an_owner_elsewhere_is_told_by_control_what_a_process_left_that_nobody_knew() {
    let mut settling = Settling::default();
    settling.on_dead(GIVER, [READER].into_iter(), false);
    let held =
        Held { object: TaskId { owner: FAR, number: 1 }.object(0), borrower: READER, count: 1, of: None };
    answers(&mut settling, READER, GIVER, vec![held]);
    let steps = [Step::Share(GIVER), Step::Collected(GIVER, vec![of(GIVER, held)])];
    assert_eq!(settling.next(ME, true), steps);
}

#[test]
fn a_node_that_is_gone_is_answered_for_once() {
    let mut settling = Settling::default();
    let (other, node) = (WorkerId(FAR.0 + 1), FAR.node());
    settling.on_dead_elsewhere(FAR, [READER].into_iter());
    settling.on_node_dead(node, &[FAR, other], &[READER]);
    answers(&mut settling, READER, FAR, Vec::new());
    assert_eq!(settling.next(ME, true), [Step::Collected(FAR, Vec::new())], "it was asked about before");
    answers(&mut settling, READER, other, vec![held(READER)]);
    assert_eq!(settling.next(ME, true), [Step::Collected(address(node), vec![of(other, held(READER))])]);
    assert_eq!(settling.on_settled(vec![FAR, address(node)]), [FAR, other]);
    assert!(settling.is_empty() && settling.has_answered(other));
    settling.on_node_dead(node, &[], &[READER]);
    let again = Step::Collected(address(node), vec![of(other, held(READER))]);
    assert_eq!(settling.next(ME, true), [again], "another control service asks");
}

#[test]
fn what_was_said_is_said_again_to_a_control_service_that_asks_again() {
    let mut settling = Settling::default();
    settling.on_dead_elsewhere(FAR, [READER].into_iter());
    answers(&mut settling, READER, FAR, vec![held(READER)]);
    let said = of(FAR, held(READER));
    assert_eq!(settling.next(ME, true), [Step::Collected(FAR, vec![said])]);
    assert_eq!(settling.answer_of(FAR), [said], "the question crossed the answer");
    settling.on_settled(vec![FAR]);
    assert_eq!(settling.answer_of(FAR), [said]);
    settling.on_node_dead(FAR.node(), &[], &[READER]);
    let of_node = Step::Collected(address(FAR.node()), vec![said]);
    assert_eq!(settling.next(ME, true), [of_node], "others may have heard of the process with its node");
    settling.on_dead(READER, [OWNER].into_iter(), false);
    assert_eq!(settling.answer_of(FAR), [], "it holds nothing any more");
}

#[test]
fn a_process_that_was_heard_of_with_its_node_may_be_asked_about_by_itself() {
    let mut settling = Settling::default();
    let (other, node) = (WorkerId(FAR.0 + 1), FAR.node());
    settling.on_node_dead(node, &[FAR, other], &[READER]);
    assert!(!settling.on_asked_alone(FAR), "an answer follows");
    answers(&mut settling, READER, FAR, vec![held(READER)]);
    let said = of(FAR, held(READER));
    assert_eq!(settling.next(ME, true), [Step::Collected(FAR, vec![said])]);
    answers(&mut settling, READER, other, Vec::new());
    assert_eq!(settling.next(ME, true), [Step::Collected(address(node), Vec::new())]);
    assert!(settling.on_asked_alone(other), "what is held of it was said with its node");
    assert_eq!(settling.on_settled(vec![address(node)]), [other]);
    assert!(settling.is_open(FAR) && !settling.on_asked_alone(FAR));
}

#[test]
fn what_is_remembered_has_a_bound() {
    let mut over = Over::default();
    let many = vec![held(READER); HELD_MAX / 2];
    for number in 0..4 {
        over.insert(WorkerId(FAR.0 + number), many.clone());
    }
    let sizes: Vec<usize> = (0..4).map(|number| over.held_of(WorkerId(FAR.0 + number)).len()).collect();
    assert_eq!(sizes, [0, 0, HELD_MAX / 2, HELD_MAX / 2], "the latest");
    (0..DEATHS_MAX as u64).for_each(|number| over.insert(WorkerId(FAR.0 + 100 + number), Vec::new()));
    assert_eq!((over.held, over.deaths.len()), (0, DEATHS_MAX));
}
