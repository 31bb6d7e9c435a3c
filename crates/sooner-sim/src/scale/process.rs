//! The processes of nodes: production cores that answer the messages that nodes send to all processes. The
//! work of drivers and workers is scripted ([`super::script`]).

use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_wire::message::{ActorReady, JobConfig, Message, TaskKind};
use sooner_wire::{Started, WorkerId};

use super::plan::SECOND;
use super::script::{Cue, Script};
use super::world::{Event, World};

/// See the module.
pub struct Process {
    /// The index of its node among all nodes there ever were.
    pub(super) node: usize,
    pub(super) core: WorkerCore,
    /// The script, if the process is a driver.
    pub(super) script: Option<Box<Script>>,
    /// The last actor task that it began.
    begun: Option<Started>,
}

fn job_config() -> JobConfig {
    JobConfig {
        template: vec!["/usr/bin/python3".into(), "-m".into(), "sooner._engine.template".into()],
        working_directory: "/home/somebody/somewhere".into(),
        namespace: "default".into(),
        inline_bytes: 100 << 10,
        events_bytes: 0,
        lineage_bytes: 0,
        setup: None,
        hashes: None,
    }
}

impl World {
    /// The driver of a node starts.
    pub(super) fn start_driver(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        let driver = core.new_worker_id();
        core.on_connected(driver, 1, now);
        core.on_job(driver, Box::new(job_config()), &mut node.out);
        let script = Some(Box::new(Script::default()));
        self.processes
            .insert(driver, Process { node: at, core: WorkerCore::new(driver), script, begun: None });
        let load = self.plan.load;
        let has_part = !load.is_even || load.actors > 0 || self.plan.nodes == 1 || at.is_multiple_of(2);
        if has_part && (load.leases > 0 || load.actors > 0) {
            let pause = self.about(self.plan.load.think);
            self.after(pause, Event::Script(driver, Cue::Round));
        }
    }

    /// A worker is forked.
    pub(super) fn start_worker(&mut self, at: usize, worker: WorkerId) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        if !core.expects(worker) {
            return;
        }
        core.on_connected(worker, 2, now);
        let core = WorkerCore::new(worker);
        self.processes.insert(worker, Process { node: at, core, script: None, begun: None });
        self.list_node(at);
    }

    /// A process ends, in order or not.
    pub(super) fn end_process(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.swap_remove(&worker) else { return };
        self.truth.forget(worker);
        let at = process.node;
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        core.on_dead(worker, "was killed by signal 9", process.begun, &mut node.out);
        if process.script.is_some() {
            // The node does not start drivers; the user starts the program again.
            self.start_driver(at);
        }
        self.list_node(at);
    }

    /// A process receives a message from its node.
    pub(super) fn client_receives(&mut self, client: WorkerId, message: Message) {
        let Some(process) = self.processes.get_mut(&client) else { return };
        let message = match process.script {
            Some(_) => match self.script_receives(client, message) {
                Some(message) => message,
                None => return,
            },
            None => message,
        };
        match message {
            Message::PeerConnected(_) | Message::TrimBlocks(_) => {}
            Message::EndIdle(_)
                if self.processes.get(&client).is_some_and(|process| !process.core.is_needed()) =>
            {
                self.after(SECOND / 10_000, Event::End(client))
            }
            Message::Shutdown(_) => self.after(SECOND / 10_000, Event::End(client)),
            Message::ExitActor(_) => self.after(SECOND / 10_000, Event::End(client)),
            Message::Push(push) => {
                if push.spec.kind() == TaskKind::Creation {
                    let begun = Some(Started { task: push.spec.task, in_actor: true });
                    if let Some(process) = self.processes.get_mut(&client) {
                        process.begun = begun;
                    }
                    self.send_to_node(client, ActorReady { actor: push.spec.task, failure: None }.into());
                }
            }
            // No shell keeps blocks of large values here.
            Message::ReadersOf(question) => {
                self.with_client(client, |core, out| core.on_readers_of(question, |_| false, out));
            }
            message => {
                let now = self.now;
                let may_lose = matches!(message, Message::NodeDead(_) | Message::Promoted(_));
                self.with_client(client, |core, out| {
                    core.on_message(Peer::Node, message, now, out);
                });
                if may_lose {
                    self.judge_values(client);
                }
            }
        }
    }

    /// Runs `act` on the core of a process; its messages to the node are sent.
    pub(super) fn with_client(&mut self, client: WorkerId, act: impl FnOnce(&mut WorkerCore, &mut Actions)) {
        let Some(process) = self.processes.get_mut(&client) else { return };
        self.events += 1;
        let mut out = Actions::new();
        act(&mut process.core, &mut out);
        for action in out {
            if let Action::Send { to: Peer::Node, message } = action {
                self.send_to_node(client, *message);
            }
        }
    }
}
