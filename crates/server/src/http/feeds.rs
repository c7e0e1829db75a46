//! Change streams: the durable part of the log, read for the clients that follow it.
//!
//! One thread reads for all followers, so that no reactor blocks on disk I/O. A client is sent the
//! next part after it has read the previous one. A slow client falls behind in the log; its only
//! cost is that segments are retained for it. When they are no longer retained, the stream ends
//! with an error.

use std::collections::HashMap;
use std::sync::Arc;

use binlog::{Batch, Follower};
use parking_lot::Mutex;
use reactor::ConnId;

use super::changes;
use crate::config::CqlAuthenticator;
use crate::engine::mail::{Mail, send_patiently};
use crate::engine::server_state::ServerState;
use crate::engine::signal::Signal;
use crate::engine::threads::Threads;

/// Limit of clients that follow the log at the same time.
pub(crate) const FEEDS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Feeds {
    signal: Arc<Signal>,
    followers: Mutex<HashMap<ConnId, Feed>>,
    thread: Threads,
}

#[derive(Debug)]
struct Feed {
    reactor: usize,
    /// `None` while the thread reads from it.
    follower: Option<Box<Follower>>,
    /// True if the client has read everything that it was sent.
    is_ready: bool,
}

impl Feeds {
    /// Starts the thread.
    pub(crate) fn start(self: &Arc<Self>, shared: &Arc<ServerState>) -> std::io::Result<()> {
        let (feeds, shared) = (Arc::clone(self), Arc::clone(shared));
        self.thread.start("feeds", move || {
            let mut batch = Batch::new();
            while feeds.signal.wait() {
                feeds.serve(&shared, &mut batch);
            }
        })
    }

    pub(crate) fn stop(&self) {
        self.signal.end();
        self.thread.join();
    }

    /// Whether another client may follow the log.
    pub(crate) fn has_room(&self) -> bool {
        self.followers.lock().len() < FEEDS_MAX
    }

    /// Starts reading for this client.
    pub(crate) fn open(&self, id: ConnId, reactor: usize, follower: Box<Follower>) {
        let signal = Arc::clone(&self.signal);
        follower.set_waker(Box::new(move || signal.raise()));
        let feed = Feed { reactor, follower: Some(follower), is_ready: true };
        self.followers.lock().insert(id, feed);
        self.signal.raise();
    }

    /// Notes that the client has read everything that it was sent.
    pub(crate) fn taken(&self, id: ConnId) {
        if let Some(feed) = self.followers.lock().get_mut(&id) {
            feed.is_ready = true;
            self.signal.raise();
        }
    }

    /// Removes a client that has disconnected.
    pub(crate) fn close(&self, id: ConnId) {
        self.followers.lock().remove(&id);
    }

    /// Sends one part to each client that is ready for it.
    pub(crate) fn serve(&self, shared: &ServerState, batch: &mut Batch) {
        let ready = |(id, feed): (&ConnId, &Feed)| feed.is_ready.then_some((*id, feed.reactor));
        let ids: Vec<_> = self.followers.lock().iter().filter_map(ready).collect();
        let hides_tables = shared.settings.load().cql_authenticator == CqlAuthenticator::Password;
        for (id, reactor) in ids {
            let taken = self.followers.lock().get_mut(&id).and_then(|feed| feed.follower.take());
            let Some(mut follower) = taken else { continue };
            let (part, is_last) = match follower.next_batch(batch) {
                Ok(true) if batch.records().next().is_none() => {
                    self.return_follower(id, follower, true);
                    self.signal.raise();
                    continue;
                }
                Ok(true) => (changes::encode(batch, hides_tables), false),
                Ok(false) if shared.log.poisoned().is_some() => {
                    (changes::encode_end("the log has failed"), true)
                }
                Ok(false) => {
                    follower.wake_when_readable();
                    self.return_follower(id, follower, true);
                    continue;
                }
                Err(error) => (changes::encode_end(&error.to_string()), true),
            };
            batch.shrink();
            // Update the state before sending: the reactor may answer at once.
            if is_last {
                self.close(id);
            } else {
                self.return_follower(id, follower, false);
            }
            let mail = Mail::Changes { id, part: part.into(), is_last };
            send_patiently(&shared.links().mailboxes()[reactor], mail, &self.signal);
        }
    }

    fn return_follower(&self, id: ConnId, follower: Box<Follower>, is_ready: bool) {
        // The client may have disconnected and been removed in the meantime.
        if let Some(feed) = self.followers.lock().get_mut(&id) {
            feed.follower = Some(follower);
            feed.is_ready = is_ready;
        }
    }
}
