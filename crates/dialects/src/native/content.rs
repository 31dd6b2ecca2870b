//! Description of turns and parts, <https://ai.google.dev/api/caching#Content>.
//!
//! Requests and replies have the same parts. Their rules apply to requests only: they stand at the
//! list of parts.

use serde_json::value::RawValue;

use crate::media_rules::{base64_error, is_data_uri, mime_error};
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_rule::{
    FieldProblem, RuleResult, ensure, ensure_at, one_of, refuse, refuse_for, require,
};
use crate::wire_value::{AnyValue, LooseValue, OneOrMany, OpaqueObject, PlacedValue};

wire_object! {
    /// A turn.
    pub(super) struct NativeContent<'a>("a content object", camel_case) {
        role: BorrowedText<'a> where one_of(&["user", "model", "function"]),
        parts required: OneOrMany<NativePart<'a>> where turn_parts,
    }

    /// The system instruction. Its role is ignored.
    pub(super) struct NativeInstruction<'a>("a content object", camel_case) {
        role: BorrowedText<'a>,
        parts required: OneOrMany<NativePart<'a>> where text_parts,
    }

    /// A part: one payload and its modifiers.
    pub(super) struct NativePart<'a>("a part object", camel_case) {
        text: BorrowedText<'a>,
        inline_data "inlineData": Box<NativeBlob<'a>>,
        file_data "fileData": Box<NativeFile<'a>>,
        function_call "functionCall": Box<NativeCall<'a>>,
        function_response "functionResponse": Box<NativeResult<'a>>,
        executable_code "executableCode": Box<NativeCode<'a>>,
        code_execution_result "codeExecutionResult": Box<NativeCodeResult<'a>>,
        tool_call "toolCall" kept: AnyValue,
        tool_response "toolResponse" kept: AnyValue,
        audio_transcription "audioTranscription" kept: AnyValue,
        thought: bool,
        thought_signature "thoughtSignature": PlacedValue<'a, BorrowedText<'a>>,
        video_metadata "videoMetadata" kept: Box<NativeClip<'a>>,
        media_resolution "mediaResolution" kept: AnyValue,
        media_processing "mediaProcessing" kept: AnyValue,
        speech_metadata "speechMetadata" kept: AnyValue,
        part_metadata "partMetadata" kept: AnyValue,
    }

    pub(super) struct NativeBlob<'a>("an object", camel_case) {
        mime_type "mimeType": BorrowedText<'a>,
        data required: BorrowedText<'a>,
    }

    pub(super) struct NativeFile<'a>("an object", camel_case) {
        /// Optional, because some addresses (YouTube videos) imply it.
        mime_type "mimeType": BorrowedText<'a>,
        file_uri "fileUri" required: BorrowedText<'a>,
    }

    pub(super) struct NativeClip<'a>("an object", camel_case) {
        start_offset "startOffset": BorrowedText<'a>,
        end_offset "endOffset": BorrowedText<'a>,
        fps: f64 where |fps: &f64| ensure(*fps > 0.0 && *fps <= 24.0, "must be above 0 and at most 24"),
    }

    /// A function call. Its arguments may arrive in pieces.
    pub(super) struct NativeCall<'a>("an object", camel_case) {
        id: BorrowedText<'a>,
        name: BorrowedText<'a>,
        args: &'a RawValue,
        partial_args "partialArgs" kept: Vec<NativeArgument<'a>>,
        will_continue "willContinue" kept: bool,
    }

    /// A piece of the arguments of a call, and its JSON path.
    pub(super) struct NativeArgument<'a>("an object", camel_case) {
        json_path "jsonPath": BorrowedText<'a>,
        string_value "stringValue": BorrowedText<'a>,
        number_value "numberValue": LooseValue<f64>,
        bool_value "boolValue": bool,
        will_continue "willContinue": bool,
    }

    /// The result of a function call.
    pub(super) struct NativeResult<'a>("an object", camel_case) {
        id: BorrowedText<'a>,
        name: BorrowedText<'a>,
        response: OpaqueObject<'a>,
        parts: OneOrMany<NativePart<'a>>,
    }

    pub(super) struct NativeCode<'a>("an object", camel_case) {
        id: BorrowedText<'a>,
        language: BorrowedText<'a>,
        code: BorrowedText<'a>,
    }

    pub(super) struct NativeCodeResult<'a>("an object", camel_case) {
        id: BorrowedText<'a>,
        outcome: BorrowedText<'a>,
        output: BorrowedText<'a>,
    }
}

impl<'a> NativeContent<'a> {
    pub(super) fn is_model(&self) -> bool {
        self.role.as_deref() == Some("model")
    }

    pub(super) fn parts(&self) -> &[NativePart<'a>] {
        self.parts.as_ref().map(|parts| parts.0.as_slice()).unwrap_or_default()
    }
}

/// Returns the number of media.
pub(super) fn count_media(parts: &[NativePart<'_>]) -> usize {
    let count = |part: &NativePart<'_>| {
        let inner = part.function_response.as_ref().and_then(|result| result.parts.as_ref());
        usize::from(part.inline_data.is_some() || part.file_data.is_some())
            + inner.map_or(0, |parts| count_media(&parts.0))
    };
    parts.iter().map(count).sum()
}

fn turn_parts(parts: &OneOrMany<NativePart<'_>>) -> RuleResult {
    ensure(!parts.0.is_empty(), "must not be empty")?;
    check_parts(parts)
}

fn text_parts(parts: &OneOrMany<NativePart<'_>>) -> RuleResult {
    check_parts(parts)?;
    let is_other = |part: &NativePart<'_>| part.text.is_none();
    refuse_for(parts.0.iter().any(is_other).then_some("must hold only text"))
}

fn check_parts(parts: &OneOrMany<NativePart<'_>>) -> RuleResult {
    let mut parts = parts.0.iter().enumerate();
    parts.try_for_each(|(at, part)| part.check().map_err(|e| e.inside(&format!("[{at}]"))))
}

impl NativePart<'_> {
    fn check(&self) -> RuleResult {
        if let Some(name) = self.rest.undescribed(Self::FIELDS) {
            return Err(FieldProblem::new(name.to_owned(), "is not a field of a part"));
        }
        let payloads = [
            self.text.is_some(),
            self.inline_data.is_some(),
            self.file_data.is_some(),
            self.function_call.is_some(),
            self.function_response.is_some(),
            self.executable_code.is_some(),
            self.code_execution_result.is_some(),
            self.tool_call.is_some(),
            self.tool_response.is_some(),
            self.audio_transcription.is_some(),
        ];
        match payloads.into_iter().filter(|there| *there).count() {
            1 => {}
            // ProtoJSON leaves out empty values, so a lone signature stands for an empty text.
            0 if self.thought_signature.is_some() || self.thought == Some(true) => {}
            0 => return refuse("must hold something, such as a `text`"),
            _ if self.inline_data.is_some() && self.file_data.is_some() => {
                return refuse("must not hold both `inlineData` and `fileData`");
            }
            _ => return refuse("must hold only one kind of payload"),
        }
        self.check_media()?;
        if let Some(call) = &self.function_call {
            check_name(call.name.as_ref(), "functionCall.name")?;
            let is_object = call.args.is_none_or(|args| args.get().starts_with('{'));
            ensure_at(is_object, "functionCall.args", "must be an object")?;
        }
        let Some(result) = &self.function_response else { return Ok(()) };
        check_name(result.name.as_ref(), "functionResponse.name")?;
        match &result.parts {
            Some(parts) => check_parts(parts).map_err(|e| e.inside("functionResponse.parts")),
            None => require("functionResponse.response", result.response.is_some()),
        }
    }

    fn check_media(&self) -> RuleResult {
        if let Some(blob) = &self.inline_data {
            let why = blob.mime_type.as_deref().map_or(Some("is required"), mime_error);
            refuse_for(why).map_err(|e| e.inside("inlineData.mimeType"))?;
            let data = blob.data.as_deref().unwrap_or_default();
            refuse_for(base64_error(data)).map_err(|e| e.inside("inlineData.data"))?;
        }
        let Some(file) = &self.file_data else { return Ok(()) };
        let mime = file.mime_type.as_deref().filter(|mime| !mime.is_empty());
        refuse_for(mime.and_then(mime_error)).map_err(|e| e.inside("fileData.mimeType"))?;
        let is_data = is_data_uri(file.file_uri.as_deref().unwrap_or_default());
        let why = "is a data URI: send its bytes as `inlineData`";
        ensure_at(!is_data, "fileData.fileUri", why)
    }
}

/// Checks the name of a call or a result.
fn check_name(name: Option<&BorrowedText<'_>>, path: &'static str) -> RuleResult {
    require(path, name.is_some_and(|name| !name.is_empty()))
}
