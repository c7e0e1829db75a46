//! SLOWLOG: the latest commands with a long execution time.

use std::collections::VecDeque;
use std::net::SocketAddr;

use base::time::UnixMs;

use crate::engine::secret::Shown;

/// Maximum arguments, and bytes of each, that an entry keeps.
/// Source: Redis 7.2 `slowlog.h`, `SLOWLOG_ENTRY_MAX_ARGC` and `SLOWLOG_ENTRY_MAX_STRING`.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

#[derive(Debug, Clone)]
pub(crate) struct SlowEntry {
    pub(crate) id: u64,
    pub(crate) at: UnixMs,
    pub(crate) took_us: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) client_name: String,
}

#[derive(Debug, Default)]
pub(crate) struct Slowlog {
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl Slowlog {
    pub(crate) fn push(
        &mut self,
        (remote, client_name): (Option<SocketAddr>, &str),
        at: UnixMs,
        took_us: u64,
        request: Shown<'_>,
        entries_max: usize,
    ) {
        self.entries.push_front(SlowEntry {
            id: self.next_id,
            at,
            took_us,
            args: shortened(request),
            peer: remote.map_or_else(String::new, |peer| peer.to_string()),
            client_name: client_name.to_owned(),
        });
        self.next_id += 1;
        self.entries.truncate(entries_max);
    }

    /// Iterates over the entries, newest first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &SlowEntry> {
        self.entries.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

fn shortened(request: Shown<'_>) -> Vec<Vec<u8>> {
    let kept = if request.len() > ARGS_MAX { ARGS_MAX - 1 } else { request.len() };
    let mut short: Vec<Vec<u8>> = (0..kept)
        .map(|at| {
            let arg = request.get(at);
            let mut text = arg[..arg.len().min(ARG_BYTES_MAX)].to_vec();
            if arg.len() > ARG_BYTES_MAX {
                let more = format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX);
                text.extend_from_slice(more.as_bytes());
            }
            text
        })
        .collect();
    if request.len() > kept {
        short.push(format!("... ({} more arguments)", request.len() - kept).into_bytes());
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    #[test]
    fn long_commands_are_shortened_as_redis_does() {
        let many: OwnedArgs = (0..40).map(|n| n.to_string().into_bytes()).collect();
        let short = shortened(Shown::whole(many.as_args()));
        assert_eq!(short.len(), 32);
        assert_eq!(short[31], b"... (9 more arguments)");
        let long: OwnedArgs = [vec![b'x'; 200]].into_iter().collect();
        let text =
            String::from_utf8(shortened(Shown::whole(long.as_args())).remove(0)).expect("ascii");
        assert!(text.ends_with("... (72 more bytes)"));
    }
}
