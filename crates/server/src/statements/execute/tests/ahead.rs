//! Partitions prefetched before requests run.

use cql::token::token;
use store::TableId;
use wire::cql::{
    Consistency, Direction, HEADER_BYTES, Header, Limits, Parameters, ParametersToSend, Request,
    RequestEncoder, Value, Version, decode_request,
};

use super::harness::Server;
use crate::statements::execute::ahead::{PLACES_MAX, Places};

type Named<'v> = (Option<&'v str>, Value<'v>);

/// The token that is prefetched for a statement with these values.
fn asked(text: &str, values: &[Named<'_>]) -> Option<i64> {
    let mut server = Server::new();
    server.run("CREATE TABLE one (k text PRIMARY KEY, v int)").unwrap();
    server.run("CREATE TABLE two (a int, b text, v int, PRIMARY KEY ((a, b)))").unwrap();
    server.run("INSERT INTO one (k, v) VALUES ('key', 1)").unwrap();
    let statement = server.prepare(text).unwrap();
    let with = ParametersToSend { parameters: Parameters::new(Consistency::One), values };
    let encoder = RequestEncoder { version: Version::V4, compression: None };
    let mut out = Vec::new();
    encoder.execute(0, &statement.id, &[], &with, &mut out);
    let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
    let (request, _) = decode_request(&header.unwrap().unwrap(), &out[HEADER_BYTES..]).unwrap();
    let Request::Execute { parameters, .. } = request else { panic!("{request:?}") };
    let mut places = Places::default();
    places.add(&statement, &parameters.values);
    places.prefetch(&server.shared.keyspace);
    places.found.first().map(|(_, token)| *token)
}

fn plain(bytes: &'static [u8]) -> Named<'static> {
    (None, Value::Bytes(bytes))
}

#[test]
fn the_partition_is_found_if_values_name_it() {
    let found = asked("SELECT v FROM one WHERE k = ?", &[plain(b"key")]);
    assert_eq!(found, Some(token(b"key")));
    let found = asked("UPDATE one SET v = ? WHERE k = ?", &[plain(&[0, 0, 0, 1]), plain(b"key")]);
    assert_eq!(found, Some(token(b"key")));
    let composite = b"\0\x04\0\0\0\x07\0\0\x01x\0";
    let found =
        asked("DELETE FROM two WHERE b = ? AND a = ?", &[plain(b"x"), plain(&[0, 0, 0, 7])]);
    assert_eq!(found, Some(token(composite)));
}

#[test]
fn other_statements_are_not_prefetched() {
    let one = "SELECT v FROM one WHERE k = ?";
    for (text, values) in [
        ("SELECT v FROM one WHERE k = 'key'", vec![]),
        ("SELECT v FROM one WHERE k IN ?", vec![plain(&[0, 0, 0, 0])]),
        ("SELECT key FROM system.local WHERE key = ?", vec![plain(b"local")]),
        (one, vec![]),
        (one, vec![plain(b"")]),
        (one, vec![(None, Value::Null)]),
        (one, vec![(Some("k"), Value::Bytes(b"key"))]),
    ] {
        assert_eq!(asked(text, &values), None, "{text} {values:?}");
    }
}

#[test]
fn prefetches_are_limited() {
    let mut places = Places::default();
    places.found.extend(std::iter::repeat_n((TableId(1), 1), PLACES_MAX - 1));
    assert!(!places.is_full());
    places.found.push((TableId(1), 2));
    assert!(places.is_full());
}
