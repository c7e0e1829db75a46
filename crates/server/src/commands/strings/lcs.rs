//! LCS.

use store::types::Text;
use store::{Key, Locked};
use wire::resp::{Args, ReplyWriter};

use super::READS;
use crate::commands::command::{Command, Done, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;

pub(crate) const LCS: Command = Command {
    name: "lcs",
    syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
    summary: "Finds the longest common subsequence of two strings.",
    since: "7.0.0",
    complexity: "O(N*M) in the lengths of the strings",
    group: Group::String,
    arity: -3,
    flags: READS,
    keys: &[KeySpec::range(1, 2, 1, KeyAccess::Read)],
    run: lcs,
    ..Command::EMPTY
};

fn lcs(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (first, second) = (cx.key(args.get(1)), cx.key(args.get(2)));
    let a = lcs_string(&cx.locked, cx.db, first)?;
    let b = lcs_string(&cx.locked, cx.db, second)?;
    let (a, b) = (&*a, &*b);
    let options = LcsOptions::parse(args)?;
    let cells = LcsLengths::cells(a, b)?;
    cx.check_more(cells * size_of::<u32>())?;
    let lengths = LcsLengths::new(a, b, cells);
    if options.wants_len {
        cx.reply.integer(lengths.total());
    } else if options.wants_indexes {
        let mut runs = lengths.common_runs(a, b);
        runs.retain(|run| run.len >= options.run_len_min);
        write_runs(&mut cx.reply, &runs, &options, lengths.total());
    } else {
        let runs = lengths.common_runs(a, b);
        let parts: Vec<&[u8]> =
            runs.iter().rev().map(|run| &a[run.a_start..run.a_start + run.len]).collect();
        cx.reply.bulk(&parts.concat());
    }
    Ok(())
}

fn lcs_string<'a>(locked: &'a Locked<'_>, db: u8, key: Key<'_>) -> Result<Text<'a>, Fail> {
    locked
        .string(db, key)
        .map(Option::unwrap_or_default)
        .map_err(|_| Fail::text("ERR The specified keys must contain string values"))
}

#[derive(Debug, Default)]
struct LcsOptions {
    wants_len: bool,
    wants_indexes: bool,
    run_len_min: usize,
    with_run_len: bool,
}

impl LcsOptions {
    fn parse(args: Args<'_>) -> Result<LcsOptions, Fail> {
        let mut options = LcsOptions::default();
        let mut rest = args.skip(3).iter();
        while let Some(name) = rest.next() {
            if is_option(name, "LEN") {
                options.wants_len = true;
            } else if is_option(name, "IDX") {
                options.wants_indexes = true;
            } else if is_option(name, "WITHMATCHLEN") {
                options.with_run_len = true;
            } else if is_option(name, "MINMATCHLEN") {
                let len = integer(rest.next().ok_or(Fail::Syntax)?)?;
                options.run_len_min = usize::try_from(len).unwrap_or(0);
            } else {
                return Err(Fail::Syntax);
            }
        }
        if options.wants_len && options.wants_indexes {
            return Err(Fail::text(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// A run of consecutive bytes that are equal in both strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    a_start: usize,
    b_start: usize,
    len: usize,
}

/// Lengths of the longest common subsequences of all pairs of prefixes.
struct LcsLengths {
    cells: Vec<u32>,
    row_len: usize,
}

impl LcsLengths {
    /// The number of pairs of prefixes.
    fn cells(a: &[u8], b: &[u8]) -> Result<usize, Fail> {
        const BYTES_MAX: usize = 64 << 20;
        let cells = (a.len() + 1).checked_mul(b.len() + 1);
        cells.filter(|cells| *cells <= BYTES_MAX / size_of::<u32>()).ok_or(Fail::text(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ))
    }

    /// O(a * b) in time and memory. At the limit, two strings of 4,095 bytes, about 30 ms.
    fn new(a: &[u8], b: &[u8], cells: usize) -> LcsLengths {
        let row_len = b.len() + 1;
        let mut lengths = LcsLengths { cells: vec![0; cells], row_len };
        for (i, a_byte) in a.iter().enumerate() {
            let (above, below) = lengths.cells[i * row_len..].split_at_mut(row_len);
            for (j, b_byte) in b.iter().enumerate() {
                below[j + 1] =
                    if a_byte == b_byte { above[j] + 1 } else { above[j + 1].max(below[j]) };
            }
        }
        lengths
    }

    fn at(&self, a_len: usize, b_len: usize) -> u32 {
        self.cells[a_len * self.row_len + b_len]
    }

    fn total(&self) -> i64 {
        self.cells.last().map_or(0, |len| i64::from(*len))
    }

    /// Returns the runs of one longest common subsequence, last one first.
    // Source: Redis 7.2 `t_string.c`, `lcsCommand`: the same choice among equally long ones
    fn common_runs(&self, a: &[u8], b: &[u8]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] != b[j - 1] {
                if self.at(i - 1, j) > self.at(i, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.a_start == i && run.b_start == j => {
                    *run = Run { a_start: i - 1, b_start: j - 1, len: run.len + 1 };
                }
                _ => runs.push(Run { a_start: i - 1, b_start: j - 1, len: 1 }),
            }
            i -= 1;
            j -= 1;
        }
        runs
    }
}

fn write_runs(reply: &mut ReplyWriter<'_>, runs: &[Run], options: &LcsOptions, total: i64) {
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.len());
    for run in runs {
        reply.array(if options.with_run_len { 3 } else { 2 });
        for start in [run.a_start, run.b_start] {
            reply.array(2);
            reply.count(start);
            reply.count(start + run.len - 1);
        }
        if options.with_run_len {
            reply.count(run.len);
        }
    }
    reply.bulk(b"len");
    reply.integer(total);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn common(a: &[u8], b: &[u8]) -> Vec<u8> {
        let cells = LcsLengths::cells(a, b).expect("short");
        let lengths = LcsLengths::new(a, b, cells);
        let runs = lengths.common_runs(a, b);
        let parts = runs.iter().rev().map(|run| {
            let bytes = &a[run.a_start..run.a_start + run.len];
            assert_eq!(bytes, &b[run.b_start..run.b_start + run.len]);
            bytes
        });
        let text = parts.collect::<Vec<_>>().concat();
        assert_eq!(i64::try_from(text.len()), Ok(lengths.total()));
        text
    }

    fn is_subsequence(part: &[u8], of: &[u8]) -> bool {
        let mut rest = of.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    #[test]
    fn longest_common_subsequences() {
        assert_eq!(common(b"ohmytext", b"mynewtext"), b"mytext");
        assert_eq!(common(b"", b"abc"), b"");
        let (a, b) = (b"ohmytext", b"mynewtext");
        let lengths = LcsLengths::new(a, b, LcsLengths::cells(a, b).expect("short"));
        let runs = lengths.common_runs(b"ohmytext", b"mynewtext");
        let expected =
            [Run { a_start: 4, b_start: 5, len: 4 }, Run { a_start: 2, b_start: 0, len: 2 }];
        assert_eq!(runs, expected);
    }

    #[test]
    fn too_long_strings_have_no_common_subsequence() {
        let long = vec![0; 20_000];
        assert!(LcsLengths::cells(&long, &long).is_err());
    }

    proptest! {
        #[test]
        fn the_common_subsequence_is_in_both(
            a in proptest::collection::vec(0u8..3, 0..30),
            b in proptest::collection::vec(0u8..3, 0..30),
        ) {
            let text = common(&a, &b);
            prop_assert!(is_subsequence(&text, &a));
            prop_assert!(is_subsequence(&text, &b));
        }
    }
}
