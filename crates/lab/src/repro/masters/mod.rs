//! Experiment s4.r6: two masters and their hub. It shows which of two writes to a key stays, and how
//! fast the hub appends what the masters have written.

mod connection;
pub(super) mod convergence;
mod group;
mod order;
mod rate;

use anyhow::Result;

use super::finding::{Finding, Number};
use super::web::Bench;
use order::Order;
use rate::Rate;

/// The name of the experiment, and of its table.
pub(super) const NAME: &str = "s4.r6";

/// The source compares two.
const MASTERS: usize = 2;
/// The source never syncs; a stream has synced records only.
const DURABILITY: &str = "interval";

pub(super) fn measure(bench: &Bench<'_>) -> Result<Finding> {
    let order = order::measure(bench)?;
    let rates = rate::measure(bench)?;
    Ok(finding(&order, &rates))
}

fn finding(order: &Order, rates: &[Rate]) -> Finding {
    let rows = order.rows().into_iter().chain(rates.iter().map(Rate::row));
    let rows: Vec<_> = rows.collect();
    let is_reached = rows.iter().all(|row| row.target.is_none_or(|target| row.value >= target));
    let agrees = is_reached && order.keeps_the_newer();
    let mut numbers = vec![
        Number::new("older writes dropped", real(order.dropped), ""),
        Number::new("wrong keys", real(order.wrong), ""),
    ];
    numbers.extend(rates.iter().map(Rate::number));
    Finding {
        name: NAME.into(),
        title: "Conflicts between masters".into(),
        numbers,
        source: "the older of two writes is dropped; two masters append 100,000 per second to the \
                 hub before group commit"
            .into(),
        agrees,
        conclusion: CONCLUSION.into(),
        deviation_reason: if agrees { String::new() } else { DEVIATION_REASON.into() },
        rows,
    }
}

/// Converts counts far below 2^53, which a double holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts of some millions")]
fn real(count: u64) -> f64 {
    count as f64
}

const CONCLUSION: &str = "\
A version with each value decides at every server, not only at the hub: so the order of arrival has no influence, and the \
masters become equal, too. pika_hub appends bytes and remembers the time of a key in a cache; here the hub stores each value \
with its version, in memory and on disk, and each value is one unit of work. The rates therefore are not those of an append \
alone, which tables s4.t2, s4.t3 and s4.r2 measure.";
const DEVIATION_REASON: &str = "\
the rows show what differs; if it is a rate, hub, masters and load share the cores of one machine, where the source had one \
machine each.";

#[cfg(test)]
mod tests {
    use super::*;

    fn order(wrong: u64) -> Order {
        Order { keys: 100, dropped: 50, conflicts: 100, wrong }
    }

    fn rates(seconds: f64) -> Vec<Rate> {
        vec![Rate { value_bytes: 5, is_stored_before: true, values: 300_000, seconds }]
    }

    #[test]
    fn it_agrees_if_no_key_is_wrong_and_the_rate_of_the_source_is_reached() {
        let found = finding(&order(0), &rates(2.0));
        assert!(found.agrees && found.deviation_reason.is_empty(), "{found:?}");
        let numbers = found.numbers();
        assert!(numbers.starts_with("older writes dropped 50, wrong keys 0, "), "{numbers}");
        assert!(numbers.ends_with("150,000 per s"), "{numbers}");
        assert!(!finding(&order(1), &rates(2.0)).agrees);
        assert!(!finding(&order(0), &rates(30.0)).agrees);
    }

    #[test]
    fn an_older_write_that_was_not_dropped_differs() {
        let found = Order { dropped: 49, ..order(0) };
        assert!(!finding(&found, &rates(2.0)).agrees);
    }
}
