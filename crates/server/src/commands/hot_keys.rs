//! HOTKEYS: the keys whose commands take the most processor time, or the most bytes.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use base::time::MonoNs;
use wire::resp::{Args, ReplyWriter, parse_i64_strict};

use super::cluster::{SLOTS, number as slot_number, parse_slot, slot_of};
use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, is_option};
use super::fail::Fail;
use super::help;
use crate::engine::key_usage::{COUNT_MAX, Plan, Report, Sums};

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

/// HOTKEYS, of Redis 8.6.
pub(crate) const HOTKEYS: Command = Command {
    name: "hotkeys",
    summary: "A container for commands that measure which keys are used the most.",
    since: "8.6.0",
    complexity: "Depends on the subcommand",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&GET, &HELP, &RESET, &START, &STOP],
    ..Command::EMPTY
};

const HELP: Command =
    help::subcommand("Lists the subcommands of HOTKEYS.", "8.6.0", Group::Server, |cx, _| {
        help::reply(cx, &HOTKEYS)
    });

const START: Command = Command {
    name: "start",
    syntax: "METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] \
             [SLOTS count slot [slot ...]]",
    summary: "Begins to measure the processor time and the bytes of commands by key.",
    since: "8.6.0",
    group: Group::Server,
    arity: -2,
    flags: ADMIN,
    run: start,
    ..Command::EMPTY
};

fn start(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    const BUSY: Fail = Fail::text("ERR hotkey tracking session already in progress");
    const NS_PER_S: u64 = 1_000_000_000;
    if cx.shared.key_usage.is_active() {
        return Err(BUSY);
    }
    let (plan, seconds) = parse(args.skip(2), cx.reactor.settings.cluster_view)?;
    let until = seconds
        .map_or(u64::MAX, |seconds| cx.now.mono.0.saturating_add(seconds.saturating_mul(NS_PER_S)));
    if !cx.shared.key_usage.start(plan, cx.now, MonoNs(until)) {
        return Err(BUSY);
    }
    cx.reply.ok();
    Ok(())
}

fn number(
    text: &[u8],
    range: std::ops::RangeInclusive<i64>,
    fail: &'static str,
) -> Result<u64, Fail> {
    let number = parse_i64_strict(text).filter(|number| range.contains(number));
    number.map(i64::cast_unsigned).ok_or(Fail::text(fail))
}

/// Returns the plan, and for how many seconds it is followed.
// Source: Redis 8.6 documentation, "HOTKEYS START"
fn parse(options: Args<'_>, has_slots: bool) -> Result<(Plan, Option<u64>), Fail> {
    let (mut plan, mut at) = parse_metrics(options)?;
    let mut seconds = None;
    while at < options.len() {
        let value = options.try_get(at + 1).ok_or(Fail::Syntax)?;
        let option = options.get(at);
        at += 2;
        if is_option(option, "COUNT") {
            const _: () = assert!(COUNT_MAX == 64);
            let count = number(value, 1..=64, "ERR COUNT must be between 1 and 64")?;
            plan.count = usize::try_from(count).expect("at most 64");
        } else if is_option(option, "DURATION") {
            let text = "ERR DURATION must be between 1 and 1000000";
            seconds = Some(number(value, 1..=1_000_000, text)?);
        } else if is_option(option, "SAMPLE") {
            let text = "ERR SAMPLE ratio must be positive";
            plan.ratio = number(value, 1..=i64::from(i32::MAX), text)?;
        } else if is_option(option, "SLOTS") {
            at = parse_slots(options, at, &mut plan.slots, has_slots)?;
        } else {
            return Err(Fail::Syntax);
        }
    }
    Ok((plan, seconds))
}

/// Returns the plan with its metrics, and the position of the first option after them.
fn parse_metrics(options: Args<'_>) -> Result<(Plan, usize), Fail> {
    if options.len() < 2 || !is_option(options.get(0), "METRICS") {
        return Err(Fail::text("ERR METRICS parameter is required"));
    }
    let metrics = number(options.get(1), 1..=2, "ERR METRICS count must be > 0 and <= 2")?;
    let end = 2 + usize::try_from(metrics).expect("at most two");
    if options.len() < end {
        return Err(Fail::text("ERR METRICS count does not match number of metric types provided"));
    }
    let mut plan =
        Plan { has_time: false, has_bytes: false, count: 10, ratio: 1, slots: Vec::new() };
    for metric in options.range(2..end) {
        if is_option(metric, "CPU") && std::mem::replace(&mut plan.has_time, true) {
            return Err(Fail::text("ERR METRICS CPU defined more than once!"));
        }
        if is_option(metric, "NET") && std::mem::replace(&mut plan.has_bytes, true) {
            return Err(Fail::text("ERR METRICS NET defined more than once!"));
        }
    }
    if !plan.has_time && !plan.has_bytes {
        return Err(Fail::text("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    Ok((plan, end))
}

/// `at`: the position of the first slot. Returns the position after the last one.
fn parse_slots(
    options: Args<'_>,
    at: usize,
    slots: &mut Vec<usize>,
    has_slots: bool,
) -> Result<usize, Fail> {
    if !has_slots {
        return Err(Fail::text("ERR SLOTS parameter cannot be used in non-cluster mode"));
    }
    if !slots.is_empty() {
        return Err(Fail::text("ERR SLOTS parameter already specified"));
    }
    let text = "ERR SLOTS count must be between 1 and 16384";
    let count = number(options.get(at - 1), 1..=slot_number(SLOTS), text)?;
    let end = at + usize::try_from(count).expect("there are few slots");
    if end > options.len() {
        return Err(Fail::text("ERR not enough slot numbers provided"));
    }
    for text in options.range(at..end) {
        slots.push(parse_slot(text)?);
    }
    slots.sort_unstable();
    if slots.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Fail::text("ERR duplicate slot number"));
    }
    Ok(end)
}

const STOP: Command = Command {
    name: "stop",
    summary: "Ends the measurement; its result stays.",
    since: "8.6.0",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    run: |cx, _| {
        if cx.shared.key_usage.stop(cx.now.mono) {
            cx.reply.ok();
        } else {
            cx.reply.null();
        }
        Ok(())
    },
    ..Command::EMPTY
};

const RESET: Command = Command {
    name: "reset",
    summary: "Frees the result of a measurement that has ended.",
    run: |cx, _| {
        if !cx.shared.key_usage.reset(cx.now.mono) {
            return Err(Fail::text("ERR hotkey tracking session in progress, stop tracking first"));
        }
        cx.reply.ok();
        Ok(())
    },
    ..STOP
};

const GET: Command = Command {
    name: "get",
    summary: "Returns the keys that were used the most, with the sums of the measurement.",
    since: "8.6.0",
    complexity: "O(N) in the number of reactors and of keys returned",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    run: get,
    ..Command::EMPTY
};

// Source: Redis 8.6 documentation, "HOTKEYS GET"
fn get(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let Some(report) = cx.shared.key_usage.report(cx.now.mono) else {
        cx.reply.null();
        return Ok(());
    };
    let plan = &report.plan;
    let numbers = numbers(&report);
    let lists = usize::from(plan.has_time) + usize::from(plan.has_bytes);
    let reply = &mut cx.reply;
    reply.array(1); // one map for each node
    reply.map(3 + numbers.len() + lists);
    reply.bulk(b"tracking-active");
    reply.integer(i64::from(report.is_active));
    reply.bulk(b"sample-ratio");
    reply.integer(plan.ratio.cast_signed());
    reply.bulk(b"selected-slots");
    reply_slots(reply, &plan.slots);
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
    if plan.has_time {
        reply_keys(reply, "by-cpu-time-us", &report.by_time, us);
    }
    if plan.has_bytes {
        reply_keys(reply, "by-net-bytes", &report.by_bytes, u64::cast_signed);
    }
    Ok(())
}

fn us(ns: u64) -> i64 {
    (ns / 1000).cast_signed()
}

/// The sums that the plan measures, by name.
fn numbers(report: &Report) -> Vec<(&'static str, i64)> {
    let Report { plan, all, selected, sampled, .. } = report;
    let is_selected = !plan.slots.is_empty();
    let is_sampled = is_selected && plan.ratio > 1;
    let (has_time, has_bytes) = (plan.has_time, plan.has_bytes);
    let bytes = |sums: &Sums| sums.bytes.cast_signed();
    let rows = [
        (is_sampled, "sampled-commands-selected-slots-us", us(sampled.ns)),
        (is_selected, "all-commands-selected-slots-us", us(selected.ns)),
        (true, "all-commands-all-slots-us", us(all.ns)),
        (is_sampled, "net-bytes-sampled-commands-selected-slots", bytes(sampled)),
        (is_selected, "net-bytes-all-commands-selected-slots", bytes(selected)),
        (true, "net-bytes-all-commands-all-slots", bytes(all)),
        (true, "collection-start-time-unix-ms", report.began.0.cast_signed()),
        (true, "collection-duration-ms", report.duration_ms.cast_signed()),
        (has_time, "total-cpu-time-user-ms", report.cpu.user_us / 1000),
        (has_time, "total-cpu-time-sys-ms", report.cpu.system_us / 1000),
        (has_bytes, "total-net-bytes", report.key_bytes.cast_signed()),
    ];
    rows.into_iter().filter(|(is, ..)| *is).map(|(_, name, number)| (name, number)).collect()
}

fn reply_slots(reply: &mut ReplyWriter<'_>, slots: &[usize]) {
    let ranges = ranges(slots);
    reply.array(ranges.len());
    for (first, last) in ranges {
        let bounds = if first == last { &[first][..] } else { &[first, last] };
        reply.array(bounds.len());
        for slot in bounds {
            reply.integer(slot_number(*slot));
        }
    }
}

fn reply_keys(
    reply: &mut ReplyWriter<'_>,
    name: &str,
    keys: &[(Box<[u8]>, u64)],
    shown: impl Fn(u64) -> i64,
) {
    reply.bulk(name.as_bytes());
    reply.array(2 * keys.len());
    for (key, number) in keys {
        reply.bulk(key);
        reply.integer(shown(*number));
    }
}

/// The ranges of consecutive slots. None selected: all.
fn ranges(slots: &[usize]) -> Vec<(usize, usize)> {
    if slots.is_empty() {
        return vec![(0, SLOTS - 1)];
    }
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *slot => *last = *slot,
            _ => ranges.push((*slot, *slot)),
        }
    }
    ranges
}

impl CommandContext<'_> {
    /// Adds an executed command to the measurement, unless a script runs it: the script counts.
    #[cold]
    pub(super) fn note_usage(&mut self, command: &Command, args: Args<'_>, spent: Sums) {
        /// Maximum keys of one command that are counted.
        const KEYS_MAX: usize = 1024;
        if self.reactor.runs_script {
            return;
        }
        let mut places = Vec::new();
        if command.key_positions(args, |at, _| places.push(at)).is_err() || places.is_empty() {
            return; // the keys cannot be determined, or there are none
        }
        places.truncate(KEYS_MAX);
        let key = |at: usize| {
            let name = args.get(at);
            (self.shared.keyspace.hash(name), name, slot_of(name))
        };
        let keys: Vec<_> = places.into_iter().map(key).collect();
        let random = self.reactor.random();
        self.shared.key_usage.note(self.reactor.index, self.now.mono, random, spent, &keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn check(line: &str, has_slots: bool) -> Result<(Plan, Option<u64>), String> {
        let args: OwnedArgs = line.split(' ').collect();
        parse(args.as_args(), has_slots).map_err(|fail| fail.to_string())
    }

    #[test]
    fn plans() {
        let plan = Plan { has_time: true, has_bytes: false, count: 10, ratio: 1, slots: vec![] };
        assert_eq!(check("metrics 1 cpu", false), Ok((plan.clone(), None)));
        let more = Plan { has_bytes: true, count: 3, ratio: 5, slots: vec![1, 7], ..plan };
        let line = "METRICS 2 NET CPU COUNT 3 SLOTS 2 7 1 DURATION 9 SAMPLE 5";
        assert_eq!(check(line, true), Ok((more, Some(9))));
        for (line, error) in [
            ("COUNT 3", "METRICS parameter is required"),
            ("METRICS 0 CPU", "METRICS count must be > 0 and <= 2"),
            ("METRICS 3 CPU NET", "METRICS count must be > 0 and <= 2"),
            ("METRICS 2 CPU", "METRICS count does not match number of metric types provided"),
            ("METRICS 2 CPU CPU", "METRICS CPU defined more than once!"),
            ("METRICS 1 DISK", "METRICS no valid metrics passed. Supported: CPU|NET"),
            ("METRICS 1 CPU NET", "syntax error"),
            ("METRICS 1 CPU COUNT 65", "COUNT must be between 1 and 64"),
            ("METRICS 1 CPU DURATION 0", "DURATION must be between 1 and 1000000"),
            ("METRICS 1 CPU SAMPLE 0", "SAMPLE ratio must be positive"),
            ("METRICS 1 CPU SLOTS 3 1 2", "not enough slot numbers provided"),
            ("METRICS 1 CPU SLOTS 2 1 1", "duplicate slot number"),
            ("METRICS 1 CPU SLOTS 1 16384", "Invalid or out of range slot"),
            ("METRICS 1 CPU SLOTS 1 1 SLOTS 1 2", "SLOTS parameter already specified"),
        ] {
            assert_eq!(check(line, true), Err(format!("ERR {error}")), "{line}");
        }
        let refused = check("METRICS 1 CPU SLOTS 1 1", false).unwrap_err();
        assert_eq!(refused, "ERR SLOTS parameter cannot be used in non-cluster mode");
    }

    #[test]
    fn consecutive_slots_are_ranges() {
        assert_eq!(ranges(&[]), [(0, SLOTS - 1)]);
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), [(1, 3), (7, 7), (9, 10)]);
    }
}
