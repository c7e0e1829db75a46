//! The addresses that are served, plain and with TLS, and how they change with the options: one may
//! appear, move or vanish while the other stays.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::listeners::Listeners;
use crate::config::Config;
use crate::scheme::Scheme;

/// How many sockets each scheme has, by [`Scheme::index`].
pub(crate) type Counts = [usize; 2];

/// Listening sockets by scheme. There are none for a scheme that is not served.
#[derive(Debug, Default)]
pub(crate) struct Addresses([Option<Listeners>; 2]);

/// Sockets of all schemes, by [`Scheme::index`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sockets<'a>([&'a [OwnedFd]; 2]);

impl<'a> Sockets<'a> {
    pub(crate) fn of(self, scheme: Scheme) -> &'a [OwnedFd] {
        self.0[scheme.index()]
    }

    /// Each one with its scheme and its position there.
    pub(crate) fn each(self) -> impl Iterator<Item = (Scheme, usize, &'a OwnedFd)> {
        Scheme::ALL.into_iter().flat_map(move |scheme| {
            let sockets = self.of(scheme).iter().enumerate();
            sockets.map(move |(index, socket)| (scheme, index, socket))
        })
    }
}

impl Addresses {
    pub(crate) fn new(http: Option<Listeners>, https: Option<Listeners>) -> Addresses {
        Addresses([http, https])
    }

    /// The schemes whose addresses here these options do not serve.
    pub(crate) fn left_by(&self, config: &Config) -> Vec<Scheme> {
        let is_left = |scheme: &Scheme| {
            let wanted = config.address(*scheme);
            self.of(*scheme).is_some_and(|there| !wanted.is_some_and(|one| there.serves(one)))
        };
        Scheme::ALL.into_iter().filter(is_left).collect()
    }

    /// Listens where the options say, with those sockets of another master that are of use.
    pub(crate) fn begin(inherited: Addresses, config: &Config) -> anyhow::Result<Addresses> {
        let mut addresses = Addresses::default();
        for (scheme, inherited) in Scheme::ALL.into_iter().zip(inherited.0) {
            let Some(wanted) = config.address(scheme) else { continue };
            addresses.0[scheme.index()] = Some(match inherited {
                Some(mut inherited) if inherited.serves(wanted) => {
                    inherited.adapt(config)?;
                    inherited
                }
                _ => {
                    let bound = Listeners::bind(wanted, config)?;
                    // Whoever comes before the workers are ready waits for them.
                    bound.open(config)?;
                    bound
                }
            });
        }
        Ok(addresses)
    }

    /// Binds what is missing for these options, without listening. Nothing is closed: connections may
    /// wait in it. Gives the addresses that take the place of others, or are new.
    pub(crate) fn adapt(&mut self, config: &Config) -> anyhow::Result<Addresses> {
        let mut moved = Addresses::default();
        for scheme in Scheme::ALL {
            let Some(wanted) = config.address(scheme) else { continue };
            match &mut self.0[scheme.index()] {
                Some(there) if there.serves(wanted) => there.adapt(config)?,
                _ => moved.0[scheme.index()] = Some(Listeners::bind(wanted, config)?),
            }
        }
        Ok(moved)
    }

    /// What is served when `moved` has come into its place.
    pub(crate) fn planned<'a>(&'a self, moved: &'a Addresses, config: &Config) -> Sockets<'a> {
        let of = |scheme| self.next(moved, config, scheme).map(Listeners::all).unwrap_or_default();
        Sockets(Scheme::ALL.map(of))
    }

    fn next<'a>(
        &'a self,
        moved: &'a Addresses,
        config: &Config,
        scheme: Scheme,
    ) -> Option<&'a Listeners> {
        config.address(scheme)?;
        moved.of(scheme).or(self.of(scheme))
    }

    /// Has all of them listen that are planned, those that do already with the backlog of these options.
    pub(crate) fn open_planned(&self, moved: &Addresses, config: &Config) -> anyhow::Result<()> {
        let mut planned =
            Scheme::ALL.into_iter().filter_map(|scheme| self.next(moved, config, scheme));
        planned.try_for_each(|listeners| listeners.open(config))
    }

    /// Brings `moved` into its place, and gives those that are not served any more.
    pub(crate) fn replace(&mut self, mut moved: Addresses, config: &Config) -> Addresses {
        let mut gone = Addresses::default();
        for scheme in Scheme::ALL {
            let next = moved.0[scheme.index()].take();
            if next.is_some() || config.address(scheme).is_none() {
                gone.0[scheme.index()] = std::mem::replace(&mut self.0[scheme.index()], next);
            }
        }
        gone
    }

    pub(crate) fn open(&self, config: &Config) -> anyhow::Result<()> {
        self.0.iter().flatten().try_for_each(|listeners| listeners.open(config))
    }

    pub(crate) fn of(&self, scheme: Scheme) -> Option<&Listeners> {
        self.0[scheme.index()].as_ref()
    }

    /// The real address of a scheme.
    pub(crate) fn local(&self, scheme: Scheme) -> Option<SocketAddr> {
        self.of(scheme).map(Listeners::local)
    }

    /// The schemes that are served.
    pub(crate) fn schemes(&self) -> Vec<Scheme> {
        Scheme::ALL.into_iter().filter(|scheme| self.of(*scheme).is_some()).collect()
    }

    pub(crate) fn all(&self) -> Sockets<'_> {
        self.first([usize::MAX; 2])
    }

    /// The first ones of each; all of them if there are fewer.
    pub(crate) fn first(&self, counts: Counts) -> Sockets<'_> {
        let of = |scheme: Scheme| {
            let listeners = self.of(scheme);
            listeners.map(|one| one.first(counts[scheme.index()])).unwrap_or_default()
        };
        Sockets(Scheme::ALL.map(of))
    }

    pub(crate) fn counts(&self) -> Counts {
        Scheme::ALL.map(|scheme| self.all().of(scheme).len())
    }

    /// Takes out the sockets behind the first ones of each.
    pub(crate) fn cut(&mut self, counts: Counts) -> Vec<(Scheme, OwnedFd)> {
        let mut cut = Vec::new();
        for scheme in Scheme::ALL {
            if let Some(listeners) = &mut self.0[scheme.index()] {
                let behind = listeners.cut(counts[scheme.index()]);
                cut.extend(behind.into_iter().map(|socket| (scheme, socket)));
            }
        }
        cut
    }

    pub(crate) fn close(&mut self) {
        self.0.iter_mut().flatten().for_each(Listeners::close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Accept;

    fn config(workers: usize, has_tls: bool) -> Config {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Config {
            listen: any,
            listen_tls: has_tls.then_some(any),
            workers,
            accept: Accept::Reuseport,
            ..Config::default()
        }
    }

    fn lengths(sockets: Sockets<'_>) -> Counts {
        Scheme::ALL.map(|scheme| sockets.of(scheme).len())
    }

    #[test]
    fn an_address_appears_and_vanishes_beside_the_other() {
        let (plain, both) = (config(2, false), config(3, true));
        let mut addresses = Addresses::begin(Addresses::default(), &plain).unwrap();
        assert_eq!((addresses.counts(), addresses.schemes()), ([2, 0], vec![Scheme::Http]));
        let http = addresses.local(Scheme::Http);

        let moved = addresses.adapt(&both).unwrap();
        assert_eq!(lengths(addresses.planned(&moved, &both)), [3, 3]);
        addresses.open_planned(&moved, &both).unwrap();
        assert!(addresses.replace(moved, &both).schemes().is_empty());
        assert_eq!(addresses.counts(), [3, 3]);
        assert_eq!(addresses.local(Scheme::Http), http);
        assert_eq!(addresses.all().each().count(), 6);
        assert_eq!(lengths(addresses.first([1, 2])), [1, 2]);

        let moved = addresses.adapt(&plain).unwrap();
        assert!(moved.schemes().is_empty());
        assert_eq!(lengths(addresses.planned(&moved, &plain)), [3, 0]);
        let gone = addresses.replace(moved, &plain);
        assert_eq!((gone.schemes(), gone.counts()), (vec![Scheme::Https], [0, 3]));
        assert_eq!(addresses.cut([1, 0]).len(), 2);
        assert_eq!(addresses.counts(), [1, 0]);
    }

    #[test]
    fn an_address_moves_beside_the_other() {
        let before = config(1, true);
        let mut addresses = Addresses::begin(Addresses::default(), &before).unwrap();
        let (http, https) = (addresses.local(Scheme::Http), addresses.local(Scheme::Https));
        let elsewhere = SocketAddr::from(([127, 0, 0, 2], 0));
        let after = Config { listen_tls: Some(elsewhere), ..before.clone() };
        let moved = addresses.adapt(&after).unwrap();
        assert_eq!(moved.schemes(), [Scheme::Https]);
        let gone = addresses.replace(moved, &after);
        assert_eq!((gone.local(Scheme::Https), addresses.local(Scheme::Http)), (https, http));
        assert_eq!(addresses.local(Scheme::Https).unwrap().ip(), elsewhere.ip());
        // What another master passes on is kept where it is still wanted.
        assert_eq!(addresses.left_by(&after), []);
        assert_eq!(addresses.left_by(&before), [Scheme::Https]);
        assert_eq!(addresses.left_by(&config(1, false)), [Scheme::Https]);
        let next = Addresses::begin(addresses, &before).unwrap();
        assert_eq!(next.local(Scheme::Http), http);
        assert_eq!(next.local(Scheme::Https).unwrap().ip(), https.unwrap().ip());
    }
}
