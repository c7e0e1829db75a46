//! `/subscribe/{channel}` and `/psubscribe/{pattern}`: messages as server-sent events, in the
//! dialect of hosted Redis: `data: message,CHANNEL,MESSAGE`.

// Source: Upstash documentation, "REST API" (SUBSCRIBE); HTML Living Standard 9.2.6 (event streams)

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wire::http::{Method, Request};

use super::exchange::{Answered, Exchange, Response};
use super::target;
use crate::commands::{PSUBSCRIBE, SUBSCRIBE};
use crate::engine::pubsub::{Kind, MatchedSubscription, Message, Subscriptions};

/// Prefix of paths whose segments are channels.
pub(super) const CHANNELS: &str = "/subscribe/";
/// Prefix of paths whose segments are patterns.
pub(super) const PATTERNS: &str = "/psubscribe/";

const MEDIA: &str = "text/event-stream";

/// Encoding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Text; invalid UTF-8 is replaced with U+FFFD.
    Text,
    Base64,
}

impl Encoding {
    pub(crate) const COUNT: usize = 2;

    /// Index of this encoding in a table with one row for each.
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Subscriptions of an HTTP connection.
#[derive(Debug)]
pub(crate) struct Subscription {
    names: Subscriptions,
    encoding: Encoding,
}

impl Subscription {
    pub(crate) fn names(&self) -> &Subscriptions {
        &self.names
    }

    pub(crate) fn names_mut(&mut self) -> &mut Subscriptions {
        &mut self.names
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Encodes a message as an event, the same for all subscribers with this encoding.
    pub(crate) fn event(&self, message: &Message, matched: MatchedSubscription<'_>) -> Vec<u8> {
        let encoded;
        let payload = match self.encoding {
            Encoding::Text => message.payload(),
            Encoding::Base64 => {
                encoded = STANDARD.encode(message.payload());
                encoded.as_bytes()
            }
        };
        let mut out = Vec::new();
        match matched.pattern() {
            None => write_event(&[b"message", message.channel(), payload], &mut out),
            Some(pattern) => {
                write_event(&[b"pmessage", pattern, message.channel(), payload], &mut out);
            }
        }
        out
    }
}

pub(super) fn channels(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    answer(exchange, request, Kind::Channel, CHANNELS)
}

pub(super) fn patterns(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    answer(exchange, request, Kind::Pattern, PATTERNS)
}

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
fn answer(
    exchange: &mut Exchange<'_>,
    request: &Request<'_>,
    kind: Kind,
    prefix: &str,
) -> Answered {
    let encoding = match target::parameter(request.query(), "encoding").as_deref() {
        None => Encoding::Text,
        Some(b"base64") => Encoding::Base64,
        Some(_) => return Ok(exchange.fail(400, "ERR encoding must be base64 or omitted")),
    };
    let Ok(wanted) = wanted(request, kind, prefix) else {
        return Ok(exchange.fail(400, "ERR failed to parse command"));
    };
    if wanted.is_empty() {
        return Ok(exchange.fail(400, "ERR no channel or pattern"));
    }
    for (command, kind) in [(SUBSCRIBE.name, Kind::Channel), (PSUBSCRIBE.name, Kind::Pattern)] {
        let names = wanted.iter().filter(|(known, _)| *known == kind);
        let names: Vec<&[u8]> = names.map(|(_, name)| name.as_slice()).collect();
        if names.is_empty() {
            continue;
        }
        if let Err(text) = exchange.permits(command, names.into_iter()) {
            return Ok(exchange.fail(403, &text));
        }
    }
    let mut response = Response::new(200, MEDIA);
    if request.method() == Method::Head {
        return Ok(response);
    }
    let mut names = Subscriptions::default();
    for (kind, name) in &wanted {
        if let Err(refusal) = exchange.subscribe(&mut names, *kind, name) {
            exchange.forget_subscriptions(&names);
            return Ok(exchange.fail(503, &refusal.to_string()));
        }
        let word: &[u8] = if *kind == Kind::Pattern { b"psubscribe" } else { b"subscribe" };
        let count = names.reported_count(*kind).to_string();
        write_event(&[word, name, count.as_bytes()], &mut exchange.scratch.body);
    }
    response.subscription = Some(Box::new(Subscription { names, encoding }));
    Ok(response)
}

/// Returns the names in the path segments and in the `pattern` parameters.
fn wanted(
    request: &Request<'_>,
    kind: Kind,
    prefix: &str,
) -> Result<Vec<(Kind, Vec<u8>)>, target::BadEscape> {
    let mut wanted = Vec::new();
    let path = request.path();
    let path = path.strip_prefix(prefix.as_bytes()).unwrap_or(path);
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let mut name = Vec::new();
        target::unescape(part, &mut name)?;
        wanted.push((kind, name));
    }
    for parameter in target::parameters(request.query().unwrap_or_default()) {
        let target::Parameter { name, value } = parameter?;
        if name == b"pattern" {
            wanted.push((Kind::Pattern, value.unwrap_or_default()));
        }
    }
    Ok(wanted)
}

/// Appends one event of comma-separated words. Event streams are UTF-8, so invalid bytes are
/// replaced with U+FFFD.
fn write_event(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_lines(String::from_utf8_lossy(word).as_bytes(), out);
    }
    out.extend_from_slice(b"\n\n");
}

/// Appends text. A line end would terminate the field, so each line gets its own `data` field; the
/// receiver joins them.
fn write_lines(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr::memchr2(b'\r', b'\n', rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(b"\ndata: ");
        let end_bytes = if rest[at..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[at + end_bytes..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&[u8]], expected: &str) {
        let mut out = Vec::new();
        write_event(words, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn line_ends_do_not_split_an_event() {
        check(&[b"subscribe", b"chat", b"1"], "data: subscribe,chat,1\n\n");
        check(&[b"message", b"chat", b""], "data: message,chat,\n\n");
        check(
            &[b"m", b"c", b"a\nb\r\nc\rd\n\n"],
            "data: m,c,a\ndata: b\ndata: c\ndata: d\ndata: \ndata: \n\n",
        );
        check(&[b"m", b"c\n\ndata: x", b"y"], "data: m,c\ndata: \ndata: data: x,y\n\n");
        check(&[b"m", b"c", b"\xff,a"], "data: m,c,\u{fffd},a\n\n");
    }
}
