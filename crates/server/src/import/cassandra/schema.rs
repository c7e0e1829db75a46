//! The schema of the source, and the same in the target.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{anyhow, ensure};
use cql::schema::is_system;
use cql::statements::{Created, CreatedKind};
use cql::type_name::NATIVES;
use wire::cql::{Reader, Value};

use super::failure::Failure;
use super::report::Report;
use super::session::Session;
use super::state;
use super::table::{Column, Content, Part, Shape, quoted};

/// A statement with the values of all columns has at most 65,535 of them.
const COLUMNS_MAX: usize = 10_000;
/// The replication of a keyspace whose own the target refuses.
const ONE_COPY: &str = "{'class': 'SimpleStrategy', 'replication_factor': 1}";

type Listed = Vec<Vec<Option<Vec<u8>>>>;

/// The kinds that the target can create, by their names in the rows of DESCRIBE.
const KINDS: [(&str, CreatedKind); 4] = [
    ("keyspace", CreatedKind::Keyspace),
    ("type", CreatedKind::Type),
    ("table", CreatedKind::Table),
    ("index", CreatedKind::Index),
];

/// An object with a name and the statement that creates it.
#[derive(Debug)]
struct Element {
    keyspace: String,
    kind_name: String,
    kind: Option<CreatedKind>,
    name: String,
    statement: String,
}

#[derive(Debug)]
pub(super) struct Schema {
    elements: Vec<Element>,
}

/// Kind, position and type by table and column.
type Columns = BTreeMap<(String, String), (String, i32, String)>;

impl Schema {
    /// Reads the schema of one or all keyspaces of the source.
    pub(super) fn read(source: &mut Session<'_>, only: Option<&str>) -> Result<Schema, Failure> {
        check_partitioner(source)?;
        let names = source.list("SELECT keyspace_name FROM system_schema.keyspaces", &[])?;
        let mut names: Vec<String> = names.iter().map(|row| text(row, 0)).collect();
        names.retain(|name| match only {
            Some(only) => name == only,
            None => !is_system(name) && name != state::KEYSPACE,
        });
        names.sort();
        if let (Some(only), true) = (only, names.is_empty()) {
            return Err(anyhow!("the source has no keyspace {only}").into());
        }
        let mut elements = Vec::new();
        for name in names {
            let rows = source.list(&format!("DESCRIBE KEYSPACE {}", quoted(&name)), &[]);
            let rows = rows.map_err(|failure| match failure {
                Failure::Refused(text) => {
                    anyhow!("{text}; a source has DESCRIBE since Cassandra 4.0").into()
                }
                other => other,
            })?;
            for row in &rows {
                elements.push(element(&name, row)?);
            }
        }
        Ok(Schema { elements })
    }

    /// Creates in the target what it does not have.
    pub(super) fn create(&self, target: &mut Session<'_>, report: &Report) -> Result<(), Failure> {
        let mut existing = Existing::default();
        for element in &self.elements {
            let Element { keyspace, kind_name, kind, name, statement } = element;
            if !existing.keyspaces.contains(keyspace) {
                existing.read(keyspace, target)?;
            }
            let has = |names: &BTreeSet<(String, String)>| {
                names.contains(&(keyspace.clone(), name.clone()))
            };
            let is_there = match kind {
                Some(CreatedKind::Keyspace) => existing.has_keyspace.contains(keyspace),
                Some(CreatedKind::Type) => has(&existing.types),
                Some(CreatedKind::Table) => has(&existing.tables),
                Some(CreatedKind::Index) => has(&existing.indexes),
                None => {
                    let advice = "the target has no such objects";
                    report.lose(&format!("the {kind_name} {keyspace}.{name}: {advice}"))?;
                    continue;
                }
            };
            if is_there {
                continue;
            }
            let outcome = match check_statement(element) {
                Ok(()) => target.execute(statement, &[]),
                Err(reason) => Err(Failure::Refused(reason)),
            };
            match outcome {
                Ok(()) => {}
                Err(Failure::Refused(reason)) if *kind == Some(CreatedKind::Keyspace) => {
                    report.note(&format!("the keyspace {name} has one copy: {reason}"));
                    let name = quoted(name);
                    let statement = format!("CREATE KEYSPACE {name} WITH replication = {ONE_COPY}");
                    target.execute(&statement, &[])?;
                }
                Err(Failure::Refused(reason)) => {
                    report.lose(&format!("the {kind_name} {keyspace}.{name}: {reason}"))?;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// The parts of all tables that both servers have, with the same columns.
    pub(super) fn parts(
        &self,
        source: &mut Session<'_>,
        target: &mut Session<'_>,
        report: &Report,
    ) -> Result<Vec<Part>, Failure> {
        let mut parts = Vec::new();
        let keyspaces: BTreeSet<&str> =
            self.elements.iter().map(|element| element.keyspace.as_str()).collect();
        for keyspace in keyspaces {
            let columns = columns(keyspace, source)?;
            let others = columns_or_none(keyspace, target)?;
            let types = types(keyspace, source)?;
            let other_types = types_or_none(keyspace, target)?;
            let ids = target_ids(keyspace, target)?;
            let is_table = |element: &&Element| {
                element.kind == Some(CreatedKind::Table) && element.keyspace == keyspace
            };
            for Element { name, .. } in self.elements.iter().filter(is_table) {
                let own = of_table(&columns, name);
                let other = of_table(&others, name);
                if own != other {
                    let problem = if other.is_empty() { "is missing" } else { "is another" };
                    report
                        .lose(&format!("{keyspace}.{name}: the table of the target {problem}"))?;
                    continue;
                }
                if let Some(of) = differing_type(&own, &types, &other_types) {
                    let problem = format!("the type {of} of the target is another");
                    report.lose(&format!("{keyspace}.{name}: {problem}"))?;
                    continue;
                }
                if own.len() > COLUMNS_MAX {
                    report.lose(&format!("{keyspace}.{name}: {} columns", own.len()))?;
                    continue;
                }
                let target_id = ids.get(name).cloned().unwrap_or_default();
                let of_table = of_columns(keyspace, name, &own, &types)?.into_iter();
                parts.extend(of_table.map(|part| Part { target_id: target_id.clone(), ..part }));
            }
        }
        Ok(parts)
    }
}

/// Decodes a row of DESCRIBE, whose names are quoted where necessary.
fn element(described: &str, row: &[Option<Vec<u8>>]) -> anyhow::Result<Element> {
    let [keyspace, kind_name, name, statement] = [0, 1, 2, 3].map(|column| text(row, column));
    let is_complete =
        [&keyspace, &kind_name, &name, &statement].iter().all(|text| !text.is_empty());
    ensure!(is_complete, "the source describes an object of {described} without its name or type");
    let (keyspace, name) = (unquoted(&keyspace), unquoted(&name));
    ensure!(
        keyspace == described,
        "the source describes {described} with an object of {keyspace:.100}"
    );
    let kind = KINDS.iter().find(|(known, _)| *known == kind_name).map(|(_, kind)| *kind);
    Ok(Element { keyspace, kind_name, kind, name, statement })
}

/// The source must not execute other statements in the target.
fn check_statement(element: &Element) -> Result<(), String> {
    let Element { keyspace, kind, name, statement, .. } = element;
    let parsed = cql::statements::parse(statement).map_err(|error| error.to_string())?;
    let name = if *kind == Some(CreatedKind::Keyspace) { keyspace } else { name };
    let expected = kind.map(|kind| Created { kind, keyspace: Some(keyspace), name: Some(name) });
    if parsed.statement.created() == expected {
        return Ok(());
    }
    Err(format!("the source sent another statement: {statement:.200}"))
}

/// The position of a row is computed only for the default of all versions since 1.2.
fn check_partitioner(source: &mut Session<'_>) -> Result<(), Failure> {
    let rows = source.list("SELECT partitioner FROM system.local", &[])?;
    let found = rows.first().map(|row| text(row, 0)).unwrap_or_default();
    if found.ends_with("Murmur3Partitioner") {
        return Ok(());
    }
    Err(anyhow!("the partitioner of the source is {found:?} instead of Murmur3Partitioner").into())
}

/// What a target has of the keyspaces that were looked up.
#[derive(Debug, Default)]
struct Existing {
    keyspaces: BTreeSet<String>,
    has_keyspace: BTreeSet<String>,
    types: BTreeSet<(String, String)>,
    tables: BTreeSet<(String, String)>,
    indexes: BTreeSet<(String, String)>,
}

impl Existing {
    fn read(&mut self, keyspace: &str, target: &mut Session<'_>) -> Result<(), Failure> {
        self.keyspaces.insert(keyspace.to_owned());
        let mut names = |column: &str, table: &str| {
            let statement =
                format!("SELECT {column} FROM system_schema.{table} WHERE keyspace_name = ?");
            let rows = target.list(&statement, &[Value::Bytes(keyspace.as_bytes())])?;
            let name = |row: &Vec<_>| (keyspace.to_owned(), text(row, 0));
            Ok::<_, Failure>(rows.iter().map(name).collect::<Vec<_>>())
        };
        let found = names("keyspace_name", "keyspaces")?;
        self.has_keyspace.extend(found.into_iter().map(|(keyspace, _)| keyspace));
        self.types.extend(names("type_name", "types")?);
        self.tables.extend(names("table_name", "tables")?);
        self.indexes.extend(names("index_name", "indexes")?);
        Ok(())
    }
}

fn columns(keyspace: &str, session: &mut Session<'_>) -> Result<Columns, Failure> {
    let statement = "SELECT table_name, column_name, kind, position, type \
                     FROM system_schema.columns WHERE keyspace_name = ?";
    let rows = session.list(statement, &[Value::Bytes(keyspace.as_bytes())])?;
    let mut found = BTreeMap::new();
    for row in &rows {
        let position = row.get(3).and_then(|cell| cell.as_deref()?.try_into().ok());
        let position = position.map(i32::from_be_bytes);
        let position = position.ok_or_else(|| anyhow!("a column without a position"))?;
        let place = (text(row, 0), text(row, 1));
        found.insert(place, (text(row, 2), position, text(row, 4)));
    }
    Ok(found)
}

/// As [`columns`]; the target lacks a keyspace that was left out.
fn columns_or_none(keyspace: &str, target: &mut Session<'_>) -> Result<Columns, Failure> {
    match columns(keyspace, target) {
        Err(Failure::Refused(_)) => Ok(Columns::new()),
        other => other,
    }
}

/// Kind, position and type by column.
type TableColumns<'a> = BTreeMap<&'a str, &'a (String, i32, String)>;

fn of_table<'a>(columns: &'a Columns, table: &str) -> TableColumns<'a> {
    let own = columns.iter().filter(|((of, _), _)| of == table);
    own.map(|((_, name), about)| (name.as_str(), about)).collect()
}

/// Names and types of the fields of user-defined types.
type Types = BTreeMap<String, Vec<(String, String)>>;

fn types(keyspace: &str, session: &mut Session<'_>) -> Result<Types, Failure> {
    let statement = "SELECT type_name, field_names, field_types FROM system_schema.types \
                     WHERE keyspace_name = ?";
    let rows: Listed = session.list(statement, &[Value::Bytes(keyspace.as_bytes())])?;
    let mut found = Types::new();
    for row in &rows {
        let (names, of) = (texts(row, 1)?, texts(row, 2)?);
        if names.len() != of.len() {
            return Err(malformed_type().into());
        }
        found.insert(text(row, 0), names.into_iter().zip(of).collect());
    }
    Ok(found)
}

/// As [`types`]; the target lacks a keyspace that was left out.
fn types_or_none(keyspace: &str, target: &mut Session<'_>) -> Result<Types, Failure> {
    match types(keyspace, target) {
        Err(Failure::Refused(_)) => Ok(Types::new()),
        other => other,
    }
}

fn malformed_type() -> anyhow::Error {
    anyhow!("a user-defined type has malformed fields")
}

/// A column that is a list of texts.
fn texts(row: &[Option<Vec<u8>>], column: usize) -> Result<Vec<String>, Failure> {
    let bytes = row.get(column).and_then(Option::as_deref).unwrap_or_default();
    let mut reader = Reader::new(bytes);
    let count = if bytes.is_empty() { 0 } else { reader.int().map_err(|_| malformed_type())? };
    let mut found = Vec::new();
    for _ in 0..count {
        let item = reader.bytes().map_err(|_| malformed_type())?.unwrap_or_default();
        found.push(String::from_utf8_lossy(item).into_owned());
    }
    Ok(found)
}

/// A user-defined type that columns use, directly or within another one, and that differs.
fn differing_type(columns: &TableColumns<'_>, own: &Types, other: &Types) -> Option<String> {
    let mut waiting: Vec<String> = columns.values().flat_map(|about| names_in(&about.2)).collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        let fields = own.get(&name);
        if fields != other.get(&name) {
            return Some(name);
        }
        if seen.insert(name) {
            waiting.extend(fields.into_iter().flatten().flat_map(|(_, of)| names_in(of)));
        }
    }
    None
}

/// The names of all types in the text of a type.
fn names_in(of: &str) -> Vec<String> {
    let mut is_quoted = false;
    let names = of.split(|letter: char| {
        is_quoted ^= letter == '"';
        !is_quoted && matches!(letter, '<' | '>' | ',' | ' ')
    });
    names.filter(|name| !name.is_empty()).map(unquoted).collect()
}

/// The identities of the tables of the target.
fn target_ids(
    keyspace: &str,
    target: &mut Session<'_>,
) -> Result<BTreeMap<String, String>, Failure> {
    let statement = "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?";
    let rows = target.list(statement, &[Value::Bytes(keyspace.as_bytes())])?;
    let mut found = BTreeMap::new();
    for row in &rows {
        let id = row.get(1).and_then(Option::as_deref);
        let id = id.ok_or_else(|| anyhow!("a table of the target has no identity"))?;
        found.insert(text(row, 0), base::hex::hex(id));
    }
    Ok(found)
}

/// The parts of a table: its static cells first, as the rows show them.
fn of_columns(
    keyspace: &str,
    table: &str,
    columns: &TableColumns<'_>,
    types: &Types,
) -> Result<Vec<Part>, Failure> {
    let of_kind = |kind: &str| -> Result<Vec<Column>, Failure> {
        let mut found: Vec<_> = columns.iter().filter(|(_, about)| about.0 == kind).collect();
        found.sort_by_key(|(_, about)| about.1);
        let column = |(name, about): (&&str, &&(String, i32, String))| {
            let shape = shape(&about.2, types).ok_or_else(|| {
                anyhow!("{keyspace}.{table}: the type {} of {name} is unknown", about.2)
            })?;
            Ok(Column { name: (*name).to_owned(), shape })
        };
        found.into_iter().map(column).collect()
    };
    let partition = of_kind("partition_key")?;
    let clustering = of_kind("clustering")?;
    let partition_columns = partition.len();
    let part = |content, keys, values| Part {
        keyspace: keyspace.to_owned(),
        table: table.to_owned(),
        target_id: String::new(),
        content,
        keys,
        partition_columns,
        values,
    };
    let mut parts = Vec::new();
    let statics = of_kind("static")?;
    if !statics.is_empty() {
        parts.push(part(Content::Statics, partition.clone(), statics));
    }
    let keys = [partition, clustering].concat();
    let regular = of_kind("regular")?;
    // A counter table with only static counters has no other rows to write.
    let is_counter = parts.iter().any(Part::has_counters);
    if !(is_counter && regular.is_empty()) {
        parts.push(part(Content::Rows, keys, regular));
    }
    Ok(parts)
}

/// How a type is stored, by its name in the tables of the schema.
fn shape(name: &str, types: &Types) -> Option<Shape> {
    for (prefix, shape) in [("list<", Shape::List), ("set<", Shape::Set), ("map<", Shape::Map)] {
        if name.starts_with(prefix) {
            return Some(shape);
        }
    }
    if name == "counter" {
        return Some(Shape::Counter);
    }
    let is_native = NATIVES.iter().any(|(native, _)| *native == name);
    if is_native || name.starts_with('\'') || name.contains('<') {
        return Some(Shape::Cell);
    }
    let fields = types.get(&unquoted(name))?;
    Some(Shape::Fields(fields.iter().map(|(name, _)| name.clone()).collect()))
}

fn text(row: &[Option<Vec<u8>>], column: usize) -> String {
    let cell = row.get(column).and_then(Option::as_deref).unwrap_or_default();
    String::from_utf8_lossy(cell).into_owned()
}

fn unquoted(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(all: &[(&str, &[(&str, &str)])]) -> Types {
        let fields = |fields: &[(&str, &str)]| {
            fields.iter().map(|(name, of)| ((*name).to_owned(), (*of).to_owned())).collect()
        };
        all.iter().map(|(name, own)| ((*name).to_owned(), fields(own))).collect()
    }

    #[test]
    fn types_have_their_shape() {
        let types = types(&[("Address", &[("street", "text")])]);
        for (name, expected) in [
            ("int", Some(Shape::Cell)),
            ("counter", Some(Shape::Counter)),
            ("list<int>", Some(Shape::List)),
            ("set<frozen<list<int>>>", Some(Shape::Set)),
            ("map<text, int>", Some(Shape::Map)),
            ("frozen<map<text, int>>", Some(Shape::Cell)),
            ("frozen<tuple<int, int>>", Some(Shape::Cell)),
            ("vector<float, 3>", Some(Shape::Cell)),
            ("'org.example.Type'", Some(Shape::Cell)),
            ("\"Address\"", Some(Shape::Fields(vec!["street".to_owned()]))),
            ("unknown", None),
        ] {
            assert_eq!(shape(name, &types), expected, "{name}");
        }
    }

    #[test]
    fn static_cells_are_a_part_of_their_own() {
        let about = |kind: &str, position, of: &str| (kind.to_owned(), position, of.to_owned());
        let own = [
            ("b", about("partition_key", 1, "int")),
            ("a", about("partition_key", 0, "int")),
            ("c", about("clustering", 0, "int")),
            ("s", about("static", -1, "text")),
            ("v", about("regular", -1, "text")),
        ];
        let columns = own.iter().map(|(name, about)| (*name, about)).collect();
        let parts = of_columns("k", "t", &columns, &BTreeMap::new()).unwrap();
        let names = |columns: &[Column]| {
            columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        let shown: Vec<_> =
            parts.iter().map(|part| (names(&part.keys), names(&part.values))).collect();
        let expected = [("a b", "s"), ("a b c", "v")];
        assert_eq!(shown, expected.map(|(keys, values)| (keys.to_owned(), values.to_owned())));
    }

    #[test]
    fn differing_types_are_found() {
        let home = ("Ho, me", &[("at", "text"), ("no", "int")][..]);
        let user = ("user", &[("homes", "frozen<map<int, frozen<\"Ho, me\">>>")][..]);
        let own = types(&[home, user]);
        let check = |of: &str, other: &Types| {
            let about = ("regular".to_owned(), -1, of.to_owned());
            differing_type(&BTreeMap::from([("c", &about)]), &own, other)
        };
        let fewer = types(&[("Ho, me", &[("at", "text")]), user]);
        let reordered = types(&[("Ho, me", &[("no", "int"), ("at", "text")]), user]);
        let retyped = types(&[("Ho, me", &[("at", "text"), ("no", "bigint")]), user]);
        for of in ["user", "list<frozen<user>>", "frozen<tuple<int, user>>", "\"Ho, me\""] {
            assert_eq!(check(of, &own), None, "{of}");
            for other in [&fewer, &reordered, &retyped] {
                assert_eq!(check(of, other).as_deref(), Some("Ho, me"), "{of}");
            }
            assert!(check(of, &Types::new()).is_some(), "{of}");
        }
        assert_eq!(check("map<int, text>", &Types::new()), None);
    }

    #[test]
    fn only_announced_objects_are_created() {
        let row = |texts: [&str; 4]| texts.map(|text| Some(text.as_bytes().to_vec()));
        let check = |texts: [&str; 4]| {
            let found = element("Shop", &row(texts)).map_err(|error| error.to_string())?;
            check_statement(&found)
        };
        for texts in [
            [
                "\"Shop\"",
                "keyspace",
                "\"Shop\"",
                "CREATE KEYSPACE \"Shop\" WITH replication = {'class': 'S'}",
            ],
            ["\"Shop\"", "type", "home", "CREATE TYPE \"Shop\".home (street text);"],
            ["\"Shop\"", "table", "\"T\"", "CREATE TABLE \"Shop\".\"T\" (k int PRIMARY KEY)"],
            ["\"Shop\"", "index", "i", "CREATE INDEX i ON \"Shop\".t (v)"],
        ] {
            assert_eq!(check(texts), Ok(()), "{texts:?}");
        }
        for (kind, name, statement) in [
            ("table", "t", "DROP KEYSPACE shop"),
            ("table", "t", "CREATE ROLE r WITH SUPERUSER = true"),
            ("table", "t", "CREATE TABLE other.t (k int PRIMARY KEY)"),
            ("table", "t", "CREATE TABLE t (k int PRIMARY KEY)"),
            ("table", "t", "CREATE TABLE \"Shop\".u (k int PRIMARY KEY)"),
            ("table", "t", "CREATE TYPE \"Shop\".t (k int)"),
            ("index", "i", "CREATE INDEX ON \"Shop\".t (v)"),
            ("keyspace", "Shop", "CREATE KEYSPACE other WITH replication = {'class': 'S'}"),
            ("table", "t", "no statement"),
            ("table", "t", ""),
            ("table", "", "CREATE TABLE \"Shop\".t (k int PRIMARY KEY)"),
        ] {
            assert!(check(["\"Shop\"", kind, name, statement]).is_err(), "{statement}");
        }
        let foreign = ["shop", "table", "t", "CREATE TABLE shop.t (k int PRIMARY KEY)"];
        assert!(element("Shop", &row(foreign)).is_err());
        assert!(element("Shop", &[]).is_err());
    }
}
