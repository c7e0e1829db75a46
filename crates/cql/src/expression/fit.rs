//! Whether a term is assignable to a type, before it is bound to an expression.

use super::bind::{TermContext, hinted_type};
use super::{operator, resolve};
use crate::term::{Constant, Term};
use crate::type_name::Native;
use crate::types::CqlType;

/// How well a value fits a type. Overloads with an exact fit take precedence.
// Source: Cassandra 5.0, AssignmentTestable.TestResult
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    No,
    Weak,
    Exact,
}

impl Fit {
    pub(crate) fn is_some(self) -> bool {
        self != Fit::No
    }

    fn at_most_weak(self) -> Fit {
        self.min(Fit::Weak)
    }

    /// The fit of several parts, all of which must fit.
    fn all(fits: impl Iterator<Item = Fit>) -> Fit {
        fits.min().unwrap_or(Fit::Weak)
    }
}

/// How values of one type fit another.
pub(crate) fn fit_type(from: &CqlType, to: &CqlType) -> Fit {
    let (from, to) = (from.unfrozen(), to.unfrozen());
    if from == to {
        return Fit::Exact;
    }
    let part = |from: &CqlType, to: &CqlType| fit_type(from, to).at_most_weak();
    match (from, to) {
        (CqlType::Native(from), CqlType::Native(to)) => fit_native(*from, *to),
        (_, CqlType::Native(Native::Blob)) => Fit::Weak,
        (CqlType::List(from), CqlType::List(to)) | (CqlType::Set(from), CqlType::Set(to)) => {
            part(from, to)
        }
        (CqlType::Map(from_key, from_value), CqlType::Map(to_key, to_value)) => {
            part(from_key, to_key).min(part(from_value, to_value))
        }
        (CqlType::Vector(from, from_dimensions), CqlType::Vector(to, dimensions))
            if from_dimensions == dimensions =>
        {
            part(from, to)
        }
        (CqlType::Tuple(from), CqlType::Tuple(to)) if from.len() == to.len() => {
            Fit::all(from.iter().zip(to).map(|(from, to)| part(from, to)))
        }
        _ => Fit::No,
    }
}

/// Whether the bytes of one type are also values of the other.
// Source: Cassandra 5.0, AbstractType.isValueCompatibleWith of each type
fn fit_native(from: Native, to: Native) -> Fit {
    let fits = match to {
        Native::Blob => true,
        Native::Text => from == Native::Ascii,
        Native::Uuid => from == Native::Timeuuid,
        Native::Varint => {
            matches!(from, Native::Int | Native::Bigint)
        }
        Native::Bigint => from == Native::Timestamp,
        Native::Timestamp | Native::Time => from == Native::Bigint,
        Native::Date => from == Native::Int,
        _ => from == to,
    };
    if fits { Fit::Weak } else { Fit::No }
}

/// How a term fits a type. A fit that cannot be determined before the term is bound is weak:
/// binding then reports why it fails.
pub(crate) fn fit_term(term: &Term, to: &CqlType, cx: &TermContext<'_>) -> Fit {
    let to = to.unfrozen();
    match term {
        Term::Null if to.is_counter() => Fit::No,
        Term::Null | Term::Marker(_) => Fit::Weak,
        Term::Constant(constant) => match to {
            CqlType::Native(native) => fit_constant(constant, *native),
            CqlType::Tuple(_) if matches!(constant, Constant::String(_)) => Fit::Weak,
            _ => Fit::No,
        },
        Term::List(items) => match to {
            CqlType::List(element) => fit_items(items.iter(), element, cx),
            CqlType::Vector(element, dimensions) if items.len() == *dimensions => {
                fit_items(items.iter(), element, cx)
            }
            _ => Fit::No,
        },
        Term::Set(items) => match to {
            CqlType::Set(element) => fit_items(items.iter(), element, cx),
            CqlType::Map(..) if items.is_empty() => Fit::Weak,
            _ => Fit::No,
        },
        Term::Map(pairs) => match to {
            CqlType::Map(key, value) => fit_items(pairs.iter().map(|(name, _)| name), key, cx)
                .min(fit_items(pairs.iter().map(|(_, item)| item), value, cx)),
            _ => Fit::No,
        },
        Term::UserDefined(fields) => match to {
            CqlType::UserDefined(user) => {
                let fit = |(name, field): &(String, CqlType)| {
                    let given = fields.iter().find(|(given, _)| given == name);
                    given.map_or(Fit::Weak, |(_, term)| fit_term(term, field, cx))
                };
                Fit::all(user.fields.iter().map(fit)).at_most_weak()
            }
            _ => Fit::No,
        },
        Term::Tuple(parts) => match to {
            CqlType::Tuple(types) if parts.len() <= types.len() => {
                let fits = parts.iter().zip(types).map(|(part, of)| fit_term(part, of, cx));
                Fit::all(fits).at_most_weak()
            }
            // Brackets around one term may only group it.
            _ if parts.len() == 1 => fit_term(&parts[0], to, cx),
            _ => Fit::No,
        },
        Term::Call { function, arguments } => {
            let found = resolve::resolve_terms(function, arguments, Some(to), cx);
            found.ok().flatten().map_or(Fit::Weak, |found| {
                if found.depends_on_receiver() { Fit::Weak } else { fit_type(&found.returns, to) }
            })
        }
        Term::Hint(name, _) => {
            hinted_type(name, cx).map_or(Fit::Weak, |hinted| fit_type(&hinted, to))
        }
        Term::Negative(_) | Term::Arithmetic(..) => match to {
            CqlType::Native(native) => operator::fits(term, cx).of(*native),
            _ => Fit::No,
        },
        Term::Column(name) => {
            let column = cx.table.and_then(|table| table.column(name));
            column.map_or(Fit::Weak, |column| fit_type(&column.column_type, to))
        }
    }
}

fn fit_items<'a>(
    items: impl Iterator<Item = &'a Term>,
    element: &CqlType,
    cx: &TermContext<'_>,
) -> Fit {
    Fit::all(items.map(|item| fit_term(item, element, cx)))
}

// Source: Cassandra 5.0, Constants.Literal.testAssignment
pub(crate) fn fit_constant(constant: &Constant, to: Native) -> Fit {
    if preferred_native(constant) == Some(to) {
        return Fit::Exact;
    }
    let fits = match constant {
        Constant::String(_) => matches!(
            to,
            Native::Ascii
                | Native::Text
                | Native::Inet
                | Native::Date
                | Native::Time
                | Native::Timestamp
        ),
        Constant::Integer(_) => matches!(
            to,
            Native::Bigint
                | Native::Counter
                | Native::Date
                | Native::Decimal
                | Native::Double
                | Native::Duration
                | Native::Float
                | Native::Int
                | Native::Smallint
                | Native::Time
                | Native::Timestamp
                | Native::Tinyint
                | Native::Varint
        ),
        Constant::Float(_) => matches!(to, Native::Decimal | Native::Double | Native::Float),
        Constant::Uuid(_) => matches!(to, Native::Uuid | Native::Timeuuid),
        Constant::Boolean(_) => to == Native::Boolean,
        Constant::Blob(_) => to == Native::Blob,
        Constant::Duration(_) => to == Native::Duration,
    };
    if fits { Fit::Weak } else { Fit::No }
}

/// The type of a constant without a known receiver.
// Source: Cassandra 5.0, Constants.Type.getPreferedTypeFor
fn preferred_native(constant: &Constant) -> Option<Native> {
    Some(match constant {
        Constant::String(text) if text.is_ascii() => Native::Ascii,
        Constant::String(_) => Native::Text,
        Constant::Integer(digits) if digits.parse::<i32>().is_ok() => Native::Int,
        Constant::Integer(digits) if digits.parse::<i64>().is_ok() => Native::Bigint,
        Constant::Integer(_) => Native::Varint,
        Constant::Float(digits) => preferred_float(digits),
        Constant::Uuid(text) => {
            let version = uuid::Uuid::try_parse(text).ok()?.get_version_num();
            if version == 1 { Native::Timeuuid } else { Native::Uuid }
        }
        Constant::Boolean(_) => Native::Boolean,
        Constant::Blob(_) => Native::Blob,
        Constant::Duration(_) => Native::Duration,
    })
}

/// A double if it can represent all the digits.
fn preferred_float(digits: &str) -> Native {
    use crate::value::number::{Decimal, float_text};
    use crate::value::order::compare;
    let decimal = CqlType::Native(Native::Decimal);
    let Some(exact) = Decimal::parse(digits) else { return Native::Double };
    let double: f64 = digits.parse().unwrap_or(f64::NAN);
    let held = Decimal::parse(&float_text(double));
    let is_held =
        held.is_some_and(|held| compare(&held.encode(), &exact.encode(), &decimal).is_eq());
    if is_held { Native::Double } else { Native::Decimal }
}

/// The type of a term without a known receiver; None if several are possible.
pub(crate) fn preferred_type(term: &Term, cx: &TermContext<'_>) -> Option<CqlType> {
    match term {
        Term::Null | Term::Marker(_) | Term::UserDefined(_) => None,
        Term::Constant(constant) => preferred_native(constant).map(CqlType::Native),
        Term::List(items) => Some(CqlType::List(Box::new(common_type(items.iter(), cx)?.frozen()))),
        Term::Set(items) => Some(CqlType::Set(Box::new(common_type(items.iter(), cx)?.frozen()))),
        Term::Map(pairs) => {
            let key = common_type(pairs.iter().map(|(name, _)| name), cx)?.frozen();
            let value = common_type(pairs.iter().map(|(_, item)| item), cx)?.frozen();
            Some(CqlType::Map(Box::new(key), Box::new(value)))
        }
        Term::Tuple(parts) if parts.len() == 1 => preferred_type(&parts[0], cx),
        Term::Tuple(parts) => {
            let types = parts.iter().map(|part| preferred_type(part, cx).map(CqlType::frozen));
            Some(CqlType::Tuple(types.collect::<Option<_>>()?))
        }
        Term::Call { function, arguments } => {
            let found = resolve::resolve_terms(function, arguments, None, cx).ok()??;
            Some(found.returns)
        }
        Term::Hint(name, _) => hinted_type(name, cx).ok(),
        Term::Negative(_) | Term::Arithmetic(..) => {
            operator::preferred(term, cx).map(CqlType::Native)
        }
        Term::Column(name) => {
            cx.table.and_then(|table| table.column(name)).map(|column| column.column_type.clone())
        }
    }
}

/// The type of a term independent of its receiver: constants have none.
// Source: Cassandra 5.0, Term.Raw.getExactTypeIfKnown of each kind
pub(crate) fn exact_type(term: &Term, cx: &TermContext<'_>) -> Option<CqlType> {
    match term {
        Term::Null | Term::Marker(_) | Term::Constant(_) | Term::UserDefined(_) => None,
        Term::List(items) => first_exact(items.iter(), cx).map(CqlType::List),
        Term::Set(items) => first_exact(items.iter(), cx).map(CqlType::Set),
        Term::Map(pairs) => {
            let key = first_exact(pairs.iter().map(|(key, _)| key), cx)?;
            let value = first_exact(pairs.iter().map(|(_, value)| value), cx)?;
            Some(CqlType::Map(key, value))
        }
        Term::Tuple(parts) if parts.len() == 1 => exact_type(&parts[0], cx),
        Term::Tuple(parts) => {
            let types = parts.iter().map(|part| exact_type(part, cx).map(CqlType::frozen));
            Some(CqlType::Tuple(types.collect::<Option<_>>()?))
        }
        Term::Call { .. }
        | Term::Hint(..)
        | Term::Negative(_)
        | Term::Arithmetic(..)
        | Term::Column(_) => preferred_type(term, cx),
    }
}

fn first_exact<'a>(
    mut terms: impl Iterator<Item = &'a Term>,
    cx: &TermContext<'_>,
) -> Option<Box<CqlType>> {
    terms.find_map(|term| exact_type(term, cx)).map(|of| Box::new(of.frozen()))
}

/// The only type among those of the items that all items fit.
fn common_type<'a>(items: impl Iterator<Item = &'a Term>, cx: &TermContext<'_>) -> Option<CqlType> {
    let types: Vec<CqlType> = items.filter_map(|item| preferred_type(item, cx)).collect();
    types.iter().find(|to| types.iter().all(|from| fit_type(from, to).is_some())).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::{parsed_term, type_of, with_cx};

    #[test]
    fn constants_fit_the_types_that_can_read_them() {
        for (term, of, expected) in [
            ("1", "int", Fit::Exact),
            ("1", "bigint", Fit::Weak),
            ("1", "duration", Fit::Weak),
            ("1", "text", Fit::No),
            ("5000000000", "bigint", Fit::Exact),
            ("1.5", "double", Fit::Exact),
            ("0.1234567890123456789012345", "decimal", Fit::Exact),
            ("1.5", "int", Fit::No),
            ("'a'", "ascii", Fit::Exact),
            ("'a'", "text", Fit::Weak),
            ("'ä'", "text", Fit::Exact),
            ("'a'", "timestamp", Fit::Weak),
            ("'a'", "int", Fit::No),
            ("null", "int", Fit::Weak),
            ("null", "counter", Fit::No),
            ("0x00", "blob", Fit::Exact),
            ("0x00", "text", Fit::No),
            ("1h", "duration", Fit::Exact),
            ("[1, 2]", "list<int>", Fit::Exact),
            ("[1, 'a']", "list<int>", Fit::No),
            ("[]", "list<int>", Fit::Weak),
            ("[1, 2]", "vector<float, 2>", Fit::Weak),
            ("[1, 2]", "vector<float, 3>", Fit::No),
            ("{1}", "set<bigint>", Fit::Weak),
            ("{}", "map<int, int>", Fit::Weak),
            ("{1: 'a'}", "map<int, text>", Fit::Weak),
            ("(1, 'a')", "tuple<int, text>", Fit::Weak),
            ("(1, 'a', 2)", "tuple<int, text>", Fit::No),
            ("(1)", "int", Fit::Exact),
            ("(bigint) 1", "bigint", Fit::Exact),
            ("(bigint) 1", "int", Fit::No),
            ("now()", "timeuuid", Fit::Exact),
            ("now()", "uuid", Fit::Weak),
            ("now()", "int", Fit::No),
            ("1 + 2", "int", Fit::Exact),
            ("1 + 2", "bigint", Fit::Exact),
        ] {
            let term = parsed_term(term);
            let fit = with_cx(|cx| fit_term(&term, &type_of(of), cx));
            assert_eq!(fit, expected, "{term:?} for {of}");
        }
    }

    #[test]
    fn terms_have_a_type_of_their_own() {
        for (term, expected) in [
            ("1", Some("int")),
            ("99999999999999999999", Some("varint")),
            ("[1, 5000000000]", None),
            ("['a', 'ä']", Some("list<text>")),
            ("{1: 'a'}", Some("map<int, ascii>")),
            ("(1, true)", Some("frozen<tuple<int, boolean>>")),
            ("?", None),
            ("1 + 1.5", Some("double")),
            ("to_date(now())", Some("date")),
        ] {
            let term = parsed_term(term);
            let found = with_cx(|cx| preferred_type(&term, cx)).map(|of| of.to_string());
            assert_eq!(found.as_deref(), expected, "{term:?}");
        }
    }
}
