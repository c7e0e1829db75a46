//! Translates the path of a request to a name below the root.

/// Maximum length of a name; the kernel's limit includes one more byte for the terminator.
const NAME_BYTES_MAX: usize = 4095;

/// A name below the root without `.`, `..`, empty or hidden parts. The empty name is the root
/// itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) bytes: Vec<u8>,
    /// The path ended with `/`.
    pub(crate) is_directory: bool,
}

/// Reason why a path has no valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// 400: malformed, or deliberately ambiguous.
    Malformed,
    /// 404: no file can have this name.
    Unknown,
}

/// Decodes a path. Refuses malformed and ambiguous escapes (`%2f`, `%00`, other control
/// characters), backslashes, and every part `.` or `..`, escaped or not: clients resolve them
/// before they send a request. Parts that begin with a dot are hidden, except `.well-known`.
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

/// Relation of a path to the upstream's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below<'a> {
    Elsewhere,
    /// The folder without its slash.
    Itself,
    /// The part after the folder's slash, as received.
    Inside(&'a [u8]),
}

/// Relates `path` to the folder `/name/`. Repeated slashes before it count once, and its letters
/// may be escaped: other servers treat these paths as equal, so they are routed alike.
// Source: RFC 3986 6.2.2.2 (percent-encoding normalization)
pub(crate) fn below<'a>(path: &'a [u8], name: &[u8]) -> Below<'a> {
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    let rest = &path[slashes..];
    let end = rest.iter().position(|&byte| byte == b'/');
    let mut first = Vec::with_capacity(name.len());
    let part = &rest[..end.unwrap_or(rest.len())];
    // Each byte takes at most three characters, so a longer part is another name.
    if slashes == 0 || part.len() > 3 * name.len() {
        return Below::Elsewhere;
    }
    if unescape(part, &mut first).is_err() || first != name {
        return Below::Elsewhere;
    }
    end.map_or(Below::Itself, |end| Below::Inside(&rest[end + 1..]))
}

/// Whether a path has a part `.` or `..`, with or without escapes: another server might resolve it
/// to a path that was not routed to it.
// Source: RFC 3986 5.2.4 (remove dot segments)
pub(crate) fn has_dot_segments(path: &[u8]) -> bool {
    let mut rest = path;
    // Dots of the current part; `None` if it has other bytes.
    let mut dots = Some(0_u32);
    let is_dots = |dots: Option<u32>| matches!(dots, Some(1 | 2));
    loop {
        let byte = match rest {
            [] => return is_dots(dots),
            [b'%', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = tail;
                digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0)
            }
            [byte, tail @ ..] => {
                rest = tail;
                *byte
            }
        };
        dots = match byte {
            b'/' | b'\\' if is_dots(dots) => return true,
            b'/' | b'\\' => Some(0),
            b'.' => dots.map(|count| count.saturating_add(1)),
            _ => None,
        };
    }
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
    fn paths_out_of_the_root_are_refused() {
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
    fn dot_segments_are_detected_through_escapes() {
        for path in ["/api/..", "/api/../x", "/./x", "/a/%2e%2E/b", "/a/.%2e", "/a\\..\\b"] {
            assert!(has_dot_segments(path.as_bytes()), "{path}");
        }
        for path in ["/api/..%2fx", "/api/%2e%2e%2Fx", "/api/a%2f..", "/api/a%5C..%5cb", "/%2f./"] {
            assert!(has_dot_segments(path.as_bytes()), "{path}");
        }
        for path in ["/", "/api/a", "/api/...", "/a..b/c", "/a%2Fb", "/%2", ""] {
            assert!(!has_dot_segments(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_folder_is_found_in_every_spelling() {
        for (path, expected) in [
            ("/api/", Below::Inside(&b""[..])),
            ("/api/x", Below::Inside(b"x")),
            ("/api//x/", Below::Inside(b"/x/")),
            ("//api/x", Below::Inside(b"x")),
            ("///api/x%2fy", Below::Inside(b"x%2fy")),
            ("/%61pi/x", Below::Inside(b"x")),
            ("/%61%70%69/x", Below::Inside(b"x")),
            ("/api", Below::Itself),
            ("//%61pi", Below::Itself),
            ("api/x", Below::Elsewhere),
            ("/", Below::Elsewhere),
            ("", Below::Elsewhere),
            ("*", Below::Elsewhere),
            ("/apis/x", Below::Elsewhere),
            ("/API/x", Below::Elsewhere),
            ("/api%2fx", Below::Elsewhere),
            ("/%2fapi/x", Below::Elsewhere),
            ("/%2561pi/x", Below::Elsewhere),
            ("/%61p/x", Below::Elsewhere),
            ("/ap%/x", Below::Elsewhere),
            ("/x/api/", Below::Elsewhere),
        ] {
            assert_eq!(below(path.as_bytes(), b"api"), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_name_has_a_dot_segment(path in "/[./%2fFeE0ac\\\\]{0,30}") {
            if let Ok(name) = parse(path.as_bytes()) {
                prop_assert!(!name.bytes.starts_with(b"/"));
                for part in name.bytes.split(|&byte| byte == b'/') {
                    prop_assert!(part != b".." && part != b"." && !part.contains(&0));
                }
            }
        }
    }
}
