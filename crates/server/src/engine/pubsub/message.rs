//! A published message on its way to its receivers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use wire::resp::{Protocol, ReplyWriter};

use crate::engine::gate::Gate;

/// Name of a channel or a pattern, shared by all subscriptions to it.
pub(crate) type Name = Arc<[u8]>;

/// What a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    /// All channels whose names match.
    Pattern,
    /// A channel of SPUBLISH, which patterns do not match.
    ShardChannel,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::ShardChannel];
    pub(super) const COUNT: usize = Kind::ALL.len();

    /// Index in tables with a row for each kind.
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// A message to publish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publication<'a> {
    pub(crate) channel: &'a [u8],
    pub(crate) payload: &'a [u8],
    /// Kind of the channel; never a pattern.
    pub(crate) kind: Kind,
}

/// Messages that are kept until their change or transaction is in the log and they are compared
/// with the patterns. Stored in one block, since a command may produce hundreds of thousands.
#[derive(Debug, Default)]
pub(crate) struct Publications {
    bytes: Vec<u8>,
    places: VecDeque<PostPlace>,
}

/// Position of a post in the block: its channel, followed by its payload.
#[derive(Debug, Clone, Copy)]
struct PostPlace {
    start: usize,
    payload: usize,
    end: usize,
    kind: Kind,
}

impl Publications {
    pub(crate) fn push(&mut self, post: &Publication<'_>) {
        self.push_parts(post.kind, [post.channel, b""], post.payload);
    }

    /// Adds a message whose channel name is given in two parts.
    pub(crate) fn push_parts(&mut self, kind: Kind, channel: [&[u8]; 2], payload: &[u8]) {
        let start = self.bytes.len();
        for part in channel {
            self.bytes.extend_from_slice(part);
        }
        let place = PostPlace {
            start,
            payload: self.bytes.len(),
            end: self.bytes.len() + payload.len(),
            kind,
        };
        self.bytes.extend_from_slice(payload);
        self.places.push_back(place);
    }

    pub(super) fn last(&self) -> Option<Publication<'_>> {
        self.places.back().map(|place| self.at(*place))
    }

    pub(super) fn drop_last(&mut self) {
        if let Some(place) = self.places.pop_back() {
            self.bytes.truncate(place.start);
        }
    }

    pub(super) fn first(&self) -> Option<Publication<'_>> {
        self.places.front().map(|place| self.at(*place))
    }

    /// Drops the first message. Its memory is freed together with that of the last one.
    pub(super) fn drop_first(&mut self) {
        self.places.pop_front();
    }

    fn at(&self, place: PostPlace) -> Publication<'_> {
        let PostPlace { start, payload, end, kind } = place;
        Publication {
            channel: &self.bytes[start..payload],
            payload: &self.bytes[payload..end],
            kind,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Memory of all messages.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<PostPlace>()
    }
}

/// Type byte, 20 digits and two line ends, twice.
const FRAMES_BYTES: usize = 50;

/// Channel and payload as two bulk strings: the end of every receiver's frame.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Vec<u8>,
    channel: Range<usize>,
    payload: Range<usize>,
    kind: Kind,
}

impl Body {
    pub(super) fn of(post: &Publication<'_>) -> Body {
        let capacity = post.channel.len() + post.payload.len() + FRAMES_BYTES;
        let mut bytes = Vec::with_capacity(capacity);
        let mut put = |text: &[u8]| {
            ReplyWriter::new(&mut bytes, Protocol::Resp2).bulk(text);
            let end = bytes.len() - b"\r\n".len();
            end - text.len()..end
        };
        let (channel, payload) = (put(post.channel), put(post.payload));
        Body { bytes, channel, payload, kind: post.kind }
    }
}

/// Memory of a message, shared by all receivers, apart from its content: the struct, reference
/// counts, queue slots.
const OVERHEAD_BYTES: usize = size_of::<Message>() + 4 * size_of::<usize>();

#[derive(Debug)]
pub(crate) struct Message {
    body: Body,
    /// Matching patterns that had subscribers, in order.
    patterns: Vec<Name>,
    gate: Gate,
}

/// Reason why a connection receives a message: the channel or pattern that it is subscribed
/// to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedSubscription<'a> {
    pub(crate) kind: Kind,
    /// Name of the channel, or the pattern.
    pub(crate) name: &'a [u8],
}

impl<'a> MatchedSubscription<'a> {
    pub(crate) fn pattern(self) -> Option<&'a [u8]> {
        (self.kind == Kind::Pattern).then_some(self.name)
    }
}

impl Message {
    pub(super) fn new(body: Body, patterns: Vec<Name>, gate: Gate) -> Message {
        Message { body, patterns, gate }
    }

    pub(crate) fn channel(&self) -> &[u8] {
        &self.body.bytes[self.body.channel.clone()]
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.body.bytes[self.body.payload.clone()]
    }

    /// Estimated memory of the message while it waits for a reactor.
    pub(crate) fn memory_bytes(&self) -> usize {
        OVERHEAD_BYTES + self.body.bytes.capacity() + self.patterns.len() * size_of::<Name>()
    }

    /// Estimated output bytes of the message to a receiver in this way by RESP.
    pub(crate) fn output_bytes(&self, matched: MatchedSubscription<'_>) -> usize {
        self.body.bytes.len() + matched.pattern().map_or(0, <[u8]>::len)
    }

    /// The log position that must be durable before the message is delivered; 0: none.
    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    /// The subscriptions through which connections receive the message. A connection with several matching
    /// subscriptions receives it several times, in this order.
    pub(crate) fn matched_subscriptions(&self) -> impl Iterator<Item = MatchedSubscription<'_>> {
        let by_name = MatchedSubscription { kind: self.body.kind, name: self.channel() };
        let by_pattern =
            self.patterns.iter().map(|name| MatchedSubscription { kind: Kind::Pattern, name });
        std::iter::once(by_name).chain(by_pattern)
    }

    /// Appends the message as RESP; in RESP3 it is a push.
    // Source: Redis 7.2 `pubsub.c`, `addReplyPubsubMessage` and `addReplyPubsubPatMessage`
    pub(crate) fn write(
        &self,
        protocol: Protocol,
        matched: MatchedSubscription<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut writer = ReplyWriter::new(out, protocol);
        match matched.kind {
            Kind::Channel => {
                writer.push(3);
                writer.bulk(b"message");
            }
            Kind::ShardChannel => {
                writer.push(3);
                writer.bulk(b"smessage");
            }
            Kind::Pattern => {
                writer.push(4);
                writer.bulk(b"pmessage");
                writer.bulk(matched.name);
            }
        }
        writer.out.extend_from_slice(&self.body.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::gate::Lsn;

    #[track_caller]
    fn check(post: &Publication<'_>, patterns: &[&str], protocol: Protocol, expected: &str) {
        let patterns = patterns.iter().map(|pattern| Name::from(pattern.as_bytes())).collect();
        let message = Message::new(Body::of(post), patterns, Gate::at(Lsn(7)));
        assert_eq!((message.channel(), message.payload()), (post.channel, post.payload));
        assert_eq!(message.gate(), Gate::at(Lsn(7)));
        let mut out = Vec::new();
        for matched in message.matched_subscriptions() {
            message.write(protocol, matched, &mut out);
        }
        assert_eq!(out.escape_ascii().to_string(), expected.escape_default().to_string());
    }

    #[test]
    fn posts_leave_at_both_ends() {
        let mut posts = Publications::default();
        posts.push(&Publication { channel: b"a", payload: b"1", kind: Kind::ShardChannel });
        posts.push_parts(Kind::Channel, [b"b", b"c"], b"");
        posts.push(&Publication { channel: b"", payload: b"3", kind: Kind::Channel });
        let shown = |post: Option<Publication<'_>>| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            post.map(|post| (text(post.channel), text(post.payload), post.kind))
        };
        let post = |channel: &str, payload: &str, kind| {
            Some((channel.to_owned(), payload.to_owned(), kind))
        };
        assert_eq!(shown(posts.last()), post("", "3", Kind::Channel));
        posts.drop_last();
        assert_eq!(shown(posts.last()), post("bc", "", Kind::Channel));
        assert_eq!(shown(posts.first()), post("a", "1", Kind::ShardChannel));
        posts.drop_first();
        posts.push(&Publication { channel: b"d", payload: b"4", kind: Kind::Channel });
        assert_eq!(shown(posts.first()), post("bc", "", Kind::Channel));
        posts.drop_first();
        assert_eq!(shown(posts.first()), post("d", "4", Kind::Channel));
        assert_eq!(posts.len(), 1);
        assert!(posts.memory_bytes() >= 5);
    }

    #[test]
    fn charged_bytes_include_the_patterns() {
        let post = Publication { channel: b"a", payload: b"x", kind: Kind::Channel };
        let pattern = Name::from("a*".as_bytes());
        let alone = Message::new(Body::of(&post), Vec::new(), Gate::OPEN);
        let seen = Message::new(Body::of(&post), vec![pattern; 100], Gate::OPEN);
        assert!(alone.memory_bytes() > size_of::<Message>());
        assert_eq!(seen.memory_bytes() - alone.memory_bytes(), 100 * size_of::<Name>());
        let bytes: Vec<usize> = seen
            .matched_subscriptions()
            .take(2)
            .map(|matched| seen.output_bytes(matched))
            .collect();
        assert_eq!(bytes[1] - bytes[0], 2);
    }

    #[test]
    fn each_kind_of_subscription_has_its_frame() {
        let post = Publication { channel: b"news", payload: b"a\r\nb", kind: Kind::Channel };
        let tail = "$4\r\nnews\r\n$4\r\na\r\nb\r\n";
        check(&post, &[], Protocol::Resp2, &format!("*3\r\n$7\r\nmessage\r\n{tail}"));
        check(
            &post,
            &["n*", ""],
            Protocol::Resp3,
            &format!(
                ">3\r\n$7\r\nmessage\r\n{tail}>4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n{tail}\
                 >4\r\n$8\r\npmessage\r\n$0\r\n\r\n{tail}"
            ),
        );
        let post = Publication { channel: b"", payload: b"", kind: Kind::ShardChannel };
        check(&post, &[], Protocol::Resp2, "*3\r\n$8\r\nsmessage\r\n$0\r\n\r\n$0\r\n\r\n");
    }
}
