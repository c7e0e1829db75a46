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

/// A parsed statement: names are not resolved, types are not known.
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

/// What a statement creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created<'a> {
    pub kind: CreatedKind,
    /// `None`: the keyspace of the connection.
    pub keyspace: Option<&'a str>,
    /// `None`: an index whose name the server chooses.
    pub name: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreatedKind {
    Keyspace,
    Type,
    Table,
    Index,
}

impl Statement {
    /// The keyspace, type, table or index that the statement creates.
    pub fn created(&self) -> Option<Created<'_>> {
        let (kind, keyspace, name) = match self {
            Statement::CreateKeyspace(made) => {
                (CreatedKind::Keyspace, Some(&made.name), Some(&made.name))
            }
            Statement::CreateType(made) => {
                (CreatedKind::Type, made.name.keyspace.as_ref(), Some(&made.name.name))
            }
            Statement::CreateTable(made) => {
                (CreatedKind::Table, made.name.keyspace.as_ref(), Some(&made.name.name))
            }
            Statement::CreateIndex(made) => {
                let name = made.name.as_ref().map(|name| &name.name);
                (CreatedKind::Index, made.table.keyspace.as_ref(), name)
            }
            _ => return None,
        };
        Some(Created {
            kind,
            keyspace: keyspace.map(String::as_str),
            name: name.map(String::as_str),
        })
    }
}

/// The words at the start of a statement, and its parser.
struct Row {
    words: &'static [&'static str],
    parse: Parse,
    /// Whether it reads or writes rows, and therefore contains no password.
    is_of_data: bool,
}

type Parse = fn(&mut Parser<'_>) -> Result<Statement>;

impl Row {
    const fn of_data(words: &'static [&'static str], parse: Parse) -> Row {
        Row { words, parse, is_of_data: true }
    }

    const fn other(words: &'static [&'static str], parse: Parse) -> Row {
        Row { words, parse, is_of_data: false }
    }
}

/// The first row whose words match determines the statement.
const STATEMENTS: [Row; 30] = [
    Row::of_data(&["select"], select::parse),
    Row::of_data(&["insert"], insert::parse),
    Row::of_data(&["update"], update::parse),
    Row::of_data(&["delete"], delete::parse),
    Row::of_data(&["begin"], batch::parse),
    Row::of_data(&["truncate"], truncate::parse),
    Row::other(&["use"], use_keyspace::parse),
    Row::other(&["create", "keyspace"], create_keyspace::parse),
    Row::other(&["create", "schema"], create_keyspace::parse),
    Row::other(&["alter", "keyspace"], alter_keyspace::parse),
    Row::other(&["alter", "schema"], alter_keyspace::parse),
    Row::other(&["create", "table"], create_table::parse),
    Row::other(&["create", "columnfamily"], create_table::parse),
    Row::other(&["alter", "table"], alter_table::parse),
    Row::other(&["alter", "columnfamily"], alter_table::parse),
    Row::other(&["create", "index"], create_index::parse),
    Row::other(&["create", "custom", "index"], create_index::parse_custom),
    Row::other(&["create", "type"], create_type::parse),
    Row::other(&["alter", "type"], alter_type::parse),
    Row::other(&["create", "role"], roles::parse_create),
    Row::other(&["create", "user"], roles::parse_create_user),
    Row::other(&["alter", "role"], roles::parse_alter),
    Row::other(&["alter", "user"], roles::parse_alter_user),
    Row::other(&["drop"], drop::parse),
    Row::other(&["grant"], permissions::parse_grant),
    Row::other(&["revoke"], permissions::parse_revoke),
    Row::other(&["list"], list::parse),
    Row::other(&["describe"], describe::parse),
    Row::other(&["desc"], describe::parse),
    Row::other(&["apply"], batch::parse_stray_apply),
];

/// Whether a text certainly begins a statement that reads or writes rows; false after a leading
/// comment.
pub fn begins_as_data(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    STATEMENTS.iter().any(|row| row.is_of_data && row.words[0].eq_ignore_ascii_case(first))
}

/// The password that must be hashed before the statement is executed.
pub fn hashes_password(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::CreateRole(create) => create.options.password.as_deref(),
        Statement::AlterRole(alter) => alter.options.password.as_deref(),
        _ => None,
    }
}

/// The words at the start of all statements.
#[cfg(test)]
pub(crate) fn words() -> impl Iterator<Item = &'static [&'static str]> {
    STATEMENTS.iter().map(|row| row.words)
}

/// A statement and its markers.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub statement: Statement,
    /// The names of the markers, in order; `?` has none.
    pub(crate) markers: Vec<Option<String>>,
}

/// Parses one statement; only a semicolon may follow it.
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
