//! Glob patterns of KEYS, the MATCH option of scans, and CONFIG GET.
//!
//! `*` matches any bytes; `?` one byte; `[abc]`, `[a-z]` and `[^a]` one byte of a class; `\`
//! escapes the byte that follows. Patterns match bytes, without regard to encodings.
//!
//! Every element but `*` matches exactly one byte, so after a mismatch only the latest `*` needs to
//! match more bytes: O(pattern x text) in the worst case, for any pattern.
// Source: Redis 7.2 `util.c`, `stringmatchlen` behavior

use std::cell::Cell;

/// Steps that one command may spend on matching names, about 50 ms.
pub(crate) const STEPS_MAX: u64 = 1 << 25;

/// The step limit was reached before all comparisons were done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("matching the pattern takes too long")]
pub(crate) struct TooLong;

/// Bytes that a search for a single byte scans in the time of one step.
const SEARCHED_BYTES_PER_STEP: usize = 16;

/// Remaining steps for matching names. A pattern and a name of a megabyte each can take 10^12 of
/// them. When no steps remain, nothing matches: see [`Steps::is_exhausted`].
#[derive(Debug)]
pub(crate) struct Steps {
    left: Cell<u64>,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps::new(STEPS_MAX)
    }
}

impl Steps {
    pub(crate) fn new(count: u64) -> Steps {
        Steps { left: Cell::new(count) }
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.get()
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.left() == 0
    }

    /// Fails if a comparison was skipped.
    pub(crate) fn check(&self) -> Result<(), TooLong> {
        if self.is_exhausted() {
            return Err(TooLong);
        }
        Ok(())
    }

    /// Takes the given number of steps. False if fewer remain.
    #[inline]
    fn take(&self, count: usize) -> bool {
        let left = self.left.get().saturating_sub(count as u64);
        self.left.set(left);
        left > 0
    }

    /// Whether the whole text matches the pattern.
    #[inline]
    pub(crate) fn matches(&self, pattern: &[u8], text: &[u8]) -> bool {
        self.matches_folded(pattern, text, |byte| byte, memchr::memchr)
    }

    /// Whether the whole text matches the pattern, ignoring the case of ASCII letters.
    pub(crate) fn matches_ignoring_case(&self, pattern: &[u8], text: &[u8]) -> bool {
        let find = |wanted: u8, text: &[u8]| {
            text.iter().position(|byte| byte.eq_ignore_ascii_case(&wanted))
        };
        self.matches_folded(pattern, text, |byte| byte.to_ascii_lowercase(), find)
    }

    fn matches_folded(
        &self,
        pattern: &[u8],
        text: &[u8],
        fold: impl Fn(u8) -> u8,
        find: impl Fn(u8, &[u8]) -> Option<usize>,
    ) -> bool {
        let (mut pattern_at, mut text_at) = (0, 0);
        let mut retry: Option<Retry> = None;
        loop {
            if pattern.get(pattern_at) == Some(&b'*') {
                pattern_at += 1;
                if pattern_at == pattern.len() {
                    return self.take(1);
                }
                retry = Some(Retry { pattern_at, text_at });
                if !self.take(1) {
                    return false;
                }
                continue;
            }
            let Some(byte) = text.get(text_at) else {
                return pattern_at == pattern.len() && self.take(1);
            };
            let (fits, seen_len) = match_one(&pattern[pattern_at..], *byte, &fold);
            if !self.take(seen_len.max(1)) {
                return false;
            }
            if fits {
                pattern_at += seen_len;
                text_at += 1;
                continue;
            }
            let Some(newest) = &mut retry else { return false };
            newest.text_at += 1;
            // A literal after the star can match only at its next occurrence.
            if let Some(literal) = literal(&pattern[newest.pattern_at..]) {
                let Some(passed) = find(literal, text.get(newest.text_at..).unwrap_or_default())
                else {
                    return false;
                };
                newest.text_at += passed;
                if !self.take(passed / SEARCHED_BYTES_PER_STEP) {
                    return false;
                }
            }
            (pattern_at, text_at) = (newest.pattern_at, newest.text_at);
        }
    }
}

/// Where to retry after a mismatch: the element after a `*` that consumes the text before
/// `text_at`.
struct Retry {
    pattern_at: usize,
    text_at: usize,
}

/// Returns the pattern's first byte if it is a literal.
fn literal(pattern: &[u8]) -> Option<u8> {
    pattern.first().copied().filter(|byte| !matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// Whether the pattern's first element, which is not `*`, matches this byte, and the length of the
/// element.
fn match_one(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> (bool, usize) {
    let is = |wanted: u8| fold(wanted) == fold(byte);
    match pattern {
        [] => (false, 0),
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => {
            let (fits, len) = match_class(class, byte, fold);
            (fits, len + 1)
        }
        [b'\\', escaped, ..] => (is(*escaped), 2),
        [literal, ..] => (is(*literal), 1),
    }
}

/// Whether the byte is in the class after its `[`, and the length of the class. A class without `]`
/// extends to the end of the pattern.
fn match_class(class: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let wanted = fold(byte);
    let mut at = usize::from(negated);
    let mut is_in = false;
    loop {
        match class[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                is_in |= fold(escaped) == wanted;
                at += 2;
            }
            [first, b'-', last, ..] => {
                let (low, high) = (first.min(last), first.max(last));
                is_in |= (fold(low)..=fold(high)).contains(&wanted);
                at += 3;
            }
            [literal, ..] => {
                is_in |= fold(literal) == wanted;
                at += 1;
            }
        }
    }
    (is_in != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Steps::default().matches(pattern, text)
    }

    fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
        Steps::default().matches_ignoring_case(pattern, text)
    }

    #[track_caller]
    fn check(pattern: &str, fits: &[&str], fits_not: &[&str]) {
        for text in fits {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} fits {text}");
        }
        for text in fits_not {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} fits not {text}");
        }
    }

    #[test]
    fn literals_and_wildcards() {
        check("", &[""], &["a"]);
        check("abc", &["abc"], &["", "ab", "abcd", "ABC"]);
        check("a?c", &["abc", "a?c"], &["ac", "abbc"]);
        check("*", &["", "a", "abc"], &[]);
        check("a*", &["a", "ab", "abc"], &["", "ba"]);
        check("*a", &["a", "ba", "aba"], &["", "ab"]);
        check("a**b", &["ab", "axb"], &["a", "b"]);
        check("*a*b*", &["ab", "xaxbx"], &["ba", "a", "b"]);
        check("a*b*c", &["abc", "abbc", "axbxbxc"], &["acb", "abcd"]);
        check("h?llo*", &["hello", "hallo there"], &["hllo"]);
    }

    #[test]
    fn classes() {
        check("[abc]", &["a", "b", "c"], &["", "d", "ab"]);
        check("h[ae]llo", &["hallo", "hello"], &["hillo", "hllo"]);
        check("[a-c]x", &["ax", "bx", "cx"], &["dx", "-x"]);
        check("[c-a]x", &["ax", "bx", "cx"], &["dx"]);
        check("[^a-c]", &["d", "^"], &["a", "c"]);
        check("[a^]", &["a", "^"], &["b"]);
        check("[a-]", &["a", "]", "^"], &["-", "b"]); // the `]` is taken as the end of a range
        check("[\\]]", &["]"], &["\\", "a"]);
        check("[\\a-c]", &["a", "-", "c"], &["b", "\\"]);
        check("*[0-9]", &["a1", "1"], &["a", "1a"]);
        check("[]", &[], &["", "]", "a"]);
        check("[^]", &["a", "]"], &[""]);
    }

    #[test]
    fn classes_without_end() {
        check("[", &[], &["", "["]);
        check("[^", &["a"], &[""]);
        check("[ab", &["a", "b"], &["c", "ab"]);
        check("[a-", &["a", "-"], &["b"]);
    }

    #[test]
    fn escapes() {
        check("a\\*", &["a*"], &["ab", "a\\"]);
        check("\\?", &["?"], &["a"]);
        check("\\[a]", &["[a]"], &["a"]);
        check("\\a", &["a"], &["\\a"]);
        check("a\\", &["a\\"], &["a"]);
    }

    #[test]
    fn any_case() {
        assert!(matches_ignoring_case(b"MAX*[A-Y]", b"maxmemory"));
        assert!(matches_ignoring_case(b"max\\MEMORY", b"MAXmemory"));
        assert!(!matches_ignoring_case(b"MAX*[A-X]", b"maxmemory"));
        assert!(!matches(b"MAX*", b"maxmemory"));
    }

    /// One level of recursion per star would take practically forever.
    #[test]
    fn many_stars_are_not_exponential() {
        let pattern = b"a*".repeat(40);
        let text = [b'a'; 2000];
        assert!(matches(&pattern, &text));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }

    #[test]
    fn steps_are_limited_and_counted() {
        let text = [b'a'; 10_000];
        for pattern in
            [&b"*aaaaaaaaaaaaaaaaaaab"[..], b"*[aaaaaaaaaaaaaaaaaaaa]b", b"*?????a?????b"]
        {
            let steps = Steps::new(50_000);
            assert!(!steps.matches(pattern, &text));
            assert!(steps.is_exhausted() && steps.check().is_err());
            assert!(!steps.matches(b"a", b"a"), "nothing fits any more");
        }
        // Stars alone also take steps.
        let steps = Steps::new(1_000);
        assert!(!steps.matches(&[b'*'; 2_000], b"x"));
        assert!(steps.is_exhausted());
        // Searches for a literal take few steps.
        let steps = Steps::new(1_000);
        assert!(!steps.matches(b"*b*", &text));
        assert!(steps.matches(b"*aaa", b"bbbbbbbbbbbbbbbbbbbbbbaaa"));
        assert_eq!(steps.check(), Ok(()));
    }
}
