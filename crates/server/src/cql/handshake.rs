//! The start of a connection: OPTIONS, STARTUP, `AUTH_RESPONSE`, REGISTER.

use std::sync::Arc;

use base::time::MonoNs;
use cql::error::CqlError;
use cql::roles::{Access, password};
use wire::cql::{Compression, Opcode, SegmentFormat, Version};

use super::auth::{AUTHENTICATOR, Credentials, FAILED_LOGINS_MAX};
use super::requests::{Answer, RequestStatus, Requests};
use super::session::{Names, Phase, Refusal, Session, Wait};
use crate::config::{Authority, CqlAuthorizer, Durability, Placement};
use crate::engine::acl::Identity;
use crate::engine::gate::Gate;
use crate::engine::mail::CqlReply;
use crate::engine::secret::FAILED_LOGIN_NS;
use crate::protocol::ClientProtocol;
use crate::statements::executor::ClientState;
use crate::statements::virtual_tables::CQL_VERSION;

/// Myriad's own STARTUP option: when the connection's writes are acknowledged.
pub(super) const DURABILITY: &str = "MYRIAD_DURABILITY";

type Result<T> = std::result::Result<T, CqlError>;

impl Session {
    /// Checks that a request of this kind is allowed in the current phase. The texts are
    /// Cassandra's.
    // Source: Cassandra 5.0, ServerConnection.validateNewMessage
    pub(super) fn admit(&self, opcode: Opcode) -> Result<()> {
        let unexpected = |what: &str| {
            let name = opcode_name(opcode);
            Err(CqlError::Protocol(format!("Unexpected message {name}, {what}")))
        };
        match self.phase {
            Phase::Start if !matches!(opcode, Opcode::Startup | Opcode::Options) => {
                unexpected("expecting STARTUP or OPTIONS")
            }
            Phase::Login if opcode != Opcode::AuthResponse => unexpected("expecting SASL_RESPONSE"),
            Phase::Ready if opcode == Opcode::Startup => {
                unexpected("the connection is already initialized")
            }
            _ => Ok(()),
        }
    }
}

fn opcode_name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Startup => "STARTUP",
        Opcode::Options => "OPTIONS",
        Opcode::Query => "QUERY",
        Opcode::Prepare => "PREPARE",
        Opcode::Execute => "EXECUTE",
        Opcode::Batch => "BATCH",
        Opcode::Register => "REGISTER",
        Opcode::AuthResponse => "AUTH_RESPONSE",
        _ => "RESPONSE",
    }
}

impl Requests<'_> {
    pub(super) fn options(&self, session: &Session, answer: &mut Answer<'_, '_>) -> Result<()> {
        let versions = [Version::V3, Version::V4, Version::V5].map(|version| version.to_string());
        let versions = versions.each_ref().map(String::as_str);
        let compressions = [Compression::Snappy.name(), Compression::Lz4.name()];
        let mut options: Vec<(&str, &[&str])> = vec![
            ("PROTOCOL_VERSIONS", &versions),
            ("COMPRESSION", &compressions),
            ("CQL_VERSION", &[CQL_VERSION]),
            (DURABILITY, Durability::WORDS),
        ];
        let is_sharded = self.reactor.settings.placement == Placement::SourcePort;
        let shards = is_sharded.then(|| self.shards(session));
        let shards = shards.iter().flatten().map(|(name, value)| (*name, [value.as_str()]));
        let shards: Vec<_> = shards.collect();
        options.extend(shards.iter().map(|(name, value)| (*name, &value[..])));
        Ok(answer.encoder.supported(answer.stream, &options, answer.out)?)
    }

    /// Describes the reactors to the drivers of `ScyllaDB`, which know them as shards. Every
    /// reactor can run every request, so a client that ignores shards loses nothing.
    // Source: ScyllaDB, protocol-extensions.md, "Intranode sharding"
    fn shards(&self, session: &Session) -> [(&'static str, String); 6] {
        let reactors = self.shared.reactors.regular;
        let port = session.client.local.map_or(0, |address| address.port());
        [
            ("SCYLLA_SHARD", self.reactor.index.to_string()),
            ("SCYLLA_NR_SHARDS", reactors.to_string()),
            ("SCYLLA_PARTITIONER", "org.apache.cassandra.dht.Murmur3Partitioner".to_owned()),
            ("SCYLLA_SHARDING_ALGORITHM", "biased-token-round-robin".to_owned()),
            ("SCYLLA_SHARDING_IGNORE_MSB", "0".to_owned()),
            ("SCYLLA_SHARD_AWARE_PORT", port.to_string()),
        ]
    }

    /// Negotiates version and compression. In version 5, everything after the reply is sent in
    /// segments.
    // Source: native_protocol_v5.spec 4.1.1 "STARTUP"
    pub(super) fn startup(
        &mut self,
        session: &mut Session,
        options: &[(&str, &str)],
        answer: &mut Answer<'_, '_>,
    ) -> Result<()> {
        let option = |key: &str| {
            let found = options.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.map(|(_, text)| *text)
        };
        check_cql_version(option("CQL_VERSION"))?;
        let durability = option(DURABILITY).map(durability_of).transpose()?;
        let version = answer.encoder.version;
        let compression = option("COMPRESSION").filter(|name| !name.is_empty());
        let compression = compression.map(|name| agree_on(name, version)).transpose()?;
        session.framing.agreed = Some(version);
        session.client.durability = durability.unwrap_or(session.client.durability);
        if version == Version::V5 {
            session.framing.segments = Some(match compression {
                Some(_) => SegmentFormat::Lz4,
                None => SegmentFormat::Plain,
            });
        } else {
            session.compression = compression;
        }
        session.names = Some(Box::new(Names::of(options)));
        let authority = self.reactor.settings.authority(ClientProtocol::Cql);
        let newcomer = Identity::newcomer(&self.shared.acl);
        if self.shared.acl.users().admit_without_password(authority) {
            session.identity = (authority == Authority::DefaultUser).then(|| newcomer.into());
            session.phase = Phase::Ready;
            answer.encoder.ready(answer.stream, answer.out)?;
        } else {
            session.phase = Phase::Login;
            answer.encoder.authenticate(answer.stream, AUTHENTICATOR, answer.out)?;
        }
        Ok(())
    }

    /// Admits the client, or delays its refusal.
    // Source: native_protocol_v5.spec 4.1.2 "AUTH_RESPONSE"
    pub(super) fn auth_response(
        &mut self,
        session: &mut Session,
        token: Option<&[u8]>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<RequestStatus> {
        if session.phase == Phase::Ready {
            answer.encoder.auth_success(answer.stream, answer.out)?;
            return Ok(RequestStatus::Answered(Gate::OPEN));
        }
        let credentials = decode(token)?;
        if self.reactor.settings.authority(ClientProtocol::Cql) == Authority::Roles {
            let Some(access) = self.cached_login(&credentials) else {
                return Ok(RequestStatus::TooLong);
            };
            session.client.access = Some(Box::new(access));
        } else {
            match credentials.default_user(&self.shared.acl) {
                Ok(identity) => session.identity = Some(identity.into()),
                Err(error) => {
                    let mut refusal = Vec::new();
                    let Answer { encoder, stream, .. } = answer;
                    encoder.error(*stream, error.kind(), &error.to_string(), &mut refusal);
                    self.delay_refusal(session, refusal);
                    return Ok(RequestStatus::Answered(Gate::OPEN));
                }
            }
        }
        session.phase = Phase::Ready;
        answer.encoder.auth_success(answer.stream, answer.out)?;
        Ok(RequestStatus::Answered(Gate::OPEN))
    }

    /// Admits a role whose password was verified recently and has not changed since.
    fn cached_login(&self, credentials: &Credentials<'_>) -> Option<Access> {
        let roles = self.shared.roles.load();
        let role = roles.role(credentials.user).filter(|role| role.can_login)?;
        let hash = role.salted_hash.as_deref()?;
        let is_known = self.cql.logins.is_verified(credentials.password, hash);
        is_known.then(|| self.access(credentials.user))
    }

    fn access(&self, role: &str) -> Access {
        let is_enforced = self.reactor.settings.cql_authorizer == CqlAuthorizer::Roles;
        Access::new(role, self.shared.roles.load_full(), is_enforced)
    }

    /// Checks a role's password on a pool thread: see [`RequestStatus::TooLong`].
    pub(super) fn check_login(
        &self,
        client: &mut ClientState,
        token: Option<&[u8]>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<()> {
        let credentials = decode(token)?;
        let role = self.shared.roles.load().role(credentials.user).map(Arc::clone);
        let hash = role.as_ref().and_then(|role| role.salted_hash.as_deref());
        // Another connection of the same client may have been verified first.
        let is_known = |hash| self.cql.logins.is_verified(credentials.password, hash);
        if !hash.is_some_and(is_known) && !password::is_right(credentials.password, hash) {
            return Err(credentials.refusal());
        }
        if let Some(hash) = hash {
            self.cql.logins.remember(credentials.password, hash);
        }
        if !role.is_some_and(|role| role.can_login) {
            // Source: Cassandra 5.0, ClientState.login
            let user = credentials.user;
            return Err(CqlError::BadCredentials(format!("{user} is not permitted to log in")));
        }
        client.access = Some(Box::new(self.access(credentials.user)));
        answer.encoder.auth_success(answer.stream, answer.out)?;
        Ok(())
    }

    /// Handles the outcome of a password check: see [`Requests::check_login`].
    pub(super) fn end_check(&self, session: &mut Session, reply: CqlReply, out: &mut Vec<u8>) {
        let Some(access) = reply.access else { return self.delay_refusal(session, reply.message) };
        session.wait = None;
        session.phase = Phase::Ready;
        session.client.access = Some(access);
        out.extend_from_slice(&reply.message);
    }

    /// Delays the refusal that the client will receive.
    fn delay_refusal(&self, session: &mut Session, refusal: Vec<u8>) {
        let at = MonoNs(self.now.mono.0.saturating_add(FAILED_LOGIN_NS));
        session.wait = Some(Wait::Login { at });
        session.refusal = Some(Box::new(Refusal(refusal)));
    }

    pub(super) fn register(
        session: &mut Session,
        events: &[&str],
        answer: &mut Answer<'_, '_>,
    ) -> Result<()> {
        let mut registered = session.events;
        for event in events {
            if !registered.add(event) {
                return Err(CqlError::Protocol(format!(
                    "Invalid value '{event}' for an event type"
                )));
            }
        }
        session.events = registered;
        answer.encoder.ready(answer.stream, answer.out)?;
        Ok(())
    }
}

impl Session {
    /// Refuses a wrong password. After [`FAILED_LOGINS_MAX`] of them the connection closes.
    pub(crate) fn refuse_login(&mut self, out: &mut Vec<u8>) {
        self.wait = None;
        self.failed_logins += 1;
        self.closing = self.failed_logins >= FAILED_LOGINS_MAX;
        if let Some(Refusal(message)) = self.refusal.take().as_deref() {
            out.extend_from_slice(message);
        }
    }
}

fn decode(token: Option<&[u8]>) -> Result<Credentials<'_>> {
    let decoded = Credentials::decode(token.unwrap_or_default());
    decoded.map_err(|text| CqlError::BadCredentials(text.to_owned()))
}

/// Accepts any version from 3 on: drivers repeat the version that they were offered, or send the
/// one that they were written for.
// Source: Cassandra 5.0, StartupMessage.execute
fn check_cql_version(version: Option<&str>) -> Result<()> {
    let version = version.ok_or_else(|| {
        CqlError::Protocol("Missing value CQL_VERSION in STARTUP message".to_owned())
    })?;
    let mut parts = version.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(_)), Some(Ok(_))) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(CqlError::Protocol(format!("Invalid version value: {version}")));
    };
    if major < 3 {
        return Err(CqlError::Protocol(format!(
            "CQL version {version} is not supported by the binary protocol (supported version are \
             >= 3.0.0)"
        )));
    }
    Ok(())
}

/// Parses the durability of a connection or a request, which replaces the server's.
pub(super) fn durability_of(word: &str) -> Result<Durability> {
    let known = Durability::ALL.iter().find(|known| known.word().eq_ignore_ascii_case(word));
    known.copied().ok_or_else(|| {
        CqlError::Protocol(format!("{DURABILITY} must be one of {}", Durability::WORDS.join(", ")))
    })
}

fn agree_on(name: &str, version: Version) -> Result<Compression> {
    let compression = Compression::from_name(name)
        .ok_or_else(|| CqlError::Protocol(format!("Unknown compression algorithm: {name}")))?;
    if version == Version::V5 && compression == Compression::Snappy {
        return Err(CqlError::Protocol(
            "Snappy compression is not supported in protocol version 5".to_owned(),
        ));
    }
    Ok(compression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cql_versions_are_checked() {
        let check = |version, expected: &str| {
            let found = check_cql_version(version).err().map(|error| error.to_string());
            assert!(found.as_deref().unwrap_or("fine").contains(expected), "{version:?} {found:?}");
        };
        for version in ["3.0.0", "3.4.7", "4.0.0", "3.4.5-SNAPSHOT"] {
            check(Some(version), "fine");
        }
        check(None, "Missing value CQL_VERSION");
        check(Some("2.9.0"), "not supported by the binary protocol");
        check(Some("three"), "Invalid version value: three");
        check(Some("3.0"), "Invalid version value");
    }

    #[test]
    fn snappy_is_refused_in_version_5() {
        assert_eq!(agree_on("SNAPPY", Version::V4), Ok(Compression::Snappy));
        assert_eq!(agree_on("lz4", Version::V5), Ok(Compression::Lz4));
        assert!(agree_on("snappy", Version::V5).is_err());
        let unknown = agree_on("zstd", Version::V5).unwrap_err();
        assert_eq!(unknown.to_string(), "Unknown compression algorithm: zstd");
    }
}
