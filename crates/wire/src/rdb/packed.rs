//! Collections that the file holds as one string: the in-memory forms of small values.

use super::strings::Strings;

/// What is wrong with the bytes.
pub(super) type Malformed = &'static str;

/// The errors of a [`Sink`] that is full.
pub(super) const TOO_MANY: Malformed = "more elements than allowed";
pub(super) const TOO_LARGE: Malformed = "more bytes than allowed";

/// Memory of one element beyond its bytes.
pub(super) const ELEMENT_BYTES: u64 = 8;

/// A list to append to, up to a number of elements and bytes.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    pub(super) out: &'a mut Strings,
    pub(super) elements_max: usize,
    pub(super) room: &'a mut Room,
}

impl Sink<'_> {
    pub(super) fn push(&mut self, string: &[u8]) -> Result<(), Malformed> {
        if self.out.len() >= self.elements_max {
            return Err(TOO_MANY);
        }
        self.room.take(string.len() as u64 + ELEMENT_BYTES)?;
        self.out.push(string);
        Ok(())
    }

    /// A sink with the same limits for another list.
    pub(super) fn to<'b>(&'b mut self, out: &'b mut Strings) -> Sink<'b> {
        Sink { out, elements_max: self.elements_max, room: self.room }
    }
}

/// Bytes that a value may still take in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room(pub(super) u64);

impl Room {
    /// Called before memory is allocated. A short input may describe a large value, so each part
    /// of it counts.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), Malformed> {
        self.0 = self.0.checked_sub(bytes).ok_or(TOO_LARGE)?;
        Ok(())
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(bytes);
    }
}

/// Elements of a packed form, taken from its front.
#[derive(Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("a packed value ends early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("a packed value ends early")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn le32(&mut self) -> Result<usize, Malformed> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }
}

/// A string or an integer of a packed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element<'a> {
    Text(&'a [u8]),
    Number(i64),
}

impl Element<'_> {
    pub(super) fn push_to(self, out: &mut Sink<'_>) -> Result<(), Malformed> {
        match self {
            Element::Text(text) => out.push(text),
            Element::Number(number) => out.push(itoa::Buffer::new().format(number).as_bytes()),
        }
    }
}

/// An integer of three bytes.
fn int24(bytes: [u8; 3]) -> i64 {
    let [a, b, c] = bytes;
    i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
}

/// The last byte of ziplists and listpacks.
const END: u8 = 0xff;

/// Appends the elements of a ziplist.
// Source: Redis 6.2 `ziplist.c`, the comment at its top, and `ziplistValidateIntegrity`
pub(super) fn read_ziplist(bytes: &[u8], out: &mut Sink<'_>) -> Result<(), Malformed> {
    const LONG_PREVIOUS: u8 = 0xfe;
    let mut input = Bytes(bytes);
    let (len, tail, count) = (input.le32()?, input.le32()?, u16::from_le_bytes(input.array()?));
    if len != bytes.len() {
        return Err("a ziplist of another length");
    }
    let (mut found, mut last, mut previous_bytes) = (0_usize, bytes.len() - input.0.len(), 0);
    loop {
        let start = bytes.len() - input.0.len();
        let previous = match input.byte()? {
            END => break,
            LONG_PREVIOUS => input.le32()?,
            short => usize::from(short),
        };
        if previous != previous_bytes {
            return Err("a ziplist whose elements have other lengths");
        }
        read_ziplist_entry(&mut input)?.push_to(out)?;
        previous_bytes = bytes.len() - input.0.len() - start;
        (found, last) = (found + 1, start);
    }
    if last != tail {
        return Err("a ziplist with another last element");
    }
    // The largest number stands for it and all above.
    if count != u16::MAX && found != usize::from(count) {
        return Err("a ziplist with another number of elements");
    }
    if input.0.is_empty() { Ok(()) } else { Err("bytes after the end of a ziplist") }
}

// Source: as `read_ziplist`
fn read_ziplist_entry<'a>(input: &mut Bytes<'a>) -> Result<Element<'a>, Malformed> {
    let first = input.byte()?;
    let len = match first {
        0..0x40 => usize::from(first),
        0x40..0x80 => usize::from(first & 0x3f) << 8 | usize::from(input.byte()?),
        0x80 => u32::from_be_bytes(input.array()?) as usize,
        0xc0 => return Ok(Element::Number(i16::from_le_bytes(input.array()?).into())),
        0xd0 => return Ok(Element::Number(i32::from_le_bytes(input.array()?).into())),
        0xe0 => return Ok(Element::Number(i64::from_le_bytes(input.array()?))),
        0xf0 => return Ok(Element::Number(int24(input.array()?))),
        0xfe => return Ok(Element::Number(i8::from_le_bytes(input.array()?).into())),
        0xf1..=0xfd => return Ok(Element::Number(i64::from(first) - 0xf1)),
        _ => return Err("unknown encoding in a ziplist"),
    };
    input.take(len).map(Element::Text)
}

/// Bytes of the length after an element of a listpack.
// Source: Redis 7.2 `listpack.c`, `lpEncodeBacklen`: each bound is one less than the bits hold
pub(super) fn back_bytes(element_bytes: usize) -> usize {
    match element_bytes {
        0..0x80 => 1,
        0x80..0x3fff => 2,
        0x3fff..0x1f_ffff => 3,
        0x1f_ffff..0x0fff_ffff => 4,
        _ => 5,
    }
}

/// The elements of a listpack, in order.
#[derive(Debug)]
pub(super) struct Listpack<'a>(Bytes<'a>);

impl<'a> Listpack<'a> {
    // Source: Redis 7.2 `listpack.c`, `lpNew` and `lpValidateIntegrity`
    pub(super) fn new(bytes: &'a [u8]) -> Result<Listpack<'a>, Malformed> {
        let mut input = Bytes(bytes);
        let (len, _count) = (input.le32()?, input.array::<2>()?);
        if len != bytes.len() {
            return Err("a listpack of another length");
        }
        Ok(Listpack(input))
    }

    /// `None` at the end.
    // Source: Redis 7.2 `listpack.c`, `lpGetWithSize` and `lpCurrentEncodedSizeBytes`
    pub(super) fn element(&mut self) -> Result<Option<Element<'a>>, Malformed> {
        let input = &mut self.0;
        let before = input.0.len();
        let first = input.byte()?;
        let element = match first {
            0..0x80 => Element::Number(i64::from(first)),
            0x80..0xc0 => Element::Text(input.take(usize::from(first & 0x3f))?),
            0xc0..0xe0 => {
                // 13 bits with their sign.
                let bits = u16::from(first) << 11 | u16::from(input.byte()?) << 3;
                Element::Number(i64::from(bits.cast_signed() >> 3))
            }
            0xe0..0xf0 => {
                let len = usize::from(first & 0x0f) << 8 | usize::from(input.byte()?);
                Element::Text(input.take(len)?)
            }
            0xf0 => {
                let len = input.le32()?;
                Element::Text(input.take(len)?)
            }
            0xf1 => Element::Number(i16::from_le_bytes(input.array()?).into()),
            0xf2 => Element::Number(int24(input.array()?)),
            0xf3 => Element::Number(i32::from_le_bytes(input.array()?).into()),
            0xf4 => Element::Number(i64::from_le_bytes(input.array()?)),
            END if input.0.is_empty() => return Ok(None),
            END => return Err("bytes after the end of a listpack"),
            _ => return Err("unknown encoding in a listpack"),
        };
        let back_bytes = back_bytes(before - input.0.len());
        input.take(back_bytes)?;
        Ok(Some(element))
    }

    pub(super) fn number(&mut self) -> Result<i64, Malformed> {
        match self.element()? {
            Some(Element::Number(number)) => Ok(number),
            _ => Err("no integer in a listpack where one is expected"),
        }
    }

    /// Appends the next element.
    pub(super) fn push_to(&mut self, out: &mut Sink<'_>) -> Result<(), Malformed> {
        self.element()?.ok_or("a listpack ends early")?.push_to(out)
    }
}

/// Appends the elements of a listpack.
// Source: as `Listpack::element`
pub(super) fn read_listpack(bytes: &[u8], out: &mut Sink<'_>) -> Result<(), Malformed> {
    let mut listpack = Listpack::new(bytes)?;
    while let Some(element) = listpack.element()? {
        element.push_to(out)?;
    }
    Ok(())
}

/// Appends the members of an intset.
// Source: Redis 7.2 `intset.h`
pub(super) fn read_intset(bytes: &[u8], out: &mut Sink<'_>) -> Result<(), Malformed> {
    let mut input = Bytes(bytes);
    let (width, count) = (input.le32()?, input.le32()?);
    if Some(input.0.len()) != width.checked_mul(count) {
        return Err("an intset of another length");
    }
    for _ in 0..count {
        let number = match width {
            2 => i64::from(i16::from_le_bytes(input.array()?)),
            4 => i64::from(i32::from_le_bytes(input.array()?)),
            8 => i64::from_le_bytes(input.array()?),
            _ => return Err("unknown width of the integers of an intset"),
        };
        Element::Number(number).push_to(out)?;
    }
    Ok(())
}

/// Appends fields and values of a zipmap, a form of hashes up to Redis 2.4.
// Source: Redis 6.2 `zipmap.c`, the comment at its top
pub(super) fn read_zipmap(bytes: &[u8], out: &mut Sink<'_>) -> Result<(), Malformed> {
    const LONG: u8 = 0xfe;
    let mut input = Bytes(bytes);
    input.byte()?;
    let length = |input: &mut Bytes<'_>| match input.byte()? {
        END => Ok(None),
        LONG => input.le32().map(Some),
        len => Ok(Some(usize::from(len))),
    };
    while let Some(len) = length(&mut input)? {
        out.push(input.take(len)?)?;
        let len = length(&mut input)?.ok_or("a zipmap ends after a field")?;
        let free = usize::from(input.byte()?);
        out.push(input.take(len)?)?;
        input.take(free)?;
    }
    if input.0.is_empty() { Ok(()) } else { Err("bytes after the end of a zipmap") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Read = fn(&[u8], &mut Sink<'_>) -> Result<(), Malformed>;

    fn read(read: Read, bytes: &[u8], elements_max: usize) -> Result<Strings, Malformed> {
        let mut out = Strings::default();
        read(bytes, &mut Sink { out: &mut out, elements_max, room: &mut Room(u64::MAX) })?;
        Ok(out)
    }

    #[track_caller]
    fn check(form: Read, bytes: &[u8], expected: &[&str]) {
        let count = expected.len();
        let expected: Strings = expected.iter().map(|text| text.as_bytes()).collect();
        assert_eq!(read(form, bytes, count), Ok(expected));
        assert_eq!(read(form, bytes, count - 1), Err(TOO_MANY));
        for cut in 0..bytes.len() {
            assert!(read(form, &bytes[..cut], usize::MAX).is_err(), "cut at {cut}");
        }
        let longer = [bytes, b"\0"].concat();
        assert!(read(form, &longer, usize::MAX).is_err());
    }

    fn with_len(content: &[u8]) -> Vec<u8> {
        let len = u32::try_from(4 + content.len()).unwrap();
        [&len.to_le_bytes(), content].concat()
    }

    #[test]
    fn a_ziplist_has_strings_and_integers() {
        let content = b"\x2c\0\0\0\x09\0\
            \x00\x02ab\x04\xf1\x02\xfd\x02\xfe\xff\x03\xc0\x00\x80\x04\xf0\xff\xff\xff\
            \x05\x40\x01c\xfe\x04\x00\x00\x00\xd0\x00\x00\x00\x80\x0a\xe0\0\0\0\0\0\0\0\x80\xff";
        let expected =
            ["ab", "0", "12", "-1", "-32768", "-1", "c", "-2147483648", "-9223372036854775808"];
        check(read_ziplist, &with_len(content), &expected);
    }

    /// Redis walks over it in both directions, and finds its end by these numbers.
    #[test]
    fn the_lengths_in_a_ziplist_are_right() {
        let right = b"\x0e\0\0\0\x02\0\x00\x02ab\x04\x02cd\xff";
        check(read_ziplist, &with_len(right), &["ab", "cd"]);
        let empty = with_len(b"\x0a\0\0\0\0\0\xff");
        assert_eq!(read(read_ziplist, &empty, 0), Ok(Strings::default()));
        let many = b"\x0e\0\0\0\xff\xff\x00\x02ab\x04\x02cd\xff";
        check(read_ziplist, &with_len(many), &["ab", "cd"]);
        for (place, byte) in [(0, 0x0a), (4, 1), (4, 3), (5, 1), (6, 1), (10, 2), (10, 14)] {
            let mut wrong = right.to_vec();
            wrong[place] = byte;
            assert!(read(read_ziplist, &with_len(&wrong), 9).is_err(), "{byte} at {place}");
        }
    }

    #[test]
    fn a_listpack_has_strings_and_integers() {
        let content = b"\x06\0\x7f\x01\x82ab\x03\xdf\xff\x02\xc0\x80\x02\xe0\x01c\x03\
            \xf0\x01\0\0\0d\x06\xf1\x00\x80\x03\xf2\xff\xff\xff\x04\xf3\xff\xff\xff\xff\x05\
            \xf4\xff\xff\xff\xff\xff\xff\xff\x7f\x09\xff";
        let expected =
            ["127", "ab", "-1", "128", "c", "d", "-32768", "-1", "-1", "9223372036854775807"];
        check(read_listpack, &with_len(content), &expected);
    }

    #[test]
    fn a_long_element_of_a_listpack_has_a_long_back_length() {
        let long = [b'x'; 200];
        let content = [&b"\x01\0\xe0\xc8"[..], &long, b"\x01\xca\x05\x01\xff"].concat();
        let text = "x".repeat(200);
        check(read_listpack, &with_len(&content), &[&text, "5"]);
    }

    #[test]
    fn intsets_have_three_widths() {
        check(read_intset, b"\x02\0\0\0\x02\0\0\0\xff\xff\x05\0", &["-1", "5"]);
        check(read_intset, b"\x04\0\0\0\x01\0\0\0\0\0\0\x80", &["-2147483648"]);
        check(read_intset, b"\x08\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0", &["1"]);
        for bytes in [&b"\x01\0\0\0\x01\0\0\0\x01"[..], &[0xff; 8]] {
            assert!(read(read_intset, bytes, usize::MAX).is_err());
        }
    }

    #[test]
    fn a_zipmap_has_fields_and_values() {
        let bytes = b"\x02\x01a\x02\x01bb?\xfe\x01\0\0\0c\x00\x00\xff";
        check(read_zipmap, bytes, &["a", "bb", "c", ""]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            content in proptest::collection::vec(
                prop_oneof![0u8..6, 0x7fu8..0x86, 0xbfu8..0xc2, 0xe0u8..=0xff, any::<u8>()], 0..60),
        ) {
            for bytes in [with_len(&content), content] {
                for form in [read_ziplist, read_listpack, read_intset, read_zipmap] {
                    if let Ok(out) = read(form, &bytes, usize::MAX) {
                        prop_assert!(out.len() <= bytes.len());
                    }
                }
            }
        }
    }
}
