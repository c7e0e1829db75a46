//! A set of permissions: commands, key patterns and channel patterns.

use std::collections::BTreeMap;

use crate::engine::glob::Steps;
use crate::engine::requests::RequestId;

/// A set of commands by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommandSet(Vec<u64>);

impl CommandSet {
    #[inline]
    pub(crate) fn contains(&self, id: RequestId) -> bool {
        let (word, bit) = place(id);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(crate) fn insert(&mut self, id: RequestId) {
        let (word, bit) = place(id);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(crate) fn insert_all(&mut self, other: &CommandSet) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    pub(crate) fn remove_all(&mut self, other: &CommandSet) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
    }
}

fn place(id: RequestId) -> (usize, u64) {
    (usize::from(id) / 64, 1 << (id % 64))
}

/// A rule that allows or forbids a command or a category, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandRule {
    pub(crate) allows: bool,
    /// Lowercase: `get`, `config|set`, `select|0`, or `@read`.
    pub(crate) name: Box<[u8]>,
}

/// Keys that a selector permits, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPattern {
    pub(crate) pattern: Box<[u8]>,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl KeyPattern {
    // Source: Redis 7.2 `acl.c`, `sdsCatPatternString`
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match (self.reads, self.writes) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            _ => b"~",
        });
        out.extend_from_slice(&self.pattern);
    }
}

/// One set of permissions of a user: a command must be permitted by one selector as a whole.
// Source: Redis 7.2 `acl.c`, `aclSelector`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, as in Redis")]
pub(crate) struct Selector {
    /// `allkeys`: `keys` is empty.
    pub(crate) has_all_keys: bool,
    /// `allchannels`: `channels` is empty.
    pub(crate) has_all_channels: bool,
    /// No command was taken away since `+@all`.
    pub(crate) has_all_commands: bool,
    /// The rules start from `+@all` instead of `-@all`.
    pub(crate) starts_with_all: bool,
    pub(crate) allowed: CommandSet,
    /// First arguments with which a command is allowed that is otherwise not (`+select|0`).
    pub(crate) first_arguments: BTreeMap<RequestId, Vec<Box<[u8]>>>,
    /// The rules that made `allowed` and `first_arguments` from the start.
    pub(crate) rules: Vec<CommandRule>,
    pub(crate) keys: Vec<KeyPattern>,
    pub(crate) channels: Vec<Box<[u8]>>,
}

impl Selector {
    pub(crate) fn new(has_all_channels: bool) -> Selector {
        Selector { has_all_channels, ..Selector::default() }
    }

    /// Whether the selector permits every command with any keys and channels.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.has_all_commands && self.has_all_keys && self.has_all_channels
    }

    /// Whether the selector permits this access of a key. If `steps` run out, it does not.
    // Source: Redis 7.2 `acl.c`, `ACLSelectorCheckKey`
    pub(crate) fn permits_key(&self, key: &[u8], reads: bool, writes: bool, steps: &Steps) -> bool {
        self.has_all_keys
            || self.keys.iter().any(|known| {
                (known.reads || !reads)
                    && (known.writes || !writes)
                    && steps.matches(&known.pattern, key)
            })
    }

    /// Whether one pattern permits reading all keys with this prefix. Only a pattern whose one
    /// special character is a `*` at its end does.
    pub(super) fn may_read_all_below(&self, prefix: &[u8]) -> bool {
        let covers = |key: &KeyPattern| {
            let start = key.pattern.strip_suffix(b"*");
            let is_special = |byte: &u8| b"*?[\\".contains(byte);
            start.is_some_and(|start| !start.iter().any(is_special) && prefix.starts_with(start))
        };
        self.has_all_keys || self.keys.iter().any(|key| key.reads && covers(key))
    }

    /// Whether the selector permits publishing to the channel or subscribing to it.
    // Source: Redis 7.2 `acl.c`, `ACLCheckChannelAgainstList`
    pub(crate) fn permits_channel(&self, channel: &[u8], steps: &Steps) -> bool {
        self.has_all_channels || self.channels.iter().any(|pattern| steps.matches(pattern, channel))
    }

    /// Whether the selector permits subscribing to the pattern, which it must contain literally.
    pub(crate) fn permits_channel_pattern(&self, pattern: &[u8]) -> bool {
        self.has_all_channels || self.channels.iter().any(|known| **known == *pattern)
    }

    /// Number of rules, for the limit of a user.
    pub(crate) fn rule_count(&self) -> usize {
        self.rules.len() + self.keys.len() + self.channels.len()
    }

    /// Bytes of the rules, for the limit of a user.
    pub(crate) fn rule_bytes(&self) -> usize {
        let rules: usize = self.rules.iter().map(|rule| rule.name.len()).sum();
        let keys: usize = self.keys.iter().map(|key| key.pattern.len()).sum();
        rules + keys + self.channels.iter().map(|channel| channel.len()).sum::<usize>()
    }

    /// Appends the rules for commands, starting with `+@all` or `-@all`.
    // Source: Redis 7.2 `acl.c`, `ACLDescribeSelectorCommandRules`
    pub(crate) fn describe_commands(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.starts_with_all { b"+@all" } else { b"-@all" });
        for rule in &self.rules {
            out.extend_from_slice(if rule.allows { b" +" } else { b" -" });
            out.extend_from_slice(&rule.name);
        }
    }

    /// Appends the patterns of keys, separated by spaces.
    pub(crate) fn describe_keys(&self, out: &mut Vec<u8>) {
        if self.has_all_keys {
            out.extend_from_slice(b"~*");
        }
        for (index, key) in self.keys.iter().enumerate() {
            if index > 0 {
                out.push(b' ');
            }
            key.describe(out);
        }
    }

    /// Appends the patterns of channels, separated by spaces.
    pub(crate) fn describe_channels(&self, out: &mut Vec<u8>) {
        if self.has_all_channels {
            out.extend_from_slice(b"&*");
        }
        for (index, channel) in self.channels.iter().enumerate() {
            if index > 0 {
                out.push(b' ');
            }
            out.push(b'&');
            out.extend_from_slice(channel);
        }
    }

    /// Appends all rules.
    // Source: Redis 7.2 `acl.c`, `ACLDescribeSelector`
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        if self.has_all_keys || !self.keys.is_empty() {
            self.describe_keys(out);
            out.push(b' ');
        }
        if !self.has_all_channels {
            out.extend_from_slice(b"resetchannels ");
        }
        if self.has_all_channels || !self.channels.is_empty() {
            self.describe_channels(out);
            out.push(b' ');
        }
        self.describe_commands(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_commands_grow_as_needed() {
        let (mut some, mut more) = (CommandSet::default(), CommandSet::default());
        some.insert(3);
        more.insert(200);
        assert!(some.contains(3) && !some.contains(200) && !some.contains(60_000));
        some.insert_all(&more);
        assert!(some.contains(3) && some.contains(200) && !some.contains(199));
        some.remove_all(&more);
        assert!(some.contains(3) && !some.contains(200));
    }

    #[test]
    fn a_key_needs_one_pattern_with_all_its_access() {
        let pattern =
            |pattern: &[u8], reads, writes| KeyPattern { pattern: pattern.into(), reads, writes };
        let selector = Selector {
            keys: vec![
                pattern(b"r*", true, false),
                pattern(b"w*", false, true),
                pattern(b"*2", true, true),
            ],
            ..Selector::default()
        };
        let steps = Steps::default();
        for (key, reads, writes, expected) in [
            (&b"r1"[..], true, false, true),
            (b"r1", false, true, false),
            (b"r1", true, true, false),
            (b"w1", false, true, true),
            (b"w1", true, false, false),
            (b"r2", true, true, true),
            (b"w1", false, false, true),
            (b"x1", false, false, false),
        ] {
            let name = String::from_utf8_lossy(key);
            assert_eq!(selector.permits_key(key, reads, writes, &steps), expected, "{name}");
        }
    }

    #[test]
    fn a_pattern_of_channels_must_be_listed_literally() {
        let channels = vec![Box::from(&b"news.*"[..])];
        let selector = Selector { channels, ..Selector::default() };
        let steps = Steps::default();
        assert!(selector.permits_channel(b"news.a", &steps));
        assert!(!selector.permits_channel(b"new", &steps));
        assert!(selector.permits_channel_pattern(b"news.*"));
        assert!(!selector.permits_channel_pattern(b"news.a*"));
    }

    #[test]
    fn a_check_without_steps_fails() {
        let channels = vec![Box::from(&b"a*b*c"[..])];
        let selector = Selector { channels, ..Selector::default() };
        assert!(!selector.permits_channel(b"aaabbbc", &Steps::new(3)));
    }
}
