//! Connections from executors to the generator: one per executor thread, each with a thread that
//! sends batches and one that receives credits.

use std::net::TcpStream;
use std::thread::Scope;

use crate::frame::{Header, Kind, decode_pairs};
use crate::generator::{Assignment, CREDITS_MAX, Phase, SESSIONS_MAX, Session, Shared, State};
use crate::link::{Link, LinkError, Received};
use crate::message::{ExecutorWelcome, Hello};
use crate::meter::{Activity, Stopwatch};
use crate::slots::Slot;
use crate::task::Ids;

/// Time for the collector to acknowledge the last results of an executor that has ended.
const ACK_NS: u64 = 5_000_000_000;

pub(super) fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    stream: TcpStream,
    slot: Slot<'_>,
) {
    let greeted = greet(shared, stream);
    drop(slot);
    let (id, link) = match greeted {
        Ok(greeted) => greeted,
        Err(error) => {
            tracing::warn!(%error, "connection refused");
            return;
        }
    };
    let receiver = link.try_clone();
    match receiver {
        Ok(receiver) => {
            scope.spawn(move || {
                let error = receive(shared, id, receiver);
                drop_session(shared, id, &error);
            });
            if let Err(error) = send_batches(shared, id, link) {
                drop_session(shared, id, &error);
            }
        }
        Err(error) => drop_session(shared, id, &error.into()),
    }
}

fn greet(shared: &Shared, stream: TcpStream) -> Result<(u64, Link), LinkError> {
    let mut link = Link::new(stream)?;
    let hello = link.receive_hello()?;
    let Hello::Executor { name, .. } = hello else {
        link.refuse("this is a generator; it accepts only executors");
        return Err(LinkError::Unexpected { found: Kind::Hello, expected: "an executor" });
    };
    let welcome =
        ExecutorWelcome { stream: shared.stream, epoch: shared.epoch, plan: shared.plan.clone() };
    link.send_message(Header::control(Kind::Welcome, shared.stream, shared.epoch), &welcome)?;
    link.open_for(0)?;
    let mut state = shared.state.lock();
    if state.sessions.len() >= SESSIONS_MAX {
        drop(state);
        link.refuse("too many executors");
        return Err(LinkError::Refused(format!(
            "the limit of {SESSIONS_MAX} executors is reached"
        )));
    }
    let id = state.sessions_seen;
    state.sessions_seen += 1;
    tracing::info!(name, id, "executor joined");
    state.sessions.insert(
        id,
        Session { name, credits: 0, tasks_max: shared.plan.batch, link: link.try_clone()? },
    );
    drop(state);
    shared.changed.notify_all();
    Ok((id, link))
}

/// Reassigns the batches of a lost executor immediately.
fn drop_session(shared: &Shared, id: u64, error: &LinkError) {
    let mut state = shared.state.lock();
    let Some(session) = state.sessions.remove(&id) else { return };
    session.link.close();
    if state.is_draining(shared) {
        let until_ns = shared.clock.now_ns() + ACK_NS;
        state.ledger.session_ended(id, until_ns);
    } else {
        state.ledger.session_lost(id);
    }
    let is_over = state.phase.is_last();
    drop(state);
    shared.changed.notify_all();
    if !is_over {
        tracing::warn!(name = session.name, id, %error, "executor disconnected");
    }
}

/// Receives credits and refusals until the connection ends.
fn receive(shared: &Shared, id: u64, mut link: Link) -> LinkError {
    let mut payload = Vec::new();
    loop {
        let header = match link.receive(&mut payload) {
            Ok(Received::Frame(header)) => header,
            Ok(Received::Damaged(_)) => return LinkError::Damaged,
            Err(error) => return error,
        };
        let payload = &payload[..header.payload_len()];
        let mut state = shared.state.lock();
        match header.kind {
            Kind::Credit => {
                if let Some(session) = state.sessions.get_mut(&id) {
                    session.credits = session.credits.saturating_add(header.count).min(CREDITS_MAX);
                    let preferred = u32::try_from(header.first_id).unwrap_or(u32::MAX);
                    if preferred > 0 {
                        session.tasks_max = preferred.min(shared.plan.batch);
                    }
                }
            }
            Kind::Nack => {
                for (first, _) in decode_pairs(payload).into_iter().flatten() {
                    state.ledger.refuse(first);
                }
            }
            Kind::Failed => {
                let reason = String::from_utf8_lossy(payload).into_owned();
                if !state.ledger.fail(header.sequence) {
                    drop(state);
                    let tasks = shared.names().range(header.first_id, header.ids().end());
                    // With one line, the reason names it, too.
                    let reason = reason.strip_prefix(&format!("{tasks}: ")).unwrap_or(&reason);
                    shared.fail(format!("could not compute {tasks}: {reason}"));
                    continue;
                }
                tracing::warn!(reason, "batch failed; retrying");
            }
            found => return LinkError::Unexpected { found, expected: "credits" },
        }
        drop(state);
        shared.changed.notify_all();
    }
}

/// Next action of a session's sending thread.
enum Next {
    Send(Assignment),
    Finish,
    Stop,
}

fn send_batches(shared: &Shared, id: u64, mut link: Link) -> Result<(), LinkError> {
    let mut inputs = Vec::new();
    let mut stopwatch = Stopwatch::start(&shared.meter, shared.clock);
    loop {
        let assignment = match wait_for_work(shared, id, &mut stopwatch) {
            Next::Send(assignment) => assignment,
            Next::Finish => {
                // The executor closes the connection after reading this. Closing first could
                // discard it.
                link.send(&Header::control(Kind::Finish, shared.stream, shared.epoch), &[])?;
                // The executor notices the end even while it computes.
                link.end_sending()?;
                return Ok(());
            }
            Next::Stop => return Err(LinkError::Closed),
        };
        let Some(used) = make_inputs(shared, assignment.ids, &mut inputs)? else {
            return_credit(shared, id);
            continue;
        };
        let payload = &inputs[..used];
        let mut header = Header::control(Kind::Data, shared.stream, shared.epoch);
        header.count = assignment.ids.count;
        header.sequence = assignment.sequence;
        header.first_id = assignment.ids.first;
        header.due_ns = assignment.due_ns;
        let header = header.with_payload(payload);
        stopwatch.charge(Activity::Busy);
        link.send(&header, payload)?;
        stopwatch.charge(Activity::Blocked);
        shared.meter.count_batch(header.count, used);
    }
}

/// Computes inputs, or copies them from the source. Returns the bytes used; `None` if the results
/// have arrived in the meantime.
fn make_inputs(
    shared: &Shared,
    ids: Ids,
    inputs: &mut Vec<u8>,
) -> Result<Option<usize>, LinkError> {
    if let Some(source) = &shared.source {
        return Ok(source.copy(ids, inputs).then_some(inputs.len()));
    }
    let batch = usize::try_from(shared.plan.batch).expect("32 bits fit");
    inputs.resize(batch * shared.task.input_bytes_max(), 0);
    shared.task.generate(ids, inputs).map(Some).map_err(|error| {
        shared.fail(format!("could not generate inputs: {error}"));
        LinkError::Closed
    })
}

/// For a batch that need not be sent.
fn return_credit(shared: &Shared, id: u64) {
    if let Some(session) = shared.state.lock().sessions.get_mut(&id) {
        session.credits += 1;
    }
}

/// Waits for the next batch of this session. Starved: nothing is due. Blocked: the executor has
/// sent no credits, or the collector has not acknowledged enough.
fn wait_for_work(shared: &Shared, id: u64, stopwatch: &mut Stopwatch<'_>) -> Next {
    let mut state = shared.state.lock();
    loop {
        match state.phase {
            Phase::Finished => return Next::Finish,
            Phase::Failed(_) => return Next::Stop,
            Phase::Waiting | Phase::Running | Phase::Closing => {}
        }
        if state.is_draining(shared) {
            return Next::Finish;
        }
        let Some(session) = state.sessions.get(&id) else { return Next::Stop };
        let activity = if session.credits == 0 {
            Activity::Blocked
        } else if let Some(assignment) = take(shared, &mut state, id, stopwatch.now_ns()) {
            if let Some(session) = state.sessions.get_mut(&id) {
                session.credits -= 1;
            }
            return Next::Send(assignment);
        } else if state.pace.backlog() > 0 {
            Activity::Blocked
        } else {
            Activity::Starved
        };
        shared.changed.wait(&mut state);
        stopwatch.charge(activity);
    }
}

fn take(shared: &Shared, state: &mut State, id: u64, now_ns: u64) -> Option<Assignment> {
    if let Some(again) = state.ledger.take_queued(id, now_ns) {
        return Some(again);
    }
    let count_max = state.sessions.get(&id)?.tasks_max;
    let inputs_end = shared.inputs_end();
    if let Some(hole) = state.ledger.take_hole((count_max, inputs_end), id, now_ns) {
        return Some(hole);
    }
    if !state.ledger.has_space() {
        return None;
    }
    let available = inputs_end.saturating_sub(state.ledger.next_id());
    let count_max = u32::try_from(available).unwrap_or(u32::MAX).min(count_max);
    let (count, due_ns) = state.pace.take(count_max, now_ns)?;
    Some(state.ledger.take_new(count, due_ns, id, now_ns))
}
