//! The options of redis-benchmark 7.0.

use std::ffi::OsString;

use anyhow::{Result, bail, ensure};

use crate::command_line::CommandLine;
use crate::load::{CONNECTIONS_MAX, PIPELINE_MAX, THREADS_MAX, VALUE_BYTES_MAX};

pub(crate) const HELP: &str = "\
Usage: myriad-lab redis-benchmark [OPTIONS] [COMMAND ARGS...]

 -h <hostname>      Server [127.0.0.1]
 -p <port>          Its port [6379]
 -a <password>      Sent as AUTH
 -c <clients>       Connections [50]
 -n <requests>      Requests of each test [100000]
 -d <size>          Bytes of a value [3]
 --dbnum <db>       SELECT this database [0]
 -3                 Speak RESP3
 --threads <num>    Threads of the client
 -k <boolean>       1: keep connections; 0 is not supported [1]
 -r <keyspacelen>   Replace __rand_int__ with 12 digits of a random number below this; without
                    it all requests have the same key
 -P <numreq>        Requests in flight on each connection [1]
 -q                 One line per test
 --csv              Comma-separated values
 -l                 Run the tests forever
 -t <tests>         Comma-separated names of tests; ignored if a command is given
 -I                 Open idle connections only
 -e                 Has no effect: errors always end the run
 --help             Print this

Options, tests and output are those of redis-benchmark 7.0. The load generator is that of this lab.
";

/// The parsed options.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
pub(crate) struct Options {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) password: Option<String>,
    pub(crate) clients: usize,
    pub(crate) requests: u64,
    pub(crate) data_bytes: usize,
    pub(crate) database: u32,
    pub(crate) is_resp3: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) keys_count: Option<u64>,
    pub(crate) pipeline: usize,
    pub(crate) is_quiet: bool,
    pub(crate) is_csv: bool,
    pub(crate) loops: bool,
    /// In lower case, with commas around each.
    pub(crate) tests: Option<String>,
    pub(crate) is_idle: bool,
    pub(crate) command: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            host: "127.0.0.1".to_owned(),
            port: 6379,
            password: None,
            clients: 50,
            requests: 100_000,
            data_bytes: 3,
            database: 0,
            is_resp3: false,
            threads: None,
            keys_count: None,
            pipeline: 1,
            is_quiet: false,
            is_csv: false,
            loops: false,
            tests: None,
            is_idle: false,
            command: Vec::new(),
        }
    }
}

/// Returns `None` if help was requested.
pub(crate) fn parse(parser: &mut CommandLine<'_>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') => options.host = parser.text()?,
            Short('p') => options.port = parser.value()?,
            Short('a') => options.password = Some(parser.text()?),
            Short('c') => options.clients = parser.value()?,
            Short('n') => options.requests = parser.value()?,
            Short('d') => options.data_bytes = parser.value()?,
            Long("dbnum") => options.database = parser.value()?,
            Short('3') => options.is_resp3 = true,
            Long("threads") => options.threads = Some(parser.value()?),
            Short('k') => {
                let keeps: u8 = parser.value()?;
                ensure!(keeps == 1, "-k 0 is not supported: connections are always kept");
            }
            Short('r') => options.keys_count = Some(parser.value()?),
            Short('P') => options.pipeline = parser.value()?,
            Short('q') => options.is_quiet = true,
            Long("csv") => options.is_csv = true,
            Short('l') => options.loops = true,
            Short('t') => {
                let tests = parser.text()?.to_lowercase();
                options.tests = Some(format!(",{tests},"));
            }
            Short('I') => options.is_idle = true,
            Short('e') => {}
            Long("help") => return Ok(None),
            Value(first) => {
                // Dashes in the following arguments belong to the command.
                let words = std::iter::once(first).chain(parser.rest()?);
                options.command = words.map(word).collect::<Result<_>>()?;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    for (option, value, most) in [
        ("-c", options.clients, CONNECTIONS_MAX),
        ("-P", options.pipeline, PIPELINE_MAX),
        ("--threads", options.threads.unwrap_or(1), THREADS_MAX),
    ] {
        ensure!((1..=most).contains(&value), "{option} must be 1 to {most}");
    }
    ensure!(options.requests > 0, "-n must be at least 1");
    ensure!(options.data_bytes <= VALUE_BYTES_MAX, "-d must be at most {VALUE_BYTES_MAX}");
    Ok(Some(options))
}

fn word(word: OsString) -> Result<String> {
    match word.into_string() {
        Ok(word) => Ok(word),
        Err(word) => bail!("{} is not text", word.display()),
    }
}

#[cfg(test)]
mod tests {
    use lexopt::Parser;

    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Option<Options>> {
        parse(&mut CommandLine::new(&mut Parser::from_args(arguments)))
    }

    #[track_caller]
    fn check(arguments: &[&str], change: impl Fn(&mut Options)) {
        let mut expected = Options::default();
        change(&mut expected);
        assert_eq!(parsed(arguments).unwrap(), Some(expected));
    }

    #[test]
    fn common_flags_are_known() {
        check(&[], |_| {});
        check(&["-h", "::1", "-p", "7000", "-a", "s"], |options| {
            options.host = "::1".to_owned();
            options.port = 7000;
            options.password = Some("s".to_owned());
        });
        check(&["-c", "7", "-n", "10", "-d", "80", "-P16", "-r", "99"], |options| {
            options.clients = 7;
            options.requests = 10;
            options.data_bytes = 80;
            options.pipeline = 16;
            options.keys_count = Some(99);
        });
        check(&["-q", "--csv", "-l", "-I", "-e", "-3", "-k", "1"], |options| {
            options.is_quiet = true;
            options.is_csv = true;
            options.loops = true;
            options.is_idle = true;
            options.is_resp3 = true;
        });
        check(&["--threads", "2", "--dbnum", "3", "-t", "SET,get"], |options| {
            options.threads = Some(2);
            options.database = 3;
            options.tests = Some(",set,get,".to_owned());
        });
        assert_eq!(parsed(&["--help"]).unwrap(), None);
    }

    #[test]
    fn a_command_takes_the_rest() {
        check(&["-n", "5", "set", "-q", "--csv", "-1"], |options| {
            options.requests = 5;
            options.command =
                ["set", "-q", "--csv", "-1"].iter().map(|&word| word.to_owned()).collect();
        });
    }

    #[test]
    fn unknown_options_are_refused() {
        for arguments in [&["-k", "0"][..], &["-z"], &["-p", "x"], &["-c"], &["--tls"]] {
            assert!(parsed(arguments).is_err(), "{arguments:?}");
        }
    }
}
