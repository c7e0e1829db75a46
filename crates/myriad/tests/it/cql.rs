//! Requests of CQL, version 4 of the protocol.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// A CQL connection.
pub(crate) struct Cql {
    pub(crate) stream: TcpStream,
}

/// Opcode and body of a response.
pub(crate) type Response = (u8, Vec<u8>);

impl Cql {
    pub(crate) const STARTUP: u8 = 1;
    pub(crate) const OPTIONS: u8 = 5;
    pub(crate) const QUERY: u8 = 7;
    pub(crate) const PREPARE: u8 = 9;
    pub(crate) const EXECUTE: u8 = 10;
    pub(crate) const AUTH_RESPONSE: u8 = 15;

    /// Completes STARTUP on a new connection.
    pub(crate) fn start(stream: TcpStream) -> Cql {
        let mut cql = Cql { stream };
        cql.startup();
        cql
    }

    pub(crate) fn startup(&mut self) -> Response {
        self.ask(Cql::STARTUP, b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0")
    }

    pub(crate) fn query(&mut self, text: &str) -> Response {
        let mut body = long(text.as_bytes());
        body.extend([0, 1, 0]); // consistency one, no flags
        self.ask(Cql::QUERY, &body)
    }

    pub(crate) fn ask(&mut self, kind: u8, body: &[u8]) -> Response {
        let mut frame = vec![4, 0, 0, 1, kind];
        frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame).unwrap();
        self.read()
    }

    pub(crate) fn read(&mut self) -> Response {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let mut body = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        (header[4], body)
    }
}

/// Encodes a CQL long string.
pub(crate) fn long(text: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
}
