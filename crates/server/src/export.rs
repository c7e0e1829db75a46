//! `myriad export`: writes the keys and functions of a data directory to an RDB file, which Redis
//! 7.0 and later load, or, if fields of hashes expire, Valkey 9.0 and later.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use binlog::Lsn;
use store::{Keyspace, Params, STRIPES};

use crate::data_directory;
use crate::engine::functions;
use crate::engine::rdb::{put_value, written_type};
use crate::engine::rdb_file::{begin_file, version_for};
use crate::repair::{ReadBack, offline_params, read_back};

/// Bytes that are encoded before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Keys by database and type.
type Keys = BTreeMap<(u8, &'static str), u64>;

/// What was written.
#[derive(Debug, Default)]
struct Counts {
    keys: Keys,
    /// Keys of types that Redis does not have.
    omitted: Keys,
    libraries: usize,
}

/// Writes the keys in the data directory of a stopped server to the new file `to`.
pub fn export(dir: &Path, to: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let disk = data_directory::hold(dir)?;
    let ReadBack { read, found, .. } = read_back(&disk, Lsn(u64::MAX))?;
    if let Some(fault) = &found.fault {
        bail!("{fault}; to recover what can be read, see myriad log --help");
    }
    let params = offline_params(&read.keyspace);
    let writing = || format!("could not write {}", to.display());
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(to).with_context(writing)?;
    let written = write(&read.keyspace, &params, file);
    if written.is_err() {
        fs::remove_file(to).with_context(|| format!("could not remove {}", to.display()))?;
    }
    let Counts { keys, omitted, libraries } = written.with_context(writing)?;
    for ((db, type_name), count) in keys {
        writeln!(out, "database {db}: {count} keys of type {type_name}")?;
    }
    for ((db, type_name), count) in omitted {
        writeln!(out, "database {db}: {count} keys of type {type_name} were left out")?;
    }
    if libraries > 0 {
        writeln!(out, "{libraries} libraries of functions")?;
    }
    writeln!(out, "{} is complete; tables of CQL are not part of it", to.display())?;
    Ok(())
}

fn write(keyspace: &Keyspace, params: &Params, mut file: File) -> std::io::Result<Counts> {
    let libraries = functions::stored(keyspace, params);
    let mut encoder = begin_file(version_for(keyspace, params), &libraries);
    let (mut keys, mut omitted) = (Keys::new(), Keys::new());
    for stripe in 0..STRIPES {
        keyspace.lock_stripe(stripe, params).for_each_value(|db, key, value, expiry| {
            let expires_unix_ms = expiry.map(|at| at.0);
            let counts = if let Some(written) = written_type(&value) {
                put_value(encoder.put_key(db, key, expires_unix_ms, written), &value);
                &mut keys
            } else {
                &mut omitted
            };
            *counts.entry((db, value.kind().name())).or_default() += 1;
        });
        if encoder.pending_bytes() >= WRITE_BYTES {
            file.write_all(&encoder.take())?;
        }
    }
    file.write_all(&encoder.take())?;
    file.write_all(&encoder.finish())?;
    file.sync_all()?;
    Ok(Counts { keys, omitted, libraries: libraries.len() })
}
