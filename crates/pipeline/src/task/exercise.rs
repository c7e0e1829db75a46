//! The exercise: x^y mod 2^64, then SHA-256 of its encoding, applied ten times; and partial
//! variants.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::task::input::mix;
use crate::task::kernel::{DIGEST_BYTES, LANES, LINKS, serial_chain};
use crate::task::power::powers;
use crate::task::{BatchTask, Ids, Inputs, Kernel, TaskError};

/// Size of an encoded task: id (u64), x (u16), y (u16), big-endian.
pub const INPUT_BYTES: usize = 12;
/// Size of an encoded result: the same 12 bytes, then the digest.
pub const OUTPUT_BYTES: usize = INPUT_BYTES + DIGEST_BYTES;

/// Digits of the smallest i64, including its sign.
const DECIMAL_BYTES_MAX: usize = 20;

/// Constants without a pattern, so that zeros are hashed like other values.
// Source: the first 48 bytes of the fractional part of pi
const PATTERN: [u64; 6] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6c,
];

/// Definition of a result's last 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// SHA-256, ten times, of p: 8 bytes little-endian and 24 zeros.
    Sha256Le,
    /// The same with p big-endian.
    Sha256Be,
    /// SHA-256, ten times, of p as a signed 64-bit number in decimal.
    Sha256Ds,
    /// p, 8 bytes little-endian, and zeros: measures the arithmetic without the hashes.
    Powmod,
    /// Zeros: measures the pipeline itself.
    Nop,
    /// Zeros, after this much work per task: simulates executors of any speed.
    Spin { ns: u64 },
}

/// One of the built-in tasks, with all parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Exercise {
    codec: Codec,
    inputs: Inputs,
    kernel: Kernel,
}

impl Exercise {
    pub fn new(codec: Codec, seed: u64, kernel: Kernel) -> Self {
        Self { codec, inputs: Inputs::new(seed), kernel }
    }

    /// Computes the digests of up to [`LANES`] tasks. Unused lanes compute with x = 0.
    fn digests(&self, x: &[u16; LANES], y: &[u16; LANES], ends: &mut [[u8; DIGEST_BYTES]; LANES]) {
        match self.codec {
            Codec::Sha256Le => {
                self.kernel.chains(&powers(x, y).map(|p| seed(p.to_le_bytes())), ends);
            }
            Codec::Sha256Be => {
                self.kernel.chains(&powers(x, y).map(|p| seed(p.to_be_bytes())), ends);
            }
            Codec::Sha256Ds => {
                let texts = powers(x, y).map(Decimal::new);
                let messages: [&[u8]; LANES] = std::array::from_fn(|lane| texts[lane].bytes());
                self.kernel.messages(&messages, ends);
            }
            Codec::Powmod => *ends = powers(x, y).map(|p| seed(p.to_le_bytes())),
            Codec::Nop | Codec::Spin { .. } => unreachable!("has no digests"),
        }
    }

    /// Computes one digest with independent code: the standard library's power, and the crate
    /// `sha2`.
    fn reference_digest(&self, x: u16, y: u16) -> [u8; DIGEST_BYTES] {
        let p = u64::from(x).wrapping_pow(u32::from(y));
        match self.codec {
            Codec::Sha256Le => serial_chain(seed(p.to_le_bytes()), LINKS),
            Codec::Sha256Be => serial_chain(seed(p.to_be_bytes()), LINKS),
            Codec::Sha256Ds => {
                let text = p.cast_signed().to_string();
                serial_chain(Sha256::digest(text).into(), LINKS - 1)
            }
            Codec::Powmod => seed(p.to_le_bytes()),
            Codec::Nop | Codec::Spin { .. } => [0; DIGEST_BYTES],
        }
    }

    fn copy_through(inputs: &[u8], outputs: &mut [u8]) {
        let inputs = inputs.as_chunks::<INPUT_BYTES>().0;
        let outputs = outputs.as_chunks_mut::<OUTPUT_BYTES>().0;
        for (input, output) in inputs.iter().zip(outputs) {
            output[..INPUT_BYTES].copy_from_slice(input);
            output[INPUT_BYTES..].fill(0);
        }
    }

    fn compute(&self, inputs: &[u8], outputs: &mut [u8]) {
        let (mut x, mut y) = ([0; LANES], [0; LANES]);
        let mut ends = [[0; DIGEST_BYTES]; LANES];
        let inputs = inputs.as_chunks::<INPUT_BYTES>().0.chunks(LANES);
        let outputs = outputs.as_chunks_mut::<OUTPUT_BYTES>().0.chunks_mut(LANES);
        for (inputs, outputs) in inputs.zip(outputs) {
            for (lane, input) in inputs.iter().enumerate() {
                (x[lane], y[lane]) = operands(input);
            }
            self.digests(&x, &y, &mut ends);
            for ((input, output), digest) in inputs.iter().zip(outputs).zip(&ends) {
                output[..INPUT_BYTES].copy_from_slice(input);
                output[INPUT_BYTES..].copy_from_slice(digest);
            }
        }
    }
}

impl BatchTask for Exercise {
    fn input_bytes_max(&self) -> usize {
        INPUT_BYTES
    }

    fn output_bytes_max(&self) -> usize {
        OUTPUT_BYTES
    }

    fn generate(&self, ids: Ids, inputs: &mut [u8]) -> Result<usize, TaskError> {
        let used = ids.len() * INPUT_BYTES;
        let records = inputs[..used].as_chunks_mut::<INPUT_BYTES>().0;
        for (id, record) in ids.iter().zip(records) {
            let (x, y) = self.inputs.of(id);
            let packed = u128::from(id) << 64 | u128::from(x) << 48 | u128::from(y) << 32;
            record.copy_from_slice(&packed.to_be_bytes()[..INPUT_BYTES]);
        }
        Ok(used)
    }

    fn run(&self, ids: Ids, inputs: &[u8], outputs: &mut [u8]) -> Result<usize, TaskError> {
        if inputs.len() != ids.len() * INPUT_BYTES {
            return Err(TaskError::Shape { count: ids.count, bytes: inputs.len() });
        }
        let used = ids.len() * OUTPUT_BYTES;
        let outputs = &mut outputs[..used];
        match self.codec {
            Codec::Nop => Self::copy_through(inputs, outputs),
            Codec::Spin { ns } => {
                let busy = Duration::from_nanos(ns.saturating_mul(u64::from(ids.count)));
                let started = Instant::now();
                Self::copy_through(inputs, outputs);
                while started.elapsed() < busy {
                    std::hint::spin_loop();
                }
            }
            _ => self.compute(inputs, outputs),
        }
        Ok(used)
    }

    fn inspect(&self, ids: Ids, outputs: &[u8]) -> Result<u64, TaskError> {
        let (records, rest) = outputs.as_chunks::<OUTPUT_BYTES>();
        if records.len() != ids.len() || !rest.is_empty() {
            return Err(TaskError::Shape { count: ids.count, bytes: outputs.len() });
        }
        let mut sum = 0_u64;
        let mut differences = 0;
        for (id, record) in ids.iter().zip(records) {
            let (x, y) = self.inputs.of(id);
            let found_id = word(record, 0);
            differences |= (found_id ^ id) | u64::from(xy(record) ^ joined(x, y));
            sum = sum.wrapping_add(record_hash(id, record));
        }
        if differences != 0 {
            return Err(self.first_difference(ids, records));
        }
        Ok(sum)
    }

    fn record(&self, outputs: &[u8], index: u32) -> Option<Range<usize>> {
        let start = usize::try_from(index).ok()?.checked_mul(OUTPUT_BYTES)?;
        let end = start.checked_add(OUTPUT_BYTES)?;
        (end <= outputs.len()).then_some(start..end)
    }

    fn verify(&self, record: &[u8]) -> Result<bool, TaskError> {
        let record = one_record(record)?;
        let (id, found) = (word(record, 0), xy(record));
        let (x, y) = self.inputs.of(id);
        Ok(found == joined(x, y) && record[INPUT_BYTES..] == self.reference_digest(x, y))
    }

    /// `id x y DIGEST`, the digest in capital letters.
    fn describe(&self, record: &[u8]) -> String {
        let Ok(record) = one_record(record) else { return format!("malformed {record:02X?}") };
        let (id, xy) = (word(record, 0), xy(record));
        let mut line = format!("{id} {} {} ", xy >> 16, xy & 0xffff);
        for byte in &record[INPUT_BYTES..] {
            write!(line, "{byte:02X}").expect("writing to a String cannot fail");
        }
        line
    }
}

impl Exercise {
    #[cold]
    fn first_difference(&self, ids: Ids, records: &[[u8; OUTPUT_BYTES]]) -> TaskError {
        let differs = |id: u64, record: &[u8; OUTPUT_BYTES]| {
            let (x, y) = self.inputs.of(id);
            word(record, 0) != id || xy(record) != joined(x, y)
        };
        let found = ids.iter().zip(records).find(|(id, record)| differs(*id, record));
        TaskError::Input { id: found.map_or(ids.first, |(id, _)| id) }
    }
}

fn one_record(record: &[u8]) -> Result<&[u8; OUTPUT_BYTES], TaskError> {
    record.try_into().map_err(|_| TaskError::Shape { count: 1, bytes: record.len() })
}

fn operands(input: &[u8; INPUT_BYTES]) -> (u16, u16) {
    let half = |at: usize| u16::from_be_bytes([input[at], input[at + 1]]);
    (half(8), half(10))
}

/// Returns 8 bytes padded with zeros to 32.
fn seed(bytes: [u8; 8]) -> [u8; DIGEST_BYTES] {
    let mut seed = [0; DIGEST_BYTES];
    seed[..8].copy_from_slice(&bytes);
    seed
}

#[inline]
fn word(record: &[u8; OUTPUT_BYTES], at: usize) -> u64 {
    u64::from_be_bytes(*record[at..].first_chunk().expect("every caller's place is inside"))
}

#[inline]
fn xy(record: &[u8; OUTPUT_BYTES]) -> u32 {
    u32::from_be_bytes(*record[8..].first_chunk().expect("44 bytes are more than 12"))
}

#[inline]
fn joined(x: u16, y: u16) -> u32 {
    u32::from(x) << 16 | u32::from(y)
}

/// Hash of id and digest in two multiplications, because it is computed for every task. It detects
/// accidental changes, not deliberate ones.
#[inline]
fn record_hash(id: u64, record: &[u8; OUTPUT_BYTES]) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        let high = u64::try_from(product >> 64).expect("shifted by half");
        let low = u64::try_from(product & u128::from(u64::MAX)).expect("masked to half");
        high ^ low
    };
    let first = fold(word(record, 12) ^ PATTERN[0], word(record, 20) ^ PATTERN[1]);
    let second = fold(word(record, 28) ^ PATTERN[2], word(record, 36) ^ PATTERN[3]);
    fold(first ^ id ^ PATTERN[4], second ^ PATTERN[5])
}

/// A signed number formatted as text without an allocation.
struct Decimal {
    text: [u8; DECIMAL_BYTES_MAX],
    start: usize,
}

impl Decimal {
    fn new(p: u64) -> Self {
        let signed = p.cast_signed();
        let mut rest = signed.unsigned_abs();
        let mut decimal = Self { text: [0; DECIMAL_BYTES_MAX], start: DECIMAL_BYTES_MAX };
        loop {
            decimal.push(b'0' + u8::try_from(rest % 10).expect("one digit"));
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if signed < 0 {
            decimal.push(b'-');
        }
        decimal
    }

    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.text[self.start] = byte;
    }

    fn bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// Whether an executor corrupts this task on request. The choice depends only on the id, not on the
/// executor.
pub(crate) fn is_chosen(id: u64, share: f64) -> bool {
    // The factor 2^-64 maps the id's hash to a fraction below 1.
    #[expect(clippy::cast_precision_loss, reason = "a random number is compared with a share")]
    let place = mix(id ^ PATTERN[0]) as f64 * (0.5_f64).powi(64);
    place < share
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Codec; 6] = [
        Codec::Sha256Le,
        Codec::Sha256Be,
        Codec::Sha256Ds,
        Codec::Powmod,
        Codec::Nop,
        Codec::Spin { ns: 1 },
    ];

    fn computed(task: &Exercise, ids: Ids) -> Vec<u8> {
        let mut inputs = vec![0xee; ids.len() * INPUT_BYTES];
        assert_eq!(task.generate(ids, &mut inputs), Ok(inputs.len()));
        let mut outputs = vec![0xee; ids.len() * OUTPUT_BYTES];
        assert_eq!(task.run(ids, &inputs, &mut outputs), Ok(outputs.len()));
        outputs
    }

    /// Checks the digest of one pair of x and y, computed among other lanes.
    fn check_golden(codec: Codec, (x, y): (u16, u16), expected: &str) {
        for kernel in Kernel::ALL {
            let task = Exercise::new(codec, 1, kernel);
            let mut inputs = vec![7; 70 * INPUT_BYTES];
            inputs[66 * INPUT_BYTES + 8..][..2].copy_from_slice(&x.to_be_bytes());
            inputs[66 * INPUT_BYTES + 10..][..2].copy_from_slice(&y.to_be_bytes());
            let mut outputs = vec![0; 70 * OUTPUT_BYTES];
            task.run(Ids { first: 0, count: 70 }, &inputs, &mut outputs).unwrap();
            let line = task.describe(&outputs[66 * OUTPUT_BYTES..][..OUTPUT_BYTES]);
            let expected = format!("{x} {y} {}", expected.to_uppercase());
            assert!(line.ends_with(&expected), "{codec:?} {kernel}: {line} {expected}");
            assert_eq!(
                task.reference_digest(x, y),
                outputs[66 * OUTPUT_BYTES + INPUT_BYTES..][..DIGEST_BYTES]
            );
        }
    }

    #[test]
    fn golden_vectors() {
        let zero = "f13587bc89fe4882c7c889302511ffd738d136129b9f5be4c492cb4948a93a89";
        #[rustfmt::skip]
        let vectors = [
            (Codec::Sha256Le, (40_477, 20_751), "a214cb3b980aa7fe70127b0799068e02779fae74fe0f1f3e295d713fe5d13985"),
            (Codec::Sha256Ds, (42_717, 54_288), "735b4f2931dd3198d82a55973e775389dc8ad3e3fdb7edbfcf9f6774f8e5b283"),
            (Codec::Sha256Le, (2, 64), zero),
            (Codec::Sha256Be, (65_534, 65_535), zero),
            (Codec::Sha256Ds, (2, 64), "7c20f6cf1a09eee4f40fe6f70b0f070213e4ae0b9599cf6348b0eac781225457"),
            (Codec::Sha256Le, (1, 1), "0b55d92a1d51e941de6f6cf8b38b78644d5d40c047e4158963d063bdfe6e5f4c"),
            (Codec::Sha256Be, (1, 1), "05b10058f395d132f5aec429b203ed21d5fc2819140e49934629165d427fdb6a"),
            (Codec::Sha256Ds, (1, 1), "300c206751c54e873112a6900e201077134dfa8cb287850e626871f0cc46ecc2"),
            (Codec::Sha256Le, (3, 5), "e21cc17fe7c8e1b4536921b1cd1a8de41a9acef8065e671d1cc558c8c9f99d33"),
            (Codec::Sha256Be, (3, 5), "a416629e99f05a9e8df13119a012758cbd6944a9cc68b89bed1e0e2bdb394d54"),
            (Codec::Sha256Ds, (3, 5), "357189ee9d9f0123f73fd4cf32fbb380d7b3a9aba793791682855a18b4ed9dab"),
            (Codec::Sha256Le, (65_535, 65_535), "15bfdd10336b2364ce40af2e111a5e798a8424dc2698f145a3d1b2471102d6a5"),
            (Codec::Sha256Be, (65_535, 65_535), "ed4bdbd10f6356d3619c9357d3181b186ec0e4d7419f2b01ce7196f05873e763"),
            (Codec::Sha256Ds, (65_535, 65_535), "bd7bab5fb05c24518da762ed3d6df0b9ca6ea65d151dd9048b469b37c48f227b"),
        ];
        for (codec, operands, digest) in vectors {
            check_golden(codec, operands, digest);
        }
    }

    /// Checks every kernel against the standard library's power and `sha2`, with partly filled
    /// lanes.
    #[test]
    fn all_results_are_verified() {
        for kernel in Kernel::ALL {
            for codec in ALL {
                let task = Exercise::new(codec, 5, kernel);
                let ids = Ids { first: 1 << 40, count: 5_003 };
                let outputs = computed(&task, ids);
                for record in outputs.chunks(OUTPUT_BYTES) {
                    assert_eq!(task.verify(record), Ok(true), "{codec:?} {kernel}");
                }
                assert!(task.inspect(ids, &outputs).is_ok());
            }
        }
    }

    #[test]
    fn sums_do_not_depend_on_the_cut() {
        let task = Exercise::new(Codec::Powmod, 5, Kernel::Serial);
        let whole = Ids { first: 10, count: 300 };
        let outputs = computed(&task, whole);
        let parts = [(10, 1), (11, 100), (111, 199)].map(|(first, count)| Ids { first, count });
        let sum = parts
            .iter()
            .map(|part| task.inspect(*part, &computed(&task, *part)).unwrap())
            .fold(0_u64, u64::wrapping_add);
        assert_eq!(task.inspect(whole, &outputs), Ok(sum));
    }

    #[test]
    fn every_changed_bit_is_found() {
        let ids = Ids { first: 77, count: 2 };
        let task = Exercise::new(Codec::Sha256Be, 5, Kernel::Serial);
        let right = computed(&task, ids);
        let sum = task.inspect(ids, &right);
        for bit in 0..right.len() * 8 {
            let mut wrong = right.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let record = &wrong[bit / 8 / OUTPUT_BYTES * OUTPUT_BYTES..][..OUTPUT_BYTES];
            assert_ne!(task.inspect(ids, &wrong), sum, "bit {bit}");
            assert_eq!(task.verify(record), Ok(false), "bit {bit}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        let task = Exercise::new(Codec::Nop, 5, Kernel::Serial);
        let ids = Ids { first: 0, count: 2 };
        let mut outputs = [0; 2 * OUTPUT_BYTES];
        let shape = |bytes| Err(TaskError::Shape { count: 2, bytes });
        assert_eq!(task.run(ids, &[0; 23], &mut outputs).map(|_| ()), shape(23));
        assert_eq!(task.inspect(ids, &outputs[1..]).map(|_| ()), shape(87));
        assert_eq!(task.inspect(ids, &outputs), Err(TaskError::Input { id: 0 }));
        assert_eq!(task.record(&outputs, 1), Some(44..88));
        assert_eq!(task.record(&outputs, 2), None);
        assert!(task.verify(&[0; 43]).is_err());
    }

    #[test]
    fn numbers_become_text() {
        for p in [0, 9, 10, i64::MAX.cast_unsigned(), 1 << 63, u64::MAX] {
            assert_eq!(Decimal::new(p).bytes(), p.cast_signed().to_string().as_bytes());
        }
    }

    #[test]
    fn a_share_of_all_ids_is_chosen() {
        let chosen = (0..100_000).filter(|id| is_chosen(*id, 0.01)).count();
        assert!((900..1_100).contains(&chosen), "{chosen}");
        assert!(!(0..1000).any(|id| is_chosen(id, 0.0)));
    }
}
