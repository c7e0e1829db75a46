//! Clients that send the most requests to a reactor, window by window.

use std::cmp::Reverse;

use crate::engine::client_row::ClientRow;

/// Clients listed per reactor.
const CLIENTS_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BusyClient {
    pub(crate) id: u64,
    /// Requests in the last complete window.
    pub(crate) requests: u64,
}

/// Busiest clients of one reactor. All fields but `departed` cover the last complete window.
#[derive(Debug, Default)]
pub(crate) struct BusiestClients {
    /// Requests in the current window by clients that have left.
    departed: u64,
    requests: u64,
    window_ns: u64,
    clients: Vec<BusyClient>,
}

impl BusiestClients {
    /// Records that a client has left the reactor; it may continue on another one.
    pub(crate) fn depart(&mut self, row: &mut ClientRow) {
        self.departed += u64::from(row.take_requests());
    }

    /// Ends a window of the given length. O(n) in clients.
    pub(crate) fn end_window<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r mut ClientRow>,
        window_ns: u64,
    ) {
        self.window_ns = window_ns;
        self.requests = std::mem::take(&mut self.departed);
        self.clients.clear();
        for row in rows {
            let requests = u64::from(row.take_requests());
            self.requests += requests;
            if requests > 0 {
                self.offer(BusyClient { id: row.id, requests });
            }
        }
        self.clients.sort_unstable_by_key(|client| (Reverse(client.requests), client.id));
    }

    fn offer(&mut self, client: BusyClient) {
        if self.clients.len() < CLIENTS_MAX {
            self.clients.push(client);
            return;
        }
        let idlest = self.clients.iter_mut().min_by_key(|known| known.requests);
        let idlest = idlest.expect("the list is full");
        if idlest.requests < client.requests {
            *idlest = client;
        }
    }

    /// Returns the clients, busiest first.
    pub(crate) fn clients(&self) -> &[BusyClient] {
        &self.clients
    }

    /// A client's share of the reactor's requests, in millionths.
    pub(crate) fn share_ppm(&self, client: BusyClient) -> u64 {
        client.requests.saturating_mul(1_000_000) / self.requests.max(1)
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate that is shown rounded")]
    pub(crate) fn requests_per_s(&self, client: BusyClient) -> f64 {
        client.requests as f64 * 1e9 / self.window_ns.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Durability;
    use base::time::MonoNs;
    use reactor::ConnId;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Rows of clients 0, 1, 2 and so on, none of which has run a command.
    fn rows(count: u64) -> Vec<ClientRow> {
        let row = |id| ClientRow::new(ConnId(id), 0, MonoNs::default(), Durability::default());
        (0..count).map(row).collect()
    }

    /// Id, requests per second and share of each client.
    fn busiest(clients: &BusiestClients) -> Vec<(u64, f64, u64)> {
        let of = |client: &BusyClient| {
            (client.id, clients.requests_per_s(*client), clients.share_ppm(*client))
        };
        clients.clients().iter().map(of).collect()
    }

    #[test]
    fn a_window_has_what_came_in_it() {
        let (mut clients, mut rows) = (BusiestClients::default(), rows(3));
        rows[0].commands = 10;
        rows[2].commands = 30;
        assert_eq!(busiest(&clients), []);
        clients.end_window(rows.iter_mut(), 2 * SECOND_NS);
        assert_eq!(busiest(&clients), [(2, 15.0, 750_000), (0, 5.0, 250_000)]);
        rows[0].commands = 14;
        clients.end_window(rows.iter_mut(), SECOND_NS);
        assert_eq!(busiest(&clients), [(0, 4.0, 1_000_000)]);
        clients.end_window(rows.iter_mut(), SECOND_NS);
        assert_eq!(busiest(&clients), []);
    }

    #[test]
    fn requests_of_closed_connections_count() {
        let (mut clients, mut rows) = (BusiestClients::default(), rows(2));
        rows[0].commands = 1;
        rows[1].commands = 3;
        let mut closed = rows.pop().unwrap();
        clients.depart(&mut closed);
        clients.end_window(rows.iter_mut(), SECOND_NS);
        assert_eq!(busiest(&clients), [(0, 1.0, 250_000)]);
        // Another reactor counts only the requests that it serves.
        closed.commands = 4;
        clients.end_window(std::iter::once(&mut closed), SECOND_NS);
        assert_eq!(busiest(&clients), [(1, 1.0, 1_000_000)]);
    }

    #[test]
    fn only_the_busiest_of_many_are_kept() {
        let (mut clients, mut rows) = (BusiestClients::default(), rows(1_000));
        for row in &mut rows {
            row.commands = row.id + 1;
        }
        clients.end_window(rows.iter_mut(), SECOND_NS);
        let ids: Vec<_> = clients.clients().iter().map(|client| client.id).collect();
        assert_eq!(ids, [999, 998, 997, 996, 995, 994, 993, 992]);
    }

    #[test]
    fn counters_beyond_32_bits_have_their_growth() {
        let mut row = rows(1).remove(0);
        row.commands = (7 << 32) - 1;
        assert_eq!(row.take_requests(), u32::MAX);
        row.commands += 3;
        assert_eq!(row.take_requests(), 3);
        assert_eq!(row.take_requests(), 0);
    }
}
