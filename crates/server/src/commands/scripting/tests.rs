//! The libraries of scripts, in an interpreter without a server.

mod limits;

use base::memory::Tracker;
use base::units::Limit;
use mlua::Value;
use proptest::prelude::*;
use wire::resp::{Args, OwnedArgs, Protocol};

use super::host::{CallError, Place, ScriptHost};
use super::interpreter::{Callee, Interpreter, Outcome, with_interpreter};
use super::{TEXT_BYTES_MAX, load};
use crate::engine::running_scripts::RoutineKind;
use crate::engine::scripts::{Routine, ScriptOptions, Scripts};

fn interpreter() -> Interpreter {
    Interpreter::new(Tracker::root("test", Limit::None, None)).unwrap()
}

/// Runs a script with one argument. Returns its result as text.
fn run(interpreter: &Interpreter, script: &str, argument: &[u8]) -> String {
    let text = format!("local value = ... {script}");
    let function = interpreter.compile(text.as_bytes(), "@user_script").unwrap();
    let argument = interpreter.lua.create_string(argument).unwrap();
    match function.function().call::<Value>(argument) {
        Ok(value) => value.to_string().unwrap(),
        Err(error) => panic!("{script}: {error}"),
    }
}

#[test]
fn a_random_number_needs_a_script() {
    let interpreter = interpreter();
    let found = run(&interpreter, "return select(2, pcall(math.random))", b"");
    assert_eq!(found, "math.random can only be called inside a script invocation");
    let found = run(&interpreter, "return select(2, pcall(redis.call, 'get', 'k'))", b"");
    assert_eq!(found, "ERR redis.call/pcall can only be called inside a script invocation");
}

#[test]
fn scripts_cannot_change_what_others_see() {
    let interpreter = interpreter();
    for script in [
        "_G.redis = 1",
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'call', 1)",
        "setmetatable(redis, {})",
        "getmetatable('').__index = 1",
        "getmetatable('').__index.upper = 1",
        "getmetatable(_G).__index = 1",
        "getmetatable(_G).__index.redis = 1",
        "string.upper = 1",
        "cjson.null = 1",
        "table.insert(redis, 1)",
        "table.insert(_G, 1)",
        "table.insert(getmetatable(''), 1)",
        "table.insert(getmetatable(_G), 1)",
        "table.insert(getmetatable(_G).__index, 1)",
        "return getmetatable(redis).x",
    ] {
        let guarded = format!("return tostring(pcall(function() {script} end))");
        assert_eq!(run(&interpreter, &guarded, b""), "false", "{script}");
    }
    assert_eq!(run(&interpreter, "return ('x'):upper() .. type(redis.call)", b""), "Xfunction");
}

#[test]
fn functions_of_c_refuse_what_they_do_not_check() {
    let interpreter = interpreter();
    for (call, expected) in [
        ("unpack({}, -2147483648, 2147483647)", "user_script:1: too many results to unpack"),
        ("unpack({}, -2147483647, 2147483647)", "user_script:1: too many results to unpack"),
        ("unpack({}, 0/0, 2147483647)", "user_script:1: too many results to unpack"),
        ("unpack({}, 1e300, 2147483647)", "user_script:1: too many results to unpack"),
        ("unpack({}, 1, 8001)", "user_script:1: too many results to unpack"),
        ("unpack({}, 1, 7998)", "user_script:1: too many results to unpack"),
        (
            "local t = {} for i = 1, 7999 do t[i] = i end unpack(t, 1)",
            "user_script:1: too many results to unpack",
        ),
        (
            "local t = {} for i = 1, 8000 do t[i] = i end unpack(t)",
            "user_script:1: too many results to unpack",
        ),
        (
            "string.rep('x')",
            "user_script:1: bad argument #2 to 'rep' (number expected, got no value)",
        ),
        (
            "unpack({}, {})",
            "user_script:1: bad argument #2 to 'unpack' (number expected, got table)",
        ),
        ("unpack()", "user_script:1: bad argument #1 to 'unpack' (table expected, got no value)"),
        (
            "table.insert({}, -2147483648, 1)",
            "user_script:1: bad argument #2 to 'insert' (position out of bounds)",
        ),
        (
            "string.gsub('a', 'b')",
            "user_script:1: bad argument #3 to 'gsub' (string/function/table expected)",
        ),
        (
            "string.gsub('a', 'a', 'a', 'x')",
            "user_script:1: bad argument #4 to 'gsub' (number expected, got string)",
        ),
        ("string.gsub('a', 'a', '%2')", "user_script:1: invalid capture index"),
        ("string.gsub('a', 'a', {a = {}})", "user_script:1: invalid replacement value (a table)"),
        ("string.gsub('a', 'a', function() error('q') end)", "user_script:1: q"),
        ("string.find('a', '[')", "user_script:1: malformed pattern (missing ']')"),
        ("('a'):match('%')", "user_script:1: malformed pattern (ends with '%')"),
        (
            "string.find('a', 'a', {})",
            "user_script:1: bad argument #3 to 'find' (number expected, got table)",
        ),
        ("load('x')", "user_script:1: bad argument #1 to 'load' (function expected, got string)"),
        (
            "loadstring()",
            "user_script:1: bad argument #1 to 'loadstring' (string expected, got no value)",
        ),
        (
            "setmetatable(1, {})",
            "user_script:1: bad argument #1 to 'setmetatable' (table expected, got number)",
        ),
        (
            "setmetatable({})",
            "user_script:1: bad argument #2 to 'setmetatable' (nil or table expected)",
        ),
        (
            "setmetatable(setmetatable({}, {__metatable = 1}), nil)",
            "user_script:1: cannot change a protected metatable",
        ),
        ("rawset({})", "user_script:1: bad argument #2 to 'rawset' (value expected)"),
        ("rawget(1)", "user_script:1: bad argument #1 to 'rawget' (table expected, got number)"),
        ("next(1)", "user_script:1: bad argument #1 to 'next' (table expected, got number)"),
        ("pairs()", "user_script:1: bad argument #1 to 'pairs' (table expected, got no value)"),
        ("xpcall(error)", "user_script:1: bad argument #2 to 'xpcall' (value expected)"),
        (
            "collectgarbage('x')",
            "user_script:1: bad argument #1 to 'collectgarbage' (invalid option 'x')",
        ),
        ("coroutine.resume(1)", "user_script:1: bad argument #1 to 'resume' (coroutine expected)"),
        (
            "coroutine.wrap(tostring)",
            "user_script:1: bad argument #1 to 'wrap' (Lua function expected)",
        ),
        ("table.insert({})", "user_script:1: wrong number of arguments to 'insert'"),
        (
            "table.insert(1, 1)",
            "user_script:1: bad argument #1 to 'insert' (table expected, got number)",
        ),
        (
            "table.sort({3, 1, 2, 5, 4, 6}, function() return true end)",
            "user_script:1: invalid order function for sorting",
        ),
    ] {
        let script = format!("return select(2, pcall(function() {call} end))");
        assert_eq!(run(&interpreter, &script, b""), expected, "{call}");
    }
    for (script, expected) in [
        ("return select('#', unpack({}, 1, 7997))", "7997"),
        ("local t = {} for i = 1, 7998 do t[i] = i end return select('#', unpack(t, 1))", "7998"),
        ("local t = {} for i = 1, 7999 do t[i] = i end return select('#', unpack(t))", "7999"),
        ("return table.concat({unpack({1, 2, 3}, '2')}, ',')", "2,3"),
        ("return select('#', unpack({1}, 5, 1))", "0"),
        ("local t = {1} table.insert(t, 2) table.insert(t, 1, 3) return table.concat(t)", "312"),
        ("return #string.rep('', 2147483647)", "0"),
        (
            "local t = {} for i = 1, 20000 do t[i] = i * 7919 % 20011 end table.sort(t) \
             for i = 2, #t do if t[i] < t[i - 1] then return i end end return 'sorted'",
            "sorted",
        ),
    ] {
        assert_eq!(run(&interpreter, script, b""), expected, "{script}");
    }
}

/// Ends its script at a check, and counts the commands that follow.
#[derive(Debug, Default)]
struct EndingHost {
    calls: usize,
    checks: usize,
    /// Checks before the one that ends the script.
    checks_passed: usize,
}

impl ScriptHost for EndingHost {
    fn call(&mut self, _: Args<'_>, _: &mut Vec<u8>) -> Result<(), CallError> {
        self.calls += 1;
        Err(CallError::Stop)
    }

    fn may_run(&self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn random(&mut self) -> u32 {
        0
    }

    fn set_seed(&mut self, _: i32) {}

    fn may_continue(&mut self, _: &dyn Fn() -> Place) -> bool {
        self.checks += 1;
        self.checks <= self.checks_passed
    }
}

/// Runs a script to its end, as EVAL does. Returns whether it raised an error, and its commands.
fn run_to_end(interpreter: &mut Interpreter, script: &str) -> (bool, usize) {
    let mut host = EndingHost::default();
    (run_with(interpreter, script, &mut host), host.calls)
}

/// Returns whether the script raised an error.
fn run_with(interpreter: &mut Interpreter, script: &str, host: &mut EndingHost) -> bool {
    let code = interpreter.compile(script.as_bytes(), "@user_script").unwrap();
    let routine = Routine::new(ScriptOptions::default());
    let callee = Callee { kind: RoutineKind::Script, name: "", routine: &routine, code: &code };
    let none = OwnedArgs::new();
    let (keys, arguments) = (none.as_args(), none.as_args());
    let outcome = interpreter.run(&callee, keys, arguments, 1 << 20, host);
    !matches!(outcome, Outcome::Returned(_))
}

#[test]
fn checks_are_frequent_whatever_a_script_does() {
    let mut interpreter = interpreter();
    for (script, checks_min) in [
        ("for i = 1, 20000 do local x = i end", 100),
        ("local function f(n) if n > 0 then return f(n - 1) end end f(20000)", 100),
        ("for i = 1, 20 do local s = string.rep('x', 70000) end", 20),
        ("for i = 1, 20 do collectgarbage() end", 20),
        (
            "local t = {} for i = 1, 300 do t[i] = string.rep('x', 1001) .. i % 7 end \
             table.sort(t)",
            50,
        ),
        ("local s = ' ' .. string.rep(' ', 70000) for i = 1, 20 do loadstring(s) end", 20),
        ("local s = string.rep(' ', 70000) for i = 1, 20 do cjson.encode(s) end", 20),
        ("local s = string.rep(' ', 70000) .. 1 for i = 1, 20 do cjson.decode(s) end", 20),
        ("local s = string.rep(' ', 70000) for i = 1, 20 do redis.sha1hex(s) end", 20),
        (
            "local function nest(depth) if depth == 0 then return end \
             for i = 1, 10 do coroutine.wrap(nest)(depth - 1) end end nest(3)",
            10,
        ),
        (
            "local function nest(depth) if depth == 0 then return end \
             for i = 1, 10 do coroutine.resume(coroutine.create(nest), depth - 1) end end nest(3)",
            10,
        ),
    ] {
        let mut host = EndingHost { checks_passed: usize::MAX, ..EndingHost::default() };
        assert!(!run_with(&mut interpreter, script, &mut host), "{script}");
        assert!(host.checks >= checks_min, "{}: {script}", host.checks);
    }
}

#[test]
fn searches_that_take_exponential_time_are_ended() {
    let mut interpreter = interpreter();
    for search in ["find(s, p)", "match(s, p)", "gmatch(s, p)()", "gsub(s, p, '')"] {
        for (text, pattern) in [
            ("string.rep('a', 40)", "string.rep('a?', 40) .. string.rep('a', 40)"),
            ("string.rep('a', 40)", "string.rep('a*', 20) .. 'b'"),
            ("string.rep('a', 10000)", "'.-.-.-.-.-b'"),
            ("string.rep('a', 400000)", "'a*b'"),
        ] {
            let script = format!("local s, p = {text}, {pattern} string.{search}");
            assert_eq!(run_to_end(&mut interpreter, &script), (true, 0), "{script}");
        }
    }
    let script = "local s = string.rep('a', 200000) \
                  return tostring(string.find(s, string.rep('a', 100000) .. 'b', 1, true))";
    assert_eq!(run(&interpreter, script, b""), "nil");
}

#[test]
fn a_script_cannot_handle_its_end() {
    let mut interpreter = interpreter();
    for script in [
        "while true do pcall(function() while true do end end) redis.call('x') end",
        "while true do xpcall(function() while true do end end, function() redis.call('x') end) end",
        "local function handle() xpcall(error, function() redis.call('x') end) end \
         while true do xpcall(function() while true do end end, handle) end",
        "while true do coroutine.wrap(function() while true do end end)() redis.call('x') end",
        "pcall(coroutine.wrap(function() while true do end end)) \
         while true do pcall(function() while true do end end) redis.call('x') end",
    ] {
        assert_eq!(run_to_end(&mut interpreter, script), (true, 0), "{script}");
    }
    assert_eq!(run_to_end(&mut interpreter, "return 1"), (false, 0));
}

#[test]
fn conversions_keep_to_the_memory_of_the_script() {
    let mut interpreter = interpreter();
    for script in [
        "return cjson.decode('[' .. string.rep('[],', 100000) .. '1]')",
        "return cmsgpack.unpack('\\221\\0\\1\\134\\160' .. string.rep('\\144', 100000))",
        "local t = {} for i = 1, 20 do t = {t, t} end return cjson.encode(t)",
        "local s = string.rep('x', 200000) return cmsgpack.pack(s, s, s, s, s, s, s)",
        "local s = string.rep('x', 200000) return struct.pack('c0c0c0c0c0c0c0', s, s, s, s, s, s, s)",
    ] {
        assert_eq!(run_to_end(&mut interpreter, script), (true, 0), "{script}");
        assert!(interpreter.lua.used_memory() < 3 << 20, "{script}");
    }
}

#[test]
fn an_interpreter_that_is_full_of_variables_is_replaced() {
    let memory = Tracker::root("test", Limit::None, None);
    let run = |held_bytes: usize| {
        let ran = with_interpreter(&memory, |interpreter| {
            let held = interpreter.lua.create_string(vec![b'x'; held_bytes]).unwrap();
            interpreter.lua.set_named_registry_value("held", held).unwrap();
            let code = interpreter.compile(b"return #string.rep('x', 1000000)", "@x").unwrap();
            let routine = Routine::new(ScriptOptions::default());
            let callee =
                Callee { kind: RoutineKind::Script, name: "", routine: &routine, code: &code };
            let none = OwnedArgs::new();
            let mut host = EndingHost { checks_passed: usize::MAX, ..EndingHost::default() };
            let (keys, arguments) = (none.as_args(), none.as_args());
            let outcome = interpreter.run(&callee, keys, arguments, 32 << 20, &mut host);
            matches!(outcome, Outcome::Returned(_))
        });
        ran.unwrap()
    };
    assert!(run(0));
    assert!(!run(32 << 20), "the variable leaves no memory");
    assert!(memory.current_bytes() < 1 << 20, "{}", memory.current_bytes());
    assert!(run(0));
    assert!(run(20 << 20), "a smaller one does");
    assert!(memory.current_bytes() > 20 << 20, "it stays");
}

#[test]
fn a_raised_table_stays_as_it_is() {
    let mut interpreter = interpreter();
    for script in ["error(redis)", "error(_G)", "error(string)"] {
        assert_eq!(run_to_end(&mut interpreter, script), (true, 0), "{script}");
    }
    let script =
        "return tostring(rawget(redis, 'source') or rawget(_G, 'source') or string.source)";
    assert_eq!(run(&interpreter, script, b""), "nil");
}

#[test]
fn long_scripts_are_refused() {
    let (mut interpreter, memory) = (interpreter(), Tracker::root("test", Limit::None, None));
    let scripts = Scripts::new(memory);
    let longest = vec![b' '; TEXT_BYTES_MAX];
    assert!(load(&mut interpreter, &scripts, &longest, false).is_ok());
    let error = load(&mut interpreter, &scripts, &[longest, vec![b' ']].concat(), false);
    assert_eq!(error.unwrap_err().to_string(), "ERR the script is too long");
    assert_eq!(scripts.stats().0, 1);
}

#[test]
fn read_only_tables_list_what_they_contain() {
    let interpreter = interpreter();
    let names = |table: &str| {
        let script = format!(
            "local names = {{}} for name, value in pairs({table}) do \
             assert(value == {table}[name]) names[#names + 1] = name end \
             table.sort(names) return table.concat(names, ' ')"
        );
        run(&interpreter, &script, b"")
    };
    assert_eq!(
        names("redis"),
        "LOG_DEBUG LOG_NOTICE LOG_VERBOSE LOG_WARNING REDIS_VERSION REDIS_VERSION_NUM REPL_ALL \
         REPL_AOF REPL_NONE REPL_REPLICA REPL_SLAVE acl_check_cmd breakpoint call debug \
         error_reply log pcall replicate_commands set_repl setresp sha1hex status_reply"
    );
    assert_eq!(
        names("cjson"),
        "_NAME _VERSION decode decode_array_with_array_mt decode_invalid_numbers \
         decode_max_depth encode encode_invalid_numbers encode_keep_buffer encode_max_depth \
         encode_number_precision encode_sparse_array new null"
    );
    assert_eq!(
        names("cmsgpack"),
        "_COPYRIGHT _DESCRIPTION _NAME _VERSION pack unpack unpack_limit unpack_one"
    );
    assert_eq!(names("struct"), "pack size unpack");
    assert!(names("_G").starts_with("_G _VERSION assert bit cjson"));
    let script = "local count = 0 table.foreach(bit, function() count = count + 1 end) \
                  return count .. type(next(redis)) .. type(rawget(redis, 'call'))";
    assert_eq!(run(&interpreter, script, b""), "12stringfunction");
    let script = "local iterate, state, key = pairs(redis) \
                  return tostring(pcall(rawset, state, 'call', 1)) .. type(redis.call)";
    assert_eq!(run(&interpreter, script, b""), "falsefunction");
}

#[test]
fn libraries_follow_those_of_redis() {
    let interpreter = interpreter();
    for (script, expected) in [
        (
            "return cjson.encode(cjson.decode('[+1, +0x1F, -0x10, 01, 1., -.5, 0x1.8p1]'))",
            "[1,31,-16,1,1,-0.5,3]",
        ),
        (
            "return tostring(cjson.decode('+inf')) .. cjson.encode({-0, cjson.decode('-0')})",
            "inf[-0,-0]",
        ),
        ("return cmsgpack.pack(-0) == cmsgpack.pack(0) and 'same' or 'different'", "same"),
        (
            "return select(2, pcall(cjson.decode, '[++1]'))",
            "Expected value but found invalid number at character 2",
        ),
        (
            "return select(2, pcall(cjson.decode, '[.5]'))",
            "Expected value but found invalid token at character 2",
        ),
        (
            "return select(2, pcall(cjson.decode, '[0x]'))",
            "Expected comma or array end but found invalid token at character 3",
        ),
        (
            "local strict = cjson.new() strict.decode_invalid_numbers(false) \
          return select(2, pcall(strict.decode, '[+1]')) .. cjson.encode(cjson.decode('[+1]'))",
            "Expected value but found invalid token at character 2[1]",
        ),
        (
            "local strict = cjson.new() strict.decode_invalid_numbers(false) \
          return select(2, pcall(strict.decode, '[-0x1]')) .. strict.encode(strict.decode('[-.5]'))",
            "Expected value but found invalid number at character 2[-0.5]",
        ),
        ("return select(2, load(function() error('x', 0) end))", "x"),
        (
            "local parts = {'return ', 7} \
          return load(function() return table.remove(parts, 1) end)()",
            "7",
        ),
        ("return select(2, loadstring(string.rep(' ', 4194305)))", "the chunk is too long"),
    ] {
        assert_eq!(run(&interpreter, script, b""), expected, "{script}");
    }
}

#[test]
fn bytecode_is_not_loaded() {
    let interpreter = interpreter();
    let script = "return tostring(loadstring(value)) .. tostring(load(function() \
                  local v = value value = nil return v end))";
    assert_eq!(run(&interpreter, script, b"\x1bLuaQ\0\x01\x04\x08"), "nilnil");
    assert!(interpreter.compile(b"\x1bLuaQ\0", "@user_script").is_err());
    assert_eq!(run(&interpreter, "return tostring(string.dump)", b""), "nil");
}

/// A value as text of Lua.
fn values() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i32>().prop_map(|value| value.to_string()),
        (-1e9..1e9_f64).prop_map(|value| format!("{value:.3}")),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| {
            bytes.iter().fold("'".to_owned(), |text, byte| format!("{text}\\{byte:03}")) + "'"
        }),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..6)
                .prop_map(|items| format!("{{{}}}", items.join(","))),
            proptest::collection::btree_map("[a-z]{1,5}", inner, 1..6).prop_map(|fields| {
                let fields = fields.iter().map(|(name, value)| format!("['{name}']={value}"));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

/// Functions that scripts can call.
static FUNCTIONS: [&str; 46] = [
    "unpack",
    "select",
    "next",
    "pairs",
    "rawget",
    "rawset",
    "setmetatable",
    "tonumber",
    "loadstring",
    "load",
    "xpcall",
    "collectgarbage",
    "table.insert",
    "table.remove",
    "table.concat",
    "table.sort",
    "table.maxn",
    "table.foreach",
    "table.foreachi",
    "string.rep",
    "string.sub",
    "string.byte",
    "string.char",
    "string.format",
    "string.find",
    "string.match",
    "string.gmatch",
    "string.gsub",
    "math.ldexp",
    "math.random",
    "math.randomseed",
    "bit.lshift",
    "bit.tohex",
    "struct.pack",
    "struct.unpack",
    "struct.size",
    "cjson.encode",
    "cjson.decode",
    "cjson.new",
    "cmsgpack.pack",
    "cmsgpack.unpack_limit",
    "redis.sha1hex",
    "redis.setresp",
    "redis.acl_check_cmd",
    "coroutine.create",
    "coroutine.wrap",
];

/// Arguments at the limits of what C converts.
static EXTREMES: [&str; 20] = [
    "nil",
    "true",
    "0",
    "1",
    "-1",
    "2147483647",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "1e300",
    "0/0",
    "-1/0",
    "''",
    "'x'",
    "'%99999s%d!16i32'",
    "{}",
    "{1, 2, 3}",
    "redis",
    "_G",
    "function(...) return ... end",
];

/// Compares two values, with the elements of tables.
const SAME: &str = "local function same(a, b) if type(a) ~= 'table' then return a == b end \
                    for k, v in pairs(a) do if not same(v, b[k]) then return false end end \
                    for k in pairs(b) do if a[k] == nil then return false end end return true end ";

proptest! {
    #[test]
    fn json_round_trip(value in values()) {
        let interpreter = interpreter();
        let script = format!("{SAME} local v = {value} return same(v, cjson.decode(cjson.encode(v)))");
        prop_assert_eq!(run(&interpreter, &script, b""), "true");
    }

    #[test]
    fn messagepack_round_trip(value in values()) {
        let interpreter = interpreter();
        let script =
            format!("{SAME} local v = {value} return same(v, cmsgpack.unpack(cmsgpack.pack(v)))");
        prop_assert_eq!(run(&interpreter, &script, b""), "true");
    }

    #[test]
    fn no_arguments_break_a_function(
        function in proptest::sample::select(&FUNCTIONS[..]),
        arguments in proptest::collection::vec(proptest::sample::select(&EXTREMES[..]), 0..5),
    ) {
        let mut interpreter = interpreter();
        let call = format!("{function}({})", arguments.join(","));
        let script = format!("pcall(function() local _ = {call} end)");
        run_to_end(&mut interpreter, &script);
        let count = "local count = 0 for _ in pairs(redis) do count = count + 1 end return count";
        prop_assert_eq!(run(&interpreter, count, b""), "23");
    }

    #[test]
    fn no_input_breaks_a_library(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let interpreter = interpreter();
        let script = "pcall(cjson.decode, value) pcall(function() cmsgpack.unpack(value) end) \
                      pcall(struct.unpack, value, value) pcall(struct.pack, value, 1, 2, 'x') \
                      pcall(struct.size, value) pcall(cmsgpack.unpack_limit, value, 2, 1) return 1";
        prop_assert_eq!(run(&interpreter, script, &bytes), "1");
    }
}
