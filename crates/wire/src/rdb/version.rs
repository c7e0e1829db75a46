//! Versions of the format.

/// A version that this program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u16);

/// Newest version of Redis: 7.4 and 8.0.
const REDIS_MAX: u16 = 12;
/// Versions of Valkey since 9.0. 8.1 and before have those of Redis 7.2.
const VALKEY_MIN: u16 = 80;
const VALKEY_MAX: u16 = 81;
/// First version with a checksum at the end of a file.
const CHECKSUM_MIN: u16 = 5;

impl Version {
    /// What this program writes. Source: Redis 7.0 `rdb.h`
    pub const WRITTEN: Version = Version(10);
    /// What it writes if a field of a hash expires. Source: Valkey 9.0 `rdb.h`
    pub const WRITTEN_WITH_TIMES: Version = Version(VALKEY_MIN);

    /// `None`: unknown.
    pub fn of_number(number: u16) -> Option<Version> {
        let is_known = (1..=REDIS_MAX).contains(&number) || Self(number).is_valkey();
        is_known.then_some(Version(number))
    }

    pub fn number(self) -> u16 {
        self.0
    }

    /// Whether types and opcodes that Redis and Valkey define differently are those of Valkey.
    pub fn is_valkey(self) -> bool {
        (VALKEY_MIN..=VALKEY_MAX).contains(&self.0)
    }

    /// The beginning of a file.
    pub(super) fn magic(self) -> String {
        if self.is_valkey() {
            format!("VALKEY{:03}", self.0)
        } else {
            format!("REDIS{:04}", self.0)
        }
    }

    pub(super) fn has_checksum(self) -> bool {
        self.0 >= CHECKSUM_MIN
    }
}
