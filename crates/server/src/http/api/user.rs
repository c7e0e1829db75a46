//! The user of a request, and what it may do: the console disables the rest.

use serde_json::{Map, Value, json};

use super::text;
use crate::commands::registry::REGISTRY;
use crate::config::CqlAuthenticator;
use crate::engine::acl::User;
use crate::engine::requests::RequestId;
use crate::http::Exchange;

/// Whether the user may run a command with some arguments; which keys it may access is checked when
/// the command runs.
pub(super) fn may_run(exchange: &Exchange<'_>, name: &str) -> bool {
    let id = REGISTRY.find_full(name.as_bytes()).expect("a command of the table");
    may_run_id(exchange.client.identity.user(), id)
}

fn may_run_id(user: &User, id: RequestId) -> bool {
    user.is_unrestricted() || user.all_selectors().any(|selector| selector.allowed.contains(id))
}

pub(super) fn page(exchange: &Exchange<'_>) -> Value {
    let user = exchange.client.identity.user();
    let may: Map<_, _> = REGISTRY
        .entries()
        .map(|(id, entry)| (entry.full_name.clone(), may_run_id(user, id).into()))
        .collect();
    let authenticator = exchange.context.reactor.settings.cql_authenticator;
    let is_unrestricted = user.is_unrestricted();
    json!({
        "name": text(&user.name),
        "is_unrestricted": is_unrestricted,
        "may_cql": is_unrestricted && authenticator != CqlAuthenticator::Password,
        "may_run": may,
    })
}
