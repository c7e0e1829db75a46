//! Metrics of the traffic: reactors, connections, commands, stages.

use base::stages::{Stage, StageCell};

use super::page::{Kind, Page};
use super::{number, seconds};
use crate::engine::baseline::Counters;
use crate::engine::published::CommandCounts;
use crate::engine::server_state::ServerState;
use crate::protocol::ClientProtocol;
use crate::tls::ListenerTls;

/// Upper bounds of the stage buckets, in nanoseconds.
const STAGE_BOUNDS_NS: [u64; 16] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    100_000,
    250_000,
    1_000_000,
    2_500_000,
    10_000_000,
    25_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// A reactor metric: name, kind, help, value.
type Row = (&'static str, Kind, &'static str, fn(&Counters) -> f64);

const ROWS: &[Row] = &[
    (
        "myriad_reactor_busy_seconds_total",
        Kind::Counter,
        "Time not spent waiting for events.",
        |c| seconds(c.busy_ns),
    ),
    ("myriad_reactor_cpu_seconds_total", Kind::Counter, "CPU time.", |c| seconds(c.cpu_ns)),
    ("myriad_reactor_wait_seconds_total", Kind::Counter, "Time spent waiting for events.", |c| {
        seconds(c.wait_ns)
    }),
    ("myriad_reactor_write_seconds_total", Kind::Counter, "Time spent in write calls.", |c| {
        seconds(c.write_ns)
    }),
    ("myriad_reactor_turns_total", Kind::Counter, "Turns, each with one wait call.", |c| {
        number(c.turns)
    }),
    ("myriad_reactor_interest_changes_total", Kind::Counter, "Calls to epoll_ctl.", |c| {
        number(c.interest_changes)
    }),
    ("myriad_reactor_wakes_total", Kind::Counter, "Wakeups by other threads.", |c| number(c.wakes)),
    ("myriad_reactor_reads_total", Kind::Counter, "Read calls on sockets.", |c| number(c.reads)),
    ("myriad_reactor_input_bytes_total", Kind::Counter, "Bytes received.", |c| {
        number(c.input_bytes)
    }),
    ("myriad_reactor_writes_total", Kind::Counter, "Write calls on sockets.", |c| number(c.writes)),
    ("myriad_reactor_output_bytes_total", Kind::Counter, "Bytes sent.", |c| number(c.output_bytes)),
    ("myriad_reactor_connections", Kind::Gauge, "Open connections.", |c| number(c.connections)),
    ("myriad_reactor_accepted_total", Kind::Counter, "New connections.", |c| number(c.accepted)),
    (
        "myriad_reactor_migrated_in_total",
        Kind::Counter,
        "Connections moved here from other reactors.",
        |c| number(c.migrated_in),
    ),
    (
        "myriad_reactor_migrated_out_total",
        Kind::Counter,
        "Connections moved to other reactors.",
        |c| number(c.migrated_out),
    ),
    ("myriad_reactor_held_bytes", Kind::Gauge, "Bytes of replies that wait for the log.", |c| {
        number(c.held_bytes)
    }),
    (
        "myriad_reactor_stalls_total",
        Kind::Counter,
        "Times reading paused because of held replies.",
        |c| number(c.stalls),
    ),
    (
        "myriad_reactor_input_overflows_total",
        Kind::Counter,
        "Connections closed because a request was too long.",
        |c| number(c.input_overflows),
    ),
    (
        "myriad_reactor_output_overflows_total",
        Kind::Counter,
        "Connections closed because the peer did not read replies.",
        |c| number(c.output_overflows),
    ),
    (
        "myriad_reactor_idle_timeouts_total",
        Kind::Counter,
        "Connections closed by the idle timeout.",
        |c| number(c.idle_timeouts),
    ),
    ("myriad_reactor_tls_handshakes_total", Kind::Counter, "Completed TLS handshakes.", |c| {
        number(c.tls_handshakes)
    }),
    (
        "myriad_reactor_tls_failures_total",
        Kind::Counter,
        "Connections closed because of a TLS protocol error or a refused certificate.",
        |c| number(c.tls_failures),
    ),
    ("myriad_reactor_tls_timeouts_total", Kind::Counter, "TLS handshakes that timed out.", |c| {
        number(c.tls_timeouts)
    }),
    (
        "myriad_reactor_tls_crowded_out_total",
        Kind::Counter,
        "TLS handshakes closed because there were too many.",
        |c| number(c.tls_crowded_out),
    ),
    (
        "myriad_reactor_tls_deferred_total",
        Kind::Counter,
        "Reads of TLS handshakes left to a later turn because there were many.",
        |c| number(c.tls_deferred),
    ),
    (
        "myriad_reactor_tls_truncated_total",
        Kind::Counter,
        "TLS connections that ended without close_notify.",
        |c| number(c.tls_truncated),
    ),
];

pub(super) fn reactors(page: &mut Page<'_>, shared: &ServerState) {
    let links = shared.links();
    let all: Vec<_> = (0..links.reactors())
        .map(|index| (shared.reactors.name(index), links.stats(index)))
        .collect();
    for (name, kind, help, value) in ROWS {
        page.family(name, *kind, help);
        for (reactor, counters) in &all {
            page.sample(&[("reactor", reactor)], value(counters));
        }
    }
    let help = "Fraction of about the last half second spent busy, 0 to 1.";
    page.family("myriad_reactor_load_ratio", Kind::Gauge, help);
    for (index, (reactor, _)) in all.iter().enumerate() {
        page.sample(&[("reactor", reactor)], f64::from(links.load_ppm(index)) / 1e6);
    }
    let help = "Times a reactor did not return to its loop within stall-threshold-ms.";
    page.one("myriad_stalls_total", Kind::Counter, help, shared.stalls.count());
    let help = "The longest of these times.";
    let longest = seconds(shared.stalls.longest_ms().saturating_mul(1_000_000));
    page.one("myriad_longest_stall_seconds", Kind::Gauge, help, longest);
    page.family("myriad_reactor_commands_total", Kind::Counter, "Commands executed.");
    for ((reactor, _), published) in all.iter().zip(&shared.published) {
        page.sample(&[("reactor", reactor)], published.lock().totals.commands);
    }
}

pub(super) fn connections(page: &mut Page<'_>, shared: &ServerState) {
    let mut counts = [0_u64; ClientProtocol::ALL.len()];
    for published in &shared.published {
        for row in published.lock().clients.values() {
            counts[row.protocol as usize] += 1;
        }
    }
    page.family("myriad_clients", Kind::Gauge, "Open connections by protocol.");
    for (protocol, count) in ClientProtocol::ALL.iter().zip(counts) {
        page.sample(&[("protocol", protocol.name())], count);
    }
    let help = "Clients that may be connected at once: maxclients.";
    page.one("myriad_clients_max", Kind::Gauge, help, shared.settings.load().maxclients);
    let acceptor = shared.links().acceptor_stats().read();
    let help = "Accepted connections.";
    page.one("myriad_connections_accepted_total", Kind::Counter, help, acceptor.accepted);
    let help = "Refused connections, by reason.";
    page.family("myriad_connections_refused_total", Kind::Counter, help);
    for (reason, count) in [
        ("maxclients", acceptor.refused_over_limit),
        ("descriptors", acceptor.refused_no_descriptor),
    ] {
        page.sample(&[("reason", reason)], count);
    }
    let help = "Failed accept calls.";
    page.one("myriad_accept_errors_total", Kind::Counter, help, acceptor.errors);
    if let Some(expiry_unix_s) = shared.tls.get().and_then(ListenerTls::expiry_unix_s) {
        let help = "When the first certificate in tls-cert-file expires, since the Unix epoch.";
        let name = "myriad_tls_certificate_expiry_timestamp_seconds";
        page.one(name, Kind::Gauge, help, expiry_unix_s);
    }
}

/// A command metric: name, help, value.
type CommandRow = (&'static str, &'static str, fn(&CommandCounts) -> f64);

const COMMAND_ROWS: &[CommandRow] = &[
    ("myriad_commands_total", "Commands and requests executed, by name.", |c| number(c.calls)),
    ("myriad_command_seconds_total", "Execution time of commands and requests.", |c| seconds(c.ns)),
    ("myriad_commands_rejected_total", "Commands and requests refused before execution.", |c| {
        number(c.rejected)
    }),
    ("myriad_commands_failed_total", "Commands and requests that returned an error.", |c| {
        number(c.failed)
    }),
];

pub(super) fn commands(page: &mut Page<'_>, shared: &ServerState) {
    let mut errors = std::collections::BTreeMap::<String, u64>::new();
    for published in &shared.published {
        for (kind, count) in &published.lock().errors {
            *errors.entry(kind.clone()).or_default() += count;
        }
    }
    let counts = shared.request_counts().into_iter().enumerate();
    let seen: Vec<(&str, CommandCounts)> = counts
        .filter(|(_, sum)| sum.calls + sum.rejected + sum.failed > 0)
        .map(|(id, sum)| (shared.request_kinds.name(id), sum))
        .collect();
    for (name, help, value) in COMMAND_ROWS {
        page.family(name, Kind::Counter, help);
        for (command, counts) in &seen {
            page.sample(&[("command", command)], value(counts));
        }
    }
    page.family("myriad_errors_total", Kind::Counter, "Error replies, by first word.");
    for (kind, count) in &errors {
        page.sample(&[("kind", kind)], count);
    }
}

/// Writes the stages of all commands together: one series per command would make thousands.
pub(super) fn stages(page: &mut Page<'_>, shared: &ServerState) {
    let timers = shared.stage_timers();
    let help = "Time of commands by stage: parse, execute, wait for the log, write.";
    page.family("myriad_stage_seconds", Kind::Histogram, help);
    for stage in Stage::ALL {
        let cells: Vec<&StageCell> =
            timers.cells().filter(|(_, of, _)| *of == stage).map(|(_, _, cell)| cell).collect();
        let (mut count, mut sum_ns) = (0, 0_u64);
        for summary in cells.iter().map(|cell| cell.summary()) {
            count += summary.count;
            sum_ns = sum_ns.saturating_add(summary.sum_ns);
        }
        let below = |bound: u64| cells.iter().map(|cell| cell.count_up_to(bound)).sum();
        let buckets = STAGE_BOUNDS_NS.iter().map(|bound| (seconds(*bound), below(*bound)));
        page.histogram(&[("stage", stage.name())], buckets, count, seconds(sum_ns));
    }
}
