//! ACL LOG: requests and logins that were refused.

use std::collections::VecDeque;

use base::time::UnixMs;

/// Refusals of the same kind within this time count as one entry.
// Source: Redis 7.2 `acl.c`, `ACL_LOG_GROUPING_MAX_TIME_DELTA`
const GROUPING_MS: u64 = 60_000;

/// Newest entries that are compared with a refusal.
const COMPARED_ENTRIES: usize = 10;

/// Bytes of a key, a channel or a user name that an entry keeps.
const NAME_BYTES_MAX: usize = 1_024;

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    Login,
}

impl Reason {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Login => "auth",
        }
    }
}

/// Where the command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Request,
    Transaction,
    Script,
}

impl Place {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Place::Request => "toplevel",
            Place::Transaction => "multi",
            Place::Script => "lua",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LogEntry {
    pub(crate) number: u64,
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    pub(crate) place: Place,
    /// The command, key or channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// The line of CLIENT INFO at the newest refusal.
    pub(crate) client: String,
    pub(crate) created: UnixMs,
    pub(crate) updated: UnixMs,
}

/// A refusal to be logged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused<'a> {
    pub(crate) reason: Reason,
    pub(crate) place: Place,
    pub(crate) object: &'a [u8],
    pub(crate) user: &'a [u8],
}

/// Newest entries first.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    entries: VecDeque<LogEntry>,
    next_number: u64,
    counts: RefusalCounts,
}

/// Refusals since the start of the server, for INFO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RefusalCounts {
    pub(crate) logins: u64,
    pub(crate) commands: u64,
    pub(crate) keys: u64,
    pub(crate) channels: u64,
}

impl RefusalLog {
    /// Records a refusal in the entry of earlier ones like it, or in a new entry.
    // Source: Redis 7.2 `acl.c`, `addACLLogEntry`
    pub(crate) fn push(
        &mut self,
        refused: Refused<'_>,
        client: String,
        now: UnixMs,
        entries_max: usize,
    ) {
        *match refused.reason {
            Reason::Login => &mut self.counts.logins,
            Reason::Command => &mut self.counts.commands,
            Reason::Key => &mut self.counts.keys,
            Reason::Channel => &mut self.counts.channels,
        } += 1;
        let cut = |name: &[u8]| name[..name.len().min(NAME_BYTES_MAX)].to_vec();
        let (object, user) = (cut(refused.object), cut(refused.user));
        let is_alike = |entry: &LogEntry| {
            entry.reason == refused.reason
                && entry.place == refused.place
                && now.0.abs_diff(entry.updated.0) <= GROUPING_MS
                && entry.object == object
                && entry.user == user
        };
        let known = self.entries.iter().take(COMPARED_ENTRIES).position(is_alike);
        if let Some(mut entry) = known.and_then(|at| self.entries.remove(at)) {
            entry.count += 1;
            entry.client = client;
            entry.updated = now;
            return self.entries.push_front(entry);
        }
        self.entries.push_front(LogEntry {
            number: self.next_number,
            count: 1,
            reason: refused.reason,
            place: refused.place,
            object,
            user,
            client,
            created: now,
            updated: now,
        });
        self.next_number += 1;
        self.entries.truncate(entries_max);
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &LogEntry> {
        self.entries.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn counts(&self) -> RefusalCounts {
        self.counts
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset_counts(&mut self) {
        self.counts = RefusalCounts::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(log: &mut RefusalLog, reason: Reason, object: &str, ms: u64) {
        let refused =
            Refused { reason, place: Place::Request, object: object.as_bytes(), user: b"app" };
        log.push(refused, format!("client at {ms}"), UnixMs(ms), 3);
    }

    fn shown(log: &RefusalLog) -> Vec<(u64, u64, String)> {
        let text = |entry: &LogEntry| String::from_utf8_lossy(&entry.object).into_owned();
        log.iter().map(|entry| (entry.number, entry.count, text(entry))).collect()
    }

    #[test]
    fn refusals_of_one_kind_are_one_entry_for_a_minute() {
        let mut log = RefusalLog::default();
        push(&mut log, Reason::Key, "a", 0);
        push(&mut log, Reason::Key, "b", 10);
        push(&mut log, Reason::Key, "a", 60_000);
        assert_eq!(shown(&log), [(0, 2, "a".to_owned()), (1, 1, "b".to_owned())]);
        let first = log.iter().next().unwrap();
        assert_eq!((first.created, first.updated), (UnixMs(0), UnixMs(60_000)));
        assert_eq!(first.client, "client at 60000");
        push(&mut log, Reason::Key, "b", 60_011);
        push(&mut log, Reason::Channel, "a", 60_012);
        let counts: Vec<(u64, u64)> = log.iter().map(|one| (one.number, one.count)).collect();
        assert_eq!(counts, [(3, 1), (2, 1), (0, 2)]);
    }

    #[test]
    fn entries_are_bounded_in_number_and_length() {
        let mut log = RefusalLog::default();
        for index in 0..100 {
            push(&mut log, Reason::Login, &format!("{index}{}", "x".repeat(5_000)), index);
        }
        assert_eq!(log.iter().len(), 3);
        assert!(log.iter().all(|entry| entry.object.len() == NAME_BYTES_MAX));
        assert_eq!(log.counts(), RefusalCounts { logins: 100, ..RefusalCounts::default() });
        log.clear();
        assert_eq!(log.iter().len(), 0);
        push(&mut log, Reason::Login, "a", 0);
        assert_eq!(log.iter().next().map(|entry| entry.number), Some(100));
    }
}
