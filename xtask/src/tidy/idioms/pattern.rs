//! Patterns of words.
//!
//! A pattern is a sequence of items with spaces between them: `is|are no|none` matches each of
//! four phrases. `_` matches any word; `^` and `$` match the start and the end of a clause. Case is
//! ignored. No phrase extends over punctuation.

use std::ops::Range;

/// A word of prose and its place.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: String,
    /// From 1.
    pub(super) line: usize,
    /// Whether punctuation, or the start of the text, precedes it.
    pub(super) starts_clause: bool,
}

/// A phrase to find.
pub(super) struct Pattern {
    items: Vec<Item>,
}

enum Item {
    Any,
    OneOf(Vec<&'static str>),
    ClauseStart,
    ClauseEnd,
}

impl Pattern {
    pub(super) fn parse(text: &'static str) -> Pattern {
        let items = text.split(' ').map(|item| match item {
            "_" => Item::Any,
            "^" => Item::ClauseStart,
            "$" => Item::ClauseEnd,
            words => Item::OneOf(words.split('|').collect()),
        });
        Pattern { items: items.collect() }
    }

    /// The words of which the first word of a match is one; empty: any word.
    pub(super) fn first_words(&self) -> &[&'static str] {
        let mut words = self.items.iter().filter_map(|item| match item {
            Item::OneOf(texts) => Some(texts.as_slice()),
            Item::Any => Some(&[][..]),
            Item::ClauseStart | Item::ClauseEnd => None,
        });
        words.next().unwrap_or_default()
    }

    /// Range of the words that match from `start`.
    fn matches(&self, words: &[Word], start: usize) -> Option<Range<usize>> {
        let starts_clause = |at: usize| words.get(at).is_none_or(|word| word.starts_clause);
        let mut at = start;
        for item in &self.items {
            match item {
                Item::ClauseStart | Item::ClauseEnd if starts_clause(at) => continue,
                Item::ClauseStart | Item::ClauseEnd => return None,
                Item::Any | Item::OneOf(_) => {}
            }
            let word = words.get(at).filter(|word| at == start || !word.starts_clause)?;
            if let Item::OneOf(texts) = item
                && !texts.iter().any(|text| text.eq_ignore_ascii_case(&word.text))
            {
                return None;
            }
            at += 1;
        }
        Some(start..at)
    }
}

/// The phrase at `start` that matches `banned`, unless it is part of one that matches `except`.
pub(super) fn find(
    banned: &Pattern,
    except: &[Pattern],
    words: &[Word],
    start: usize,
) -> Option<Range<usize>> {
    let range = banned.matches(words, start)?;
    let is_excepted = except.iter().any(|pattern| {
        let earliest = range.start.saturating_sub(pattern.items.len());
        let mut matches = (earliest..=range.start).filter_map(|at| pattern.matches(words, at));
        matches.any(|longer| longer.end >= range.end)
    });
    (!is_excepted).then_some(range)
}
