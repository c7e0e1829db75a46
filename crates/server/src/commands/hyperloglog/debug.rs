//! PFDEBUG and PFSELFTEST.

use wire::resp::Args;

use super::hash::place_of;
use super::sketch::{Encoding, REGISTERS, Registers, SPARSE_BYTES_MAX, Sketch, dense_value};
use super::{copied, estimate, sparse, store};
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, SKETCH_COST, is_option};
use crate::commands::fail::Fail;

pub(crate) const PFDEBUG: Command = Command {
    name: "pfdebug",
    syntax: "subcommand key",
    summary: "Shows how a HyperLogLog is stored: GETREG, DECODE, ENCODING, or makes it dense: TODENSE.",
    since: "2.8.9",
    complexity: "O(1), with a large constant",
    group: Group::HyperLogLog,
    arity: 3,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::ADMIN),
    events: Events::Chosen,
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Renew)],
    run: pfdebug,
    ..Command::EMPTY
};

// Source: Redis 7.2 `hyperloglog.c`, `pfdebugCommand`: it publishes no events
fn pfdebug(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (name, key) = (args.get(1), cx.key(args.get(2)));
    if cx.locked.string(cx.db, key)?.is_none() {
        return Err(Fail::text("ERR The specified key does not exist"));
    }
    cx.spend(SKETCH_COST)?;
    let mut sketch = copied(cx, key)?;
    let was_sparse = sketch.encoding() == Encoding::Sparse;
    if is_option(name, "GETREG") || is_option(name, "TODENSE") {
        if was_sparse {
            sketch.unpack()?;
            store(cx, key, &sketch)?;
        }
        if is_option(name, "TODENSE") {
            cx.reply.integer(i64::from(was_sparse));
            return Ok(());
        }
        cx.reply.array(REGISTERS);
        for register in 0..REGISTERS {
            cx.reply.integer(i64::from(dense_value(sketch.body(), register)));
        }
    } else if is_option(name, "DECODE") {
        if !was_sparse {
            return Err(Fail::text("ERR HLL encoding is not sparse"));
        }
        cx.reply.bulk(sparse::shown(sketch.body())?.as_bytes());
    } else if is_option(name, "ENCODING") {
        cx.reply.simple(if was_sparse { "sparse" } else { "dense" });
    } else {
        return Err(Fail::quoting("ERR Unknown PFDEBUG subcommand '", name, "'"));
    }
    Ok(())
}

pub(crate) const PFSELFTEST: Command = Command {
    name: "pfselftest",
    summary: "Adds 100,000 elements to a HyperLogLog of its own and checks the counts.",
    since: "2.8.9",
    complexity: "O(1), with a large constant",
    group: Group::HyperLogLog,
    arity: 1,
    flags: Flags::ADMIN,
    run: pfselftest,
    ..Command::EMPTY
};

fn pfselftest(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    const ELEMENTS: u64 = 100_000;
    /// Four times the standard error of 0.81 %, in thousandths.
    const ERROR_MAX: u64 = 33;
    cx.spend(usize::try_from(ELEMENTS).unwrap_or(usize::MAX))?;
    let (mut either, mut dense) = (Sketch::empty(), Sketch::empty());
    dense.unpack()?;
    let mut checked_at = 1;
    for number in 1..=ELEMENTS {
        let place = place_of(&number.to_le_bytes());
        either.raise(place, SPARSE_BYTES_MAX)?;
        dense.raise(place, SPARSE_BYTES_MAX)?;
        if number != checked_at {
            continue;
        }
        checked_at *= 10;
        let count = count_of(&dense)?;
        if count_of(&either)? != count {
            return Err(Fail::text("ERR TESTFAILED dense/sparse disagree"));
        }
        if count.abs_diff(number) > number * ERROR_MAX / 1000 + 1 {
            let text = format!("ERR TESTFAILED Too big error. card:{number} count:{count}");
            return Err(Fail::owned(text));
        }
    }
    cx.reply.ok();
    Ok(())
}

fn count_of(sketch: &Sketch<'_>) -> Result<u64, Fail> {
    let mut registers = Registers::default();
    sketch.merge_into(&mut registers)?;
    Ok(estimate::count(&registers))
}
