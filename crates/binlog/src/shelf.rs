//! Files ready to become segments, so that a group never waits for 64 MiB of zeros.
//!
//! The helper thread creates them, and truncation renames old segments to new numbers; without a
//! ready file the writer creates one itself.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::disk::Disk;
use crate::segment::{Blank, Segment, create_blank, file_name};

#[derive(Debug)]
pub(crate) struct Shelf {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    blanks_max: usize,
    /// The number of the next file. Locked while files are created or renamed, so that they are
    /// queued in the order of their numbers.
    next_number: Mutex<u64>,
    blanks: Mutex<VecDeque<Blank>>,
    helper: Mutex<HelperState>,
    helper_wake: Condvar,
}

#[derive(Debug, Default)]
struct HelperState {
    wanted: bool,
    stopping: bool,
}

impl Shelf {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        blanks_max: usize,
        next_number: u64,
    ) -> Self {
        Self {
            disk,
            segment_bytes,
            blanks_max,
            next_number: Mutex::new(next_number),
            blanks: Mutex::new(VecDeque::new()),
            helper: Mutex::new(HelperState { wanted: true, stopping: false }),
            helper_wake: Condvar::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.blanks.lock().len()
    }

    /// The next file. Fast if one is ready; otherwise waits for the one in progress, or creates it.
    pub(crate) fn take(&self) -> io::Result<Blank> {
        let blank = match self.pop() {
            Some(blank) => blank,
            None => self.make_for_caller()?,
        };
        self.helper.lock().wanted = true;
        self.helper_wake.notify_one();
        Ok(blank)
    }

    fn pop(&self) -> Option<Blank> {
        self.blanks.lock().pop_front()
    }

    fn make_for_caller(&self) -> io::Result<Blank> {
        let mut next_number = self.next_number.lock();
        match self.pop() {
            Some(blank) => Ok(blank),
            None => self.make(&mut next_number),
        }
    }

    fn make(&self, next_number: &mut u64) -> io::Result<Blank> {
        let number = *next_number;
        *next_number += 1;
        create_blank(&*self.disk, number, self.segment_bytes)
    }

    /// Creates one file if none is ready.
    pub(crate) fn fill(&self) -> io::Result<()> {
        let mut next_number = self.next_number.lock();
        if self.len() > 0 {
            return Ok(());
        }
        let blank = self.make(&mut next_number)?;
        self.put([blank]);
        Ok(())
    }

    /// Turns segments that are not needed any more into blank files, or removes them.
    ///
    /// A renamed file still holds its old header: the number in it differs from the one in its
    /// name, so the file counts as unused. Its old records never pass for new ones, because their
    /// checksums depend on their positions. It is available only after the directory is synced.
    pub(crate) fn recycle(&self, old: Vec<Segment>) -> io::Result<()> {
        let mut next_number = self.next_number.lock();
        let mut renamed = Vec::new();
        for segment in old {
            let name = file_name(segment.number);
            let size_bytes = segment.file.size()?;
            if size_bytes != self.segment_bytes || self.len() + renamed.len() >= self.blanks_max {
                self.disk.remove(&name)?;
                continue;
            }
            let number = *next_number;
            *next_number += 1;
            self.disk.rename(&name, &file_name(number))?;
            renamed.push(Blank { number, file: segment.file, size_bytes, recycled: true });
        }
        self.disk.sync_dir()?;
        self.put(renamed);
        Ok(())
    }

    /// The caller holds `next_number`, so no other file is put in between.
    fn put(&self, files: impl IntoIterator<Item = Blank>) {
        let mut blanks = self.blanks.lock();
        for blank in files {
            let last = blanks.back().map_or(0, |last| last.number);
            assert!(last < blank.number, "segments are numbered in the order of their use");
            blanks.push_back(blank);
        }
        assert!(blanks.len() <= self.blanks_max.max(1), "the disk has room for other things");
    }

    /// Waits until a file has been taken. False when the helper thread must end.
    pub(crate) fn wait_for_request(&self) -> bool {
        let mut helper = self.helper.lock();
        while !helper.wanted && !helper.stopping {
            self.helper_wake.wait(&mut helper);
        }
        helper.wanted = false;
        !helper.stopping
    }

    pub(crate) fn start_helper(&self) {
        self.helper.lock().stopping = false;
    }

    pub(crate) fn stop_helper(&self) {
        self.helper.lock().stopping = true;
        self.helper_wake.notify_one();
    }
}
