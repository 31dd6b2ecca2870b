//! The drawing model: an image of the user's text, and a sentence about it.

use canon::{ChatRequest, Media, MediaKind, MediaSource, Part, PartKind, Role};

use super::limits::AnswerDraft;
use super::prompt;
use crate::drawing::{self, Raster, Sketch};

/// Tokens of one image.
pub(super) const TOKENS_PER_IMAGE: u64 = 1_120;

/// Composes one image with a sentence about it.
pub(super) fn compose(chat: &ChatRequest, index: u32) -> AnswerDraft {
    let text = prompt::last_text(chat);
    let sketch = Sketch {
        text: text.clone(),
        seed: u64::from(index),
        size: size(chat),
        detail: 4,
        transparent: false,
        inputs: inputs(chat),
        mask: None,
    };
    let file = drawing::encode(&drawing::draw(&sketch), "png", 90);
    let source =
        MediaSource::Inline { mime: "image/png".to_owned(), data: media::encode_base64(&file) };
    let media = Media { kind: MediaKind::Image, source, name: None, detail: None, clip: None };
    let short: String = text.chars().take(80).collect();
    let said = Part::text(format!("Here is your picture: {short}"));
    AnswerDraft { thoughts: None, seal: None, parts: vec![said, Part::new(PartKind::Media(media))] }
}

/// Returns the images of the user's last turn.
fn inputs(chat: &ChatRequest) -> Vec<Raster> {
    let last = chat.turns.iter().rev().find(|turn| turn.role == Role::User);
    let parts = last.map(|turn| turn.parts.as_slice()).unwrap_or_default();
    let read = |part: &Part| match &part.kind {
        PartKind::Media(Media { source: MediaSource::Inline { data, .. }, .. }) => {
            drawing::decode(&media::decode_base64(data)?)
        }
        PartKind::Media(_)
        | PartKind::Text { .. }
        | PartKind::Refusal(_)
        | PartKind::Thought(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_)
        | PartKind::Foreign { .. } => None,
    };
    parts.iter().filter_map(read).collect()
}

/// Returns the size for the requested class and aspect ratio: a square of the class, stretched.
fn size(chat: &ChatRequest) -> (u32, u32) {
    let canon::ImageShape { aspect_ratio: ratio, size } = &chat.image_shape;
    let side: f64 = match size.as_deref() {
        Some("512") => 512.0,
        Some("2K" | "4K") => 2_048.0,
        Some(_) | None => 1_024.0,
    };
    let ratio = ratio.as_deref().and_then(|word| word.split_once(':'));
    let ratio = ratio.and_then(|(w, h)| Some(w.parse::<f64>().ok()? / h.parse::<f64>().ok()?));
    let ratio = ratio.filter(|ratio| (0.1..=10.0).contains(ratio)).unwrap_or(1.0);
    let even = |side: f64| ((side / 32.0).round() * 32.0).max(32.0) as u32;
    (even(side * ratio.sqrt()), even(side / ratio.sqrt()))
}
