//! Roles for tests, created by statements of the superuser.

use super::change::RolesChange;
use super::{ChangeContext, Roles, SUPERUSER, change};
use crate::error::CqlError;
use crate::schema::testing::catalog;
use crate::statements::parse;

/// The effect of a statement with keyspace `k` in use, which has a table `t`. None: without a
/// login.
pub(super) fn as_role(
    roles: &Roles,
    performer: Option<&str>,
    text: &str,
) -> Result<Option<RolesChange>, CqlError> {
    let statement = parse(text).map_err(|error| CqlError::Syntax(error.to_string()))?.statement;
    let catalog = catalog(&["CREATE TABLE t (a int PRIMARY KEY)"]);
    let cx = ChangeContext {
        catalog: &catalog,
        keyspace: Some("k"),
        performer,
        is_enforced: performer.is_some(),
        salted_hash: Some("hash"),
    };
    change(roles, &statement, &cx)
}

pub(crate) fn try_change(roles: &Roles, text: &str) -> Result<Option<RolesChange>, CqlError> {
    as_role(roles, Some(SUPERUSER), text)
}

/// The roles after these statements, all of which must succeed.
pub(crate) fn roles(statements: &[&str]) -> Roles {
    let mut start = Roles::default();
    start.edit(SUPERUSER).is_superuser = true;
    statements.iter().fold(start, |roles, text| match try_change(&roles, text) {
        Ok(Some(change)) => change.roles,
        other => panic!("{text}: {other:?}"),
    })
}
