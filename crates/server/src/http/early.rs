//! HTTP during recovery: reports that the server is running but not ready.
//!
//! One thread serves one connection at a time on the sockets that the reactors take over later.
//! Each connection has one second. If recovery ends first, the reactors serve the connections that
//! are still queued.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use wire::http::{Limits, RequestBatch, RequestDecoder, ResponseWriter};

use super::exchange::{JSON, TEXT};
use crate::engine::clock;

/// Time limit of one connection.
const SERVED_NS_MAX: u64 = 1_000_000_000;
const READ_BYTES: usize = 4096;

/// The thread that answers during recovery. Dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Early {
    /// Dropped first, which makes the thread exit.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Early {
    pub(crate) fn start(listeners: &[TcpListener]) -> io::Result<Early> {
        Early::start_with(listeners, SERVED_NS_MAX)
    }

    fn start_with(listeners: &[TcpListener], served_ns_max: u64) -> io::Result<Early> {
        let listeners: Vec<_> =
            listeners.iter().map(TcpListener::try_clone).collect::<io::Result<_>>()?;
        if listeners.is_empty() {
            return Ok(Early { stop: None, thread: None });
        }
        let (stopped, stop) = io::pipe()?;
        let run = move || {
            if let Err(error) = answer_all(&listeners, &stopped, served_ns_max) {
                tracing::warn!(%error, "could not answer HTTP during recovery");
            }
        };
        let thread = std::thread::Builder::new().name("early-http".to_owned()).spawn(run)?;
        Ok(Early { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread does not panic");
        }
    }
}

fn answer_all(
    listeners: &[TcpListener],
    stopped: &PipeReader,
    served_ns_max: u64,
) -> io::Result<()> {
    loop {
        let mut watched: Vec<_> =
            listeners.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN)).collect();
        watched.push(PollFd::new(stopped.as_fd(), PollFlags::POLLIN));
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if watched.last().is_some_and(|end| end.any() != Some(false)) {
            return Ok(());
        }
        for (listener, _) in listeners.iter().zip(&watched).filter(|(_, p)| p.any() == Some(true)) {
            // The peer may be gone, or descriptors may be short for a moment: polling repeats the
            // attempt.
            if let Ok((stream, _)) = listener.accept()
                && let Err(error) = answer(stream, served_ns_max)
            {
                tracing::debug!(%error, "early HTTP connection failed");
            }
        }
    }
}

/// Answers one request if it arrives within `served_ns_max`.
fn answer(mut stream: TcpStream, served_ns_max: u64) -> io::Result<()> {
    let began = clock::mono_now();
    stream.set_nonblocking(false)?;
    let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
    let mut input = Vec::new();
    loop {
        let passed_ns = clock::mono_now().since(began);
        let Some(left_ns) = served_ns_max.checked_sub(passed_ns).filter(|left| *left > 0) else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        stream.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
        let mut bytes = [0; READ_BYTES];
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&bytes[..count]),
        }
        decoder.decode(&input, &Limits::DEFAULT, 1, &mut batch);
        let mut out = Vec::new();
        if let Some(error) = batch.error() {
            ResponseWriter::new(&mut out, error.status()).header("Connection", b"close").body(b"");
        } else if batch.is_empty() {
            continue;
        } else {
            write_answer(batch.get(0, &input).path(), &mut out);
        }
        stream.set_write_timeout(Some(Duration::from_nanos(served_ns_max)))?;
        return stream.write_all(&out);
    }
}

fn write_answer(path: &[u8], out: &mut Vec<u8>) {
    let (status, media, body): (_, _, &[u8]) = match path {
        b"/healthz" => (200, TEXT, b"ok\n"),
        b"/readyz" => (503, JSON, b"{\"status\":\"recovering\"}\n"),
        _ => (503, JSON, b"{\"error\":\"LOADING the data is being recovered\"}"),
    };
    let head = ResponseWriter::new(out, status).header("Content-Type", media.as_bytes());
    head.header("Retry-After", b"1").header("Connection", b"close").body(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: std::net::SocketAddr, target: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // Send the request in two parts, as a slow network may deliver it.
        write!(stream, "GET {target} HTTP/1.1\r\nHo").unwrap();
        stream.flush().unwrap();
        write!(stream, "st: a\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_recovering_server_is_healthy_but_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Long enough for a client that is descheduled between the two parts.
        let patience_ns = 60 * SERVED_NS_MAX;
        let early = Early::start_with(std::slice::from_ref(&listener), patience_ns).unwrap();
        assert!(ask(address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
        let ready = ask(address, "/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(ready.ends_with("{\"status\":\"recovering\"}\n"), "{ready}");
        assert!(ask(address, "/get/a").contains("LOADING"));
        drop(early);
        // The reactors own the socket now, including its queued connections.
        let waiting = TcpStream::connect(address).unwrap();
        assert_eq!(listener.accept().unwrap().1, waiting.local_addr().unwrap());
        drop(Early::start(&[]).unwrap());
    }
}
