//! The protocol's notation: the encoding of numbers, strings and lists in a body.

use super::limits::{MalformedBody, TooLong};

type Result<T> = std::result::Result<T, MalformedBody>;
/// The result of appending: an error leaves the message incomplete.
pub type Encoded = std::result::Result<(), TooLong>;

/// Names and their values; a null value is `None`.
pub type BytesMap<'a> = Vec<(&'a str, Option<&'a [u8]>)>;

/// A position in a body. All values are borrowed from the body.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// A value of a statement or of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    /// The current value is kept (version 4 on).
    Unset,
    Bytes(&'a [u8]),
}

// Source: native_protocol_v5.spec 3 "Notations"
impl<'a> Reader<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Reader { rest: body }
    }

    /// The unread part.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Fails unless the body has been read to its end.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(MalformedBody::Trailing(self.rest.len())) }
    }

    pub fn raw(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(MalformedBody::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(MalformedBody::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// `[byte]`
    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// `[short]`
    pub fn short(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// `[int]`
    pub fn int(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// `[long]`
    pub fn long(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// `[uuid]`
    pub fn uuid(&mut self) -> Result<[u8; 16]> {
        self.array()
    }

    /// `[string]`
    pub fn string(&mut self) -> Result<&'a str> {
        let bytes = self.short()?;
        text(self.raw(usize::from(bytes))?)
    }

    /// `[long string]`
    pub fn long_string(&mut self) -> Result<&'a str> {
        let bytes = length(self.int()?)?;
        text(self.raw(bytes)?)
    }

    /// `[bytes]`; null if the length is negative.
    pub fn bytes(&mut self) -> Result<Option<&'a [u8]>> {
        match self.int()? {
            ..0 => Ok(None),
            count => Ok(Some(self.raw(length(count)?)?)),
        }
    }

    /// `[short bytes]`
    pub fn short_bytes(&mut self) -> Result<&'a [u8]> {
        let bytes = self.short()?;
        self.raw(usize::from(bytes))
    }

    /// `[value]`
    pub fn value(&mut self) -> Result<Value<'a>> {
        match self.int()? {
            -1 => Ok(Value::Null),
            -2 => Ok(Value::Unset),
            count => Ok(Value::Bytes(self.raw(length(count)?)?)),
        }
    }

    /// `[string list]`
    pub fn string_list(&mut self) -> Result<Vec<&'a str>> {
        let count = self.short()?;
        (0..count).map(|_| self.string()).collect()
    }

    /// `[string map]`, in the order of arrival.
    pub fn string_map(&mut self) -> Result<Vec<(&'a str, &'a str)>> {
        let count = self.short()?;
        (0..count).map(|_| Ok((self.string()?, self.string()?))).collect()
    }

    /// `[string multimap]`
    pub fn string_multimap(&mut self) -> Result<Vec<(&'a str, Vec<&'a str>)>> {
        let count = self.short()?;
        (0..count).map(|_| Ok((self.string()?, self.string_list()?))).collect()
    }

    /// `[bytes map]`
    pub fn bytes_map(&mut self) -> Result<BytesMap<'a>> {
        let count = self.short()?;
        (0..count).map(|_| Ok((self.string()?, self.bytes()?))).collect()
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| MalformedBody::InvalidUtf8)
}

fn length(count: i32) -> Result<usize> {
    usize::try_from(count).map_err(|_| MalformedBody::NegativeLength)
}

/// Appends the protocol's notation to a buffer.
///
/// Fails for a string, list or value that does not fit its length field; bytes appended before
/// remain, and the caller removes them.
pub trait Notation {
    fn put(&mut self, bytes: &[u8]);

    fn put_byte(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_short(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn put_int(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    fn put_long(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    /// The length of a list, of a map, or of a string of up to 65,535 bytes.
    fn put_short_count(&mut self, count: usize) -> Encoded {
        self.put_short(u16::try_from(count).map_err(|_| TooLong { count, bits: 16 })?);
        Ok(())
    }

    fn put_count(&mut self, count: usize) -> Encoded {
        self.put_int(i32::try_from(count).map_err(|_| TooLong { count, bits: 31 })?);
        Ok(())
    }

    fn put_string(&mut self, text: &str) -> Encoded {
        self.put_short_bytes(text.as_bytes())
    }

    fn put_long_string(&mut self, text: &str) -> Encoded {
        self.put_bytes(text.as_bytes())
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Encoded {
        self.put_count(bytes.len())?;
        self.put(bytes);
        Ok(())
    }

    fn put_short_bytes(&mut self, bytes: &[u8]) -> Encoded {
        self.put_short_count(bytes.len())?;
        self.put(bytes);
        Ok(())
    }

    fn put_value(&mut self, value: Value<'_>) -> Encoded {
        match value {
            Value::Null => self.put_int(-1),
            Value::Unset => self.put_int(-2),
            Value::Bytes(bytes) => self.put_bytes(bytes)?,
        }
        Ok(())
    }

    fn put_string_list(&mut self, list: &[&str]) -> Encoded {
        self.put_short_count(list.len())?;
        list.iter().try_for_each(|text| self.put_string(text))
    }

    fn put_string_map(&mut self, map: &[(&str, &str)]) -> Encoded {
        self.put_short_count(map.len())?;
        map.iter().try_for_each(|(key, value)| {
            self.put_string(key)?;
            self.put_string(value)
        })
    }

    fn put_string_multimap(&mut self, map: &[(&str, &[&str])]) -> Encoded {
        self.put_short_count(map.len())?;
        map.iter().try_for_each(|(key, values)| {
            self.put_string(key)?;
            self.put_string_list(values)
        })
    }

    fn put_bytes_map(&mut self, map: &[(&str, Option<&[u8]>)]) -> Encoded {
        self.put_short_count(map.len())?;
        map.iter().try_for_each(|(key, value)| {
            self.put_string(key)?;
            self.put_value(value.map_or(Value::Null, Value::Bytes))
        })
    }
}

impl Notation for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_back() {
        let mut body = Vec::new();
        body.put_byte(7);
        body.put_short(65_535);
        body.put_int(-5);
        body.put_long(i64::MIN);
        body.put_string("häufig").unwrap();
        body.put_long_string("long").unwrap();
        body.put_bytes(b"").unwrap();
        body.put_value(Value::Null).unwrap();
        body.put_value(Value::Unset).unwrap();
        body.put_value(Value::Bytes(b"v")).unwrap();
        body.put_string_list(&["a", ""]).unwrap();
        body.put_string_multimap(&[("k", &["1", "2"])]).unwrap();
        body.put_bytes_map(&[("p", None), ("q", Some(b"x"))]).unwrap();
        let mut reader = Reader::new(&body);
        assert_eq!(reader.byte(), Ok(7));
        assert_eq!(reader.short(), Ok(65_535));
        assert_eq!(reader.int(), Ok(-5));
        assert_eq!(reader.long(), Ok(i64::MIN));
        assert_eq!(reader.string(), Ok("häufig"));
        assert_eq!(reader.long_string(), Ok("long"));
        assert_eq!(reader.bytes(), Ok(Some(&b""[..])));
        assert_eq!(reader.value(), Ok(Value::Null));
        assert_eq!(reader.value(), Ok(Value::Unset));
        assert_eq!(reader.value(), Ok(Value::Bytes(b"v")));
        assert_eq!(reader.string_list(), Ok(vec!["a", ""]));
        assert_eq!(reader.string_multimap(), Ok(vec![("k", vec!["1", "2"])]));
        assert_eq!(reader.bytes_map(), Ok(vec![("p", None), ("q", Some(&b"x"[..]))]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn false_lengths_are_found() {
        assert_eq!(Reader::new(&[0, 5, b'a']).string(), Err(MalformedBody::Truncated));
        assert_eq!(Reader::new(&[0, 1, 0xff]).string(), Err(MalformedBody::InvalidUtf8));
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xf0]).long_string(),
            Err(MalformedBody::NegativeLength)
        );
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xf0]).value(),
            Err(MalformedBody::NegativeLength)
        );
        assert_eq!(Reader::new(&[0x7f, 0xff, 0xff, 0xff]).bytes(), Err(MalformedBody::Truncated));
        assert_eq!(Reader::new(&[0xff, 0xff]).string_list(), Err(MalformedBody::Truncated));
        assert_eq!(Reader::new(b"xy").finish(), Err(MalformedBody::Trailing(2)));
    }

    #[test]
    fn values_too_long_for_their_length_field_are_rejected() {
        let long = "x".repeat(usize::from(u16::MAX));
        let longer = "x".repeat(usize::from(u16::MAX) + 1);
        let mut body = Vec::new();
        assert_eq!(body.put_string(&long), Ok(()));
        let refused = Err(TooLong { count: 65_536, bits: 16 });
        assert_eq!(body.put_string(&longer), refused);
        assert_eq!(body.put_short_bytes(longer.as_bytes()), refused);
        assert_eq!(body.put_long_string(&longer), Ok(()));
        let list = vec![""; usize::from(u16::MAX) + 1];
        assert_eq!(body.put_string_list(&list[1..]), Ok(()));
        assert_eq!(body.put_string_list(&list), refused);
        assert_eq!(body.put_string_list(&["", &longer]), refused);
        assert_eq!(body.put_string_map(&[("", &longer)]), refused);
        assert_eq!(body.put_string_multimap(&[("", &list)]), refused);
        assert_eq!(body.put_bytes_map(&[(&longer, None)]), refused);
        assert_eq!(body.put_count(i32::MAX as usize), Ok(()));
        let count = i32::MAX as usize + 1;
        assert_eq!(body.put_count(count), Err(TooLong { count, bits: 31 }));
    }
}
