//! Signals as values, read by the main thread from a descriptor.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal as Posix};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// A signal that the process received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    Hangup,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

const SIGNALS: [(Posix, Signal); 5] = [
    (Posix::SIGTERM, Signal::Terminate),
    (Posix::SIGINT, Signal::Interrupt),
    (Posix::SIGHUP, Signal::Hangup),
    (Posix::SIGUSR1, Signal::User1),
    (Posix::SIGUSR2, Signal::User2),
];

/// A descriptor that is readable when a signal has arrived.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

/// Blocks the signals that a group takes, in the calling thread and all threads it starts from now
/// on: for programs that start other threads before [`crate::Group::start`].
///
/// SIGXFSZ is blocked as well, but never read: exceeding the file size limit (`ulimit -f`) is then
/// an error of the write, as a full disk is, instead of the end of the process.
pub fn block_signals() -> std::io::Result<()> {
    let mut set = signal_set();
    set.add(Posix::SIGXFSZ);
    Ok(set.thread_block()?)
}

fn signal_set() -> SigSet {
    SIGNALS.iter().map(|(posix, _)| *posix).collect()
}

impl Signals {
    /// Blocks the signals in the calling thread and all threads it starts from now on, and opens
    /// a descriptor for them.
    pub fn open() -> std::io::Result<Signals> {
        block_signals()?;
        let set = signal_set();
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { fd })
    }

    /// The next pending signal.
    pub fn take(&self) -> Option<Signal> {
        let info = self.fd.read_signal().ok()??;
        let number = i32::try_from(info.ssi_signo).ok()?;
        SIGNALS.iter().find(|(posix, _)| *posix as i32 == number).map(|(_, signal)| *signal)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
