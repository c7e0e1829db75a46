//! Properties that the fuzzer and the tests check on arbitrary peer input: no frame and no message
//! panics, every accepted frame re-encodes to the same bytes, and memory use stays within the
//! agreed limits.

use serde::de::DeserializeOwned;

use crate::frame::{self, CONTROL_BYTES_MAX, Kind};
use crate::intervals::Intervals;
use crate::link::{Received, read_frame};
use crate::message::{Account, CollectorWelcome, ExecutorWelcome, GeneratorWelcome, Hello};
use crate::status::Status;
use crate::task::{BatchTask, Codec, Exercise, INPUT_BYTES, Kernel, OUTPUT_BYTES};

/// Seed of the task that the batches are checked against.
const SEED: u64 = 1;
/// Batch size of the simulated executor.
const BATCH: u32 = 64;

/// Decodes the bytes as a header, as pairs, and as the complete input of a connection.
///
/// # Panics
/// If one of the properties does not hold.
pub fn check_frames(bytes: &[u8]) {
    frame::check_bytes(bytes);
    let mut rest = bytes;
    let mut payload = Vec::new();
    loop {
        let received = read_frame(&mut rest, CONTROL_BYTES_MAX, &mut payload, |_| ());
        assert!(payload.len() <= CONTROL_BYTES_MAX);
        match received {
            Ok(Received::Frame(header)) => {
                check_payload(&header, &payload[..header.payload_len()]);
            }
            Ok(Received::Damaged(_)) => {}
            Err(_) => return,
        }
    }
}

fn check_payload(header: &frame::Header, payload: &[u8]) {
    match header.kind {
        Kind::Hello => check_message::<Hello>(payload),
        Kind::Welcome => {
            check_message::<ExecutorWelcome>(payload);
            check_message::<CollectorWelcome>(payload);
            check_collected(payload);
        }
        Kind::Account => check_message::<Account>(payload),
        Kind::Status => check_message::<Status>(payload),
        Kind::Ack | Kind::Nack => {
            if let Some(pairs) = frame::decode_pairs(payload) {
                assert_eq!(pairs.count() * 16, payload.len());
            }
        }
        Kind::Data => check_data(header, payload),
        Kind::Result => check_results(header, payload),
        Kind::Credit | Kind::Finish | Kind::Refusal | Kind::Failed => {}
    }
}

fn check_collected(payload: &[u8]) {
    if let Ok(welcome) = serde_json::from_slice::<GeneratorWelcome>(payload)
        && let Some(collected) = Intervals::from_ranges(welcome.collected.clone())
    {
        assert_eq!(collected.ranges(), welcome.collected);
        assert!(collected.total() <= collected.end());
    }
}

/// Checks that every accepted message encodes to a form that is accepted again.
fn check_message<T: DeserializeOwned + serde::Serialize>(payload: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<T>(payload) {
        let again = serde_json::to_vec(&message).expect("messages are numbers and texts");
        assert!(serde_json::from_slice::<T>(&again).is_ok());
    }
}

/// Applies the checks of an executor.
fn check_data(header: &frame::Header, payload: &[u8]) {
    let ids = header.ids();
    if ids.count > BATCH {
        return;
    }
    let task = Exercise::new(Codec::Powmod, SEED, Kernel::Serial);
    let mut outputs = vec![0; ids.len() * OUTPUT_BYTES];
    if let Ok(used) = task.run(ids, payload, &mut outputs) {
        assert_eq!((payload.len(), used), (ids.len() * INPUT_BYTES, outputs.len()));
    }
}

/// Applies the checks of a collector: results that pass contain all their records.
fn check_results(header: &frame::Header, payload: &[u8]) {
    let task = Exercise::new(Codec::Powmod, SEED, Kernel::Serial);
    if task.inspect(header.ids(), payload).is_ok() {
        assert!((0..header.count).all(|index| task.record(payload, index).is_some()));
        assert_eq!(task.record(payload, header.count), None);
    }
}
