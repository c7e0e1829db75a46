//! Runs an experiment: each cell on a fresh server, repeat after repeat, in an order of chance, a
//! row at a time.
//!
//! Repeats are the outer loop, so that a drift of the machine falls on all cells alike; the order
//! within each is drawn from a seed, so that no cell always follows the same other. A row is
//! written as soon as it is there: what an interrupt leaves can be continued.

mod budget;
mod command;
mod folder;
mod generator;
mod measurement;
mod progress;
mod start;
mod summary;
mod terminal;
mod verdict;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

pub(crate) use command::command;
pub use folder::{RunFolder, Settings};
pub use generator::{Generator, GeneratorError};
pub use measurement::{Measurement, measure};
pub use progress::{News, Progress, Step};
pub(crate) use start::{Plan, Target, aim, empty_row, take};
pub use summary::summary;
pub use terminal::Terminal;
pub(crate) use verdict::generator_faults;
pub use verdict::{Evidence, Judgement, busy_reactors, judge, latencies_ns};

use crate::definition::{Cell, Definition};
use crate::load::LoadSpec;
use crate::measure::{Machine, NoiseSample};
use crate::row::{Row, SubjectRow, Verdict};
use crate::subject::{Kind, Scratch, Subject, SubjectError, available_cpus};
use budget::Budget;

/// How long the machine is watched before it is called quiet: some ticks of its clock.
const QUIET_LOOK: Duration = Duration::from_millis(120);

/// How an experiment is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program whose `myriad-lab generate` makes load.
    pub program: PathBuf,
    /// Where results go; without, `target/lab/<name>-<time>`.
    pub out: Option<PathBuf>,
    /// A folder of results whose missing rows are to be measured, with its own settings.
    pub resume: Option<PathBuf>,
    pub quick: bool,
    /// Instead of the definition's.
    pub repeats: Option<usize>,
    /// Instead of the definition's.
    pub cell_ms: Option<u64>,
    /// Decides the order of cells, and with the repeat the keys of each load.
    pub seed: u64,
    /// How long a measurement is put off while other programs keep the machine busy; without, 60
    /// seconds (quick: 5). After that it is made all the same, and its row says so.
    pub quiet_wait: Option<Duration>,
    /// Set from outside: the cell is dropped, and the run ends with what it has.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// Nothing but what the definition says, with load by `program`.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            out: None,
            resume: None,
            quick: false,
            repeats: None,
            cell_ms: None,
            seed: folder::SEED_DEFAULT,
            quiet_wait: None,
            stop: Arc::default(),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            quick: self.quick,
            repeats: self.repeats,
            cell_ms: self.cell_ms,
            seed: self.seed,
        }
    }

    fn quiet_wait(&self, quick: bool) -> Duration {
        let default = if quick { 5 } else { 60 };
        self.quiet_wait.unwrap_or(Duration::from_secs(default))
    }
}

/// Measures all cells of `definition` as often as it wants, but for those whose rows are there
/// already when a folder is resumed. A cell that fails is a row that says why.
///
/// The folder says whether the run has reached its end; it has not when it was stopped.
pub fn run(
    definition: &Definition,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<RunFolder> {
    let mut settings = options.settings();
    let mut folder = match &options.resume {
        None => RunFolder::create(definition, &settings, options.out.as_deref())?,
        Some(path) => {
            let folder = RunFolder::open(path)?;
            settings = folder.settings()?.with(&settings);
            folder
        }
    };
    let definition = settings.applied(definition);
    let machine = Machine::look();
    folder.write_machine(&machine)?;
    let mut runner = Runner {
        definition: &definition,
        hash: definition.hash(),
        machine: machine.hash,
        options,
        settings,
        progress,
        position: Position::default(),
    };
    runner.run(&mut folder)?;
    Ok(folder)
}

/// One measurement that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    repeat: usize,
    cell: usize,
}

/// All measurements in their order.
fn turns(repeats: usize, cells: usize, seed: u64) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(repeats * cells);
    for repeat in 0..repeats {
        let mut order: Vec<usize> = (0..cells).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(seed.wrapping_add(repeat as u64)));
        turns.extend(order.into_iter().map(|cell| Turn { repeat, cell }));
    }
    turns
}

/// Where a run stands, for its reader.
#[derive(Debug, Clone, Default)]
struct Position {
    number: usize,
    count: usize,
    left: Duration,
}

struct Runner<'a> {
    definition: &'a Definition,
    hash: String,
    machine: String,
    options: &'a Options,
    settings: Settings,
    progress: &'a mut dyn Progress,
    position: Position,
}

/// A measurement that has no row.
enum Dropped {
    Stopped,
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Dropped {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

impl Runner<'_> {
    fn run(&mut self, folder: &mut RunFolder) -> Result<()> {
        let rows = folder.rows()?;
        ensure!(
            rows.iter().all(|row| row.definition == self.hash),
            "{} holds rows of another definition: give the same file and the same settings",
            folder.path().display()
        );
        let is_done =
            |turn: &Turn| rows.iter().any(|row| row.cell == turn.cell && row.repeat == turn.repeat);
        let (definition, seed) = (self.definition, self.settings.seed);
        let all = turns(definition.repeats, definition.cells.len(), seed);
        let (done, left): (Vec<Turn>, Vec<Turn>) = all.into_iter().partition(is_done);
        self.position.count = done.len() + left.len();
        self.tell(
            folder,
            &News::Started {
                folder: folder.path(),
                measurements: self.position.count,
                done: done.len(),
            },
        )?;
        let mut budget = Budget::new(definition, left.len(), Instant::now());
        for (index, turn) in left.iter().enumerate() {
            self.position.number = done.len() + index;
            self.position.left = budget.time_left();
            let cell_ms = budget.cell_ms(Instant::now());
            match self.measure(folder, *turn, cell_ms) {
                Ok(row) => {
                    folder.append(&row)?;
                    budget.spent(Instant::now());
                    self.tell(folder, &News::Row(&row))?;
                }
                Err(Dropped::Stopped) => break,
                Err(Dropped::Broken(error)) => return Err(error),
            }
            folder.is_complete = index + 1 == left.len();
        }
        folder.is_complete |= left.is_empty();
        self.tell(folder, &News::Ended { is_complete: folder.is_complete })
    }

    fn tell(&mut self, folder: &RunFolder, news: &News<'_>) -> Result<()> {
        folder.write_progress(news)?;
        self.progress.tell(news);
        Ok(())
    }

    fn phase(&mut self, folder: &RunFolder, turn: Turn, name: &str) -> Result<()> {
        let cell = &self.definition.cells[turn.cell];
        let step = Step {
            number: self.position.number,
            count: self.position.count,
            cell: turn.cell,
            cells: self.definition.cells.len(),
            repeat: turn.repeat,
            phase: name.to_owned(),
            parameters: cell.parameters.clone(),
            left_s: self.position.left.as_secs(),
        };
        self.tell(folder, &News::Phase(&step))
    }

    /// One row, whatever comes; unless the run is stopped, or its own folder fails.
    fn measure(&mut self, folder: &RunFolder, turn: Turn, cell_ms: u64) -> Result<Row, Dropped> {
        let cell = &self.definition.cells[turn.cell];
        let waited = self.wait_until_quiet(folder, turn)?;
        self.phase(folder, turn, "starting")?;
        let mut row = self.begun_row(cell, turn, cell_ms);
        if let Err(failure) = self.fill_row(folder, cell, turn, &mut row) {
            match failure {
                Failure::Stopped => return Err(Dropped::Stopped),
                Failure::Broken(error) => return Err(Dropped::Broken(error)),
                Failure::Skipped(reason) => refuse(&mut row, Verdict::Skipped, reason),
                Failure::Failed(reason) => refuse(&mut row, Verdict::Failed, reason),
            }
        }
        row.noise.waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        Ok(row)
    }

    fn fill_row(
        &mut self,
        folder: &RunFolder,
        cell: &Cell,
        turn: Turn,
        row: &mut Row,
    ) -> Result<(), Failure> {
        let parent = cell.subject.directory.clone().unwrap_or_else(std::env::temp_dir);
        let scratch = Scratch::new(&parent)
            .with_context(|| format!("make a directory in {}", parent.display()))
            .map_err(Failure::Broken)?;
        let subject = match cell.subject.kind {
            Kind::Log => None,
            _ => Some(Subject::start(&cell.subject)?),
        };
        if let Some(subject) = &subject {
            row.subject = subject.row().clone();
        }
        let target = subject.as_ref().map_or(Target::Log(&scratch), Target::Server);
        for (index, phase) in cell.phases.iter().enumerate() {
            self.phase(folder, turn, &format!("phase {}", index + 1)).map_err(Failure::Broken)?;
            let mut phase = phase.clone();
            aim(&mut phase, target);
            self.load(folder, subject.as_ref(), &phase)?;
        }
        self.phase(folder, turn, "measuring").map_err(Failure::Broken)?;
        aim(&mut row.load, target);
        let measurement = self.load(folder, subject.as_ref(), &row.load)?;
        take(row, measurement);
        let judgement = judge(&Evidence::of(row, cell.subject.kind));
        row.verdict = judgement.verdict;
        row.reasons.extend(judgement.reasons);
        Ok(())
    }

    fn load(
        &mut self,
        folder: &RunFolder,
        subject: Option<&Subject>,
        load: &LoadSpec,
    ) -> Result<Measurement, Failure> {
        let program = &self.options.program;
        let mut broken = None;
        let measured = measure(program, subject, load, &self.options.stop, &mut |rate| {
            let news = News::Rate { operations_per_second: rate };
            broken = folder.write_progress(&news).err();
            self.progress.tell(&news);
        });
        match broken {
            Some(error) => Err(Failure::Broken(error)),
            None => Ok(measured?),
        }
    }

    fn begun_row(&self, cell: &Cell, turn: Turn, cell_ms: u64) -> Row {
        let mut load = cell.load.clone();
        if cell_ms < load.duration_ms {
            crate::definition::set_duration(&mut load, cell_ms);
        }
        load.seed = load.seed.wrapping_add(turn.repeat as u64);
        load.cpus = available_cpus(&load.cpus);
        let plan = Plan {
            table: &self.definition.name,
            definition: &self.hash,
            machine: &self.machine,
            subject: self.unstarted(cell, &load),
            load,
        };
        let parameters = cell.parameters.clone();
        Row { cell: turn.cell, repeat: turn.repeat, parameters, ..empty_row(plan) }
    }

    /// What is known of a subject before it has started; of a log, which is part of the generator,
    /// that is all.
    fn unstarted(&self, cell: &Cell, load: &LoadSpec) -> SubjectRow {
        let kind = cell.subject.kind.to_string();
        if cell.subject.kind != Kind::Log {
            let cpus = available_cpus(&cell.subject.cpus);
            return SubjectRow { kind, version: String::new(), command_line: Vec::new(), cpus };
        }
        let program = self.options.program.display().to_string();
        SubjectRow {
            kind,
            version: concat!("myriad-lab ", env!("CARGO_PKG_VERSION")).to_owned(),
            command_line: vec![program, "generate".into()],
            cpus: load.cpus.clone(),
        }
    }

    /// Until nobody else uses the machine, or the patience for it has ended.
    fn wait_until_quiet(&mut self, folder: &RunFolder, turn: Turn) -> Result<Duration, Dropped> {
        let patience = self.options.quiet_wait(self.settings.quick);
        let started = Instant::now();
        if patience.is_zero() {
            return Ok(Duration::ZERO);
        }
        loop {
            if self.options.stop.load(Ordering::Relaxed) {
                return Err(Dropped::Stopped);
            }
            let before = NoiseSample::take(&[]).context("look at the machine")?;
            std::thread::sleep(QUIET_LOOK);
            let noise = NoiseSample::take(&[]).context("look at the machine")?.since(&before);
            let waited = started.elapsed();
            if verdict::is_quiet(&noise) || waited >= patience {
                return Ok(waited);
            }
            let name = match noise.foreign_name.as_str() {
                "" => "waiting for the machine to become quiet".to_owned(),
                name => format!("waiting for {name} to let the machine be"),
            };
            self.phase(folder, turn, &name)?;
        }
    }
}

/// Why a cell has no figures.
#[derive(Debug)]
enum Failure {
    Stopped,
    Skipped(String),
    Failed(String),
    /// The lab itself cannot go on.
    Broken(anyhow::Error),
}

impl From<SubjectError> for Failure {
    fn from(error: SubjectError) -> Self {
        match error {
            SubjectError::NotInstalled(_) => Self::Skipped(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<GeneratorError> for Failure {
    fn from(error: GeneratorError) -> Self {
        match error {
            GeneratorError::Stopped => Self::Stopped,
            error => Self::Failed(error.to_string()),
        }
    }
}

fn refuse(row: &mut Row, verdict: Verdict, reason: String) {
    row.verdict = verdict;
    row.reasons.push(reason);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::load::{LoadEvent, LoadReport};
    use crate::subject::write_program;

    #[test]
    fn every_repeat_has_every_cell_in_its_own_order() {
        let turns = turns(3, 20, 7);
        assert_eq!(turns, super::turns(3, 20, 7));
        assert_ne!(turns, super::turns(3, 20, 8));
        let orders: Vec<Vec<usize>> =
            turns.chunks(20).map(|part| part.iter().map(|turn| turn.cell).collect()).collect();
        assert_ne!(orders[0], orders[1]);
        for (repeat, order) in orders.iter().enumerate() {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..20).collect::<Vec<usize>>());
            assert!(turns[repeat * 20..][..20].iter().all(|turn| turn.repeat == repeat));
        }
    }

    const FOUR: &str = "\
name = \"four\"
title = \"Four cells, twice\"
repeats = 2

[subject]
kind = \"log\"

[grid]
\"load.threads\" = [1, 2, 3, 4]
";

    /// A run with a generator that is a script: it reports at once, and fails for three threads.
    struct Case {
        scratch: Scratch,
        definition: Definition,
        options: Options,
    }

    fn case() -> Case {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let report = LoadReport {
            duration_ns: 1_000_000,
            operations: 500,
            windows: vec![50; 10],
            ..LoadReport::default()
        };
        let events = [
            LoadEvent::Connected,
            LoadEvent::Measuring { warmup_ms: 7 },
            LoadEvent::Measured,
            LoadEvent::Done(Box::new(report)),
        ];
        let events = events.map(|event| serde_json::to_string(&event).unwrap()).join("\n");
        let script = format!(
            "#!/bin/sh\ncase $(cat) in *'\"threads\":3'*) \
             echo '{{\"event\":\"failed\",\"reason\":\"no disk\"}}'; exit 1;; esac\n\
             cat <<'END'\n{events}\nEND\n"
        );
        let program = write_program(&scratch, "generator", &script);
        let mut options = Options::new(program);
        options.out = Some(scratch.path().join("results"));
        options.quiet_wait = Some(Duration::ZERO);
        let definition = Definition::parse(FOUR, Path::new("four.toml")).unwrap();
        Case { scratch, definition, options }
    }

    /// Asks for an end after so many rows.
    struct StopAfter {
        rows: usize,
        stop: Arc<AtomicBool>,
    }

    impl Progress for StopAfter {
        fn tell(&mut self, news: &News<'_>) {
            if matches!(news, News::Row(_)) {
                self.rows -= 1;
                self.stop.store(self.rows == 0, Ordering::Relaxed);
            }
        }
    }

    fn order(rows: &[Row]) -> Vec<(usize, usize)> {
        rows.iter().map(|row| (row.repeat, row.cell)).collect()
    }

    #[test]
    fn what_is_interrupted_ends_like_what_is_not() {
        let whole = case();
        let folder = run(&whole.definition, &whole.options, &mut ()).unwrap();
        assert!(folder.is_complete);
        let expected = order(&folder.rows().unwrap());
        assert_eq!(expected.len(), 8);

        for stop_after in [1, 3, 7] {
            let mut case = case();
            let mut listener = StopAfter { rows: stop_after, stop: Arc::clone(&case.options.stop) };
            let folder = run(&case.definition, &case.options, &mut listener).unwrap();
            assert!(!folder.is_complete);
            assert_eq!(folder.rows().unwrap().len(), stop_after);
            // As a crash leaves it.
            let rows = folder.path().join("rows.jsonl");
            let mut text = fs::read_to_string(&rows).unwrap();
            text.push_str("{\"table\":\"fo");
            fs::write(&rows, text).unwrap();

            case.options.stop = Arc::default();
            case.options.resume = case.options.out.take();
            let folder = run(&case.definition, &case.options, &mut ()).unwrap();
            assert!(folder.is_complete);
            assert_eq!(order(&folder.rows().unwrap()), expected);
            assert!(!folder.path().join("progress.json").exists());
            drop(case.scratch);
        }
    }

    #[test]
    fn a_cell_that_fails_is_a_row() {
        let case = case();
        let folder = run(&case.definition, &case.options, &mut ()).unwrap();
        for row in folder.rows().unwrap() {
            let fails = row.parameters["load.threads"] == 3;
            if fails {
                assert_eq!(
                    (row.verdict, &row.reasons[..]),
                    (Verdict::Failed, &["no disk".into()][..])
                );
            } else {
                assert_eq!((row.report.operations, row.warmup_ms), (500, 7));
                assert_ne!(row.verdict, Verdict::Failed);
            }
        }
        let table = summary(&folder.rows().unwrap());
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(lines[1].contains("500000 [500000,500000]"), "{table}");
        assert!(lines[3].ends_with("failed 2 of 2: no disk"), "{table}");
    }

    #[test]
    fn a_server_that_is_not_installed_is_skipped() {
        let mut case = case();
        let subject = &mut case.definition.cells[0].subject;
        subject.kind = Kind::ValkeyServer;
        subject.binary = Some("no-such-server".into());
        case.definition.cells.truncate(1);
        let folder = run(&case.definition, &case.options, &mut ()).unwrap();
        let rows = folder.rows().unwrap();
        assert_eq!(rows[0].verdict, Verdict::Skipped);
        assert!(rows[0].reasons[0].contains("is not installed"), "{:?}", rows[0].reasons);
    }

    #[test]
    fn a_resumed_run_keeps_its_settings_and_its_definition() {
        let mut case = case();
        case.options.quick = true;
        let folder = run(&case.definition, &case.options, &mut ()).unwrap();
        assert_eq!(folder.rows().unwrap().len(), 4);

        case.options.resume = case.options.out.take();
        (case.options.quick, case.options.repeats) = (false, Some(2));
        let folder = run(&case.definition, &case.options, &mut ()).unwrap();
        let rows = folder.rows().unwrap();
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| row.load.duration_ms == 500));

        case.definition.cells.pop();
        let error = run(&case.definition, &case.options, &mut ()).unwrap_err().to_string();
        assert!(error.contains("holds rows of another definition"), "{error}");
    }

    #[test]
    fn results_are_not_overwritten() {
        let case = case();
        run(&case.definition, &case.options, &mut ()).unwrap();
        let error = run(&case.definition, &case.options, &mut ()).unwrap_err().to_string();
        assert!(error.contains("already holds a run"), "{error}");
    }
}
