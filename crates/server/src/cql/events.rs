//! What clients are told without having asked: changes of the schema.

use std::sync::Arc;

use cql::schema::Event;
use wire::cql::ResponseEncoder;

use crate::gate::Gate;
use crate::shared::{Mail, Shared};

/// Kinds of events that a connection has registered for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventKinds(u8);

impl EventKinds {
    const SCHEMA: u8 = 1;
    const STATUS: u8 = 2;
    const TOPOLOGY: u8 = 4;

    /// Adds a kind by its name in REGISTER. False if there is no such kind. One server alone has no
    /// news of status and topology.
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
    event: Event,
    /// The log position at which the change is durable: nobody is told before.
    pub(crate) gate: Gate,
}

impl SchemaEvent {
    /// Tells all clients that want to know, through the mail of their reactors.
    pub(crate) fn announce(shared: &Shared, event: Event, gate: Gate) {
        shared.broadcast(&Mail::SchemaChanged(Arc::new(SchemaEvent { event, gate })));
    }

    pub(crate) fn encode(&self, encoder: &ResponseEncoder<'_>, out: &mut Vec<u8>) {
        if let Err(error) = encoder.schema_event(&self.event.wire(), out) {
            tracing::warn!(%error, "could not encode a schema event");
        }
    }
}
