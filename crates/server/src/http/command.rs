//! Redis commands over REST, in the dialect of hosted Redis that its SDKs expect: a JSON array in
//! the body, a path, a pipeline, or a transaction.

// Source: Upstash documentation, "REST API"

use std::borrow::Cow;

use cql::json_limits;
use serde_json::value::RawValue;
use wire::http::{Method, Request};
use wire::resp::{JsonStrings, OwnedArgs};

use super::exchange::{Answered, BYTES, Exchange, JSON, ReplyForm, Response, durability};
use super::pipeline::Pipeline;
use super::target;
use crate::commands::command::Flags;
use crate::commands::execute::Prepared;
use crate::commands::registry::REGISTRY;

/// Maximum number of commands in a pipeline or transaction. A transaction runs them in one turn,
/// like EXEC; 10,000 short commands take about ten milliseconds. A pipeline keeps them in memory
/// until they have run.
pub(super) const COMMANDS_MAX: usize = 10_000;

/// Subcommands of CLIENT that concern the connections of others; the rest of CLIENT needs a
/// connection that outlives its request.
const OTHERS_CONNECTIONS: [&str; 2] = ["client|kill", "client|list"];

const NOT_PARSED: &str = "ERR failed to parse command";
const PIPELINE_NOT_PARSED: &str = "ERR failed to parse pipeline request";

/// `POST /`: a command as a JSON array.
pub(super) fn from_body(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let mut args = std::mem::take(&mut exchange.scratch.args);
    args.clear();
    let answered = match parse_one(request.body(), &mut args) {
        Ok(()) => one(exchange, request, &args),
        Err(text) => Ok(exchange.fail(400, &text)),
    };
    exchange.scratch.args = args;
    answered
}

/// Runs a command from the path: `/set/foo/bar/EX/100`, or `/set/foo?EX=100` with the value as the
/// body.
pub(super) fn from_path(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let mut args = std::mem::take(&mut exchange.scratch.args);
    args.clear();
    let answered = match push_path(request, &mut args) {
        Ok(()) if args.as_args().is_empty() => Ok(exchange.fail(400, "ERR empty command")),
        Ok(()) => one(exchange, request, &args),
        Err(target::BadEscape) => Ok(exchange.fail(400, NOT_PARSED)),
    };
    exchange.scratch.args = args;
    answered
}

pub(super) fn push_path(
    request: &Request<'_>,
    args: &mut OwnedArgs,
) -> Result<(), target::BadEscape> {
    let path = request.path();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let mut word = Vec::new();
    // Except for the root, a path that ends with a slash has an empty last argument.
    for part in path.split(|byte| *byte == b'/').filter(|_| !path.is_empty()) {
        if !part.contains(&b'%') {
            args.push(part);
            continue;
        }
        word.clear();
        target::unescape(part, &mut word)?;
        args.push(&word);
    }
    let has_body = matches!(request.method(), Method::Post | Method::Put);
    if has_body && !request.body().is_empty() {
        args.push(request.body());
    }
    for parameter in target::parameters(request.query().unwrap_or_default()) {
        let target::Parameter { name, value } = parameter?;
        if name == b"_token" {
            continue;
        }
        args.push(&name);
        if let Some(value) = value {
            args.push(&value);
        }
    }
    Ok(())
}

/// Runs one command and responds with its reply.
fn one(exchange: &mut Exchange<'_>, request: &Request<'_>, args: &OwnedArgs) -> Answered {
    let strings = match admit(exchange, request) {
        Ok(strings) => strings,
        Err(text) => return Ok(exchange.fail(400, &text)),
    };
    let prepared = exchange.prepare(args);
    if let Some(text) = refusal(prepared) {
        return Ok(exchange.fail(400, &text));
    }
    let is_resp2 = request.header("upstash-response-format").is_some_and(|form| form == b"resp2");
    let (form, media) =
        if is_resp2 { (ReplyForm::Resp2, BYTES) } else { (ReplyForm::Json(strings), JSON) };
    let ran = exchange.run(prepared, args, form)?;
    Ok(Response::new(ran.status, media).gated(ran.gate))
}

/// `POST /pipeline`: runs commands in order, interleaved with other clients'. Each has its own
/// result.
pub(super) fn pipeline(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let strings = match admit(exchange, request) {
        Ok(strings) => strings,
        Err(text) => return Ok(exchange.fail(400, &text)),
    };
    match parse_all(request.body()) {
        Ok(commands) => Pipeline::new(commands, strings, exchange.client.db).run(exchange),
        Err(text) => Ok(exchange.fail(400, &text)),
    }
}

/// `POST /multi-exec`: runs commands atomically, in one log record.
pub(super) fn multi_exec(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let strings = match admit(exchange, request) {
        Ok(strings) => strings,
        Err(text) => return Ok(exchange.fail(400, &text)),
    };
    let commands = match parse_all(request.body()) {
        Ok(commands) => commands,
        Err(text) => return Ok(exchange.fail(400, &text)),
    };
    if let Some(text) = commands.iter().find_map(|args| refusal(exchange.prepare(args))) {
        return Ok(exchange.fail(400, &text));
    }
    let ran = exchange.run_transaction(&commands, strings)?;
    Ok(Response::new(ran.status, JSON).gated(ran.gate))
}

/// Applies the request's headers.
fn admit(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Result<JsonStrings, String> {
    exchange.choose_database(request)?;
    if let Some(durability) = durability(request)? {
        exchange.choose_durability(durability);
    }
    match request.header("upstash-encoding") {
        Some(name) if name.eq_ignore_ascii_case(b"base64") => Ok(JsonStrings::Base64),
        _ => Ok(JsonStrings::Text),
    }
}

pub(super) type Parsed<T> = std::result::Result<T, Cow<'static, str>>;

/// Parses and appends the arguments of one command. The error text is for the client.
pub(super) fn parse_one(body: &[u8], args: &mut OwnedArgs) -> Parsed<()> {
    json_limits::check(body).map_err(|error| format!("ERR {error}"))?;
    let words = serde_json::from_slice::<Vec<&RawValue>>(body).ok();
    words.and_then(|words| push_words(&words, args)).ok_or(Cow::Borrowed(NOT_PARSED))
}

/// Parses a two-dimensional array of commands. The error text is for the client.
pub(super) fn parse_all(body: &[u8]) -> Parsed<Vec<OwnedArgs>> {
    json_limits::check_commands(body, COMMANDS_MAX).map_err(|error| format!("ERR {error}"))?;
    let rows = serde_json::from_slice::<Vec<Vec<&RawValue>>>(body).ok();
    let parse = |words: &Vec<&RawValue>| {
        let mut args = OwnedArgs::new();
        push_words(words, &mut args).map(|()| args)
    };
    let commands = rows.and_then(|rows| rows.iter().map(parse).collect::<Option<Vec<_>>>());
    commands.filter(|all| !all.is_empty()).ok_or(Cow::Borrowed(PIPELINE_NOT_PARSED))
}

/// Appends arguments: strings, and numbers and booleans in their JSON form. Returns `None` if the
/// list is empty or contains another type.
fn push_words(words: &[&RawValue], args: &mut OwnedArgs) -> Option<()> {
    for word in words {
        let text = word.get();
        match text.as_bytes().first()? {
            b'"' => args.push(serde_json::from_str::<Cow<'_, str>>(text).ok()?.as_bytes()),
            b'-' | b'0'..=b'9' | b't' | b'f' => args.push(text.as_bytes()),
            _ => return None,
        }
    }
    (!words.is_empty()).then_some(())
}

/// Returns the error for a command that is not available over HTTP.
pub(super) fn refusal(prepared: Prepared) -> Option<String> {
    let entry = prepared.entry?;
    if OTHERS_CONNECTIONS.contains(&entry.full_name.as_str()) {
        return None;
    }
    // A subcommand follows the rule of its container command.
    let command = REGISTRY.entry(entry.parent.unwrap_or(entry.id)).command;
    command
        .flags
        .has(Flags::NO_HTTP.and(Flags::WAITS))
        .then(|| format!("ERR Command is not available: '{}'", command.name.to_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_words(body: &str, expected: Option<&[&str]>) {
        let mut args = OwnedArgs::new();
        let words = serde_json::from_str::<Vec<&RawValue>>(body).ok();
        let parsed = words.and_then(|words| push_words(&words, &mut args));
        let found: Vec<_> = args.as_args().iter().map(<[u8]>::to_vec).collect();
        let expected: Option<Vec<_>> =
            expected.map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect());
        assert_eq!(parsed.map(|()| found), expected, "{body}");
    }

    #[test]
    fn arguments_are_strings_numbers_and_booleans() {
        check_words(r#"["SET","k","v",1]"#, Some(&["SET", "k", "v", "1"]));
        check_words(
            r#"["a", 1.0, -5, 12345678901234567890123, 1e5, true, "\u00e9\n"]"#,
            Some(&["a", "1.0", "-5", "12345678901234567890123", "1e5", "true", "é\n"]),
        );
        for body in ["[]", "{}", "\"get\"", "[null]", "[[\"a\"]]", "[{}]", "", "[\"a\"", "[1,]"] {
            check_words(body, None);
        }
    }

    #[test]
    fn connection_commands_are_refused() {
        let refused = |name: &str| {
            let id = REGISTRY.find(name.as_bytes());
            let entry = id.map(|id| REGISTRY.entry(id));
            refusal(Prepared { entry, hash: None }).is_some()
        };
        for name in ["multi", "EXEC", "watch", "Client", "auth", "hello", "select", "quit", "reset"]
        {
            assert!(refused(name), "{name}");
        }
        for name in
            ["monitor", "wait", "waitaof", "save", "subscribe", "PUNSUBSCRIBE", "ssubscribe"]
        {
            assert!(refused(name), "{name}");
        }
        for name in ["client|kill", "client|list"] {
            let entry = REGISTRY.find_full(name.as_bytes()).map(|id| REGISTRY.entry(id));
            assert_eq!(refusal(Prepared { entry, hash: None }), None, "{name}");
        }
        for name in
            ["get", "ping", "echo", "config", "info", "nosuch", "bgsave", "publish", "pubsub"]
        {
            assert!(!refused(name), "{name}");
        }
    }

    #[test]
    fn pipelines_have_a_command_limit() {
        let body = |count: usize| format!("[{}]", vec!["[\"PING\"]"; count].join(","));
        let parsed = |body: &str| parse_all(body.as_bytes()).map(|all| all.len());
        assert_eq!(parsed(&body(COMMANDS_MAX)), Ok(COMMANDS_MAX));
        let too_many = Cow::Borrowed("ERR the request has more than 10000 commands");
        assert_eq!(parsed(&body(COMMANDS_MAX + 1)), Err(too_many));
        for body in ["[]", "[[]]", "[1]", "", "[[\"PING\"]"] {
            assert_eq!(parsed(body), Err(Cow::Borrowed(PIPELINE_NOT_PARSED)), "{body}");
        }
    }
}
