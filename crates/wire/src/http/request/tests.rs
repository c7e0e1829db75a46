use proptest::prelude::*;

use super::super::check::check_requests;
use super::super::{Request, encode_request};
use super::*;

/// Decodes all of `input` at once; `describe` selects what is compared.
#[track_caller]
fn check(input: &str, expected: &[&str], error: Option<RequestError>) {
    let mut batch = RequestBatch::new();
    RequestDecoder::new().decode(input.as_bytes(), &Limits::DEFAULT, usize::MAX, &mut batch);
    let decoded: Vec<String> =
        (0..batch.len()).map(|index| describe(batch.get(index, input.as_bytes()))).collect();
    assert_eq!(decoded, expected, "{input:?}");
    assert_eq!(batch.error(), error, "{input:?}");
    check_requests(input.as_bytes());
}

fn describe(request: Request<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = |fields: super::super::Fields<'_>| -> Vec<String> {
        fields.map(|(name, value)| format!("{name}={}", text(value))).collect()
    };
    let mut words = vec![
        text(request.method_text()),
        text(request.path()),
        lines(request.headers()).join(","),
        text(request.body()),
    ];
    if request.trailers().len() != 0 {
        words.push(lines(request.trailers()).join(","));
    }
    words.push(if request.keeps_alive() { "keep" } else { "close" }.to_owned());
    words.join("|")
}

#[track_caller]
fn refused(input: &str, error: RequestError) {
    check(input, &[], Some(error));
}

#[test]
fn requests_of_every_kind() {
    check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &["GET|/|Host=a||keep"], None);
    check("GET /a?b HTTP/1.0\r\n\r\n", &["GET|/a|||close"], None);
    check(
        "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
        &["GET|/|Connection=Keep-Alive||keep"],
        None,
    );
    check("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", &["OPTIONS|*|Host=||keep"], None);
    check("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", &["CONNECT|a:1|Host=a||keep"], None);
    check("GET HTTP://b/c HTTP/1.1\r\nHost: a\r\n\r\n", &["GET|/c|Host=a||keep"], None);
    check("BREW / HTTP/1.1\r\nHost: \t a \t \r\n\r\n", &["BREW|/|Host=a||keep"], None);
    check(
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        &["PUT|/|Host=a,Content-Length=3|abc|keep"],
        None,
    );
    check("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab", &[], None);
    check(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nSum: 5\r\n\r\n",
        &["POST|/|Host=a,Transfer-Encoding=chunked|abcde|Sum=5|keep"],
        None,
    );
}

#[test]
fn a_head_is_shown_before_its_body() {
    for framing in ["Content-Length: 50", "Transfer-Encoding: chunked"] {
        let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
        let first = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
        let second = format!("PUT /2?q HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        let input = format!("{first}{second}");
        for cut in first.len()..input.len() {
            decoder.restart();
            let used = decoder.decode(&input.as_bytes()[..cut], &Limits::DEFAULT, 9, &mut batch);
            let rest = &input.as_bytes()[used..cut];
            assert!(decoder.head(rest, &Limits::DEFAULT, &mut batch).is_none(), "cut at {cut}");
        }
        for body in ["", "5", "5\r\nab"] {
            decoder.restart();
            let input = format!("{input}{body}");
            let input = input.as_bytes();
            let used = decoder.decode(input, &Limits::DEFAULT, 9, &mut batch);
            assert_eq!((used, batch.len()), (first.len(), 1));
            let head = decoder.head(&input[used..], &Limits::DEFAULT, &mut batch).unwrap();
            let expected = format!("PUT|/2|Host=a,{}||keep", framing.replace(": ", "="));
            assert_eq!(describe(head), expected);
            assert_eq!(head.query(), Some(&b"q"[..]));
        }
    }
}

#[test]
fn requests_follow_each_other() {
    let two = "\r\n\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    check(two, &["GET|/1|Host=a||keep", "GET|/2|Host=a||keep"], None);
    let ended = "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\nGET /2 HTTP/1.1\r\n";
    check(ended, &["GET|/1|Host=a,Connection=x, CLOSE||close"], None);
    let broken = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\nHost: a\r\n\r\n";
    check(broken, &["GET|/1|Host=a||keep"], Some(RequestError::BareLineFeed));
}

#[test]
fn request_smuggling_is_rejected() {
    let post = |lines: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
    let (ambiguous, coding) = (RequestError::AmbiguousLength, RequestError::TransferEncoding);
    refused(&post("Content-Length: 5\r\nTransfer-Encoding: chunked"), ambiguous);
    refused(&post("Transfer-Encoding: chunked\r\nContent-Length: 5"), ambiguous);
    refused(&post("Content-Length: 5\r\nContent-Length: 6"), RequestError::ContentLength);
    refused(&post("Content-Length: 5\r\nContent-Length: 5"), RequestError::ContentLength);
    refused(&post("Content-Length: 5,5"), RequestError::ContentLength);
    refused(&post("Content-Length: +5"), RequestError::ContentLength);
    refused(&post("Transfer-Encoding: chunked, identity"), coding);
    refused(&post("Transfer-Encoding: xchunked"), coding);
    refused(&post("Transfer-Encoding: gzip, chunked"), RequestError::UnknownCoding);
    refused(&post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), coding);
    refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", coding);
    for line in [
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: chunked\r\n folded",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding\t: chunked",
        "A: b\rc: d",
        "A: b\0",
        "A: b\x7f",
        ": b",
        "A",
        "A b: c",
    ] {
        refused(&post(line), RequestError::Malformed);
    }
    refused(&post("A: b\nTransfer-Encoding: chunked"), RequestError::BareLineFeed);
    let chunked = |body: &str| format!("{}{body}", post("Transfer-Encoding: chunked"));
    refused(&chunked("3\r\nabcX\r\n0\r\n\r\n"), RequestError::Chunk);
    refused(&chunked("0\r\nContent-Length: 5\r\n\r\n"), RequestError::Chunk);
    refused(&chunked("0\r\nA : b\r\n\r\n"), RequestError::Chunk);
    refused(&chunked("3\nabc\r\n0\r\n\r\n"), RequestError::BareLineFeed);
}

/// A later minor version is served as HTTP/1.1, with all of its rules.
#[test]
fn a_later_minor_version_is_served_as_the_known_one() {
    for version in 2..=9 {
        let get = format!("GET /1 HTTP/1.{version}\r\nHost: a\r\nB: c\r\n\r\n");
        check(&get.repeat(2), &["GET|/1|Host=a,B=c||keep"; 2], None);
        refused(&format!("GET /1 HTTP/1.{version}\r\n\r\n"), RequestError::Host);
        let post = format!("POST /1 HTTP/1.{version}\r\nHost: a\r\n");
        check(
            &format!("{post}Content-Length: 2\r\n\r\nhi"),
            &["POST|/1|Host=a,Content-Length=2|hi|keep"],
            None,
        );
        let both = "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n";
        refused(&format!("{post}{both}"), RequestError::AmbiguousLength);
    }
}

#[test]
fn malformed_lines_are_rejected() {
    refused("GET / HTTP/1.1\r\n\r\n", RequestError::Host);
    refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", RequestError::Host);
    refused("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", RequestError::Host);
    refused("GET / HTTP/2.0\r\n\r\n", RequestError::Version);
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RequestError::Version);
    refused("GET / HTTP/0.9\r\n\r\n", RequestError::Version);
    refused("GET / HTTP/1.10\r\n\r\n", RequestError::Malformed);
    refused("GET /hello x HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Malformed);
    refused("GET /hello x HTTP/1.2\r\nHost: a\r\n\r\n", RequestError::Malformed);
    refused("GET / http/1.1\r\n\r\n", RequestError::Malformed);
    refused("GET / HTTP/1.1 \r\n\r\n", RequestError::Malformed);
    refused("GET  / HTTP/1.1\r\n\r\n", RequestError::Malformed);
    refused("GET /\r\n\r\n", RequestError::Malformed);
    refused("\x16\x03\x01", RequestError::Malformed);
    refused(" GET / HTTP/1.1\r\n\r\n", RequestError::Malformed);
    refused("\nGET / HTTP/1.1\r\n\r\n", RequestError::Malformed);
    for target in ["a", "/a#b", "/\u{e4}", "ftp://a/b", "http://", "http://u@a/", "*"] {
        refused(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), RequestError::Target);
    }
    refused("CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target);
    refused("GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", RequestError::Expectation);
}

#[test]
fn limits_are_exact() {
    let limits =
        Limits { head_bytes_max: 60, fields_max: 3, target_bytes_max: 10, body_bytes_max: 5 };
    let status = |input: &str| {
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(input.as_bytes(), &limits, 9, &mut batch);
        batch.error().map_or(batch.len(), |error| error.status().into())
    };
    let head =
        |filler: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nB: {}\r\n\r\n", "b".repeat(filler));
    assert_eq!(head(28).len(), 60);
    assert_eq!(status(&head(28)), 1);
    assert_eq!(status(&head(29)), 431);
    assert_eq!(status("GET /234567890 HTTP/1.0\r\n\r\n"), 1);
    assert_eq!(status("GET /2345678901 HTTP/1.0\r\n\r\n"), 414);
    assert_eq!(status(&format!("GET /{}", "a".repeat(80))), 414);
    assert_eq!(status("GET / HTTP/1.0\r\na: b\r\nc: d\r\ne: f\r\n\r\n"), 1);
    assert_eq!(status("GET / HTTP/1.0\r\na: b\r\nc: d\r\ne: f\r\ng: h\r\n\r\n"), 431);
    assert_eq!(status("PUT / HTTP/1.0\r\nContent-Length: 5\r\n\r\n12345"), 1);
    assert_eq!(status("PUT / HTTP/1.0\r\nContent-Length: 6\r\n\r\n"), 413);
    let post = "POST / HTTP/1.1\r\nHost:\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(status(&format!("{post}5\r\n12345\r\n0\r\n\r\n")), 1);
    assert_eq!(status(&format!("{post}3\r\n123\r\n3\r\n")), 413);
}

#[test]
fn a_waiting_peer_gets_one_continue() {
    let head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
    assert_eq!(decoder.decode(head, &Limits::DEFAULT, 9, &mut batch), 0);
    assert!(decoder.is_in_body());
    assert!(decoder.take_continue());
    assert!(!decoder.take_continue());
    let whole = [&head[..], b"abc"].concat();
    assert_eq!(decoder.decode(&whole, &Limits::DEFAULT, 9, &mut batch), whole.len());
    assert_eq!(batch.get(0, &whole).body(), b"abc");
    assert!(!decoder.take_continue());
    // The body has arrived already: the peer does not wait.
    let mut decoder = RequestDecoder::new();
    decoder.decode(&whole[..whole.len() - 1], &Limits::DEFAULT, 9, &mut batch);
    assert!(!decoder.take_continue());
    assert_eq!(decoder.needed(), 1);
}

#[test]
fn requests_left_for_later_are_decoded_again() {
    let input = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HT";
    let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
    let used = decoder.decode(input, &Limits::DEFAULT, 9, &mut batch);
    assert_eq!((used, batch.len()), (batch.end(1), 2));
    assert!(decoder.is_inside());
    let rest = &input[batch.end(0)..];
    decoder.restart();
    decoder.decode(rest, &Limits::DEFAULT, 9, &mut batch);
    assert_eq!(batch.get(0, rest).path(), b"/2");
}

/// Requests as clients write them.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]);
    let body = prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
    let one =
        (method, "/[a-z/]{0,20}", "[ -~]{0,30}", body).prop_map(|(method, path, value, body)| {
            let mut out = Vec::new();
            let headers = [("Host", &b"a"[..]), ("X", value.as_bytes())];
            encode_request(method.as_bytes(), path.as_bytes(), &headers, body.as_deref(), &mut out);
            out
        });
    prop::collection::vec(one, 1..4).prop_map(|requests| requests.concat())
}

/// Parts of requests, and almost valid ones.
fn nearly_requests() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "Host: a\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "\r\n",
        "\r\n",
        "abc",
        "3\r\nabc\r\n",
        "1;x\r\n",
        "0\r\n\r\n",
        "0\r\nA: b\r\n\r\n",
        "\n",
        "\r",
        " ",
        "\0",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #[test]
    fn any_split_of_requests_gives_the_same_requests(input in requests()) {
        let mut batch = RequestBatch::new();
        let used = RequestDecoder::new().decode(&input, &Limits::DEFAULT, usize::MAX, &mut batch);
        prop_assert_eq!(used, input.len());
        prop_assert_eq!(batch.error(), None);
        check_requests(&input);
    }

    #[test]
    fn any_split_of_any_bytes_gives_the_same_requests(input: Vec<u8>) {
        check_requests(&input);
    }

    #[test]
    fn any_split_of_nearly_valid_bytes_gives_the_same_requests(input in nearly_requests()) {
        check_requests(&input);
    }
}
