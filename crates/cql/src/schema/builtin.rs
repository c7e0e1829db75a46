//! The built-in keyspaces: the tables that drivers and tools read when they connect, the schema's
//! own tables, roles, traces, information about the server, and values of the Redis protocol.
//!
//! Names, types and keys are Cassandra's. Tables that only Cassandra's internals fill are missing,
//! or empty where tools query them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use md5::{Digest as _, Md5};
use uuid::Uuid;

use super::keyspaces::STRATEGIES;
use super::table::{Table, TableSource};
use super::tables::table_of;
use super::{Catalog, Keyspace};
use crate::statements::{CreateTable, Statement, parse};

/// The keyspace of the values of the Redis protocol.
const REDIS: &str = "redis";

/// The data center of this server, with the name that quick starts of drivers expect.
pub const DATA_CENTER: &str = "datacenter1";

struct Definition {
    name: &'static str,
    class: &'static str,
    source: TableSource,
    gc_grace_seconds: u32,
    /// Comment and statement.
    tables: &'static [(&'static str, &'static str)],
}

const DAY: u32 = 24 * 3600;

// Source: Cassandra 5.0, schema.SchemaKeyspace, db.SystemKeyspace, auth.AuthKeyspace,
// tracing.TraceKeyspace, schema.SystemDistributedKeyspace, db.virtual.VirtualSchemaKeyspace
const DEFINITIONS: [Definition; 8] = [
    Definition {
        name: "system",
        class: "LocalStrategy",
        source: TableSource::Virtual,
        gc_grace_seconds: 0,
        tables: &SYSTEM,
    },
    Definition {
        name: "system_schema",
        class: "LocalStrategy",
        source: TableSource::Stored,
        gc_grace_seconds: 7 * DAY,
        tables: &SYSTEM_SCHEMA,
    },
    Definition {
        name: "system_auth",
        class: "SimpleStrategy",
        source: TableSource::Stored,
        gc_grace_seconds: 90 * DAY,
        tables: &SYSTEM_AUTH,
    },
    Definition {
        name: "system_traces",
        class: "SimpleStrategy",
        source: TableSource::Stored,
        gc_grace_seconds: 0,
        tables: &SYSTEM_TRACES,
    },
    Definition {
        name: "system_distributed",
        class: "SimpleStrategy",
        source: TableSource::Stored,
        gc_grace_seconds: 10 * DAY,
        tables: &SYSTEM_DISTRIBUTED,
    },
    Definition {
        name: "system_virtual_schema",
        class: "LocalStrategy",
        source: TableSource::Virtual,
        gc_grace_seconds: 0,
        tables: &SYSTEM_VIRTUAL_SCHEMA,
    },
    Definition {
        name: "system_views",
        class: "LocalStrategy",
        source: TableSource::Virtual,
        gc_grace_seconds: 0,
        tables: &SYSTEM_VIEWS,
    },
    Definition {
        name: REDIS,
        class: "LocalStrategy",
        source: TableSource::Redis,
        gc_grace_seconds: 0,
        tables: &REDIS_TABLES,
    },
];

const SYSTEM: [(&str, &str); 10] = [
    (
        "information about the local node",
        "CREATE TABLE local (key text, bootstrapped text, broadcast_address inet, \
         broadcast_port int, cluster_name text, cql_version text, data_center text, \
         gossip_generation int, host_id uuid, listen_address inet, listen_port int, \
         native_protocol_version text, partitioner text, rack text, release_version text, \
         rpc_address inet, rpc_port int, schema_version uuid, tokens set<text>, \
         truncated_at map<uuid, blob>, PRIMARY KEY (key))",
    ),
    (
        "information about known peers in the cluster",
        "CREATE TABLE peers (peer inet, data_center text, host_id uuid, preferred_ip inet, \
         rack text, release_version text, rpc_address inet, schema_version uuid, \
         tokens set<text>, PRIMARY KEY (peer))",
    ),
    (
        "information about known peers in the cluster",
        "CREATE TABLE peers_v2 (peer inet, peer_port int, data_center text, host_id uuid, \
         preferred_ip inet, preferred_port int, rack text, release_version text, \
         native_address inet, native_port int, schema_version uuid, tokens set<text>, \
         PRIMARY KEY (peer, peer_port))",
    ),
    (
        "built column indexes",
        "CREATE TABLE \"IndexInfo\" (table_name text, index_name text, value blob, \
         PRIMARY KEY (table_name, index_name))",
    ),
    (
        "week-long compaction history",
        "CREATE TABLE compaction_history (id timeuuid, bytes_in bigint, bytes_out bigint, \
         columnfamily_name text, compacted_at timestamp, \
         compaction_properties frozen<map<text, text>>, keyspace_name text, \
         rows_merged map<int, bigint>, PRIMARY KEY (id))",
    ),
    (
        "built views",
        "CREATE TABLE built_views (keyspace_name text, view_name text, \
         status_replicated boolean, PRIMARY KEY (keyspace_name, view_name))",
    ),
    (
        "views builds current progress",
        "CREATE TABLE view_builds_in_progress (keyspace_name text, view_name text, \
         start_token text, end_token text, last_token text, keys_built bigint, \
         PRIMARY KEY (keyspace_name, view_name, start_token, end_token))",
    ),
    (
        "per-table primary range size estimates, table is deprecated in favor of table_estimates",
        "CREATE TABLE size_estimates (keyspace_name text, table_name text, range_start text, \
         range_end text, mean_partition_size bigint, partitions_count bigint, \
         PRIMARY KEY (keyspace_name, table_name, range_start, range_end))",
    ),
    (
        "per-table range size estimates",
        "CREATE TABLE table_estimates (keyspace_name text, table_name text, range_type text, \
         range_start text, range_end text, mean_partition_size bigint, partitions_count bigint, \
         PRIMARY KEY (keyspace_name, table_name, range_type, range_start, range_end))",
    ),
    (
        "prepared statements",
        "CREATE TABLE prepared_statements (prepared_id blob, logged_keyspace text, \
         query_string text, PRIMARY KEY (prepared_id))",
    ),
];

const SYSTEM_SCHEMA: [(&str, &str); 11] = [
    (
        "keyspace definitions",
        "CREATE TABLE keyspaces (keyspace_name text, durable_writes boolean, \
         replication frozen<map<text, text>>, PRIMARY KEY (keyspace_name))",
    ),
    (
        "table definitions",
        "CREATE TABLE tables (keyspace_name text, table_name text, allow_auto_snapshot boolean, \
         bloom_filter_fp_chance double, caching frozen<map<text, text>>, comment text, \
         compaction frozen<map<text, text>>, compression frozen<map<text, text>>, memtable text, \
         crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, \
         extensions frozen<map<text, blob>>, flags frozen<set<text>>, gc_grace_seconds int, \
         incremental_backups boolean, id uuid, max_index_interval int, \
         memtable_flush_period_in_ms int, min_index_interval int, read_repair_chance double, \
         speculative_retry text, additional_write_policy text, cdc boolean, read_repair text, \
         with_key int, PRIMARY KEY (keyspace_name, table_name))",
    ),
    (
        "column definitions",
        "CREATE TABLE columns (keyspace_name text, table_name text, column_name text, \
         clustering_order text, column_name_bytes blob, kind text, position int, type text, \
         column_number int, with_table uuid, \
         PRIMARY KEY (keyspace_name, table_name, column_name))",
    ),
    (
        "column dynamic data masks",
        "CREATE TABLE column_masks (keyspace_name text, table_name text, column_name text, \
         function_keyspace text, function_name text, function_argument_types frozen<list<text>>, \
         function_argument_values frozen<list<text>>, \
         function_argument_nulls frozen<list<boolean>>, \
         PRIMARY KEY (keyspace_name, table_name, column_name))",
    ),
    (
        "trigger definitions",
        "CREATE TABLE triggers (keyspace_name text, table_name text, trigger_name text, \
         options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, trigger_name))",
    ),
    (
        "dropped column registry",
        "CREATE TABLE dropped_columns (keyspace_name text, table_name text, column_name text, \
         dropped_time timestamp, kind text, type text, column_number int, with_newer boolean, \
         with_table uuid, with_time bigint, PRIMARY KEY (keyspace_name, table_name, column_name))",
    ),
    (
        "view definitions",
        "CREATE TABLE views (keyspace_name text, view_name text, base_table_id uuid, \
         base_table_name text, where_clause text, allow_auto_snapshot boolean, \
         bloom_filter_fp_chance double, caching frozen<map<text, text>>, comment text, \
         compaction frozen<map<text, text>>, compression frozen<map<text, text>>, memtable text, \
         crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, \
         extensions frozen<map<text, blob>>, gc_grace_seconds int, incremental_backups boolean, \
         id uuid, include_all_columns boolean, max_index_interval int, \
         memtable_flush_period_in_ms int, min_index_interval int, read_repair_chance double, \
         speculative_retry text, additional_write_policy text, cdc boolean, read_repair text, \
         PRIMARY KEY (keyspace_name, view_name))",
    ),
    (
        "user defined type definitions",
        "CREATE TABLE types (keyspace_name text, type_name text, \
         field_names frozen<list<text>>, field_types frozen<list<text>>, \
         PRIMARY KEY (keyspace_name, type_name))",
    ),
    (
        "user defined function definitions",
        "CREATE TABLE functions (keyspace_name text, function_name text, \
         argument_types frozen<list<text>>, argument_names frozen<list<text>>, body text, \
         language text, return_type text, called_on_null_input boolean, \
         PRIMARY KEY (keyspace_name, function_name, argument_types))",
    ),
    (
        "user defined aggregate definitions",
        "CREATE TABLE aggregates (keyspace_name text, aggregate_name text, \
         argument_types frozen<list<text>>, final_func text, initcond text, return_type text, \
         state_func text, state_type text, \
         PRIMARY KEY (keyspace_name, aggregate_name, argument_types))",
    ),
    (
        "secondary index definitions",
        "CREATE TABLE indexes (keyspace_name text, table_name text, index_name text, kind text, \
         options frozen<map<text, text>>, with_table uuid, \
         PRIMARY KEY (keyspace_name, table_name, index_name))",
    ),
];

const SYSTEM_AUTH: [(&str, &str); 5] = [
    (
        "role definitions",
        "CREATE TABLE roles (role text, is_superuser boolean, can_login boolean, \
         salted_hash text, member_of set<text>, PRIMARY KEY (role))",
    ),
    (
        "role memberships lookup table",
        "CREATE TABLE role_members (role text, member text, PRIMARY KEY (role, member))",
    ),
    (
        "permissions granted to db roles",
        "CREATE TABLE role_permissions (role text, resource text, permissions set<text>, \
         PRIMARY KEY (role, resource))",
    ),
    (
        "index of db roles with permissions granted on a resource",
        "CREATE TABLE resource_role_permissons_index (resource text, role text, \
         PRIMARY KEY (resource, role))",
    ),
    (
        "user network permissions",
        "CREATE TABLE network_permissions (role text, dcs frozen<set<text>>, PRIMARY KEY (role))",
    ),
];

const SYSTEM_TRACES: [(&str, &str); 2] = [
    (
        "tracing sessions",
        "CREATE TABLE sessions (session_id uuid, command text, client inet, coordinator inet, \
         coordinator_port int, duration int, parameters map<text, text>, request text, \
         started_at timestamp, PRIMARY KEY (session_id))",
    ),
    (
        "tracing events",
        "CREATE TABLE events (session_id uuid, event_id timeuuid, activity text, source inet, \
         source_port int, source_elapsed int, thread text, PRIMARY KEY (session_id, event_id))",
    ),
];

const SYSTEM_DISTRIBUTED: [(&str, &str); 4] = [
    (
        "Repair history",
        "CREATE TABLE repair_history (keyspace_name text, columnfamily_name text, id timeuuid, \
         coordinator inet, coordinator_port int, exception_message text, \
         exception_stacktrace text, finished_at timestamp, parent_id timeuuid, \
         participants set<inet>, participants_v2 set<text>, range_begin text, range_end text, \
         started_at timestamp, status text, \
         PRIMARY KEY ((keyspace_name, columnfamily_name), id))",
    ),
    (
        "Repair history",
        "CREATE TABLE parent_repair_history (parent_id timeuuid, columnfamily_names set<text>, \
         exception_message text, exception_stacktrace text, finished_at timestamp, \
         keyspace_name text, options map<text, text>, requested_ranges set<text>, \
         started_at timestamp, successful_ranges set<text>, PRIMARY KEY (parent_id))",
    ),
    (
        "Materialized View build status",
        "CREATE TABLE view_build_status (keyspace_name text, view_name text, host_id uuid, \
         status text, PRIMARY KEY ((keyspace_name, view_name), host_id))",
    ),
    (
        "Partition keys which have been denied access",
        "CREATE TABLE partition_denylist (ks_name text, table_name text, key blob, \
         PRIMARY KEY ((ks_name, table_name), key))",
    ),
];

const SYSTEM_VIRTUAL_SCHEMA: [(&str, &str); 3] = [
    (
        "virtual keyspace definitions",
        "CREATE TABLE keyspaces (keyspace_name text, PRIMARY KEY (keyspace_name))",
    ),
    (
        "virtual table definitions",
        "CREATE TABLE tables (keyspace_name text, table_name text, comment text, \
         PRIMARY KEY (keyspace_name, table_name))",
    ),
    (
        "virtual column definitions",
        "CREATE TABLE columns (keyspace_name text, table_name text, column_name text, \
         clustering_order text, column_name_bytes blob, kind text, position int, type text, \
         PRIMARY KEY (keyspace_name, table_name, column_name))",
    ),
];

const SYSTEM_VIEWS: [(&str, &str); 8] = [
    (
        "event loops: connections, and what they have served",
        "CREATE TABLE reactors (reactor int, name text, connections int, commands bigint, \
         error_replies bigint, hits bigint, misses bigint, expired_keys bigint, \
         evicted_keys bigint, rows_examined bigint, busy_ms bigint, cpu_ms bigint, \
         PRIMARY KEY (reactor))",
    ),
    (
        "connections of all protocols",
        "CREATE TABLE connections (id bigint, reactor int, protocol text, address inet, port int, \
         local_address inet, local_port int, name text, driver_name text, driver_version text, \
         durability text, commands bigint, age_ms bigint, idle_ms bigint, input_bytes bigint, \
         output_bytes bigint, memory_bytes bigint, PRIMARY KEY (id))",
    ),
    // Source: Cassandra 5.0, db.virtual.ClientsTable
    (
        "currently connected clients",
        "CREATE TABLE clients (address inet, port int, client_options frozen<map<text, text>>, \
         connection_stage text, driver_name text, driver_version text, hostname text, \
         keyspace_name text, protocol_version int, request_count bigint, ssl_cipher_suite text, \
         ssl_enabled boolean, ssl_protocol text, username text, PRIMARY KEY (address, port))",
    ),
    (
        "times of commands by stage, in microseconds",
        "CREATE TABLE stages (command text, stage text, count bigint, mean_us double, \
         p50_us double, p99_us double, p999_us double, max_us double, \
         PRIMARY KEY (command, stage))",
    ),
    (
        "the tree of memory trackers",
        "CREATE TABLE memory (tracker text, bytes bigint, peak_bytes bigint, limit_bytes bigint, \
         PRIMARY KEY (tracker))",
    ),
    (
        "the log: positions in bytes, groups and syncs",
        "CREATE TABLE log (name text, value bigint, PRIMARY KEY (name))",
    ),
    (
        "statements that clients have prepared",
        "CREATE TABLE prepared_statements (prepared_id blob, keyspace_name text, query text, \
         PRIMARY KEY (prepared_id))",
    ),
    ("current settings", "CREATE TABLE settings (name text, value text, PRIMARY KEY (name))"),
];

/// A table for each type of value: all share one set of keys, and each key is in one table.
const REDIS_TABLES: [(&str, &str); 6] = [
    ("strings of database 0", "CREATE TABLE strings (key blob, value blob, PRIMARY KEY (key))"),
    (
        "hashes of database 0",
        "CREATE TABLE hashes (key blob, field blob, value blob, PRIMARY KEY (key, field))",
    ),
    ("sets of database 0", "CREATE TABLE sets (key blob, member blob, PRIMARY KEY (key, member))"),
    (
        "sorted sets of database 0",
        "CREATE TABLE zsets (key blob, member blob, score double, PRIMARY KEY (key, member))",
    ),
    (
        "lists of database 0",
        "CREATE TABLE lists (key blob, \"index\" int, value blob, PRIMARY KEY (key, \"index\"))",
    ),
    (
        "time series of database 0",
        "CREATE TABLE series (key blob, time bigint, value blob, PRIMARY KEY (key, time))",
    ),
];

/// Columns of `system_schema` that Cassandra does not have: they are stored, but hidden from
/// clients. The store's numbers of columns follow the order of their names, so the name of a new
/// one must come last.
const HIDDEN: [&str; 5] = ["column_number", "with_key", "with_newer", "with_table", "with_time"];

/// The built-in tables with all stored columns.
static STORED: LazyLock<Catalog> = LazyLock::new(|| {
    let keyspaces = DEFINITIONS.iter().map(keyspace);
    let keyspaces = keyspaces.map(|keyspace| (keyspace.name.clone(), Arc::new(keyspace)));
    Catalog { keyspaces: keyspaces.collect(), ..Catalog::default() }
});

/// The schema of a server without user tables, as clients see it.
pub fn builtin() -> Arc<Catalog> {
    static SHOWN: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
        let mut catalog = STORED.clone();
        let schema = catalog.keyspaces.get_mut("system_schema").expect("is defined above");
        for table in Arc::make_mut(schema).tables.values_mut() {
            let columns = &mut Arc::make_mut(table).columns;
            columns.retain(|column| !HIDDEN.contains(&column.name.as_str()));
        }
        Arc::new(catalog)
    });
    Arc::clone(&SHOWN)
}

/// A built-in table with all stored columns; `keyspace` and `name` must exist.
pub fn builtin_table(keyspace: &str, name: &str) -> Arc<Table> {
    let table = STORED.table(keyspace, name).map(Arc::clone);
    table.unwrap_or_else(|| panic!("there is a table {keyspace}.{name}"))
}

fn keyspace(definition: &Definition) -> Keyspace {
    let mut replication = BTreeMap::new();
    replication.insert("class".to_owned(), format!("{STRATEGIES}{}", definition.class));
    if definition.class == "SimpleStrategy" {
        replication.insert("replication_factor".to_owned(), "1".to_owned());
    }
    let mut keyspace = Keyspace {
        name: definition.name.to_owned(),
        replication,
        durable_writes: true,
        tables: BTreeMap::new(),
        types: BTreeMap::new(),
    };
    for (comment, text) in definition.tables {
        let table = builtin_definition(&keyspace, definition, comment, &parsed(text));
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
    }
    keyspace
}

fn parsed(text: &str) -> CreateTable {
    match parse(text).map(|parsed| parsed.statement) {
        Ok(Statement::CreateTable(create)) => *create,
        other => panic!("a definition of this program is not a table: {other:?}"),
    }
}

fn builtin_definition(
    keyspace: &Keyspace,
    definition: &Definition,
    comment: &str,
    create: &CreateTable,
) -> Table {
    let id = builtin_id(definition.name, &create.name.name);
    let table = table_of(keyspace, create, id);
    let mut table = table.expect("definitions of this program are valid");
    comment.clone_into(&mut table.options.comment);
    table.options.gc_grace_seconds = definition.gc_grace_seconds;
    table.source = definition.source;
    table
}

/// A UUID of version 3 without a name space.
// Source: Cassandra 5.0, schema.TableId.unsafeDeterministic
fn builtin_id(keyspace: &str, table: &str) -> Uuid {
    let hash = Md5::new().chain_update(keyspace).chain_update(table).finalize();
    uuid::Builder::from_md5_bytes(hash.into()).into_uuid()
}

/// Keyspaces whose definition is part of this program and cannot be changed.
pub(crate) fn is_local_system(keyspace: &str) -> bool {
    matches!(keyspace, "system" | "system_schema")
}

/// Keyspaces of the server whose replication can be changed.
pub(crate) fn is_replicated_system(keyspace: &str) -> bool {
    matches!(keyspace, "system_auth" | "system_traces" | "system_distributed")
}

/// Keyspaces that are described by `system_virtual_schema`.
pub fn is_virtual_system(keyspace: &str) -> bool {
    matches!(keyspace, "system_virtual_schema" | "system_views")
}

/// The keyspace whose rows are values of the Redis protocol: they can be written, but the keyspace
/// cannot be changed.
pub(crate) fn is_redis(keyspace: &str) -> bool {
    keyspace == REDIS
}

pub fn is_system(keyspace: &str) -> bool {
    is_local_system(keyspace)
        || is_replicated_system(keyspace)
        || is_virtual_system(keyspace)
        || is_redis(keyspace)
}
