//! DESCRIBE: a schema as statements, in Cassandra's format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::builtin::{is_system, is_virtual_system};
use super::keyspaces::STRATEGIES;
use super::options::{OptionKind, TABLE_OPTIONS};
use super::row::Values;
use super::table::{Column, ColumnKind, Index, Table};
use super::{Catalog, Keyspace};
use crate::error::CqlError;
use crate::parser::quoted_if_needed;
use crate::statements::{Describe, Described};
use crate::types::{CqlType, UserType};
use crate::value::collection::{put_count, put_part};
use base::hex::hex;

/// Inputs of DESCRIBE.
#[derive(Debug, Clone, Copy)]
pub struct DescribeContext<'a> {
    pub catalog: &'a Catalog,
    /// The keyspace in use.
    pub keyspace: Option<&'a str>,
    pub cluster: &'a str,
    /// The only token of the only server, and the server's location.
    pub token: &'a str,
    pub endpoint: &'a str,
}

/// Rows and their columns, as of a table `describe` of keyspace `system`.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    pub columns: Vec<(&'static str, CqlType)>,
    pub rows: Vec<Values>,
}

/// An object with a name and its CREATE statement.
struct Element {
    keyspace: String,
    kind: &'static str,
    name: String,
    statement: String,
}

const LISTED: [&str; 3] = ["keyspace_name", "type", "name"];

impl Description {
    fn list(elements: impl IntoIterator<Item = (String, &'static str, String)>) -> Description {
        let columns = LISTED.iter().map(|name| (*name, CqlType::TEXT)).collect();
        let row = |(keyspace, kind, name): (String, &str, String)| {
            vec![Some(shown(&keyspace)), Some(kind.as_bytes().to_vec()), Some(shown(&name))]
        };
        Description { columns, rows: elements.into_iter().map(row).collect() }
    }

    fn elements(elements: Vec<Element>) -> Description {
        let statements: Vec<String> = elements.iter().map(|e| e.statement.clone()).collect();
        let names = elements.into_iter().map(|e| (e.keyspace, e.kind, e.name));
        let mut found = Description::list(names);
        found.columns.push(("create_statement", CqlType::TEXT));
        for (row, statement) in found.rows.iter_mut().zip(statements) {
            row.push(Some(statement.into_bytes()));
        }
        found
    }
}

fn shown(name: &str) -> Vec<u8> {
    quoted_if_needed(name).into_bytes()
}

/// Answers DESCRIBE.
// Source: Cassandra 5.0, cql3.statements.DescribeStatement
pub fn describe(describe: &Describe, cx: &DescribeContext<'_>) -> Result<Description, CqlError> {
    let internals = describe.with_internals;
    Ok(match &describe.what {
        Described::Cluster => cluster(cx),
        Described::Keyspaces => {
            let names = cx.catalog.keyspaces.keys();
            Description::list(names.map(|name| (name.clone(), "keyspace", name.clone())))
        }
        Described::Tables => listed(cx, "table", |keyspace| keyspace.tables.keys().collect())?,
        Described::Types => listed(cx, "type", |keyspace| keyspace.types.keys().collect())?,
        // Functions cannot be created.
        Described::Functions => listed(cx, "function", |_| Vec::new())?,
        Described::Aggregates => listed(cx, "aggregate", |_| Vec::new())?,
        Described::Schema => whole(cx, internals, |name| !is_system(name)),
        Described::FullSchema => whole(cx, internals, |_| true),
        Described::Keyspace(name) => {
            let keyspace = keyspace_of(cx, name.as_deref())?;
            Description::elements(keyspace_elements(keyspace, internals))
        }
        Described::Table(name) => {
            let keyspace = keyspace_of(cx, name.keyspace.as_deref())?;
            let table = keyspace.tables.get(&name.name).ok_or_else(|| {
                CqlError::Invalid(format!(
                    "Table '{}' not found in keyspace '{}'",
                    name.name, keyspace.name
                ))
            })?;
            Description::elements(table_elements(table, internals))
        }
        Described::Type(name) => {
            let keyspace = keyspace_of(cx, name.keyspace.as_deref())?;
            let user = keyspace.types.get(&name.name).ok_or_else(|| {
                CqlError::Invalid(format!(
                    "User defined type '{}' not found in '{}'",
                    name.name, keyspace.name
                ))
            })?;
            Description::elements(vec![type_element(user)])
        }
        Described::Index(name) => {
            let keyspace = keyspace_of(cx, name.keyspace.as_deref())?;
            Description::elements(vec![index_of(keyspace, &name.name)?])
        }
        Described::Name(name) => {
            Description::elements(anything(cx, name.keyspace.as_deref(), &name.name, internals)?)
        }
    })
}

fn cluster(cx: &DescribeContext<'_>) -> Description {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let names = ["cluster", "partitioner", "snitch"];
    let mut columns: Vec<_> = names.iter().map(|name| (*name, CqlType::TEXT)).collect();
    let mut row = vec![text(cx.cluster), text("Murmur3Partitioner"), text("SimpleSnitch")];
    if cx.keyspace.is_some_and(|name| !is_system(name)) {
        let list = CqlType::List(Box::new(CqlType::TEXT));
        columns.push(("range_ownership", CqlType::Map(Box::new(CqlType::TEXT), Box::new(list))));
        let (mut endpoints, mut map) = (Vec::new(), Vec::new());
        put_count(1, &mut endpoints);
        put_part(Some(cx.endpoint.as_bytes()), &mut endpoints);
        put_count(1, &mut map);
        put_part(Some(cx.token.as_bytes()), &mut map);
        put_part(Some(&endpoints), &mut map);
        row.push(Some(map));
    }
    Description { columns, rows: vec![row] }
}

/// Names of one kind, in the keyspace in use or in all.
fn listed(
    cx: &DescribeContext<'_>,
    kind: &'static str,
    names: impl Fn(&Keyspace) -> Vec<&String>,
) -> Result<Description, CqlError> {
    let keyspaces: Vec<&Arc<Keyspace>> = match cx.keyspace {
        Some(_) => vec![keyspace_of(cx, None)?],
        None => cx.catalog.keyspaces.values().collect(),
    };
    let mut found = Vec::new();
    for keyspace in keyspaces {
        let names = names(keyspace).into_iter();
        found.extend(names.map(|name| (keyspace.name.clone(), kind, name.clone())));
    }
    Ok(Description::list(found))
}

fn whole(
    cx: &DescribeContext<'_>,
    internals: bool,
    is_wanted: impl Fn(&str) -> bool,
) -> Description {
    let keyspaces = cx.catalog.keyspaces.values();
    let wanted = keyspaces.filter(|keyspace| is_wanted(&keyspace.name));
    let elements = wanted.flat_map(|keyspace| keyspace_elements(keyspace, internals));
    Description::elements(elements.collect())
}

fn keyspace_of<'a>(
    cx: &DescribeContext<'a>,
    name: Option<&str>,
) -> Result<&'a Arc<Keyspace>, CqlError> {
    let Some(name) = name.or(cx.keyspace) else {
        return Err(CqlError::invalid("No keyspace specified and no current keyspace"));
    };
    let found = cx.catalog.keyspace(name);
    found.ok_or_else(|| CqlError::Invalid(format!("'{name}' not found in keyspaces")))
}

fn index_of(keyspace: &Keyspace, name: &str) -> Result<Element, CqlError> {
    let table = keyspace.indexed_table(name);
    let found = table.and_then(|table| {
        let index = table.indexes.iter().find(|index| index.name == name)?;
        Some(index_element(table, index))
    });
    found.ok_or_else(|| {
        CqlError::Invalid(format!(
            "Table for existing index '{name}' not found in '{}'",
            keyspace.name
        ))
    })
}

/// The first match: a keyspace, a table or an index of this name.
fn anything(
    cx: &DescribeContext<'_>,
    keyspace: Option<&str>,
    name: &str,
    internals: bool,
) -> Result<Vec<Element>, CqlError> {
    if keyspace.is_none()
        && let Some(keyspace) = cx.catalog.keyspace(name)
    {
        return Ok(keyspace_elements(keyspace, internals));
    }
    let keyspace = keyspace_of(cx, keyspace.or(cx.keyspace).or(Some(name)))?;
    if let Some(table) = keyspace.tables.get(name) {
        return Ok(table_elements(table, internals));
    }
    if keyspace.indexed_table(name).is_some() {
        return Ok(vec![index_of(keyspace, name)?]);
    }
    Err(CqlError::Invalid(format!("'{name}' not found in keyspace '{}'", keyspace.name)))
}

/// The keyspace, its types, its tables with their indexes.
fn keyspace_elements(keyspace: &Keyspace, internals: bool) -> Vec<Element> {
    let mut elements = vec![Element {
        keyspace: keyspace.name.clone(),
        kind: "keyspace",
        name: keyspace.name.clone(),
        statement: keyspace_statement(keyspace),
    }];
    elements.extend(ordered_types(keyspace).into_iter().map(type_element));
    for table in keyspace.tables.values() {
        elements.extend(table_elements(table, internals));
    }
    elements
}

fn keyspace_statement(keyspace: &Keyspace) -> String {
    let name = quoted_if_needed(&keyspace.name);
    if is_virtual_system(&keyspace.name) {
        return format!(
            "/*\nWarning: Keyspace {name} is a virtual keyspace and cannot be recreated with \
             CQL.\nStructure, for reference:\nVIRTUAL KEYSPACE {name};\n*/"
        );
    }
    let mut replication = keyspace.replication.clone();
    let class = replication.remove("class").unwrap_or_default();
    let class = class.strip_prefix(STRATEGIES).unwrap_or(&class);
    let mut options = format!("{{'class': {}", literal(class));
    for (name, value) in &replication {
        let written = write!(options, ", {}: {}", literal(name), literal(value));
        written.expect("strings take all");
    }
    let durable = keyspace.durable_writes;
    format!(
        "CREATE KEYSPACE {name} WITH replication = {options}}}  AND durable_writes = {durable};"
    )
}

/// Types after their dependencies, otherwise by name.
fn ordered_types(keyspace: &Keyspace) -> Vec<&UserType> {
    let mut ordered: Vec<&UserType> = Vec::new();
    let mut seen = BTreeSet::new();
    for name in keyspace.types.keys() {
        put_type(keyspace, name, &mut seen, &mut ordered);
    }
    ordered
}

fn put_type<'a>(
    keyspace: &'a Keyspace,
    name: &str,
    seen: &mut BTreeSet<String>,
    ordered: &mut Vec<&'a UserType>,
) {
    let Some(user) = keyspace.types.get(name) else { return };
    if !seen.insert(name.to_owned()) {
        return;
    }
    let mut needed = BTreeSet::new();
    for (_, field) in &user.fields {
        put_names(field, &mut needed);
    }
    for name in &needed {
        put_type(keyspace, name, seen, ordered);
    }
    ordered.push(user);
}

/// Names of the user-defined types directly inside.
fn put_names(of: &CqlType, names: &mut BTreeSet<String>) {
    match of {
        CqlType::Native(_) => {}
        CqlType::List(part)
        | CqlType::Set(part)
        | CqlType::Vector(part, _)
        | CqlType::Frozen(part) => put_names(part, names),
        CqlType::Map(key, value) => {
            put_names(key, names);
            put_names(value, names);
        }
        CqlType::Tuple(parts) => parts.iter().for_each(|part| put_names(part, names)),
        CqlType::UserDefined(user) => {
            names.insert(user.name.clone());
        }
    }
}

fn type_element(user: &UserType) -> Element {
    let fields = user.fields.iter();
    let fields: Vec<String> =
        fields.map(|(name, field)| format!("    {} {field}", quoted_if_needed(name))).collect();
    let place = place(&user.keyspace, &user.name);
    Element {
        keyspace: user.keyspace.clone(),
        kind: "type",
        name: user.name.clone(),
        statement: format!("CREATE TYPE {place} (\n{}\n);", fields.join(",\n")),
    }
}

fn place(keyspace: &str, name: &str) -> String {
    format!("{}.{}", quoted_if_needed(keyspace), quoted_if_needed(name))
}

/// A quoted text.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn table_elements(table: &Table, internals: bool) -> Vec<Element> {
    let mut elements = vec![Element {
        keyspace: table.keyspace.clone(),
        kind: "table",
        name: table.name.clone(),
        statement: table_statement(table, internals),
    }];
    elements.extend(table.indexes.iter().map(|index| index_element(table, index)));
    elements
}

fn index_element(table: &Table, index: &Index) -> Element {
    let name = quoted_if_needed(&index.name);
    let place = place(&table.keyspace, &table.name);
    let target = index.target_text(table);
    let statement = match &index.class {
        None => format!("CREATE INDEX {name} ON {place} ({target});"),
        Some(class) => {
            let options = if index.options.is_empty() {
                String::new()
            } else {
                format!(" WITH OPTIONS = {}", map_literal(&index.options))
            };
            let class = literal(class);
            format!("CREATE CUSTOM INDEX {name} ON {place} ({target}) USING {class}{options};")
        }
    };
    Element { keyspace: table.keyspace.clone(), kind: "index", name: index.name.clone(), statement }
}

pub(super) fn map_literal(map: &BTreeMap<String, String>) -> String {
    let pairs = map.iter().map(|(key, value)| format!("{}: {}", literal(key), literal(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
}

// Source: Cassandra 5.0, schema.TableMetadata.appendCqlTo
fn table_statement(table: &Table, internals: bool) -> String {
    let is_virtual = is_virtual_system(&table.keyspace);
    let place = place(&table.keyspace, &table.name);
    let mut text = String::new();
    if is_virtual {
        text = format!(
            "/*\nWarning: Table {place} is a virtual table and cannot be recreated with \
             CQL.\nStructure, for reference:\n"
        );
    }
    let create = if is_virtual { "VIRTUAL" } else { "CREATE" };
    let definitions = definitions(table, internals);
    let properties = properties(table, is_virtual, internals);
    text +=
        &[create, " TABLE ", &place, " (\n", &definitions, ") WITH ", &properties, ";"].concat();
    if is_virtual {
        text.push_str("\n*/");
    }
    if internals {
        put_drops(table, &place, &mut text);
    }
    text
}

/// The order of CREATE: static columns and other columns, single-cell ones first in each group.
fn in_order_of_creation(table: &Table) -> Vec<&Column> {
    let mut columns: Vec<&Column> = table.columns.iter().collect();
    columns.sort_by_key(|column| match column.kind {
        ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. } => (0, false),
        ColumnKind::Static => (1, column.column_type.is_multi_cell()),
        ColumnKind::Regular => (2, column.column_type.is_multi_cell()),
    });
    columns
}

fn definition(name: &str, of: &CqlType, is_static: bool) -> String {
    format!("{} {of}{}", quoted_if_needed(name), if is_static { " static" } else { "" })
}

fn column_definition(column: &Column) -> String {
    definition(&column.name, &column.column_type, column.kind == ColumnKind::Static)
}

fn definitions(table: &Table, internals: bool) -> String {
    let is_short = table.partition_key().len() == 1 && table.clustering().is_empty();
    let mut lines = Vec::new();
    for column in in_order_of_creation(table) {
        // Columns that were added again are added by the statements after CREATE.
        if internals && table.dropped.contains_key(&column.name) {
            continue;
        }
        let key = if is_short && column.is_key() { " PRIMARY KEY" } else { "" };
        lines.push(format!("    {}{key}", column_definition(column)));
    }
    if internals {
        lines.extend(table.dropped.iter().map(|(name, column)| {
            format!("    {}", definition(name, &column.column_type, column.is_static))
        }));
    }
    if !is_short {
        let names = |columns: &[Column]| {
            let names = columns.iter().map(|column| quoted_if_needed(&column.name));
            names.collect::<Vec<_>>().join(", ")
        };
        let mut key = names(table.partition_key());
        if table.partition_key().len() > 1 {
            key = format!("({key})");
        }
        if !table.clustering().is_empty() {
            key = format!("{key}, {}", names(table.clustering()));
        }
        lines.push(format!("    PRIMARY KEY ({key})"));
    }
    format!("{}\n", lines.join(",\n"))
}

fn properties(table: &Table, is_virtual: bool, internals: bool) -> String {
    let mut found = Vec::new();
    if internals {
        found.push(format!("ID = {}", table.id));
    }
    if !table.clustering().is_empty() {
        let order = table.clustering().iter().map(|column| {
            let order = if column.is_descending() { "DESC" } else { "ASC" };
            format!("{} {order}", quoted_if_needed(&column.name))
        });
        let order: Vec<String> = order.collect();
        found.push(format!("CLUSTERING ORDER BY ({})", order.join(", ")));
    }
    for option in TABLE_OPTIONS.iter().filter(|option| !is_virtual || option.name == "comment") {
        let name = option.name;
        let map = || table.options.maps.get(name).cloned().unwrap_or_default();
        let value = match option.kind {
            OptionKind::Text => literal(&table.options.text(name)),
            OptionKind::Map => map_literal(&map()),
            OptionKind::Extensions => {
                let pairs = map();
                let pairs = pairs.iter();
                let pairs: Vec<String> = pairs
                    .map(|(key, value)| format!("{}: 0x{}", literal(key), hex(value.as_bytes())))
                    .collect();
                format!("{{{}}}", pairs.join(", "))
            }
            _ => table.options.text(name),
        };
        found.push(format!("{name} = {value}"));
    }
    found.join("\n    AND ")
}

/// Statements that bring a newly created table to its current state: columns dropped and added
/// again.
fn put_drops(table: &Table, place: &str, text: &mut String) {
    for (name, dropped) in &table.dropped {
        let column = quoted_if_needed(name);
        let at = dropped.dropped_at.to_string();
        *text +=
            &["\nALTER TABLE ", place, " DROP ", &column, " USING TIMESTAMP ", &at, ";"].concat();
        if let Some(column) = table.column(name) {
            *text += &["\nALTER TABLE ", place, " ADD ", &column_definition(column), ";"].concat();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::catalog;
    use super::*;
    use crate::statements::{Statement, parse};

    const STATEMENTS: [&str; 8] = [
        "CREATE TYPE zip (code int)",
        "CREATE TYPE address (street text, zips frozen<list<zip>>)",
        "CREATE TABLE short (k int PRIMARY KEY, v text)",
        "CREATE TABLE \"Long\" (a int, b text, c int, d timeuuid, s int STATIC, m map<text, int>, \
         z frozen<address>, n text, PRIMARY KEY ((a, b), c, d)) \
         WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s' \
         AND id = 5a1c395e-b41f-11e5-9f22-ba0be0483c18 AND extensions = {'x': 'y'}",
        "CREATE INDEX by_m ON \"Long\" (keys(m))",
        "CREATE CUSTOM INDEX by_n ON \"Long\" (n) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}",
        "ALTER TABLE short DROP v",
        "ALTER TABLE short ADD v text",
    ];

    fn answer(text: &str, keyspace: Option<&str>) -> Result<Description, CqlError> {
        let Ok(Statement::Describe(statement)) = parse(text).map(|parsed| parsed.statement) else {
            panic!("{text}")
        };
        let catalog = catalog(&STATEMENTS);
        let cx = DescribeContext {
            catalog: &catalog,
            keyspace,
            cluster: "Myriad",
            token: "0",
            endpoint: "127.0.0.1:9042",
        };
        describe(&statement, &cx)
    }

    /// Checks the last texts of all rows.
    fn check(text: &str, expected: &[&str]) {
        let found = answer(text, Some("k")).unwrap();
        let last = |row: &Values| String::from_utf8(row.last().unwrap().clone().unwrap()).unwrap();
        assert_eq!(found.rows.iter().map(last).collect::<Vec<_>>(), expected, "{text}");
    }

    const SHORT: &str = "CREATE TABLE k.short (
    k int PRIMARY KEY,
    v text
) WITH additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'}
    AND cdc = false
    AND comment = ''
    AND compaction = {'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', 'max_threshold': '32', 'min_threshold': '4'}
    AND compression = {'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}
    AND memtable = 'default'
    AND crc_check_chance = 1.0
    AND default_time_to_live = 0
    AND extensions = {}
    AND gc_grace_seconds = 864000
    AND incremental_backups = true
    AND max_index_interval = 2048
    AND memtable_flush_period_in_ms = 0
    AND min_index_interval = 128
    AND read_repair = 'BLOCKING'
    AND speculative_retry = '99p';";

    const LONG_START: &str = "CREATE TABLE k.\"Long\" (
    a int,
    b text,
    c int,
    d timeuuid,
    s int static,
    n text,
    z frozen<address>,
    m map<text, int>,
    PRIMARY KEY ((a, b), c, d)
) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18
    AND CLUSTERING ORDER BY (c DESC, d ASC)
    AND additional_write_policy = '99p'
";

    const INDEXES: [&str; 2] = [
        "CREATE INDEX by_m ON k.\"Long\" (keys(m));",
        "CREATE CUSTOM INDEX by_n ON k.\"Long\" (n) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'};",
    ];

    #[test]
    fn statements_are_worded_as_cassandra_words_them() {
        check("DESCRIBE TABLE short", &[SHORT]);
        check("DESC k.short", &[SHORT]);
        check(
            "DESCRIBE TYPE address",
            &["CREATE TYPE k.address (\n    street text,\n    zips frozen<list<frozen<zip>>>\n);"],
        );
        check("DESCRIBE INDEX by_m", &INDEXES[..1]);
        check("DESCRIBE by_n", &INDEXES[1..]);
        let long = answer("DESCRIBE TABLE k.\"Long\" WITH INTERNALS", None).unwrap();
        let text = |row: usize| String::from_utf8(long.rows[row][3].clone().unwrap()).unwrap();
        assert!(text(0).starts_with(LONG_START), "{}", text(0));
        assert!(text(0).contains("AND comment = 'it''s'"));
        assert!(text(0).contains("AND extensions = {'x': 0x79}"));
        assert_eq!([text(1), text(2)], INDEXES);
        let short = answer("DESCRIBE TABLE k.short WITH INTERNALS", None).unwrap();
        let text = String::from_utf8(short.rows[0][3].clone().unwrap()).unwrap();
        assert!(text.ends_with(
            "\nALTER TABLE k.short DROP v USING TIMESTAMP 1700000000000000;\n\
             ALTER TABLE k.short ADD v text;"
        ));
    }

    #[test]
    fn a_keyspace_has_its_types_first_in_their_order() {
        let found = answer("DESCRIBE KEYSPACE k", None).unwrap();
        let names: Vec<String> = found
            .rows
            .iter()
            .map(|row| {
                let text = |at: usize| String::from_utf8(row[at].clone().unwrap()).unwrap();
                format!("{} {} {}", text(0), text(1), text(2))
            })
            .collect();
        assert_eq!(
            names,
            [
                "k keyspace k",
                "k type zip",
                "k type address",
                "k table \"Long\"",
                "k index by_m",
                "k index by_n",
                "k table short",
            ]
        );
        let statement = String::from_utf8(found.rows[0][3].clone().unwrap()).unwrap();
        assert_eq!(
            statement,
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': '1'}  AND durable_writes = true;"
        );
        assert_eq!(answer("DESCRIBE SCHEMA", None), Ok(found));
    }

    #[test]
    fn lists_are_of_the_keyspace_in_use_or_of_all() {
        check("DESCRIBE TABLES", &["\"Long\"", "short"]);
        check("DESCRIBE TYPES", &["address", "zip"]);
        check("DESCRIBE FUNCTIONS", &[]);
        let all = answer("DESCRIBE TABLES", None).unwrap();
        assert!(all.rows.len() > 30);
        assert_eq!(all.columns.len(), 3);
        check(
            "DESCRIBE KEYSPACES",
            &[
                "k",
                "redis",
                "system",
                "system_auth",
                "system_distributed",
                "system_schema",
                "system_traces",
                "system_views",
                "system_virtual_schema",
            ],
        );
    }

    #[test]
    fn virtual_tables_cannot_be_made() {
        check(
            "DESCRIBE TABLE system_virtual_schema.tables",
            &["/*
Warning: Table system_virtual_schema.tables is a virtual table and cannot be recreated with CQL.
Structure, for reference:
VIRTUAL TABLE system_virtual_schema.tables (
    keyspace_name text,
    table_name text,
    comment text,
    PRIMARY KEY (keyspace_name, table_name)
) WITH CLUSTERING ORDER BY (table_name ASC)
    AND comment = 'virtual table definitions';
*/"],
        );
    }

    #[test]
    fn the_cluster_describes_its_ranges() {
        let found = answer("DESCRIBE CLUSTER", None).unwrap();
        assert_eq!(found.rows[0][0].as_deref(), Some(&b"Myriad"[..]));
        assert_eq!(found.columns.len(), 3);
        let found = answer("DESCRIBE CLUSTER", Some("k")).unwrap();
        assert_eq!(found.columns[3].1.to_string(), "map<text, list<text>>");
    }

    #[test]
    fn missing_objects_are_named() {
        for (text, expected) in [
            ("DESCRIBE KEYSPACE x", "'x' not found in keyspaces"),
            ("DESCRIBE TABLE x", "Table 'x' not found in keyspace 'k'"),
            ("DESCRIBE TYPE x", "User defined type 'x' not found in 'k'"),
            ("DESCRIBE INDEX x", "Table for existing index 'x' not found in 'k'"),
            ("DESCRIBE x", "'x' not found in keyspace 'k'"),
        ] {
            assert_eq!(answer(text, Some("k")).unwrap_err().to_string(), expected);
        }
        let error = answer("DESCRIBE TABLE x", None).unwrap_err();
        assert_eq!(error.to_string(), "No keyspace specified and no current keyspace");
    }
}
