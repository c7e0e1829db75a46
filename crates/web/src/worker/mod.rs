//! A worker: one reactor that serves the connections that come to it, until its master says otherwise
//! or is gone.

mod answer;
mod client;
mod disk;
mod intake;
pub(crate) mod log;
mod pace;
mod proxy;
mod sending;
mod server;
mod shed;
mod timeouts;

use std::os::fd::AsFd as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use reactor::{Limits, Signals, Solo, Tls, Trigger};
use serde::{Deserialize, Serialize};

use crate::channel::{Channel, DESCRIPTORS_MAX, Message, Received};
use crate::config::{Accept, Config, Mode, WORKERS_MAX};
use crate::identity::Identity;
use crate::scheme::{Listener, Scheme};
use crate::table::Table;
use crate::{door, logging, serial};

pub(crate) use answer::{Answer, Opened, Site};
pub(crate) use client::Terms;

/// Output above which a connection is not read; its peer takes it slower than it comes.
const OUTPUT_PAUSE_BYTES: u64 = 256 * 1024;

/// From a worker to its master: it can accept connections.
pub(crate) const READY: &[u8] = b"ready";
/// From the master: accept connections. Not before all workers of a team are ready, so that a team that
/// fails has taken nobody from another one.
pub(crate) const ACCEPT: &[u8] = b"accept";
/// From the master: others take over, end when what has come is answered.
pub(crate) const LEAVE: &[u8] = b"leave";
/// From the master: nobody takes over; take what waits in the kernel, then the same.
pub(crate) const FINISH: &[u8] = b"finish";
/// The same where others take over but at one kind of address.
const FINISH_HTTP: &[u8] = b"finish-http";
const FINISH_HTTPS: &[u8] = b"finish-https";
/// From the master: open the access log again.
pub(crate) const REOPEN: &[u8] = b"reopen";
/// Into a worker's mailbox: a connection, with its descriptor.
const CONNECTION: &[u8] = b"c";
/// The same for a connection that speaks TLS.
const TLS_CONNECTION: &[u8] = b"t";
/// Into a worker's mailbox: somebody waits at the listening sockets.
pub(crate) const NOTICE: &[u8] = b"n";

/// The order to end for workers whose place others take, except at addresses of these schemes.
pub(crate) fn finish_at(schemes: &[Scheme]) -> &'static [u8] {
    match schemes {
        [] => LEAVE,
        [Scheme::Http] => FINISH_HTTP,
        [Scheme::Https] => FINISH_HTTPS,
        _ => FINISH,
    }
}

/// What goes into a mailbox with a connection.
pub(crate) fn letter(scheme: Scheme) -> &'static [u8] {
    match scheme {
        Scheme::Http => CONNECTION,
        Scheme::Https => TLS_CONNECTION,
    }
}

// A worker may watch the sockets that all others had, of both schemes.
const _: () = assert!(3 + 3 * WORKERS_MAX <= DESCRIPTORS_MAX, "an order comes in one message");

/// What a worker starts with, as the first message of its master. Descriptors come with it: the table, its
/// mailbox, certificate and key if there are any, listening sockets, and the ways into all mailboxes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) slot: usize,
    pub(crate) config: Config,
    /// How many of each scheme.
    pub(crate) listeners: [usize; 2],
    pub(crate) has_identity: bool,
}

/// Everything that a worker works with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) order: Order,
    pub(crate) control: Channel,
    pub(crate) table: Table,
    /// Where connections and notices come from.
    pub(crate) mailbox: Channel,
    /// What connections with TLS are shown.
    pub(crate) tls: Option<Tls>,
    pub(crate) listeners: Vec<Listener>,
    /// Into the mailboxes of all workers, this one's too.
    pub(crate) mailboxes: Vec<Channel>,
}

impl Start {
    /// Waits for the first message of the master.
    pub(crate) fn receive(control: Channel) -> anyhow::Result<Start> {
        let Received::Message(Message { bytes, descriptors }) =
            control.wait().context("wait for the master")?
        else {
            bail!("the master is gone");
        };
        let order: Order = serde_json::from_slice(&bytes).context("read the master's order")?;
        let workers = order.config.worker_count();
        let listeners = order.listeners.iter().sum::<usize>();
        let expected = 2 + usize::from(order.has_identity) + listeners + workers;
        if descriptors.len() != expected || order.slot >= workers {
            bail!("{} descriptors came, {expected} were expected", descriptors.len());
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().expect("they were counted");
        let table = Table::from_fd(next(), workers);
        let mailbox = Channel::from_fd(next());
        let identity = order.has_identity.then(|| Identity::from_fd(next()));
        let mut listeners = Vec::new();
        for scheme in Scheme::ALL {
            for _ in 0..order.listeners[scheme.index()] {
                listeners.push(Listener { scheme, socket: next() });
            }
        }
        let mailboxes = (0..workers).map(|_| Channel::from_fd(next())).collect();
        let tls = identity.map(|identity| identity.tls()).transpose();
        let tls = tls.context("read certificate and key")?;
        Ok(Start { order, control, table, mailbox, tls, listeners, mailboxes })
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
    run(Start::receive(Channel::from_fd(control))?, Some(signals))
}

/// Serves until told to end.
pub(crate) fn run(start: Start, signals: Option<Signals>) -> anyhow::Result<()> {
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
    let site = Site::new(&start.order.config)?;
    let format = start.order.config.access_log_format;
    let path = start.order.config.access_log.as_deref();
    let log = path.map(|path| log::AccessLog::open(path, format)).transpose()?;
    let mut begun = Ok(());
    let solo = Solo::new(Arc::new(limits), |links, watcher| {
        let mailbox = links.mailboxes()[0].clone();
        let disk = disk::Disk::new(site.opener(), mailbox);
        let mut server = server::Server::new(start, site, disk, log, signals, watcher);
        begun = server.begin();
        server
    });
    let solo = solo.context("start the reactor")?;
    begun.context("watch the sockets")?;
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

/// How a worker watches its listening sockets.
fn trigger(accept: Accept) -> Trigger {
    if accept == Accept::Exclusive { Trigger::Exclusive } else { Trigger::Level }
}
