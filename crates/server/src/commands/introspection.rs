//! COMMAND: descriptions of the commands, derived from their definitions.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

mod markdown;
mod syntax;

use wire::resp::{Args, ReplyWriter};

pub use markdown::markdown;

use self::syntax::Kind;
pub(super) use self::syntax::{Argument, arguments};
use super::command::{Command, Done, Flags, Group, KeyAccess, KeyPlaces, KeySpec};
use super::context::{CommandContext, is_option, reply_names};
use super::fail::Fail;
use super::help;
use super::registry::{REGISTRY, is_secret_of_inner};
use crate::engine::glob::Steps;
use crate::engine::requests::RequestId;

const ALWAYS: Flags = Flags::LOADING.and(Flags::STALE);
/// Redis documents these commands in the server group, but puts them into the connection category.
const CATEGORIES: &[&str] = &["@connection"];
const TIPS: &[&str] = &["nondeterministic_output_order"];

pub(crate) const COMMAND: Command = Command {
    name: "command",
    summary: "Returns details of all commands: arity, flags, positions of keys.",
    since: "2.8.13",
    complexity: "O(N) in the number of commands",
    group: Group::Server,
    arity: -1,
    flags: ALWAYS.and(Flags::CONTAINER),
    more_categories: CATEGORIES,
    tips: TIPS,
    subcommands: &[&COUNT, &DOCS, &GETKEYS, &GETKEYSANDFLAGS, &HELP, &INFO, &LIST],
    run: all,
    ..Command::EMPTY
};

fn all(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let ids: Vec<RequestId> = top_level().collect();
    cx.reply.array(ids.len());
    for id in ids {
        write_details(&mut cx.reply, id);
    }
    Ok(())
}

fn top_level() -> impl Iterator<Item = RequestId> {
    REGISTRY.entries().filter(|(_, entry)| entry.parent.is_none()).map(|(id, _)| id)
}

/// COMMAND COUNT: the number of commands.
const COUNT: Command = Command {
    name: "count",
    summary: "Returns the number of commands, without subcommands.",
    since: "2.8.13",
    group: Group::Server,
    arity: 2,
    flags: ALWAYS,
    more_categories: CATEGORIES,
    run: count,
    ..Command::EMPTY
};

fn count(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    cx.reply.count(top_level().count());
    Ok(())
}

/// COMMAND INFO: details of some commands.
const INFO: Command = Command {
    name: "info",
    syntax: "[command-name [command-name ...]]",
    summary: "Returns details of the given commands, or of all.",
    since: "2.8.13",
    complexity: "O(N) in the number of commands",
    group: Group::Server,
    arity: -2,
    flags: ALWAYS,
    more_categories: CATEGORIES,
    tips: TIPS,
    run: info,
    ..Command::EMPTY
};

fn info(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() == 2 {
        return all(cx, args);
    }
    check_names(args)?;
    cx.reply.array(args.len() - 2);
    for name in args.skip(2) {
        match REGISTRY.find_full(name) {
            Some(id) => write_details(&mut cx.reply, id),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

/// Maximum names in one COMMAND INFO or DOCS: more than twice the number of commands. The
/// documentation of one command takes 10 KB and a third of a millisecond.
const NAMES_MAX: usize = 512;

fn check_names(args: Args<'_>) -> Done {
    if args.len() - 2 > NAMES_MAX {
        return Err(Fail::text("ERR too many command names"));
    }
    Ok(())
}

/// Writes one command with its subcommands.
/// Source: Redis 7.2 `server.c`, `addReplyCommandInfo`
fn write_details(reply: &mut ReplyWriter<'_>, id: RequestId) {
    let entry = REGISTRY.entry(id);
    let command = entry.command;
    let flags: Vec<&str> = flag_names(command).collect();
    let specs = command.shown_keys();
    let (first, last, step) = plain_range(specs);
    reply.array(10);
    reply.bulk(entry.full_name.as_bytes());
    reply.integer(command.arity.into());
    write_words(reply, &flags);
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    write_words(reply, &command.categories());
    reply_names(reply, command.tips);
    reply.set(specs.len());
    for spec in specs {
        write_key_spec(reply, *spec);
    }
    if command.subcommands.is_empty() {
        reply.set(0);
        return;
    }
    reply.array(command.subcommands.len());
    entry.children().for_each(|child| write_details(reply, child));
}

fn flag_names(command: &Command) -> impl Iterator<Item = &'static str> {
    Flags::NAMES.iter().filter(|(flag, _)| command.flags.has(*flag)).map(|(_, name)| *name)
}

fn write_words(reply: &mut ReplyWriter<'_>, words: &[&str]) {
    reply.set(words.len());
    for word in words {
        reply.simple(word);
    }
}

/// First key, last key and step, for clients that do not support key specifications: the only
/// range, or the best approximation by one range. Zeros if there are no keys.
/// Source: Redis 7.2 `server.c`, `populateCommandLegacyRangeSpec`
fn plain_range(specs: &[KeySpec]) -> (i64, i64, i64) {
    if let [KeySpec { places: KeyPlaces::Range { first, last, step }, .. }] = *specs {
        return (length(first), last as i64, length(step));
    }
    let mut run: Option<(usize, isize)> = None;
    for spec in specs {
        let KeyPlaces::Range { first, last, step: 1 } = spec.places else { continue };
        run = match run {
            None => Some((first, last)),
            Some((start, end)) if end + 1 == first.cast_signed() => Some((start, last)),
            apart => apart,
        };
    }
    run.map_or((0, 0, 0), |(first, last)| (length(first), last as i64, 1))
}

/// Source: Redis 7.2 `server.c`, `addReplyCommandKeySpecs`
fn write_key_spec(reply: &mut ReplyWriter<'_>, spec: KeySpec) {
    reply.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = spec.notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    write_words(reply, spec.access.flag_names());
    reply.bulk(b"begin_search");
    write_begin_search(reply, spec.places);
    reply.bulk(b"find_keys");
    write_find_keys(reply, spec.places);
}

/// Where the search for keys begins.
fn write_begin_search(reply: &mut ReplyWriter<'_>, places: KeyPlaces) {
    let (keyword, first) = match places {
        KeyPlaces::Range { first: start, .. } | KeyPlaces::Counted { count_at: start, .. } => {
            return write_search(reply, "index", &[("index", length(start))]);
        }
        KeyPlaces::Keyword { keyword, first, is_shown: true, .. } => (keyword, first),
        KeyPlaces::Streams { start } => ("STREAMS", start),
        KeyPlaces::Keyword { .. } | KeyPlaces::Tail { .. } | KeyPlaces::Elsewhere => {
            return write_search(reply, "unknown", &[]);
        }
    };
    write_search_head(reply, "keyword", 2);
    reply.bulk(b"keyword");
    reply.bulk(keyword.as_bytes());
    reply.bulk(b"startfrom");
    reply.count(first);
}

/// How keys are found from there.
fn write_find_keys(reply: &mut ReplyWriter<'_>, places: KeyPlaces) {
    let range = |last: isize, step| [("lastkey", last as i64), ("keystep", step), ("limit", 0)];
    match places {
        KeyPlaces::Range { first, last, step } => {
            let last = if last < 0 { last } else { last - first.cast_signed() };
            write_search(reply, "range", &range(last, length(step)));
        }
        KeyPlaces::Counted { step, .. } => {
            let numbers = [("keynumidx", 0), ("firstkey", 1), ("keystep", length(step))];
            write_search(reply, "keynum", &numbers);
        }
        KeyPlaces::Keyword { is_shown: true, .. } => write_search(reply, "range", &range(0, 1)),
        KeyPlaces::Streams { .. } => {
            // Half of the arguments.
            write_search(reply, "range", &[("lastkey", -1), ("keystep", 1), ("limit", 2)]);
        }
        KeyPlaces::Keyword { .. } | KeyPlaces::Tail { .. } | KeyPlaces::Elsewhere => {
            write_search(reply, "unknown", &[]);
        }
    }
}

fn write_search(reply: &mut ReplyWriter<'_>, name: &str, numbers: &[(&str, i64)]) {
    write_search_head(reply, name, numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(*number);
    }
}

fn write_search_head(reply: &mut ReplyWriter<'_>, name: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(name.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}

/// COMMAND DOCS: documentation of some commands.
const DOCS: Command = Command {
    name: "docs",
    summary: "Returns the documentation of the given commands, or of all.",
    since: "7.0.0",
    run: docs,
    ..INFO
};

fn docs(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_names(args)?;
    let ids: Vec<RequestId> = if args.len() == 2 {
        top_level().collect()
    } else {
        args.skip(2).iter().filter_map(|name| REGISTRY.find_full(name)).collect()
    };
    cx.reply.map(ids.len());
    for id in ids {
        write_docs(&mut cx.reply, id);
    }
    Ok(())
}

/// Writes one command's name and its documentation.
/// Source: Redis 7.2 `server.c`, `addReplyCommandDocs`
fn write_docs(reply: &mut ReplyWriter<'_>, id: RequestId) {
    let entry = REGISTRY.entry(id);
    let command = entry.command;
    let texts = [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
    ];
    let arguments = entry.arguments();
    let has_arguments = !arguments.is_empty();
    let has_children = !command.subcommands.is_empty();
    reply.bulk(entry.full_name.as_bytes());
    reply.map(texts.len() + usize::from(has_arguments) + usize::from(has_children));
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if has_arguments {
        reply.bulk(b"arguments");
        write_arguments(reply, arguments);
    }
    if has_children {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        for child in entry.children() {
            write_docs(reply, child);
        }
    }
}

fn write_arguments(reply: &mut ReplyWriter<'_>, arguments: &[Argument]) {
    reply.array(arguments.len());
    for argument in arguments {
        write_argument(reply, argument);
    }
}

/// Source: Redis 7.2 `server.c`, `addReplyCommandArgList`
fn write_argument(reply: &mut ReplyWriter<'_>, argument: &Argument) {
    let flags = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.repeats_token, "multiple_token"),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    let name = argument.name.as_bytes();
    let is_key = matches!(argument.kind, Kind::Key(_));
    // Name, type, and either the display text or the nested arguments.
    let fields = 3
        + usize::from(is_key)
        + usize::from(argument.token.is_some())
        + usize::from(!flags.is_empty());
    reply.map(fields);
    reply.bulk(b"name");
    reply.bulk(name);
    reply.bulk(b"type");
    reply.bulk(argument.kind.name().as_bytes());
    if let Kind::Value(_) | Kind::Key(_) | Kind::Token = argument.kind {
        reply.bulk(b"display_text");
        reply.bulk(name);
    }
    if let Kind::Key(spec) = argument.kind {
        reply.bulk(b"key_spec_index");
        reply.count(spec);
    }
    if let Some(token) = argument.token {
        reply.bulk(b"token");
        reply.bulk(token.as_bytes());
    }
    if !flags.is_empty() {
        reply.bulk(b"flags");
        write_words(reply, &flags);
    }
    if let Kind::OneOf(parts) | Kind::Block(parts) = &argument.kind {
        reply.bulk(b"arguments");
        write_arguments(reply, parts);
    }
}

/// COMMAND GETKEYS: the keys of a request.
const GETKEYS: Command = Command {
    name: "getkeys",
    syntax: "command [arg [arg ...]]",
    summary: "Returns the keys of a request.",
    since: "2.8.13",
    complexity: "O(N) in the number of arguments",
    group: Group::Server,
    arity: -3,
    flags: ALWAYS,
    more_categories: CATEGORIES,
    run: getkeys,
    is_secret: |args, at| is_secret_of_inner(args, 2, at),
    ..Command::EMPTY
};

fn getkeys(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = args.skip(2);
    let keys = keys_of(request)?;
    cx.reply.array(keys.len());
    for (at, _) in keys {
        cx.reply.bulk(request.get(at));
    }
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS: the keys of a request, and how it accesses them.
const GETKEYSANDFLAGS: Command = Command {
    name: "getkeysandflags",
    summary: "Returns the keys of a request, each with its access flags.",
    since: "7.0.0",
    run: getkeysandflags,
    ..GETKEYS
};

fn getkeysandflags(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = args.skip(2);
    let keys = keys_of(request)?;
    cx.reply.array(keys.len());
    for (at, access) in keys {
        cx.reply.array(2);
        cx.reply.bulk(request.get(at));
        write_words(&mut cx.reply, access.flag_names());
    }
    Ok(())
}

/// Positions of the keys in a request. Errors are those of Redis's `getKeysSubcommandImpl`.
fn keys_of(request: Args<'_>) -> Result<Vec<(usize, KeyAccess)>, Fail> {
    let found = REGISTRY.find_request(request);
    let id = found.ok_or(Fail::text("ERR Invalid command specified"))?;
    let command = REGISTRY.entry(id).command;
    if command.keys.is_empty() {
        return Err(Fail::text("ERR The command has no key arguments"));
    }
    if !command.arity_fits(request.len()) {
        return Err(Fail::text("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::new();
    let listed =
        command.key_positions(request, |at, access| keys.push((at, access.of_request(request))));
    // A count of 0 locks nothing, and the command rejects it; here it means that there are no keys.
    let has_keys = |spec: &KeySpec| match spec.places {
        KeyPlaces::Keyword { .. } | KeyPlaces::Elsewhere => true,
        _ => spec.positions(request).is_ok_and(|places| places.len() > 0),
    };
    if listed.is_err() || !command.keys.iter().all(has_keys) {
        if command.flags.has(Flags::NO_MANDATORY_KEYS) {
            return Ok(Vec::new());
        }
        return Err(Fail::text("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}

/// COMMAND LIST: names of commands.
const LIST: Command = Command {
    name: "list",
    syntax: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
    summary: "Returns the names of all commands and subcommands, or of some.",
    since: "7.0.0",
    complexity: "O(N) in the number of commands",
    group: Group::Server,
    arity: -2,
    flags: ALWAYS,
    more_categories: CATEGORIES,
    tips: TIPS,
    run: list,
    ..Command::EMPTY
};

fn list(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let filter = Filter::parse(args)?;
    let names: Vec<&str> = REGISTRY
        .entries()
        .filter(|(_, entry)| filter.passes(&entry.full_name, entry.command))
        .map(|(_, entry)| entry.full_name.as_str())
        .collect();
    cx.reply.array(names.len());
    for name in names {
        cx.reply.bulk(name.as_bytes());
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter<'a> {
    All,
    /// Matches nothing: there are no modules.
    Module,
    /// Commands of a category, given without its `@`.
    Category(&'a [u8]),
    Pattern(&'a [u8]),
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>) -> Result<Filter<'a>, Fail> {
        match args.len() {
            2 => return Ok(Filter::All),
            5 if is_option(args.get(2), "FILTERBY") => {}
            _ => return Err(Fail::Syntax),
        }
        let wanted = args.get(4);
        match args.get(3) {
            by if is_option(by, "MODULE") => Ok(Filter::Module),
            by if is_option(by, "ACLCAT") => Ok(Filter::Category(wanted)),
            by if is_option(by, "PATTERN") => Ok(Filter::Pattern(wanted)),
            _ => Err(Fail::Syntax),
        }
    }

    fn passes(self, full_name: &str, command: &Command) -> bool {
        match self {
            Filter::All => true,
            Filter::Module => false,
            Filter::Category(wanted) => command
                .categories()
                .iter()
                .any(|category| category.as_bytes()[1..].eq_ignore_ascii_case(wanted)),
            Filter::Pattern(pattern) => {
                Steps::default().matches_ignoring_case(pattern, full_name.as_bytes())
            }
        }
    }
}

/// COMMAND HELP: the subcommands.
const HELP: Command = Command {
    more_categories: CATEGORIES,
    ..help::subcommand("Lists the subcommands of COMMAND.", "5.0.0", Group::Server, |cx, _| {
        help::reply(cx, &COMMAND)
    })
};

/// A position or step of the table, all far below the limit.
fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_range_is_what_one_run_of_keys_says() {
        const ACCESS: KeyAccess = KeyAccess::Read;
        let range = |first, last, step| KeySpec::range(first, last, step, ACCESS);
        for (specs, expected) in [
            (&[][..], (0, 0, 0)),
            (&[range(1, 1, 1)], (1, 1, 1)),
            (&[range(1, -1, 2)], (1, -1, 2)),
            (&[range(1, 1, 1), range(2, 2, 1)], (1, 2, 1)),
            (&[range(1, 1, 1), range(2, -1, 1)], (1, -1, 1)),
            (&[range(1, 1, 1), range(3, 3, 1)], (1, 1, 1)),
            (&[KeySpec::counted(1, ACCESS)], (0, 0, 0)),
            (&[range(1, 1, 1), KeySpec::counted(2, ACCESS)], (1, 1, 1)),
        ] {
            assert_eq!(plain_range(specs), expected, "{specs:?}");
        }
    }

    /// Clients without support for key specifications ask the server for the keys if they see this
    /// flag.
    #[test]
    fn keys_that_one_range_cannot_say_are_flagged() {
        for (_, entry) in REGISTRY.entries() {
            let is_counted = |spec: &KeySpec| !matches!(spec.places, KeyPlaces::Range { .. });
            assert_eq!(
                entry.command.flags.has(Flags::MOVABLEKEYS),
                entry.command.keys.iter().any(is_counted),
                "{}",
                entry.full_name
            );
        }
    }
}
