//! The first historical design: one connection at a time, while all others wait.
//!
//! It answers one request per connection with the same responses as every other worker. Its
//! weaknesses are intentional: a slow client blocks all others, and meanwhile the kernel's short
//! queue of waiting connections overflows.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use base::time::{MonoNs, Now, UnixMs};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use wire::http::{Limits, Request, RequestBatch, RequestDecoder};

use super::{ACCEPT, Answer, Opened, READY, REOPEN, ResponseOptions, Site, Start};
use crate::accept::{Accepted, Acceptor};
use crate::channel::{Channel, Received};
use crate::config::Config;

/// Size of one read.
const READ_BYTES: usize = 16 * 1024;

/// Serves one connection after the other until the master orders it to end.
pub(crate) fn run(start: Start) -> anyhow::Result<()> {
    let Start { order, control, listeners, root, .. } = start;
    let mut serial = Serial::new(&order.config, root);
    control.send(READY, &[]).context("could not notify the master")?;
    if !may_begin(&control)? {
        return Ok(());
    }
    let mut acceptor = Acceptor::new();
    loop {
        let mut polled = vec![PollFd::new(&control, PollFlags::IN)];
        polled.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("could not wait for connections"),
        }
        if !polled[0].revents().is_empty() {
            match control.receive().context("could not receive from the master")? {
                Received::Empty => {}
                // It writes no log.
                Received::Message(message) if message.bytes == REOPEN => {}
                // Leave and finish have the same effect here.
                Received::Message(_) | Received::Closed => return Ok(()),
            }
        }
        let ready: Vec<bool> = polled[1..].iter().map(|one| !one.revents().is_empty()).collect();
        drop(polled);
        for (listener, _) in listeners.iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
            if let Accepted::Connection(socket, _) = acceptor.accept(listener, listener.scheme)
                && let Err(error) = serial.serve(socket)
            {
                tracing::debug!(%error, "connection ended early");
            }
        }
    }
}

/// Waits until the master allows accepting. Returns false if the order is to end, or the master has exited.
fn may_begin(control: &Channel) -> anyhow::Result<bool> {
    loop {
        match control.wait().context("could not receive from the master")? {
            Received::Message(message) if message.bytes == ACCEPT => return Ok(true),
            // It writes no log.
            Received::Message(message) if message.bytes == REOPEN => {}
            Received::Empty => {}
            Received::Message(_) | Received::Closed => return Ok(false),
        }
    }
}

struct Serial {
    site: Site,
    limits: Limits,
    timeout: Duration,
    started: Instant,
}

impl Serial {
    fn new(config: &Config, root: Option<OwnedFd>) -> Serial {
        let config = Config { upstream: None, ..config.clone() };
        Serial {
            site: Site::new(&config, root),
            limits: config.wire_limits(),
            timeout: Duration::from_millis(config.head_timeout_ms),
            started: Instant::now(),
        }
    }

    fn now(&self) -> Now {
        let nanoseconds = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let milliseconds = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        Now { unix: UnixMs(milliseconds), mono: MonoNs(nanoseconds), ..Now::default() }
    }

    /// Blocks for the disk too, since no other client is served anyway.
    fn answer(
        &mut self,
        request: &Request<'_>,
        terms: ResponseOptions,
        out: &mut Vec<u8>,
    ) -> Answer {
        let now = self.now();
        let mut opened = None;
        loop {
            let (answer, _) = self.site.answer(request, terms, now, opened.as_ref(), out);
            let Answer::Cold(lookup) = answer else { return answer };
            let Some(opener) = self.site.opener() else { return Answer::Cold(lookup) };
            let done = Opened::by(&opener, lookup);
            self.site.take(&done, now);
            opened = Some(done);
        }
    }

    /// Reads one request, waiting as long as necessary, responds and closes.
    fn serve(&mut self, socket: OwnedFd) -> std::io::Result<()> {
        let mut stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        let (mut input, mut out) = (Vec::new(), Vec::new());
        let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
        let mut answer = Answer::Done;
        while out.is_empty() {
            let filled = input.len();
            input.resize(filled + READ_BYTES, 0);
            let count = match stream.read(&mut input[filled..]) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            input.truncate(filled + count);
            let consumed = decoder.decode(&input, &self.limits, 1, &mut batch);
            if batch.is_empty() {
                input.drain(..consumed);
            } else {
                let request = batch.get(0, &input);
                // As in the original, the response does not announce the end of the connection.
                let terms = ResponseOptions::of(&request, false);
                answer = self.answer(&request, terms, &mut out);
            }
            if let Some(error) = batch.error() {
                self.site.refuse(error, self.now(), &mut out);
            }
        }
        stream.write_all(&out)?;
        if let Answer::File { file, mut offset, bytes } = answer {
            let end = offset + bytes;
            while offset < end {
                let count = usize::try_from(end - offset).unwrap_or(usize::MAX);
                if rustix::fs::sendfile(&stream, file.fd(), Some(&mut offset), count)? == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}
