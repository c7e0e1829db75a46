//! The texts of statements as others may see them.

use cql::statements::begins_as_data;

use crate::engine::secret::REDACTED;

/// Cuts a statement before its password. Only text that certainly begins as a data statement is
/// kept whole: comments may appear anywhere.
pub(crate) fn without_password(text: &str) -> Vec<u8> {
    const WORD: &[u8] = b"password";
    let place =
        text.as_bytes().windows(WORD.len()).position(|part| part.eq_ignore_ascii_case(WORD));
    match place {
        Some(place) if !begins_as_data(text) => {
            [&text.as_bytes()[..place + WORD.len()], b" ", REDACTED].concat()
        }
        _ => text.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_redacted() {
        for (text, expected) in [
            ("CREATE ROLE a WITH PASSWORD = 'secret'", "CREATE ROLE a WITH PASSWORD (redacted)"),
            ("alter user b with password 'secret'", "alter user b with password (redacted)"),
            (
                "/* 1 */ CREATE ROLE a WITH PASSWORD = 's'",
                "/* 1 */ CREATE ROLE a WITH PASSWORD (redacted)",
            ),
            ("CREATE ROLE a WITH LOGIN = true", "CREATE ROLE a WITH LOGIN = true"),
            ("SELECT password FROM t", "SELECT password FROM t"),
        ] {
            assert_eq!(without_password(text), expected.as_bytes(), "{text}");
        }
    }
}
