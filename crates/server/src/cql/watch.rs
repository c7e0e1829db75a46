//! Reports requests to SLOWLOG and MONITOR, which represent them as RESP words.
//!
//! This costs nothing while no client monitors and no request is slow or large: a request is decoded a
//! second time only if its text is needed.

use wire::cql::{BatchStatement, Header, Request, decode_request, decompress_body};
use wire::resp::OwnedArgs;

use super::requests::Requests;
use super::session::Session;
use crate::engine::command_log::Taken;
use crate::engine::monitor_feeds::RequestSource;
use crate::engine::secret::Shown;
use crate::statements::redaction::without_password;

impl Requests<'_> {
    /// Reports a request that has run.
    #[inline]
    pub(super) fn show(
        &mut self,
        session: &Session,
        (header, body): (&Header, &[u8]),
        ns: u64,
        reply_bytes: usize,
    ) {
        let request_bytes = header.envelope_bytes() as u64;
        let taken = Taken { ns, request_bytes, reply_bytes: reply_bytes as u64 };
        let is_logged = self.reactor.thresholds.are_reached(taken);
        if is_logged || self.shared.is_monitored() {
            self.show_words(session, header, body, is_logged.then_some(taken));
        }
    }

    #[cold]
    fn show_words(
        &mut self,
        session: &Session,
        header: &Header,
        body: &[u8],
        taken: Option<Taken>,
    ) {
        let Ok(body) = decompress_body(header, body, session.compression, &self.limits) else {
            return; // the request was refused for it
        };
        let Ok((request, _)) = decode_request(header, &body) else { return };
        let Some(words) = self.words(&request) else { return };
        // The row of CLIENT LIST identifies the client, so that sessions stay small.
        let published = self.shared.published[self.reactor.index].lock();
        let row = published.clients.get(&session.id.0);
        let remote = row.map(|row| row.remote).unwrap_or_default();
        let name = row.map(|row| row.name.clone()).unwrap_or_default();
        drop(published);
        if let Some(taken) = taken {
            let words = Shown::whole(words.as_args());
            self.shared.note_command((remote, &name), self.now, taken, words);
        }
        if self.shared.is_monitored() {
            self.reactor.feed_monitors(
                &"cql",
                RequestSource::Client(remote),
                self.now,
                Shown::whole(words.as_args()),
            );
        }
    }

    /// The opcode and the statement texts. `None` for a request without a statement.
    fn words(&self, request: &Request<'_>) -> Option<OwnedArgs> {
        let mut words = OwnedArgs::new();
        match request {
            Request::Query { statement, .. } => {
                words.push(b"QUERY");
                words.push(&without_password(statement));
            }
            Request::Prepare { statement, .. } => {
                words.push(b"PREPARE");
                words.push(&without_password(statement));
            }
            Request::Execute { id, .. } => {
                words.push(b"EXECUTE");
                words.push(&self.prepared_text(id));
            }
            Request::Batch(batch) => {
                words.push(b"BATCH");
                for (statement, _) in batch.statements.iter() {
                    match statement {
                        BatchStatement::Text(text) => words.push(&without_password(text)),
                        BatchStatement::Prepared(id) => words.push(&self.prepared_text(id)),
                    }
                }
            }
            Request::Startup(_)
            | Request::Options
            | Request::Register(_)
            | Request::AuthResponse(_) => return None,
        }
        Some(words)
    }

    fn prepared_text(&self, id: &[u8]) -> Vec<u8> {
        let entry = <[u8; 16]>::try_from(id).ok().and_then(|id| self.shared.prepared.find(&id));
        entry.map_or_else(
            || b"(prepared statement is no longer cached)".to_vec(),
            |entry| without_password(&entry.statement.text),
        )
    }
}
