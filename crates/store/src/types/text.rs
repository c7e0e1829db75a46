//! Strings and elements as they are stored, and their bytes.

use std::ops::Deref;

/// Longest text of an `i64`: "-9223372036854775808".
pub(crate) const INTEGER_TEXT_BYTES_MAX: usize = 20;

/// A string or an element as it is stored.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub enum Scalar<'a> {
    Bytes(&'a [u8]),
    /// Its bytes are the decimal text of this number.
    Int(i64),
}

impl Scalar<'_> {
    /// The bytes, in `buffer` if they must be made.
    pub fn as_bytes<'b>(&'b self, buffer: &'b mut itoa::Buffer) -> &'b [u8] {
        match self {
            Scalar::Bytes(bytes) => bytes,
            Scalar::Int(number) => buffer.format(*number).as_bytes(),
        }
    }

    /// Calls `f` with the bytes.
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self.as_bytes(&mut itoa::Buffer::new()))
    }
}

/// The number whose decimal text is exactly these bytes: no sign but a minus, no leading zeros.
pub(crate) fn canonical_integer(bytes: &[u8]) -> Option<i64> {
    if bytes.is_empty() || bytes.len() > INTEGER_TEXT_BYTES_MAX {
        return None;
    }
    let (first, second) = match bytes {
        [b'-', first, ..] => (*first, 2),
        [first, ..] => (*first, 1),
        [] => return None,
    };
    let is_canonical = match first {
        b'0' => bytes == b"0",
        b'1'..=b'9' => bytes[second..].iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_canonical {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The bytes of a string or of an element of a collection. Dereferences to them.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    form: Form<'a>,
}

#[derive(Clone, Copy)]
enum Form<'a> {
    Stored(&'a [u8]),
    Rendered { digits: [u8; INTEGER_TEXT_BYTES_MAX], len: u8 },
}

impl<'a> Text<'a> {
    /// The bytes, for a caller that keeps them.
    pub fn into_cow(self) -> std::borrow::Cow<'a, [u8]> {
        match self.form {
            Form::Stored(bytes) => bytes.into(),
            Form::Rendered { .. } => self.to_vec().into(),
        }
    }
}

impl Default for Text<'_> {
    #[inline]
    fn default() -> Self {
        Text { form: Form::Stored(&[]) }
    }
}

impl<'a> From<&'a [u8]> for Text<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Text<'a> {
        Text { form: Form::Stored(bytes) }
    }
}

impl<'a> From<Scalar<'a>> for Text<'a> {
    #[inline]
    fn from(scalar: Scalar<'a>) -> Text<'a> {
        match scalar {
            Scalar::Bytes(bytes) => Text::from(bytes),
            Scalar::Int(number) => {
                let mut buffer = itoa::Buffer::new();
                let text = buffer.format(number).as_bytes();
                let mut digits = [0; INTEGER_TEXT_BYTES_MAX];
                digits[..text.len()].copy_from_slice(text);
                let len = u8::try_from(text.len()).expect("a number has at most 20 characters");
                Text { form: Form::Rendered { digits, len } }
            }
        }
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.form {
            Form::Stored(bytes) => bytes,
            Form::Rendered { digits, len } => &digits[..usize::from(*len)],
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Text<'_>) -> bool {
        **self == **other
    }
}

impl PartialEq<&[u8]> for Text<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
