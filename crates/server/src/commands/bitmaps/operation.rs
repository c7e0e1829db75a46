//! BITOP.

use smallvec::SmallVec;
use store::Change;
use store::types::Text;
use wire::resp::Args;

use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{COMBINED_BYTES, CommandContext, is_option};
use crate::commands::fail::Fail;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// In the first string and in none of the others.
    Diff,
    /// In one of the others and not in the first string.
    Diff1,
    /// In the first string and in one of the others.
    AndOr,
    /// In exactly one of the strings.
    One,
}

impl Operation {
    const NAMES: [(&str, Operation); 8] = [
        ("AND", Operation::And),
        ("OR", Operation::Or),
        ("XOR", Operation::Xor),
        ("NOT", Operation::Not),
        ("DIFF", Operation::Diff),
        ("DIFF1", Operation::Diff1),
        ("ANDOR", Operation::AndOr),
        ("ONE", Operation::One),
    ];

    fn parse(name: &[u8]) -> Result<Operation, Fail> {
        let found = Operation::NAMES.iter().find(|(word, _)| is_option(name, word));
        found.map(|(_, operation)| *operation).ok_or(Fail::Syntax)
    }

    fn name(self) -> &'static str {
        let found = Operation::NAMES.iter().find(|(_, operation)| *operation == self);
        found.map(|(name, _)| *name).expect("every operation has a name")
    }

    // Source: Redis 8.2 documentation, "BITOP"
    fn check_sources(self, count: usize) -> Done {
        let (is_allowed, wanted) = match self {
            Operation::Not => (count == 1, "a single source key"),
            Operation::Diff | Operation::Diff1 | Operation::AndOr => {
                (count >= 2, "at least two source keys")
            }
            Operation::And | Operation::Or | Operation::Xor | Operation::One => return Ok(()),
        };
        if is_allowed {
            return Ok(());
        }
        Err(Fail::owned(format!("ERR BITOP {} must be called with {wanted}.", self.name())))
    }

    /// Combines strings; shorter ones continue with zeros.
    fn combine(self, sources: &[&[u8]]) -> Vec<u8> {
        let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
        let (first, others) = sources.split_first().expect("the arity demands one");
        match self {
            Operation::And => {
                let mut result = padded(first, len);
                for other in others {
                    apply(&mut result, other, |byte, other| *byte &= other);
                    result[other.len()..].fill(0);
                }
                result
            }
            Operation::Or => union(first, others, len),
            Operation::Xor => {
                let mut result = padded(first, len);
                for other in others {
                    apply(&mut result, other, |byte, other| *byte ^= other);
                }
                result
            }
            Operation::Not => first.iter().map(|byte| !byte).collect(),
            Operation::Diff => {
                let mut result = padded(first, len);
                for other in others {
                    apply(&mut result, other, |byte, other| *byte &= !other);
                }
                result
            }
            Operation::Diff1 => {
                let mut result = union(&[], others, len);
                apply(&mut result, first, |byte, first| *byte &= !first);
                result
            }
            Operation::AndOr => {
                let mut result = union(&[], others, len);
                apply(&mut result, first, |byte, first| *byte &= first);
                result[first.len()..].fill(0);
                result
            }
            Operation::One => {
                let mut result = padded(first, len);
                let mut several = vec![0; len];
                for other in others {
                    let bytes = result.iter_mut().zip(&mut several).zip(*other);
                    for ((byte, several), other) in bytes {
                        *several |= *byte & other;
                        *byte = (*byte | other) & !*several;
                    }
                }
                result
            }
        }
    }
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut result = Vec::with_capacity(len);
    result.extend_from_slice(bytes);
    result.resize(len, 0);
    result
}

/// Changes the first bytes of a result, each by the one of a string.
fn apply(result: &mut [u8], bytes: &[u8], change: impl Fn(&mut u8, u8)) {
    result.iter_mut().zip(bytes).for_each(|(byte, other)| change(byte, *other));
}

fn union(first: &[u8], others: &[&[u8]], len: usize) -> Vec<u8> {
    let mut result = padded(first, len);
    for other in others {
        apply(&mut result, other, |byte, other| *byte |= other);
    }
    result
}

pub(crate) const BITOP: Command = Command {
    name: "bitop",
    syntax: "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]",
    summary: "Combines string values bit by bit, and stores the result.",
    since: "2.6.0",
    complexity: "O(N) in the bytes of all strings",
    group: Group::Bitmap,
    arity: -4,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::COPIES),
    events: Events::Each(Group::String.event("set")),
    keys: &[
        KeySpec::range(2, 2, 1, KeyAccess::Overwrite),
        KeySpec::range(3, -1, 1, KeyAccess::Read),
    ],
    run: bitop,
    ..Command::EMPTY
};

fn bitop(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let operation = Operation::parse(args.get(1))?;
    operation.check_sources(args.len() - 3)?;
    let result = combined(cx, operation, args.skip(3))?;
    let destination = cx.key(args.get(2));
    if !result.is_empty() {
        cx.change(destination, Change::Set { value: &result, expiry: None })?;
    } else if cx.locked.contains(cx.db, destination) {
        cx.delete(destination)?;
    }
    cx.reply.count(result.len());
    Ok(())
}

/// Returns the strings of the keys, combined.
fn combined(
    cx: &CommandContext<'_>,
    operation: Operation,
    keys: Args<'_>,
) -> Result<Vec<u8>, Fail> {
    let strings = keys.iter().map(|key| cx.locked.string(cx.db, cx.key(key)));
    let strings = strings.map(|value| Ok(value?.unwrap_or_default()));
    let strings = strings.collect::<Result<SmallVec<[Text<'_>; 8]>, Fail>>()?;
    let sources: SmallVec<[&[u8]; 8]> = strings.iter().map(|string| &**string).collect();
    let bytes: usize = sources.iter().map(|source| source.len()).sum();
    cx.spend(bytes / COMBINED_BYTES)?;
    Ok(operation.combine(&sources))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_bit_is_combined(
            sources in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..5),
        ) {
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
            let column = |at: usize| sources.iter().map(move |it| it.get(at).copied().unwrap_or(0));
            let rows = |combine: fn(u8, u8) -> u8| -> Vec<u8> {
                (0..len).map(|at| column(at).reduce(combine).unwrap_or(0)).collect()
            };
            prop_assert_eq!(Operation::And.combine(&sources), rows(|a, b| a & b));
            prop_assert_eq!(Operation::Or.combine(&sources), rows(|a, b| a | b));
            prop_assert_eq!(Operation::Xor.combine(&sources), rows(|a, b| a ^ b));
            let ones = |at: usize, bit: u32| column(at).filter(|byte| byte >> bit & 1 == 1).count();
            let bits = |holds: &dyn Fn(u8, usize) -> bool| -> Vec<u8> {
                let bit = |at, bit| {
                    let first = column(at).next().unwrap_or(0) >> bit & 1;
                    u8::from(holds(first, ones(at, bit) - usize::from(first))) << bit
                };
                (0..len).map(|at| (0..8).map(|it| bit(at, it)).sum()).collect()
            };
            prop_assert_eq!(Operation::Diff.combine(&sources), bits(&|x, y| x == 1 && y == 0));
            prop_assert_eq!(Operation::Diff1.combine(&sources), bits(&|x, y| x == 0 && y > 0));
            prop_assert_eq!(Operation::AndOr.combine(&sources), bits(&|x, y| x == 1 && y > 0));
            let one = bits(&|x, y| usize::from(x) + y == 1);
            prop_assert_eq!(Operation::One.combine(&sources), one);
            let flipped: Vec<u8> = sources[0].iter().map(|byte| !byte).collect();
            prop_assert_eq!(Operation::Not.combine(&sources[..1]), flipped);
        }
    }
}
