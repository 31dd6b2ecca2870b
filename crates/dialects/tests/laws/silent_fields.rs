//! Fields that may be neither carried nor told, each with its reason. Used by the law of losses.

use serde_json::Value;

/// The end of a path, the only value that is exempt as JSON (`*` for any), and the reason.
pub(crate) type SilentField = (&'static str, &'static str, &'static str);

/// Fields that tag or identify an object, or repeat another field. Without them it says the same.
const SILENT_KEYS: &[&str] = &[
    "bytes",
    "call_id",
    "completed_at",
    "created",
    "created_at",
    "createTime",
    "id",
    "index",
    "model",
    "modelVersion",
    "object",
    "responseId",
    "role",
    "status",
    "system_fingerprint",
    "tokenCount",
    "tokenId",
    "tool_use_id",
    "toolType",
    "type",
];

/// Exempt fields of requests.
pub(crate) const SILENT_IN_REQUESTS: &[SilentField] = &[
    // Defaults.
    ("n", "1", "the default"),
    ("stream", "false", "the default"),
    ("is_error", "false", "the default"),
    ("arguments", r#""{}""#, "the default"),
    ("responseModalities", r#"["TEXT"]"#, "the default"),
    ("response_modalities", r#"["text"]"#, "the default"),
    ("detail", r#""auto""#, "the default"),
    ("parallel_tool_calls", "true", "the default"),
    ("tool_choice", r#""auto""#, "the default"),
    ("store", "false", "the default"),
    ("background", "false", "the default"),
    ("includeThoughts", "false", "the default"),
    ("thinkingBudget", "-1", "the default"),
    ("strict", "false", "the default"),
    ("filename", r#""document.pdf""#, "the name of a file without one"),
    ("modalities", r#"["text"]"#, "the default"),
    ("allowed_tools.mode", r#""auto""#, "the default"),
    ("messages tool_choice", r#"{"type":"auto","disable_parallel_tool_use":false}"#, "the default"),
    ("executableCode.language", r#""LANGUAGE_UNSPECIFIED""#, "the default"),
    ("thinkingConfig", r#"{"thinkingBudget":-1}"#, "the default"),
    ("thoughtSignature", r#""skip_thought_signature_validator""#, "says that there is none"),
    ("toolConfig", r#"{"functionCallingConfig":{"mode":"NONE"}}"#, "there are no tools to forbid"),
    ("toolConfig", r#"{"functionCallingConfig":{"mode":"AUTO"}}"#, "the default"),
    ("generationConfig", r#"{"responseModalities":["TEXT"]}"#, "the default"),
    ("include", r#"["message.output_text.logprobs"]"#, "`top_logprobs` says it"),
    (
        "include",
        r#"["reasoning.encrypted_content","message.output_text.logprobs"]"#,
        "always requested, and `top_logprobs` says it",
    ),
    // Only one value is possible.
    ("prompt_cache_breakpoint.mode", r#""explicit""#, "the only mode"),
    ("[document].source.media_type", r#""text/plain""#, "the only type of a text"),
    ("executableCode.language", r#""PYTHON""#, "the only language"),
    // The other side does it anyway.
    ("strict", "true", "schemas are always enforced there, or by the mode VALIDATED"),
    ("additionalProperties", "false", "the messages format closes every object"),
    ("include", r#"["reasoning.encrypted_content"]"#, "always requested"),
    ("stream_options", "*", "the gateway writes the stream"),
    ("messages stream", "true", "the gateway streams a reply that it ends itself"),
    ("responseMimeType", r#""application/json""#, "follows from the schema"),
    (
        "messages thinking",
        r#"{"type":"adaptive","display":"omitted"}"#,
        "adaptive thinking that is not shown is the default elsewhere",
    ),
    ("fileData.mimeType", "*", "the server of the URL says it"),
    ("fileData.mime_type", "*", "the server of the URL says it"),
    ("file_data.mime_type", "*", "the server of the URL says it"),
    // Repeated, or part of something that is told.
    ("property_ordering", "*", "repeats the order of the properties"),
    ("[function_call].namespace", "*", "repeats the name of the function"),
    ("responseJsonSchema.title", "*", "names the schema for people"),
    ("[compaction].content", "*", "of a block that is lost as `part`"),
    ("[tool_search_call].execution", "*", "of an item that is lost as `part`"),
    ("[tool_search_output].execution", "*", "of an item that is lost as `part`"),
    ("reasoning_content", "*", "repeats `reasoning_details`"),
    ("reasoning_details", "*", "repeats `reasoning_content`"),
    ("allowedFunctionNames", "*", "names all tools"),
    ("tools[function]", "*", "a tool that the choice excludes is not offered"),
    ("contents[model].parts[].text", "*", "the text of a thought that is lost as `thought`"),
    ("encrypted_index", "*", "a token for the provider of the search"),
    ("encrypted_content", "*", "a token for the provider of the search"),
];

/// Exempt fields of replies.
pub(crate) const SILENT_IN_REPLIES: &[SilentField] = &[
    (
        "safetyRatings",
        r#"[{"category":"HARM_CATEGORY_HARASSMENT","probability":"NEGLIGIBLE"}]"#,
        "all negligible, as in every reply",
    ),
    // Repetitions of the request.
    ("responses background", "*", "repeats the request"),
    ("responses frequency_penalty", "*", "repeats the request"),
    ("responses instructions", "*", "repeats the request"),
    ("responses parallel_tool_calls", "*", "repeats the request"),
    ("responses presence_penalty", "*", "repeats the request"),
    ("responses previous_response_id", "*", "repeats the request"),
    ("responses prompt_cache_retention", "*", "repeats the request"),
    ("responses reasoning", "*", "repeats the request"),
    ("responses store", "*", "repeats the request"),
    ("responses temperature", "*", "repeats the request"),
    ("responses text", "*", "repeats the request"),
    ("responses tool_choice", "*", "repeats the request"),
    ("responses tools", "*", "repeats the request"),
    ("responses top_logprobs", "*", "repeats the request"),
    ("responses top_p", "*", "repeats the request"),
    ("responses truncation", "*", "repeats the request"),
    // Defaults.
    ("service_tier", r#""default""#, "the standard tier"),
    ("arguments", r#""{}""#, "the default"),
    ("executableCode.language", r#""PYTHON""#, "the only language"),
    ("return_code", "1", "a run without a code counts as failed"),
    ("output_format", r#""png""#, "the default"),
    ("url_citation.end_index", "*", "a citation without its end covers the text"),
    // Concerns the gateway and not its caller.
    ("responses billing", "*", "concerns the account of the gateway"),
    ("audio.expires_at", "*", "the provider's storage is not the caller's"),
    ("encrypted_index", "*", "a token for the provider of the search"),
    ("encrypted_content", "*", "a token for the provider of the search"),
    ("thoughtSignature", "*", "the gateway keeps it, or the part before has it"),
    // Repeated elsewhere in the reply.
    ("message.reasoning", "*", "repeats `reasoning_details`"),
    ("reasoning_content", "*", "repeats `reasoning_details`"),
    ("reasoning_details", "*", "repeats `reasoning_content`"),
    ("reasoning_details[reasoning.text].format", "*", "describes the signature"),
    ("action.queries", "*", "repeats `query`"),
    ("action.query", "*", "repeats `queries`"),
    ("action.sources", "*", "repeats the citations"),
    ("content[web_search_tool_result]", "*", "repeats the citations"),
    ("[web_search_result_location].title", "*", "the result of the search has it"),
    ("[web_search_result].title", "*", "of a result that no text cites"),
];

/// Returns true if a value holds nothing: empty texts and lists, zeros, tags.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().all(says_nothing),
        Value::Object(map) => {
            map.iter().all(|(key, value)| SILENT_KEYS.contains(&&**key) || says_nothing(value))
        }
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Null => true,
        Value::Bool(_) => false,
    }
}

/// Returns true if a field says nothing that another format could carry. `whole` is its path after
/// the name of its format.
pub(crate) fn is_silent(
    whole: &str,
    path: &[String],
    value: &Value,
    fields: &[SilentField],
) -> bool {
    let key = path.last().map_or("", String::as_str);
    // The name of a tool that the provider runs follows from its type. Its calls are lost as parts.
    let hosted = |step: &String| step.starts_with("[server_tool_use") || step.contains("_20");
    let hosted = path.iter().any(hosted) && (key == "name" || path.contains(&"input".to_owned()));
    // The gateway writes the usage of a reply from its own count.
    let counts = path.first().is_some_and(|first| ["usage", "usageMetadata"].contains(&&**first));
    let listed = fields.iter().any(|(end, only, _)| {
        let is_end = whole.strip_suffix(end).is_some_and(|front| {
            front.is_empty() || front.ends_with(['.', ' ', ']']) || end.starts_with('[')
        });
        is_end
            && (*only == "*" || serde_json::from_str(only).is_ok_and(|only: Value| only == *value))
    });
    says_nothing(value) || counts || hosted || SILENT_KEYS.contains(&key) || listed
}
