//! Memory for replies, requested while they grow.

use std::cell::{Cell, RefCell};
use std::fmt;

/// Replies up to this size need no permission.
pub const SMALL_REPLY_BYTES: usize = 16 * 1024;

/// Smallest step by which the permitted size grows: a reply of many small elements asks seldom.
const STEP_BYTES_MIN: usize = 64 * 1024;

/// Reserves memory for a reply that is being made.
pub trait ReplyMemory: fmt::Debug + Send {
    /// Reserves the memory of a reply of `bytes` in addition to what is reserved already. Returns
    /// the reason if there is not enough.
    fn reserve(&self, bytes: usize) -> Result<(), String>;

    /// Ends all reservations.
    fn release(&self);
}

/// Permission for replies beyond [`SMALL_REPLY_BYTES`]. Shared by the writers of one thread, of
/// which one at a time writes a large reply.
#[derive(Debug)]
pub struct ReplyRoom {
    memory: Box<dyn ReplyMemory>,
    /// Replies below this size need no request: one more than is granted, or 0 after a refusal.
    free_below_bytes: Cell<usize>,
    granted_bytes: Cell<usize>,
    /// Why the last refused request was refused.
    refusal: RefCell<Option<String>>,
}

impl ReplyRoom {
    pub fn new(memory: Box<dyn ReplyMemory>) -> ReplyRoom {
        ReplyRoom {
            memory,
            free_below_bytes: Cell::new(SMALL_REPLY_BYTES + 1),
            granted_bytes: Cell::new(SMALL_REPLY_BYTES),
            refusal: RefCell::new(None),
        }
    }

    /// Whether a reply may have this many bytes.
    #[inline]
    pub(super) fn admits(&self, bytes: usize) -> bool {
        bytes < self.free_below_bytes.get() || self.request(bytes)
    }

    #[cold]
    fn request(&self, bytes: usize) -> bool {
        if self.is_refused() {
            return false;
        }
        let step = (bytes / 4).max(STEP_BYTES_MIN);
        let reserve = |target: usize| {
            self.memory.reserve(target - self.granted_bytes.get())?;
            self.grant(target);
            Ok(())
        };
        let granted = reserve(bytes.saturating_add(step)).or_else(|_: String| reserve(bytes));
        let Err(reason) = granted else { return true };
        *self.refusal.borrow_mut() = Some(reason);
        self.free_below_bytes.set(0);
        false
    }

    fn grant(&self, bytes: usize) {
        self.granted_bytes.set(bytes);
        self.free_below_bytes.set(bytes.saturating_add(1));
    }

    fn is_refused(&self) -> bool {
        self.free_below_bytes.get() == 0
    }

    /// Why the reply was refused, until it is rewound.
    pub(super) fn refusal(&self) -> Option<String> {
        if self.is_refused() { self.refusal.borrow().clone() } else { None }
    }

    #[inline]
    pub(super) fn forget_refusal(&self) {
        if self.is_refused() {
            self.grant(self.granted_bytes.get());
        }
    }

    /// Ends the reservations, once finished replies are accounted for where they are kept. Returns
    /// why a request was refused since the last call.
    #[inline]
    pub fn release(&self) -> Option<String> {
        self.forget_refusal();
        if self.granted_bytes.get() != SMALL_REPLY_BYTES {
            self.grant(SMALL_REPLY_BYTES);
            self.memory.release();
        }
        self.refusal.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::resp::{Protocol, ReplyWriter};

    #[derive(Debug)]
    struct Limited {
        reserved: Arc<AtomicUsize>,
        bytes_max: usize,
    }

    impl ReplyMemory for Limited {
        fn reserve(&self, bytes: usize) -> Result<(), String> {
            let after = self.reserved.load(Ordering::Relaxed) + bytes;
            if after > self.bytes_max {
                return Err(format!("{after} of {}", self.bytes_max));
            }
            self.reserved.store(after, Ordering::Relaxed);
            Ok(())
        }

        fn release(&self) {
            self.reserved.store(0, Ordering::Relaxed);
        }
    }

    fn room(bytes_max: usize) -> (ReplyRoom, Arc<AtomicUsize>) {
        let reserved = Arc::default();
        let memory = Limited { reserved: Arc::clone(&reserved), bytes_max };
        (ReplyRoom::new(Box::new(memory)), reserved)
    }

    #[test]
    fn a_small_reply_asks_for_nothing() {
        let (room, reserved) = room(0);
        let mut out = Vec::new();
        let mut reply = ReplyWriter::new(&mut out, Protocol::Resp2).within(Some(&room));
        while reply.bytes() < SMALL_REPLY_BYTES - 200 {
            reply.bulk(&[b'v'; 100]);
        }
        assert!(reply.has_room());
        assert_eq!(reserved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_large_element_is_refused_before_it_is_copied() {
        let (room, _) = room(1 << 20);
        let mut out = Vec::new();
        let mut reply = ReplyWriter::new(&mut out, Protocol::Resp3).within(Some(&room));
        let mark = reply.mark();
        for length in [300_000, 300_000, 500_000] {
            reply.bulk(&vec![b'v'; length]);
        }
        assert!(!reply.has_room());
        assert!(reply.bytes() < 600_100, "{}", reply.bytes());
        assert!(reply.refusal().is_some_and(|reason| reason.ends_with("of 1048576")));
        reply.rewind(mark);
        reply.bulk(&vec![b'v'; 800_000]);
        assert!(reply.has_room());
        assert_eq!(reply.refusal(), None);
        assert!(reply.bytes() > 800_000);
    }

    #[test]
    fn every_large_element_is_counted_in_every_form() {
        let value = vec![7; 100_000];
        let writes: [fn(&mut ReplyWriter<'_>, &[u8]); 4] = [
            |reply, value| reply.bulk(value),
            |reply, value| reply.verbatim("txt", value),
            |reply, value| reply.number_text(value),
            |reply, value| reply.error_bytes(value),
        ];
        for write in writes {
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let (room, _) = room(50_000);
                let mut out = Vec::new();
                let mut reply = ReplyWriter::new(&mut out, protocol).within(Some(&room));
                write(&mut reply, &value);
                assert!(!reply.has_room());
                assert!(out.len() < 100);
            }
        }
    }

    #[test]
    fn many_small_elements_ask_in_steps_and_release_all() {
        let (room, reserved) = room(3_000_000);
        let mut out = Vec::new();
        let mut reply = ReplyWriter::new(&mut out, Protocol::Resp2).within(Some(&room));
        while reply.has_room() {
            reply.bulk(b"element");
        }
        let bytes = reply.bytes();
        assert!((2_900_000..=3_100_000).contains(&bytes), "{bytes}");
        assert!(reserved.load(Ordering::Relaxed) + SMALL_REPLY_BYTES + 100 > bytes);
        room.release();
        assert_eq!(reserved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn json_counts_what_escapes_add() {
        use crate::resp::{JsonReply, JsonResults, JsonStrings};
        let (room, _) = room(250_000);
        let (mut out, mut json) = (Vec::new(), JsonReply::default());
        json.begin(JsonStrings::Text, JsonResults::One);
        let mut reply = ReplyWriter::json(&mut out, &mut json).within(Some(&room));
        reply.bulk(&vec![1; 100_000]);
        assert!(!reply.has_room(), "six bytes of JSON for each");
        assert!(out.len() < 100);
    }
}
