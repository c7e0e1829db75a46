//! Checks whether concurrent operations are linearizable: whether their replies are explained by a
//! sequential order in which each operation takes effect between its invocation and its completion.
//!
//! An operation without a reply took effect before its completion, which is the crash that
//! interrupted it, or never.
// Source: Wing and Gong, "Testing and Verifying Concurrent Objects", 1993; the table of tried states is from
// Lowe, "Testing for linearizability", 2017

use std::collections::BTreeSet;

/// An operation on one object, as a client observed it.
#[derive(Debug, Clone)]
pub(super) struct Operation<O> {
    pub(super) what: O,
    /// Logical times of the events: the earlier of two events has the smaller number.
    pub(super) invoked: usize,
    pub(super) completed: usize,
    /// Whether it was answered.
    pub(super) is_certain: bool,
}

/// Checks a history. `step` returns the possible states after an operation: none if its reply is
/// impossible in the given state. The time is exponential in the number of overlapping operations,
/// which must be small.
pub(super) fn is_linearizable<O, S: Clone + Ord>(
    start: &S,
    operations: &[Operation<O>],
    step: impl Fn(&S, &O) -> Vec<S>,
) -> bool {
    let mut tried: BTreeSet<(Vec<bool>, S)> = BTreeSet::new();
    let mut left = vec![(vec![false; operations.len()], start.clone())];
    while let Some((done, state)) = left.pop() {
        let waiting = || operations.iter().zip(&done).filter(|(_, done)| !**done);
        let Some(first) =
            waiting().filter(|(one, _)| one.is_certain).map(|(one, _)| one.completed).min()
        else {
            return true;
        };
        let begun = operations.iter().zip(&done).filter(|(_, done)| **done);
        let newest = begun.map(|(one, _)| one.invoked).max().unwrap_or(0);
        for (at, one) in operations.iter().enumerate() {
            // An operation that completed before another began cannot follow it.
            if done[at] || one.invoked > first || one.completed < newest {
                continue;
            }
            let mut done = done.clone();
            done[at] = true;
            // An operation that can no longer take effect counts as done: otherwise each crash doubles the search.
            let newest = newest.max(one.invoked);
            for (done, other) in done.iter_mut().zip(operations) {
                *done |= !other.is_certain && other.completed < newest;
            }
            for next in step(&state, &one.what) {
                if tried.insert((done.clone(), next.clone())) {
                    left.push((done.clone(), next));
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum What {
        Write(i32),
        Read(i32),
        /// From, to, and whether it was executed; `None` if unknown.
        Swap(i32, i32, Option<bool>),
    }
    use What::{Read, Swap, Write};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the checker passes states by reference")]
    fn step(state: &i32, what: &What) -> Vec<i32> {
        match *what {
            Write(value) => vec![value],
            Read(value) if value == *state => vec![value],
            Read(_) => vec![],
            Swap(from, to, applied) => {
                let holds = from == *state;
                let fits = applied.is_none_or(|applied| applied == holds);
                if fits { vec![if holds { to } else { *state }] } else { vec![] }
            }
        }
    }

    fn certain(invoked: usize, what: What, completed: usize) -> Operation<What> {
        Operation { what, invoked, completed, is_certain: true }
    }

    fn unknown(invoked: usize, what: What, crash: usize) -> Operation<What> {
        Operation { what, invoked, completed: crash, is_certain: false }
    }

    #[track_caller]
    fn check(operations: &[Operation<What>], expected: bool) {
        assert_eq!(is_linearizable(&0, operations, step), expected, "{operations:?}");
        let mut turned = operations.to_vec();
        turned.reverse();
        assert_eq!(is_linearizable(&0, &turned, step), expected, "{operations:?}");
    }

    #[test]
    fn sequential_operations() {
        check(&[], true);
        check(&[certain(1, Write(1), 2), certain(3, Read(1), 4)], true);
        check(&[certain(1, Write(1), 2), certain(3, Read(0), 4)], false);
        check(&[certain(1, Write(1), 2), certain(3, Write(2), 4), certain(5, Read(1), 6)], false);
        let won = |from| Swap(0, from, Some(true));
        check(&[certain(1, won(1), 2), certain(3, won(2), 4)], false);
        check(&[certain(1, won(1), 2), certain(3, Swap(0, 2, Some(false)), 4)], true);
    }

    #[test]
    fn overlapping_operations() {
        check(&[certain(1, Write(1), 4), certain(2, Read(0), 3)], true);
        check(&[certain(1, Write(1), 4), certain(2, Read(1), 3)], true);
        // A read that begins later must not see an older value.
        check(&[certain(1, Write(1), 9), certain(2, Read(1), 3), certain(4, Read(0), 5)], false);
        check(&[certain(1, Write(1), 9), certain(2, Read(0), 3), certain(4, Read(1), 5)], true);
        // Exactly one of two swaps from the same value succeeds.
        let swap = |to, applied| Swap(0, to, Some(applied));
        check(&[certain(1, swap(1, true), 4), certain(2, swap(2, true), 3)], false);
        check(&[certain(1, swap(1, true), 4), certain(2, swap(2, false), 3)], true);
        check(&[certain(1, swap(1, false), 4), certain(2, swap(2, false), 3)], false);
    }

    #[test]
    fn an_operation_interrupted_by_a_crash_runs_before_it_or_never() {
        let cut = unknown(1, Write(1), 2);
        check(&[cut.clone(), certain(3, Read(0), 4)], true);
        check(&[cut.clone(), certain(3, Read(1), 4)], true);
        // It takes effect neither after the crash nor twice.
        check(&[cut.clone(), certain(3, Read(0), 4), certain(5, Read(1), 6)], false);
        check(&[cut, certain(3, Write(2), 4), certain(5, Read(1), 6)], false);
        let swaps = [unknown(1, Swap(0, 1, None), 5), unknown(2, Swap(1, 2, None), 5)];
        for (seen, expected) in [(0, true), (1, true), (2, true), (3, false)] {
            check(&[&swaps[..], &[certain(6, Read(seen), 7)]].concat(), expected);
        }
        // An acknowledged operation is not lost.
        check(&[certain(1, Write(1), 2), unknown(3, Write(2), 4), certain(5, Read(0), 6)], false);
    }

    proptest! {
        /// A sequential history is accepted, even if its operations seem to have lasted longer.
        #[test]
        fn real_histories_are_accepted(
            steps in prop::collection::vec((0..3, 0..4_i32, 0..4_i32, 0..6_usize, 0..6_usize), 0..14),
        ) {
            let mut state = 0;
            let mut operations = Vec::new();
            for (at, (kind, from, to, before, after)) in steps.into_iter().enumerate() {
                let what = match kind {
                    0 => Write(to),
                    1 => Read(state),
                    _ => Swap(from, to, Some(from == state)),
                };
                state = step(&state, &what)[0];
                let moment = 10 * at + 100;
                operations.push(certain(moment - 10 * before, what, moment + 1 + 10 * after));
            }
            prop_assert!(is_linearizable(&0, &operations, step));
        }
    }
}
