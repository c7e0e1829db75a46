//! Payloads of DUMP and RESTORE: type, value, version and checksum.

use thiserror::Error;

use super::checksum::Checksum;
use super::error::RdbError;
use super::file::{FUNCTION_2, FUNCTION_PRE_GA};
use super::input::{Input, Limits};
use super::value::{Value, read_value};
use super::version::Version;
use super::write::put_string;

/// Why a payload is not a value.
#[derive(Debug, Error)]
pub enum PayloadError {
    #[error("wrong version or checksum of a payload")]
    Footer,
    #[error(transparent)]
    Value(#[from] RdbError),
}

/// Version and checksum.
const FOOTER_BYTES: usize = 10;

/// Appends the end of a payload: its version, and the checksum of all of `out`.
// Source: Redis 7.2 `cluster.c`, `createDumpPayload`
pub fn end_payload(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&version.number().to_le_bytes());
    out.extend_from_slice(&Checksum::of(out).to_le_bytes());
}

/// Checks the end of a payload. Returns what precedes it, and the version.
// Source: Redis 7.2 `cluster.c`, `verifyDumpPayload`
fn split_end(bytes: &[u8]) -> Option<(&[u8], Version)> {
    let split = bytes.len().checked_sub(FOOTER_BYTES)?;
    let (content, footer) = bytes.split_at(split);
    let (version, checksum) = footer.split_at(2);
    let version = u16::from_le_bytes(version.try_into().expect("two bytes"));
    let version = Version::of_number(version)?;
    let checksum = u64::from_le_bytes(checksum.try_into().expect("eight bytes"));
    (checksum == Checksum::of(&bytes[..split + 2])).then_some((content, version))
}

/// Decodes the value of a payload.
pub fn decode_payload(bytes: &[u8], limits: Limits) -> Result<Value, PayloadError> {
    let (content, version) = split_end(bytes).ok_or(PayloadError::Footer)?;
    let mut rest = content;
    let mut input = Input::new(&mut rest);
    input.limit(limits);
    let kind = input.byte()?;
    let value = read_value(&mut input, kind, version)?;
    let offset = input.offset();
    if rest.is_empty() {
        return Ok(value);
    }
    Err(RdbError::Malformed { offset, what: "bytes after the value of a payload" }.into())
}

/// Why a payload does not consist of libraries of functions.
#[derive(Debug, Error)]
pub enum FunctionsError {
    #[error("wrong version or checksum of a payload")]
    Footer,
    #[error("a function of a release candidate of Redis 7.0")]
    PreRelease,
    #[error("a payload with something else than functions")]
    OtherType,
    #[error(transparent)]
    Text(#[from] RdbError),
}

/// Appends the source of a library of functions.
// Source: Redis 7.2 `rdb.c`, `rdbSaveFunctions`
pub fn put_function(out: &mut Vec<u8>, source: &[u8]) {
    out.push(FUNCTION_2);
    put_string(out, source);
}

/// Decodes a payload of FUNCTION DUMP: the sources of libraries. `limits`: of all together.
// Source: Redis 7.2 `functions.c`, `functionRestoreCommand`
pub fn decode_functions(bytes: &[u8], limits: Limits) -> Result<Vec<Vec<u8>>, FunctionsError> {
    let (content, _) = split_end(bytes).ok_or(FunctionsError::Footer)?;
    let mut rest = content;
    let mut input = Input::new(&mut rest);
    input.limit(limits);
    let mut sources = Vec::new();
    while input.offset() < content.len() as u64 {
        match input.byte()? {
            FUNCTION_2 => {}
            FUNCTION_PRE_GA => return Err(FunctionsError::PreRelease),
            _ => return Err(FunctionsError::OtherType),
        }
        if sources.len() >= limits.elements_max {
            return Err(RdbError::TooMany { offset: input.offset() }.into());
        }
        sources.push(input.owned_string()?);
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::{Written, put_string, put_strings};

    fn payload(content: &[u8]) -> Vec<u8> {
        let mut bytes = content.to_vec();
        end_payload(&mut bytes, Version::WRITTEN);
        bytes
    }

    fn limits(bytes_max: u64, elements_max: usize) -> Limits {
        Limits { bytes_max, elements_max, ..Limits::NONE }
    }

    #[test]
    fn a_payload_of_redis_is_decoded() {
        // Source: DUMP of a string `hello` by redis-server 7.0.15
        let bytes = b"\x00\x05hello\n\x00cr\xdfve4 \n";
        assert_eq!(payload(b"\x00\x05hello"), bytes);
        let value = decode_payload(bytes, Limits::NONE).unwrap();
        assert_eq!(value, Value::String(b"hello".to_vec()));
    }

    #[test]
    fn damage_and_unknown_versions_are_refused() {
        let good = payload(b"\x00\x05hello");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(
                matches!(decode_payload(&bad, Limits::NONE), Err(PayloadError::Footer)),
                "{at}"
            );
        }
        for cut in 0..good.len() {
            assert!(matches!(
                decode_payload(&good[..cut], Limits::NONE),
                Err(PayloadError::Footer)
            ));
        }
        for version in [0u16, 13, 79, 82] {
            let mut bytes = b"\x00\x05hello".to_vec();
            bytes.extend_from_slice(&version.to_le_bytes());
            bytes.extend_from_slice(&Checksum::of(&bytes).to_le_bytes());
            assert!(matches!(decode_payload(&bytes, Limits::NONE), Err(PayloadError::Footer)));
        }
        let longer = payload(b"\x00\x05hello!");
        assert!(matches!(decode_payload(&longer, Limits::NONE), Err(PayloadError::Value(_))));
    }

    #[test]
    fn libraries_of_redis_are_decoded() {
        // Source: FUNCTION DUMP of redis-server 7.0.15: without libraries, and with one, whose text
        // is compressed
        let empty = b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda";
        assert_eq!(decode_functions(empty, Limits::NONE).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(payload(b""), empty);
        let one = b"\xf5\xc3@p@~\x1a#!lua name=l\nlocal r=redis\n`\x05\x12.register_function{\xc0\
                    \x08\x00_`5\x03'f', 5\x05lback=\xc0\x1a\x11(keys,args) return \x06 S\x0f\
                    .log(1,'x') end}\n\x00\xabGE\r_\x88.K";
        let source = b"#!lua name=l\nlocal r=redis\nredis.register_function{function_name='f',\
                       callback=function(keys,args) return redis.log(1,'x') end}";
        assert_eq!(decode_functions(one, Limits::NONE).unwrap(), [source.to_vec()]);
        let mut own = Vec::new();
        put_function(&mut own, b"#!lua name=a\n");
        put_function(&mut own, b"#!lua name=b\n");
        let own = payload(&own);
        assert_eq!(decode_functions(&own, limits(26, 2)).unwrap().len(), 2);
        for (bytes_max, elements_max) in [(25, 2), (26, 1)] {
            let error = decode_functions(&own, limits(bytes_max, elements_max)).unwrap_err();
            assert!(matches!(error, FunctionsError::Text(_)), "{error}");
        }
    }

    #[test]
    fn what_is_not_a_library_is_refused() {
        let refused =
            |content: &[u8]| decode_functions(&payload(content), Limits::NONE).unwrap_err();
        assert!(matches!(refused(b"\x00\x05hello"), FunctionsError::OtherType));
        assert!(matches!(refused(b"\xf6\x05hello"), FunctionsError::PreRelease));
        assert!(matches!(refused(b"\xf5\x06hello"), FunctionsError::Text(_)));
        assert!(matches!(decode_functions(b"short", Limits::NONE), Err(FunctionsError::Footer)));
    }

    #[test]
    fn lengths_that_lie_and_values_above_the_limit_are_refused() {
        let huge = payload(b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff");
        let error = decode_payload(&huge, Limits::NONE).unwrap_err();
        assert!(matches!(error, PayloadError::Value(RdbError::Truncated { .. })), "{error}");
        let mut list = vec![Written::List as u8];
        put_strings(&mut list, 2, [&b"0123456789"[..], b"x"].into_iter());
        let list = payload(&list);
        assert!(decode_payload(&list, limits(27, 2)).is_ok());
        let error = decode_payload(&list, limits(26, 2)).unwrap_err();
        assert!(matches!(error, PayloadError::Value(RdbError::TooLarge { .. })), "{error}");
        let error = decode_payload(&list, limits(27, 1)).unwrap_err();
        assert!(matches!(error, PayloadError::Value(RdbError::TooMany { .. })), "{error}");
        let mut string = vec![Written::String as u8];
        put_string(&mut string, &vec![b'x'; 20_000]);
        let decoded = decode_payload(&payload(&string), limits(20_000, 0)).unwrap();
        assert_eq!(decoded, Value::String(vec![b'x'; 20_000]));
    }
}
