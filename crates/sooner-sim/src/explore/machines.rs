//! All states in which each machine of a world was met, and the transition of each event.
//!
//! A world is a product of machines that only share messages, so one machine has far fewer states than the
//! world. The production core computes each transition once; afterwards it is looked up. A local state is
//! stored as the path of events that leads to it. To try a new event, the core is built again from that path,
//! so cores need to be neither cloned nor compared. Two local states are the same if the `Debug` forms of the
//! machine, which show every field, have the same fingerprint of 128 bits.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use sooner_wire::Started;
use sooner_wire::message::Message;

use super::facts::Facts;
use super::hash;
use super::node::{Node, NodeEffect};
use super::process::{Effect, Process};
use super::program::Program;
use super::renaming::{Form, Forms, Names, Renamed};
use crate::violation::caught;

/// How many cores are kept alive, so that their paths need not be walked again for the next event.
const ALIVE_MAX: usize = 4096;

/// An event at a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A message comes from the node (0) or a process.
    Deliver { from: u8, message: u32 },
    /// A body takes its next step, or a task begins.
    Run,
    /// The deadline comes for which the machine waits.
    Timer,
    /// The running task takes long.
    ReturnQueued,
    /// The running task has waited for a while.
    Block,
    /// To the node: a process is connected.
    Connected { index: u8 },
    /// To the node: it notices the end of a process. `dead` is the state in which the process ended.
    Gone { index: u8, dead: u32 },
    /// To the node: a block is given to a process.
    Allocated { index: u8, block: u64 },
    /// To the node: a block loses its content.
    Lost { block: u64 },
    /// The control service, apart from the node, receives the node's first message.
    HeadReceives,
    /// The node receives the control service's first message.
    NodeReceives,
}

/// The outputs of a transition, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A message is sent.
    Send { to: u8, message: u32 },
    /// A block is given to the process that takes the step.
    Allocate { block: u64 },
    /// A process is forked.
    Start { index: u8 },
    /// A process is killed.
    Kill { index: u8 },
}

/// The transition of a machine on an event.
#[derive(Debug)]
pub struct Transition {
    /// The state after the event.
    pub to: u32,
    /// See [`Output`].
    pub outputs: Box<[Output]>,
    /// The receivers of its messages, as bits; `None` if it has other outputs, too.
    pub sends_only: Option<u16>,
}

/// A state of one machine.
#[derive(Debug)]
pub struct Local {
    machine: u8,
    /// The first way to it: the state before and the event. `None` for the first state of each machine.
    reached: Option<(u32, Event)>,
    /// The process has ended and the node has not noticed yet.
    pub is_dead: bool,
    /// See [`Facts`].
    pub facts: Facts,
    /// The state with its names replaced by ranks; computed only if names may be changed.
    pub form: Form,
}

enum Machine {
    Node(Box<Node>),
    Process(Box<Process>),
}

/// The parts of a world.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What the processes do.
    pub program: Program,
    /// CPUs of the node.
    pub cpus: u32,
    /// Idle workers that the node keeps.
    pub pool_size: usize,
    /// The control service is apart from the node, and linked with it.
    pub is_linked: bool,
}

/// See the module.
pub struct Machines {
    setup: Setup,
    messages: Vec<Message>,
    message_forms: Vec<Form>,
    forms: Forms,
    message_numbers: FxHashMap<Vec<u8>, u32>,
    locals: Vec<Local>,
    numbers: FxHashMap<u128, u32>,
    deaths: FxHashMap<(u8, Option<Started>), u32>,
    transitions: Vec<Transition>,
    known: FxHashMap<(u32, Event), u32>,
    alive: FxHashMap<u32, Machine>,
    text: String,
}

impl Machines {
    /// The machines of a setup, without states. The numbers of local states begin at `first`.
    #[must_use]
    pub fn new(setup: Setup, first: u32, names: Names) -> Self {
        let placeholder = || Local {
            machine: 0,
            reached: None,
            is_dead: false,
            facts: Facts::default(),
            form: Form::default(),
        };
        Self {
            setup,
            messages: Vec::new(),
            message_forms: Vec::new(),
            forms: Forms::new(names),
            message_numbers: FxHashMap::default(),
            locals: (0..first).map(|_| placeholder()).collect(),
            numbers: FxHashMap::default(),
            deaths: FxHashMap::default(),
            transitions: Vec::new(),
            known: FxHashMap::default(),
            alive: FxHashMap::default(),
            text: String::new(),
        }
    }

    /// A local state.
    #[must_use]
    pub fn local(&self, number: u32) -> &Local {
        &self.locals[number as usize]
    }

    /// A message.
    #[must_use]
    pub fn message(&self, number: u32) -> &Message {
        &self.messages[number as usize]
    }

    /// The form of a message.
    #[must_use]
    pub fn message_form(&self, number: u32) -> &Form {
        &self.message_forms[number as usize]
    }

    /// A transition.
    #[must_use]
    pub fn transition(&self, number: u32) -> &Transition {
        &self.transitions[number as usize]
    }

    /// The number of local states met, and of transitions computed.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.locals.len(), self.transitions.len())
    }

    /// The number of a message. It is encoded and decoded, to check that messages can be read.
    pub fn number_of(&mut self, message: &Message) -> u32 {
        let mut bytes = Vec::new();
        message.append(&mut bytes, 0);
        if let Some(number) = self.message_numbers.get(&bytes) {
            return *number;
        }
        let head = sooner_wire::frame::whole_frame(&bytes).expect("it fits").expect("it is whole");
        let body = &bytes[sooner_wire::frame::HEAD_BYTES..];
        let message = Message::decode(head.kind, body).expect("what was written can be read");
        let number = u32::try_from(self.messages.len()).expect("fewer messages than states");
        self.message_forms.push(self.forms.of(&format!("{message:?}")));
        self.messages.push(message);
        self.message_numbers.insert(bytes, number);
        number
    }

    /// The first state of a machine: the node (0) or a process.
    pub fn first(&mut self, machine: u8) -> u32 {
        let core = self.make(machine);
        self.meet(machine, None, &core)
    }

    /// The state of a process that ended in `local`.
    pub fn dead(&mut self, machine: u8, local: u32) -> u32 {
        let last_started = self.locals[local as usize].facts.last_started;
        if let Some(number) = self.deaths.get(&(machine, last_started)) {
            return *number;
        }
        let facts = Facts { last_started, is_idle: true, ..Facts::default() };
        let form = self.forms.of(&format!("ended in {last_started:?}"));
        let number = self.push(Local { machine, reached: None, is_dead: true, facts, form });
        self.deaths.insert((machine, last_started), number);
        number
    }

    /// The number of the transition of an event in a local state.
    ///
    /// # Errors
    /// The text of an assertion that failed in the machine.
    #[inline]
    pub fn step(&mut self, local: u32, event: Event) -> Result<u32, String> {
        match self.known.get(&(local, event)) {
            Some(number) => Ok(*number),
            None => self.work_out(local, event),
        }
    }

    /// Compares the transitions computed so far: the same event, in states that differ only in names, must
    /// lead to states and outputs that differ only in names. Returns the number of transitions that were
    /// compared with an earlier one.
    ///
    /// # Errors
    /// Two transitions that do not agree.
    pub fn agree(&self, names: Names) -> Result<usize, String> {
        let mut met: FxHashMap<u64, (u64, u32, Event)> = FxHashMap::default();
        let mut compared = 0;
        for ((local, event), number) in &self.known {
            let mut renamed = Renamed::new(names);
            self.add_to(&mut renamed, *local, *event, None);
            let cause = renamed.fingerprint();
            renamed.clear();
            self.add_to(&mut renamed, *local, *event, Some(&self.transitions[*number as usize]));
            let whole = renamed.fingerprint();
            match met.get(&cause) {
                None => drop(met.insert(cause, (whole, *local, *event))),
                Some((known, ..)) if *known == whole => compared += 1,
                Some((_, other, their)) => {
                    return Err(format!("{event:?} in state {local} and {their:?} in state {other} differ"));
                }
            }
        }
        Ok(compared)
    }

    /// Adds a state, an event and the transition that follows, with common names.
    fn add_to(&self, renamed: &mut Renamed, local: u32, event: Event, follows: Option<&Transition>) {
        let (from, form) = match event {
            Event::Deliver { from, message } => (from, Some(self.message_form(message))),
            Event::Gone { index, dead } => (index, Some(&self.local(dead).form)),
            Event::Connected { index } | Event::Allocated { index, .. } => (index, None),
            _ => (0, None),
        };
        let detail = match event {
            Event::Deliver { .. } => 1,
            Event::Run => 2,
            Event::Timer => 3,
            Event::ReturnQueued => 4,
            Event::Block => 5,
            Event::Connected { .. } => 6,
            Event::Gone { .. } => 7,
            Event::HeadReceives => 8,
            Event::NodeReceives => 9,
            Event::Allocated { block, .. } => 0x100 | block as u32,
            Event::Lost { block } => 0x200 | block as u32,
        };
        let outputs = follows.map_or(&[][..], |transition| &transition.outputs);
        let ends = outputs.iter().map(|output| match output {
            Output::Send { to: index, .. } | Output::Start { index } | Output::Kill { index } => *index,
            Output::Allocate { .. } => 0,
        });
        let sent = outputs.iter().map(|output| match output {
            Output::Send { message, .. } => Some(self.message_form(*message)),
            _ => None,
        });
        let state = follows.map(|transition| &self.local(transition.to).form);
        let forms = || [Some(&self.local(local).form), form, state].into_iter().chain(sent.clone()).flatten();
        forms().for_each(|form| renamed.meet(form));
        let ends = || [from].into_iter().chain(ends.clone());
        ends().filter(|end| *end != 0).for_each(|end| renamed.meet_worker(end));
        renamed.push(detail);
        for end in ends() {
            renamed.push(if end == 0 { 0xff } else { renamed.worker(end) });
        }
        for output in outputs {
            renamed.push(match output {
                Output::Send { .. } => 1,
                Output::Allocate { block } => 0x100 | *block as u32,
                Output::Start { .. } => 2,
                Output::Kill { .. } => 3,
            });
        }
        forms().for_each(|form| renamed.add(form));
    }

    fn work_out(&mut self, local: u32, event: Event) -> Result<u32, String> {
        let mut machine = self.alive.remove(&local).unwrap_or_else(|| self.build(local));
        let outputs = caught(|| self.apply(&mut machine, event)).map_err(|panic| text_of(panic.as_ref()))?;
        let to = self.meet(self.locals[local as usize].machine, Some((local, event)), &machine);
        if self.alive.len() >= ALIVE_MAX {
            self.alive.clear();
        }
        self.alive.insert(to, machine);
        let number = u32::try_from(self.transitions.len()).expect("fewer than states");
        let sends_only = outputs.iter().try_fold(0, |known, output| match output {
            Output::Send { to, .. } => Some(known | 1 << to),
            Output::Allocate { .. } | Output::Start { .. } | Output::Kill { .. } => None,
        });
        self.transitions.push(Transition { to, outputs: outputs.into(), sends_only });
        self.known.insert((local, event), number);
        Ok(number)
    }

    fn make(&self, machine: u8) -> Machine {
        match machine {
            0 => Machine::Node(Box::new(Node::new(&self.setup))),
            index => Machine::Process(Box::new(Process::new(index, &self.setup.program))),
        }
    }

    /// Builds the machine of a local state from its path.
    fn build(&mut self, local: u32) -> Machine {
        let mut path = Vec::new();
        let mut at = local;
        while let Some((before, event)) = self.locals[at as usize].reached {
            path.push(event);
            at = before;
        }
        let mut machine = self.make(self.locals[at as usize].machine);
        for event in path.into_iter().rev() {
            self.apply(&mut machine, event);
        }
        machine
    }

    fn apply(&mut self, machine: &mut Machine, event: Event) -> Vec<Output> {
        match machine {
            Machine::Node(node) => {
                let mut effects = Vec::new();
                match event {
                    Event::Deliver { from, message } => {
                        node.deliver(from, self.messages[message as usize].clone(), &mut effects);
                    }
                    Event::Timer => node.fire_timer(&mut effects),
                    Event::Connected { index } => node.connect(index, &mut effects),
                    Event::Gone { index, dead } => {
                        node.gone(index, self.locals[dead as usize].facts.last_started, &mut effects);
                    }
                    Event::Allocated { index, block } => node.allocate(block, index, &mut effects),
                    Event::Lost { block } => node.lose(block, &mut effects),
                    Event::HeadReceives => node.head_receives(),
                    Event::NodeReceives => node.receives_head(&mut effects),
                    Event::Run | Event::ReturnQueued | Event::Block => unreachable!("not an event of a node"),
                }
                effects.iter().map(|effect| self.node_output(effect)).collect()
            }
            Machine::Process(process) => {
                let mut effects = Vec::new();
                match event {
                    Event::Deliver { from, message } => {
                        let message = self.messages[message as usize].clone();
                        process.deliver(from, message, &self.setup.program, &mut effects);
                    }
                    Event::Run => process.run(&self.setup.program, &mut effects),
                    Event::Timer => process.fire_timer(&mut effects),
                    Event::ReturnQueued => process.return_queued(&mut effects),
                    Event::Block => process.block(&mut effects),
                    Event::Connected { .. }
                    | Event::Gone { .. }
                    | Event::Allocated { .. }
                    | Event::Lost { .. }
                    | Event::HeadReceives
                    | Event::NodeReceives => unreachable!("not an event of a process"),
                }
                effects.iter().map(|effect| self.output(effect)).collect()
            }
        }
    }

    fn node_output(&mut self, effect: &NodeEffect) -> Output {
        match effect {
            NodeEffect::Send(to, message) => Output::Send { to: *to, message: self.number_of(message) },
            NodeEffect::Start(index) => Output::Start { index: *index },
            NodeEffect::Kill(index) => Output::Kill { index: *index },
        }
    }

    fn output(&mut self, effect: &Effect) -> Output {
        match effect {
            Effect::Send(to, message) => Output::Send { to: *to, message: self.number_of(message) },
            Effect::Allocate(block) => Output::Allocate { block: *block },
        }
    }

    /// The number of the state of `core`, which is new or known.
    fn meet(&mut self, machine: u8, reached: Option<(u32, Event)>, core: &Machine) -> u32 {
        self.text.clear();
        let (written, facts) = match core {
            Machine::Node(node) => (write!(self.text, "{machine}{node:?}"), node.facts()),
            Machine::Process(process) => (write!(self.text, "{machine}{process:?}"), process.facts()),
        };
        written.expect("writing to memory cannot fail");
        let fingerprint = hash::of_bytes(self.text.as_bytes());
        if let Some(number) = self.numbers.get(&fingerprint) {
            return *number;
        }
        let form = self.forms.of(self.text.trim_start_matches(|digit: char| digit.is_ascii_digit()));
        let number = self.push(Local { machine, reached, is_dead: false, facts, form });
        self.numbers.insert(fingerprint, number);
        number
    }

    fn push(&mut self, local: Local) -> u32 {
        let number = u32::try_from(self.locals.len()).expect("fewer local states than states");
        self.locals.push(local);
        number
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without words".to_owned())
}
