//! Listeners, the clients that are served, and the log output.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::fixture::{Server, happens, happens_within, is_closed_within, login, outcome, word};
use super::{Row, row, unix_socket};
use crate::cql::Cql;
use crate::resp::{ask, read_reply, request};
use crate::secure::{conversation, dial};

const ANY: &str = "127.0.0.1:0";
const CQL: &[&str] = &["--cql", ANY];
const SECRET: &[&str] = &["--cql", ANY, "--requirepass", "secret"];
const ROLES: &[&str] =
    &["--cql", ANY, "--cql-authenticator", "password", "--requirepass", "secret"];
const TLS: &[&str] = &[
    "--resp-tls",
    ANY,
    "--tls-cert-file",
    "{dir}/one.pem",
    "--tls-key-file",
    "{dir}/one.key",
    "--tls-ca-cert-file",
    "{dir}/ca.pem",
];
const CERTIFIED: &[&str] = &[
    "--resp-tls",
    ANY,
    "--tls-cert-file",
    "{dir}/one.pem",
    "--tls-key-file",
    "{dir}/one.key",
    "--tls-ca-cert-file",
    "{dir}/ca.pem",
    "--aclfile",
    "{dir}/users.acl",
];
const OPEN_TLS: &[&str] = &[
    "--resp-tls",
    ANY,
    "--tls-cert-file",
    "{dir}/one.pem",
    "--tls-key-file",
    "{dir}/one.key",
    "--tls-auth-clients",
    "no",
];
/// Without a listener; the row adds it.
const TLS_FILES: &[&str] = &[
    "--tls-cert-file",
    "{dir}/one.pem",
    "--tls-key-file",
    "{dir}/one.key",
    "--tls-auth-clients",
    "no",
];
const STARTS: [&str; 2] = ["starts", "refuses"];

pub(super) const ROWS: &[Row] = &[
    row("dir", "{dir}/other", &[], place_of_data, ["data", "other"]),
    row("resp", "127.0.0.2:0", &[], host_of_resp, ["127.0.0.1 +PONG", "127.0.0.2 +PONG"]),
    row("cql", ANY, &[], speaks_cql, ["no", "yes"]),
    row("http", ANY, &[], speaks_http, ["no", "yes"]),
    row("resp-tls", ANY, TLS_FILES, |server| speaks_tls(server, "resp-tls"), ["no", "yes"]),
    row("cql-tls", ANY, TLS_FILES, |server| speaks_tls(server, "cql-tls"), ["no", "yes"]),
    row("http-tls", ANY, TLS_FILES, |server| speaks_tls(server, "http-tls"), ["no", "yes"]),
    // Certificate `two` does not match the key of `one`.
    row("tls-cert-file", "{dir}/two.pem", TLS, starts, STARTS),
    row("tls-key-file", "{dir}/two.key", TLS, starts, STARTS),
    row("tls-ca-cert-file", "{dir}/none.pem", TLS, starts, STARTS),
    row("admin", "127.0.0.1:0", &["--maxclients", "1"], administration, ["none", "+PONG -ERR"]),
    row("unixsocket", "{dir}/s", &[], speaks_over_socket, ["no", "yes"]),
    row("unixsocketperm", "700", &["--unixsocket", "{dir}/s"], mode_of_socket, ["other", "700"]),
    row("tls-auth-clients", "no", TLS, admits_strangers, ["no", "yes"]),
    row("tls-auth-clients-user", "CN", CERTIFIED, user_of_certificate, ["default", "client"]),
    row("tls-protocols", "TLSv1.2", OPEN_TLS, version_of_tls, ["TLSv1_3", "TLSv1_2"]),
    row("reactors", "3", &[], threads_of_reactors, ["1", "3"]),
    row("placement", "source-port", CQL, announces_shards, ["no", "yes"]),
    row("cluster-view", "yes", &[], nodes, ["none", "one"]),
    row(
        "cluster-announce-ip",
        "example.org",
        &["--cluster-view", "yes"],
        announced_host,
        ["127.0.0.1", "example.org"],
    ),
    row("tcp-backlog", "1", &[], waits_to_be_accepted, ["many", "few"]),
    row("tcp-keepalive", "0", &[], keepalive_timer, ["on", "off"]),
    row("timeout", "1", &[], is_idle_closed, ["no", "yes"]),
    row("maxclients", "1", &[], second_client, ["+PONG", "-ERR max number of clients reached"]),
    row("protected-mode", "no", &["--resp", "0.0.0.0:0"], starts, ["refuses", "starts"]),
    row("requirepass", "p", &[], ping, ["+PONG", "-NOAUTH Authentication required."]),
    row(
        "requirepass-separator",
        ",",
        &["--requirepass", "old,new"],
        log_in_with_new,
        [WRONG, "+OK"],
    ),
    row("replicaof", "127.0.0.1 1", &[], role, ["master", "slave"]),
    row("masterauth", "p", &[], first_word_to_master, ["PING", "AUTH p"]),
    row("masteruser", "u", &["--masterauth", "p"], first_word_to_master, ["AUTH p", "AUTH u"]),
    row(
        "tls-replication",
        "yes",
        &["--tls-ca-cert-file", "{dir}/ca.pem"],
        first_byte_to_master,
        ["request", "handshake"],
    ),
    row("min-replicas-to-write", "1", &[], write, ["+OK", "-NOREPLICAS"]),
    row("repl-timeout", "1", &[], is_silent_master_left, ["no", "yes"]),
    row("replica-announce-ip", "db.example", &[], announced_ip, ["none", "db.example"]),
    row("replica-announce-port", "7", &[], announced_port, ["own", "7"]),
    row("replica-announced", "no", &["--replicaof", "127.0.0.1 1"], is_announced, ["1", "0"]),
    row("replica-priority", "7", &["--replicaof", "127.0.0.1 1"], priority, ["100", "7"]),
    row("server-id", "7", &[], role_in_group, ["none", "master"]),
    row("hub", "yes", &["--server-id", "7"], role_in_group, ["master", "hub"]),
    row("aclfile", "{dir}/users.acl", &[], users, ["*1", "*2"]),
    row("acl-pubsub-default", "allchannels", &[], may_new_user_publish, ["no", "yes"]),
    row("acllog-max-len", "1", &[], refusals, ["several", "1"]),
    row("cql-authenticator", "allow-all", SECRET, startup, ["AUTHENTICATE", "READY"]),
    row("cql-authorizer", "allow-all", ROLES, role_creates, ["ERROR 2100", "RESULT"]),
    row("enable-debug-command", "no", &[], is_debug_refused, ["no", "yes"]),
    row("shutdown-timeout-ms", "100", &[], ends_soon, ["no", "yes"]),
    row("log-level", "error", &[], logs_its_start, ["yes", "no"]),
    row("log-format", "json", &[], first_character, ["text", "json"]),
    row("log-file", "{dir}/log", &[], place_of_log, ["stderr", "log"]),
    row("otlp-endpoint", "http://127.0.0.1:1", &[], sends_telemetry, ["no", "yes"]),
    row("audit-log", "yes", &[], logs_administration, ["no", "yes"]),
    row("log-cql-requests", "yes", CQL, logs_requests, ["no", "yes"]),
    row("slowlog-log-slower-than", "0", &[], is_slow, ["no", "yes"]),
    row(
        "slowlog-max-len",
        "1",
        &["--slowlog-log-slower-than", "0"],
        slow_commands,
        ["several", "1"],
    ),
    row("commandlog-request-larger-than", "100", &[], large_requests, [":0", ":1"]),
    row(
        "commandlog-large-request-max-len",
        "0",
        &["--commandlog-request-larger-than", "100"],
        large_requests,
        [":1", ":0"],
    ),
    row("commandlog-reply-larger-than", "100", &[], large_replies, [":0", ":1"]),
    row(
        "commandlog-large-reply-max-len",
        "0",
        &["--commandlog-reply-larger-than", "100"],
        large_replies,
        [":1", ":0"],
    ),
    row("stall-threshold-ms", "20", &[], names_a_stall, ["no", "yes"]),
    row("tracking-table-max-keys", "1", &[], tracked_keys, ["2", "1"]),
    row("latency-monitor-threshold", "1", &[], has_latency_event, ["no", "yes"]),
    row("latency-tracking", "no", &[], has_histograms, ["yes", "no"]),
    row("latency-tracking-info-percentiles", "10", &[], percentile, ["p50", "p10"]),
    row("notify-keyspace-events", "KEA", &[], hears_of_a_key, ["no", "yes"]),
];

const YES: [&str; 2] = ["yes", "no"];

fn tracked_keys(server: &Server) -> String {
    let mut client = server.connect("resp");
    for words in [&["CLIENT", "TRACKING", "ON"][..], &["MGET", "a", "b"]] {
        ask(&mut client, words);
    }
    server.counter("tracking_total_keys").to_string()
}

fn starts(server: &Server) -> String {
    word(server.has_started(), STARTS)
}

/// What an address of administration replies to PING and GET while `maxclients` is reached.
fn administration(server: &Server) -> String {
    if server.address("admin").is_none() {
        return "none".to_owned();
    }
    let mut only = server.connect("resp");
    assert_eq!(ask(&mut only, &["PING"]), "+PONG");
    let refusal = read_reply(&mut server.connect("resp"));
    assert_eq!(refusal, "-ERR max number of clients reached");
    let mut admin = server.connect("admin");
    let replies = [ask(&mut admin, &["PING"]), ask(&mut admin, &["GET", "k"])];
    replies.map(|reply| reply.split(' ').next().unwrap_or_default().to_owned()).join(" ")
}

fn speaks_over_socket(server: &Server) -> String {
    let speaks = || ask(&mut unix_socket::connect(server), &["PING"]) == "+PONG";
    word(server.files.path("s").exists() && speaks(), YES)
}

fn mode_of_socket(server: &Server) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = server.files.path("s").metadata().unwrap().permissions().mode() & 0o777;
    word(mode == 0o700, ["700", "other"])
}

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

fn log_in_with_new(server: &Server) -> String {
    server.ask(&["AUTH", "new"])
}

fn ping(server: &Server) -> String {
    server.ask(&["PING"])
}

fn user_of_certificate(server: &Server) -> String {
    let address = server.address("resp-tls").unwrap();
    let mut stream = dial(address, &server.files.client(Some("client")));
    ask(&mut stream, &["ACL", "WHOAMI"])
}

fn users(server: &Server) -> String {
    server.ask(&["ACL", "USERS"])
}

fn may_new_user_publish(server: &Server) -> String {
    server.ask(&["ACL", "SETUSER", "new", "+publish"]);
    word(server.ask(&["ACL", "DRYRUN", "new", "PUBLISH", "a", "b"]) == "+OK", YES)
}

fn refusals(server: &Server) -> String {
    for user in ["a", "b", "c"] {
        drop(server.ask(&["AUTH", user, "x"]));
    }
    word(server.ask(&["ACL", "LOG"]) == "*1", ["1", "several"])
}

fn place_of_data(server: &Server) -> String {
    let holds = |name: &&str| server.listed(name).iter().any(|(file, _)| file == "log.manifest");
    ["data", "other"].into_iter().filter(holds).collect()
}

fn host_of_resp(server: &Server) -> String {
    format!("{} {}", server.address("resp").unwrap().ip(), ping(server))
}

fn speaks_cql(server: &Server) -> String {
    let speaks =
        || outcome(&Cql { stream: server.connect("cql") }.ask(Cql::OPTIONS, &[])) == "SUPPORTED";
    word(server.address("cql").is_some() && speaks(), YES)
}

fn speaks_http(server: &Server) -> String {
    let speaks = || {
        let mut stream = server.connect("http");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        &answer == b"HTTP/1.1 200"
    };
    word(server.address("http").is_some() && speaks(), YES)
}

/// Whether the server answers over TLS on this port.
fn speaks_tls(server: &Server, option: &str) -> String {
    let Some(address) = server.address(option) else { return "no".to_owned() };
    let mut stream = dial(address, &server.files.client(None));
    let asked: &[u8] = match option {
        "cql-tls" => &[4, 0, 0, 1, Cql::OPTIONS, 0, 0, 0, 0],
        "http-tls" => b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        _ => b"PING\r\n",
    };
    stream.write_all(asked).unwrap();
    word(stream.read_exact(&mut [0; 7]).is_ok(), YES)
}

fn admits_strangers(server: &Server) -> String {
    let mut stream = dial(server.address("resp-tls").unwrap(), &server.files.client(None));
    word(ask(&mut stream, &["PING"]) == "+PONG", YES)
}

fn version_of_tls(server: &Server) -> String {
    let mut stream = server.connect("resp-tls");
    let mut client = conversation(&server.files.client(None));
    client.complete_io(&mut stream).unwrap();
    let version = client.protocol_version().unwrap();
    version.as_str().unwrap_or("unknown").to_owned()
}

fn threads_of_reactors(server: &Server) -> String {
    // The list may miss a thread while others start and end.
    happens_within(Duration::from_secs(1), || count_reactors(server) == 3);
    count_reactors(server).to_string()
}

fn count_reactors(server: &Server) -> usize {
    let is_reactor = |name: &&String| {
        let number = name.strip_prefix('r');
        number.is_some_and(|number| number.len() == 2 && number.parse::<u8>().is_ok())
    };
    threads(server).iter().filter(is_reactor).count()
}

/// The names of its threads.
fn threads(server: &Server) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| Some(name(task.unwrap())?.trim().to_owned())).collect()
}

/// What it sends is checked by the suite `monitoring`.
fn sends_telemetry(server: &Server) -> String {
    word(threads(server).iter().any(|name| name == "telemetry"), ["yes", "no"])
}

fn announces_shards(server: &Server) -> String {
    let (_, body) = Cql { stream: server.connect("cql") }.ask(Cql::OPTIONS, &[]);
    word(String::from_utf8_lossy(&body).contains("SCYLLA_NR_SHARDS"), YES)
}

fn nodes(server: &Server) -> String {
    let has_port = || server.connect("cluster-view").peer_addr().is_ok();
    word(server.ask(&["CLUSTER", "SLOTS"]) == "*1" && has_port(), ["one", "none"])
}

fn announced_host(server: &Server) -> String {
    let nodes = server.ask(&["CLUSTER", "NODES"]);
    let (_, address) = nodes.split_once(' ').unwrap();
    address.split(':').next().unwrap().to_owned()
}

/// Whether the kernel completes many connections for a server that does not accept them.
fn waits_to_be_accepted(server: &Server) -> String {
    let address = server.address("resp").unwrap();
    server.signal("STOP");
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let connected: Vec<TcpStream> = (0..8).filter_map(connect).collect();
    server.signal("CONT");
    word(connected.len() == 8, ["many", "few"])
}

/// Whether the server's end of a connection has a keep-alive timer, which `/proc/net/tcp` shows as
/// kind 2.
fn keepalive_timer(server: &Server) -> String {
    let mut stream = server.connect("resp");
    assert_eq!(ask(&mut stream, &["PING"]), "+PONG");
    let port = |address: std::net::SocketAddr| format!(":{:04X}", address.port());
    let local = port(stream.peer_addr().unwrap());
    let remote = port(stream.local_addr().unwrap());
    let is_on = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().any(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            columns.len() > 5
                && columns[1].ends_with(&local)
                && columns[2].ends_with(&remote)
                && columns[5].starts_with("02:")
        })
    };
    word(happens_within(Duration::from_millis(500), is_on), ["on", "off"])
}

fn is_idle_closed(server: &Server) -> String {
    word(is_closed_within(&mut server.connect("resp"), Duration::from_secs(4)), YES)
}

fn second_client(server: &Server) -> String {
    let mut first = server.connect("resp");
    assert_eq!(ask(&mut first, &["PING"]), "+PONG");
    // The connection is refused without a request, so writing to it may fail.
    let mut second = server.connect("resp");
    let _ = second.write_all(&request(&["PING"]));
    read_reply(&mut second)
}

fn startup(server: &Server) -> String {
    outcome(&Cql { stream: server.connect("cql") }.startup())
}

/// Creates a keyspace as a role without permissions.
fn role_creates(server: &Server) -> String {
    let mut root = login(server, "cassandra", "secret");
    let made = root.query("CREATE ROLE r WITH PASSWORD = 'r' AND LOGIN = true");
    assert_ne!(made.0, 0, "{}", String::from_utf8_lossy(&made.1));
    let mut role = login(server, "r", "r");
    outcome(&role.query(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    ))
}

fn is_debug_refused(server: &Server) -> String {
    word(server.ask(&["DEBUG", "SLEEP", "0"]).starts_with("-ERR"), YES)
}

/// Whether a stopping server exits soon although a client does not read its reply.
fn ends_soon(server: &Server) -> String {
    server.ask(&["SETRANGE", "k", "67108864", "x"]);
    let mut reader = server.connect("resp");
    reader.write_all(&request(&["GET", "k"])).unwrap();
    assert!(happens(|| server.counter("total_commands_processed") >= 2));
    server.signal("TERM");
    word(server.ends_within(Duration::from_secs(4)), YES)
}

fn logs_its_start(server: &Server) -> String {
    word(server.final_text("stderr").contains("accepting connections"), YES)
}

fn first_character(server: &Server) -> String {
    word(server.final_text("stderr").starts_with('{'), ["json", "text"])
}

fn place_of_log(server: &Server) -> String {
    let holds = |name: &&str| server.final_text(name).contains("accepting connections");
    ["stderr", "log"].into_iter().filter(holds).collect()
}

fn logs_administration(server: &Server) -> String {
    server.ask(&["CONFIG", "SET", "requirepass", "secret"]);
    let text = server.final_text("stderr");
    assert!(!text.contains("secret"), "{text}");
    word(text.contains("command=\"config|set\" arguments=\"requirepass (redacted)\""), YES)
}

fn logs_requests(server: &Server) -> String {
    Cql { stream: server.connect("cql") }.ask(Cql::OPTIONS, &[]);
    word(server.final_text("stderr").contains(" options\n"), YES)
}

fn is_slow(server: &Server) -> String {
    ping(server);
    word(server.ask(&["SLOWLOG", "LEN"]) != ":0", YES)
}

fn slow_commands(server: &Server) -> String {
    (0..5).for_each(|_| drop(ping(server)));
    word(server.ask(&["SLOWLOG", "LEN"]) == ":1", ["1", "several"])
}

fn large_requests(server: &Server) -> String {
    server.ask(&["SET", "k", &"v".repeat(100)]);
    server.ask(&["COMMANDLOG", "LEN", "large-request"])
}

fn large_replies(server: &Server) -> String {
    server.ask(&["ECHO", &"v".repeat(100)]);
    server.ask(&["COMMANDLOG", "LEN", "large-reply"])
}

/// Whether the log names a script that runs for a tenth of a second, and INFO counts it.
fn names_a_stall(server: &Server) -> String {
    const SCRIPT: &str = "local began = os.clock() repeat until os.clock() - began > 0.1";
    server.ask(&["EVAL", SCRIPT, "0"]);
    let is_named = || {
        let log = server.text("stderr");
        let mut stalls = log.lines().filter(|line| line.contains("does not return to its loop"));
        stalls.any(|line| line.contains("request=\"eval\"") && line.contains("script="))
    };
    let is_counted = || server.counter("reactor_stalls") > 0;
    word(happens_within(Duration::from_secs(1), || is_named() && is_counted()), YES)
}

fn has_latency_event(server: &Server) -> String {
    server.ask(&["DEBUG", "SLEEP", "0.05"]);
    word(server.ask(&["LATENCY", "LATEST"]) != "*0", YES)
}

/// Returns INFO latencystats, after waiting for PING to appear.
fn histograms(server: &Server) -> String {
    ping(server);
    let mut text = String::new();
    happens_within(Duration::from_secs(2), || {
        text = server.ask(&["INFO", "latencystats"]);
        text.contains("_ping:")
    });
    text
}

fn has_histograms(server: &Server) -> String {
    word(histograms(server).contains("_ping:"), YES)
}

fn percentile(server: &Server) -> String {
    let text = histograms(server);
    let first = text.split_once("_ping:").and_then(|(_, values)| values.split('=').next());
    first.unwrap_or_default().to_owned()
}

fn hears_of_a_key(server: &Server) -> String {
    let mut subscriber = server.connect("resp");
    assert_eq!(ask(&mut subscriber, &["SUBSCRIBE", "__keyspace@0__:k"]), "*3");
    let rest = ["subscribe", "__keyspace@0__:k", ":1"];
    assert_eq!([(); 3].map(|()| read_reply(&mut subscriber)), rest);
    assert_eq!(server.ask(&["SET", "k", "v"]), "+OK");
    subscriber.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    word(read_reply(&mut subscriber) == "*3", YES)
}

fn role(server: &Server) -> String {
    let mut connection = server.connect("resp");
    ask(&mut connection, &["ROLE"]);
    read_reply(&mut connection)
}

/// The command that a replica sends first to its master, with its first argument if it is AUTH.
fn first_word_to_master(server: &Server) -> String {
    let master = std::net::TcpListener::bind(ANY).unwrap();
    let port = master.local_addr().unwrap().port().to_string();
    server.ask(&["REPLICAOF", "127.0.0.1", &port]);
    let (mut replica, _) = master.accept().unwrap();
    read_reply(&mut replica);
    let command = read_reply(&mut replica);
    if command == "AUTH" { format!("AUTH {}", read_reply(&mut replica)) } else { command }
}

/// Whether a replica ends a connection over which its master sends nothing.
fn is_silent_master_left(server: &Server) -> String {
    let master = std::net::TcpListener::bind(ANY).unwrap();
    let port = master.local_addr().unwrap().port().to_string();
    server.ask(&["REPLICAOF", "127.0.0.1", &port]);
    let (mut replica, _) = master.accept().unwrap();
    read_reply(&mut replica);
    read_reply(&mut replica);
    word(is_closed_within(&mut replica, Duration::from_secs(5)), YES)
}

/// What a replica announces to its master: the words of its first REPLCONF.
fn announcement(server: &Server) -> Vec<String> {
    let master = std::net::TcpListener::bind(ANY).unwrap();
    let port = master.local_addr().unwrap().port().to_string();
    server.ask(&["REPLICAOF", "127.0.0.1", &port]);
    let (mut replica, _) = master.accept().unwrap();
    let read_request = |replica: &mut TcpStream| -> Vec<String> {
        let header = read_reply(replica);
        let count: usize = header.strip_prefix('*').unwrap().parse().unwrap();
        (0..count).map(|_| read_reply(replica)).collect()
    };
    assert_eq!(read_request(&mut replica), ["PING"]);
    replica.write_all(b"+PONG\r\n").unwrap();
    read_request(&mut replica)
}

/// The value of an option of REPLCONF.
fn announced(server: &Server, option: &str) -> Option<String> {
    let words = announcement(server);
    let at = words.iter().position(|word| word == option)?;
    words.get(at + 1).cloned()
}

fn announced_ip(server: &Server) -> String {
    announced(server, "ip-address").unwrap_or("none".to_owned())
}

fn announced_port(server: &Server) -> String {
    let own = server.address("resp").unwrap().port().to_string();
    let port = announced(server, "listening-port").unwrap();
    if port == own { "own".to_owned() } else { port }
}

fn is_announced(server: &Server) -> String {
    server.counter("replica_announced").to_string()
}

fn first_byte_to_master(server: &Server) -> String {
    let master = std::net::TcpListener::bind(ANY).unwrap();
    let port = master.local_addr().unwrap().port().to_string();
    server.ask(&["REPLICAOF", "127.0.0.1", &port]);
    let mut byte = [0];
    master.accept().unwrap().0.read_exact(&mut byte).unwrap();
    // Source: RFC 8446 5.1 (the type of a record is handshake)
    word(byte == [22], ["handshake", "request"])
}

fn write(server: &Server) -> String {
    server.ask(&["SET", "k", "v"]).split(' ').next().unwrap_or_default().to_owned()
}

fn role_in_group(server: &Server) -> String {
    let info = server.ask(&["INFO", "hub"]);
    let role = info.lines().find_map(|line| line.strip_prefix("hub_role:"));
    role.unwrap_or_default().to_owned()
}

fn priority(server: &Server) -> String {
    server.counter("slave_priority").to_string()
}
