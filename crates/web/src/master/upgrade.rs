//! Replaces the running program by the one that lies in its place now.
//!
//! The old master starts the new one with its listening sockets. When the new one serves, it says so,
//! and the old workers end; when it fails before, nothing has happened. Sockets are never closed in
//! between, so connections that wait in them are served by one or the other.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::listeners::Listeners;
use crate::INHERIT_FLAG;
use crate::channel::{Channel, Message, Received};

/// Time for the new master to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the new master is told; listening sockets come with it.
#[derive(Debug, Serialize, Deserialize)]
struct Legacy {
    requested: SocketAddr,
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
        listeners: &Listeners,
    ) -> anyhow::Result<Upgrade> {
        let (channel, far) = Channel::pair().context("make a channel")?;
        let legacy = serde_json::to_vec(&Legacy { requested: listeners.requested() })?;
        let sockets: Vec<_> = listeners.all().iter().map(AsFd::as_fd).collect();
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

/// The new master's side: the old one, and its listening sockets.
pub(crate) fn inherit() -> anyhow::Result<(Channel, Listeners)> {
    let parent = std::io::stdin().as_fd().try_clone_to_owned().context("open standard input")?;
    let parent = Channel::from_fd(parent);
    let Received::Message(Message { bytes, descriptors }) =
        parent.wait().context("wait for the master before this one")?
    else {
        bail!("the master before this one is gone");
    };
    let legacy: Legacy = serde_json::from_slice(&bytes).context("read what it says")?;
    Ok((parent, Listeners::inherited(legacy.requested, descriptors)?))
}
