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
    /// Requests at the upstream and in the queue for it, or opening a WebSocket.
    pub(super) upstream: u64,
    /// Requests that waited too long in that queue.
    pub(super) queue_timeouts: u64,
}

impl Shed {
    /// Adds what was refused meanwhile.
    pub(super) fn add(&mut self, more: Shed) {
        self.connections += more.connections;
        self.addresses += more.addresses;
        self.descriptors += more.descriptors;
        self.files += more.files;
        self.upstream += more.upstream;
        self.queue_timeouts += more.queue_timeouts;
    }

    /// Tells the operator what was refused since the last call, if anything was.
    pub(super) fn report(&mut self) {
        let Shed { connections, addresses, descriptors, files, upstream, queue_timeouts } =
            std::mem::take(self);
        if connections + addresses + descriptors + files + upstream + queue_timeouts != 0 {
            tracing::warn!(
                connections,
                addresses,
                descriptors,
                files,
                upstream,
                queue_timeouts,
                "clients were refused with 503, or closed before a handshake: there is too much of these"
            );
        }
    }
}
