//! Connections that have not authenticated: when there are too many, the oldest are closed, so that
//! clients without a password do not use up `maxclients`.

use std::collections::VecDeque;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context};
use wire::resp::ReplyWriter;

use super::{ReactorHandler, Session};
use crate::engine::mail::Mail;

/// Time that a connection has to authenticate in any case: many clients may connect at once, and
/// send their passwords with the next packet.
const AGE_NS_MIN: u64 = 1_000_000_000;

const TOO_MANY: &str = "ERR too many connections have not authenticated";

/// Connections of a reactor that had not authenticated when they were opened, oldest first.
#[derive(Debug, Default)]
pub(super) struct Newcomers(VecDeque<(ConnId, MonoNs)>);

impl Newcomers {
    pub(super) fn push(&mut self, id: ConnId, now: MonoNs) {
        self.0.push_back((id, now));
    }

    /// Removes connections that have authenticated, were closed or moved, if there may be more than
    /// `count_max` others. O(n), once per eighth of `count_max` new connections.
    fn tidy(&mut self, count_max: usize, mut is_newcomer: impl FnMut(ConnId) -> bool) {
        if self.0.len() > count_max + count_max / 8 {
            self.0.retain(|(id, _)| is_newcomer(*id));
        }
    }
}

impl ReactorHandler {
    /// Closes the oldest connections that have not authenticated, above half of this reactor's
    /// share of `maxclients`.
    pub(super) fn limit_newcomers(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if self.newcomers.0.is_empty() {
            return;
        }
        let reactors = self.shared.reactors.regular;
        let count_max = (self.reactor.settings.maxclients / 2).div_ceil(reactors);
        if self.newcomers.0.len() <= count_max {
            return;
        }
        let is_newcomer = |connections: &mut Connections<'_, Session>, id| {
            connections.session(id).is_some_and(|session| !session.as_protocol().is_authenticated())
        };
        self.newcomers.tidy(count_max, |id| is_newcomer(connections, id));
        while self.newcomers.0.len() > count_max
            && let Some((id, opened)) = self.newcomers.0.front().copied()
        {
            let is_newcomer = is_newcomer(connections, id);
            if is_newcomer && cx.now().mono.since(opened) < AGE_NS_MIN {
                return;
            }
            self.newcomers.0.pop_front();
            if !is_newcomer {
                continue;
            }
            if let Some((Session::Resp(session), out)) = connections.get_mut(id) {
                ReplyWriter::new(out.buffer(), session.protocol).error(TOO_MANY);
            }
            self.reactor.tally.error(None, TOO_MANY);
            self.reactor.tally.totals.closed_newcomers += 1;
            cx.close(id);
        }
    }
}
