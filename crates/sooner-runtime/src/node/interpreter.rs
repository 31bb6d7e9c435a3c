//! How a node starts workers for drivers of other machines (`docs/adr/0030-jobs-over-nodes.md`).
//!
//! The driver's program and paths need not exist on this node. So this node's own interpreter runs the job's
//! template. It looks for modules in the driver's places, as far as they exist here, then in this node's. A
//! directory here with the name of one of the driver's may be anybody's: it is left out unless only this user
//! and the administrator can change it. So is the driver's working directory: an interpreter that starts
//! there, as with `multiprocessing`, looks there for modules first.

use std::path::{Path, PathBuf};

use crate::private::strangers_at;
use sooner_wire::message::TemplateSetup;

/// The interpreter of a standalone node, and where it looks for modules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interpreter {
    /// The program.
    pub executable: String,
    /// What it runs. Its arguments: whether workers record from which line a task was submitted ("1"), how
    /// many modules are imported, how many places are left out, what `sys.flags` has ("NAME=VALUE,..."), the
    /// names of those modules, those places with the reasons, the places where modules are, and the node's
    /// directory.
    pub code: String,
    /// Where its standard library is.
    pub standard: Vec<String>,
    /// Where it looks for other modules.
    pub path: Vec<String>,
    /// Some modules are found by import hooks that `site` sets up.
    pub needs_site: bool,
    /// A library to load into a template before everything else, so that it has the driver's hashes.
    pub library: Option<String>,
}

impl Interpreter {
    /// Program and arguments of a template; the node's directory is to be appended. `needs_no_environment`:
    /// the template may ignore this node's environment, if the driver ignored its own.
    #[must_use]
    pub fn command(&self, setup: &TemplateSetup, begin: &Begin, needs_no_environment: bool) -> Vec<String> {
        let mut command = vec![self.executable.clone()];
        // `site` takes most of an interpreter's start.
        if !(setup.needs_site || self.needs_site) {
            command.push("-S".to_owned());
        }
        command.push("-P".to_owned());
        let may_hold = |option: &&String| {
            is_flag(option) || (needs_no_environment && ["-E", "-I", "-s"].contains(&option.as_str()))
        };
        command.extend(setup.options.iter().filter(may_hold).cloned());
        command.push("-c".to_owned());
        command.push(self.code.clone());
        command.push(u8::from(setup.call_sites).to_string());
        let (places, left_out) = self.places(setup, begin);
        command.push(setup.preload.len().to_string());
        command.push(left_out.len().to_string());
        let flags = setup.flags.iter().map(|(name, value)| format!("{name}={value}"));
        command.push(flags.collect::<Vec<_>>().join(","));
        command.extend(setup.preload.iter().cloned());
        command.extend(left_out);
        command.extend(places);
        command
    }

    /// Where to look for modules; and the places left out of that, with the reasons.
    fn places(&self, setup: &TemplateSetup, begin: &Begin) -> (Vec<String>, Vec<String>) {
        let mut places: Vec<String> = Vec::new();
        let mut left_out: Vec<String> = begin.left_out().into_iter().collect();
        let mut add = |place: &String| {
            if !places.contains(place) {
                places.push(place.clone());
            }
        };
        for place in &setup.path {
            if place.is_empty() {
                self.standard.iter().for_each(&mut add);
                continue;
            }
            // The interpreter would look for a relative place in whatever directory a task goes to.
            let place = begin.of_driver.join(place);
            let Some(name) = place.to_str().filter(|_| place.is_absolute()).map(str::to_owned) else {
                continue;
            };
            match strangers_at(&place) {
                Ok(None) => add(&name),
                // This node looks there anyway.
                Ok(Some(_)) if self.path.contains(&name) || self.standard.contains(&name) => {}
                // `left_out` names it already.
                Ok(Some(_)) if begin.fault.is_some() && place == begin.of_driver => {}
                Ok(Some(why)) => left_out.push(format!("{name} ({why})")),
                // The place does not exist here.
                Err(_) => {}
            }
        }
        self.standard.iter().chain(&self.path).for_each(add);
        (places, left_out)
    }
}

/// Where the template of a driver on another node begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// The driver's working directory, which need not exist here.
    of_driver: PathBuf,
    /// Who else can change that directory here.
    fault: Option<String>,
    /// Where the template begins.
    pub place: PathBuf,
}

impl Begin {
    /// Begins in the driver's directory, if that exists here and only this user and the administrator can
    /// change it; else in the node's.
    #[must_use]
    pub fn new(of_driver: &Path, of_node: &Path) -> Self {
        let may_enter = || rustix::fs::access(of_driver, rustix::fs::Access::EXEC_OK).is_ok();
        // The path is empty if the driver's directory was removed.
        let is_there = of_driver.is_absolute() && of_driver.is_dir();
        let fault = if is_there { strangers_at(of_driver) } else { Ok(None) };
        let is_ours = is_there && matches!(fault, Ok(None)) && may_enter();
        let place = if is_ours { of_driver } else { of_node };
        Self { of_driver: of_driver.to_owned(), fault: fault.ok().flatten(), place: place.to_owned() }
    }

    fn left_out(&self) -> Option<String> {
        let why = self.fault.as_ref()?;
        let place = self.of_driver.display();
        Some(format!("the working directory {place} ({why}; workers begin in the node's instead)"))
    }
}

/// Whether an argument only says how an interpreter behaves, and not what it runs.
fn is_flag(option: &str) -> bool {
    let mut letters = option.strip_prefix('-').unwrap_or_default().chars();
    match letters.next() {
        Some('X' | 'W') => letters.next().is_some(),
        Some(first) => "BObqvd".contains(first) && letters.all(|letter| letter == first),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter() -> Interpreter {
        let text = |text: &str| text.to_owned();
        Interpreter {
            executable: text("/opt/python"),
            code: text("code"),
            standard: vec![text("/opt/lib")],
            path: vec![text("/opt/site"), text("/")],
            needs_site: false,
            library: None,
        }
    }

    fn setup(path: &[&str]) -> TemplateSetup {
        TemplateSetup {
            path: path.iter().map(|place| (*place).to_owned()).collect(),
            preload: vec!["numpy".to_owned()],
            call_sites: true,
            needs_site: false,
            options: Vec::new(),
            flags: Vec::new(),
        }
    }

    fn here() -> Begin {
        Begin::new(Path::new("/usr"), Path::new("/opt/node"))
    }

    #[test]
    fn options_and_flags_are_those_of_the_driver() {
        let mut setup = setup(&["/"]);
        setup.options =
            ["-OO", "-Xdev", "-W ignore", "-cprint()", "--help", "-m", "/x", ""].map(str::to_owned).to_vec();
        setup.flags = vec![("optimize".to_owned(), 2), ("quiet".to_owned(), 0)];
        let command = interpreter().command(&setup, &here(), false);
        let expected = [
            "-S",
            "-P",
            "-OO",
            "-Xdev",
            "-W ignore",
            "-c",
            "code",
            "1",
            "1",
            "0",
            "optimize=2,quiet=0",
            "numpy",
        ];
        assert_eq!(command[1..13], expected);
    }

    #[test]
    fn an_environment_that_does_not_count_for_the_driver_does_not_count_here() {
        let mut setup = setup(&["/"]);
        setup.options = ["-I", "-E", "-s", "-i", "-O"].map(str::to_owned).to_vec();
        assert_eq!(interpreter().command(&setup, &here(), true)[1..7], ["-S", "-P", "-I", "-E", "-s", "-O"]);
        assert_eq!(interpreter().command(&setup, &here(), false)[1..5], ["-S", "-P", "-O", "-c"]);
    }

    #[test]
    fn places_of_the_driver_come_first_as_far_as_they_are_here() {
        let command = interpreter().command(&setup(&["/etc", "/not/here", "", "/usr"]), &here(), false);
        let places = ["/etc", "/opt/lib", "/usr", "/opt/site", "/"];
        let expected = ["/opt/python", "-S", "-P", "-c", "code", "1", "1", "0", "", "numpy"];
        assert_eq!(command[..10], expected);
        assert_eq!(command[10..], places);
    }

    #[test]
    fn places_that_others_can_change_are_left_out_and_named() {
        let command = interpreter().command(&setup(&["/tmp", "/usr"]), &here(), false);
        let expected = ["1", "1", "1", "", "numpy", "/tmp (everybody may write to /tmp)", "/usr"];
        assert_eq!(command[5..12], expected);
        assert!(!command[11..].contains(&"/tmp".to_owned()));
        // Whoever started the node has it look there.
        let mut own = interpreter();
        own.path.push("/tmp".to_owned());
        assert_eq!(
            own.command(&setup(&["/tmp"]), &here(), false)[5..],
            ["1", "1", "0", "", "numpy", "/opt/lib", "/opt/site", "/", "/tmp"]
        );
    }

    #[test]
    fn relative_places_are_those_of_the_drivers_directory() {
        let own = Interpreter { path: Vec::new(), ..interpreter() };
        let places = |of_driver: &str, path: &[&str]| {
            let command = own.command(&setup(path), &Begin::new(Path::new(of_driver), Path::new("/")), false);
            command[7..].to_vec()
        };
        assert_eq!(
            places("/usr", &["lib", ".", "../etc"]),
            ["0", "", "numpy", "/usr/lib", "/usr/.", "/usr/../etc", "/opt/lib"]
        );
        // They are not of the root directory, nor of the node's.
        assert_eq!(places("/usr", &["proc", "usr"]), ["0", "", "numpy", "/opt/lib"]);
        assert_eq!(places("/not/here", &["proc", "."]), ["0", "", "numpy", "/opt/lib"]);
        assert_eq!(places("", &["proc", "."]), ["0", "", "numpy", "/opt/lib"]);
        let named =
            "the working directory /tmp (everybody may write to /tmp; workers begin in the node's instead)";
        assert_eq!(places("/tmp", &[".", "/tmp"]), ["1", "", "numpy", named, "/opt/lib"]);
    }

    #[test]
    fn a_template_begins_where_the_driver_is_unless_others_can_change_it() {
        let node = Path::new("/opt/node");
        let begin = |place: &str| Begin::new(Path::new(place), node);
        assert_eq!((begin("/usr").place.as_path(), begin("/usr").left_out()), (Path::new("/usr"), None));
        assert_eq!(begin("/tmp").place, node);
        assert!(begin("/tmp").left_out().is_some());
        // Where nothing is nothing is left out.
        for place in ["", ".", "usr", "/not/here", "/etc/passwd"] {
            assert_eq!((begin(place).place.as_path(), begin(place).left_out()), (node, None), "{place}");
        }
    }

    #[test]
    fn the_standard_library_is_this_interpreters_and_is_always_there() {
        let command = interpreter().command(&setup(&["/"]), &here(), false);
        assert_eq!(command[10..], ["/", "/opt/lib", "/opt/site"]);
    }

    #[test]
    fn import_hooks_of_either_side_need_site() {
        let mut setup = setup(&[]);
        setup.needs_site = true;
        assert_eq!(interpreter().command(&setup, &here(), false)[1], "-P");
        setup.needs_site = false;
        assert_eq!(
            Interpreter { needs_site: true, ..interpreter() }.command(&setup, &here(), false)[1],
            "-P"
        );
    }
}
