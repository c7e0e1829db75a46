//! Commands of users: a shell command computes the result of each item, a line of the input.
//!
//! `exec:` starts a worker per thread, which answers each line with a line. `each:` starts a process
//! per item; all its output is the result. An item whose process fails is tried again, and then has
//! a failure as its result, so that it is accounted for like any other. A stopped run starts no
//! attempt: the items without a result are left to the run that continues it.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::task::items::{self, ITEM_BYTES_MAX, Outcome, OutcomeWriter, RECORD_BYTES_MAX};
use crate::task::line_worker::{LineWorker, is_unusable};
use crate::task::process::Process;
use crate::task::{BatchTask, DeadLetter, Ids, TaskError};

/// Maximum number of items in a batch: all their results fit in a frame.
pub const COMMAND_BATCH_MAX: u32 = 64;
/// Interval at which a waiting thread checks whether the run was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(100);
/// After a stop, the other items of a batch are still attempted if the batch began within this time:
/// the results of its first items are lost without them.
const COMPLETION_MAX: Duration = Duration::from_secs(1);
/// Time without output after the exit of a command, while its output is open.
const SILENCE_MAX: Duration = Duration::from_secs(1);

const _: () =
    assert!(COMMAND_BATCH_MAX as usize * RECORD_BYTES_MAX <= crate::frame::PAYLOAD_BYTES_MAX);

/// Limits of the attempts to compute an item. All executors of a run have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// Attempts after the first.
    pub retries: u32,
    pub item_timeout_ms: u64,
}

impl CommandLimits {
    pub const DEFAULT: Self = Self { retries: 2, item_timeout_ms: 600_000 };

    fn item_timeout(self) -> Duration {
        Duration::from_millis(self.item_timeout_ms)
    }
}

/// How a command receives its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandMode {
    /// One process answers line by line.
    Exec,
    /// A process for each item.
    Each,
}

/// Why a process did not compute an item.
#[derive(Debug)]
pub(super) enum Failure {
    /// Concerns the item: it is tried again.
    Item(String),
    /// Concerns all items.
    Fatal(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Fatal(format!("could not communicate with the command: {error}"))
    }
}

/// Limits the wait for a process.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    item_timeout: Duration,
    is_cancelled: &'a AtomicBool,
}

impl Watch<'_> {
    /// Returns how long to wait before the next check, after this time without an answer.
    pub(super) fn check(&self, waited: Duration) -> Result<Duration, Failure> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(Failure::Fatal("the run has ended".to_owned()));
        }
        match self.item_timeout.checked_sub(waited) {
            Some(left) => Ok(left.min(CANCEL_CHECK)),
            None => Err(Failure::Item(format!("no answer within {:?}", self.item_timeout))),
        }
    }
}

/// The task of a shell command.
#[derive(Debug)]
pub struct Commands {
    mode: CommandMode,
    /// In mode `Each` with the item as `$1` in place of `{}`.
    command: String,
    takes_argument: bool,
    limits: CommandLimits,
    is_cancelled: Arc<AtomicBool>,
    is_stopping: AtomicBool,
    /// The worker of mode `Exec`. Each thread of an executor has its own task.
    worker: Mutex<Option<LineWorker>>,
}

impl Commands {
    /// Starts no process. When `is_cancelled` is set, running processes are killed.
    pub fn new(
        mode: CommandMode,
        command: &str,
        limits: CommandLimits,
        is_cancelled: Arc<AtomicBool>,
    ) -> Self {
        let takes_argument = mode == CommandMode::Each && command.contains("{}");
        // A parameter of the shell is one word, whatever it contains.
        let command = if takes_argument { command.replace("{}", "\"$1\"") } else { command.into() };
        let (is_stopping, worker) = (AtomicBool::new(false), Mutex::new(None));
        Self { mode, command, takes_argument, limits, is_cancelled, is_stopping, worker }
    }

    fn watch(&self) -> Watch<'_> {
        Watch { item_timeout: self.limits.item_timeout(), is_cancelled: &self.is_cancelled }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn run_lines(
        &self,
        ids: Ids,
        items: &[&[u8]],
        out: &mut OutcomeWriter<'_>,
    ) -> Result<(), TaskError> {
        let mut worker = self.worker.lock();
        let (mut done, mut failures) = (0, 0);
        while done < items.len() {
            let answered = done;
            let take = &mut |answer: &[u8]| {
                let attempts = if done == answered { failures + 1 } else { 1 };
                out.answer(id_of(ids, done), attempts, answer);
                done += 1;
            };
            let outcome = self.continue_with(&mut worker, &items[answered..], take);
            if done > answered {
                failures = 0;
            }
            match outcome {
                Ok(()) => {}
                Err(Failure::Item(reason)) => {
                    *worker = None;
                    failures += 1;
                    if failures > self.limits.retries {
                        out.failure(id_of(ids, done), failures, &reason, items[done]);
                        (done, failures) = (done + 1, 0);
                    }
                    if self.is_stopping() && done < items.len() {
                        return Err(TaskError::Stopped);
                    }
                }
                Err(Failure::Fatal(reason)) => {
                    *worker = None;
                    return Err(TaskError::Failed { id: id_of(ids, done), reason });
                }
            }
        }
        Ok(())
    }

    /// Passes items to the worker, or to a new one.
    fn continue_with(
        &self,
        worker: &mut Option<LineWorker>,
        items: &[&[u8]],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let is_ready = match worker {
            Some(worker) => worker.is_ready()?,
            None => false,
        };
        if !is_ready {
            *worker = None;
        }
        let worker = match worker {
            Some(worker) => worker,
            None => worker.insert(LineWorker::start(&self.command)?),
        };
        worker.answer(items, &self.watch(), take)
    }

    fn run_each(
        &self,
        ids: Ids,
        items: &[&[u8]],
        out: &mut OutcomeWriter<'_>,
    ) -> Result<(), TaskError> {
        let started = Instant::now();
        for (id, item) in ids.iter().zip(items) {
            let mut attempts = 1;
            loop {
                let may_attempt = attempts == 1 && started.elapsed() < COMPLETION_MAX;
                if self.is_stopping() && !may_attempt {
                    return Err(TaskError::Stopped);
                }
                match self.run_one(item) {
                    Ok(output) => out.answer(id, attempts, &output),
                    Err(Failure::Item(_)) if attempts <= self.limits.retries => {
                        attempts += 1;
                        continue;
                    }
                    Err(Failure::Item(reason)) => out.failure(id, attempts, &reason, item),
                    Err(Failure::Fatal(reason)) => return Err(TaskError::Failed { id, reason }),
                }
                break;
            }
        }
        Ok(())
    }

    /// Runs the command for one item. Returns its output.
    fn run_one(&self, item: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut process = self.start_one(item)?;
        let mut input = if self.takes_argument { Vec::new() } else { [item, b"\n"].concat() };
        let (started, watch) = (Instant::now(), self.watch());
        let (mut output, mut written) = (Vec::new(), 0);
        // Since the exit of the command, or the output after it.
        let mut silent_since = None;
        loop {
            if written == input.len() {
                process.end_input();
                (input, written) = (Vec::new(), 0);
            }
            let slice = watch.check(started.elapsed())?;
            let ready = process.wait_ready(written < input.len(), slice)?;
            if process.has_exited()? {
                // What it has left behind may have more output, and a part is not a result.
                let since = *silent_since.get_or_insert_with(Instant::now);
                if ready.reads {
                    silent_since = None;
                } else if since.elapsed() >= SILENCE_MAX {
                    return Err(left_open(process.exit_status(Duration::ZERO)?));
                }
            }
            if ready.writes {
                let (count, is_open) = process.write(&input[written..])?;
                // A command need not read its input.
                written = if is_open { written + count } else { input.len() };
            }
            if ready.reads && process.read(&mut output)? == Some(0) {
                break;
            }
            if output.len() > ITEM_BYTES_MAX {
                return Err(Failure::Item(format!(
                    "an output of more than {ITEM_BYTES_MAX} bytes"
                )));
            }
        }
        loop {
            let slice = watch.check(started.elapsed())?;
            match process.exit_status(slice)? {
                Some(status) if status.success() => return Ok(output),
                Some(status) if is_unusable(status) => {
                    return Err(Failure::Fatal(format!(
                        "the shell cannot execute the command: {status}; see its error output"
                    )));
                }
                Some(status) => return Err(failed(status)),
                None => {}
            }
        }
    }

    fn start_one(&self, item: &[u8]) -> Result<Process, Failure> {
        let argument = self.takes_argument.then(|| OsStr::from_bytes(item));
        match Process::start(&self.command, argument) {
            Ok(process) => Ok(process),
            // A zero byte, or a word that is too long for the kernel.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong
                ) =>
            {
                Err(Failure::Item(format!("the item cannot be an argument: {error}")))
            }
            Err(error) => Err(Failure::Fatal(format!("could not start /bin/sh: {error}"))),
        }
    }
}

fn failed(status: ExitStatus) -> Failure {
    Failure::Item(format!("the command failed: {status}"))
}

/// The command has exited, and its output is still open.
fn left_open(status: Option<ExitStatus>) -> Failure {
    match status.filter(|status| !status.success()) {
        Some(status) => failed(status),
        None => Failure::Item("the command left a process that keeps its output open".to_owned()),
    }
}

fn id_of(ids: Ids, index: usize) -> u64 {
    ids.first + u64::try_from(index).expect("64 bits")
}

impl BatchTask for Commands {
    fn input_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }

    fn output_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
    }

    /// The generator reads the items of its input instead.
    fn generate(&self, ids: Ids, _inputs: &mut [u8]) -> Result<usize, TaskError> {
        Err(TaskError::Failed { id: ids.first, reason: "items are read from --input".to_owned() })
    }

    fn run(&self, ids: Ids, inputs: &[u8], outputs: &mut [u8]) -> Result<usize, TaskError> {
        let items = items::split_items(ids, inputs)?;
        if self.is_stopping() {
            return Err(TaskError::Stopped);
        }
        let mut out = OutcomeWriter::new(outputs);
        match self.mode {
            CommandMode::Exec => self.run_lines(ids, &items, &mut out)?,
            CommandMode::Each => self.run_each(ids, &items, &mut out)?,
        }
        Ok(out.used())
    }

    fn inspect(&self, ids: Ids, outputs: &[u8]) -> Result<u64, TaskError> {
        items::inspect(ids, outputs)
    }

    fn record(&self, outputs: &[u8], index: u32) -> Option<Range<usize>> {
        let index = usize::try_from(index).ok()?;
        items::outcomes(outputs).nth(index).map(|(_, range)| range)
    }

    /// Never called: see [`BatchTask::is_repeatable`].
    fn verify(&self, record: &[u8]) -> Result<bool, TaskError> {
        Err(TaskError::Shape { count: 1, bytes: record.len() })
    }

    fn describe(&self, record: &[u8]) -> String {
        let answer = Outcome::read(record).and_then(|(outcome, _)| outcome.answer());
        String::from_utf8_lossy(answer.unwrap_or_default()).into_owned()
    }

    fn is_repeatable(&self) -> bool {
        false
    }

    fn runs_commands(&self) -> bool {
        true
    }

    fn write(&self, record: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let answer = Outcome::read(record).and_then(|(outcome, _)| outcome.answer());
        let answer = answer.unwrap_or_default();
        out.write_all(answer)?;
        let is_complete = answer.is_empty() || answer.ends_with(b"\n");
        if self.mode == CommandMode::Exec || !is_complete {
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn dead_letter<'a>(&self, record: &'a [u8]) -> Option<DeadLetter<'a>> {
        Outcome::read(record)?.0.dead_letter()
    }

    fn failed_ids(&self, outputs: &[u8]) -> Vec<u64> {
        let failed = items::outcomes(outputs).filter(|(outcome, _)| outcome.answer().is_none());
        failed.map(|(outcome, _)| outcome.id).collect()
    }

    fn stop_attempts(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    fn finish(&self) -> Result<(), TaskError> {
        let Some(worker) = self.worker.lock().take() else { return Ok(()) };
        worker.finish().map_err(|failure| match failure {
            Failure::Item(reason) | Failure::Fatal(reason) => TaskError::Ended { reason },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: CommandLimits = CommandLimits { retries: 1, item_timeout_ms: 300 };

    fn commands(mode: CommandMode, command: &str, limits: CommandLimits) -> Commands {
        Commands::new(mode, command, limits, Arc::new(AtomicBool::new(false)))
    }

    /// Runs one batch. Returns the lines of the results and the reasons of failures.
    fn run(task: &Commands, given: &[&[u8]]) -> Result<(String, Vec<String>), TaskError> {
        let ids = Ids { first: 5, count: u32::try_from(given.len()).unwrap() };
        let mut inputs = Vec::new();
        for item in given {
            items::append_item(item, &mut inputs);
        }
        let mut outputs = vec![0; given.len() * RECORD_BYTES_MAX];
        let used = task.run(ids, &inputs, &mut outputs)?;
        task.inspect(ids, &outputs[..used]).unwrap();
        let (mut lines, mut reasons) = (Vec::new(), Vec::new());
        for index in 0..ids.count {
            let record = &outputs[task.record(&outputs[..used], index).unwrap()];
            match task.dead_letter(record) {
                None => task.write(record, &mut lines).unwrap(),
                Some(letter) => {
                    assert_eq!(letter.item, given[usize::try_from(index).unwrap()]);
                    assert_eq!(letter.attempts, task.limits.retries + 1);
                    reasons.push(String::from_utf8(letter.reason.to_vec()).unwrap());
                }
            }
        }
        Ok((String::from_utf8_lossy(&lines).into_owned(), reasons))
    }

    fn check(mode: CommandMode, command: &str, given: &[&str], lines: &str, reasons: &[&str]) {
        let given: Vec<&[u8]> = given.iter().map(|item| item.as_bytes()).collect();
        let found = run(&commands(mode, command, SHORT), &given).unwrap();
        assert_eq!(found.0, lines, "{command}");
        assert_eq!(found.1.len(), reasons.len(), "{command}: {:?}", found.1);
        for (found, expected) in found.1.iter().zip(reasons) {
            assert!(found.contains(expected), "{command}: {found}");
        }
    }

    #[test]
    fn workers_answer_line_by_line() {
        use CommandMode::Exec;
        check(Exec, "cat", &["a", "", " b\r"], "a\n\n b\r\n", &[]);
        check(Exec, "while read -r x; do echo \"$x!\"; done", &["1", "2"], "1!\n2!\n", &[]);
        let many: Vec<String> = (0..64).map(|number| format!("{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(Exec, "sed -u s/$/x/", &many, &(many.join("x\n") + "x\n"), &[]);
    }

    /// One that ends after each answer is replaced. One that does not answer an item costs that item
    /// only.
    #[test]
    fn an_item_that_kills_its_worker_fails_alone() {
        let poison = "while read -r x; do [ $x = 3 ] && kill -9 $$; echo $x; done";
        let given = ["1", "2", "3", "4", "5"];
        check(
            CommandMode::Exec,
            poison,
            &given,
            "1\n2\n4\n5\n",
            &["ended before its answer: signal: 9"],
        );
        let exits = "while read -r x; do [ $x = 3 ] && exit 4; echo $x; done";
        check(CommandMode::Exec, exits, &given, "1\n2\n4\n5\n", &["exit status: 4"]);
        check(CommandMode::Exec, "read -r x; echo $x", &given, "1\n2\n3\n4\n5\n", &[]);
    }

    #[test]
    fn faulty_workers_have_clear_reasons() {
        use CommandMode::Exec;
        check(Exec, "sleep 100", &["1"], "", &["no answer within 300ms; the worker may keep"]);
        check(Exec, "trap '' TERM; sleep 100 & wait", &["1"], "", &["no answer within 300ms"]);
        let closed = "exec >&-; sleep 100";
        check(Exec, closed, &["1"], "", &["closed its standard output before its answer"]);
        let unended = "read x; printf 12; sleep 100";
        check(Exec, unended, &["1"], "", &["only 2 bytes without a line end"]);
        let cut = "read x; printf 12";
        check(Exec, cut, &["1"], "", &["ended after 2 bytes without a line end"]);
        let endless = "yes | tr -d '\\n' | head -c 1000000000";
        check(Exec, endless, &["1"], "", &["an answer of more than 1000000 bytes"]);
        let deaf = "read x; echo $x; exec <&-; sleep 100";
        // The second attempt has another worker.
        check(Exec, deaf, &["1", "2"], "1\n2\n", &[]);
    }

    fn fatal(mode: CommandMode, command: &str, given: &[&[u8]], expected: &str) {
        let error = run(&commands(mode, command, SHORT), given).unwrap_err().to_string();
        assert!(error.contains(expected), "{command}: {error}");
    }

    #[test]
    fn what_concerns_all_items_ends_the_run() {
        let extra = "wrote a line that no item asked for";
        fatal(CommandMode::Exec, "while read x; do echo 1; echo 2; done", &[b"a", b"b"], extra);
        fatal(CommandMode::Exec, "echo hello; cat", &[b"a"], extra);
        fatal(
            CommandMode::Exec,
            "while read x; do echo 1; sleep 0.002; echo 2; done",
            &[b"a"],
            extra,
        );
        fatal(
            CommandMode::Exec,
            "no-such-command 2>&-",
            &[b"a"],
            "cannot execute the command: exit status: 127",
        );
        fatal(
            CommandMode::Each,
            "no-such-command 2>&-",
            &[b"a"],
            "cannot execute the command: exit status: 127",
        );
        let more = commands(CommandMode::Exec, "cat; echo total", SHORT);
        run(&more, &[b"a"]).unwrap();
        assert!(more.finish().unwrap_err().to_string().contains(extra));
        let tidy = commands(CommandMode::Exec, "cat", SHORT);
        run(&tidy, &[b"a"]).unwrap();
        tidy.finish().unwrap();
    }

    #[test]
    fn a_process_for_each_item() {
        use CommandMode::Each;
        check(Each, "echo {}{}", &["a b", "$(x)';\"*", ""], "a ba b\n$(x)';\"*$(x)';\"*\n\n", &[]);
        check(Each, "wc -c", &["abc", ""], "4\n1\n", &[]);
        check(Each, "printf 'x\\ny'", &["1", "2"], "x\ny\nx\ny\n", &[]);
        check(Each, "true", &["1", "2"], "", &[]);
        let failing = "[ {} != 2 ] || exit 9; echo {}";
        check(Each, failing, &["1", "2", "3"], "1\n3\n", &["the command failed: exit status: 9"]);
        check(Each, "sleep 100; echo {}", &["1"], "", &["no answer within 300ms"]);
        check(Each, "exec >&-; sleep 100", &["1"], "", &["no answer within 300ms"]);
        let endless = "yes {}";
        check(Each, endless, &["1"], "", &["an output of more than 1000000 bytes"]);
        let long = "x".repeat(200_000);
        check(Each, "echo {}", &["a\0b", &long], "", &["cannot be an argument"; 2]);
        check(Each, "wc -c", &[&long], "200001\n", &[]);
        let unread = "x".repeat(900_000);
        check(Each, "echo 1", &[&unread], "1\n", &[]);
    }

    #[test]
    fn a_process_that_a_command_leaves_behind_delays_no_other_item() {
        let limits = CommandLimits { retries: 0, item_timeout_ms: 600_000 };
        let open = "the command left a process that keeps its output open";
        for (command, lines, reason) in [
            ("(sleep 0.05; echo {}) &", "1\n", None),
            ("sleep 1000 >&- & echo {}", "1\n", None),
            ("sleep 1000 & exit 3", "", Some("the command failed: exit status: 3")),
            ("sleep 1000 & echo {}", "", Some(open)),
            ("setsid sleep 5 & echo {}", "", Some(open)),
        ] {
            let task = commands(CommandMode::Each, command, limits);
            let (found, reasons) = run(&task, &[b"1"]).unwrap();
            assert_eq!((&*found, reasons.first().map(|it| &**it)), (lines, reason), "{command}");
        }
        let task = commands(CommandMode::Exec, "sleep 1000 & read x; exit 3", limits);
        let (_, reasons) = run(&task, &[b"1"]).unwrap();
        assert_eq!(reasons, ["the worker ended before its answer: exit status: 3"]);
    }

    #[test]
    fn lines_of_any_bytes_and_the_greatest_length() {
        let long = vec![0xff; ITEM_BYTES_MAX];
        let task = commands(CommandMode::Exec, "cat", CommandLimits::DEFAULT);
        let (lines, reasons) = run(&task, &[b"\0\xfe", &long, b""]).unwrap();
        assert_eq!(reasons, Vec::<String>::new());
        assert_eq!(
            lines.lines().map(|line| line.chars().count()).collect::<Vec<_>>(),
            [2, ITEM_BYTES_MAX, 0]
        );
    }

    /// The attempt under way ends; neither another one nor another item is begun.
    #[test]
    fn a_stopped_run_starts_no_attempt() {
        let limits = CommandLimits { retries: 2, item_timeout_ms: 60_000 };
        let fails = "printf x >> $COUNT; read x; sleep 1.1; exit 1";
        let answers = "printf x >> $COUNT; read x; sleep 1.1; echo y";
        for (mode, command, items, is_complete) in [
            (CommandMode::Each, fails, 1, false),
            (CommandMode::Exec, fails, 1, false),
            (CommandMode::Each, answers, 1, true),
            (CommandMode::Exec, answers, 1, true),
            (CommandMode::Each, answers, 2, false),
        ] {
            let name = format!("myriad-attempts-{}-{mode:?}-{is_complete}", std::process::id());
            let count = std::env::temp_dir().join(name);
            let command = command.replace("$COUNT", count.to_str().unwrap());
            let task = commands(mode, &command, limits);
            let outcome = std::thread::scope(|scope| {
                let running = scope.spawn(|| run(&task, &vec![&b"a"[..]; items]));
                while std::fs::read(&count).is_err() {
                    std::thread::yield_now();
                }
                task.stop_attempts();
                running.join().unwrap()
            });
            assert_eq!(std::fs::read(&count).unwrap(), b"x", "{command}");
            match outcome {
                Ok((lines, reasons)) => {
                    assert_eq!(
                        (&*lines, reasons.len(), is_complete),
                        ("y\n", 0, true),
                        "{command}"
                    );
                }
                Err(error) => assert_eq!((error, is_complete), (TaskError::Stopped, false)),
            }
            std::fs::remove_file(&count).unwrap();
            assert_eq!(run(&task, &[b"b"]), Err(TaskError::Stopped), "{command}");
            assert!(!count.exists(), "{command}");
        }
    }

    #[test]
    fn a_cancelled_run_waits_for_no_command() {
        let task = commands(CommandMode::Exec, "sleep 100", CommandLimits::DEFAULT);
        task.is_cancelled.store(true, Ordering::Relaxed);
        let error = run(&task, &[b"a"]).unwrap_err().to_string();
        assert!(error.contains("the run has ended"), "{error}");
    }
}
