//! Resources that the master opens for its workers, which may lack the permissions.

use std::os::fd::OwnedFd;

use crate::config::Config;
use crate::content::files::open_root;
use crate::identity::Identity;
use crate::privileges::WorkerUser;
use crate::worker::log;

#[derive(Debug)]
pub(crate) struct Resources {
    /// Certificate and key of the TLS listeners.
    pub(crate) identity: Option<Identity>,
    /// The directory whose files are served.
    pub(crate) root: Option<OwnedFd>,
    /// The file of the access log.
    pub(crate) log: Option<OwnedFd>,
    /// The user of the workers, if it differs from the master's.
    pub(crate) user: Option<WorkerUser>,
}

impl Resources {
    /// Opens the configured resources. Blocks for the disk.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Resources> {
        Ok(Resources {
            user: WorkerUser::find(config)?,
            identity: Identity::read(config)?,
            root: config.root.as_deref().map(open_root).transpose()?,
            log: config.access_log.as_deref().map(log::open).transpose()?,
        })
    }
}
