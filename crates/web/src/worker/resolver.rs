//! Looks up the address of an upstream that is named, again and again: names move.

use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use reactor::Mailbox;

use super::disk::Mail;
use crate::address::HostPort;

/// How old an address may become. The system's resolver does not report how long a name is good for.
const INTERVAL: Duration = Duration::from_secs(10);
/// Pause between two lookups that were asked for.
const PAUSE: Duration = Duration::from_secs(1);

/// The upstream's address.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    address: Option<SocketAddr>,
    /// Asks the thread to look again. None for an address that cannot move.
    ask: Option<SyncSender<()>>,
}

impl Resolver {
    /// Looks the name up, and starts a thread that looks again. Blocks for the system's resolver: a worker
    /// is not ready before it knows the address. A name that is unknown now may be known later.
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
                // An address that worked is better than none.
                if let Some(address) = found.filter(|_| found != known) {
                    known = found;
                    if mailbox.send(Mail::Resolved(address)).is_err() {
                        return;
                    }
                }
            }
        };
        let builder = std::thread::Builder::new().name("resolver".to_owned());
        builder.spawn(run).context("start the thread that looks up the upstream")?;
        Ok(Resolver { address, ask: Some(ask) })
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(super) fn set(&mut self, address: SocketAddr) {
        tracing::info!(%address, "the upstream has this address now");
        self.address = Some(address);
    }

    /// The upstream could not be reached: it may have moved.
    pub(super) fn doubt(&self) {
        if let Some(ask) = &self.ask {
            // Full: it is about to look.
            let _ = ask.try_send(());
        }
    }
}

/// Reports the first failure of several.
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
