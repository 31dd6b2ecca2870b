//! The proper answer in pieces, as input of the faults.

use bytes::Bytes;
use canon::WireFormat;

use super::script::{AnswerScript, BodyFraming, ScriptEnd, ScriptHead, ScriptStep};

/// A proper answer.
pub(super) struct ProperAnswer {
    /// Its status.
    pub(super) status: u16,
    /// Its content type.
    pub(super) kind: String,
    /// Its format.
    pub(super) origin: WireFormat,
    /// True if it is a stream of events.
    pub(super) events: bool,
    /// Its body.
    pub(super) pieces: Vec<BodyPiece>,
}

/// A piece of a body: bytes that are sent together, and the output tokens in them.
#[derive(Clone, Debug)]
pub(super) struct BodyPiece {
    pub(super) bytes: Bytes,
    pub(super) tokens: u64,
}

/// Number of pieces of a complete answer, so that `after` applies there too.
const PIECES_OF_WHOLE: usize = 8;

impl ProperAnswer {
    /// Splits an answer into pieces.
    pub(super) fn new(status: u16, kind: String, origin: WireFormat, body: Vec<BodyPiece>) -> Self {
        let events = kind.starts_with("text/event-stream");
        let mut good = Self { status, kind, origin, events, pieces: body };
        if let [only] = good.pieces.as_slice()
            && !events
        {
            good.pieces = cut(only);
        }
        good
    }

    /// Returns the head of the proper answer, with chunked framing.
    pub(super) fn head(&self) -> ScriptHead {
        let kind = ("content-type".to_owned(), Bytes::from(self.kind.clone()));
        ScriptHead {
            status: format!("{} X", self.status),
            headers: vec![kind],
            framing: BodyFraming::Chunked,
        }
    }

    /// Returns the proper answer as a script.
    pub(super) fn script(self) -> AnswerScript {
        let head = self.head();
        let body = self.steps();
        AnswerScript {
            before: Bytes::new(),
            head: Some(head),
            wait: None,
            body,
            end: ScriptEnd::Proper,
            refuse: None,
        }
    }

    /// Returns the body as steps.
    pub(super) fn steps(self) -> Vec<ScriptStep> {
        self.pieces.into_iter().map(BodyPiece::step).collect()
    }

    /// Returns the length of the body in bytes.
    pub(super) fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    /// Returns the body as one piece.
    pub(super) fn joined(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect()
    }

    /// Returns the number of output tokens.
    pub(super) fn tokens(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.tokens).sum()
    }
}

impl BodyPiece {
    pub(super) fn new(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), tokens: 0 }
    }

    pub(super) fn step(self) -> ScriptStep {
        ScriptStep::Send { bytes: self.bytes, tokens: self.tokens }
    }

    /// Returns the JSON of an event.
    pub(super) fn data(&self) -> Option<serde_json::Value> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("data: "))?;
        dialects::json::read(line).ok()
    }

    /// Returns the event with other JSON.
    pub(super) fn with_data(&self, data: &serde_json::Value) -> Self {
        let text = String::from_utf8_lossy(&self.bytes);
        let lines: Vec<String> = text
            .lines()
            .map(|line| match line.strip_prefix("data: ") {
                Some(_) => format!("data: {data}\n"),
                None => format!("{line}\n"),
            })
            .collect();
        Self { bytes: lines.concat().into(), tokens: self.tokens }
    }
}

/// Splits a complete body into pieces; the last piece carries the tokens.
fn cut(whole: &BodyPiece) -> Vec<BodyPiece> {
    let size = whole.bytes.len().div_ceil(PIECES_OF_WHOLE).max(1);
    let mut pieces: Vec<BodyPiece> =
        whole.bytes.chunks(size).map(|part| BodyPiece::new(whole.bytes.slice_ref(part))).collect();
    if let Some(last) = pieces.last_mut() {
        last.tokens = whole.tokens;
    }
    pieces
}
