//! The drawing model: an image of the user's text, and a sentence about it.

use canon::{Chat, Kind, Media, MediaKind, Part, Role, Source};
use dialects::images;

use super::limits::AnswerDraft;
use super::prompt;
use crate::pictures::{self, Raster, Sketch};

/// Tokens of one image.
pub(super) const TOKENS_PER_IMAGE: u64 = 1_120;

/// Composes one image with a sentence about it.
pub(super) fn compose(chat: &Chat, index: u32) -> AnswerDraft {
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
    let file = pictures::encode(&pictures::draw(&sketch), "png", 90);
    let source = Source::Inline { mime: "image/png".to_owned(), data: images::encode(&file) };
    let media = Media { kind: MediaKind::Image, source, name: None, detail: None, clip: None };
    let short: String = text.chars().take(80).collect();
    let said = Part::text(format!("Here is your picture: {short}"));
    AnswerDraft { thoughts: None, seal: None, parts: vec![said, Part::new(Kind::Media(media))] }
}

/// Returns the images of the user's last turn.
fn inputs(chat: &Chat) -> Vec<Raster> {
    let last = chat.turns.iter().rev().find(|turn| turn.role == Role::User);
    let parts = last.map(|turn| turn.parts.as_slice()).unwrap_or_default();
    let read = |part: &Part| match &part.kind {
        Kind::Media(Media { source: Source::Inline { data, .. }, .. }) => {
            pictures::decode(&images::decode(data)?)
        }
        Kind::Media(_)
        | Kind::Text { .. }
        | Kind::Refusal(_)
        | Kind::Thought(_)
        | Kind::ToolCall(_)
        | Kind::ToolResult(_)
        | Kind::Code(_)
        | Kind::CodeOutcome(_)
        | Kind::Search(_)
        | Kind::Foreign { .. } => None,
    };
    parts.iter().filter_map(read).collect()
}

/// Returns the size for the requested class and aspect ratio: a square of the class, stretched.
fn size(chat: &Chat) -> (u32, u32) {
    let canon::Canvas { ratio, size } = &chat.canvas;
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
