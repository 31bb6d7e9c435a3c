//! The node's end of a job's fork server: starting the template process and asking it for workers.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sooner_protocol::table::Set;
use sooner_wire::WorkerId;
use sooner_wire::message::{Fork, Message, NodeLives, Shutdown};

use crate::node::hashes::Hashes;
use crate::node::orphan::Orphan;
use crate::transport::{Inlet, Outlet, ReadResult, pair};
use crate::ulimits::told;

/// A template that ends is started again, but not for ever.
const STARTS_MAX: u32 = 5;
/// How long a template may take to end.
const ENDING: Duration = Duration::from_secs(2);

/// What a template is started with.
#[derive(Debug)]
pub struct Program {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Its working directory; `None`: the node's own.
    pub working_directory: Option<PathBuf>,
    /// Its output before it forks comes through pipes; otherwise it is the node's own output.
    pub has_output: bool,
    /// Its driver is on another node.
    pub is_remote_job: bool,
    /// What determines the hashes of strings.
    pub hashes: Hashes,
}

/// Reading ends of a template's standard output and standard error.
pub type Output = Option<[OwnedFd; 2]>;

/// See the module.
#[derive(Debug)]
pub struct TemplateProcess {
    program: Program,
    process: Orphan,
    socket: OwnedFd,
    inlet: Inlet,
    outlet: Outlet,
    starts: u32,
    asked: HashSet<WorkerId>,
    /// Workers that were forked and have not been reaped.
    children: HashSet<WorkerId>,
}

impl TemplateProcess {
    /// Starts the template. It learns the node's directory.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(mut program: Program, directory: &Path) -> io::Result<(Self, Output)> {
        program.command.push(directory.into());
        let (process, socket, output) = spawn(&program)?;
        let template = Self {
            program,
            process,
            socket,
            inlet: Inlet::default(),
            outlet: Outlet::default(),
            starts: 1,
            asked: HashSet::new(),
            children: HashSet::new(),
        };
        Ok((template, output))
    }

    /// The socket to watch.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Asks for a worker, which gets the three descriptors.
    pub fn fork(&mut self, worker: WorkerId, descriptors: Vec<OwnedFd>) {
        self.asked.insert(worker);
        self.outlet.push_with(&Fork { worker }.into(), descriptors);
        let _ = self.outlet.flush(&self.socket);
    }

    /// Tells the template that the node is alive.
    pub fn send_node_lives(&mut self, word: NodeLives) {
        self.outlet.push(&word.into());
        let _ = self.outlet.flush(&self.socket);
    }

    /// The template's messages; `None` when it has ended.
    pub fn read(&mut self) -> Option<Vec<Message>> {
        let end = self.inlet.read(&self.socket) == ReadResult::End;
        let mut messages = Vec::new();
        while let Ok(Some(received)) = self.inlet.next_message() {
            match &received.message {
                Message::Forked(forked) => {
                    self.asked.remove(&forked.worker);
                    if forked.error.is_none() {
                        self.children.insert(forked.worker);
                    }
                }
                Message::Exited(exited) => _ = self.children.remove(&exited.worker),
                _ => {}
            }
            messages.push(received.message);
        }
        (!end || !messages.is_empty()).then_some(messages)
    }

    /// Starts the template again after its end. Returns the workers that it had not forked.
    ///
    /// # Errors
    /// When it cannot be started, or has ended too often.
    pub fn restart(&mut self) -> io::Result<(Vec<WorkerId>, Output)> {
        end(&self.process);
        self.starts += 1;
        if self.starts > STARTS_MAX {
            return Err(io::Error::other(format!("the template process ended {STARTS_MAX} times")));
        }
        let output;
        (self.process, self.socket, output) = spawn(&self.program)?;
        self.inlet = Inlet::default();
        self.outlet = Outlet::default();
        // They are nobody's now: no template reports their ends.
        self.children.clear();
        Ok((self.take_asked(), output))
    }

    /// Whether none of its workers is left but these: the others are not even processes that have ended and
    /// wait to be reaped.
    pub fn has_reaped_all_but(&self, living: &Set<WorkerId>) -> bool {
        self.children.iter().all(|worker| living.contains(worker))
    }

    /// Takes the workers that were asked for and not forked.
    pub fn take_asked(&mut self) -> Vec<WorkerId> {
        self.asked.drain().collect()
    }

    /// Tells the template that no more workers are wanted. It ends, which the caller must look after.
    pub fn dismiss(mut self) -> Orphan {
        // Without this message it would take the closed socket for the end of the node, and clear up.
        self.outlet.push(&Shutdown { reason: "its job has ended".to_owned() }.into());
        let _ = self.outlet.flush(&self.socket);
        self.process
    }

    /// Ends the template and waits for it.
    pub fn stop(self) {
        end(&self.dismiss());
    }
}

/// Waits for the end of a template, for a while.
pub fn end(process: &Orphan) {
    if !process.ends_within(ENDING) {
        process.kill();
        let _ = process.ends_within(ENDING);
    }
}

/// Variables of this node's environment for options that the driver of a remote job gives as arguments.
const SPOKEN_FOR: [&str; 7] = [
    "PYTHONOPTIMIZE",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONWARNINGS",
    "PYTHONDEVMODE",
    "PYTHONUTF8",
    "PYTHONVERBOSE",
    "PYTHONDEBUG",
];

/// The variable with this node's places for modules.
const PATH: &str = "PYTHONPATH";

/// Leaves out relative places: the interpreter would look for them where it begins, in the directory of a
/// driver on another node. What they mean was resolved when the node was started
/// ([`Interpreter`](crate::node::interpreter::Interpreter)).
fn set_path(command: &mut Command, path: &OsStr) {
    let kept: Vec<_> =
        path.as_bytes().split(|byte| *byte == b':').filter(|place| place.starts_with(b"/")).collect();
    if kept.is_empty() {
        command.env_remove(PATH);
    } else {
        command.env(PATH, OsStr::from_bytes(&kept.join(&b':')));
    }
}

/// Starts a template, with a new socket for each attempt: a process of an interrupted attempt may have the
/// other end of its socket, and ends with ours.
fn spawn(program: &Program) -> io::Result<(Orphan, OwnedFd, Output)> {
    let mut attempts = 1;
    loop {
        match try_to_spawn(program) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && attempts < STARTS_MAX => {
                attempts += 1
            }
            spawned => return spawned,
        }
    }
}

fn try_to_spawn(program: &Program) -> io::Result<(Orphan, OwnedFd, Output)> {
    let (ours, theirs) = pair()?;
    let mut command = Command::new(&program.command[0]);
    command
        .args(&program.command[1..])
        .stdin(Stdio::from(theirs))
        // The program that hosts the node may have the token there; workers do not need it.
        .env_remove("SOONER_TOKEN")
        // Its own group: Ctrl-C in the terminal is for the driver, which decides what it means for tasks.
        .process_group(0);
    if program.is_remote_job {
        SPOKEN_FOR.iter().for_each(|name| _ = command.env_remove(name));
        if let Some(path) = std::env::var_os(PATH) {
            set_path(&mut command, &path);
        }
    }
    if let Some(place) = &program.working_directory {
        if !place.is_dir() {
            let text = format!("its working directory {} is not on this machine", place.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        command.current_dir(place);
    }
    program.hashes.set(&mut command, |name| std::env::var_os(name));
    let mut output = None;
    if program.has_output {
        let (stdout, stdout_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (stderr, stderr_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        command.stdout(Stdio::from(stdout_end)).stderr(Stdio::from(stderr_end));
        output = Some([stdout, stderr]);
    }
    let process = Orphan::start(&mut command).map_err(|error| {
        let name = program.command[0].to_string_lossy();
        io::Error::new(error.kind(), format!("{name} cannot be started: {}", told(&error)))
    })?;
    Ok((process, ours, output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_not_absolute_are_left_out() {
        let told = |path: &str| {
            let mut command = Command::new("python");
            set_path(&mut command, OsStr::new(path));
            let (name, value) = command.get_envs().next().expect("one variable");
            assert_eq!(name, PATH);
            value.map(OsStr::to_os_string)
        };
        for (path, kept) in [("/opt/lib:", "/opt/lib"), (":/a::lib:.:/b/../c:..", "/a:/b/../c"), ("/a", "/a")]
        {
            assert_eq!(told(path), Some(kept.into()));
        }
        for path in ["", ":", "lib", ".:.."] {
            assert_eq!(told(path), None);
        }
    }
}
