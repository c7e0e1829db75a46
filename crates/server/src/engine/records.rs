//! Record kinds of the log. The numbers are part of the log's format.

use binlog::Record;

/// One or more mutations that are applied atomically: see `store::Mutation` for their bytes.
pub(crate) const MUTATIONS: u8 = 1;

/// Like [`MUTATIONS`], followed by eight bytes: the newest timestamp that the server assigned to a
/// write.
pub(crate) const STAMPED_MUTATIONS: u8 = 2;

/// What a replica has applied: like [`STAMPED_MUTATIONS`], with the lowest number if there is no
/// timestamp, followed by eight bytes: the position in the stream where the record ends.
pub(crate) const REPLICATED_MUTATIONS: u8 = 3;

const STAMP_BYTES: usize = size_of::<i64>();
const POSITION_BYTES: usize = size_of::<u64>();
const NO_STAMP: i64 = i64::MIN;

/// Maximum record of a unit of work. Small in unit tests, so that they need not fill a gigabyte.
pub(crate) const RECORD_BYTES_MAX: usize =
    if cfg!(test) { 4 << 20 } else { binlog::PAYLOAD_BYTES_MAX - STAMP_BYTES - POSITION_BYTES };

const _: () = assert!(RECORD_BYTES_MAX + STAMP_BYTES + POSITION_BYTES <= binlog::PAYLOAD_BYTES_MAX);
const _: () = assert!(MUTATIONS != STAMPED_MUTATIONS);
const _: () = assert!(STAMPED_MUTATIONS < binlog::KIND_MARK, "marks belong to the log");

/// Contents of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contents<'a> {
    payload: &'a [u8],
    pub(crate) mutations: &'a [u8],
    /// The newest timestamp that a server assigned to a write.
    pub(crate) stamp: Option<i64>,
    /// Of a replica's record: its end in the stream.
    pub(crate) position: Option<u64>,
}

impl<'a> Contents<'a> {
    /// Kind of the record as a master writes it.
    pub(crate) fn kind(&self) -> u8 {
        if self.stamp.is_some() { STAMPED_MUTATIONS } else { MUTATIONS }
    }

    /// Payload of the record as a master writes it.
    pub(crate) fn plain(&self) -> &'a [u8] {
        let stamp_bytes = if self.stamp.is_some() { STAMP_BYTES } else { 0 };
        &self.payload[..self.mutations.len() + stamp_bytes]
    }
}

/// What records and snapshots state besides the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Greatest timestamp that the server assigned to a write in the data, or a greater one.
    pub(crate) newest_timestamp: i64,
    /// Of a replica: the position in the stream up to which the data follows it.
    pub(crate) stream_position: u64,
}

impl Progress {
    /// Notes the next record.
    pub(crate) fn note(&mut self, contents: &Contents<'_>) {
        self.newest_timestamp = self.newest_timestamp.max(contents.stamp.unwrap_or(i64::MIN));
        self.stream_position = contents.position.unwrap_or(self.stream_position);
    }
}

/// Returns the contents of a record. `None` for other kinds of records.
pub(crate) fn contents<'a>(record: &Record<'a>) -> Option<Contents<'a>> {
    parse(record.kind, record.payload)
}

/// Returns the contents of a record of this kind.
pub(crate) fn parse(kind: u8, payload: &[u8]) -> Option<Contents<'_>> {
    let plain = Contents { payload, mutations: payload, stamp: None, position: None };
    match kind {
        MUTATIONS => Some(plain),
        STAMPED_MUTATIONS => {
            let (mutations, stamp) = payload.split_last_chunk::<STAMP_BYTES>()?;
            Some(Contents { mutations, stamp: Some(i64::from_le_bytes(*stamp)), ..plain })
        }
        REPLICATED_MUTATIONS => {
            let (stamped, position) = payload.split_last_chunk::<POSITION_BYTES>()?;
            let (mutations, stamp) = stamped.split_last_chunk::<STAMP_BYTES>()?;
            let stamp = Some(i64::from_le_bytes(*stamp)).filter(|stamp| *stamp != NO_STAMP);
            let position = Some(u64::from_le_bytes(*position));
            Some(Contents { payload, mutations, stamp, position })
        }
        _ => None,
    }
}

/// Appends what follows the mutations of a record. Returns the kind of the record.
pub(crate) fn finish(stamp: Option<i64>, position: Option<u64>, out: &mut Vec<u8>) -> u8 {
    match (stamp, position) {
        (None, None) => MUTATIONS,
        (Some(stamp), None) => {
            out.extend_from_slice(&stamp.to_le_bytes());
            STAMPED_MUTATIONS
        }
        (stamp, Some(position)) => {
            out.extend_from_slice(&stamp.unwrap_or(NO_STAMP).to_le_bytes());
            out.extend_from_slice(&position.to_le_bytes());
            REPLICATED_MUTATIONS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_keeps_its_contents() {
        for stamp in [None, Some(-7)] {
            for position in [None, Some(9)] {
                let mut payload = b"mutations".to_vec();
                let kind = finish(stamp, position, &mut payload);
                let found = parse(kind, &payload).unwrap();
                assert_eq!(found.mutations, b"mutations");
                assert_eq!((found.stamp, found.position), (stamp, position));
                let plain = parse(found.kind(), found.plain()).unwrap();
                assert_eq!((plain.mutations, plain.stamp), (found.mutations, stamp));
            }
        }
        assert!(parse(REPLICATED_MUTATIONS, &[0; 15]).is_none());
        assert!(parse(9, b"").is_none());
    }
}
