//! Statements with markers, and values for them.

use anyhow::{Result, bail};
use wire::cql::{BatchKind, BatchStatement, PreparedReply, Response, StatementToSend, Value};

use super::connection::{Connection, Manner, append_message, columns, error_line};

/// Prefix of the description of a prepared statement, which follows its answer.
pub(crate) const PREPARED: &str = "prepared ";

/// The value sent for one marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bound {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

/// A value, and the name of its marker: either all values of a statement have names, or none has
/// one.
pub(crate) type Named = (Option<String>, Bound);

/// One statement of a batch. The protocol does not support names for its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) values: Vec<Named>,
    pub(crate) is_prepared: bool,
}

/// Statements sent as one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    pub(crate) kind: BatchKind,
    pub(crate) parts: Vec<Part>,
}

/// A prepared statement.
struct Prepared {
    id: Vec<u8>,
    metadata_id: Vec<u8>,
    /// The description of its markers and of its result.
    lines: Vec<String>,
}

impl Bound {
    fn to_send(&self) -> Value<'_> {
        match self {
            Bound::Null => Value::Null,
            Bound::Unset => Value::Unset,
            Bound::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

impl Connection {
    /// The answer in the form of [`Connection::query`].
    pub(crate) fn query_bound(
        &mut self,
        statement: &str,
        values: &[Named],
        manner: Manner,
    ) -> Result<Vec<String>> {
        let values = to_send(values);
        self.pages(manner, &values, &|to, with, out| to.query(0, statement, with, out))
    }

    /// The answer to a statement without markers.
    pub(crate) fn prepare_and_execute(
        &mut self,
        statement: &str,
        manner: Manner,
    ) -> Result<Vec<String>> {
        match self.prepare(statement)? {
            Ok(prepared) => self.execute(&prepared, &[], manner),
            Err(refusal) => Ok(vec![refusal]),
        }
    }

    /// The answer, followed by the statement's description.
    pub(crate) fn execute_bound(
        &mut self,
        statement: &str,
        values: &[Named],
        manner: Manner,
    ) -> Result<Vec<String>> {
        let prepared = match self.prepare(statement)? {
            Ok(prepared) => prepared,
            Err(refusal) => return Ok(vec![refusal]),
        };
        let mut answer = self.execute(&prepared, values, manner)?;
        answer.extend(prepared.lines);
        Ok(answer)
    }

    fn execute(
        &mut self,
        prepared: &Prepared,
        values: &[Named],
        manner: Manner,
    ) -> Result<Vec<String>> {
        let Prepared { id, metadata_id, .. } = prepared;
        let values = to_send(values);
        self.pages(manner, &values, &|to, with, out| to.execute(0, id, metadata_id, with, out))
    }

    /// The answer, followed by the descriptions of the prepared statements.
    pub(crate) fn batch(&mut self, batch: &Batch, manner: Manner) -> Result<Vec<String>> {
        let mut prepared = Vec::new();
        for part in &batch.parts {
            let found = if part.is_prepared { Some(self.prepare(&part.text)?) } else { None };
            match found.transpose() {
                Ok(found) => prepared.push(found),
                Err(refusal) => return Ok(vec![refusal]),
            }
        }
        let values: Vec<Vec<Value<'_>>> =
            batch.parts.iter().map(|part| without_names(&part.values)).collect();
        let statements: Vec<StatementToSend<'_>> = batch
            .parts
            .iter()
            .zip(&prepared)
            .zip(&values)
            .map(|((part, prepared), values)| {
                let statement = match prepared {
                    Some(prepared) => BatchStatement::Prepared(&prepared.id),
                    None => BatchStatement::Text(&part.text),
                };
                (statement, values.as_slice())
            })
            .collect();
        let with = manner.parameters();
        let message =
            self.client.ask(|to, out| to.batch(0, batch.kind, &statements, &with, out))?;
        let mut answer = Vec::new();
        append_message(&message, &mut answer)?;
        answer.extend(prepared.into_iter().flatten().flat_map(|prepared| prepared.lines));
        Ok(answer)
    }

    /// The statement, or the line of an error.
    fn prepare(&mut self, statement: &str) -> Result<std::result::Result<Prepared, String>> {
        let message = self.client.ask(|to, out| to.prepare(0, statement, None, out))?;
        Ok(match message.decode()?.0 {
            Response::Prepared(reply) => Ok(Prepared {
                id: reply.id.to_vec(),
                metadata_id: reply.result_metadata_id.unwrap_or_default().to_vec(),
                lines: described(&reply),
            }),
            Response::Error { code, message, .. } => Err(error_line(code, message)),
            other => bail!("PREPARE was answered {other:?}"),
        })
    }
}

fn to_send(values: &[Named]) -> Vec<(Option<&str>, Value<'_>)> {
    values.iter().map(|(name, bound)| (name.as_deref(), bound.to_send())).collect()
}

fn without_names(values: &[Named]) -> Vec<Value<'_>> {
    values.iter().map(|(_, bound)| bound.to_send()).collect()
}

/// Markers, the partition key's markers, and the columns of the result.
fn described(reply: &PreparedReply<'_>) -> Vec<String> {
    let key: Vec<String> = reply.markers.partition_key.iter().map(u16::to_string).collect();
    vec![
        format!("{PREPARED}markers: {}", columns(&reply.markers)),
        format!("{PREPARED}key: {}", key.join(", ")),
        format!("{PREPARED}result: {}", columns(&reply.result)),
    ]
}

#[cfg(test)]
mod tests {
    use wire::cql::{ColumnType, Metadata};

    use super::*;

    #[test]
    fn prepared_statements_are_shown_in_lines() {
        let spec = |name, of| ("keyspace", "table", name, of);
        let markers = Metadata {
            columns: 2,
            specs: vec![spec("v", ColumnType::Int), spec("p", ColumnType::Text)],
            partition_key: vec![1],
            ..Metadata::default()
        };
        let result = Metadata::default();
        let reply = PreparedReply { id: b"id", result_metadata_id: None, markers, result };
        assert_eq!(
            described(&reply),
            ["prepared markers: v int | p text", "prepared key: 1", "prepared result: "]
        );
    }
}
