//! Media that a format cannot carry. A writer leaves them out and tells the loss, so a call is refused
//! before, unless its caller has them left out.

use canon::{ApiError, ChatRequest, Loss, Losses, MediaKind, Part, PartKind, RequestNeeds, Role};
use serde_json::Value;

use crate::dialect::Dialect;
use crate::media_problem::{MediaProblem, content_kind};
use crate::text::by_word;
use crate::wire_object::UnknownFields;
use crate::wire_rule::FieldProblem;

/// Reason for media in a field that no other format describes.
const ONLY_OWN_FORMAT: &str = "only a provider of the caller's own format takes these media";

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
        let problem = if let PartKind::ToolResult(result) = &part.kind {
            first_problem(&result.parts, Role::User, target)
        } else {
            part_problem(part, role, target).map(|problem| FieldProblem::new("", problem.why))
        };
        Some(problem?.inside(&format!("parts[{at}]")))
    })
}

/// Returns the reason that a format cannot carry the media of a part.
fn part_problem(part: &Part, role: Role, target: &dyn Dialect) -> Option<MediaProblem> {
    match &part.kind {
        PartKind::Media(media) => target.media_problem(part, media, role),
        PartKind::Foreign { origin, value } => {
            let is_lost = *origin != target.origin() && has_media(value);
            is_lost.then(|| MediaProblem::new("part", ONLY_OWN_FORMAT))
        }
        PartKind::Text { .. }
        | PartKind::Refusal(_)
        | PartKind::Thought(_)
        | PartKind::ToolCall(_)
        | PartKind::ToolResult(_)
        | PartKind::CodeExecution(_)
        | PartKind::CodeResult(_)
        | PartKind::WebSearch(_) => None,
    }
}

/// Types of parts with media, in all formats.
const MEDIA_TYPES: [(MediaKind, &str); 14] = [
    (MediaKind::Audio, "audio"),
    (MediaKind::Image, "computer_screenshot"),
    (MediaKind::Document, "container_upload"),
    (MediaKind::Document, "document"),
    (MediaKind::Document, "file"),
    (MediaKind::Image, "image"),
    (MediaKind::Image, "image_url"),
    (MediaKind::Audio, "input_audio"),
    (MediaKind::Document, "input_file"),
    (MediaKind::Image, "input_image"),
    (MediaKind::Video, "input_video"),
    (MediaKind::Image, "output_image"),
    (MediaKind::Video, "video"),
    (MediaKind::Video, "video_url"),
];

/// Adds the media of a part that its format does not describe, also those inside of it.
pub(crate) fn add_undescribed(
    needs: &mut RequestNeeds,
    fields: &UnknownFields<'_>,
    path: impl Fn() -> String,
) {
    visit_media(&fields.to_value(), "", &mut |kind, inner| {
        needs.add_media(kind, None, || format!("{}{inner}", path()));
    });
}

/// Returns true if a part that its format alone describes holds media.
fn has_media(part: &Value) -> bool {
    let mut is_found = false;
    visit_media(part, "", &mut |_, _| is_found = true);
    is_found
}

/// Visits the media of a part that its format alone describes, each with its path in the part.
fn visit_media(part: &Value, path: &str, visit: &mut dyn FnMut(MediaKind, &str)) {
    match part {
        Value::Object(fields) => {
            let word = fields.get("type").and_then(Value::as_str);
            if let Some(kind) = word.and_then(|word| by_word(&MEDIA_TYPES, word)) {
                return visit(kind, path);
            }
            for (name, value) in fields {
                visit_media(value, &format!("{path}.{name}"), visit);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                visit_media(item, &format!("{path}[{at}]"), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
        part_problem(part, role, self.target).or_else(|| self.unread_problem(part))
    }

    /// Returns the problem of media that the model does not read.
    fn unread_problem(&self, part: &Part) -> Option<MediaProblem> {
        let PartKind::Media(media) = &part.kind else { return None };
        let kind = content_kind(media);
        let what = match kind {
            MediaKind::Image => "media.image",
            MediaKind::Audio => "media.audio",
            MediaKind::Video => "media.video",
            MediaKind::Document => "media.document",
        };
        let is_read = (self.reads)(kind);
        let why = "the model does not read media of this kind";
        (!is_read).then(|| MediaProblem::new(what, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn media_are_found_inside_of_parts_that_no_other_format_has() {
        let image = json!({ "type": "image", "source": { "type": "base64", "data": "AAAA" } });
        let document = json!({ "type": "document", "source": { "type": "base64" } });
        for (part, found) in [
            (image.clone(), vec![(MediaKind::Image, "")]),
            (
                json!({ "type": "mcp_tool_result", "content": [{ "type": "text" }, image, image] }),
                vec![(MediaKind::Image, ".content[1]"), (MediaKind::Image, ".content[2]")],
            ),
            (
                json!({ "type": "web_fetch_tool_result",
                    "content": { "type": "web_fetch_result", "content": document } }),
                vec![(MediaKind::Document, ".content.content")],
            ),
            (json!({ "type": "output_image" }), vec![(MediaKind::Image, "")]),
            (json!({ "type": "server_tool_use", "input": { "query": "image" } }), vec![]),
        ] {
            let mut seen = Vec::new();
            visit_media(&part, "", &mut |kind, path| seen.push((kind, path.to_owned())));
            let found: Vec<_> =
                found.into_iter().map(|(kind, path)| (kind, path.to_owned())).collect();
            assert_eq!(seen, found, "{part}");
            assert_eq!(has_media(&part), !seen.is_empty(), "{part}");
        }
    }
}
