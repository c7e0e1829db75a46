//! Unfinished TLS handshakes.

use std::collections::VecDeque;

use base::time::MonoNs;

use crate::tls::Channel;
use crate::token::Token;

/// Reads of unfinished handshakes per turn. A handshake takes up to a millisecond of processor time,
/// for the signature with a key of RSA; others wait for later turns, so that thousands of clients
/// that connect at once do not stop the established ones.
const READS_MAX: usize = 4;

/// Unfinished handshakes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// When each began. Finished ones are removed when they are the oldest.
    pub(crate) began: VecDeque<(MonoNs, Token)>,
    /// The number of unfinished ones.
    pub(crate) unfinished: usize,
    /// Reads of unfinished handshakes in this turn.
    pub(crate) reads: usize,
}

impl Handshakes {
    /// Called when a handshake, or its connection, has ended.
    pub(crate) fn end(&mut self, channel: Option<&mut Box<Channel>>) {
        if let Some(channel) = channel
            && std::mem::replace(&mut channel.is_counted, false)
        {
            self.unfinished -= 1;
        }
    }

    /// Whether a handshake may be continued in this turn.
    pub(crate) fn may_read(&mut self) -> bool {
        let may_read = self.reads < READS_MAX;
        self.reads += usize::from(may_read);
        may_read
    }

    pub(crate) fn oldest(&self) -> Option<MonoNs> {
        self.began.front().map(|(began, _)| *began)
    }
}
