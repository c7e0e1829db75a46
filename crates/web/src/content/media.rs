//! Media types by file extension.

/// Extension, type, and whether compression is effective.
const TYPES: [(&str, &str, bool); 41] = [
    ("html", "text/html; charset=utf-8", true),
    ("htm", "text/html; charset=utf-8", true),
    ("css", "text/css; charset=utf-8", true),
    ("js", "text/javascript; charset=utf-8", true),
    ("mjs", "text/javascript; charset=utf-8", true),
    ("json", "application/json", true),
    ("map", "application/json", true),
    ("txt", "text/plain; charset=utf-8", true),
    ("md", "text/markdown; charset=utf-8", true),
    ("csv", "text/csv; charset=utf-8", true),
    ("xml", "application/xml", true),
    ("xhtml", "application/xhtml+xml", true),
    ("rss", "application/rss+xml", true),
    ("atom", "application/atom+xml", true),
    ("svg", "image/svg+xml", true),
    ("webmanifest", "application/manifest+json", true),
    ("wasm", "application/wasm", true),
    ("ico", "image/vnd.microsoft.icon", true),
    ("bmp", "image/bmp", true),
    ("ttf", "font/ttf", true),
    ("otf", "font/otf", true),
    ("woff", "font/woff", false),
    ("woff2", "font/woff2", false),
    ("png", "image/png", false),
    ("jpg", "image/jpeg", false),
    ("jpeg", "image/jpeg", false),
    ("gif", "image/gif", false),
    ("webp", "image/webp", false),
    ("avif", "image/avif", false),
    ("mp3", "audio/mpeg", false),
    ("ogg", "audio/ogg", false),
    ("wav", "audio/wav", false),
    ("mp4", "video/mp4", false),
    ("webm", "video/webm", false),
    ("pdf", "application/pdf", false),
    ("zip", "application/zip", false),
    ("gz", "application/gzip", false),
    ("br", "application/octet-stream", false),
    ("zst", "application/zstd", false),
    ("tar", "application/x-tar", true),
    ("xz", "application/x-xz", false),
];

/// A media type, and whether compression is effective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Media {
    pub(crate) text: &'static str,
    pub(crate) is_compressible: bool,
}

/// Returns the type of a file with this name. Unknown extensions are binary data, so that browsers
/// do not guess.
// Source: the IANA registry of media types
pub(crate) fn of(name: &[u8]) -> Media {
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let extension = file.iter().rposition(|&byte| byte == b'.').map(|dot| &file[dot + 1..]);
    let is =
        |known: &str| extension.is_some_and(|found| found.eq_ignore_ascii_case(known.as_bytes()));
    TYPES.iter().find(|(known, ..)| is(known)).map_or(
        Media { text: "application/octet-stream", is_compressible: false },
        |&(_, text, is_compressible)| Media { text, is_compressible },
    )
}

/// Whether compression is effective for content of this type, a value of `Content-Type`. Event
/// streams consist of short messages, which must not wait.
pub(crate) fn is_compressible(content_type: &[u8]) -> bool {
    let essence = |text: &[u8]| {
        let end = text.iter().position(|&byte| byte == b';').unwrap_or(text.len());
        text[..end].trim_ascii().to_ascii_lowercase()
    };
    let found = essence(content_type);
    if found.starts_with(b"text/") {
        return found != b"text/event-stream";
    }
    found.ends_with(b"+json")
        || found.ends_with(b"+xml")
        || found == b"application/javascript"
        || TYPES
            .iter()
            .any(|&(_, text, is_compressible)| is_compressible && essence(text.as_bytes()) == found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_other_servers_are_known() {
        for text in ["text/plain", "Application/JSON; charset=utf-8", "image/svg+xml", "a/b+json"] {
            assert!(is_compressible(text.as_bytes()), "{text}");
        }
        for text in ["", "image/png", "text/event-stream;charset=utf-8", "font/woff2"] {
            assert!(!is_compressible(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn extensions_have_types() {
        assert_eq!(of(b"a/b.HTML").text, "text/html; charset=utf-8");
        assert_eq!(of(b"a.min.js").text, "text/javascript; charset=utf-8");
        assert!(!of(b"a.png").is_compressible);
        for name in ["a", "a.html/b", "a.unknown", "", "a."] {
            assert_eq!(of(name.as_bytes()).text, "application/octet-stream", "{name}");
        }
    }
}
