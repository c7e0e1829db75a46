//! The published values of the source documents, as data: `benchmarks/sources/*.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::figure::Figure;
use super::profiles::ProfiledCell;
use super::shape::{Check, Point, Range, Truth};

/// The documents in order: file name, text.
const TEXTS: [(&str, &str); 8] = [
    ("s0.toml", include_str!("../../../../benchmarks/sources/s0.toml")),
    ("s1.toml", include_str!("../../../../benchmarks/sources/s1.toml")),
    ("s2.toml", include_str!("../../../../benchmarks/sources/s2.toml")),
    ("s3.toml", include_str!("../../../../benchmarks/sources/s3.toml")),
    ("s4.toml", include_str!("../../../../benchmarks/sources/s4.toml")),
    ("redis.toml", include_str!("../../../../benchmarks/sources/redis.toml")),
    ("cassandra.toml", include_str!("../../../../benchmarks/sources/cassandra.toml")),
    ("web.toml", include_str!("../../../../benchmarks/sources/web.toml")),
];

/// Comparisons with a peer instead of documents.
const PEERS: [&str; 3] = ["redis", "cassandra", "web"];

static DOCUMENTS: LazyLock<Vec<Document>> =
    LazyLock::new(|| TEXTS.iter().map(|(name, text)| parse(name, text)).collect());

/// Returns all source documents.
pub(crate) fn documents() -> &'static [Document] {
    &DOCUMENTS
}

/// Parses a built-in file; a test parses all of them.
fn parse(name: &str, text: &str) -> Document {
    toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns all tables of all documents, in order.
pub(crate) fn tables() -> impl Iterator<Item = &'static Table> {
    documents().iter().flat_map(|document| &document.tables)
}

/// One source document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// For example, `s4`.
    #[allow(dead_code, reason = "part of the file, read by tests alone")]
    pub id: String,
    #[allow(dead_code, reason = "part of the file, read by tests alone")]
    pub title: String,
    #[serde(rename = "table")]
    pub tables: Vec<Table>,
}

/// One of its tables, or another requirement (then without rows).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// For example, `s4.t1`.
    pub id: String,
    /// An alternative name.
    pub alias: Option<String>,
    pub title: String,
    #[allow(dead_code, reason = "part of the file, for its readers")]
    pub system: System,
    /// What the table shows.
    pub shows: String,
    /// How to re-run it.
    pub run: Run,
    /// Parameters that are constant in all rows.
    #[serde(default)]
    #[allow(dead_code, reason = "part of the file, read by tests alone")]
    pub fixed: BTreeMap<String, Value>,
    /// Parameters that distinguish rows; without rows, the paths of the grid that distinguish
    /// lines.
    #[serde(default)]
    pub parameters: Vec<String>,
    /// Correspondence of cells and rows: for a path of the grid, the parameters whose product it
    /// is.
    #[serde(default)]
    pub join: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub columns: Vec<Column>,
    /// Our figures without a column in the document.
    #[serde(default)]
    pub ours: Vec<Column>,
    /// Parameters, then columns.
    #[serde(default)]
    pub rows: Vec<Vec<Value>>,
    #[serde(default, rename = "shape")]
    pub shapes: Vec<Shape>,
}

/// The system that a table requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    Resp,
    Log,
    Cql,
    Http,
    Pipeline,
    /// Replication between masters.
    Hub,
}

/// How to re-run a table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Run {
    /// With `benchmarks/definitions/NAME.toml`.
    Definition(String),
    /// Not a measurement, but demonstrated by these commands.
    Tests(Vec<String>),
    /// With this third-party program.
    Compatibility(String),
    /// With CPU profiles of these cells.
    Profile(Vec<ProfiledCell>),
    /// With `myriad-lab ablation NAME`.
    Ablation(String),
    /// With the experiment of this name with `myriad web`.
    Experiment(String),
}

/// A column of figures or of remarks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub name: String,
    /// Empty for remarks.
    #[serde(default)]
    pub unit: String,
    /// Source of our value; `None` while its system does not exist, and for remarks.
    pub figure: Option<Figure>,
    /// The additional load that it refers to.
    #[serde(rename = "beside")]
    pub side_load: Option<String>,
    /// Alternatively, the ratio of the first of these columns to the second.
    pub ratio: Option<[String; 2]>,
    /// Only cells with these parameters.
    #[serde(default, rename = "where")]
    pub cells: BTreeMap<String, Value>,
}

/// A statement about a table, and its expected result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shape {
    #[serde(rename = "says")]
    pub claim: String,
    pub check: Check,
    /// Result in the source: it almost always holds.
    #[serde(default = "holds")]
    #[allow(dead_code, reason = "part of the file, read by tests alone")]
    pub in_source: Truth,
}

fn holds() -> Truth {
    Truth::Holds
}

/// A row of the document: parameters and observed values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceRow {
    pub parameters: BTreeMap<String, Value>,
    /// By column; columns without a number are omitted.
    pub figures: BTreeMap<String, Range>,
    /// The text of its column of remarks.
    pub remark: String,
}

impl Table {
    /// Whether a name selects the table: its name, its alternative name, the name of its document,
    /// or, for tables of source documents, `all`.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let is_alias = self.alias.as_deref() == Some(name);
        let is_all = name == "all" && !PEERS.contains(&self.document());
        self.id == name || is_alias || self.document() == name || is_all
    }

    fn document(&self) -> &str {
        self.id.split('.').next().unwrap_or_default()
    }

    /// Returns the rows with their columns by name.
    pub(crate) fn source_rows(&self) -> Vec<SourceRow> {
        self.rows.iter().map(|row| self.source_row(row)).collect()
    }

    fn source_row(&self, row: &[Value]) -> SourceRow {
        let (parameters, values) = row.split_at(self.parameters.len());
        let parameters = self.parameters.iter().cloned().zip(parameters.iter().cloned()).collect();
        let named = self.columns.iter().zip(values);
        let remarks = named.clone().filter(|(column, _)| column.unit.is_empty());
        let remarks: Vec<&str> = remarks
            .filter_map(|(_, value)| value.as_str())
            .filter(|text| !text.is_empty())
            .collect();
        let figures =
            named.filter_map(|(column, value)| Some((column.name.clone(), range(value)?)));
        SourceRow { parameters, figures: figures.collect(), remark: remarks.join("; ") }
    }

    /// Returns the rows in the format of shapes.
    pub(crate) fn source_points(&self) -> Vec<Point> {
        let rows = self.source_rows().into_iter();
        rows.map(|row| Point { parameters: row.parameters, figures: row.figures }).collect()
    }
}

/// Parses a number or `[lowest, highest]`.
fn range(value: &Value) -> Option<Range> {
    match value {
        Value::Number(number) => number.as_f64().map(Range::exactly),
        Value::Array(ends) => match ends.as_slice() {
            [low, high] => Some(Range { low: low.as_f64()?, high: high.as_f64()? }),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Number of rows in each table that the documents print, counted by hand. For `s2.t3` and
    /// `s2.t4`, the number of measured cells; few of their values are published.
    const ROW_COUNTS: [(&str, usize); 38] = [
        ("s0.t1", 16),
        ("s0.t2", 14),
        ("s0.t3", 10),
        ("s0.t4", 7),
        ("s0.t5", 6),
        ("s0.t6", 2),
        ("s0.t7", 3),
        ("s1.t1", 26),
        ("s1.t2", 13),
        ("s1.t3", 13),
        ("s1.t4", 10),
        ("s1.t5", 18),
        ("s1.t6", 28),
        ("s1.t7", 45),
        ("s2.t1", 39),
        ("s2.t2", 39),
        ("s2.t3", 39),
        ("s2.t4", 15),
        ("s3.d01", 1),
        ("s3.d02", 1),
        ("s3.d03", 1),
        ("s3.d04", 1),
        ("s3.d05", 1),
        ("s3.d06", 1),
        ("s3.d07", 1),
        ("s3.d08", 1),
        ("s3.d09", 1),
        ("s3.d10", 1),
        ("s3.d11", 1),
        ("s3.d12", 1),
        ("s3.d13", 1),
        ("s3.d14", 1),
        ("s3.d15", 1),
        ("s3.d16", 1),
        ("s3.limits", 6),
        ("s4.t1", 9),
        ("s4.t2", 7),
        ("s4.t3", 5),
    ];

    /// `-` is the placeholder for a figure that the document does not contain.
    fn is_figure(value: &Value) -> bool {
        value == "-" || range(value).is_some_and(|range| range.low <= range.high)
    }

    fn table(id: &str) -> &'static Table {
        tables().find(|table| table.id == id).unwrap()
    }

    #[test]
    fn every_table_has_all_its_rows() {
        for (id, count) in ROW_COUNTS {
            assert_eq!(table(id).rows.len(), count, "{id}");
        }
    }

    #[test]
    fn every_row_has_a_value_in_each_column() {
        for table in tables() {
            let width = table.parameters.len() + table.columns.len();
            for row in &table.rows {
                assert_eq!(row.len(), width, "{}: {row:?}", table.id);
                let values = &row[table.parameters.len()..];
                for (column, value) in table.columns.iter().zip(values) {
                    let fits =
                        if column.unit.is_empty() { value.is_string() } else { is_figure(value) };
                    assert!(fits, "{}, {}: {row:?}", table.id, column.name);
                }
            }
        }
    }

    #[test]
    fn no_row_is_there_twice() {
        for table in tables() {
            let parameters = table
                .rows
                .iter()
                .map(|row| serde_json::to_string(&row[..table.parameters.len()]).unwrap());
            let distinct: BTreeSet<String> = parameters.collect();
            assert_eq!(distinct.len(), table.rows.len(), "{}", table.id);
        }
    }

    /// Some values checked by hand, to detect errors in the files.
    #[test]
    fn values_stand_where_the_documents_have_them() {
        let check = |id: &str, index: usize, expected: &str| {
            assert_eq!(serde_json::to_string(&table(id).rows[index]).unwrap(), expected, "{id}");
        };
        check("s0.t1", 4, r#"[16,16,16,80,130000,11,"-",""]"#);
        check("s0.t6", 1, r#"[2,64,16,80,[160000,190000],2,98,""]"#);
        check("s1.t1", 0, r#"[1,1,1,[12000,17000],[0.06,0.09],""]"#);
        check("s1.t5", 4, r#"[16,16,512,[646000,740000],[0.58,0.78],10,"unbalanced"]"#);
        check("s1.t6", 27, "[1,4,256,55700]");
        check("s1.t7", 35, "[1,128,128,17500,20800]");
        check("s2.t1", 3, r#"["serial",10,30444]"#);
        check("s2.t2", 37, r#"["2 workers",2500,179292]"#);
        check("s4.t2", 6, "[15,52364,398]");
    }

    /// The statements are checked with the figures that they refer to.
    #[test]
    fn every_statement_is_true_of_its_source() {
        for table in tables() {
            let points = table.source_points();
            for shape in &table.shapes {
                let found = shape.check.judge(&points);
                assert_eq!(found, shape.in_source, "{}: {}", table.id, shape.claim);
            }
        }
    }

    #[test]
    fn statements_name_columns_that_are_there() {
        for table in tables() {
            let names: BTreeSet<&str> = table
                .columns
                .iter()
                .chain(&table.ours)
                .map(|column| column.name.as_str())
                .collect();
            for shape in &table.shapes {
                for column in shape.check.columns() {
                    assert!(names.contains(column), "{}: {column}", table.id);
                }
            }
        }
    }

    #[test]
    fn every_name_is_there_once_and_belongs_to_its_document() {
        let mut names = BTreeSet::new();
        for document in documents() {
            for table in &document.tables {
                assert!(table.id.starts_with(&format!("{}.", document.id)), "{}", table.id);
                for name in std::iter::once(&table.id).chain(&table.alias) {
                    assert!(names.insert(name), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_table_answers_to_its_names() {
        let profile = table("s4.r1");
        for name in ["s4.r1", "s4.prof", "s4", "all"] {
            assert!(profile.is_called(name), "{name}");
        }
        assert!(!profile.is_called("s4.t1"));
        assert!(!profile.is_called("s"));
        assert!(table("redis.cpu").is_called("redis"));
        assert!(!table("redis.cpu").is_called("all"));
    }
}
