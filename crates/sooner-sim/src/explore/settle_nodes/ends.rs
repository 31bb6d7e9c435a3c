//! How each end handles its messages. The model itself is in the parent module.

use sooner_protocol::control::deaths::DeathMessage;
use sooner_protocol::node::peers::deaths::Step;
use sooner_protocol::worker::ownership::Return;
use sooner_wire::message::HeldFrom;
use sooner_wire::{NodeId, WorkerId};

use super::{
    CONTROL, Control, Holding, LENDER, Learning, NODES, Node, OWNER, PROCESSES, Process, SettleNodes, State,
    Word, as_end, is_process, node_id, node_of,
};
use crate::explore::world::Violation;

impl State {
    pub(super) fn send(&mut self, from: u8, to: u8, word: Word) {
        if !is_process(to) && to != CONTROL && self.nodes[usize::from(to) - PROCESSES].is_dead {
            if from != CONTROL && !is_process(from) {
                self.send(from, CONTROL, Word::Suspect(to - PROCESSES as u8));
            }
            return;
        }
        self.channels.entry((from, to)).or_default().push(word);
    }

    pub(super) fn node(&mut self, node: u8) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    pub(super) fn process(&mut self, process: u8) -> &mut Process {
        &mut self.processes[usize::from(process)]
    }

    /// A process sends a message to another one. Both nodes record the line between them first.
    pub(super) fn tell(&mut self, model: &SettleNodes, from: u8, to: u8, word: Word) {
        if from == to {
            return;
        }
        let [here, there] = [from, to].map(|process| model.nodes[usize::from(process)]);
        if here != there {
            if self.nodes[usize::from(there)].is_dead {
                return;
            }
            if !self.nodes[usize::from(there)].clients.contains(&to) {
                return self.on_watch(model, there, to, here);
            }
            let (a, b) = (model.id(from), model.id(to));
            self.node(here).watches.note(a, b);
            self.node(there).watches.note(b, a);
        }
        if !self.processes[usize::from(to)].is_dead {
            self.send(from, to, word);
        }
    }

    pub(super) fn hand_on(&mut self, model: &SettleNodes, from: u8) {
        self.process(from).has_handed_on = true;
        let to = from + 1;
        if self.processes[usize::from(from)].gone.contains(&to) {
            return;
        }
        if from == OWNER {
            self.change_borrow(model, to, None, 1);
        } else {
            self.tell(model, from, OWNER, Word::AddBorrow(to));
        }
        self.tell(model, from, to, Word::Reference);
        if model.gives_back {
            self.process(from).has = false;
        }
    }

    pub(super) fn can_hand_again(&self) -> bool {
        let [owner, lender] = [OWNER, LENDER].map(|process| &self.processes[usize::from(process)]);
        let is_done = lender.had && !lender.has && !lender.is_dead;
        is_done && owner.has && !self.has_handed_again && !owner.gone.contains(&LENDER)
    }

    pub(super) fn hand_again(&mut self, model: &SettleNodes) {
        self.has_handed_again = true;
        self.change_borrow(model, LENDER, None, 1);
        self.tell(model, OWNER, LENDER, Word::Reference);
    }

    pub(super) fn drop_reference(&mut self, model: &SettleNodes, who: u8) {
        let process = self.process(who);
        process.has = false;
        let received = std::mem::take(&mut process.received);
        let handed = std::mem::take(&mut process.handed);
        let said = std::mem::take(&mut process.said);
        if received > 0 {
            self.tell(model, who, OWNER, Word::RemoveBorrow(received, None, false));
        }
        for (giver, count) in said {
            let giver = (!model.sets_off).then_some(giver);
            self.tell(model, who, OWNER, Word::RemoveBorrow(count, giver, !model.sets_off));
        }
        for (giver, count) in handed {
            self.tell(model, who, OWNER, Word::RemoveBorrow(count, Some(giver), false));
        }
        self.free_if_unused();
    }

    // --- the owner ---

    pub(super) fn change_borrow(
        &mut self,
        model: &SettleNodes,
        borrower: u8,
        giver: Option<u8>,
        change: i32,
    ) {
        let giver = giver.map(|giver| model.id(giver));
        self.borrowers.change(model.id(borrower), giver, change);
        let [home, there] = [OWNER, borrower].map(|process| model.nodes[usize::from(process)]);
        let is_dead = self.processes[usize::from(OWNER)].gone.contains(&borrower);
        if home != there && !is_dead && !self.watched.contains(&borrower) {
            self.watched.push(borrower);
            self.watched.sort_unstable();
            self.on_node_message(model, home, OWNER, Word::Watch(borrower));
        }
        self.free_if_unused();
    }

    pub(super) fn is_settled(&self, process: u8) -> bool {
        self.processes[usize::from(OWNER)].gone.contains(&process) && !self.unsettled.contains(&process)
    }

    pub(super) fn free_if_unused(&mut self) {
        let owner = &self.processes[usize::from(OWNER)];
        if !owner.is_dead && !owner.has && self.borrowers.is_empty() {
            self.is_freed = true;
        }
    }

    // --- processes ---

    pub(super) fn on_process_message(&mut self, model: &SettleNodes, from: u8, to: u8, word: Word) {
        match word {
            Word::Reference => {
                let process = self.process(to);
                (process.has, process.had) = (true, true);
                if from == OWNER {
                    process.received += 1;
                } else {
                    *process.handed.entry(from).or_default() += 1;
                }
            }
            Word::AddBorrow(borrower) => {
                if !self.is_settled(borrower) {
                    let giver = (from != borrower).then_some(from);
                    self.change_borrow(model, borrower, giver, 1);
                }
            }
            Word::RemoveBorrow(count, giver, was_sent) => {
                let count = i32::try_from(count).expect("few");
                let giver = giver.map(|giver| model.id(giver));
                match Return::of(giver, was_sent, |giver| self.is_settled(model.end(giver))) {
                    Return::Nothing => {}
                    Return::Later(giver) => self.borrowers.set_aside(model.id(from), giver, count),
                    Return::Now(giver) => {
                        let giver = giver.map(|giver| model.end(giver));
                        self.change_borrow(model, from, giver, -count);
                    }
                }
            }
            Word::Gone(gone) => self.on_told(model, to, gone),
            Word::Settled(gone, held) if to == OWNER => self.on_owner_settled(model, &gone, &held),
            Word::Settled(..) => {}
            other => unreachable!("{other:?} to a process"),
        }
    }

    pub(super) fn on_told(&mut self, model: &SettleNodes, to: u8, gone: u8) {
        if self.processes[usize::from(to)].gone.contains(&gone) {
            return;
        }
        let process = self.process(to);
        process.gone.push(gone);
        process.gone.sort_unstable();
        let count = process.handed.remove(&gone).unwrap_or(0);
        let count = if process.gone.contains(&OWNER) { 0 } else { count };
        if count > 0 {
            process.said.insert(gone, count);
        }
        if to == OWNER {
            self.unsettled.push(gone);
            self.unsettled.sort_unstable();
            self.watched.retain(|watched| *watched != gone);
        }
        self.process(to).answers.push((gone, count));
        if model.answers_early || self.is_received(to) {
            self.answer(model, to);
        }
    }

    pub(super) fn on_owner_settled(&mut self, model: &SettleNodes, gone: &[u8], held: &[Holding]) {
        for (of, borrower, count) in held {
            if self.is_settled(*of) {
                continue;
            }
            self.change_borrow(model, *borrower, None, i32::try_from(*count).expect("few"));
        }
        for gone in gone.iter().filter(|gone| is_process(**gone)) {
            let owner = self.process(OWNER);
            if !owner.gone.contains(gone) {
                owner.gone.push(*gone);
                owner.gone.sort_unstable();
            }
            self.unsettled.retain(|open| open != gone);
            self.watched.retain(|watched| watched != gone);
            self.borrowers.end(model.id(*gone));
        }
        self.free_if_unused();
    }

    /// Whether none of a process's messages to other processes is on its way. A message between processes of
    /// one node counts as received: it is read before later messages of the node.
    pub(super) fn is_received(&self, from: u8) -> bool {
        !self.channels.iter().any(|((one, to), words)| *one == from && is_process(*to) && !words.is_empty())
    }

    pub(super) fn answer(&mut self, model: &SettleNodes, from: u8) {
        for (gone, count) in std::mem::take(&mut self.process(from).answers) {
            self.on_node_message(model, model.nodes[usize::from(from)], from, Word::HeldFrom(gone, count));
        }
    }

    // --- nodes ---

    pub(super) fn on_node_message(&mut self, model: &SettleNodes, node: u8, from: u8, word: Word) {
        match word {
            Word::HeldFrom(gone, count) => {
                let held = if count > 0 { model.held(&[(gone, from, count)]) } else { Vec::new() };
                let answer = HeldFrom { gone: model.id(gone), held };
                self.node(node).settling.on_answer(model.id(from), answer);
            }
            Word::Watch(worker)
                if is_process(from)
                    && self.nodes[usize::from(node)].watches.is_with_node(model.id(worker)) =>
            {
                self.notify_client(model, node, from, Word::Gone(worker));
                if !self.node(node).settling.join_node(model.id(worker)) {
                    self.notify_client(model, node, from, Word::Settled(vec![worker], Vec::new()));
                }
            }
            Word::Watch(worker) if is_process(from) => {
                if self.node(node).watches.watch(model.id(worker)) {
                    self.send(as_end(node), as_end(model.nodes[usize::from(worker)]), Word::Watch(worker));
                }
            }
            Word::Watch(worker) => self.on_watch(model, node, worker, from - PROCESSES as u8),
            Word::End => self.on_end(model, node, from),
            Word::Gone(gone) => self.on_dead_elsewhere(model, node, gone),
            Word::Settled(gone, held) => {
                let gone = gone.into_iter().map(|gone| model.id(gone)).collect();
                let gone = self.node(node).settling.on_settled(gone);
                let gone: Vec<u8> = gone.into_iter().map(|gone| model.end(gone)).collect();
                self.node(node).ended.retain(|ended, _| !gone.contains(ended));
                self.notify_settled(model, node, &gone, &held);
            }
            other => unreachable!("{other:?} to a node"),
        }
        self.go_on(model, node);
    }

    pub(super) fn notify_clients(&mut self, model: &SettleNodes, node: u8, word: &Word) {
        for client in self.nodes[usize::from(node)].clients.clone() {
            self.notify_client(model, node, client, word.clone());
        }
    }

    /// A process receives its node's message at once, unless it has to read other messages first.
    fn notify_client(&mut self, model: &SettleNodes, node: u8, client: u8, word: Word) {
        if self.processes[usize::from(client)].is_dead {
            return;
        }
        let is_first = !self.channels.contains_key(&(as_end(node), client));
        if is_first && !self.is_held(model, as_end(node), client, &word) {
            self.on_process_message(model, as_end(node), client, word);
        } else {
            self.send(as_end(node), client, word);
        }
    }

    /// Only the owner needs to learn that deaths are settled.
    pub(super) fn notify_settled(&mut self, model: &SettleNodes, node: u8, gone: &[u8], held: &[Holding]) {
        if self.nodes[usize::from(node)].clients.contains(&OWNER) {
            self.notify_client(model, node, OWNER, Word::Settled(gone.to_vec(), held.to_vec()));
        }
    }

    /// A node is asked by another one to report the end of a process.
    pub(super) fn on_watch(&mut self, model: &SettleNodes, node: u8, worker: u8, other: u8) {
        let this = self.node(node);
        if this.clients.contains(&worker) {
            return this.watches.on_watch(model.id(worker), node_id(other));
        }
        let is_open = this.settling.is_open(model.id(worker));
        let shared = this.settling.share();
        self.send_death(model, node, &shared, None);
        if !shared.contains(&model.id(worker)) || other != node {
            self.send(as_end(node), CONTROL, Word::ProcessDead(worker, vec![other]));
            self.node(node).asked_late.insert((worker, other));
        }
        if !is_open {
            self.send(as_end(node), CONTROL, Word::Collected(worker, Vec::new()));
        }
        self.go_on(model, node);
    }

    pub(super) fn on_end(&mut self, model: &SettleNodes, node: u8, gone: u8) {
        let this = self.node(node);
        this.clients.retain(|client| *client != gone);
        let watchers = this.watches.end(model.id(gone));
        let clients: Vec<WorkerId> = this.clients.iter().map(|client| model.id(*client)).collect();
        let shared = this.settling.on_dead(model.id(gone), clients.into_iter(), !watchers.is_empty());
        let watchers: Vec<u8> = watchers.into_iter().map(node_of).collect();
        if shared.contains(&model.id(gone)) {
            this.ended.insert(gone, watchers.clone());
        }
        self.send_death(model, node, &shared, Some((gone, watchers)));
        self.notify_clients(model, node, &Word::Gone(gone));
    }

    pub(super) fn send_death(
        &mut self,
        model: &SettleNodes,
        node: u8,
        shared: &[WorkerId],
        of: Option<(u8, Vec<u8>)>,
    ) {
        for gone in shared {
            let gone = model.end(*gone);
            let watchers = of.as_ref().filter(|(one, _)| *one == gone).map(|(_, nodes)| nodes.clone());
            self.send(as_end(node), CONTROL, Word::ProcessDead(gone, watchers.unwrap_or_default()));
        }
    }

    pub(super) fn on_dead_elsewhere(&mut self, model: &SettleNodes, node: u8, gone: u8) {
        let this = self.node(node);
        let id = model.id(gone);
        if !is_process(gone) {
            let processes = this.watches.end_node(id.node());
            let clients: Vec<WorkerId> = this.clients.iter().map(|client| model.id(*client)).collect();
            let processes: Vec<WorkerId> = processes
                .into_iter()
                .filter(|process| !this.settling.has_answered(*process) && !this.settling.is_open(*process))
                .collect();
            let shared = this.settling.on_node_dead(id.node(), &processes, &clients);
            self.send_death(model, node, &shared, None);
            for process in processes {
                self.notify_clients(model, node, &Word::Gone(model.end(process)));
            }
            return;
        }
        let is_ours = id.node() == node_id(node);
        if this.settling.has_answered(id) || (is_ours && !this.settling.is_open(id)) {
            let held = if model.forgets { Vec::new() } else { model.plain(this.settling.answer_of(id)) };
            return self.send(as_end(node), CONTROL, Word::Collected(gone, held));
        }
        if this.settling.is_open(id) {
            if this.settling.on_asked_alone(id) {
                self.send(as_end(node), CONTROL, Word::Collected(gone, Vec::new()));
            }
            return;
        }
        this.watches.forget(id);
        let clients: Vec<WorkerId> = this.clients.iter().map(|client| model.id(*client)).collect();
        let shared = this.settling.on_dead_elsewhere(id, clients.into_iter());
        self.send_death(model, node, &shared, None);
        self.notify_clients(model, node, &Word::Gone(gone));
    }

    pub(super) fn go_on(&mut self, model: &SettleNodes, node: u8) {
        for step in self.node(node).settling.next(node_id(node), true) {
            match step {
                Step::Share(gone) => self.send_death(model, node, &[gone], None),
                Step::Collected(gone, held) => {
                    let word = Word::Collected(model.end(gone), model.plain(held));
                    self.send(as_end(node), CONTROL, word);
                }
                Step::Settled(settled) => {
                    let gone: Vec<u8> = settled.gone.into_iter().map(|gone| model.end(gone)).collect();
                    self.notify_settled(model, node, &gone, &model.plain(settled.held));
                }
            }
        }
    }

    // --- the control service ---

    pub(super) fn on_control_message(&mut self, model: &SettleNodes, from: u8, word: Word) {
        let Some(learning) = &mut self.learning else { return self.receive_at_control(model, from, word) };
        let node = from - PROCESSES as u8;
        match word {
            Word::Suspect(gone) if !self.known_dead.contains(&gone) => {}
            Word::Here(watched) => {
                learning.silent.retain(|silent| *silent != node);
                learning.watched.extend(watched);
            }
            Word::End => {
                learning.silent.retain(|silent| *silent != node);
                learning.gone.push(node);
                self.known_dead.push(node);
                self.known_dead.sort_unstable();
            }
            word => learning.words.push((from, word)),
        }
        if learning.silent.is_empty() {
            self.all_are_here(model);
        }
    }

    /// Handles the messages received before all nodes had reported: those of dead nodes first.
    fn all_are_here(&mut self, model: &SettleNodes) {
        let Some(Learning { words, gone, watched, .. }) = self.learning.take() else { return };
        let is_dead = |(from, _): &(u8, Word)| gone.contains(&(from - PROCESSES as u8));
        let (last, words): (Vec<_>, Vec<_>) = words.into_iter().partition(is_dead);
        last.into_iter().for_each(|(from, word)| self.receive_at_control(model, from, word));
        gone.into_iter().for_each(|node| self.receive_at_control(model, as_end(node), Word::End));
        for node in watched {
            if !self.is_there(node) && !self.control.is_known_dead(node_id(node)) {
                self.receive_at_control(model, as_end(node), Word::End);
            }
        }
        words.into_iter().for_each(|(from, word)| self.receive_at_control(model, from, word));
    }

    /// Whether the control service, if it ends now, loses anything that counts.
    pub(super) fn has_begun_to_settle(&self) -> bool {
        !self.control.is_empty() || self.channels.keys().any(|(from, _)| *from == CONTROL)
    }

    /// The control service ends; messages to it and from it are lost, but for ends of nodes. The next one
    /// waits until each node of which it has a record has reported or is dead.
    pub(super) fn restart_control(&mut self, model: &SettleNodes, remembers: bool) {
        self.restarts -= 1;
        self.control = Control::default();
        let is_end = |word: &Word| *word == Word::End;
        for ((from, to), words) in &mut self.channels {
            if *to == CONTROL {
                words.retain(is_end);
            } else if *from == CONTROL {
                words.clear();
            }
        }
        if remembers {
            for node in std::mem::take(&mut self.known_dead) {
                self.send(as_end(node), CONTROL, Word::End);
            }
        }
        let silent = (0..NODES as u8).filter(|node| self.is_there(*node)).collect();
        self.learning = Some(Learning { silent, ..Learning::default() });
        for node in
            (0..NODES as u8).filter(|node| !self.nodes[usize::from(*node)].is_dead).collect::<Vec<_>>()
        {
            self.send_again(model, node);
        }
    }

    /// A node reports to a restarted control service what the previous one knew.
    fn send_again(&mut self, model: &SettleNodes, node: u8) {
        let watched = self.nodes[usize::from(node)].watches.nodes().into_iter().map(node_of).collect();
        self.send(as_end(node), CONTROL, Word::Here(watched));
        let this = &self.nodes[usize::from(node)];
        let mut words = Vec::new();
        for step in this.settling.again(node_id(node)) {
            match step {
                Step::Share(gone) => {
                    let gone = model.end(gone);
                    words.push(Word::ProcessDead(gone, this.ended.get(&gone).cloned().unwrap_or_default()));
                }
                Step::Collected(gone, held) => {
                    words.push(Word::Collected(model.end(gone), model.plain(held)))
                }
                Step::Settled(_) => {}
            }
        }
        for (gone, other) in &this.asked_late {
            words.push(Word::ProcessDead(*gone, vec![*other]));
            if !this.settling.is_open(model.id(*gone)) {
                words.push(Word::Collected(*gone, Vec::new()));
            }
        }
        words.into_iter().for_each(|word| self.send(as_end(node), CONTROL, word));
    }

    fn receive_at_control(&mut self, model: &SettleNodes, from: u8, word: Word) {
        let mut send = Vec::new();
        match word {
            Word::ProcessDead(gone, watchers) => {
                let nodes: Vec<NodeId> =
                    watchers.into_iter().filter(|node| self.is_there(*node)).map(node_id).collect();
                self.control.on_dead(model.id(gone), nodes, &mut send);
            }
            Word::Collected(gone, held) => {
                let held = model.held(&held);
                let is_home_there = self.is_there(node_of(model.id(gone).node()));
                let node = node_id(from - PROCESSES as u8);
                let left: Vec<NodeId> =
                    (0..NODES as u8).filter(|other| self.is_there(*other)).map(node_id).collect();
                self.control.on_collected(node, model.id(gone), held, is_home_there, left, &mut send);
            }
            Word::End => {
                let node = from - PROCESSES as u8;
                if self.is_there(node) {
                    self.known_dead.push(node);
                    self.known_dead.sort_unstable();
                }
                let left: Vec<NodeId> =
                    (0..NODES as u8).filter(|other| self.is_there(*other)).map(node_id).collect();
                self.control.on_node_dead(node_id(node), left, &mut send);
            }
            Word::Suspect(gone) if !self.is_there(gone) && !self.control.is_known_dead(node_id(gone)) => {
                return self.receive_at_control(model, as_end(gone), Word::End);
            }
            Word::Here(_) | Word::Suspect(_) => {}
            other => unreachable!("{other:?} to the control service"),
        }
        for saying in send {
            let (node, word) = match saying {
                DeathMessage::Dead(node, gone) => (node, Word::Gone(model.end(gone))),
                DeathMessage::Settled(node, settled) => {
                    let gone = settled.gone.into_iter().map(|gone| model.end(gone)).collect();
                    (node, Word::Settled(gone, model.plain(settled.held)))
                }
            };
            self.send(CONTROL, as_end(node_of(node)), word);
        }
    }

    /// Whether the control service takes a node to be alive.
    pub(super) fn is_there(&self, node: u8) -> bool {
        !self.known_dead.contains(&node)
    }

    // --- faults ---

    /// Drops all messages to an end that is dead.
    pub(super) fn lose_messages_to(&mut self, end: u8) {
        self.channels.retain(|(_, to), _| *to != end);
    }

    /// Sends the answers that waited only for lines that have ended.
    pub(super) fn answer_all(&mut self, model: &SettleNodes) {
        for process in 0..PROCESSES as u8 {
            if !self.processes[usize::from(process)].answers.is_empty() && self.is_received(process) {
                self.answer(model, process);
            }
        }
    }

    pub(super) fn kill(&mut self, model: &SettleNodes, process: u8, left: [u8; PROCESSES + 1]) {
        let node = as_end(model.nodes[usize::from(process)]);
        for (index, count) in left.into_iter().enumerate() {
            let to = if index < PROCESSES { index as u8 } else { node };
            if let Some(words) = self.channels.get_mut(&(process, to)) {
                words.truncate(usize::from(count));
            }
        }
        self.lose_messages_to(process);
        let dead = self.process(process);
        *dead = Process { is_dead: true, had: dead.had, has_handed_on: true, ..Process::default() };
        self.send(process, node, Word::End);
        self.answer_all(model);
    }

    /// A node ends with all its processes. Messages of theirs that were not read yet are lost.
    pub(super) fn kill_node(&mut self, model: &SettleNodes, node: u8) {
        self.node(node).is_dead = true;
        self.node(node).clients.clear();
        for process in (0..PROCESSES as u8).filter(|process| model.nodes[usize::from(*process)] == node) {
            let dead = self.process(process);
            *dead = Process { is_dead: true, had: dead.had, has_handed_on: true, ..Process::default() };
            self.lose_messages_to(process);
            self.channels.retain(|(from, _), _| *from != process);
        }
        self.lose_messages_to(as_end(node));
        self.channels.retain(|(from, _), _| *from != as_end(node));
        // The node's earlier messages to the control service are lost, or were read before this one.
        self.send(as_end(node), CONTROL, Word::End);
        self.answer_all(model);
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let reads = |process: &&Process| !process.is_dead && process.has;
        let owner = &self.processes[usize::from(OWNER)];
        if !owner.is_dead && self.is_freed && self.processes[1..].iter().any(|process| reads(&process)) {
            return Err("I5: a process reads a value that its owner has freed".to_owned());
        }
        Ok(())
    }
}

impl State {
    /// A process learns of a death only after it has read the dead process's messages. Messages between
    /// processes of one node arrive at once, and are read before those of the node.
    pub(super) fn is_held(&self, model: &SettleNodes, from: u8, to: u8, word: &Word) -> bool {
        if !is_process(to) || is_process(from) {
            return false;
        }
        let node = model.nodes[usize::from(to)];
        let is_near = |end: u8| is_process(end) && model.nodes[usize::from(end)] == node;
        let is_there = |end: u8| matches!(word, Word::Gone(gone) if *gone == end) || is_near(end);
        self.channels.keys().any(|(one, other)| *other == to && is_there(*one))
    }
}
