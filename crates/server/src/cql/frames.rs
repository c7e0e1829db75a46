//! Splits the bytes of a connection into whole messages, either plain or carried in segments.

use wire::cql::{
    Direction, EnvelopeError, HEADER_BYTES, Header, Limits, Segment, SegmentError, SegmentFormat,
    Version, decode_segment,
};

/// How a connection's messages are framed, and the state of an incomplete one.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    /// The version that STARTUP agreed on.
    pub(crate) agreed: Option<Version>,
    /// `None`: messages follow each other, as in versions 3 and 4 and before the reply to STARTUP.
    pub(crate) segments: Option<SegmentFormat>,
    /// The first part of a message that spans several segments.
    assembly: Vec<u8>,
    /// A message that is too large.
    skipped: Option<Box<Skipped>>,
    /// Payload bytes of the input's first segment that an earlier call consumed.
    done_bytes: u32,
}

/// A message that is too large, and is refused when all of it has arrived: a driver that is still
/// sending it has not registered its request yet, or cannot send the next one.
#[derive(Debug)]
struct Skipped {
    header: Header,
    error: EnvelopeError,
    left_bytes: u32,
}

/// The outcome of passing a message to a [`Reader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Consumed; continue with the next message.
    Next,
    /// Consumed; stop for now.
    Stop,
    /// Not processed: pass it again later.
    NotNow,
}

/// Why reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// All whole messages are consumed. The next one needs at least this many unread bytes to be
    /// whole, or 0 if that is unknown.
    Unfinished {
        needed: usize,
    },
    /// The reader returned [`Step::Stop`] or [`Step::NotNow`].
    Stopped,
    Broken(FrameError),
}

/// Bytes that are not valid messages. The peer receives the error, and the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl FrameError {
    /// The stream to reply on.
    pub(crate) fn stream(self) -> i16 {
        match self {
            FrameError::Envelope(error) => error.stream(),
            FrameError::Segment(_) => 0,
        }
    }
}

/// The receiver of a connection's messages. [`read`] asks it before each message how that message
/// is framed, because STARTUP changes the framing.
pub(crate) trait Reader {
    fn framing(&mut self) -> &mut Framing;

    /// Receives messages that will follow if nothing intervenes, including the received part of the
    /// last one. Returns how many of their bytes it inspected; the bytes after that are passed to a
    /// later call.
    fn look_ahead(&mut self, messages: &[u8]) -> usize;

    /// Handles one message. The body is as received, compressed or not.
    fn message(&mut self, header: &Header, body: &[u8]) -> Step;

    /// Handles a message in several segments that is too large, after its body was skipped.
    fn oversized(&mut self, header: &Header, error: EnvelopeError);
}

impl Framing {
    /// Bytes buffered of an incomplete message.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.assembly.len()
    }
}

/// Passes every whole message of `input` to `reader`. Returns how many bytes are consumed, and why
/// reading ended. A body is borrowed from the input wherever it is contiguous and uncompressed.
pub(crate) fn read(reader: &mut impl Reader, input: &[u8], limits: Limits) -> (usize, End) {
    let (mut consumed, mut ahead) = (0, 0);
    loop {
        let rest = &input[consumed..];
        let taken = match reader.framing().segments {
            None => {
                if consumed >= ahead {
                    ahead = consumed + reader.look_ahead(rest);
                }
                take_envelope(reader, rest, limits)
            }
            Some(format) => take_segment(reader, rest, format, limits),
        };
        let end = match taken {
            Ok(Taken::Whole(bytes)) => {
                consumed += bytes;
                continue;
            }
            Ok(Taken::Last(bytes)) => {
                consumed += bytes;
                End::Stopped
            }
            Ok(Taken::NotNow) => End::Stopped,
            Ok(Taken::Unfinished { needed }) => End::Unfinished { needed },
            Err(error) => End::Broken(error),
        };
        return (consumed, end);
    }
}

enum Taken {
    /// This many bytes are consumed; continue.
    Whole(usize),
    /// This many bytes are consumed; stop.
    Last(usize),
    NotNow,
    Unfinished {
        needed: usize,
    },
}

impl Taken {
    fn after(step: Step, bytes: usize) -> Taken {
        match step {
            Step::Next => Taken::Whole(bytes),
            Step::Stop => Taken::Last(bytes),
            Step::NotNow => Taken::NotNow,
        }
    }
}

fn decode_header(
    input: &[u8],
    framing: &Framing,
    limits: Limits,
) -> Result<Option<Header>, EnvelopeError> {
    Header::decode(input, Direction::Request, framing.agreed, &limits)
}

fn take_envelope(
    reader: &mut impl Reader,
    rest: &[u8],
    limits: Limits,
) -> Result<Taken, FrameError> {
    let Some(header) = decode_header(rest, reader.framing(), limits)? else {
        return Ok(Taken::Unfinished { needed: 0 });
    };
    let bytes = header.envelope_bytes();
    let Some(body) = rest.get(HEADER_BYTES..bytes) else {
        return Ok(Taken::Unfinished { needed: bytes });
    };
    Ok(Taken::after(reader.message(&header, body), bytes))
}

// Source: native_protocol_v5.spec 2.3 "Outer frames"
fn take_segment(
    reader: &mut impl Reader,
    rest: &[u8],
    format: SegmentFormat,
    limits: Limits,
) -> Result<Taken, FrameError> {
    let Some((segment, bytes)) = decode_segment(rest, format)? else {
        return Ok(Taken::Unfinished { needed: 0 });
    };
    if segment.is_self_contained {
        take_envelopes(reader, &segment, bytes, limits)
    } else {
        take_piece(reader, segment.payload.bytes(), bytes, limits)
    }
}

/// Handles the messages of a segment of the given number of bytes.
fn take_envelopes(
    reader: &mut impl Reader,
    segment: &Segment<'_>,
    bytes: usize,
    limits: Limits,
) -> Result<Taken, FrameError> {
    let payload = segment.payload.bytes();
    let framing = reader.framing();
    if framing.kept_bytes() != 0 || framing.skipped.is_some() {
        return Err(SegmentError::Containment.into());
    }
    let mut done = std::mem::take(&mut framing.done_bytes) as usize;
    let mut ahead = done;
    while done < payload.len() {
        let rest = &payload[done..];
        if done >= ahead {
            ahead = done + reader.look_ahead(rest);
        }
        let header = decode_header(rest, reader.framing(), limits)?;
        let header = header.ok_or(SegmentError::Containment)?;
        let end = header.envelope_bytes();
        let body = rest.get(HEADER_BYTES..end).ok_or(SegmentError::Containment)?;
        match reader.message(&header, body) {
            Step::Next => done += end,
            Step::Stop if done + end == payload.len() => return Ok(Taken::Last(bytes)),
            Step::Stop => {
                reader.framing().done_bytes = within_segment(done + end);
                return Ok(Taken::NotNow);
            }
            Step::NotNow => {
                reader.framing().done_bytes = within_segment(done);
                return Ok(Taken::NotNow);
            }
        }
    }
    Ok(Taken::Whole(bytes))
}

/// Handles a piece of one large message, in a segment of the given number of bytes.
fn take_piece(
    reader: &mut impl Reader,
    piece: &[u8],
    bytes: usize,
    limits: Limits,
) -> Result<Taken, FrameError> {
    if let Some(mut skipped) = reader.framing().skipped.take() {
        let left = skipped.left_bytes.checked_sub(within_segment(piece.len()));
        let left = left.filter(|_| !piece.is_empty());
        skipped.left_bytes = left.ok_or(SegmentError::Containment)?;
        if skipped.left_bytes == 0 {
            reader.oversized(&skipped.header, skipped.error);
        } else {
            reader.framing().skipped = Some(skipped);
        }
        return Ok(Taken::Whole(bytes));
    }
    let mut assembly = std::mem::take(&mut reader.framing().assembly);
    let before = assembly.len();
    assembly.extend_from_slice(piece);
    let header = match decode_header(&assembly, reader.framing(), limits) {
        Err(error @ EnvelopeError::TooLarge { .. }) => return skip(reader, piece, bytes, error),
        decoded => decoded?,
    };
    // The first piece has the whole header, and no piece extends past the end of the message.
    let header = header.ok_or(SegmentError::Containment)?;
    if assembly.len() > header.envelope_bytes() || piece.is_empty() {
        return Err(SegmentError::Containment.into());
    }
    if assembly.len() < header.envelope_bytes() {
        reader.framing().assembly = assembly;
        return Ok(Taken::Whole(bytes));
    }
    let step = reader.message(&header, &assembly[HEADER_BYTES..]);
    if step == Step::NotNow {
        assembly.truncate(before);
        reader.framing().assembly = assembly;
    }
    Ok(Taken::after(step, bytes))
}

fn within_segment(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a segment is far below 4 GiB")
}

/// Skips a message whose first piece shows that it is too large. Segments have their own lengths, so
/// the connection continues.
// Source: Cassandra 5.0, CQLMessageHandler.processTooLargeRequest
fn skip(
    reader: &mut impl Reader,
    piece: &[u8],
    bytes: usize,
    error: EnvelopeError,
) -> Result<Taken, FrameError> {
    const ANY: Limits = Limits { body_bytes_max: usize::MAX };
    let header = decode_header(piece, reader.framing(), ANY)?.ok_or(SegmentError::Containment)?;
    let left = header.envelope_bytes().checked_sub(piece.len());
    // One piece is never the whole of a message in several segments.
    let left = left.and_then(|left| u32::try_from(left).ok()).filter(|left| *left > 0);
    let left_bytes = left.ok_or(SegmentError::Containment)?;
    reader.framing().skipped = Some(Box::new(Skipped { header, error, left_bytes }));
    Ok(Taken::Whole(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::cql::{PAYLOAD_BYTES_MAX, RequestEncoder, encode_segments};

    const FORMATS: [Option<SegmentFormat>; 3] =
        [None, Some(SegmentFormat::Plain), Some(SegmentFormat::Lz4)];

    /// Records streams and bodies, and returns `steps` one after another.
    #[derive(Default)]
    struct Witness {
        framing: Framing,
        seen: Vec<(i16, usize)>,
        steps: Vec<Step>,
        shown: usize,
        /// Bytes to inspect per look-ahead, and the number of look-aheads.
        window: usize,
        reads: usize,
        /// Streams of messages that are too large.
        refused: Vec<i16>,
    }

    impl Reader for Witness {
        fn framing(&mut self) -> &mut Framing {
            &mut self.framing
        }

        fn look_ahead(&mut self, messages: &[u8]) -> usize {
            self.reads += 1;
            messages.len().min(self.window)
        }

        fn message(&mut self, header: &Header, body: &[u8]) -> Step {
            assert_eq!(header.body_bytes, body.len());
            let step = self.steps.get(self.shown % self.steps.len().max(1));
            let step = step.copied().unwrap_or(Step::Next);
            self.shown += 1;
            if step != Step::NotNow {
                self.seen.push((header.stream, body.len()));
            }
            step
        }

        fn oversized(&mut self, header: &Header, error: EnvelopeError) {
            assert!(error.to_string().starts_with("Request is too big"), "{error}");
            self.refused.push(header.stream);
        }
    }

    fn witness(format: Option<SegmentFormat>, steps: &[Step]) -> Witness {
        let mut witness = Witness { steps: steps.to_vec(), ..Witness::default() };
        witness.framing.segments = format;
        witness
    }

    fn prepare(stream: i16, bytes: usize, out: &mut Vec<u8>) {
        let to = RequestEncoder { version: Version::V5, compression: None };
        // The text is preceded by eight bytes of lengths and flags.
        to.prepare(stream, &"x".repeat(bytes - 8), None, out);
    }

    fn in_format(messages: &[u8], format: Option<SegmentFormat>) -> Vec<u8> {
        let Some(format) = format else { return messages.to_vec() };
        let mut out = Vec::new();
        encode_segments(messages, format, &mut out);
        out
    }

    fn messages(sizes: &[usize]) -> (Vec<u8>, Vec<(i16, usize)>) {
        let mut out = Vec::new();
        let mut expected = Vec::new();
        for (stream, size) in (0..).zip(sizes) {
            prepare(stream, *size, &mut out);
            expected.push((stream, *size));
        }
        (out, expected)
    }

    /// Feeds the input in parts as a reactor does: bytes that were not consumed are passed again.
    fn feed(witness: &mut Witness, input: &[u8], cuts: impl Iterator<Item = usize>) {
        let mut start = 0;
        for cut in cuts.chain([input.len()]) {
            loop {
                let (bytes, end) = read(witness, &input[start..cut], Limits::DEFAULT);
                start += bytes;
                match end {
                    End::Unfinished { .. } => break,
                    End::Stopped => {}
                    End::Broken(error) => panic!("{error}"),
                }
            }
        }
        assert_eq!(start, input.len());
        assert_eq!(witness.framing.kept_bytes(), 0);
    }

    #[test]
    fn every_split_produces_the_same_messages() {
        let (bytes, expected) = messages(&[8, 30, 9]);
        for format in FORMATS {
            let input = in_format(&bytes, format);
            for cut in 0..=input.len() {
                let mut witness = witness(format, &[]);
                feed(&mut witness, &input, std::iter::once(cut));
                assert_eq!(witness.seen, expected, "{format:?} cut at {cut}");
            }
            let mut witness = witness(format, &[]);
            feed(&mut witness, &input, 0..input.len());
            assert_eq!(witness.seen, expected, "{format:?} byte by byte");
        }
    }

    #[test]
    fn messages_are_inspected_ahead_of_delivery() {
        let (bytes, expected) = messages(&[8; 100]);
        for format in FORMATS {
            let input = in_format(&bytes, format);
            for (window, reads) in [(0, 100), (17, 100), (10 * 17, 10), (usize::MAX, 1)] {
                let mut witness = witness(format, &[]);
                witness.window = window;
                read(&mut witness, &input, Limits::DEFAULT);
                assert_eq!(witness.seen, expected);
                // After the last message, one more look-ahead finds nothing left.
                let spare = usize::from(format.is_none());
                assert_eq!(witness.reads, reads + spare, "{format:?} {window}");
            }
        }
    }

    #[test]
    fn large_messages_arrive_in_pieces() {
        let (bytes, expected) = messages(&[8, 3 * PAYLOAD_BYTES_MAX, 8, PAYLOAD_BYTES_MAX + 1, 8]);
        for format in FORMATS {
            for steps in [&[][..], &[Step::Stop], &[Step::NotNow, Step::Next, Step::Stop]] {
                let input = in_format(&bytes, format);
                let mut witness = witness(format, steps);
                feed(&mut witness, &input, (0..input.len()).step_by(10_007));
                assert_eq!(witness.seen, expected, "{format:?} {steps:?}");
            }
        }
    }

    #[test]
    fn reading_stops_and_resumes_inside_a_segment() {
        let (bytes, expected) = messages(&[8, 9, 10, 11, 12]);
        for format in FORMATS {
            let input = in_format(&bytes, format);
            for steps in [&[Step::Stop][..], &[Step::NotNow, Step::Stop], &[Step::Next, Step::Stop]]
            {
                let mut witness = witness(format, steps);
                feed(&mut witness, &input, std::iter::empty());
                assert_eq!(witness.seen, expected, "{format:?} {steps:?}");
            }
        }
    }

    #[test]
    fn missing_bytes_are_reported_and_oversized_messages_refused_early() {
        let mut out = Vec::new();
        prepare(7, 1000, &mut out);
        let (_, end) = read(&mut witness(None, &[]), &out[..20], Limits::DEFAULT);
        assert_eq!(end, End::Unfinished { needed: 1009 });
        let limits = Limits { body_bytes_max: 999 };
        for format in FORMATS {
            let input = in_format(&out, format);
            let (bytes, end) = read(&mut witness(format, &[]), &input, limits);
            let End::Broken(error) = end else { panic!("{end:?}") };
            assert_eq!((bytes, error.stream()), (0, 7));
            assert!(error.to_string().starts_with("Request is too big"), "{error}");
        }
    }

    #[test]
    fn the_connection_continues_after_a_large_message_in_segments() {
        let sizes = [8, 3 * PAYLOAD_BYTES_MAX, 30];
        let (bytes, expected) = messages(&sizes);
        let limits = Limits { body_bytes_max: 2 * PAYLOAD_BYTES_MAX };
        for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
            let input = in_format(&bytes, Some(format));
            let mut witness = witness(Some(format), &[]);
            // The refusal does not precede the rest of the message.
            let (first, _) = read(&mut witness, &input[..input.len() / 2], limits);
            assert!(witness.refused.is_empty(), "{format:?}");
            let (rest, end) = read(&mut witness, &input[first..], limits);
            assert_eq!((first + rest, end), (input.len(), End::Unfinished { needed: 0 }));
            assert_eq!(witness.seen, [expected[0], expected[2]]);
            assert_eq!(witness.refused, [expected[1].0]);
            assert_eq!(witness.framing.kept_bytes(), 0);
        }
    }

    #[test]
    fn segments_with_wrong_message_ends_are_refused() {
        let mut small = Vec::new();
        prepare(1, 100, &mut small);
        let mut large = Vec::new();
        prepare(1, 2 * PAYLOAD_BYTES_MAX, &mut large);
        let whole = in_format(&small, Some(SegmentFormat::Plain));
        let pieces = in_format(&large, Some(SegmentFormat::Plain));
        let first_piece = PAYLOAD_BYTES_MAX + 10;
        // A whole message inside a large one.
        let between = [&pieces[..first_piece], &whole[..]].concat();
        let (bytes, end) =
            read(&mut witness(Some(SegmentFormat::Plain), &[]), &between, Limits::DEFAULT);
        assert_eq!(bytes, first_piece);
        assert_eq!(end, End::Broken(SegmentError::Containment.into()));
        // The second piece arrives twice and so extends past the end of the message.
        let twice = [&pieces[..2 * first_piece], &pieces[first_piece..]].concat();
        let (bytes, end) =
            read(&mut witness(Some(SegmentFormat::Plain), &[]), &twice, Limits::DEFAULT);
        assert_eq!(bytes, 2 * first_piece);
        assert_eq!(end, End::Broken(SegmentError::Containment.into()));
    }

    #[test]
    fn corruption_is_detected() {
        let (bytes, _) = messages(&[8, 30, 9]);
        for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
            let input = in_format(&bytes, Some(format));
            for at in 0..input.len() {
                let mut damaged = input.clone();
                damaged[at] ^= 0x10;
                let (_, end) = read(&mut witness(Some(format), &[]), &damaged, Limits::DEFAULT);
                assert!(matches!(end, End::Broken(FrameError::Segment(_))), "{format:?} {at}");
            }
        }
    }
}
