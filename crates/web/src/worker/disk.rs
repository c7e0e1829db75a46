//! Does what may take a disk's time on threads of its own, so that no other client waits for it: opens
//! files that are not at hand, and brings pieces of long ones into memory.
//!
//! A client whose file has to be opened, or whose next piece is not in memory, pauses. When it is there,
//! the client goes on with it. Nothing of that is paid for what is at hand.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use reactor::{ConnId, MAILS_MAX, Mailbox};

use super::answer::Opened;
use crate::content::files::Opener;
use crate::content::long::{LongFile, PieceKey};

/// Things that are asked of the disk at once: it does several at a time, and one that hangs for one file
/// may have others.
const THREADS: usize = 4;
/// Names that wait for a thread; clients that ask for more are told to come again.
const NAMES_MAX: usize = 256;
/// Pieces that wait for a thread; the same.
const PIECES_MAX: usize = 4096;
/// Addresses of the upstream in the mailbox: one per second is found at most.
const RESOLVED_MAX: usize = 64;
const _: () = assert!(
    NAMES_MAX + PIECES_MAX + RESOLVED_MAX < MAILS_MAX,
    "the mailbox takes all that is under way"
);

/// A piece of a long file.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) file: Arc<LongFile>,
    pub(super) number: u64,
    /// The next one will be wanted, too.
    pub(super) goes_on: bool,
}

impl Piece {
    fn key(&self) -> PieceKey {
        self.file.key(self.number)
    }
}

/// What is done, to the worker whose clients wait for it.
#[derive(Debug)]
pub(super) enum Mail {
    Opened(Arc<Opened>),
    Piece {
        piece: Piece,
        is_there: bool,
    },
    /// The upstream has this address now.
    Resolved(SocketAddr),
}

#[derive(Debug)]
enum Order {
    Open(Vec<u8>),
    Bring(Piece),
}

/// What is under way, and for whom. The threads start with the first order; they are not waited for in
/// the end, because a disk may hang.
#[derive(Debug)]
pub(super) struct Disk {
    /// None where no files are served.
    opener: Option<Opener>,
    mailbox: Mailbox<Mail>,
    orders: Option<Sender<Order>>,
    names: HashMap<Vec<u8>, Vec<ConnId>, RandomState>,
    pieces: HashMap<PieceKey, Vec<ConnId>, RandomState>,
}

impl Disk {
    pub(super) fn new(opener: Option<Opener>, mailbox: Mailbox<Mail>) -> Disk {
        let (names, pieces) = (HashMap::default(), HashMap::default());
        Disk { opener, mailbox, orders: None, names, pieces }
    }

    /// Has a file opened for a client. False if too many are being opened.
    pub(super) fn ask_name(&mut self, name: Vec<u8>, client: ConnId) -> bool {
        if let Some(waiting) = self.names.get_mut(&name) {
            waiting.push(client);
            return true;
        }
        if self.names.len() >= NAMES_MAX || !self.order(Order::Open(name.clone())) {
            return false;
        }
        self.names.insert(name, vec![client]);
        true
    }

    /// Has a piece brought into memory for a client. False if too many are.
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

    /// The clients that wait for a file; from now on nobody does.
    pub(super) fn waiting_for_name(&mut self, name: &[u8]) -> Vec<ConnId> {
        self.names.remove(name).unwrap_or_default()
    }

    /// The clients that wait for a piece; from now on nobody does.
    pub(super) fn waiting_for_piece(&mut self, piece: &Piece) -> Vec<ConnId> {
        self.pieces.remove(&piece.key()).unwrap_or_default()
    }

    /// False if there is nobody to do it.
    fn order(&mut self, order: Order) -> bool {
        if self.orders.is_none() {
            match self.start() {
                Ok(orders) => self.orders = orders,
                Err(error) => tracing::error!(%error, "threads for the disk cannot be started"),
            }
        }
        self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }

    fn start(&self) -> io::Result<Option<Sender<Order>>> {
        let Some(opener) = &self.opener else { return Ok(None) };
        // Bounded by the two tables above.
        let (orders, received) = channel();
        let received = Arc::new(Mutex::new(received));
        for number in 0..THREADS {
            let (opener, mailbox) = (opener.clone(), self.mailbox.clone());
            let received = Arc::clone(&received);
            let builder = std::thread::Builder::new().name(format!("files{number:02}"));
            builder.spawn(move || obey_all(&opener, &received, &mailbox))?;
        }
        Ok(Some(orders))
    }
}

/// Does what is asked for until nobody asks any more.
fn obey_all(opener: &Opener, received: &Mutex<Receiver<Order>>, mailbox: &Mailbox<Mail>) {
    loop {
        // One waits for the next order, the others for their turn to wait.
        let next = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let mail = match next {
            Ok(Order::Open(name)) => {
                let file = opener.open(&name);
                Mail::Opened(Arc::new(Opened { name, file }))
            }
            Ok(Order::Bring(piece)) => {
                let brought = piece.file.bring(piece.number, piece.goes_on);
                if let Err(error) = brought {
                    tracing::error!(%error, "a file that is being sent cannot be read");
                }
                Mail::Piece { piece, is_there: brought.is_ok() }
            }
            Err(_) => return,
        };
        if mailbox.send(mail).is_err() {
            // The worker has ended.
            return;
        }
    }
}
