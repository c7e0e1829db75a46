//! The pages of a range of tokens.

use wire::cql::Value;

use super::failure::Failure;
use super::session::{Message, Page, Session};

/// Rows of the first page of a part, whose rows may be large, and of the largest page.
pub(super) const FIRST_ROWS: i32 = 16;
const ROWS_MAX: i32 = 5000;
/// The size that the following pages should have. A page has at least one row, whatever its size.
const PAGE_BYTES: usize = 1 << 20;

/// A position in a range of tokens.
#[derive(Debug)]
pub(super) struct Pages {
    /// Tokens, the first one exclusive.
    after: i64,
    until: i64,
    /// Where the last page ended.
    state: Option<Vec<u8>>,
    pub(super) page_rows: i32,
}

impl Pages {
    pub(super) fn new(after: i64, until: i64, page_rows: i32) -> Pages {
        Pages { after, until, state: None, page_rows }
    }

    /// Requests the page at the position by a prepared statement.
    pub(super) fn request(&self, id: &[u8], session: &mut Session<'_>) -> Result<(), Failure> {
        let (after, until) = (self.after.to_be_bytes(), self.until.to_be_bytes());
        let values = [Value::Bytes(&after), Value::Bytes(&until)];
        let page = Page { rows: self.page_rows, after: self.state.as_deref() };
        let mut request = Vec::new();
        session.encode_execute(0, id, &values, Some(page), &mut request);
        session.send(&request)
    }

    /// The position after a page, `None` after the last one.
    pub(super) fn after(&self, message: &Message) -> Result<Option<Pages>, Failure> {
        let rows = message.rows()?;
        let Some(state) = rows.metadata.paging_state else { return Ok(None) };
        let fitting = PAGE_BYTES.saturating_mul(rows.count) / message.bytes().max(1);
        let fitting = i32::try_from(fitting).unwrap_or(ROWS_MAX);
        let page_rows = fitting.min(self.page_rows.saturating_mul(4)).clamp(1, ROWS_MAX);
        Ok(Some(Pages { state: Some(state.to_vec()), page_rows, ..*self }))
    }

    /// Requests fewer rows at once: the server could not read or send a page.
    pub(super) fn shrink(&mut self) {
        self.page_rows = (self.page_rows / 4).max(1);
    }
}
