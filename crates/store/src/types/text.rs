//! The bytes of an element, rendered where the element is stored as a number.

use std::ops::Deref;

use super::set::{INTEGER_TEXT_BYTES_MAX, Member};

/// The bytes of an element of a collection. Dereferences to them.
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

impl<'a> From<&'a [u8]> for Text<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Text<'a> {
        Text { form: Form::Stored(bytes) }
    }
}

impl<'a> From<Member<'a>> for Text<'a> {
    #[inline]
    fn from(member: Member<'a>) -> Text<'a> {
        match member {
            Member::Bytes(bytes) => Text::from(bytes),
            Member::Int(number) => {
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
