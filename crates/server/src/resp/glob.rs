//! Glob patterns, as KEYS, the MATCH of scans and CONFIG GET understand them.
//!
//! `*` any bytes, `?` one byte, `[abc]`, `[a-z]` and `[^a]` one byte of a class, `\` takes the
//! meaning from the byte that follows. All is bytes: no encodings.
//!
//! Every part but `*` takes exactly one byte, so when a match fails only the newest `*` needs to
//! give more bytes away: O(pattern x text) at worst, whatever the pattern is.
// Source: Redis 7.2 `util.c`, `stringmatchlen` behaviour

/// Whether the whole text fits the pattern.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_folded(pattern, text, |byte| byte)
}

/// The same for ASCII letters of any case.
pub(crate) fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_folded(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// Where to go on when a match fails: behind a `*`, which swallows the text before `text_at`.
struct Retry {
    pattern_at: usize,
    text_at: usize,
}

fn matches_folded(pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    let mut retry: Option<Retry> = None;
    loop {
        if pattern.get(pattern_at) == Some(&b'*') {
            pattern_at += 1;
            if pattern_at == pattern.len() {
                return true;
            }
            retry = Some(Retry { pattern_at, text_at });
            continue;
        }
        let Some(byte) = text.get(text_at) else { return pattern_at == pattern.len() };
        if let Some(len) = match_one(&pattern[pattern_at..], *byte, &fold) {
            pattern_at += len;
            text_at += 1;
            continue;
        }
        let Some(newest) = &mut retry else { return false };
        newest.text_at += 1;
        (pattern_at, text_at) = (newest.pattern_at, newest.text_at);
    }
}

/// The length of the pattern's first part, which is no `*`, if it takes this byte.
fn match_one(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> Option<usize> {
    let is = |wanted: u8| fold(wanted) == fold(byte);
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => match_class(class, byte, fold).map(|len| len + 1),
        [b'\\', escaped, ..] => is(*escaped).then_some(2),
        [literal, ..] => is(*literal).then_some(1),
    }
}

/// The length of a class behind its `[`, if the byte is in it. A class without `]` ends with the
/// pattern.
fn match_class(class: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> Option<usize> {
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
    (is_in != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        check("[a-]", &["a", "]", "^"], &["-", "b"]); // the end is taken for one of a range
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

    /// With one level of recursion per star this takes longer than anybody waits.
    #[test]
    fn many_stars_are_not_exponential() {
        let pattern = b"a*".repeat(40);
        let text = [b'a'; 2000];
        assert!(matches(&pattern, &text));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }
}
