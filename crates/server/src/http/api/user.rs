//! The user of a request, and what it may do: the console disables the rest.

use serde_json::{Map, Value, json};

use super::text;
use crate::commands::registry::REGISTRY;
use crate::config::CqlAuthenticator;
use crate::http::Exchange;

/// Commands that the console runs, in the notation of ACL.
const COMMANDS: &[&str] = &[
    "client|kill",
    "client|list",
    "config|get",
    "config|rewrite",
    "config|set",
    "del",
    "expire",
    "hdel",
    "hset",
    "info",
    "lrem",
    "lset",
    "persist",
    "publish",
    "rpush",
    "sadd",
    "scan",
    "set",
    "slowlog|get",
    "slowlog|reset",
    "srem",
    "subscribe",
    "xadd",
    "xdel",
    "zadd",
    "zrem",
];

/// Whether the user may run a command with some arguments; which keys it may access is checked when
/// the command runs.
pub(super) fn may_run(exchange: &Exchange<'_>, name: &str) -> bool {
    let user = exchange.client.identity.user();
    let id = REGISTRY.find_full(name.as_bytes()).expect("a command of the table");
    user.is_unrestricted() || user.all_selectors().any(|selector| selector.allowed.contains(id))
}

pub(super) fn page(exchange: &Exchange<'_>) -> Value {
    let user = exchange.client.identity.user();
    let may: Map<_, _> =
        COMMANDS.iter().map(|name| ((*name).to_owned(), may_run(exchange, name).into())).collect();
    let authenticator = exchange.context.reactor.settings.cql_authenticator;
    let is_unrestricted = user.is_unrestricted();
    json!({
        "name": text(&user.name),
        "is_unrestricted": is_unrestricted,
        "may_cql": is_unrestricted && authenticator != CqlAuthenticator::Password,
        "may_run": may,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_exist() {
        for name in COMMANDS {
            assert!(REGISTRY.find_full(name.as_bytes()).is_some(), "{name}");
        }
    }
}
