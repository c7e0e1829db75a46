//! The server that receives the data, and what it knows of the import.

use std::time::Duration;

use anyhow::{Context as _, bail};
use wire::resp::Reply;

use super::failure::Failure;
use super::peer::{Peer, info_field, shown};
use super::stream::{Position, parse_position};
use crate::engine::import_mode::STATE_KEY;
use crate::import::place::Place;
use crate::import::wait::Wait;

/// Name of the connection of an import: a target has one at a time.
const CLIENT_NAME: &[u8] = b"myriad-import";
/// Time for which an import waits until the connection of an earlier one has ended: what was sent on
/// that must not be executed after this one has read the state.
const CLAIM_MAX: Duration = Duration::from_secs(5);
const CLAIM_INTERVAL: Duration = Duration::from_millis(50);
/// Milliseconds for which the end of an import waits for the disk of the target.
const SYNC_MS: &[u8] = b"60000";
const COPYING: &str = "copying";
const MERGING: &str = "merging";
const FAILED: &str = "failed";
const FOLLOWING: &str = "following ";

/// What the target has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// No import has begun.
    None,
    /// A part of the data, in a server that was empty before.
    Copying,
    /// A part of the data, besides other data.
    Merging,
    /// A write of the source failed: the data differs.
    Failed,
    /// All data and writes up to a position.
    Following(Position),
}

impl State {
    pub(super) fn encode(&self) -> String {
        match self {
            State::None => String::new(),
            State::Copying => COPYING.to_owned(),
            State::Merging => MERGING.to_owned(),
            State::Failed => FAILED.to_owned(),
            State::Following(Position { history, offset, db }) => {
                format!("{FOLLOWING}{history} {offset} {db}")
            }
        }
    }

    fn decode(text: &str) -> anyhow::Result<State> {
        match text {
            COPYING => Ok(State::Copying),
            MERGING => Ok(State::Merging),
            FAILED => Ok(State::Failed),
            _ => {
                let position = text.strip_prefix(FOLLOWING).context("unknown state")?;
                Ok(State::Following(parse_position(position)?))
            }
        }
    }
}

/// A connection to the target.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) peer: Peer,
}

impl Target {
    /// Connects as the only import into this target.
    pub(super) fn connect(place: &Place) -> anyhow::Result<Target> {
        let mut target = Target { peer: Peer::connect(place)? };
        target.claim()?;
        Ok(target)
    }

    /// Lets no key expire in the target: a write of the source that is on its way may have extended
    /// it.
    pub(super) fn keep_expired(&mut self) -> anyhow::Result<()> {
        self.peer.expect_ok(&[b"CONFIG", b"SET", b"import-mode", b"yes"])
    }

    fn claim(&mut self) -> anyhow::Result<()> {
        self.peer.expect_ok(&[b"CLIENT", b"SETNAME", CLIENT_NAME])?;
        let Reply::Integer(id) = self.peer.ask(&[b"CLIENT", b"ID"])? else {
            bail!("CLIENT ID of the target has a malformed reply");
        };
        let (mut wait, mut err) = (Wait::new(CLAIM_MAX), std::io::stderr());
        while let Some(address) = other_import(&self.peer.text(&[b"CLIENT", b"LIST"])?, id) {
            let other =
                format!("another import into the target, which is connected from {address}");
            if !wait.may_continue(&other, &mut err) {
                bail!("another import into the target is connected from {address}");
            }
            std::thread::sleep(CLAIM_INTERVAL);
        }
        wait.end(&mut err);
        Ok(())
    }

    /// Ends an import that is complete: everything is on the disk of the target, and keys expire.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        self.peer.expect_ok(&[b"CONFIG", b"SET", b"import-mode", b"no"])?;
        self.sync()?;
        self.set_state(&State::None)?;
        self.sync()
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        match self.peer.ask(&[b"WAITAOF", b"1", b"0", SYNC_MS])? {
            Reply::Array(counts) if counts.first() == Some(&Reply::Integer(1)) => Ok(()),
            Reply::Array(_) => bail!("the target has not written the import to its disk"),
            other => bail!("WAITAOF: {}", shown(&other)),
        }
    }

    pub(super) fn state(&mut self) -> anyhow::Result<State> {
        self.peer.expect_ok(&[b"SELECT", b"0"])?;
        match self.peer.ask(&[b"GET", STATE_KEY])? {
            Reply::Null => Ok(State::None),
            Reply::Bulk(text) => {
                State::decode(&String::from_utf8_lossy(&text)).with_context(|| {
                    format!(
                        "the key {} of the target is not of an import",
                        STATE_KEY.escape_ascii()
                    )
                })
            }
            other => bail!("GET: {}", shown(&other)),
        }
    }

    pub(super) fn set_state(&mut self, state: &State) -> anyhow::Result<()> {
        self.peer.expect_ok(&[b"SELECT", b"0"])?;
        if *state == State::None {
            return match self.peer.ask(&[b"DEL", STATE_KEY])? {
                Reply::Integer(_) => Ok(()),
                other => bail!("DEL: {}", shown(&other)),
            };
        }
        self.peer.expect_ok(&[b"SET", STATE_KEY, state.encode().as_bytes()])
    }

    pub(super) fn is_empty(&mut self) -> anyhow::Result<bool> {
        let keyspace = self.peer.text(&[b"INFO", b"keyspace"])?;
        let has_functions = match self.peer.ask(&[b"FUNCTION", b"LIST"])? {
            Reply::Array(libraries) => !libraries.is_empty(),
            other => bail!("FUNCTION LIST: {}", shown(&other)),
        };
        Ok(!has_functions && !keyspace.lines().any(|line| line.starts_with("db")))
    }

    /// Removes all keys and functions.
    pub(super) fn empty(&mut self) -> anyhow::Result<()> {
        self.peer.expect_ok(&[b"FUNCTION", b"FLUSH"])?;
        self.peer.expect_ok(&[b"FLUSHALL"])
    }
}

/// The address of an import other than `own` in CLIENT LIST.
fn other_import(list: &str, own: i64) -> Option<&str> {
    let own = format!("id={own}");
    let name = format!("name={}", CLIENT_NAME.escape_ascii());
    let mut clients = list.lines().map(|line| line.split(' '));
    let mut other = clients.find(|words| {
        words.clone().next() != Some(&own) && words.clone().any(|word| word == name)
    })?;
    Some(other.find_map(|word| word.strip_prefix("addr=")).unwrap_or("an unknown address"))
}

/// A failed connection can be made again, an error reply is final.
pub(super) fn target_failure(error: anyhow::Error) -> Failure {
    error.downcast::<std::io::Error>().map_or_else(Failure::Final, Failure::Target)
}

/// What the source reports of itself.
#[derive(Debug)]
pub(super) struct SourceInfo {
    /// The end of its history.
    pub(super) offset: u64,
}

/// Asks the source how far its history is, and whether it is a server to import from.
pub(super) fn source_info(peer: &mut Peer) -> anyhow::Result<SourceInfo> {
    let text = peer.text(&[b"INFO", b"replication"])?;
    let offset = info_field(&text, "master_repl_offset").and_then(|text| text.trim().parse().ok());
    Ok(SourceInfo { offset: offset.context("INFO of the source has no master_repl_offset")? })
}

/// Fails if the source is a server from which data moves in another way.
pub(super) fn check_source(peer: &mut Peer, place: &Place) -> anyhow::Result<()> {
    let text = peer.text(&[b"INFO", b"server"])?;
    if info_field(&text, "myriad_version").is_some() {
        let shown = place.shown();
        bail!("{shown} is a Myriad: let the target follow it with REPLICAOF, or use myriad backup");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_imports_are_found_by_name() {
        let own = "id=7 addr=a name=myriad-import age=1";
        assert_eq!(other_import(own, 7), None);
        assert_eq!(other_import(&format!("id=71 addr=b name=myriad age=1\n{own}"), 7), None);
        let list = format!("{own}\nid=71 addr=[::1]:5 name=myriad-import age=1");
        assert_eq!(other_import(&list, 7), Some("[::1]:5"));
        assert_eq!(other_import(&list, 71), Some("a"));
    }

    #[test]
    fn states_are_read_as_they_were_written() {
        let position = Position { history: "abc".to_owned(), offset: 12, db: 3 };
        for state in [State::Copying, State::Merging, State::Failed, State::Following(position)] {
            assert_eq!(State::decode(&state.encode()).unwrap(), state);
        }
        for text in ["", "other", "following", "following a b c"] {
            assert!(State::decode(text).is_err(), "{text}");
        }
    }
}
