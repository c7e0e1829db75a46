//! The available tests.

use super::options::Options;
use crate::load::Protocol;

/// One test: a command that is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) title: String,
    pub(crate) protocol: Protocol,
    /// In the format of a mix.
    pub(crate) words: Vec<String>,
    pub(crate) payload_bytes: usize,
}

/// Title, names that select it, and its words: `KEY` is the number of a key or member, `DATA` the
/// value.
// Source: redis-benchmark 7.0, the tests that it runs without a command
const TESTS: [(&str, &[&str], &str); 21] = [
    ("PING_INLINE", &["ping_inline", "ping"], "PING"),
    ("PING_MBULK", &["ping_mbulk", "ping"], "PING"),
    ("SET", &["set"], "SET key:KEY DATA"),
    ("GET", &["get"], "GET key:KEY"),
    ("INCR", &["incr"], "INCR counter:KEY"),
    ("LPUSH", &["lpush"], "LPUSH mylist DATA"),
    ("RPUSH", &["rpush"], "RPUSH mylist DATA"),
    ("LPOP", &["lpop"], "LPOP mylist"),
    ("RPOP", &["rpop"], "RPOP mylist"),
    ("SADD", &["sadd"], "SADD myset element:KEY"),
    ("HSET", &["hset"], "HSET myhash element:KEY DATA"),
    ("SPOP", &["spop"], "SPOP myset"),
    ("ZADD", &["zadd"], "ZADD myzset SCORE element:KEY"),
    ("ZPOPMIN", &["zpopmin"], "ZPOPMIN myzset"),
    (
        "LPUSH (needed to benchmark LRANGE)",
        &["lrange", "lrange_100", "lrange_300", "lrange_500", "lrange_600"],
        "LPUSH mylist DATA",
    ),
    ("LRANGE_100 (first 100 elements)", &["lrange", "lrange_100"], "LRANGE mylist 0 99"),
    ("LRANGE_300 (first 300 elements)", &["lrange", "lrange_300"], "LRANGE mylist 0 299"),
    ("LRANGE_500 (first 500 elements)", &["lrange", "lrange_500"], "LRANGE mylist 0 499"),
    ("LRANGE_600 (first 600 elements)", &["lrange", "lrange_600"], "LRANGE mylist 0 599"),
    ("MSET (10 keys)", &["mset"], MSET),
    ("XADD", &["xadd"], "XADD mystream * myfield DATA"),
];
const MSET: &str = "MSET key:KEY DATA key:KEY DATA key:KEY DATA key:KEY DATA key:KEY DATA \
                    key:KEY DATA key:KEY DATA key:KEY DATA key:KEY DATA key:KEY DATA";
/// Placeholder for a random number.
const PLACE: &str = "__rand_int__";

/// Returns the selected tests, in order.
pub(crate) fn selected(options: &Options) -> Vec<Test> {
    if !options.command.is_empty() {
        return vec![custom(options)];
    }
    let is_selected = |names: &[&str]| match &options.tests {
        None => true,
        Some(tests) => names.iter().any(|name| tests.contains(&format!(",{name},"))),
    };
    let tests = TESTS.iter().filter(|(_, names, _)| is_selected(names));
    tests.map(|(title, _, words)| standard(title, words, options)).collect()
}

fn standard(title: &str, words: &str, options: &Options) -> Test {
    let score = if options.keys_count.is_some() { PLACE } else { "0" };
    let word = |word: &str| {
        let word = word.replace("KEY", PLACE).replace("SCORE", score).replace("DATA", "{value}");
        randomized(&word, options)
    };
    Test {
        title: title.to_owned(),
        protocol: if title == "PING_INLINE" { Protocol::RespInline } else { Protocol::Resp },
        words: words.split(' ').map(word).collect(),
        payload_bytes: options.data_bytes,
    }
}

fn custom(options: &Options) -> Test {
    let words: Vec<&[u8]> = options.command.iter().map(String::as_bytes).collect();
    let mut request = Vec::new();
    wire::resp::encode_request(&words, &mut request);
    Test {
        title: options.command.join(" "),
        protocol: Protocol::Resp,
        words: options.command.iter().map(|word| randomized(word, options)).collect(),
        payload_bytes: request.len(),
    }
}

/// Keys have no prefix here, so a key of the mix has 12 digits.
fn randomized(word: &str, options: &Options) -> String {
    if options.keys_count.is_some() { word.replace(PLACE, "{key}") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(tests: &str) -> Vec<String> {
        let options = Options { tests: Some(format!(",{tests},")), ..Options::default() };
        selected(&options).into_iter().map(|test| test.title).collect()
    }

    #[test]
    fn names_select_tests() {
        assert_eq!(titles("ping,set"), ["PING_INLINE", "PING_MBULK", "SET"]);
        assert_eq!(
            titles("lrange_300"),
            ["LPUSH (needed to benchmark LRANGE)", "LRANGE_300 (first 300 elements)"]
        );
        assert!(titles("nothing").is_empty());
        assert_eq!(selected(&Options::default()).len(), 21);
    }

    #[test]
    fn numbers_are_random_only_when_asked_for() {
        let words = |keys_count| {
            let tests = Some(",zadd,".to_owned());
            let options = Options { keys_count, tests, ..Options::default() };
            selected(&options).remove(0).words.join(" ")
        };
        assert_eq!(words(None), "ZADD myzset 0 element:__rand_int__");
        assert_eq!(words(Some(9)), "ZADD myzset {key} element:{key}");
    }

    #[test]
    fn a_command_is_the_only_test() {
        let command = ["set", "foo:__rand_int__", "bar"].map(str::to_owned).to_vec();
        let options = Options { command, keys_count: Some(1000), ..Options::default() };
        let tests = selected(&options);
        assert_eq!(tests.len(), 1);
        assert_eq!(tests[0].title, "set foo:__rand_int__ bar");
        assert_eq!(tests[0].payload_bytes, 45);
        assert_eq!(tests[0].words, ["set", "foo:{key}", "bar"]);
    }
}
