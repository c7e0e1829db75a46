//! What a writer has sent, and what was acknowledged; compared with what a server has.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::client::{Account, Client};

/// Elements of a list, by their numbers: longer lists would make each append slower.
pub(super) const LIST_LENGTH: u64 = 200;
/// Faults that are kept.
const FAULTS_MAX: usize = 10;

/// Values of one place, which only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) acknowledged: u64,
    pub(super) sent: u64,
}

impl Span {
    fn fault(self, is_complete: bool, found: u64) -> Option<String> {
        let least = if is_complete { self.acknowledged } else { 0 };
        let is_right = (least..=self.sent).contains(&found);
        (!is_right).then(|| format!("{found}, not {least} to {}", self.sent))
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) account: Account,
    pub(super) registers: BTreeMap<u64, Span>,
    pub(super) count: Span,
    pub(super) pair: Span,
    /// The acknowledged elements of each list.
    pub(super) lists: BTreeMap<u64, Vec<u64>>,
    /// The last value that was sent.
    pub(super) value: u64,
    pub(super) acknowledged: u64,
    /// What the writer itself saw.
    pub(super) faults: Vec<String>,
}

impl Ledger {
    pub(super) fn new(account: Account) -> Ledger {
        Ledger {
            account,
            registers: BTreeMap::new(),
            count: Span::default(),
            pair: Span::default(),
            lists: BTreeMap::new(),
            value: 0,
            acknowledged: 0,
            faults: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> String {
        let Account { number, protocol, durability } = self.account;
        format!("writer {number} ({protocol:?}, {durability})")
    }

    pub(super) fn note_fault(&mut self, what: &str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(format!("{}: {what}", self.name()));
        }
    }

    /// Compares with the data of a server. `is_complete`: it must have all acknowledged writes.
    pub(super) fn check(&self, client: &mut dyn Client, is_complete: bool) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut add = |place: &str, fault: Option<String>| {
            faults.extend(fault.map(|fault| format!("{}: {place}: {fault}", self.name())));
        };
        for (register, span) in &self.registers {
            let found = client.get(*register)?.unwrap_or(0);
            add(&format!("register {register}"), span.fault(is_complete, found));
        }
        add("count", self.count.fault(is_complete, client.count()?));
        let [one, other] = client.pair()?;
        add("pair", (one != other).then(|| format!("torn: {one:?} and {other:?}")));
        add("pair", self.pair.fault(is_complete, one.unwrap_or(0)));
        for (list, acknowledged) in &self.lists {
            let found = client.list(*list).with_context(|| format!("list {list}"))?;
            let place = format!("list {list}");
            add(&place, list_fault(&found, self.value));
            let missing = acknowledged.iter().find(|value| found.binary_search(value).is_err());
            add(&place, missing.filter(|_| is_complete).map(|value| format!("{value} is missing")));
        }
        Ok(faults)
    }
}

/// A list has ascending elements, and no other than sent ones.
fn list_fault(found: &[u64], sent: u64) -> Option<String> {
    if let Some((one, next)) =
        found.iter().zip(found.iter().skip(1)).find(|(one, next)| one >= next)
    {
        return Some(format!("{one} is followed by {next}"));
    }
    let last = found.last().copied().unwrap_or(0);
    (last > sent).then(|| format!("{last} was not sent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_that_was_sent_and_not_older_than_acknowledged() {
        let span = Span { acknowledged: 5, sent: 7 };
        for (is_complete, found, is_right) in [
            (true, 5, true),
            (true, 7, true),
            (true, 4, false),
            (false, 4, true),
            (false, 8, false),
        ] {
            assert_eq!(span.fault(is_complete, found).is_none(), is_right, "{found}");
        }
    }

    #[test]
    fn lists_that_were_merged_are_found() {
        assert_eq!(list_fault(&[1, 2, 5], 5), None);
        assert!(list_fault(&[1, 5, 2], 5).is_some(), "in another order");
        assert!(list_fault(&[1, 2, 2], 5).is_some(), "twice");
        assert!(list_fault(&[1, 6], 5).is_some(), "never sent");
    }
}
