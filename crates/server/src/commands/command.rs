//! A command as one value: its name, the keys it accesses, and its function.
//!
//! Everything else is derived from the value: arity checks, locking, COMMAND INFO and DOCS, ACL
//! categories, metrics and `docs/reference/commands.md`. To add a command, add a `const` to its
//! family's file and a row to [`super::table`].

use std::iter::StepBy;
use std::ops::Range;

use wire::resp::Args;

use super::bitmaps;
use super::context::{
    ARGUMENT_COST, CommandContext, LARGE_ARGUMENT_COST, NOTED_ARGUMENT_COST, is_option,
};
use super::fail::Fail;
use super::sort;
use super::strings;
use crate::config::{KeyEvent, KeyEvents};
use crate::engine::scripts::ScriptOptions;
use crate::engine::secret::{IsSecret, Shown};
use crate::engine::server_state::ServerState;

/// Result of a command function; an error replaces the reply written so far.
pub(crate) type Done = Result<(), Fail>;

/// Flags of a command, with the Redis names in COMMAND INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u64);

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);
    /// May change data, which is logged.
    pub(crate) const WRITE: Flags = Flags(1);
    pub(crate) const READONLY: Flags = Flags(1 << 1);
    /// Rejected when memory is full and nothing can be evicted.
    pub(crate) const DENYOOM: Flags = Flags(1 << 2);
    pub(crate) const ADMIN: Flags = Flags(1 << 3);
    pub(crate) const PUBSUB: Flags = Flags(1 << 4);
    pub(crate) const NOSCRIPT: Flags = Flags(1 << 5);
    pub(crate) const LOADING: Flags = Flags(1 << 7);
    pub(crate) const STALE: Flags = Flags(1 << 8);
    pub(crate) const SKIP_SLOWLOG: Flags = Flags(1 << 10);
    pub(crate) const FAST: Flags = Flags(1 << 11);
    /// Allowed before authentication.
    pub(crate) const NO_AUTH: Flags = Flags(1 << 12);
    pub(crate) const MOVABLEKEYS: Flags = Flags(1 << 13);
    pub(crate) const NO_MULTI: Flags = Flags(1 << 14);
    pub(crate) const ALLOW_BUSY: Flags = Flags(1 << 15);
    pub(crate) const NO_ASYNC_LOADING: Flags = Flags(1 << 9);
    /// Own flag: runs with every stripe locked (KEYS, DBSIZE, FLUSHALL).
    pub(crate) const ALL_KEYS: Flags = Flags(1 << 20);
    /// Own flag: reads what the reactors publish about themselves, so this reactor publishes first.
    pub(crate) const SEES_STATS: Flags = Flags(1 << 21);
    /// Own flag: a container such as CLIENT, which replies `ERR unknown subcommand`.
    pub(crate) const CONTAINER: Flags = Flags(1 << 22);
    /// Own flag: locks stripes itself, one after another; inside EXEC all are already locked
    /// (SCAN).
    pub(crate) const LOCKS_STRIPES: Flags = Flags(1 << 23);
    /// Own flag: runs immediately between MULTI and EXEC instead of being queued.
    pub(crate) const UNQUEUED: Flags = Flags(1 << 24);
    /// Own flag: EXEC.
    pub(crate) const EXECUTES: Flags = Flags(1 << 25);
    /// Own flag: ends a transaction without running it, so it needs no memory.
    pub(crate) const ABANDONS: Flags = Flags(1 << 26);
    /// Own flag: selects the database of the commands that follow it in a transaction (SELECT).
    pub(crate) const SELECTS: Flags = Flags(1 << 27);
    /// Own flag: allowed on a RESP2 connection that has subscriptions.
    pub(crate) const SUBSCRIBER: Flags = Flags(1 << 28);
    /// Own flag: runs even while CLIENT PAUSE suspends all commands (CLIENT UNPAUSE).
    pub(crate) const UNPAUSABLE: Flags = Flags(1 << 29);
    /// Own flag: counts as an access of its keys even with CLIENT NO-TOUCH (TOUCH).
    pub(crate) const TOUCHES: Flags = Flags(1 << 30);
    /// Own flag: the log record may contain stored values as well as the arguments (COPY, SPOP,
    /// ZUNIONSTORE).
    pub(crate) const COPIES: Flags = Flags(1 << 16);
    /// Own flag: publishes `keymiss` for a missing key, although it is a write (GETDEL, GETEX).
    pub(crate) const MISSES: Flags = Flags(1 << 17);
    /// Own flag: does not publish `keymiss`, although it is a read (OBJECT, MEMORY USAGE).
    pub(crate) const NO_MISSES: Flags = Flags(1 << 18);
    /// Own flag: not available over HTTP, where every request has a separate session and must not
    /// wait. Such commands concern their connection or wait for a snapshot (AUTH, MULTI, SUBSCRIBE,
    /// SAVE).
    pub(crate) const NO_HTTP: Flags = Flags(1 << 19);
    /// Own flag: the reply waits for the log or a deadline (WAIT, WAITAOF; not blocking commands in
    /// Redis 7.2).
    pub(crate) const WAITS: Flags = Flags(1 << 6);
    /// May follow ASKING in a cluster.
    pub(crate) const ASKING: Flags = Flags(1 << 37);
    /// May wait for its keys.
    pub(crate) const BLOCKING: Flags = Flags(1 << 31);
    /// Not sent to clients in MONITOR mode by the server: EVAL sends itself before its commands.
    pub(crate) const SKIP_MONITOR: Flags = Flags(1 << 32);
    /// The number of keys may be zero, which the positions of keys do not show.
    pub(crate) const NO_MANDATORY_KEYS: Flags = Flags(1 << 33);
    /// Own flag: runs a script, which may change data unless the command only reads.
    pub(crate) const RUNS_SCRIPT: Flags = Flags(1 << 34);
    /// Own flag: changes the libraries of functions, whose stripe is locked.
    pub(crate) const LIBRARIES: Flags = Flags(1 << 35);
    /// Own flag: binds its connection to its reactor (CLIENT TRACKING).
    pub(crate) const TRACKS: Flags = Flags(1 << 36);
    /// Own flag: has an effect that others see, although it is not a write (PUBLISH, PFCOUNT): read-only
    /// scripts may not call it, and CLIENT PAUSE WRITE defers it.
    // Source: Redis 7.2 `server.h`, `CMD_MAY_REPLICATE`
    pub(crate) const MAY_REPLICATE: Flags = Flags(1 << 38);

    /// The flags that COMMAND INFO shows, in the order of Redis.
    pub(crate) const NAMES: &'static [(Flags, &'static str)] = &[
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::PUBSUB, "pubsub"),
        (Flags::NOSCRIPT, "noscript"),
        (Flags::BLOCKING, "blocking"),
        (Flags::LOADING, "loading"),
        (Flags::STALE, "stale"),
        (Flags::SKIP_MONITOR, "skip_monitor"),
        (Flags::SKIP_SLOWLOG, "skip_slowlog"),
        (Flags::ASKING, "asking"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::NO_MULTI, "no_multi"),
        (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (Flags::MOVABLEKEYS, "movablekeys"),
        (Flags::NO_ASYNC_LOADING, "no_async_loading"),
        (Flags::ALLOW_BUSY, "allow_busy"),
    ];

    /// The flags that COMMAND INFO does not show.
    const EXTENSIONS: [Flags; 20] = [
        Flags::ALL_KEYS,
        Flags::SEES_STATS,
        Flags::CONTAINER,
        Flags::LOCKS_STRIPES,
        Flags::UNQUEUED,
        Flags::EXECUTES,
        Flags::ABANDONS,
        Flags::SELECTS,
        Flags::SUBSCRIBER,
        Flags::UNPAUSABLE,
        Flags::TOUCHES,
        Flags::COPIES,
        Flags::MISSES,
        Flags::NO_MISSES,
        Flags::NO_HTTP,
        Flags::WAITS,
        Flags::RUNS_SCRIPT,
        Flags::LIBRARIES,
        Flags::TRACKS,
        Flags::MAY_REPLICATE,
    ];

    pub(crate) const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    #[inline]
    pub(crate) const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Every flag has a distinct bit.
const _: () = {
    let mut taken = 0;
    let mut at = 0;
    while at < Flags::NAMES.len() + Flags::EXTENSIONS.len() {
        let names = Flags::NAMES.len();
        let bit = if at < names { Flags::NAMES[at].0.0 } else { Flags::EXTENSIONS[at - names].0 };
        assert!(bit.is_power_of_two());
        assert!(taken & bit == 0);
        taken |= bit;
        at += 1;
    }
};

/// Key events that a command's changes are published as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Events {
    /// The command changes no key.
    None,
    /// Every change publishes this event.
    Each(KeyEvent),
    /// The command's function chooses the event ([`CommandContext::change_as`], [`CommandContext::delete`],
    /// [`CommandContext::announce`]), or publishes none (FLUSHALL).
    Chosen,
}

impl Events {
    pub(crate) fn each(self) -> Option<KeyEvent> {
        match self {
            Events::Each(event) => Some(event),
            Events::None | Events::Chosen => None,
        }
    }
}

/// Command groups of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Generic,
    String,
    Hash,
    List,
    Set,
    SortedSet,
    Bitmap,
    HyperLogLog,
    Geo,
    Connection,
    Server,
    Cluster,
    Transactions,
    PubSub,
    Scripting,
    Stream,
    /// Not one of Redis.
    TimeSeries,
}

impl Group {
    /// Whether the keys of its commands have collections.
    pub(crate) const fn has_collections(self) -> bool {
        use Group::{Geo, Hash, List, Set, SortedSet, Stream, TimeSeries};
        matches!(self, Hash | List | Set | SortedSet | Stream | Geo | TimeSeries)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Geo => "geo",
            Group::Connection => "connection",
            Group::Cluster => "cluster",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
            Group::Stream => "stream",
            Group::TimeSeries => "timeseries",
        }
    }

    /// Returns an event of the group's class.
    pub(crate) const fn event(self, name: &'static str) -> KeyEvent {
        let class = match self {
            Group::String | Group::Bitmap | Group::HyperLogLog => KeyEvents::STRING,
            Group::List => KeyEvents::LIST,
            Group::Set => KeyEvents::SET,
            Group::Hash => KeyEvents::HASH,
            Group::SortedSet | Group::Geo => KeyEvents::ZSET,
            Group::Stream => KeyEvents::STREAM,
            Group::TimeSeries => KeyEvents::MODULE,
            _ => KeyEvents::GENERIC,
        };
        KeyEvent { class, name }
    }
}

/// Access of a command to the keys of one specification.
/// Source: Redis documentation, "Command key specifications".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyAccess {
    /// RO: reads the value and returns or uses it (ACCESS).
    Read,
    /// RO without ACCESS: existence, type, expiry.
    Probe,
    /// RW: reads and changes (UPDATE).
    Update,
    /// RW that also returns the previous value (ACCESS UPDATE).
    ReadUpdate,
    /// RW that removes parts of the value (DELETE).
    Delete,
    /// RW that removes parts of the value and returns them (ACCESS DELETE).
    ReadDelete,
    /// OW: overwrites without reading.
    Overwrite,
    /// OW INSERT: writes a new key.
    Create,
    /// SET: like [`KeyAccess::ReadUpdate`] with GET or a comparison, otherwise like
    /// [`KeyAccess::Overwrite`].
    UpdateOrOverwrite,
    /// BITFIELD: like [`KeyAccess::Read`] with GET only, otherwise like [`KeyAccess::ReadUpdate`].
    ReadOrUpdate,
    /// RM: deletes.
    Remove,
    /// RW INSERT: adds without changing existing parts.
    Insert,
    /// RW that only changes how a value is stored (ACCESS).
    Renew,
    /// RW INSERT that also reads the previous value (ACCESS INSERT).
    ReadInsert,
    /// A shard channel, which a proxy uses like a key to choose the server.
    Channel,
}

impl KeyAccess {
    pub(crate) fn flag_names(self) -> &'static [&'static str] {
        match self {
            KeyAccess::Read => &["RO", "access"],
            KeyAccess::Probe => &["RO"],
            KeyAccess::Update => &["RW", "update"],
            KeyAccess::ReadUpdate => &["RW", "access", "update"],
            KeyAccess::Delete => &["RW", "delete"],
            KeyAccess::ReadDelete => &["RW", "access", "delete"],
            KeyAccess::Overwrite => &["OW", "update"],
            KeyAccess::Create => &["OW", "insert"],
            KeyAccess::UpdateOrOverwrite | KeyAccess::ReadOrUpdate => {
                &["RW", "access", "update", "variable_flags"]
            }
            KeyAccess::Remove => &["RM", "delete"],
            KeyAccess::Insert => &["RW", "insert"],
            KeyAccess::Renew => &["RW", "access"],
            KeyAccess::ReadInsert => &["RW", "access", "insert"],
            KeyAccess::Channel => &["not_key"],
        }
    }

    /// Returns the access of one request.
    pub(crate) fn of_request(self, request: Args<'_>) -> KeyAccess {
        match self {
            KeyAccess::UpdateOrOverwrite if strings::reads_old_value(request) => {
                KeyAccess::ReadUpdate
            }
            KeyAccess::UpdateOrOverwrite => KeyAccess::Overwrite,
            KeyAccess::ReadOrUpdate if !bitmaps::writes_fields(request) => KeyAccess::Read,
            KeyAccess::ReadOrUpdate => KeyAccess::ReadUpdate,
            other => other,
        }
    }
}

/// Channels that a command publishes to or subscribes to, which its user must be permitted to
/// access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelAccess {
    None,
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// All arguments, which are patterns of channels.
    Patterns,
}

/// Positions of keys among the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPlaces {
    /// From `first` to `last` (negative: from the end) in steps. Position 0 is the name.
    Range { first: usize, last: isize, step: usize },
    /// A count at `count_at`, followed by that many keys in steps.
    Counted { count_at: usize, step: usize },
    /// The argument after the last `keyword` from `first` on. `options`: words, the keyword
    /// included, with the number of values that follow each. `is_shown`: Redis names the
    /// keyword in COMMAND INFO.
    Keyword {
        keyword: &'static str,
        first: usize,
        options: &'static [(&'static str, usize)],
        is_shown: bool,
    },
    /// The first half of the arguments after the option STREAMS, which follows other options from
    /// `start` on.
    Streams { start: usize },
    /// All arguments after `keyword`, which follows other options from `first` on; without it the
    /// argument at `instead`. `options`: words with the number of values that follow each.
    Tail {
        keyword: &'static str,
        first: usize,
        options: &'static [(&'static str, usize)],
        instead: usize,
    },
    /// Keys whose names the command makes of stored values.
    Elsewhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeySpec {
    pub(crate) places: KeyPlaces,
    pub(crate) access: KeyAccess,
    /// Notes as in Redis, for COMMAND INFO.
    pub(crate) notes: Option<&'static str>,
}

impl KeySpec {
    /// One key at argument 1: most commands.
    pub(crate) const fn one(access: KeyAccess) -> KeySpec {
        KeySpec::range(1, 1, 1, access)
    }

    pub(crate) const fn range(
        first: usize,
        last: isize,
        step: usize,
        access: KeyAccess,
    ) -> KeySpec {
        KeySpec { places: KeyPlaces::Range { first, last, step }, access, notes: None }
    }

    pub(crate) const fn counted(count_at: usize, access: KeyAccess) -> KeySpec {
        KeySpec { places: KeyPlaces::Counted { count_at, step: 1 }, access, notes: None }
    }

    /// A count, followed by that many pairs of a key and its value.
    pub(crate) const fn counted_pairs(count_at: usize, access: KeyAccess) -> KeySpec {
        KeySpec { places: KeyPlaces::Counted { count_at, step: 2 }, access, notes: None }
    }

    pub(crate) const fn streams(start: usize, access: KeyAccess) -> KeySpec {
        KeySpec { places: KeyPlaces::Streams { start }, access, notes: None }
    }

    pub(crate) const fn noted(self, notes: &'static str) -> KeySpec {
        KeySpec { notes: Some(notes), ..self }
    }

    #[inline]
    pub(crate) fn positions(&self, args: Args<'_>) -> Result<StepBy<Range<usize>>, BadKeyCount> {
        match self.places {
            KeyPlaces::Range { first, last, step } => {
                let end = if last < 0 {
                    args.len().checked_add_signed(last).ok_or(BadKeyCount)?
                } else {
                    last.unsigned_abs()
                };
                Ok((first..end.saturating_add(1).min(args.len())).step_by(step))
            }
            KeyPlaces::Counted { count_at, step } => {
                Ok(counted_keys(args, count_at, step)?.step_by(step))
            }
            KeyPlaces::Elsewhere => Ok((0..0).step_by(1)),
            KeyPlaces::Keyword { keyword, first, options, .. } => {
                Ok(key_after(args, keyword, first, options).step_by(1))
            }
            KeyPlaces::Tail { keyword, first, options, instead } => {
                let tail = keys_after(args, keyword, first, options);
                // ACL DRYRUN checks requests that have too few arguments.
                let without = instead.min(args.len())..args.len().min(instead + 1);
                Ok(tail.unwrap_or(without).step_by(1))
            }
            KeyPlaces::Streams { .. } => Ok(stream_keys(args)?.step_by(1)),
        }
    }
}

/// Positions from the first key after a count to the end of the last one.
fn counted_keys(args: Args<'_>, count_at: usize, step: usize) -> Result<Range<usize>, BadKeyCount> {
    let text = args.try_get(count_at).ok_or(BadKeyCount)?;
    let count = wire::resp::parse_i64_strict(text).ok_or(BadKeyCount)?;
    let count = usize::try_from(count).map_err(|_| BadKeyCount)?;
    if count > (args.len() - count_at - 1) / step {
        return Err(BadKeyCount);
    }
    let first = count_at + 1;
    Ok(first..first + count * step)
}

type OptionValues = [(&'static str, usize)];

/// The number of values that follow an option; 0 if it is unknown.
fn values_of(option: &[u8], options: &OptionValues) -> usize {
    let known = options.iter().find(|(name, _)| is_option(option, name));
    known.map_or(0, |(_, values)| *values)
}

/// The position after the last `keyword`; empty without it.
fn key_after(args: Args<'_>, keyword: &str, first: usize, options: &OptionValues) -> Range<usize> {
    let mut key = 0..0;
    let mut at = first;
    while let Some(word) = args.try_get(at) {
        if is_option(word, keyword) && at + 1 < args.len() {
            key = at + 1..at + 2;
        }
        at += 1 + values_of(word, options);
    }
    key
}

/// All positions after `keyword`.
fn keys_after(
    args: Args<'_>,
    keyword: &str,
    first: usize,
    options: &OptionValues,
) -> Option<Range<usize>> {
    let mut at = first;
    while let Some(word) = args.try_get(at) {
        if is_option(word, keyword) {
            return Some(at + 1..args.len());
        }
        at += 1 + values_of(word, options);
    }
    None
}

/// The first half of the arguments after STREAMS.
fn stream_keys(args: Args<'_>) -> Result<Range<usize>, BadKeyCount> {
    let first = streams_at(args).ok_or(BadKeyCount)? + 1;
    let count = args.len() - first;
    if count == 0 || !count.is_multiple_of(2) {
        return Err(BadKeyCount);
    }
    Ok(first..first + count / 2)
}

/// Position of the option STREAMS. The other options of XREAD and XREADGROUP may precede it.
// Source: Redis 7.2 `db.c`, `xreadGetKeys`
fn streams_at(args: Args<'_>) -> Option<usize> {
    let mut at = 1;
    loop {
        let option = args.try_get(at)?;
        at += if is_option(option, "STREAMS") {
            return Some(at);
        } else if ["BLOCK", "COUNT", "CLAIM"].iter().any(|word| is_option(option, word)) {
            2
        } else if is_option(option, "GROUP") {
            3
        } else if is_option(option, "NOACK") {
            1
        } else {
            return None;
        };
    }
}

pub(crate) type Run = fn(&mut CommandContext<'_>, Args<'_>) -> Done;

/// One command or subcommand.
#[derive(Debug)]
pub(crate) struct Command {
    /// Lowercase. A subcommand has only its own name (`list` of CLIENT), so a name does not
    /// identify a command: special treatment is a flag, and `cargo xtask tidy` rejects comparisons
    /// of names.
    pub(crate) name: &'static str,
    /// The arguments as `docs/reference/commands.md` and HELP show them, without the name.
    pub(crate) syntax: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
    /// The Redis version that introduced the command.
    pub(crate) since: &'static str,
    pub(crate) complexity: &'static str,
    pub(crate) group: Group,
    /// As in Redis: includes the name (and a subcommand's container); negative means at least.
    pub(crate) arity: i32,
    pub(crate) flags: Flags,
    pub(crate) events: Events,
    pub(crate) keys: &'static [KeySpec],
    /// Shard channels, which COMMAND INFO shows like keys. Commands do not treat them as keys.
    pub(crate) channels: &'static [KeySpec],
    pub(crate) channel_access: ChannelAccess,
    /// Hints for clients, with the Redis names (`nondeterministic_output`).
    pub(crate) tips: &'static [&'static str],
    /// ACL categories that follow neither from the group nor from the flags, with their `@`.
    pub(crate) more_categories: &'static [&'static str],
    /// Passwords among the arguments, which MONITOR and SLOWLOG do not show.
    pub(crate) is_secret: IsSecret,
    /// What the script declares that the first argument names, if that is known.
    pub(crate) script_options: fn(&ServerState, &[u8]) -> Option<ScriptOptions>,
    pub(crate) subcommands: &'static [&'static Command],
    /// `args` starts with the name, or for a subcommand with the container's name.
    pub(crate) run: Run,
}

impl Command {
    /// Defaults for `..Command::EMPTY`.
    pub(crate) const EMPTY: Command = Command {
        name: "",
        syntax: "",
        summary: "",
        since: "1.0.0",
        complexity: "O(1)",
        group: Group::Generic,
        arity: 0,
        flags: Flags::NONE,
        events: Events::None,
        keys: &[],
        channels: &[],
        channel_access: ChannelAccess::None,
        tips: &[],
        more_categories: &[],
        is_secret: |_, _| false,
        script_options: |_, _| None,
        subcommands: &[],
        run: run_nothing,
    };

    pub(crate) fn arity_fits(&self, count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }

    /// Cost of one argument: see [`CommandContext::spend`]. `tells`: key events are published.
    #[inline]
    pub(crate) fn argument_cost(&self, tells: bool) -> usize {
        let is_keys = |spec: &KeySpec| match spec.places {
            KeyPlaces::Range { last, .. } => last < 0,
            KeyPlaces::Counted { .. } | KeyPlaces::Streams { .. } | KeyPlaces::Tail { .. } => true,
            KeyPlaces::Keyword { .. } | KeyPlaces::Elsewhere => false,
        };
        let is_write = self.flags.has(Flags::WRITE);
        let has_many_keys = self.keys.iter().any(is_keys);
        let is_noted = matches!(self.group, Group::PubSub | Group::Transactions);
        if is_noted || (has_many_keys && is_write && tells) {
            NOTED_ARGUMENT_COST
        } else if has_many_keys || (is_write && matches!(self.group, Group::SortedSet | Group::Geo))
        {
            LARGE_ARGUMENT_COST
        } else {
            ARGUMENT_COST
        }
    }

    /// The index of the key that determines the stripe of a command with exactly one key.
    #[inline]
    pub(crate) fn single_key(&self) -> Option<usize> {
        match self.keys {
            [KeySpec { places: KeyPlaces::Range { first, last, .. }, .. }]
                if *last == first.cast_signed() =>
            {
                Some(*first)
            }
            _ => None,
        }
    }

    /// Whether a request reads keys that are not among its arguments, so that all stripes must be
    /// locked.
    #[inline]
    pub(crate) fn reads_other_keys(&self, args: Args<'_>) -> bool {
        let has_others = |spec: &KeySpec| spec.places == KeyPlaces::Elsewhere;
        self.flags.has(Flags::MOVABLEKEYS)
            && self.keys.iter().any(has_others)
            && sort::reads_other_keys(args)
    }

    /// Calls `visit` with the position of every key. Fails if a count is not a number or exceeds
    /// the arguments: then nothing is visited, and the command itself reports the error.
    pub(crate) fn key_positions(
        &self,
        args: Args<'_>,
        mut visit: impl FnMut(usize, KeyAccess),
    ) -> Result<(), BadKeyCount> {
        if let [spec] = self.keys {
            spec.positions(args)?.for_each(|at| visit(at, spec.access));
            return Ok(());
        }
        // A caller must find the stripes of all keys locked, or of none.
        for spec in self.keys {
            let _checked = spec.positions(args)?;
        }
        for spec in self.keys {
            spec.positions(args)?.for_each(|at| visit(at, spec.access));
        }
        Ok(())
    }

    /// Returns the positions of the keys, without those of a key specification that does not fit
    /// the arguments: to prefetch them.
    pub(crate) fn likely_keys(&self, args: Args<'_>) -> impl Iterator<Item = usize> {
        self.keys.iter().filter_map(move |spec| spec.positions(args).ok()).flatten()
    }

    /// Whether the arguments contain a request.
    pub(crate) fn has_inner_request(&self) -> bool {
        self.syntax.contains("command [arg ")
    }

    /// Returns a request of this command for MONITOR and SLOWLOG.
    pub(crate) fn shown<'a>(&self, args: Args<'a>) -> Shown<'a> {
        Shown::new(args, self.is_secret)
    }

    /// Returns the key specifications for COMMAND INFO.
    pub(crate) fn shown_keys(&self) -> &'static [KeySpec] {
        if self.channels.is_empty() { self.keys } else { self.channels }
    }

    /// Returns the ACL categories, derived from the group and the flags as in Redis. A container
    /// has none: its subcommands do.
    pub(crate) fn categories(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        let flags = self.flags;
        if flags.has(Flags::WRITE) {
            names.push("@write");
        }
        if flags.has(Flags::READONLY) && self.group != Group::Connection {
            names.push("@read");
        }
        match self.group {
            _ if !self.subcommands.is_empty() => {}
            // WAIT and WAITAOF concern the writes of their connection.
            Group::Generic if flags.has(Flags::WAITS) => names.push("@connection"),
            // SORT has those of the types that it sorts.
            Group::Generic if self.more_categories.contains(&"@list") => {}
            Group::Generic => names.push("@keyspace"),
            Group::String => names.push("@string"),
            Group::Hash => names.push("@hash"),
            Group::List => names.push("@list"),
            Group::Set => names.push("@set"),
            Group::SortedSet => names.push("@sortedset"),
            Group::Bitmap => names.push("@bitmap"),
            Group::HyperLogLog => names.push("@hyperloglog"),
            Group::Geo => names.push("@geo"),
            Group::Connection => names.push("@connection"),
            Group::Transactions => names.push("@transaction"),
            Group::Scripting => names.push("@scripting"),
            Group::Stream => names.push("@stream"),
            // Commands about messages have the flag; Redis has no category for time series.
            Group::Server | Group::PubSub | Group::Cluster | Group::TimeSeries => {}
        }
        if flags.has(Flags::PUBSUB) {
            names.push("@pubsub");
        }
        if flags.has(Flags::ADMIN) {
            names.push("@admin");
            names.push("@dangerous");
        }
        names.extend(self.more_categories);
        names.push(if flags.has(Flags::FAST) { "@fast" } else { "@slow" });
        if flags.has(Flags::BLOCKING) {
            names.push("@blocking");
        }
        names
    }
}

/// A key count that is not a number, or exceeds the number of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadKeyCount;

fn run_nothing(_: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    Err(Fail::Syntax)
}
