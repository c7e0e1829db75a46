//! The served addresses. A change of the options may add, move or remove one without affecting the
//! others.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, bail};

use super::listeners::Listeners;
use crate::config::Config;
use crate::scheme::Scheme;

/// A configured address. Port 0 is any free one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestedAddress {
    pub(crate) scheme: Scheme,
    pub(crate) address: SocketAddr,
}

/// Returns the configured addresses in order. Blocks while names are resolved.
pub(crate) fn places(config: &Config) -> anyhow::Result<Vec<RequestedAddress>> {
    let mut places: Vec<RequestedAddress> = Vec::new();
    for scheme in Scheme::ALL {
        for named in config.addresses(scheme) {
            let option = Config::address_option(scheme);
            let address = named.resolve().with_context(|| option)?;
            if address.port() != 0 && places.iter().any(|place| place.address == address) {
                bail!("{option}: {address} is given twice");
            }
            places.push(RequestedAddress { scheme, address });
        }
    }
    Ok(places)
}

/// Number of sockets of each address, by the address number.
pub(crate) type Counts = Vec<(u32, usize)>;

/// A listening socket with its position among those of its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Socket<'a> {
    pub(crate) scheme: Scheme,
    pub(crate) address: u32,
    pub(crate) index: usize,
    pub(crate) fd: &'a OwnedFd,
}

/// An address of which workers receive the first `count` sockets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share<'a> {
    pub(crate) listeners: &'a Listeners,
    pub(crate) count: usize,
}

/// Listening sockets by address.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Vec<Listeners>);

impl Addresses {
    pub(crate) fn new(listeners: Vec<Listeners>) -> Addresses {
        Addresses(listeners)
    }

    /// Returns for each of `wanted` the position of the existing address that serves it, if any.
    /// None serves two.
    fn matching(&self, wanted: &[RequestedAddress]) -> Vec<Option<usize>> {
        let mut taken = vec![false; self.0.len()];
        let mut find = |place: &RequestedAddress| {
            let found = (0..self.0.len()).find(|&at| !taken[at] && self.0[at].serves(*place))?;
            taken[found] = true;
            Some(found)
        };
        wanted.iter().map(&mut find).collect()
    }

    /// Returns the positions of the addresses that serve none of `wanted`.
    pub(crate) fn left_by(&self, wanted: &[RequestedAddress]) -> Vec<usize> {
        let kept = self.matching(wanted);
        (0..self.0.len()).filter(|at| !kept.contains(&Some(*at))).collect()
    }

    /// Listens at `wanted`, reusing matching sockets of another master.
    pub(crate) fn begin(
        inherited: Addresses,
        wanted: &[RequestedAddress],
        config: &Config,
    ) -> anyhow::Result<Addresses> {
        let matching = inherited.matching(wanted);
        let mut inherited: Vec<Option<Listeners>> = inherited.0.into_iter().map(Some).collect();
        let mut addresses = Addresses::default();
        for (place, at) in wanted.iter().zip(matching) {
            if let Some(mut listeners) = at.and_then(|at| inherited[at].take()) {
                listeners.adapt(config)?;
                addresses.0.push(listeners);
                continue;
            }
            let bound = Listeners::bind(*place, config)?;
            // Clients that connect before the workers are ready wait in the backlog.
            bound.open(config)?;
            addresses.0.push(bound);
        }
        Ok(addresses)
    }

    /// Binds the missing sockets for `wanted`, without listening. Closes nothing, because
    /// connections may be waiting. Returns the addresses that replace others, or are new.
    pub(crate) fn adapt(
        &mut self,
        wanted: &[RequestedAddress],
        config: &Config,
    ) -> anyhow::Result<Addresses> {
        let mut moved = Addresses::default();
        for (place, at) in wanted.iter().zip(self.matching(wanted)) {
            match at {
                Some(at) => self.0[at].adapt(config)?,
                None => moved.0.push(Listeners::bind(*place, config)?),
            }
        }
        Ok(moved)
    }

    /// Returns the sockets for `wanted`, assuming that `moved` is in place.
    pub(crate) fn planned<'a>(
        &'a self,
        moved: &'a Addresses,
        wanted: &[RequestedAddress],
    ) -> Vec<Share<'a>> {
        let mut moved = moved.0.iter();
        let next = |at: Option<usize>| at.map_or_else(|| moved.next(), |at| self.0.get(at));
        let planned = self.matching(wanted).into_iter().filter_map(next);
        planned.map(|listeners| Share { listeners, count: usize::MAX }).collect()
    }

    /// Puts `moved` in place, and returns the addresses that are not served any longer.
    pub(crate) fn replace(&mut self, moved: Addresses, wanted: &[RequestedAddress]) -> Addresses {
        let matching = self.matching(wanted);
        let mut before: Vec<Option<Listeners>> =
            std::mem::take(&mut self.0).into_iter().map(Some).collect();
        let mut moved = moved.0.into_iter();
        let next = |at: Option<usize>| at.map_or_else(|| moved.next(), |at| before[at].take());
        self.0 = matching.into_iter().filter_map(next).collect();
        Addresses(before.into_iter().flatten().collect())
    }

    pub(crate) fn open(&self, config: &Config) -> anyhow::Result<()> {
        self.0.iter().try_for_each(|listeners| listeners.open(config))
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Listeners> {
        self.0.iter()
    }

    /// Returns all sockets of all addresses.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = Socket<'_>> {
        self.0.iter().flat_map(|listeners| listeners.sockets(usize::MAX))
    }

    /// Returns all addresses with their number of sockets according to `counts`.
    pub(crate) fn shares(&self, counts: &Counts) -> Vec<Share<'_>> {
        let count = |listeners: &Listeners| count_of(counts, listeners.number());
        self.0.iter().map(|listeners| Share { listeners, count: count(listeners) }).collect()
    }

    /// Returns the sockets included in `counts`; all of an address that it does not contain.
    pub(crate) fn counted(&self, counts: &Counts) -> impl Iterator<Item = Socket<'_>> {
        self.0.iter().flat_map(|listeners| listeners.sockets(count_of(counts, listeners.number())))
    }

    pub(crate) fn socket(&self, address: u32, index: usize) -> Option<Socket<'_>> {
        self.sockets().find(|socket| (socket.address, socket.index) == (address, index))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.iter().map(|listeners| (listeners.number(), listeners.count())).collect()
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.iter().map(Listeners::number).collect()
    }

    /// Removes and returns the sockets not included in `counts`.
    pub(crate) fn cut(&mut self, counts: &Counts) -> Vec<(Scheme, OwnedFd)> {
        let mut cut = Vec::new();
        for listeners in &mut self.0 {
            let (scheme, count) = (listeners.scheme(), count_of(counts, listeners.number()));
            cut.extend(listeners.cut(count).into_iter().map(|socket| (scheme, socket)));
        }
        cut
    }

    pub(crate) fn close(&mut self) {
        self.0.clear();
    }
}

fn count_of(counts: &Counts, address: u32) -> usize {
    counts.iter().find(|(number, _)| *number == address).map_or(usize::MAX, |(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Accept;

    fn config(workers: usize) -> Config {
        Config { workers, accept: Accept::Reuseport, ..Config::default() }
    }

    fn place(scheme: Scheme, address: &str) -> RequestedAddress {
        RequestedAddress { scheme, address: address.parse().unwrap() }
    }

    fn any(scheme: Scheme) -> RequestedAddress {
        place(scheme, "127.0.0.1:0")
    }

    /// Returns the number of sockets of each address.
    fn lengths(addresses: &Addresses) -> Vec<usize> {
        addresses.each().map(Listeners::count).collect()
    }

    fn locals(addresses: &Addresses) -> Vec<SocketAddr> {
        addresses.each().map(Listeners::local).collect()
    }

    #[test]
    fn an_address_appears_and_vanishes_while_others_stay() {
        let plain = [any(Scheme::Http)];
        let more = [any(Scheme::Http), any(Scheme::Http), any(Scheme::Https), any(Scheme::Status)];
        let mut addresses = Addresses::begin(Addresses::default(), &plain, &config(2)).unwrap();
        assert_eq!(lengths(&addresses), [2]);
        let first = locals(&addresses)[0];

        let moved = addresses.adapt(&more, &config(3)).unwrap();
        let planned: Vec<usize> =
            addresses.planned(&moved, &more).iter().map(|one| one.listeners.count()).collect();
        // All workers share the operator's socket.
        assert_eq!(planned, [3, 3, 3, 1]);
        let before = vec![(addresses.numbers()[0], 2)];
        assert_eq!(addresses.counted(&before).count(), 2);
        assert!(lengths(&addresses.replace(moved, &more)).is_empty());
        assert_eq!(lengths(&addresses), [3, 3, 3, 1]);
        assert_eq!(locals(&addresses)[0], first);
        assert_ne!(locals(&addresses)[1], first, "an address serves only one entry");
        assert_eq!(addresses.sockets().count(), 10);

        let moved = addresses.adapt(&plain, &config(3)).unwrap();
        assert!(lengths(&moved).is_empty());
        let gone = addresses.replace(moved, &plain);
        assert_eq!((lengths(&gone), lengths(&addresses)), (vec![3, 3, 1], vec![3]));
        assert_eq!(addresses.cut(&before).len(), 1);
        assert_eq!(lengths(&addresses), [2]);
    }

    #[test]
    fn an_address_moves_while_others_stay() {
        let before = [any(Scheme::Http), any(Scheme::Https)];
        let after = [before[0], place(Scheme::Https, "127.0.0.2:0")];
        let one = config(1);
        let mut addresses = Addresses::begin(Addresses::default(), &before, &one).unwrap();
        let was = locals(&addresses);
        let moved = addresses.adapt(&after, &one).unwrap();
        assert_eq!(lengths(&moved), [1]);
        let gone = addresses.replace(moved, &after);
        assert_eq!((locals(&gone)[0], locals(&addresses)[0]), (was[1], was[0]));
        assert_eq!(locals(&addresses)[1].ip(), after[1].address.ip());
        // Sockets of another master are kept if they are still required.
        assert!(addresses.left_by(&after).is_empty());
        assert_eq!(addresses.left_by(&before), [1]);
        assert_eq!(addresses.left_by(&after[1..]), [0]);
        let next = Addresses::begin(addresses, &before, &one).unwrap();
        assert_eq!(locals(&next)[0], was[0]);
        assert_eq!(locals(&next)[1].ip(), was[1].ip());
    }

    #[test]
    fn names_are_looked_up_and_no_address_is_given_twice() {
        let address = |text: &str| text.parse().unwrap();
        let config = Config {
            listen: vec![address("localhost:0"), address("[::1]:9")],
            ..Config::default()
        };
        let found = places(&config).unwrap();
        assert_eq!(found, [any(Scheme::Http), place(Scheme::Http, "[::1]:9")]);
        let config = Config { status: Some(address("[::1]:9")), ..config };
        let error = places(&config).unwrap_err().to_string();
        assert_eq!(error, "status: [::1]:9 is given twice");
        let config = Config { listen: vec![address("no-such.invalid:1")], ..Config::default() };
        let error = format!("{:#}", places(&config).unwrap_err());
        assert!(error.starts_with("listen: could not resolve host"), "{error}");
    }
}
