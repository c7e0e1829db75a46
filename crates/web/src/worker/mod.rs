//! A worker: one reactor that serves the connections that come to it, until its master says otherwise
//! or is gone.

mod answer;
mod client;
mod disk;
mod intake;
pub(crate) mod log;
mod pace;
mod proxy;
mod resolver;
mod sending;
mod serial;
mod server;
mod shed;
mod status;
mod timeouts;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use reactor::{Limits, Signals, Solo, Tls, Trigger};
use serde::{Deserialize, Serialize};

use crate::channel::{Channel, Message, Received};
use crate::config::{Accept, Config, Mode};
use crate::counters::Counters;
use crate::identity::Identity;
use crate::privileges::WorkerUser;
use crate::scheme::{Listener, Scheme};
use crate::table::Table;
use crate::{door, logging};

pub(crate) use answer::{Answer, Opened, Site};
pub(crate) use client::Terms;
pub(crate) use proxy::encode_for_check;

/// Output above which a connection is not read; its peer takes it slower than it comes.
const OUTPUT_PAUSE_BYTES: u64 = 256 * 1024;

/// From a worker to its master: it can accept connections.
pub(crate) const READY: &[u8] = b"ready";
/// From the master: accept connections. Not before all workers of a team are ready, so that a team that
/// fails has taken nobody from another one.
pub(crate) const ACCEPT: &[u8] = b"accept";
/// From the master: others take over, end when what has come is answered.
pub(crate) const LEAVE: &[u8] = b"leave";
/// From the master: others take over except at the addresses whose numbers follow, each behind a space;
/// take what waits there in the kernel, then the same.
const FINISH: &[u8] = b"finish";
/// From the master, with a descriptor: the file of the access log from now on.
pub(crate) const REOPEN: &[u8] = b"reopen";
/// From a worker to its master, with the reason behind it: it cannot serve, and ends. The master reports
/// it, so that each failure is reported once.
pub(crate) const FAILED: &[u8] = b"failed ";
/// Into a worker's mailbox: a connection, with its descriptor.
const CONNECTION: &[u8] = b"c";
/// The same for a connection that speaks TLS.
const TLS_CONNECTION: &[u8] = b"t";
/// The same for a connection of the operator.
const STATUS_CONNECTION: &[u8] = b"s";
/// Into a worker's mailbox: somebody waits at the listening sockets.
pub(crate) const NOTICE: &[u8] = b"n";

/// The order to end for workers whose place others take, except at the addresses of these numbers.
pub(crate) fn finish_at(addresses: &[u32]) -> Vec<u8> {
    let numbers = addresses.iter().flat_map(|number| format!(" {number}").into_bytes());
    FINISH.iter().copied().chain(numbers).collect()
}

/// The numbers in such an order; none if it is another.
fn finished_by(order: &[u8]) -> Option<Vec<u32>> {
    let mut words = std::str::from_utf8(order).ok()?.split(' ');
    words.next().filter(|first| first.as_bytes() == FINISH)?;
    words.map(|word| word.parse().ok()).collect()
}

/// What goes into a mailbox with a connection.
pub(crate) fn letter(scheme: Scheme) -> &'static [u8] {
    match scheme {
        Scheme::Http => CONNECTION,
        Scheme::Https => TLS_CONNECTION,
        Scheme::Status => STATUS_CONNECTION,
    }
}

/// Longest report of a failure: an error and its causes.
const FAILURE_BYTES_MAX: usize = 4096;

/// What a worker starts with, as the first message of its master. Descriptors come with it: the table, the
/// counters, its mailbox, certificate and key, the root and the access log if there are any, listening sockets, and the
/// ways into all mailboxes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) slot: usize,
    pub(crate) config: Config,
    pub(crate) listeners: Vec<ListenerGroup>,
    pub(crate) has_identity: bool,
    pub(crate) has_root: bool,
    pub(crate) has_log: bool,
    /// Whom to run as, before anything of a client is read.
    pub(crate) user: Option<WorkerUser>,
    /// Its row of counters.
    pub(crate) row: usize,
}

/// Listening sockets of one address.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListenerGroup {
    pub(crate) scheme: Scheme,
    /// Its number.
    pub(crate) address: u32,
    pub(crate) count: usize,
}

/// Everything that a worker works with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) order: Order,
    pub(crate) control: Channel,
    pub(crate) table: Table,
    pub(crate) counters: Counters,
    /// Where connections and notices come from.
    pub(crate) mailbox: Channel,
    /// What connections with TLS are shown.
    pub(crate) tls: Option<Tls>,
    pub(crate) listeners: Vec<Listener>,
    /// The directory of the files.
    pub(crate) root: Option<OwnedFd>,
    /// The file of the access log.
    pub(crate) log: Option<OwnedFd>,
    /// Into the mailboxes of all workers, this one's too.
    pub(crate) mailboxes: Vec<Channel>,
}

impl Start {
    /// Waits for the first message of the master.
    pub(crate) fn receive(control: Channel) -> anyhow::Result<Start> {
        let Received::Message(Message { bytes, mut descriptors }) =
            control.wait().context("wait for the master")?
        else {
            bail!("the master is gone");
        };
        let order: Order = serde_json::from_slice(&bytes).context("read the master's order")?;
        if let Some(user) = order.user {
            user.assume()?;
        }
        let workers = order.config.worker_count();
        let listeners = order.listeners.iter().map(|group| group.count).sum::<usize>();
        let optional = [order.has_identity, order.has_root, order.has_log];
        let optional = optional.into_iter().filter(|is_there| *is_there).count();
        let expected = 3 + optional + listeners + workers;
        control.wait_for_rest(&mut descriptors, expected).context("wait for descriptors")?;
        if descriptors.len() != expected || order.slot >= workers {
            bail!("{} descriptors came, {expected} were expected", descriptors.len());
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().expect("they were counted");
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
        let tls = tls.context("read certificate and key")?;
        Ok(Start { order, control, table, counters, mailbox, tls, listeners, root, log, mailboxes })
    }
}

/// A worker process: its master is on the other side of standard input.
pub(crate) fn run_process() -> anyhow::Result<()> {
    logging::install();
    // Before any thread starts: the master takes signals for all, but TERM is heeded here too.
    let signals = Signals::open().context("open signals")?;
    door::raise_descriptors();
    let control = std::io::stdin().as_fd().try_clone_to_owned().context("open standard input")?;
    if rustix::net::getsockname(&control).is_err() {
        bail!("a worker is started by its master, not by hand");
    }
    let failures = Channel::from_fd(control.try_clone().context("open standard input")?);
    let served =
        Start::receive(Channel::from_fd(control)).and_then(|start| run(start, Some(signals)));
    if let Err(error) = served {
        report(&failures, &error);
        std::process::exit(1);
    }
    Ok(())
}

/// Has the master report why this worker ends. A master that is gone has ended for a reason of its own.
pub(crate) fn report(control: &Channel, error: &anyhow::Error) {
    let mut words = [FAILED, format!("{error:#}").as_bytes()].concat();
    words.truncate(FAILURE_BYTES_MAX);
    if control.send(&words, &[]).is_err() {
        tracing::debug!("a worker failed when its master was gone: {error:#}");
    }
}

/// Serves until told to end.
pub(crate) fn run(mut start: Start, signals: Option<Signals>) -> anyhow::Result<()> {
    debug_assert_eq!(signals.is_some(), start.order.config.mode == Mode::Process);
    if start.order.config.accept == Accept::Serial {
        return serial::run(start);
    }
    let limits = Limits::default();
    let wire = start.order.config.wire_limits();
    limits.input_bytes_max.set(wire.request_bytes_max() as u64 + 64 * 1024);
    limits.output_pause_bytes.set(OUTPUT_PAUSE_BYTES);
    limits.connections_max.set(u64::MAX);
    // A handshake is in front of the first head, and takes no longer.
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
            begun = server.begin().context("watch the sockets");
        }
        server
    });
    let solo = solo.context("start the reactor")?;
    begun?;
    solo.gather_answers().run();
    Ok(())
}

/// Sources that a worker's reactor watches besides its connections.
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

/// How a worker watches a listening socket; none if the master does.
fn trigger(accept: Accept, scheme: Scheme) -> Option<Trigger> {
    match scheme {
        Scheme::Status => Some(Trigger::Exclusive),
        Scheme::Http | Scheme::Https if accept.is_masters() => None,
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
