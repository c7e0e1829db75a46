//! What a request begins and that lasts: after each change of users, its user must still have the
//! right to it.
//!
//! A transaction, a blocked command and a script check their commands again when they run. Here is
//! the rest: subscriptions, MONITOR, CLIENT TRACKING, and files and streams for replicas and
//! archives. HTTP asks the same for subscriptions, and a change feed needs a user without
//! restrictions. CQL needs one, too.

use wire::resp::OwnedArgs;

use super::check::check;
use crate::commands::registry::REGISTRY;
use crate::commands::session::{Session, Tracking, TrackingMode};
use crate::engine::acl::{Acl, Identity, Refreshed, Selector, Standing, User};
use crate::engine::glob::Steps;
use crate::engine::pubsub::{Kind, Subscriptions};

impl Session {
    /// Takes the present rules of the user. The session must end if the user was deleted, or may
    /// no longer begin what the session has begun and what lasts.
    pub(crate) fn follow_users(&mut self, acl: &Acl) -> Standing {
        match self.identity.refresh(acl) {
            Refreshed::Same => Standing::Valid,
            Refreshed::Gone => Standing::Ended,
            Refreshed::Changed(old) => Standing::valid_if(self.may_continue(&old)),
        }
    }

    /// `old`: the user before the change.
    fn may_continue(&self, old: &User) -> bool {
        let user = self.identity.user();
        if user.is_unrestricted() {
            return true;
        }
        let monitors = !self.monitor || may_run(user, "monitor");
        let receives = !self.is_receiver()
            || self
                .details
                .received_by()
                .is_some_and(|id| may_run(user, &REGISTRY.entry(id).full_name));
        let tracks = self.details.tracking().is_none_or(|tracking| may_track(user, old, tracking));
        let subscribes =
            self.subscriptions.as_deref().is_none_or(|names| may_keep(user, old, names));
        monitors && receives && tracks && subscribes
    }
}

/// Takes the present rules of the user of a session that only has subscriptions.
pub(crate) fn follow_users_of_subscriber(
    identity: &mut Identity,
    acl: &Acl,
    names: Option<&Subscriptions>,
) -> Standing {
    match identity.refresh(acl) {
        Refreshed::Same => Standing::Valid,
        Refreshed::Gone => Standing::Ended,
        Refreshed::Changed(old) => {
            Standing::valid_if(names.is_none_or(|names| may_keep(identity.user(), &old, names)))
        }
    }
}

/// Whether a user may run a command, `get` or `client|list`, apart from its keys and channels.
pub(crate) fn may_run(user: &User, full_name: &str) -> bool {
    let id = REGISTRY.find_full(full_name.as_bytes()).expect("a command of the table");
    let args: OwnedArgs = full_name.split('|').collect();
    check(user, id, args.as_args()).is_ok()
}

/// Broadcasts name all keys with a prefix, the other modes keys that the client could read.
fn may_track(user: &User, old: &User, tracking: &Tracking) -> bool {
    let keeps_keys = match tracking.mode {
        TrackingMode::Broadcast => {
            tracking.prefixes.iter().all(|prefix| user.may_read_all_below(prefix))
        }
        TrackingMode::Default | TrackingMode::OptIn | TrackingMode::OptOut => {
            !user.has_fewer_keys_than(old)
        }
    };
    keeps_keys && may_run(user, "client|tracking")
}

/// Whether the user may have all subscriptions, each by one of its selectors.
fn may_keep(user: &User, old: &User, names: &Subscriptions) -> bool {
    let may_begin = Kind::ALL.into_iter().all(|kind| {
        names.count(kind) == 0
            || may_run(
                user,
                match kind {
                    Kind::Channel => "subscribe",
                    Kind::Pattern => "psubscribe",
                    Kind::ShardChannel => "ssubscribe",
                },
            )
    });
    may_begin && (!user.has_fewer_channels_than(old) || permits_all(user, names))
}

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
