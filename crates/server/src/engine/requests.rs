//! All request kinds of all protocols, numbered for counters and timers.

use crate::protocol::ClientProtocol;

/// Number of a request kind, dense from 0: RESP commands, then CQL requests, then HTTP routes.
pub(crate) type RequestId = u16;

/// Request kinds. Each protocol numbers its own from 0.
#[derive(Debug)]
pub(crate) struct RequestKinds {
    names: Vec<&'static str>,
    /// The number of each protocol's first kind, in the order of [`ClientProtocol::ALL`].
    starts: [usize; ClientProtocol::ALL.len()],
}

impl RequestKinds {
    /// `names`: names of each protocol's kinds, in the order of [`ClientProtocol::ALL`].
    pub(crate) fn new(names: [Vec<&'static str>; ClientProtocol::ALL.len()]) -> RequestKinds {
        let mut all = Vec::new();
        let starts = names.map(|names| {
            let start = all.len();
            all.extend(names);
            start
        });
        assert!(RequestId::try_from(all.len()).is_ok(), "fewer than 65,536 kinds of requests");
        RequestKinds { names: all, starts }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the number of one of a protocol's kinds.
    #[inline]
    pub(crate) fn id(&self, protocol: ClientProtocol, number: usize) -> RequestId {
        let id = self.starts[protocol as usize] + number;
        debug_assert!(id < self.names.len());
        #[expect(clippy::cast_possible_truncation, reason = "checked by `new`")]
        let id = id as RequestId;
        id
    }

    /// Returns the name of a kind in INFO.
    pub(crate) fn name(&self, id: usize) -> &'static str {
        self.names[id]
    }

    /// Returns the protocol that a request counts for. Commands that arrive by HTTP and CQL also
    /// count for RESP.
    pub(crate) fn protocol(&self, id: usize) -> ClientProtocol {
        let has_begun = |protocol: &&ClientProtocol| self.starts[**protocol as usize] <= id;
        *ClientProtocol::ALL.iter().rfind(has_begun).expect("the first one starts at 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_protocols_belong_together() {
        let kinds = RequestKinds::new(ClientProtocol::ALL.map(|one| vec![one.name(), "other"]));
        assert_eq!(kinds.len(), 2 * ClientProtocol::ALL.len());
        for (index, protocol) in ClientProtocol::ALL.into_iter().enumerate() {
            for (number, name) in [(0, protocol.name()), (1, "other")] {
                let id = usize::from(kinds.id(protocol, number));
                assert_eq!((id, kinds.name(id)), (2 * index + number, name));
                assert_eq!(kinds.protocol(id), protocol);
            }
        }
    }
}
