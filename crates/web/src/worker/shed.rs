//! What is refused because there is too much of it.

/// Answers of 503, connections that were cut off, and those with TLS that were closed, by what there was
/// too much of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shed {
    /// Connections of this worker.
    pub(super) connections: u64,
    /// Connections of one address.
    pub(super) addresses: u64,
    /// Open files of this process.
    pub(super) descriptors: u64,
    /// Files that the disk is asked for.
    pub(super) files: u64,
    /// Requests at the upstream.
    pub(super) upstream: u64,
}

impl Shed {
    /// Tells the operator what was refused since the last call, if anything was.
    pub(super) fn report(&mut self) {
        let Shed { connections, addresses, descriptors, files, upstream } = std::mem::take(self);
        if connections + addresses + descriptors + files + upstream != 0 {
            tracing::warn!(
                connections,
                addresses,
                descriptors,
                files,
                upstream,
                "clients were refused with 503, or closed before a handshake: there is too much of these"
            );
        }
    }
}
