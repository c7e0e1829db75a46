//! `DESCRIBE ...`, executed by the server, as in Cassandra since version 4

use super::Statement;
use crate::parser::{Parser, QualifiedName, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Describe {
    pub(crate) what: Described,
    /// Whether to include generated properties: ids, and dropped columns.
    pub(crate) with_internals: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Described {
    Cluster,
    /// Including the system's keyspaces.
    FullSchema,
    Schema,
    Keyspaces,
    Tables,
    Types,
    Functions,
    Aggregates,
    /// None: the keyspace in use.
    Keyspace(Option<String>),
    Table(QualifiedName),
    Type(QualifiedName),
    Index(QualifiedName),
    /// The first object with this name.
    Name(QualifiedName),
}

type Make = fn(QualifiedName) -> Described;

const OBJECTS: [(&str, Make); 4] = [
    ("table", Described::Table),
    ("columnfamily", Described::Table),
    ("type", Described::Type),
    ("index", Described::Index),
];

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let what = parse_object(parser)?;
    let with_internals = parser.take_words(&["with", "internals"]);
    Ok(Statement::Describe(Describe { what, with_internals }))
}

fn parse_object(parser: &mut Parser<'_>) -> Result<Described> {
    for (words, describe) in [
        (&["cluster"][..], Described::Cluster),
        (&["full", "schema"], Described::FullSchema),
        (&["schema"], Described::Schema),
        (&["keyspaces"], Described::Keyspaces),
        (&["tables"], Described::Tables),
        (&["types"], Described::Types),
        (&["functions"], Described::Functions),
        (&["aggregates"], Described::Aggregates),
    ] {
        if parser.take_words(words) {
            return Ok(describe);
        }
    }
    if parser.take_word("keyspace") {
        let is_end = parser.is_at_symbol(";") || parser.peek().kind == crate::lexer::Kind::End;
        return Ok(Described::Keyspace(if is_end { None } else { Some(parser.name()?) }));
    }
    for (word, describe) in OBJECTS {
        if parser.take_word(word) {
            return Ok(describe(parser.qualified_name()?));
        }
    }
    Ok(Described::Name(parser.qualified_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    #[test]
    fn cqlshs_forms_are_read() {
        let parsed = |text: &str| match parse(text).unwrap().statement {
            Statement::Describe(describe) => describe.what,
            other => panic!("{other:?}"),
        };
        assert_eq!(parsed("DESCRIBE KEYSPACES"), Described::Keyspaces);
        assert_eq!(parsed("DESC FULL SCHEMA"), Described::FullSchema);
        assert_eq!(parsed("DESCRIBE KEYSPACE;"), Described::Keyspace(None));
        assert_eq!(parsed("DESCRIBE KEYSPACE k"), Described::Keyspace(Some("k".into())));
        let name = QualifiedName { keyspace: Some("k".into()), name: "t".into() };
        assert_eq!(parsed("DESCRIBE TABLE k.t WITH INTERNALS"), Described::Table(name.clone()));
        assert_eq!(parsed("DESCRIBE k.t"), Described::Name(name));
    }
}
