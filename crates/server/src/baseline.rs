//! What CONFIG RESETSTAT remembers: INFO shows how far the counters went since.

use reactor::{AcceptorCounters, Counters, Links};

/// The counters of reactors and acceptor at one moment; the default is the start.
#[derive(Debug, Default)]
pub(crate) struct Baseline {
    reactors: Vec<Counters>,
    acceptor: AcceptorCounters,
}

impl Baseline {
    /// The counters as they are now.
    pub(crate) fn take<M>(links: &Links<M>) -> Baseline {
        Baseline {
            reactors: (0..links.reactors()).map(|index| links.stats(index)).collect(),
            acceptor: links.acceptor_stats().read(),
        }
    }

    /// What one reactor counted since.
    pub(crate) fn reactor<M>(&self, links: &Links<M>, index: usize) -> Counters {
        let earlier = self.reactors.get(index).copied().unwrap_or_default();
        links.stats(index).since(&earlier)
    }

    /// What all reactors counted since.
    pub(crate) fn sum<M>(&self, links: &Links<M>) -> Counters {
        let mut sum = Counters::default();
        (0..links.reactors()).for_each(|index| sum += self.reactor(links, index));
        sum
    }

    /// Connections refused since, for whatever reason.
    pub(crate) fn refused<M>(&self, links: &Links<M>) -> u64 {
        let refused = |counters: &AcceptorCounters| {
            counters.refused_over_limit + counters.refused_no_descriptor
        };
        refused(&links.acceptor_stats().read()) - refused(&self.acceptor)
    }
}
