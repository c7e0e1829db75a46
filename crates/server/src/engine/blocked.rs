//! Clients that are blocked on keys (BLPOP, XREAD BLOCK): their requests, and the replies to them.
//!
//! A blocked client has a *ticket* at each of its keys, in the order of the clients' arrival. When a
//! key with tickets changes, the reactor that changed it runs the requests of these clients again,
//! the oldest first, as units of their own, and hands each reply to the reactor that has the
//! connection. So the oldest client is served first, before the client that wrote sends its next
//! request, and no reactor waits for another.
//!
//! A client's state decides who ends its wait: the reactor that runs its request again, or its own
//! reactor because of a timeout, CLIENT UNBLOCK or a disconnect.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use base::time::MonoNs;
use parking_lot::Mutex;
use reactor::ConnId;
use store::ReadyKey;
use wire::resp::{OwnedArgs, Protocol};

use crate::config::Durability;
use crate::engine::acl::Identity;
use crate::engine::client_address::ClientAddress;
use crate::engine::gate::Gate;
use crate::engine::inbox::Inbox;
use crate::engine::reply_reservation::UnsentReply;
use crate::engine::requests::RequestId;

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;

/// Reply to a request that was run again.
#[derive(Debug)]
pub(crate) struct BlockedReply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) gate: Gate,
    /// The position of the request's changes, if there are any.
    pub(crate) written: Option<Gate>,
    pub(crate) charge: Option<UnsentReply>,
}

/// A request that waits for keys.
#[derive(Debug)]
pub(crate) struct BlockedRequest {
    pub(crate) id: RequestId,
    pub(crate) args: OwnedArgs,
    pub(crate) keys: Vec<Box<[u8]>>,
}

/// The connection of a blocked client, and what its session contributes to the request.
#[derive(Debug)]
pub(crate) struct BlockedConnection {
    pub(crate) id: ConnId,
    /// The reactor of the connection, which does not move while it is paused.
    pub(crate) reactor: usize,
    pub(crate) remote: ClientAddress,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) name: String,
    pub(crate) db: u8,
    pub(crate) protocol: Protocol,
    pub(crate) durability: Durability,
    pub(crate) identity: Identity,
    pub(crate) no_touch: bool,
    /// Whether CLIENT TRACKING makes the client a reader of the keys that the request reads.
    pub(crate) tracks_reads: bool,
}

#[derive(Debug)]
pub(crate) struct BlockedClient {
    pub(crate) ticket: u64,
    pub(crate) connection: BlockedConnection,
    pub(crate) request: BlockedRequest,
    state: AtomicU8,
    /// When the request is to be run again although no key has changed, in nanoseconds.
    retry_at: AtomicU64,
    reply: Mutex<Option<BlockedReply>>,
}

/// Result of an attempt to run a client's request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The caller runs it.
    Granted,
    /// Another reactor is running it, because another of its keys has changed.
    Running,
    /// The client no longer waits.
    Ended,
}

impl BlockedClient {
    /// Takes the right to run the request. [`BlockedClient::wait_on`] or [`BlockedClients::reply`]
    /// must follow.
    pub(crate) fn claim(&self) -> Claim {
        let (ordering, failed) = (Ordering::AcqRel, Ordering::Acquire);
        match self.state.compare_exchange(WAITING, RUNNING, ordering, failed) {
            Ok(_) => Claim::Granted,
            Err(RUNNING) => Claim::Running,
            Err(_) => Claim::Ended,
        }
    }

    /// The request has run without a result, and is to be run again at a time if no key changes.
    pub(crate) fn wait_on(&self, retry_at: MonoNs) {
        self.retry_at.store(retry_at.0, Ordering::Relaxed);
        let was = self.state.swap(WAITING, Ordering::AcqRel);
        debug_assert_eq!(was, RUNNING, "only the claimant changes the state");
    }

    /// Ends the wait without the request: after a timeout, CLIENT UNBLOCK or a disconnect. Fails
    /// while the request is running.
    pub(crate) fn cancel(&self) -> bool {
        let (ordering, failed) = (Ordering::AcqRel, Ordering::Acquire);
        self.state.compare_exchange(WAITING, ENDED, ordering, failed).is_ok()
    }

    pub(crate) fn retry_at(&self) -> MonoNs {
        MonoNs(self.retry_at.load(Ordering::Relaxed))
    }

    /// Whether a changed key may still serve the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Acquire) != ENDED
    }

    pub(crate) fn take_reply(&self) -> Option<BlockedReply> {
        self.reply.lock().take()
    }
}

/// Tables by ticket, so that reactors seldom meet at one lock.
const SHARDS: usize = 64;

/// All blocked clients of the server.
#[derive(Debug)]
pub(crate) struct BlockedClients {
    next_ticket: AtomicU64,
    by_ticket: [Mutex<HashMap<u64, Arc<BlockedClient>>>; SHARDS],
    /// For each reactor, its clients whose requests have ended.
    served: Vec<Inbox<Vec<Arc<BlockedClient>>>>,
    /// Keys that threads outside the reactors have changed. The first reactor takes them.
    changed_elsewhere: Inbox<VecDeque<ReadyKey>>,
}

impl BlockedClients {
    pub(crate) fn new(reactors: usize) -> BlockedClients {
        BlockedClients {
            next_ticket: AtomicU64::new(1),
            by_ticket: std::array::from_fn(|_| Mutex::default()),
            served: (0..reactors).map(|_| Inbox::default()).collect(),
            changed_elsewhere: Inbox::default(),
        }
    }

    fn shard(&self, ticket: u64) -> &Mutex<HashMap<u64, Arc<BlockedClient>>> {
        let shard = usize::try_from(ticket % SHARDS as u64).expect("below a length");
        &self.by_ticket[shard]
    }

    /// Adds a client. Called under the locks of its keys, so that the tickets of a key are in order.
    pub(crate) fn add(
        &self,
        connection: BlockedConnection,
        request: BlockedRequest,
        retry_at: MonoNs,
    ) -> Arc<BlockedClient> {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(BlockedClient {
            ticket,
            connection,
            request,
            state: AtomicU8::new(WAITING),
            retry_at: AtomicU64::new(retry_at.0),
            reply: Mutex::default(),
        });
        self.shard(ticket).lock().insert(ticket, Arc::clone(&client));
        client
    }

    pub(crate) fn get(&self, ticket: u64) -> Option<Arc<BlockedClient>> {
        self.shard(ticket).lock().get(&ticket).cloned()
    }

    /// Removes a client whose wait has ended.
    pub(crate) fn remove(&self, ticket: u64) {
        self.shard(ticket).lock().remove(&ticket);
    }

    /// Ends the wait of a claimed client, and hands the reply to its reactor, which the caller wakes.
    pub(crate) fn reply(&self, client: Arc<BlockedClient>, reply: BlockedReply) {
        *client.reply.lock() = Some(reply);
        let was = client.state.swap(ENDED, Ordering::AcqRel);
        debug_assert_eq!(was, RUNNING, "only the claimant changes the state");
        self.served[client.connection.reactor].add(|served| served.push(client));
    }

    /// Takes a reactor's clients whose requests have ended.
    pub(crate) fn take_served(&self, reactor: usize) -> Vec<Arc<BlockedClient>> {
        self.served[reactor].take()
    }

    /// Adds keys that a thread outside the reactors has changed. The caller wakes the first reactor.
    pub(crate) fn add_changed_elsewhere(&self, keys: &mut VecDeque<ReadyKey>) {
        self.changed_elsewhere.add(|changed| changed.append(keys));
    }

    pub(crate) fn take_changed_elsewhere(&self, keys: &mut VecDeque<ReadyKey>) {
        let mut changed = self.changed_elsewhere.take();
        if !changed.is_empty() {
            keys.append(&mut changed);
        }
    }
}
