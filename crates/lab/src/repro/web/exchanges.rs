//! Expectations on a web server that can be checked with one request and its response.

use super::fixture::{BIG_BYTES, SMALL};

/// A request on a separate connection, and the expected response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    /// Row in the list of expectations: `W4`.
    pub(super) row: &'static str,
    pub(super) what: &'static str,
    pub(super) request: &'static str,
    pub(super) status: u16,
    /// Expected parts of the response, in this order.
    pub(super) has: &'static [&'static str],
    pub(super) lacks: &'static [&'static str],
}

const fn exchange(
    row: &'static str,
    what: &'static str,
    request: &'static str,
    status: u16,
    has: &'static [&'static str],
    lacks: &'static [&'static str],
) -> Exchange {
    Exchange { row, what, request, status, has, lacks }
}

/// Refused, with the connection closed.
const fn refused(
    row: &'static str,
    what: &'static str,
    request: &'static str,
    status: u16,
) -> Exchange {
    exchange(row, what, request, status, &["\r\n\r\n"], &["secret", SMALL])
}

macro_rules! get {
    ($target:literal) => {
        concat!("GET ", $target, " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    };
    ($target:literal, $line:literal) => {
        concat!("GET ", $target, " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", $line, "\r\n\r\n")
    };
}

#[rustfmt::skip]
pub(super) const ALL: &[Exchange] = &[
    exchange("W1", "pipelined requests are answered in order",
        concat!("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n", get!("/")),
        200, &[SMALL, "Hello from", "<p>index</p>"], &[]),
    exchange("W1", "a chunked body ends at its last chunk",
        concat!("PUT /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", get!("/a.txt")),
        405, &["405", "HTTP/1.1 200 OK", SMALL], &[]),
    exchange("W1", "HEAD has the length and no content",
        "HEAD /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        200, &["Content-Length: 9\r\n"], &[SMALL]),
    exchange("W1", "OPTIONS lists the allowed methods",
        "OPTIONS /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        204, &["Allow: GET, HEAD, OPTIONS"], &[]),
    exchange("W1", "other methods are refused with a list of allowed ones",
        "DELETE /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        405, &["Allow: GET, HEAD, OPTIONS"], &[]),
    exchange("W1", "HTTP/1.0 ends with its answer", "GET /a.txt HTTP/1.0\r\n\r\n", 200, &[SMALL], &[]),
    exchange("W1", "HTTP/1.0 with keep-alive continues",
        "GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        200, &["Connection: keep-alive", SMALL, "<p>index</p>"], &[]),
    refused("W1", "two lengths", "GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400),
    refused("W1", "length and chunks",
        "GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    refused("W1", "chunks twice",
        "GET /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    refused("W1", "a folded line", "GET /a.txt HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
    refused("W1", "a space before the colon", "GET /a.txt HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n", 400),
    refused("W1", "line ends without CR", "GET /a.txt HTTP/1.1\nHost: a\n\n", 400),
    refused("W1", "no host", "GET /a.txt HTTP/1.1\r\n\r\n", 400),
    refused("W1", "two hosts", "GET /a.txt HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    refused("W1", "another version", "GET /a.txt HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    refused("W2", "a body over the limit", "PUT /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1000001\r\n\r\n", 413),
    exchange("W4", "a directory is its index", get!("/"), 200, &["Content-Type: text/html", "<p>index</p>"], &[]),
    exchange("W4", "a directory without its slash is redirected", get!("/sub"), 301, &["Location: /sub/\r\n"], &[]),
    exchange("W4", "the version is named", get!("/a.txt"), 200, &["ETag: \"", SMALL], &[]),
    exchange("W4", "the time of the last change is named", get!("/a.txt"), 200, &["Last-Modified: ", " GMT\r\n"], &[]),
    exchange("W4", "types follow names", get!("/data.json"), 200, &["Content-Type: application/json\r\n"], &[]),
    exchange("W4", "unknown types are binary", get!("/strange.xyz"), 200, &["Content-Type: application/octet-stream\r\n"], &[]),
    exchange("W4", "a part of a file", get!("/a.txt", "Range: bytes=2-4"), 206, &["Content-Range: bytes 2-4/9\r\n", "\r\n\r\nnte"], &[SMALL]),
    exchange("W4", "the end of a long file", get!("/big.bin", "Range: bytes=-3"), 206, &["Content-Length: 3\r\n", BIG_BYTES], &[]),
    exchange("W4", "a range beyond the end", get!("/a.txt", "Range: bytes=99-"), 416, &["Content-Range: bytes */9\r\n"], &[SMALL]),
    exchange("W4", "the condition If-None-Match: *", get!("/a.txt", "If-None-Match: *"), 304, &["ETag: \""], &[SMALL]),
    exchange("W4", "a condition that fails", get!("/a.txt", "If-Match: \"other\""), 412, &[], &[SMALL]),
    exchange("W4", "a link inside the root", get!("/inside.txt"), 200, &[SMALL], &[]),
    refused("W4", "a link out of the root", get!("/link.txt"), 403),
    refused("W4", "a link to a path of the system", get!("/absolute.txt"), 403),
    refused("W4", "a linked directory out of the root", get!("/outside/secret.txt"), 403),
    refused("W4", "a path that climbs", get!("/../secret.txt"), 400),
    refused("W4", "one that climbs in escapes", get!("/%2e%2e/secret.txt"), 400),
    refused("W4", "one that climbs in the middle", get!("/sub/../../secret.txt"), 400),
    refused("W4", "an escaped slash", get!("/..%2fsecret.txt"), 400),
    refused("W4", "an escaped backslash", get!("/..%5csecret.txt"), 400),
    refused("W4", "an escaped NUL", get!("/a.txt%00.html"), 400),
    refused("W4", "a broken escape", get!("/a.txt%2"), 400),
    refused("W4", "a hidden file", get!("/.hidden"), 404),
    refused("W4", "a missing file", get!("/none.txt"), 404),
    exchange("W5", "text is compressed for clients that accept it", get!("/page.html", "Accept-Encoding: gzip"),
        200, &["Content-Encoding: gzip\r\n"], &["<p>page</p>"]),
    exchange("W5", "a precompressed variant is sent", get!("/page.html", "Accept-Encoding: gzip, br"),
        200, &["Content-Encoding: br\r\n", "packed before"], &["<p>page</p>"]),
    exchange("W5", "others get it uncompressed", get!("/page.html"), 200, &["Vary: Accept-Encoding\r\n", "<p>page</p>"], &["Content-Encoding"]),
    exchange("W5", "a refused coding is not used", get!("/page.html", "Accept-Encoding: gzip;q=0"), 200, &["<p>page</p>"], &["Content-Encoding"]),
    exchange("W5", "short files are not compressed", get!("/a.txt", "Accept-Encoding: gzip"), 200, &[SMALL], &["Content-Encoding"]),
    exchange("W5", "compressed formats are not compressed again", get!("/photo.png", "Accept-Encoding: gzip"), 200, &["image/png"], &["Content-Encoding"]),
    exchange("W16", "an unreachable upstream", get!("/api/x"), 502, &[], &[]),
];

/// Returns `None` if the response is as expected; otherwise the difference.
pub(super) fn judge(exchange: &Exchange, answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().next().unwrap_or_default();
    if !text.starts_with(&format!("HTTP/1.1 {} ", exchange.status)) {
        return Some(format!("{line:?} instead of {}", exchange.status));
    }
    let mut rest = text.as_ref();
    for part in exchange.has {
        let Some((_, after)) = rest.split_once(part) else {
            return Some(format!("{part:?} is missing or out of order"));
        };
        rest = after;
    }
    let wrong = exchange.lacks.iter().find(|part| text.contains(**part));
    wrong.map(|part| format!("{part:?} is unexpected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_status_and_parts() {
        let wanted = exchange("W1", "", "", 200, &["a", "b"], &["c"]);
        let check = |answer: &str, complaint: Option<&str>| {
            let found = judge(&wanted, answer.as_bytes());
            match complaint {
                None => assert_eq!(found, None, "{answer}"),
                Some(part) => assert!(found.unwrap().contains(part), "{answer}"),
            }
        };
        check("HTTP/1.1 200 OK\r\n\r\na b", None);
        check("HTTP/1.1 200 OK\r\n\r\nb a", Some("\"b\" is missing"));
        check("HTTP/1.1 200 OK\r\n\r\na b c", Some("\"c\" is unexpected"));
        check("HTTP/1.1 404 Not Found\r\n\r\na b", Some("instead of 200"));
        check("", Some("\"\" instead of 200"));
    }

    /// A server that responds incorrectly to all requests passes no check.
    #[test]
    fn no_exchange_is_content_with_anything() {
        for one in ALL {
            assert!(judge(one, b"HTTP/1.1 500 Oh\r\n\r\n").is_some(), "{}", one.what);
            assert!(
                one.request.ends_with("\r\n\r\n")
                    || one.request.ends_with("\n\n")
                    || one.request.ends_with("xx")
            );
        }
        let rows = ["W1", "W2", "W4", "W5", "W16"];
        assert!(rows.iter().all(|row| ALL.iter().any(|one| one.row == *row)));
    }
}
