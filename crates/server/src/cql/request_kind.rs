//! Requests as the counters know them: numbered behind the commands of RESP.

use wire::cql::Opcode;

use crate::http::ROUTES;
use crate::protocol::ClientProtocol;
use crate::resp::CommandId;
use crate::resp::registry::REGISTRY;

/// Of all names of requests.
const PREFIX: &str = "cql|";

/// What a request is, by its opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Startup,
    Options,
    Query,
    Prepare,
    Execute,
    Register,
    Batch,
    AuthResponse,
    /// What no client sends.
    Other,
}

impl RequestKind {
    pub(crate) const COUNT: usize = Self::NAMES.len();

    const NAMES: [&'static str; 9] = [
        "cql|startup",
        "cql|options",
        "cql|query",
        "cql|prepare",
        "cql|execute",
        "cql|register",
        "cql|batch",
        "cql|auth_response",
        "cql|other",
    ];

    pub(crate) fn of(opcode: u8) -> RequestKind {
        match Opcode::from_byte(opcode) {
            Ok(Opcode::Startup) => RequestKind::Startup,
            Ok(Opcode::Options) => RequestKind::Options,
            Ok(Opcode::Query) => RequestKind::Query,
            Ok(Opcode::Prepare) => RequestKind::Prepare,
            Ok(Opcode::Execute) => RequestKind::Execute,
            Ok(Opcode::Register) => RequestKind::Register,
            Ok(Opcode::Batch) => RequestKind::Batch,
            Ok(Opcode::AuthResponse) => RequestKind::AuthResponse,
            _ => RequestKind::Other,
        }
    }

    /// Whether it is about a statement, and so needs more than its connection.
    pub(crate) fn is_statement(self) -> bool {
        matches!(
            self,
            RequestKind::Query | RequestKind::Prepare | RequestKind::Execute | RequestKind::Batch
        )
    }

    /// All names without the protocol's, in the order of the numbers.
    pub(crate) fn words() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|name| &name[PREFIX.len()..])
    }

    /// Its number in counters and timers.
    pub(crate) fn command_id(self) -> CommandId {
        CommandId::try_from(REGISTRY.len() + self as usize).expect("fewer than 65,536 commands")
    }
}

/// Commands of RESP, requests of CQL and routes of HTTP together.
pub(crate) fn commands_count() -> usize {
    REGISTRY.len() + RequestKind::COUNT + ROUTES.len()
}

/// The number of a route of HTTP in counters and timers.
pub(crate) fn route_id(route: usize) -> CommandId {
    let id = REGISTRY.len() + RequestKind::COUNT + route;
    CommandId::try_from(id).expect("fewer than 65,536 commands")
}

/// The protocol that a command or request is counted for. Commands by HTTP and by CQL count for RESP, too.
pub(crate) fn protocol_of(id: CommandId) -> ClientProtocol {
    match usize::from(id).checked_sub(REGISTRY.len()) {
        None => ClientProtocol::Resp,
        Some(place) if place < RequestKind::COUNT => ClientProtocol::Cql,
        Some(_) => ClientProtocol::Http,
    }
}

/// The name of a command or request in INFO.
pub(crate) fn command_name(id: CommandId) -> &'static str {
    let id = usize::from(id);
    match id.checked_sub(REGISTRY.len()) {
        None => REGISTRY.full_name(id),
        Some(place) if place < RequestKind::COUNT => RequestKind::NAMES[place],
        Some(place) => ROUTES[place - RequestKind::COUNT].name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_belong_together() {
        for (kind, name) in [
            (RequestKind::of(0x01), "cql|startup"),
            (RequestKind::of(0x07), "cql|query"),
            (RequestKind::of(0x0F), "cql|auth_response"),
            (RequestKind::of(0x02), "cql|other"),
            (RequestKind::of(0xFF), "cql|other"),
        ] {
            assert_eq!(command_name(kind.command_id()), name);
            assert_eq!(RequestKind::words().nth(kind as usize), name.strip_prefix(PREFIX));
            assert!(usize::from(kind.command_id()) < commands_count());
        }
        assert_eq!(command_name(route_id(0)), ROUTES[0].name);
        assert_eq!(usize::from(route_id(ROUTES.len() - 1)), commands_count() - 1);
        let get = REGISTRY.find(b"get").expect("known");
        assert_eq!(command_name(get), "get");
    }
}
