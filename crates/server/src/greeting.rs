//! What a person at a terminal sees once the server is ready: commands for each protocol.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::{Endpoint, Settings};
use crate::engine::acl::Users;
use crate::protocol::ClientProtocol;

/// Returns the text. `addresses`: of the listeners, in the order of the endpoints.
// Writing to a `String` cannot fail, hence `let _`.
pub(crate) fn greeting(settings: &Settings, users: &Users, addresses: &[SocketAddr]) -> String {
    let needs_password = |protocol| !users.admit_without_password(settings.authority(protocol));
    let open: Vec<(Endpoint, SocketAddr)> = settings
        .endpoints()
        .zip(addresses)
        .filter(|(endpoint, _)| !endpoint.is_admin && endpoint.node.is_none())
        .map(|(endpoint, address)| (endpoint, reachable(*address)))
        .collect();
    // An address without TLS needs the shorter command.
    let of = |protocol| {
        let mut all = open.iter().filter(|(endpoint, _)| endpoint.protocol == protocol);
        let first = all.clone().find(|(endpoint, _)| !endpoint.is_tls);
        first.or_else(|| all.next()).map(|(endpoint, address)| (endpoint.is_tls, *address))
    };
    let mut text = String::from("\nMyriad is ready. In another terminal:\n");
    let mut tools = Vec::new();
    // The first commands work without further tools.
    if let Some((is_tls, address)) = of(ClientProtocol::Http) {
        let url = http_url(is_tls, address);
        let user = if needs_password(ClientProtocol::Http) { " -u default" } else { "" };
        let _ = writeln!(text, "  curl{user} {url}/set/greeting/hello");
        let _ = writeln!(text, "  curl{user} {url}/get/greeting");
    }
    if let Some((is_tls, address)) = of(ClientProtocol::Resp) {
        tools.push("redis-cli: apt install redis-tools");
        let host = match address.ip() {
            IpAddr::V4(Ipv4Addr::LOCALHOST) => String::new(),
            ip => format!(" -h {ip}"),
        };
        let tls = if is_tls { " --tls" } else { "" };
        let password = if needs_password(ClientProtocol::Resp) { " --askpass" } else { "" };
        let port = address.port();
        let _ = writeln!(text, "  redis-cli{host} -p {port}{tls}{password} SET greeting hello");
    }
    if let Some((is_tls, address)) = of(ClientProtocol::Cql) {
        tools.push("cqlsh: pipx install cqlsh");
        let tls = if is_tls { " --ssl" } else { "" };
        let user = if needs_password(ClientProtocol::Cql) { " -u cassandra" } else { "" };
        let (host, port) = (address.ip(), address.port());
        let _ = writeln!(text, "  cqlsh {host} {port}{tls}{user} -e 'DESCRIBE KEYSPACES'");
    }
    if !tools.is_empty() {
        let _ = writeln!(text, "  ({})", tools.join("; "));
    }
    if let Some((is_tls, address)) = of(ClientProtocol::Http) {
        let _ = writeln!(text, "Console: {}/", http_url(is_tls, address));
    }
    let options = [
        (ClientProtocol::Cql, "--cql 127.0.0.1:9042"),
        (ClientProtocol::Http, "--http 127.0.0.1:8080"),
    ];
    let absent: Vec<&str> = options
        .into_iter()
        .filter(|(protocol, _)| of(*protocol).is_none())
        .map(|(_, option)| option)
        .collect();
    if !absent.is_empty() {
        let _ = writeln!(text, "More protocols: {}", absent.join(" "));
    }
    text += "Stop it with Ctrl-C; what was acknowledged is on disk.\n\n";
    text
}

fn http_url(is_tls: bool, address: SocketAddr) -> String {
    format!("{}://{address}", if is_tls { "https" } else { "http" })
}

/// The address at which a program on this machine reaches the listener.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Password;
    use crate::engine::acl::{DEFAULT_USER, User};

    fn check(change: impl FnOnce(&mut Settings), expected: &[&str]) {
        let mut settings = Settings::default();
        change(&mut settings);
        let addresses: Vec<SocketAddr> =
            settings.endpoints().filter_map(|endpoint| endpoint.place.address()).collect();
        let mut default = User::new(DEFAULT_USER.as_bytes(), true);
        default.is_on = true;
        (default.root.has_all_keys, default.root.has_all_commands) = (true, true);
        let mut users = Users::new(default);
        users.set_default_passwords(&settings.passwords()).unwrap();
        let text = greeting(&settings, &users, &addresses);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let (first, last) = (lines[0], lines[lines.len() - 1]);
        assert_eq!(first, "Myriad is ready. In another terminal:");
        assert_eq!(last, "Stop it with Ctrl-C; what was acknowledged is on disk.");
        assert_eq!(&lines[1..lines.len() - 1], expected);
    }

    fn address(text: &str) -> Vec<SocketAddr> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn each_protocol_has_a_command() {
        check(
            |settings| {
                settings.cql = address("127.0.0.1:9042");
                settings.http = address("0.0.0.0:8080");
                settings.admin = address("127.0.0.1:6400");
            },
            &[
                "  curl http://127.0.0.1:8080/set/greeting/hello",
                "  curl http://127.0.0.1:8080/get/greeting",
                "  redis-cli -p 6379 SET greeting hello",
                "  cqlsh 127.0.0.1 9042 -e 'DESCRIBE KEYSPACES'",
                "  (redis-cli: apt install redis-tools; cqlsh: pipx install cqlsh)",
                "Console: http://127.0.0.1:8080/",
            ],
        );
        check(
            |_| {},
            &[
                "  redis-cli -p 6379 SET greeting hello",
                "  (redis-cli: apt install redis-tools)",
                "More protocols: --cql 127.0.0.1:9042 --http 127.0.0.1:8080",
            ],
        );
    }

    #[test]
    fn passwords_tls_and_other_hosts_are_in_the_commands() {
        check(
            |settings| {
                settings.requirepass = Password("secret".to_owned());
                settings.resp.clear();
                settings.resp_tls = address("[::]:6380");
                settings.cql_tls = address("10.0.0.1:9142");
                settings.http_tls = address("127.0.0.1:8443");
            },
            &[
                "  curl -u default https://127.0.0.1:8443/set/greeting/hello",
                "  curl -u default https://127.0.0.1:8443/get/greeting",
                "  redis-cli -h ::1 -p 6380 --tls --askpass SET greeting hello",
                "  cqlsh 10.0.0.1 9142 --ssl -u cassandra -e 'DESCRIBE KEYSPACES'",
                "  (redis-cli: apt install redis-tools; cqlsh: pipx install cqlsh)",
                "Console: https://127.0.0.1:8443/",
            ],
        );
    }
}
