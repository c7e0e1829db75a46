//! The selectors of SELECT.

use super::Expression;
use super::bind::{TermContext, bind_term, hinted_type};
use super::cast::bind_cast;
use super::fit::{exact_type, fit_type};
use super::operator;
use super::resolve::{Argument, bind_resolved, resolve};
use super::text::TermText;
use crate::error::CqlError;
use crate::function::aggregate::Aggregate;
use crate::function::part::{ELEMENT, FIELD, HINT, SLICE};
use crate::parser::QualifiedName;
use crate::schema::Table;
use crate::statements::Selector;
use crate::term::{NEGATION, Term};
use crate::type_name::TypeName;
use crate::types::CqlType;

/// What selectors may refer to, and the aggregates found in them.
#[derive(Debug)]
pub(crate) struct SelectorContext<'a, 'b> {
    pub(crate) table: &'a Table,
    pub(crate) terms: &'a mut TermContext<'b>,
    /// [`Expression::Aggregate`] is an index into it. If it is not empty, rows are folded into
    /// groups.
    pub(crate) aggregates: Vec<AggregateCall>,
}

/// A fold over rows: `aggregate.start()` for each group, then each row's value of `argument` is
/// added.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateCall {
    pub aggregate: Aggregate,
    /// None counts rows.
    pub argument: Option<Expression>,
}

/// Types a selector: a column, `count(*)`, a call of a scalar or aggregate function, a cast, an
/// element, slice or field, or a value. The columns of a group are those of its first row.
/// `writetime`, `maxwritetime` and `ttl` concern the store, not values: the caller removes them
/// first.
pub(crate) fn bind_selector(
    selector: &Selector,
    cx: &mut SelectorContext<'_, '_>,
) -> Result<Expression, CqlError> {
    match selector {
        Selector::Column(name) => {
            let place = cx.table.columns.iter().position(|column| column.name == *name);
            let index = place.ok_or_else(|| {
                CqlError::invalid(format!(
                    "Undefined column name {name} in table {}.{}",
                    cx.table.keyspace, cx.table.name
                ))
            })?;
            let of = cx.table.columns[index].column_type.clone();
            Ok(Expression::Column { index, of })
        }
        Selector::CountRows => Ok(add_aggregate(Aggregate::count_rows(), None, cx)),
        Selector::Call { function, arguments } => bind_call(function, arguments, cx),
        Selector::Cast(inner, name) => {
            let to = hinted_type(name, cx.terms)?;
            bind_cast(bind_selector(inner, cx)?, &to, &selector_text(inner))
        }
        Selector::Element(inner, key) => bind_element(inner, key, cx),
        Selector::Slice(inner, from, to) => bind_slice(inner, [from, to], cx),
        Selector::Field(inner, name) => bind_field(inner, name, cx),
        Selector::Brackets(inner) => bind_selector(inner, cx),
        Selector::Hint(name, inner) => bind_hint(name, inner, cx),
        Selector::Value(term) => bind_value(term, cx),
    }
}

fn add_aggregate(
    aggregate: Aggregate,
    argument: Option<Expression>,
    cx: &mut SelectorContext<'_, '_>,
) -> Expression {
    let of = aggregate.returns();
    cx.aggregates.push(AggregateCall { aggregate, argument });
    Expression::Aggregate { nth: cx.aggregates.len() - 1, of }
}

fn bind_call(
    function: &QualifiedName,
    arguments: &[Selector],
    cx: &mut SelectorContext<'_, '_>,
) -> Result<Expression, CqlError> {
    let is_ours = function.keyspace.as_deref().is_none_or(|keyspace| keyspace == "system");
    if is_ours && Aggregate::is_known(&function.name) {
        return bind_aggregate(&function.name, arguments, cx);
    }
    let arguments: Vec<Argument<'_>> = arguments
        .iter()
        .map(|argument| match argument.without_brackets() {
            // A literal in the statement may fit one parameter and not another.
            Selector::Value(term) => Ok(Argument::Term(term)),
            other => Ok(Argument::Bound(bind_selector(other, cx)?, selector_text(other))),
        })
        .collect::<Result<_, CqlError>>()?;
    let operator = operator::find(&function.name).filter(|_| function.keyspace.is_some());
    let arguments = match (operator, <[Argument<'_>; 2]>::try_from(arguments)) {
        (Some(operator), Ok(operands)) => {
            return operator::bind_operation(operator, operands, None, cx.terms);
        }
        (_, Ok(arguments)) => Vec::from(arguments),
        (_, Err(arguments)) => arguments,
    };
    let arguments = match <[Argument<'_>; 1]>::try_from(arguments) {
        Ok([operand]) if function.name == NEGATION => {
            return operator::bind_negation(operand, None, cx.terms);
        }
        Ok(arguments) => Vec::from(arguments),
        Err(arguments) => arguments,
    };
    let found = resolve(function, &arguments, None, cx.terms)?;
    let found = found.ok_or_else(|| {
        let keyspace = function.keyspace.as_deref().map(|keyspace| format!("{keyspace}."));
        CqlError::invalid(format!(
            "Unknown function '{}{}'",
            keyspace.unwrap_or_default(),
            function.name
        ))
    })?;
    bind_resolved(found, arguments, cx.terms)
}

fn bind_aggregate(
    name: &str,
    arguments: &[Selector],
    cx: &mut SelectorContext<'_, '_>,
) -> Result<Expression, CqlError> {
    let [argument] = arguments else {
        return Err(CqlError::invalid(format!(
            "Invalid number of arguments in call to function system.{name}: 1 required but {} provided",
            arguments.len()
        )));
    };
    let before = cx.aggregates.len();
    let argument = bind_selector(argument, cx)?;
    if cx.aggregates.len() > before {
        return Err(CqlError::invalid(
            "aggregate functions cannot be used as arguments of aggregate functions",
        ));
    }
    let aggregate = Aggregate::resolve(name, argument.cql_type())?;
    Ok(add_aggregate(aggregate, Some(argument), cx))
}

/// The text for messages.
fn selector_text(selector: &Selector) -> String {
    match selector {
        Selector::Column(name) => name.clone(),
        Selector::CountRows => "count(*)".to_owned(),
        Selector::Call { function, arguments } => {
            let arguments: Vec<String> = arguments.iter().map(selector_text).collect();
            format!("{}({})", function.name, arguments.join(", "))
        }
        Selector::Cast(inner, _) => format!("cast({})", selector_text(inner)),
        Selector::Element(inner, key) => format!("{}[{}]", selector_text(inner), TermText(key)),
        Selector::Slice(inner, ..) => format!("{}[..]", selector_text(inner)),
        Selector::Field(inner, name) => format!("{}.{name}", selector_text(inner)),
        Selector::Brackets(inner) => format!("({})", selector_text(inner)),
        Selector::Hint(name, inner) => format!("({name}){}", selector_text(inner)),
        Selector::Value(term) => TermText(term).to_string(),
    }
}

/// The type of the keys and that of their values.
fn keyed(
    what: &str,
    inner: &Selector,
    collection: &Expression,
) -> Result<(CqlType, CqlType), CqlError> {
    let (name, of) = (selector_text(inner), collection.cql_type());
    match of.unfrozen() {
        CqlType::Map(key, value) => Ok(((**key).clone(), (**value).clone())),
        CqlType::Set(item) => Ok(((**item).clone(), (**item).clone())),
        CqlType::List(_) => Err(CqlError::invalid(format!(
            "{what} selection is only allowed on sets and maps, but {name} is a list"
        ))),
        _ => Err(CqlError::invalid(format!(
            "Invalid {} selection: {name} of type {of} is not a collection",
            what.to_lowercase()
        ))),
    }
}

fn bind_element(
    inner: &Selector,
    key: &Term,
    cx: &mut SelectorContext<'_, '_>,
) -> Result<Expression, CqlError> {
    let collection = bind_selector(inner, cx)?;
    let (key_type, of) = keyed("Element", inner, &collection)?;
    let key = bind_term(key, &key_type, &format!("key({})", selector_text(inner)), cx.terms)?;
    Ok(Expression::call(&ELEMENT, vec![collection, key], of))
}

fn bind_slice(
    inner: &Selector,
    ends: [&Option<Term>; 2],
    cx: &mut SelectorContext<'_, '_>,
) -> Result<Expression, CqlError> {
    let collection = bind_selector(inner, cx)?;
    let (key_type, _) = keyed("Slice", inner, &collection)?;
    let of = collection.cql_type().clone();
    let name = format!("key({})", selector_text(inner));
    let mut arguments = vec![collection];
    for end in ends {
        arguments.push(match end {
            None => Expression::Null { of: key_type.clone() },
            Some(term) => bind_term(term, &key_type, &name, cx.terms)?,
        });
    }
    Ok(Expression::call(&SLICE, arguments, of))
}

fn bind_field(
    inner: &Selector,
    name: &str,
    cx: &mut SelectorContext<'_, '_>,
) -> Result<Expression, CqlError> {
    let value = bind_selector(inner, cx)?;
    let text = selector_text(inner);
    let CqlType::UserDefined(user) = value.cql_type().unfrozen() else {
        return Err(CqlError::invalid(format!(
            "Invalid field selection: {text} of type {} is not a user type",
            value.cql_type()
        )));
    };
    let Some(place) = user.fields.iter().position(|(field, _)| field == name) else {
        return Err(CqlError::invalid(format!(
            "{text} of type {} has no field {name}",
            value.cql_type()
        )));
    };
    let of = user.fields[place].1.clone();
    let place = i32::try_from(place).expect("types have few fields");
    let place = Expression::Constant { bytes: place.to_be_bytes().to_vec(), of: CqlType::INT };
    Ok(Expression::call(&FIELD, vec![value, place], of))
}

/// A value whose type is, or includes, the one of the hint.
// Source: Cassandra 5.0, Selectable.WithTypeHint
fn bind_hint(
    name: &TypeName,
    inner: &Selector,
    cx: &mut SelectorContext<'_, '_>,
) -> Result<Expression, CqlError> {
    let to = hinted_type(name, cx.terms)?;
    let value = bind_selector(inner, cx)?;
    if *value.cql_type() == to {
        return Ok(value);
    }
    if !fit_type(value.cql_type(), &to).is_some() || to.is_multi_cell() {
        let text = format!("({name}){}", selector_text(inner));
        return Err(CqlError::invalid(format!(
            "Cannot assign value {text} to {text} of type {}",
            to.frozen()
        )));
    }
    Ok(Expression::call(&HINT, vec![value], to))
}

// Source: Cassandra 5.0, Selectable.WithTerm
fn bind_value(term: &Term, cx: &mut SelectorContext<'_, '_>) -> Result<Expression, CqlError> {
    let of = exact_type(term, cx.terms).ok_or_else(|| {
        CqlError::invalid(format!(
            "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
            TermText(term)
        ))
    })?;
    bind_term(term, &of, "[selection]", cx.terms)
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::selected;

    const NEGATION_REFUSED: &str = "Invalid call to function _negate, none of its type signatures \
        match (known type signatures: system._negate : (tinyint) -> tinyint, system._negate : \
        (smallint) -> smallint, system._negate : (int) -> int, system._negate : (bigint) -> bigint, \
        system._negate : (float) -> float, system._negate : (double) -> double, system._negate : \
        (decimal) -> decimal, system._negate : (varint) -> varint, system._negate : (counter) -> \
        counter)";

    #[test]
    fn selectors_compute_values_of_rows() {
        for (selector, expected) in [
            ("c", "7"),
            ("abs(c)", "7"),
            ("cast(c as text)", "7"),
            ("to_json(m)", r#"{"1": "a", "2": "b", "3": "c"}"#),
            ("m[2]", "b"),
            ("m[9]", "null"),
            ("m[2..]", r#"{"2": "b", "3": "c"}"#),
            ("m[..1]", r#"{"1": "a"}"#),
            ("m[2..2]", r#"{"2": "b"}"#),
            ("d.a", "5"),
            ("d.b", "null"),
            ("map_keys(m)", "[1, 2, 3]"),
            ("(bigint) 3", "3"),
            ("[(int) 1, 2]", "[1, 2]"),
            ("(int) c", "7"),
            ("(int) (c + 1) * 2", "16"),
            ("(int) ((c - 1) % 4)", "2"),
            ("(int) (int) c", "7"),
            ("(bigint) token(k1, k2)", "6516349416904725244"),
            ("abs((int) c)", "7"),
            ("(c + 1) * 2", "16"),
            ("c / 2", "3"),
            ("-c", "-7"),
            ("-c + -1", "-8"),
            ("c + 0.5", "7.5"),
            ("c % (tinyint) 4", "3"),
            ("abs(c - 10)", "3"),
            ("1 + 2", "3"),
            ("(date) '2011-02-03' + 1d", "2011-02-04"),
            ("cast(c / 2 as text)", "3"),
            ("similarity_cosine(v, [1, 0])", "1.0"),
            ("to_date((timestamp) '2011-02-03')", "2011-02-03"),
            ("token(k1, k2)", "6516349416904725244"),
        ] {
            assert_eq!(selected(selector), expected, "{selector}");
        }
    }

    #[test]
    fn aggregates_are_numbered() {
        // The row of a group returns the type and the argument of its nth aggregate.
        for (selector, expected) in [
            ("count(*)", "0 of bigint"),
            ("count(c)", "0 of bigint"),
            ("avg(c)", "0 of int"),
            ("min(d)", "0 of u"),
            ("cast(max(c) as text)", "0 of int"),
        ] {
            assert_eq!(selected(&format!("aggregate {selector}")), expected, "{selector}");
        }
    }

    #[test]
    fn wrong_selectors_are_refused_in_cassandras_words() {
        for (selector, expected) in [
            ("x", "Undefined column name x in table k.t"),
            ("l[0]", "Element selection is only allowed on sets and maps, but l is a list"),
            ("l[0..1]", "Slice selection is only allowed on sets and maps, but l is a list"),
            ("c[0]", "Invalid element selection: c of type int is not a collection"),
            ("c.a", "Invalid field selection: c of type int is not a user type"),
            ("d.x", "d of type u has no field x"),
            (
                "?",
                "Cannot infer type for term ? in selection clause (try using a cast to force a type)",
            ),
            (
                "sum(sum(c))",
                "aggregate functions cannot be used as arguments of aggregate functions",
            ),
            (
                "min(c, c)",
                "Invalid number of arguments in call to function system.min: 1 required but 2 provided",
            ),
            ("nothing(c)", "Unknown function 'nothing'"),
            (
                "'constant'",
                "Cannot infer type for term 'constant' in selection clause (try using a cast to force a type)",
            ),
            ("cast(c as boolean)", "c cannot be cast to boolean"),
            ("(bigint) c", "Cannot assign value (bigint)c to (bigint)c of type bigint"),
            ("(text) (c)", "Cannot assign value (text)(c) to (text)(c) of type text"),
            ("c + k2", "the '+' operation is not supported between c and k2"),
            ("-k2", NEGATION_REFUSED),
            (
                "c + ?",
                "Ambiguous '+' operation with args c and ?: use type hint to disambiguate, example '(int) ?'",
            ),
            (
                "from_json('1')",
                "from_json() cannot be used in the selection clause of a SELECT statement",
            ),
            (
                "map_keys(c)",
                "Function system.map_keys requires a map argument, but found argument c of type int",
            ),
        ] {
            assert_eq!(selected(selector), expected, "{selector}");
        }
    }
}
