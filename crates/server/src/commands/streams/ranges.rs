//! XRANGE and XREVRANGE.

use store::types::StreamEntry;
use wire::resp::Args;

use super::ids::{parse_range_end, parse_range_start};
use super::{READS, reply_entry};
use crate::commands::command::{Command, Done, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, ENTRY_COST, integer, is_option};
use crate::commands::fail::Fail;

pub(crate) const XRANGE: Command = Command {
    name: "xrange",
    syntax: "key start end [COUNT count]",
    summary: "Returns the entries of a stream in a range of identifiers.",
    since: "5.0.0",
    complexity: "O(log N + M) in the blocks of the stream and the entries returned",
    group: Group::Stream,
    arity: -4,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: |cx, args| range(cx, args, Order::Forward),
    ..Command::EMPTY
};

pub(crate) const XREVRANGE: Command = Command {
    name: "xrevrange",
    syntax: "key end start [COUNT count]",
    summary: "Returns the entries of a stream in a range of identifiers, the last first.",
    run: |cx, args| range(cx, args, Order::Reverse),
    ..XRANGE
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Forward,
    Reverse,
}

fn range(cx: &mut CommandContext<'_>, args: Args<'_>, order: Order) -> Done {
    let (start, end) = match order {
        Order::Forward => (args.get(2), args.get(3)),
        Order::Reverse => (args.get(3), args.get(2)),
    };
    let (first, last) = (parse_range_start(start)?, parse_range_end(end)?);
    let count = parse_count(args)?;
    let key = cx.key(args.get(1));
    let Some(stream) = cx.locked.stream(cx.db, key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        cx.reply.null_array();
        return Ok(());
    }
    let count_max = count.unwrap_or(usize::MAX);
    let (mut forward, mut reverse);
    let entries: &mut dyn Iterator<Item = StreamEntry<'_>> = match order {
        Order::Forward => {
            forward = stream.range(first, last);
            &mut forward
        }
        Order::Reverse => {
            reverse = stream.range_rev(first, last);
            &mut reverse
        }
    };
    let counted = cx.reply.begin_counted();
    let mut written = 0;
    for entry in entries.take(count_max) {
        cx.spend(ENTRY_COST + entry.len())?;
        reply_entry(&mut cx.reply, entry);
        cx.check_reply()?;
        written += 1;
    }
    cx.reply.end_counted(counted, written, |_| ());
    Ok(())
}

/// The limit of a reply; negative numbers are as 0.
fn parse_count(args: Args<'_>) -> Result<Option<usize>, Fail> {
    let mut count = None;
    let mut options = args.skip(4).iter();
    while let Some(option) = options.next() {
        let Some(number) = options.next().filter(|_| is_option(option, "COUNT")) else {
            return Err(Fail::Syntax);
        };
        count = Some(usize::try_from(integer(number)?).unwrap_or(0));
    }
    Ok(count)
}
