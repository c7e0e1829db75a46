//! Who may do what: roles, and permissions granted to them.
//!
//! A [`Roles`] never changes: a change makes a new one, so that a check takes no lock. The truth is in
//! the tables of keyspace `system_auth`, which are stored, logged and recovered like all others.
//!
//! Reading order: `permissions` and `resource` (what may be granted, on what), `role` (who), `change`
//! (statements), `list` (LIST), `stored` (rows), `access` (what a connection may do), `password` and
//! `logins` (who a client is).

mod access;
mod change;
mod list;
mod logins;
pub(in crate::cql) mod password;
mod permissions;
mod resource;
mod role;
mod stored;
#[cfg(test)]
mod testing;

pub(crate) use access::Access;
pub(in crate::cql) use access::Performer;
pub use change::{
    ChangeContext, RolesChange, change, changes_roles, follow_schema, hashes_password,
};
pub(in crate::cql) use list::{Listed, list};
pub(crate) use logins::Logins;
pub use role::{Roles, SUPERUSER};
pub(crate) use stored::is_table_of_roles;
pub(in crate::cql) use stored::{TABLES, from_rows, role_rows};
