//! The parsed form of a request that holds only text, made by the walk that recognises it.

use canon::{ChatRequest, Part, Role, Turn, WireFormat};
use serde_json::{Map, Value};
use simdutf8::basic::from_utf8;

use crate::json_reader::JsonReader;

/// Decides by its model whether a request is wanted in its parsed form.
pub(crate) type WantsChat<'a> = &'a dyn Fn(&str) -> bool;

/// The turns of a request, as far as it is read.
#[derive(Default)]
pub(crate) struct PlainTurns {
    instructions: Option<Vec<Part>>,
    turns: Vec<Turn>,
    /// The parts of the turn that is being read.
    parts: Vec<Part>,
    /// The role of that turn.
    role: Option<Role>,
}

impl PlainTurns {
    /// Adds a text to the current turn. `None` if it is not UTF-8, or has an escape that is no character.
    #[inline]
    pub(crate) fn add_text(&mut self, quoted: &[u8], has_escapes: bool) -> Option<()> {
        let quoted = from_utf8(quoted).ok()?;
        let text = match has_escapes {
            true => JsonReader::unescape(quoted)?,
            false => quoted.strip_prefix('"')?.strip_suffix('"')?.to_owned(),
        };
        if self.parts.is_empty() {
            // Most turns have one part.
            self.parts.reserve_exact(1);
        }
        self.parts.push(Part::text(text));
        Some(())
    }

    pub(crate) const fn set_role(&mut self, role: Role) {
        self.role = Some(role);
    }

    /// Ends a turn. Adjacent turns of the model are one if `merges`.
    pub(crate) fn end_turn(&mut self, merges: bool) {
        let parts = std::mem::take(&mut self.parts);
        let role = self.role.take().unwrap_or(Role::User);
        match self.turns.last_mut() {
            Some(last) if merges && role == Role::Assistant && last.role == role => {
                last.parts.extend(parts);
            }
            _ => self.turns.push(Turn::new(role, parts)),
        }
    }

    pub(crate) fn end_instructions(&mut self) {
        self.role = None;
        self.instructions = Some(std::mem::take(&mut self.parts));
    }

    /// Returns a request with these turns.
    pub(crate) fn into_chat(self, model: String) -> Box<ChatRequest> {
        let mut chat = Box::<ChatRequest>::default();
        chat.model = model;
        chat.turns = self.turns;
        if let Some(parts) = self.instructions {
            chat.turns.insert(0, Turn::new(Role::System, parts));
        }
        chat
    }
}

/// Keeps the options of a stream, which only their own format has.
pub(crate) fn keep_stream_options(chat: &mut ChatRequest, origin: WireFormat, reports_usage: bool) {
    let options = Map::from_iter([("include_usage".to_owned(), Value::Bool(reports_usage))]);
    chat.extras.insert(origin, "stream_options", Value::Object(options));
}
