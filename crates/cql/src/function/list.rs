//! All functions: the documentation, `system_virtual_schema` and calls use only this list.

use super::aggregate::AGGREGATES;
use super::{
    Function, Shape, blob, cast, collection, json, mask, math, time, token, uuids, vector,
};

/// All scalar functions that can be called by name, by kind. The compiler rejects a function that
/// is in no list as unused.
static KINDS: [(&str, &[Function]); 10] = [
    ("Time", time::FUNCTIONS),
    ("UUIDs", uuids::FUNCTIONS),
    ("Partitions", token::FUNCTIONS),
    ("Blobs", blob::FUNCTIONS),
    ("Mathematics", math::FUNCTIONS),
    ("Collections", collection::FUNCTIONS),
    ("JSON", json::FUNCTIONS),
    ("Vectors", vector::FUNCTIONS),
    ("Masking", mask::FUNCTIONS),
    ("Casts", cast::FUNCTIONS),
];

/// Finds the scalar function of a name, and returns its static name, which may be the older one.
pub(crate) fn find(name: &str) -> Option<(&'static Function, &'static str)> {
    let mut functions = KINDS.iter().flat_map(|(_, functions)| *functions);
    functions.find_map(|function| {
        let names = [Some(function.name), function.older_name];
        let called = names.into_iter().flatten().find(|one| *one == name)?;
        Some((function, called))
    })
}

/// A signature of a function, for documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionRow {
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) older_name: Option<&'static str>,
    /// Types, or descriptions of polymorphic parameters; an argument in brackets is optional.
    pub(crate) arguments: Vec<String>,
    pub(crate) returns: String,
    pub(crate) is_aggregate: bool,
    pub(crate) doc: &'static str,
}

/// All signatures of all functions, in the order of the documentation.
pub(crate) fn function_rows() -> Vec<FunctionRow> {
    let mut rows = Vec::new();
    for (kind, functions) in &KINDS {
        for function in *functions {
            let row = |arguments, returns: &str| FunctionRow {
                kind,
                name: function.name,
                older_name: function.older_name,
                arguments,
                returns: returns.to_owned(),
                is_aggregate: false,
                doc: function.doc,
            };
            match &function.shape {
                Shape::Fixed(signatures) => rows.extend(signatures.iter().map(|signature| {
                    let arguments = signature.arguments.iter();
                    let arguments = arguments.map(|native| native.name().to_owned()).collect();
                    row(arguments, signature.returns.name())
                })),
                Shape::Inferred { parameters, .. } => {
                    let arguments = parameters.iter().map(|parameter| parameter.text()).collect();
                    rows.push(row(arguments, "any"));
                }
                Shape::PartitionKey => rows.push(row(vec!["partition key".to_owned()], "bigint")),
            }
        }
    }
    rows.extend(AGGREGATES.iter().map(|aggregate| FunctionRow {
        kind: "Aggregates",
        name: aggregate.name,
        older_name: None,
        arguments: vec![aggregate.argument.to_owned()],
        returns: aggregate.returns.to_owned(),
        is_aggregate: true,
        doc: aggregate.doc,
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_documented() {
        let mut names = BTreeSet::new();
        for function in KINDS.iter().flat_map(|(_, functions)| *functions) {
            assert!(names.insert(function.name), "{}", function.name);
            if let Some(older) = function.older_name {
                assert!(names.insert(older), "{older}");
            }
            assert!(function.doc.ends_with('.'), "{}", function.name);
            assert_eq!(find(function.name), Some((function, function.name)));
            assert_eq!(function.name, function.name.to_lowercase());
        }
        assert!(find("_add").is_none());
    }

    #[test]
    fn rows_have_all_forms() {
        let rows = function_rows();
        let forms = |name| rows.iter().filter(|row| row.name == name).count();
        assert_eq!(forms("to_date"), 2);
        assert_eq!(forms("count"), 2);
        assert_eq!(forms("abs"), 9);
        assert!(rows.iter().any(|row| row.kind == "Masking" && row.returns == "any"));
    }
}
