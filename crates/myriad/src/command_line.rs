//! The command line: which command runs, and with what.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt as _};
use server::backup::{Backup, Begin, ClientTls, Until};
use server::config::{self, Arguments, ArgumentsError, Config, Environment, MasterAddress};
use server::import::cassandra::CassandraImport;
use server::import::live::{self, LiveImport, Onto};
use server::import::{Losses, Place};
use server::logtool::Follow;
use server::repair;
use server::restore::Target;

use crate::commands::{self, SHELLS};
use crate::completion;
use crate::storage::BackupPlace;

const VERSION: &str = concat!("myriad ", env!("CARGO_PKG_VERSION"), "\n");

/// A parsed command line.
#[derive(Debug)]
pub(crate) enum Command {
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

pub(crate) fn parse(
    parser: &mut Parser,
    environment: Environment,
) -> Result<Command, ArgumentsError> {
    let print = |text: &str| Ok(Command::Print(text.to_owned()));
    match parser.next()? {
        None => Err(usage("missing command")),
        Some(Arg::Short('h') | Arg::Long("help")) => print(&commands::help()),
        Some(Arg::Short('V') | Arg::Long("version")) => print(VERSION),
        Some(Arg::Value(name)) => match name.to_str() {
            Some("serve") => parse_server(parser, environment, "serve", Command::Serve),
            Some("hub") => parse_hub(parser, environment),
            Some("doctor") => parse_server(parser, environment, "doctor", Command::Doctor),
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

/// Parses the options of the server. `make`: the command that uses them.
fn parse_server(
    parser: &mut Parser,
    environment: Environment,
    name: &str,
    make: fn(Box<Config>) -> Command,
) -> Result<Command, ArgumentsError> {
    match config::parse_arguments(parser, environment)? {
        Arguments::Help => Ok(help(name)),
        Arguments::Serve(config) => Ok(make(config)),
    }
}

/// A server that relays what several masters write.
fn parse_hub(parser: &mut Parser, environment: Environment) -> Result<Command, ArgumentsError> {
    let mut command = parse_server(parser, environment, "hub", Command::Serve)?;
    if let Command::Serve(config) = &mut command {
        config.take_argument("hub", "yes")?;
        config.validate()?;
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
            Arg::Short('h') | Arg::Long("help") => return Ok(help("log")),
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
            Arg::Short('h') | Arg::Long("help") => return Ok(help("import")),
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
            Arg::Short('h') | Arg::Long("help") => return Ok(help("export")),
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
            Arg::Short('h') | Arg::Long("help") => return Ok(help("backup")),
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
            Arg::Short('h') | Arg::Long("help") => return Ok(help("restore")),
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
        Some(Arg::Short('h') | Arg::Long("help")) => return Ok(help("config")),
        Some(Arg::Long("markdown")) => Command::Print(config::markdown()),
        Some(Arg::Value(action)) if action == "check" => match parser.next()? {
            Some(Arg::Short('h') | Arg::Long("help")) => return Ok(help("config")),
            Some(Arg::Value(file)) => {
                Command::ConfigCheck { file: PathBuf::from(file), environment }
            }
            Some(other) => return Err(other.unexpected().into()),
            None => return Err(usage("missing configuration file")),
        },
        Some(other) => return Err(other.unexpected().into()),
        None => return Err(usage("myriad config requires check FILE or --markdown")),
    };
    at_end(parser)?;
    Ok(command)
}

fn parse_upgrade(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    let mut dir = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(help("upgrade")),
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
        Operand::Help => help("completion"),
        Operand::Value(shell) => {
            let script = shell.to_str().and_then(completion::script);
            Command::Print(script.ok_or_else(missing)?)
        }
        Operand::Missing => return Err(missing()),
    })
}

fn parse_man(parser: &mut Parser) -> Result<Command, ArgumentsError> {
    Ok(match only_operand(parser)? {
        Operand::Help => help("man"),
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
    at_end(parser)?;
    Ok(operand)
}

/// Parses `--markdown`, which prints a document generated from a table, or `--help`.
fn parse_document(
    parser: &mut Parser,
    name: &str,
    markdown: fn() -> String,
) -> Result<Command, ArgumentsError> {
    let command = match parser.next()? {
        Some(Arg::Short('h') | Arg::Long("help")) => return Ok(help(name)),
        Some(Arg::Long("markdown")) => Command::Print(markdown()),
        Some(other) => return Err(other.unexpected().into()),
        None => return Err(usage(&format!("myriad {name} requires --markdown"))),
    };
    at_end(parser)?;
    Ok(command)
}

fn help(name: &str) -> Command {
    Command::Print(commands::help_of(name))
}

/// Refuses further arguments.
fn at_end(parser: &mut Parser) -> Result<(), ArgumentsError> {
    match parser.next()? {
        None => Ok(()),
        Some(extra) => Err(extra.unexpected().into()),
    }
}

fn usage(text: &str) -> ArgumentsError {
    ArgumentsError::Usage(format!("{text}; see myriad --help").into())
}
