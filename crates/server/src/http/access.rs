//! Access control: whose token a request has, and cross-site requests are refused.

use base::address::is_local_host;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wire::http::Request;

use super::target;
use crate::config::Settings;
use crate::engine::acl::{Acl, Identity, User, Users};
use crate::protocol::ClientProtocol;

/// Reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request has no token.
    Token,
    /// The token is wrong; the response is delayed.
    WrongToken,
    /// A page of another site caused the request.
    CrossSite,
    /// The request names a host that may be of another site.
    HostName,
    /// The user of the token may not use the route.
    NotPermitted,
}

/// Checks whether the request may be served, and returns the user that its token names; `None`: the
/// default user, which needs no password. `is_command`: its path is a command, which may write.
pub(super) fn check(
    request: &Request<'_>,
    acl: &Acl,
    settings: &Settings,
    is_command: bool,
) -> Result<Option<Identity>, Refusal> {
    let users = acl.users();
    let default = users.default_user();
    let is_open = users.admit_without_password(settings.authority(ClientProtocol::Http));
    let token = target::parameter(request.query(), "_token");
    let header = request.header("authorization");
    let shown = header.map_or(Shown::Nothing, of_header).or(|| match &token {
        Some(token) => of_token(token),
        None => Shown::Nothing,
    });
    let login = match &shown {
        Shown::Pair { user, password } => Identity::log_in(acl, user, password),
        Shown::Token(token) => token_user(acl, default, token),
        Shown::Nothing => None,
    };
    let needs_no_secret =
        is_open || login.as_ref().is_some_and(|login| login.user().takes_any_password);
    if is_cross_site(request) || (is_command && lacks_origin(request)) {
        return Err(Refusal::CrossSite);
    }
    // An attacker can make a host name resolve to this machine (DNS rebinding); pages under that
    // name are then same-origin with the server. Without a password, accept only IP addresses and
    // local host names.
    let must_be_local = settings.protected_mode && needs_no_secret;
    if must_be_local && !is_local_host(request.host().unwrap_or_default()) {
        return Err(Refusal::HostName);
    }
    if login.is_some() {
        return Ok(login);
    }
    match shown {
        // A name must be right even if no password is needed: its user may have fewer permissions.
        Shown::Token(token) if is_open && !names_user(&users, &token) => Ok(None),
        Shown::Nothing if is_open => Ok(None),
        Shown::Nothing if header.is_none() => Err(Refusal::Token),
        Shown::Nothing | Shown::Pair { .. } | Shown::Token(_) => Err(Refusal::WrongToken),
    }
}

/// What a request shows of its client.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shown {
    Nothing,
    /// `Basic`: a user with its password, which browsers prompt for.
    Pair {
        user: Vec<u8>,
        password: Vec<u8>,
    },
    /// `Bearer`, or `_token`: the password of the default user, or `user:password`.
    Token(Vec<u8>),
}

impl Shown {
    fn or(self, other: impl FnOnce() -> Shown) -> Shown {
        if self == Shown::Nothing { other() } else { self }
    }
}

fn of_token(token: &[u8]) -> Shown {
    Shown::Token(token.to_vec())
}

// Source: RFC 6750 2.1 (Bearer), RFC 7617 2 (Basic), RFC 9110 11.4 (the scheme in any case)
fn of_header(value: &[u8]) -> Shown {
    let Some(space) = value.iter().position(|byte| *byte == b' ') else { return Shown::Nothing };
    let (scheme, credentials) = (&value[..space], value[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return of_token(credentials);
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return Shown::Nothing;
    }
    let Ok(pair) = STANDARD.decode(credentials) else { return Shown::Nothing };
    let Some((user, password)) = split_pair(&pair) else { return Shown::Nothing };
    Shown::Pair { user: user.to_vec(), password: password.to_vec() }
}

fn split_pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some((&pair[..colon], &pair[colon + 1..]))
}

/// The user of a token. The password of the default user may contain a colon.
fn token_user(acl: &Acl, default: &User, token: &[u8]) -> Option<Identity> {
    if !default.takes_any_password && default.accepts(token) {
        return Identity::log_in(acl, &default.name, token);
    }
    let (user, password) = split_pair(token)?;
    Identity::log_in(acl, user, password)
}

/// Whether a token begins with the name of a user.
fn names_user(users: &Users, token: &[u8]) -> bool {
    split_pair(token).is_some_and(|(user, _)| users.get(user).is_some())
}

/// Whether a page of another site caused the request. Any page can make a browser send requests,
/// also to addresses of the browser's machine, and a GET can write here.
// Source: Fetch Standard 3.2 (Origin); Fetch Metadata Request Headers 2.4 (Sec-Fetch-Site)
fn is_cross_site(request: &Request<'_>) -> bool {
    let host = request.host().unwrap_or_default();
    if let Some(origin) = request.header("origin") {
        let authority =
            origin.windows(3).position(|part| part == b"://").map(|at| &origin[at + 3..]);
        if authority.is_none_or(|authority| !authority.eq_ignore_ascii_case(host)) {
            return true;
        }
    }
    let site = request.header("sec-fetch-site");
    site.is_some_and(|site| site != b"same-origin" && site != b"none")
}

/// Whether the request is from a browser but does not identify the page that caused it. Over plain
/// HTTP to another machine, browsers omit the origin of a GET. A page cannot change the User-Agent
/// header without the server's consent.
// Source: Fetch Metadata Request Headers 2 (only to potentially trustworthy URLs)
fn lacks_origin(request: &Request<'_>) -> bool {
    request.header("user-agent").is_some_and(|name| name.starts_with(b"Mozilla/"))
        && request.header("origin").is_none()
        && request.header("sec-fetch-site").is_none()
}

#[cfg(test)]
mod tests {
    use wire::http::{Limits, RequestBatch, RequestDecoder};

    use super::*;
    use crate::commands::acl::default_user;
    use crate::engine::acl::PasswordHash;

    /// The users `default`, with this password unless it is empty, and `app`, with the password
    /// `a:p`.
    fn acl(password: &str) -> Acl {
        let passwords = [password];
        let passwords = if password.is_empty() { &[][..] } else { &passwords };
        let mut users = Users::new(default_user(passwords));
        let mut app = User::new(b"app", false);
        app.is_on = true;
        app.passwords.push(PasswordHash::of(b"a:p"));
        users.insert(app).unwrap();
        Acl::new(users)
    }

    #[track_caller]
    fn check_user(password: &str, target: &str, lines: &str, expected: Result<&str, Refusal>) {
        let settings = Settings::default();
        let text = format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(text.as_bytes(), &Limits::DEFAULT, 1, &mut batch);
        let request = batch.get(0, text.as_bytes());
        let is_command = !lines.starts_with("X-Page");
        let found = check(&request, &acl(password), &settings, is_command);
        let name = |identity: Identity| String::from_utf8(identity.user().name.to_vec()).unwrap();
        let found = found.map(|identity| identity.map_or("default".to_owned(), name));
        assert_eq!(found, expected.map(str::to_owned), "{target} {lines}");
    }

    #[track_caller]
    fn check_lines(password: &str, target: &str, lines: &str, expected: Result<(), Refusal>) {
        check_user(password, target, lines, expected.map(|()| "default"));
    }

    #[test]
    fn a_token_is_the_password_of_the_default_user() {
        let wrong = Err(Refusal::WrongToken);
        let host = "Host: a\r\n";
        check_lines("p w", "/", host, Err(Refusal::Token));
        check_lines("p w", "/?_token=p+w", host, Ok(()));
        check_lines("p w", "/?_token=p", host, wrong);
        for (value, expected) in [
            ("Bearer p w", Ok(())),
            ("bearer p w", Ok(())),
            ("Bearer p", wrong),
            ("Bearer", wrong),
            ("Basic ZGVmYXVsdDpwIHc=", Ok(())),
            ("Basic b3RoZXI6cCB3", wrong),
            ("Basic !", wrong),
            ("Digest p w", wrong),
        ] {
            let lines = format!("Host: a\r\nAuthorization: {value}\r\n");
            check_lines("p w", "/", &lines, expected);
        }
    }

    #[test]
    fn a_pair_names_another_user() {
        let wrong = Err(Refusal::WrongToken);
        for password in ["", "secret"] {
            for (value, expected) in [
                ("Bearer app:a:p", Ok("app")),
                ("Bearer app:secret", wrong),
                ("Basic YXBwOmE6cA==", Ok("app")),
                ("Basic YXBwOmI=", wrong),
                ("Basic bm9ib2R5OmI=", wrong),
            ] {
                let lines = format!("Host: localhost\r\nAuthorization: {value}\r\n");
                check_user(password, "/", &lines, expected);
            }
            let host = "Host: localhost\r\n";
            check_user(password, "/?_token=app:a:p", host, Ok("app"));
            check_user(password, "/?_token=app:x", host, wrong);
        }
        // Without a password any token is the default user's, unless it names another user.
        check_user("", "/?_token=nobody:x", "Host: localhost\r\n", Ok("default"));
        check_user("x:y", "/?_token=x:y", "Host: localhost\r\n", Ok("default"));
    }

    #[test]
    fn cross_site_requests_are_refused() {
        let strange = Err(Refusal::CrossSite);
        for host in ["localhost", "LocalHost:80", "127.0.0.1:8080", "[::1]:80", "[::1]", ""] {
            check_lines("", "/", &format!("Host: {host}\r\n"), Ok(()));
        }
        for host in ["evil.example", "evil.example:80", "1.2.3.4.example", "0.0.0.0:80", "[::]"] {
            check_lines("", "/", &format!("Host: {host}\r\n"), Err(Refusal::HostName));
            check_lines("p", "/?_token=p", &format!("Host: {host}\r\n"), Ok(()));
        }
        for (line, expected) in [
            ("Origin: http://localhost:80", Ok(())),
            ("Origin: http://evil.example", strange),
            ("Origin: null", strange),
            ("Sec-Fetch-Site: same-origin", Ok(())),
            ("Sec-Fetch-Site: none", Ok(())),
            ("Sec-Fetch-Site: cross-site", strange),
            ("Sec-Fetch-Site: same-site", strange),
        ] {
            check_lines("", "/", &format!("Host: localhost:80\r\n{line}\r\n"), expected);
        }
    }

    #[test]
    fn browser_commands_of_unknown_origin_are_refused() {
        let strange = Err(Refusal::CrossSite);
        for (lines, expected) in [
            ("User-Agent: Mozilla/5.0 (X11)", strange),
            ("User-Agent: Mozilla/5.0\r\nSec-Fetch-Site: same-origin", Ok(())),
            ("User-Agent: Mozilla/5.0\r\nSec-Fetch-Site: cross-site", strange),
            ("User-Agent: Mozilla/5.0\r\nOrigin: http://10.0.0.1:80", Ok(())),
            ("User-Agent: curl/8.0", Ok(())),
            ("X: y", Ok(())),
        ] {
            let lines = format!("Host: 10.0.0.1:80\r\n{lines}\r\n");
            check_lines("p", "/set/a/b?_token=p", &lines, expected);
        }
        // Such a browser may load a page of the console, which changes nothing.
        let lines = "X-Page: 1\r\nHost: 10.0.0.1:80\r\nUser-Agent: Mozilla/5.0\r\n";
        check_lines("p", "/?_token=p", lines, Ok(()));
    }
}
