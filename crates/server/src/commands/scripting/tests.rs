//! The libraries of scripts, in an interpreter without a server.

use base::memory::Tracker;
use base::units::Limit;
use mlua::Value;
use proptest::prelude::*;

use super::interpreter::Interpreter;

fn interpreter() -> Interpreter {
    Interpreter::new(Tracker::root("test", Limit::None, None)).unwrap()
}

/// Runs a script with one argument. Returns its result as text.
fn run(interpreter: &Interpreter, script: &str, argument: &[u8]) -> String {
    let text = format!("local value = ... {script}");
    let function = interpreter.compile(text.as_bytes(), "@user_script").unwrap();
    let argument = interpreter.lua.create_string(argument).unwrap();
    match function.call::<Value>(argument) {
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
        "return getmetatable(redis).x",
    ] {
        let guarded = format!("return tostring(pcall(function() {script} end))");
        assert_eq!(run(&interpreter, &guarded, b""), "false", "{script}");
    }
    assert_eq!(run(&interpreter, "return ('x'):upper() .. type(redis.call)", b""), "Xfunction");
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
    fn no_input_breaks_a_library(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let interpreter = interpreter();
        let script = "pcall(cjson.decode, value) pcall(cmsgpack.unpack, value) \
                      pcall(struct.unpack, value, value) pcall(struct.pack, value, 1, 2, 'x') \
                      pcall(struct.size, value) pcall(cmsgpack.unpack_limit, value, 2, 1) return 1";
        prop_assert_eq!(run(&interpreter, script, &bytes), "1");
    }
}
