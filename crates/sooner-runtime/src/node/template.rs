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

use sooner_wire::WorkerId;
use sooner_wire::message::{Fork, Message, NodeLives, Shutdown};

use crate::node::hashes::Hashes;
use crate::node::orphan::Orphan;
use crate::transport::{Inlet, Outlet, ReadResult, pair};
use crate::ulimits::told;

/// The template is started again when it ends, but not for ever.
const STARTS_MAX: u32 = 5;
/// How long one may take to end.
const ENDING: Duration = Duration::from_secs(2);

/// What a template is started with.
#[derive(Debug)]
pub struct Program {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Where it begins; the node's own place if there is none.
    pub working_directory: Option<PathBuf>,
    /// What it prints before it forks comes through pipes; otherwise it is the node's own output.
    pub has_output: bool,
    /// Its driver is on another node.
    pub is_remote_job: bool,
    /// What the hashes of strings begin with.
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
        };
        Ok((template, output))
    }

    /// The socket to watch.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Asks for a worker. It gets the three descriptors.
    pub fn fork(&mut self, worker: WorkerId, descriptors: Vec<OwnedFd>) {
        self.asked.insert(worker);
        self.outlet.push_with(&Fork { worker }.into(), descriptors);
        let _ = self.outlet.flush(&self.socket);
    }

    /// Says that the node lives.
    pub fn send_node_lives(&mut self, word: NodeLives) {
        self.outlet.push(&word.into());
        let _ = self.outlet.flush(&self.socket);
    }

    /// What the template says; `None` when it is gone.
    pub fn read(&mut self) -> Option<Vec<Message>> {
        let end = self.inlet.read(&self.socket) == ReadResult::End;
        let mut messages = Vec::new();
        while let Ok(Some(received)) = self.inlet.next_message() {
            if let Message::Forked(forked) = &received.message {
                self.asked.remove(&forked.worker);
            }
            messages.push(received.message);
        }
        (!end || !messages.is_empty()).then_some(messages)
    }

    /// Starts the template again after its end. Gives the workers that were asked for in vain.
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
        Ok((self.take_asked(), output))
    }

    /// The workers that were asked for in vain.
    pub fn take_asked(&mut self) -> Vec<WorkerId> {
        self.asked.drain().collect()
    }

    /// Tells the template that no more workers are wanted. It ends, and somebody must look after that.
    pub fn dismiss(mut self) -> Orphan {
        // Without this word it would take the end of its socket for the end of the node, and clear up.
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

/// What this node's environment says of interpreters: the driver of a guest has said it on the command line.
const SPOKEN_FOR: [&str; 7] = [
    "PYTHONOPTIMIZE",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONWARNINGS",
    "PYTHONDEVMODE",
    "PYTHONUTF8",
    "PYTHONVERBOSE",
    "PYTHONDEBUG",
];

/// Where this node's environment has interpreters look for modules.
const PATH: &str = "PYTHONPATH";

/// Leaves out what is not absolute, and so would be looked for wherever an interpreter begins: in the
/// directory of a driver elsewhere. Where it was meant is known from when the node was started
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

/// Starts a template, with a socket of its own each time: of an attempt that was interrupted somebody may
/// have the other end, and ends with ours.
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
        // The program that hosts the node may have it there; workers do not need it.
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
