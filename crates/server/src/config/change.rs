//! CONFIG GET, SET and REWRITE on a running server. Error texts match those of Redis 7, without the
//! `ERR` prefix.

use options::{Change, Conflict, Source, ValueError, read_bounded};

use super::{Config, OptionSpec, ReplicaOf, file, find, owner, rows};

/// Longer patterns match nothing: every option name is shorter.
const PATTERN_BYTES_MAX: usize = 256;

/// Options that a CONFIG SET changed, by their own names rather than aliases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed(pub(super) Vec<&'static str>);

impl Changed {
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    pub fn names(&self) -> &[&'static str] {
        &self.0
    }
}

/// Reason why a CONFIG SET changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    #[error("Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    #[error("CONFIG SET failed (possibly related to argument '{argument}') - {reason}")]
    Refused { argument: String, reason: String },
}

impl SetError {
    /// A conflict that the options to set would cause. Names one of them.
    pub(crate) fn of(conflict: Conflict, pairs: &[(&[u8], &[u8])]) -> SetError {
        let related = pairs.iter().find(|(name, _)| is_name(name, conflict.option));
        let (name, _) = related.or(pairs.last()).unwrap_or(&(b"", b""));
        refused(name, conflict.reason)
    }
}

/// Reason why a CONFIG REWRITE changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    #[error("The server is running without a config file")]
    NoFile,
    #[error("Rewriting config file: {0}")]
    Io(#[from] std::io::Error),
    /// The file was edited after it was read and is no longer valid.
    #[error("Rewriting config file: {0}")]
    Form(String),
}

impl Config {
    /// Returns the names and values of the options that match any of the patterns (`*`, `?`,
    /// `[a-z]`, `\x`; case-insensitive), each once: in the order of the patterns, then of the
    /// table. An alias is listed as a separate option. A pattern without wildcards is echoed
    /// exactly as the client wrote it.
    // Source: Redis 7.2 `config.c`, `configGetCommand`
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        let mut push = |name: &str, option: &OptionSpec| {
            if found.iter().all(|(known, _)| !known.eq_ignore_ascii_case(name)) {
                found.push((name.to_owned(), option.text(self.settings())));
            }
        };
        for pattern in patterns.iter().filter(|pattern| pattern.len() <= PATTERN_BYTES_MAX) {
            if !pattern.iter().any(|byte| b"*?[".contains(byte)) {
                let Ok(name) = std::str::from_utf8(pattern) else { continue };
                if let Some(option) = find(name) {
                    push(name, option);
                }
                continue;
            }
            for option in rows() {
                let named = option.names().filter(|name| matches(pattern, name.as_bytes()));
                named.for_each(|name| push(name, option));
            }
        }
        found
    }

    /// Sets several options, all or none.
    pub fn set(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<Changed, SetError> {
        let options = settable(pairs)?;
        let mut settings = self.settings().clone();
        for (option, (name, value)) in options.iter().zip(pairs) {
            let text = std::str::from_utf8(value).map_err(|_| ValueError::ControlCharacter);
            text.and_then(|text| option.set(&mut settings, text))
                .map_err(|error| refused(name, error.to_string()))?;
        }
        settings.validate().map_err(|conflict| SetError::of(conflict, pairs))?;
        let mut changed = Changed::default();
        for owner in options.into_iter().map(owner) {
            if owner.text(&settings) != owner.text(self.settings()) {
                self.loaded.sources.insert(owner.name, Source::ConfigSet);
                changed.0.push(owner.name);
            }
        }
        self.loaded.settings = settings;
        Ok(changed)
    }

    /// Sets the option `replicaof`, which REPLICAOF changes and CONFIG SET does not.
    pub(crate) fn set_master(&mut self, master: ReplicaOf) {
        self.loaded.settings.replicaof = master;
        self.loaded.sources.insert("replicaof", Source::ConfigSet);
    }

    /// Writes the changes made by the command line and CONFIG SET to the configuration file.
    /// Preserves comments, order and unrelated lines, and replaces the file atomically. Blocks on
    /// disk I/O.
    pub fn rewrite(&self) -> Result<(), RewriteError> {
        let path = self.file().ok_or(RewriteError::NoFile)?;
        let is_changed = |option: &&'static OptionSpec| {
            let source = self.loaded.source_of(option);
            // An import sets and ends this mode, also at a start.
            option.owns_its_value()
                && option.name != "import-mode"
                && matches!(source, Source::ConfigSet | Source::CommandLine)
        };
        let changed: Vec<_> = rows().filter(is_changed).collect();
        let text = read_bounded(path)?;
        let text = file::edit(&text, &changed, self.settings())
            .map_err(|error| RewriteError::Form(error.message().to_owned()))?;
        file::replace(path, text.as_bytes())?;
        Ok(())
    }
}

/// Returns the options of the pairs. Fails unless each is known, occurs once, and can change now.
fn settable(pairs: &[(&[u8], &[u8])]) -> Result<Vec<&'static OptionSpec>, SetError> {
    let mut options: Vec<&'static OptionSpec> = Vec::new();
    for (name, _) in pairs {
        let option = std::str::from_utf8(name)
            .ok()
            .and_then(find)
            .ok_or_else(|| SetError::Unknown(printable(name)))?;
        // A view checks the value later: it accepts only the value that it shows.
        if option.change == Change::Start {
            return Err(refused(name, ValueError::Immutable.to_string()));
        }
        if options.iter().any(|earlier| owner(earlier).name == owner(option).name) {
            return Err(refused(name, "duplicate parameter".to_owned()));
        }
        options.push(option);
    }
    Ok(options)
}

fn is_name(bytes: &[u8], name: &str) -> bool {
    bytes.eq_ignore_ascii_case(name.as_bytes())
}

fn refused(argument: &[u8], reason: String) -> SetError {
    SetError::Refused { argument: printable(argument), reason }
}

/// Bytes sent by a peer, formatted for an error reply: short and on one line.
fn printable(bytes: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 128;
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(CHARACTERS_MAX)
        .collect()
}

/// Whether the name matches the pattern by the rules of Redis: matching is case-insensitive, and an
/// unclosed class ends with the pattern. O(pattern x name).
fn matches(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // Where to retry when the text after the last `*` does not match: one byte further.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, name));
            pattern = rest;
            continue;
        }
        match (match_one(pattern, name.first().copied()), retry) {
            (Some(rest), _) => {
                if name.is_empty() {
                    return true;
                }
                pattern = rest;
                name = &name[1..];
            }
            (None, Some((after_star, [_, further @ ..]))) => {
                retry = Some((after_star, further));
                pattern = after_star;
                name = further;
            }
            (None, _) => return false,
        }
    }
}

/// Matches the pattern's first element against one byte (`None`: the end of the name) and returns
/// the remaining pattern.
fn match_one(pattern: &[u8], byte: Option<u8>) -> Option<&[u8]> {
    let Some(byte) = byte else {
        return pattern.is_empty().then_some(pattern);
    };
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => match_class(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            literal.eq_ignore_ascii_case(&byte).then_some(rest)
        }
    }
}

/// Matches a class such as `abc]` or `^a-z]`: everything after the opening bracket.
fn match_class(mut class: &[u8], byte: u8) -> Option<&[u8]> {
    let byte = byte.to_ascii_lowercase();
    let negated = class.first() == Some(&b'^');
    class = &class[usize::from(negated)..];
    let mut found = false;
    loop {
        class = match class {
            [] => return (found != negated).then_some(&[]),
            [b']', rest @ ..] => return (found != negated).then_some(rest),
            [b'\\', literal, rest @ ..] => {
                found |= literal.to_ascii_lowercase() == byte;
                rest
            }
            [from, b'-', to, rest @ ..] => {
                let (from, to) = (from.to_ascii_lowercase(), to.to_ascii_lowercase());
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                found |= literal.to_ascii_lowercase() == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Durability;
    use proptest::prelude::*;
    use std::path::PathBuf;

    fn set(config: &mut Config, words: &[&str]) -> Result<Changed, String> {
        let pairs: Vec<_> =
            words.chunks_exact(2).map(|pair| (pair[0].as_bytes(), pair[1].as_bytes())).collect();
        config.set(&pairs).map_err(|error| error.to_string())
    }

    fn names(patterns: &[&str]) -> Vec<String> {
        let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        Config::default().get(&patterns).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn get_matches_names_and_aliases() {
        assert_eq!(names(&["maxmemory"]), ["maxmemory"]);
        assert_eq!(names(&["HZ", "hz", "MaxMemory", "h*z"]), ["HZ", "MaxMemory"]);
        assert_eq!(
            names(&["MAXMEM*"]),
            [
                "maxmemory",
                "maxmemory-policy",
                "maxmemory-samples",
                "maxmemory-clients",
                "maxmemory-eviction-tenacity"
            ]
        );
        assert_eq!(
            names(&["maxmemory", "*-policy", "m?xmemory"]),
            ["maxmemory", "maxmemory-policy"]
        );
        assert_eq!(
            names(&["hash-max*"]),
            [
                "hash-max-listpack-entries",
                "hash-max-ziplist-entries",
                "hash-max-listpack-value",
                "hash-max-ziplist-value"
            ]
        );
        assert_eq!(names(&["[g-i]z"]), ["hz"]);
        assert_eq!(names(&["[^a-gi-z]z", "?\\z"]), ["hz"]);
        assert_eq!(names(&["nothing", "", "h", "hz?", "[h"]), Vec::<String>::new());
        let all: usize = rows().map(|option| option.names().count()).sum();
        assert_eq!(names(&["*"]).len(), all);
    }

    #[test]
    fn options_that_tools_read_have_the_usual_form() {
        let config = Config::default();
        for (name, value) in [
            ("save", ""),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory", "0"),
            ("databases", "16"),
            ("port", "6379"),
            ("bind", "127.0.0.1"),
            ("loglevel", "notice"),
            ("slowlog-log-slower-than", "10000"),
        ] {
            assert_eq!(config.get(&[name.as_bytes()]), [(name.to_owned(), value.to_owned())]);
        }
    }

    #[test]
    fn set_is_all_or_nothing() {
        let mut config = Config::default();
        let changed =
            set(&mut config, &["maxmemory", "100mb", "HZ", "20", "timeout", "0"]).unwrap();
        assert_eq!(changed.names(), ["maxmemory", "hz"]);
        assert!(changed.contains("hz"));
        assert_eq!(config.loaded.source("hz"), Some(Source::ConfigSet));
        assert_eq!(config.loaded.source("timeout"), Some(Source::Default));

        let before = config.settings().clone();
        assert!(set(&mut config, &["maxmemory", "1mb", "hz", "zz"]).is_err());
        assert_eq!(config.settings(), &before);
    }

    #[test]
    fn refusals_have_redis_texts() {
        for (words, expected) in [
            (
                &["maxmemory", "abc"][..],
                "CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value",
            ),
            (&["nosuch", "1"], "Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
            (
                &["maxmemory", "zz", "no\r\nsuch", "1"],
                "Unknown option or number of arguments for CONFIG SET - 'no  such'",
            ),
            (
                &["databases", "5"],
                "CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
            ),
            (
                &["dir", "data"],
                "CONFIG SET failed (possibly related to argument 'dir') - can't set immutable config",
            ),
            (
                &["maxmemory", "1", "MaxMemory", "2"],
                "CONFIG SET failed (possibly related to argument 'MaxMemory') - duplicate parameter",
            ),
            (
                &["durability", "always", "appendfsync", "no"],
                "CONFIG SET failed (possibly related to argument 'appendfsync') - duplicate parameter",
            ),
            (
                &["maxmemory", "100mb", "hz", "zz"],
                "CONFIG SET failed (possibly related to argument 'hz') - argument couldn't be parsed into an integer",
            ),
        ] {
            assert_eq!(set(&mut Config::default(), words).unwrap_err(), expected);
        }
    }

    #[test]
    fn views_pass_on_or_accept_what_they_show() {
        let mut config = Config::default();
        assert_eq!(set(&mut config, &["appendfsync", "no"]).unwrap().names(), ["durability"]);
        assert_eq!(config.settings().durability, Durability::Never);
        assert_eq!(set(&mut config, &["save", "", "appendonly", "yes"]).unwrap().names(), [""; 0]);
        assert_eq!(
            set(&mut config, &["appendonly", "no"]).unwrap_err(),
            "CONFIG SET failed (possibly related to argument 'appendonly') - only 'yes' is possible \
             here. Every write is logged: see durability."
        );
    }

    /// Other values of some option.
    const VALUES: &[&str] =
        &["no", "yes", "1", "2", "7", "50", "7mb", "a", "pubsub 1 1 1", "Kg", "900 1", "300 10"];

    /// Values of an option that are not the current one.
    fn other_values(option: &OptionSpec, current: &str) -> Vec<&'static str> {
        let words = match option.kind {
            options::Kind::Choice { words, .. } => words,
            _ => VALUES,
        };
        words.iter().copied().filter(|value| !current.eq_ignore_ascii_case(value)).collect()
    }

    /// Sets one option of the defaults. Returns its value after that.
    fn set_one(name: &'static str, value: &str) -> Result<String, String> {
        let mut config = Config::default();
        config.loaded.settings.tls_ca_cert_file = PathBuf::from("ca.pem");
        set(&mut config, &[name, value])?;
        Ok(config.get(&[name.as_bytes()])[0].1.clone())
    }

    #[test]
    fn every_name_takes_what_it_shows() {
        let config = Config::default();
        for option in rows() {
            let shown = option.text(config.settings());
            for name in option.names() {
                let expected = match option.change {
                    Change::Start => {
                        Err(refused(name.as_bytes(), "can't set immutable config".to_owned())
                            .to_string())
                    }
                    _ => Ok(shown.clone()),
                };
                assert_eq!(set_one(name, &shown), expected, "{name}");
            }
        }
    }

    #[test]
    fn every_name_shows_what_it_has_taken_or_gives_a_reason() {
        let config = Config::default();
        for option in rows() {
            let shown = option.text(config.settings());
            for name in option.names() {
                let tried: Vec<_> = other_values(option, &shown)
                    .into_iter()
                    .map(|value| set_one(name, value))
                    .collect();
                let takes_another = || tried.iter().flatten().any(|value| *value != shown);
                let ends_with = |end: &str| {
                    tried.iter().all(|one| one.as_ref().is_err_and(|error| error.ends_with(end)))
                };
                match option.change {
                    Change::Running | Change::WithoutEffect | Change::Through(_) => {
                        assert!(takes_another(), "{name}: {tried:?}");
                    }
                    Change::Start | Change::Never => {
                        assert!(ends_with("can't set immutable config"), "{name}: {tried:?}");
                    }
                    Change::Fixed => {
                        let reason = option.doc.replace('`', "");
                        assert!(
                            ends_with(&format!("only '{shown}' is possible here. {reason}")),
                            "{name}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn names_without_effect_refuse_what_redis_refuses() {
        for (name, value, expected) in [
            (
                "repl-ping-replica-period",
                "0",
                "argument must be between 1 and 2147483647 inclusive",
            ),
            (
                "repl-backlog-ttl",
                "-1",
                "argument must be between 0 and 9223372036854775807 inclusive",
            ),
            ("list-compress-depth", "-1", "argument must be between 0 and 2147483647 inclusive"),
            ("active-defrag-cycle-max", "100", "argument must be between 1 and 99 inclusive"),
            ("maxmemory-eviction-tenacity", "101", "argument must be between 0 and 100 inclusive"),
            ("auto-aof-rewrite-min-size", "-1", "argument must be a memory value"),
            ("lazyfree-lazy-expire", "x", "argument must be 'yes' or 'no'"),
            (
                "repl-diskless-load",
                "x",
                "argument(s) must be one of the following: disabled, on-empty-db, swapdb",
            ),
            (
                "sanitize-dump-payload",
                "x",
                "argument(s) must be one of the following: no, yes, clients",
            ),
        ] {
            let error = set_one(name, value).unwrap_err();
            assert!(error.ends_with(&format!(" - {expected}")), "{name}: {error}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_refused() {
        let mut config = Config::default();
        assert!(matches!(config.set(&[(b"\xff", b"1")]), Err(SetError::Unknown(_))));
        assert!(config.set(&[(b"requirepass", b"\xff")]).is_err());
        assert!(config.set(&[(b"masteruser", b"a\nb")]).is_err());
        assert!(config.set(&[(b"requirepass", b"a\0\nb")]).is_ok());
        assert_eq!(config.settings().requirepass.0, "a\0\nb");
    }

    #[test]
    fn rewrite_writes_changes_back() {
        let path: PathBuf =
            std::env::temp_dir().join(format!("myriad-config-rewrite-{}.toml", std::process::id()));
        std::fs::write(&path, "# mine\nhz = 20 # often\ntimeout = 5\n").unwrap();
        let mut config = Config::default();
        assert!(matches!(config.rewrite(), Err(RewriteError::NoFile)));
        config.loaded.read_file(&path).unwrap();
        config.take_argument("maxclients", "7").unwrap();
        set(&mut config, &["hz", "30", "durability", "never"]).unwrap();
        config.rewrite().unwrap();
        let expected =
            "# mine\nhz = 30 # often\ntimeout = 5\nmaxclients = 7\ndurability = \"never\"\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);

        let mut again = Config::default();
        again.loaded.read_file(&path).unwrap();
        assert_eq!(again.settings(), config.settings());

        std::fs::write(&path, "hz = = 1").unwrap();
        let error = config.rewrite().unwrap_err().to_string();
        assert!(error.starts_with("Rewriting config file: "), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(config.rewrite(), Err(RewriteError::Io(_))));
    }

    /// Reference implementation, exponential in the number of stars.
    fn matches_by_definition(pattern: &[u8], name: &[u8]) -> bool {
        match pattern {
            [] => name.is_empty(),
            [b'*', rest @ ..] => {
                (0..=name.len()).any(|skipped| matches_by_definition(rest, &name[skipped..]))
            }
            [b'?', rest @ ..] => !name.is_empty() && matches_by_definition(rest, &name[1..]),
            [byte, rest @ ..] => {
                name.first() == Some(byte) && matches_by_definition(rest, &name[1..])
            }
        }
    }

    proptest! {
        #[test]
        fn patterns_match_by_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches(pattern, name), matches_by_definition(pattern, name));
        }

        #[test]
        fn any_pattern_ends(pattern in prop::collection::vec(any::<u8>(), 0..64), name in "[a-z-]{0,32}") {
            matches(&pattern, name.as_bytes());
            let escaped: Vec<u8> = name.bytes().flat_map(|byte| [b'\\', byte]).collect();
            prop_assert!(matches(&escaped, name.as_bytes()));
        }

        #[test]
        fn any_pair_is_taken_or_refused_in_one_line(
            name in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Err(error) = Config::default().set(&[(&name, &value)]) {
                prop_assert!(!error.to_string().chars().any(char::is_control));
            }
        }
    }
}
