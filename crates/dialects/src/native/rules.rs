//! Rules of a native request that concern more than one field, and the facts that the relay needs.

use canon::{
    ApiError, JsonOutput, Losses, MediaKind, Modality, NeedKind, RequestNeeds, SamplingParameter,
};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::ops::Range;

use super::content::NativePart;
use super::names::{LIMIT_FIELD, ORIGIN, read_level, read_modality};
use super::own::calls;
use super::read_content::file_kind;
use super::request::{NativeConfig, NativeRequestView, NativeTool};
use super::signatures;
use crate::caller_labels::CallerLabels;
use crate::checks::{ensure_field, path_model};
use crate::client_tools::function_bytes;
use crate::dialect::PatchPoints;
use crate::fields::FOREIGN_SIGNATURE;
use crate::fields::add_protective;
use crate::json::{self, BodyEdit};
use crate::media_rules::base64_bytes;
use crate::service_tier::read_request_tier;
use crate::session_sign::SessionSigns;
use crate::wire_rule::{FieldProblem, RuleResult};
use crate::wire_value::PlacedValue;
use crate::{RequestFacts, RequestTarget};

/// Pairs by which the caller groups calls, a field of Vertex AI.
const LABELS_FIELD: &str = "labels";

/// Checks a request and returns its facts.
pub(super) fn check(
    target: &RequestTarget,
    text: &str,
    view: &NativeRequestView<'_>,
) -> Result<RequestFacts, ApiError> {
    let model = path_model(target)?;
    let has_turns = view.contents.is_some() || target.is_cached_content;
    ensure_field(has_turns, "contents", "is required")?;
    let problem = calls::match_calls(view.contents()).problem;
    problem.map_or(Ok(()), Err).map_err(FieldProblem::into_error)?;
    check_functions(view).map_err(FieldProblem::into_error)?;
    let (mut edits, losses) = edit_signatures(text, view);
    edit_tools(text, view, &mut edits);
    let limit = limit_range(text, view, &mut edits);
    let config = view.generation_config.as_ref();
    let max_output = config.and_then(|config| config.max_output_tokens.as_ref());
    let candidates = config.and_then(|config| config.candidate_count);
    Ok(RequestFacts {
        model,
        stream: target.stream,
        // Every chunk of a native stream may report usage, and the last one does.
        wants_usage: true,
        max_output_tokens: max_output.and_then(|limit| limit.value.to()),
        json_array: target.stream && target.json_array,
        candidates: candidates.and_then(|n| n.to()).unwrap_or(1),
        service_tier: view.service_tier.as_deref().map(|word| read_request_tier(ORIGIN, word)),
        client_tool_bytes: tools(view).flat_map(NativeTool::kinds).map(function_bytes).sum(),
        hosted_tools: tools(view).flat_map(NativeTool::kinds).map(|kind| (kind, None)).collect(),
        patch_points: PatchPoints {
            model: view.model.map(|raw| json::range_of(text, raw)),
            limit,
            ..PatchPoints::locate(text)
        },
        edits,
        losses,
        needs: needs(view),
        session: SessionSigns { rest: Some(&view.rest), ..SessionSigns::default() }.session(),
        labels: CallerLabels::read(None, view.rest.get(LABELS_FIELD).map(|pairs| pairs.get())),
        ..RequestFacts::default()
    })
}

/// Returns what the request asks of its model.
fn needs(view: &NativeRequestView<'_>) -> RequestNeeds {
    let mut needs = RequestNeeds::default();
    add_protective(&mut needs, &view.rest);
    for (at, content) in view.contents().iter().enumerate() {
        add_media(&mut needs, content.parts(), &|part| format!("contents[{at}].parts[{part}]"));
    }
    for (at, tool) in tools(view).enumerate() {
        for kind in tool.kinds() {
            needs.add_tool(kind, || format!("tools[{at}].{kind}"));
        }
    }
    if let Some(config) = view.generation_config.as_deref() {
        add_config(&mut needs, config);
    }
    needs
}

fn add_config(needs: &mut RequestNeeds, config: &NativeConfig<'_>) {
    for (at, word) in config.response_modalities.iter().flatten().enumerate() {
        let modality = read_modality(word).filter(|modality| *modality != Modality::Text);
        if let Some(modality) = modality {
            let path = format!("generationConfig.responseModalities[{at}]");
            needs.add(path, NeedKind::Output(modality));
        }
    }
    if let Some(image) = &config.image_config {
        let path = "generationConfig.imageConfig";
        needs.add(path, NeedKind::Output(Modality::Image));
        if let Some(ratio) = image.aspect_ratio.as_deref() {
            let ratio = NeedKind::AspectRatio(ratio.to_owned());
            needs.add(format!("{path}.aspectRatio"), ratio);
        }
        if let Some(size) = image.image_size.as_deref() {
            needs.add(format!("{path}.imageSize"), NeedKind::ImageSize(size.to_owned()));
        }
    }
    let thinking = config.thinking_config.as_ref();
    let budget = thinking.and_then(|thinking| thinking.thinking_budget?.to::<i64>());
    if let Some(budget) = budget {
        let path = "generationConfig.thinkingConfig.thinkingBudget";
        needs.add(
            path,
            match u64::try_from(budget) {
                Ok(0) => NeedKind::ThinkingOff,
                Ok(tokens) => NeedKind::ThinkingBudget(tokens),
                Err(_) => NeedKind::ThinkingDynamic,
            },
        );
    }
    let level = thinking.and_then(|thinking| thinking.thinking_level.as_deref());
    if let Some(level) = level.and_then(read_level) {
        let path = "generationConfig.thinkingConfig.thinkingLevel";
        needs.add(path, NeedKind::ThinkingLevel(level));
    }
    let has_schema = config.response_schema.is_some() || config.response_json_schema.is_some();
    let form = match config.response_mime_type.as_deref() {
        None | Some("text/plain") => None,
        Some("application/json") if !has_schema => Some(JsonOutput::Object),
        Some(_) => Some(JsonOutput::Schema),
    };
    if let Some(form) = form {
        needs.add("generationConfig.responseMimeType", NeedKind::Json(form));
    }
    if config.response_logprobs == Some(true) {
        needs.add("generationConfig.responseLogprobs", NeedKind::Logprobs);
    }
    add_parameters(needs, config);
    let count = config.candidate_count.and_then(|count| count.to::<u32>());
    if let Some(count) = count.filter(|count| *count > 1) {
        needs.add("generationConfig.candidateCount", NeedKind::Candidates(count));
    }
}

fn add_parameters(needs: &mut RequestNeeds, config: &NativeConfig<'_>) {
    for (path, parameter, value) in [
        ("generationConfig.temperature", SamplingParameter::Temperature, config.temperature),
        ("generationConfig.topP", SamplingParameter::TopP, config.top_p),
        (
            "generationConfig.presencePenalty",
            SamplingParameter::PresencePenalty,
            config.presence_penalty,
        ),
        (
            "generationConfig.frequencyPenalty",
            SamplingParameter::FrequencyPenalty,
            config.frequency_penalty,
        ),
    ] {
        needs.add_parameter(path, parameter, value);
    }
    let top_k = config.top_k.and_then(|count| count.to::<i64>());
    let seed = config.seed.and_then(|seed| seed.to::<i64>());
    let stops = config.stop_sequences.as_ref().map(|texts| texts.len());
    let logprobs = config.logprobs.and_then(|count| count.to::<i64>());
    needs.add_whole_parameter("generationConfig.topK", SamplingParameter::TopK, top_k);
    needs.add_whole_parameter("generationConfig.seed", SamplingParameter::Seed, seed);
    let path = "generationConfig.stopSequences";
    needs.add_whole_parameter(path, SamplingParameter::StopSequences, stops);
    needs.add_whole_parameter("generationConfig.logprobs", SamplingParameter::Logprobs, logprobs);
}

fn add_media(needs: &mut RequestNeeds, parts: &[NativePart<'_>], path: &dyn Fn(usize) -> String) {
    for (at, part) in parts.iter().enumerate() {
        if let Some(blob) = &part.inline_data
            && let Some(mime) = blob.mime_type.as_deref()
        {
            let bytes = blob.data.as_deref().map(base64_bytes);
            needs.add_media(MediaKind::from_mime(mime), bytes, || path(at));
        }
        if let Some(file) = &part.file_data {
            let uri = file.file_uri.as_deref().unwrap_or_default();
            needs.add_media(file_kind(file.mime_type.as_deref(), uri), None, || path(at));
        }
        if let Some(result) = &part.function_response
            && let Some(inner) = &result.parts
        {
            let inner_path = |part| format!("{}.functionResponse.parts[{part}]", path(at));
            add_media(needs, &inner.0, &inner_path);
        }
    }
}

fn tools<'v, 'a>(view: &'v NativeRequestView<'a>) -> impl Iterator<Item = &'v NativeTool<'a>> {
    view.tools.iter().flat_map(|tools| &tools.0)
}

/// Checks the names of functions, and the functions that a call is limited to.
fn check_functions(view: &NativeRequestView<'_>) -> RuleResult {
    let mut functions = HashSet::new();
    for (at, tool) in tools(view).enumerate() {
        let declared = tool.function_declarations.iter().flat_map(|list| &list.0).enumerate();
        for (index, function) in declared {
            if !functions.insert(function.name.as_deref().unwrap_or_default()) {
                let path = format!("tools[{at}].functionDeclarations[{index}].name");
                return Err(FieldProblem::new(path, "is already the name of another function"));
            }
        }
    }
    // Servers and cached content may declare functions too.
    let has_others = view.cached_content.is_some()
        || tools(view).flat_map(NativeTool::kinds).any(|kind| kind == "mcpServers");
    let config = view.tool_config.as_ref();
    let Some(calling) = config.and_then(|config| config.function_calling_config.as_ref()) else {
        return Ok(());
    };
    if has_others {
        return Ok(());
    }
    let refuse = |field: &str, why: &'static str| {
        Err(FieldProblem::new(format!("toolConfig.functionCallingConfig.{field}"), why))
    };
    let is_forced = calling.mode.as_deref().is_some_and(|mode| mode.eq_ignore_ascii_case("ANY"));
    if is_forced && functions.is_empty() {
        return refuse("mode", "needs `functionDeclarations` to call");
    }
    let mut allowed = calling.allowed_function_names.iter().flatten();
    let why = "names a function that is not in `tools`";
    let unknown = allowed.position(|name| !functions.contains(&**name));
    unknown.map_or(Ok(()), |at| refuse(&format!("allowedFunctionNames[{at}]"), why))
}

/// Replaces the signatures that a provider would refuse.
fn edit_signatures(text: &str, view: &NativeRequestView<'_>) -> (Vec<BodyEdit>, Losses) {
    let (mut edits, mut losses) = (Vec::new(), Losses::new());
    let parts = view.contents().iter().flat_map(|content| content.parts());
    for signature in parts.filter_map(|part| part.thought_signature.as_ref()) {
        // Most signatures go out unchanged. Only these characters mark one that needs a rewrite.
        let raw = signature.raw.get();
        if !raw.contains(['-', '_', '\\']) && !raw.starts_with("\"ptt") {
            continue;
        }
        if let Some(other) = signatures::for_upstream(&signature.value) {
            losses.add_if(other == signatures::BYPASS_SIGNATURE, "part.seal", FOREIGN_SIGNATURE);
            edits.push(BodyEdit {
                range: json::range_of(text, signature.raw),
                replacement: json::to_json_string(&other),
            });
        }
    }
    (edits, losses)
}

/// Replaces the names of tools in the service specification by those of the provider.
fn edit_tools(text: &str, view: &NativeRequestView<'_>, edits: &mut Vec<BodyEdit>) {
    for tool in tools(view) {
        let search = tool.vendor_search.as_ref().map(|search| (search.raw, "\"googleSearch\""));
        let maps = tool.vendor_maps.map(|maps| (maps.0, "\"googleMaps\""));
        for (value, name) in search.into_iter().chain(maps) {
            let range = key_range(text, value);
            edits.extend(range.map(|range| BodyEdit { range, replacement: name.into() }));
        }
    }
}

/// Returns the range of the key before a value.
fn key_range(text: &str, value: &RawValue) -> Option<Range<usize>> {
    let before = text.get(..json::range_of(text, value).start)?;
    let key = before.trim_end().strip_suffix(':')?.trim_end();
    let start = key.strip_suffix('"')?.rfind('"')?;
    Some(start..key.len())
}

/// Returns the range for a lowered limit: the caller's own value, or an empty range behind the
/// brace of `generationConfig`. Without that object there is no range.
fn limit_range(
    text: &str,
    view: &NativeRequestView<'_>,
    edits: &mut Vec<BodyEdit>,
) -> Option<Range<usize>> {
    let at = json::range_of(text, view.rest.get("generationConfig")?);
    let inside = at.start + 1;
    let config = view.generation_config.as_ref();
    if config.is_none() {
        // A null becomes an empty object around the range.
        edits.push(BodyEdit { range: at.start..inside, replacement: "{".into() });
        edits.push(BodyEdit { range: inside..at.end, replacement: "}".into() });
    }
    let own = config.and_then(|config| {
        let own = PlacedValue::range(config.max_output_tokens.as_ref(), text);
        own.or_else(|| config.rest.null_range(LIMIT_FIELD, text))
    });
    Some(own.unwrap_or(inside..inside))
}
