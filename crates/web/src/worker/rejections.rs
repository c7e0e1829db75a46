//! Requests and connections that are refused because a limit is reached.

/// Numbers of 503 responses and of closed connections (after a request, or TLS connections before
/// the handshake), by the limit that was reached.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rejections {
    /// Connections of this worker.
    pub(super) connections: u64,
    /// Connections of one client address.
    pub(super) addresses: u64,
    /// Open files of this process.
    pub(super) descriptors: u64,
    /// Files that wait for the disk.
    pub(super) files: u64,
    /// Requests at the upstream or queued for it, and WebSocket handshakes.
    pub(super) upstream: u64,
    /// Requests that waited too long in the queue.
    pub(super) queue_timeouts: u64,
    /// Unfinished requests and unread responses.
    pub(super) memory: u64,
}

impl Rejections {
    /// Adds further refusals.
    pub(super) fn add(&mut self, more: Rejections) {
        self.connections += more.connections;
        self.addresses += more.addresses;
        self.descriptors += more.descriptors;
        self.files += more.files;
        self.upstream += more.upstream;
        self.queue_timeouts += more.queue_timeouts;
        self.memory += more.memory;
    }

    /// Logs the refusals since the last call, if any.
    pub(super) fn report(&mut self) {
        let rejections = std::mem::take(self);
        let Rejections { connections, addresses, descriptors, files, .. } = rejections;
        let Rejections { upstream, queue_timeouts, memory, .. } = rejections;
        if rejections != Rejections::default() {
            tracing::warn!(
                connections,
                addresses,
                descriptors,
                files,
                upstream,
                queue_timeouts,
                memory,
                "limits reached; clients refused with 503 or disconnected"
            );
        }
    }
}
