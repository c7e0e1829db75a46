//! A Myriad that is killed and restarted on its directory, from its log or from a snapshot.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use wire::cql::Version;

use crate::cql::connection::Connection;
use crate::process::{Server, TempDir};
use crate::resp::{self, Value};

/// The server and its directory.
#[derive(Debug)]
pub(super) struct Disturbed {
    root: PathBuf,
    /// Declared before the directory, so that it ends first.
    server: Option<Server>,
    directory: TempDir,
    restarts: usize,
}

impl Disturbed {
    pub(super) fn start(root: &Path) -> Result<Disturbed> {
        let directory = TempDir::new("disturbed")?;
        let server = Some(Server::start_on(root, directory.path())?);
        Ok(Disturbed { root: root.to_owned(), server, directory, restarts: 0 })
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it is started again when it was ended")
    }

    pub(super) fn connect(&self) -> Result<Connection> {
        let address = self.server().cql_address.as_ref().context("it listens for CQL")?;
        Connection::open_as(address, Version::V5, None)
    }

    /// Kills it, every second time after a snapshot, and restarts it.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.restarts += 1;
        if self.restarts.is_multiple_of(2) {
            match resp::Connection::open(&self.server().address)?.call(&["SAVE"])? {
                Value::Simple(text) if text == b"OK" => {}
                other => bail!("SAVE was answered {other:?}"),
            }
        }
        // Killed by SIGKILL when the value is dropped.
        self.server = None;
        self.server = Some(Server::start_on(&self.root, self.directory.path())?);
        Ok(())
    }
}
