//! Analysis of indexed texts: the options `case_sensitive`, `normalize` and `ascii` of an index.
//!
//! An index with one of them stores the analyzed text, and compares it with the analyzed value of
//! the query.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What an index does to a text before it compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Analysis {
    folds_case: bool,
    composes: bool,
    folds_to_ascii: bool,
}

impl Analysis {
    /// The options that control the analysis.
    pub(crate) const OPTIONS: [&str; 3] = ["case_sensitive", "normalize", "ascii"];

    // Source: Cassandra 5.0, index.sai.analyzer.NonTokenizingOptions
    pub(crate) fn new(options: &BTreeMap<String, String>) -> Analysis {
        let has = |name: &str, word: &str| {
            options.get(name).is_some_and(|value| value.eq_ignore_ascii_case(word))
        };
        Analysis {
            folds_case: has("case_sensitive", "false"),
            composes: has("normalize", "true"),
            folds_to_ascii: has("ascii", "true"),
        }
    }

    /// Whether texts are compared as they are.
    pub fn is_none(self) -> bool {
        self == Analysis::default()
    }

    /// The text to compare.
    // Source: Cassandra 5.0, index.sai.analyzer.NonTokenizingAnalyzer.getFilterPipeline: in this
    // order
    pub fn apply(self, text: &[u8]) -> Cow<'_, [u8]> {
        if self.is_none() {
            return Cow::Borrowed(text);
        }
        if text.is_ascii() {
            let lower = || Cow::Owned(text.to_ascii_lowercase());
            return if self.folds_case { lower() } else { Cow::Borrowed(text) };
        }
        // Values of texts are valid UTF-8.
        let Ok(text) = str::from_utf8(text) else { return Cow::Borrowed(text) };
        let mut text = Cow::Borrowed(text);
        if self.folds_case {
            text = Cow::Owned(text.to_lowercase());
        }
        if self.composes {
            text = Cow::Owned(compose(&text));
        }
        if self.folds_to_ascii {
            text = Cow::Owned(fold_to_ascii(&text));
        }
        match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

/// Replaces letters, digits and punctuation by those of ASCII that resemble them.
// Source: Lucene 9.7, analysis.miscellaneous.ASCIIFoldingFilter
fn fold_to_ascii(text: &str) -> String {
    /// Lines of a replacement and the code points that it replaces.
    static FOLDING: LazyLock<BTreeMap<char, &'static str>> = LazyLock::new(|| {
        let lines = include_str!("analysis/folding.txt").lines();
        let lines = lines.filter_map(|line| line.split_once(' '));
        let folds = |(to, points): (&'static str, &'static str)| {
            points.split(' ').map(move |point| (character(point), to))
        };
        lines.flat_map(folds).collect()
    });
    let mut folded = String::with_capacity(text.len());
    for c in text.chars() {
        match FOLDING.get(&c) {
            Some(replacement) if !c.is_ascii() => folded.push_str(replacement),
            _ => folded.push(c),
        }
    }
    folded
}

/// The character of a hexadecimal code point in a table of this module.
fn character(hex: &str) -> char {
    code(hex).try_into().expect("tables contain characters")
}

fn code(hex: &str) -> u32 {
    u32::from_str_radix(hex, 16).expect("tables contain hexadecimal numbers")
}

/// The canonical equivalences of Unicode. A crate for them would add three to the linked ones; it
/// is the reference of the tests.
struct Canonical {
    /// The parts of a character. The first part may have parts itself.
    parts: BTreeMap<char, Vec<char>>,
    composites: BTreeMap<(char, char), char>,
    /// Ranges of code points with their combining class, by their last one.
    classes: BTreeMap<u32, (u32, u8)>,
}

/// In the table, a line that begins with `+` has a last character, and pairs of a first character
/// and the composite of both; one with `-` has characters and what always replaces them; one with
/// `@` has a combining class and its ranges.
static CANONICAL: LazyLock<Canonical> = LazyLock::new(|| {
    let mut found =
        Canonical { parts: BTreeMap::new(), composites: BTreeMap::new(), classes: BTreeMap::new() };
    for line in include_str!("analysis/canonical.txt").lines() {
        let mut words = line.split(' ');
        let kind = words.next();
        if kind == Some("-") {
            for (from, to) in words.filter_map(|word| word.split_once(':')) {
                found.parts.insert(character(from), to.split('+').map(character).collect());
            }
            continue;
        }
        let Some(head) = words.next() else { continue };
        if kind == Some("+") {
            let last = character(head);
            for (first, composite) in words.filter_map(|word| word.split_once(':')) {
                let (first, composite) = (character(first), character(composite));
                found.parts.insert(composite, vec![first, last]);
                found.composites.insert((first, last), composite);
            }
            continue;
        }
        let class = head.parse().expect("classes are numbers");
        for word in words {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            found.classes.insert(code(last), (code(first), class));
        }
    }
    found
});

/// Syllables of Hangul are composed by arithmetic: 19 leading consonants, 21 vowels and 27 optional
/// trailing consonants.
// Source: The Unicode Standard 3.12, Conjoining Jamo Behavior
mod hangul {
    pub(super) const SYLLABLE: u32 = 0xAC00;
    pub(super) const LEADING: u32 = 0x1100;
    pub(super) const VOWEL: u32 = 0x1161;
    /// One before the first trailing consonant.
    pub(super) const TRAILING: u32 = 0x11A7;
    pub(super) const VOWELS: u32 = 21;
    pub(super) const TRAILINGS: u32 = 28;
    pub(super) const SYLLABLES: u32 = 19 * VOWELS * TRAILINGS;
}

impl Canonical {
    fn decompose(&self, c: char, add: &mut impl FnMut(char)) {
        let syllable = u32::from(c).wrapping_sub(hangul::SYLLABLE);
        if syllable < hangul::SYLLABLES {
            let of = |code: u32| char::from_u32(code).expect("jamo are characters");
            let (pair, trailing) = (syllable / hangul::TRAILINGS, syllable % hangul::TRAILINGS);
            add(of(hangul::LEADING + pair / hangul::VOWELS));
            add(of(hangul::VOWEL + pair % hangul::VOWELS));
            if trailing > 0 {
                add(of(hangul::TRAILING + trailing));
            }
            return;
        }
        match self.parts.get(&c).map(Vec::as_slice) {
            // The first part of a sequence without composites has no parts.
            Some([first, rest @ ..]) => {
                self.decompose(*first, add);
                rest.iter().copied().for_each(add);
            }
            _ => add(c),
        }
    }

    fn class(&self, c: char) -> u8 {
        let code = u32::from(c);
        match self.classes.range(code..).next() {
            Some((_, (first, class))) if *first <= code => *class,
            _ => 0,
        }
    }

    fn composite(&self, first: char, last: char) -> Option<char> {
        let after = |c: char, start: u32| u32::from(c).checked_sub(start);
        if let Some(leading) = after(first, hangul::LEADING).filter(|leading| *leading < 19)
            && let Some(vowel) = after(last, hangul::VOWEL).filter(|v| *v < hangul::VOWELS)
        {
            let pair = leading * hangul::VOWELS + vowel;
            return char::from_u32(hangul::SYLLABLE + pair * hangul::TRAILINGS);
        }
        if let Some(syllable) = after(first, hangul::SYLLABLE)
            && syllable < hangul::SYLLABLES
            && syllable % hangul::TRAILINGS == 0
            && let Some(1..hangul::TRAILINGS) = after(last, hangul::TRAILING)
        {
            return char::from_u32(u32::from(first) + u32::from(last) - hangul::TRAILING);
        }
        self.composites.get(&(first, last)).copied()
    }
}

/// Normalization form C.
// Source: Unicode Standard Annex 15; The Unicode Standard 3.11, D108 to D117
fn compose(text: &str) -> String {
    let canonical = &*CANONICAL;
    let mut parts: Vec<(char, u8)> = Vec::with_capacity(text.len());
    for c in text.chars() {
        canonical.decompose(c, &mut |part| parts.push((part, canonical.class(part))));
    }
    // Marks that follow a starter, which has class 0, are ordered by their classes.
    for marks in parts.chunk_by_mut(|_, (_, class)| *class != 0) {
        marks.sort_by_key(|(_, class)| *class);
    }
    let mut composed: Vec<char> = Vec::with_capacity(parts.len());
    let mut starter = None;
    // The class of the last mark that is between the starter and the next part.
    let mut between: Option<u8> = None;
    for (part, class) in parts {
        if let Some(at) = starter
            && between.is_none_or(|between| between < class)
            && let Some(composite) = canonical.composite(composed[at], part)
        {
            composed[at] = composite;
            continue;
        }
        if class == 0 {
            starter = Some(composed.len());
        }
        between = (class != 0).then_some(class);
        composed.push(part);
    }
    composed.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_normalization::UnicodeNormalization as _;

    use super::*;

    #[test]
    fn each_character_is_composed_as_by_the_reference() {
        for c in '\0'..=char::MAX {
            let mut texts = vec![c.to_string()];
            if c < '\u{3100}' {
                texts.extend([format!("e{c}\u{301}"), format!("{c}\u{323}\u{302}")]);
            }
            for text in texts {
                let expected: String = text.nfc().collect();
                assert_eq!(compose(&text), expected, "{}", text.escape_unicode());
            }
        }
    }

    /// Letters, marks of several classes, Hangul and characters that are never composed.
    fn hard_characters() -> impl Strategy<Value = String> {
        let one = prop_oneof![
            prop::sample::select(vec!['a', 'e', 'E', 'ß', 'Σ', 'ọ', '\u{212B}', '\u{0958}']),
            prop::char::range('\u{300}', '\u{36F}'),
            prop::char::range('\u{1100}', '\u{11FF}'),
            prop::char::range('\u{AC00}', '\u{D7A3}'),
            any::<char>(),
        ];
        prop::collection::vec(one, 0..12).prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #[test]
        fn texts_are_composed_as_by_the_reference(text in hard_characters()) {
            let expected: String = text.nfc().collect();
            prop_assert_eq!(compose(&text), expected);
        }
    }

    fn check(options: &[(&str, &str)], text: &str, expected: &str) {
        let options = options.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let analysis = Analysis::new(&options.collect());
        let found = analysis.apply(text.as_bytes());
        assert_eq!(str::from_utf8(&found).unwrap(), expected, "{text} {analysis:?}");
    }

    /// The results of Cassandra 5.0.
    #[test]
    fn options_transform_texts() {
        check(&[], "ÉA", "ÉA");
        check(&[("case_sensitive", "true")], "ÉA", "ÉA");
        check(&[("case_sensitive", "FALSE")], "ÉA", "éa");
        check(&[("case_sensitive", "false")], "ΑΣ", "ας");
        check(&[("case_sensitive", "false")], "İx", "i\u{307}x");
        check(&[("case_sensitive", "false")], "STRAßE", "straße");
        check(&[("normalize", "true")], "e\u{301}", "é");
        check(&[("normalize", "true")], "\u{1E9B}\u{323}", "\u{1E9B}\u{323}");
        check(&[("ascii", "true")], "Éa ß æ «Ω» ﬃ ⑳", "Ea ss ae \"Ω\" ffi 20");
        check(&[("ascii", "false")], "é", "é");
        // Without composition, marks remain.
        check(&[("ascii", "true")], "e\u{301}", "e\u{301}");
        check(&[("ascii", "true"), ("normalize", "true")], "e\u{301}", "e");
    }
}
