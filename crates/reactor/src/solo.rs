//! One reactor on the caller's thread, whose handler adopts its connections itself: for programs
//! that decide how their threads or processes get connections.

use std::io;
use std::sync::Arc;

use crate::context::Links;
use crate::driver::{Driver, EpollDriver, Watcher};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::mailbox::Inbox;
use crate::reactor::{Deliveries, Reactor};

/// A reactor without threads of its own. It accepts no connections: the handler watches its
/// listeners with the [`Watcher`] and hands connections over with [`crate::Context::adopt`].
pub struct Solo<H: Handler> {
    reactor: Reactor<H>,
}

impl<H: Handler> std::fmt::Debug for Solo<H> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Solo").finish_non_exhaustive()
    }
}

impl<H: Handler> Solo<H> {
    /// Creates a reactor with the handler that `make` returns.
    pub fn new(
        limits: Arc<Limits>,
        make: impl FnOnce(&Links<H::Mail>, Watcher) -> H,
    ) -> io::Result<Solo<H>> {
        let waker = crate::mailbox::Waker::live()?;
        let deliveries: Deliveries<H::Session> = [Inbox::new(waker.clone())].into();
        let driver = EpollDriver::new(EpollDriver::open(&waker)?);
        let links = Links::new(limits, vec![waker], false);
        let handler = make(&links, driver.watcher());
        let driver = Driver::Epoll(driver);
        Ok(Solo { reactor: Reactor::new(0, handler, driver, links, deliveries, false) })
    }

    /// Sends the answers of a turn after all of its events are served, not each at once. A sleeping
    /// peer on this machine is then woken by the first of them and is awake for the others, which
    /// is cheaper; each answer waits for the other requests of the turn.
    #[must_use]
    pub fn gather_answers(mut self) -> Solo<H> {
        self.reactor.gathers = true;
        self
    }

    /// Runs until the handler has called [`crate::Context::end`] and the connections are gone.
    pub fn run(self) {
        self.reactor.run();
    }
}
