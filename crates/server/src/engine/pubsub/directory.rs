//! State shared by all reactors: subscribers by reactor, and messages in transit.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use smallvec::SmallVec;

use super::message::{Body, Kind, Message, Name, Publication, Publications};
use super::outbox::Outbox;
use super::table::{Table, block_bytes, name_bytes, tree_bytes};
use crate::engine::gate::Gate;
use crate::engine::glob::Steps;

/// Locks shared by the channels: enough that reactors seldom contend for one.
const PARTS: usize = 64;

/// Distinct patterns of all connections: every message is compared with every pattern.
pub(super) const PATTERNS_MAX: usize = 10_000;
/// Maximum bytes of one pattern: matching takes a step per byte of the pattern and of the channel,
/// under locks.
const PATTERN_BYTES_MAX: usize = 1024;

/// Steps to compare one message with all patterns, about 5 ms, divided evenly among the patterns.
const PATTERN_STEPS_MAX: u64 = 1 << 22;
/// Fixed cost of a pattern in steps: to reach it and its bytes.
const PATTERN_STEPS: u64 = 24;
/// Fixed cost of a message in steps: to create it and to queue it.
const MESSAGE_STEPS: u64 = 512;
/// A typical pattern and channel need fewer steps.
const _: () = assert!(PATTERN_STEPS_MAX / PATTERNS_MAX as u64 > 400);

/// Bytes of messages that wait for one reactor. A connection that publishes more waits until half
/// of them are delivered, so each connection exceeds the limit by one request at most; other
/// connections are served. Background expiry is paused meanwhile. Small in unit tests, so that they
/// can reach the limit.
pub(super) const PENDING_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// Reason why a subscription was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("ERR too many subscriptions for this connection")]
    Subscriptions,
    #[error("ERR too many patterns")]
    Patterns,
    #[error("ERR the pattern is too long")]
    PatternLength,
}

/// Number of connections by reactor.
#[derive(Debug)]
struct Places(Box<[u32]>);

impl Places {
    fn new(reactors: usize) -> Places {
        Places(vec![0; reactors].into())
    }

    fn sum(&self) -> usize {
        self.0.iter().map(|count| *count as usize).sum()
    }

    /// Removes one connection. True if none is left.
    fn leave(&mut self, reactor: usize) -> bool {
        self.0[reactor] -= 1;
        self.sum() == 0
    }
}

/// A subscription added to the directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// The shared copy of the name.
    pub(super) name: Name,
    /// Number of the first message that the reactor delivers to it: earlier messages were published
    /// before.
    pub(super) first: u64,
    /// Growth of the directory in bytes.
    pub(super) grown_bytes: usize,
}

type Patterns = BTreeMap<Name, Places>;

/// One shard of the channels.
#[derive(Debug, Default)]
struct Part {
    channels: Table<Places>,
    shard_channels: Table<Places>,
}

impl Part {
    fn of(&self, kind: Kind) -> &Table<Places> {
        match kind {
            Kind::ShardChannel => &self.shard_channels,
            Kind::Channel | Kind::Pattern => &self.channels,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Table<Places> {
        match kind {
            Kind::ShardChannel => &mut self.shard_channels,
            Kind::Channel | Kind::Pattern => &mut self.channels,
        }
    }
}

/// Messages that one reactor has not taken yet. On its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Queue {
    /// Read without the lock.
    len: AtomicUsize,
    /// Bytes of undelivered messages, including messages that the reactor has taken.
    pending_bytes: AtomicUsize,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: Vec<Arc<Message>>,
    /// Number of the next message.
    next: u64,
}

impl Queue {
    /// Returns true if the queue was empty: the reactor must then be woken.
    fn push(&self, message: Arc<Message>) -> bool {
        let mut state = self.state.lock();
        state.messages.push(message);
        state.next += 1;
        self.len.store(state.messages.len(), Ordering::Release);
        state.messages.len() == 1
    }

    fn next(&self) -> u64 {
        self.state.lock().next
    }
}

/// Result of publishing a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Number of connections that receive it.
    pub(crate) receivers: usize,
    /// A reactor whose queue is full, including this message.
    pub(crate) full: Option<usize>,
    /// Steps taken to find the receivers.
    pub(crate) steps: u64,
}

/// Reason why a connection waits after it published messages or made changes that did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// The queue of a reactor is full.
    Full(usize),
    /// Messages about changes are not yet compared with all patterns.
    Unmatched,
}

/// Receivers of a message.
#[derive(Debug, Default)]
struct Receivers {
    by_reactor: SmallVec<[u32; 16]>,
    patterns: Vec<Name>,
    steps: u64,
}

impl Receivers {
    fn of(part: &Part, patterns: Option<&Patterns>, post: &Publication<'_>) -> Receivers {
        let mut receivers = Receivers { steps: MESSAGE_STEPS, ..Receivers::default() };
        if let Some(places) = part.of(post.kind).get(post.channel) {
            receivers.add(places);
        }
        let count = patterns.map_or(0, BTreeMap::len).max(1) as u64;
        let share = PATTERN_STEPS_MAX / count;
        for (pattern, places) in patterns.into_iter().flatten() {
            let steps = Steps::new(share);
            if steps.matches(pattern, post.channel) {
                receivers.add(places);
                receivers.patterns.push(Name::clone(pattern));
            }
            receivers.steps += PATTERN_STEPS + share - steps.left();
        }
        receivers
    }

    fn add(&mut self, places: &Places) {
        self.by_reactor.resize(places.0.len(), 0);
        for (sum, count) in self.by_reactor.iter_mut().zip(&places.0) {
            *sum = sum.saturating_add(*count);
        }
    }

    fn sent(&self) -> Sent {
        let receivers = self.by_reactor.iter().map(|count| *count as usize).sum();
        Sent { receivers, full: None, steps: self.steps }
    }
}

/// See the module documentation. Lock order: the outbox, a part, the patterns, a queue.
#[derive(Debug)]
pub(crate) struct Directory {
    parts: Box<[Mutex<Part>]>,
    patterns: RwLock<Patterns>,
    queues: Box<[Queue]>,
    outbox: Outbox,
    /// Number of names with subscribers, by kind: nothing is locked if there are none.
    names: [AtomicUsize; Kind::COUNT],
    /// Number of connections with subscriptions.
    clients: AtomicUsize,
    /// Number of connections that were closed because of unread output.
    cut_clients: AtomicU64,
    /// Number of reactors whose queue is full.
    full_queues: AtomicUsize,
    hasher: RandomState,
}

impl Directory {
    pub(crate) fn new(reactors: usize) -> Directory {
        Directory {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            patterns: RwLock::default(),
            queues: (0..reactors).map(|_| Queue::default()).collect(),
            outbox: Outbox::default(),
            names: Default::default(),
            clients: AtomicUsize::new(0),
            cut_clients: AtomicU64::new(0),
            full_queues: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }

    fn part(&self, channel: &[u8]) -> &Mutex<Part> {
        let hash = usize::try_from(self.hasher.hash_one(channel) % PARTS as u64);
        &self.parts[hash.expect("less than the number of parts")]
    }

    /// Adds a subscription of one of the reactor's connections.
    pub(super) fn add(&self, kind: Kind, name: &[u8], reactor: usize) -> Result<Added, Refusal> {
        if kind == Kind::Pattern {
            return self.add_pattern(name, reactor);
        }
        let mut part = self.part(name).lock();
        let table = part.of_mut(kind);
        if let Some((name, places)) = table.entry_mut(name) {
            places.0[reactor] += 1;
            return Ok(self.added(name, reactor, 0));
        }
        let before_bytes = table.memory_bytes();
        let name = Name::from(name);
        table.insert(Name::clone(&name), self.new_places(kind, reactor));
        let grown_bytes = table.memory_bytes() - before_bytes + self.entry_bytes(&name);
        Ok(self.added(name, reactor, grown_bytes))
    }

    fn add_pattern(&self, name: &[u8], reactor: usize) -> Result<Added, Refusal> {
        if name.len() > PATTERN_BYTES_MAX {
            return Err(Refusal::PatternLength);
        }
        let mut patterns = self.patterns.write();
        let known = patterns.get_key_value(name).map(|(known, _)| Name::clone(known));
        if let (Some(name), Some(places)) = (known, patterns.get_mut(name)) {
            places.0[reactor] += 1;
            return Ok(self.added(name, reactor, 0));
        }
        if patterns.len() >= PATTERNS_MAX {
            return Err(Refusal::Patterns);
        }
        let before_bytes = patterns_bytes(&patterns);
        let name = Name::from(name);
        patterns.insert(Name::clone(&name), self.new_places(Kind::Pattern, reactor));
        let grown_bytes = patterns_bytes(&patterns) - before_bytes + self.entry_bytes(&name);
        Ok(self.added(name, reactor, grown_bytes))
    }

    /// To be called under the lock that publishers hold, too.
    fn added(&self, name: Name, reactor: usize, grown_bytes: usize) -> Added {
        Added { name, first: self.queues[reactor].next(), grown_bytes }
    }

    /// Places of a new name with one connection.
    fn new_places(&self, kind: Kind, reactor: usize) -> Places {
        self.names[kind.index()].fetch_add(1, Ordering::AcqRel);
        let mut places = Places::new(self.queues.len());
        places.0[reactor] = 1;
        places
    }

    /// Memory of a name apart from its slot in a table or a tree.
    fn entry_bytes(&self, name: &[u8]) -> usize {
        name_bytes(name) + block_bytes(self.queues.len() * size_of::<u32>())
    }

    /// Removes a subscription of one of the reactor's connections. Returns the bytes by which the
    /// directory has shrunk.
    pub(super) fn remove(&self, kind: Kind, name: &[u8], reactor: usize) -> usize {
        let freed_bytes = if kind == Kind::Pattern {
            let mut patterns = self.patterns.write();
            if !patterns.get_mut(name).is_some_and(|places| places.leave(reactor)) {
                return 0;
            }
            let before_bytes = patterns_bytes(&patterns);
            patterns.remove(name);
            before_bytes - patterns_bytes(&patterns)
        } else {
            let mut part = self.part(name).lock();
            let table = part.of_mut(kind);
            if !table.get_mut(name).is_some_and(|places| places.leave(reactor)) {
                return 0;
            }
            let before_bytes = table.memory_bytes();
            table.remove(name);
            before_bytes - table.memory_bytes()
        };
        self.names[kind.index()].fetch_sub(1, Ordering::AcqRel);
        freed_bytes + self.entry_bytes(name)
    }

    /// Counts the connections that would receive this message now. A connection counts once for
    /// each matching subscription.
    pub(crate) fn count(&self, post: &Publication<'_>) -> Sent {
        if !self.may_have_subscribers(post) {
            return Sent::default();
        }
        let part = self.part(post.channel).lock();
        Receivers::of(&part, self.patterns_for(post).as_deref(), post).sent()
    }

    /// Queues messages about data changes, in the order of the changes, for
    /// [`Directory::match_some`]: a command may produce more than can be compared with all patterns
    /// in one turn.
    pub(super) fn queue(&self, posts: Publications, gate: Gate) {
        self.outbox.put(posts, gate);
    }

    /// Publishes queued messages, oldest first, while steps remain and no reactor's queue is full.
    pub(super) fn match_some(&self, steps_left: &mut u64, mut wake: impl FnMut(usize)) {
        while *steps_left > 0 && self.has_unmatched() && !self.is_any_full() {
            let sent = self.outbox.take(|post, gate| self.publish(post, gate, &mut wake));
            // Another reactor is publishing one, and continues with the next.
            let Some(sent) = sent else { return };
            *steps_left = steps_left.saturating_sub(sent.steps.max(MESSAGE_STEPS));
        }
    }

    pub(crate) fn has_unmatched(&self) -> bool {
        self.outbox.len() > 0
    }

    /// Bytes of queued messages.
    pub(crate) fn unmatched_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// Whether to resume the connections that wait because of [`Backlog::Unmatched`].
    pub(super) fn take_matched_flag(&self) -> bool {
        self.outbox.take_emptied_flag()
    }

    /// Whether a connection must still wait. If so, its reactor is woken when the wait ends.
    pub(crate) fn stays(&self, backlog: Backlog) -> bool {
        match backlog {
            Backlog::Full(reactor) => !self.has_room(reactor),
            Backlog::Unmatched => self.outbox.stays(),
        }
    }

    /// Sends a message to all subscribers. `gate` as in [`Message::gate`]; `wake` is called for
    /// idle reactors.
    pub(crate) fn publish(
        &self,
        post: &Publication<'_>,
        gate: Gate,
        wake: impl FnMut(usize),
    ) -> Sent {
        if !self.may_have_subscribers(post) {
            return Sent::default();
        }
        // Built before taking the locks, because the message may be large.
        let body = Body::of(post);
        let part = self.part(post.channel).lock();
        let patterns = self.patterns_for(post);
        let mut receivers = Receivers::of(&part, patterns.as_deref(), post);
        let mut sent = receivers.sent();
        if sent.receivers == 0 {
            return sent;
        }
        let message = Arc::new(Message::new(body, std::mem::take(&mut receivers.patterns), gate));
        let mut idle: SmallVec<[usize; 16]> = SmallVec::new();
        for (reactor, _) in receivers.by_reactor.iter().enumerate().filter(|(_, count)| **count > 0)
        {
            if self.note_sent(reactor, message.memory_bytes()) {
                sent.full = Some(reactor);
            }
            if self.queues[reactor].push(Arc::clone(&message)) {
                idle.push(reactor);
            }
        }
        drop(patterns);
        drop(part);
        // After releasing the locks: a wakeup takes a system call.
        idle.into_iter().for_each(wake);
        sent
    }

    /// Returns true if the reactor's queue is now full.
    fn note_sent(&self, reactor: usize, bytes: usize) -> bool {
        let before = self.queues[reactor].pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_full = before + bytes > PENDING_BYTES_MAX;
        if is_full && before <= PENDING_BYTES_MAX {
            self.full_queues.fetch_add(1, Ordering::Relaxed);
        }
        is_full
    }

    /// False if there is certainly no subscriber. Costs almost nothing while there are no
    /// subscriptions.
    pub(super) fn may_have_subscribers(&self, post: &Publication<'_>) -> bool {
        self.has_matching_pattern(post)
            || (self.names(post.kind) > 0
                && self.part(post.channel).lock().of(post.kind).get(post.channel).is_some())
    }

    fn patterns_for(&self, post: &Publication<'_>) -> Option<RwLockReadGuard<'_, Patterns>> {
        self.has_matching_pattern(post).then(|| self.patterns.read())
    }

    fn has_matching_pattern(&self, post: &Publication<'_>) -> bool {
        post.kind == Kind::Channel && self.names(Kind::Pattern) > 0
    }

    /// Appends the messages that wait for a reactor, with their numbers. Returns the number after
    /// the last one, or `None` if there are none.
    pub(super) fn take(
        &self,
        reactor: usize,
        pending: &mut VecDeque<(u64, Arc<Message>)>,
    ) -> Option<u64> {
        let queue = &self.queues[reactor];
        if queue.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = queue.state.lock();
        let messages = std::mem::take(&mut state.messages);
        queue.len.store(0, Ordering::Release);
        let next = state.next;
        drop(state);
        let first = next - messages.len() as u64;
        pending.extend((first..).zip(messages));
        Some(next)
    }

    /// Whether the queue of any reactor is full.
    pub(crate) fn is_any_full(&self) -> bool {
        self.full_queues.load(Ordering::Relaxed) > 0
    }

    /// Bytes of undelivered messages to a reactor.
    pub(crate) fn pending_bytes(&self, reactor: usize) -> usize {
        self.queues[reactor].pending_bytes.load(Ordering::Relaxed)
    }

    /// Whether connections that filled a reactor's queue may publish again.
    fn has_room(&self, reactor: usize) -> bool {
        self.pending_bytes(reactor) <= PENDING_BYTES_MAX / 2
    }

    /// Records that a reactor has delivered or dropped a message of this size. True if this made
    /// space in a full queue.
    pub(super) fn delivered(&self, reactor: usize, bytes: usize) -> bool {
        let before = self.queues[reactor].pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let after = before - bytes;
        if before > PENDING_BYTES_MAX && after <= PENDING_BYTES_MAX {
            self.full_queues.fetch_sub(1, Ordering::Relaxed);
        }
        before > PENDING_BYTES_MAX / 2 && after <= PENDING_BYTES_MAX / 2
    }

    pub(super) fn add_client(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_client(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Counts a connection that is closed because of unread output.
    pub(crate) fn client_cut(&self) {
        self.cut_clients.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cut_clients(&self) -> u64 {
        self.cut_clients.load(Ordering::Relaxed)
    }

    /// Number of names with subscribers.
    pub(crate) fn names(&self, kind: Kind) -> usize {
        self.names[kind.index()].load(Ordering::Acquire)
    }

    /// Number of connections subscribed to a channel by its name.
    pub(crate) fn subscribers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.part(channel).lock().of(kind).get(channel).map_or(0, Places::sum)
    }

    /// Returns the matching channels with at least one subscriber by name, in order. `None` if the
    /// comparison takes too long.
    pub(crate) fn channels(&self, kind: Kind, pattern: Option<&[u8]>) -> Option<Vec<Name>> {
        let steps = Steps::default();
        let fits = |name: &&Name| pattern.is_none_or(|pattern| steps.matches(pattern, name));
        let mut names = Vec::new();
        for part in &self.parts {
            names.extend(part.lock().of(kind).names().filter(fits).cloned());
        }
        names.sort_unstable();
        (!steps.is_exhausted()).then_some(names)
    }
}

/// Estimated memory of the pattern tree, without the patterns.
fn patterns_bytes(patterns: &Patterns) -> usize {
    tree_bytes(patterns.len(), size_of::<(Name, Places)>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from(text.as_bytes())
    }

    /// Returns the number of the first message that a new subscriber receives.
    fn add(directory: &Directory, kind: Kind, name: &str, reactor: usize) -> Result<u64, Refusal> {
        directory.add(kind, name.as_bytes(), reactor).map(|added| added.first)
    }

    fn post<'a>(channel: &'a str, payload: &'a str) -> Publication<'a> {
        Publication {
            channel: channel.as_bytes(),
            payload: payload.as_bytes(),
            kind: Kind::Channel,
        }
    }

    /// Numbers and payloads of the messages that wait for a reactor.
    fn taken(directory: &Directory, reactor: usize) -> Vec<(u64, String)> {
        let mut pending = VecDeque::new();
        directory.take(reactor, &mut pending);
        let text = |message: &Message| String::from_utf8(message.payload().to_vec()).unwrap();
        pending.into_iter().map(|(number, message)| (number, text(&message))).collect()
    }

    fn woken(directory: &Directory, post: &Publication<'_>) -> (usize, Vec<usize>) {
        let woken = std::cell::RefCell::new(Vec::new());
        let total = directory.publish(post, Gate::OPEN, |reactor| woken.borrow_mut().push(reactor));
        (total.receivers, woken.into_inner())
    }

    #[test]
    fn a_message_goes_to_reactors_with_receivers_and_wakes_those_with_nothing_else() {
        let directory = Directory::new(3);
        assert_eq!(woken(&directory, &post("a", "0")), (0, vec![]));
        assert_eq!(add(&directory, Kind::Channel, "a", 1), Ok(0));
        assert_eq!(add(&directory, Kind::Channel, "a", 1), Ok(0));
        assert_eq!(add(&directory, Kind::Pattern, "[ab]", 2), Ok(0));
        assert_eq!(directory.count(&post("a", "")).receivers, 3);
        assert_eq!(woken(&directory, &post("a", "1")), (3, vec![1, 2]));
        assert_eq!(woken(&directory, &post("a", "2")), (3, vec![]));
        assert_eq!(woken(&directory, &post("b", "3")), (1, vec![]));
        assert_eq!(woken(&directory, &post("c", "4")), (0, vec![]));
        assert_eq!(taken(&directory, 0), []);
        assert_eq!(taken(&directory, 1), [(0, "1".to_owned()), (1, "2".to_owned())]);
        assert_eq!(add(&directory, Kind::Channel, "b", 2), Ok(3), "it gets what follows");
        let all: Vec<_> = taken(&directory, 2).into_iter().map(|(number, _)| number).collect();
        assert_eq!(all, [0, 1, 2]);
        assert_eq!(woken(&directory, &post("a", "5")), (3, vec![1, 2]));
    }

    #[test]
    fn names_live_as_long_as_somebody_has_them() {
        let directory = Directory::new(2);
        for kind in Kind::ALL {
            add(&directory, kind, "x", 0).unwrap();
            add(&directory, kind, "x", 1).unwrap();
            add(&directory, kind, "y", 1).unwrap();
            assert_eq!(directory.names(kind), 2);
            directory.remove(kind, b"x", 0);
            assert_eq!(directory.names(kind), 2);
            directory.remove(kind, b"x", 1);
            directory.remove(kind, b"unknown", 1);
            assert_eq!(directory.names(kind), 1);
        }
        assert_eq!(directory.channels(Kind::Channel, None).unwrap(), [name("y")]);
        assert_eq!(directory.channels(Kind::ShardChannel, Some(b"x*")).unwrap(), []);
        assert_eq!(directory.subscribers(Kind::Channel, b"y"), 1);
        assert_eq!(directory.subscribers(Kind::Channel, b"x"), 0);
    }

    #[test]
    fn patterns_do_not_see_sharded_messages_and_kinds_are_apart() {
        let directory = Directory::new(1);
        add(&directory, Kind::Pattern, "*", 0).unwrap();
        add(&directory, Kind::ShardChannel, "s", 0).unwrap();
        let sharded = Publication { kind: Kind::ShardChannel, ..post("s", "x") };
        let receivers =
            |post: &Publication<'_>| directory.publish(post, Gate::OPEN, |_| ()).receivers;
        assert_eq!(receivers(&sharded), 1);
        assert_eq!(receivers(&post("s", "x")), 1);
        directory.remove(Kind::Pattern, b"*", 0);
        assert_eq!(receivers(&post("s", "x")), 0);
    }

    #[test]
    fn undelivered_messages_are_bounded_per_reactor() {
        let directory = Directory::new(2);
        add(&directory, Kind::Channel, "both", 0).unwrap();
        add(&directory, Kind::Channel, "both", 1).unwrap();
        add(&directory, Kind::Channel, "first", 0).unwrap();
        let payload = "x".repeat(PENDING_BYTES_MAX / 4);
        let full =
            |channel: &str| directory.publish(&post(channel, &payload), Gate::OPEN, |_| ()).full;
        assert_eq!([full("both"), full("first"), full("first")], [None; 3]);
        assert!(!directory.is_any_full());
        assert_eq!(full("first"), Some(0));
        assert_eq!(full("first"), Some(0));
        assert!(directory.is_any_full() && !directory.has_room(0) && directory.has_room(1));
        let mut pending = VecDeque::new();
        directory.take(0, &mut pending);
        let opened: Vec<bool> = pending
            .into_iter()
            .map(|(_, message)| directory.delivered(0, message.memory_bytes()))
            .collect();
        // Five quarters of the limit were waiting; the queue opens again at a half.
        assert_eq!(opened, [false, false, false, true, false]);
        assert!(!directory.is_any_full() && directory.has_room(0));
    }

    #[test]
    fn patterns_have_a_limit() {
        let directory = Directory::new(1);
        for number in 0..PATTERNS_MAX {
            add(&directory, Kind::Pattern, &number.to_string(), 0).unwrap();
        }
        assert_eq!(add(&directory, Kind::Pattern, "one more", 0), Err(Refusal::Patterns));
        assert_eq!(add(&directory, Kind::Pattern, "7", 0), Ok(0), "an existing pattern");
        let long = "*".repeat(PATTERN_BYTES_MAX + 1);
        assert_eq!(add(&directory, Kind::Pattern, &long, 0), Err(Refusal::PatternLength));
        assert!(add(&directory, Kind::Channel, &long, 0).is_ok());
        directory.remove(Kind::Pattern, b"8", 0);
        assert_eq!(add(&directory, Kind::Pattern, "one more", 0), Ok(0));
    }

    #[test]
    fn memory_is_released_with_the_last_subscriber() {
        const NAMES: usize = 3_000;
        let directory = Directory::new(4);
        let mut bytes = 0;
        for kind in Kind::ALL {
            let mut kind_bytes = 0;
            for number in 0..NAMES {
                let name = number.to_string();
                let added = directory.add(kind, name.as_bytes(), 0).unwrap();
                kind_bytes += added.grown_bytes;
                let again = directory.add(kind, name.as_bytes(), 3).unwrap();
                assert!(Arc::ptr_eq(&added.name, &again.name), "a name is stored once");
                assert_eq!(again.grown_bytes, 0);
            }
            // The name, four counts, and a slot in a table that is not full.
            assert!((70..200).contains(&(kind_bytes / NAMES)), "{}", kind_bytes / NAMES);
            bytes += kind_bytes;
        }
        for kind in Kind::ALL {
            for number in 0..NAMES {
                let name = number.to_string();
                assert_eq!(directory.remove(kind, name.as_bytes(), 3), 0);
                bytes -= directory.remove(kind, name.as_bytes(), 0);
            }
        }
        assert_eq!(bytes, 0);
    }
}
