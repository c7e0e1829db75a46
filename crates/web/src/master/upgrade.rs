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

use super::addresses::Addresses;
use super::listeners::Listeners;
use crate::INHERIT_FLAG;
use crate::channel::{Channel, Message, Received};
use crate::scheme::Scheme;
use crate::worker::READY;

/// Time for the new master to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the new master is told; listening sockets come with it, those with TLS last.
#[derive(Debug, Serialize, Deserialize)]
struct Legacy {
    requested: SocketAddr,
    /// Masters before TLS was served do not say it.
    #[serde(default)]
    tls: Option<TlsLegacy>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TlsLegacy {
    requested: SocketAddr,
    sockets: usize,
}

impl Legacy {
    fn of(addresses: &Addresses) -> anyhow::Result<Legacy> {
        let http = addresses.of(Scheme::Http).context("there are no listening sockets")?;
        let tls = addresses.of(Scheme::Https).map(|listeners| TlsLegacy {
            requested: listeners.requested(),
            sockets: listeners.all().len(),
        });
        Ok(Legacy { requested: http.requested(), tls })
    }

    /// Takes over what came with it.
    fn accept(self, mut sockets: Vec<OwnedFd>) -> anyhow::Result<Addresses> {
        let https = match self.tls {
            None => None,
            Some(tls) => {
                let plain = sockets.len().checked_sub(tls.sockets);
                let own = sockets.split_off(plain.context("listening sockets are missing")?);
                Some(Listeners::inherited(tls.requested, own)?)
            }
        };
        Ok(Addresses::new(Some(Listeners::inherited(self.requested, sockets)?), https))
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
        let legacy = serde_json::to_vec(&Legacy::of(addresses)?)?;
        let sockets: Vec<_> = addresses.all().each().map(|(_, _, socket)| socket.as_fd()).collect();
        channel.send(&legacy, &sockets).context("pass the listening sockets on")?;
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

/// What a new master says when it serves: it does not serve the addresses of these schemes any more.
pub(crate) fn serving(left: &[Scheme]) -> Vec<u8> {
    let names = left.iter().flat_map(|scheme| [b" ", scheme.name().as_bytes()].concat());
    READY.iter().copied().chain(names).collect()
}

/// Which these are; none if it says something else.
pub(crate) fn left(words: &[u8]) -> Option<Vec<Scheme>> {
    let mut words = words.split(|byte| *byte == b' ');
    words.next().filter(|first| *first == READY)?;
    let named = |name: &[u8]| Scheme::ALL.into_iter().find(|one| one.name().as_bytes() == name);
    words.map(named).collect()
}

/// The new master's side: the old one, and its listening sockets.
pub(crate) fn inherit() -> anyhow::Result<(Channel, Addresses)> {
    let parent = std::io::stdin().as_fd().try_clone_to_owned().context("open standard input")?;
    let parent = Channel::from_fd(parent);
    let Received::Message(Message { bytes, descriptors }) =
        parent.wait().context("wait for the master before this one")?
    else {
        bail!("the master before this one is gone");
    };
    let legacy: Legacy = serde_json::from_slice(&bytes).context("read what it says")?;
    Ok((parent, legacy.accept(descriptors)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// What a new master makes of the sockets and words of another.
    fn pass_on(addresses: &Addresses) -> Addresses {
        let text = serde_json::to_vec(&Legacy::of(addresses).unwrap()).unwrap();
        let sockets = addresses.all().each().map(|(_, _, socket)| socket.try_clone().unwrap());
        let legacy: Legacy = serde_json::from_slice(&text).unwrap();
        legacy.accept(sockets.collect()).unwrap()
    }

    #[test]
    fn sockets_keep_their_schemes() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        for listen_tls in [None, Some(any)] {
            let config = Config { listen: any, listen_tls, workers: 3, ..Config::default() };
            let before = Addresses::begin(Addresses::default(), &config).unwrap();
            let after = pass_on(&before);
            assert_eq!((after.schemes(), after.counts()), (before.schemes(), before.counts()));
            for scheme in Scheme::ALL {
                assert_eq!(after.local(scheme), before.local(scheme));
            }
        }
    }

    #[test]
    fn a_new_master_says_what_it_has_left() {
        for schemes in [&[][..], &[Scheme::Http], &[Scheme::Https], &Scheme::ALL] {
            assert_eq!(left(&serving(schemes)).as_deref(), Some(schemes));
        }
        assert_eq!(serving(&[]), READY);
        assert_eq!((left(b"read"), left(b"ready gopher"), left(b"")), (None, None, None));
    }

    #[test]
    fn words_of_older_masters_are_understood() {
        let legacy: Legacy = serde_json::from_str(r#"{"requested":"127.0.0.1:80"}"#).unwrap();
        assert!(legacy.tls.is_none());
        let tls = Some(TlsLegacy { requested: legacy.requested, sockets: 1 });
        assert!(Legacy { tls, ..legacy }.accept(Vec::new()).is_err(), "one is missing");
    }
}
