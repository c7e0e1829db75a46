//! One option: its names, kind, default and documentation, and the conversion between its text and
//! a field of [`Settings`].

use std::net::SocketAddr;
use std::path::PathBuf;

use base::units::{Limit, exact_bytes, parse_bytes};

use super::key_events::KeyEvents;
use super::settings::{OutputLimit, OutputLimits, Password, Settings};

/// Description of an option. The rows are in [`super::OPTIONS`].
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Name in the file, on the command line and in CONFIG: the Redis name if there is one.
    pub name: &'static str,
    /// Alternative Redis names for the same option.
    pub aliases: &'static [&'static str],
    pub section: Section,
    pub kind: Kind,
    /// Default as text. For a view: its text when the option that it shows has its default.
    pub default: &'static str,
    pub change: Change,
    /// Unit and effect in one or two sentences.
    pub doc: &'static str,
}

/// When an option can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At startup and by CONFIG SET.
    Running,
    /// In the file and on the command line only.
    Start,
    /// Never: the option shows a constant or another option. Setting it to its current value is
    /// accepted, since tools do that.
    Never,
    /// Like `Running`, but the value belongs to the named option.
    Through(&'static str),
}

/// Sections of the help and the documentation, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Server,
    Durability,
    Memory,
    Limits,
    Encodings,
    Expiry,
    Insight,
    Compatibility,
    /// Measures alternative designs and single layers; only with the feature `experiments`.
    Experiments,
}

impl Section {
    pub const ALL: [Self; 9] = [
        Self::Server,
        Self::Durability,
        Self::Memory,
        Self::Limits,
        Self::Encodings,
        Self::Expiry,
        Self::Insight,
        Self::Compatibility,
        Self::Experiments,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Server => "Server and connections",
            Self::Durability => "Durability",
            Self::Memory => "Memory",
            Self::Limits => "Limits per connection and request",
            Self::Encodings => "Compact encodings",
            Self::Expiry => "Expiry",
            Self::Insight => "Logging and insight",
            Self::Compatibility => "Names that Redis tools read",
            Self::Experiments => "Experiments",
        }
    }
}

/// Accessors of a field of [`Settings`].
#[derive(Debug)]
pub struct Field<T: 'static> {
    pub get: fn(&Settings) -> &T,
    pub get_mut: fn(&mut Settings) -> &mut T,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

/// Type of an option's value, its valid range, and the field that stores it.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Bytes {
        min: u64,
        max: u64,
        field: Field<u64>,
    },
    Count {
        min: usize,
        max: usize,
        field: Field<usize>,
    },
    Signed {
        min: i64,
        max: i64,
        field: Field<i64>,
    },
    Duration {
        unit: &'static str,
        min: u64,
        max: u64,
        field: Field<u64>,
    },
    YesNo {
        field: Field<bool>,
    },
    /// One of several words, identified by its index.
    Choice {
        words: &'static [&'static str],
        get: fn(&Settings) -> usize,
        set: fn(&mut Settings, usize),
    },
    Limit {
        field: Field<Limit>,
    },
    Addresses {
        field: Field<Vec<SocketAddr>>,
    },
    Path {
        field: Field<PathBuf>,
    },
    Password {
        field: Field<Password>,
    },
    OutputLimits {
        field: Field<OutputLimits>,
    },
    Percentiles {
        field: Field<Vec<f64>>,
    },
    KeyEvents {
        field: Field<KeyEvents>,
    },
    /// Computed from other options; stores no value.
    View {
        show: fn(&Settings) -> String,
    },
}

/// Reason why a text is not a valid value. Error texts match those of Redis where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("argument must be a memory value")]
    NotBytes,
    #[error("argument couldn't be parsed into an integer")]
    NotInteger,
    #[error("argument must be between {min} and {max} inclusive")]
    OutOfRange { min: i128, max: i128 },
    #[error("argument must be 'yes' or 'no'")]
    NotYesNo,
    #[error("argument(s) must be one of the following: {words}")]
    NotAWord { words: String },
    #[error("argument must be a memory value or a percent value")]
    NotLimit,
    #[error("argument must be addresses such as 127.0.0.1:6379")]
    NotAddresses,
    #[error("argument must be UTF-8 text without control characters")]
    ControlCharacter,
    #[error("Wrong number of arguments in buffer limit configuration.")]
    OutputLimitCount,
    #[error("Invalid client class specified in buffer limit configuration.")]
    OutputLimitClass,
    #[error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")]
    OutputLimitValue,
    #[error("Invalid latency-tracking-info-percentiles parameters")]
    NotPercentiles,
    #[error("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")]
    PercentileRange,
    #[error("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")]
    NotKeyEvents,
    #[error("can't set immutable config")]
    Immutable,
}

impl OptionSpec {
    /// Returns the name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// False for a view, and for an option that sets another one.
    pub fn owns_its_value(&self) -> bool {
        matches!(self.change, Change::Running | Change::Start)
    }

    /// Returns the value as CONFIG GET shows it. [`OptionSpec::set`] accepts the same text.
    pub fn text(&self, settings: &Settings) -> String {
        match &self.kind {
            Kind::Bytes { field, .. } | Kind::Duration { field, .. } => {
                (field.get)(settings).to_string()
            }
            Kind::Count { field, .. } => (field.get)(settings).to_string(),
            Kind::Signed { field, .. } => (field.get)(settings).to_string(),
            Kind::YesNo { field } => yes_no(*(field.get)(settings)).to_owned(),
            Kind::Choice { words, get, .. } => words[get(settings)].to_owned(),
            Kind::Limit { field } => (field.get)(settings).to_string(),
            Kind::Addresses { field } => joined((field.get)(settings)),
            Kind::Path { field } => (field.get)(settings).display().to_string(),
            Kind::Password { field } => (field.get)(settings).0.clone(),
            Kind::OutputLimits { field } => output_limits_text((field.get)(settings)),
            Kind::Percentiles { field } => joined((field.get)(settings)),
            Kind::KeyEvents { field } => (field.get)(settings).to_string(),
            Kind::View { show } => show(settings),
        }
    }

    /// Parses a text into the option's field. After an error the field may be partly changed: call
    /// it on a copy.
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), ValueError> {
        if text.chars().any(char::is_control) {
            return Err(ValueError::ControlCharacter);
        }
        match &self.kind {
            Kind::Bytes { min, max, field } => {
                // Source: Redis 7.2 `util.c`, `memtoull`
                let text = if text.is_empty() { "0" } else { text };
                let bytes = parse_bytes(text).map_err(|_| ValueError::NotBytes)?;
                *(field.get_mut)(settings) = in_range(bytes, *min, *max)?;
            }
            Kind::Duration { min, max, field, .. } => {
                *(field.get_mut)(settings) = in_range(integer(text)?, *min, *max)?;
            }
            Kind::Count { min, max, field } => {
                *(field.get_mut)(settings) = in_range(integer(text)?, *min, *max)?;
            }
            Kind::Signed { min, max, field } => {
                *(field.get_mut)(settings) = in_range(integer(text)?, *min, *max)?;
            }
            Kind::YesNo { field } => *(field.get_mut)(settings) = parse_yes_no(text)?,
            Kind::Choice { words, set, .. } => set(settings, place_of_word(words, text)?),
            Kind::Limit { field } => {
                *(field.get_mut)(settings) =
                    Limit::parse(text).map_err(|_| ValueError::NotLimit)?;
            }
            Kind::Addresses { field } => *(field.get_mut)(settings) = parse_addresses(text)?,
            Kind::Path { field } => *(field.get_mut)(settings) = PathBuf::from(text),
            Kind::Password { field } => {
                *(field.get_mut)(settings) = Password(text.to_owned());
            }
            Kind::OutputLimits { field } => {
                update_output_limits((field.get_mut)(settings), text)?;
            }
            Kind::Percentiles { field } => *(field.get_mut)(settings) = parse_percentiles(text)?,
            Kind::KeyEvents { field } => {
                *(field.get_mut)(settings) =
                    KeyEvents::parse(text).ok_or(ValueError::NotKeyEvents)?;
            }
            Kind::View { show } if show(settings) == text => {}
            Kind::View { .. } => return Err(ValueError::Immutable),
        }
        Ok(())
    }

    /// Returns the default in the form in which an operator would write it; empty if the default is
    /// empty.
    pub fn default_shown(&self) -> String {
        match (&self.kind, self.default.parse::<u64>()) {
            (Kind::Bytes { .. }, Ok(bytes)) => exact_bytes(bytes),
            _ => self.default.to_owned(),
        }
    }

    /// Describes the expected value, in the operator's terms.
    pub fn expected(&self) -> String {
        match &self.kind {
            Kind::Bytes { min, max, .. } => match (*min, *max) {
                (0, max) if is_open(max) => "bytes".to_owned(),
                (min, max) if is_open(max) => format!("bytes, at least {}", exact_bytes(min)),
                (min, max) => format!("bytes, {} to {}", exact_bytes(min), exact_bytes(max)),
            },
            Kind::Count { min, max, .. } => format!("number, {min} to {max}"),
            Kind::Signed { min, max: i64::MAX, .. } => format!("number, at least {min}"),
            Kind::Signed { min, max, .. } => format!("number, {min} to {max}"),
            Kind::Duration { unit, min, max, .. } if is_open(*max) => {
                format!("{unit}, at least {min}")
            }
            Kind::Duration { unit, min, max, .. } => format!("{unit}, {min} to {max}"),
            Kind::YesNo { .. } => "yes or no".to_owned(),
            Kind::Choice { words, .. } => words.join(", "),
            Kind::Limit { .. } => "bytes or -PERCENT; 0: none".to_owned(),
            Kind::Addresses { .. } => "IP:PORT, separated by blanks".to_owned(),
            Kind::Path { .. } => "path".to_owned(),
            Kind::Password { .. } => "text".to_owned(),
            Kind::OutputLimits { .. } => "CLASS HARD SOFT SECONDS ...".to_owned(),
            Kind::Percentiles { .. } => "numbers from 0 to 100".to_owned(),
            Kind::KeyEvents { .. } => "letters of Ag$lshzxeKEtmdn".to_owned(),
            Kind::View { .. } => "read-only".to_owned(),
        }
    }
}

/// Whether an upper bound is merely the largest representable number, which helps no operator.
fn is_open(max: u64) -> bool {
    max >= i64::MAX as u64
}

fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns the word for a boolean.
pub(super) fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn parse_yes_no(text: &str) -> Result<bool, ValueError> {
    match place_of_word(&["no", "yes"], text) {
        Ok(place) => Ok(place == 1),
        Err(_) => Err(ValueError::NotYesNo),
    }
}

fn place_of_word(words: &[&str], text: &str) -> Result<usize, ValueError> {
    words
        .iter()
        .position(|word| word.eq_ignore_ascii_case(text))
        .ok_or_else(|| ValueError::NotAWord { words: words.join(", ") })
}

/// Parses an integer only in its canonical form: no `+1`, no `01`, no blanks.
fn integer(text: &str) -> Result<i128, ValueError> {
    match text.parse::<i64>() {
        Ok(value) if value.to_string() == text => Ok(i128::from(value)),
        _ => Err(ValueError::NotInteger),
    }
}

fn in_range<T>(value: impl TryInto<i128>, min: T, max: T) -> Result<T, ValueError>
where
    T: TryInto<i128> + TryFrom<i128> + Copy,
{
    let wide = |bound: T| bound.try_into().unwrap_or(i128::MAX);
    let refusal = ValueError::OutOfRange { min: wide(min), max: wide(max) };
    let value = value.try_into().map_err(|_| refusal.clone())?;
    if value < wide(min) || value > wide(max) {
        return Err(refusal);
    }
    T::try_from(value).map_err(|_| refusal)
}

fn parse_addresses(text: &str) -> Result<Vec<SocketAddr>, ValueError> {
    text.split([' ', ',']).filter(|part| !part.is_empty()).map(parse_address).collect()
}

fn parse_address(text: &str) -> Result<SocketAddr, ValueError> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| ValueError::NotAddresses)
}

fn parse_percentiles(text: &str) -> Result<Vec<f64>, ValueError> {
    let parse = |part: &str| match part.parse::<f64>() {
        Ok(percentile) if (0.0..=100.0).contains(&percentile) => Ok(percentile),
        Ok(_) => Err(ValueError::PercentileRange),
        Err(_) => Err(ValueError::NotPercentiles),
    };
    text.split_ascii_whitespace().map(parse).collect()
}

/// Parses the Redis form: any number of `CLASS HARD SOFT SECONDS`. Other classes keep their limits.
fn update_output_limits(limits: &mut OutputLimits, text: &str) -> Result<(), ValueError> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let groups = words.chunks_exact(4);
    if !groups.remainder().is_empty() {
        return Err(ValueError::OutputLimitCount);
    }
    for group in groups {
        let limit = match group[0].to_ascii_lowercase().as_str() {
            "normal" => &mut limits.normal,
            "slave" | "replica" => &mut limits.replica,
            "pubsub" => &mut limits.pubsub,
            _ => return Err(ValueError::OutputLimitClass),
        };
        let bytes = |text| parse_bytes(text).map_err(|_| ValueError::OutputLimitValue);
        let seconds = group[3].parse::<u32>().map_err(|_| ValueError::OutputLimitValue)?;
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
    use crate::config::find;
    use proptest::prelude::*;

    fn check(name: &str, text: &str, expected: Result<&str, &str>) {
        let option = find(name).unwrap();
        let mut settings = Settings::default();
        let found = option.set(&mut settings, text).map(|()| option.text(&settings));
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name} = {text:?}");
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
        check("appendonly", "no", Err("can't set immutable config"));
        check("save", "", Ok(""));
        check("save", "900 1", Err("can't set immutable config"));
        check("port", "6379", Ok("6379"));
    }

    proptest! {
        /// Any accepted value prints as a text that parses to the same settings.
        #[test]
        fn any_text_is_refused_or_reads_back(at in 0..super::super::OPTIONS.len(), text in "\\PC{0,20}|-?[0-9]{1,19}(kb|mb)?") {
            let option = &super::super::OPTIONS[at];
            let mut settings = Settings::default();
            if option.set(&mut settings, &text).is_ok() {
                let mut again = Settings::default();
                prop_assert_eq!(option.set(&mut again, &option.text(&settings)), Ok(()));
                prop_assert_eq!(again, settings);
            }
        }
    }
}
