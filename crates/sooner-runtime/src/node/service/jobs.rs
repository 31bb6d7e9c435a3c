//! Jobs of a node: their drivers, their templates, and the output of their workers
//! (`docs/adr/0020-one-template-per-job.md`).
//!
//! A node that a driver hosts has that driver's job from the beginning, and its template starts with it. A
//! standalone node has the jobs of drivers that connect; a job's template starts with its first worker.
//!
//! A node of a cluster also has the jobs of drivers on other nodes that have work for it, from when the
//! control service has sent what they need until it reports that they are over
//! (`docs/adr/0030-jobs-over-nodes.md`). Such a driver has nothing on this node: its template runs this
//! node's own interpreter, and its workers' output goes to the driver's node.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::PidfdFlags;
use sooner_protocol::table::Set;
use sooner_protocol::time::Instant;
use sooner_wire::limits::JOB_COMMAND_BYTES_MAX;
use sooner_wire::message::state::JobRow;
use sooner_wire::message::{Hello, JobConfig, Message, NodeLives, Shutdown};
use sooner_wire::{NodeId, WorkerId};

use super::lines::{LastLines, Lines};
use super::{NodeActions, Service, now};
use crate::logs::Sink;
use crate::node::cluster::Cluster;
use crate::node::hashes::Hashes;
use crate::node::interpreter::{Begin, Interpreter};
use crate::node::notes::tell;
use crate::node::orphan::Orphan;
use crate::node::template::{Output, Program, TemplateProcess};
use crate::poller::Interest;
use crate::transport::{ReadResult, pair};
use crate::ulimits::{keeps_reserve, told};

/// How long a dismissed template may take to end (nanoseconds).
const DISMISSED_NANOS: u64 = 2_000_000_000;
/// Bytes of a command line that are reported.
const ENTRYPOINT_BYTES_MAX: usize = 4096;

/// What the node has for one driver.
pub(super) struct Job {
    pub(super) config: JobConfig,
    template: Option<(TemplateProcess, u64)>,
    /// Why no more workers can be started.
    given_up: Option<String>,
    /// Where lines go, in this process or to [`Lines`].
    sink: Option<Arc<dyn Sink>>,
    pub(super) lines: Option<Arc<Lines>>,
    /// Bytes of its lines that its driver's node, if another one, has not taken.
    pub(super) untaken: u64,
    /// Lines of other nodes that were not reported as taken: how many bytes of which node.
    pub(super) owed: Vec<(NodeId, u64)>,
    /// Other nodes whose workers may print for the driver.
    pub(super) printing: Set<NodeId>,
    /// The connection that reads the lines.
    pub(super) reader: Option<u64>,
    /// Bytes that had not left that connection when last checked.
    pub(super) unread: usize,
    started: Instant,
    pid: u32,
    /// Its driver has left, and only lines remain.
    pub(super) left: Option<LastLines>,
    /// Workers that were told to leave with their driver.
    pub(super) leaving: Vec<WorkerId>,
    origin: Origin,
}

/// Where a driver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// In the process of this node.
    Host,
    /// On this node.
    Here,
    /// On another node.
    Elsewhere,
}

impl Job {
    fn new(config: JobConfig, sink: Option<Arc<dyn Sink>>, origin: Origin) -> Self {
        Self {
            config,
            template: None,
            given_up: None,
            sink,
            lines: None,
            untaken: 0,
            owed: Vec::new(),
            printing: Set::default(),
            reader: None,
            unread: 0,
            started: now(),
            pid: 0,
            left: None,
            leaving: Vec::new(),
            origin,
        }
    }

    /// Whether its driver is on another node.
    pub(super) fn is_remote_job(&self) -> bool {
        self.origin == Origin::Elsewhere
    }

    /// Tells its template that the node is alive.
    pub(super) fn send_node_lives(&mut self, word: NodeLives) {
        if let Some((template, _)) = &mut self.template {
            template.send_node_lives(word);
        }
    }

    fn is_host(&self) -> bool {
        self.origin == Origin::Host
    }

    /// How its template is started.
    fn program(&self, id: WorkerId, node: &Surroundings<'_>) -> Result<Program, String> {
        let place = PathBuf::from(&self.config.working_directory);
        let command = &self.config.template;
        let secret = self.config.hashes.as_deref();
        let library = match self.origin {
            Origin::Host | Origin::Here => secret.map(|secret| secret.library.as_str()),
            Origin::Elsewhere => node.interpreter.and_then(|interpreter| interpreter.library.as_deref()),
        };
        let hashes = Hashes::of(id, secret, library);
        let (command, place) = match self.origin {
            // The host's workers begin in its directory, and print to its output until they are forked.
            Origin::Host => (command.clone(), None),
            Origin::Here => (command.clone(), Some(place)),
            Origin::Elsewhere => {
                let both = node.interpreter.zip(self.config.setup.as_deref());
                let (interpreter, setup) =
                    both.ok_or("its driver does not say how workers are started here")?;
                // A file that the program names by a relative path is the same one, or does not exist here.
                let begin = Begin::new(&place, node.directory);
                (interpreter.command(setup, &begin, hashes.need_no_environment()), Some(begin.place))
            }
        };
        let command = command.iter().map(Into::into).collect();
        let (has_output, is_remote_job) = (!self.is_host(), self.is_remote_job());
        Ok(Program { command, working_directory: place, has_output, is_remote_job, hashes })
    }

    /// Whether none of its workers on this node is left but these.
    pub(super) fn has_reaped_all_but(&self, living: &Set<WorkerId>) -> bool {
        self.template.as_ref().is_none_or(|(template, _)| template.has_reaped_all_but(living))
    }

    /// Whether, besides these workers, none is left on this node, nor a line of one. To be asked before the
    /// waiting lines are taken.
    pub(super) fn has_all_but(&self, living: &Set<WorkerId>) -> bool {
        self.lines.as_ref().is_none_or(|lines| lines.has_all_but(living)) && self.has_reaped_all_but(living)
    }

    /// What shows its lines.
    pub(super) fn sink(&self) -> Option<&Arc<dyn Sink>> {
        self.sink.as_ref()
    }
}

/// What starting a template needs of the node.
struct Surroundings<'a> {
    interpreter: Option<&'a Interpreter>,
    directory: &'a Path,
}

impl Service {
    /// The job of the driver that hosts this node. Its template begins to import while the driver goes on.
    pub(super) fn add_host(&mut self, config: JobConfig, sink: Option<Box<dyn Sink>>) -> std::io::Result<()> {
        let id = self.core.new_worker_id();
        self.driver = id;
        self.jobs.insert(id, Job::new(config, sink.map(Arc::from), Origin::Host));
        if !self.jobs[&id].config.template.is_empty() {
            self.start_template(id)?;
        }
        Ok(())
    }

    /// Admits a driver. Returns its id, or why it is refused.
    pub(super) fn admit(&mut self, token: u64, hello: &Hello) -> Result<WorkerId, &'static str> {
        let Some(config) = &hello.job else {
            let host = self.jobs.get_mut(&self.driver).filter(|host| host.pid == 0);
            let host = host.ok_or("a driver must say what its workers need")?;
            host.pid = hello.pid;
            return Ok(self.driver);
        };
        if self.draining.is_some() {
            return Err("the node is about to end");
        }
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.has_joined()) {
            return Err("the node is not part of its cluster yet: try again");
        }
        if config.template.is_empty() || command_bytes(config) > JOB_COMMAND_BYTES_MAX {
            return Err("a driver must say how its workers are started, in at most 1 MiB");
        }
        let id = self.core.new_worker_id();
        let lines = Arc::new(Lines::new(id, self.wake.clone()));
        let sink: Arc<dyn Sink> = lines.clone();
        let mut job = Job::new((**config).clone(), Some(sink), Origin::Here);
        job.lines = Some(lines);
        job.pid = hello.pid;
        self.jobs.insert(id, job);
        self.watch_process(token);
        Ok(id)
    }

    /// A driver on another node has work for this one: adds its job.
    pub(super) fn begin_remote_job(&mut self, id: WorkerId, config: JobConfig) {
        if self.jobs.contains_key(&id) {
            return;
        }
        let lines = Arc::new(Lines::new(id, self.wake.clone()));
        let sink: Arc<dyn Sink> = lines.clone();
        let mut job = Job::new(config, Some(sink), Origin::Elsewhere);
        job.lines = Some(lines);
        self.jobs.insert(id, job);
        self.send_whether_more(id, true);
    }

    /// The driver of a remote job leaves in order: its workers may, too, but for those that outlive it.
    pub(super) fn on_remote_job_leaves(&mut self, id: WorkerId) {
        if self.jobs.get(&id).is_some_and(Job::is_remote_job) {
            self.notify_workers_to_leave(id);
        }
    }

    /// The socket alone does not show that a driver has ended: a process that it forked may hold a copy.
    fn watch_process(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&connection.socket) else { return };
        let Ok(process) = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()) else { return };
        let watch = self.next_token;
        self.next_token += 1;
        if self.poller.add(&process, watch, Interest::Read).is_ok() {
            connection.process = Some((process, watch));
            self.processes.insert(watch, token);
        }
    }

    /// A driver's process has ended, though its connection may seem open. Its earlier messages count.
    pub(super) fn on_process_end(&mut self, token: u64, out: &mut NodeActions) {
        while self.read(token, out) == ReadResult::Some {}
        self.end_connection(token, out);
    }

    pub(super) fn unwatch_process(&mut self, process: Option<(OwnedFd, u64)>) {
        if let Some((process, watch)) = process {
            let _ = self.poller.remove(&process);
            self.processes.remove(&watch);
        }
    }

    fn start_template(&mut self, id: WorkerId) -> std::io::Result<()> {
        let directory = self.directory.path();
        let surroundings = Surroundings { interpreter: self.options.interpreter.as_ref(), directory };
        let program = self.jobs[&id].program(id, &surroundings).map_err(std::io::Error::other)?;
        let (template, output) = TemplateProcess::start(program, directory)?;
        let token = self.watch_template(id, template.socket())?;
        self.jobs.get_mut(&id).expect("looked up above").template = Some((template, token));
        self.show_template(id, output);
        self.introduce_node(id);
        Ok(())
    }

    fn watch_template(&mut self, id: WorkerId, socket: &OwnedFd) -> std::io::Result<u64> {
        let token = self.next_token;
        self.next_token += 1;
        self.poller.add(socket, token, Interest::Read)?;
        self.templates.insert(token, id);
        Ok(token)
    }

    /// Shows a template's output like that of its driver's workers.
    fn show_template(&self, id: WorkerId, output: Output) {
        if let Some(output) = output {
            self.logs.add(id, output, self.jobs[&id].sink.as_ref(), self.place_of(id));
        }
    }

    pub(super) fn on_template(&mut self, id: WorkerId, out: &mut NodeActions) {
        let Some((template, _)) = self.jobs.get_mut(&id).and_then(|job| job.template.as_mut()) else {
            return;
        };
        let Some(messages) = template.read() else { return self.restart_template(id, out) };
        for message in messages {
            match message {
                Message::Forked(forked) => match forked.error {
                    Some(error) => {
                        if let Some(token) = self.tokens.remove(&forked.worker) {
                            self.connections.remove(&token);
                        }
                        self.core.on_start_failed(forked.worker, &error, out);
                    }
                    None => self.logs.set_pid(forked.worker, forked.pid),
                },
                Message::Exited(exited) => self.on_exited(exited),
                other => self.note(&format!("the template said {}", other.kind())),
            }
        }
    }

    fn restart_template(&mut self, id: WorkerId, out: &mut NodeActions) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some((mut template, token)) = job.template.take() else { return };
        let _ = self.poller.remove(template.socket());
        self.templates.remove(&token);
        let restarted = template
            .restart()
            .and_then(|(lost, output)| Ok((lost, output, self.watch_template(id, template.socket())?)));
        match restarted {
            Ok((lost, output, token)) => {
                self.jobs.get_mut(&id).expect("looked up above").template = Some((template, token));
                self.show_template(id, output);
                self.introduce_node(id);
                self.on_starts_failed(lost, out);
            }
            Err(error) => {
                self.on_starts_failed(template.take_asked(), out);
                self.give_up(id, &error.to_string(), out);
            }
        }
    }

    /// A template has ended before it forked these workers.
    fn on_starts_failed(&mut self, lost: Vec<WorkerId>, out: &mut NodeActions) {
        for worker in lost {
            if let Some(token) = self.tokens.remove(&worker) {
                self.connections.remove(&token);
            }
            self.core.on_start_failed(worker, "the template process ended", out);
        }
    }

    /// Where lines of a job say they are from; `None` if its driver is on this node.
    fn place_of(&self, job: WorkerId) -> Option<IpAddr> {
        self.jobs.get(&job).filter(|job| job.is_remote_job())?;
        self.cluster.as_ref().and_then(Cluster::ip)
    }

    /// Starts no more workers for a job.
    fn give_up(&mut self, id: WorkerId, why: &str, out: &mut NodeActions) {
        let text = format!("no more workers can be started: {why}");
        self.note(&text);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.is_host() {
            job.given_up = Some(text.clone());
            return tell(&text);
        }
        let text = match &self.options.name {
            Some(name) if job.is_remote_job() => format!("node {name}: {text}"),
            _ => text,
        };
        job.given_up = Some(text.clone());
        if let Some(sink) = &job.sink {
            sink.show(true, &format!("sooner: {text}\n"));
        }
        if job.is_remote_job() {
            return self.refuse_work_of(id, &text, out);
        }
        // No result that the driver waits for will come.
        self.send(id, &Shutdown { reason: text }.into(), Vec::new());
    }

    /// Refuses the work of a remote job that waits here: other nodes may have what this one lacks.
    fn refuse_work_of(&mut self, id: WorkerId, why: &str, out: &mut NodeActions) {
        if let Some(member) = self.core.member() {
            member.on_job_given_up(id, why, out);
        }
    }

    pub(super) fn start_worker(&mut self, worker: WorkerId, out: &mut NodeActions) {
        if let Err(error) = self.fork(worker, out) {
            self.core.on_start_failed(worker, &error, out);
        }
    }

    fn fork(&mut self, worker: WorkerId, out: &mut NodeActions) -> Result<(), String> {
        let id = self.core.job_of(worker);
        let job = self.jobs.get(&id).ok_or("its job has ended")?;
        if let Some(why) = job.given_up.clone() {
            // The job may have ended and begun again.
            self.refuse_work_of(id, &why, out);
            return Err(why);
        }
        if job.template.is_none() {
            if job.config.template.is_empty() && !job.is_remote_job() {
                return Err("there is no template process".to_owned());
            }
            self.start_template(id).map_err(|error| {
                self.give_up(id, &error.to_string(), out);
                error.to_string()
            })?;
        }
        let made = (|| {
            let (ours, theirs) = pair()?;
            let flags = rustix::pipe::PipeFlags::CLOEXEC;
            let (stdout, stdout_end) = rustix::pipe::pipe_with(flags)?;
            let (stderr, stderr_end) = rustix::pipe::pipe_with(flags)?;
            let all = [&ours, &theirs, &stdout, &stdout_end, &stderr, &stderr_end];
            let last = all.into_iter().map(AsRawFd::as_raw_fd).max().unwrap_or_default();
            if !keeps_reserve(last) {
                // Existing workers need some for their connections.
                return Err(rustix::io::Errno::MFILE);
            }
            Ok::<_, rustix::io::Errno>((ours, [stdout, stderr], vec![theirs, stdout_end, stderr_end]))
        })();
        let (ours, output, theirs) = made.map_err(|error| told(&error.into()))?;
        let job = self.jobs.get_mut(&id).expect("looked up above");
        let (template, _) = job.template.as_mut().expect("started above");
        template.fork(worker, theirs);
        if let Some(lines) = &job.lines {
            lines.expect(worker);
        }
        let sink = job.sink.clone();
        self.logs.add(worker, output, sink.as_ref(), self.place_of(id));
        self.add_connection(ours, Some(worker));
        Ok(())
    }

    /// Ends the jobs of which nothing is left.
    pub(super) fn end_jobs(&mut self) {
        let here = self.jobs.iter_mut().filter(|(_, job)| job.origin == Origin::Here && job.left.is_none());
        for job in here {
            if !self.tokens.contains_key(job.0) && !self.ends.unannounced.contains_key(job.0) {
                job.1.left = Some(LastLines::new(now()));
            }
        }
        let none = Set::default();
        let has_ended = |job: &Job| job.is_remote_job() || job.left.is_some();
        // A template that went before its workers would leave them to be reaped by whoever does that here.
        let may_end = |job: &Job| has_ended(job) && job.has_reaped_all_but(&none);
        let is_over = |id: &WorkerId, job: &Job| may_end(job) && self.core.is_over(*id);
        let over: Vec<WorkerId> =
            self.jobs.iter().filter(|(id, job)| is_over(id, job)).map(|(id, _)| *id).collect();
        for id in over {
            self.core.forget_job(id);
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if let Some((template, token)) = job.template.take() {
                let _ = self.poller.remove(template.socket());
                self.templates.remove(&token);
                self.leaving.push((template.dismiss(), now().plus(DISMISSED_NANOS)));
            }
            // Its last lines may still be on their way.
            if job.is_remote_job() {
                job.left.get_or_insert_with(|| LastLines::new(now()));
            } else if job.reader.is_none() {
                self.jobs.remove(&id);
            }
        }
    }

    /// Waits for the templates that were dismissed, without blocking.
    pub(super) fn reap_templates(&mut self) {
        let time = now();
        self.leaving.retain(|(process, deadline)| {
            if time >= *deadline {
                process.kill();
            }
            !process.ends_within(Duration::ZERO)
        });
    }

    /// Ends the templates with the node, and waits for them.
    pub(super) fn stop_templates(&mut self) {
        for job in self.jobs.values_mut() {
            if let Some((template, _)) = job.template.take() {
                template.stop();
            }
        }
        for (process, _) in &self.leaving {
            crate::node::template::end(process);
        }
    }

    pub(super) fn job_rows(&self) -> Vec<JobRow> {
        let row = |(id, job): (&WorkerId, &Job)| JobRow {
            job: *id,
            pid: job.pid,
            namespace: job.config.namespace.clone(),
            started: job.started.0,
            has_driver: job.left.is_none(),
            entrypoint: job.left.is_none().then(|| entrypoint(job.pid)).flatten(),
        };
        self.jobs.iter().filter(|(_, job)| !job.is_remote_job()).map(row).collect()
    }
}

/// The command line of a program, for people who may be on another machine.
fn entrypoint(pid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let mut text = words.join(" ").trim_end().to_owned();
    text.truncate(text.floor_char_boundary(ENTRYPOINT_BYTES_MAX));
    Some(text)
}

/// Bytes of the commands that start a job's workers, here and on other nodes.
fn command_bytes(config: &JobConfig) -> usize {
    let setup = config.setup.iter().flat_map(|setup| setup.path.iter().chain(&setup.preload));
    config.template.iter().chain(setup).map(String::len).sum()
}

/// A template that was dismissed, and when it is killed.
pub(super) type Leaving = (Orphan, Instant);

impl Service {
    /// The configuration of a process's job.
    pub(super) fn config_of(&self, process: WorkerId) -> Option<&JobConfig> {
        self.jobs.get(&self.core.job_of(process)).map(|job| &job.config)
    }
}
