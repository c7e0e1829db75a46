//! The real driver: level-triggered epoll.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use base::stages::CycleClock;
use base::time::{MonoNs, Now};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::thread::sched_yield;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{Event, Interest, Io, Ready};
use crate::mailbox::Waker;
use crate::token::Token;

/// The upper half of the tokens of watched descriptors, which no connection's token has.
const SOURCES: u32 = u32::MAX;
/// Events taken per wait; further ready sockets are reported by the next wait.
const EVENTS_MAX: usize = 512;
/// The kernel passes a longer file to the socket in pieces of this size, a little more than a
/// segment. Without corking, each acknowledgement would send the small remainder as a segment of
/// its own.
const SPLICE_BYTES: usize = 64 * 1024;
/// The waker's token: generations of connections never reach this.
const WAKER: u64 = u64::MAX;
/// The wall clock is read at this interval and extrapolated with the monotonic one in between. A
/// step of the wall clock is noticed at most this much later.
const UNIX_RESYNC_NS: u64 = 50_000_000;

/// When a watched descriptor is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// While it is readable.
    Level,
    /// When it becomes readable. A handler that does not read to the end gets no second report.
    Edge,
    /// While it is readable, to one or a few of the reactors, of any process, that watch it in this
    /// mode.
    Exclusive,
}

/// Makes a reactor watch descriptors of its handler: see [`crate::Handler::source`].
#[derive(Debug, Clone)]
pub struct Watcher {
    epoll: Arc<OwnedFd>,
}

impl Watcher {
    /// Reports `fd` as `source` when it becomes readable. `source` is not `u32::MAX`.
    pub fn add(&self, fd: impl AsFd, source: u32, trigger: Trigger) -> rustix::io::Result<()> {
        assert!(source != u32::MAX, "reserved for the waker");
        let flags = match trigger {
            Trigger::Level => EventFlags::IN,
            Trigger::Edge => EventFlags::IN | EventFlags::ET,
            Trigger::Exclusive => EventFlags::IN | EventFlags::EXCLUSIVE,
        };
        let token = u64::from(SOURCES) << 32 | u64::from(source);
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)
    }

    /// Stops watching `fd`. An event that this turn has already fetched is still delivered.
    pub fn remove(&self, fd: impl AsFd) -> rustix::io::Result<()> {
        epoll::delete(&self.epoll, fd)
    }
}

pub(crate) struct EpollDriver {
    epoll: Arc<OwnedFd>,
    events: Vec<epoll::Event>,
    /// Wall time and monotonic time, read together.
    synced: Option<(u64, MonoNs)>,
    /// For intervals too short for the clock of the turn.
    cycles: CycleClock,
    cycles_origin: u64,
}

impl std::fmt::Debug for EpollDriver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EpollDriver").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl EpollDriver {
    /// An epoll that watches `waker`, edge-triggered: its counter is never read, so a call costs
    /// one write. Opened before the reactor's thread starts, so that failures prevent the start.
    pub(crate) fn open(waker: &Waker) -> rustix::io::Result<OwnedFd> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(eventfd) = waker.fd() {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, eventfd, EventData::new_u64(WAKER), flags)?;
        }
        // Kernels before 5.11 have no wait with a timeout below a millisecond: they fail here.
        epoll::wait(
            &epoll,
            spare_capacity(&mut Vec::with_capacity(1)),
            Some(&Timespec::default()),
        )?;
        Ok(epoll)
    }

    pub(crate) fn watcher(&self) -> Watcher {
        Watcher { epoll: Arc::clone(&self.epoll) }
    }

    pub(crate) fn new(epoll: OwnedFd) -> EpollDriver {
        let epoll = Arc::new(epoll);
        let cycles = CycleClock::new();
        let cycles_origin = cycles.now();
        let events = Vec::with_capacity(EVENTS_MAX);
        EpollDriver { epoll, events, synced: None, cycles, cycles_origin }
    }

    /// Nanoseconds since this driver was created, from the cycle counter: 10 ns per reading.
    pub(crate) fn stamp_ns(&self) -> u64 {
        self.cycles.delta_ns(self.cycles_origin, self.cycles.now())
    }

    #[expect(clippy::unused_self, reason = "the reactor asks its driver for every clock")]
    pub(crate) fn cpu_ns(&self) -> u64 {
        nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
    }

    /// An interrupted wait counts as a wait without events.
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> usize {
        self.events.clear();
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        });
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => unreachable!("epoll_wait fails only for bad arguments: {error}"),
        }
    }

    /// See [`super::Driver::spin`]. Yields the core to other threads after each poll.
    pub(crate) fn spin(&mut self, until: MonoNs, waker: &Waker) -> usize {
        while !waker.is_called() {
            let events = self.wait(Some(0));
            if events != 0 || mono_now() >= until {
                return events;
            }
            sched_yield();
        }
        0
    }

    pub(crate) fn event(&self, position: usize) -> Event {
        let event = self.events[position];
        let (data, flags) = (event.data, event.flags);
        if data.u64() == WAKER {
            return Event::Wake;
        }
        if data.u64() >> 32 == u64::from(SOURCES) {
            #[expect(clippy::cast_possible_truncation, reason = "the lower half is the source")]
            return Event::Source(data.u64() as u32);
        }
        Event::Ready(Ready {
            token: Token(data.u64()),
            readable: flags.intersects(EventFlags::IN),
            writable: flags.intersects(EventFlags::OUT),
            hangup: flags.intersects(EventFlags::RDHUP),
            dead: flags.intersects(EventFlags::ERR | EventFlags::HUP),
        })
    }

    pub(crate) fn now(&mut self) -> Now {
        let mono = mono_now();
        let (unix_ns, at) = match self.synced {
            Some((unix_ns, at)) if mono.since(at) < UNIX_RESYNC_NS => (unix_ns, at),
            _ => {
                let unix_ns = nanoseconds(clock_gettime(ClockId::Realtime));
                self.synced = Some((unix_ns, mono));
                (unix_ns, mono)
            }
        };
        Now::new(unix_ns + mono.since(at), mono)
    }

    pub(crate) fn register(
        &mut self,
        fd: &OwnedFd,
        token: Token,
        interest: Interest,
    ) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token.0), flags(interest))
    }

    pub(crate) fn set_interest(&mut self, fd: &OwnedFd, token: Token, interest: Interest) {
        epoll::modify(&self.epoll, fd, EventData::new_u64(token.0), flags(interest))
            .expect("a registered socket can be modified");
    }

    pub(crate) fn deregister(&mut self, fd: &OwnedFd) {
        epoll::delete(&self.epoll, fd).expect("a registered socket can be deleted");
    }

    pub(crate) fn read(fd: &OwnedFd, buffer: &mut Vec<u8>) -> Io {
        // Cheaper than read(2), which serves every kind of file.
        let received = rustix::net::recv(fd, spare_capacity(buffer), RecvFlags::empty());
        result(received.map(|(count, _)| count))
    }

    pub(crate) fn write(fd: &OwnedFd, bytes: &[u8], has_more: bool) -> Io {
        let more = if has_more { SendFlags::MORE } else { SendFlags::empty() };
        result(rustix::net::send(fd, bytes, SendFlags::NOSIGNAL | more))
    }

    pub(crate) fn send_file(fd: &OwnedFd, file: &OwnedFd, offset: u64, bytes: usize) -> Io {
        let mut offset = offset;
        let mut send = || result(rustix::fs::sendfile(fd, file, Some(&mut offset), bytes));
        if bytes <= SPLICE_BYTES {
            return send();
        }
        cork(fd, true);
        let sent = send();
        cork(fd, false);
        sent
    }

    pub(crate) fn has_unread(fd: &OwnedFd) -> bool {
        rustix::io::ioctl_fionread(fd).is_ok_and(|count| count != 0)
    }

    pub(crate) fn shutdown_write(fd: &OwnedFd) {
        // Fails only if the peer has already reset the connection; the next read reports that too.
        let _ = rustix::net::shutdown(fd, Shutdown::Write);
    }
}

/// Makes the kernel send full segments only, or everything at once.
fn cork(fd: &OwnedFd, is_corked: bool) {
    // A socket other than TCP has no segments.
    let _ = rustix::net::sockopt::set_tcp_cork(fd, is_corked);
}

/// The monotonic clock of all reactors.
pub(crate) fn mono_now() -> MonoNs {
    MonoNs(nanoseconds(clock_gettime(ClockId::Monotonic)))
}

fn flags(interest: Interest) -> EventFlags {
    let mut flags = EventFlags::empty();
    if interest.has(Interest::READ) {
        flags |= EventFlags::IN | EventFlags::RDHUP;
    }
    if interest.has(Interest::HANGUP) {
        flags |= EventFlags::RDHUP;
    }
    if interest.has(Interest::WRITE) {
        flags |= EventFlags::OUT;
    }
    flags
}

/// An interrupted call counts as blocked: readiness is level-triggered and is reported again.
fn result(result: rustix::io::Result<usize>) -> Io {
    match result {
        Ok(count) => Io::Done(count),
        Err(Errno::AGAIN | Errno::INTR) => Io::Blocked,
        Err(error) => Io::Broken(error),
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR_EVER: MonoNs = MonoNs(u64::MAX);

    #[test]
    fn spinning_ends_with_an_event_with_a_call_and_in_time() {
        let waker = Waker::live().unwrap();
        let mut driver = EpollDriver::new(EpollDriver::open(&waker).unwrap());
        assert_eq!(driver.spin(MonoNs(0), &waker), 0, "its time has elapsed");

        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let near = OwnedFd::from(near);
        driver.register(&near, Token(7), Interest::READ).unwrap();
        rustix::io::write(&far, b"x").unwrap();
        assert_eq!(driver.spin(FOR_EVER, &waker), 1);
        assert!(matches!(driver.event(0), Event::Ready(ready) if ready.token == Token(7)));

        driver.deregister(&near);
        waker.wake();
        assert_eq!(driver.spin(FOR_EVER, &waker), 0, "the waker was called");
    }
}
