//! `/kv/{key}`: raw values with `ETag`, preconditions and a TTL.
//!
//! A value is a byte string: it is returned as `application/octet-stream`, regardless of the type
//! it was sent with.

use sha2::{Digest as _, Sha256};
use wire::http::{Method, Request};
use wire::resp::Args;

use super::exchange::{Answered, BYTES, Exchange, Response, durability};
use super::target;
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::commands::{DEL, GET, SET};

/// Path prefix. The rest of the path, percent-decoded, is the key; it may contain slashes.
pub(super) const PREFIX: &str = "/kv/";

/// TTL of the value in milliseconds: the new TTL in a PUT, the remaining TTL in a response.
const TTL_LINE: &str = "Myriad-TTL-Ms";

const HASH_BYTES: usize = 16;

/// A failed precondition of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unmet {
    /// The client already has this value: 304.
    NotModified,
    /// `If-Match` names another value: 412.
    Differs,
    /// `If-None-Match` names this value: 412.
    Exists,
}

impl Unmet {
    fn response(self, exchange: &mut Exchange<'_>, etag: Option<String>) -> Response {
        match self {
            Unmet::NotModified => Response::new(304, BYTES).with("ETag", etag.unwrap_or_default()),
            Unmet::Differs => exchange.fail(412, "ERR the value differs"),
            Unmet::Exists => exchange.fail(412, "ERR the value exists"),
        }
    }
}

pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let mut key = Vec::new();
    let rest = request.path().strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    if target::unescape(rest, &mut key).is_err() {
        return Ok(exchange.fail(400, "ERR malformed percent-encoding in the path"));
    }
    if key.is_empty() {
        return Ok(exchange.fail(400, "ERR no key in the path"));
    }
    if let Err(text) = exchange.choose_database(request) {
        return Ok(exchange.fail(400, &text));
    }
    match durability(request) {
        Ok(Some(durability)) => exchange.choose_durability(durability),
        Ok(None) => {}
        Err(text) => return Ok(exchange.fail(400, text)),
    }
    match request.method() {
        Method::Put => put(exchange, request, &key),
        Method::Delete => delete(exchange, request, &key),
        _ => get(exchange, request, &key),
    }
}

// Source: RFC 9110 13.1 (preconditions), 15.4.5 (304)
fn get(exchange: &mut Exchange<'_>, request: &Request<'_>, key: &[u8]) -> Answered {
    let (result, gate) = exchange.run_as(&[GET.name.as_bytes(), key], |cx, args| {
        let key = cx.key(args.get(1));
        let Some(value) = cx.locked.string(cx.db, key)? else {
            return Ok((check(request, None), None, None));
        };
        let tag = etag(&value);
        let unmet = check(request, Some(&tag));
        if unmet.is_none() {
            cx.reply.out.extend_from_slice(&value);
        }
        let expiry = cx.locked.expiry(cx.db, key).flatten();
        let ttl_ms = expiry.map(|at| at.0.saturating_sub(cx.unix().0));
        Ok((unmet, Some(tag), ttl_ms))
    })?;
    let response = match result {
        Err(fail) => failed(exchange, &fail),
        Ok((Some(unmet), etag, _)) => unmet.response(exchange, etag),
        Ok((None, None, _)) => exchange.fail(404, "ERR no such key"),
        Ok((None, Some(etag), ttl_ms)) => {
            let response = Response::new(200, BYTES).with("ETag", etag);
            match ttl_ms {
                Some(ms) => response.with(TTL_LINE, ms.to_string()),
                None => response,
            }
        }
    };
    Ok(response.gated(gate))
}

// Source: RFC 9110 14.5 (a part of a value must not be stored as the whole)
fn put(exchange: &mut Exchange<'_>, request: &Request<'_>, key: &[u8]) -> Answered {
    if request.header("content-range").is_some() {
        return Ok(exchange.fail(400, "ERR a value is written as a whole, without Content-Range"));
    }
    let value = request.body();
    let words: &[&[u8]] = match request.header(TTL_LINE) {
        Some(ttl_ms) => &[SET.name.as_bytes(), key, value, b"PX", ttl_ms],
        None => &[SET.name.as_bytes(), key, value],
    };
    let (result, gate) =
        exchange.run_as(words, |cx, args| change_if(cx, args, request, SET.run))?;
    let response = match result {
        Err(fail) => failed(exchange, &fail),
        Ok(Err(unmet)) => unmet.response(exchange, None),
        Ok(Ok(existed)) => {
            exchange.scratch.body.clear(); // SET's own reply
            let status = if existed { 204 } else { 201 };
            Response::new(status, BYTES).with("ETag", etag(value))
        }
    };
    Ok(response.gated(gate))
}

fn delete(exchange: &mut Exchange<'_>, request: &Request<'_>, key: &[u8]) -> Answered {
    let (result, gate) = exchange
        .run_as(&[DEL.name.as_bytes(), key], |cx, args| change_if(cx, args, request, DEL.run))?;
    let response = match result {
        Err(fail) => failed(exchange, &fail),
        Ok(Err(unmet)) => unmet.response(exchange, None),
        Ok(Ok(false)) => exchange.fail(404, "ERR no such key"),
        Ok(Ok(true)) => {
            exchange.scratch.body.clear(); // DEL's own reply
            Response::new(204, BYTES)
        }
    };
    Ok(response.gated(gate))
}

/// Checks the preconditions and runs a command, atomically. Returns whether the key existed before.
fn change_if(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    request: &Request<'_>,
    run: fn(&mut CommandContext<'_>, Args<'_>) -> Result<(), Fail>,
) -> Result<Result<bool, Unmet>, Fail> {
    let key = cx.key(args.get(1));
    if request.header("if-match").is_some() || request.header("if-none-match").is_some() {
        let tag = cx.locked.string(cx.db, key)?.map(|value| etag(&value));
        if let Some(unmet) = check(request, tag.as_deref()) {
            return Ok(Err(unmet));
        }
    }
    let existed = cx.locked.contains(cx.db, key);
    run(cx, args)?;
    Ok(Ok(existed))
}

/// Builds the response to a request whose command failed.
fn failed(exchange: &mut Exchange<'_>, fail: &Fail) -> Response {
    let text = String::from_utf8_lossy(&fail.bytes()).into_owned();
    let status = match text.split(' ').next() {
        Some("NOPERM") => 403,
        Some("WRONGTYPE") => 409,
        Some("OOM" | "MISCONF") => 503,
        _ => 400,
    };
    exchange.fail(status, &text)
}

/// Returns the precondition that fails for a key with this tag; the tag is `None` if there is no
/// value.
// Source: RFC 9110 13.1.1 (If-Match), 13.1.2 (If-None-Match), 13.2.2 (precedence)
fn check(request: &Request<'_>, etag: Option<&str>) -> Option<Unmet> {
    let mut required = request.headers().get_all("if-match").peekable();
    if required.peek().is_some() && !required.any(|list| names(list, etag, Weak::Differs)) {
        return Some(Unmet::Differs);
    }
    if !request.headers().get_all("if-none-match").any(|list| names(list, etag, Weak::IsSame)) {
        return None;
    }
    let is_read = matches!(request.method(), Method::Get | Method::Head);
    Some(if is_read { Unmet::NotModified } else { Unmet::Exists })
}

/// How weak tags are compared.
// Source: RFC 9110 8.8.3.2 (comparison)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weak {
    IsSame,
    Differs,
}

/// Whether the list of tags, or `*`, matches the current tag.
fn names(list: &[u8], etag: Option<&str>, weak: Weak) -> bool {
    let Some(etag) = etag else { return false };
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
        let strong = tag.strip_prefix(b"W/").filter(|_| weak == Weak::IsSame).unwrap_or(tag);
        tag == b"*" || strong == etag.as_bytes()
    })
}

/// Returns a tag that depends only on the bytes, so it is the same on every server.
fn etag(value: &[u8]) -> String {
    let digest = Sha256::digest(value);
    format!("\"{}\"", base::hex::hex(&digest[..HASH_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_identify_values() {
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
