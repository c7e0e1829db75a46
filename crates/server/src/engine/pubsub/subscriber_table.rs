//! One reactor's part of publish and subscribe: the subscriptions of its connections, and
//! undelivered messages.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use reactor::ConnId;

use super::directory::{Added, Directory, Refusal};
use super::message::{Kind, MatchedSubscription, Message, Publication, Publications};
use super::subscriptions::Subscriptions;
use super::table::{Table, tree_bytes};
use crate::engine::gate::Gate;

/// Connections subscribed to a name, each with the number of its first message.
type Subscribers = BTreeMap<ConnId, u64>;

/// Capacity that is kept when no message is pending.
const PENDING_KEPT_MAX: usize = 1024;

/// Steps per turn to compare messages about data changes with patterns, about 0.6 ms; the last
/// comparison may exceed it by one message. Small in unit tests, so that they need few patterns.
const MATCH_STEPS_MAX: u64 = if cfg!(test) { 1 << 13 } else { 1 << 19 };

/// Position in the delivery of a message that has too many receivers for one turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// Index of the first matched subscription for which delivery is incomplete.
    pub(crate) subscription_index: usize,
    /// The last connection that received the message through this subscription; delivery is in
    /// the order of connection ids.
    pub(crate) after: Option<ConnId>,
}

impl Place {
    /// Whether a connection has received the message through this subscription.
    fn has_passed(self, index: usize, id: ConnId) -> bool {
        index < self.subscription_index
            || (index == self.subscription_index && self.after.is_some_and(|last| id <= last))
    }
}

/// Estimated memory of the subscribers.
fn subscribers_bytes(subscribers: &Subscribers) -> usize {
    tree_bytes(subscribers.len(), size_of::<(ConnId, u64)>())
}

#[derive(Debug)]
pub(crate) struct SubscriberTable {
    reactor: usize,
    subscribers: [Table<Subscribers>; Kind::COUNT],
    /// Messages with their consecutive numbers.
    pending: VecDeque<(u64, Arc<Message>)>,
    /// Delivery position of the oldest message.
    place: Place,
    /// Number after the last message taken from the directory.
    taken: u64,
    /// Messages of the running command or transaction.
    deferred: Publications,
    /// Steps that remain in this turn for comparing messages with patterns.
    match_steps_left: u64,
    /// Growth of the memory of subscriptions since last taken, here and in the directory.
    grown_bytes: isize,
    /// Whether this reactor's queue has had free space again since last read.
    has_opened: bool,
}

impl SubscriberTable {
    pub(crate) fn new(reactor: usize) -> SubscriberTable {
        SubscriberTable {
            reactor,
            subscribers: Default::default(),
            pending: VecDeque::new(),
            place: Place::default(),
            taken: 0,
            deferred: Publications::default(),
            match_steps_left: MATCH_STEPS_MAX,
            grown_bytes: 0,
            has_opened: false,
        }
    }

    /// Returns false if the connection was already subscribed.
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
        let Added { name, first, grown_bytes } = directory.add(kind, name, self.reactor)?;
        if subscriptions.total() == 0 {
            directory.add_client();
        }
        let table = &mut self.subscribers[kind.index()];
        let before_bytes = table.memory_bytes() + subscriptions.memory_bytes();
        let subscribers = table.get_or_default(&name);
        let shared_bytes = subscribers_bytes(subscribers);
        subscribers.insert(id, first);
        let own_bytes = subscribers_bytes(subscribers) - shared_bytes;
        subscriptions.insert(kind, name);
        let after_bytes = table.memory_bytes() + subscriptions.memory_bytes();
        self.note_growth(before_bytes, after_bytes + own_bytes + grown_bytes);
        Ok(true)
    }

    /// Ends one subscription, after delivering the messages that were published to the connection
    /// while it was subscribed. Returns false if there was no such subscription.
    pub(crate) fn unsubscribe(
        &mut self,
        directory: &Directory,
        id: ConnId,
        subscriptions: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
        give: impl FnMut(&Message, MatchedSubscription<'_>) -> bool,
    ) -> bool {
        if !subscriptions.contains(kind, name) {
            return false;
        }
        // Publishers no longer count this subscription; earlier messages that counted it are
        // delivered below.
        let freed_bytes = directory.remove(kind, name, self.reactor);
        self.catch_up(directory, id, subscriptions, give);
        let before_bytes = subscriptions.memory_bytes();
        let struck_bytes = self.strike(id, kind, name);
        subscriptions.remove(kind, name);
        self.note_growth(before_bytes + freed_bytes + struck_bytes, subscriptions.memory_bytes());
        if subscriptions.total() == 0 {
            directory.remove_client();
        }
        self.drop_pending_if_alone(directory);
        true
    }

    /// Ends all subscriptions of a connection, for example because it closes.
    pub(crate) fn forget(
        &mut self,
        directory: &Directory,
        id: ConnId,
        subscriptions: &Subscriptions,
    ) {
        self.note_growth(subscriptions.memory_bytes(), 0);
        for kind in Kind::ALL {
            for name in subscriptions.names(kind) {
                let freed_bytes = directory.remove(kind, name, self.reactor);
                let struck_bytes = self.strike(id, kind, name);
                self.note_growth(freed_bytes + struck_bytes, 0);
            }
        }
        if subscriptions.total() > 0 {
            directory.remove_client();
        }
        self.drop_pending_if_alone(directory);
    }

    /// Removes one subscription. Returns the bytes freed here.
    fn strike(&mut self, id: ConnId, kind: Kind, name: &[u8]) -> usize {
        let table = &mut self.subscribers[kind.index()];
        let Some(subscribers) = table.get_mut(name) else { return 0 };
        let before_bytes = subscribers_bytes(subscribers);
        subscribers.remove(&id);
        let freed_bytes = before_bytes - subscribers_bytes(subscribers);
        if !subscribers.is_empty() {
            return freed_bytes;
        }
        let before_bytes = table.memory_bytes();
        table.remove(name);
        freed_bytes + before_bytes - table.memory_bytes()
    }

    fn note_growth(&mut self, before_bytes: usize, after_bytes: usize) {
        self.grown_bytes += after_bytes.wrapping_sub(before_bytes).cast_signed();
    }

    /// Returns the growth of the memory of subscriptions since the last call, which may be
    /// negative.
    pub(crate) fn take_grown_bytes(&mut self) -> isize {
        std::mem::take(&mut self.grown_bytes)
    }

    /// Drops the pending messages if no subscriber is left: a reactor that stops would not deliver
    /// them.
    fn drop_pending_if_alone(&mut self, directory: &Directory) {
        if !self.subscribers.iter().all(Table::is_empty) {
            return;
        }
        self.take(directory);
        for (_, message) in self.pending.drain(..) {
            self.has_opened |= directory.delivered(self.reactor, message.memory_bytes());
        }
        self.place = Place::default();
    }

    /// Takes messages from the directory. False if there is nothing to deliver.
    pub(crate) fn take(&mut self, directory: &Directory) -> bool {
        if let Some(next) = directory.take(self.reactor, &mut self.pending) {
            self.taken = next;
        }
        !self.pending.is_empty()
    }

    /// Returns the oldest message that is not completely delivered, with its number.
    pub(crate) fn front(&self) -> Option<(u64, Arc<Message>)> {
        self.pending.front().map(|(number, message)| (*number, Arc::clone(message)))
    }

    /// Delivery position of the oldest message.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Saves the delivery position when the turn ends before all receivers are served.
    pub(crate) fn leave_at(&mut self, place: Place) {
        self.place = place;
    }

    /// Removes the oldest message, which all receivers have received.
    pub(crate) fn finish_front(&mut self, directory: &Directory) {
        if let Some((_, message)) = self.pending.pop_front() {
            self.has_opened |= directory.delivered(self.reactor, message.memory_bytes());
        }
        self.place = Place::default();
        if self.pending.is_empty() && self.pending.capacity() > PENDING_KEPT_MAX {
            self.pending = VecDeque::new();
        }
    }

    /// Whether to resume the connections that wait for space in this reactor's queue.
    pub(crate) fn take_opened_flag(&mut self) -> bool {
        std::mem::take(&mut self.has_opened)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Delivers to a connection, in order, the undelivered messages that were published to it so
    /// far. `give` returns whether the connection may receive more; if not, the connection is cut
    /// off, and this function returns false.
    pub(crate) fn catch_up(
        &mut self,
        directory: &Directory,
        id: ConnId,
        subscriptions: &mut Subscriptions,
        mut give: impl FnMut(&Message, MatchedSubscription<'_>) -> bool,
    ) -> bool {
        self.take(directory);
        if subscriptions.is_cut || subscriptions.seen == self.taken {
            return !subscriptions.is_cut;
        }
        let start = self.pending.partition_point(|(number, _)| *number < subscriptions.seen);
        for (pending_index, (number, message)) in self.pending.range(start..).enumerate() {
            let is_front = start + pending_index == 0;
            let place = if is_front { self.place } else { Place::default() };
            for (index, matched) in message.matched_subscriptions().enumerate() {
                let is_due = !place.has_passed(index, id) && self.receives(id, *number, matched);
                if is_due && !give(message, matched) {
                    subscriptions.is_cut = true;
                    return false;
                }
            }
        }
        subscriptions.seen = self.taken;
        true
    }

    /// Returns the connections that receive a message through this subscription, in order, after
    /// connection `after`.
    pub(crate) fn receivers(
        &self,
        number: u64,
        matched: MatchedSubscription<'_>,
        after: Option<ConnId>,
    ) -> impl Iterator<Item = ConnId> {
        let bounds = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let subscribers = self.subscribers[matched.kind.index()].get(matched.name);
        let subscribers = subscribers.into_iter().flat_map(move |all| all.range(bounds));
        subscribers.filter(move |(_, first)| **first <= number).map(|(id, _)| *id)
    }

    /// Whether a connection receives the message through this subscription.
    fn receives(&self, id: ConnId, number: u64, matched: MatchedSubscription<'_>) -> bool {
        let subscribers = self.subscribers[matched.kind.index()].get(matched.name);
        subscribers.and_then(|all| all.get(&id)).is_some_and(|first| *first <= number)
    }

    /// Keeps a message until its transaction is in the log.
    pub(crate) fn defer(&mut self, post: &Publication<'_>) {
        self.deferred.push(post);
    }

    /// Like [`SubscriberTable::defer`], for a channel name in two parts, if the channel may have subscribers.
    pub(crate) fn defer_if_subscribed(
        &mut self,
        directory: &Directory,
        channel: [&[u8]; 2],
        payload: &[u8],
    ) {
        self.deferred.push_parts(Kind::Channel, channel, payload);
        if !self.deferred.last().is_some_and(|post| directory.may_have_subscribers(&post)) {
            self.deferred.drop_last();
        }
    }

    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.deferred.len() > 0
    }

    /// Drops the deferred messages.
    pub(crate) fn drop_deferred(&mut self) {
        self.deferred = Publications::default();
    }

    /// Queues the deferred messages, to be delivered once the log is durable up to `gate`.
    pub(crate) fn queue_deferred(&mut self, directory: &Directory, gate: Gate) {
        directory.queue(std::mem::take(&mut self.deferred), gate);
    }

    /// Compares queued messages with the patterns within this turn's limit.
    pub(crate) fn match_some(&mut self, directory: &Directory, wake: impl FnMut(usize)) {
        directory.match_some(&mut self.match_steps_left, wake);
        self.has_opened |= directory.take_matched_flag();
    }

    /// Ends the turn. True if it used up its steps while messages remain.
    pub(crate) fn has_matched_its_share(&mut self, directory: &Directory) -> bool {
        let steps_left = std::mem::replace(&mut self.match_steps_left, MATCH_STEPS_MAX);
        steps_left == 0 && directory.has_unmatched() && !directory.is_any_full()
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscriptions::SUBSCRIPTIONS_MAX;
    use super::*;

    const MATCHED: MatchedSubscription<'_> =
        MatchedSubscription { kind: Kind::Channel, name: b"a" };

    fn publish(directory: &Directory, payload: &str) {
        let post = Publication { channel: b"a", payload: payload.as_bytes(), kind: Kind::Channel };
        directory.publish(&post, Gate::OPEN, |_| ());
    }

    /// Messages that a connection receives when it catches up.
    fn caught_up(
        directory: &Directory,
        table: &mut SubscriberTable,
        id: u64,
        mine: &mut Subscriptions,
    ) -> Vec<String> {
        let mut texts = Vec::new();
        assert!(table.catch_up(directory, ConnId(id), mine, |message, matched| {
            let sort = if matched.kind == Kind::Pattern { "by pattern " } else { "" };
            texts.push(format!("{sort}{}", String::from_utf8_lossy(message.payload())));
            true
        }));
        texts
    }

    #[test]
    fn a_late_subscriber_gets_only_later_messages() {
        let (directory, mut table) = (Directory::new(1), SubscriberTable::new(0));
        let (mut early, mut late) = (Subscriptions::default(), Subscriptions::default());
        let subscribe = |table: &mut SubscriberTable, id, mine: &mut Subscriptions| {
            table.subscribe(&directory, ConnId(id), mine, Kind::Channel, b"a")
        };
        assert_eq!(subscribe(&mut table, 1, &mut early), Ok(true));
        assert_eq!(subscribe(&mut table, 1, &mut early), Ok(false));
        publish(&directory, "first");
        assert_eq!(subscribe(&mut table, 2, &mut late), Ok(true));
        publish(&directory, "second");
        assert_eq!(directory.clients(), 2);
        assert_eq!(caught_up(&directory, &mut table, 2, &mut late), ["second"]);
        assert_eq!(caught_up(&directory, &mut table, 1, &mut early), ["first", "second"]);
        assert_eq!(caught_up(&directory, &mut table, 1, &mut early), [""; 0]);
        let (number, message) = table.front().unwrap();
        assert_eq!(message.payload(), b"first");
        assert_eq!(table.receivers(number, MATCHED, None).collect::<Vec<_>>(), [ConnId(1)]);
        table.finish_front(&directory);
        let (number, _) = table.front().unwrap();
        assert_eq!(table.receivers(number, MATCHED, None).count(), 2);
        assert_eq!(
            table.receivers(number, MATCHED, Some(ConnId(1))).collect::<Vec<_>>(),
            [ConnId(2)]
        );
        let mut unsubscribe = |table: &mut SubscriberTable| {
            let nothing = |_: &Message, _: MatchedSubscription<'_>| -> bool {
                panic!("nothing is left to deliver")
            };
            table.unsubscribe(&directory, ConnId(1), &mut early, Kind::Channel, b"a", nothing)
        };
        assert!(unsubscribe(&mut table));
        assert!(!unsubscribe(&mut table));
        assert_eq!(table.receivers(number, MATCHED, None).collect::<Vec<_>>(), [ConnId(2)]);
        assert_eq!(directory.clients(), 1);
    }

    #[test]
    fn a_leaving_subscriber_gets_earlier_messages() {
        let (directory, mut table) = (Directory::new(1), SubscriberTable::new(0));
        let mut mine = Subscriptions::default();
        table.subscribe(&directory, ConnId(1), &mut mine, Kind::Channel, b"a").unwrap();
        publish(&directory, "x");
        let mut got = Vec::new();
        let give = |message: &Message, _: MatchedSubscription<'_>| {
            got.push(message.payload().to_vec());
            true
        };
        assert!(table.unsubscribe(&directory, ConnId(1), &mut mine, Kind::Channel, b"a", give));
        assert_eq!(got, [b"x"]);
        assert!(!table.has_pending());
    }

    #[test]
    fn a_message_that_was_handed_out_in_part_comes_once() {
        let (directory, mut table) = (Directory::new(1), SubscriberTable::new(0));
        let mut all: Vec<_> = (0..4).map(|_| Subscriptions::default()).collect();
        for (id, mine) in (0..).zip(&mut all) {
            for (kind, name) in [(Kind::Channel, b"a"), (Kind::Pattern, b"*")] {
                table.subscribe(&directory, ConnId(id), mine, kind, name).unwrap();
            }
        }
        publish(&directory, "x");
        publish(&directory, "y");
        assert!(table.take(&directory));
        // Every subscriber has the message by name, and the first two by pattern.
        table.leave_at(Place { subscription_index: 1, after: Some(ConnId(1)) });
        for (id, expected) in
            [(1, &["y", "by pattern y"][..]), (2, &["by pattern x", "y", "by pattern y"][..])]
        {
            let mine = &mut all[usize::try_from(id).unwrap()];
            assert_eq!(caught_up(&directory, &mut table, id, mine), expected);
        }
        let (number, message) = table.front().unwrap();
        let matched =
            message.matched_subscriptions().nth(table.place().subscription_index).unwrap();
        let left: Vec<_> = table.receivers(number, matched, table.place().after).collect();
        assert_eq!(left, [ConnId(2), ConnId(3)]);
        table.finish_front(&directory);
        let place = table.place();
        assert_eq!((place.subscription_index, place.after), (0, None));
    }

    #[test]
    fn nothing_is_left_of_the_last_one() {
        let (directory, mut table) = (Directory::new(1), SubscriberTable::new(0));
        let mut mine = Subscriptions::default();
        for (kind, name) in [(Kind::Channel, b"a"), (Kind::Pattern, b"*")] {
            table.subscribe(&directory, ConnId(1), &mut mine, kind, name).unwrap();
        }
        publish(&directory, &"x".repeat(super::super::directory::PENDING_BYTES_MAX));
        assert!(directory.is_any_full());
        table.forget(&directory, ConnId(1), &mine);
        assert!(!directory.is_any_full() && !table.has_pending());
        assert!(table.take_opened_flag() && !table.take_opened_flag());
        assert_eq!(directory.clients(), 0);
        assert!(Kind::ALL.iter().all(|kind| directory.names(*kind) == 0));
    }

    #[test]
    fn a_connection_has_a_limit_and_one_name_counts_once() {
        let (directory, mut table) = (Directory::new(1), SubscriberTable::new(0));
        let mut mine = Subscriptions::default();
        let mut subscribe = |name: usize, mine: &mut Subscriptions| {
            let name = name.to_string();
            table.subscribe(&directory, ConnId(1), mine, Kind::Channel, name.as_bytes())
        };
        for name in 0..SUBSCRIPTIONS_MAX {
            assert_eq!(subscribe(name, &mut mine), Ok(true));
        }
        assert_eq!(subscribe(SUBSCRIPTIONS_MAX, &mut mine), Err(Refusal::Subscriptions));
        assert_eq!(subscribe(7, &mut mine), Ok(false));
        assert_eq!(directory.names(Kind::Channel), SUBSCRIPTIONS_MAX);
    }

    #[test]
    fn the_memory_of_subscriptions_is_charged_and_released() {
        const NAMES: usize = 1_000;
        let (directory, mut table) = (Directory::new(2), SubscriberTable::new(0));
        let mut connections: Vec<_> = (0..8).map(|_| Subscriptions::default()).collect();
        let mut bytes = 0;
        for (id, mine) in (0..).zip(&mut connections) {
            for number in 0..NAMES {
                let name = format!("channel:{number}");
                table
                    .subscribe(&directory, ConnId(id), mine, Kind::Channel, name.as_bytes())
                    .unwrap();
            }
            let grown_bytes = table.take_grown_bytes();
            bytes += grown_bytes;
            let per_name = usize::try_from(grown_bytes).unwrap() / NAMES;
            // The first connection allocates names, tables and trees; later ones only add entries
            // to them.
            let expected = if id == 0 { 300..500 } else { 30..60 };
            assert!(expected.contains(&per_name), "connection {id}: {per_name} bytes for a name");
        }
        let mut last = connections.pop().unwrap();
        for (id, mine) in (0..).zip(&connections) {
            table.forget(&directory, ConnId(id), mine);
        }
        for number in 0..NAMES {
            let name = format!("channel:{number}");
            let give = |_: &Message, _: MatchedSubscription<'_>| true;
            table.unsubscribe(
                &directory,
                ConnId(7),
                &mut last,
                Kind::Channel,
                name.as_bytes(),
                give,
            );
        }
        assert_eq!(bytes + table.take_grown_bytes(), 0);
    }
}
