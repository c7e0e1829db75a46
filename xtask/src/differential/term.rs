//! A value with its text as a literal and its bytes as a bound value.

use super::encode;

/// Delimiters of a term that may be sent as a value, in a text from which a statement is made: its
/// text, then its bytes in hexadecimal. No term contains these characters.
pub(super) const MARKS: [char; 3] = ['\u{1}', '\u{2}', '\u{3}'];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Term {
    /// A term of CQL.
    pub(super) text: String,
    pub(super) bytes: Vec<u8>,
}

impl Term {
    /// A term of a native type.
    pub(super) fn native(name: &str, constant: &str) -> Term {
        Term { text: constant.to_owned(), bytes: encode::native(name, constant) }
    }

    pub(super) fn int(number: i32) -> Term {
        Term { text: number.to_string(), bytes: number.to_be_bytes().to_vec() }
    }

    pub(super) fn bigint(number: i64) -> Term {
        Term { text: number.to_string(), bytes: number.to_be_bytes().to_vec() }
    }

    /// A list, a set, or the values of IN: they differ in their brackets.
    pub(super) fn items(brackets: [char; 2], parts: &[Term]) -> Term {
        let [open, close] = brackets;
        let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
        let bytes = encode::items(parts.iter().map(|part| part.bytes.as_slice()));
        Term { text: format!("{open}{}{close}", texts.join(", ")), bytes }
    }

    /// A map.
    pub(super) fn pairs(pairs: &[(Term, Term)]) -> Term {
        let texts: Vec<String> =
            pairs.iter().map(|(key, value)| format!("{}: {}", key.text, value.text)).collect();
        let parts = pairs.iter().map(|(key, value)| (key.bytes.as_slice(), value.bytes.as_slice()));
        Term { text: format!("{{{}}}", texts.join(", ")), bytes: encode::pairs(parts) }
    }

    /// All parts of a tuple as text, and the bytes of the first `sent` parts: nulls at the end may
    /// be omitted.
    pub(super) fn tuple(parts: &[Option<Term>], sent: usize) -> Term {
        let texts: Vec<&str> = parts.iter().map(|part| Term::text_or_null(part.as_ref())).collect();
        let text = format!("({})", texts.join(", "));
        Term { text, bytes: Self::fields(&parts[..sent]) }
    }

    pub(super) fn fields(parts: &[Option<Term>]) -> Vec<u8> {
        encode::fields(parts.iter().map(|part| part.as_ref().map(|term| term.bytes.as_slice())))
    }

    pub(super) fn text_or_null(part: Option<&Term>) -> &str {
        part.map_or("null", |term| term.text.as_str())
    }

    /// Its form in the text of a statement that may be bound.
    pub(super) fn marked(&self) -> String {
        let [start, middle, end] = MARKS;
        format!("{start}{}{middle}{}{end}", self.text, encode::hex(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_made_of_terms() {
        let [one, two] = ["1", "2"].map(|number| Term::native("tinyint", number));
        for (term, text, bytes) in [
            (Term::int(-1), "-1", "ffffffff"),
            (Term::bigint(7), "7", "0000000000000007"),
            (
                Term::items(['(', ')'], &[one.clone(), two.clone()]),
                "(1, 2)",
                "0000000200000001010000000102",
            ),
            (Term::pairs(&[(one.clone(), two.clone())]), "{1: 2}", "0000000100000001010000000102"),
            (Term::tuple(&[Some(one.clone()), None], 2), "(1, null)", "0000000101ffffffff"),
            (Term::tuple(&[Some(one.clone()), None], 1), "(1, null)", "0000000101"),
        ] {
            assert_eq!((term.text.as_str(), encode::hex(&term.bytes).as_str()), (text, bytes));
        }
        assert_eq!(one.marked(), "\u{1}1\u{2}01\u{3}");
    }
}
