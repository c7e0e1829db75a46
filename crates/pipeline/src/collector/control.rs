//! Connections from generators to the collector.

use std::sync::Arc;
use std::thread::Scope;

use anyhow::Result;
use base::causes::with_causes;

use crate::collector::sink::DURABLE_PAUSE;
use crate::collector::stream::{JoinRequest, Stream};
use crate::collector::{STREAMS_MAX, Shared, refuse};
use crate::frame::{Header, Kind, encode_pairs};
use crate::link::{Link, LinkError, Received};
use crate::message::GeneratorWelcome;
use crate::task::Plan;

/// Pairs in one message, 16 bytes each.
const PAIRS_MAX: usize = 4096;

pub(super) fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    mut link: Link,
    (id, epoch, plan): (u64, Option<u32>, Plan),
) -> Result<(), LinkError> {
    let stream = match find_or_make(shared, id, &plan) {
        Ok(stream) => stream,
        Err(reason) => return refuse(link, &reason),
    };
    let joined = match stream.join(shared, &link, &JoinRequest { epoch, plan }) {
        Ok(joined) => joined,
        Err(LinkError::Refused(reason)) => return refuse(link, &reason),
        Err(error) => return Err(error),
    };
    let (epoch, connection) = (joined.epoch, joined.connection);
    if let Some(sink) = &shared.sink
        && let Err(error) = sink.wait_until_durable(joined.durable_at)
    {
        shared.fail(with_causes(&*error));
        return Err(LinkError::Closed);
    }
    let welcome = GeneratorWelcome { epoch, collected: joined.collected };
    let head = Header::control(Kind::Welcome, id, epoch);
    let greeted = link.send_message(head, &welcome).and_then(|()| Ok(link.open_for(0)?));
    let outcome = greeted.and_then(|()| {
        tracing::info!(stream = format!("{id:016x}"), epoch, "generator joined");
        let sender = link.try_clone()?;
        let updated = Arc::clone(&stream);
        scope.spawn(move || send_updates(shared, &updated, sender, (epoch, connection)));
        receive_finish(shared, &stream, &mut link, (epoch, connection))
    });
    stream.leave(connection);
    link.close();
    outcome
}

fn find_or_make(shared: &Shared, id: u64, plan: &Plan) -> Result<Arc<Stream>, String> {
    plan.check()?;
    let _making = shared.making.lock();
    if let Some(stream) = shared.stream(id) {
        return Ok(stream);
    }
    // No other thread adds streams while `making` is held.
    if shared.state.lock().streams.len() >= STREAMS_MAX {
        return Err(format!("the limit of {STREAMS_MAX} streams is reached"));
    }
    let made = Stream::new(shared, id, plan);
    let made = Arc::new(made.map_err(|error| with_causes(&*error))?);
    shared.state.lock().streams.insert(id, Arc::clone(&made));
    Ok(made)
}

/// Waits until the generator finishes.
fn receive_finish(
    shared: &Shared,
    stream: &Stream,
    link: &mut Link,
    (epoch, connection): (u32, u64),
) -> Result<(), LinkError> {
    let mut payload = Vec::new();
    loop {
        let Received::Frame(header) = link.receive(&mut payload)? else {
            return Err(LinkError::Damaged);
        };
        match header.kind {
            Kind::Finish => {}
            Kind::Account => {
                stream.set_confirmed();
                return Ok(());
            }
            found => return Err(LinkError::Unexpected { found, expected: "the end" }),
        }
        if stream.superseded_reason(epoch).is_some() {
            // The end of an earlier incarnation does not end this stream.
            return Err(LinkError::Closed);
        }
        match stream.finish(shared, header.first_id) {
            Ok(account) => stream.queue_account(connection, account, shared.clock.now_ns()),
            Err(error) => {
                shared.fail(with_causes(&*error));
                return Err(LinkError::Closed);
            }
        }
    }
}

/// Sends the generator its acknowledgements until the connection ends. A generator whose stream
/// moved to a later incarnation is notified: it would wait forever otherwise.
fn send_updates(shared: &Shared, stream: &Stream, mut link: Link, (epoch, connection): (u32, u64)) {
    if let Err(error) = send_outbox(shared, stream, &mut link, (epoch, connection)) {
        // The thread that reads this connection fails too.
        tracing::debug!(%error, "could not notify generator");
        link.close();
    } else if let Some(reason) = stream.superseded_reason(epoch) {
        link.refuse(&reason);
    }
}

/// Returns `Ok` when this connection no longer belongs to the generator.
fn send_outbox(
    shared: &Shared,
    stream: &Stream,
    link: &mut Link,
    (epoch, connection): (u32, u64),
) -> Result<(), LinkError> {
    let (mut acks, mut nacks) = (Vec::new(), Vec::new());
    let mut payload = Vec::new();
    while let Some(mut state) = stream.wait_for_outbox(shared, connection) {
        acks.clear();
        nacks.clear();
        let mut waits = false;
        while let Some((first, last, durable_at)) = state.outbox.acks.front().copied() {
            match shared.sink.as_ref().map_or(Ok(true), |sink| sink.is_durable(durable_at)) {
                Ok(true) if acks.len() < PAIRS_MAX => push_range(&mut acks, (first, last)),
                Ok(is_durable) => {
                    waits = !is_durable;
                    break;
                }
                Err(error) => {
                    drop(state);
                    shared.fail(with_causes(&*error));
                    return Err(LinkError::Closed);
                }
            }
            state.outbox.acks.pop_front();
        }
        let count = state.outbox.nacks.len().min(PAIRS_MAX);
        nacks.extend(state.outbox.nacks.drain(..count).map(|sequence| (sequence, sequence)));
        // The account follows everything else.
        let is_last = state.outbox.acks.is_empty() && state.outbox.nacks.is_empty();
        let account = if is_last { state.outbox.account.take() } else { None };
        drop(state);
        for (kind, pairs) in [(Kind::Ack, &acks), (Kind::Nack, &nacks)] {
            if pairs.is_empty() {
                continue;
            }
            payload.clear();
            encode_pairs(pairs, &mut payload);
            let header = Header::control(kind, stream.id, epoch).with_payload(&payload);
            link.send(&header, &payload)?;
        }
        if let Some(account) = account {
            link.send_message(Header::control(Kind::Account, stream.id, epoch), &account)?;
        }
        if waits {
            std::thread::sleep(DURABLE_PAUSE);
        }
    }
    Ok(())
}

/// Appends a range, merging it with an adjacent one.
fn push_range(ranges: &mut Vec<(u64, u64)>, (first, last): (u64, u64)) {
    match ranges.last_mut() {
        Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
        _ => ranges.push((first, last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_batches_are_acknowledged_as_one_range() {
        let mut ranges = Vec::new();
        for range in [(0, 0), (1, 3), (5, 5), (4, 4), (u64::MAX, u64::MAX), (0, 0)] {
            push_range(&mut ranges, range);
        }
        assert_eq!(ranges, [(0, 3), (5, 5), (4, 4), (u64::MAX, u64::MAX), (0, 0)]);
    }
}
