//! Connections from executors to the collector: one thread per connection receives results.

use std::thread;
use std::time::Duration;

use base::causes::with_causes;

use crate::collector::stream::Stream;
use crate::collector::verify::{Verify, check_all};
use crate::collector::{Accepted, BATCH_BYTES_RESERVED, CREDITS, Shared, refuse};
use crate::frame::{Header, Kind, PAYLOAD_BYTES_MAX};
use crate::link::{Link, LinkError, Received};
use crate::message::CollectorWelcome;
use crate::meter::{Activity, Stopwatch};
use crate::slots::Slot;

const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// Credits are returned in steps: one small frame for several large ones.
const CREDIT_STEP: u32 = CREDITS / 4;

pub(super) fn serve(
    shared: &Shared,
    mut link: Link,
    stream: Option<u64>,
    name: &str,
) -> Result<(), LinkError> {
    let Some(stream) = stream.and_then(|id| shared.stream(id)) else {
        return refuse(link, "no generator of this stream has connected yet");
    };
    let batch = usize::try_from(stream.batch()).expect("32 bits fit");
    let bytes_max = batch.saturating_mul(stream.task.output_bytes_max()).min(PAYLOAD_BYTES_MAX);
    let reserved = bytes_max.min(BATCH_BYTES_RESERVED);
    let Some(_room) = shared.results_bytes.take_some(reserved) else {
        return refuse(link, "too many executors for results of this size");
    };
    link.send_message(
        Header::control(Kind::Welcome, stream.id, 0),
        &CollectorWelcome { credits: CREDITS },
    )?;
    link.open_for(bytes_max)?;
    shared.state.lock().executors += 1;
    tracing::info!(name, "executor joined");
    let outcome = take_results(shared, &stream, &mut link, reserved);
    shared.state.lock().executors -= 1;
    outcome
}

fn take_results(
    shared: &Shared,
    stream: &Stream,
    link: &mut Link,
    reserved: usize,
) -> Result<(), LinkError> {
    let mut payload = Vec::new();
    let mut owed = 0;
    let mut stopwatch = Stopwatch::start(&shared.meter, shared.clock);
    loop {
        let mut beyond = None;
        let received = link.receive_in(&mut payload, |bytes| {
            beyond = (bytes > reserved).then(|| wait_for_room(shared, bytes - reserved));
        })?;
        stopwatch.charge(Activity::Starved);
        let (Received::Frame(header) | Received::Damaged(header)) = received;
        if header.kind != Kind::Result || header.stream != stream.id {
            return Err(LinkError::Unexpected { found: header.kind, expected: "results" });
        }
        let outputs = &payload[..header.payload_len()];
        match received {
            Received::Frame(_) => take(shared, stream, &header, outputs)?,
            Received::Damaged(_) => stream.refuse(&header),
        }
        stopwatch.charge(Activity::Busy);
        if let Some(sink) = &shared.sink {
            sink.wait_for_space();
        }
        if beyond.is_some() {
            payload = Vec::new();
        }
        drop(beyond);
        owed += 1;
        if owed == CREDIT_STEP {
            let mut credit = Header::control(Kind::Credit, stream.id, 0);
            credit.count = owed;
            link.send(&credit, &[])?;
            owed = 0;
        }
        stopwatch.charge(Activity::Blocked);
    }
}

/// Waits until others have sent their large batches, which are then processed at once.
fn wait_for_room(shared: &Shared, bytes: usize) -> Slot<'_> {
    loop {
        if let Some(room) = shared.large_batches_bytes.take_some(bytes) {
            return room;
        }
        thread::sleep(ROOM_PAUSE);
    }
}

/// Performs all checks, then records the batch. Requests a batch again if it fails a check.
fn take(
    shared: &Shared,
    stream: &Stream,
    header: &Header,
    outputs: &[u8],
) -> Result<(), LinkError> {
    let digest = match stream.task.inspect(header.ids(), outputs) {
        Ok(digest) => digest,
        Err(error) => {
            tracing::warn!(%error, first_id = header.first_id, "invalid results refused");
            stream.refuse(header);
            return Ok(());
        }
    };
    let verified = match shared.verify {
        Verify::All if stream.task.is_repeatable() => {
            match check_all(&*stream.task, outputs, header.count) {
                Ok(verified) => Some(verified),
                Err(error) => {
                    shared.fail(format!("could not verify results: {error}"));
                    return Err(LinkError::Closed);
                }
            }
        }
        Verify::All | Verify::Sample { .. } => None,
    };
    match stream.accept(shared, header, outputs, digest, verified) {
        Ok(Accepted::New) => {
            shared.meter.count_batch(header.count, outputs.len());
            Ok(())
        }
        Ok(Accepted::Duplicate | Accepted::Stale) => Ok(()),
        Ok(found @ (Accepted::Conflict | Accepted::Full)) => {
            let (first, end) = (header.first_id, header.ids().end());
            shared.fail(format!("inconsistent bookkeeping: ids {first} to {end}: {found:?}"));
            Err(LinkError::Closed)
        }
        Err(error) => {
            shared.fail(with_causes(&*error));
            Err(LinkError::Closed)
        }
    }
}
