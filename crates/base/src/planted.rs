//! Off-by-one errors that a test plants, to prove that its checks find them.
//!
//! Only the feature `planted`, which tests enable, compiles them in. Without it [`shifted`] returns
//! its argument, and the compiler removes the call.

/// An error: the value at the place with this name is wrong by `delta`.
#[cfg(feature = "planted")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planted {
    pub place: &'static str,
    pub delta: i64,
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Plants an error in what the calling thread runs from now on; `None` removes it.
#[cfg(feature = "planted")]
pub fn plant(error: Option<Planted>) {
    PLANTED.set(error);
}

/// The value at a place: `value` itself, unless an error is planted there.
#[cfg(feature = "planted")]
#[must_use]
pub fn shifted(place: &'static str, value: u64) -> u64 {
    match PLANTED.get() {
        Some(error) if error.place == place => value.saturating_add_signed(error.delta),
        _ => value,
    }
}

/// The value at a place: `value` itself.
#[cfg(not(feature = "planted"))]
#[inline]
#[must_use]
pub const fn shifted(_place: &'static str, value: u64) -> u64 {
    value
}
