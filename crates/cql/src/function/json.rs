//! Values as JSON, and JSON as values.

use super::{Call, Function, Parameter, Shape};
use crate::error::CqlError;
use crate::type_name::Native;
use crate::types::CqlType;
use crate::value::json;
use crate::value::text::put_json;

// Source: Cassandra 5.0, ToJsonFct and FromJsonFct
pub(super) static FUNCTIONS: &[Function] = &[
    Function {
        name: "to_json",
        older_name: Some("tojson"),
        shape: Shape::Inferred { parameters: &[Parameter::Any], returns: |_, _| Ok(CqlType::TEXT) },
        doc: "The value as JSON; `null` for null.",
        run: |call| {
            let mut text = String::new();
            match call.argument(0) {
                None => text.push_str("null"),
                Some(bytes) => put_json(bytes, &call.types[0], &mut text),
            }
            Ok(Some(text.into_bytes()))
        },
    },
    Function {
        name: "from_json",
        older_name: Some("fromjson"),
        shape: Shape::Inferred {
            parameters: &[Parameter::Native(Native::Text)],
            returns: |_, receiver| {
                receiver.cloned().ok_or_else(|| {
                    CqlError::invalid(
                        "from_json() cannot be used in the selection clause of a SELECT statement",
                    )
                })
            },
        },
        doc: "The value of the receiver's type, parsed from JSON.",
        run: from_json,
    },
];

fn from_json(call: &Call<'_>) -> Result<Option<Vec<u8>>, CqlError> {
    let Some(bytes) = call.argument(0) else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes);
    json::decode(&text, call.returns).map_err(|message| CqlError::Failed {
        function: call.called.to_owned(),
        arguments: vec!["text".to_owned()],
        message,
    })
}

#[cfg(test)]
mod tests {
    use crate::expression::tests::{evaluated, refused};

    #[test]
    fn values_become_json_and_are_read_back() {
        for (term, of, expected) in [
            ("to_json(1)", "text", "1"),
            ("toJson('a')", "text", "\"a\""),
            ("to_json((int) null)", "text", "null"),
            ("to_json({1: 'a'})", "text", r#"{"1": "a"}"#),
            ("from_json('1')", "int", "1"),
            ("fromJson('[1, 2]')", "list<int>", "[1, 2]"),
            ("from_json('null')", "int", "null"),
            ("from_json(null)", "int", "null"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
        assert_eq!(
            refused("from_json('true')", "int"),
            "Expected an int value, but got a Boolean: true"
        );
    }
}
