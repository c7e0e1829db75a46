//! The options of cassandra-stress: a command with its parameters, then groups that begin with a
//! dash.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use crate::load::{CqlConsistency, Distribution, Sizes};

pub(crate) const HELP: &str = "\
Usage: myriad-lab cassandra-stress (write|read|mixed) [PARAMETERS] [GROUPS]

Parameters of a command:
 n=?                     Operations; or
 duration=?              how long: 30s, 5m, 1h
 cl=?                    Consistency level [LOCAL_ONE]
 ratio(read=?,write=?)   Ratio of mixed [1 to 1]
 no-warmup               Do not warm up with a quarter of the operations
 truncate=?              never, once or always: empty the table first [never]

Groups:
 -rate threads=? [throttle=?/s | fixed=?/s]
                         Threads share the connections [200]; throttle measures latency from the time
                         when a request was sent, fixed from when it was due
 -node ?                 Server [127.0.0.1]
 -port native=?          Its port [9042]
 -mode native cql3 [user=?] [password=?] [connectionsPerHost=?] [maxPending=?]
 -pop seq=1..? | dist=UNIFORM(1..?) | dist=GAUSSIAN(1..?)
                         Keys [seq=1..n for write, GAUSSIAN(1..n) for read and mixed]
 -col n=FIXED(?) size=FIXED(?) | size=UNIFORM(?..?)
                         Columns [5] and bytes of each [34]
 -schema keyspace=? replication(factor=?)
                         [keyspace1, 1]
 -log interval=?         Seconds between lines [1]

Options, table, statements and output are those of cassandra-stress 5.0, with these differences: keys
have 12 digits; there is no -rate auto, no profile, no counter, no graph; unknown values of an
interval are NaN. The load generator is that of this lab, with protocol version 4 and up to 8
connections.
";

/// Effect of each operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Write,
    Read,
    Mixed { reads: f64, writes: f64 },
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Write => "WRITE",
            Kind::Read => "READ",
            Kind::Mixed { .. } => "MIXED",
        }
    }
}

/// Target rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rate {
    Unlimited,
    /// Operations per second, with latency from the time of sending.
    Throttle(f64),
    /// Operations per second, with latency from the due time.
    Fixed(f64),
}

/// The parsed options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    pub(crate) kind: Kind,
    pub(crate) count: Option<u64>,
    pub(crate) duration_s: Option<u64>,
    pub(crate) consistency: CqlConsistency,
    pub(crate) is_warmed_up: bool,
    pub(crate) truncates: bool,
    pub(crate) threads: usize,
    pub(crate) rate: Rate,
    pub(crate) node: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) keys_count: u64,
    pub(crate) distribution: Distribution,
    pub(crate) columns: usize,
    pub(crate) column_bytes: Sizes,
    pub(crate) keyspace: String,
    pub(crate) replication_factor: u32,
    pub(crate) interval_s: u64,
}

/// Number of keys if neither `n` nor `-pop` specifies it.
const KEYS_DEFAULT: u64 = 1_000_000;
const COLUMNS_MAX: usize = 1_000;

/// Returns `None` if help was requested.
pub(crate) fn parse(words: &[String]) -> Result<Option<Options>> {
    let Some((command, rest)) = words.split_first() else { return Ok(None) };
    let kind = match command.as_str() {
        "write" => Kind::Write,
        "read" => Kind::Read,
        "mixed" => Kind::Mixed { reads: 1.0, writes: 1.0 },
        "help" | "-h" | "--help" => return Ok(None),
        other => bail!("{other:?} is not one of write, read, mixed"),
    };
    let mut options = Options {
        kind,
        count: None,
        duration_s: None,
        consistency: CqlConsistency::LocalOne,
        is_warmed_up: true,
        truncates: false,
        threads: 200,
        rate: Rate::Unlimited,
        node: "127.0.0.1".to_owned(),
        port: 9042,
        user: "cassandra".to_owned(),
        password: None,
        keys_count: 0,
        distribution: Distribution::Gaussian,
        columns: 5,
        column_bytes: Sizes::Fixed(34),
        keyspace: "keyspace1".to_owned(),
        replication_factor: 1,
        interval_s: 1,
    };
    if kind == Kind::Write {
        options.distribution = Distribution::Sequential;
    }
    let mut group = "";
    for word in rest {
        if word.starts_with('-') {
            group = word;
        } else {
            options
                .take(group, word)
                .with_context(|| format!("{group} {word}").trim_start().to_owned())?;
        }
    }
    ensure!(
        options.count.is_some() != options.duration_s.is_some(),
        "specify either n= or duration=: runs until a target precision are not supported"
    );
    if options.keys_count == 0 {
        options.keys_count = options.count.unwrap_or(KEYS_DEFAULT);
    }
    ensure!(options.keys_count > 0 && options.threads > 0, "n and threads must be at least 1");
    ensure!((1..=COLUMNS_MAX).contains(&options.columns), "columns: 1 to {COLUMNS_MAX}");
    ensure!(options.interval_s > 0, "the interval must be at least 1 second");
    Ok(Some(options))
}

impl Options {
    fn take(&mut self, group: &str, word: &str) -> Result<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match (group, name) {
            ("", "n") => self.count = Some(number(value)?),
            ("", "duration") => self.duration_s = Some(seconds(value)?),
            ("", "cl") => self.consistency = consistency(value)?,
            ("", "no-warmup") => self.is_warmed_up = false,
            ("", "truncate") => self.truncates = truncates(value)?,
            ("", _) if word.starts_with("ratio(") => self.set_ratio(word)?,
            ("-rate", "threads") => self.threads = number(value)?,
            ("-rate", "throttle") => self.rate = Rate::Throttle(per_second(value)?),
            ("-rate", "fixed") => self.rate = Rate::Fixed(per_second(value)?),
            ("-node", _) => self.node = one_node(word)?,
            ("-port", "native") => self.port = number(value)?,
            // Options that are always in effect here, and options of the Java driver without a
            // counterpart.
            (
                "-mode",
                "native" | "cql3" | "prepared" | "protocolVersion" | "connectionsPerHost"
                | "maxPending",
            )
            | ("-port", "thrift" | "jmx")
            | ("-log", "level" | "no-settings" | "no-progress") => {}
            ("-mode", "user") => value.clone_into(&mut self.user),
            ("-mode", "password") => self.password = Some(value.to_owned()),
            ("-pop", "seq") => {
                self.keys_count = range(value)?.1;
                self.distribution = Distribution::Sequential;
            }
            ("-pop", "dist") => self.set_population(value)?,
            ("-col", "n") => self.columns = number(inside(value, "FIXED")?)?,
            ("-col", "size") => self.column_bytes = sizes(value)?,
            ("-schema", "keyspace") => {
                ensure!(is_name(value), "a keyspace is letters, digits and underscores");
                value.clone_into(&mut self.keyspace);
            }
            ("-schema", _) if word.starts_with("replication(") => {
                let factor = inside(word, "replication")?.strip_prefix("factor=");
                let factor = factor.context("only replication(factor=?) is supported")?;
                self.replication_factor = number(factor)?;
            }
            ("-log", "interval") => self.interval_s = seconds(value)?,
            _ => bail!("is not supported; see myriad-lab cassandra-stress help"),
        }
        Ok(())
    }

    /// Parses `ratio(read=3,write=1)`.
    fn set_ratio(&mut self, word: &str) -> Result<()> {
        let Kind::Mixed { reads, writes } = &mut self.kind else {
            bail!("ratio requires mixed");
        };
        (*reads, *writes) = (0.0, 0.0);
        for part in inside(word, "ratio")?.split(',') {
            match part.split_once('=') {
                Some(("read", share)) => *reads = number(share)?,
                Some(("write", share)) => *writes = number(share)?,
                _ => bail!("{part:?} is neither read=? nor write=?"),
            }
        }
        ensure!(*reads + *writes > 0.0, "the ratio is zero");
        Ok(())
    }

    /// Parses `UNIFORM(1..1000)`.
    fn set_population(&mut self, value: &str) -> Result<()> {
        let name = value.split('(').next().unwrap_or_default();
        self.distribution = match name.to_ascii_uppercase().as_str() {
            "UNIFORM" => Distribution::Uniform,
            "GAUSSIAN" | "GAUSS" | "NORMAL" | "NORM" => Distribution::Gaussian,
            _ => bail!("only UNIFORM and GAUSSIAN are supported"),
        };
        self.keys_count = range(inside(value, name)?)?.1;
        Ok(())
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Parses `1000`, `10k`, `5m`, `1b`.
fn number<T: FromStr>(text: &str) -> Result<T> {
    let lower = text.to_ascii_lowercase();
    let (digits, zeros) = match lower.strip_suffix(['k', 'm', 'b']) {
        Some(digits) => (
            digits,
            match lower.as_bytes()[lower.len() - 1] {
                b'k' => "000",
                b'm' => "000000",
                _ => "000000000",
            },
        ),
        None => (lower.as_str(), ""),
    };
    let digits = digits.replace('_', "");
    (digits + zeros).parse().ok().with_context(|| format!("{text:?} is not a number"))
}

/// Parses `30s`, `5m`, `1h`.
fn seconds(text: &str) -> Result<u64> {
    let unit_s = match text.as_bytes().last() {
        Some(b'h') => 3_600,
        Some(b'm') => 60,
        _ => 1,
    };
    let count: u64 = number(text.trim_end_matches(['s', 'm', 'h']))?;
    count.checked_mul(unit_s).context("is too long")
}

/// Parses `500/s`.
fn per_second(text: &str) -> Result<f64> {
    number(text.strip_suffix("/s").context("a rate is written as 500/s")?)
}

fn consistency(text: &str) -> Result<CqlConsistency> {
    let name = text.to_ascii_lowercase().replace('_', "-");
    serde_json::from_value(serde_json::Value::String(name))
        .ok()
        .with_context(|| format!("{text:?} is not a supported consistency level"))
}

fn truncates(text: &str) -> Result<bool> {
    match text {
        "never" => Ok(false),
        "once" | "always" => Ok(true),
        _ => bail!("must be one of never, once, always"),
    }
}

fn one_node(text: &str) -> Result<String> {
    ensure!(!text.contains([',', '=']), "only one server is supported");
    Ok(text.to_owned())
}

/// Returns the text in the parentheses after a name.
fn inside<'a>(text: &'a str, name: &str) -> Result<&'a str> {
    let head = text.get(..name.len()).filter(|head| head.eq_ignore_ascii_case(name));
    let rest = head.and_then(|_| text[name.len()..].strip_prefix('(')?.strip_suffix(')'));
    rest.with_context(|| format!("write {name}(...)"))
}

/// Parses a range such as `1..1000`, which must begin with 1.
fn range(text: &str) -> Result<(u64, u64)> {
    let (first, last) = text.split_once("..").context("a range is written as 1..1000")?;
    let (first, last) = (number(first)?, number(last)?);
    ensure!(first == 1 && last >= 1, "keys must begin with 1");
    Ok((first, last))
}

/// Parses `FIXED(34)`, `UNIFORM(1..100)`.
fn sizes(text: &str) -> Result<Sizes> {
    if let Ok(bytes) = inside(text, "FIXED") {
        return Ok(Sizes::Fixed(number(bytes)?));
    }
    let (least, most) =
        inside(text, "UNIFORM")?.split_once("..").context("a range is written as 1..100")?;
    Ok(Sizes::Between(number(least)?, number(most)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Options> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Ok(parse(&words)?.expect("help was not requested"))
    }

    #[test]
    fn options_are_the_tools() {
        let options = parsed(
            "mixed ratio(write=1,read=3) n=10k cl=QUORUM no-warmup truncate=once -rate threads=16 \
             throttle=2k/s -node localhost -port native=9999 -mode native cql3 user=u password=p \
             -pop dist=UNIFORM(1..5m) -col n=FIXED(3) size=UNIFORM(1..9) -schema keyspace=ks \
             replication(factor=3) -log interval=10s",
        )
        .unwrap();
        assert_eq!(options.kind, Kind::Mixed { reads: 3.0, writes: 1.0 });
        assert_eq!((options.count, options.consistency), (Some(10_000), CqlConsistency::Quorum));
        assert!(!options.is_warmed_up && options.truncates);
        assert_eq!((options.threads, options.rate), (16, Rate::Throttle(2_000.0)));
        assert_eq!((options.node.as_str(), options.port), ("localhost", 9999));
        assert_eq!((options.user.as_str(), options.password.as_deref()), ("u", Some("p")));
        assert_eq!((options.keys_count, options.distribution), (5_000_000, Distribution::Uniform));
        assert_eq!((options.columns, options.column_bytes), (3, Sizes::Between(1, 9)));
        assert_eq!((options.keyspace.as_str(), options.replication_factor), ("ks", 3));
        assert_eq!(options.interval_s, 10);
    }

    #[test]
    fn keys_follow_the_operations() {
        let keys = |words| {
            let options = parsed(words).unwrap();
            (options.keys_count, options.distribution)
        };
        assert_eq!(keys("write n=500"), (500, Distribution::Sequential));
        assert_eq!(keys("read n=500"), (500, Distribution::Gaussian));
        assert_eq!(keys("read duration=1s"), (1_000_000, Distribution::Gaussian));
        assert_eq!(keys("read n=5 -pop seq=1..77"), (77, Distribution::Sequential));
    }

    #[test]
    fn unsupported_options_are_refused() {
        let check = |words: &str, expected: &str| {
            let error = format!("{:#}", parsed(words).unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        check("counter_write n=1", "not one of write, read, mixed");
        check("write", "specify either n= or duration=");
        check("write n=1 duration=1s", "specify either n= or duration=");
        check("write n=x", "\"x\" is not a number");
        check("write n=1 -graph file=x", "-graph file=x: is not supported");
        check("write n=1 ratio(read=1)", "ratio requires mixed");
        check("write n=1 -rate fixed=5", "a rate is written as 500/s");
        check("write n=1 -pop seq=5..9", "keys must begin with 1");
        check("write n=1 -schema keyspace=a\"b", "letters, digits");
        check("write n=1 cl=some", "not a supported consistency level");
        check("write n=1 -col n=FIXED(0)", "columns: 1 to");
        check("write n=1 -node a,b", "only one server");
        assert!(parse(&["help".to_owned()]).unwrap().is_none());
        assert!(parse(&[]).unwrap().is_none());
    }
}
