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

/// Phrases that match `banned` and are not part of one that matches `except`.
pub(super) fn find_all(
    banned: &[Pattern],
    except: &[Pattern],
    words: &[Word],
) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for start in 0..words.len() {
        let Some(range) = banned.iter().find_map(|pattern| pattern.matches(words, start)) else {
            continue;
        };
        let is_excepted = except.iter().any(|pattern| {
            let earliest = range.start.saturating_sub(pattern.items.len());
            let mut matches =
                (earliest..=range.start).filter_map(|start| pattern.matches(words, start));
            matches.any(|longer| longer.end >= range.end)
        });
        if !is_excepted {
            found.push(range);
        }
    }
    found
}
