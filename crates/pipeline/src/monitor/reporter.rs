//! A part's way to its monitor: never in the way of its work.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::frame::{Header, Kind};
use crate::link::{Link, LinkError};
use crate::message::Hello;
use crate::status::Status;

/// Statuses that wait while the monitor is slow; more are dropped, as newer ones say all.
const WAITING_MAX: usize = 16;

/// Sends statuses from a thread of its own, which ends with this value.
#[derive(Debug)]
pub struct Reporter {
    statuses: SyncSender<Status>,
}

impl Reporter {
    pub fn start(monitor: SocketAddr, name: String) -> Self {
        let (statuses, waiting) = sync_channel(WAITING_MAX);
        thread::spawn(move || report(monitor, &name, &waiting));
        Self { statuses }
    }

    /// At once, or never: a monitor that is not there changes nothing.
    pub fn send(&self, status: Status) {
        if self.statuses.try_send(status).is_err() {
            tracing::debug!("the monitor is behind");
        }
    }
}

fn report(monitor: SocketAddr, name: &str, statuses: &Receiver<Status>) {
    let mut link = None;
    for status in statuses {
        if link.is_none() {
            link = greet(monitor, name).ok();
        }
        let Some(open) = &mut link else { continue };
        if let Err(error) = open.send_message(Header::control(Kind::Status, 0, 0), &status) {
            tracing::debug!(%error, "the monitor is gone");
            link = None;
        }
    }
}

fn greet(monitor: SocketAddr, name: &str) -> Result<Link, LinkError> {
    let mut link = Link::connect(monitor)?;
    let hello = Hello::Reporter { stage: "all".to_owned(), name: name.to_owned() };
    link.send_message(Header::control(Kind::Hello, 0, 0), &hello)?;
    Ok(link)
}
