//! The type of an option's value: its text, range, and the field that stores it.

use std::fmt::Debug;

use base::units::{Limit, exact_bytes, parse_bytes, parse_count};

use crate::ValueError;

/// Type of an option's value, its valid range, and accessors of the field that stores it. The
/// macros below write the accessors.
#[derive(Debug)]
pub enum Kind<S: 'static> {
    Number {
        unit: Unit,
        min: i128,
        max: i128,
        /// `None`: not set.
        get: fn(&S) -> Option<i128>,
        set: fn(&mut S, i128),
    },
    YesNo {
        get: fn(&S) -> bool,
        set: fn(&mut S, bool),
    },
    /// Like `YesNo`, but without a value on the command line: yes if it is given.
    Flag {
        get: fn(&S) -> bool,
        set: fn(&mut S, bool),
    },
    /// One of several words, identified by its index.
    Choice {
        words: &'static [&'static str],
        get: fn(&S) -> usize,
        set: fn(&mut S, usize),
    },
    Limit {
        get: fn(&S) -> Limit,
        set: fn(&mut S, Limit),
    },
    /// A text with its own syntax.
    Value {
        form: Form,
        expected: &'static str,
        get: fn(&S) -> String,
        set: fn(&mut S, &str) -> Result<(), ValueError>,
    },
    /// Computed from other options; stores no value.
    View {
        show: fn(&S) -> String,
    },
}

/// How a value with its own syntax is given and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    /// Never shown to others.
    Secret,
    /// Several values separated by blanks: an array in the file.
    List,
    /// Like `List`, but each use on the command line adds to the earlier ones.
    Repeated,
}

/// How a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `1048576`, `64kb`, `2gb`.
    Bytes,
    /// `2000000`, `2M`, `500k`: decimal multiples.
    Count,
    /// Digits only. The text names what is counted: `seconds`, `number`.
    Of(&'static str),
}

/// A number that is always set; `optional_number!` is `None` until it is set.
#[macro_export]
macro_rules! number {
    ($unit:expr, $min:expr, $max:expr, $($field:ident).+) => {
        $crate::Kind::Number {
            unit: $unit,
            min: $min as i128,
            max: $max as i128,
            get: |settings| $crate::wide(settings.$($field).+),
            set: |settings, value| settings.$($field).+ = $crate::narrow(value),
        }
    };
}

#[macro_export]
macro_rules! optional_number {
    ($unit:expr, $min:expr, $max:expr, $($field:ident).+) => {
        $crate::Kind::Number {
            unit: $unit,
            min: $min as i128,
            max: $max as i128,
            get: |settings| settings.$($field).+.and_then($crate::wide),
            set: |settings, value| settings.$($field).+ = Some($crate::narrow(value)),
        }
    };
}

/// `YesNo`, `Flag` or `Limit`.
#[macro_export]
macro_rules! field {
    ($kind:ident, $($field:ident).+) => {
        $crate::Kind::$kind {
            get: |settings| settings.$($field).+,
            set: |settings, value| settings.$($field).+ = value,
        }
    };
}

/// One of the words of an enum that is declared with `choice!`.
#[macro_export]
macro_rules! word {
    ($type:ty, $($field:ident).+) => {
        $crate::Kind::Choice {
            words: <$type>::WORDS,
            get: |settings| settings.$($field).+ as usize,
            set: |settings, place| settings.$($field).+ = <$type>::ALL[place],
        }
    };
}

/// A [`Value`](crate::Value) in a [`Form`].
#[macro_export]
macro_rules! value {
    ($form:ident, $expected:expr, $($field:ident).+) => {
        $crate::Kind::Value {
            form: $crate::Form::$form,
            expected: $expected,
            get: |settings| $crate::Value::text(&settings.$($field).+),
            set: |settings, text| {
                settings.$($field).+ = $crate::Value::read(text)?;
                Ok(())
            },
        }
    };
}

/// Converts the number in a field.
pub fn wide<T: TryInto<i128>>(value: T) -> Option<i128> {
    value.try_into().ok()
}

/// Converts a number to the type of its field, which holds every number of the option's range.
pub fn narrow<T: TryFrom<i128, Error: Debug>>(value: i128) -> T {
    T::try_from(value).expect("an option's range fits its field")
}

/// Returns the word for a boolean.
pub fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

impl<S> Kind<S> {
    pub(crate) fn text(&self, settings: &S) -> String {
        match self {
            Kind::Number { get, .. } => get(settings).map_or(String::new(), |n| n.to_string()),
            Kind::YesNo { get, .. } | Kind::Flag { get, .. } => yes_no(get(settings)).to_owned(),
            Kind::Choice { words, get, .. } => words[get(settings)].to_owned(),
            Kind::Limit { get, .. } => get(settings).to_string(),
            Kind::Value { get, .. } => get(settings),
            Kind::View { show } => show(settings),
        }
    }

    pub(crate) fn set(&self, settings: &mut S, text: &str) -> Result<(), ValueError> {
        match self {
            Kind::Number { unit, min, max, set, .. } => {
                let number = unit.parse(text)?;
                if !(*min..=*max).contains(&number) {
                    return Err(ValueError::OutOfRange { min: *min, max: *max });
                }
                set(settings, number);
            }
            Kind::YesNo { set, .. } | Kind::Flag { set, .. } => {
                let place = place_of_word(&["no", "yes"], text).ok_or(ValueError::NotYesNo)?;
                set(settings, place == 1);
            }
            Kind::Choice { words, set, .. } => match place_of_word(words, text) {
                Some(place) => set(settings, place),
                None => return Err(ValueError::NotAWord { words: words.join(", ") }),
            },
            Kind::Limit { set, .. } => {
                set(settings, Limit::parse(text).map_err(|_| ValueError::NotLimit)?);
            }
            Kind::Value { set, .. } => set(settings, text)?,
            Kind::View { show } if show(settings) == text => {}
            Kind::View { .. } => return Err(ValueError::Immutable),
        }
        Ok(())
    }

    pub(crate) fn shown(&self, settings: &S) -> String {
        let text = self.text(settings);
        match (self, text.parse()) {
            (Kind::Number { unit: Unit::Bytes, .. }, Ok(bytes)) => exact_bytes(bytes),
            _ => text,
        }
    }

    pub(crate) fn expected(&self) -> String {
        match self {
            Kind::Number { unit, min, max, .. } => unit.range(*min, *max),
            Kind::YesNo { .. } => "yes or no".to_owned(),
            Kind::Flag { .. } => String::new(),
            Kind::Choice { words, .. } => words.join(", "),
            Kind::Limit { .. } => "bytes or -PERCENT; 0: none".to_owned(),
            Kind::Value { expected, .. } => (*expected).to_owned(),
            Kind::View { .. } => "read-only".to_owned(),
        }
    }
}

impl Unit {
    fn parse(self, text: &str) -> Result<i128, ValueError> {
        match self {
            // Source: Redis 7.2 `util.c`, `memtoull`
            Unit::Bytes if text.is_empty() => Ok(0),
            Unit::Bytes => parse_bytes(text).map(i128::from).map_err(|_| ValueError::NotBytes),
            Unit::Count => match parse_count(text) {
                Ok(count) => Ok(i128::from(count)),
                Err(error) => Err(ValueError::Explained(format!("{text:?} is {error}"))),
            },
            // Only in its canonical form: no `+1`, no `01`, no blanks.
            Unit::Of(_) => match text.parse::<i64>() {
                Ok(value) if value.to_string() == text => Ok(i128::from(value)),
                _ => Err(ValueError::NotInteger),
            },
        }
    }

    fn range(self, min: i128, max: i128) -> String {
        let number = |value: i128| match (self, u64::try_from(value)) {
            (Unit::Bytes, Ok(bytes)) => exact_bytes(bytes),
            _ => value.to_string(),
        };
        let (name, has_floor) = match self {
            Unit::Bytes => ("bytes", min > 0),
            Unit::Count => ("number", min > 0),
            Unit::Of(name) => (name, true),
        };
        // The largest representable number helps no operator.
        if max < i128::from(i64::MAX) {
            format!("{name}, {} to {}", number(min), number(max))
        } else if has_floor {
            format!("{name}, at least {}", number(min))
        } else {
            name.to_owned()
        }
    }
}

fn place_of_word(words: &[&str], text: &str) -> Option<usize> {
    words.iter().position(|word| word.eq_ignore_ascii_case(text))
}
