//! A client of CQL's native protocol: one connection, any version, any compression.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use wire::cql::{
    Compression, Consistency, Direction, HEADER_BYTES, Header, Limits, Parameters,
    ParametersToSend, RequestEncoder, Response, ResponseNotes, SegmentFormat, Version,
    decode_response, decode_segment, decompress_body, encode_segments,
};

/// A server that does not answer for this long has failed; changes of the schema take Cassandra a
/// while.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Name and password of the default superuser of Cassandra.
const SUPERUSER: &[u8] = b"\0cassandra";

/// A statement without values.
pub(crate) fn nothing() -> ParametersToSend<'static> {
    ParametersToSend { parameters: Parameters::new(Consistency::One), values: &[] }
}

/// A connection after STARTUP.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) encoder: RequestEncoder,
    /// The format after STARTUP, in version 5.
    segments: Option<SegmentFormat>,
    /// Received bytes; segments in version 5.
    raw: Vec<u8>,
    /// Received bytes, extracted from their segments.
    envelopes: Vec<u8>,
}

/// A received message, decompressed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn decode(&self) -> Result<(Response<'_>, ResponseNotes<'_>)> {
        Ok(decode_response(&self.header, &self.body)?)
    }
}

impl Client {
    pub(crate) fn open(
        address: &str,
        version: Version,
        compression: Option<Compression>,
    ) -> Result<Client> {
        let encoder = RequestEncoder { version, compression };
        Self::start(address, encoder, REPLY_TIMEOUT, None)
    }

    /// A connection to Myriad whose writes have this durability.
    pub(crate) fn open_durable(
        address: &str,
        durability: &str,
        reply_timeout: Duration,
    ) -> Result<Client> {
        let encoder = RequestEncoder { version: Version::V4, compression: None };
        Self::start(address, encoder, reply_timeout, Some(("MYRIAD_DURABILITY", durability)))
    }

    fn start(
        address: &str,
        encoder: RequestEncoder,
        reply_timeout: Duration,
        more: Option<(&str, &str)>,
    ) -> Result<Client> {
        let RequestEncoder { version, compression } = encoder;
        let stream = TcpStream::connect(address).with_context(|| format!("connect {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(reply_timeout))?;
        stream.set_write_timeout(Some(reply_timeout))?;
        let (raw, envelopes) = (Vec::new(), Vec::new());
        let mut client = Client { stream, encoder, segments: None, raw, envelopes };
        let mut options = vec![("CQL_VERSION", "3.0.0")];
        options.extend(more);
        options.extend(compression.map(|compression| ("COMPRESSION", compression.name())));
        let mut request = Vec::new();
        encoder.startup(0, &options, &mut request);
        client.send(&request)?;
        let message = client.receive()?;
        match message.decode()?.0 {
            Response::Ready | Response::Authenticate(_) => {}
            other => bail!("STARTUP was answered {other:?}"),
        }
        let is_asked = matches!(message.decode()?.0, Response::Authenticate(_));
        client.segments = (version == Version::V5).then_some(match compression {
            Some(_) => SegmentFormat::Lz4,
            None => SegmentFormat::Plain,
        });
        if is_asked {
            client.log_in()?;
        }
        Ok(client)
    }

    fn log_in(&mut self) -> Result<()> {
        let mut request = Vec::new();
        self.encoder.auth_response(0, &[SUPERUSER, SUPERUSER].concat(), &mut request);
        self.send(&request)?;
        match self.receive()?.decode()?.0 {
            Response::AuthSuccess(_) => Ok(()),
            other => bail!("the superuser was answered {other:?}"),
        }
    }

    /// Sends whole messages.
    pub(crate) fn send(&mut self, envelopes: &[u8]) -> Result<()> {
        let bytes = self.framed(envelopes);
        self.stream.write_all(&bytes).context("send a request")
    }

    /// Messages in the framing of the connection.
    pub(crate) fn framed(&self, envelopes: &[u8]) -> Vec<u8> {
        let Some(format) = self.segments else { return envelopes.to_vec() };
        let mut out = Vec::new();
        encode_segments(envelopes, format, &mut out);
        out
    }

    /// The next message.
    pub(crate) fn receive(&mut self) -> Result<Message> {
        loop {
            let version = self.encoder.version;
            let limits = &Limits::DEFAULT;
            let header =
                Header::decode(&self.envelopes, Direction::Response, Some(version), limits)?;
            if let Some(header) = header.filter(|it| it.envelope_bytes() <= self.envelopes.len()) {
                let bytes = header.envelope_bytes();
                let body = &self.envelopes[HEADER_BYTES..bytes];
                let body = decompress_body(&header, body, self.encoder.compression, limits)?;
                let body = body.into_owned();
                self.envelopes.drain(..bytes);
                return Ok(Message { header, body });
            }
            self.receive_bytes()?;
        }
    }

    fn receive_bytes(&mut self) -> Result<()> {
        let start = self.raw.len();
        self.raw.resize(start + READ_BYTES, 0);
        let count = self.stream.read(&mut self.raw[start..]).context("read an answer")?;
        self.raw.truncate(start + count);
        if count == 0 {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(error).context("the connection was closed");
        }
        let Some(format) = self.segments else {
            self.envelopes.append(&mut self.raw);
            return Ok(());
        };
        let mut taken = 0;
        while let Some((segment, bytes)) = decode_segment(&self.raw[taken..], format)? {
            self.envelopes.extend_from_slice(segment.payload.bytes());
            taken += bytes;
        }
        self.raw.drain(..taken);
        Ok(())
    }

    /// Sends one request and waits for its answer.
    pub(crate) fn ask(
        &mut self,
        encode: impl FnOnce(RequestEncoder, &mut Vec<u8>),
    ) -> Result<Message> {
        let mut request = Vec::new();
        encode(self.encoder, &mut request);
        self.send(&request)?;
        self.receive()
    }
}
