//! Streams in pieces of any size: runs of events that differ only in their text give the same output,
//! counts and errors as one event after the other.

use ::bytes::Bytes;
use canon::{Event, StopEnforcer, WireFormat};
use dialects::{Dialect, FrameAction, RequestFacts, SseDecoder, StreamFrame, TextRun};
use proptest::prelude::*;

use crate::cases::{answers, full_request, stamp};

/// Texts of events, as they stand in JSON.
const TEXTS: [&str; 10] = [
    "one",
    " two words",
    "hü",
    "a\\n\\\"b",
    "",
    "\u{1f600} and more than sixteen bytes of text",
    "12345678",
    "\\u00e4",
    "{}",
    "x",
];

/// Returns the event of a text in the format, named and numbered as its providers do.
fn text_event(format: WireFormat, number: usize, text: &str) -> String {
    // Letters and spaces that hide the length of the text.
    let letters = "abc".get(..number % 4).map(|letters| format!(",\"obfuscation\":\"{letters}\""));
    let (letters, spaces) = (letters.unwrap_or_default(), " ".repeat(number % 3));
    match format {
        WireFormat::Chat => format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"theirs\",\
             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]{letters}}}\n\n"
        ),
        WireFormat::Messages => format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}{spaces}}}\n\n"
        ),
        WireFormat::Responses => format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\
             \"sequence_number\":{number},\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,\
             \"delta\":\"{text}\"{letters}}}\n\n"
        ),
        _ => format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\
             \"role\":\"model\"}},\"index\":0}}],\"modelVersion\":\"theirs\"}}\n\n"
        ),
    }
}

/// A change of a stream.
#[derive(Clone, Debug)]
enum Mutation {
    Replace(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let byte = prop_oneof![
        Just(b'\n'),
        Just(b'\r'),
        Just(b'"'),
        Just(b'\\'),
        Just(b' '),
        Just(b'}'),
        Just(0xc3),
        Just(0xff),
        Just(b'1'),
        Just(b','),
        any::<u8>(),
    ];
    let index = any::<prop::sample::Index>;
    let one = prop_oneof![
        (index(), byte.clone()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (index(), byte).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        index().prop_map(Mutation::Remove),
    ];
    prop::collection::vec(one, 0..4)
}

fn mutated(mut stream: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        match mutation {
            Mutation::Replace(at, byte) => {
                let at = at.index(stream.len());
                stream[at] = *byte;
            }
            Mutation::Insert(at, byte) => stream.insert(at.index(stream.len()), *byte),
            Mutation::Remove(at) => {
                stream.remove(at.index(stream.len()));
            }
        }
    }
    stream
}

/// Returns the stream of a fixture with these texts after its events up to `place`.
fn stream_with_texts(
    dialect: &dyn Dialect,
    fixture: prop::sample::Index,
    place: prop::sample::Index,
    texts: &[usize],
) -> Vec<u8> {
    let answers = answers(dialect);
    let stream = String::from_utf8(answers[fixture.index(answers.len())].stream.clone()).unwrap();
    let events: Vec<&str> = stream.split_inclusive("\n\n").collect();
    let place = place.index(events.len());
    let texts = texts
        .iter()
        .enumerate()
        .map(|(number, text)| text_event(dialect.origin(), number, TEXTS[text % TEXTS.len()]));
    let (head, tail) = events.split_at(place);
    let all = head.iter().map(|event| (*event).to_owned()).chain(texts);
    all.chain(tail.iter().map(|event| (*event).to_owned())).collect::<String>().into_bytes()
}

fn pieces<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    at.windows(2).map(|window| &stream[window[0]..window[1]]).collect()
}

/// Feeds a stream. `take` gets the bytes between two events and may take events from them; `push`
/// returns an error that ends the stream.
fn feed(pieces: &[&[u8]], state: &mut impl FeedTarget, is_taken: bool) -> Option<canon::ApiError> {
    let mut decoder = SseDecoder::default();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        loop {
            if is_taken {
                let taken = decoder.events().map_or(0, |events| state.take(events));
                decoder.skip(taken);
            }
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    if let Some(error) = state.push(&frame) {
                        return Some(error);
                    }
                }
                Ok(None) => break,
                Err(error) => return Some(error),
            }
        }
    }
    match decoder.finish() {
        Ok(frame) => frame.and_then(|frame| state.push(&frame)),
        Err(error) => Some(error),
    }
}

trait FeedTarget {
    fn take(&mut self, events: &[u8]) -> usize;
    fn push(&mut self, frame: &StreamFrame) -> Option<canon::ApiError>;
}

struct MeteredStream {
    meter: Box<dyn dialects::StreamMeter>,
    out: Vec<u8>,
    is_last: bool,
}

impl FeedTarget for MeteredStream {
    fn take(&mut self, events: &[u8]) -> usize {
        if self.is_last { 0 } else { self.meter.repeat(events, &mut self.out) }
    }

    fn push(&mut self, frame: &StreamFrame) -> Option<canon::ApiError> {
        if self.is_last {
            return None;
        }
        match self.meter.observe(frame) {
            FrameAction::Forward => self.meter.write(frame, &mut self.out),
            FrameAction::Drop => {}
            FrameAction::Last => {
                self.meter.write(frame, &mut self.out);
                self.is_last = true;
            }
            FrameAction::Error(error) => return Some(error),
        }
        None
    }
}

struct WrittenStream {
    reader: Box<dyn dialects::StreamReader>,
    writer: Box<dyn dialects::StreamWriter>,
    enforcer: StopEnforcer,
    events: Vec<Event>,
    run: TextRun,
    out: Vec<u8>,
}

impl FeedTarget for WrittenStream {
    fn take(&mut self, events: &[u8]) -> usize {
        let taken = self.reader.repeat(events, &mut self.run);
        if taken > 0 {
            self.writer.push_run(&self.run, &mut self.out);
        }
        taken
    }

    fn push(&mut self, frame: &StreamFrame) -> Option<canon::ApiError> {
        let error = self.reader.push(frame, &mut self.events).err();
        let Self { writer, enforcer, events, out, .. } = self;
        for event in events.drain(..) {
            enforcer.push(event, &mut |event| writer.push(event, out));
        }
        error
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn pieces_of_any_size_are_metered_alike(
        fixture in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        texts in prop::collection::vec(0..TEXTS.len(), 0..12),
        mutations in mutations(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        is_named_alike in any::<bool>(),
    ) {
        for dialect in dialects::all() {
            let stream = stream_with_texts(dialect, fixture, place, &texts);
            let stream = mutated(stream, &mutations);
            let model = if is_named_alike { "theirs" } else { "mine" };
            let run = |pieces: &[&[u8]], is_taken: bool| {
                let facts = RequestFacts {
                    model: model.to_owned(),
                    stream: true,
                    wants_usage: true,
                    candidates: 1,
                    ..RequestFacts::default()
                };
                let meter = dialect.stream_meter(&facts);
                let mut state = MeteredStream { meter, out: Vec::new(), is_last: false };
                let error = feed(pieces, &mut state, is_taken);
                let out = String::from_utf8_lossy(&state.out).into_owned();
                (out, state.meter.totals().clone(), format!("{error:?}"))
            };
            let expected = run(&[&stream], false);
            prop_assert_eq!(run(&[&stream], true), expected.clone(), "{}", dialect.origin());
            prop_assert_eq!(run(&pieces(&stream, &cuts), true), expected, "{}", dialect.origin());
        }
    }

    #[test]
    fn pieces_of_any_size_are_translated_alike(
        fixture in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        texts in prop::collection::vec(0..TEXTS.len(), 0..12),
        mutations in mutations(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        for lane in dialects::all() {
            let stream = stream_with_texts(lane, fixture, place, &texts);
            let stream = mutated(stream, &mutations);
            for caller in dialects::all() {
                let run = |pieces: &[&[u8]], is_taken: bool| {
                    let mut state = WrittenStream {
                        reader: lane.stream_reader(),
                        writer: caller.stream_writer(&full_request(), &stamp()),
                        enforcer: StopEnforcer::forwarding_all(1, lane.origin()),
                        events: Vec::new(),
                        run: TextRun::default(),
                        out: Vec::new(),
                    };
                    let error = feed(pieces, &mut state, is_taken);
                    let losses = state.writer.finish(&mut state.out);
                    let out = String::from_utf8_lossy(&state.out).into_owned();
                    (out, format!("{error:?} {losses:?}"))
                };
                let expected = run(&[&stream], false);
                let pair = format!("{} to {}", lane.origin(), caller.origin());
                prop_assert_eq!(run(&[&stream], true), expected.clone(), "{}", pair);
                prop_assert_eq!(run(&pieces(&stream, &cuts), true), expected, "{}", pair);
            }
        }
    }
}
