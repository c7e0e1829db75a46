//! The busiest keys and clients of the last few seconds.

use cql::schema::Catalog;
use serde_json::{Value, json};
use uuid::Uuid;

use super::text;
use crate::config::CqlAuthenticator;
use crate::engine::hot_keys::{HotKey, Space, Window};
use crate::http::Exchange;

/// Maximum number of keys, and of clients.
const ROWS_MAX: usize = 10;
/// Maximum length of a client's name, in characters.
const NAME_CHARS_MAX: usize = 64;

/// The keys that commands on all reactors name most often. Keys of tables are omitted if roles
/// control who may read them, because HTTP has no roles.
pub(super) fn keys(exchange: &Exchange<'_>) -> Value {
    let shared = exchange.context.shared;
    let mut window = Window::default();
    for published in &shared.published {
        window.add(published.lock().hot_keys.last());
    }
    let catalog = shared.catalog.load();
    let hides_tables =
        exchange.context.reactor.settings.cql_authenticator == CqlAuthenticator::Password;
    let row = |key: &HotKey| -> Option<Value> {
        let (database, table) = match key.space {
            Space::Database(number) => (Some(number), None),
            Space::Table(_) if hides_tables => return None,
            Space::Table(id) => (None, Some(table_name(&catalog, id)?)),
        };
        Some(json!({
            "key": text(&key.name),
            "is_cut": key.is_cut,
            "database": database,
            "table": table,
            "samples": key.samples(),
            "share_ppm": key.samples().saturating_mul(1_000_000) / window.samples.max(1),
        }))
    };
    Value::Array(window.hottest().into_iter().filter_map(row).take(ROWS_MAX).collect())
}

/// Returns the qualified name of a table; `None` if it was dropped.
fn table_name(catalog: &Catalog, id: Uuid) -> Option<String> {
    let mut tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let table = tables.find(|table| table.id == id)?;
    Some(format!("{}.{}", table.keyspace, table.name))
}

/// The clients with the most requests, with their share of their reactor's requests. Clients that
/// have disconnected are omitted.
pub(super) fn clients(exchange: &Exchange<'_>) -> Value {
    let mut found = Vec::new();
    let settings = &exchange.context.reactor.settings;
    for published in &exchange.context.shared.published {
        let published = published.lock();
        let busiest = &published.busiest_clients;
        for client in busiest.clients() {
            let Some(row) = published.clients.get(&client.id) else { continue };
            let requests_per_s = busiest.requests_per_s(*client);
            let value = json!({
                "id": row.id,
                "protocol": row.protocol.name(),
                "reactor": format!("r{:02}", row.reactor),
                "peer": row.remote.text(settings),
                "name": row.name.chars().take(NAME_CHARS_MAX).collect::<String>(),
                "requests_per_s": requests_per_s,
                "share_ppm": busiest.share_ppm(*client),
            });
            found.push((requests_per_s, value));
        }
    }
    found.sort_by(|(one, _), (other, _): &(f64, Value)| other.total_cmp(one));
    Value::Array(found.into_iter().take(ROWS_MAX).map(|(_, value)| value).collect())
}
