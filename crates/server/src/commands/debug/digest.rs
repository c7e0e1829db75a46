//! DEBUG DIGEST and DEBUG DIGEST-VALUE: the digests that Redis computes, by which tests compare
//! data, also that of two servers.
// Source: Redis 7.2 and, for fields that expire, 8.0 `debug.c`, `computeDatasetDigest` and
// `xorObjectDigest`

use base::hex::hex;
use base::time::UnixMs;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use store::types::{Scalar, Stream, StreamId};
use store::{DATABASES, HashRef, Locked, STRIPES, Value};
use wire::resp::Args;

use super::{ADMIN, check_allowed};
use crate::commands::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::engine::gate::Gate;

const DIGEST_BYTES: usize = 20;
/// Cost of an element: up to four blocks of SHA-1.
const HASH_COST: usize = 32;
/// Bytes of a string that cost as much as one element.
const HASHED_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    /// For parts without an order.
    fn xor(&mut self, bytes: &[u8]) {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
        self.0.iter_mut().zip(hash.as_ref()).for_each(|(byte, other)| *byte ^= other);
    }

    /// For parts with an order.
    fn mix(&mut self, bytes: &[u8]) {
        self.xor(bytes);
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        self.0.copy_from_slice(hash.as_ref());
    }

    /// Adds one of several parts without an order, which has parts with an order.
    fn xor_parts<const N: usize>(&mut self, parts: [&[u8]; N]) {
        let mut element = Digest::default();
        for part in parts {
            element.mix(part);
        }
        self.xor(&element.0);
    }

    fn mix_value(&mut self, value: Value<'_>, expiry: Option<UnixMs>) {
        self.mix(&type_number(value).to_be_bytes());
        match value {
            Value::String(text) => self.mix(&text),
            Value::List(list) => list.iter().for_each(|element| self.mix(&element)),
            Value::Set(set) => set.iter().for_each(|it| it.with_bytes(|bytes| self.xor(bytes))),
            Value::Hash(hash) => self.xor_fields(hash),
            Value::ZSet(zset) => {
                for (member, score) in zset.iter() {
                    self.xor_parts([&*member, &score_text(score)]);
                }
            }
            Value::Stream(stream) => self.mix_entries(stream),
            Value::Series(series) => {
                for point in series.range(i64::MIN, i64::MAX) {
                    let expiry = point.expiry.map_or(0, |at| at.0).to_be_bytes();
                    self.xor_parts([&point.timestamp.to_be_bytes(), point.value, &expiry]);
                }
            }
        }
        if expiry.is_some() {
            self.xor(b"!!expire!!");
        }
    }

    fn xor_fields(&mut self, hash: HashRef<'_>) {
        for (field, value, at) in hash.iter_timed() {
            let mut element = Digest::default();
            element.mix(&field);
            element.mix(&value);
            if at.is_some() {
                element.xor(b"!!hexpire!!");
            }
            self.xor(&element.0);
        }
    }

    fn mix_entries(&mut self, stream: &Stream) {
        for entry in stream.range(StreamId::MIN, StreamId::MAX) {
            self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
            for (name, value) in entry.fields() {
                self.mix_member(name);
                self.mix_member(value);
            }
        }
    }

    fn mix_member(&mut self, member: Scalar<'_>) {
        match member {
            Scalar::Bytes(bytes) => self.mix(bytes),
            Scalar::Int(number) => self.mix(itoa::Buffer::new().format(number).as_bytes()),
        }
    }
}

/// Redis's number of a type. Series, which Redis does not have, follow its last one.
// Source: Redis 7.2 `server.h`, `OBJ_STRING`
fn type_number(value: Value<'_>) -> u32 {
    match value {
        Value::String(_) => 0,
        Value::List(_) => 1,
        Value::Set(_) => 2,
        Value::ZSet(_) => 3,
        Value::Hash(_) => 4,
        Value::Stream(_) => 6,
        Value::Series(_) => 7,
    }
}

/// A score as C's `%.17g` writes it.
fn score_text(score: f64) -> Vec<u8> {
    const DIGITS: i32 = 17;
    if score.is_infinite() {
        return if score > 0.0 { b"inf".into() } else { b"-inf".into() };
    }
    let scientific = format!("{score:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if !(-4..DIGITS).contains(&exponent) {
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs()).into_bytes();
    }
    let decimals = usize::try_from(DIGITS - 1 - exponent).expect("an exponent below the digits");
    let text = format!("{score:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.as_bytes().into()
}

/// Cost of a value, in elements.
fn cost(value: Value<'_>) -> usize {
    match value {
        Value::String(bytes) => HASH_COST + bytes.len() / HASHED_BYTES,
        collection => HASH_COST.saturating_mul(1 + collection.len()),
    }
}

pub(super) const DIGEST: Command = Command {
    name: "digest",
    summary: "Returns a digest of all data, which equals that of a Redis with the same data. Other \
              clients are served meanwhile: pause writes to compare servers.",
    since: "1.0.0",
    complexity: "O(N) in the size of all data",
    group: Group::Server,
    arity: 2,
    flags: ADMIN.and(Flags::LOCKS_STRIPES),
    run: reply_digest,
    ..Command::EMPTY
};

/// Locks one stripe after the other, so that each is digested at a moment of its own.
fn reply_digest(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    check_allowed(cx)?;
    let mut databases = Databases::default();
    if cx.locked.is_all() {
        databases.add(cx, &cx.locked)?;
        cx.reply.simple(&databases.finish());
        return Ok(());
    }
    debug_assert!(!cx.in_exec, "transactions lock all keys for it");
    let (keyspace, params) = (&cx.shared.keyspace, cx.locked.params());
    let is_patient = cx.reactor.runs_long_requests;
    let mut gate = Gate::OPEN;
    for stripe in 0..STRIPES {
        if cx.shared.long_requests.is_over() {
            return Err(Fail::text("ERR the server is stopping"));
        }
        let locked = keyspace.lock_stripe_unless(stripe, params, |waited_ns| {
            !is_patient && cx.reactor.patience(&cx.shared.running_scripts)(waited_ns)
        });
        let Some(locked) = locked else {
            cx.reactor.is_contended = true;
            return Ok(());
        };
        databases.add(cx, &locked)?;
        gate = gate.max(Gate::of_all(&locked));
    }
    cx.reply.simple(&databases.finish());
    cx.note_gate(gate);
    Ok(())
}

/// Digests of the databases.
#[derive(Debug, Default)]
struct Databases {
    keys: [Digest; DATABASES],
    has_keys: [bool; DATABASES],
}

impl Databases {
    /// Adds the keys of locked stripes, whose order does not matter.
    fn add(&mut self, cx: &CommandContext<'_>, locked: &Locked<'_>) -> Done {
        let mut spent = Ok(());
        locked.for_each_value(|db, name, value, expiry| {
            if spent.is_ok() {
                spent = cx.spend_time(cost(value));
            }
            if spent.is_ok() {
                let mut key = Digest::default();
                key.mix(name);
                key.mix_value(value, expiry);
                self.keys[usize::from(db)].xor(&key.0);
            }
        });
        for (db, has_keys) in (0u8..).zip(&mut self.has_keys) {
            *has_keys |= !locked.is_empty(db);
        }
        spent
    }

    /// The number of a database is mixed in before its keys.
    fn finish(&self) -> String {
        let mut all = Digest::default();
        for (db, (keys, has_keys)) in (0u32..).zip(self.keys.iter().zip(&self.has_keys)) {
            if *has_keys {
                all.mix(&db.to_be_bytes());
                all.0.iter_mut().zip(keys.0).for_each(|(byte, other)| *byte ^= other);
            }
        }
        hex(&all.0)
    }
}

pub(super) const DIGEST_VALUE: Command = Command {
    name: "digest-value",
    syntax: "key [key ...]",
    summary: "Returns a digest of each of the values, which equals that of Redis.",
    since: "1.0.0",
    complexity: "O(N) in the size of the values",
    group: Group::Server,
    arity: -3,
    flags: ADMIN,
    keys: &[KeySpec::range(2, -1, 1, KeyAccess::Probe)],
    run: digest_value,
    ..Command::EMPTY
};

fn digest_value(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    cx.reply.array(args.len() - 2);
    for name in args.iter().skip(2) {
        let key = cx.key(name);
        let mut digest = Digest::default();
        if let Some(value) = cx.locked.peek(cx.db, key) {
            cx.spend_time(cost(value))?;
            digest.mix_value(value, cx.locked.expiry(cx.db, key).flatten());
        }
        cx.reply.simple(&hex(&digest.0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_written_as_by_c() {
        // Replies of printf with `%.17g`.
        for (score, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (3.0e300, "3.0000000000000002e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(score_text(score), text.as_bytes(), "{score}");
        }
    }
}
