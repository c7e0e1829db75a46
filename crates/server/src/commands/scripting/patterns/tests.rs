//! The matcher against that of Lua.

#![expect(clippy::disallowed_methods, reason = "a new interpreter has references left")]

use base::memory::Tracker;
use base::units::Limit;
use mlua::{Function, Table, Value};
use proptest::prelude::*;

use super::*;
use crate::commands::scripting::interpreter::Interpreter;

fn interpreter() -> Interpreter {
    Interpreter::new(Tracker::root("test", Limit::None, None)).unwrap()
}

/// A function of the library in C. Scripts see that of the prelude.
fn of_c(lua: &Lua, name: &str) -> Function {
    lua.globals().get::<Table>("string").unwrap().get(name).unwrap()
}

/// Results or the text of an error.
fn shown(results: mlua::Result<MultiValue>) -> String {
    match results {
        Ok(results) => {
            let texts = results.iter().map(|value| value.to_string().unwrap());
            texts.collect::<Vec<_>>().join("|")
        }
        Err(error) => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("runtime error: ").to_owned()
        }
    }
}

/// A search in Rust, as `find` shows it.
fn find(lua: &Lua, text: &[u8], pattern: &[u8]) -> String {
    let text = lua.create_string(text).unwrap();
    let pattern = lua.create_string(pattern).unwrap();
    let found = search(lua, (text, pattern, 1.0, false)).unwrap();
    if found.front() == Some(&Value::Boolean(false)) {
        return found[1].to_string().unwrap();
    }
    shown(Ok(found))
}

#[track_caller]
fn check_cost(pattern: &str, exponent: f64, is_malformed: bool) {
    let cost = Pattern::new(pattern.as_bytes()).cost();
    assert!((cost.exponent - exponent).abs() < 0.5, "{pattern}: {cost:?}");
    assert_eq!(cost.is_malformed, is_malformed, "{pattern}");
}

#[test]
fn costs_of_patterns() {
    for (pattern, exponent) in [
        ("abc", 1.0),
        ("^abc", 0.0),
        ("%s+", 1.0),
        ("([^,]*)", 1.0),
        ("(%w+)=(%w*)", 2.0),
        ("^%s*(.-)%s*$", 3.0),
        (".-.-.-x", 4.0),
        ("%b()", 2.0),
        ("(.)%1", 2.0),
        ("%f[%a]%a+", 1.0),
    ] {
        check_cost(pattern, exponent, false);
    }
    for pattern in ["(a", "a)", "[a", "a%", "%b(", "%fa", "%1", "(a%1)", "%0"] {
        assert!(Pattern::new(pattern.as_bytes()).cost().is_malformed, "{pattern}");
    }
    assert!(Pattern::new(b"a b").cost().is_plain);
    assert!(Pattern::new(b"a\0.*").cost().is_plain, "a pattern ends with its first zero byte");
    assert!(!Pattern::new(b"a]b-").cost().is_plain);
}

fn patterns() -> impl Strategy<Value = Vec<u8>> {
    let items = [
        "a", "b", ".", "%a", "%W", "[ab]", "[^a]", "[a-c]", "[%a_]", "[]a]", "(", ")", "()", "*",
        "+", "-", "?", "%b()", "%f[a]", "%1", "%2", "^", "$", "%", "[", "\0", "%z", "%(",
    ];
    proptest::collection::vec(proptest::sample::select(items.to_vec()), 0..7)
        .prop_map(|items| items.concat().into_bytes())
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(b"aab()_ \0\xFF".to_vec()), 0..12)
}

proptest! {
    #[test]
    fn searches_find_what_lua_finds(text in texts(), pattern in patterns()) {
        let interpreter = interpreter();
        let lua = &interpreter.lua;
        let arguments = (lua.create_string(&text).unwrap(), lua.create_string(&pattern).unwrap());
        let cost = Pattern::new(&pattern).cost();
        if cost.is_plain {
            return Ok(()); // C searches for a text, as the prelude does
        }
        let expected = shown(of_c(lua, "find").call(arguments));
        let found = find(lua, &text, &pattern);
        prop_assert_eq!(&found, &expected);
        let is_error = expected.contains("pattern") || expected.contains("capture");
        prop_assert!(!is_error || cost.is_malformed, "{:?}", cost);
    }

    /// In texts that are too long for the functions of C, and short ones.
    #[test]
    fn functions_of_scripts_do_what_those_of_lua_do(
        text in texts(),
        times in proptest::sample::select(vec![1, 100]),
        pattern in patterns(),
        replacement in proptest::sample::select(vec!["x", "%0%1", "<%2>", "%%", "%"]),
    ) {
        let interpreter = interpreter();
        let lua = &interpreter.lua;
        let text = lua.create_string(text.repeat(times)).unwrap();
        let pattern = lua.create_string(&pattern).unwrap();
        let cost = Pattern::new(&pattern.as_bytes()).cost();
        if times > 1 && (cost.exponent > 3.0 || cost.is_malformed) {
            return Ok(()); // C takes long, or notices an error later
        }
        let script = "local string, of_c, text, pattern, replacement = ... \
            local function all(library) \
              local results = {} \
              local function add(ok, ...) \
                if not ok then \
                  local problem = string.gsub((...), '^[%a_]+:%d+: ', '') \
                  results[#results + 1] = problem \
                  return \
                end \
                for i = 1, select('#', ...) do results[#results + 1] = tostring((select(i, ...))) end \
              end \
              add(pcall(library.find, text, pattern, -20)) \
              add(pcall(library.match, text, pattern)) \
              add(pcall(library.gsub, text, pattern, replacement)) \
              add(pcall(library.gsub, text, pattern, function(a, b) return b end, 3)) \
              add(pcall(library.gsub, text, pattern, {a = 1, b = false, ab = '%1'})) \
              add(pcall(function() \
                for a, b in library.gmatch(text, pattern) do add(true, a, b) end \
              end)) \
              return table.concat(results, '|') \
            end \
            return all(string), all(of_c)";
        let code = interpreter.compile(script.as_bytes(), "@user_script").unwrap();
        let library: Value = interpreter.compile(b"return string", "@x").unwrap().function().call(()).unwrap();
        let of_c: Table = lua.globals().get("string").unwrap();
        let (found, expected): (LuaString, LuaString) =
            code.function().call((library, of_c, text, pattern, replacement)).unwrap();
        let (found, expected) = (found.to_string_lossy(), expected.to_string_lossy());
        prop_assert_eq!(found, expected);
    }
}
