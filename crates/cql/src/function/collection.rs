//! Functions of single collections.

use super::aggregate::Aggregate;
use super::{Call, Function, Parameter, Shape};
use crate::error::CqlError;
use crate::types::CqlType;
use crate::value::collection::{items, put_count, put_part};

const fn row(
    name: &'static str,
    parameters: &'static [Parameter],
    returns: super::signature::Returns,
    doc: &'static str,
    run: fn(&Call<'_>) -> Result<Option<Vec<u8>>, CqlError>,
) -> Function {
    let shape = Shape::Inferred { parameters, returns };
    Function { name, older_name: None, shape, doc, run }
}

// Source: Cassandra 5.0, CollectionFcts
pub(super) static FUNCTIONS: &[Function] = &[
    row(
        "map_keys",
        &[Parameter::Map],
        |types, _| Ok(CqlType::Set(Box::new(map_parts(&types[0]).0))),
        "The keys of a map, as a set.",
        |call| parts(call, 0),
    ),
    row(
        "map_values",
        &[Parameter::Map],
        |types, _| Ok(CqlType::List(Box::new(map_parts(&types[0]).1))),
        "The values of a map, as a list.",
        |call| parts(call, 1),
    ),
    row(
        "collection_count",
        &[Parameter::Collection],
        |_, _| Ok(CqlType::INT),
        "The number of items of a collection.",
        |call| {
            let Some(bytes) = call.argument(0) else { return Ok(None) };
            Ok(bytes.get(..4).map(<[u8]>::to_vec))
        },
    ),
    row(
        "collection_min",
        &[Parameter::SetOrList],
        |types, _| Ok(element(&types[0])),
        "The smallest item of a set or list.",
        |call| aggregate(call, "min"),
    ),
    row(
        "collection_max",
        &[Parameter::SetOrList],
        |types, _| Ok(element(&types[0])),
        "The largest item of a set or list.",
        |call| aggregate(call, "max"),
    ),
    row(
        "collection_sum",
        &[Parameter::NumericSetOrList],
        |types, _| Ok(element(&types[0])),
        "The sum of the items, which may overflow their type.",
        |call| aggregate(call, "sum"),
    ),
    row(
        "collection_avg",
        &[Parameter::NumericSetOrList],
        |types, _| Ok(element(&types[0])),
        "The average of the items, in their type; zero without items.",
        |call| aggregate(call, "avg"),
    ),
];

fn map_parts(of: &CqlType) -> (CqlType, CqlType) {
    match of.unfrozen() {
        CqlType::Map(key, value) => ((**key).clone(), (**value).clone()),
        other => unreachable!("the parameter takes maps only, not {other}"),
    }
}

fn element(of: &CqlType) -> CqlType {
    match of.unfrozen() {
        CqlType::List(element) | CqlType::Set(element) => (**element).clone(),
        other => unreachable!("the parameter takes sets and lists only, not {other}"),
    }
}

/// The bytes in rows and from clients have been checked.
fn checked_items(bytes: &[u8], per_item: usize) -> Result<Vec<&[u8]>, CqlError> {
    items(bytes, per_item).map_err(|error| CqlError::invalid(error.to_string()))
}

fn parts(call: &Call<'_>, place: usize) -> Result<Option<Vec<u8>>, CqlError> {
    let Some(bytes) = call.argument(0) else { return Ok(None) };
    let items = checked_items(bytes, 2)?;
    let mut out = Vec::new();
    put_count(items.len() / 2, &mut out);
    items.iter().skip(place).step_by(2).for_each(|part| put_part(Some(part), &mut out));
    Ok(Some(out))
}

fn aggregate(call: &Call<'_>, name: &str) -> Result<Option<Vec<u8>>, CqlError> {
    let Some(bytes) = call.argument(0) else { return Ok(None) };
    let mut fold = Aggregate::resolve(name, call.returns)?.start();
    for item in checked_items(bytes, 1)? {
        fold.add(Some(item))?;
    }
    fold.finish()
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn collections_are_taken_apart() {
        for (term, of, expected) in [
            ("map_keys({2: 'b', 1: 'a'})", "set<int>", "[1, 2]"),
            ("map_values({2: 'b', 1: 'a'})", "list<text>", r#"["a", "b"]"#),
            ("collection_count([1, 2, 3])", "int", "3"),
            ("collection_count({1: 2})", "int", "1"),
            ("collection_min([3, 1, 2])", "int", "1"),
            ("collection_max({'a', 'b'})", "text", "b"),
            ("collection_sum([1, 2, 3])", "int", "6"),
            ("collection_sum((list<tinyint>) [127, 1])", "tinyint", "-128"),
            ("collection_avg([1, 2, 4])", "int", "2"),
            ("collection_avg((list<double>) [1, 2])", "double", "1.5"),
            ("collection_avg((list<int>) [])", "int", "0"),
            ("collection_min((list<int>) [])", "int", "null"),
            ("collection_count((list<int>) null)", "int", "null"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
        assert_eq!(
            refused("collection_sum(['a'])", "text"),
            "Function system.collection_sum requires a numeric set/list argument, but found argument ['a'] of type list<ascii>"
        );
    }
}
