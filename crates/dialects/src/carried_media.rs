//! Media that a format cannot carry. A writer leaves them out and tells the loss, so a call is refused
//! before, unless its caller has them left out.

use canon::{ApiError, ChatRequest, Losses, Media, MediaKind, MediaSource, Part, PartKind, Role};
use canon::{Loss, WireFormat};
use serde_json::Value;
use std::borrow::Cow;

use crate::dialect::Dialect;
use crate::fields::FOREIGN_FILE;
use crate::wire_rule::FieldProblem;

/// Reason for media in a field that no other format describes.
const ONLY_OWN_FORMAT: &str = "only a provider of the caller's own format takes these media";

/// The reason that a format cannot carry media.
#[derive(Debug)]
pub struct MediaProblem {
    /// Path of the loss.
    what: &'static str,
    why: Cow<'static, str>,
}

impl MediaProblem {
    /// Creates a problem with the path of its loss.
    pub(crate) fn new(what: &'static str, why: impl Into<Cow<'static, str>>) -> Self {
        Self { what, why: why.into() }
    }

    /// Returns the problem of a file in the storage of another provider than those of this format.
    pub(crate) fn of_file(media: &Media, me: WireFormat) -> Option<Self> {
        match &media.source {
            MediaSource::File { origin, .. } if *origin != me => {
                Some(Self::new("media.file", FOREIGN_FILE))
            }
            MediaSource::File { .. }
            | MediaSource::Inline { .. }
            | MediaSource::Url { .. }
            | MediaSource::Text(_) => None,
        }
    }

    /// Notes the loss in place of the media.
    pub(crate) fn lose<T>(&self, losses: &mut Losses) -> Option<T> {
        losses.add(self.what, &self.why);
        None
    }
}

/// Refuses a request with media that a format cannot carry. The path is that of the parsed request.
pub fn check_media(chat: &ChatRequest, target: &dyn Dialect) -> Result<(), ApiError> {
    let mut turns = chat.turns.iter().enumerate();
    let problem = turns.find_map(|(at, turn)| {
        let mut foreign = turn.extras.foreign_fields(target.origin());
        let problem = match foreign.any(|(name, value)| name == "images" || has_media(value)) {
            true => FieldProblem::new("", ONLY_OWN_FORMAT),
            false => first_problem(&turn.parts, turn.role, target)?,
        };
        Some(problem.inside(&format!("turns[{at}]")))
    });
    problem.map_or(Ok(()), |problem| Err(problem.into_unwritable()))
}

fn first_problem(parts: &[Part], role: Role, target: &dyn Dialect) -> Option<FieldProblem> {
    parts.iter().enumerate().find_map(|(at, part)| {
        let problem = match &part.kind {
            PartKind::ToolResult(result) => first_problem(&result.parts, Role::User, target)?,
            PartKind::Media(media) => {
                FieldProblem::new("", target.media_problem(part, media, role)?.why)
            }
            PartKind::Foreign { origin, value }
                if *origin != target.origin() && has_media(value) =>
            {
                FieldProblem::new("", ONLY_OWN_FORMAT)
            }
            PartKind::Foreign { .. }
            | PartKind::Text { .. }
            | PartKind::Refusal(_)
            | PartKind::Thought(_)
            | PartKind::ToolCall(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_) => return None,
        };
        Some(problem.inside(&format!("parts[{at}]")))
    })
}

/// Types of parts with media, in all formats.
const MEDIA_TYPES: [&str; 13] = [
    "audio",
    "computer_screenshot",
    "container_upload",
    "document",
    "file",
    "image",
    "image_url",
    "input_audio",
    "input_file",
    "input_image",
    "input_video",
    "video",
    "video_url",
];

/// Returns true if a part that its format alone describes holds media.
fn has_media(part: &Value) -> bool {
    match part {
        Value::Object(fields) => {
            let is_media = |word: &str| MEDIA_TYPES.contains(&word);
            fields.get("type").and_then(Value::as_str).is_some_and(is_media)
                || fields.values().any(has_media)
        }
        Value::Array(items) => items.iter().any(has_media),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Text in place of a turn or a tool result of which nothing is left. Providers refuse empty ones.
const LEFT_OUT: &str = "(media left out)";

/// Leaves out media that the format cannot carry or that the model does not read.
pub fn drop_media(
    chat: &mut ChatRequest,
    target: &dyn Dialect,
    reads: impl Fn(MediaKind) -> bool,
) -> Vec<Loss> {
    let mut dropping = MediaDropping { target, reads: &reads, losses: Losses::new() };
    for turn in &mut chat.turns {
        dropping.drop_from(&mut turn.parts, turn.role);
    }
    dropping.losses.into_vec()
}

struct MediaDropping<'a> {
    target: &'a dyn Dialect,
    reads: &'a dyn Fn(MediaKind) -> bool,
    losses: Losses,
}

impl MediaDropping<'_> {
    fn drop_from(&mut self, parts: &mut Vec<Part>, role: Role) {
        let had_parts = !parts.is_empty();
        parts.retain_mut(|part| match self.problem(part, role) {
            Some(problem) => {
                self.losses.add(problem.what, &problem.why);
                false
            }
            None => {
                if let PartKind::ToolResult(result) = &mut part.kind {
                    self.drop_from(&mut result.parts, Role::User);
                }
                true
            }
        });
        if had_parts && parts.is_empty() {
            parts.push(Part::text(LEFT_OUT));
        }
    }

    fn problem(&self, part: &Part, role: Role) -> Option<MediaProblem> {
        match &part.kind {
            PartKind::Media(media) => self.target.media_problem(part, media, role).or_else(|| {
                let kind = content_kind(media);
                let what = match kind {
                    MediaKind::Image => "media.image",
                    MediaKind::Audio => "media.audio",
                    MediaKind::Video => "media.video",
                    MediaKind::Document => "media.document",
                };
                let why = "the model does not read media of this kind";
                (!(self.reads)(kind)).then(|| MediaProblem::new(what, why))
            }),
            PartKind::Foreign { origin, value } => {
                let is_lost = *origin != self.target.origin() && has_media(value);
                is_lost.then(|| MediaProblem::new("part", ONLY_OWN_FORMAT))
            }
            PartKind::ToolResult(_)
            | PartKind::Text { .. }
            | PartKind::Refusal(_)
            | PartKind::Thought(_)
            | PartKind::ToolCall(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_) => None,
        }
    }
}

/// Returns the kind of the bytes: a file may hold an image.
pub(crate) fn content_kind(media: &Media) -> MediaKind {
    match &media.source {
        MediaSource::Inline { mime, .. } => MediaKind::from_mime(mime),
        MediaSource::Url { .. } | MediaSource::File { .. } | MediaSource::Text(_) => media.kind,
    }
}
