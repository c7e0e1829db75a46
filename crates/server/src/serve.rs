//! Startup and shutdown of the server.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use base::messages;
use base::stages::CycleClock;
use base::time::Now;
use binlog::{Disk, FileDisk};
use parking_lot::Mutex;
use rand::RngCore as _;
use reactor::{Control, Group, Limits, Links, Listener, Signal};

use crate::commands::acl::{default_user, load_at_start};
use crate::commands::scripting::load_stored;
use crate::config::{
    Config, Conflict, CqlAuthenticator, Endpoint, MemoryTrackers, Place, Placement, Settings,
    machine_memory_bytes,
};
use crate::cql::CqlState;
use crate::cql::pool::Pool;
use crate::engine::acl::{Acl, Users};
use crate::engine::activity::Activities;
use crate::engine::blocked::BlockedClients;
use crate::engine::command_log::CommandLogs;
use crate::engine::free_thread::FreeThread;
use crate::engine::functions::Functions;
use crate::engine::history::History;
use crate::engine::invalidations::Invalidations;
use crate::engine::key_usage::KeyUsage;
use crate::engine::latency::LatencyEvents;
use crate::engine::long_requests::LongRequests;
use crate::engine::mail::Mail;
use crate::engine::migrations::Migrations;
use crate::engine::monitor_feeds::MonitorFeeds;
use crate::engine::pause::Pause;
use crate::engine::prepared::PreparedTable;
use crate::engine::published::PublishedStats;
use crate::engine::pubsub::Directory;
use crate::engine::requests::RequestKinds;
use crate::engine::running_scripts::RunningScripts;
use crate::engine::scripts::Scripts;
use crate::engine::server_state::{Identity, Rates, ReactorCount, ServerState, params};
use crate::engine::snapshots::Snapshots;
use crate::engine::stalls::Stalls;
use crate::engine::transfers::Transfers;
use crate::engine::write_clock::WriteClock;
use crate::engine::{
    clock, import_mode, migration_threads, protection, snapshot_taker, stall_detector,
    transfer_thread,
};
use crate::greeting::greeting;
use crate::handler::{ReactorHandler, Session, State, history};
use crate::http::early::Early;
use crate::protocol::ClientProtocol;
use crate::recovery::{self, Recovered};
use crate::replica;
use crate::statements::StatementState;
use crate::statements::execute::install_indexes;
use crate::statements::stored_schema;
use crate::telemetry::Telemetry;
use crate::tls::ListenerTls;
use crate::{commands, logging, service_manager, tls};

/// Checking a password takes a whole core; the other cores remain for clients that are already
/// authenticated.
const CORES_PER_PASSWORD_THREAD: usize = 4;

/// Runs the server until SIGTERM, SIGINT or SHUTDOWN. Prints one line that starts with `ready` and
/// names each listener as soon as the server accepts connections; on a terminal also an example for
/// each protocol.
pub fn serve(config: Config) -> anyhow::Result<()> {
    // Before the thread of the log starts, so that all threads leave signals to the group.
    reactor::block_signals().context("could not block signals")?;
    logging::install(config.settings())?;
    run(config, |group, shared| {
        announce(group, shared);
        Ok(())
    })
}

/// Runs a server until its end. Calls `ready` as soon as it accepts connections.
pub(crate) fn run(
    mut config: Config,
    ready: impl FnOnce(&Group<Mail>, &ServerState) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    config.validate()?;
    let settings = config.settings().clone();
    let users = load_users(&settings).map_err(|conflict| config.conflict(conflict))?;
    reactor::block_signals().context("could not block signals")?;
    let dir = settings.dir.display().to_string();
    let disk: Arc<dyn Disk> = Arc::new(
        FileDisk::open(&settings.dir)
            .with_context(|| format!("could not open data directory {dir}"))?,
    );
    let reactors = ReactorCount { regular: settings.reactor_count(), has_spare: true };
    let started = clock::now();
    let tls = open_tls(&settings).map_err(|conflict| config.conflict(conflict))?;
    let sockets = bind_all(&settings)?;
    let early = early_listeners(&settings, &sockets)
        .and_then(|listeners| Early::start(&listeners))
        .context("could not start early-HTTP thread")?;
    let recovered =
        recovery::recover(&disk, &settings, reactors.all(), started.unix, rand::random())
            .with_context(|| format!("could not recover data in {dir}"))?;
    let of_import = params(&settings, started.unix, recovered.keyspace.seed(), 0);
    if import_mode::is_unfinished(&recovered.keyspace, &of_import) {
        tracing::info!("no key expires, because an import is unfinished");
        config.take_argument("import-mode", "yes")?;
    }
    let log = Arc::clone(&recovered.log);
    let cycles = CycleClock::new();
    let state = build_state(config, &disk, recovered, reactors, started, cycles);
    let State { shared, statements, cql, feeds } = &state;
    shared.acl.replace(users);
    if let Some(tls) = tls {
        shared.tls.get_or_init(|| tls);
    }
    let measured = settings.experiments.counts_memory().then(|| Arc::clone(&shared.memory.server));
    shared.free_thread.start(measured).context("could not start the free thread")?;
    shared.lines.start().context("could not start log-line thread")?;
    stored_schema::install(shared, &statements.schema, started.unix, rand::random())
        .context("could not write schema of the system tables")?;
    replica::begin(shared).context("could not begin replication")?;
    log.set_wall_clock(|| clock::now().unix_us());
    let writer = log.spawn_writer(clock::mono_now).context("could not start log writer")?;
    drop(early);
    let group = start_group(&state, &settings, sockets)?;
    snapshot_taker::start(shared).context("could not start snapshot thread")?;
    transfer_thread::start(shared).context("could not start the transfer thread")?;
    migration_threads::start(shared).context("could not start the threads of MIGRATE")?;
    commands::long_requests::start(shared)
        .context("could not start the threads of long requests")?;
    feeds.start(shared).context("could not start change-stream thread")?;
    let link = replica::start(&state).context("could not start the thread of replication")?;
    let promotions =
        replica::start_promotions(&state).context("could not start the thread of promotions")?;
    let pulling = replica::start_pulling(&state).context("could not start the thread of peers")?;
    stall_detector::start(shared).context("could not start the stall detector")?;
    let telemetry = Telemetry::start(shared).context("could not start the telemetry thread")?;
    start_pools(&state, &settings)?;
    ready(&group, shared)?;
    let ran = group.run(|signal| on_signal(shared, signal));
    service_manager::notify("STOPPING=1\nSTATUS=Closing the log");
    #[cfg(feature = "experiments")]
    cql.pool.stop();
    cql.password_pool.stop();
    feeds.stop();
    link.stop(shared);
    promotions.stop(shared);
    pulling.stop(shared);
    tracing::info!("connections drained; closing the log");
    telemetry.stop();
    shared.stalls.stop();
    shared.snapshots.stop();
    shared.transfers.stop();
    shared.migrations.stop();
    shared.long_requests.stop();
    shared.free_thread.stop();
    shared.lines.stop();
    writer.stop().map_err(|cause| anyhow::anyhow!("could not close log: {cause}"))?;
    ran.context("could not run reactors")
}

/// Builds the state that all reactors share. Starts no thread.
pub(crate) fn build_state(
    config: Config,
    disk: &Arc<dyn Disk>,
    recovered: Recovered,
    reactors: ReactorCount,
    started: Now,
    cycles: CycleClock,
) -> State {
    let settings = config.settings().clone();
    let threads = settings.long_request_threads;
    let acl = Acl::new(Users::new(default_user(&settings.passwords())));
    // The reactors build the index contents while they serve.
    install_indexes(&recovered.schema.catalog, &recovered.keyspace);
    let memory = MemoryTrackers::new(&settings, machine_memory_bytes());
    let (_, store_bytes) = recovered.keyspace.stats(started.unix);
    memory.store.consume(store_bytes as u64);
    let (last_unix_ms, position) = (recovered.snapshot_unix_ms, recovered.snapshot_position);
    let snapshots = Snapshots::new(Arc::clone(disk), last_unix_ms, position, started.mono);
    let request_kinds = RequestKinds::new(Session::request_names());
    let statements = Arc::new(StatementState::new(recovered.schema.last_change));
    let cql = CqlState::new(Arc::clone(&statements));
    #[cfg(feature = "experiments")]
    let cql = cql.with_processors(settings.experiments.processor);
    let shared = ServerState {
        running_scripts: RunningScripts::new(reactors.all(), threads, cycles.clone()),
        reactors,
        last_data_stats: Mutex::default(),
        activities: Activities::new(reactors.all()),
        stalls: Stalls::default(),
        cycles,
        keyspace: recovered.keyspace,
        catalog: ArcSwap::from_pointee(recovered.schema.catalog),
        roles: ArcSwap::from_pointee(recovered.schema.roles),
        prepared: PreparedTable::new(Arc::clone(&memory.prepared)),
        scripts: Scripts::new(Arc::clone(&memory.scripts)),
        functions: Functions::new(Arc::clone(&memory.scripts)),
        write_clock: WriteClock::above(recovered.progress.newest_timestamp),
        log: recovered.log,
        acl,
        refusals: Mutex::default(),
        config: Mutex::new(config),
        settings: ArcSwap::from_pointee(settings),
        memory,
        published: (0..reactors.all())
            .map(|_| Mutex::new(PublishedStats::new(request_kinds.len())))
            .collect(),
        request_kinds,
        moving: Mutex::new(HashMap::new()),
        links: OnceLock::new(),
        tls: OnceLock::new(),
        identity: identity(started),
        command_logs: CommandLogs::default(),
        latency: Mutex::new(LatencyEvents::default()),
        rates: Rates::default(),
        history: History::new(history::columns(reactors)),
        free_thread: FreeThread::default(),
        lines: Arc::default(),
        snapshots,
        transfers: Transfers::default(),
        replication: recovered.replication,
        hub: recovered.hub,
        migrations: Migrations::default(),
        long_requests: LongRequests::new(threads),
        pubsub: Directory::new(reactors.all()),
        recovery: recovered.report,
        pause: Pause::default(),
        http_warned: AtomicU64::new(0),
        monitors: AtomicUsize::new(0),
        key_usage: KeyUsage::new(reactors.all()),
        monitor_feeds: MonitorFeeds::new(reactors.all()),
        blocked_clients: AtomicUsize::new(0),
        blocked: BlockedClients::new(reactors.all()),
        invalidations: Invalidations::new(reactors.all()),
        cql_pool_overflows: AtomicU64::new(0),
        baseline: ArcSwap::default(),
        active_expire: AtomicBool::new(true),
        stopper: OnceLock::new(),
    };
    load_stored(&shared, started.unix);
    State { shared: Arc::new(shared), statements, cql: Arc::new(cql), feeds: Arc::default() }
}

fn identity(started: Now) -> Identity {
    let executable = std::env::current_exe().map(|path| path.display().to_string());
    Identity {
        run_id: random_hex(),
        started,
        executable: executable.unwrap_or_default(),
        addresses: OnceLock::new(),
    }
}

/// Builds the handler of one reactor. From now on the log and the other threads can wake it.
pub(crate) fn join_group(state: &State, index: usize, links: &Links<Mail>) -> ReactorHandler {
    let shared = &state.shared;
    let links = shared.links.get_or_init(|| links.clone());
    let waker = links.wakers().nth(index).expect("one waker per reactor");
    shared.log.set_waker(index, Box::new(move || waker.wake()));
    ReactorHandler::new(state.clone(), index)
}

/// Returns 40 hexadecimal digits, the form of a Redis run ID.
fn random_hex() -> String {
    let mut bytes = [0u8; 20];
    rand::rng().fill_bytes(&mut bytes);
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("less than 16");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Loads the users, and checks that other machines cannot use the server without a password.
pub(crate) fn load_users(settings: &Settings) -> Result<Users, Conflict> {
    let users = load_at_start(settings).map_err(|report| Conflict::new("aclfile", report))?;
    protection::check(settings, &users)?;
    Ok(users)
}

/// Loads the certificates for TLS listeners; `None` without such listeners.
pub(crate) fn open_tls(settings: &Settings) -> Result<Option<ListenerTls>, Conflict> {
    if !settings.has_tls() {
        return Ok(None);
    }
    match tls::load(settings) {
        Ok(loaded) => Ok(Some(ListenerTls::new(loaded))),
        Err(error) => Err(Conflict::new(tls::option_of(&error), error.to_string())),
    }
}

/// Binds all addresses before the data is read, so that an address in use is reported early. The
/// order is the one in which the handler counts endpoints.
///
/// The Unix socket is only checked: until it listens, another server would take it for stale.
fn bind_all(settings: &Settings) -> anyhow::Result<Vec<OwnedFd>> {
    let socket = &settings.unixsocket;
    if !socket.as_os_str().is_empty() {
        reactor::check_socket_path(socket)
            .with_context(|| format!("could not listen on {}", socket.display()))?;
    }
    let bind = |(endpoint, address): (Endpoint, SocketAddr)| {
        let taken = reactor::bind(address, false).and_then(|socket| {
            if answers_early(&endpoint) {
                reactor::begin_listening(&socket, settings.tcp_backlog)?;
            }
            Ok(socket)
        });
        taken.with_context(|| format!("could not listen on {address}"))
    };
    let endpoints = settings.endpoints();
    endpoints.filter_map(|one| Some((one, one.place.address()?))).map(bind).collect()
}

/// Whether the endpoint answers before the data is recovered.
fn answers_early(endpoint: &Endpoint) -> bool {
    endpoint.protocol == ClientProtocol::Http && !endpoint.is_tls
}

/// Duplicates the sockets of the endpoints that answer early.
fn early_listeners(settings: &Settings, sockets: &[OwnedFd]) -> std::io::Result<Vec<TcpListener>> {
    let all = settings.endpoints().zip(sockets);
    let early = all.filter(|(endpoint, _)| answers_early(endpoint));
    early.map(|(_, socket)| socket.try_clone().map(TcpListener::from)).collect()
}

fn start_group(
    state: &State,
    settings: &Settings,
    sockets: Vec<OwnedFd>,
) -> anyhow::Result<Group<Mail>> {
    let shared = &state.shared;
    let limits = Arc::new(Limits::default());
    settings.apply_to(&limits);
    let listeners = listen_all(settings, sockets, shared.tls.get())?;
    let config = reactor::Config {
        reactors: shared.reactors.regular,
        has_spare: shared.reactors.has_spare,
        placement: placement(settings),
        limits,
        drain_timeout_ms: settings.shutdown_timeout_ms,
    };
    let join = |index, links: &Links<Mail>| join_group(state, index, links);
    let group = Group::start(&config, listeners, join).context("could not start reactors")?;
    // The first turns start the housekeeping, even if no client connects.
    for waker in group.links().wakers() {
        waker.wake();
    }
    let possible = group.descriptors().connections_possible;
    if possible < settings.maxclients as u64 {
        tracing::warn!(
            maxclients = settings.maxclients,
            possible,
            "the limit of open files does not allow maxclients connections"
        );
    }
    shared.stopper.get_or_init(|| group.stopper());
    shared.identity.addresses.get_or_init(|| group.addresses());
    Ok(group)
}

/// Listens on all endpoints. `sockets`: those of the addresses, bound and in their order.
fn listen_all(
    settings: &Settings,
    sockets: Vec<OwnedFd>,
    tls: Option<&ListenerTls>,
) -> anyhow::Result<Vec<Listener>> {
    let bytes = settings.internals.socket_receive_buffer_bytes();
    let receive_buffer_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut listeners = Vec::new();
    let mut sockets = sockets.into_iter();
    for endpoint in settings.endpoints() {
        let listener = listen(&endpoint, settings, &mut sockets)?;
        if receive_buffer_bytes != 0 {
            let sized = listener.set_receive_buffer_bytes(receive_buffer_bytes);
            sized.context("could not set receive buffer of listening socket")?;
        }
        listeners.push(match tls {
            Some(ListenerTls { tls, .. }) if endpoint.is_tls => listener.with_tls(Arc::clone(tls)),
            _ => listener,
        });
    }
    Ok(listeners)
}

/// Listens on one endpoint, with the next of the sockets if it has an address.
fn listen(
    endpoint: &Endpoint,
    settings: &Settings,
    sockets: &mut impl Iterator<Item = OwnedFd>,
) -> anyhow::Result<Listener> {
    let Endpoint { protocol, is_admin, place, node, .. } = *endpoint;
    let refusal = protocol.refusal();
    let listener = match place {
        Place::Address(address) => {
            let socket = sockets.next().expect("every address is bound");
            Listener::from_bound(socket, settings.tcp_backlog, refusal)
                .with_context(|| format!("could not listen on {address}"))?
        }
        Place::Path => {
            let (path, mode) = (&settings.unixsocket, settings.unixsocketperm.bits());
            Listener::unix(path, mode, settings.tcp_backlog, refusal)
                .with_context(|| format!("could not listen on {}", path.display()))?
        }
    };
    Ok(match node {
        Some(node) => listener.with_reactor(node.reactor),
        None if is_admin => listener.with_spare_only(),
        None if Session::may_be_on_spare(protocol) => listener.with_spare(),
        None => listener,
    })
}

/// Starts the threads for statements that reactors do not run themselves.
fn start_pools(state: &State, settings: &Settings) -> anyhow::Result<()> {
    let State { shared, cql, .. } = state;
    if !settings.speaks_cql() {
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if settings.cql_authenticator == CqlAuthenticator::Password {
        let threads = cores.div_ceil(CORES_PER_PASSWORD_THREAD);
        Pool::start(shared, cql, |cql| &cql.password_pool, "password", threads)
            .context("could not start password threads")?;
    }
    #[cfg(feature = "experiments")]
    start_experiments(state, settings, cores)?;
    Ok(())
}

#[cfg(feature = "experiments")]
fn start_experiments(state: &State, settings: &Settings, cores: usize) -> anyhow::Result<()> {
    let State { shared, cql, .. } = state;
    let experiments = &settings.experiments;
    if experiments.stub() != 0 {
        let stub = experiments.stub();
        tracing::warn!(stub, "CQL statements are answered without being executed");
    }
    if !experiments.replies_by_pool() {
        return Ok(());
    }
    let threads = match experiments.reply_pool_threads {
        0 => cores,
        count => count,
    };
    Pool::start(shared, cql, |cql| &cql.pool, "cql", threads)
        .context("could not start CQL thread pool")
}

fn placement(settings: &Settings) -> reactor::Placement {
    match settings.placement {
        Placement::LeastLoaded => reactor::Placement::LeastLoaded,
        Placement::RoundRobin => reactor::Placement::RoundRobin,
        #[cfg(feature = "experiments")]
        Placement::Hash => reactor::Placement::Hash {
            modulus: u32::try_from(settings.experiments.num_connections_to_server)
                .unwrap_or(u32::MAX),
        },
        Placement::SourcePort => reactor::Placement::SourcePort,
    }
}

fn announce(group: &Group<Mail>, shared: &ServerState) {
    let addresses = group.addresses();
    let settings = shared.settings.load();
    let named = settings.endpoints().zip(&addresses);
    let mut listeners: Vec<String> =
        named.map(|(endpoint, address)| format!("{}={address}", endpoint.option)).collect();
    if !settings.unixsocket.as_os_str().is_empty() {
        listeners.push(format!("unixsocket={}", settings.unixsocket.display()));
    }
    let mut text = format!("ready {}\n", listeners.join(" "));
    if std::io::stdout().is_terminal() {
        text.push_str(&greeting(&settings, &shared.acl.users(), &addresses));
    }
    messages::print(&text);
    let reactors = shared.reactors.regular;
    tracing::info!(reactors, listeners = listeners.join(" "), "accepting connections");
    service_manager::notify(&format!(
        "READY=1\nSTATUS=Accepting connections: {}",
        listeners.join(" ")
    ));
}

fn on_signal(shared: &ServerState, signal: Signal) -> Control {
    tracing::info!(?signal, "signal");
    match signal {
        Signal::Terminate | Signal::Interrupt => Control::Stop,
        Signal::Hangup => {
            commands::reload(shared);
            Control::Continue
        }
        Signal::User1 => {
            logging::reopen();
            Control::Continue
        }
        Signal::User2 => Control::Continue,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn addresses_are_bound_before_resp_accepts_connections() {
        let any = "127.0.0.1:0".parse().unwrap();
        let settings = Settings { resp: vec![any], http: vec![any], ..Settings::default() };
        let sockets = bind_all(&settings).unwrap();
        let early = early_listeners(&settings, &sockets).unwrap();
        let [http] = &early[..] else { panic!("{early:?}") };
        TcpStream::connect(http.local_addr().unwrap()).unwrap();
        let resp = TcpListener::from(sockets[0].try_clone().unwrap()).local_addr().unwrap();
        TcpStream::connect(resp).unwrap_err();

        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let resp = vec![other.local_addr().unwrap()];
        let error = bind_all(&Settings { resp, ..settings }).unwrap_err();
        assert!(error.to_string().starts_with("could not listen on 127.0.0.1:"), "{error}");
    }
}
