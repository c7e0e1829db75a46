//! Opens files that are not at hand on threads of their own, so that no other client waits for the disk.
//!
//! A client whose file has to be opened pauses. When the file is there, its request is looked at anew
//! with it. Nothing of that is paid for files that are at hand.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use reactor::{ConnId, Mailbox};

use super::answer::Opened;
use crate::content::files::Opener;

/// Files that are opened at once: a disk does several things at a time, and one that hangs for one file
/// may have others.
const THREADS: usize = 4;
/// Names that wait for a thread; clients that ask for more are told to come again.
const NAMES_MAX: usize = 256;

/// A file that was opened, to the worker whose clients wait for it.
pub(crate) type Mail = Arc<Opened>;

/// What is being opened, and for whom. The threads start with the first file; they are not waited for in
/// the end, because a disk may hang.
#[derive(Debug)]
pub(super) struct Disk {
    /// None where no files are served.
    opener: Option<Opener>,
    mailbox: Mailbox<Mail>,
    orders: Option<SyncSender<Vec<u8>>>,
    waiting: HashMap<Vec<u8>, Vec<ConnId>, RandomState>,
}

impl Disk {
    pub(super) fn new(opener: Option<Opener>, mailbox: Mailbox<Mail>) -> Disk {
        Disk { opener, mailbox, orders: None, waiting: HashMap::default() }
    }

    /// Has a file opened for a client. False if too many are being opened.
    pub(super) fn ask(&mut self, name: Vec<u8>, client: ConnId) -> bool {
        if let Some(waiting) = self.waiting.get_mut(&name) {
            waiting.push(client);
            return true;
        }
        if self.orders.is_none() {
            match self.start() {
                Ok(orders) => self.orders = orders,
                Err(error) => tracing::error!(%error, "threads that open files cannot be started"),
            }
        }
        let Some(orders) = &self.orders else { return false };
        if orders.try_send(name.clone()).is_err() {
            return false;
        }
        self.waiting.insert(name, vec![client]);
        true
    }

    /// The clients that wait for a file; from now on nobody does.
    pub(super) fn waiting_for(&mut self, name: &[u8]) -> Vec<ConnId> {
        self.waiting.remove(name).unwrap_or_default()
    }

    fn start(&self) -> io::Result<Option<SyncSender<Vec<u8>>>> {
        let Some(opener) = &self.opener else { return Ok(None) };
        let (orders, received) = sync_channel(NAMES_MAX);
        let received = Arc::new(Mutex::new(received));
        for number in 0..THREADS {
            let (opener, mailbox) = (opener.clone(), self.mailbox.clone());
            let received = Arc::clone(&received);
            let builder = std::thread::Builder::new().name(format!("files{number:02}"));
            builder.spawn(move || open_all(&opener, &received, &mailbox))?;
        }
        Ok(Some(orders))
    }
}

/// Opens what is asked for until nobody asks any more.
fn open_all(opener: &Opener, received: &Mutex<Receiver<Vec<u8>>>, mailbox: &Mailbox<Mail>) {
    loop {
        // One waits for the next name, the others for their turn to wait.
        let next = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(name) = next else { return };
        let file = opener.open(&name);
        if mailbox.send(Arc::new(Opened { name, file })).is_err() {
            // The worker has ended.
            return;
        }
    }
}
