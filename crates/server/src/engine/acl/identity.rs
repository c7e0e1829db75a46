//! The user of a session.

use std::sync::Arc;

use super::user::User;
use super::users::Acl;
use crate::config::Authority;

/// The user of a session.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The default user until the session logs in.
    user: Arc<User>,
    /// 0: the session must log in. Otherwise the generation in which `user` was looked up, plus 1
    /// if the user is restricted: so one comparison per request shows that nothing needs to be
    /// checked.
    access: u64,
}

/// What a change of users means for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Valid,
    /// The user was deleted, or lost the right to something that the session has begun: the
    /// session must end.
    Ended,
}

impl Standing {
    pub(crate) fn valid_if(may_continue: bool) -> Standing {
        if may_continue { Standing::Valid } else { Standing::Ended }
    }
}

/// What [`Identity::refresh`] has found.
#[derive(Debug)]
pub(crate) enum Refreshed {
    /// Nothing that concerns a session that has logged in.
    Same,
    /// The user was deleted.
    Gone,
    /// The user may have other rules than before: these.
    Changed(Arc<User>),
}

impl Identity {
    /// The identity of a new connection.
    // Source: Redis 7.2 `networking.c`, `clientSetDefaultAuth`
    pub(crate) fn newcomer(acl: &Acl) -> Identity {
        let generation = acl.generation();
        let users = acl.users();
        let user = Arc::clone(users.default_user());
        let is_open = users.admit_without_password(Authority::Users);
        let access = if is_open { access(&user, generation) } else { 0 };
        Identity { user, access }
    }

    /// The identity of a session that has shown its user's password.
    pub(crate) fn of(user: Arc<User>, generation: u64) -> Identity {
        let access = access(&user, generation);
        Identity { user, access }
    }

    /// Checks a name and a password.
    pub(crate) fn log_in(acl: &Acl, name: &[u8], password: &[u8]) -> Option<Identity> {
        let generation = acl.generation();
        let users = acl.users();
        let user = users.get(name).filter(|user| user.accepts(password))?;
        Some(Identity::of(Arc::clone(user), generation))
    }

    /// The user that a verified certificate names.
    // Source: Valkey 8.1 `tls.c`, `tlsGetPeerUser`
    pub(crate) fn certified(acl: &Acl, name: &[u8]) -> Option<Identity> {
        let generation = acl.generation();
        let users = acl.users();
        let user = users.get(name).filter(|user| user.is_on)?;
        Some(Identity::of(Arc::clone(user), generation))
    }

    /// A user that may do everything, in the first generation.
    #[cfg(test)]
    pub(crate) fn anyone() -> Identity {
        let mut user = User::new(super::DEFAULT_USER.as_bytes(), true);
        user.root.has_all_keys = true;
        user.root.has_all_commands = true;
        user.seal(0);
        Identity::of(Arc::new(user), 2)
    }

    pub(crate) fn user(&self) -> &Arc<User> {
        &self.user
    }

    #[inline]
    pub(crate) fn is_authenticated(&self) -> bool {
        self.access != 0
    }

    /// Whether the session is authenticated, and its user may do everything. False after every
    /// change of users until [`Identity::refresh`].
    #[inline]
    pub(crate) fn is_free_at(&self, generation: u64) -> bool {
        self.access == generation
    }

    /// Takes the present rules of the user, if users have changed since the last call.
    pub(crate) fn refresh(&mut self, acl: &Acl) -> Refreshed {
        let generation = acl.generation();
        if self.access & !1 == generation {
            return Refreshed::Same;
        }
        let users = acl.users();
        if !self.is_authenticated() {
            *self = Identity::newcomer(acl);
            return Refreshed::Same;
        }
        let is_same = |user: &&Arc<User>| user.number == self.user.number;
        let Some(user) = users.get(&self.user.name).filter(is_same) else {
            *self = Identity { user: Arc::clone(users.default_user()), access: 0 };
            return Refreshed::Gone;
        };
        let next = Identity::of(Arc::clone(user), generation);
        Refreshed::Changed(std::mem::replace(self, next).user)
    }

    /// Takes the present rules of the user of a session that needs all rights.
    pub(crate) fn follow_unrestricted(&mut self, acl: &Acl) -> Standing {
        self.refresh(acl);
        Standing::valid_if(self.is_authenticated() && self.user.is_unrestricted())
    }
}

fn access(user: &User, generation: u64) -> u64 {
    generation | u64::from(!user.is_unrestricted())
}
