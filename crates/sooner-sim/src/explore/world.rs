//! A state of a whole world as a few numbers, and all states that can follow it.
//!
//! A world is a node, a driver and workers (as [`Machines`]), with an ordered, reliable channel per ordered
//! pair of them ([`Contents`]); messages of different senders arrive in any order. A step is atomic: one
//! machine takes one event, and its outputs are sent. The possible events: the first message of a channel is
//! delivered; a body takes a step or a task begins; a timer fires; a requested process connects; the node
//! notices the end of a process, after it has read all messages of the process; a signalled process ends;
//! and, while there are kills left, a process is killed between two steps, or after any number of the outputs
//! of one.
//!
//! As in the shell, a process's messages are read before its end is believed. A message to a process whose
//! end the node has noticed becomes a request to the node, which answers that the process is dead.

use sooner_wire::WorkerId;
use sooner_wire::message::{Connect, Message};

use super::channels::{Contents, EMPTY};
use super::config::Config;
use super::facts::Facts;
use super::hash;
use super::machines::{Event, Machines, Output};
use super::program::{index_of, worker};
use super::renaming::{Names, Renamed};

/// Room for the numbers of one state.
pub const WORDS: usize = 92;
/// A state of a world: `[node, flags, process 1.., channels]`, with zeros behind.
pub type Words = [u32; WORDS];

/// The state of a process that was not forked.
const ABSENT: u32 = 0;
/// The state of a process whose end was noticed.
const DEAD: u32 = 1;
const NODE: usize = 0;
/// Kills (8 bits), signalled processes and forked unconnected ones (8 bits each), losses.
const FLAGS: usize = 1;
const LOSSES_SHIFT: u32 = 26;

/// A move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// The first message of a channel arrives.
    Deliver { from: u8, to: u8 },
    /// A process takes a step of its own.
    Local { index: u8, event: Event },
    /// A forked process connects.
    Start(u8),
    /// The node notices the end of a process.
    Notice(u8),
    /// A signalled process ends.
    End(u8),
    /// A fault: a process ends between two steps.
    Kill(u8),
    /// A fault: a block loses its content.
    Lose(u8),
}

/// A move, and for a process killed amid it, the number of its outputs that are sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// See [`Move`].
    pub what: Move,
    /// See the type.
    pub killed_after: Option<u8>,
}

/// Why a state is wrong.
pub type Violation = String;

/// See the module.
pub struct World<'c> {
    config: &'c Config,
    machines: Machines,
    contents: Contents,
    processes: usize,
    names: Names,
    renamed: Renamed,
    busy: Vec<(usize, u32)>,
}

impl<'c> World<'c> {
    /// The world of a configuration; `names` are no part of its states.
    #[must_use]
    pub fn new(config: &'c Config, names: Names) -> Self {
        let processes = config.processes;
        assert!(2 + processes + (processes + 1).pow(2) <= WORDS, "a configuration of few processes");
        let machines = Machines::new(config.setup.clone(), DEAD + 1, names);
        let (contents, renamed) = (Contents::default(), Renamed::new(names));
        Self { config, machines, contents, processes, names, renamed, busy: Vec::new() }
    }

    /// How many of the [`Words`] are used.
    #[must_use]
    pub fn words(&self) -> usize {
        2 + self.processes + (self.processes + 1).pow(2)
    }

    /// The machines met so far.
    #[must_use]
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// The first state.
    pub fn first(&mut self) -> Words {
        let mut words = [0; WORDS];
        words[NODE] = self.machines.first(0);
        words[Self::at(1)] = self.machines.first(1);
        words
    }

    /// Makes names a part of the state again; the machines keep their states' forms without names.
    pub fn tell_names_apart(&mut self) {
        self.names = Names::default();
    }

    /// The fingerprint of a state; never zero.
    pub fn fingerprint(&mut self, words: &Words) -> u64 {
        if !self.names.any {
            return hash::of_words(&words[..self.words()]);
        }
        let everyone = self.everyone();
        let Self { machines, contents, renamed, processes, busy, .. } = self;
        let begin = 2 + *processes;
        let channels = words[begin..].iter().take((*processes + 1).pow(2)).enumerate();
        busy.clear();
        busy.extend(channels.filter(|(_, content)| **content != EMPTY).map(|(at, content)| (at, *content)));
        let ends = |at: usize| [at / (*processes + 1), at % (*processes + 1)].map(|end| end as u8);
        renamed.clear();
        renamed.meet(&machines.local(words[NODE]).form);
        for index in everyone.clone() {
            let number = words[Self::at(index)];
            if number > DEAD || is_signalled(words, index) || starting_of(words, index) {
                renamed.meet_worker(index);
                renamed.meet(&machines.local(number).form);
            }
        }
        for (at, content) in &*busy {
            ends(*at).into_iter().filter(|end| *end != 0).for_each(|end| renamed.meet_worker(end));
            contents.iter(*content).for_each(|message| renamed.meet(machines.message_form(message)));
        }
        renamed.push(u32::from(kills_of(words)) << 8 | u32::from(losses_of(words)));
        renamed.add(&machines.local(words[NODE]).form);
        for index in everyone {
            if renamed.has_met(index) {
                let number = words[Self::at(index)];
                let flags = u32::from(is_signalled(words, index)) << 1 | u32::from(starting_of(words, index));
                renamed.push(renamed.worker(index) << 8 | number.min(DEAD + 1) << 4 | flags);
                renamed.add(&machines.local(number).form);
            }
        }
        for (at, content) in &*busy {
            let [from, to] = ends(*at).map(|end| if end == 0 { 0xff } else { renamed.worker(end) });
            renamed.push(1 << 16 | from << 8 | to);
            contents.iter(*content).for_each(|message| renamed.add(machines.message_form(message)));
        }
        renamed.fingerprint()
    }

    /// The machine that makes a move, if the move changes only the state of this machine, the channel from
    /// which it takes its message, and the ends of channels that begin at it: see [`super::sleep`].
    pub fn sole_actor(&mut self, words: &Words, taken: Taken) -> Option<u8> {
        if taken.killed_after.is_some() || !matches!(taken.what, Move::Deliver { .. } | Move::Local { .. }) {
            return None;
        }
        let (index, event) = self.event_of(words, taken.what)?;
        let at = if index == 0 { NODE } else { Self::at(index) };
        let number = self.machines.step(words[at], event).ok()?;
        let sent = self.machines.transition(number).sends_only?;
        let hears = |to: u8| sent & (1 << to) == 0 || words[Self::at(to)] > DEAD;
        self.everyone().all(hears).then_some(index)
    }

    /// The name of a machine in the state that was fingerprinted last.
    #[must_use]
    pub fn name(&self, index: u8) -> u8 {
        match index {
            0 => 0,
            _ if self.names.workers => 1 + self.renamed.worker(index) as u8,
            _ => index,
        }
    }

    fn at(index: u8) -> usize {
        FLAGS + usize::from(index)
    }

    fn channel(&self, from: u8, to: u8) -> usize {
        2 + self.processes + usize::from(from) * (self.processes + 1) + usize::from(to)
    }

    fn everyone(&self) -> std::ops::RangeInclusive<u8> {
        1..=u8::try_from(self.processes).expect("few processes")
    }

    /// The facts of a process, if it lives.
    fn living(&self, words: &Words, index: u8) -> Option<&Facts> {
        let number = words[Self::at(index)];
        let local = (number > DEAD).then(|| self.machines.local(number))?;
        (!local.is_dead).then_some(&local.facts)
    }

    /// All states that may follow a state by moves that are not asleep, faults last. Returns the number of
    /// moves that are no faults, sleeping ones included.
    ///
    /// # Errors
    /// A violation in a machine or in a state.
    pub fn successors(
        &mut self,
        words: &Words,
        asleep: &[Move],
        moves: &mut Vec<(Taken, Words)>,
    ) -> Result<usize, (Taken, Violation)> {
        moves.clear();
        let possible = self.possible(words);
        for what in possible.iter().filter(|what| !asleep.contains(what)) {
            let taken = Taken { what: *what, killed_after: None };
            let next = self.take(words, taken).map_err(|violation| (taken, violation))?;
            moves.push((taken, next));
        }
        if kills_of(words) < self.config.kills {
            self.kills(words, &possible, moves)?;
        }
        if losses_of(words) < self.config.losses {
            self.losses(words, moves)?;
        }
        Ok(possible.len())
    }

    fn losses(&mut self, words: &Words, moves: &mut Vec<(Taken, Words)>) -> Result<(), (Taken, Violation)> {
        let blocks = self.machines.local(words[NODE]).facts.blocks;
        for block in (0..64).filter(|block| blocks & (1 << block) != 0) {
            let taken = Taken { what: Move::Lose(block), killed_after: None };
            let mut next = self.take(words, taken).map_err(|violation| (taken, violation))?;
            next[FLAGS] += 1 << LOSSES_SHIFT;
            moves.push((taken, next));
        }
        Ok(())
    }

    fn kills(
        &mut self,
        words: &Words,
        possible: &[Move],
        moves: &mut Vec<(Taken, Words)>,
    ) -> Result<(), (Taken, Violation)> {
        let mut taken_moves: Vec<Taken> = Vec::new();
        for index in self.everyone() {
            if self.config.may_be_killed(index) && self.living(words, index).is_some() {
                taken_moves.push(Taken { what: Move::Kill(index), killed_after: None });
            }
        }
        for what in possible.iter().copied() {
            let Some((index, event)) = self.event_of(words, what) else { continue };
            if index == 0 || !self.config.may_be_killed(index) {
                continue;
            }
            let number = self
                .machines
                .step(words[Self::at(index)], event)
                .map_err(|text| (Taken { what, killed_after: None }, text))?;
            let outputs = self.machines.transition(number).outputs.len();
            // Killed before its first output, the process loses the event, but a task may count as begun.
            // Killed after its last output, it is killed between two steps.
            for cut in 0..outputs {
                let killed_after = Some(u8::try_from(cut).expect("few outputs"));
                taken_moves.push(Taken { what, killed_after });
            }
        }
        for taken in taken_moves {
            let mut next = self.take(words, taken).map_err(|violation| (taken, violation))?;
            next[FLAGS] += 1;
            moves.push((taken, next));
        }
        Ok(())
    }

    /// The possible moves that are no faults.
    pub fn possible(&self, words: &Words) -> Vec<Move> {
        let mut moves = Vec::with_capacity(16);
        for from in 0..=*self.everyone().end() {
            for to in 0..=*self.everyone().end() {
                if words[self.channel(from, to)] != EMPTY && self.may_arrive(words, from, to) {
                    moves.push(Move::Deliver { from, to });
                }
            }
        }
        let node = &self.machines.local(words[NODE]).facts;
        let events = [
            (node.can_fire, Event::Timer),
            (node.words[0], Event::HeadReceives),
            (node.words[1], Event::NodeReceives),
        ];
        let enabled = events.iter().filter(|(is_enabled, _)| *is_enabled);
        moves.extend(enabled.map(|(_, event)| Move::Local { index: 0, event: *event }));
        for index in self.everyone() {
            if starting_of(words, index) {
                moves.push(Move::Start(index));
            }
            let number = words[Self::at(index)];
            if number <= DEAD {
                continue;
            }
            let local = self.machines.local(number);
            if local.is_dead {
                if words[self.channel(index, 0)] == EMPTY {
                    moves.push(Move::Notice(index));
                }
                continue;
            }
            if is_signalled(words, index) {
                moves.push(Move::End(index));
            }
            let facts = &local.facts;
            let events = [
                (facts.can_run, Event::Run),
                (facts.can_fire, Event::Timer),
                (facts.can_return, Event::ReturnQueued),
                (facts.can_block, Event::Block),
            ];
            let enabled = events.iter().filter(|(is_enabled, _)| *is_enabled);
            moves.extend(enabled.map(|(_, event)| Move::Local { index, event: *event }));
        }
        moves
    }

    /// A dead process's messages are read before its end is believed.
    fn may_arrive(&self, words: &Words, from: u8, to: u8) -> bool {
        if from != 0 || to == 0 {
            return true;
        }
        let (message, _) = self.contents.front(words[self.channel(from, to)]);
        match self.machines.message(message) {
            Message::WorkerDead(gone) => words[self.channel(index_of(gone.worker), to)] == EMPTY,
            _ => true,
        }
    }

    /// The machine that takes the step, and its event.
    fn event_of(&self, words: &Words, what: Move) -> Option<(u8, Event)> {
        match what {
            Move::Deliver { from, to } => {
                let (message, _) = self.contents.front(words[self.channel(from, to)]);
                let ends = match self.machines.message(message) {
                    Message::Shutdown(_) | Message::ExitActor(_) => true,
                    Message::EndIdle(_) => !self.machines.local(words[Self::at(to)]).facts.is_needed,
                    _ => false,
                };
                (!ends || to == 0).then_some((to, Event::Deliver { from, message }))
            }
            Move::Local { index, event } => Some((index, event)),
            Move::Start(index) => Some((0, Event::Connected { index })),
            Move::Notice(index) => Some((0, Event::Gone { index, dead: words[Self::at(index)] })),
            Move::Lose(block) => Some((0, Event::Lost { block: u64::from(block) })),
            Move::End(_) | Move::Kill(_) => None,
        }
    }

    /// The state after a move.
    ///
    /// # Errors
    /// What went wrong in a machine, or what is wrong with the state.
    pub fn take(&mut self, words: &Words, taken: Taken) -> Result<Words, Violation> {
        let mut next = *words;
        let event = self.event_of(words, taken.what);
        match taken.what {
            Move::Deliver { from, to } => {
                let channel = self.channel(from, to);
                next[channel] = self.contents.front(next[channel]).1;
                if event.is_none() {
                    self.end(&mut next, to);
                }
            }
            Move::Start(index) => {
                next[FLAGS] &= !(1 << (16 + index));
                next[Self::at(index)] = self.machines.first(index);
            }
            Move::Notice(index) => next[Self::at(index)] = DEAD,
            Move::End(index) | Move::Kill(index) => self.end(&mut next, index),
            Move::Local { .. } | Move::Lose(_) => {}
        }
        if let Some((index, event)) = event {
            self.act(&mut next, index, event, taken.killed_after)?;
            if taken.killed_after.is_some() {
                self.end(&mut next, index);
            }
        }
        self.check(&next)?;
        Ok(next)
    }

    fn act(&mut self, next: &mut Words, index: u8, event: Event, cut: Option<u8>) -> Result<(), Violation> {
        let at = if index == 0 { NODE } else { Self::at(index) };
        let number = self.machines.step(next[at], event)?;
        let transition = self.machines.transition(number);
        next[at] = transition.to;
        let count = cut.map_or(transition.outputs.len(), usize::from);
        for position in 0..count {
            let output = self.machines.transition(number).outputs[position];
            self.carry_out(next, index, output)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, next: &mut Words, from: u8, output: Output) -> Result<(), Violation> {
        match output {
            Output::Send { to: 0, message } => self.append(next, from, 0, message),
            Output::Send { to, message } => {
                let number = next[Self::at(to)];
                if number == ABSENT {
                    return Err(format!("process {from} speaks to process {to}, which is not there yet"));
                } else if number == DEAD {
                    self.ask_for(next, from, to);
                } else if !self.machines.local(number).is_dead {
                    self.append(next, from, to, message);
                }
            }
            Output::Allocate { block } => {
                self.act(next, 0, Event::Allocated { index: from, block }, None)?;
            }
            Output::Start { index } => {
                if usize::from(index) > self.processes {
                    return Err(format!("the configuration has room for {} processes only", self.processes));
                }
                next[FLAGS] |= 1 << (16 + index);
            }
            Output::Kill { index } => {
                if self.living(next, index).is_some() {
                    next[FLAGS] |= 1 << (8 + index);
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, next: &mut Words, from: u8, to: u8, message: u32) {
        let channel = self.channel(from, to);
        next[channel] = self.contents.append(next[channel], message);
    }

    /// A message to a dead process: instead, the sender asks the node for a connection, unless its request or
    /// the node's answer is on its way.
    fn ask_for(&mut self, next: &mut Words, from: u8, gone: u8) {
        if from == 0 {
            return;
        }
        let worker = worker(gone);
        let says_so = |message: u32| match self.machines.message(message) {
            Message::WorkerDead(gone) => gone.worker == worker,
            Message::Connect(connect) => connect.worker == worker,
            _ => false,
        };
        let (asked, answered) = (next[self.channel(from, 0)], next[self.channel(0, from)]);
        if !self.contents.iter(asked).chain(self.contents.iter(answered)).any(says_so) {
            let number = self.machines.number_of(&Connect { worker }.into());
            self.append(next, from, 0, number);
        }
    }

    fn end(&mut self, next: &mut Words, index: u8) {
        let dead = self.machines.dead(index, next[Self::at(index)]);
        next[Self::at(index)] = dead;
        next[FLAGS] &= !(1 << (8 + index));
        for from in 0..=*self.everyone().end() {
            let channel = self.channel(from, index);
            next[channel] = EMPTY;
        }
    }

    /// Checks the properties of every state.
    fn check(&self, words: &Words) -> Result<(), Violation> {
        let (mut reads, mut freed, mut failures) = (0, 0, 0);
        let mut actors = [0; 9];
        for index in self.everyone() {
            let Some(facts) = self.living(words, index) else { continue };
            freed |= facts.freed;
            // A signalled process is killed any moment: its results reach no one any more.
            if !is_signalled(words, index) {
                reads |= facts.reads;
                failures |= facts.failures;
            }
            if facts.actor != 0 {
                if actors.contains(&facts.actor) {
                    return Err(format!("I7: actor {} lives in two processes", facts.actor - 1));
                }
                actors[usize::from(index)] = facts.actor;
            }
        }
        let unused = !self.machines.local(words[NODE]).facts.blocks;
        if reads & unused != 0 {
            return Err(format!("I5: block {} is free and can be read", (reads & unused).trailing_zeros()));
        }
        if reads & freed != 0 {
            let block = (reads & freed).trailing_zeros();
            return Err(format!(
                "I5: block {block} was given up for use by its owner and can be read by others"
            ));
        }
        let allowed = self.config.allowed(kills_of(words) + losses_of(words));
        if failures & !allowed != 0 {
            let code = (failures & !allowed).trailing_zeros();
            return Err(format!("I2: a get ended in failure {code}, which nothing here explains"));
        }
        Ok(())
    }

    /// Checks the properties of a state after which nothing happens any more.
    ///
    /// # Errors
    /// What is left.
    pub fn check_end(&self, words: &Words) -> Result<(), Violation> {
        for index in self.everyone() {
            let Some(facts) = self.living(words, index) else { continue };
            if !facts.is_idle {
                return Err(format!("I1: {} waits for ever", name_of(index)));
            }
            if let Some(what) = facts.leftover {
                return Err(format!("I4: {} has {what}", name_of(index)));
            }
        }
        match self.machines.local(words[NODE]).facts.leftover {
            Some(what) => Err(format!("I4, I9: {what}")),
            None => Ok(()),
        }
    }

    /// A move in words.
    #[must_use]
    pub fn describe(&self, words: &Words, taken: Taken) -> String {
        let text = match taken.what {
            Move::Deliver { from, to } => {
                let (message, _) = self.contents.front(words[self.channel(from, to)]);
                let text = in_words(self.machines.message(message));
                format!("{} receives from {}: {text}", name_of(to), name_of(from))
            }
            Move::Local { index, event } => format!("{}: {}", name_of(index), event_in_words(event)),
            Move::Start(index) => format!("{} connects", name_of(index)),
            Move::Notice(index) => format!("the node notices the end of {}", name_of(index)),
            Move::End(index) => format!("{} ends, as it was told", name_of(index)),
            Move::Kill(index) => format!("FAULT: {} is killed", name_of(index)),
            Move::Lose(block) => format!("FAULT: what lies in block {block} is lost"),
        };
        match taken.killed_after {
            Some(count) => format!("FAULT: {text}; killed after {count} of the actions that follow"),
            None => text,
        }
    }
}

/// How many kills have happened.
fn kills_of(words: &Words) -> u8 {
    (words[FLAGS] & 0xff) as u8
}

/// How many losses have happened.
fn losses_of(words: &Words) -> u8 {
    (words[FLAGS] >> LOSSES_SHIFT) as u8
}

fn is_signalled(words: &Words, index: u8) -> bool {
    words[FLAGS] & (1 << (8 + index)) != 0
}

fn starting_of(words: &Words, index: u8) -> bool {
    words[FLAGS] & (1 << (16 + index)) != 0
}

fn name_of(index: u8) -> String {
    match index {
        0 => "the node".to_owned(),
        1 => "the driver".to_owned(),
        index => format!("worker {index}"),
    }
}

fn event_in_words(event: Event) -> String {
    match event {
        Event::Run => "the program takes a step".to_owned(),
        Event::Timer => "the timer fires".to_owned(),
        Event::ReturnQueued => "the running task takes long, queued ones go back".to_owned(),
        Event::Block => "the running task waits, its CPU is lent".to_owned(),
        Event::HeadReceives => "the control service hears what the node said first".to_owned(),
        Event::NodeReceives => "the node hears what the control service said first".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A message in words: processes by number, empty fields left out.
fn in_words(message: &Message) -> String {
    let mut text = match message {
        Message::Push(push) => {
            let (spec, values) = (&push.spec, &push.dependencies);
            format!(
                "Push({:?} {:?} references {:?} values {values:?})",
                spec.task,
                spec.kind(),
                spec.references
            )
        }
        Message::CreateActor(create) => format!("CreateActor({:?})", create.actor),
        other => format!("{other:?}"),
    };
    for index in 1..9 {
        let WorkerId(id) = worker(index);
        text = text.replace(&format!("WorkerId({id})"), &format!("{index}"));
    }
    text
}
