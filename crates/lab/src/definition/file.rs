//! The text of a definition: its keys, their defaults and limits.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::grid::{self, Node, Point};
use super::{Cell, Definition, REPEATS_MAX, set_duration};
use crate::load::{
    AppendWork, Arrival, CONNECTIONS_MAX, Commit, CqlWork, Distribution, HttpWork, Keys, LoadSpec,
    LogMode, Operation, PIPELINE_MAX, Protocol, Sharing, Sizes, SocketWork, THREADS_MAX, WaitFor,
    Warmup, Work,
};
use crate::subject::{Kind, OptionValue, REPLICAS_MAX, SubjectSpec};

/// Limit for a fill phase, which normally ends by its operation count.
const PHASE_MS_MAX: u64 = 600_000;
/// Limit for a load of appends.
const WRITERS_MAX: usize = 10_000;

/// An error, and its byte position in the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn at(at: usize, reason: String) -> Self {
        Self { at, reason }
    }
}

impl From<toml::de::Error> for Fault {
    fn from(error: toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        Self { at, reason: error.message().trim_end().replace('\n', ", ") }
    }
}

/// All keys except `grid` and `cell`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<Load> {
    name: Spanned<String>,
    title: String,
    source: Option<String>,
    #[serde(default = "three")]
    repeats: Spanned<usize>,
    #[serde(default = "three_seconds_ms")]
    cell_ms: Spanned<u64>,
    #[serde(default = "steady")]
    warmup: Warmup,
    budget_s: Option<u64>,
    subject: SubjectSpec,
    load: Load,
    /// By name. Read from the tree, where each is merged with the load.
    #[serde(default, rename = "beside")]
    _side_loads: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    phase: Vec<Phase>,
}

/// Only the head, which determines the kind of load.
#[derive(Debug, Deserialize)]
struct Head {
    kind: Kind,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Phase {
    operations: u64,
    /// Read from the tree, where it is merged with the load of the cell.
    #[serde(default, rename = "load")]
    _load: Option<serde::de::IgnoredAny>,
}

fn three() -> Spanned<usize> {
    Spanned::new(0..0, 3)
}

fn three_seconds_ms() -> Spanned<u64> {
    Spanned::new(0..0, 3_000)
}

fn steady() -> Warmup {
    Warmup::Steady { max_ms: 2_000 }
}

/// `[load]` for a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SocketLoad {
    cpus: Vec<usize>,
    seed: u64,
    window_ms: u64,
    operations_max: Option<u64>,
    /// Default: that of the server.
    protocol: Option<Protocol>,
    password: Option<String>,
    /// Default: one per core of the generator.
    threads: Option<Spanned<usize>>,
    connections: Spanned<usize>,
    users: usize,
    sharing: Sharing,
    pipeline: Spanned<usize>,
    arrival: Arrival,
    /// Default: a write of one key.
    mix: Option<Spanned<Vec<Operation>>>,
    keys: PartialKeys,
    value_bytes: Sizes,
    setup: Vec<Vec<String>>,
    cql: Option<CqlWork>,
    http: Option<HttpWork>,
}

impl Default for SocketLoad {
    fn default() -> Self {
        Self {
            cpus: Vec::new(),
            seed: 1,
            window_ms: 100,
            operations_max: None,
            protocol: None,
            password: None,
            threads: None,
            connections: Spanned::new(0..0, 1),
            users: 0,
            sharing: Sharing::Blocking,
            pipeline: Spanned::new(0..0, 1),
            arrival: Arrival::Closed,
            mix: None,
            keys: PartialKeys::default(),
            value_bytes: Sizes::Fixed(80),
            setup: Vec::new(),
            cql: None,
            http: None,
        }
    }
}

/// A write of one key; for web servers, a small page.
fn write_of(protocol: Protocol) -> Vec<Operation> {
    let words: &[&str] = match protocol {
        Protocol::Cql => &[CqlWork::INSERT],
        Protocol::Http => &["GET", "/hello"],
        _ => &["SET", "{key}", "{value}"],
    };
    vec![Operation { weight: 1.0, words: words.iter().map(ToString::to_string).collect() }]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PartialKeys {
    prefix: String,
    count: u64,
    distribution: Distribution,
}

impl Default for PartialKeys {
    fn default() -> Self {
        Self { prefix: "key:".into(), count: 1_000_000, distribution: Distribution::Uniform }
    }
}

/// `[load]` for `kind = "log"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AppendLoad {
    cpus: Vec<usize>,
    seed: u64,
    window_ms: u64,
    operations_max: Option<u64>,
    mode: LogMode,
    threads: Spanned<usize>,
    record_bytes: usize,
    wait: WaitFor,
    commit: Commit,
}

impl Default for AppendLoad {
    fn default() -> Self {
        Self {
            cpus: Vec::new(),
            seed: 1,
            window_ms: 100,
            operations_max: None,
            mode: LogMode::Lanes,
            threads: Spanned::new(0..0, 1),
            record_bytes: 5,
            wait: WaitFor::Ticket,
            commit: Commit::Written,
        }
    }
}

/// A kind of `[load]` and its translation to a specification.
trait Load: DeserializeOwned {
    /// Translates a load. Warm-up and duration are those of the file.
    fn spec(self, subject: &SubjectSpec, warmup: Warmup) -> Result<LoadSpec, Fault>;

    /// Translates a load of `beside`; `None` if this kind does not support it.
    fn side_load(self, subject: &SubjectSpec) -> Result<Option<SocketWork>, Fault>;
}

impl SocketLoad {
    fn work(self, subject: &SubjectSpec) -> Result<SocketWork, Fault> {
        let threads = self.threads.unwrap_or_else(|| Spanned::new(0..0, self.cpus.len().max(1)));
        let native = match subject.kind {
            Kind::Memcached => Protocol::Memcached,
            Kind::Cassandra => Protocol::Cql,
            Kind::Web | Kind::Nginx => Protocol::Http,
            _ => Protocol::Resp,
        };
        let protocol = self.protocol.unwrap_or(native);
        let mix = self.mix.unwrap_or_else(|| Spanned::new(0..0, write_of(protocol)));
        if mix.get_ref().is_empty() {
            return Err(Fault::at(mix.span().start, "mix must not be empty".into()));
        }
        let keys = self.keys;
        Ok(SocketWork {
            protocol,
            cql: (protocol == Protocol::Cql).then(|| Box::new(self.cql.unwrap_or_default())),
            http: (protocol == Protocol::Http).then(|| Box::new(self.http.unwrap_or_default())),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            password: self.password,
            threads: within("threads", &threads, THREADS_MAX)?,
            connections: within("connections", &self.connections, CONNECTIONS_MAX)?,
            users: self.users,
            sharing: self.sharing,
            pipeline: within("pipeline", &self.pipeline, PIPELINE_MAX)?,
            arrival: self.arrival,
            mix: mix.into_inner(),
            keys: Keys { prefix: keys.prefix, count: keys.count, distribution: keys.distribution },
            value_bytes: self.value_bytes,
            setup: self.setup,
        })
    }
}

impl Load for SocketLoad {
    fn spec(self, subject: &SubjectSpec, warmup: Warmup) -> Result<LoadSpec, Fault> {
        Ok(LoadSpec {
            side_loads: BTreeMap::new(),
            warmup,
            duration_ms: 0,
            operations_max: self.operations_max,
            window_ms: self.window_ms,
            cpus: self.cpus.clone(),
            seed: self.seed,
            work: Work::Socket(self.work(subject)?),
        })
    }

    fn side_load(self, subject: &SubjectSpec) -> Result<Option<SocketWork>, Fault> {
        self.work(subject).map(Some)
    }
}

impl Load for AppendLoad {
    fn spec(self, _: &SubjectSpec, warmup: Warmup) -> Result<LoadSpec, Fault> {
        let work = AppendWork {
            mode: self.mode,
            threads: within("threads", &self.threads, WRITERS_MAX)?,
            record_bytes: self.record_bytes,
            wait: self.wait,
            commit: self.commit,
            directory: PathBuf::new(),
        };
        Ok(LoadSpec {
            work: Work::Append(work),
            side_loads: BTreeMap::new(),
            warmup,
            duration_ms: 0,
            operations_max: self.operations_max,
            window_ms: self.window_ms,
            cpus: self.cpus,
            seed: self.seed,
        })
    }

    fn side_load(self, _: &SubjectSpec) -> Result<Option<SocketWork>, Fault> {
        Ok(None)
    }
}

fn within(name: &str, value: &Spanned<usize>, max: usize) -> Result<usize, Fault> {
    let at = value.span().start;
    match *value.get_ref() {
        0 => Err(Fault::at(at, format!("{name} must be 1 or more"))),
        number if number > max => Err(Fault::at(at, format!("{name} must be {max} or less"))),
        number => Ok(number),
    }
}

/// Deserializes a value of the file, with the position of an error.
pub(super) fn read<T: DeserializeOwned>(node: Node<'_>) -> Result<T, Fault> {
    Ok(T::deserialize(ValueDeserializer::from(node))?)
}

/// Parses the whole text.
pub(super) fn parse(text: &str) -> Result<Definition, Fault> {
    let mut tree = DeTable::parse(text)?.into_inner();
    let cells = tree.remove("cell");
    let grid = tree.remove("grid");
    let points = grid::points(cells.as_ref(), grid.as_ref())?;
    let mut head = None;
    let mut cells = Vec::with_capacity(points.len());
    for point in &points {
        let (definition, cell) = read_cell(&tree, point)?;
        head.get_or_insert(definition);
        cells.push(cell);
    }
    let head = head.expect("axes are never empty, so there is a point");
    Ok(Definition { cells, text: text.to_owned(), ..head })
}

/// Returns the file with the values of one point set: its head, which is the same for all points,
/// and the cell.
fn read_cell<'text>(
    tree: &DeTable<'text>,
    point: &Point<'text>,
) -> Result<(Definition, Cell), Fault> {
    let mut tree = tree.clone();
    grid::set_all(&mut tree, point);
    let Some(subject) = tree.get("subject") else {
        // Report a missing title or a misspelled key in preference.
        return Err(read_file::<SocketLoad>(&tree)
            .err()
            .filter(|fault| !fault.reason.contains("`subject`"))
            .unwrap_or_else(|| Fault::at(0, "missing table [subject]".into())));
    };
    match read::<Head>(subject.clone())?.kind {
        Kind::Log => cell_of::<AppendLoad>(tree, point),
        _ => cell_of::<SocketLoad>(tree, point),
    }
}

fn cell_of<L: Load>(mut tree: DeTable<'_>, point: &Point<'_>) -> Result<(Definition, Cell), Fault> {
    if !tree.contains_key("load") {
        let empty = Spanned::new(0..0, DeValue::Table(DeTable::new()));
        tree.insert(Spanned::new(0..0, "load".into()), empty);
    }
    let file: File<L> = read_file(&tree)?;
    check(&file)?;
    check_replicas(&file.subject)
        .map_err(|reason| Fault::at(tree["subject"].span().start, reason))?;
    let mut phases = Vec::with_capacity(file.phase.len());
    for (index, phase) in file.phase.iter().enumerate() {
        phases.push(phase_spec::<L>(&tree, index, phase, &file.subject)?);
    }
    let mut load = file.load.spec(&file.subject, file.warmup)?;
    load.side_loads = side_loads::<L>(&tree, &file.subject)?;
    set_duration(&mut load, file.cell_ms.into_inner());
    let mut subject = file.subject;
    add_addresses(&mut subject, &load);
    let cell = Cell { parameters: grid::parameters(point)?, subject, phases, load };
    let definition = Definition {
        name: file.name.into_inner(),
        title: file.title,
        source: file.source,
        repeats: file.repeats.into_inner(),
        budget_s: file.budget_s,
        cells: Vec::new(),
        text: String::new(),
    };
    Ok((definition, cell))
}

/// Configures the addresses of a Myriad that is loaded over CQL or HTTP.
fn add_addresses(subject: &mut SubjectSpec, load: &LoadSpec) {
    if subject.kind != Kind::Myriad {
        return;
    }
    for (protocol, option) in [(Protocol::Cql, "cql"), (Protocol::Http, "http")] {
        let speaks = |work: &SocketWork| work.protocol == protocol;
        let first = matches!(&load.work, Work::Socket(work) if speaks(work));
        if first || load.side_loads.values().any(speaks) {
            let any = OptionValue::Text("127.0.0.1:0".into());
            subject.options.entry(option.to_owned()).or_insert(any);
        }
    }
}

fn read_file<L: DeserializeOwned>(tree: &DeTable<'_>) -> Result<File<L>, Fault> {
    read(Spanned::new(0..0, DeValue::Table(tree.clone())))
}

fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c))
}

fn check<L>(file: &File<L>) -> Result<(), Fault> {
    let name = file.name.get_ref();
    if name.is_empty() || name.starts_with('.') || !is_plain(name) {
        let reason = format!(
            "name must consist of lowercase letters, digits, '.', '-' and '_', not {name:?}"
        );
        return Err(Fault::at(file.name.span().start, reason));
    }
    if !(1..=REPEATS_MAX).contains(file.repeats.get_ref()) {
        let reason = format!("repeats must be 1 to {REPEATS_MAX}");
        return Err(Fault::at(file.repeats.span().start, reason));
    }
    if *file.cell_ms.get_ref() == 0 {
        return Err(Fault::at(file.cell_ms.span().start, "cell_ms must be 1 or more".into()));
    }
    Ok(())
}

fn check_replicas(subject: &SubjectSpec) -> Result<(), String> {
    let count = subject.replicas.count;
    if count > REPLICAS_MAX {
        return Err(format!("replicas.count must be {REPLICAS_MAX} or less"));
    }
    if count > 0 && !subject.kind.replicates() {
        return Err(format!("{} has no replicas", subject.kind));
    }
    Ok(())
}

/// Keys that a load of `beside` cannot override, because they apply to the whole generator.
const OF_THE_FIRST: [&str; 4] = ["cpus", "seed", "window_ms", "operations_max"];

/// Returns the loads of `beside`: each is the load of the cell, overridden by its own keys.
fn side_loads<L: Load>(
    tree: &DeTable<'_>,
    subject: &SubjectSpec,
) -> Result<BTreeMap<String, SocketWork>, Fault> {
    let Some(side_loads) = tree.get("beside") else { return Ok(BTreeMap::new()) };
    let Some(tables) = side_loads.get_ref().as_table() else {
        let reason = "`beside` requires named tables, such as `[beside.writers]`".into();
        return Err(Fault::at(side_loads.span().start, reason));
    };
    let mut works = BTreeMap::new();
    for (name, own) in tables {
        let (at, name) = (name.span().start, name.get_ref().as_ref());
        if name.is_empty() || name.contains('.') || !is_plain(name) {
            let reason = format!(
                "names in `beside` must consist of lowercase letters, digits, '-' and '_', not {name:?}"
            );
            return Err(Fault::at(at, reason));
        }
        let not_its_own = own
            .get_ref()
            .as_table()
            .and_then(|own| own.keys().find(|key| OF_THE_FIRST.contains(&key.get_ref().as_ref())));
        if let Some(key) = not_its_own {
            let reason = format!("{name} cannot override the {} of the first load", key.get_ref());
            return Err(Fault::at(key.span().start, reason));
        }
        let mut load = tree.get("load").cloned().expect("inserted above");
        lay_over(load.get_mut(), own.get_ref());
        let Some(work) = read::<L>(load)?.side_load(subject)? else {
            return Err(Fault::at(at, "appends do not support `beside`".into()));
        };
        works.insert(name.to_owned(), work);
    }
    Ok(works)
}

/// Returns the load of the cell, overridden by the keys of the phase.
fn phase_spec<L: Load>(
    tree: &DeTable<'_>,
    index: usize,
    phase: &Phase,
    subject: &SubjectSpec,
) -> Result<LoadSpec, Fault> {
    let mut load = tree.get("load").cloned().expect("inserted above");
    let phases = tree.get("phase").and_then(|node| node.get_ref().as_array());
    let own = phases.and_then(|phases| phases.get(index)?.get_ref().get("load"));
    if let Some(own) = own {
        lay_over(load.get_mut(), own.get_ref());
    }
    let mut spec = read::<L>(load)?.spec(subject, Warmup::Fixed { ms: 0 })?;
    set_duration(&mut spec, PHASE_MS_MAX);
    spec.operations_max = Some(phase.operations);
    Ok(spec)
}

/// Overrides key by key; of nested tables, only `keys` is merged rather than replaced.
fn lay_over<'text>(load: &mut DeValue<'text>, own: &DeValue<'text>) {
    let (DeValue::Table(load), DeValue::Table(own)) = (load, own) else { return };
    for (key, value) in own {
        let word = key.get_ref().as_ref();
        if word == "keys"
            && let Some(keys) = load.get_mut(word)
        {
            lay_over(keys.get_mut(), value.get_ref());
            continue;
        }
        load.remove(word);
        load.insert(key.clone(), value.clone());
    }
}
