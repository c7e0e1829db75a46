//! Paths and queries: percent-decoding.

/// An escape that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadEscape;

/// Appends a part of a path without its escapes. Every byte may come of one: parts are data here, not
/// names of files.
// Source: RFC 3986 2.1 (percent-encoding)
pub(super) fn unescape(part: &[u8], out: &mut Vec<u8>) -> Result<(), BadEscape> {
    let mut rest = part;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let [high, low, after @ ..] = rest else { return Err(BadEscape) };
        out.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    Ok(())
}

fn digit(byte: u8) -> Result<u8, BadEscape> {
    let digit = char::from(byte).to_digit(16).ok_or(BadEscape)?;
    Ok(u8::try_from(digit).expect("less than 16"))
}

/// The parameters of a query: names, and values if there is a `=`, decoded. A `+` is a space, as in
/// forms.
// Source: WHATWG URL Standard 5.1 (application/x-www-form-urlencoded parsing)
pub(super) fn parameters(query: &[u8]) -> impl Iterator<Item = Result<Parameter, BadEscape>> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let name = form_text(halves.next().unwrap_or_default())?;
        let value = halves.next().map(form_text).transpose()?;
        Ok(Parameter { name, value })
    })
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

/// The value of the first parameter of this name.
pub(super) fn parameter(query: Option<&[u8]>, name: &str) -> Option<Vec<u8>> {
    let mut known = parameters(query?).filter_map(Result::ok);
    known.find(|parameter| parameter.name == name.as_bytes())?.value
}

fn form_text(text: &[u8]) -> Result<Vec<u8>, BadEscape> {
    let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    let mut out = Vec::with_capacity(spaced.len());
    unescape(&spaced, &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_bytes() {
        for (text, expected) in [
            ("foo", Some(&b"foo"[..])),
            ("a%2Fb%00%ff", Some(b"a/b\0\xff")),
            ("a+b", Some(b"a+b")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%-1", None),
        ] {
            let mut out = Vec::new();
            let result = unescape(text.as_bytes(), &mut out);
            assert_eq!(result.ok().map(|()| out.as_slice()), expected, "{text}");
        }
    }

    #[test]
    fn queries_are_lists_of_names_and_values() {
        let parsed: Vec<_> =
            parameters(b"EX=100&NX&a=b%3Dc&&e=&s=a+b").map(Result::unwrap).collect();
        let parsed: Vec<_> =
            parsed.iter().map(|one| (one.name.as_slice(), one.value.as_deref())).collect();
        assert_eq!(
            parsed,
            [
                (&b"EX"[..], Some(&b"100"[..])),
                (b"NX", None),
                (b"a", Some(b"b=c")),
                (b"e", Some(b"")),
                (b"s", Some(b"a b")),
            ]
        );
        assert_eq!(parameter(Some(b"x=1&_token=t%20t"), "_token").as_deref(), Some(&b"t t"[..]));
        assert_eq!(parameter(Some(b"x=1&bad=%"), "bad"), None);
        assert_eq!(parameter(None, "x"), None);
    }
}
