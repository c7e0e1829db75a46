//! The values of all options of a program.

/// Declares a struct with a field per option, and its defaults. The fields are as visible as the
/// struct.
#[macro_export]
macro_rules! settings {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)+
    }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$doc])* $vis $field: $type,)+ }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    };
}
