//! The value that a driver returns with an event.

/// Position in the table and the generation of the slot there, so that an event for a connection
/// that is gone does not reach its successor. The kernel returns it with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    pub(crate) fn new(index: u32, generation: u32) -> Token {
        Token(u64::from(generation) << 32 | u64::from(index))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half of the 64 bits")]
    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
