//! Filters of CLIENT LIST and CLIENT KILL, all of which a connection must fit.

use std::net::IpAddr;

use base::time::MonoNs;
use store::DATABASES;
use wire::resp::{Args, parse_i64_strict};

use super::rows::{self, ClientType};
use crate::commands::context::{is_option, yes_or_no};
use crate::commands::fail::{Fail, shown};
use crate::config::Settings;
use crate::engine::acl::Users;
use crate::engine::client_address::ClientAddress;
use crate::engine::client_row::ClientRow;

/// Letters that CLIENT LIST of some version shows as flags.
// Source: Valkey 9.1 documentation, "CLIENT LIST"
const FLAG_LETTERS: &[u8] = b"AbBcdeEFiIMNOPrRStTuUx";

/// The error for a bad identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdWords {
    /// Of CLIENT LIST.
    Invalid,
    /// Of CLIENT KILL.
    NotPositive,
}

#[derive(Debug, PartialEq, Eq)]
enum Test {
    /// In ascending order.
    Ids(Vec<u64>),
    Type(ClientType),
    User(Box<[u8]>),
    /// `None`: not an address, so of no connection.
    Remote(Option<ClientAddress>),
    Local(Option<ClientAddress>),
    Ip(Option<IpAddr>),
    /// The client has all of these.
    Flags(Box<[u8]>),
    Name(Box<[u8]>),
    LibraryName(Box<[u8]>),
    LibraryVersion(Box<[u8]>),
    Database(u8),
    Redirects,
    IdleSecondsMin(u64),
    AgeSecondsMin(u64),
}

impl Test {
    // Source: Redis 7.2 `networking.c`, `clientCommand`; Valkey 9.1 documentation, "CLIENT KILL"
    fn parse(
        option: &[u8],
        value: &[u8],
        users: &Users,
        settings: &Settings,
    ) -> Result<Test, Fail> {
        Ok(if is_option(option, "TYPE") {
            Test::Type(ClientType::parse(value)?)
        } else if is_option(option, "USER") {
            let user = users.get(value).map(|user| user.name.clone());
            Test::User(user.ok_or_else(|| Fail::quoting("ERR No such user '", value, "'"))?)
        } else if is_option(option, "ADDR") {
            Test::Remote(address(value, settings))
        } else if is_option(option, "LADDR") {
            Test::Local(address(value, settings))
        } else if is_option(option, "IP") {
            Test::Ip(parsed(value))
        } else if is_option(option, "FLAGS") {
            check_letters(value, FLAG_LETTERS, "flags")?;
            Test::Flags(value.into())
        } else if is_option(option, "CAPA") {
            check_letters(value, b"r", "capa")?;
            Test::Redirects
        } else if is_option(option, "NAME") {
            Test::Name(value.into())
        } else if is_option(option, "LIB-NAME") {
            Test::LibraryName(value.into())
        } else if is_option(option, "LIB-VER") {
            Test::LibraryVersion(value.into())
        } else if is_option(option, "DB") {
            let number = number(value, "DB")?;
            let database = u8::try_from(number).ok().filter(|it| usize::from(*it) < DATABASES);
            let text = format!("ERR DB number should be between 0 and {}", DATABASES - 1);
            Test::Database(database.ok_or_else(|| Fail::owned(text))?)
        } else if is_option(option, "IDLE") {
            Test::IdleSecondsMin(positive(value, "idle")?)
        } else if is_option(option, "MAXAGE") {
            Test::AgeSecondsMin(positive(value, "maxage")?)
        } else {
            return Err(Fail::Syntax);
        })
    }

    fn is_negatable(&self) -> bool {
        !matches!(self, Test::IdleSecondsMin(_) | Test::AgeSecondsMin(_))
    }

    fn fits(&self, row: &ClientRow, now: MonoNs) -> bool {
        let seconds_since = |then: MonoNs| now.since(then) / 1_000_000_000;
        match self {
            Test::Ids(ids) => ids.binary_search(&row.id).is_ok(),
            Test::Type(kind) => *kind == ClientType::of(row),
            Test::User(name) => **name == *row.user_name(),
            Test::Remote(address) => *address == Some(row.remote),
            Test::Local(address) => *address == Some(row.local_address()),
            Test::Ip(ip) => ip.is_some() && *ip == row.remote.internet().map(|it| it.ip()),
            Test::Flags(letters) => {
                let flags = rows::flags(row);
                letters.iter().all(|letter| flags.as_bytes().contains(letter))
            }
            Test::Name(name) => **name == *row.name.as_bytes(),
            Test::LibraryName(name) => **name == *row.library_name.as_bytes(),
            Test::LibraryVersion(version) => **version == *row.library_version.as_bytes(),
            Test::Database(database) => *database == row.db,
            Test::Redirects => row.redirects,
            Test::IdleSecondsMin(seconds) => seconds_since(row.active) >= *seconds,
            Test::AgeSecondsMin(seconds) => seconds_since(row.opened) >= *seconds,
        }
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    str::from_utf8(text).ok()?.parse().ok()
}

fn address(text: &[u8], settings: &Settings) -> Option<ClientAddress> {
    let socket = ClientAddress::UnixSocket;
    if socket.text(settings).is_some_and(|path| path.as_bytes() == text) {
        return Some(socket);
    }
    parsed(text).map(ClientAddress::Internet)
}

fn number(text: &[u8], name: &str) -> Result<i64, Fail> {
    let invalid = || Fail::owned(format!("ERR {name} is not an integer or out of range"));
    parse_i64_strict(text).ok_or_else(invalid)
}

fn positive(text: &[u8], name: &str) -> Result<u64, Fail> {
    let number = u64::try_from(number(text, name)?).ok().filter(|number| *number > 0);
    number.ok_or_else(|| Fail::owned(format!("ERR {name} should be greater than 0")))
}

fn check_letters(text: &[u8], known: &[u8], what: &str) -> Result<(), Fail> {
    if text.iter().all(|letter| known.contains(letter)) {
        return Ok(());
    }
    let before = format!("ERR Unknown {what} found in the provided filter: ");
    Err(Fail::quoting(&before, shown(text), ""))
}

#[derive(Debug, PartialEq, Eq)]
struct Condition {
    test: Test,
    is_negated: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    conditions: Vec<Condition>,
    /// `None`: without SKIPME.
    pub(super) skips_me: Option<bool>,
}

impl Filter {
    /// Connections from one address.
    pub(super) fn of_remote(remote: &[u8], settings: &Settings) -> Filter {
        let test = Test::Remote(address(remote, settings));
        Filter { conditions: vec![Condition { test, is_negated: false }], skips_me: None }
    }

    pub(super) fn parse(
        options: Args<'_>,
        users: &Users,
        settings: &Settings,
        words: IdWords,
    ) -> Result<Filter, Fail> {
        let mut filter = Filter::default();
        let mut at = 0;
        while let Some(option) = options.try_get(at) {
            let value = options.try_get(at + 1).ok_or(Fail::Syntax)?;
            let (name, is_negated) = match option.split_at_checked(4) {
                Some((prefix, name)) if is_option(prefix, "NOT-") => (name, true),
                _ => (option, false),
            };
            if is_option(name, "ID") {
                let (ids, end) = parse_ids(options, at + 1, words)?;
                filter.add(Condition { test: Test::Ids(ids), is_negated });
                at = end;
                continue;
            }
            at += 2;
            if is_option(option, "SKIPME") {
                filter.skips_me = Some(yes_or_no(value)?);
                continue;
            }
            let test = Test::parse(name, value, users, settings)?;
            if is_negated && !test.is_negatable() {
                return Err(Fail::Syntax);
            }
            filter.add(Condition { test, is_negated });
        }
        Ok(filter)
    }

    /// Adds a condition in place of an earlier one of its kind, as Redis does.
    fn add(&mut self, condition: Condition) {
        let kind = std::mem::discriminant(&condition.test);
        let is_other = |other: &Condition| {
            std::mem::discriminant(&other.test) != kind || other.is_negated != condition.is_negated
        };
        self.conditions.retain(is_other);
        self.conditions.push(condition);
    }

    pub(super) fn fits(&self, row: &ClientRow, now: MonoNs) -> bool {
        let holds = |it: &Condition| it.test.fits(row, now) != it.is_negated;
        self.conditions.iter().all(holds)
    }
}

/// Parses identifiers up to the next filter. Returns them, and the position after them.
fn parse_ids(options: Args<'_>, from: usize, words: IdWords) -> Result<(Vec<u64>, usize), Fail> {
    let (mut ids, mut at) = (Vec::new(), from);
    while let Some(text) = options.try_get(at) {
        match (parse_i64_strict(text), words) {
            (Some(id), IdWords::Invalid) => ids.extend(u64::try_from(id)),
            (Some(id), IdWords::NotPositive) if id > 0 => ids.push(id.cast_unsigned()),
            (None, _) if at > from && at + 1 < options.len() => break,
            (_, IdWords::Invalid) => return Err(Fail::text("ERR Invalid client ID")),
            (None, IdWords::NotPositive) if at > from => return Err(Fail::Syntax),
            (_, IdWords::NotPositive) => {
                return Err(Fail::text("ERR client-id should be greater than 0"));
            }
        }
        at += 1;
    }
    ids.sort_unstable();
    Ok((ids, at))
}

#[cfg(test)]
mod tests {
    use wire::resp::OwnedArgs;

    use super::*;
    use crate::commands::acl::default_user;
    use crate::commands::session::Session;
    use crate::config::Durability;
    use crate::engine::acl::Identity;
    use reactor::{ConnId, Peer};

    fn parse(text: &str) -> Result<Filter, Fail> {
        let args: OwnedArgs = text.split(' ').collect();
        let settings = Settings { unixsocket: "/run/s".into(), ..Settings::default() };
        let users = Users::new(default_user(&[]));
        Filter::parse(args.as_args(), &users, &settings, IdWords::NotPositive)
    }

    fn row() -> ClientRow {
        let peer = Peer {
            remote: Some("127.0.0.1:5001".parse().unwrap()),
            local: Some("[::1]:6379".parse().unwrap()),
            listener: 0,
        };
        let mut session =
            Session::new(ConnId(7), &peer, MonoNs(0), Identity::anyone(), Durability::Never);
        session.details.name = "me".to_owned();
        session.details.library_version = "1.2".to_owned();
        session.row(0, MonoNs(0))
    }

    #[test]
    fn all_filters_must_fit() {
        let now = MonoNs(10_999_999_999);
        for text in [
            "ID 7",
            "ID 9 7 8 TYPE normal",
            "id 7 addr 127.0.0.1:5001 laddr [::1]:6379 type normal user default",
            "MAXAGE 10",
            "IDLE 10",
            "SKIPME no",
            "FLAGS N",
            "NAME me LIB-VER 1.2 DB 0 IP 127.0.0.1",
            "NOT-ID 8 9",
            "NOT-NAME you NOT-CAPA r NOT-ADDR here",
            "TYPE pubsub TYPE normal",
        ] {
            assert!(parse(text).unwrap().fits(&row(), now), "{text}");
        }
        for text in [
            "ID 8",
            "ID 8 9",
            "ADDR 127.0.0.1:5002",
            "ADDR here",
            "LADDR 127.0.0.1:5001",
            "IP here",
            "IP 127.0.0.2",
            "TYPE pubsub",
            "TYPE normal TYPE pubsub",
            "MAXAGE 11",
            "IDLE 11",
            "ID 7 TYPE master",
            "FLAGS P",
            "FLAGS NP",
            "CAPA r",
            "DB 1",
            "LIB-NAME x",
            "NOT-ID 7",
            "NAME me NOT-NAME me",
        ] {
            assert!(!parse(text).unwrap().fits(&row(), now), "{text}");
        }
        assert_eq!(parse("ID 7").unwrap().skips_me, None);
        assert_eq!(parse("ID 7 SKIPME NO").unwrap().skips_me, Some(false));
    }

    #[test]
    fn the_path_of_the_socket_is_the_address_of_its_clients() {
        let (now, internet) = (MonoNs(0), row());
        let socket = ClientRow { remote: ClientAddress::UnixSocket, local: None, ..row() };
        for text in [
            "ADDR /run/s:0",
            "LADDR /run/s:0",
            "FLAGS U",
            "ADDR 127.0.0.1:5001 ADDR /run/s:0",
            "NOT-ADDR 127.0.0.1:5001 LADDR /run/s:0",
            "NOT-LADDR [::1]:6379",
            "NOT-IP 127.0.0.1",
        ] {
            assert!(parse(text).unwrap().fits(&socket, now), "{text}");
            assert!(!parse(text).unwrap().fits(&internet, now), "{text}");
        }
        for text in ["NOT-ADDR /run/s:0", "NOT-LADDR /run/s:0", "NOT-FLAGS U", "IP 127.0.0.1"] {
            assert!(!parse(text).unwrap().fits(&socket, now), "{text}");
            assert!(parse(text).unwrap().fits(&internet, now), "{text}");
        }
        let unknown = ClientRow { remote: ClientAddress::Unknown, local: None, ..row() };
        for row in [&socket, &internet, &unknown] {
            assert!(!parse("ADDR /run/s").unwrap().fits(row, now));
            assert!(parse("NOT-ADDR /run/s").unwrap().fits(row, now));
        }
    }

    #[test]
    fn refusals_are_in_redis_words() {
        for (text, expected) in [
            ("ID 0", "ERR client-id should be greater than 0"),
            ("ID x", "ERR client-id should be greater than 0"),
            ("ID 1 -1", "ERR client-id should be greater than 0"),
            ("ID 1 x", "ERR syntax error"),
            ("TYPE x", "ERR Unknown client type 'x'"),
            ("USER x", "ERR No such user 'x'"),
            ("SKIPME x", "ERR syntax error"),
            ("NOT-SKIPME yes", "ERR syntax error"),
            ("MAXAGE 0", "ERR maxage should be greater than 0"),
            ("MAXAGE x", "ERR maxage is not an integer or out of range"),
            ("NOT-IDLE 1", "ERR syntax error"),
            ("FLAGS Z", "ERR Unknown flags found in the provided filter: Z"),
            ("CAPA redirect", "ERR Unknown capa found in the provided filter: redirect"),
            ("DB 16", "ERR DB number should be between 0 and 15"),
            ("ID 1 ADDR", "ERR syntax error"),
            ("NONSENSE 1", "ERR syntax error"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
