//! LATENCY: slow events.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use std::fmt::Write as _;

use base::stages::Stage;
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Flags, Group};
use super::context::CommandContext;
use super::fail::Fail;
use super::help;
use super::registry::REGISTRY;

const ADMIN: Flags = Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE);
const LATENCY_ADMIN: Flags = ADMIN.and(Flags::NOSCRIPT);

pub(crate) const LATENCY: Command = Command {
    name: "latency",
    syntax: "subcommand",
    summary: "A container for commands about latency.",
    since: "2.8.13",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&DOCTOR, &GRAPH, &HISTOGRAM, &HISTORY, &LATEST, &LATENCY_RESET, &LATENCY_HELP],
    ..Command::EMPTY
};

const LATEST: Command = Command {
    name: "latest",
    summary: "Returns the latest and the longest sample of every kind of event.",
    since: "2.8.13",
    group: Group::Server,
    arity: 2,
    flags: LATENCY_ADMIN,
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: latest,
    ..Command::EMPTY
};

fn latest(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let events = cx.shared.latency.lock();
    cx.reply.array(events.iter().len());
    for (event, series) in events.iter() {
        let last = series.samples.back().expect("a series has a sample");
        cx.reply.array(4);
        cx.reply.bulk(event.name().as_bytes());
        cx.reply.integer(last.at_s.cast_signed());
        cx.reply.integer(last.took_ms.cast_signed());
        cx.reply.integer(series.max_ms.cast_signed());
    }
    Ok(())
}

const HISTORY: Command = Command {
    name: "history",
    syntax: "event",
    summary: "Returns the samples of one kind of event: Unix seconds and milliseconds.",
    since: "2.8.13",
    group: Group::Server,
    arity: 3,
    flags: LATENCY_ADMIN,
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: history,
    ..Command::EMPTY
};

fn history(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let events = cx.shared.latency.lock();
    let Some((_, series)) = events.get(args.get(2)) else {
        cx.reply.array(0);
        return Ok(());
    };
    cx.reply.array(series.samples.len());
    for sample in &series.samples {
        cx.reply.array(2);
        cx.reply.integer(sample.at_s.cast_signed());
        cx.reply.integer(sample.took_ms.cast_signed());
    }
    Ok(())
}

const LATENCY_RESET: Command = Command {
    name: "reset",
    syntax: "[event [event ...]]",
    summary: "Removes the samples of the given kinds of events, or of all.",
    since: "2.8.13",
    group: Group::Server,
    arity: -2,
    flags: LATENCY_ADMIN,
    tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
    run: latency_reset,
    ..Command::EMPTY
};

fn latency_reset(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let names: Vec<&[u8]> = args.iter().skip(2).collect();
    let count = cx.shared.latency.lock().reset(&names);
    cx.reply.count(count);
    Ok(())
}

const GRAPH: Command = Command {
    name: "graph",
    summary: "Draws a text graph of the samples of one kind of event.",
    run: graph,
    ..HISTORY
};

fn graph(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let events = cx.shared.latency.lock();
    let Some((event, series)) = events.get(args.get(2)) else {
        return Err(Fail::quoting("ERR No samples available for event '", args.get(2), "'"));
    };
    let mut text = format!("{} - worst {} ms\n", event.name(), series.max_ms);
    for sample in &series.samples {
        let width = (sample.took_ms * 60).checked_div(series.max_ms).unwrap_or(0);
        let bar = "#".repeat(usize::try_from(width).unwrap_or(60).max(1));
        writeln!(text, "{} {bar} {} ms", sample.at_s, sample.took_ms)
            .expect("writing to a string cannot fail");
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

const DOCTOR: Command = Command {
    name: "doctor",
    summary: "Summarizes the samples and gives advice.",
    since: "2.8.13",
    group: Group::Server,
    arity: 2,
    flags: LATENCY_ADMIN,
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: doctor,
    ..Command::EMPTY
};

fn doctor(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let threshold_ms = cx.reactor.settings.latency_monitor_threshold_ms;
    let events = cx.shared.latency.lock();
    let mut text = String::new();
    if threshold_ms == 0 {
        text.push_str(
            "Latency events are not recorded: `CONFIG SET latency-monitor-threshold <ms>` turns \
             that on.\n",
        );
    } else if events.iter().len() == 0 {
        writeln!(text, "No event took {threshold_ms} ms or more since the last reset.")
            .expect("writing to a string cannot fail");
    }
    for (event, series) in events.iter() {
        let sum_ms: u64 = series.samples.iter().map(|sample| sample.took_ms).sum();
        let mean_ms = sum_ms / (series.samples.len() as u64).max(1);
        writeln!(
            text,
            "{}: {} samples, mean {mean_ms} ms, worst {} ms. {}",
            event.name(),
            series.samples.len(),
            series.max_ms,
            event.advice()
        )
        .expect("writing to a string cannot fail");
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

const HISTOGRAM: Command = Command {
    name: "histogram",
    syntax: "[command [command ...]]",
    summary: "Returns execution times of commands, as cumulative counts by power of two microseconds.",
    since: "7.0.0",
    complexity: "O(N) in the number of commands",
    group: Group::Server,
    arity: -2,
    flags: LATENCY_ADMIN.and(Flags::SEES_STATS),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: histogram,
    ..Command::EMPTY
};

fn histogram(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (kinds, merged) = (&cx.shared.request_kinds, cx.shared.stage_timers());
    let mut wanted: Vec<usize> = Vec::new();
    for name in args.iter().skip(2) {
        let Some(id) = REGISTRY.find_full(name) else { continue };
        wanted.push(usize::from(id));
        wanted.extend(REGISTRY.entry(id).children().map(usize::from));
    }
    let shown: Vec<_> = (0..kinds.len())
        .filter(|id| args.len() == 2 || wanted.contains(id))
        .filter_map(|id| Some((kinds.name(id), merged.cell(id, Stage::Execute)?)))
        .collect();
    cx.reply.map(shown.len());
    for (name, cell) in shown {
        cx.reply.bulk(name.as_bytes());
        cx.reply.map(2);
        cx.reply.bulk(b"calls");
        cx.reply.integer(cell.count().cast_signed());
        cx.reply.bulk(b"histogram_usec");
        reply_buckets(&mut cx.reply, &cumulative(cell.recorded()));
    }
    Ok(())
}

fn reply_buckets(reply: &mut ReplyWriter<'_>, buckets: &[(u64, u64)]) {
    reply.map(buckets.len());
    for (us, count) in buckets {
        reply.integer(us.cast_signed());
        reply.integer(count.cast_signed());
    }
}

/// Returns cumulative counts at 1, 2, 4, ... microseconds, without empty buckets.
fn cumulative(recorded: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    let mut sum = 0;
    for (ns, count) in recorded {
        sum += count;
        let us = ns.div_ceil(1000).next_power_of_two();
        match buckets.last_mut() {
            Some(last) if last.0 == us => last.1 = sum,
            _ => buckets.push((us, sum)),
        }
    }
    buckets
}

const LATENCY_HELP: Command =
    help::subcommand("Lists the subcommands of LATENCY.", "2.8.13", Group::Server, |cx, _| {
        help::reply(cx, &LATENCY)
    });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_and_cumulative() {
        let recorded = [(500, 2), (1_000, 1), (1_500, 4), (9_000, 1)];
        assert_eq!(cumulative(recorded.into_iter()), [(1, 3), (2, 7), (16, 8)]);
    }
}
