//! Reduction by symmetry: what a state is apart from the names that processes, leases and tasks have in it.
//!
//! Counters make the names: a node numbers processes and leases, a process its tasks. Code only compares a
//! name with other names; its number has no other meaning. So two states that differ only in the numbers, *in
//! the same order*, have the same future up to the numbers. One of them is enough: the state met first, whose
//! future is searched under its own names. This makes processes interchangeable that a kill, an idle end or a
//! retry has put into each other's place, and tasks and leases whose predecessors have left no trace.
//! Counters count only as far as their last name in use.
//!
//! A [`Form`] is a text (the `Debug` form of a machine or a message) with each name replaced by its rank
//! among the names of the text, and the list of names. The fingerprint of a world is made of the shapes of
//! its forms, and of the ranks that their names have in the whole world.
//!
//! Why this merges nothing else:
//!
//! - Names keep their order. Code that sorts by name, or walks through tables in the order of names, does the
//!   same in both states. In tables ordered by insertion, the order of the entries is part of the text.
//! - In both states, a name that is made later is larger than all existing ones.
//! - Numbers that are only added up for the metrics are left out.
//! - The driver, the node, and `LeaseId(0)`, which has a meaning of its own, are not renamed. The length of a
//!   value is its object's name ([`payload_of`](super::program::payload_of)), and is renamed with it.
//! - Processes are renamed only if faults may hit all workers alike and no value is stored: the number of a
//!   block shows which process allocated it. Nothing is renamed if the length of an actor's checkpoint
//!   encodes the names of calls ([`Names::of`]).
//!
//! A test checks that machines keep to this: [`check_names`](super::search::check_names) compares the effects
//! of equal events in all states of equal form that a configuration's machines have.
//!
//! The reduction is not minimal: states that differ in the order of names or of table entries count as
//! different even if nothing depends on the order. Siblings of a level are not interchangeable here, because
//! they are submitted and waited for in an order.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::config::Config;
use super::hash;
use super::program::{FIRST, Step};

/// Names from these numbers on are not renamed.
const LEASES: u64 = 128;
const TASKS: u64 = 64;
const WORKERS: usize = 16;

/// The names that may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Names {
    /// Names of leases and tasks.
    pub any: bool,
    /// Names of workers, too.
    pub workers: bool,
}

impl Names {
    /// The names that a configuration does not tell apart.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let bodies = &config.setup.program.bodies;
        let has = |is_such: fn(&Step) -> bool| bodies.iter().flat_map(|body| &body.steps).any(is_such);
        let has_checkpoints = has(|step| matches!(step, Step::Create { checkpoint_every: Some(_), .. }));
        let stores = bodies.iter().any(|body| body.returns_stored)
            || has(|step| matches!(step, Step::Put { is_stored: true, .. } | Step::Write { .. }));
        let workers = 2..=u8::try_from(config.processes).expect("few processes");
        let victims = workers.clone().filter(|index| config.may_be_killed(*index)).count();
        let is_fair = config.kills == 0 || victims == 0 || victims == workers.count();
        Self { any: !has_checkpoints, workers: !has_checkpoints && !stores && is_fair }
    }
}

/// The names in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Used {
    workers: u32,
    leases: u128,
    tasks: [u64; WORKERS],
}

impl Used {
    fn of(form: &Form) -> Self {
        let mut used = Self::default();
        let owners = form.tasks.iter().map(|(owner, _)| owner);
        form.workers.iter().chain(owners).for_each(|index| used.workers |= 1 << index);
        form.leases.iter().for_each(|lease| used.leases |= 1 << lease);
        form.tasks.iter().for_each(|(owner, task)| used.tasks[usize::from(*owner)] |= 1 << task);
        used
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Form {
    shape: u32,
    used: Used,
    workers: Box<[u8]>,
    leases: Box<[u8]>,
    tasks: Box<[(u8, u8)]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    Worker(u8),
    Lease(u8),
    Task(u8, u8),
    Counter,
}

/// The numbers of shapes.
#[derive(Debug, Default)]
pub struct Forms {
    names: Names,
    numbers: FxHashMap<u128, u32>,
    text: String,
}

impl Forms {
    /// Makes forms in which these names are replaced.
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self { names, ..Self::default() }
    }

    /// The form of a text.
    pub fn of(&mut self, text: &str) -> Form {
        let (pieces, tokens) = split(text, self.names);
        let mut form = Form::default();
        let mut distinct = tokens.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let of_kind = |pick: fn(&Token) -> bool| distinct.iter().copied().filter(pick);
        let workers = of_kind(|token| matches!(token, Token::Worker(_)));
        let leases = of_kind(|token| matches!(token, Token::Lease(_)));
        let tasks = of_kind(|token| matches!(token, Token::Task(..)));
        let rank = |token: &Token| {
            let same = |other: &&Token| std::mem::discriminant(*other) == std::mem::discriminant(token);
            distinct.iter().filter(same).position(|other| other == token).expect("it is one of them")
        };
        self.text.clear();
        for (at, piece) in pieces.iter().enumerate() {
            self.text.push_str(piece);
            let written = match tokens.get(at) {
                None | Some(Token::Counter) => Ok(()),
                Some(token @ Token::Worker(_)) => write!(self.text, "\u{1}w{}", rank(token)),
                Some(token @ Token::Lease(_)) => write!(self.text, "\u{1}l{}", rank(token)),
                Some(token @ Token::Task(..)) => write!(self.text, "\u{1}t{}", rank(token)),
            };
            written.expect("writing to memory cannot fail");
        }
        form.workers = workers.map(|token| if let Token::Worker(at) = token { at } else { 0 }).collect();
        form.leases = leases.map(|token| if let Token::Lease(at) = token { at } else { 0 }).collect();
        form.tasks = tasks
            .map(|token| if let Token::Task(owner, at) = token { (owner, at) } else { (0, 0) })
            .collect();
        form.used = Used::of(&form);
        let next = u32::try_from(self.numbers.len()).expect("fewer shapes than states");
        form.shape = *self.numbers.entry(hash::of_bytes(self.text.as_bytes())).or_insert(next);
        form
    }
}

/// The number at the beginning of a text, and the rest of the text.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

fn index(id: u64) -> Option<u8> {
    u8::try_from(id.checked_sub(FIRST)?).ok().filter(|index| usize::from(*index) < WORKERS)
}

/// The object whose value has this length.
fn of_length(length: u64) -> Option<Token> {
    let rest = length.checked_sub(1)?;
    let (owner, number) = (rest / 64, rest % 64);
    let owner = u8::try_from(owner).ok().filter(|owner| (1..WORKERS).contains(&usize::from(*owner)))?;
    Some(Token::Task(owner, u8::try_from(number).expect("a rest")))
}

/// The name at the beginning of a text, and the rest of the text.
fn token(text: &str, names: Names) -> Option<(Token, &str)> {
    if let Some(rest) = text.strip_prefix("TaskId { owner: WorkerId(") {
        let (owner, rest) = number(rest)?;
        let (task, rest) = number(rest.strip_prefix("), number: ")?)?;
        let rest = rest.strip_prefix(" }")?;
        let task = u8::try_from(task).ok().filter(|task| u64::from(*task) < TASKS)?;
        return Some((Token::Task(index(owner)?, task), rest));
    }
    if let Some(rest) = text.strip_prefix("WorkerId(") {
        let (id, rest) = number(rest)?;
        return Some((Token::Worker(index(id)?), rest.strip_prefix(')')?));
    }
    if let Some(rest) = text.strip_prefix("LeaseId(") {
        let (id, rest) = number(rest)?;
        let lease = u8::try_from(id).ok().filter(|lease| (1..LEASES).contains(&u64::from(*lease)))?;
        return Some((Token::Lease(lease), rest.strip_prefix(')')?));
    }
    if let Some(rest) = text.strip_prefix("Blob(") {
        let (length, rest) = number(rest)?;
        return Some((of_length(length)?, rest));
    }
    if let Some(rest) = text.strip_prefix("length: ") {
        let (length, rest) = number(rest)?;
        return Some((of_length(length)?, rest));
    }
    // The counts of submitted tasks, finished tasks and so on are metrics, and decide nothing.
    if let Some(rest) = text.strip_prefix("Counts { submitted: ") {
        return Some((Token::Counter, &rest[rest.find('}')?..]));
    }
    let counters = [("last_lease: ", true), ("Made(", true), ("workers_made: ", names.workers)];
    counters.iter().filter(|(_, is_free)| *is_free).find_map(|(word, _)| {
        let (_, rest) = number(text.strip_prefix(word)?)?;
        Some((Token::Counter, rest))
    })
}

/// The names in a text, and the pieces around them.
fn split(text: &str, names: Names) -> (Vec<&str>, Vec<Token>) {
    let (mut pieces, mut tokens) = (Vec::new(), Vec::new());
    let mut begin = 0;
    let mut at = 0;
    while at < text.len() && names.any {
        let may_begin =
            matches!(text.as_bytes()[at], b'T' | b'W' | b'L' | b'B' | b'C' | b'M' | b'l' | b'n' | b'w');
        if let Some((token, rest)) = may_begin.then(|| token(&text[at..], names)).flatten() {
            pieces.push(&text[begin..at]);
            tokens.push(token);
            at = text.len() - rest.len();
            begin = at;
        } else {
            at += 1;
        }
    }
    pieces.push(&text[begin..]);
    (pieces, tokens)
}

/// Several forms together, with one set of names.
#[derive(Debug)]
pub struct Renamed {
    names: Names,
    used: Used,
    words: Vec<u32>,
}

impl Renamed {
    /// No forms yet.
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self { names, used: Used::default(), words: Vec::new() }
    }

    /// Starts again, for another state.
    pub fn clear(&mut self) {
        self.used = Used::default();
        self.words.clear();
    }

    /// Records the names of a form.
    pub fn meet(&mut self, form: &Form) {
        self.used.workers |= form.used.workers;
        self.used.leases |= form.used.leases;
        for (all, more) in self.used.tasks.iter_mut().zip(&form.used.tasks) {
            *all |= more;
        }
    }

    /// Records the name of a process.
    pub fn meet_worker(&mut self, index: u8) {
        self.used.workers |= 1 << index;
    }

    /// Whether a process has been met.
    #[must_use]
    pub fn has_met(&self, index: u8) -> bool {
        self.used.workers & (1 << index) != 0
    }

    /// The rank of a process among those met.
    #[must_use]
    pub fn worker(&self, index: u8) -> u32 {
        if self.names.workers {
            (self.used.workers & ((1 << index) - 1)).count_ones()
        } else {
            u32::from(index)
        }
    }

    /// Adds a form, with the ranks of its names among all names met before.
    pub fn add(&mut self, form: &Form) {
        self.words.push(form.shape);
        for at in &form.workers {
            self.words.push(self.worker(*at));
        }
        for lease in &form.leases {
            self.words.push((self.used.leases & ((1 << lease) - 1)).count_ones());
        }
        for (owner, task) in &form.tasks {
            let number = (self.used.tasks[usize::from(*owner)] & ((1 << task) - 1)).count_ones();
            self.words.push(self.worker(*owner) << 8 | number);
        }
    }

    /// Adds a number.
    pub fn push(&mut self, word: u32) {
        self.words.push(word);
    }

    /// The fingerprint of everything added.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        hash::of_words(&self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Names = Names { any: true, workers: true };

    /// The fingerprint of texts that are one state together.
    fn fingerprint(texts: &[&str], names: Names) -> u64 {
        // Shapes are told by their texts, so each state may have numbers of its own only if they are made in
        // the same order.
        let mut forms = Forms::new(names);
        let shapes: Vec<Form> = texts.iter().map(|text| forms.of(text)).collect();
        let mut renamed = Renamed::new(names);
        shapes.iter().for_each(|form| renamed.meet(form));
        shapes.iter().for_each(|form| renamed.add(form));
        renamed.fingerprint() ^ forms.numbers.keys().fold(0, |all, text| all ^ *text as u64)
    }

    fn worker(index: u64) -> String {
        format!("WorkerId({})", FIRST + index)
    }

    fn task(owner: u64, number: u64) -> String {
        format!("TaskId {{ owner: {}, number: {number} }}", worker(owner))
    }

    #[test]
    fn names_in_the_same_order_are_the_same_state() {
        let state = |first, second, lease| format!("{} {} LeaseId({lease})", worker(first), worker(second));
        let one = fingerprint(&[&state(2, 3, 4)], ALL);
        assert_eq!(one, fingerprint(&[&state(3, 5, 9)], ALL));
        assert_ne!(one, fingerprint(&[&state(3, 2, 4)], ALL), "the order of names counts");
        assert_ne!(one, fingerprint(&[&state(2, 2, 4)], ALL), "one process is not two");
        assert_ne!(one, fingerprint(&[&state(2, 3, 0)], ALL), "no lease is not a lease");
        let leases = Names { any: true, workers: false };
        assert_ne!(fingerprint(&[&state(2, 3, 4)], leases), fingerprint(&[&state(3, 5, 4)], leases));
        assert_eq!(fingerprint(&[&state(2, 3, 4)], leases), fingerprint(&[&state(2, 3, 9)], leases));
    }

    #[test]
    fn a_name_in_one_text_is_that_name_in_all() {
        let same = fingerprint(&[&worker(2), &worker(2), &worker(3)], ALL);
        assert_ne!(same, fingerprint(&[&worker(2), &worker(3), &worker(3)], ALL));
        assert_eq!(same, fingerprint(&[&worker(4), &worker(4), &worker(6)], ALL));
    }

    #[test]
    fn values_are_named_as_the_tasks_that_make_them() {
        let state = |owner, number, length: u64| format!("{} Blob({length} bytes)", task(owner, number));
        let length = |owner: u64, number: u64| 1 + owner * 64 + number;
        let own = fingerprint(&[&state(2, 1, length(2, 1))], ALL);
        assert_eq!(own, fingerprint(&[&state(3, 4, length(3, 4))], ALL));
        assert_ne!(own, fingerprint(&[&state(3, 4, length(3, 5))], ALL), "the value of another task");
        assert_ne!(own, fingerprint(&[&state(2, 1, 3)], ALL), "no value at all");
    }

    #[test]
    fn counters_count_as_far_as_their_names_are_in_use() {
        let state = |made, lease| format!("last_lease: {made}, leases: [LeaseId({lease})], held: {lease}");
        assert_eq!(
            fingerprint(&["last_lease: 3, LeaseId(2)"], ALL),
            fingerprint(&["last_lease: 9, LeaseId(2)"], ALL)
        );
        assert_ne!(fingerprint(&[&state(3, 2)], ALL), fingerprint(&[&state(3, 3)], ALL), "a plain number");
    }
}
