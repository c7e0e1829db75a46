//! Names in statements: their keyspaces, and their validity.

use std::sync::Arc;

use super::builtin::{is_local_system, is_redis, is_replicated_system, is_virtual_system};
use super::change::ChangeContext;
use super::{Catalog, Keyspace};
use crate::error::CqlError;
use crate::parser::QualifiedName;

/// Maximum length of the name of a keyspace, table or index: Cassandra uses them as file names.
// Source: Cassandra 5.0, schema.SchemaConstants.NAME_LENGTH
pub(super) const NAME_BYTES_MAX: usize = 48;

/// The action of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    AlterKeyspace,
    DropKeyspace,
    Create,
    AlterTable,
    Drop,
}

/// Whether a name consists of letters, digits and underscores, and is not too long.
pub(super) fn is_valid_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_word)
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
    if !is_valid_name(keyspace) {
        return Err(CqlError::Invalid(format!(
            "Keyspace name must not be empty, more than {NAME_BYTES_MAX} characters long, or \
             contain non-alphanumeric-underscore characters (got '{keyspace}')"
        )));
    }
    Ok(())
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
