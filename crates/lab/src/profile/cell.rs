//! Profiles cells of a definition: the process that does the work, during the measurement.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::{Options, Profile, record};
use crate::definition::Cell;
use crate::load::{LoadEvent, LoadReport, LoadSpec};
use crate::run::{Generator, Target, aim, measure};
use crate::subject::{Kind, Scratch, Subject};

/// Profile of a cell's process in the measured phase.
#[derive(Debug, Clone)]
pub(crate) struct CellProfile {
    pub profile: Profile,
    /// Results of the load, which is slightly slower than without the profile.
    pub report: LoadReport,
}

/// Starts the subject and the load of a cell, and profiles the subject in the measured phase. If
/// the load appends to a log, profiles the generator, which contains the log.
///
/// `program` is this program, whose `myriad-lab generate` generates the load. Setting `stop` ends
/// the run.
pub(crate) fn record_cell(
    cell: &Cell,
    program: &Path,
    options: &Options,
    stop: &AtomicBool,
) -> Result<CellProfile> {
    let parent = cell.subject.directory.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch::new(&parent)
        .with_context(|| format!("could not create a directory in {}", parent.display()))?;
    let subject = match cell.subject.kind {
        Kind::Log => None,
        _ => Some(Subject::start(&cell.subject)?),
    };
    let target = subject.as_ref().map_or(Target::Log(&scratch), Target::Server);
    for phase in &cell.phases {
        let mut phase = phase.clone();
        aim(&mut phase, target);
        measure(program, subject.as_ref(), &phase, stop, &mut |_| ())?;
    }
    let mut load = cell.load.clone();
    aim(&mut load, target);
    record_load(program, subject.as_ref(), &load, options, stop)
}

fn record_load(
    program: &Path,
    subject: Option<&Subject>,
    load: &LoadSpec,
    options: &Options,
    stop: &AtomicBool,
) -> Result<CellProfile> {
    let mut generator = Generator::start(program, load)?;
    let pid = subject.map_or(generator.pid(), Subject::pid);
    let mut profile = None;
    loop {
        match generator.next(stop)? {
            // Events of the generator wait in its pipe.
            LoadEvent::Measuring { .. } => {
                profile = Some(record(pid, Duration::from_millis(load.duration_ms), options)?);
            }
            LoadEvent::Done(report) => {
                let profile = profile
                    .ok_or_else(|| anyhow!("the generator never started the measured phase"))?;
                return Ok(CellProfile { profile, report: *report });
            }
            LoadEvent::Failed { reason } => return Err(anyhow!(reason)),
            LoadEvent::Connected
            | LoadEvent::Window { .. }
            | LoadEvent::Measured
            | LoadEvent::Interrupted(_) => {}
        }
    }
}
