//! Limits of a load over sockets.

use anyhow::{Context as _, Result, ensure};

use super::cql::Statements;
use super::draws::{KEYS_MAX, longest};
use super::flights::STREAMS_MAX;
use super::spec::{
    Arrival, Distribution, HttpConnection, HttpVersion, HttpWork, LoadSpec, Operation, Protocol,
    Sharing, Sizes, SocketWork, Warmup,
};
use super::template::Mix;

/// The system has fewer ephemeral ports per address.
pub(crate) const CONNECTIONS_MAX: usize = 60_000;
pub(crate) const THREADS_MAX: usize = 256;
const USERS_MAX: usize = 1_000_000;
pub(crate) const PIPELINE_MAX: usize = 100_000;
/// As in Redis, whose values are limited to this.
pub(crate) const VALUE_BYTES_MAX: usize = 512 << 20;
/// A batch of all users of one connection must fit into memory many times.
const BATCH_BYTES_MAX: usize = 1 << 30;
/// Limit for a mix; far below the number of streams on which a CQL connection prepares them.
const OPERATIONS_MAX: usize = 1_000;
const PER_SECOND_MAX: f64 = 1e9;
/// A day: longer runs are probably mistakes.
const DURATION_MS_MAX: u64 = 86_400_000;
/// Maximum number of header lines that a load adds to its HTTP requests.
const HEADERS_MAX: usize = 64;

/// Refuses invalid combinations before anything is started.
pub(super) fn check(spec: &LoadSpec, work: &SocketWork) -> Result<()> {
    check_phases(spec)?;
    check_work(work)?;
    for (name, work) in &spec.side_loads {
        check_work(work).with_context(|| format!("load {name}"))?;
    }
    let all = || spec.side_loads.values().chain([work]);
    for (name, value, most) in [
        ("threads", all().map(|work| work.threads).sum(), THREADS_MAX),
        ("connections", all().map(|work| work.connections).sum::<usize>(), CONNECTIONS_MAX),
    ] {
        ensure!(value <= most, "{name} of all loads must be at most {most}");
    }
    Ok(())
}

fn check_phases(spec: &LoadSpec) -> Result<()> {
    ensure!(spec.window_ms > 0, "window_ms must be at least 1");
    ensure!(
        (1..=DURATION_MS_MAX).contains(&spec.duration_ms),
        "duration_ms must be from 1 to {DURATION_MS_MAX}"
    );
    let (Warmup::Fixed { ms: warmup_ms } | Warmup::Steady { max_ms: warmup_ms }) = spec.warmup;
    ensure!(warmup_ms <= DURATION_MS_MAX, "the warm-up must be at most {DURATION_MS_MAX} ms");
    ensure!(spec.operations_max != Some(0), "operations_max must be at least 1");
    Ok(())
}

fn check_work(work: &SocketWork) -> Result<()> {
    for (name, value, most) in [
        ("threads", work.threads, THREADS_MAX),
        ("connections", work.connections, CONNECTIONS_MAX),
        ("pipeline", work.pipeline, PIPELINE_MAX),
    ] {
        ensure!((1..=most).contains(&value), "{name} must be from 1 to {most}");
    }
    ensure!(work.users <= USERS_MAX, "users must be at most {USERS_MAX}");
    if let Arrival::Open { per_second, .. } = work.arrival {
        let is_rate = per_second > 0.0 && per_second <= PER_SECOND_MAX;
        ensure!(is_rate, "per_second must be above 0 and at most {PER_SECOND_MAX}");
    }
    ensure!((1..=KEYS_MAX).contains(&work.keys.count), "keys.count must be from 1 to {KEYS_MAX}");
    if let Distribution::Zipfian { exponent } | Distribution::Latest { exponent } =
        work.keys.distribution
    {
        ensure!((0.0..=100.0).contains(&exponent), "the exponent must be from 0 to 100");
    }
    if let Sizes::Between(least, most) = work.value_bytes {
        ensure!(least <= most, "value_bytes: {least} is more than {most}");
    }
    ensure!(
        longest(work.value_bytes) <= VALUE_BYTES_MAX,
        "value_bytes must be at most {VALUE_BYTES_MAX}"
    );
    check_mix(work)
}

fn check_mix(work: &SocketWork) -> Result<()> {
    ensure!(!work.mix.is_empty(), "the mix has no operation");
    ensure!(
        work.mix.len() <= OPERATIONS_MAX,
        "the mix has {} operations, more than {OPERATIONS_MAX}",
        work.mix.len()
    );
    let is_weight = |weight: f64| weight.is_finite() && weight >= 0.0;
    ensure!(
        work.mix.iter().all(|operation| is_weight(operation.weight)),
        "weights must be non-negative numbers"
    );
    let sum: f64 = work.mix.iter().map(|operation| operation.weight).sum();
    ensure!(sum > 0.0 && sum.is_finite(), "the sum of the weights must be above 0");
    let Operation { words, .. } =
        work.mix.iter().find(|one| one.words.is_empty()).unwrap_or(&work.mix[0]);
    ensure!(!words.is_empty(), "an operation of the mix has no words");
    match work.protocol {
        Protocol::Resp => {}
        Protocol::RespInline => ensure!(
            work.mix.iter().flat_map(|one| &one.words).all(|word| is_plain(word)),
            "inline commands cannot contain words with blanks or quotes"
        ),
        Protocol::Memcached => check_memcached(work)?,
        Protocol::Cql => check_cql(work)?,
        Protocol::Http => check_http(work)?,
    }
    ensure!(
        work.cql.is_some() == (work.protocol == Protocol::Cql),
        "options of cql require its protocol"
    );
    ensure!(
        work.http.is_some() == (work.protocol == Protocol::Http),
        "options of http require its protocol"
    );
    let request_bytes = if work.cql.is_some() {
        Statements::bytes_max(work)
    } else {
        Mix::new(work, &vec![b'x'; longest(work.value_bytes)]).bytes_max()
    };
    let batch_bytes = request_bytes.saturating_mul(work.pipeline);
    ensure!(
        batch_bytes <= BATCH_BYTES_MAX,
        "{} requests at once are {batch_bytes} bytes; the limit is {BATCH_BYTES_MAX}",
        work.pipeline
    );
    Ok(())
}

fn check_cql(work: &SocketWork) -> Result<()> {
    ensure!(work.setup.is_empty(), "setup is not supported with CQL; use cql.schema");
    ensure!(
        work.mix.iter().all(|operation| operation.words.len() == 1),
        "for CQL, an operation is one word: a statement"
    );
    let users = if work.users == 0 { work.connections } else { work.users };
    // The thread with the most users may have the fewest connections.
    let threads = work.threads.min(work.connections);
    let of_connection = match work.sharing {
        Sharing::Blocking => 1,
        Sharing::Multiplexed => users.div_ceil(threads).div_ceil(work.connections / threads),
    };
    let streams = of_connection.saturating_mul(work.pipeline);
    ensure!(
        streams <= STREAMS_MAX,
        "{streams} requests on one connection exceed its {STREAMS_MAX} streams"
    );
    Ok(())
}

fn check_memcached(work: &SocketWork) -> Result<()> {
    for operation in &work.mix {
        let words: Vec<&str> = operation.words.iter().map(String::as_str).collect();
        let is_known = match words[..] {
            [name, _] => name.eq_ignore_ascii_case("get"),
            [name, _, _] => name.eq_ignore_ascii_case("set"),
            _ => false,
        };
        ensure!(is_known, "for memcached, operations are get KEY or set KEY VALUE");
        ensure!(is_plain(words[1]), "memcached keys cannot contain blanks");
    }
    ensure!(work.password.is_none(), "memcached's text protocol does not support passwords");
    ensure!(work.setup.is_empty(), "setup is not supported with memcached");
    Ok(())
}

fn check_http(work: &SocketWork) -> Result<()> {
    let is_target =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    for Operation { words, .. } in &work.mix {
        ensure!(
            matches!(words.len(), 2 | 3) && words[..2].iter().all(|word| is_target(word)),
            "for HTTP, an operation is a method, a target, and optionally a body"
        );
    }
    let is_head = |operation: &Operation| operation.words[0] == "HEAD";
    ensure!(
        work.mix.iter().all(is_head) || !work.mix.iter().any(is_head),
        "an HTTP mix cannot combine HEAD with other methods: its responses have no body"
    );
    ensure!(work.setup.is_empty(), "setup is not supported with HTTP");
    ensure!(work.password.is_none(), "password is not supported with HTTP; use http.headers");
    ensure!(work.sharing == Sharing::Blocking, "HTTP requires blocking sharing");
    let default = HttpWork::default();
    let http = work.http.as_deref().unwrap_or(&default);
    let is_short = http.connection == HttpConnection::Close;
    ensure!(work.pipeline == 1 || !is_short, "a connection for one request cannot have a pipeline");
    ensure!(
        is_short || (http.version != HttpVersion::V0_9 && !http.ignores_answers),
        "without answers, or with HTTP/0.9, a connection is for one request: http.connection = \"close\""
    );
    ensure!(
        (1..=DURATION_MS_MAX).contains(&http.timeout_ms),
        "http.timeout_ms must be from 1 to {DURATION_MS_MAX}"
    );
    let is_line = |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    let is_header = |(name, value): &(String, String)| is_plain(name) && is_line(value);
    ensure!(
        is_line(&http.host) && http.headers.iter().all(is_header),
        "http.host and http.headers must be printable ASCII"
    );
    ensure!(http.headers.len() <= HEADERS_MAX, "http.headers must be at most {HEADERS_MAX}");
    Ok(())
}

/// Whether a word is nonempty and needs no quotes.
fn is_plain(word: &str) -> bool {
    let is_special = |byte: u8| byte <= b' ' || b"'\"".contains(&byte) || byte == 0x7f;
    !word.is_empty() && !word.bytes().any(is_special)
}

#[cfg(test)]
mod tests {
    use super::super::spec::tests::{cql_work, http_work, spec, work};
    use super::*;

    #[track_caller]
    fn check_refused(change: impl Fn(&mut LoadSpec, &mut SocketWork), expected: &str) {
        let (mut spec, mut work) = (spec(), work());
        change(&mut spec, &mut work);
        let reason = format!("{:#}", check(&spec, &work).unwrap_err());
        assert!(reason.contains(expected), "{reason}");
    }

    /// A grid over servers has one mix for all of them.
    #[test]
    fn commands_of_memcached_are_those_of_redis_too() {
        let mut work = SocketWork { protocol: Protocol::Memcached, ..work() };
        for (words, is_known) in [
            (&["GET", "{key}"][..], true),
            (&["set", "{key}", "{value}"], true),
            (&["GET", "{key}", "{value}"], false),
            (&["DEL", "{key}"], false),
            (&["GET", "a b"], false),
        ] {
            work.mix[0].words = words.iter().map(ToString::to_string).collect();
            assert_eq!(check(&spec(), &work).is_ok(), is_known, "{words:?}");
        }
    }

    #[test]
    fn requests_of_cql_fit_its_streams() {
        let check_streams = |threads, connections, users, pipeline, expected: Option<usize>| {
            let work = SocketWork {
                threads,
                connections,
                users,
                pipeline,
                sharing: Sharing::Multiplexed,
                ..cql_work()
            };
            let found = check(&spec(), &work).err().map(|error| error.to_string());
            let expected = expected.map(|streams| {
                format!("{streams} requests on one connection exceed its 32768 streams")
            });
            assert_eq!(found, expected);
        };
        check_streams(1, 1, 32_768, 1, None);
        check_streams(1, 1, 1, 32_768, None);
        check_streams(1, 1, 32_769, 1, Some(32_769));
        check_streams(2, 3, 65_536, 1, None);
        check_streams(2, 3, 65_537, 1, Some(32_769));
        check_refused(|_, work| *work = SocketWork { cql: None, ..cql_work() }, "options of cql");
        let two_words = |_: &mut LoadSpec, work: &mut SocketWork| {
            *work = cql_work();
            work.mix[0].words.push("{key}".to_owned());
        };
        check_refused(two_words, "an operation is one word");
    }

    #[test]
    fn requests_of_http_are_method_target_and_body() {
        assert!(check(&spec(), &http_work()).is_ok());
        let refused = |change: fn(&mut SocketWork), expected: &str| {
            check_refused(
                |_, work| {
                    *work = http_work();
                    change(work);
                },
                expected,
            );
        };
        refused(|work| work.mix[0].words.truncate(1), "a method, a target");
        refused(|work| work.mix[0].words[1] = "/a b".to_owned(), "a method, a target");
        refused(
            |work| {
                let mut head = work.mix[0].clone();
                "HEAD".clone_into(&mut head.words[0]);
                work.mix.push(head);
            },
            "combine HEAD",
        );
        refused(|work| work.sharing = Sharing::Multiplexed, "requires blocking sharing");
        refused(|work| work.password = Some("p".to_owned()), "http.headers");
        refused(|work| work.http = None, "require its protocol");
        let http = |work: &mut SocketWork, change: fn(&mut HttpWork)| {
            change(work.http.as_mut().unwrap());
        };
        check_refused(
            |_, work| {
                *work = SocketWork { pipeline: 2, ..http_work() };
                http(work, |http| http.connection = HttpConnection::Close);
            },
            "cannot have a pipeline",
        );
        let changes: [fn(&mut HttpWork); 2] =
            [|http| http.version = HttpVersion::V0_9, |http| http.ignores_answers = true];
        for change in changes {
            check_refused(
                |_, work| {
                    *work = http_work();
                    http(work, change);
                },
                "for one request",
            );
        }
        check_refused(
            |_, work| {
                *work = http_work();
                http(work, |http| http.headers = vec![("a".to_owned(), "b\r\n".to_owned())]);
            },
            "printable ASCII",
        );
    }

    #[test]
    fn contradictory_specifications_are_refused() {
        assert!(check(&spec(), &work()).is_ok());
        check_refused(|spec, _| spec.window_ms = 0, "window_ms");
        check_refused(|spec, _| spec.duration_ms = 0, "duration_ms");
        check_refused(|spec, _| spec.operations_max = Some(0), "operations_max");
        check_refused(|_, work| work.threads = 0, "threads must be from 1");
        check_refused(|_, work| work.connections = 100_000, "connections must be from 1 to 60000");
        check_refused(|_, work| work.pipeline = 0, "pipeline");
        check_refused(|_, work| work.users = 2_000_000, "users");
        check_refused(|_, work| work.keys.count = 0, "keys.count");
        check_refused(|_, work| work.mix.clear(), "no operation");
        check_refused(|_, work| work.mix[0].words.clear(), "no words");
        check_refused(|_, work| work.mix[0].weight = f64::NAN, "weights");
        check_refused(|_, work| work.mix[0].weight = 0.0, "must be above 0");
        check_refused(|_, work| work.value_bytes = Sizes::Between(3, 2), "3 is more than 2");
        check_refused(
            |_, work| {
                work.protocol = Protocol::Memcached;
                work.mix[0].words = vec!["PING".to_owned()];
            },
            "get KEY",
        );
        check_refused(
            |_, work| {
                work.pipeline = PIPELINE_MAX;
                work.value_bytes = Sizes::Fixed(1 << 20);
                work.mix[0].words.push("{value}".to_owned());
            },
            "requests at once",
        );
        check_refused(
            |_, work| {
                work.protocol = Protocol::RespInline;
                work.mix[0].words.push("two words".to_owned());
            },
            "blanks",
        );
        let open = |per_second| Arrival::Open { per_second, schedule: crate::load::Schedule::Even };
        check_refused(
            |spec, work| {
                let more = SocketWork { pipeline: 0, ..work.clone() };
                spec.side_loads.insert("writers".to_owned(), more);
            },
            "load writers: pipeline must be from 1",
        );
        check_refused(
            |spec, work| {
                work.connections = 40_000;
                spec.side_loads.insert("writers".to_owned(), work.clone());
            },
            "connections of all loads must be at most 60000",
        );
        check_refused(|_, work| work.arrival = open(0.0), "per_second");
        check_refused(|_, work| work.arrival = open(f64::NAN), "per_second");
        let zipfian = Distribution::Zipfian { exponent: -1.0 };
        check_refused(|_, work| work.keys.distribution = zipfian, "exponent");
    }
}
