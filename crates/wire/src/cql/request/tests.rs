use super::super::envelope::{Direction, HEADER_BYTES, Header};
use super::super::limits::Limits;
use super::super::request_encoder::{ParametersToSend, RequestEncoder};
use super::*;

const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];

fn check(version: Version, encode: impl Fn(&RequestEncoder, &mut Vec<u8>), expected: &Request<'_>) {
    let mut out = Vec::new();
    encode(&RequestEncoder { version, compression: None }, &mut out);
    let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
    let header = header.unwrap().unwrap();
    assert_eq!(header.envelope_bytes(), out.len());
    let body = &out[HEADER_BYTES..];
    assert_eq!(decode_request(&header, body).unwrap().0, *expected, "{version}");
    for cut in 0..body.len() {
        assert!(decode_request(&header, &body[..cut]).is_err(), "{version}, cut at {cut}");
    }
    let longer = [body, b"x"].concat();
    assert_eq!(decode_request(&header, &longer).unwrap().0, *expected, "{version}");
}

fn full_parameters(version: Version) -> Parameters<'static> {
    let is_v5 = version == Version::V5;
    Parameters {
        consistency: Consistency::LocalQuorum,
        values: Values::default(),
        skip_metadata: true,
        page_size: Some(5000),
        paging_state: Some(b"state"),
        serial_consistency: Some(Consistency::LocalSerial),
        timestamp: Some(-3),
        keyspace: is_v5.then_some("ks"),
        now_in_seconds: is_v5.then_some(7),
    }
}

#[test]
fn plain_requests_are_read_back() {
    for version in VERSIONS {
        check(version, |to, out| to.options(1, out), &Request::Options);
        check(
            version,
            |to, out| to.startup(1, &[("CQL_VERSION", "3.0.0")], out),
            &Request::Startup(vec![("CQL_VERSION", "3.0.0")]),
        );
        check(
            version,
            |to, out| to.register(1, &["SCHEMA_CHANGE"], out),
            &Request::Register(vec!["SCHEMA_CHANGE"]),
        );
        check(
            version,
            |to, out| to.auth_response(1, b"\0u\0p", out),
            &Request::AuthResponse(Some(b"\0u\0p")),
        );
        let keyspace = (version == Version::V5).then_some("ks");
        check(
            version,
            |to, out| to.prepare(1, "SELECT", Some("ks"), out),
            &Request::Prepare { statement: "SELECT", keyspace },
        );
    }
}

#[test]
fn statements_are_read_back_with_their_parameters() {
    for version in VERSIONS {
        for named in [false, true] {
            let name = |text: &'static str| named.then_some(text);
            let values = [
                (name("a"), Value::Bytes(b"1")),
                (name("b"), Value::Null),
                (name("c"), Value::Bytes(b"")),
            ];
            let with = ParametersToSend { parameters: full_parameters(version), values: &values };
            let mut out = Vec::new();
            RequestEncoder { version, compression: None }.query(1, "Q", &with, &mut out);
            let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
            let (request, _) =
                decode_request(&header.unwrap().unwrap(), &out[HEADER_BYTES..]).unwrap();
            let Request::Query { statement: "Q", parameters } = request else {
                panic!("{request:?}")
            };
            assert_eq!(parameters.values.iter().collect::<Vec<_>>(), values);
            assert_eq!(parameters.values.are_named(), named);
            let rest = Parameters { values: Values::default(), ..parameters };
            assert_eq!(rest, full_parameters(version));
            check(version, |to, out| to.query(1, "Q", &with, out), &request);
            let execute = Request::Execute {
                id: b"id",
                result_metadata_id: (version == Version::V5).then_some(b"meta"),
                parameters,
            };
            check(version, |to, out| to.execute(1, b"id", b"meta", &with, out), &execute);
        }
    }
}

#[test]
fn unset_is_null_in_version_3() {
    for (version, expected) in [(Version::V3, Value::Null), (Version::V4, Value::Unset)] {
        let mut out = Vec::new();
        let with = ParametersToSend {
            parameters: Parameters::new(Consistency::One),
            values: &[(None, Value::Unset)],
        };
        RequestEncoder { version, compression: None }.query(1, "Q", &with, &mut out);
        let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
        let header = header.unwrap().unwrap();
        let (request, _) = decode_request(&header, &out[HEADER_BYTES..]).unwrap();
        let Request::Query { parameters, .. } = request else { panic!("{request:?}") };
        assert_eq!(parameters.values.iter().collect::<Vec<_>>(), [(None, expected)]);
    }
}

#[test]
fn batches_come_back() {
    for version in VERSIONS {
        let values = [Value::Bytes(b"1"), Value::Null];
        let statements =
            [(BatchStatement::Text("A"), &values[..]), (BatchStatement::Prepared(b"id"), &[])];
        let with = full_parameters(version);
        let mut out = Vec::new();
        let encoder = RequestEncoder { version, compression: None };
        encoder.batch(1, BatchKind::Unlogged, &statements, &with, &mut out);
        let header = Header::decode(&out, Direction::Request, None, &Limits::DEFAULT);
        let header = header.unwrap().unwrap();
        let (request, _) = decode_request(&header, &out[HEADER_BYTES..]).unwrap();
        let Request::Batch(batch) = request.clone() else { panic!("{request:?}") };
        let found: Vec<(BatchStatement<'_>, Vec<Value<'_>>)> = batch
            .statements
            .iter()
            .map(|(statement, values)| (statement, values.iter().map(|(_, v)| v).collect()))
            .collect();
        let expected: Vec<_> =
            statements.iter().map(|(statement, values)| (*statement, values.to_vec())).collect();
        assert_eq!(found, expected);
        assert_eq!((batch.timestamp, batch.kind), (Some(-3), BatchKind::Unlogged));
        assert_eq!(batch.keyspace, with.keyspace);
        check(
            version,
            |to, out| to.batch(1, BatchKind::Unlogged, &statements, &with, out),
            &request,
        );
    }
}

/// As in Cassandra: data announced by an undefined flag is ignored as bytes after the body.
#[test]
fn unknown_flags_mean_nothing() {
    let header = |version, opcode| Header {
        version,
        flags: Flags::default(),
        stream: 0,
        opcode: opcode as u8,
        body_bytes: 0,
    };
    let query = |version, flags: &[u8]| {
        let body = [b"\0\0\0\x01Q\0\x01", flags, b"rest"].concat();
        let expected =
            Request::Query { statement: "Q", parameters: Parameters::new(Consistency::One) };
        assert_eq!(decode_request(&header(version, Opcode::Query), &body).unwrap().0, expected);
    };
    query(Version::V4, &[0x80]);
    query(Version::V5, &[0x80, 0, 0x10, 0]);
    let prepare = decode_request(&header(Version::V5, Opcode::Prepare), b"\0\0\0\x01Q\0\0\0\x02");
    assert_eq!(prepare.unwrap().0, Request::Prepare { statement: "Q", keyspace: None });
}

#[test]
fn faults_have_their_own_names() {
    let header = |opcode: Opcode| Header {
        version: Version::V4,
        flags: Flags::default(),
        stream: 0,
        opcode: opcode as u8,
        body_bytes: 0,
    };
    let check = |opcode, body: &[u8], expected| {
        assert_eq!(decode_request(&header(opcode), body), Err(expected));
    };
    check(Opcode::Ready, b"", MalformedBody::WrongSide);
    check(Opcode::Query, b"\0\0\0\x01Q\0\x0b\0", MalformedBody::UnknownConsistency(11));
    check(Opcode::Batch, b"\x03", MalformedBody::UnknownBatchKind(3));
    check(Opcode::Batch, b"\0\0\x01\x02", MalformedBody::UnknownStatementKind(2));
    check(Opcode::Batch, b"\0\0\0\0\x01\x40", MalformedBody::NamedBatch);
}
