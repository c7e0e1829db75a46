//! The row of INSERT JSON.

use std::borrow::Cow;

use cql::error::CqlError;
use cql::expression::{Evaluated, Row, decode_document};
use cql::plan::WritePlan;

use super::values::EvalContext;

/// The values of all columns, indexed like the table's columns.
pub(super) struct Document {
    values: Vec<Evaluated<'static>>,
    /// Columns that keep their values.
    left_out: Vec<bool>,
}

impl Document {
    /// Decodes the statement's document. `None` if it has none.
    pub(super) fn read<'v>(
        plan: &'v WritePlan,
        cx: &EvalContext<'v>,
    ) -> Result<Option<Document>, CqlError> {
        let Some(json) = &plan.json else { return Ok(None) };
        let text = match cx.evaluate(&json.document)? {
            Evaluated::Bytes(bytes) => Some(bytes),
            Evaluated::Null | Evaluated::Unset => None,
        };
        let values = decode_document(text.as_deref(), &plan.table)?;
        let is_unset = |value: &Evaluated<'_>| matches!(value, Evaluated::Unset);
        let left_out =
            if json.default_unset { values.iter().map(is_unset).collect() } else { Vec::new() };
        Ok(Some(Document { values, left_out }))
    }

    /// A context in which columns have the document's values.
    pub(super) fn within<'v>(
        document: Option<&'v Document>,
        cx: EvalContext<'v>,
    ) -> EvalContext<'v> {
        match document {
            None => cx,
            Some(document) => {
                EvalContext { document: Some(document), left_out: &document.left_out, ..cx }
            }
        }
    }
}

impl Row for Document {
    fn column(&self, index: usize) -> Result<Option<Cow<'_, [u8]>>, CqlError> {
        Ok(match self.values.get(index) {
            Some(Evaluated::Bytes(bytes)) => Some(Cow::Borrowed(bytes)),
            Some(Evaluated::Null | Evaluated::Unset) | None => None,
        })
    }

    fn aggregate(&self, _: usize) -> Option<&[u8]> {
        None
    }
}
