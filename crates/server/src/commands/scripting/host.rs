//! What a running script needs from the command that runs it, and how it is ended.
//!
//! Functions of Lua must not borrow, so the running command is reached through [`HOST`], which is
//! set only while a script runs.

use mlua::Lua;
use scoped_tls_hkt::scoped_thread_local;
use wire::resp::{Args, Protocol};

use super::registration::LOADING;
use super::stack::{Checks, set_hook};

scoped_thread_local!(pub(super) static mut HOST: for<'a> &'a mut (dyn ScriptHost + 'a));

/// What a running script needs from the command that runs it.
pub(super) trait ScriptHost {
    /// Runs a command, and appends its reply in RESP to `reply`.
    fn call(&mut self, args: Args<'_>, reply: &mut Vec<u8>) -> Result<(), CallError>;

    /// Whether the client of the script may run a command. `None`: there is no such command.
    fn may_run(&self, args: Args<'_>) -> Option<bool>;

    /// Selects the form of replies for the script.
    fn set_protocol(&mut self, protocol: Protocol);

    /// Returns 31 random bits.
    fn random(&mut self) -> u32;

    fn set_seed(&mut self, seed: i32);

    /// Called from time to time. False if the script must end.
    fn may_continue(&mut self, place: &dyn Fn() -> Place) -> bool;
}

/// Source and line of a script.
pub(super) type Place = (String, usize);

/// Why a script's command has no reply.
#[derive(Debug)]
pub(super) enum CallError {
    /// An error that the script can catch.
    Fail(Vec<u8>),
    /// The script must end.
    Stop,
}

thread_local! {
    /// Whether the running script is being ended: the hook is called at every instruction.
    static IS_STOPPING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether the running script may continue. `place`: where it is.
pub(super) fn may_continue(place: &dyn Fn() -> Place) -> bool {
    if LOADING.is_set() {
        LOADING.with(|loading| loading.may_continue())
    } else {
        !HOST.is_set() || HOST.with(|host| host.may_continue(place))
    }
}

/// Fails if the running script must end. For functions of Rust that take long.
pub(super) fn check_end(lua: &Lua) -> mlua::Result<()> {
    let place = || {
        let place = lua.inspect_stack(1, |frame| {
            let source = frame.source().source.as_deref().unwrap_or_default().to_owned();
            (source, frame.current_line().unwrap_or(0))
        });
        place.unwrap_or_default()
    };
    if may_continue(&place) {
        return Ok(());
    }
    stop(lua)?;
    Err(stopped())
}

pub(super) fn stopped() -> mlua::Error {
    mlua::Error::runtime("the script was stopped")
}

/// Makes every further instruction of the running coroutine fail, so that it cannot catch the error
/// and continue. Others fail in the same way after their next check.
pub(super) fn stop(lua: &Lua) -> mlua::Result<()> {
    IS_STOPPING.set(true);
    set_hook(lua, Checks::Always)
}

/// Whether the running script is being ended.
pub(super) fn is_stopping() -> bool {
    IS_STOPPING.get()
}

/// Ends what [`stop`] began.
pub(super) fn set_hook_if_changed(lua: &Lua) -> mlua::Result<()> {
    if IS_STOPPING.replace(false) { set_hook(lua, Checks::Sometimes) } else { Ok(()) }
}
