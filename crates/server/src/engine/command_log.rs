//! SLOWLOG and COMMANDLOG: the latest commands with a long execution time, a large request or a
//! large reply.

use std::collections::VecDeque;

use base::time::UnixMs;
use parking_lot::{Mutex, MutexGuard};

use crate::config::Settings;
use crate::engine::client_address::ClientAddress;
use crate::engine::secret::Shown;

/// Maximum arguments, and bytes of each, that an entry keeps.
/// Source: Redis 7.2 `slowlog.h`, `SLOWLOG_ENTRY_MAX_ARGC` and `SLOWLOG_ENTRY_MAX_STRING`.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// Why a command is recorded.
// Source: Valkey 8.1 `commandlog.c`, `commandlogGetTypeOrReply`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    Slow,
    LargeRequest,
    LargeReply,
}

impl LogKind {
    pub(crate) const ALL: [LogKind; 3] =
        [LogKind::Slow, LogKind::LargeRequest, LogKind::LargeReply];

    /// The name in COMMANDLOG.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LogKind::Slow => "slow",
            LogKind::LargeRequest => "large-request",
            LogKind::LargeReply => "large-reply",
        }
    }

    pub(crate) fn entries_max(self, settings: &Settings) -> usize {
        match self {
            LogKind::Slow => settings.slowlog_max_len,
            LogKind::LargeRequest => settings.commandlog_large_request_max_len,
            LogKind::LargeReply => settings.commandlog_large_reply_max_len,
        }
    }
}

/// What a command took: the values that are compared with the thresholds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) ns: u64,
    pub(crate) request_bytes: u64,
    pub(crate) reply_bytes: u64,
}

impl Taken {
    /// The value that an entry shows: microseconds or bytes.
    pub(crate) fn shown(self, kind: LogKind) -> u64 {
        match kind {
            LogKind::Slow => self.ns / 1000,
            LogKind::LargeRequest => self.request_bytes,
            LogKind::LargeReply => self.reply_bytes,
        }
    }
}

/// Values from which a command is recorded; `u64::MAX` is never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thresholds {
    slow_ns: u64,
    request_bytes: u64,
    reply_bytes: u64,
}

impl Thresholds {
    pub(crate) const NEVER: Thresholds =
        Thresholds { slow_ns: u64::MAX, request_bytes: u64::MAX, reply_bytes: u64::MAX };

    /// Negative numbers of the options are never.
    pub(crate) fn of(settings: &Settings) -> Thresholds {
        let bound = |value: i64, unit: u64| {
            u64::try_from(value).map_or(u64::MAX, |value| value.saturating_mul(unit))
        };
        Thresholds {
            slow_ns: bound(settings.slowlog_log_slower_than_us, 1000),
            request_bytes: bound(settings.commandlog_request_larger_than_bytes, 1),
            reply_bytes: bound(settings.commandlog_reply_larger_than_bytes, 1),
        }
    }

    /// These thresholds, and another execution time.
    pub(crate) fn or_slower_than(self, ns: u64) -> Thresholds {
        Thresholds { slow_ns: self.slow_ns.min(ns), ..self }
    }

    /// Whether a command is recorded for any reason.
    #[inline]
    pub(crate) fn are_reached(&self, taken: Taken) -> bool {
        taken.ns >= self.slow_ns
            || taken.request_bytes >= self.request_bytes
            || taken.reply_bytes >= self.reply_bytes
    }

    fn is_reached(&self, kind: LogKind, taken: Taken) -> bool {
        match kind {
            LogKind::Slow => taken.ns >= self.slow_ns,
            LogKind::LargeRequest => taken.request_bytes >= self.request_bytes,
            LogKind::LargeReply => taken.reply_bytes >= self.reply_bytes,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LoggedCommand {
    pub(crate) id: u64,
    pub(crate) at: UnixMs,
    /// Microseconds or bytes: see [`Taken::shown`].
    pub(crate) value: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) client_name: String,
}

/// The latest commands that were recorded for one reason.
#[derive(Debug, Default)]
pub(crate) struct CommandLog {
    entries: VecDeque<LoggedCommand>,
    next_id: u64,
}

impl CommandLog {
    pub(crate) fn push(
        &mut self,
        (peer, client_name): (String, &str),
        at: UnixMs,
        value: u64,
        request: Shown<'_>,
        entries_max: usize,
    ) {
        if entries_max > 0 {
            self.entries.push_front(LoggedCommand {
                id: self.next_id,
                at,
                value,
                args: shortened(request),
                peer,
                client_name: client_name.to_owned(),
            });
            self.next_id += 1;
        }
        self.entries.truncate(entries_max);
    }

    /// Iterates over the entries, newest first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &LoggedCommand> {
        self.entries.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// The logs of a server, one for each [`LogKind`].
#[derive(Debug, Default)]
pub(crate) struct CommandLogs([Mutex<CommandLog>; LogKind::ALL.len()]);

impl CommandLogs {
    pub(crate) fn lock(&self, kind: LogKind) -> MutexGuard<'_, CommandLog> {
        self.0[kind as usize].lock()
    }

    /// Records a command in each log whose threshold it reached.
    #[cold]
    pub(crate) fn note(
        &self,
        settings: &Settings,
        (client, name): (ClientAddress, &str),
        at: UnixMs,
        taken: Taken,
        request: Shown<'_>,
    ) {
        let thresholds = Thresholds::of(settings);
        for kind in LogKind::ALL.into_iter().filter(|kind| thresholds.is_reached(*kind, taken)) {
            let entries_max = kind.entries_max(settings);
            let client = (client.text(settings).unwrap_or_default(), name);
            self.lock(kind).push(client, at, taken.shown(kind), request, entries_max);
        }
    }
}

fn shortened(request: Shown<'_>) -> Vec<Vec<u8>> {
    let kept = if request.len() > ARGS_MAX { ARGS_MAX - 1 } else { request.len() };
    let mut short: Vec<Vec<u8>> = (0..kept)
        .map(|at| {
            let arg = request.get(at);
            let mut text = arg[..arg.len().min(ARG_BYTES_MAX)].to_vec();
            if arg.len() > ARG_BYTES_MAX {
                let more = format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX);
                text.extend_from_slice(more.as_bytes());
            }
            text
        })
        .collect();
    if request.len() > kept {
        short.push(format!("... ({} more arguments)", request.len() - kept).into_bytes());
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    #[test]
    fn long_commands_are_shortened_as_redis_does() {
        let many: OwnedArgs = (0..40).map(|n| n.to_string().into_bytes()).collect();
        let short = shortened(Shown::whole(many.as_args()));
        assert_eq!(short.len(), 32);
        assert_eq!(short[31], b"... (9 more arguments)");
        let long: OwnedArgs = [vec![b'x'; 200]].into_iter().collect();
        let text =
            String::from_utf8(shortened(Shown::whole(long.as_args())).remove(0)).expect("ascii");
        assert!(text.ends_with("... (72 more bytes)"));
    }

    #[test]
    fn a_command_is_in_each_log_whose_threshold_it_reached() {
        let settings = Settings {
            slowlog_log_slower_than_us: 5,
            commandlog_request_larger_than_bytes: 100,
            commandlog_reply_larger_than_bytes: -1,
            commandlog_large_request_max_len: 1,
            ..Settings::default()
        };
        let (logs, thresholds) = (CommandLogs::default(), Thresholds::of(&settings));
        let request: OwnedArgs = [b"GET".to_vec()].into_iter().collect();
        let note = |ns, request_bytes| {
            let taken = Taken { ns, request_bytes, reply_bytes: u64::MAX - 1 };
            let request = Shown::whole(request.as_args());
            logs.note(&settings, (ClientAddress::Unknown, ""), UnixMs(0), taken, request);
            thresholds.are_reached(taken)
        };
        assert!(!note(4_999, 99));
        assert!(note(5_000, 99));
        assert!(note(7_000, 100));
        assert!(note(0, 101));
        let values = |kind| logs.lock(kind).iter().map(|entry| entry.value).collect::<Vec<_>>();
        assert_eq!(values(LogKind::Slow), [7, 5]);
        assert_eq!(values(LogKind::LargeRequest), [101]);
        assert_eq!(logs.lock(LogKind::LargeRequest).iter().next().map(|entry| entry.id), Some(1));
        assert_eq!(values(LogKind::LargeReply), [0; 0]);
    }
}
