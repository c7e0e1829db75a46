//! XADD and XTRIM: new entries at the end, removal of old ones from the front.

use smallvec::SmallVec;
use store::types::{Stream, StreamId, Trim};
use store::{Items, Key, StreamChange};
use wire::resp::Args;

use super::ids::{Chosen, parse_id, parse_parts, reply_id};
use super::references::{References, Trimmed, remove};
use super::{WRITES, change};
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;
use crate::config::KeyEvent;

const XADD_EVENT: KeyEvent = Group::Stream.event("xadd");
pub(super) const XTRIM_EVENT: KeyEvent = Group::Stream.event("xtrim");

/// Maximum bytes of the names and values of one entry.
// Source: Redis 7.2 `t_stream.c`, `STREAM_LISTPACK_MAX_SIZE`
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Entries that cost as much to trim as one element: whole blocks are freed.
const TRIMMED_PER_ELEMENT: u64 = 16;

/// Options of XADD and XTRIM.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// XADD: position of the identifier.
    id_at: usize,
    id: Chosen,
    creates: bool,
    trim: Option<Trimming>,
    references: References,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trimming {
    pub(super) trim: Trim,
    /// See [`Stream::trimmed`].
    pub(super) blocks_only: Option<u64>,
}

impl Trimming {
    pub(super) fn count(self, stream: &Stream) -> u64 {
        stream.trimmed(self.trim, self.blocks_only)
    }
}

impl Options {
    // Source: Redis 7.2 `t_stream.c`, `streamParseAddOrTrimArgsOrReply`
    fn parse(args: Args<'_>, adds: bool, block_entries_max: usize) -> Result<Options, Fail> {
        let mut options = Options {
            id_at: 0,
            id: Chosen::Nothing,
            creates: true,
            trim: None,
            references: References::Keep,
        };
        let mut references = None;
        let (mut trim, mut is_approximate, mut limit) = (None, false, None);
        let mut at = 2;
        while at < args.len() {
            let (option, more) = (args.get(at), args.len() - 1 - at);
            if adds && option == b"*" {
                break;
            } else if more > 0 && (is_option(option, "MAXLEN") || is_option(option, "MINID")) {
                if trim.is_some() {
                    return Err(Fail::text(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not \
                         compatible",
                    ));
                }
                let sign = args.get(at + 1);
                is_approximate = more > 1 && sign == b"~";
                at += if is_approximate || (more > 1 && sign == b"=") { 2 } else { 1 };
                trim = Some(parse_trim(option, args.get(at))?);
            } else if more > 0 && is_option(option, "LIMIT") {
                at += 1;
                let text = "ERR The LIMIT argument must be >= 0.";
                limit = Some(not_negative(args.get(at), text)?);
            } else if adds && is_option(option, "NOMKSTREAM") {
                options.creates = false;
            } else if references.is_none() && References::of_option(option).is_some() {
                references = References::of_option(option);
            } else if adds {
                options.id = parse_parts(option, 0)?;
                break;
            } else {
                return Err(Fail::Syntax);
            }
            at += 1;
        }
        options.id_at = at;
        options.references = references.unwrap_or_default();
        let Some(trim) = trim else {
            if limit.is_some_and(|limit| limit > 0) {
                return Err(Fail::text(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                ));
            }
            if !adds {
                return Err(Fail::text(
                    "ERR syntax error, XTRIM must be called with a trimming strategy",
                ));
            }
            // LIMIT 0 without a strategy is also without `~`.
            check_limit(limit, false)?;
            return Ok(options);
        };
        check_limit(limit, is_approximate)?;
        let blocks_only =
            is_approximate.then(|| limit.unwrap_or_else(|| default_limit(block_entries_max)));
        options.trim = Some(Trimming { trim, blocks_only });
        Ok(options)
    }
}

fn check_limit(limit: Option<u64>, is_approximate: bool) -> Done {
    if limit.is_none() || is_approximate {
        return Ok(());
    }
    Err(Fail::text("ERR syntax error, LIMIT cannot be used without the special ~ option"))
}

/// Entries of 100 blocks.
fn default_limit(block_entries_max: usize) -> u64 {
    match block_entries_max.saturating_mul(100) as u64 {
        0 => 10_000,
        entries => entries.min(1_000_000),
    }
}

fn not_negative(text: &[u8], fail: &'static str) -> Result<u64, Fail> {
    u64::try_from(integer(text)?).map_err(|_| Fail::text(fail))
}

fn parse_trim(strategy: &[u8], threshold: &[u8]) -> Result<Trim, Fail> {
    if is_option(strategy, "MINID") {
        return Ok(Trim::MinId(parse_id(threshold, 0)?));
    }
    not_negative(threshold, "ERR The MAXLEN argument must be >= 0.").map(Trim::MaxLen)
}

pub(crate) const XADD: Command = Command {
    name: "xadd",
    syntax: "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]",
    summary: "Appends an entry to a stream and returns its identifier; can trim old entries.",
    since: "5.0.0",
    complexity: "O(N) in the fields given and the entries removed",
    group: Group::Stream,
    arity: -5,
    flags: WRITES.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Update)
        .noted("UPDATE instead of INSERT because of the optional trimming feature")],
    tips: &["nondeterministic_output"],
    run: xadd,
    ..Command::EMPTY
};

fn block_entries_max(cx: &CommandContext<'_>) -> usize {
    cx.locked.params().compact.stream_block_entries_max
}

fn xadd(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let options = Options::parse(args, true, block_entries_max(cx))?;
    let first_field = options.id_at + 1;
    if args.len() < first_field + 2 || !(args.len() - first_field).is_multiple_of(2) {
        return Err(Fail::arity(cx.command.name));
    }
    if options.id == Chosen::Whole(StreamId::MIN) {
        return Err(Fail::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let key = cx.key(args.get(1));
    let stream = cx.locked.stream(cx.db, key)?;
    if stream.is_none() && !options.creates {
        cx.reply.null();
        return Ok(());
    }
    let last = stream.map_or(StreamId::MIN, Stream::last_id);
    let id = new_id(options.id, last, cx.unix().0)?;
    if let (Some(stream), Some(trimming)) = (stream, options.trim) {
        admit_trim(cx, stream, trimming, options.references)?;
    }
    let fields: SmallVec<[&[u8]; 16]> = args.skip(first_field).iter().collect();
    if fields.iter().map(|field| field.len()).sum::<usize>() > ENTRY_BYTES_MAX {
        return Err(Fail::text("ERR Elements are too large to be stored"));
    }
    let entry = StreamChange::Add { id, fields: Items::Slice(&fields) };
    change(cx, Some(XADD_EVENT), key, &entry)?;
    if let Some(trimming) = options.trim {
        trim(cx, key, trimming, options.references)?;
    }
    reply_id(&mut cx.reply, id);
    Ok(())
}

/// The identifier of a new entry, which must be greater than that of the last one.
// Source: Redis 7.2 `t_stream.c`, `streamAppendItem`
fn new_id(chosen: Chosen, last: StreamId, now_ms: u64) -> Result<StreamId, Fail> {
    let exhausted =
        Fail::text("ERR The stream has exhausted the last possible ID, unable to add more items");
    let Some(next) = last.next() else { return Err(exhausted) };
    let id = match chosen {
        Chosen::Nothing if now_ms > last.ms => StreamId { ms: now_ms, seq: 0 },
        Chosen::Nothing => next,
        Chosen::Milliseconds(ms) if ms == last.ms => {
            // Without a number that is left in this millisecond, the identifier is the last one.
            StreamId { ms, seq: last.seq.saturating_add(1) }
        }
        Chosen::Milliseconds(ms) => StreamId { ms, seq: 0 },
        Chosen::Whole(id) => id,
    };
    if id > last {
        return Ok(id);
    }
    Err(Fail::text(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))
}

/// Rejects a trim before the first change if it is too expensive.
fn admit_trim(
    cx: &CommandContext<'_>,
    stream: &Stream,
    trimming: Trimming,
    references: References,
) -> Done {
    let entries = trimming.count(stream) / TRIMMED_PER_ELEMENT;
    cx.spend(usize::try_from(entries).unwrap_or(usize::MAX))?;
    if references == References::Keep {
        return Ok(());
    }
    let trimmed = Trimmed::choose(stream, trimming, references, |elements| cx.spend(elements))?;
    cx.admit_entries(trimmed.ids_len())
}

/// Trims a stream. Returns the number of removed entries.
fn trim(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    trimming: Trimming,
    references: References,
) -> Result<u64, Fail> {
    let Some(stream) = cx.locked.stream(cx.db, key)? else { return Ok(0) };
    let trimmed = Trimmed::choose(stream, trimming, references, |_| Ok(()))?;
    remove(cx, key, &trimmed)
}

pub(crate) const XTRIM: Command = Command {
    name: "xtrim",
    syntax: "key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]",
    summary: "Removes the oldest entries of a stream; returns how many.",
    since: "5.0.0",
    complexity: "O(N) in the blocks of entries removed",
    group: Group::Stream,
    arity: -4,
    flags: WRITES,
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Delete)],
    tips: &["nondeterministic_output"],
    run: xtrim,
    ..Command::EMPTY
};

fn xtrim(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let options = Options::parse(args, false, block_entries_max(cx))?;
    let key = cx.key(args.get(1));
    let trimming = options.trim.expect("required by the parser");
    if let Some(stream) = cx.locked.stream(cx.db, key)? {
        admit_trim(cx, stream, trimming, options.references)?;
    }
    let removed = trim(cx, key, trimming, options.references)?;
    cx.reply.count(removed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn parse(line: &str) -> Result<Options, Fail> {
        let mut args = OwnedArgs::new();
        line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
        Options::parse(args.as_args(), line.starts_with("XADD"), 100)
    }

    #[test]
    fn options_of_xadd_and_xtrim() {
        let trimmed = |line: &str| parse(line).map(|options| options.trim);
        let length = |max, blocks_only| Ok(Some(Trimming { trim: Trim::MaxLen(max), blocks_only }));
        assert_eq!(trimmed("XADD k * f v"), Ok(None));
        assert_eq!(trimmed("XADD k MAXLEN 5 * f v"), length(5, None));
        assert_eq!(trimmed("XADD k MAXLEN = 5 * f v"), length(5, None));
        assert_eq!(trimmed("XADD k maxlen ~ 5 * f v"), length(5, Some(10_000)));
        assert_eq!(trimmed("XTRIM k MAXLEN ~ 5 LIMIT 7"), length(5, Some(7)));
        assert_eq!(trimmed("XTRIM k LIMIT 0 MAXLEN ~ 5"), length(5, Some(0)));
        let id = StreamId { ms: 5, seq: 0 };
        let expected = Trimming { trim: Trim::MinId(id), blocks_only: None };
        assert_eq!(trimmed("XTRIM k MINID 5"), Ok(Some(expected)));
        let expected = Options {
            id_at: 4,
            id: Chosen::Milliseconds(5),
            creates: false,
            trim: None,
            references: References::Acknowledged,
        };
        assert_eq!(parse("XADD k NOMKSTREAM acked 5-* f v"), Ok(expected));
        let references = |line: &str| parse(line).map(|options| options.references);
        assert_eq!(references("XTRIM k MAXLEN 5"), Ok(References::Keep));
        assert_eq!(references("XTRIM k DELREF MAXLEN 5"), Ok(References::Delete));
        assert_eq!(references("XTRIM k MAXLEN 5 KEEPREF"), Ok(References::Keep));
        assert_eq!(default_limit(0), 10_000);
        assert_eq!(default_limit(usize::MAX), 1_000_000);
        for line in [
            "XADD k MAXLEN -1 * f v",
            "XADD k MAXLEN x * f v",
            "XADD k MAXLEN 5 MINID 5 * f v",
            "XADD k MAXLEN 5 LIMIT 5 * f v",
            "XADD k LIMIT 5 * f v",
            "XADD k LIMIT 0 * f v",
            "XADD k MINID - * f v",
            "XADD k nonsense f v",
            "XTRIM k LIMIT 5",
            "XTRIM k MAXLEN",
            "XTRIM k MAXLEN ~",
            "XTRIM k MAXLEN 5 LIMIT -1",
            "XTRIM k NOMKSTREAM",
            "XTRIM k MAXLEN 5 DELREF ACKED",
            "XADD k KEEPREF KEEPREF * f v",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn identifiers_of_new_entries() {
        let id = |ms, seq| StreamId { ms, seq };
        for (chosen, last, expected) in [
            (Chosen::Nothing, id(0, 0), Some(id(10, 0))),
            (Chosen::Nothing, id(10, 3), Some(id(10, 4))),
            (Chosen::Nothing, id(20, u64::MAX), Some(id(21, 0))),
            (Chosen::Milliseconds(0), id(0, 0), Some(id(0, 1))),
            (Chosen::Milliseconds(5), id(5, 3), Some(id(5, 4))),
            (Chosen::Milliseconds(5), id(5, u64::MAX), None),
            (Chosen::Milliseconds(4), id(5, 0), None),
            (Chosen::Milliseconds(6), id(5, 9), Some(id(6, 0))),
            (Chosen::Whole(id(5, 9)), id(5, 9), None),
            (Chosen::Whole(StreamId::MAX), id(5, 9), Some(StreamId::MAX)),
            (Chosen::Nothing, StreamId::MAX, None),
        ] {
            assert_eq!(new_id(chosen, last, 10).ok(), expected, "{chosen:?} after {last}");
        }
    }
}
