//! Rules of users, as ACL SETUSER and the ACL file contain them.

use std::borrow::Cow;

use super::categories::{self, insert_with_children};
use crate::commands::registry::REGISTRY;
use crate::engine::acl::{CommandRule, CommandSet, KeyPattern, PasswordHash, Selector, User};
use crate::engine::requests::RequestId;

/// Maximum rules of one ACL SETUSER or of one line of the ACL file, those within selectors included.
const MODIFIERS_MAX: usize = 8_192;

/// Maximum bytes of them.
const MODIFIERS_BYTES_MAX: usize = 1 << 20;

/// Reason why a rule was refused, as Redis reports it.
// Source: Redis 7.2 `acl.c`, `ACLSetUserStringError`
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RuleError {
    #[error("Unknown command or category name in ACL")]
    Unknown,
    #[error("Syntax error")]
    Syntax,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
         have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AfterAllKeys,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
         not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AfterAllChannels,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
    )]
    BadHash,
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgumentOfSubcommand,
}

/// Reason why the rules of a user were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The selector that begins with this argument has no end.
    OpenSelector(Vec<u8>),
    Rule {
        modifier: Vec<u8>,
        error: RuleError,
    },
    TooMany,
}

/// Text for users with more rules than allowed.
pub(super) const TOO_MANY_RULES: &str = "the user has too many ACL rules";

/// Whether a name or a pattern contains spaces or zero bytes, which would break the description of
/// its user.
// Source: Redis 7.2 `acl.c`, `ACLStringHasSpaces`
pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'\t'..=b'\r' | b' ' | 0))
}

/// Applies rules to a user, in their order. `channels_by_default`: what `acl-pubsub-default` gives
/// to new selectors. If it fails, the user must not be used.
// Source: Redis 7.2 `acl.c`, `ACLStringSetUser`
pub(super) fn apply_all<'a>(
    user: &mut User,
    words: impl Iterator<Item = &'a [u8]>,
    channels_by_default: bool,
) -> Result<(), Refusal> {
    let words: Vec<&[u8]> = words.collect();
    if are_too_many(&words) {
        return Err(Refusal::TooMany);
    }
    for modifier in merge(&words)? {
        apply(user, &modifier, channels_by_default)
            .map_err(|error| Refusal::Rule { modifier: modifier.into_owned(), error })?;
    }
    if user.has_too_many_rules() { Err(Refusal::TooMany) } else { Ok(()) }
}

/// Whether there are more rules than one change may have.
pub(super) fn are_too_many(words: &[&[u8]]) -> bool {
    let bytes: usize = words.iter().map(|word| word.len()).sum();
    let inner = |word: &&[u8]| word.split(u8::is_ascii_whitespace).count();
    bytes > MODIFIERS_BYTES_MAX || words.iter().map(inner).sum::<usize>() > MODIFIERS_MAX
}

/// Joins the words of selectors that were given as several arguments.
// Source: Redis 7.2 `acl.c`, `ACLMergeSelectorArguments`
pub(super) fn merge<'a>(words: &[&'a [u8]]) -> Result<Vec<Cow<'a, [u8]>>, Refusal> {
    let mut merged = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (index, word) in words.iter().enumerate() {
        open = match open {
            None if word.starts_with(b"(") && !word.ends_with(b")") => Some((index, word.to_vec())),
            None => {
                merged.push(Cow::Borrowed(*word));
                None
            }
            Some((start, mut selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                if word.ends_with(b")") {
                    merged.push(Cow::Owned(selector));
                    None
                } else {
                    Some((start, selector))
                }
            }
        };
    }
    match open {
        None => Ok(merged),
        Some((start, _)) => Err(Refusal::OpenSelector(words[start].to_vec())),
    }
}

fn is(rule: &[u8], name: &str) -> bool {
    rule.eq_ignore_ascii_case(name.as_bytes())
}

/// Applies one rule to a user.
// Source: Redis 7.2 `acl.c`, `ACLSetUser`
pub(super) fn apply(
    user: &mut User,
    rule: &[u8],
    channels_by_default: bool,
) -> Result<(), RuleError> {
    match rule {
        [] => {}
        _ if is(rule, "on") => user.is_on = true,
        _ if is(rule, "off") => user.is_on = false,
        _ if is(rule, "skip-sanitize-payload") => user.skips_sanitizing = true,
        _ if is(rule, "sanitize-payload") => user.skips_sanitizing = false,
        _ if is(rule, "nopass") => {
            user.takes_any_password = true;
            user.passwords.clear();
        }
        _ if is(rule, "resetpass") => {
            user.takes_any_password = false;
            user.passwords.clear();
        }
        [b'>' | b'#', ..] => {
            let hash = hash_of(rule)?;
            if !user.passwords.contains(&hash) {
                user.passwords.push(hash);
            }
            user.takes_any_password = false;
        }
        [b'<' | b'!', ..] => {
            let hash = hash_of(rule)?;
            let at = user.passwords.iter().position(|known| *known == hash);
            user.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        }
        [b'(', inner @ .., b')'] => {
            let mut selector = Selector::new(channels_by_default);
            for word in inner.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
                apply_to_selector(&mut selector, word)?;
            }
            user.selectors.push(selector);
        }
        _ if is(rule, "clearselectors") => user.selectors.clear(),
        _ if is(rule, "reset") => *user = User::new(&user.name, channels_by_default),
        _ => apply_to_selector(&mut user.root, rule)?,
    }
    Ok(())
}

/// The hash that a rule about a password contains or computes.
fn hash_of(rule: &[u8]) -> Result<PasswordHash, RuleError> {
    match rule {
        [b'>' | b'<', password @ ..] => Ok(PasswordHash::of(password)),
        [_, hash @ ..] => PasswordHash::parse(hash).ok_or(RuleError::BadHash),
        [] => Err(RuleError::Syntax),
    }
}

/// Applies one rule about commands, keys or channels.
// Source: Redis 7.2 `acl.c`, `ACLSetSelector`
fn apply_to_selector(selector: &mut Selector, rule: &[u8]) -> Result<(), RuleError> {
    match rule {
        _ if is(rule, "allkeys") || rule == b"~*" => {
            selector.has_all_keys = true;
            selector.keys.clear();
        }
        _ if is(rule, "resetkeys") => {
            selector.has_all_keys = false;
            selector.keys.clear();
        }
        _ if is(rule, "allchannels") || rule == b"&*" => {
            selector.has_all_channels = true;
            selector.channels.clear();
        }
        _ if is(rule, "resetchannels") => {
            selector.has_all_channels = false;
            selector.channels.clear();
        }
        _ if is(rule, "allcommands") || is(rule, "+@all") => start_from(selector, true),
        _ if is(rule, "nocommands") || is(rule, "-@all") => start_from(selector, false),
        [b'~' | b'%', ..] => add_key_pattern(selector, rule)?,
        [b'&', channel @ ..] => {
            if selector.has_all_channels {
                return Err(RuleError::AfterAllChannels);
            }
            if has_spaces(channel) {
                return Err(RuleError::Syntax);
            }
            if selector.channels.iter().all(|known| **known != *channel) {
                selector.channels.push(channel.into());
            }
        }
        [sign @ (b'+' | b'-'), b'@', category @ ..] => {
            let concerned = categories::find(category).ok_or(RuleError::Unknown)?;
            change(selector, concerned, *sign == b'+', &rule[1..]);
        }
        [b'+', name @ ..] => allow(selector, name)?,
        [b'-', name @ ..] => {
            let id = REGISTRY.find_full(name).ok_or(RuleError::Unknown)?;
            change_command(selector, id, false);
        }
        _ => return Err(RuleError::Syntax),
    }
    Ok(())
}

/// `+@all` or `-@all`.
fn start_from(selector: &mut Selector, all: bool) {
    selector.allowed = CommandSet::default();
    if all {
        REGISTRY.entries().for_each(|(id, _)| selector.allowed.insert(id));
    }
    selector.has_all_commands = all;
    selector.starts_with_all = all;
    selector.rules.clear();
    selector.first_arguments.clear();
}

/// Adds `~pattern`, `%R~pattern`, `%W~pattern` or `%RW~pattern`.
fn add_key_pattern(selector: &mut Selector, rule: &[u8]) -> Result<(), RuleError> {
    if selector.has_all_keys {
        return Err(RuleError::AfterAllKeys);
    }
    let tilde = rule.iter().position(|byte| *byte == b'~').ok_or(RuleError::Syntax)?;
    let (reads, writes) = match rule[..tilde].to_ascii_uppercase().as_slice() {
        b"" | b"%RW" | b"%WR" => (true, true),
        b"%R" => (true, false),
        b"%W" => (false, true),
        _ => return Err(RuleError::Syntax),
    };
    let pattern = &rule[tilde + 1..];
    if has_spaces(pattern) {
        return Err(RuleError::Syntax);
    }
    if let Some(known) = selector.keys.iter_mut().find(|known| *known.pattern == *pattern) {
        known.reads |= reads;
        known.writes |= writes;
    } else {
        selector.keys.push(KeyPattern { pattern: pattern.into(), reads, writes });
    }
    Ok(())
}

/// `+command`, `+command|subcommand` or `+command|first-argument`.
fn allow(selector: &mut Selector, name: &[u8]) -> Result<(), RuleError> {
    let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
        let id = REGISTRY.find(name).ok_or(RuleError::Unknown)?;
        change_command(selector, id, true);
        return Ok(());
    };
    let (container, sub) = (&name[..bar], &name[bar + 1..]);
    let id = REGISTRY.find_full(container).ok_or(RuleError::Unknown)?;
    let entry = REGISTRY.entry(id);
    if entry.parent.is_some() {
        return Err(RuleError::FirstArgumentOfSubcommand);
    }
    if sub.is_empty() {
        return Err(RuleError::Syntax);
    }
    if entry.is_container() {
        let id = REGISTRY.find_child(id, sub).ok_or(RuleError::Unknown)?;
        change_command(selector, id, true);
        return Ok(());
    }
    let known = selector.first_arguments.entry(id).or_default();
    if known.iter().all(|known| !known.eq_ignore_ascii_case(sub)) {
        known.push(sub.into());
    }
    note_rule(selector, true, name);
    Ok(())
}

/// Allows or forbids a command with all its subcommands.
fn change_command(selector: &mut Selector, id: RequestId, allows: bool) {
    let entry = REGISTRY.entry(id);
    let mut concerned = CommandSet::default();
    insert_with_children(&mut concerned, id, entry);
    change(selector, &concerned, allows, entry.full_name.as_bytes());
}

fn change(selector: &mut Selector, concerned: &CommandSet, allows: bool, name: &[u8]) {
    if allows {
        selector.allowed.insert_all(concerned);
    } else {
        selector.allowed.remove_all(concerned);
        selector.has_all_commands = false;
    }
    selector.first_arguments.retain(|id, _| !concerned.contains(*id));
    note_rule(selector, allows, name);
}

/// Adds a rule about a command or a category at the end, in place of earlier ones about the same or
/// about its subcommands.
// Source: Redis 7.2 `acl.c`, `ACLUpdateCommandRules`
fn note_rule(selector: &mut Selector, allows: bool, name: &[u8]) {
    let name: Box<[u8]> = name.to_ascii_lowercase().into();
    selector.rules.retain(|rule| match rule.name.strip_prefix(&*name) {
        Some(rest) => !rest.is_empty() && rest[0] != b'|',
        None => true,
    });
    selector.rules.push(CommandRule { allows, name });
}

#[cfg(test)]
mod tests;
