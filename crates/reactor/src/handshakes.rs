//! Handshakes of TLS that are not over.

use std::collections::VecDeque;

use base::time::MonoNs;

use crate::tls::Channel;
use crate::token::Token;

/// Handshakes that are not over, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// When each began. Some may be over, which is found out when they are the oldest.
    pub(crate) began: VecDeque<(MonoNs, Token)>,
    /// How many are not over.
    pub(crate) unfinished: usize,
}

impl Handshakes {
    /// This one is over, or its connection is.
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
