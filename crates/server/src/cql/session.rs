//! The state of one CQL connection between requests.

use base::time::MonoNs;
use reactor::{ConnId, Peer};
use wire::cql::{Compression, Notes, ResponseEncoder, Version};

use super::events::EventKinds;
use super::frames::Framing;
use super::parked::Parked;
use super::request_kind::RequestKind;
use crate::config::Durability;
use crate::engine::accounts::Charges;
use crate::engine::acl::{Acl, Identity, Standing};
use crate::engine::client_row::ClientRow;
use crate::engine::requests::RequestKinds;
use crate::protocol::ClientProtocol;
use crate::statements::executor::ClientState;

/// Limit of the bytes of the names that a client reports for itself and its driver.
const NAME_BYTES_MAX: usize = 128;

/// Progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Only OPTIONS and STARTUP are accepted.
    Start,
    /// The client has not authenticated yet.
    Login,
    Ready,
}

/// Why a connection is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The log is full.
    Room,
    /// CLIENT PAUSE or FAILOVER stops the next request.
    Pause,
    /// Another reactor holds the data of the next request.
    Keys,
    /// Too many replies of this connection, or of all connections of its reactor, wait for the log.
    Replies,
    /// The connection's password is being checked.
    Check,
    /// The reply to a wrong password is sent at this time.
    Login { at: MonoNs },
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: ConnId,
    pub(crate) phase: Phase,
    pub(crate) framing: Framing,
    /// Compression of bodies, in versions 3 and 4.
    pub(crate) compression: Option<Compression>,
    pub(crate) client: ClientState,
    /// The user with whose rights the client acts, once it is ready. `None`: it acts as a role, or
    /// every client may do everything.
    pub(crate) identity: Option<Box<Identity>>,
    pub(crate) events: EventKinds,
    /// Replies that wait for the log.
    pub(crate) parked: Parked,
    /// Whether its reactor checks `parked` when the log advances.
    pub(crate) is_listed: bool,
    pub(crate) wait: Option<Wait>,
    /// Requests that are on the pool or paused.
    pub(crate) in_flight: u32,
    /// Requests that are paused.
    pub(crate) paused_scans: u32,
    /// Whether the peer must read replies before it is sent more.
    pub(crate) is_full: bool,
    /// No more input arrives: the connection closes after the last response.
    pub(crate) input_ended: bool,
    /// Nothing more is read from the connection.
    pub(crate) closing: bool,
    pub(crate) failed_logins: u8,
    /// The reply to a wrong password, until it is sent.
    pub(crate) refusal: Option<Box<Refusal>>,
    pub(crate) requests: u64,
    pub(crate) last_request: RequestKind,
    pub(crate) charges: Charges,
    pub(crate) above_soft_since: Option<MonoNs>,
    /// Names from STARTUP, until they are in the row of CLIENT LIST.
    pub(crate) names: Option<Box<Names>>,
}

/// A delayed response. In a box of its own, to keep the session small.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Vec<u8>);

/// `APPLICATION_NAME`, `DRIVER_NAME` and `DRIVER_VERSION`.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) application: String,
    pub(crate) driver: String,
    pub(crate) driver_version: String,
}

impl Session {
    /// Whether the client has completed its start, and has authenticated if that is required.
    pub(crate) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    pub(crate) fn new(id: ConnId, peer: &Peer, durability: Durability) -> Session {
        Session {
            id,
            phase: Phase::Start,
            framing: Framing::default(),
            compression: None,
            client: ClientState { keyspace: None, access: None, durability, local: peer.local },
            identity: None,
            events: EventKinds::default(),
            parked: Parked::default(),
            is_listed: false,
            wait: None,
            in_flight: 0,
            paused_scans: 0,
            is_full: false,
            input_ended: false,
            closing: false,
            failed_logins: 0,
            refusal: None,
            requests: 0,
            last_request: RequestKind::Options,
            charges: Charges::default(),
            above_soft_since: None,
            names: None,
        }
    }

    /// Takes the present rules of the client's user, which must have all rights. What its login was
    /// asked for may have changed: that does not end the session, as in the other protocols.
    pub(crate) fn follow_users(&mut self, acl: &Acl) -> Standing {
        let identity = self.identity.as_mut();
        identity.map_or(Standing::Valid, |identity| identity.follow_unrestricted(acl))
    }

    /// The version of responses.
    pub(crate) fn version(&self) -> Version {
        self.framing.agreed.unwrap_or(Version::GREATEST)
    }

    /// For messages that do not answer a request: connection errors and events.
    pub(crate) fn encoder(&self) -> ResponseEncoder<'static> {
        ResponseEncoder {
            version: self.version(),
            compression: self.compression,
            notes: Notes::default(),
        }
    }

    /// Whether the session remains after its peer has closed, because replies or requests are
    /// pending.
    pub(crate) fn outlives_peer(&self) -> bool {
        matches!(self.wait, Some(Wait::Room | Wait::Keys | Wait::Replies)) || self.unanswered() > 0
    }

    /// Marks the end of input. Returns whether the session remains for pending work.
    pub(crate) fn end_input(&mut self) -> bool {
        self.input_ended = self.in_flight > 0;
        self.input_ended
    }

    /// Whether nothing more will be sent.
    pub(crate) fn is_done(&self) -> bool {
        self.input_ended && self.in_flight == 0
    }

    /// Requests that were accepted and whose responses have not been sent.
    pub(crate) fn unanswered(&self) -> usize {
        self.parked.len() + self.in_flight as usize
    }

    /// The CLIENT LIST row of a new connection, without its peer's address and names.
    pub(crate) fn row(&mut self, reactor: usize, now: MonoNs, kinds: &RequestKinds) -> ClientRow {
        let mut row = ClientRow::new(self.id, reactor, now, self.client.durability);
        row.local = self.client.local;
        row.protocol = ClientProtocol::Cql;
        row.resp = 0;
        self.update_row(&mut row, now, kinds);
        row
    }

    /// Updates the fields of the row that change with requests.
    pub(crate) fn update_row(&mut self, row: &mut ClientRow, now: MonoNs, kinds: &RequestKinds) {
        row.active = now;
        row.durability = self.client.durability;
        row.blocked = self.wait.is_some();
        row.closing = self.closing;
        row.commands = self.requests;
        row.last_command = kinds.id(ClientProtocol::Cql, self.last_request as usize);
        if let Some(names) = self.names.take() {
            row.name = names.application.into();
            row.library_name = names.driver.into();
            row.library_version = names.driver_version.into();
        }
    }
}

impl Names {
    /// Takes names from STARTUP options; those too long for one line of CLIENT LIST are omitted.
    pub(crate) fn of(options: &[(&str, &str)]) -> Names {
        let option = |key: &str| {
            let found = options.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
            let text = found.map_or("", |(_, text)| *text);
            let text: String = text.chars().filter(char::is_ascii_graphic).collect();
            if text.len() <= NAME_BYTES_MAX { text } else { String::new() }
        };
        Names {
            application: option("APPLICATION_NAME"),
            driver: option("DRIVER_NAME"),
            driver_version: option("DRIVER_VERSION"),
        }
    }
}
