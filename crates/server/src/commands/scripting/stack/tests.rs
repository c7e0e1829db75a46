//! Calls of commands, in an interpreter without a server: what scripts see of any reply, compared
//! with a naive description of it.

use base::memory::Tracker;
use base::units::Limit;
use mlua::Value;
use proptest::prelude::*;
use wire::resp::{Args, OwnedArgs, Protocol};

use crate::commands::scripting::host::{CallError, Place, ScriptHost};
use crate::commands::scripting::interpreter::{Callee, Interpreter, Outcome};
use crate::engine::running_scripts::RoutineKind;
use crate::engine::scripts::{Routine, ScriptOptions};

const BYTES_MAX: usize = 4 << 20;

/// Answers each command with the same reply, and keeps the last command.
#[derive(Debug, Default)]
struct RepliesHost {
    reply: Vec<u8>,
    last: Vec<Vec<u8>>,
}

impl ScriptHost for RepliesHost {
    fn call(&mut self, args: Args<'_>, reply: &mut Vec<u8>) -> Result<(), CallError> {
        self.last = args.iter().map(<[u8]>::to_vec).collect();
        if args.get(0) == b"refused" {
            return Err(CallError::Fail(b"ERR refused".to_vec()));
        }
        reply.extend_from_slice(&self.reply);
        Ok(())
    }

    fn may_run(&self, args: Args<'_>) -> Option<bool> {
        (args.get(0) != b"unknown").then(|| args.len() == 1)
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn random(&mut self) -> u32 {
        0
    }

    fn set_seed(&mut self, _: i32) {}

    fn may_continue(&mut self, _: &dyn Fn() -> Place) -> bool {
        true
    }
}

/// What a script sees of a value. Names of tables are in order.
const SHOW: &str = "local function show(value)
  if type(value) == 'number' then return 'n' .. string.format('%.17g', value) end
  if type(value) == 'string' then return 's' .. value .. ';' end
  if type(value) ~= 'table' then return tostring(value) .. ';' end
  local parts = {}
  for name, item in pairs(value) do parts[#parts + 1] = show(name) .. '=' .. show(item) end
  table.sort(parts)
  return '{' .. table.concat(parts) .. '}'
end ";

struct Script {
    interpreter: Interpreter,
    host: RepliesHost,
}

impl Script {
    fn new() -> Script {
        let interpreter = Interpreter::new(Tracker::root("test", Limit::None, None)).unwrap();
        Script { interpreter, host: RepliesHost::default() }
    }

    /// Runs a script with one key and one argument, as EVAL does.
    fn run(&mut self, reply: &[u8], script: &str) -> String {
        self.host.reply = reply.to_vec();
        let script = format!("{SHOW}{script}");
        let code = self.interpreter.compile(script.as_bytes(), "@user_script").unwrap();
        let routine = Routine::new(ScriptOptions::default());
        let callee = Callee { kind: RoutineKind::Script, name: "", routine: &routine, code: &code };
        let (keys, arguments): (OwnedArgs, OwnedArgs) =
            (["a\0\u{ff}"].into_iter().collect(), ["b"].into_iter().collect());
        let (keys, arguments) = (keys.as_args(), arguments.as_args());
        let outcome = self.interpreter.run(&callee, keys, arguments, BYTES_MAX, &mut self.host);
        match outcome {
            Outcome::Returned(value) => value.to_string().unwrap(),
            Outcome::Raised(Value::Table(error)) => {
                format!("raised {}", error.raw_get::<String>("err").unwrap())
            }
            Outcome::Raised(error) => format!("raised {}", error.to_string().unwrap()),
            Outcome::Failed(error) => panic!("{script}: {error}"),
        }
    }
}

#[track_caller]
fn check(reply: &[u8], script: &str, expected: &str) {
    assert_eq!(Script::new().run(reply, script), expected, "{script}");
}

#[test]
fn errors_are_raised_or_returned() {
    let reply = b"-WRONG text\r\n";
    check(reply, "return redis.call('x')", "raised WRONG text");
    check(
        reply,
        "return show(redis.pcall('x'))",
        "{serr;=sWRONG text;signore_error_stats_update;=true;}",
    );
    check(reply, "return select(2, pcall(redis.call, 'x'))", "WRONG text");
    check(reply, "return redis.call('refused')", "raised ERR refused");
    check(reply, "return redis.pcall('refused').err", "ERR refused");
    check(
        reply,
        "return redis.call()",
        "raised ERR Please specify at least one argument for this redis lib call",
    );
    check(
        reply,
        "return redis.pcall('x', {}).err",
        "ERR Lua redis lib command arguments must be strings or integers",
    );
    check(reply, "return tostring(redis.pcall('x', nil).ignore_error_stats_update)", "nil");
    check(b"?x\r\n", "return redis.pcall('x').err", "ERR malformed reply of a command");
    check(b"$9\r\nx\r\n", "return redis.pcall('x').err", "ERR malformed reply of a command");
}

#[test]
fn access_is_checked() {
    check(b"", "return tostring(redis.acl_check_cmd('x'))", "true");
    check(b"", "return tostring(redis.acl_check_cmd('x', 1))", "false");
    let unknown = "raised ERR Invalid command passed to redis.acl_check_cmd()";
    check(b"", "return redis.acl_check_cmd('unknown')", unknown);
}

#[test]
fn arguments_have_the_texts_of_redis() {
    for (arguments, expected) in [
        ("KEYS[1], ARGV[1], #KEYS, #ARGV", &[&b"a\0\xc3\xbf"[..], b"b", b"1", b"1"][..]),
        ("'', 0, -0, 1.5, -3", &[b"", b"0", b"0", b"1.5", b"-3"]),
        (
            "2^53, 2^62, 2^63, -2^63",
            &[
                b"9007199254740992",
                b"4611686018427387904",
                b"9.2233720368547758e+18",
                b"-9223372036854775808",
            ],
        ),
        ("1e300, 1/0, 0.1", &[b"1.0000000000000001e+300", b"inf", b"0.10000000000000001"]),
    ] {
        let mut script = Script::new();
        script.run(b"+OK\r\n", &format!("redis.call({arguments})"));
        assert_eq!(script.host.last, expected, "{arguments}");
    }
    let mut script = Script::new();
    let many = "local t = {} for i = 1, 7000 do t[i] = i end return redis.call(unpack(t))";
    assert_eq!(script.run(b":7\r\n", many), "7");
    assert_eq!(script.host.last.len(), 7000);
    assert_eq!(script.host.last[6999], b"7000");
}

#[test]
fn arguments_and_replies_keep_to_the_memory_of_the_script() {
    // Without a limit, the arguments would have 7 GB.
    let script = "local s, t = string.rep('x', 1000000), {} for i = 1, 7000 do t[i] = s end \
                  return redis.pcall('set', unpack(t)).err";
    check(b"+OK\r\n", script, "ERR the arguments of the command are too large");
    // The limit is in force again after a call.
    let script = "redis.call('x') redis.pcall('refused') return #string.rep('x', 10000000)";
    check(b"+OK\r\n", script, "raised not enough memory");
}

#[test]
fn errors_of_lua_during_a_call_are_errors_of_the_script() {
    let large = [b"*400000\r\n".to_vec(), b"$9\r\n123456789\r\n".repeat(400_000)].concat();
    let script = "local errors = {} for i = 1, 20 do \
                  local ok, text = pcall(redis.call, 'x') \
                  errors[i] = tostring(ok) .. text end return errors[20]";
    let mut run = Script::new();
    assert_eq!(run.run(&large, script), "falsenot enough memory");
    assert_eq!(run.run(b":1\r\n", "return redis.call('x')"), "1");
    // The collector calls destructors, which fail if calls of C are nested too deeply.
    let script = "local function deep(n) \
                  if n > 0 then pcall(deep, n - 1) return end \
                  for i = 1, 300 do pcall(cjson.decode, '!') end \
                  for i = 1, 2000 do redis.call('x', i) end end \
                  for n = 150, 200 do deep(n) end return redis.call('x')";
    assert_eq!(run.run(b"$3\r\nend\r\n", script), "end");
}

#[test]
fn replies_are_limited_by_the_stack_of_lua() {
    let nested = |depth: usize| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
    let depth = "local depth, value = 0, redis.pcall('x') if value.err then return value.err end \
                 while type(value) == 'table' do depth, value = depth + 1, value[1] end \
                 return depth .. redis.call('x')[1][1][1][1][1][1][1][1][1][1]";
    check(&nested(10), depth, "101");
    let depth = "local depth, value = 0, redis.pcall('x') if value.err then return value.err end \
                 while type(value) == 'table' do depth, value = depth + 1, value[1] end \
                 return depth";
    check(&nested(3000), depth, "3000");
    check(&nested(50_000), depth, "ERR reply is too large");
}

#[test]
fn coroutines_call_commands() {
    let script = "local f = coroutine.wrap(function(x) \
                  local y = coroutine.yield(redis.call('a', x)) \
                  return redis.pcall('refused').err .. redis.call('b', y)[2] end) \
                  return f(1)[2] .. f(2)";
    check(b"*2\r\n+x\r\n$1\r\ny\r\n", script, "yERR refusedy");
    let script = "local f = coroutine.create(function() redis.call('x') end) \
                  return select(2, coroutine.resume(f)).err";
    check(b"-E\r\n", script, "E");
}

#[test]
fn keys_are_removed_after_the_run() {
    let mut script = Script::new();
    for body in ["return #KEYS + #ARGV", "error({err = 'E'})", "redis.call('x')"] {
        script.run(b"-E\r\n", body);
        let code = script.interpreter.compile(b"return KEYS", "@user_script").unwrap();
        let error = code.function().call::<Value>(()).unwrap_err().to_string();
        assert!(error.contains("nonexistent global variable 'KEYS'"), "{error}");
    }
}

/// A reply.
#[derive(Debug, Clone)]
enum Reply {
    Status(String),
    Error(String),
    Integer(i32),
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Reply>>),
    Null,
    Boolean(bool),
    Double(f64),
    BigNumber(String),
    Verbatim(Vec<u8>),
    Map(Vec<(String, Reply)>),
    Set(Vec<String>),
}

impl Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, kind: char, text: &str| {
            out.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
        };
        let blob = |out: &mut Vec<u8>, kind: char, bytes: &[u8]| {
            line(out, kind, &bytes.len().to_string());
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        };
        match self {
            Reply::Status(text) => line(out, '+', text),
            Reply::Error(text) => line(out, '-', text),
            Reply::Integer(number) => line(out, ':', &number.to_string()),
            Reply::Bulk(None) => line(out, '$', "-1"),
            Reply::Bulk(Some(bytes)) => blob(out, '$', bytes),
            Reply::Array(None) => line(out, '*', "-1"),
            Reply::Array(Some(items)) => {
                line(out, '*', &items.len().to_string());
                for item in items {
                    item.encode(out);
                }
            }
            Reply::Null => line(out, '_', ""),
            Reply::Boolean(value) => line(out, '#', if *value { "t" } else { "f" }),
            Reply::Double(number) => line(out, ',', &number.to_string()),
            Reply::BigNumber(digits) => line(out, '(', digits),
            Reply::Verbatim(text) => blob(out, '=', &[b"txt:", &text[..]].concat()),
            Reply::Map(pairs) => {
                line(out, '%', &pairs.len().to_string());
                for (name, value) in pairs {
                    blob(out, '$', name.as_bytes());
                    value.encode(out);
                }
            }
            Reply::Set(names) => {
                line(out, '~', &names.len().to_string());
                for name in names {
                    blob(out, '$', name.as_bytes());
                }
            }
        }
    }

    /// What `SHOW` returns; `None`: nil, which tables do not keep.
    fn shown(&self) -> Option<String> {
        let text = |text: &str| format!("s{text};");
        let table = |fields: Vec<(String, Option<String>)>| {
            let pairs = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
            let mut parts: Vec<String> =
                pairs.map(|(name, value)| format!("{name}={value}")).collect();
            parts.sort();
            format!("{{{}}}", parts.concat())
        };
        let single = |name: &str, value: String| table(vec![(text(name), Some(value))]);
        Some(match self {
            Reply::Status(status) => single("ok", text(status)),
            Reply::Error(error) => table(vec![
                (text("err"), Some(text(error))),
                (text("ignore_error_stats_update"), Some("true;".into())),
            ]),
            Reply::Integer(number) => format!("n{number}"),
            Reply::Bulk(None) | Reply::Array(None) | Reply::Boolean(false) => "false;".into(),
            Reply::Bulk(Some(bytes)) => text(std::str::from_utf8(bytes).unwrap()),
            Reply::Array(Some(items)) => table(
                items
                    .iter()
                    .enumerate()
                    .map(|(place, item)| (format!("n{}", place + 1), item.shown()))
                    .collect(),
            ),
            Reply::Null => return None,
            Reply::Boolean(true) => "true;".into(),
            Reply::Double(number) => single("double", format!("n{number}")),
            Reply::BigNumber(digits) => single("big_number", text(digits)),
            Reply::Verbatim(content) => single(
                "verbatim_string",
                table(vec![
                    (text("format"), Some(text("txt"))),
                    (text("string"), Some(text(std::str::from_utf8(content).unwrap()))),
                ]),
            ),
            Reply::Map(pairs) => single(
                "map",
                table(pairs.iter().map(|(name, value)| (text(name), value.shown())).collect()),
            ),
            Reply::Set(names) => single(
                "set",
                table(names.iter().map(|name| (text(name), Some("true;".into()))).collect()),
            ),
        })
    }
}

fn replies() -> impl Strategy<Value = Reply> {
    let names = || proptest::collection::btree_set("[a-z]{0,4}", 0..5);
    let leaf = prop_oneof![
        "[a-z ]{0,9}".prop_map(Reply::Status),
        "[A-Z]{1,9}".prop_map(Reply::Error),
        any::<i32>().prop_map(Reply::Integer),
        proptest::option::of("[a-z\r\n]{0,99}")
            .prop_map(|text| Reply::Bulk(text.map(String::into_bytes))),
        Just(Reply::Array(None)),
        Just(Reply::Null),
        any::<bool>().prop_map(Reply::Boolean),
        any::<i16>().prop_map(|number| Reply::Double(f64::from(number) / 4.0)),
        "[0-9]{1,40}".prop_map(Reply::BigNumber),
        "[a-z]{0,20}".prop_map(|text| Reply::Verbatim(text.into_bytes())),
        names().prop_map(|names| Reply::Set(names.into_iter().collect())),
    ];
    leaf.prop_recursive(5, 60, 8, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..30)
                .prop_map(|items| Reply::Array(Some(items))),
            proptest::collection::btree_map("[a-z]{0,4}", inner, 0..6)
                .prop_map(|pairs| Reply::Map(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn scripts_see_any_reply(reply in replies()) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        let mut script = Script::new();
        let shown = script.run(&bytes, "return show(redis.pcall('x'))");
        prop_assert_eq!(shown, reply.shown().unwrap_or_else(|| "nil;".into()));
    }

    #[test]
    fn no_bytes_break_a_call(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut script = Script::new();
        script.run(&bytes, "pcall(redis.call, 'x') redis.pcall('x') return 1");
        let marks = b"*%~$+-:,(=_#>\r\n0123";
        let text: Vec<u8> = bytes.iter().map(|byte| marks[usize::from(*byte) % marks.len()]).collect();
        let found = script.run(&text, "pcall(redis.call, 'x') redis.pcall('x') return 1");
        prop_assert_eq!(found, "1");
    }
}
