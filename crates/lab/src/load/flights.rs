//! Requests in flight on one connection.

use std::collections::VecDeque;

/// Streams of one CQL connection: non-negative 16-bit numbers.
// Source: native_protocol_v4.spec 2.3 "stream"
pub(crate) const STREAMS_MAX: usize = 32_768;
/// Limit of requests in flight for multiplexed callers of an open loop if replies have no stream.
const ORDERED_MAX: usize = 65_536;

/// Requests that one user sends together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flight {
    /// Outstanding replies.
    pub(crate) left: u32,
    pub(crate) user: u32,
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
}

/// All flights of a connection.
#[derive(Debug)]
pub(crate) enum Flights {
    /// In the order of their replies.
    Ordered(VecDeque<Flight>),
    /// Replies arrive in any order and carry the stream of their request.
    Streams(Streams),
}

impl Flights {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Flights::Ordered(flights) => flights.is_empty(),
            Flights::Streams(streams) => streams.in_use() == 0,
        }
    }

    /// Whether an open loop must wait for replies.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Flights::Ordered(flights) => flights.len() >= ORDERED_MAX,
            Flights::Streams(streams) => streams.in_use() >= STREAMS_MAX,
        }
    }

    /// Number of requests without a reply.
    pub(crate) fn requests(&self) -> u64 {
        self.list().map(|flight| u64::from(flight.left)).sum()
    }

    /// Flights with outstanding replies.
    pub(crate) fn list(&self) -> impl Iterator<Item = &Flight> {
        let (ordered, streams) = match self {
            Flights::Ordered(flights) => (Some(flights), None),
            Flights::Streams(streams) => (None, Some(&streams.flights)),
        };
        let all = ordered.into_iter().flatten().chain(streams.into_iter().flatten());
        all.filter(|flight| flight.left > 0)
    }
}

/// Requests by stream. Memory grows to the maximum ever in flight.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// The flight of each stream.
    of_stream: Vec<Place>,
    /// Unused streams; the most recently used is reused first.
    free: Vec<u16>,
    flights: Vec<Flight>,
    free_places: Vec<u16>,
}

/// Index of a stream's flight; `None` while the stream is free.
type Place = Option<u16>;

impl Streams {
    pub(crate) fn in_use(&self) -> usize {
        self.of_stream.len() - self.free.len()
    }

    /// Assigns a stream to each request of a flight, and passes it to `send`.
    ///
    /// The caller ensures that enough are available: at most [`STREAMS_MAX`] are in use.
    pub(crate) fn launch(&mut self, flight: Flight, mut send: impl FnMut(u16)) {
        let place = self.place(flight);
        for _ in 0..flight.left {
            let stream = self.free.pop().unwrap_or_else(|| {
                let next = u16::try_from(self.of_stream.len()).unwrap_or(u16::MAX);
                assert!(usize::from(next) < STREAMS_MAX, "more requests than streams");
                self.of_stream.push(None);
                next
            });
            self.of_stream[usize::from(stream)] = Some(place);
            send(stream);
        }
    }

    fn place(&mut self, flight: Flight) -> u16 {
        if let Some(place) = self.free_places.pop() {
            self.flights[usize::from(place)] = flight;
            return place;
        }
        self.flights.push(flight);
        // A flight has at least one stream.
        u16::try_from(self.flights.len() - 1).expect("there are no more flights than streams")
    }

    /// Handles a reply on this stream and returns its updated flight. `None` if the reply is
    /// unsolicited.
    pub(crate) fn land(&mut self, stream: u16) -> Option<Flight> {
        let place = self.of_stream.get_mut(usize::from(stream))?.take()?;
        self.free.push(stream);
        let flight = &mut self.flights[usize::from(place)];
        flight.left -= 1;
        if flight.left == 0 {
            self.free_places.push(place);
        }
        Some(*flight)
    }

    /// Whether a request is in flight on this stream.
    pub(crate) fn has(&self, stream: u16) -> bool {
        self.of_stream.get(usize::from(stream)).is_some_and(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flight(left: u32, user: u32) -> Flight {
        Flight { left, user, due_ns: 7, sent_ns: 9 }
    }

    #[test]
    fn all_streams_can_be_on_their_way() {
        let mut flights = Flights::Streams(Streams::default());
        let Flights::Streams(streams) = &mut flights else { unreachable!() };
        let mut used = Vec::new();
        streams.launch(flight(32_768, 1), |stream| used.push(stream));
        assert_eq!(used, (0..32_768).collect::<Vec<u16>>());
        assert_eq!((flights.is_full(), flights.requests()), (true, 32_768));
        let Flights::Streams(streams) = &mut flights else { unreachable!() };
        assert_eq!(streams.land(32_767).unwrap().left, 32_767);
        assert_eq!(streams.land(32_767), None);
        assert_eq!(streams.land(40_000), None);
        assert!(!flights.is_full() && !flights.is_empty());
    }

    proptest! {
        /// The model is a list of (stream, user) in flight.
        #[test]
        fn every_reply_finds_its_flight(
            steps in prop::collection::vec((1_u32..5, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut flights = Flights::Streams(Streams::default());
            let mut in_flight: Vec<(u16, u32)> = Vec::new();
            for (user, (count, index)) in (0_u32..).zip(steps) {
                let Flights::Streams(streams) = &mut flights else { unreachable!() };
                streams.launch(flight(count, user), |stream| {
                    assert!(in_flight.iter().all(|(used, _)| *used != stream));
                    in_flight.push((stream, user));
                });
                for _ in 0..index.index(4) {
                    if in_flight.is_empty() {
                        continue;
                    }
                    let (stream, user) = in_flight.swap_remove(index.index(in_flight.len()));
                    let landed = streams.land(stream).unwrap();
                    let left = in_flight.iter().filter(|(_, other)| *other == user).count();
                    prop_assert_eq!((landed.user, landed.left as usize), (user, left));
                    prop_assert!(!streams.has(stream));
                }
                prop_assert_eq!(flights.requests(), in_flight.len() as u64);
                prop_assert_eq!(flights.is_empty(), in_flight.is_empty());
            }
        }
    }
}
