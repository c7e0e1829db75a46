//! Servers and loads on a command line: `this:reactors=1 --connections 50 --pipeline 16`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use crate::command_line::CommandLine;
use crate::definition::Definition;
use crate::load::CqlWork;
use crate::subject::Kind;

/// Help text for [`LoadFlags`] and servers.
pub(crate) const HELP: &str = "\
A server is `this` (myriad, from the folder of this program), redis-server, valkey-server, memcached,
cassandra.sh, web (myriad web), nginx, echo (which echoes its input), or the path of a program of
one of these names or of Myriad.
Options of its command line follow a colon: this:durability=never,reactors=1

Load:
  --load FILE          Load and phases of a definition, without its grid; the flags below are
                       then refused
  --connections N      [50]
  --pipeline N         [1]
  --command WORDS      [SET {key} {value}]; for GET and SET all keys are written first. Over CQL
                       it is a statement [INSERT INTO lab.rows (key, value) VALUES ({key}, {value})],
                       and that table exists, with all keys. Over HTTP it is a method, a target,
                       and a body if there is one [GET /hello]; all keys below /kv/ are there
  --cql                Use CQL, the only protocol of cassandra.sh
  --http               Speak HTTP, as to web and nginx, which know nothing else. These have /hello and
                       /1k.bin, /4k.bin, /64k.bin, /1m.bin
  --close              Over HTTP: a new connection for each request
  --users N            Callers that share the connections, with concurrent requests
                       [one per connection]
  --keys N             [1000000]
  --value-bytes N      [80]
  --cpus-server LIST   Cores of servers, like 0 or 0,2-3 [0]
  --cpus-load LIST     Cores of the load; each has a thread of the generator [1]
";

/// Keys are written in batches of this size before a load that reads them.
const FILL_PIPELINE: i64 = 64;

/// The load and its target.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadFlags {
    file: Option<PathBuf>,
    connections: Option<i64>,
    pipeline: Option<i64>,
    command: Option<String>,
    is_cql: bool,
    is_http: bool,
    closes: bool,
    users: Option<i64>,
    keys: Option<i64>,
    value_bytes: Option<i64>,
    cpus_server: Vec<i64>,
    cpus_load: Vec<i64>,
}

impl Default for LoadFlags {
    fn default() -> Self {
        LoadFlags {
            file: None,
            connections: None,
            pipeline: None,
            command: None,
            is_cql: false,
            is_http: false,
            closes: false,
            users: None,
            keys: None,
            value_bytes: None,
            cpus_server: vec![0],
            cpus_load: vec![1],
        }
    }
}

impl LoadFlags {
    /// Parses the value of flag `--name` if it is one of the load's.
    pub(crate) fn take(&mut self, name: &str, parser: &mut CommandLine<'_>) -> Result<bool> {
        match name {
            "load" => self.file = Some(parser.path()?),
            "connections" => self.connections = Some(parser.value()?),
            "pipeline" => self.pipeline = Some(parser.value()?),
            "command" => self.command = Some(parser.text()?),
            "cql" => self.is_cql = true,
            "http" => self.is_http = true,
            "close" => self.closes = true,
            "users" => self.users = Some(parser.value()?),
            "keys" => self.keys = Some(parser.value()?),
            "value-bytes" => self.value_bytes = Some(parser.value()?),
            "cpus-server" => self.cpus_server = cpus(&parser.text()?).context("--cpus-server")?,
            "cpus-load" => self.cpus_load = cpus(&parser.text()?).context("--cpus-load")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the definition of this load for a server: one cell.
    pub(crate) fn definition(&self, name: &str, server: &ServerWords) -> Result<Definition> {
        let mut table = match &self.file {
            Some(path) => self.table_of_file(path)?,
            None if self.is_http || matches!(server.kind, Kind::Web | Kind::Nginx) => {
                self.table_of_http()
            }
            None => self.table_of_flags(self.is_cql || server.kind == Kind::Cassandra),
        };
        table.insert("name".to_owned(), name.into());
        table.insert("title".to_owned(), format!("lab {name} {}", server.text).into());
        table.insert("subject".to_owned(), self.subject(server)?);
        let load = table.entry("load").or_insert_with(|| Table::new().into());
        let load = load.as_table_mut().context("load must be a table")?;
        load.insert("cpus".to_owned(), self.cpus_load.clone().into());
        let text = toml::to_string(&table).context("could not encode the definition")?;
        Ok(Definition::parse(&text, self.file.as_deref().unwrap_or(Path::new("flags")))?)
    }

    fn subject(&self, server: &ServerWords) -> Result<Value> {
        let mut subject = Table::new();
        let kind =
            Value::try_from(server.kind).context("could not encode the kind of the server")?;
        subject.insert("kind".to_owned(), kind);
        if let Some(binary) = &server.binary {
            subject.insert("binary".to_owned(), binary.clone().into());
        }
        subject.insert("cpus".to_owned(), self.cpus_server.clone().into());
        subject.insert("options".to_owned(), server.options.clone().into());
        Ok(subject.into())
    }

    fn table_of_file(&self, path: &Path) -> Result<Table> {
        let flags = [
            ("--connections", self.connections.is_some()),
            ("--pipeline", self.pipeline.is_some()),
            ("--command", self.command.is_some()),
            ("--cql", self.is_cql),
            ("--http", self.is_http),
            ("--close", self.closes),
            ("--users", self.users.is_some()),
            ("--keys", self.keys.is_some()),
            ("--value-bytes", self.value_bytes.is_some()),
        ];
        if let Some((flag, _)) = flags.iter().find(|(_, is_given)| *is_given) {
            bail!("{flag} and --load cannot be combined");
        }
        // Parse the unmodified file first: its errors have line numbers.
        Definition::read(path)?;
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let mut table: Table = text.parse().with_context(|| path.display().to_string())?;
        for left_out in ["grid", "cell", "source"] {
            table.remove(left_out);
        }
        Ok(table)
    }

    fn table_of_http(&self) -> Table {
        let command = self.command.as_deref().unwrap_or("GET /hello");
        let mut load = Table::new();
        load.insert("protocol".to_owned(), "http".into());
        let connection = if self.closes { "close" } else { "keep-alive" };
        load.insert("http".to_owned(), one("connection", connection.into()));
        if let Some(users) = self.users {
            load.insert("users".to_owned(), users.into());
        }
        load.insert("connections".to_owned(), self.connections.unwrap_or(50).into());
        load.insert("pipeline".to_owned(), self.pipeline.unwrap_or(1).into());
        load.insert("mix".to_owned(), mix(command));
        let keys = self.keys.unwrap_or(1_000_000);
        load.insert("keys".to_owned(), one("count", keys.into()));
        load.insert("value_bytes".to_owned(), one("fixed", self.value_bytes.unwrap_or(80).into()));
        let mut table = Table::new();
        table.insert("load".to_owned(), load.into());
        if command.contains("/kv/{key}") {
            let mut fill = Table::new();
            fill.insert("mix".to_owned(), mix("PUT /kv/{key} {value}"));
            fill.insert("keys".to_owned(), one("distribution", "sequential".into()));
            fill.insert("http".to_owned(), Table::new().into());
            fill.insert("pipeline".to_owned(), FILL_PIPELINE.into());
            table.insert("phase".to_owned(), phase(keys, fill));
        }
        table
    }

    fn table_of_flags(&self, is_cql: bool) -> Table {
        let write = if is_cql { CqlWork::INSERT } else { "SET {key} {value}" };
        let command = self.command.as_deref().unwrap_or(write);
        let is_stored = is_cql
            || ["get", "set"].iter().any(|name| {
                command.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case(name))
            });
        // A statement is one word.
        let mix = |command: &str| if is_cql { operation(&[command]) } else { mix(command) };
        let mut load = Table::new();
        if is_cql {
            load.insert("protocol".to_owned(), "cql".into());
        }
        if let Some(users) = self.users {
            load.insert("users".to_owned(), users.into());
            load.insert("sharing".to_owned(), "multiplexed".into());
        }
        load.insert("connections".to_owned(), self.connections.unwrap_or(50).into());
        load.insert("pipeline".to_owned(), self.pipeline.unwrap_or(1).into());
        load.insert("mix".to_owned(), mix(command));
        let keys = self.keys.unwrap_or(1_000_000);
        load.insert("keys".to_owned(), one("count", keys.into()));
        load.insert("value_bytes".to_owned(), one("fixed", self.value_bytes.unwrap_or(80).into()));
        let mut table = Table::new();
        table.insert("load".to_owned(), load.into());
        if is_stored {
            let mut fill = Table::new();
            fill.insert("mix".to_owned(), mix(write));
            fill.insert("keys".to_owned(), one("distribution", "sequential".into()));
            fill.insert("pipeline".to_owned(), FILL_PIPELINE.into());
            // The batches of all users together would exceed the streams of a connection.
            fill.insert("users".to_owned(), 0.into());
            table.insert("phase".to_owned(), phase(keys, fill));
        }
        table
    }
}

/// Returns one phase that writes all keys.
fn phase(keys: i64, fill: Table) -> Value {
    let mut phase = Table::new();
    phase.insert("operations".to_owned(), keys.into());
    phase.insert("load".to_owned(), fill.into());
    Value::Array(vec![phase.into()])
}

/// Returns a mix of one command, by its words.
fn mix(command: &str) -> Value {
    let words: Vec<&str> = command.split(' ').filter(|word| !word.is_empty()).collect();
    operation(&words)
}

/// Returns a mix of one operation.
fn operation(words: &[&str]) -> Value {
    let words: Vec<Value> = words.iter().map(|word| Value::from(*word)).collect();
    let mut operation = Table::new();
    operation.insert("weight".to_owned(), 1.into());
    operation.insert("words".to_owned(), Value::Array(words));
    Value::Array(vec![operation.into()])
}

fn one(name: &str, value: Value) -> Value {
    Table::from_iter([(name.to_owned(), value)]).into()
}

/// Parses `0,2-3`.
fn cpus(text: &str) -> Result<Vec<i64>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let range = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let (Some(first), Some(last)) = (number(range.0), number(range.1)) else {
            bail!("{text:?} is not a list of cores such as 0 or 0,2-3");
        };
        ensure!(first <= last, "{part:?} is not a range of cores");
        cpus.extend((first..=last).map(i64::from));
    }
    Ok(cpus)
}

/// A server as specified by the user.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerWords {
    /// As on the command line.
    pub(crate) text: String,
    kind: Kind,
    /// `None`: the program built with this one, or the one found on PATH.
    binary: Option<String>,
    options: Table,
}

impl std::str::FromStr for ServerWords {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<ServerWords> {
        let (program, options) = text.split_once(':').unwrap_or((text, ""));
        let file_name = Path::new(program).file_name().and_then(|name| name.to_str());
        let is_path = program.contains('/');
        let (kind, binary) = match file_name.unwrap_or_default() {
            "this" if !is_path => (Kind::Myriad, None),
            name if is_path => (kind_of(name).unwrap_or(Kind::Myriad), Some(program.to_owned())),
            name => match kind_of(name) {
                Some(kind) => (kind, None),
                None => bail!(
                    "{program:?} is not a server: use this, redis-server, valkey-server, memcached, \
                     cassandra.sh, web, nginx, echo, or a path like ./myriad"
                ),
            },
        };
        let pairs = options.split(',').filter(|pair| !pair.is_empty());
        let options: Result<Table> = pairs.map(option).collect();
        Ok(ServerWords { text: text.to_owned(), kind, binary, options: options? })
    }
}

fn kind_of(name: &str) -> Option<Kind> {
    let kinds = [
        Kind::RedisServer,
        Kind::ValkeyServer,
        Kind::Memcached,
        Kind::Cassandra,
        Kind::Web,
        Kind::Nginx,
        Kind::Echo,
    ];
    kinds.into_iter().find(|kind| kind.program() == name)
}

fn option(pair: &str) -> Result<(String, Value)> {
    let Some((name, value)) = pair.split_once('=') else {
        bail!("{pair:?} is not a server option of the form name=value");
    };
    let value = value.parse::<i64>().map_or_else(|_| value.into(), Value::Integer);
    Ok((name.trim_start_matches('-').to_owned(), value))
}

#[cfg(test)]
mod tests {
    use lexopt::Parser;

    use super::*;
    use crate::definition::Cell;
    use crate::load::{HttpConnection, Protocol, Work};

    fn cell(flags: &LoadFlags, server: &str) -> Cell {
        let definition = flags.definition("compare", &server.parse().unwrap()).unwrap();
        let [cell] = definition.cells.as_slice() else { panic!("one cell") };
        cell.clone()
    }

    fn flags(words: &[&str]) -> Result<LoadFlags> {
        let mut parser = Parser::from_args(words);
        let mut parser = CommandLine::new(&mut parser);
        let mut flags = LoadFlags::default();
        while let Some(arg) = parser.next()? {
            let lexopt::Arg::Long(name) = arg else { bail!(arg.unexpected()) };
            let name = name.to_owned();
            ensure!(flags.take(&name, &mut parser)?, "{name} was not recognized");
        }
        Ok(flags)
    }

    #[test]
    fn a_server_is_a_program_and_its_options() {
        let cell = cell(&LoadFlags::default(), "this:durability=never,--reactors=2");
        assert_eq!((cell.subject.kind, cell.subject.binary), (Kind::Myriad, None));
        let options: Vec<String> =
            cell.subject.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(options, ["durability=never", "reactors=2"]);
        assert_eq!((cell.subject.cpus, cell.load.cpus), (vec![0], vec![1]));
    }

    #[test]
    fn a_path_tells_the_kind_by_its_name() {
        let check = |text: &str, kind: Kind, binary: Option<&str>| {
            let words: ServerWords = text.parse().unwrap();
            assert_eq!((words.kind, words.binary.as_deref()), (kind, binary), "{text}");
        };
        check("./old/myriad", Kind::Myriad, Some("./old/myriad"));
        check("/opt/a-build", Kind::Myriad, Some("/opt/a-build"));
        check("/opt/redis-server:io-threads=2", Kind::RedisServer, Some("/opt/redis-server"));
        check("valkey-server", Kind::ValkeyServer, None);
        for text in ["", "mongod", "this:reactors", "redis:port=1"] {
            assert!(text.parse::<ServerWords>().is_err(), "{text}");
        }
    }

    #[test]
    fn flags_make_the_load_and_fill_the_keys() {
        let flags = flags(&[
            "--connections",
            "7",
            "--keys=500",
            "--command",
            "GET {key}",
            "--cpus-load",
            "1,3-4",
        ]);
        let cell = cell(&flags.unwrap(), "redis-server");
        let Work::Socket(work) = &cell.load.work else { panic!("sockets") };
        assert_eq!((work.connections, work.threads, work.keys.count), (7, 3, 500));
        assert_eq!(work.mix[0].words, ["GET", "{key}"]);
        let [fill] = cell.phases.as_slice() else { panic!("one phase") };
        assert_eq!(fill.operations_max, Some(500));
        let Work::Socket(work) = &fill.work else { panic!("sockets") };
        assert_eq!(work.mix[0].words, ["SET", "{key}", "{value}"]);
    }

    #[test]
    fn other_commands_fill_nothing() {
        let flags = flags(&["--command", "SADD s {number}"]).unwrap();
        assert!(cell(&flags, "this").phases.is_empty());
    }

    #[test]
    fn cql_is_spoken_where_it_is_asked_for_and_to_cassandra() {
        let words = ["--cql", "--users", "64", "--connections", "4"];
        for (words, server) in [(&words[..], "this"), (&[], "../peers/cassandra.sh")] {
            let cell = cell(&flags(words).unwrap(), server);
            let Work::Socket(work) = &cell.load.work else { panic!("sockets") };
            assert_eq!((work.protocol, work.mix[0].words.len()), (Protocol::Cql, 1));
            assert_eq!(work.users, if words.is_empty() { 0 } else { 64 });
            let [fill] = cell.phases.as_slice() else { panic!("one phase") };
            let Work::Socket(work) = &fill.work else { panic!("sockets") };
            assert_eq!(work.mix[0].words, [CqlWork::INSERT]);
        }
        let myriad = cell(&flags(&words).unwrap(), "this:reactors=1");
        assert_eq!(myriad.subject.options["cql"].to_string(), "127.0.0.1:0");
        assert!(!cell(&LoadFlags::default(), "this").subject.options.contains_key("cql"));
    }

    #[test]
    fn http_is_spoken_where_it_is_asked_for_and_to_web_servers() {
        let short = cell(&flags(&["--close", "--connections", "9"]).unwrap(), "web:accept=serial");
        let Work::Socket(work) = &short.load.work else { panic!("sockets") };
        assert_eq!((short.subject.kind, work.protocol), (Kind::Web, Protocol::Http));
        assert_eq!(work.mix[0].words, ["GET", "/hello"]);
        let http = work.http.as_deref().unwrap();
        assert_eq!((http.connection, work.connections), (HttpConnection::Close, 9));
        assert!(short.phases.is_empty());
        let rest = flags(&["--http", "--command", "GET /kv/{key}", "--keys", "7"]).unwrap();
        let rest = cell(&rest, "this");
        assert_eq!(rest.subject.options["http"].to_string(), "127.0.0.1:0");
        let [fill] = rest.phases.as_slice() else { panic!("one phase") };
        let Work::Socket(work) = &fill.work else { panic!("sockets") };
        assert_eq!(work.mix[0].words, ["PUT", "/kv/{key}", "{value}"]);
        assert_eq!(cell(&LoadFlags::default(), "nginx").subject.kind, Kind::Nginx);
    }

    #[test]
    fn memcached_is_spoken_to_in_its_own_words() {
        let cell = cell(&LoadFlags::default(), "memcached");
        let Work::Socket(work) = &cell.load.work else { panic!("sockets") };
        assert_eq!((work.protocol, work.mix[0].words[0].as_str()), (Protocol::Memcached, "SET"));
    }

    #[test]
    fn a_file_gives_the_load_without_its_grid() {
        let path = std::env::temp_dir().join(format!("lab-flags-{}.toml", std::process::id()));
        let text = "name = \"x\"\ntitle = \"t\"\n[subject]\nkind = \"redis-server\"\n[load]\n\
                    connections = 9\n[grid]\n\"load.pipeline\" = [1, 2]\n";
        fs::write(&path, text).unwrap();
        let name = path.to_str().unwrap();
        let both = flags(&["--load", name, "--keys", "5"]).unwrap();
        let error = both.definition("compare", &"this".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "--keys and --load cannot be combined");
        let cell = cell(&flags(&["--load", name]).unwrap(), "this");
        assert_eq!(cell.subject.kind, Kind::Myriad);
        let Work::Socket(work) = &cell.load.work else { panic!("sockets") };
        assert_eq!((work.connections, work.pipeline), (9, 1));
        fs::write(&path, text.replace("connections", "conections")).unwrap();
        let error =
            flags(&["--load", name]).unwrap().definition("compare", &"this".parse().unwrap());
        assert!(error.unwrap_err().to_string().contains(":6: unknown field"));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!(cpus("0,2-4").unwrap(), [0, 2, 3, 4]);
        for text in ["", "a", "3-2", "1,", "-1"] {
            assert!(cpus(text).is_err(), "{text}");
        }
    }
}
