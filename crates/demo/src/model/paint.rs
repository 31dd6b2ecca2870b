//! The drawing model: an image of the user's text, and a sentence about it.

use canon::{ChatRequest, Media, MediaKind, MediaSource, Modality, Part, PartKind, Role};

use super::limits::AnswerDraft;
use super::prompt;
use crate::drawing::{self, Raster, Sketch};

/// Tokens of one image.
const TOKENS_PER_IMAGE: u64 = 1_120;

/// Factor by which an image of the largest class is enlarged. Drawing each of its pixels takes seconds.
const LARGEST_SCALE: u32 = 2;

/// Composes one image with a sentence about it, or one of the two if only that was requested.
pub(super) fn compose(chat: &ChatRequest, index: u32) -> AnswerDraft {
    let wants = |modality| chat.modalities.is_empty() || chat.modalities.contains(&modality);
    let text = prompt::last_text(chat);
    let mut parts = Vec::new();
    let short: String = text.chars().take(80).collect();
    if !wants(Modality::Image) {
        parts.push(Part::text(format!("I would draw this picture: {short}")));
    } else if wants(Modality::Text) {
        parts.push(Part::text(format!("Here is your picture: {short}")));
    }
    if wants(Modality::Image) {
        parts.push(Part::new(PartKind::Media(draw(chat, text, index))));
    }
    AnswerDraft { thoughts: None, seal: None, parts }
}

fn draw(chat: &ChatRequest, text: String, index: u32) -> Media {
    let is_largest = chat.image_shape.size.as_deref() == Some("4K");
    let sketch = Sketch {
        text,
        seed: u64::from(index),
        size: size(chat),
        detail: 4,
        transparent: false,
        inputs: inputs(chat),
        mask: None,
    };
    let picture = drawing::draw(&sketch);
    let picture = if is_largest { picture.enlarged(LARGEST_SCALE) } else { picture };
    let file = drawing::encode(&picture, "png", 90);
    let source =
        MediaSource::Inline { mime: "image/png".to_owned(), data: media::encode_base64(&file) };
    Media { kind: MediaKind::Image, source, name: None, detail: None, clip: None }
}

/// Returns the tokens of the images in an answer.
pub(super) fn image_tokens(parts: &[Part]) -> u64 {
    let images = parts.iter().filter(|part| matches!(part.kind, PartKind::Media(_)));
    images.count() as u64 * TOKENS_PER_IMAGE
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

/// Returns the size to draw for the requested class and aspect ratio: a square of the class, stretched.
/// The largest class is drawn as half of it and enlarged.
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
