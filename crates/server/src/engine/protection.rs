//! `protected-mode`: no address that other machines can reach may be used without a password.

use options::Conflict;

use super::acl::Users;
use crate::config::{Authority, Endpoint, Settings};

/// Checks the settings together with the users: either may open an address. Every change of one of
/// them calls this while [`Acl::change`](super::acl::Acl::change) excludes changes of the other.
pub(crate) fn check(settings: &Settings, users: &Users) -> Result<(), Conflict> {
    let is_open = |endpoint: &Endpoint| {
        !endpoint.place.is_local()
            && users.admit_without_password(settings.authority(endpoint.protocol))
    };
    match settings.endpoints().find(is_open) {
        Some(endpoint) if settings.protected_mode => {
            Err(Conflict::new(endpoint.option, reason(&endpoint, settings)))
        }
        _ => Ok(()),
    }
}

fn reason(Endpoint { place, protocol, .. }: &Endpoint, settings: &Settings) -> String {
    let start = format!("{place} can be reached from other machines");
    let end = "listen on 127.0.0.1 only, or set protected-mode to no";
    if settings.authority(*protocol) == Authority::None {
        return format!(
            "{start} without authentication: set cql-authenticator to requirepass or password, \
             {end}"
        );
    }
    if settings.aclfile.as_os_str().is_empty() {
        return format!("{start} and no password is set: set requirepass, {end}");
    }
    let file = settings.aclfile.display();
    format!("{start} and the default user of {file} needs no password: give it one, {end}")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::config::{CqlAuthenticator, Password};
    use crate::engine::acl::{DEFAULT_USER, User};

    /// A field of the settings.
    type List = fn(&mut Settings) -> &mut Vec<SocketAddr>;

    fn users(settings: &Settings) -> Users {
        let mut user = User::new(DEFAULT_USER.as_bytes(), true);
        (user.is_on, user.root.has_all_keys, user.root.has_all_commands) = (true, true, true);
        let mut users = Users::new(user);
        users.set_default_passwords(&settings.passwords()).unwrap();
        users
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[track_caller]
    fn check_settings(change: impl FnOnce(&mut Settings), expected: Option<(&str, &str)>) {
        let mut settings = Settings::default();
        change(&mut settings);
        match (check(&settings, &users(&settings)), expected) {
            (Ok(()), None) => {}
            (Err(found), Some((option, part))) => {
                assert_eq!(found.option, option);
                assert!(found.reason.contains(part), "{}", found.reason);
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn an_open_address_needs_a_password() {
        let open = addresses(&["127.0.0.1:6379", "0.0.0.0:6379"]);
        check_settings(|_| {}, None);
        check_settings(|s| s.resp.clone_from(&open), Some(("resp", "0.0.0.0:6379 can be reached")));
        check_settings(
            |s| {
                s.resp.clone_from(&open);
                s.requirepass = Password("secret".to_owned());
            },
            None,
        );
        check_settings(
            |s| {
                s.resp.clone_from(&open);
                s.protected_mode = false;
            },
            None,
        );
        let set: [(&str, List); 4] = [
            ("resp-tls", |s| &mut s.resp_tls),
            ("http", |s| &mut s.http),
            ("cql-tls", |s| &mut s.cql_tls),
            ("admin", |s| &mut s.admin),
        ];
        for (option, list) in set {
            check_settings(|s| list(s).clone_from(&open), Some((option, "can be reached")));
        }
        check_settings(|s| s.resp = addresses(&["[::1]:6379", "127.3.2.1:6379"]), None);
        check_settings(|s| s.resp = addresses(&["[::]:6379"]), Some(("resp", "[::]:6379")));
    }

    #[test]
    fn cql_asks_what_its_authenticator_asks() {
        let with = |authenticator, password: &'static str| {
            move |s: &mut Settings| {
                s.cql = addresses(&["0.0.0.0:9042"]);
                s.cql_authenticator = authenticator;
                s.requirepass = Password(password.to_owned());
            }
        };
        let open = Some(("cql", "0.0.0.0:9042 can be reached from other machines"));
        check_settings(with(CqlAuthenticator::Requirepass, ""), open);
        check_settings(with(CqlAuthenticator::Requirepass, "secret"), None);
        check_settings(with(CqlAuthenticator::AllowAll, "secret"), open);
        check_settings(with(CqlAuthenticator::Password, ""), None);
    }
}
