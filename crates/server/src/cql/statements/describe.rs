//! `DESCRIBE ...`, answered by the server as cqlsh has asked since Cassandra 4

use super::Statement;
use crate::cql::parser::{Parser, QualifiedName, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Describe {
    Cluster,
    /// With what the system itself needs.
    FullSchema,
    Schema,
    Keyspaces,
    Tables,
    Types,
    Functions,
    Aggregates,
    /// None: the one in use.
    Keyspace(Option<String>),
    Table(QualifiedName),
    Type(QualifiedName),
    Index(QualifiedName),
    /// Whatever has this name.
    Name(QualifiedName),
}

type Make = fn(QualifiedName) -> Describe;

const OBJECTS: [(&str, Make); 4] = [
    ("table", Describe::Table),
    ("columnfamily", Describe::Table),
    ("type", Describe::Type),
    ("index", Describe::Index),
];

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let describe = parse_object(parser)?;
    // Nothing is kept back without it.
    parser.take_words(&["with", "internals"]);
    Ok(Statement::Describe(describe))
}

fn parse_object(parser: &mut Parser<'_>) -> Result<Describe> {
    for (words, describe) in [
        (&["cluster"][..], Describe::Cluster),
        (&["full", "schema"], Describe::FullSchema),
        (&["schema"], Describe::Schema),
        (&["keyspaces"], Describe::Keyspaces),
        (&["tables"], Describe::Tables),
        (&["types"], Describe::Types),
        (&["functions"], Describe::Functions),
        (&["aggregates"], Describe::Aggregates),
    ] {
        if parser.take_words(words) {
            return Ok(describe);
        }
    }
    if parser.take_word("keyspace") {
        let is_end = parser.is_at_symbol(";") || parser.peek().kind == crate::cql::lexer::Kind::End;
        return Ok(Describe::Keyspace(if is_end { None } else { Some(parser.name()?) }));
    }
    for (word, describe) in OBJECTS {
        if parser.take_word(word) {
            return Ok(describe(parser.qualified_name()?));
        }
    }
    Ok(Describe::Name(parser.qualified_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cql::statements::parse;

    #[test]
    fn cqlshs_forms_are_read() {
        let parsed = |text: &str| match parse(text).unwrap().statement {
            Statement::Describe(describe) => describe,
            other => panic!("{other:?}"),
        };
        assert_eq!(parsed("DESCRIBE KEYSPACES"), Describe::Keyspaces);
        assert_eq!(parsed("DESC FULL SCHEMA"), Describe::FullSchema);
        assert_eq!(parsed("DESCRIBE KEYSPACE;"), Describe::Keyspace(None));
        assert_eq!(parsed("DESCRIBE KEYSPACE k"), Describe::Keyspace(Some("k".into())));
        let name = QualifiedName { keyspace: Some("k".into()), name: "t".into() };
        assert_eq!(parsed("DESCRIBE TABLE k.t WITH INTERNALS"), Describe::Table(name.clone()));
        assert_eq!(parsed("DESCRIBE k.t"), Describe::Name(name));
    }
}
