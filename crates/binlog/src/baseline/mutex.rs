//! One lock, held while each record is written.

use parking_lot::Mutex;

use crate::baseline::Draft;
use crate::baseline::tail::Tail;
use crate::log::Poisoned;
use crate::record::Lsn;

#[derive(Debug)]
pub(super) struct MutexLog(Mutex<Locked>);

#[derive(Debug)]
struct Locked {
    tail: Tail,
    /// Memory of the record being written.
    bytes: Vec<u8>,
}

impl MutexLog {
    pub(super) fn new(tail: Tail) -> Self {
        Self(Mutex::new(Locked { tail, bytes: Vec::new() }))
    }

    pub(super) fn append(&self, draft: Draft<'_>) -> Result<Lsn, Poisoned> {
        let mut locked = self.0.lock();
        let Locked { tail, bytes } = &mut *locked;
        bytes.clear();
        let end = draft.encode(bytes, tail.at());
        tail.write(bytes, 1)?;
        Ok(end)
    }

    pub(super) fn with_tail<T>(&self, act: impl FnOnce(&mut Tail) -> T) -> T {
        act(&mut self.0.lock().tail)
    }
}
