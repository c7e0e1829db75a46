//! A CQL client for the simulated server, and servers for it to connect to.

use cql::schema::builtin;
use reactor::SimClient;
use wire::cql::{
    Compression, Consistency, Direction, Header, Limits, Opcode, Parameters, ParametersToSend,
    RequestEncoder, Response, SegmentFormat, Value, Version, decode_response, decode_segment,
    decompress_body, encode_segments,
};

use super::world::{Plan, World};

const SEED: u64 = 1;
/// The listener after the RESP one.
const CQL: usize = 1;

pub(super) fn plan() -> Plan {
    with_options(&[])
}

pub(super) fn with_options(options: &[(&'static str, &str)]) -> Plan {
    let mut all = vec![("cql", "127.0.0.1:0".to_owned())];
    all.extend(options.iter().map(|(name, value)| (*name, (*value).to_owned())));
    Plan { reactors: 1, options: all, ..Plan::default() }
}

/// Runs the reactors, but neither log nor clock, until they are idle.
pub(super) fn run_reactors(world: &mut World) {
    while (0..world.plan.reactors).any(|reactor| world.step(reactor)) {}
}

/// Runs reactors and log until a client has all its responses.
pub(super) fn answers(world: &mut World, client: &mut Client) -> Vec<String> {
    let mut replies = client.ask(world);
    while world.write_log() {
        replies.extend(client.ask(world));
    }
    replies
}

/// The response to one statement.
pub(super) fn ask(world: &mut World, client: &mut Client, text: &str) -> String {
    client.query(0, text);
    let replies = answers(world, client);
    let [reply] = &replies[..] else { panic!("{text}: {replies:?}") };
    reply.strip_prefix("0 ").expect("the reply has stream 0").to_owned()
}

/// The client's end of a CQL connection.
pub(super) struct Client {
    pub(super) sim: SimClient,
    pub(super) encoder: RequestEncoder,
    /// The format of all later messages.
    pub(super) segments: Option<SegmentFormat>,
    /// The reply to STARTUP has arrived: in version 5, segments follow.
    is_started: bool,
    unread: Vec<u8>,
}

impl Client {
    pub(super) fn connect(world: &mut World, version: Version) -> Client {
        Client::connect_to(world, CQL, version)
    }

    pub(super) fn connect_to(world: &mut World, listener: usize, version: Version) -> Client {
        let sim = world.sim().connect_to(listener);
        let encoder = RequestEncoder { version, compression: None };
        Client { sim, encoder, segments: None, is_started: false, unread: Vec::new() }
    }

    /// A client that is connected and has completed STARTUP.
    pub(super) fn start(
        world: &mut World,
        version: Version,
        compression: Option<Compression>,
    ) -> Client {
        let mut client = Client::connect(world, version);
        client.startup(compression);
        assert_eq!(client.ask(world), ["0 READY"]);
        client
    }

    /// Sends STARTUP; later messages use the compression that it requests.
    pub(super) fn startup(&mut self, compression: Option<Compression>) {
        let mut options = vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "test")];
        options.extend(compression.map(|compression| ("COMPRESSION", compression.name())));
        self.send(|to, out| to.startup(0, &options, out));
        if self.encoder.version == Version::V5 {
            let lz4 = compression.map(|_| SegmentFormat::Lz4);
            self.segments = Some(lz4.unwrap_or(SegmentFormat::Plain));
        } else {
            self.encoder.compression = compression;
        }
    }

    pub(super) fn send(&self, encode: impl FnOnce(&RequestEncoder, &mut Vec<u8>)) {
        self.sim.send(&self.encoded(encode));
    }

    pub(super) fn encoded(&self, encode: impl FnOnce(&RequestEncoder, &mut Vec<u8>)) -> Vec<u8> {
        let mut messages = Vec::new();
        encode(&self.encoder, &mut messages);
        let Some(format) = self.segments else { return messages };
        let mut out = Vec::new();
        encode_segments(&messages, format, &mut out);
        out
    }

    pub(super) fn query(&self, stream: i16, text: &str) {
        self.send(|to, out| to.query(stream, text, &no_values(), out));
    }

    /// Runs the reactors and returns the replies that have arrived.
    pub(super) fn ask(&mut self, world: &mut World) -> Vec<String> {
        run_reactors(world);
        self.replies()
    }

    /// The replies that have arrived, each as its stream and a summary.
    pub(super) fn replies(&mut self) -> Vec<String> {
        self.unread.extend(self.sim.received());
        let mut replies = Vec::new();
        let mut messages = Vec::new();
        loop {
            // Replies up to and including the one to STARTUP are never in segments.
            if let Some(format) = self.segments.filter(|_| self.is_started) {
                let Some((segment, bytes)) = decode_segment(&self.unread, format).unwrap() else {
                    break;
                };
                messages.extend_from_slice(segment.payload.bytes());
                self.unread.drain(..bytes);
            } else {
                let Some(bytes) = message_bytes(&self.unread) else { break };
                let opcode = Opcode::from_byte(self.unread[4]).unwrap();
                self.is_started |= matches!(opcode, Opcode::Ready | Opcode::Authenticate);
                messages.extend(self.unread.drain(..bytes));
            }
        }
        let mut rest = messages.as_slice();
        while !rest.is_empty() {
            let bytes = message_bytes(rest).expect("whole");
            replies.push(self.summary(&rest[..bytes]));
            rest = &rest[bytes..];
        }
        replies
    }

    fn summary(&self, message: &[u8]) -> String {
        let header = Header::decode(message, Direction::Response, None, &Limits::DEFAULT);
        let header = header.unwrap().unwrap();
        let agreed = self.encoder.compression;
        let body = decompress_body(&header, &message[9..], agreed, &Limits::DEFAULT).unwrap();
        let (response, notes) = decode_response(&header, &body).unwrap();
        let text = match response {
            Response::Error { code, message, .. } => format!("ERROR {code:04x} {message}"),
            Response::Ready => "READY".to_owned(),
            Response::Authenticate(class) => format!("AUTHENTICATE {class}"),
            Response::AuthSuccess(_) => "AUTH_SUCCESS".to_owned(),
            Response::Supported(options) => {
                let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
                format!("SUPPORTED {}", names.join(" "))
            }
            Response::Event(kind, _) => format!("EVENT {kind}"),
            Response::Void => "VOID".to_owned(),
            Response::SetKeyspace(name) => format!("KEYSPACE {name}"),
            Response::Prepared(prepared) => format!("PREPARED {}", hex(prepared.id)),
            Response::Rows(rows) => {
                let cells = rows.cells().map(|cell| cell.map_or_else(|| "null".to_owned(), hex));
                let mut shown = format!("ROWS {}", cells.collect::<Vec<_>>().join(" "));
                if let Some(id) = rows.metadata.new_metadata_id {
                    let names: Vec<&str> =
                        rows.metadata.specs.iter().map(|(_, _, name, _)| *name).collect();
                    shown.extend([" now ", &names.join(","), " as ", &hex(id)]);
                }
                shown
            }
            Response::SchemaChange(names) => format!("CHANGE {}", names.join(" ")),
            Response::AuthChallenge(_) => "AUTH_CHALLENGE".to_owned(),
        };
        let mut summary = format!("{} {text}", header.stream);
        if let Some(id) = notes.tracing_id {
            summary.extend([" trace ", &hex(&id)]);
        }
        for warning in notes.warnings {
            summary.extend([" (", warning, ")"]);
        }
        summary
    }
}

pub(super) fn no_values() -> ParametersToSend<'static> {
    ParametersToSend { parameters: Parameters::new(Consistency::One), values: &[] }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    base::hex::hex(bytes)
}

fn message_bytes(input: &[u8]) -> Option<usize> {
    let header = Header::decode(input, Direction::Response, None, &Limits::DEFAULT);
    let bytes = header.unwrap()?.envelope_bytes();
    (input.len() >= bytes).then_some(bytes)
}

/// A server with the system keyspaces.
pub(super) fn world_with_system(options: &[(&'static str, &str)]) -> World {
    let world = world(options);
    world.shared().catalog.store(builtin());
    world
}

pub(super) fn world(options: &[(&'static str, &str)]) -> World {
    World::new(SEED, with_options(options))
}

pub(super) fn execute(client: &Client, stream: i16, id: &[u8], values: &[&[u8]]) {
    let values: Vec<_> = values.iter().map(|value| (None, Value::Bytes(value))).collect();
    let parameters = Parameters::new(Consistency::One);
    let with = ParametersToSend { parameters, values: &values };
    client.send(|to, out| to.execute(stream, id, &[0; 16], &with, out));
}
