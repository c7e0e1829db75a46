//! Statements: one file and one row of [`STATEMENTS`] each.

mod alter_keyspace;
mod alter_table;
mod alter_type;
mod batch;
mod create_index;
mod create_keyspace;
mod create_table;
mod create_type;
mod delete;
mod describe;
mod drop;
mod insert;
mod list;
mod options;
mod permissions;
mod roles;
mod select;
mod truncate;
mod update;
mod use_keyspace;
mod using;

pub(crate) use alter_keyspace::AlterKeyspace;
pub(crate) use alter_table::{AlterTable, TableChange};
pub(crate) use alter_type::{AlterType, TypeChange};
pub(crate) use batch::Batch;
pub use batch::BatchKind;
pub(crate) use create_index::{CreateIndex, IndexTarget};
pub(crate) use create_keyspace::CreateKeyspace;
pub(crate) use create_table::{ColumnDefinition, CreateTable};
pub(crate) use create_type::CreateType;
pub(crate) use delete::{Delete, DeletedPart};
pub use describe::Describe;
pub(crate) use describe::Described;
pub(crate) use drop::{Drop, Dropped};
pub(crate) use insert::{Insert, InsertedRow};
pub use list::List;
pub(crate) use options::{OptionValue, Options};
pub(crate) use permissions::{ChangePermission, Permission, Resource};
pub(crate) use roles::{AccessLimit, AlterRole, CreateRole, GrantRole, RoleOptions};
pub(crate) use select::{Select, SelectedColumn, Selector};
pub(crate) use truncate::Truncate;
pub(crate) use update::{Assignment, Update};
pub(crate) use use_keyspace::UseKeyspace;
pub(crate) use using::Using;

use super::parser::{Parser, Result};

/// A statement as it was written: names are not looked up, types are not known.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    Select(Box<Select>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Batch(Batch),
    Truncate(Truncate),
    Use(UseKeyspace),
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    CreateTable(Box<CreateTable>),
    AlterTable(AlterTable),
    CreateIndex(CreateIndex),
    CreateType(CreateType),
    AlterType(AlterType),
    Drop(Drop),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    /// GRANT and REVOKE of a role.
    GrantRole(GrantRole),
    /// GRANT and REVOKE of a permission.
    ChangePermission(ChangePermission),
    List(List),
    Describe(Describe),
}

/// The words that a statement begins with, and what reads all of it.
struct Row {
    words: &'static [&'static str],
    parse: fn(&mut Parser<'_>) -> Result<Statement>,
}

/// The first row whose words are there is the statement's.
const STATEMENTS: [Row; 30] = [
    Row { words: &["select"], parse: select::parse },
    Row { words: &["insert"], parse: insert::parse },
    Row { words: &["update"], parse: update::parse },
    Row { words: &["delete"], parse: delete::parse },
    Row { words: &["begin"], parse: batch::parse },
    Row { words: &["truncate"], parse: truncate::parse },
    Row { words: &["use"], parse: use_keyspace::parse },
    Row { words: &["create", "keyspace"], parse: create_keyspace::parse },
    Row { words: &["create", "schema"], parse: create_keyspace::parse },
    Row { words: &["alter", "keyspace"], parse: alter_keyspace::parse },
    Row { words: &["alter", "schema"], parse: alter_keyspace::parse },
    Row { words: &["create", "table"], parse: create_table::parse },
    Row { words: &["create", "columnfamily"], parse: create_table::parse },
    Row { words: &["alter", "table"], parse: alter_table::parse },
    Row { words: &["alter", "columnfamily"], parse: alter_table::parse },
    Row { words: &["create", "index"], parse: create_index::parse },
    Row { words: &["create", "custom", "index"], parse: create_index::parse_custom },
    Row { words: &["create", "type"], parse: create_type::parse },
    Row { words: &["alter", "type"], parse: alter_type::parse },
    Row { words: &["create", "role"], parse: roles::parse_create },
    Row { words: &["create", "user"], parse: roles::parse_create_user },
    Row { words: &["alter", "role"], parse: roles::parse_alter },
    Row { words: &["alter", "user"], parse: roles::parse_alter_user },
    Row { words: &["drop"], parse: drop::parse },
    Row { words: &["grant"], parse: permissions::parse_grant },
    Row { words: &["revoke"], parse: permissions::parse_revoke },
    Row { words: &["list"], parse: list::parse },
    Row { words: &["describe"], parse: describe::parse },
    Row { words: &["desc"], parse: describe::parse },
    Row { words: &["apply"], parse: batch::parse_stray_apply },
];

/// The password that must be hashed before the statement is carried out.
pub fn hashes_password(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::CreateRole(create) => create.options.password.as_deref(),
        Statement::AlterRole(alter) => alter.options.password.as_deref(),
        _ => None,
    }
}

/// What statements begin with.
#[cfg(test)]
pub(crate) fn words() -> impl Iterator<Item = &'static [&'static str]> {
    STATEMENTS.iter().map(|row| row.words)
}

/// A statement and its markers.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub statement: Statement,
    /// The names of the markers, in their order; `?` has none.
    pub(crate) markers: Vec<Option<String>>,
}

/// Reads one statement; nothing may follow it but a semicolon.
pub fn parse(text: &str) -> Result<Parsed> {
    let mut parser = Parser::new(text)?;
    let row = STATEMENTS.iter().find(|row| {
        row.words.iter().enumerate().all(|(nth, word)| parser.peek_at(nth).is_word(word))
    });
    let Some(row) = row else { return parser.unexpected("a statement") };
    parser.expect_words(row.words)?;
    let statement = (row.parse)(&mut parser)?;
    parser.expect_end()?;
    Ok(Parsed { statement, markers: parser.into_markers() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_found_by_its_words() {
        for row in &STATEMENTS {
            let error = parse(&row.words.join(" ")).unwrap_err();
            assert!(!error.reason.contains("expected a statement"), "{:?}", row.words);
        }
        let error = parse("EXPLAIN SELECT").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 1:0 no viable alternative at input 'EXPLAIN' (expected a statement)"
        );
        assert!(parse("").is_err());
        assert!(parse("USE a; USE b").is_err());
    }

    #[test]
    fn markers_have_their_names() {
        let parsed = parse("SELECT * FROM t WHERE a = ? AND b = :Bee LIMIT ?;").unwrap();
        assert_eq!(parsed.markers, [None, Some("bee".into()), None]);
    }
}
