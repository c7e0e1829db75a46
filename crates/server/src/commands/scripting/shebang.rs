//! The first line of a script or library: `#!lua flags=no-writes,allow-oom`.

use crate::commands::fail::Fail;
use crate::engine::scripts::ScriptOptions;

/// The first line of a text that begins with `#!`.
#[derive(Debug)]
pub(super) struct FirstLine<'t> {
    /// Words, as a line of a configuration is split: by blanks, and with quotes.
    pub(super) words: Vec<Vec<u8>>,
    /// What follows the line, with its end, so that lines keep their numbers.
    pub(super) body: &'t [u8],
}

/// Why a first line is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineError {
    /// Nothing follows it, or it contains a zero byte.
    NoEnd,
    /// A quote is not closed, or its end is not that of a word.
    Quotes,
}

/// Splits the first line of a text. `None`: it does not begin with `#!`.
pub(super) fn first_line(text: &[u8]) -> Option<Result<FirstLine<'_>, LineError>> {
    if !text.starts_with(b"#!") {
        return None;
    }
    let end = memchr::memchr2(b'\n', 0, text).filter(|end| text[*end] == b'\n');
    Some(end.ok_or(LineError::NoEnd).and_then(|end| {
        let (line, body) = text.split_at(end);
        let words = wire::resp::split_line(line).map_err(|_| LineError::Quotes)?;
        Ok(FirstLine { words, body })
    }))
}

/// Reads the options of a script. Returns them, and the text to compile.
// Source: Redis 7.2 `eval.c`, `evalExtractShebangFlags`
pub(super) fn parse(text: &[u8]) -> Result<(ScriptOptions, &[u8]), Fail> {
    let FirstLine { words, body } = match first_line(text) {
        None => return Ok((ScriptOptions::default(), text)),
        Some(Ok(line)) => line,
        Some(Err(LineError::NoEnd)) => return Err(Fail::text("ERR Invalid script shebang")),
        Some(Err(LineError::Quotes)) => {
            return Err(Fail::text("ERR Invalid engine in script shebang"));
        }
    };
    let mut words = words.iter();
    let engine = words.next().map_or(&[][..], Vec::as_slice);
    if engine != b"#!lua" {
        return Err(Fail::quoting("ERR Unexpected engine in script shebang: ", engine, ""));
    }
    let mut options = ScriptOptions { is_declared: true, ..ScriptOptions::default() };
    for word in words {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            return Err(Fail::quoting("ERR Unknown lua shebang option: ", word, ""));
        };
        for flag in flags.split(|byte| *byte == b',').filter(|_| !flags.is_empty()) {
            set_flag(&mut options, flag)
                .map_err(|()| Fail::quoting("ERR Unexpected flag in script shebang: ", flag, ""))?;
        }
    }
    Ok((options, body))
}

/// Sets the option with this name.
pub(super) fn set_flag(options: &mut ScriptOptions, flag: &[u8]) -> Result<(), ()> {
    match flag {
        b"no-writes" => options.no_writes = true,
        b"allow-oom" => options.allow_oom = true,
        // They concern replicas and clusters. The last one is of Upstash, whose libraries use it in
        // their scripts: there, only the keys of such a script are locked while it runs.
        b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" | b"allow-key-locking" => {}
        _ => return Err(()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, &str), &str>) {
        let parsed = parse(text.as_bytes());
        let found = parsed.map(|(options, body)| {
            let named = [
                (options.is_declared, "declared "),
                (options.no_writes, "no-writes "),
                (options.allow_oom, "allow-oom "),
            ];
            let names: String =
                named.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
            (names, String::from_utf8_lossy(body).into_owned())
        });
        let expected = expected.map(|(names, body)| (names.to_owned(), body.to_owned()));
        assert_eq!(found.map_err(|fail| fail.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn first_lines() {
        check("return 1", Ok(("", "return 1")));
        check("#!lua\nreturn 1", Ok(("declared ", "\nreturn 1")));
        let text = "#!lua flags=no-writes,allow-oom,allow-stale\nx";
        check(text, Ok(("declared no-writes allow-oom ", "\nx")));
        check("#!lua flags=allow-key-locking\nx", Ok(("declared ", "\nx")));
        check("#!lua flags=\nx", Ok(("declared ", "\nx")));
        check(
            "#!lua \t flags=no-writes  'flags=allow-oom' \r\nx",
            Ok(("declared no-writes allow-oom ", "\nx")),
        );
        check("#!\"lua\" flags=\"no\\x2dwrites\"\nx", Ok(("declared no-writes ", "\nx")));
        check("#!lua\r\nx", Ok(("declared ", "\nx")));
        check("#!lua", Err("ERR Invalid script shebang"));
        check("#!lua\0\nx", Err("ERR Invalid script shebang"));
        check("#!lua \"flags=a\nx", Err("ERR Invalid engine in script shebang"));
        check("#!\nx", Err("ERR Unexpected engine in script shebang: #!"));
        check("#!LUA\nx", Err("ERR Unexpected engine in script shebang: #!LUA"));
        check("#!lua ''\nx", Err("ERR Unknown lua shebang option: "));
        check("#!lua FLAGS=a\nx", Err("ERR Unknown lua shebang option: FLAGS=a"));
        check("#!lua flags=no-writes, \nx", Err("ERR Unexpected flag in script shebang: "));
        check("#!js\nx", Err("ERR Unexpected engine in script shebang: #!js"));
        check("#!lua flags=no\nx", Err("ERR Unexpected flag in script shebang: no"));
        check("#!lua name=a\nx", Err("ERR Unknown lua shebang option: name=a"));
    }
}
