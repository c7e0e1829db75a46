//! The `myriad` program: parses the command line and runs the command.
//!
//! Exit status: 0 success, 1 failure, 2 wrong command line or configuration. It is not a failure if
//! the reader of the output closes it early (`myriad log dump DIR | head`).
#![forbid(unsafe_code)]

mod commands;
mod completion;
mod manual;
mod storage;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use base::causes::with_causes;
use base::usage::UsageError;
use lexopt::{Arg, Parser, ValueExt as _};
use server::backup::{self, Backup, Begin, ClientTls, Until};
use server::config::{self, Arguments, ArgumentsError, Config, Environment, MasterAddress};
use server::import::cassandra::{self, CassandraImport};
use server::import::live::{self, LiveImport, Onto};
use server::import::{Losses, Place};
use server::logtool::{self, Follow};
use server::restore::{self, Target};
use server::{config_check, doctor, repair, upgrade};
use storage::{Access, BackupPlace};

use crate::commands::SHELLS;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VERSION: &str = concat!("myriad ", env!("CARGO_PKG_VERSION"), "\n");

/// A parsed command line.
#[derive(Debug)]
enum Command {
    /// Prints a text and exits.
    Print(String),
    Serve(Box<Config>),
    Doctor(Box<Config>),
    ConfigCheck {
        file: PathBuf,
        environment: Environment,
    },
    LogDump {
        dir: PathBuf,
        from: Option<u64>,
    },
    LogTail {
        dir: PathBuf,
        from: Option<u64>,
        follow: Follow,
    },
    LogVerify {
        dir: PathBuf,
    },
    LogRepair {
        dir: PathBuf,
        mode: repair::Mode,
    },
    Import {
        from: PathBuf,
        dir: PathBuf,
        losses: Losses,
    },
    LiveImport(LiveImport),
    LiveVerify {
        source: Place,
        target: Place,
    },
    CassandraImport(CassandraImport),
    CassandraVerify(CassandraImport),
    Export {
        dir: PathBuf,
        to: PathBuf,
    },
    Backup {
        backup: Backup,
        place: BackupPlace,
    },
    Restore {
        place: BackupPlace,
        /// `None`: only check the backup.
        to: Option<PathBuf>,
        target: Target,
    },
    UpgradeCheck {
        dir: PathBuf,
    },
    WriteManual {
        dir: PathBuf,
    },
    /// The pipeline parses the rest of the command line itself.
    Pipeline,
    /// The web server parses the rest of the command line itself.
    Web,
}

fn main() -> ExitCode {
    ExitCode::from(status(&mut Parser::from_env(), Environment::of(std::env::vars_os())))
}

/// Runs the command on the command line. Returns the exit status.
fn status(parser: &mut Parser, environment: Environment) -> u8 {
    let command = match parse(parser, environment) {
        Ok(command) => command,
        Err(error) => {
            complain(&error.to_string());
            return 2;
        }
    };
    match run(command, parser) {
        Ok(()) => 0,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) if error.is::<lexopt::Error>() || error.is::<UsageError>() => {
            complain(&error.to_string());
            2
        }
        Err(error) => {
            complain(&with_causes(&*error));
            1
        }
    }
}

fn run(command: Command, parser: &mut Parser) -> anyhow::Result<()> {
    match command {
        Command::Print(text) => {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            Ok(out.flush()?)
        }
        Command::Serve(config) => server::serve(*config),
        Command::Doctor(config) => doctor::examine(&config, &mut io::stdout().lock()),
        Command::ConfigCheck { file, environment } => {
            config_check::check(&file, &environment, &mut io::stdout().lock())
        }
        Command::LogDump { dir, from } => logtool::dump(&dir, from),
        Command::LogTail { dir, from, follow } => logtool::tail(&dir, from, follow),
        Command::LogVerify { dir } => logtool::verify(&dir),
        Command::LogRepair { dir, mode } => repair::repair(&dir, mode, &mut io::stdout().lock()),
        Command::Import { from, dir, losses } => {
            server::import::import(&from, &dir, losses, &mut io::stdout().lock())
        }
        Command::LiveImport(import) => live::import(&import, &mut io::stdout().lock()),
        Command::LiveVerify { source, target } => {
            live::verify(&source, &target, &mut io::stdout().lock())
        }
        Command::CassandraImport(import) => cassandra::import(&import, &mut io::stdout().lock()),
        Command::CassandraVerify(import) => cassandra::verify(&import, &mut io::stdout().lock()),
        Command::Export { dir, to } => server::export::export(&dir, &to, &mut io::stdout().lock()),
        Command::Backup { backup, place } => {
            let storage = place.open(Access::Write);
            storage.and_then(|storage| backup::take(&backup, &*storage, &mut io::stdout().lock()))
        }
        Command::Restore { place, to, target } => {
            place.open(Access::Read).and_then(|storage| match to {
                Some(to) => restore::restore(&*storage, &to, target, &mut io::stdout().lock()),
                None => restore::verify(&*storage, target, &mut io::stdout().lock()),
            })
        }
        Command::UpgradeCheck { dir } => upgrade::check(&dir, &mut io::stdout().lock()),
        Command::WriteManual { dir } => manual::write(&dir),
        Command::Web => web::run(parser),
        Command::Pipeline => pipeline::run(parser),
    }
}

fn parse(parser: &mut Parser, environment: Environment) -> Result<Command, ArgumentsError> {
    let print = |text: &str| Ok(Command::Print(text.to_owned()));
    match parser.next()? {
        None => Err(usage("missing command")),
        Some(Arg::Short('h') | Arg::Long("help")) => print(&commands::help()),
        Some(Arg::Short('V') | Arg::Long("version")) => print(VERSION),
        Some(Arg::Value(name)) => match name.to_str() {
            Some("serve") => parse_serve(parser, environment),
            Some("hub") => parse_hub(parser, environment),
            Some("doctor") => parse_doctor(parser, environment),
            Some("log") => parse_log(parser),
            Some("import") => parse_import(parser),
            Some("export") => parse_export(parser),
            Some("backup") => parse_backup(parser),
            Some("restore") => parse_restore(parser),
            Some("pipeline") => Ok(Command::Pipeline),
            Some("web") => Ok(Command::Web),
            Some("config") => parse_config(parser, environment),
            Some("commands") => parse_document(parser, "commands", server::commands_markdown),
            Some("cql") => parse_document(parser, "cql", cql::markdown),
            Some("upgrade") => parse_upgrade(parser),
            Some("completion") => parse_completion(parser),
            Some("man") => parse_man(parser),
            Some("help") => print(&commands::help()),
            Some("version") => print(VERSION),
            _ => Err(usage(&format!("unknown command {}", name.display()))),
        },
        Some(other) => Err(other.unexpected().into()),
    }
}

fn parse_serve(parser: &mut Parser, environment: Environment) -> Result<Command, ArgumentsError> {
    Ok(match config::parse_arguments(parser, environment)? {
        Arguments::Help => Command::Print(commands::help_of("serve")),
        Arguments::Serve(config) => Command::Serve(config),
    })
}

fn parse_doctor(parser: &mut Parser, environment: Environment) -> Result<Command, ArgumentsError> {
    Ok(match config::parse_arguments(parser, environment)? {
        Arguments::Help => Command::Print(commands::help_of("doctor")),
        Arguments::Serve(config) => Command::Doctor(config),
    })
}

/// A server that relays what several masters write.
fn parse_hub(parser: &mut Parser, environment: Environment) -> Result<Command, ArgumentsError> {
    let mut command = parse_serve(parser, environment)?;
    match &mut command {
        Command::Serve(config) => {
            config.take_argument("hub", "yes")?;
            config.validate()?;
        }
        help => *help = Command::Print(commands::help_of("hub")),
    }
    Ok(command)
}

fn parse_log(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let mut words = Vec::new();
    let mut from = None;
    let mut follow = Follow::No;
    let mut mode = repair::Mode::Try;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Command::Print(commands::help_of("log")));
            }
            Arg::Long("from") => {
                let lsn = parser.value()?;
                let lsn = lsn.to_str().and_then(|text| text.parse().ok());
                from = Some(lsn.ok_or_else(|| usage("--from requires an LSN, a byte position"))?);
            }
            Arg::Long("follow") => follow = Follow::Yes,
            Arg::Long("apply") => mode = repair::Mode::Apply,
            Arg::Value(word) if words.len() < 2 => words.push(word),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut words = words.into_iter();
    let (action, dir) = (words.next(), words.next().map(PathBuf::from));
    let action = action.as_ref().and_then(|word| word.to_str());
    match (action, dir, from) {
        (Some("dump" | "verify" | "repair"), _, _) if follow == Follow::Yes => {
            Err(usage("--follow is an option of log tail only"))
        }
        (Some("dump" | "tail" | "verify"), _, _) if mode == repair::Mode::Apply => {
            Err(usage("--apply is an option of log repair only"))
        }
        (Some("dump"), Some(dir), from) => Ok(Command::LogDump { dir, from }),
        (Some("tail"), Some(dir), from) => Ok(Command::LogTail { dir, from, follow }),
        (Some("verify"), Some(dir), None) => Ok(Command::LogVerify { dir }),
        (Some("repair"), Some(dir), None) => Ok(Command::LogRepair { dir, mode }),
        (Some("verify" | "repair"), Some(_), Some(_)) => {
            Err(usage("--from is an option of log dump and log tail only"))
        }
        (Some("dump" | "tail" | "verify" | "repair"), None, _) => {
            Err(usage("missing directory of the log"))
        }
        _ => Err(usage("myriad log requires dump, tail, verify or repair, and DIR")),
    }
}

fn parse_import(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let (mut from, mut dir, mut to, mut losses) = (None, None, None, Losses::Refuse);
    let (mut onto, mut until, mut verifies) = (Onto::Empty, live::Until::Stopped, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Command::Print(commands::help_of("import")));
            }
            Arg::Long("dir") => dir = Some(PathBuf::from(parser.value()?)),
            Arg::Long("partial") => losses = Losses::Accept,
            Arg::Long("to") => to = Some(parser.value()?.string()?),
            Arg::Long("merge") => onto = Onto::Merge,
            Arg::Long("once") => until = live::Until::CaughtUp,
            Arg::Long("verify") => verifies = true,
            Arg::Value(path) if from.is_none() => from = Some(path),
            other => return Err(other.unexpected().into()),
        }
    }
    let from = from.ok_or_else(|| usage("missing file or server to import"))?;
    let is_plain = onto == Onto::Empty && until == live::Until::Stopped;
    match (from.to_str().filter(|from| Place::is_url(from)), to, dir) {
        (Some(source), Some(target), None) if Place::is_cassandra(source) => {
            if !is_plain {
                return Err(usage("--once and --merge are options of an import from Redis"));
            }
            let (source, keyspace) = cassandra_place(source, "MYRIAD_SOURCE_PASSWORD")?;
            let (target, path) = cassandra_place(&target, "MYRIAD_PASSWORD")?;
            if path.is_some() {
                return Err(usage("the keyspaces of the target have the names of the source"));
            }
            let import = CassandraImport { source, keyspace, target, losses };
            match verifies {
                true if losses == Losses::Accept => {
                    Err(usage("--verify allows no other options than --to"))
                }
                true => Ok(Command::CassandraVerify(import)),
                false => Ok(Command::CassandraImport(import)),
            }
        }
        (Some(source), Some(target), None) => {
            let source = place(source, "MYRIAD_SOURCE_PASSWORD")?;
            let target = place(&target, "MYRIAD_PASSWORD")?;
            match verifies {
                true if is_plain && losses == Losses::Refuse => {
                    Ok(Command::LiveVerify { source, target })
                }
                true => Err(usage("--verify allows no other options than --to")),
                false => {
                    Ok(Command::LiveImport(LiveImport { source, target, losses, onto, until }))
                }
            }
        }
        (Some(_), ..) => Err(usage("an import from a server requires --to HOST:PORT")),
        (None, None, Some(dir)) if is_plain && !verifies => {
            Ok(Command::Import { from: PathBuf::from(from), dir, losses })
        }
        (None, ..) => Err(usage("an import from a file requires --dir DIR, a new directory")),
    }
}

/// The server at an address. Without a password there, that in the environment is used.
fn place(text: &str, variable: &str) -> Result<Place, ArgumentsError> {
    with_password(Place::parse(text).map_err(usage)?, variable)
}

/// The same for a server of CQL, and the keyspace.
fn cassandra_place(text: &str, variable: &str) -> Result<(Place, Option<String>), ArgumentsError> {
    let (place, keyspace) = Place::parse_cassandra(text).map_err(usage)?;
    Ok((with_password(place, variable)?, keyspace))
}

fn with_password(mut place: Place, variable: &str) -> Result<Place, ArgumentsError> {
    place.password = place.password.or_else(|| std::env::var(variable).ok());
    if place.password.is_none() && !place.user.is_empty() {
        return Err(usage(&format!("the user {} requires a password: {variable}", place.user)));
    }
    Ok(place)
}

fn parse_export(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let mut paths = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Command::Print(commands::help_of("export")));
            }
            Arg::Value(path) if paths.len() < 2 => paths.push(PathBuf::from(path)),
            other => return Err(other.unexpected().into()),
        }
    }
    match <[PathBuf; 2]>::try_from(paths) {
        Ok([dir, to]) => Ok(Command::Export { dir, to }),
        Err(_) => Err(usage("myriad export requires DIR FILE")),
    }
}

fn parse_backup(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let (mut source, mut place, mut user) = (None, None, String::new());
    let (mut keep, mut tls) = (None, ClientTls::default());
    let mut password = std::env::var("MYRIAD_PASSWORD").ok();
    let (mut begin, mut until) = (Begin::Continue, Until::Reached);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Command::Print(commands::help_of("backup")));
            }
            Arg::Long("to") => place = Some(parser.value()?.into()),
            Arg::Long("full") => begin = Begin::Full,
            Arg::Long("keep") => keep = Some(parser.value()?.parse()?),
            Arg::Long("tls-ca-cert-file") => tls.authorities = parser.value()?.into(),
            Arg::Long("tls-cert-file") => tls.certificate = parser.value()?.into(),
            Arg::Long("tls-key-file") => tls.key = parser.value()?.into(),
            Arg::Long("follow") => until = Until::Stopped,
            Arg::Long("user") => user = parser.value()?.string()?,
            Arg::Long("password-file") => {
                let path = PathBuf::from(parser.value()?);
                let text = std::fs::read_to_string(&path);
                let text = text.map_err(|error| {
                    usage(&format!("could not read {}: {error}", path.display()))
                })?;
                password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            Arg::Value(place) if source.is_none() => source = Some(address(&place)?),
            other => return Err(other.unexpected().into()),
        }
    }
    if !user.is_empty() && password.is_none() {
        return Err(usage("--user requires --password-file or MYRIAD_PASSWORD"));
    }
    let has = |path: &PathBuf| !path.as_os_str().is_empty();
    if has(&tls.certificate) != has(&tls.key) || has(&tls.key) && !has(&tls.authorities) {
        return Err(usage(
            "--tls-cert-file and --tls-key-file require each other and --tls-ca-cert-file",
        ));
    }
    let tls = has(&tls.authorities).then_some(tls);
    match (source, place) {
        (Some(source), Some(place)) => {
            let backup = Backup { source, user, password, tls, begin, until, keep };
            Ok(Command::Backup { backup, place })
        }
        _ => Err(usage("myriad backup requires HOST:PORT and --to DIR")),
    }
}

/// Parses HOST:PORT; an IPv6 address may be in brackets.
fn address(place: &OsStr) -> Result<MasterAddress, ArgumentsError> {
    let parts = place.to_str().and_then(|text| text.rsplit_once(':'));
    let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let parts = parts.filter(|(host, port)| !host.is_empty() && *port != 0);
    let (host, port) = parts.ok_or_else(|| usage("the address of a server is HOST:PORT"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok(MasterAddress { host: host.to_owned(), port })
}

fn parse_restore(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let (mut place, mut to, mut target, mut verifies) = (None, None, Target::End, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Command::Print(commands::help_of("restore")));
            }
            Arg::Long("to") => to = Some(PathBuf::from(parser.value()?)),
            Arg::Long("verify") => verifies = true,
            Arg::Long("until") => {
                let until = parser.value()?.to_str().and_then(Target::parse);
                target = until.ok_or_else(|| {
                    usage("--until requires a position, or a time such as 2026-11-24T15:04:05Z")
                })?;
            }
            Arg::Value(from) if place.is_none() => place = Some(from.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    match (place, verifies == to.is_none()) {
        (Some(place), true) => Ok(Command::Restore { place, to, target }),
        _ => Err(usage("myriad restore requires DIR and either --to DATA-DIR or --verify")),
    }
}

fn parse_config(parser: &mut Parser, environment: Environment) -> Result<Command, ArgumentsError> {
    let command = match parser.next()? {
        Some(Arg::Short('h') | Arg::Long("help")) => {
            return Ok(Command::Print(commands::help_of("config")));
        }
        Some(Arg::Long("markdown")) => Command::Print(config::markdown()),
        Some(Arg::Value(action)) if action == "check" => match parser.next()? {
            Some(Arg::Short('h') | Arg::Long("help")) => {
                return Ok(Command::Print(commands::help_of("config")));
            }
            Some(Arg::Value(file)) => {
                Command::ConfigCheck { file: PathBuf::from(file), environment }
            }
            Some(other) => return Err(other.unexpected().into()),
            None => return Err(usage("missing configuration file")),
        },
        Some(other) => return Err(other.unexpected().into()),
        None => return Err(usage("myriad config requires check FILE or --markdown")),
    };
    match parser.next()? {
        None => Ok(command),
        Some(extra) => Err(extra.unexpected().into()),
    }
}

fn parse_upgrade(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let mut dir = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => {
                return Ok(Command::Print(commands::help_of("upgrade")));
            }
            Arg::Long("check") if dir.is_none() => dir = Some(PathBuf::from(parser.value()?)),
            other => return Err(other.unexpected().into()),
        }
    }
    let dir = dir.ok_or_else(|| usage("myriad upgrade requires --check DIR"))?;
    Ok(Command::UpgradeCheck { dir })
}

fn parse_completion(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let missing = || usage(&format!("myriad completion requires a shell: {}", SHELLS.join(", ")));
    Ok(match only_operand(parser)? {
        Operand::Help => Command::Print(commands::help_of("completion")),
        Operand::Value(shell) => {
            let script = shell.to_str().and_then(completion::script);
            Command::Print(script.ok_or_else(missing)?)
        }
        Operand::Missing => return Err(missing()),
    })
}

fn parse_man(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    Ok(match only_operand(parser)? {
        Operand::Help => Command::Print(commands::help_of("man")),
        Operand::Value(dir) => Command::WriteManual { dir: PathBuf::from(dir) },
        Operand::Missing => return Err(usage("myriad man requires DIR")),
    })
}

/// The argument of a command without options.
enum Operand {
    Help,
    Value(OsString),
    Missing,
}

fn only_operand(parser: &mut Parser) -> Result<Operand, ArgumentsError> {
    let operand = match parser.next()? {
        Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Operand::Help),
        Some(Arg::Value(value)) => Operand::Value(value),
        Some(other) => return Err(other.unexpected().into()),
        None => return Ok(Operand::Missing),
    };
    match parser.next()? {
        None => Ok(operand),
        Some(extra) => Err(extra.unexpected().into()),
    }
}

/// Parses `--markdown`, which prints a document generated from a table, or `--help`.
fn parse_document(
    parser: &mut Parser,
    name: &str,
    markdown: fn() -> String,
) -> Result<Command, ArgumentsError> {
    let command = match parser.next()? {
        Some(Arg::Short('h') | Arg::Long("help")) => {
            return Ok(Command::Print(commands::help_of(name)));
        }
        Some(Arg::Long("markdown")) => Command::Print(markdown()),
        Some(other) => return Err(other.unexpected().into()),
        None => return Err(usage(&format!("myriad {name} requires --markdown"))),
    };
    match parser.next()? {
        None => Ok(command),
        Some(extra) => Err(extra.unexpected().into()),
    }
}

fn usage(text: &str) -> ArgumentsError {
    ArgumentsError::Usage(format!("{text}; see myriad --help").into())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints an error. If standard error is closed, the message is lost.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "myriad: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Command, String> {
        parse(&mut Parser::from_args(arguments), Environment::default())
            .map_err(|error| error.to_string())
    }

    fn check_fault(arguments: &[&str], expected: &str) {
        assert_eq!(parsed(arguments).unwrap_err(), expected, "{arguments:?}");
    }

    #[test]
    fn every_command_has_help() {
        for (arguments, part) in [
            (&["--help"][..], "\n  serve               Serve"),
            (&["help"], "\n  log dump            Print"),
            (&["serve", "--help"], "--maxmemory <bytes> [0]"),
            (&["log", "--help"], "--from LSN"),
            (&["log", "dump", "-h"], "--from LSN"),
            (&["import", "--help"], "--partial"),
            (&["export", "--help"], "RDB file"),
            (&["backup", "--help"], "--password-file FILE"),
            (&["restore", "--help"], "--verify"),
            (&["config", "--help"], "docs/reference/config.md"),
            (&["doctor", "--help"], "open files"),
            (&["config", "check", "--help"], "docs/reference/config.md"),
            (&["config", "--markdown"], "# Configuration"),
            (&["commands", "--help"], "docs/reference/commands.md"),
            (&["commands", "--markdown"], "# Commands"),
            (&["hub", "--help"], "docs/operate/hub.md"),
            (&["upgrade", "--help"], "--check <DIR>"),
            (&["completion", "-h"], "bash|zsh|fish"),
            (&["completion", "bash"], "complete -F _myriad myriad"),
            (&["man", "--help"], "DIR/man1"),
            (&["--version"], env!("CARGO_PKG_VERSION")),
            (&["version"], env!("CARGO_PKG_VERSION")),
        ] {
            match parsed(arguments) {
                Ok(Command::Print(text)) => assert!(text.contains(part), "{text}"),
                other => panic!("{arguments:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn commands_parse_their_arguments() {
        match parsed(&["serve", "--hz", "20"]) {
            Ok(Command::Serve(config)) => assert_eq!(config.settings().hz, 20),
            other => panic!("{other:?}"),
        }
        match parsed(&["log", "dump", "data", "--from", "4096"]) {
            Ok(Command::LogDump { dir, from }) => {
                assert_eq!((dir, from), (PathBuf::from("data"), Some(4_096)));
            }
            other => panic!("{other:?}"),
        }
        match parsed(&["config", "check", "m.toml"]) {
            Ok(Command::ConfigCheck { file, .. }) => assert_eq!(file, PathBuf::from("m.toml")),
            other => panic!("{other:?}"),
        }
        match parsed(&["log", "tail", "data", "--follow", "--from", "9"]) {
            Ok(Command::LogTail { dir, from, follow }) => {
                assert_eq!((dir, from, follow), (PathBuf::from("data"), Some(9), Follow::Yes));
            }
            other => panic!("{other:?}"),
        }
        let follow = "--follow is an option of log tail only; see myriad --help";
        check_fault(&["log", "dump", "data", "--follow"], follow);
        match parsed(&["log", "verify", "data"]) {
            Ok(Command::LogVerify { dir }) => assert_eq!(dir, PathBuf::from("data")),
            other => panic!("{other:?}"),
        }
        for (arguments, expected) in [
            (&["log", "repair", "data"][..], repair::Mode::Try),
            (&["log", "repair", "data", "--apply"], repair::Mode::Apply),
        ] {
            match parsed(arguments) {
                Ok(Command::LogRepair { dir, mode }) => {
                    assert_eq!((dir, mode), (PathBuf::from("data"), expected));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_import_needs_a_file_and_a_directory() {
        for (arguments, expected) in [
            (&["import", "a.rdb", "--dir", "data"][..], Losses::Refuse),
            (&["import", "--partial", "--dir", "data", "a.rdb"], Losses::Accept),
        ] {
            match parsed(arguments) {
                Ok(Command::Import { from, dir, losses }) => {
                    assert_eq!((from, dir), (PathBuf::from("a.rdb"), PathBuf::from("data")));
                    assert_eq!(losses, expected);
                }
                other => panic!("{other:?}"),
            }
        }
        match parsed(&["export", "data", "a.rdb"]) {
            Ok(Command::Export { dir, to }) => {
                assert_eq!((dir, to), (PathBuf::from("data"), PathBuf::from("a.rdb")));
            }
            other => panic!("{other:?}"),
        }
        check_fault(&["export", "data"], "myriad export requires DIR FILE; see myriad --help");
        check_fault(&["import"], "missing file or server to import; see myriad --help");
        let missing =
            "an import from a file requires --dir DIR, a new directory; see myriad --help";
        check_fault(&["import", "a.rdb"], missing);
        check_fault(&["import", "a", "b"], "unexpected argument \"b\"");
    }

    #[test]
    fn an_import_from_cassandra_has_a_keyspace() {
        let source = "cassandra://me:secret@host/shop";
        match parsed(&["import", source, "--to", "127.0.0.1:9043", "--partial"]) {
            Ok(Command::CassandraImport(import)) => {
                assert_eq!(import.keyspace.as_deref(), Some("shop"));
                assert_eq!((import.source.address.port, import.target.address.port), (9042, 9043));
                assert_eq!(import.losses, Losses::Accept);
            }
            other => panic!("{other:?}"),
        }
        match parsed(&["import", "cassandra://host", "--to", "cassandra://h", "--verify"]) {
            Ok(Command::CassandraVerify(import)) => assert_eq!(import.keyspace, None),
            other => panic!("{other:?}"),
        }
        for (options, expected) in [
            (
                &["--to", "h", "--merge"][..],
                "--once and --merge are options of an import from Redis",
            ),
            (&["--to", "h/k"], "the keyspaces of the target have the names of the source"),
            (&["--to", "h", "--verify", "--partial"], "--verify allows no other options than --to"),
            (&["--dir", "d"], "an import from a server requires --to HOST:PORT"),
        ] {
            let arguments = [&["import", source][..], options].concat();
            check_fault(&arguments, &format!("{expected}; see myriad --help"));
        }
    }

    #[test]
    fn a_backup_names_a_server_and_a_restore_one_purpose() {
        let words = ["backup", "[::1]:6379", "--to", "b", "--full", "--follow", "--keep", "3"];
        match parsed(&words) {
            Ok(Command::Backup { backup, place }) => {
                assert_eq!((backup.source.host.as_str(), backup.source.port), ("::1", 6_379));
                assert_eq!((backup.begin, backup.until), (Begin::Full, Until::Stopped));
                assert_eq!(backup.keep.map(std::num::NonZeroUsize::get), Some(3));
                assert_eq!(place, BackupPlace::Directory(PathBuf::from("b")));
                assert!(backup.tls.is_none());
            }
            other => panic!("{other:?}"),
        }
        let files = "--tls-cert-file and --tls-key-file require each other and \
                     --tls-ca-cert-file; see myriad --help";
        let backup = ["backup", "host:1", "--to", "b"];
        for words in [
            ["--tls-cert-file", "c", "--tls-ca-cert-file", "a"],
            ["--tls-cert-file", "c", "--tls-key-file", "k"],
        ] {
            check_fault(&[&backup[..], &words].concat(), files);
        }
        assert!(parsed(&[&backup[..], &["--keep", "0"]].concat()).is_err());
        match parsed(&["restore", "b", "--to", "data", "--until", "77"]) {
            Ok(Command::Restore { place, to, target }) => {
                assert_eq!(place, BackupPlace::Directory(PathBuf::from("b")));
                assert_eq!(to, Some(PathBuf::from("data")));
                assert_eq!(target, Target::Position(77));
            }
            other => panic!("{other:?}"),
        }
        for time in ["2026-11-24T15:04:05.25Z", "2026-11-24T16:04:05.250000+01:00"] {
            match parsed(&["restore", "b", "--verify", "--until", time]) {
                Ok(Command::Restore { target, .. }) => {
                    assert_eq!(target, Target::Time(1_795_532_645_250_000));
                }
                other => panic!("{other:?}"),
            }
        }
        let missing = "myriad backup requires HOST:PORT and --to DIR; see myriad --help";
        check_fault(&["backup", "host:1"], missing);
        let malformed = "the address of a server is HOST:PORT; see myriad --help";
        for place in ["host", ":1", "host:0", "host:x"] {
            check_fault(&["backup", place, "--to", "b"], malformed);
        }
        let purpose =
            "myriad restore requires DIR and either --to DATA-DIR or --verify; see myriad --help";
        check_fault(&["restore", "b"], purpose);
        check_fault(&["restore", "b", "--to", "data", "--verify"], purpose);
        let until = "--until requires a position, or a time such as 2026-11-24T15:04:05Z; see \
                     myriad --help";
        for text in ["noon", "-1", "2026-11-24", "2026-11-24T15:04:05", ""] {
            check_fault(&["restore", "b", "--verify", "--until", text], until);
        }
    }

    #[test]
    fn the_exit_status_of_a_repair_reports_whether_the_server_can_start() {
        let dir = std::env::temp_dir().join(format!("myriad-log-status-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        // The directory had a log, but neither copy of its manifest is valid.
        std::fs::write(dir.join("log.manifest"), [0; 8192]).unwrap();
        let path = dir.to_str().unwrap();
        for (arguments, expected) in [
            (&["log", "repair"][..], 2),
            (&["log", "verify", path], 1),
            (&["log", "repair", path], 1),
            (&["upgrade", "--check", path], 1),
            (&["log", "repair", path, "--apply"], 0),
            (&["upgrade", "--check", path], 0),
            (&["log", "repair", path], 0),
            (&["log", "verify", path], 0),
            (&["log", "repair", "no such directory", "--apply"], 1),
            (&["upgrade", "--check", "no such directory"], 1),
            (&["upgrade"], 2),
        ] {
            let found = status(&mut Parser::from_args(arguments), Environment::default());
            assert_eq!(found, expected, "{arguments:?}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn usage_errors_name_the_option_or_command() {
        check_fault(&[], "missing command; see myriad --help");
        check_fault(&["lab"], "unknown command lab; see myriad --help");
        check_fault(&["--fast"], "invalid option '--fast'");
        check_fault(
            &["serve", "--hz", "x"],
            "--hz: argument couldn't be parsed into an integer (number, 1 to 500)",
        );
        check_fault(
            &["log"],
            "myriad log requires dump, tail, verify or repair, and DIR; see myriad --help",
        );
        check_fault(
            &["log", "cut", "data"],
            "myriad log requires dump, tail, verify or repair, and DIR; see myriad --help",
        );
        check_fault(&["log", "dump"], "missing directory of the log; see myriad --help");
        check_fault(
            &["log", "dump", "data", "--from", "x"],
            "--from requires an LSN, a byte position; see myriad --help",
        );
        check_fault(
            &["log", "verify", "data", "--from", "1"],
            "--from is an option of log dump and log tail only; see myriad --help",
        );
        check_fault(
            &["log", "verify", "data", "--apply"],
            "--apply is an option of log repair only; see myriad --help",
        );
        check_fault(&["log", "repair"], "missing directory of the log; see myriad --help");
        check_fault(&["log", "dump", "data", "more"], "unexpected argument \"more\"");
        check_fault(
            &["config"],
            "myriad config requires check FILE or --markdown; see myriad --help",
        );
        check_fault(&["config", "check"], "missing configuration file; see myriad --help");
        check_fault(&["config", "check", "a", "b"], "unexpected argument \"b\"");
        check_fault(&["config", "--markdown", "x"], "unexpected argument \"x\"");
        let upgrade = "myriad upgrade requires --check DIR; see myriad --help";
        check_fault(&["upgrade"], upgrade);
        check_fault(&["upgrade", "data"], "unexpected argument \"data\"");
        let shells = "myriad completion requires a shell: bash, zsh, fish; see myriad --help";
        check_fault(&["completion"], shells);
        check_fault(&["completion", "tcsh"], shells);
        check_fault(&["completion", "bash", "zsh"], "unexpected argument \"zsh\"");
        check_fault(&["man"], "myriad man requires DIR; see myriad --help");
        check_fault(&["commands"], "myriad commands requires --markdown; see myriad --help");
    }

    #[test]
    fn a_broken_pipe_is_found_under_its_context() {
        let broken = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&broken.context("dump the log")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("disk on fire")));
    }
}
