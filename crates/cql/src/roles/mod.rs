//! Roles, and the permissions granted to them.
//!
//! A [`Roles`] is immutable: a change creates a new one, so that a check takes no lock. The source
//! of truth is the tables of keyspace `system_auth`, which are stored, logged and recovered like
//! all others.
//!
//! Reading order: `permissions` and `resource` (permissions, and the objects they apply to),
//! `role`, `change` (statements), `list` (LIST), `rows` (roles as rows), `access` (permissions of a
//! connection), `password` (hashes of passwords).

mod access;
mod change;
mod list;
pub mod password;
mod permissions;
mod resource;
mod role;
mod rows;
#[cfg(test)]
pub(crate) mod testing;

pub use access::{Access, Performer};
pub use change::{ChangeContext, change, changes_roles, follow_schema};
pub use list::{Listed, list};
pub use role::{Roles, SUPERUSER};
pub use rows::{TABLES, from_rows, is_table_of_roles, role_rows};
