//! SORT and `SORT_RO`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use smallvec::SmallVec;
use store::types::{List, Text};
use store::{Key, Kind, Locked, Value};
use wire::resp::{Args, parse_f64};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeyPlaces, KeySpec};
use super::context::{CommandContext, LARGE_ARGUMENT_COST, SET_COST, integer, is_option};
use super::fail::{Fail, shown};
use super::sets::store_result;

/// A name of keys in which `*` stands for an element, and perhaps of a field of hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern<'a> {
    /// `#`
    Element,
    /// Without a `*`: no key.
    Nothing,
    Key {
        before: &'a [u8],
        after: &'a [u8],
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    // Source: Redis 7.2 `sort.c`, `lookupKeyByPattern`
    fn parse(text: &'a [u8]) -> Pattern<'a> {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = memchr::memchr(b'*', text) else { return Pattern::Nothing };
        let (before, after) = (&text[..star], &text[star + 1..]);
        match memchr::memmem::find(after, b"->").filter(|arrow| arrow + 2 < after.len()) {
            Some(arrow) => {
                Pattern::Key { before, after: &after[..arrow], field: Some(&after[arrow + 2..]) }
            }
            None => Pattern::Key { before, after, field: None },
        }
    }

    /// Returns the value that the pattern names for an element.
    fn value<'v>(self, locked: &'v Locked<'_>, db: u8, element: &'v [u8]) -> Option<Text<'v>> {
        let Pattern::Key { before, after, field } = self else {
            return (self == Pattern::Element).then_some(element.into());
        };
        let name = [before, element, after].concat();
        match (locked.get(db, locked.key(&name)), field) {
            (Some(Value::String(value)), None) => Some(value),
            (Some(Value::Hash(hash)), Some(field)) => hash.get(field),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Options<'a> {
    is_descending: bool,
    is_alpha: bool,
    first: i64,
    /// Negative: all.
    count: i64,
    by: Option<Pattern<'a>>,
    get: SmallVec<[Pattern<'a>; 4]>,
    destination: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, stores: bool) -> Result<Options<'a>, Fail> {
        let mut options = Options {
            is_descending: false,
            is_alpha: false,
            first: 0,
            count: -1,
            by: None,
            get: SmallVec::new(),
            destination: None,
        };
        let mut rest = args.skip(2);
        while !rest.is_empty() {
            let is = |name, values| rest.len() > values && is_option(rest.get(0), name);
            let mut used = 1;
            if is("ASC", 0) || is("DESC", 0) {
                options.is_descending = is("DESC", 0);
            } else if is("ALPHA", 0) {
                options.is_alpha = true;
            } else if is("LIMIT", 2) {
                (options.first, options.count) = (integer(rest.get(1))?, integer(rest.get(2))?);
                used = 3;
            } else if stores && is("STORE", 1) {
                (options.destination, used) = (Some(rest.get(1)), 2);
            } else if is("BY", 1) {
                let text = rest.get(1);
                // As in Redis, `BY #` is constant.
                let has_star = memchr::memchr(b'*', text).is_some();
                options.by = Some(if has_star { Pattern::parse(text) } else { Pattern::Nothing });
                used = 2;
            } else if is("GET", 1) {
                options.get.push(Pattern::parse(rest.get(1)));
                used = 2;
            } else {
                return Err(Fail::Syntax);
            }
            rest = rest.skip(used);
        }
        Ok(options)
    }

    /// The elements that LIMIT selects from `len`.
    fn range(&self, len: usize) -> Range<usize> {
        let first = usize::try_from(self.first.max(0)).unwrap_or(usize::MAX).min(len);
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        first..first.saturating_add(count).min(len)
    }
}

/// Whether a SORT reads keys that are not among its arguments.
pub(super) fn reads_other_keys(args: Args<'_>) -> bool {
    let is_key = |pattern: &Pattern<'_>| matches!(pattern, Pattern::Key { .. });
    Options::parse(args, true)
        .is_ok_and(|options| options.by.iter().chain(&options.get).any(is_key))
}

/// What elements are compared by.
#[derive(Debug, Clone, Copy)]
enum Weight<'a> {
    Number(f64),
    /// `None`: the key does not exist, so the element is before all others.
    Text(Option<Text<'a>>),
}

impl<'a> Weight<'a> {
    fn of(value: Option<Text<'a>>, is_alpha: bool) -> Result<Weight<'a>, Fail> {
        if is_alpha {
            return Ok(Weight::Text(value));
        }
        // A key that does not exist counts as 0.
        let text = shown(value.as_deref().unwrap_or_default()).trim_ascii_start();
        let number = if text.is_empty() { Some(0.0) } else { parse_f64(text) };
        let error = Fail::text("ERR One or more scores can't be converted into double");
        number.map(Weight::Number).ok_or(error)
    }

    fn compare(self, other: Weight<'_>) -> Ordering {
        match (self, other) {
            (Weight::Number(a), Weight::Number(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Weight::Text(a), Weight::Text(b)) => a.as_deref().cmp(&b.as_deref()),
            _ => unreachable!("all weights of a request are of one kind"),
        }
    }
}

type Elements<'a> = Vec<Cow<'a, [u8]>>;

/// Returns the selected elements of a key in their order.
fn sorted(
    cx: &CommandContext<'_>,
    key: Key<'_>,
    options: &Options<'_>,
) -> Result<Vec<Vec<u8>>, Fail> {
    let Some(value) = cx.locked.get(cx.db, key) else { return Ok(Vec::new()) };
    if !matches!(value, Value::List(_) | Value::Set(_) | Value::ZSet(_)) {
        return Err(Fail::WrongType);
    }
    let is_set = matches!(value, Value::Set(_));
    // The elements of a set have no order, so they are stored in that of their bytes.
    let must_sort = is_set && options.destination.is_some();
    let is_constant = options.by == Some(Pattern::Nothing);
    let range = options.range(value.len());
    if is_constant && !must_sort {
        cx.spend(if is_set { value.len() } else { range.end })?;
        let is_reversed = options.is_descending && !is_set;
        let found = elements(value, range, is_reversed)?;
        return copies(cx, found.iter());
    }
    cx.spend(value.len().saturating_mul(SET_COST))?;
    let all = elements(value, 0..value.len(), false)?;
    let is_alpha = options.is_alpha || is_constant;
    let by = options.by.filter(|_| !is_constant);
    if by.is_some() {
        cx.spend(all.len().saturating_mul(LARGE_ARGUMENT_COST))?;
    }
    let mut order: Vec<(Weight<'_>, usize)> = Vec::with_capacity(all.len());
    for (at, element) in all.iter().enumerate() {
        let weight = match by {
            Some(by) => Weight::of(by.value(&cx.locked, cx.db, element), is_alpha)?,
            None => Weight::of(Some(Text::from(&**element)), is_alpha)?,
        };
        order.push((weight, at));
    }
    let compare = |(a, a_at): &(Weight<'_>, usize), (b, b_at): &(Weight<'_>, usize)| {
        let by_element = || if is_alpha { Ordering::Equal } else { all[*a_at].cmp(&all[*b_at]) };
        let ordering = a.compare(*b).then_with(by_element);
        let ordering = if options.is_descending { ordering.reverse() } else { ordering };
        ordering.then_with(|| a_at.cmp(b_at))
    };
    // Only what LIMIT selects is sorted.
    if range.end < order.len() {
        order.select_nth_unstable_by(range.end, compare);
        order.truncate(range.end);
    }
    order.sort_unstable_by(compare);
    copies(cx, order[range].iter().map(|(_, at)| &all[*at]))
}

/// Copies elements, if there is memory for all of them.
fn copies<'a>(
    cx: &CommandContext<'_>,
    elements: impl Iterator<Item = &'a Cow<'a, [u8]>> + Clone,
) -> Result<Vec<Vec<u8>>, Fail> {
    cx.check_more(elements.clone().map(|element| element.len()).sum())?;
    Ok(elements.map(|element| element.to_vec()).collect())
}

/// Returns a range of the elements of a value, counted from its end if `is_reversed`.
fn elements(
    value: Value<'_>,
    range: Range<usize>,
    is_reversed: bool,
) -> Result<Elements<'_>, Fail> {
    let (skipped, count) = (range.start, range.len());
    Ok(match value {
        Value::List(list) if is_reversed => {
            list.iter_rev().skip(skipped).take(count).map(Text::into_cow).collect()
        }
        Value::List(list) => list.iter().skip(skipped).take(count).map(Text::into_cow).collect(),
        Value::Set(set) => {
            let members = set.iter().skip(skipped).take(count);
            members.map(|member| Text::from(member).into_cow()).collect()
        }
        Value::ZSet(zset) => {
            let ranks =
                if is_reversed { zset.len() - range.end..zset.len() - range.start } else { range };
            let mut members: Elements<'_> =
                zset.iter_range(ranks).map(|(member, _)| member.into_cow()).collect();
            if is_reversed {
                members.reverse();
            }
            members
        }
        _ => return Err(Fail::WrongType),
    })
}

const STORES: KeyPlaces = KeyPlaces::Keyword {
    keyword: "STORE",
    first: 2,
    options: &[("LIMIT", 2), ("GET", 1), ("BY", 1), ("STORE", 1)],
    is_shown: false,
};

const OTHERS: KeySpec = KeySpec {
    places: KeyPlaces::Elsewhere,
    access: KeyAccess::Read,
    notes: Some(
        "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
    ),
};

pub(crate) const SORT: Command = Command {
    name: "sort",
    syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] \
             [ALPHA] [STORE destination]",
    summary: "Sorts a list, a set or a sorted set, and returns or stores the result.",
    since: "1.0.0",
    complexity: "O(N*log(N)) in the elements; with patterns it locks all keys",
    group: Group::Generic,
    arity: -2,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS),
    events: Events::Each(Group::List.event("sortstore")),
    keys: &[
        KeySpec::one(KeyAccess::Read),
        OTHERS,
        KeySpec {
            places: STORES,
            access: KeyAccess::Overwrite,
            notes: Some(
                "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
            ),
        },
    ],
    more_categories: &["@set", "@sortedset", "@list", "@dangerous"],
    run: sort,
    ..Command::EMPTY
};

pub(crate) const SORT_RO: Command = Command {
    name: "sort_ro",
    syntax: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] \
             [ALPHA]",
    summary: "Sorts a list, a set or a sorted set, and returns the result.",
    since: "7.0.0",
    flags: Flags::READONLY.and(Flags::MOVABLEKEYS),
    events: Events::None,
    keys: &[KeySpec::one(KeyAccess::Read), OTHERS],
    ..SORT
};

// Source: Redis 7.2 `sort.c`, `sortCommandGeneric`
fn sort(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let options = Options::parse(args, cx.command.flags.has(Flags::WRITE))?;
    let found = sorted(cx, cx.key(args.get(1)), &options)?;
    let lookups = found.len().saturating_mul(options.get.len());
    cx.spend(lookups.saturating_mul(LARGE_ARGUMENT_COST))?;
    if let Some(destination) = options.destination {
        return store(cx, destination, &found, &options.get);
    }
    cx.reply.array(if options.get.is_empty() { found.len() } else { lookups });
    for element in &found {
        if options.get.is_empty() {
            cx.reply.bulk(element);
        }
        for pattern in &options.get {
            match pattern.value(&cx.locked, cx.db, element) {
                Some(value) => cx.reply.bulk(&value),
                None => cx.reply.null(),
            }
            cx.check_reply()?;
        }
    }
    Ok(())
}

fn store(
    cx: &mut CommandContext<'_>,
    destination: &[u8],
    found: &[Vec<u8>],
    get: &[Pattern<'_>],
) -> Done {
    /// Log bytes of an element beyond its content.
    const ELEMENT_BYTES: usize = 16;
    let compact = &cx.locked.params().compact;
    let mut list = List::new();
    let mut bytes = destination.len();
    let mut push = |value: &[u8]| -> Done {
        bytes = bytes.saturating_add(value.len() + ELEMENT_BYTES);
        cx.admit_record(cx.command, bytes)?;
        list.push_back(value, compact);
        Ok(())
    };
    for element in found {
        if get.is_empty() {
            push(element)?;
        }
        for pattern in get {
            push(pattern.value(&cx.locked, cx.db, element).as_deref().unwrap_or_default())?;
        }
    }
    store_result(cx, cx.key(destination), Kind::List, list.len(), |out| list.encode(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn request(line: &str) -> OwnedArgs {
        let mut args = OwnedArgs::new();
        line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
        args
    }

    #[test]
    fn patterns() {
        let key = |before, after, field| Pattern::Key { before, after, field };
        for (text, expected) in [
            ("#", Pattern::Element),
            ("##", Pattern::Nothing),
            ("nosort", Pattern::Nothing),
            ("k_*", key(&b"k_"[..], &b""[..], None)),
            ("k_*_x*", key(b"k_", b"_x*", None)),
            ("k_*->f", key(b"k_", b"", Some(&b"f"[..]))),
            ("k_*x->f->g", key(b"k_", b"x", Some(b"f->g"))),
            ("k_*->", key(b"k_", b"->", None)),
            ("a->*", key(b"a->", b"", None)),
        ] {
            assert_eq!(Pattern::parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn limits() {
        let check = |line: &str, len, expected| {
            let args = request(line);
            let options = Options::parse(args.as_args(), true).unwrap();
            assert_eq!(options.range(len), expected, "{line}");
        };
        check("SORT k", 3, 0..3);
        check("SORT k LIMIT 1 1", 3, 1..2);
        check("SORT k LIMIT -5 2", 3, 0..2);
        check("SORT k LIMIT 1 -1", 3, 1..3);
        check("SORT k LIMIT 5 1", 3, 3..3);
        check("SORT k LIMIT 0 0", 3, 0..0);
        check("SORT k LIMIT 1 9223372036854775807", 3, 1..3);
    }

    #[test]
    fn only_patterns_need_other_keys() {
        let check = |line: &str, expected| {
            assert_eq!(reads_other_keys(request(line).as_args()), expected, "{line}");
        };
        check("SORT k", false);
        check("SORT k BY nosort GET #", false);
        check("SORT k BY w_*", true);
        check("SORT k GET # GET o_*->f", true);
        check("SORT k STORE w_*", false);
        check("SORT k BY w_* NONSENSE", false);
    }
}
