//! The bytes of the connection to the master, plain or in TLS. One thread reads, another one
//! writes.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// Encrypted bytes per read: those of a whole record. Source: RFC 8446 5.2
const ENCRYPTED_BYTES: usize = (1 << 14) + 256 + 5;

/// A half of a connection: of its clones, one reads and one writes.
#[derive(Debug)]
pub(super) struct Channel {
    socket: TcpStream,
    /// Locked only while bytes are encrypted or decrypted, and while encrypted ones are sent.
    tls: Option<Arc<Mutex<ClientConnection>>>,
    /// Bytes from the socket, and how many of them are decrypted.
    encrypted: Vec<u8>,
    decrypted: usize,
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
        let tls = Some(Arc::new(Mutex::new(connection)));
        Ok(Channel { tls, ..Channel::plain(socket) })
    }

    pub(super) fn peer_ip(&self) -> io::Result<IpAddr> {
        Ok(self.socket.peer_addr()?.ip().to_canonical())
    }

    pub(super) fn try_clone(&self) -> io::Result<Channel> {
        let tls = self.tls.clone();
        Ok(Channel { tls, ..Channel::plain(self.socket.try_clone()?) })
    }

    /// Reads some bytes; 0 at the end. Fails with the timeout of the socket.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.socket.read(bytes) };
        loop {
            if let Some(count) = decrypt(
                &mut tls.lock(),
                &self.encrypted,
                &mut self.decrypted,
                bytes,
                &mut self.socket,
            )? {
                return Ok(count);
            }
            self.encrypted.resize(ENCRYPTED_BYTES, 0);
            let read = self.socket.read(&mut self.encrypted);
            self.encrypted.truncate(read.as_ref().map_or(0, |count| *count));
            self.decrypted = 0;
            if read? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return self.socket.write_all(bytes) };
        let mut tls = tls.lock();
        tls.writer().write_all(bytes)?;
        flush(&mut tls, &mut self.socket)
    }

    /// Ends reads and writes of both halves.
    pub(super) fn end(&self) {
        // Fails if the peer has ended the connection.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Decrypts until there are bytes for the caller. `None`: more encrypted ones are needed.
fn decrypt(
    tls: &mut ClientConnection,
    encrypted: &[u8],
    decrypted: &mut usize,
    bytes: &mut [u8],
    socket: &mut TcpStream,
) -> io::Result<Option<usize>> {
    loop {
        match tls.reader().read(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done.map(Some),
        }
        let mut rest = &encrypted[*decrypted..];
        if rest.is_empty() {
            return Ok(None);
        }
        *decrypted += tls.read_tls(&mut rest)?;
        let processed = tls.process_new_packets();
        // Also an alert with the reason why the handshake failed.
        flush(tls, socket)?;
        processed.map_err(io::Error::other)?;
    }
}

fn flush(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(socket)?;
    }
    Ok(())
}
