//! Client protocols that the server supports.

/// Defines the protocols and their names.
macro_rules! protocols {
    ($($variant:ident = $name:literal,)+) => {
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
        }
    };
}

protocols! {
    Resp = "resp",
    Cql = "cql",
    Http = "http",
}
