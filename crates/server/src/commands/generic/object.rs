//! OBJECT: the encoding of a value, and its accesses.

use store::AccessRule;
use wire::resp::Args;

use crate::commands::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::commands::help;

pub(crate) const OBJECT: Command = Command {
    name: "object",
    syntax: "subcommand key",
    summary: "A container for commands about the encoding and the accesses of values.",
    since: "2.2.3",
    complexity: "Depends on the subcommand",
    group: Group::Generic,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[
        &OBJECT_ENCODING,
        &OBJECT_FREQ,
        &OBJECT_HELP,
        &OBJECT_IDLETIME,
        &OBJECT_REFCOUNT,
    ],
    ..Command::EMPTY
};

/// OBJECT ENCODING: the encoding of a value.
const OBJECT_ENCODING: Command = Command {
    name: "encoding",
    syntax: "key",
    summary: "Returns the encoding of a value.",
    since: "2.2.3",
    group: Group::Generic,
    arity: 3,
    flags: Flags::READONLY.and(Flags::NO_MISSES),
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Probe)],
    tips: &["nondeterministic_output"],
    run: object_encoding,
    ..Command::EMPTY
};

fn object_encoding(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    match cx.locked.encoding(cx.db, cx.key(args.get(2))) {
        Some(encoding) => cx.reply.bulk(encoding.name().as_bytes()),
        None => cx.reply.null(),
    }
    Ok(())
}

/// OBJECT FREQ: the access frequency of a key.
const OBJECT_FREQ: Command = Command {
    name: "freq",
    summary: "Returns the logarithmic access counter of a key, under an LFU policy.",
    since: "4.0.0",
    tips: &["nondeterministic_output"],
    run: object_freq,
    ..OBJECT_ENCODING
};

fn object_freq(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let Some((_, frequency)) = cx.locked.access(cx.db, cx.key(args.get(2))) else {
        cx.reply.null();
        return Ok(());
    };
    if cx.locked.params().access.rule() == AccessRule::Lru {
        return Err(Fail::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        ));
    }
    cx.reply.integer(i64::from(frequency));
    Ok(())
}

/// OBJECT HELP: the subcommands.
const OBJECT_HELP: Command =
    help::subcommand("Lists the subcommands of OBJECT.", "6.2.0", Group::Generic, |cx, _| {
        help::reply_lines(cx, &OBJECT_HELP_LINES)
    });

const OBJECT_HELP_LINES: [&str; 15] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Print this help.",
];

/// OBJECT IDLETIME: the time since the last access of a key.
const OBJECT_IDLETIME: Command = Command {
    name: "idletime",
    summary: "Returns the seconds since the last access of a key, unless an LFU policy is set.",
    tips: &["nondeterministic_output"],
    run: object_idletime,
    ..OBJECT_ENCODING
};

fn object_idletime(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let Some((idle_seconds, _)) = cx.locked.access(cx.db, cx.key(args.get(2))) else {
        cx.reply.null();
        return Ok(());
    };
    if cx.locked.params().access.rule() != AccessRule::Lru {
        return Err(Fail::text(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to \
             adjust.",
        ));
    }
    cx.reply.count(idle_seconds);
    Ok(())
}

/// OBJECT REFCOUNT: always one, since values are not shared.
const OBJECT_REFCOUNT: Command = Command {
    name: "refcount",
    summary: "Returns 1 for every key: values are not shared between keys.",
    tips: &["nondeterministic_output"],
    run: object_refcount,
    ..OBJECT_ENCODING
};

fn object_refcount(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if cx.locked.contains(cx.db, cx.key(args.get(2))) {
        cx.reply.integer(1);
    } else {
        cx.reply.null();
    }
    Ok(())
}
