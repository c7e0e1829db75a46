//! Aggregate functions.

use num_bigint::BigInt;

use super::decimal::{self, Rounding};
use super::number::{NUMERIC, Number};
use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;
use crate::value::number::Decimal;
use crate::value::order::compare;

/// A computation over the rows of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aggregate {
    /// `count(*)`
    CountRows,
    /// `count(column)`: values that are not null.
    Count,
    Sum(Native),
    Average(Native),
    Min(CqlType),
    Max(CqlType),
}

/// A signature of an aggregate, for documentation; the first column is the name used in calls.
#[derive(Debug)]
pub(crate) struct AggregateRow {
    pub(crate) name: &'static str,
    pub(crate) argument: &'static str,
    pub(crate) returns: &'static str,
    pub(crate) doc: &'static str,
    /// None for unsupported types.
    of: fn(&CqlType) -> Option<Aggregate>,
}

/// All aggregates. `count(*)` has its own syntax and is not found by a type.
// Source: Cassandra 5.0, AggregateFcts
pub(crate) static AGGREGATES: [AggregateRow; 6] = [
    AggregateRow {
        name: "count",
        argument: "*",
        returns: "bigint",
        doc: "The number of rows.",
        of: |_| None,
    },
    AggregateRow {
        name: "count",
        argument: "any",
        returns: "bigint",
        doc: "The number of values that are not null.",
        of: |_| Some(Aggregate::Count),
    },
    AggregateRow {
        name: "sum",
        argument: "number",
        returns: "the same",
        doc: "The sum, which may overflow its type; zero without values.",
        of: |of| number(of).map(Aggregate::Sum),
    },
    AggregateRow {
        name: "avg",
        argument: "number",
        returns: "the same",
        doc: "The average, in the type of the values; zero without values.",
        of: |of| number(of).map(Aggregate::Average),
    },
    AggregateRow {
        name: "min",
        argument: "any",
        returns: "the same",
        doc: "The smallest value; null without values.",
        of: |of| Some(Aggregate::Min(of.clone())),
    },
    AggregateRow {
        name: "max",
        argument: "any",
        returns: "the same",
        doc: "The largest value; null without values.",
        of: |of| Some(Aggregate::Max(of.clone())),
    },
];

fn number(of: &CqlType) -> Option<Native> {
    match of {
        CqlType::Native(native) if NUMERIC.contains(native) => Some(*native),
        _ => None,
    }
}

impl Aggregate {
    pub(crate) fn count_rows() -> Self {
        Aggregate::CountRows
    }

    /// Whether an aggregate has this name.
    pub(crate) fn is_known(name: &str) -> bool {
        AGGREGATES.iter().any(|row| row.name == name)
    }

    /// The aggregate for values of a type.
    pub(crate) fn resolve(name: &str, of: &CqlType) -> Result<Aggregate, CqlError> {
        let mut rows = AGGREGATES.iter().filter(|row| row.name == name);
        rows.find_map(|row| (row.of)(of)).ok_or_else(|| {
            let signatures: Vec<String> = NUMERIC
                .iter()
                .map(|native| format!("system.{name} : ({0}) -> {0}", native.name()))
                .collect();
            CqlError::invalid(format!(
                "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
                signatures.join(", ")
            ))
        })
    }

    /// The type of the result.
    pub(crate) fn returns(&self) -> CqlType {
        match self {
            Aggregate::CountRows | Aggregate::Count => CqlType::BIGINT,
            Aggregate::Sum(native) | Aggregate::Average(native) => CqlType::Native(*native),
            Aggregate::Min(of) | Aggregate::Max(of) => of.clone(),
        }
    }

    /// The state before the first row of a group.
    pub fn start(&self) -> Fold {
        let state = match self {
            Aggregate::CountRows | Aggregate::Count => State::Count,
            Aggregate::Min(_) | Aggregate::Max(_) => State::Best(None),
            Aggregate::Sum(native) | Aggregate::Average(native) => match native {
                Native::Float | Native::Double => State::Float(FloatSum::default()),
                Native::Decimal => State::Decimal(Decimal { unscaled: BigInt::ZERO, scale: 0 }),
                _ => State::Integer(BigInt::ZERO),
            },
        };
        Fold { aggregate: self.clone(), count: 0, state }
    }
}

/// The state of an aggregate within a group.
#[derive(Debug, Clone)]
pub struct Fold {
    aggregate: Aggregate,
    /// The number of non-null values, or of rows.
    count: i64,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Count,
    /// The sum; it is truncated to its type at the end, which is equal to truncating at every step.
    Integer(BigInt),
    Float(FloatSum),
    /// The sum, or the average so far.
    Decimal(Decimal),
    /// The smallest or largest value so far.
    Best(Option<Vec<u8>>),
}

/// A sum with compensated rounding errors, and the plain one for infinite values.
// Source: Cassandra 5.0, AggregateFcts.FloatSumAggregate
#[derive(Debug, Clone, Copy, Default)]
struct FloatSum {
    sum: f64,
    compensation: f64,
    plain: f64,
}

impl FloatSum {
    fn add(&mut self, value: f64) {
        self.plain += value;
        let corrected = value - self.compensation;
        let rounded = self.sum + corrected;
        self.compensation = (rounded - self.sum) - corrected;
        self.sum = rounded;
    }

    fn total(&self) -> f64 {
        let total = self.sum + self.compensation;
        if total.is_nan() && self.plain.is_infinite() { self.plain } else { total }
    }
}

impl Fold {
    /// Adds the value of one row; None is null. `count(*)` counts nulls too.
    pub fn add(&mut self, value: Option<&[u8]>) -> Result<(), CqlError> {
        let Some(value) = value else {
            self.count += i64::from(self.aggregate == Aggregate::CountRows);
            return Ok(());
        };
        self.count += 1;
        let is_average = matches!(self.aggregate, Aggregate::Average(_));
        let number = |native| Number::decode(value, native);
        match (&mut self.state, &self.aggregate) {
            (State::Count, _) => {}
            (State::Best(best), Aggregate::Min(of) | Aggregate::Max(of)) => {
                let is_better = best.as_deref().is_none_or(|best| {
                    let order = compare(value, best, of);
                    if matches!(self.aggregate, Aggregate::Min(_)) {
                        order.is_lt()
                    } else {
                        order.is_gt()
                    }
                });
                if is_better {
                    *best = Some(value.to_vec());
                }
            }
            (State::Integer(sum), Aggregate::Sum(native) | Aggregate::Average(native)) => {
                match number(*native) {
                    Some(number) => *sum += number.to_bigint(),
                    None => self.count -= 1,
                }
            }
            (State::Float(sum), Aggregate::Sum(native) | Aggregate::Average(native)) => {
                match number(*native) {
                    Some(number) => sum.add(number.to_f64()),
                    None => self.count -= 1,
                }
            }
            (State::Decimal(sum), _) => match number(Native::Decimal) {
                Some(Number::Decimal(value)) => {
                    let added = if is_average {
                        moved_average(sum, &value, self.count)
                    } else {
                        decimal::add(sum, &value)
                    };
                    *sum = added.map_err(|error| CqlError::invalid(error.to_string()))?;
                }
                _ => self.count -= 1,
            },
            (State::Best(_) | State::Integer(_) | State::Float(_), _) => {
                unreachable!("each aggregate starts with its own state")
            }
        }
        Ok(())
    }

    /// The result after the last row of a group: None is null.
    pub fn finish(self) -> Result<Option<Vec<u8>>, CqlError> {
        let is_average = matches!(self.aggregate, Aggregate::Average(_));
        let (native, number) = match (self.state, &self.aggregate) {
            (State::Best(best), _) => return Ok(best),
            (State::Integer(sum), Aggregate::Sum(native) | Aggregate::Average(native)) => {
                let result = if is_average { sum / self.count.max(1) } else { sum };
                (*native, Number::Varint(result))
            }
            (State::Float(sum), Aggregate::Sum(native) | Aggregate::Average(native)) => {
                #[expect(clippy::cast_precision_loss, reason = "fewer rows than 2^53")]
                let count = self.count.max(1) as f64;
                (
                    *native,
                    Number::Double(if is_average { sum.total() / count } else { sum.total() }),
                )
            }
            (State::Decimal(sum), _) => (Native::Decimal, Number::Decimal(sum)),
            (State::Count | State::Integer(_) | State::Float(_), _) => {
                (Native::Bigint, Number::Integer(self.count))
            }
        };
        let bytes = number.encode(native).map_err(|error| CqlError::invalid(error.to_string()))?;
        Ok(Some(bytes))
    }
}

/// The average after one more value, with as many decimal places as the values have.
// Source: Cassandra 5.0, AggregateFcts.avgFunctionForDecimal
fn moved_average(
    average: &Decimal,
    value: &Decimal,
    count: i64,
) -> Result<Decimal, decimal::DecimalError> {
    let distance = decimal::add(value, &average.negated())?;
    let count = Decimal { unscaled: BigInt::from(count), scale: 0 };
    let step =
        decimal::divide_to_scale(&distance, &count, distance.scale.into(), Rounding::HalfEven)?;
    decimal::add(average, &step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;
    use crate::expression::tests::{bound_term, evaluated_expression, shown, type_of};

    fn folded(name: &str, of: &str, values: &[&str]) -> String {
        let of = type_of(of);
        let aggregate = match Aggregate::resolve(name, &of) {
            Ok(aggregate) => aggregate,
            Err(error) => return error.to_string(),
        };
        let mut fold = aggregate.start();
        for value in values {
            let bytes = match bound_term(value, &of.to_string()).unwrap() {
                Expression::Constant { bytes, .. } => Some(bytes),
                Expression::Null { .. } => None,
                other => panic!("{}", evaluated_expression(&other).unwrap()),
            };
            fold.add(bytes.as_deref()).unwrap();
        }
        shown(fold.finish().unwrap().as_deref(), &aggregate.returns())
    }

    #[test]
    fn groups_are_folded_in_the_type_of_their_values() {
        for (name, of, values, expected) in [
            ("count", "text", &["'a'", "null", "'b'"][..], "2"),
            ("count", "list<int>", &[], "0"),
            ("sum", "int", &["1", "2", "null", "3"], "6"),
            ("sum", "int", &["2147483647", "1"], "-2147483648"),
            ("sum", "tinyint", &["127", "1"], "-128"),
            ("sum", "smallint", &["32767", "1"], "-32768"),
            ("sum", "bigint", &["9223372036854775807", "1"], "-9223372036854775808"),
            ("sum", "varint", &["9223372036854775807", "1"], "9223372036854775808"),
            ("sum", "counter", &["1", "2"], "3"),
            ("sum", "float", &["1.5", "2.5"], "4.0"),
            ("sum", "double", &["0.1", "0.2", "0.3", "0.4"], "1.0"),
            ("sum", "double", &["Infinity", "Infinity"], "Infinity"),
            ("sum", "decimal", &["0.10", "0.2"], "0.30"),
            ("sum", "int", &[], "0"),
            ("sum", "decimal", &[], "0"),
            ("avg", "int", &["1", "2", "4"], "2"),
            ("avg", "int", &["-1", "-2"], "-1"),
            ("avg", "int", &["2147483647", "2147483647"], "2147483647"),
            (
                "avg",
                "bigint",
                &["9223372036854775807", "9223372036854775807"],
                "9223372036854775807",
            ),
            ("avg", "tinyint", &["127", "127"], "127"),
            ("avg", "float", &["1", "2"], "1.5"),
            ("avg", "double", &["1", "2"], "1.5"),
            ("avg", "decimal", &["1.0", "2.0"], "1.5"),
            ("avg", "decimal", &["1", "2"], "1"),
            ("avg", "varint", &["5", "6"], "5"),
            ("avg", "counter", &["1", "3"], "2"),
            ("avg", "int", &[], "0"),
            ("avg", "double", &[], "0.0"),
            ("min", "int", &["3", "-1", "null", "2"], "-1"),
            ("max", "int", &["3", "-1", "2"], "3"),
            ("min", "text", &["'b'", "'a'"], "a"),
            ("max", "timestamp", &["5", "7"], "1970-01-01 00:00:00.007Z"),
            ("min", "list<int>", &["[2]", "[1, 5]"], "[1, 5]"),
            ("max", "decimal", &["1.0", "1.00", "-7"], "1.0"),
            ("min", "int", &[], "null"),
            ("max", "int", &["null"], "null"),
        ] {
            assert_eq!(folded(name, of, values), expected, "{name} of {of}");
        }
        assert_eq!(
            folded("sum", "text", &[]).split(':').next(),
            Some(
                "Invalid call to function sum, none of its type signatures match (known type signatures"
            )
        );
        assert!(Aggregate::is_known("avg"));
        assert!(!Aggregate::is_known("median"));
    }

    #[test]
    fn rows_are_counted_with_their_nulls() {
        let mut fold = Aggregate::count_rows().start();
        fold.add(None).unwrap();
        fold.add(Some(b"a")).unwrap();
        assert_eq!(fold.finish().unwrap(), Some(2_i64.to_be_bytes().to_vec()));
    }
}
