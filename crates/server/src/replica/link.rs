//! The connection to the master: login, request of the stream, frames.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use base::time::MonoNs;
use reactor::TlsError;
use rustls::ClientConfig;
use uuid::Uuid;
use wire::replication::{
    CAPABILITY, CHAIN_CAPABILITY, EpochId, Frame, FrameReader, HEADER_BYTES, Header,
    MEMBERS_CAPABILITY, StreamError,
};
use wire::resp::{ProtocolError, Reply, decode_reply, encode_request};

use super::channel::{CHECK_INTERVAL, Channel, is_timeout};
use super::mono_now;
use crate::config::MasterAddress;
use crate::engine::clock;
use crate::engine::replication::{ANSWER_NS_MAX, REPLACED, Request};
use crate::engine::role_change;
use crate::engine::server_state::{ServerState, params};
use crate::statements::stored_schema::cql_identity;
use crate::tls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that a backup reads may be silent: it sends at least a heartbeat every second.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Longest reply before the stream: that of ROLE names all replicas.
const REPLY_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 256 << 10;
/// The version that the source shows.
pub(crate) const PROGRAM: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("could not connect: {0}")]
    Connect(io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the connection failed: {0}")]
    Io(io::Error),
    #[error("the master ended the connection")]
    Ended,
    #[error("the master was silent for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the master refused {request}: {reply}")]
    Refused { request: &'static str, reply: String },
    #[error(
        "the server is not Myriad, but Redis or one like it, which has no stream that a backup or a \
         replica can read: `myriad import redis://HOST:PORT` copies its data, and follows it"
    )]
    Foreign,
    #[error("the master does not speak the Redis protocol: {0}")]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the link has ended")]
    Over,
}

/// The account of the client. An empty user is the default one; without a password, PING is sent
/// instead of AUTH.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a [u8],
    pub(crate) password: Option<&'a [u8]>,
}

#[derive(Debug)]
pub(crate) struct Link {
    channel: Channel,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were used.
    used: usize,
    frames: FrameReader,
    /// A master that sends or takes nothing for this long has ended.
    silence_max: Duration,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Another handle of the socket keeps it open.
        self.channel.end();
    }
}

impl Link {
    /// Connects, logs in and requests the stream from where this server is.
    pub(super) fn open(
        shared: &ServerState,
        master: &MasterAddress,
        request: Request,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Link, LinkError> {
        let mut link = Link::log_in_as_server(shared, master, is_over)?;
        let port = own_port(shared).to_string();
        let server = shared.hub.server.to_string();
        let mut details = vec![
            ("listening-port", port.as_str()),
            ("run-id", &shared.identity.run_id),
            ("capa", CAPABILITY),
            ("capa", CHAIN_CAPABILITY),
            ("version", PROGRAM),
            ("capa", MEMBERS_CAPABILITY),
        ];
        if shared.hub.server != 0 {
            details.push(("to-server-id", &server));
        }
        let host = shared.settings.load().replica_announce_ip.clone();
        if !host.is_empty() {
            details.push(("ip-address", &host));
        }
        let details: Vec<&[u8]> =
            details.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]).collect();
        link.ask("REPLCONF", &details, is_over)?;
        link.announce_cql(shared, is_over)?;
        let more: &[&[u8]] = if role_change::begin_request(shared).map_err(LinkError::Io)? {
            &[b"FAILOVER"]
        } else {
            &[]
        };
        link.request(request, more, is_over)?;
        Ok(link)
    }

    /// Announces where this server serves CQL. A master of an earlier version refuses that, and its
    /// drivers do not see this server.
    fn announce_cql(
        &mut self,
        shared: &ServerState,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        let settings = shared.settings.load_full();
        let params = params(&settings, clock::unix_now(), shared.keyspace.seed(), 0);
        let Some((host, cql)) = cql_identity(shared, &params) else { return Ok(()) };
        let mut details = vec![("cql-host-id", Uuid::from_bytes(host).to_string())];
        details.extend(cql.ip.map(|ip| ("cql-address", ip.to_string())));
        let ports = [("cql-port", cql.port), ("cql-tls-port", cql.tls_port)];
        let ports = ports.into_iter().filter(|(_, port)| *port != 0);
        details.extend(ports.map(|(name, port)| (name, port.to_string())));
        let details: Vec<&[u8]> =
            details.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]).collect();
        let reply = self.query("REPLCONF", &details, is_over)?;
        if matches!(reply, Reply::Error(_)) {
            tracing::info!("the master does not show this server to drivers of CQL");
        }
        Ok(())
    }

    /// The address of the other server.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.channel.peer()
    }

    /// Connects to a peer of a group of masters, logs in and requests what it writes, from where
    /// this server is.
    pub(super) fn open_peer(
        shared: &ServerState,
        address: &MasterAddress,
        server: u16,
        request: Request,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Link, LinkError> {
        let mut link = Link::log_in_as_server(shared, address, is_over)?;
        let (own, server) = (shared.hub.server.to_string(), server.to_string());
        let details = [
            ("capa", CAPABILITY),
            ("capa", CHAIN_CAPABILITY),
            ("version", PROGRAM),
            ("server-id", &own),
            ("to-server-id", &server),
        ];
        let details: Vec<&[u8]> =
            details.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]).collect();
        link.ask("REPLCONF", &details, is_over)?;
        link.request(request, &[], is_over)?;
        Ok(link)
    }

    /// Notifies a master that this server replaces it. `epoch`: the newest one of both. `peer`: where
    /// the master is known to be. Returns the position up to which the master has confirmed writes.
    pub(super) fn replace_master(
        shared: &ServerState,
        master: &MasterAddress,
        peer: Option<SocketAddr>,
        epoch: &EpochId,
        is_over: &dyn Fn() -> bool,
    ) -> Result<u64, LinkError> {
        let socket = match peer {
            None => connect(master),
            Some(peer) => connect_to(&peer, Duration::from_nanos(ANSWER_NS_MAX)),
        };
        let socket = socket.map_err(LinkError::Connect)?;
        let mut link = Link::log_in_as_server_on(shared, socket, &master.host, is_over)?;
        let run_id: [&[u8]; 2] = [b"run-id", shared.identity.run_id.as_bytes()];
        link.ask("REPLCONF", &run_id, is_over)?;
        match link.query("REPLCONF", &[REPLACED.as_bytes(), epoch], is_over)? {
            Reply::Integer(position) => Ok(u64::try_from(position).unwrap_or(0)),
            reply => Err(refused(REPLACED, &reply)),
        }
    }

    fn log_in_as_server(
        shared: &ServerState,
        address: &MasterAddress,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Link, LinkError> {
        let socket = connect(address).map_err(LinkError::Connect)?;
        Link::log_in_as_server_on(shared, socket, &address.host, is_over)
    }

    fn log_in_as_server_on(
        shared: &ServerState,
        socket: TcpStream,
        host: &str,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Link, LinkError> {
        let settings = shared.settings.load_full();
        let tls = settings.tls_replication.then(|| tls::load_client(&settings)).transpose()?;
        let password = settings.masterauth.is_set().then(|| settings.masterauth.0.as_bytes());
        let login = Login { user: settings.masteruser.as_bytes(), password };
        let link = Link::new(socket, host, tls, settings.repl_timeout())?;
        link.logged_in(&login, is_over)
    }

    /// Connects, with TLS if that is configured, and logs in.
    pub(crate) fn log_in(
        master: &MasterAddress,
        tls: Option<Arc<ClientConfig>>,
        login: &Login<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Link, LinkError> {
        let socket = connect(master).map_err(LinkError::Connect)?;
        Link::new(socket, &master.host, tls, SILENCE_MAX)?.logged_in(login, is_over)
    }

    /// A connection to a host.
    fn new(
        socket: TcpStream,
        host: &str,
        tls: Option<Arc<ClientConfig>>,
        silence_max: Duration,
    ) -> Result<Link, LinkError> {
        let channel = match tls {
            Some(config) => Channel::tls(socket, config, host).map_err(LinkError::Connect)?,
            None => Channel::plain(socket),
        };
        let frames = FrameReader::default();
        Ok(Link { channel, buffer: Vec::new(), used: 0, frames, silence_max })
    }

    fn logged_in(
        mut self,
        login: &Login<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Link, LinkError> {
        match (login.user, login.password) {
            // Before it knows a client, a server refuses longer requests with another error.
            (_, None) => {
                let reply = self.query("PING", &[], is_over)?;
                if matches!(&reply, Reply::Error(text) if text.starts_with(b"NOAUTH")) {
                    return Err(refused("PING", &reply));
                }
            }
            (b"", Some(password)) => self.ask("AUTH", &[password], is_over)?,
            (user, Some(password)) => self.ask("AUTH", &[user, password], is_over)?,
        }
        Ok(self)
    }

    /// When a master that is silent from now on has ended.
    fn deadline(&self) -> MonoNs {
        let silence_ns = u64::try_from(self.silence_max.as_nanos()).unwrap_or(u64::MAX);
        MonoNs(mono_now().0.saturating_add(silence_ns))
    }

    /// Requests the stream. `more` follows the position.
    pub(crate) fn request(
        &mut self,
        request: Request,
        more: &[&[u8]],
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        let (id, position) = match request {
            Some((id, position)) => (id.to_vec(), position.to_string()),
            None => (b"?".to_vec(), "-1".to_owned()),
        };
        let words: Vec<&[u8]> =
            [&id[..], position.as_bytes()].into_iter().chain(more.iter().copied()).collect();
        self.ask("PSYNC", &words, is_over)
    }

    /// A handle for writes.
    pub(super) fn writer(&self) -> Result<Channel, LinkError> {
        self.channel.try_clone().map_err(LinkError::Io)
    }

    /// Sends a request, and waits until it is confirmed.
    pub(crate) fn ask(
        &mut self,
        name: &'static str,
        args: &[&[u8]],
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        match self.query(name, args, is_over)? {
            Reply::Simple(_) => Ok(()),
            reply => Err(refused(name, &reply)),
        }
    }

    /// Sends a request, and waits for its reply.
    pub(crate) fn query(
        &mut self,
        name: &'static str,
        args: &[&[u8]],
        is_over: &dyn Fn() -> bool,
    ) -> Result<Reply, LinkError> {
        let mut request = Vec::new();
        let words: Vec<&[u8]> = [name.as_bytes()].into_iter().chain(args.iter().copied()).collect();
        encode_request(&words, &mut request);
        self.channel.write_all(&request, self.silence_max, is_over).map_err(LinkError::Io)?;
        let deadline = self.deadline();
        loop {
            match decode_reply(&self.buffer[self.used..])? {
                Some((reply, bytes)) => {
                    self.used += bytes;
                    return Ok(reply);
                }
                None if self.buffer.len() - self.used > REPLY_BYTES_MAX => {
                    return Err(StreamError::NoFrame.into());
                }
                None => self.read_some(READ_BYTES, deadline, is_over)?,
            }
        }
    }

    /// Reads the next frame, and checks it. `None`: the link has ended.
    pub(crate) fn read_frame(
        &mut self,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Frame<'_>>, LinkError> {
        let header = match self.fill_frame(is_over) {
            Err(LinkError::Over) => return Ok(None),
            header => header?,
        };
        let end = self.used;
        let payload = &self.buffer[end - header.payload_bytes..end];
        Ok(Some(self.frames.open(&header, payload)?))
    }

    /// Reads until the buffer has the next frame, and counts its bytes as used.
    fn fill_frame(&mut self, is_over: &dyn Fn() -> bool) -> Result<Header, LinkError> {
        self.fill(HEADER_BYTES, is_over)?;
        let head = self.buffer[self.used..].first_chunk().expect("it was filled");
        let header = match Header::decode(head) {
            // An RDB file, or the line ends before it.
            Err(StreamError::NoFrame) if matches!(head[0], b'$' | b'\n') => {
                return Err(LinkError::Foreign);
            }
            header => header?,
        };
        self.used += HEADER_BYTES;
        self.fill(header.payload_bytes, is_over)?;
        self.used += header.payload_bytes;
        Ok(header)
    }

    /// Reads until the buffer has this many unused bytes.
    fn fill(&mut self, bytes: usize, is_over: &dyn Fn() -> bool) -> Result<(), LinkError> {
        while self.buffer.len() - self.used < bytes {
            let deadline = self.deadline();
            let missing = bytes - (self.buffer.len() - self.used);
            // In steps, so that a length alone takes no memory.
            self.read_some(missing.clamp(1, READ_BYTES), deadline, is_over)?;
        }
        Ok(())
    }

    fn read_some(
        &mut self,
        wanted: usize,
        deadline: MonoNs,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        if self.used > 0 && self.used >= self.buffer.len() / 2 {
            self.buffer.drain(..self.used);
            self.buffer.shrink_to(2 * READ_BYTES);
            self.used = 0;
        }
        let held = self.buffer.len();
        self.buffer.resize(held + wanted.max(READ_BYTES / 4), 0);
        let read = loop {
            if is_over() {
                break Err(LinkError::Over);
            }
            match self.channel.read(&mut self.buffer[held..]) {
                Ok(0) => break Err(LinkError::Ended),
                Ok(count) => break Ok(count),
                Err(error) if is_timeout(&error) && mono_now() < deadline => {}
                Err(error) if is_timeout(&error) => break Err(LinkError::Silent(self.silence_max)),
                Err(error) => break Err(LinkError::Io(error)),
            }
        };
        self.buffer.truncate(held + read.as_ref().map_or(0, |count| *count));
        read.map(|_| ())
    }
}

fn refused(request: &'static str, reply: &Reply) -> LinkError {
    // Source: Redis 7.2 `replication.c`, `replconfCommand`
    const UNKNOWN: &[u8] = b"ERR Unrecognized REPLCONF option: ";
    if let Reply::Error(text) = reply
        && let Some(b"version" | b"run-id") = text.strip_prefix(UNKNOWN)
    {
        // Every version of Myriad knows these.
        return LinkError::Foreign;
    }
    let reply = match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    };
    LinkError::Refused { request, reply }
}

fn connect(master: &MasterAddress) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (master.host.as_str(), master.port).to_socket_addrs()? {
        match connect_to(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn connect_to(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CHECK_INTERVAL))?;
    stream.set_write_timeout(Some(CHECK_INTERVAL))?;
    Ok(stream)
}

/// The port on which clients of the Redis protocol reach this server.
fn own_port(shared: &ServerState) -> u16 {
    let settings = shared.settings.load();
    if settings.replica_announce_port != 0 {
        return settings.replica_announce_port;
    }
    let place = settings.endpoints().position(|endpoint| {
        endpoint.protocol == crate::protocol::ClientProtocol::Resp
            && endpoint.is_tls == settings.tls_replication
    });
    let addresses = shared.identity.addresses.get();
    let address = place.and_then(|place| addresses?.get(place));
    address.map_or(0, std::net::SocketAddr::port)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread::scope;

    use super::*;

    /// A server that answers each request with the next text.
    fn ask_foreign(answers: &[&[u8]]) -> LinkError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let master = MasterAddress { host: "127.0.0.1".to_owned(), port };
        scope(|scope| {
            scope.spawn(|| {
                let mut client = listener.accept().unwrap().0;
                let mut request = [0; 1024];
                for answer in answers {
                    assert!(client.read(&mut request).unwrap() > 0);
                    client.write_all(answer).unwrap();
                }
            });
            let login = Login { user: b"", password: None };
            let mut link = Link::log_in(&master, None, &login, &|| false).unwrap();
            let mut ask = || {
                link.ask("REPLCONF", &[b"version", PROGRAM.as_bytes()], &|| false)?;
                link.request(None, &[], &|| false)?;
                link.read_frame(&|| false).map(|_| ())
            };
            ask().unwrap_err()
        })
    }

    #[test]
    fn another_program_is_named() {
        let unknown = b"-ERR Unrecognized REPLCONF option: version\r\n";
        for answers in [
            &[&b"+PONG\r\n"[..], unknown][..],
            &[b"+PONG\r\n", b"+OK\r\n", b"+FULLRESYNC 0 0\r\n$EOF:0123456789012345678901234567890"],
            &[
                b"+PONG\r\n",
                b"+OK\r\n",
                b"+FULLRESYNC 0 0\r\n\n\n$123456\r\nREDIS0011xxxxxxxxxxxxxxxxxxxxxxx",
            ],
        ] {
            let error = ask_foreign(answers);
            assert!(matches!(error, LinkError::Foreign), "{error}");
        }
        let error = ask_foreign(&[b"+PONG\r\n", b"-ERR no\r\n"]);
        assert!(matches!(error, LinkError::Refused { .. }), "{error}");
    }
}
