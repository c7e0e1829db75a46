//! CLIENT LIST and CLIENT INFO: one line for each client.
//!
//! The lines are built from the rows that reactors publish: this connection's row is current,
//! others are as of their last request, and their buffer sizes are at most a second old.

use std::fmt::Write as _;

use base::time::MonoNs;
use wire::resp::Args;

use super::filter::{Filter, IdWords};
use super::{ADMIN_FLAGS, OWN};
use crate::commands::command::{Command, Done, Flags, Group};
use crate::commands::context::{CommandContext, is_option};
use crate::commands::fail::Fail;
use crate::commands::session::Session;
use crate::config::Settings;
use crate::engine::client_address::ClientAddress;
use crate::engine::client_row::ClientRow;
use crate::engine::requests::RequestKinds;
use crate::engine::server_state::ServerState;

/// CLIENT INFO: this connection.
pub(super) const INFO: Command = Command {
    name: "info",
    summary: "Describes the connection.",
    since: "6.2.0",
    group: Group::Connection,
    arity: 2,
    flags: OWN.and(Flags::SEES_STATS),
    tips: &["nondeterministic_output"],
    run: info,
    ..Command::EMPTY
};

fn info(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let now = cx.now.mono;
    let published = cx.shared.published[cx.reactor.index].lock();
    let known = published.clients.get(&cx.session.id.0).cloned();
    drop(published);
    let mut row = known.unwrap_or_else(|| cx.session.row(cx.reactor.index, now));
    cx.session.update_row(&mut row, now);
    let mut text = String::new();
    let lists = Lists::of(cx);
    lists.write_row(&row, Some(args), now, &mut text);
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Describes the connection of a refused request, for ACL LOG.
pub(in crate::commands) fn info_line(
    shared: &ServerState,
    session: &Session,
    reactor: usize,
    now: MonoNs,
) -> String {
    let known = shared.published[reactor].lock().clients.get(&session.id.0).cloned();
    let mut row = known.unwrap_or_else(|| session.row(reactor, now));
    session.update_row(&mut row, now);
    let mut text = String::new();
    let settings = shared.settings.load();
    let lists = Lists { kinds: &shared.request_kinds, settings: &settings };
    lists.write_row(&row, None, now, &mut text);
    text.truncate(text.trim_end().len());
    text
}

/// CLIENT LIST: all connections, or some.
pub(super) const LIST: Command = Command {
    name: "list",
    syntax: "[ID client-id [client-id ...]] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] \
             [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME <YES | NO>] \
             [MAXAGE seconds] [IDLE seconds] [FLAGS flags] [NAME connection-name] \
             [LIB-NAME libname] [LIB-VER libver] [DB index] [IP ip] [CAPA capa]",
    summary: "Describes all connections, or the ones that match all given filters.",
    since: "2.4.0",
    complexity: "O(N log N) in the number of connections",
    group: Group::Connection,
    arity: -2,
    flags: ADMIN_FLAGS.and(Flags::SEES_STATS),
    tips: &["nondeterministic_output"],
    run: list,
    ..Command::EMPTY
};

// Source: Redis 7.2 `networking.c`, `clientCommand`
fn list(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (users, settings) = (cx.shared.acl.users(), &cx.reactor.settings);
    let filter = Filter::parse(args.skip(2), &users, settings, IdWords::Invalid)?;
    let (now, own) = (cx.now.mono, cx.session.id.0);
    let skips_me = filter.skips_me.unwrap_or(false);
    let rows = all_rows(cx, |row| filter.fits(row, now) && !(skips_me && row.id == own));
    let (lists, mut text) = (Lists::of(cx), String::new());
    for row in &rows {
        let request = (row.id == cx.session.id.0).then_some(args);
        lists.write_row(row, request, cx.now.mono, &mut text);
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Bytes of a request on the wire.
fn request_bytes(args: Args<'_>) -> usize {
    let line_bytes = |number: usize| 3 + number.to_string().len();
    let bulk_bytes = |arg: &[u8]| line_bytes(arg.len()) + arg.len() + 2;
    line_bytes(args.len()) + args.iter().map(bulk_bytes).sum::<usize>()
}

/// Returns the rows, oldest first. Connections that were killed but are not closed yet are left
/// out.
fn all_rows(cx: &CommandContext<'_>, is_wanted: impl Fn(&ClientRow) -> bool) -> Vec<ClientRow> {
    let moving = cx.shared.moving.lock();
    let is_wanted = |row: &&ClientRow| !row.killed && is_wanted(row);
    let mut rows: Vec<ClientRow> = moving.values().filter(is_wanted).cloned().collect();
    for published in &cx.shared.published {
        rows.extend(published.lock().clients.values().filter(is_wanted).cloned());
    }
    drop(moving);
    rows.sort_unstable_by_key(|row| row.id);
    rows
}

/// Client types of Redis. Replicas are clients that receive an RDB file; there are no masters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientType {
    Normal,
    Replica,
    Pubsub,
    Master,
}

impl ClientType {
    // Source: Redis 7.2 `networking.c`, `getClientType`; there, too, MONITOR counts as normal
    pub(super) fn of(row: &ClientRow) -> ClientType {
        if row.is_replica {
            return ClientType::Replica;
        }
        if row.subscriptions.is_none() { ClientType::Normal } else { ClientType::Pubsub }
    }

    pub(super) fn parse(text: &[u8]) -> Result<ClientType, Fail> {
        const NAMES: [(&str, ClientType); 6] = [
            ("NORMAL", ClientType::Normal),
            ("SLAVE", ClientType::Replica),
            ("REPLICA", ClientType::Replica),
            ("PUBSUB", ClientType::Pubsub),
            ("MASTER", ClientType::Master),
            ("PRIMARY", ClientType::Master),
        ];
        let known = NAMES.iter().find(|(name, _)| is_option(text, name));
        let unknown = || Fail::quoting("ERR Unknown client type '", text, "'");
        known.map(|(_, kind)| *kind).ok_or_else(unknown)
    }
}

/// What the lines need besides the rows.
struct Lists<'a> {
    kinds: &'a RequestKinds,
    settings: &'a Settings,
}

impl<'a> Lists<'a> {
    fn of(cx: &'a CommandContext<'_>) -> Lists<'a> {
        Lists { kinds: &cx.shared.request_kinds, settings: &cx.reactor.settings }
    }

    fn address(&self, address: ClientAddress) -> String {
        address.text(self.settings).unwrap_or_else(|| "?:0".to_owned())
    }

    /// Writes one line. `request`: the current request, if the row is the client's own; it is
    /// still in the buffer. The last two fields are specific to Myriad; fields of unsupported
    /// features are zero.
    // Source: Redis 7.2 `networking.c`, `catClientInfoString`; `watch` as in 7.4, `tot-cmds` as in
    // 8.0, `capa` as in Valkey 8.0
    fn write_row(&self, row: &ClientRow, request: Option<Args<'_>>, now: MonoNs, out: &mut String) {
        let seconds_since = |then: MonoNs| now.since(then) / 1_000_000_000;
        let command = match row.commands {
            0 => "NULL",
            _ => self.kinds.name(usize::from(row.last_command)),
        };
        writeln!(
            out,
            "id={id} addr={remote} laddr={local} fd={fd} name={name} age={age} idle={idle} \
             flags={flags} capa={capabilities} db={db} sub={channels} psub={patterns} ssub={shard_channels} multi={queued} watch={watched} qbuf={input} \
             qbuf-free={input_free} argv-mem={arguments} multi-mem={queued_bytes} rbs={reply} rbp={reply} obl={output} oll=0 \
             omem={output} tot-mem={memory} events=r cmd={command} user={user} redir={redirect} resp={resp} \
             lib-name={library} lib-ver={version} tot-cmds={commands} reactor={reactor} durability={durability}",
            id = row.id,
            remote = self.address(row.remote),
            local = self.address(row.local_address()),
            fd = row.fd.map_or(-1, i64::from),
            name = row.name,
            age = seconds_since(row.opened),
            idle = seconds_since(row.active),
            flags = flags(row),
            capabilities = if row.redirects { "r" } else { "" },
            db = row.db,
            channels = row.subscriptions.channels,
            patterns = row.subscriptions.patterns,
            shard_channels = row.subscriptions.shard_channels,
            queued = row.queued,
            watched = row.watched,
            input = row.query_bytes + request.map_or(0, request_bytes),
            input_free = (row.query_heap_bytes as usize).saturating_sub(row.query_bytes),
            arguments = request.map_or(0, |args| args.iter().map(<[u8]>::len).sum()),
            reply = row.reply_heap_bytes,
            queued_bytes = row.queued_bytes,
            output = row.output_bytes,
            memory = row.memory_bytes(),
            user = String::from_utf8_lossy(row.user_name()),
            redirect = row.tracking.as_ref().map_or(-1, |tracking| tracking.redirect),
            resp = row.resp,
            library = row.library_name,
            version = row.library_version,
            commands = row.commands,
            reactor = row.reactor,
            durability = row.durability.word(),
        )
        .expect("writing to a string cannot fail");
    }
}

pub(super) fn flags(row: &ClientRow) -> String {
    let known = [
        (row.is_replica, 'S'),
        (row.monitor, 'O'),
        (!row.subscriptions.is_none(), 'P'),
        (row.queued >= 0, 'x'),
        (row.blocked, 'b'),
        (row.tracking.is_some(), 't'),
        (row.tracking.as_ref().is_some_and(|tracking| tracking.is_broken), 'R'),
        (row.tracking.as_ref().is_some_and(|tracking| tracking.is_broadcast), 'B'),
        (row.closing, 'c'),
        (row.remote == ClientAddress::UnixSocket, 'U'),
        (row.no_evict, 'e'),
        (row.no_touch, 'T'),
    ];
    let set: String = known.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Durability;
    use crate::engine::acl::Identity;
    use crate::engine::client_row::SubscriptionCounts;
    use crate::protocol::ClientProtocol;
    use reactor::{ConnId, Peer};

    #[test]
    fn a_line_has_redis_fields_in_redis_order() {
        let peer = Peer {
            remote: Some("127.0.0.1:5001".parse().unwrap()),
            local: Some("[::1]:6379".parse().unwrap()),
            listener: 0,
        };
        let opened = MonoNs(1_000_000_000);
        let mut session =
            Session::new(ConnId(7), &peer, opened, Identity::anyone(), Durability::Interval);
        session.details.name = "me".to_owned();
        session.details.library_name = "lib".to_owned();
        let mut row = session.row(3, MonoNs(2_500_000_000));
        row.output_bytes = 9;
        row.query_heap_bytes = 100;
        row.reply_heap_bytes = 200;
        let mut args = wire::resp::OwnedArgs::new();
        for arg in [&b"CLIENT"[..], b"LIST"] {
            args.push(arg);
        }
        let kinds = RequestKinds::new(ClientProtocol::ALL.map(|_| vec!["get"]));
        let settings = Settings { unixsocket: "/run/s".into(), ..Settings::default() };
        let lists = Lists { kinds: &kinds, settings: &settings };
        let memory = row.memory_bytes();
        let mut text = String::new();
        lists.write_row(&row, Some(args.as_args()), MonoNs(4_600_000_000), &mut text);
        assert_eq!(
            text,
            format!(
                "id=7 addr=127.0.0.1:5001 laddr=[::1]:6379 fd=-1 name=me age=3 idle=2 flags=N capa= db=0 \
                 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=26 qbuf-free=100 argv-mem=10 multi-mem=0 \
                 rbs=200 rbp=200 obl=9 oll=0 omem=9 tot-mem={memory} events=r cmd=NULL user=default \
                 redir=-1 resp=2 lib-name=lib lib-ver= tot-cmds=0 reactor=3 durability=interval\n"
            )
        );
        row.is_replica = true;
        assert_eq!((flags(&row).as_str(), ClientType::of(&row)), ("S", ClientType::Replica));
        row.is_replica = false;
        row.monitor = true;
        row.no_touch = true;
        assert_eq!(flags(&row), "OT");
        assert_eq!(ClientType::of(&row), ClientType::Normal);
        row.subscriptions = SubscriptionCounts { channels: 1, patterns: 2, shard_channels: 3 };
        assert_eq!((flags(&row).as_str(), ClientType::of(&row)), ("OPT", ClientType::Pubsub));
        text.clear();
        lists.write_row(&row, Some(args.as_args()), MonoNs(4_600_000_000), &mut text);
        assert!(text.contains(" flags=OPT capa= db=0 sub=1 psub=2 ssub=3 multi=-1 "), "{text}");
        row.remote = ClientAddress::UnixSocket;
        text.clear();
        lists.write_row(&row, None, MonoNs(4_600_000_000), &mut text);
        assert!(text.contains(" addr=/run/s:0 laddr=/run/s:0 "), "{text}");
        assert_eq!(flags(&row), "OPUT");
    }

    #[test]
    fn types_have_names_in_any_case() {
        assert_eq!(ClientType::parse(b"normal"), Ok(ClientType::Normal));
        assert_eq!(ClientType::parse(b"Slave"), ClientType::parse(b"REPLICA"));
        let fail = ClientType::parse(b"other").unwrap_err().to_string();
        assert_eq!(fail, "ERR Unknown client type 'other'");
    }
}
