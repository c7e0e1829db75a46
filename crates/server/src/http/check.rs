//! Properties that hold for every request, including hostile ones. Called by the fuzzers and by the
//! tests that replay their corpora. A violation panics.

use cql::json_limits::{self, JSON_DEPTH_MAX, JSON_VALUES_MAX};
use cql::type_name::NATIVES;
use cql::types::CqlType;
use cql::value::{json as cql_json, text::put_json};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::http::{Limits, Method, RequestBatch, RequestDecoder};
use wire::resp::OwnedArgs;

use super::command::{self, COMMANDS_MAX};
use super::cql::Call;
use super::{access, route};
use crate::commands::acl::default_user;
use crate::commands::execute::Prepared;
use crate::commands::registry::REGISTRY;
use crate::config::Settings;
use crate::engine::acl::{Acl, Users};

/// Requests decoded per input.
const REQUESTS_MAX: usize = 64;

/// Checks heads: routing, access and path arguments are defined for every request that the decoder
/// accepts.
pub fn check_heads(data: &[u8]) {
    let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
    decoder.decode(data, &Limits::DEFAULT, REQUESTS_MAX, &mut batch);
    let settings = Settings::default();
    let [open, closed] =
        [&[][..], &["secret"]].map(|passwords| Acl::new(Users::new(default_user(passwords))));
    for index in 0..batch.len() {
        let request = batch.get(index, data);
        let (_, route) = route::find(&request);
        for acl in [&open, &closed] {
            if route.reads_body_of(&request, acl, &settings) {
                assert_ne!(request.method(), Method::Options);
                assert!(access::check(&request, acl, &settings, false).is_ok());
            }
        }
        let target = request.target();
        let may_show = request.header("authorization").is_some()
            || target.contains(&b'%')
            || target.windows(6).any(|part| part == b"_token");
        assert!(may_show || access::check(&request, &closed, &settings, false).is_err());
        let mut args = OwnedArgs::new();
        if command::push_path(&request, &mut args).is_ok() && !args.as_args().is_empty() {
            let id = REGISTRY.find(args.as_args().get(0));
            let entry = id.map(|id| REGISTRY.entry(id));
            let _ = command::refusal(Prepared { entry, hash: None });
        }
    }
}

/// Checks bodies of `/`, `/pipeline`, `/multi-exec` and `/cql`: accepted bodies are within the
/// limits, commands survive a round trip through JSON, and reading values of any type does not
/// panic.
pub fn check_body(body: &[u8]) {
    if json_limits::check(body).is_ok()
        && let Ok(value) = serde_json::from_slice::<Value>(body)
    {
        let (values, depth) = measure(&value);
        assert!(values <= JSON_VALUES_MAX, "{values} values");
        assert!(depth <= JSON_DEPTH_MAX, "{depth} levels");
    }
    if let Ok(commands) = command::parse_all(body) {
        assert!((1..=COMMANDS_MAX).contains(&commands.len()));
        let again: Value = commands.iter().map(words).collect();
        let again = serde_json::to_vec(&again).expect("texts in lists");
        assert_eq!(command::parse_all(&again).as_deref(), Ok(&commands[..]));
    }
    let mut args = OwnedArgs::new();
    if command::parse_one(body, &mut args).is_ok() {
        let mut again = OwnedArgs::new();
        let text = serde_json::to_vec(&words(&args)).expect("texts in a list");
        assert_eq!(command::parse_one(&text, &mut again), Ok(()));
        assert_eq!(again, args);
    }
    if json_limits::check(body).is_err() {
        return;
    }
    if let Ok(call) = Call::read(body) {
        for raw in call.raws() {
            check_value(raw);
        }
    }
    if let Ok(raw) = serde_json::from_slice::<&RawValue>(body) {
        check_value(raw);
    }
}

/// The number of commands of a body of `/pipeline`, or the error for the client.
pub fn parse_commands(body: &[u8]) -> Result<usize, String> {
    command::parse_all(body).map(|commands| commands.len()).map_err(Into::into)
}

/// The number of values of a body of `/cql`, or the error for the client.
pub fn parse_call(body: &[u8]) -> Result<usize, String> {
    Call::read(body).map(|call| call.raws().len()).map_err(|error| error.to_string())
}

/// Returns the number of values, and the nesting depth of arrays and objects.
fn measure(value: &Value) -> (usize, usize) {
    let below: Vec<_> = match value {
        Value::Array(items) => items.iter().map(measure).collect(),
        Value::Object(members) => members.values().map(measure).collect(),
        _ => return (1, 0),
    };
    let values = below.iter().map(|(values, _)| values).sum::<usize>();
    let depth = below.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
    (values + 1, depth + 1)
}

/// Returns the arguments as JSON strings.
fn words(args: &OwnedArgs) -> Value {
    let word = |arg: &[u8]| json!(std::str::from_utf8(arg).expect("JSON is UTF-8"));
    args.as_args().iter().map(word).collect()
}

/// Checks that a value that can be read as some type can be written as JSON.
fn check_value(raw: &RawValue) {
    for of in types() {
        if let Ok(Some(bytes)) = cql_json::decode_raw(raw, &of) {
            let mut text = String::new();
            put_json(&bytes, &of, &mut text);
            let read = serde_json::from_str::<&RawValue>(&text);
            assert!(read.is_ok(), "{of}: {raw} became {text}");
        }
    }
}

/// Every native type, and each kind of collection or tuple.
fn types() -> impl Iterator<Item = CqlType> {
    let list = |of: CqlType| CqlType::List(Box::new(of));
    let structures = [
        list(CqlType::INT),
        list(list(CqlType::TEXT).frozen()),
        CqlType::Set(Box::new(CqlType::BIGINT)),
        CqlType::Map(Box::new(CqlType::INT), Box::new(CqlType::TEXT)),
        CqlType::Map(Box::new(list(CqlType::INT).frozen()), Box::new(CqlType::UUID)),
        CqlType::Tuple(vec![CqlType::INT, list(CqlType::BOOLEAN).frozen()]),
        CqlType::Vector(Box::new(CqlType::INT), 2),
        CqlType::Vector(Box::new(CqlType::TEXT), 1),
    ];
    NATIVES.into_iter().map(|(_, native)| CqlType::Native(native)).chain(structures)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    /// Minimum corpus size. With fewer files, the corpus has been lost and the test would check
    /// nothing.
    const FILES_MIN: usize = 20;

    fn replay(target: &str, check: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let mut count = 0;
        for file in fs::read_dir(&folder).expect("the corpus is checked in") {
            let path = file.unwrap().path();
            println!("{}", path.display());
            check(&fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count >= FILES_MIN, "{count} files in {}", folder.display());
    }

    #[test]
    fn the_corpus_of_heads() {
        replay("http_request", super::check_heads);
    }

    #[test]
    fn the_corpus_of_bodies() {
        replay("json_body", super::check_body);
    }

    /// Fragments of bodies, joined in any order.
    const PIECES: [&str; 24] = [
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "\"",
        "\\",
        " ",
        "1",
        "-",
        ".5",
        "e9",
        "true",
        "null",
        "\"a\"",
        "\"[1]\"",
        "\"\\u0000\"",
        "\\ud800",
        "\"statement\":\"x\"",
        "\"values\":",
        "[\"GET\",\"a\"]",
        "\u{e9}",
        "\"0xff\"",
    ];
    /// Scalar JSON values that CQL types read.
    const LEAVES: [&str; 20] = [
        "0",
        "-1",
        "1.5",
        "-0.0",
        "1e400",
        "1e-400",
        "true",
        "null",
        "\"\"",
        "\"a\\n\"",
        "\"0xff\"",
        "9223372036854775808",
        "\"NaN\"",
        "\"-Infinity\"",
        "\"2026-02-28\"",
        "\"-5877641-06-23\"",
        "\"23:59:59.999999999\"",
        "\"-1y2mo3d\"",
        "\"::1\"",
        "\"1e10\"",
    ];

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            prop::sample::select(&LEAVES[..]).prop_map(str::to_owned),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>()
                .prop_filter("JSON has only numbers", |number| number.is_finite())
                .prop_map(|number| number.to_string()),
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4);
            let members = prop::collection::vec((0..9_u8, inner.clone()), 0..4);
            prop_oneof![
                list.prop_map(|items| format!("[{}]", items.join(","))),
                members.prop_map(|members| {
                    let member = |(name, value): &(u8, String)| format!("\"{name}\":{value}");
                    format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
                }),
                inner.prop_map(|value| serde_json::to_string(&value).unwrap()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_pieces_of_bodies(
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40),
        ) {
            super::check_body(pieces.concat().as_bytes());
        }

        #[test]
        fn any_values(values in prop::collection::vec(json(), 0..4)) {
            let values = values.join(",");
            super::check_body(format!("[{values}]").as_bytes());
            let call = format!("{{\"statement\":\"x\",\"values\":[{values}]}}");
            super::check_body(call.as_bytes());
        }
    }
}
