//! The memory of requests and responses in progress: a bound for all connections of a worker.
//!
//! Each request and each response has limits of its own, and a client may have many of them. When
//! the buffers of all clients exceed the bound, the address with the largest share loses its least
//! recently active connections. So a client with thousands of unfinished bodies or unread responses
//! harms only itself.

use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use base::time::MonoNs;
use foldhash::fast::RandomState;
use reactor::{ConnId, Connections, Context};

use super::client::{ResponseOptions, Wait};
use super::disk::Mail;
use super::server::{Server, Session};
use crate::config::Config;

/// Requests up to this length are forwarded in any case: their number is limited, and clients with
/// small requests do not pay for large bodies.
const SMALL_REQUEST_BYTES: usize = 16 << 10;
/// The bound is at least this many bodies of the maximum length.
const BODIES_MIN: usize = 4;

/// Accounting of one worker.
///
/// The buffers are measured only when they may have grown by a quarter of the bound, and once per
/// sweep: a measurement visits all connections, and a request only adds to `grown_bytes`.
#[derive(Debug)]
pub(super) struct Memory {
    bytes_max: usize,
    /// Upper limit of the growth since the last measurement.
    grown_bytes: usize,
    /// Requests at the upstream and in its queue: at the last measurement, plus those since.
    forwarded_bytes: usize,
}

impl Memory {
    pub(super) fn new(config: &Config) -> Memory {
        let bytes_max = config.memory_max.max(config.body_bytes_max.saturating_mul(BODIES_MIN));
        Memory { bytes_max, grown_bytes: 0, forwarded_bytes: 0 }
    }

    /// Records that buffers may have grown.
    pub(super) fn note_growth(&mut self, bytes: usize) {
        self.grown_bytes = self.grown_bytes.saturating_add(bytes);
    }

    fn must_measure(&self) -> bool {
        self.grown_bytes > self.bytes_max / 4
    }

    /// Whether this turn alone has added so much that unfinished requests must be refused at once.
    pub(super) fn is_exhausted(&self) -> bool {
        self.grown_bytes > self.bytes_max / 2
    }

    /// Admits a request to the upstream. Returns false if it must be refused.
    pub(super) fn admit_request(&mut self, bytes: usize) -> bool {
        let forwarded_bytes = self.forwarded_bytes.saturating_add(bytes);
        if bytes > SMALL_REQUEST_BYTES && forwarded_bytes > self.bytes_max {
            // The next measurement finds what has been sent since the last one.
            self.grown_bytes = self.grown_bytes.max(self.bytes_max / 4 + 1);
            return false;
        }
        self.forwarded_bytes = forwarded_bytes;
        self.note_growth(bytes);
        true
    }
}

/// Makes the allocator return the pages that have been free for its delay: it does so only when a
/// block of pages becomes free, so that an idle worker would keep the memory of its last bodies. This
/// block is not written to, so it takes no memory.
pub(super) fn return_free_memory() {
    /// Longer than the blocks that share pages with others.
    const BLOCK_BYTES: usize = 16 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
}

/// The buffers of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holding {
    client: ConnId,
    bytes: usize,
    last_activity: MonoNs,
}

/// All connections with buffers, by origin.
#[derive(Debug, Default)]
struct Holdings {
    total_bytes: usize,
    by_origin: HashMap<Option<IpAddr>, Vec<Holding>, RandomState>,
}

impl Holdings {
    fn add(&mut self, remote: Option<IpAddr>, holding: Holding) {
        if holding.bytes != 0 {
            self.total_bytes += holding.bytes;
            self.by_origin.entry(remote.map(origin)).or_default().push(holding);
        }
    }

    /// Returns the connections to end so that the rest has at most `bytes_max`: always the least
    /// recently active one of the origin that has the most.
    fn excess(self, bytes_max: usize) -> Vec<ConnId> {
        let mut origins: Vec<Vec<Holding>> = self.by_origin.into_values().collect();
        let mut heap = BinaryHeap::with_capacity(origins.len());
        for (index, holdings) in origins.iter_mut().enumerate() {
            // The last one is taken first.
            holdings.sort_unstable_by_key(|one| std::cmp::Reverse(one.last_activity));
            heap.push((holdings.iter().map(|one| one.bytes).sum::<usize>(), index));
        }
        let (mut total_bytes, mut excess) = (self.total_bytes, Vec::new());
        while total_bytes > bytes_max
            && let Some((bytes, index)) = heap.pop()
            && let Some(oldest) = origins[index].pop()
        {
            total_bytes -= oldest.bytes;
            excess.push(oldest.client);
            heap.push((bytes - oldest.bytes, index));
        }
        excess
    }
}

/// Returns the part of an address that identifies a client: a network of IPv6 addresses usually
/// belongs to one.
fn origin(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            address
                .to_ipv4_mapped()
                .map_or(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)), IpAddr::V4)
        }
    }
}

/// Whether a connection is freed by a response: it has not sent its request completely, and has read
/// all earlier responses. Others would keep their output until the client reads it.
fn can_refuse(wait: Wait, output_bytes: usize) -> bool {
    matches!(wait, Wait::Head | Wait::Body) && output_bytes == 0
}

impl Server {
    /// Measures the buffers if they may have grown much.
    pub(super) fn limit_growth(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if self.memory.must_measure() {
            self.limit_memory(cx, connections);
        }
    }

    /// Measures the buffers, and ends connections if they exceed the bound.
    pub(super) fn limit_memory(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let mut holdings = Holdings::default();
        let mut forwarded_bytes = self.proxy.kept_request_bytes();
        for (info, session) in connections.list() {
            let (client, bytes) = (info.id, info.buffer_bytes);
            let last_activity = info.last_activity;
            match session {
                // Also a connection that is being closed: its output waits for the client.
                Session::Client(one) => {
                    holdings.add(one.remote, Holding { client, bytes, last_activity });
                }
                Session::Upstream(_) => match self.proxy.tunnel_of(info.id) {
                    Some((client, remote)) => {
                        holdings.add(remote, Holding { client, bytes, last_activity });
                    }
                    None => forwarded_bytes += bytes,
                },
            }
        }
        self.memory.grown_bytes = 0;
        self.memory.forwarded_bytes = forwarded_bytes;
        let bytes_max = self.memory.bytes_max;
        if holdings.total_bytes <= bytes_max {
            return;
        }
        // Somewhat less, so that the next bytes do not cause the next measurement.
        for id in holdings.excess(bytes_max - bytes_max / 8) {
            self.end_holder(cx, connections, id);
        }
    }

    /// Ends a connection to free its buffers: 503 if that is possible.
    fn end_holder(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        id: ConnId,
    ) {
        let now = cx.now();
        self.rejections.memory += 1;
        let open = match connections.get_mut(id) {
            Some((Session::Client(client), out)) => Some((client, out)),
            _ => None,
        };
        let refusable = open.filter(|(one, out)| can_refuse(one.wait, out.pending_bytes()));
        let Some((client, out)) = refusable else { return cx.reset(id) };
        client.wait = Wait::End;
        self.site.update_date(now);
        let sent = self.site.words(503, ResponseOptions::REFUSED, out.buffer()).1;
        self.ledger.note_no_request(client.remote, sent, now);
        cx.close(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the connections that are ended, from (number, address, bytes, last activity).
    #[track_caller]
    fn check(held: &[(u64, &str, usize, u64)], bytes_max: usize, expected: &[u64]) {
        let mut holdings = Holdings::default();
        for &(number, address, bytes, active) in held {
            let holding = Holding { client: ConnId(number), bytes, last_activity: MonoNs(active) };
            holdings.add(Some(address.parse().unwrap()), holding);
        }
        let expected: Vec<ConnId> = expected.iter().copied().map(ConnId).collect();
        assert_eq!(holdings.excess(bytes_max), expected, "{held:?}");
    }

    #[test]
    fn the_largest_origin_loses_its_oldest_connections() {
        let held = [
            (1, "10.0.0.1", 100, 1),
            (2, "10.0.0.2", 60, 30),
            (3, "10.0.0.2", 60, 10),
            (4, "10.0.0.2", 60, 20),
        ];
        check(&held, 280, &[]);
        check(&held, 279, &[3]);
        check(&held, 219, &[3, 4]);
        // Now the first address has the most.
        check(&held, 150, &[3, 4, 1]);
        check(&held, 0, &[3, 4, 1, 2]);
        check(&[], 0, &[]);
        check(&[(1, "10.0.0.1", 0, 1)], 0, &[]);
    }

    #[test]
    fn a_network_of_ipv6_addresses_is_one_origin() {
        let held = [
            (1, "2001:db8:0:1::1", 50, 2),
            (2, "2001:db8:0:1:ffff::2", 50, 1),
            (3, "2001:db8:0:2::1", 90, 0),
            (4, "::ffff:10.0.0.1", 40, 0),
            (5, "10.0.0.1", 40, 1),
        ];
        check(&held, 269, &[2]);
        check(&held, 219, &[2, 3]);
        check(&held, 129, &[2, 3, 4]);
    }

    /// A client may send a part of a request while it reads no response.
    #[test]
    fn unread_responses_are_not_kept_for_a_refusal() {
        for wait in [Wait::Head, Wait::Body] {
            assert!(can_refuse(wait, 0) && !can_refuse(wait, 1), "{wait:?}");
        }
        for wait in [Wait::First, Wait::Idle, Wait::Upstream, Wait::Tunnel, Wait::Disk, Wait::Turn]
        {
            assert!(!can_refuse(wait, 0), "{wait:?}");
        }
        assert!(!can_refuse(Wait::End, 0), "it has its last response");
    }

    #[test]
    fn only_large_requests_are_refused() {
        let config = Config { memory_max: 1 << 20, body_bytes_max: 1, ..Config::default() };
        let mut memory = Memory::new(&config);
        assert!(memory.admit_request(1 << 20) && memory.must_measure() && memory.is_exhausted());
        memory.grown_bytes = 0;
        assert!(!memory.admit_request(SMALL_REQUEST_BYTES + 1));
        assert!(memory.must_measure(), "what was sent meanwhile must be found");
        assert!(memory.admit_request(SMALL_REQUEST_BYTES));
    }

    #[test]
    fn a_few_of_the_longest_bodies_are_always_possible() {
        let config = Config { memory_max: 1, body_bytes_max: 100, ..Config::default() };
        assert_eq!(Memory::new(&config).bytes_max, 400);
    }
}
