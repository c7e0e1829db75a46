//! The table of options, and the help.

use options::Change::Start;
use options::{OptionSpec, OptionText, Section, Unit, field, number, option, texts, value, word};

use super::{Accept, Config, LogFormat, Mode, TIME_MS_MAX, WORKERS_MAX};

const NUMBER: Unit = Unit::Of("number");
const MS: Unit = Unit::Of("milliseconds");
/// A worker that computes for longer is indistinguishable from one that hangs.
#[cfg(feature = "experiments")]
const WORK_US_MAX: u64 = 1_000_000;

pub(super) static OPTIONS: &[Section<Config>] = &[
    Section { title: "Addresses and files", rows: SITE },
    Section { title: "Workers", rows: WORKERS },
    Section { title: "The upstream", rows: UPSTREAM },
    Section { title: "Limits", rows: LIMITS },
];

#[rustfmt::skip]
const SITE: &[OptionSpec<Config>] = &[
    option("listen", value!(Repeated, "HOST:PORT", listen), Start,
        "Host and port to listen on; repeatable; port 0 is any free one."),
    option("listen-tls", value!(Repeated, "HOST:PORT", listen_tls), Start,
        "The same for HTTPS; none by default."),
    option("status", value!(Text, "HOST:PORT", status), Start,
        "Host and port of the status page and /metrics; none by default."),
    option("https-redirect-port", number!(NUMBER, 0, u16::MAX, https_redirect_port), Start,
        "HTTPS port that plain HTTP is redirected to; 0: none."),
    option("tls-cert-file", value!(Text, "path", tls_cert_file), Start,
        "Certificates in PEM: the server's, then its issuers'."),
    option("tls-key-file", value!(Text, "path", tls_key_file), Start,
        "Key of the server's certificate in PEM, without a password."),
    option("root", value!(Text, "path", root), Start,
        "Directory whose files are served; none by default."),
    option("compress", field!(YesNo, compress), Start,
        "Compress files of up to 4 MiB for clients that accept it."),
    option("access-log", value!(Text, "path", access_log), Start,
        "File with a line per request; none by default."),
    option("access-log-format", word!(LogFormat, access_log_format), Start,
        "Lines of that file."),
];

#[rustfmt::skip]
const WORKERS: &[OptionSpec<Config>] = &[
    option("workers", number!(NUMBER, 1, WORKERS_MAX, workers), Start,
        "How many workers; by default one per core."),
    option("mode", word!(Mode, mode), Start,
        "What a worker is."),
    option("user", value!(Text, "name or number", user), Start,
        "User of the workers; the master stays root."),
    option("group", value!(Text, "name or number", group), Start,
        "Group of the workers; by default the user's."),
    option("worker-timeout-ms", number!(MS, 0, TIME_MS_MAX, worker_timeout_ms), Start,
        "Replace a worker process that hangs for longer; 0: never."),
    option("accept", word!(Accept, accept), Start,
        "How connections are distributed to workers, see below."),
    option("backlog", number!(NUMBER, 0, u32::MAX, backlog), Start,
        "Connections that wait to be accepted, per listening socket."),
    option("accept-max", number!(NUMBER, 1, 100_000, accept_max), Start,
        "Connections accepted in a row before others are served."),
    option("drain-timeout-ms", number!(MS, 1, TIME_MS_MAX, drain_timeout_ms), Start,
        "Time for requests in progress when a worker ends."),
    #[cfg(feature = "experiments")]
    option("work-us", number!(Unit::Of("microseconds"), 0, WORK_US_MAX, work_us), Start,
        "Processor time spent before each response, for benchmarks."),
];

#[rustfmt::skip]
const UPSTREAM: &[OptionSpec<Config>] = &[
    option("upstream", value!(Text, "HOST:PORT", upstream), Start,
        "Address that requests below /api/ are passed on to; none by default."),
    option("upstream-connections-max", number!(NUMBER, 1, 100_000, upstream_connections_max), Start,
        "Concurrent requests at the upstream, per worker; more wait."),
    option("upstream-idle-max", number!(NUMBER, 0, 100_000, upstream_idle_max), Start,
        "Idle connections to the upstream that are kept open, per worker."),
    option("upstream-queue-max", number!(NUMBER, 0, 1_000_000, upstream_queue_max), Start,
        "Requests that wait for the upstream, per worker; more: 503."),
    option("upstream-queue-timeout-ms", number!(MS, 1, TIME_MS_MAX, upstream_queue_timeout_ms), Start,
        "Longest wait for a connection to the upstream; longer: 503."),
    option("upstream-timeout-ms", number!(MS, 1, TIME_MS_MAX, upstream_timeout_ms), Start,
        "Silence of the upstream after which the request fails: 504."),
    option("upstream-compress", field!(YesNo, upstream_compress), Start,
        "Compress responses of the upstream for clients that accept it."),
    option("websockets-max", number!(NUMBER, 0, 1_000_000, websockets_max), Start,
        "WebSockets to the upstream, per worker; more: 503."),
    option("websocket-idle-timeout-ms", number!(MS, 1, TIME_MS_MAX, websocket_idle_timeout_ms), Start,
        "Silence on a WebSocket after which it is closed."),
];

#[rustfmt::skip]
const LIMITS: &[OptionSpec<Config>] = &[
    option("connections-max", number!(NUMBER, 1, 10_000_000, connections_max), Start,
        "Connections per worker; more wait to be accepted."),
    option("connections-per-address-max", number!(NUMBER, 0, i64::MAX, connections_per_address_max), Start,
        "Connections per worker and client address; 0: unlimited."),
    option("memory-max", number!(Unit::Bytes, 1 << 20, 1_i64 << 40, memory_max), Start,
        "Unfinished requests and unread responses, per worker; above: 503 or reset. The same for requests at the upstream."),
    option("head-bytes-max", number!(Unit::Bytes, 256, 1 << 20, head_bytes_max), Start,
        "Longest head of a request; longer: 431."),
    option("fields-max", number!(NUMBER, 1, wire::http::FIELDS_MAX, fields_max), Start,
        "Most header lines of a request; more: 431."),
    option("target-bytes-max", number!(Unit::Bytes, 16, 1 << 20, target_bytes_max), Start,
        "Longest target of a request; longer: 414."),
    option("body-bytes-max", number!(Unit::Bytes, 0, 1 << 30, body_bytes_max), Start,
        "Longest body of a request; longer: 413."),
    option("head-timeout-ms", number!(MS, 1, TIME_MS_MAX, head_timeout_ms), Start,
        "Time for a whole head from its first byte; later: 408."),
    option("body-rate-min", number!(Unit::Bytes, 1, TIME_MS_MAX, body_rate_min), Start,
        "Minimum bytes per second of a request body; slower: 408."),
    option("idle-timeout-ms", number!(MS, 1, TIME_MS_MAX, idle_timeout_ms), Start,
        "Time between two requests of a connection."),
    option("write-timeout-ms", number!(MS, 1, TIME_MS_MAX, write_timeout_ms), Start,
        "Period over which `write-rate-min` is enforced; slower clients are disconnected."),
    option("write-rate-min", number!(Unit::Bytes, 1, TIME_MS_MAX, write_rate_min), Start,
        "Minimum bytes per second at which a client must read a response."),
];

/// Returns the text of `myriad web --help`.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Usage: myriad web [--config FILE] [--NAME VALUE]... [--set NAME=VALUE]...\n\n\
         Serves files, /hello and an upstream over HTTP/1.1 and HTTPS with a group of workers.\n\n",
    );
    text += &options::help(OPTIONS);
    text.push('\n');
    text + &notes()
}

/// Returns the options of the command line.
pub fn option_texts() -> Vec<OptionText> {
    texts(OPTIONS)
}

/// Returns what the help has after the options.
pub fn notes() -> String {
    let mut text = String::from(
        "How connections are distributed to workers (--accept):\n\
         \x20 least-loaded  A socket per worker; new connections move to the least loaded worker\n\
         \x20 reuseport     A socket per worker; the kernel's hash decides, evenly or not\n\
         \x20 exclusive     One socket polled by all; the kernel mostly wakes the same worker\n\
         \x20 fdpass        The master accepts and distributes; it is the bottleneck\n",
    );
    if cfg!(feature = "experiments") {
        text.push_str(
            "\
         Historical designs, for comparison. Their faults are real; do not use them:\n\
         \x20 notify-lt     The master notifies workers in turn, repeatedly, while connections wait\n\
         \x20 notify-et     The master notifies once: connections above --accept-max wait for another one\n\
         \x20 serial        One worker, one connection at a time: a slow client blocks all others\n",
        );
    }
    text.push_str(
        "\n\
         Signals to the master: TERM and INT finish requests and exit; HUP re-reads the options, and\n\
         certificate and key, with new workers; USR1 reopens the access log; USR2 restarts the program on the same sockets.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_read_as_it_is_shown() {
        let mut config = Config::default();
        for row in options::rows(OPTIONS) {
            row.set(&mut config, &row.shown(&Config::default())).unwrap();
            assert_eq!(config, Config::default(), "{}", row.name);
        }
        assert!(help().contains("  --listen <HOST:PORT> [127.0.0.1:8080]\n"));
    }
}
