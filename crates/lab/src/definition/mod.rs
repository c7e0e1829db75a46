//! An experiment as a file: the servers to start, their load, and the parameters that vary.
//!
//! A definition is TOML. Its grid names paths into the file itself. Each point of the grid is a
//! [`Cell`], created by setting those paths and parsing the file again. A value in a grid is thus
//! checked exactly like one at its path, and errors point to its position.

mod file;
mod grid;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::load::{LoadSpec, Warmup};
use crate::subject::SubjectSpec;

/// Minimum measured phase, regardless of the budget: shorter ones are meaningless.
pub(crate) const CELL_MS_MIN: u64 = 300;
/// Measured phase of a quick run: sufficient for a functional check and a rough rate.
const QUICK_CELL_MS: u64 = 500;
const QUICK_WARMUP_MS_MAX: u64 = 500;
/// Larger grids are probably mistakes.
pub(crate) const CELLS_MAX: usize = 10_000;
/// A grid of the maximum size takes a few lines; our largest file has some kilobytes.
const DEFINITION_BYTES_MAX: u64 = 4 << 20;
pub(crate) const REPEATS_MAX: usize = 1_000;
/// Minimum number of windows per measured phase: fewer are insufficient to judge its stability.
const WINDOWS_MIN: u64 = 10;

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Also the name of the result folder: lowercase letters, digits, `.`, `-` and `_`.
    pub name: String,
    pub title: String,
    /// The table of a source document that this experiment re-runs.
    pub source: Option<String>,
    /// Repeats of each cell.
    pub repeats: usize,
    /// Time limit of the whole run. Measured phases are shortened to fit, down to [`CELL_MS_MIN`].
    pub budget_s: Option<u64>,
    /// In the order of the grid: the first list varies slowest.
    pub cells: Vec<Cell>,
    /// The text of the file.
    pub text: String,
}

/// One point of the grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The values set by the grid, by path: `load.connections`.
    pub parameters: BTreeMap<String, serde_json::Value>,
    pub subject: SubjectSpec,
    /// Loads before the measured one, on the same server.
    pub phases: Vec<LoadSpec>,
    /// The measured load. Addresses and directories are set after the subject has started.
    pub load: LoadSpec,
}

/// An invalid definition.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("could not read {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// An error in the text, with its line, counted from 1.
    #[error("{}:{line}: {reason}", path.display())]
    Wrong { path: PathBuf, line: usize, reason: String },
}

/// Reads a text file with a size limit: it may be an endless device.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(DEFINITION_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > DEFINITION_BYTES_MAX {
        return Err(io::Error::other(format!("larger than {DEFINITION_BYTES_MAX} bytes")));
    }
    Ok(text)
}

impl Definition {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, DefinitionError> {
        let text = read_text(path)
            .map_err(|source| DefinitionError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses a definition; `path` only appears in errors. O(cells) in time and space.
    pub fn parse(text: &str, path: &Path) -> Result<Self, DefinitionError> {
        file::parse(text).map_err(|fault| DefinitionError::Wrong {
            path: path.to_owned(),
            line: line_of(text, fault.at),
            reason: fault.reason,
        })
    }

    /// Reduces the run to one repeat with short phases.
    pub fn make_quick(&mut self) {
        self.repeats = 1;
        self.budget_s = None;
        for cell in &mut self.cells {
            cell.load.warmup = shortened(cell.load.warmup);
            let cell_ms = cell.load.duration_ms.min(QUICK_CELL_MS);
            set_duration(&mut cell.load, cell_ms);
        }
    }

    /// Sets the length of every measured phase.
    pub fn set_cell_ms(&mut self, cell_ms: u64) {
        for cell in &mut self.cells {
            set_duration(&mut cell.load, cell_ms);
        }
    }

    /// Identifies what is measured: rows with another hash belong to another experiment. Title,
    /// repeats, budget and comments do not change it.
    pub fn hash(&self) -> String {
        let content = serde_json::to_vec(&(&self.name, &self.cells))
            .expect("keys are strings, and all numbers are representable in JSON");
        crate::measure::short_hash(&Sha256::digest(content))
    }
}

/// Sets the measured phase, and windows short enough for it.
pub(crate) fn set_duration(load: &mut LoadSpec, duration_ms: u64) {
    load.duration_ms = duration_ms;
    load.window_ms = load.window_ms.min(duration_ms / WINDOWS_MIN).max(1);
}

fn shortened(warmup: Warmup) -> Warmup {
    match warmup {
        Warmup::Fixed { ms } => Warmup::Fixed { ms: ms.min(QUICK_WARMUP_MS_MAX) },
        Warmup::Steady { max_ms } => Warmup::Steady { max_ms: max_ms.min(QUICK_WARMUP_MS_MAX) },
    }
}

/// Returns the line, counted from 1, of the byte at `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::load::{Arrival, Commit, Distribution, LogMode, Sizes, Work};
    use crate::subject::Kind;

    const SMALL: &str = "\
name = \"small\"
title = \"A small one\"

[subject]
kind = \"myriad\"
";

    fn parsed(more: &str) -> Definition {
        Definition::parse(&format!("{SMALL}{more}"), Path::new("a.toml")).unwrap()
    }

    /// Checks that the text after the five lines of [`SMALL`] is refused with this error.
    #[track_caller]
    fn check_fault(more: &str, expected: &str) {
        let error = Definition::parse(&format!("{SMALL}{more}"), Path::new("a.toml"));
        assert_eq!(error.unwrap_err().to_string(), expected);
    }

    fn socket(load: &LoadSpec) -> &crate::load::SocketWork {
        match &load.work {
            Work::Socket(work) => work,
            Work::Append(work) => panic!("{work:?}"),
        }
    }

    fn values(definition: &Definition, parameter: &str) -> Vec<serde_json::Value> {
        definition.cells.iter().map(|cell| cell.parameters[parameter].clone()).collect()
    }

    #[test]
    fn everything_has_a_default() {
        let definition = parsed("");
        assert_eq!((definition.repeats, definition.budget_s), (3, None));
        let [cell] = definition.cells.as_slice() else { panic!("one cell") };
        assert!(cell.parameters.is_empty());
        assert_eq!(cell.subject.kind, Kind::Myriad);
        assert_eq!(cell.load.duration_ms, 3_000);
        assert_eq!(cell.load.warmup, Warmup::Steady { max_ms: 2_000 });
        let work = socket(&cell.load);
        assert_eq!((work.threads, work.connections, work.pipeline), (1, 1, 1));
        assert_eq!(work.mix[0].words, ["SET", "{key}", "{value}"]);
        assert_eq!(work.value_bytes, Sizes::Fixed(80));
    }

    #[test]
    fn cql_has_its_own_write_and_a_place_at_the_server() {
        let definition = parsed("[load]\nprotocol = \"cql\"\n");
        let [cell] = definition.cells.as_slice() else { panic!("one cell") };
        let work = socket(&cell.load);
        assert_eq!(work.mix[0].words, [crate::load::CqlWork::INSERT]);
        assert_eq!(work.cql, Some(Box::default()));
        assert_eq!(cell.subject.options["cql"].to_string(), "127.0.0.1:0");
        let text = "[load]\ncql = { schema = [], consistency = \"quorum\" }\n[grid]\n\
                    \"subject.kind\" = [\"cassandra\"]\n";
        let definition = parsed(text);
        let cell = &definition.cells[0];
        assert_eq!(socket(&cell.load).protocol, crate::load::Protocol::Cql);
        assert!(socket(&cell.load).cql.as_ref().is_some_and(|cql| cql.schema.is_empty()));
        assert!(cell.subject.options.is_empty());
    }

    #[test]
    fn http_is_what_web_servers_speak_and_myriad_where_it_is_asked_to() {
        let text = "[grid]\n\"subject.kind\" = [\"web\", \"nginx\"]\n\
                    \"load.http.connection\" = [\"keep-alive\", \"close\"]\n";
        let definition = parsed(text);
        let work = socket(&definition.cells[3].load);
        assert_eq!(work.protocol, crate::load::Protocol::Http);
        assert_eq!(work.mix[0].words, ["GET", "/hello"]);
        let http = work.http.as_deref().unwrap();
        assert_eq!(http.connection, crate::load::HttpConnection::Close);
        assert!(definition.cells[3].subject.options.is_empty());
        let definition = parsed(
            "[load]\nprotocol = \"http\"\nhttp = { version = \"1.0\", headers = [[\"A\", \"b\"]] }\n",
        );
        let cell = &definition.cells[0];
        assert_eq!(cell.subject.options["http"].to_string(), "127.0.0.1:0");
        let http = socket(&cell.load).http.as_deref().unwrap();
        assert_eq!(http.version, crate::load::HttpVersion::V1_0);
        assert_eq!(http.headers, [("A".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn a_product_varies_its_last_list_fastest() {
        let definition = parsed(
            "[grid]\n\"load.pipeline\" = [1, 16]\n\"load.connections\" = [1, 8, 64]\n\
             \"subject.options.reactors\" = [2]\n",
        );
        assert_eq!(values(&definition, "load.pipeline"), [1, 1, 1, 16, 16, 16]);
        assert_eq!(values(&definition, "load.connections"), [1, 8, 64, 1, 8, 64]);
        let last = &definition.cells[5];
        assert_eq!(socket(&last.load).connections, 64);
        assert_eq!(socket(&last.load).pipeline, 16);
        assert_eq!(last.subject.options["reactors"].to_string(), "2");
    }

    #[test]
    fn zipped_lists_are_walked_together() {
        let definition = parsed(
            "[grid]\nzip = [[\"load.users\", \"load.connections\"]]\n\"load.users\" = [8, 64]\n\
             \"load.pipeline\" = [1, 4]\n\"load.connections\" = [2, 4]\n",
        );
        assert_eq!(values(&definition, "load.users"), [8, 8, 64, 64]);
        assert_eq!(values(&definition, "load.connections"), [2, 2, 4, 4]);
        assert_eq!(values(&definition, "load.pipeline"), [1, 4, 1, 4]);
    }

    #[test]
    fn cells_may_be_written_out_and_crossed_with_a_grid() {
        let definition = parsed(
            "[[cell]]\n\"load.connections\" = 3\n[[cell]]\nload.connections = 5\n\
             load.keys.count = 7\n[grid]\nsubject.kind = [\"myriad\", \"redis-server\"]\n",
        );
        assert_eq!(values(&definition, "load.connections"), [3, 3, 5, 5]);
        assert_eq!(
            values(&definition, "subject.kind")[..2],
            [json!("myriad"), json!("redis-server")]
        );
        assert_eq!(socket(&definition.cells[2].load).keys.count, 7);
        assert_eq!(socket(&definition.cells[2].load).keys.prefix, "key:");
        assert_eq!(definition.cells[3].subject.kind, Kind::RedisServer);
    }

    #[test]
    fn a_grid_replaces_tables_whole() {
        let definition = parsed(
            "[load]\nvalue_bytes = { fixed = 80 }\n[grid]\n\
             \"load.value_bytes\" = [{ fixed = 5 }, { between = [1, 9] }]\n\
             \"load.arrival.open.schedule\" = [\"even\"]\n\
             \"load.arrival.open.per_second\" = [100, 2.5]\n",
        );
        assert_eq!(definition.cells.len(), 4);
        assert_eq!(socket(&definition.cells[2].load).value_bytes, Sizes::Between(1, 9));
        let Arrival::Open { per_second, .. } = socket(&definition.cells[3].load).arrival else {
            panic!("open");
        };
        assert!((per_second - 2.5).abs() < 1e-12);
    }

    #[test]
    fn phases_add_to_the_load_of_their_cell() {
        let definition = parsed(
            "[load]\nkeys = { count = 500 }\nconnections = 9\n[[phase]]\noperations = 500\n\
             load = { keys.distribution = \"sequential\", pipeline = 64 }\n\
             [grid]\n\"load.connections\" = [2, 4]\n",
        );
        let [phase] = definition.cells[1].phases.as_slice() else { panic!("one phase") };
        assert_eq!(phase.operations_max, Some(500));
        assert_eq!(phase.warmup, Warmup::Fixed { ms: 0 });
        let work = socket(phase);
        assert_eq!((work.pipeline, work.connections, work.keys.count), (64, 4, 500));
        assert_eq!(work.keys.distribution, Distribution::Sequential);
        assert_eq!(socket(&definition.cells[1].load).keys.distribution, Distribution::Uniform);
    }

    #[test]
    fn loads_beside_the_first_are_it_but_for_what_they_say() {
        let definition = parsed(
            "[load]\nkeys = { count = 500 }\nconnections = 9\n[beside.writers]\npipeline = 4\n\
             keys.prefix = \"w:\"\n[beside.idlers]\nconnections = 1\n[grid]\n\
             \"beside.writers.connections\" = [2, 3]\n\"load.pipeline\" = [8]\n",
        );
        assert_eq!(values(&definition, "beside.writers.connections"), [2, 3]);
        let side_loads = &definition.cells[1].load.side_loads;
        assert_eq!(side_loads.keys().collect::<Vec<&String>>(), ["idlers", "writers"]);
        let writers = &side_loads["writers"];
        assert_eq!((writers.connections, writers.pipeline), (3, 4));
        assert_eq!((writers.keys.count, writers.keys.prefix.as_str()), (500, "w:"));
        let idlers = &side_loads["idlers"];
        assert_eq!((idlers.connections, idlers.pipeline), (1, 8));
        assert_eq!(socket(&definition.cells[1].load).connections, 9);
        let written_out = parsed("[[cell]]\nbeside.w.keys.count = 7\nbeside.w.pipeline = 2\n");
        let work = &written_out.cells[0].load.side_loads["w"];
        assert_eq!((work.keys.count, work.pipeline), (7, 2));
        assert_eq!(written_out.cells[0].parameters["beside.w.pipeline"], 2);
    }

    #[test]
    fn faults_of_loads_beside_the_first_point_to_their_line() {
        check_fault(
            "[beside.\"a b\"]\n",
            "a.toml:6: names in `beside` must consist of lowercase letters, digits, '-' and '_', not \"a b\"",
        );
        check_fault(
            "[beside.a]\npipeline = 1\ncpus = [0]\n",
            "a.toml:8: a cannot override the cpus of the first load",
        );
        check_fault("[beside.a]\npipeline = 0\n", "a.toml:7: pipeline must be 1 or more");
        check_fault(
            "[[beside]]\npipeline = 1\n",
            "a.toml:6: `beside` requires named tables, such as `[beside.writers]`",
        );
        let text = "name = \"s4\"\ntitle = \"t\"\n[subject]\nkind = \"log\"\n[beside.a]\n";
        let error = Definition::parse(text, Path::new("a.toml")).unwrap_err().to_string();
        assert_eq!(error, "a.toml:5: appends do not support `beside`");
    }

    #[test]
    fn appends_have_their_own_load() {
        let text = "name = \"s4\"\ntitle = \"t\"\n[subject]\nkind = \"log\"\n[load]\n\
                    mode = \"leader-futex\"\nthreads = 15\ncommit = { interval = { ms = 10 } }\n";
        let definition = Definition::parse(text, Path::new("a.toml")).unwrap();
        let Work::Append(work) = &definition.cells[0].load.work else { panic!("appends") };
        assert_eq!((work.mode, work.threads), (LogMode::LeaderFutex, 15));
        assert_eq!(work.commit, Commit::Interval { ms: 10 });
        let error = Definition::parse(&format!("{text}pipeline = 4\n"), Path::new("a.toml"));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("a.toml:9: unknown field `pipeline`"), "{error}");
    }

    #[test]
    fn faults_point_to_their_line() {
        check_fault(
            "cpu = [0]\n",
            "a.toml:6: unknown field `cpu`, expected one of `kind`, \
            `label`, `binary`, `cpus`, `options`, `replicas`, `directory`",
        );
        check_fault("replicas = { count = 9 }\n", "a.toml:4: replicas.count must be 8 or less");
        let text = "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"memcached\"\n\
                    replicas = { count = 1 }\n";
        let error = Definition::parse(text, Path::new("a.toml")).unwrap_err().to_string();
        assert_eq!(error, "a.toml:3: memcached has no replicas");
        check_fault(
            "[load]\nwarmup = 1\n",
            "a.toml:7: unknown field `warmup`, expected one of \
            `cpus`, `seed`, `window_ms`, `operations_max`, `protocol`, `password`, `threads`, \
            `connections`, `users`, `sharing`, `pipeline`, `arrival`, `mix`, `keys`, \
            `value_bytes`, `setup`, `cql`, `http`",
        );
        check_fault(
            "[grids]\n",
            "a.toml:6: unknown field `grids`, expected one of `name`, `title`, \
            `source`, `repeats`, `cell_ms`, `warmup`, `budget_s`, `subject`, `load`, `beside`, `phase`",
        );
        check_fault(
            "[grid]\n\"load.connections\" = [1,\n  \"many\"]\n",
            "a.toml:8: invalid type: string \"many\", expected usize",
        );
        check_fault(
            "[grid]\n\"load.conections\" = [1]\n",
            "a.toml:7: unknown field `conections`, expected one of `cpus`, `seed`, `window_ms`, \
             `operations_max`, `protocol`, `password`, `threads`, `connections`, `users`, \
             `sharing`, `pipeline`, `arrival`, `mix`, `keys`, `value_bytes`, `setup`, `cql`, `http`",
        );
        check_fault(
            "[grid]\n\"name\" = [\"a\"]\n",
            "a.toml:7: a grid cannot set name: it sets subject, load, `beside`, warmup and cell_ms",
        );
        check_fault(
            "[grid]\n\"load.users\" = 3\n",
            "a.toml:7: load.users must be a list of values",
        );
        check_fault("[grid]\n\"load.users\" = []\n", "a.toml:7: load.users has no values");
        check_fault(
            "[grid]\nzip = [[\"load.users\", \"load.pipeline\"]]\n\"load.users\" = [1, 2]\n\
             \"load.pipeline\" = [1]\n",
            "a.toml:7: lists in zip differ in length: load.users has 2 values, \
             load.pipeline has 1",
        );
        check_fault(
            "[grid]\nzip = [[\"load.users\"]]\n",
            "a.toml:7: zip names load.users, which has no list in the grid",
        );
        check_fault(
            "[grid]\nzip = [\"load.users\"]\n\"load.users\" = [1]\n",
            "a.toml:7: zip must contain lists of paths: [[\"load.users\", \"load.connections\"]]",
        );
        check_fault("[[phase]]\n", "a.toml:6: missing field `operations`");
        check_fault("[load]\nconnections = 0\n", "a.toml:7: connections must be 1 or more");
        check_fault("[load]\nmix = []\n", "a.toml:7: mix must not be empty");
    }

    #[test]
    fn faults_of_the_head_point_to_their_line() {
        let check = |text: &str, expected: &str| {
            let error = Definition::parse(text, Path::new("b.toml")).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(
            "name = \"x\"\ntitle = 3\n",
            "b.toml:2: invalid type: integer `3`, expected a string",
        );
        check("name = \"x\"\n", "b.toml:1: missing field `title`");
        check("name = \"x\"\ntitle = \"t\"\n", "b.toml:1: missing table [subject]");
        check(
            "name = \"x\"\ntitle = \"t\"\n[subject]\ncpus = []\n",
            "b.toml:3: missing field `kind`",
        );
        check(
            "name = \"x\"\ntitle = \"t\"\n[subject]\nkind = \"mongo\"\n",
            "b.toml:4: unknown variant `mongo`, expected one of `myriad`, `redis-server`, \
             `valkey-server`, `memcached`, `cassandra`, `web`, `nginx`, `echo`, `log`",
        );
        let rest = "title = \"t\"\n[subject]\nkind = \"myriad\"\n";
        check(
            &format!("name = \"a/b\"\n{rest}"),
            "b.toml:1: name must consist of lowercase letters, digits, '.', '-' and '_', not \"a/b\"",
        );
        check(&format!("name = \"a\"\nrepeats = 0\n{rest}"), "b.toml:2: repeats must be 1 to 1000");
        check("name = ", "b.toml:1: string values must be quoted, expected literal string");
    }

    #[test]
    fn a_file_that_cannot_be_read_has_no_line() {
        let folder = std::env::temp_dir();
        for (path, expected) in [
            (folder.join("no-such-definition.toml"), "No such file or directory (os error 2)"),
            (folder, "Is a directory (os error 21)"),
            ("/dev/zero".into(), "larger than 4194304 bytes"),
        ] {
            let error = anyhow::Error::from(Definition::read(&path).unwrap_err());
            assert_eq!(
                format!("{error:#}"),
                format!("could not read {}: {expected}", path.display())
            );
        }
    }

    #[test]
    fn too_many_cells_are_refused() {
        let many: Vec<String> = (1..=200).map(|number| number.to_string()).collect();
        let many = many.join(", ");
        check_fault(
            &format!("[grid]\n\"load.users\" = [{many}]\n\"load.connections\" = [{many}]\n"),
            "a.toml:6: 40000 cells; at most 10000 are allowed",
        );
    }

    #[test]
    fn the_hash_is_of_what_is_measured() {
        let hash = parsed("").hash();
        assert_eq!(hash, parsed("# a comment\n").hash());
        assert_ne!(hash, parsed("cpus = [1]\n").hash());
        let mut quick = parsed("");
        quick.make_quick();
        assert_ne!(hash, quick.hash());
        assert_eq!(hash.len(), 16);
    }

    #[test]
    fn quick_is_short() {
        let mut definition = parsed("[load]\nwindow_ms = 100\n");
        definition.make_quick();
        assert_eq!(definition.repeats, 1);
        let load = &definition.cells[0].load;
        assert_eq!((load.duration_ms, load.window_ms), (500, 50));
        assert_eq!(load.warmup, Warmup::Steady { max_ms: 500 });
    }
}
