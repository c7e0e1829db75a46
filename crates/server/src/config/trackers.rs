//! The server's tree of memory trackers, and the options that limit it.

use std::sync::Arc;

use base::memory::Tracker;
use base::units::Limit;

use super::settings::Settings;
use crate::protocol::ClientProtocol;

/// A tracker with a child for each protocol.
#[derive(Debug, Clone)]
pub struct ProtocolTrackers {
    pub all: Arc<Tracker>,
    each: [Arc<Tracker>; ClientProtocol::ALL.len()],
}

impl ProtocolTrackers {
    fn new(all: Arc<Tracker>) -> ProtocolTrackers {
        let each = ClientProtocol::ALL.map(|protocol| all.child(protocol.name(), Limit::None));
        ProtocolTrackers { all, each }
    }

    pub(crate) fn of(&self, protocol: ClientProtocol) -> &Arc<Tracker> {
        &self.each[protocol as usize]
    }
}

/// Every tracker that is charged directly. All are descendants of `server`.
#[derive(Debug, Clone)]
pub struct MemoryTrackers {
    pub server: Arc<Tracker>,
    /// Requests that were received but not yet executed. Those of CQL are limited by
    /// `cql-rpc-memory-limit`.
    pub read_buffer: ProtocolTrackers,
    /// Memory that requests need while they run.
    pub call: ProtocolTrackers,
    /// Keys and values. Limited by `maxmemory`.
    pub store: Arc<Tracker>,
    /// Log records that are not written yet.
    pub log: Arc<Tracker>,
    /// Replies that are not sent yet.
    pub output: ProtocolTrackers,
    /// Prepared CQL statements. Limited by `prepared-statements-memory`.
    pub prepared: Arc<Tracker>,
    /// Scripts, and the memory of the interpreters that run them.
    pub scripts: Arc<Tracker>,
    /// Pub/sub messages and MONITOR lines that are not yet delivered to their reactors.
    pub messages: Arc<Tracker>,
    /// Cost of open connections, even when idle.
    pub clients: Arc<Tracker>,
}

impl MemoryTrackers {
    /// `machine_bytes`: what a percentage of `memory-limit` refers to.
    pub fn new(settings: &Settings, machine_bytes: Option<u64>) -> Self {
        let server = Tracker::root("server", Limit::None, machine_bytes);
        let of_protocols = |name| ProtocolTrackers::new(server.child(name, Limit::None));
        let trackers = Self {
            read_buffer: of_protocols("read-buffer"),
            call: of_protocols("call"),
            output: of_protocols("output"),
            store: server.child("store", Limit::None),
            log: server.child("log", Limit::None),
            prepared: server.child("prepared-statements", Limit::None),
            scripts: server.child("scripts", Limit::None),
            messages: server.child("messages", Limit::None),
            clients: server.child("clients", Limit::None),
            server,
        };
        trackers.apply(settings);
        trackers
    }

    /// Applies the limits; called again after each CONFIG SET.
    pub fn apply(&self, settings: &Settings) {
        self.server.set_limit(settings.memory_limit);
        self.read_buffer.all.set_limit(settings.read_buffer_memory_limit);
        self.read_buffer.of(ClientProtocol::Cql).set_limit(settings.cql_rpc_memory_limit);
        self.prepared.set_limit(Limit::Bytes(settings.prepared_statements_bytes_max));
        self.store.set_limit(match settings.maxmemory_bytes {
            0 => Limit::None,
            bytes => Limit::Bytes(bytes),
        });
    }
}

/// Memory available to this process: the machine's, or its control group's if that is less. `None`
/// if the kernel reports neither.
pub fn machine_memory_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|t| meminfo_total(&t));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// `MemTotal:       16384256 kB`
fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_limit_the_tree() {
        let mut settings = Settings::default();
        let trackers = MemoryTrackers::new(&settings, Some(1_000_000));
        assert_eq!(trackers.server.limit_bytes(), Some(900_000));
        assert_eq!(trackers.read_buffer.all.limit_bytes(), Some(45_000));
        assert_eq!(trackers.store.limit_bytes(), None);

        settings.memory_limit = Limit::None;
        settings.maxmemory_bytes = 7;
        trackers.apply(&settings);
        assert_eq!(trackers.server.limit_bytes(), None);
        assert_eq!(trackers.read_buffer.all.limit_bytes(), None);
        assert_eq!(trackers.store.limit_bytes(), Some(7));
    }

    #[test]
    fn the_tree_has_every_node() {
        let trackers = MemoryTrackers::new(&Settings::default(), None);
        let paths: Vec<_> = trackers.server.tree().into_iter().map(|node| node.path).collect();
        for path in [
            "read-buffer/resp",
            "call/cql",
            "output/http",
            "store",
            "log",
            "prepared-statements",
            "messages",
            "scripts",
            "clients",
        ] {
            assert!(paths.contains(&format!("server/{path}")), "{path}");
        }
        assert_eq!(paths.len(), 10 + 3 * ClientProtocol::ALL.len());
    }

    #[test]
    fn the_machines_memory_is_read() {
        assert_eq!(
            meminfo_total("MemTotal:       16384256 kB\nMemFree: 1 kB\n"),
            Some(16_777_478_144)
        );
        assert_eq!(meminfo_total("MemFree: 1 kB\n"), None);
        assert_eq!(meminfo_total("MemTotal: much\n"), None);
    }
}
