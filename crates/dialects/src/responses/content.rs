//! Description of the items of a conversation and of their parts, in requests and in responses.
//!
//! Providers leave out fields that callers must send. Those are checked in `rules`.
//!
//! See <https://platform.openai.com/docs/api-reference/responses/create#responses_create-input>.

use serde_json::value::RawValue;

use super::request::ResponsesTool;
use crate::media_rules::{file_data_error, file_url_error, picture_url_error};
use crate::openai_values::AudioInput;
use crate::text::BorrowedText;
use crate::wire_object::{wire_object, wire_union};
use crate::wire_rule::{one_of, passes, require};
use crate::wire_value::{
    AnyValue, BoundedList, LooseText, LooseValue, MAX_LIST_ITEMS, PlacedValue, TextOrList,
};

const MAX_PARTS: usize = 10_000;

/// Parts of a message or of a tool result, or their only text.
pub(super) type ResponsesParts<'a> = TextOrList<'a, ResponsesPart<'a>, MAX_PARTS>;

wire_union! {
    /// One item.
    pub(super) enum ResponsesItem<'a>("an item object") by "type" default "message" {
        Message(ResponsesMessage<'a>) = "message",
        Reasoning(ResponsesReasoningItem<'a>) = "reasoning",
        FunctionCall(ResponsesCall<'a>) = "function_call",
        CustomCall(ResponsesCall<'a>) = "custom_tool_call",
        FunctionResult(ResponsesResult<'a>) = "function_call_output",
        CustomResult(ResponsesResult<'a>) = "custom_tool_call_output",
        Search(ResponsesSearchItem<'a>) = "web_search_call",
        Code(ResponsesCodeItem<'a>) = "code_interpreter_call",
        Image(ResponsesImageItem<'a>) = "image_generation_call",
        Reference(ResponsesReference<'a>) = "item_reference",
        AddedTools(ResponsesAddedTools<'a>) = "additional_tools",
    }
}

wire_object! {
    pub(super) struct ResponsesMessage<'a>("a message object") {
        role required: BorrowedText<'a>
            where one_of(&["user", "assistant", "system", "developer"]),
        content: ResponsesParts<'a>,
    }

    /// Thinking, or a signature (see `signatures`).
    pub(super) struct ResponsesReasoningItem<'a>("an item object") {
        summary: Vec<ResponsesThoughtText<'a>>,
        content: PlacedValue<'a, Vec<ResponsesThoughtText<'a>>>,
        encrypted_content: BorrowedText<'a>,
        status: AnyValue,
    }

    pub(super) struct ResponsesThoughtText<'a>("an object with a `text`") {
        text: BorrowedText<'a>,
    }

    /// A call. Some providers send the arguments as an object.
    pub(super) struct ResponsesCall<'a>("an item object") {
        call_id: BorrowedText<'a>,
        name required: BorrowedText<'a>,
        arguments: PlacedValue<'a, LooseText<'a>>,
        input: PlacedValue<'a, LooseText<'a>>,
    }

    pub(super) struct ResponsesResult<'a>("an item object") {
        call_id required: BorrowedText<'a>,
        output required: ResponsesParts<'a>,
    }

    pub(super) struct ResponsesSearchItem<'a>("an item object") {
        action kept: LooseValue<ResponsesSearchAction<'a>>,
    }

    pub(super) struct ResponsesSearchAction<'a>("an object") {
        query: BorrowedText<'a>,
        queries: Vec<BorrowedText<'a>>,
        sources: Vec<ResponsesSource<'a>>,
    }

    pub(super) struct ResponsesSource<'a>("an object") {
        url: BorrowedText<'a>,
    }

    pub(super) struct ResponsesCodeItem<'a>("an item object") {
        code: BorrowedText<'a>,
        outputs: PlacedValue<'a, Vec<ResponsesCodeOutput<'a>>>,
    }

    pub(super) struct ResponsesCodeOutput<'a>("an object") {
        logs: LooseValue<BorrowedText<'a>>,
    }

    /// A generated image. Its result is base64, or absent while it is not ready.
    pub(super) struct ResponsesImageItem<'a>("an item object") {
        result: &'a RawValue,
    }

    pub(super) struct ResponsesReference<'a>("an item object") {
        id kept: BorrowedText<'a>,
    }
    check |item| require("id", item.id.is_some());

    pub(super) struct ResponsesAddedTools<'a>("an item object") {
        tools kept: BoundedList<ResponsesTool<'a>, MAX_LIST_ITEMS>,
    }
}

wire_union! {
    /// Part of a message or of a tool result.
    pub(super) enum ResponsesPart<'a>("a part object with a `type`") by "type" {
        InputText(ResponsesInputText<'a>) = "input_text" | "text",
        OutputText(ResponsesOutputText<'a>) = "output_text",
        Refusal(ResponsesRefusal<'a>) = "refusal",
        Image(ResponsesImagePart<'a>) = "input_image",
        File(ResponsesFilePart<'a>) = "input_file",
        Audio(ResponsesAudioPart<'a>) = "input_audio",
    }
}

wire_object! {
    pub(super) struct ResponsesInputText<'a>("a part") {
        text required: BorrowedText<'a>,
    }

    pub(super) struct ResponsesOutputText<'a>("a part") {
        text required: BorrowedText<'a>,
        annotations: Vec<ResponsesAnnotation<'a>>,
        logprobs: &'a RawValue,
    }
}

wire_union! {
    pub(super) enum ResponsesAnnotation<'a>("an annotation") by "type" default "url_citation" {
        Url(ResponsesUrlCitation<'a>) = "url_citation",
    }
}

wire_object! {
    pub(super) struct ResponsesUrlCitation<'a>("an annotation") {
        url: BorrowedText<'a>,
        title: BorrowedText<'a>,
        start_index: LooseValue<usize>,
        end_index: LooseValue<usize>,
    }

    pub(super) struct ResponsesRefusal<'a>("a part") {
        refusal: BorrowedText<'a>,
    }

    pub(super) struct ResponsesImagePart<'a>("a part") {
        image_url: BorrowedText<'a> where passes(picture_url_error),
        file_id: BorrowedText<'a>,
        detail: BorrowedText<'a>,
    }
    check |part| require("image_url", part.image_url.is_some() || part.file_id.is_some());

    pub(super) struct ResponsesFilePart<'a>("a part") {
        file_data: BorrowedText<'a> where passes(file_data_error),
        file_url: BorrowedText<'a> where passes(file_url_error),
        file_id: BorrowedText<'a>,
        filename: BorrowedText<'a>,
        detail: BorrowedText<'a>,
    }
    check |part| {
        let is_named = part.file_url.is_some() || part.file_id.is_some();
        require("file_data", is_named || part.file_data.is_some())
    };

    pub(super) struct ResponsesAudioPart<'a>("a part") {
        input_audio: AudioInput<'a>,
    }
    check |part| require("input_audio", part.input_audio.is_some());
}
