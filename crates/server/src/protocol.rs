//! Client protocols that the server supports.

/// Protocol of a client connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    Resp,
    Cql,
    Http,
}

impl ClientProtocol {
    pub(crate) const ALL: [ClientProtocol; 3] =
        [ClientProtocol::Resp, ClientProtocol::Cql, ClientProtocol::Http];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ClientProtocol::Resp => "resp",
            ClientProtocol::Cql => "cql",
            ClientProtocol::Http => "http",
        }
    }
}
