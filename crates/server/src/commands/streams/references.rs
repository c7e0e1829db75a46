//! XDELEX and XACKDEL, and the references of consumer groups to deleted entries.

use std::collections::BTreeSet;

use store::types::{Group as ConsumerGroup, Stream, StreamId, Trim};
use store::{Ids, Key, StreamChange};
use wire::resp::Args;

use super::adding::Trimming;
use super::{DELETED, IdList, WRITES_FAST, change, id_list};
use crate::commands::command::{Command, Done, Events, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, is_option};
use crate::commands::fail::Fail;

/// Whether consumer groups keep their references to entries that are to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum References {
    /// They stay: the entries are pending without content.
    #[default]
    Keep,
    /// The entries are no longer pending in any group.
    Delete,
    /// Only entries are deleted that all groups have read and acknowledged.
    Acknowledged,
}

impl References {
    pub(super) fn of_option(name: &[u8]) -> Option<References> {
        let known = [
            ("KEEPREF", References::Keep),
            ("DELREF", References::Delete),
            ("ACKED", References::Acknowledged),
        ];
        known.into_iter().find(|(word, _)| is_option(name, word)).map(|(_, references)| references)
    }
}

/// Whether a group has yet to read an entry.
fn is_unread(stream: &Stream, id: StreamId) -> bool {
    stream.groups().any(|group| group.last_id < id)
}

/// Whether a group has yet to read or to acknowledge an entry. Without groups no consumer has.
fn is_referenced(stream: &Stream, id: StreamId) -> bool {
    stream.groups().len() == 0
        || is_unread(stream, id)
        || stream.groups().any(|group| group.pending(id).is_some())
}

/// Options of XDELEX and XACKDEL.
struct Request {
    references: References,
    ids: IdList,
}

impl Request {
    // Source: Redis 8.2 documentation, "XDELEX"
    fn parse(options: Args<'_>) -> Result<Request, Fail> {
        let (mut references, mut ids) = (None, None);
        let mut at = 0;
        while at < options.len() {
            let option = options.get(at);
            if let Some(found) = References::of_option(option).filter(|_| references.is_none()) {
                references = Some(found);
                at += 1;
            } else if is_option(option, "IDS") && at + 1 < options.len() {
                let number = wire::resp::parse_i64_strict(options.get(at + 1));
                let number = number.and_then(|number| usize::try_from(number).ok());
                let number = number.filter(|number| *number > 0);
                let text = "ERR Number of IDs must be a positive integer";
                let number = number.ok_or(Fail::text(text))?;
                at += 2;
                if number > options.len() - at {
                    return Err(Fail::text(
                        "ERR The `numids` parameter must match the number of arguments",
                    ));
                }
                ids = Some(options.range(at..at + number));
                at += number;
            } else {
                return Err(Fail::Syntax);
            }
        }
        let ids = id_list(ids.ok_or(Fail::Syntax)?)?;
        Ok(Request { references: references.unwrap_or_default(), ids })
    }
}

/// The reply for one identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Missing = -1,
    Deleted = 1,
    /// The entry is still referenced.
    Kept = 2,
}

fn reply(cx: &mut CommandContext<'_>, outcomes: &[Outcome]) {
    cx.reply.array(outcomes.len());
    for outcome in outcomes {
        cx.reply.integer(*outcome as i64);
    }
}

pub(crate) const XDELEX: Command = Command {
    name: "xdelex",
    syntax: "key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
    summary: "Deletes entries of a stream with or without their references in consumer groups, or only entries that all groups have acknowledged.",
    since: "8.2.0",
    complexity: "O(N*G) in the entries given and the consumer groups",
    group: Group::Stream,
    arity: -5,
    flags: WRITES_FAST,
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: xdelex,
    ..Command::EMPTY
};

fn xdelex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = Request::parse(args.skip(2))?;
    let key = cx.key(args.get(1));
    let Some(stream) = cx.locked.stream(cx.db, key)? else {
        reply(cx, &vec![Outcome::Missing; request.ids.len()]);
        return Ok(());
    };
    spend_lookups(cx, stream, request.ids.len())?;
    let mut deleted = BTreeSet::new();
    let outcomes: Vec<Outcome> = request
        .ids
        .iter()
        .map(|id| match request.references {
            _ if !stream.contains(*id) || deleted.contains(id) => Outcome::Missing,
            References::Acknowledged if is_referenced(stream, *id) => Outcome::Kept,
            _ => {
                deleted.insert(*id);
                Outcome::Deleted
            }
        })
        .collect();
    if request.references == References::Delete {
        dereference(cx, key, &request.ids)?;
    }
    delete(cx, key, &deleted)?;
    reply(cx, &outcomes);
    Ok(())
}

pub(crate) const XACKDEL: Command = Command {
    name: "xackdel",
    syntax: "key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
    summary: "Acknowledges entries and deletes them, or only entries that all groups have acknowledged.",
    arity: -6,
    run: xackdel,
    ..XDELEX
};

fn xackdel(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = Request::parse(args.skip(3))?;
    let (key, name) = (cx.key(args.get(1)), args.get(2));
    let stream = cx.locked.stream(cx.db, key)?;
    let Some((stream, group)) = stream.and_then(|it| Some((it, it.group(name)?))) else {
        reply(cx, &vec![Outcome::Missing; request.ids.len()]);
        return Ok(());
    };
    spend_lookups(cx, stream, request.ids.len())?;
    let (mut acknowledged, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    let others_refer = |id: StreamId| {
        let refers = |it: &ConsumerGroup| it.name() != name && it.pending(id).is_some();
        is_unread(stream, id) || stream.groups().any(refers)
    };
    let mut outcome = |id: &StreamId| {
        if group.pending(*id).is_none() || !acknowledged.insert(*id) {
            return Outcome::Missing;
        }
        if request.references == References::Acknowledged && others_refer(*id) {
            return Outcome::Kept;
        }
        if stream.contains(*id) {
            deleted.insert(*id);
        }
        Outcome::Deleted
    };
    let outcomes: Vec<Outcome> = request.ids.iter().map(&mut outcome).collect();
    let acknowledged: IdList = acknowledged.into_iter().collect();
    if request.references == References::Delete {
        dereference(cx, key, &acknowledged)?;
    } else {
        acknowledge(cx, key, name, &acknowledged)?;
    }
    delete(cx, key, &deleted)?;
    reply(cx, &outcomes);
    Ok(())
}

/// Each identifier is looked up among the entries, and among the pending ones of each group.
fn spend_lookups(cx: &CommandContext<'_>, stream: &Stream, ids: usize) -> Done {
    cx.spend(ids.saturating_mul(1 + stream.groups().len()))
}

fn delete(cx: &mut CommandContext<'_>, key: Key<'_>, ids: &BTreeSet<StreamId>) -> Done {
    if ids.is_empty() {
        return Ok(());
    }
    let ids: IdList = ids.iter().copied().collect();
    change(cx, Some(DELETED), key, &StreamChange::Delete { ids: Ids::Slice(&ids) })
}

fn acknowledge(cx: &mut CommandContext<'_>, key: Key<'_>, group: &[u8], ids: &[StreamId]) -> Done {
    if ids.is_empty() {
        return Ok(());
    }
    change(cx, None, key, &StreamChange::Acknowledge { group, ids: Ids::Slice(ids) })
}

/// Removes entries from what is pending in all groups.
fn dereference(cx: &mut CommandContext<'_>, key: Key<'_>, ids: &[StreamId]) -> Done {
    let Some(stream) = cx.locked.stream(cx.db, key)? else { return Ok(()) };
    let pending_of = |group: &ConsumerGroup| {
        let pending = ids.iter().copied().filter(|id| group.pending(*id).is_some());
        (group.name().to_vec(), pending.collect::<IdList>())
    };
    let references: Vec<(Vec<u8>, IdList)> = stream.groups().map(pending_of).collect();
    references.iter().try_for_each(|(group, ids)| acknowledge(cx, key, group, ids))
}

/// Entries that a trim removes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trimmed {
    /// The first ones.
    Front(u64),
    /// The first ones, with what is pending of them in each group.
    WithReferences(u64, Vec<(Vec<u8>, IdList)>),
    Each(IdList),
}

impl Trimmed {
    /// Chooses the entries. `spend` counts every entry that is read. O(entries) for
    /// [`References::Acknowledged`], up to the first one that a group has not read.
    // Source: Redis 8.2 documentation, "XTRIM"
    pub(super) fn choose(
        stream: &Stream,
        trimming: Trimming,
        references: References,
        spend: impl Fn(usize) -> Done,
    ) -> Result<Trimmed, Fail> {
        let count = trimming.count(stream);
        if references == References::Keep || stream.groups().len() == 0 || count == 0 {
            return Ok(Trimmed::Front(count));
        }
        if references == References::Acknowledged {
            return Self::choose_acknowledged(stream, trimming, count, spend);
        }
        Self::with_references(stream, count, spend)
    }

    fn choose_acknowledged(
        stream: &Stream,
        trimming: Trimming,
        count: u64,
        spend: impl Fn(usize) -> Done,
    ) -> Result<Trimmed, Fail> {
        // A length is reached by other entries in place of the ones that must stay.
        let (visited_max, removed_max) = match trimming {
            Trimming { trim: Trim::MaxLen(_), blocks_only: None } => (u64::MAX, count),
            _ => (count, u64::MAX),
        };
        let (mut ids, mut visited) = (IdList::new(), 0);
        for id in all_ids(stream) {
            if visited == visited_max || ids.len() as u64 == removed_max {
                break;
            }
            spend(1 + stream.groups().len())?;
            if is_unread(stream, id) {
                break;
            }
            if !is_referenced(stream, id) {
                ids.push(id);
            }
            visited += 1;
        }
        Ok(Trimmed::Each(ids))
    }

    fn with_references(
        stream: &Stream,
        count: u64,
        spend: impl Fn(usize) -> Done,
    ) -> Result<Trimmed, Fail> {
        let left = usize::try_from(count).unwrap_or(usize::MAX);
        spend(left)?;
        let Some(last) = all_ids(stream).take(left).last() else {
            return Ok(Trimmed::Front(count));
        };
        let mut pending = Vec::new();
        for group in stream.groups() {
            let mut ids = IdList::new();
            for entry in group.pending_from(StreamId::MIN).take_while(|entry| entry.id <= last) {
                spend(1)?;
                if stream.contains(entry.id) {
                    ids.push(entry.id);
                }
            }
            pending.push((group.name().to_vec(), ids));
        }
        Ok(Trimmed::WithReferences(count, pending))
    }

    /// Identifiers in the log record.
    pub(super) fn ids_len(&self) -> usize {
        match self {
            Trimmed::Front(_) => 0,
            Trimmed::WithReferences(_, pending) => pending.iter().map(|(_, ids)| ids.len()).sum(),
            Trimmed::Each(ids) => ids.len(),
        }
    }
}

fn all_ids(stream: &Stream) -> impl Iterator<Item = StreamId> {
    stream.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id)
}

/// Removes the entries. Returns how many there are.
pub(super) fn remove(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    trimmed: &Trimmed,
) -> Result<u64, Fail> {
    let (count, removal) = match trimmed {
        Trimmed::Front(count) | Trimmed::WithReferences(count, _) => {
            (*count, StreamChange::Trim { count: *count })
        }
        Trimmed::Each(ids) => (ids.len() as u64, StreamChange::Delete { ids: Ids::Slice(ids) }),
    };
    if let Trimmed::WithReferences(_, pending) = trimmed {
        pending.iter().try_for_each(|(group, ids)| acknowledge(cx, key, group, ids))?;
    }
    if count > 0 {
        change(cx, Some(super::adding::XTRIM_EVENT), key, &removal)?;
    }
    Ok(count)
}
