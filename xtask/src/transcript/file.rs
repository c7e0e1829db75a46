//! A transcript file: requests, and the required answers of each server.
//!
//! | line | meaning |
//! |---|---|
//! | `# text` | comment |
//! | `> SET k "a b"` | one request, quoted as in redis-cli |
//! | `>> PING\r\n` | bytes sent as they are |
//! | `< +OK` | the required reply, see `notation` |
//! | `< @match :{90..100}` | an element whose text may vary: `*`, `?`, `{low..high}` |
//! | `@match ...` | the same for a whole reply |
//! | `@none` | no reply |
//! | `@closed` | the server closes the connection; the next request opens a new one |
//! | `@ended` | without a request: waits until the server has closed the connection |
//! | `@next` | without a request: the next message that the server sends |
//! | `@blocked 2` | without a request: waits until the server counts this many blocked clients |
//! | `@unordered` | the elements of the next aggregate may have any order |
//! | `@unordered deep` | the same, also for the aggregates in it |
//! | `@unordered pairs` | as `deep`; the elements of an array form pairs |
//! | `@only redis: reason` | the next reply is expected of that server only |
//! | `@resp3`, `@resp2` | switch the connection by HELLO |
//! | `@conn 2` | switch to another connection, opened when first used |
//! | `@skip-redis reason` | the whole file is for Myriad alone |
//!
//! Maps and sets have no order, so theirs is never compared.

use anyhow::{Result, bail};

use crate::process::Dialect;
use crate::transcript::notation::{split_arguments, unescape};

/// A parsed file.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// `Some` if the file does not apply to Redis.
    pub(crate) skip_redis: bool,
    pub(crate) steps: Vec<Step>,
}

/// One action.
#[derive(Debug)]
pub(crate) struct Step {
    /// Line of the request or directive, from 0.
    pub(crate) line: usize,
    pub(crate) action: Action,
    pub(crate) expectations: Vec<Expectation>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Request(Vec<Vec<u8>>),
    Raw(Vec<u8>),
    Protocol(u8),
    Connection(u32),
    /// Waits until this many clients are blocked.
    AwaitBlocked(u32),
    /// Waits for the end of the connection.
    AwaitEnd,
    /// Waits for an unsolicited message.
    AwaitNext,
}

/// The required reply.
#[derive(Debug)]
pub(crate) struct Expectation {
    /// The first line of the expectation, from 0.
    pub(crate) line: usize,
    /// `None`: required of every server.
    pub(crate) only: Option<Dialect>,
    pub(crate) reply: Reply,
    /// True if it contains a handwritten part that `--update` must keep.
    pub(crate) has_directive: bool,
}

#[derive(Debug)]
pub(crate) enum Reply {
    /// No reply is written yet: `--update` fills it in.
    Empty(Order),
    None,
    Closed,
    Tree(Expected),
}

/// One expected line and the lines indented below it.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) head: String,
    /// True: `head` is a pattern for the whole element as one line.
    pub(crate) is_pattern: bool,
    pub(crate) order: Order,
    pub(crate) children: Vec<Expected>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    #[default]
    AsWritten,
    /// The children may be in any order.
    Any,
    /// The children, and all their descendants.
    AnyDeep,
    /// As `AnyDeep`, children of arrays in pairs.
    AnyPairs,
}

impl Order {
    /// The order that applies to the children of a node with this order.
    pub(crate) fn inherited(self) -> Self {
        match self {
            Self::AsWritten | Self::Any => Self::AsWritten,
            deep => deep,
        }
    }
}

/// Parses a whole file. Errors name the line.
pub(crate) fn parse(text: &str) -> Result<Transcript> {
    let mut parser = Parser::default();
    for (number, line) in text.lines().enumerate() {
        if let Err(error) = parser.take_line(number, line) {
            bail!("line {}: {error:#}", number + 1);
        }
    }
    if let Some(number) = parser.dangling_line {
        bail!("line {}: a directive without the reply it is for", number + 1);
    }
    Ok(Transcript { skip_redis: parser.skip_redis, steps: parser.steps })
}

#[derive(Debug, Default)]
struct Parser {
    skip_redis: bool,
    steps: Vec<Step>,
    /// From `@only`, for the next expectation.
    only: Option<Dialect>,
    order: Order,
    /// The line of an `@only` that is not followed by a reply yet.
    dangling_line: Option<usize>,
}

impl Parser {
    fn take_line(&mut self, number: usize, line: &str) -> Result<()> {
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some(bytes) = line.strip_prefix(">> ") {
            return self.push_step(number, Action::Raw(unescape(bytes)?));
        }
        if let Some(request) = line.strip_prefix("> ") {
            let arguments = split_arguments(request)?;
            if arguments.is_empty() {
                bail!("a request needs a command");
            }
            return self.push_step(number, Action::Request(arguments));
        }
        if let Some(reply) = line.strip_prefix("< ") {
            return self.take_reply_line(number, reply);
        }
        if let Some(directive) = line.strip_prefix('@') {
            let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            return self.take_directive(number, word, rest.trim());
        }
        bail!("not a comment, request, reply or directive: {line:?}");
    }

    fn push_step(&mut self, line: usize, action: Action) -> Result<()> {
        if self.dangling_line.is_some() {
            bail!("the directive before this line needs a reply");
        }
        self.order = Order::AsWritten;
        self.steps.push(Step { line, action, expectations: Vec::new() });
        Ok(())
    }

    fn take_directive(&mut self, number: usize, word: &str, rest: &str) -> Result<()> {
        match (word, rest) {
            ("resp2", "") => self.push_step(number, Action::Protocol(2)),
            ("resp3", "") => self.push_step(number, Action::Protocol(3)),
            ("conn", id) => self.push_step(number, Action::Connection(id.parse()?)),
            ("blocked", count) => self.push_step(number, Action::AwaitBlocked(count.parse()?)),
            ("ended", "") => {
                self.push_step(number, Action::AwaitEnd)?;
                self.push_whole(number, Reply::Closed)
            }
            ("next", "") => self.push_step(number, Action::AwaitNext),
            ("skip-redis", "") => bail!("@skip-redis needs a reason"),
            ("skip-redis", _) => {
                self.skip_redis = true;
                Ok(())
            }
            ("only", rule) => self.take_only(number, rule),
            ("unordered", kind) => {
                self.order = match kind {
                    "" => Order::Any,
                    "deep" => Order::AnyDeep,
                    "pairs" => Order::AnyPairs,
                    other => bail!("@unordered takes nothing, deep or pairs, not {other:?}"),
                };
                self.reserve_place(number)
            }
            ("none", "") => self.push_whole(number, Reply::None),
            ("closed", "") => self.push_whole(number, Reply::Closed),
            ("match", "") => bail!("@match needs a pattern"),
            ("match", pattern) => {
                let tree = Expected {
                    head: pattern.to_owned(),
                    is_pattern: true,
                    order: Order::AsWritten,
                    children: Vec::new(),
                };
                self.push_whole(number, Reply::Tree(tree))
            }
            _ => bail!("unknown directive @{word} {rest}"),
        }
    }

    fn take_only(&mut self, number: usize, rule: &str) -> Result<()> {
        let Some((server, reason)) = rule.split_once(':') else {
            bail!("write: @only redis: reason");
        };
        if reason.trim().is_empty() {
            bail!("@only needs a reason");
        }
        self.only = match server.trim() {
            "redis" => Some(Dialect::Redis),
            "myriad" => Some(Dialect::Myriad),
            other => bail!("@only takes redis or myriad, not {other:?}"),
        };
        self.order = Order::AsWritten;
        self.dangling_line = Some(number);
        Ok(())
    }

    /// `@unordered` before the first reply line: the position where `--update` inserts the reply.
    fn reserve_place(&mut self, number: usize) -> Result<()> {
        let order = self.order;
        let is_open = self.only.is_some()
            || self.last_step()?.expectations.last().is_none_or(|last| is_complete(&last.reply));
        if is_open { self.push_whole(number, Reply::Empty(order)) } else { Ok(()) }
    }

    fn push_whole(&mut self, line: usize, reply: Reply) -> Result<()> {
        let only = self.only.take();
        self.dangling_line = None;
        let has_directive = only.is_some() || !matches!(reply, Reply::Empty(_));
        let step = self.last_step()?;
        if step.expectations.iter().any(|other| other.only == only || other.only.is_none()) {
            bail!("a second reply for the same request and server");
        }
        step.expectations.push(Expectation { line, only, reply, has_directive });
        Ok(())
    }

    fn last_step(&mut self) -> Result<&mut Step> {
        match self.steps.last_mut() {
            None
            | Some(Step {
                action: Action::Protocol(_) | Action::Connection(_) | Action::AwaitBlocked(_),
                ..
            }) => {
                bail!("a reply without its request")
            }
            Some(step) => Ok(step),
        }
    }

    fn take_reply_line(&mut self, number: usize, text: &str) -> Result<()> {
        let head = text.trim_start_matches(' ');
        let indent = text.len() - head.len();
        if !indent.is_multiple_of(2) {
            bail!("indent by two spaces");
        }
        let (head, is_pattern) = match head.strip_prefix("@match ") {
            Some(pattern) => (pattern, true),
            None => (head, false),
        };
        let order = std::mem::take(&mut self.order);
        let node =
            Expected { head: head.trim_end().to_owned(), is_pattern, order, children: vec![] };
        if indent == 0 {
            return self.push_root(number, node);
        }
        let Some(Expectation { reply: Reply::Tree(root), has_directive, .. }) =
            self.last_step()?.expectations.last_mut()
        else {
            bail!("an indented line without the aggregate it belongs to");
        };
        *has_directive |= is_pattern || order != Order::AsWritten;
        let mut parent = root;
        for _ in 1..indent / 2 {
            let Some(child) = parent.children.last_mut() else {
                bail!("indented too deep");
            };
            parent = child;
        }
        parent.children.push(node);
        Ok(())
    }

    fn push_root(&mut self, number: usize, node: Expected) -> Result<()> {
        let step = self.last_step()?;
        if let Some(last) = step.expectations.last_mut()
            && let Reply::Empty(order) = last.reply
        {
            last.has_directive |= node.is_pattern;
            last.reply = Reply::Tree(Expected { order, ..node });
            return Ok(());
        }
        let is_pattern = node.is_pattern;
        self.push_whole(number, Reply::Tree(node))?;
        let only = self.last_step()?.expectations.last_mut();
        if let Some(expectation) = only {
            expectation.has_directive = is_pattern || expectation.only.is_some();
        }
        Ok(())
    }
}

/// True if the reply is complete: it has as many children as its head announces.
fn is_complete(reply: &Reply) -> bool {
    match reply {
        Reply::Empty(_) => false,
        Reply::None | Reply::Closed => true,
        Reply::Tree(tree) => tree_is_complete(tree),
    }
}

fn tree_is_complete(tree: &Expected) -> bool {
    tree.is_pattern
        || (tree.children.len() == declared_children(&tree.head)
            && tree.children.iter().all(tree_is_complete))
}

/// How many children a head announces: `*2` two, `%2` four, `$1 a` none.
pub(crate) fn declared_children(head: &str) -> usize {
    let per_entry = match head.as_bytes().first() {
        Some(b'*' | b'~' | b'>') => 1,
        Some(b'%') => 2,
        _ => return 0,
    };
    head[1..].parse::<usize>().map_or(0, |count| count.saturating_mul(per_entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_steps() {
        let text = "# c\n> GET k\n< $1 v\n@conn 2\n@resp3\n> HGETALL h\n< %1\n<   $1 f\n<   $1 v\n";
        let transcript = parse(text).unwrap();
        assert_eq!(transcript.steps.len(), 4);
        assert_eq!(transcript.steps[1].action, Action::Connection(2));
        let Reply::Tree(tree) = &transcript.steps[3].expectations[0].reply else { panic!() };
        assert_eq!((tree.head.as_str(), tree.children.len()), ("%1", 2));
    }

    #[test]
    fn servers_may_differ_with_a_reason() {
        let text = "> A\n@only redis: old\n< -ERR a\n@only myriad: new\n< +OK\n";
        let step = &parse(text).unwrap().steps[0];
        assert_eq!(step.expectations.len(), 2);
        assert_eq!(step.expectations[1].only, Some(Dialect::Myriad));
    }

    #[test]
    fn order_belongs_to_the_aggregate_that_follows() {
        let text =
            "> A\n@unordered\n< *1\n<   :1\n> B\n< *2\n<   $1 0\n@unordered\n<   *1\n<     :1\n";
        let steps = parse(text).unwrap().steps;
        let order = |step: &Step, child: Option<usize>| {
            let Reply::Tree(tree) = &step.expectations[0].reply else { panic!() };
            child.map_or(tree, |index| &tree.children[index]).order
        };
        assert_eq!(order(&steps[0], None), Order::Any);
        assert_eq!(order(&steps[1], None), Order::AsWritten);
        assert_eq!(order(&steps[1], Some(1)), Order::Any);
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in [
            "< +OK\n",
            "> A\n< +OK\n< +OK\n",
            "@ended\n< +OK\n",
            "> A\n@only redis:\n< +OK\n",
            "> A\n@only redis: r\n> B\n",
            "> A\n@only redis: r\n",
            "> A\n<   :1\n",
            "> A\n< *1\n<  :1\n",
            "> A\n< *1\n<     :1\n",
            "hello\n",
            "@skip-redis\n",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
