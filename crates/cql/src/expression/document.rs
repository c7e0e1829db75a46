//! The row of INSERT JSON.

use super::Evaluated;
use crate::error::CqlError;
use crate::schema::Table;
use crate::value::json;

/// The values of all columns of the table, in its order; columns not named in the document are
/// unset.
// Source: Cassandra 5.0, Json.parseJson and Json.DeferredValue
pub fn decode_document(
    text: Option<&[u8]>,
    table: &Table,
) -> Result<Vec<Evaluated<'static>>, CqlError> {
    let text = text.filter(|text| text.trim_ascii() != b"null");
    let Some(text) = text else {
        return Err(CqlError::invalid("Got null for INSERT JSON values"));
    };
    // The bytes have been checked to be text.
    let text = String::from_utf8_lossy(text);
    let mut members = json::decode_row(&text).map_err(CqlError::Invalid)?;
    let mut values = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        let Some(member) = members.remove(&column.name) else {
            values.push(Evaluated::Unset);
            continue;
        };
        let value = json::decode_raw(member, &column.column_type).map_err(|error| {
            CqlError::invalid(format!("Error decoding JSON value for {}: {error}", column.name))
        })?;
        values.push(value.map_or(Evaluated::Null, |bytes| Evaluated::Bytes(bytes.into())));
    }
    match members.into_keys().next() {
        None => Ok(values),
        Some(unknown) => Err(CqlError::invalid(format!(
            "JSON values map contains unrecognized column: {unknown}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::with_table;

    fn decoded(text: &str) -> Result<Vec<Evaluated<'static>>, String> {
        with_table(|table| decode_document(Some(text.as_bytes()), table))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn documents_are_rows() {
        let values = decoded(r#"{"k1": 1, "K2": "a", "c": null}"#).unwrap();
        assert_eq!(values[0], Evaluated::Bytes(1_i32.to_be_bytes().to_vec().into()));
        assert_eq!(values[1], Evaluated::Bytes(b"a".to_vec().into()));
        assert_eq!(values[2], Evaluated::Null);
        assert_eq!(values[3], Evaluated::Unset);
        for (text, expected) in [
            (r#"{"x": 1}"#, "JSON values map contains unrecognized column: x"),
            (r#"{"k1": "x"}"#, "Error decoding JSON value for k1: Unable to make int from 'x'"),
        ] {
            assert_eq!(decoded(text), Err(expected.to_owned()));
        }
        let error = with_table(|table| decode_document(None, table)).unwrap_err();
        assert_eq!(error.to_string(), "Got null for INSERT JSON values");
    }
}
