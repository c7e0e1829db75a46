//! Names in statements: their keyspaces, and their validity.

use std::sync::Arc;

use super::builtin::{is_local_system, is_redis, is_replicated_system, is_virtual_system};
use super::change::ChangeContext;
use super::{Catalog, Keyspace};
use crate::error::CqlError;
use crate::parser::QualifiedName;

/// Maximum length of the name of a keyspace and of a table: Cassandra uses them as file names.
// Source: Cassandra 5.0.9, schema.SchemaConstants
const KEYSPACE_NAME_BYTES_MAX: usize = 48;
const TABLE_NAME_BYTES_MAX: usize = 222;

/// The action of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    AlterKeyspace,
    DropKeyspace,
    Create,
    AlterTable,
    Drop,
}

/// Whether a name consists of letters, digits and underscores.
fn is_word(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part)
}

fn check_keyspace_name(name: &str) -> Result<(), CqlError> {
    if !is_word(name) {
        return Err(CqlError::Invalid(format!(
            "Keyspace name must not be empty and must contain alphanumeric or underscore \
             characters only (got \"{name}\")"
        )));
    }
    if name.len() > KEYSPACE_NAME_BYTES_MAX {
        return Err(CqlError::Invalid(format!(
            "Keyspace name must not be more than {KEYSPACE_NAME_BYTES_MAX} characters long (got \
             {} characters for \"{name}\")",
            name.len()
        )));
    }
    Ok(())
}

pub(super) fn check_table_name(keyspace: &str, name: &str) -> Result<(), CqlError> {
    if !is_word(name) {
        return Err(CqlError::Config(format!(
            "{keyspace}.{name}: Table name must not be empty or not contain \
             non-alphanumeric-underscore characters (got \"{name}\")"
        )));
    }
    if name.len() > TABLE_NAME_BYTES_MAX {
        return Err(CqlError::Config(format!(
            "{keyspace}.{name}: Table name must not be more than {TABLE_NAME_BYTES_MAX} \
             characters long (got {} characters for \"{name}\")",
            name.len()
        )));
    }
    Ok(())
}

/// The keyspace of a name: its own or the one in use.
pub(super) fn keyspace_of<'a>(
    name: &'a QualifiedName,
    cx: &ChangeContext<'a>,
) -> Result<&'a str, CqlError> {
    let found = name.keyspace.as_deref().or(cx.keyspace);
    found.ok_or_else(|| {
        CqlError::invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify \
             keyspace.tablename",
        )
    })
}

/// Rejects forbidden actions on the server's own keyspaces.
// Source: Cassandra 5.0, service.ClientState.preventSystemKSSchemaModification
pub(super) fn guard(keyspace: &str, action: Action) -> Result<(), CqlError> {
    if is_local_system(keyspace) {
        return Err(CqlError::Unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    if is_virtual_system(keyspace) {
        return Err(CqlError::Invalid(format!(
            "Virtual keyspace '{keyspace}' is not user-modifiable"
        )));
    }
    if is_redis(keyspace) {
        return Err(CqlError::Invalid(format!(
            "Keyspace '{keyspace}' holds the values of the Redis protocol and is not user-modifiable"
        )));
    }
    let verb = match action {
        Action::AlterKeyspace => return Ok(()),
        Action::Create => "CREATE",
        Action::AlterTable => "ALTER",
        Action::Drop | Action::DropKeyspace => "DROP",
    };
    if is_replicated_system(keyspace) {
        return Err(CqlError::Unauthorized(format!("Cannot {verb} <keyspace {keyspace}>")));
    }
    check_keyspace_name(keyspace)
}

/// The existing keyspace for a new object.
pub(super) fn existing<'a>(
    catalog: &'a Catalog,
    keyspace: &str,
) -> Result<&'a Arc<Keyspace>, CqlError> {
    catalog
        .keyspace(keyspace)
        .ok_or_else(|| CqlError::Invalid(format!("Keyspace '{keyspace}' doesn't exist")))
}
