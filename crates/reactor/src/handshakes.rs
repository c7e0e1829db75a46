//! Unfinished TLS handshakes.

use std::collections::VecDeque;

use base::time::MonoNs;

use crate::tls::Channel;
use crate::token::Token;

/// Unfinished handshakes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// When each began. Finished ones are removed when they are the oldest.
    pub(crate) began: VecDeque<(MonoNs, Token)>,
    /// The number of unfinished ones.
    pub(crate) unfinished: usize,
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

    pub(crate) fn oldest(&self) -> Option<MonoNs> {
        self.began.front().map(|(began, _)| *began)
    }
}
