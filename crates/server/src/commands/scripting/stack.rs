//! The stack of Lua, for the functions that scripts call for each command: the only unsafe code of
//! this crate.
//!
//! The safe interface counts references to every value that crosses it, which took half of the
//! instructions of a script of three commands. These functions read arguments in place, and write
//! results directly onto the stack.
//!
//! Why this is sound:
//!
//! - Lua reports errors, such as missing memory, by a jump that skips destructors. So a call has two
//!   steps. The first is [`StackFunction::call`], which reads arguments, and has no operation that
//!   fails in Lua. The second pushes the result, and has nothing to drop: its bytes are in
//!   [`RESULT`].
//! - A [`Stack`] checks at run time what the interface of C takes for granted: the position of an
//!   argument, the room for a value, and that there is a table to add a field to.
//! - A panic must not pass frames of C: one in the first step ends the process, and one in the second
//!   is a bug of this file.
//! - The hook, which ends scripts, has two steps as well: it asks whether the script may continue, and
//!   then fails with nothing to drop.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use mlua::ffi::{self, lua_Debug, lua_State};
use mlua::{Function, Lua, Table};
use scoped_tls_hkt::scoped_thread_local;
use wire::resp::Args;

use super::host::{Place, may_continue};
use super::reply;

/// Name of a function in the registry that ends the running script.
const STOP: &CStr = c"stop";

/// Slots of the stack that are reserved at once. A function of C begins with as many.
const ROOM: i32 = ffi::LUA_MINSTACK;

/// Values that fit after [`Stack::reserve`].
const RESERVED: i32 = 8;
const _: () = assert!(RESERVED + 1 < ROOM, "one slot is left for `entry`");

/// Bytes of a result beyond which its buffer is freed.
const RESULT_BYTES_KEPT_MAX: usize = 64 * 1024;

thread_local! {
    /// The bytes of the result that is pushed.
    static RESULT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

scoped_thread_local!(pub(super) static RUNNING: for<'a> &'a Running<'a>);

/// What runs.
#[derive(Debug)]
pub(super) struct Running<'a> {
    pub(super) lua: &'a Lua,
    pub(super) keys: Args<'a>,
    pub(super) arguments: Args<'a>,
    pub(super) bytes_max: usize,
}

/// A function that scripts can call.
pub(super) trait StackFunction {
    /// Whether an error is raised, or returned as a table.
    const RAISES: bool;

    /// Appends the bytes of the result to `result`.
    fn call(arguments: &Arguments<'_>, result: &mut Vec<u8>) -> Ending;
}

/// The result of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The reply of a command.
    Reply,
    Boolean(bool),
    /// The text of an error reply. Whether the counters of errors include it already.
    Error {
        is_counted: bool,
    },
    /// The running script must end.
    Stop,
}

/// An argument.
#[derive(Debug, PartialEq)]
pub(super) enum Argument<'s> {
    Text(&'s [u8]),
    Number(f64),
    Other,
}

/// The arguments of a running function.
#[derive(Debug)]
pub(super) struct Arguments<'s> {
    state: *mut lua_State,
    count: i32,
    call: PhantomData<&'s lua_State>,
}

/// The stack of a running function: its arguments, followed by the values that it pushed. Has
/// nothing to drop.
#[derive(Debug)]
pub(super) struct Stack<'s> {
    state: *mut lua_State,
    arguments: i32,
    /// Values on the stack, and how many fit.
    used: i32,
    room: i32,
    call: PhantomData<&'s lua_State>,
}
const _: () = assert!(!std::mem::needs_drop::<Stack<'_>>(), "errors of Lua skip it");

/// Makes a function that scripts can call.
pub(super) fn function<F: StackFunction>(lua: &Lua) -> mlua::Result<Function> {
    // SAFETY: `entry` takes any arguments, and fails only in the way of Lua.
    unsafe { lua.create_c_function(entry::<F>) }
}

/// Sets the function that ends the running script: it must fail.
pub(super) fn set_stop(lua: &Lua, stop: Function) -> mlua::Result<()> {
    lua.set_named_registry_value(&STOP.to_string_lossy(), stop)
}

/// What Lua calls.
///
/// # Safety
///
/// - `state` is that of a function of C which Lua calls, at its start.
unsafe extern "C-unwind" fn entry<F: StackFunction>(state: *mut lua_State) -> i32 {
    let called = catch_unwind(AssertUnwindSafe(|| {
        let mut result = RESULT.take();
        result.clear();
        result.shrink_to(RESULT_BYTES_KEPT_MAX); // after an error
        let ending = F::call(&Arguments::new(state), &mut result);
        let (start, len) = (result.as_ptr(), result.len());
        RESULT.set(result);
        (ending, start, len)
    }));
    let Ok((ending, start, len)) = called else { std::process::abort() };
    // SAFETY: the bytes belong to `RESULT`, which only the next call changes: what Lua runs here,
    // such as the collector of garbage, calls none of these functions.
    let result = unsafe { slice::from_raw_parts(start, len) };
    let mut stack = Stack::new(state);
    let is_error = match ending {
        Ending::Reply => reply::push_or_error(&mut stack, result),
        Ending::Boolean(value) => {
            stack.push_boolean(value);
            false
        }
        Ending::Error { is_counted } => {
            reply::push_error(&mut stack, result, is_counted);
            true
        }
        // SAFETY: nothing is left to drop, and a new `Stack` has room.
        Ending::Stop => unsafe {
            ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, STOP.as_ptr());
            ffi::lua_call(state, 0, 0);
            unreachable!("the function fails")
        },
    };
    if len > RESULT_BYTES_KEPT_MAX {
        RESULT.set(Vec::new());
    }
    if is_error && F::RAISES {
        // SAFETY: nothing is left to drop, and the error is the newest value.
        unsafe { ffi::lua_error(state) }
    }
    1
}

/// Makes the function that runs scripts. Its arguments follow. It returns whether the script
/// succeeded, and its result or error.
pub(super) fn runner(lua: &Lua) -> mlua::Result<Function> {
    // SAFETY: the function is private, and gets these arguments.
    unsafe { lua.create_c_function(run_script) }
}

// Arguments of `run_script`.
/// The table of all functions.
const FUNCTIONS: i32 = 1;
/// The index of the script in it.
const SCRIPT: i32 = 2;
/// What handles an error of the script.
const HANDLER: i32 = 3;
/// The table that has the keys and arguments while the script runs.
const GLOBALS: i32 = 4;
/// Their names there.
const KEYS: i32 = 5;
const ARGV: i32 = 6;

/// Does in C what `xpcall` and a function around it did in Lua. The limit of memory is in force only
/// while the script itself runs, so nothing else here fails.
///
/// # Safety
///
/// As for [`entry`], while [`RUNNING`] is set.
unsafe extern "C-unwind" fn run_script(state: *mut lua_State) -> i32 {
    // SAFETY: it is set for longer than this call.
    let running = unsafe { &*RUNNING.with(|running| ptr::from_ref(running).cast::<Running<'_>>()) };
    let mut stack = Stack::new(state);
    stack.set_global(KEYS, Some(running.keys));
    stack.set_global(ARGV, Some(running.arguments));
    set_limit(running.lua, running.bytes_max);
    // SAFETY: nothing is left to drop, `Stack` leaves room for these values, and the call returns
    // after an error.
    unsafe {
        ffi::lua_rawgeti(state, FUNCTIONS, ffi::lua_tointeger(state, SCRIPT));
        let is_failed = ffi::lua_pcall(state, 0, 1, HANDLER) != ffi::LUA_OK;
        set_limit(running.lua, 0);
        ffi::lua_pushboolean(state, i32::from(!is_failed));
        ffi::lua_insert(state, ARGV + 1);
    }
    stack.used += 2;
    stack.set_global(KEYS, None);
    stack.set_global(ARGV, None);
    2
}

/// Sets the memory limit of an interpreter; 0: none.
fn set_limit(lua: &Lua, bytes_max: usize) {
    let is_set = lua.set_memory_limit(bytes_max).is_ok();
    assert!(is_set, "the interpreter has the allocator of `mlua`");
}

/// Whether the metatable of a table has a field that is true. The safe interface would make a
/// reference to the metatable, and panics if there is no room for it.
pub(super) fn has_mark(lua: &Lua, table: &Table, mark: &CStr) -> mlua::Result<bool> {
    // SAFETY: the table is the only value, three more fit, and one remains.
    unsafe {
        lua.exec_raw(table, |state| {
            let mut is_marked = false;
            if ffi::lua_getmetatable(state, 1) != 0 {
                ffi::lua_pushlstring(state, mark.as_ptr(), mark.count_bytes());
                let kind = ffi::lua_rawget(state, -2);
                is_marked = kind == ffi::LUA_TBOOLEAN && ffi::lua_toboolean(state, -1) != 0;
            }
            ffi::lua_settop(state, 0);
            ffi::lua_pushboolean(state, i32::from(is_marked));
        })
    }
}

/// Instructions between two checks whether a script must end. An instruction that calls a function
/// of C, such as `table.concat`, can take tenths of a second. The hook of the safe interface would
/// take ten times as long.
const CHECK_INSTRUCTIONS: i32 = 200;

/// When the hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// From time to time.
    Sometimes,
    /// At every instruction: the script is being ended.
    Always,
}

/// Sets when the hook is called in the running coroutine, and in coroutines that it creates.
pub(super) fn set_hook(lua: &Lua, checks: Checks) -> mlua::Result<()> {
    // SAFETY: it only sets fields of the state, and `on_count` is a hook.
    unsafe { lua.exec_raw((), |state| set_count(state, checks)) }
}

/// # Safety
///
/// - `state` is valid.
unsafe fn set_count(state: *mut lua_State, checks: Checks) {
    let count = match checks {
        Checks::Sometimes => CHECK_INSTRUCTIONS,
        Checks::Always => 1,
    };
    // SAFETY: the state is valid, and `on_count` is a hook.
    unsafe { ffi::lua_sethook(state, Some(on_count), ffi::LUA_MASKCOUNT, count) };
}

/// # Safety
///
/// - Lua calls it as the hook of `state`.
unsafe extern "C-unwind" fn on_count(state: *mut lua_State, frame: *mut lua_Debug) {
    // SAFETY: `frame` is what the hook was called with.
    let place = || unsafe { place(state, frame) };
    let checked = catch_unwind(AssertUnwindSafe(|| may_continue(&place)));
    let Ok(may_continue) = checked else { std::process::abort() };
    // SAFETY: nothing is left to drop, and a hook has room for these values.
    unsafe {
        if !may_continue {
            ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, STOP.as_ptr());
            ffi::lua_call(state, 0, 0);
            unreachable!("the function fails")
        }
        // A coroutine of a library remains when a call has been ended.
        if ffi::lua_gethookcount(state) != CHECK_INSTRUCTIONS {
            set_count(state, Checks::Sometimes);
        }
    }
}

/// # Safety
///
/// - Lua has called the hook of `state` with `frame`.
unsafe fn place(state: *mut lua_State, frame: *mut lua_Debug) -> Place {
    // SAFETY: `frame` is of the hook, and its fields are set if the result is not 0.
    unsafe {
        if ffi::lua_getinfo(state, c"Sl".as_ptr(), frame) == 0 {
            return Place::default();
        }
        let source = CStr::from_ptr((*frame).source).to_string_lossy().into_owned();
        (source, usize::try_from((*frame).currentline).unwrap_or(0))
    }
}

impl Arguments<'_> {
    /// `state` is that of a function of C, at its start.
    fn new<'s>(state: *mut lua_State) -> Arguments<'s> {
        // SAFETY: the state is valid.
        let count = unsafe { ffi::lua_gettop(state) };
        Arguments { state, count, call: PhantomData }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Argument<'_>> {
        (1..=self.count).map(|position| self.get(position))
    }

    fn get(&self, position: i32) -> Argument<'_> {
        assert!((1..=self.count).contains(&position));
        // SAFETY: there is such an argument, and it stays on the stack. No value is
        // converted in place, which could fail: a string is read as a string, a number as a number.
        unsafe {
            match ffi::lua_type(self.state, position) {
                ffi::LUA_TSTRING => {
                    let mut length = 0;
                    let text = ffi::lua_tolstring(self.state, position, &raw mut length);
                    Argument::Text(slice::from_raw_parts(text.cast(), length))
                }
                ffi::LUA_TNUMBER => Argument::Number(ffi::lua_tonumber(self.state, position)),
                _ => Argument::Other,
            }
        }
    }
}

impl Stack<'_> {
    /// `state` is that of a function of C, at its start.
    fn new<'s>(state: *mut lua_State) -> Stack<'s> {
        // SAFETY: the state is valid.
        let arguments = unsafe { ffi::lua_gettop(state) };
        let room = arguments + ROOM;
        Stack { state, arguments, used: arguments, room, call: PhantomData }
    }

    /// Sets a global of scripts to a table with these texts, or removes it. `name`: [`KEYS`] or
    /// [`ARGV`].
    fn set_global(&mut self, name: i32, texts: Option<Args<'_>>) {
        self.push_copy(GLOBALS);
        self.push_copy(name);
        match texts {
            None => self.push_nil(),
            Some(texts) => {
                self.push_table(texts.len(), 0);
                for (index, text) in (1..).zip(texts.iter()) {
                    self.push_text(text);
                    self.set_element(index);
                }
            }
        }
        self.set_field();
        self.pop();
    }

    /// Makes room for [`RESERVED`] values. False if the stack has its maximum size.
    pub(super) fn reserve(&mut self) -> bool {
        if self.room - self.used > RESERVED {
            return true;
        }
        // SAFETY: the state is valid.
        let has_room = unsafe { ffi::lua_checkstack(self.state, ROOM) } != 0;
        if has_room {
            self.room = self.used + ROOM;
        }
        has_room
    }

    /// Removes what the function has pushed.
    pub(super) fn clear(&mut self) {
        // SAFETY: the arguments are on the stack.
        unsafe { ffi::lua_settop(self.state, self.arguments) }
        self.used = self.arguments;
    }

    fn push_copy(&mut self, argument: i32) {
        assert!((1..=self.arguments).contains(&argument));
        self.count_pushed();
        // SAFETY: there are such an argument, and room.
        unsafe { ffi::lua_pushvalue(self.state, argument) }
    }

    /// Removes the newest value that the function has pushed.
    fn pop(&mut self) {
        assert!(self.used > self.arguments);
        // SAFETY: there is such a value.
        unsafe { ffi::lua_settop(self.state, -2) }
        self.used -= 1;
    }

    /// Counts a value that is pushed next.
    fn count_pushed(&mut self) {
        assert!(self.used + 1 < self.room);
        self.used += 1;
    }

    pub(super) fn push_nil(&mut self) {
        self.count_pushed();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.state) }
    }

    pub(super) fn push_boolean(&mut self, value: bool) {
        self.count_pushed();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushboolean(self.state, i32::from(value)) }
    }

    pub(super) fn push_number(&mut self, value: f64) {
        self.count_pushed();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.state, value) }
    }

    pub(super) fn push_integer(&mut self, value: i64) {
        self.count_pushed();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushinteger(self.state, value) }
    }

    pub(super) fn push_text(&mut self, text: &[u8]) {
        self.count_pushed();
        // SAFETY: there is room, and Lua copies the bytes.
        unsafe {
            ffi::lua_pushlstring(self.state, text.as_ptr().cast(), text.len());
        }
    }

    /// Pushes an empty table with room for elements and fields.
    pub(super) fn push_table(&mut self, elements: usize, fields: usize) {
        /// More are added one at a time.
        const RESERVED_MAX: usize = 1 << 20;
        let reserved = |count: usize| i32::try_from(count.min(RESERVED_MAX)).expect("less");
        self.count_pushed();
        // SAFETY: there is room.
        unsafe { ffi::lua_createtable(self.state, reserved(elements), reserved(fields)) }
    }

    /// Moves the newest value into the table below it.
    pub(super) fn set_element(&mut self, index: i32) {
        self.check_table(2);
        // SAFETY: there are a table and a value.
        unsafe { ffi::lua_rawseti_(self.state, -2, index) }
        self.used -= 1;
    }

    /// Moves the newest two values, a name and a value, into the table below them.
    pub(super) fn set_field(&mut self) {
        self.check_table(3);
        // SAFETY: there are a table, a name and a value.
        unsafe { ffi::lua_rawset(self.state, -3) }
        self.used -= 2;
    }

    /// The given number of values is pushed, and the oldest of them is a table.
    fn check_table(&self, values: i32) {
        assert!(self.used - self.arguments >= values);
        // SAFETY: there is such a value.
        assert_eq!(unsafe { ffi::lua_type(self.state, -values) }, ffi::LUA_TTABLE);
    }
}
