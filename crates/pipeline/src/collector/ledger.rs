//! The collected ids of one stream, each counted once.

use crate::frame::Header;
use crate::intervals::{Added, Intervals};
use crate::message::{Account, NAMED_MAX};
use crate::uniform::CLASSES;

/// Outcome of a batch of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    New,
    /// All of its ids were collected before.
    Duplicate,
    /// It belongs to another incarnation of the generator.
    Stale,
    /// Some of its ids were collected before and some were not. A correct generator never produces
    /// this.
    Conflict,
    /// There are too many gaps: the generator exceeds its window.
    Full,
}

/// Bookkeeping of one stream, without time, sockets or disks.
#[derive(Debug, Clone, Default)]
pub struct StreamLedger {
    epoch: u32,
    ids: Intervals,
    collected: u64,
    duplicate: u64,
    stale: u64,
    damaged_frames: u64,
    digest: u64,
    verified_right: u64,
    verified_wrong: u64,
    sample_positions: [u64; CLASSES],
    wrong_ids: Vec<u64>,
    failed: u64,
    failed_ids: Vec<u64>,
}

impl StreamLedger {
    /// Begins a new incarnation of the generator. Results of earlier ones are refused from now on.
    pub fn begin_epoch(&mut self, epoch: u32) {
        assert!(epoch > self.epoch);
        self.epoch = epoch;
    }

    /// Returns the current epoch; 0 if no generator has connected.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Records a batch. `digest` is the return value of the task's `inspect`.
    pub fn accept(&mut self, header: &Header, digest: u64) -> Accepted {
        let count = u64::from(header.count);
        if header.epoch != self.epoch {
            self.stale += count;
            return Accepted::Stale;
        }
        match self.ids.add(header.ids().iter()) {
            Added::New => {
                self.collected += count;
                self.digest = self.digest.wrapping_add(digest);
                Accepted::New
            }
            Added::Known => {
                self.duplicate += count;
                Accepted::Duplicate
            }
            Added::Conflict => Accepted::Conflict,
            Added::Full => Accepted::Full,
        }
    }

    pub fn count_damaged(&mut self) {
        self.damaged_frames += 1;
    }

    pub fn count_verified(&mut self, right: u64, wrong: &[u64]) {
        self.verified_right += right;
        self.verified_wrong += u64::try_from(wrong.len()).expect("64 bits");
        let room = NAMED_MAX.saturating_sub(self.wrong_ids.len());
        self.wrong_ids.extend(wrong.iter().take(room));
    }

    /// Counts items of an accepted batch whose command failed.
    pub fn count_failed(&mut self, ids: &[u64]) {
        self.failed += u64::try_from(ids.len()).expect("64 bits");
        let room = NAMED_MAX.saturating_sub(self.failed_ids.len());
        self.failed_ids.extend(ids.iter().take(room));
    }

    /// Adds the window positions of a window's samples.
    pub fn count_positions(&mut self, classes: &[u64; CLASSES]) {
        for (sum, count) in self.sample_positions.iter_mut().zip(classes) {
            *sum += count;
        }
    }

    pub fn collected(&self) -> u64 {
        self.collected
    }

    pub fn ids(&self) -> &Intervals {
        &self.ids
    }

    /// Builds the account. `generated` is the number of assigned ids.
    pub fn account(&self, generated: u64) -> Account {
        Account {
            collected: self.collected,
            distinct: self.ids.total(),
            duplicate: self.duplicate,
            stale: self.stale,
            damaged_frames: self.damaged_frames,
            missing: self.ids.gaps(generated).take(NAMED_MAX).collect(),
            digest: self.digest,
            verified_right: self.verified_right,
            verified_wrong: self.verified_wrong,
            sample_positions: self.sample_positions.to_vec(),
            wrong_ids: self.wrong_ids.clone(),
            failed: self.failed,
            failed_ids: self.failed_ids.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Kind;

    fn results(epoch: u32, first_id: u64, count: u32) -> Header {
        let mut header = Header::control(Kind::Result, 1, epoch);
        (header.first_id, header.count) = (first_id, count);
        header
    }

    #[test]
    fn every_id_counts_once() {
        let mut ledger = StreamLedger::default();
        ledger.begin_epoch(1);
        for (header, expected) in [
            (results(1, 0, 10), Accepted::New),
            (results(1, 20, 10), Accepted::New),
            (results(1, 0, 10), Accepted::Duplicate),
            (results(1, 5, 10), Accepted::Conflict),
            (results(2, 10, 10), Accepted::Stale),
        ] {
            assert_eq!(ledger.accept(&header, 7), expected, "{header:?}");
        }
        let account = ledger.account(35);
        assert_eq!((account.collected, account.distinct, account.digest), (20, 20, 14));
        assert_eq!((account.duplicate, account.stale), (10, 10));
        assert_eq!(account.missing, [(10, 20), (30, 35)]);

        ledger.begin_epoch(2);
        assert_eq!(ledger.accept(&results(1, 10, 10), 7), Accepted::Stale);
        assert_eq!(ledger.accept(&results(2, 10, 10), 7), Accepted::New);
        assert_eq!(ledger.account(30).missing, []);
    }

    #[test]
    fn wrong_results_are_named_up_to_a_limit() {
        let mut ledger = StreamLedger::default();
        let wrong: Vec<u64> = (0..100).collect();
        ledger.count_verified(900, &wrong);
        let account = ledger.account(0);
        assert_eq!((account.verified_right, account.verified_wrong), (900, 100));
        assert_eq!(account.wrong_ids.len(), NAMED_MAX);
    }
}
