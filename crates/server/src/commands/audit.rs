//! The audit log: one event for each administrative command, whether it ran or was refused.

use std::borrow::Cow;

use wire::resp::Args;

use super::command::{Command, Flags};
use super::fail::Fail;
use super::registry::REGISTRY;
use super::session::Session;
use crate::config::Settings;
use crate::engine::requests::RequestId;
use crate::engine::secret::Shown;

/// Arguments of a command that its event contains.
const ARGUMENTS_MAX: usize = 16;

/// Bytes of one argument that the event contains.
const ARGUMENT_BYTES_MAX: usize = 128;

/// Whether executions of the command are audited.
pub(super) fn is_audited(command: &Command) -> bool {
    command.flags.has(Flags::ADMIN) || command.categories().contains(&"@dangerous")
}

/// Logs a command with its outcome.
#[cold]
pub(super) fn log(
    settings: &Settings,
    session: &Session,
    id: RequestId,
    args: Args<'_>,
    fail: Option<&Fail>,
) {
    let entry = REGISTRY.entry(id);
    let words = 1 + usize::from(entry.parent.is_some());
    let user = String::from_utf8_lossy(&session.identity.user().name);
    let address = session.details.remote.text(settings).unwrap_or_default();
    let arguments = arguments(entry.command.shown(args), words);
    let outcome = outcome(entry.command, args, fail);
    let command = &entry.full_name;
    tracing::info!(%user, address, command, arguments, outcome, "administrative command");
}

/// The outcome of a command, without the text of an error that may quote a password.
fn outcome(command: &Command, args: Args<'_>, fail: Option<&Fail>) -> String {
    let Some(fail) = fail else { return "done".to_owned() };
    let has_secret = (0..args.len()).any(|at| (command.is_secret)(args, at));
    let text = fail.to_string();
    match (fail, text.split_once(' ')) {
        (Fail::Text(Cow::Owned(_)) | Fail::Quoting(_), Some((code, _))) if has_secret => {
            format!("{code} (redacted)")
        }
        _ => text,
    }
}

/// The arguments without passwords, on one line.
fn arguments(request: Shown<'_>, words: usize) -> String {
    let mut text = String::new();
    for at in (words..request.len()).take(ARGUMENTS_MAX) {
        if !text.is_empty() {
            text.push(' ');
        }
        let argument = request.get(at);
        let shown = &argument[..argument.len().min(ARGUMENT_BYTES_MAX)];
        text.extend(shown.escape_ascii().map(char::from));
        if shown.len() < argument.len() {
            text.push_str("...");
        }
    }
    let more = request.len().saturating_sub(words + ARGUMENTS_MAX);
    if more > 0 {
        text.push_str(" ... (");
        text.push_str(&more.to_string());
        text.push_str(" more)");
    }
    text
}

#[cfg(test)]
mod tests {
    use wire::resp::OwnedArgs;

    use super::*;

    #[track_caller]
    fn check(request: &[&str], expected: &str) {
        let args: OwnedArgs = request.iter().copied().collect();
        let id = REGISTRY.find_request(args.as_args()).unwrap();
        let entry = REGISTRY.entry(id);
        let words = 1 + usize::from(entry.parent.is_some());
        assert_eq!(arguments(entry.command.shown(args.as_args()), words), expected);
    }

    #[test]
    fn arguments_are_short_and_without_passwords() {
        check(&["config", "set", "hz", "10"], "hz 10");
        check(&["config", "set", "requirepass", "secret"], "requirepass (redacted)");
        check(&["config", "set", "MasterAuth", "secret"], "MasterAuth (redacted)");
        check(&["acl", "setuser", "app", ">secret"], "(redacted) (redacted)");
        check(&["flushall"], "");
        check(&["keys", "a\nb\u{e4}"], "a\\nb\\xc3\\xa4");
        check(&["keys", &"x".repeat(200)], &format!("{}...", "x".repeat(128)));
        let many: Vec<&str> = ["acl", "deluser"].into_iter().chain(["a"; 20]).collect();
        check(&many, &format!("{} ... (4 more)", ["a"; 16].join(" ")));
    }

    #[test]
    fn an_error_that_quotes_a_password_is_not_logged() {
        let check = |request: &[&str], fail: Fail, expected: &str| {
            let args: OwnedArgs = request.iter().copied().collect();
            let id = REGISTRY.find_request(args.as_args()).unwrap();
            let found = outcome(REGISTRY.entry(id).command, args.as_args(), Some(&fail));
            assert_eq!(found, expected);
        };
        let quoting = || Fail::quoting("ERR Error in ACL SETUSER modifier '", b"pw", "'");
        check(&["acl", "setuser", "app", "pw"], quoting(), "ERR (redacted)");
        check(&["acl", "deluser", "pw"], quoting(), "ERR Error in ACL SETUSER modifier 'pw'");
        check(&["acl", "setuser", "app", "pw"], Fail::text("ERR no"), "ERR no");
    }

    #[test]
    fn administrative_and_dangerous_commands_are_audited() {
        let is_audited =
            |name: &str| REGISTRY.entry(REGISTRY.find_full(name.as_bytes()).unwrap()).is_audited;
        for name in ["acl|setuser", "config|set", "shutdown", "flushall", "client|kill", "debug"] {
            assert!(is_audited(name), "{name}");
        }
        for name in ["get", "set", "acl|whoami", "client|list", "client|setname", "ping", "auth"] {
            assert_eq!(is_audited(name), name == "client|list", "{name}");
        }
    }
}
