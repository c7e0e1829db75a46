//! Key events to publish: `notify-keyspace-events`.

use std::fmt;

/// Classes of events, and the kinds of channels that receive them.
// Source: Redis 7.2 `notify.c`, `keyspaceEventsStringToFlags`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyEvents(u16);

/// Letters in display order. `A` stands for those before [`CLASSES_OF_ALL`].
const LETTERS: &[(char, KeyEvents)] = &[
    ('g', KeyEvents::GENERIC),
    ('$', KeyEvents::STRING),
    ('l', KeyEvents::LIST),
    ('s', KeyEvents::SET),
    ('h', KeyEvents::HASH),
    ('z', KeyEvents::ZSET),
    ('x', KeyEvents::EXPIRED),
    ('e', KeyEvents::EVICTED),
    ('t', KeyEvents::STREAM),
    ('d', KeyEvents::MODULE),
    ('n', KeyEvents::NEW),
    ('K', KeyEvents::KEYSPACE),
    ('E', KeyEvents::KEYEVENT),
    ('m', KeyEvents::MISS),
];

const CLASSES_OF_ALL: usize = 10;

/// The bits of the first ten letters.
const ALL: KeyEvents = KeyEvents((1 << CLASSES_OF_ALL) - 1);

impl KeyEvents {
    /// Commands for keys of every type.
    pub const GENERIC: KeyEvents = KeyEvents(1);
    pub const STRING: KeyEvents = KeyEvents(1 << 1);
    pub const LIST: KeyEvents = KeyEvents(1 << 2);
    pub const SET: KeyEvents = KeyEvents(1 << 3);
    pub const HASH: KeyEvents = KeyEvents(1 << 4);
    pub const ZSET: KeyEvents = KeyEvents(1 << 5);
    pub const EXPIRED: KeyEvents = KeyEvents(1 << 6);
    pub const EVICTED: KeyEvents = KeyEvents(1 << 7);
    /// Streams are not implemented: no event has this class. The same is true of the next one.
    pub const STREAM: KeyEvents = KeyEvents(1 << 8);
    pub const MODULE: KeyEvents = KeyEvents(1 << 9);
    pub const NEW: KeyEvents = KeyEvents(1 << 10);
    /// Publishes to `__keyspace@0__:KEY`.
    pub const KEYSPACE: KeyEvents = KeyEvents(1 << 11);
    /// Publishes to `__keyevent@0__:EVENT`.
    pub const KEYEVENT: KeyEvents = KeyEvents(1 << 12);
    /// A read of a key that does not exist.
    pub const MISS: KeyEvents = KeyEvents(1 << 13);

    /// Whether anything is published at all.
    #[inline]
    pub fn is_on(self) -> bool {
        self.0 & (KeyEvents::KEYSPACE.0 | KeyEvents::KEYEVENT.0) != 0
    }

    /// Whether the set includes this class or channel kind.
    #[inline]
    pub fn has(self, class: KeyEvents) -> bool {
        self.0 & class.0 != 0
    }

    /// Returns `None` if a character is not an event class.
    pub(super) fn parse(text: &str) -> Option<KeyEvents> {
        let mut bits = text.chars().map(|letter| match letter {
            'A' => Some(ALL.0),
            _ => LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, class)| class.0),
        });
        bits.try_fold(0, |all, bits| Some(all | bits?)).map(KeyEvents)
    }
}

impl fmt::Display for KeyEvents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_all = self.0 & ALL.0 == ALL.0;
        if has_all {
            formatter.write_str("A")?;
        }
        let single = if has_all { &LETTERS[CLASSES_OF_ALL..] } else { LETTERS };
        for (letter, _) in single.iter().filter(|(_, class)| self.has(*class)) {
            write!(formatter, "{letter}")?;
        }
        Ok(())
    }
}

/// A key event: its class and its published name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyEvent {
    pub(crate) class: KeyEvents,
    pub(crate) name: &'static str,
}

/// The events of keys of any type.
impl KeyEvent {
    pub(crate) const NEW: KeyEvent = KeyEvent { class: KeyEvents::NEW, name: "new" };
    pub(crate) const DELETED: KeyEvent = KeyEvent { class: KeyEvents::GENERIC, name: "del" };
    pub(crate) const EXPIRED: KeyEvent = KeyEvent { class: KeyEvents::EXPIRED, name: "expired" };
    /// An expiry was set.
    pub(crate) const EXPIRES: KeyEvent = KeyEvent { class: KeyEvents::GENERIC, name: "expire" };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_shown() {
        for (text, shown) in [
            ("", Some("")),
            ("KEA", Some("AKE")),
            ("Kx", Some("xK")),
            ("g$lshzxetdE", Some("AE")),
            ("EKn$", Some("$nKE")),
            ("AnmK", Some("AnKm")),
            ("gg", Some("g")),
            ("Ky", None),
            ("K E", None),
        ] {
            assert_eq!(
                KeyEvents::parse(text).map(|all| all.to_string()).as_deref(),
                shown,
                "{text}"
            );
        }
    }

    #[test]
    fn without_a_channel_nothing_is_published() {
        let on = |text| KeyEvents::parse(text).unwrap().is_on();
        assert!(!on("A") && !on("") && on("Kg") && on("E"));
        let all = KeyEvents::parse("KA").unwrap();
        assert!(all.has(KeyEvents::HASH) && !all.has(KeyEvents::NEW) && !all.has(KeyEvents::MISS));
    }
}
