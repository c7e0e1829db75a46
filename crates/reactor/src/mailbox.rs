//! How other threads reach a reactor: a waker and bounded queues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// Mails waiting for one reactor. At the limit `send` fails: the sender is faster than the reactor
/// and must decide what may be lost or delayed.
pub const MAILS_MAX: usize = 64 * 1024;

/// The reactor waits in its driver, or is about to.
const ASLEEP: u8 = 0;
/// The reactor is in a turn and no thread has called since the turn began.
const AWAKE: u8 = 1;
/// A thread has called: the next wait must not block.
const CALLED: u8 = 2;

/// Makes a reactor run a turn, from any thread. Only a call to a sleeping reactor costs a system
/// call; a burst of calls, or calls to a busy reactor, cost one atomic exchange each.
#[derive(Debug, Clone)]
pub struct Waker {
    inner: Arc<WakerInner>,
}

#[derive(Debug)]
struct WakerInner {
    state: AtomicU8,
    /// Calls that cost a system call.
    writes: AtomicU64,
    /// None in the simulator, whose reactors never block.
    eventfd: Option<OwnedFd>,
}

impl Waker {
    /// A waker with an eventfd for the driver to watch.
    pub(crate) fn live() -> rustix::io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waker::with(Some(eventfd)))
    }

    pub(crate) fn simulated() -> Waker {
        Waker::with(None)
    }

    fn with(eventfd: Option<OwnedFd>) -> Waker {
        Waker {
            inner: Arc::new(WakerInner {
                state: AtomicU8::new(AWAKE),
                writes: AtomicU64::new(0),
                eventfd,
            }),
        }
    }

    /// Makes the reactor run a turn soon, which sees everything written before this call.
    pub fn wake(&self) {
        let before = self.inner.state.swap(CALLED, Ordering::AcqRel);
        if before == ASLEEP
            && let Some(eventfd) = &self.inner.eventfd
        {
            self.inner.writes.fetch_add(1, Ordering::Relaxed);
            // The only possible failure is a full counter, which means that the reactor has been
            // called 2^64 times and is readable anyway.
            let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Called before waiting: false if a thread has called, so that the wait must not block.
    pub(crate) fn fall_asleep(&self) -> bool {
        let changed =
            self.inner.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        changed.is_ok()
    }

    /// Whether a thread has called and no turn has begun since.
    pub(crate) fn is_called(&self) -> bool {
        self.inner.state.load(Ordering::Acquire) == CALLED
    }

    /// Called after waiting: true if a thread has called.
    pub(crate) fn wake_up(&self) -> bool {
        self.inner.state.swap(AWAKE, Ordering::AcqRel) == CALLED
    }

    /// How many calls cost a system call.
    pub(crate) fn writes(&self) -> u64 {
        self.inner.writes.load(Ordering::Relaxed)
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.eventfd.as_ref().map(AsFd::as_fd)
    }
}

/// A queue into one reactor. Senders lock it once per batch, the reactor once per turn and only
/// when it has items.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    waker: Waker,
    /// Length of the queue, read without the lock.
    len: AtomicUsize,
    queue: Mutex<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    items: Vec<T>,
    closed: bool,
}

impl<T> Inbox<T> {
    pub(crate) fn new(waker: Waker) -> Inbox<T> {
        let queue = Mutex::new(Queue { items: Vec::new(), closed: false });
        Inbox { waker, len: AtomicUsize::new(0), queue }
    }

    /// Returns the item if the reactor has ended or `len_max` are waiting.
    pub(crate) fn push(&self, item: T, len_max: usize) -> Result<(), T> {
        {
            let mut queue = self.queue.lock();
            if queue.closed || queue.items.len() >= len_max {
                return Err(item);
            }
            queue.items.push(item);
            self.len.store(queue.items.len(), Ordering::Release);
        }
        self.waker.wake();
        Ok(())
    }

    /// Moves `items` to the queue; they are lost if the reactor has ended.
    pub(crate) fn push_all(&self, items: &mut Vec<T>) {
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                items.clear();
                return;
            }
            queue.items.append(items);
            self.len.store(queue.items.len(), Ordering::Release);
        }
        self.waker.wake();
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Swaps the queue with the empty `items`.
    pub(crate) fn take(&self, items: &mut Vec<T>) {
        if self.len() != 0 {
            let mut queue = self.queue.lock();
            std::mem::swap(&mut queue.items, items);
            self.len.store(0, Ordering::Release);
        }
    }

    /// Rejects further items and returns the waiting ones.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.len.store(0, Ordering::Release);
        std::mem::take(&mut queue.items)
    }
}

/// Sends mail to one reactor from any thread.
#[derive(Debug)]
pub struct Mailbox<M> {
    pub(crate) inbox: Arc<Inbox<M>>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Mailbox { inbox: Arc::clone(&self.inbox) }
    }
}

/// The mail was not sent: [`MAILS_MAX`] are waiting, or the reactor has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reactor's mailbox is full or closed")]
pub struct Undelivered<M>(pub M);

impl<M> Mailbox<M> {
    pub(crate) fn new(waker: Waker) -> Mailbox<M> {
        Mailbox { inbox: Arc::new(Inbox::new(waker)) }
    }

    /// Puts `mail` into the queue and wakes the reactor.
    pub fn send(&self, mail: M) -> Result<(), Undelivered<M>> {
        self.inbox.push(mail, MAILS_MAX).map_err(Undelivered)
    }

    /// Whether the reactor has ended.
    pub fn is_closed(&self) -> bool {
        self.inbox.queue.lock().closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_during_a_turn_forbids_the_next_sleep() {
        let waker = Waker::simulated();
        assert!(waker.fall_asleep());
        waker.wake();
        assert!(waker.wake_up());
        waker.wake();
        assert!(!waker.fall_asleep());
        assert!(waker.wake_up());
        assert!(waker.fall_asleep());
    }

    #[test]
    fn only_the_first_call_to_a_sleeper_writes() {
        let waker = Waker::live().unwrap();
        assert!(waker.fall_asleep());
        waker.wake();
        waker.wake();
        waker.clone().wake();
        let mut count = [0_u8; 8];
        rustix::io::read(waker.fd().unwrap(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        assert_eq!(waker.writes(), 1);
    }

    #[test]
    fn a_full_or_closed_mailbox_returns_the_mail() {
        let mailbox = Mailbox::new(Waker::simulated());
        for mail in 0..MAILS_MAX {
            mailbox.send(mail).unwrap();
        }
        assert_eq!(mailbox.send(7), Err(Undelivered(7)));
        assert_eq!(mailbox.inbox.close().len(), MAILS_MAX);
        assert_eq!(mailbox.send(8), Err(Undelivered(8)));
    }
}
