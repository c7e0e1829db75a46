//! All users, and their replacement.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::user::{PasswordHash, User};
use crate::config::Authority;

/// The user of a connection that has not logged in.
pub(crate) const DEFAULT_USER: &str = "default";

/// Maximum number of users. A change copies the list of all users.
const USERS_MAX: usize = 10_000;

/// Maximum bytes of the names and rules of all users.
const USERS_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many ACL users or rules: at most {USERS_MAX} users with {USERS_BYTES_MAX} bytes of rules"
)]
pub(crate) struct TooManyUsers;

/// All users by name. There is always a default user.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    default: Arc<User>,
    /// Names and rules of all users.
    bytes: usize,
    /// Number of the next user.
    next_number: u64,
}

impl Users {
    /// Only the default user.
    pub(crate) fn new(default: User) -> Users {
        Users::numbered_from(0, default)
    }

    /// Like [`Users::new`]; no number of an earlier user is used again.
    fn numbered_from(number: u64, mut default: User) -> Users {
        assert_eq!(*default.name, *DEFAULT_USER.as_bytes());
        default.seal(number);
        let default = Arc::new(default);
        Users {
            bytes: default.rule_bytes(),
            by_name: BTreeMap::from([(default.name.clone(), Arc::clone(&default))]),
            default,
            next_number: number + 1,
        }
    }

    /// Creates users in place of all users of a server. Its connections stay those of the default
    /// user, and are those of no other user.
    pub(crate) fn successors_of(users: &Users, mut default: User) -> Users {
        let mut all = Users::numbered_from(users.next_number, default.clone());
        default.seal(users.default.number);
        all.default = Arc::new(default);
        all.by_name.insert(all.default.name.clone(), Arc::clone(&all.default));
        all
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Whether clients may act that have shown no password. All protocols, and `protected-mode`,
    /// ask this function.
    pub(crate) fn admit_without_password(&self, authority: Authority) -> bool {
        match authority {
            Authority::Users => self.default.is_open(),
            Authority::DefaultUser => self.default.is_open() && self.default.is_unrestricted(),
            Authority::Roles => false,
            Authority::None => true,
        }
    }

    /// In the order of their names.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// Adds a user, or replaces the one of the same name. Fails above the limits; then the users
    /// must not be used.
    pub(crate) fn insert(&mut self, mut user: User) -> Result<(), TooManyUsers> {
        let old = self.by_name.get(&user.name);
        let number = old.map_or(self.next_number, |old| old.number);
        self.next_number += u64::from(old.is_none());
        self.bytes -= old.map_or(0, |old| old.rule_bytes());
        self.bytes += user.rule_bytes();
        user.seal(number);
        let user = Arc::new(user);
        if *user.name == *DEFAULT_USER.as_bytes() {
            self.default = Arc::clone(&user);
        }
        self.by_name.insert(user.name.clone(), user);
        let is_within = self.by_name.len() <= USERS_MAX && self.bytes <= USERS_BYTES_MAX;
        if is_within { Ok(()) } else { Err(TooManyUsers) }
    }

    /// Removes a user other than the default user. False if there is none of this name.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        assert_ne!(name, DEFAULT_USER.as_bytes(), "the default user stays");
        let removed = self.by_name.remove(name);
        self.bytes -= removed.as_ref().map_or(0, |user| user.rule_bytes());
        removed.is_some()
    }

    /// Replaces the passwords of the default user, which needs none if there are none.
    // Source: Redis 7.2 `acl.c`, `ACLUpdateDefaultUserPassword`
    pub(crate) fn set_default_passwords(&mut self, passwords: &[&str]) -> Result<(), TooManyUsers> {
        let mut user = User::clone(&self.default);
        user.takes_any_password = passwords.is_empty();
        user.passwords = passwords.iter().map(|it| PasswordHash::of(it.as_bytes())).collect();
        self.insert(user)
    }
}

/// A number that every request reads and only changes of users write: alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Generation(AtomicU64);

/// The users of a server.
#[derive(Debug)]
pub(crate) struct Acl {
    /// Even, and at least 2: see [`Identity`](super::Identity).
    generation: Generation,
    users: ArcSwap<Users>,
    /// Serializes changes.
    change: Mutex<()>,
}

impl Acl {
    pub(crate) fn new(users: Users) -> Acl {
        Acl {
            generation: Generation(AtomicU64::new(2)),
            users: ArcSwap::from_pointee(users),
            change: Mutex::new(()),
        }
    }

    /// The number of the current users. [`Acl::users`] returns these users or later ones.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.0.load(Ordering::Acquire)
    }

    pub(crate) fn users(&self) -> Guard<Arc<Users>> {
        self.users.load()
    }

    /// Replaces the users by a changed copy, unless the change fails. The caller must wake all
    /// reactors afterwards, so that they end sessions that the change ends.
    pub(crate) fn change<T, E>(
        &self,
        change: impl FnOnce(&mut Users) -> Result<T, E>,
    ) -> Result<T, E> {
        self.change_if_needed(|users| change(users.to_mut()))
    }

    /// Like [`Acl::change`]; the function may leave the users as they are.
    pub(crate) fn change_if_needed<T, E>(
        &self,
        change: impl FnOnce(&mut Cow<'_, Users>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _changing = self.change.lock();
        let current = self.users.load();
        let mut users = Cow::Borrowed(&**current);
        let result = change(&mut users)?;
        if let Cow::Owned(users) = users {
            self.users.store(Arc::new(users));
            self.generation.0.fetch_add(2, Ordering::Release);
        }
        Ok(result)
    }
}

impl Acl {
    /// Replaces all users when the server starts.
    pub(crate) fn replace(&self, users: Users) {
        let replaced: Result<(), std::convert::Infallible> = self.change(|old| {
            *old = users;
            Ok(())
        });
        let Ok(()) = replaced;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        Users::new(User::new(DEFAULT_USER.as_bytes(), true))
    }

    #[test]
    fn a_user_keeps_its_number_until_it_is_removed() {
        let mut users = users();
        users.insert(User::new(b"a", false)).unwrap();
        let first = users.get(b"a").unwrap().number;
        users.insert(User::new(b"a", true)).unwrap();
        assert_eq!(users.get(b"a").unwrap().number, first);
        assert!(users.remove(b"a") && !users.remove(b"a"));
        users.insert(User::new(b"a", false)).unwrap();
        assert_ne!(users.get(b"a").unwrap().number, first);
    }

    #[test]
    fn successors_are_other_users_except_the_default_one() {
        let mut old = users();
        old.insert(User::new(b"a", false)).unwrap();
        let mut new = Users::successors_of(&old, User::new(DEFAULT_USER.as_bytes(), false));
        new.insert(User::new(b"a", false)).unwrap();
        assert_eq!(new.default_user().number, old.default_user().number);
        assert_ne!(new.get(b"a").unwrap().number, old.get(b"a").unwrap().number);
        let numbers: std::collections::BTreeSet<u64> = new.iter().map(|user| user.number).collect();
        assert_eq!(numbers.len(), 2);
    }

    #[test]
    fn users_are_limited_in_number_and_bytes() {
        let mut all = users();
        for index in 1..USERS_MAX {
            all.insert(User::new(format!("user{index}").as_bytes(), false)).unwrap();
        }
        assert_eq!(all.insert(User::new(b"another", false)), Err(TooManyUsers));
        let mut all = users();
        all.insert(User::new(&vec![b'a'; USERS_BYTES_MAX - 7], false)).unwrap();
        assert_eq!(all.insert(User::new(b"b", false)), Err(TooManyUsers));
        assert!(all.remove(b"b"));
        assert_eq!(all.bytes, USERS_BYTES_MAX);
    }

    #[test]
    fn a_failed_change_changes_nothing() {
        let acl = Acl::new(users());
        let before = acl.generation();
        let failed: Result<(), ()> = acl.change(|users| {
            users.insert(User::new(b"a", false)).unwrap();
            Err(())
        });
        assert_eq!((failed, acl.generation()), (Err(()), before));
        assert!(acl.users().get(b"a").is_none());
        acl.change(|users| users.insert(User::new(b"a", false))).unwrap();
        assert!(acl.users().get(b"a").is_some() && acl.generation() > before);
    }
}
