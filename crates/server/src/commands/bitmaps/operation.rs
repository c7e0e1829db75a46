//! BITOP.

use smallvec::SmallVec;
use store::Change;
use wire::resp::Args;

use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{COMBINED_BYTES, CommandContext, is_option};
use crate::commands::fail::Fail;
use crate::commands::strings::count;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn parse(name: &[u8]) -> Result<Operation, Fail> {
        let known = [
            ("AND", Operation::And),
            ("OR", Operation::Or),
            ("XOR", Operation::Xor),
            ("NOT", Operation::Not),
        ];
        let found = known.into_iter().find(|(word, _)| is_option(name, word));
        found.map(|(_, operation)| operation).ok_or(Fail::Syntax)
    }

    /// Combines strings; shorter ones continue with zeros.
    fn combine(self, sources: &[&[u8]]) -> Vec<u8> {
        let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
        let (first, others) = sources.split_first().expect("the arity demands one");
        let mut result = Vec::with_capacity(len);
        result.extend_from_slice(first);
        result.resize(len, 0);
        if self == Operation::Not {
            for byte in &mut result {
                *byte = !*byte;
            }
        }
        for other in others {
            let pairs = result.iter_mut().zip(*other);
            match self {
                Operation::And => {
                    pairs.for_each(|(byte, other)| *byte &= other);
                    result[other.len()..].fill(0);
                }
                Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
                Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
                Operation::Not => unreachable!("it has one source"),
            }
        }
        result
    }
}

pub(crate) const BITOP: Command = Command {
    name: "bitop",
    syntax: "<AND | OR | XOR | NOT> destkey key [key ...]",
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
    if operation == Operation::Not && args.len() != 4 {
        return Err(Fail::text("ERR BITOP NOT must be called with a single source key."));
    }
    let result = combined(cx, operation, args.skip(3))?;
    let destination = cx.key(args.get(2));
    if !result.is_empty() {
        cx.change(destination, Change::Set { value: &result, expiry: None })?;
    } else if cx.locked.contains(cx.db, destination) {
        cx.delete(destination)?;
    }
    cx.reply.integer(count(result.len()));
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
    let sources = strings.collect::<Result<SmallVec<[&[u8]; 8]>, Fail>>()?;
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
            let flipped: Vec<u8> = sources[0].iter().map(|byte| !byte).collect();
            prop_assert_eq!(Operation::Not.combine(&sources[..1]), flipped);
        }
    }
}
