//! Following the peers of a group of masters: a thread for each, which connects to it and merges
//! what it sends.

use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::apply::ApplyError;
use super::link::{Link, LinkError};
use super::merge::Merger;
use super::problem::Past;
use super::{EndOfLink, RETRY, ROOM_INTERVAL};
use crate::engine::clock;
use crate::engine::replication::{LinkState, Role};
use crate::engine::server_state::ServerState;
use crate::handler::State;

/// Time between two checks of whether a peer was removed.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The thread that starts the others.
#[derive(Debug)]
pub(crate) struct Pulling(JoinHandle<()>);

/// Starts the thread.
pub(crate) fn start_pulling(state: &State) -> io::Result<Pulling> {
    let state = state.clone();
    let run = move || {
        let mut running = BTreeMap::new();
        while state.shared.hub.signal.wait() {
            start_missing(&state, &mut running);
        }
        running.into_values().for_each(join);
    };
    std::thread::Builder::new().name("hub".to_owned()).spawn(run).map(Pulling)
}

impl Pulling {
    pub(crate) fn stop(self, shared: &ServerState) {
        shared.hub.signal.end();
        join(self.0);
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread that follows a peer panicked");
    }
}

/// Starts a thread for each peer that has none, and joins those of peers that were removed.
fn start_missing(state: &State, running: &mut BTreeMap<(u16, u64), JoinHandle<()>>) {
    if state.shared.hub.server == 0 {
        return;
    }
    running.extract_if(.., |_, thread| thread.is_finished()).for_each(|(_, thread)| join(thread));
    let peers = state.shared.hub.peers().all().clone();
    for (server, peer) in peers {
        let place = (server, peer.generation);
        if running.contains_key(&place) {
            continue;
        }
        let of_thread = state.clone();
        let run = move || pull(&of_thread, server, peer.generation);
        match std::thread::Builder::new().name(format!("hub-{server}")).spawn(run) {
            Ok(thread) => {
                running.insert(place, thread);
            }
            Err(error) => tracing::error!(server, %error, "could not start the thread of a peer"),
        }
    }
}

/// Follows a peer until it is removed or the server stops.
fn pull(state: &State, server: u16, generation: u64) {
    let shared = &state.shared;
    let is_over = || {
        let is_current = shared.hub.peers().get_mut(server, generation).is_some();
        shared.hub.signal.is_over() || !is_current
    };
    let mut past = Past::default();
    while !is_over() {
        // A replica gets what the peers write from its master.
        let is_master = shared.replication.role() == Role::Master;
        if is_master && let Err(error) = follow(state, server, generation, &mut past, &is_over) {
            past.must_copy |= matches!(error, EndOfLink::Apply(ApplyError::Gap { .. }));
            if let Some(unlogged) = past.last_problem.note(error.to_string(), Instant::now()) {
                tracing::warn!(server, %error, unlogged, "the link to a peer ended");
            }
        }
        if let Some(peer) = shared.hub.peers().get_mut(server, generation) {
            (peer.state, peer.heard) = (LinkState::Connecting, clock::mono_now());
        }
        let again = Instant::now() + RETRY;
        while !is_over() && Instant::now() < again {
            std::thread::sleep(CHECK_INTERVAL);
        }
    }
}

fn follow(
    state: &State,
    server: u16,
    generation: u64,
    past: &mut Past,
    is_over: &dyn Fn() -> bool,
) -> Result<(), EndOfLink> {
    let shared = &state.shared;
    let mut merger = Merger::new(state, server, generation);
    let request = if past.must_copy { None } else { merger.request() };
    let peer = shared.hub.peers().get_mut(server, generation).cloned();
    let Some(peer) = peer else { return Ok(()) };
    let mut link = Link::open_peer(shared, &peer.address, server, request, is_over)?;
    loop {
        let Some(frame) = link.read_frame(is_over)? else { return Ok(()) };
        merger.note_received(&frame);
        while !merger.has_room() && !is_over() {
            std::thread::sleep(ROOM_INTERVAL);
        }
        merger.apply(clock::now(), &frame)?;
        past.worked();
    }
}

impl From<io::Error> for EndOfLink {
    fn from(error: io::Error) -> EndOfLink {
        EndOfLink::Link(LinkError::Io(error))
    }
}
