//! `/kv/{key}`: values as they are, with `ETag`, conditions and a time to live.
//!
//! A value is bytes: it comes back as `application/octet-stream`, whatever type it was sent with.

use crate::engine::gate::Gate;

use sha2::{Digest as _, Sha256};
use wire::http::{Method, Request};

use super::exchange::{Answered, BYTES, Exchange, Outcome, Postponed, durability};
use super::{reply, target};

/// Behind it, the rest of the path is the key, escapes decoded; it may have slashes.
pub(super) const PREFIX: &str = "/kv/";

/// Milliseconds: of the value in a PUT, what is left in an answer.
const TTL_LINE: &str = "Myriad-TTL-Ms";

/// A conditional change is tried anew when another reactor changes the key in between, so many times.
const ATTEMPTS_MAX: usize = 64;

const HASH_BYTES: usize = 16;

/// What is known of a key.
#[derive(Debug)]
enum Found {
    Nothing,
    /// A string; how long it lives, if not for ever.
    Value {
        etag: String,
        ttl_ms: Option<i64>,
    },
}

/// Why a request goes no further.
#[derive(Debug)]
enum Stop {
    Postponed,
    /// The answer is this one.
    Refused(Outcome),
}

impl From<Postponed> for Stop {
    fn from(_: Postponed) -> Stop {
        Stop::Postponed
    }
}

type Result<T> = std::result::Result<T, Stop>;

pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let mut key = Vec::new();
    let rest = request.path().strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    if target::unescape(rest, &mut key).is_err() || key.is_empty() {
        return Ok(exchange.fail(400, "ERR no key in the path"));
    }
    match durability(request) {
        Ok(Some(durability)) => exchange.choose_durability(durability),
        Ok(None) => {}
        Err(text) => return Ok(exchange.fail(400, text)),
    }
    let result = match request.method() {
        Method::Put => {
            let ttl_ms = request.header(TTL_LINE);
            let change = Change::Set { value: request.body(), ttl_ms };
            alter(exchange, request, &key, &change)
        }
        Method::Delete => alter(exchange, request, &key, &Change::Delete),
        _ => get(exchange, request, &key),
    };
    match result {
        Ok(outcome) | Err(Stop::Refused(outcome)) => Ok(outcome),
        Err(Stop::Postponed) => Err(Postponed),
    }
}

// Source: RFC 9110 13.1 (preconditions), 15.4.5 (304)
fn get(exchange: &mut Exchange<'_>, request: &Request<'_>, key: &[u8]) -> Result<Outcome> {
    let (found, gate) = read(exchange, key)?;
    if let Some(refused) = check(exchange, request, &found) {
        return Ok(refused.gated(gate));
    }
    let Found::Value { etag, ttl_ms } = found else {
        return Ok(exchange.fail(404, "ERR no such key").gated(gate));
    };
    let scratch = &mut *exchange.scratch;
    // The value is the first of the transaction's two results.
    let value = reply::elements(&scratch.replies).and_then(|(_, rest)| reply::bulk(rest));
    scratch.body.extend_from_slice(value.expect("it was found"));
    let mut outcome = Outcome::new(200, BYTES).gated(gate).with("ETag", etag);
    if let Some(ms) = ttl_ms {
        outcome = outcome.with(TTL_LINE, ms.to_string());
    }
    Ok(outcome)
}

/// What is to become of a key.
enum Change<'a> {
    Set { value: &'a [u8], ttl_ms: Option<&'a [u8]> },
    Delete,
}

/// Changes the key if the request's conditions hold, as one with looking whether they do.
fn alter(
    exchange: &mut Exchange<'_>,
    request: &Request<'_>,
    key: &[u8],
    change: &Change<'_>,
) -> Result<Outcome> {
    let is_conditional =
        request.header("if-match").is_some() || request.header("if-none-match").is_some();
    for _ in 0..ATTEMPTS_MAX {
        if is_conditional {
            run(exchange, &[b"WATCH", key])?;
            let (found, gate) = read_value(exchange, key)?;
            if let Some(refused) = check(exchange, request, &found) {
                return Ok(refused.gated(gate));
            }
        }
        run(exchange, &[b"MULTI"])?;
        run(exchange, &[b"EXISTS", key])?;
        match change {
            Change::Set { value, ttl_ms: Some(ms) } => {
                run(exchange, &[b"SET", key, value, b"PX", ms])?
            }
            Change::Set { value, ttl_ms: None } => run(exchange, &[b"SET", key, value])?,
            Change::Delete => run(exchange, &[b"DEL", key])?,
        };
        let gate = run(exchange, &[b"EXEC"])?;
        let Some((_, existed)) = reply::elements(&exchange.scratch.replies) else {
            continue; // somebody else was faster
        };
        if let Some(text) = reply::error(reply::after(existed)) {
            let text = String::from_utf8_lossy(text).into_owned();
            return Ok(exchange.fail(status_of(&text), &text).gated(gate));
        }
        let existed = reply::integer(existed) == Some(1);
        let outcome = match change {
            Change::Delete if existed => Outcome::new(204, BYTES),
            Change::Delete => exchange.fail(404, "ERR no such key"),
            Change::Set { value, .. } => {
                let status = if existed { 204 } else { 201 };
                Outcome::new(status, BYTES).with("ETag", etag(value))
            }
        };
        return Ok(outcome.gated(gate));
    }
    Ok(exchange.fail(409, "ERR others change the key all the time"))
}

/// Runs one command; its reply alone is in the scratch then. Fails with the answer to the request if
/// the command does.
fn run(exchange: &mut Exchange<'_>, words: &[&[u8]]) -> Result<Gate> {
    exchange.scratch.replies.clear();
    let gate = exchange.run_words(words)?;
    let Some(text) = reply::error(&exchange.scratch.replies) else { return Ok(gate) };
    let text = String::from_utf8_lossy(text).into_owned();
    Err(Stop::Refused(exchange.fail(status_of(&text), &text).gated(gate)))
}

/// Value and time to live, as one.
fn read(exchange: &mut Exchange<'_>, key: &[u8]) -> Result<(Found, Gate)> {
    run(exchange, &[b"MULTI"])?;
    run(exchange, &[b"GET", key])?;
    run(exchange, &[b"PTTL", key])?;
    let gate = run(exchange, &[b"EXEC"])?;
    let (_, value) = reply::elements(&exchange.scratch.replies).expect("nothing is watched");
    if let Some(text) = reply::error(value) {
        let text = String::from_utf8_lossy(text).into_owned();
        return Err(Stop::Refused(exchange.fail(status_of(&text), &text).gated(gate)));
    }
    let found = reply::bulk(value).map_or(Found::Nothing, |bytes| Found::Value {
        etag: etag(bytes),
        ttl_ms: reply::integer(reply::after(value)).filter(|ms| *ms >= 0),
    });
    Ok((found, gate))
}

/// The value alone.
fn read_value(exchange: &mut Exchange<'_>, key: &[u8]) -> Result<(Found, Gate)> {
    let gate = run(exchange, &[b"GET", key])?;
    let value = reply::bulk(&exchange.scratch.replies);
    let found =
        value.map_or(Found::Nothing, |bytes| Found::Value { etag: etag(bytes), ttl_ms: None });
    Ok((found, gate))
}

/// What an error of a command is in HTTP.
fn status_of(text: &str) -> u16 {
    match text.split(' ').next() {
        Some("WRONGTYPE") => 409,
        Some("OOM" | "MISCONF") => 503,
        _ => 400,
    }
}

/// The answer where the request's conditions do not hold.
// Source: RFC 9110 13.1.1 (If-Match), 13.1.2 (If-None-Match), 13.2.2 (precedence)
fn check(exchange: &mut Exchange<'_>, request: &Request<'_>, found: &Found) -> Option<Outcome> {
    let etag = match found {
        Found::Nothing => None,
        Found::Value { etag, .. } => Some(etag.as_str()),
    };
    let mut wanted = request.headers().get_all("if-match").peekable();
    if wanted.peek().is_some() && !wanted.any(|list| names(list, etag, Weak::Differs)) {
        return Some(exchange.fail(412, "ERR the value is another one"));
    }
    if !request.headers().get_all("if-none-match").any(|list| names(list, etag, Weak::IsSame)) {
        return None;
    }
    if matches!(request.method(), Method::Get | Method::Head) {
        return Some(Outcome::new(304, BYTES).with("ETag", etag.unwrap_or_default()));
    }
    Some(exchange.fail(412, "ERR the value is there"))
}

/// How weak tags compare.
// Source: RFC 9110 8.8.3.2 (comparison)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weak {
    IsSame,
    Differs,
}

/// Whether a list of tags, or `*`, names what is there.
fn names(list: &[u8], etag: Option<&str>, weak: Weak) -> bool {
    let Some(etag) = etag else { return false };
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
        let strong = tag.strip_prefix(b"W/").filter(|_| weak == Weak::IsSame).unwrap_or(tag);
        tag == b"*" || strong == etag.as_bytes()
    })
}

/// The same for the same bytes, on every server.
fn etag(value: &[u8]) -> String {
    let digest = Sha256::digest(value);
    format!("\"{}\"", base::hex::hex(&digest[..HASH_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_name_values() {
        let tag = etag(b"value");
        assert_eq!(tag.len(), 2 + 2 * HASH_BYTES);
        assert_ne!(tag, etag(b"valuf"));
        let list = format!("\"x\", {tag}");
        let weak = format!("W/{tag}");
        for (list, strongly, weakly) in [
            (list.as_str(), true, true),
            (weak.as_str(), false, true),
            ("*", true, true),
            ("\"x\"", false, false),
            ("", false, false),
        ] {
            assert_eq!(names(list.as_bytes(), Some(&tag), Weak::Differs), strongly, "{list}");
            assert_eq!(names(list.as_bytes(), Some(&tag), Weak::IsSame), weakly, "{list}");
            assert!(!names(list.as_bytes(), None, Weak::IsSame), "{list}");
        }
    }
}
