//! Messages to the service manager that started the process, such as systemd: whether the server is
//! ready, what it does, and that its reactors run.
//!
//! Without the environment variables of a service manager, nothing is sent.
// Source: sd_notify(3) and sd_watchdog_enabled(3) of systemd 252

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

use base::time::MonoNs;

/// Whether a failure was logged: a broken socket fails at every message.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Sends assignments, one on each line.
pub(crate) fn notify(message: &str) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else {
        return;
    };
    if let Err(error) = send(&place, message)
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(%error, "could not notify the service manager");
    }
}

/// Sends what the server does.
pub(crate) fn show(status: &str) {
    notify(&format!("STATUS={status}"));
}

/// The place is a path, or an abstract name that begins with `@`.
fn send(place: &OsStr, message: &str) -> io::Result<()> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    // The server does not wait for a service manager that reads nothing.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address).map(|_| ())
}

/// When the service manager is next sent that the server is alive.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Half of the time after which the service manager restarts a silent process. A turn of a
    /// reactor that takes longer is a stall.
    interval_ns: u64,
    next: MonoNs,
}

impl Watchdog {
    /// `None` if the service manager expects no messages from this process.
    pub(crate) fn from_environment() -> Option<Watchdog> {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_other = number("WATCHDOG_PID").is_some_and(|id| id != u64::from(std::process::id()));
        let us = number("WATCHDOG_USEC").filter(|us| *us > 0 && !is_other)?;
        Some(Watchdog { interval_ns: us.saturating_mul(500), next: MonoNs(0) })
    }

    /// Sends a message if it is due and all reactors run. `turns`: the start of the turn of each
    /// reactor; `None` if it waits for work.
    pub(crate) fn feed(&mut self, turns: impl IntoIterator<Item = Option<MonoNs>>, now: MonoNs) {
        if self.is_due(turns, now) {
            self.next = MonoNs(now.0.saturating_add(self.interval_ns));
            notify("WATCHDOG=1");
        }
    }

    fn is_due(&self, turns: impl IntoIterator<Item = Option<MonoNs>>, now: MonoNs) -> bool {
        let runs = |began: MonoNs| now.since(began) < self.interval_ns;
        now >= self.next && turns.into_iter().flatten().all(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_only_while_all_reactors_run() {
        let watchdog = Watchdog { interval_ns: 100, next: MonoNs(1000) };
        let is_due = |turns: &[Option<u64>], now| {
            watchdog.is_due(turns.iter().map(|turn| turn.map(MonoNs)), MonoNs(now))
        };
        assert!(!is_due(&[None, None], 999), "not yet");
        assert!(is_due(&[None, Some(950)], 1000));
        assert!(is_due(&[None, Some(901)], 1000));
        assert!(!is_due(&[None, Some(900)], 1000), "a stall");
        assert!(is_due(&[], 1000));
    }

    #[test]
    fn messages_arrive_at_a_path_and_at_an_abstract_name() {
        let name = format!("myriad-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let at_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let at_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        for (place, socket) in
            [(path.as_os_str(), &at_path), (OsStr::new(&format!("@{name}")), &at_name)]
        {
            send(place, "READY=1").unwrap();
            let mut buffer = [0; 16];
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(send(path.as_os_str(), "READY=1").is_err());
    }
}
