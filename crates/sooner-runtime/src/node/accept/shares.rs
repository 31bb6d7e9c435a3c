//! Which unfinished handshake goes when one more comes. It knows no socket and no clock.
//!
//! A handshake of ours is over in milliseconds; one that stops half-way keeps its place for seconds. So no
//! newcomer is turned away: the oldest handshake makes room. It is one of the newcomer's address if that has
//! its share, so that many connections of one address take nothing from others. Addresses from which a peer
//! has proved to be of the cluster have room of their own: no number of other addresses takes it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

use sooner_wire::limits::{HANDSHAKES_OF_ADDRESS_MAX, PROVEN_MAX};

/// Why an unfinished handshake made room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Crowd {
    /// Its address had its full share.
    #[error("it made room for a later one from this address, of which {0} had not proved who they are")]
    Address(usize),
    /// There were too many in all.
    #[error("it made room for another one: {0} had not proved who they are")]
    All(usize),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Shares {
    /// Addresses from which a peer has proved to be of the cluster, the latest last.
    proven: VecDeque<IpAddr>,
}

impl Shares {
    /// A peer at this address has proved to be of the cluster.
    pub fn on_proven(&mut self, address: IpAddr) {
        let address = network(address);
        self.proven.retain(|proven| *proven != address);
        if self.proven.len() == PROVEN_MAX {
            self.proven.pop_front();
        }
        self.proven.push_back(address);
    }

    /// Which handshake must make room for one of `newcomer`, if any. `max` may be unfinished at a time, and
    /// as many again at addresses from which a peer has proved who it is.
    pub fn leaving(
        &self,
        unfinished: impl Iterator<Item = (u64, IpAddr)>,
        newcomer: IpAddr,
        max: usize,
    ) -> Option<(u64, Crowd)> {
        let newcomer = network(newcomer);
        let room = self.proven.contains(&newcomer);
        let mut all: Vec<(u64, IpAddr)> = unfinished
            .map(|(token, address)| (token, network(address)))
            .filter(|(_, address)| self.proven.contains(address) == room)
            .collect();
        // Tokens are given in turn.
        all.sort_unstable_by_key(|(token, _)| *token);
        let of = |one: IpAddr| all.iter().filter(|(_, address)| *address == one).count();
        let oldest_of =
            |one: IpAddr| all.iter().find(|(_, address)| *address == one).map(|(token, _)| *token);
        let own = of(newcomer);
        if own >= HANDSHAKES_OF_ADDRESS_MAX.min(max) {
            return Some((oldest_of(newcomer)?, Crowd::Address(own)));
        }
        if all.len() < max {
            return None;
        }
        // The oldest of the address that has most: of equals, the one that came first.
        let mut most = (0, newcomer);
        for (_, address) in &all {
            let count = of(*address);
            if count > most.0 {
                most = (count, *address);
            }
        }
        Some((oldest_of(most.1)?, Crowd::All(all.len())))
    }
}

/// What counts as one address: an owner of one address of version 6 has 2^64 of them, as a rule.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() >> 64 << 64)),
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 2 * HANDSHAKES_OF_ADDRESS_MAX;

    fn address(last: usize) -> IpAddr {
        IpAddr::from([10, 0, (last >> 8) as u8, last as u8])
    }

    /// Connections come from these addresses, one after the other; who is left, and how many had to go.
    fn come(shares: &Shares, from: impl IntoIterator<Item = IpAddr>) -> (Vec<(u64, IpAddr)>, usize) {
        let (mut here, mut gone) = (Vec::new(), 0);
        for (token, address) in from.into_iter().enumerate() {
            if let Some((leaving, _)) = shares.leaving(here.iter().copied(), address, MAX) {
                here.retain(|(token, _)| *token != leaving);
                gone += 1;
            }
            here.push((token as u64, address));
        }
        (here, gone)
    }

    #[test]
    fn one_address_takes_no_more_than_its_share() {
        let shares = Shares::default();
        let (here, gone) = come(&shares, (0..1000).map(|_| address(1)));
        assert_eq!((here.len(), gone), (HANDSHAKES_OF_ADDRESS_MAX, 1000 - HANDSHAKES_OF_ADDRESS_MAX));
        // The latest of them are there.
        assert_eq!(here[0].0, 1000 - HANDSHAKES_OF_ADDRESS_MAX as u64);
        assert_eq!(shares.leaving(here.into_iter(), address(2), MAX), None);
    }

    #[test]
    fn many_addresses_take_from_each_other() {
        let shares = Shares::default();
        let crowd = (0..500).map(|number| address(number % 100));
        let (here, _) = come(&shares, crowd.chain([address(777)]));
        assert_eq!(here.len(), MAX);
        assert_eq!(here.last().expect("the latest").1, address(777));
        // A single one is the last to go: those who have more go first.
        let few = [address(200)].into_iter().chain((0..300).map(|number| address(1 + number % 20)));
        let (here, _) = come(&shares, few);
        assert_eq!(here[0], (0, address(200)));
    }

    #[test]
    fn who_has_been_here_before_has_room_of_its_own() {
        let mut shares = Shares::default();
        shares.on_proven(address(1));
        shares.on_proven(address(2));
        let crowd = (0..500).map(|number| address(3 + number));
        let (here, _) = come(&shares, [address(1), address(2)].into_iter().chain(crowd));
        assert_eq!(here[..2], [(0, address(1)), (1, address(2))]);
        assert_eq!(here.len(), MAX + 2);
        // A stranger at such an address takes no more than the share of that.
        let (here, _) = come(&shares, [address(1)].into_iter().chain((0..500).map(|_| address(2))));
        assert_eq!(here[0], (0, address(1)));
        assert_eq!(here.len(), HANDSHAKES_OF_ADDRESS_MAX + 1);
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let shares = Shares::default();
        let six = |number: u128| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | number));
        let (here, _) = come(&shares, (0..500).map(six));
        assert_eq!(here.len(), HANDSHAKES_OF_ADDRESS_MAX);
        let mapped = |_| IpAddr::V6(std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        let (here, _) = come(&shares, (0..500).map(mapped).chain([address(2)]));
        assert_eq!(here.len(), HANDSHAKES_OF_ADDRESS_MAX + 1);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut shares = Shares::default();
        (0..2 * PROVEN_MAX).for_each(|number| shares.on_proven(address(number)));
        assert_eq!(shares.proven.len(), PROVEN_MAX);
    }
}
