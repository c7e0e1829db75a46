//! MEMORY: memory usage by purpose, and its diagnosis.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use std::fmt::Write as _;

use base::memory::TrackerState;
use base::units::human_bytes;
use store::{DATABASES, DbStats};
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::help;
use super::info::{data_stats, ratio};
use crate::engine::process::ProcessMemory;

pub(crate) const MEMORY: Command = Command {
    name: "memory",
    syntax: "subcommand",
    summary: "A container for commands about memory.",
    since: "4.0.0",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&DOCTOR, &HELP, &MALLOC_STATS, &PURGE, &STATS, &USAGE],
    ..Command::EMPTY
};

/// Used memory, which counts toward `maxmemory`, starts at zero: the program and its stacks are in
/// `mem_untracked`.
pub(crate) const STARTUP_BYTES: u64 = 0;

/// Memory usage by purpose.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryReport {
    /// Memory that counts toward the limits: data, connections, buffers.
    pub(crate) used_bytes: u64,
    pub(crate) peak_bytes: u64,
    /// Keys and values, without their tables.
    pub(crate) dataset_bytes: u64,
    pub(crate) keys: u64,
    /// Connections and their buffers.
    pub(crate) clients_bytes: u64,
    /// Log records that are not written yet.
    pub(crate) log_bytes: u64,
    /// Other memory of the process, without freed memory.
    pub(crate) untracked_bytes: u64,
    /// Resident memory of the process, if the kernel reports it.
    pub(crate) resident_bytes: Option<u64>,
}

impl MemoryReport {
    pub(crate) fn of(
        cx: &CommandContext<'_>,
        data: &([DbStats; DATABASES], usize),
    ) -> MemoryReport {
        let (dbs, store_bytes) = data;
        let trackers = &cx.shared.memory;
        let index_bytes: u64 = dbs.iter().map(index_bytes).sum();
        let buffers = [&trackers.clients, &trackers.read_buffer.all, &trackers.output.all];
        // Reactors report changes to the trackers later than to the store.
        let (all, store) = (trackers.server.current_bytes(), trackers.store.current_bytes());
        let used_bytes = all.saturating_sub(store) + *store_bytes as u64;
        MemoryReport {
            used_bytes,
            peak_bytes: trackers.server.peak_bytes().max(used_bytes),
            dataset_bytes: (*store_bytes as u64).saturating_sub(index_bytes),
            keys: dbs.iter().map(|db| db.keys).sum(),
            clients_bytes: buffers.iter().map(|tracker| tracker.current_bytes()).sum(),
            log_bytes: cx.shared.log.stats().waiting_bytes,
            untracked_bytes: trackers.server.reserved_bytes(),
            resident_bytes: ProcessMemory::read().resident_bytes(),
        }
    }

    /// Used memory other than keys and values.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.dataset_bytes)
    }

    /// Resident memory beyond the used memory: freed memory that the allocator keeps.
    pub(crate) fn kept_bytes(&self) -> i64 {
        let used_bytes = self.used_bytes + self.untracked_bytes;
        self.resident_bytes.unwrap_or(0).cast_signed() - used_bytes.cast_signed()
    }

    /// Used memory within the allocator's pages.
    pub(crate) fn allocated_bytes(&self, allocator_bytes: u64) -> u64 {
        allocator_bytes.saturating_sub(self.kept_bytes().max(0).cast_unsigned())
    }

    /// Ratio of resident to used memory.
    pub(crate) fn fragmentation(&self) -> f64 {
        ratio(self.resident_bytes.unwrap_or(0), self.used_bytes + self.untracked_bytes)
    }
}

/// Bytes of the tables and queues of one database.
fn index_bytes(db: &DbStats) -> u64 {
    db.table_bytes + db.expiry_bytes
}

const DOCTOR: Command = Command {
    name: "doctor",
    summary: "Reports problems with memory usage.",
    since: "4.0.0",
    group: Group::Server,
    arity: 2,
    flags: Flags::LOCKS_STRIPES,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: doctor,
    ..Command::EMPTY
};

fn doctor(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let report = MemoryReport::of(cx, &data_stats(cx));
    let clients = cx.shared.links().connections() as u64;
    let text = diagnose(&report, clients, &cx.shared.memory.server.tree());
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The thresholds are those of Redis 7.2, `object.c`, `getMemoryDoctorReport`.
fn diagnose(report: &MemoryReport, clients: u64, trackers: &[TrackerState]) -> String {
    const USED_BYTES_MIN: u64 = 5 << 20;
    const EXCESS_BYTES_MIN: i64 = 10 << 20;
    const CLIENT_BYTES_MAX: u64 = 200 << 10;
    let mut text = String::new();
    let used = report.used_bytes;
    if used < USED_BYTES_MIN {
        let used = human_bytes(used);
        return format!("Only {used} are in use: too little for a diagnosis.\n");
    }
    // Writing to a String cannot fail, hence `let _`.
    if ratio(report.peak_bytes, used) > 1.5 {
        let peak = human_bytes(report.peak_bytes);
        let _ = writeln!(
            text,
            "Peak: {peak} were in use once, much more than now. Freed memory may stay with \
             the process for a while."
        );
    }
    let resident = report.resident_bytes.unwrap_or(0);
    if report.fragmentation() > 1.4 && report.kept_bytes() > EXCESS_BYTES_MIN {
        let resident = human_bytes(resident);
        let _ = writeln!(
            text,
            "Fragmentation: the process has {resident} of resident memory, but only {} are in use. \
             After many deletions that is normal, and new data fills the gaps.",
            human_bytes(used)
        );
    }
    if report.clients_bytes.checked_div(clients).unwrap_or(0) > CLIENT_BYTES_MAX {
        let _ = writeln!(
            text,
            "Clients: {} for {clients} connections. CLIENT LIST shows clients that do not read their replies.",
            human_bytes(report.clients_bytes)
        );
    }
    for state in trackers {
        if state.soft_limit_bytes.is_some_and(|soft_bytes| state.current_bytes > soft_bytes) {
            let limit = human_bytes(state.limit_bytes.unwrap_or(0));
            let current = human_bytes(state.current_bytes);
            let _ = writeln!(text, "Limit: {} uses {current} of its {limit}.", state.path);
        }
    }
    if text.is_empty() {
        text.push_str("No problem found with memory usage.\n");
    }
    text
}

const HELP: Command =
    help::subcommand("Lists the subcommands of MEMORY.", "4.0.0", Group::Server, |cx, _| {
        help::reply(cx, &MEMORY)
    });

const MALLOC_STATS: Command = Command {
    name: "malloc-stats",
    summary: "Returns the kernel's view of the process memory, and the memory of each tracker.",
    since: "4.0.0",
    group: Group::Server,
    arity: 2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: malloc_stats,
    ..Command::EMPTY
};

fn malloc_stats(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let mut text = String::new();
    // Writing to a `String` cannot fail, hence `let _`.
    for (name, bytes) in ProcessMemory::read().iter() {
        let _ = writeln!(text, "{name}: {bytes} ({})", human_bytes(bytes));
    }
    for state in cx.shared.memory.server.tree() {
        let (current, peak) = (state.current_bytes, state.peak_bytes);
        let _ = writeln!(text, "{}: {current} ({}), peak {peak}", state.path, human_bytes(current));
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The allocator returns free pages automatically within milliseconds.
const PURGE: Command = Command {
    name: "purge",
    summary: "Does nothing: the allocator returns unused memory automatically.",
    since: "4.0.0",
    group: Group::Server,
    arity: 2,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    run: purge,
    ..Command::EMPTY
};

fn purge(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    cx.reply.ok();
    Ok(())
}

const STATS: Command = Command {
    name: "stats",
    summary: "Returns memory usage by purpose.",
    since: "4.0.0",
    complexity: "O(S) in the number of stripes, a constant",
    group: Group::Server,
    arity: 2,
    flags: Flags::LOCKS_STRIPES,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: stats,
    ..Command::EMPTY
};

/// Ratio and difference of memory between two levels.
pub(crate) struct Share {
    pub(crate) ratio: f64,
    pub(crate) bytes: i64,
}

/// Shares of the allocator's pages to used memory, of resident to all of them, and of the process
/// to the allocator. Pages that the allocator has returned no longer count as its own, so all of
/// its pages are resident.
pub(crate) fn allocator_shares(allocated: u64, allocator: u64, resident: u64) -> [Share; 3] {
    let share = |above: u64, below: u64| Share {
        ratio: ratio(above, below),
        bytes: above.cast_signed() - below.cast_signed(),
    };
    [share(allocator, allocated), share(allocator, allocator), share(resident, allocator)]
}

enum Number {
    Integer(u64),
    Signed(i64),
    Double(f64),
}

impl Number {
    fn write(self, reply: &mut ReplyWriter<'_>) {
        match self {
            Number::Integer(value) => reply.integer(value.cast_signed()),
            Number::Signed(value) => reply.integer(value),
            Number::Double(value) => reply.double(value),
        }
    }
}

type Numbers = Vec<(&'static str, Number)>;

impl MemoryReport {
    /// The numbers of MEMORY STATS. `data_bytes`: all data, with its tables.
    fn numbers(&self, data_bytes: u64) -> Numbers {
        use Number::{Double, Integer};
        let (used, keys) = (self.used_bytes, self.keys);
        vec![
            ("peak.allocated", Integer(self.peak_bytes)),
            ("total.allocated", Integer(used)),
            ("startup.allocated", Integer(STARTUP_BYTES)),
            // Features that do not exist here.
            ("replication.backlog", Integer(0)),
            ("clients.slaves", Integer(0)),
            ("cluster.links", Integer(0)),
            ("lua.caches", Integer(0)),
            ("functions.caches", Integer(0)),
            ("clients.normal", Integer(self.clients_bytes)),
            ("aof.buffer", Integer(self.log_bytes)),
            ("overhead.total", Integer(self.overhead_bytes())),
            ("keys.count", Integer(keys)),
            ("keys.bytes-per-key", Integer(data_bytes.checked_div(keys).unwrap_or(0))),
            ("dataset.bytes", Integer(self.dataset_bytes)),
            ("dataset.percentage", Double(100.0 * ratio(self.dataset_bytes, used))),
            ("peak.percentage", Double(100.0 * ratio(used, self.peak_bytes))),
        ]
    }

    /// Numbers about the allocator and the process; none if the kernel does not report them.
    fn allocator_numbers(&self) -> Numbers {
        use Number::{Double, Integer, Signed};
        let allocator = ProcessMemory::read().anonymous_bytes();
        let Some((allocator, resident)) = allocator.zip(self.resident_bytes) else {
            return Vec::new();
        };
        let allocated = self.allocated_bytes(allocator);
        let [fragmentation, own, process] = allocator_shares(allocated, allocator, resident);
        vec![
            ("allocator.allocated", Integer(allocated)),
            ("allocator.active", Integer(allocator)),
            ("allocator.resident", Integer(allocator)),
            ("allocator-fragmentation.ratio", Double(fragmentation.ratio)),
            ("allocator-fragmentation.bytes", Signed(fragmentation.bytes)),
            ("allocator-rss.ratio", Double(own.ratio)),
            ("allocator-rss.bytes", Signed(own.bytes)),
            ("rss-overhead.ratio", Double(process.ratio)),
            ("rss-overhead.bytes", Signed(process.bytes)),
            ("fragmentation", Double(self.fragmentation())),
            ("fragmentation.bytes", Signed(self.kept_bytes())),
        ]
    }
}

fn stats(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let data = data_stats(cx);
    let report = MemoryReport::of(cx, &data);
    let mut numbers = report.numbers(data.1 as u64);
    numbers.extend(report.allocator_numbers());
    let dbs: Vec<(usize, &DbStats)> =
        data.0.iter().enumerate().filter(|(_, db)| db.keys > 0).collect();
    let trackers = cx.shared.memory.server.tree();
    cx.reply.map(numbers.len() + dbs.len() + trackers.len());
    for (name, number) in numbers {
        cx.reply.bulk(name.as_bytes());
        number.write(&mut cx.reply);
    }
    for (number, db) in dbs {
        cx.reply.bulk(format!("db.{number}").as_bytes());
        let (table, expiries) = (db.table_bytes, db.expiry_bytes);
        write_map(
            cx,
            &[("overhead.hashtable.main", table), ("overhead.hashtable.expires", expiries)],
        );
    }
    for TrackerState { path, current_bytes, peak_bytes, limit_bytes, .. } in trackers {
        cx.reply.bulk(format!("tracker.{path}").as_bytes());
        let limit_bytes = limit_bytes.unwrap_or(0);
        write_map(cx, &[("current", current_bytes), ("peak", peak_bytes), ("limit", limit_bytes)]);
    }
    Ok(())
}

fn write_map(cx: &mut CommandContext<'_>, fields: &[(&str, u64)]) {
    cx.reply.map(fields.len());
    for (name, bytes) in fields {
        cx.reply.bulk(name.as_bytes());
        cx.reply.integer(bytes.cast_signed());
    }
}

const USAGE: Command = Command {
    name: "usage",
    syntax: "key [SAMPLES count]",
    summary: "Returns the memory of a key and its value in bytes; SAMPLES has no effect.",
    since: "4.0.0",
    group: Group::Server,
    arity: -3,
    flags: Flags::READONLY.and(Flags::NO_MISSES),
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Probe)],
    run: usage,
    ..Command::EMPTY
};

/// `SAMPLES` is only validated: the store knows the size of every value.
fn usage(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mut options = args.skip(3).iter();
    while let Some(option) = options.next() {
        let count = options.next().filter(|_| is_option(option, "SAMPLES")).ok_or(Fail::Syntax)?;
        if integer(count)? < 0 {
            return Err(Fail::Syntax);
        }
    }
    match cx.locked.memory_bytes(cx.db, cx.key(args.get(2))) {
        Some(bytes) => cx.reply.count(bytes),
        None => cx.reply.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::memory::Tracker;
    use base::units::Limit;

    const MIB: u64 = 1 << 20;

    fn doctor_text(report: MemoryReport) -> String {
        diagnose(&report, 10, &[])
    }

    #[test]
    fn the_doctor_names_what_is_wrong() {
        let well = MemoryReport {
            used_bytes: 100 * MIB,
            peak_bytes: 101 * MIB,
            resident_bytes: Some(120 * MIB),
            ..MemoryReport::default()
        };
        assert!(doctor_text(well).starts_with("No problem"));
        assert!(doctor_text(MemoryReport { used_bytes: MIB, ..well }).contains("1.00M are in use"));
        assert!(
            doctor_text(MemoryReport { peak_bytes: 200 * MIB, ..well })
                .starts_with("Peak: 200.00M")
        );
        let fragmented = MemoryReport { resident_bytes: Some(150 * MIB), ..well };
        assert!(doctor_text(fragmented).starts_with("Fragmentation: the process has 150.00M"));
        assert!(
            doctor_text(MemoryReport { resident_bytes: None, ..well }).starts_with("No problem")
        );
        assert!(
            doctor_text(MemoryReport { clients_bytes: 3 * MIB, ..well })
                .starts_with("Clients: 3.00M")
        );
        let tracker = Tracker::root("server", Limit::Bytes(100), None);
        tracker.consume(90);
        let full = diagnose(&well, 0, &tracker.tree());
        assert_eq!(full, "Limit: server uses 90B of its 100B.\n");
    }
}
