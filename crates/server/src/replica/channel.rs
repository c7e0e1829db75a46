//! The bytes of the connection to the master, plain or in TLS. One thread reads, another one
//! writes.
//!
//! No lock is held while the socket is read or written: a master that stops reading delays neither
//! the reading thread nor the end of the link.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// Encrypted bytes per read: those of a whole record. Source: RFC 8446 5.2
const ENCRYPTED_BYTES: usize = (1 << 14) + 256 + 5;

/// Encrypted bytes that wait for the socket: one acknowledgment, and answers to messages of the
/// handshake, of which a master that reads sends few.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// Time after which a blocked read or write checks whether the link has ended.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A half of a connection: of its clones, one reads and one writes. The timeouts of its socket are
/// [`CHECK_INTERVAL`].
#[derive(Debug)]
pub(super) struct Channel {
    socket: TcpStream,
    tls: Option<Arc<Tls>>,
    /// Bytes from the socket, and how many of them are decrypted.
    encrypted: Vec<u8>,
    decrypted: usize,
}

#[derive(Debug)]
struct Tls {
    /// Locked only while bytes are encrypted or decrypted.
    state: Mutex<TlsState>,
    /// Notified when a thread has ended a write to the socket.
    sent: Condvar,
}

#[derive(Debug)]
struct TlsState {
    connection: ClientConnection,
    /// Encrypted bytes that the socket has not taken.
    unsent: Vec<u8>,
    /// One of the threads writes to the socket. What it does not send returns to `unsent`.
    is_sending: bool,
}

impl TlsState {
    /// Moves what the connection has to send to `unsent`.
    fn encrypt(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.unsent)?;
        }
        if self.unsent.len() > UNSENT_BYTES_MAX {
            return Err(io::Error::other("the master does not read what it requests"));
        }
        Ok(())
    }
}

impl Channel {
    pub(super) fn plain(socket: TcpStream) -> Channel {
        Channel { socket, tls: None, encrypted: Vec::new(), decrypted: 0 }
    }

    /// Begins TLS with the server of this name. The handshake continues in the first writes and reads.
    pub(super) fn tls(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        host: &str,
    ) -> io::Result<Channel> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let state = TlsState { connection, unsent: Vec::new(), is_sending: false };
        let tls = Some(Arc::new(Tls { state: Mutex::new(state), sent: Condvar::new() }));
        Ok(Channel { tls, ..Channel::plain(socket) })
    }

    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    pub(super) fn try_clone(&self) -> io::Result<Channel> {
        let tls = self.tls.clone();
        Ok(Channel { tls, ..Channel::plain(self.socket.try_clone()?) })
    }

    /// Reads some bytes; 0 at the end. Fails with the timeout of the socket.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = self.tls.clone() else { return self.socket.read(bytes) };
        loop {
            let mut state = tls.state.lock();
            let found = decrypt(&mut state.connection, &self.encrypted, &mut self.decrypted, bytes);
            // Messages of the handshake, also an alert with the reason why it failed.
            let has_answer = state.connection.wants_write();
            if has_answer {
                state.encrypt()?;
            }
            let is_mine = has_answer && !state.is_sending;
            drop(state);
            let sent = if is_mine { tls.send(&mut self.socket) } else { Ok(()) };
            if let Some(count) = found? {
                return Ok(count);
            }
            // After a timeout, a later write sends it.
            sent.or_else(|error| if is_timeout(&error) { Ok(()) } else { Err(error) })?;
            self.encrypted.resize(ENCRYPTED_BYTES, 0);
            let read = self.socket.read(&mut self.encrypted);
            self.encrypted.truncate(read.as_ref().map_or(0, |count| *count));
            self.decrypted = 0;
            if read? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Writes all bytes. Fails if the peer has not taken them when `is_over` becomes true, or after
    /// `timeout`.
    pub(super) fn write_all(
        &mut self,
        bytes: &[u8],
        timeout: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let Channel { socket, tls, .. } = self;
        let Some(tls) = tls else {
            let mut rest = bytes;
            return retry(timeout, is_over, || {
                while !rest.is_empty() {
                    rest = &rest[write_some(socket, rest)?..];
                }
                Ok(())
            });
        };
        let mut state = tls.state.lock();
        state.connection.writer().write_all(bytes)?;
        state.encrypt()?;
        drop(state);
        retry(timeout, is_over, || tls.send(socket))
    }

    /// Ends reads and writes of both halves.
    pub(super) fn end(&self) {
        // Fails if the peer has ended the connection.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Repeats `step` while it fails with the timeout of the socket.
fn retry(
    timeout: Duration,
    is_over: &dyn Fn() -> bool,
    mut step: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match step() {
            Err(error) if is_timeout(&error) && is_over() => {
                return Err(io::Error::other("the link has ended"));
            }
            Err(error) if is_timeout(&error) && began.elapsed() < timeout => {}
            done => return done,
        }
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn write_some(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match socket.write(bytes)? {
        0 => Err(ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

impl Tls {
    /// Sends what is encrypted, in its order, whichever thread has encrypted it. Fails with the
    /// timeout of the socket, or if the other thread sends for that long.
    fn send(&self, socket: &mut TcpStream) -> io::Result<()> {
        let mut state = self.state.lock();
        loop {
            if state.is_sending {
                if self.sent.wait_for(&mut state, CHECK_INTERVAL).timed_out() {
                    return Err(ErrorKind::TimedOut.into());
                }
                continue;
            }
            if state.unsent.is_empty() {
                return Ok(());
            }
            let bytes = std::mem::take(&mut state.unsent);
            state.is_sending = true;
            drop(state);
            let written = write_some(socket, &bytes);
            state = self.state.lock();
            state.is_sending = false;
            self.sent.notify_all();
            let taken = written.as_ref().map_or(0, |count| *count);
            state.unsent.splice(..0, bytes[taken..].iter().copied());
            written?;
        }
    }
}

/// Decrypts until there are bytes for the caller. `None`: more encrypted ones are needed.
fn decrypt(
    connection: &mut ClientConnection,
    encrypted: &[u8],
    decrypted: &mut usize,
    bytes: &mut [u8],
) -> io::Result<Option<usize>> {
    loop {
        match connection.reader().read(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done.map(Some),
        }
        let mut rest = &encrypted[*decrypted..];
        if rest.is_empty() {
            return Ok(None);
        }
        *decrypted += connection.read_tls(&mut rest)?;
        if let Err(error) = connection.process_new_packets() {
            let is_foreign = matches!(error, rustls::Error::InvalidMessage(_));
            return Err(if is_foreign && connection.is_handshaking() {
                io::Error::other("the other side does not speak TLS at this port")
            } else {
                io::Error::other(error)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread::scope;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);
    const PIECE_BYTES: usize = 8 << 10;
    /// A writer that takes no piece for this long is blocked.
    const STILL: Duration = Duration::from_millis(300);

    fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        (Arc::new(client), Arc::new(server))
    }

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(CHECK_INTERVAL)).unwrap();
        socket.set_write_timeout(Some(CHECK_INTERVAL)).unwrap();
        (socket, listener.accept().unwrap().0)
    }

    fn read_one(channel: &mut Channel) -> u8 {
        let (began, mut byte) = (Instant::now(), [0]);
        loop {
            match channel.read(&mut byte) {
                Ok(count) => {
                    assert_eq!(count, 1);
                    return byte[0];
                }
                Err(error) => assert!(is_timeout(&error) && began.elapsed() < PATIENCE, "{error}"),
            }
        }
    }

    /// Writes until the peer, which reads nothing, takes nothing more. Then checks that the other
    /// half still reads what the peer sends, and that the end of the link ends the write.
    fn check(mut channel: Channel, mut send: impl FnMut(u8)) {
        let mut writer = channel.try_clone().unwrap();
        let (is_over, pieces) = (AtomicBool::new(false), AtomicU64::new(0));
        scope(|scope| {
            let writing = scope.spawn(|| {
                let is_over = || is_over.load(Ordering::SeqCst);
                let piece = vec![b'w'; PIECE_BYTES];
                while writer.write_all(&piece, PATIENCE, &is_over).is_ok() {
                    pieces.fetch_add(1, Ordering::SeqCst);
                }
            });
            let (mut last, mut since) = (0, Instant::now());
            while last == 0 || since.elapsed() < STILL {
                assert!(since.elapsed() < PATIENCE, "the sockets take some bytes");
                let now = pieces.load(Ordering::SeqCst);
                (last, since) = if now == last { (last, since) } else { (now, Instant::now()) };
                std::thread::sleep(Duration::from_millis(1));
            }
            let began = Instant::now();
            for byte in 0..100 {
                send(byte);
                assert_eq!(read_one(&mut channel), byte);
            }
            assert!(!writing.is_finished(), "the write is blocked all the time");
            is_over.store(true, Ordering::SeqCst);
            writing.join().unwrap();
            assert!(began.elapsed() < PATIENCE / 2, "neither has waited for the timeout");
        });
    }

    #[test]
    fn a_master_that_stops_reading_delays_neither_reads_nor_the_end() {
        let (socket, mut peer) = sockets();
        check(Channel::plain(socket), |byte| peer.write_all(&[byte]).unwrap());
    }

    #[test]
    fn a_master_that_stops_reading_delays_neither_reads_nor_the_end_with_tls() {
        let (client, server) = configs();
        let (socket, mut peer) = sockets();
        let mut channel = Channel::tls(socket, client, "localhost").unwrap();
        let mut tls = ServerConnection::new(server).unwrap();
        scope(|scope| {
            scope.spawn(|| {
                while tls.is_handshaking() {
                    tls.complete_io(&mut peer).unwrap();
                }
                tls.writer().write_all(b"h").unwrap();
                tls.complete_io(&mut peer).unwrap();
            });
            channel.write_all(b"hello", PATIENCE, &|| false).unwrap();
            assert_eq!(read_one(&mut channel), b'h');
        });
        check(channel, |byte| {
            tls.writer().write_all(&[byte]).unwrap();
            while tls.wants_write() {
                tls.write_tls(&mut peer).unwrap();
            }
        });
    }
}
