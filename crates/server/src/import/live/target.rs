//! The server that receives the data, and what it knows of the import.

use anyhow::{Context as _, bail};
use wire::resp::Reply;

use super::peer::{Peer, info_field, shown};
use super::place::Place;
use super::stream::{Position, parse_position};

/// The key in database 0 that says how far an import is. It is set in the transaction of the writes
/// that it counts, so that none is repeated or left out, and removed when the import is complete.
pub(super) const STATE_KEY: &[u8] = b"myriad:import:state";
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
    pub(super) fn connect(place: &Place) -> anyhow::Result<Target> {
        Ok(Target { peer: Peer::connect(place)? })
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
        Ok(!keyspace.lines().any(|line| line.starts_with("db")))
    }

    /// Removes all keys.
    pub(super) fn empty(&mut self) -> anyhow::Result<()> {
        self.peer.expect_ok(&[b"FLUSHALL"])
    }
}

/// What the source says of itself.
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
