//! The generator's connection to the collector: epoch, acknowledgements, and account.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::frame::{Header, Kind, decode_pairs};
use crate::generator::{GeneratorOptions, Phase, Shared, State};
use crate::intervals::Intervals;
use crate::link::{Link, LinkError, Reachability, Received};
use crate::message::{GeneratorWelcome, Hello};
use crate::task::Plan;

/// Upper limit for ids of collected tasks: more than any run reaches, and low enough that new ids
/// never overflow.
const IDS_END_MAX: u64 = 1 << 63;

/// Interval between attempts to reach the collector.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Waits for a collector. Its welcome lists the ids that are already collected.
pub(super) fn register(
    options: &GeneratorOptions,
    stop: &AtomicBool,
) -> Result<(Link, GeneratorWelcome, Intervals)> {
    let started = Instant::now();
    let reachability = Reachability::new("the collector", options.collector);
    loop {
        match greet(options.collector, options.stream, None, &options.plan) {
            Ok(greeted) => {
                reachability.found();
                return Ok(greeted);
            }
            Err(LinkError::Refused(reason)) => {
                bail!("the collector refused the connection: {reason}")
            }
            Err(error) if started.elapsed() > options.patience || stop.load(Ordering::Relaxed) => {
                bail!("could not connect to the collector at {}: {error}", options.collector)
            }
            Err(error) => reachability.lost(&error),
        }
        thread::sleep(RETRY_PAUSE);
    }
}

fn greet(
    collector: std::net::SocketAddr,
    stream: u64,
    epoch: Option<u32>,
    plan: &Plan,
) -> Result<(Link, GeneratorWelcome, Intervals), LinkError> {
    let mut link = Link::connect(collector)?;
    link.expect_welcome();
    let hello = Hello::Generator { stream, epoch, plan: plan.clone() };
    link.send_message(Header::control(Kind::Hello, stream, epoch.unwrap_or(0)), &hello)?;
    let welcome: GeneratorWelcome = link.receive_message(Kind::Welcome, &mut Vec::new())?;
    let collected = Intervals::from_ranges(welcome.collected.clone())
        .ok_or_else(|| LinkError::Refused("its list of collected ids is not sorted".into()))?;
    if collected.end() > IDS_END_MAX {
        return Err(LinkError::Refused("its list of collected ids ends too high".into()));
    }
    link.open_for(0)?;
    Ok((link, welcome, collected))
}

/// Receives acknowledgements until the run ends; reconnects whenever the connection is lost.
pub(super) fn follow(shared: &Shared, mut link: Link) {
    loop {
        let error = match receive_acks(shared, &mut link) {
            Ok(()) => return,
            Err(error) => error,
        };
        link.close();
        {
            let mut state = shared.state.lock();
            state.control = None;
            if state.phase.is_last() {
                return;
            }
        }
        tracing::warn!(%error, "connection to the collector lost; reconnecting");
        match reconnect(shared) {
            Some(again) => link = again,
            None => return,
        }
    }
}

/// Returns `Ok` when the run has ended.
fn receive_acks(shared: &Shared, link: &mut Link) -> Result<(), LinkError> {
    let mut payload = Vec::new();
    loop {
        let header = match link.receive(&mut payload)? {
            Received::Frame(header) => header,
            // The next handshake repeats a lost acknowledgement.
            Received::Damaged(_) => return Err(LinkError::Damaged),
        };
        let payload = &payload[..header.payload_len()];
        match header.kind {
            Kind::Ack | Kind::Nack => apply(shared, &header, payload)?,
            Kind::Account => {
                let account = serde_json::from_slice(payload)?;
                link.send(&Header::control(Kind::Account, shared.stream, shared.epoch), &[])?;
                let mut state = shared.state.lock();
                state.account = Some(account);
                if !state.phase.is_last() {
                    state.phase = Phase::Finished;
                }
                drop(state);
                shared.changed.notify_all();
                return Ok(());
            }
            Kind::Refusal => {
                let reason = String::from_utf8_lossy(payload).into_owned();
                shared.fail(format!("the collector refused the connection: {reason}"));
                return Ok(());
            }
            found => return Err(LinkError::Unexpected { found, expected: "acknowledgements" }),
        }
    }
}

fn apply(shared: &Shared, header: &Header, payload: &[u8]) -> Result<(), LinkError> {
    if header.epoch != shared.epoch {
        return Ok(());
    }
    let expected = "pairs of sequence numbers";
    let pairs =
        decode_pairs(payload).ok_or(LinkError::Unexpected { found: header.kind, expected })?;
    let now_ns = shared.clock.now_ns();
    let mut state = shared.state.lock();
    for (first, last) in pairs {
        match header.kind {
            Kind::Ack => state.ledger.acknowledge(first, last, now_ns),
            // A collector reports damaged batches one at a time.
            _ => state.ledger.refuse(first),
        }
    }
    if state.pace.is_finished() && state.ledger.is_empty() {
        state.ended_ns = now_ns;
    }
    drop(state);
    shared.changed.notify_all();
    Ok(())
}

/// Returns `None` if the run has ended or has just failed.
fn reconnect(shared: &Shared) -> Option<Link> {
    let started = Instant::now();
    let reachability = Reachability::new("the collector", shared.collector);
    loop {
        if shared.state.lock().phase.is_last() {
            return None;
        }
        match greet(shared.collector, shared.stream, Some(shared.epoch), &shared.plan) {
            Ok((link, welcome, collected)) => return resume(shared, link, &welcome, &collected),
            Err(LinkError::Refused(reason)) => {
                shared.fail(format!("the collector refused the connection: {reason}"));
                return None;
            }
            Err(error) if started.elapsed() > shared.collector_patience => {
                let waited_s = shared.collector_patience.as_secs();
                shared.fail(format!("the collector was unreachable for {waited_s} s: {error}"));
                return None;
            }
            Err(error) => reachability.lost(&error),
        }
        thread::sleep(RETRY_PAUSE);
    }
}

fn resume(
    shared: &Shared,
    link: Link,
    welcome: &GeneratorWelcome,
    collected: &Intervals,
) -> Option<Link> {
    let resumed = {
        let mut state = shared.state.lock();
        let now_ns = shared.clock.now_ns();
        let resumed = state.ledger.resume(collected, now_ns);
        state.control = link.try_clone().ok();
        if state.phase == Phase::Closing {
            request_account(shared, &mut state);
        }
        resumed
    };
    shared.changed.notify_all();
    if let Err(error) = resumed {
        shared.fail(error.to_string());
        return None;
    }
    if welcome.epoch != shared.epoch {
        shared.fail(format!(
            "the collector reports epoch {} instead of {}",
            welcome.epoch, shared.epoch
        ));
        return None;
    }
    tracing::info!("reconnected to the collector");
    Some(link)
}

/// If the request is lost, the connection has failed, and the request is repeated on the next one.
pub(super) fn request_account(shared: &Shared, state: &mut State) {
    let mut header = Header::control(Kind::Finish, shared.stream, shared.epoch);
    header.first_id = state.ledger.next_id();
    if let Some(control) = &mut state.control
        && let Err(error) = control.send(&header, &[])
    {
        tracing::debug!(%error, "could not request the account");
        control.close();
    }
}
