//! The check of every request: whether its session's user may run it.

use base::time::Now;
use wire::resp::Args;

use super::check::{Denied, check};
use crate::commands::client;
use crate::commands::command::{Done, Flags};
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::commands::registry::REGISTRY;
use crate::commands::session::Session;
use crate::config::Settings;
use crate::engine::acl::{Place, Reason, Refused, Standing, Users};
use crate::engine::context::ReactorContext;
use crate::engine::protection;
use crate::engine::requests::RequestId;
use crate::engine::server_state::ServerState;

const NOT_AUTHENTICATED: Fail = Fail::text("NOAUTH Authentication required.");

impl ReactorContext<'_> {
    /// Checks a request of a session that has not logged in, or whose user may not do everything,
    /// or that has not seen the last change of users: see
    /// [`is_free_at`](crate::engine::acl::Identity::is_free_at).
    // Source: Redis 7.2 `server.c`, `processCommand`
    #[inline(never)]
    pub(crate) fn check_access(
        &self,
        session: &mut Session,
        id: RequestId,
        args: Args<'_>,
    ) -> Done {
        let command = REGISTRY.entry(id).command;
        if session.follow_users(&self.shared.acl) == Standing::Ended {
            session.closing = true;
            return Err(NOT_AUTHENTICATED);
        }
        if !session.identity.is_authenticated() && !command.flags.has(Flags::NO_AUTH) {
            return Err(NOT_AUTHENTICATED);
        }
        if session.transaction.is_some() && command.flags.has(Flags::NO_MULTI) {
            return Ok(()); // rejected when it is queued
        }
        check(session.identity.user(), id, args).map_err(|denied| {
            let index = self.reactor.index;
            let place = place(session);
            note_denied(self.shared, session, index, self.now, denied, place, id, args);
            let text = denied.text(session.identity.user(), REGISTRY.entry(id));
            Fail::Quoting([b"NOPERM ", &*text].concat())
        })
    }

    /// Records a wrong password in ACL LOG. `object`: the command as the client wrote it.
    pub(crate) fn note_failed_login(&self, session: &Session, object: &[u8], user: &[u8]) {
        let refused = Refused { reason: Reason::Login, place: place(session), object, user };
        note(self.shared, session, self.reactor.index, self.now, refused);
    }
}

/// Like [`ReactorContext::note_failed_login`], in a command.
pub(in crate::commands) fn note_failed_login(cx: &CommandContext<'_>, command: &[u8], user: &[u8]) {
    let place = if cx.in_exec { Place::Transaction } else { place(cx.session) };
    let refused = Refused { reason: Reason::Login, place, object: command, user };
    note(cx.shared, cx.session, cx.reactor.index, cx.now, refused);
}

/// Checks a command of a transaction again, when EXEC runs it.
// Source: Redis 7.2 `multi.c`, `execCommand`
pub(in crate::commands) fn recheck(
    cx: &mut CommandContext<'_>,
    id: RequestId,
    args: Args<'_>,
) -> Done {
    if cx.session.identity.is_free_at(cx.shared.acl.generation()) {
        return Ok(());
    }
    if cx.session.follow_users(&cx.shared.acl) == Standing::Ended {
        cx.session.closing = true;
    }
    let reason = if cx.session.identity.is_authenticated() {
        let Err(denied) = check(cx.session.identity.user(), id, args) else { return Ok(()) };
        let (index, place) = (cx.reactor.index, Place::Transaction);
        note_denied(cx.shared, cx.session, index, cx.now, denied, place, id, args);
        match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        }
    } else {
        "no permission"
    };
    Err(Fail::owned(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
         call. This command is no longer allowed for the following reason: {reason}"
    )))
}

/// Checks a command of a script.
// Source: Redis 7.2 `script.c`, `scriptVerifyACL`
pub(in crate::commands) fn check_in_script(
    cx: &mut CommandContext<'_>,
    id: RequestId,
    args: Args<'_>,
) -> Done {
    if cx.session.identity.is_free_at(cx.shared.acl.generation()) {
        return Ok(());
    }
    let user = cx.session.identity.user();
    check(user, id, args).map_err(|denied| {
        let (index, place) = (cx.reactor.index, Place::Script);
        note_denied(cx.shared, cx.session, index, cx.now, denied, place, id, args);
        let text = denied.text(user, REGISTRY.entry(id));
        Fail::Quoting([b"NOPERM ACL failure in script: ", &*text].concat())
    })
}

/// Whether the user of a script may run a command: `redis.acl_check_cmd`.
pub(in crate::commands) fn may_run(cx: &CommandContext<'_>, id: RequestId, args: Args<'_>) -> bool {
    check(cx.session.identity.user(), id, args).is_ok()
}

fn place(session: &Session) -> Place {
    if session.transaction.is_some() { Place::Transaction } else { Place::Request }
}

#[expect(clippy::too_many_arguments, reason = "of a request or of a command, in two contexts")]
#[cold]
fn note_denied(
    shared: &ServerState,
    session: &Session,
    reactor: usize,
    now: Now,
    denied: Denied,
    place: Place,
    id: RequestId,
    args: Args<'_>,
) {
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, REGISTRY.entry(id).full_name.as_bytes()),
        Denied::Key(at) => (Reason::Key, args.get(at)),
        Denied::Channel(at) => (Reason::Channel, args.get(at)),
    };
    let user = &*session.identity.user().name;
    note(shared, session, reactor, now, Refused { reason, place, object, user });
}

fn note(shared: &ServerState, session: &Session, reactor: usize, now: Now, refused: Refused<'_>) {
    let entries_max = shared.settings.load().acllog_max_len;
    let client = client::info_line(shared, session, reactor, now.mono);
    shared.refusals.lock().push(refused, client, now.unix, entries_max);
}

/// Changes the users, unless other machines could then use an address without a password. This
/// session follows at once: if the change ends it, its replies are still sent. The other sessions
/// follow in the next turns of their reactors.
pub(super) fn change_users<T>(
    cx: &mut CommandContext<'_>,
    change: impl FnOnce(&mut Users, &Settings) -> Result<T, Fail>,
) -> Result<T, Fail> {
    let shared = cx.shared;
    let changed = shared.acl.change(|users| {
        let settings = shared.settings.load();
        let result = change(users, &settings)?;
        protection::check(&settings, users)
            .map_err(|conflict| Fail::owned(format!("ERR {}", conflict.reason)))?;
        Ok::<_, Fail>(result)
    })?;
    if cx.session.follow_users(&shared.acl) == Standing::Ended {
        cx.session.closing = true;
    }
    wake_reactors(shared);
    Ok(changed)
}

/// Makes all reactors end the sessions whose users were deleted.
pub(crate) fn wake_reactors(shared: &ServerState) {
    for index in 0..shared.published.len() {
        shared.links().wake(index);
    }
}
