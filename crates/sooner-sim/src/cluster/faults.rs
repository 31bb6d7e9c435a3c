//! Faults: daemons killed and stopped, machines lost, networks that carry nothing, heads that die.

use sooner_protocol::time::Instant;

use super::plan::SECOND;
use super::world::{Event, World};

/// A network that holds back messages between some machines, until then.
#[derive(Debug, Clone)]
pub struct Split {
    from: Vec<bool>,
    to: Vec<bool>,
    both_ways: bool,
    until: Instant,
}

impl Split {
    /// Whether a message from one machine to another is held back.
    #[must_use]
    pub fn holds_back(&self, from: usize, to: usize, now: Instant) -> bool {
        let is_apart = (self.from[from] && self.to[to]) || (self.both_ways && self.from[to] && self.to[from]);
        is_apart && now < self.until
    }
}

impl World {
    /// Strikes with one fault of the plan.
    pub(super) fn blow(&mut self) {
        if self.plan.faults.is_empty() || !self.has_faults() {
            return;
        }
        self.blows += 1;
        let word = self.plan.faults[self.random.below(self.plan.faults.len())];
        self.trace.send(|| format!("{:?}: {word}", self.now));
        match word {
            "kill" => self.with_some_daemon(|world, daemon| world.end_daemon(daemon, true)),
            "lose" => self.with_some_daemon(Self::lose),
            "pause" => self.with_some_daemon(|world, daemon| {
                world.daemons[daemon].stands = world.now.plus(world.some_time());
            }),
            "late" => self.late_until = self.now.plus(self.some_time()),
            "cut" => self.cut_some(),
            "split" | "one-way" | "partial" => self.split(word),
            "drain" => self.with_some_daemon(|world, daemon| world.drain(world.daemons[daemon].id)),
            "head-kill" => self.stop_head(true),
            "head-lose" => self.stop_head(false),
            "head-pause" => self.pause_head(),
            // Other faults are drawn where they happen.
            _ => {}
        }
    }

    /// A time up to some health timeouts (nanoseconds), often less than one.
    fn some_time(&mut self) -> u64 {
        let longest = self.plan.health_timeout * [1, 1, 2, 6][self.random.below(4)];
        self.random.below(longest as usize) as u64
    }

    fn with_some_daemon(&mut self, act: impl FnOnce(&mut Self, usize)) {
        let host = 1 + self.random.below(self.plan.nodes);
        if let Some(daemon) = self.hosts[host].daemon.filter(|daemon| self.daemons[*daemon].runs) {
            act(self, daemon);
        }
    }

    fn lose(&mut self, daemon: usize) {
        let host = self.daemons[daemon].host;
        self.end_daemon(daemon, false);
        self.hosts[host].is_lost = true;
        let time = SECOND + self.some_time();
        self.at(self.now.plus(time), Event::Mend(host));
    }

    /// A machine is switched on again.
    pub(super) fn mend(&mut self, host: usize) {
        if !std::mem::take(&mut self.hosts[host].is_lost) {
            return;
        }
        if host == 0 {
            return self.start_head();
        }
        self.hosts[host].will_start = true;
        self.at(self.now.plus(SECOND / 10), Event::Start(host));
    }

    fn cut_some(&mut self) {
        let share = 1 + self.random.below(4) as u64;
        let all: Vec<u64> = self.conns.keys().copied().collect();
        for conn in all {
            let is_own = self.conns.get(&conn).is_some_and(|one| self.daemons[one.daemon].is_own);
            if !is_own && self.random.chance(1, share) {
                self.cut(conn);
            }
        }
    }

    fn split(&mut self, word: &str) {
        let hosts = self.hosts.len();
        let share = 1 + self.random.below(6) as u64;
        let mut from: Vec<bool> = (0..hosts).map(|_| self.random.chance(1, 1 + share)).collect();
        let mut to: Vec<bool> = from.iter().map(|is_in| !is_in).collect();
        if word == "partial" {
            to = (0..hosts).map(|_| self.random.chance(1, 1 + share)).collect();
        }
        if word == "one-way" && self.random.chance(1, 2) {
            std::mem::swap(&mut from, &mut to);
        }
        let until = self.now.plus(self.some_time());
        // Some of the separated machines had connections with each other.
        for (host, is_in) in from.clone().into_iter().enumerate() {
            let Some(daemon) = self.hosts[host].daemon.filter(|_| is_in) else { continue };
            let id = self.daemons[daemon].id;
            for by in 0..self.daemons.len() {
                let one = &self.daemons[by];
                if one.runs && to[one.host] && one.peers.contains(&id) {
                    self.at(self.now.plus(SECOND / 2), Event::Suspect(id, by));
                }
            }
        }
        let now = self.now;
        self.splits.retain(|split| split.until > now);
        self.splits.push(Split { from, to, both_ways: word != "one-way", until });
    }

    fn stop_head(&mut self, is_told: bool) {
        if self.head.is_none() {
            return;
        }
        if !self.disk.is_idle() {
            self.saw("a head died while its disk was writing");
        }
        self.end_head(is_told);
        let pause = self.some_time();
        if is_told {
            self.at(self.now.plus(pause), Event::Head);
        } else {
            self.hosts[0].is_lost = true;
            self.at(self.now.plus(pause), Event::Mend(0));
        }
    }

    fn pause_head(&mut self) {
        let (Some(_), Some(own)) = (&self.head, self.hosts[0].daemon) else { return };
        let until = self.now.plus(self.some_time());
        self.head_stands = until;
        self.daemons[own].stands = until;
    }

    /// Ends all faults: processes that stood still continue, machines reach each other, and the head runs.
    pub(super) fn mend_all(&mut self) {
        self.splits.clear();
        self.late_until = Instant(0);
        if self.head_stands > self.now {
            self.head_stands = self.now;
        }
        let now = self.now;
        self.daemons.iter_mut().for_each(|daemon| daemon.stands = daemon.stands.min(now));
        (0..self.hosts.len()).for_each(|host| self.mend(host));
        self.start_head();
    }
}
