//! Parses the syntax text of a command into the tree of arguments that COMMAND DOCS returns.
//!
//! The text uses the notation of Redis's documentation: `TOKEN`, `value`, `[optional]`, `<A | B>`,
//! `key [key ...]`. A token includes the values after it; `[value [value ...]]` may occur any
//! number of times, including zero. A test converts every tree back to text, which reveals texts
//! that do not mean what their author intended.
//! something else than its author thinks is found.
// Source: Redis documentation, "Command arguments"

use std::iter::Peekable;

use crate::commands::command::{Command, KeyPlaces, KeySpec};

/// One argument, or a group of arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    /// For a value its word, for a group the names of its parts.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The literal word that precedes it.
    pub(crate) token: Option<&'static str>,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
    /// A repetition starts with the token again.
    pub(crate) repeats_token: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A value that the client fills in, with Redis's name of its type.
    Value(&'static str),
    /// A key, with the index of its specification.
    Key(usize),
    /// Only a token.
    Token,
    OneOf(Vec<Argument>),
    Block(Vec<Argument>),
}

impl Kind {
    /// Redis's name of the type.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Value(name) => name,
            Kind::Key(_) => "key",
            Kind::Token => "pure-token",
            Kind::OneOf(_) => "oneof",
            Kind::Block(_) => "block",
        }
    }
}

/// Returns the arguments of a command, with keys marked. A container has none.
///
/// `words_before` counts the words before the first argument: 1, for a subcommand 2.
pub(crate) fn arguments(command: &Command, words_before: usize) -> Vec<Argument> {
    if !command.subcommands.is_empty() {
        return Vec::new();
    }
    let mut arguments = parse(command.syntax);
    let mut place = Some(words_before);
    for argument in &mut arguments {
        place = place.and_then(|place| mark_keys(command.keys, place, argument));
        mark_optional_keys(command.keys, argument);
    }
    for (spec, KeySpec { places, .. }) in command.keys.iter().enumerate() {
        let keyword = match places {
            KeyPlaces::Streams { .. } => "STREAMS",
            KeyPlaces::Tail { keyword, .. } => keyword,
            _ => continue,
        };
        if let Some(named) = arguments.iter_mut().find(|it| it.token == Some(keyword)) {
            named.kind = Kind::Key(spec);
        }
    }
    arguments
}

/// Marks the keys in an argument that starts at `place`. Returns the position after it if that is
/// known, which excludes arguments that are optional or repeated, and alternatives with values.
fn mark_keys(specs: &[KeySpec], place: usize, argument: &mut Argument) -> Option<usize> {
    if argument.optional {
        if let (Kind::Value(_), Some(spec)) = (&argument.kind, spec_at(specs, place)) {
            argument.kind = Kind::Key(spec);
        }
        return None;
    }
    let mut place = place + usize::from(argument.token.is_some());
    match &mut argument.kind {
        Kind::Value(_) | Kind::Key(_) => {
            if let Some(spec) = spec_at(specs, place) {
                argument.kind = Kind::Key(spec);
            }
            place += 1;
        }
        Kind::Token => {}
        Kind::OneOf(parts) if parts.iter().all(|part| part.kind == Kind::Token) => place += 1,
        Kind::OneOf(_) => return None,
        Kind::Block(parts) => {
            for part in parts {
                place = mark_keys(specs, place, part)?;
            }
        }
    }
    (!argument.multiple).then_some(place)
}

/// Returns the specification whose first key, or one of whose fixed number of keys, is at `place`.
fn spec_at(specs: &[KeySpec], place: usize) -> Option<usize> {
    specs.iter().position(|spec| match spec.places {
        KeyPlaces::Range { first, last, .. } => {
            place == first || (place > first && place.cast_signed() <= last)
        }
        KeyPlaces::Counted { count_at, .. } => place == count_at + 1,
        KeyPlaces::Keyword { .. }
        | KeyPlaces::Streams { .. }
        | KeyPlaces::Tail { .. }
        | KeyPlaces::Elsewhere => false,
    })
}

/// Marks the values of options that are keys.
fn mark_optional_keys(specs: &[KeySpec], argument: &mut Argument) {
    let is_of = |spec: &KeySpec| match spec.places {
        KeyPlaces::Keyword { keyword, .. } => argument.token == Some(keyword),
        _ => false,
    };
    let spec = specs.iter().position(is_of);
    match (&mut argument.kind, spec) {
        (Kind::Value(_), Some(spec)) => argument.kind = Kind::Key(spec),
        (Kind::OneOf(parts) | Kind::Block(parts), _) => {
            for part in parts {
                mark_optional_keys(specs, part);
            }
        }
        _ => {}
    }
}

fn parse(syntax: &'static str) -> Vec<Argument> {
    let mut parser = Parser { words: words(syntax).into_iter().peekable() };
    let mut group = parser.group("");
    if group.alternatives.len() == 1 {
        return group.alternatives.pop().unwrap_or_default();
    }
    fold(group.alternatives).into_iter().collect()
}

/// Splits the text into words and brackets.
fn words(syntax: &'static str) -> Vec<&'static str> {
    let mut words = Vec::new();
    for mut rest in syntax.split_whitespace() {
        while !rest.is_empty() {
            let end = rest.find(['[', ']', '<', '>', '|']).unwrap_or(rest.len()).max(1);
            words.push(&rest[..end]);
            rest = &rest[end..];
        }
    }
    words
}

struct Parser<I: Iterator<Item = &'static str> + Clone> {
    words: Peekable<I>,
}

/// Contents of a pair of brackets.
struct Group {
    alternatives: Vec<Vec<Argument>>,
    /// True if it ends in `...`.
    repeats: bool,
}

impl<I: Iterator<Item = &'static str> + Clone> Parser<I> {
    /// Parses up to the closing bracket, or to the end of the text.
    fn group(&mut self, end: &str) -> Group {
        let mut alternatives = Vec::new();
        let mut sequence = Vec::new();
        let mut repeats = false;
        while let Some(word) = self.words.next() {
            match word {
                _ if word == end => break,
                "|" => alternatives.push(std::mem::take(&mut sequence)),
                "..." => repeats = true,
                "[" => self.optional(&mut sequence),
                "<" => sequence.extend(fold(self.group(">").alternatives)),
                _ if is_token(word) => sequence.push(self.token(word)),
                _ => sequence.push(value(word)),
            }
        }
        alternatives.push(sequence);
        Group { alternatives, repeats }
    }

    /// Parses an optional argument, or the repetition of the arguments before it.
    fn optional(&mut self, before: &mut Vec<Argument>) {
        let mut group = self.group("]");
        if let (true, [again]) = (group.repeats, group.alternatives.as_slice())
            && repeat(before, again)
        {
            return;
        }
        let alternatives = std::mem::take(&mut group.alternatives);
        before.extend(fold(alternatives).map(|whole| Argument {
            optional: true,
            multiple: whole.multiple || group.repeats,
            ..whole
        }));
    }

    /// Whether the repetition of some of the last values follows: `IDS numids id [id ...]`.
    fn repeats_end_of(&self, values: &[Argument]) -> bool {
        let mut ahead = self.words.clone();
        if ahead.next() != Some("[") {
            return false;
        }
        let mut again = Vec::new();
        while let Some(word) = ahead.next_if(|word| is_value(word)) {
            again.push(word);
        }
        ahead.next() == Some("...")
            && values.len().checked_sub(again.len()).is_some_and(|start| {
                values[start..].iter().map(|old| old.name.as_str()).eq(again.iter().copied())
            })
    }

    /// Parses the values or the choice that belong to a token.
    fn token(&mut self, token: &'static str) -> Argument {
        let mut values = Vec::new();
        while let Some(word) = self.words.next_if(|word| is_value(word)) {
            values.push(value(word));
        }
        if values.len() > 1 && self.repeats_end_of(&values) {
            self.words.next(); // the bracket
            self.optional(&mut values);
        }
        let whole = match block(values) {
            Some(values) => values,
            None if self.words.next_if_eq(&"<").is_some() => Argument::new(Kind::OneOf(
                self.group(">").alternatives.into_iter().filter_map(block).collect(),
            )),
            None => Argument { name: token.to_ascii_lowercase(), ..Argument::new(Kind::Token) },
        };
        Argument { token: Some(token), ..whole }
    }
}

impl Argument {
    /// Creates a required, unrepeated argument, named after its parts.
    fn new(kind: Kind) -> Argument {
        let name = match &kind {
            Kind::OneOf(parts) | Kind::Block(parts) => {
                let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
                names.join("_")
            }
            Kind::Value(_) | Kind::Key(_) | Kind::Token => String::new(),
        };
        Argument { name, kind, token: None, optional: false, multiple: false, repeats_token: false }
    }
}

/// Makes the last arguments a repeated one if they are named like `again`: those before it, or the
/// last ones that belong to a token. False if neither are.
fn repeat(before: &mut Vec<Argument>, again: &[Argument]) -> bool {
    if let Some(start) = before.len().checked_sub(again.len())
        && before[start..].iter().zip(again).all(|(old, new)| old.name == new.name)
    {
        let repeats_token = matches!(again, [single] if single.token.is_some());
        let repeated = block(before.split_off(start));
        before.extend(repeated.map(|whole| Argument { multiple: true, repeats_token, ..whole }));
        return true;
    }
    match before.last_mut() {
        Some(Argument { token: Some(_), kind: Kind::Block(parts), .. }) => repeat(parts, again),
        _ => false,
    }
}

/// Combines consecutive arguments into one block; `None` if there are none.
fn block(mut parts: Vec<Argument>) -> Option<Argument> {
    if parts.len() > 1 {
        return Some(Argument::new(Kind::Block(parts)));
    }
    parts.pop()
}

/// Combines several alternatives into one choice.
fn fold(alternatives: Vec<Vec<Argument>>) -> Option<Argument> {
    let mut choices: Vec<Argument> = alternatives.into_iter().filter_map(block).collect();
    if choices.len() > 1 {
        return Some(Argument::new(Kind::OneOf(choices)));
    }
    choices.pop()
}

fn is_token(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_uppercase())
        && !word.contains(|c: char| c.is_ascii_lowercase())
}

fn is_value(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_lowercase()) && !is_token(word)
}

fn value(word: &str) -> Argument {
    Argument { name: word.to_owned(), ..Argument::new(Kind::Value(value_type(word))) }
}

/// Returns Redis's type of a value. A word such as `start`, which is a number for some commands
/// only, is a string: clients validate what they complete.
fn value_type(word: &str) -> &'static str {
    match word {
        "client-id" | "count" | "cursor" | "db" | "decrement" | "destination-db" | "index"
        | "len" | "limit" | "milliseconds" | "min-match-len" | "num-matches" | "numfields"
        | "numkeys" | "numlocal" | "numreplicas" | "offset" | "protover" | "rank" | "seconds" => {
            "integer"
        }
        "increment" | "score" | "timeout" | "weight" => "double",
        "pattern" => "pattern",
        "unix-time-seconds" | "unix-time-milliseconds" => "unix-time",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::REGISTRY;

    /// Converts the tree back to text.
    fn write(arguments: &[Argument]) -> String {
        arguments.iter().map(write_argument).collect::<Vec<_>>().join(" ")
    }

    fn write_argument(argument: &Argument) -> String {
        let token = argument.token.unwrap_or_default();
        let is_bare = argument.optional && argument.token.is_none();
        let parts = match &argument.kind {
            Kind::Value(_) | Kind::Key(_) => argument.name.clone(),
            Kind::Token => String::new(),
            Kind::Block(parts) => write(parts),
            Kind::OneOf(parts) => {
                let parts: Vec<String> = parts.iter().map(write_argument).collect();
                let parts = parts.join(" | ");
                if is_bare { parts } else { format!("<{parts}>") }
            }
        };
        let again = match argument {
            Argument { multiple: false, .. } => String::new(),
            Argument { kind: Kind::OneOf(_), .. } if is_bare => " ...".to_owned(),
            Argument { repeats_token: true, .. } => format!(" [{token} {parts} ...]"),
            _ => format!(" [{parts} ...]"),
        };
        let text = format!("{token} {parts}{again}").trim().to_owned();
        if argument.optional { format!("[{text}]") } else { text }
    }

    /// Arguments as `name:type`, with the parts of a choice or a block in parentheses.
    fn outline(arguments: &[Argument]) -> String {
        let outlines = arguments.iter().map(|argument| {
            let token = argument.token.map(|token| format!("{token}=")).unwrap_or_default();
            let text = match &argument.kind {
                Kind::OneOf(parts) | Kind::Block(parts) => {
                    format!("{token}{}({})", argument.kind.name(), outline(parts))
                }
                kind => format!("{token}{}:{}", argument.name, kind.name()),
            };
            let optional = if argument.optional { "?" } else { "" };
            let multiple = match argument {
                Argument { multiple: false, .. } => "",
                Argument { repeats_token: true, .. } => "++",
                _ => "+",
            };
            format!("{text}{optional}{multiple}")
        });
        outlines.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn syntax_becomes_a_tree() {
        for (syntax, expected) in [
            ("", ""),
            ("key value", "key:string value:string"),
            ("key [key ...] timeout", "key:string+ timeout:double"),
            ("key value [key value ...]", "block(key:string value:string)+"),
            ("[NX | XX] [GET]", "oneof(NX=nx:pure-token XX=xx:pure-token)? GET=get:pure-token?"),
            ("[EX seconds | KEEPTTL]", "oneof(EX=seconds:integer KEEPTTL=keepttl:pure-token)?"),
            ("[LIMIT offset count]", "LIMIT=block(offset:integer count:integer)?"),
            ("[COUNT count [ANY]]", "block(COUNT=count:integer ANY=any:pure-token?)?"),
            ("[WEIGHTS weight [weight ...]]", "WEIGHTS=weight:double?+"),
            ("[event [event ...]]", "event:string?+"),
            ("[GET pattern | c ...]", "oneof(GET=pattern:pattern c:string)?+"),
            ("[GET pattern [GET pattern ...]]", "GET=pattern:pattern?++"),
            (
                "[BY <A | B pattern>] <C | d>",
                "BY=oneof(A=a:pure-token B=pattern:pattern)? oneof(C=c:pure-token d:string)",
            ),
        ] {
            let tree = parse(syntax);
            assert_eq!(outline(&tree), expected, "{syntax}");
            assert_eq!(write(&tree), syntax);
        }
    }

    #[test]
    fn every_syntax_says_what_it_means() {
        let entries = REGISTRY.entries().map(|(_, entry)| entry);
        let changed: Vec<String> = entries
            .filter(|entry| entry.command.subcommands.is_empty())
            .map(|entry| (entry, write(&parse(entry.command.syntax))))
            .filter(|(entry, written)| entry.command.syntax != written)
            .map(|(entry, written)| format!("{}: is understood as {written}", entry.full_name))
            .collect();
        assert_eq!(changed, Vec::<String>::new());
    }

    #[test]
    fn every_key_specification_has_its_argument() {
        fn collect(arguments: &[Argument], found: &mut Vec<usize>) {
            for argument in arguments {
                match &argument.kind {
                    Kind::Key(spec) => found.push(*spec),
                    Kind::OneOf(parts) | Kind::Block(parts) => collect(parts, found),
                    Kind::Value(_) | Kind::Token => {}
                }
            }
        }
        for (_, entry) in REGISTRY.entries() {
            let words_before = 1 + usize::from(entry.parent.is_some());
            let mut found = Vec::new();
            collect(&arguments(entry.command, words_before), &mut found);
            found.dedup();
            let is_said = |spec: &usize| entry.command.keys[*spec].places != KeyPlaces::Elsewhere;
            let expected: Vec<usize> = (0..entry.command.keys.len()).filter(is_said).collect();
            assert_eq!(found, expected, "{}", entry.full_name);
        }
    }

    /// Key arguments are marked, as clients with hints need them.
    #[test]
    fn arguments_know_their_keys() {
        for (name, expected) in [
            ("mset", "block(key:key value:string)+"),
            (
                "lcs",
                "key1:key key2:key LEN=len:pure-token? IDX=idx:pure-token? \
                     MINMATCHLEN=min-match-len:integer? WITHMATCHLEN=withmatchlen:pure-token?",
            ),
            (
                "bitop",
                "oneof(AND=and:pure-token OR=or:pure-token XOR=xor:pure-token NOT=not:pure-token \
                     DIFF=diff:pure-token DIFF1=diff1:pure-token ANDOR=andor:pure-token \
                     ONE=one:pure-token) destkey:key key:key+",
            ),
            ("zdiffstore", "destination:key numkeys:integer key:key+"),
            ("httl", "key:key FIELDS=block(numfields:integer field:string+)"),
            (
                "xread",
                "COUNT=count:integer? BLOCK=milliseconds:integer? STREAMS=key:key+ id:string+",
            ),
            ("object|freq", "key:key"),
            ("object", ""),
        ] {
            let entry = REGISTRY.entry(REGISTRY.find_full(name.as_bytes()).expect("known"));
            let words_before = 1 + usize::from(entry.parent.is_some());
            assert_eq!(outline(&arguments(entry.command, words_before)), expected, "{name}");
        }
    }
}
