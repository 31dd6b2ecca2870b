//! Reads a chat request into canon.

use canon::{
    EffortLevel, ExtraFields, ImageShape, JsonSchema, ResponseFormat, ThinkingDisplay,
    ThinkingOptions, Tool, ToolChoiceMode,
};
use serde_json::Map;

use super::names::{MODALITIES, ORIGIN, REASONING_EXTRA};
use super::read_content::read_turns;
use super::read_tools::{
    read_choice, read_legacy_choice, read_legacy_function, read_search, read_tool,
};
use super::request::{ChatFormat, ChatImageConfig, ChatReasoning, ChatRequestView};
use crate::service_tier::read_request_tier;
use crate::text::{BorrowedText, by_word};
use crate::wire_object::raw_value;
use crate::wire_value::{OpaqueObject, PlacedValue};

/// Reads a request that the rules have checked.
pub(super) fn read(view: Box<ChatRequestView<'_>>) -> Box<canon::ChatRequest> {
    let mut chat = Box::<canon::ChatRequest>::default();
    view.read_options(&mut chat);
    chat.sampling.top_k = view.top_k;
    chat.sampling.max_output_tokens = view.output_limit();
    let stops = view.stop.map(|stop| stop.into_list(|text| text, BorrowedText::into_owned));
    chat.sampling.stop_sequences = stops.unwrap_or_default();
    chat.sampling.candidates = view.n.and_then(|n| u32::try_from(n).ok());
    let alternatives = u32::try_from(view.top_logprobs.unwrap_or(0)).unwrap_or(0);
    chat.sampling.logprobs = view.logprobs.unwrap_or(false).then_some(alternatives);
    chat.model = view.model.map(|model| model.value.into_owned()).unwrap_or_default();
    chat.turns = read_turns(view.messages.map(|list| list.0).unwrap_or_default());
    chat.tools = view.tools.into_iter().flat_map(|list| list.0).map(read_tool).collect();
    let functions = view.functions.into_iter().flat_map(|list| list.0);
    chat.tools.extend(functions.map(read_legacy_function));
    chat.tools.extend(view.web_search_options.map(|options| Tool::WebSearch(read_search(options))));
    chat.tool_choice.mode = match (&view.tool_choice, &view.function_call) {
        (Some(choice), _) => read_choice(choice),
        (None, Some(choice)) => read_legacy_choice(choice),
        (None, None) => ToolChoiceMode::Unset,
    };
    chat.response_format = view.response_format.map_or(ResponseFormat::Text, read_format);
    let words = view.modalities.iter().flatten();
    chat.modalities = words.filter_map(|word| by_word(&MODALITIES, word)).collect();
    chat.hints.user = view.safety_identifier.or(view.user).map(BorrowedText::into_owned);
    chat.hints.metadata = view.metadata.map(OpaqueObject::to_map).unwrap_or_default();
    chat.hints.service_tier =
        view.service_tier.as_deref().map(|word| read_request_tier(ORIGIN, word));
    chat.extras = view.rest.to_extras(ORIGIN);
    let level = view.reasoning_effort.as_deref().and_then(EffortLevel::parse);
    chat.thinking = match view.reasoning {
        Some(options) => read_reasoning(level, options, &mut chat.extras),
        None => ThinkingOptions { level, ..ThinkingOptions::default() },
    };
    if let Some(config) = view.image_config {
        let ChatImageConfig { aspect_ratio, image_size, rest } = config;
        chat.image_shape = ImageShape {
            aspect_ratio: aspect_ratio.map(BorrowedText::into_owned),
            size: image_size.map(BorrowedText::into_owned),
        };
        rest.keep_in(&mut chat.extras, ORIGIN, "image_config");
    }
    chat
}

/// Reads `reasoning`. The caller's own object and its unknown fields stay in the extras.
fn read_reasoning(
    level: Option<EffortLevel>,
    options: PlacedValue<'_, ChatReasoning<'_>>,
    extras: &mut ExtraFields,
) -> ThinkingOptions {
    let PlacedValue { raw, value: ChatReasoning { effort, max_tokens, exclude, enabled, rest } } =
        options;
    extras.insert(ORIGIN, REASONING_EXTRA, raw_value(raw));
    rest.keep_in(extras, ORIGIN, "reasoning");
    let off = (enabled == Some(false)).then_some(EffortLevel::Off);
    let level = level.or(off).or_else(|| effort.as_deref().and_then(EffortLevel::parse));
    ThinkingOptions {
        level,
        budget: max_tokens,
        dynamic: enabled == Some(true) && level.is_none() && max_tokens.is_none(),
        display: exclude.unwrap_or(false).then_some(ThinkingDisplay::Hidden),
    }
}

fn read_format(format: ChatFormat<'_>) -> ResponseFormat {
    match (format.kind.as_deref(), format.json_schema) {
        (Some("json_object"), _) => ResponseFormat::Json,
        (Some("json_schema"), schema) => {
            let schema = schema.unwrap_or_default();
            let json = schema.schema.map_or_else(|| Map::new().into(), OpaqueObject::to_value);
            ResponseFormat::Schema {
                name: schema.name.map(BorrowedText::into_owned),
                description: schema.description.map(BorrowedText::into_owned),
                strict: schema.strict,
                schema: JsonSchema::new(json),
            }
        }
        _ => ResponseFormat::Text,
    }
}
