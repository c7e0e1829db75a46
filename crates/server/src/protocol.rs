//! Client protocols that the server supports.

const HTTP_REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
                              Retry-After: 1\r\nConnection: close\r\n\r\n";

/// The table of protocols: name, session as a connection stores it, and what a connection above
/// `maxclients` is sent.
///
/// This module and the handler each pass the name of a macro that makes their part of it. Here the
/// types of sessions are only words: the handler, which is in a layer above, resolves them.
macro_rules! for_protocols {
    ($define:ident) => {
        $define! {
            // Inline, because every request accesses it.
            // Source: Redis 7.2 `networking.c`, `acceptCommonHandler`
            Resp: "resp", crate::commands::Session, b"-ERR max number of clients reached\r\n";
            // The client has not sent a request, so there is no stream ID to answer on.
            Cql: "cql", Box<crate::cql::Session>, b"";
            Http: "http", Box<crate::http::Session>, HTTP_REFUSAL;
        }
    };
}
pub(crate) use for_protocols;

macro_rules! define_client_protocol {
    ($($variant:ident: $name:literal, $stored:ty, $refusal:expr;)+) => {
        /// Protocol of a client connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum ClientProtocol {
            $($variant,)+
        }

        impl ClientProtocol {
            pub(crate) const ALL: [ClientProtocol; [$($name),+].len()] =
                [$(ClientProtocol::$variant),+];

            pub(crate) fn name(self) -> &'static str {
                [$($name),+][self as usize]
            }

            /// The reply to a connection above `maxclients`.
            pub(crate) fn refusal(self) -> &'static [u8] {
                const REFUSALS: &[&[u8]] = &[$($refusal),+];
                REFUSALS[self as usize]
            }
        }
    };
}

for_protocols!(define_client_protocol);
