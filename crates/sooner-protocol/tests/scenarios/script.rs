//! The commands of a scenario. Each is a line that begins with `>`; what follows it is what came of it.

use std::sync::Arc;

use sooner_protocol::worker::ActorDemand;
use sooner_protocol::worker::ownership::Slot;
use sooner_protocol::worker::tasks::Awaited;
use sooner_wire::message::{ActorCreation, FunctionCall, MethodCall, Outcome, Scheduling, Target, TaskSpec};
use sooner_wire::strategy::NodeAffinity;
use sooner_wire::{Blob, FunctionId, Name, NodeId, ObjectId, ResourceSet, Strategy, TaskId, WorkerId};

use super::cluster::{Cluster, End, first_id};
use super::describe::letter;
use super::process::Handle;
use crate::kit::cpus;

/// What is wrong with a command.
pub type Wrong = String;

/// The id of all functions and classes.
const FUNCTION: FunctionId = FunctionId(1);

/// A call as it is written: `x = f(a, &b)` or `x = c.m(a)`, and words behind it.
struct Call<'a> {
    result: &'a str,
    callee: &'a str,
    values: Vec<&'a str>,
    references: Vec<&'a str>,
    options: Vec<&'a str>,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Result<Self, Wrong> {
        let expected = || format!("a call `x = f(a, &b)` and words behind it, not {text:?}");
        let (result, rest) = text.split_once(" = ").ok_or_else(expected)?;
        let (callee, rest) = rest.split_once('(').ok_or_else(expected)?;
        let (arguments, options) = rest.split_once(')').ok_or_else(expected)?;
        let all = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
        let (references, values): (Vec<&str>, Vec<&str>) =
            all.partition(|argument| argument.starts_with('&'));
        let references = references.into_iter().map(|reference| &reference[1..]).collect();
        let options = options.split_whitespace().collect();
        Ok(Self { result: result.trim(), callee, values, references, options })
    }

    fn has(&self, word: &str) -> bool {
        self.options.contains(&word)
    }

    fn option(&self, key: &str) -> Option<&'a str> {
        self.options.iter().find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }

    fn number(&self, key: &str, otherwise: i32) -> Result<i32, Wrong> {
        let wrong = |text| format!("a number for {key}, not {text:?}");
        self.option(key).map_or(Ok(otherwise), |text| text.parse().map_err(|_| wrong(text)))
    }

    fn check(&self, allowed: &[&str]) -> Result<(), Wrong> {
        let is_known = |option: &str| allowed.contains(&option.split('=').next().unwrap_or_default());
        match self.options.iter().find(|option| !is_known(option)) {
            Some(other) => Err(format!("one of {allowed:?} behind the call, not {other:?}")),
            None => Ok(()),
        }
    }
}

/// `cluster a=1 b=2 spills`: the nodes and their CPUs.
pub fn begin(command: &str) -> Result<Cluster, Wrong> {
    let expected = || "`cluster a=1 b=1` first: nodes and their CPUs".to_owned();
    let rest = command.strip_prefix("cluster ").ok_or_else(expected)?;
    let (mut nodes, mut spills) = (Vec::new(), false);
    for word in rest.split_whitespace() {
        match word.split_once('=') {
            Some((name, count)) if *name == *letter(nodes.len()).to_string() => {
                nodes.push(count.parse().map_err(|_| format!("a number of CPUs, not {count:?}"))?);
            }
            None if word == "spills" => spills = true,
            _ => return Err(format!("`{}=CPUS` or `spills`, not {word:?}", letter(nodes.len()))),
        }
    }
    if nodes.is_empty() { Err(expected()) } else { Ok(Cluster::new(&nodes, spills)) }
}

impl Cluster {
    /// Carries out one command.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn command(&mut self, command: &str) -> Result<(), Wrong> {
        if let Some((who, what)) = command.split_once(": ") {
            match self.end_of(who)? {
                End::Process(id) => self.command_of_process(id, what)?,
                End::Node(at) => self.command_of_node(at, what)?,
                End::Head => return Err("the head does nothing by itself".to_owned()),
            }
            self.go_on();
            return Ok(());
        }
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        match verb {
            "run" => return self.run_as(rest),
            "wait" => return self.wait_for(rest),
            "kill" => return self.kill(rest),
            "hold" | "release" => return self.hold_channel(rest, verb == "hold"),
            "deliver" => {
                let (from, to) = self.way_of(rest)?;
                if !self.deliver(from, to) {
                    return Err(format!("something on the way {rest}"));
                }
            }
            "expect" => return self.expect(rest),
            "start" if rest == "head" => self.start_head(),
            "show" => rest.split_whitespace().for_each(|kind| _ = self.hidden.remove(kind)),
            "hide" => self.hidden.extend(rest.split_whitespace().map(str::to_owned)),
            "halves" => self.halves = true,
            _ => {
                return Err(format!(
                    "`run`, `wait`, `kill`, `start head`, `hold`, `release`, `deliver`, `show`, `hide`, `halves`, `expect` or `WHO: ...`, not {verb:?}"
                ));
            }
        }
        Ok(())
    }

    fn run_as(&mut self, rest: &str) -> Result<(), Wrong> {
        let Some(text) = rest.strip_prefix("until ") else {
            self.run();
            return Ok(());
        };
        let is_reached = self.run_until(|line| line.contains(text));
        if is_reached { Ok(()) } else { Err(format!("that {text:?} happens; it does not")) }
    }

    fn end_of(&self, name: &str) -> Result<End, Wrong> {
        if name == "head" {
            return Ok(End::Head);
        }
        let node = |at: &usize| self.names.end(End::Node(*at)) == name;
        if let Some(at) = (0..self.nodes.len()).find(node) {
            return Ok(End::Node(at));
        }
        let process = self.names.processes.iter().find(|(_, known)| *known == name);
        process.map(|(id, _)| End::Process(*id)).ok_or_else(|| format!("a process or a node, not {name:?}"))
    }

    fn way_of(&self, text: &str) -> Result<(End, End), Wrong> {
        let (from, to) = text.split_once(" -> ").ok_or_else(|| format!("`A -> B`, not {text:?}"))?;
        Ok((self.end_of(from)?, self.end_of(to)?))
    }

    fn hold_channel(&mut self, text: &str, holds: bool) -> Result<(), Wrong> {
        let (from, to) = self.way_of(text)?;
        self.channel(from, to).is_held = holds;
        Ok(())
    }

    fn wait_for(&mut self, text: &str) -> Result<(), Wrong> {
        let wrong = || format!("`100ms` or `2s`, not {text:?}");
        let millis = text.strip_suffix("ms").map(|count| (count, 1_000_000));
        let (count, unit) = millis
            .or_else(|| text.strip_suffix('s').map(|count| (count, 1_000_000_000)))
            .ok_or_else(wrong)?;
        self.wait(count.parse::<u64>().map_err(|_| wrong())? * unit);
        Ok(())
    }

    fn kill(&mut self, name: &str) -> Result<(), Wrong> {
        match self.end_of(name)? {
            End::Process(id) if self.gone.contains(&id) => return Err(format!("that {name} lives")),
            End::Process(id) => self.kill_process(id, "is killed"),
            End::Node(at) => self.kill_node(at),
            End::Head => self.kill_head(),
        }
        self.go_on();
        Ok(())
    }

    fn object_of(&self, name: &str) -> Result<ObjectId, Wrong> {
        // A task that runs again submits others under the same names: the latest is meant.
        let task = self.names.tasks.iter().rev().find(|(_, known)| *known == name);
        task.map(|(task, _)| task.object(0)).ok_or_else(|| format!("the name of a result, not {name:?}"))
    }

    fn handle_of(&self, id: WorkerId, name: &str) -> Result<Handle, Wrong> {
        let process = self.processes.get(&id).ok_or("a process that lives")?;
        let held = self.names.tasks.iter().filter(|(_, known)| *known == name);
        let mut held = held.filter_map(|(task, _)| process.handle(task.object(0)));
        held.next_back()
            .ok_or_else(|| format!("a reference that {} has, not {name:?}", self.names.process(id)))
    }

    // --- what nodes do ---

    fn command_of_node(&mut self, at: usize, what: &str) -> Result<(), Wrong> {
        match what.split_once(' ') {
            _ if what == "needs room" => self.relieve(at),
            Some(("loses", name)) => {
                let object = self.object_of(name)?;
                self.lose(at, object);
            }
            _ => return Err(format!("`needs room` or `loses x`, not {what:?}")),
        }
        Ok(())
    }

    // --- what processes do ---

    fn command_of_process(&mut self, id: WorkerId, what: &str) -> Result<(), Wrong> {
        if !self.processes.contains_key(&id) {
            return Err(format!("that {} lives", self.names.process(id)));
        }
        let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
        match verb {
            "submit" => self.submit(id, &Call::parse(rest)?),
            "create" => self.create(id, &Call::parse(rest)?),
            "call" => self.call(id, &Call::parse(rest)?),
            "put" => self.put(id, rest),
            "write" => self.write(id, rest),
            "seal" => self.seal(id, rest),
            "get" => {
                let handle = self.handle_of(id, rest)?;
                handle.1.acquire();
                let process = self.processes.get_mut(&id).expect("checked");
                process.gets.push(handle);
                Ok(())
            }
            "open" => self.open(id, rest),
            "drop" => self.drop_handle(id, rest),
            "keep" => {
                let handle = self.handle_of(id, rest)?;
                handle.1.acquire();
                self.processes.get_mut(&id).expect("checked").kept.push(handle);
                Ok(())
            }
            "finish" => self.finish_by_name(id, rest),
            "cancel" => {
                let task = self.object_of(rest)?.task;
                self.with_process(id, |core, out| core.cancel(task, false, true, out));
                Ok(())
            }
            "waits" | "goes" => {
                self.with_process(id, |core, out| core.set_blocked(verb == "waits", out));
                Ok(())
            }
            _ => Err(format!(
                "`submit`, `create`, `call`, `put`, `write`, `seal`, `get`, `open`, `drop`, `keep`, `finish`, `cancel`, `waits` or `goes on`, not {what:?}"
            )),
        }
    }

    fn name(&mut self, id: WorkerId, name: &str) -> TaskId {
        let task = self.processes.get_mut(&id).expect("it lives").next_task();
        self.names.tasks.insert(task, name.to_owned());
        task
    }

    /// The description of a task. The table knows its arguments before their ids leave the process.
    fn spec(&mut self, id: WorkerId, call: &Call<'_>, target: Target, name: &str) -> Result<TaskSpec, Wrong> {
        let mut lists = [Vec::new(), Vec::new()];
        for (list, names) in lists.iter_mut().zip([&call.values, &call.references]) {
            for name in names {
                let (object, slot) = self.handle_of(id, name)?;
                if !slot.is_registered() {
                    self.with_process(id, |core, _| core.ownership_mut().own(object, slot));
                }
                list.push(object);
            }
        }
        let [dependencies, references] = lists;
        let task = self.name(id, call.result);
        let mut spec = TaskSpec::of(task, target, Name::from(name), Blob::default());
        spec.dependencies = dependencies.into();
        spec.references = references.into();
        if call.has("large") {
            self.large.insert(task.object(0));
        }
        if call.has("waits") {
            self.waits.insert(task.object(0));
        }
        Ok(spec)
    }

    fn submit(&mut self, id: WorkerId, call: &Call<'_>) -> Result<(), Wrong> {
        call.check(&["large", "waits", "retries", "on", "cpus", "after"])?;
        let resources = cpus(f64::from(call.number("cpus", 1)?));
        let strategy = call.option("on").map(|name| self.node_named(name)).transpose()?;
        let shape = self.with_process(id, |core, out| match &strategy {
            Some(strategy) => core.shape_at(&resources, strategy, out),
            None => core.shape(&resources),
        });
        let scheduling = Scheduling { strategy: strategy.map(Box::new), ..Scheduling::default() };
        let target = FunctionCall { scheduling, ..FunctionCall::new(shape, FUNCTION) };
        let mut spec = self.spec(id, call, Target::Function(target), call.callee)?;
        spec.retries = call.number("retries", 3)?;
        let after = usize::try_from(call.number("after", 0)?).map_err(|_| "after=1".to_owned())?;
        self.submit_spec(id, spec, after);
        Ok(())
    }

    /// On this node, or on another one if it is gone.
    fn node_named(&self, name: &str) -> Result<Strategy, Wrong> {
        let End::Node(at) = self.end_of(&format!("node {name}"))? else {
            unreachable!("it is a node's name")
        };
        Ok(Strategy::Node(NodeAffinity { node: NodeId(first_id(at)), soft: true }))
    }

    fn submit_spec(&mut self, id: WorkerId, spec: TaskSpec, after: usize) {
        let awaited = Awaited::new(after, spec.references.iter().copied());
        self.define(id, &spec);
        let (slot, object) = (Arc::new(Slot::default()), spec.task.object(0));
        slot.acquire();
        let process = self.processes.get_mut(&id).expect("it lives");
        let parent = process.frames.last().map(|frame| frame.task);
        process.hold((object, slot.clone()));
        self.with_process(id, |core, out| core.submit_after(awaited, Arc::new(spec), [slot], parent, out));
    }

    fn define(&mut self, id: WorkerId, spec: &TaskSpec) {
        let Some(function) = spec.function() else { return };
        let define = sooner_wire::message::Define {
            function,
            name: spec.name.clone(),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        };
        self.with_process(id, |core, _| core.define(define));
    }

    fn create(&mut self, id: WorkerId, call: &Call<'_>) -> Result<(), Wrong> {
        call.check(&["restarts", "checkpoints", "on", "cpus"])?;
        let strategy = call.option("on").map(|name| self.node_named(name)).transpose()?;
        let restarts = call.number("restarts", 0)?;
        let every = call.number("checkpoints", 0)?;
        let placement = cpus(f64::from(call.number("cpus", 1)?));
        let target = Target::Class(ActorCreation {
            concurrency: 1,
            checkpoint_every: u32::try_from(every).ok().filter(|every| *every > 0),
            scheduling: Scheduling { strategy: strategy.map(Box::new), ..Scheduling::default() },
            ..ActorCreation::new(FUNCTION)
        });
        let spec = self.spec(id, call, target, call.callee)?;
        self.define(id, &spec);
        let demand = ActorDemand { restarts, detached: false, placement, lifetime: ResourceSet::default() };
        let (slot, object) = (Arc::new(Slot::default()), spec.task.object(0));
        slot.acquire();
        self.processes.get_mut(&id).expect("it lives").hold((object, slot.clone()));
        self.with_process(id, |core, out| core.create_actor(Arc::new(spec), slot, demand, out));
        Ok(())
    }

    fn call(&mut self, id: WorkerId, call: &Call<'_>) -> Result<(), Wrong> {
        call.check(&["large", "waits", "retries", "kept", "reads"])?;
        let expected = || format!("a call of an actor `x = c.m()`, not {:?}", call.callee);
        let (actor, method) = call.callee.split_once('.').ok_or_else(expected)?;
        let (handle, _) = self.handle_of(id, actor)?;
        let kept = if call.has("reads") { Some(false) } else { call.has("kept").then_some(true) };
        let target = Target::Method(MethodCall { kept, ..MethodCall::new(handle.task) });
        let mut spec = self.spec(id, call, target, method)?;
        spec.retries = call.number("retries", 0)?;
        self.submit_spec(id, spec, 0);
        Ok(())
    }

    fn put(&mut self, id: WorkerId, rest: &str) -> Result<(), Wrong> {
        let (name, is_large) = match rest.split_once(' ') {
            Some((name, "large")) => (name, true),
            None => (rest, false),
            Some(_) => return Err(format!("`put x` or `put x large`, not {rest:?}")),
        };
        let object = self.name(id, name).object(0);
        let outcome =
            if is_large { self.store(id, object) } else { Outcome::Inline(Blob::from(name.as_bytes())) };
        let slot = Arc::new(Slot::with_outcome(outcome));
        slot.acquire();
        self.processes.get_mut(&id).expect("it lives").hold((object, slot.clone()));
        self.with_process(id, |core, _| core.ownership_mut().own(object, slot));
        Ok(())
    }

    /// The memory of a value, which the process writes until it is sealed.
    fn write(&mut self, id: WorkerId, name: &str) -> Result<(), Wrong> {
        let object = self.name(id, name).object(0);
        let Outcome::Stored(block) = self.store(id, object) else {
            return Err("a value in shared memory".to_owned());
        };
        let slot = Arc::new(Slot::default());
        slot.acquire();
        self.processes.get_mut(&id).expect("it lives").hold((object, slot.clone()));
        self.with_process(id, |core, _| core.create(object, slot, block));
        Ok(())
    }

    fn seal(&mut self, id: WorkerId, name: &str) -> Result<(), Wrong> {
        let (object, _) = self.handle_of(id, name)?;
        let is_sealed = self.with_process(id, |core, out| core.seal(object, out));
        if is_sealed { Ok(()) } else { Err(format!("that {name} is written, and not sealed")) }
    }

    /// A value is read, and the references in it come to life.
    fn open(&mut self, id: WorkerId, name: &str) -> Result<(), Wrong> {
        let (object, _) = self.handle_of(id, name)?;
        let inside = self.with_process(id, |core, _| {
            let table = core.ownership_mut();
            table.contained(object).into_iter().map(|id| (id, table.meet(id))).collect::<Vec<Handle>>()
        });
        for handle in inside {
            handle.1.acquire();
            self.processes.get_mut(&id).expect("checked").hold(handle);
        }
        Ok(())
    }

    fn drop_handle(&mut self, id: WorkerId, name: &str) -> Result<(), Wrong> {
        let (object, _) = self.handle_of(id, name)?;
        let process = self.processes.get_mut(&id).expect("it lives");
        let lists = process.frames.iter_mut().map(|frame| &mut frame.locals).chain([&mut process.kept]);
        let mut taken = Vec::new();
        for list in lists {
            let (gone, stays) = std::mem::take(list).into_iter().partition(|(held, _)| *held == object);
            *list = stays;
            taken.extend::<Vec<Handle>>(gone);
        }
        taken.into_iter().for_each(|handle| process.release(handle));
        self.with_process(id, |_, _| ());
        Ok(())
    }

    /// `finish x`, and `large`, `raises` or `with &y` behind it.
    fn finish_by_name(&mut self, id: WorkerId, rest: &str) -> Result<(), Wrong> {
        let mut words = rest.split_whitespace();
        let name = words.next().ok_or("the name of a result")?;
        let frames = self.processes[&id].frames.iter().map(|frame| frame.task);
        let task = frames.into_iter().find(|task| self.names.task(*task) == name);
        let task =
            task.ok_or_else(|| format!("a task that runs in {}, not {name:?}", self.names.process(id)))?;
        let (mut is_large, mut raises) = (self.large.contains(&task.object(0)), false);
        let mut contained = Vec::new();
        for word in words {
            match word {
                "large" => is_large = true,
                "raises" => raises = true,
                "with" => {}
                reference if reference.starts_with('&') => {
                    contained.push(self.handle_of(id, &reference[1..])?.0);
                }
                _ => return Err(format!("`large`, `raises` or `with &y`, not {word:?}")),
            }
        }
        self.finish(id, task, is_large, contained, raises);
        Ok(())
    }

    // --- what must hold ---

    fn expect(&self, text: &str) -> Result<(), Wrong> {
        let wrong = || {
            format!(
                "`expect WHO x = ...`, `expect WHO lives|is gone` or `expect node a has N values`, not {text:?}"
            )
        };
        if let Some((left, right)) = text.split_once(" = ") {
            let (who, name) = left.rsplit_once(' ').ok_or_else(wrong)?;
            let End::Process(id) = self.end_of(who)? else { return Err(wrong()) };
            let found = self.found(id, name)?;
            return if found == right { Ok(()) } else { Err(format!("{left} = {right}; it is {found}")) };
        }
        for (what, is_so) in [(" lives", true), (" is gone", false)] {
            if let Some(who) = text.strip_suffix(what) {
                let lives = match self.end_of(who)? {
                    End::Process(id) => self.processes.contains_key(&id),
                    End::Node(at) => !self.nodes[at].is_dead,
                    End::Head => self.head.is_some(),
                };
                return if lives == is_so {
                    Ok(())
                } else {
                    Err(format!("that {who}{what}; it is otherwise"))
                };
            }
        }
        let (who, count) = text.split_once(" has ").ok_or_else(wrong)?;
        let End::Node(at) = self.end_of(who)? else { return Err(wrong()) };
        let (count, unit) = count.split_once(' ').ok_or_else(wrong)?;
        let found = match unit {
            "values" | "value" => self.nodes[at].blocks.len(),
            "on disk" => self.nodes[at].disk.len(),
            _ => return Err(wrong()),
        };
        if found.to_string() == count { Ok(()) } else { Err(format!("{text}; it has {found}")) }
    }

    /// What a process knows of an object, or what the state of the actor is that it is.
    fn found(&self, id: WorkerId, name: &str) -> Result<String, Wrong> {
        let process =
            self.processes.get(&id).ok_or_else(|| format!("that {} lives", self.names.process(id)))?;
        if name == "state" {
            let instance = process.instance.as_ref().ok_or("a process that is an actor")?;
            return Ok(instance.calls.join(" "));
        }
        if name == "objects" {
            return Ok(process.core.ownership().len().to_string());
        }
        let object = self.object_of(name)?;
        let slot = process.handle(object).map(|(_, slot)| slot);
        let slot = slot.or_else(|| Some(process.core.ownership().record(object)?.slot.clone()));
        let Some(slot) = slot else { return Ok("nothing".to_owned()) };
        Ok(match slot.outcome().as_deref() {
            None => "pending".to_owned(),
            Some(outcome @ Outcome::Remote(_)) => self.names.place(outcome),
            Some(outcome) => self.names.value_read(outcome),
        })
    }
}
