//! Checks the `input` of a responses request.

use std::borrow::Cow;

use super::request_view::{
    InputItems, ItemContentView, ItemView, LooseText, ResponsesPartView, ResponsesToolView,
};
use super::signatures;
use crate::media_rules::{AcceptedMedia, AudioView, file_data_error, url_error};

impl ResponsesPartView<'_> {
    /// Returns the reason to reject the part. `None` if it is valid or of an unknown type.
    pub(super) fn problem(&self) -> Option<Cow<'static, str>> {
        let why = match self.r#type.as_deref() {
            None => "needs a `type`",
            Some("input_text" | "output_text") => match &self.text {
                Some(LooseText::Text(_)) => return None,
                _ => "needs a `text`",
            },
            Some("input_image") => match (&self.image_url, &self.file_id) {
                (Some(LooseText::Text(url)), _) => {
                    let why = url_error(url, AcceptedMedia::Picture)?;
                    return Some(Cow::Owned(format!("has an `image_url` that {why}")));
                }
                (Some(LooseText::Other), _) => "has an `image_url` that is not a string",
                (None, Some(_)) => NO_STORED_FILES,
                (None, None) => "needs an `image_url`",
            },
            Some("input_file") => match (&self.file_data, &self.file_url, &self.file_id) {
                (Some(LooseText::Text(data)), _, _) => {
                    let why = file_data_error(data)?;
                    return Some(Cow::Owned(format!("has a `file_data` that {why}")));
                }
                (None, Some(LooseText::Text(url)), _) => {
                    let why = url_error(url, AcceptedMedia::File)?;
                    return Some(Cow::Owned(format!("has a `file_url` that {why}")));
                }
                (None, Some(LooseText::Other), _) => "has a `file_url` that is not a string",
                (Some(LooseText::Other), _, _) => "has a `file_data` that is not a string",
                (None, None, Some(_)) => NO_STORED_FILES,
                (None, None, None) => "needs a `file_data` or a `file_url`",
            },
            Some("input_audio") => {
                let audio =
                    self.input_audio.map(|raw| serde_json::from_str::<AudioView>(raw.get()));
                match audio {
                    Some(Ok(audio)) => audio.problem()?,
                    Some(Err(_)) | None => "needs an `input_audio` object",
                }
            }
            Some(_) => return None,
        };
        Some(Cow::Borrowed(why))
    }
}

/// Stored files belong to the account of the provider's API key, not to the caller.
const NO_STORED_FILES: &str = "names a stored file, which is not supported: send its data or URL";

impl<'a> InputItems<'a> {
    /// Records the first invalid item, and the ids of calls and results.
    pub(super) fn check_item(&mut self, item: ItemView<'a>) {
        let index = self.count;
        let kind = match (&item.r#type, &item.role) {
            (Some(kind), _) => &**kind,
            (None, Some(_)) => "message",
            (None, None) => {
                self.reject(index, "type", "is required");
                return;
            }
        };
        let problem = match kind {
            "message" => message_problem(&item),
            "function_call" | "custom_tool_call" => match (&item.call_id, &item.name) {
                (None, _) => Some(("call_id", Cow::Borrowed("is required"))),
                _ if matches!(item.arguments, Some(LooseText::Other)) => {
                    Some(("arguments", Cow::Borrowed("must be a string")))
                }
                _ if matches!(item.input, Some(LooseText::Other)) => {
                    Some(("input", Cow::Borrowed("must be a string")))
                }
                (_, Some(name)) if !name.is_empty() => None,
                _ => Some(("name", Cow::Borrowed("is required"))),
            },
            "function_call_output" | "custom_tool_call_output" => result_problem(&item),
            _ => None,
        };
        if let Some((field, why)) = problem {
            self.reject(index, field, &why);
            return;
        }
        if kind == "reasoning"
            && item.encrypted_content.as_deref().is_some_and(signatures::is_envelope)
        {
            self.has_envelopes = true;
        }
        self.has_references |= matches!(kind, "item_reference" | "compaction");
        match (kind, item.id) {
            ("item_reference", Some(LooseText::Text(id))) => self.references.push((index, id)),
            ("item_reference", _) => {
                self.reject(index, "id", "is required");
                return;
            }
            (_, Some(LooseText::Text(id))) => self.ids.push(id),
            (_, Some(LooseText::Other) | None) => {}
        }
        if kind == "additional_tools"
            && let Some(tools) = item.tools
        {
            match serde_json::from_str::<Vec<ResponsesToolView<'a>>>(tools.get()) {
                Ok(tools) => self.tools.extend(tools),
                Err(_) => self.reject(index, "tools", "must be a list of tools"),
            }
        }
        match (kind, item.call_id) {
            (_, None) => {}
            ("function_call_output" | "custom_tool_call_output", Some(id)) => {
                self.results.push((index, id));
            }
            // Every other item with a `call_id` may be a call.
            (kind, Some(id)) if !kind.ends_with("_output") => self.calls.push(id),
            (_, Some(_)) => {}
        }
    }

    /// Returns the first result without a call, or the second result of a call.
    pub(super) fn unmatched_result(&self, elsewhere: bool) -> Option<(usize, &'static str)> {
        let mut seen: std::collections::HashSet<&str> = std::collections::HashSet::new();
        let calls: std::collections::HashSet<&str> = self.calls.iter().map(|id| &**id).collect();
        self.results.iter().find_map(|(index, id)| {
            if !elsewhere && !calls.contains(&**id) {
                return Some((*index, "answers no call: no `function_call` item has this id"));
            }
            (!seen.insert(id)).then_some((*index, "was answered before"))
        })
    }

    /// Returns the first reference to an item that the request does not contain.
    pub(super) fn missing_item(&self) -> Option<(usize, &str)> {
        let ids: std::collections::HashSet<&str> = self.ids.iter().map(|id| &**id).collect();
        let missing = self.references.iter().find(|(_, id)| !ids.contains(&**id));
        missing.map(|(index, id)| (*index, &**id))
    }

    fn reject(&mut self, index: usize, field: &str, why: &str) {
        if self.problem.is_none() {
            let path = if field.is_empty() {
                format!("input[{index}]")
            } else {
                format!("input[{index}].{field}")
            };
            self.problem = Some((path, why.to_owned()));
        }
    }
}

type ItemProblem = Option<(&'static str, Cow<'static, str>)>;

fn message_problem(item: &ItemView<'_>) -> ItemProblem {
    match item.role.as_deref() {
        Some("user" | "assistant" | "system" | "developer") => {}
        None => return Some(("role", Cow::Borrowed("is required"))),
        Some(_) => {
            let why = "must be one of `user`, `assistant`, `system`, `developer`";
            return Some(("role", Cow::Borrowed(why)));
        }
    }
    content_problem("content", &item.content)
}

fn result_problem(item: &ItemView<'_>) -> ItemProblem {
    if item.call_id.is_none() {
        return Some(("call_id", Cow::Borrowed("is required")));
    }
    content_problem("output", &item.output)
}

fn content_problem(field: &'static str, content: &ItemContentView<'_>) -> ItemProblem {
    match content {
        ItemContentView::Text | ItemContentView::Parts { problem: None } => None,
        ItemContentView::Absent => Some((field, Cow::Borrowed("is required"))),
        ItemContentView::Other => {
            Some((field, Cow::Borrowed("must be a string or a list of parts")))
        }
        ItemContentView::Parts { problem: Some((at, why)) } => {
            Some((field, Cow::Owned(format!("part {at} {why}"))))
        }
    }
}
