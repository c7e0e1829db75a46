//! The commands of the program as users see them. The help, the manual pages and the completions of
//! shells are generated from this table.

use std::fmt::Write as _;

use options::{COMMAND_LINE, OptionText, Values, help_rows, wrap};
use server::config;

/// Width of the help, in columns.
const WIDTH: usize = 88;
/// Column of the purposes in the list of commands.
const PURPOSE_COLUMN: usize = 22;

/// A command; several may have the same first word.
#[derive(Debug)]
pub(crate) struct Command {
    /// One or two.
    pub(crate) words: Vec<&'static str>,
    /// Its arguments, as in the usage.
    pub(crate) usage: &'static str,
    pub(crate) about: &'static str,
    /// Arguments that are not options.
    pub(crate) operands: Values,
    pub(crate) options: Options,
}

/// The options of a command, apart from `--help`.
#[derive(Debug)]
pub(crate) enum Options {
    Flags(&'static [OptionText]),
    /// Those of the server, which its configuration file has, too.
    Settings,
    /// Those of another program, which also has a configuration file.
    Table(Vec<OptionText>),
}

impl Command {
    pub(crate) fn name(&self) -> String {
        self.words.join(" ")
    }

    /// Returns all options of the command line.
    pub(crate) fn all_options(&self) -> Vec<OptionText> {
        match &self.options {
            Options::Flags(flags) => [*flags, &[OptionText::HELP]].concat(),
            Options::Settings => [COMMAND_LINE, config::option_texts().as_slice()].concat(),
            Options::Table(texts) => [COMMAND_LINE, texts.as_slice()].concat(),
        }
    }

    pub(crate) fn usage_line(&self) -> String {
        format!("myriad {} {}", self.name(), self.usage).trim_end().to_owned()
    }
}

/// What users read about the commands that begin with a word.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) word: &'static str,
    pub(crate) about: &'static str,
    pub(crate) paragraphs: &'static [&'static str],
}

const SETTINGS_USAGE: &str = "[--config FILE] [--NAME VALUE]... [--set NAME=VALUE]...";

const FROM: OptionText =
    OptionText::value("from", "LSN", Values::Any, "Start at or after this byte position.");
const FOLLOW: OptionText =
    OptionText::flag("follow", "Continue with new records until interrupted.");
const DUMP: &[OptionText] = &[FROM];
const TAIL: &[OptionText] = &[FROM, FOLLOW];
const REPAIR: &[OptionText] = &[OptionText::flag("apply", "Write the data to a new snapshot.")];
const DOCUMENT: &[OptionText] = &[OptionText::flag("markdown", "Print the document.")];

const BACKUP: &[OptionText] = &[
    OptionText::value(
        "to",
        "DIR",
        Values::Files,
        "Directory of the backup, or s3://BUCKET/PREFIX.",
    ),
    OptionText::flag("full", "Begin with a full backup again."),
    OptionText::value("keep", "N", Values::Any, "After a full backup, remove all but the last N."),
    OptionText::flag("follow", "Continue until SIGTERM or SIGINT."),
    OptionText::value("user", "NAME", Values::Any, "User of the server."),
    OptionText::value("password-file", "FILE", Values::Files, "File with the password."),
    OptionText::value(
        "tls-ca-cert-file",
        "FILE",
        Values::Files,
        "Connect with TLS; certificates of the authorities that may sign that of the server.",
    ),
    OptionText::value("tls-cert-file", "FILE", Values::Files, "Certificate of this client."),
    OptionText::value("tls-key-file", "FILE", Values::Files, "Key of this certificate."),
];

const RESTORE: &[OptionText] = &[
    OptionText::value("to", "DATA-DIR", Values::Files, "New directory, for a server."),
    OptionText::flag("verify", "Check the backup, replay it in memory, and report its contents."),
    OptionText::value(
        "until",
        "POSITION|TIME",
        Values::Any,
        "Restore the records that end at or before POSITION, or that were durable at TIME.",
    ),
];

const IMPORT: &[OptionText] = &[
    OptionText::value("dir", "DIR", Values::Files, "New directory, for a server."),
    OptionText::value("to", "TARGET", Values::Any, "Running server that receives the data."),
    OptionText::flag("once", "End when the target has every write."),
    OptionText::flag("merge", "Keep the other keys of the target."),
    OptionText::flag("partial", "Accept that some data is not imported."),
    OptionText::flag("verify", "Compare the data of two servers that no client writes to."),
];

const UPGRADE: &[OptionText] = &[OptionText::value(
    "check",
    "DIR",
    Values::Files,
    "Report the formats in DIR, and what a start of this program would do.",
)];

/// Names of the shells that have completions.
pub(crate) const SHELLS: &[&str] = &["bash", "zsh", "fish"];

/// Returns all commands that users run, in the order of the help.
#[rustfmt::skip]
pub(crate) fn all() -> Vec<Command> {
    use Options::{Flags, Settings, Table};
    use Values::{Any, Files, None, Words};
    let row = |name: &'static str, usage, about, operands, options| {
        Command { words: name.split(' ').collect(), usage, about, operands, options }
    };
    let mut commands = vec![
        row("serve", SETTINGS_USAGE, "Serve the data in a directory", None, Settings),
        row("hub", SETTINGS_USAGE, "The same, as the hub of several masters", None, Settings),
        row("log dump", "DIR [--from LSN]", "Print the records of a log, one per line", Files, Flags(DUMP)),
        row("log tail", "DIR [--from LSN] [--follow]", "Print the records of a log as lines of JSON", Files, Flags(TAIL)),
        row("log verify", "DIR", "Check every record of a log without changing it", Files, Flags(&[])),
        row("log repair", "DIR [--apply]", "Recover the readable data of a directory that the server refuses", Files, Flags(REPAIR)),
        row("backup", "HOST:PORT --to DIR [--full] [--keep N] [--follow] [--user NAME] [--password-file FILE] [--tls-ca-cert-file FILE]", "Store all data of a running server, or what is new, in a directory", Any, Flags(BACKUP)),
        row("restore", "DIR {--to DATA-DIR | --verify} [--until POSITION|TIME]", "Make the directory of a server from a backup, as of a moment", Files, Flags(RESTORE)),
        row("import", "FROM {--dir DIR | --to TARGET [--once] [--merge] [--verify]} [--partial]", "Move in from files of Redis or Valkey, or from a running one or a Cassandra", Files, Flags(IMPORT)),
        row("export", "DIR FILE", "Write the keys in the directory of a server to an RDB file", Files, Flags(&[])),
        row("upgrade", "--check DIR", "Report whether this program can start with the directory of a server", None, Flags(UPGRADE)),
        row("web", SETTINGS_USAGE, "Serve files over HTTP with a group of processes or threads", None, Table(web::option_texts())),
    ];
    for (name, about, options) in pipeline::subcommands() {
        let (words, usage) = (vec!["pipeline", name], "[OPTIONS]");
        commands.push(Command { words, usage, about, operands: None, options: Table(options) });
    }
    commands.extend([
        row("doctor", SETTINGS_USAGE, "Check the machine for settings that make the server slow or unreliable", None, Settings),
        row("config check", "FILE", "Validate a configuration file, and print what differs from defaults", Files, Flags(&[])),
        row("config", "--markdown", "Print the documentation of all options", None, Flags(DOCUMENT)),
        row("commands", "--markdown", "Print the documentation of all commands of the Redis protocol", None, Flags(DOCUMENT)),
        row("cql", "--markdown", "Print the documentation of CQL's statements, types and functions", None, Flags(DOCUMENT)),
        row("completion", "bash|zsh|fish", "Print the completion of command lines for a shell", Words(SHELLS), Flags(&[])),
        row("man", "DIR", "Write the manual pages into the directory DIR", Files, Flags(&[])),
        row("version", "", "Print the version, as --version does", None, Flags(&[])),
    ]);
    commands
}

pub(crate) const TOPICS: &[Topic] = &[
    Topic {
        word: "serve",
        about: "serve the data in a directory",
        paragraphs: &[
            "Serves the data in a directory with the protocol of Redis, CQL and HTTP until SIGTERM \
             or SIGINT. A write is acknowledged when it is on the log.",
            "A variable of the environment sets each option as well: MYRIAD_LOG_LEVEL is that of \
             --log-level. The environment overrides the file, and the command line overrides both. \
             Other users can read command lines: a password belongs in the file or the environment.",
        ],
    },
    Topic {
        word: "hub",
        about: "serve as the hub of several masters",
        paragraphs: &[
            "Runs a server that relays what each of several masters writes to the others: \
             docs/operate/hub.md. Options and variables are those of myriad serve.",
        ],
    },
    Topic {
        word: "log",
        about: "print, check and repair a log",
        paragraphs: &[
            "DIR is the server's `dir`; a directory without a log and a snapshot is refused. dump, tail and verify only read it, even while the server \
             is running; repair requires a stopped server. LSN is a byte position: the first record \
             at or after it is the first one printed.",
            "dump prints a record per line, for reading: at most 64 bytes of each key and value. tail \
             prints a line of JSON with all keys and values, from which data can be recovered. verify \
             fails at the first damage.",
            "repair reports how much data of a directory that the server refuses can be recovered. \
             With --apply it writes that to a new snapshot: all data up to the first damage. The \
             old files move to a subdirectory. Its exit status is 0 if the server can start with \
             DIR now, else 1.",
        ],
    },
    Topic {
        word: "backup",
        about: "store the data of a running server",
        paragraphs: &[
            "Stores the data of the server that speaks the Redis protocol at HOST:PORT in files in \
             DIR, which is made if it is missing, and otherwise must be empty or have a backup. The \
             first backup is a full one; later ones store \
             only what is new. With --full, begin with a full one again. With --follow, continue \
             until SIGTERM or SIGINT, and complete a file every 10 seconds. With --keep N, a full \
             backup removes the files of older ones except the newest N - 1.",
            "A program with the feature s3 also takes s3://BUCKET/PREFIX as DIR: storage that is \
             compatible with S3. Credentials, region and endpoint are those of the variables \
             AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL.",
            "The password is that in FILE, or the environment variable MYRIAD_PASSWORD. The user \
             needs permission for ROLE, REPLCONF and PSYNC. Reports each file on standard output, \
             progress on standard error.",
        ],
    },
    Topic {
        word: "restore",
        about: "make the directory of a server from a backup",
        paragraphs: &[
            "Makes the new directory DATA-DIR, with which a server can start, from the backup in \
             DIR, or s3://BUCKET/PREFIX: with all records, or the records that --until selects. With --verify, only checks the \
             backup.",
            "TIME has a time zone: 2026-11-24T15:04:05Z, 2026-11-24T16:04:05.25+01:00. Fails if a \
             file is missing or damaged; then DATA-DIR is not made.",
        ],
    },
    Topic {
        word: "import",
        about: "move in from files of Redis or Valkey, or from a running one or a Cassandra",
        paragraphs: &[
            "With --dir, makes the new directory DIR, with which a server can start. FROM is an RDB \
             file, an append-only file, a directory with such files and their manifest \
             (appendonlydir), or the manifest. The server that writes these files must be stopped, \
             or they must be copies.",
            "With --to, copies all keys and functions of the running Redis or Valkey FROM into the \
             running server TARGET, then every write, until SIGINT or SIGTERM; with --once, until \
             TARGET has every write. After an interruption, run it again: it continues. With \
             --verify, compares all keys of the two servers.",
            "A running FROM is redis://[USER:PASSWORD@]HOST[:PORT], TARGET the same, also without \
             redis://. The passwords can be in the environment variables MYRIAD_SOURCE_PASSWORD and \
             MYRIAD_PASSWORD instead. TARGET must be without keys; with --merge it keeps its keys, \
             except those of equal names.",
            "If FROM is cassandra://[USER:PASSWORD@]HOST[:PORT][/KEYSPACE], copies the tables of one \
             or all keyspaces of a running Cassandra through CQL, with the write times and TTLs of \
             their cells, into TARGET, the address on which the server accepts CQL, and ends. To \
             copy what was written meanwhile, or to continue, run it again.",
            "Reports everything that was not imported. Then no directory is made, or the copy ends, \
             except with --partial. Exit status: 0 if everything was imported and is equal, else 1.",
        ],
    },
    Topic {
        word: "export",
        about: "write the keys of a server to an RDB file",
        paragraphs: &[
            "Writes all keys in DIR, the `dir` of a stopped server, to the new RDB file FILE, which \
             Redis 7.0 and later and Valkey load. Tables of CQL are not part of it.",
        ],
    },
    Topic {
        word: "upgrade",
        about: "report whether this program can start with a directory",
        paragraphs: &[
            "Reads DIR, the `dir` of a stopped server, which has a log or a snapshot, and changes \
             nothing. Prints the format \
             versions of the log, its manifest and the snapshots, whether this program reads them, \
             what a start would do, and whether the program that wrote them could still start \
             afterwards.",
            "Exit status: 0 if this program can start with DIR, else 1.",
        ],
    },
    Topic {
        word: "web",
        about: "serve files over HTTP with a group of processes or threads",
        paragraphs: &["Serves files, /hello and an upstream over HTTP/1.1 and HTTPS with a group \
                       of workers."],
    },
    Topic {
        word: "pipeline",
        about: "compute tasks at a paced rate",
        paragraphs: &["Computes tasks at a paced rate, with none lost, whatever dies: \
                       docs/operate/pipeline.md. The environment variable MYRIAD_LOG sets the level \
                       of messages on standard error: error, warn, info, debug or trace."],
    },
    Topic {
        word: "doctor",
        about: "check the machine of a server",
        paragraphs: &[
            "Checks the machine for a server with these options, those of myriad serve: huge pages, \
             listen queue, open files, clock source, swap, memory, and in the data directory the \
             time of a sync and direct writes. Prints each finding, and for each warning the reason \
             and what to do. Writes and removes one small file in the data directory. Exit status 1 \
             if there is a warning.",
        ],
    },
    Topic {
        word: "config",
        about: "validate a configuration file",
        paragraphs: &[
            "check validates FILE and the variables of the environment as the start of the server \
             does, without the server. Prints the values that are not the defaults, or every error \
             with its line or variable; exit status 2 if there is one.",
            "--markdown prints the documentation of all options, which is docs/reference/config.md.",
        ],
    },
    Topic {
        word: "commands",
        about: "print the documentation of commands",
        paragraphs: &["Prints the documentation of all commands of the Redis protocol, which is \
                       docs/reference/commands.md."],
    },
    Topic {
        word: "cql",
        about: "print the documentation of CQL",
        paragraphs: &["Prints the supported statements, types and functions of CQL, which is \
                       docs/reference/cql-reference.md."],
    },
    Topic {
        word: "completion",
        about: "print the completion of command lines for a shell",
        paragraphs: &[
            "Prints a script that completes the commands, options and values of myriad. A package \
             installs it. By hand: `myriad completion bash` into \
             /usr/share/bash-completion/completions/myriad, `myriad completion zsh` into _myriad in \
             a directory of `fpath`, `myriad completion fish` into \
             /usr/share/fish/vendor_completions.d/myriad.fish.",
        ],
    },
    Topic {
        word: "man",
        about: "write the manual pages",
        paragraphs: &["Writes the pages of section 1 into DIR/man1 and that of the configuration \
                       into DIR/man5, replacing older ones. `man -M DIR myriad` shows the first."],
    },
];

/// Returns the text of `myriad --help`.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Myriad: a multi-core data server in which every acknowledged write is on the log.\n\n\
         Usage: myriad COMMAND [ARGUMENTS]\n\nCommands:\n",
    );
    for command in all() {
        let name = command.name();
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  {name:<width$}{}", command.about, width = PURPOSE_COLUMN - 2);
    }
    text.push_str(
        "\nEvery command has --help. Exit status: 0 success, 1 failure, 2 wrong command line or \
         configuration.\n",
    );
    text
}

/// Returns the help of the commands that begin with a word of [`TOPICS`].
pub(crate) fn help_of(word: &str) -> String {
    let mut text = String::from("Usage:\n");
    let commands: Vec<Command> = all().into_iter().filter(|found| found.words[0] == word).collect();
    for command in &commands {
        let _ = writeln!(text, "  {}\n      {}", command.usage_line(), command.about);
    }
    for paragraph in TOPICS.iter().filter(|topic| topic.word == word).flat_map(|t| t.paragraphs) {
        let lines = wrap(&paragraph.replace('`', ""), WIDTH);
        let _ = write!(text, "\n{}\n", lines.join("\n"));
    }
    if let Some(Command { options: Options::Settings, .. }) = commands.first() {
        text += "\nOptions:\n";
        return text + &config::help();
    }
    text + "\nOptions:\n" + &help_rows(&options_of(&commands))
}

/// Returns the options of several commands, each once.
pub(crate) fn options_of(commands: &[Command]) -> Vec<OptionText> {
    let mut options: Vec<OptionText> = Vec::new();
    for option in commands.iter().flat_map(Command::all_options) {
        if options.iter().all(|known| known.name != option.name) {
            options.push(option);
        }
    }
    // `--help` is that of each: at the end.
    options.sort_by_key(|option| option.section.is_empty() && option.name == "help");
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_topic_and_each_topic_a_command() {
        let commands = all();
        for topic in TOPICS {
            assert!(commands.iter().any(|found| found.words[0] == topic.word), "{}", topic.word);
        }
        for command in commands.iter().filter(|command| command.words != ["version"]) {
            assert!(TOPICS.iter().any(|topic| topic.word == command.words[0]), "{command:?}");
        }
    }

    #[test]
    fn the_help_fits_a_terminal() {
        for text in TOPICS.iter().map(|topic| help_of(topic.word)).chain([help()]) {
            for line in text.lines().filter(|line| !line.starts_with("  ")) {
                assert!(line.chars().count() <= 110, "{line}");
            }
            assert!(!text.contains("\n\n\n"), "{text}");
        }
    }
}
