//! Which server assigned the positions of the stream, and where they are in the log of this one.
//!
//! All servers of a replication tree share the positions of one stream. The server that takes
//! writes assigns them: the position of a record is the position in its own log, plus a constant.
//! The log of a replica has positions of its own; its records name the positions of the stream.
//!
//! Each time a replica becomes a master it begins an epoch. Two servers whose histories name the
//! same epoch have the same records up to any position of it that both have reached.

use binlog::Lsn;
use wire::replication::{EPOCHS_MAX, Epoch, EpochId, put_epochs, take_epochs};

/// Eras that a server remembers; positions of older ones are no longer found.
const ERAS_MAX: usize = 16;
const ERA_BYTES: usize = 17;
const VERSION: u8 = 1;

/// From a position in the log on, how its records are related to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Era {
    pub(crate) log: Lsn,
    /// The position of the stream that corresponds to `log`.
    pub(crate) stream: u64,
    /// This server assigned the positions. Otherwise the records name them.
    pub(crate) is_own: bool,
}

/// The epochs of the stream, oldest first, and the eras of the local log.
///
/// Without epochs, this server has no part in a stream: it has never had a replica or a source, or
/// the copy of its source's data is incomplete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    epochs: Vec<Epoch>,
    eras: Vec<Era>,
}

/// Where a replica can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this position of the log.
    At(Lsn),
    /// After the record that names the position, which is at this position of the log or later.
    After(Lsn),
}

impl History {
    pub(crate) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    pub(crate) fn epochs(&self) -> &[Epoch] {
        &self.epochs
    }

    /// The newest epoch.
    pub(crate) fn epoch(&self) -> Option<&Epoch> {
        self.epochs.last()
    }

    /// The epoch before it.
    pub(crate) fn previous(&self) -> Option<&Epoch> {
        self.epochs.len().checked_sub(2).map(|at| &self.epochs[at])
    }

    /// The era of records that this server writes for its own clients now, if it does.
    pub(crate) fn own(&self) -> Option<&Era> {
        self.eras.last().filter(|era| era.is_own)
    }

    /// Whether this server has begun the epoch, and written all records since.
    pub(crate) fn is_own_epoch(&self, id: &EpochId) -> bool {
        self.own().is_some_and(|own| {
            self.epochs.iter().any(|epoch| epoch.id == *id && epoch.start >= own.stream)
        })
    }

    /// The newest epoch that begins no later than a position. A server that lags may know newer ones.
    pub(crate) fn epoch_at(&self, stream: u64) -> Option<&Epoch> {
        self.epochs.iter().rev().find(|epoch| epoch.start <= stream)
    }

    /// The position of the stream at a position of the current era, which must be the server's own.
    pub(crate) fn position(&self, log: Lsn) -> Option<u64> {
        self.own().map(|era| era.stream + log.0.saturating_sub(era.log.0))
    }

    /// Begins an epoch in which this server assigns the positions: from `log` and `stream` on.
    pub(crate) fn begin_epoch(&mut self, id: EpochId, log: Lsn, stream: u64) {
        // This server followed a source with these, but has not reached them.
        self.epochs.retain(|epoch| epoch.start <= stream);
        self.add_epoch(Epoch { id, start: stream });
        self.add_era(Era { log, stream, is_own: true });
    }

    /// Begins an epoch of the same author as the newest one, at a position that it has assigned.
    pub(crate) fn continue_in_epoch(&mut self, id: EpochId, stream: u64) {
        self.add_epoch(Epoch { id, start: stream });
    }

    fn add_epoch(&mut self, epoch: Epoch) {
        if self.epochs.len() == EPOCHS_MAX {
            self.epochs.remove(0);
        }
        self.epochs.push(epoch);
    }

    /// Follows a source with these epochs: records from `log` on name their positions.
    pub(crate) fn follow(&mut self, epochs: Vec<Epoch>, log: Lsn, stream: u64) {
        self.epochs = epochs;
        if self.eras.last().is_none_or(|era| era.is_own) {
            self.add_era(Era { log, stream, is_own: false });
        }
    }

    fn add_era(&mut self, era: Era) {
        if self.eras.len() == ERAS_MAX {
            self.eras.remove(0);
        }
        self.eras.push(era);
    }

    /// Whether a server that has the records of an epoch up to `stream` has what this server has.
    /// `end`: the position that this server has reached.
    pub(crate) fn includes(&self, id: &EpochId, stream: u64, end: u64) -> bool {
        let Some(at) = self.epochs.iter().rposition(|epoch| epoch.id == *id) else { return false };
        let epoch_end = self.epochs.get(at + 1).map_or(end, |next| next.start);
        (self.epochs[at].start..=epoch_end).contains(&stream)
    }

    /// The position up to which this server, at `own_end`, and one with these epochs, at `end`, have
    /// the same records. `None`: they have no epoch in common.
    pub(crate) fn common(&self, epochs: &[Epoch], own_end: u64, end: u64) -> Option<u64> {
        let (own, other) = self.epochs.iter().enumerate().rev().find_map(|(own, epoch)| {
            Some((own, epochs.iter().rposition(|other| other.id == epoch.id)?))
        })?;
        let end_of = |epochs: &[Epoch], at: usize, end| epochs.get(at + 1).map_or(end, |e| e.start);
        Some(end_of(&self.epochs, own, own_end).min(end_of(epochs, other, end)))
    }

    /// Where the log continues after a position of the stream. `None`: before all eras.
    pub(crate) fn find(&self, stream: u64) -> Option<Place> {
        let era = self.eras.iter().rev().find(|era| era.stream <= stream)?;
        Some(if era.is_own || era.stream == stream {
            Place::At(Lsn(era.log.0 + stream - era.stream))
        } else {
            Place::After(era.log)
        })
    }

    /// The own era that contains a record which ends at this position of the log.
    pub(crate) fn own_at(&self, end: Lsn) -> Option<&Era> {
        self.eras.iter().rev().find(|era| era.log < end).filter(|era| era.is_own)
    }

    // The bytes are part of the log's format: docs/internals/replication.md.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let eras = u8::try_from(self.eras.len()).expect("at most ERAS_MAX");
        let mut out = vec![VERSION, eras];
        for era in &self.eras {
            out.extend_from_slice(&era.log.0.to_le_bytes());
            out.extend_from_slice(&era.stream.to_le_bytes());
            out.push(u8::from(era.is_own));
        }
        put_epochs(&self.epochs, &mut out);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<History> {
        let ([VERSION, count], rest) = bytes.split_first_chunk::<2>()? else { return None };
        let (eras, rest) = rest.split_at_checked(usize::from(*count) * ERA_BYTES)?;
        let le64 = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let era = |bytes: &[u8; ERA_BYTES]| Era {
            log: Lsn(le64(&bytes[..8])),
            stream: le64(&bytes[8..16]),
            is_own: bytes[16] != 0,
        };
        let eras = eras.as_chunks::<ERA_BYTES>().0.iter().map(era).collect();
        let epochs = if rest.is_empty() { Vec::new() } else { take_epochs(rest)? };
        Some(History { epochs, eras })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: u8) -> EpochId {
        [digit; 40]
    }

    #[test]
    fn a_promotion_forgets_epochs_that_were_not_reached() {
        let mut history = History::default();
        let epochs = [(b'a', 0), (b'b', 90), (b'c', 200)];
        let epochs = epochs.map(|(digit, start)| Epoch { id: id(digit), start });
        history.follow(epochs.to_vec(), Lsn(50), 50);
        history.begin_epoch(id(b'd'), Lsn(1000), 120);
        let [a, b, _] = epochs;
        assert_eq!(history.epochs(), [a, b, Epoch { id: id(b'd'), start: 120 }]);
        assert_eq!(History::decode(&history.encode()), Some(history));
    }

    /// A server that was a master, then a replica from position 100 of the stream to 250, and is a
    /// master again.
    fn example() -> History {
        let mut history = History::default();
        history.begin_epoch(id(b'a'), Lsn(0), 0);
        let epochs = [history.epochs(), &[Epoch { id: id(b'b'), start: 90 }]].concat();
        history.follow(epochs, Lsn(100), 100);
        history.begin_epoch(id(b'c'), Lsn(1000), 250);
        history
    }

    #[test]
    fn positions_of_the_current_era() {
        let history = example();
        assert_eq!(history.position(Lsn(1010)), Some(260));
        assert_eq!(history.previous().map(|epoch| epoch.id), Some(id(b'b')));
        let mut replica = history.clone();
        replica.follow(history.epochs().to_vec(), Lsn(1100), 350);
        assert_eq!(replica.position(Lsn(1200)), None);
        assert_eq!(History::default().position(Lsn(5)), None);
    }

    #[test]
    fn a_divergent_tail_is_not_included() {
        let history = example();
        assert!(history.includes(&id(b'a'), 90, 300));
        assert!(!history.includes(&id(b'a'), 91, 300), "epoch b has begun at 90");
        assert!(history.includes(&id(b'b'), 250, 300));
        assert!(!history.includes(&id(b'b'), 89, 300));
        assert!(!history.includes(&id(b'b'), 251, 300));
        assert!(history.includes(&id(b'c'), 300, 300));
        assert!(!history.includes(&id(b'c'), 301, 300), "this server has lost records");
        assert!(!history.includes(&id(b'd'), 90, 300));
    }

    #[test]
    fn the_common_part_ends_with_an_epoch_or_with_the_data() {
        let history = example();
        let check = |epochs: &[(u8, u64)], end, expected| {
            let epochs: Vec<_> = epochs
                .iter()
                .map(|(digit, start)| Epoch { id: id(*digit), start: *start })
                .collect();
            assert_eq!(history.common(&epochs, 300, end), expected, "{epochs:?}");
        };
        check(&[(b'a', 0), (b'b', 90), (b'c', 250)], 310, Some(300));
        check(&[(b'a', 0), (b'b', 90), (b'c', 250)], 290, Some(290));
        check(&[(b'a', 0), (b'b', 90), (b'c', 250), (b'd', 280)], 400, Some(280));
        check(&[(b'a', 0), (b'b', 90), (b'd', 200)], 400, Some(200));
        check(&[(b'a', 0), (b'b', 90), (b'd', 270)], 400, Some(250));
        check(&[(b'd', 0)], 400, None);
    }

    #[test]
    fn positions_of_earlier_eras_are_found() {
        let history = example();
        assert_eq!(history.find(40), Some(Place::At(Lsn(40))));
        assert_eq!(history.find(100), Some(Place::At(Lsn(100))));
        assert_eq!(history.find(101), Some(Place::After(Lsn(100))));
        assert_eq!(history.find(250), Some(Place::At(Lsn(1000))));
        assert_eq!(history.find(260), Some(Place::At(Lsn(1010))));
        let is_own = |end| history.own_at(Lsn(end)).is_some();
        assert_eq!([100, 101, 1000, 1001].map(is_own), [true, false, false, true]);
        let mut late = History::default();
        late.follow(history.epochs().to_vec(), Lsn(7), 300);
        assert_eq!(late.find(299), None);
    }

    #[test]
    fn the_bytes_hold_everything() {
        for history in [History::default(), example()] {
            let bytes = history.encode();
            assert_eq!(History::decode(&bytes), Some(history));
            for cut in 0..bytes.len() {
                assert_ne!(
                    History::decode(&bytes[..cut]).map(|one| one.encode()),
                    Some(bytes.clone())
                );
            }
        }
    }

    /// A master begins an epoch where its log had ended, which a replica that lags has not reached.
    #[test]
    fn a_replica_that_lags_continues_in_the_epoch_that_it_has_reached() {
        let mut master = example();
        master.continue_in_epoch(id(b'd'), 300);
        let epoch = master.epoch_at(280).unwrap();
        assert_eq!(epoch.id, id(b'c'));
        assert!(master.includes(&epoch.id, 280, 400));
        assert!(!master.includes(&id(b'd'), 280, 400));
        assert!(!master.includes(&id(b'c'), 301, 400), "the author has lost that");
        assert_eq!(master.epoch_at(300).unwrap().id, id(b'd'));
        assert!(["c", "d"].iter().all(|name| master.is_own_epoch(&id(name.as_bytes()[0]))));
        assert!(!master.is_own_epoch(&id(b'b')));
    }

    #[test]
    fn old_epochs_and_eras_are_dropped() {
        let mut history = History::default();
        for number in 0..200 {
            history.begin_epoch(id(b'a'), Lsn(number), number);
        }
        assert_eq!((history.epochs.len(), history.eras.len()), (EPOCHS_MAX, ERAS_MAX));
        assert_eq!(History::decode(&history.encode()), Some(history));
    }
}
