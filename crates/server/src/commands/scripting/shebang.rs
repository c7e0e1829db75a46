//! The first line of a script: `#!lua flags=no-writes,allow-oom`.

use crate::commands::fail::Fail;
use crate::engine::scripts::ScriptOptions;

/// Reads the options of a script. Returns them, and the text to compile: without the first line,
/// but with its end, so that lines keep their numbers.
// Source: Redis 7.2 `eval.c`, `evalExtractShebangFlags`
pub(super) fn parse(text: &[u8]) -> Result<(ScriptOptions, &[u8]), Fail> {
    if !text.starts_with(b"#!") {
        return Ok((ScriptOptions::default(), text));
    }
    let Some(end) = memchr::memchr(b'\n', text) else {
        return Err(Fail::text("ERR Invalid script shebang"));
    };
    let (line, body) = text.split_at(end);
    let mut words = line.split(|byte| *byte == b' ');
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err(Fail::quoting("ERR Unexpected engine in script shebang: ", engine, ""));
    }
    let mut options = ScriptOptions { is_declared: true, ..ScriptOptions::default() };
    for word in words {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            return Err(Fail::quoting("ERR Unknown lua shebang option: ", word, ""));
        };
        for flag in flags.split(|byte| *byte == b',').filter(|flag| !flag.is_empty()) {
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
        check("#!lua", Err("ERR Invalid script shebang"));
        check("#!js\nx", Err("ERR Unexpected engine in script shebang: #!js"));
        check("#!lua flags=no\nx", Err("ERR Unexpected flag in script shebang: no"));
        check("#!lua name=a\nx", Err("ERR Unknown lua shebang option: name=a"));
    }
}
