//! CONFIG: the options of the running server.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use std::sync::Arc;

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, is_option};
use super::fail::Fail;
use super::help;
use crate::config::Settings;
use crate::engine::baseline::Baseline;
use crate::engine::server_state::ServerState;
use crate::tls;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

pub(crate) const CONFIG: Command = Command {
    name: "config",
    syntax: "subcommand",
    summary: "A container for commands about options.",
    since: "2.0.0",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&GET, &SET, &RESETSTAT, &REWRITE, &HELP],
    ..Command::EMPTY
};

const GET: Command = Command {
    name: "get",
    syntax: "parameter [parameter ...]",
    summary: "Returns the options whose names match one of the patterns.",
    since: "2.0.0",
    complexity: "O(N) in the number of options",
    group: Group::Server,
    arity: -3,
    flags: ADMIN,
    run: get,
    ..Command::EMPTY
};

/// Maximum names and patterns of one CONFIG GET: each may match all options.
const NAMES_MAX: usize = 256;

fn get(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() - 2 > NAMES_MAX {
        return Err(Fail::text("ERR too many parameters"));
    }
    let patterns: Vec<&[u8]> = args.iter().skip(2).collect();
    let found = cx.shared.config.lock().get(&patterns);
    cx.reply.map(found.len());
    for (name, value) in found {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

const SET: Command = Command {
    name: "set",
    syntax: "parameter value [parameter value ...]",
    summary: "Changes options of the running server, all of them or none.",
    since: "2.0.0",
    complexity: "O(N) in the number of options given",
    group: Group::Server,
    arity: -4,
    flags: ADMIN,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    is_secret: |args, at| at >= 3 && is_option(args.get(at - 1), "REQUIREPASS"),
    run: set,
    ..Command::EMPTY
};

fn set(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let words: Vec<&[u8]> = args.iter().skip(2).collect();
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Fail::Syntax);
    }
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    let settings = change_options(cx.shared, &pairs)?;
    cx.reactor.take_settings(cx.shared, settings);
    cx.reply.ok();
    Ok(())
}

/// Changes options for all reactors, all or none. Returns the new settings.
pub(crate) fn change_options(
    shared: &ServerState,
    pairs: &[(&[u8], &[u8])],
) -> Result<Arc<Settings>, Fail> {
    // Held until all reactors use the settings: otherwise the slower of two concurrent changes
    // would revert an option that the other one changed.
    let mut config = shared.config.lock();
    let mut next = config.clone();
    let changed = next.set(pairs).map_err(|error| Fail::owned(format!("ERR {error}")))?;
    let settings = Arc::new(next.settings().clone());
    reload_tls(shared, pairs, &settings)?;
    *config = next;
    shared.memory.apply(&settings);
    settings.apply_to(shared.links().limits());
    if changed.contains("durability") || changed.contains("durability-interval-ms") {
        shared.log.set_sync_policy(settings.sync_policy());
    }
    if changed.contains("requirepass") || changed.contains("requirepass-separator") {
        let passwords = settings.passwords();
        let set = shared.acl.change(|users| users.set_default_passwords(&passwords));
        set.map_err(|error| Fail::owned(format!("ERR {error}")))?;
    }
    shared.settings.store(Arc::clone(&settings));
    drop(config);
    tracing::info!(options = changed.names().join(" "), "options changed");
    Ok(settings)
}

/// Reloads the TLS files if a TLS option is given. The reactor waits for the disk, as in REWRITE,
/// but only when a certificate is replaced.
fn reload_tls(
    shared: &ServerState,
    pairs: &[(&[u8], &[u8])],
    settings: &Settings,
) -> Result<(), Fail> {
    let Some(tls) = shared.tls.get() else { return Ok(()) };
    if !pairs.iter().any(|(name, _)| tls::is_concerned(name)) {
        return Ok(());
    }
    let loaded = tls::load(settings).map_err(|error| {
        let option = tls::option_of(&error);
        Fail::owned(format!(
            "ERR CONFIG SET failed (possibly related to argument '{option}') - {error}"
        ))
    })?;
    tls.replace(loaded);
    tracing::info!("TLS certificates reloaded");
    Ok(())
}

const RESETSTAT: Command = Command {
    name: "resetstat",
    summary: "Resets the counters that INFO shows.",
    since: "2.0.0",
    group: Group::Server,
    arity: 2,
    flags: ADMIN.and(Flags::SEES_STATS),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: resetstat,
    ..Command::EMPTY
};

fn resetstat(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    for published in &cx.shared.published {
        published.lock().reset();
    }
    cx.shared.refusals.lock().reset_counts();
    cx.shared.stalls.reset();
    let shared = cx.shared;
    let baseline =
        Baseline::take(shared.links(), &shared.log, &shared.keyspace, &shared.free_thread);
    shared.baseline.store(Arc::new(baseline));
    cx.reply.ok();
    Ok(())
}

const REWRITE: Command = Command {
    name: "rewrite",
    summary: "Writes the current options to the configuration file.",
    since: "2.8.0",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: rewrite,
    ..Command::EMPTY
};

fn rewrite(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let written = cx.shared.config.lock().rewrite();
    written.map_err(|error| Fail::owned(format!("ERR {error}")))?;
    cx.reply.ok();
    Ok(())
}

const HELP: Command = Command {
    name: "help",
    summary: "Lists the subcommands of CONFIG.",
    since: "5.0.0",
    group: Group::Server,
    arity: 2,
    flags: Flags::LOADING.and(Flags::STALE),
    run: |cx, _| help::reply(cx, &CONFIG),
    ..Command::EMPTY
};
