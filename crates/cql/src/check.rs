//! Invariants for any statement and any schema: called by the fuzzers and, on their corpora and on
//! random bytes, by the tests.

use std::sync::{Arc, LazyLock};

use uuid::Uuid;
use wire::cql::{
    Columns, Direction, HEADER_BYTES, Header, Limits, Notes, ResponseEncoder, RowsMetadata,
    Version, decode_response,
};

use super::parser::quoted_if_needed;
use super::plan::Plan;
use super::plan::prepared::PreparedStatement;
use super::schema::{
    Catalog, ChangeContext, DescribeContext, Rows, Table, builtin, change, changes_schema,
    describe, from_rows, is_virtual_system, keyspace_rows,
};
use super::statements::{Describe, Described, Statement, parse};

const KEYSPACE: &str = "k";

/// The schema that arbitrary statements are planned against.
static SMALL: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
    let statements = [
        "CREATE TYPE u (a int, b text)",
        "CREATE TABLE t (p int, c text, d int, s int STATIC, v int, l list<int>, m map<text, int>, \
         f frozen<u>, g u, w vector<float, 3>, t tuple<int, text>, PRIMARY KEY (p, c, d))",
        "CREATE TABLE n (p int PRIMARY KEY, c counter)",
        "CREATE INDEX ON t (v)",
    ];
    let mut catalog = start();
    for text in statements {
        catalog = changed(&catalog, text).expect("a statement of this program");
    }
    catalog
});

/// Any text is planned and described, or rejected.
pub fn check_statement(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let catalog = &*SMALL;
    let Ok(statement) = PreparedStatement::new(&text, Some(KEYSPACE), Arc::clone(catalog)) else {
        return;
    };
    describe_to_clients(&statement);
    if let Plan::Other(other) = &statement.plan {
        carry_out(catalog, other);
    }
}

fn carry_out(catalog: &Catalog, statement: &Statement) {
    match statement {
        Statement::Describe(asked) => {
            describe(asked, &describe_cx(catalog)).ok();
        }
        other if changes_schema(other) => {
            if let Ok(Some(change)) = change(catalog, other, &change_cx(catalog)) {
                check_catalog(&change.catalog);
            }
        }
        _ => {}
    }
}

/// Statements made of any bytes create a schema, or are rejected. An accepted schema can be
/// prepared against, selected from, described to clients and by DESCRIBE, and read again.
pub fn check_schema(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut catalog = start();
    for nth in 0..STATEMENTS_MAX {
        if bytes.0.is_empty() {
            break;
        }
        let text = bytes.statement(nth);
        catalog = changed(&catalog, &text).unwrap_or(catalog);
    }
    check_catalog(&catalog);
}

/// Enough for types whose names grow with each level.
const STATEMENTS_MAX: usize = 100;

fn start() -> Arc<Catalog> {
    let text = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}";
    changed(&builtin(), text).expect("a statement of this program")
}

/// The schema after a statement, if it is accepted and makes a change.
fn changed(catalog: &Catalog, text: &str) -> Option<Arc<Catalog>> {
    let statement = parse(text).ok()?.statement;
    let change = change(catalog, &statement, &change_cx(catalog)).ok()??;
    Some(change.catalog)
}

fn change_cx(catalog: &Catalog) -> ChangeContext<'static> {
    let table_id = Uuid::from_u128(catalog.fingerprint ^ 1);
    let timestamp = 1_700_000_000_000_000;
    ChangeContext { keyspace: Some(KEYSPACE), table_id, timestamp, is_in_group: false }
}

fn describe_cx(catalog: &Catalog) -> DescribeContext<'_> {
    DescribeContext {
        catalog,
        keyspace: Some(KEYSPACE),
        cluster: "c",
        token: "0",
        endpoint: "127.0.0.1",
    }
}

fn check_catalog(catalog: &Arc<Catalog>) {
    let Some(keyspace) = catalog.keyspace(KEYSPACE) else { return };
    for table in keyspace.tables.values() {
        check_table(catalog, table);
    }
    let what = Described::Keyspace(Some(KEYSPACE.to_owned()));
    let asked = Describe { what, with_internals: true };
    let described = describe(&asked, &describe_cx(catalog)).expect("the keyspace is there");
    assert!(!described.rows.is_empty());
    let loaded = from_rows(&all_rows(catalog)).expect("an accepted schema can be read again");
    assert_eq!(loaded.keyspaces, catalog.keyspaces);
}

fn all_rows(catalog: &Catalog) -> Rows {
    let stored = catalog.keyspaces.values().filter(|known| !is_virtual_system(&known.name));
    stored.flat_map(|keyspace| keyspace_rows(keyspace)).collect()
}

fn check_table(catalog: &Arc<Catalog>, table: &Table) {
    let name = quoted_if_needed(&table.name);
    let columns = table.columns.iter().map(|column| quoted_if_needed(&column.name));
    let columns: Vec<String> = columns.collect();
    let markers = vec!["?"; columns.len()].join(", ");
    let mut statements =
        vec![format!("SELECT * FROM {name}"), format!("SELECT JSON * FROM {name}")];
    if !table.is_counter() {
        statements.push(format!("INSERT INTO {name} ({}) VALUES ({markers})", columns.join(", ")));
    }
    for text in statements {
        let statement = PreparedStatement::new(&text, Some(KEYSPACE), Arc::clone(catalog));
        let statement = statement.unwrap_or_else(|error| panic!("{text}: {error}"));
        describe_to_clients(&statement);
    }
}

/// Checks the answer to PREPARE, and a result with warnings and no rows, in every version, with the
/// client's decoder.
fn describe_to_clients(statement: &PreparedStatement) {
    let limits = Limits::DEFAULT;
    for version in [Version::V3, Version::V4, Version::V5] {
        let has_warnings = version >= Version::V4;
        let warnings: &[&str] = if has_warnings { &[&statement.text] } else { &[] };
        let notes = Notes { warnings, ..Notes::default() };
        let encoder = ResponseEncoder { version, compression: None, notes };
        let mut out = Vec::new();
        encoder.prepared(1, &statement.reply(), &mut out).expect("markers and columns fit");
        let columns = statement.result.as_ref().map(super::plan::prepared::Description::columns);
        let nothing = Columns { keyspace: "", table: "", columns: &[] };
        let metadata = RowsMetadata {
            columns: columns.unwrap_or(nothing),
            skip_columns: false,
            paging_state: None,
            new_metadata_id: None,
        };
        encoder.rows(1, &metadata, &mut out).finish().expect("columns fit");
        let mut rest = &out[..];
        while !rest.is_empty() {
            let header = Header::decode(rest, Direction::Response, None, &limits);
            let header = header.ok().flatten().expect("a response");
            let body = &rest[HEADER_BYTES..header.envelope_bytes()];
            decode_response(&header, body).expect("a response that clients can read");
            rest = &rest[header.envelope_bytes()..];
        }
    }
}

/// Statements from bytes: each byte is a choice.
struct Bytes<'a>(&'a [u8]);

const NATIVES: [&str; 8] =
    ["int", "text", "blob", "decimal", "duration", "uuid", "tinyint", "varint"];

/// Longest repeated text.
const TEXT_BYTES_MAX: usize = 300_000;

impl Bytes<'_> {
    /// The next choice; 0 at the end.
    fn take(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn statement(&mut self, nth: usize) -> String {
        match self.take() % 8 {
            0..=2 => {
                let fields = self.definitions("f");
                format!("CREATE TYPE t{nth} ({fields})")
            }
            3 | 4 => {
                let key = if self.take() < 200 { "int".to_owned() } else { self.cql_type(0) };
                let columns = self.definitions("c");
                format!("CREATE TABLE r{nth} (k {key} PRIMARY KEY, {columns})")
            }
            5 => format!("ALTER TYPE t{} ADD g{nth} {}", self.take(), self.cql_type(0)),
            6 => match self.take() % 3 {
                0 => format!("ALTER TABLE r{} ADD d{nth} {}", self.take(), self.cql_type(0)),
                1 => format!("ALTER TABLE r{} DROP c0_", self.take()),
                _ => format!("ALTER TABLE r{} RENAME k TO {}", self.take(), self.name("key")),
            },
            _ => format!("ALTER TYPE t{} RENAME f0_ TO {}", self.take(), self.name("h")),
        }
    }

    /// A name that is sometimes long.
    fn name(&mut self, prefix: &str) -> String {
        let length = match self.take() {
            choice @ 250.. => (choice - 249) * 10_000,
            choice @ 200.. => choice,
            _ => 1,
        };
        format!("{prefix}{}", "_".repeat(length))
    }

    /// Columns or fields with their types: a few or, sometimes, hundreds.
    fn definitions(&mut self, prefix: &str) -> String {
        let choice = self.take();
        let (count, of) = match choice {
            240.. => {
                let of = self.cql_type(0);
                (((choice - 239) * 60).min(TEXT_BYTES_MAX / of.len()).max(1), Some(of))
            }
            _ => (1 + choice % 5, None),
        };
        let definition = |at: usize| {
            let name = self.name(&format!("{prefix}{at}"));
            let of = of.clone().unwrap_or_else(|| self.cql_type(0));
            format!("{name} {of}")
        };
        (0..count).map(definition).collect::<Vec<_>>().join(", ")
    }

    fn cql_type(&mut self, depth: usize) -> String {
        let choice = self.take();
        if depth > 6 {
            return NATIVES[choice % NATIVES.len()].to_owned();
        }
        match choice {
            0..80 => format!("frozen<t{choice}>"),
            80..140 => NATIVES[choice % NATIVES.len()].to_owned(),
            140..160 => format!("frozen<list<{}>>", self.cql_type(depth + 1)),
            160..170 => format!("set<{}>", self.cql_type(depth + 1)),
            170..185 => {
                let (key, value) = (self.cql_type(depth + 1), self.cql_type(depth + 1));
                format!("frozen<map<{key}, {value}>>")
            }
            185..205 => format!("vector<{}, {}>", self.cql_type(depth + 1), 1 + self.take()),
            205..215 => {
                let levels = 1 + self.take() % 40;
                let inner = self.cql_type(depth + 1);
                format!("{}{inner}{}", "frozen<list<".repeat(levels), ">>".repeat(levels))
            }
            215..225 => {
                let part = self.cql_type(depth + 1);
                let count = (1 + 300 * self.take()).min(TEXT_BYTES_MAX / part.len());
                format!("tuple<{}>", vec![part; count.max(1)].join(", "))
            }
            _ => {
                let parts: Vec<String> =
                    (0..=choice % 4).map(|_| self.cql_type(depth + 1)).collect();
                format!("tuple<{}>", parts.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Keyspace;
    use crate::types::{CqlType, UserType};
    use proptest::prelude::*;

    proptest! {
        // Each case executes dozens of statements and reads the schema again.
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn accepted_schemas_can_be_used(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            check_schema(&data);
        }
    }

    /// Every file of a fuzzer's corpus.
    fn replay(target: &str, check: impl Fn(&[u8])) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
        let files = std::fs::read_dir(format!("{folder}/{target}")).unwrap();
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            check(&std::fs::read(path).unwrap());
            count += 1;
        }
        // Fewer files mean that a part of the corpus is missing.
        assert!(count >= 20, "{count} files");
    }

    #[test]
    fn the_corpora_are_replayed() {
        replay("cql_statement", check_statement);
        replay("cql_schema", check_schema);
    }

    #[test]
    fn schemas_at_the_limits_can_be_used() {
        let mut catalog = start();
        let mut make = |text: &str| match changed(&catalog, text) {
            Some(after) => {
                catalog = after;
                true
            }
            None => false,
        };
        // Levels: the deepest accepted type is used, dropped and read again.
        assert!(make("CREATE TYPE t0 (a int)"));
        let mut levels = 0;
        while make(&format!("CREATE TYPE t{} (a frozen<t{levels}>)", levels + 1)) {
            levels += 1;
        }
        assert_eq!(levels + 2, crate::types::size::TYPE_LEVELS_MAX);
        assert!(make(&format!(
            "CREATE TABLE deep (k int PRIMARY KEY, v frozen<t{levels}>, w int)"
        )));
        assert!(!make(&format!("CREATE TABLE no (k int PRIMARY KEY, v list<frozen<t{levels}>>)")));
        assert!(!make("ALTER TYPE t0 ADD b frozen<list<int>>"));
        assert!(make("ALTER TABLE deep DROP v"));
        // Parts.
        let wide = |parts: usize| format!("tuple<{}>", vec!["int"; parts].join(","));
        assert!(make(&format!("CREATE TABLE wide (k int PRIMARY KEY, v {})", wide(16_000))));
        assert!(!make(&format!("CREATE TABLE wider (k int PRIMARY KEY, v {})", wide(70_000))));
        // The class name of a vector.
        let fields = |length: usize| {
            let field = |nth: usize| format!("{}{nth} int", "f".repeat(length));
            (0..600).map(field).collect::<Vec<_>>().join(", ")
        };
        assert!(make(&format!("CREATE TYPE named ({})", fields(100))));
        assert!(make("CREATE TABLE named (k int PRIMARY KEY, v frozen<named>)"));
        assert!(!make("CREATE TABLE no (k int PRIMARY KEY, v vector<frozen<named>, 2>)"));
        assert!(make("CREATE TYPE small (a int)"));
        assert!(make("CREATE TABLE vectors (k int PRIMARY KEY, v vector<frozen<small>, 2>)"));
        assert!(!make(&format!("ALTER TYPE small RENAME a TO {}", "b".repeat(40_000))));
        // Each type has four times as many parts as the one before.
        assert!(make("CREATE TYPE g0 (a int)"));
        let mut grown = 0;
        let four = |nth: usize| {
            let field = |name| format!("{name} frozen<g{nth}>");
            format!("CREATE TYPE g{} ({})", nth + 1, ["a", "b", "c", "d"].map(field).join(", "))
        };
        while make(&four(grown)) {
            grown += 1;
        }
        assert_eq!(grown, 6);
        check_catalog(&catalog);
    }

    /// The deepest types and terms that are accepted need less than this, an eighth of a reactor's
    /// stack, even without optimization.
    const STACK_BYTES: usize = 2 << 20;

    #[test]
    fn the_deepest_statements_need_little_stack() {
        let nest = |open: &str, inner: &str, close: &str, levels: usize| {
            format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
        };
        let run = move || {
            let levels = crate::types::size::TYPE_LEVELS_MAX - 1;
            let of = nest("tuple<", "int", ">", levels);
            let create = format!("CREATE TABLE deep (k int PRIMARY KEY, v {of})");
            let catalog = changed(&start(), &create).expect("33 levels and more are accepted");
            check_catalog(&catalog);
            let value = nest("(", "1", ")", levels);
            let insert = format!("INSERT INTO deep (k, v) VALUES (1, {value})");
            PreparedStatement::new(&insert, Some(KEYSPACE), catalog)
                .expect("values of all types can be written");
            let deepest = crate::parser::DEPTH_MAX - 2;
            for (open, close) in [("(", ")"), ("[", "]"), ("{", "}"), ("abs(", ")"), ("-", "")] {
                let value = nest(open, "1", close, deepest);
                check_statement(format!("UPDATE t SET v = {value} WHERE k = 1").as_bytes());
                check_statement(format!("SELECT {value} FROM t").as_bytes());
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
        thread.unwrap().join().unwrap();
    }

    /// A schema as stored by a version without limits.
    #[test]
    fn stored_schemas_over_the_limits_are_read() {
        let text = "CREATE TABLE old (k int PRIMARY KEY, v int, l list<int>, w int)";
        let mut catalog = Catalog::clone(&changed(&start(), text).unwrap());
        let mut keyspace = Keyspace::clone(catalog.keyspace(KEYSPACE).unwrap());
        let mut of = CqlType::INT;
        for nth in 0..500 {
            let fields = vec![("a".to_owned(), of)];
            let user = Arc::new(UserType::new(KEYSPACE.to_owned(), format!("t{nth}"), fields));
            keyspace.types.insert(user.name.clone(), Arc::clone(&user));
            of = CqlType::UserDefined(user).frozen();
        }
        let mut table = Table::clone(&keyspace.tables["old"]);
        for column in &mut table.columns {
            match column.name.as_str() {
                "v" => column.column_type = of.clone(),
                "l" => column.column_type = CqlType::List(Box::new(of.clone())),
                "w" => column.column_type = CqlType::Tuple(vec![CqlType::INT; 70_000]),
                _ => {}
            }
        }
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
        catalog.keyspaces.insert(KEYSPACE.to_owned(), Arc::new(keyspace));
        let loaded = from_rows(&all_rows(&catalog)).unwrap();
        assert_eq!(loaded.keyspaces[KEYSPACE].types.len(), 500);
        check_catalog(&Arc::new(loaded));
    }

    #[test]
    fn statements_are_planned_or_refused() {
        for text in [
            "SELECT v FROM t WHERE () IN ()",
            "SELECT v FROM t WHERE () = (1)",
            "DELETE FROM t WHERE () > ?",
            "SELECT * FROM t WHERE (c, d) IN ((?, ?), ?)",
            "DESCRIBE TABLE t",
            "ALTER TYPE u ADD c frozen<u>",
        ] {
            check_statement(text.as_bytes());
        }
    }
}
