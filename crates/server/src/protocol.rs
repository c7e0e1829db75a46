//! Client protocols that the server supports.

/// Defines the protocols, their names, and what a connection above `maxclients` is sent.
macro_rules! protocols {
    ($($variant:ident = $name:literal, $refusal:expr;)+) => {
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

protocols! {
    // Source: Redis 7.2 `networking.c`, `acceptCommonHandler`
    Resp = "resp", b"-ERR max number of clients reached\r\n";
    // The client has not sent a request, so there is no stream ID to answer on.
    Cql = "cql", b"";
    Http = "http", b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
                     Retry-After: 1\r\nConnection: close\r\n\r\n";
}
