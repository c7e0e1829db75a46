//! Collections, tuples, vectors and user-defined types as literals in statements.

use super::Expression;
use super::bind::{Target, TermContext, bind_term, folded};
use super::fit::fit_term;
use super::text::TermText;
use crate::error::CqlError;
use crate::term::Term;
use crate::types::CqlType;

/// `[a, b]`: a list or a vector.
// Source: Cassandra 5.0, Lists.Literal.prepare and Vectors.Literal.prepare
pub(super) fn bind_list(
    items: &[Term],
    target: Target<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    match target.of.unfrozen() {
        CqlType::List(element) => {
            let parts = bind_items(items, element, Literal { kind: "list", target }, cx)?;
            refuse_markers(&parts, "list", target)?;
            folded(Expression::Parts { parts, of: target.of.clone() })
        }
        CqlType::Vector(element, dimensions) => {
            if items.len() != *dimensions {
                return Err(CqlError::invalid(format!(
                    "Invalid vector literal for {} of type {}; expected {dimensions} elements, but given {}",
                    target.name,
                    target.of,
                    items.len()
                )));
            }
            let parts = bind_items(items, element, Literal { kind: "vector", target }, cx)?;
            folded(Expression::Parts { parts, of: target.of.clone() })
        }
        _ => Err(wrong_type("list", target)),
    }
}

/// `{a, b}`; empty braces may also be a map.
// Source: Cassandra 5.0, Sets.Literal.prepare
pub(super) fn bind_set(
    items: &[Term],
    target: Target<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let parts = match target.of.unfrozen() {
        CqlType::Set(element) => {
            let parts = bind_items(items, element, Literal { kind: "set", target }, cx)?;
            refuse_markers(&parts, "set", target)?;
            parts
        }
        CqlType::Map(..) if items.is_empty() => Vec::new(),
        _ => return Err(wrong_type("set", target)),
    };
    folded(Expression::Parts { parts, of: target.of.clone() })
}

/// `{a: b}`
// Source: Cassandra 5.0, Maps.Literal.prepare
pub(super) fn bind_map(
    pairs: &[(Term, Term)],
    target: Target<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let CqlType::Map(key_type, value_type) = target.of.unfrozen() else {
        return Err(wrong_type("map", target));
    };
    let mut parts = Vec::with_capacity(pairs.len() * 2);
    for (key, value) in pairs {
        for (term, of, role) in [(key, key_type, "key"), (value, value_type, "value")] {
            if !fit_term(term, of, cx).is_some() {
                return Err(CqlError::invalid(format!(
                    "Invalid map literal for {}: {role} {} is not of type {of}",
                    target.name,
                    TermText(term)
                )));
            }
            parts.push(bind_term(term, of, &format!("{role}({})", target.name), cx)?);
        }
    }
    refuse_markers(&parts, "map", target)?;
    folded(Expression::Parts { parts, of: target.of.clone() })
}

/// `(a, b)`
// Source: Cassandra 5.0, Tuples.Literal.prepare
pub(super) fn bind_tuple(
    terms: &[Term],
    target: Target<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let CqlType::Tuple(types) = target.of.unfrozen() else {
        return Err(CqlError::invalid(format!(
            "Invalid tuple type literal for {} of type {}",
            target.name, target.of
        )));
    };
    if terms.len() > types.len() {
        return Err(CqlError::invalid(format!(
            "Invalid tuple literal for {}: too many elements. Type {} expects {} but got {}",
            target.name,
            target.of.unfrozen(),
            types.len(),
            terms.len()
        )));
    }
    let mut parts = Vec::with_capacity(terms.len());
    for (nth, (term, of)) in terms.iter().zip(types).enumerate() {
        if !fit_term(term, of, cx).is_some() {
            return Err(CqlError::invalid(format!(
                "Invalid tuple literal for {}: component {nth} is not of type {of}",
                target.name
            )));
        }
        parts.push(bind_term(term, of, &format!("{}[{nth}]", target.name), cx)?);
    }
    // Omitted parts at the end are null.
    parts.extend(types[terms.len()..].iter().map(|of| Expression::Null { of: of.clone() }));
    folded(Expression::Parts { parts, of: target.of.clone() })
}

/// `{field: a}`; omitted fields are null.
// Source: Cassandra 5.0, UserTypes.Literal.prepare
pub(super) fn bind_user_type(
    fields: &[(String, Term)],
    target: Target<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let CqlType::UserDefined(user) = target.of.unfrozen() else {
        return Err(wrong_type("user type", target));
    };
    let mut parts = Vec::with_capacity(user.fields.len());
    for (name, of) in &user.fields {
        // Of a repeated field, the last one counts.
        let Some((_, term)) = fields.iter().rfind(|(given, _)| given == name) else {
            parts.push(Expression::Null { of: of.clone() });
            continue;
        };
        if !fit_term(term, of, cx).is_some() {
            return Err(CqlError::invalid(format!(
                "Invalid user type literal for {}: field {name} is not of type {of}",
                target.name
            )));
        }
        parts.push(bind_term(term, of, &format!("{}.{name}", target.name), cx)?);
    }
    let is_known = |name: &String| user.fields.iter().any(|(known, _)| known == name);
    if let Some((unknown, _)) = fields.iter().find(|(name, _)| !is_known(name)) {
        return Err(CqlError::invalid(format!(
            "Unknown field '{unknown}' in value of user defined type {}",
            user.name
        )));
    }
    folded(Expression::Parts { parts, of: target.of.clone() })
}

/// A literal that is being bound, for messages.
#[derive(Clone, Copy)]
struct Literal<'a> {
    kind: &'static str,
    target: Target<'a>,
}

fn bind_items(
    items: &[Term],
    element: &CqlType,
    literal: Literal<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Vec<Expression>, CqlError> {
    let Literal { kind, target } = literal;
    let name = format!("value({})", target.name);
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        if !fit_term(item, element, cx).is_some() {
            return Err(CqlError::invalid(format!(
                "Invalid {kind} literal for {}: value {} is not of type {element}",
                target.name,
                TermText(item)
            )));
        }
        parts.push(bind_term(item, element, &name, cx)?);
    }
    Ok(parts)
}

/// A collection is either a single marker or a literal without markers in it.
fn refuse_markers(parts: &[Expression], kind: &str, target: Target<'_>) -> Result<(), CqlError> {
    if !parts.iter().any(Expression::has_marker) {
        return Ok(());
    }
    Err(CqlError::invalid(format!(
        "Invalid {kind} literal for {}: bind variables are not supported inside collection literals",
        target.name
    )))
}

fn wrong_type(kind: &str, target: Target<'_>) -> CqlError {
    CqlError::invalid(format!("Invalid {kind} literal for {} of type {}", target.name, target.of))
}
