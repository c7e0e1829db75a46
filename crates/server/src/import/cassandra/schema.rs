//! The schema of the source, and the same in the target.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use cql::schema::is_system;
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

/// What the target can create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Keyspace,
    Type,
    Table,
    Index,
}

/// The names of kinds in the rows of DESCRIBE.
const KINDS: [(&str, Kind); 4] = [
    ("keyspace", Kind::Keyspace),
    ("type", Kind::Type),
    ("table", Kind::Table),
    ("index", Kind::Index),
];

/// An object with a name and the statement that creates it.
#[derive(Debug)]
struct Element {
    keyspace: String,
    kind_name: String,
    kind: Option<Kind>,
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
            elements.extend(rows.iter().map(|row| element(row)));
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
                Some(Kind::Keyspace) => existing.has_keyspace.contains(keyspace),
                Some(Kind::Type) => has(&existing.types),
                Some(Kind::Table) => has(&existing.tables),
                Some(Kind::Index) => has(&existing.indexes),
                None => {
                    let advice = "the target has no such objects";
                    report.lose(&format!("the {kind_name} {keyspace}.{name}: {advice}"))?;
                    continue;
                }
            };
            if is_there {
                continue;
            }
            match target.execute(statement, &[]) {
                Ok(()) => {}
                Err(Failure::Refused(reason)) if *kind == Some(Kind::Keyspace) => {
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
            let fields = fields(keyspace, source)?;
            let is_table = |element: &&Element| {
                element.kind == Some(Kind::Table) && element.keyspace == keyspace
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
                if own.len() > COLUMNS_MAX {
                    report.lose(&format!("{keyspace}.{name}: {} columns", own.len()))?;
                    continue;
                }
                parts.extend(of_columns(keyspace, name, &own, &fields)?);
            }
        }
        Ok(parts)
    }
}

fn element(row: &[Option<Vec<u8>>]) -> Element {
    let kind_name = text(row, 1);
    let kind = KINDS.iter().find(|(known, _)| *known == kind_name).map(|(_, kind)| *kind);
    let (keyspace, name) = (text(row, 0), unquoted(&text(row, 2)));
    Element { keyspace, kind_name, kind, name, statement: text(row, 3) }
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

/// The names of the fields of user-defined types.
fn fields(
    keyspace: &str,
    source: &mut Session<'_>,
) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let statement =
        "SELECT type_name, field_names FROM system_schema.types WHERE keyspace_name = ?";
    let rows: Listed = source.list(statement, &[Value::Bytes(keyspace.as_bytes())])?;
    let malformed = |_| anyhow!("a type of the source has malformed fields");
    let mut found = BTreeMap::new();
    for row in &rows {
        let names = row.get(1).and_then(Option::as_deref).unwrap_or_default();
        let mut reader = Reader::new(names);
        let count = if names.is_empty() { 0 } else { reader.int().map_err(malformed)? };
        let mut fields = Vec::new();
        for _ in 0..count {
            let name = reader.bytes().map_err(malformed)?.unwrap_or_default();
            fields.push(String::from_utf8_lossy(name).into_owned());
        }
        found.insert(text(row, 0), fields);
    }
    Ok(found)
}

/// The parts of a table: its static cells first, as the rows show them.
fn of_columns(
    keyspace: &str,
    table: &str,
    columns: &TableColumns<'_>,
    fields: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<Part>, Failure> {
    let of_kind = |kind: &str| -> Result<Vec<Column>, Failure> {
        let mut found: Vec<_> = columns.iter().filter(|(_, about)| about.0 == kind).collect();
        found.sort_by_key(|(_, about)| about.1);
        let column = |(name, about): (&&str, &&(String, i32, String))| {
            let shape = shape(&about.2, fields).ok_or_else(|| {
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
fn shape(name: &str, fields: &BTreeMap<String, Vec<String>>) -> Option<Shape> {
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
    fields.get(&unquoted(name)).cloned().map(Shape::Fields)
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

    #[test]
    fn types_have_their_shape() {
        let fields = BTreeMap::from([("Address".to_owned(), vec!["street".to_owned()])]);
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
            assert_eq!(shape(name, &fields), expected, "{name}");
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
}
