//! Every function that scripts can call, where Lua or its binding has little left: references,
//! the stacks of C and Lua, memory. A script gets an error then; the process never ends.

use mlua::Value;

use super::{EndingHost, interpreter};
use crate::commands::scripting::interpreter::{Callee, Interpreter, Outcome};
use crate::commands::scripting::kept::KeptFunction;
use crate::engine::running_scripts::RoutineKind;
use crate::engine::scripts::{Routine, ScriptOptions};
use wire::resp::OwnedArgs;

/// Arguments of the called functions: text of Lua after `local function nest(depth)`.
static ARGUMENTS: [&str; 12] = [
    "",
    "'x'",
    "1, 2",
    "{}",
    "{{{}}}, 'x'",
    "'[[[{\"a\":[]}]]]'",
    "nest(40)",
    "'x', 'x', function() return nest(3) end",
    "function() return 'x' end, {}",
    "'c0c0', 'x', 'y'",
    "cmsgpack.pack(nest(8))",
    "unpack(many)",
];

/// Calls the function with these arguments at a depth of calls of C, or of Lua.
fn call(function: &str, arguments: &str) -> String {
    format!(
        "local function nest(depth)
           local value = {{}}
           for level = 1, depth do value = {{value, a = 'x'}} end
           return value
         end
         local many = {{}}
         for index = 1, ARGUMENTS do many[index] = 'x' end
         local function at(of_lua, of_c)
           if of_lua > 0 then
             local done = at(of_lua - 1, of_c)
             return done
           end
           if of_c > 0 then
             return string.gsub('x', 'x', function() at(0, of_c - 1) end)
           end
           local done = {function}({arguments})
           return 1
         end
         return at(OF_LUA, OF_C)"
    )
}

/// A call of a function, and how deep it is.
#[derive(Debug, Clone, Copy)]
struct Place {
    of_lua: usize,
    of_c: usize,
    /// Values of `many`.
    arguments: usize,
}

const SHALLOW: Place = Place { of_lua: 0, of_c: 0, arguments: 20 };

fn compile(
    interpreter: &Interpreter,
    function: &str,
    arguments: &str,
    place: Place,
) -> KeptFunction {
    let many = if arguments.contains("many") { place.arguments } else { 0 };
    let text = call(function, arguments)
        .replace("OF_LUA", &place.of_lua.to_string())
        .replace("OF_C", &place.of_c.to_string())
        .replace("ARGUMENTS", &many.to_string());
    interpreter.compile(text.as_bytes(), "@user_script").unwrap()
}

fn run(interpreter: &mut Interpreter, code: &KeptFunction, bytes_max: usize) -> Outcome {
    let routine = Routine::new(ScriptOptions::default());
    let callee = Callee { kind: RoutineKind::Script, name: "", routine: &routine, code };
    let none = OwnedArgs::new();
    let mut host = EndingHost { checks_passed: usize::MAX, ..EndingHost::default() };
    let (keys, arguments) = (none.as_args(), none.as_args());
    interpreter.run(&callee, keys, arguments, bytes_max, &mut host)
}

/// The names of all functions, those of libraries included.
fn functions(interpreter: &mut Interpreter) -> Vec<String> {
    let text = "local names = {}
                for library, fields in pairs(_G) do
                  if type(fields) == 'function' then names[#names + 1] = library end
                  if type(fields) == 'table' and library ~= '_G' then
                    for name, value in pairs(fields) do
                      if type(value) == 'function' then
                        names[#names + 1] = library .. '.' .. name
                      end
                    end
                  end
                end
                table.sort(names)
                return table.concat(names, ' ')";
    let code = interpreter.compile(text.as_bytes(), "@user_script").unwrap();
    let Outcome::Returned(Value::String(names)) = run(interpreter, &code, usize::MAX) else {
        panic!("the names are not returned")
    };
    names.to_str().unwrap().split(' ').map(str::to_owned).collect()
}

fn is_alive(interpreter: &mut Interpreter) -> bool {
    let code = interpreter.compile(b"return cjson.encode({1, {}})", "@user_script").unwrap();
    let outcome = run(interpreter, &code, usize::MAX);
    matches!(outcome, Outcome::Returned(Value::String(text)) if text == "[1,{}]")
}

const MEMORY_BYTES: usize = 64 << 20;

/// Calls of each function with all arguments.
fn calls(interpreter: &mut Interpreter, place: Place) -> Vec<KeptFunction> {
    let functions = functions(interpreter);
    assert!(functions.len() > 100);
    let calls = functions.iter().flat_map(|function| {
        ARGUMENTS.iter().map(|arguments| compile(interpreter, function, arguments, place))
    });
    calls.collect()
}

/// The share of calls that also run as a script does, whose errors have a handler.
const RUN_EVERY: usize = 5;
const _: () = assert!(!ARGUMENTS.len().is_multiple_of(RUN_EVERY));

/// Returns how many calls return, and how many fail.
fn run_all<C>(calls: &[C], mut run: impl FnMut(&C) -> bool) -> (usize, usize) {
    let returned = calls.iter().filter(|call| run(call)).count();
    (returned, calls.len() - returned)
}

fn returns(interpreter: &mut Interpreter, call: &KeptFunction) -> bool {
    matches!(run(interpreter, call, MEMORY_BYTES), Outcome::Returned(_))
}

#[test]
fn no_function_ends_the_process_without_references() {
    let mut interpreter = interpreter();
    let calls = calls(&mut interpreter, SHALLOW);
    let functions: Vec<_> = calls.iter().map(KeptFunction::function).collect();
    for left in [0, 1, 3, 500] {
        let lua = interpreter.lua.clone();
        let text = lua.create_string("held").unwrap();
        let texts = lua.create_sequence_from([text]).unwrap();
        let another = || texts.raw_get::<mlua::LuaString>(1).ok();
        let mut held: Vec<_> = std::iter::from_fn(another).collect();
        assert!(held.len() > 6_000, "{}", held.len());
        held.truncate(held.len() - left);
        let (returned, failed) = run_all(&functions, |it| it.call::<Value>(()).is_ok());
        assert!(failed > 0, "{left}");
        assert!(left < 500 || returned > 0);
        for call in calls.iter().step_by(RUN_EVERY * RUN_EVERY) {
            returns(&mut interpreter, call);
        }
        drop(held);
        assert!(is_alive(&mut interpreter), "{left}");
    }
}

#[test]
fn no_function_ends_the_process_at_the_limits_of_the_stacks() {
    let mut interpreter = interpreter();
    let deep_in_c = [94, 96, 97, 98, 99, 195].map(|of_c| Place { of_c, ..SHALLOW });
    let deep_in_lua = Place { of_lua: 19_985, ..SHALLOW };
    let wide = [7_980, 7_999].map(|arguments| Place { arguments, ..SHALLOW });
    for place in deep_in_c.into_iter().chain([deep_in_lua]).chain(wide) {
        let calls = calls(&mut interpreter, place);
        let (_, failed) = run_all(&calls, |call| call.function().call::<Value>(()).is_ok());
        assert!(failed > 0, "{place:?}");
        for call in calls.iter().step_by(RUN_EVERY * RUN_EVERY) {
            returns(&mut interpreter, call);
        }
        assert!(is_alive(&mut interpreter), "{place:?}");
    }
}

#[test]
fn no_function_ends_the_process_without_memory() {
    /// What functions of Rust create between two checks.
    const SLACK_BYTES: usize = 256 << 10;
    let mut interpreter = interpreter();
    let calls = calls(&mut interpreter, SHALLOW);
    for left_bytes in [0, 100, 4_000, 100_000] {
        let mut failed = 0;
        for call in calls.iter().step_by(RUN_EVERY) {
            let bytes_max = interpreter.lua.used_memory() + left_bytes;
            let outcome = run(&mut interpreter, call, bytes_max);
            failed += usize::from(!matches!(outcome, Outcome::Returned(_)));
            let used_bytes = interpreter.lua.used_memory();
            assert!(used_bytes < bytes_max + SLACK_BYTES, "{used_bytes} of {bytes_max}");
        }
        assert!(failed > 0, "{left_bytes}");
        interpreter.lua.gc_collect().unwrap();
        assert!(is_alive(&mut interpreter), "{left_bytes}");
    }
}

#[test]
fn no_text_exceeds_the_memory_of_its_script() {
    const BYTES_MAX: usize = 4 << 20;
    let mut interpreter = interpreter();
    // Each has a text of a fourth of the memory, and would make one of more than the rest.
    for (script, grows) in [
        ("return cjson.encode(text)", true),
        ("return cjson.encode({[text] = 1})", true),
        ("return cjson.encode({text, text, text})", true),
        ("return cjson.decode('\"' .. text .. '\"')", true),
        ("return cmsgpack.pack(text, text, text)", true),
        ("return cmsgpack.pack({text, {text, text}})", true),
        ("local packed = cmsgpack.pack(text) return cmsgpack.unpack(packed .. packed)", true),
        ("return struct.pack('c0c0c0', text, text, text)", true),
        ("return {struct.unpack('c1000000c1000000', text .. text)}", true),
        ("return string.rep(text, 4)", true),
        ("return table.concat({text, text, text, text})", true),
        ("return text .. text .. text .. text", true),
        ("return string.format('%s%s%s%s', text, text, text, text)", true),
        ("return string.gsub(text, '%z', 'abcd')", true),
        ("return string.rep(string.char(0, 1, 2, 3), #text)", true),
        ("return #cjson.decode('[1' .. string.rep(',1', 40000) .. ']')", false),
        ("return #cjson.decode('[1' .. string.rep(',1', 400000) .. ']')", true),
        (
            "local packed = '\\221\\0\\0\\156\\64' .. string.sub(text, 1, 40000) \
             return #select(2, cmsgpack.unpack_one(packed))",
            false,
        ),
        ("return #select(2, cmsgpack.unpack_one('\\221\\0\\8\\0\\0' .. text))", true),
        ("return cjson.encode(string.sub(text, 1, 100000))", false),
        ("return cmsgpack.unpack(cmsgpack.pack(string.sub(text, 1, 100000)))", false),
        ("return struct.pack('c0', string.sub(text, 1, 100000))", false),
    ] {
        let script = format!("local text = string.rep('\\0', 1000000) {script}");
        let code = interpreter.compile(script.as_bytes(), "@user_script").unwrap();
        interpreter.lua.gc_collect().unwrap();
        let outcome = run(&mut interpreter, &code, BYTES_MAX);
        let used_bytes = interpreter.lua.used_memory();
        assert!(used_bytes <= BYTES_MAX + (64 << 10), "{script}: {used_bytes}");
        assert_eq!(!matches!(outcome, Outcome::Returned(_)), grows, "{script}: {outcome:?}");
    }
}

#[test]
fn kept_functions_need_no_references_and_are_removed() {
    let interpreter = interpreter();
    let kept: Vec<KeptFunction> = (0..70_000)
        .map(|index| interpreter.compile(format!("return {index}").as_bytes(), "@x").unwrap())
        .collect();
    let run = |function: &KeptFunction| function.function().call::<usize>(()).unwrap();
    assert_eq!((run(&kept[0]), run(&kept[69_999])), (0, 69_999));
    let count = || interpreter.lua.gc_collect().map(|()| interpreter.lua.used_memory()).unwrap();
    let held_bytes = count();
    drop(kept);
    assert!(count() < held_bytes / 4, "{} of {held_bytes}", count());
    let first = interpreter.compile(b"return 7", "@x").unwrap();
    assert!(first.index <= 70_000, "a removed element is used again");
    assert_eq!(run(&first), 7);
}
