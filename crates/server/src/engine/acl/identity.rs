//! The user of a session.

use std::sync::Arc;

use super::selector::Selector;
use super::user::User;
use super::users::Acl;
use crate::engine::glob::Steps;
use crate::engine::pubsub::{Kind, Subscriptions};

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
    /// The user was deleted, or lost channels that the session is subscribed to: the session must
    /// end.
    Ended,
}

impl Identity {
    /// The identity of a new connection.
    // Source: Redis 7.2 `networking.c`, `clientSetDefaultAuth`
    pub(crate) fn newcomer(acl: &Acl) -> Identity {
        let generation = acl.generation();
        let user = Arc::clone(acl.users().default_user());
        let access = if user.is_open() { access(&user, generation) } else { 0 };
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
    pub(crate) fn refresh(&mut self, acl: &Acl, names: Option<&Subscriptions>) -> Standing {
        let generation = acl.generation();
        if self.access & !1 == generation {
            return Standing::Valid;
        }
        let users = acl.users();
        if !self.is_authenticated() {
            *self = Identity::newcomer(acl);
            return Standing::Valid;
        }
        let is_same = |user: &&Arc<User>| user.number == self.user.number;
        let Some(user) = users.get(&self.user.name).filter(is_same) else {
            *self = Identity { user: Arc::clone(users.default_user()), access: 0 };
            return Standing::Ended;
        };
        let loses = |names: &Subscriptions| {
            user.has_fewer_channels_than(&self.user) && !permits_all(user, names)
        };
        let standing = if names.is_some_and(loses) { Standing::Ended } else { Standing::Valid };
        *self = Identity::of(Arc::clone(user), generation);
        standing
    }
}

fn access(user: &User, generation: u64) -> u64 {
    generation | u64::from(!user.is_unrestricted())
}

/// Whether the user may have all subscriptions, each by one of its selectors.
fn permits_all(user: &User, names: &Subscriptions) -> bool {
    let steps = Steps::default();
    Kind::ALL.into_iter().all(|kind| {
        names.names(kind).all(|name| {
            let permits = |selector: &Selector| match kind {
                Kind::Pattern => selector.permits_channel_pattern(name),
                Kind::Channel | Kind::ShardChannel => selector.permits_channel(name, &steps),
            };
            user.all_selectors().any(permits)
        })
    })
}
