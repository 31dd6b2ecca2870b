//! Description of turns and their blocks.
//!
//! Blocks of other types are kept as they were sent; see `own::server_tools` for those that canon
//! knows in part.

use serde_json::value::RawValue;

use crate::media_rules::{base64_error, mime_error};
use crate::text::BorrowedText;
use crate::wire_object::{wire_object, wire_union};
use crate::wire_rule::{FieldProblem, RuleResult, ensure, ensure_at, not_empty, one_of, passes};
use crate::wire_value::{OpaqueObject, TextOrList};

wire_object! {
    pub(super) struct MessagesTurn<'a>("a message object") {
        role required: BorrowedText<'a> where one_of(&["user", "assistant", "system"]),
        content required: TextOrList<'a, MessagesBlock<'a>>,
    }
    check MessagesTurn::check
}

wire_union! {
    /// A block of a turn.
    pub(super) enum MessagesBlock<'a>("a block object with a `type`") by "type" {
        Text(MessagesText<'a>) = "text",
        Image(MessagesImage<'a>) = "image",
        Document(MessagesDocument<'a>) = "document",
        Thinking(MessagesThinking<'a>) = "thinking",
        Redacted(MessagesRedacted<'a>) = "redacted_thinking",
        ToolUse(MessagesToolUse<'a>) = "tool_use",
        ToolResult(MessagesToolResult<'a>) = "tool_result",
    }
}

wire_object! {
    pub(super) struct MessagesText<'a>("a block") {
        text required: BorrowedText<'a>,
        citations: Vec<&'a RawValue>,
    }

    pub(super) struct MessagesImage<'a>("a block") {
        source required: Box<MessagesSource<'a>>,
    }
    check MessagesImage::check;

    pub(super) struct MessagesDocument<'a>("a block") {
        source required: Box<MessagesSource<'a>>,
        title kept: BorrowedText<'a>,
    }
}

wire_union! {
    /// The source of an image or a document.
    pub(super) enum MessagesSource<'a>("a source object with a `type`") by "type" {
        Base64(MessagesBase64<'a>) = "base64",
        Url(MessagesUrl<'a>) = "url",
        File(MessagesFile<'a>) = "file",
        Text(MessagesPlainText<'a>) = "text",
    }
}

wire_object! {
    pub(super) struct MessagesBase64<'a>("a source") {
        media_type required: BorrowedText<'a> where passes(mime_error),
        data required: BorrowedText<'a> where passes(base64_error),
    }

    pub(super) struct MessagesUrl<'a>("a source") {
        url required: BorrowedText<'a> where web_address,
    }

    pub(super) struct MessagesFile<'a>("a source") {
        file_id required: BorrowedText<'a>,
    }

    pub(super) struct MessagesPlainText<'a>("a source") {
        data required: BorrowedText<'a>,
    }

    pub(super) struct MessagesThinking<'a>("a block") {
        thinking required: BorrowedText<'a>,
        signature: BorrowedText<'a>,
    }

    pub(super) struct MessagesRedacted<'a>("a block") {
        data required: BorrowedText<'a>,
    }

    pub(super) struct MessagesToolUse<'a>("a block") {
        id required: BorrowedText<'a> where not_empty,
        name required: BorrowedText<'a> where not_empty,
        input required: OpaqueObject<'a>,
    }

    pub(super) struct MessagesToolResult<'a>("a block") {
        tool_use_id required: BorrowedText<'a> where not_empty,
        content: TextOrList<'a, MessagesBlock<'a>>,
        is_error: bool,
    }
}

impl<'a> MessagesTurn<'a> {
    /// Returns the blocks; empty if the content is a string.
    pub(super) fn blocks(&self) -> &[MessagesBlock<'a>] {
        let Some(TextOrList::List(blocks)) = &self.content else { return &[] };
        blocks
    }

    fn check(&self) -> RuleResult {
        let role = self.role.as_deref().unwrap_or_default();
        // An empty assistant turn is legal: it asks the model to begin the reply.
        let is_empty = matches!(&self.content, Some(TextOrList::List(blocks)) if blocks.is_empty());
        ensure_at(!is_empty || role == "assistant", "content", "must not be an empty list")?;
        for (at, block) in self.blocks().iter().enumerate() {
            let why = match (role, block) {
                ("user", MessagesBlock::ToolUse(_)) => "is a call, which only an assistant makes",
                ("assistant", MessagesBlock::ToolResult(_)) => {
                    "is a result, which only a user brings"
                }
                ("system", block) if !block.fits_system() => {
                    "must be text or a change of the tools in a system message"
                }
                _ => continue,
            };
            return Err(FieldProblem::new(format!("content[{at}]"), why));
        }
        Ok(())
    }
}

impl MessagesBlock<'_> {
    /// Returns true if a system message can hold the block. Beside text it holds changes of the
    /// tools.
    fn fits_system(&self) -> bool {
        let Self::Unknown(fields) = self else { return matches!(self, Self::Text(_)) };
        matches!(fields.text("type").as_deref(), Some("tool_addition" | "tool_removal"))
    }
}

impl MessagesImage<'_> {
    fn check(&self) -> RuleResult {
        let mime = match self.source.as_deref() {
            Some(MessagesSource::Base64(source)) => source.media_type.as_deref(),
            _ => None,
        };
        let is_picture = mime.is_none_or(|mime| mime.starts_with("image/"));
        ensure_at(is_picture, "source.media_type", "must be the type of a picture")
    }
}

fn web_address(url: &BorrowedText<'_>) -> RuleResult {
    ensure(url.starts_with("https://") || url.starts_with("http://"), "must be an https address")
}
