//! One process of a command, with pipes that never block this process.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use crate::parent::PARENT;

/// Time between the end of its input, SIGTERM, and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 << 10;

/// A running shell command and its descendants; all are killed on drop.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// `None` when its input has ended.
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    is_reaped: bool,
}

/// What a process can do without waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) reads: bool,
    pub(super) writes: bool,
}

impl Process {
    /// Starts `/bin/sh -c COMMAND`; `argument` is its `$1`. Its standard error is this process's.
    pub(super) fn start(command: &str, argument: Option<&OsStr>) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command);
        if let Some(argument) = argument {
            shell.arg("sh").arg(argument);
        }
        let mut child = shell
            // A group of its own: it can be killed with its descendants, and Ctrl-C does not reach
            // it before its items are done.
            .process_group(0)
            // The command is not a part of the run.
            .env_remove(PARENT)
            // Otherwise Python keeps answers in its buffer.
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else { unreachable!("both are piped") };
        let process = Self { child, stdin: Some(stdin), stdout, is_reaped: false };
        rustix::io::ioctl_fionbio(&process.stdout, true)?;
        rustix::io::ioctl_fionbio(process.stdin.as_ref().expect("set above"), true)?;
        Ok(process)
    }

    /// Waits until the process has output, or accepts input if `wants_write`.
    pub(super) fn wait_ready(&self, wants_write: bool, timeout: Duration) -> io::Result<Ready> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut ends = vec![PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN)];
        if let Some(stdin) = self.stdin.as_ref().filter(|_| wants_write) {
            ends.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT));
        }
        match poll(&mut ends, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |end: &PollFd<'_>| !end.revents().is_empty();
        Ok(Ready { reads: is_ready(&ends[0]), writes: ends.get(1).is_some_and(is_ready) })
    }

    /// Appends available output. Returns the number of bytes, or `None` if there is none now; 0
    /// is the end.
    pub(super) fn read(&mut self, output: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let start = output.len();
        output.resize(start + READ_BYTES, 0);
        let read = retry(|| self.stdout.read(&mut output[start..]));
        output.truncate(start + read.as_ref().map_or(0, |read| read.unwrap_or(0)));
        read
    }

    /// Writes as much as its pipe accepts. Returns `false` if the process has closed its input.
    pub(super) fn write(&mut self, input: &[u8]) -> io::Result<(usize, bool)> {
        let Some(stdin) = &mut self.stdin else { return Ok((0, false)) };
        match retry(|| stdin.write(input)) {
            Ok(count) => Ok((count.unwrap_or(0), true)),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.stdin = None;
                Ok((0, false))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Waits until the process has exited or the time has passed, and leaves it to be reaped, so
    /// that its group keeps its number.
    fn exits_within(&self, time: Duration) -> io::Result<bool> {
        if self.has_exited()? {
            return Ok(true);
        }
        if time.is_zero() {
            return Ok(false);
        }
        let process = pidfd_open(self.pid(), PidfdFlags::empty())?;
        let started = Instant::now();
        while let Some(left) = time.checked_sub(started.elapsed()) {
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.has_exited()
    }

    pub(super) fn has_exited(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid()), options)?.is_some())
    }

    /// Waits for the exit of a process whose output has ended; `None` if it does not exit in time.
    pub(super) fn exit_status(&mut self, time: Duration) -> io::Result<Option<ExitStatus>> {
        if !self.exits_within(time)? {
            return Ok(None);
        }
        self.reap().map(Some)
    }

    /// Kills all that is left of its group, which keeps its number until then.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.is_reaped = true;
        self.child.wait()
    }

    /// Ends its input, and returns the output until it exits or is killed. Output above `max` bytes
    /// is not read.
    pub(super) fn finish(&mut self, max: usize) -> io::Result<Vec<u8>> {
        self.end_input();
        let (started, mut output) = (Instant::now(), Vec::new());
        while output.len() <= max {
            let Some(left) = GRACE.checked_sub(started.elapsed()) else { break };
            if self.wait_ready(false, left)?.reads && self.read(&mut output)? == Some(0) {
                self.exits_within(GRACE.saturating_sub(started.elapsed()))?;
                break;
            }
        }
        self.kill()?;
        Ok(output)
    }

    /// Sends SIGTERM to all its processes, and SIGKILL to the remaining ones.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if self.is_reaped {
            return Ok(());
        }
        if !self.has_exited()? {
            self.signal(Signal::TERM);
            let waited = self.exits_within(GRACE);
            self.reap()?;
            return waited.map(|_| ());
        }
        self.reap().map(|_| ())
    }

    fn signal(&self, signal: Signal) {
        // Fails only if no process of the group is left.
        let _ = kill_process_group(self.pid(), signal);
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end_input();
        if let Err(error) = self.kill() {
            tracing::warn!(%error, "could not end a command");
        }
    }
}

/// Returns `None` if the call would block.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
