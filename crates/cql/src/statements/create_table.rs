//! `CREATE TABLE [IF NOT EXISTS] name (columns, PRIMARY KEY (...)) WITH options`

use super::Statement;
use super::options::{Options, parse_option};
use crate::parser::{Parser, QualifiedName, Result};
use crate::term::Term;
use crate::type_name::TypeName;

#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    pub(crate) name: QualifiedName,
    pub(crate) if_not_exists: bool,
    pub(crate) columns: Vec<ColumnDefinition>,
    /// How often the statement specifies a primary key.
    pub(crate) primary_keys: usize,
    pub(crate) partition_key: Vec<String>,
    pub(crate) clustering: Vec<String>,
    /// Columns in WITH CLUSTERING ORDER, and whether they are descending.
    pub(crate) clustering_order: Vec<(String, bool)>,
    pub(crate) options: Options,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnDefinition {
    pub(crate) name: String,
    pub(crate) column_type: TypeName,
    pub(crate) is_static: bool,
    pub(crate) is_masked: bool,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_not_exists = parser.if_not_exists();
    let name = parser.qualified_name()?;
    let mut table = CreateTable {
        name,
        if_not_exists,
        columns: Vec::new(),
        primary_keys: 0,
        partition_key: Vec::new(),
        clustering: Vec::new(),
        clustering_order: Vec::new(),
        options: Options::new(),
    };
    parser.bracketed_loosely(|parser| parse_item(parser, &mut table))?;
    if parser.take_word("with") {
        parse_property(parser, &mut table)?;
        while parser.take_word("and") {
            parse_property(parser, &mut table)?;
        }
    }
    Ok(Statement::CreateTable(Box::new(table)))
}

/// A column, or the primary key.
fn parse_item(parser: &mut Parser<'_>, table: &mut CreateTable) -> Result<()> {
    let token = parser.peek();
    if parser.take_words(&["primary", "key"]) {
        let mut parts = parser.bracketed("(", ")", |parser| {
            if parser.is_at_symbol("(") {
                return parser.bracketed("(", ")", Parser::name);
            }
            Ok(vec![parser.name()?])
        })?;
        if parts.is_empty() || parts.iter().skip(1).any(|part| part.len() != 1) {
            return token.fault("only the first part of a primary key may have brackets");
        }
        table.primary_keys += 1;
        table.partition_key.extend(parts.remove(0));
        table.clustering = parts.into_iter().flatten().collect();
    } else {
        let column = parse_column(parser)?;
        if parser.take_words(&["primary", "key"]) {
            table.primary_keys += 1;
            table.partition_key.push(column.name.clone());
        }
        table.columns.push(column);
    }
    Ok(())
}

/// `name type [STATIC] [MASKED WITH function]`
pub(super) fn parse_column(parser: &mut Parser<'_>) -> Result<ColumnDefinition> {
    let name = parser.name()?;
    let column_type = TypeName::parse(parser)?;
    let is_static = parser.take_word("static");
    let is_masked = parse_mask(parser)?;
    Ok(ColumnDefinition { name, column_type, is_static, is_masked })
}

/// Consumes the mask of a column, if present. Masks are not supported, so only its presence is
/// returned.
// Source: Cassandra 5.0, Parser.g: columnMask
pub(super) fn parse_mask(parser: &mut Parser<'_>) -> Result<bool> {
    if !parser.take_words(&["masked", "with"]) {
        return Ok(false);
    }
    if !parser.take_word("default") {
        parser.qualified_name()?;
        parser.bracketed("(", ")", Term::parse)?;
    }
    Ok(true)
}

fn parse_property(parser: &mut Parser<'_>, table: &mut CreateTable) -> Result<()> {
    let token = parser.peek();
    if parser.take_words(&["clustering", "order", "by"]) {
        table.clustering_order = parser.bracketed("(", ")", |parser| {
            let name = parser.name()?;
            let is_descending = parser.take_word("desc");
            if !is_descending {
                parser.expect_word("asc")?;
            }
            Ok((name, is_descending))
        })?;
        return Ok(());
    }
    if parser.take_words(&["compact", "storage"]) {
        return token.fault("COMPACT STORAGE tables are not allowed");
    }
    table.options.push(parse_option(parser)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    fn parsed(text: &str) -> Result<CreateTable> {
        match parse(text)?.statement {
            Statement::CreateTable(table) => Ok(*table),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_have_two_forms() {
        let short = parsed("CREATE TABLE t (a int PRIMARY KEY, b text)").unwrap();
        assert_eq!((short.partition_key, short.columns.len()), (vec!["a".to_owned()], 2));
        let long = parsed(
            "CREATE TABLE IF NOT EXISTS k.t (a int, b int, c int, d int STATIC, e map<int, text>, \
             PRIMARY KEY ((a, b), c)) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'x'",
        )
        .unwrap();
        assert_eq!(long.partition_key, ["a", "b"]);
        assert_eq!(long.clustering, ["c"]);
        assert_eq!(long.clustering_order, [("c".to_owned(), true)]);
        assert!(long.columns[3].is_static && long.if_not_exists);
        assert_eq!(long.options.len(), 1);
    }

    #[test]
    fn only_the_first_part_of_a_key_has_brackets() {
        let error = parsed("CREATE TABLE t (a int, PRIMARY KEY (a, (b, c)))").unwrap_err();
        assert_eq!(error.reason, "only the first part of a primary key may have brackets");
    }
}
