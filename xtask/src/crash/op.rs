//! Requests of clients: one operation, and one step (which is applied completely or not at all).

use super::Bytes;
use crate::resp::request;

/// A write or a read of the keys that one client owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Set { key: Bytes, value: Bytes },
    Get { key: Bytes },
    StrLen { key: Bytes },
    Del { keys: Vec<Bytes> },
    Append { key: Bytes, value: Bytes },
    Incr { key: Bytes },
    HSet { key: Bytes, fields: Vec<(Bytes, Bytes)> },
    HDel { key: Bytes, fields: Vec<Bytes> },
    LPush { key: Bytes, elements: Vec<Bytes> },
    RPop { key: Bytes },
    SAdd { key: Bytes, members: Vec<Bytes> },
    SRem { key: Bytes, members: Vec<Bytes> },
    ZAdd { key: Bytes, members: Vec<(Bytes, i64)> },
    ZIncrBy { key: Bytes, member: Bytes, by: i64 },
    ExpireAt { key: Bytes, seconds: u64 },
    Persist { key: Bytes },
    MSet { pairs: Vec<(Bytes, Bytes)> },
    Rename { from: Bytes, to: Bytes },
    FlushDb,
}

/// One entry of a client's history: after a crash it is complete or absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Single(Op),
    /// MULTI, the operations, EXEC.
    Transaction(Vec<Op>),
    /// INCR of a counter that all clients share.
    Share(usize),
}

impl Op {
    /// The request's arguments, its name first.
    pub(crate) fn args(&self) -> Vec<Bytes> {
        let (name, args): (&str, Vec<Bytes>) = match self {
            Self::Set { key, value } => ("SET", vec![key.clone(), value.clone()]),
            Self::Get { key } => ("GET", vec![key.clone()]),
            Self::StrLen { key } => ("STRLEN", vec![key.clone()]),
            Self::Del { keys } => ("DEL", keys.clone()),
            Self::Append { key, value } => ("APPEND", vec![key.clone(), value.clone()]),
            Self::Incr { key } => ("INCR", vec![key.clone()]),
            Self::HSet { key, fields } => ("HSET", with_key(key, flatten(fields))),
            Self::HDel { key, fields } => ("HDEL", with_key(key, fields.clone())),
            Self::LPush { key, elements } => ("LPUSH", with_key(key, elements.clone())),
            Self::RPop { key } => ("RPOP", vec![key.clone()]),
            Self::SAdd { key, members } => ("SADD", with_key(key, members.clone())),
            Self::SRem { key, members } => ("SREM", with_key(key, members.clone())),
            Self::ZAdd { key, members } => {
                let scores = members
                    .iter()
                    .flat_map(|(member, score)| [score.to_string().into_bytes(), member.clone()]);
                ("ZADD", with_key(key, scores.collect()))
            }
            Self::ZIncrBy { key, member, by } => {
                ("ZINCRBY", vec![key.clone(), by.to_string().into_bytes(), member.clone()])
            }
            Self::ExpireAt { key, seconds } => {
                ("EXPIREAT", vec![key.clone(), seconds.to_string().into_bytes()])
            }
            Self::Persist { key } => ("PERSIST", vec![key.clone()]),
            Self::MSet { pairs } => ("MSET", flatten(pairs)),
            Self::Rename { from, to } => ("RENAME", vec![from.clone(), to.clone()]),
            Self::FlushDb => ("FLUSHDB", Vec::new()),
        };
        with_key(name.as_bytes(), args)
    }
}

impl Step {
    /// Appends the step's requests.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Single(op) => out.extend(request(&op.args())),
            Self::Transaction(ops) => {
                out.extend(request(&[b"MULTI"]));
                for op in ops {
                    out.extend(request(&op.args()));
                }
                out.extend(request(&[b"EXEC"]));
            }
            Self::Share(counter) => out.extend(request(&[b"INCR".to_vec(), counter_key(*counter)])),
        }
    }
}

/// The key of shared counter `counter`.
pub(crate) fn counter_key(counter: usize) -> Bytes {
    format!("shared:{counter}").into_bytes()
}

fn with_key(key: &[u8], args: Vec<Bytes>) -> Vec<Bytes> {
    std::iter::once(key.to_vec()).chain(args).collect()
}

fn flatten(pairs: &[(Bytes, Bytes)]) -> Vec<Bytes> {
    pairs.iter().flat_map(|(first, second)| [first.clone(), second.clone()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_bracketed() {
        let mut out = Vec::new();
        Step::Transaction(vec![Op::Get { key: b"k".to_vec() }]).encode(&mut out);
        let expected = "*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(out.escape_ascii().to_string(), expected.escape_default().to_string());
    }

    #[test]
    fn scores_stand_before_their_members() {
        let op = Op::ZAdd { key: b"z".to_vec(), members: vec![(b"m".to_vec(), -3)] };
        assert_eq!(op.args(), [b"ZADD".to_vec(), b"z".to_vec(), b"-3".to_vec(), b"m".to_vec()]);
    }
}
