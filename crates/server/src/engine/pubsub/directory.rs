//! What all reactors share: who is where, and messages on their way.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use smallvec::SmallVec;

use super::message::{Body, Kind, Message, Name, Post, Posts};
use super::outbox::Outbox;
use super::table::{Table, block_bytes, name_bytes, tree_bytes};
use crate::engine::gate::Gate;
use crate::engine::glob::Steps;

/// Locks that channels share: so many that reactors seldom meet at one.
const PARTS: usize = 64;

/// Different patterns of all connections: every message is compared with every pattern.
pub(super) const PATTERNS_MAX: usize = 10_000;
/// Bytes of one pattern: to match one takes a step per byte of it and of the channel, under locks.
const PATTERN_BYTES_MAX: usize = 1024;

/// Steps to compare one message with all patterns, some 5 ms. Each of them has the same share.
const PATTERN_STEPS_MAX: u64 = 1 << 22;
/// What a pattern takes besides, in steps: to come to it and to its bytes.
const PATTERN_STEPS: u64 = 24;
/// What a message takes besides, in steps: to make it and to put it into queues.
const MESSAGE_STEPS: u64 = 512;
/// A usual pattern and a usual channel take no more.
const _: () = assert!(PATTERN_STEPS_MAX / PATTERNS_MAX as u64 > 400);

/// Bytes of messages that wait for one reactor. A connection that publishes more waits until half of them are
/// handed out, so that each connection exceeds the limit by one request at most; other connections are served.
/// No reactor looks for expired keys meanwhile. Small in unit tests, so that they need not fill it.
pub(super) const PENDING_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// Why nothing was subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("ERR too many subscriptions of this connection")]
    Subscriptions,
    #[error("ERR too many patterns")]
    Patterns,
    #[error("ERR the pattern is too long")]
    PatternLength,
}

/// Connections by reactor.
#[derive(Debug)]
struct Places(Box<[u32]>);

impl Places {
    fn new(reactors: usize) -> Places {
        Places(vec![0; reactors].into())
    }

    fn sum(&self) -> usize {
        self.0.iter().map(|count| *count as usize).sum()
    }

    /// One connection fewer. True if none is left.
    fn leave(&mut self, reactor: usize) -> bool {
        self.0[reactor] -= 1;
        self.sum() == 0
    }
}

/// A subscription that the directory has noted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// As all spell it who have it.
    pub(super) name: Name,
    /// Number of the first message of the reactor that it gets: those before were published earlier.
    pub(super) first: u64,
    /// What the directory has grown by.
    pub(super) grown_bytes: usize,
}

type Patterns = BTreeMap<Name, Places>;

/// Some of the channels.
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

/// Messages that one reactor has not taken yet. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Queue {
    /// Read without the lock.
    len: AtomicUsize,
    /// Bytes of messages that were not handed out, those that the reactor has taken included.
    pending_bytes: AtomicUsize,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: Vec<Arc<Message>>,
    /// Number of the message that comes next.
    next: u64,
}

impl Queue {
    /// True if nothing else was waiting: the reactor is to be told then.
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

/// A message that is on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Connections that get it.
    pub(crate) receivers: usize,
    /// A reactor that has more messages to hand out than it may, with this one.
    pub(crate) full: Option<usize>,
    /// What it took to find that out.
    pub(crate) steps: u64,
}

/// Why a connection waits after it has published messages, or made changes that did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// A reactor has more messages to hand out than it may.
    Full(usize),
    /// Messages of changes were not compared with all patterns yet.
    Unmatched,
}

/// Who gets a message.
#[derive(Debug, Default)]
struct Receivers {
    by_reactor: SmallVec<[u32; 16]>,
    patterns: Vec<Name>,
    steps: u64,
}

impl Receivers {
    fn of(part: &Part, patterns: Option<&Patterns>, post: &Post<'_>) -> Receivers {
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

/// See the module. Locks are taken in this order: the outbox, a part, the patterns, a queue.
#[derive(Debug)]
pub(crate) struct Directory {
    parts: Box<[Mutex<Part>]>,
    patterns: RwLock<Patterns>,
    queues: Box<[Queue]>,
    outbox: Outbox,
    /// Names with subscribers, by kind: where there are none nothing is locked.
    names: [AtomicUsize; Kind::COUNT],
    /// Connections with subscriptions.
    clients: AtomicUsize,
    /// Connections that were closed because they left too much unread.
    cut_clients: AtomicU64,
    /// Reactors for which too much is on its way.
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

    /// One more connection of a reactor has subscribed.
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

    /// To be called under the lock that who publishes there holds, too.
    fn added(&self, name: Name, reactor: usize, grown_bytes: usize) -> Added {
        Added { name, first: self.queues[reactor].next(), grown_bytes }
    }

    /// Of a name that was not there, with one connection.
    fn new_places(&self, kind: Kind, reactor: usize) -> Places {
        self.names[kind.index()].fetch_add(1, Ordering::AcqRel);
        let mut places = Places::new(self.queues.len());
        places.0[reactor] = 1;
        places
    }

    /// What a name takes beside its place in a table or a tree.
    fn entry_bytes(&self, name: &[u8]) -> usize {
        name_bytes(name) + block_bytes(self.queues.len() * size_of::<u32>())
    }

    /// A connection of a reactor that had subscribed does not any more. Returns what the directory has
    /// shrunk by.
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

    /// How many connections would get this message now; one counts once for each of its subscriptions
    /// that fit.
    pub(crate) fn count(&self, post: &Post<'_>) -> Sent {
        if !self.may_be_heard(post) {
            return Sent::default();
        }
        let part = self.part(post.channel).lock();
        Receivers::of(&part, self.patterns_for(post).as_deref(), post).sent()
    }

    /// Keeps messages about changes of the data, in the order in which the changes were made, until
    /// [`Directory::match_some`] comes to them: a command may leave more than can be compared with all
    /// patterns in one turn.
    pub(super) fn put_off(&self, posts: Posts, gate: Gate) {
        self.outbox.put(posts, gate);
    }

    /// Sends messages that were put off on their way, oldest first, while there are steps left and no
    /// reactor has too much to hand out.
    pub(super) fn match_some(&self, steps_left: &mut u64, mut wake: impl FnMut(usize)) {
        while *steps_left > 0 && self.has_unmatched() && !self.is_any_full() {
            let sent = self.outbox.take(|post, gate| self.publish(post, gate, &mut wake));
            // Another reactor is at it: it looks for more behind that.
            let Some(sent) = sent else { return };
            *steps_left = steps_left.saturating_sub(sent.steps.max(MESSAGE_STEPS));
        }
    }

    pub(crate) fn has_unmatched(&self) -> bool {
        self.outbox.len() > 0
    }

    /// Bytes of messages that were put off.
    pub(crate) fn unmatched_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// Whether the connections that wait because of [`Backlog::Unmatched`] are to be resumed.
    pub(super) fn take_has_matched(&self) -> bool {
        self.outbox.take_has_emptied()
    }

    /// Whether a connection still has to wait. If it does its reactor is told when it need not any more.
    pub(crate) fn stays(&self, backlog: Backlog) -> bool {
        match backlog {
            Backlog::Full(reactor) => !self.has_room(reactor),
            Backlog::Unmatched => self.outbox.stays(),
        }
    }

    /// Sends a message on its way to all who have subscribed. `gate` as in [`Message::gate`]; `wake` is
    /// called for reactors that are to have a turn.
    pub(crate) fn publish(&self, post: &Post<'_>, gate: Gate, wake: impl FnMut(usize)) -> Sent {
        if !self.may_be_heard(post) {
            return Sent::default();
        }
        // Before the locks: it may be long.
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
        // Behind the locks: to wake somebody takes a system call.
        idle.into_iter().for_each(wake);
        sent
    }

    /// True if too much is on its way to the reactor.
    fn note_sent(&self, reactor: usize, bytes: usize) -> bool {
        let before = self.queues[reactor].pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_full = before + bytes > PENDING_BYTES_MAX;
        if is_full && before <= PENDING_BYTES_MAX {
            self.full_queues.fetch_add(1, Ordering::Relaxed);
        }
        is_full
    }

    /// False if surely nobody has subscribed. Costs next to nothing while nobody has to anything.
    pub(super) fn may_be_heard(&self, post: &Post<'_>) -> bool {
        self.is_seen_by_patterns(post)
            || (self.names(post.kind) > 0
                && self.part(post.channel).lock().of(post.kind).get(post.channel).is_some())
    }

    fn patterns_for(&self, post: &Post<'_>) -> Option<RwLockReadGuard<'_, Patterns>> {
        self.is_seen_by_patterns(post).then(|| self.patterns.read())
    }

    fn is_seen_by_patterns(&self, post: &Post<'_>) -> bool {
        post.kind == Kind::Channel && self.names(Kind::Pattern) > 0
    }

    /// Appends the messages that wait for a reactor, with their numbers. Returns the number behind the
    /// last one; none if nothing waits.
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

    /// Whether too much is on its way to some reactor.
    pub(crate) fn is_any_full(&self) -> bool {
        self.full_queues.load(Ordering::Relaxed) > 0
    }

    /// Bytes of messages on their way to a reactor.
    pub(crate) fn pending_bytes(&self, reactor: usize) -> usize {
        self.queues[reactor].pending_bytes.load(Ordering::Relaxed)
    }

    /// Whether connections that have filled a reactor's queue may publish again.
    fn has_room(&self, reactor: usize) -> bool {
        self.pending_bytes(reactor) <= PENDING_BYTES_MAX / 2
    }

    /// A reactor has handed out a message of this size, or dropped it. True if its queue has room since.
    pub(super) fn delivered(&self, reactor: usize, bytes: usize) -> bool {
        let before = self.queues[reactor].pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let after = before - bytes;
        if before > PENDING_BYTES_MAX && after <= PENDING_BYTES_MAX {
            self.full_queues.fetch_sub(1, Ordering::Relaxed);
        }
        before > PENDING_BYTES_MAX / 2 && after <= PENDING_BYTES_MAX / 2
    }

    pub(super) fn client_came(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn client_left(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// A connection is closed because it leaves too much unread.
    pub(crate) fn client_cut(&self) {
        self.cut_clients.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cut_clients(&self) -> u64 {
        self.cut_clients.load(Ordering::Relaxed)
    }

    /// Names that somebody has subscribed to.
    pub(crate) fn names(&self, kind: Kind) -> usize {
        self.names[kind.index()].load(Ordering::Acquire)
    }

    /// Connections that have subscribed to a channel by its name.
    pub(crate) fn subscribers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.part(channel).lock().of(kind).get(channel).map_or(0, Places::sum)
    }

    /// Channels with at least one subscriber by name that match the pattern, in order. None: it takes
    /// too long to compare them.
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

/// What the tree of patterns takes itself, by estimate.
fn patterns_bytes(patterns: &Patterns) -> usize {
    tree_bytes(patterns.len(), size_of::<(Name, Places)>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from(text.as_bytes())
    }

    /// The number of the first message that who subscribes now gets.
    fn add(directory: &Directory, kind: Kind, name: &str, reactor: usize) -> Result<u64, Refusal> {
        directory.add(kind, name.as_bytes(), reactor).map(|added| added.first)
    }

    fn post<'a>(channel: &'a str, payload: &'a str) -> Post<'a> {
        Post { channel: channel.as_bytes(), payload: payload.as_bytes(), kind: Kind::Channel }
    }

    /// Numbers and payloads of what waits for a reactor.
    fn taken(directory: &Directory, reactor: usize) -> Vec<(u64, String)> {
        let mut pending = VecDeque::new();
        directory.take(reactor, &mut pending);
        let text = |message: &Message| String::from_utf8(message.payload().to_vec()).unwrap();
        pending.into_iter().map(|(number, message)| (number, text(&message))).collect()
    }

    fn woken(directory: &Directory, post: &Post<'_>) -> (usize, Vec<usize>) {
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
        let sharded = Post { kind: Kind::ShardChannel, ..post("s", "x") };
        let receivers = |post: &Post<'_>| directory.publish(post, Gate::OPEN, |_| ()).receivers;
        assert_eq!(receivers(&sharded), 1);
        assert_eq!(receivers(&post("s", "x")), 1);
        directory.remove(Kind::Pattern, b"*", 0);
        assert_eq!(receivers(&post("s", "x")), 0);
    }

    #[test]
    fn what_is_on_its_way_is_bounded_for_each_reactor() {
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
        // Five quarters were waiting; there is room at a half.
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
        assert_eq!(add(&directory, Kind::Pattern, "7", 0), Ok(0), "it is known");
        let long = "*".repeat(PATTERN_BYTES_MAX + 1);
        assert_eq!(add(&directory, Kind::Pattern, &long, 0), Err(Refusal::PatternLength));
        assert!(add(&directory, Kind::Channel, &long, 0).is_ok());
        directory.remove(Kind::Pattern, b"8", 0);
        assert_eq!(add(&directory, Kind::Pattern, "one more", 0), Ok(0));
    }

    #[test]
    fn what_it_takes_is_given_back_with_the_last_subscriber() {
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
                assert!(Arc::ptr_eq(&added.name, &again.name), "a name is there once");
                assert_eq!(again.grown_bytes, 0);
            }
            // Itself, four counts, and its place in a table that is not full.
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
