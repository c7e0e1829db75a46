//! WITH clauses of tables: the options, their valid values and their defaults.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use uuid::Uuid;

use super::table::TableOptions;
use crate::error::CqlError;
use crate::statements::{OptionValue, Options};

/// Maximum time to live in seconds: 20 years.
// Source: Cassandra 5.0, cql3.Attributes.MAX_TTL
pub(crate) const TIME_TO_LIVE_MAX: u32 = 20 * 365 * 24 * 3600;

/// How an option is parsed, stored and printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionKind {
    Text,
    Boolean,
    Integer,
    Number,
    Map,
    /// A map whose values are bytes.
    Extensions,
}

/// One option of a table.
#[derive(Debug)]
pub(crate) struct TableOption {
    pub(crate) name: &'static str,
    pub(crate) kind: OptionKind,
    /// For a map: `key value key value`.
    default: &'static str,
    check: Check,
}

#[derive(Debug, Clone, Copy)]
enum Check {
    Any,
    AtLeast(i64),
    /// Not zero, at most one.
    FilterChance,
    /// From 0 to 1.
    Chance,
    TimeToLive,
    SpeculativeRetry,
    ReadRepair,
    Memtable,
    Caching,
    Compaction,
    Compression,
}

const fn option(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    check: Check,
) -> TableOption {
    TableOption { name, kind, default, check }
}

const COMPACTION: &str = "class org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy \
                          max_threshold 32 min_threshold 4";
const COMPRESSION: &str =
    "chunk_length_in_kb 16 class org.apache.cassandra.io.compress.LZ4Compressor";

/// In the order in which Cassandra prints them.
// Source: Cassandra 5.0, schema.TableParams
pub(crate) const TABLE_OPTIONS: [TableOption; 19] = [
    option("additional_write_policy", OptionKind::Text, "99p", Check::SpeculativeRetry),
    option("allow_auto_snapshot", OptionKind::Boolean, "true", Check::Any),
    option("bloom_filter_fp_chance", OptionKind::Number, "0.01", Check::FilterChance),
    option("caching", OptionKind::Map, "keys ALL rows_per_partition NONE", Check::Caching),
    option("cdc", OptionKind::Boolean, "false", Check::Any),
    option("comment", OptionKind::Text, "", Check::Any),
    option("compaction", OptionKind::Map, COMPACTION, Check::Compaction),
    option("compression", OptionKind::Map, COMPRESSION, Check::Compression),
    option("memtable", OptionKind::Text, "default", Check::Memtable),
    option("crc_check_chance", OptionKind::Number, "1.0", Check::Chance),
    option("default_time_to_live", OptionKind::Integer, "0", Check::TimeToLive),
    option("extensions", OptionKind::Extensions, "", Check::Any),
    option("gc_grace_seconds", OptionKind::Integer, "864000", Check::AtLeast(0)),
    option("incremental_backups", OptionKind::Boolean, "true", Check::Any),
    option("max_index_interval", OptionKind::Integer, "2048", Check::Any),
    option("memtable_flush_period_in_ms", OptionKind::Integer, "0", Check::AtLeast(0)),
    option("min_index_interval", OptionKind::Integer, "128", Check::AtLeast(1)),
    option("read_repair", OptionKind::Text, "BLOCKING", Check::ReadRepair),
    option("speculative_retry", OptionKind::Text, "99p", Check::SpeculativeRetry),
];

const COMPACTION_PACKAGE: &str = "org.apache.cassandra.db.compaction.";
const COMPACTIONS: [&str; 4] = [
    "SizeTieredCompactionStrategy",
    "LeveledCompactionStrategy",
    "TimeWindowCompactionStrategy",
    "UnifiedCompactionStrategy",
];
const COMPRESSION_PACKAGE: &str = "org.apache.cassandra.io.compress.";
const COMPRESSIONS: [&str; 5] =
    ["LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"];

/// Keys allowed in `compression`. The options of one compressor are accepted for all.
const COMPRESSION_OPTIONS: [&str; 6] = [
    "class",
    "chunk_length_in_kb",
    "min_compress_ratio",
    "lz4_compressor_type",
    "lz4_high_compressor_level",
    "compression_level",
];

impl TableOption {
    pub(crate) fn is_map(&self) -> bool {
        matches!(self.kind, OptionKind::Map | OptionKind::Extensions)
    }

    fn default_map(&self) -> BTreeMap<String, String> {
        let words: Vec<&str> = self.default.split_whitespace().collect();
        let (pairs, _) = words.as_chunks::<2>();
        pairs.iter().map(|[key, value]| ((*key).to_owned(), (*value).to_owned())).collect()
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        let mut options = TableOptions {
            comment: String::new(),
            default_time_to_live: 0,
            gc_grace_seconds: 0,
            others: BTreeMap::new(),
            maps: BTreeMap::new(),
        };
        for option in &TABLE_OPTIONS {
            if option.is_map() {
                options.maps.insert(option.name.to_owned(), option.default_map());
            } else {
                options.put(option.name, option.default.to_owned());
            }
        }
        options
    }
}

impl TableOptions {
    /// A plain option as text. `name` is one of [`TABLE_OPTIONS`].
    pub(crate) fn text(&self, name: &str) -> String {
        match name {
            "comment" => self.comment.clone(),
            "default_time_to_live" => self.default_time_to_live.to_string(),
            "gc_grace_seconds" => self.gc_grace_seconds.to_string(),
            _ => self.others.get(name).cloned().unwrap_or_default(),
        }
    }

    /// Stores a checked text.
    pub(super) fn put(&mut self, name: &str, text: String) {
        let number = || text.parse().unwrap_or(0);
        match name {
            "comment" => self.comment = text,
            "default_time_to_live" => self.default_time_to_live = number(),
            "gc_grace_seconds" => self.gc_grace_seconds = number(),
            _ => {
                self.others.insert(name.to_owned(), text);
            }
        }
    }

    /// Sets the options of a WITH clause.
    pub(super) fn take(&mut self, given: &Options) -> Result<(), CqlError> {
        let known: Vec<&str> = TABLE_OPTIONS.iter().map(|option| option.name).collect();
        refuse_unknown(given, &known)?;
        for option in &TABLE_OPTIONS {
            let Some((_, value)) = given.iter().find(|(name, _)| name == option.name) else {
                continue;
            };
            if option.is_map() {
                let map = checked_map(option, map_of(option.name, value)?)?;
                self.maps.insert(option.name.to_owned(), map);
            } else {
                let text = checked_text(option, text_of(option.name, value)?)?;
                self.put(option.name, text);
            }
        }
        let interval = |name: &str| self.text(name).parse::<i64>().unwrap_or(0);
        let (min, max) = (interval("min_index_interval"), interval("max_index_interval"));
        if max < min {
            return config(format!(
                "max_index_interval must be greater than or equal to min_index_interval ({min}) \
                 (got {max})"
            ));
        }
        Ok(())
    }
}

fn config<T>(message: String) -> Result<T, CqlError> {
    Err(CqlError::Config(message))
}

fn syntax<T>(message: String) -> Result<T, CqlError> {
    Err(CqlError::Syntax(message))
}

/// Each name must be known and occur once.
pub(super) fn refuse_unknown(given: &Options, known: &[&str]) -> Result<(), CqlError> {
    for (nth, (name, _)) in given.iter().enumerate() {
        if given[..nth].iter().any(|(other, _)| other == name) {
            return syntax(format!("Multiple definitions for property '{name}'"));
        }
        if !known.contains(&name.as_str()) {
            return syntax(format!("Unknown property '{name}'"));
        }
    }
    Ok(())
}

pub(super) fn text_of<'a>(name: &str, value: &'a OptionValue) -> Result<&'a str, CqlError> {
    match value {
        OptionValue::Text(text) => Ok(text),
        OptionValue::Map(_) => {
            syntax(format!("Invalid value for property '{name}'. It should be a string"))
        }
    }
}

pub(super) fn map_of(
    name: &str,
    value: &OptionValue,
) -> Result<BTreeMap<String, String>, CqlError> {
    let OptionValue::Map(pairs) = value else {
        return syntax(format!("Invalid value for property '{name}'. It should be a map."));
    };
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if map.insert(key.clone(), value.clone()).is_some() {
            return syntax(format!("Multiple definition for property {key}"));
        }
    }
    Ok(map)
}

pub(super) fn boolean_of(name: &str, text: &str) -> Result<bool, CqlError> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => syntax(format!(
            "Invalid boolean value {text} for '{name}'. Positive values can be '1', 'true' or \
             'yes'. Negative values can be '0', 'false' or 'no'."
        )),
    }
}

/// Removes and returns a property `id`, which is not an option.
pub(super) fn take_id(options: &mut Options) -> Result<Option<Uuid>, CqlError> {
    let Some(at) = options.iter().position(|(name, _)| name == "id") else { return Ok(None) };
    let (name, value) = options.remove(at);
    let id = Uuid::try_parse(text_of(&name, &value)?);
    id.map(Some).map_err(|_| CqlError::Config("Invalid table id".into()))
}

fn checked_text(option: &TableOption, text: &str) -> Result<String, CqlError> {
    let name = option.name;
    let text = match option.kind {
        OptionKind::Boolean => boolean_of(name, text)?.to_string(),
        OptionKind::Integer => match text.parse::<i32>() {
            Ok(number) => number.to_string(),
            Err(_) => return syntax(format!("Invalid integer value {text} for '{name}'")),
        },
        OptionKind::Number => match text.parse::<f64>() {
            Ok(number) => java_double(number),
            Err(_) => return syntax(format!("Invalid double value {text} for '{name}'")),
        },
        OptionKind::Text | OptionKind::Map | OptionKind::Extensions => text.to_owned(),
    };
    let number = || text.parse::<i64>().unwrap_or(0);
    let chance = || text.parse::<f64>().unwrap_or(0.0);
    match option.check {
        Check::AtLeast(least) if number() < least => {
            config(format!("{name} must be greater than or equal to {least} (got {text})"))
        }
        Check::TimeToLive if number() < 0 => {
            config(format!("{name} must be greater than or equal to 0 (got {text})"))
        }
        Check::TimeToLive if number() > i64::from(TIME_TO_LIVE_MAX) => {
            config(format!("{name} must be less than or equal to {TIME_TO_LIVE_MAX} (got {text})"))
        }
        // Source: Cassandra 5.0, utils.BloomCalculations.minSupportedBloomFilterFpChance
        Check::FilterChance if !(chance() > 6.71e-5 && chance() <= 1.0) => config(format!(
            "{name} must be larger than 6.71E-5 and less than or equal to 1.0 (got {text})"
        )),
        Check::Chance if !(0.0..=1.0).contains(&chance()) => config(format!(
            "{name} must be larger than or equal to 0 and smaller than or equal to 1.0 (got {text})"
        )),
        Check::SpeculativeRetry => speculative_retry(&text),
        Check::ReadRepair => {
            let upper = text.to_uppercase();
            if upper == "BLOCKING" || upper == "NONE" {
                return Ok(upper);
            }
            config(format!("Invalid value for 'read_repair': {text}"))
        }
        Check::Memtable if text != "default" => {
            config(format!("Memtable configuration \"{text}\" not found."))
        }
        _ => Ok(text),
    }
}

/// A double in Java's format for numbers that are neither very large nor very small.
pub(super) fn java_double(number: f64) -> String {
    let mut text = String::new();
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        let scientific = format!("{number:E}");
        let (mantissa, exponent) = scientific.split_once('E').unwrap_or((&scientific, "0"));
        let point = if mantissa.contains('.') { "" } else { ".0" };
        let written = write!(text, "{mantissa}{point}E{exponent}");
        written.expect("strings take all");
        return text;
    }
    format!("{number:?}")
}

/// `99p`, `50ms`, `ALWAYS`, `NEVER` or its old name `NONE`, `MIN(99p, 50ms)`.
// Source: Cassandra 5.0, service.reads.SpeculativeRetryPolicy
fn speculative_retry(text: &str) -> Result<String, CqlError> {
    // Source: Cassandra 5.0, service.reads.PercentileSpeculativeRetryPolicy
    let refused = || {
        let upper = text.trim().to_uppercase();
        let percentile = upper.strip_suffix("PERCENTILE").or_else(|| upper.strip_suffix('P'));
        if percentile.is_some_and(|digits| number(digits).is_some()) {
            return config(format!(
                "Invalid value {text} for PERCENTILE option 'speculative_retry': must be between \
                 (0.0 and 100.0)"
            ));
        }
        config(format!("Invalid value {text} for option 'speculative_retry'"))
    };
    let upper = text.trim().to_uppercase();
    match upper.as_str() {
        "ALWAYS" | "NEVER" => return Ok(upper),
        "NONE" => return Ok("NEVER".to_owned()),
        _ => {}
    }
    let hybrid = ["MIN", "MAX"].into_iter().find_map(|word| {
        let inner = upper.strip_prefix(word)?.strip_prefix('(')?.strip_suffix(')')?;
        Some((word, inner.split_once(',')?))
    });
    if let Some((word, (first, second))) = hybrid {
        return match (threshold(first), threshold(second)) {
            (Some(first), Some(second)) => Ok(format!("{word}({first},{second})")),
            _ => refused(),
        };
    }
    threshold(&upper).map_or_else(refused, Ok)
}

/// A number without a sign and an exponent.
fn number(text: &str) -> Option<f64> {
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    text.bytes().all(is_part).then(|| text.parse().ok()).flatten()
}

/// A percentile or a time, in its shortest form.
fn threshold(upper: &str) -> Option<String> {
    let upper = upper.trim();
    if let Some(ms) = upper.strip_suffix("MS") {
        return number(ms).map(|ms| format!("{ms}ms"));
    }
    let percentile = upper.strip_suffix("PERCENTILE").or_else(|| upper.strip_suffix('P'))?;
    let is_within = |percent: &f64| *percent > 0.0 && *percent < 100.0;
    number(percentile).filter(is_within).map(|percent| format!("{percent}p"))
}

fn checked_map(
    option: &TableOption,
    map: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    match option.check {
        Check::Caching => caching(option, &map),
        Check::Compaction => compaction(map),
        Check::Compression => compression(map),
        _ => Ok(map),
    }
}

fn caching(
    option: &TableOption,
    map: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    let mut found = option.default_map();
    for (key, value) in map {
        let upper = value.to_uppercase();
        let is_word = upper == "ALL" || upper == "NONE";
        match key.as_str() {
            "keys" if is_word => {}
            "rows_per_partition" if is_word || value.parse::<u32>().is_ok() => {}
            "keys" => {
                return config(
                    "Invalid value for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed"
                        .to_owned(),
                );
            }
            "rows_per_partition" => {
                return config(
                    "Invalid value for caching sub-option 'rows_per_partition': only 'ALL', 'NONE' \
                     and integer values are allowed"
                        .to_owned(),
                );
            }
            _ => {
                return config(format!(
                    "Invalid caching sub-options [{key}]: only 'keys' and 'rows_per_partition' are \
                     allowed"
                ));
            }
        }
        found.insert(key.clone(), upper);
    }
    Ok(found)
}

/// The full name of a class in a package, if it is one of the known ones.
fn full_class(name: &str, package: &str, known: &[&str]) -> Option<String> {
    let short = name.strip_prefix(package).unwrap_or(name);
    known.contains(&short).then(|| format!("{package}{short}"))
}

fn compaction(mut map: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, CqlError> {
    let Some(class) = map.get("class") else {
        return config("Missing sub-option 'class' for the 'compaction' option.".into());
    };
    let Some(class) = full_class(class, COMPACTION_PACKAGE, &COMPACTIONS) else {
        let class = class.strip_prefix(COMPACTION_PACKAGE).unwrap_or(class);
        let package = if class.contains('.') { "" } else { COMPACTION_PACKAGE };
        return config(format!("Unable to find compaction strategy class '{package}{class}'"));
    };
    let has_thresholds = !class.ends_with("UnifiedCompactionStrategy");
    // Source: Cassandra 5.0, db.compaction.LeveledCompactionStrategy.validateOptions
    if class.ends_with("LeveledCompactionStrategy") {
        for name in ["sstable_size_in_mb", "fanout_size"] {
            let Some(text) = map.get(name) else { continue };
            match text.parse::<i32>() {
                Ok(1..) => {}
                Ok(_) => return config(format!("{name} must be larger than 0, but was {text}")),
                Err(_) => {
                    return config(format!("{text} is not a parsable int (base10) for {name}"));
                }
            }
        }
    }
    map.insert("class".into(), class);
    if has_thresholds {
        map.entry("max_threshold".into()).or_insert_with(|| "32".into());
        map.entry("min_threshold".into()).or_insert_with(|| "4".into());
        let threshold = |name: &str| map[name].parse::<u32>().ok();
        let (Some(min), Some(max)) = (threshold("min_threshold"), threshold("max_threshold"))
        else {
            return config("Invalid value of a compaction threshold".into());
        };
        if min < 2 {
            return config(format!("Min compaction threshold cannot be less than 2 (got {min})"));
        }
        if min > max {
            return config(format!(
                "Min compaction threshold (got {min}) cannot be greater than max compaction \
                 threshold (got {max})"
            ));
        }
    }
    Ok(map)
}

// Source: Cassandra 5.0, schema.CompressionParams.fromMap
fn compression(mut map: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, CqlError> {
    let was_empty = map.is_empty();
    let is_enabled = map.remove("enabled").is_none_or(|text| text.eq_ignore_ascii_case("true"));
    if !is_enabled && !map.is_empty() {
        return config(
            "If the 'enabled' option is set to false no other options must be specified".into(),
        );
    }
    if !is_enabled || map.is_empty() && was_empty || map.get("class").is_some_and(String::is_empty)
    {
        return Ok(BTreeMap::from([("enabled".to_owned(), "false".to_owned())]));
    }
    let Some(class) = map.get("class") else {
        return config("Missing sub-option 'class' for the 'compression' option.".into());
    };
    let Some(class) = full_class(class, COMPRESSION_PACKAGE, &COMPRESSIONS) else {
        let package = if class.contains('.') { "" } else { COMPRESSION_PACKAGE };
        return config(format!("Could not create Compression for type {package}{class}"));
    };
    map.insert("class".into(), class);
    if let Some(name) = map.keys().find(|name| !COMPRESSION_OPTIONS.contains(&name.as_str())) {
        return config(format!("Unknown compression options {name}"));
    }
    let chunk = map.entry("chunk_length_in_kb".into()).or_insert_with(|| "16".into());
    match chunk.parse::<i32>() {
        Ok(kb) if kb <= 0 => config("Invalid negative or null chunk_length_in_kb".into()),
        Ok(kb) if kb.count_ones() != 1 => config("chunk_length_in_kb must be a power of 2".into()),
        Ok(_) => Ok(map),
        Err(_) => config("Invalid value for chunk_length_in_kb".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::{Statement, parse};

    /// The option's value after WITH, or the error.
    fn check(with: &str, name: &str, expected: &str) {
        let text = format!("CREATE TABLE t (a int PRIMARY KEY) WITH {with}");
        let Ok(Statement::CreateTable(table)) = parse(&text).map(|parsed| parsed.statement) else {
            panic!("{text}")
        };
        let mut options = TableOptions::default();
        let found = match options.take(&table.options) {
            Err(error) => error.to_string(),
            Ok(()) => match options.maps.get(name) {
                Some(map) => format!("{map:?}"),
                None => options.text(name),
            },
        };
        assert_eq!(found, expected, "{with}");
    }

    #[test]
    fn options_are_checked_in_cassandras_words() {
        for (with, name, expected) in [
            ("comment = 'x'", "comment", "x"),
            (
                "comment = {'a': 'b'}",
                "",
                "Invalid value for property 'comment'. It should be a string",
            ),
            ("caching = 'x'", "", "Invalid value for property 'caching'. It should be a map."),
            ("x = 1", "", "Unknown property 'x'"),
            ("cdc = true AND cdc = true", "", "Multiple definitions for property 'cdc'"),
            (
                "gc_grace_seconds = -1",
                "",
                "gc_grace_seconds must be greater than or equal to 0 (got -1)",
            ),
            ("gc_grace_seconds = 'x'", "", "Invalid integer value x for 'gc_grace_seconds'"),
            ("default_time_to_live = 60", "default_time_to_live", "60"),
            (
                "default_time_to_live = 630720001",
                "",
                "default_time_to_live must be less than or equal to 630720000 (got 630720001)",
            ),
            (
                "bloom_filter_fp_chance = 0",
                "",
                "bloom_filter_fp_chance must be larger than 6.71E-5 and less than or equal to 1.0 \
                 (got 0.0)",
            ),
            ("bloom_filter_fp_chance = 0.0001", "bloom_filter_fp_chance", "1.0E-4"),
            ("speculative_retry = '99PERCENTILE'", "speculative_retry", "99p"),
            ("speculative_retry = 'min(99p, 50ms)'", "speculative_retry", "MIN(99p,50ms)"),
            ("speculative_retry = 'x'", "", "Invalid value x for option 'speculative_retry'"),
            ("speculative_retry = '-1p'", "", "Invalid value -1p for option 'speculative_retry'"),
            (
                "speculative_retry = 'min(100p, 5ms)'",
                "",
                "Invalid value min(100p, 5ms) for option 'speculative_retry'",
            ),
            (
                "speculative_retry = '100.0p'",
                "",
                "Invalid value 100.0p for PERCENTILE option 'speculative_retry': must be between \
                 (0.0 and 100.0)",
            ),
            (
                "speculative_retry = '0PERCENTILE'",
                "",
                "Invalid value 0PERCENTILE for PERCENTILE option 'speculative_retry': must be \
                 between (0.0 and 100.0)",
            ),
            ("read_repair = 'none'", "read_repair", "NONE"),
            (
                "min_index_interval = 4000",
                "",
                "max_index_interval must be greater than or equal to min_index_interval (4000) \
                 (got 2048)",
            ),
            (
                "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 100}",
                "compaction",
                r#"{"class": "org.apache.cassandra.db.compaction.LeveledCompactionStrategy", "max_threshold": "32", "min_threshold": "4", "sstable_size_in_mb": "100"}"#,
            ),
            (
                "compaction = {'class': 'X'}",
                "",
                "Unable to find compaction strategy class 'org.apache.cassandra.db.compaction.X'",
            ),
            ("compaction = {}", "", "Missing sub-option 'class' for the 'compaction' option."),
            ("compression = {'enabled': false}", "compression", r#"{"enabled": "false"}"#),
            ("compression = {}", "compression", r#"{"enabled": "false"}"#),
            (
                "compression = {'class': 'ZstdCompressor', 'chunk_length_in_kb': 12}",
                "",
                "chunk_length_in_kb must be a power of 2",
            ),
            (
                "caching = {'keys': 'none'}",
                "caching",
                r#"{"keys": "NONE", "rows_per_partition": "NONE"}"#,
            ),
        ] {
            check(with, name, expected);
        }
    }
}
