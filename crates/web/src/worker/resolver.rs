//! Repeatedly resolves the host name of an upstream, because its address may change.

use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use reactor::Mailbox;

use super::disk::Mail;
use crate::address::HostPort;

/// Maximum age of an address. The system's resolver does not report the TTL of a name.
const INTERVAL: Duration = Duration::from_secs(10);
/// Minimum pause between requested lookups.
const PAUSE: Duration = Duration::from_secs(1);

/// The upstream's address.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    address: Option<SocketAddr>,
    /// Requests a lookup from the thread. `None` for a literal address.
    ask: Option<SyncSender<()>>,
}

impl Resolver {
    /// Resolves the name, and starts a thread that repeats it. Blocks for the system's resolver: a
    /// worker is not ready before it knows the address. A name that is unknown now may resolve
    /// later.
    pub(super) fn start(
        upstream: Option<&HostPort>,
        mailbox: &Mailbox<Mail>,
    ) -> anyhow::Result<Resolver> {
        let literal = upstream.and_then(HostPort::literal);
        let Some(name) = upstream.filter(|_| literal.is_none()) else {
            return Ok(Resolver { address: literal, ask: None });
        };
        let address = look_up(name, &mut false);
        let (ask, asked) = sync_channel::<()>(1);
        let (name, mailbox) = (name.clone(), mailbox.clone());
        let (mut known, mut is_failing) = (address, address.is_none());
        let run = move || {
            loop {
                match asked.recv_timeout(INTERVAL) {
                    Ok(()) => std::thread::sleep(PAUSE),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let found = look_up(&name, &mut is_failing);
                // An old address is better than none.
                if let Some(address) = found.filter(|_| found != known) {
                    known = found;
                    if mailbox.send(Mail::Resolved(address)).is_err() {
                        return;
                    }
                }
            }
        };
        let builder = std::thread::Builder::new().name("resolver".to_owned());
        builder.spawn(run).context("could not start the resolver thread")?;
        Ok(Resolver { address, ask: Some(ask) })
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(super) fn set(&mut self, address: SocketAddr) {
        tracing::info!(%address, "upstream address changed");
        self.address = Some(address);
    }

    /// Requests a lookup after a failed connection: the address may have changed.
    pub(super) fn request_lookup(&self) {
        if let Some(ask) = &self.ask {
            // Full: a lookup is already pending.
            let _ = ask.try_send(());
        }
    }
}

/// Resolves the name. Logs only the first of consecutive failures.
fn look_up(name: &HostPort, is_failing: &mut bool) -> Option<SocketAddr> {
    let found = name.resolve();
    if let Err(error) = &found
        && !*is_failing
    {
        tracing::warn!("upstream: {error}");
    }
    *is_failing = found.is_err();
    found.ok()
}
