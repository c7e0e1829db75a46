//! Kinds of values that only the server has. Error texts match those of Redis where it has one.

use std::net::SocketAddr;

use base::units::parse_bytes;
use options::{Form, Kind, Value, ValueError};

use super::key_events::KeyEvents;
use super::settings::{
    FileMode, MasterAddress, OtlpEndpoint, OutputLimit, OutputLimits, Password, ReplicaOf,
    SavePoint, SavePoints, Settings,
};

const NOT_ADDRESSES: ValueError =
    ValueError::Invalid("argument must be addresses such as 127.0.0.1:6379");
const OUTPUT_LIMIT_COUNT: ValueError =
    ValueError::Invalid("Wrong number of arguments in buffer limit configuration.");
const OUTPUT_LIMIT_CLASS: ValueError =
    ValueError::Invalid("Invalid client class specified in buffer limit configuration.");
const OUTPUT_LIMIT_VALUE: ValueError = ValueError::Invalid(
    "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
);
const NOT_PERCENTILES: ValueError =
    ValueError::Invalid("Invalid latency-tracking-info-percentiles parameters");
const PERCENTILE_RANGE: ValueError = ValueError::Invalid(
    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
);

/// Addresses to listen on.
macro_rules! addresses {
    ($field:ident) => {
        options::Kind::Value {
            form: options::Form::List,
            expected: "IP:PORT, separated by blanks",
            get: |settings| crate::config::values::joined(&settings.$field),
            set: |settings, text| {
                settings.$field = crate::config::values::parse_addresses(text)?;
                Ok(())
            },
        }
    };
}
pub(super) use addresses;

pub(super) const PERCENTILES: Kind<Settings> = Kind::Value {
    form: Form::Text,
    expected: "numbers from 0 to 100",
    get: |settings| joined(&settings.latency_tracking_info_percentiles),
    set: |settings, text| {
        settings.latency_tracking_info_percentiles = parse_percentiles(text)?;
        Ok(())
    },
};

pub(super) const OUTPUT_LIMITS: Kind<Settings> = Kind::Value {
    form: Form::Text,
    expected: "CLASS HARD SOFT SECONDS ...",
    get: |settings| output_limits_text(&settings.client_output_buffer_limit),
    set: |settings, text| update_output_limits(&mut settings.client_output_buffer_limit, text),
};

impl Value for Password {
    fn read(text: &str) -> Result<Password, ValueError> {
        Ok(Password(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}

impl Value for ReplicaOf {
    // Source: Redis 7.2 `redis.conf`, `replicaof`
    fn read(text: &str) -> Result<ReplicaOf, ValueError> {
        const ERROR: ValueError =
            ValueError::Invalid("argument must be HOST:PORT, or a host and a port");
        let mut words = text.split_ascii_whitespace();
        let (host, port) = match (words.next(), words.next(), words.next()) {
            (None, ..) => return Ok(ReplicaOf(None)),
            (Some(address), None, None) => base::address::split(address).map_err(|_| ERROR)?,
            (Some(host), Some(port), None) => {
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                (bare.unwrap_or(host), port.parse().map_err(|_| ERROR)?)
            }
            _ => return Err(ERROR),
        };
        if port == 0 {
            return Err(ERROR);
        }
        Ok(ReplicaOf(Some(MasterAddress { host: host.to_owned(), port })))
    }

    fn text(&self) -> String {
        self.0.as_ref().map_or_else(String::new, ToString::to_string)
    }
}

impl Value for OtlpEndpoint {
    fn read(text: &str) -> Result<OtlpEndpoint, ValueError> {
        const ERROR: ValueError =
            ValueError::Invalid("argument must be a URL http://HOST:PORT, without TLS");
        if text.is_empty() {
            return Ok(OtlpEndpoint(None));
        }
        text.parse().map(|url| OtlpEndpoint(Some(url))).map_err(|()| ERROR)
    }

    fn text(&self) -> String {
        self.0.as_ref().map_or_else(String::new, ToString::to_string)
    }
}

/// Source: Redis 7.2 `config.c`, `setConfigSaveOption`
impl Value for SavePoints {
    fn read(text: &str) -> Result<SavePoints, ValueError> {
        const ERROR: ValueError = ValueError::Invalid("Invalid save parameters");
        const POINTS_MAX: usize = 64;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() || pairs.len() > POINTS_MAX {
            return Err(ERROR);
        }
        let number = |word: &str| word.parse::<u32>().map(u64::from).map_err(|_| ERROR);
        let point = |[seconds, changes]: &[&str; 2]| {
            let seconds = number(seconds).ok().filter(|seconds| *seconds > 0).ok_or(ERROR)?;
            Ok(SavePoint { seconds, changes: number(changes)? })
        };
        pairs.iter().map(point).collect::<Result<_, _>>().map(SavePoints)
    }

    fn text(&self) -> String {
        let pair = |point: &SavePoint| format!("{} {}", point.seconds, point.changes);
        self.0.iter().map(pair).collect::<Vec<_>>().join(" ")
    }
}

impl Value for FileMode {
    // Source: Redis 7.2 `config.c`, `unixsocketperm`, an option with OCTAL_CONFIG
    fn read(text: &str) -> Result<FileMode, ValueError> {
        const ERROR: ValueError = ValueError::Invalid("argument must be an octal number up to 777");
        let is_octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
        mode.map(FileMode).ok_or(ERROR)
    }

    fn text(&self) -> String {
        format!("{:o}", self.0)
    }
}

impl Value for KeyEvents {
    fn read(text: &str) -> Result<KeyEvents, ValueError> {
        const ERROR: ValueError =
            ValueError::Invalid("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.");
        KeyEvents::parse(text).ok_or(ERROR)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

pub(super) fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

pub(super) fn parse_addresses(text: &str) -> Result<Vec<SocketAddr>, ValueError> {
    text.split([' ', ',']).filter(|part| !part.is_empty()).map(parse_address).collect()
}

fn parse_address(text: &str) -> Result<SocketAddr, ValueError> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| NOT_ADDRESSES)
}

fn parse_percentiles(text: &str) -> Result<Vec<f64>, ValueError> {
    let parse = |part: &str| match part.parse::<f64>() {
        Ok(percentile) if (0.0..=100.0).contains(&percentile) => Ok(percentile),
        Ok(_) => Err(PERCENTILE_RANGE),
        Err(_) => Err(NOT_PERCENTILES),
    };
    text.split_ascii_whitespace().map(parse).collect()
}

/// Parses the Redis form: any number of `CLASS HARD SOFT SECONDS`. Other classes keep their limits.
fn update_output_limits(limits: &mut OutputLimits, text: &str) -> Result<(), ValueError> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let groups = words.chunks_exact(4);
    if !groups.remainder().is_empty() {
        return Err(OUTPUT_LIMIT_COUNT);
    }
    for group in groups {
        let limit = match group[0].to_ascii_lowercase().as_str() {
            "normal" => &mut limits.normal,
            "slave" | "replica" => &mut limits.replica,
            "pubsub" => &mut limits.pubsub,
            _ => return Err(OUTPUT_LIMIT_CLASS),
        };
        let bytes = |text| parse_bytes(text).map_err(|_| OUTPUT_LIMIT_VALUE);
        let seconds = group[3].parse::<u32>().map_err(|_| OUTPUT_LIMIT_VALUE)?;
        *limit = OutputLimit {
            hard_bytes: bytes(group[1])?,
            soft_bytes: bytes(group[2])?,
            soft_seconds: u64::from(seconds),
        };
    }
    Ok(())
}

fn output_limits_text(limits: &OutputLimits) -> String {
    let classes = [("normal", limits.normal), ("slave", limits.replica), ("pubsub", limits.pubsub)];
    let group = |(class, limit): (&str, OutputLimit)| {
        format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
    };
    classes.map(group).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{find, rows};
    use proptest::prelude::*;

    fn check(name: &str, text: &str, expected: Result<&str, &str>) {
        let option = find(name).unwrap();
        let mut settings = Settings::default();
        let found = option.set(&mut settings, text).map(|()| option.text(&settings));
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name} = {text:?}");
    }

    #[test]
    fn a_collector_has_a_url_without_tls() {
        const ERROR: &str = "argument must be a URL http://HOST:PORT, without TLS";
        for url in ["", "http://collector:4318", "http://[::1]:4318/prefix", "http://10.0.0.5:1"] {
            check("otlp-endpoint", url, Ok(url));
        }
        check("otlp-endpoint", "http://h:1/a/", Ok("http://h:1/a"));
        for other in [
            "h:4318",
            "https://h:1",
            "http://",
            "http:///v1",
            "http://h",
            "http://:1",
            "http://h:0",
            "http://h:+1",
            "http://h:65536",
            "http://h:43l8",
            "http://[h]:1",
            "http://::1:1",
            "http://u@h:1",
            "http://h:1/?a",
            "http://h:1/a b",
            "http://h:1/\u{e9}",
        ] {
            check("otlp-endpoint", other, Err(ERROR));
        }
    }

    #[test]
    fn a_master_is_written_in_both_forms() {
        const ERROR: &str = "argument must be HOST:PORT, or a host and a port";
        for (text, expected) in [
            ("10.0.0.1 6379", "10.0.0.1 6379"),
            ("10.0.0.1:6379", "10.0.0.1 6379"),
            (" db.internal   1 ", "db.internal 1"),
            ("db.internal:65535", "db.internal 65535"),
            ("[::1]:6379", "::1 6379"),
            ("::1 6379", "::1 6379"),
            ("[::1] 6379", "::1 6379"),
            ("", ""),
        ] {
            check("replicaof", text, Ok(expected));
        }
        for other in ["h", "h 0", "h:0", "h 65536", "::1:6379", "[::1]", ":6379", "a b c", "h:x"] {
            check("replicaof", other, Err(ERROR));
        }
    }

    #[test]
    fn values_are_read_as_redis_reads_them() {
        for (name, text, expected) in [
            ("maxmemory", "100mb", Ok("104857600")),
            ("maxmemory", "1k", Ok("1000")),
            ("maxmemory", "", Ok("0")),
            ("maxmemory", "-1", Err("argument must be a memory value")),
            ("maxmemory", "10%", Err("argument must be a memory value")),
            ("hz", "100", Ok("100")),
            ("hz", "abc", Err("argument couldn't be parsed into an integer")),
            ("hz", "+1", Err("argument couldn't be parsed into an integer")),
            ("hz", "01", Err("argument couldn't be parsed into an integer")),
            ("hz", "501", Err("argument must be between 1 and 500 inclusive")),
            ("maxclients", "0", Err("argument must be between 1 and 4294967295 inclusive")),
            ("timeout", "-1", Err("argument must be between 0 and 2147483647 inclusive")),
            (
                "slowlog-log-slower-than",
                "-2",
                Err("argument must be between -1 and 9223372036854775807 inclusive"),
            ),
            (
                "proto-max-bulk-len",
                "100",
                Err("argument must be between 1048576 and 9223372036854775807 inclusive"),
            ),
            ("latency-tracking", "YES", Ok("yes")),
            ("latency-tracking", "maybe", Err("argument must be 'yes' or 'no'")),
            ("maxmemory-policy", "ALLKEYS-lru", Ok("allkeys-lru")),
            (
                "appendfsync",
                "foo",
                Err("argument(s) must be one of the following: everysec, always, no"),
            ),
            ("latency-tracking-info-percentiles", "50 99.9", Ok("50 99.9")),
            ("latency-tracking-info-percentiles", "", Ok("")),
            (
                "latency-tracking-info-percentiles",
                "50 abc",
                Err("Invalid latency-tracking-info-percentiles parameters"),
            ),
            (
                "latency-tracking-info-percentiles",
                "101",
                Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
            ),
            (
                "latency-tracking-info-percentiles",
                "NaN",
                Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
            ),
            ("read-buffer-memory-limit", "-5", Ok("-5")),
            ("read-buffer-memory-limit", "64mb", Ok("67108864")),
            (
                "read-buffer-memory-limit",
                "-101",
                Err("argument must be a memory value or a percent value"),
            ),
            ("resp", "127.0.0.1:1, [::1]:2 localhost:3", Ok("127.0.0.1:1 [::1]:2 127.0.0.1:3")),
            ("resp", "example.org:1", Err("argument must be addresses such as 127.0.0.1:6379")),
            ("dir", "a\nb", Err("argument must be UTF-8 text without control characters")),
        ] {
            check(name, text, expected);
        }
    }

    #[test]
    fn output_limits_change_by_class() {
        check(
            "client-output-buffer-limit",
            "replica 1mb 2k 3",
            Ok("normal 0 0 0 slave 1048576 2000 3 pubsub 33554432 8388608 60"),
        );
        for (text, error) in [
            ("normal 1", "Wrong number of arguments in buffer limit configuration."),
            ("norm 1 1 1", "Invalid client class specified in buffer limit configuration."),
            (
                "normal abc 1 1",
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
            (
                "normal 0 0 -1",
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
        ] {
            check("client-output-buffer-limit", text, Err(error));
        }
    }

    #[test]
    fn a_view_accepts_only_what_it_shows() {
        check("appendonly", "yes", Ok("yes"));
        check(
            "appendonly",
            "no",
            Err("only 'yes' is possible here. Every write is logged: see durability."),
        );
        check("save", "", Ok(""));
        check("save", "3600 1  300 100", Ok("3600 1 300 100"));
        for text in ["900", "0 1", "900 -1", "abc", "1 2 3"] {
            check("save", text, Err("Invalid save parameters"));
        }
        check("port", "6379", Ok("6379"));
        check("databases", "17", Err("can't set immutable config"));
    }

    proptest! {
        /// Any accepted value prints as a text that parses to the same settings.
        #[test]
        fn any_text_is_refused_or_reads_back(at in 0..rows().count(), text in "\\PC{0,20}|-?[0-9]{1,19}(kb|mb)?") {
            let option = rows().nth(at).unwrap();
            let mut settings = Settings::default();
            if option.set(&mut settings, &text).is_ok() {
                let mut again = Settings::default();
                prop_assert_eq!(option.set(&mut again, &option.text(&settings)), Ok(()));
                prop_assert_eq!(again, settings);
            }
        }
    }
}
