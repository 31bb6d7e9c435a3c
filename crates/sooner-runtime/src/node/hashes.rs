//! Hashes of strings in a job's workers: the same as in its driver, on all nodes.
//!
//! An interpreter draws the secret of its hashes before it runs any code. To give a template the driver's
//! secret, a library is loaded before the C library, and answers the interpreter's request for it. Where no
//! such library can be loaded, the workers of a job at least share hashes with each other, by a seed that all
//! nodes know (`docs/adr/0100-hashes-of-the-program.md`).

use std::ffi::{CStr, OsString};
use std::process::Command;

use sooner_wire::WorkerId;
use sooner_wire::message::HashSecret;

/// The length of the secret of CPython's hashes.
pub const SECRET_BYTES: usize = 24;
/// Where the library finds the secret, in hexadecimal digits.
pub const SECRET_VARIABLE: &CStr = c"SOONER_HASH_SECRET";
/// Has the template restore the environment (`sooner/_engine/template.py`).
const CHANGED: &str = "SOONER_HASHES_SET";
/// Environment variables that are changed for the start of an interpreter. Their former values are passed
/// with the prefix.
const VARIABLES: [&str; 2] = ["LD_PRELOAD", "PYTHONHASHSEED"];
const FORMER: &str = "SOONER_FORMER_";

/// What determines the hashes of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hashes {
    /// The driver's secret, in hexadecimal digits, and the library that hands it on.
    OfDriver { secret: String, library: String },
    /// A seed, unless the environment has one.
    Seed(u32),
}

impl Hashes {
    /// The hashes of a job. `library` is loaded into this node's interpreters.
    #[must_use]
    pub fn of(job: WorkerId, secret: Option<&HashSecret>, library: Option<&str>) -> Self {
        let secret =
            secret.map(|secret| secret.secret.as_slice()).filter(|bytes| bytes.len() == SECRET_BYTES);
        match (secret, library) {
            (Some(bytes), Some(library)) if !library.is_empty() => {
                let secret = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Self::OfDriver { secret, library: library.to_owned() }
            }
            // All nodes know the job by this id. The seed is mixed from it, and never zero: with zero, hashes
            // are the same in every program.
            _ => Self::Seed((job.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1),
        }
    }

    /// Whether the hashes are right even if the interpreter ignores its environment.
    #[must_use]
    pub fn need_no_environment(&self) -> bool {
        matches!(self, Self::OfDriver { .. })
    }

    /// Has an interpreter start with these hashes. `former` reads this process's environment.
    pub fn set(&self, command: &mut Command, former: impl Fn(&str) -> Option<OsString>) {
        match self {
            Self::Seed(_) if former("PYTHONHASHSEED").is_some() => return,
            Self::Seed(seed) => {
                command.env("PYTHONHASHSEED", seed.to_string());
            }
            Self::OfDriver { secret, library } => {
                let mut preload = OsString::from(library);
                if let Some(others) = former("LD_PRELOAD").filter(|others| !others.is_empty()) {
                    preload.push(":");
                    preload.push(others);
                }
                // With a seed the interpreter would not ask for a secret.
                command.env_remove("PYTHONHASHSEED").env("LD_PRELOAD", preload);
                command.env(SECRET_VARIABLE.to_str().expect("it is ASCII"), secret);
            }
        }
        command.env(CHANGED, "1");
        for name in VARIABLES {
            if let Some(value) = former(name) {
                command.env(format!("{FORMER}{name}"), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sooner_wire::Blob;

    use super::*;

    const JOB: WorkerId = WorkerId(7);

    fn secret(bytes: usize) -> HashSecret {
        HashSecret { secret: Blob::from(vec![0xab; bytes]), library: String::new() }
    }

    /// What a command's environment is told; `None` stands for what is taken out of it.
    fn told(hashes: &Hashes, former: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
        let mut command = Command::new("python");
        hashes.set(&mut command, |name| {
            former.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        });
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    fn expected(pairs: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect()
    }

    #[test]
    fn the_library_is_loaded_before_those_of_the_user() {
        let hashes = Hashes::of(JOB, Some(&secret(SECRET_BYTES)), Some("/lib/s.so"));
        let digits = "ab".repeat(SECRET_BYTES);
        assert_eq!(
            told(&hashes, &[]),
            expected(&[
                ("LD_PRELOAD", Some("/lib/s.so")),
                ("PYTHONHASHSEED", None),
                ("SOONER_HASHES_SET", Some("1")),
                ("SOONER_HASH_SECRET", Some(&digits)),
            ])
        );
        assert_eq!(
            told(&hashes, &[("LD_PRELOAD", "/lib/jemalloc.so"), ("PYTHONHASHSEED", "3")]),
            expected(&[
                ("LD_PRELOAD", Some("/lib/s.so:/lib/jemalloc.so")),
                ("PYTHONHASHSEED", None),
                ("SOONER_FORMER_LD_PRELOAD", Some("/lib/jemalloc.so")),
                ("SOONER_FORMER_PYTHONHASHSEED", Some("3")),
                ("SOONER_HASHES_SET", Some("1")),
                ("SOONER_HASH_SECRET", Some(&digits)),
            ])
        );
        assert!(hashes.need_no_environment());
    }

    #[test]
    fn without_a_library_or_a_secret_all_nodes_take_one_seed() {
        let one = Hashes::of(JOB, Some(&secret(SECRET_BYTES)), None);
        assert_eq!(one, Hashes::of(JOB, None, Some("/lib/s.so")));
        assert_eq!(one, Hashes::of(JOB, Some(&secret(16)), Some("/lib/s.so")));
        assert_eq!(one, Hashes::of(JOB, Some(&secret(SECRET_BYTES)), Some("")));
        assert_ne!(one, Hashes::of(WorkerId(8), None, None));
        assert!(!one.need_no_environment());
        let Hashes::Seed(seed) = one else { panic!("there is nothing else to begin with") };
        let seed_text = seed.to_string();
        assert_eq!(
            told(&one, &[]),
            expected(&[("PYTHONHASHSEED", Some(&seed_text)), ("SOONER_HASHES_SET", Some("1"))])
        );
        // Whoever has set one for this node is left alone.
        assert_eq!(told(&one, &[("PYTHONHASHSEED", "3")]), expected(&[]));
    }
}
