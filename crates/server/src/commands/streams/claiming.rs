//! XCLAIM and XAUTOCLAIM: pending entries for another consumer.

use smallvec::SmallVec;
use store::types::{Pending, Stream, StreamId};
use store::{Assignment, Deliveries, GroupRead, Ids, Key, StreamChange};
use wire::resp::Args;

use super::ids::{parse_id, parse_range_start, reply_id};
use super::{IdList, WRITES_FAST, change, create_consumer, reply_entry, required_group};
use crate::commands::command::{Command, Done, Events, Group, KeyAccess, KeySpec};
use crate::commands::context::{CLAIM_COST, CommandContext, is_option};
use crate::commands::fail::{Fail, shown};

pub(crate) const XCLAIM: Command = Command {
    name: "xclaim",
    syntax: "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID last-id]",
    summary: "Makes pending entries those of another consumer, and returns them.",
    since: "5.0.0",
    complexity: "O(N log M) in the entries given and the pending ones",
    group: Group::Stream,
    arity: -6,
    flags: WRITES_FAST,
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Update)],
    tips: &["nondeterministic_output"],
    run: xclaim,
    ..Command::EMPTY
};

/// What a claim changes in an entry, and what it replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Claim {
    /// Entries that were delivered less than this time ago are left.
    idle_ms_min: i64,
    delivered_ms: u64,
    /// `None`: one more than before, but with JUSTID as before.
    deliveries: Option<u64>,
    /// Entries that are not pending become so.
    is_forced: bool,
    just_ids: bool,
    last_id: StreamId,
}

fn number(text: &[u8], fail: &'static str) -> Result<i64, Fail> {
    wire::resp::parse_i64_strict(text).ok_or(Fail::text(fail))
}

/// Parses what follows the identifiers.
// Source: Redis 7.2 `t_stream.c`, `xclaimCommand`
fn parse_claim(args: Args<'_>, idle_ms_min: i64, now_ms: u64) -> Result<Claim, Fail> {
    let mut claim = Claim { idle_ms_min, delivered_ms: now_ms, ..Claim::default() };
    let now = now_ms.cast_signed();
    // A time in the future is as now.
    let past = |ms: i64| u64::try_from(ms).ok().filter(|ms| *ms <= now_ms).unwrap_or(now_ms);
    let mut at = 0;
    while at < args.len() {
        let (option, value) = (args.get(at), args.try_get(at + 1));
        at += 1;
        match value {
            _ if is_option(option, "FORCE") => claim.is_forced = true,
            _ if is_option(option, "JUSTID") => claim.just_ids = true,
            Some(value) => {
                at += 1;
                if is_option(option, "IDLE") {
                    let ms = number(value, "ERR Invalid IDLE option argument for XCLAIM")?;
                    claim.delivered_ms = past(now.wrapping_sub(ms));
                } else if is_option(option, "TIME") {
                    let ms = number(value, "ERR Invalid TIME option argument for XCLAIM")?;
                    claim.delivered_ms = past(ms);
                } else if is_option(option, "RETRYCOUNT") {
                    let text = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
                    claim.deliveries = u64::try_from(number(value, text)?).ok();
                } else if is_option(option, "LASTID") {
                    claim.last_id = parse_id(value, 0)?;
                } else {
                    return Err(unrecognized(option));
                }
            }
            None => return Err(unrecognized(option)),
        }
    }
    Ok(claim)
}

fn unrecognized(option: &[u8]) -> Fail {
    Fail::quoting("ERR Unrecognized XCLAIM option '", shown(option), "'")
}

/// The fate of one entry.
enum Outcome {
    /// It is claimed with this number of deliveries.
    Claimed(u64),
    /// It was deleted, so it is no longer pending.
    Deleted,
    Left,
}

fn decide(stream: &Stream, pending: Option<&Pending>, id: StreamId, claim: &Claim) -> Outcome {
    if !stream.contains(id) {
        return if pending.is_some() { Outcome::Deleted } else { Outcome::Left };
    }
    let before = match pending {
        None if !claim.is_forced => return Outcome::Left,
        None => 1,
        Some(pending) => pending.deliveries,
    };
    let more = u64::from(!claim.just_ids);
    Outcome::Claimed(claim.deliveries.unwrap_or(before.wrapping_add(more)))
}

/// Whether the last delivery of an entry is too recent.
fn is_recent(pending: &Pending, now_ms: u64, idle_ms_min: i64) -> bool {
    idle_ms_min > 0 && now_ms.wrapping_sub(pending.delivered_ms).cast_signed() < idle_ms_min
}

/// Claimed entries of one command, and identifiers of deleted ones.
#[derive(Default)]
struct Claimed {
    entries: SmallVec<[(StreamId, u64); 16]>,
    deleted: IdList,
}

impl Claimed {
    fn apply(
        &self,
        cx: &mut CommandContext<'_>,
        key: Key<'_>,
        (group, consumer): (&[u8], &[u8]),
        (delivered_ms, read): (u64, Option<GroupRead>),
    ) -> Done {
        if !self.deleted.is_empty() {
            let ids = Ids::Slice(&self.deleted);
            change(cx, None, key, &StreamChange::Acknowledge { group, ids })?;
        }
        let seen_ms = cx.unix().0;
        if self.entries.is_empty() && read.is_none() {
            cx.locked.note_seen(cx.db, key, (group, consumer), seen_ms);
            return Ok(());
        }
        cx.admit_entries(self.entries.len())?;
        let assignment = Assignment {
            group,
            consumer,
            seen_ms,
            is_active: !self.entries.is_empty(),
            delivered_ms,
            read,
            entries: Deliveries::Slice(&self.entries),
        };
        change(cx, None, key, &StreamChange::Assign(assignment))
    }
}

fn xclaim(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, group, consumer) = (cx.key(args.get(1)), args.get(2), args.get(3));
    required_group(&cx.locked, cx.db, key, group)?;
    let text = "ERR Invalid min-idle-time argument for XCLAIM";
    let idle_ms_min = number(args.get(4), text)?;
    let words = args.skip(5);
    let ids: IdList = words.iter().map_while(|text| parse_id(text, 0).ok()).collect();
    let now_ms = cx.unix().0;
    let claim = parse_claim(words.skip(ids.len()), idle_ms_min, now_ms)?;
    create_consumer(cx, key, group, consumer)?;
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    // A second claim of an entry depends on the first one.
    let one_by_one = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    let counted = cx.reply.begin_counted();
    let (mut claimed, mut written) = (Claimed::default(), 0);
    for id in ids {
        let (stream, found) = required_group(&cx.locked, cx.db, key, group)?;
        let pending = found.pending(id);
        let outcome = decide(stream, pending, id, &claim);
        match outcome {
            Outcome::Claimed(_)
                if pending.is_some_and(|it| is_recent(it, now_ms, claim.idle_ms_min)) =>
            {
                continue;
            }
            Outcome::Claimed(deliveries) => {
                match stream.get(id).filter(|_| !claim.just_ids) {
                    Some(entry) => reply_entry(&mut cx.reply, entry),
                    None => reply_id(&mut cx.reply, id),
                }
                cx.check_reply()?;
                written += 1;
                claimed.entries.push((id, deliveries));
            }
            Outcome::Deleted => claimed.deleted.push(id),
            Outcome::Left => continue,
        }
        if one_by_one {
            std::mem::take(&mut claimed).apply(
                cx,
                key,
                (group, consumer),
                (claim.delivered_ms, None),
            )?;
        }
    }
    let (_, found) = required_group(&cx.locked, cx.db, key, group)?;
    let (last_id, entries_read) = (claim.last_id, found.entries_read);
    let read = (last_id > found.last_id).then_some(GroupRead { last_id, entries_read });
    claimed.apply(cx, key, (group, consumer), (claim.delivered_ms, read))?;
    cx.reply.end_counted(counted, written, |_| ());
    Ok(())
}

pub(crate) const XAUTOCLAIM: Command = Command {
    name: "xautoclaim",
    syntax: "key group consumer min-idle-time start [COUNT count] [JUSTID]",
    summary: "Makes pending entries that were not acknowledged for some time those of another consumer, and returns them with the identifier at which to continue.",
    since: "6.2.0",
    complexity: "O(N log M) in COUNT and the pending entries",
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: xautoclaim,
    ..XCLAIM
};

/// Entries that are read for each one that may be claimed.
const ATTEMPTS_PER_ENTRY: u64 = 10;

fn xautoclaim(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let now_ms = cx.unix().0;
    let text = "ERR Invalid min-idle-time argument for XAUTOCLAIM";
    let idle_ms_min = number(args.get(4), text)?;
    let first = parse_range_start(args.get(5))?;
    let (count, just_ids) = parse_auto(args)?;
    let claim = Claim { idle_ms_min, delivered_ms: now_ms, just_ids, ..Claim::default() };
    let (key, group, consumer) = (cx.key(args.get(1)), args.get(2), args.get(3));
    required_group(&cx.locked, cx.db, key, group)?;
    create_consumer(cx, key, group, consumer)?;

    let (stream, found) = required_group(&cx.locked, cx.db, key, group)?;
    let (mut claimed, mut left) = (Claimed::default(), count);
    let mut attempts = count.saturating_mul(ATTEMPTS_PER_ENTRY);
    let mut entries = found.pending_from(first);
    while attempts > 0
        && left > 0
        && let Some(pending) = entries.next()
    {
        attempts -= 1;
        cx.spend(1)?;
        match decide(stream, Some(pending), pending.id, &claim) {
            Outcome::Deleted => claimed.deleted.push(pending.id),
            _ if is_recent(pending, now_ms, idle_ms_min) => continue,
            Outcome::Claimed(deliveries) => {
                cx.spend(CLAIM_COST)?;
                claimed.entries.push((pending.id, deliveries));
            }
            Outcome::Left => continue,
        }
        left -= 1;
    }
    let next = entries.next().map_or(StreamId::MIN, |pending| pending.id);
    drop(entries);
    cx.reply.array(3);
    reply_id(&mut cx.reply, next);
    cx.reply.array(claimed.entries.len());
    for (id, _) in &claimed.entries {
        match stream.get(*id).filter(|_| !just_ids) {
            Some(entry) => reply_entry(&mut cx.reply, entry),
            None => reply_id(&mut cx.reply, *id),
        }
        cx.check_reply()?;
    }
    cx.reply.array(claimed.deleted.len());
    claimed.deleted.iter().for_each(|id| reply_id(&mut cx.reply, *id));
    claimed.apply(cx, key, (group, consumer), (now_ms, None))
}

/// The number of entries to claim, and JUSTID.
// Source: Redis 7.2 `t_stream.c`, `xautoclaimCommand`
fn parse_auto(args: Args<'_>) -> Result<(u64, bool), Fail> {
    const COUNT_MAX: u64 = i64::MAX as u64 / 16;
    let (mut count, mut just_ids) = (100, false);
    let mut options = args.skip(6).iter();
    while let Some(option) = options.next() {
        if is_option(option, "JUSTID") {
            just_ids = true;
            continue;
        }
        let value = options.next().filter(|_| is_option(option, "COUNT")).ok_or(Fail::Syntax)?;
        let value = u64::try_from(number(value, "ERR COUNT must be > 0")?).ok();
        let value = value.filter(|count| (1..=COUNT_MAX).contains(count));
        count = value.ok_or(Fail::text("ERR COUNT must be > 0"))?;
    }
    Ok((count, just_ids))
}
