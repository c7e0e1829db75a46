//! Names of computed columns without an alias.

use super::selection::ExtraKind;
use crate::expression::Expression;
use crate::expression::operator::find as find_operator;
use crate::function::cast;
use crate::relation::{Comparison, Left, Relation, Right};
use crate::statements::Selector;
use crate::term::{NEGATION, Term};

/// The column's name in results.
// Source: Cassandra 5.0, Selectable and its `toString`, AbstractFunctionSelector.getColumnName
pub(super) fn selector_name(selector: &Selector, expression: &Expression) -> String {
    match selector {
        // A cast of a value to its own type is omitted.
        Selector::Cast(inner, _) if !is_cast(expression) => selector_name(inner, expression),
        Selector::Cast(inner, _) => {
            format!("cast({} as {})", part(inner), expression.cql_type())
        }
        other => part(other),
    }
}

fn is_cast(expression: &Expression) -> bool {
    matches!(expression, Expression::Call { function, .. } if cast::FUNCTIONS.contains(function))
}

fn part(selector: &Selector) -> String {
    match selector {
        Selector::Column(name) => name.clone(),
        Selector::CountRows => "count".to_owned(),
        Selector::Call { function, arguments } => {
            let arguments: Vec<String> = arguments.iter().map(part).collect();
            match (find_operator(&function.name), &arguments[..]) {
                (Some(operator), [left, right]) => {
                    return format!("{left} {} {right}", operator.symbol());
                }
                (None, [only]) if function.name == NEGATION => return format!("-{only}"),
                _ => {}
            }
            let arguments = arguments.join(", ");
            if ExtraKind::of_call(function).is_some() {
                return format!("{}({arguments})", function.name);
            }
            let keyspace = function.keyspace.as_deref().unwrap_or("system");
            format!("{keyspace}.{}({arguments})", function.name)
        }
        Selector::Cast(inner, of) => format!("cast({} as {of})", part(inner)),
        Selector::Element(inner, key) => format!("{}[{}]", part(inner), term(key)),
        Selector::Slice(inner, from, to) => {
            let end = |end: &Option<Term>| end.as_ref().map(term).unwrap_or_default();
            format!("{}[{}..{}]", part(inner), end(from), end(to))
        }
        Selector::Field(inner, name) => format!("{}.{name}", part(inner)),
        Selector::Brackets(inner) => format!("({})", part(inner)),
        Selector::Hint(of, inner) => format!("({of}){}", part(inner)),
        Selector::Value(value) => term(value),
    }
}

/// A condition as text.
pub(super) fn relation(of: &Relation) -> String {
    let left = match &of.left {
        Left::Column(name) => name.clone(),
        Left::Element(name, key) => format!("{name}[{}]", term(key)),
        Left::Columns(names) => format!("({})", names.join(", ")),
        Left::Token(names) => format!("token({})", names.join(", ")),
    };
    let right = match &of.right {
        Right::Nothing => String::new(),
        Right::Term(value) => term(value),
        Right::Terms(values) => {
            format!("({})", values.iter().map(term).collect::<Vec<_>>().join(", "))
        }
    };
    format!("{left} {} {right}", operator(of.operator))
}

pub(super) fn operator(of: Comparison) -> &'static str {
    match of {
        Comparison::Equal => "=",
        Comparison::NotEqual => "!=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::In => "IN",
        Comparison::Contains => "CONTAINS",
        Comparison::ContainsKey => "CONTAINS KEY",
        Comparison::Like => "LIKE",
        Comparison::IsNotNull => "IS NOT",
    }
}

/// A term as text.
pub(super) fn term(of: &Term) -> String {
    let list = |terms: &[Term]| terms.iter().map(term).collect::<Vec<_>>().join(", ");
    match of {
        Term::Null => "NULL".to_owned(),
        Term::Marker(_) => "?".to_owned(),
        Term::Constant(constant) => constant.to_string(),
        Term::List(terms) => format!("[{}]", list(terms)),
        Term::Set(terms) => format!("{{{}}}", list(terms)),
        Term::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", term(key), term(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        Term::UserDefined(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", term(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Term::Tuple(terms) => format!("({})", list(terms)),
        Term::Call { function, arguments } => format!("{}({})", function.name, list(arguments)),
        Term::Hint(of, value) => format!("({of}){}", term(value)),
        Term::Negative(value) => format!("-{}", term(value)),
        Term::Arithmetic(operator, left, right) => {
            format!("{} {} {}", term(left), operator.symbol(), term(right))
        }
        Term::Column(name) => name.clone(),
    }
}
