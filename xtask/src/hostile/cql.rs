//! Shared parts of the checks of CQL: servers that support it, connections that violate the
//! protocol, and the final checks.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use wire::cql::{
    Compression, Direction, HEADER_BYTES, Header, Limits, RequestEncoder, Response, Version,
    decode_response,
};

use super::Scene;
use super::ask::connect;
use super::bystander::{Bystander, Habit};
use super::stage::Stage;
use crate::cql::client::Client;
use crate::cql::connection::Connection;

/// Rounds of the bystanders that prove that they are served.
const ROUNDS: u64 = 30;
/// The error that Cassandra calls a protocol error.
pub(super) const PROTOCOL_ERROR: i32 = 0x000a;

impl Stage {
    /// A stage with two bystanders, one of each protocol.
    pub(super) fn cql(scene: &Scene<'_>, options: &[&str]) -> Result<Stage> {
        let subject = scene.start(&[&["--cql", "127.0.0.1:0"], options].concat())?;
        let address = subject.cql_address.clone().context("it listens for CQL")?;
        let mut connection = Connection::open(&address)?;
        connection.must(
            "CREATE KEYSPACE hostile WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
        )?;
        connection.must(
            "CREATE TABLE hostile.t (p int, c int, v text, b blob, l list<int>, m map<int, text>, \
             PRIMARY KEY (p, c))",
        )?;
        let bystanders = vec![
            Bystander::start(&subject.address, Habit::Writes)?,
            Bystander::start(&address, Habit::Queries)?,
        ];
        let before_bytes = subject.resident_bytes()?;
        Ok(Stage { subject, address, bystanders, rounds: ROUNDS, before_bytes })
    }

    pub(super) fn client(&self, version: Version) -> Result<Client> {
        Client::open(&self.address, version, None)
    }
}

pub(super) fn encoder(version: Version) -> RequestEncoder {
    RequestEncoder { version, compression: None }
}

/// A STARTUP message.
pub(super) fn startup(version: Version, compression: Option<Compression>) -> Vec<u8> {
    let mut options = vec![("CQL_VERSION", "3.0.0")];
    options.extend(compression.map(|compression| ("COMPRESSION", compression.name())));
    let mut bytes = Vec::new();
    encoder(version).startup(0, &options, &mut bytes);
    bytes
}

/// One message with any head and body.
pub(super) fn message(version: u8, flags: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = stream.to_be_bytes();
    let length = u32::try_from(body.len()).expect("bodies of tests are small").to_be_bytes();
    [&[version, flags, high, low, opcode], &length[..], body].concat()
}

/// Received messages, each as its stream and a summary: an error's code and text, or a word.
pub(super) fn replies(bytes: &[u8]) -> Result<Vec<(i16, String)>> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(header) = Header::decode(rest, Direction::Response, None, &Limits::DEFAULT)? {
        let Some(body) = rest.get(HEADER_BYTES..header.envelope_bytes()) else { break };
        found.push((header.stream, said(&decode_response(&header, body)?.0)));
        rest = &rest[header.envelope_bytes()..];
    }
    Ok(found)
}

/// A summary of an answer.
pub(super) fn said(response: &Response<'_>) -> String {
    match response {
        Response::Error { code, message, .. } => format!("{code:04x} {message}"),
        Response::Rows(rows) => format!("{} rows", rows.count),
        other => format!("{other:?}").split(['(', ' ']).next().unwrap_or_default().to_uppercase(),
    }
}

/// Sends bytes after STARTUP (in version 3 or 4, so that answers are uncompressed), shuts down our
/// side, and returns all answers after READY.
pub(super) fn say(address: &str, version: Version, bytes: &[u8]) -> Result<Vec<(i16, String)>> {
    let mut stream = connect(address)?;
    let all = [&startup(version, None), bytes].concat();
    // The server may have closed the connection half-way, which the answer shows.
    if stream.write_all(&all).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let answer = super::ask::read_to_end(&mut stream)?;
    let mut found = replies(&answer)?;
    ensure!(found.first().is_some_and(|(_, said)| said == "READY"), "STARTUP: {found:?}");
    found.remove(0);
    Ok(found)
}

/// Checks that one message is answered by an error of this code, and that the connection stays
/// usable.
pub(super) fn refused(address: &str, bytes: &[u8], code: i32) -> Result<String> {
    let version = Version::V4;
    let mut after = Vec::new();
    encoder(version).options(77, &mut after);
    let found = say(address, version, &[bytes, &after[..]].concat())?;
    match &found[..] {
        [(_, error), (77, _)] if error.starts_with(&format!("{code:04x} ")) => Ok(error.clone()),
        _ => bail!("expected the error {code:04x} and an open connection, got {found:?}"),
    }
}

/// Reads until `count` messages have arrived, in version 3 or 4.
pub(super) fn read_replies(stream: &mut TcpStream, count: usize) -> Result<Vec<(i16, String)>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let found = replies(&bytes)?;
        if found.len() >= count {
            return Ok(found);
        }
        let more = stream.read(&mut buffer).with_context(|| format!("after {found:?}"))?;
        ensure!(more > 0, "closed after {found:?}");
        bytes.extend_from_slice(&buffer[..more]);
    }
}
