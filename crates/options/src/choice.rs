//! Enums whose variants have names in the configuration.

/// Declares an enum whose variants have names in the configuration, in order. The first is the
/// default value of the type.
#[macro_export]
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal $(if $feature:tt)?,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[cfg(feature = $feature)])? $(#[$variant_doc])* $variant,)+
        }

        impl $name {
            pub const ALL: &'static [Self] =
                &[$($(#[cfg(feature = $feature)])? Self::$variant,)+];
            pub const WORDS: &'static [&'static str] =
                &[$($(#[cfg(feature = $feature)])? $word,)+];

            /// Returns the name in the configuration.
            pub fn word(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }
    };
}
