//! Replies as JSON: the third form of a [`ReplyWriter`](super::ReplyWriter), for REST clients.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How the strings of a reply are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JsonStrings {
    /// As text; invalid UTF-8 becomes U+FFFD.
    #[default]
    Text,
    /// In base64, except the status `OK` and errors, as SDKs of the dialect expect.
    Base64,
}

/// The replies that get an object of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JsonResults {
    /// The whole reply: `{"result":...}` or `{"error":...}`.
    #[default]
    One,
    /// Each element of the reply, which is an array: `[{"result":...},{"error":...}]`. A reply that
    /// is an error instead becomes `{"error":...}`.
    Elements,
}

/// State of a JSON reply: the arrays that are open. Reused from reply to reply.
///
/// An array is closed when the next value, or the end of the reply, follows its last element. Until
/// then a reply can be cut back to a place before that element.
#[derive(Debug, Default)]
pub struct JsonReply {
    strings: JsonStrings,
    results: JsonResults,
    /// Outermost first.
    open: Vec<OpenArray>,
    is_error: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OpenArray {
    /// Of its elements; `usize::MAX` while it is unknown.
    count: usize,
    /// Elements that are not written yet.
    missing: usize,
}

impl JsonReply {
    /// Begins the next reply.
    pub fn begin(&mut self, strings: JsonStrings, results: JsonResults) {
        (self.strings, self.results, self.is_error) = (strings, results, false);
        self.open.clear();
    }

    /// Whether the reply as a whole is an error.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    fn result_depth(&self) -> usize {
        match self.results {
            JsonResults::One => 0,
            JsonResults::Elements => 1,
        }
    }

    /// Closes the arrays that are complete.
    pub(super) fn close_complete(&mut self, out: &mut Vec<u8>) {
        while self.open.last().is_some_and(|array| array.missing == 0) {
            self.open.pop();
            out.push(b']');
            self.end_value(out);
        }
    }

    /// Closes complete arrays, and writes what precedes a value: a comma.
    fn begin_element(&mut self, out: &mut Vec<u8>) {
        self.close_complete(out);
        if let Some(array) = self.open.last_mut() {
            if array.missing < array.count {
                out.push(b',');
            }
            array.missing -= 1;
        }
    }

    fn begin_value(&mut self, out: &mut Vec<u8>) {
        self.begin_element(out);
        if self.open.len() == self.result_depth() {
            out.extend_from_slice(b"{\"result\":");
        }
    }

    fn end_value(&self, out: &mut Vec<u8>) {
        if self.open.len() == self.result_depth() {
            out.push(b'}');
        }
    }

    pub(super) fn error(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.begin_element(out);
        let depth = self.open.len();
        self.is_error |= depth == 0;
        if depth > self.result_depth() {
            return write_json_text(text, out);
        }
        out.extend_from_slice(b"{\"error\":");
        write_json_text(text, out);
        out.push(b'}');
    }

    pub(super) fn status(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if text != b"OK" {
            return self.string(text, out);
        }
        self.literal(b"\"OK\"", out);
    }

    pub(super) fn string(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.begin_value(out);
        match self.strings {
            JsonStrings::Text => write_json_text(bytes, out),
            JsonStrings::Base64 => write_base64(bytes, out),
        }
        self.end_value(out);
    }

    /// An upper bound of the bytes that [`JsonReply::string`] appends. O(N).
    pub(super) fn string_bytes_max(&self, bytes: &[u8]) -> usize {
        match self.strings {
            JsonStrings::Base64 => bytes.len().div_ceil(3) * 4,
            // An escape has up to six bytes, and U+FFFD for a byte that is not UTF-8 three.
            JsonStrings::Text => bytes
                .iter()
                .map(|byte| match byte {
                    0..b' ' | 0x7f => 6,
                    0x80.. => 3,
                    b'"' | b'\\' => 2,
                    _ => 1,
                })
                .sum(),
        }
    }

    /// A number or `null`.
    pub(super) fn literal(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.begin_value(out);
        out.extend_from_slice(text);
        self.end_value(out);
    }

    pub(super) fn array(&mut self, count: usize, out: &mut Vec<u8>) {
        self.begin_value(out);
        out.push(b'[');
        self.open.push(OpenArray { count, missing: count });
    }

    /// Begins elements whose number is not known yet.
    pub(super) fn begin_counted(&mut self) {
        self.open.push(OpenArray { count: usize::MAX, missing: usize::MAX });
    }

    /// Ends them; the header of their array is written next.
    pub(super) fn end_counted(&mut self, out: &mut Vec<u8>) {
        self.close_complete(out);
        self.open.pop().expect("elements were begun");
    }

    /// Marks the innermost array as complete: its elements were written before its header.
    pub(super) fn complete_array(&mut self) {
        self.open.last_mut().expect("an array is open").missing = 0;
    }

    /// Number of open arrays, and what the innermost one lacks.
    pub(super) fn position(&self) -> (usize, usize) {
        (self.open.len(), self.open.last().map_or(0, |array| array.missing))
    }

    /// Returns to a position at which no array was complete.
    pub(super) fn rewind(&mut self, (depth, missing): (usize, usize)) {
        debug_assert!(depth <= self.open.len(), "arrays before the mark are not closed");
        self.open.truncate(depth);
        if let Some(last) = self.open.last_mut() {
            last.missing = missing;
        }
    }
}

/// Appends a JSON string; invalid UTF-8 becomes U+FFFD.
// Source: RFC 8259 section 7 (strings)
pub fn write_json_text(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().copied().any(needs_escape) {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    let text = String::from_utf8_lossy(text);
    serde_json::to_writer(&mut *out, &*text).expect("a vector takes every string");
}

/// Whether a byte cannot be copied into a JSON string.
fn needs_escape(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\')
}

// Source: RFC 4648 section 4 (base 64)
fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written =
        STANDARD.encode_slice(bytes, &mut out[start..]).expect("the buffer has the exact size");
    out.truncate(start + written);
    out.push(b'"');
}

#[cfg(test)]
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method has one lifetime, `FnOnce` all"
)]
mod tests {
    use super::super::ReplyWriter;
    use super::*;

    #[track_caller]
    fn check(
        strings: JsonStrings,
        results: JsonResults,
        write: impl FnOnce(&mut ReplyWriter<'_>),
        expected: &str,
    ) -> bool {
        let mut json = JsonReply::default();
        json.begin(strings, results);
        let mut out = Vec::new();
        let mut reply = ReplyWriter::json(&mut out, &mut json);
        write(&mut reply);
        reply.finish();
        assert_eq!(String::from_utf8(out).expect("JSON"), expected);
        assert!(json.open.is_empty(), "all arrays are closed");
        json.is_error()
    }

    #[track_caller]
    fn check_one(write: impl FnOnce(&mut ReplyWriter<'_>), expected: &str) -> bool {
        check(JsonStrings::Text, JsonResults::One, write, expected)
    }

    #[test]
    fn values_have_the_form_of_resp2() {
        check_one(|w| w.ok(), r#"{"result":"OK"}"#);
        check_one(|w| w.simple("PONG"), r#"{"result":"PONG"}"#);
        check_one(|w| w.integer(-7), r#"{"result":-7}"#);
        check_one(|w| w.bulk(b"a\"b"), r#"{"result":"a\"b"}"#);
        check_one(|w| w.bulk(b"\xff"), "{\"result\":\"\u{fffd}\"}");
        check_one(|w| w.bulk_integer(12), r#"{"result":"12"}"#);
        check_one(|w| w.null(), r#"{"result":null}"#);
        check_one(|w| w.null_array(), r#"{"result":null}"#);
        check_one(|w| w.double(1.5), r#"{"result":"1.5"}"#);
        check_one(|w| w.boolean(true), r#"{"result":1}"#);
        check_one(|w| w.verbatim("txt", b"v"), r#"{"result":"v"}"#);
        check_one(|w| w.big_number("123"), r#"{"result":"123"}"#);
        assert!(check_one(|w| w.error("ERR no"), r#"{"error":"ERR no"}"#));
    }

    #[test]
    fn arrays_close_after_their_last_element() {
        check_one(|w| w.array(0), r#"{"result":[]}"#);
        let nested = |w: &mut ReplyWriter<'_>| {
            w.array(4);
            w.map(1);
            w.bulk(b"k");
            w.set(0);
            w.error("ERR inside");
            w.null();
            w.array(1);
            w.array(1);
            w.integer(3);
        };
        assert!(!check_one(nested, r#"{"result":[["k",[]],"ERR inside",null,[[3]]]}"#));
    }

    #[test]
    fn arrays_may_be_counted_after_their_elements() {
        let scan = |found: &'static [&'static str]| {
            move |w: &mut ReplyWriter<'_>| {
                let counted = w.begin_counted();
                for key in found {
                    w.bulk(key.as_bytes());
                }
                w.end_counted(counted, found.len(), |w| {
                    w.array(2);
                    w.bulk(b"17");
                });
            }
        };
        check_one(scan(&["a", "b"]), r#"{"result":["17",["a","b"]]}"#);
        check_one(scan(&["a"]), r#"{"result":["17",["a"]]}"#);
        check_one(scan(&[]), r#"{"result":["17",[]]}"#);
        let exec = |w: &mut ReplyWriter<'_>| {
            w.array(2);
            scan(&["a", "b"])(w);
            w.ok();
        };
        check(
            JsonStrings::Text,
            JsonResults::Elements,
            exec,
            r#"[{"result":["17",["a","b"]]},{"result":"OK"}]"#,
        );
    }

    #[test]
    fn elements_have_results_of_their_own() {
        let elements = |write: fn(&mut ReplyWriter<'_>), expected: &str| {
            check(JsonStrings::Text, JsonResults::Elements, write, expected)
        };
        let is_error = elements(
            |w| {
                w.array(3);
                w.error("ERR first");
                w.array(1);
                w.integer(1);
                w.null();
            },
            r#"[{"error":"ERR first"},{"result":[1]},{"result":null}]"#,
        );
        assert!(!is_error, "one of several");
        assert!(elements(|w| w.error("EXECABORT no"), r#"{"error":"EXECABORT no"}"#));
        assert!(!elements(|w| w.array(0), "[]"));
    }

    #[test]
    fn base64_leaves_the_status_ok_and_errors() {
        let write = |w: &mut ReplyWriter<'_>| {
            w.array(4);
            w.ok();
            w.simple("PONG");
            w.bulk(b"");
            w.error("ERR x");
        };
        let expected = r#"{"result":["OK","UE9ORw==","","ERR x"]}"#;
        check(JsonStrings::Base64, JsonResults::One, write, expected);
    }

    #[test]
    fn a_reply_can_be_replaced_by_an_error() {
        let write = |w: &mut ReplyWriter<'_>| {
            w.array(2);
            w.integer(1);
            let mark = w.mark();
            w.array(2);
            w.integer(2);
            w.rewind(mark);
            w.error("ERR too large");
        };
        let expected = r#"[{"result":1},{"error":"ERR too large"}]"#;
        check(JsonStrings::Text, JsonResults::Elements, write, expected);
        // The value that is removed has closed the array that it was the last element of.
        let complete = |w: &mut ReplyWriter<'_>| {
            w.array(1);
            let mark = w.mark();
            w.array(1);
            w.integer(2);
            w.rewind(mark);
            w.error("ERR too large");
        };
        let expected = r#"[{"error":"ERR too large"}]"#;
        check(JsonStrings::Text, JsonResults::Elements, complete, expected);
        let whole = |w: &mut ReplyWriter<'_>| {
            let mark = w.mark();
            w.array(1);
            w.integer(2);
            w.rewind(mark);
            w.error("ERR too large");
        };
        assert!(check_one(whole, r#"{"error":"ERR too large"}"#));
    }
}
