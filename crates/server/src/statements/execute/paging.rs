//! The paging state: the start of a result's next page, sent to the client and validated when the
//! client returns it.

use cql::error::CqlError;
use cql::schema::Table;
use cql::value::collection::{put_part, take_part};
use smallvec::SmallVec;

/// The first byte of a state. Another format gets another number.
const FORMAT: u8 = 1;

/// The last row of a page. The next page resumes after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PagingState {
    pub(super) key: SmallVec<[u8; 64]>,
    /// `None`: all rows of the partition were returned.
    pub(super) row: Option<Vec<u8>>,
    /// Rows that LIMIT still allows.
    pub(super) remaining: u32,
    /// Rows of this partition that were returned.
    pub(super) in_partition: u32,
}

impl PagingState {
    pub(super) fn encode(&self, table: &Table) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&table.id.as_bytes()[..8]);
        out.extend_from_slice(&self.remaining.to_be_bytes());
        out.extend_from_slice(&self.in_partition.to_be_bytes());
        put_part(Some(&self.key), &mut out);
        put_part(self.row.as_deref(), &mut out);
        out
    }

    /// Refuses a state that this server did not create for this table.
    pub(super) fn decode(bytes: &[u8], table: &Table) -> Result<PagingState, CqlError> {
        Self::read(bytes, table)
            .ok_or_else(|| CqlError::Protocol("Invalid value for the paging state".to_owned()))
    }

    fn read(bytes: &[u8], table: &Table) -> Option<PagingState> {
        let (&format, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk::<8>()?;
        let (remaining, rest) = rest.split_first_chunk()?;
        let (in_partition, mut rest) = rest.split_first_chunk()?;
        if format != FORMAT || id[..] != table.id.as_bytes()[..8] {
            return None;
        }
        let key = take_part(&mut rest).ok()??;
        let row = take_part(&mut rest).ok()?;
        let remaining = u32::from_be_bytes(*remaining);
        // A page that reaches LIMIT is the last one.
        if !rest.is_empty() || remaining == 0 {
            return None;
        }
        Some(PagingState {
            key: SmallVec::from_slice(key),
            row: row.map(<[u8]>::to_vec),
            remaining,
            in_partition: u32::from_be_bytes(*in_partition),
        })
    }
}
