//! Random choice of elements by index.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::commands::context::integer;
use crate::commands::fail::Fail;

/// Maximum elements of a random choice with repetition: as many as a request may have arguments.
/// Redis has no limit, and builds the reply until it runs out of memory.
const REPEATS_MAX: u64 = 1 << 20;

/// Parses the count of SRANDMEMBER and ZRANDMEMBER: negative means with repetition.
pub(crate) fn random_count(text: &[u8]) -> Result<i64, Fail> {
    match integer(text)? {
        i64::MIN => Err(Fail::text(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// Returns the number of elements in a random choice of `count` among `len`.
pub(crate) fn chosen_len(len: usize, count: i64) -> Result<usize, Fail> {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count >= 0 {
        return Ok(wanted.min(len));
    }
    if count.unsigned_abs() > REPEATS_MAX {
        return Err(Fail::text("ERR value is out of range"));
    }
    Ok(wanted)
}

/// Visits the indexes of a random choice among `len` > 0: `count` distinct ones, or all if there
/// are fewer. A negative count visits `-count` independent ones.
pub(crate) fn choose(
    len: usize,
    count: i64,
    mut random: impl FnMut() -> u64,
    mut visit: impl FnMut(usize),
) {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        (0..wanted).for_each(|_| visit(random_below(len, random())));
    } else if wanted >= len {
        (0..len).for_each(visit);
    } else {
        sample(len, wanted, random, visit);
    }
}

/// Visits `count` <= `len` distinct indexes below `len`; every selection is equally likely.
/// Source: Robert Floyd, "A Sample of Brilliance", Communications of the ACM 30 (1987).
pub(super) fn sample(
    len: usize,
    count: usize,
    mut random: impl FnMut() -> u64,
    mut visit: impl FnMut(usize),
) {
    let mut taken = HashSet::with_capacity_and_hasher(count, FixedState::default());
    for last in len - count..len {
        let index = random_below(last + 1, random());
        let index = if taken.insert(index) { index } else { last };
        taken.insert(index);
        visit(index);
    }
}

/// Maps 64 random bits to an index below `len`.
pub(crate) fn random_below(len: usize, random: u64) -> usize {
    let scaled = (u128::from(random) * len as u128) >> u64::BITS;
    usize::try_from(scaled).expect("the product's upper half is below a length")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator that is random enough to reach every index.
    fn counter() -> impl FnMut() -> u64 {
        let mut state = 0_u64;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            state
        }
    }

    #[test]
    fn samples_are_distinct_and_below_the_length() {
        let mut random = counter();
        for (len, count) in [(1, 0), (1, 1), (10, 1), (10, 7), (10, 10), (1000, 3)] {
            for _ in 0..50 {
                let mut indexes = Vec::new();
                sample(len, count, &mut random, |index| indexes.push(index));
                indexes.sort_unstable();
                indexes.dedup();
                assert_eq!(indexes.len(), count);
                assert!(indexes.iter().all(|index| *index < len));
            }
        }
    }

    #[test]
    fn samples_reach_every_index() {
        let (mut random, mut seen) = (counter(), [false; 10]);
        (0..200).for_each(|_| sample(10, 3, &mut random, |index| seen[index] = true));
        assert_eq!(seen, [true; 10]);
    }

    #[test]
    fn a_choice_is_distinct_or_repeats() {
        for (count, len) in [(0, Some(0)), (2, Some(2)), (9, Some(3)), (-5, Some(5))] {
            let mut visited = 0;
            choose(3, count, counter(), |index| {
                assert!(index < 3);
                visited += 1;
            });
            assert_eq!(chosen_len(3, count).ok(), len);
            assert_eq!(Some(visited), len);
        }
        let most = i64::try_from(REPEATS_MAX).unwrap();
        assert!(chosen_len(1, -most).is_ok());
        assert!(chosen_len(1, -most - 1).is_err());
        assert_eq!(chosen_len(1, i64::MAX), Ok(1));
    }

    #[test]
    fn random_bits_map_to_indexes() {
        assert_eq!(random_below(1, u64::MAX), 0);
        assert_eq!(random_below(10, 0), 0);
        assert_eq!(random_below(10, u64::MAX), 9);
        assert_eq!(random_below(10, u64::MAX / 2), 4);
    }

    #[test]
    fn counts_have_a_positive_counterpart() {
        assert_eq!(random_count(b"-9223372036854775807"), Ok(-i64::MAX));
        assert!(random_count(b"-9223372036854775808").is_err());
        assert_eq!(random_count(b"a"), Err(Fail::NotInteger));
    }
}
