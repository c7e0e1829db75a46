//! Texts of error replies that all protocols share.

/// Error reply to writes, and to reads of data that the log may have lost.
pub(crate) const LOG_FAILED: &str = "MISCONF Errors writing to the log: writes are refused. Check the \
                          server's log; repair the disk or make room.";

/// Error reply to writes on a replica. Source: Redis 7.2 `server.c`, `shared.roslaveerr`.
pub(crate) const READONLY_HUB: &str =
    "READONLY You can't write against a hub: write to one of its masters.";

pub(crate) const READONLY: &str = "READONLY You can't write against a read only replica.";

/// Error reply to writes if too few replicas are connected. Source: Redis 7.2 `server.c`,
/// `shared.noreplicaserr`.
pub(crate) const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";

/// Error reply to PSYNC and SYNC at a replica without a link to its master. Source: Redis 7.2
/// `replication.c`, `syncCommand`.
pub(crate) const SYNC_UNLINKED: &str = "NOMASTERLINK Can't SYNC while not connected with my master";

/// The same, while the copy is incomplete.
pub(crate) const SYNC_INCOMPLETE: &str = "NOMASTERLINK Can't SYNC while the data is incomplete";

/// Error reply to requests for data at a replica without a link to its master, if
/// `replica-serve-stale-data` is off. Source: Redis 7.2 `server.c`, `shared.masterdownerr`.
pub(crate) const STALE: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";

/// Error reply to requests for data while the copy is incomplete.
pub(crate) const INCOMPLETE: &str =
    "LOADING The data is being copied from the master; it is incomplete.";

/// The same, without a master that could complete it.
pub(crate) const ABANDONED: &str = "LOADING The copy of a master's data was interrupted, and this \
                                    server has no master: send REPLICAOF host port, or restart \
                                    it with an empty directory.";
