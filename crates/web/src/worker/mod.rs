//! A worker: one reactor that serves its connections until its master orders it to end, or exits.

mod answer;
mod client;
mod disk;
mod failures;
mod intake;
pub(crate) mod log;
mod memory;
mod pace;
mod packing;
mod proxy;
mod rejections;
mod resolver;
mod sending;
#[cfg(feature = "experiments")]
mod serial;
mod server;
mod status;
mod timeouts;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use reactor::{Limits, Signals, Solo, Trigger};
use serde::{Deserialize, Serialize};

use crate::channel::{Channel, Message, Received};
use crate::config::{Accept, Config, Mode};
use crate::counters::Counters;
use crate::identity::{Identity, ListenerTls};
use crate::privileges::WorkerUser;
use crate::scheme::{Listener, Scheme};
use crate::table::Table;
use crate::{accept, logging};

pub(crate) use answer::Site;
#[cfg(feature = "experiments")]
pub(crate) use answer::{Answer, Opened};
#[cfg(feature = "experiments")]
pub(crate) use client::ResponseOptions;
pub(crate) use proxy::encode_for_check;

/// A connection with more pending output than this is not read: its peer reads too slowly.
const OUTPUT_PAUSE_BYTES: u64 = 256 * 1024;

/// From a worker to its master: ready to accept connections.
pub(crate) const READY: &[u8] = b"ready";
/// From the master: accept connections. Sent when all workers of a group are ready, so that a group
/// that fails has not taken connections from another one.
pub(crate) const ACCEPT: &[u8] = b"accept";
/// From the master: others take over; finish the requests received so far and end.
pub(crate) const LEAVE: &[u8] = b"leave";
/// From the master: others take over, except at the addresses whose numbers follow, separated by
/// spaces. Accept the connections waiting there, then do the same.
const FINISH: &[u8] = b"finish";
/// From the master, with a descriptor: switch the access log to this file.
pub(crate) const REOPEN: &[u8] = b"reopen";
/// From a worker to its master, followed by the reason: it cannot serve, and ends. Only the master
/// logs it, so that each failure is logged once.
pub(crate) const FAILED: &[u8] = b"failed ";
/// In a worker's mailbox: a connection, with its descriptor.
const CONNECTION: &[u8] = b"c";
/// The same for a TLS connection.
const TLS_CONNECTION: &[u8] = b"t";
/// The same for a connection of the operator.
const STATUS_CONNECTION: &[u8] = b"s";
/// In a worker's mailbox: connections are waiting at the listening sockets.
pub(crate) const NOTICE: &[u8] = b"n";

/// Returns the order to end because others take over, except at the addresses of these numbers.
pub(crate) fn finish_at(addresses: &[u32]) -> Vec<u8> {
    let numbers = addresses.iter().flat_map(|number| format!(" {number}").into_bytes());
    FINISH.iter().copied().chain(numbers).collect()
}

/// Parses the numbers in such an order; `None` for other orders.
fn finished_by(order: &[u8]) -> Option<Vec<u32>> {
    let mut words = std::str::from_utf8(order).ok()?.split(' ');
    words.next().filter(|first| first.as_bytes() == FINISH)?;
    words.map(|word| word.parse().ok()).collect()
}

/// Returns the mailbox message for a connection.
pub(crate) fn letter(scheme: Scheme) -> &'static [u8] {
    match scheme {
        Scheme::Http => CONNECTION,
        Scheme::Https => TLS_CONNECTION,
        Scheme::Status => STATUS_CONNECTION,
    }
}

/// Limit for a failure report: an error and its causes.
const FAILURE_BYTES_MAX: usize = 4096;

/// The first message from the master, with the worker's resources. The attached descriptors are, in
/// order: table, counters, mailbox, certificate and key, root and access log (if any), listening
/// sockets, and the sending ends of all mailboxes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) slot: usize,
    pub(crate) config: Config,
    pub(crate) listeners: Vec<ListenerGroup>,
    pub(crate) has_identity: bool,
    pub(crate) has_root: bool,
    pub(crate) has_log: bool,
    /// User to switch to before reading client input.
    pub(crate) user: Option<WorkerUser>,
    /// Its row of counters.
    pub(crate) row: usize,
}

/// Listening sockets of one address.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListenerGroup {
    pub(crate) scheme: Scheme,
    /// Number of the address.
    pub(crate) address: u32,
    pub(crate) count: usize,
}

/// All resources of a worker.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) order: Order,
    pub(crate) control: Channel,
    pub(crate) table: Table,
    pub(crate) counters: Counters,
    /// Receives connections and notifications.
    pub(crate) mailbox: Channel,
    /// TLS configuration of the listeners.
    pub(crate) tls: Option<ListenerTls>,
    pub(crate) listeners: Vec<Listener>,
    /// The directory of the files.
    pub(crate) root: Option<OwnedFd>,
    /// The file of the access log.
    pub(crate) log: Option<OwnedFd>,
    /// Sending ends of the mailboxes of all workers, including this one.
    pub(crate) mailboxes: Vec<Channel>,
}

impl Start {
    /// Waits for the first message of the master.
    pub(crate) fn receive(control: Channel) -> anyhow::Result<Start> {
        let Received::Message(Message { bytes, mut descriptors }) =
            control.wait().context("could not receive from the master")?
        else {
            bail!("the master exited");
        };
        let order: Order =
            serde_json::from_slice(&bytes).context("could not parse the master's order")?;
        if let Some(user) = order.user {
            user.assume()?;
        }
        let workers = order.config.worker_count();
        let listeners = order.listeners.iter().map(|group| group.count).sum::<usize>();
        let optional = [order.has_identity, order.has_root, order.has_log];
        let optional = optional.into_iter().filter(|is_there| *is_there).count();
        let expected = 3 + optional + listeners + workers;
        control
            .wait_for_rest(&mut descriptors, expected)
            .context("could not receive descriptors")?;
        if descriptors.len() != expected || order.slot >= workers {
            bail!("received {} descriptors instead of {expected}", descriptors.len());
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().expect("the number was checked above");
        let table = Table::from_fd(next(), workers);
        let counters = Counters::from_fd(next());
        let mailbox = Channel::from_fd(next());
        let identity = order.has_identity.then(|| Identity::from_fd(next()));
        let root = order.has_root.then(&mut next);
        let log = order.has_log.then(&mut next);
        let mut listeners = Vec::new();
        for &ListenerGroup { scheme, address, count } in &order.listeners {
            for _ in 0..count {
                listeners.push(Listener { scheme, address, socket: next() });
            }
        }
        let mailboxes = (0..workers).map(|_| Channel::from_fd(next())).collect();
        let tls = identity.map(|identity| identity.tls()).transpose();
        let tls = tls.context("could not load certificate and key")?;
        Ok(Start { order, control, table, counters, mailbox, tls, listeners, root, log, mailboxes })
    }
}

/// Runs a worker process, whose channel to the master is its standard input.
pub(crate) fn run_process() -> anyhow::Result<()> {
    // Before any thread starts. The master handles signals for all, but TERM is handled here too.
    let signals = Signals::open().context("could not set up signal handling")?;
    accept::raise_descriptors();
    let control =
        std::io::stdin().as_fd().try_clone_to_owned().context("could not open standard input")?;
    if rustix::net::getsockname(&control).is_err() {
        bail!("a worker can only be started by its master");
    }
    let failures = Channel::from_fd(control.try_clone().context("could not open standard input")?);
    let served = Start::receive(Channel::from_fd(control)).and_then(|start| {
        // The thread of the log has the privileges that this process keeps.
        logging::install()?;
        run(start, Some(signals))
    });
    if let Err(error) = served {
        report(&failures, &error);
        base::messages::flush_all();
        std::process::exit(1);
    }
    Ok(())
}

/// Sends the reason why this worker ends to the master. If the master has exited, there is no need
/// to report it.
pub(crate) fn report(control: &Channel, error: &anyhow::Error) {
    let mut words = [FAILED, format!("{error:#}").as_bytes()].concat();
    words.truncate(FAILURE_BYTES_MAX);
    if control.send(&words, &[]).is_err() {
        tracing::debug!("worker failed after its master exited: {error:#}");
    }
}

/// Serves until ordered to end.
pub(crate) fn run(mut start: Start, signals: Option<Signals>) -> anyhow::Result<()> {
    debug_assert_eq!(signals.is_some(), start.order.config.mode == Mode::Process);
    #[cfg(feature = "experiments")]
    if start.order.config.accept == Accept::Serial {
        return serial::run(start);
    }
    let limits = Limits::default();
    let wire = start.order.config.wire_limits();
    limits.input_bytes_max.set(wire.request_bytes_max() as u64 + 64 * 1024);
    limits.output_pause_bytes.set(OUTPUT_PAUSE_BYTES);
    limits.connections_max.set(u64::MAX);
    // The handshake precedes the first head and has the same limit.
    limits.handshake_timeout_ms.set(start.order.config.head_timeout_ms);
    let site = Site::new(&start.order.config, start.root.take());
    let format = start.order.config.access_log_format;
    let log = start.log.take().map(|file| log::AccessLog::start(file, format)).transpose()?;
    let mut begun = Ok(());
    let solo = Solo::new(Arc::new(limits), |links, watcher| {
        let mailbox = links.mailboxes()[0].clone();
        let resolver = resolver::Resolver::start(start.order.config.upstream.as_ref(), &mailbox);
        let resolver = resolver.unwrap_or_else(|error| {
            begun = Err(error);
            resolver::Resolver::default()
        });
        let disk = disk::Disk::new(site.opener(), mailbox);
        let mut server = server::Server::new(start, site, disk, resolver, log, signals, watcher);
        if begun.is_ok() {
            begun = server.begin().context("could not poll the sockets");
        }
        server
    });
    let solo = solo.context("could not start the reactor")?;
    begun?;
    solo.gather_answers().run();
    Ok(())
}

/// Event sources of a worker's reactor besides its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Control,
    Mailbox,
    Signals,
    Listener(usize),
}

impl Source {
    fn number(self) -> u32 {
        match self {
            Source::Control => 0,
            Source::Mailbox => 1,
            Source::Signals => 2,
            Source::Listener(index) => 3 + u32::try_from(index).unwrap_or(0),
        }
    }

    fn of(number: u32) -> Source {
        match number {
            0 => Source::Control,
            1 => Source::Mailbox,
            2 => Source::Signals,
            listener => Source::Listener((listener - 3) as usize),
        }
    }
}

/// How a worker polls a listening socket; `None` if the master does.
fn trigger(accept: Accept, scheme: Scheme) -> Option<Trigger> {
    match scheme {
        Scheme::Status => Some(Trigger::Exclusive),
        Scheme::Http | Scheme::Https if accept.is_accepted_by_master() => None,
        Scheme::Http | Scheme::Https if accept == Accept::Exclusive => Some(Trigger::Exclusive),
        Scheme::Http | Scheme::Https => Some(Trigger::Level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_to_end_names_addresses() {
        for addresses in [&[][..], &[7], &[0, 1, u32::MAX]] {
            assert_eq!(finished_by(&finish_at(addresses)).as_deref(), Some(addresses));
        }
        assert_eq!((finished_by(LEAVE), finished_by(b"finish x")), (None, None));
    }
}
