//! Percent-decoding of paths and query strings.

/// A malformed percent escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadEscape;

/// Appends a path segment with its escapes decoded. An escape may encode any byte, because segments
/// are data here and not file names.
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

/// Parses the parameters of a query string. Names and values are decoded; a name without `=` has no
/// value. As in forms, `+` stands for a space.
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

/// Returns the value of the first parameter with this name.
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
    fn escapes_are_decoded() {
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
    fn queries_are_parsed_into_names_and_values() {
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
