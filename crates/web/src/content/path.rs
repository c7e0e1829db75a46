//! From the path of a request to a name below the root.

/// Longest name; the kernel's bound is one more for the end.
const NAME_BYTES_MAX: usize = 4095;

/// A name below the root without `.`, `..`, empty or hidden parts; empty is the root itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) bytes: Vec<u8>,
    /// The path ended with `/`.
    pub(crate) is_directory: bool,
}

/// Why a path names nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// 400: no path, or one that is written to be read in two ways.
    Malformed,
    /// 404: nothing can have this name.
    Unknown,
}

/// Decodes a path. Refused are broken and doubtful escapes (`%2f`, `%00`, other control characters),
/// backslashes, and every part `.` or `..`, escaped or not: no client needs them, since they are
/// resolved before a request is sent. Parts that start with a dot are hidden, but for `.well-known`.
// Source: RFC 3986 2.1 (percent-encoding), 3.3 (path), 5.2.4; RFC 8615 (well-known URIs)
pub(crate) fn parse(path: &[u8]) -> Result<Name, PathError> {
    let Some(rest) = path.strip_prefix(b"/") else { return Err(PathError::Malformed) };
    let mut bytes = Vec::with_capacity(rest.len());
    for part in rest.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        let start = bytes.len();
        unescape(part, &mut bytes)?;
        match &bytes[start..] {
            b"." | b".." => return Err(PathError::Malformed),
            [b'.', ..] if bytes[start..] != *b".well-known" => return Err(PathError::Unknown),
            _ => {}
        }
    }
    if bytes.len() > NAME_BYTES_MAX {
        return Err(PathError::Unknown);
    }
    Ok(Name { bytes, is_directory: rest.is_empty() || rest.ends_with(b"/") })
}

/// Whether a path has a part `.` or `..`, escaped or not: another server may resolve it and answer for
/// what it was not asked for here.
// Source: RFC 3986 5.2.4 (remove dot segments)
pub(crate) fn climbs(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/' || byte == b'\\').any(|part| {
        let mut rest = part;
        let mut dots = 0;
        loop {
            rest = match rest {
                [] => return dots == 1 || dots == 2,
                [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
                _ => return false,
            };
            dots += 1;
        }
    })
}

fn unescape(part: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut rest = part;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let byte = if *first == b'%' {
            let [high, low, tail @ ..] = rest else { return Err(PathError::Malformed) };
            rest = tail;
            digit(*high)? << 4 | digit(*low)?
        } else {
            *first
        };
        if byte == b'/' || byte == b'\\' || byte < b' ' || byte == 0x7f {
            return Err(PathError::Malformed);
        }
        out.push(byte);
    }
    Ok(())
}

fn digit(byte: u8) -> Result<u8, PathError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(PathError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Result<(&str, bool), PathError>) {
        let found = parse(path.as_bytes());
        let expected = expected
            .map(|(name, is_directory)| Name { bytes: name.as_bytes().to_vec(), is_directory });
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn paths_become_names() {
        check("/", Ok(("", true)));
        check("/a", Ok(("a", false)));
        check("/a/b.txt", Ok(("a/b.txt", false)));
        check("/a/", Ok(("a", true)));
        check("//a///b//", Ok(("a/b", true)));
        check("/%41%20%c3%a4", Ok(("A \u{e4}", false)));
        check("/a...b/..c", Err(PathError::Unknown));
        check("/.well-known/x", Ok((".well-known/x", false)));
    }

    #[test]
    fn what_leaves_the_root_or_tries_to_is_refused() {
        for path in [
            "",
            "a",
            "*",
            "/..",
            "/../a",
            "/a/../b",
            "/a/..",
            "/.",
            "/a/./b",
            "/%2e%2e/a",
            "/%2E./a",
            "/.%2e",
            "/a%2fb",
            "/a%2Fb",
            "/..%2f..%2fa",
            "/a%5cb",
            "/a\\..\\b",
            "/a%00",
            "/a%00.html",
            "/%0d%0aX",
            "/%7f",
            "/%",
            "/%2",
            "/%zz",
            "/a%2",
        ] {
            check(path, Err(PathError::Malformed));
        }
        for path in ["/.git/config", "/.env", "/a/.htaccess", "/%2eenv", "/..."] {
            check(path, Err(PathError::Unknown));
        }
        check(&format!("/{}", "a".repeat(5000)), Err(PathError::Unknown));
    }

    #[test]
    fn climbing_is_seen_through_escapes() {
        for path in ["/api/..", "/api/../x", "/./x", "/a/%2e%2E/b", "/a/.%2e", "/a\\..\\b"] {
            assert!(climbs(path.as_bytes()), "{path}");
        }
        for path in ["/", "/api/a", "/api/...", "/a..b/c", "/a%2Fb", "/%2", ""] {
            assert!(!climbs(path.as_bytes()), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_name_has_a_part_that_climbs(path in "/[./%2fFeE0ac\\\\]{0,30}") {
            if let Ok(name) = parse(path.as_bytes()) {
                prop_assert!(!name.bytes.starts_with(b"/"));
                for part in name.bytes.split(|&byte| byte == b'/') {
                    prop_assert!(part != b".." && part != b"." && !part.contains(&0));
                }
            }
        }
    }
}
