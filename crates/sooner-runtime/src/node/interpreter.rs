//! How a node starts workers for drivers of other machines (`docs/adr/0030-jobs-over-nodes.md`).
//!
//! The driver's program and paths need not be here. So this node's own interpreter runs the job's template, and looks for
//! modules where the driver does, as far as those places are here, and then where this node does.

use std::path::Path;

use sooner_wire::message::TemplateSetup;

/// The interpreter of a node of its own, and where it looks for modules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interpreter {
    /// The program.
    pub executable: String,
    /// What it runs. Its arguments: whether workers record from which line a task was submitted ("1"), how many modules
    /// are imported, their names, the places where modules are, and the node's directory.
    pub code: String,
    /// Where its standard library is.
    pub standard: Vec<String>,
    /// Where it looks for other modules.
    pub path: Vec<String>,
    /// Some are found by import hooks that `site` sets up.
    pub needs_site: bool,
}

impl Interpreter {
    /// Program and arguments of a template; the node's directory is to be appended.
    #[must_use]
    pub fn command(&self, setup: &TemplateSetup) -> Vec<String> {
        let mut command = vec![self.executable.clone()];
        // `site` takes most of an interpreter's start.
        if !(setup.needs_site || self.needs_site) {
            command.push("-S".to_owned());
        }
        command.extend(["-P", "-c"].map(str::to_owned));
        command.push(self.code.clone());
        command.push(u8::from(setup.call_sites).to_string());
        command.push(setup.preload.len().to_string());
        command.extend(setup.preload.iter().cloned());
        command.extend(self.places(setup));
        command
    }

    fn places(&self, setup: &TemplateSetup) -> Vec<String> {
        let mut places: Vec<String> = Vec::new();
        let mut add = |place: &String| {
            if !places.contains(place) {
                places.push(place.clone());
            }
        };
        for place in &setup.path {
            if place.is_empty() {
                self.standard.iter().for_each(&mut add);
            } else if Path::new(place).exists() {
                add(place);
            }
        }
        self.standard.iter().chain(&self.path).for_each(add);
        places
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
        }
    }

    fn setup(path: &[&str]) -> TemplateSetup {
        TemplateSetup {
            path: path.iter().map(|place| (*place).to_owned()).collect(),
            preload: vec!["numpy".to_owned()],
            call_sites: true,
            needs_site: false,
        }
    }

    #[test]
    fn places_of_the_driver_come_first_as_far_as_they_are_here() {
        let command = interpreter().command(&setup(&["/tmp", "/not/here", "", "/usr"]));
        let places = ["/tmp", "/opt/lib", "/usr", "/opt/site", "/"];
        let expected = ["/opt/python", "-S", "-P", "-c", "code", "1", "1", "numpy"];
        assert_eq!(command[..8], expected);
        assert_eq!(command[8..], places);
    }

    #[test]
    fn the_standard_library_is_this_interpreters_and_is_always_there() {
        let command = interpreter().command(&setup(&["/"]));
        assert_eq!(command[8..], ["/", "/opt/lib", "/opt/site"]);
    }

    #[test]
    fn import_hooks_of_either_side_need_site() {
        let mut setup = setup(&[]);
        setup.needs_site = true;
        assert_eq!(interpreter().command(&setup)[1], "-P");
        setup.needs_site = false;
        assert_eq!(Interpreter { needs_site: true, ..interpreter() }.command(&setup)[1], "-P");
    }
}
