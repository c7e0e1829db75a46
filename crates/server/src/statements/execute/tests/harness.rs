//! An engine on an in-memory disk, and scripts for it.
//!
//! In a script each statement follows `> `, and its result follows it: rows with ` | ` between
//! cells, `!` and a message, or nothing. After `# ` follows a request of the Redis protocol, with
//! its reply in which spaces replace line ends.

use std::sync::Arc;

use base::stages::CycleClock;
use base::time::{MonoNs, Now};
use cql::error::CqlError;
use cql::plan::prepared::PreparedStatement;
use cql::schema::{ChangeContext, builtin, change, changes_schema};
use cql::statements::parse;
use cql::type_name::Native;
use cql::types::{CqlType, UserType};
use cql::value::text::put_json;
use store::{Params, STRIPES, TableId};
use uuid::Uuid;
use wire::cql::{
    ColumnType, Consistency, HEADER_BYTES, Header, Limits, Parameters, ParametersToSend, Request,
    RequestEncoder, Response, ResponseEncoder, Value, Version, decode_request, decode_response,
};
use wire::resp::{self, ReplyWriter, RequestBatch};

use crate::commands::Session;
use crate::commands::execute::prepare;
use crate::config::{Config, Durability};
use crate::cql::wire_reply::WireReply;
use crate::engine::acl::Identity;
use crate::engine::commit::Record;
use crate::engine::context::ReactorContext;
use crate::engine::reactor_state::ReactorState;
use crate::engine::server_state::{ReactorCount, ServerState, params};
use crate::handler::State;
use crate::recovery::recover;
use crate::serve::build_state;
use crate::simulation::{Disk, FaultDisk};
use crate::statements::StatementState;
use crate::statements::execute::install_indexes;
use crate::statements::executor::{ClientState, CqlExecutor, Executed, Turn};
use reactor::{ConnId, Peer};

const START_NS: u64 = 1_700_000_000_000_000_000;

pub(super) struct Server {
    pub(super) shared: Arc<ServerState>,
    statements: Arc<StatementState>,
    disk: Arc<FaultDisk>,
    params: Params,
    reactor: ReactorState,
    record: Record,
    pub(super) client: ClientState,
    pub(super) now: Now,
    tables: u128,
    resp: Session,
    /// Whether each index is built as soon as it is created.
    pub(super) builds_indexes: bool,
    /// Rows that a SELECT examines before it pauses; 0: it does not pause.
    pub(super) turn_rows: usize,
    /// The number of pauses.
    pub(super) pauses: usize,
    /// Requests of the Redis protocol: one runs at each pause, the last one first.
    pub(super) meanwhile: Vec<String>,
}

/// The result of a statement.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<String>,
    pub(super) paging_state: Option<Vec<u8>>,
}

/// The parameters of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked<'a> {
    pub(super) values: &'a [Value<'a>],
    pub(super) page_size: Option<i32>,
    pub(super) paging_state: Option<&'a [u8]>,
    pub(super) timestamp: Option<i64>,
}

impl Server {
    /// A server with keyspace `k` in use.
    pub(super) fn new() -> Server {
        let disk = Arc::new(FaultDisk::new(1));
        let now = Now::new(START_NS, MonoNs(1));
        let mut server = Server::begin(disk, now);
        server.shared.catalog.store(builtin());
        server.run("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}").unwrap();
        server.client.keyspace = Some("k".to_owned());
        server
    }

    fn begin(disk: Arc<FaultDisk>, now: Now) -> Server {
        const ONE_REACTOR: ReactorCount = ReactorCount { regular: 1, has_spare: false };
        let config = Config::default();
        let settings = config.settings().clone();
        let dynamic: Arc<dyn Disk> = Arc::<FaultDisk>::clone(&disk);
        let recovered = recover(&dynamic, &settings, 1, now.unix, 1).unwrap();
        let clock = CycleClock::stepping(100);
        let State { shared, statements, .. } =
            build_state(config, &dynamic, recovered, ONE_REACTOR, now, clock);
        let params = params(&settings, now.unix, shared.keyspace.seed(), 1);
        let mut reactor = ReactorState::new(&shared, 0);
        reactor.begin_turn(now);
        let client = ClientState {
            keyspace: None,
            access: None,
            durability: Durability::Always,
            local: None,
        };
        let peer = Peer { remote: None, local: None, listener: 0 };
        let resp = Session::new(ConnId(1), &peer, now.mono, Identity::anyone(), Durability::Always);
        let record = Record::default();
        Server {
            shared,
            statements,
            disk,
            params,
            reactor,
            record,
            client,
            now,
            tables: 1,
            resp,
            builds_indexes: true,
            turn_rows: 0,
            pauses: 0,
            meanwhile: Vec::new(),
        }
    }

    /// The same data after a crash of the process.
    pub(super) fn restart(self) -> Server {
        let (now, client, catalog) =
            (self.now, self.client.clone(), self.shared.catalog.load_full());
        self.shared.log.close(&|| now.mono).unwrap();
        let mut server = Server::begin(self.disk, now);
        install_indexes(&catalog, &server.shared.keyspace);
        server.shared.catalog.store(catalog);
        server.client = client;
        server
    }

    pub(super) fn pass_seconds(&mut self, seconds: u64) {
        self.pass_ms(seconds * 1000);
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        let mono = self.now.mono.0 + ms * 1_000_000;
        self.now = Now::new(START_NS + (mono - 1), MonoNs(mono));
        self.params.set_now(self.now.unix);
        self.reactor.begin_turn(self.now);
    }

    /// Purges all stripes once.
    pub(super) fn purge(&mut self) {
        let mut context = ReactorContext {
            shared: &self.shared,
            params: &self.params,
            reactor: &mut self.reactor,
            record: &mut self.record,
            now: self.now,
            replies: None,
        };
        let mut next = 0;
        while next < STRIPES {
            next = context.purge_cycle(next, 1, STRIPES);
        }
    }

    /// Builds indexes, as the reactors do between requests.
    pub(super) fn settle_indexes(&mut self) {
        for stripe in 0..STRIPES {
            self.reactor.store_bytes +=
                self.shared.keyspace.settle_indexes(stripe).expect("no other thread").1;
        }
    }

    /// The number of rows that a statement examines.
    pub(super) fn examined(&mut self, text: &str) -> u64 {
        let before = self.reactor.tally.totals.rows_examined;
        self.run(text).unwrap();
        self.reactor.tally.totals.rows_examined - before
    }

    /// Bytes of all data: the sum of the accounted changes, and counted.
    pub(super) fn bytes(&self) -> (isize, isize) {
        let (_, counted) = self.shared.keyspace.stats(self.now.unix);
        (self.reactor.store_bytes, counted.cast_signed())
    }

    /// The number of stored partitions of a table in keyspace `k`.
    pub(super) fn partitions(&self, table: &str) -> usize {
        let id = self.shared.catalog.load().table("k", table).unwrap().id;
        self.partitions_of(TableId(id.as_u128()))
    }

    pub(super) fn partitions_of(&self, table: TableId) -> usize {
        self.shared.keyspace.lock_all(&self.params).table_stats(table).0
    }

    /// Changes the schema in the store and in the log, as the server does.
    pub(super) fn change_schema(&mut self, text: &str) {
        let statement = parse(text).unwrap().statement;
        let keyspace = self.client.keyspace.clone();
        let mut executor = self.executor();
        executor.commit_unannounced(&statement, keyspace.as_deref(), None).unwrap();
    }

    /// Sets `elements-per-command-max`.
    pub(super) fn set_elements_max(&mut self, elements_max: usize) {
        let mut settings = (*self.reactor.settings).clone();
        settings.elements_per_command_max = elements_max;
        self.reactor.settings = Arc::new(settings);
    }

    /// Another reactor of the same server.
    pub(super) fn other_reactor(&self) -> Server {
        let peer = Peer { remote: None, local: None, listener: 0 };
        let mut reactor = ReactorState::new(&self.shared, 0);
        reactor.begin_turn(self.now);
        Server {
            shared: Arc::clone(&self.shared),
            statements: Arc::clone(&self.statements),
            disk: Arc::clone(&self.disk),
            params: self.params.clone(),
            reactor,
            record: Record::default(),
            client: self.client.clone(),
            now: self.now,
            tables: self.tables,
            builds_indexes: true,
            turn_rows: 0,
            pauses: 0,
            meanwhile: Vec::new(),
            resp: Session::new(
                ConnId(2),
                &peer,
                self.now.mono,
                Identity::anyone(),
                Durability::Always,
            ),
        }
    }

    /// Extends the current turn by `ms` milliseconds.
    pub(super) fn spend_ms(&mut self, ms: u64) {
        let start = self.reactor.clock.now();
        while self.reactor.clock.delta_ns(start, self.reactor.stamp) < ms * 1_000_000 {
            self.reactor.stamp = self.reactor.clock.now();
        }
    }

    fn executor(&mut self) -> CqlExecutor<'_> {
        let now = self.reactor.time(&self.params);
        let context = ReactorContext {
            shared: &self.shared,
            params: &self.params,
            reactor: &mut self.reactor,
            record: &mut self.record,
            now,
            replies: None,
        };
        CqlExecutor { context, statements: &self.statements, defers: false }
    }

    /// Runs one Redis request. Returns its reply, with spaces instead of line ends.
    pub(super) fn resp(&mut self, text: &str) -> String {
        let input = format!("{text}\r\n");
        let mut batch = RequestBatch::new();
        let limits = resp::Limits::DEFAULT;
        self.resp.decoder.decode(input.as_bytes(), &limits, 1, &mut batch);
        let args = batch.get(0, input.as_bytes());
        let prepared = prepare(&self.shared, args);
        let mut out = Vec::new();
        let mut context = ReactorContext {
            shared: &self.shared,
            params: &self.params,
            reactor: &mut self.reactor,
            record: &mut self.record,
            now: self.now,
            replies: None,
        };
        let reply = ReplyWriter::new(&mut out, self.resp.protocol);
        context.request(&mut self.resp, prepared, args, reply);
        String::from_utf8(out).unwrap().trim_end().replace("\r\n", " ")
    }

    pub(super) fn prepare(&mut self, text: &str) -> Result<PreparedStatement, CqlError> {
        let keyspace = self.client.keyspace.clone();
        self.executor().prepare(text, keyspace.as_deref())
    }

    pub(super) fn run(&mut self, text: &str) -> Result<Answer, CqlError> {
        self.ask(text, Asked::default())
    }

    pub(super) fn ask(&mut self, text: &str, asked: Asked<'_>) -> Result<Answer, CqlError> {
        if let Ok(parsed) = parse(text)
            && changes_schema(&parsed.statement)
        {
            self.tables += 1;
            let cx = ChangeContext {
                keyspace: self.client.keyspace.as_deref(),
                table_id: Uuid::from_u128(self.tables << 64 | 7),
                timestamp: self.now.unix_us(),
                is_in_group: false,
            };
            let catalog = self.shared.catalog.load_full();
            if let Some(change) = change(&catalog, &parsed.statement, &cx)? {
                install_indexes(&change.catalog, &self.shared.keyspace);
                self.shared.catalog.store(change.catalog);
                if self.builds_indexes {
                    self.settle_indexes();
                }
            }
            return Ok(Answer::default());
        }
        let statement = self.prepare(text)?;
        self.execute(&statement, asked)
    }

    pub(super) fn execute(
        &mut self,
        statement: &PreparedStatement,
        asked: Asked<'_>,
    ) -> Result<Answer, CqlError> {
        let mut parameters = Parameters::new(Consistency::One);
        parameters.page_size = asked.page_size;
        parameters.paging_state = asked.paging_state;
        parameters.timestamp = asked.timestamp;
        let values: Vec<(Option<&str>, Value<'_>)> =
            asked.values.iter().map(|value| (None, *value)).collect();
        let to_send = ParametersToSend { parameters, values: &values };
        let mut request = Vec::new();
        let encoder = RequestEncoder { version: Version::V4, compression: None };
        encoder.query(0, &statement.text, &to_send, &mut request);
        let (header, body) = split(&request);
        let (Request::Query { parameters, .. }, _) = decode_request(&header, body).unwrap() else {
            panic!()
        };
        let mut out = Vec::new();
        let mut client = self.client.clone();
        let mut begun = None;
        loop {
            let mut reply = WireReply {
                encoder: ResponseEncoder::plain(Version::V4),
                stream: 0,
                out: &mut out,
                skip_columns: false,
                new_metadata_id: None,
            };
            let turn = Turn { rows_max: self.turn_rows, begun: begun.take() };
            let executed =
                self.executor().execute(&mut client, statement, &parameters, turn, &mut reply)?;
            match executed {
                Executed::Done(_) => {
                    self.client = client;
                    return Ok(decoded(&out));
                }
                Executed::Paused(paused) => begun = Some(paused),
            }
            assert!(out.is_empty(), "an incomplete response");
            self.pauses += 1;
            if let Some(request) = self.meanwhile.pop() {
                self.resp(&request);
            }
        }
    }

    /// Runs a batch of prepared statements.
    pub(super) fn batch(
        &mut self,
        kind: wire::cql::BatchKind,
        statements: &[(&str, &[Value<'_>])],
    ) -> Result<Answer, CqlError> {
        let mut request = Vec::new();
        let encoder = RequestEncoder { version: Version::V4, compression: None };
        let statements: Vec<_> = statements
            .iter()
            .map(|(text, values)| (wire::cql::BatchStatement::Text(text), *values))
            .collect();
        let with = Parameters::new(Consistency::One);
        encoder.batch(0, kind, &statements, &with, &mut request);
        let (header, body) = split(&request);
        let (Request::Batch(batch), _) = decode_request(&header, body).unwrap() else { panic!() };
        let mut out = Vec::new();
        let mut client = self.client.clone();
        let mut reply = WireReply {
            encoder: ResponseEncoder::plain(Version::V4),
            stream: 0,
            out: &mut out,
            skip_columns: false,
            new_metadata_id: None,
        };
        self.executor().batch(&mut client, &batch, &|_| None, &mut reply)?;
        Ok(decoded(&out))
    }

    /// Runs a script: see the module.
    pub(super) fn check(&mut self, script: &str) {
        let mut asked: Option<&str> = None;
        let mut expected: Vec<&str> = Vec::new();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()).chain(["> "]) {
            if !line.starts_with(['>', '#']) {
                expected.push(line);
                continue;
            }
            if let Some(asked) = asked.replace(line) {
                assert_eq!(self.shown(asked), expected, "{asked}");
                expected.clear();
            }
        }
    }

    fn shown(&mut self, line: &str) -> Vec<String> {
        let text = line[1..].trim();
        if line.starts_with('#') {
            return vec![self.resp(text)];
        }
        match self.run(text) {
            Ok(answer) => answer.rows,
            Err(error) => vec![format!("! {error}").trim_end().to_owned()],
        }
    }
}

/// Runs a script on a new server.
pub(super) fn check(script: &str) {
    Server::new().check(script);
}

fn split(message: &[u8]) -> (Header, &[u8]) {
    let (header, bytes) =
        match Header::decode(message, wire::cql::Direction::Request, None, &Limits::DEFAULT) {
            Ok(Some(header)) => (header, HEADER_BYTES),
            _ => panic!("not a request"),
        };
    (header, &message[bytes..])
}

fn decoded(out: &[u8]) -> Answer {
    let header = Header::decode(out, wire::cql::Direction::Response, None, &Limits::DEFAULT);
    let header = header.unwrap().unwrap();
    let (response, _) = decode_response(&header, &out[HEADER_BYTES..]).unwrap();
    let Response::Rows(rows) = response else { return Answer::default() };
    let types: Vec<CqlType> =
        rows.metadata.specs.iter().map(|(_, _, _, column)| cql_type(column)).collect();
    let cells: Vec<Option<&[u8]>> = rows.cells().collect();
    let shown = cells.chunks(types.len()).map(|row| {
        let cells: Vec<String> = row.iter().zip(&types).map(|(cell, of)| text(*cell, of)).collect();
        cells.join(" | ")
    });
    Answer {
        names: rows.metadata.specs.iter().map(|(_, _, name, _)| (*name).to_owned()).collect(),
        rows: shown.collect(),
        paging_state: rows.metadata.paging_state.map(<[u8]>::to_vec),
    }
}

/// Formats a cell as JSON, but texts without quotes.
fn text(cell: Option<&[u8]>, of: &CqlType) -> String {
    let Some(bytes) = cell else { return "null".to_owned() };
    if *of == CqlType::TEXT {
        return String::from_utf8(bytes.to_vec()).unwrap();
    }
    let mut out = String::new();
    put_json(bytes, of, &mut out);
    out
}

fn cql_type(of: &ColumnType) -> CqlType {
    let native = |native| CqlType::Native(native);
    let boxed = |of: &ColumnType| Box::new(cql_type(of));
    match of {
        ColumnType::Ascii => native(Native::Ascii),
        ColumnType::Bigint => native(Native::Bigint),
        ColumnType::Blob | ColumnType::Custom(_) => native(Native::Blob),
        ColumnType::Boolean => native(Native::Boolean),
        ColumnType::Counter => native(Native::Counter),
        ColumnType::Decimal => native(Native::Decimal),
        ColumnType::Double => native(Native::Double),
        ColumnType::Float => native(Native::Float),
        ColumnType::Int => native(Native::Int),
        ColumnType::Timestamp => native(Native::Timestamp),
        ColumnType::Uuid => native(Native::Uuid),
        ColumnType::Text => native(Native::Text),
        ColumnType::Varint => native(Native::Varint),
        ColumnType::Timeuuid => native(Native::Timeuuid),
        ColumnType::Inet => native(Native::Inet),
        ColumnType::Date => native(Native::Date),
        ColumnType::Time => native(Native::Time),
        ColumnType::Smallint => native(Native::Smallint),
        ColumnType::Tinyint => native(Native::Tinyint),
        ColumnType::Duration => native(Native::Duration),
        ColumnType::List(item) => CqlType::List(boxed(item)),
        ColumnType::Set(item) => CqlType::Set(boxed(item)),
        ColumnType::Map(key, value) => CqlType::Map(boxed(key), boxed(value)),
        ColumnType::Tuple(parts) => CqlType::Tuple(parts.iter().map(cql_type).collect()),
        ColumnType::UserDefined { keyspace, name, fields } => {
            let fields = fields.iter().map(|(name, of)| (name.clone(), cql_type(of)));
            let user = UserType::new(keyspace.clone(), name.clone(), fields.collect());
            CqlType::UserDefined(Arc::new(user))
        }
    }
}
