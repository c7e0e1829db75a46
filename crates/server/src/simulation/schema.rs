//! The CQL schema across crashes: a durable schema is restored, and the data of dropped tables is
//! deleted.

use std::sync::Arc;

use base::time::Now;
use binlog::Faults;
use cql::error::CqlError;
use cql::schema::{Catalog, Event, RowReader};
use cql::statements::parse;
use store::{CellValue, Mutation, Params, PartitionKey, RowKey, STRIPES, TableId, Write, Writes};

use super::world::{Plan, World};
use crate::engine::commit::Record;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::reactor_state::ReactorState;
use crate::engine::records::MUTATIONS;
use crate::engine::server_state::params;
use crate::handler::State;
use crate::statements::executor::CqlExecutor;
use crate::statements::virtual_tables::{VirtualTableContext, rows};

const SEED: u64 = 7;
/// More steps than a snapshot takes.
const SNAPSHOT_STEPS: usize = 2 * STRIPES;

fn world() -> World {
    let options = vec![("cql", "127.0.0.1:0".to_owned())];
    World::new(SEED, Plan { reactors: 1, options, ..Plan::default() })
}

fn context(world: &mut World) -> (Now, Params) {
    let now = world.sim().now();
    let shared = world.shared();
    (now, params(&shared.settings.load(), now.unix, shared.keyspace.seed(), SEED))
}

fn change(world: &mut World, text: &str) -> Result<(Option<Event>, Gate), CqlError> {
    let (now, params) = context(world);
    let State { shared, statements, .. } = world.state().clone();
    let context = ReactorContext {
        shared: &shared,
        params: &params,
        reactor: &mut ReactorState::new(&shared, 0),
        record: &mut Record::default(),
        now,
        replies: None,
    };
    let mut executor = CqlExecutor { context, statements: &statements, defers: false };
    executor.commit_schema_change(&parse(text).unwrap().statement, Some("k"), None)
}

fn change_all(world: &mut World, statements: &[&str]) {
    for text in statements {
        let (event, gate) = change(world, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(event.is_some(), "{text}");
        assert_eq!(gate, Gate::at(world.shared().log.next()), "{text}");
    }
}

fn catalog(world: &World) -> Arc<Catalog> {
    world.shared().catalog.load_full()
}

fn assert_same(one: &Catalog, other: &Catalog) {
    assert_eq!(one.keyspaces, other.keyspaces);
    assert_eq!((one.version, one.fingerprint), (other.version, other.fingerprint));
}

/// The value of one column of `system.local`.
fn local(world: &mut World, column: &str) -> Vec<u8> {
    let (now, params) = context(world);
    let shared = Arc::clone(world.shared());
    let table = Arc::clone(shared.catalog.load().table("system", "local").unwrap());
    let schema = Gate::OPEN;
    let cx = VirtualTableContext { shared: &shared, params: &params, now, schema, local: None };
    let row = rows(&table, &cx).remove(0);
    RowReader::new(&table, row).bytes(column).unwrap().to_vec()
}

const KEYSPACE: &str = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}";

const STATEMENTS: [&str; 9] = [
    KEYSPACE,
    "CREATE TYPE address (street text)",
    "CREATE TABLE t (a int, b text, v frozen<address>, m map<int, text>, PRIMARY KEY (a, b))",
    "CREATE INDEX ON t (KEYS(m))",
    "ALTER TABLE t ADD (n int, o int)",
    "ALTER TABLE t DROP o",
    "ALTER TYPE address ADD zip int",
    "CREATE TABLE gone (a int PRIMARY KEY)",
    "DROP TABLE gone",
];

#[test]
fn the_schema_is_restored_from_log_and_snapshot() {
    let mut world = world();
    let start = catalog(&world);
    let host = local(&mut world, "host_id");
    change_all(&mut world, &STATEMENTS);
    let before = catalog(&world);
    assert_ne!(before.version, start.version);
    assert_eq!(local(&mut world, "schema_version"), before.version.as_bytes());
    world.settle();
    world.crash(true, Faults::default());
    assert_same(&catalog(&world), &before);
    world.begin_snapshot();
    world.go_on_with_snapshot(SNAPSHOT_STEPS);
    world.settle();
    world.crash(true, Faults::default());
    assert_same(&catalog(&world), &before);
    assert_eq!(local(&mut world, "host_id"), host);
    change_all(&mut world, &["DROP KEYSPACE k"]);
    assert_same(&catalog(&world), &start);
    world.settle();
    world.crash(true, Faults::default());
    assert_same(&catalog(&world), &start);
}

#[test]
fn only_changes_that_were_not_durable_are_lost() {
    let mut world = world();
    change_all(&mut world, &STATEMENTS[..3]);
    let before = catalog(&world);
    world.settle();
    change_all(&mut world, &STATEMENTS[3..]);
    world.crash(true, Faults::default());
    assert_same(&catalog(&world), &before);
    // Rows that are written again are newer than those lost in the crash.
    change_all(&mut world, &STATEMENTS[3..]);
    let after = catalog(&world);
    world.settle();
    world.crash(true, Faults::default());
    assert_same(&catalog(&world), &after);
}

#[test]
fn an_existing_schema_is_reported_when_it_is_durable() {
    let mut world = world();
    change_all(&mut world, &[KEYSPACE]);
    let gate = Gate::at(world.shared().log.next());
    let again = KEYSPACE.replace("KEYSPACE", "KEYSPACE IF NOT EXISTS");
    assert_eq!(change(&mut world, &again), Ok((None, gate)));
    let refused = change(&mut world, KEYSPACE).unwrap_err();
    assert!(matches!(refused, CqlError::AlreadyExists { .. }));
}

#[test]
fn dropping_a_table_deletes_its_data() {
    let mut world = world();
    change_all(&mut world, &STATEMENTS[..3]);
    let id = TableId(catalog(&world).table("k", "t").unwrap().id.as_u128());
    let (_, params) = context(&mut world);
    let shared = Arc::clone(world.shared());
    let key = PartitionKey { table: id, token: 5, bytes: &[1] };
    let value = CellValue::Live { bytes: b"v", expiry: None };
    let row = RowKey::Clustering(b"r");
    let writes = [Write::Cell { row, column: 3, item: None, timestamp: 1, value }];
    let mutation = Mutation::Partition { key, writes: Writes::Slice(&writes) };
    let mut locked = shared.keyspace.lock_one(key.hash(), &params);
    locked.apply_mutation(&mutation).unwrap();
    let mut bytes = Vec::new();
    mutation.encode(&mut bytes);
    shared.log.append(0, MUTATIONS, &bytes).unwrap();
    drop(locked);
    let partitions = |shared: &crate::engine::server_state::ServerState| -> usize {
        let stripes = (0..STRIPES).map(|stripe| shared.keyspace.lock_stripe(stripe, &params));
        stripes.map(|locked| locked.table_stats(id).0).sum()
    };
    assert_eq!(partitions(&shared), 1);
    change_all(&mut world, &["DROP TABLE t"]);
    assert_eq!(partitions(&shared), 0);
    world.settle();
    world.crash(true, Faults::default());
    assert_eq!(partitions(world.shared()), 0);
}

#[test]
fn every_virtual_table_has_rows_of_its_columns() {
    let mut world = world();
    change_all(&mut world, &STATEMENTS);
    world.connect();
    world.settle();
    let (now, params) = context(&mut world);
    let shared = Arc::clone(world.shared());
    let local = Some("[::ffff:10.1.2.3]:9999".parse().unwrap());
    let schema = Gate::OPEN;
    let cx = VirtualTableContext { shared: &shared, params: &params, now, schema, local };
    let mut filled = Vec::new();
    for keyspace in shared.catalog.load().keyspaces.values() {
        for table in keyspace.tables.values().filter(|table| table.is_virtual()) {
            let found = rows(table, &cx);
            for row in &found {
                assert_eq!(row.len(), table.columns.len());
                for (column, value) in table.columns.iter().zip(row) {
                    assert!(
                        value.is_some() || !column.is_key(),
                        "{} of {}",
                        column.name,
                        table.name
                    );
                    let Some(value) = value else { continue };
                    let checked = cql::value::check::check(value, &column.column_type);
                    assert_eq!(checked, Ok(()), "{} of {}", column.name, table.name);
                }
            }
            if !found.is_empty() {
                filled.push(table.name.as_str().to_owned());
            }
        }
    }
    assert_eq!(
        filled,
        [
            "IndexInfo",
            "local",
            "size_estimates",
            "table_estimates",
            "connections",
            "log",
            "memory",
            "reactors",
            "settings",
            "columns",
            "keyspaces",
            "tables",
        ]
    );
    let table = Arc::clone(shared.catalog.load().table("system", "local").unwrap());
    let row = RowReader::new(&table, rows(&table, &cx).remove(0));
    assert_eq!(row.bytes("rpc_address"), Some(&[10, 1, 2, 3][..]));
    assert_eq!(row.int("rpc_port"), Ok(Some(9999)));
}
