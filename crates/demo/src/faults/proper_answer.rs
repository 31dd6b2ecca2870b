//! The proper answer, taken apart, for faults to spoil.

use bytes::Bytes;
use canon::Origin;

use super::script::{End, Framing, Head, Script, Step};

/// A proper answer.
pub(super) struct Good {
    /// Its status.
    pub(super) status: u16,
    /// Its content type.
    pub(super) kind: String,
    /// Its format.
    pub(super) origin: Origin,
    /// Whether it is a stream of events.
    pub(super) events: bool,
    /// Its body.
    pub(super) pieces: Vec<Piece>,
}

/// A piece of a body: what leaves together, and the output tokens in it.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    pub(super) tokens: u64,
}

/// A whole answer is cut into this many pieces, so that `after` means something there too.
const CUTS: usize = 8;

impl Good {
    /// Takes an answer apart.
    pub(super) fn new(status: u16, kind: String, origin: Origin, body: Vec<Piece>) -> Self {
        let events = kind.starts_with("text/event-stream");
        let mut good = Self { status, kind, origin, events, pieces: body };
        if let [only] = good.pieces.as_slice()
            && !events
        {
            good.pieces = cut(only);
        }
        good
    }

    /// The head of the proper answer, in chunks.
    pub(super) fn head(&self) -> Head {
        let kind = ("content-type".to_owned(), Bytes::from(self.kind.clone()));
        Head {
            status: format!("{} X", self.status),
            headers: vec![kind],
            framing: Framing::Chunked,
        }
    }

    /// The proper answer as a script.
    pub(super) fn script(self) -> Script {
        let head = self.head();
        let body = self.steps();
        Script {
            before: Bytes::new(),
            head: Some(head),
            wait: None,
            body,
            end: End::Proper,
            refuse: None,
        }
    }

    /// The body in steps.
    pub(super) fn steps(self) -> Vec<Step> {
        self.pieces.into_iter().map(Piece::step).collect()
    }

    /// How many bytes the body has.
    pub(super) fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    /// The body in one.
    pub(super) fn joined(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect()
    }

    /// All output tokens.
    pub(super) fn tokens(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.tokens).sum()
    }
}

impl Piece {
    pub(super) fn new(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), tokens: 0 }
    }

    pub(super) fn step(self) -> Step {
        Step::Send { bytes: self.bytes, tokens: self.tokens }
    }

    /// The JSON of an event.
    pub(super) fn data(&self) -> Option<serde_json::Value> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("data: "))?;
        serde_json::from_str(line).ok()
    }

    /// The same event with other JSON.
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

/// A whole body in several pieces; its tokens come with the last.
fn cut(whole: &Piece) -> Vec<Piece> {
    let size = whole.bytes.len().div_ceil(CUTS).max(1);
    let mut pieces: Vec<Piece> =
        whole.bytes.chunks(size).map(|part| Piece::new(whole.bytes.slice_ref(part))).collect();
    if let Some(last) = pieces.last_mut() {
        last.tokens = whole.tokens;
    }
    pieces
}
