//! CLUSTERSCAN: the keys of the whole cluster, which every node has, or those of a slot.

use store::ScanCursor;
use wire::resp::Args;

use super::parse_slot;
use super::slots::{FIRST_TAG, slot_of, tag_of};
use super::view::check_enabled;
use crate::commands::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, is_option};
use crate::commands::fail::Fail;
use crate::commands::generic::scan_keys;
use crate::commands::scan::ScanOptions;

/// CLUSTERSCAN, of Valkey.
pub(crate) const CLUSTERSCAN: Command = Command {
    name: "clusterscan",
    syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type] [SLOT slot]",
    summary: "Iterates over the keys of all nodes, or of a slot, some with each call.",
    since: "9.1.0",
    complexity: "O(1) for every call and key, O(N) for a complete iteration over N keys of all slots",
    group: Group::Generic,
    arity: -2,
    flags: Flags::READONLY.and(Flags::LOCKS_STRIPES),
    channels: &[KeySpec::one(KeyAccess::Channel)],
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    run: clusterscan,
    ..Command::EMPTY
};

/// Characters of the run's identifier in a cursor. A cursor of an earlier run begins again.
const RUN_CHARS: usize = 8;

/// A cursor as clients see it: `run-{tag}-position`. The tag leads cluster clients to a node.
// Source: Valkey 9.1 documentation, "CLUSTERSCAN"
#[derive(Debug, PartialEq, Eq)]
struct Cursor<'a> {
    run: &'a str,
    tag: &'a str,
    position: u64,
}

impl<'a> Cursor<'a> {
    fn parse(text: &'a [u8]) -> Option<Cursor<'a>> {
        let (run, rest) = str::from_utf8(text).ok()?.split_once("-{")?;
        let (tag, digits) = rest.split_once("}-")?;
        let is_tag = (1..=FIRST_TAG.len()).contains(&tag.len())
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let position = digits.parse().ok().filter(|_| is_tag && is_number)?;
        Some(Cursor { run, tag, position })
    }
}

fn clusterscan(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_enabled(cx)?;
    let run = &cx.shared.identity.run_id[..RUN_CHARS];
    let cursor = match args.get(1) {
        b"0" => None,
        text => Some(Cursor::parse(text).ok_or(Fail::text("ERR Invalid cursor"))?),
    };
    let mut slot = None;
    let options = ScanOptions::parse_with(args, 2, |name, value| {
        if !is_option(name, "SLOT") {
            return Ok(false);
        }
        slot = Some(parse_slot(value)?);
        Ok(true)
    })?;
    options.refuse_no_values()?;
    let tag = match (&cursor, slot) {
        (Some(cursor), _) => cursor.tag.to_owned(),
        (None, Some(slot)) => tag_of(slot),
        (None, None) => FIRST_TAG.to_owned(),
    };
    let position = cursor.filter(|cursor| cursor.run == run).map_or(0, |cursor| cursor.position);
    let is_in_slot = |key: &[u8]| slot.is_none_or(|slot| slot_of(key) == slot);
    scan_keys(cx, ScanCursor(position), &options, is_in_slot, |reply, next| match next {
        0 => reply.bulk(b"0"),
        next => reply.bulk(format!("{run}-{{{tag}}}-{next}").as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_have_three_parts() {
        let expected = Cursor { run: "0a1b2c3d", tag: "06S", position: 17 };
        assert_eq!(Cursor::parse(b"0a1b2c3d-{06S}-17"), Some(expected));
        for text in ["1", "x-{06S}-", "x-{06S}-x", "x-{06S}-+1", "x-{}-1", "x-{0000}-1", "x-06S-1"]
        {
            assert_eq!(Cursor::parse(text.as_bytes()), None, "{text}");
        }
        let long = format!("x-{{06S}}-{}0", u64::MAX);
        assert_eq!(Cursor::parse(long.as_bytes()), None);
    }
}
