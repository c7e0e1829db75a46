//! Compares the generator's report for a CQL server with the server's own records. The server
//! replies out of order, evicts statements and is overloaded as planned.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use lab::load::{Arrival, CqlWork, Operation, Protocol, Schedule, Sharing, SocketWork};
use lab::stats::histogram::decode;
use parking_lot::Mutex;
use wire::cql::{
    Column, ColumnType, Columns, Direction, ErrorKind as CqlError, HEADER_BYTES, Header, Limits,
    Prepared, Request, ResponseEncoder, RowsMetadata, Version, decode_request,
};

use crate::load::{self, counted, run};
use crate::server::{Server as Echo, accept};

const ID: [u8; 16] = [9; 16];

/// Reaction to an EXECUTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Row,
    NoRow,
    Void,
    Overloaded,
    Forgotten,
}

/// The server's own records.
#[derive(Debug, Default)]
struct Account {
    queries: Vec<String>,
    logins: Vec<Vec<u8>>,
    prepared: u64,
    executed: u64,
    answered: u64,
    /// Maximum number of requests in one read.
    most: usize,
    keys: Vec<Vec<u8>>,
}

struct State {
    /// By the number of the EXECUTE, counted over all connections.
    plan: Box<dyn Fn(u64) -> Act + Send + Sync>,
    account: Mutex<Account>,
    /// Requests of a connection are answered in batches of this size, the last one first. A load
    /// must send a multiple of it.
    together: usize,
    password: Option<&'static str>,
}

struct Server {
    address: SocketAddr,
    state: Arc<State>,
}

impl Server {
    fn start(plan: impl Fn(u64) -> Act + Send + Sync + 'static) -> Server {
        Server::start_with(1, None, plan)
    }

    fn start_with(
        together: usize,
        password: Option<&'static str>,
        plan: impl Fn(u64) -> Act + Send + Sync + 'static,
    ) -> Server {
        let account = Mutex::default();
        let state = Arc::new(State { plan: Box::new(plan), account, together, password });
        let shared = Arc::clone(&state);
        let address = accept(move |stream| serve(stream, &shared));
        Server { address, state }
    }
}

fn serve(mut stream: TcpStream, state: &State) {
    stream.set_nodelay(true).unwrap();
    let (mut input, mut chunk) = (Vec::new(), vec![0; 256 * 1024]);
    let mut waiting: Vec<i16> = Vec::new();
    loop {
        let count = match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{error}"),
        };
        input.extend_from_slice(&chunk[..count]);
        let (mut consumed, mut out) = (0, Vec::new());
        loop {
            let rest = &input[consumed..];
            let header = Header::decode(rest, Direction::Request, None, &Limits::DEFAULT);
            let Some(header) = header.unwrap() else { break };
            let Some(body) = rest.get(HEADER_BYTES..header.envelope_bytes()) else { break };
            consumed += header.envelope_bytes();
            let (request, _) = decode_request(&header, body).unwrap();
            answer(&header, &request, state, &mut waiting, &mut out);
        }
        input.drain(..consumed);
        {
            let mut account = state.account.lock();
            account.most = account.most.max(waiting.len());
        }
        if waiting.len() >= state.together {
            // The last one first.
            for stream in std::mem::take(&mut waiting).into_iter().rev() {
                execute(stream, state, &mut out);
            }
        }
        // The client may have disconnected.
        let _ = stream.write_all(&out);
    }
}

fn answer(
    header: &Header,
    request: &Request<'_>,
    state: &State,
    waiting: &mut Vec<i16>,
    out: &mut Vec<u8>,
) {
    let (to, stream) = (ResponseEncoder::plain(Version::V4), header.stream);
    let mut account = state.account.lock();
    match request {
        Request::Options => to.supported(stream, &[], out).unwrap(),
        Request::Startup(_) if state.password.is_some() => {
            to.authenticate(stream, "Plain", out).unwrap();
        }
        Request::Startup(_) => to.ready(stream, out).unwrap(),
        Request::AuthResponse(token) => {
            account.logins.push(token.unwrap_or_default().to_vec());
            let expected = format!("\0cassandra\0{}", state.password.unwrap_or_default());
            if *token == Some(expected.as_bytes()) {
                to.auth_success(stream, out).unwrap();
            } else {
                to.error(stream, CqlError::BadCredentials, "bad credentials", out);
            }
        }
        Request::Query { statement, .. } => {
            account.queries.push((*statement).to_owned());
            to.void(stream, out).unwrap();
        }
        Request::Prepare { statement, .. } if statement.contains("nonsense") => {
            to.error(stream, CqlError::Syntax, "line 1:0 no", out);
        }
        Request::Prepare { statement, .. } => {
            account.prepared += 1;
            let marker = |name: &str, column_type| Column { name: name.to_owned(), column_type };
            let all = [marker("key", ColumnType::Text), marker("value", ColumnType::Blob)];
            let columns = &all[..statement.matches('?').count()];
            let markers = Columns { keyspace: "lab", table: "rows", columns };
            let prepared = Prepared {
                id: &ID,
                result_metadata_id: &[],
                markers,
                partition_key: &[0],
                result: None,
            };
            to.prepared(stream, &prepared, out).unwrap();
        }
        Request::Execute { id, parameters, .. } => {
            assert_eq!(*id, ID);
            account.executed += 1;
            let (_, key) = parameters.values.iter().next().unwrap();
            let wire::cql::Value::Bytes(key) = key else { panic!("no key") };
            account.keys.push(key.to_vec());
            waiting.push(stream);
        }
        Request::Register(_) | Request::Batch(_) => panic!("{request:?}"),
    }
}

fn execute(stream: i16, state: &State, out: &mut Vec<u8>) {
    let to = ResponseEncoder::plain(Version::V4);
    let number = {
        let mut account = state.account.lock();
        account.answered += 1;
        account.answered - 1
    };
    let act = (state.plan)(number);
    match act {
        Act::Row | Act::NoRow => {
            let columns = [Column { name: "value".to_owned(), column_type: ColumnType::Blob }];
            let metadata = RowsMetadata {
                columns: Columns { keyspace: "lab", table: "rows", columns: &columns },
                skip_columns: true,
                paging_state: None,
                new_metadata_id: None,
            };
            let mut rows = to.rows(stream, &metadata, out);
            if act == Act::Row {
                rows.cell(Some(b"value"));
                rows.end_row();
            }
            rows.finish().unwrap();
        }
        Act::Void => to.void(stream, out).unwrap(),
        Act::Overloaded => to.error(stream, CqlError::Overloaded, "later", out),
        Act::Forgotten => to.error(stream, CqlError::Unprepared { id: &ID }, "what", out),
    }
}

fn work(address: SocketAddr) -> SocketWork {
    SocketWork {
        protocol: Protocol::Cql,
        sharing: Sharing::Multiplexed,
        mix: vec![Operation { weight: 1.0, words: vec![CqlWork::SELECT.to_owned()] }],
        cql: Some(Box::default()),
        ..load::work(address)
    }
}

#[test]
fn every_request_counts_once_in_whatever_order_replies_come() {
    for (threads, connections, users, pipeline, together) in
        [(1, 1, 1, 1, 1), (1, 1, 8, 1, 8), (2, 4, 16, 3, 3), (1, 1, 1, 16, 16)]
    {
        let server = Server::start_with(together, None, |_| Act::Row);
        let work = SocketWork { threads, connections, users, pipeline, ..work(server.address) };
        let report = run(&counted(work, 960)).unwrap();
        let account = server.state.account.lock();
        assert_eq!((report.operations, account.executed), (960, 960));
        assert_eq!((report.lost, report.rows_missing, report.prepared_again), (0, 0, 0));
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert_eq!(decode(&report.latency_raw).unwrap().len(), 960);
        assert_eq!(account.prepared, connections as u64);
        let keys = &account.keys;
        assert!(keys.iter().all(|key| key.len() == 16 && key.starts_with(b"key:")), "{keys:?}");
    }
}

#[test]
fn all_streams_of_a_connection_can_be_on_their_way() {
    let server = Server::start_with(32_768, None, |_| Act::Void);
    let work = SocketWork { connections: 1, users: 32_768, ..work(server.address) };
    let report = run(&counted(work, 65_536)).unwrap();
    assert_eq!((report.operations, report.lost), (65_536, 0));
    assert_eq!(server.state.account.lock().most, 32_768);
}

#[test]
fn the_schema_is_made_once_and_by_who_has_the_password() {
    let server = Server::start_with(1, Some("secret"), |_| Act::Row);
    let mut work = work(server.address);
    let error = run(&counted(work.clone(), 10)).unwrap_err();
    assert!(error.contains("BadCredentials") || error.contains("bad credentials"), "{error}");
    work.password = Some("secret".to_owned());
    assert_eq!(run(&counted(work.clone(), 10)).unwrap().operations, 10);
    let account = server.state.account.lock();
    assert_eq!(account.queries, work.cql.unwrap().schema);
    // One refused, then the schema and four connections.
    assert_eq!(account.logins.len(), 6);
}

#[test]
fn a_statement_that_is_refused_ends_the_load() {
    let server = Server::start(|_| Act::Row);
    let mut work = work(server.address);
    work.mix[0].words = vec!["nonsense".to_owned()];
    let error = run(&counted(work, 10)).unwrap_err();
    assert_eq!(error, "the server refused the setup: SYNTAX_ERROR: line 1:0 no");
}

#[test]
fn errors_are_told_apart_and_missing_rows_are_seen() {
    let server = Server::start(|number| match number % 4 {
        0 => Act::Overloaded,
        1 => Act::NoRow,
        _ => Act::Row,
    });
    let report = run(&counted(work(server.address), 400)).unwrap();
    assert_eq!(report.operations, 400);
    assert_eq!(report.errors, BTreeMap::from([("OVERLOADED".to_owned(), 100)]));
    assert_eq!(report.rows_missing, 100);
}

/// All eight requests in flight find the statement evicted; it is prepared once, and all of them
/// are repeated.
#[test]
fn forgotten_statements_are_prepared_again_and_their_requests_repeated() {
    let server =
        Server::start_with(
            8,
            None,
            |number| {
                if number % 80 < 8 { Act::Forgotten } else { Act::Row }
            },
        );
    let work = SocketWork { connections: 1, users: 8, ..work(server.address) };
    let report = run(&counted(work, 720)).unwrap();
    assert_eq!((report.operations, report.lost), (720, 0));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(report.prepared_again, 10);
    let account = server.state.account.lock();
    assert_eq!((account.prepared, account.executed), (11, 800));
}

#[test]
fn a_schedule_uses_streams_too() {
    let server = Server::start(|_| Act::Void);
    let arrival = Arrival::Open { per_second: 5_000.0, schedule: Schedule::Even };
    let work = SocketWork { arrival, connections: 2, ..work(server.address) };
    let report = run(&counted(work, 500)).unwrap();
    assert_eq!((report.operations, report.lost), (500, 0));
}

#[test]
fn what_sends_back_what_it_gets_is_a_server_too() {
    let echo = Echo::echo();
    let mut work = SocketWork { users: 64, ..work(echo.address) };
    work.mix[0].words = vec![CqlWork::INSERT.to_owned()];
    let report = run(&counted(work, 10_000)).unwrap();
    assert_eq!((report.operations, report.lost), (10_000, 0));
    assert_eq!(report.sent_bytes, report.received_bytes);
}
