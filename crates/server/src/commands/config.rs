//! CONFIG: the options of the running server.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use std::sync::Arc;

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::CommandContext;
use super::fail::Fail;
use super::help;
use crate::config::{
    Changed, Config, Conflict, Reading, Reload, SetError, Settings, find, has_effect, is_known,
    is_public, read_again, shown_value,
};
use crate::engine::acl::TooManyUsers;
use crate::engine::baseline::Baseline;
use crate::engine::protection;
use crate::engine::server_state::ServerState;
use crate::tls::{self, Loaded};

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
    is_secret: is_secret_of_set,
    run: set,
    ..Command::EMPTY
};

/// Names and values of options that are not secret are shown. Without quotes, a password with
/// spaces is several arguments: what is not in the table is not shown either.
fn is_secret_of_set(args: Args<'_>, at: usize) -> bool {
    match at {
        0 | 1 => false,
        _ if at.is_multiple_of(2) => !is_known(args.get(at)),
        _ => !is_public(args.get(at - 1)),
    }
}

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
    let mut tls = None;
    if pairs.iter().any(|(name, _)| tls::is_concerned(name)) {
        // The reactor waits for the disk, as in REWRITE, but only when a certificate is replaced.
        tls = load_tls(shared, next.settings()).map_err(|Conflict { option, reason }| {
            Fail::owned(format!(
                "ERR CONFIG SET failed (possibly related to argument '{option}') - {reason}"
            ))
        })?;
    }
    let is_password = |name: &[u8]| name.eq_ignore_ascii_case(b"requirepass");
    // Also if the option has this value already: ACL SETUSER may have set another password.
    let sets_passwords =
        changes_passwords(&changed) || pairs.iter().any(|(name, _)| is_password(name));
    let next = Next { config: next, changed: &changed, sets_passwords, tls };
    let settings = install(shared, &mut config, next).map_err(|error| {
        Fail::owned(match error {
            NotInstalled::Users(error) => format!("ERR {error}"),
            NotInstalled::Conflict(conflict) => format!("ERR {}", SetError::of(conflict, pairs)),
        })
    })?;
    drop(config);
    tracing::info!(options = changed.names().join(" "), "options changed");
    let without_effect: Vec<&str> =
        changed.names().iter().copied().filter(|name| !has_effect(name)).collect();
    if !without_effect.is_empty() {
        let options = without_effect.join(" ");
        tracing::info!(options, "these options have no effect: see the reference");
    }
    Ok(settings)
}

/// Reads the configuration file and the TLS files again, and applies what has changed, all or
/// nothing. Logs the result.
pub(crate) fn reload(shared: &ServerState) {
    let line = shared.config.lock().line();
    let outcome = read_again(&line)
        .map_err(|error| error.to_string())
        .and_then(|reading| apply_reading(shared, reading));
    if let Err(error) = outcome {
        tracing::error!(error, "could not reload the configuration; nothing has changed");
    }
}

fn apply_reading(shared: &ServerState, reading: Reading) -> Result<(), String> {
    let mut config = shared.config.lock();
    let mut next = config.clone();
    let Reload { changed, waiting } = next.take(reading).map_err(|error| error.to_string())?;
    let tls = load_tls(shared, next.settings())
        .map_err(|conflict| next.conflict(conflict).to_string())?;
    let named = next.clone();
    let sets_passwords = changes_passwords(&changed);
    let next = Next { config: next, changed: &changed, sets_passwords, tls };
    let settings = install(shared, &mut config, next).map_err(|error| match error {
        NotInstalled::Users(error) => error.to_string(),
        NotInstalled::Conflict(conflict) => named.conflict(conflict).to_string(),
    })?;
    drop(config);
    for option in changed.names().iter().filter_map(|name| find(name)) {
        let value = shown_value(option, &settings);
        tracing::info!(option = option.name, value, "option changed by the configuration file");
    }
    for option in waiting {
        tracing::warn!(option, "the change of this option needs a restart");
    }
    tracing::info!(changed = changed.names().len(), "configuration reloaded");
    Ok(())
}

/// Why a configuration was not installed: nothing has changed.
#[derive(Debug)]
enum NotInstalled {
    Users(TooManyUsers),
    Conflict(Conflict),
}

/// A configuration to install.
struct Next<'a> {
    config: Config,
    changed: &'a Changed,
    /// The passwords of the default user become those of the configuration.
    sets_passwords: bool,
    tls: Option<Loaded>,
}

fn changes_passwords(changed: &Changed) -> bool {
    changed.contains("requirepass") || changed.contains("requirepass-separator")
}

/// Makes the configuration that of all reactors.
fn install(
    shared: &ServerState,
    config: &mut Config,
    next: Next<'_>,
) -> Result<Arc<Settings>, NotInstalled> {
    let Next { config: next, changed, sets_passwords, tls } = next;
    let settings = Arc::new(next.settings().clone());
    // First, because only this can fail. The users are the same until the settings are stored.
    shared.acl.change_if_needed(|users| {
        if sets_passwords {
            let passwords = settings.passwords();
            users.to_mut().set_default_passwords(&passwords).map_err(NotInstalled::Users)?;
        }
        protection::check(&settings, users).map_err(NotInstalled::Conflict)?;
        shared.settings.store(Arc::clone(&settings));
        Ok(())
    })?;
    if let (Some(current), Some(loaded)) = (shared.tls.get(), tls) {
        current.replace(loaded);
        tracing::info!("TLS certificates reloaded");
    }
    *config = next;
    shared.memory.apply(&settings);
    settings.apply_to(shared.links().limits());
    if changed.contains("durability") || changed.contains("durability-interval-ms") {
        shared.log.set_sync_policy(settings.sync_policy());
    }
    Ok(settings)
}

/// Reads the TLS files; `None` without listeners that use them.
fn load_tls(shared: &ServerState, settings: &Settings) -> Result<Option<Loaded>, Conflict> {
    if shared.tls.get().is_none() {
        return Ok(None);
    }
    let loaded = tls::load(settings);
    loaded.map(Some).map_err(|error| Conflict::new(tls::option_of(&error), error.to_string()))
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
    let ServerState { log, keyspace, free_thread, .. } = shared;
    let baseline = Baseline::take(shared.links(), log, keyspace, free_thread, cx.unix());
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

const HELP: Command =
    help::subcommand("Lists the subcommands of CONFIG.", "5.0.0", Group::Server, |cx, _| {
        help::reply(cx, &CONFIG)
    });
