//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO: client-side caching.

use reactor::ConnId;
use store::Reader;
use wire::resp::Args;

use super::OWN;
use crate::commands::Session;
use crate::commands::command::{Command, Done, Flags, Group};
use crate::commands::context::{CommandContext, integer, is_option, reply_names, yes_or_no};
use crate::commands::fail::Fail;
use crate::commands::session::{Tracking, TrackingMode, redirect};
use crate::engine::invalidations::{
    Invalidation, PREFIX_BYTES_MAX, PREFIXES_MAX, TRACKED_NAME_BYTES_MAX,
};
use crate::engine::server_state::ServerState;

pub(super) const TRACKING: Command = Command {
    name: "tracking",
    syntax: "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    summary: "Starts or ends invalidation messages about keys that the connection has read.",
    since: "6.0.0",
    complexity: "O(1); some options O(N) in the prefixes of all connections",
    group: Group::Connection,
    arity: -3,
    flags: OWN.and(Flags::TRACKS),
    run: tracking,
    ..Command::EMPTY
};

const TOO_MANY_PREFIXES: Fail = Fail::text("ERR too many or too long prefixes");

const MAY_NOT_READ: Fail =
    Fail::text("NOPERM the user may not read all keys with the prefixes of BCAST");

/// Options of CLIENT TRACKING.
#[derive(Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
struct Options {
    redirect: Option<ConnId>,
    prefixes: Vec<Box<[u8]>>,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, Fail> {
        let mut options = Options::default();
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            if is_option(word, "BCAST") {
                options.broadcast = true;
            } else if is_option(word, "OPTIN") {
                options.opt_in = true;
            } else if is_option(word, "OPTOUT") {
                options.opt_out = true;
            } else if is_option(word, "NOLOOP") {
                options.no_loop = true;
            } else if is_option(word, "REDIRECT") {
                options.set_redirect(rest.next().ok_or(Fail::Syntax)?)?;
            } else if is_option(word, "PREFIX") {
                options.add_prefix(rest.next().ok_or(Fail::Syntax)?)?;
            } else {
                return Err(Fail::Syntax);
            }
        }
        Ok(options)
    }

    fn set_redirect(&mut self, id: &[u8]) -> Done {
        if self.redirect.is_some() {
            return Err(Fail::text("ERR A client can only redirect to a single other client"));
        }
        self.redirect = Some(ConnId(u64::try_from(integer(id)?).unwrap_or(0)));
        Ok(())
    }

    fn add_prefix(&mut self, prefix: &[u8]) -> Done {
        if self.prefixes.len() >= PREFIXES_MAX || prefix.len() > PREFIX_BYTES_MAX {
            return Err(TOO_MANY_PREFIXES);
        }
        self.prefixes.push(prefix.into());
        Ok(())
    }

    fn mode(&self) -> TrackingMode {
        match self {
            Options { broadcast: true, .. } => TrackingMode::Broadcast,
            Options { opt_in: true, .. } => TrackingMode::OptIn,
            Options { opt_out: true, .. } => TrackingMode::OptOut,
            _ => TrackingMode::Default,
        }
    }

    /// Checks that the options fit each other and the present mode of the connection.
    fn check(&self, now: Option<&Tracking>) -> Done {
        if !self.broadcast && !self.prefixes.is_empty() {
            return Err(Fail::text("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        let was_broadcast = now.map(|now| now.mode == TrackingMode::Broadcast);
        if was_broadcast.is_some_and(|was| was != self.broadcast) {
            return Err(Fail::text(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            ));
        }
        self.check_choice(now)?;
        self.check_prefixes(now)
    }

    /// Checks OPTIN and OPTOUT.
    fn check_choice(&self, now: Option<&Tracking>) -> Done {
        if self.broadcast && (self.opt_in || self.opt_out) {
            return Err(Fail::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opt_in && self.opt_out {
            return Err(Fail::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        let switches = |now: &Tracking| {
            (self.opt_in && now.mode == TrackingMode::OptOut)
                || (self.opt_out && now.mode == TrackingMode::OptIn)
        };
        if now.is_some_and(switches) {
            return Err(Fail::text(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
                 and then re-enabling it with a different mode.",
            ));
        }
        Ok(())
    }

    /// Prefixes of one connection must not contain each other, or it would get messages twice.
    // Source: Redis 7.2 `tracking.c`, `checkPrefixCollisionsOrReply`
    fn check_prefixes(&self, now: Option<&Tracking>) -> Done {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let refuse = |prefix: &[u8], other: &[u8], which: &str| {
            let end = b"'. Prefixes for a single client must not overlap.";
            let start = format!("' overlaps with {which} prefix '");
            Err(Fail::Quoting([b"ERR Prefix '", prefix, start.as_bytes(), other, end].concat()))
        };
        for (at, prefix) in self.prefixes.iter().enumerate() {
            let known = now.iter().flat_map(|now| &now.prefixes);
            if let Some(other) = known.into_iter().find(|other| overlap(prefix, other)) {
                return refuse(prefix, other, "an existing");
            }
            if let Some(other) = self.prefixes[at + 1..].iter().find(|other| overlap(prefix, other))
            {
                return refuse(prefix, other, "another provided");
            }
        }
        Ok(())
    }
}

// Source: Redis 7.2 `networking.c`, `clientCommand`
fn tracking(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let options = Options::parse(args.skip(3))?;
    if is_option(args.get(2), "OFF") {
        end_tracking(cx.shared, cx.session);
        cx.reply.ok();
        return Ok(());
    }
    if !is_option(args.get(2), "ON") {
        return Err(Fail::Syntax);
    }
    let is_known = |id: ConnId| {
        id == cx.session.id
            || cx.shared.published.iter().any(|all| all.lock().clients.contains_key(&id.0))
    };
    if options.redirect.is_some_and(|id| !is_known(id)) {
        return Err(Fail::text("ERR The client ID you want redirect to does not exist"));
    }
    options.check(cx.session.details.tracking())?;
    begin_tracking(cx, options)?;
    cx.reply.ok();
    Ok(())
}

fn begin_tracking(cx: &mut CommandContext<'_>, options: Options) -> Done {
    let mode = options.mode();
    let Options { redirect, prefixes, no_loop, .. } = options;
    let is_new = !cx.session.tracks;
    if mode == TrackingMode::Broadcast
        && let Err(fail) = add_prefixes(cx, prefixes)
    {
        if is_new {
            cx.session.details.rare().tracking = None;
        }
        return Err(fail);
    }
    let tracking = cx.session.details.rare().tracking.get_or_insert_default();
    tracking.mode = mode;
    tracking.redirect = redirect;
    tracking.no_loop = no_loop;
    tracking.is_broken = false;
    cx.session.tracks = true;
    if is_new {
        cx.shared.invalidations.client_came();
    }
    Ok(())
}

/// Adds all prefixes or none. Without any, the client gets messages about all keys.
fn add_prefixes(cx: &mut CommandContext<'_>, prefixes: Vec<Box<[u8]>>) -> Done {
    let reader = reader(cx);
    let is_first = cx.session.details.tracking().is_none_or(|known| known.prefixes.is_empty());
    let prefixes = if is_first && prefixes.is_empty() { vec![Box::default()] } else { prefixes };
    let user = cx.session.identity.user();
    if !prefixes.iter().all(|prefix| user.may_read_all_below(prefix)) {
        return Err(MAY_NOT_READ);
    }
    let tracking = cx.session.details.rare().tracking.get_or_insert_default();
    let is_full = tracking.prefixes.len() + prefixes.len() > PREFIXES_MAX;
    if is_full || !cx.shared.invalidations.broadcast(reader, &prefixes) {
        return Err(TOO_MANY_PREFIXES);
    }
    tracking.prefixes.extend(prefixes);
    Ok(())
}

fn reader(cx: &CommandContext<'_>) -> Reader {
    let reactor = cx.session.details.reactor().unwrap_or(cx.reactor.index);
    Reader { reactor, client: cx.session.id.0 }
}

/// Whether the client becomes a reader of the keys of its next read.
pub(crate) fn records_reads(tracking: &Tracking) -> bool {
    match tracking.mode {
        TrackingMode::Default => true,
        TrackingMode::OptIn => tracking.caching == Some(true),
        TrackingMode::OptOut => tracking.caching != Some(false),
        TrackingMode::Broadcast => false,
    }
}

/// Ends tracking. The keys forget the client when they change.
pub(crate) fn end_tracking(shared: &ServerState, session: &mut Session) {
    session.tracks = false;
    let taken = session.details.rare_if_set().and_then(|rare| rare.tracking.take());
    let Some(tracking) = taken else { return };
    shared.invalidations.client_left();
    if tracking.mode == TrackingMode::Broadcast {
        shared.invalidations.end_broadcast(session.id);
    }
}

impl CommandContext<'_> {
    /// Makes the client a reader of the keys of a read that it ran.
    #[cold]
    pub(in crate::commands) fn track_keys(&mut self, command: &Command, args: Args<'_>) {
        if !self.session.details.tracking().is_some_and(records_reads) {
            return;
        }
        let reader = reader(self);
        let mut keys = Vec::new();
        if command.key_positions(args, |at, _| keys.push(args.get(at))).is_err() {
            return;
        }
        let keys_max = self.reactor.settings.tracking_table_max_keys;
        for bytes in keys {
            let is_full = keys_max != 0 && self.shared.keyspace.readers().keys >= keys_max;
            if is_full || bytes.len() > TRACKED_NAME_BYTES_MAX {
                let client = self.session.id;
                let key = Some(bytes.into());
                let invalidation = Invalidation { client, key, is_redirected: false };
                // Sent at the end of the turn of the reactor.
                let _woken = self.shared.invalidations.send(reader.reactor, invalidation);
                if reader.reactor != self.reactor.index || self.reactor.is_off_reactor {
                    self.shared.links().wake(reader.reactor);
                }
            } else {
                self.locked.add_reader(self.db, self.shared.keyspace.key(bytes), reader);
            }
        }
    }
}

pub(super) const CACHING: Command = Command {
    name: "caching",
    syntax: "<YES | NO>",
    summary: "Chooses whether the keys of the next request are tracked.",
    since: "6.0.0",
    group: Group::Connection,
    arity: 3,
    flags: OWN,
    run: caching,
    ..Command::EMPTY
};

fn caching(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mode = cx.session.details.tracking().map(|tracking| tracking.mode);
    if !matches!(mode, Some(TrackingMode::OptIn | TrackingMode::OptOut)) {
        return Err(Fail::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ));
    }
    let choice = yes_or_no(args.get(2))?;
    if choice && mode != Some(TrackingMode::OptIn) {
        return Err(Fail::text(
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ));
    }
    if !choice && mode != Some(TrackingMode::OptOut) {
        return Err(Fail::text(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ));
    }
    let tracking = cx.session.details.rare().tracking.get_or_insert_default();
    tracking.caching = Some(choice);
    tracking.is_caching_new = true;
    cx.reply.ok();
    Ok(())
}

pub(super) const GETREDIR: Command = Command {
    name: "getredir",
    summary: "Returns the id of the connection to which invalidation messages are redirected.",
    since: "6.0.0",
    group: Group::Connection,
    arity: 2,
    flags: OWN,
    run: |cx, _| {
        cx.reply.integer(redirect(cx.session.details.tracking()));
        Ok(())
    },
    ..Command::EMPTY
};

pub(super) const TRACKINGINFO: Command = Command {
    name: "trackinginfo",
    summary: "Describes the tracking of the connection.",
    since: "6.2.0",
    group: Group::Connection,
    arity: 2,
    flags: OWN,
    run: |cx, _| {
        trackinginfo(cx);
        Ok(())
    },
    ..Command::EMPTY
};

// Source: Redis 7.2 `networking.c`, `clientCommand`
fn trackinginfo(cx: &mut CommandContext<'_>) {
    let tracking = cx.session.details.tracking();
    let flags = tracking.map_or_else(|| vec!["off"], flag_names);
    cx.reply.map(3);
    cx.reply.bulk(b"flags");
    reply_names(&mut cx.reply, &flags);
    cx.reply.bulk(b"redirect");
    cx.reply.integer(redirect(tracking));
    cx.reply.bulk(b"prefixes");
    let prefixes = tracking.map_or(&[][..], |tracking| &tracking.prefixes);
    cx.reply.array(prefixes.len());
    for prefix in prefixes {
        cx.reply.bulk(prefix);
    }
}

fn flag_names(tracking: &Tracking) -> Vec<&'static str> {
    let mut flags = vec!["on"];
    flags.extend(match tracking.mode {
        TrackingMode::Default => None,
        TrackingMode::Broadcast => Some("bcast"),
        TrackingMode::OptIn => Some("optin"),
        TrackingMode::OptOut => Some("optout"),
    });
    flags.extend(match tracking.caching {
        Some(true) => Some("caching-yes"),
        Some(false) => Some("caching-no"),
        None => None,
    });
    flags.extend(tracking.no_loop.then_some("noloop"));
    flags.extend(tracking.is_broken.then_some("broken_redirect"));
    flags
}

/// Ends the effect of CLIENT CACHING after the request that follows it, or after its transaction.
pub(in crate::commands) fn end_caching(session: &mut Session) {
    let is_open = session.transaction.is_some();
    let rare = session.details.rare_if_set();
    let Some(tracking) = rare.and_then(|rare| rare.tracking.as_mut()) else { return };
    if !std::mem::take(&mut tracking.is_caching_new) && !is_open {
        tracking.caching = None;
    }
}
