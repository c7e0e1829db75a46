//! Replaces the running program by the one that lies in its place now.
//!
//! The old master starts the new one with its listening sockets. When the new one serves, it says so,
//! and the old workers end; when it fails before, nothing has happened. Sockets are never closed in
//! between, so connections that wait in them are served by one or the other.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::addresses::{Addresses, Place};
use super::listeners::Listeners;
use crate::INHERIT_FLAG;
use crate::channel::{Channel, Message, Received};
use crate::scheme::Scheme;
use crate::worker::READY;

/// Time for the new master to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the new master is told. Listening sockets come with it, in the same order.
#[derive(Debug, Serialize, Deserialize)]
struct Legacy {
    addresses: Vec<LegacyAddress>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LegacyAddress {
    scheme: Scheme,
    requested: SocketAddr,
    sockets: usize,
}

/// The same of masters that had one address for each of two schemes; sockets with TLS come last.
#[derive(Debug, Deserialize)]
struct PairLegacy {
    requested: SocketAddr,
    #[serde(default)]
    tls: Option<TlsLegacy>,
}

#[derive(Debug, Deserialize)]
struct TlsLegacy {
    requested: SocketAddr,
    sockets: usize,
}

/// How the master before this one names the addresses that this one does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// By their positions.
    Positions,
    /// By their schemes: see [`PairLegacy`].
    Schemes,
}

impl Legacy {
    fn of(addresses: &Addresses) -> Legacy {
        let address = |listeners: &Listeners| {
            let Place { scheme, address } = listeners.requested();
            LegacyAddress { scheme, requested: address, sockets: listeners.count() }
        };
        Legacy { addresses: addresses.each().map(address).collect() }
    }

    /// Reads what a master has sent with `sockets` descriptors, or with the first of them.
    fn read(text: &[u8], sockets: usize) -> anyhow::Result<(Legacy, Dialect)> {
        if let Ok(legacy) = serde_json::from_slice(text) {
            return Ok((legacy, Dialect::Positions));
        }
        let pair: PairLegacy = serde_json::from_slice(text).context("read what it says")?;
        let of_tls = pair.tls.as_ref().map_or(0, |tls| tls.sockets);
        let plain = sockets.checked_sub(of_tls).context("listening sockets are missing")?;
        let http =
            LegacyAddress { scheme: Scheme::Http, requested: pair.requested, sockets: plain };
        let https = pair.tls.map(|tls| LegacyAddress {
            scheme: Scheme::Https,
            requested: tls.requested,
            sockets: tls.sockets,
        });
        let addresses = std::iter::once(http).chain(https).collect();
        Ok((Legacy { addresses }, Dialect::Schemes))
    }

    fn sockets(&self) -> usize {
        self.addresses.iter().map(|address| address.sockets).sum()
    }

    /// Takes over what came with it.
    fn accept(self, mut sockets: Vec<OwnedFd>) -> anyhow::Result<Addresses> {
        let mut addresses = Vec::new();
        for LegacyAddress { scheme, requested, sockets: count } in self.addresses {
            if count > sockets.len() {
                bail!("listening sockets are missing");
            }
            let rest = sockets.split_off(count);
            let own = std::mem::replace(&mut sockets, rest);
            let place = Place { scheme, address: requested };
            addresses.push(Listeners::inherited(place, own)?);
        }
        Ok(Addresses::new(addresses))
    }
}

/// A new master on its way.
#[derive(Debug)]
pub(crate) struct Upgrade {
    pub(crate) channel: Channel,
    pub(crate) until: Instant,
    child: Child,
}

impl Upgrade {
    pub(crate) fn start(
        program: &Path,
        words: &[OsString],
        addresses: &Addresses,
    ) -> anyhow::Result<Upgrade> {
        let (channel, far) = Channel::pair().context("make a channel")?;
        let legacy = serde_json::to_vec(&Legacy::of(addresses))?;
        let sockets: Vec<_> = addresses.sockets().map(|socket| socket.fd.as_fd()).collect();
        channel.send_all(&legacy, &sockets).context("pass the listening sockets on")?;
        let child = Command::new(program)
            .arg("web")
            .arg(INHERIT_FLAG)
            .args(words)
            .stdin(Stdio::from(far.into_fd()))
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Upgrade { channel, until: Instant::now() + PATIENCE, child })
    }

    /// Asks the new master to end as well.
    pub(crate) fn tell_to_end(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let told = pid.map_or(Err(Errno::SRCH), |pid| kill_process(pid, Signal::TERM));
        if let Err(error) = told {
            tracing::warn!(%error, "the new master cannot be told to end");
        }
    }

    /// Gives the new master up.
    pub(crate) fn kill(mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            tracing::warn!(%error, "the new master cannot be ended");
        }
    }
}

/// What a new master says when it serves: it does not serve the addresses at these positions, or of
/// these schemes, any more.
pub(crate) fn serving(left: &[usize], schemes: &[Scheme], dialect: Dialect) -> Vec<u8> {
    let names: Vec<String> = match dialect {
        Dialect::Positions => left.iter().map(usize::to_string).collect(),
        Dialect::Schemes => schemes.iter().map(|scheme| scheme.name().to_owned()).collect(),
    };
    let names = names.iter().flat_map(|name| [b" ", name.as_bytes()].concat());
    READY.iter().copied().chain(names).collect()
}

/// The positions in it; none if it says something else.
pub(crate) fn left(words: &[u8]) -> Option<Vec<usize>> {
    let mut words = std::str::from_utf8(words).ok()?.split(' ');
    words.next().filter(|first| first.as_bytes() == READY)?;
    words.map(|word| word.parse().ok()).collect()
}

/// The new master's side: the old one, and its listening sockets.
pub(crate) fn inherit() -> anyhow::Result<Parent> {
    let parent = std::io::stdin().as_fd().try_clone_to_owned().context("open standard input")?;
    let channel = Channel::from_fd(parent);
    let Received::Message(Message { bytes, mut descriptors }) =
        channel.wait().context("wait for the master before this one")?
    else {
        bail!("the master before this one is gone");
    };
    let (legacy, dialect) = Legacy::read(&bytes, descriptors.len())?;
    channel.wait_for_rest(&mut descriptors, legacy.sockets())?;
    Ok(Parent { channel, dialect, addresses: legacy.accept(descriptors)? })
}

/// The master that this one replaces.
#[derive(Debug)]
pub(crate) struct Parent {
    pub(crate) channel: Channel,
    pub(crate) dialect: Dialect,
    pub(crate) addresses: Addresses,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// What a new master makes of the sockets and words of another.
    fn pass_on(addresses: &Addresses) -> Addresses {
        let text = serde_json::to_vec(&Legacy::of(addresses)).unwrap();
        let sockets: Vec<OwnedFd> =
            addresses.sockets().map(|socket| socket.fd.try_clone().unwrap()).collect();
        let (legacy, dialect) = Legacy::read(&text, sockets.len()).unwrap();
        assert_eq!((legacy.sockets(), dialect), (sockets.len(), Dialect::Positions));
        legacy.accept(sockets).unwrap()
    }

    #[test]
    fn sockets_keep_their_addresses() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config { workers: 3, ..Config::default() };
        for schemes in [&[Scheme::Http][..], &Scheme::ALL, &[Scheme::Https, Scheme::Http]] {
            let wanted: Vec<Place> =
                schemes.iter().map(|&scheme| Place { scheme, address: any }).collect();
            let before = Addresses::begin(Addresses::default(), &wanted, &config).unwrap();
            let after = pass_on(&before);
            let look = |addresses: &Addresses| -> Vec<_> {
                addresses.each().map(|one| (one.requested(), one.local(), one.count())).collect()
            };
            assert_eq!(look(&after), look(&before));
            assert!(after.left_by(&wanted).is_empty());
        }
    }

    #[test]
    fn a_new_master_says_what_it_has_left() {
        for positions in [&[][..], &[0], &[1, 12]] {
            let words = serving(positions, &[Scheme::Http], Dialect::Positions);
            assert_eq!(left(&words).as_deref(), Some(positions));
        }
        assert_eq!(serving(&[], &[], Dialect::Positions), READY);
        assert_eq!((left(b"read"), left(b"ready gopher"), left(b"")), (None, None, None));
        let schemes = [Scheme::Http, Scheme::Https];
        assert_eq!(serving(&[0, 1], &schemes, Dialect::Schemes), b"ready http https");
    }

    #[test]
    fn words_of_older_masters_are_understood() {
        let read = |text: &str, sockets| Legacy::read(text.as_bytes(), sockets);
        let (legacy, dialect) = read(r#"{"requested":"127.0.0.1:80"}"#, 2).unwrap();
        assert_eq!((legacy.addresses.len(), legacy.sockets()), (1, 2));
        assert_eq!(dialect, Dialect::Schemes);
        assert!(legacy.accept(Vec::new()).is_err(), "they are missing");
        let tls = r#"{"requested":"127.0.0.1:80","tls":{"requested":"[::]:443","sockets":2}}"#;
        let (legacy, _) = read(tls, 3).unwrap();
        let found: Vec<_> = legacy.addresses.iter().map(|one| (one.scheme, one.sockets)).collect();
        assert_eq!(found, [(Scheme::Http, 1), (Scheme::Https, 2)]);
        assert!(read(tls, 1).is_err());
    }
}
