//! Helpers of the tests of expressions and functions, and tests of evaluation.

use std::borrow::Cow;
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;
use wire::cql::{
    Consistency, Direction, HEADER_BYTES, Header, Limits, Parameters, ParametersToSend, Request,
    RequestEncoder, Version, decode_request,
};

use super::*;
use crate::parser::Parser;
use crate::schema::table::TableOptions;
use crate::schema::{Catalog, Column, ColumnKind, Keyspace, Table, TableSource};
use crate::statements::{Selector, Statement};
use crate::term::Term;
use crate::type_name::{Native, TypeName};
use crate::types::UserType;
use crate::value::text::{native_to_text, put_json};

/// 2023-11-14 22:13:20.123 UTC
pub(crate) const NOW_US: i64 = 1_700_000_000_123_000;

fn user_type() -> Arc<UserType> {
    let fields = vec![("a".to_owned(), CqlType::INT), ("b".to_owned(), CqlType::TEXT)];
    Arc::new(UserType::new("k".into(), "u".into(), fields))
}

/// A type of keyspace `k`, which has a type `u` of fields `a int` and `b text`.
pub(crate) fn type_of(text: &str) -> CqlType {
    let name = TypeName::parse(&mut Parser::new(text).unwrap()).unwrap();
    let found = CqlType::resolve(&name, "k", &|name| (name == "u").then(user_type));
    found.unwrap()
}

pub(crate) fn parsed_term(text: &str) -> Term {
    parsed(text).0
}

fn parsed(text: &str) -> (Term, Vec<Option<String>>) {
    let mut parser = Parser::new(text).unwrap();
    let term = Term::parse(&mut parser).unwrap_or_else(|error| panic!("{text}: {error}"));
    parser.expect_end().unwrap_or_else(|error| panic!("{text}: {error}"));
    (term, parser.into_markers())
}

/// `k.t`, with a partition key of an `int` and a `text`.
fn table() -> Table {
    let columns = [
        ("k1", "int", ColumnKind::PartitionKey { position: 0 }),
        ("k2", "text", ColumnKind::PartitionKey { position: 1 }),
        ("c", "int", ColumnKind::Regular),
        ("d", "u", ColumnKind::Regular),
        ("l", "list<int>", ColumnKind::Regular),
        ("m", "map<int, text>", ColumnKind::Regular),
        ("v", "vector<float, 2>", ColumnKind::Regular),
    ];
    let columns = columns.into_iter().zip(0..).map(|((name, of, kind), number)| Column {
        name: name.to_owned(),
        column_type: type_of(of),
        kind,
        number,
        shown_from: Column::ALL_SHOWN,
    });
    Table {
        id: Uuid::nil(),
        keyspace: "k".into(),
        name: "t".into(),
        columns: columns.collect(),
        indexes: Vec::new(),
        dropped: std::collections::BTreeMap::new(),
        options: TableOptions::default(),
        source: TableSource::Stored,
    }
}

pub(crate) fn with_table<T>(work: impl FnOnce(&Table) -> T) -> T {
    work(&table())
}

fn with_markers<T>(markers: &mut Markers, work: impl FnOnce(&mut TermContext<'_>) -> T) -> T {
    let mut keyspace = Keyspace {
        name: "k".into(),
        replication: std::collections::BTreeMap::new(),
        durable_writes: true,
        tables: std::collections::BTreeMap::new(),
        types: std::collections::BTreeMap::new(),
    };
    keyspace.types.insert("u".into(), user_type());
    let mut catalog = Catalog::default();
    catalog.keyspaces.insert("k".into(), Arc::new(keyspace));
    let table = table();
    work(&mut TermContext { catalog: &catalog, keyspace: "k", table: Some(&table), markers })
}

pub(crate) fn with_cx<T>(work: impl FnOnce(&TermContext<'_>) -> T) -> T {
    with_markers(&mut Markers::new(Vec::new()), |cx| work(cx))
}

/// A bound term for column `c` of a type.
pub(crate) fn bound_term(term: &str, of: &str) -> Result<Expression, CqlError> {
    bound_with_markers(term, of).map(|(expression, _)| expression)
}

fn bound_with_markers(term: &str, of: &str) -> Result<(Expression, Vec<Marker>), CqlError> {
    let (term, names) = parsed(term);
    let mut markers = Markers::new(names);
    let bound = with_markers(&mut markers, |cx| bind_term(&term, &type_of(of), "c", cx))?;
    Ok((bound, markers.finish().expect("every marker has a type")))
}

pub(crate) fn evaluated_expression(expression: &Expression) -> Result<String, CqlError> {
    let moment = Moment::new(NOW_US, 7);
    let values = BoundValues::default();
    let found = expression.evaluate(&values, None, &moment)?;
    Ok(shown(found.required("c")?.as_deref(), expression.cql_type()))
}

fn evaluated_as(expression: &Expression, of: &CqlType) -> Result<String, CqlError> {
    let values = BoundValues::default();
    let found = expression.evaluate(&values, None, &Moment::new(NOW_US, 7))?;
    Ok(shown(found.required("c")?.as_deref(), of))
}

/// Native values in CQL syntax, others as JSON.
pub(crate) fn shown(value: Option<&[u8]>, of: &CqlType) -> String {
    let Some(bytes) = value else { return "null".to_owned() };
    if let CqlType::Native(native) = of {
        return native_to_text(bytes, *native).unwrap_or_default();
    }
    let mut text = String::new();
    put_json(bytes, of, &mut text);
    text
}

/// The value of a term.
pub(crate) fn evaluated(term: &str, of: &str) -> String {
    let found = bound_term(term, of).and_then(|bound| evaluated_as(&bound, &type_of(of)));
    found.unwrap_or_else(|error| panic!("{term}: {error}"))
}

/// The error of binding or evaluating a term.
pub(crate) fn refused(term: &str, of: &str) -> String {
    match bound_term(term, of).and_then(|bound| evaluated_expression(&bound)) {
        Ok(found) => panic!("{term} is {found}"),
        Err(error) => error.to_string(),
    }
}

/// One row of the table; aggregates are identified by their index.
struct TestRow;

impl Row for TestRow {
    fn column(&self, index: usize) -> Result<Option<Cow<'_, [u8]>>, CqlError> {
        let (term, of) = [
            ("1", "int"),
            ("'a'", "text"),
            ("7", "int"),
            ("{a: 5}", "u"),
            ("[1, 2]", "list<int>"),
            ("{1: 'a', 2: 'b', 3: 'c'}", "map<int, text>"),
            ("[2, 0]", "vector<float, 2>"),
        ][index];
        match bound_term(term, of).unwrap() {
            Expression::Constant { bytes, .. } => Ok(Some(Cow::Owned(bytes))),
            other => panic!("{other:?}"),
        }
    }

    fn aggregate(&self, _: usize) -> Option<&[u8]> {
        None
    }
}

/// The value of a selector, or its error; for an aggregate, the word `aggregate`, the index of the
/// last aggregate in it, and its type.
pub(crate) fn selected(selector: &str) -> String {
    let (selector, is_aggregate) = match selector.strip_prefix("aggregate ") {
        Some(rest) => (rest, true),
        None => (selector, false),
    };
    let statement = crate::statements::parse(&format!("SELECT {selector} FROM k.t")).unwrap();
    let Statement::Select(select) = statement.statement else { panic!() };
    let selector: &Selector = &select.columns[0].selector;
    let mut markers = Markers::new(vec![None]);
    with_markers(&mut markers, |terms| {
        let table = table();
        let mut cx = SelectorContext { table: &table, terms, aggregates: Vec::new() };
        let expression = match bind_selector(selector, &mut cx) {
            Ok(expression) => expression,
            Err(error) => return error.to_string(),
        };
        if is_aggregate {
            let last = cx.aggregates.last().expect("there is an aggregate");
            let nth = cx.aggregates.len() - 1;
            return format!("{nth} of {}", last.aggregate.returns());
        }
        let values = BoundValues::default();
        let moment = Moment::new(NOW_US, 7);
        let found = expression.evaluate(&values, Some(&TestRow), &moment).unwrap();
        shown(found.required("c").unwrap().as_deref(), expression.cql_type())
    })
}

#[test]
fn constants_and_collections_become_values() {
    for (term, of, expected) in [
        ("1", "int", "1"),
        ("-1", "varint", "-1"),
        ("1", "double", "1.0"),
        ("'ä'", "text", "ä"),
        ("null", "int", "null"),
        ("(5)", "int", "5"),
        ("[1, 2, 1]", "list<int>", "[1, 2, 1]"),
        ("{3, 1, 2, 1}", "set<int>", "[1, 2, 3]"),
        ("{}", "set<int>", "[]"),
        ("{}", "map<int, int>", "{}"),
        ("{2: 'b', 1: 'a', 2: 'c'}", "map<int, text>", r#"{"1": "a", "2": "c"}"#),
        ("(1, null)", "tuple<int, text>", "[1, null]"),
        ("(1, 2)", "tuple<int, int, int>", "[1, 2, null]"),
        ("{b: 'x'}", "u", r#"{"a": null, "b": "x"}"#),
        ("[1.5, 2]", "vector<float, 2>", "[1.5, 2.0]"),
        ("['a', 'bc']", "vector<text, 2>", r#"["a", "bc"]"#),
        ("{1: [{2, 1}]}", "map<int, frozen<list<frozen<set<int>>>>>", r#"{"1": [[1, 2]]}"#),
        ("(int) 5", "int", "5"),
        ("(int) 5", "varint", "5"),
        ("(bigint) 5", "timestamp", "1970-01-01 00:00:00.005Z"),
        ("now()", "blob", "blob"),
    ] {
        if expected == "blob" {
            assert!(evaluated(term, of).starts_with("0x"));
        } else {
            assert_eq!(evaluated(term, of), expected, "{term} for {of}");
        }
    }
}

#[test]
fn terms_of_another_type_are_refused_in_cassandras_words() {
    for (term, of, expected) in [
        ("'abc'", "int", "Invalid STRING constant (abc) for \"c\" of type int"),
        ("1", "text", "Invalid INTEGER constant (1) for \"c\" of type text"),
        ("1.5", "int", "Invalid FLOAT constant (1.5) for \"c\" of type int"),
        ("true", "int", "Invalid BOOLEAN constant (true) for \"c\" of type int"),
        ("0xff", "text", "Invalid HEX constant (0xff) for \"c\" of type text"),
        ("1h", "int", "Invalid DURATION constant (1h) for \"c\" of type int"),
        (
            "550e8400-e29b-41d4-a716-446655440000",
            "text",
            "Invalid UUID constant (550e8400-e29b-41d4-a716-446655440000) for \"c\" of type text",
        ),
        ("1", "list<int>", "Invalid INTEGER constant (1) for \"c\" of type list<int>"),
        ("128", "tinyint", "Unable to make byte from '128'"),
        ("null", "counter", "Invalid null value for counter increment/decrement"),
        ("[1]", "int", "Invalid list literal for c of type int"),
        ("[1, 'a']", "list<int>", "Invalid list literal for c: value 'a' is not of type int"),
        ("[null]", "list<int>", "null is not supported inside collections"),
        (
            "[?]",
            "list<int>",
            "Invalid list literal for c: bind variables are not supported inside collection literals",
        ),
        ("{1}", "list<int>", "Invalid set literal for c of type list<int>"),
        ("{'a'}", "set<int>", "Invalid set literal for c: value 'a' is not of type int"),
        ("{1: 2}", "set<int>", "Invalid map literal for c of type set<int>"),
        ("{'a': 2}", "map<int, int>", "Invalid map literal for c: key 'a' is not of type int"),
        ("{1: 'a'}", "map<int, int>", "Invalid map literal for c: value 'a' is not of type int"),
        ("(1, 2)", "int", "Invalid tuple type literal for c of type int"),
        (
            "(1, 2, 3)",
            "tuple<int, int>",
            "Invalid tuple literal for c: too many elements. Type frozen<tuple<int, int>> expects 2 but got 3",
        ),
        (
            "(1, 'a')",
            "tuple<int, int>",
            "Invalid tuple literal for c: component 1 is not of type int",
        ),
        ("{a: 1}", "int", "Invalid user type literal for c of type int"),
        ("{a: 'x'}", "u", "Invalid user type literal for c: field a is not of type int"),
        ("{x: 1}", "u", "Unknown field 'x' in value of user defined type u"),
        (
            "[1, 2]",
            "vector<float, 3>",
            "Invalid vector literal for c of type vector<float, 3>; expected 3 elements, but given 2",
        ),
        ("[null]", "vector<float, 1>", "null is not supported inside vectors"),
        ("(int) 'a'", "int", "Cannot cast value 'a' to type int"),
        ("(text) 'a'", "int", "Cannot assign value (text) 'a' to c of type int"),
        ("(x) 'a'", "int", "Unknown type k.x"),
    ] {
        assert_eq!(refused(term, of), expected, "{term} for {of}");
    }
}

#[test]
fn markers_get_the_type_of_their_place() {
    for (term, of, expected) in [
        ("?", "int", &[("c", "int")][..]),
        (":n", "text", &[("n", "text")]),
        ("(?, ?)", "tuple<int, text>", &[("c[0]", "int"), ("c[1]", "text")]),
        ("{a: ?}", "u", &[("c.a", "int")]),
        ("[?, 1.5]", "vector<float, 2>", &[("value(c)", "float")]),
        ("(bigint) ?", "bigint", &[("(bigint)?", "bigint")]),
        ("min_timeuuid(?)", "timeuuid", &[("arg0(system.min_timeuuid)", "timestamp")]),
        ("token(?, ?)", "bigint", &[("arg0(system.token)", "int"), ("arg1(system.token)", "text")]),
        ("from_json(?)", "int", &[("arg0(system.from_json)", "text")]),
        ("(int) ? + 1", "int", &[("(int)?", "int")]),
    ] {
        let (_, markers) = bound_with_markers(term, of).unwrap();
        let markers: Vec<(String, String)> =
            markers.into_iter().map(|marker| (marker.name, marker.of.to_string())).collect();
        let markers: Vec<(&str, &str)> =
            markers.iter().map(|(name, of)| (name.as_str(), of.as_str())).collect();
        assert_eq!(markers, expected, "{term}");
    }
}

/// Calls a function with values as a request contains them.
fn with_values<T>(
    values: &[(Option<&str>, Value<'_>)],
    work: impl FnOnce(&wire::cql::Values<'_>) -> T,
) -> T {
    let encoder = RequestEncoder { version: Version::V5, compression: None };
    let parameters = Parameters::new(Consistency::One);
    let mut out = Vec::new();
    encoder.query(1, "", &ParametersToSend { parameters, values }, &mut out);
    let header =
        Header::decode(&out, Direction::Request, None, &Limits::default()).unwrap().unwrap();
    let (request, _) = decode_request(&header, &out[HEADER_BYTES..]).unwrap();
    let Request::Query { parameters, .. } = request else { panic!() };
    work(&parameters.values)
}

fn bound(term: &str, of: &str, values: &[(Option<&str>, Value<'_>)]) -> Result<String, String> {
    let (expression, markers) = bound_with_markers(term, of).unwrap();
    let result = with_values(values, |values| {
        let values = BoundValues::new(values, &markers)?;
        match expression.evaluate(&values, None, &Moment::new(NOW_US, 7))? {
            Evaluated::Bytes(bytes) => Ok(shown(Some(&bytes), expression.cql_type())),
            Evaluated::Null => Ok("null".to_owned()),
            Evaluated::Unset => Ok("unset".to_owned()),
        }
    });
    result.map_err(|error: CqlError| error.to_string())
}

#[test]
fn bound_values_are_checked_where_they_are_used() {
    let set = [&[0, 0, 0, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1][..]].concat();
    for (term, of, values, expected) in [
        ("?", "int", &[(None, Value::Bytes(&[0, 0, 0, 5]))][..], Ok("5")),
        ("?", "int", &[(None, Value::Bytes(&[0, 5]))], Err("Expected 4 or 0 byte int (2)")),
        ("?", "int", &[(None, Value::Null)], Ok("null")),
        ("?", "int", &[(None, Value::Unset)], Ok("unset")),
        ("?", "int", &[], Err("Invalid amount of bind variables")),
        ("?", "set<tinyint>", &[(None, Value::Bytes(&set))], Ok("[1, 2]")),
        (
            "(:a, :b)",
            "tuple<tinyint, tinyint>",
            &[(Some("b"), Value::Bytes(&[2])), (Some("a"), Value::Bytes(&[1]))],
            Ok("[1, 2]"),
        ),
        ("(:a, :a)", "tuple<tinyint, tinyint>", &[(Some("a"), Value::Bytes(&[1]))], Ok("[1, 1]")),
        (
            "(:a, :b)",
            "tuple<tinyint, tinyint>",
            &[(Some("a"), Value::Bytes(&[1]))],
            Err("Invalid amount of bind variables"),
        ),
        (
            "(?, 1)",
            "tuple<int, int>",
            &[(None, Value::Unset)],
            Err("Invalid unset value for tuple field number 0"),
        ),
        (
            "{a: ?}",
            "u",
            &[(None, Value::Unset)],
            Err("Invalid unset value for field 'a' of user defined type u"),
        ),
        (
            "[?]",
            "vector<int, 1>",
            &[(None, Value::Unset)],
            Err("unset is not supported inside vectors"),
        ),
        (
            "[?]",
            "vector<int, 1>",
            &[(None, Value::Null)],
            Err("null is not supported inside vectors"),
        ),
        (
            "to_date((timestamp) ?)",
            "date",
            &[(None, Value::Unset)],
            Err("Invalid unset value for argument in call to function to_date"),
        ),
        ("(tinyint) ? + (tinyint) 1", "tinyint", &[(None, Value::Bytes(&[2]))], Ok("3")),
    ] {
        let found = bound(term, of, values);
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{term} {values:?}");
    }
}

/// The CQL constant of a value.
fn constant_of(bytes: &[u8], native: Native) -> String {
    let text = native_to_text(bytes, native).expect("values are not empty");
    match native {
        Native::Text | Native::Ascii => format!("'{}'", text.replace('\'', "''")),
        Native::Inet | Native::Date | Native::Time | Native::Timestamp => format!("'{text}'"),
        _ => text,
    }
}

fn any_value() -> impl Strategy<Value = (Native, Vec<u8>)> {
    let fixed = |native: Native, length: usize| {
        prop::collection::vec(any::<u8>(), length).prop_map(move |bytes| (native, bytes))
    };
    let finite = |native: Native| {
        move |number: f64| {
            let bytes = match native {
                #[expect(clippy::cast_possible_truncation, reason = "any float will do")]
                Native::Float => (number as f32).to_be_bytes().to_vec(),
                _ => number.to_be_bytes().to_vec(),
            };
            (native, bytes)
        }
    };
    prop_oneof![
        fixed(Native::Tinyint, 1),
        fixed(Native::Smallint, 2),
        fixed(Native::Int, 4),
        fixed(Native::Bigint, 8),
        fixed(Native::Blob, 5),
        fixed(Native::Uuid, 16),
        fixed(Native::Inet, 4),
        fixed(Native::Inet, 16),
        any::<bool>().prop_map(|value| (Native::Boolean, vec![u8::from(value)])),
        any::<String>().prop_map(|text| (Native::Text, text.into_bytes())),
        "[ -~]*".prop_map(|text| (Native::Ascii, text.into_bytes())),
        any::<f64>().prop_map(finite(Native::Double)),
        any::<f32>().prop_map(f64::from).prop_map(finite(Native::Float)),
        any::<i128>().prop_map(|number| {
            (Native::Varint, num_bigint::BigInt::from(number).to_signed_bytes_be())
        }),
        (any::<i128>(), -99..99_i32).prop_map(|(unscaled, scale)| {
            let unscaled = num_bigint::BigInt::from(unscaled);
            let decimal = crate::value::number::Decimal { unscaled, scale };
            (Native::Decimal, decimal.encode())
        }),
        (0..crate::duration::NS_PER_DAY).prop_map(|ns| (Native::Time, ns.to_be_bytes().to_vec())),
        (-60_000_000_000_000..250_000_000_000_000_i64)
            .prop_map(|ms| (Native::Timestamp, ms.to_be_bytes().to_vec())),
        (-700_000..2_900_000_i64).prop_map(|days| {
            (Native::Date, crate::value::constant::encode_days(days).unwrap())
        }),
        (0..i32::MAX, 0..i32::MAX, 1..i64::MAX).prop_map(|(months, days, nanoseconds)| {
            let duration = crate::duration::Duration { months, days, nanoseconds };
            (Native::Duration, duration.encode())
        }),
    ]
}

proptest! {
    #[test]
    fn the_text_of_a_value_is_the_value((native, bytes) in any_value()) {
        let text = constant_of(&bytes, native);
        let bound = bound_term(&text, native.name());
        let bound = bound.map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        let found = match bound {
            Expression::Constant { bytes, .. } => bytes,
            other => return Err(TestCaseError::fail(format!("{text} is {other:?}"))),
        };
        let of = CqlType::Native(native);
        // NaN has many encodings; an IPv4 address may be embedded in an IPv6 one.
        let (given, found) = (shown(Some(&bytes), &of), shown(Some(&found), &of));
        prop_assert_eq!(given, found);
    }

    #[test]
    fn the_json_of_a_value_is_the_value((native, bytes) in any_value()) {
        let of = CqlType::Native(native);
        let mut json = String::new();
        put_json(&bytes, &of, &mut json);
        // A decimal's number is parsed as a double, and loses digits that a double cannot
        // represent.
        prop_assume!(json != "null" && native != Native::Decimal);
        let found = crate::value::json::decode(&json, &of);
        let found = found.map_err(|error| TestCaseError::fail(format!("{json}: {error}")))?;
        let mut again = String::new();
        put_json(&found.unwrap(), &of, &mut again);
        prop_assert_eq!(json, again);
    }
}
