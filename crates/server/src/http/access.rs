//! Access control: the server's password serves as a token, and cross-site requests are refused.

use base::address::is_local_host;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wire::http::Request;

use super::target;
use crate::commands::USER;
use crate::config::Settings;
use crate::engine::secret::is_same_secret;

/// Reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request has no token.
    Token,
    /// The token is wrong; the response is delayed.
    WrongToken,
    /// A page of another site caused the request.
    CrossSite,
}

/// Checks whether the request may be served. `is_command`: its path is a command, which may write.
pub(super) fn check(
    request: &Request<'_>,
    settings: &Settings,
    is_command: bool,
) -> Result<(), Refusal> {
    if is_cross_site(request, settings) || (is_command && lacks_origin(request)) {
        return Err(Refusal::CrossSite);
    }
    let password = &settings.requirepass;
    let token = target::parameter(request.query(), "_token");
    let is_known = !password.is_set()
        || header_shows(request, password.0.as_bytes())
        || token.as_ref().is_some_and(|token| is_same_secret(token, password.0.as_bytes()));
    if is_known {
        Ok(())
    } else if token.is_some() || request.header("authorization").is_some() {
        Err(Refusal::WrongToken)
    } else {
        Err(Refusal::Token)
    }
}

/// Whether the header contains the password: `Bearer <password>`, or `Basic` with the user
/// `default`, which browsers prompt for.
// Source: RFC 6750 2.1 (Bearer), RFC 7617 2 (Basic), RFC 9110 11.4 (the scheme in any case)
fn header_shows(request: &Request<'_>, password: &[u8]) -> bool {
    let Some(value) = request.header("authorization") else { return false };
    let Some(space) = value.iter().position(|byte| *byte == b' ') else { return false };
    let (scheme, credentials) = (&value[..space], value[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return is_same_secret(credentials, password);
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return false;
    }
    let Ok(pair) = STANDARD.decode(credentials) else { return false };
    let Some(colon) = pair.iter().position(|byte| *byte == b':') else { return false };
    pair[..colon] == *USER.as_bytes() && is_same_secret(&pair[colon + 1..], password)
}

/// Whether a page of another site caused the request. Any page can make a browser send requests,
/// also to addresses of the browser's machine, and a GET can write here.
// Source: Fetch Standard 3.2 (Origin); Fetch Metadata Request Headers 2.4 (Sec-Fetch-Site)
fn is_cross_site(request: &Request<'_>, settings: &Settings) -> bool {
    let host = request.host().unwrap_or_default();
    if let Some(origin) = request.header("origin") {
        let authority =
            origin.windows(3).position(|part| part == b"://").map(|at| &origin[at + 3..]);
        if authority.is_none_or(|authority| !authority.eq_ignore_ascii_case(host)) {
            return true;
        }
    }
    if let Some(site) = request.header("sec-fetch-site")
        && site != b"same-origin"
        && site != b"none"
    {
        return true;
    }
    // An attacker can make a host name resolve to this machine (DNS rebinding); pages under that
    // name are then same-origin with the server. Without a password, accept only IP addresses and
    // local host names.
    settings.protected_mode && !settings.requirepass.is_set() && !is_local_host(host)
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
    use crate::config::Password;

    #[track_caller]
    fn check_lines(password: &str, target: &str, lines: &str, expected: Result<(), Refusal>) {
        check_access(password, target, lines, true, expected);
    }

    #[track_caller]
    fn check_access(
        password: &str,
        target: &str,
        lines: &str,
        is_command: bool,
        expected: Result<(), Refusal>,
    ) {
        let settings =
            Settings { requirepass: Password(password.to_owned()), ..Settings::default() };
        let text = format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(text.as_bytes(), &Limits::DEFAULT, 1, &mut batch);
        let request = batch.get(0, text.as_bytes());
        assert_eq!(check(&request, &settings, is_command), expected, "{target} {lines}");
    }

    #[test]
    fn only_the_password_is_a_valid_token() {
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
    fn cross_site_requests_are_refused() {
        let strange = Err(Refusal::CrossSite);
        for host in ["localhost", "LocalHost:80", "127.0.0.1:8080", "[::1]:80", "[::1]", ""] {
            check_lines("", "/", &format!("Host: {host}\r\n"), Ok(()));
        }
        for host in ["evil.example", "evil.example:80", "1.2.3.4.example", "0.0.0.0:80", "[::]"] {
            check_lines("", "/", &format!("Host: {host}\r\n"), strange);
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
        let lines = "Host: 10.0.0.1:80\r\nUser-Agent: Mozilla/5.0\r\n";
        check_access("p", "/?_token=p", lines, false, Ok(()));
    }
}
