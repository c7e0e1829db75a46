//! What the source documents published, as data: `benchmarks/sources/*.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::figure::Figure;
use super::profiles::ProfiledCell;
use super::shape::{Check, Point, Range, Truth};

/// The documents in their order: name of the file, text.
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

/// No documents: what Myriad is held to beside a peer.
const PEERS: [&str; 3] = ["redis", "cassandra", "web"];

static DOCUMENTS: LazyLock<Vec<Document>> =
    LazyLock::new(|| TEXTS.iter().map(|(name, text)| parse(name, text)).collect());

/// All source documents.
pub fn documents() -> &'static [Document] {
    &DOCUMENTS
}

/// The files are part of the program, and a test reads them all.
fn parse(name: &str, text: &str) -> Document {
    toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// All tables of all documents, in their order.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    documents().iter().flat_map(|document| &document.tables)
}

/// One source document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// `s4`.
    pub id: String,
    pub title: String,
    #[serde(rename = "table")]
    pub tables: Vec<Table>,
}

/// One of its tables, or something else that it asks for (then without rows).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// `s4.t1`.
    pub id: String,
    /// Another name for it.
    pub alias: Option<String>,
    pub title: String,
    pub system: System,
    /// What is to be seen in it.
    pub shows: String,
    /// How it is run again, once its system is there.
    pub run: Option<Run>,
    /// What was the same in all rows.
    #[serde(default)]
    pub fixed: BTreeMap<String, Value>,
    /// What sets rows apart; where there are none, the paths of the grid that set lines apart.
    #[serde(default)]
    pub parameters: Vec<String>,
    /// Which cells of the definition belong to a row: for a path of the grid the parameters whose
    /// product it is.
    #[serde(default)]
    pub join: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub columns: Vec<Column>,
    /// Figures of ours that the document has no column for.
    #[serde(default)]
    pub ours: Vec<Column>,
    /// Parameters, then columns.
    #[serde(default)]
    pub rows: Vec<Vec<Value>>,
    #[serde(default, rename = "shape")]
    pub shapes: Vec<Shape>,
}

/// What must exist before a table can be run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    Resp,
    Log,
    Cql,
    Http,
    Pipeline,
    /// Replication between masters.
    Hub,
}

impl System {
    /// What is missing, in words; `None` when it is there.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            System::Resp | System::Log | System::Cql | System::Http | System::Pipeline => None,
            System::Hub => Some("there is no replication between masters yet"),
        }
    }
}

/// How a table is run again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// By `benchmarks/definitions/NAME.toml`.
    Definition(String),
    /// It is no measurement: these commands show it.
    Tests(Vec<String>),
    /// By this program of somebody else.
    Compatibility(String),
    /// By CPU profiles of these cells.
    Profile(Vec<ProfiledCell>),
    /// By `myriad pipeline ablation NAME`.
    Ablation(String),
    /// By the experiment of this name with `myriad web`.
    Experiment(String),
}

/// A column of figures or of remarks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    /// Empty for remarks.
    #[serde(default)]
    pub unit: String,
    /// Where ours comes from; `None` while its system does not exist, and for remarks.
    pub figure: Option<Figure>,
    /// The load beside the first that it is of.
    pub beside: Option<String>,
    /// Or it is the first of these columns over the second.
    pub ratio: Option<[String; 2]>,
    /// Only cells with these parameters.
    #[serde(default, rename = "where")]
    pub cells: BTreeMap<String, Value>,
}

/// A statement about a table, and what to hold it against.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    pub says: String,
    pub check: Check,
    /// What it is in the source: almost always it holds.
    #[serde(default = "holds")]
    pub in_source: Truth,
}

fn holds() -> Truth {
    Truth::Holds
}

/// A row of the document: what was set, and what was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRow {
    pub parameters: BTreeMap<String, Value>,
    /// By column; columns without a number are left out.
    pub figures: BTreeMap<String, Range>,
    /// The text of its column of remarks.
    pub remark: String,
}

impl Table {
    /// True for its name, its other name, the name of its document, and, for tables of source
    /// documents, `all`.
    pub fn is_called(&self, name: &str) -> bool {
        let is_alias = self.alias.as_deref() == Some(name);
        let is_all = name == "all" && !PEERS.contains(&self.document());
        self.id == name || is_alias || self.document() == name || is_all
    }

    /// Why it cannot be run; `None` when it can be.
    pub fn missing(&self) -> Option<&'static str> {
        if self.run.is_some() { None } else { self.system.missing() }
    }

    fn document(&self) -> &str {
        self.id.split('.').next().unwrap_or_default()
    }

    /// The rows with their columns by name.
    pub fn source_rows(&self) -> Vec<SourceRow> {
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

    /// The rows as shapes see them.
    pub fn source_points(&self) -> Vec<Point> {
        let rows = self.source_rows().into_iter();
        rows.map(|row| Point { parameters: row.parameters, figures: row.figures }).collect()
    }
}

/// A number or `[lowest, highest]`.
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

    /// Rows of each table that the documents print, as counted there. For `s2.t3` and `s2.t4` this
    /// is the number of cells measured; few of their values are published.
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

    /// `-` stands for a figure that the document does not give.
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

    /// A few values by hand, so that a slip in the making of the files shows.
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

    /// The statements are checked against the very figures that they are about.
    #[test]
    fn every_statement_is_true_of_its_source() {
        for table in tables() {
            let points = table.source_points();
            for shape in &table.shapes {
                let found = shape.check.judge(&points);
                assert_eq!(found, shape.in_source, "{}: {}", table.id, shape.says);
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
    fn what_exists_says_how_it_is_run() {
        for table in tables() {
            assert_eq!(table.run.is_some(), table.missing().is_none(), "{}", table.id);
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
