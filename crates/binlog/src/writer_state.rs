//! The state of the writer, under its lock.

use base::time::MonoNs;

use crate::gathering::Gathering;
use crate::lane::LaneBuffer;
use crate::record::{Lsn, Mark};
use crate::segment::Segment;
use crate::window::Window;

/// State that only the writer touches.
#[derive(Debug)]
pub(crate) struct WriterState {
    pub(crate) window: Window,
    /// One empty buffer for each lane, which the writer swaps with the lane's own.
    pub(crate) taken: Vec<LaneBuffer>,
    pub(crate) lane_cap_bytes: usize,
    pub(crate) tail: WriteTail,
    pub(crate) gathering: Gathering,
    /// Users' records written since the last sync.
    pub(crate) unsynced_records: u64,
    pub(crate) written_at: MonoNs,
    pub(crate) synced_at: MonoNs,
    /// When to retry to create the next segment; `None` unless the log is stalled.
    pub(crate) retry_at: Option<MonoNs>,
}

/// Where the next byte is written, and what is not synced yet.
#[derive(Debug)]
pub(crate) struct WriteTail {
    pub(crate) segment: Segment,
    pub(crate) at: Lsn,
    pub(crate) synced: Lsn,
    /// Filled segments that are not synced, oldest first.
    pub(crate) unsynced: Vec<Segment>,
    /// What the next marks will state, oldest first: what was found durable at the start, and what
    /// each sync since the last marks has made durable.
    pub(crate) unmarked: Vec<Mark>,
    /// Write system calls so far.
    pub(crate) writes: u64,
}

impl WriterState {
    pub(crate) fn new(
        segment: Segment,
        at: Lsn,
        window: Window,
        lanes: usize,
        lane_cap_bytes: usize,
    ) -> Self {
        let found = (at > Lsn(0)).then_some(Mark { durable: at, unix_us: None });
        Self {
            window,
            taken: (0..lanes).map(|_| LaneBuffer::with_capacity(lane_cap_bytes)).collect(),
            lane_cap_bytes,
            tail: WriteTail {
                segment,
                at,
                synced: at,
                unsynced: Vec::new(),
                unmarked: found.into_iter().collect(),
                writes: 0,
            },
            gathering: Gathering::default(),
            unsynced_records: 0,
            written_at: MonoNs(0),
            synced_at: MonoNs(0),
            retry_at: None,
        }
    }
}
