//! A line in its naive form: records are sent field by field, one thread computes, another counts.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use parking_lot::Mutex;

use crate::repro::ablation::line::Line;
use crate::repro::ablation::{real, work};

/// Tasks between two clock reads.
const CHUNK: u64 = 16;
const PAUSE: Duration = Duration::from_micros(500);

/// When a buffer is written to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    WhenFull,
    PerTask,
    /// From a dedicated thread.
    Every(Duration),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FieldLine {
    /// 0: every field is a system call, on both sides.
    pub(super) buffer_bytes: usize,
    pub(super) flush: Flush,
    /// Offered tasks per second; unlimited if `None`.
    pub(super) rate: Option<u64>,
}

/// An outgoing connection.
struct Out {
    buffer: Mutex<BufWriter<TcpStream>>,
    flush: Flush,
    is_over: AtomicBool,
}

impl Out {
    /// Runs `work` with the connection, and with a flushing thread if configured. Then sends all
    /// remaining data and the end of the stream.
    fn with(
        line: &FieldLine,
        stream: TcpStream,
        work: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let end = stream.try_clone()?;
        let out = Self {
            buffer: Mutex::new(BufWriter::with_capacity(line.buffer_bytes, stream)),
            flush: line.flush,
            is_over: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            if let Flush::Every(period) = line.flush {
                let out = &out;
                scope.spawn(move || out.flush_every(period));
            }
            let outcome = work(&out);
            out.is_over.store(true, Ordering::SeqCst);
            out.buffer.lock().flush()?;
            end.shutdown(Shutdown::Write)?;
            outcome
        })
    }

    fn flush_every(&self, period: Duration) {
        while !self.is_over.load(Ordering::SeqCst) {
            thread::sleep(period);
            if let Err(error) = self.buffer.lock().flush() {
                // The next writer sees the error too.
                tracing::debug!(%error, "flush failed");
                return;
            }
        }
    }

    /// Writes a record, field by field.
    fn write(&self, fields: &[&[u8]]) -> io::Result<()> {
        let mut buffer = self.buffer.lock();
        for field in fields {
            buffer.write_all(field)?;
        }
        if self.flush == Flush::PerTask {
            buffer.flush()?;
        }
        Ok(())
    }
}

impl Line for FieldLine {
    fn generate(&self, stream: TcpStream, until: Instant) -> Result<u64> {
        let started = Instant::now();
        let mut id = 0_u64;
        Out::with(self, stream, |out| {
            while Instant::now() < until {
                let due = self
                    .rate
                    .map_or(f64::INFINITY, |rate| real(rate) * started.elapsed().as_secs_f64());
                if real(id) >= due {
                    thread::sleep(PAUSE);
                    continue;
                }
                for _ in 0..CHUNK {
                    let (x, y) = work::input(id);
                    out.write(&[&id.to_be_bytes(), &x.to_be_bytes(), &y.to_be_bytes()])?;
                    id += 1;
                }
            }
            Ok(())
        })?;
        Ok(id)
    }

    fn execute(&self, from: TcpStream, to: TcpStream) -> Result<()> {
        let mut from = BufReader::with_capacity(self.buffer_bytes, from);
        Out::with(self, to, |out| {
            while let Some(id) = read_id(&mut from)? {
                let (mut x, mut y) = ([0; 2], [0; 2]);
                from.read_exact(&mut x)?;
                from.read_exact(&mut y)?;
                let digest = work::digest(u16::from_be_bytes(x), u16::from_be_bytes(y));
                out.write(&[&id, &x, &y, &digest])?;
            }
            Ok(())
        })
    }

    fn collect(&self, from: TcpStream) -> Result<u64> {
        let mut from = BufReader::with_capacity(self.buffer_bytes, from);
        let mut collected = 0;
        while let Some(id) = read_id(&mut from)? {
            let (mut x, mut y, mut digest) = ([0; 2], [0; 2], [0; work::DIGEST_BYTES]);
            from.read_exact(&mut x)?;
            from.read_exact(&mut y)?;
            from.read_exact(&mut digest)?;
            let id = u64::from_be_bytes(id);
            ensure!(id == collected, "received task {id} instead of {collected}");
            collected += 1;
        }
        Ok(collected)
    }
}

/// Returns `None` at the end of the stream.
fn read_id(from: &mut impl Read) -> io::Result<Option<[u8; 8]>> {
    let mut id = [0; 8];
    match from.read_exact(&mut id) {
        Ok(()) => Ok(Some(id)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
