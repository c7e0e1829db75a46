//! Users of the Redis protocol and of HTTP: who may run which commands on which keys and channels.
//!
//! The rules of a user are an immutable [`User`], and all users an immutable [`Users`]: a change
//! replaces them and increases the *generation*. A session compares one number per request with it
//! ([`Identity::is_free_at`]), and looks its user up again only after a change.

mod identity;
mod log;
mod selector;
mod user;
mod users;

pub(crate) use identity::{Identity, Refreshed, Standing};
pub(crate) use log::{LogEntry, Place, Reason, RefusalLog, Refused};
pub(crate) use selector::{CommandRule, CommandSet, KeyPattern, Selector};
pub(crate) use user::{PasswordHash, User};
pub(crate) use users::{Acl, DEFAULT_USER, TooManyUsers, Users};
