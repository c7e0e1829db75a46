//! All roles, their memberships, and the permissions granted to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::permissions::Permissions;
use super::resource::Resource;

/// The role that exists initially.
// Source: Cassandra 5.0, CassandraRoleManager.DEFAULT_SUPERUSER_NAME
pub const SUPERUSER: &str = "cassandra";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    pub(crate) is_superuser: bool,
    pub can_login: bool,
    /// The bcrypt hash of its password. None: the role cannot log in.
    pub salted_hash: Option<String>,
    /// The roles granted directly to it.
    pub(crate) member_of: BTreeSet<String>,
    /// Permissions granted directly to it.
    pub grants: BTreeMap<Resource, Permissions>,
}

/// All roles of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    by_name: BTreeMap<String, Arc<Role>>,
}

impl Roles {
    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        self.by_name.get(name)
    }

    /// All roles with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Role>)> {
        self.by_name.iter().map(|(name, role)| (name.as_str(), role))
    }

    /// The role itself and all that it is a member of, directly or indirectly. Empty if it does not
    /// exist.
    pub(crate) fn roles_of<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![name];
        while let Some(name) = waiting.pop() {
            let Some(role) = self.by_name.get(name) else { continue };
            if found.insert(name) {
                waiting.extend(role.member_of.iter().map(String::as_str));
            }
        }
        found
    }

    /// Whether it, or a role it is a member of, is a superuser.
    pub(crate) fn is_superuser(&self, name: &str) -> bool {
        self.roles_of(name).into_iter().any(|name| self.by_name[name].is_superuser)
    }

    /// Permissions on exactly this resource, excluding those on resources that contain it.
    pub(crate) fn granted(&self, name: &str, resource: &Resource) -> Permissions {
        let granted = self.roles_of(name).into_iter().filter_map(|name| {
            let grants = &self.by_name[name].grants;
            grants.get(resource).copied()
        });
        granted.fold(Permissions::NONE, |sum, one| sum | one)
    }

    /// A copy with a superuser who logs in with the password of this hash.
    #[must_use]
    pub fn with_superuser(&self, salted_hash: String) -> Roles {
        let mut roles = self.clone();
        let role = roles.edit(SUPERUSER);
        role.is_superuser = true;
        role.can_login = true;
        role.salted_hash = Some(salted_hash);
        roles
    }

    /// The role of this name for changing, created if it does not exist.
    pub(super) fn edit(&mut self, name: &str) -> &mut Role {
        let role = self.by_name.entry(name.to_owned()).or_default();
        Arc::make_mut(role)
    }

    /// Removes a role, also from the roles that are members of it.
    pub(super) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        for role in self.by_name.values_mut().filter(|role| role.member_of.contains(name)) {
            Arc::make_mut(role).member_of.remove(name);
        }
        self.revoke_all_on(&Resource::Role(name.to_owned()));
    }

    /// Removes all permissions on a dropped resource.
    pub(super) fn revoke_all_on(&mut self, resource: &Resource) {
        for role in self.by_name.values_mut().filter(|role| role.grants.contains_key(resource)) {
            Arc::make_mut(role).grants.remove(resource);
        }
    }

    pub(super) fn grant(&mut self, name: &str, resource: Resource, permissions: Permissions) {
        let granted = self.edit(name).grants.entry(resource).or_default();
        *granted = *granted | permissions;
    }

    /// A resource without remaining permissions is removed.
    pub(super) fn revoke(&mut self, name: &str, resource: &Resource, permissions: Permissions) {
        let grants = &mut self.edit(name).grants;
        if let Some(granted) = grants.get_mut(resource) {
            *granted = *granted - permissions;
            if granted.is_empty() {
                grants.remove(resource);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::roles;
    use super::*;
    use crate::statements::Permission;

    #[test]
    fn members_of_a_role_have_its_permissions() {
        let roles = roles(&[
            "CREATE ROLE low",
            "CREATE ROLE middle",
            "CREATE ROLE high WITH SUPERUSER = true",
            "GRANT middle TO low",
            "GRANT SELECT ON KEYSPACE k TO middle",
            "GRANT ALTER ON KEYSPACE k TO low",
        ]);
        let on_k = |name| roles.granted(name, &Resource::Keyspace("k".into())).to_string();
        assert_eq!((on_k("low"), on_k("middle")), ("ALTER, SELECT".into(), "SELECT".into()));
        assert_eq!(roles.roles_of("low").into_iter().collect::<Vec<_>>(), ["low", "middle"]);
        assert!(roles.roles_of("nobody").is_empty());
        assert!(roles.is_superuser("high") && !roles.is_superuser("low"));
    }

    #[test]
    fn permissions_on_dropped_objects_are_revoked() {
        let mut roles = roles(&["CREATE ROLE a", "CREATE ROLE b", "GRANT a TO b"]);
        let of_a = Resource::Role("a".into());
        roles.grant("b", of_a.clone(), Permissions::of(&[Permission::Drop, Permission::Alter]));
        roles.revoke("b", &of_a, Permissions::of(&[Permission::Drop]));
        assert_eq!(roles.granted("b", &of_a).to_string(), "ALTER");
        roles.remove("a");
        assert_eq!(roles.role("b").unwrap().member_of.len(), 0);
        assert!(roles.role("b").unwrap().grants.is_empty());
        assert!(roles.role("a").is_none());
    }
}
