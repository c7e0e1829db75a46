//! One connection, one statement at a time; answers are lines.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use wire::cql::{
    Compression, Consistency, Metadata, Parameters, ParametersToSend, RequestEncoder, Response,
    Rows, Value, Version,
};

use super::client::{Client, Message};
use super::show;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) client: Client,
}

/// The way a statement is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Manner {
    /// Rows per page; the end of each page is shown.
    pub(crate) page_rows: Option<i32>,
    /// The timestamp of its writes, in microseconds.
    pub(crate) timestamp: Option<i64>,
    /// The time that expiry is computed from; version 5 on.
    pub(crate) now_in_seconds: Option<i32>,
}

impl Manner {
    pub(crate) fn paged(page_rows: Option<i32>) -> Manner {
        Manner { page_rows, ..Manner::default() }
    }

    pub(super) fn parameters(self) -> Parameters<'static> {
        Parameters {
            page_size: self.page_rows,
            timestamp: self.timestamp,
            now_in_seconds: self.now_in_seconds,
            ..Parameters::new(Consistency::One)
        }
    }
}

impl Connection {
    pub(crate) fn open(address: &str) -> Result<Connection> {
        Self::open_as(address, Version::V4, None)
    }

    pub(crate) fn open_as(
        address: &str,
        version: Version,
        compression: Option<Compression>,
    ) -> Result<Connection> {
        Ok(Connection { client: Client::open(address, version, compression)? })
    }

    /// A connection to Myriad whose writes have this durability.
    pub(crate) fn open_durable(
        address: &str,
        durability: &str,
        reply_timeout: Duration,
    ) -> Result<Connection> {
        Ok(Connection { client: Client::open_durable(address, durability, reply_timeout)? })
    }

    /// Executes a statement that is not part of the dialogue.
    pub(crate) fn must(&mut self, statement: &str) -> Result<()> {
        let answer = self.query(statement, Manner::default())?;
        match answer.first() {
            Some(line) if line.starts_with("error") => bail!("{statement}: {line}"),
            _ => Ok(()),
        }
    }

    /// The answer as lines, with all pages of rows, and a line between pages if they were
    /// requested.
    pub(crate) fn query(&mut self, statement: &str, manner: Manner) -> Result<Vec<String>> {
        self.pages(manner, &[], &|to, with, out| to.query(0, statement, with, out))
    }

    /// Requests one page after the other, each time with all the values.
    pub(super) fn pages(
        &mut self,
        manner: Manner,
        values: &[(Option<&str>, Value<'_>)],
        encode: &dyn Fn(RequestEncoder, &ParametersToSend<'_>, &mut Vec<u8>),
    ) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut paging_state: Option<Vec<u8>> = None;
        loop {
            let parameters =
                Parameters { paging_state: paging_state.as_deref(), ..manner.parameters() };
            let with = ParametersToSend { parameters, values };
            let message = self.client.ask(|to, out| encode(to, &with, out))?;
            paging_state = append_message(&message, &mut lines)?;
            if paging_state.is_none() {
                return Ok(lines);
            }
            lines.push("next page".to_owned());
        }
    }
}

pub(super) fn error_line(code: i32, message: &str) -> String {
    format!("error {code:04x} {}", message.replace('\n', "\\n"))
}

/// Adds the lines of one message, its warnings first. Returns the start of the next page, if there
/// is one.
pub(super) fn append_message(
    message: &Message,
    lines: &mut Vec<String>,
) -> Result<Option<Vec<u8>>> {
    let (response, notes) = message.decode()?;
    lines.extend(notes.warnings.iter().map(|warning| format!("warning {warning}")));
    append(response, lines.is_empty(), lines)
}

/// Adds the lines of one answer. Returns the start of the next page, if there is one.
fn append(
    response: Response<'_>,
    is_first: bool,
    lines: &mut Vec<String>,
) -> Result<Option<Vec<u8>>> {
    lines.push(match response {
        Response::Error { code, message, .. } => error_line(code, message),
        Response::Void => "void".to_owned(),
        Response::SetKeyspace(name) => format!("keyspace {name}"),
        Response::SchemaChange(parts) => format!("schema {}", parts.join(" ")),
        Response::Rows(rows) => {
            append_rows(&rows, is_first, lines)?;
            return Ok(rows.metadata.paging_state.map(<[u8]>::to_vec));
        }
        other => bail!("a statement was answered {other:?}"),
    });
    Ok(None)
}

/// Names and types of columns, or of markers.
pub(super) fn columns(metadata: &Metadata<'_>) -> String {
    let columns = metadata.specs.iter();
    let columns = columns.map(|(_, _, name, of)| format!("{name} {}", show::type_name(of)));
    columns.collect::<Vec<_>>().join(" | ")
}

fn append_rows(rows: &Rows<'_>, is_first: bool, lines: &mut Vec<String>) -> Result<()> {
    let specs = &rows.metadata.specs;
    if is_first {
        lines.push(columns(&rows.metadata));
    }
    let mut cells = rows.cells();
    for _ in 0..rows.count {
        let mut row = Vec::with_capacity(specs.len());
        for (_, _, name, of) in specs {
            let cell = cells.next().context("as many cells as columns")?;
            let shown = show::value(cell, of).with_context(|| format!("column {name}"))?;
            row.push(shown);
        }
        lines.push(row.join(" | "));
    }
    Ok(())
}
