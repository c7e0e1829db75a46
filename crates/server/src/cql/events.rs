//! What clients are told without having asked: changes of the schema.

use wire::cql::{ResponseEncoder, SchemaChange, SchemaTarget};

/// Kinds of events that a connection has registered for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventKinds(u8);

impl EventKinds {
    const SCHEMA: u8 = 1;
    const STATUS: u8 = 2;
    const TOPOLOGY: u8 = 4;

    /// Adds a kind by its name in REGISTER. False if there is no such kind.
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

    pub(crate) fn wants_schema(self) -> bool {
        self.0 & Self::SCHEMA != 0
    }
}

/// The schema has changed: sent to every reactor, which tells its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaEvent {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub(crate) change: &'static str,
    pub(crate) target: EventTarget,
    /// The log position at which the change is durable.
    pub(crate) gate: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventTarget {
    Keyspace(String),
    Table { keyspace: String, name: String },
    Type { keyspace: String, name: String },
}

impl SchemaEvent {
    pub(crate) fn encode(&self, encoder: &ResponseEncoder<'_>, out: &mut Vec<u8>) {
        let target = match &self.target {
            EventTarget::Keyspace(name) => SchemaTarget::Keyspace(name),
            EventTarget::Table { keyspace, name } => SchemaTarget::Table { keyspace, name },
            EventTarget::Type { keyspace, name } => SchemaTarget::Type { keyspace, name },
        };
        encoder.schema_event(&SchemaChange { change: self.change, target }, out);
    }
}
