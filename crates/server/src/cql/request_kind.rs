//! CQL requests by opcode, for counters, timers and log lines.

use wire::cql::Opcode;

/// Prefix of all request names.
const PREFIX: &str = "cql|";

/// A kind of request, by its opcode.
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
    /// An opcode that no client sends.
    Other,
}

impl RequestKind {
    /// Names in the order of the variants.
    pub(crate) const NAMES: [&'static str; 9] = [
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

    /// Whether the request concerns a statement, and so needs more than its connection.
    pub(crate) fn is_statement(self) -> bool {
        matches!(
            self,
            RequestKind::Query | RequestKind::Prepare | RequestKind::Execute | RequestKind::Batch
        )
    }

    /// All names without the protocol prefix, in the order of the numbers.
    pub(crate) fn words() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|name| &name[PREFIX.len()..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_names() {
        for (opcode, name) in [
            (0x01, "cql|startup"),
            (0x07, "cql|query"),
            (0x0F, "cql|auth_response"),
            (0x02, "cql|other"),
            (0xFF, "cql|other"),
        ] {
            let kind = RequestKind::of(opcode);
            assert_eq!(RequestKind::NAMES[kind as usize], name);
            assert_eq!(RequestKind::words().nth(kind as usize), name.strip_prefix(PREFIX));
        }
    }
}
