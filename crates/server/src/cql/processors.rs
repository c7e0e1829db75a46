//! The experiment `processor`: reactors share scratch space, as in other servers.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::processor::Processor;
use crate::config::ProcessorSource;
use crate::engine::prepared::PreparedTable;

/// Processors used round robin.
const RING: usize = 256;

/// A processor that is used round robin. It has its own cache lines because two reactors at a time
/// use neighboring slots.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Processor>);

/// Processors that reactors share in some experiments. It has its own cache lines because each
/// request then writes to it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Processors {
    source: ProcessorSource,
    /// Last in, first out. Holds as many processors as were ever in use at once.
    list: Mutex<Vec<Processor>>,
    ring: Box<[Slot]>,
    next: AtomicUsize,
}

impl Processors {
    pub(crate) fn new(source: ProcessorSource) -> Processors {
        let count = if source == ProcessorSource::Rr256 { RING } else { 0 };
        Processors {
            source,
            list: Mutex::default(),
            ring: (0..count).map(|_| Slot::default()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Runs `run` with a shared processor instead of `own`, the reactor's.
    #[inline]
    pub(crate) fn with<R>(&self, own: &mut Processor, run: impl FnOnce(&mut Processor) -> R) -> R {
        match self.source {
            ProcessorSource::PerReactor => run(own),
            ProcessorSource::Rr256 => {
                let turn = self.next.fetch_add(1, Ordering::Relaxed);
                run(&mut self.ring[turn % RING].0.lock())
            }
            ProcessorSource::Mutex => {
                let mut processor = self.list.lock().pop().unwrap_or_default();
                let outcome = run(&mut processor);
                self.list.lock().push(processor);
                outcome
            }
        }
    }

    /// Drops references to statements that were removed from the table.
    pub(crate) fn forget_removed(&self, table: &PreparedTable) {
        for Slot(processor) in &self.ring {
            processor.lock().known.forget_removed(table);
        }
        for processor in self.list.lock().iter_mut() {
            processor.known.forget_removed(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_lends_its_own_processor() {
        for (source, uses_own) in [
            (ProcessorSource::PerReactor, true),
            (ProcessorSource::Rr256, false),
            (ProcessorSource::Mutex, false),
        ] {
            let processors = Processors::new(source);
            let mut own = Processor::default();
            for _ in 0..2 * RING {
                processors.with(&mut own, |processor| processor.record.rows.push(1));
            }
            let bytes = own.record.rows.len();
            assert_eq!(bytes, if uses_own { 2 * RING } else { 0 }, "{source:?}");
            // With one user, one processor is enough for a list; a ring uses each slot in turn.
            assert!(processors.list.lock().len() <= 1);
            assert!(processors.ring.iter().all(|one| one.0.lock().record.rows.len() == 2));
        }
    }
}
