//! The first two messages of a connection between nodes: who is the peer, and do both sides speak the same
//! language?
//!
//! The encryption has already proved on which *node* the peer is: its certificate names the node. The peer's
//! own claims are believed only as far as they agree with that. Parsing gives a [`Party`] or one sentence
//! with the reason for a refusal, nothing else; and nothing else is ever read from a connection before it.

use sooner_wire::limits::PYTHON_VERSION_BYTES_MAX;
use sooner_wire::message::{Message, PeerHello, PeerWelcome};
use sooner_wire::version::{self, FEATURES, PROTOCOL_MAJOR, PROTOCOL_MINOR};
use sooner_wire::{DialAttempt, NodeId, WorkerId};

/// The receiver that a node names when it knows only the head's address. No process has this id.
pub const HEAD: WorkerId = WorkerId(0);

/// What this side claims about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Me {
    /// This process; a node is process number 0 of its ids.
    pub id: WorkerId,
    /// Whether [`HEAD`] means this process.
    pub is_head: bool,
    /// "3.11".
    pub python: String,
}

/// A peer that has proved its node, and speaks what this side speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party {
    /// Its id; its certificate names the node of this id.
    pub id: WorkerId,
    /// The minor version that both speak.
    pub minor: u16,
    /// The feature bits that both have.
    pub features: u64,
    /// The session that the connection carries.
    pub session: u64,
    /// Counts the hellos of that session, from one; zero in an answer.
    pub attempt: DialAttempt,
    /// Bytes of that session that the peer has; `None` at the first connection of a session.
    pub received: Option<u64>,
}

/// Why a peer is refused. The text is for people on both sides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The first message was neither the hello nor its answer.
    #[error("the first message must be a greeting, not one of kind {0}")]
    NoHello(u16),
    /// The versions cannot work together.
    #[error("{0}")]
    Version(String),
    /// Pickled code would not work.
    #[error(
        "the cluster runs Python {ours}, the peer runs Python {theirs:?}: pickled code only works between equal \
         versions; start it with Python {ours}"
    )]
    Python {
        /// The version on this side.
        ours: String,
        /// The version that the peer claims, cut.
        theirs: String,
    },
    /// A process claims to be on a node that its certificate does not name.
    #[error("the peer says it is process {id:016x}, but its certificate is of node {certified:016x}")]
    NotOfItsNode {
        /// What the peer claims.
        id: u64,
        /// What it proved.
        certified: u64,
    },
    /// The connection arrived at another process than its receiver.
    #[error("the connection is for process {wanted:016x}, this is {here:016x}")]
    NotForMe {
        /// The process that the peer asks for.
        wanted: u64,
        /// This process.
        here: u64,
    },
    /// Another process says hello than the one for which the connection was made.
    #[error("the connection was made for process {expected:016x}, {id:016x} says hello")]
    NotExpected {
        /// The process for which it was made.
        expected: u64,
        /// The process that says hello.
        id: u64,
    },
    /// The peer claims to be this very process.
    #[error("the peer says it is this very process, {0:016x}")]
    IsMe(u64),
    /// The peer refused this side.
    #[error("the peer refused: {0}")]
    Refused(String),
}

/// The first message of the dialling side.
#[must_use]
pub fn hello(me: &Me, to: WorkerId, session: u64, attempt: DialAttempt, received: Option<u64>) -> PeerHello {
    PeerHello {
        major: PROTOCOL_MAJOR,
        minor: PROTOCOL_MINOR,
        features: FEATURES,
        python: me.python.clone(),
        from: me.id,
        to,
        session,
        received,
        attempt: Some(attempt),
    }
}

/// Checks the first message on the dialled side; the peer's certificate names the node `certified`.
///
/// # Errors
/// [`Refusal`]: sent to the peer as [`sooner_wire::message::Refused`], then the connection ends.
pub fn on_hello(message: &Message, me: &Me, certified: NodeId) -> Result<Party, Refusal> {
    let Message::PeerHello(hello) = message else { return Err(Refusal::NoHello(message.kind())) };
    version::check(hello.major, hello.minor).map_err(Refusal::Version)?;
    if hello.from.node() != certified {
        return Err(Refusal::NotOfItsNode { id: hello.from.0, certified: certified.0 });
    }
    if hello.to != me.id && !(hello.to == HEAD && me.is_head) {
        return Err(Refusal::NotForMe { wanted: hello.to.0, here: me.id.0 });
    }
    if hello.from == me.id {
        return Err(Refusal::IsMe(me.id.0));
    }
    if hello.python != me.python {
        let theirs = cut(&hello.python, PYTHON_VERSION_BYTES_MAX);
        return Err(Refusal::Python { ours: me.python.clone(), theirs });
    }
    Ok(Party {
        id: hello.from,
        minor: version::spoken(hello.minor),
        features: hello.features & FEATURES,
        session: hello.session,
        attempt: hello.attempt.unwrap_or_default(),
        received: hello.received,
    })
}

/// The answer to an admitted peer; `received` counts the bytes of its session that this side has.
#[must_use]
pub fn welcome(party: &Party, received: u64) -> PeerWelcome {
    PeerWelcome { minor: PROTOCOL_MINOR, features: FEATURES, session: party.session, received }
}

/// Checks the first message on the dialling side, the answer to `sent`; the peer's certificate names the node
/// `certified`. The answer may name another session than `sent`: [`super::Link::on_welcome`] decides what
/// follows.
///
/// # Errors
/// [`Refusal`]: the connection ends.
pub fn on_answer(message: &Message, sent: &PeerHello, certified: NodeId) -> Result<Party, Refusal> {
    let welcome = match message {
        Message::PeerWelcome(welcome) => welcome,
        Message::Refused(refused) => return Err(Refusal::Refused(cut(&refused.reason, TEXT_BYTES))),
        other => return Err(Refusal::NoHello(other.kind())),
    };
    version::check(PROTOCOL_MAJOR, welcome.minor).map_err(Refusal::Version)?;
    let id = if sent.to == HEAD { WorkerId(certified.0) } else { sent.to };
    if id.node() != certified {
        return Err(Refusal::NotOfItsNode { id: id.0, certified: certified.0 });
    }
    Ok(Party {
        id,
        minor: version::spoken(welcome.minor),
        features: welcome.features & FEATURES,
        session: welcome.session,
        attempt: DialAttempt::default(),
        received: Some(welcome.received),
    })
}

/// How much of a peer's reason a line of a log shows (bytes).
const TEXT_BYTES: usize = 1024;

fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::message::{Blocked, Refused};

    const NODE_A: NodeId = NodeId(0x0a00_0000);
    const NODE_B: NodeId = NodeId(0x0b00_0000);

    fn process(node: NodeId, number: u64) -> Me {
        Me { id: WorkerId(node.0 + number), is_head: false, python: "3.11".into() }
    }

    fn greet(change: impl FnOnce(&mut PeerHello)) -> Result<Party, Refusal> {
        let (a, b) = (process(NODE_A, 1), process(NODE_B, 2));
        let mut said = hello(&a, b.id, 5, DialAttempt(1), Some(70));
        change(&mut said);
        on_hello(&said.into(), &b, NODE_A)
    }

    #[test]
    fn both_sides_learn_who_the_other_is() {
        let (a, b) = (process(NODE_A, 1), process(NODE_B, 2));
        let said = hello(&a, b.id, 5, DialAttempt(1), Some(70));
        let at_b = on_hello(&said.clone().into(), &b, NODE_A).expect("fits");
        assert_eq!((at_b.id, at_b.session, at_b.received), (a.id, 5, Some(70)));
        let at_a = on_answer(&welcome(&at_b, 80).into(), &said, NODE_B).expect("fits");
        assert_eq!((at_a.id, at_a.session, at_a.received), (b.id, 5, Some(80)));
    }

    #[test]
    fn a_node_that_knows_an_address_only_asks_for_the_head() {
        let a = process(NODE_A, 0);
        let head = Me { is_head: true, ..process(NODE_B, 0) };
        let said = hello(&a, HEAD, 1, DialAttempt(1), None);
        let at_head = on_hello(&said.clone().into(), &head, NODE_A).expect("is the head");
        let at_a = on_answer(&welcome(&at_head, 0).into(), &said, NODE_B).expect("fits");
        assert_eq!(at_a.id, head.id);
        let other = process(NODE_B, 0);
        let refused = on_hello(&said.into(), &other, NODE_A);
        assert_eq!(refused, Err(Refusal::NotForMe { wanted: 0, here: NODE_B.0 }));
    }

    #[test]
    fn one_minor_version_of_skew_works_and_the_older_one_is_spoken() {
        let newer = greet(|hello| hello.minor = PROTOCOL_MINOR + 1).expect("one is accepted");
        assert_eq!(newer.minor, PROTOCOL_MINOR);
        assert!(matches!(greet(|hello| hello.minor = PROTOCOL_MINOR + 2), Err(Refusal::Version(_))));
        assert!(matches!(greet(|hello| hello.major = PROTOCOL_MAJOR + 1), Err(Refusal::Version(_))));
    }

    #[test]
    fn unknown_features_are_ignored() {
        assert_eq!(greet(|hello| hello.features = u64::MAX).expect("fits").features, FEATURES);
    }

    #[test]
    fn a_process_of_another_node_than_its_certificate_names_is_refused() {
        let refused = greet(|hello| hello.from = WorkerId(NODE_B.0 + 1));
        assert_eq!(refused, Err(Refusal::NotOfItsNode { id: NODE_B.0 + 1, certified: NODE_A.0 }));
        let (a, b) = (process(NODE_A, 1), process(NODE_B, 2));
        let said = hello(&a, b.id, 5, DialAttempt(1), None);
        let answer = PeerWelcome { minor: PROTOCOL_MINOR, features: 0, session: 5, received: 0 };
        let refused = on_answer(&answer.into(), &said, NODE_A);
        assert_eq!(refused, Err(Refusal::NotOfItsNode { id: b.id.0, certified: NODE_A.0 }));
    }

    #[test]
    fn another_python_is_refused_with_both_versions() {
        let refused = greet(|hello| hello.python = "3.12".into()).expect_err("differs");
        let text = refused.to_string();
        assert!(text.contains("3.11") && text.contains("3.12"), "{text}");
        let long = greet(|hello| hello.python = "é".repeat(1 << 20)).expect_err("differs");
        assert!(long.to_string().len() < 400);
    }

    #[test]
    fn what_is_not_for_this_process_is_refused() {
        assert!(matches!(greet(|hello| hello.to = WorkerId(9)), Err(Refusal::NotForMe { .. })));
        let (a, b) = (process(NODE_A, 1), process(NODE_A, 1));
        let said = hello(&a, b.id, 5, DialAttempt(1), None);
        assert_eq!(on_hello(&said.into(), &b, NODE_A), Err(Refusal::IsMe(b.id.0)));
        assert_eq!(on_hello(&Blocked {}.into(), &b, NODE_A), Err(Refusal::NoHello(14)));
    }

    #[test]
    fn a_refusal_and_a_strange_answer_are_told() {
        let (a, b) = (process(NODE_A, 1), process(NODE_B, 2));
        let said = hello(&a, b.id, 5, DialAttempt(1), None);
        let refused = Refused { reason: "no".into() };
        assert_eq!(on_answer(&refused.into(), &said, NODE_B), Err(Refusal::Refused("no".into())));
        assert_eq!(on_answer(&Blocked {}.into(), &said, NODE_B), Err(Refusal::NoHello(14)));
        let answer = PeerWelcome { minor: PROTOCOL_MINOR, features: 0, session: 6, received: 0 };
        assert_eq!(on_answer(&answer.into(), &said, NODE_B).expect("the link decides").session, 6);
    }
}
