//! The forms of all commands whose replies are compared, and how a random request is made of one.
//!
//! | notation | meaning |
//! |---|---|
//! | `WORD` | itself |
//! | `$x` | a random word of this kind: see `words` |
//! | `#x` | a number of keys, and as many keys of this kind |
//! | `[ a \| b ]` | nothing, or one of these |
//! | `( a \| b )` | one of these |
//! | `{ a }` | one to four times |
//! | `{9 a }` | nine times |

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};

use super::agree::Rule;
use super::words::{self, Word};

/// The share of optional parts that are present.
const OPTION: f64 = 0.35;
/// The share of numbers of keys that are wrong.
const WRONG_NUMBER: f64 = 0.02;

/// A group of commands, which a sequence prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Theme {
    Strings,
    Bits,
    Hashes,
    Lists,
    Sets,
    Sorted,
    Streams,
    Logs,
    Places,
    Keys,
}

impl Theme {
    pub(super) const ALL: [Theme; 10] = [
        Theme::Strings,
        Theme::Bits,
        Theme::Hashes,
        Theme::Lists,
        Theme::Sets,
        Theme::Sorted,
        Theme::Streams,
        Theme::Logs,
        Theme::Places,
        Theme::Keys,
    ];

    fn forms(self) -> &'static [(&'static str, Rule)] {
        match self {
            Theme::Strings => super::forms::STRINGS,
            Theme::Bits => super::forms::BITS,
            Theme::Hashes => super::forms::HASHES,
            Theme::Lists => super::forms::LISTS,
            Theme::Sets => super::forms::SETS,
            Theme::Sorted => super::forms::SORTED,
            Theme::Streams => super::forms::STREAMS,
            Theme::Logs => super::forms::LOGS,
            Theme::Places => super::forms::PLACES,
            Theme::Keys => super::forms::KEYS,
        }
    }
}

/// One form.
#[derive(Debug)]
pub(super) struct Form {
    parts: Vec<Part>,
    pub(super) rule: Rule,
    /// Waits if no data is there: a form for which a wrong word could mean to wait forever.
    pub(super) is_blocking: bool,
}

#[derive(Debug, Clone)]
enum Part {
    Word(&'static str),
    Slot(&'static str),
    Keys(&'static str),
    Optional(Vec<Vec<Part>>),
    Choice(Vec<Vec<Part>>),
    Repeated(Vec<Part>),
    /// Repeated this number of times.
    Counted(usize, Vec<Part>),
}

/// All forms by theme.
#[derive(Debug)]
pub(super) struct Grammar {
    themes: Vec<(Theme, Vec<Form>)>,
}

impl Grammar {
    pub(super) fn new() -> Self {
        let forms = |theme: Theme| theme.forms().iter().map(|(text, rule)| Form::new(text, *rule));
        Self { themes: Theme::ALL.map(|theme| (theme, forms(theme).collect())).into() }
    }

    pub(super) fn any(&self, random: &mut StdRng, theme: Theme) -> &Form {
        let (_, forms) = self.themes.iter().find(|(it, _)| *it == theme).expect("all are here");
        forms.choose(random).expect("a theme has forms")
    }
}

impl Form {
    fn new(text: &'static str, rule: Rule) -> Self {
        let mut tokens = text.split_whitespace();
        let (mut alternatives, end) = parse(&mut tokens);
        assert!(end.is_none() && alternatives.len() == 1, "brackets of {text:?}");
        let parts = alternatives.remove(0);
        let is_blocking = text.contains(words::SHORT_WAIT) || text.contains(" BLOCK ");
        Self { parts, rule, is_blocking }
    }

    /// A random request.
    pub(super) fn words(&self, random: &mut StdRng, ids: &mut u64) -> Vec<Word> {
        let mut request = Vec::new();
        expand(&self.parts, random, ids, &mut request);
        request
    }
}

/// Parses alternatives up to a closing bracket, which is returned.
fn parse(
    tokens: &mut impl Iterator<Item = &'static str>,
) -> (Vec<Vec<Part>>, Option<&'static str>) {
    let mut alternatives = vec![Vec::new()];
    while let Some(token) = tokens.next() {
        let part = match token {
            "|" => {
                alternatives.push(Vec::new());
                continue;
            }
            "]" | ")" | "}" => return (alternatives, Some(token)),
            "[" => Part::Optional(inner(tokens, "]")),
            "(" => Part::Choice(inner(tokens, ")")),
            "{" => Part::Repeated(inner(tokens, "}").remove(0)),
            _ if token.starts_with('{') => {
                let times = token[1..].parse().expect("a number follows the bracket");
                Part::Counted(times, inner(tokens, "}").remove(0))
            }
            "$" => Part::Word(token),
            _ if token.starts_with('$') => Part::Slot(&token[1..]),
            _ if token.starts_with('#') => Part::Keys(&token[1..]),
            word => Part::Word(word),
        };
        alternatives.last_mut().expect("it has one").push(part);
    }
    (alternatives, None)
}

fn inner(tokens: &mut impl Iterator<Item = &'static str>, end: &str) -> Vec<Vec<Part>> {
    let (alternatives, found) = parse(tokens);
    assert_eq!(found, Some(end));
    alternatives
}

fn expand(parts: &[Part], random: &mut StdRng, ids: &mut u64, request: &mut Vec<Word>) {
    for part in parts {
        match part {
            Part::Word(word) => request.push(Word::plain(word.as_bytes())),
            Part::Slot(kind) => request.push(words::random(random, kind, ids)),
            Part::Keys(kind) => {
                let keys = random.random_range(1..=3);
                let is_wrong = random.random_bool(WRONG_NUMBER);
                let said = if is_wrong { random.random_range(-1..6) } else { keys };
                request.push(Word::plain(said.to_string().as_bytes()));
                request.extend((0..keys).map(|_| words::random(random, kind, ids)));
            }
            Part::Optional(alternatives) => {
                if random.random_bool(OPTION) {
                    let one = alternatives.choose(random).expect("it has one");
                    expand(one, random, ids, request);
                }
            }
            Part::Choice(alternatives) => {
                let one = alternatives.choose(random).expect("it has one");
                expand(one, random, ids, request);
            }
            Part::Repeated(parts) => {
                for _ in 0..random.random_range(1..=4) {
                    expand(parts, random, ids, request);
                }
            }
            Part::Counted(times, parts) => {
                (0..*times).for_each(|_| expand(parts, random, ids, request));
            }
        }
    }
}

/// Two to three themes for one sequence.
pub(super) fn themes(random: &mut StdRng) -> Vec<Theme> {
    let mut all = Theme::ALL.to_vec();
    all.shuffle(random);
    all.truncate(random.random_range(1..=3));
    all
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_form_makes_requests() {
        let form = Form::new("ZUNION #z [ AGGREGATE ( SUM | MIN ) ] { $f }", Rule::Exact);
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..100 {
            let words = form.words(&mut random, &mut 0);
            assert!(words.len() >= 4);
            assert_eq!(words[0].bytes, b"ZUNION");
            assert!(words.iter().any(|word| word.is_key));
            let aggregate = words.iter().position(|word| word.bytes == b"AGGREGATE");
            assert!(
                aggregate
                    .is_none_or(|at| [&b"SUM"[..], b"MIN"].contains(&&words[at + 1].bytes[..]))
            );
        }
    }

    #[test]
    fn every_form_can_be_expanded() {
        let grammar = Grammar::new();
        let mut random = StdRng::seed_from_u64(1);
        for (theme, forms) in &grammar.themes {
            for form in forms {
                for _ in 0..20 {
                    assert!(!form.words(&mut random, &mut 0).is_empty(), "{theme:?}");
                }
            }
        }
    }
}
