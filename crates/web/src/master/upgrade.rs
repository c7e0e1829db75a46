//! Replaces the running program with the current executable.
//!
//! The old master passes its listening sockets to the new one. When the new one is serving, it
//! notifies the old one, whose workers then end; if the new one fails earlier, nothing changes.
//! Sockets stay open throughout, so waiting connections are served by one or the other.

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

use super::addresses::{Addresses, RequestedAddress};
use super::listeners::Listeners;
use crate::INHERIT_FLAG;
use crate::channel::{Channel, Message, Received};
use crate::scheme::Scheme;
use crate::worker::READY;

/// Limit for the new master to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Message to the new master. The listening sockets are attached, in the same order.
#[derive(Debug, Serialize, Deserialize)]
struct Handover {
    addresses: Vec<HandoverAddress>,
}

#[derive(Debug, Serialize, Deserialize)]
struct HandoverAddress {
    scheme: Scheme,
    requested: SocketAddr,
    sockets: usize,
}

/// Format of earlier masters, with one address for each of two schemes; TLS sockets are last.
#[derive(Debug, Deserialize)]
struct PairHandover {
    requested: SocketAddr,
    #[serde(default)]
    tls: Option<TlsHandover>,
}

#[derive(Debug, Deserialize)]
struct TlsHandover {
    requested: SocketAddr,
    sockets: usize,
}

/// How the previous master identifies the addresses that this one does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// By their positions.
    Positions,
    /// By their schemes: see [`PairHandover`].
    Schemes,
}

impl Handover {
    fn of(addresses: &Addresses) -> Handover {
        let address = |listeners: &Listeners| {
            let RequestedAddress { scheme, address } = listeners.requested();
            HandoverAddress { scheme, requested: address, sockets: listeners.count() }
        };
        Handover { addresses: addresses.each().map(address).collect() }
    }

    /// Parses the message of a master that sent `sockets` descriptors with it.
    fn read(text: &[u8], sockets: usize) -> anyhow::Result<(Handover, Dialect)> {
        if let Ok(handover) = serde_json::from_slice(text) {
            return Ok((handover, Dialect::Positions));
        }
        let pair: PairHandover =
            serde_json::from_slice(text).context("could not parse its message")?;
        let of_tls = pair.tls.as_ref().map_or(0, |tls| tls.sockets);
        let plain = sockets.checked_sub(of_tls).context("missing listening sockets")?;
        let http =
            HandoverAddress { scheme: Scheme::Http, requested: pair.requested, sockets: plain };
        let https = pair.tls.map(|tls| HandoverAddress {
            scheme: Scheme::Https,
            requested: tls.requested,
            sockets: tls.sockets,
        });
        let addresses = std::iter::once(http).chain(https).collect();
        Ok((Handover { addresses }, Dialect::Schemes))
    }

    fn sockets(&self) -> usize {
        self.addresses.iter().map(|address| address.sockets).sum()
    }

    /// Takes over the attached sockets.
    fn accept(self, mut sockets: Vec<OwnedFd>) -> anyhow::Result<Addresses> {
        let mut addresses = Vec::new();
        for HandoverAddress { scheme, requested, sockets: count } in self.addresses {
            if count > sockets.len() {
                bail!("missing listening sockets");
            }
            let rest = sockets.split_off(count);
            let own = std::mem::replace(&mut sockets, rest);
            let place = RequestedAddress { scheme, address: requested };
            addresses.push(Listeners::inherited(place, own)?);
        }
        Ok(Addresses::new(addresses))
    }
}

/// A new master that is starting.
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
        let (channel, far) = Channel::pair().context("could not create a channel")?;
        let handover = serde_json::to_vec(&Handover::of(addresses))?;
        let sockets: Vec<_> = addresses.sockets().map(|socket| socket.fd.as_fd()).collect();
        channel.send_all(&handover, &sockets).context("could not pass on the listening sockets")?;
        let child = Command::new(program)
            .arg("web")
            .arg(INHERIT_FLAG)
            .args(words)
            .stdin(Stdio::from(far.into_fd()))
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Upgrade { channel, until: Instant::now() + READY_TIMEOUT, child })
    }

    /// Orders the new master to end too.
    pub(crate) fn send_end(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let told = pid.map_or(Err(Errno::SRCH), |pid| kill_process(pid, Signal::TERM));
        if let Err(error) = told {
            tracing::warn!(%error, "could not send termination to the new master");
        }
    }

    /// Kills the new master.
    pub(crate) fn kill(mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            tracing::warn!(%error, "could not kill the new master");
        }
    }
}

/// Formats the readiness message of a new master, with the addresses that it does not serve any
/// longer, as positions or schemes.
pub(crate) fn serving(left: &[usize], schemes: &[Scheme], dialect: Dialect) -> Vec<u8> {
    let names: Vec<String> = match dialect {
        Dialect::Positions => left.iter().map(usize::to_string).collect(),
        Dialect::Schemes => schemes.iter().map(|scheme| scheme.name().to_owned()).collect(),
    };
    let names = names.iter().flat_map(|name| [b" ", name.as_bytes()].concat());
    READY.iter().copied().chain(names).collect()
}

/// Parses the positions; `None` if it is another message.
pub(crate) fn left(words: &[u8]) -> Option<Vec<usize>> {
    let mut words = std::str::from_utf8(words).ok()?.split(' ');
    words.next().filter(|first| first.as_bytes() == READY)?;
    words.map(|word| word.parse().ok()).collect()
}

/// Receives the listening sockets from the old master.
pub(crate) fn inherit() -> anyhow::Result<Parent> {
    let parent =
        std::io::stdin().as_fd().try_clone_to_owned().context("could not open standard input")?;
    let channel = Channel::from_fd(parent);
    let Received::Message(Message { bytes, mut descriptors }) =
        channel.wait().context("could not receive from the previous master")?
    else {
        bail!("the previous master exited");
    };
    let (handover, dialect) = Handover::read(&bytes, descriptors.len())?;
    channel.wait_for_rest(&mut descriptors, handover.sockets())?;
    Ok(Parent { channel, dialect, addresses: handover.accept(descriptors)? })
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

    /// Returns what a new master reconstructs from the sockets and the message.
    fn pass_on(addresses: &Addresses) -> Addresses {
        let text = serde_json::to_vec(&Handover::of(addresses)).unwrap();
        let sockets: Vec<OwnedFd> =
            addresses.sockets().map(|socket| socket.fd.try_clone().unwrap()).collect();
        let (handover, dialect) = Handover::read(&text, sockets.len()).unwrap();
        assert_eq!((handover.sockets(), dialect), (sockets.len(), Dialect::Positions));
        handover.accept(sockets).unwrap()
    }

    #[test]
    fn sockets_keep_their_addresses() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config { workers: 3, ..Config::default() };
        for schemes in [&[Scheme::Http][..], &Scheme::ALL, &[Scheme::Https, Scheme::Http]] {
            let wanted: Vec<RequestedAddress> =
                schemes.iter().map(|&scheme| RequestedAddress { scheme, address: any }).collect();
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
    fn a_new_master_reports_unserved_addresses() {
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
    fn messages_of_older_masters_are_parsed() {
        let read = |text: &str, sockets| Handover::read(text.as_bytes(), sockets);
        let (handover, dialect) = read(r#"{"requested":"127.0.0.1:80"}"#, 2).unwrap();
        assert_eq!((handover.addresses.len(), handover.sockets()), (1, 2));
        assert_eq!(dialect, Dialect::Schemes);
        assert!(handover.accept(Vec::new()).is_err(), "the sockets are missing");
        let tls = r#"{"requested":"127.0.0.1:80","tls":{"requested":"[::]:443","sockets":2}}"#;
        let (handover, _) = read(tls, 3).unwrap();
        let found: Vec<_> =
            handover.addresses.iter().map(|one| (one.scheme, one.sockets)).collect();
        assert_eq!(found, [(Scheme::Http, 1), (Scheme::Https, 2)]);
        assert!(read(tls, 1).is_err());
    }
}
