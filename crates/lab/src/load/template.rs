//! Requests, encoded as far as possible in advance.

use super::draws::{Draws, KEY_DIGITS, longest};
use super::spec::{HttpConnection, HttpVersion, HttpWork, Operation, Protocol, Sizes, SocketWork};

/// One operation of the mix. Without values or numbers of varying length, a request is one copy and
/// the digits of its keys.
#[derive(Debug)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
    /// Whether it stores a value.
    writes: bool,
    /// Size of its longest request.
    bytes_max: usize,
}

#[derive(Debug)]
enum Piece {
    /// Copied; digits of keys are written at these positions.
    Fixed { bytes: Vec<u8>, keys: Vec<usize> },
    /// A word of varying length, after its length.
    Counted(Vec<Part>),
    /// A word of varying length.
    Bare(Vec<Part>),
    /// The end of a head from the length of the body on, and a body of varying length.
    Body(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Vec<u8>),
    Key,
    Value,
    Number,
    Operation,
}

/// Selection probabilities of the operations.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Sum of the weights up to each.
    cumulative: Vec<f64>,
}

impl Weights {
    pub(crate) fn of(mix: &[Operation]) -> Weights {
        let mut sum = 0.0;
        let cumulative = mix.iter().map(|operation| {
            sum += operation.weight;
            sum
        });
        Weights { cumulative: cumulative.collect() }
    }

    /// Draws the position of an operation.
    #[inline]
    pub(crate) fn choose(&self, draws: &mut Draws) -> usize {
        if self.cumulative.len() == 1 {
            return 0;
        }
        let sum = self.cumulative.last().copied().unwrap_or(0.0);
        let drawn = draws.fraction() * sum;
        let chosen = self.cumulative.iter().position(|&until| drawn < until);
        // Rounding may reach the sum itself.
        chosen.unwrap_or(self.cumulative.len() - 1)
    }
}

/// All operations, with their weights.
#[derive(Debug)]
pub(crate) struct Mix {
    templates: Vec<Template>,
    weights: Weights,
    /// For words of varying length.
    word: Vec<u8>,
}

impl Mix {
    /// `work` was validated; `filler` has the length of the longest value.
    pub(crate) fn new(work: &SocketWork, filler: &[u8]) -> Mix {
        let value = match work.value_bytes {
            Sizes::Fixed(bytes) => Some(&filler[..bytes]),
            Sizes::Between(..) => None,
        };
        let builder = Builder { work, value };
        Mix {
            weights: Weights::of(&work.mix),
            templates: work.mix.iter().map(|operation| builder.template(operation)).collect(),
            word: Vec::new(),
        }
    }

    /// Appends a request.
    #[inline]
    pub(crate) fn encode(&mut self, draws: &mut Draws, out: &mut Vec<u8>) {
        let position = self.weights.choose(draws);
        self.templates[position].encode(draws, &mut self.word, out);
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.templates.iter().map(|template| template.bytes_max).max().unwrap_or(0)
    }
}

impl Template {
    #[inline]
    fn encode(&self, draws: &mut Draws, word: &mut Vec<u8>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Fixed { bytes, keys } => {
                    let start = out.len();
                    out.extend_from_slice(bytes);
                    for &at in keys {
                        let place = &mut out[start + at..start + at + KEY_DIGITS];
                        put_digits(draws.key(self.writes), place);
                    }
                }
                Piece::Counted(parts) => {
                    word.clear();
                    self.append_parts(parts, draws, word);
                    append_number(word.len() as u64, out);
                    out.extend_from_slice(b"\r\n");
                    out.extend_from_slice(word);
                }
                Piece::Bare(parts) => self.append_parts(parts, draws, out),
                Piece::Body(parts) => {
                    word.clear();
                    self.append_parts(parts, draws, word);
                    append_number(word.len() as u64, out);
                    out.extend_from_slice(b"\r\n\r\n");
                    out.extend_from_slice(word);
                }
            }
        }
    }

    fn append_parts(&self, parts: &[Part], draws: &mut Draws, out: &mut Vec<u8>) {
        for part in parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Key => append_key(draws.key(self.writes), out),
                Part::Value => out.extend_from_slice(draws.value()),
                Part::Number => append_number(draws.number(), out),
                Part::Operation => append_number(draws.operation(), out),
            }
        }
    }
}

/// Pairs of digits from 00 to 99.
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// `place` has [`KEY_DIGITS`] bytes, which is sufficient for every number below `KEYS_MAX`.
#[inline]
pub(crate) fn put_digits(mut number: u64, place: &mut [u8]) {
    for pair in place.chunks_exact_mut(2).rev() {
        let digits = usize::try_from(number % 100).unwrap_or(0) * 2;
        pair.copy_from_slice(&PAIRS[digits..digits + 2]);
        number /= 100;
    }
}

fn append_key(number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; KEY_DIGITS];
    put_digits(number, &mut digits);
    out.extend_from_slice(&digits);
}

fn append_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

/// Maximum size of an HTTP head without its request line.
fn head_bytes(http: &HttpWork) -> usize {
    let lines = http.headers.iter().map(|(name, value)| name.len() + value.len() + 4);
    http.host.len() + lines.sum::<usize>() + 128
}

struct Builder<'a> {
    work: &'a SocketWork,
    /// The value, if all are the same.
    value: Option<&'a [u8]>,
}

impl Builder<'_> {
    fn template(&self, operation: &Operation) -> Template {
        let words: Vec<Vec<Part>> =
            operation.words.iter().map(|word| parts(word, &self.work.keys.prefix)).collect();
        let writes = words.iter().flatten().any(|part| *part == Part::Value);
        let mut bytes_max = 32 + self.work.http.as_deref().map_or(0, head_bytes);
        for part in words.iter().flatten() {
            bytes_max += self.part_bytes_max(part) + 32;
        }
        let mut pieces = Pieces::default();
        match self.work.protocol {
            Protocol::Resp => self.resp(&words, &mut pieces),
            Protocol::RespInline => self.inline(&words, &mut pieces),
            Protocol::Memcached => self.memcached(&words, &mut pieces),
            Protocol::Http => self.http(&words, &mut pieces),
            Protocol::Cql => unreachable!("statements are not words"),
        }
        Template { pieces: pieces.finish(), writes, bytes_max }
    }

    fn part_bytes_max(&self, part: &Part) -> usize {
        match part {
            Part::Text(text) => text.len(),
            Part::Value => longest(self.work.value_bytes),
            Part::Key | Part::Number | Part::Operation => 20,
        }
    }

    // Source: Redis protocol specification, "Sending commands to a Redis server"
    fn resp(&self, words: &[Vec<Part>], pieces: &mut Pieces) {
        pieces.text(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            pieces.text(b"$");
            self.counted(word, pieces);
        }
    }

    // Source: Redis protocol specification, "Inline commands"
    fn inline(&self, words: &[Vec<Part>], pieces: &mut Pieces) {
        for (position, word) in words.iter().enumerate() {
            if position > 0 {
                pieces.text(b" ");
            }
            self.bare(word, pieces);
        }
        pieces.text(b"\r\n");
    }

    /// Encodes `get KEY` and `set KEY VALUE`, with flags and expiry of zero.
    // Source: memcached doc/protocol.txt, "Storage commands", "Retrieval command"
    fn memcached(&self, words: &[Vec<Part>], pieces: &mut Pieces) {
        let is_set = words.len() == 3;
        pieces.text(if is_set { b"set " } else { b"get " });
        self.bare(&words[1], pieces);
        if is_set {
            pieces.text(b" 0 0 ");
            self.counted(&words[2], pieces);
        } else {
            pieces.text(b"\r\n");
        }
    }

    /// Encodes method, target, and optionally a body.
    // Source: RFC 9112 3 (request line), 5 (field syntax), 6.2 (Content-Length), 9.6 (close)
    fn http(&self, words: &[Vec<Part>], pieces: &mut Pieces) {
        let default = HttpWork::default();
        let http = self.work.http.as_deref().unwrap_or(&default);
        self.bare(&words[0], pieces);
        pieces.text(b" ");
        self.bare(&words[1], pieces);
        let version: &[u8] = match http.version {
            HttpVersion::V0_9 => return pieces.text(b"\r\n"),
            HttpVersion::V1_0 => b" HTTP/1.0\r\n",
            HttpVersion::V1_1 => b" HTTP/1.1\r\n",
        };
        pieces.text(version);
        pieces.text(format!("Host: {}\r\n", http.host).as_bytes());
        for (name, value) in &http.headers {
            pieces.text(format!("{name}: {value}\r\n").as_bytes());
        }
        // The default of each version is omitted.
        match (http.connection, http.version) {
            (HttpConnection::Close, HttpVersion::V1_1) => pieces.text(b"Connection: close\r\n"),
            (HttpConnection::KeepAlive, HttpVersion::V1_0) => {
                pieces.text(b"Connection: keep-alive\r\n");
            }
            _ => {}
        }
        if let Some(body) = words.get(2) {
            pieces.text(b"Content-Length: ");
            let lengths: Option<usize> = body.iter().map(|part| self.fixed_bytes(part)).sum();
            // An empty line ends the head, where `counted` ends the word.
            let Some(length) = lengths else { return pieces.piece(Piece::Body(body.clone())) };
            pieces.text(format!("{length}\r\n\r\n").as_bytes());
            return self.bare(body, pieces);
        }
        pieces.text(b"\r\n");
    }

    /// Encodes length, CR LF, word, CR LF.
    fn counted(&self, word: &[Part], pieces: &mut Pieces) {
        let lengths: Option<Vec<usize>> = word.iter().map(|part| self.fixed_bytes(part)).collect();
        match lengths {
            Some(lengths) => {
                let length: usize = lengths.iter().sum();
                pieces.text(format!("{length}\r\n").as_bytes());
                self.bare(word, pieces);
            }
            None => pieces.piece(Piece::Counted(word.to_vec())),
        }
        pieces.text(b"\r\n");
    }

    fn bare(&self, word: &[Part], pieces: &mut Pieces) {
        for part in word {
            match part {
                Part::Text(text) => pieces.text(text),
                Part::Key => pieces.key(),
                Part::Value if self.value.is_some() => {
                    pieces.text(self.value.unwrap_or_default());
                }
                Part::Value | Part::Number | Part::Operation => {
                    pieces.piece(Piece::Bare(vec![part.clone()]));
                }
            }
        }
    }

    /// Returns its length, if constant.
    fn fixed_bytes(&self, part: &Part) -> Option<usize> {
        match part {
            Part::Text(text) => Some(text.len()),
            Part::Key => Some(KEY_DIGITS),
            Part::Value => self.value.map(<[u8]>::len),
            Part::Number | Part::Operation => None,
        }
    }
}

/// Combines fixed content into as few pieces as possible.
#[derive(Default)]
struct Pieces {
    done: Vec<Piece>,
    bytes: Vec<u8>,
    keys: Vec<usize>,
}

impl Pieces {
    fn text(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
    }

    fn key(&mut self) {
        self.keys.push(self.bytes.len());
        self.bytes.extend_from_slice(&[b'0'; KEY_DIGITS]);
    }

    fn piece(&mut self, piece: Piece) {
        self.end_fixed();
        self.done.push(piece);
    }

    fn end_fixed(&mut self) {
        if !self.bytes.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            self.done.push(Piece::Fixed { bytes, keys: std::mem::take(&mut self.keys) });
        }
    }

    fn finish(mut self) -> Vec<Piece> {
        self.end_fixed();
        self.done
    }
}

/// Splits a word. Other names in braces are text: Redis calls them hash tags.
pub(crate) fn parts(word: &str, prefix: &str) -> Vec<Part> {
    const NAMES: [(&str, Part); 4] = [
        ("{key}", Part::Key),
        ("{value}", Part::Value),
        ("{number}", Part::Number),
        ("{operation}", Part::Operation),
    ];
    let mut parts = Vec::new();
    let mut text = Vec::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let named = NAMES.iter().find(|(name, _)| rest.starts_with(name));
        let Some((name, part)) = named else {
            let (character, after) = rest.split_at(first.len_utf8());
            text.extend_from_slice(character.as_bytes());
            rest = after;
            continue;
        };
        if *part == Part::Key {
            text.extend_from_slice(prefix.as_bytes());
        }
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        parts.push(part.clone());
        rest = &rest[name.len()..];
    }
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::draws::tests::draws;
    use crate::load::spec::Distribution;
    use crate::load::spec::tests::{http_work, work};

    /// Checks consecutive requests of a mix with one operation.
    fn check(protocol: Protocol, sizes: Sizes, words: &[&str], expected: &[&str]) {
        let mut work = work();
        work.protocol = protocol;
        work.value_bytes = sizes;
        work.keys.distribution = Distribution::Sequential;
        work.mix = vec![Operation {
            weight: 1.0,
            words: words.iter().map(|&word| word.to_owned()).collect(),
        }];
        let (mut draws, mut mix) = (draws(&work), Mix::new(&work, &[b'v'; 99]));
        for expected in expected {
            let mut out = Vec::new();
            mix.encode(&mut draws, &mut out);
            assert!(out.len() <= mix.bytes_max());
            assert_eq!(String::from_utf8(out).unwrap(), *expected);
        }
    }

    #[test]
    fn fixed_requests_are_one_piece() {
        let mut work = work();
        work.mix[0].words = vec!["SET".into(), "{key}".into(), "{value}".into()];
        assert_eq!(Mix::new(&work, &[b'v'; 99]).templates[0].pieces.len(), 1);
        check(
            Protocol::Resp,
            Sizes::Fixed(3),
            &["GET", "{key}"],
            &[
                "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000000\r\n",
                "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n",
            ],
        );
        check(
            Protocol::Resp,
            Sizes::Fixed(0),
            &["MSET", "{key}", "{value}", "{key}", "x"],
            &[
                "*5\r\n$4\r\nMSET\r\n$16\r\nkey:000000000000\r\n$0\r\n\r\n$16\r\nkey:000000000001\r\n\
               $1\r\nx\r\n",
            ],
        );
    }

    #[test]
    fn words_of_changing_length_carry_their_length() {
        let request =
            |number: u64| format!("*2\r\n$4\r\nECHO\r\n${}\r\nn{number}!\r\n", 2 + digits(number));
        let expected: Vec<String> = (0..12).map(request).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(Protocol::Resp, Sizes::Fixed(3), &["ECHO", "n{operation}!"], &expected);
    }

    fn digits(number: u64) -> usize {
        number.to_string().len()
    }

    #[test]
    fn values_between_two_sizes_are_well_formed() {
        let mut work = work();
        work.value_bytes = Sizes::Between(0, 20);
        work.mix[0].words = vec!["SET".into(), "{key}".into(), "{value}".into()];
        let (mut draws, mut mix) = (draws(&work), Mix::new(&work, &[b'v'; 99]));
        let mut out = Vec::new();
        for _ in 0..100 {
            mix.encode(&mut draws, &mut out);
        }
        // Requests have the same form as replies.
        let mut rest = out.as_slice();
        for _ in 0..100 {
            let len = wire::resp::reply_len(rest).unwrap().unwrap();
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn the_other_protocols_have_their_forms() {
        check(Protocol::RespInline, Sizes::Fixed(1), &["PING"], &["PING\r\n"]);
        check(
            Protocol::RespInline,
            Sizes::Fixed(1),
            &["GET", "{key}"],
            &["GET key:000000000000\r\n"],
        );
        check(
            Protocol::Memcached,
            Sizes::Fixed(0),
            &["set", "{key}", "ab"],
            &["set key:000000000000 0 0 2\r\nab\r\n"],
        );
        check(
            Protocol::Memcached,
            Sizes::Fixed(0),
            &["get", "{key}"],
            &["get key:000000000000\r\n"],
        );
    }

    /// Checks the HTTP request for these words.
    fn check_http(change: impl FnOnce(&mut HttpWork), words: &[&str], expected: &str) {
        let mut work = http_work();
        change(work.http.as_mut().unwrap());
        work.value_bytes = Sizes::Fixed(3);
        work.keys.distribution = Distribution::Sequential;
        work.mix[0].words = words.iter().map(|&word| word.to_owned()).collect();
        let (mut draws, mut mix) = (draws(&work), Mix::new(&work, b"vvv"));
        let mut out = Vec::new();
        mix.encode(&mut draws, &mut out);
        assert!(out.len() <= mix.bytes_max());
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn requests_of_http_say_what_their_version_does_not() {
        let hello = &["GET", "/hello"][..];
        check_http(|_| (), hello, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let close = |http: &mut HttpWork| http.connection = HttpConnection::Close;
        let expected = "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        check_http(close, hello, expected);
        let old = |http: &mut HttpWork| http.version = HttpVersion::V1_0;
        let expected = "GET /hello HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n";
        check_http(old, hello, expected);
        let both = |http: &mut HttpWork| {
            close(http);
            old(http);
            http.headers = vec![("User-Agent".to_owned(), "a b".to_owned())];
        };
        let expected = "GET / HTTP/1.0\r\nHost: localhost\r\nUser-Agent: a b\r\n\r\n";
        check_http(both, &["GET", "/"], expected);
        check_http(|http| http.version = HttpVersion::V0_9, hello, "GET /hello\r\n");
    }

    #[test]
    fn bodies_of_http_carry_their_length() {
        let head = "PUT /kv/key:000000000000 HTTP/1.1\r\nHost: localhost\r\n";
        let expected = format!("{head}Content-Length: 3\r\n\r\nvvv");
        check_http(|_| (), &["PUT", "/kv/{key}", "{value}"], &expected);
        let expected = format!("{head}Content-Length: 2\r\n\r\nn0");
        check_http(|_| (), &["PUT", "/kv/{key}", "n{operation}"], &expected);
        let expected = format!("{head}Content-Length: 0\r\n\r\n");
        check_http(|_| (), &["PUT", "/kv/{key}", ""], &expected);
    }

    #[test]
    fn other_braces_are_text() {
        let text = |text: &str| Part::Text(text.as_bytes().to_vec());
        assert_eq!(parts("{tag}é{key}", "k:"), [text("{tag}ék:"), Part::Key]);
        assert_eq!(parts("", "k:"), [text("")]);
        assert_eq!(parts("{value}{number}", ""), [Part::Value, Part::Number]);
    }

    #[test]
    fn operations_come_as_often_as_their_weights_say() {
        let mut work = work();
        let operation = |weight, word: &str| Operation { weight, words: vec![word.to_owned()] };
        work.mix = vec![operation(1.0, "A"), operation(3.0, "B"), operation(0.0, "C")];
        let (mut draws, mut mix) = (draws(&work), Mix::new(&work, &[b'v'; 99]));
        let mut out = Vec::new();
        for _ in 0..40_000 {
            mix.encode(&mut draws, &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        // Six standard deviations.
        assert!(text.matches('A').count().abs_diff(10_000) < 520);
        assert_eq!(text.matches(['A', 'B']).count(), 40_000);
    }
}
