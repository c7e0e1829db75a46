//! LPOS.

use smallvec::SmallVec;
use store::ListRef;
use store::types::Text;
use wire::resp::Args;

use super::READS;
use crate::commands::command::{Command, Done, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;

pub(crate) const LPOS: Command = Command {
    name: "lpos",
    syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
    summary: "Returns the indexes of the elements of a list that equal the given one.",
    since: "6.0.6",
    complexity: "O(N) in the elements of the list",
    group: Group::List,
    arity: -3,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: lpos,
    ..Command::EMPTY
};

fn lpos(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let search = Search::parse(args)?;
    let key = cx.key(args.get(1));
    let list = cx.locked.list(cx.db, key)?;
    cx.spend(list.map_or(0, |list| search.compared(list.len())))?;
    let found = list.map_or_else(SmallVec::new, |list| search.run(list, args.get(2)));
    if search.count.is_some() {
        cx.reply.array(found.len());
        found.iter().for_each(|index| cx.reply.count(*index));
    } else if let Some(index) = found.first() {
        cx.reply.count(*index);
    } else {
        cx.reply.null();
    }
    Ok(())
}

/// The options of LPOS.
#[derive(Debug, PartialEq, Eq)]
struct Search {
    /// Rank of the first match to report; counted from the end if negative.
    rank: i64,
    /// Maximum number of matches to report, 0: all. `None`: one match, not in an array.
    count: Option<usize>,
    /// Maximum number of elements to compare, 0: all.
    compared_max: usize,
}

fn parse_rank(text: &[u8]) -> Result<i64, Fail> {
    match integer(text)? {
        i64::MIN => Err(Fail::text(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        )),
        0 => Err(Fail::text(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
             second ... or use negative to start from the end of the list",
        )),
        rank => Ok(rank),
    }
}

impl Search {
    // Source: Redis 7.2 `t_list.c`, `lposCommand`
    fn parse(args: Args<'_>) -> Result<Search, Fail> {
        let mut search = Search { rank: 1, count: None, compared_max: 0 };
        let mut rest = args.skip(3).iter();
        while let Some(name) = rest.next() {
            let value = rest.next().ok_or(Fail::Syntax)?;
            if is_option(name, "RANK") {
                search.rank = parse_rank(value)?;
            } else if is_option(name, "COUNT") {
                search.count = Some(parse_natural(value, "ERR COUNT can't be negative")?);
            } else if is_option(name, "MAXLEN") {
                search.compared_max = parse_natural(value, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(Fail::Syntax);
            }
        }
        Ok(search)
    }

    /// Maximum number of elements to compare in a list of this length.
    fn compared(&self, len: usize) -> usize {
        if self.compared_max == 0 { len } else { len.min(self.compared_max) }
    }

    fn run(&self, list: ListRef<'_>, element: &[u8]) -> SmallVec<[usize; 8]> {
        if self.rank > 0 {
            return self.run_over(list.iter().enumerate(), element);
        }
        let last = list.len() - 1; // a list that exists has elements
        self.run_over(list.iter_rev().enumerate().map(|(at, e)| (last - at, e)), element)
    }

    fn run_over<'a>(
        &self,
        elements: impl Iterator<Item = (usize, Text<'a>)>,
        element: &[u8],
    ) -> SmallVec<[usize; 8]> {
        let all_if_zero = |max: usize| if max == 0 { usize::MAX } else { max };
        let first = usize::try_from(self.rank.unsigned_abs()).unwrap_or(usize::MAX);
        elements
            .take(all_if_zero(self.compared_max))
            .filter(|(_, other)| *other == element)
            .map(|(index, _)| index)
            .skip(first - 1)
            .take(all_if_zero(self.count.unwrap_or(1)))
            .collect()
    }
}

/// Parses a non-negative number, or returns the error `otherwise`.
fn parse_natural(text: &[u8], otherwise: &'static str) -> Result<usize, Fail> {
    let number = integer(text).ok().and_then(|number| usize::try_from(number).ok());
    number.ok_or(Fail::text(otherwise))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::types::{Compact, List};
    use wire::resp::OwnedArgs;

    #[test]
    fn searches() {
        let mut list = List::new();
        for element in "a b c 1 2 3 c c".split(' ') {
            list.push_back(element.as_bytes(), &Compact::default());
        }
        let check = |options: &str, expected: &[usize]| {
            let mut args = OwnedArgs::new();
            let line = format!("LPOS l c {options}");
            line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
            let search = Search::parse(args.as_args()).expect("valid options");
            assert_eq!(search.run((&list).into(), b"c").as_slice(), expected, "{options}");
        };
        check("", &[2]);
        check("RANK 2", &[6]);
        check("RANK -1", &[7]);
        check("RANK 4", &[]);
        check("RANK -9223372036854775807", &[]);
        check("RANK 9223372036854775807", &[]);
        check("COUNT 0", &[2, 6, 7]);
        check("RANK -1 COUNT 2", &[7, 6]);
        check("RANK 2 COUNT 0", &[6, 7]);
        check("COUNT 0 MAXLEN 3", &[2]);
        check("MAXLEN 2", &[]);
        check("RANK -1 MAXLEN 1 COUNT 0", &[7]);
    }
}
