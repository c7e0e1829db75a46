//! A row of CLIENT LIST, which other connections can read.

use std::net::SocketAddr;
use std::sync::Arc;

use base::time::MonoNs;
use reactor::ConnId;

use crate::config::Durability;
use crate::engine::acl::{DEFAULT_USER, User};
use crate::engine::client_address::ClientAddress;
use crate::engine::pubsub::{Kind, Subscriptions};
use crate::engine::requests::RequestId;
use crate::protocol::ClientProtocol;

/// Upper bound on the memory of an idle connection in bytes: its session, its row, its slot in the
/// reactor.
pub(crate) const CLIENT_BYTES: u64 = 1048;

/// The server's guarantee: ten thousand idle connections take less than 10 MiB.
const _: () = assert!(10_000 * CLIENT_BYTES < 10 << 20);

/// Subscriptions of a client, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionCounts {
    pub(crate) channels: u32,
    pub(crate) patterns: u32,
    pub(crate) shard_channels: u32,
}

impl SubscriptionCounts {
    pub(crate) fn of(subscriptions: Option<&Subscriptions>) -> SubscriptionCounts {
        let Some(all) = subscriptions else { return SubscriptionCounts::default() };
        let count = |kind| u32::try_from(all.count(kind)).unwrap_or(u32::MAX);
        SubscriptionCounts {
            channels: count(Kind::Channel),
            patterns: count(Kind::Pattern),
            shard_channels: count(Kind::ShardChannel),
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == SubscriptionCounts::default()
    }
}

/// CLIENT TRACKING of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrackingFlags {
    pub(crate) is_broadcast: bool,
    /// The client to which messages are redirected is gone.
    pub(crate) is_broken: bool,
    /// As CLIENT GETREDIR shows it.
    pub(crate) redirect: i64,
}

/// One client as CLIENT LIST shows it.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, each a letter of the list")]
pub(crate) struct ClientRow {
    pub(crate) id: u64,
    pub(crate) reactor: usize,
    pub(crate) remote: ClientAddress,
    pub(crate) local: Option<SocketAddr>,
    /// Boxed, like the following: they need 8 bytes less.
    pub(crate) name: Box<str>,
    pub(crate) library_name: Box<str>,
    pub(crate) library_version: Box<str>,
    pub(crate) opened: MonoNs,
    pub(crate) active: MonoNs,
    pub(crate) db: u8,
    pub(crate) protocol: ClientProtocol,
    /// RESP version; 0: the client uses another protocol.
    pub(crate) resp: u8,
    pub(crate) durability: Durability,
    /// `None`: the protocol has no users.
    pub(crate) user: Option<Arc<User>>,
    /// Queued commands, or -1 outside MULTI.
    pub(crate) queued: i32,
    pub(crate) queued_bytes: usize,
    pub(crate) watched: u32,
    pub(crate) subscriptions: SubscriptionCounts,
    pub(crate) monitor: bool,
    /// Receives an RDB file.
    pub(crate) is_replica: bool,
    pub(crate) is_tls: bool,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
    /// CLIENT CAPA REDIRECT.
    pub(crate) redirects: bool,
    /// `None`: no tracking. Boxed, to keep the row small.
    pub(crate) tracking: Option<Box<TrackingFlags>>,
    pub(crate) blocked: bool,
    /// Blocked in a way that CLIENT UNBLOCK can end.
    pub(crate) unblockable: bool,
    pub(crate) closing: bool,
    /// CLIENT KILL has marked the client, and its reactor will close it.
    pub(crate) killed: bool,
    /// Known once its reactor has measured its buffers.
    pub(crate) fd: Option<u32>,
    pub(crate) query_bytes: usize,
    pub(crate) output_bytes: usize,
    /// Heap memory of all buffers.
    pub(crate) buffer_bytes: usize,
    /// Input and output share of `buffer_bytes`, capped at 4 GiB to keep the row small.
    pub(crate) query_heap_bytes: u32,
    pub(crate) reply_heap_bytes: u32,
    pub(crate) commands: u64,
    pub(crate) last_command: RequestId,
    /// The low bits of `commands` when they were last taken: 32 bits to keep the row small.
    pub(crate) commands_reported: u32,
}

impl ClientRow {
    /// Returns the row of a client that has run no command.
    pub(crate) fn new(
        id: ConnId,
        reactor: usize,
        opened: MonoNs,
        durability: Durability,
    ) -> ClientRow {
        ClientRow {
            id: id.0,
            reactor,
            remote: ClientAddress::default(),
            local: None,
            name: Box::default(),
            library_name: Box::default(),
            library_version: Box::default(),
            opened,
            active: opened,
            db: 0,
            protocol: ClientProtocol::Resp,
            resp: 2,
            durability,
            user: None,
            queued: -1,
            queued_bytes: 0,
            watched: 0,
            subscriptions: SubscriptionCounts::default(),
            monitor: false,
            is_replica: false,
            is_tls: false,
            no_evict: false,
            no_touch: false,
            redirects: false,
            tracking: None,
            blocked: false,
            unblockable: false,
            closing: false,
            killed: false,
            fd: None,
            query_bytes: 0,
            output_bytes: 0,
            buffer_bytes: 0,
            query_heap_bytes: 0,
            reply_heap_bytes: 0,
            commands: 0,
            last_command: 0,
            commands_reported: 0,
        }
    }

    /// Sets the user. Usually it is the same, which costs no shared write.
    #[inline]
    pub(crate) fn set_user(&mut self, user: &Arc<User>) {
        if !self.user.as_ref().is_some_and(|known| Arc::ptr_eq(known, user)) {
            self.user = Some(Arc::clone(user));
        }
    }

    /// The server's address to which the client is connected.
    pub(crate) fn local_address(&self) -> ClientAddress {
        match self.remote {
            ClientAddress::UnixSocket => ClientAddress::UnixSocket,
            ClientAddress::Internet(_) | ClientAddress::Unknown => self.local.into(),
        }
    }

    pub(crate) fn user_name(&self) -> &[u8] {
        self.user.as_ref().map_or(DEFAULT_USER.as_bytes(), |user| &user.name)
    }

    /// Takes the requests since the last call, of which there are fewer than 2^32.
    pub(crate) fn take_requests(&mut self) -> u32 {
        let commands =
            u32::try_from(self.commands & u64::from(u32::MAX)).expect("masked to 32 bits");
        commands.wrapping_sub(std::mem::replace(&mut self.commands_reported, commands))
    }

    /// Updates the fields that only the reactor knows.
    pub(crate) fn measure(&mut self, info: &reactor::ConnInfo) {
        self.fd = u32::try_from(info.fd).ok();
        self.query_bytes = info.input_bytes;
        self.output_bytes = info.output_bytes;
        self.buffer_bytes = info.buffer_bytes;
        self.query_heap_bytes = u32::try_from(info.input_heap_bytes).unwrap_or(u32::MAX);
        self.reply_heap_bytes = u32::try_from(info.output_heap_bytes).unwrap_or(u32::MAX);
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        CLIENT_BYTES + (self.buffer_bytes + self.queued_bytes) as u64
    }
}
