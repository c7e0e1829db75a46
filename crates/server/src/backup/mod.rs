//! `myriad backup`: stores the replication stream of a running server in files.
//!
//! The first backup receives a copy of all data and the records up to where the copy is consistent;
//! each later one continues where the last file ends. `archive` has the files, `storage` the place
//! where they are, and [`crate::restore`] reads them.

pub(crate) mod archive;
pub(crate) mod moments;
pub mod storage;

use std::cell::Cell;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use reactor::TlsError;
use rustls::ClientConfig;
use wire::replication::{
    ARCHIVE_CAPABILITY, CAPABILITY, CHAIN_CAPABILITY, Chain, Copied, EpochId, Frame, Header, Kind,
    Opening, TIMES_CAPABILITY, Time, take_times,
};
use wire::resp::Reply;

use crate::config::{MasterAddress, Settings};
use crate::replica::{Link, LinkError, Login, PROGRAM};
use crate::tls;
use archive::{Draft, FileHeader};
use storage::Storage;

/// While it follows the source, a backup ends a file with new records after this time, or when it
/// has this many bytes. A lost machine loses no more than that of the backup.
const FILE_TIME: Duration = Duration::from_secs(10);
const FILE_BYTES: u64 = 64 << 20;
/// Time between two attempts to reach the source.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two reports of the progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// What is newer than the last file; everything if there is none.
    Continue,
    /// A new copy of all data.
    Full,
}

/// When to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// At the position that the source had reached when the backup began.
    Reached,
    /// On SIGTERM or SIGINT.
    Stopped,
}

/// The files of a connection with TLS.
#[derive(Debug, Clone, Default)]
pub struct ClientTls {
    /// Certificates of the authorities that may sign that of the server.
    pub authorities: PathBuf,
    /// The certificate of this client and its key; empty: it has none.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A backup to take.
#[derive(Debug)]
pub struct Backup {
    pub source: MasterAddress,
    /// Empty: the default user.
    pub user: String,
    pub password: Option<String>,
    pub tls: Option<ClientTls>,
    pub begin: Begin,
    pub until: Until,
    /// Full backups that a new one leaves, itself included; `None`: all.
    pub keep: Option<NonZeroUsize>,
}

/// Why the stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The target was reached, or a signal arrived.
    Done,
    /// The connection ended.
    Lost,
}

/// The end of the newest file.
#[derive(Debug, Clone, Copy)]
struct Newest {
    number: u64,
    epoch: EpochId,
    position: u64,
    crc: u32,
    chain: Chain,
}

/// Takes a backup, which this process alone writes to `storage`. Reports its progress on standard
/// error, and each file on `out`.
pub fn take(backup: &Backup, storage: &dyn Storage, out: &mut dyn Write) -> anyhow::Result<()> {
    let signals = reactor::Signals::open().context("could not block signals")?;
    let is_stopped = Cell::new(false);
    let is_over = || {
        let signal = signals.take();
        let ends = |one| matches!(one, reactor::Signal::Terminate | reactor::Signal::Interrupt);
        is_stopped.set(is_stopped.get() || signal.is_some_and(ends));
        is_stopped.get()
    };
    let tls = backup.tls.as_ref().map(load).transpose().context("could not use TLS")?;
    let chains = archive::chains(storage)?;
    let newest = chains.last().and_then(|chain| chain.last()).map(|file| Newest {
        number: file.header.number,
        epoch: file.header.epoch,
        position: file.end.position,
        crc: file.end.crc,
        chain: file.end.chain,
    });
    let must_copy = backup.begin == Begin::Full;
    let mut taker = Taker { backup, tls, storage, newest, must_copy, receiving: None, out };
    let mut is_reported = false;
    loop {
        match taker.run(&is_over) {
            Ok(Ended::Done) => return Ok(()),
            Ok(Ended::Lost) => is_reported = false,
            Err(error) if backup.until == Until::Reached => return Err(error),
            Err(error) if error.is::<LinkError>() => {
                if !std::mem::replace(&mut is_reported, true) {
                    tell(&format!("myriad: {error:#}; trying again every second"));
                }
            }
            Err(error) => return Err(error),
        }
        let again = Instant::now() + RETRY;
        while Instant::now() < again {
            if is_over() {
                return Ok(());
            }
            std::thread::sleep(RETRY / 10);
        }
    }
}

/// A file that is being received.
#[derive(Debug)]
struct Receiving<'d> {
    draft: Draft<'d>,
    number: u64,
    base: u64,
    epoch: EpochId,
    /// Whether it begins with a copy.
    is_full: bool,
    /// Where its frames end.
    position: u64,
    /// The position from which on the data is consistent; `None`: the copy is not complete.
    reach: Option<u64>,
    /// The newest position whose time is known, and the first of its times.
    timed: Time,
    /// A frame that repeats this position with a later time: kept only until the next one.
    repeated: Option<(Header, Vec<u8>)>,
    began: Instant,
}

impl Receiving<'_> {
    /// Whether the file could end here.
    fn is_whole(&self) -> bool {
        self.reach.is_some_and(|reach| self.position >= reach)
    }

    fn has_news(&self) -> bool {
        self.is_full || self.position > self.base
    }

    fn is_due(&self) -> bool {
        self.began.elapsed() >= FILE_TIME || self.draft.bytes() >= FILE_BYTES
    }

    /// Stores a frame.
    fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        let header = &frame.header;
        if header.kind == Kind::Times {
            return self.put_times(frame);
        }
        if matches!(header.kind, Kind::Records | Kind::Heartbeat) {
            let (at, found) = (self.position, header.base);
            if at != found {
                bail!("the stream continues at {found}, not at {at}");
            }
            self.position = header.end;
            if header.kind == Kind::Heartbeat && header.base == header.end {
                return Ok(());
            }
        }
        if header.kind == Kind::Copied {
            self.reach = Some(Copied::decode(frame.contents)?.reach);
        }
        self.flush_times()?;
        self.draft.put(frame)
    }

    /// Stores times. A source without news sends the time of the same position once a second: the
    /// last one is enough.
    fn put_times(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        let times = take_times(&frame.header, frame.contents)?;
        if let [time] = &times[..]
            && time.position == self.timed.position
            && time.unix_us >= self.timed.unix_us
        {
            self.repeated = Some((frame.header, frame.contents.to_vec()));
            return Ok(());
        }
        if let Some(last) = times.last().filter(|last| last.position >= self.timed.position) {
            self.timed = *last;
        }
        self.flush_times()?;
        self.draft.put(frame)
    }

    fn flush_times(&mut self) -> anyhow::Result<()> {
        match self.repeated.take() {
            Some((header, contents)) => {
                self.draft.put(&Frame { header, contents: &contents, chain: Chain::default() })
            }
            None => Ok(()),
        }
    }
}

struct Taker<'a> {
    backup: &'a Backup,
    tls: Option<Arc<ClientConfig>>,
    storage: &'a dyn Storage,
    newest: Option<Newest>,
    /// The next file must begin with a copy.
    must_copy: bool,
    receiving: Option<Receiving<'a>>,
    out: &'a mut dyn Write,
}

impl<'a> Taker<'a> {
    /// Receives the stream over one connection.
    fn run(&mut self, is_over: &dyn Fn() -> bool) -> anyhow::Result<Ended> {
        let Backup { source, user, password, .. } = self.backup;
        let password = password.as_ref().map(String::as_bytes);
        let login = Login { user: user.as_bytes(), password };
        let mut link = Link::log_in(source, self.tls.clone(), &login, is_over)?;
        let target = position_of(&link.query("ROLE", &[], is_over)?)?;
        let known = self.newest.filter(|_| !self.must_copy).map(|one| (one.epoch, one.position));
        let details = [
            ("version", PROGRAM),
            ("capa", CAPABILITY),
            ("capa", CHAIN_CAPABILITY),
            ("capa", ARCHIVE_CAPABILITY),
            ("capa", TIMES_CAPABILITY),
        ];
        let details = details.map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        link.ask("REPLCONF", details.as_flattened(), is_over)?;
        link.request(known, &[], is_over)?;
        let ended = match self.receive(&mut link, target, is_over) {
            Ok(()) => Ended::Done,
            Err(error) if self.follows() && error.is::<LinkError>() => {
                tell(&format!("myriad: {error:#}"));
                Ended::Lost
            }
            Err(error) => {
                self.receiving = None;
                return Err(error);
            }
        };
        match self.receiving.take() {
            Some(receiving) if receiving.is_whole() => self.finish(receiving)?,
            _ if ended == Ended::Done => bail!("stopped before the copy was complete"),
            _ => {}
        }
        Ok(ended)
    }

    fn follows(&self) -> bool {
        self.backup.until == Until::Stopped
    }

    /// Receives frames until the end.
    fn receive(
        &mut self,
        link: &mut Link,
        target: u64,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<()> {
        let mut report = Report::new(target);
        while let Some(frame) = link.read_frame(is_over)? {
            let header = &frame.header;
            if matches!(header.kind, Kind::Resume | Kind::Copy) {
                self.begin(&frame)?;
            }
            let receiving = self.receiving.as_mut().context("the stream has no beginning")?;
            receiving.put(&frame)?;
            report.note(receiving.draft.bytes(), receiving.position);
            if !receiving.is_whole() {
                continue;
            }
            // The time of the last position follows, unless the source is of a version that sends
            // none.
            let has_time = receiving.timed.position >= target;
            let is_idle = header.kind == Kind::Heartbeat && header.base == header.end;
            let is_reached = receiving.position >= target && (has_time || is_idle);
            if self.backup.until == Until::Reached && is_reached {
                break;
            }
            if self.backup.until == Until::Stopped && receiving.has_news() && receiving.is_due() {
                self.end_file()?;
            }
        }
        Ok(())
    }

    /// Begins a file with the first frame of a stream.
    fn begin(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        let header = &frame.header;
        if self.receiving.is_some() {
            bail!("the stream begins twice");
        }
        let epoch = Opening::decode(frame)?.epochs.last().map(|epoch| epoch.id);
        let epoch = epoch.context("the stream has no epoch")?;
        let is_full = header.kind == Kind::Copy;
        if let (true, false, Some(newest)) = (is_full, self.must_copy, self.newest) {
            tell(&format!(
                "myriad: the source cannot continue at position {}: its log no longer has the \
                 records after it, or its data is another; this is a new full backup",
                newest.position
            ));
        }
        let reach = (!is_full).then_some(header.base);
        self.receiving = Some(self.open(header.base, epoch, reach)?);
        Ok(())
    }

    /// Begins a file. `reach`: where the data is consistent; `None`: the file begins with a copy.
    fn open(&self, base: u64, epoch: EpochId, reach: Option<u64>) -> anyhow::Result<Receiving<'a>> {
        let is_full = reach.is_none();
        let number = self.newest.map_or(0, |newest| newest.number) + 1;
        let before = self.newest.filter(|_| !is_full);
        let (previous, chain) = before.map(|newest| (newest.crc, newest.chain)).unzip();
        let chain = chain.unwrap_or_default();
        let draft =
            Draft::begin(self.storage, &FileHeader { number, base, epoch, previous, chain })?;
        let began = Instant::now();
        Ok(Receiving {
            draft,
            number,
            base,
            epoch,
            is_full,
            position: base,
            reach,
            timed: Time { position: 0, unix_us: i64::MAX },
            repeated: None,
            began,
        })
    }

    /// Ends the file that is being received, and begins another one.
    fn end_file(&mut self) -> anyhow::Result<()> {
        let receiving = self.receiving.take().context("no file is being received")?;
        let (position, epoch) = (receiving.position, receiving.epoch);
        self.finish(receiving)?;
        self.receiving = Some(self.open(position, epoch, Some(position))?);
        Ok(())
    }

    /// Ends a file, unless it has nothing new.
    fn finish(&mut self, mut receiving: Receiving<'_>) -> anyhow::Result<()> {
        receiving.flush_times()?;
        let has_news = receiving.has_news();
        let Receiving { draft, number, epoch, is_full, position, .. } = receiving;
        let kind = if is_full { "full" } else { "incremental" };
        if has_news {
            let bytes = draft.bytes();
            let end = draft.finish(position)?;
            let (crc, chain) = (end.crc, end.chain);
            self.newest = Some(Newest { number, epoch, position, crc, chain });
            self.must_copy = false;
            writeln!(self.out, "file {number}: {kind}, {bytes} bytes, up to position {position}")?;
            if let Some(keep) = self.backup.keep.filter(|_| is_full) {
                let removed = archive::prune(self.storage, keep.get())?;
                writeln!(self.out, "removed {removed} files of older backups")?;
            }
        } else if !self.follows() {
            writeln!(self.out, "nothing new after position {position}")?;
        }
        Ok(self.out.flush()?)
    }
}

fn load(files: &ClientTls) -> Result<Arc<ClientConfig>, TlsError> {
    let ClientTls { authorities, certificate, key } = files.clone();
    tls::load_client(&Settings {
        tls_ca_cert_file: authorities,
        tls_cert_file: certificate,
        tls_key_file: key,
        ..Settings::default()
    })
}

/// The position that the reply to ROLE names.
fn position_of(reply: &Reply) -> anyhow::Result<u64> {
    let Reply::Array(fields) = reply else {
        bail!("the source refused ROLE: {}", shown(reply));
    };
    let position = fields.iter().find_map(|field| match field {
        Reply::Bulk(role) if role == b"master" => fields.get(1),
        Reply::Bulk(role) if role == b"slave" => fields.get(4),
        _ => None,
    });
    match position {
        Some(Reply::Integer(position)) => Ok(u64::try_from(*position)?),
        _ => bail!("the source has an unknown role"),
    }
}

fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

/// Writes a line to standard error. If that is closed, the line is lost.
fn tell(line: &str) {
    base::messages::print_error(line);
}

/// Reports the progress once a second.
#[derive(Debug)]
pub(crate) struct Report {
    target: u64,
    began: Instant,
    reported: Instant,
}

impl Report {
    pub(crate) fn new(target: u64) -> Report {
        let now = Instant::now();
        Report { target, began: now, reported: now }
    }

    pub(crate) fn note(&mut self, bytes: u64, position: u64) {
        if self.reported.elapsed() < REPORT_INTERVAL {
            return;
        }
        self.reported = Instant::now();
        let (mib, seconds) = (bytes >> 20, self.began.elapsed().as_secs().max(1));
        let rate = mib / seconds;
        // A backup that follows its source has no end.
        let left = (position <= self.target).then(|| format!(" of {}", self.target));
        let left = left.unwrap_or_default();
        tell(&format!("{mib} MiB, {rate} MiB/s, position {position}{left}"));
    }
}
