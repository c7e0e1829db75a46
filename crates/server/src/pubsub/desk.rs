//! A reactor's own part: which of its connections get what, and messages that it has not handed out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use reactor::ConnId;

use super::directory::{Directory, Refusal};
use super::message::{Kind, Message, Name, OwnedPost, Post, Way};
use super::subscriptions::Subscriptions;

/// The connections that have subscribed to a name, and the number of the first message for each.
type Subscribers = BTreeMap<ConnId, u64>;

#[derive(Debug)]
pub(crate) struct Desk {
    reactor: usize,
    subscribers: [HashMap<Name, Subscribers>; Kind::COUNT],
    /// Messages with their numbers, which follow each other.
    pending: VecDeque<(u64, Arc<Message>)>,
    /// The number behind all that were taken from the directory.
    taken: u64,
    /// Messages of a transaction that is running.
    deferred: Vec<OwnedPost>,
}

impl Desk {
    pub(crate) fn new(reactor: usize) -> Desk {
        Desk {
            reactor,
            subscribers: Default::default(),
            pending: VecDeque::new(),
            taken: 0,
            deferred: Vec::new(),
        }
    }

    /// False: it had subscribed already.
    pub(crate) fn subscribe(
        &mut self,
        directory: &Directory,
        id: ConnId,
        subscriptions: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
    ) -> Result<bool, Refusal> {
        if subscriptions.contains(kind, name) {
            return Ok(false);
        }
        if !subscriptions.has_room(name.len()) {
            return Err(Refusal::Subscriptions);
        }
        let by_name = &mut self.subscribers[kind.index()];
        let known = by_name.get_key_value(name).map(|(known, _)| Name::clone(known));
        let name = known.unwrap_or_else(|| Name::from(name));
        let first = directory.add(kind, &name, self.reactor)?;
        if subscriptions.total() == 0 {
            directory.client_came();
        }
        by_name.entry(Name::clone(&name)).or_default().insert(id, first);
        subscriptions.insert(kind, name);
        Ok(true)
    }

    /// False: there was no such subscription.
    pub(crate) fn unsubscribe(
        &mut self,
        directory: &Directory,
        id: ConnId,
        subscriptions: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
    ) -> bool {
        let is_removed = subscriptions.remove(kind, name);
        if is_removed {
            self.leave(directory, id, kind, name);
            if subscriptions.total() == 0 {
                directory.client_left();
            }
        }
        is_removed
    }

    /// A connection ends, or all that it has subscribed to does.
    pub(crate) fn forget(
        &mut self,
        directory: &Directory,
        id: ConnId,
        subscriptions: &Subscriptions,
    ) {
        for kind in Kind::ALL {
            for name in subscriptions.names(kind) {
                self.leave(directory, id, kind, name);
            }
        }
        if subscriptions.total() > 0 {
            directory.client_left();
        }
    }

    fn leave(&mut self, directory: &Directory, id: ConnId, kind: Kind, name: &[u8]) {
        let by_name = &mut self.subscribers[kind.index()];
        if let Some(subscribers) = by_name.get_mut(name) {
            subscribers.remove(&id);
            if subscribers.is_empty() {
                by_name.remove(name);
            }
        }
        directory.remove(kind, name, self.reactor);
        if self.subscribers.iter().all(HashMap::is_empty) {
            self.drop_pending(directory);
        }
    }

    /// Nobody is left who could get what waits here: a reactor that ends does not come to it any more.
    fn drop_pending(&mut self, directory: &Directory) {
        self.take(directory);
        for (_, message) in self.pending.drain(..) {
            directory.delivered(message.memory_bytes());
        }
    }

    /// Takes what others have published. False if nothing is to be handed out.
    pub(crate) fn take(&mut self, directory: &Directory) -> bool {
        if let Some(next) = directory.take(self.reactor, &mut self.pending) {
            self.taken = next;
        }
        !self.pending.is_empty()
    }

    /// The oldest message that was not handed out, with its number.
    pub(crate) fn pop(&mut self) -> Option<(u64, Arc<Message>)> {
        self.pending.pop_front()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Messages that wait, from this number on.
    pub(crate) fn pending_from(&self, number: u64) -> impl Iterator<Item = (u64, &Message)> {
        let start = self.pending.partition_point(|(known, _)| *known < number);
        self.pending.range(start..).map(|(number, message)| (*number, &**message))
    }

    /// The number behind all that were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The connections that get a message in this way.
    pub(crate) fn receivers(&self, number: u64, way: Way<'_>) -> impl Iterator<Item = ConnId> {
        let subscribers = self.subscribers[way.kind.index()].get(way.name);
        let subscribers = subscribers.into_iter().flatten();
        subscribers.filter(move |(_, first)| **first <= number).map(|(id, _)| *id)
    }

    /// Whether a connection is among them.
    pub(crate) fn receives(&self, id: ConnId, number: u64, way: Way<'_>) -> bool {
        let subscribers = self.subscribers[way.kind.index()].get(way.name);
        subscribers.and_then(|all| all.get(&id)).is_some_and(|first| *first <= number)
    }

    /// Keeps a message until its transaction is in the log.
    pub(crate) fn defer(&mut self, post: &Post<'_>) {
        self.deferred.push(OwnedPost::of(post));
    }

    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    pub(crate) fn take_deferred(&mut self) -> Vec<OwnedPost> {
        std::mem::take(&mut self.deferred)
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscriptions::SUBSCRIPTIONS_MAX;
    use super::*;

    const WAY: Way<'_> = Way { kind: Kind::Channel, name: b"a" };

    fn publish(directory: &Directory, payload: &str) {
        let post = Post { channel: b"a", payload: payload.as_bytes(), kind: Kind::Channel };
        directory.publish(&post, 0, |_| ());
    }

    #[test]
    fn who_comes_later_gets_what_is_published_later() {
        let (directory, mut desk) = (Directory::new(1), Desk::new(0));
        let (mut early, mut late) = (Subscriptions::default(), Subscriptions::default());
        let subscribe = |desk: &mut Desk, id, mine: &mut Subscriptions| {
            desk.subscribe(&directory, ConnId(id), mine, Kind::Channel, b"a")
        };
        assert_eq!(subscribe(&mut desk, 1, &mut early), Ok(true));
        assert_eq!(subscribe(&mut desk, 1, &mut early), Ok(false));
        publish(&directory, "first");
        assert_eq!(subscribe(&mut desk, 2, &mut late), Ok(true));
        publish(&directory, "second");
        assert_eq!(directory.clients(), 2);
        assert!(desk.take(&directory));
        assert_eq!(desk.pending_from(0).count(), 2);
        assert_eq!(desk.pending_from(1).count(), 1);
        assert_eq!(desk.pending_from(desk.taken()).count(), 0);
        let (number, message) = desk.pop().unwrap();
        assert_eq!(message.payload(), b"first");
        assert_eq!(desk.receivers(number, WAY).collect::<Vec<_>>(), [ConnId(1)]);
        assert!(desk.receives(ConnId(1), number, WAY) && !desk.receives(ConnId(2), number, WAY));
        let (number, _) = desk.pop().unwrap();
        assert_eq!(desk.receivers(number, WAY).count(), 2);
        assert!(desk.unsubscribe(&directory, ConnId(1), &mut early, Kind::Channel, b"a"));
        assert!(!desk.unsubscribe(&directory, ConnId(1), &mut early, Kind::Channel, b"a"));
        assert_eq!(desk.receivers(number, WAY).collect::<Vec<_>>(), [ConnId(2)]);
        assert_eq!(directory.clients(), 1);
    }

    #[test]
    fn nothing_is_left_of_the_last_one() {
        let (directory, mut desk) = (Directory::new(1), Desk::new(0));
        let mut mine = Subscriptions::default();
        for (kind, name) in [(Kind::Channel, b"a"), (Kind::Pattern, b"*")] {
            desk.subscribe(&directory, ConnId(1), &mut mine, kind, name).unwrap();
        }
        publish(&directory, &"x".repeat(super::super::directory::PENDING_BYTES_MAX));
        assert!(directory.is_full());
        desk.forget(&directory, ConnId(1), &mine);
        assert!(!directory.is_full() && !desk.has_pending());
        assert_eq!(directory.clients(), 0);
        assert!(Kind::ALL.iter().all(|kind| directory.names(*kind) == 0));
    }

    #[test]
    fn a_connection_has_a_limit_and_one_name_counts_once() {
        let (directory, mut desk) = (Directory::new(1), Desk::new(0));
        let mut mine = Subscriptions::default();
        let mut subscribe = |name: usize, mine: &mut Subscriptions| {
            let name = name.to_string();
            desk.subscribe(&directory, ConnId(1), mine, Kind::Channel, name.as_bytes())
        };
        for name in 0..SUBSCRIPTIONS_MAX {
            assert_eq!(subscribe(name, &mut mine), Ok(true));
        }
        assert_eq!(subscribe(SUBSCRIPTIONS_MAX, &mut mine), Err(Refusal::Subscriptions));
        assert_eq!(subscribe(7, &mut mine), Ok(false));
        assert_eq!(directory.names(Kind::Channel), SUBSCRIPTIONS_MAX);
    }
}
