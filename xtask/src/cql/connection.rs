//! One connection of CQL's native protocol, version 4, one request at a time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use wire::cql::{
    Consistency, Direction, HEADER_BYTES, Header, Limits, Parameters, ParametersToSend,
    RequestEncoder, Response, Rows, Version, decode_response,
};

use super::show;

/// A server that says nothing for so long has failed; changes of the schema take Cassandra a while.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    encoder: RequestEncoder,
}

impl Connection {
    pub(crate) fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address).with_context(|| format!("connect {address}"))?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let encoder = RequestEncoder { version: Version::V4, compression: None };
        let mut connection = Connection { stream, encoder };
        let mut request = Vec::new();
        encoder.startup(0, &[("CQL_VERSION", "3.0.0")], &mut request);
        let (header, body) = connection.exchange(&request)?;
        match decode_response(&header, &body)?.0 {
            Response::Ready => Ok(connection),
            other => bail!("STARTUP was answered {other:?}"),
        }
    }

    fn exchange(&mut self, request: &[u8]) -> Result<(Header, Vec<u8>)> {
        self.stream.write_all(request)?;
        let mut head = [0; HEADER_BYTES];
        self.stream.read_exact(&mut head).context("read the head of an answer")?;
        let header =
            Header::decode(&head, Direction::Response, Some(Version::V4), &Limits::DEFAULT)?
                .context("a whole head was read")?;
        let mut body = vec![0; header.body_bytes];
        self.stream.read_exact(&mut body).context("read an answer")?;
        Ok((header, body))
    }

    /// Carries out a statement that is not part of the dialogue.
    pub(crate) fn must(&mut self, statement: &str) -> Result<()> {
        let answer = self.query(statement, None)?;
        match answer.first() {
            Some(line) if line.starts_with("error") => bail!("{statement}: {line}"),
            _ => Ok(()),
        }
    }

    /// The answer as lines; of rows all pages, with a line between them if `page_rows` is given.
    pub(crate) fn query(&mut self, statement: &str, page_rows: Option<i32>) -> Result<Vec<String>> {
        let encoder = self.encoder;
        self.pages(page_rows, &|with, out| encoder.query(0, statement, with, out))
    }

    pub(crate) fn prepare_and_execute(
        &mut self,
        statement: &str,
        page_rows: Option<i32>,
    ) -> Result<Vec<String>> {
        let encoder = self.encoder;
        let mut request = Vec::new();
        encoder.prepare(0, statement, None, &mut request);
        let (header, body) = self.exchange(&request)?;
        let id = match decode_response(&header, &body)?.0 {
            Response::Prepared(prepared) => prepared.id.to_vec(),
            Response::Error { message, .. } => return Ok(vec![format!("error {message}")]),
            other => bail!("PREPARE was answered {other:?}"),
        };
        self.pages(page_rows, &|with, out| encoder.execute(0, &id, &[], with, out))
    }

    fn pages(
        &mut self,
        page_rows: Option<i32>,
        encode: &dyn Fn(&ParametersToSend<'_>, &mut Vec<u8>),
    ) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut paging_state: Option<Vec<u8>> = None;
        loop {
            let parameters = Parameters {
                page_size: page_rows,
                paging_state: paging_state.as_deref(),
                ..Parameters::new(Consistency::One)
            };
            let mut request = Vec::new();
            encode(&ParametersToSend { parameters, values: &[] }, &mut request);
            let (header, body) = self.exchange(&request)?;
            let (response, notes) = decode_response(&header, &body)?;
            lines.extend(notes.warnings.iter().map(|warning| format!("warning {warning}")));
            paging_state = append(response, lines.is_empty(), &mut lines)?;
            if paging_state.is_none() {
                return Ok(lines);
            }
            lines.push("next page".to_owned());
        }
    }
}

/// Adds the lines of one answer. Returns where the next page begins, if there is one.
fn append(
    response: Response<'_>,
    is_first: bool,
    lines: &mut Vec<String>,
) -> Result<Option<Vec<u8>>> {
    lines.push(match response {
        Response::Error { code, message, .. } => {
            format!("error {code:04x} {}", message.replace('\n', "\\n"))
        }
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

fn append_rows(rows: &Rows<'_>, is_first: bool, lines: &mut Vec<String>) -> Result<()> {
    let specs = &rows.metadata.specs;
    if is_first {
        let columns =
            specs.iter().map(|(_, _, name, of)| format!("{name} {}", show::type_name(of)));
        lines.push(columns.collect::<Vec<_>>().join(" | "));
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
