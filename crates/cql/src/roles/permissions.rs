//! Sets of permissions.

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

use crate::statements::Permission;

/// A set of permissions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Permissions(u16);

impl Permissions {
    pub(crate) const NONE: Permissions = Permissions(0);

    pub(crate) const fn of(permissions: &[Permission]) -> Permissions {
        let mut bits = 0;
        let mut at = 0;
        while at < permissions.len() {
            bits |= 1 << permissions[at] as u16;
            at += 1;
        }
        Permissions(bits)
    }

    pub(crate) fn has(self, permission: Permission) -> bool {
        self.0 & Self::of(&[permission]).0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In declaration order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.has(*permission))
    }

    /// Finds a permission by its name in `system_auth`.
    pub(crate) fn from_name(name: &str) -> Option<Permission> {
        Permission::ALL.into_iter().find(|permission| permission.name() == name)
    }
}

impl BitOr for Permissions {
    type Output = Permissions;

    fn bitor(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }
}

impl BitAnd for Permissions {
    type Output = Permissions;

    fn bitand(self, other: Permissions) -> Permissions {
        Permissions(self.0 & other.0)
    }
}

impl Sub for Permissions {
    type Output = Permissions;

    fn sub(self, other: Permissions) -> Permissions {
        Permissions(self.0 & !other.0)
    }
}

/// `CREATE, ALTER`
impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, permission) in self.iter().enumerate() {
            f.write_str(if nth == 0 { "" } else { ", " })?;
            f.write_str(permission.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_contain_the_added_permissions() {
        let some = Permissions::of(&[Permission::Select, Permission::Create]);
        assert_eq!(some.to_string(), "CREATE, SELECT");
        assert!(some.has(Permission::Create) && !some.has(Permission::SelectMasked));
        assert_eq!((some - Permissions::of(&[Permission::Create])).to_string(), "SELECT");
        assert!((some - some).is_empty());
        for permission in Permission::ALL {
            assert_eq!(Permissions::from_name(permission.name()), Some(permission));
        }
        assert_eq!(Permissions::from_name("READ"), None);
    }
}
