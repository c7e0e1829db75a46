//! Events that clients register for: changes of the schema, and of the servers of the replication.

use wire::cql::NodeEvent;

/// Kinds of events that a connection has registered for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventKinds(u8);

impl EventKinds {
    const SCHEMA: u8 = 1;
    const STATUS: u8 = 2;
    const TOPOLOGY: u8 = 4;

    /// Adds a kind by its name in REGISTER. Returns false if there is no such kind.
    // Source: native_protocol_v5.spec 4.2.6 "EVENT"
    pub(crate) fn add(&mut self, name: &str) -> bool {
        let kind = match name {
            "SCHEMA_CHANGE" => Self::SCHEMA,
            "STATUS_CHANGE" => Self::STATUS,
            "TOPOLOGY_CHANGE" => Self::TOPOLOGY,
            _ => return false,
        };
        self.0 |= kind;
        true
    }

    pub(crate) fn wants_node(self, event: NodeEvent) -> bool {
        self.0 & if event.is_topology() { Self::TOPOLOGY } else { Self::STATUS } != 0
    }

    /// Whether the client keeps a list of servers.
    pub(crate) fn wants_nodes(self) -> bool {
        self.0 & (Self::TOPOLOGY | Self::STATUS) != 0
    }

    pub(crate) fn wants_schema(self) -> bool {
        self.0 & Self::SCHEMA != 0
    }
}
