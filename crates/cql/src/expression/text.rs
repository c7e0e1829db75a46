//! Terms in the form of messages.

use std::fmt::{self, Display, Formatter};

use crate::term::Term;

/// Prints a term. Shorter than the statement's own text where that does not matter.
#[derive(Debug)]
pub(crate) struct TermText<'a>(pub &'a Term);

impl Display for TermText<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let list = |open: &str, terms: &[Term], close: &str| {
            let terms: Vec<String> = terms.iter().map(|term| TermText(term).to_string()).collect();
            format!("{open}{}{close}", terms.join(", "))
        };
        let text = match self.0 {
            Term::Null => "NULL".to_owned(),
            Term::Marker(_) => "?".to_owned(),
            Term::Constant(constant) => constant.to_string(),
            Term::List(items) => list("[", items, "]"),
            Term::Set(items) => list("{", items, "}"),
            Term::Tuple(items) => list("(", items, ")"),
            Term::Map(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(key, value)| format!("{}: {}", TermText(key), TermText(value)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            Term::UserDefined(fields) => {
                let fields =
                    fields.iter().map(|(name, value)| format!("{name}: {}", TermText(value)));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
            }
            Term::Call { function, arguments } => {
                let keyspace = function.keyspace.as_deref().map(|name| format!("{name}."));
                format!(
                    "{}{}{}",
                    keyspace.unwrap_or_default(),
                    function.name,
                    list("(", arguments, ")")
                )
            }
            Term::Hint(_, term) => format!("(type) {}", TermText(term)),
            Term::Negative(term) => format!("-{}", TermText(term)),
            Term::Arithmetic(operator, left, right) => {
                format!("{} {} {}", TermText(left), operator.symbol(), TermText(right))
            }
            Term::Column(name) => name.clone(),
        };
        formatter.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::parsed_term;

    #[test]
    fn terms_are_written_as_they_were_read() {
        for text in [
            "1", "'a'", "0xff", "NULL", "[1, 2]", "{1, 2}", "{1: 'a'}", "(1, 2)", "{a: 1}",
            "f(1, ?)", "ks.f(2)", "1 + 2", "true",
        ] {
            assert_eq!(TermText(&parsed_term(text)).to_string(), text);
        }
    }
}
