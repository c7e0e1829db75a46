//! Runs operations that may block on a disk in separate threads, so that other clients do not wait:
//! opening files that are not cached, compressing them, and loading pieces of long ones into memory.
//!
//! A client pauses while its file is opened or its next piece is loaded, and then resumes. Cached
//! files do not incur this cost.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use reactor::{ConnId, MAILS_MAX, Mailbox};

use super::answer::Opened;
use crate::content::files::{Lookup, Opener};
use crate::content::long::{LongFile, PieceKey};

/// Number of concurrent disk operations. Disks process several at a time, and one blocked file must
/// not block others.
const THREADS: usize = 4;
/// Maximum number of queued lookups; further clients get 503.
const LOOKUPS_MAX: usize = 256;
/// Maximum number of queued pieces; further clients get 503.
const PIECES_MAX: usize = 4096;
/// Maximum number of upstream addresses in the mailbox: at most one per second is found.
const RESOLVED_MAX: usize = 64;
const _: () = assert!(
    LOOKUPS_MAX + PIECES_MAX + RESOLVED_MAX < MAILS_MAX,
    "the mailbox can hold all results in flight"
);

/// A piece of a long file.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) file: Arc<LongFile>,
    pub(super) number: u64,
    /// Whether the next piece will be needed too.
    pub(super) has_next: bool,
}

impl Piece {
    fn key(&self) -> PieceKey {
        self.file.key(self.number)
    }
}

/// A result, sent to the worker whose clients wait for it.
#[derive(Debug)]
pub(super) enum Mail {
    Opened(Arc<Opened>),
    Piece {
        piece: Piece,
        is_there: bool,
    },
    /// The new address of the upstream.
    Resolved(SocketAddr),
}

#[derive(Debug)]
enum Order {
    Open(Lookup),
    Bring(Piece),
}

/// Pending operations, and the waiting clients. The threads start with the first order. Shutdown
/// does not wait for them, because a disk may hang.
#[derive(Debug)]
pub(super) struct Disk {
    /// `None` if no files are served.
    opener: Option<Opener>,
    mailbox: Mailbox<Mail>,
    orders: Option<Sender<Order>>,
    lookups: HashMap<Lookup, Vec<ConnId>, RandomState>,
    pieces: HashMap<PieceKey, Vec<ConnId>, RandomState>,
}

impl Disk {
    pub(super) fn new(opener: Option<Opener>, mailbox: Mailbox<Mail>) -> Disk {
        let (lookups, pieces) = (HashMap::default(), HashMap::default());
        Disk { opener, mailbox, orders: None, lookups, pieces }
    }

    /// Requests a file for a client. Returns false if too many are queued.
    pub(super) fn ask_file(&mut self, lookup: Lookup, client: ConnId) -> bool {
        if let Some(waiting) = self.lookups.get_mut(&lookup) {
            waiting.push(client);
            return true;
        }
        if self.lookups.len() >= LOOKUPS_MAX || !self.order(Order::Open(lookup.clone())) {
            return false;
        }
        self.lookups.insert(lookup, vec![client]);
        true
    }

    /// Requests a piece for a client. Returns false if too many are queued.
    pub(super) fn ask_piece(&mut self, piece: Piece, client: ConnId) -> bool {
        let key = piece.key();
        if let Some(waiting) = self.pieces.get_mut(&key) {
            waiting.push(client);
            return true;
        }
        if self.pieces.len() >= PIECES_MAX || !self.order(Order::Bring(piece)) {
            return false;
        }
        self.pieces.insert(key, vec![client]);
        true
    }

    /// Removes and returns the clients that wait for a file.
    pub(super) fn waiting_for_file(&mut self, lookup: &Lookup) -> Vec<ConnId> {
        self.lookups.remove(lookup).unwrap_or_default()
    }

    /// Removes and returns the clients that wait for a piece.
    pub(super) fn waiting_for_piece(&mut self, piece: &Piece) -> Vec<ConnId> {
        self.pieces.remove(&piece.key()).unwrap_or_default()
    }

    /// Returns false if no thread is available.
    fn order(&mut self, order: Order) -> bool {
        if self.orders.is_none() {
            match self.start() {
                Ok(orders) => self.orders = orders,
                Err(error) => tracing::error!(%error, "could not start disk threads"),
            }
        }
        self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }

    fn start(&self) -> io::Result<Option<Sender<Order>>> {
        let Some(opener) = &self.opener else { return Ok(None) };
        // The two tables above bound its length.
        let (orders, received) = channel();
        let received = Arc::new(Mutex::new(received));
        for number in 0..THREADS {
            let (opener, mailbox) = (opener.clone(), self.mailbox.clone());
            let received = Arc::clone(&received);
            let builder = std::thread::Builder::new().name(format!("files{number:02}"));
            builder.spawn(move || execute_all(&opener, &received, &mailbox))?;
        }
        Ok(Some(orders))
    }
}

/// Executes orders until the sender is dropped.
fn execute_all(opener: &Opener, received: &Mutex<Receiver<Order>>, mailbox: &Mailbox<Mail>) {
    loop {
        // One thread waits for the next order, the others for the lock.
        let next = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let mail = match next {
            Ok(Order::Open(lookup)) => Mail::Opened(Arc::new(Opened::by(opener, lookup))),
            Ok(Order::Bring(piece)) => {
                let brought = piece.file.load(piece.number, piece.has_next);
                if let Err(error) = brought {
                    tracing::error!(%error, "could not read file being sent");
                }
                Mail::Piece { piece, is_there: brought.is_ok() }
            }
            Err(_) => return,
        };
        if mailbox.send(mail).is_err() {
            // The worker has exited.
            return;
        }
    }
}
