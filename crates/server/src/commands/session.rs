//! State of one RESP connection between requests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use base::time::{MonoNs, UnixMs};
use reactor::{ConnId, Peer};
use store::WatchFlag;
use wire::resp::{OwnedArgs, Protocol, ReplyWriter, RequestDecoder};

use super::replication::ReplicaOptions;
use crate::config::Durability;
use crate::engine::accounts::Charges;
use crate::engine::acl::Identity;
use crate::engine::blocked::BlockedClient;
use crate::engine::client_address::ClientAddress;
use crate::engine::client_row::{ClientRow, SubscriptionCounts, TrackingFlags};
use crate::engine::gate::Gate;
use crate::engine::pubsub::Subscriptions;
use crate::engine::replication::Replication;
use crate::engine::requests::RequestId;

/// Maximum queued commands of a transaction; further ones are rejected.
pub(crate) const QUEUED_COMMANDS_MAX: usize = 1 << 20;

/// Maximum keys that one connection may watch: the stripes and the connection keep each name.
pub(crate) const WATCHED_KEYS_MAX: usize = 1 << 16;

/// Maximum total bytes of their names. The same limit as for subscriptions, in
/// `crate::engine::pubsub`.
pub(crate) const WATCHED_BYTES_MAX: usize = 64 << 20;

/// CLIENT REPLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// Set by CLIENT REPLY SKIP: neither this command nor the next one sends a reply.
    SkipNext,
    Skip,
}

/// State between MULTI and EXEC.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) queued: Vec<(RequestId, OwnedArgs)>,
    pub(crate) queued_bytes: usize,
    /// Cost of the queued commands, in units of [`super::context::CommandContext::spend`].
    pub(crate) queued_work: usize,
    /// A queued command was rejected, so EXEC will be, too.
    pub(crate) aborted: bool,
}

/// State between WATCH and EXEC. Removed only by [`super::transactions`], because the stripes hold
/// its watches.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) flag: WatchFlag,
    /// Database and key, and when the watch started.
    pub(crate) keys: HashMap<(u8, Box<[u8]>), UnixMs>,
    /// Total bytes of the names.
    pub(crate) bytes: usize,
    /// Memory that the connection is charged for.
    pub(crate) charged_bytes: u64,
}

/// State that most requests do not need.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) remote: ClientAddress,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) opened: MonoNs,
    /// Since when the pending output exceeds the soft limit.
    pub(crate) above_soft_since: Option<MonoNs>,
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
    /// Boxed, so that the many connections without it need 8 bytes.
    rare: Option<Box<RareDetails>>,
}

/// State that most connections never need.
#[derive(Debug, Default)]
pub(crate) struct RareDetails {
    /// See [`WaitReply::Delayed`].
    pub(crate) delayed_reply: Option<Vec<u8>>,
    /// The keys that [`Wait::Until`] waits for as well.
    pub(crate) blocked: Option<Arc<BlockedClient>>,
    /// The request whose wait for something other than keys counts as its execution.
    pub(crate) pending: Option<Pending>,
    /// Execution time of the last request that found nothing and waits for keys, in nanoseconds.
    pub(crate) attempt_ns: u64,
    /// Present if [`Session::tracks`].
    pub(crate) tracking: Option<Tracking>,
    /// CLIENT CAPA REDIRECT.
    pub(crate) redirects: bool,
    /// What SYNC sends.
    pub(crate) replica: ReplicaOptions,
    /// Of a client that is receiving a file.
    pub(crate) progress: Progress,
    /// The command by which a client has requested a file or the stream.
    pub(crate) received_by: Option<RequestId>,
    /// The reactor of the connection, if the session is one of a rerun.
    pub(crate) reactor: Option<usize>,
}

/// A request that is counted when its wait has ended.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) args: OwnedArgs,
    pub(crate) began: MonoNs,
}

/// How much of its output a client has read, and when that was last known to have changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) sent_bytes: u64,
    pub(crate) at: MonoNs,
}

impl Details {
    pub(crate) fn tracking(&self) -> Option<&Tracking> {
        self.rare.as_ref()?.tracking.as_ref()
    }

    pub(crate) fn blocked(&self) -> Option<&Arc<BlockedClient>> {
        self.rare.as_ref()?.blocked.as_ref()
    }

    pub(crate) fn received_by(&self) -> Option<RequestId> {
        self.rare.as_ref()?.received_by
    }

    pub(crate) fn redirects(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.redirects)
    }

    /// The reactor of the connection, if the session is one of a rerun.
    pub(crate) fn reactor(&self) -> Option<usize> {
        self.rare.as_ref()?.reactor
    }

    /// Returns the state to set some of it.
    pub(crate) fn rare(&mut self) -> &mut RareDetails {
        self.rare.get_or_insert_default()
    }

    /// Returns the state to change or remove some of it, if any was ever set.
    pub(crate) fn rare_if_set(&mut self) -> Option<&mut RareDetails> {
        self.rare.as_deref_mut()
    }
}

/// Which keys CLIENT TRACKING tracks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TrackingMode {
    /// Every key that the connection reads.
    #[default]
    Default,
    /// Keys read after CLIENT CACHING YES.
    OptIn,
    /// All keys read, except after CLIENT CACHING NO.
    OptOut,
    /// All keys with certain prefixes, read or not.
    Broadcast,
}

/// CLIENT TRACKING of a connection.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    pub(crate) mode: TrackingMode,
    /// The client that receives the messages instead.
    pub(crate) redirect: Option<ConnId>,
    pub(crate) prefixes: Vec<Box<[u8]>>,
    /// No messages about changes by the connection itself.
    pub(crate) no_loop: bool,
    /// CLIENT CACHING, for the next request or transaction.
    pub(crate) caching: Option<bool>,
    /// CLIENT CACHING is the request that is running.
    pub(crate) is_caching_new: bool,
    /// The client in `redirect` is gone.
    pub(crate) is_broken: bool,
}

/// Condition that a paused connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Waits for a deadline, then sends `reply`; [`Details::blocked`] may end the wait before.
    Until { at: MonoNs, reply: WaitReply },
    /// Waits for the snapshot with this number.
    Snapshot { number: u64 },
    /// Waits for the end of MIGRATE.
    Migration,
    /// Waits for a thread that runs the request: see [`crate::engine::long_requests`].
    LongRequest,
    /// Waits until this server is a master.
    Promotion,
    /// Waits for space in the log.
    Room,
    /// Receives an RDB file, after which the connection ends.
    Transfer,
    /// Waits for the end of CLIENT PAUSE, then runs the request that is still in the input.
    Pause,
    /// Waits for data that another reactor holds, then does the same.
    Keys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitReply {
    Ok,
    NullArray,
    /// WAIT and WAITAOF.
    Replicas(ReplicaWait),
    /// The reply of an EXEC that contains DEBUG SLEEP: [`Details::delayed_reply`].
    Delayed,
}

/// What WAIT or WAITAOF waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaWait {
    /// The newest write of the connection.
    pub(crate) written: Gate,
    /// Number of replicas.
    pub(crate) wanted: i64,
    /// WAITAOF: whether the writes are on the disk of this server.
    pub(crate) local: Option<bool>,
}

impl ReplicaWait {
    pub(crate) fn is_over(&self, replication: &Replication) -> bool {
        self.count(replication) >= self.wanted
    }

    fn count(&self, replication: &Replication) -> i64 {
        i64::try_from(replication.confirmations(self.written)).unwrap_or(i64::MAX)
    }

    pub(crate) fn write(&self, writer: &mut ReplyWriter<'_>, replication: &Replication) {
        if let Some(is_local) = self.local {
            writer.array(2);
            writer.integer(is_local.into());
        }
        writer.integer(self.count(replication));
    }
}

/// Where the requests of a session come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// A connection.
    Client,
    /// The connection of a replica, which receives the stream and acknowledges it.
    Replica,
    /// A single request whose commands are already in memory: queuing them needs no memory.
    Lent,
    /// The request of a blocked client, which runs again.
    Rerun,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Session {
    pub(crate) id: ConnId,
    pub(crate) decoder: RequestDecoder,
    pub(crate) protocol: Protocol,
    pub(crate) db: u8,
    pub(crate) identity: Identity,
    pub(crate) durability: Durability,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) monitor: bool,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
    /// CLIENT TRACKING is on.
    pub(crate) tracks: bool,
    pub(crate) source_of_requests: Requests,
    /// Connected to its reactor's own port, or to an address of administration and so to the spare
    /// reactor: it stays there.
    pub(crate) is_pinned: bool,
    /// Number of the listener whose nodes CLUSTER describes, if that is one of the Redis protocol.
    pub(crate) source: u16,
    /// Set by QUIT, and by errors after which further input cannot be parsed.
    pub(crate) closing: bool,
    pub(crate) last_command: RequestId,
    pub(crate) commands: u64,
    /// End of the newest record that this connection wrote.
    pub(crate) last_write: Gate,
    /// Highest gate of the connection's replies.
    pub(crate) last_gate: Gate,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) watched: Option<Box<Watched>>,
    /// `None`: no subscriptions. A connection with subscriptions stays on its reactor.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    pub(crate) wait: Option<Wait>,
    pub(crate) details: Box<Details>,
    pub(crate) charges: Charges,
}

impl Session {
    pub(crate) fn new(
        id: ConnId,
        peer: &Peer,
        opened: MonoNs,
        identity: Identity,
        durability: Durability,
    ) -> Session {
        Session {
            id,
            decoder: RequestDecoder::default(),
            protocol: Protocol::Resp2,
            db: 0,
            identity,
            durability,
            reply_mode: ReplyMode::On,
            monitor: false,
            no_evict: false,
            no_touch: false,
            tracks: false,
            source_of_requests: Requests::Client,
            is_pinned: false,
            source: u16::try_from(peer.listener).unwrap_or(u16::MAX),
            closing: false,
            last_command: 0,
            commands: 0,
            last_write: Gate::OPEN,
            last_gate: Gate::OPEN,
            transaction: None,
            watched: None,
            subscriptions: None,
            wait: None,
            charges: Charges::default(),
            details: Box::new(Details {
                remote: peer.remote.into(),
                local: peer.local,
                opened,
                above_soft_since: None,
                name: String::new(),
                library_name: String::new(),
                library_version: String::new(),
                rare: None,
            }),
        }
    }

    /// Whether the connection may move to another reactor.
    pub(crate) fn may_move(&self) -> bool {
        !self.tracks && !self.is_pinned && !self.is_replica() && self.subscriptions.is_none()
    }

    /// Whether the reply to the last command is sent when a wait ends.
    pub(crate) fn awaits_reply(&self) -> bool {
        use Wait::{LongRequest, Migration, Promotion, Snapshot, Until};
        matches!(
            self.wait,
            Some(Until { .. } | Snapshot { .. } | Migration | LongRequest | Promotion)
        )
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.source_of_requests == Requests::Lent
    }

    pub(crate) fn is_rerun(&self) -> bool {
        self.source_of_requests == Requests::Rerun
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.source_of_requests == Requests::Replica
    }

    /// Whether the client is being sent parts of a file or of the replication stream.
    pub(crate) fn is_receiver(&self) -> bool {
        self.is_replica() || self.wait == Some(Wait::Transfer)
    }

    /// Returns the CLIENT LIST row of a new connection.
    pub(crate) fn row(&self, reactor: usize, now: MonoNs) -> ClientRow {
        let details = &self.details;
        let mut row = ClientRow::new(self.id, reactor, details.opened, self.durability);
        row.remote = details.remote;
        row.local = details.local;
        self.rename_row(&mut row);
        self.update_row(&mut row, now);
        row
    }

    /// Updates the fields of the row that change with requests.
    pub(crate) fn update_row(&self, row: &mut ClientRow, now: MonoNs) {
        row.active = now;
        row.db = self.db;
        row.resp = match self.protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        row.durability = self.durability;
        row.set_user(self.identity.user());
        let transaction = self.transaction.as_deref();
        row.queued = transaction.map_or(-1, |t| i32::try_from(t.queued.len()).unwrap_or(i32::MAX));
        row.queued_bytes = transaction.map_or(0, |t| t.queued_bytes);
        let watched = self.watched.as_ref().map_or(0, |watched| watched.keys.len());
        row.watched = u32::try_from(watched).unwrap_or(u32::MAX);
        row.subscriptions = SubscriptionCounts::of(self.subscriptions.as_deref());
        row.monitor = self.monitor;
        row.no_evict = self.no_evict;
        row.no_touch = self.no_touch;
        row.redirects = self.details.redirects();
        row.tracking = self.details.tracking().map(|one| Box::new(tracking_flags(one)));
        row.is_replica = self.is_receiver();
        row.blocked = self.wait.is_some() && !row.is_replica;
        row.unblockable = matches!(self.wait, Some(Wait::Until { .. }));
        row.closing = self.closing;
        row.commands = self.commands;
        row.last_command = self.last_command;
    }

    /// Updates the fields that CLIENT SETNAME and SETINFO change.
    pub(crate) fn rename_row(&self, row: &mut ClientRow) {
        row.name = self.details.name.as_str().into();
        row.library_name = self.details.library_name.as_str().into();
        row.library_version = self.details.library_version.as_str().into();
    }
}

fn tracking_flags(tracking: &Tracking) -> TrackingFlags {
    TrackingFlags {
        is_broadcast: tracking.mode == TrackingMode::Broadcast,
        is_broken: tracking.is_broken,
        redirect: redirect(Some(tracking)),
    }
}

/// The redirection as CLIENT GETREDIR shows it: -1 without tracking, 0 without redirection.
pub(crate) fn redirect(tracking: Option<&Tracking>) -> i64 {
    let id = |tracking: &Tracking| tracking.redirect.map_or(0, |id| id.0);
    tracking.map_or(-1, |tracking| i64::try_from(id(tracking)).unwrap_or(i64::MAX))
}
