//! One run of a script: its commands, its keys, and its result.

use std::time::Duration;

use mlua::{Table, Value};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use wire::resp::{Args, Protocol};

use super::host::{CallError, Place, ScriptHost};
use super::interpreter::{Callee, Interpreter, Outcome};
use super::reply::{ResultWriter, is_error};
use crate::commands::acl;
use crate::commands::command::{Command, Done, Flags};
use crate::commands::context::{CommandContext, check_elements};
use crate::commands::execute::{ARGUMENTS_FREE, Contended, Keys, names_no_child, prepare};
use crate::commands::fail::Fail;
use crate::commands::registry::REGISTRY;
use crate::engine::gate::Gate;
use crate::engine::monitor_feeds::RequestSource;
use crate::engine::requests::RequestId;
use crate::engine::running_scripts::{RoutineKind, RunningRequest};
use crate::engine::scripts::{Routine, ScriptOptions};

/// Times that a script is run again because it accessed further keys. The last run has all keys.
const RESTARTS_MAX: usize = 8;

/// Attempts to lock all stripes after a script has changed data.
const LOCK_ATTEMPTS: usize = 200;

/// Time that a script waits for stripes after it has changed data; all scripts of an EXEC together.
const WAIT_NS: u64 = 100_000_000;

/// The same for a script that has the [turn](crate::engine::scripts::Scripts::turn).
const TURN_WAIT_NS: u64 = 1_000_000_000;

/// Time between two checks for slow scripts; the scripts of an EXEC wait only once for the turn.
const INTERVAL: Duration = Duration::from_millis(1);
const INTERVAL_NS: u64 = 1_000_000;

/// Position of the first key, after the command's name, the script and the number of keys.
const FIRST_KEY: usize = 3;

type Turn<'a> = MutexGuard<'a, ()>;

/// Takes the turn of scripts that access undeclared keys if this is one, with all stripes if the
/// script needs them. Fails, with no stripe locked, if a slow script holds them. `may_unlock`: the
/// stripes may be unlocked meanwhile.
fn take_turn<'a>(
    cx: &mut CommandContext<'a>,
    script: &Routine,
    may_unlock: bool,
) -> Result<Option<Turn<'a>>, Contended> {
    if !script.is_undeclared() {
        return Ok(None);
    }
    let (shared, scripts) = (cx.shared, &cx.shared.running_scripts);
    if let Some(turn) = shared.scripts.turn.try_lock() {
        let has_all = !script.needs_all() || !may_unlock || cx.locked.is_all();
        if has_all || cx.locked.relock_all(scripts.until_slow()) {
            return Ok(Some(turn));
        }
        return Err(Contended);
    }
    if !may_unlock {
        // The script that has the turn may wait for the stripes of this transaction.
        if cx.reactor.script_wait_ns > 0 {
            return Ok(None);
        }
        cx.reactor.script_wait_ns = INTERVAL_NS;
        return Ok(shared.scripts.turn.try_lock_for(INTERVAL));
    }
    let held = cx.locked.release();
    let turn = loop {
        match shared.scripts.turn.try_lock_for(INTERVAL) {
            Some(turn) => break turn,
            None if scripts.is_slow() => return Err(Contended),
            None => {}
        }
    };
    let is_locked = if script.needs_all() {
        cx.locked.relock_all(scripts.until_slow())
    } else {
        cx.locked.relock_stripes(held, scripts.until_slow())
    };
    if is_locked { Ok(Some(turn)) } else { Err(Contended) }
}

/// Runs a script or function, and writes its result. `args`: the request, of which the keys and
/// arguments begin at [`FIRST_KEY`].
pub(super) fn run(
    cx: &mut CommandContext<'_>,
    interpreter: &mut Interpreter,
    callee: &Callee<'_>,
    args: Args<'_>,
    keys: usize,
    read_only: bool,
) -> Done {
    let options = callee.routine.options;
    check_options(cx, options, read_only)?;
    if !cx.in_exec {
        cx.reactor.script_wait_ns = 0;
    }
    let Ok(turn) = take_turn(cx, callee.routine, !cx.in_exec) else {
        cx.reactor.is_contended = true;
        return Ok(());
    };
    let was_in_exec = std::mem::replace(&mut cx.in_exec, true);
    let form = cx.reply.take_form(Protocol::Resp2);
    cx.shared.activities.begin_script(cx.reactor.index, callee.name.as_bytes());
    let mut run = Run {
        is_read_only: options.no_writes || read_only,
        is_limited: cx.reactor.has_no_room && !options.allow_oom,
        may_restart: !was_in_exec,
        callee,
        shows_request: false,
        request: args,
        cx,
        turn,
        restarts: 0,
        has_called_write: false,
        random: 0,
        stop: None,
    };
    let outcome = run.run_to_end(interpreter, keys);
    let Run { cx, stop, turn, .. } = run;
    drop(turn);
    let script_protocol = std::mem::replace(&mut cx.reply.protocol, Protocol::Resp2);
    cx.reply.restore_form(form);
    cx.in_exec = was_in_exec;
    match stop {
        Some(stop) => reply_stopped(cx, &stop, callee.name),
        None => reply_outcome(cx, outcome, callee.name, script_protocol),
    }
}

/// Checks what the script has declared about itself.
// Source: Redis 7.2 `script.c`, `scriptPrepareForRun`
fn check_options(cx: &mut CommandContext<'_>, options: ScriptOptions, read_only: bool) -> Done {
    if !options.is_declared {
        return Ok(());
    }
    if !options.allow_oom && !options.no_writes && cx.reactor.has_no_room {
        return Err(Fail::text(
            "OOM allow-oom flag is not set on the script, can not run it when used memory > \
             'maxmemory'",
        ));
    }
    if options.no_writes {
        return Ok(());
    }
    let durability = cx.session.durability;
    cx.reactor.check_writes(cx.shared, durability).map_err(Fail::text)?;
    if read_only {
        return Err(Fail::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    Ok(())
}

fn reply_stopped(cx: &mut CommandContext<'_>, stop: &Stop, name: &str) -> Done {
    match stop {
        Stop::Restart { .. } => {
            // A slow script holds what the script needs: its client waits.
            cx.reactor.is_contended = true;
            Ok(())
        }
        Stop::Killed { place: (source, line) } => {
            let text = "ERR Script killed by user with SCRIPT KILL...";
            Err(Fail::owned(format!("{text} script: {name}, on {source}:{line}.")))
        }
        Stop::Contended => Err(Fail::text(CONTENDED)),
    }
}

fn reply_outcome(
    cx: &mut CommandContext<'_>,
    outcome: Outcome,
    name: &str,
    script_protocol: Protocol,
) -> Done {
    let failed = |text: &str| Fail::owned(format!("ERR Error running script {name}, {text}"));
    match outcome {
        Outcome::Returned(value) => write_result(cx, &value, script_protocol),
        Outcome::Raised(Value::Table(error)) => {
            let fail = raised(&error, name).map_err(|error| Fail::owned(format!("ERR {error}")))?;
            if !is_error(&error).unwrap_or(false) {
                return Err(fail);
            }
            // The error is counted already.
            cx.reply.error_bytes(&fail.bytes());
            Ok(())
        }
        Outcome::Raised(Value::String(text)) => Err(failed(&text.to_string_lossy())),
        Outcome::Raised(_) => Err(failed("execution failure")),
        Outcome::Failed(error) => Err(failed(&error.to_string())),
    }
}

const CONTENDED: &str = "TRYAGAIN The script accessed a key that it did not declare, and that \
                         another script held. It may have changed data; declare all keys.";

fn write_result(cx: &mut CommandContext<'_>, value: &Value, script_protocol: Protocol) -> Done {
    let values_left = match cx.reactor.settings.elements_max() {
        0 => usize::MAX,
        elements_max => elements_max,
    };
    let uncounted = Vec::new();
    let mut writer = ResultWriter { reply: &mut cx.reply, script_protocol, values_left, uncounted };
    writer.write(value, 0)?;
    for text in writer.uncounted {
        cx.reactor.tally.error(None, &String::from_utf8_lossy(&text));
    }
    Ok(())
}

/// The reply about an error that a script raised.
// Source: Redis 7.2 `script_lua.c`, `luaCallFunction`
fn raised(error: &Table, name: &str) -> mlua::Result<Fail> {
    let field = |field: &str| -> mlua::Result<Option<Vec<u8>>> {
        Ok(match error.raw_get::<Value>(field)? {
            Value::String(text) => Some(text.as_bytes().to_vec()),
            Value::Integer(number) => Some(number.to_string().into_bytes()),
            _ => None,
        })
    };
    let mut text = field("err")?.unwrap_or_else(|| b"ERR unknown error".to_vec());
    if let (Some(source), Some(line)) = (field("source")?, field("line")?) {
        let name = name.as_bytes();
        text.extend_from_slice(
            &[b" script: ", name, b", on ", &source, b":", &line, b"."].concat(),
        );
    }
    Ok(Fail::Quoting(text))
}

/// Why a script must end before it returns.
#[derive(Debug)]
enum Stop {
    /// SCRIPT KILL.
    Killed { place: Place },
    /// The script is run again, with the stripes of these keys.
    Restart { hashes: SmallVec<[u64; 4]> },
    /// Another thread holds a stripe, and waiting for it might never end.
    Contended,
}

/// A running script.
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
struct Run<'c, 'a> {
    cx: &'c mut CommandContext<'a>,
    is_read_only: bool,
    /// There was no memory for writes when the script began.
    is_limited: bool,
    may_restart: bool,
    callee: &'c Callee<'c>,
    request: Args<'c>,
    /// FUNCTION STATS shows the request.
    shows_request: bool,
    /// Held by a script that accesses undeclared keys.
    turn: Option<Turn<'a>>,
    restarts: usize,
    has_called_write: bool,
    /// State of `math.random`: 48 bits.
    random: u64,
    stop: Option<Stop>,
}

impl std::fmt::Debug for Run<'_, '_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Run").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Run<'_, '_> {
    /// Runs the script; again after it has accessed keys whose stripes were not locked. `keys`: the
    /// number of keys in the request.
    fn run_to_end(&mut self, interpreter: &mut Interpreter, keys: usize) -> Outcome {
        let bytes_max = self.cx.reactor.settings.script_memory_bytes_max;
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let (args, callee, db) = (self.request, self.callee, self.cx.session.db);
        let (keys, rest) = (args.range(FIRST_KEY..FIRST_KEY + keys), args.skip(FIRST_KEY + keys));
        self.cx.reactor.runs_script = true;
        let outcome = loop {
            self.begin();
            let outcome = interpreter.run(callee, keys, rest, bytes_max, self);
            self.cx.session.db = db;
            if !self.restart() {
                break outcome;
            }
        };
        self.cx.reactor.runs_script = false;
        let (shared, index) = (self.cx.shared, self.cx.reactor.index);
        shared.running_scripts.end(index);
        shared.activities.end_script(index);
        if self.shows_request {
            shared.running_scripts.hide(index);
        }
        outcome
    }

    /// Begins a run from the start of the script.
    fn begin(&mut self) {
        self.stop = None;
        self.has_called_write = false;
        self.random = self.cx.reactor.random() >> 16;
        self.cx.reply.protocol = Protocol::Resp2;
        let now = self.cx.reactor.stamp;
        self.cx.shared.running_scripts.begin(self.cx.reactor.index, now, self.callee.kind);
    }

    /// Locks what a script that has changed nothing needs in addition. False if it need not run
    /// again, or cannot because of a slow script.
    fn restart(&mut self) -> bool {
        let Some(Stop::Restart { hashes }) = &self.stop else { return false };
        let (cx, script) = (&mut *self.cx, self.callee.routine);
        if self.turn.is_none() {
            match take_turn(cx, script, true) {
                Ok(turn) => self.turn = turn,
                Err(Contended) => return false,
            }
        }
        self.restarts += 1;
        let scripts = &cx.shared.running_scripts;
        if script.needs_all() || self.restarts >= RESTARTS_MAX {
            cx.locked.relock_all(scripts.until_slow())
        } else {
            cx.locked.relock_with(hashes, cx.reactor.patience(scripts))
        }
    }

    /// Checks a command and its keys, in the order of Redis. Returns its key if it has exactly one.
    // Source: Redis 7.2 `script.c`, `scriptCall`
    fn admit(&mut self, args: Args<'_>) -> Result<(RequestId, Option<Keys>), Refusal> {
        let refuse = |id, text| Err(Refusal::Fail(id, Fail::text(text)));
        let prepared = prepare(self.cx.shared, args);
        let Some(id) = prepared.id() else {
            return refuse(None, "ERR Unknown Redis command called from script");
        };
        let command = REGISTRY.entry(id).command;
        if names_no_child(command, args) {
            return refuse(None, "ERR Unknown Redis command called from script");
        }
        if !command.arity_fits(args.len()) {
            return refuse(Some(id), "ERR Wrong number of args calling Redis command from script");
        }
        if command.flags.has(Flags::NOSCRIPT) {
            return refuse(Some(id), "ERR This Redis command is not allowed from script");
        }
        acl::check_in_script(self.cx, id, args).map_err(|fail| Refusal::Fail(Some(id), fail))?;
        if self.is_read_only && command.flags.has(Flags::WRITE.and(Flags::MAY_REPLICATE)) {
            let text = "ERR Write commands are not allowed from read-only scripts.";
            return refuse(Some(id), text);
        }
        if command.flags.has(Flags::WRITE) {
            let durability = self.cx.session.durability;
            if let Err(text) = self.cx.reactor.check_writes(self.cx.shared, durability) {
                return refuse(Some(id), text);
            }
        }
        if self.is_limited && !self.has_called_write && command.flags.has(Flags::DENYOOM) {
            return refuse(Some(id), "OOM command not allowed when used memory > 'maxmemory'.");
        }
        if args.len() > ARGUMENTS_FREE {
            let elements_max = self.cx.reactor.settings.elements_max();
            let cost = command.argument_cost(true);
            check_elements(args.len().saturating_mul(cost), elements_max)
                .map_err(|fail| Refusal::Fail(Some(id), fail))?;
        }
        self.lock(command, prepared.hash, args).map_err(Refusal::Stop)?;
        if command.flags.has(Flags::WRITE) && !self.has_called_write {
            self.has_called_write = true;
            if !self.cx.shared.running_scripts.write(self.cx.reactor.index) {
                return Err(Refusal::Stop(Stop::Killed { place: Place::default() }));
            }
        }
        let db = self.cx.session.db;
        Ok((id, prepared.hash.map(|hash| SmallVec::from_slice(&[(db, hash)]))))
    }

    /// Locks the stripes of a command that are not locked yet.
    fn lock(&mut self, command: &Command, hash: Option<u64>, args: Args<'_>) -> Result<(), Stop> {
        if let Some(hash) = hash {
            return self.lock_keys(&[hash]);
        }
        if command.flags.has(Flags::ALL_KEYS.and(Flags::LOCKS_STRIPES))
            || command.reads_other_keys(args)
        {
            return self.lock_all();
        }
        let mut hashes: SmallVec<[u64; 4]> = SmallVec::new();
        let keyspace = &self.cx.shared.keyspace;
        // If the keys cannot be determined, the command itself reports the error.
        if command.key_positions(args, |at, _| hashes.push(keyspace.hash(args.get(at)))).is_err() {
            return Ok(());
        }
        self.lock_keys(&hashes)
    }

    fn lock_keys(&mut self, hashes: &[u64]) -> Result<(), Stop> {
        for hash in hashes {
            if self.cx.locked.holds(*hash) {
                continue;
            }
            self.callee.routine.mark_undeclared();
            let must_wait = self.turn.is_none() || !self.cx.locked.try_add(*hash);
            if must_wait && self.is_restartable() {
                return Err(Stop::Restart { hashes: SmallVec::from_slice(hashes) });
            }
            if must_wait && !self.wait_for(*hash) {
                return Err(Stop::Contended);
            }
        }
        Ok(())
    }

    /// Waits for a stripe. Only a script with the turn waits for long: no other script then waits
    /// for its stripes, except for one that did not know that it needs the turn.
    fn wait_for(&mut self, hash: u64) -> bool {
        let limit_ns = if self.turn.is_some() { TURN_WAIT_NS } else { WAIT_NS };
        let left_ns = limit_ns.saturating_sub(self.cx.reactor.script_wait_ns);
        let clock = self.cx.reactor.clock.clone();
        let began = clock.now();
        let waited_ns = || clock.delta_ns(began, clock.now());
        let is_locked = self.cx.locked.add_unless(hash, |ns| ns > 0 && waited_ns() > left_ns);
        self.cx.reactor.script_wait_ns += waited_ns();
        is_locked
    }

    fn lock_all(&mut self) -> Result<(), Stop> {
        if self.cx.locked.is_all() {
            return Ok(());
        }
        self.callee.routine.mark_all();
        if self.is_restartable() {
            return Err(Stop::Restart { hashes: SmallVec::new() });
        }
        let locked = (0..LOCK_ATTEMPTS).any(|_| self.cx.locked.try_add_all());
        if locked { Ok(()) } else { Err(Stop::Contended) }
    }

    /// Whether the script can run again, because nothing has happened that others could see.
    fn is_restartable(&self) -> bool {
        self.may_restart && self.cx.locked.is_untouched() && !self.cx.reactor.pubsub.has_deferred()
    }

    /// Shows the request to FUNCTION STATS, as far as it is short.
    #[cold]
    fn show_request(&mut self) {
        const BYTES_MAX: usize = 64 * 1024;
        self.shows_request = true;
        let function = self.callee.name.as_bytes().to_vec();
        let mut room = BYTES_MAX;
        let fits = |argument: &&[u8]| {
            let left = room.checked_sub(argument.len() + size_of::<Vec<u8>>());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let arguments = self.request.iter().take_while(fits).map(<[u8]>::to_vec).collect();
        let request = RunningRequest { function, arguments };
        self.cx.shared.running_scripts.show(self.cx.reactor.index, request);
    }

    /// Runs an admitted command and appends its reply. `keys`: its keys, if they are known.
    fn execute(&mut self, id: RequestId, args: Args<'_>, keys: Option<&Keys>) {
        let cx = &mut *self.cx;
        let entry = REGISTRY.entry(id);
        let command = entry.command;
        cx.db = cx.session.db;
        cx.elements.set(0);
        let mark = cx.reply.mark();
        if let Err(fail) = cx.call_with(entry, args, keys, command.run) {
            cx.reply.rewind(mark);
            cx.reply.error_bytes(&fail.bytes());
        }
        if cx.shared.is_monitored() && !command.flags.has(Flags::ADMIN) {
            let db = cx.session.db;
            let shown = command.shown(args);
            cx.reactor.feed_monitors(&db, RequestSource::Script, cx.now, shown);
        }
        if !cx.locked.has_written() {
            self.note_read(command, args);
        }
    }

    /// The script's reply waits for the newest writes to the keys that it read.
    fn note_read(&mut self, command: &Command, args: Args<'_>) {
        let cx = &mut *self.cx;
        if command.flags.has(Flags::ALL_KEYS.and(Flags::LOCKS_STRIPES))
            || command.reads_other_keys(args)
        {
            cx.gate = cx.gate.max(Gate::of_all(&cx.locked));
            return;
        }
        let (mut gate, keyspace) = (cx.gate, &cx.shared.keyspace);
        let listed = command.key_positions(args, |at, _| {
            gate = gate.max(Gate::of(&cx.locked, cx.db, keyspace.hash(args.get(at))));
        });
        if listed.is_ok() {
            cx.gate = gate;
        }
    }
}

/// Why a command of a script does not run.
enum Refusal {
    Fail(Option<RequestId>, Fail),
    Stop(Stop),
}

impl ScriptHost for Run<'_, '_> {
    fn call(&mut self, args: Args<'_>, reply: &mut Vec<u8>) -> Result<(), CallError> {
        if self.stop.is_some() {
            return Err(CallError::Stop);
        }
        match self.admit(args) {
            Ok((id, keys)) => {
                let mark = self.cx.reply.mark();
                self.execute(id, args, keys.as_ref());
                reply.extend_from_slice(self.cx.reply.since(mark));
                self.cx.reply.rewind(mark);
                Ok(())
            }
            Err(Refusal::Fail(id, fail)) => {
                let text = fail.bytes().into_owned();
                if let Some(id) = id {
                    self.cx.reactor.tally.rejected(id);
                }
                self.cx.reactor.tally.error(None, &String::from_utf8_lossy(&text));
                Err(CallError::Fail(text))
            }
            Err(Refusal::Stop(stop)) => {
                self.stop = Some(stop);
                Err(CallError::Stop)
            }
        }
    }

    fn may_run(&self, args: Args<'_>) -> Option<bool> {
        let entry = prepare(self.cx.shared, args).entry?;
        let is_known = !names_no_child(entry.command, args);
        is_known.then(|| acl::may_run(self.cx, entry.id, args))
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.cx.reply.protocol = protocol;
    }

    // Source: Redis 7.2 `rand.c`, the generator of `lrand48`
    fn random(&mut self) -> u32 {
        const MULTIPLIER: u64 = 0x5_DEEC_E66D;
        self.random = (self.random.wrapping_mul(MULTIPLIER).wrapping_add(11)) & ((1 << 48) - 1);
        u32::try_from(self.random >> 17).expect("31 bits")
    }

    fn set_seed(&mut self, seed: i32) {
        self.random = (u64::from(seed.cast_unsigned()) << 16) | 0x330E;
    }

    fn may_continue(&mut self, place: &dyn Fn() -> Place) -> bool {
        if self.stop.is_some() {
            return false;
        }
        let (scripts, reactor) = (&self.cx.shared.running_scripts, self.cx.reactor.index);
        let is_function = self.callee.kind == RoutineKind::Function;
        if is_function && !self.shows_request && scripts.is_slow_on(reactor) {
            self.show_request();
        }
        if scripts.is_killed(reactor) {
            self.stop = Some(Stop::Killed { place: place() });
            return false;
        }
        true
    }
}
