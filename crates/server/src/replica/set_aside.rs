//! Sets aside the writes of this server that its new master does not have, before a copy of the
//! master's data replaces them.
//!
//! They are those of a master that lost its link before it was replaced. They stay readable, as
//! lines of JSON, and an operator can apply them again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog::{Batch, FollowError, Follower, Lsn, Record, Scope};
use store::Mutation;
use wire::replication::Epoch;

use super::is_of_source_alone;
use crate::engine::change_json::Names;
use crate::engine::records;
use crate::engine::replication::Place;
use crate::engine::server_state::ServerState;
use crate::logtool::put_line;

/// The folder in `dir`.
const FOLDER: &str = "set-aside";
/// The writes have been written to the log, and are about to be durable.
const SYNC_WAIT: Duration = Duration::from_millis(100);

/// Stores the writes that a master with these epochs, whose data ends at `end` of the stream, does
/// not have. On an error nothing was stored under the final name.
/// Ends early, with an error, when `is_over` is true: the next link tries again.
pub(super) fn set_aside(
    shared: &ServerState,
    epochs: &[Epoch],
    end: u64,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let history = shared.replication.history().clone();
    let own_end = shared.replication.end(&shared.log);
    let Some(common) = history.common(epochs, own_end, end).filter(|common| *common < own_end)
    else {
        return Ok(());
    };
    let Some(place) = history.find(common) else {
        tracing::warn!(position = common, "the writes that the master does not have are too old");
        return Ok(());
    };
    let from = match place {
        Place::At(log) | Place::After(log) => log,
    };
    let follower = match shared.log.follow(from, Scope::Durable) {
        Err(FollowError::Truncated { first, .. }) => {
            tracing::warn!(
                from = from.0,
                first = first.0,
                "the log no longer has the first writes that the master does not have"
            );
            shared.log.follow(first, Scope::Durable)
        }
        follower => follower,
    };
    let follower = follower.map_err(io::Error::other)?;
    let epoch = history
        .epoch()
        .map_or_else(String::new, |epoch| String::from_utf8_lossy(&epoch.id).into_owned());
    let folder = shared.settings.load().dir.join(FOLDER);
    let mut aside = Aside {
        folder,
        name: format!("{epoch}-{common}.jsonl"),
        names: Names::of(&shared.catalog.load()),
        out: None,
        writes: 0,
    };
    let unfinished = unfinished(&aside.folder, &aside.name);
    let done = copy(shared, follower, is_over, |record| {
        if is_missing(record, common) { aside.put(record) } else { Ok(()) }
    })
    .and_then(|()| aside.finish());
    if done.is_err() && unfinished.try_exists()? {
        fs::remove_file(unfinished)?; // its space may be what is missing
    }
    done
}

/// Whether a record has writes of clients after position `common` of the stream.
fn is_missing(record: &Record<'_>, common: u64) -> bool {
    let Some(contents) = records::contents(record) else { return false };
    // A record of an own era begins at its position; others name where they end.
    if contents.position.is_some_and(|position| position <= common) {
        return false;
    }
    let mut input = contents.mutations;
    while !input.is_empty() {
        match Mutation::decode(&mut input, |_| 0) {
            Ok(mutation) if is_of_source_alone(&mutation) => {}
            // One that cannot be read is shown, too.
            Ok(_) | Err(_) => return true,
        }
    }
    false
}

/// Reads the log up to its present end.
fn copy(
    shared: &ServerState,
    mut follower: Follower,
    is_over: &dyn Fn() -> bool,
    mut put: impl FnMut(&Record<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let end: Lsn = shared.log.next();
    shared.log.request_sync(end);
    let mut batch = Batch::new();
    while follower.position() < end {
        if is_over() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match follower.next_batch(&mut batch) {
            Ok(true) => batch.records().try_for_each(|record| put(&record))?,
            Ok(false) if shared.log.poisoned().is_some() => {
                return Err(io::Error::other("the log has failed"));
            }
            Ok(false) => {
                follower.wait(SYNC_WAIT);
            }
            Err(error @ FollowError::Damaged { .. }) => {
                // Another attempt would find the same.
                tracing::error!(%error, "could not read all writes that the master does not have");
                return Ok(());
            }
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(())
}

/// The file, which exists from the first write on.
struct Aside {
    folder: PathBuf,
    name: String,
    names: Names,
    out: Option<BufWriter<File>>,
    writes: u64,
}

impl Aside {
    fn put(&mut self, record: &Record<'_>) -> io::Result<()> {
        if self.out.is_none() {
            self.out = Some(BufWriter::new(create(&self.folder, &self.name)?));
        }
        let out = self.out.as_mut().expect("created above");
        self.writes += 1;
        put_line(record, &self.names, out)
    }

    fn finish(self) -> io::Result<()> {
        let Some(out) = self.out else { return Ok(()) };
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        // A later attempt may find less of the same records in the log.
        let mut file = self.folder.join(&self.name);
        for number in 2_u32.. {
            if !file.try_exists()? {
                break;
            }
            file = self.folder.join(format!("{}.{number}", self.name));
        }
        fs::rename(unfinished(&self.folder, &self.name), &file)?;
        File::open(&self.folder)?.sync_all()?;
        tracing::warn!(
            writes = self.writes,
            file = %file.display(),
            "set aside the writes that the master does not have"
        );
        Ok(())
    }
}

fn unfinished(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.part"))
}

fn create(folder: &Path, name: &str) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A file of an interrupted attempt is replaced.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(unfinished(folder, name))
}
